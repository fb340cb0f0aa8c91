"""What is small beside the numbers that it is made of moves by their rounding: short steps agree on
a slope that is not that of the formula, and the mean of the derivative over longer ones tells.
"""

import numpy as np
import pytest
from scenarios import over_seeds

from adjudge import ByHand, Verdict, examine

NORMAL = np.sqrt(2 / np.pi)


def gelu(x):
    """The usual approximation, whose factor `1 + tanh` has few bits at -6."""
    return x * (1 + np.tanh(NORMAL * (x + 0.044715 * x**3))) / 2


def exact_gelu_slope(x):
    """Its derivative without a cancellation: `1 + tanh u` is `2 / (1 + exp(-2 u))`."""
    u = NORMAL * (x + 0.044715 * x**3)
    s = 1 / (1 + np.exp(-2 * u))
    return s + x * 2 * s / (1 + np.exp(2 * u)) * NORMAL * (1 + 3 * 0.044715 * x**2)


def gated_slope(x):
    return 2 / (1 + np.exp(-2 * x)) + x * 4 / (np.exp(x) + np.exp(-x)) ** 2


FUNCTIONS = {
    "gelu": (gelu, exact_gelu_slope, 2.0),
    "gated": (lambda x: x * (1 + np.tanh(x)), gated_slope, 4.0),
    "tail": (lambda x: 1 + np.tanh(x), lambda x: 4 / (np.exp(x) + np.exp(-x)) ** 2, 4.0),
}
"""A function of each entry, its derivative without cancellation, and the spread of x: that of the
activations of a layer, a few of which lie so far out that a factor of f has some bits left."""


def layer(spread, seed, size):
    return spread * np.random.default_rng(seed).standard_normal(size)


@over_seeds(10)
@pytest.mark.parametrize("size", [300, 16384])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_right_activation_of_a_layer_passes(name, size, seeds):
    function, slope, spread = FUNCTIONS[name]
    rule = ByHand(function, vjp=lambda x, w: w * slope(x))

    for seed in seeds:
        report = examine(rule, layer(spread, seed, size), seed=seed, blame=False)
        assert report.verdict is Verdict.PASS


@over_seeds(10)
@pytest.mark.parametrize("size", [300, 16384])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_wrong_one_fails_in_an_entry_that_f_shows(name, size, seeds):
    """One entry of those that are not in the tail has the wrong sign, a fifth too much, or none."""
    function, slope, spread = FUNCTIONS[name]

    def wrong(factor, entry):
        def vjp(x, w):
            g = w * slope(x)
            g[entry] *= factor
            return g

        return ByHand(function, vjp=vjp)

    for seed in seeds:
        x = layer(spread, seed, size)
        (entry, *_) = np.flatnonzero((x > -0.6 * spread) & (x < -0.3 * spread))
        for factor in (-1.0, 1.2, 0.0):
            report = examine(wrong(factor, entry), x, seed=seed, blame=False)
            assert report.verdict is Verdict.FAIL


@over_seeds(10)
@pytest.mark.parametrize("steps", [2.0**4, 2.0**8, 2.0**12])
def test_a_straight_through_gradient_of_stairs_that_are_meant_fails(steps, seeds):
    """These have another slope over longer steps, too, and are taller than rounding."""
    rule = ByHand(
        lambda x: x * np.floor(steps * x) / steps,
        vjp=lambda x, w: w * (np.floor(steps * x) / steps + x),
    )

    for seed in seeds:
        x = np.random.default_rng(seed).uniform(0.3, 0.9, 8)
        assert examine(rule, x, seed=seed, blame=False).verdict is Verdict.FAIL


@over_seeds(10)
@pytest.mark.parametrize("factor", [-1.0, 3.0, 0.3])
def test_a_wrong_rule_fails_on_stairs_of_rounding(factor, seeds):
    """Over longer steps f moves as the right rule says, and the mean of this one is another."""
    rule = ByHand(gelu, vjp=lambda x, w: w * np.where(x < -5, factor, 1.0) * exact_gelu_slope(x))

    for seed in seeds:
        report = examine(rule, np.asarray([1.0, -7.0]), seed=seed, blame=False)
        assert report.verdict is Verdict.FAIL


BESIDE_LARGE = {
    "stairs": (lambda x: x * np.floor(16 * x) / 16, lambda x: 2 * x),
    "fine stairs": (lambda x: x * np.floor(1024 * x) / 1024, lambda x: 2 * x),
    "waves": (lambda x: x + np.sin(2.0**13 * x) / 2**13, np.ones_like),
    "fine waves": (lambda x: x + np.sin(2.0**17 * x) / 2**17, np.ones_like),
}
"""A function of x, and its mean slope: what is off by that is no rounding beside 1e10."""


@over_seeds(10)
@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("name", BESIDE_LARGE)
def test_the_mean_slope_of_what_f_shows_beside_a_large_output_fails(name, mode, seeds):
    """A value that is far above the rounding of the largest one shows a slope of its own."""
    f, slope = BESIDE_LARGE[name]
    rule = ByHand(
        lambda x: np.append(1e10 * x[:1], f(x[1:])),
        vjp=lambda x, w: w * np.append(1e10, slope(x[1:])),
    )

    for seed in seeds:
        report = examine(rule, np.asarray([0.7, 1.31]), mode=mode, seed=seed, blame=False)
        assert report.verdict is Verdict.FAIL


@over_seeds(10)
def test_what_stands_still_at_zero_does_not_fail_with_a_derivative_below_its_rounding(seeds):
    """A claim that is larger than the rounding of its leaf is wrong."""
    x = np.asarray([0.5, -30.0, -25.0, -17.0, -16.5, 2.0])
    tail = FUNCTIONS["tail"][1]

    def claims(more):
        return ByHand(
            FUNCTIONS["tail"][0],
            vjp=lambda x, w: w * (tail(x) + np.asarray([0, more, 0, 0, 0, 0])),
        )

    for seed in seeds:
        assert examine(claims(0.0), x, seed=seed, blame=False).verdict is not Verdict.FAIL
        assert examine(claims(1e-9), x, seed=seed, blame=False).verdict is Verdict.FAIL
