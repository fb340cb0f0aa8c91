"""From 1e2 to 1e7 inputs and outputs: which planted errors are caught, in what time and memory."""

import argparse
import dataclasses
import math
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from isolation import spread
from judges import Answer, Outcome, Verdict, ask
from overhead import CHECKERS, matrix_side, peak_bytes, point, weights
from tables import first_line, header, table
from torch.autograd.gradcheck import GradcheckError

PARTS = ("verdicts", "time", "memory")
SIZES = (100, 1000, 10_000, 100_000, 1_000_000, 10_000_000)
OPERATIONS = ("sin", "matmul")
SLOW_LARGEST = 1000
"""Torch's slow mode makes all of the Jacobian, twice."""
TIMED = 1_000_000
MEASURED = 100_000


def wrong_by(plant: str, gradient: Any, roll: Callable[..., Any]) -> Any:
    """The gradient of a matrix with a planted error; every one is linear in it."""
    rows, columns = gradient.shape
    if plant == "zeroed row":
        return gradient * row_mask(rows, gradient, 0.0)
    if plant == "one wrong entry":  # 1 % off
        mask = row_mask(rows, gradient, 1.01)
        keep = row_mask(rows, gradient, 1.0)
        return gradient * (mask if columns == 1 else keep + (mask - keep) * first(gradient))
    if plant == "permutation":
        return roll(gradient.reshape(-1), 1).reshape(gradient.shape)
    return gradient * {"right": 1.0, "flipped sign": -1.0, "1 + 1e-6": 1 + 1e-6, "zero": 0.0}[plant]


