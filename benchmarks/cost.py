"""What a check costs: of large arrays, of six numbers, at the start of pytest, on each engine, and
beside exact references.

All without arguments, on a quiet machine, or one of them:

    python benchmarks/cost.py start
    python benchmarks/cost.py path --checkouts ../before .         # any checkouts side by side
    python benchmarks/cost.py large --engines numpy torch jax      # 1e7 needs many GB of memory
    python benchmarks/cost.py large --engines cupy torch --device cuda --sizes 1e6 1e7
    python benchmarks/cost.py mistakes --sizes 3e5 1e6             # a FAIL beside a PASS
    python benchmarks/cost.py programs                             # beside torch's fast mode
    python benchmarks/cost.py exact                                # beside exact references
    python benchmarks/cost.py engines                              # all that are installed
    python benchmarks/cost.py engines --pythons python3.11 venv/bin/python   # here or there
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read once, on import
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from harness import header, identity, table, told

SHORT = 0.05
"""Seconds: what is shorter is timed in batches of about this length."""
Function = Callable[..., Any]


def timed(run: Callable[[], Any], wait: Callable[[Any], object], repeats: int) -> float:
    """The median of the seconds of a call, which is warm: the first one is not counted."""
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
    """The largest resident memory of this process in bytes; on Linux only, `None` elsewhere."""
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


# ---------------------------------------------------------------- large arrays

ENGINES = ("numpy", "torch", "jax", "cupy")
SIZES = (100_000, 1_000_000, 10_000_000)
DTYPES = ("float64", "float32")


@dataclass(frozen=True)
class Pair:
    """The kernels of one engine, and what is needed to time and to check them."""

    x: Any
    forward: Function
    backward: Function
    """It takes `(x, w)` and gives `J* w`."""
    checked: Function
    wait: Callable[[Any], object] = id
    """It waits until the device has done what it was asked for."""
    device_peak: Callable[[], int | None] = lambda: None
    """The largest number of bytes that were allocated on the device, where that is known."""
    reset: Callable[[], object] = dict


def formulas(exp: Function, factor: float) -> tuple[Function, Function]:
    """`y = x exp(-x²)` and its pullback `w (1 - 2x²) exp(-x²)`, times the factor."""

    def forward(x: Any) -> Any:
        return x * exp(-x * x)

    def backward(x: Any, w: Any) -> Any:
        return factor * w * (1 - 2 * x * x) * exp(-x * x)

    return forward, backward


def numpy_pair(x: np.ndarray, _device: str, factor: float) -> Pair:
    """Expressions of NumPy, with `ByHand`."""
    import adjudge

    forward, backward = formulas(np.exp, factor)
    return Pair(x, forward, backward, adjudge.ByHand(forward, vjp=backward))


def torch_pair(x: np.ndarray, device: str, factor: float) -> Pair:
    """A `torch.autograd.Function`."""
    import torch

    forward, backward = formulas(torch.exp, factor)

    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx: Any, w: Any) -> Any:
            return backward(*ctx.saved_tensors, w)

    there = torch.from_numpy(x).to(device)
    kernels = (forward, backward, Kernel.apply)
    if not device.startswith("cuda"):
        return Pair(there, *kernels)

    def reset() -> None:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)

    wait = functools.partial(torch.cuda.synchronize, device)
    return Pair(
        there, *kernels, lambda _: wait(), lambda: torch.cuda.max_memory_allocated(device), reset
    )


def jax_pair(x: np.ndarray, device: str, factor: float) -> Pair:
    """A jitted `jax.custom_vjp`."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)

    forward, backward = formulas(jnp.exp, factor)
    kernel = jax.custom_vjp(forward)
    kernel.defvjp(lambda x: (forward(x), x), lambda x, w: (backward(x, w),))
    kind, _, number = device.partition(":")
    there = jax.devices(kind)[int(number or 0)]
    return Pair(
        jax.device_put(x, there),
        *(jax.jit(f) for f in (forward, backward, kernel)),
        jax.block_until_ready,
        lambda: (there.memory_stats() or {}).get("peak_bytes_in_use"),  # of the whole process
    )


