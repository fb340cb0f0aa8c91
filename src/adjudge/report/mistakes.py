"""This module puts the likely mistake behind a wrong derivative of few entries into one sentence,
where the numbers of all entries bear it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from math import lgamma, log, log10, prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import ENTRY_FLOOR, MOST_EVIDENCE, PATTERN_EVIDENCE, PLACE_EVIDENCE
from adjudge.floats import Vector
from adjudge.report.patterns import (
    Array,
    Guess,
    Mask,
    Shape,
    Transform,
    conjugations,
    reversal,
    rotation,
    sums,
    transpositions,
)


@dataclass(frozen=True)
class DerivativePair:
    """The gradient of one input by the engine, and its reference.

    Both have the shape (*input_shape, components), with two components of a complex entry and one
    of a real one.
    """

    automatic: Array
    reference: Array
    """`<w, J e_k>` by differences; not finite where it is not known."""
    error: Array
    """How far off the reference may be."""
    rtol: float
    """What may differ besides, relative to the entry."""

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape without the components."""
        return self.automatic.shape[:-1]

    @cached_property
    def known(self) -> Mask:
        """Marks where there is a reference, by component."""
        return np.isfinite(self.reference) & np.isfinite(self.error)

    @cached_property
    def compared(self) -> Mask:
        """Marks where there is a reference, by entry, as are all masks below."""
        return np.asarray(self.known.any(axis=-1))

    @cached_property
    def floor(self) -> float:
        """The size below which an entry is compared on the scale of the others."""
        return ENTRY_FLOOR * float(np.max(np.abs(self.reference), where=self.known, initial=0.0))

    @cached_property
    def wrong(self) -> Mask:
        """Marks where the automatic value is not the reference."""
        missed = self.known & ~self.close(self.reference, self.error)
        return np.asarray(missed.any(axis=-1))

    @cached_property
    def zero(self) -> Mask:
        """Marks where the reference vanishes."""
        small = np.abs(self.reference) <= self.error + self.rtol * self.floor
        return np.asarray((small | ~self.known).all(axis=-1))

    @cached_property
    def informative(self) -> Mask:
        """Marks where a mistake would show: the wrong entries, and those that do not vanish."""
        return self.wrong | (self.compared & ~self.zero)

    def allowed(self, value: Array, error: Array) -> Array:
        """Returns the largest difference between the automatic value and `value` that is
        accepted.
        """
        return allowed(self.automatic, value, error, self.rtol, self.floor)

    def close(self, value: Array, error: Array) -> Mask:
        """Marks where the automatic value is `value`, by component."""
        gap = np.abs(self.automatic - value)
        return np.isfinite(self.automatic) & (gap <= self.allowed(value, error))

    def evidence(self, change: Transform, mask: Mask, slack: float = 0.0) -> Array:
        """Returns the evidence for `change` of each component within `mask`, in decades; empty
        where one contradicts.
        """
        value = change(self.reference)
        error = np.abs(change(self.error)) + slack * np.abs(self.reference)
        inside = mask[..., None] & np.isfinite(value) & np.isfinite(error)
        if not self.close(value, error)[inside].all():
            return np.zeros(0)
        inside &= self.known
        return evidence((value - self.reference)[inside], self.allowed(value, error)[inside])


def allowed(automatic: Array, value: Array, error: Array, rtol: float, floor: float) -> Array:
    """Returns the largest difference of two values that is accepted: the rule of
    `jacobian.comparison`.
    """
    return error + rtol * np.maximum(np.maximum(np.abs(automatic), np.abs(value)), floor)


def evidence(gap: Array, margin: Array) -> Array:
    """Returns `log10(gap / margin)` where that is positive, and no more than float64 can tell: how
    unlikely it is that a number which could have been off by `gap` lies within `margin` by
    accident.
    """
    ratio = np.where(gap == 0, 0.0, np.abs(gap) / margin)
    return np.asarray(np.log10(np.clip(ratio, 1.0, MOST_EVIDENCE)))


def most_evident(pair: DerivativePair, guesses: Iterable[Guess]) -> str | None:
    """Returns the predicate with the most evidence, if that is enough."""
    scores = [
        (float(pair.evidence(guess.change, pair.compared).sum()) - guess.cost, guess.text)
        for guess in guesses
    ]
    score, text = max(scores, default=(0.0, ""), key=lambda scored: scored[0])
    return text if score >= PATTERN_EVIDENCE else None


