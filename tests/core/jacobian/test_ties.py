"""Rules at ties and zeros: what lies outside of the generalised derivative fails at every seed, and
what a rule may choose fails at none.
"""

import numpy as np
import pytest
from scenarios import long, over_seeds, seeds

from adjudge import ByHand, Verdict, examine
from adjudge.findings import Entry, Meaning, Method, Scheme
from adjudge.jacobian.comparison import open_reason
from adjudge.jacobian.one_sided import separating

SEEDS = range(10)
FEW = range(2)
"""The seeds where little is drawn at random: full mode has the tangents of the entries, and
float32 is judged in double precision."""
MODES = ("projected", "full")

TIED = np.array([1.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 0.5])
ZEROS = np.array([0.0, 1.0, -2.0, 0.0, 3.0, 0.0])
OPPOSITE = np.array([2.0, -2.0, 2.0, 1.0])
MIDDLE = np.array([-2.0, -1.0, 1.0, 0.0, 2.0, 0.0, 0.0])
POOLED = np.maximum(np.random.default_rng(0).normal(size=11), 0.0)


def of_largest(share, f=np.max):
    def vjp(x, w):
        return (w * share(x == f(x))).astype(x.dtype)

    return ByHand(f, vjp=vjp)


def all_of_it(tied):
    return tied * 1.0


def first(tied):
    return (np.arange(tied.size) == np.argmax(tied)) * 1.0


def last(tied):
    return first(tied[::-1])[::-1]


def equal(tied):
    return tied / np.count_nonzero(tied)


def none(tied):
    return np.where(np.count_nonzero(tied) > 1, 0.0, tied)


def too_much(tied):
    return 1.5 * first(tied) - 0.5 * last(tied)


def pool(share):
    starts = range(0, POOLED.size - 2, 2)

    def f(x):
        return np.stack([x[i : i + 3].max() for i in starts])

    def vjp(x, w):
        g = np.zeros_like(x)
        for k, i in enumerate(starts):
            window = x[i : i + 3]
            g[i : i + 3] += w[k] * share(window == window.max()).astype(x.dtype)
        return g

    return ByHand(f, vjp=vjp)


def at_zero(f, slope, value):
    return ByHand(f, vjp=lambda x, w: w * np.where(x == 0, value, slope(x)).astype(x.dtype))


def absolute(value):
    return at_zero(np.abs, np.sign, value)


def relu(value, leak=0.0):
    return at_zero(
        lambda x: np.where(x > 0, x, x.dtype.type(leak) * x),
        lambda x: np.where(x > 0, 1.0, leak),
        value,
    )


def clip(value):
    return at_zero(
        lambda x: np.clip(x, 0, 1), lambda x: ((x > 0) & (x < 1)) + 0.5 * (x == 1), value
    )


def hinge(value):
    def vjp(x, w):
        inside = np.where(x == 1, value, x < 1)
        return (-w * inside).astype(x.dtype)

    return ByHand(lambda x: np.maximum(1 - x, 0), vjp=vjp)


def taxicab(value):
    return ByHand(
        lambda x: np.sum(np.abs(x)),
        vjp=lambda x, w: (w * np.where(x == 0, value, np.sign(x))).astype(x.dtype),
    )


def length(value):
    def vjp(x, w):
        size = np.linalg.norm(x)
        return (w * (np.full_like(x, value) if size == 0 else x / size)).astype(x.dtype)

    return ByHand(np.linalg.norm, vjp=vjp)


def largest_magnitude(share):
    def vjp(x, w):
        return (w * np.sign(x) * share(np.abs(x) == np.max(np.abs(x)))).astype(x.dtype)

    return ByHand(lambda x: np.max(np.abs(x)), vjp=vjp)


def larger(one, two):
    def vjp(primals, w):
        a, b = primals
        return (
            (w * np.where(a == b, one, a > b)).astype(a.dtype),
            (w * np.where(a == b, two, b > a)).astype(a.dtype),
        )

    return ByHand(np.maximum, vjp=lambda a, b, w: vjp((a, b), w))


def top(k, share):
    def f(x):
        return np.sort(x)[-k:]

    def vjp(x, w):
        g = np.zeros_like(x)
        if share is None:
            g[np.argsort(x, kind="stable")[-k:]] = w
            return g
        for value, one in zip(f(x), w, strict=True):
            g += one * share(x == value).astype(x.dtype)
        return g

    return ByHand(f, vjp=vjp)


