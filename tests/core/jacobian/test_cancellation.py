"""Right rules that cancel: their rounding is far above a unit of rounding, and no error."""

import numpy as np
import pytest
from scenarios import long, over_seeds, seeds

from adjudge import ByHand, Status, Verdict, examine

SEEDS = range(10)
FEW = range(3)
"""The seeds of full mode, which has the tangents of the entries."""
POINTS = {
    "from 1e-3 on": [1e-3, 1e-2, 1.0],
    "one entry at 1e-4": [1e-4, 0.3, 2.0],
    "from 1e-5 on": [1e-5, 1e-3, 0.1],
}
RULES = {
    "(1 - cos x) / x^2": (
        lambda x: (1 - np.cos(x)) / x**2,
        lambda x: np.sin(x) / x**2 - 2 * (1 - np.cos(x)) / x**3,
    ),
    "(exp x - 1 - x) / x^2": (
        lambda x: (np.exp(x) - 1 - x) / x**2,
        lambda x: (np.exp(x) - 1) / x**2 - 2 * (np.exp(x) - 1 - x) / x**3,
    ),
    "(log1p x - x) / x^2": (
        lambda x: (np.log1p(x) - x) / x**2,
        lambda x: (1 / (1 + x) - 1) / x**2 - 2 * (np.log1p(x) - x) / x**3,
    ),
    "(sqrt(1 + x) - 1) / x": (
        lambda x: (np.sqrt(1 + x) - 1) / x,
        lambda x: 0.5 / np.sqrt(1 + x) / x - (np.sqrt(1 + x) - 1) / x**2,
    ),
    "log(1 + x) / x": (
        lambda x: np.log(1 + x) / x,
        lambda x: 1 / (1 + x) / x - np.log(1 + x) / x**2,
    ),
    "(exp x - exp -x) / 2x": (
        lambda x: (np.exp(x) - np.exp(-x)) / (2 * x),
        lambda x: (np.exp(x) + np.exp(-x)) / (2 * x) - (np.exp(x) - np.exp(-x)) / (2 * x**2),
    ),
}


def rule(name, factor=1.0):
    f, slope = RULES[name]
    return ByHand(f, vjp=lambda x, w: w * slope(x) * factor)


@over_seeds(10)
@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("at", POINTS)
@pytest.mark.parametrize("name", RULES)
def test_a_right_rule_that_cancels_does_not_fail(name, at, mode, seeds):
    for seed in seeds if mode == "projected" else seeds[::3]:
        report = examine(rule(name), np.array(POINTS[at]), mode=mode, seed=seed)

        assert report.verdict is not Verdict.FAIL, (seed, str(report))


CHANCE = [
    # f, its derivative, the range of x, its seed, and seeds of checks that measure too little noise
    ("1 - cos x", (lambda x: 1 - np.cos(x), np.sin), (2e-3, 1e-2), 13, (1, 13)),
    ("x - sin x", (lambda x: x - np.sin(x), lambda x: 1 - np.cos(x)), (1e-4, 1e-3), 42, (42,)),
    (
        "(1 - cos x) / x^2",
        (
            lambda x: (1 - np.cos(x)) / x**2,
            lambda x: (x * np.sin(x) - 2 * (1 - np.cos(x))) / x**3,
        ),
        (2e-3, 1e-2),
        48,
        (48,),
    ),
]


@pytest.mark.parametrize(("name", "both", "bounds", "drawn", "seeds"), CHANCE)
def test_noise_that_is_measured_too_small_by_chance_fails_no_right_rule(
    name, both, bounds, drawn, seeds
):
    (f, slope), random = both, np.random.default_rng(drawn)
    x = random.uniform(*bounds, 6) * np.where(random.random(6) < 0.3, -1, 1)
    for seed in {*seeds, *SEEDS[:2]}:
        right = examine(ByHand(f, vjp=lambda x, w: w * slope(x)), x, seed=seed)
        wrong = examine(ByHand(f, vjp=lambda x, w: w * slope(x) * 1.01), x, seed=seed)

        assert right.verdict is not Verdict.FAIL, (seed, str(right))
        assert wrong.verdict is Verdict.FAIL, (seed, str(wrong))


