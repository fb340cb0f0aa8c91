"""Functions that are smooth over short steps only: a right rule passes, and a wrong one fails."""

import numpy as np
import pytest
from scenarios import over_seeds

from adjudge import ByHand, Verdict, examine

SEEDS = range(10)


def fast(rate, error=1.0):
    def vjp(x, w):
        g = w * x.dtype.type(rate) * np.cos(x.dtype.type(rate) * x)
        g[np.argmax(np.abs(g))] *= error
        return g

    return ByHand(lambda x: np.sin(x.dtype.type(rate) * x), vjp=vjp)


def fourier(rates, error=1.0):
    def vjp(x, w):
        a = np.asarray(rates)[:, None]
        return error * np.sum(w * a * np.cos(a * x), axis=0)

    return ByHand(lambda x: np.sin(np.asarray(rates)[:, None] * x), vjp=vjp)


def ordered(error=1.0):
    def vjp(x, w):
        g = np.empty_like(x)
        g[np.argsort(x)] = w * np.arange(x.size)
        g[::3] *= error
        return g

    return ByHand(lambda x: np.sort(x) * np.arange(x.size), vjp=vjp)


CASES = {
    "sin(1e6 x)": (lambda error: fast(1e6, error), 5, "float64"),
    "sin(1e6 x) in float32": (lambda error: fast(1e6, error), 5, "float32"),
    "sin(1e7 x)": (lambda error: fast(1e7, error), 3, "float64"),
    "sin(1e8 x)": (lambda error: fast(1e8, error), 5, "float64"),
    "Fourier features": (lambda error: fourier(2.0 ** np.arange(20), error), 4, "float64"),
    "sorting 2000 numbers": (ordered, 2000, "float64"),
}


@over_seeds(10)
@pytest.mark.parametrize("name", CASES)
def test_a_right_rule_passes_at_every_seed(name, seeds):
    make, size, dtype = CASES[name]

    for seed in seeds:
        x = np.random.default_rng(seed).normal(size=size).astype(dtype)

        assert examine(make(1.0), x, mode="projected", seed=seed).verdict is Verdict.PASS


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_rule_fails_at_every_seed(name):
    make, size, dtype = CASES[name]

    for seed in SEEDS[:4]:
        x = np.random.default_rng(seed).normal(size=size).astype(dtype)

        rule = make((2.0, -1.0)[seed % 2])

        assert examine(rule, x, mode="projected", seed=seed, blame=False).verdict is Verdict.FAIL


def quantile(part, error=1.0):
    """A quantile between two numbers, whose weights lose digits with their rank."""

    def weights(x):
        rank = x.dtype.type(part) * x.dtype.type(x.size - 1)
        return int(rank), rank - np.floor(rank)

    def f(x):
        k, t = weights(x)
        y = np.sort(x)
        return y[k] + t * (y[k + 1] - y[k])

    def vjp(x, w):
        k, t = weights(x)
        order, g = np.argsort(x), np.zeros_like(x)
        g[order[k]], g[order[k + 1]] = (1 - t) * w, error * t * w
        return g

    return ByHand(f, vjp=vjp)


@over_seeds(10)
@pytest.mark.parametrize(
    ("error", "verdict"), [(1.0, Verdict.PASS), (1.1, Verdict.FAIL), (-1.0, Verdict.FAIL)]
)
def test_what_selects_is_off_no_farther_than_it_selects(error, verdict, seeds):
    for seed in seeds:
        x = np.random.default_rng(seed).normal(size=1000).astype("float32")

        assert examine(quantile(0.3, error), x, seed=seed).verdict is verdict


@over_seeds(10)
@pytest.mark.parametrize(("part", "verdict"), [(1.0, Verdict.PASS), (0.0, Verdict.FAIL)])
def test_the_slope_between_two_roundings_decides_nothing(part, verdict, seeds):
    """Between two roundings to float32 this function has the slope of the rule without a term."""

    def half(x):
        return np.tanh(x.astype(np.float32))

    def vjp(x, w):
        return w * (half(x) + part * x * (1 - half(x) ** 2))

    for seed in seeds:
        x = np.random.default_rng(seed).normal(size=8)
        rule = ByHand(lambda x: half(x).astype(np.float64) * x, vjp=vjp)

        assert examine(rule, x, mode="projected", seed=seed).verdict is verdict


@over_seeds(10)
@pytest.mark.parametrize("offset", [1e8, 1e10, 1e11])
def test_the_line_between_two_roundings_proves_no_rule_wrong(offset, seeds):
    """f is what x loses by rounding to a coarse lattice: zero at large, and minus x in between."""
    rule = ByHand(lambda x: (x + offset) - offset - x, vjp=lambda x, w: 0 * w)

    for seed in seeds:
        x = np.random.default_rng(seed).normal(size=4)

        assert examine(rule, x, mode="projected", seed=seed).verdict is not Verdict.FAIL


@over_seeds(10)
def test_a_wrong_rule_beside_a_stair_fails(seeds):
    """A jump farther off than the first steps excuses nothing."""
    x = np.array([0.99, 1.01, 2.003, -0.997])
    for seed in seeds:
        for factor, verdict in ((1.0, Verdict.PASS), (1.01, Verdict.FAIL)):
            rule = ByHand(
                lambda x: np.floor(x) + np.sin(x), vjp=lambda x, w, c=factor: c * w * np.cos(x)
            )
            assert examine(rule, x, seed=seed).verdict is verdict


@pytest.mark.parametrize("distance", [3e-8, 1e-7, 3e-7])
@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.0, Verdict.PASS), (1.01, Verdict.FAIL), (-1.0, Verdict.FAIL)]
)
def test_steps_beyond_a_kink_close_to_x_overrule_no_shorter_ones(distance, factor, verdict):
    x, kink = np.array([0.5]), 0.5 + distance
    rule = ByHand(
        lambda x: 3 * x + np.abs(x - kink),
        vjp=lambda x, w: factor * w * (3 + np.sign(x - kink)),
    )
    for seed in range(3):
        assert examine(rule, (x,), seed=seed).verdict is verdict


