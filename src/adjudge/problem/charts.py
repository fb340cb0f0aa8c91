"""The charts of the sets that inputs may live on.

A chart maps coordinates to points of a set and has a derivative in each of the two modes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import (
    CHART_RADIUS,
    MOST_OFF_SET,
    OFF_SET_UNITS,
    POLAR_STEPS,
    TIED_STEPS,
    TIED_UNITS,
)
from adjudge.engine import Array, HostArray
from adjudge.floats import relative_step, scale

Map: TypeAlias = Callable[..., Array]


class OffTheSetError(Exception):
    """Is raised for a point that is not in the set; its arguments are the finding and a remedy."""


@dataclass(frozen=True)
class Chart:
    """A map `c: z -> x` from an open set of coordinates `z`, of the shape of x, to a set with x.

    The coordinates of x itself are mapped to x up to rounding, and the derivative there maps onto
    the tangent space of the set. The maps take the Array API namespace as their first argument and
    the constants, as arrays like x, as their last ones.
    """

    set_name: str
    """The name of the set, as reports print it."""
    value: Map | None = None
    """The map `(xp, z, *constants) -> x`; `None` stands for the identity within `reach`."""
    push: Map | None = None
    """The jvp `(xp, z, v, *constants) -> c'(z) v`, or `None` where nobody wrote one."""
    pull: Map | None = None
    """The vjp `(xp, z, w, *constants) -> c'(z)* w`, or `None` where nobody wrote one."""
    constants: tuple[HostArray, ...] = ()
    """The arrays, each of the shape of x, that the maps take as their last arguments."""
    start: HostArray | None = None
    """The coordinates of x, or `None` where they are x itself."""
    reach: tuple[HostArray, HostArray] | None = None
    """The lowest and the highest coordinates, each of the shape of x, between which the values are
    in the set; `None` means that nothing limits the coordinates."""
    affine: bool = False
    """Whether the map is affine, so that its second derivative is zero."""


def tolerance(eps: float, terms: int) -> float:
    """Returns how far rounding may take a sum of `terms` numbers of size one from its exact value.

    The spacing at 1 of the dtype of x is `eps`. The growth with the square root of `terms` is that
    of independent rounding errors, which is standard.
    """
    return min(MOST_OFF_SET, OFF_SET_UNITS * eps * math.sqrt(max(terms, 1)))


# ---------------------------------------------------------------- symmetric, positive definite


def symmetric(x: HostArray, eps: float) -> Chart:
    """Returns the chart `(z + z*) / 2`, whose values are symmetric to the last bit.

    The point `x` has the shape `(..., n, n)` and is Hermitian where it is complex. Raises
    `OffTheSetError` where it is not symmetric up to the rounding `eps`.
    """
    _require_hermitian(x, eps)
    return Chart(
        "Hermitian matrices" if np.iscomplexobj(x) else "symmetric matrices",
        _hermitian_part,
        lambda xp, z, v: _hermitian_part(xp, v),
        lambda xp, z, w: _hermitian_part(xp, w),
        affine=True,
    )


def positive_definite(x: HostArray, eps: float) -> Chart:
    """Returns the chart of the symmetric matrices, limited to positive definite ones.

    The point `x` has the shape `(..., n, n)`. No entry moves by more than `1 / (2 n)` of the
    smallest eigenvalue of its matrix, so that no eigenvalue moves by more than half of that, by
    Weyl's inequality. Without the limit a step could leave the set. The fraction of one half is
    ours. Raises `OffTheSetError` where `x` is not symmetric or where an eigenvalue of it is not
    larger than the rounding of the largest.
    """
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
    """Returns the chart `z / sum(z)` along the last axis, times the sum of `x`.

    The point `x` has the shape `(..., n)`. The sum of `x` is 1 up to rounding, and with it as a
    factor the chart is the identity at `x`. Positive entries stay positive, and entries that are
    zero may only grow. Raises `OffTheSetError` where `x` is complex, has a negative entry or does
    not sum to 1.
    """
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
        reach=(CHART_RADIUS * x, np.full(x.shape, np.inf)),
    )


def _simplex_push(xp: Any, z: Array, v: Array, s: Array) -> Array:
    """Returns the jvp of the chart of the simplex at `z` along `v`; `s` is the sum of x."""
    total = xp.sum(z, axis=-1, keepdims=True)
    return (v - z * (xp.sum(v, axis=-1, keepdims=True) / total)) * (s / total)


def _simplex_pull(xp: Any, z: Array, w: Array, s: Array) -> Array:
    """Returns the vjp of the chart of the simplex at `z` for `w`; `s` is the sum of x."""
    total = xp.sum(z, axis=-1, keepdims=True)
    w = w * s / total
    return w - xp.sum(w * z, axis=-1, keepdims=True) / total


def sphere(x: HostArray, eps: float) -> Chart:
    """Returns the chart `z / |z|` along the last axis, times the norm of `x`.

    The point `x` has the shape `(..., n)`. Its norm is 1 up to rounding, and with it as a factor
    the chart is the identity at `x`. Raises `OffTheSetError` where the norm of `x` is not 1.
    """
    _require_axes(x, 1)
    norm = np.sqrt(_total(np.abs(x) ** 2))
    if not np.all(np.abs(norm - 1) <= tolerance(eps, x.shape[-1])):
        raise OffTheSetError(
            f"has the norm {_farthest(norm)} along its last axis", "divide it by its norm"
        )

    def derivative(xp: Any, z: Array, v: Array, r: Array) -> Array:
        """Returns the derivative at `z` along `v`, which is its own adjoint; `r` is `|x|`."""
        n = z / _norm(xp, z)
        return (v - n * _dot(xp, n, v)) * (r / _norm(xp, z))

    return Chart(
        "the unit sphere",
        lambda xp, z, r: z * (r / _norm(xp, z)),
        derivative,
        derivative,
        # The norm is made complex where x is complex, since constants have the dtype of x.
        (np.broadcast_to(norm, x.shape).astype(x.dtype),),
    )


# ---------------------------------------------------------------- orthogonal


def orthogonal(x: HostArray, eps: float) -> Chart:
    """Returns the chart that maps `z` to the polar factor of `x + z - start`.

    The point `x` has the shape `(..., n, m)`; its columns are orthonormal where `n >= m`, else its
    rows. The polar factor is found by the Newton-Schulz iteration `z (3 - z* z) / 2`, which is
    standard. The entries of `start`, the coordinates of `x`, all have one and the same power of
    two as their real part, and as their imaginary part where `x` is complex. The steps of
    differences follow the scale of the coordinates: were these `x` itself, an entry that is almost
    zero would move by less than the rounding of the other entries. This shift is ours.

    Raises `OffTheSetError` where neither the columns nor the rows are orthonormal as said.
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
    room = _everywhere(x) * CHART_RADIUS / np.sqrt(n * m)
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
    """Returns the iterates of the Newton-Schulz iteration for the polar factor, with `z` first."""
    found = [z]
    for _ in range(POLAR_STEPS):
        z = z * 1.5 - xp.matmul(z, xp.matmul(_adjoint(xp, z), z)) * 0.5
        found.append(z)
    return found


