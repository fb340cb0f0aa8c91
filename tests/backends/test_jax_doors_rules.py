"""`adjudge_jax.check_vjp` and `check_jvp`: rules that are handed over as functions."""

import importlib
from functools import partial

import numpy as np
import pytest

from adjudge import GradcheckError, Status, Verdict

pytestmark = pytest.mark.backend("jax")


@pytest.fixture
def check_vjp():
    return importlib.import_module("adjudge_jax").check_vjp


@pytest.fixture
def check_jvp():
    return importlib.import_module("adjudge_jax").check_jvp


@pytest.fixture
def x(double):
    return double(np.array([0.5, -1.5, 2.0]))


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


def test_a_right_vjp_passes_and_a_wrong_one_fails(check_vjp, jnp, sin_vjp, x):
    assert check_vjp(jnp.sin, sin_vjp(), (x,)) is None
    for factor in (-1.0, 2.0, 0.0, 1 + 1e-6):
        with pytest.raises(AssertionError):
            check_vjp(jnp.sin, sin_vjp(factor), (x,))


def test_a_right_jvp_passes_and_a_wrong_one_fails(check_jvp, jnp, sin_jvp, x):
    assert check_jvp(jnp.sin, sin_jvp(), (x,)) is None
    for factor in (-1.0, 2.0, 0.0, 1 + 1e-6):
        with pytest.raises(AssertionError):
            check_jvp(jnp.sin, sin_jvp(factor), (x,))


def test_the_value_beside_the_derivative_is_compared(
    check_vjp, check_jvp, jnp, sin_vjp, sin_jvp, x
):
    with pytest.raises(GradcheckError) as by_vjp:
        check_vjp(jnp.sin, sin_vjp(value=1.001), (x,))
    with pytest.raises(GradcheckError) as by_jvp:
        check_jvp(jnp.sin, sin_jvp(value=1.001), (x,))

    for raised in (by_vjp, by_jvp):
        assert {f.status for f in raised.value.report.findings} == {Status.INCONSISTENT}
    assert "f_jvp  [" in str(by_jvp.value)


def test_a_value_of_a_rule_that_differs_by_rounding_passes(
    check_vjp, check_jvp, jnp, sin_vjp, sin_jvp, x
):
    check_vjp(jnp.sin, sin_vjp(value=1 + 1e-15), (x,))
    check_jvp(jnp.sin, sin_jvp(value=1 + 1e-15), (x,))


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


@pytest.mark.parametrize("name", ["atol", "rtol"])
def test_atol_and_rtol_of_the_rules_bound_the_difference(
    check_vjp, check_jvp, jnp, sin_vjp, sin_jvp, x, name
):
    for check, rule in ((check_vjp, sin_vjp), (check_jvp, sin_jvp)):
        check(jnp.sin, rule(1.001), (x,), **{name: 1e-2})
        with pytest.raises(AssertionError):
            check(jnp.sin, rule(1.001), (x,), **{name: 1e-7})


def test_eps_of_the_rules_is_the_absolute_step(check_vjp, check_jvp, jnp, sin_vjp, sin_jvp, x):
    for check, rule in ((check_vjp, sin_vjp), (check_jvp, sin_jvp)):
        check(jnp.sin, rule(), (x,), eps=1e-4)
        with pytest.raises(AssertionError):
            check(jnp.sin, rule(), (x,), eps=0.5, rtol=1e-6)


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
