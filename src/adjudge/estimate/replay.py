"""Programs replayed in balls: the values and derivatives of the real function that a program
denotes, and whether its translation is right.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from operator import eq, ge, gt, le, lt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import TRANSLATION_UNITS
from adjudge.engine import INPUT, OPAQUE, Operation, Program, Ref
from adjudge.estimate import balls, matrices
from adjudge.estimate.balls import (
    FUNCTIONS,
    Jets,
    Truth,
    UndecidedError,
    chosen,
    compared,
    each,
    flint,
    known,
    lifted,
)
from adjudge.floats import FORMATS

_LOCK = threading.RLock()


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Returns a context in which balls have so many bits.

    The precision is a global setting of python-flint, which is as before afterwards; only one
    thread is in such a context at a time.
    """
    context = flint().ctx
    with _LOCK:
        before = context.prec
        context.prec = bits
        try:
            yield
        finally:
            context.prec = before


# -------------------------------------------------------------------- what the operations do


def _truths(x: Any) -> Truth:
    return x if isinstance(x, Truth) else known(np.asarray(x, bool))


def _not(x: Any) -> Truth:
    one = _truths(x)
    return Truth(one.may_not, one.may, one.along)


def _and(x: Any, y: Any) -> Truth:
    a, b = _truths(x), _truths(y)
    return Truth(a.may & b.may, a.may_not | b.may_not, a.along | b.along)


def _or(x: Any, y: Any) -> Truth:
    return _not(_and(_not(x), _not(y)))


def _equal(x: Any, y: Any) -> Truth:
    """Returns whether two numbers, or two booleans, are equal."""
    if isinstance(x, Truth) or isinstance(y, Truth):
        a, b = _truths(x), _truths(y)
        return _or(_and(a, b), _and(_not(a), _not(b)))
    if x is y:  # whatever it is, unless it is undefined
        return _finite(x)
    return compared(x, y, eq)


def _where(condition: Any, x: Any, y: Any) -> Any:
    asked = _truths(condition)
    if isinstance(x, Truth) or isinstance(y, Truth):
        return _or(_and(asked, x), _and(_not(asked), y))
    return chosen(asked, x, y)


def _all(x: Any, *, axis: Any, keepdims: bool) -> Truth:
    one = _truths(x)
    over = {"axis": axis, "keepdims": keepdims}
    return Truth(one.may.all(**over), one.may_not.any(**over), one.along)


def _any(x: Any, **over: Any) -> Truth:
    return _not(_all(_not(x), **over))


def _take(*xs: Any, indices: NDArray[np.int64], fill: complex) -> Any:
    if not any(isinstance(x, Truth) for x in xs):
        return balls.take(*xs, indices=indices, fill=fill)
    truths = [_truths(x) for x in xs]
    yes, no = (
        np.append(np.concatenate([np.ravel(one) for one in side]), last)
        for side, last in (
            ([one.may for one in truths], bool(fill)),
            ([one.may_not for one in truths], not fill),
        )
    )
    return Truth(yes[indices], no[indices], max(one.along for one in truths))


def _finite(x: Any) -> Truth:
    return _not(balls.isnan(lifted(x)))


def _fold(fold: Callable[[Jets, Jets], Jets], empty: float) -> Callable[..., Jets]:
    return lambda x, **over: balls.reduced(lifted(x), fold, empty, **over)


def _cumulative(fold: Callable[[Jets, Jets], Jets]) -> Callable[..., Jets]:
    return lambda x, axis: balls.cumulative(lifted(x), fold, axis=axis)


RULES: Mapping[str, Callable[..., Any]] = {
    **FUNCTIONS,
    "equal": _equal,
    "not_equal": lambda x, y: _not(_equal(x, y)),
    "less": partial(compared, certainly=lt),
    "less_equal": partial(compared, certainly=le),
    "greater": partial(compared, certainly=gt),
    "greater_equal": partial(compared, certainly=ge),
    "isfinite": _finite,
    "isnan": lambda x: balls.isnan(lifted(x)),
    "logical_and": _and,
    "logical_or": _or,
    "logical_xor": lambda x, y: _not(_equal(_truths(x), _truths(y))),
    "logical_not": _not,
    "where": _where,
    "sort": balls.sort,
    "take": _take,
    "segment_sum": balls.segment_sum,
    "sum": lambda x, **over: balls.total(lifted(x), **over),
    "prod": _fold(lambda x, y: x * y, 1.0),
    "max": _fold(balls.maximum, -np.inf),
    "min": _fold(balls.minimum, np.inf),
    "logsumexp": lambda x, **over: balls.log_sum(lifted(x), **over),
    "any": _any,
    "all": _all,
    "cumulative_sum": _cumulative(lambda x, y: x + y),
    "cumulative_prod": _cumulative(lambda x, y: x * y),
    "cumulative_max": _cumulative(balls.maximum),
    "cumulative_min": _cumulative(balls.minimum),
    "cumulative_logsumexp": _cumulative(FUNCTIONS["logaddexp"]),
    "matmul": balls.matmul,
    "solve": matrices.solve,
    "solve_triangular": matrices.solve_triangular,
    "inv": matrices.inverse,
    "det": matrices.determinant,
    "slogdet": matrices.slogdet,
    "cholesky": matrices.cholesky,
    "lu": matrices.lu,
    "fft": balls.fft,
}
"""What each operation does to jets; constants arrive as NumPy arrays, booleans as `Truth`."""

