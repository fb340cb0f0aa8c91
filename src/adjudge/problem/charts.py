"""Charts of the sets that inputs may live on: coordinates to points, with both derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from adjudge.engine import Array, HostArray
from adjudge.floats import relative_step, scale

Map: TypeAlias = Callable[..., Array]


class OffTheSetError(Exception):
    """A point that is not in the set: what was found, and what to do."""


@dataclass(frozen=True)
class Chart:
    """`c: z -> x` from an open set of coordinates, shaped as x, to a set that x lies on.

    At x it is the identity to rounding, and its derivative maps onto the tangents of the set.
    The maps get the Array API namespace first and the constants, as arrays like x, last.
    """

    set_name: str
    """The set, in words."""
    value: Map | None = None
    """`(xp, z, *constants) -> x`; `None`: the identity, within `reach`."""
    push: Map | None = None
    """`(xp, z, v, *constants) -> c'(z) v`; `None`: nobody wrote it."""
    pull: Map | None = None
    """`(xp, z, w, *constants) -> c'(z)* w`; `None`: nobody wrote it."""
    constants: tuple[HostArray, ...] = ()
    start: HostArray | None = None
    """The coordinates of x where they are not x itself."""
    reach: tuple[HostArray, HostArray] | None = None
    """The lowest and the highest coordinates at which the values are in the set."""
    affine: bool = False


SMALL = 2.0**-4
"""How far, in the norm of matrices, coordinates go from an orthogonal one; and the part of a
positive number that is left at least."""
POLAR_STEPS = 4
"""Steps of Newton's iteration for the polar factor: the error `SMALL` at first becomes
`3/2 SMALL^2`, then 5e-5, 4e-9 and 3e-17."""


def tolerance(eps: float, terms: int) -> float:
    """What rounding may make of a sum of `terms` numbers of size one, in the dtype of x."""
    return min(0.05, 32 * eps * math.sqrt(max(terms, 1)))


# ---------------------------------------------------------------- symmetric, positive definite


def symmetric(x: HostArray, eps: float) -> Chart:
    """`(z + z*) / 2`, which is symmetric to the last bit."""
    _require_hermitian(x, eps)
    return Chart(
        "Hermitian matrices" if np.iscomplexobj(x) else "symmetric matrices",
        _hermitian_part,
        lambda xp, z, v: _hermitian_part(xp, v),
        lambda xp, z, w: _hermitian_part(xp, w),
        affine=True,
    )


def positive_definite(x: HostArray, eps: float) -> Chart:
    """That of symmetric matrices, as far as half of the smallest eigenvalue of x."""
    chart = symmetric(x, eps)
    values = np.linalg.eigvalsh((x + _adjoint(np, x)) / 2)
    least, most = values[..., :1, None], values[..., -1:, None]
    if not np.all(least > x.shape[-1] * eps * most):
        raise OffTheSetError(
            f"has the eigenvalue {np.min(least):.3g} (the largest is {np.max(most):.3g})",
            "pass a matrix whose smallest eigenvalue is larger than the rounding of its largest",
        )
    room = np.broadcast_to(_everywhere(x) * least / (2 * x.shape[-1]), x.shape)
    return replace(chart, set_name="positive definite matrices", reach=(x - room, x + room))


# ---------------------------------------------------------------- simplex and sphere


def simplex(x: HostArray, eps: float) -> Chart:
    """`z / sum(z)` along the last axis: signs and zeros of the entries stay."""
    _require_real(x)
    total = _total(x)
    if not np.all(np.abs(total - 1) <= tolerance(eps, x.shape[-1])):
        raise OffTheSetError(
            f"sums to {_farthest(total)} along its last axis", "divide it by its sum"
        )
    if not np.all(x >= 0):
        raise OffTheSetError(f"has the entry {np.min(x):.3g}", "pass entries that are not negative")
    return Chart(
        "the simplex",
        lambda xp, z, s: z * (s / xp.sum(z, axis=-1, keepdims=True)),
        _simplex_push,
        _simplex_pull,
        (np.broadcast_to(total, x.shape),),
        reach=(SMALL * x, np.full(x.shape, np.inf)),
    )


def _simplex_push(xp: Any, z: Array, v: Array, s: Array) -> Array:
    total = xp.sum(z, axis=-1, keepdims=True)
    return (v - z * (xp.sum(v, axis=-1, keepdims=True) / total)) * (s / total)


def _simplex_pull(xp: Any, z: Array, w: Array, s: Array) -> Array:
    total = xp.sum(z, axis=-1, keepdims=True)
    w = w * s / total
    return w - xp.sum(w * z, axis=-1, keepdims=True) / total


def sphere(x: HostArray, eps: float) -> Chart:
    """`z / |z|` along the last axis."""
    _require_axes(x, 1)
    norm = np.sqrt(_total(np.abs(x) ** 2))
    if not np.all(np.abs(norm - 1) <= tolerance(eps, x.shape[-1])):
        raise OffTheSetError(
            f"has the norm {_farthest(norm)} along its last axis", "divide it by its norm"
        )

    def derivative(xp: Any, z: Array, v: Array, r: Array) -> Array:
        n = z / _norm(xp, z)
        return (v - n * _dot(xp, n, v)) * (r / _norm(xp, z))

    return Chart(
        "the unit sphere",
        lambda xp, z, r: z * (r / _norm(xp, z)),
        derivative,
        derivative,
        # as complex numbers where x is: constants have its dtype
        (np.broadcast_to(norm, x.shape).astype(x.dtype),),
    )


# ---------------------------------------------------------------- orthogonal


def orthogonal(x: HostArray, eps: float) -> Chart:
    """The polar factor of `x + z - start`, by Newton's iteration `z (3 - z* z) / 2`.

    Every entry of `start` is one power of two. Steps follow the scale of the coordinates, and an
    entry of x that is almost zero cannot move by less than the others resolve.
    """
    _require_axes(x, 2)
    n, m = x.shape[-2:]
    gram = _adjoint(np, x) @ x if n >= m else x @ _adjoint(np, x)
    gap = float(np.max(np.abs(gram - np.eye(min(n, m)))))
    if not gap <= tolerance(eps, max(n, m)):
        sides = "columns" if n >= m else "rows"
        raise OffTheSetError(
            f"has {sides} that are not orthonormal: x* x is off the identity by {gap:.2g}",
            "pass an orthogonal factor, as of a QR decomposition",
        )
    exact = 1 + 1j if np.iscomplexobj(x) else 1.0
    start = np.full(x.shape, exact * 2.0 ** round(-np.log2(max(n, m)) / 2))
    room = _everywhere(x) * SMALL / np.sqrt(n * m)
    kind = "unitary" if np.iscomplexobj(x) else "orthogonal"
    words = f"matrices of orthonormal {'rows' if n < m else 'columns'}"
    return Chart(
        f"{kind} matrices" if n == m else words,
        lambda xp, z, x, start: _polar(xp, z - start + x)[-1],
        _polar_push,
        _polar_pull,
        (x, start),
        start,
        (start - room, start + room),
    )


def _polar(xp: Any, z: Array) -> list[Array]:
    """Newton's iteration for the polar factor, from the start."""
    found = [z]
    for _ in range(POLAR_STEPS):
        z = z * 1.5 - xp.matmul(z, xp.matmul(_adjoint(xp, z), z)) * 0.5
        found.append(z)
    return found


