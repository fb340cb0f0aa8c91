"""`adjudge_jax.check_grads` beside `jax.test_util.check_grads`: what it takes and what it finds."""

import importlib
import inspect
import itertools

import numpy as np
import pytest

from adjudge import GradcheckError, Status, Verdict

pytestmark = pytest.mark.backend("jax")

VALUES = np.array([0.5, -1.5, 2.0])


@pytest.fixture
def theirs():
    return importlib.import_module("jax.test_util")


@pytest.fixture
def check_grads():
    return importlib.import_module("adjudge_jax").check_grads


@pytest.fixture
def scaled_sin(jnp, with_jvp):
    """`sin` whose tangent is off by a factor."""
    return lambda factor: with_jvp(jnp.sin, lambda x, v: (factor * v * jnp.cos(x)).astype(x.dtype))


@pytest.mark.parametrize("name", ["check_grads", "check_jvp", "check_vjp"])
def test_the_signatures_of_the_doors_are_those_of_jax(theirs, name):
    ours = inspect.signature(getattr(importlib.import_module("adjudge_jax"), name)).parameters
    original = inspect.signature(getattr(theirs, name)).parameters

    assert list(ours) == list(original)
    assert [p.kind for p in ours.values()] == [p.kind for p in original.values()]
    # left out, `eps` is automatic; JAX writes its 1e-4 into two of the three signatures
    assert {k: p.default for k, p in ours.items() if k != "eps"} == {
        k: p.default for k, p in original.items() if k != "eps"
    }


@pytest.mark.parametrize("order", [1, 2, 3])
def test_right_derivatives_pass_up_to_third_order(check_grads, jnp, double, order):
    assert check_grads(jnp.sin, (double(VALUES),), order) is None


@pytest.mark.parametrize(
    ("modes", "order", "found"),
    [
        (["fwd"], 2, {"F", "FF"}),
        (["rev"], 2, {"R", "RR"}),
        (["fwd", "rev"], 2, {"F", "R", "FF", "FR", "RF", "RR"}),
        (["rev"], 3, {"R", "RR", "RRR"}),
        ("rev", 1, {"R"}),
    ],
)
def test_modes_and_order_choose_the_compositions(
    check_grads, scaled_sin, double, modes, order, found
):
    with pytest.raises(AssertionError) as raised:
        check_grads(scaled_sin(1.1), (double(VALUES),), order, modes)

    assert set(raised.value.report.modes) == found


@pytest.mark.parametrize("modes", [["forward"], [], ["lin"], "reverse"])
def test_modes_that_do_not_exist_are_refused(check_grads, jnp, modes):
    with pytest.raises(ValueError, match="asks for no known mode"):
        check_grads(jnp.sin, (jnp.asarray(VALUES),), 1, modes)


def test_jax_passes_modes_that_do_not_exist(theirs, jnp, scaled_sin):
    theirs.check_grads(scaled_sin(-1.0), (jnp.asarray(VALUES),), 1, ["forward"])


@pytest.mark.parametrize("order", [0, -1])
def test_an_order_below_one_is_refused(check_grads, jnp, order):
    with pytest.raises(ValueError, match=f"order={order} asks for no derivative"):
        check_grads(jnp.sin, (jnp.asarray(VALUES),), order)


def test_the_error_of_check_grads_is_an_assertion_error_with_a_report(
    check_grads, scaled_sin, double
):
    with pytest.raises(AssertionError) as raised:
        check_grads(scaled_sin(-1.0), (double(VALUES),), 1)

    assert isinstance(raised.value, GradcheckError)
    assert raised.value.report.verdict is Verdict.FAIL
    assert str(raised.value).startswith("FAIL")


