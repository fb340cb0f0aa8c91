"""Operations of real libraries, right and with mistakes that people make in backward passes.

Every operation of `mutant_operations.py` is a `torch.autograd.Function`. Its right backward pass
and each of its mistakes are judged by adjudge, and by others where `--judges` names them. A unit is
`dtype size seed operation`:

    python benchmarks/mutants.py --match " 0 " --every 10               # a tenth, of the first seed
    python benchmarks/mutants.py --judges "adjudge,torch fast" --match " 0 "
    python benchmarks/mutants.py --match " 1000 [01] .*(norm|lstm)" --dtypes float64

The program says which mistakes count. The true vjp is that of PyTorch's own autograd, through the
forward pass in float64. A mistake that changes it by less than 1e-3, in every input, is dropped.
One that changes it by less than the dtype shows is counted apart, and so is a right backward pass
that loses its digits in the dtype.
"""

import dataclasses
import functools
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from harness import ORDINARY, RIGHT, Case, Family, Row, SkippedError, compare, table
from mutant_operations import OPERATIONS, Operation, Pick
from zoo_functions import Draw

DTYPES = ("float64", "float32", "bfloat16")
SIZES = (8, 1000, 100_000)
SEEDS = (0, 1, 2)
"""Each draws a point and probes."""
LARGE = 20_000
"""From this size on one mistake of each operation is made; the seed says which."""
SAME = 1e-3
"""A mistake that changes the vjp by a smaller share is none at these inputs."""
SHOWS = 0.1
"""A mistake that changes the vjp by a smaller share is counted apart in bfloat16."""
OFF = 0.5
"""A right vjp has its digits if it is within this times `u^(2/5)` of the one in float64."""
SUBTLE = "below what the dtype shows"
ROUNDED = "rounded badly"
COMPLEX = {"float64": torch.complex128, "float32": torch.complex64}

Tensors = tuple[torch.Tensor, ...]


# ---------------------------------------------------------------- one operation in one dtype


def several(value: Any) -> tuple[Any, ...]:
    """A tuple of what is one tensor or several."""
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def is_input(x: torch.Tensor) -> bool:
    """Whether a derivative is taken with respect to it: integers and masks are constants."""
    return x.is_floating_point() or x.is_complex()


def cast(x: torch.Tensor, dtype: str) -> torch.Tensor:
    """An input in the dtype, or in the complex one of twice its width; a constant as it is."""
    if x.is_complex() and dtype not in COMPLEX:
        raise SkippedError(f"no complex numbers in {dtype}")
    if x.is_complex():
        return x.to(COMPLEX[dtype])
    return x.to(getattr(torch, dtype)) if is_input(x) else x