def _polar_push(xp: Any, z: Array, v: Array, x: Array, start: Array) -> Array:
    for q in _polar(xp, z - start + x)[:-1]:
        v = _polar_derivative(xp, q, v)
    return v


def _polar_pull(xp: Any, z: Array, w: Array, x: Array, start: Array) -> Array:
    for q in reversed(_polar(xp, z - start + x)[:-1]):
        w = _polar_derivative(xp, q, w)
    return w


def _polar_derivative(xp: Any, q: Array, v: Array) -> Array:
    """The derivative of one step along `v`. It is its own adjoint."""
    gram = xp.matmul(_adjoint(xp, q), q)
    cross = xp.matmul(_adjoint(xp, v), q)
    more = xp.matmul(v, gram) + xp.matmul(q, cross + _adjoint(xp, cross))
    return v * 1.5 - more * 0.5


# ---------------------------------------------------------------- sorted and positive


def ordered(x: HostArray, eps: float) -> Chart:
    """`x + s (z - x)`, where `s` sums over the entries before that are tied, or all but tied.

    An entry on its own keeps to half the way to its neighbours. Of a run of ties the first entry
    moves all of them, and each further one those from there on, away from the entry before.
    """
    _require_real(x)
    steps = np.diff(x, axis=-1)
    down = bool(np.all(steps <= 0)) and not bool(np.all(steps >= 0))
    if not np.all(steps <= 0 if down else steps >= 0):
        worst = min(np.max(steps, initial=0.0), -np.min(steps, initial=0.0))
        raise OffTheSetError(
            f"is neither ascending nor descending along its last axis (by {worst:.3g})",
            "sort it along its last axis",
        )
    gaps = np.abs(steps)
    length = np.broadcast_to(scale(x.reshape(-1)).reshape(x.shape), x.shape)
    near = gaps < 16 * relative_step(eps) * length[..., 1:]
    no = np.zeros((*x.shape[:-1], 1), bool)
    tied = np.concatenate([no, near], axis=-1)  # to the entry before
    low, high = _between(x, gaps, tied, eps, down=down)
    masks = [mask.astype(np.float64) for mask in _doublings(tied)]
    words = f"sorted numbers{' (descending)' if down else ''}"
    if not masks:
        return Chart(words, reach=(low, high), affine=True)

    def value(xp: Any, z: Array, x: Array, *masks: Array) -> Array:
        return x + _run_sums(xp, z - x, masks)

    return Chart(
        words,
        value,
        lambda xp, z, v, x, *masks: _run_sums(xp, v, masks),
        lambda xp, z, w, x, *masks: _run_sums_adjoint(xp, w, masks),
        (x, *masks),
        reach=(low, high),
        affine=True,
    )


