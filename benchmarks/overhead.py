"""What a check costs: evaluations, time as multiples of the function's own, and memory."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy reads it once, on import

import numpy as np
import torch
from tables import first_line, header, table

PARTS = ("counts", "time", "memory")
MEMORY_ELEMENTS = 4000
# A timed check that took longer than this is not repeated.
LONG_SECONDS = 5.0
# Calls are timed in batches of about this length.
SHORT_SECONDS = 0.02


# ---------------------------------------------------------------- counted functions


@dataclasses.dataclass
class Counts:
    """How often `f`, its reverse pass, the reverse pass of that, and its forward rule ran."""

    f: int = 0
    vjp: int = 0
    double_vjp: int = 0
    jvp: int = 0

    def reset(self) -> None:
        """Start again at zero."""
        self.f = self.vjp = self.double_vjp = self.jvp = 0


COUNTS = Counts()


class TickBackward(torch.autograd.Function):
    """The identity on cotangents; its reverse pass is a second-order one."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*ws: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(w.clone() for w in ws)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *us: torch.Tensor) -> tuple[torch.Tensor, ...]:
        COUNTS.double_vjp += 1
        return us

    @staticmethod
    def jvp(ctx: Any, *vs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(v.clone() for v in vs)


class Tick(torch.autograd.Function):
    """The identity on all inputs at once, which counts the passes through it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*xs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(x.clone() for x in xs)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *ws: torch.Tensor) -> tuple[torch.Tensor, ...]:
        COUNTS.vjp += 1
        return TickBackward.apply(*ws)

    @staticmethod
    def jvp(ctx: Any, *vs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        COUNTS.jvp += 1
        return tuple(v.clone() for v in vs)


Function = Callable[..., Any]


def counted(f: Function) -> Function:
    """`f` with its calls and its derivative passes counted."""

    def wrapped(*xs: torch.Tensor) -> Any:
        COUNTS.f += 1
        return f(*Tick.apply(*xs))

    return wrapped


def weights(m: int, n: int, dtype: torch.dtype) -> torch.Tensor:
    """A fixed `m x n` matrix with entries of the order `1 / sqrt(n)`."""
    generator = torch.Generator().manual_seed(m * 1000 + n)
    return torch.randn(m, n, generator=generator, dtype=dtype) / n**0.5


def point(n: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """A fixed checked input of `n` elements."""
    generator = torch.Generator().manual_seed(n)
    return torch.randn(n, generator=generator, dtype=dtype).requires_grad_()


# ---------------------------------------------------------------- cases

Formula = tuple[str, int]


@dataclasses.dataclass(frozen=True)
class Case:
    """A function, the flags of the check, and what torch's check costs by its formulas."""

    name: str
    make: Callable[[], tuple[Function, tuple[torch.Tensor, ...]]]
    flags: dict[str, bool] = dataclasses.field(default_factory=dict)
    gradgrad: bool = False
    slow: dict[str, Formula] = dataclasses.field(default_factory=dict)
    fast: dict[str, Formula] = dataclasses.field(default_factory=dict)


def real_to_real(n: int, m: int) -> tuple[Function, tuple[torch.Tensor, ...]]:
    """`sin(A x)`, R^n to R^m."""
    a = weights(m, n, torch.float64)
    return lambda x: torch.sin(a @ x), (point(n),)


def complex_to_complex(n: int, m: int) -> tuple[Function, tuple[torch.Tensor, ...]]:
    """`sin(A z)`, C^n to C^m."""
    a = weights(m, n, torch.complex128)
    return lambda x: torch.sin(a @ x), (point(n, torch.complex128),)


def real_to_complex(n: int, m: int) -> tuple[Function, tuple[torch.Tensor, ...]]:
    """`sin(A x)` with a complex `A`, R^n to C^m."""
    a = weights(m, n, torch.complex128)
    return lambda x: torch.sin(a @ x.to(torch.complex128)), (point(n),)


def two_to_two() -> tuple[Function, tuple[torch.Tensor, ...]]:
    """Two inputs of 30 and 20 elements, two outputs of 5 and 4."""
    a, b = weights(5, 30, torch.float64), weights(4, 20, torch.float64)

    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.sin(a @ x) * y.mean().exp(), torch.cos(b @ y) * x.mean().exp()

    return f, (point(30), point(20))


FORWARD_ONLY = {"check_forward_ad": True, "check_backward_ad": False}
SMALL = functools.partial(real_to_real, 30, 5)

# The formulas were read off torch 2.13: n checked real entries, M output entries, p inputs,
# k outputs. A dual call without a tangent is a jvp in the formula, but does not reach the counter;
# a reverse pass over a first-order gradient counts as one of each order.
CASES = (
    Case(
        "R30 -> R5",
        SMALL,
        slow={"f": ("2n+2", 62), "vjp": ("2M+2", 12)},
        fast={"f": ("2p+2", 4), "vjp": ("2k+2", 4)},
    ),
    Case(
        "R100 -> R100",
        functools.partial(real_to_real, 100, 100),
        slow={"f": ("2n+2", 202), "vjp": ("2M+2", 202)},
        fast={"f": ("2p+2", 4), "vjp": ("2k+2", 4)},
    ),
    Case(
        "C30 -> C5",
        functools.partial(complex_to_complex, 30, 5),
        slow={"f": ("8n+4", 244), "vjp": ("4M+2", 22)},
    ),
    Case(
        "R30 -> C5",
        functools.partial(real_to_complex, 30, 5),
        slow={"f": ("4n+4", 124), "vjp": ("4M+2", 22)},
    ),
    Case(
        "R30 -> R5, forward only",
        SMALL,
        FORWARD_ONLY,
        slow={"f": ("3n+1+2p", 93), "jvp": ("n+2p", 32)},
        fast={"f": ("1+5p", 6), "jvp": ("3p", 3)},
    ),
    Case(
        "R30 -> R5, both modes",
        SMALL,
        {"check_forward_ad": True},
        slow={"f": ("5n+2+2p", 154), "vjp": ("2M+2", 12), "jvp": ("n+2p", 32)},
        fast={"f": ("2+7p", 9), "vjp": ("2k+2", 4), "jvp": ("3p", 3)},
    ),
    Case(
        "R30, R20 -> R5, R4",
        two_to_two,
        slow={"f": ("2n+2+k", 104), "vjp": ("2M+2+k", 22)},
        fast={"f": ("2p+2+k", 8), "vjp": ("2k+2+k", 8)},
    ),
    Case(
        "R30 -> R5, check_batched_grad",
        SMALL,
        {"check_batched_grad": True},
        slow={"f": ("2n+2", 62), "vjp": ("2M+2+3k", 15)},
        fast={"f": ("2p+2", 4), "vjp": ("2k+2+3k", 7)},
    ),
    Case(
        "R30 -> R5, gradgrad",
        SMALL,
        gradgrad=True,
        slow={
            "f": ("2(n+M)+3", 73),
            "vjp": ("2(n+M)+2+2n+2", 134),
            "double_vjp": ("2n+2", 62),
        },
        fast={"f": ("7", 7), "vjp": ("10", 10)},
    ),
)


# ---------------------------------------------------------------- checkers

Checker = Callable[[Function, tuple[torch.Tensor, ...], dict[str, Any], bool], bool]


def by_torch(
    f: Function,
    inputs: tuple[torch.Tensor, ...],
    flags: dict[str, Any],
    gradgrad: bool,
    *,
    fast_mode: bool,
) -> bool:
    """`torch.autograd.gradcheck` or `gradgradcheck`."""
    check = torch.autograd.gradgradcheck if gradgrad else torch.autograd.gradcheck
    return bool(check(f, inputs, fast_mode=fast_mode, **flags))


def by_adjudge(
    f: Function,
    inputs: tuple[torch.Tensor, ...],
    flags: dict[str, Any],
    gradgrad: bool,
    *,
    fast_mode: bool | None,
) -> bool:
    """`adjudge.gradcheck` or `gradgradcheck`."""
    import adjudge

    check = adjudge.gradgradcheck if gradgrad else adjudge.gradcheck
    return bool(check(f, inputs, fast_mode=fast_mode, seed=0, **flags))


def by_door(
    f: Function,
    inputs: tuple[torch.Tensor, ...],
    flags: dict[str, Any],
    gradgrad: bool,
    *,
    fast_mode: bool,
) -> bool:
    """`adjudge_torch.gradcheck` or `gradgradcheck`, the drop-ins for torch's."""
    import adjudge_torch

    check = adjudge_torch.gradgradcheck if gradgrad else adjudge_torch.gradcheck
    return bool(check(f, inputs, fast_mode=fast_mode, **flags))


CHECKERS: dict[str, Checker] = {
    "torch slow": functools.partial(by_torch, fast_mode=False),
    "full": functools.partial(by_adjudge, fast_mode=False),
    "door, slow": functools.partial(by_door, fast_mode=False),
    "torch fast": functools.partial(by_torch, fast_mode=True),
    "projected": functools.partial(by_adjudge, fast_mode=True),
    "door, fast": functools.partial(by_door, fast_mode=True),
    "default": functools.partial(by_adjudge, fast_mode=None),
}
SLOW = ("torch slow", "full", "door, slow", "default")  # what these sizes call for


def reason(error: BaseException) -> str:
    """The exception's type and what its first line says."""
    return first_line(f"{type(error).__name__}: {error}", 100)


# ---------------------------------------------------------------- 1: evaluations


def count(case: Case, checker: Checker) -> tuple[Counts, str]:
    """The passes of one check, and how it ended."""
    f, inputs = case.make()
    COUNTS.reset()
    try:
        outcome = "pass" if checker(counted(f), inputs, case.flags, case.gradgrad) else "reject"
    except Exception as error:  # a refusal belongs in the table
        outcome = reason(error)
    return dataclasses.replace(COUNTS), outcome


def count_rows(case: Case, chosen: Sequence[str]) -> list[tuple[str, ...]]:
    """One row a checker: counts beside the formulas, with a flag where ours is above."""
    measured: dict[str, dict[str, int]] = {}
    rows = []
    for name in chosen:
        counts, outcome = count(case, CHECKERS[name])
        measured[name] = dataclasses.asdict(counts)
        formulas = case.slow if name in SLOW else case.fast
        peer = measured.get("torch slow" if name in SLOW else "torch fast", {})
        cells, above = [], []
        for key, value in measured[name].items():
            text, bound = formulas.get(key, ("", peer.get(key, 0)))
            cells.append(f"{value} / {text} = {bound}" if text else f"{value}")
            if not name.startswith("torch") and peer and value > bound:
                above.append(f"{key} +{value - bound}")
        rows.append((case.name, name, *cells, ", ".join(above), outcome))
    return rows


def print_counts(chosen: Sequence[str]) -> None:
    """The table of evaluations."""
    rows = [row for case in CASES for row in count_rows(case, chosen)]
    head = ("case", "checker", "f", "vjp", "of these double vjp", "jvp", "above torch", "outcome")
    print("\n### Evaluations: measured / torch's formula\n\n" + table(head, rows))


# ---------------------------------------------------------------- 2: time


def median_seconds(run: Callable[[], Any], repeats: int) -> float:
    """The median processor time of a call, after one that is not counted.

    Processor time, since what else runs on the machine would decide the ratios; quick calls are
    timed many at once.
    """
    start = time.process_time()
    run()
    first = time.process_time() - start
    if first > LONG_SECONDS:
        return first
    calls = max(1, round(SHORT_SECONDS / max(first, 1e-6)))
    times = []
    for _ in range(repeats):
        start = time.process_time()
        for _ in range(calls):
            run()
        times.append((time.process_time() - start) / calls)
    return statistics.median(times)


def matrix_side(n: int) -> int:
    """The side of a square matrix of about `n` elements."""
    return max(1, round(n**0.5))


def timed_torch(op: str, n: int) -> tuple[Function, torch.Tensor]:
    """The timed function and its input of `n` elements."""
    if op == "sin":
        return torch.sin, point(n)
    side = matrix_side(n)
    a = weights(side, side, torch.float64)
    return lambda x: a @ x, point(side * side).detach().reshape(side, side).requires_grad_()


def torch_row(op: str, n: int, peer: str, ours: str, repeats: int) -> tuple[object, ...]:
    """Milliseconds of `f`, and both checks as multiples of it."""
    f, x = timed_torch(op, n)
    with torch.no_grad():
        base = median_seconds(lambda: f(x), repeats)
    times = {
        name: attempt(lambda name=name: CHECKERS[name](f, (x,), {}, False), repeats)
        for name in (peer, ours)
    }
    return (f"torch {op}", x.numel(), f"{base * 1e3:.4f}", peer, ours, *ratios(times, base))


def attempt(run: Callable[[], Any], repeats: int) -> float | str:
    """The median seconds of a check, or how it failed."""
    try:
        return median_seconds(run, repeats)
    except Exception as error:  # a refusal belongs in the table
        return reason(error)


def ratios(times: dict[str, float | str], base: float) -> list[str]:
    """Peer and ours as multiples of `f`, and ours as a multiple of the peer."""
    cells = [
        t if isinstance(t, str) else f"{t / base:.0f} ({t * 1e3:.1f} ms)" for t in times.values()
    ]
    peer, ours = times.values()
    both = not isinstance(peer, str) and not isinstance(ours, str)
    return [*cells, f"{ours / peer:.2f}" if both else "-"]  # type: ignore[operator]


def jax_row(op: str, n: int, repeats: int) -> tuple[object, ...]:
    """Milliseconds of `f`, and JAX's check and ours, both modes, as multiples of it."""
    import jax
    import jax.numpy as jnp
    import jax.test_util

    side = matrix_side(n)
    rng = np.random.default_rng(n)
    x = jnp.asarray(rng.standard_normal(n if op == "sin" else (side, side)))
    a = jnp.asarray(rng.standard_normal((side, side)) / side**0.5)
    f = jnp.sin if op == "sin" else lambda x: a @ x
    base = median_seconds(lambda: f(x).block_until_ready(), repeats)

    def ours() -> None:
        import adjudge

        adjudge.gradcheck(f, (x,), fast_mode=True, check_forward_ad=True, seed=0)

    peer = functools.partial(jax.test_util.check_grads, f, (x,), order=1)
    times = {"check_grads": attempt(peer, repeats), "projected": attempt(ours, repeats)}
    return (f"jax {op}", x.size, f"{base * 1e3:.4f}", *times, *ratios(times, base))


def print_times(repeats: int, largest: int) -> None:
    """The table of times."""
    rows: list[tuple[object, ...]] = []
    sizes = [n for n in (100, 1000, 10_000, 100_000, 1_000_000) if n <= largest]
    for op in ("sin", "matmul"):
        rows += [torch_row(op, n, "torch fast", "projected", repeats) for n in sizes]
        rows += [torch_row(op, n, "torch slow", "full", repeats) for n in (100, 300, 1000)]
    rows += jax_rows(sizes, repeats)
    head = ("f", "n", "f, ms", "peer", "ours", "peer / f", "ours / f", "ours / peer")
    print("\n### Processor time, medians, one thread\n\n" + table(head, rows))


def jax_rows(sizes: Sequence[int], repeats: int) -> list[tuple[object, ...]]:
    """The rows of JAX, none where it is not installed."""
    try:
        import jax
    except ImportError:
        return []
    with jax.enable_x64(True):
        return [jax_row(op, n, repeats) for op in ("sin", "matmul") for n in sizes]


# ---------------------------------------------------------------- 3: memory


def peak_bytes() -> int:
    """The largest resident size of this process so far."""
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss would carry the peak of the process that started this one
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def measure_memory(checker: str, n: int) -> None:
    """In a process of its own: print the extra peak in MB and the seconds of one check of `sin`."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    check = CHECKERS[checker]
    check(torch.sin, (point(8),), {}, False)
    x = point(n)
    before, start = peak_bytes(), time.perf_counter()
    check(torch.sin, (x,), {}, False)
    print(f"{(peak_bytes() - before) / 1e6:.0f} MB, {time.perf_counter() - start:.1f} s")


def print_memory(n: int, limit: float) -> None:
    """The table of memory, each figure from a process of its own."""
    rows = []
    for checker in ("torch slow", "full", "torch fast", "projected"):
        command = [sys.executable, __file__, "--measure-memory", checker, "--elements", str(n)]
        try:
            done = subprocess.run(  # noqa: S603  this file, by this interpreter
                command, capture_output=True, text=True, timeout=limit
            )
        except subprocess.TimeoutExpired:
            rows.append((checker, n, f"more than {limit:.0f} s"))
            continue
        lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
        rows.append((checker, n, lines[-1] if lines else "no output"))
    jacobian = n * n * 8 / 1e6
    print(f"\n### Memory above that of the imports (one Jacobian: {jacobian:.0f} MB)\n")
    print(table(("checker", "n = m", "extra peak, seconds"), rows))


# ---------------------------------------------------------------- command line


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--checkers", nargs="+", choices=list(CHECKERS), default=list(CHECKERS))
    parser.add_argument("--repeats", type=int, default=5, help="timed calls a median is of")
    parser.add_argument("--largest", type=int, default=1_000_000, help="largest timed n")
    parser.add_argument("--elements", type=int, default=MEMORY_ELEMENTS, help="n = m of memory")
    parser.add_argument(
        "--limit", type=float, default=300, help="seconds a memory process may take"
    )
    parser.add_argument("--measure-memory", choices=list(CHECKERS), help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the chosen tables."""
    options = parse(arguments)
    if options.measure_memory:
        measure_memory(options.measure_memory, options.elements)
        return
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(header("Overhead", ("adjudge", "torch", "jax", "numpy")))
    if "counts" in options.parts:
        print_counts(options.checkers)
    if "time" in options.parts:
        print_times(options.repeats, options.largest)
    if "memory" in options.parts:
        print_memory(options.elements, options.limit)


if __name__ == "__main__":
    main()
