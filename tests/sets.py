"""Points of the sets that `directions=` names, with the same numbers in every run."""

from typing import Any

import numpy as np

SEED = 3


def adjoint(a: Any) -> Any:
    """The transpose of each matrix, of complex numbers conjugated."""
    return np.swapaxes(a, -1, -2).conj()


def matrix(shape: tuple[int, ...], kind: str = "real", seed: int = SEED) -> Any:
    """Normal numbers, real or complex."""
    random = np.random.default_rng([seed, *shape])
    a = random.standard_normal(shape)
    return a + 1j * random.standard_normal(shape) if kind == "complex" else a


def symmetric(kind: str = "real", n: int = 5) -> Any:
    """A symmetric matrix, or a Hermitian one."""
    a = matrix((n, n), kind)
    return (a + adjoint(a)) / 2


def positive_definite(kind: str = "real", n: int = 5, condition: float = 20.0) -> Any:
    """A positive definite matrix of this condition."""
    q = orthogonal(kind, n, n)
    a = (q * np.logspace(0, -np.log10(condition), n)) @ adjoint(q)
    return (a + adjoint(a)) / 2


def simplex(rows: int = 3, n: int = 6) -> Any:
    """Rows of positive numbers that add up to one."""
    p = np.exp(matrix((rows, n)))
    return p / p.sum(-1, keepdims=True)


def sphere(kind: str = "real", rows: int = 3, n: int = 6) -> Any:
    """Rows of length one."""
    a = matrix((rows, n), kind)
    return a / np.sqrt((np.abs(a) ** 2).sum(-1, keepdims=True))


def orthogonal(kind: str = "real", n: int = 5, m: int = 3) -> Any:
    """A matrix of orthonormal columns."""
    return np.linalg.qr(matrix((n, m), kind))[0]
