"""A rule by hand may cancel where f does not: `sigmoid(x) - 1` at 40 is zero, and the cross-entropy
has all of its digits. What it gives in exact arithmetic tells rounding from an error.
"""

import numpy as np
import pytest
from scenarios import over_seeds

from adjudge import ByHand, Verdict, examine

pytest.importorskip("flint")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softplus(x):
    return np.logaddexp(0.0, x)


SLOPES = {
    "cross-entropy": (lambda x: softplus(-x), lambda x: sigmoid(x) - 1),
    "softplus": (softplus, lambda x: 1 - 1 / (1 + np.exp(x))),
    "sigmoid": (lambda x: sigmoid(-x), lambda x: -sigmoid(x) * (1 - sigmoid(x))),
}
"""A function that keeps its digits, and its slope by a formula that does not."""


@over_seeds(10)
@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("spread", [20.0, 60.0])
@pytest.mark.parametrize("name", SLOPES)
def test_a_right_rule_that_loses_its_digits_does_not_fail(name, spread, mode, seeds):
    f, slope = SLOPES[name]
    rule = ByHand(f, vjp=lambda x, w: w * slope(x))
    for seed in seeds:
        x = spread * np.random.default_rng(seed).standard_normal((4, 8))
        verdict = examine(rule, x, seed=seed, mode=mode, blame=False).verdict
        assert verdict is Verdict.PASS if mode == "projected" else verdict is not Verdict.FAIL


MISTAKES = {
    "cut off": lambda x, slope: np.where(x > 30, 0.0, slope),
    "another sign": lambda x, slope: np.where(x > 25, -slope, slope),
    "a hundredth in the tail": lambda x, slope: np.where(x > 25, 1.01 * slope, slope),
    "a part of 1e-6": lambda x, slope: 1.000001 * slope,
    "a term of 1e-12": lambda x, slope: slope + 1e-12,
    "one entry": lambda x, slope: np.where(np.arange(8) == 5, 1.0001 * slope, slope),
}


@over_seeds(10)
@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_where_rounding_is_as_large_fails(mistake, mode, seeds):
    f, slope = SLOPES["cross-entropy"]
    rule = ByHand(f, vjp=lambda x, w: w * MISTAKES[mistake](x, slope(x)))
    for seed in seeds:
        x = 60 * np.random.default_rng(seed).standard_normal((4, 8))
        assert examine(rule, x, seed=seed, mode=mode, blame=False).verdict is Verdict.FAIL


LONE = {
    "sigmoid": (lambda x: sigmoid(-x), lambda x: -sigmoid(x) * (1 - sigmoid(x))),
    "softplus": (lambda x: softplus(-x), lambda x: sigmoid(x) - 1),
    "tanh": (lambda x: -2 / (1 + np.exp(2 * x)), lambda x: 1 - np.tanh(x) ** 2),
    "scaled": (lambda x: 1e-3 * softplus(-x), lambda x: 1e-3 * (sigmoid(x) - 1)),
}
"""Functions all of whose derivatives may be small, and slopes that round them."""


@over_seeds(10)
@pytest.mark.parametrize("name", LONE)
@pytest.mark.parametrize("least", [12.0, 18.0, 25.0, 34.0])
def test_no_right_rule_fails_where_all_derivatives_are_small(least, name, seeds):
    f, slope = LONE[name]
    for seed in seeds:
        x = np.random.default_rng(seed).uniform(least, least + 2, 1 + seed % 3)
        report = examine(ByHand(f, vjp=lambda x, w: w * slope(x)), x, seed=seed, blame=False)
        assert report.verdict is not Verdict.FAIL, report
        if report.verdict is Verdict.INCONCLUSIVE and report.findings[0].entry:
            kept = "the rule is right in exact arithmetic" in str(report)
            assert kept or "rounding of f" in str(report), report


@pytest.mark.parametrize(("at", "verdict"), [(20.0, Verdict.PASS), (30.0, Verdict.INCONCLUSIVE)])
def test_what_such_a_rule_loses_counts_as_unknown(at, verdict):
    f, slope = LONE["sigmoid"]
    report = examine(ByHand(f, vjp=lambda x, w: w * slope(x)), np.array([at]), seed=0)
    assert report.verdict is verdict
    assert report.power[1e-6] == (verdict is Verdict.PASS)
    assert verdict is not Verdict.PASS or report.resolution > 1e-8


@over_seeds(10)
@pytest.mark.parametrize("name", LONE)
@pytest.mark.parametrize("least", [12.0, 18.0, 25.0])
def test_a_wrong_one_fails_there(least, name, seeds):
    f, slope = LONE[name]
    for seed in seeds:
        x = np.random.default_rng(seed).uniform(least, least + 2, 1 + seed % 3)
        for wrong in (lambda x: 1.1 * slope(x), lambda x: -slope(x), lambda x: 0.5 * slope(x)):
            rule = ByHand(f, vjp=lambda x, w, wrong=wrong: w * wrong(x))
            assert examine(rule, x, seed=seed, blame=False).verdict is Verdict.FAIL