def ranked(share, ranks):
    """Returns the entries of these ranks, of which one that is tied may have slopes of zero along
    every single tangent."""

    def vjp(x, w):
        g = np.zeros_like(x)
        for value, one in zip(np.sort(x)[ranks], w, strict=True):
            g += one * share(x == value).astype(x.dtype)
        return g

    return ByHand(lambda x: np.sort(x)[ranks], vjp=vjp)


MEDIAN, ALL = [3], list(range(7))


def doubled(tied):
    return 2.0 * equal(tied)


def weighted(*weights):
    """Returns the median, which gives each of three ties its weight."""

    def share(tied):
        if np.count_nonzero(tied) != len(weights):
            return tied * 1.0
        g = np.zeros(tied.size)
        g[tied] = weights
        return g

    return ranked(share, MEDIAN)


def trimmed(share):
    """Returns the mean of all but the two smallest and the two largest numbers, where ties share
    the place of one of them.
    """

    def vjp(x, w):
        y = np.sort(x)
        inside = (x >= y[2]) & (x <= y[-3])
        return (w / 4 * share(x, inside)).astype(x.dtype)

    return ByHand(lambda x: np.mean(np.sort(x)[2:-2]), vjp=vjp)


def by_rank(x, inside):
    rank = np.argsort(np.argsort(x, kind="stable"))
    return (rank >= 2) & (rank < x.size - 2)


def inclusive(x, inside):
    return inside


def exclusive(x, inside):
    return (x > np.sort(x)[2]) & (x < np.sort(x)[-3])


def saddle(rows, columns):
    """Returns the smallest of the largest numbers of three rows."""

    def vjp(x, w):
        y = x.reshape(3, 3)
        most = y.max(1)
        g = np.stack([columns(row == row.max()) for row in y])
        return (w * rows(most == most.min())[:, None] * g).ravel().astype(x.dtype)

    return ByHand(lambda x: x.reshape(3, 3).max(1).min(), vjp=vjp)


def capped(share, factors=1.0, windows=1):
    """Returns the largest number of each window of those that are cut off at zero. Where all of a
    window are zeros it stands still along each of them, and falls where all fall.
    """
    factors = np.asarray(factors)

    def f(x):
        return np.minimum(factors.astype(x.dtype) * x, 0).reshape(windows, -1).max(1)

    def vjp(x, w):
        y = np.minimum(factors * x, 0).reshape(windows, -1)
        most, passes = y.max(1, keepdims=True), (factors * x <= 0).reshape(y.shape)
        g = np.stack([share(row) for row in y == most]) * passes * w[:, None]
        return (factors * g.ravel()).astype(x.dtype)

    return ByHand(f, vjp=vjp)


def running(share):
    """Returns the running maximum of numbers that are cut off at zero."""

    def vjp(x, w):
        g, y = np.zeros_like(x), np.minimum(x, 0)
        for k, one in enumerate(w):
            tied = (y == y[: k + 1].max()) & (np.arange(y.size) <= k)
            g += one * (share(tied) * (x <= 0)).astype(x.dtype)
        return g

    return ByHand(lambda x: np.maximum.accumulate(np.minimum(x, 0)), vjp=vjp)


def negative(tied):
    return -equal(tied)


def half_more(tied):
    return (1.0 if np.count_nonzero(tied) == 1 else 1.5) * equal(tied)


def half_more_for(k):
    def share(tied):
        alone = np.count_nonzero(tied) == 1
        return equal(tied) * np.where((np.arange(tied.size) == k) & (not alone), 1.5, 1.0)

    return share


EIGHT, SIGNS = np.zeros(8), np.array([1.0, -1.0, -1.0, 1.0, 1.0, 1.0, -1.0, -1.0])
TWO_DECADES, FOUR_DECADES = (
    10.0 ** -np.random.default_rng(1).uniform(0, decades, 8) for decades in (2, 4)
)
"""The weights of ties that are not alike: the terms meet where their products with x do."""
TRIMMED = np.array([1.0, 1.0, 1.0, 2.0, 3.0, 5.0, 5.0, 9.0])
SADDLE = np.array([2.0, 2.0, 1.0, 2.0, 0.0, 2.0, 3.0, 3.0, 3.0])

