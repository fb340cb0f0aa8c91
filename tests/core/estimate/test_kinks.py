"""Kinks and jumps: a value between the one-sided slopes is no mismatch, one outside is."""

import numpy as np
import pytest
from scenarios import over_seeds, seeds

from adjudge import ByHand, Status, Verdict, examine, gradgradcheck
from adjudge.estimate.kinks import Slopes
from adjudge.findings import Meaning
from adjudge.report import text_of

X = np.asarray([1.0, 0.0, -2.0])


def absolute(at_zero):
    return ByHand(np.abs, vjp=lambda x, w: w * np.where(x == 0, at_zero, np.sign(x)))


def relu(at_zero):
    return ByHand(lambda x: np.maximum(x, 0), vjp=lambda x, w: w * np.where(x == 0, at_zero, x > 0))


@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("at_zero", [-1.0, -0.3, 0.0, 0.5, 1.0])
def test_a_subgradient_at_a_kink_does_not_fail(mode, at_zero):
    report = examine(absolute(at_zero), X, mode=mode)

    assert report.verdict is Verdict.PASS
    assert {finding.status for finding in report.findings} == {Status.NONSMOOTH}


def halves(x):
    """The gradient of the largest entry, in which equal ones share alike."""
    tied = x == x.max()
    return tied / tied.sum()


SILENT = {
    "largest of two": (np.max, halves, [1.0, 1.0, 0.4]),
    "magnitude": (np.abs, np.sign, [0.0, 0.0]),
    "magnitudes among others": (np.abs, np.sign, [0.0, 1.0, 0.0, -2.0, 0.3, 0.0]),
    "hat": (lambda x: np.minimum(x, -3 * x), lambda x: np.sign(-x) * 2 - 1, [0.0, 0.5]),
    "clipped": (lambda x: np.clip(x, -1, 1), lambda x: (np.sign(1 - x**2) + 1) / 2, [1.0, -1.0]),
}
"""Functions with a kink at which the rule gives the mean of both slopes."""


@over_seeds(10)
@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("name", SILENT)
def test_the_mean_of_both_slopes_says_nothing_of_a_rule_that_is_wrong_beside_x(name, mode, seeds):
    f, gradient, x = SILENT[name]
    x = np.array(x)

    def rule(beside):
        def vjp(y, w):
            return w * gradient(y) * (1.0 if np.array_equal(y, x) else beside)

        return ByHand(f, vjp=vjp)

    for seed in seeds:
        right, wrong = (examine(rule(by), x, mode=mode, seed=seed) for by in (1.0, 3.0))
        assert right.verdict is Verdict.PASS
        assert Status.NONSMOOTH in {finding.status for finding in right.findings}
        assert wrong.verdict is Verdict.FAIL


@pytest.mark.parametrize("f", [np.square, np.cos, lambda x: np.sqrt(x**2 + 1e-4), np.exp])
def test_a_smooth_function_that_bends_has_no_kink(f):
    slope = {np.square: lambda x: 2 * x, np.cos: lambda x: -np.sin(x), np.exp: np.exp}.get(
        f, lambda x: x / np.sqrt(x**2 + 1e-4)
    )
    for x in ([0.0], [0.0, 0.0, 1.0], [0.0, 1e-3, 2.0]):
        report = examine(ByHand(f, vjp=lambda x, w: w * slope(x)), np.array(x))
        assert report.verdict is Verdict.PASS
        assert Status.NONSMOOTH not in {finding.status for finding in report.findings}


@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("at_zero", [5.0, -1.2, 1.01])
def test_a_value_outside_the_slopes_of_a_kink_fails(mode, at_zero):
    report = examine(absolute(at_zero), X, mode=mode)

    assert report.verdict is Verdict.FAIL


def test_a_kink_states_both_slopes():
    report = examine(absolute(1.0), X, mode="full")

    finding = report.findings[0]
    assert finding.entry == "d out[1] / d inputs[0][1]"
    assert (-1.0, 1.0) == finding.detail.first.slopes
    assert "slopes      -1 left, 1 right" in text_of(finding)
    assert "right at 2 points nearby" in text_of(finding)
    assert 0 == report.counts["undecided"]


