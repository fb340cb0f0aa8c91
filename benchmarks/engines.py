"""Engines whose derivatives are supplied: what a check of each compared, and which errors it found.

    python benchmarks/engines.py

Each engine has one function with its right derivatives and the same with planted errors, on arrays
of the CPU and, where CuPy has a device, on those of the GPU. An engine that is absent is a row with
the reason. It takes seconds and writes no file.
"""

import importlib
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from tables import header, table

import adjudge
from adjudge import ByHand, Case, Verdict
from adjudge.engine import registry
from adjudge_cupy import layer, linear, model, warp_kernel
from adjudge_cupy.engines import parameters_of

ROOT = Path(__file__).parents[1]
SEED = 7
DISTRIBUTIONS = ["numpy", "cupy-cuda12x", "thinc", "pylops", "warp-lang", "torch", "jax"]


class AbsentError(Exception):
    """Why an engine cannot be checked here."""


@dataclass(frozen=True)
class Trial:
    """What became of an engine: a right derivative, and errors that were planted into it."""

    verdict: Verdict
    comparisons: int
    identities: int
    caught: tuple[str, ...]
    missed: tuple[str, ...]
    seconds: float


@cache
def loaded(path: str) -> Any:
    """The module in this file of the repository; examples may need what is absent."""
    file = ROOT / path
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise AbsentError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