def wrong_phase(pair: DerivativePair) -> str | None:
    """Returns the predicate that only the phase of complex entries is wrong, if the numbers show
    it.
    """
    if pair.automatic.shape[-1] == 1:
        return None
    known = pair.known.all(axis=-1)
    gap = np.linalg.norm((pair.automatic - pair.reference)[known], axis=-1)
    a, r, e = (
        np.linalg.norm(part[known], axis=-1)
        for part in (pair.automatic, pair.reference, pair.error)
    )
    margin = e + pair.rtol * np.maximum(np.maximum(a, r), pair.floor)
    if (np.abs(a - r) <= margin).all() and evidence(gap, margin).sum() >= PATTERN_EVIDENCE:
        return "has the right modulus and the wrong phase: a missing conjugate?"
    return None


def reorderings(pair: DerivativePair) -> Iterator[Guess]:
    """Yields guesses that one axis was reversed, shifted or put into another order."""
    cost = log10(max(sum(pair.shape), 1))
    for axis, size in enumerate(pair.shape):
        if size < 2:
            continue
        fits, steps = _matches(pair, axis), np.arange(size)
        if fits[steps, steps[::-1]].all():
            yield reversal(axis, cost)
        for shift in range(1, size):
            if fits[steps, steps - shift].all():
                yield rotation(axis, size, shift, cost)
        order = _assigned(fits)
        if order is not None:
            shown = f" ({', '.join(map(str, order))})" if size <= 8 else ""
            text = f"has the indices of axis {axis} in another order{shown}"
            several = log10(len(pair.shape)) + lgamma(size + 1) / log(10)
            there, back = (partial(np.take, indices=k, axis=axis) for k in (order, order.argsort()))
            yield Guess(text, there, back, several)


def _matches(pair: DerivativePair, axis: int) -> Mask:
    """Returns whether index i of the automatic derivative is index j of the reference, as a
    table.
    """
    a, r, e = (
        np.moveaxis(part, axis, 0).reshape(pair.shape[axis], -1)
        for part in (pair.automatic, pair.reference, pair.error)
    )
    fits = np.zeros((len(a), len(a)), dtype=bool)
    for j, (value, error) in enumerate(zip(r, e, strict=True)):
        unknown = ~(np.isfinite(value) & np.isfinite(error))
        near = np.abs(a - value) <= allowed(a, value, error, pair.rtol, pair.floor)
        fits[:, j] = (near | unknown).all(axis=1)
    return fits


def _assigned(fits: Mask) -> NDArray[np.int64] | None:
    """Returns an assignment of the indices to those that they match, the most constrained first;
    `None` without one.
    """
    order = np.full(len(fits), -1)
    free = np.ones(len(fits), dtype=bool)
    for i in np.argsort(fits.sum(axis=1), kind="stable"):
        left = np.flatnonzero(fits[i] & free)
        if not left.size:
            return None
        order[i] = i if i in left else left[0]
        free[order[i]] = False
    return order


def diagnose(
    pair: DerivativePair,
    *,
    x: Vector | None = None,
    output_shape: Shape = (),
    other: Array | None = None,
    symmetric: str = "",
    subject: str = "the automatic derivative",
) -> str | None:
    """Says what is wrong with the gradient `J* w` of one input leaf, or None if the numbers do not
    say.

    A missing conjugate shows most clearly with a `w` whose imaginary parts are zero.

    Args:
        pair: `J* w` by the engine and by differences.
        x: The entries of a real leaf itself.
        output_shape: The shape of the leaf that `w` belongs to, whose axes may be found in factors.
        other: `J* w'` by the engine, with a `w'` far from `w`, such as `-2 w`.
        symmetric: The `directions=` along which the leaf stays what it is, where it holds symmetric
            matrices, or Hermitian ones.
        subject: What the sentence calls the derivative.
    """
    if not pair.wrong.any():
        return None
    if other is not None and ignores_cotangent(pair.automatic, other, pair.rtol):
        return f"{subject} is the same for two cotangents: they are ignored"
    if symmetric and _right_along_symmetric(pair):
        room = pair.allowed(pair.reference, pair.error)
        return f"{subject} {convention_of(pair.automatic, room, symmetric)}"
    sizes = sizes_of(pair.shape, output_shape)
    predicate = _only_entry(pair, x) or _everywhere(pair, sizes)
    shape, components = pair.shape, pair.automatic.shape[-1]
    for family in (
        conjugations(components),
        transpositions(shape),
        reorderings(pair),
        sums(shape),
    ):
        predicate = predicate or most_evident(pair, family)
    predicate = predicate or wrong_phase(pair) or _somewhere(pair, x, sizes)
    return None if predicate is None else f"{subject} {predicate}"