TERM_BY_TERM = {
    "(1 - cos x) / x^2": lambda x, w: w * np.sin(x) / x**2 - 2 * w * (1 - np.cos(x)) / x**3,
    "(exp x - 1 - x) / x^2": lambda x, w: (
        (w * np.exp(x) - w) / x**2 - 2 * (w * np.exp(x) - w - w * x) / x**3
    ),
    "(log1p x - x) / x^2": lambda x, w: (
        (w / (1 + x) - w) / x**2 - 2 * (w * np.log1p(x) - w * x) / x**3
    ),
}


@over_seeds(10, always=3)
@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("at", ["from 1e-3 on", "one entry at 1e-4"])
@pytest.mark.parametrize("name", TERM_BY_TERM)
def test_rounding_of_terms_that_cancel_breaks_no_additivity(name, at, mode, seeds):
    """The terms are rounded as the cotangent has them, and not alike for a sum of two."""
    rule = ByHand(RULES[name][0], vjp=TERM_BY_TERM[name])
    for seed in seeds if mode == "projected" else seeds[:3]:
        report = examine(rule, np.array(POINTS[at]), mode=mode, seed=seed)

        assert Status.NONLINEAR not in {finding.status for finding in report.findings}, seed


@pytest.mark.parametrize("seed", seeds(10))
def test_a_rule_that_is_not_additive_fails_though_its_terms_cancel(seed):
    right = TERM_BY_TERM["(1 - cos x) / x^2"]
    rule = ByHand(
        RULES["(1 - cos x) / x^2"][0],
        vjp=lambda x, w: right(x, w) * (1 + 1e-2 * (np.abs(w) > np.abs(w).mean())),
    )

    report = examine(rule, np.array(POINTS["from 1e-3 on"]), seed=seed)

    assert report.verdict is Verdict.FAIL


@pytest.mark.parametrize("seed", FEW)
@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("factor", [-1.0, 0.0, 1.01])
def test_a_wrong_rule_that_cancels_fails(name, factor, seed):
    # At 1e-2 no rule loses more than nine of its sixteen digits.
    report = examine(rule(name, factor), np.array([1e-2, 0.3, 2.0]), mode="full", seed=seed)

    assert report.verdict is Verdict.FAIL


@pytest.mark.parametrize("seed", FEW)
@pytest.mark.parametrize("error", [1e-2, 1e-4])
def test_rounding_beside_a_wrong_entry_does_not_excuse_it(error, seed):
    """The wrong entry is where f is quiet; the rule cancels at another one."""
    f, slope = RULES["(1 - cos x) / x^2"]
    factor = np.array([1.0, 1.0, 1.0 + error])
    wrong = ByHand(f, vjp=lambda x, w: w * slope(x) * factor)

    report = examine(wrong, np.array([1e-3, 1e-2, 1.0]), mode="full", seed=seed)

    assert report.verdict is Verdict.FAIL
    assert "inputs[0][2]" in report.findings[0].entry


STEEP = {
    "a singularity close by": (lambda x: np.sqrt(x - 1), lambda x: 0.5 / np.sqrt(x - 1), 1 + 1e-4),
    "many periods": (np.sin, np.cos, 1e4 + 0.3),
    "a high power": (lambda x: x**20, lambda x: 20 * x**19, 1.3),
    "a narrow peak": (
        lambda x: np.exp(-((x - 1) ** 2) * 1e6),
        lambda x: -2e6 * (x - 1) * np.exp(-((x - 1) ** 2) * 1e6),
        1 + 5e-4,
    ),
}


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("name", STEEP)
def test_what_is_smooth_and_steep_is_no_scatter(name, seed):
    """Over the distances at which scatter is looked for, these derivatives are not straight."""
    f, slope, x = STEEP[name]
    wrong = ByHand(f, vjp=lambda x, w: w * slope(x) * (1 + 1e-3))

    assert examine(wrong, np.array([x]), seed=seed).verdict is Verdict.FAIL


def with_wrong_entry(name, at, entry):
    f, slope = RULES[name]

    def vjp(x, w):
        gradient = w * slope(x)
        gradient[entry] *= 1.01
        return gradient

    return ByHand(f, vjp=vjp), np.array([*POINTS[at], 0.7, 1.3, 2.9])