def test_a_rule_that_keeps_its_arguments_keeps_arrays():
    """It is recorded with arrays of another class, and called once more without."""

    class Layer:
        def forward(self, x):
            return softplus(-x)

        def backward(self, x, w):
            self.kept = x
            return w * (sigmoid(x) - 1)

    layer = Layer()
    rule = ByHand(layer.forward, vjp=layer.backward)
    report = examine(rule, np.linspace(-50.0, 50.0, 32), seed=0, blame=False)

    assert report.verdict is Verdict.PASS
    assert "exact replay of the rules" in str(report)
    assert type(layer.kept) is np.ndarray


def in_float32(x, w):
    return -w * np.exp(-x.astype(np.float32)).astype(float)


def another_branch(x, w):
    s = sigmoid(x)
    return -w * np.where(s == 1, 1e-14, 1 - s)


def quotient(x, w):
    return w * ((x + 1e-12) ** -10.0 - x**-10.0) / 1e-12


def of_a_sign(x, w):
    return w * (sigmoid(x) - 1) * np.sign((np.abs(x) + 1e20) - 1e20)


NO_ROUNDING = {
    "a sign that rounding turns": (lambda x: softplus(-x), of_a_sign, (20.0, 40.0)),
    "a cast": (lambda x: np.exp(-x), in_float32, (20.0, 40.0)),
    "a branch that rounding turns": (lambda x: softplus(-x), another_branch, (37.5, 45.0)),
    "a difference quotient": (lambda x: x**-10.0, quotient, (1.0, 3.0)),
}
"""Rules that are off by no more than rounding of some number could make, by their own fault."""


@over_seeds(10)
@pytest.mark.parametrize("name", NO_ROUNDING)
def test_what_a_rule_does_to_itself_is_no_rounding(name, seeds):
    f, vjp, (least, most) = NO_ROUNDING[name]
    for seed in seeds:
        x = np.random.default_rng(seed).uniform(least, most, 40)
        report = examine(ByHand(f, vjp=vjp), x, seed=seed, blame=False)
        assert report.verdict is Verdict.FAIL


BESIDE_A_LARGE_ONE = {
    "a cast": lambda x: np.cos(x.astype(np.float16)).astype(float),
    "a sign that rounding turns": lambda x: (
        np.cos(x) * (1 + 1e-4 - 1e-4 * np.sign((np.abs(x) + 1e20) - 1e20))
    ),
    "a branch that rounding turns": lambda x: (
        np.cos(x) * np.where((np.abs(x) + 1e20) - 1e20 == 0, 1 + 1e-4, 1.0)
    ),
}
"""Slopes of `sin x` that are off by less than rounding of `1e12 x`, which is in the same array."""


@over_seeds(10)
@pytest.mark.parametrize("name", BESIDE_A_LARGE_ONE)
def test_neither_is_it_beside_a_large_output(name, seeds):
    slope = BESIDE_A_LARGE_ONE[name]
    rule = ByHand(
        lambda x: np.stack([1e12 * x, np.sin(x)]),
        vjp=lambda x, w: 1e12 * w[0] + w[1] * slope(x),
    )
    for seed in seeds:
        x = np.random.default_rng(seed).normal(size=6)
        assert examine(rule, x, seed=seed, blame=False).verdict is Verdict.FAIL


def test_a_rule_that_draws_numbers_is_recorded_without_harm():
    """Compiled code asks NumPy for a new array and takes it for one: the process ended here."""
    x = 20 * np.random.default_rng(0).standard_normal(40)

    def weighed(x, w):
        g = np.empty(x.size)
        g[:] = w * (sigmoid(x) - 1) * np.random.default_rng(3).standard_normal(x.size)
        return g

    weights = np.random.default_rng(3).standard_normal(x.size)
    rule = ByHand(lambda x: softplus(-x) * weights, vjp=weighed)
    assert examine(rule, x, seed=0, blame=False).verdict in (Verdict.PASS, Verdict.FAIL)


def test_a_loop_that_ends_at_x_is_run_nowhere_else():
    """Nearer to zero it would not end."""

    def grown(x):
        y = x
        for _ in range(10_000):
            if y.max() >= 1000:
                return y
            y = y * x
        raise AssertionError(x)

    def slope(x):
        times = np.log(grown(x)[1]) / np.log(x[1])
        return round(times) * grown(x) / x

    x = np.array([2.0, 2.5])
    right = ByHand(grown, vjp=lambda x, w: w * slope(x))
    wrong = ByHand(grown, vjp=lambda x, w: 1.01 * w * slope(x))
    assert examine(right, x, seed=0, blame=False).verdict is Verdict.PASS
    assert examine(wrong, x, seed=0, blame=False).verdict is Verdict.FAIL


def test_a_term_that_matters_at_x_alone_is_missed_by_no_pole():
    """Nearer to zero the derivative is larger than any error at x, and is no measure of it."""

    def energy(x):
        return x**-12.0 - x**-6.0

    def slope(x, term):
        return -12 * x**-13.0 + 6 * term * x**-7.0

    x = np.linspace(0.9, 2.5, 12)
    for term, verdict in ((1.0, Verdict.PASS), (0.0, Verdict.FAIL), (1.001, Verdict.FAIL)):
        rule = ByHand(energy, vjp=lambda x, w, term=term: w * slope(x, term))
        for seed in range(5):
            assert examine(rule, x, seed=seed, blame=False).verdict is verdict
