"""Infinities and NaN: at x, near x, and in derivatives."""

import numpy as np
import pytest
from scenarios import over_seeds

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


ROOTS = {
    "sqrt": (np.sqrt, lambda x: 0.5 / np.sqrt(x)),
    "cbrt": (np.cbrt, lambda x: 1 / (3 * np.cbrt(x) ** 2)),
    "arccos": (lambda x: np.arccos(1 - x / 8), lambda x: 0.125 / np.sqrt(1 - (1 - x / 8) ** 2)),
}


def root(name, factor=1.0, entry=4, *, guarded=False):
    """A root, whose rule may have zero for zero times infinity."""
    f, derivative = ROOTS[name]

    def vjp(x, w):
        with np.errstate(all="ignore"):
            g = w * derivative(x)
        if guarded:
            g[w == 0] = 0
        g[entry] *= factor
        return g

    return ByHand(f, vjp=vjp)


@over_seeds(10)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("zeros", [1, 3])
@pytest.mark.parametrize("name", ROOTS)
def test_an_infinite_derivative_at_a_vertical_tangent_is_left_open_and_the_rest_is_judged(
    name, zeros, guarded, mode, seeds
):
    """Zero times infinity is NaN in the gradients of the outputs without it."""
    for seed in seeds:
        x = np.random.default_rng(seed).uniform(0.5, 4, 7)
        x[:zeros] = 0

        right = examine(root(name, guarded=guarded), x, seed=seed, mode=mode)
        assert right.verdict is Verdict.INCONCLUSIVE, str(right)
        assert {Status.NONSMOOTH, Status.NONFINITE} & {one.status for one in right.findings}
        for factor in (0.0, -1.0, 1.01):
            rule = root(name, factor, guarded=guarded)
            wrong = examine(rule, x, seed=seed, mode=mode, blame=False)
            assert wrong.verdict is Verdict.FAIL, (seed, factor, str(wrong))


@over_seeds(10)
@pytest.mark.parametrize("factor", [0.0, 1.01])
def test_outputs_beside_a_vertical_tangent_in_the_same_entry_are_judged(factor, seeds):
    """In full mode the column of that entry has finite rows as well."""

    def vjp(x, w):
        with np.errstate(all="ignore"):
            steep = np.where(w[:1] == 0, 0.0, w[:1] / (2 * np.sqrt(x)))
        return steep + factor * w[1:] * np.cos(x)

    rule = ByHand(lambda x: np.concatenate([np.sqrt(x), np.sin(x)]), vjp=vjp)
    for seed in seeds:
        report = examine(rule, np.zeros(1), seed=seed, mode="full", blame=False)
        assert report.verdict is Verdict.FAIL, str(report)


@over_seeds(10)
@pytest.mark.parametrize("mode", ["auto", "full", "projected"])
@pytest.mark.parametrize("rule", ["vjp", "jvp"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_a_derivative_that_is_not_finite_where_f_is_smooth_fails(value, rule, mode, seeds):
    """Beside an infinity every error bar is fine, and every difference is small."""

    def derivative(x, w):
        there = np.where(w == 0, 0.0, np.where(w > 0, value, -value))
        return np.where(x == 0, there, w * np.cos(x))

    for seed in seeds:
        for x in (np.array([0.0, 1.0, 2.0]), np.array([0.0])):
            f = ByHand(np.sin, **{rule: derivative})
            report = examine(f, x, seed=seed, mode=mode, blame=False)
            assert report.verdict is Verdict.FAIL, (seed, str(report))


@over_seeds(10)
@pytest.mark.parametrize("mode", ["full", "projected"])
def test_forward_mode_leaves_a_vertical_tangent_open_too(mode, seeds):
    """An output with an infinite derivative is NaN along each tangent that does not move it."""

    def jvp(factor):
        def push(x, v):
            with np.errstate(all="ignore"):
                found = v * 0.5 / np.sqrt(x)
            found[2] *= factor
            return found

        return push

    x = np.array([0.0, 0.5, 0.7])
    for seed in seeds:
        right = examine(ByHand(np.sqrt, jvp=jvp(1.0)), x, seed=seed, mode=mode)
        wrong = examine(ByHand(np.sqrt, jvp=jvp(1.01)), x, seed=seed, mode=mode, blame=False)

        assert right.verdict is Verdict.INCONCLUSIVE, str(right)
        assert wrong.verdict is Verdict.FAIL, str(wrong)