@dataclasses.dataclass(frozen=True)
class Problem:
    """An operation at a point in a dtype."""

    operation: Operation
    dtype: str
    size: int
    seed: int

    def point(self) -> Tensors:
        """The inputs and constants, in the dtype."""
        name, kind = self.operation.name, getattr(torch, self.dtype)
        draw = Draw(zlib.crc32(f"{self.seed} {self.size} {name}".encode()), torch.finfo(kind).eps)
        drawn = self.operation.draw(draw, self.size)
        return tuple(cast(torch.as_tensor(x), self.dtype) for x in drawn)

    def forward(self, *x: torch.Tensor) -> Any:
        """The value in the dtype of the inputs, wherever it is computed."""
        refused = {str(a.dtype).removeprefix("torch.") for a in x} & {*self.operation.refuses}
        if refused:
            raise RuntimeError(f"{self.operation.name} is not implemented for {refused.pop()}")
        inside = self.operation.computes_in
        if not inside:
            return self.operation.forward(*x)
        outputs = several(self.operation.forward(*(cast(a, inside) for a in x)))
        outputs = tuple(y.to(x[0].dtype) for y in outputs)
        return outputs if len(outputs) > 1 else outputs[0]

    def backward(self, mistake: str, w: Tensors, y: Tensors, x: Tensors) -> Tensors:
        """One gradient for each input, with the mistake of this name."""
        inside = self.operation.computes_in
        seen = [[cast(a, inside) if inside else a for a in group] for group in (w, y, x)]
        found = self.operation.gradients(Pick(mistake), *seen)
        inputs = [a for a in x if is_input(a)]
        return tuple(g.to(a.dtype) for g, a in zip(found, inputs, strict=True))

    def made(self, mistake: str, _engine: str = "") -> tuple[Callable[..., Any], Tensors]:
        """The function with this backward pass, and its inputs."""
        point = self.point()
        problem = self

        class Rule(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *x: torch.Tensor) -> Any:
                y = problem.forward(*x)
                ctx.save_for_backward(*x, *several(y))
                return y

            @staticmethod
            def backward(ctx: Any, *w: torch.Tensor) -> Any:
                saved = ctx.saved_tensors
                x, y = saved[: len(point)], saved[len(point) :]
                with torch.device(x[0].device):  # a GPU's passes run in a thread of its own
                    found = iter(problem.backward(mistake, w, y, x))
                return tuple(next(found) if is_input(a) else None for a in x)

        def f(*inputs: torch.Tensor) -> Any:
            left = iter(inputs)
            return Rule.apply(*(next(left) if is_input(a) else a for a in point))

        f.__name__ = f.__qualname__ = self.operation.name
        return f, tuple(x.requires_grad_() for x in point if is_input(x))


# ---------------------------------------------------------------- which mistakes count


def gap(found: Sequence[torch.Tensor], true: Sequence[torch.Tensor]) -> float:
    """The largest error of the gradient of one input, relative to that gradient."""
    sizes = [float(t.norm()) for t in true]
    least = 1e-9 * max(sizes)
    errors = [float((f.to(t.dtype) - t).norm()) for f, t in zip(found, true, strict=True)]
    return max(error / max(size, least) for error, size in zip(errors, sizes, strict=True))


def prepared(problem: Problem) -> tuple[str, dict[str, str]]:
    """How the right backward pass counts, and each of its mistakes; the kind of one that makes no
    difference at this point is empty.
    """
    plain = dataclasses.replace(problem.operation, computes_in="", refuses=())
    exact = dataclasses.replace(problem, operation=plain, dtype="float64")
    here = problem.point()
    x = tuple(cast(a, "float64") for a in here)
    leaves = tuple(a.clone().requires_grad_() if is_input(a) else a for a in x)
    y = several(exact.forward(*leaves))
    generator = torch.Generator().manual_seed(problem.seed)
    drawn = [torch.randn(a.shape, dtype=a.dtype, generator=generator, device="cpu") for a in y]
    w = tuple(one.to(a.device) for one, a in zip(drawn, y, strict=True))
    true = torch.autograd.grad(y, [a for a in leaves if is_input(a)], w)
    y = tuple(a.detach() for a in y)
    if not max(float(t.norm()) for t in true) > 1e-9:
        raise SkippedError(f"{problem.operation.name}: all gradients are zero here")
    if not gap(exact.backward("", w, y, x), true) < 1e-9:
        raise RuntimeError(f"the backward pass of {problem.operation.name} is not right")
    try:
        value = several(problem.forward(*here))
        own = problem.backward("", tuple(cast(a, problem.dtype) for a in w), value, here)
    except RuntimeError:
        raise SkippedError(f"{problem.operation.name}: not in {problem.dtype}") from None
    if not all(a.isfinite().all() for a in (*value, *own)):
        raise SkippedError(f"{problem.operation.name}: not finite in {problem.dtype}")
    names = [problem.dtype, problem.operation.computes_in or problem.dtype]
    unit = max(torch.finfo(getattr(torch, name)).eps for name in names) / 2
    off = gap(own, true)
    shows = max(SHOWS if problem.dtype == "bfloat16" else SAME, 2 * off)
    kinds = {}
    for mistake in problem.operation.mistakes(w, y, x):
        size = gap(exact.backward(mistake, w, y, x), true)
        kinds[mistake] = "" if size < SAME else SUBTLE if size < shows else ORDINARY
    return ROUNDED if off > OFF * unit**0.4 else ORDINARY, kinds


