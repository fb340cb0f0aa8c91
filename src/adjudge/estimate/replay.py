"""Programs replayed in balls: the values and derivatives of the real function that a program
denotes, and whether its translation is right.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from operator import eq, ge, gt, le, lt, methodcaller
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import BRANCH_ROOM, ROUNDING_UNITS, TRANSLATION_UNITS
from adjudge.engine import INPUT, OPAQUE, Operation, Program, Ref
from adjudge.estimate import balls, matrices
from adjudge.estimate.balls import (
    FUNCTIONS,
    Balls,
    Jets,
    Truth,
    UndecidedError,
    chosen,
    compared,
    each,
    flint,
    is_zero,
    known,
    lifted,
)
from adjudge.floats import FORMATS, Format

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
    found = compared(x, y, eq)
    if not isinstance(x, Jets) or not isinstance(y, Jets):
        return found
    # entries that were only moved and chosen are the same objects
    if x.parts.keys() != y.parts.keys() or x.shape != y.shape:
        return found
    own = ~_finite(x).may_not
    for key, part in x.parts.items():
        own &= np.asarray(_SAME(part, y.parts[key]), bool)
    return Truth(found.may, found.may_not & ~own, found.along)


_SAME = np.frompyfunc(lambda a, b: a is b, 2, 1)


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
    "matrix_exp": matrices.exponential,
    "fft": balls.fft,
}
"""What each operation does to jets; constants arrive as NumPy arrays, booleans as `Truth`."""

WITH_RECORDED: Mapping[str, Callable[..., Any]] = {
    "argmax": lambda x, recorded, **over: balls.extreme_index(x, recorded[0], ge, **over),
    "argmin": lambda x, recorded, **over: balls.extreme_index(x, recorded[0], le, **over),
    "qr": lambda a, recorded: matrices.qr(a, recorded[1]),
    "eigh": lambda a, recorded: matrices.eigh(a, recorded[1]),
    "eig": lambda a, recorded: matrices.eig(a, *recorded),
    "svd": lambda a, recorded: matrices.svd(a, recorded[0], recorded[2]),
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


def work_of_one(program: Program, operation: Operation) -> int:
    """Returns how many operations on numbers one operation takes, roughly."""
    name, recorded = operation.name, operation.recorded
    sizes, depth = [program.value(one).size for one in operation.operands], 1
    if name in ("matmul", "solve", "solve_triangular", "inv", "det", "slogdet", "cholesky"):
        depth = program.value(operation.operands[0]).shape[-1]
    elif name in ("lu", "qr", "eigh", "eig", "svd", "matrix_exp"):
        depth = max(recorded[0].shape, default=1)
    elif name == "fft":
        depth = recorded[0].shape[operation.params["axis"]].bit_length()
    return depth * max(sum(one.size for one in recorded), *sizes)


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


PLAIN = frozenset(
    {"add", "subtract", "multiply", "square", "negative", "abs", "sign", "copysign", "maximum"}
    | {"minimum", "floor", "ceil", "trunc", "round", "remainder", "fmod", "astype", "real", "imag"}
    | {"conj", "complex", "where", "sort", "take", "segment_sum", "sum", "max", "min"}
    | {"cumulative_sum", "cumulative_max", "cumulative_min"}
)
"""The operations whose rules make products and sums of tangents and operands alone."""

NORMWISE = frozenset(
    {"matmul", "solve", "solve_triangular", "inv", "det", "slogdet", "cholesky", "lu", "qr"}
    | {"eigh", "eig", "svd", "matrix_exp", "fft"}
)
"""The operations whose algorithms are backward stable in norm: what rounding does to an entry is
relative to the largest one (Higham 2002, chapters 3, 9 and 19)."""

ITERATED = frozenset({"eigh", "eig", "svd"})
"""The operations whose algorithms iterate until what is left is small beside the largest entry.
What they leave out is the same at all points close to each other, and no noise."""

STEPS = frozenset(
    {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "argmax", "argmin"}
    | {"floor", "ceil", "trunc", "round", "remainder", "fmod"}
)
"""The operations by which a program may follow its input in steps."""

SWITCHES = frozenset(
    {"where", "sign", "copysign", "floor", "ceil", "trunc", "round", "remainder", "fmod", "sort"}
    | {"take", "maximum", "minimum", "max", "min", "cumulative_max", "cumulative_min"}
)
"""The operations that go from one branch to another at once: where balls do not say which one it
is, and the two do not meet, there is a jump."""

FACTORED = frozenset({"eigh", "eig", "svd", "qr", "lu", "cholesky", "slogdet", "matrix_exp", "inv"})
"""The operations of linear algebra that balls enclose where their equations have a single
solution."""


class Roundings:
    """What roundings can do to a program and to its derivative, as wider balls.

    Each input, each result and each of their derivatives may be off by so many `units`, spacings
    of the dtype, and by one more for each term that is added up. A derivative may be off by as much
    of the value as well, over the scale of the operand: `1 - y^2` for the slope of tanh is rounded
    with y. By induction over the operations the balls of a derivative contain its roundings along
    each path through the program, in whichever order an engine adds up the paths: this is the
    running error bound of Wilkinson (Higham 2002, section 3.3), for derivatives.
    """

    def __init__(self, eps: float, units: float = ROUNDING_UNITS) -> None:
        """`eps` is the spacing at 1 of the derivative; an operation may have a wider one."""
        self.eps, self.units = eps, units
        self._lost: dict[int, float] = {}
        """By the key of a part, what underflow in an adjoint could take from it."""

    def anew(self) -> Roundings:
        """Returns the same for another replay, from which nothing is lost yet."""
        return Roundings(self.eps, self.units)

    def of_input(self, jets: Jets) -> Jets:
        """Returns an input and its tangents, rounded."""
        return self._widened(jets, self.units * self.eps, self.eps)

    def of_output(self, jets: Jets) -> Jets:
        """Returns an output whose derivatives may have lost what underflows."""
        arb = flint().arb
        return Jets({
            key: each(lambda one: one + arb(0, self._lost.get(key, 0.0)), part) if key else part  # noqa: B023
            for key, part in jets.parts.items()
        })  # fmt: skip

    def of_sums(self, jets: Jets, terms: float, eps: float, *, normwise: bool) -> Jets:
        """Returns sums of so many products each, rounded."""
        return self._widened(jets, (self.units + terms) * eps, eps, normwise=normwise)

    @np.errstate(all="ignore")
    def performed(self, operation: Operation, operands: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the results of an operation, rounded."""
        eps, normwise = max(self.eps, operation.eps), operation.name in NORMWISE
        given = [np.prod(one.shape) for one in operands if not isinstance(one, Truth)]
        terms = max(given, default=0) / max([1, *(one.size for one in operation.recorded)])
        off = (self.units + terms) * eps
        if normwise:
            operands = [
                self._widened(one, off, eps, normwise=True) if isinstance(one, Jets) else one
                for one in operands
            ]
        found = []
        for one, recorded in zip(perform(operation, operands), operation.recorded, strict=True):
            if not isinstance(one, Jets) or recorded.dtype.kind not in "fc":  # integers are exact
                found.append(one)
                continue
            plain = operation.name in PLAIN or normwise
            rates = {} if plain else _grown(_rates(operands, one.shape), one)
            wide = self._widened(one, off, eps, rates, normwise=normwise)
            found.append(self._overflowed(wide, recorded))
        return tuple(found)

    def _widened(
        self,
        jets: Jets,
        off: float,
        eps: float,
        rates: Mapping[int, NDArray[np.float64]] | None = None,
        *,
        normwise: bool = False,
    ) -> Jets:
        arb, acb, format_ = flint().arb, flint().acb, _format_of(eps)
        parts, values = {}, _sizes(jets.value)
        for key, part in jets.parts.items():
            sizes = _sizes(part)
            if key:
                self._lost[key] = self._lost.get(key, 0.0) + format_.smallest * float(np.sum(sizes))
            if normwise:
                axes = (-2, -1) if sizes.ndim > 1 else None
                sizes = np.broadcast_to(np.max(sizes, axes, keepdims=True, initial=0), sizes.shape)
            slack = off * (sizes + values * rates.get(key, 0.0) if rates else sizes)
            slack = np.where(slack == 0, 0.0, slack + format_.smallest)
            more = each(arb, np.zeros_like(slack), slack)
            if acb in set(map(type, part.flat)):
                more = each(acb, more, more)
            parts[key] = part + more
        return Jets(parts)

    def _overflowed(self, jets: Jets, recorded: NDArray[Any]) -> Jets:
        """Returns jets without any derivative where the engine had no number and balls have one."""
        lost = balls.marks(lambda one: one.is_finite(), jets.value) & ~np.isfinite(recorded)
        if not lost.any():
            return jets
        nan = flint().arb.nan()
        return jets.map(lambda part: np.where(lost, nan, part))