WRONG = {
    "amax, all ties get all": (of_largest(all_of_it), TIED),
    "amax, no tie gets any": (of_largest(none), TIED),
    "amin, all ties get all": (of_largest(all_of_it, np.min), -TIED),
    "max_pool, all ties get all": (pool(all_of_it), POOLED),
    "max_pool, no tie gets any": (pool(none), POOLED),
    "abs, 1.5 at zeros": (absolute(1.5), ZEROS),
    "abs, -2 at zeros": (absolute(-2.0), ZEROS),
    "relu, 2 at zeros": (relu(2.0), ZEROS),
    "relu, -1 at zeros": (relu(-1.0), ZEROS),
    "leaky relu, 0 at zeros": (relu(0.0, leak=0.25), ZEROS),
    "clip, 1.5 at an end": (clip(1.5), ZEROS),
    "hinge, twice at the margin": (hinge(2.0), ZEROS),
    "l1, 1.5 at zeros": (taxicab(1.5), ZEROS),
    "l2 at zero, ones": (length(1.0), np.zeros(4)),
    "inf norm, all ties get all": (largest_magnitude(all_of_it), OPPOSITE),
    "inf norm, no tie gets any": (largest_magnitude(none), OPPOSITE),
    "topk, all ties get all": (top(2, all_of_it), TIED),
    "median, all ties get all": (ranked(all_of_it, MEDIAN), MIDDLE),
    "median, ties get twice their share": (ranked(doubled, MEDIAN), MIDDLE),
    "sort, all ties get all": (ranked(all_of_it, ALL), MIDDLE),
    "sort, no tie gets any": (ranked(none, ALL), MIDDLE),
    "median, no tie gets any": (ranked(none, MEDIAN), MIDDLE),
    "median, a negative share": (weighted(-1 / 3, 2 / 3, 2 / 3), MIDDLE),
    "median, two and minus one": (weighted(2.0, -1.0, 0.0), MIDDLE),
    "trimmed mean, all ties get all": (trimmed(inclusive), TRIMMED),
    "trimmed mean, no tie gets any": (trimmed(exclusive), TRIMMED),
    "least of largest, all rows get all": (saddle(all_of_it, first), SADDLE),
    "least of largest, all columns get all": (saddle(first, all_of_it), SADDLE),
    "least of largest, no tie gets any": (saddle(none, none), SADDLE),
    "largest of capped, all ties get all": (capped(all_of_it), EIGHT),
    "largest of capped, twice": (capped(doubled), EIGHT),
    "largest of capped, the other sign": (capped(negative), EIGHT),
    "largest of capped with signs, all ties get all": (capped(all_of_it, SIGNS), EIGHT),
    "pool of capped, all ties get all": (capped(all_of_it, windows=2), EIGHT),
    "largest of weighted and capped, all ties get all": (capped(all_of_it, TWO_DECADES), EIGHT),
    "largest of weighted and capped, half more": (capped(half_more, TWO_DECADES), EIGHT),
    "largest of weighted and capped, the other sign": (capped(negative, TWO_DECADES), EIGHT),
    "largest of weighted and capped, half more for one": (
        capped(half_more_for(np.argmin(TWO_DECADES)), TWO_DECADES),
        EIGHT,
    ),
    "largest of four decades, capped, half more": (capped(half_more, FOUR_DECADES), EIGHT),
    "largest of four decades, capped, the other sign": (capped(negative, FOUR_DECADES), EIGHT),
    "largest of four decades with signs, all ties get all": (
        capped(all_of_it, SIGNS * FOUR_DECADES),
        EIGHT,
    ),
    "running maximum of capped, all ties get all": (running(all_of_it), EIGHT[:5]),
}
RIGHT = {
    "amax, first": (of_largest(first), TIED),
    "amax, last": (of_largest(last), TIED),
    "amax, shared": (of_largest(equal), TIED),
    "amin, shared": (of_largest(equal, np.min), -TIED),
    "max_pool, first": (pool(first), POOLED),
    "max_pool, shared": (pool(equal), POOLED),
    "abs, 0": (absolute(0.0), ZEROS),
    "abs, 1": (absolute(1.0), ZEROS),
    "abs, -0.5": (absolute(-0.5), ZEROS),
    "relu, 0": (relu(0.0), ZEROS),
    "relu, 1": (relu(1.0), ZEROS),
    "relu, 0.5": (relu(0.5), ZEROS),
    "leaky relu, 0.25": (relu(0.25, leak=0.25), ZEROS),
    "clip, 1": (clip(1.0), ZEROS),
    "hinge, 0": (hinge(0.0), ZEROS),
    "hinge, 1": (hinge(1.0), ZEROS),
    "l1, 0": (taxicab(0.0), ZEROS),
    "l1, 1": (taxicab(1.0), ZEROS),
    "l2 at zero, 0": (length(0.0), np.zeros(4)),
    "l2 at zero, inside": (length(0.5), np.zeros(4)),
    "inf norm, first": (largest_magnitude(first), OPPOSITE),
    "inf norm, shared": (largest_magnitude(equal), OPPOSITE),
    "topk, stable": (top(2, None), TIED),
    "median, shared": (ranked(equal, MEDIAN), MIDDLE),
    "median, first": (ranked(first, MEDIAN), MIDDLE),
    "median, half and half": (weighted(0.5, 0.5, 0.0), MIDDLE),
    "trimmed mean, stable": (trimmed(by_rank), TRIMMED),
    "least of largest, first": (saddle(first, first), SADDLE),
    "least of largest, shared": (saddle(equal, equal), SADDLE),
    "sort, stable": (top(7, None), MIDDLE),
    "sort, shared": (ranked(equal, ALL), MIDDLE),
    "largest of capped, first": (capped(first), EIGHT),
    "largest of capped, shared": (capped(equal), EIGHT),
    "largest of capped with signs, shared": (capped(equal, SIGNS), EIGHT),
    "largest of many capped, first": (capped(first), np.zeros(64)),
    "pool of capped, last": (capped(last, windows=2), EIGHT),
    "pool of capped, shared": (capped(equal, windows=2), EIGHT),
    "largest of weighted and capped, first": (capped(first, TWO_DECADES), EIGHT),
    "largest of weighted and capped, last": (capped(last, -TWO_DECADES), EIGHT),
    "largest of weighted and capped, shared": (capped(equal, TWO_DECADES), EIGHT),
    "largest of four decades, capped, first": (capped(first, FOUR_DECADES), EIGHT),
    "largest of four decades, capped, last": (capped(last, FOUR_DECADES), EIGHT),
    "largest of four decades, capped, shared": (capped(equal, FOUR_DECADES), EIGHT),
    "largest of four decades with signs, shared": (capped(equal, SIGNS * FOUR_DECADES), EIGHT),
    "running maximum of capped, last": (running(last), EIGHT[:5]),
}