def row_mask(rows: int, like: Any, value: float) -> Any:
    """A column of ones with `value` in the middle."""
    xp = namespace(like)
    return xp.where(xp.arange(rows)[:, None] == rows // 2, value, 1.0)


def first(like: Any) -> Any:
    """A row of zeros that begins with a one."""
    xp = namespace(like)
    return xp.where(xp.arange(like.shape[1])[None, :] == 0, 1.0, 0.0)


def namespace(array: Any) -> Any:
    """Torch, or JAX's NumPy."""
    if isinstance(array, torch.Tensor):
        return torch
    import jax.numpy as jnp

    return jnp


PLANTS = ("right", "zeroed row", "permutation", "flipped sign", "1 + 1e-6", "zero")
EXTRA = "one wrong entry"


class Wrong(torch.autograd.Function):
    """The identity with a planted error in its gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, plant: str) -> torch.Tensor:
        """`x`, copied."""
        ctx.plant = plant
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        """The gradient with the error."""
        return wrong_by(ctx.plant, gradient, torch.roll).to(gradient.dtype), None


@dataclasses.dataclass(frozen=True)
class Item:
    """One function of `n` inputs, and as many outputs, with one error."""

    framework: str
    operation: str
    n: int
    plant: str


@dataclasses.dataclass
class Case:
    """What the judges get."""

    function: Callable[..., Any]
    inputs: tuple[Any, ...]


def torch_case(item: Item) -> Case:
    """`sin(x)` or `a @ x` of a square matrix."""
    side = matrix_side(item.n)
    x = point(side * side).detach().reshape(side, side).requires_grad_()
    inner: Callable[..., Any] = torch.sin
    if item.operation == "matmul":
        inner = partial(torch.matmul, weights(side, side, torch.float64))
    if item.plant == "right":
        return Case(inner, (x,))
    return Case(lambda x: inner(Wrong.apply(x, item.plant)), (x,))


def jax_case(item: Item) -> Case:
    """The same of JAX."""
    import jax
    import jax.numpy as jnp

    side = matrix_side(item.n)
    x = jnp.asarray(point(side * side).detach().reshape(side, side).numpy())
    inner: Callable[..., Any] = jnp.sin
    if item.operation == "matmul":
        inner = partial(jnp.matmul, jnp.asarray(weights(side, side, torch.float64).numpy()))
    identity = jax.custom_vjp(lambda x: x)
    identity.defvjp(lambda x: (x, None), lambda _, w: (wrong_by(item.plant, w, jnp.roll),))
    return Case(inner if item.plant == "right" else lambda x: inner(identity(x)), (x,))


# ---------------------------------------------------------------- verdicts


def by_torch(case: Case, *, fast_mode: bool) -> Answer:
    """`torch.autograd.gradcheck`, without the message for which its fast mode, where it fails,
    makes both Jacobians in full.
    """
    module = sys.modules["torch.autograd.gradcheck"]
    module._run_slow_mode_and_get_error = lambda *_: ""
    try:
        torch.autograd.gradcheck(case.function, case.inputs, fast_mode=fast_mode)
    except GradcheckError as error:
        return Answer(Verdict.REJECTS, str(error))
    return Answer(Verdict.ACCEPTS)


def by_jax(case: Case) -> Answer:
    """`jax.test_util.check_grads` of first order in reverse mode."""
    import jax.test_util

    try:
        jax.test_util.check_grads(case.function, case.inputs, order=1, modes=["rev"])
    except AssertionError as error:
        return Answer(Verdict.REJECTS, str(error))
    return Answer(Verdict.ACCEPTS)


def by_adjudge(case: Case) -> Answer:
    """`adjudge.gradcheck` as it is, but for the seed."""
    import adjudge

    report = adjudge.gradcheck(case.function, case.inputs, raise_exception=False, seed=0)
    names = {"PASS": Verdict.ACCEPTS, "FAIL": Verdict.REJECTS}
    return Answer(names.get(str(report.verdict.value), Verdict.INCONCLUSIVE), report.headline)


JUDGES: dict[str, dict[str, Callable[[Case], Answer]]] = {
    "torch": {
        "torch slow": partial(by_torch, fast_mode=False),
        "torch fast": partial(by_torch, fast_mode=True),
        "adjudge": by_adjudge,
    },
    "jax": {"jax check_grads": by_jax, "adjudge on jax": by_adjudge},
}


def judged(limit: float, item: Item) -> dict[str, Outcome]:
    """What each judge of the framework says."""
    make = torch_case if item.framework == "torch" else jax_case
    return {
        name: ask(judge, make(item), limit)
        for name, judge in JUDGES[item.framework].items()
        if name != "torch slow" or item.n <= SLOW_LARGEST
    }


def prepare(limit: float) -> Callable[[Item], dict[str, Outcome]]:
    """What a process does with its items."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    try:
        import jax

        jax.config.update("jax_enable_x64", True)
    except ImportError:
        JUDGES["jax"].clear()
    return partial(judged, limit)


WORDS = {Verdict.REJECTS: "caught", Verdict.ACCEPTS: "no", Verdict.INCONCLUSIVE: "inconclusive"}


def print_verdicts(options: argparse.Namespace) -> None:
    """A table for each operation: one row a size and judge, one column an error."""
    plants = [*PLANTS, EXTRA]
    sizes = [n for n in SIZES if options.smallest <= n <= options.largest]
    items = [
        Item(framework, operation, n, plant)
        for framework in options.frameworks
        for operation in OPERATIONS
        for n in reversed(sizes)  # the long ones first
        for plant in plants
    ]
    found: dict[Item, dict[str, Outcome]] = {}
    for item, outcomes in spread(partial(prepare, options.limit), items, options.processes):
        found[item] = outcomes
        progress = ", ".join(f"{judge} {o.verdict}" for judge, o in outcomes.items())
        print(f"{len(found)}/{len(items)} {item}: {progress}", file=sys.stderr, flush=True)
    for operation in OPERATIONS:
        rows = list(verdict_rows(found, options.frameworks, operation, sizes, plants))
        print(f"\n### Errors caught, {operation}\n\n{table(('n = m', 'judge', *plants), rows)}")
    print(
        "`right` is not to be caught. The error is in the whole gradient of x, a square matrix, "
        f"but for the zeroed row and for *{EXTRA}*, 1 % off. "
        f"Torch's slow mode up to n = {SLOW_LARGEST}.\n"
    )
    crashes = [
        (item.operation, item.n, judge, item.plant, first_line(outcome.message))
        for item, outcomes in found.items()
        for judge, outcome in outcomes.items()
        if outcome.verdict is Verdict.CRASHES
    ]
    if crashes:
        print("### Crashes\n\n" + table(("f", "n", "judge", "error", "message"), crashes))


def verdict_rows(
    found: dict[Item, dict[str, Outcome]],
    frameworks: Sequence[str],
    operation: str,
    sizes: Sequence[int],
    plants: Sequence[str],
) -> Iterator[tuple[object, ...]]:
    """The rows of one operation."""
    for framework in frameworks:
        for judge in JUDGES[framework]:
            for n in sizes:
                outcomes = [found[Item(framework, operation, n, plant)] for plant in plants]
                if all(judge in o for o in outcomes):
                    cells = [WORDS.get(o[judge].verdict, "crash") for o in outcomes]
                    yield (f"{n:.0e}", judge, *cells)


# ---------------------------------------------------------------- time


def print_times(options: argparse.Namespace) -> None:
    """Least times of alternating checks at the largest size."""
    rows = []
    n = min(TIMED, options.largest)
    for operation in OPERATIONS:
        case = torch_case(Item("torch", operation, n, "right"))
        checks = {
            name: partial(CHECKERS[name], *case_of(case)) for name in ("torch fast", "default")
        }
        checks["f"] = partial(case.function, *case.inputs)
        wall, cpu = dict.fromkeys(checks, math.inf), dict.fromkeys(checks, math.inf)
        for _ in range(options.repeats + 1):
            for name, check in checks.items():
                start, start_cpu = time.perf_counter(), time.process_time()
                check()
                cpu[name] = min(cpu[name], time.process_time() - start_cpu)
                wall[name] = min(wall[name], time.perf_counter() - start)
        for kind, times in (("wall", wall), ("processor", cpu)):
            milliseconds = [f"{1e3 * times[name]:.1f}" for name in ("f", "torch fast", "default")]
            ratio = f"{times['default'] / times['torch fast']:.2f}"
            rows.append((operation, f"{n:.0e}", kind, *milliseconds, ratio))
    columns = ("f", "n = m", "time", "f, ms", "torch fast, ms", "adjudge, ms", "adjudge / torch")
    print(f"\n### Time, least of {options.repeats + 1}, alternating\n\n{table(columns, rows)}")


def case_of(case: Case) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], bool]:
    """A case as the checkers of `overhead.py` take it."""
    return case.function, case.inputs, {}, False