def _format_of(eps: float) -> Format:
    """Returns the format with this spacing at 1, or double precision where none has it."""
    return next((one for one in FORMATS.values() if one.eps == eps), FORMATS["float64"])


def _sizes(balls: Balls) -> NDArray[np.float64]:
    """Returns bounds of the moduli, which are zero where a ball is exactly that."""
    sizes = np.asarray(each(methodcaller("upper"), np.abs(balls)), float)
    return np.where(is_zero(balls), 0.0, np.maximum(sizes, np.nextafter(0.0, 1.0)))


def _rates(operands: Sequence[Any], shape: tuple[int, ...]) -> dict[int, NDArray[np.float64]]:
    """Returns, by the key of a part, how much the operands move over their own scale, at most: of
    each entry of a result of this shape, or of all of them where a reduction was made. The scale of
    a zero is that of the entries beside it, and 1 where these are zero, too; that of a number that
    is nearly one is no less than has a reciprocal.
    """
    found: dict[int, NDArray[np.float64]] = {}
    for one in operands:
        if not isinstance(one, Jets):
            continue
        scale = _sizes(one.value)
        scale = np.where(scale > 0, scale, np.max(scale, initial=0.0) or 1.0)
        scale = np.maximum(scale, 2.0**-1000)
        rates = {key: _sizes(part) / scale for key, part in one.parts.items() if key}
        if 1 in rates and 2 in rates:
            rates[3] = rates[1] * rates[2] + rates.get(3, 0.0)
        for key, rate in rates.items():
            aligned = zip(reversed(rate.shape), reversed(shape), strict=False)
            fits = rate.ndim <= len(shape) and all(n in (1, size) for n, size in aligned)
            whole = np.broadcast_to(rate if fits else np.max(rate, initial=0.0), shape)
            found[key] = np.fmax(found.get(key, 0.0), whole)
    return found


