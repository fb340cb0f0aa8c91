"""This module holds the patterns of mistakes: what each would make of the reference, and how
strongly the numbers speak for it.

A pattern is claimed only if every compared entry fits it and accident would hardly meet so many
numbers. Evidence is counted in decades: the logarithm of how unlikely the agreement is by chance,
less the cost of having tried several patterns of a kind. The method is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations
from math import lgamma, log, log10

import numpy as np
from numpy.typing import NDArray

FLOOR = 1e-4
"""The size, relative to the largest entry, below which an entry is compared on the scale of its
neighbours. It is the number of the comparisons that failed (`jacobian.comparison.FLOOR`), to which
a test holds it."""

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Transform = Callable[[Array], Array]
"""What a mistake would make of the reference. It is linear, and each entry comes from one other, or
from several without a change of sign: applied to error bars it gives, but for the sign, the error
bars of what it makes of the reference."""


@dataclass(frozen=True)
class DerivativePair:
    """An automatic derivative and its reference.

    Both have the shape (*output_shape, *input_shape, components of an output entry, components of
    an input entry), with two components of a complex entry and one of a real one.
    """

    automatic: Array
    reference: Array
    error: Array
    rtol: float
    outputs: int = 0
    """How many of the axes belong to the output."""
    block: bool = False

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape without the components."""
        return self.automatic.shape[:-2]

    @cached_property
    def known(self) -> Mask:
        """Marks where there is a reference, by component."""
        return np.isfinite(self.reference) & np.isfinite(self.error)

    @cached_property
    def compared(self) -> Mask:
        """Marks where there is a reference, by entry, as are all masks below."""
        return np.asarray(self.known.any(axis=(-2, -1)))

    @cached_property
    def floor(self) -> float:
        """The size below which an entry is compared on the scale of the others."""
        return FLOOR * float(np.max(np.abs(self.reference), where=self.known, initial=0.0))

    @cached_property
    def wrong(self) -> Mask:
        """Marks where the automatic value is not the reference."""
        missed = self.known & ~self.close(self.reference, self.error)
        return np.asarray(missed.any(axis=(-2, -1)))

    @cached_property
    def zero(self) -> Mask:
        """Marks where the reference vanishes."""
        small = np.abs(self.reference) <= self.error + self.rtol * self.floor
        return np.asarray((small | ~self.known).all(axis=(-2, -1)))

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
        inside = mask[..., None, None] & np.isfinite(value) & np.isfinite(error)
        if not self.close(value, error)[inside].all():
            return np.zeros(0)
        inside &= self.known
        return evidence((value - self.reference)[inside], self.allowed(value, error)[inside])

    def space_of(self, k: int) -> str:
        """Returns whether axis `k` is one of the output or of the input, in words."""
        return "output" if k < self.outputs else "input"

    def axis(self, k: int) -> str:
        """Returns what axis `k` is called."""
        if not self.block:
            return f"axis {k}"
        return f"axis {k - (k >= self.outputs) * self.outputs} of the {self.space_of(k)}"


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
    return np.asarray(np.log10(np.clip(ratio, 1.0, 1e16)))


EVIDENCE = 3.0
"""A pattern is claimed from this many decades on: accident meets its numbers less than once in a
thousand times."""
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
    return text if score >= EVIDENCE else None


# -- the families of changes, the more specific ones first


def conjugations(pair: DerivativePair) -> Iterator[Guess]:
    """Yields guesses about the signs, the absence and the exchange of real and imaginary parts."""
    cost = log10(8)
    outputs, inputs = pair.automatic.shape[-2:]
    if inputs == 2:
        for text, factors in (
            ("has imaginary parts of the opposite sign: a missing conjugate?", (1, -1)),
            ("has real parts of the opposite sign: a missing conjugate?", (-1, 1)),
            ("has no imaginary parts, where the reference has", (1, 0)),
            ("has no real parts, where the reference has", (0, 1)),
        ):
            yield text, partial(_scaled, np.asarray(factors)), cost
        yield "is i times the reference", partial(_exchanged, np.asarray((-1, 1))), cost
        yield "is -i times the reference", partial(_exchanged, np.asarray((1, -1))), cost
    if outputs == 2:
        signs = np.asarray([[1], [-1]])
        yield "takes the conjugate cotangent: a missing conjugate?", partial(_scaled, signs), cost
        if inputs == 2:
            text = "is the transpose in place of the adjoint: a missing conjugate?"
            yield text, partial(_scaled, signs * [1, -1]), cost


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
    if (np.abs(a - r) <= margin).all() and evidence(gap, margin).sum() >= EVIDENCE:
        return "has the right modulus and the wrong phase: a missing conjugate?"
    return None


def transpositions(pair: DerivativePair) -> Iterator[Guess]:
    """Yields guesses that two axes were exchanged, or their entries put into an array of the shape
    before.
    """
    pairs = _axis_pairs(pair)
    cost = log10(max(2 * len(pairs), 1))
    for i, j in pairs:
        first = pair.outputs if i >= pair.outputs else 0
        names, space = f"axes {i - first} and {j - first}", pair.space_of(i)
        if pair.shape[i] == pair.shape[j]:
            text = f"is that of the transposed {space} ({names} swapped)"
            yield text, partial(_swapped, i, j), cost
        else:
            text = f"is that of the {space} with {names} reshaped, not transposed"
            yield text, partial(_reshaped, i, j), cost
            yield text, partial(_reshaped_back, i, j), cost


