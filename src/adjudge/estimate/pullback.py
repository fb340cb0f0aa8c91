"""The vjp of a replayed program, by reverse accumulation (Griewank and Walther 2008, section 3.2).

A replay along a tangent gives one column of the Jacobian, and a gradient of n numbers would take n
of them. Here the program is replayed once, and cotangents are carried back through each operation:
by the transposes of those that move, add and multiply matrices, and for the others by their partial
derivatives, which come from the rules of `balls` and `matrices` themselves. With a tangent the
cotangents are jets as well, which makes second derivatives (forward over reverse, section 5.1
there).

A cotangent that is exactly zero says that nothing depends on the number. What is zero because it
cancels, or is multiplied by zero, is a ball around zero, so that where a derivative does not exist
there is no number, whichever way it is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import prod
from operator import add
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from adjudge.engine import INPUT, Operation, Program, Ref
from adjudge.estimate import balls
from adjudge.estimate.balls import FUNCTIONS, NEARLY_ZERO, Jets, each, flint, lifted, zeros
from adjudge.estimate.replay import NORMWISE, Roundings, Steps, perform, replayed, work_of_one

UNIT = 2
"""The bit of the parts of a cotangent, and of those along one operand, beside that of the
tangent."""

SELECTIONS = frozenset(
    {"where", "maximum", "minimum", "copysign", "cumulative_max", "cumulative_min"}
)
"""The operations on which what they do not choose has no influence: a derivative of zero is none,
where elsewhere it may multiply one that does not exist."""

Shape: TypeAlias = tuple[int, ...]


def pullback(
    program: Program,
    cotangents: Sequence[Jets],
    tangent: Sequence[NDArray[Any]] | None = None,
    roundings: Roundings | None = None,
) -> tuple[list[Jets], list[Jets]]:
    """Returns the cotangents of the inputs of a program for those of its outputs, and the outputs.

    Complex numbers count as pairs: the cotangent of `z` is `a + i b` where a small `dz` adds
    `a Re(dz) + b Im(dz)`. It is to be called within `precision`.

    Args:
        program: The program.
        cotangents: The cotangent of each output, of its shape; its part 1 is how it moves along the
            tangent.
        tangent: An array for each input.
        roundings: The results are then those of all programs whose operations are rounded so, and
            those of their adjoints.

    Raises:
        DoubtError: An operation has no translation or cannot be decided.
    """
    roundings = roundings and roundings.anew()
    tangents = [] if tangent is None else [tangent]
    steps = replayed(program, [*tangents, _anywhere(program)], roundings)
    last = 1 << len(tangents)
    steps = Steps([one.below(last) for one in steps.inputs], [
        tuple(one.below(last) if isinstance(one, Jets) else one for one in results)
        for results in steps.results
    ])  # fmt: skip
    outputs = steps.outputs(program, roundings)
    found: dict[Ref, Jets] = {}
    lost: dict[Ref, NDArray[np.bool_]] = {}

    def collect(operand: Any, more: Jets | NDArray[np.bool_]) -> None:
        if isinstance(more, Jets):
            found[operand] = found[operand] + more if operand in found else more
        else:
            lost[operand] = lost[operand] | more if operand in lost else more

    for operand, w in zip(program.outputs, cotangents, strict=True):
        if isinstance(operand, Ref):
            collect(operand, _as_motion(w))
    forward = _Forward(program, steps, roundings)
    for number, operation in reversed([*enumerate(program.operations)]):
        refs = [Ref(number, k) for k in range(len(operation.recorded))]
        given = [found.pop(ref, None) for ref in refs]
        back = _Back(forward, number, given, [lost.pop(ref, None) for ref in refs])
        for k, operand in enumerate(operation.operands):
            if isinstance(operand, Ref):
                for more in back.carried(k):
                    collect(operand, more)
    nothing = [_as_motion(lifted(np.zeros(x.shape))) for x in program.inputs]
    ends = [found.get(Ref(INPUT, k), none) for k, none in enumerate(nothing)]
    return [_as_cotangent(one) for one in ends], outputs


def work_of_columns(program: Program) -> int:
    """Returns how many more operations on numbers those operations take that are carried back one
    entry after the other, roughly.
    """
    work = 0
    for one in program.operations:
        if one.name in TRANSPOSES or one.name in FUNCTIONS or one.name == "where":
            continue
        for operand in one.operands:
            shape = program.value(operand).shape
            axes = _axes_together(one, len(shape))
            work += prod(shape[axis] for axis in axes) * work_of_one(program, one)
    return work


def _anywhere(program: Program) -> list[NDArray[Any]]:
    """Returns a tangent along which everything moves: without it a comparison of two numbers that
    are equal would be decided, and what is selected by it would have the derivative of one branch.
    """
    found, start = [], 1
    for x in program.inputs:
        numbers = 1 + np.modf((start + np.arange(2 * x.size)) * (5**0.5 - 1) / 2)[0]
        start += numbers.size
        pairs = numbers.reshape(2, *x.shape)
        found.append(pairs[0] + 1j * pairs[1] if x.dtype.kind == "c" else pairs[0])
    return found


def _as_motion(w: Jets) -> Jets:
    """Returns a cotangent as the motion of a zero: sums of motions keep which terms move."""
    return Jets({0: zeros(w.shape), **{key | UNIT: part for key, part in w.parts.items()}})


def _as_cotangent(w: Jets) -> Jets:
    return w.beside(UNIT)


@dataclass(frozen=True, slots=True)
class _Forward:
    """A program that has been replayed, and how its operations are rounded."""

    program: Program
    steps: Steps
    roundings: Roundings | None


class _Back:
    """An operation through which cotangents are carried back."""

    def __init__(
        self,
        forward: _Forward,
        number: int,
        given: Sequence[Jets | None],
        lost: Sequence[NDArray[np.bool_] | None],
    ) -> None:
        """`given` are the cotangents of the results that have one, and `lost` says of booleans
        among the results which ones choose between branches that do not meet.
        """
        program, steps, roundings = forward.program, forward.steps, forward.roundings
        operation = program.operations[number]
        self.operation, self.roundings = operation, roundings
        self.perform = roundings.performed if roundings else perform
        self.operands = [steps.value(one) for one in operation.operands]
        self.results = steps.results[number]
        self.given = [
            (k, w)
            for k, w in enumerate(given)
            if w is not None and isinstance(self.results[k], Jets)
        ]
        self.lost = next((one for one in lost if one is not None), None)
        values = [program.value(one) for one in operation.operands]
        self.complex = [one.dtype.kind == "c" for one in values]
        self.shapes: list[Shape] = [one.shape for one in values]

    def carried(self, k: int) -> list[Jets | NDArray[np.bool_]]:
        """Returns the cotangent of operand `k`, if it has one; of booleans, which ones choose
        between branches that do not meet.
        """
        decides = not isinstance(self.operands[k], Jets)
        if self.lost is not None:
            lost = self._lost(k, self.lost)
            nan = np.where(lost, flint().arb.nan(), flint().arb(0))
            return [lost if decides else _as_motion(Jets({0: nan, 1: nan}))]
        if not self.given:
            return []
        if not decides:
            return [self._cotangent(k)]
        jumps = self._jumps(self.given[0][1]) if self.operation.name == "where" else None
        return [] if jumps is None or not jumps.any() else [self._lost(k, jumps)]

    def _jumps(self, w: Jets) -> NDArray[np.bool_]:
        """Returns where a choice is not decided, and decides about what has a cotangent."""
        condition, *branches = self.operands
        x, y = (lifted(one).value for one in branches)
        meet = balls.marks(balls.overlap, *np.broadcast_arrays(x, y))
        return np.asarray(condition.may & condition.may_not & ~meet & w.moves)

    def _lost(self, k: int, lost: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Returns which entries of operand `k` decide what is lost: all of them where the operation
        moves or reduces booleans.
        """
        shape, entrywise = self.shapes[k], self.operation.name not in ("take", "any", "all")
        if entrywise and lost.shape == shape:
            return lost
        return np.full(shape, bool(lost.any()))

    def _cotangent(self, k: int) -> Jets:
        name, transpose = self.operation.name, TRANSPOSES.get(self.operation.name)
        if transpose is not None:
            ((_, w),) = self.given
            found = transpose(self, w, k)
        elif name in FUNCTIONS or name == "where":
            ones = np.ones(self.shapes[k])
            found = self._along(k, ones, lambda part: _unbroadcast(part, self.shapes[k]))
        else:
            found = self._by_columns(k)
        if not self.complex[k]:
            found = balls.real(found)
        if self.roundings is not None:
            found = self._rounded(found)
        return found

    def _rounded(self, found: Jets) -> Jets:
        """Returns sums of products, rounded."""
        assert self.roundings is not None
        shapes = [w.shape for _, w in self.given]
        if self.operation.name == "matmul":
            terms = float(max([1, *shapes[0][-2:]]))
        else:
            terms = max(map(prod, shapes)) / max(1, prod(found.shape))
        eps = max(self.roundings.eps, self.operation.eps)
        normwise = self.operation.name in NORMWISE
        return self.roundings.of_sums(found, terms, eps, normwise=normwise)

    def _along(self, k: int, unit: NDArray[np.float64], reduced: Callable[[Jets], Jets]) -> Jets:
        """Returns the cotangent of operand `k` along a unit, from the derivatives of all results
        along it, and what sums these up over the entries of a result.
        """
        ends = []
        for factor in (1.0, 1j) if self.complex[k] else (1.0,):
            operands = list(self.operands)
            operands[k] = operands[k].plus(lifted(factor * unit), UNIT)
            found = self.perform(self.operation, operands)
            terms = [reduced(self.weighed(found[j].beside(UNIT), w)) for j, w in self.given]
            ends.append(reduce(add, terms))
        return ends[0] if len(ends) == 1 else FUNCTIONS["complex"](*ends)

    def weighed(self, rate: Jets, w: Jets) -> Jets:
        """Returns the product of a derivative with a cotangent of the same shape."""
        arb, acb = flint().arb, flint().acb
        chooses = self.operation.name in SELECTIONS

        def times(rate: Any, w: Any) -> Any:
            if w.is_zero() or (chooses and rate.is_zero()):
                return arb(0)
            if rate.is_zero():
                return arb(NEARLY_ZERO)
            return (rate.conjugate() * w).real if isinstance(rate, acb) else (rate * w).real

        none = zeros(w.shape)
        found = Jets({0: none})
        for left, one in rate.parts.items():
            for right, other in w.parts.items():
                if right & UNIT and not left & right:
                    found += Jets({0: none, left | right: each(times, one, other)})
        return found

    def _by_columns(self, k: int) -> Jets:
        """Returns the cotangent of operand `k` of a reduction, a cumulative operation or one on
        matrices, one entry along the axes that belong together after the other.
        """
        shape, matrices = self.shapes[k], "axis" not in self.operation.params
        rank, stack = len(shape), max(map(len, self.shapes)) - 2
        axes = _axes_together(self.operation, rank)
        slim = tuple(1 if axis in axes else n for axis, n in enumerate(shape))

        def reduced(found: Jets) -> Jets:
            if matrices:
                over = tuple(range(stack, len(found.shape)))
                found = _unbroadcast(balls.total(found, axis=over, keepdims=False), shape[:-2])
            elif "keepdims" not in self.operation.params:
                found = balls.total(found, axis=axes, keepdims=True)
            return found.map(lambda part: part.reshape(slim))

        whole: dict[int, Any] = {0: zeros(shape)}
        for index in product(*(range(shape[axis]) for axis in axes)):
            at = dict(zip(axes, index, strict=True))
            here = tuple(
                slice(at[axis], at[axis] + 1) if axis in at else slice(None) for axis in range(rank)
            )
            unit = np.zeros(shape)
            unit[here] = 1.0
            for key, part in self._along(k, unit, reduced).parts.items():
                whole.setdefault(key, zeros(shape))[here] = part
        return Jets(whole)