def cells(rules):
    """Each rule at one seed in projected mode, every second in full mode, and every fourth in
    float32. With `--long` each has a second seed and full mode, and every third has ten seeds.
    """
    for k, name in enumerate(rules):
        yield name, "projected", "float64", SEEDS[:1]
        yield long(name, "projected", "float64", SEEDS[1:] if k % 3 == 0 else FEW[1:])
        full = name, "full", "float64", FEW[k // 2 % 2 :][:1]
        yield long(*full) if k % 2 else full
        if k % 4 == 0:
            yield name, "projected", "float32", SEEDS[:1]
            yield long(name, "projected", "float32", FEW[1:])


def verdicts(f, x, mode, dtype, seeds):
    return {examine(f, x.astype(dtype), mode=mode, seed=seed).verdict for seed in seeds}


@pytest.mark.parametrize(("name", "mode", "dtype", "seeds"), [*cells(WRONG)])
def test_a_rule_outside_of_the_generalised_derivative_fails_at_every_seed(name, mode, dtype, seeds):
    assert verdicts(*WRONG[name], mode, dtype, seeds) == {Verdict.FAIL}


@pytest.mark.parametrize(("name", "mode", "dtype", "seeds"), [*cells(RIGHT)])
def test_a_choice_within_the_generalised_derivative_fails_at_no_seed(name, mode, dtype, seeds):
    found = verdicts(*RIGHT[name], mode, dtype, seeds)

    assert Verdict.FAIL not in found
    if name.startswith(("median", "sort")) and dtype == "float64":
        assert found == {Verdict.PASS}


@over_seeds(10)
def test_a_value_leaves_the_slopes_no_farther_than_secants_beside_x_do(seeds):
    def leaky(x):
        return np.where(x > 0, x, 0.3 * x)

    def steps(x):
        return np.sin(np.cumsum(leaky(x)))

    def vjp(x, w):
        y = steps(x)
        weights = (y == np.median(y)) / np.count_nonzero(y == np.median(y))
        inner = (weights * np.cos(np.cumsum(leaky(x))))[::-1].cumsum()[::-1]
        return w * inner * np.where(x > 0, 1.0, 0.3)

    rule = ByHand(lambda x: np.median(steps(x)), vjp=vjp)

    for seed in seeds:
        report = examine(rule, np.array([1.0, 0.0, 0.0]), mode="projected", seed=seed)
        assert report.verdict is Verdict.PASS, str(report)


@over_seeds(10)
@pytest.mark.parametrize("mode", MODES)
def test_ties_between_two_inputs(mode, seeds):
    a, b = np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 0.5])
    for seed in seeds if mode == "projected" else seeds[:2]:
        both = examine(larger(1.0, 1.0), (a, b), mode=mode, seed=seed)
        half = examine(larger(0.5, 0.5), (a, b), mode=mode, seed=seed)
        assert both.verdict is Verdict.FAIL
        assert half.verdict is Verdict.PASS


