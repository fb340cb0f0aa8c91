"""A check of one large elementwise kernel pair, as a multiple of the pair's own time.

The pair is `y = x exp(-x²)` and its pullback `w (1 - 2x²) exp(-x²)`, written by hand: as NumPy
expressions, as a `torch.autograd.Function`, as a jitted `jax.custom_vjp`, as two CUDA kernels.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read once, on import
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from tables import header, table

ENGINES = ("numpy", "torch", "jax", "cupy")
SIZES = (100_000, 1_000_000, 10_000_000)
DTYPES = ("float64", "float32")
SHORT = 0.05
"""Seconds: what is shorter is timed in batches of about this length."""


@dataclass(frozen=True)
class Pair:
    """The kernels of one engine, and what is needed to time and to check them."""

    x: Any
    forward: Callable[[Any], Any]
    backward: Callable[[Any, Any], Any]
    """`(x, w) -> J* w`."""
    checked: Callable[..., Any]
    wrong: Callable[..., Any]
    """With a backward kernel that forgets the factor 2."""
    wait: Callable[[Any], object]
    """Until the device has done what it was asked for."""
    device_peak: Callable[[], int | None]
    """Largest number of bytes that were allocated on the device; `None` where not known."""
    reset: Callable[[], None] = dict


def formulas(exp: Callable[[Any], Any], factor: float) -> tuple[Callable[..., Any], ...]:
    """Forward and backward in the expressions of a namespace."""

    def forward(x: Any) -> Any:
        return x * exp(-x * x)

    def backward(x: Any, w: Any) -> Any:
        return w * (1 - factor * x * x) * exp(-x * x)

    return forward, backward


def inputs(n: int, dtype: str) -> np.ndarray:
    """Normal numbers."""
    return np.random.default_rng(0).standard_normal(n).astype(dtype)


def numpy_pair(n: int, dtype: str, device: str) -> Pair:
    """Expressions of NumPy, with `ByHand`."""
    import adjudge

    forward, backward = formulas(np.exp, 2)
    _, wrong = formulas(np.exp, 1)
    return Pair(
        inputs(n, dtype),
        forward,
        backward,
        adjudge.ByHand(forward, vjp=backward),
        adjudge.ByHand(forward, vjp=wrong),
        lambda y: y,
        lambda: None,
    )


def torch_pair(n: int, dtype: str, device: str) -> Pair:
    """A `torch.autograd.Function`."""
    import torch

    def function(factor: float) -> Any:
        forward, backward = formulas(torch.exp, factor)

        class Kernel(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return forward(x)

            @staticmethod
            def backward(ctx: Any, w: Any) -> Any:
                return backward(*ctx.saved_tensors, w)

        return Kernel.apply

    cuda = device.startswith("cuda")

    def reset() -> None:
        if cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)

    forward, backward = formulas(torch.exp, 2)
    return Pair(
        torch.from_numpy(inputs(n, dtype)).to(device),
        forward,
        backward,
        function(2),
        function(1),
        lambda y: torch.cuda.synchronize(device) if cuda else y,
        lambda: torch.cuda.max_memory_allocated(device) if cuda else None,
        reset,
    )


def jax_pair(n: int, dtype: str, device: str) -> Pair:
    """A jitted `jax.custom_vjp`."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)

    def function(factor: float) -> Any:
        forward, backward = formulas(jnp.exp, factor)
        kernel = jax.custom_vjp(forward)
        kernel.defvjp(lambda x: (forward(x), x), lambda x, w: (backward(x, w),))
        return jax.jit(kernel)

    there = jax.devices(device.partition(":")[0])[int(device.partition(":")[2] or 0)]
    forward, backward = formulas(jnp.exp, 2)
    return Pair(
        jax.device_put(inputs(n, dtype), there),
        jax.jit(forward),
        jax.jit(backward),
        function(2),
        function(1),
        jax.block_until_ready,
        lambda: (there.memory_stats() or {}).get("peak_bytes_in_use"),  # of the whole process
    )


def cupy_pair(n: int, dtype: str, device: str) -> Pair:
    """Two CUDA kernels, with `ByHand`."""
    import adjudge

    cupy: Any = importlib.import_module("cupy")
    there = cupy.cuda.Device(int(device.partition(":")[2] or 0))
    there.use()
    pool, largest = cupy.get_default_memory_pool(), largest_of_pool()

    def reset() -> None:
        pool.free_all_blocks()
        largest.bytes = pool.total_bytes()

    bump = cupy.ElementwiseKernel("T x", "T y", "y = x * exp(-x * x)", "bump")
    right, wrong = (
        cupy.ElementwiseKernel(
            "T x, T w", "T g", f"g = w * (1 - {factor} * x * x) * exp(-x * x)", f"back{factor}"
        )
        for factor in (2, 1)
    )

    def forward(x: Any) -> Any:
        return bump(x)

    def backward(x: Any, w: Any) -> Any:
        return right(x, w)

    return Pair(
        cupy.asarray(inputs(n, dtype)),
        forward,
        backward,
        adjudge.ByHand(forward, vjp=backward),
        adjudge.ByHand(forward, vjp=lambda x, w: wrong(x, w)),
        lambda y: there.synchronize(),
        lambda: int(largest.bytes),
        reset,
    )


