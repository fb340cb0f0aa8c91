"""Precision of JAX: 64-bit arrays while 64-bit mode is off, single, mixed and half precision."""

import numpy as np
import pytest

from adjudge import NotSupportedError, Status, Verdict, examine, gradcheck, gradgradcheck

pytestmark = pytest.mark.backend("jax")

VALUES = np.array([0.5, -1.5, 2.0])
HALF = ["float16", "bfloat16"]


@pytest.fixture
def scaled_sin(jnp, with_jvp):
    def make(factor):
        return with_jvp(jnp.sin, lambda x, v: (factor * v * jnp.cos(x)).astype(x.dtype))

    return make


# ---------------------------------------------------------------- 64-bit mode


def test_float64_arrays_are_checked_in_float64_while_64_bit_mode_is_off(jax, scaled_sin, x):
    seen = set()

    def f(x):
        seen.add((str(x.dtype), str((x * 2).dtype), bool(jax.config.jax_enable_x64)))
        return scaled_sin(1.0)(x)

    report = gradcheck(f, (x,), mode="full", seed=0)

    assert seen == {("float64", "float64", True)}
    assert report.provenance.dtype == "float64"
    assert report.resolution < 1e-5
    assert not jax.config.jax_enable_x64


def test_an_error_that_float32_could_not_show_is_found(scaled_sin, x):
    assert gradcheck(scaled_sin(1.0), (x,), mode="full", seed=0)
    assert not examine(scaled_sin(1 + 1e-6), (x,), mode="full", seed=0, blame=False)
    low = x.astype("float32")
    assert examine(scaled_sin(1 + 1e-6), (low,), mode="full", seed=0, in_double=False, blame=False)
    assert not examine(scaled_sin(1 + 1e-6), (low,), mode="full", seed=0, blame=False)


@pytest.mark.parametrize("exception", [ValueError, KeyboardInterrupt, SystemExit])
def test_64_bit_mode_is_off_again_when_the_function_raises(jax, x, exception):
    def f(x):
        if jax.config.jax_enable_x64:
            raise exception("stop")
        return x

    with pytest.raises(exception, match="stop"):
        gradcheck(f, (x,))

    assert not jax.config.jax_enable_x64


def test_64_bit_mode_is_restored_when_the_function_changes_it(jax):
    def f(x):
        jax.config.update("jax_enable_x64", True)
        return x * 2

    report = examine(f, (jax.numpy.asarray(VALUES),), seed=0, blame=False)

    assert report.verdict is Verdict.PASS
    assert not jax.config.jax_enable_x64


@pytest.mark.usefixtures("x64")
def test_64_bit_mode_that_is_on_stays_on(jax, jnp, scaled_sin):
    report = gradcheck(scaled_sin(1.0), (jnp.asarray(VALUES),), seed=0)
    single = gradcheck(scaled_sin(1.0), (jnp.asarray(VALUES, "float32"),), seed=0)

    assert (report.provenance.dtype, single.provenance.dtype) == ("float64", "float32")
    assert jax.config.jax_enable_x64


def test_an_output_that_is_narrowed_is_judged_past_that(jnp, x):
    report = gradcheck(lambda x: jnp.sin(x).astype("float32"), (x,), seed=0)

    assert report.provenance.note.endswith("past its conversions to narrower dtypes")
    assert report.tolerance["rtol"] < 1e-6


# ---------------------------------------------------------------- single and mixed


def test_float32_is_checked_in_float32(jnp, scaled_sin):
    x = jnp.asarray(VALUES)

    right = examine(scaled_sin(1.0), (x,), check_forward_ad=True, seed=0, blame=False)
    wrong = examine(scaled_sin(1.01), (x,), check_forward_ad=True, seed=0, blame=False)

    assert right.provenance.dtype == "float32"
    assert right.modes == {"R": Verdict.PASS, "F": Verdict.PASS}
    assert wrong.modes == {"R": Verdict.FAIL, "F": Verdict.FAIL}


def test_a_float32_network_passes(jax, jnp):
    random = np.random.default_rng(0)
    w, x = jnp.asarray(random.normal(size=(5, 4))), jnp.asarray(random.normal(size=(7, 5)))

    report = examine(lambda w, x: jax.nn.log_softmax(jnp.tanh(x @ w)), (w, x), seed=0, blame=False)

    assert report.verdict is Verdict.PASS