@over_seeds(10)
@pytest.mark.parametrize("at", POINTS)
@pytest.mark.parametrize("name", ["(1 - cos x) / x^2", "(sqrt(1 + x) - 1) / x"])
def test_a_wrong_entry_beside_one_that_cancels_is_the_one_that_is_named(name, at, seeds):
    """What the rounding of the rule is off by stays far below what is wrong."""
    for seed in seeds:
        report = examine(*with_wrong_entry(name, at, 4), mode="projected", seed=seed)

        assert report.verdict is not Verdict.PASS, seed
        named = {(entry.of, entry.wrt) for entry in report.entries if "along" not in entry.wrt}
        assert named <= {("out[4]", "inputs[0][4]")}, (seed, str(report))


NAIVE = {
    "(1 + x) - 1": (lambda x: (1 + x) - 1, np.ones_like),
    "log(1 + x)": (lambda x: np.log(1 + x), lambda x: 1 / (1 + x)),
    "exp(x) - 1": (lambda x: np.exp(x) - 1, np.exp),
    "1 - cos x": (lambda x: 1 - np.cos(x), np.sin),
    "sqrt(1 + x) - 1": (lambda x: np.sqrt(1 + x) - 1, lambda x: 0.5 / np.sqrt(1 + x)),
}


@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("name", NAIVE)
@pytest.mark.parametrize("decades", [range(5, 14, 3), long(range(6, 14, 3)), long(range(7, 14, 3))])
def test_stairs_that_rounding_beside_1_makes_are_no_staircase(decades, name, mode):
    f, slope = NAIVE[name]
    for seed, size in enumerate(10.0**-decade for decade in decades):
        x = size * np.asarray([1.137, 0.731, 1.93, 0.39])
        right = ByHand(f, vjp=lambda x, w: w * slope(x))

        assert examine(right, x, mode=mode, seed=seed).verdict is not Verdict.FAIL, size


@over_seeds(10, always=3)
@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("large", [1e8, 1e9, 1e10])
def test_rounding_that_does_not_depend_on_x_is_no_error(large, mode, seeds):
    """It is the same at all points beside x, and another one for a part of the probe."""
    x = np.asarray([0.3, 1.2, -0.4, 2.0])

    def vjp(x, w, error):
        return (large * w + w * np.cos(x)) - large * w + error * w * np.cos(x)

    for error, right in ((0.0, Verdict.PASS), (1e-3, Verdict.FAIL)):
        rule = ByHand(np.sin, vjp=lambda x, w, error=error: vjp(x, w, error))
        found = [examine(rule, x, mode=mode, seed=seed, blame=False) for seed in seeds]
        assert [report.verdict for report in found] == [right] * len(seeds)


def normalised(size, error):
    """Returns a layer norm at 1e4, with a rule that computes the deviation from the mean square,
    and a point.
    """

    def vjp(x, w):
        deviation = np.sqrt((x**2).mean() - x.mean() ** 2)
        h = (x - x.mean()) / deviation
        return (w - w.mean() - h * (w * h).mean()) / deviation * (1 + error)

    x = np.random.default_rng(5).normal(size=size) + 1e4
    return ByHand(lambda x: (x - x.mean()) / x.std(), vjp=vjp), (x,)


def least_squares(size, error):
    """Returns the solution of least squares with a condition of 1e4, with a rule by the inverse of
    the normal equations, and a point.
    """
    random = np.random.default_rng(5)
    left = np.linalg.qr(random.normal(size=(2 * size, size)))[0]
    right = np.linalg.qr(random.normal(size=(size, size)))[0]

    def f(A, b):
        Q, R = np.linalg.qr(A)
        return np.linalg.solve(R, Q.T @ b)

    def vjp(A, b, w):
        x, u = f(A, b), np.linalg.inv(A.T @ A) @ w * (1 + error)
        return np.outer(b - A @ x, u) - np.outer(A @ u, x), A @ u

    A = left * np.logspace(0, -4, size) @ right.T
    return ByHand(f, vjp=vjp), (A, random.normal(size=2 * size))


