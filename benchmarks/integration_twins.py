"""The functions of `integration_references.py` once more, in mpmath."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mpmath

Number = Any


def kl_transport(
    a: Sequence[Number], b: Sequence[Number], m: Sequence[Sequence[Number]], reg: float, kind: str
) -> Number:
    """`min <M, P> + reg H(P)` over plans P from a to b, by Sinkhorn's iteration in full digits.

    `kind` is "KL", with `H = sum P log(P / (a b^T))`, or "entropy", with `H = sum P log P`.
    """
    rows, columns = range(len(a)), range(len(b))
    k = [[mpmath.exp(-m[i][j] / mpmath.mpf(reg)) for j in columns] for i in rows]
    v = [mpmath.mpf(1) for _ in columns]
    for _ in range(200):
        u = [a[i] / mpmath.fsum(k[i][j] * v[j] for j in columns) for i in rows]
        v = [b[j] / mpmath.fsum(k[i][j] * u[i] for i in rows) for j in columns]
    total = mpmath.mpf(0)
    for i in rows:
        for j in columns:
            p = u[i] * k[i][j] * v[j]
            base = a[i] * b[j] if kind == "KL" else 1
            total += p * m[i][j] + reg * p * mpmath.log(p / base)
    return total


def emd2_of_two(p: Number, q: Number, cost: Number) -> Number:
    """Optimal transport between `(p, 1 - p)` and `(q, 1 - q)`: the better end of its segment."""
    ends = max(0, p + q - 1), min(p, q)
    return min(
        t * cost
        + (p - t) * mpmath.mpf("1.1")
        + (q - t) * mpmath.mpf("0.9")
        + (1 - p - q + t) * mpmath.mpf("0.3")
        for t in ends
    )


def gromov_of_two(p: Number, q: Number, c: Number, d: Number) -> Number:
    """Gromov-Wasserstein of two points at distance c and two at distance d.

    `sum (C[i, j] - D[k, l])^2 T[i, k] T[j, l]` is concave along its segment of plans, so that the
    least value is at an end.
    """

    def energy(t: Number) -> Number:
        plan = [[t, p - t], [q - t, 1 - p - q + t]]
        pairs = [(i, j, k, m) for i in (0, 1) for j in (0, 1) for k in (0, 1) for m in (0, 1)]
        return mpmath.fsum(
            ((c if i != j else 0) - (d if k != m else 0)) ** 2 * plan[i][k] * plan[j][m]
            for i, j, k, m in pairs
        )

    return min(energy(max(0, p + q - 1)), energy(min(p, q)))


def truncated_variance(name: str, x: Sequence[float], v: Sequence[float], t: Number) -> Number:
    """`stats.tvar`, `tstd`, `tsem` of the entries within -1 and 1, along v."""
    inside = [a + t * mpmath.mpf(b) for a, b in zip(x, v, strict=True) if abs(a) <= 1]
    n = len(inside)
    mean = mpmath.fsum(inside) / n
    variance = mpmath.fsum((y - mean) ** 2 for y in inside) / (n - 1)
    return {
        "tvar": variance,
        "tstd": mpmath.sqrt(variance),
        "tsem": mpmath.sqrt(variance / n),
    }[name]


def rotation(r: Sequence[Number]) -> Number:
    """Entries [1, 0] + [0, 0] of the matrix exponential of the cross product with r."""
    x, y, z = r
    turn = mpmath.expm(mpmath.matrix([[0, -z, y], [z, 0, -x], [-y, x, 0]]), method="taylor")
    return turn[1, 0] + turn[0, 0]
