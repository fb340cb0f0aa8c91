"""Kinks and jumps: a value between the one-sided slopes is no mismatch, one outside is."""

import numpy as np
import pytest

from adjudge import ByHand, Status, Verdict, examine

X = np.asarray([1.0, 0.0, -2.0])


def absolute(at_zero):
    return ByHand(np.abs, vjp=lambda x, w: w * np.where(x == 0, at_zero, np.sign(x)))


def relu(at_zero):
    return ByHand(lambda x: np.maximum(x, 0), vjp=lambda x, w: w * np.where(x == 0, at_zero, x > 0))


@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("at_zero", [-1.0, -0.3, 0.0, 0.5, 1.0])
def test_a_subgradient_at_a_kink_does_not_fail(mode, at_zero):
    report = examine(absolute(at_zero), X, mode=mode)

    assert report.verdict is not Verdict.FAIL
    assert report.verdict is (Verdict.PASS if at_zero == 0 else Verdict.INCONCLUSIVE)
    assert {finding.status for finding in report.findings} <= {Status.NONSMOOTH}


@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("at_zero", [5.0, -1.2, 1.01])
def test_a_value_outside_the_slopes_of_a_kink_fails(mode, at_zero):
    report = examine(absolute(at_zero), X, mode=mode)

    assert report.verdict is Verdict.FAIL


def test_a_kink_states_both_slopes():
    report = examine(absolute(1.0), X, mode="full")

    finding = report.findings[0]
    assert finding.entry == "d out[1] / d inputs[0][1]"
    assert "slopes      -1 left, 1 right" in finding.text
    assert "move x off the kink" in finding.text


@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize(
    ("at_zero", "verdict"),
    [
        (0.0, Verdict.INCONCLUSIVE),
        (1.0, Verdict.INCONCLUSIVE),
        (0.5, Verdict.PASS),
        (-0.1, Verdict.FAIL),
        (1.1, Verdict.FAIL),
    ],
)
def test_relu_at_zero(mode, at_zero, verdict):
    report = examine(relu(at_zero), X, mode=mode)

    assert verdict is report.verdict


def test_the_slopes_of_a_concave_kink_stand_on_their_own_sides():
    rule = ByHand(lambda x: -np.abs(x), vjp=lambda x, w: w * np.where(x == 0, 1, -np.sign(x)))

    report = examine(rule, X, mode="full")

    assert "slopes       1 left, -1 right" in report.findings[0].text


def test_a_projection_over_many_kinks_states_the_bounds_of_its_slopes():
    x = np.concatenate([np.zeros(100), np.linspace(0.5, 2, 100)])

    report = examine(relu(0.0), x, mode="projected", seed=0)

    assert [Status.NONSMOOTH] == [finding.status for finding in report.findings]
    assert " least, " in report.findings[0].text


def test_a_kink_does_not_hide_a_wrong_entry_elsewhere():
    rule = ByHand(np.abs, vjp=lambda x, w: w * np.asarray([1.0, 1.0, -2.0]))

    report = examine(rule, X, mode="full")

    assert report.verdict is Verdict.FAIL
    assert {Status.NONSMOOTH, Status.MISMATCH} == {f.status for f in report.findings}


def test_a_wrong_gradient_at_a_minimum_is_a_mismatch_and_not_spurious():
    rule = ByHand(lambda x: x**2, vjp=lambda x, w: 5 * w)

    report = examine(rule, np.asarray([0.0]))

    assert [Status.MISMATCH] == [finding.status for finding in report.findings]


def test_a_kink_in_forward_mode_is_nonsmooth_too():
    rule = ByHand(np.abs, jvp=lambda x, v: v * np.where(x == 0, 1.0, np.sign(x)))
    options = {"check_forward_ad": True, "check_backward_ad": False}

    reports = [examine(rule, X, mode=mode, **options) for mode in ("full", "projected")]

    assert [Verdict.INCONCLUSIVE] * 2 == [report.verdict for report in reports]


def test_a_smooth_function_with_a_strong_curvature_is_no_kink():
    rule = ByHand(lambda x: 1e4 * x**2, vjp=lambda x, w: 2e4 * w * x)

    report = examine(rule, np.asarray([1e-3, 0.0, 2.0]), mode="full")

    assert report.verdict is Verdict.PASS


def test_a_jump_never_passes_with_a_gradient_of_one():
    rule = ByHand(lambda x: np.where(x >= 0, x + 1.0, x), vjp=lambda x, w: w)

    report = examine(rule, np.asarray([0.0]))

    assert report.verdict is not Verdict.PASS


def test_a_staircase_with_its_zero_gradient_passes():
    rule = ByHand(np.round, vjp=lambda x, w: 0 * w)

    report = examine(rule, np.asarray([0.3, 1.2]))

    assert report.verdict is Verdict.PASS


def test_a_straight_through_gradient_of_a_staircase_fails():
    rule = ByHand(np.round, vjp=lambda x, w: w)

    report = examine(rule, np.asarray([0.3, 1.2]))

    assert report.verdict is Verdict.FAIL