# -------------------------------------------------------------------- transposes


def _axes_together(operation: Operation, rank: int) -> tuple[int, ...]:
    """Returns the axes along which the entries of an operand are combined."""
    if "axis" in operation.params:
        return balls.axes_of(operation.params["axis"], rank)
    return tuple(range(max(0, rank - 2), rank))


def _unbroadcast(x: Jets, shape: Shape) -> Jets:
    """Returns the sums over the axes along which an operand of this shape was repeated."""
    if x.shape == shape:
        return x
    more = len(x.shape) - len(shape)
    repeated = [k for k, n in enumerate(shape, more) if n == 1 and x.shape[k] != 1]
    summed = balls.total(x, axis=(*range(more), *repeated), keepdims=True)
    return summed.map(lambda part: part.reshape(shape))


def _slim(back: _Back, rank: int) -> Callable[[Jets], Jets]:
    """Returns what puts back the axes of a reduction, with one entry along each."""
    axes = balls.axes_of(back.operation.params["axis"], rank)
    shape = tuple(1 if axis in axes else n for axis, n in enumerate(back.shapes[0]))
    return lambda found: found.map(lambda part: part.reshape(shape))


def _repeated(found: Jets, shape: Shape) -> Jets:
    return found.map(lambda part: np.broadcast_to(part, shape))


