"""This module holds the patterns of mistakes: what a mistake that people make would turn the right
gradient of one input into.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations
from math import log10
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Transform = Callable[[Array], Array]
"""Turns a gradient of the shape (*input_shape, components) into another one. It is linear, and each
entry comes from one other, or from several without a change of sign: applied to error bars it
gives, but for the sign, the error bars of what it makes of the reference."""
Shape: TypeAlias = Sequence[int]
"""The shape of an input without the components."""


class Guess(NamedTuple):
    """One mistake: the predicate that says it, and what it makes of the right gradient."""

    text: str
    change: Transform
    adjoint: Transform
    """The adjoint of the change: sums of what the change makes are sums of the right gradient, with
    these weights."""
    cost: float
    """The decades of evidence that trying others like it costs."""
    image: Transform | None = None
    """Leaves what the change makes as it is. `None` where the change makes anything."""
    from_one: bool = True
    """Whether every entry that the change makes comes from one other alone."""


def of_itself(text: str, change: Transform, cost: float, *, from_one: bool = True) -> Guess:
    """Returns the guess of an orthogonal projection, which is its own adjoint and its own image."""
    return Guess(text, change, change, cost, change, from_one)


def conjugations(components: int) -> Iterator[Guess]:
    """Yields guesses about the signs, the absence and the exchange of real and imaginary parts."""
    if components == 1:
        return
    cost = log10(8)
    for text, factors in (
        ("has imaginary parts of the opposite sign: a missing conjugate?", (1, -1)),
        ("has real parts of the opposite sign: a missing conjugate?", (-1, 1)),
    ):
        signs = partial(np.multiply, factors)
        yield Guess(text, signs, signs, cost)
    for text, factors in (
        ("has no imaginary parts, where the reference has", (1, 0)),
        ("has no real parts, where the reference has", (0, 1)),
    ):
        yield of_itself(text, partial(np.multiply, factors), cost)
    turned, back = partial(_exchanged, (-1, 1)), partial(_exchanged, (1, -1))
    yield Guess("is i times the reference", turned, back, cost)
    yield Guess("is -i times the reference", back, turned, cost)


def transpositions(shape: Shape) -> Iterator[Guess]:
    """Yields guesses that two axes were exchanged, or their entries put into an array of the shape
    before.
    """
    pairs = _axis_pairs(shape)
    cost = log10(max(2 * len(pairs), 1))
    for i, j in pairs:
        names = f"axes {i} and {j}"
        if shape[i] == shape[j]:
            text = f"is that of the transposed input ({names} swapped)"
            swapped = partial(np.swapaxes, axis1=i, axis2=j)
            yield Guess(text, swapped, swapped, cost)
        else:
            text = f"is that of the input with {names} reshaped, not transposed"
            there, back = partial(_reshaped, i, j), partial(_reshaped_back, i, j)
            yield Guess(text, there, back, cost)
            yield Guess(text, back, there, cost)


def reversal(axis: int, cost: float) -> Guess:
    """Returns the guess that one axis was reversed."""
    reversed_ = partial(np.flip, axis=axis)
    return Guess(f"is reversed along axis {axis}", reversed_, reversed_, cost)


def rotation(axis: int, size: int, shift: int, cost: float) -> Guess:
    """Returns the guess that one axis of so many entries was shifted around its end."""
    by = shift if 2 * shift <= size else shift - size
    text = f"is shifted by {by} along axis {axis} (around the end)"
    there, back = partial(np.roll, shift=by, axis=axis), partial(np.roll, shift=-by, axis=axis)
    return Guess(text, there, back, cost)


def sums(shape: Shape) -> Iterator[Guess]:
    """Yields guesses that entries were summed, shifted out, or lost on one side of a diagonal."""
    pairs, axes = _axis_pairs(shape), len(shape)
    cost = log10(max(4 * axes + 4 * len(pairs), 1))
    for axis in range(axes):
        name = f"axis {axis}"
        text = f"is summed over {name}, and repeated along it"
        summed, mean = partial(_summed, axis), partial(_summed, axis, mean=True)
        yield Guess(text, summed, summed, cost, mean, from_one=False)
        yield of_itself(f"is averaged over {name}", mean, cost, from_one=False)
        for shift in (1, -1):
            text = f"is shifted by {shift} along {name} (and filled with zero)"
            there, back = partial(_shifted, shift, axis), partial(_shifted, -shift, axis)
            yield Guess(text, there, back, cost, partial(_shifted_back, shift, axis))
    for i, j in pairs:
        if shape[i] == shape[j] > 1:
            text = "is symmetrised: the mean of it and its transpose"
            yield of_itself(text, partial(_symmetric, i, j), cost, from_one=False)
            text, wide = "is zero {} the diagonal, where the reference is not", shape[i]
            kept = np.tri(wide, dtype=bool)
            for word, mask in (("above", kept), ("below", kept.T), ("off", kept & kept.T)):
                yield of_itself(text.format(word), partial(_masked, mask, i, j), cost)


def _axis_pairs(shape: Shape) -> list[tuple[int, int]]:
    return list(combinations(range(len(shape)), 2))


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


def _shifted_back(shift: int, axis: int, part: Array) -> Array:
    """Sets what `_shifted` fills with zeros to zero."""
    return _shifted(shift, axis, _shifted(-shift, axis, part))


def _symmetric(i: int, j: int, part: Array) -> Array:
    """Takes the mean of the array and its transpose."""
    return (part + np.swapaxes(part, i, j)) / 2


def _masked(mask: Mask, i: int, j: int, part: Array) -> Array:
    """Keeps the entries within a mask over two axes."""
    shape = [size if k in (i, j) else 1 for k, size in enumerate(part.shape)]
    return np.where(mask.reshape(shape), part, 0.0)
