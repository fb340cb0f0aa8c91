"""A rule that is wrong at x alone, in a special case of it, is not excused by what is beside x."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from scenarios import over_seeds

from adjudge import ByHand, Verdict, examine


class Case(NamedTuple):
    """A function with a continuous derivative, that derivative, and where a special case is."""

    f: Callable
    derivative: Callable
    special: Callable
    knots: tuple[float, ...]
    """Entries of x in the special case."""


def clipped(x):
    return np.clip(x, 0, 1)


def sine_over(t):
    return np.where(t == 0, 1, np.sin(t) / np.where(t == 0, 1, t))


def slope_of_sine_over(t):
    d = np.where(t == 0, 1, t)
    return np.where(t == 0, 0, np.cos(t) / d - np.sin(t) / d**2)


def exponential_over(t):
    return np.where(t == 0, 1, np.expm1(t) / np.where(t == 0, 1, t))


def slope_of_exponential_over(t):
    d = np.where(t == 0, 1, t)
    return np.where(t == 0, 0.5, (d * np.exp(t) - np.expm1(t)) / d**2)


CASES = {
    "huber": Case(
        lambda x: np.where(np.abs(x) <= 1, x * x / 2, np.abs(x) - 0.5),
        lambda x: np.clip(x, -1, 1),
        lambda x: np.abs(x) == 1,
        (1.0, -1.0),
    ),
    "smoothstep": Case(
        lambda x: clipped(x) ** 2 * (3 - 2 * clipped(x)),
        lambda x: 6 * clipped(x) * (1 - clipped(x)),
        lambda x: (x == 1) | (x == 0),
        (1.0, 0.0),
    ),
    "quadratic spline": Case(
        lambda x: np.where(x < 1, x * x, np.where(x < 2, 1 - 2 * (x - 1) * (x - 2), (x - 3) ** 2)),
        lambda x: np.where(x < 1, 2 * x, np.where(x < 2, 6 - 4 * x, 2 * (x - 3))),
        lambda x: (x == 1) | (x == 2),
        (1.0, 2.0),
    ),
    "soft clip": Case(
        lambda x: np.where(x < 1, x, 2 - 1 / np.maximum(x, 1)),
        lambda x: 1 / np.maximum(x, 1) ** 2,
        lambda x: x == 1,
        (1.0,),
    ),
    "elu": Case(
        lambda x: np.where(x > 0.5, x, 0.5 + np.expm1(np.minimum(x - 0.5, 0))),
        lambda x: np.exp(np.minimum(x - 0.5, 0)),
        lambda x: x == 0.5,
        (0.5, 0.5),
    ),
    "sinc": Case(sine_over, slope_of_sine_over, lambda x: x == 0, (0.0, 0.0)),
    "sinc about 2": Case(
        lambda x: sine_over(x - 2), lambda x: slope_of_sine_over(x - 2), lambda x: x == 2, (2.0,)
    ),
}  # fmt: skip
MISTAKES = {"another": lambda g: g + 0.5, "the opposite": lambda g: np.where(g == 0, 1, -g)}


def verdicts(rule, inputs, seeds):
    return [examine(rule, inputs(seed), seed=seed, blame=False).verdict for seed in seeds]


@over_seeds(10)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("mistake", [None, *MISTAKES])
def test_a_special_case_of_a_smooth_function(name, mistake, seeds):
    case = CASES[name]

    def vjp(x, w):
        slope = case.derivative(x)
        wrong = slope if mistake is None else MISTAKES[mistake](slope)
        return w * np.where(case.special(x), wrong, slope)

    def x(seed):
        return np.concatenate([case.knots, np.random.default_rng(seed).normal(size=30) * 2])

    found = verdicts(ByHand(case.f, vjp=vjp), x, seeds)

    assert found == len(seeds) * [Verdict.PASS if mistake is None else Verdict.FAIL]


@over_seeds(30, always=10)
def test_one_knee_among_few_entries_fails_at_every_seed(seeds):
    """Points within rounding of x lie on both sides of the knee."""
    f, slope = CASES["huber"].f, CASES["huber"].derivative
    rule = ByHand(f, vjp=lambda x, w: w * np.where(np.abs(x) == 1, 1.0, slope(x)))
    x = np.array([-1, 1, 0.5, 2])

    found = [examine(rule, x, seed=seed, blame=False).verdict for seed in seeds]

    assert found == len(seeds) * [Verdict.FAIL]


def tied(seed):
    """Returns two arrays that have one entry in common."""
    random = np.random.default_rng(seed)
    x, y = random.uniform(0.5, 2, 10), random.uniform(2.5, 4, 10)
    y[4] = x[4]
    return x, y


def log_ratio(x, y):
    apart = np.where(x == y, 1, x - y)
    return np.where(x == y, 1 / x, np.log1p((x - y) / y) / apart)


def slopes_of_log_ratio(x, y):
    apart = np.where(x == y, 1, x - y)
    of_x = (1 / x - np.log(x / y) / apart) / apart
    of_y = (np.log(x / y) / apart - 1 / y) / apart
    at_ties = -1 / (2 * x * x)
    return np.where(x == y, at_ties, of_x), np.where(x == y, at_ties, of_y)


@over_seeds(10)
@pytest.mark.parametrize("factor", [1, 0, 2])
def test_the_branch_of_a_divided_difference_at_a_tie(factor, seeds):
    """Next to the tie the rule divides rounding by nearly zero."""

    def vjp(x, y, w):
        return tuple(w * np.where(x == y, factor, 1) * slope for slope in slopes_of_log_ratio(x, y))

    found = verdicts(ByHand(log_ratio, vjp=vjp), tied, seeds)

    assert found == len(seeds) * [Verdict.PASS if factor == 1 else Verdict.FAIL]


def exponential_pair(x, y):
    return np.exp(y) * exponential_over(x - y)


def slopes_of_exponential_pair(x, y):
    slope = np.exp(y) * slope_of_exponential_over(x - y)
    return slope, exponential_pair(x, y) - slope


def mean_of_logs(x, y):
    apart = np.where(x == y, 1, np.log1p((x - y) / y))
    return np.where(x == y, x, (x - y) / apart)


def slopes_of_mean_of_logs(x, y):
    apart = np.where(x == y, 1, np.log1p((x - y) / y))
    of_x, of_y = (apart - (x - y) / x) / apart**2, ((x - y) / y - apart) / apart**2
    return np.where(x == y, 0.5, of_x), np.where(x == y, 0.5, of_y)


NOISY = {
    "exp": (exponential_pair, slopes_of_exponential_pair),
    "logarithmic mean": (mean_of_logs, slopes_of_mean_of_logs),
    "expm1 over x - 1": (
        lambda x, y: exponential_over(x - 1) + y,
        lambda x, y: (slope_of_exponential_over(x - 1), np.ones_like(y)),
    ),
}


@over_seeds(10, always=3)
@pytest.mark.parametrize("name", NOISY)
@pytest.mark.parametrize("factor", [1, 0, 2])
def test_noise_next_to_x_as_large_as_the_error_lets_no_wrong_branch_pass(name, factor, seeds):
    f, slopes = NOISY[name]

    def vjp(x, y, w):
        special = (x == y) | (x == 1)
        return tuple(w * np.where(special, factor, 1) * slope for slope in slopes(x, y))

    def inputs(seed):
        x, y = tied(seed)
        return (np.where(np.arange(x.size) == 4, 1.0, x), y) if "x - 1" in name else (x, y)

    found = verdicts(ByHand(f, vjp=vjp), inputs, seeds)

    if factor == 1:
        assert found == len(seeds) * [Verdict.PASS]
    else:
        assert Verdict.PASS not in found


@over_seeds(6)
@pytest.mark.parametrize("apart", [1e-15, 1e-13, 1e-10])
def test_the_rounding_of_a_right_rule_near_a_tie_is_no_special_case(apart, seeds):
    def inputs(seed):
        random = np.random.default_rng(seed)
        x = random.uniform(0.5, 2, 10)
        return x, np.where(np.arange(10) == 4, x * (1 + apart), x + 2)

    def vjp(x, y, w):
        return tuple(w * slope for slope in slopes_of_log_ratio(x, y))

    rule = ByHand(log_ratio, vjp=vjp)

    for seed in seeds:
        assert examine(rule, inputs(seed), seed=seed).verdict is not Verdict.FAIL
