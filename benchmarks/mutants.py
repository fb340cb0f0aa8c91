"""Operations of real libraries, right and with mistakes that people make in backward passes.

Every operation of `mutant_operations.py` is a `torch.autograd.Function`. Its right backward pass
and each of its mistakes are judged by adjudge and, with `--peer`, by `torch.autograd.gradcheck`:

    python benchmarks/mutants.py --slice 10                        # a tenth
    python benchmarks/mutants.py --peer --record mutants.jsonl
    python benchmarks/mutants.py --operations "norm|lstm" --dtypes float64 --sizes 1000 --seeds 0,1
    python benchmarks/mutants.py --tables mutants.jsonl more.jsonl # of what was recorded

The program says which mistakes count. The true vjp is that of PyTorch's own autograd, through the
forward pass in float64. A mistake that changes it by less than 1e-3, in every input, is dropped.
One that changes it by less than the dtype shows is counted apart, and so is a right backward pass
that loses its digits in the dtype.
"""

import argparse
import dataclasses
import functools
import json
import math
import re
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from harness import (
    ORDINARY,
    RIGHT,
    Case,
    Row,
    SkippedError,
    ask,
    first_line,
    header,
    listed,
    spread,
    table,
    told,
)
from mutant_operations import OPERATIONS, Operation, Pick
from zoo_functions import Draw

DTYPES = ("float64", "float32", "bfloat16")
SIZES = ("8", "1000", "100000")
SMALL = 100
"""Up to this size the slow mode of the peer is asked as well; it makes whole Jacobians."""
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
    w = tuple(torch.randn(a.shape, dtype=a.dtype, generator=generator) for a in y)
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
    """The right backward pass and its mistakes; those that make no difference have no kind."""
    dtype, size, seed, name = unit.split(" ", 3)
    problem = Problem(OPERATIONS[name], dtype, int(size), int(seed))
    kind, kinds = prepared(problem)
    make = functools.partial(problem.made, "")
    case = Case(unit, dtype, make, RIGHT, kind, {"seed": problem.seed})
    yield case
    mistakes = list(kinds)
    if problem.size >= LARGE:
        start = (zlib.crc32(name.encode()) + problem.seed) % len(mistakes)
        mistakes = [m for m in mistakes[start:] + mistakes[:start] if kinds[m]][:1]
    for mistake in mistakes:
        make = functools.partial(problem.made, mistake)
        yield dataclasses.replace(case, make=make, plant=mistake, kind=kinds[mistake])


def work(judges: Sequence[str], limit: float) -> Callable[[str], list[Row] | str]:
    """What a process does with a unit: every answer, or why there is none."""
    torch.set_num_threads(1)
    # Without this line the fast mode of the peer makes the whole Jacobian for its message.
    sys.modules["torch.autograd.gradcheck"]._run_slow_mode_and_get_error = lambda *_: ""

    def rows(unit: str) -> list[Row] | str:
        found = []
        size = int(unit.split(" ")[1])
        try:
            for case in cases(unit):
                if not case.kind:
                    found.append(Row(unit, case.group, "", case.plant, "", "", "", None, 0.0, 0.0))
                    continue
                asked = [j for j in judges if size <= SMALL or j != "torch slow"]
                found += [ask(judge, case, limit) for judge in asked]
        except SkippedError as skipped:
            return str(skipped)
        return found

    return rows


# ---------------------------------------------------------------- tables


def tables(rows: Sequence[Row]) -> str:
    """The counts of every judge in every dtype and size, and what adjudge did not get right."""
    dropped = sum(not row.kind for row in rows)
    rows = [row for row in rows if row.kind]
    operations = {row.name.split(" ", 3)[3] for row in rows}
    mistakes = {(row.name.split(" ", 3)[3], row.plant) for row in rows if row.plant != RIGHT}
    parts = [
        f"{len(operations)} operations with {len(mistakes)} mistakes; {dropped} times a mistake "
        "was none at the inputs and was dropped.\n"
    ]
    for kind in (ORDINARY, SUBTLE, ROUNDED):
        own = [row for row in rows if row.kind == kind]
        if own:
            parts.append(f"### {kind}\n\n{counts(own)}")
    ours = [row for row in rows if row.judge == "adjudge"]
    expected = {RIGHT: "PASS"}
    open_ = [row for row in ours if row.verdict != expected.get(row.plant, "FAIL")]
    lines = [
        (r.verdict, r.name, r.plant, r.kind, first_line(r.text, 100))
        for r in sorted(
            open_, key=lambda r: (r.kind != ORDINARY, r.plant != RIGHT, r.verdict, r.name)
        )
    ]
    head = ("verdict", "dtype, size, seed, operation", "backward pass", "kind", "first line")
    parts.append(f"### What adjudge did not get right: {len(lines)}\n\n{table(head, lines)}")
    parts.append(flips(ours))
    return "\n".join(parts)