def test_check_grads_takes_numpy_arrays_and_python_floats(check_grads, jnp, scaled_sin):
    right, wrong = scaled_sin(1.0), scaled_sin(1.1)

    for args in itertools.permutations((VALUES.astype("float32"), 2.0)):
        check_grads(lambda a, b: right(a) * b, args, 1)
        with pytest.raises(AssertionError):
            check_grads(lambda a, b: wrong(a) * b, args, 1)
    with pytest.raises(AssertionError):
        check_grads(wrong, (np.float64(2.0),), 1)
    with pytest.raises(AssertionError):
        check_grads(lambda d: wrong(d["x"]), [{"x": VALUES}], 1)


def test_integers_are_constants_where_jax_raises(check_grads, theirs, jnp, scaled_sin):
    x, n = jnp.asarray(VALUES), jnp.arange(1, 4)

    check_grads(lambda x, n, k: jnp.sin(x) * n * k, (x, n, 3), 2)
    with pytest.raises(AssertionError):
        check_grads(lambda x, n: scaled_sin(1.1)(x) * n, (x, n), 1)
    with pytest.raises(TypeError, match="float0"):
        theirs.check_grads(lambda x, n: jnp.sin(x) * n, (x, n), 1)


def test_a_custom_vjp_by_default_stays_open_where_jax_raises(check_grads, theirs, jnp, with_vjp):
    x = jnp.asarray(VALUES)
    right = with_vjp(jnp.sin, lambda x, w: (w * jnp.cos(x),))

    with pytest.raises(AssertionError, match="INCONCLUSIVE") as raised:
        check_grads(right, (x,), 1)
    with pytest.raises(TypeError, match="custom_vjp"):
        theirs.check_grads(right, (x,), 1)

    assert raised.value.report.modes == {"F": Status.UNSUPPORTED, "R": Verdict.PASS}
    check_grads(right, (x,), 2, modes=["rev"])


# ---------------------------------------------------------------- numbers


@pytest.mark.parametrize("name", ["atol", "rtol"])
def test_atol_and_rtol_of_check_grads_bound_the_difference(check_grads, scaled_sin, double, name):
    x = double(VALUES)

    check_grads(scaled_sin(1.001), (x,), 1, **{name: 1e-2})
    with pytest.raises(AssertionError):
        check_grads(scaled_sin(1.001), (x,), 1, **{name: 1e-7})


def test_the_tolerance_that_is_left_out_is_that_of_jax(check_grads, jnp):
    def large(x):
        return 1e5 * jnp.sin(x) * x

    x = jnp.asarray(VALUES)

    check_grads(large, (x,), 1, atol=1e-2)
    with pytest.raises(AssertionError):
        check_grads(large, (x,), 1, atol=1e-2, rtol=0.0)


def test_tolerances_by_dtype_are_taken_as_jax_takes_them(check_grads, theirs, jnp, scaled_sin):
    x = jnp.asarray(VALUES)

    for check in (check_grads, theirs.check_grads):
        check(scaled_sin(1.01), (x,), 1, rtol={np.float32: 0.1}, atol={np.float64: 0.1})
    with pytest.raises(AssertionError):
        check_grads(scaled_sin(1.01), (x,), 1, rtol={np.float64: 0.1}, atol={np.float64: 0.1})


def test_eps_of_check_grads_is_the_absolute_step(check_grads, jax, double):
    seen = []

    def f(x):
        if not isinstance(x, jax.core.Tracer):
            seen.append(float(np.abs(np.asarray(x) - 0.5)))
        return x * x

    check_grads(f, (double(0.5),), 1, eps=2.0**-6)

    assert {0.0, 2.0**-6} == set(seen)


def test_an_eps_that_is_zero_is_refused(check_grads, jnp):
    with pytest.raises(ValueError, match="eps=0"):
        check_grads(jnp.sin, (jnp.asarray(VALUES),), 1, eps=0.0)


# ---------------------------------------------------------------- what JAX passes or fails