def ignores_cotangent(automatic: Array, other: Array, rtol: float) -> bool:
    """Returns whether the derivative is the same for two cotangents that are far apart."""
    margin = rtol * np.maximum(np.abs(automatic), np.abs(other))
    if not (np.abs(automatic - other) <= margin).all():
        return False
    return bool(evidence(automatic, margin).sum() >= PATTERN_EVIDENCE)


def _right_along_symmetric(pair: DerivativePair) -> bool:
    """Returns whether the derivative is right along symmetric matrices, and wrong otherwise.

    Any two conventions for a function of these differ by an antisymmetric matrix, which has no
    product with a symmetric one.
    """
    here, (i, j) = pair.known, (pair.automatic.ndim - 3, pair.automatic.ndim - 2)
    both = here & np.swapaxes(here, i, j)
    gap, margin = pair.automatic - pair.reference, pair.allowed(pair.reference, pair.error)
    margin = margin + np.swapaxes(margin, i, j)
    if not (np.abs(gap + adjoint(gap)) <= margin)[both].all():
        return False
    pairs = np.triu_indices(both.shape[i], 1)
    upper = np.moveaxis(both, (i, j), (0, 1))[pairs]
    off, room = (np.moveaxis(part, (i, j), (0, 1)) for part in (gap, margin))
    return bool(evidence(off[pairs][upper], room[pairs][upper]).sum() >= PATTERN_EVIDENCE)


def adjoint(part: Array) -> Array:
    """Returns the conjugate transposes of matrices whose entries have their components last."""
    signs = np.array([1.0, -1.0])[: part.shape[-1]]
    return np.asarray(np.swapaxes(part, -3, -2) * signs)


def convention_of(automatic: Array, room: Array | float, directions: str) -> str:
    """Returns the predicate that the derivative is one along symmetric matrices alone, by which of
    the conventions, and how it is checked there.

    Args:
        automatic: The derivative, with the shape (..., n, n, components).
        room: What two of its entries may differ by and count as equal.
        directions: The option that keeps the input symmetric.
    """
    room = room + np.swapaxes(room, -3, -2) if isinstance(room, np.ndarray) else 2 * room
    values = np.moveaxis(automatic, (-3, -2), (0, 1))
    pairs = np.triu_indices(values.shape[0], 1)
    what = "differs from the reference by an antisymmetric part"
    if (np.abs(automatic - adjoint(automatic)) <= room).all():
        what = "is symmetrised: the mean of it and its transpose"
    elif not values[pairs].any():
        what = "holds what belongs to both triangles in the lower one"
    elif not np.swapaxes(values, 0, 1)[pairs].any():
        what = "holds what belongs to both triangles in the upper one"
    return (
        f"{what}; x is symmetric, and along symmetric matrices it is right: if f is meant for "
        f"these, check it there: directions={directions}"
    )


def right_along(name: str, directions: str) -> str:
    """Returns the predicate that the derivative is right along a curved set, of which x is a point.

    Args:
        name: The name of the set, one of `CURVED_SETS`.
        directions: The option that keeps the input in it.
    """
    return (
        f"is right in the directions that stay {CURVED_SETS[name]}, where x is, and wrong in the "
        f"others: if f is meant for such points, check it there: directions={directions}"
    )


CURVED_SETS = {
    "sphere": "on the unit sphere",
    "simplex": "on the simplex",
    "orthogonal": "among the matrices of orthonormal columns (or rows)",
}
"""Where their points stay, by the name of a set that some directions leave at once."""


# -- what the wrong entries are


class Description(NamedTuple):
    """Describes the wrong entries: a verb, and what follows the place."""

    verb: str
    hint: str = ""