WITH_RECORDED: Mapping[str, Callable[..., Any]] = {
    "argmax": lambda x, recorded, **over: balls.extreme_index(x, recorded[0], ge, **over),
    "argmin": lambda x, recorded, **over: balls.extreme_index(x, recorded[0], le, **over),
    "qr": lambda a, recorded: matrices.qr(a, recorded[1]),
    "eigh": lambda a, recorded: matrices.eigh(a, recorded[1]),
}
"""Those that follow what was recorded: an index where it is certain, signs and phases."""


def perform(operation: Operation, operands: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the results of an operation for operands that are jets, truths and arrays."""
    name = operation.name
    if name in WITH_RECORDED:
        found = WITH_RECORDED[name](*operands, recorded=operation.recorded, **operation.params)
    else:
        found = RULES[name](*operands, **operation.params)
    several = isinstance(found, tuple) and not isinstance(found, Truth)
    return found if several else (found,)


# -------------------------------------------------------------------- whole programs


class Doubt(NamedTuple):
    """Why a program cannot be replayed, or its replay decides nothing."""

    operation: Operation
    why: str


class DoubtError(Exception):
    """A replay has come to an operation that it cannot do or decide."""

    def __init__(self, doubt: Doubt) -> None:
        """`doubt` is the operation and the reason."""
        self.doubt = doubt
        super().__init__(doubt.why)


def replay(program: Program, tangents: Sequence[Sequence[NDArray[Any]]]) -> list[Jets]:
    """Returns the outputs of a program with their derivatives along one or two tangents.

    A tangent has an array for each input; a third one is a motion of the second order, along both
    of the others. It is to be called within `precision`. Raises `DoubtError` for an operation that
    has no translation or cannot be decided.
    """
    inputs = [
        Jets({0: lifted(x).value, **{key: lifted(t[i]).value for key, t in enumerate(tangents, 1)}})
        for i, x in enumerate(program.inputs)
    ]
    results: list[tuple[Any, ...]] = []

    def value(operand: Any) -> Any:
        if not isinstance(operand, Ref):
            return operand
        where = inputs if operand.step == INPUT else results[operand.step]
        return where[operand.number]

    for number, operation in enumerate(program.operations):
        if operation.name == OPAQUE:
            raise DoubtError(Doubt(operation, operation.why))
        try:
            found = perform(operation, [value(one) for one in operation.operands])
        except UndecidedError as error:
            raise DoubtError(Doubt(operation, str(error))) from error
        for k, one in enumerate(found):
            if Ref(number, k) in program.relied_on and not _as_recorded(one, operation.recorded[k]):
                raise DoubtError(Doubt(operation, "the branch taken is not decided"))
        results.append(found)
    return [lifted(value(one)) for one in program.outputs]


def _as_recorded(found: Any, recorded: NDArray[Any]) -> bool:
    if isinstance(found, Truth):
        return bool(np.array_equal(found.may, recorded) and not (found.may & found.may_not).any())
    if isinstance(found, Jets):  # numbers that integers were made of
        as_recorded = found - recorded
        return all(one.is_zero() for one in as_recorded.value.flat)
    return True  # indices are those that were recorded, or could not be decided


def mistranslated(program: Program) -> Operation | None:
    """Returns the first operation whose replay at the recorded operands does not contain the
    recorded result to its rounding; `None` where all do.

    The operands that are no constants are widened by as many spacings as the result may be off, so
    that a sum is given the rounding of its terms, and a matrix that of its condition.
    It is to be called within `precision`.
    """
    for operation in program.operations:
        if operation.name != OPAQUE and not _is_as_recorded(program, operation):
            return operation
    return None


def _is_as_recorded(program: Program, operation: Operation) -> bool:
    off = TRANSLATION_UNITS * operation.eps
    operands = [
        _widened(program.value(one), off) if isinstance(one, Ref) else one
        for one in operation.operands
    ]
    try:
        results = perform(operation, operands)
    except UndecidedError:
        return True
    return all(
        _contains(found, recorded, operation.eps)
        for found, recorded in zip(results, operation.recorded, strict=True)
    )


def _widened(recorded: NDArray[Any], off: float) -> Any:
    """Returns numbers as balls that are off by so many parts of them; integers and booleans as they
    are.
    """
    if recorded.dtype.kind not in "fc":
        return recorded
    arb = flint().arb
    slack = arb(1, off)
    return Jets({0: each(lambda one: one * slack, lifted(recorded).value)})


def _contains(found: Any, recorded: NDArray[Any], eps: float) -> bool:
    if isinstance(found, Truth):
        return bool(np.where(recorded, found.may, found.may_not).all())
    if not isinstance(found, Jets):
        return True
    if found.shape != recorded.shape:
        return False
    format_ = next((one for one in FORMATS.values() if one.eps == eps), FORMATS["float64"])
    relative, absolute = (TRANSLATION_UNITS * one for one in (eps, format_.smallest))

    def inside(ball: Any, exact: Any, number: Any) -> bool:
        if np.isnan(number) or not ball.is_finite():  # off the domain, or it says nothing
            return True
        if np.isinf(number):
            return bool(ball.abs_upper() > format_.largest / 2)
        return not (ball - exact).abs_lower() > relative * abs(exact) + absolute

    exact = lifted(recorded).value
    return bool(np.asarray(np.frompyfunc(inside, 3, 1)(found.value, exact, recorded), bool).all())