def cupy_pair(x: np.ndarray, device: str, factor: float) -> Pair:
    """Two CUDA kernels, with `ByHand`."""
    import adjudge

    cupy: Any = importlib.import_module("cupy")
    there = cupy.cuda.Device(int(device.partition(":")[2] or 0))
    there.use()
    pool = cupy.get_default_memory_pool()  # it keeps what it got: its size is a peak
    bump = cupy.ElementwiseKernel("T x", "T y", "y = x * exp(-x * x)", "bump")
    slope = cupy.ElementwiseKernel(
        "T x, T w", "T g", f"g = T({factor}) * w * (1 - 2 * x * x) * exp(-x * x)", "slope"
    )

    def forward(x: Any) -> Any:
        return bump(x)

    return Pair(
        cupy.asarray(x),
        forward,
        slope,
        adjudge.ByHand(forward, vjp=lambda x, w: slope(x, w)),
        lambda _: there.synchronize(),
        lambda: int(pool.total_bytes()),
        pool.free_all_blocks,
    )


def pair_of(engine: str, n: int, dtype: str, device: str, factor: float) -> Pair:
    """The kernels of an engine at n normal numbers; the factor of a right backward is 1."""
    makers = {"numpy": numpy_pair, "torch": torch_pair, "jax": jax_pair, "cupy": cupy_pair}
    x = np.random.default_rng(0).standard_normal(n).astype(dtype)
    return makers[engine](x, device, factor)


def measure(
    engine: str, n: int, dtype: str, device: str, repeats: int, factor: float = 1.0
) -> dict[str, Any]:
    """Times and memory of a pair, and the verdict on it; with another `factor` it is wrong."""
    import adjudge

    pair = pair_of(engine, n, dtype, device, factor)
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


LARGE_COLUMNS = (
    "engine", "device", "n", "dtype", "pair, ms", "check, s", "multiple", "evaluations", "vjps",
    "verdict", "host, arrays", "device, arrays",
)  # fmt: skip


def large_cells(row: dict[str, Any]) -> tuple[object, ...]:
    """One line of the table of large arrays; memory is in units of the array x."""
    what = [row[key] for key in ("engine", "device", "n", "dtype")]
    peaks = [
        "-" if row.get(key) is None else f"{row[key] / row['array_bytes']:.1f}"
        for key in ("host_peak", "device_peak")
    ]
    times = [f"{t:.3g}" for t in (1e3 * row["own"], row["check"], row["multiple"])]
    return (*what, *times, row["evaluations"], row["vjps"], row["verdict"], *peaks)


def large(asked: argparse.Namespace) -> str:
    """A check of a large elementwise pair of kernels, right and 1 % off, as a multiple of the
    pair's own time.
    """
    rows = []
    cases = itertools.product(asked.engines, DTYPES, map(int, asked.sizes), (1.0, 1.01))
    for engine, dtype, n, factor in cases:
        rows.append(measure(engine, n, dtype, asked.device, asked.repeats, factor))
        told(*large_cells(rows[-1]))
    note = (
        "The pair is `x exp(-x²)` and its pullback, forward and backward once each, warm and "
        "synchronised. Memory is the peak during the first check above what was held before.\n"
    )
    lines = table(LARGE_COLUMNS, map(large_cells, rows))
    return f"### One large elementwise kernel pair\n\n{lines}\n{note}"


# ---------------------------------------------------------------- what a mistake costs


def spoiled(mistake: str, g: Any) -> Any:
    """The gradient with a mistake in it; `g` is overwritten."""
    half, third = g.size // 2, g.size // 3
    if mistake == "one entry twice":
        g[third] *= 2
    elif mistake == "one entry 1 % off":
        g[third] *= 1.01
    elif mistake == "half of it zero":
        g[half:] = 0
    elif mistake == "every third zero":
        g[::3] = 0
    elif mistake == "a tenth 1.5 times":
        g[np.random.default_rng(1).random(g.size) < 0.1] *= 1.5
    elif mistake == "zero":
        g[:] = 0
    elif mistake == "rolled by one":
        g = np.roll(g, 1)
    elif mistake != "none":
        g *= {"1.01 times": 1.01, "minus": -1.0}[mistake]
    return g


