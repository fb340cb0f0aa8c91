"""What a check may leave unchecked: what f closes over, inputs that are not marked, and mistakes
that do not show at the numbers given. It is checked as well where that is asked for, or named.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from adjudge.check.one_problem import Judgement
from adjudge.check.options import Options, problem_of
from adjudge.check.surroundings import flat_inputs, surroundings
from adjudge.engine import ByHand
from adjudge.findings import (
    ClosesOver,
    Constants,
    Detail,
    Finding,
    Hides,
    OpaqueOutputs,
    Remedy,
    RulesLeftOut,
    SecondLeftOut,
    SpecialNumbers,
    Status,
    Unmarked,
    Verdict,
)
from adjudge.floats import Vector
from adjudge.problem import (
    Leaf,
    Problem,
    captured_by,
    captured_inputs,
    graded_numbers,
    names_of,
    with_captured,
)
from adjudge.report import Report

Extend: TypeAlias = Callable[[Problem], Problem]
"""Adds what f closes over to the inputs of a problem."""


def with_all_inputs(
    check: Callable[[Problem, Extend], Report],
    f: Callable[..., Any],
    problem: Problem,
    options: Options,
) -> Report:
    """Returns the report of `check` on the problem, to whose inputs is added what f closes over:
    all of that with `captured=True`, and by default what the caller also passes as an input. Added
    are also numbers, which count as constants, where a vjp by hand gives a gradient for them.

    What f closes over is known after a first vjp. By default that is the vjp of the check itself,
    which is made once more in the rare case that something is added.
    """
    wish, extend, calls = options.get("captured"), _as_it_is, problem.calls
    by_hand = isinstance(f, ByHand) and options.get("wrt") is None
    if by_hand and calls is not None and calls.arguments.numbers:
        with surroundings(problem, f, highest=options.get("highest_precision", False)):
            numbers = graded_numbers(problem)
        if numbers:
            args, kwargs = calls.arguments.with_arrays(numbers)
            problem = problem_of(f, args, {**options, "kwargs": kwargs})
    if wish:
        with surroundings(problem, f, highest=options.get("highest_precision", False)):
            chosen = captured_by(problem)
    else:
        report = check(problem, extend)
        if report.verdict is Verdict.FAIL:
            return report
        asked = wish is None and options.get("max_evaluations") is None
        chosen = captured_inputs(problem) if asked else ()
    if chosen:
        names = names_of(problem, f, chosen)
        extend = partial(with_captured, captured=chosen, names=names)
        problem = extend(problem)
    if chosen or wish:
        report = check(problem, extend)
    notes = list(unchecked(f, problem, report, options))
    return replace(report, findings=(*report.findings, *notes)) if notes else report


def _as_it_is(problem: Problem) -> Problem:
    return problem


def unchecked(
    f: Callable[..., Any], problem: Problem, report: Report, options: Options
) -> Iterator[Finding]:
    """Yields notes on what has a derivative and is not checked, and, where the verdict is PASS, on
    inputs at whose numbers a class of mistakes does not show.
    """
    calls = problem.calls
    assert calls is not None  # the problem is of first order
    if calls.arguments.unmarked:
        yield _note(Unmarked(calls.arguments.unmarked), Remedy.NAME_INPUTS)
    if calls.opaque:
        yield _note(OpaqueOutputs(calls.opaque), Remedy.RETURN_CONTENTS)
    numbers = calls.arguments.numbers if problem.backend.differentiates_numbers else ()
    numbers = (*numbers, *(calls.dropped or ()))
    if numbers and options.get("wrt") is None:
        names = tuple(map(calls.arguments.tree.names.__getitem__, numbers))
        yield _note(Constants(names), Remedy.PASS_ARRAYS)
    if calls.ends is not None and calls.ends.captured and options.get("captured") is None:
        left = tuple(a for a in calls.ends.captured if all(a is not leaf for leaf in problem.x))
        if left:
            pairs = zip(problem.X.leaves, calls.ends.reached, strict=False)
            unreached = tuple(leaf.name for leaf, here in pairs if not here)
            yield _note(ClosesOver(names_of(problem, f, left), unreached), Remedy.CHECK_CAPTURED)
    if calls.ends is not None and calls.ends.forward_rules and {*report.modes} == {"R"}:
        yield _note(RulesLeftOut(calls.ends.forward_rules), Remedy.CHECK_FORWARD)
    second = f.second if isinstance(f, ByHand) else ()
    if second and all(len(mode) < 2 for mode in report.modes):
        yield _note(SecondLeftOut(second), Remedy.CHECK_SECOND)
    several = options.get("points") is not None
    if report.verdict is Verdict.PASS and not several and not problem.constraints:
        for hides, of in _special_numbers(problem).items():
            yield _note(SpecialNumbers(tuple(of), hides), Remedy.GIVE_OTHER_POINTS)


def _note(detail: Detail, remedy: Remedy) -> Finding:
    return Finding(Status.UNCHECKED, "", "", detail, remedy, note=True)


def with_flat_inputs(report: Report, problem: Problem, outcomes: Sequence[Judgement]) -> Report:
    """Returns the report, where it is a PASS with a note on inputs whose gradient is zero while
    that of others is not: a layer behind dead units, say, whose gradient may be wrong by any
    factor.
    """
    flat = flat_inputs(problem, outcomes) if report.verdict is Verdict.PASS else []
    if not flat:
        return report
    names = tuple([problem.X.leaves[k].name for k in flat])
    note = _note(SpecialNumbers(names, Hides.FLAT), Remedy.GIVE_OTHER_POINTS)
    return replace(report, findings=(*report.findings, note))


def _special_numbers(problem: Problem) -> dict[Hides, list[str]]:
    """Returns the names of inputs at whose numbers a class of mistakes does not show, by class."""
    found: dict[Hides, list[str]] = {}
    alike: dict[tuple[object, ...], list[tuple[str, Vector]]] = {}
    several = len(problem.X.leaves) > 1
    for leaf, part in zip(problem.X.leaves, problem.X.slices, strict=True):
        numbers = problem.origin[part]
        hides = _hidden_at(leaf, numbers)
        if hides is not None:
            found.setdefault(hides, []).append(leaf.name)
        elif several and leaf.size:
            key = (leaf.info.shape, float(numbers[0]), float(numbers[-1]))
            alike.setdefault(key, []).append((leaf.name, numbers))
    for (name, numbers), *others in alike.values():
        same = [other for other, theirs in others if np.array_equal(numbers, theirs)]
        if same:
            found.setdefault(Hides.SAME, []).extend((name, *same))
    return found


def _hidden_at(leaf: Leaf, numbers: Vector) -> Hides | None:
    """Returns which mistakes do not show at these numbers of an input."""
    if not leaf.size:
        return None
    if not leaf.complex and leaf.size > 1 and numbers[0] != numbers[1]:  # as most are
        return Hides.SYMMETRIC if _is_symmetric(leaf, numbers) else None
    step = 1 + leaf.complex
    if not np.any(numbers):
        return Hides.ZEROS
    if leaf.complex and not np.any(numbers[1::2]):
        return Hides.REAL
    if leaf.entries > 1 and all(np.all(numbers[k::step] == numbers[k]) for k in range(step)):
        return Hides.ONES if numbers[0] == 1 and not (leaf.complex and numbers[1]) else Hides.EQUAL
    return None


def _is_symmetric(leaf: Leaf, numbers: Vector) -> bool:
    """Returns whether the numbers are those of symmetric matrices."""
    shape = leaf.info.shape
    if len(shape) < 2 or shape[-1] != shape[-2] or numbers.size != math.prod(shape):
        return False
    matrices = numbers.reshape(shape)
    return bool(np.array_equal(matrices, np.swapaxes(matrices, -1, -2)))