def cases(unit: str) -> Iterator[Case]:
    """The right backward pass, and its mistakes as far as they make a difference."""
    dtype, size, seed, name = unit.split(" ", 3)
    problem = Problem(OPERATIONS[name], dtype, int(size), int(seed))
    kind, kinds = prepared(problem)
    make = functools.partial(problem.made, "")
    case = Case(unit, f"{dtype}, {size} numbers", make, RIGHT, kind, {"seed": problem.seed})
    yield case
    mistakes = list(kinds)
    start = (zlib.crc32(name.encode()) + problem.seed) % len(mistakes)
    shown = [mistake for mistake in mistakes[start:] + mistakes[:start] if kinds[mistake]]
    for mistake in shown[:1] if problem.size >= LARGE else shown:
        make = functools.partial(problem.made, mistake)
        yield dataclasses.replace(case, make=make, plant=mistake, kind=kinds[mistake])


# ---------------------------------------------------------------- the family


def units() -> list[str]:
    """Every operation in each dtype, in three sizes, at the points of three seeds."""
    return [
        f"{dtype} {size} {seed} {name}"
        for size in SIZES
        for name, operation in OPERATIONS.items()
        for dtype in DTYPES
        for seed in SEEDS
        if dtype not in operation.refuses
    ]


def prepare(_deltas: Sequence[float] = ()) -> Callable[[str], Iterator[Case]]:
    """An operation has mistakes of its own."""
    torch.set_num_threads(1)
    # Without this line the fast mode of the peer makes the whole Jacobian for its message.
    sys.modules["torch.autograd.gradcheck"]._run_slow_mode_and_get_error = lambda *_: ""
    return cases


def flips(rows: Sequence[Row]) -> str:
    """The cases that PASS with one seed and FAIL with another."""
    verdicts: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        dtype, size, seed, name = row.name.split(" ", 3)
        verdicts.setdefault((row.judge, dtype, size, name, row.plant), {})[seed] = row.verdict
    lines = [
        (*case, " ".join(f"{seed}:{verdict}" for seed, verdict in sorted(of.items())))
        for case, of in verdicts.items()
        if {"PASS", "FAIL"} <= set(of.values())
    ]
    head = ("judge", "dtype", "size", "operation", "backward pass", "verdicts by seed")
    return f"### Flips between PASS and FAIL: {len(lines)}\n\n{table(head, lines)}"


def costs(rows: Sequence[Row]) -> str:
    """What a FAIL costs, in times of the PASS of the same operation without the mistake."""
    right_ones = [row for row in rows if row.plant == RIGHT and row.verdict == "PASS"]
    passed = {(row.judge, row.name): row for row in right_ones}
    times: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for row in rows:
        right = passed.get((row.judge, row.name))
        if row.plant != RIGHT and row.verdict == "FAIL" and right is not None and right.evaluations:
            dtype, size, _, _ = row.name.split(" ", 3)
            more = (row.evaluations or 0) / right.evaluations, row.seconds / right.seconds
            times.setdefault((row.judge, dtype, size), []).append(more)
    lines = []
    for case, more in times.items():
        quantiles = np.quantile(more, (0.5, 0.9, 1), axis=0).T
        lines.append((*case, len(more), *(f"{one:.1f}" for one in quantiles.ravel())))
    shares = ("half", "9/10", "most")
    head = ("judge", "dtype", "size", "FAILs")
    head += tuple(f"{of} {share}" for of in ("evaluations", "seconds") for share in shares)
    return f"### What a FAIL costs, in times of the PASS\n\n{table(head, lines)}"


FAMILY = Family(units, prepare)

if __name__ == "__main__":
    compared = compare(FAMILY, "Mistakes in backward passes", ["adjudge"], DTYPES)
    print(flips(compared))
    print(costs(compared))