MISTAKES = (
    "none", "1.01 times", "minus", "zero", "half of it zero", "every third zero",
    "a tenth 1.5 times", "rolled by one", "one entry twice", "one entry 1 % off",
)  # fmt: skip


def mistakes(asked: argparse.Namespace) -> str:
    """What a check of `sin(x) x` by hand costs in float64 where the gradient has a mistake."""
    import adjudge

    rows, seeds = [], range(4)
    for n in map(int, asked.sizes):
        x = np.random.default_rng(0).uniform(0.1, 2, n)
        right = 0.0
        for mistake in MISTAKES:
            rule = adjudge.ByHand(
                lambda x: np.sin(x) * x,
                vjp=lambda x, w, what=mistake: spoiled(what, w * (np.cos(x) * x + np.sin(x))),
            )
            spent, reports = [], []
            for seed in seeds:
                start = time.process_time()
                reports.append(adjudge.examine(rule, x, modes=["R"], seed=seed, blame=False))
                spent.append(time.process_time() - start)
            verdicts = "".join(one.verdict.name[0] for one in reports)
            evaluations = statistics.median(one.counts["evaluations"] for one in reports)
            took = statistics.median(spent)
            right = right or took
            rows.append((n, mistake, verdicts, evaluations, f"{took:.3f}", f"{took / right:.1f}"))
            told(*rows[-1])
    head = (
        "numbers",
        "mistake",
        "verdicts of four seeds",
        "evaluations",
        "s",
        "times the right one",
    )
    return f"### What a mistake costs\n\n{table(head, rows)}"


# ---------------------------------------------------------------- whole programs

WIDTH, BLOCKS, WORDS, LENGTH = 96, 4, 64, 16
"""Of a GPT: with a head of its own it has 461,376 numbers in 53 leaves."""


