"""`adjudge_jax.check_grads`, `check_vjp` and `check_jvp` beside those of `jax.test_util`."""

import importlib
import itertools
from functools import partial

import numpy as np
import pytest

import adjudge
from adjudge import GradcheckError, Status, Verdict, examine

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


@pytest.mark.parametrize(("order", "modes"), [(2, ["fwd", "rev"]), (3, ["rev"])])
def test_right_derivatives_pass_up_to_third_order(check_grads, jnp, double, order, modes):
    assert check_grads(jnp.sin, (double(VALUES),), order, modes) is None


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
    assert str(raised.value).startswith("FAIL")
    assert f"seed={raised.value.report.provenance.seed}" in str(raised.value)


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


def test_check_grads_takes_numpy_arrays_and_python_floats(check_grads, jnp, scaled_sin):
    right, wrong = scaled_sin(1.0), scaled_sin(1.1)

    for args in itertools.permutations((VALUES.astype("float32"), 2.0)):
        with pytest.raises(AssertionError):
            check_grads(lambda a, b: wrong(a) * b, args, 1, ["fwd"])
    check_grads(lambda a, b: right(a) * b, args, 1)
    with pytest.raises(AssertionError):
        check_grads(wrong, (np.float64(2.0),), 1, ["fwd"])
    with pytest.raises(AssertionError):
        check_grads(lambda d: wrong(d["x"]), [{"x": VALUES}], 1, ["fwd"])


def test_integers_are_constants_where_jax_raises(check_grads, theirs, jnp, scaled_sin):
    x, n = jnp.asarray(VALUES), jnp.arange(1, 4)

    check_grads(lambda x, n, k: jnp.sin(x) * n * k, (x, n, 3), 2, modes=["rev"])
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


def test_the_tolerance_that_is_left_out_is_that_of_jax(check_grads, jnp, scaled_sin):
    x = jnp.asarray(VALUES)

    check_grads(scaled_sin(1.001), (x,), 1, atol=1e-6)
    with pytest.raises(AssertionError):
        check_grads(scaled_sin(1.001), (x,), 1, atol=1e-6, rtol=0.0)


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
    for modes in (["fwd"], ["rev"]):
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


@pytest.mark.parametrize("fill", [-np.inf, np.nan])
def test_outputs_behind_a_mask_are_left_out(check_grads, jnp, scaled_sin, double, fill):
    mask = np.array([False, True, False])

    def masked(f):
        return lambda x: jnp.where(mask, fill, f(x))

    check_grads(masked(jnp.sin), (double(VALUES),), 2, ["fwd", "rev"])
    for _ in range(2):
        with pytest.raises(AssertionError, match="FAIL"):
            check_grads(masked(scaled_sin(-1.0)), (double(VALUES),), 1)


def test_nan_at_an_infinite_input_stays_open(jnp):
    jax = importlib.import_module("jax")
    for x in ([-np.inf], [-np.inf, 1.0]):
        for seed in range(2):
            report = examine(jax.nn.mish, jnp.asarray(x), seed=seed)
            assert report.verdict is Verdict.INCONCLUSIVE, str(report)


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
        check_grads(scaled_sin(-1.0), (x,), 1, ["fwd"])
    with pytest.raises(AssertionError, match="JVP tangent"):  # a step of 1e-4 is rounded away
        theirs.check_grads(scaled_sin(1.0), (x,), 1, ["fwd"])


def test_check_grads_of_float64_arrays_needs_no_64_bit_mode(check_grads, jax, scaled_sin, double):
    seen = set()

    def f(x):
        seen.add((str(x.dtype), bool(jax.config.jax_enable_x64)))
        return scaled_sin(1 + 1e-6)(x)

    with pytest.raises(AssertionError):
        check_grads(f, (double(VALUES),), 1)

    assert seen == {("float64", True)}
    assert not jax.config.jax_enable_x64


# ---------------------------------------------------------------- rules handed over as functions


@pytest.fixture
def check_vjp():
    return importlib.import_module("adjudge_jax").check_vjp


@pytest.fixture
def check_jvp():
    return importlib.import_module("adjudge_jax").check_jvp