def _description(pair: DerivativePair, mask: Mask, sizes: dict[int, str]) -> Description | None:
    """Returns what the automatic derivative is, all over `mask`; `None` if no single thing."""
    inside = mask[..., None] & pair.known
    a, r, e = (part[inside] for part in (pair.automatic, pair.reference, pair.error))
    if not np.isfinite(a).all():
        return None if np.isfinite(a).any() else Description("is not finite")
    if not a.any():
        met = pair.evidence(np.zeros_like, mask).sum() >= PATTERN_EVIDENCE
        return Description("is zero", ", where the reference is not") if met else None
    if (pair.zero | ~mask).all():
        if evidence(a, e + pair.rtol * np.abs(a)).sum() < PATTERN_EVIDENCE:
            return None
        still = not (r.any() or e.any())
        if still:
            hint = ", where f does not move"
        elif (pair.compared & ~mask & ~pair.zero).any():
            hint = ", where the reference is zero (a missing mask, of clamp or where?)"
        else:
            hint = ", where the reference is zero"
        return Description("is not zero", hint)
    return _factor(pair, mask, sizes)


def _factor(pair: DerivativePair, mask: Mask, sizes: dict[int, str]) -> Description | None:
    """Returns the factor between the automatic derivative and the reference within `mask`, if there
    is one.
    """
    inside = mask[..., None] & pair.known
    a, r = pair.automatic[inside], pair.reference[inside]
    margin = pair.allowed(pair.reference, pair.error)[inside]
    margin = np.maximum(margin, np.finfo(np.float64).tiny ** 0.25)
    fitted = float((a * r / margin**2).sum() / (r * r / margin**2).sum())
    # This is what errors of r, as large as they may be, make of the fit.
    slack = abs(fitted) * float((abs(r) / margin).sum() / (r * r / margin**2).sum())
    named = named_factors(sizes)
    fits = [
        what
        for factor, what in named.items()
        if pair.evidence(partial(np.multiply, factor), mask).sum()
        >= PATTERN_EVIDENCE + (0.0 if factor in {-1.0, 2.0, 0.5} else log10(len(named)))
    ]
    if len(fits) == 1:
        return fits[0]
    met = pair.evidence(partial(np.multiply, fitted), mask, slack)
    # One entry went into the fit, and is no evidence for it.
    if met.size and met.sum() - met.max() >= PATTERN_EVIDENCE:
        return Description(f"is {number(fitted)} times the reference")
    return None


def named_factors(sizes: dict[int, str]) -> dict[float, Description]:
    """Returns the factors that have a meaning, such as the size of an axis, with their
    descriptions.
    """
    more, less = "a sum for a mean?", "a mean for a sum, or no sum over a broadcast axis?"
    named = {-1.0: Description("has the opposite sign")}
    for size, name in {2: "", **sizes}.items():
        of = f" ({size}: {name})" if name else ""
        half = ("a missing factor 1/2?", "a missing factor 2?") if size == 2 else ("", "")
        up, down = (
            ": " + " ".join(filter(None, (special, general if name else "")))
            for special, general in zip(half, (more, less), strict=True)
        )
        named[float(size)] = Description(f"is {size} times the reference", up + of)
        named[1 / size] = Description(f"is 1/{size} times the reference", down + of)
    return named


def sizes_of(shape: Shape, output_shape: Shape) -> dict[int, str]:
    """Returns the sizes of axes that a mean or a sum may have run over, with their names."""
    found: dict[int, str] = {}
    names = [(f"axis {k} of the output", size) for k, size in enumerate(output_shape)]
    names += [("the size of the output", prod(output_shape))]
    names += [(f"axis {k}", size) for k, size in enumerate(shape)]
    names += [("the size of the input", prod(shape))]
    for name, size in names:
        if size > 1:
            found.setdefault(size, name if name.startswith("the") else f"the size of {name}")
    return found


def number(c: float) -> str:
    """Returns a factor with as many digits as tell it from 1."""
    digits = next((d for d in (4, 7, 10) if f"{c:.{d}g}" != "1"), 17)
    return f"{c:.{digits}g}"


# -- where they are


def _only_entry(pair: DerivativePair, x: Vector | None) -> str | None:
    """Returns the predicate about the only wrong entry among others that are right."""
    if np.count_nonzero(pair.wrong) != 1 or np.count_nonzero(pair.informative) == 1:
        return None
    index = tuple(int(k) for k in np.argwhere(pair.wrong)[0])
    a = pair.automatic[index].reshape(-1)
    if a.size > 1:
        ratio = ""
    elif pair.zero[index]:
        ratio = ", where the reference is zero"
    elif np.isfinite(a[0]):
        # Another factor would be that of a sum over outputs, beside which the finding shows the
        # entry itself.
        ratio = "" if a[0] else ": it is zero"
    else:
        ratio = f": it is {a[0]}"
    at = str(list(index))
    if x is not None and x.reshape(pair.shape)[index] == 0:
        at += " (where x is 0)"
    return f"is wrong in 1 of {np.count_nonzero(pair.compared)} entries, at {at}{ratio}"


