"""Points beside a kink are proof of what moves there, also where one entry of x is far larger than
what f varies over.
"""

from collections import Counter

import numpy as np
import pytest
from scenarios import over_seeds

from adjudge import ByHand, Verdict, examine


def verdicts(f, x, seeds):
    return Counter(examine(f, x, seed=seed, blame=False).verdict for seed in seeds)


def hat(slope):
    """A hat of width one around 1e4."""

    def vjp(x, w):
        return -slope * np.sign(x - 1e4) * (np.abs(x - 1e4) < 1) * w

    return ByHand(lambda x: np.maximum(1 - np.abs(x - 1e4), 0), vjp=vjp)


def hard_tanh(slope):
    return ByHand(lambda x: np.clip(x, -1, 1), vjp=lambda x, w: slope * w * ((x > -1) & (x < 1)))


def soft_threshold(slope):
    return ByHand(
        lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.5, 0),
        vjp=lambda x, w: slope * w * (np.abs(x) > 0.5),
    )


CASES = {
    "hat": (hat, 1e4 + np.array([0, 0.3, -0.4, 0.6])),
    "clip beside a large entry": (hard_tanh, np.array([-0.5, 1, 0.3, 0.8, 500])),
    "clip of one of many": (hard_tanh, np.array([1.0, 0.2, -0.3, 3e4, -2e4, 0.7])),
    "threshold": (soft_threshold, np.array([0.5, 0.7, -0.9, 2e3, 0.6])),
    "clip alone": (hard_tanh, np.array([-0.5, 1, 0.3, 0.8])),
}


@over_seeds(10)
@pytest.mark.parametrize("name", CASES)
def test_a_right_rule_passes_at_every_seed(name, seeds):
    make, x = CASES[name]

    assert Counter({Verdict.PASS: len(seeds)}) == verdicts(make(1.0), x, seeds)


@over_seeds(10)
@pytest.mark.parametrize("slope", [1.2, 0.5, -1.0])
@pytest.mark.parametrize("name", CASES)
def test_a_wrong_slope_passes_at_no_seed(name, slope, seeds):
    make, x = CASES[name]
    found = verdicts(make(slope), x, seeds)

    assert not found[Verdict.PASS]
    if name != "hat":  # of which all but rounding is the offset
        assert Counter({Verdict.FAIL: len(seeds)}) == found


def line(factor, count):
    """A spectral line at 1.4 GHz that is 1.4 kHz wide, at points from one side to the other."""
    middle, width = 1.4e9, 1.4e3

    def f(x):
        return np.exp(-0.5 * ((x - middle) / width) ** 2)

    def vjp(x, w):
        return -factor * w * f(x) * (x - middle) / width**2

    return ByHand(f, vjp=vjp), middle + width * np.linspace(-5, 5, count)


@over_seeds(10)
@pytest.mark.parametrize("count", [10, 11], ids=["none on the peak", "one on the peak"])
def test_what_is_far_faster_than_x_is_large_has_no_kink(count, seeds):
    assert Counter({Verdict.PASS: len(seeds)}) == verdicts(*line(1.0, count), seeds)
    for factor in (1.01, 2.0):
        assert Counter({Verdict.FAIL: len(seeds)}) == verdicts(*line(factor, count), seeds)


def position(part):
    """The place of a point by latitude, longitude and height, on an ellipsoid as flat as the Earth;
    a `part` of the height moves the third coordinate.
    """
    radius, flat, degree = 6378137.0, 6.69437999014e-3, np.pi / 180

    def f(p):
        la, lo = p[0] * degree, p[1] * degree
        n = radius / np.sqrt(1 - flat * np.sin(la) ** 2)
        around = (n + p[2]) * np.cos(la)
        up = (n * (1 - flat) + p[2]) * np.sin(la)
        return np.array([around * np.cos(lo), around * np.sin(lo), up])

    def vjp(p, w):
        la, lo = p[0] * degree, p[1] * degree
        s, c, root = np.sin(la), np.cos(la), np.sqrt(1 - flat * np.sin(la) ** 2)
        n, m = radius / root, radius * (1 - flat) / root**3
        east = np.array([-np.sin(lo), np.cos(lo), 0.0]) * (n + p[2]) * c * degree
        north = np.array([-s * np.cos(lo), -s * np.sin(lo), c]) * (m + p[2]) * degree
        height = np.array([c * np.cos(lo), c * np.sin(lo), part * s])
        return np.array([north @ w, east @ w, height @ w])

    return ByHand(f, vjp=vjp)


@over_seeds(10)
def test_noise_of_a_number_that_is_zero_but_for_rounding_is_that_of_no_other(seeds):
    pole = np.array([90.0, 0.0, 10.0])

    assert Counter({Verdict.PASS: len(seeds)}) == verdicts(position(1.0), pole, seeds)
    assert Counter({Verdict.FAIL: len(seeds)}) == verdicts(position(1 - 6.7e-3), pole, seeds)


def kinked(c, error):
    """A kink at 0, and a rule that is off only beside 1."""

    def vjp(x, w):
        return w * (c * (x > 0) + 2 * x) * np.where(np.abs(x - 1) < 1e-3, 1 + error, 1)

    return ByHand(lambda x: c * np.maximum(x, 0) + x * x, vjp=vjp)


def largest_and_tanh(error):
    def vjp(x, w):
        tied = x == x.max()
        zero = np.where(x == 0, 1 + error, 1)
        return w[:-1] * (1 - np.tanh(x) ** 2) * zero + w[-1] * tied / tied.sum()

    return ByHand(lambda x: np.append(np.tanh(x), x.max()), vjp=vjp)


