"""What is empty passes with a note that says so, and what can be compared is compared."""

import numpy as np
import pytest

from adjudge import ByHand, InputError, Status, Verdict, examine, gradcheck

RULE = ByHand(np.sin, vjp=lambda x, w: w * np.cos(x))


@pytest.mark.parametrize("mode", ["full", "projected", "auto"])
@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0, 4)])
def test_an_empty_input_alone_passes_and_is_named(mode, shape):
    report = gradcheck(RULE, np.zeros(shape), mode=mode)

    assert report.verdict is Verdict.PASS
    assert {"R": Verdict.PASS} == report.modes
    assert report.counts["comparisons"] == 0
    assert "no derivative to compare" in report.headline
    (note,) = report.findings
    assert note.note
    assert f"nothing was compared: no entries in inputs[0] {shape}" in str(report)


def test_an_empty_input_of_low_precision_passes_as_well():
    rule = ByHand(np.sin, vjp=lambda x, w: w * np.cos(x), jvp=lambda x, v: v * np.cos(x))

    report = examine(rule, np.zeros((0, 3), np.float32))

    assert {"R": Verdict.PASS, "F": Verdict.PASS} == report.modes
    assert report.counts["comparisons"] == 0


def test_a_gradient_of_another_shape_than_its_empty_input_is_refused():
    rule = ByHand(np.sin, vjp=lambda x, w: np.zeros((0, 2)))

    with pytest.raises(InputError, match=r"returned shape \(0, 2\)"):
        examine(rule, np.zeros((0, 3)))


def test_a_second_run_at_an_empty_input_that_differs_fails():
    numbers = iter(np.random.default_rng(0).normal, None)
    rule = ByHand(lambda x: x.sum() + next(numbers), vjp=lambda x, w: w * np.ones_like(x))

    report = examine(rule, np.zeros(0))

    assert report.verdict is Verdict.FAIL
    assert Status.NONDETERMINISTIC in {finding.status for finding in report.findings}


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_a_value_of_an_empty_input_that_is_not_finite_has_no_derivative_either(value):
    """As the mean of no numbers, and the logarithm of their sum."""
    rule = ByHand(
        lambda x: x.sum() + value,
        vjp=ByHand(lambda x, w: w * np.ones_like(x), vjp=lambda x, w, u: (0 * x, u.sum())),
        jvp=lambda x, v: v.sum() + np.nan,
    )

    for report in (gradcheck(rule, np.zeros(0)), examine(rule, np.zeros(0), modes=["F", "RR"])):
        assert report.verdict is Verdict.PASS, str(report)
        assert "nothing was compared: no entries in inputs[0] (0,)" in str(report)


def test_an_empty_output_beside_one_that_is_not_finite_is_no_pass():
    rule = ByHand(lambda x: (np.sum(x) - np.inf, x[:0]), vjp=lambda x, w: 0 * x)

    assert examine(rule, np.ones(2)).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_an_empty_input_beside_another_takes_no_part(mode):
    rule = ByHand(lambda a, b: a * 2, vjp=lambda a, b, w: (2 * w, 0 * b))
    wrong = ByHand(lambda a, b: a * 2, vjp=lambda a, b, w: (3 * w, 0 * b))

    reports = [examine(r, (np.ones(2), np.zeros((0, 3))), mode=mode) for r in (rule, wrong)]

    assert [Verdict.PASS, Verdict.FAIL] == [report.verdict for report in reports]
    assert all(report.counts["comparisons"] > 0 for report in reports)


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_an_empty_output_alone_passes_and_is_named(mode):
    rule = ByHand(lambda x: x[:0] * 1.0, vjp=lambda x, w: np.zeros_like(x))

    report = examine(rule, np.ones(3), mode=mode)

    assert report.verdict is Verdict.PASS
    assert report.counts["comparisons"] == 0
    assert "nothing was compared: no entries in out (0,)" in str(report)


def test_an_empty_output_beside_another_counts_for_nothing():
    rule = ByHand(lambda x: (x * 2, x[:0]), vjp=lambda x, w: 2 * w[0])

    report = examine(rule, np.ones(3), mode="projected")

    assert report.verdict is Verdict.PASS
    assert report.counts["comparisons"] == 1


def test_a_sum_over_an_empty_input_passes():
    rule = ByHand(lambda x: x.sum(), vjp=lambda x, w: w * np.ones_like(x))

    report = examine(rule, np.zeros((0,)))

    assert report.verdict is Verdict.PASS
    assert report.counts["comparisons"] == 0


@pytest.mark.parametrize("flags", [{}, {"check_forward_ad": True}])
def test_what_is_unsupported_does_not_pass_with_zero_comparisons(flags):
    rule = ByHand(np.sin, jvp=lambda x, v: v * np.cos(x))

    report = examine(rule, np.ones(2), modes=["R"], **flags)

    assert report.counts["comparisons"] == 0
    assert report.verdict is Verdict.INCONCLUSIVE


def test_empty_arrays_run_on_the_strictest_namespace(strictest):
    rule = ByHand(strictest.sin, vjp=lambda x, w: w * strictest.cos(x))

    report = examine(rule, strictest.zeros((0, 2)))

    assert report.verdict is Verdict.PASS
