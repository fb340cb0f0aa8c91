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
from scenarios import torch_function

from adjudge.engine import registry

if importlib.util.find_spec("tensorflow"):  # two devices of the CPU, so that tensors can be astray
    config = importlib.import_module("tensorflow").config
    config.set_logical_device_configuration(
        config.list_physical_devices("CPU")[0], [config.LogicalDeviceConfiguration()] * 2
    )


@pytest.fixture(autouse=True)
def numbered_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
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
def x(request: pytest.FixtureRequest) -> Any:
    """Three numbers of the engine that the test is marked with, JAX or PyTorch."""
    engines = {name for mark in request.node.iter_markers("backend") for name in mark.args}
    if engines == {"jax"}:
        return request.getfixturevalue("double")([0.5, -1.5, 2.0])
    torch = importlib.import_module("torch")
    return torch.tensor([0.3, -0.7, 1.1], dtype=torch.float64, requires_grad=True)


def _one_or_several(found: Any) -> Any:
    return tuple(found) if isinstance(found, tuple | list) else (found,)


def _jax_vjp(f: Callable[..., Any], vjp: Callable[..., Any]) -> Any:
    jax = importlib.import_module("jax")
    rule = jax.custom_vjp(lambda *x: f(*x))
    rule.defvjp(lambda *x: (f(*x), x), lambda x, w: _one_or_several(vjp(*x, w)))
    return rule


def _jax_jvp(f: Callable[..., Any], jvp: Callable[..., Any]) -> Any:
    jax = importlib.import_module("jax")
    rule = jax.custom_jvp(lambda *x: f(*x))
    rule.defjvp(lambda x, v: (rule(*x), jvp(*x, *v)))
    return rule


def _torch_jvp(f: Callable[..., Any], jvp: Callable[..., Any]) -> Any:
    torch = importlib.import_module("torch")

    def vjp(*xw: Any) -> Any:
        *x, w = xw
        return torch.autograd.functional.vjp(f, tuple(x), w)[1]

    return torch_function(f, vjp, jvp)


def _torch_gradient(f: Callable[..., Any], x: Any, w: Any) -> Any:
    torch = importlib.import_module("torch")
    return torch.autograd.functional.vjp(f, x, w)[1]


def _jax_gradient(f: Callable[..., Any], x: Any, w: Any) -> Any:
    jax = importlib.import_module("jax")
    return jax.vjp(f, x)[1](w)[0]


VJP = {"torch": lambda f, vjp: torch_function(f, vjp), "jax": _jax_vjp}
JVP = {"torch": _torch_jvp, "jax": _jax_jvp}


@pytest.fixture
def engine_name(request: pytest.FixtureRequest) -> str:
    """The engine of the test: that of `adjudge_backend`, or JAX where the test has no such."""
    if "adjudge_backend" in request.fixturenames:
        return request.getfixturevalue("adjudge_backend").name
    return "jax"


@pytest.fixture
def with_vjp(engine_name: str) -> Callable[..., Any]:
    """`with_vjp(f, vjp)`: `f` with the gradients `vjp(*x, w)`, right or wrong, by the means of the
    engine. Of complex numbers they are what the engine has for them.
    """
    return VJP[engine_name]


@pytest.fixture
def with_jvp(engine_name: str) -> Callable[..., Any]:
    """`with_jvp(f, jvp)`: `f` with the tangents `jvp(*x, *v)`, right or wrong. In JAX reverse mode
    is made of them, in PyTorch it is that of `f`.
    """
    return JVP[engine_name]


@pytest.fixture
def spoiled(engine_name: str, with_vjp: Callable[..., Any]) -> Callable[..., Any]:
    """`spoiled(f, wrong)`: `f` of one array with the gradient `wrong(x, g)` in place of its own
    `g`, which is that of the real inner product, in JAX too.
    """
    gradient = {"torch": _torch_gradient, "jax": _jax_gradient}[engine_name]

    def make(f: Callable[..., Any], wrong: Callable[..., Any]) -> Any:
        def conjugated(z: Any) -> Any:
            return z.conj() if engine_name == "jax" else z

        return with_vjp(f, lambda x, w: conjugated(wrong(x, conjugated(gradient(f, x, w)))))

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
    return torch_function


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