@functools.cache
def largest_of_pool() -> Any:
    """The largest number of bytes that CuPy's pool held, from now on in this process."""
    cupy: Any = importlib.import_module("cupy")
    pool = cupy.get_default_memory_pool()

    class Largest(cupy.cuda.MemoryHook):  # type: ignore[misc]
        name = "largest"
        bytes = 0

        def malloc_postprocess(self, **_: Any) -> None:
            self.bytes = max(self.bytes, pool.total_bytes())

    hook = Largest()
    hook.__enter__()  # and it stays
    return hook


PAIRS: dict[str, Callable[[int, str, str], Pair]] = {
    "numpy": numpy_pair, "torch": torch_pair, "jax": jax_pair, "cupy": cupy_pair,
}  # fmt: skip


def timed(run: Callable[[], Any], wait: Callable[[Any], object], repeats: int) -> float:
    """Median of the seconds of a call, which is warm: the first one is not counted."""
    start = time.perf_counter()
    wait(run())
    batch = max(1, int(SHORT / max(time.perf_counter() - start, 1e-6)))
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(batch):
            y = run()
        wait(y)
        found.append((time.perf_counter() - start) / batch)
    return statistics.median(found)


def host_peak(*, reset: bool = False) -> int | None:
    """Largest resident memory of this process, in bytes; Linux only, and `None` elsewhere."""
    status = Path("/proc/self/status")
    if reset:
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:
            return None
    if not status.exists():
        return None
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])


def measure(engine: str, n: int, dtype: str, device: str, repeats: int) -> dict[str, Any]:
    """Times and memory of a right pair, and the verdict on it."""
    import adjudge

    pair = PAIRS[engine](n, dtype, device)
    w = 0 * pair.x + 1
    own = timed(lambda: pair.backward(pair.forward(pair.x), w), pair.wait, max(repeats, 5))
    adjudge.examine(pair.checked, pair.x[:100], seed=0)  # imports
    pair.reset()
    before, start = host_peak(reset=True), time.perf_counter()
    report = adjudge.examine(pair.checked, pair.x, seed=0)
    check = time.perf_counter() - start
    host, on_device = host_peak(), pair.device_peak()
    if repeats > 1:
        check = timed(lambda: adjudge.examine(pair.checked, pair.x, seed=0), pair.wait, repeats - 1)
    return {
        "engine": engine,
        "device": str(report.provenance.device),
        "n": n,
        "dtype": dtype,
        "own": own,
        "check": check,
        "multiple": check / own,
        "verdict": str(report.verdict.value),
        "evaluations": report.counts["evaluations"],
        "vjps": report.counts["vjps"],
        "array_bytes": n * np.dtype(dtype).itemsize,
        "host_peak": None if before is None or host is None else host - before,
        "device_peak": on_device,
    }


def measure_wrong(engine: str, n: int, dtype: str, device: str) -> dict[str, Any]:
    """The verdict on a wrong pair, and the seconds until it: every entry is wrong."""
    import adjudge

    pair = PAIRS[engine](n, dtype, device)
    start = time.perf_counter()
    report = adjudge.examine(pair.wrong, pair.x, seed=0)
    return {
        "engine": engine,
        "device": str(report.provenance.device),
        "wrong": str(report.verdict.value),
        "wrong_seconds": time.perf_counter() - start,
        "wrong_evaluations": report.counts["evaluations"],
    }


COLUMNS = (
    "engine", "device", "n", "dtype", "pair, ms", "check, s", "multiple", "evaluations", "vjps",
    "right", "wrong", "wrong, s", "host, arrays", "device, arrays",
)  # fmt: skip


def cells(row: dict[str, Any]) -> tuple[object, ...]:
    """One line of the table; memory in units of the array x."""
    peaks = [
        "-" if row[key] is None else f"{row[key] / row['array_bytes']:.1f}"
        for key in ("host_peak", "device_peak")
    ]
    return (
        row["engine"], row["device"], f"{row['n']:.0e}".replace("e+0", "e"), row["dtype"],
        f"{1e3 * row['own']:.3g}", f"{row['check']:.3g}", f"{row['multiple']:.0f}",
        row["evaluations"], row["vjps"], row["verdict"], row.get("wrong") or "-",
        f"{row['wrong_seconds']:.3g}" if row.get("wrong") else "-", *peaks,
    )  # fmt: skip


NOTE = """\
Own time: forward and backward once each, warm, the median of at least five. Check: the whole of
`adjudge.examine`, warm, the median. Wrong: the verdict on a backward that forgets the factor 2.
Memory: peak during the first check above what was held before (of the device: all that was held),
in arrays of the size of x; the host arrays of adjudge are float64.
"""


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=ENGINES, nargs="+", default=["numpy"])
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1")
    parser.add_argument("--sizes", type=float, nargs="+", default=list(SIZES))
    parser.add_argument("--dtypes", choices=DTYPES, nargs="+", default=list(DTYPES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--largest-wrong", type=float, default=1e5, help="n of a wrong pair")
    asked = parser.parse_args()
    print(header("One large elementwise kernel pair", ["numpy", *asked.engine, "adjudge"]))
    rows = []
    for engine in asked.engine:
        for dtype in asked.dtypes:
            for n in asked.sizes:
                row = measure(engine, int(n), dtype, asked.device, asked.repeats)
                if n <= asked.largest_wrong:
                    row |= measure_wrong(engine, int(n), dtype, asked.device)
                rows.append(row)
                print(*cells(rows[-1]), file=sys.stderr, flush=True)
    print(table(COLUMNS, map(cells, rows)) + "\n" + NOTE)


if __name__ == "__main__":
    main()