def gpt() -> tuple[Function, list[Any]]:
    """The logits of a GPT as a function of its leaves, and these, in float64."""
    import torch
    from torch.nn import functional

    random = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> Any:
        return 0.1 * torch.randn(*shape, generator=random, dtype=torch.float64)

    def norm() -> list[Any]:
        return [1 + drawn(WIDTH), drawn(WIDTH)]

    leaves = [drawn(WORDS, WIDTH), drawn(LENGTH, WIDTH)]
    for _ in range(BLOCKS):
        leaves += [*norm(), drawn(3 * WIDTH, WIDTH), drawn(3 * WIDTH), drawn(WIDTH, WIDTH)]
        leaves += [drawn(WIDTH), *norm(), drawn(4 * WIDTH, WIDTH), drawn(4 * WIDTH)]
        leaves += [drawn(WIDTH, 4 * WIDTH), drawn(WIDTH)]
    leaves += [*norm(), drawn(WORDS, WIDTH)]
    text = torch.randint(0, WORDS, (2, LENGTH), generator=random)

    def logits(*p: Any) -> Any:
        x = p[0][text] + p[1]
        for k in range(2, 2 + 12 * BLOCKS, 12):
            h = functional.linear(
                functional.layer_norm(x, (WIDTH,), p[k], p[k + 1]), p[k + 2], p[k + 3]
            )
            q, key, v = h.reshape(2, LENGTH, 3, 4, WIDTH // 4).permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(q, key, v, is_causal=True)
            mixed = mixed.transpose(1, 2).reshape(2, LENGTH, WIDTH)
            x = x + functional.linear(mixed, p[k + 4], p[k + 5])
            h = functional.linear(
                functional.layer_norm(x, (WIDTH,), p[k + 6], p[k + 7]), p[k + 8], p[k + 9]
            )
            x = x + functional.linear(functional.gelu(h), p[k + 10], p[k + 11])
        return functional.linear(functional.layer_norm(x, (WIDTH,), p[-3], p[-2]), p[-1])

    return logits, leaves


def fixed_point() -> tuple[Function, list[Any]]:
    """The solution of `z = tanh(A z + B x + b)` as a function of these, by an implicit backward in
    which nothing is wrong, and the four in float64.
    """
    import torch

    class Solved(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any, c: Any, x: Any) -> Any:
            z = torch.zeros_like(c)
            while (step := torch.tanh(a @ z + b @ x + c) - z).abs().max() > 1e-15:
                z = z + step
            ctx.save_for_backward(a, b, x, z)
            return z

        @staticmethod
        def backward(ctx: Any, w: Any) -> Any:
            a, b, x, z = ctx.saved_tensors
            slope = 1 - z * z
            u = slope * torch.linalg.solve(torch.eye(len(z)).to(z) - (slope[:, None] * a).T, w)
            return torch.outer(u, z), torch.outer(u, x), u, b.T @ u

    random = torch.Generator().manual_seed(0)
    shapes = ((4, 4), (4, 2), (4,), (2,))
    leaves = [0.3 * torch.randn(*s, generator=random, dtype=torch.float64) for s in shapes]
    return Solved.apply, leaves


def planted(f: Function, leaf: int, factor: float, *, entry: bool) -> Function:
    """The function with a mistake in what comes back for a leaf, in one entry or in all."""

    def pullback(w: Any) -> tuple[Any]:
        w = w.clone()
        w.view(-1)[w.numel() // 3 if entry else slice(None)] *= factor
        return (w,)

    wrong = identity(pullback, "torch")
    return lambda *p: f(*p[:leaf], *wrong(p[leaf]), *p[leaf + 1 :])


def programs(asked: argparse.Namespace) -> str:
    """What a check of whole programs costs where one leaf is wrong, beside one that is right and
    PyTorch's fast mode.
    """
    import torch

    import adjudge

    torch.set_num_threads(1)
    rows, seeds = [], range(2 * asked.repeats)
    for name, (f, leaves) in {"GPT": gpt(), "fixed point": fixed_point()}.items():
        sizes = [one.numel() for one in leaves]
        small, large = sizes.index(min(sizes)), sizes.index(max(sizes))
        cases = {
            "none": f,
            "the smallest leaf times 1.0001": planted(f, small, 1.0001, entry=False),
            "an entry of it times 1.0001": planted(f, small, 1.0001, entry=True),
            "the largest leaf times 1.0001": planted(f, large, 1.0001, entry=False),
            "an entry of it times 1.0001 ": planted(f, large, 1.0001, entry=True),
            "an entry of it twice": planted(f, large, 2.0, entry=True),
            "the largest leaf minus": planted(f, large, -1.0, entry=False),
        }
        inputs = tuple(one.clone().requires_grad_() for one in leaves)
        adjudge.examine(f, inputs, seed=0, blame=False)  # imports
        right = fast = 0.0
        for mistake, g in cases.items():
            spent, fasts, reports = [], [], []
            for seed in seeds:
                start = time.process_time()
                reports.append(adjudge.examine(g, inputs, seed=seed, blame=False))
                spent.append(time.process_time() - start)
                if mistake == "none":
                    start = time.process_time()
                    torch.autograd.gradcheck(f, inputs, fast_mode=True)
                    fasts.append(time.process_time() - start)
            took, fast = statistics.median(spent), statistics.median(fasts) if fasts else fast
            right = right or took
            verdicts = "".join(one.verdict.name[0] for one in reports)
            evaluations = [one.counts["evaluations"] for one in reports]
            counts = f"{statistics.median(evaluations):.0f} (to {max(evaluations)})"
            times = (f"{took:.3f}", f"{took / right:.1f}", f"{took / fast:.2f}")
            rows.append((name, mistake.strip(), verdicts, counts, *times))
            told(*rows[-1])
    head = ("program", "mistake", "verdicts", "evaluations", "s", "times the right one",
            "times torch's fast mode")  # fmt: skip
    return f"### What a mistake in a program costs, float64\n\n{table(head, rows)}"


# ---------------------------------------------------------------- the path of a small check

REPEATED = 200
"""Checks of six numbers in one timing."""


def six_numbers() -> tuple[Function, Function, Any]:
    """`sin(x) x` in PyTorch, the same with a gradient that is 1 % too large, and six numbers."""
    import torch

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return torch.sin(x) * x

        @staticmethod
        def backward(ctx: Any, w: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 1.01 * w * (torch.cos(x) * x + torch.sin(x))

    numbers = [0.3, 0.5, 0.7, -0.2, 1.1, 0.9]
    x = torch.tensor(numbers, dtype=torch.float64, requires_grad=True)
    return (lambda x: torch.sin(x) * x), Wrong.apply, x


def walked(check: Function) -> tuple[int, int, int]:
    """How many functions of the library and its adapters are called, in how many modules, and how
    often a function calls one of another module.
    """
    import adjudge
    import adjudge_torch

    rooms = tuple(str(Path(one.__file__).parent) for one in (adjudge, adjudge_torch))
    calls, borders, modules = 0, 0, set()

    def look(frame: Any, event: str, _: object) -> None:
        nonlocal calls, borders
        module = frame.f_code.co_filename
        if event != "call" or not module.startswith(rooms):
            return
        calls += 1
        modules.add(module)
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(rooms):
            caller = caller.f_back
        borders += caller is not None and caller.f_code.co_filename != module

    check(), check()
    sys.setprofile(look)
    try:
        check()
    finally:
        sys.setprofile(None)
    return calls, len(modules), borders


def path_cells() -> list[object]:
    """The figures of the library that is on the path of Python."""
    import torch

    import adjudge

    right, wrong, x = six_numbers()
    passing = functools.partial(adjudge.examine, right, (x,), seed=0)
    failing = functools.partial(adjudge.examine, wrong, (x,), seed=0)
    theirs = functools.partial(torch.autograd.gradcheck, right, (x,), fast_mode=True)
    if not passing() or failing():
        raise SystemExit("the verdicts on six numbers are wrong")
    times: dict[Function, list[float]] = {passing: [], theirs: []}
    for _ in range(8):  # in turn, so that both meet what else the machine does
        for run, spent in times.items():
            start = time.process_time()  # of the processor, since others may use the machine
            for _ in range(REPEATED):
                run()
            spent.append((time.process_time() - start) / REPEATED)
    ours, least = (1e6 * min(spent) for spent in times.values())
    return [*walked(passing), *walked(failing), f"{ours:.0f}", f"{ours / least:.2f}"]


def path(checkouts: Sequence[Path]) -> str:
    """What a check of six numbers goes through, where it passes and where it fails."""
    rows = []
    for checkout in checkouts:
        source = [str(checkout.resolve() / folder) for folder in ("src", "adapters")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(source)}
        code = "import json, cost; print(json.dumps(cost.path_cells()))"
        made = subprocess.run(  # noqa: S603  this interpreter
            [sys.executable, "-c", code], cwd=Path(__file__).parent, env=environment,
            capture_output=True, check=True, text=True,
        )  # fmt: skip
        rows.append((checkout.resolve().name, *json.loads(made.stdout)))
    passing = ("calls, PASS", "modules", "borders")
    head = ("checkout", *passing, "calls, FAIL", "modules", "borders", "µs", "times gradcheck")
    note = (
        "Calls are those of functions of the library and of its adapter for PyTorch, a border is "
        "one between two modules. The last column is the processor's time of a passing check as a "
        "multiple of that of `torch.autograd.gradcheck(fast_mode=True)`, the least of eight each.\n"
    )
    return f"### A check of six numbers\n\n{table(head, rows)}\n{note}"


# ---------------------------------------------------------------- the start of pytest


def start(repeats: int) -> str:
    """What the plugin adds to a run of pytest that does not use it: one empty test, in turn with
    and without the plugin, in fresh processes.
    """
    variants = {"with the plugin": (), "-p no:adjudge": ("-p", "no:adjudge")}
    # a variable that requires an engine would import it
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("ADJUDGE_", "PYTEST_"))}
    times: dict[str, list[float]] = {name: [] for name in variants}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_empty.py").write_text("def test_nothing():\n    pass\n")
        for k in range(-1, 8 * repeats):  # the first run compiles the files, and does not count
            for variant, flags in list(variants.items())[:: 1 if k % 2 else -1]:
                command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *flags]
                begin = time.perf_counter()
                subprocess.run(  # noqa: S603  this interpreter
                    command, cwd=folder, env=environment, capture_output=True, check=True
                )
                times[variant] += [1e3 * (time.perf_counter() - begin)] if k >= 0 else []
    added = statistics.median(a - b for a, b in zip(*times.values(), strict=True))
    rows = [(name, f"{statistics.median(spent):.1f}") for name, spent in times.items()]
    rows.append(("added, median of the differences", f"{added:.1f}"))
    return f"### The start of pytest\n\n{table(('one empty test', 'ms'), rows)}"


