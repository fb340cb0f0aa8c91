"""Entries that are too small to show among the others are compared by themselves."""

import numpy as np
import pytest
from scenarios import over_seeds

from adjudge import ByHand, Verdict, examine
from adjudge.jacobian.comparison import Power

SPREAD = np.asarray([1e-12, 3e-10, 1e-7, 1e-3, 1.0, 2.0, 3.0, 40.0])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("entry", range(8))
@pytest.mark.parametrize("factor", [0.0, -1.0, 1.01])
def test_a_wrong_entry_shows_at_every_magnitude(entry, factor, seed):
    def wrong(x, w):
        g = w / (2 * np.sqrt(x))
        g[entry] *= factor
        return g

    report = examine(ByHand(np.sqrt, vjp=wrong), SPREAD, mode="projected", seed=seed)

    assert report.verdict is Verdict.FAIL
    assert report.entries[0].wrt == f"inputs[0][{entry}]"


@pytest.mark.parametrize("seed", range(3))
def test_a_right_gradient_passes_and_every_entry_would_have_shown(seed):
    rule = ByHand(np.sqrt, vjp=lambda x, w: w / (2 * np.sqrt(x)))

    report = examine(rule, SPREAD, mode="projected", seed=seed)

    assert report.verdict is Verdict.PASS
    assert report.power[1e-2] == 1.0


def test_entries_that_f_cannot_show_leave_the_verdict_as_it_is_and_the_report_says_so():
    weights = np.asarray([1.0, 2.0, 1e-30])
    rule = ByHand(lambda x: np.sin(x @ weights), vjp=lambda x, w: w * weights * np.cos(x @ weights))

    report = examine(rule, np.asarray([0.3, 0.4, 0.5]), mode="projected", seed=0)

    assert report.verdict is Verdict.PASS
    assert report.power[1e-2] == pytest.approx(2 / 3)


@over_seeds(10)
@pytest.mark.parametrize("large", [1e4, 1e5])
def test_entries_show_over_long_steps_beside_one_that_is_far_larger(large, seeds):
    """The large one makes of the sum `large**2`, beside which a short step of the others is lost
    in rounding.
    """
    x = np.asarray([0.5, 0.2, -0.7, large])

    def squares(factor):
        factors = np.asarray([factor, factor, factor, 1.0])
        return ByHand(lambda x: np.sum(x * x), vjp=lambda x, w: 2 * w * factors * x)

    for seed in seeds:
        assert examine(squares(1.0), x, seed=seed).verdict is Verdict.PASS
        assert examine(squares(1.2), x, seed=seed, blame=False).verdict is Verdict.FAIL


BESIDE_LARGE = {
    "squares": (lambda x: x * x, lambda x: 2 * x, [1e3, -700.0, 0.1, 2e3], 1e-2),
    "smaller squares": (lambda x: x * x, lambda x: 2 * x, [1e3, -700.0, 0.01, 2e3], 3e-2),
    "powers": (
        lambda x: np.abs(x) ** 1.5,
        lambda x: 1.5 * np.sqrt(np.abs(x)) * np.sign(x),
        [1e3, -700.0, 0.05, 2e3],
        1e-2,
    ),
    "a sum": (
        lambda x: x + np.tanh(x),
        lambda x: 2 - np.tanh(x) ** 2,
        [1e6, 2e6, 0.01, 3e5],
        1e-2,
    ),
    "exponentials": (np.exp, np.exp, [20.0, 18.0, -1.0, 15.0], 5e-2),
    "fourth powers": (lambda x: x**4, lambda x: 4 * x**3, [30.0, -20.0, 0.05, 3.0], 5e-2),
}
"""A function of each entry, its derivative, where its sum is looked at, and the part that the third
entry is off by."""