@over_seeds(10)
def test_a_network_of_rectified_units_at_its_kinks_is_neither_convex_nor_concave(seeds):
    random = np.random.default_rng(0)
    inner, outer = random.normal(size=(6, 5)), random.normal(size=(4, 6))

    def vjp(x, w):
        return inner.T @ ((outer.T @ w) * (inner @ x > 0))

    f = ByHand(lambda x: outer @ np.maximum(inner @ x, 0), vjp=vjp)
    for seed in seeds:
        assert examine(f, np.zeros(5), mode="projected", seed=seed).verdict is not Verdict.FAIL


@over_seeds(20)
def test_a_sum_of_clipped_units_at_their_ends_is_neither_convex_nor_concave(seeds):
    inner = np.array([[-1.0, -1, 1, 1, 1, 0, 1], [-1, 1, 1, 0, 0, 1, 1]])
    outer, x = np.array([-2.0, 1.0]), np.array([-2.0, 0, -1, -1, 1, 0, 0])

    def vjp(x, w):
        return inner.T @ (w * outer * (np.abs(inner @ x) <= 1))

    f = ByHand(lambda x: outer @ np.clip(inner @ x, -1, 1), vjp=vjp)
    for seed in seeds:
        assert examine(f, x, mode="projected", seed=seed).verdict is Verdict.PASS