def at_kink_and_one(n, seed):
    x = np.random.default_rng(seed).normal(size=n)
    x[1], x[5] = 0, 1
    return x


@over_seeds(10)
@pytest.mark.parametrize("c", [1.0, 0.1, 0.01])
@pytest.mark.parametrize("n", [8, 40, 1000])
def test_a_kink_in_one_entry_hides_no_mistake_in_another(n, c, seeds):
    for seed in seeds if n < 1000 else seeds[::3]:  # which takes as long at one seed
        x = at_kink_and_one(n, seed)
        assert examine(kinked(c, 0.0), x, seed=seed).verdict is Verdict.PASS
        for error in (-2.0, -0.1, 0.01):
            assert examine(kinked(c, error), x, seed=seed, blame=False).verdict is Verdict.FAIL


@over_seeds(10)
@pytest.mark.parametrize("error", [-1.0, 0.1])
def test_tied_numbers_hide_no_mistake_in_another_entry(error, seeds):
    for seed in seeds:
        x = np.random.default_rng(seed).normal(size=8)
        x[2] = x[6] = 1 + x.max()
        x[4] = 0
        assert examine(largest_and_tanh(0.0), x, seed=seed).verdict is Verdict.PASS
        assert examine(largest_and_tanh(error), x, seed=seed, blame=False).verdict is Verdict.FAIL


def test_many_kinks_end_the_search_for_what_bends():
    x = np.random.default_rng(0).normal(size=1000)
    relu = ByHand(lambda x: np.maximum(x, 0), vjp=lambda x, w: w * (x > 0))
    x[::2] = 0
    few, many = (examine(relu, x[:n], seed=0).counts["evaluations"] for n in (100, 1000))

    assert many <= few + 16


def clipped_in_single(dtype, factor):
    """Clips, cubes and adds up in float32, where a ladder beside the clip takes short steps."""

    def f(x):
        x = x.astype(np.float32)
        return np.sum(np.clip(x, -1, 1) ** 3 + x**2).astype(dtype)

    def vjp(x, w):
        slope = 3 * np.clip(x, -1, 1) ** 2 * (np.abs(x) <= 1) + 2 * x
        return (factor * w * slope).astype(dtype)

    return ByHand(f, vjp=vjp)


@over_seeds(10)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rounding_hides_no_kink_over_the_steps_of_a_ladder(dtype, seeds):
    for seed in seeds:
        x = np.random.default_rng(seed).uniform(-2, 2, 12)
        x[3], x[7] = 1, -1
        x = x.astype(dtype)
        assert examine(clipped_in_single(dtype, 1.0), x, seed=seed).verdict is Verdict.PASS
        wrong = examine(clipped_in_single(dtype, -1.0), x, seed=seed, blame=False)
        assert wrong.verdict is Verdict.FAIL


@over_seeds(5)
def test_a_right_slope_of_one_of_many_terms_lies_within_the_rounding_of_their_sum(seeds):
    weights = np.random.default_rng(7).normal(size=(20, 2)) + 2

    def vjp(*x_and_w):
        *x, g = x_and_w
        return tuple(g * w * (q > 0) for q, w in zip(x, weights, strict=True))

    def f(*x):
        return sum(np.sum(w * np.maximum(q, 0)) for q, w in zip(x, weights, strict=True))

    for seed in seeds:
        random = np.random.default_rng(seed)
        x = tuple(np.array([0.0, random.normal()]) for _ in weights)
        assert examine(ByHand(f, vjp=vjp), x, seed=seed).verdict is Verdict.PASS


@over_seeds(10)
@pytest.mark.parametrize("offset", [1e6, 1e8, 1e9])
def test_an_offset_makes_no_right_rule_wrong_at_a_kink(offset, seeds):
    def relu(factor):
        return ByHand(
            lambda x: offset + np.sum(np.maximum(x, 0)),
            vjp=lambda x, w: factor * w * (x > 0),
        )

    for seed in seeds:
        x = np.random.default_rng(seed).normal(size=10)
        x[:2] = 0
        assert examine(relu(1.0), x, seed=seed).verdict is not Verdict.FAIL
        assert examine(relu(-1.0), x, seed=seed, blame=False).verdict is Verdict.FAIL


def soft_threshold(error):
    def f(x):
        return np.sign(x) * np.maximum(np.abs(x) - 0.5, 0)

    return ByHand(f, vjp=lambda x, w: w * np.where(np.abs(x) > 0.5, 1.0, error))


def huber(error):
    def f(x):
        return np.sum(np.where(np.abs(x) < 1, 0.5 * x * x, np.abs(x) - 0.5))

    return ByHand(f, vjp=lambda x, w: w * np.where(np.abs(x) < 1, (1 + error) * x, np.sign(x)))


@over_seeds(10)
@pytest.mark.parametrize("make", [soft_threshold, huber])
@pytest.mark.parametrize("large", [1e4, 1e6, 1e8])
def test_a_step_between_the_branches_of_a_rule_is_not_its_rounding(make, large, seeds):
    """At the first entry these rules take the one branch or the other within rounding of x."""
    x = np.asarray([0.5 if make is soft_threshold else 1.0, 0.4, -0.7, large])

    for seed in seeds:
        assert examine(make(0.0), x, seed=seed).verdict is Verdict.PASS
        assert examine(make(0.1), x, seed=seed, blame=False).verdict is Verdict.FAIL
