"""Functions and derivatives that raise at some points beside x, and not at others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scenarios import over_seeds, seeds

from adjudge import ByHand, Verdict, examine

X = np.array([0.3, 0.7, 1.1])


def one_at_a_time(x: Any) -> Any:
    """A function that takes one number off X, and not two."""
    if np.count_nonzero(x != X) > 1:
        raise ValueError("one number at a time")
    return np.sin(x) * x


def derivative(x: Any) -> Any:
    return np.cos(x) * x + np.sin(x)


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.0, Verdict.PASS), (1.0001, Verdict.FAIL), (-1.0, Verdict.FAIL)]
)
@pytest.mark.parametrize("seed", seeds(10))
def test_points_that_are_refused_do_not_hide_a_verdict(
    factor: float, verdict: Verdict, seed: int
) -> None:
    function = ByHand(one_at_a_time, vjp=lambda x, w: factor * w * derivative(x))
    assert examine(function, (X,), fast_mode=False, seed=seed).verdict is verdict


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Verdict.PASS), (1.0001, Verdict.FAIL)])
@pytest.mark.parametrize("seed", seeds(10))
def test_a_derivative_that_is_refused_beside_x_is_judged_at_x(
    factor: float, verdict: Verdict, seed: int
) -> None:
    def vjp(x: Any, w: Any) -> Any:
        if np.any(x != X):
            raise ValueError("known at one point alone")
        return factor * w * derivative(x)

    function = ByHand(lambda x: np.sin(x) * x, vjp=vjp)
    assert examine(function, (X,), seed=seed).verdict is verdict


def test_a_function_that_refuses_every_tangent_raises() -> None:
    function = ByHand(one_at_a_time, vjp=lambda x, w: w * derivative(x))
    with pytest.raises(ValueError, match="one number at a time"):
        examine(function, (X,), fast_mode=True, seed=0)


def symmetrised(a: Any) -> Any:
    return (a + a.T) / 2


def cholesky_vjp(a: Any, w: Any) -> Any:
    """The gradient of the Cholesky factor of a symmetric matrix (Murray, arXiv:1602.07527)."""
    factor = np.linalg.cholesky(symmetrised(a))
    middle = np.tril(factor.T @ w)
    middle -= np.diag(np.diag(middle)) / 2
    return symmetrised(np.linalg.solve(factor.T, np.linalg.solve(factor.T, middle.T).T))


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Verdict.PASS), (1.001, Verdict.FAIL)])
@pytest.mark.parametrize("diagonal", [(1e-4, 1, 1e4), (1e-4, 1, 100, 1e4), (1e-2, 1, 1e6)])
@over_seeds(10)
def test_a_step_that_ends_close_to_where_f_is_refused_proves_nothing(
    diagonal: tuple[float, ...], factor: float, verdict: Verdict, seeds: range
) -> None:
    """The zeros of the matrix move by its scale, which is as far as it stays positive definite: a
    longer step is refused, and the shortest of the usual ones is far too long.
    """
    rule = ByHand(
        lambda a: np.linalg.cholesky(symmetrised(a)), vjp=lambda a, w: factor * cholesky_vjp(a, w)
    )
    for seed in seeds:
        report = examine(rule, np.diag(diagonal), seed=seed, blame=False)
        assert report.verdict is verdict, str(report)
