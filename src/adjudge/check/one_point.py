"""A check at one point, from the options to the report."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from adjudge.check.double_precision import (
    Composition,
    double_precision_of,
    judge_in_double,
    note_of,
    refusal,
)
from adjudge.check.isolation import noticed, surroundings
from adjudge.check.mode_matrix import (
    Matrix,
    Way,
    joined,
    judge_composition,
    shares,
    ways_of,
)
from adjudge.check.options import Options, problem_of, requested_modes, settings_of
from adjudge.check.summary import provenance_of, report_of
from adjudge.problem import Problem, observe, over_reverse
from adjudge.report import Report


def at_one_point(f: Callable[..., Any], inputs: Any, options: Options) -> Report:
    """The report on all compositions of modes that `options` ask for; `points` are left aside."""
    named = requested_modes(options.get("order"), options.get("modes"))
    settings = settings_of(options)
    problem = problem_of(f, inputs, options)
    double = double_precision_of(problem, settings)
    modes = named or list(settings.letters)
    matrix = Matrix(problem, settings, modes, double, reports_exceptions=bool(named))
    with surroundings(problem, highest=settings.highest_precision) as seen:
        matrix.fill(_other_ways(f, inputs, problem, options))
    outcomes = matrix.outcomes
    outcomes[0].findings += noticed(problem, seen, outcomes)
    outcomes[-1].findings += refusal(double, settings)
    rows = matrix.rows if named else {}
    return report_of(f, problem, settings, outcomes, note_of(problem, double), rows)


def _other_ways(
    f: Callable[..., Any], inputs: Any, problem: Problem, options: Options
) -> list[Way]:
    """Beside the engine's usual way: all the others where an order is given, and compiled."""
    ordered, compile = options.get("order") is not None, options.get("compile")
    ways = ways_of(problem) if ordered else []
    if compile or (compile is None and ordered and problem.backend.usually_compiled):
        compiled = problem_of(problem.backend.compile(f), inputs, options, problem.counts)
        ways.append(Way(problem.backend.compiled_way, compiled, bool(compile)))
    return ways


def of_second_order(
    f: Callable[..., Any],
    inputs: Any,
    options: Options,
    grad_outputs: Any = None,
    *,
    strided: bool = False,
) -> Report:
    """The report on the vjp of `f` as a function `(x, w) -> J*(x) w`, and on that vjp itself.

    `check_backward_ad` and `check_forward_ad` say in which modes it is differentiated. It is taken
    at the cotangents `grad_outputs`; random ones are not contiguous if `strided`.
    """
    settings = settings_of(options, second=True)
    problem = problem_of(f, inputs, options)
    double = double_precision_of(problem, settings)
    derive = partial(over_reverse, given=grad_outputs, seed=settings.seed, strided=strided)
    provenance = str(provenance_of(problem, settings, False))
    with surroundings(problem, highest=settings.highest_precision) as seen:
        next(shares(problem, [("R", settings)]))
        found = judge_composition(Composition(problem, "R", derive, double, provenance), settings)
        outcome = found.outcome
        if found.base is None:  # then the first derivative can be judged at least
            first = Composition(problem, "", lambda same: same, double, provenance)
            alone = judge_in_double(first, observe(problem), settings)
            outcome = joined([alone, outcome])
    outcome.findings += noticed(problem, seen, [outcome])
    outcome.findings += refusal(double, settings)
    return report_of(f, problem, settings, [outcome], note_of(problem, double))