def needed(name: str) -> Any:
    """The module of this name. Raises `AbsentError` where it cannot be imported."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise AbsentError(str(error)) from error


# ---------------------------------------------------------------- mistakes


def edge(g: Any) -> Any:
    """The first entry is left out."""
    g = g.copy()
    g[0] = 0
    return g


MISTAKES: dict[str, Callable[[Any], Any]] = {
    "sign": lambda g: -g,
    "factor": lambda g: 2 * g,
    "edge": edge,
    "order": lambda g: g[::-1].copy(),
    "1e-5": lambda g: g * (1 + 1e-5),
}


def spoiled(rule: Callable[..., Any], mistake: Callable[[Any], Any]) -> Callable[..., Any]:
    """`rule` with this mistake in the first array that it returns."""

    def wrong(*arguments: Any) -> Any:
        first, *rest = rule(*arguments)
        return (mistake(first), *rest)

    return wrong


# ---------------------------------------------------------------- engines


Cases = Iterator[tuple[str, Case]]
"""Named checks: the first is of the right derivative, the others have planted errors."""


def by_hand(xp: Any, which: str) -> Cases:
    """`sin(x) b` with its derivatives; errors in those of this name alone."""
    random = np.random.default_rng(SEED)
    inputs = tuple(xp.asarray(random.normal(size=6)) for _ in range(2))
    rules: dict[str, Callable[..., Any]] = {
        "vjp": lambda x, b, w: (w * b * xp.cos(x), w * xp.sin(x)),
        "jvp": lambda x, b, dx, db: (b * xp.cos(x) * dx + xp.sin(x) * db,),
        "double_vjp": lambda x, b, w, u: (
            w * (u[1] * xp.cos(x) - u[0] * b * xp.sin(x)),
            w * u[0] * xp.cos(x),
            u[0] * b * xp.cos(x) + u[1] * xp.sin(x),
        ),
    }
    options = {"jvp": {"check_forward_ad": True}, "double_vjp": {"order": 2}}.get(which, {})
    for name in ("right", *MISTAKES):
        used = dict(rules)
        if name != "right":
            used[which] = spoiled(rules[which], MISTAKES[name])
        tangent = used["jvp"]
        function = ByHand(
            lambda x, b: xp.sin(x) * b,
            vjp=used["vjp"],
            jvp=lambda *arguments, tangent=tangent: tangent(*arguments)[0],
            double_vjp=used["double_vjp"],
        )
        yield name, Case(function, inputs, **options)


def raw_twins(xp: Any) -> Cases:
    """NumPy twins of examples/raw_kernel_cupy.py; on a GPU its kernels themselves."""
    example, twins = loaded("examples/raw_kernel_cupy.py"), loaded("tests/engines/kernel_twins.py")
    for variant, name in enumerate(example.NAMES):
        if xp is np:
            yield name, Case(twins.twin(example, variant), example.inputs(np))
        else:
            yield name, example.case(variant)


def raw_on_host(xp: Any, order: str) -> Cases:
    """The source of those kernels, compiled for the CPU."""
    host = _host(xp)
    example = loaded("examples/raw_kernel_cupy.py")
    for variant, name in enumerate(example.NAMES):
        yield name, example.case(variant, host.Module(example.SOURCE, order), np, nondet_tol=1e-13)


def elementwise(xp: Any) -> Cases:
    """examples/elementwise_cupy.py: its operations compiled for the CPU, or by CuPy."""
    example = loaded("examples/elementwise_cupy.py")
    if xp is np:
        cases = example.cases(_host(xp).Elementwise, lambda function: function, np)
    else:
        cases = example.cases(xp.ElementwiseKernel, xp.fuse(), xp)
    _, second, first, _, wrong_second = cases
    yield "right", second
    yield "first order", first
    yield "second order", wrong_second


def _host(xp: Any) -> Any:
    if xp is not np:
        raise AbsentError("of the CPU")
    host = loaded("tests/engines/cuda_on_host.py")
    if reason := host.why_absent():
        raise AbsentError(reason)
    return host


def dense(xp: Any) -> Cases:
    """A layer with a callback, `tanh(X W)`."""
    random = np.random.default_rng(SEED)
    inputs = tuple(xp.asarray(random.normal(size=shape)) for shape in ((5, 3), (3, 2)))

    def forward(X: Any, W: Any) -> tuple[Any, Callable[[Any], Any]]:
        Y = xp.tanh(X @ W)
        return Y, lambda dY: ((dY * (1 - Y**2)) @ W.T, X.T @ (dY * (1 - Y**2)))

    yield "right", Case(layer(forward), inputs)
    for name, mistake in MISTAKES.items():

        def wrong(X: Any, W: Any, mistake: Any = mistake) -> Any:
            Y, back = forward(X, W)
            return Y, spoiled(back, mistake)

        yield name, Case(layer(wrong), inputs)


def thinc_model(xp: Any) -> Cases:
    """A model of Thinc with accumulated gradients."""
    api = needed("thinc.api")
    tests = loaded("tests/engines/test_layers.py")
    ops = api.NumpyOps() if xp is np else api.CupyOps()
    for how in ("right", *tests.NAMED):
        made, X = tests.built_by_hand(api, how, ops)
        yield how, Case(model(made), (parameters_of(made), X))


def matrix(xp: Any) -> Cases:
    """A matrix and its adjoint as functions."""
    random = np.random.default_rng(SEED)
    A, x = xp.asarray(random.normal(size=(5, 8))), xp.asarray(random.normal(size=8))
    for name, mistake in {"right": lambda g: g, **MISTAKES}.items():

        def adjoint(w: Any, mistake: Any = mistake) -> Any:
            return mistake(A.T @ w)

        rule = linear(lambda x: A @ x, adjoint=adjoint)
        yield name, Case(rule, x, check_forward_ad=True)


def pylops(xp: Any) -> Cases:
    """An operator of PyLops."""
    os.environ.setdefault("CUPY_PYLOPS", "1" if cupy_device() is None else "0")
    yield from _pylops(xp.asarray(np.random.default_rng(SEED).normal(size=20)))


def pylops_of_jax(xp: Any) -> Cases:
    """The same on arrays of JAX."""
    if xp is not np:
        raise AbsentError("of the CPU")
    needed("jax")
    os.environ.setdefault("CUPY_PYLOPS", "1" if cupy_device() is None else "0")
    x = registry.backend_named("jax").arrays.make(
        np.random.default_rng(SEED).normal(size=20), "float64"
    )
    yield from _pylops(x, mistakes=("sign", "factor", "order", "1e-5"))


def _pylops(x: Any, mistakes: tuple[str, ...] = tuple(MISTAKES)) -> Cases:
    operator = needed("pylops").FirstDerivative(20)
    yield "right", Case(linear(operator), x, check_forward_ad=True)
    for name in mistakes:

        def adjoint(w: Any, mistake: Any = MISTAKES[name]) -> Any:
            return mistake(operator.rmatvec(w))

        yield name, Case(linear(operator, adjoint=adjoint), x, check_forward_ad=True)


def warp_tape(xp: Any) -> Cases:
    """A kernel of Warp with a native adjoint."""
    warp = needed("warp")
    warp.config.quiet, warp.config.log_level = True, 40  # before and since 1.13: errors only
    warp.init()
    kernels = loaded("tests/engines/warp_kernels.py")
    a = xp.asarray(np.random.default_rng(SEED).normal(size=7))
    yield "right", Case(warp_kernel(kernels.right_snippet, 7, [a]), a)
    yield "factor", Case(warp_kernel(kernels.wrong_snippet, 7, [a]), a)


def torch_function(xp: Any) -> Cases:
    """examples/cupy_in_torch.py: by NumPy on a CPU, by CuPy on a GPU."""
    torch = needed("torch")
    if xp is not np and not torch.cuda.is_available():
        raise AbsentError("this PyTorch has no CUDA")
    example = loaded("examples/cupy_in_torch.py")
    device = "cpu" if xp is np else "cuda"
    yield "right", example.case(example.right.f.__self__.backward, "right", device)
    for name, rule in example.WRONG.items():
        yield name, example.case(rule, name, device)


def jax_callback(xp: Any) -> Cases:
    """examples/cupy_in_jax.py: by NumPy on a CPU, by CuPy where JAX has a GPU."""
    jax = needed("jax")
    if (xp is np) is (jax.default_backend() == "gpu"):
        raise AbsentError(f"JAX runs on {jax.default_backend()}")
    example = loaded("examples/cupy_in_jax.py")
    make = registry.backend_named("jax").arrays.make
    inputs = tuple(make(np.asarray(leaf, np.float64), "float64") for leaf in example.inputs())
    yield "right", Case(example.right.f, inputs)
    for name, function in example.WRONG.items():
        yield name, Case(function, inputs)


ENGINES: dict[str, Callable[[Any], Cases]] = {
    "ByHand: vjp": lambda xp: by_hand(xp, "vjp"),
    "ByHand: jvp": lambda xp: by_hand(xp, "jvp"),
    "ByHand: double_vjp": lambda xp: by_hand(xp, "double_vjp"),
    "RawKernel (CPU: NumPy twins)": raw_twins,
    "RawKernel, source on the CPU, in lockstep": lambda xp: raw_on_host(xp, "lockstep"),
    "RawKernel, source on the CPU, in any order": lambda xp: raw_on_host(xp, "shuffled"),
    "ElementwiseKernel and fuse": elementwise,
    "layer": dense,
    "model (Thinc)": thinc_model,
    "linear: functions": matrix,
    "linear: PyLops": pylops,
    "linear: PyLops on JAX": pylops_of_jax,
    "warp_kernel": warp_tape,
    "torch.autograd.Function": torch_function,
    "jax.custom_vjp with a callback": jax_callback,
}


# ---------------------------------------------------------------- the table


def cupy_device() -> str | None:
    """Why CuPy holds no array here; `None` where it does."""
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed"
    return registry.backend_named("cupy").environment.unavailable()


def trial(engine: Callable[[Any], Cases], xp: Any) -> Trial:
    """One engine on arrays of `xp`. Raises `AbsentError` where it is absent."""
    start = time.perf_counter()
    cases = engine(xp)
    report = _run(next(cases)[1])
    verdicts = {name: _run(case).verdict for name, case in cases}
    return Trial(
        report.verdict,
        report.counts["comparisons"],
        report.counts["identities"],
        tuple(name for name, verdict in verdicts.items() if verdict is Verdict.FAIL),
        tuple(name for name, verdict in verdicts.items() if verdict is not Verdict.FAIL),
        time.perf_counter() - start,
    )


def _run(case: Case) -> adjudge.Report:
    case.options["seed"] = SEED
    return case.run()


def trials(xp: Any) -> dict[str, Trial | str]:
    """Every engine on arrays of `xp`; the reason where one is absent."""
    results: dict[str, Trial | str] = {}
    for name, engine in ENGINES.items():
        try:
            results[name] = trial(engine, xp)
        except AbsentError as absent:
            results[name] = f"absent: {absent}"
    return results


def main() -> None:
    """Prints a table for NumPy, and one for CuPy where it has a device."""
    reason = cupy_device()
    places = [("CPU", np)]
    if reason is None:
        places.append(("GPU", importlib.import_module("cupy")))
    columns = ["engine", "on", "verdict", "comparisons", "identities", "planted errors", "seconds"]
    rows: list[list[object]] = []
    for place, xp in places:
        for name, found in trials(xp).items():
            rows.append([name, place, *(cells(found) if isinstance(found, Trial) else [found])])
    if reason is not None:
        rows.append(["every engine", "GPU", f"absent: {reason}"])
    print(header("Engines whose derivatives are supplied", DISTRIBUTIONS))
    print(table(columns, [[*row, *[""] * (len(columns) - len(row))] for row in rows]))


def cells(found: Trial) -> list[object]:
    """`PASS`, 13, 122, `4 of 5, not edge`, 0.3."""
    planted = f"{len(found.caught)} of {len(found.caught) + len(found.missed)}"
    missed = f", not {', '.join(found.missed)}" if found.missed else ""
    numbers = [found.verdict, found.comparisons, found.identities]
    return [*numbers, planted + missed, f"{found.seconds:.1f}"]


if __name__ == "__main__":
    main()