def table(error=1.0):
    """A table read at times in seconds, with a cell of a minute."""
    values = np.array([3.0, 5.0, 4.0, 9.0, 2.0, 6.0])

    def cell(t):
        u = np.clip((t - 1.7e9) / 60, 0, 5)
        i = np.clip(np.floor(u).astype(int), 0, 4)
        return u, i, values[i + 1] - values[i]

    def f(t):
        u, i, slope = cell(t)
        return values[i] + slope * (u - i)

    def vjp(t, w):
        u, _, slope = cell(t)
        return error * w * slope / 60 * ((u > 0) & (u < 5))

    return ByHand(f, vjp=vjp)


@over_seeds(40, always=10)
def test_ladders_refute_nothing_that_is_too_fast_for_all_their_steps(seeds):
    at_a_knot = 1.7e9 + np.array([30.0, 60.0, 95.0, 200.0, 250.0])

    for seed in seeds:
        right = examine(table(), at_a_knot, mode="projected", seed=seed, blame=False)
        wrong = examine(table(-1.0), at_a_knot, mode="projected", seed=seed, blame=False)

        assert right.verdict is not Verdict.FAIL, right
        assert wrong.verdict is not Verdict.PASS, wrong


def logistic(u):
    return 1 / (1 + np.exp(-u))


OFFSETS = {
    "a logistic at 1e7": (lambda u: logistic(u), lambda u: logistic(u) * logistic(-u), 1e7, 1.0),
    "a logistic at 3e6": (lambda u: logistic(u), lambda u: logistic(u) * logistic(-u), 3e6, 1.0),
    "a bump of 5 m": (lambda u: np.exp(-u * u), lambda u: -2 * u * np.exp(-u * u), 4.6e6, 5.0),
    "a decay within a minute": (lambda u: np.exp(u), lambda u: np.exp(u), 1.7e9, 60.0),
}
MISTAKES = {
    "one entry 2 % off": lambda g: np.where(np.arange(g.size) == 3, 1.02 * g, g),
    "one sign": lambda g: np.where(np.arange(g.size) == 3, -g, g),
    "twice": lambda g: 2 * g,
    "the sign": lambda g: -g,
}


def scaled_at(name, mistake=lambda g: g, other=1.0):
    """A factor `a` times a fast function of `x`, and both inputs."""
    phi, slope, offset, width = OFFSETS[name]

    def vjp(x, a, w):
        u = (x - offset) / width
        return mistake(w * a * slope(u) / width), other * w * phi(u)

    def inputs(seed):
        random = np.random.default_rng(seed)
        return offset + width * random.normal(size=7), random.normal(size=7) + 2

    return ByHand(lambda x, a: a * phi((x - offset) / width), vjp=vjp), inputs


@over_seeds(10)
@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("name", OFFSETS)
def test_a_factor_that_moves_hides_no_mistake_in_a_fast_function(name, mistake, seeds):
    # its slopes over longer steps add up to nothing, and points beside that are where all is flat
    right, inputs = scaled_at(name)
    wrong, _ = scaled_at(name, MISTAKES[mistake])

    for seed in seeds:
        assert examine(right, inputs(seed), seed=seed).verdict is Verdict.PASS
        assert examine(wrong, inputs(seed), seed=seed, blame=False).verdict is not Verdict.PASS


@over_seeds(10)
@pytest.mark.parametrize("name", OFFSETS)
def test_a_fast_input_is_not_called_wrong_beside_one_that_is(name, seeds):
    wrong, inputs = scaled_at(name, other=2.0)

    for seed in seeds:
        report = examine(wrong, inputs(seed), seed=seed)
        assert report.verdict is Verdict.FAIL
        assert "inputs[0]  WRONG" not in str(report)
        assert "inputs[1]  WRONG" in str(report)


@over_seeds(10)
@pytest.mark.parametrize("rate", [2 * np.pi, 2 * np.pi * 10])
def test_a_hint_says_no_other_factor_than_the_finding(rate, seeds):
    wrong = ByHand(lambda t: np.sin(rate * t), vjp=lambda t, w: 2 * w * rate * np.cos(rate * t))

    for seed in seeds:
        t = 1e5 + np.random.default_rng(seed).uniform(size=8)
        said = str(examine(wrong, t, seed=seed))
        assert "times the reference" not in said or "is 2 times the reference" in said
        assert "where the reference is zero" not in said


def log_determinant(seed, error):
    """Of a matrix of condition 1e12: short steps see its rounding alone, and agree."""
    random = np.random.default_rng(seed)
    left, right = (np.linalg.qr(random.normal(size=(4, 4)))[0] for _ in range(2))
    rule = ByHand(
        lambda a: np.linalg.slogdet(a)[1], vjp=lambda a, w: error * w * np.linalg.inv(a).T
    )
    return rule, left @ np.diag(np.logspace(0, -12, 4)) @ right


@over_seeds(10, always=4)
def test_an_ill_conditioned_rule_does_not_fail_by_steps_that_are_too_long_for_it(seeds):
    verdicts = []
    for seed in seeds:
        right = examine(*log_determinant(seed, 1.0), mode="projected", seed=seed, blame=False)
        wrong = examine(*log_determinant(seed, -1.0), mode="projected", seed=seed, blame=False)
        verdicts.append(wrong.verdict)
        assert right.verdict is Verdict.INCONCLUSIVE
    assert Verdict.PASS not in verdicts
    assert Verdict.FAIL in verdicts
