"""Changes of a reference derivative that would explain the automatic one, and their evidence.

A change (its sign, its transpose, a row of zeros) predicts the automatic derivative. It must do
so in all compared entries within their error bars. Where it predicts something `k` times what may
differ away from the reference, accident would have met it with a chance of about `1/k`; these
chances multiply, and the number of changes that are tried counts against each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import combinations
from math import lgamma, log, log10

import numpy as np
from numpy.typing import NDArray

from adjudge.sides import Array, Change, Mask, Sides, allowed, decades

EVIDENCE = 3.0
"""Decades: a change is named if accident meets its numbers less than once in a thousand times."""
LARGEST = 2**24
"""Numbers compared in the search for a permutation of one axis: below a second."""

Guess = tuple[str, Change, float]
"""A predicate, the change it states, and the decades that trying others like it costs."""


def best(sides: Sides, guesses: Iterable[Guess]) -> str | None:
    """The predicate with the most evidence, if that is enough."""
    scores = [
        (float(sides.decades(change, sides.compared).sum()) - cost, text)
        for text, change, cost in guesses
    ]
    score, text = max(scores, default=(0.0, ""), key=lambda pair: pair[0])
    return text if score >= EVIDENCE else None


# -- the families of changes, the more specific ones first


def conjugates(sides: Sides) -> Iterator[Guess]:
    """Signs, absence and exchange of real and imaginary parts."""
    cost = log10(8)
    outputs, inputs = sides.automatic.shape[-2:]
    if inputs == 2:
        for text, factors in (
            ("has imaginary parts of the opposite sign: a missing conjugate?", (1, -1)),
            ("has real parts of the opposite sign: a missing conjugate?", (-1, 1)),
            ("has no imaginary parts, where the reference has", (1, 0)),
            ("has no real parts, where the reference has", (0, 1)),
        ):
            yield text, partial(_times, np.asarray(factors)), cost
        yield "is i times the reference", partial(_turned, np.asarray((-1, 1))), cost
        yield "is -i times the reference", partial(_turned, np.asarray((1, -1))), cost
    if outputs == 2:
        signs = np.asarray([[1], [-1]])
        yield "takes the conjugate cotangent: a missing conjugate?", partial(_times, signs), cost
        if inputs == 2:
            text = "is the transpose in place of the adjoint: a missing conjugate?"
            yield text, partial(_times, signs * [1, -1]), cost


def moduli(sides: Sides) -> str | None:
    """Whether only the phase of complex entries is wrong."""
    if sides.automatic.shape[-1] == 1:
        return None
    known = sides.known.all(axis=-1)
    gap = np.linalg.norm((sides.automatic - sides.reference)[known], axis=-1)
    a, r, e = (
        np.linalg.norm(part[known], axis=-1)
        for part in (sides.automatic, sides.reference, sides.error)
    )
    margin = e + sides.rtol * np.maximum(np.maximum(a, r), sides.floor)
    if (np.abs(a - r) <= margin).all() and decades(gap, margin).sum() >= EVIDENCE:
        return "has the right modulus and the wrong phase: a missing conjugate?"
    return None


def transposes(sides: Sides) -> Iterator[Guess]:
    """Two axes exchanged, or the entries of that in an array of the shape before."""
    pairs = _pairs(sides)
    cost = log10(max(2 * len(pairs), 1))
    for i, j in pairs:
        first = sides.outputs if i >= sides.outputs else 0
        names, side = f"axes {i - first} and {j - first}", sides.side(i)
        if sides.shape[i] == sides.shape[j]:
            text = f"is that of the transposed {side} ({names} swapped)"
            yield text, partial(_swapped, i, j), cost
        else:
            text = f"is that of the {side} with {names} reshaped, not transposed"
            yield text, partial(_reshaped, i, j), cost
            yield text, partial(_reshaped_back, i, j), cost


def orders(sides: Sides) -> Iterator[Guess]:
    """One axis reversed, shifted or in another order."""
    cost = log10(max(sum(sides.shape), 1))
    for axis, size in enumerate(sides.shape):
        if size < 2 or size * sides.automatic.size > LARGEST:
            continue
        fits, name, steps = _matches(sides, axis), sides.axis(axis), np.arange(size)
        if fits[steps, steps[::-1]].all():
            yield f"is reversed along {name}", partial(_taken, steps[::-1], axis), cost
        for shift in range(1, size):
            if fits[steps, steps - shift].all():
                back = shift if 2 * shift <= size else shift - size
                text = f"is shifted by {back} along {name} (around the end)"
                yield text, partial(_taken, (steps - shift) % size, axis), cost
        order = _assigned(fits)
        if order is not None:
            shown = f" ({', '.join(map(str, order))})" if size <= 8 else ""
            text = f"has the indices of {name} in another order{shown}"
            several = log10(len(sides.shape)) + lgamma(size + 1) / log(10)
            yield text, partial(_taken, order, axis), several


def sums(sides: Sides) -> Iterator[Guess]:
    """Entries summed, shifted out, or lost on one side of a diagonal."""
    pairs, axes = _pairs(sides), len(sides.shape)
    cost = log10(max(4 * axes + 4 * len(pairs), 1))
    for axis in range(axes):
        name = sides.axis(axis)
        yield f"is summed over {name}, and repeated along it", partial(_summed, axis), cost
        yield f"is averaged over {name}", partial(_averaged, axis), cost
        for shift in (1, -1):
            text = f"is shifted by {shift} along {name} (and filled with zero)"
            yield text, partial(_pushed, shift, axis), cost
    for i, j in pairs:
        if sides.shape[i] == sides.shape[j] > 1:
            text = "is symmetrised: the mean of it and its transpose"
            yield text, partial(_symmetric, i, j), cost
            text, wide = "is zero {} the diagonal, where the reference is not", sides.shape[i]
            kept = np.tri(wide, dtype=bool)
            for word, mask in (("above", kept), ("below", kept.T), ("off", kept & kept.T)):
                yield text.format(word), partial(_kept, mask, i, j), cost


def of_block(sides: Sides) -> Iterator[Guess]:
    """What only a Jacobian of several rows shows."""
    inputs = tuple(range(sides.outputs, len(sides.shape)))
    outputs = tuple(range(sides.outputs))
    text = "is the same for every cotangent: the cotangent is ignored"
    yield text, partial(_ones, outputs), log10(3)
    axes = (*inputs, *outputs, len(sides.shape) + 1, len(sides.shape))
    if np.transpose(sides.automatic, axes).shape == sides.automatic.shape:
        text = "is J w where J* w is due: the Jacobian is transposed"
        yield text, partial(np.transpose, axes=axes), log10(3)
        text = "is zero but for each output by its own input, where the reference is not"
        yield text, _own, log10(3)


def _pairs(sides: Sides) -> list[tuple[int, int]]:
    axes = range(len(sides.shape))
    return [(i, j) for i, j in combinations(axes, 2) if sides.side(i) == sides.side(j)]


def _matches(sides: Sides, axis: int) -> Mask:
    """Whether index i of the automatic side is index j of the reference."""
    a, r, e = (
        np.moveaxis(part, axis, 0).reshape(sides.shape[axis], -1)
        for part in (sides.automatic, sides.reference, sides.error)
    )
    fits = np.zeros((len(a), len(a)), dtype=bool)
    for j, (value, error) in enumerate(zip(r, e, strict=True)):
        unknown = ~(np.isfinite(value) & np.isfinite(error))
        near = np.abs(a - value) <= allowed(a, value, error, sides.rtol, sides.floor)
        fits[:, j] = (near | unknown).all(axis=1)
    return fits


def _assigned(fits: Mask) -> NDArray[np.int64] | None:
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


def _times(factors: NDArray[np.int64], part: Array) -> Array:
    return np.asarray(part * factors)


def _turned(factors: NDArray[np.int64], part: Array) -> Array:
    return np.asarray(part[..., ::-1] * factors)


def _swapped(i: int, j: int, part: Array) -> Array:
    return np.swapaxes(part, i, j)


def _reshaped(i: int, j: int, part: Array) -> Array:
    return np.asarray(np.swapaxes(part, i, j).reshape(part.shape))


def _reshaped_back(i: int, j: int, part: Array) -> Array:
    return np.asarray(np.swapaxes(part.reshape(np.swapaxes(part, i, j).shape), i, j))


def _taken(order: NDArray[np.int64], axis: int, part: Array) -> Array:
    return np.take(part, order, axis)


def _summed(axis: int, part: Array) -> Array:
    return np.broadcast_to(part.sum(axis, keepdims=True), part.shape)


def _averaged(axis: int, part: Array) -> Array:
    return np.asarray(_summed(axis, part) / part.shape[axis])


def _pushed(shift: int, axis: int, part: Array) -> Array:
    along = np.moveaxis(np.roll(part, shift, axis), axis, 0).copy()
    along[0 if shift > 0 else -1] = 0.0
    return np.moveaxis(along, 0, axis)


def _symmetric(i: int, j: int, part: Array) -> Array:
    return (part + np.swapaxes(part, i, j)) / 2


def _kept(mask: Mask, i: int, j: int, part: Array) -> Array:
    shape = [size if k in (i, j) else 1 for k, size in enumerate(part.shape)]
    return np.where(mask.reshape(shape), part, 0.0)


def _ones(outputs: tuple[int, ...], part: Array) -> Array:
    """`J* 1` in every row: the sum of the rows of real cotangents."""
    return np.broadcast_to(part[..., :1, :].sum(outputs, keepdims=True), part.shape)


def _own(part: Array) -> Array:
    """The diagonal of a block whose output has the shape of its input."""
    shape = part.shape[: (part.ndim - 2) // 2]
    size = int(np.prod(shape, dtype=np.int64))
    return np.where(np.eye(size, dtype=bool).reshape(*shape, *shape, 1, 1), part, 0.0)