def _grown(rates: dict[int, NDArray[np.float64]], found: Jets) -> dict[int, NDArray[np.float64]]:
    """Returns the rates, with that of the second order of a result that saturates: its derivative
    moves over a scale of its own, `p_1 / p_3`, which may be far less than that of the operand.

    Without it `s (1 - s) (1 - 2 s)`, the second derivative of a sigmoid, fails at 26 by rounding:
    its error is that of s over 1, the scale of the sigmoid, and not over 26.
    """
    if 3 in found.parts and 1 in rates:
        first, second = (_sizes(found.parts[key]) for key in (1, 3))
        own = np.divide(second, first, out=np.zeros_like(second), where=first > 0)
        rates[3] = np.fmax(rates.get(3, 0.0), rates[1] * own)
    return rates


Stop: TypeAlias = Callable[[Operation, Sequence[Any], tuple[Any, ...]], bool]
"""Says of an operation, its operands and its results whether a replay ends with it."""


class Steps(NamedTuple):
    """A program that was replayed."""

    inputs: list[Jets]
    results: list[tuple[Any, ...]]
    """The results of each operation."""
    stopped: Operation | None = None
    """The operation with which the replay ended before the end of the program."""

    def value(self, operand: Any) -> Any:
        """Returns a value of the program; a constant as it is."""
        if not isinstance(operand, Ref):
            return operand
        where = self.inputs if operand.step == INPUT else self.results[operand.step]
        return where[operand.number]

    def outputs(self, program: Program, roundings: Roundings | None) -> list[Jets]:
        """Returns the outputs of the program, rounded where it was replayed with roundings."""
        found = [lifted(self.value(one)) for one in program.outputs]
        return found if roundings is None else [roundings.of_output(one) for one in found]


