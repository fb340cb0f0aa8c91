"""JAX and PyTorch, imported where a test asks for them, and functions with planted derivatives."""

import importlib
import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from adjudge.engine import registry


@pytest.fixture(autouse=True)
def seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds that a test does not choose: another one a check, the same in every run."""
    numbers = itertools.count(1)
    monkeypatch.setattr("adjudge.check.options.fresh_seed", lambda: next(numbers))


@pytest.fixture
def jax() -> Any:
    """JAX itself."""
    return importlib.import_module("jax")


@pytest.fixture
def jnp() -> Any:
    """The arrays of JAX."""
    return importlib.import_module("jax.numpy")


@pytest.fixture
def enable_x64(jax: Any) -> Callable[[bool], AbstractContextManager[None]]:
    """The context of 64-bit mode; JAX before 0.8 has it in `jax.experimental` only."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64
    return importlib.import_module("jax.experimental").enable_x64


@pytest.fixture
def double(jnp: Any, enable_x64: Any) -> Callable[[object], Any]:
    """`double(values)`: a float64 or complex128 array, made while 64-bit mode is off outside."""

    def make(values: object) -> Any:
        with enable_x64(True):
            return jnp.asarray(values)

    return make


@pytest.fixture
def x64(enable_x64: Any) -> Iterator[None]:
    """64-bit mode for the whole test."""
    with enable_x64(True):
        yield


@pytest.fixture
def with_vjp(jax: Any) -> Callable[..., Any]:
    """`with_vjp(f, backward)`: `f` with the vjp `backward(*x, w)`, right or wrong."""

    def make(f: Callable[..., Any], backward: Callable[..., Any]) -> Any:
        rule = jax.custom_vjp(lambda *x: f(*x))
        rule.defvjp(lambda *x: (f(*x), x), lambda x, w: backward(*x, w))
        return rule

    return make


@pytest.fixture
def with_jvp(jax: Any) -> Callable[..., Any]:
    """`with_jvp(f, push)`: `f` with the jvp `push(*x, *v)`, right or wrong."""

    def make(f: Callable[..., Any], push: Callable[..., Any]) -> Any:
        rule = jax.custom_jvp(lambda *x: f(*x))
        rule.defjvp(lambda x, v: (rule(*x), push(*x, *v)))
        return rule

    return make


# ---------------------------------------------------------------- PyTorch


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Arrays of a few entries: the threads of PyTorch would only wait for one another."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture(params=["adjudge", "adjudge_torch"])
def gradcheck(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """The verb of the library, then the door with the signature of `torch.autograd.gradcheck`."""
    return importlib.import_module(request.param).gradcheck


@pytest.fixture(params=["adjudge", "adjudge_torch"])
def gradgradcheck(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """The same of second order."""
    return importlib.import_module(request.param).gradgradcheck


@pytest.fixture
def rule() -> Callable[..., Any]:
    """`rule(forward, backward, jvp)`: an `autograd.Function` by hand, right or wrong.

    `forward(*x)`, `backward(*x, *w)`, `jvp(*x, *v)`; with `undefined` the derivatives see `None`
    where PyTorch has no gradient.
    """
    torch = importlib.import_module("torch")

    def make(forward: Any, backward: Any, jvp: Any = None, *, undefined: bool = False) -> Any:
        class Rule(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *x: Any) -> Any:
                ctx.set_materialize_grads(not undefined)
                ctx.save_for_backward(*x)
                ctx.save_for_forward(*x)
                return forward(*x)

            @staticmethod
            def backward(ctx: Any, *w: Any) -> Any:
                return backward(*ctx.saved_tensors, *w)

        if jvp is not None:
            Rule.jvp = staticmethod(lambda ctx, *v: jvp(*ctx.saved_tensors, *v))
        return Rule.apply

    return make


@pytest.fixture
def scaled_sin(rule: Any) -> Callable[..., Any]:
    """`sin` whose backward is off by a factor, and whose jvp by another."""

    def make(backward: float = 1.0, jvp: float = 1.0) -> Any:
        return rule(
            lambda x: x.sin(),
            lambda x, w: backward * w * x.cos(),
            lambda x, v: jvp * v * x.cos(),
        )

    return make


# ---------------------------------------------------------------- CuPy, simulated


SIMULATED = Path(__file__).parents[1] / "engines" / "simulated_cupy.py"
BUILT_ON_CUPY = ("cupy", "cupy_backends", "cupyx", "array_api_compat.cupy", "adjudge_cupy.backend")


@pytest.fixture
def cupy() -> Iterator[Any]:
    """A CuPy of two simulated devices in place of the real one, if any, and all built on it."""
    spec = importlib.util.spec_from_file_location("simulated_cupy", SIMULATED)
    assert spec is not None
    assert spec.loader is not None
    machine = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(machine)
    compat: Any = importlib.import_module("array_api_compat")
    caches = (registry._loaded, registry._plain)
    before = _taken_out(compat)
    sys.modules.update(machine.MODULES)
    for cache in caches:
        cache.cache_clear()
    try:
        yield machine
    finally:
        _taken_out(compat)
        sys.modules.update(before)
        if "array_api_compat.cupy" in before:
            compat.cupy = before["array_api_compat.cupy"]
        for cache in caches:
            cache.cache_clear()


def _taken_out(compat: Any) -> dict[str, Any]:
    """The modules of CuPy and of what is built on it, which are no longer imported."""
    names = [
        name
        for name in sys.modules
        if any(name == root or name.startswith(f"{root}.") for root in BUILT_ON_CUPY)
    ]
    vars(compat).pop("cupy", None)
    return {name: sys.modules.pop(name) for name in names}