def _polar_push(xp: Any, z: Array, v: Array, x: Array, start: Array) -> Array:
    """Returns the jvp of the chart `orthogonal` at `z` along `v`."""
    for q in _polar(xp, z - start + x)[:-1]:
        v = _polar_derivative(xp, q, v)
    return v


def _polar_pull(xp: Any, z: Array, w: Array, x: Array, start: Array) -> Array:
    """Returns the vjp of the chart `orthogonal` at `z` for `w`."""
    for q in reversed(_polar(xp, z - start + x)[:-1]):
        w = _polar_derivative(xp, q, w)
    return w


def _polar_derivative(xp: Any, q: Array, v: Array) -> Array:
    """Returns the derivative of one step of the iteration at `q` along `v`, its own adjoint."""
    gram = xp.matmul(_adjoint(xp, q), q)
    cross = xp.matmul(_adjoint(xp, v), q)
    more = xp.matmul(v, gram) + xp.matmul(q, cross + _adjoint(xp, cross))
    return v * 1.5 - more * 0.5


# ---------------------------------------------------------------- sorted and positive


def ordered(x: HostArray, eps: float) -> Chart:
    """Returns the chart `x + s (z - x)` of the numbers that are sorted along the last axis.

    The point `x` has the shape `(..., n)` and is ascending or descending. The linear map `s` sums,
    within each run of entries that are tied or almost tied, over an entry and those before it. An
    entry on its own goes no further than half the way to its neighbours. In a run the first
    coordinate moves all entries, and each further coordinate moves its own entry and those after
    it away from the entry before. With the identity in place of `s`, tied entries could not move
    without changing their order. The rule is ours.

    Raises `OffTheSetError` where `x` is complex or not sorted.
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
    near = gaps < TIED_STEPS * relative_step(eps) * length[..., 1:]
    no = np.zeros((*x.shape[:-1], 1), bool)
    tied = np.concatenate([no, near], axis=-1)  # This says which are tied to the entry before.
    low, high = _between(x, gaps, tied, eps, down=down)
    masks = [mask.astype(np.float64) for mask in _doublings(tied)]
    words = f"sorted numbers{' (descending)' if down else ''}"
    if not masks:
        return Chart(words, reach=(low, high), affine=True)

    def value(xp: Any, z: Array, x: Array, *masks: Array) -> Array:
        """Returns the sorted numbers with the coordinates `z`."""
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
    """Returns the lowest and the highest coordinates that keep the order, each shaped as `x`.

    Args:
        x: The sorted numbers, of the shape `(..., n)`.
        gaps: The distances between neighbours, of the shape `(..., n - 1)`.
        tied: Says of each entry of `x` whether it is tied to the entry before.
        eps: The spacing at 1 of the dtype of x.
        down: Whether the numbers are descending.
    """
    end = np.full((*x.shape[:-1], 1), np.inf)
    before = np.concatenate([end, gaps], axis=-1)  # These are the gaps to the entry before.
    # A run of `size` members shares the room after it, since each may move all that follow.
    size = np.ones(x.shape)
    after = np.concatenate([gaps, end], axis=-1)
    if np.any(tied):
        for k in range(1, x.shape[-1]):
            size[..., k] = np.where(tied[..., k], size[..., k - 1] + 1, 1)
        for k in range(x.shape[-1] - 2, -1, -1):  # Each member gets the size of its run.
            joined = tied[..., k + 1]
            size[..., k] = np.where(joined, size[..., k + 1], size[..., k])
            after[..., k] = np.where(joined, after[..., k + 1], after[..., k])
    # Rounding could change the order of two entries that are closer than this.
    wide = before > TIED_UNITS * eps * np.abs(x)
    back = np.where(tied, np.where(wide, before / 2, 0.0), before / 2)
    ahead = after / (2 * size)
    return (x - ahead, x + back) if down else (x - back, x + ahead)


def _doublings(tied: NDArray[np.bool_]) -> list[NDArray[np.bool_]]:
    """Returns one mask, shaped as `tied`, for each of the shifts 1, 2, 4 and so on.

    The mask for a shift says which entries are tied to the entry that far before. The masks end
    where no run is longer than the shift.
    """
    masks = []
    mask, shift = tied, 1
    while np.any(mask):
        masks.append(mask)
        shifted = np.zeros_like(mask)
        shifted[..., shift:] = mask[..., :-shift]
        mask, shift = mask & shifted, 2 * shift
    return masks


def _run_sums(xp: Any, v: Array, masks: tuple[Array, ...]) -> Array:
    """Returns, for each entry of `v`, the sum over it and the entries before it in its run.

    Doubling the shift at every step, which is a standard prefix sum, needs as many operations on
    whole arrays as `_doublings` has masks.
    """
    for k, mask in enumerate(masks):
        edge = xp.zeros_like(v[..., : 2**k])
        v = v + mask * xp.concat([edge, v[..., : -(2**k)]], axis=-1)
    return v


def _run_sums_adjoint(xp: Any, w: Array, masks: tuple[Array, ...]) -> Array:
    """Returns the adjoint of `_run_sums` at `w`."""
    for k, mask in reversed(list(enumerate(masks))):
        edge = xp.zeros_like(w[..., : 2**k])
        w = w + xp.concat([(mask * w)[..., 2**k :], edge], axis=-1)
    return w


def positive(x: HostArray, eps: float) -> Chart:
    """Returns the identity, limited to where positive numbers stay positive and zeros only grow.

    The point `x` has any shape. Raises `OffTheSetError` where it is complex or has a negative
    entry.
    """
    _require_axes(x, 0)
    if np.iscomplexobj(x):
        raise OffTheSetError("is complex", "give real numbers")
    if not np.all(x >= 0):
        raise OffTheSetError(f"has the entry {np.min(x):.3g}", "pass entries that are not negative")
    return Chart(
        "positive numbers", reach=(CHART_RADIUS * x, np.full(x.shape, np.inf)), affine=True
    )


SETS: Mapping[str, Callable[[HostArray, float], Chart]] = {
    "symmetric": symmetric,
    "positive definite": positive_definite,
    "simplex": simplex,
    "sphere": sphere,
    "orthogonal": orthogonal,
    "sorted": ordered,
    "positive": positive,
}
"""The functions that make charts, by the names of the sets. Each takes a point and the spacing at 1
of its dtype."""


# ---------------------------------------------------------------- helpers


def _require_axes(x: HostArray, count: int) -> None:
    """Raises `OffTheSetError` where `x` has fewer than `count` axes or is not finite."""
    if x.ndim < count:
        raise OffTheSetError(f"has the shape {x.shape}", f"give an array of {count} axes or more")
    if not np.all(np.isfinite(x)):
        raise OffTheSetError("is not finite", "pass finite numbers")


def _require_real(x: HostArray) -> None:
    """Raises `OffTheSetError` where `x` is complex, has no axis or is not finite."""
    if np.iscomplexobj(x):
        raise OffTheSetError("is complex", "give real numbers")
    _require_axes(x, 1)


def _require_hermitian(x: HostArray, eps: float) -> None:
    """Raises `OffTheSetError` where `x` is not made of square Hermitian matrices up to rounding."""
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
    """Returns a number of modulus one with which every real coordinate of an entry moves.

    It is 1 where `x` is real and has equal real and imaginary parts where `x` is complex.
    """
    return (1 + 1j) / np.sqrt(2) if np.iscomplexobj(x) else 1.0


def _adjoint(xp: Any, z: Array) -> Array:
    """Returns the conjugate transpose over the last two axes."""
    transposed = xp.matrix_transpose(z)
    return xp.conj(transposed) if xp.isdtype(z.dtype, "complex floating") else transposed


def _hermitian_part(xp: Any, z: Array) -> Array:
    """Returns the mean of `z` and its conjugate transpose."""
    return (z + _adjoint(xp, z)) * 0.5


def _dot(xp: Any, a: Array, b: Array) -> Array:
    """Returns the real inner product along the last axis, which stays with length 1."""
    if not xp.isdtype(a.dtype, "complex floating"):
        return xp.sum(a * b, axis=-1, keepdims=True)
    return xp.sum(xp.real(a) * xp.real(b) + xp.imag(a) * xp.imag(b), axis=-1, keepdims=True)


def _norm(xp: Any, z: Array) -> Array:
    """Returns the Euclidean norm along the last axis, which stays with length 1."""
    return xp.sqrt(_dot(xp, z, z))


def _total(x: HostArray) -> HostArray:
    """Returns the sum along the last axis, which stays with length 1."""
    return np.asarray(np.sum(x, axis=-1, keepdims=True))


def _farthest(values: HostArray) -> str:
    """Returns, as text, the one of `values` that is furthest from 1."""
    return f"{values.reshape(-1)[np.argmax(np.abs(values - 1))]:.10g}"
