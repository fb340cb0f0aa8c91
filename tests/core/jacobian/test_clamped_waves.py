"""Clamps of fast functions: their dead sides are narrow beside x, and no rounding of larger
numbers.
"""

import numpy as np
import pytest
from scenarios import over_seeds

from adjudge import ByHand, Verdict, examine


def wave(x):
    return 2 * np.sin(x) + np.cos(3 * x)


def slope(x):
    return 2 * np.cos(x) - 3 * np.sin(3 * x)


CLAMPS = {
    "relu": (lambda x: np.maximum(np.sin(x), 0), lambda x: np.cos(x) * (np.sin(x) > 0)),
    "its square": (
        lambda x: np.maximum(np.sin(x), 0) ** 2,
        lambda x: 2 * np.maximum(np.sin(x), 0) * np.cos(x),
    ),
    "clip": (
        lambda x: np.clip(np.sin(x), -0.5, 0.5),
        lambda x: np.cos(x) * (np.abs(np.sin(x)) < 0.5),
    ),
    "clip of two waves": (
        lambda x: np.clip(wave(x), -1, 1),
        lambda x: slope(x) * (np.abs(wave(x)) < 1),
    ),
    "shrink": (
        lambda x: np.sign(np.sin(x)) * np.maximum(np.abs(np.sin(x)) - 0.4, 0),
        lambda x: np.cos(x) * (np.abs(np.sin(x)) > 0.4),
    ),
}


def rule(name, dtype, factor=1.0):
    f, derivative = CLAMPS[name]
    return ByHand(f, vjp=lambda x, w: (factor * w * derivative(x)).astype(dtype))


def drawn(seed, size, dtype=np.float64):
    return (size * (1 + np.random.default_rng(seed).random(6))).astype(dtype)


@over_seeds(10)
@pytest.mark.parametrize("size", [1e3, 3e4])
@pytest.mark.parametrize("name", CLAMPS)
def test_the_dead_sides_of_fast_functions_are_no_rounding(name, size, seeds):
    for seed in seeds:
        x = drawn(seed, size)
        derivative = CLAMPS[name][1](x)

        assert examine(rule(name, np.float64), x, seed=seed).verdict is Verdict.PASS
        for factor in (0.0, -1.0, 1.01) if derivative.any() else ():
            wrong = examine(rule(name, np.float64, factor), x, seed=seed, blame=False)
            # At 3e4 a ladder crosses a hundred waves, and some wrong ones stay open.
            assert wrong.verdict is Verdict.FAIL or (size > 1e3 and not wrong), str(wrong)


@over_seeds(10)
@pytest.mark.parametrize("name", CLAMPS)
def test_the_same_in_single_precision(name, seeds):
    for seed in seeds:
        x = drawn(seed, 30, np.float32)
        assert examine(rule(name, np.float32), x, seed=seed).verdict is Verdict.PASS
        if CLAMPS[name][1](x).any():
            wrong = examine(rule(name, np.float32, 0.0), x, seed=seed, blame=False)
            assert wrong.verdict is not Verdict.PASS, (seed, str(wrong))


@over_seeds(10, always=3)
def test_a_value_that_is_rounded_on_the_way_is_still_no_clamp(seeds):
    """`(x + 1e8) - 1e8` stands still over steps below 1e-8, and then jumps."""
    for seed in seeds:
        x = drawn(seed, 1.0)
        right = ByHand(lambda x: (x + 1e8) - 1e8, vjp=lambda x, w: w)
        zero = ByHand(lambda x: (x + 1e8) - 1e8, vjp=lambda x, w: 0 * w)

        assert examine(right, x, seed=seed).verdict is Verdict.PASS
        assert examine(zero, x, seed=seed, blame=False).verdict is Verdict.FAIL


@over_seeds(10, always=3)
@pytest.mark.parametrize("mode", ["R", "F"])
def test_a_wave_that_bends_soon_after_its_clamp_leaves_it_steadily(mode, seeds):
    def derivative(x):
        return (np.sin(x) + 0.3 * np.sin(3 * x) > 0) * (np.cos(x) + 0.9 * np.cos(3 * x))

    given = {"R": "vjp", "F": "jvp"}[mode]
    rule = ByHand(
        lambda x: np.maximum(np.sin(x) + 0.3 * np.sin(3 * x), 0),
        **{given: lambda x, w: w * derivative(x)},
    )
    for seed in seeds:
        x = 1e4 * np.random.default_rng(seed).uniform(0.5, 1.5, size=8)
        assert examine(rule, x, seed=seed).verdict is Verdict.PASS
