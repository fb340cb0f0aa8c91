"""Drawn inputs on PyTorch and JAX, and scripts that place the same arrays there again."""

import importlib
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import adjudge
from adjudge.engine.registry import backend_named
from adjudge.report.reproduce import reproduction
from adjudge.strategies import Spec, arrays, inputs, judge

SEARCH = settings(deadline=None, derandomize=True, database=None, max_examples=10)
FIND = {"phases": [hypothesis.Phase.generate], "report_multiple_bugs": False}
"""Without shrinking: arrays are drawn, and shrink, without an engine (tests/core/strategies)."""
ENGINES = [
    pytest.param(name, marks=pytest.mark.backend(name)) for name in ("torch", "jax")
]  # fmt: skip


@pytest.mark.backend("torch")
def test_a_rule_that_is_wrong_where_two_entries_tie_is_found(rule):
    torch = importlib.import_module("torch")
    f = rule(
        lambda x: (x**3).sum(),
        lambda x, w: w * 3 * x**2 * (1 if len(torch.unique(x)) == x.numel() else 2),
    )
    last = []

    @settings(SEARCH, max_examples=100, **FIND)
    @given(arrays(("n",)))
    def test(x: Any) -> None:
        last.append(x)
        judge(f, x, "torch")

    with pytest.raises(adjudge.GradcheckError) as caught:
        test()
    assert len(np.unique(last[-1])) < len(last[-1])
    assert 'engine = backend_named("torch")' in caught.value.__notes__[0]


@pytest.mark.backend("jax")
def test_a_rule_that_is_wrong_for_negative_numbers_is_found(with_vjp, jnp):
    f = with_vjp(jnp.sin, lambda x, w: (w * jnp.cos(x) * jnp.where(x < 0, 2, 1),))
    last = []

    @settings(SEARCH, max_examples=30, **FIND)
    @given(arrays(st.sampled_from([(), (2,)]), special=False))
    def test(x: Any) -> None:
        last.append(x)
        judge(f, x, "jax")

    with pytest.raises(adjudge.GradcheckError):
        test()
    assert np.any(last[-1] < 0)


@pytest.mark.parametrize(
    ("engine", "dtype"),
    [
        pytest.param(engine, dtype, marks=pytest.mark.backend(engine))
        for engine, dtypes in (
            ("torch", ("float64", "float32", "bfloat16", "complex64")),
            ("jax", ("bfloat16", "complex64")),
        )
        for dtype in dtypes
    ],
)
def test_right_derivatives_pass(engine, dtype):
    if dtype == "bfloat16":  # drawn as NumPy arrays, which JAX's dependency makes possible
        pytest.importorskip("ml_dtypes")
    xp = backend_named(engine).xp

    @settings(SEARCH, max_examples=5)
    @given(inputs(Spec(("n", 2), dtype), {"w": Spec((2, "n"), dtype)}, sizes=st.integers(1, 2)))
    def test(arguments: Any) -> None:
        judge(lambda x, tree: xp.matmul(x, tree["w"]), arguments, engine)

    test()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("domain", ["positive definite", "symmetric"])
def test_linear_algebra_passes_within_its_domain(engine, domain):
    linalg = backend_named(engine).xp.linalg
    f = linalg.cholesky if domain == "positive definite" else linalg.eigvalsh

    @SEARCH
    @given(arrays(("n", "n"), domain=domain, sizes=st.integers(1, 2)))
    def test(x: Any) -> None:
        judge(f, x, engine, domain=domain)

    test()


@pytest.mark.parametrize("engine", ENGINES)
def test_the_arrays_of_a_script_are_those_of_the_engine_bit_by_bit(engine):
    backend = backend_named(engine)
    given_arrays = []
    with np.errstate(all="ignore"):
        for dtype in ("float64", "float32", "float16", "bfloat16", "complex64", "complex128"):
            for values in ([1.0, -0.0, 0.1, np.inf, 1e-40], 0.3, np.zeros((0, 2))):
                given_arrays.append(backend.arrays.make(np.asarray(values), dtype))
    given_arrays += [backend.arrays.make(np.asarray([2**62, -1]), "int64")]
    given_arrays += [backend.arrays.make(np.asarray([[True], [False]]), "bool")]

    script = reproduction(np.sin, (given_arrays, {"a": given_arrays[0]}))
    space: dict[str, Any] = {}
    exec(script.split("report = ")[0], space)  # noqa: S102 our own script

    again = space["inputs"][0]
    info, to_host = backend.arrays.info, backend.arrays.to_host
    assert [info(one) for one in again] == [info(one) for one in given_arrays]
    for one, other in zip(again, given_arrays, strict=True):
        if backend.arrays.is_differentiable(one):
            with backend.environment.isolation([one]):
                assert to_host(one).tobytes() == to_host(other).tobytes()
        else:
            assert one.tolist() == other.tolist()


@pytest.mark.backend("torch")
def test_the_script_of_tensors_checks_those_that_were_marked(rule):
    torch = importlib.import_module("torch")
    x = torch.tensor([0.5, 1.0], dtype=torch.float64, requires_grad=True)
    w = torch.tensor([2.0, 3.0], dtype=torch.float64)

    script = reproduction(torch.mul, (x, w), seed=3)
    space: dict[str, Any] = {}
    exec(script, space)  # noqa: S102 our own script

    assert "wrt=['inputs[0]']" in script
    expected = adjudge.examine(torch.mul, (x, w), seed=3, wrt=["inputs[0]"])
    assert space["report"].to_dict() == expected.to_dict()
