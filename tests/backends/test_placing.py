"""Host arrays on every engine: the same shape, dtype and values, or an error that says so."""

import importlib
import sys

import numpy as np
import pytest

import adjudge
from adjudge import ByHand, Verdict
from adjudge.engine import registry
from adjudge.engine.arrays import PlainArrays, PlainBackend, placed, placed_tree
from adjudge.engine.contract import replaced
from adjudge.errors import InputError, UnknownFrameworkError
from adjudge.report import listening

ENGINES = [
    "numpy",
    "array_api_strict",
    pytest.param("torch", marks=pytest.mark.backend("torch")),
    pytest.param("jax", marks=pytest.mark.backend("jax")),
]
DTYPES = ["float64", "float32", "complex128", "complex64", "int64", "int32", "bool"]


@pytest.fixture(params=ENGINES)
def engine(request):
    return registry.backend_named(request.param)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_values_shape_and_dtype_are_kept(engine, dtype, shape):
    host = (np.arange(6)[: int(np.prod(shape))].reshape(shape) / 3).astype(dtype)

    array = placed(engine, host)

    assert engine.owns(array)
    assert tuple(array.shape) == shape
    assert engine.arrays.info(array).dtype.rpartition(".")[2] == dtype
    with engine.environment.isolation([array]):
        if engine.arrays.is_differentiable(array):
            np.testing.assert_array_equal(engine.arrays.to_host(array), host)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ENGINES[2:])
def test_narrow_dtypes_are_rounded_once(name, dtype):
    engine = registry.backend_named(name)

    array = placed(engine, [1.0, 1 / 3], dtype)

    expected = {"float16": 0.333251953125, "bfloat16": 0.333984375}[dtype]
    assert engine.arrays.to_host(array).tolist() == [1.0, expected]


@pytest.mark.parametrize("values", ["text", [[1.0], [1.0, 2.0]], None, {"a": 1}])
def test_what_is_no_array_of_numbers_is_refused(values):
    with pytest.raises(InputError, match="numbers"):
        placed(registry.backend_named("numpy"), values, name="inputs[0]")


class Narrowing(PlainArrays):
    """Arrays that are made in float32 whatever was asked for, and nothing is said."""

    def make(self, values, dtype, device=None):
        return np.asarray(values, dtype=np.float32)


class Losing(PlainArrays):
    """Arrays that are rounded on the way, and nothing is said."""

    def make(self, values, dtype, device=None):
        return np.asarray(values, dtype=np.float32).astype(dtype)


def numpy_with(arrays):
    return replaced(PlainBackend(np), arrays=arrays("numpy", np))


def test_an_engine_that_narrows_in_silence_is_found_out():
    with pytest.raises(InputError, match=r"x has shape \(1,\) and dtype float64.*float32"):
        placed(numpy_with(Narrowing), [1 / 3], name="x")
    with pytest.raises(InputError, match="other values"):
        placed(numpy_with(Losing), [1 / 3], name="x")


def test_trees_keep_their_structure(engine):
    tree = ({"w": np.ones(2), "n": 3}, [[1.0, 2.0], [3.0, 4.0]], "mean")

    first, second, third = placed_tree(engine, tree)

    assert engine.owns(first["w"])
    assert first["n"] == 3
    assert tuple(second.shape) == (2, 2)
    assert third == "mean"


def test_a_misspelt_engine_is_told_what_was_meant():
    with pytest.raises(UnknownFrameworkError, match="Did you mean 'torch'"):
        registry.backend_named("toch")
    assert registry.names()[:2] == ["numpy", "array_api_strict"]
    assert len(registry.names()) == len(set(registry.names()))


def test_a_plain_engine_that_is_not_installed_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "array_api_strict", None)
    with pytest.raises(ImportError, match="pip install array-api-strict"):
        registry.backend_named("array_api_strict")
    monkeypatch.undo()
    importlib.import_module("array_api_strict")


def test_listeners_are_told_of_every_report_once_and_no_more_afterwards():
    square = adjudge.ByHand(lambda x: x**2, vjp=lambda x, w: 2 * x * w)
    seen = []
    with listening(seen.append):
        report = adjudge.gradcheck(square, np.ones(2))
        several = adjudge.examine(square, np.ones(2), points=[(np.ones(2),), (np.zeros(2),)])
    adjudge.gradcheck(square, np.ones(2))

    assert seen == [report, several]


def sines(c=1.0):
    """Rules in NumPy, whatever array comes in: the function, its vjp and its Jacobian."""
    return [
        ByHand(
            lambda x: np.sin(np.asarray(x)),
            vjp=lambda x, w: np.asarray(w) * c * np.cos(np.asarray(x)),
        ),
        ByHand(lambda x: np.sin(np.asarray(x)), jac=lambda x: np.diag(c * np.cos(np.asarray(x)))),
        ByHand(lambda x: np.sin(np.asarray(x)).sum(), grad=lambda x: c * np.cos(np.asarray(x))),
        ByHand(
            lambda x: {"y": np.sin(np.asarray(x))},
            vjp=lambda x, w: np.asarray(w["y"]) * c * np.cos(np.asarray(x)),
        ),
        ByHand(
            lambda x: np.sin(np.asarray(x)),
            jvp=lambda x, v: np.asarray(v) * c * np.cos(np.asarray(x)),
        ),
    ]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("engine", ENGINES[2:])
@pytest.mark.parametrize("k", range(len(sines())))
def test_rules_that_compute_in_numpy_take_arrays_of_every_engine(engine, dtype, k):
    x = placed(registry.backend_named(engine), np.linspace(0.2, 1.2, 4), dtype)

    right, wrong = (adjudge.examine(sines(c)[k], x, seed=0) for c in (1.0, 1.02))

    assert (right.verdict, wrong.verdict) == (Verdict.PASS, Verdict.FAIL)


@pytest.mark.backend("torch")
def test_a_rule_on_an_engine_takes_arrays_of_numpy():
    torch = importlib.import_module("torch")

    def rule(c):
        f = lambda x: torch.sin(torch.as_tensor(x))  # noqa: E731
        return ByHand(f, vjp=lambda x, w: torch.as_tensor(w) * c * torch.cos(torch.as_tensor(x)))

    x = np.linspace(0.2, 1.2, 4)
    assert adjudge.examine(rule(1.0), x, seed=0).verdict is Verdict.PASS
    assert adjudge.examine(rule(1.02), x, seed=0).verdict is Verdict.FAIL


class Quantity(np.ndarray):
    """An array with a unit, say."""


@pytest.mark.parametrize("kind", [np.ma.MaskedArray, Quantity])
def test_a_kind_of_array_that_a_function_would_not_see_is_refused(kind):
    x = np.asarray([1.0, 2.0]).view(kind)
    rule = ByHand(lambda x: (x**2).sum(), grad=lambda x: 2 * x)

    with pytest.raises(UnknownFrameworkError, match="would see a plain array in its place"):
        adjudge.examine(rule, x)
    assert adjudge.examine(rule, np.asarray(x), seed=0).verdict is Verdict.PASS