# ---------------------------------------------------------------- one layer on each engine

LAYER = (64, 128)
"""The rows of x and its columns: 8,192 numbers, and 16,384 of the matrix that they meet."""


def of_layer(engine: str, repeats: int) -> list[object]:
    """The milliseconds of `sin(x @ w + b)` in double precision, of that and one vjp as multiples,
    and of checks of mode R and of R and RR, which are right.
    """
    import adjudge
    from adjudge.engine import backend_named

    backend, random = backend_named(engine), np.random.default_rng(0)
    xp, arrays, (rows, columns) = backend.xp, backend.arrays, LAYER
    shapes = (rows, columns), (columns, columns), (columns,)
    values = [random.normal(size=shape) / np.sqrt(shape[-1]) for shape in shapes]

    def f(x: Any, w: Any, b: Any) -> Any:
        return xp.sin(xp.matmul(x, w) + b)

    with backend.environment.isolation([arrays.make(np.zeros(1), "float32")]):
        inputs = tuple(arrays.make(one, "float64") for one in values)
        w = arrays.make(random.normal(size=shapes[0]), "float64")

        def forward() -> None:
            arrays.to_host(f(*inputs))

        def backward() -> None:
            y, pullback = backend.vjp(lambda x: (f(*x),), inputs)
            for one in (*y, *pullback((w,))):
                arrays.to_host(one)

        one, both = (timed(run, id, repeats) for run in (forward, backward))
        checks = []
        for modes in (["R"], ["R", "RR"]):
            chosen = {"backend": backend, "modes": modes, "seed": 1}
            report = adjudge.examine(f, inputs, **chosen)
            if any(one.status is adjudge.Status.UNSUPPORTED for one in report.findings):
                checks += ["not supported", ""]
                continue
            assert report, report
            seconds = timed(lambda chosen=chosen: adjudge.examine(f, inputs, **chosen), id, repeats)
            counts = f"{report.counts['evaluations']}, {report.counts['vjps']}"
            checks += [f"{seconds / one:.0f}", counts]
    return [engine, f"{1e3 * one:.2g}", f"{both / one:.1f}", *checks]


