"""Estimators: what gives `J v` with an error bar, and tries harder when it is asked to.

There are two. `Differences` takes values of f; `ByReference` asks the reference that the caller
gave, whose answer no effort makes better. A new source of derivatives is one class more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import (
    EXACT_GRADIENT_WORK,
    KEPT_REPLAYS,
    LIKELY_UNITS,
    LONG_REPLAY_WORK,
    UNASKED_EXACT_WORK,
    UNASKED_GRADIENT_WORK,
    UNSATURATED,
)
from adjudge.engine import Program, comparable, unseen
from adjudge.errors import InputError, NotSupportedError, Source, attempt, running
from adjudge.estimate.directional import (
    Column,
    not_movable,
    steps_around,
    two_evaluations,
    with_defects,
    with_jumps,
    with_ladder,
    with_longer_step,
    with_odd_powers,
    with_second_ladder,
    with_shorter_steps,
    with_silent_kinks,
    with_steps,
    with_three_steps,
)
from adjudge.estimate.exact import Exact, Outputs, flint_is_installed, work_of, work_of_gradient
from adjudge.estimate.noise import with_measured_noise
from adjudge.estimate.reference import Direction, Reference, Referenced, bind, point_beside
from adjudge.estimate.replay import ITERATED, STEPS, Roundings
from adjudge.estimate.stencils import Estimate, central_difference
from adjudge.floats import Vector
from adjudge.problem import (
    Base,
    Problem,
    Space,
    Tangent,
    at_once,
    attached_alone,
)


class Effort(Enum):
    """An estimator tries this hard. Each effort builds on another one, which is made first."""

    TWO_EVALUATIONS = auto()
    """A central difference."""
    LONGER_STEP = auto()
    """A second central difference at a longer step, and the extrapolation of both."""
    THREE_STEPS = auto()
    """Two central differences more, at steps of their own, all three of which have to agree."""
    LADDER = auto()
    """A Richardson ladder of up to sixteen evaluations, whose error bar is measured."""
    SHORTER_STEPS = auto()
    """Ten evaluations more on that ladder, at shorter steps."""
    SECOND_LADDER = auto()
    """A second ladder, whose steps lie between those of the first."""
    MEASURED_NOISE = auto()
    """Both ladders with the noise of f as it was measured: up to forty evaluations more."""
    ODD_POWERS = auto()
    """The samples of all ladders, extrapolated as they are where the second derivative of f jumps
    at x. Takes no evaluation."""
    LONG_STEPS = auto()
    """A ladder of long steps, which show a slope that short ones leave in the rounding of f."""
    JUMPS = auto()
    """Six evaluations beside x, where the error bar is wide: a jump stays however short the
    step."""
    SILENT_KINKS = auto()
    """Whether f bends at x, though its slopes have the mean that they should: nothing where it does
    not bend, else two evaluations."""
    DEFECTS = auto()
    """Whether slopes along this tangent and others add up, at one step: up to fourteen
    evaluations."""
    LASTING_DEFECTS = auto()
    """The same at three steps, of which only what lasts counts: neither noise nor curvature does.
    Three times as many evaluations."""


@dataclass(frozen=True)
class Estimator(ABC):
    """Estimates the derivative of a problem along tangents, without any automatic derivative."""

    problem: Problem
    """The function, at the point where it is differentiated."""
    base: Base
    """The outputs of f at x, with the magnitudes that their rounding is relative to."""

    def along(
        self,
        v: Tangent,
        effort: Effort = Effort.TWO_EVALUATIONS,
        found: Column | None = None,
        doubted: NDArray[np.bool_] | None = None,
        towards: Vector | None = None,
    ) -> Column:
        """Returns the estimate of `J v`.

        Args:
            v: The tangent.
            effort: How hard to try. Where that cannot add anything (no room within the bounds, say,
                or f is not defined so far off), the result is `found` itself.
            found: What a smaller effort gave along the same tangent. Without it the efforts that
                this one builds on are made first.
            doubted: The outputs in doubt, which choose the steps at which noise is measured, and
                whose slopes are added up; by default all of them.
            towards: What a claimed derivative says that these outputs move along: slopes are added
                up also beside a tangent with the signs of it, and beside the opposite one.

        """
        if effort is Effort.TWO_EVALUATIONS:
            return found or self._first(v)
        if found is None:
            found = self.along(v, _BEFORE.get(effort, Effort.TWO_EVALUATIONS), doubted=doubted)
        return self._more(effort, found, doubted, towards)

    def begin(self, tangents: Iterable[Tangent]) -> None:  # noqa: B027 most have nothing to begin
        """Begins the estimates along these tangents that cost least, where an executor is to make
        evaluations at once.
        """

    @abstractmethod
    def _first(self, v: Tangent) -> Column:
        """Returns the estimate that costs least."""

    def _more(
        self,
        effort: Effort,
        found: Column,
        doubted: NDArray[np.bool_] | None,
        towards: Vector | None,
    ) -> Column:
        """Returns what this effort makes of the one that it builds on."""
        return found

    def at(self, point: Vector) -> Self:
        """Returns the same estimator at another point of X. The magnitudes stay those at x."""
        moved = replace(self.problem, origin=point, x=self.problem.point(point))
        return replace(self, problem=moved)

    @property
    def replays(self) -> int:
        """How many operations on numbers are replayed for a column."""
        return 0

    @property
    def iterates(self) -> bool:
        """Whether the reference is known to be of a program that iterates inside of an operation;
        see `ByReference.iterates`.
        """
        return False

    def over(self, base: Base) -> Self:
        """Returns the same estimator with other magnitudes of the outputs."""
        return replace(self, base=base)

    def rounded(self, eps: float, units: float = LIKELY_UNITS) -> Estimator | None:
        """Returns what estimates with error bars of what rounding can do to a derivative with this
        spacing at 1, by so many units; `None` where that is not known.
        """
        return None

    def in_few_digits(
        self, v: Tangent, weights: Sequence[Vector] | None, eps: float
    ) -> Vector | None:
        """Returns the derivative along `v` as a plain computation with this spacing at 1 has it: a
        number for each output, or for each of these cotangents, whose vjps are taken. `None` where
        that is not known.
        """
        return None

    def gradient(self, w: Vector, rounding: float = 0.0) -> tuple[Vector, Vector] | None:
        """Returns the gradient of `w · f` and how far it may be off, with a spacing at 1 as
        `rounding` by roundings of the program; `None` where that is not known, or much work.
        """
        return None

    def again(self, found: Column) -> Column:
        """Returns an estimate that was made with other magnitudes, or of more outputs, as one with
        those at hand. It takes evaluations only where the values behind it were not kept.
        """
        return found


@dataclass(frozen=True)
class Differences(Estimator):
    """Estimates by differences of values of f."""

    def _first(self, v: Tangent) -> Column:
        if self.problem.counts.ahead is not None:
            self.begin([v])
        return two_evaluations(self.problem, self.base, v)

    def begin(self, tangents: Iterable[Tangent]) -> None:
        problem, base = self.problem, self.base
        at_once(problem, base, lambda: [two_evaluations(problem, base, v) for v in tangents])

    def again(self, found: Column) -> Column:
        base, sample = self.base, found.sample
        if sample is None:
            return self._first(found.tangent)
        if base.chosen is not None:
            plus, minus = sample.plus[base.chosen], sample.minus[base.chosen]
            sample = replace(sample, plus=plus, minus=minus)
        sample, noise = replace(sample, modulus=base.magnitude), np.asarray(base.noise)
        if found.noise is not None and base.chosen is None:
            # What was measured stays; an output by itself seems to have less.
            noise = np.asarray(np.fmax(found.noise, noise))
        estimate = central_difference(sample, base.coarsest_eps, noise)
        return replace(found, estimate=estimate, sample=sample)

    def _more(
        self,
        effort: Effort,
        found: Column,
        doubted: NDArray[np.bool_] | None,
        towards: Vector | None,
    ) -> Column:
        problem, base = self.problem, self.base
        which = np.ones(base.whole.size, bool) if doubted is None else doubted
        # Where noise is measured, and whether f bends, depends on values of f.
        by_values = effort in (Effort.MEASURED_NOISE, Effort.SILENT_KINKS)
        if problem.counts.ahead is not None and not by_values:
            at_once(problem, base, partial(self._more, effort, found, doubted, towards))
        if effort is Effort.LONGER_STEP:
            return with_longer_step(problem, base, found) or found
        if effort is Effort.THREE_STEPS:
            return with_three_steps(problem, base, found) or found
        if effort is Effort.LADDER:
            return with_ladder(problem, base, found)
        if effort is Effort.SHORTER_STEPS:
            return with_shorter_steps(problem, base, found)
        if effort is Effort.SECOND_LADDER:
            return with_second_ladder(problem, base, found)
        if effort is Effort.MEASURED_NOISE:
            return with_measured_noise(problem, base, found, which)
        if effort is Effort.LONG_STEPS:
            steps = steps_around(problem, base, found, far=True)
            return with_steps(problem, base, found, steps) or found
        if effort is Effort.ODD_POWERS:
            return with_odd_powers(base, found, which)
        if effort is Effort.JUMPS:
            take = partial(with_jumps, problem, base, found, doubted)
        elif effort is Effort.SILENT_KINKS:
            take = partial(with_silent_kinks, problem, base, found)
        else:
            lasting = effort is Effort.LASTING_DEFECTS
            take = partial(with_defects, problem, base, found, which, towards, lasting=lasting)
        # What is known stays where f refuses the points that these ask for.
        return attempt(take) or found


_BEFORE = {
    Effort.SHORTER_STEPS: Effort.LADDER,
    Effort.SECOND_LADDER: Effort.LADDER,
    Effort.MEASURED_NOISE: Effort.SECOND_LADDER,
    Effort.ODD_POWERS: Effort.LADDER,
    Effort.JUMPS: Effort.LADDER,
}
"""The effort that another one builds on, where that is not two evaluations."""


@dataclass(frozen=True)
class ByReference(Estimator):
    """Asks the reference that the caller gave in place of differences."""

    reference: Referenced = field(kw_only=True)
    replayed: dict[tuple[Any, ...], tuple[Space, Estimate]] = field(
        default_factory=dict, repr=False
    )
    """The latest exact replays, the oldest first: entries of one column are judged one by one, at
    x and at the same points beside it."""

    def rounded(self, eps: float, units: float = LIKELY_UNITS) -> ByReference | None:
        exact = self.reference.reference
        if not isinstance(exact, Exact):
            return None
        exact = replace(exact, rounding=Roundings(eps, units))
        return replace(self, reference=replace(self.reference, reference=exact))

    def in_few_digits(
        self, v: Tangent, weights: Sequence[Vector] | None, eps: float
    ) -> Vector | None:
        exact, Y = self.reference.reference, self.base.whole
        if not isinstance(exact, Exact) or self.problem.modes_taken:
            return None
        exact = replace(exact, bits=1 - round(np.log2(eps)))
        link, x = self.reference.link(Y), self.problem.origin
        if weights is None:
            return exact.tangent(link, x, v.vector)[: self.base.Y.size]
        return np.array([exact.gradient(link, x, self._whole(w))[0] @ v.vector for w in weights])

    def gradient(self, w: Vector, rounding: float = 0.0) -> tuple[Vector, Vector] | None:
        asked = self.rounded(rounding) if rounding else self
        exact = None if asked is None else asked.reference.reference
        known = isinstance(exact, Exact) and not self.problem.modes_taken
        if not known or self.gradient_work > EXACT_GRADIENT_WORK:
            return None
        assert isinstance(exact, Exact)
        return exact.gradient(
            self.reference.link(self.base.whole), self.problem.origin, self._whole(w)
        )

    def _whole(self, w: Vector) -> Vector:
        """Returns a cotangent of the outputs that have one as one of all outputs."""
        return np.append(w, np.zeros(self.base.whole.size - w.size))

    @property
    def replays(self) -> int:
        if not isinstance(self.reference.reference, Exact):
            return 0
        of_gradient = self.problem.modes_taken[:1] == "R"
        return self.gradient_work if of_gradient else work_of(self._program)

    @property
    def gradient_work(self) -> int:
        """How many operations on numbers a gradient of what is replayed takes."""
        return work_of_gradient(self._program)

    @property
    def _program(self) -> Program:
        return self.reference.primal.program(self.problem.origin[: self.reference.X.size])

    @property
    def compares(self) -> bool:
        """Whether the program that is replayed compares or rounds numbers. Nothing is proved to be
        wrong then: the derivative of a bisection, as it ran, is not that of the root in it.
        """
        return self._does_one_of(STEPS)

    @property
    def iterates(self) -> bool:
        """Whether the program that is replayed, if there is one, takes eigenvalues or singular
        values. An engine does so by iterations, which it ends early.
        """
        return isinstance(self.reference.reference, Exact) and self._does_one_of(ITERATED)

    def _does_one_of(self, names: Container[str]) -> bool:
        return any(one.name in names for one in self._program.operations)

    def _first(self, v: Tangent) -> Column:
        problem = self.problem
        unknown = not_movable(problem, self.base, v)
        if unknown is not None:
            return unknown
        ahead, behind = (problem.longest_step(sign * v.vector, both=False) for sign in (1.0, -1.0))
        estimate = self._along(Direction(v.vector, v.length, ahead, behind))
        return Column(v, v.vector, estimate, 0.0, 0.0, from_reference=True)

    def _along(self, v: Direction) -> Estimate:
        """Returns what the reference says, or said lately where it replays f exactly."""
        problem, exact = self.problem, self.reference.reference
        Y, chosen = (self.base.of or self.base).whole, self.base.chosen
        if not isinstance(exact, Exact):
            return self.reference.along(Y, problem.origin, v)
        loose = exact.rounding and (exact.rounding.eps, exact.rounding.units)
        drawn = problem.counts.before_evaluation
        key = problem.origin.tobytes(), v.vector.tobytes(), v.length, loose, drawn
        space, estimate = self.replayed.get(key, (None, None))
        if estimate is None or space is not Y:
            problem.counts.replayed += self.replays
            estimate = self.reference.along(Y, problem.origin, v)
            while len(self.replayed) >= KEPT_REPLAYS:
                del self.replayed[next(iter(self.replayed))]
            self.replayed[key] = Y, estimate
        return estimate if chosen is None else estimate.of(chosen)


def by_reference(problem: Problem, base: Base, reference: Reference) -> ByReference:
    """Returns the estimator that asks a reference. Raises `NotSupportedError` where that has no
    derivative of this order, or none at x.
    """
    bound = bind(reference, problem)
    bound.require(problem.origin)
    return ByReference(problem, base, reference=bound)


def by_replay(problem: Problem, base: Base, work: int = UNASKED_EXACT_WORK) -> ByReference | None:
    """Returns the estimator that replays f exactly, as far as f can be replayed and that takes no
    more than so much `work`; else `None`. Records what f does at x.
    """
    # A recording holds every value of the program, and one of large arrays would be dropped anyway.
    large = problem.X.size + base.Y.size > work // 10
    if (
        large
        or not problem.backend.recorded_unasked
        or problem.constraints
        or base.chosen is not None
        or not flint_is_installed()
    ):
        return None
    found = attempt(lambda: by_reference(problem, base, Exact(work)), NotSupportedError)
    most = UNASKED_GRADIENT_WORK * work / UNASKED_EXACT_WORK
    return found if found is not None and found.replays <= most else None


def vjp_by_replay(base: Base, w: Vector, rounding: float) -> Outputs | None:
    """Returns what the rules of reverse mode make of the cotangent `w` in exact arithmetic, a
    number for each coordinate of x, where they are rounded by such a spacing at 1; `None` where the
    rules cannot be replayed.
    """
    problem, reverse = base.problem, base.reverse
    made = [one for one in reverse.cotangent(base, w, zeros=True) if one is not None]
    function = attached_alone(problem.function, reverse.attached)

    def record(x: Vector) -> Program:
        return problem.backend.vjp_program(function, problem.point(x), tuple(made))

    return _replayed_rules(base, record, rounding) if made else None


def jvp_by_replay(base: Base, v: Tangent, rounding: float) -> Outputs | None:
    """Returns the same of forward mode along a tangent, a number for each coordinate of the
    outputs.
    """
    problem = base.problem
    made = problem.X.arrays(problem.backend, v.vector, problem.x)

    def record(x: Vector) -> Program:
        return problem.backend.jvp_program(problem.function, problem.point(x), made)

    return _replayed_rules(base, record, rounding)


def value_by_replay(base: Base, rounding: float) -> Outputs | None:
    """Returns the same of what is differentiated, where that is a derivative itself."""
    return _replayed_rules(base, base.problem.program, rounding)


def _replayed_rules(
    base: Base, record: Callable[[Vector], Program], rounding: float
) -> Outputs | None:
    """Returns what rules put out that `record` records at a point."""
    problem = base.problem
    # A recording holds every value of the program.
    large = problem.X.size + base.Y.size > LONG_REPLAY_WORK // 3
    if large or not flint_is_installed():
        return None

    def recorded(x: Vector) -> Program | None:
        with running(Source.DERIVATIVE):
            # Our own checks of what a rule returns do not know arrays that are recorded.
            return attempt(partial(record, x), NotSupportedError, InputError)

    program = recorded(problem.origin)
    outputs = None if program is None else Exact(LONG_REPLAY_WORK).outputs(program, rounding)
    if program is None or outputs is None:
        return None

    def seen() -> bool:
        """Returns whether the rules take the same constants beside x, and far from it, where what
        they compute unseen does not saturate.
        """
        if problem.backend.usually_compiled:
            return True  # what is traced can hand out no numbers
        x = problem.origin
        points = point_beside(problem, x), problem.clipped(UNSATURATED * x)
        others = map(recorded, points)
        return all(
            other is not None and comparable(program, other) and unseen(program, other) is None
            for other in others
        )

    return outputs._replace(seen=seen)
