"""The forms that a hand-written derivative may take, and what is wrong with the others."""

import re

import numpy as np
import pytest
from scenarios import seeds

from adjudge import ByHand, InputError, Status, Verdict, examine, gradcheck, gradgradcheck
from adjudge.findings import Attribute, Rule, WrongAttribute

X = np.asarray([0.3, -0.8])


def linear(A, x):
    return A @ x


def test_a_pullback_saves_what_its_backward_needs():
    def pullback(x):
        y = np.exp(x)
        return y, lambda w: w * y

    report = examine(ByHand(pullback=pullback), X)

    assert report.verdict is Verdict.PASS


def test_a_pullback_beside_its_forward_is_compared_with_it():
    rule = ByHand(np.sin, pullback=lambda x: (np.cos(x), lambda w: w * np.cos(x)))

    report = examine(rule, X)

    assert report.verdict is Verdict.FAIL
    assert Status.INCONSISTENT in [finding.status for finding in report.findings]
    assert Rule.VJP is report.findings[0].detail.rule
    assert "the value under reverse mode is not f(x)" in str(report)


def test_a_wrong_pullback_fails():
    report = examine(ByHand(pullback=lambda x: (np.exp(x), lambda w: w)), X)

    assert report.verdict is Verdict.FAIL


def test_a_pullback_of_several_inputs_returns_a_tuple():
    rule = ByHand(pullback=lambda a, b: (a * b, lambda w: (w * b, w * a)))

    report = examine(rule, (X, X + 1))

    assert report.verdict is Verdict.PASS


@pytest.mark.parametrize("gradient", [lambda g: g, lambda g: (g,)])
def test_the_gradient_of_one_input_may_stand_alone_or_in_a_tuple(gradient):
    rule = ByHand(np.sin, vjp=lambda x, w: gradient(w * np.cos(x)))

    report = examine(rule, X)

    assert report.verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({}, "neither forward= nor pullback="),
        ({"forward": np.sin}, "no derivative of it"),
        ({"forward": np.sin, "vjp": np.cos, "pullback": np.cos}, "both vjp= and pullback="),
        ({"forward": np.sin, "jvp": np.cos, "double_vjp": np.cos}, "double_vjp= without a plain"),
    ],
)
def test_a_rule_without_or_with_too_many_derivatives_is_refused(arguments, found):
    with pytest.raises(InputError) as caught:
        ByHand(**arguments)

    assert found in caught.value.found
    assert caught.value.remedy


def test_a_rule_is_called_like_its_function():
    rule = ByHand(pullback=lambda x, scale=1: (scale * x, lambda w: scale * w))

    y = rule(X, scale=3)

    assert np.array_equal(3 * X, y)
    assert repr(ByHand(np.sin, vjp=np.cos)) == "ByHand(sin)"


@pytest.mark.parametrize("count", [1, 3])
def test_a_wrong_number_of_gradients_is_refused(count):
    rule = ByHand(lambda a, b: a * b, vjp=lambda a, b, w: (w,) * count)

    with pytest.raises(InputError) as caught:
        gradcheck(rule, (X, X))

    assert (
        f"returned {count} gradient{'s' * (count != 1)} for 2 positional inputs"
        in caught.value.found
    )
    assert "one gradient per positional input" in caught.value.remedy


def test_one_gradient_for_two_inputs_is_refused_though_it_is_no_tuple():
    rule = ByHand(lambda a, b: a * b, vjp=lambda a, b, w: w * b)

    with pytest.raises(InputError, match="1 gradient for 2 positional inputs"):
        gradcheck(rule, (X, X))


def test_a_gradient_of_the_wrong_shape_is_refused_with_both_shapes():
    rule = ByHand(linear, vjp=lambda A, x, w: (np.outer(x, w), A.T @ w))

    with pytest.raises(InputError) as caught:
        gradcheck(rule, (np.ones((3, 2)), X))

    assert "vjp of ByHand(linear) returned shape (2, 3)" in caught.value.found
    assert "which has shape (3, 2)" in caught.value.found