def layers(repeats: int, known: Sequence[str] = ()) -> list[list[object]]:
    """The same layer on every engine that is installed and differentiates functions, but for those
    that are known.
    """
    from adjudge.engine import backend_named, registry

    rows = []
    for name in registry.differentiating():
        if name not in known and importlib.util.find_spec(name) is not None:
            reason = backend_named(name).environment.unavailable()
            told(name, reason or "")
            rows += [] if reason else [of_layer(name, repeats)]
    return rows


def engines(repeats: int, pythons: Sequence[str]) -> str:
    """The layer on the engines of several interpreters, since none can hold them all."""
    rows: list[list[Any]] = []
    for python in pythons:
        call = f"cost.layers({repeats}, {[row[0] for row in rows]})"
        command = [python, "-W", "ignore", "-c", f"import cost, json; print(json.dumps({call}))"]
        said = subprocess.run(  # noqa: S603 an interpreter that the caller names
            command, cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True, check=True
        )
        rows += json.loads(said.stdout.splitlines()[-1])
    rows.sort()
    head = ("engine", "f in ms", "f and a vjp / f", "check of R / f", "evaluations, vjps",
            "check of R and RR / f", "evaluations, vjps")  # fmt: skip
    what = f"`sin(x @ w + b)`, x of {LAYER[0]} x {LAYER[1]}, w square, float64"
    return f"### {what}, on each engine\n\n{table(head, rows)}"


# ---------------------------------------------------------------- exact references

COUNTS = (10, 1000, 10_000)
REPLAYED = ("values", "first derivatives", "second derivatives")


