"""This module puts the likely mistake behind a wrong derivative into one sentence, where the
numbers bear it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations
from math import lgamma, log, log10, prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import ENTRY_FLOOR, MOST_EVIDENCE, PATTERN_EVIDENCE, PLACE_EVIDENCE
from adjudge.estimate import Effort
from adjudge.findings import Entry
from adjudge.floats import Vector, norm
from adjudge.jacobian import Failure, Table
from adjudge.problem import Problem, Reverse, Stream, Tangent, lies_in, random_cotangent
from adjudge.report.locate import Located

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Transform = Callable[[Array], Array]
"""Turns the reference into what a mistake would make of it. It is linear, and each entry comes from
one other, or from several without a change of sign: applied to error bars it gives, but for the
sign, the error bars of what it makes of the reference."""


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


LARGEST = 2**24
"""The most numbers that are compared in the search for a permutation of one axis, which takes less
than a second."""

Guess = tuple[str, Transform, float]
"""A predicate, the transform that it states, and the decades that trying others like it costs."""


def most_evident(pair: DerivativePair, guesses: Iterable[Guess]) -> str | None:
    """Returns the predicate with the most evidence, if that is enough."""
    scores = [
        (float(pair.evidence(change, pair.compared).sum()) - cost, text)
        for text, change, cost in guesses
    ]
    score, text = max(scores, default=(0.0, ""), key=lambda scored: scored[0])
    return text if score >= PATTERN_EVIDENCE else None


# -- the families of changes, the more specific ones first


def conjugations(pair: DerivativePair) -> Iterator[Guess]:
    """Yields guesses about the signs, the absence and the exchange of real and imaginary parts."""
    if pair.automatic.shape[-1] == 1:
        return
    cost = log10(8)
    for text, factors in (
        ("has imaginary parts of the opposite sign: a missing conjugate?", (1, -1)),
        ("has real parts of the opposite sign: a missing conjugate?", (-1, 1)),
        ("has no imaginary parts, where the reference has", (1, 0)),
        ("has no real parts, where the reference has", (0, 1)),
    ):
        yield text, partial(np.multiply, factors), cost
    yield "is i times the reference", partial(_exchanged, (-1, 1)), cost
    yield "is -i times the reference", partial(_exchanged, (1, -1)), cost


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


def transpositions(pair: DerivativePair) -> Iterator[Guess]:
    """Yields guesses that two axes were exchanged, or their entries put into an array of the shape
    before.
    """
    pairs = _axis_pairs(pair)
    cost = log10(max(2 * len(pairs), 1))
    for i, j in pairs:
        names = f"axes {i} and {j}"
        if pair.shape[i] == pair.shape[j]:
            text = f"is that of the transposed input ({names} swapped)"
            yield text, partial(np.swapaxes, axis1=i, axis2=j), cost
        else:
            text = f"is that of the input with {names} reshaped, not transposed"
            yield text, partial(_reshaped, i, j), cost
            yield text, partial(_reshaped_back, i, j), cost


def reorderings(pair: DerivativePair) -> Iterator[Guess]:
    """Yields guesses that one axis was reversed, shifted or put into another order."""
    cost = log10(max(sum(pair.shape), 1))
    for axis, size in enumerate(pair.shape):
        if size < 2 or size * pair.automatic.size > LARGEST:
            continue
        fits, name, steps = _matches(pair, axis), f"axis {axis}", np.arange(size)
        opposite = steps[::-1]
        if fits[steps, opposite].all():
            yield f"is reversed along {name}", partial(np.take, indices=opposite, axis=axis), cost
        for shift in range(1, size):
            if fits[steps, steps - shift].all():
                back = shift if 2 * shift <= size else shift - size
                text = f"is shifted by {back} along {name} (around the end)"
                moved = (steps - shift) % size
                yield text, partial(np.take, indices=moved, axis=axis), cost
        order = _assigned(fits)
        if order is not None:
            shown = f" ({', '.join(map(str, order))})" if size <= 8 else ""
            text = f"has the indices of {name} in another order{shown}"
            several = log10(len(pair.shape)) + lgamma(size + 1) / log(10)
            yield text, partial(np.take, indices=order, axis=axis), several


def sums(pair: DerivativePair) -> Iterator[Guess]:
    """Yields guesses that entries were summed, shifted out, or lost on one side of a diagonal."""
    pairs, axes = _axis_pairs(pair), len(pair.shape)
    cost = log10(max(4 * axes + 4 * len(pairs), 1))
    for axis in range(axes):
        name = f"axis {axis}"
        yield f"is summed over {name}, and repeated along it", partial(_summed, axis), cost
        yield f"is averaged over {name}", partial(_summed, axis, mean=True), cost
        for shift in (1, -1):
            text = f"is shifted by {shift} along {name} (and filled with zero)"
            yield text, partial(_shifted, shift, axis), cost
    for i, j in pairs:
        if pair.shape[i] == pair.shape[j] > 1:
            text = "is symmetrised: the mean of it and its transpose"
            yield text, partial(_symmetric, i, j), cost
            text, wide = "is zero {} the diagonal, where the reference is not", pair.shape[i]
            kept = np.tri(wide, dtype=bool)
            for word, mask in (("above", kept), ("below", kept.T), ("off", kept & kept.T)):
                yield text.format(word), partial(_masked, mask, i, j), cost


def _axis_pairs(pair: DerivativePair) -> list[tuple[int, int]]:
    return list(combinations(range(len(pair.shape)), 2))


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


# -- the changes


def _exchanged(factors: tuple[int, int], part: Array) -> Array:
    """Exchanges the components, and multiplies each by its factor."""
    return np.asarray(part[..., ::-1] * factors)


def _reshaped(i: int, j: int, part: Array) -> Array:
    """Swaps two axes and puts the entries into the shape before."""
    return np.asarray(np.swapaxes(part, i, j).reshape(part.shape))


def _reshaped_back(i: int, j: int, part: Array) -> Array:
    """Inverts `_reshaped`."""
    return np.asarray(np.swapaxes(part.reshape(np.swapaxes(part, i, j).shape), i, j))


def _summed(axis: int, part: Array, *, mean: bool = False) -> Array:
    """Repeats the sum or the mean along one axis along it."""
    total = part.sum(axis, keepdims=True)
    return np.broadcast_to(total / part.shape[axis] if mean else total, part.shape)


def _shifted(shift: int, axis: int, part: Array) -> Array:
    """Shifts the entries along one axis, with zeros in the place of what was shifted out."""
    along = np.moveaxis(np.roll(part, shift, axis), axis, 0).copy()
    along[0 if shift > 0 else -1] = 0.0
    return np.moveaxis(along, 0, axis)


def _symmetric(i: int, j: int, part: Array) -> Array:
    """Takes the mean of the array and its transpose."""
    return (part + np.swapaxes(part, i, j)) / 2


def _masked(mask: Mask, i: int, j: int, part: Array) -> Array:
    """Keeps the entries within a mask over two axes."""
    shape = [size if k in (i, j) else 1 for k, size in enumerate(part.shape)]
    return np.where(mask.reshape(shape), part, 0.0)


def diagnose(
    pair: DerivativePair,
    *,
    x: Vector | None = None,
    output_shape: Sequence[int] = (),
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
    if other is not None and _ignores_cotangent(pair, other):
        return f"{subject} is the same for two cotangents: they are ignored"
    convention = _convention(pair) if symmetric else None
    if convention is not None:
        return (
            f"{subject} {convention}; x is symmetric, and along symmetric "
            "matrices it is right: if f is meant for these, check it there: "
            f"directions={symmetric}"
        )
    sizes = _sizes(pair, output_shape)
    predicate = _only_entry(pair, x) or _everywhere(pair, sizes)
    for family in (conjugations, transpositions, reorderings, sums):
        predicate = predicate or most_evident(pair, family(pair))
    predicate = predicate or wrong_phase(pair) or _somewhere(pair, x, sizes)
    return None if predicate is None else f"{subject} {predicate}"


def _ignores_cotangent(pair: DerivativePair, other: Array) -> bool:
    """Returns whether the derivative is the same for two cotangents that are far apart."""
    a = pair.automatic
    margin = pair.rtol * np.maximum(np.abs(a), np.abs(other))
    return bool(
        (np.abs(a - other) <= margin).all() and evidence(a, margin).sum() >= PATTERN_EVIDENCE
    )


def _convention(pair: DerivativePair) -> str | None:
    """Returns the predicate that the derivative is that along symmetric matrices, by one of the
    conventions for a function of these; `None` where the numbers do not bear it out.

    Any two of them differ by an antisymmetric matrix, which has no product with a symmetric one.
    """
    here, (i, j) = pair.known, (pair.automatic.ndim - 3, pair.automatic.ndim - 2)
    signs = np.array([1.0, -1.0])[: pair.automatic.shape[-1]]
    both = here & np.swapaxes(here, i, j)

    def adjoint(part: Array) -> Array:
        """Returns the conjugate transposes."""
        return np.asarray(np.swapaxes(part, i, j) * signs)

    gap, margin = pair.automatic - pair.reference, pair.allowed(pair.reference, pair.error)
    margin = margin + np.swapaxes(margin, i, j)
    if not (np.abs(gap + adjoint(gap)) <= margin)[both].all():
        return None
    upper = np.moveaxis(both, (i, j), (0, 1))[np.triu_indices(both.shape[i], 1)]
    off, room = (np.moveaxis(part, (i, j), (0, 1)) for part in (gap, margin))
    pairs = np.triu_indices(both.shape[i], 1)
    if evidence(off[pairs][upper], room[pairs][upper]).sum() < PATTERN_EVIDENCE:
        return None
    values = np.moveaxis(pair.automatic, (i, j), (0, 1))
    what = "differs from the reference by an antisymmetric part"
    if (np.abs(pair.automatic - adjoint(pair.automatic)) <= margin)[both].all():
        what = "is symmetrised: the mean of it and its transpose"
    elif not values[pairs].any():
        what = "holds what belongs to both triangles in the lower one"
    elif not np.swapaxes(values, 0, 1)[pairs].any():
        what = "holds what belongs to both triangles in the upper one"
    return what


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
    named = _named_factors(sizes)
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
        return Description(f"is {_number(fitted)} times the reference")
    return None


def _named_factors(sizes: dict[int, str]) -> dict[float, Description]:
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


def _sizes(pair: DerivativePair, output_shape: Sequence[int]) -> dict[int, str]:
    """Returns the sizes of axes that a mean or a sum may have run over, with their names."""
    found: dict[int, str] = {}
    names = [(f"axis {k} of the output", size) for k, size in enumerate(output_shape)]
    names += [("the size of the output", prod(output_shape))]
    names += [(f"axis {k}", size) for k, size in enumerate(pair.shape)]
    names += [("the size of the input", prod(pair.shape))]
    for name, size in names:
        if size > 1:
            found.setdefault(size, name if name.startswith("the") else f"the size of {name}")
    return found


def _number(c: float) -> str:
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
    # The number of ways to choose as many wrong entries, in decades.
    ways = (lgamma(count + 1) - lgamma(wrong + 1) - lgamma(count - wrong + 1)) / log(10)
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


def _domain(pair: DerivativePair, x: Vector) -> str | None:
    """Returns the values of x at which, and only at which, entries are wrong."""
    wrong, informative, values = pair.wrong, pair.informative, x.reshape(pair.shape)
    n, k = np.count_nonzero(informative), np.count_nonzero(wrong)
    if (lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)) / log(10) < PLACE_EVIDENCE:
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


ENTRIES = 64
"""The largest input, in real coordinates, whose gradient is taken entry by entry for this. It takes
twice as many evaluations, and only after a failure."""


LADDERS = 16
"""The largest input of which each entry gets a ladder of steps for this, sixteen evaluations, where
the entry that failed took one."""


SETTLED_AT_ONCE = 6
"""Three steps take so many evaluations, and a ladder more."""


FACTOR_ROOM = 1e-5
"""The factors of entries may differ by this part, if their error bars allow it, and count as one.
The value is ours. No verdict depends on it."""


def likely_mistake(table: Table, failure: Failure, located: Located | None = None) -> str | None:
    """Returns what is probably wrong with the gradient behind the first failure of a mode, if the
    numbers show it.

    The gradient `J* w` of one input, for a random `w` on one output, is compared with differences
    along every entry of the input; forward mode gives an entry of it as `<w, J e_k>`. Of a large
    input there are only the entries that were `located` behind the failure.
    """
    reverse, forward, problem, base = table.reverse, table.forward, table.problem, table.base
    pushed = failure.kind == "each"
    if failure.kind == "first" or (forward if pushed else reverse) is None:
        return None
    if len(failure.tangent.leaves) > 1:
        return None
    j, i = failure.tangent.leaves[0], _output(table, failure)
    leaf, part = problem.X.leaves[j], problem.X.slices[j]
    x = problem.origin[part]
    if not leaf.size or (reverse is not None and not (pushed or reverse.attached[i])):
        return None
    subject = "the automatic derivative"
    if len(problem.X.leaves) > 1 or len(base.Y.leaves) > 1:
        subject = f"the derivative of {base.Y.leaves[i].name} with respect to {leaf.name}"
    if reverse is not None and not pushed and _cut_to_stored(table, reverse, j, i):
        return (
            f"{subject} is zero wherever x stores no value, and right at the stored values: if it "
            "is meant for these, check it there: masked=True"
        )
    # What two evaluations did not settle, their truncation may hide in every entry.
    laddered = failure.entry.method.evaluations > SETTLED_AT_ONCE
    if leaf.size > (LADDERS if laddered else ENTRIES):
        factor = None if located is None else common_factor([failure.entry, *located.entries])
        return None if factor is None else f"{subject} {factor}"
    w = _cotangent(table, i)
    automatic, reference, error = (np.empty(leaf.size) for _ in "123")
    units = [*replace(table.probes, full=True).tangents(problem.origin, part)]
    if problem.counts.ahead is not None:
        table.estimator.begin(units)
    for k, unit in enumerate(units):
        found = table.estimator.along(unit)
        if laddered:
            found = table.estimator.along(unit, Effort.LADDER, found)
        reference[k] = w @ found.estimate.value[: base.Y.size]
        error[k] = norm(w * found.estimate.error[: base.Y.size])
        if forward is not None and pushed:
            automatic[k] = w @ forward.column(base, unit.vector)[1]
    shape, other = (*leaf.host_shape, 2 if leaf.complex else 1), None
    if reverse is not None and not pushed:
        automatic, twice = (reverse.row(base, k * w)[part] for k in (1.0, -2.0))
        other = twice.reshape(shape)
    numbers = (automatic.reshape(shape), reference.reshape(shape), error.reshape(shape))
    return diagnose(
        DerivativePair(*numbers, table.tolerance.relative),
        x=None if leaf.complex else x,
        output_shape=base.Y.leaves[i].host_shape,
        other=other,
        symmetric=_directions(problem, j) if lies_in("symmetric", leaf, x) else "",
        subject=subject,
    )


def common_factor(entries: Sequence[Entry]) -> str | None:
    """Returns the predicate that all of these entries are off by one factor, where they are; the
    first of them is a sum of many.

    Of a sum of terms that are off by different factors, or of which some are right, the factor is
    another one than that of an entry. The rule is ours, and costs no evaluation.
    """
    if len(entries) < 2 or not all(e.reference and np.isfinite(e.automatic) for e in entries):
        return None
    first = entries[1].automatic / entries[1].reference
    for entry in entries:
        room = entry.allowed / abs(entry.reference)
        if abs(entry.automatic / entry.reference - first) > min(room, FACTOR_ROOM) * abs(first):
            return None
    if first == 0:
        return "is zero, where the reference is not"
    named = _named_factors({}).get(float(f"{first:.6g}"), Description(_number_of(first)))
    return f"{named.verb} wherever it was looked at{named.hint}"


def _number_of(factor: float) -> str:
    number = f"{float(f'{factor:.6g}'):g}"
    return f"is {_number(factor) if number == '1' else number} times the reference"


def _cotangent(table: Table, i: int) -> Vector:
    """Returns a random cotangent of output `i`, real where that is complex."""
    base = table.base
    w, part = np.zeros(base.Y.size), base.Y.slices[i]
    w[part] = random_cotangent(base.Y, table.probes.seed, Stream.MISTAKE_COTANGENT)[part]
    if base.Y.leaves[i].complex:
        w[part.start + 1 : part.stop : 2] = 0.0
    return w


def _cut_to_stored(table: Table, reverse: Reverse, j: int, i: int) -> bool:
    """Returns whether input `j` is a sparse array, and the derivative of output `i` is zero at what
    it does not store, and right along a random tangent that moves nothing else.
    """
    problem, leaf, part = table.problem, table.problem.X.leaves[j], table.problem.X.slices[j]
    arrays, like = problem.backend.arrays, problem.x[j]
    values = arrays.stored_only()
    kept = values.to_host(like, like)
    if kept.shape == leaf.host_shape:
        return False
    stored = arrays.to_host(values.from_host(np.ones_like(kept), like), like) != 0
    marks = np.repeat(stored.reshape(-1), 2 if leaf.complex else 1)
    w = _cotangent(table, i)
    row = reverse.row(table.base, w)[part]
    if row[~marks].any():
        return False
    drawn = replace(table.probes, full=False).tangent(problem.origin)
    v = np.zeros_like(drawn.vector)
    v[part] = np.where(marks, drawn.vector[part], 0.0)
    estimate = table.estimator.along(Tangent((j,), v, drawn.length)).estimate
    size = table.base.Y.size
    value, error = w @ estimate.value[:size], norm(w * estimate.error[:size])
    numbers = (np.full((1, 1), number) for number in (row @ v[part], value, error))
    automatic, reference, bar = numbers
    one = DerivativePair(automatic, reference, bar, table.tolerance.relative)
    return bool(one.known.all() and not one.wrong.any())


def _directions(problem: Problem, j: int) -> str:
    """Returns the option that keeps input `j` symmetric."""
    alone = len(problem.X.leaves) == 1
    return "'symmetric'" if alone else f"{{{problem.X.leaves[j].name!r}: 'symmetric'}}"


def _output(table: Table, failure: Failure) -> int:
    """Returns the output leaf of the row that failed."""
    entries = table.probes.full or failure.kind == "each"
    return table.base.Y.leaf_of(failure.row) if entries else failure.row