def test_windows_that_are_nearly_tied_beside_a_tie_are_no_noise():
    """Among thousands of windows some have two largest entries that every step exchanges."""
    random = np.random.default_rng(13)
    x = np.maximum(random.normal(size=(40_000 // 9, 9)), 0.0)

    def windows(x):
        return np.lib.stride_tricks.sliding_window_view(x, 3, axis=1)[:, ::2]

    def pooled(share):
        def vjp(x, w):
            gradient, parts = np.zeros_like(x), w[..., None] * share(windows(x))
            for j in range(3):
                gradient[:, j : j + 7 : 2] += parts[..., j]
            return gradient

        return ByHand(lambda x: windows(x).max(-1), vjp=vjp)

    right = pooled(lambda y: np.eye(3)[y.argmax(-1)])
    wrong = pooled(lambda y: (y == y.max(-1, keepdims=True)) * 1.0)
    assert examine(right, x, mode="projected", seed=13).verdict is Verdict.PASS
    assert examine(wrong, x, mode="projected", seed=13).verdict is Verdict.FAIL


def test_more_kinks_than_columns_are_looked_into_do_not_fail_a_right_rule():
    x = np.zeros(40)
    assert examine(relu(0.0), x, mode="full", seed=0).verdict is Verdict.PASS
    assert examine(relu(1.5), x, mode="full", seed=0).verdict is Verdict.FAIL


def pooled_by_three(x, v):
    windows = x.reshape(-1, 3)
    tied = windows == windows.max(1, keepdims=True)
    return np.sum(v.reshape(-1, 3) * tied, 1)


FORWARD = {
    "amax, all ties get all": (np.max, lambda x, v: np.sum(v * (x == x.max())), TIED),
    "inf norm, all ties get all": (
        lambda x: np.max(np.abs(x)),
        lambda x, v: np.sum(v * np.sign(x) * (np.abs(x) == np.abs(x).max())),
        OPPOSITE,
    ),
    "max_pool, all ties get all": (
        lambda x: x.reshape(-1, 3).max(1),
        pooled_by_three,
        np.array([0.0, 0.0, 0.0, 1.0, 1.0, -1.0, 3.0, 2.0, 1.0, 0.0, -1.0, 0.0]),
    ),
}


@over_seeds(10)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FORWARD)
def test_forward_mode_is_held_to_the_same(name, mode, seeds):
    f, jvp, x = FORWARD[name]
    for seed in seeds if mode == "projected" else seeds[:2]:
        report = examine(ByHand(f, jvp=jvp), x, mode=mode, seed=seed, modes=["F"])
        assert report.verdict is Verdict.FAIL


@over_seeds(10)
@pytest.mark.parametrize("mode", MODES)
def test_a_pushforward_that_shares_among_ties_passes(mode, seeds):
    shared = ByHand(np.max, jvp=lambda x, v: np.mean(v[x == x.max()]))
    for seed in seeds if mode == "projected" else seeds[:2]:
        assert examine(shared, TIED, mode=mode, seed=seed, modes=["F"]).verdict is Verdict.PASS


@over_seeds(10)
@pytest.mark.parametrize(("factor", "verdict"), [(1.0, None), (1.01, Verdict.FAIL)])
def test_a_small_jump_at_the_threshold_of_softplus_makes_no_right_rule_fail(factor, verdict, seeds):
    def softplus(x):
        return np.where(x > 20, x, np.log1p(np.exp(np.minimum(x, 20))))

    def vjp(x, w):
        return factor * w / (1 + np.exp(-x))

    x = np.concatenate([np.full(5, 20.0), np.random.default_rng(0).normal(size=45)])
    for seed in seeds:
        found = examine(ByHand(softplus, vjp=vjp), x, mode="projected", seed=seed).verdict
        assert found is verdict if verdict else found is not Verdict.FAIL


@pytest.mark.parametrize("seed", seeds(10))
def test_the_separating_vector_is_the_shortest_of_all_whose_products_are_at_least_one(seed):
    random = np.random.default_rng(seed)
    rows = random.normal(size=(12, 5)) + random.normal(size=5) * 3
    found = separating(rows)
    assert found is not None
    products = rows @ found
    assert products.min() > 1 - 1e-9

    # It is a sum of the rows that it touches without a negative weight, and no other is as short.
    touched = rows[products < 1 + 1e-9]
    weights, *_ = np.linalg.lstsq(touched.T, found)
    assert np.allclose(touched.T @ weights, found)
    assert weights.min() > -1e-9


def test_nothing_separates_zero_from_rows_that_surround_it():
    assert separating(np.array([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0]])) is None
    assert np.allclose(separating(np.array([[1.0, 1.0], [1.0, -1.0]])), [1.0, 0.0])


# -- order statistics of whole numbers


def sorted_by(x, descending=False):
    return np.argsort(-x if descending else x, axis=-1, kind="stable")


def spread_back(order, weights, w):
    """The gradient of the sum of sorted numbers times `weights`, row by row."""
    g = np.zeros(order.shape)
    np.put_along_axis(g, order, np.broadcast_to(weights, order.shape) * w[:, None], -1)
    return g


def of_sorted(weights, descending=False):
    """The sum of sorted numbers times `weights`, for each row, with the rule of a stable sort."""

    def f(x):
        return np.take_along_axis(x, sorted_by(x, descending), -1) @ weights

    return ByHand(f, vjp=lambda x, w: spread_back(sorted_by(x, descending), weights, w))


def deviation():
    """The median absolute deviation of each row."""

    def steps(x):
        middle = sorted_by(x)[:, 5:6]
        apart = x - np.take_along_axis(x, middle, -1)
        return middle, apart, sorted_by(np.abs(apart))[:, 5:6]

    def f(x):
        _, apart, one = steps(x)
        return np.take_along_axis(np.abs(apart), one, -1)[:, 0]

    def vjp(x, w):
        middle, apart, one = steps(x)
        sign = np.sign(np.take_along_axis(apart, one, -1)) * w[:, None]
        g = np.zeros(x.shape)
        np.put_along_axis(g, one, sign, -1)
        np.put_along_axis(g, middle, np.take_along_axis(g, middle, -1) - sign, -1)
        return g

    return ByHand(f, vjp=vjp)


TRIMMED = np.r_[np.zeros(2), np.full(8, 1 / 8), np.zeros(2)]
STATISTICS = {
    "trimmed mean": of_sorted(TRIMMED),
    "quantile": of_sorted(np.r_[np.zeros(3), 0.7, 0.3, np.zeros(7)]),
    "every third, descending": of_sorted(np.tile([1.0, 0.0, 0.0], 4), descending=True),
    "weights by rank": of_sorted(np.linspace(1, 0, 12)),
    "median absolute deviation": deviation(),
}


def whole_numbers(seed):
    return np.random.default_rng(seed).integers(0, 3, (4, 12)).astype(float)


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("name", STATISTICS)
def test_right_order_statistics_of_whole_numbers_fail_at_no_seed(name, seed):
    report = examine(STATISTICS[name], whole_numbers(seed), modes=["R"], seed=seed)

    assert report.verdict is Verdict.PASS, str(report)


@pytest.mark.parametrize("seed", [19, 28, 29, *map(long, [45, 58, 71, 86, 91])])
def test_two_choices_that_random_points_make_apart_are_both_right_at_once(seed):
    """The slope of the rule is that of its median and of its middle deviation together, which of
    128 random secants none has.
    """
    x = whole_numbers(seed)

    assert examine(deviation(), x, modes=["R"], seed=seed).verdict is Verdict.PASS


def deviation_times_range(factor):
    """The fifth smallest deviation from the median, times the distance of two ranks."""

    def steps(x):
        order = np.argsort(x, kind="stable")
        apart = x - x[order[6]]
        return order, apart, np.argsort(np.abs(apart), kind="stable")[4]

    def f(x):
        order, apart, one = steps(x)
        return np.abs(apart[one]) * (x[order[10]] - x[order[2]])

    def vjp(x, w):
        order, apart, one = steps(x)
        size, g = x[order[10]] - x[order[2]], np.zeros_like(x)
        for k, part in (
            (one, np.sign(apart[one]) * size),
            (order[6], -np.sign(apart[one]) * size),
            (order[10], np.abs(apart[one])),
            (order[2], -np.abs(apart[one])),
        ):
            g[k] += w * part
        return factor * g if np.unique(x).size < x.size else g

    return ByHand(f, vjp=vjp)


@pytest.mark.parametrize("seed", [9, 42, 71, 85])
def test_a_product_of_two_statistics_of_ties_is_right_and_twice_it_is_wrong(seed):
    x = np.random.default_rng(seed).integers(0, 4, 13).astype(float)
    right, wrong = (
        examine(deviation_times_range(factor), x, modes=["R"], seed=seed) for factor in (1.0, 2.0)
    )

    assert right.verdict is Verdict.PASS, str(right)
    assert wrong.verdict is Verdict.FAIL


def all_that_are_kept(x, w):
    ordered = np.sort(x, axis=-1)
    return w[:, None] / 8 * ((x >= ordered[:, 2:3]) & (x <= ordered[:, 9:10]))


def too_much_of_ties(x, w):
    g = spread_back(sorted_by(x), TRIMMED, w)
    return np.where(x == np.sort(x, axis=-1)[:, 2:3], 1.5 * g, g)


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("vjp", [all_that_are_kept, too_much_of_ties])
def test_wrong_order_statistics_of_whole_numbers_fail_at_every_seed(vjp, seed):
    rule = ByHand(lambda x: np.sort(x, axis=-1) @ TRIMMED, vjp=vjp)

    assert examine(rule, whole_numbers(seed), modes=["R"], seed=seed).verdict is Verdict.FAIL


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize(
    ("at_zero", "verdict"),
    [(0.0, Verdict.PASS), (0.5, Verdict.PASS), (-20.0, Verdict.FAIL), (30.0, Verdict.FAIL)],
)
def test_a_network_of_five_units_with_weights_of_both_signs(at_zero, verdict, seed):
    """Its secants at zero take more values than a few, which are all met again and again."""
    random = np.random.default_rng(103)
    W, v = random.normal(size=(2, 5)), random.normal(size=5)

    def vjp(x, w):
        units = x @ W
        return W @ (w * v * np.where(units > 0, 1.0, np.where(units == 0, at_zero, 0.0)))

    rule = ByHand(lambda x: np.maximum(x @ W, 0) @ v, vjp=vjp)

    assert examine(rule, np.zeros(2), modes=["R"], seed=seed).verdict is verdict


def rectified(x):
    return np.maximum(x, 0)


def at_random(seed):
    return np.random.default_rng(seed).normal(size=60)


KINKED = {
    "relu": (rectified, lambda x, w: w * (x > 0), ZEROS),
    "relu beside a sine": (
        lambda x: np.concatenate([rectified(x), np.sin(x)]),
        lambda x, w: w[: x.size] * (x > 0) + w[x.size :] * np.cos(x),
        ZEROS,
    ),
    "relu times a sine": (
        lambda x: rectified(x) * np.sin(x + 1),
        lambda x, w: w * ((x > 0) * np.sin(x + 1) + rectified(x) * np.cos(x + 1)),
        ZEROS,
    ),
    "a clip at its end beside a cube": (
        lambda x: np.concatenate([np.clip(x, 0, 3), x**3]),
        lambda x, w: w[: x.size] * ((x > 0) & (x < 3)) + w[x.size :] * 3 * x**2,
        ZEROS,
    ),
    "sizes and signs": (
        lambda x: np.stack([1e-6 * np.abs(x), x**2]),
        lambda x, w: w[0] * 1e-6 * np.sign(x) + w[1] * 2 * x,
        ZEROS,
    ),
    "one zero of many": (
        rectified, lambda x, w: w * (x > 0), np.where(np.arange(60) == 7, 0.0, at_random(5))
    ),
}  # fmt: skip
"""Functions with kinks in some outputs, with their gradients and an x."""
BY_ZEROS = {
    "right": lambda x: 1.0,
    "a mean of what is not zero": lambda x: x.size / np.count_nonzero(x),
    "a little too large beside zeros": lambda x: 1.0 + 0.02 * np.any(x == 0),
}


@over_seeds(10)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("factor", BY_ZEROS)
@pytest.mark.parametrize("name", KINKED)
def test_a_kink_excuses_no_output_but_its_own(name, factor, dtype, seeds):
    """The rules are right at every point beside x."""
    f, vjp, x = KINKED[name]
    rule = ByHand(f, vjp=lambda x, w: (BY_ZEROS[factor](x) * vjp(x, w)).astype(x.dtype))

    for seed in seeds if dtype is np.float64 else seeds[:2]:
        verdict = examine(rule, x.astype(dtype), modes=["R"], seed=seed, blame=False).verdict
        assert verdict is (Verdict.PASS if factor == "right" else Verdict.FAIL)


@pytest.mark.parametrize(
    ("automatic", "meaning"),
    [(1.5, Meaning.KINK), (2.0005, Meaning.KINK), (2.1, Meaning.KINK_ELSEWHERE)],
)
def test_only_what_lies_between_the_slopes_is_said_to(automatic, meaning):
    """Slopes that do not add up excuse what lies outside of them."""
    method = Method(Scheme.CENTRAL_LADDER, 30)
    entry = Entry("R", "out", "inputs[0]", automatic, 1.5, 1e-9, 1e-3, method, slopes=(1.0, 2.0))

    assert open_reason(entry)[1] is meaning


LOST_TO_ROUNDING = {
    "log(1 + x)": (lambda x: np.log(1 + x), lambda x: 1 / (1 + x), 1e-17),
    "1 - cos x": (lambda x: 1 - np.cos(x), np.sin, 1e-9),
    "a loss that has vanished": (
        lambda x: np.log(1 + np.exp(-x)),
        lambda x: -1 / (1 + np.exp(x)),
        40.0,
    ),
}


@over_seeds(10)
@pytest.mark.parametrize("name", LOST_TO_ROUNDING)
@pytest.mark.parametrize("size", [2, 8])
def test_equal_entries_at_which_f_is_zero_by_rounding_are_no_ties(name, size, seeds):
    f, slope, at = LOST_TO_ROUNDING[name]

    def total(error):
        return ByHand(lambda x: np.sum(f(x)), vjp=lambda x, w: w * (slope(x) + error))

    for seed in seeds:
        x = np.full(size, at)
        # differences show nothing here, and what does is an exact reference
        assert examine(total(0.0), x, seed=seed, mode="full").verdict is not Verdict.FAIL
        assert examine(total(1e-3), x, seed=seed, mode="full").verdict is not Verdict.PASS