def exact(repeats: int) -> str:
    """What an operation on a number takes in a replay, and a check beside one as a multiple of the
    check by differences, in turn and in the processor's time.
    """
    import torch

    import adjudge
    from adjudge.engine import backend_named
    from adjudge.estimate.exact import EXACT_BITS, work_of
    from adjudge.estimate.replay import precision, replay

    def gelu(x: Any) -> Any:
        return torch.nn.functional.gelu(x) * torch.exp(-(x**2))

    random = np.random.default_rng(0)
    programs: dict[str, tuple[Function, np.ndarray]] = {
        "`sin(x)`": (torch.sin, random.normal(size=1000)),
        "`gelu(x) exp(-x²)`": (gelu, random.normal(size=1000)),
        "`digamma(x)`": (torch.digamma, 1 + random.random(200)),
        "`x @ x @ x`, 16 x 16": (lambda x: x @ x @ x, random.normal(size=(16, 16))),
        "`inv(x)`, 16 x 16": (torch.linalg.inv, random.normal(size=(16, 16))),
        "`softmax(x)`": (lambda x: torch.softmax(x, -1), random.normal(size=1000)),
    }
    lines, rows = [], []
    for name, (f, x) in programs.items():
        program = backend_named("torch").program(lambda xs, f=f: (f(*xs),), (torch.tensor(x),))
        cells = []
        for tangents in range(3):
            spent = []
            for _ in range(repeats):
                start = time.process_time()
                with precision(EXACT_BITS):
                    replay(program, [np.ones_like(x)] * tangents)
                spent.append((time.process_time() - start) / work_of(program))
            cells.append(f"{1e6 * statistics.median(spent):.1f}")
        lines.append((name, f"{work_of(program):,}", *cells))
    for count in COUNTS:
        spent = {"by differences": list[float](), "exact": list[float]()}
        before = host_peak(reset=True)
        for seed in range(-1, repeats):  # the first one imports
            x = torch.tensor(np.random.default_rng(seed + 1).normal(size=count), requires_grad=True)
            for way, times in spent.items():
                start = time.process_time()
                asked = "exact" if way == "exact" else None
                if not adjudge.examine(gelu, x, seed=max(seed, 0), reference=asked):
                    raise SystemExit(f"a check of {count} numbers does not pass")
                times += [time.process_time() - start] if seed >= 0 else []
        peak = (host_peak() or 0) - (before or 0)
        ratios = [a / b for a, b in zip(spent["exact"], spent["by differences"], strict=True)]
        each = (f"{1e3 * statistics.median(times):.1f}" for times in spent.values())
        ratio = f"{statistics.median(ratios):.0f} ({min(ratios):.0f} to {max(ratios):.0f})"
        rows.append((f"{count:,}", *each, ratio, f"{peak / 2**20:.0f}"))
    head = ("numbers", "differences, ms", "exact, ms", "times (least to most)", "MiB more")
    return (
        "### Exact references\n\nMicroseconds for one operation on a number in a replay:\n\n"
        f"{table(('program', 'operations', *REPLAYED), lines)}\n"
        f"Checks of `gelu(x) exp(-x²)` at random numbers:\n\n{table(head, rows)}"
    )


# ---------------------------------------------------------------- command line

PARTS: dict[str, Callable[[argparse.Namespace], str]] = {
    "large": large,
    "mistakes": mistakes,
    "programs": programs,
    "path": lambda asked: path(asked.checkouts),
    "start": lambda asked: start(asked.repeats),
    "engines": lambda asked: engines(asked.repeats, asked.pythons),
    "exact": lambda asked: exact(asked.repeats),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--engines", choices=ENGINES, nargs="+", default=["numpy", "torch", "jax"])
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1")
    parser.add_argument("--sizes", type=float, nargs="+", default=list(SIZES))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--checkouts", type=Path, nargs="+", default=[Path(__file__).parents[1]], metavar="FOLDER"
    )
    parser.add_argument("--pythons", nargs="+", default=[sys.executable], metavar="INTERPRETER")
    asked = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    print(header("What a check costs", ["adjudge", "numpy", "torch", "jax"]))
    for part in asked.parts or PARTS:
        print(PARTS[part](asked), flush=True)


if __name__ == "__main__":
    main()
