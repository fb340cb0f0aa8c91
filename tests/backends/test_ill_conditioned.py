"""Forward and reverse mode of ill-conditioned functions agree to fewer digits, and are right."""

import numpy as np
import pytest
from frameworks import torch
from scenarios import over_seeds

from adjudge import Status, Verdict, examine

pytestmark = pytest.mark.backend("torch")


def likelihood(scale, height, noise):
    """That of a Gaussian process, with a matrix whose condition is 1e8."""
    x = torch.linspace(0, 1, 12, dtype=torch.float64)
    y, one = torch.sin(6 * x), torch.eye(12, dtype=torch.float64)
    near = torch.exp(-0.5 * ((x[:, None] - x) / scale.exp()) ** 2)
    lower = torch.linalg.cholesky((2 * height).exp() * near + one * ((2 * noise).exp() + 1e-8))
    solved = torch.cholesky_solve(y[:, None], lower)[:, 0]
    return -0.5 * y @ solved - lower.diagonal().log().sum()


def point():
    return tuple(
        torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (0.5, 0.0, -8.0)
    )


@over_seeds(10)
def test_modes_that_are_apart_by_rounding_alone_are_consistent(seeds):
    for seed in seeds:
        report = examine(likelihood, point(), modes=["R", "F"], seed=seed, blame=False)

        assert report.verdict is Verdict.PASS, report


@pytest.fixture
def scaled(rule):
    """`scaled(off)`: the identity, with a gradient that is off."""
    return lambda off: rule(lambda x: x.clone(), lambda x, w: (1 + off) * w, lambda x, v: v.clone())


@over_seeds(10)
@pytest.mark.parametrize("off", [1e-7, 1e-6, 1e-4])
def test_modes_that_are_apart_by_more_are_inconsistent(scaled, off, seeds):
    def f(scale, height, noise):
        return likelihood(scaled(off)(scale), height, noise)

    for seed in seeds:
        report = examine(f, point(), modes=["R", "F"], seed=seed, blame=False)

        assert report.verdict is Verdict.FAIL
        assert Status.INCONSISTENT in {one.status for one in report.findings}


def hilbert(order):
    k = torch.arange(1, order + 1, dtype=torch.float64)
    return (1 / (k[:, None] + k - 1)).requires_grad_()


FUNCTIONS = {
    "solve": (lambda a: torch.linalg.solve(a, a.new_ones(6)), 6),
    "logdet": (lambda a: torch.logdet(a), 7),
    "cholesky": (lambda a: torch.linalg.cholesky((a + a.T) / 2), 6),
}


@over_seeds(10)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_error_is_no_rounding_where_every_step_changes_the_derivative(scaled, name, seeds):
    g, order = FUNCTIONS[name]

    for seed in seeds:
        for off in (0.0, 1e-7, 1e-5):
            f = (lambda a, off=off: g(scaled(off)(a))) if off else g
            report = examine(f, hilbert(order), modes=["R", "F"], seed=seed, blame=False)

            assert report.verdict is (Verdict.FAIL if off else Verdict.PASS), report


def with_gap(gap, seed):
    """Returns a symmetric matrix with two eigenvalues that are so far apart."""
    turned = np.linalg.qr(np.random.default_rng(seed).normal(size=(4, 4)))[0]
    return torch.tensor((turned * np.array([1, 1 + gap, 2, -1])) @ turned.T)


def exponential(matrix):
    values, vectors = torch.linalg.eigh((matrix + matrix.mT) / 2)
    return (vectors * values.exp()) @ vectors.mT


def wrong_exponential(matrix):
    return exponential(matrix) + 1e-2 * (matrix - matrix.detach())


@over_seeds(10)
@pytest.mark.parametrize("mode", ["R", "F"])
@pytest.mark.parametrize("gap", [1e-6, 1e-8, 1e-10])
def test_a_matrix_function_with_close_eigenvalues_is_right_to_fewer_digits(gap, mode, seeds):
    """The gradients of eigenvectors divide rounding by the gap: by another one for a cotangent that
    is transposed in memory, and by another one in each output.
    """
    for seed in seeds:
        right, wrong = (
            examine(f, with_gap(gap, seed), modes=[mode], seed=seed, blame=False)
            for f in (exponential, wrong_exponential)
        )

        assert right.verdict is not Verdict.FAIL, right
        assert right.verdict is Verdict.PASS or gap < 1e-8
        assert wrong.verdict is Verdict.FAIL