def counts(rows: Sequence[Row]) -> str:
    """The verdicts of right and of wrong backward passes, by judge, dtype and size."""
    lines = []
    head = ("judge", "dtype", "size", "right", "PASS", "FAIL", "INCONCLUSIVE", "CRASH", "seconds")
    head += ("wrong", "FAIL", "PASS", "INCONCLUSIVE", "CRASH", "seconds")
    for judge in dict.fromkeys(row.judge for row in rows):
        keys = {(row.group, size_of(row)) for row in rows if row.judge == judge}
        keys |= {(dtype, math.inf) for dtype, _ in keys}
        for dtype, size in sorted(keys, key=lambda key: (DTYPES.index(key[0]), key[1])):
            own = [r for r in rows if (r.judge, r.group) == (judge, dtype)]
            own = [r for r in own if size in (size_of(r), math.inf)]
            cells = []
            for chosen, order in (
                ([r for r in own if r.plant == RIGHT], ("PASS", "FAIL")),
                ([r for r in own if r.plant != RIGHT], ("FAIL", "PASS")),
            ):
                of = Counter(row.verdict for row in chosen)
                cells += [len(chosen), *(of[v] for v in (*order, "INCONCLUSIVE", "CRASH"))]
                cells.append(f"{sum(row.seconds for row in chosen):.1f}")
            lines.append((judge, dtype, "all" if size == math.inf else size, *cells))
    return table(head, lines)


def size_of(row: Row) -> int:
    """The size that the unit of a row asked for."""
    return int(row.name.split(" ")[1])


def flips(rows: Sequence[Row]) -> str:
    """The cases that PASS with one seed and FAIL with another."""
    verdicts: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        dtype, size, seed, name = row.name.split(" ", 3)
        verdicts.setdefault((dtype, size, name, row.plant), {})[seed] = row.verdict
    lines = [
        (*case, " ".join(f"{seed}:{verdict}" for seed, verdict in sorted(of.items())))
        for case, of in verdicts.items()
        if {"PASS", "FAIL"} <= set(of.values())
    ]
    head = ("dtype", "size", "operation", "backward pass", "verdicts by seed")
    seeds = len({row.name.split(" ")[2] for row in rows})
    return (
        f"### Flips between PASS and FAIL over {seeds} seeds: {len(lines)}\n\n{table(head, lines)}"
    )


# ---------------------------------------------------------------- the command line


def main() -> None:
    """Judges what the command line asks for and prints the tables."""
    parser = argparse.ArgumentParser(description="Backward passes, right and with mistakes.")
    parser.add_argument("--operations", default="", metavar="REGEX", help="operations by name")
    parser.add_argument("--dtypes", type=listed, default=list(DTYPES))
    parser.add_argument("--sizes", type=listed, default=list(SIZES))
    parser.add_argument("--seeds", type=listed, default=["0"], help="each draws points and probes")
    parser.add_argument("--slice", type=int, default=1, metavar="N", help="one unit of N")
    parser.add_argument("--peer", action="store_true", help="ask torch.autograd.gradcheck, too")
    parser.add_argument("--limit", type=float, default=120.0, metavar="S", help="s for a check")
    parser.add_argument("--processes", type=int, default=2, help="units at a time")
    parser.add_argument("--record", type=Path, metavar="FILE", help="add all answers to this file")
    parser.add_argument("--tables", type=Path, nargs="+", metavar="FILE", help="of records")
    options = parser.parse_args()
    if options.tables:
        lines = [line for path in options.tables for line in path.read_text().splitlines()]
        print(tables([Row(**json.loads(line)) for line in lines]))
        return
    units = [
        f"{dtype} {size} {seed} {name}"
        for size in sorted(options.sizes, key=int)
        for name, operation in OPERATIONS.items()
        for dtype in options.dtypes
        for seed in options.seeds
        if re.search(options.operations, name) and dtype not in operation.refuses
    ]
    units = [unit for unit in units if zlib.crc32(unit.encode()) % options.slice == 0]
    judges = ["adjudge", *(["torch fast", "torch slow"] if options.peer else [])]
    rows: list[Row] = []
    skipped: Counter[str] = Counter()
    start = time.perf_counter()
    todo = spread(functools.partial(work, judges, options.limit), units, options.processes)
    for number, (unit, found) in enumerate(todo, start=1):
        told(f"{number}/{len(units)} {time.perf_counter() - start:.0f} s {unit}")
        if isinstance(found, str):
            skipped[found] += 1
            continue
        rows += found
        if options.record:
            with options.record.open("a") as file:
                file.writelines(json.dumps(dataclasses.asdict(row)) + "\n" for row in found)
    print(header("Mistakes in backward passes", ("adjudge", "torch", "numpy")))
    print(tables(rows))
    if skipped:
        print(f"### Left out\n\n{table(('reason', 'units'), skipped.most_common())}")


if __name__ == "__main__":
    main()