@pytest.fixture
def sin_vjp(jnp):
    """The vjp of `sin`, off by a factor, beside a value that is off by another."""

    def make(factor=1.0, value=1.0):
        def rule(x):
            return value * jnp.sin(x), lambda w: (factor * w * jnp.cos(x),)

        return rule

    return make


@pytest.fixture
def sin_jvp(jnp):
    def make(factor=1.0, value=1.0):
        def rule(primals, tangents):
            (x,), (v,) = primals, tangents
            return value * jnp.sin(x), factor * v * jnp.cos(x)

        return rule

    return make


@pytest.fixture
def pairs(check_vjp, check_jvp, sin_vjp, sin_jvp):
    """Both checks of rules, each with the rule of `sin`."""
    return (check_vjp, sin_vjp), (check_jvp, sin_jvp)


def test_a_right_rule_passes_and_a_wrong_one_fails(pairs, jnp, x):
    for check, rule in pairs:
        assert check(jnp.sin, rule(), (x,)) is None
        check(jnp.sin, rule(value=1 + 1e-15), (x,))  # by rounding
        for factor in (-1.0, 2.0, 0.0, 1 + 1e-6):
            with pytest.raises(AssertionError):
                check(jnp.sin, rule(factor), (x,))


def test_the_value_beside_the_derivative_is_compared(pairs, jnp, x):
    for check, rule in pairs:
        with pytest.raises(GradcheckError) as raised:
            check(jnp.sin, rule(value=1.001), (x,))
        assert {f.status for f in raised.value.report.findings} == {Status.INCONSISTENT}
    assert "f_jvp  [" in str(raised.value)


def test_a_tangent_of_another_precision_is_found(check_jvp, jnp, x):
    def narrowed(primals, tangents):
        return jnp.sin(primals[0]), (tangents[0] * jnp.cos(primals[0])).astype("float32")

    with pytest.raises(GradcheckError) as raised:
        check_jvp(jnp.sin, narrowed, (x,))

    assert Status.WRONG_DTYPE in {f.status for f in raised.value.report.findings}
    assert "f_jvp returns is float32, the value beside it float64" in str(raised.value)


def test_the_message_is_a_note_and_the_function_is_named(check_vjp, check_jvp, jnp, x):
    def cube(x):
        return x**3

    with pytest.raises(GradcheckError) as by_vjp:
        check_vjp(cube, lambda x: (x**3, lambda w: (w * x,)), (x,), err_msg="third power")
    with pytest.raises(GradcheckError) as by_jvp:
        check_jvp(cube, lambda x, v: (x[0] ** 3, v[0]), (x,), err_msg="third power")

    for raised in (by_vjp, by_jvp):
        assert raised.value.__notes__ == ["third power"]
        assert cube.__qualname__ in str(raised.value).splitlines()[0]


def test_the_numbers_of_the_rules_fix_step_and_tolerance(pairs, jnp, x):
    for check, rule in pairs:
        for name in ("atol", "rtol"):
            check(jnp.sin, rule(1.001), (x,), **{name: 1e-2})
            with pytest.raises(AssertionError):
                check(jnp.sin, rule(1.001), (x,), **{name: 1e-7})
        for eps in (1e-9, 1e-4, 0.5):
            check(jnp.sin, rule(), (x,), eps=eps, rtol=1e-6)
            with pytest.raises(AssertionError):
                check(jnp.sin, rule(1.01), (x,), eps=eps)


# ---------------------------------------------------------------- structures


def test_trees_go_into_rules_and_out(check_vjp, check_jvp, jax, x):
    def f(d):
        return {"product": d["a"] * d["b"], "rest": (d["a"], [d["b"]])}

    args = ({"a": x, "b": x[::-1]},)

    check_vjp(f, partial(jax.vjp, f), args)
    check_jvp(f, partial(jax.jvp, f), args)
    with pytest.raises(AssertionError):
        check_vjp(f, partial(jax.vjp, lambda d: {**f(d), "product": 2 * d["a"] * d["b"]}), args)
    with pytest.raises(AssertionError):
        check_jvp(f, partial(jax.jvp, lambda d: {**f(d), "product": 2 * d["a"] * d["b"]}), args)