def _between(
    x: HostArray, gaps: HostArray, tied: NDArray[np.bool_], eps: float, *, down: bool
) -> tuple[HostArray, HostArray]:
    """The lowest and the highest coordinates that keep the order."""
    end = np.full((*x.shape[:-1], 1), np.inf)
    before = np.concatenate([end, gaps], axis=-1)  # the gap to the entry before
    size = np.ones(x.shape)  # members of the run, of which each may move all that follow
    after = np.concatenate([gaps, end], axis=-1)
    if np.any(tied):
        for k in range(1, x.shape[-1]):
            size[..., k] = np.where(tied[..., k], size[..., k - 1] + 1, 1)
        for k in range(x.shape[-1] - 2, -1, -1):  # each member has the size of its run
            joined = tied[..., k + 1]
            size[..., k] = np.where(joined, size[..., k + 1], size[..., k])
            after[..., k] = np.where(joined, after[..., k + 1], after[..., k])
    wide = before > 64 * eps * np.abs(x)  # else rounding would reorder them
    back = np.where(tied, np.where(wide, before / 2, 0.0), before / 2)
    ahead = after / (2 * size)
    return (x - ahead, x + back) if down else (x - back, x + ahead)


def _doublings(tied: NDArray[np.bool_]) -> list[NDArray[np.bool_]]:
    """For shifts of 1, 2, 4 and so on: which entries are tied to the one that far before."""
    masks = []
    mask, shift = tied, 1
    while np.any(mask):
        masks.append(mask)
        shifted = np.zeros_like(mask)
        shifted[..., shift:] = mask[..., :-shift]
        mask, shift = mask & shifted, 2 * shift
    return masks