def replay(
    program: Program,
    tangents: Sequence[Sequence[NDArray[Any]]],
    roundings: Roundings | None = None,
    stop: Stop | None = None,
) -> list[Jets]:
    """Returns the outputs of a program with their derivatives along one or two tangents.

    A tangent has an array for each input; a third one is a motion of the second order, along both
    of the others. With `roundings` the results are those of all programs whose operations are
    rounded so. It is to be called within `precision`. Raises `DoubtError` for an operation that
    has no translation or cannot be decided, and for one at which `stop` holds, as in `replayed`.
    """
    roundings = roundings and roundings.anew()
    steps = replayed(program, tangents, roundings, stop)
    if steps.stopped is not None:
        raise DoubtError(Doubt(steps.stopped, "the branch taken is not decided"))
    return steps.outputs(program, roundings)


def replayed(
    program: Program,
    tangents: Sequence[Sequence[NDArray[Any]]],
    roundings: Roundings | None = None,
    stop: Stop | None = None,
) -> Steps:
    """Returns all values of a program, as `replay` finds them, up to the first operation for which
    `stop(operation, operands, results)` holds.
    """
    inputs = [
        Jets({0: lifted(x).value, **{key: lifted(t[i]).value for key, t in enumerate(tangents, 1)}})
        for i, x in enumerate(program.inputs)
    ]
    if roundings is not None:
        inputs = [roundings.of_input(one) for one in inputs]
    steps = Steps(inputs, [])
    for number, operation in enumerate(program.operations):
        if operation.name == OPAQUE:
            raise DoubtError(Doubt(operation, operation.why))
        operands = [steps.value(one) for one in operation.operands]
        try:
            found = (roundings.performed if roundings else perform)(operation, operands)
        except UndecidedError as error:
            raise DoubtError(Doubt(operation, str(error))) from error
        for k, one in enumerate(found):
            decided = operation.name == "sort"  # in the order that was recorded
            relied = Ref(number, k) in program.relied_on and not decided
            if relied and not _as_recorded(one, operation.recorded[k]):
                raise DoubtError(Doubt(operation, "the branch taken is not decided"))
            if Ref(number, k) in program.followed and (one.may & one.may_not).any():
                raise DoubtError(Doubt(operation, "it is not decided whether a loop goes on"))
        steps.results.append(found)
        if stop is not None and stop(operation, operands, found):
            return steps._replace(stopped=operation)
    return steps


def first_lost(program: Program, tangents: Sequence[Sequence[NDArray[Any]]]) -> Operation | None:
    """Returns the first operation whose results, or their derivatives, have no number although all
    operands have one, and so has what was recorded; `None` where there is none.

    It is to be called within `precision`, for a program that can be replayed.
    """

    def look(operation: Operation, operands: Sequence[Any], found: tuple[Any, ...]) -> bool:
        numbers = [one for one in operands if isinstance(one, Jets)]
        recorded = [one for one in operation.recorded if one.dtype.kind in "fc"]
        return (
            all(map(_is_finite, numbers))
            and not all(_is_finite(one) for one in found if isinstance(one, Jets))
            and all(bool(np.isfinite(one).all()) for one in recorded)
        )

    return replayed(program, tangents, None, look).stopped


def decides_otherwise(
    operation: Operation, operands: Sequence[Any], found: tuple[Any, ...]
) -> bool:
    """Returns whether an operation may have taken another branch than was recorded: a comparison
    that is not decided so, or a step (`sign`, `floor`, the smaller of two numbers) whose result is
    not close to what was recorded.
    """
    for one, recorded in zip(found, operation.recorded, strict=True):
        if isinstance(one, Truth) and not _as_recorded(one, recorded):
            return True
        if isinstance(one, Jets) and operation.name in SWITCHES - {"where", "take", "sort"}:
            off = (one - recorded).value.flat
            pairs = zip(off, np.abs(recorded).flat, strict=True)
            if not all(ball.abs_upper() <= BRANCH_ROOM * float(size) for ball, size in pairs):
                return True
    return False


def _is_finite(jets: Jets) -> bool:
    return all(one.is_finite() for part in jets.parts.values() for one in part.flat)


def _as_recorded(found: Any, recorded: NDArray[Any]) -> bool:
    if isinstance(found, Truth):
        return bool(np.array_equal(found.may, recorded) and not (found.may & found.may_not).any())
    if isinstance(found, Jets):  # numbers that integers were made of, with no motion at a jump
        same = all(one.is_zero() for one in (found - recorded).value.flat)
        return same and _is_finite(found)
    return True  # indices are those that were recorded, or could not be decided