def _part(back: _Back, k: int) -> tuple[int, int]:
    """Returns where the entries of operand `k` are among those of all operands."""
    start = sum(map(prod, back.shapes[:k]))
    return start, start + prod(back.shapes[k])


def _of_take(back: _Back, w: Jets, k: int) -> Jets:
    indices, (start, stop) = back.operation.params["indices"], _part(back, k)
    own = np.where((indices >= start) & (indices < stop), indices - start, -1)
    return balls.segment_sum(w, segments=own, shape=back.shapes[k])


def _of_segment_sum(back: _Back, w: Jets, k: int) -> Jets:
    start, stop = _part(back, k)
    segments = np.ravel(back.operation.params["segments"])[start:stop]
    return balls.take(w, indices=segments.reshape(back.shapes[k]), fill=0.0)


def _of_sum(back: _Back, w: Jets, k: int) -> Jets:
    shape = back.shapes[k]
    return _repeated(_slim(back, len(shape))(w), shape)


def _of_cumulative_sum(back: _Back, w: Jets, _k: int) -> Jets:
    axis = back.operation.params["axis"]
    turned = w.map(lambda part: np.flip(part, axis))
    return balls.cumulative(turned, add, axis=axis).map(lambda part: np.flip(part, axis))


def _of_extreme(back: _Back, w: Jets, k: int) -> Jets:
    """Returns the cotangent of an operand of which the largest or smallest entries are taken: all
    of it goes to the entry that is taken beyond doubt, and some part to each that may be.
    """
    shape, arb = back.shapes[k], flint().arb
    slim = _slim(back, len(shape))
    best = slim(back.results[0]).value
    may = balls.marks(lambda a, b: a.overlaps(b), back.operands[k].value, best)
    axes = balls.axes_of(back.operation.params["axis"], len(shape))
    alone = np.sum(may, axis=axes, keepdims=True) == 1
    some = np.where(may, np.where(alone, arb(1), arb(0).union(arb(1))), arb(0))
    nothing = zeros(shape)

    def chosen(part: Any) -> Any:
        return each(lambda rate, w: rate * w if not rate.is_zero() else rate, some, part)

    wide = _repeated(slim(w), shape)
    return Jets({key: chosen(part) if key else nothing for key, part in wide.parts.items()})