@pytest.mark.parametrize("of", ["loss", "entries"])
def test_a_small_gradient_is_not_asked_about_cotangents_for_which_it_underflows(jnp, of):
    """XLA sets what is smaller than the numbers with all digits to zero."""

    def f(x):
        return jnp.sum(1e-34 * jnp.sin(x)) if of == "loss" else 1e-34 * jnp.sin(x)

    for seed in range(3):
        assert examine(f, (jnp.asarray(VALUES),), seed=seed, blame=False).verdict is Verdict.PASS


def test_leaves_of_two_precisions_are_checked_together(jnp, scaled_sin, x):
    single = jnp.asarray(VALUES)

    def f(factor):
        return lambda a, b: a * scaled_sin(factor)(b)

    right = examine(f(1.0), (x, single), check_forward_ad=True, seed=0, blame=False)
    second = gradgradcheck(f(1.0), (x, single), seed=0)
    wrong = examine(f(1.1), (x, single), seed=0, blame=False)

    assert right.provenance.dtype == "float64+float32"
    assert right.verdict is Verdict.PASS
    assert second.verdict is Verdict.PASS
    assert wrong.verdict is Verdict.FAIL
    assert {entry.wrt.partition("]")[0] for entry in wrong.entries} == {"inputs[1"}


def test_weak_types_are_checked_like_others(jnp, scaled_sin):
    x = jnp.asarray(2.0)

    assert x.weak_type
    assert gradcheck(lambda x: 2.0 * scaled_sin(1.0)(x), (x,), check_forward_ad=True, seed=0)
    assert not examine(lambda x: 2.0 * scaled_sin(1.1)(x), (x,), seed=0, blame=False)


def test_an_array_that_jax_would_narrow_is_refused_by_the_adapter(jax, x):
    from adjudge_jax import JaxBackend

    with pytest.raises(NotSupportedError, match="dtype float64 is not supported"):
        JaxBackend().arrays.from_host(VALUES, x)


# ---------------------------------------------------------------- half precision


@pytest.mark.parametrize("dtype", HALF)
def test_half_precision_has_a_verdict(jnp, scaled_sin, dtype):
    x = jnp.asarray(VALUES, dtype)

    right = examine(scaled_sin(1.0), (x,), check_forward_ad=True, seed=0, blame=False)
    opposite = examine(scaled_sin(-1.0), (x,), check_forward_ad=True, seed=0, blame=False)
    zero = examine(scaled_sin(0.0), (x,), check_forward_ad=True, seed=0, blame=False)

    assert right.verdict is Verdict.PASS
    assert opposite.modes == {"R": Verdict.FAIL, "F": Verdict.FAIL}
    assert zero.modes == {"R": Verdict.FAIL, "F": Verdict.FAIL}


@pytest.mark.parametrize("dtype", HALF[1:])
def test_half_precision_of_a_sum_passes(jnp, dtype):
    x = jnp.asarray(VALUES, dtype)

    assert examine(lambda x: jnp.sum(x**3), (x,), seed=0, blame=False).verdict is Verdict.PASS
    assert gradgradcheck(lambda x: jnp.sum(x**3), (x,), seed=0).verdict is Verdict.PASS


@pytest.mark.parametrize("dtype", HALF[:1])
def test_half_precision_of_a_product_stays_open_at_worst(jnp, with_vjp, dtype):
    random = np.random.default_rng(0)
    w, x = jnp.asarray(random.normal(size=(3, 3)), dtype), jnp.asarray(VALUES, dtype)
    doubled = with_vjp(lambda w, x: w @ x, lambda w, x, g: (2 * jnp.outer(g, x), w.T @ g))

    right = examine(lambda w, x: w @ x, (w, x), seed=0, blame=False)
    wrong = examine(doubled, (w, x), seed=0, blame=False)

    assert {finding.status for finding in right.findings} <= {Status.UNRESOLVED}
    assert wrong.verdict is Verdict.FAIL


@pytest.mark.parametrize("dtype", HALF[:1])
def test_many_half_precision_values_never_fail_when_right(jnp, scaled_sin, dtype):
    x = jnp.asarray(np.random.default_rng(0).normal(size=200), dtype)

    right = examine(scaled_sin(1.0), (x,), check_forward_ad=True, seed=0, blame=False)
    wrong = examine(scaled_sin(-1.0), (x,), check_forward_ad=True, seed=0, blame=False)

    assert {finding.status for finding in right.findings} <= {Status.UNRESOLVED}
    assert right.modes["R"] is Verdict.PASS
    assert wrong.verdict is Verdict.FAIL


def test_quarter_precision_ends_in_a_report(jnp):
    x = jnp.asarray(VALUES, "float8_e4m3fn")

    report = examine(lambda x: x * x, (x,), seed=0, blame=False)

    assert report.verdict in (Verdict.PASS, Verdict.INCONCLUSIVE)