def mistranslated(program: Program) -> Operation | None:
    """Returns the first operation whose replay at the recorded operands does not contain the
    recorded result to its rounding; `None` where all do.

    The operands that are no constants are widened by as many spacings as the result may be off, so
    that a sum is given the rounding of its terms, and a matrix that of its condition. What an
    engine computed by several operations at once is given the rounding of each of them: a layer
    norm has numbers close to their mean, of which little is left when that is taken off.
    It is to be called within `precision`.
    """
    for number, operation in enumerate(program.operations):
        if operation.name != OPAQUE and not _is_as_recorded(program, number):
            return operation
    return None


def _is_as_recorded(program: Program, number: int) -> bool:
    operation = program.operations[number]

    def performed(off: float, begins: int) -> tuple[Any, ...] | None:
        """Returns what the operations from that number on give, each with so much rounding."""
        found = dict[Ref, Any]()
        for k in range(begins, number + 1):
            one = program.operations[k]
            if one.name == OPAQUE:
                continue
            operands = [
                found.get(ref, _widened(program.value(ref), off)) if isinstance(ref, Ref) else ref
                for ref in one.operands
            ]
            try:
                results = perform(one, operands)
            except UndecidedError:
                return None
            if k == number:
                return results
            found |= {Ref(k, j): _wider(result, off) for j, result in enumerate(results)}
        return None

    # Most results are within rounding of what the operands themselves give, which takes a third of
    # the time.
    recorded, eps = operation.recorded, operation.eps
    found = performed(0.0, number)
    if found and all(_is_near(one, own, eps) for one, own in zip(found, recorded, strict=True)):
        return True
    found = performed(
        TRANSLATION_UNITS * eps, number if operation.begins is None else operation.begins
    )
    return found is None or all(
        _contains(one, own, eps) for one, own in zip(found, recorded, strict=True)
    )


def _is_near(found: Any, recorded: NDArray[Any], eps: float) -> bool:
    """Returns whether the middles of narrow balls are surely within rounding of what was recorded,
    asked in double precision.
    """
    if not isinstance(found, Jets) or found.shape != recorded.shape or recorded.dtype.kind != "f":
        return False
    arb = flint().arb

    def middle(ball: Any) -> float:
        sharp = isinstance(ball, arb) and ball.rel_accuracy_bits() > 53
        return float(ball) if sharp else np.nan

    middles = np.asarray(each(middle, found.value), float)
    with np.errstate(all="ignore"):
        off = np.abs(middles - recorded)
        return bool(np.all(off <= TRANSLATION_UNITS / 2 * eps * np.abs(recorded)))


def _widened(recorded: NDArray[Any], off: float) -> Any:
    """Returns numbers as balls that are off by so many parts of them; integers and booleans as they
    are.
    """
    if recorded.dtype.kind not in "fc" or not off:
        return lifted(recorded) if recorded.dtype.kind in "fc" else recorded
    return _wider(lifted(recorded), off)


def _wider(found: Any, off: float) -> Any:
    """Returns balls that are wider by so many parts of them; booleans as they are."""
    if not isinstance(found, Jets):
        return found
    slack = flint().arb(1, off)
    return Jets({0: each(lambda one: one * slack, found.value)})


def _contains(found: Any, recorded: NDArray[Any], eps: float) -> bool:
    if isinstance(found, Truth):
        return bool(np.where(recorded, found.may, found.may_not).all())
    if not isinstance(found, Jets):
        return True
    if found.shape != recorded.shape:
        return False
    format_ = _format_of(eps)
    relative, absolute = (TRANSLATION_UNITS * one for one in (eps, format_.smallest))

    def inside(ball: Any, exact: Any, number: Any) -> bool:
        if np.isnan(number) or not ball.is_finite():  # off the domain, or it says nothing
            return True
        if np.isinf(number):
            return bool(ball.abs_upper() > format_.largest / 2)
        return not (ball - exact).abs_lower() > relative * abs(exact) + absolute

    exact = lifted(recorded).value
    return bool(balls.marks(inside, found.value, exact, recorded).all())