def test_wrong_shapes_are_told_by_the_names_of_inputs_and_outputs():
    def rule(**rules):
        return ByHand(lambda x, p: {"y": x * p["w"]}, **rules)

    inputs = (X, {"w": X})
    first = rule(vjp=lambda x, p, w: (w["y"] * p["w"], {"w": np.ones((1, 1))}))
    forward = rule(jvp=lambda x, p, v, q: {"y": np.ones((1, 1))})
    gradient = ByHand(lambda x, w: 2 * x * w, vjp=lambda x, w, g: (np.ones((1, 1)), 2 * x * g))
    second = ByHand(lambda x: x**2, vjp=gradient)

    with pytest.raises(InputError, match=r"\(1, 1\) for inputs\[1\]\['w'\], which has shape"):
        gradcheck(first, inputs)
    with pytest.raises(InputError, match=r"\(1, 1\) for out\['y'\], which has shape"):
        examine(forward, inputs, modes=["F"])
    with pytest.raises(InputError, match=r"\(1, 1\) for inputs\[0\], which has shape"):
        gradgradcheck(second, X)


def test_a_gradient_that_is_no_array_is_refused():
    rule = ByHand(np.sin, vjp=lambda x, w: "gradient")

    with pytest.raises(InputError, match=r"returned a str for inputs\[0\], not an array of numpy"):
        gradcheck(rule, X)


def test_a_gradient_of_another_dtype_is_a_finding():
    x = X.astype(np.float32)
    rule = ByHand(np.sin, vjp=lambda x, w: (w * np.cos(x)).astype(np.float64))

    report = examine(rule, x)

    assert report.verdict is Verdict.FAIL
    expected = WrongAttribute(Rule.VJP, Attribute.DTYPE, "float64", "float32")
    assert expected == report.findings[0].detail
    assert "has dtype float64, the input has dtype float32" in str(report)


def test_the_vjp_gets_the_keyword_arguments_too():
    rule = ByHand(lambda x, *, k: x**k, vjp=lambda x, w, *, k: w * k * x ** (k - 1))

    report = examine(rule, X, kwargs={"k": 3})

    assert report.verdict is Verdict.PASS


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("given", [("jvp",), ("vjp", "jvp"), ("pullback", "jvp")])
def test_every_derivative_that_is_given_is_checked(given, seed):
    def rules(factor):
        return {
            "vjp": lambda x, w: w * np.cos(x),
            "pullback": lambda x: (np.sin(x), lambda w: w * np.cos(x)),
            "jvp": lambda x, v: factor * v * np.cos(x),
        }

    def report(factor):
        rule = ByHand(np.sin, **{name: rules(factor)[name] for name in given})
        return examine(rule, X, seed=seed)

    assert report(1).verdict is Verdict.PASS
    assert set(report(1).modes) == {"R", "F"} - ({"R"} if given == ("jvp",) else set())
    wrong = report(1.001)
    assert wrong.modes["F"] is Verdict.FAIL
    assert wrong.modes.get("R") is not Verdict.FAIL
    only = ByHand(np.sin, vjp=rules(1)["vjp"], jvp=rules(1.001)["jvp"])
    assert examine(only, X, seed=seed, modes=["R"]).verdict is Verdict.PASS


@pytest.mark.parametrize("asked", [{}, {"order": 1}, {"modes": ["R"]}])
def test_a_compiled_way_that_the_engine_lacks_is_unsupported_beside_what_it_has(asked):
    right = ByHand(np.sin, vjp=lambda x, w: w * np.cos(x), jvp=lambda x, v: v * np.cos(x))
    wrong = ByHand(np.sin, vjp=lambda x, w: w * np.sin(x))
    x = np.asarray([0.3, -1.1])

    report = examine(right, x, compile=True, seed=1, **asked)
    assert report.verdict is Verdict.INCONCLUSIVE
    assert {finding.status for finding in report.findings} == {Status.UNSUPPORTED}
    assert report.counts["comparisons"] > 0  # the usual way was judged
    assert examine(wrong, x, compile=True, seed=1, **asked).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("given", "form"),
    [({"vjp": 3}, "vjp(x, w)"), ({"jvp": 3}, "jvp(x, v)"), ({"grad": 3}, "grad(x)")],
)
def test_what_is_no_function_is_told_how_it_will_be_called(given, form):
    with pytest.raises(InputError, match=f"give a function: {re.escape(form)}$"):
        ByHand(np.sin, **given)


def sine(factor):
    return ByHand(
        np.sin,
        vjp=lambda x, w: w * np.cos(x),
        double_vjp=lambda x, w, u: (-factor * u * w * np.sin(x), u * np.cos(x)),
    )


def test_a_second_derivative_that_was_not_asked_for_is_named():
    report = examine(sine(1.01), np.array([0.3, 1.2]))

    assert report
    assert "not checked, since no second derivative is asked for: double_vjp=" in str(report)
