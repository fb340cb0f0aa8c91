"""Slow outputs in single precision, beside fast ones in the same array."""

import numpy as np
import pytest
from scenarios import over_seeds

from adjudge import ByHand, Verdict, examine

FREQUENCIES = (2.0 ** np.arange(12) * np.pi).astype(np.float32)
SLOW = {
    "sin": (lambda x: np.sin(x / 50), lambda x: np.cos(x / 50) / 50),
    "log": (lambda x: np.log1p(x / 100), lambda x: 1 / (100 + x)),
    "square": (lambda x: x * x / 50, lambda x: x / 25),
    "tanh": (lambda x: np.tanh(x / 100), lambda x: 0.01 / np.cosh(x / 100) ** 2),
    "arctan": (lambda x: np.arctan(x / 60), lambda x: 60 / (3600 + x * x)),
}  # fmt: skip
"""Functions whose derivatives are a millionth of those of the fast outputs, and the derivatives."""


def features(name, factor):
    slow, derivative = SLOW[name]

    def f(x):
        fast = np.sin(x[:, None] * FREQUENCIES)
        return np.concatenate([fast, slow(x)[:, None]], axis=1).astype(np.float32)

    def vjp(x, w):
        fast = w[:, :-1] * FREQUENCIES * np.cos(x[:, None] * FREQUENCIES)
        return (fast.sum(axis=1) + factor * w[:, -1] * derivative(x)).astype(np.float32)

    return ByHand(f, vjp=vjp)


@over_seeds(10)
@pytest.mark.parametrize("name", SLOW)
@pytest.mark.parametrize("factor", [1, 2, 0, -1])
def test_steps_across_several_periods_call_no_right_rule_wrong(name, factor, seeds):
    for seed in seeds:
        x = np.random.default_rng(seed).uniform(0.5, 1, 5).astype(np.float32)
        found = examine(features(name, factor), x, seed=seed, blame=False).verdict

        assert found is not (Verdict.FAIL if factor == 1 else Verdict.PASS)


@over_seeds(10)
def test_right_fourier_features_do_not_fail(seeds):
    def f(x):
        angles = x[:, None] * FREQUENCIES
        return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)

    def vjp(x, w):
        angles = x[:, None] * FREQUENCIES
        slopes = w[:, :12] * np.cos(angles) - w[:, 12:].astype(float) * np.sin(angles)
        return (FREQUENCIES * slopes).sum(axis=1).astype(np.float32)

    for seed in seeds:
        x = np.random.default_rng(1000 + seed).uniform(0, 1, 5).astype(np.float32)

        assert examine(ByHand(f, vjp=vjp), x, seed=seed).verdict is not Verdict.FAIL