def _run_sums(xp: Any, v: Array, masks: tuple[Array, ...]) -> Array:
    """Sums over the entries before in the same run, by doubling."""
    for k, mask in enumerate(masks):
        edge = xp.zeros_like(v[..., : 2**k])
        v = v + mask * xp.concat([edge, v[..., : -(2**k)]], axis=-1)
    return v


def _run_sums_adjoint(xp: Any, w: Array, masks: tuple[Array, ...]) -> Array:
    for k, mask in reversed(list(enumerate(masks))):
        edge = xp.zeros_like(w[..., : 2**k])
        w = w + xp.concat([(mask * w)[..., 2**k :], edge], axis=-1)
    return w


def positive(x: HostArray, eps: float) -> Chart:
    """The identity, where numbers stay positive; zeros may grow."""
    _require_axes(x, 0)
    if np.iscomplexobj(x):
        raise OffTheSetError("is complex", "give real numbers")
    if not np.all(x >= 0):
        raise OffTheSetError(f"has the entry {np.min(x):.3g}", "pass entries that are not negative")
    return Chart("positive numbers", reach=(SMALL * x, np.full(x.shape, np.inf)), affine=True)


SETS: Mapping[str, Callable[[HostArray, float], Chart]] = {
    "symmetric": symmetric,
    "positive definite": positive_definite,
    "simplex": simplex,
    "sphere": sphere,
    "orthogonal": orthogonal,
    "sorted": ordered,
    "positive": positive,
}
"""The charts by the names of their sets, from a point and the spacing of its dtype at 1."""


# ---------------------------------------------------------------- helpers


def _require_axes(x: HostArray, count: int) -> None:
    if x.ndim < count:
        raise OffTheSetError(f"has the shape {x.shape}", f"give an array of {count} axes or more")
    if not np.all(np.isfinite(x)):
        raise OffTheSetError("is not finite", "pass finite numbers")


def _require_real(x: HostArray) -> None:
    if np.iscomplexobj(x):
        raise OffTheSetError("is complex", "give real numbers")
    _require_axes(x, 1)


def _require_hermitian(x: HostArray, eps: float) -> None:
    _require_axes(x, 2)
    if x.shape[-1] != x.shape[-2]:
        raise OffTheSetError(f"has the shape {x.shape}", "give square matrices")
    gap, size = float(np.max(np.abs(x - _adjoint(np, x)))), float(np.max(np.abs(x)))
    if not gap <= tolerance(eps, x.shape[-1]) * size:
        raise OffTheSetError(
            f"differs from its {'conjugate ' * np.iscomplexobj(x)}transpose by up to {gap:.3g}",
            "pass the mean of the two",
        )


def _everywhere(x: HostArray) -> complex:
    """A number of modulus one at most that moves every real coordinate of an entry."""
    return (1 + 1j) / np.sqrt(2) if np.iscomplexobj(x) else 1.0


def _adjoint(xp: Any, z: Array) -> Array:
    transposed = xp.matrix_transpose(z)
    return xp.conj(transposed) if xp.isdtype(z.dtype, "complex floating") else transposed


def _hermitian_part(xp: Any, z: Array) -> Array:
    return (z + _adjoint(xp, z)) * 0.5


def _dot(xp: Any, a: Array, b: Array) -> Array:
    """The real inner product along the last axis."""
    if not xp.isdtype(a.dtype, "complex floating"):
        return xp.sum(a * b, axis=-1, keepdims=True)
    return xp.sum(xp.real(a) * xp.real(b) + xp.imag(a) * xp.imag(b), axis=-1, keepdims=True)


def _norm(xp: Any, z: Array) -> Array:
    return xp.sqrt(_dot(xp, z, z))


def _total(x: HostArray) -> HostArray:
    return np.asarray(np.sum(x, axis=-1, keepdims=True))


def _farthest(values: HostArray) -> str:
    """Of numbers that should be one, that which is not."""
    return f"{values.reshape(-1)[np.argmax(np.abs(values - 1))]:.10g}"