@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize(
    ("at_zero", "verdict"),
    [
        (0.0, Verdict.PASS),
        (1.0, Verdict.PASS),
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

    assert "slopes       1 left, -1 right" in text_of(report.findings[0])


def test_a_projection_over_many_kinks_states_the_bounds_of_its_slopes():
    x = np.concatenate([np.zeros(100), np.linspace(0.5, 2, 100)])

    report = examine(relu(0.0), x, mode="projected", seed=0)

    assert [Status.NONSMOOTH] == [finding.status for finding in report.findings]
    assert " least, " in text_of(report.findings[0])


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

    assert [Verdict.PASS] * 2 == [report.verdict for report in reports]
    assert [Status.NONSMOOTH] * 2 == [report.findings[0].status for report in reports]


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


def test_the_slopes_of_a_projection_bound_every_choice_of_subgradients():
    w = np.asarray([0.5, -0.75, -1.0, 0.25])
    slopes = Slopes(np.asarray([0.0, 5.0, 1.0, 7.0]), np.asarray([1.0, 0.0, -1.0, 0.0]))

    projected = slopes.projected(w, [slice(0, 3), slice(3, 4)])

    choices = [w[:3] @ [a, 5.0, b] for a in (-1.0, 1.0) for b in (0.0, 2.0)]
    assert (min(choices), max(choices)) == pytest.approx(projected.at(0))
    assert projected.at(1) is None


@pytest.mark.usefixtures("quiet")
def test_a_jump_leaves_no_bound_on_a_projection_that_reads_it():
    slopes = Slopes(np.asarray([1.0, 2.0]), np.asarray([np.inf, 0.0]))

    read, unread = (slopes.projected(np.asarray([w, 1.0])) for w in (-0.5, 0.0))

    assert (-np.inf, np.inf) == read.at(0)
    assert unread.at(0) is None


# -- points nearby


def test_at_a_kink_the_derivative_is_judged_on_both_sides():
    """Wrong for positive entries only, at points that hold nothing but zeros."""
    for at_zero in (0.0, 1.0):
        rule = ByHand(
            lambda x: np.maximum(x, 0),
            vjp=lambda x, w, a=at_zero: w * np.where(x == 0, a, 0.5 * (x > 0)),
        )
        for n in (1, 3, 200):
            report = examine(rule, np.zeros(n))

            assert report.verdict is Verdict.FAIL
            finding = report.ranked[0]
            assert Status.MISMATCH is finding.status
            assert finding.entry.startswith("d out[")
            assert 0.01 == finding.moved
            assert "at a point nearby: x moved by up to 1% of the scale" in text_of(finding)


def test_a_wrong_entry_near_a_kink_is_named():
    x = np.linspace(-2, 2, 201)
    x[100] = 0.0

    def vjp(x, w):
        g = w * (x >= 0)
        g[100] *= np.where(x[100] == 0, 1.0, 3.0)
        return g

    report = examine(ByHand(lambda x: np.maximum(x, 0), vjp=vjp), x, mode="projected", seed=1)

    assert "d out[100] / d inputs[0][100]" == report.ranked[0].entry


@pytest.mark.parametrize(
    ("f", "vjp", "x"),
    [
        (lambda x: np.max(x), lambda x, w: w * (np.arange(3) == np.argmax(x)), [2.0, 2.0, 1.0]),
        (lambda x: np.clip(x, 0, 1), lambda x, w: w * ((x >= 0) & (x <= 1)), [0.0, 1.0, 0.5, 3.0]),
        (lambda x: np.maximum(0, 1 - x), lambda x, w: -w * (x <= 1), [1.0, 0.3, 2.0]),
        (
            lambda x: np.sort(x),
            lambda x, w: w[np.argsort(np.argsort(x, kind="stable"))],
            [2.0, 1.0, 2.0, 3.0],
        ),
        (
            lambda x: np.linalg.norm(x),
            lambda x, w: w * (x / np.linalg.norm(x) if x.any() else np.ones(2) / 2),
            [0.0, 0.0],
        ),
        (lambda x: np.abs(x) ** 1.0 * x[1], None, [0.0, 2.0]),
    ],
    ids=["max", "clip", "hinge", "sort", "norm", "product"],
)
@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("seed", seeds(3))
def test_a_subgradient_at_a_kink_passes_with_a_note_and_a_wrong_one_nearby_fails(
    f, vjp, x, mode, seed
):
    x = np.asarray(x)
    if vjp is None:

        def vjp(x, w):
            g = w * np.where(x >= 0, 1, -1) * x[1]
            g[1] += w @ np.abs(x)
            return g

    def wrong(x_, w):
        g = vjp(x_, w)
        return g if np.array_equal(x, x_) else 1.001 * g

    right = examine(ByHand(f, vjp=vjp), x, mode=mode, seed=seed)
    near = examine(ByHand(f, vjp=wrong), x, mode=mode, seed=seed)

    assert right.verdict is Verdict.PASS
    # Zeros alone hide mistakes that multiply them, and a note says so.
    notes = [Status.NONSMOOTH] if np.any(x) else [Status.NONSMOOTH, Status.UNCHECKED]
    assert notes == [finding.status for finding in right.findings]
    assert right.findings[0].note
    assert 2 == right.findings[0].detail.nearby.right
    assert near.verdict is Verdict.FAIL


def test_a_norm_at_zero_whose_derivative_is_nan_stays_open():
    with np.errstate(all="ignore"):
        report = examine(
            ByHand(np.linalg.norm, vjp=lambda x, w: w * x / np.linalg.norm(x)), np.zeros(2)
        )

    assert report.verdict is Verdict.INCONCLUSIVE
    assert "the automatic value is not a number" in str(report)


def test_points_nearby_stay_in_the_domain_of_the_function():
    """At the edge of the domain only one of the sides has a value."""

    def f(x):
        with np.errstate(all="ignore"):
            return np.abs(x[0]) + np.sqrt(np.maximum(x[1], -1e-3) + 1e-3) + 0 * np.log(x[1] + 0.002)

    x = np.asarray([0.0, 0.0])
    rule = ByHand(
        f,
        vjp=lambda x, w: w * np.asarray([1.0 if x[0] >= 0 else -1.0, 0.5 / np.sqrt(x[1] + 1e-3)]),
    )

    report = examine(rule, x, mode="full", seed=3)

    assert report.verdict is not Verdict.FAIL


@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("seed", seeds(5))
def test_three_equal_numbers_that_are_sorted_do_not_fail_and_a_wrong_sort_does(mode, seed):
    def sort(factor):
        return ByHand(
            np.sort, vjp=lambda x, w: factor * w[np.argsort(np.argsort(x, kind="stable"))]
        )

    x = np.asarray([2.0, 1.0, 2.0, 2.0, 3.0])

    right, wrong = (examine(sort(factor), x, mode=mode, seed=seed) for factor in (1.0, 1.01))

    assert right.verdict is not Verdict.FAIL
    assert right.verdict is Verdict.PASS or {Status.NONSMOOTH} == {
        finding.status for finding in right.findings
    }
    assert wrong.verdict is Verdict.FAIL


# -- jumps


@pytest.mark.parametrize(
    ("f", "x"),
    [
        (np.floor, [1.0, 2.5]),
        (np.round, [0.5, 1.2]),
        (lambda x: np.heaviside(x, 1.0), [0.0, 1.0]),
        (lambda x: np.where(x >= 0, x + 1.0, x) - x, [0.0, 1.0]),
    ],
    ids=["floor", "round", "heaviside", "step"],
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("mode", ["full", "projected"])
def test_a_jump_at_x_stays_open_and_a_wrong_derivative_beside_it_fails(f, x, dtype, mode):
    x = np.asarray(x, dtype)

    right = examine(ByHand(f, vjp=lambda x, w: 0 * w), x, mode=mode)
    through = examine(ByHand(f, vjp=lambda x, w: 1 * w), x, mode=mode)

    assert right.verdict is Verdict.INCONCLUSIVE
    assert [Status.NONSMOOTH] == [finding.status for finding in right.findings]
    assert Meaning.JUMP is right.findings[0].detail.meaning
    assert "right at 2 of 2 points nearby" in text_of(right.findings[0])
    assert through.verdict is Verdict.FAIL


def test_noise_and_strong_curvature_are_no_jumps():
    random = np.random.default_rng(0)
    noisy = ByHand(lambda x: np.sin(x) + 1e-6 * random.normal(size=2), vjp=lambda x, w: w * x)
    stiff = ByHand(lambda x: np.tanh(1e6 * x), vjp=lambda x, w: 1e6 * w * (x == 0))

    reports = [examine(rule, np.asarray([0.0, 0.5])) for rule in (noisy, stiff)]

    assert not any("jumps" in str(report) for report in reports)


def test_second_order_of_a_kink_is_a_jump_and_its_first_order_a_kink():
    rule = ByHand(
        lambda x: np.maximum(x, 0) * x[1],
        vjp=ByHand(
            lambda x, w: w * (x > 0) * x[1] + np.asarray([0.0, w @ np.maximum(x, 0)]),
            vjp=lambda x, w, u: (
                np.asarray(
                    [w[0] * (x[0] > 0) * u[1], u @ (w * (x > 0)) + u[1] * w[1] * (x[1] > 0)]
                ),
                u * (x > 0) * x[1] + u[1] * np.maximum(x, 0),
            ),
        ),
    )

    off, on = (
        gradgradcheck(rule, np.asarray(x), raise_exception=False) for x in ([0.5, 2.0], [0.0, 2.0])
    )

    assert off.verdict is Verdict.PASS
    assert on.verdict is Verdict.INCONCLUSIVE
    assert {Status.NONSMOOTH} == {finding.status for finding in on.findings}
