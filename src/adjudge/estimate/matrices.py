"""Linear algebra on stacks of matrices of balls, whose derivatives come from the equations that
define the results (Giles 2008, An extended collection of matrix derivative results).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjudge.estimate.balls import (
    FUNCTIONS,
    Balls,
    Jets,
    Operand,
    chosen,
    conjugate,
    each,
    flint,
    joined,
    known,
    lifted,
    matmul,
    modulus,
    total,
)


def inverse(a: Operand) -> Jets:
    """Returns the inverse of matrices; no number where one may be singular."""
    given = lifted(a)
    halves = given.split()
    if halves is None:
        return Jets({0: _matrixwise(lambda one: one.inv(), given.value)})
    below, beside, bit = halves
    low = inverse(below)
    return low.plus(-matmul(matmul(low, beside), low), bit)


def determinant(a: Operand) -> Jets:
    """Returns the determinant."""
    given = lifted(a)
    halves = given.split()
    if halves is None:
        return Jets({0: _matrixwise(lambda one: one.det(), given.value, ())})
    below, beside, bit = halves
    low = determinant(below)
    rate = matmul(inverse(below), beside).map(lambda part: part.diagonal(axis1=-2, axis2=-1))
    return low.plus(low * total(rate, axis=-1, keepdims=False), bit)


def slogdet(a: Operand) -> tuple[Jets, Jets]:
    """Returns the determinant over its modulus, and the logarithm of that."""
    found = determinant(a)
    size = modulus(found)
    if not found.is_complex:
        return FUNCTIONS["sign"](found), FUNCTIONS["log"](size)
    return found / size, FUNCTIONS["log"](size)


def solve(a: Operand, b: Operand) -> Jets:
    """Returns X with `a X = b`."""
    return matmul(inverse(a), b)


def solve_triangular(a: Operand, b: Operand, *, lower: bool, unit_diagonal: bool) -> Jets:
    """Returns X with `a X = b`, of which one triangle counts."""
    given = lifted(a)
    n = given.shape[-1]
    triangle = np.tri(n, dtype=bool) if lower else np.tri(n, dtype=bool).T
    if unit_diagonal:
        triangle = triangle & ~np.eye(n, dtype=bool)
    counted = chosen(known(triangle), given, np.eye(n) if unit_diagonal else 0)
    return solve(counted, b)


def adjoint(a: Jets) -> Jets:
    """Returns the conjugate transpose."""
    return conjugate(a).map(lambda part: part.swapaxes(-1, -2))


def cholesky(a: Operand) -> Jets:
    """Returns the lower triangular L with `L L^H = a`."""
    given = lifted(a)
    given = (given + adjoint(given)) * 0.5
    halves = given.split()
    if halves is None:
        return Jets({0: _matrixwise(_cholesky, given.value)})
    below, beside, bit = halves
    low = cholesky(below)
    inner = inverse(low)
    middle = matmul(matmul(inner, beside), adjoint(inner))
    n = given.shape[-1]
    return low.plus(matmul(low, middle * (np.tri(n) - 0.5 * np.eye(n))), bit)


def lu(a: Operand, *, permutation: NDArray[np.int64]) -> Jets:
    """Returns L and U in one matrix, by Gaussian elimination of the rows in that order."""
    rows = np.broadcast_to(permutation[..., None], lifted(a).shape)
    return _eliminated(lifted(a).map(lambda part: np.take_along_axis(part, rows, -2)))


def _eliminated(a: Jets) -> Jets:
    if min(a.shape[-2:]) < 1 or a.shape[-2] == 1:
        return a
    first, below = a.map(lambda part: part[..., :1, :]), a.map(lambda part: part[..., 1:, :])
    pivot, right = first.map(lambda part: part[..., :1]), first.map(lambda part: part[..., 1:])
    left, rest = (
        below.map(lambda part: part[..., :1]) / pivot,
        below.map(lambda part: part[..., 1:]),
    )
    rest = _eliminated(rest - matmul(left, right))
    return joined([first, joined([left, rest], -1)], -2)


def qr(a: Operand, r: NDArray[Any]) -> tuple[Jets, Jets]:
    """Returns Q and R, of as many columns as `a`, with the phases that were recorded."""
    given, diagonal = lifted(a), np.diagonal(r, axis1=-2, axis2=-1)
    upper = adjoint(cholesky(matmul(adjoint(given), given)))
    upper = upper * _phases(diagonal)[..., :, None]
    return matmul(given, inverse(upper)), upper


def eigh(a: Operand, v: NDArray[Any]) -> tuple[Jets, Jets]:
    """Returns the eigenvalues of Hermitian matrices, ascending, and eigenvectors with the phases
    that were recorded; no numbers where they may not be isolated.
    """
    given = lifted(a)
    given = (given + adjoint(given)) * 0.5
    halves = given.split()
    n = given.shape[-1]
    if halves is None:
        pairs = _matrixwise(_eigenpairs, given.value, (n + 1, n))
        values, vectors = each(lambda z: z.real, pairs[..., 0, :]), pairs[..., 1:, :]
        if not given.is_complex:
            vectors = each(lambda z: z.real, vectors)
        return Jets({0: values}), Jets({0: _with_phases(vectors, v)})
    below, beside, bit = halves
    values_, vectors_ = eigh(below, v)
    middle = matmul(matmul(adjoint(vectors_), beside), vectors_)
    diagonal = middle.map(lambda part: part.diagonal(axis1=-2, axis2=-1))
    rates = FUNCTIONS["real"](diagonal) if given.is_complex else diagonal
    return values_.plus(rates, bit), vectors_.plus(matmul(vectors_, _between(middle, values_)), bit)


def svd(a: Operand, u: NDArray[Any], vh: NDArray[Any]) -> tuple[Jets, Jets, Jets]:
    """Returns U, the singular values, descending, and V^H, with the phases of the recorded V, or of
    the recorded U where the matrix has fewer rows than columns; no numbers where singular values
    may not be isolated, or may be zero. They are the roots of the eigenvalues of the smaller
    product of the matrix with its adjoint.
    """
    given = lifted(a)
    if given.shape[-2] < given.shape[-1]:
        v, values, uh = svd(adjoint(given), vh.conj().swapaxes(-1, -2), u.conj().swapaxes(-1, -2))
        return adjoint(uh), values, adjoint(v)
    squares, turned = eigh(matmul(adjoint(given), given), vh.conj().swapaxes(-1, -2)[..., ::-1])
    values = FUNCTIONS["sqrt"](squares.map(lambda part: part[..., ::-1]))
    vectors = turned.map(lambda part: part[..., ::-1])
    left = matmul(given, vectors) / values.map(lambda part: part[..., None, :])
    return left, values, adjoint(vectors)


def eig(a: Operand, values: NDArray[Any], vectors: NDArray[Any]) -> tuple[Jets, Jets]:
    """Returns the eigenvalues of any square matrices in the order that was recorded, and
    eigenvectors of length 1 with the phases that were recorded; no numbers where they may not be
    isolated.
    """
    given = lifted(a)
    halves = given.split()
    n = given.shape[-1]
    if halves is None:
        pairs = _matrixwise(_any_eigenpairs, given.value, (n + 1, n))
        pairs = np.take_along_axis(pairs, _order(pairs[..., 0, :], values)[..., None, :], -1)
        return Jets({0: pairs[..., 0, :]}), Jets({0: _with_phases(pairs[..., 1:, :], vectors)})
    below, beside, bit = halves
    values_, vectors_ = eig(below, values, vectors)
    middle = matmul(inverse(vectors_), matmul(beside, vectors_))
    rates = middle.map(lambda part: part.diagonal(axis1=-2, axis2=-1))
    turned = matmul(vectors_, _between(middle, values_))
    along = total(conjugate(vectors_) * turned, axis=-2, keepdims=True)  # it keeps its length
    return values_.plus(rates, bit), vectors_.plus(turned - vectors_ * along, bit)


def _between(middle: Jets, values: Jets) -> Jets:
    """Returns how eigenvectors turn into one another, from the motion of the matrix in their
    coordinates: its entries over the differences of eigenvalues, and zeros on the diagonal.
    """
    columns = values.map(lambda part: part[..., None, :])
    rows = values.map(lambda part: part[..., :, None])
    same = known(np.eye(middle.shape[-1], dtype=bool))
    return chosen(same, 0, middle / chosen(same, 1, columns - rows))


def exponential(a: Operand) -> Jets:
    """Returns the matrix exponential, whose derivative along E is the upper right block of that of
    `[[a, E], [0, a]]` (Higham 2008, Functions of Matrices, theorem 3.6).
    """
    given = lifted(a)
    halves = given.split()
    if halves is None:
        return Jets({0: _matrixwise(lambda one: one.exp(), given.value)})
    below, beside, bit = halves
    n = given.shape[-1]
    upper, lower = joined([below, beside], -1), joined([below * 0, below], -1)
    both = exponential(joined([upper, lower], -2)).map(lambda part: part[..., :n, :])
    left, right = both.map(lambda part: part[..., :n]), both.map(lambda part: part[..., n:])
    return left.plus(right, bit)


# -------------------------------------------------------------------- one matrix after the other


def _matrixwise(
    function: Callable[[Any], Any], stack: Balls, shape: tuple[int, ...] | None = None
) -> Balls:
    """Returns a function of each matrix of a stack. It takes a matrix of python-flint, and returns
    one or a list of rows, of this shape (by default that of the matrix), or a number.

    Where it raises what python-flint raises for a matrix that may be singular, or for eigenvalues
    that may not be isolated, there is no number.
    """
    module = flint()
    complex_ = any(isinstance(one, module.acb) for one in stack.flat)
    make = module.acb_mat if complex_ else module.arb_mat
    shape = stack.shape[-2:] if shape is None else shape
    out = np.full((*stack.shape[:-2], *shape), module.arb.nan(), object)
    for k in np.ndindex(stack.shape[:-2]):
        try:
            found = function(make(stack[k].tolist()))
        except (ZeroDivisionError, ValueError):
            continue
        if shape:
            rows = found if isinstance(found, list) else found.tolist()
            for i, row in enumerate(rows):
                for j, one in enumerate(row):
                    out[(*k, i, j)] = one
        else:
            out[k] = found
    return out


def _cholesky(a: Any) -> list[list[Any]]:
    """Returns the factor of Cholesky row by row; no numbers where a pivot may not be positive."""
    n, rows = a.nrows(), a.tolist()
    found = [[flint().arb(0)] * n for _ in range(n)]
    for i in range(n):
        for j in range(i + 1):
            left = rows[i][j]
            for k in range(j):
                other = found[j][k]
                left -= found[i][k] * (other.conjugate() if hasattr(other, "conjugate") else other)
            found[i][j] = left.real.sqrt() if i == j else left / found[j][j]
    return found


def _any_eigenpairs(a: Any) -> list[list[Any]]:
    """Returns the eigenvalues as a row, and below each its eigenvector, whose largest entry is
    1.
    """
    values, vectors = flint().acb_mat(a).eig(right=True)
    scaled = []
    for column in zip(*vectors.tolist(), strict=True):
        largest = max(column, key=lambda one: float(abs(one).mid()))
        scaled.append([one / largest for one in column])
    return [values, *map(list, zip(*scaled, strict=True))]


def _eigenpairs(a: Any) -> list[list[Any]]:
    """Returns the same of a Hermitian matrix, in ascending order."""
    values, *rows = _any_eigenpairs(a)
    order = sorted(range(len(values)), key=lambda k: float(values[k].real.mid()))
    return [[values[k].real for k in order], *([row[k] for k in order] for row in rows)]


def _order(found: Balls, recorded: NDArray[Any]) -> NDArray[np.int64]:
    """Returns which of the eigenvalues that were found is next to each that was recorded. Two that
    have the same next one are not what was recorded, which is seen by their values.
    """
    middles = each(lambda one: complex(one.mid()), found).astype(complex)
    return np.asarray(np.argmin(np.abs(recorded[..., :, None] - middles[..., None, :]), -1))


def _with_phases(vectors: Balls, recorded: NDArray[Any]) -> Balls:
    """Returns eigenvectors of length 1 with the phases of those that were recorded."""
    squares = each(lambda one: one.real * one.real + one.imag * one.imag, vectors)
    lengths = each(lambda one: one.sqrt(), np.add.reduce(squares, axis=-2))
    at = np.argmax(np.abs(recorded), axis=-2)
    of_those = np.take_along_axis(recorded, at[..., None, :], -2)
    here = np.take_along_axis(vectors, at[..., None, :], -2)
    phases = _phases(of_those)
    unit = each(lambda one: abs(one) / one, here)
    return each(
        lambda v, length, p, u: v / length * p * u, vectors, lengths[..., None, :], phases, unit
    )


def _phases(recorded: NDArray[Any]) -> Balls:
    """Returns numbers over their moduli, and 1 for zeros, without a rounding: factors that are not
    quite of modulus 1 would show in derivatives.
    """
    return each(lambda z: z / abs(z), lifted(np.where(recorded == 0, 1, recorded)).value)
