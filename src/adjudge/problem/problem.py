"""The function `f` at the point `x`, its outputs there, and its derivatives by the engine.

Its inputs and outputs are flat and named, its evaluations are counted, and it never gets the
user's own arrays, so that it cannot write into them. `Reverse` and `Forward` give `J* w` and `J v`
as vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import (
    BESIDE_NOT_FINITE,
    BESIDE_NOT_FINITE_UNITS,
    COARSE_EPS,
    DRAWS_OF_ROUNDING,
    UNDETECTABLE_UNITS,
)
from adjudge.engine import (
    Array,
    Arrays,
    AutodiffBackend,
    ByHand,
    FlatByHand,
    FlatFunction,
    HandBackend,
    MaybeArrays,
    Program,
    Pullback,
    replaced,
)
from adjudge.errors import (
    InputError,
    NotSupportedError,
    Source,
    attempt,
    mark,
    running,
    value_or_error,
)
from adjudge.findings import InSequence
from adjudge.floats import QUANTILE_ENTRIES, Vector, repeated, scale
from adjudge.limits import limits
from adjudge.problem.ahead import Begun
from adjudge.problem.calls import (
    Arguments,
    Counts,
    Move,
    Path,
    Purpose,
    Recordable,
    UserCalls,
)
from adjudge.problem.constraints import (
    ChartedByHand,
    Charts,
    Directions,
    at_start,
    read_directions,
    within,
)
from adjudge.problem.domain import Bounds, read_bounds
from adjudge.problem.probes import Stream, generator, random_entries
from adjudge.problem.space import DOUBLE, Space


@dataclass(frozen=True)
class Problem:
    """The function `f: X -> Y` at the point `x`.

    The engine differentiates `function`. Differences use `evaluate`, which gives the same outputs
    and may append further ones that are only observed. For a second-order problem these are the
    values of the original function, so that the same evaluations check its first derivative.
    """

    backend: AutodiffBackend
    function: FlatFunction
    evaluate: FlatFunction
    x: Arrays
    X: Space
    origin: Vector
    counts: Counts
    modes_taken: str = ""
    """The letters of the derivatives already taken, outermost first: "" for f, "R" for its vjp."""
    output_names: Callable[[], Sequence[str]] = field(default=lambda: ())
    """The accessor paths of what `evaluate` returns, which the first evaluation finds."""
    calls: UserCalls | None = None
    """The calls of the user's function, which know its other arguments and, from the first
    evaluation on, the structure of its result."""
    differentiated: int | None = None
    """The number of outputs of `function`, or `None` where `evaluate` gives no more."""
    primal_inputs: int = 0
    """The number of leaves of X that belong to the original function, where X has more; else 0."""
    primal: Problem | None = None
    """The problem of f itself, where this is the problem of one of its derivatives."""
    cotangent: Vector | None = None
    """The cotangent of a vjp as a vector over all outputs of f, which is zero where they are
    detached."""
    attached: tuple[slice, ...] = ()
    """The coordinates of those outputs of f that have a cotangent."""
    bounds: tuple[Vector, Vector] | None = None
    """The lowest and the highest point of X, between which every evaluation stays."""
    widened: Callable[[str], Problem] | None = None
    """The function that makes this problem in double precision, where x has a leaf of less."""
    anew: Callable[[], Problem] | None = None
    """The function that makes this problem once more, where x is in double precision. Its outputs
    may have other dtypes, as those of f have past its conversions."""
    constraints: tuple[str, ...] = ()
    """Texts that say which inputs are checked along which set; `x` holds their coordinates."""
    closed_over: int = 0
    """The number of leaves at the end of X that are no input, but what f closes over."""
    recorded: dict[Hashable, Program] = field(default_factory=dict)
    """What f did at x, and at points beside it, where that was asked in some composition."""

    def with_leaves(self, space: Space, arrays: Arrays, coordinates: Vector) -> Problem:
        """Returns the problem at a point with more leaves, which no bounds limit."""
        free = np.full(space.size, np.inf)
        return replace(
            self,
            x=(*self.x, *arrays),
            X=Space((*self.X.leaves, *space.leaves)),
            origin=np.concatenate([self.origin, coordinates]),
            bounds=self.bounds
            and (np.append(self.bounds[0], -free), np.append(self.bounds[1], free)),
        )

    def longest_step(self, v: Vector, *, both: bool = True) -> float:
        """Returns the longest step along `v` within the bounds, infinity where nothing bounds it.

        With `both`, a step of that length against `v` is within the bounds as well.
        """
        if self.bounds is None:
            return np.inf
        low, high = self.bounds
        moves = v != 0
        ahead = np.where(v > 0, high - self.origin, self.origin - low)[moves]
        behind = np.where(v > 0, self.origin - low, high - self.origin)[moves]
        steps = (np.minimum(ahead, behind) if both else ahead) / np.abs(v[moves])
        return float(np.min(steps, initial=np.inf))

    def inward(self, v: Vector) -> Vector:
        """Returns `v` with the signs of bounded entries turned away from the nearer bound."""
        if self.bounds is None:
            return v
        low, high = self.bounds
        nearer = high - self.origin < self.origin - low
        bounded = np.isfinite(low) | np.isfinite(high)
        return np.where(bounded, np.where(nearer, -np.abs(v), np.abs(v)), v)

    def clipped(self, point: Vector) -> Vector:
        """Returns the nearest point within the bounds, which rounding may have left."""
        return point if self.bounds is None else np.asarray(np.clip(point, *self.bounds))

    @cached_property
    def length_scales(self) -> Vector:
        """The scale of every coordinate of x, as a vector of X."""
        scales = [scale(self.origin[part]) for part in self.X.slices]
        return scales[0] if len(scales) == 1 else np.concatenate([*scales, np.zeros(0)])

    @cached_property
    def finite(self) -> bool:
        """Whether every entry of x is finite."""
        return bool(np.isfinite(self.origin).all())

    @cached_property
    def empty(self) -> bool:
        """Whether no input of f has an entry, so that there is no derivative, whatever f is."""
        return not any(leaf.size for leaf in self.X.leaves[: self.primal_inputs or None])

    @cached_property
    def spacings_inside(self) -> frozenset[float]:
        """The spacings at 1 of the dtypes that the engine sees f compute with at x; none where it
        does not know.
        """
        with running(Source.FUNCTION):
            return self.backend.environment.spacings_inside(self.function, self.point())

    @property
    def narrowest_eps(self) -> float:
        """The largest of `spacings_inside`; 0 where there are none."""
        return max(self.spacings_inside, default=0.0)

    def program(self, vector: Vector) -> Program:
        """Returns what f does at the point `vector` in the vocabulary that engines share. It is
        recorded once for all compositions of modes, and again where f draws other numbers. Raises
        `NotSupportedError` where the engine does not tell.
        """
        key = (self.function, vector.tobytes(), self.counts.before_evaluation)
        if key not in self.recorded:
            found = self.program_of_run(vector)
            if len(self.recorded) > 2:  # x itself, and the points beside it that are looked at
                del self.recorded[next(reversed(self.recorded))]
            self.recorded[key] = found
        return self.recorded[key]

    def program_of_run(self, vector: Vector) -> Program:
        """Returns what f does at the point `vector` in a run of its own; see `program`."""
        with running(Source.FUNCTION):
            return self.backend.program(self.function, self.point(vector))

    @cached_property
    def moved_by_rounding(self) -> list[Problem]:
        """The problem with all numbers that f computes in less than double precision moved by a
        spacing, for a few draws of the signs; see `Environment.moved_by_rounding`. There are none
        where the engine cannot.
        """
        return self._moved(wide=False)

    @cached_property
    def moved_widely(self) -> list[Problem]:
        """The problem where numbers of double precision are moved as well."""
        return self._moved(wide=True)

    def _moved(self, *, wide: bool) -> list[Problem]:
        move = self.backend.environment.moved_by_rounding
        found = []
        for draw in range(DRAWS_OF_ROUNDING):
            # What is evaluated without a derivative is moved by the same.
            pair = [move(f, draw, wide=wide) for f in (self.function, self.evaluate)]
            if pair[0] is not None and pair[1] is not None:
                found.append(replace(self, function=pair[0], evaluate=pair[1]))
        return found

    def evaluated(self) -> Arrays:
        """Returns the outputs of f at x, and marks what it raises as its own."""
        with running(Source.FUNCTION):
            return self.function(self.point())

    def point(self, vector: Vector | None = None) -> Arrays:
        """Returns fresh arrays with the coordinates `vector` of X, by default those of x."""
        x = self.X.arrays(self.backend, self.origin if vector is None else vector, self.x)
        self.counts.keep(x, 8 * self.X.size)
        return x


def first_order(
    function: Callable[..., Any],
    arguments: Arguments,
    *,
    bounds: Bounds = None,
    directions: Directions = None,
    outputs: Sequence[Path] | None = None,
    counts: Counts | None = None,
) -> Problem:
    """Returns the problem of `function` at its arguments, whose cost is added to `counts`.

    The outputs at the paths `outputs` are those of the problem, by default all. Raises `InputError`
    for bounds and sets that do not fit the arguments.
    """
    if isinstance(function, ByHand):
        function = function.on(arguments.backend)
        hand = HandBackend(arguments.backend, function)
        arguments = replace(arguments, backend=hand)
    user = _UserFunction(function, counts or Counts(), bounds, directions, outputs)
    problem = user.at(arguments)
    # Without leaves of its own, what f closes over may be narrow.
    if problem.x and problem.X.double:  # as most are
        return replace(problem, anew=partial(user.at, arguments))
    if not isinstance(function, ByHand) and _computes_no_products(problem):
        arguments = replace(arguments, backend=replaced(arguments.backend, no_products=True))
        problem = user.at(arguments)
    if problem.x and all(problem.backend.arrays.eps(leaf) <= DOUBLE for leaf in problem.x):
        return replace(problem, anew=partial(user.at, arguments))
    given = [leaf.eps for leaf in problem.X.leaves]
    return replace(problem, widened=lambda to: user.at(arguments.widened(to), given=given))


def _computes_no_products(problem: Problem) -> bool:
    """Returns whether the engine computes more coarsely than the dtypes at x, and f is known to
    compute none of the products that do. Without this every function of float32 is judged only as
    exactly as products in TF32.
    """
    eps, environment = problem.backend.arrays.eps, problem.backend.environment
    if all(leaf.eps <= eps(x) for leaf, x in zip(problem.X.leaves, problem.x, strict=True)):
        return False
    with environment.isolation(problem.x):
        return not environment.computes_products(problem.function, problem.point())


@dataclass(frozen=True)
class _UserFunction:
    """The user's function, and where it may be evaluated."""

    function: Callable[..., Any]
    counts: Counts
    bounds: Bounds
    directions: Directions
    outputs: Sequence[Path] | None

    def at(self, arguments: Arguments, given: Sequence[float] | None = None) -> Problem:
        """Returns the problem at `arguments`.

        The numbers `given` are the spacings at 1 of the dtypes of the user's own leaves, where
        those of `arguments` are wider.
        """
        function, counts, directions = self.function, self.counts, self.directions
        engine, calls = arguments.backend, UserCalls(arguments, counts, self.outputs)
        flat: FlatFunction
        if isinstance(function, ByHand):
            flat = FlatByHand(function, calls)
        elif engine.compilations() is None or counts.ahead is not None:
            flat = partial(calls.evaluate, function)
        else:
            flat = Recordable(calls, function)
        leaves = arguments.leaves
        space, origin = Space.at(engine, leaves, arguments.names)
        problem = Problem(
            engine,
            flat,
            flat,
            leaves,
            space,
            origin,
            counts,
            output_names=calls.output_names,
            calls=calls,
            bounds=None if self.bounds is None else read_bounds(space, origin, self.bounds),
        )
        if directions is None:
            return problem
        rounding = given or [leaf.eps for leaf in space.leaves]
        # Charts are read in isolation, as they will be evaluated.
        with engine.environment.isolation(problem.x):
            charts = read_directions(engine, space, problem.x, directions, self.bounds, rounding)
            return _charted(problem, charts)