def test_a_zero_derivative_of_many_elements_fails_and_jax_passes_it(
    check_grads, theirs, jnp, scaled_sin
):
    x = jnp.linspace(-1.0, 1.0, 500)

    theirs.check_grads(scaled_sin(0.0), (x,), 1, modes=["fwd"])  # rtol times the size: anything
    for modes in (["fwd"], ["rev"], ["fwd", "rev"]):
        check_grads(scaled_sin(1.0), (x,), 1, modes=modes)
        with pytest.raises(AssertionError):
            check_grads(scaled_sin(0.0), (x,), 1, modes=modes)


def test_a_wrong_second_derivative_at_zero_fails_and_jax_passes_it(
    check_grads, theirs, jnp, with_jvp
):
    def squared_sin(factor):
        slope = with_jvp(lambda x: jnp.sin(2 * x), lambda x, v: 2 * factor * v * jnp.cos(2 * x))
        return with_jvp(lambda x: jnp.sin(x) ** 2, lambda x, v: v * slope(x))

    x = jnp.zeros(3)

    # the cotangent of JAX's second order is f(x), which is zero here
    theirs.check_grads(squared_sin(1.5), (x,), 2, modes=["rev"])
    check_grads(squared_sin(1.0), (x,), 2, modes=["rev"])
    with pytest.raises(AssertionError) as raised:
        check_grads(squared_sin(1.5), (x,), 2, modes=["rev"])

    assert raised.value.report.modes["R"] is not Verdict.FAIL
    assert raised.value.report.modes["RR"] is Verdict.FAIL


def test_one_wrong_entry_among_many_fails_and_jax_passes_it(check_grads, theirs, jnp, with_jvp):
    x = jnp.linspace(-1.0, 1.0, 300)
    wrong = with_jvp(jnp.sin, lambda x, v: (v * jnp.cos(x)).at[7].multiply(1.5))

    theirs.check_grads(wrong, (x,), 1, modes=["fwd"])  # rtol times the size is 0.6
    with pytest.raises(AssertionError, match=r"d out\[7\] / d inputs\[0\]\[7\]"):
        check_grads(wrong, (x,), 1, modes=["fwd"])


def test_nan_fails_and_jax_passes_it(check_grads, theirs, jnp):
    x = -jnp.ones(3)

    theirs.check_grads(jnp.sqrt, (x,), 1)  # NaN equals NaN
    with pytest.raises(AssertionError, match="NONFINITE"):
        check_grads(jnp.sqrt, (x,), 1)


def test_a_kink_is_called_one_and_jax_calls_it_wrong(check_grads, theirs, jnp):
    x = jnp.zeros(3)

    with pytest.raises(AssertionError, match="JVP tangent"):
        theirs.check_grads(jnp.abs, (x,), 1)
    check_grads(jnp.abs, (x,), 1)  # right on both sides of the kink


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_passes_and_jax_fails_it(check_grads, theirs, jnp, scaled_sin, dtype):
    x = jnp.asarray(VALUES, dtype)

    check_grads(scaled_sin(1.0), (x,), 1)
    with pytest.raises(AssertionError):
        check_grads(scaled_sin(-1.0), (x,), 1)
    with pytest.raises(AssertionError, match="JVP tangent"):  # a step of 1e-4 is rounded away
        theirs.check_grads(scaled_sin(1.0), (x,), 1)


def test_check_grads_of_float64_arrays_needs_no_64_bit_mode(check_grads, jax, scaled_sin, double):
    seen = set()

    def f(x):
        seen.add((str(x.dtype), bool(jax.config.jax_enable_x64)))
        return scaled_sin(1 + 1e-6)(x)

    with pytest.raises(AssertionError):
        check_grads(f, (double(VALUES),), 1)

    assert seen == {("float64", True)}
    assert not jax.config.jax_enable_x64


def test_the_seed_of_a_failure_is_in_its_message(check_grads, scaled_sin, double):
    with pytest.raises(AssertionError, match="seed=") as raised:
        check_grads(scaled_sin(-1.0), (double(VALUES),), 1)

    assert f"seed={raised.value.report.provenance.seed}" in str(raised.value)