@over_seeds(10)
@pytest.mark.parametrize("name", BESIDE_LARGE)
def test_an_error_of_some_hundredths_shows_in_an_entry_beside_far_larger_ones(name, seeds):
    """A second ladder that stopped short of the first one had a bar of a tenth of such an entry."""
    function, derivative, at, part = BESIDE_LARGE[name]

    def total(factor):
        factors = np.asarray([1.0, 1.0, factor, 1.0])
        return ByHand(lambda x: np.sum(function(x)), vjp=lambda x, w: w * factors * derivative(x))

    for seed in seeds:
        right = examine(total(1.0), np.asarray(at), seed=seed)
        assert right.verdict is Verdict.PASS
        assert right.power[1e-2] == 1.0
        assert right.counts["evaluations"] <= 32
        wrong = examine(total(1 + part), np.asarray(at), seed=seed, blame=False)
        assert wrong.verdict is Verdict.FAIL


@over_seeds(10, always=5)
def test_the_noise_of_short_differences_refutes_nothing(seeds):
    """Of the entry of 1e-3 f shows a fifth over long steps, and nothing over short ones."""
    factors, at = np.asarray([1.0, 1.0, 1.2, 1.0]), np.asarray([1e3, -700.0, 1e-3, 2e3])
    wrong = ByHand(lambda x: np.sum(x * x), vjp=lambda x, w: 2 * w * factors * x)

    for seed in seeds:
        assert examine(wrong, at, seed=seed, blame=False).verdict is Verdict.FAIL


@over_seeds(10)
def test_a_zero_among_small_entries_is_compared_with_them(seeds):
    x = np.asarray([0.5, 0.2, -0.7, 1e5])

    def missing(x, w):
        g = 2 * w * x
        g[1] = 0
        return g

    for seed in seeds:
        rule = ByHand(lambda x: np.sum(x * x), vjp=missing)
        assert examine(rule, x, seed=seed, blame=False).verdict is Verdict.FAIL


@over_seeds(10)
@pytest.mark.parametrize("part", [1e-7, 1e-8])
@pytest.mark.parametrize("mode", ["projected", "full"])
def test_a_zero_that_has_no_small_ones_beside_it_is_compared_as_well(part, mode, seeds):
    """One rate of a reaction that is far slower than the others, and was forgotten."""
    weights = np.random.default_rng(0).normal(size=(5, 40))

    def rates(forgotten):
        factors = part ** (np.arange(5) == 3) * np.ones(5)
        kept = np.where((np.arange(5) == 3) & forgotten, 0.0, factors)
        return ByHand(
            lambda x: (factors * np.sin(x)) @ weights,
            vjp=lambda x, w: kept * np.cos(x) * (weights @ w),
        )

    for seed in seeds:
        x = np.random.default_rng(seed).uniform(0.2, 1.2, 5)
        right = examine(rates(forgotten=False), x, mode=mode, seed=seed)
        assert right.verdict is Verdict.PASS
        wrong = examine(rates(forgotten=True), x, mode=mode, seed=seed, blame=False)
        assert wrong.verdict is Verdict.FAIL


@over_seeds(10)
@pytest.mark.parametrize("order", ["01234", "30124", "03421", "42103", "24310"])
@pytest.mark.parametrize("part", [1e-7, 1e-8, 1e-9])
def test_such_a_zero_is_compared_in_whatever_order_terms_are_added(part, order, seeds):
    """In some order an output is the small rest of terms of size one, and moves by their rounding.

    That is another one for each library that a product of matrices may be taken by.
    """
    weights = np.random.default_rng(0).normal(size=(5, 40))
    factors = np.where(np.arange(5) == 3, part, 1)

    def rates(x):
        return sum(factors[k] * np.sin(x[k]) * weights[k] for k in map(int, order))

    for seed in seeds:
        x = np.random.default_rng(seed).uniform(0.2, 1.2, 5)
        found = [
            examine(
                ByHand(rates, vjp=lambda x, w, c=c: c * np.cos(x) * (weights @ w)),
                x,
                mode="projected",
                seed=seed,
                blame=False,
            ).verdict
            for c in (factors, np.where(np.arange(5) == 3, 0, factors))
        ]
        assert found == [Verdict.PASS, Verdict.FAIL]


