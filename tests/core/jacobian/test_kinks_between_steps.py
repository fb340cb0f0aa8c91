"""Steps in a narrow dtype are long, and between them f may have many kinks."""

import numpy as np
import pytest
from scenarios import over_seeds, seeds

from adjudge import ByHand, Verdict, examine
from adjudge.estimate import bend_residuals


def network(seed, factor, layers, *, scalar):
    """A residual network of relus that takes float32 alone, with its rule, in which the gradient of
    one matrix is off by a factor, and inputs.
    """
    random, half = np.random.default_rng(seed), np.float32(0.5)
    matrices = random.normal(size=(layers, 48, 48)).astype(np.float32) / np.float32(48**0.5)
    x = random.normal(size=(8, 48)).astype(np.float32)

    def states(x, matrices):
        if x.dtype != np.float32:
            raise TypeError("a kernel for float32")
        found = [x]
        for matrix in matrices:
            found.append(found[-1] + half * np.maximum(found[-1], 0) @ matrix.T)
        return found

    def f(x, *matrices):
        last = states(x, matrices)[-1]
        return np.mean(last * last) if scalar else last.sum(0)

    def vjp(x, *others):
        *matrices, w = others
        *before, last = states(x, matrices)
        g = w * 2 * last / np.float32(last.size) if scalar else np.broadcast_to(w, last.shape)
        gradients = []
        for matrix, state in zip(matrices[::-1], before[::-1], strict=True):
            gradients.insert(0, half * (g.T @ np.maximum(state, 0)))
            g = g + half * (g @ matrix) * (state > 0)
        gradients[1] = gradients[1] * np.float32(factor)
        return g, *gradients

    return ByHand(f, vjp=vjp), (x, *matrices)


@over_seeds(10, always=2)
@pytest.mark.parametrize("scalar", [True, False], ids=["a loss", "many outputs"])
@pytest.mark.parametrize("layers", [2, 6])
def test_a_right_rule_across_many_kinks_does_not_fail(layers, scalar, seeds):
    for seed in seeds:
        rule, inputs = network(seed, 1.0, layers, scalar=scalar)
        report = examine(rule, inputs, seed=seed, blame=False)
        assert report.verdict is not Verdict.FAIL, str(report)


@over_seeds(10)
@pytest.mark.parametrize("factor", [1.03, -1.0])
@pytest.mark.parametrize("scalar", [True, False], ids=["a loss", "many outputs"])
@pytest.mark.parametrize("layers", [2, 6])
def test_a_wrong_one_fails(layers, scalar, factor, seeds):
    for seed in seeds:
        rule, inputs = network(seed, factor, layers, scalar=scalar)
        assert examine(rule, inputs, seed=seed, blame=False).verdict is Verdict.FAIL


STEPS = 0.25 * 4.0 ** -np.arange(6)


def bends_of(f):
    return np.array([((f(h) + f(-h)) / 2 - f(0.0)) / h for h in STEPS])


@pytest.mark.parametrize("f", [np.exp, np.cos, lambda t: 1 / (2 + t), lambda t: t**4 - 3 * t**2])
def test_bends_of_smooth_functions_leave_nothing(f):
    bends, size = bends_of(lambda t: np.array([f(t)])), 2.0

    residuals = bend_residuals(bends, STEPS, np.array([4e-16 * size]), STEPS[1])

    assert residuals[0] < 1e-5


@pytest.mark.parametrize("seed", seeds(10))
def test_bends_across_many_kinks_leave_as_much_as_differences_are_off(seed):
    random = np.random.default_rng(seed)
    places, sizes = random.uniform(-0.5, 0.5, 400), random.normal(size=(50, 400)) / 20

    def f(t):
        return np.sin(t) + sizes @ (np.maximum(t - places, 0) - np.maximum(-places, 0))

    here = 1 + sizes @ (places < 0)
    slopes = np.array([(f(h) - f(-h)) / (2 * h) for h in STEPS])
    residuals = bend_residuals(bends_of(f), STEPS, np.full(50, 1e-15), STEPS[2])

    error = np.abs(slopes[2] - here)
    assert 0.4 < np.median(residuals) / np.median(error) < 2.5
    assert np.mean(error < 4 * residuals) > 0.7
