"""Verdicts do not depend on units, and low precision is judged as such."""

import numpy as np
import pytest
from scenarios import over_seeds

from adjudge import ByHand, Verdict, examine

SCALES = [1e-12, 1e-6, 1e-3, 1.0, 1e3, 1e6, 1e12]


def rule(scale_of_f, scale_of_x, error=1.0):
    def forward(x):
        return scale_of_f * np.sin(x / scale_of_x)

    def vjp(x, w):
        return error * w * scale_of_f * np.cos(x / scale_of_x) / scale_of_x

    return ByHand(forward, vjp=vjp)


UNITS = [*((of_f, 1.0) for of_f in SCALES), *((1.0, of_x) for of_x in SCALES if of_x != 1.0)]
EXTREMES = [(of_f, of_x) for of_f in (1e-12, 1e-3, 1e12) for of_x in (1e-12, 1e6, 1e12)]


@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize(("of_f", "of_x"), [*UNITS, *EXTREMES])
def test_units_of_f_and_x_change_no_verdict(of_f, of_x, mode):
    x = of_x * np.asarray([0.3, -1.2, 0.8, 2.0])

    verdicts = [
        examine(rule(of_f, of_x, error), x, mode=mode, seed=0).verdict
        for error in (1.0, -1.0, 1.0001)
    ]

    assert [Verdict.PASS, Verdict.FAIL, Verdict.FAIL] == verdicts


@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("of_f", [1e-300, 1e-200, 1e-155, 1e155, 1e200, 1e300])
def test_a_derivative_whose_square_leaves_the_range_of_floats_is_judged(of_f, mode):
    x = np.asarray([0.3, -1.2, 0.8, 2.0])

    verdicts = [
        examine(rule(of_f, 1.0, error), x, mode=mode, seed=0).verdict
        for error in (1.0, -1.0, 1.0001)
    ]

    assert [Verdict.PASS, Verdict.FAIL, Verdict.FAIL] == verdicts


@pytest.mark.parametrize("scale", SCALES)
def test_powers_of_two_change_no_digit_of_what_is_compared(scale):
    factor = 2.0 ** round(np.log2(scale))
    x = np.asarray([0.3, -1.2, 0.8, 2.0])

    one = examine(rule(1.0, 1.0, 1.01), x, seed=0)
    scaled = examine(rule(factor, 1.0, 1.01), x, seed=0)

    assert [factor * entry.reference for entry in one.entries] == [
        entry.reference for entry in scaled.entries
    ]


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_inputs_of_different_units_each_get_their_own_step(mode):
    a, b = np.asarray([1.5e-9, 2e-9]), np.asarray([3e9, 1e9])
    right = ByHand(lambda a, b: a * b**2, vjp=lambda a, b, w: (w * b**2, 2 * w * a * b))
    wrong = ByHand(lambda a, b: a * b**2, vjp=lambda a, b, w: (w * b**2, w * a * b))

    reports = [examine(rule, (a, b), mode=mode) for rule in (right, wrong)]

    assert [Verdict.PASS, Verdict.FAIL] == [report.verdict for report in reports]


TINY = {
    "exp": (np.exp, np.exp, np.cos(np.arange(8) * np.pi / 4)),
    "sin": (np.sin, np.cos, np.sin(np.arange(8) * np.pi / 2)),
    "log": (np.log, lambda x: 1 / x, np.asarray([1.0, 1e-20, 2.0, 3.0])),
    "sqrt": (np.sqrt, lambda x: 0.5 / np.sqrt(x), np.asarray([1.0, 1e-20, 2.0, 3.0])),
    "cosh": (np.cosh, np.sinh, np.asarray([1.0, 1e-20, 2.0, 3.0])),
}


