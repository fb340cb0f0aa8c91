"""A kink at x: the derivative is judged at points nearby, where the function is smooth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np

from adjudge.check.one_problem import Judgement, judge
from adjudge.check.options import Settings
from adjudge.constants import (
    COARSE_EPS,
    FULL_MODE,
    KINK_REACH,
    KINK_REACH_REDUCTION,
    NARROW_KINK_REACH,
    POINTS_BESIDE_KINK,
)
from adjudge.errors import attempt
from adjudge.findings import Disagreement, Finding, Nearby, Status, Verdict
from adjudge.floats import Vector, scale
from adjudge.jacobian import least_work, mode_verdict
from adjudge.problem import Base, Problem, Stream, generator, observe, random_entries

Judge: TypeAlias = Callable[[Base, Settings, Callable[[], str]], Judgement]
"""`judge` or `judge_differences`."""


def judge_here_or_nearby(
    base: Base, settings: Settings, provenance: Callable[[], str], judge: Judge = judge
) -> Judgement:
    """`judge` at x; where a kink or a jump leaves that open, again at two points nearby.

    The points lie on opposite sides of x in every coordinate. A derivative that is wrong there
    fails. One that is right there, and lies between the one-sided slopes at x, passes with a
    note. At a jump no value is right, and the question stays open.
    """
    problem = base.problem
    outcome = judge(base, settings, provenance)
    open_ = {f.mode for f in outcome.findings if f.status is Status.NONSMOOTH and not f.note}
    needed = least_work(problem.modes_taken, settings.letters)
    room = problem.counts.allows(needed)
    if not open_ or outcome.verdict is Verdict.FAIL or not room:
        return outcome
    closer = replace(
        settings,
        letters="".join(c for c in settings.letters if c + problem.modes_taken in open_)
        or settings.letters,
        full=settings.full and problem.X.size + base.Y.size <= FULL_MODE,
        check_undefined_grad=False,
        check_batched_grad=False,
        check_batched_forward_grad=False,
        thorough=False,
    )
    reach = _reach(base)
    judged: list[Judgement] = []
    for number, there in enumerate(_points(base, settings.seed, reach)):
        seed = settings.seed + 101 + number
        if not problem.counts.allows(needed):
            break
        judged.append(judge(there, replace(closer, seed=seed), provenance))
        if judged[-1].verdict is Verdict.FAIL or len(judged) == POINTS_BESIDE_KINK:
            break
    _combined(outcome, judged, open_, reach)
    return outcome


def _reach(base: Base) -> float:
    """Returns the distance of the points beside x, as a part of the scale of each input."""
    narrow = any(leaf.eps > COARSE_EPS for leaf in base.problem.X.leaves)
    return NARROW_KINK_REACH if narrow else KINK_REACH


def _points(base: Base, seed: int, reach: float) -> Iterator[Base]:
    """The function at points nearby at which it is finite wherever it is finite at x."""
    problem, random = base.problem, generator(seed, Stream.BESIDE_KINK)
    X = problem.X
    leaves = problem.primal_inputs or len(X.leaves)  # of a derivative its cotangents stay
    one, two = np.zeros(X.size), np.zeros(X.size)
    for here in X.slices[:leaves]:
        sides = random_entries(random, here.stop - here.start)
        lengths = reach * scale(problem.origin[here])
        one[here] = lengths * sides
        two[here] = -lengths * np.sign(sides) * np.abs(random_entries(random, sides.size))
    moves = [one, two, np.abs(one), -np.abs(two)]
    for move in (*moves, *(KINK_REACH_REDUCTION * move for move in moves)):
        there = _moved(problem, move)
        if there is None:
            continue
        at_it = attempt(partial(observe, there))
        if at_it is not None and np.all(np.isfinite(at_it.values) | ~np.isfinite(base.values)):
            yield at_it


def _moved(problem: Problem, move: Vector) -> Problem | None:
    x = problem.point(problem.clipped(problem.origin + move))
    origin = problem.X.vector(problem.backend, x, problem.x)
    if np.array_equal(origin, problem.origin, equal_nan=True):
        return None
    return replace(problem, x=x, origin=origin)


def _combined(outcome: Judgement, judged: list[Judgement], modes: set[str], reach: float) -> None:
    """What the judgements nearby make of the findings at x."""
    for there in judged:
        if there.verdict is Verdict.FAIL:
            outcome.findings += [
                replace(f, moved=reach) for f in there.findings if f.verdict is Verdict.FAIL
            ]
            outcome.tallies += there.tallies
            outcome.modes |= {m: v for m, v in there.modes.items() if v is Verdict.FAIL}
            return
    right = sum(there.verdict is Verdict.PASS for there in judged)
    near = Nearby(len(judged), right, reach)
    for tally in outcome.tallies:
        if tally.mode not in modes:
            continue
        settled = right == POINTS_BESIDE_KINK and tally.mode not in outcome.undecidable
        for k, finding in enumerate(outcome.findings):
            if finding.mode == tally.mode and finding.status is Status.NONSMOOTH:
                outcome.findings[k] = _noted(finding, near, settled=settled)
        if settled:
            tally.kinks = 0
            outcome.modes[tally.mode] = mode_verdict(tally, outcome.findings)


def _noted(finding: Finding, near: Nearby, *, settled: bool) -> Finding:
    """The finding of a kink at x, with what was found nearby: a note where that settles it."""
    assert isinstance(finding.detail, Disagreement)
    finding = replace(finding, detail=replace(finding.detail, nearby=near))
    return replace(finding, open=False, note=True, remedy=None) if settled else finding