def reorderings(pair: DerivativePair) -> Iterator[Guess]:
    """Yields guesses that one axis was reversed, shifted or put into another order."""
    cost = log10(max(sum(pair.shape), 1))
    for axis, size in enumerate(pair.shape):
        if size < 2 or size * pair.automatic.size > LARGEST:
            continue
        fits, name, steps = _matches(pair, axis), pair.axis(axis), np.arange(size)
        if fits[steps, steps[::-1]].all():
            yield f"is reversed along {name}", partial(_reordered, steps[::-1], axis), cost
        for shift in range(1, size):
            if fits[steps, steps - shift].all():
                back = shift if 2 * shift <= size else shift - size
                text = f"is shifted by {back} along {name} (around the end)"
                yield text, partial(_reordered, (steps - shift) % size, axis), cost
        order = _assigned(fits)
        if order is not None:
            shown = f" ({', '.join(map(str, order))})" if size <= 8 else ""
            text = f"has the indices of {name} in another order{shown}"
            several = log10(len(pair.shape)) + lgamma(size + 1) / log(10)
            yield text, partial(_reordered, order, axis), several


def sums(pair: DerivativePair) -> Iterator[Guess]:
    """Yields guesses that entries were summed, shifted out, or lost on one side of a diagonal."""
    pairs, axes = _axis_pairs(pair), len(pair.shape)
    cost = log10(max(4 * axes + 4 * len(pairs), 1))
    for axis in range(axes):
        name = pair.axis(axis)
        yield f"is summed over {name}, and repeated along it", partial(_summed, axis), cost
        yield f"is averaged over {name}", partial(_averaged, axis), cost
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


def block_patterns(pair: DerivativePair) -> Iterator[Guess]:
    """Yields guesses that only a Jacobian of several rows bears out."""
    inputs = tuple(range(pair.outputs, len(pair.shape)))
    outputs = tuple(range(pair.outputs))
    text = "is the same for every cotangent: the cotangent is ignored"
    yield text, partial(_of_ones, outputs), log10(3)
    axes = (*inputs, *outputs, len(pair.shape) + 1, len(pair.shape))
    if np.transpose(pair.automatic, axes).shape == pair.automatic.shape:
        text = "is J w where J* w is due: the Jacobian is transposed"
        yield text, partial(np.transpose, axes=axes), log10(3)
        text = "is zero but for each output by its own input, where the reference is not"
        yield text, _diagonal, log10(3)


def _axis_pairs(pair: DerivativePair) -> list[tuple[int, int]]:
    """Returns the pairs of axes of the same space."""
    axes = range(len(pair.shape))
    return [(i, j) for i, j in combinations(axes, 2) if pair.space_of(i) == pair.space_of(j)]


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


def _scaled(factors: NDArray[np.int64], part: Array) -> Array:
    """Multiplies each component by its factor."""
    return np.asarray(part * factors)


def _exchanged(factors: NDArray[np.int64], part: Array) -> Array:
    """Exchanges the components, and multiplies each by its factor."""
    return np.asarray(part[..., ::-1] * factors)


def _swapped(i: int, j: int, part: Array) -> Array:
    """Swaps two axes."""
    return np.swapaxes(part, i, j)


def _reshaped(i: int, j: int, part: Array) -> Array:
    """Swaps two axes and puts the entries into the shape before."""
    return np.asarray(np.swapaxes(part, i, j).reshape(part.shape))


def _reshaped_back(i: int, j: int, part: Array) -> Array:
    """Inverts `_reshaped`."""
    return np.asarray(np.swapaxes(part.reshape(np.swapaxes(part, i, j).shape), i, j))


def _reordered(order: NDArray[np.int64], axis: int, part: Array) -> Array:
    """Puts the entries along one axis into another order."""
    return np.take(part, order, axis)


def _summed(axis: int, part: Array) -> Array:
    """Repeats the sum along one axis along it."""
    return np.broadcast_to(part.sum(axis, keepdims=True), part.shape)


def _averaged(axis: int, part: Array) -> Array:
    """Repeats the mean along one axis along it."""
    return np.asarray(_summed(axis, part) / part.shape[axis])


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


def _of_ones(outputs: tuple[int, ...], part: Array) -> Array:
    """Puts `J* 1`, the sum of the rows of real cotangents, in every row."""
    return np.broadcast_to(part[..., :1, :].sum(outputs, keepdims=True), part.shape)


def _diagonal(part: Array) -> Array:
    """Keeps the diagonal of a block whose output has the shape of its input."""
    shape = part.shape[: (part.ndim - 2) // 2]
    size = int(np.prod(shape, dtype=np.int64))
    return np.where(np.eye(size, dtype=bool).reshape(*shape, *shape, 1, 1), part, 0.0)