@over_seeds(10)
@pytest.mark.parametrize("name", TINY)
def test_an_entry_below_the_rounding_of_its_leaf_is_judged(name, seeds):
    function, slope, x = TINY[name]
    tiny = np.abs(x) < 1e-15

    def rule(factor):
        # The cosine is stationary there, and what is wrong is its value, not its size.
        off = factor if name != "cosh" else 1.0
        extra = 0.0 if name != "cosh" else factor - 1
        return ByHand(
            function, vjp=lambda x, w: w * (slope(x) * np.where(tiny, off, 1.0) + extra * tiny)
        )

    for seed in seeds:
        assert examine(rule(1.0), x, mode="full", seed=seed).verdict is Verdict.PASS, seed
        assert examine(rule(1.01), x, mode="full", seed=seed).verdict is Verdict.FAIL, seed


def test_a_tiny_gradient_of_the_wrong_sign_fails():
    reports = [
        examine(ByHand(lambda x: 1e-7 * x, vjp=lambda x, w, c=c: c * w), np.ones(3))
        for c in (1e-7, -3e-7)
    ]

    assert [Verdict.PASS, Verdict.FAIL] == [report.verdict for report in reports]


@pytest.mark.parametrize(("mode", "n"), [("full", 3), ("projected", 3), ("projected", 300)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, np.longdouble])
def test_every_precision_passes_right_and_fails_wrong(dtype, mode, n):
    x = np.linspace(0.5, 2.0, n).astype(dtype)

    verdicts = [
        examine(
            ByHand(np.log, vjp=lambda x, w, c=c: (c * w / x).astype(dtype)), x, mode=mode, seed=0
        ).verdict
        for c in (1.0, -1.0, 2.0)
    ]

    assert [Verdict.PASS, Verdict.FAIL, Verdict.FAIL] == verdicts


def test_float32_resolves_one_percent():
    x = np.linspace(0.5, 2.0, 5).astype(np.float32)

    report = examine(ByHand(np.sin, vjp=lambda x, w: np.float32(1.01) * w * np.cos(x)), x)

    assert report.verdict is Verdict.FAIL


def test_float64_resolves_one_part_in_a_million_and_states_its_resolution():
    x = np.linspace(0.5, 2.0, 5)

    wrong = examine(ByHand(np.sin, vjp=lambda x, w: (1 + 1e-6) * w * np.cos(x)), x)
    right = examine(ByHand(np.sin, vjp=lambda x, w: w * np.cos(x)), x)

    assert wrong.verdict is Verdict.FAIL
    assert right.resolution < 1e-4


def rounded(x):
    return np.asarray(np.sin(x).astype(np.float32), dtype=np.float64)


@pytest.mark.parametrize("n", [2, 5, 200])
def test_a_function_that_rounds_to_float32_inside_is_not_passed_when_wrong(n):
    x = np.linspace(0.3, 1.2, n)

    report = examine(ByHand(rounded, vjp=lambda x, w: -w * np.cos(x)), x, seed=0)

    assert report.verdict is not Verdict.PASS


def test_a_derivative_below_the_rounding_of_the_function_is_not_passed_when_wrong():
    x = np.asarray([0.3, 1.2], dtype=np.float32)
    rule = ByHand(lambda x: np.float32(1e6) + np.sin(x), vjp=lambda x, w: -w * np.cos(x))

    report = examine(rule, x, seed=0)

    assert report.verdict is not Verdict.PASS


def test_a_function_that_rounds_to_float32_inside_is_not_called_wrong():
    x = np.asarray([0.3, 1.2])

    report = examine(ByHand(rounded, vjp=lambda x, w: w * np.cos(x)), x, seed=0)

    assert report.verdict is not Verdict.FAIL


def test_fixed_tolerances_are_those_of_the_caller():
    rule = ByHand(np.sin, vjp=lambda x, w: 1.001 * w * np.cos(x))
    x = np.asarray([0.3, 1.2])

    loose = examine(rule, x, rtol=1e-2, atol=0)
    tight = examine(rule, x, rtol=1e-4, atol=0)

    assert loose.verdict is Verdict.PASS
    assert tight.verdict is Verdict.FAIL