def test_integers_in_and_out_take_no_part(check_vjp, check_jvp, jax, jnp, x):
    def f(x, n, k):
        return x * n * k, jnp.arange(3), None

    args = (x, jnp.arange(3), 2)

    check_vjp(f, partial(jax.vjp, f), args)
    check_jvp(f, partial(jax.jvp, f), args)
    with pytest.raises(AssertionError):
        check_vjp(f, partial(jax.vjp, lambda x, n, k: f(2 * x, n, k)), args)
    with pytest.raises(AssertionError):
        check_jvp(f, partial(jax.jvp, lambda x, n, k: f(2 * x, n, k)), args)


def test_rules_of_numpy_arrays_and_python_floats_are_checked(check_vjp, check_jvp, jax):
    def f(a, b):
        return a * b

    args = (2.0, np.array([1.0, 3.0], "float32"))

    check_vjp(f, partial(jax.vjp, f), args)
    check_jvp(f, partial(jax.jvp, f), args)
    with pytest.raises(AssertionError):
        check_vjp(f, lambda a, b: (a * b, lambda w: (2 * (w * b).sum(), w * a)), args)
    with pytest.raises(AssertionError):
        check_jvp(f, lambda p, v: (p[0] * p[1], p[0] * v[1]), args)


def test_complex_rules_are_transposes_as_jax_has_them(check_vjp, check_jvp, jax, jnp, double):
    z = double(np.array([1 + 2j, -0.5 + 0.3j]))

    def f(z):
        return z * jnp.conj(z) * z

    def conjugated(z):
        y, transpose = jax.vjp(f, z)
        return y, lambda w: tuple(jnp.conj(g) for g in transpose(jnp.conj(w)))

    check_vjp(f, partial(jax.vjp, f), (z,))
    check_jvp(f, partial(jax.jvp, f), (z,))
    with pytest.raises(AssertionError):
        check_vjp(f, conjugated, (z,))


def test_a_compiled_function_and_its_uncompiled_rule_agree(check_vjp, check_jvp, jax, jnp, x):
    @jax.jit
    def f(x):
        return jax.nn.softmax(jnp.sin(x) * 3) / 7

    check_vjp(f, partial(jax.vjp, f.__wrapped__), (x,))
    check_jvp(f, partial(jax.jvp, f.__wrapped__), (x,))


def test_a_tuple_that_is_one_argument_is_told_from_two_arguments(check_vjp, jax, x):
    pair = (x, x[::-1])

    def f(pair):
        return pair[0] * pair[1]

    check_vjp(f, partial(jax.vjp, f), (pair,))
    with pytest.raises(GradcheckError) as raised:
        check_vjp(f, lambda p: (f(p), lambda w: ((w * p[1], 2 * w * p[0]),)), (pair,))

    assert {entry.wrt.partition("[0][")[2][:1] for entry in raised.value.report.entries} == {"1"}
    assert raised.value.report.modes == {"R": Verdict.FAIL}


@pytest.mark.parametrize("transform", ["jit", "vmap", "grad"])
def test_a_check_inside_of_a_transformed_function_is_refused_in_words(jax, jnp, transform):
    def checked(x):
        adjudge.gradcheck(jnp.sin, x)
        return x.sum()

    with pytest.raises(jax.errors.TracerArrayConversionError) as raised:
        getattr(jax, transform)(checked)(jnp.ones((2, 3)))
    notes = " ".join(raised.value.__notes__)
    assert "check outside of jax.jit, jax.grad and jax.vmap" in notes
    assert adjudge.gradcheck(jax.jit(jnp.sin), jnp.asarray([0.3, 0.7]))


@pytest.mark.parametrize(
    ("name", "rule", "found"),
    [
        ("check_vjp", lambda x: x, "f_vjp returned ArrayImpl of shape (3,)"),
        ("check_vjp", lambda x: (x, x), "beside the value, which cannot be called"),
        ("check_vjp", lambda x: (x, lambda w: w), "the transpose of f_vjp returned ArrayImpl"),
        ("check_jvp", lambda x, v: v[0], "f_jvp returned ArrayImpl of shape (3,)"),
    ],
)
def test_a_rule_of_another_form_is_refused(jnp, name, rule, found):
    check = getattr(importlib.import_module("adjudge_jax"), name)

    with pytest.raises(adjudge.InputError) as caught:
        check(lambda x: x, rule, (jnp.asarray(VALUES),))

    assert found in caught.value.found
    assert caught.value.remedy.startswith("return ")