def test_a_zero_along_which_f_stands_still_costs_two_evaluations():
    def relu(x):
        return ByHand(lambda x: np.maximum(x, 0), vjp=lambda x, w: w * (x > 0))

    some, none = np.asarray([1.0, -1.0, 2.0, -3.0, 0.5]), np.asarray([1.0, 1.0, 2.0, 3.0, 0.5])
    reports = [examine(relu(x), x, seed=0, mode="projected") for x in (some, none)]

    assert [report.verdict for report in reports] == 2 * [Verdict.PASS]
    assert reports[0].counts["evaluations"] <= reports[1].counts["evaluations"] + 2


@pytest.mark.parametrize("name", ["relu", "abs", "clip"])
@pytest.mark.parametrize("count", [3, 10])
def test_long_steps_across_kinks_make_no_right_rule_wrong(name, count):
    """Only steps as long as the small entries show them, and these lie close to a kink."""
    f, slope = {
        "relu": (lambda x: np.maximum(x - 1, 0), lambda x: 1.0 * (x > 1)),
        "abs": (lambda x: np.abs(x - 1), lambda x: np.sign(x - 1)),
        "clip": (lambda x: np.clip(x, 0.99, 1.3), lambda x: 1.0 * ((x > 0.99) & (x < 1.3))),
    }[name]

    def rule(factor):
        return ByHand(
            lambda x: np.sum(f(x[:-1])) + x[-1] ** 2,
            vjp=lambda x, w: w * np.append(factor * slope(x[:-1]), 2 * x[-1]),
        )

    # over steps of which both ends lie behind a kink of `abs` the mean derivative is zero
    wrong, enough = [], 5 if name == "relu" else 1
    for seed in range(20):
        random = np.random.default_rng(seed)
        x = np.append(1 + 0.02 * random.normal(size=count), 1e6 * random.uniform(0.9, 1.1))
        if seed < 6:
            assert examine(rule(1.0), x, seed=seed, blame=False).verdict is Verdict.PASS
        if wrong.count(Verdict.FAIL) < enough:
            wrong.append(examine(rule(-1.0), x, seed=seed, blame=False).verdict)

    assert wrong.count(Verdict.FAIL) == enough


def test_a_tail_of_softmax_takes_no_ladder():
    def softmax(x):
        e = np.exp(x - x.max())
        return e / e.sum()

    def vjp(x, w):
        p = softmax(x)
        return p * (w - w @ p)

    taken = []
    for seed in range(9):
        x = 10 * np.random.default_rng(seed).normal(size=30)
        report = examine(ByHand(softmax, vjp=vjp), x, seed=seed)
        assert report.verdict is Verdict.PASS
        taken.append(report.counts["evaluations"])

    # at some seeds one step is not enough
    assert np.median(taken) <= 16


DECADES = np.asarray([2e6, 3.0, 1e-2, 1e-3, 1e-4])


@over_seeds(10)
@pytest.mark.parametrize("entry", range(5))
def test_an_entry_that_is_small_among_those_that_were_taken_out_is_taken_out_once_more(
    entry, seeds
):
    """A longer step shows an error of a hundredth in the largest of these, and none in others."""

    def total(factor):
        weights = np.ones(5)
        weights[entry] = factor
        return ByHand(lambda x: x.sum(keepdims=True), vjp=lambda x, w: w * weights)

    for seed in seeds:
        assert examine(total(1.0), DECADES, seed=seed).verdict is Verdict.PASS
        for factor in (0.0, -1.0, 2.0):
            wrong = examine(total(factor), DECADES, seed=seed, blame=False)
            assert wrong.verdict is Verdict.FAIL, (seed, factor)


def test_an_entry_that_shows_twice_does_not_stand_for_one_that_never_shows():
    power = Power()
    power.weigh("row", np.array([1.0, 1e-9, 0.0]), np.array(1e-5))
    power.weigh("row", np.array([1.0, 0.0, 1.0]), np.array(1e-7), again=True)

    assert power.counts()[1:] == (2, [1, 1, 1])

    power.weigh("row", np.array([1e-9]), np.array(1e-12), of=(3, slice(1, 2)), again=True)

    assert power.counts()[1:] == (2, [2, 1, 1])