TOLERANCES = [{"rtol": 0.1}, {"rtol": 1e-3}, {"atol": 1e-9}, {"atol": 1e-15}, {"rtol": 1e-12}]


@over_seeds(10)
@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("given", TOLERANCES)
def test_what_a_caller_allows_comes_on_top_of_what_differences_cannot_see(given, mode, seeds):
    """A matrix whose zeros come back as units of rounding, and one with a wrong sign in it."""
    M = np.asarray([[0.7, 0.0, -3.1], [0.0, 1.3, 0.4]])
    rounded = M + np.where(M == 0, 2e-16, 0.0)
    wrong = np.where(M == 0.7, -0.75, M)
    x = np.asarray([0.3, 1.2, -0.8])

    for seed in seeds:
        verdicts = [
            examine(ByHand(lambda x: M @ np.sin(x), vjp=vjp), x, seed=seed, mode=mode, **given)
            for vjp in (lambda x, w, A=A: A.T @ w * np.cos(x) for A in (rounded, wrong))
        ]

        assert [Verdict.PASS, Verdict.FAIL] == [report.verdict for report in verdicts]


def resonator(error=1.0):
    """The output of a filter of two poles next to the unit circle, by its coefficients."""
    count = 200
    driven = np.sin(0.3 * np.arange(count)) + 0.1 * np.random.default_rng(0).normal(size=count)

    def f(a):
        y = np.zeros(count + 2)  # two zeros come before it
        for k in range(count):
            y[k + 2] = driven[k] - a[0] * y[k + 1] - a[1] * y[k]
        return y[2:]

    def vjp(a, w):
        back, y = np.zeros(count + 2), np.concatenate([np.zeros(2), f(a)])
        for k in reversed(range(count)):
            back[k] = w[k] - a[0] * back[k + 1] - a[1] * back[k + 2]
        one, two = back[:count] @ y[1 : count + 1], back[:count] @ y[:count]
        return -np.array([one, error * two])

    return ByHand(f, vjp=vjp)


@over_seeds(10)
def test_a_recursion_that_explodes_over_the_longest_steps_is_resolved_by_shorter_ones(seeds):
    radius = 0.998
    a = np.array([-2 * radius * np.cos(0.1), radius**2])

    for seed in seeds:
        assert examine(resonator(), a, seed=seed, blame=False).verdict is Verdict.PASS
        assert examine(resonator(1.001), a, seed=seed, blame=False).verdict is Verdict.FAIL


def rows(p):
    return p / np.sqrt((p * p).sum(1, keepdims=True))


def rows_vjp(p, w):
    length = np.sqrt((p * p).sum(1, keepdims=True))
    return (w - rows(p) * (rows(p) * w).sum(1, keepdims=True)) / length


def hyperbola(x):
    return x / np.sqrt(x * x + 1e-6)


BESIDE_ZERO = {
    "a small row": (rows, rows_vjp, [[0, 1e-4], [1e2, 1]]),
    "a smaller row": (rows, rows_vjp, [[0, 1e-2], [1e4, 1]]),
    "a steep part": (
        hyperbola,
        lambda x, w: w * 1e-6 / (x * x + 1e-6) ** 1.5,
        [0, 1e-3, -5e-4, 1e4, -1e4, 1, 0],
    ),
}


@over_seeds(10)
@pytest.mark.parametrize("name", BESIDE_ZERO)
def test_a_zero_beside_large_entries_is_resolved_by_shorter_steps(name, seeds):
    """It moves by the scale of the others, and those outputs that hardly depend on it stand still
    over the shorter steps that it takes.
    """
    f, vjp, x = BESIDE_ZERO[name]
    for factor, verdict in ((1.0, Verdict.PASS), (1.001, Verdict.FAIL)):
        for seed in seeds:
            rule = ByHand(f, vjp=lambda x, w, by=factor: by * vjp(x, w))
            report = examine(rule, np.array(x, float), seed=seed, blame=False)
            assert report.verdict is verdict, str(report)
            assert all(0 <= part <= 1 for part in report.power.values())