# ---------------------------------------------------------------- memory


def measure_memory(checker: str, operation: str, n: int) -> None:
    """In a process of its own: print by how many MB a check raises the peak of the function."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    check = CHECKERS[checker]
    check(*case_of(torch_case(Item("torch", operation, 4, "right"))))  # imports
    case = torch_case(Item("torch", operation, n, "right"))
    y = case.function(*case.inputs)
    torch.autograd.grad(y, case.inputs, torch.ones_like(y))
    del y
    before = peak_bytes()
    check(*case_of(case))
    print(f"{(peak_bytes() - before) / 1e6:.1f}")


def print_memory(options: argparse.Namespace) -> None:
    """The table of memory, each figure from a process of its own."""
    rows = []
    n = min(MEASURED, options.largest)
    for operation in OPERATIONS:
        cells = []
        for checker in ("torch fast", "default"):
            command = [sys.executable, __file__, "--measure-memory", checker, operation]
            done = subprocess.run(  # noqa: S603  this file, by this interpreter
                [*command, "--largest", str(n)], capture_output=True, text=True, check=False
            )
            lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
            cells.append(lines[-1] if lines else "no output")
        rows.append((operation, f"{n:.0e}", *cells))
    print("\n### Peak memory above that of the function and one vjp, MB\n")
    print(table(("f", "n = m", "torch fast", "adjudge"), rows))


# ---------------------------------------------------------------- command line


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--frameworks", nargs="+", choices=list(JUDGES), default=list(JUDGES))
    parser.add_argument("--smallest", type=int, default=SIZES[0], help="smallest n")
    parser.add_argument("--largest", type=int, default=TIMED, help="largest n")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for a check")
    parser.add_argument("--repeats", type=int, default=7, help="timed checks")
    parser.add_argument("--processes", type=int, default=2, help="functions at a time")
    parser.add_argument("--measure-memory", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the chosen tables."""
    options = parse(arguments)
    if options.measure_memory:
        measure_memory(*options.measure_memory, options.largest)
        return
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(header("Sizes", ("adjudge", "torch", "jax", "numpy")))
    if "time" in options.parts:
        print_times(options)
    if "memory" in options.parts:
        print_memory(options)
    if "verdicts" in options.parts:
        print_verdicts(options)


if __name__ == "__main__":
    main()
