"""Infinities and NaN: at x, near x, and in derivatives."""

import numpy as np
import pytest

from adjudge import ByHand, Status, Verdict, examine
from adjudge.findings import Meaning, NotFinite


def quiet(function):
    def call(*args):
        with np.errstate(all="ignore"):
            return function(*args)

    return call


LOG = ByHand(quiet(np.log), vjp=quiet(lambda x, w: w / x))


def statuses(report):
    return [finding.status for finding in report.findings]


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_an_output_that_is_infinite_at_x_is_named(mode):
    report = examine(LOG, np.asarray([1.0, 0.0, 2.0]), mode=mode)

    finding = report.findings[0]
    assert Status.NONFINITE is finding.status
    assert finding.entry == "out[1]"
    assert NotFinite(-np.inf, 1, 3, left_out=True, pole=True) == finding.detail
    assert "out[1] is -inf at x: 1 of 3 output entries" in str(report)
    assert not report


def test_an_input_that_is_nan_decides_nothing():
    rule = ByHand(quiet(np.arctan), vjp=quiet(lambda x, w: w / (1 + x**2)))

    report = examine(rule, np.asarray([1.0, 2.0, np.nan]))

    assert report.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_an_infinite_input_that_moves_nothing_may_have_a_gradient_of_zero_only(value):
    x = np.asarray([1.0, 2.0, value])

    right, wrong = (
        examine(
            ByHand(quiet(np.arctan), vjp=quiet(lambda x, w, c=c: w * (1 / (1 + x**2) + c))),
            x,
            mode="full",
        )
        for c in (0, 1)
    )

    assert right.verdict is Verdict.PASS
    assert wrong.verdict is Verdict.FAIL


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_nan_never_passes(mode):
    report = examine(
        ByHand(lambda x: x * np.nan, vjp=lambda x, w: w * np.nan), np.ones(2), mode=mode
    )

    assert not report


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_a_nan_gradient_of_a_finite_function_fails(mode):
    def vjp(x, w):
        g = w * np.cos(x)
        g[1] = np.nan
        return g

    report = examine(ByHand(np.sin, vjp=vjp), np.ones(3), mode=mode)

    assert report.verdict is Verdict.FAIL


def test_a_function_that_is_not_finite_near_x_is_inconclusive_and_names_the_entry():
    rule = ByHand(quiet(lambda x: np.where((x == 0) | (x > 0.5), x, np.nan)), vjp=lambda x, w: w)

    report = examine(rule, np.asarray([1.0, 0.0]), mode="full")

    assert report.verdict is Verdict.INCONCLUSIVE
    assert Status.NONFINITE in statuses(report)
    assert report.findings[0].entry == "d out[1] / d inputs[0][1]"
    assert Meaning.NOT_FINITE is report.findings[0].detail.meaning


def test_at_the_edge_of_the_domain_differences_are_one_sided():
    x = np.asarray([1.0, 0.0])
    right, wrong = (
        ByHand(quiet(lambda x: np.where(x < 0, np.nan, x)), vjp=lambda x, w, c=c: c * w)
        for c in (1.0, 1.0001)
    )

    reports = [examine(rule, x, mode="full") for rule in (right, wrong)]

    assert [Verdict.PASS, Verdict.FAIL] == [report.verdict for report in reports]


def test_the_step_retreats_from_the_edge_of_the_domain():
    x = np.asarray([1.0, 1e-6])
    rule = ByHand(quiet(lambda x: np.where(x <= 0, np.nan, x * x)), vjp=lambda x, w: 2 * w * x)

    report = examine(rule, x, mode="full")

    assert Status.NONFINITE not in statuses(report)


def test_entries_of_very_different_size_each_get_a_step_of_their_own():
    x = np.asarray([1.0, 1e-9, 1e9])

    report = examine(LOG, x, mode="full")

    assert report.verdict is Verdict.PASS


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_equal_nan_lets_agreeing_nan_pass(mode):
    rule = ByHand(quiet(np.sqrt), vjp=quiet(lambda x, w: w / (2 * np.sqrt(x))))
    x = np.asarray(-1.0)

    without = examine(rule, x, mode=mode)
    passed = examine(rule, x, mode=mode, equal_nan=True)

    assert without.verdict is not Verdict.PASS
    assert passed.verdict is Verdict.PASS


def test_equal_nan_does_not_excuse_a_wrong_finite_entry():
    rule = ByHand(quiet(np.sqrt), vjp=quiet(lambda x, w: w / np.sqrt(x)))

    report = examine(rule, np.asarray([1.0, -1.0, 4.0]), mode="full", equal_nan=True)

    assert report.verdict is Verdict.FAIL


def test_equal_nan_does_not_excuse_nan_where_the_function_is_finite():
    rule = ByHand(np.sin, vjp=lambda x, w: w * np.nan)

    report = examine(rule, np.ones(2), mode="full", equal_nan=True)

    assert report.verdict is Verdict.FAIL


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Verdict.PASS), (1.01, Verdict.FAIL)])
def test_a_function_that_raises_far_from_x_is_judged_near_it(factor, verdict):
    def f(x):
        if np.any(np.abs(x - 1) > 0.01):
            raise ArithmeticError("outside of the domain")
        return x**3

    rule = ByHand(f, vjp=lambda x, w: factor * w * 3 * x**2)

    report = examine(rule, np.ones(3), seed=0)

    assert report.verdict is verdict
