"""A plain error is proved by differences at three steps, and nothing else is."""

import numpy as np
import pytest
from scenarios import over_seeds, seeds

from adjudge import ByHand, Verdict, examine

SEEDS = range(10)
X = np.random.default_rng(0).standard_normal(80)


def scattered(x, size):
    """Noise that is the same at every call, and another one at every point."""
    bits = np.asarray(x, np.float64).view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return size * ((bits >> np.uint64(20)) / 2.0**44 - 0.5)


SMOOTH = {
    "x exp(-x^2)": (lambda x: x * np.exp(-x * x), lambda x: (1 - 2 * x * x) * np.exp(-x * x), X),
    "tanh 30 x": (lambda x: np.tanh(30 * x), lambda x: 30 / np.cosh(30 * x) ** 2, X / 20),
    "x^3 + 10": (lambda x: x**3 + 10, lambda x: 3 * x * x, X),
}
ROUGH = {
    "noise of 1e-10": (lambda x: np.sin(x) + scattered(x, 1e-10), np.cos, X),
    "noise of 1e-6": (lambda x: np.sin(x) + scattered(x, 1e-6), np.cos, X),
    "ties": (lambda x: np.maximum(x, 0), lambda x: (x > 0) * 1.0, np.round(X)),
    "kinks of opposite signs": (
        lambda x: np.abs(x) * np.sign(np.arange(80) - 39.5),
        lambda x: np.sign(x) * np.sign(np.arange(80) - 39.5),
        np.round(X),
    ),
    "a weak kink": (lambda x: np.sin(x) + 1e-4 * np.abs(x), lambda x: np.cos(x), 0 * X),
    "a staircase": (lambda x: np.floor(1000 * x), lambda x: 0 * x, X),
    "rounded to float32": (
        lambda x: np.sin(x).astype(np.float32).astype(np.float64), np.cos, X
    ),
    "terms that cancel": (lambda x: (np.exp(x) - 1) / x, lambda x: (np.exp(x) * (x - 1) + 1) / x**2,
                          1e-3 * X),
}  # fmt: skip


def judged(case, factor, seed, entry=None):
    f, slope, x = case

    def vjp(x, w):
        gradient = w * slope(x)
        gradient[entry] *= factor
        return gradient

    return examine(ByHand(f, vjp=vjp), x, seed=seed)


@pytest.mark.parametrize("name", SMOOTH)
def test_a_plain_error_takes_no_ladder(name):
    for seed in SEEDS[:3]:
        for factor, entry in ((-1.0, slice(None)), (1.001, slice(None)), (1.01, 7)):
            report = judged(SMOOTH[name], factor, seed, entry)

            assert report.verdict is Verdict.FAIL, (seed, factor)
            assert report.stages["three steps"].decided == 1, (seed, factor, report.stages)
            assert "Richardson ladder" not in report.stages
        assert judged(SMOOTH[name], 1.0, seed).verdict is Verdict.PASS


@over_seeds(10)
@pytest.mark.parametrize("name", ROUGH)
def test_three_steps_accuse_no_right_rule_of_a_rough_function(name, seeds):
    for seed in seeds:
        report = judged(ROUGH[name], 1.0, seed)
        assert report.verdict is not Verdict.FAIL, (seed, str(report))


@pytest.mark.parametrize("name", [name for name in ROUGH if name != "a staircase"])
def test_a_wrong_sign_of_a_rough_function_does_not_pass(name):
    for seed in SEEDS[:3]:
        assert judged(ROUGH[name], -2.0, seed, slice(None)).verdict is not Verdict.PASS, seed


@pytest.mark.parametrize("seed", seeds(10))
def test_an_output_near_zero_sends_no_wrong_column_through_ladders(seed):
    x = np.random.default_rng(seed).standard_normal(1000)
    x[seed] = np.pi + 1e-5  # f is small there, and its slope is not

    def slope(x):
        return np.cos(x) * x + np.sin(x)

    def judge(factor):
        rule = ByHand(
            lambda x: np.sin(x) * x,
            vjp=lambda x, w: slope(x) * w,
            jvp=lambda x, v: factor * slope(x) * v,
        )
        return examine(rule, x, mode="projected", seed=seed, check_forward_ad=True)

    right, wrong = judge(1.0), judge(1.01)

    assert (right.verdict, wrong.verdict) == (Verdict.PASS, Verdict.FAIL)
    assert wrong.counts["evaluations"] <= 57