def energy(size, error):
    """Returns sines of a matrix product, with a rule by central differences, and a point: each
    entry of the gradient has a rounding of its own.
    """
    random = np.random.default_rng(5)
    A = random.normal(size=(size, size)) / size**0.5

    def f(x):
        return np.sin(A @ x)

    def vjp(x, w):
        moves = 1e-7 * np.eye(size)
        slopes = [(w @ f(x + one) - w @ f(x - one)) / 2e-7 for one in moves]
        return np.array(slopes) * (1 + error)

    return ByHand(f, vjp=vjp), (random.normal(size=size),)


@over_seeds(10)
@pytest.mark.parametrize(
    ("made", "size", "mode"),
    [
        (normalised, 4, "full"),
        (normalised, 30, "projected"),
        (least_squares, 4, "projected"),
        (energy, 8, "full"),
        # each entry of a matrix by itself, which takes seconds
        long(normalised, 4, "projected"),
        long(normalised, 30, "full"),
        long(least_squares, 4, "full"),
        long(energy, 8, "projected"),
    ],
)
def test_a_rule_that_loses_half_of_its_digits_is_told_from_a_wrong_one(made, size, mode, seeds):
    for seed in seeds:
        right, wrong = (
            examine(*made(size, error), mode=mode, seed=seed, blame=False) for error in (0, 1e-4)
        )
        assert right.verdict is Verdict.PASS, right
        assert wrong.verdict is Verdict.FAIL, wrong


def in_bits(numbers, bits):
    """Returns the numbers rounded to so many bits."""
    parts, powers = np.frexp(numbers)
    return np.ldexp(np.round(parts * 2.0**bits) / 2.0**bits, powers)


CAST = {
    "branches": (
        lambda x: np.where(x > 0.1, 2.5 * np.sin(x), x * x),
        lambda x, w: w * np.where(x > 0.1, 2.5 * np.cos(x), 2 * x),
    ),
    "a Huber loss": (
        lambda x: np.where(np.abs(x) < 1, x * x / 2, np.abs(x) - 0.5) @ np.cos(x.T),
        lambda x, w: (
            w @ np.cos(x) * np.clip(x, -1, 1)
            - (w.T @ np.where(np.abs(x) < 1, x * x / 2, np.abs(x) - 0.5)) * np.sin(x)
        ),
    ),
}


@over_seeds(10)
@pytest.mark.parametrize("bits", [8, 11, 53])
@pytest.mark.parametrize("name", CAST)
def test_a_gradient_in_sixteen_bits_is_no_rounding_of_double_precision(name, bits, seeds):
    """A part of the probe has other digits there, as a rule has in which large terms cancel."""
    f, vjp = CAST[name]
    rule = ByHand(f, vjp=lambda x, w: in_bits(vjp(x, w), bits))
    x = np.random.default_rng(3).normal(size=(3, 5))
    for seed in seeds:
        report = examine(rule, x, seed=seed, blame=False)
        assert report.verdict is (Verdict.PASS if bits == 53 else Verdict.FAIL), report


STEPS = {
    "coth": (
        lambda x: np.where(x < 0.05, x / 3 - x**3 / 45, 1 / np.tanh(x) - 1 / x),
        lambda x: 1 / x**2 - 1 / np.sinh(x) ** 2,
    ),
    "cosecant": (
        lambda x: np.where(x < 0.05, x / 6 + 7 * x**3 / 360, 1 / np.sin(x) - 1 / x),
        lambda x: 1 / x**2 - np.cos(x) / np.sin(x) ** 2,
    ),
}


@over_seeds(10, always=5)
@pytest.mark.parametrize("x", [[1e-5], [1e-5, 0.3, 2.0], [2e-5, 1.3e-5], [2e-5, 1.0, 0.2]])
@pytest.mark.parametrize("name", STEPS)
def test_a_right_rule_that_changes_by_steps_passes(name, x, seeds):
    """Its terms are 1e10 times its value, which most moves of x by one unit do not change."""
    f, slope = STEPS[name]
    for seed in seeds:
        for part, right in ((0.0, Verdict.PASS), (1e-3, Verdict.FAIL)):
            rule = ByHand(f, vjp=lambda x, w, part=part: (1 + part) * w * slope(x))
            report = examine(rule, np.asarray(x), seed=seed, blame=False)
            assert report.verdict is right, report