def _everywhere(pair: DerivativePair, sizes: dict[int, str]) -> str | None:
    """Returns the predicate that holds in all entries."""
    what = _description(pair, pair.compared, sizes)
    if what is None:
        return None
    count, total = np.count_nonzero(pair.informative), np.count_nonzero(pair.compared)
    rest = "" if count == total else " (the others are zero)"
    return f"{what.verb} in {count} of {total} entries{rest}{what.hint}"


def _somewhere(pair: DerivativePair, x: Vector | None, sizes: dict[int, str]) -> str | None:
    """Returns the predicate about wrong entries in a place, or in a number of entries."""
    what = _description(pair, pair.wrong, sizes)
    verb, hint = what or Description("is wrong")
    wrong, count = np.count_nonzero(pair.wrong), np.count_nonzero(pair.informative)
    ways = ways_in_decades(count, wrong)
    if x is not None:
        place = _domain(pair, x)
        if place is not None:
            return f"{verb} exactly where the input is {place}{hint}"
    for place, tried in _boxes(pair):
        if what is not None or ways - tried >= PLACE_EVIDENCE:
            right = "there" if place.startswith("except") else "elsewhere"
            return f"{verb} {place}{hint}; right {right}"
    if what is None:
        return None
    return f"{verb} in {wrong} of {pair.compared.sum()} entries{hint}; the others are right"


def ways_in_decades(count: int | np.signedinteger, chosen: int | np.signedinteger) -> float:
    """Returns the decimal logarithm of the number of ways to choose some of so many entries."""
    n, k = int(count), int(chosen)
    return (lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)) / log(10)


def _domain(pair: DerivativePair, x: Vector) -> str | None:
    """Returns the values of x at which, and only at which, entries are wrong."""
    wrong, informative, values = pair.wrong, pair.informative, x.reshape(pair.shape)
    n, k = np.count_nonzero(informative), np.count_nonzero(wrong)
    if ways_in_decades(n, k) < PLACE_EVIDENCE:
        return None
    for place, inside in (
        ("zero", values == 0),
        ("negative", values < 0),
        ("zero or negative", values <= 0),
        ("positive", values > 0),
    ):
        if np.array_equal(wrong, inside & informative):
            return place
    return None


def _boxes(pair: DerivativePair) -> Iterator[tuple[str, float]]:
    """Yields the boxes that hold all wrong entries and none that is right, with the decades of
    their kind.
    """
    used = [np.unique(k).astype(np.int64) for k in np.argwhere(pair.wrong).T]
    for axis, size in enumerate(pair.shape):
        right = np.setdiff1d(np.arange(size), used[axis])
        if right.size == 1 and size > 2 and _filled(pair, {axis: used[axis]}):
            first = right[0] == 0 and axis == 0
            batch = " (only the first element of a batch?)" if first else ""
            tried = 0.0 if first else log10(sum(pair.shape))
            yield f"except at index {right[0]} of axis {axis}{batch}", tried
    ranges = {k: u for k, u in enumerate(used) if u.size < pair.shape[k]}
    if not ranges or any(u[-1] - u[0] >= u.size for u in ranges.values()):
        return
    if _filled(pair, ranges):
        names = [
            (f"index {u[0]}" if u.size == 1 else f"indices {u[0]} to {u[-1]}") + f" of axis {k}"
            for k, u in ranges.items()
        ]
        boxes = prod(pair.shape[k] * (pair.shape[k] + 1) // 2 for k in ranges)
        if len(ranges) == 1 and min(u.size for u in ranges.values()) == 1:
            boxes = sum(pair.shape)
        yield f"at {' and '.join(names)}", log10(boxes)


def _filled(pair: DerivativePair, ranges: dict[int, NDArray[np.int64]]) -> bool:
    """Returns whether every entry within these indices that could be wrong is wrong."""
    inside = np.ones(pair.shape, dtype=bool)
    for axis, indices in ranges.items():
        shape = [-1 if k == axis else 1 for k in range(inside.ndim)]
        inside &= np.isin(np.arange(pair.shape[axis]), indices).reshape(shape)
    return bool((pair.wrong == (inside & pair.informative)).all())