def _charted(problem: Problem, charts: Charts) -> Problem:
    """Returns the same problem in the coordinates of `charts`."""
    flat, counts, size = problem.function, problem.counts, 8 * problem.X.size
    z, start = at_start(charts, problem.X, problem.x, problem.origin)
    bounds = within(problem.X, start, problem.bounds, charts)
    problem = replace(problem, x=z, origin=start, bounds=bounds, constraints=charts.descriptions)
    if charts.identity:
        return problem

    def evaluate(z: Arrays) -> Arrays:
        """Returns the outputs of f at the point with the coordinates `z`."""
        with running(Source.FUNCTION):  # A chart may be one that the user wrote.
            x = charts.value(z)
        counts.keep(x, size)  # The function may remember x, and not z, by its `id`.
        return flat(x)

    function: FlatFunction = (
        ChartedByHand(flat, charts)
        if isinstance(flat, FlatByHand)
        else lambda z: flat(charts.value(z))
    )
    return replace(problem, function=function, evaluate=evaluate)


@dataclass(frozen=True)
class Base:
    """The outputs of a problem at x, with the observed ones, and the spaces that they lie in."""

    problem: Problem
    whole: Space
    """The space of all outputs of `problem.evaluate`, of which the observed ones come last."""
    Y: Space
    """The space of the differentiated outputs."""
    values: Vector
    """The outputs at x, as a vector of `whole`."""
    arrays: tuple[object, ...]
    """The outputs at x as arrays of the engine, one per leaf of `whole`."""
    noise: float = 0.0
    """The spread of the values between evaluations that the caller allows."""
    hiding: NDArray[np.bool_] | None = None
    """The outputs that a column leaves out, since the others do not show beside them."""
    alone: bool = False
    """Whether every output is seen by itself: its rounding is relative to its own modulus, and its
    derivative to its own size."""
    raw: Vector | None = None
    """The outputs at x as f gave them, where some are not finite and `leave_out` has looked at
    them. In `values` those that are left out are zero then, and the others that are not finite are
    NaN."""
    omitted: NDArray[np.bool_] | None = None
    """The outputs that take no part in any comparison, since they are not finite at x."""
    poles: NDArray[np.bool_] | None = None
    """Those among them that do not keep that value beside x: there may be a derivative."""
    carried_eps: float = 0.0
    """The spacing at 1 of the dtype that f was seen to round its values to, where it is known."""
    seen: dict[str, Any] = field(default_factory=dict)
    """What the values of f beside x have shown so far, which need not be looked for again."""
    of: Base | None = None
    """All outputs, where these are a few of them."""
    chosen: NDArray[np.intp] | None = None
    """The coordinates of the few."""

    @cached_property
    def reverse(self) -> Reverse:
        """Reverse mode at x, in which f is evaluated once for all that is pulled back there."""
        return Reverse(self.problem)

    @property
    def given(self) -> Vector:
        """The outputs at x as f gave them."""
        return self.values if self.raw is None else self.raw

    @cached_property
    def finite(self) -> bool:
        """Whether every output is finite at x."""
        return bool(np.isfinite(self.values).all())

    @cached_property
    def uncompared(self) -> NDArray[np.bool_] | None:
        """The outputs that are left out for either reason; `None` where there are none."""
        if self.hiding is None or self.omitted is None:
            return self.omitted if self.hiding is None else self.hiding
        return self.hiding | self.omitted

    @cached_property
    def omitted_of_Y(self) -> NDArray[np.bool_] | None:
        """The outputs of Y among those that are `omitted`."""
        return None if self.omitted is None else self.omitted[: self.Y.size]

    def compared(self, values: Vector) -> Vector:
        """Returns outputs near x with zeros where they are left out, and NaN where they are not
        finite at x otherwise: they have no difference then. There are such where `raw` is kept.
        """
        assert self.raw is not None
        return np.where(np.isfinite(self.raw), values, self.values)

    def again(self, values: Vector) -> Vector:
        """Returns further outputs at x as they are to be compared with `values`: in place of an
        infinity or NaN that f gives again stands what `values` has there.
        """
        if self.raw is None:
            return values
        count = values.size
        alike = self.same_as_raw(values) & ~np.isfinite(self.raw[:count])
        return np.where(alike, self.values[:count], values)

    def same_as_raw(self, values: Vector) -> NDArray[np.bool_]:
        """Marks where `values` are those that f gave at x, NaN and infinities included."""
        raw = self.given[: values.size]
        return np.asarray((values == raw) | (np.isnan(values) & np.isnan(raw)))

    @cached_property
    def coarsest_eps(self) -> float:
        """The coarsest `eps` (spacing at 1) of the checked leaves, of the outputs, and of float64,
        in which estimates are computed.
        """
        return max(self.problem.X.coarsest_eps, self.whole.coarsest_eps)

    def magnitude(
        self, values: Vector, other: Vector | None = None, part: slice = slice(None)
    ) -> Vector:
        """Returns the magnitudes that the rounding of the outputs `values` is relative to; the
        larger ones of two evaluations where `other` is given, and a `part` of them.

        Each is the modulus of the output, or the median modulus of its leaf at x where that is
        larger. Small outputs may be computed from larger numbers, as in `1 - erfc(x)` and `a @ b`,
        and without the median their rounding would be underestimated. The rule is ours. Outputs
        that are `uncompared` have the magnitude 0.
        """
        size, out = self.whole.modulus(values, other, part), self.uncompared
        size = np.fmax(size, self._typical[part])
        return np.asarray(size if out is None else np.where(out[part], 0.0, size))

    def few(self, k: int, more: Sequence[int]) -> tuple[Base, int]:
        """Returns some outputs of the leaf of output `k`: this one, `more` of them, and others at
        even distances, which show what is usual in the leaf. Also returns where among them `k` is.

        All outputs are evaluated, and of each evaluation no more than the few are kept.
        """
        j = self.whole.leaf_of(k)
        leaf, part = self.whole.leaves[j], self.whole.slices[j]
        each, step = 1 + leaf.complex, max(1, leaf.entries // QUANTILE_ENTRIES)
        named = [one - part.start for one in (k, *more) if part.start <= one < part.stop]
        entries = np.union1d(np.arange(0, leaf.entries, step), np.array(named) // each)
        chosen = part.start + (each * entries[:, None] + np.arange(each)).reshape(-1)
        space, values = Space((replace(leaf, host_shape=(entries.size,)),)), self.values[chosen]
        masks = {name: getattr(self, name) for name in ("hiding", "raw", "omitted")}
        masks = {name: None if one is None else one[chosen] for name, one in masks.items()}
        few = replace(self, whole=space, Y=space, values=values, of=self, chosen=chosen, **masks)
        return few, int(np.searchsorted(chosen, k))

    def rounded(self, eps: float) -> Base:
        """Returns the same outputs with an `eps` of their leaves that is `eps` at least."""
        return replace(self, whole=self.whole.coarser(eps), Y=self.Y.coarser(eps))

    @cached_property
    def rounding_inside(self) -> Vector | None:
        """By how much each output moves where all that f computes in less than double precision
        moves by one spacing of its dtype; `None` where the engine does not know.
        """
        return self._moves_by_rounding(wide=False)

    @cached_property
    def rounding_of_all(self) -> Vector | None:
        """The same where numbers of double precision move by a spacing as well."""
        return self._moves_by_rounding(wide=True)

    def _moves_by_rounding(self, *, wide: bool) -> Vector | None:
        """Returns the largest move of each output over a few draws."""
        if self.of is not None:
            moves = self.of.rounding_of_all if wide else self.of.rounding_inside
            return None if moves is None else np.asarray(moves[self.chosen])
        problem, count, moves = self.problem, len(self.Y.leaves), np.zeros(self.Y.size)
        others = problem.moved_widely if wide else problem.moved_by_rounding
        first = None
        for other in others:
            outputs = attempt(other.evaluated, NotSupportedError)
            if outputs is None:
                return None
            values = self.Y.vector(problem.backend, outputs[:count], self.arrays[:count])
            # Where numbers are moved f may be another function, as under a tracer of JAX. All that
            # it is off by would count as rounding then, also of an identity that it violates.
            first = values if first is None else first
            off = np.abs(values - (first if wide else self.values[: self.Y.size]))
            moves = np.fmax(moves, np.nan_to_num(off, nan=np.inf, posinf=np.inf))
        return moves if others else None

    @cached_property
    def _typical(self) -> Vector:
        """The median modulus of its leaf for each output; 0 in leaves of sixteen bits, and where
        outputs are `alone`.
        """
        if self.alone:
            return repeated(0.0, self.whole.size)
        if self.of is not None:
            return self.of._typical[self.chosen]
        usual, size = [], self.whole.modulus(self.values)
        for leaf, part in zip(self.whole.leaves, self.whole.slices, strict=True):
            usual.append(0.0)
            # In sixteen bits the rounding of the median would drown every small entry.
            if leaf.eps > COARSE_EPS:
                continue
            own = size[part] if self.uncompared is None else size[part][~self.uncompared[part]]
            some = own[:: max(1, own.size // QUANTILE_ENTRIES)]
            finite = some[np.isfinite(some)]
            if finite.size:
                finite.partition(finite.size // 2)
                usual[-1] = finite[finite.size // 2]
        return self.whole.by_leaf(usual)


def undetectable_slope(base: Base, vector: Vector, eps: float) -> Vector:
    """Returns the slope along `vector` that each output of a derivative may have unseen in f.

    The result has one entry per entry of `base.Y`: `UNDETECTABLE_UNITS` units of rounding of
    f, which is `eps` relative to its largest value, over the scale of the input that the output
    belongs to. It is zero where the problem is f itself. The rule is ours.
    """
    problem, width = base.problem, base.Y.size
    observed = base.values[width:]
    if not problem.modes_taken or not observed.size:
        return np.zeros(width)
    f = float(np.max(np.abs(observed), initial=0.0, where=np.isfinite(observed)))
    lengths = np.ones(width)
    if problem.modes_taken[0] == "R":
        lengths = problem.length_scales[:width]
    moves = vector != 0
    step = float(np.max(np.abs(vector[moves]) / problem.length_scales[moves], initial=0.0))
    return np.asarray(UNDETECTABLE_UNITS * eps * f * step / lengths)


def evaluate(problem: Problem, base: Base, x: Vector, purpose: Purpose | Move) -> Vector:
    """Returns all outputs at the point `x` of X as a vector, from an evaluation of fresh arrays.

    Outputs that are left out are zero; see `Base.compared`.
    """
    if base.of is not None:
        return np.asarray(evaluate(problem, base.of, x, purpose)[base.chosen])
    backend, counts, X = problem.backend, problem.counts, problem.X
    counts.purpose, ahead = purpose, counts.ahead
    if ahead is not None and not problem.modes_taken:
        if ahead.rehearsed is not None:
            ahead.rehearsed.append(partial(_begin, problem, x, purpose))
            return base.values
        ahead.key = _key(problem, x)
    point = X.arrays(backend, x, problem.x)
    counts.keep(point, 8 * X.size)
    del x  # it may be large, and nobody else's
    try:
        outputs = problem.evaluate(point)
    finally:
        if ahead is not None:
            ahead.key = None
    del point
    values = base.whole.vector(backend, outputs, base.arrays)
    return values if base.raw is None else base.compared(values)


def _key(problem: Problem, x: Vector) -> Hashable:
    """Returns what tells the evaluation at `x` from all others."""
    return id(problem.evaluate), x.tobytes()


def at_once(problem: Problem, base: Base, call: Callable[[], object]) -> None:
    """Begins the evaluations that `call` will ask for, where an executor is to make them at once.

    A rehearsal finds them: `call` is run with f(x) for each value of f, so the points that it takes
    must not depend on the values. Nothing begins for which `max_evaluations` leaves no room. With
    the first ones f is evaluated at x, and has to give f(x) to the last bit: in another thread it
    may miss settings, and in another process what it keeps between calls.
    """
    counts, ahead = problem.counts, problem.counts.ahead
    if ahead is None or not ahead.open or ahead.rehearsed is not None:
        return
    if problem.modes_taken:
        ahead.reasons.setdefault(InSequence.DERIVATIVE)
        return
    settings = problem.backend.environment.carried_settings()
    reason = InSequence.ENGINE if settings is None else ahead.disturbed()
    if counts.before_evaluation is not None:
        reason = InSequence.RANDOM
    if reason is not None:
        counts.in_sequence(reason)
        return
    wanted: list[Callable[[], object]] = []
    ahead.rehearsed = wanted
    try:
        call()
    finally:
        ahead.rehearsed = None
    known, at_x = id(problem.calls) in ahead.trusted, base.problem
    if len(wanted) < 2 or not counts.allows(len(wanted) + (not known)):
        return
    if not known:
        wanted.append(partial(_begin, at_x, at_x.origin, Purpose.AGAIN_AT_X))
    ahead.settings = settings
    try:
        for begin in wanted:
            begin()
    finally:
        ahead.settings = None
    if not known:
        ahead.trusted.add(id(problem.calls))
        again = partial(outputs_at, at_x, base, at_x.origin, Purpose.AGAIN_AT_X)
        value = attempt(again)
        wait(ahead.begun.values())
        same = value is not None and bool(base.same_as_raw(value).all())
        reason = ahead.disturbed() or (None if same else InSequence.ELSEWHERE)
        if reason is not None:
            counts.in_sequence(reason)


def _begin(problem: Problem, x: Vector, purpose: Purpose | Move) -> None:
    """Begins the evaluation at `x` in the executor, unless it has begun."""
    counts, ahead, key = problem.counts, problem.counts.ahead, _key(problem, x)
    assert ahead is not None
    if key in ahead.begun or not ahead.open:
        return
    counts.purpose, ahead.key = purpose, key
    point = problem.X.arrays(problem.backend, x, problem.x)
    counts.keep(point, 8 * problem.X.size)
    try:
        with suppress(Begun):
            attempt(partial(problem.evaluate, point))  # it raises again where its value is taken
    finally:
        ahead.key = None
    if key not in ahead.begun and ahead.open:
        counts.in_sequence(InSequence.ELSEWHERE)


def outputs_at(problem: Problem, base: Base, x: Vector, purpose: Purpose | Move) -> Vector:
    """Returns all outputs at the point `x` of X as `evaluate` does, just as f gives them."""
    return evaluate(problem, base if base.raw is None else replace(base, raw=None), x, purpose)


def leave_out(base: Base, seed: int) -> Base:
    """Returns the same outputs, without those that are not finite at x.

    Masks and top-k fill outputs with -inf, and what is beside them has to be judged all the same:
    their infinity, or NaN, is the same at two points beside x. Of an output that is finite beside x
    (a pole, or `log` at 0) no difference says anything. It leaves the check open, and without this
    it left a projection over all outputs open as well, and every mistake in the others. Nothing is
    left out where no finite output would be left. Costs two evaluations where an output is not
    finite. Ours.
    """
    problem, raw = base.problem, base.values
    if base.finite or base.raw is not None:
        return base
    finite = np.isfinite(raw)
    same = ~finite
    signs = random_entries(generator(seed, Stream.BESIDE_NOT_FINITE), problem.X.size)
    distance = max(BESIDE_NOT_FINITE, BESIDE_NOT_FINITE_UNITS * base.coarsest_eps)
    # An entry that does not move would show nothing of a pole.
    move = distance * np.fmax(problem.length_scales, np.abs(problem.origin))
    move = np.where(np.isfinite(problem.origin), problem.inward(signs * move), 0.0)
    for side in (move, -move):
        point = problem.clipped(problem.origin + side)
        values = attempt(partial(outputs_at, problem, base, point, Purpose.BESIDE_NOT_FINITE))
        same &= False if values is None else base.same_as_raw(values)
    if not finite[: base.Y.size].any():
        return replace(base, values=np.where(finite, raw, np.nan), raw=raw)
    poles = ~finite & ~same
    return replace(
        base,
        values=np.where(finite, raw, 0.0),
        raw=raw,
        omitted=~finite,
        poles=poles if poles.any() else None,
    )


def observe(problem: Problem) -> Base:
    """Evaluates the function once and returns its outputs at x with their spaces."""
    problem.counts.purpose = Purpose.AT_X
    x = problem.point()
    return base_of(problem, problem.evaluate(x))


def base_of(problem: Problem, outputs: Arrays) -> Base:
    """Returns the `Base` of outputs at x that are already known."""
    try:
        arrays = tuple(map(problem.backend.arrays.copy, outputs))
    except BaseException as error:  # it is raised again
        mark(error, Source.ENGINE)
        raise
    names = problem.output_names()[: len(arrays)]
    whole, values = Space.at(problem.backend, arrays, names)
    count = len(arrays) if problem.differentiated is None else problem.differentiated
    return Base(
        problem,
        whole,
        whole if count == len(whole.leaves) else Space(whole.leaves[:count]),
        values,
        arrays,
    )


FEW_LEAVES = 3
"""The most leaves without a derivative that an error names."""


def require_outputs(base: Base) -> None:
    """Raises `InputError` where the function returns nothing that has a derivative."""
    if not base.Y.leaves:
        calls = base.problem.calls
        kind = f"floating or complex array of {base.problem.backend.name}"
        arrays = () if calls is None or calls.signature is None else calls.signature.arrays
        others = {} if calls is None else calls.of_others
        found = [
            f"{one[0]} ({one[2]} of shape {one[1]}"
            + (f", an array of {others[one[0]]})" if one[0] in others else ")")
            for one in arrays
            if one is not None
        ]
        found += [] if calls is None else calls.plain[:FEW_LEAVES]
        what = f"{', '.join(found)} is no {kind}" if found else f"no {kind}"
        if calls is not None and calls.opaque:
            raise InputError(
                f"the function returns nothing that can be differentiated: {calls.opaque[0]} is no "
                "container that is known",
                "return what it holds as a tuple or a dict of arrays",
            )
        raise InputError(
            f"the function returns nothing that can be differentiated: {what}",
            "return arrays of the same framework as the inputs (a Python number carries no "
            "derivative, as of `float(y)` or `y.item()`); is a `return` missing?",
        )


RAISED_IN_VJP = "adjudge: raised in the vjp (the backward pass), not in the function"


class Reverse:
    """Reverse mode at a point: `w -> J* w` on vectors, with every vjp counted."""

    def __init__(
        self, problem: Problem, at: Vector | None = None, only: Sequence[int] | None = None
    ) -> None:
        """Evaluates f once in the engine's reverse mode, at x or at the point `at` of X.

        With `only`, the indices of some leaves of X, gradients are required of these alone: all
        other leaves are constants for the engine, and their gradients are absent.
        """
        self.problem = problem
        problem.counts.purpose = Purpose.REVERSE
        self.x = problem.point(at)
        vjp, function = problem.backend.vjp, problem.function
        try:
            if only is None:
                self.outputs, self._pullback = vjp(function, self.x)
            else:
                some = tuple([self.x[j] for j in only])
                constants = tuple(map(problem.backend.constant, self.x))
                own = partial(_with_constants, function, constants, only)
                self.outputs, pullback = vjp(own, some)
                self._pullback = partial(_spread_out, pullback, len(self.x), only)
        except BaseException as error:  # it is raised again
            mark(error, Source.DERIVATIVE)
            raise
        self.attached = tuple([not problem.backend.detached(y) for y in self.outputs])
        calls = problem.calls
        if calls is not None and not calls.recorded and not problem.modes_taken and only is None:
            calls.recorded = True
            calls.ends = problem.backend.recording_ends(self.outputs, self.x)
        self.refused: tuple[tuple[int, ...], Exception] | None = None
        """The outputs beside whose absent cotangents a rule raised, and what it raised."""
        self.present = [False] * len(self.x)
        """This says by leaf of X whether any pullback so far returned a gradient for it."""

    def pull(self, w: MaybeArrays, *, read: bool = True) -> tuple[Vector, MaybeArrays]:
        """Returns what the engine's pullback makes of the cotangents `w`, one per output: a vector
        of X, in which absent gradients are zeros, and the gradients themselves. The vector is empty
        where these cannot be `read`, as under `vmap`.

        What the pullback raises comes through, with a note that the function did not raise it.
        """
        problem = self.problem
        problem.counts.vjps += 1
        call = problem.counts.vjps
        try:
            g = self._pullback(w)
        except BaseException as error:  # it is raised again
            mark(error, Source.DERIVATIVE, f"{RAISED_IN_VJP}, at call {call}")
            raise
        del w
        for j, gradient in enumerate(g):
            self.present[j] |= gradient is not None
        return problem.X.vector(problem.backend, g, problem.x) if read else np.zeros(0), g

    def value(self, base: Base) -> Vector:
        """Returns the outputs of f that came with the pullback as a vector of Y."""
        likes = base.arrays[: len(base.Y.leaves)]
        return base.Y.vector(self.problem.backend, self.outputs, likes)

    def cotangent(self, base: Base, w: Vector, *, zeros: bool = False) -> MaybeArrays:
        """Returns the vector `w` of Y as arrays, one per output.

        Outputs that are detached have `None`, and so have those where `w` is zero, unless `zeros`
        is set: the engine is then spared the work. Outputs that are left out have the cotangent 0.
        """
        if base.omitted_of_Y is not None:
            w = np.where(base.omitted_of_Y, 0.0, w)
        Y, from_host = base.Y, self.problem.backend.arrays.from_host
        made: list[Array | None] = []
        for leaf, part, like, here in zip(
            Y.leaves, Y.slices, base.arrays, self.attached, strict=False
        ):
            own = w[part]
            if not here or not (zeros or own.any()):
                made.append(None)
                continue
            host = leaf.host(own) if leaf.complex else own.reshape(leaf.host_shape)
            made.append(from_host(host, like))
        return tuple(made)

    def row(self, base: Base, w: Vector, *, zeros: bool = False) -> Vector:
        """Returns `J* w` as a vector of X. Absent gradients are zeros.

        Where `w` is zero the engine is spared the work, unless `zeros` is set. A rule that raises
        for absent cotangents is given zeros in their places from then on. Without that a check
        ended in what the rule raises, which the check of undefined ones is there to tell.
        """
        zeros = zeros or self.refused is not None
        handed = [self.cotangent(base, w, zeros=zeros)]
        absent = [array is None for array in handed[0]]
        if all(absent) and not zeros:
            return np.zeros(self.problem.X.size)
        if any(absent) and not zeros and self.problem.backend.undefined_cotangents:
            found = value_or_error(partial(self.pull, handed.pop()))
            if not isinstance(found, Exception):
                return found[0]
            self.refused = tuple([k for k, one in enumerate(absent) if one]), found
            handed.append(self.cotangent(base, w, zeros=True))
        del w  # it may be large, and nobody else's
        return self.pull(handed.pop())[0]

    def blocks(
        self,
        base: Base,
        cotangents: Iterable[Vector],
        rows: int,
        *,
        whole: bool = False,
    ) -> Iterator[tuple[slice, Vector]]:
        """Yields `J* w` for all cotangents in blocks of columns, which together are all of X.

        Args:
            base: f at x.
            cotangents: Vectors of Y.
            rows: How many cotangents there are.
            whole: Whether all columns are to be in one block, however large.

        Yields:
            The columns as a slice of the coordinates of X, and an array of shape `(rows, width)`.
        """
        n = self.problem.X.size
        width = max(1, n if whole else min(n, limits().block_bytes // (8 * max(1, rows))))
        starts = range(0, max(n, 1), width)
        ws = cotangents if len(starts) == 1 else list(cotangents)
        for start in starts:
            block = slice(start, min(n, start + width))
            table = np.empty((rows, block.stop - block.start))
            for i, w in enumerate(ws):
                table[i] = self.row(base, w)[block]
            yield block, table


def _with_constants(
    function: FlatFunction, constants: MaybeArrays, only: Sequence[int], some: Arrays
) -> Arrays:
    """Returns what `function` makes of `constants` with `some` in their places `only`."""
    x = dict(enumerate(constants)) | dict(zip(only, some, strict=True))
    return function(tuple(x.values()))


def _spread_out(pullback: Pullback, count: int, only: Sequence[int], w: MaybeArrays) -> MaybeArrays:
    """Returns gradients for `count` leaves, of which all but those in the places `only` are
    absent.
    """
    gradients: list[Array | None] = [None] * count
    for j, gradient in zip(only, pullback(w), strict=True):
        gradients[j] = gradient
    return tuple(gradients)


class Forward:
    """Forward mode at a point: `v -> J v` on vectors, with every jvp counted."""

    def __init__(self, problem: Problem, at: Vector | None = None) -> None:
        """Evaluates nothing yet. Every jvp evaluates f, at x or at the point `at` of X."""
        self.problem = problem
        self.at = at

    def push(self, v: MaybeArrays, x: Arrays | None = None) -> tuple[Arrays, MaybeArrays]:
        """Returns what the engine's jvp makes of the tangents `v`: the outputs and their tangents.

        `x`: the arrays at the point, where they are made already.
        """
        problem = self.problem
        problem.counts.jvps += 1
        problem.counts.purpose = Purpose.FORWARD
        x = problem.point(self.at) if x is None else x
        with running(Source.DERIVATIVE):
            return problem.backend.jvp(problem.function, x, v)

    def tangent(self, v: Vector, only: Collection[int] | None = None) -> MaybeArrays:
        """Returns the vector `v` of X as arrays, one per leaf.

        With `only`, the indices of some leaves, the tangents of all others are `None`, that is
        undefined.
        """
        problem = self.problem
        arrays = problem.X.arrays(problem.backend, v, problem.x)
        return tuple(array if only is None or j in only else None for j, array in enumerate(arrays))

    def column(
        self, base: Base, v: Vector, only: Collection[int] | None = None
    ) -> tuple[Vector, Vector]:
        """Returns `(f(x), J v)` as vectors of Y. Absent tangents are zeros, and so are those of
        outputs that are left out. With `only`, see `tangent`.
        """
        y, jv = self.push(self.tangent(v, only))
        return self.vector(base, y), self.image(base, jv)

    def image(self, base: Base, jv: MaybeArrays) -> Vector:
        """Returns tangents of outputs as a vector of Y, with zeros where outputs are left out."""
        tangents, omitted = self.vector(base, jv), base.omitted_of_Y
        return tangents if omitted is None else np.where(omitted, 0.0, tangents)

    def vector(self, base: Base, y: MaybeArrays) -> Vector:
        """Returns outputs or their tangents as a vector of Y. Absent ones are zeros."""
        return base.Y.vector(self.problem.backend, y, base.arrays[: len(base.Y.leaves)])
