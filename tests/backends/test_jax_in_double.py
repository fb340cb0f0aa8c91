"""JAX's narrow derivatives: the formula in 64-bit mode, the function itself outside of it."""

from contextlib import suppress

import pytest

import adjudge
from adjudge import Status, Verdict, examine

with suppress(ImportError):  # absent: every test here is skipped by its mark
    import jax
    import jax.numpy as jnp

pytestmark = pytest.mark.backend("jax")

LOW = ["float32", "float16", "bfloat16"]
PLANTS = {
    "right": lambda g: g,
    "sign": lambda g: -g,
    "dropped": lambda g: g.at[0, 2].set(0),
    "factor": lambda g: g * (1.01 if g.dtype == jnp.float32 else 1.1),
    "transposed": lambda g: g.T,
}


def array(*shape, dtype="float32", seed=0):
    return jax.random.normal(jax.random.PRNGKey(seed), shape).astype(dtype)


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("plant", PLANTS)
def test_a_rule_that_is_wrong_in_low_precision_alone(with_vjp, dtype, plant):
    def backward(x, w):
        g = w * jnp.cos(x)
        return (g if x.dtype == jnp.float64 else PLANTS[plant](g).astype(dtype),)

    report = examine(with_vjp(jnp.sin, backward), array(3, 3, dtype=dtype), seed=0)

    assert report.verdict is (Verdict.PASS if plant == "right" else Verdict.FAIL), report
    assert report.provenance.note == "formula judged in float64"
    if plant != "right":
        assert [Status.MISMATCH] == [f.status for f in report.findings if not f.note]
        assert report.findings[0].detail.right
        assert "float64 derivative right" in report.headline
    assert not jax.config.jax_enable_x64


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("off", [0.0, 1e-4])
def test_a_small_error_in_the_formula_shows_in_every_dtype(with_jvp, dtype, off):
    f = with_jvp(jnp.sin, lambda x, v: ((1 + off) * v * jnp.cos(x)).astype(x.dtype))

    report = examine(f, array(5, dtype=dtype), check_forward_ad=True, seed=0)

    assert report.verdict is (Verdict.FAIL if off else Verdict.PASS), report
    assert report.modes == {"F": report.verdict, "R": report.verdict}


def test_captured_arrays_and_compiled_functions_take_part():
    weight = array(4, 2, seed=1)

    @jax.jit
    def f(x):
        return jnp.tanh(x @ weight) * 0.3

    report = examine(f, array(3, 4), modes=["R", "F", "RR"], seed=0)

    assert report.verdict is Verdict.PASS, report
    assert report.provenance.note == "formula judged in float64"
    assert weight.dtype == jnp.float32
    assert not jax.config.jax_enable_x64


def test_the_function_itself_runs_outside_of_64_bit_mode():
    seen = set()

    def f(x):
        seen.add((str(x.dtype), bool(jax.config.jax_enable_x64)))
        return jnp.sin(x)

    assert adjudge.gradcheck(f, array(3))
    assert seen == {("float32", False), ("float64", True)}


@pytest.mark.parametrize("dtype", LOW)
def test_a_constant_rounded_to_the_dtype_is_no_error(dtype):
    report = examine(lambda x: 0.1 * x * 0.3 + 0.7 * x, array(6, dtype=dtype), seed=0)

    assert report.verdict is Verdict.PASS, report


def test_a_primitive_that_takes_float32_alone_is_judged_natively(with_vjp):
    def f(x):
        return jax.lax.mul(x, jnp.full(x.shape, 2.0, jnp.float32))

    report = examine(f, array(3), seed=0)

    assert report.verdict is Verdict.PASS, report
    assert "judged natively: in float64 it raises TypeError" in report.provenance.note
    assert not examine(with_vjp(f, lambda x, w: (-2 * w,)), array(3), seed=0)


@pytest.mark.parametrize("seed", range(3))
def test_a_narrower_dtype_inside_is_named_and_allowed_for(with_vjp, seed):
    weight = array(5, 5, seed=seed + 10).astype("float16")

    @jax.jit
    def network(x):
        return (jnp.tanh(x.astype("float16") @ weight) @ weight).astype("float32")

    wrong = with_vjp(network, lambda x, w: (-jax.vjp(network, x)[1](w)[0],))
    right, sign = (examine(f, array(2, 5, seed=seed), seed=0) for f in (network, wrong))

    assert right.verdict is not Verdict.FAIL, right
    assert sign.verdict is Verdict.FAIL
    assert "out stays float32" in right.provenance.note
    assert right.verdict is Verdict.PASS or "eps of 0.00098 inside" in right.provenance.note


def test_check_grads_with_numbers_judges_natively(with_vjp):
    from adjudge_jax import check_grads

    seen = set()

    def f(x):
        seen.add(str(x.dtype))
        return jnp.sin(x)

    slightly = with_vjp(f, lambda x, w: ((1 + 1e-4) * w * jnp.cos(x),))
    check_grads(slightly, (array(3),), order=1, modes=["rev"], atol=1e-2, rtol=1e-2, eps=1e-2)
    assert seen == {"float32"}
    with pytest.raises(AssertionError):
        check_grads(slightly, (array(3),), order=1, modes=["rev"])


@pytest.mark.parametrize("raises", [False, True])
def test_the_highest_precision_is_for_the_check_alone(raises):
    seen = []

    def f(x):
        seen.append(jax.config.jax_default_matmul_precision)
        if raises:
            raise ValueError("stop")
        return x @ x

    if raises:
        with pytest.raises(ValueError, match="stop"):
            examine(f, array(3, 3), highest_precision=True)
    else:
        assert examine(f, array(3, 3), highest_precision=True)

    assert set(seen) == {"highest"}
    assert jax.config.jax_default_matmul_precision is None
