"""Functions whose second derivative jumps at x: a right derivative passes, a wrong one fails."""

import numpy as np
import pytest

from adjudge import ByHand, Verdict, examine

POINTS = (np.array([0.0, 0.0, 1.0, -1.0, 2.0]), np.zeros(3))
"""Points at which entries lie where the second derivative jumps."""
FUNCTIONS = {
    "relu(x)^2": (lambda x: np.maximum(x, 0) ** 2, lambda x: 2 * np.maximum(x, 0)),
    "x |x|": (lambda x: x * np.abs(x), lambda x: 2 * np.abs(x)),
    "sin x + x |x|": (lambda x: np.sin(x) + x * np.abs(x), lambda x: np.cos(x) + 2 * np.abs(x)),
    "clip(x, 0, 3)^2 + x": (
        lambda x: np.clip(x, 0, 3) ** 2 + x,
        lambda x: 1 + 2 * np.clip(x, 0, 3),
    ),
}
SEEDS = range(3)
"""The tangents of full mode are those of the entries; little is drawn at random."""


def rule(name, at_zero=0.0, factor=1.0):
    f, slope = FUNCTIONS[name]
    return ByHand(f, vjp=lambda x, w: w * (factor * slope(x) + np.where(x == 0, at_zero, 0.0)))


@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_right_derivative_passes(name, mode):
    for x in POINTS:
        for seed in SEEDS:
            assert examine(rule(name), x, mode=mode, seed=seed).verdict is Verdict.PASS


@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_small_error_at_the_second_kink_fails(name, mode):
    for x in POINTS:
        for seed in SEEDS:
            report = examine(rule(name, at_zero=1e-3), x, mode=mode, seed=seed)
            assert report.verdict is Verdict.FAIL