def _of_logsumexp(back: _Back, w: Jets, k: int) -> Jets:
    shape = back.shapes[k]
    slim = _slim(back, len(shape))
    rate = FUNCTIONS["exp"](back.operands[k] - slim(back.results[0]))
    w = _repeated(slim(w), shape)
    if not back.complex[k]:
        return back.weighed(rate, w)
    return FUNCTIONS["complex"](back.weighed(rate, w), back.weighed(rate * 1j, w))


def _of_sort(back: _Back, w: Jets, k: int) -> Jets:
    axis, shape = back.operation.params["axis"], back.shapes[k]
    order = back.operation.params["indices"]

    def put(part: Any) -> Any:
        found = zeros(shape)
        np.put_along_axis(found, order, part, axis)
        return found

    return w.map(put)


def _of_matmul(back: _Back, w: Jets, k: int) -> Jets:
    a, b = map(lifted, back.operands)
    if len(a.shape) == 1:
        a = a.map(lambda part: part[None, :])
        w = w.map(lambda part: np.expand_dims(part, -2 if len(b.shape) > 1 else -1))
    if len(b.shape) == 1:
        b = b.map(lambda part: part[:, None])
        w = w.map(lambda part: np.expand_dims(part, -1))
    other = balls.conjugate(b if k == 0 else a).map(lambda part: np.swapaxes(part, -1, -2))
    found = balls.matmul(w, other) if k == 0 else balls.matmul(other, w)
    one = a if k == 0 else b
    found = _unbroadcast(found, one.shape)
    return found.map(lambda part: part.reshape(back.shapes[k]))


def _of_fft(back: _Back, w: Jets, _k: int) -> Jets:
    params = back.operation.params
    return balls.fft(w, axis=params["axis"], inverse=not params["inverse"])


TRANSPOSES: Mapping[str, Callable[[_Back, Jets, int], Jets]] = {
    "take": _of_take,
    "segment_sum": _of_segment_sum,
    "sum": _of_sum,
    "cumulative_sum": _of_cumulative_sum,
    "max": _of_extreme,
    "min": _of_extreme,
    "logsumexp": _of_logsumexp,
    "sort": _of_sort,
    "matmul": _of_matmul,
    "fft": _of_fft,
}
"""How operations carry the cotangent of their result to an operand, where their rules along one
entry after the other would take a replay for each."""
