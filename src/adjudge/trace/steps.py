"""`blame`: which steps of a function are judged, and which of those that are wrong are at fault."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, zip_longest
from math import isfinite
from operator import itemgetter
from typing import Any, Never, Unpack

from adjudge.check import (
    EngineOptions,
    Options,
    at_one_point,
    function_name,
    known_options,
    points_beside_kink,
    problem_of,
    requested_modes,
    require_kind,
    settings_of,
    surroundings,
)
from adjudge.constants import PAIRS_BESIDE_KINK, POINTS_BESIDE_KINK
from adjudge.engine import (
    INPUT,
    UNKNOWN,
    Array,
    ArrayInfo,
    Arrays,
    AutodiffBackend,
    ByHand,
    MaybeArrays,
    Operand,
    Ref,
    Trace,
)
from adjudge.errors import (
    AdjudgeError,
    Catching,
    InputError,
    Source,
    attempt,
    running,
    source_of,
)
from adjudge.findings import Fault, Status, Unjudged, Verdict
from adjudge.problem import Problem, observe
from adjudge.report import Report, which_rule
from adjudge.trace.alone import function_of, judged_alone, moving
from adjudge.trace.contributions import (
    DIRECTIONS,
    Direction,
    cancelling,
    changed_on_the_way,
    directions,
    handed_to,
    on_its_way,
)
from adjudge.trace.report import CUTS, BlameReport, Judged, dead_end, is_cut, set_on, uses

PASSED_ON = ("mode", "seed", "equal_nan", "in_double", "highest_precision", "max_evaluations")
"""The options that hold for the check of each step as well."""


def blame_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those of the options of a check that `blame` takes as well."""
    known = {*EngineOptions.__annotations__, "order", "modes"}
    return {name: value for name, value in options.items() if name in known}


def blame(
    f: Callable[..., Any],
    inputs: Any,
    *more: Never,
    order: int | None = None,
    modes: Sequence[str] | None = None,
    every: bool = False,
    samples: int = 3,
    **options: Unpack[EngineOptions],
) -> BlameReport:
    """Which rule on the way from the inputs of `f` to its outputs is wrong, and where it stands.

    `f` is checked as a whole, recorded as a program of steps, and its steps are judged by the same
    check at the values that they saw: custom rules, and those steps that add something to the error
    of the whole along random directions. Where contributions are not to be had, all steps are
    judged.

    Args:
        f, inputs: As for `examine`.
        order, modes: Which derivatives are judged, as for `examine`; by default reverse mode.
            Contributions tell nothing of other modes, for which all steps are judged.
        every: Whether every step is judged, in place of those that may be at fault.
        samples: How many of the steps that do the same with arrays of the same shapes are judged.
        options: See `adjudge.Options`: `kwargs`, `wrt`, `seed`, `mode` and others.

    Returns:
        The `BlameReport`, truthy only where the whole passes and no step is at fault.

    Raises: The errors of bad input, and what `f` itself raises.
    """
    known = known_options(blame, options, EngineOptions, more)
    require_kind("samples", samples, int)
    require_kind("every", every, bool)
    if samples < 1:
        raise InputError(f"samples={samples!r}", "give a positive number")
    seed, words = settings_of(known).seed, requested_modes(order, modes)
    chosen: Options = {**known, "seed": seed}
    if words is not None:
        chosen["modes"] = words
    with Catching() as raised:
        whole = at_one_point(f, inputs, chosen)
    if raised.error is not None:
        if source_of(raised.error) is not Source.DERIVATIVE:
            raise raised.error
        words = words or ["R"]  # what a derivative raises is part of the report then
        chosen |= {"modes": words, "thorough": False}
        whole = at_one_point(f, inputs, chosen)
    problem = problem_of(f, inputs, chosen)
    with surroundings(problem, f) as generators:
        with Catching(AdjudgeError) as refused, running(Source.FUNCTION):
            trace = problem.backend.trace(problem.function, problem.point())
        if refused.error is not None:
            reason = f"nothing was recorded: {str(refused.error).partition(chr(10))[0]}"
            return BlameReport(function_name(f), whole, [], [], 0, None, {}, note=reason)
        if isinstance(f, ByHand):  # the one step is the whole
            return _of_one_step(f, whole, trace)
        changed = None
        if whole.verdict is not Verdict.PASS:
            # before any step is run again, which overwrites what a rule keeps between calls
            changed = attempt(lambda: changed_on_the_way(problem.backend, trace, seed))
            generators.put_back()
        trace = replace(trace, cotangents=None)  # it keeps alive all that the engine saved
        found, wide = _found(problem, trace, seed, generators.put_back)
        of_steps = _of_steps(chosen, words)
        of_steps["thorough"] = False if raised.error is not None else None
        judge = _Judge(problem.backend, trace, wide, whole, found or [], of_steps, samples, problem)
        judge.run(every=every or found is None or (words or ["R"]) != ["R"] or judge.is_blind)
        report = judge.report(function_name(f), found)
        loop = next((one for one in report.at_fault if one.step.iterations), None)
        if loop is not None:
            opened = replace(loop, within=judge.opened(loop))
            rows = [opened if one is loop else one for one in report.judged]
            report = replace(report, judged=rows, work=judge.work)
        if report.between or report.outside:
            names = [leaf.name for leaf in problem.X.leaves]
            hooks = set_on(trace.hooks, trace.steps, changed or [])
            report = replace(report, changed=changed or [], hooks=hooks, inputs=names)
    return report


def with_faults(report: Report, f: Callable[..., Any], inputs: Any, options: Options) -> Report:
    """Returns the report of a check with what is at fault, where that can be found for no more than
    the work of the check itself.

    Nothing is looked for where no comparison failed at `inputs`, where a reference stands in place
    of differences, and in derivatives by hand, which are one step.
    """
    here = next(iter(report.points.values()), report)  # the inputs are the first of several points
    wanted = here.verdict is Verdict.FAIL and here.counts["failed"] and options.get("blame", True)
    if not wanted or here.silence or isinstance(f, ByHand) or options.get("reference") is not None:
        return report
    # Whatever goes wrong here has its report already, which must not be lost.
    found = attempt(lambda: _faults(here, f, inputs, options), Exception)
    if found is None:
        return report
    faults, unjudged = found
    return replace(report, faults=faults, unjudged=unjudged)


def _faults(
    report: Report, f: Callable[..., Any], inputs: Any, options: Options
) -> tuple[tuple[Fault, ...], Unjudged | None]:
    """Returns what is at fault in the lowest order that fails, the first one first, and what was
    not judged, since the budget ended.
    """
    wrong = _failing(report)
    words = [word for word in wrong if len(word) == min(map(len, wrong))]
    spent = _work_of(report)
    limit = options.get("max_evaluations")
    budget = spent if limit is None else min(spent, limit - spent)
    count = min(DIRECTIONS, int(budget - 1) // PER_DIRECTION)
    if not words:
        return (), None
    if count < 1:
        return (), Unjudged(max(budget, 0), ())
    seed = report.provenance.seed
    chosen: Options = {**options, "seed": seed, "executor": None}
    problem = problem_of(f, inputs, chosen)
    highest = options.get("highest_precision", False)
    with surroundings(problem, f, highest=highest) as generators:
        with running(Source.FUNCTION):
            trace = problem.backend.trace(problem.function, problem.point())
        trace = replace(trace, cotangents=None)  # it keeps alive all that the engine saved
        if len(trace.steps) < 2:
            return (), None
        found, wide = _found(problem, trace, seed, generators.put_back, count)
        of_steps = _of_steps(chosen, None if words == ["R"] else words)
        of_steps["thorough"] = False
        judge = _Judge(
            problem.backend, trace, wide, report, found or [], of_steps, 3, problem, budget
        )
        every = found is not None and ("R" not in words or judge.is_blind)
        judge.run(every=every, custom=found is None)
        judged = judge.judged()
        at_fault = any(one.at_fault for one in judged)
        ends = [] if at_fault else judge.dead_ends()
        changes: list[Fault] = []
        if found and judge.is_between and not at_fault and judge.work + WORK_OF_CHANGES <= budget:
            generators.put_back()
            changes = _changes(problem, seed)
        kinks: list[int] = []
        if not (at_fault or ends or judge.is_between):
            kinks = judge.at_kinks() if judge.work < budget else []
            ends = [] if kinks else judge.decisions()
    faults: dict[str, Fault] = {}
    for one in judged:
        # without contributions a cut that is meant looks like one that is not
        if one.at_fault and (found is not None or (one.step.custom and not one.cuts)):
            # the same with arrays of other shapes follows
            faults.setdefault(which_rule(one.fault) if one.cuts else one.name, one.fault)
        for lack in one.lacking:
            faults.setdefault(which_rule(lack), lack)
    for k in ends:
        end = dead_end(trace.steps[k])
        faults.setdefault(which_rule(end), end)
    for other in (*changes, *map(judge.fault_at_kink, kinks)):
        faults.setdefault(which_rule(other), other)
    left = tuple([judge.fault_of(k) for k in judge.left])
    return tuple(faults.values()), Unjudged(budget, left) if left else None


def _changes(problem: Problem, seed: int) -> list[Fault]:
    """Returns the hooks on values whose gradient changes by no rule, or else what made the last one
    of these values. The function is recorded once more, before any of its steps is run again.
    """
    with running(Source.FUNCTION):
        trace = problem.backend.trace(problem.function, problem.point())
    changed = changed_on_the_way(problem.backend, trace, seed)
    hooks = set_on(trace.hooks, trace.steps, changed)
    if hooks:
        named = {hook: trace.steps[hook.value.step] for hook in hooks if hook.value.step != INPUT}
        modules = (named[hook].module if hook in named else "" for hook in hooks)
        pairs = zip(hooks, modules, strict=True)
        return [
            Fault("a hook", hook.name, *hook.place, module, 1, 0, 0, cuts=False, changed=True)
            for hook, module in pairs
        ]
    for ref in changed:
        name, place, module = "", UNKNOWN, ""
        if ref.step == INPUT:
            name = problem.X.leaves[ref.number].name
        else:
            step = trace.steps[ref.step]
            name, place, module = f"the result of {step.name}", step.place, step.module
        users = tuple([step.name for step in trace.steps if uses(step, [ref])])
        return [Fault(name, "", *place, module, 1, 0, 0, cuts=False, changed=True, users=users)]
    return []


def _of_steps(options: Options, words: Sequence[str] | None) -> Options:
    """Returns the options for the check of a step."""
    of_steps: Any = {name: one for name, one in options.items() if name in PASSED_ON}
    if words is not None:
        # A rule of forward mode that is wrong itself is not taken for the derivative of another.
        first = ["R", *("F" for word in words if "F" in word)]
        of_steps["modes"] = list(dict.fromkeys([*first, *words]))
    return of_steps  # type: ignore[no-any-return]


def _work_of(report: Report) -> int:
    return sum(report.counts[one] for one in ("evaluations", "vjps", "jvps"))


def _found(
    problem: Problem,
    trace: Trace,
    seed: int,
    put_back: Callable[[], None],
    count: int = DIRECTIONS,
) -> tuple[list[Direction] | None, Trace | None]:
    """Returns the contributions of the steps, `None` where there are none to be had, and the
    program in double precision where they are those of it: where the function runs in it and does
    the same there.
    """
    if any(step.opaque for step in trace.steps):  # nothing moves behind it in a replay
        return None, None
    if problem.widened is not None:
        with problem.backend.environment.widening():
            found = attempt(lambda: _in_double(problem, trace, seed, put_back, count), AdjudgeError)
        if found is not None:
            return found
    return attempt(lambda: directions(problem, trace, seed, put_back, count), AdjudgeError), None


def _in_double(
    problem: Problem, trace: Trace, seed: int, put_back: Callable[[], None], count: int
) -> tuple[list[Direction], Trace] | None:
    assert problem.widened is not None
    wide = problem.widened("float64")
    put_back()
    with running(Source.FUNCTION):
        same = wide.backend.trace(wide.function, wide.point())
    if [step.name for step in same.steps] != [step.name for step in trace.steps]:
        return None
    found = directions(wide, same, seed, put_back, count)
    return found, replace(same, cotangents=None)  # which keep alive all that the engine saved


def _of_one_step(f: Callable[..., Any], whole: Report, trace: Trace) -> BlameReport:
    wrong = whole.verdict is Verdict.FAIL
    judged = Judged(trace.steps[0], [0], {0: whole}, wrong)
    return BlameReport(function_name(f), whole, [judged], trace.steps, 1, wrong or None, {})


@dataclass
class _Judge:
    """The steps of a program and what was found about them so far."""

    backend: AutodiffBackend
    trace: Trace
    wide: Trace | None
    """The program in double precision, for steps whose error a narrow dtype hides."""
    whole: Report
    found: Sequence[Direction]
    options: Options
    samples: int
    problem: Problem
    budget: float = math.inf
    """The work after which no further step is judged."""

    def __post_init__(self) -> None:
        """Nothing is judged yet."""
        self.reports: dict[int, Report] = {}
        self.opaque: dict[int, str] = {}
        self.groups: dict[Hashable, list[int]] = {}
        self.wrt: dict[int, list[int]] = {}
        """The operands by which a step is judged; none where no result has a derivative."""
        self.taken_inside = False
        """Whether rules were judged for a derivative that the function takes of its own."""
        self._on_their_way: dict[int, Verdict] = {}
        """What was found of steps whose operands move as they do with the inputs."""
        self._beside = 0
        """The work of asking whether the whole is right beside x."""
        self.left: list[int] = []
        """The steps whose turn had not come when the budget ended."""
        self.of_cotangents: set[int] = set()
        """The steps that are right alone, and wrong for the cotangents that they get."""
        self.of_constants: set[int] = set()
        """The custom rules whose derivative for what the function closes over was judged."""
        self._wrong_for_constants: set[int] = set()
        self._constant: dict[int, bool] = {}
        """The steps that compute from what the function closes over, and not from the inputs;
        whether any of that is marked for differentiation."""
        self._spent: dict[int, float] = {}
        """The work of judging each step, in calls of it."""
        self._sizes: list[int] = []
        """Each step reads and writes this many numbers."""
        arrays, recorded = self.backend.arrays, self.trace.recorded
        for k, step in enumerate(self.trace.steps):
            operands, results = recorded.operands(k), recorded.results(k)
            infos = tuple(map(arrays.info, operands))
            self._sizes.append(sum(1 + _size(one) for one in (*infos, *map(arrays.info, results))))
            if any(map(arrays.is_differentiable, results)):
                self.wrt[k] = sorted({*moving(self.backend, step, operands), *step.marked})
                if step.custom and not self.wrt[k]:
                    self.wrt[k] = list(step.closed_over)
            refs = [one for one in step.operands if isinstance(one, Ref)]
            if all(one.step in self._constant for one in refs):
                marked = any(self._constant[one.step] for one in refs)
                self._constant[k] = marked or bool(step.marked)
            if step.results and (step.opaque or self.wrt.get(k)):
                static = tuple(sorted(step.static.items()))
                # what two steps have in common that compute the same function
                # and of steps in which the derivative ends some may be meant
                end = step.place if self._ends(k) else None
                key = step.name, step.rule_place, static, infos, step.opaque, end
                self.groups.setdefault(key, []).append(k)

        self.meant: set[int] = set()
        """The steps in which the derivative ends, and without effect: what they add cancels."""
        ends = [k for k in range(len(self.trace.steps)) if self._ends(k) and self.stands_out(k)]
        self.meant = cancelling(self.found, ends)

    def _ends(self, k: int) -> bool:
        """Returns whether a step of the engine hands no gradient on."""
        parts = [part for direction in self.found if (part := direction.steps[k]) is not None]
        return bool(parts) and not self.trace.steps[k].rule and all(part.ends for part in parts)

    def stands_out(self, k: int) -> bool:
        """Returns whether a step adds something to the error of the whole."""
        parts = [direction.steps[k] for direction in self.found if k not in self.meant]
        return any(part is not None and part.stands_out for part in parts)

    def run(self, *, every: bool, custom: bool = True) -> None:
        """Judges the steps that stand out, and `custom` rules; with `every` all others. What is
        likelier to be wrong comes first, and one sample of each before a second one of any.
        """
        steps = self.trace.steps
        orders = []
        for calls in self.groups.values():
            outstanding = [k for k in calls if self.stands_out(k)]
            own = steps[calls[0]].custom
            if every or (custom and own) or outstanding:
                order = [*outstanding, *(k for k in calls if k not in outstanding)]
                # iterations of a loop are judged where those do not say it that are steps
                held = bool(steps[calls[0]].holds)
                orders.append((held, not outstanding, not own, order[: self.samples]))
        orders.sort(key=itemgetter(0, 1, 2))
        rounds = zip_longest(*(order for *_, order in orders))
        for k in chain.from_iterable(rounds):
            if k is None or (steps[k].holds and k in self.behind()):
                continue
            if self.work >= self.budget:
                self.left.append(k)
                continue
            reason = steps[k].opaque or self._judged(k)
            if reason:
                self.opaque[k] = reason
        taken = self.whole.verdict is Verdict.FAIL and any(step.differentiates for step in steps)
        if taken and not any(one.at_fault for one in self.judged()):
            # What is wrong there is the second derivative of a rule.
            self.taken_inside, self.options = True, {**self.options, "modes": ["R", "RR"]}
            for k in [calls[0] for calls in self.groups.values() if steps[calls[0]].custom]:
                if self.work < self.budget:
                    self._judged(k)
                elif k not in self.left:
                    self.left.append(k)
        # of what was judged once more calls may be left, which say the same
        told = {
            k for calls in self.groups.values() if self.reports.keys() & {*calls} for k in calls
        }
        self.left = [k for k in self.left if k not in told or self.taken_inside]

    def fault_of(self, k: int) -> Fault:
        """Returns a step that was not judged as data."""
        calls = next(calls for calls in self.groups.values() if k in calls)
        return Judged(self.trace.steps[k], calls, {}, at_fault=False).unjudged

    def fault_at_kink(self, k: int) -> Fault:
        """Returns a step that stands at a kink as data."""
        return replace(self.fault_of(k), at_kink=True)

    def behind(self) -> set[int]:
        """Returns the iterations of loops that do what a step at fault does, too."""
        if not any(step.holds for step in self.trace.steps):
            return set()
        accused = {k for one in self.judged() if one.at_fault for k in one.calls}
        pairs = enumerate(self.trace.steps)
        return {k for k, step in pairs if not accused.isdisjoint(step.holds)}

    def opened(self, loop: Judged) -> Judged | None:
        """Returns what is wrong first in several iterations of a loop, some of which become steps
        of their own; `None` where that is not found.
        """
        k = loop.wrong[0]
        step = replace(self.trace.steps[k], operands=self.trace.recorded.operands(k))
        options: Any = {**self.options, "wrt": self.wrt[k], "backend": self.backend}
        with Catching(AdjudgeError):
            report = blame(function_of(self.backend, step), step.operands, **options)
            self._spent[k] = self._spent.get(k, 0) + report.work + _work_of(report.whole)
            first = report.first
            return first and (first.within or first)
        return None

    def _judged(self, k: int) -> str:
        """Judges one step; returns why it cannot be judged, or nothing."""
        found = self._alone(self.trace, k)
        if isinstance(found, str):
            return found
        if self.wide is not None and found.verdict is not Verdict.FAIL and self.stands_out(k):
            # what was recorded of JAX takes the recorded dtype alone, which may hide an error
            with self.backend.environment.widening():
                wide = self._alone(self.wide, k)
            found = found if isinstance(wide, str) else wide
        found = self._with_constants(k, found)
        self.reports[k] = self._with_cotangents(k, found)
        return ""

    def _with_cotangents(self, k: int, found: Report) -> Report:
        """Returns the report on a step, or, where that passes and the step adds to the error all
        the same, the report on what it makes of the cotangents that it gets, if that is wrong.
        """
        if found.verdict is not Verdict.PASS or not self.stands_out(k):
            return found
        seed, results = self.whole.provenance.seed, self.trace.recorded.results(k)
        given = attempt(lambda: handed_to(self.problem, self.trace, k, seed), AdjudgeError)
        if not given or any(map(self.backend.arrays.is_complex, results)):
            return found
        alone = self._alone(self.trace, k, cotangents=given)
        if isinstance(alone, str) or alone.verdict is not Verdict.FAIL:
            return found
        self.of_cotangents.add(k)
        return alone

    def _alone(
        self,
        trace: Trace,
        k: int,
        wrt: Sequence[int] | None = None,
        cotangents: MaybeArrays = (),
    ) -> Report | str:
        step = replace(trace.steps[k], operands=trace.recorded.operands(k))
        results, wrt = trace.recorded.results(k), self.wrt.get(k, []) if wrt is None else wrt
        found = judged_alone(self.backend, step, results, wrt, self.options, cotangents)
        if not isinstance(found, str):
            self._spent[k] = self._spent.get(k, 0) + _work_of(found)
        return found

    def _with_constants(self, k: int, found: Report) -> Report:
        """Returns the report on a custom rule, or that on its derivative for what the function
        closes over, if that is what is wrong.

        Such operands do not move along any direction of the inputs, so that what a rule gives for
        them adds nothing. Zeros for an array that nobody marked may be meant.
        """
        step = self.trace.steps[k]
        wrt = [
            j
            for j, one in enumerate(step.operands)
            if j in step.closed_over
            or (isinstance(one, Ref) and one.step in self._constant and j in self.wrt[k])
        ]
        if not step.custom or not wrt:
            return found
        alone = self._alone(self.trace, k, wrt)
        refs = [step.operands[j] for j in wrt if j not in step.closed_over]
        marked = any(self._constant[one.step] for one in refs)
        given = marked or (
            not isinstance(alone, str) and any(one.automatic for one in alone.entries)
        )
        if isinstance(alone, str) or (alone.verdict is Verdict.FAIL and not given):
            return found
        self.of_constants.add(k)
        if alone.verdict is not Verdict.FAIL:
            return found
        self._wrong_for_constants.add(k)
        return found if found.verdict is Verdict.FAIL else alone

    def dead_ends(self) -> list[int]:
        """Returns the steps on the way to the outputs that make integers, indices or truth values,
        where the derivative of the whole is zero or absent and the function moves.

        No cotangent comes back to such a step. The next step that makes numbers again shows in the
        contributions; where none does, all are named.
        """
        cut = {one.status for one in self.whole.findings if one.verdict is Verdict.FAIL} & GONE
        entries = self.whole.entries if self.whole.verdict is Verdict.FAIL else ()
        zero = entries and not any(entry.automatic for entry in entries)
        flat = self.found and all(one.flat and one.whole.stands_out for one in self.found)
        if not (cut or zero or flat):
            return []
        again = [k for k, wrt in self.wrt.items() if not wrt and self.stands_out(k)]
        near = [one for k in again for one in self.trace.steps[k].operands]
        return self._makers(near, through=False) or self._makers(self.trace.outputs, through=True)

    def decisions(self) -> list[int]:
        """Returns the steps that make the integers, indices or truth values by which a step goes
        that adds to the error and is right for those that it got: as a bisection compares numbers,
        its result follows the root, and no derivative comes through the comparison.
        """
        if not self.is_finite:
            return []
        near = [one for k in self._passing() for one in self.trace.steps[k].operands]
        return self._makers(near, through=False)

    def _makers(self, operands: Sequence[Operand], *, through: bool) -> list[int]:
        """Returns the steps behind these operands that take numbers with a derivative and give
        none; `through` says whether the way goes on behind what has a derivative.
        """
        arrays, recorded = self.backend.arrays, self.trace.recorded
        asked, known, found = list(operands), set(), []
        while asked:
            ref = asked.pop()
            if not isinstance(ref, Ref) or ref.step == INPUT or ref.step in known:
                continue
            step, results = self.trace.steps[ref.step], recorded.results(ref.step)
            moves = arrays.is_differentiable(results[ref.number])
            if moves and not through:
                continue
            known.add(ref.step)
            if moving(self.backend, step, recorded.operands(ref.step)) and not any(
                map(arrays.is_differentiable, results)
            ):
                found.append(ref.step)
            asked += step.operands
        return sorted(found)

    def at_kinks(self) -> list[int]:
        """Returns the steps that stand at a kink of their own and are the cause of the failure:
        beside x, where they do not, the whole is right in the compositions that fail at x.

        Steps that no cotangent reaches, such as a comparison, are not the cause. Where the first
        derivative is wrong, and some of the steps add to that, the others are not, either.
        """
        wrong = _failing(self.whole)
        chosen = [k for k in standing_at_kinks(self.reports) if self._is_reached(k)]
        if not (wrong and chosen):
            return []
        seed, left = self.whole.provenance.seed, self.budget - self.work
        right, work = right_beside(self.problem, wrong, self.options, seed, left)
        self._beside += work
        adding = [k for k in chosen if self.stands_out(k)] if "R" in wrong else []
        return (adding or chosen) if right else []

    def _is_reached(self, k: int) -> bool:
        """Returns whether a cotangent comes back to a step, or that is not known."""
        return not self.found or any(one.steps[k] is not None for one in self.found)

    def report(self, function: str, found: list[Direction] | None) -> BlameReport:
        """Returns what was found about the steps, and about the whole."""
        judged = self.judged()
        accused = [k for one in judged if one.at_fault for k in one.calls]
        at_fault = [k for k in {*accused, *self.behind()} if k not in self.meant]
        some = () if self.taken_inside or not at_fault else self.found
        said = [d.explained_by(at_fault) for d in some]
        settled = [one for one in said if one is not None]
        wrong = self.whole.verdict is not Verdict.PASS
        outside = wrong and self.is_finite and any(d.outside.stands_out for d in self.found)
        between = wrong and self.is_between
        passing = self._passing() if wrong and not accused else []
        ends = [] if settled and all(settled) else self.dead_ends()
        open_ = wrong and not (accused or ends or between or outside)
        kinks = self.at_kinks() if open_ else []
        if open_ and not kinks:
            ends = self.decisions()
        note = ""
        if found is None:
            note = "what each adds to the error of the whole is not known"
        return BlameReport(
            function=function,
            whole=self.whole,
            judged=judged,
            steps=self.trace.steps,
            distinct=len(self.groups),
            explained=all(settled) if settled else None,
            opaque=self.opaque,
            of_constants=self.of_constants,
            kinks=kinks,
            passing=[k for k in passing if k not in kinks],
            between=between,
            outside=outside,
            dead_ends=ends,
            work=self.work,
            note=note,
        )

    def _passing(self) -> list[int]:
        """Returns the steps that add to the error of the whole and pass their own check."""
        passed = [k for k, report in self.reports.items() if report.verdict is Verdict.PASS]
        return sorted(k for k in passed if self.stands_out(k))

    @property
    def is_finite(self) -> bool:
        """Whether the wrong numbers are finite. Of NaN, which zero times infinity is, no step adds
        a part, and no comparison knows the cause.
        """
        return all(isfinite(entry.automatic) for entry in self.whole.entries)

    @property
    def is_between(self) -> bool:
        """Whether the engine's derivative is not what the rules of the steps give together. The
        rules of what is outside are not known.
        """
        outside = any(direction.outside.stands_out for direction in self.found)
        return not outside and any(direction.between.stands_out for direction in self.found)

    @property
    def is_blind(self) -> bool:
        """Whether the contributions do not show the error of reverse mode: it is small beside the
        derivative along a random direction, or seen by longer steps alone.
        """
        wrong = bool(self.found) and "R" in _failing(self.whole)
        return wrong and not any(direction.whole.stands_out for direction in self.found)

    def judged(self) -> list[Judged]:
        """Returns what was judged so far, in the order of the program. Where no step is wrong, the
        derivative ends in one of the engine that has none, and of others it is said what they lack.
        """
        found = list(self._judgements(lambda report: report.verdict is Verdict.FAIL))
        if self.is_blind and any(one.at_fault and not one.cuts for one in found):
            # A cut is wrong alone wherever it stands, as the largest score does that a softmax
            # subtracts. Beside a wrong rule it is not accused unless it is seen to add something.
            found = [
                replace(one, at_fault=False)
                if one.cuts and not any(map(self.stands_out, one.calls))
                else one
                for one in found
            ]
        if not any(one.at_fault for one in found):
            found = [self._lacking(one) for one in found]
        return sorted(found, key=lambda one: one.calls[0])

    def _lacking(self, judged: Judged) -> Judged:
        """Returns what was judged with the derivatives that it lacks."""
        for k, report in judged.reports.items():
            missing = [word for word, found in report.modes.items() if found is Status.UNSUPPORTED]
            if not any(map(self._is_missed, missing)):
                continue
            if "R" in missing and not self.trace.steps[k].rule and self._is_at_fault(k, report):
                return replace(judged, step=self.trace.steps[k], at_fault=True)
            not_passed = {Verdict.FAIL, Status.UNSUPPORTED}
            lacks = [word for word in missing if self.whole.modes.get(word) in not_passed]
            return replace(judged, lacks=lacks)
        return judged

    def _judgements(self, is_wrong: Callable[[Report], bool]) -> Iterator[Judged]:
        for calls in self.groups.values():
            reports = {k: self.reports[k] for k in calls if k in self.reports}
            if not reports:
                continue
            wrong = [k for k, report in reports.items() if is_wrong(report)]
            at_fault = [k for k in wrong if self._is_at_fault(k, reports[k])]
            # the first one at fault has the line and the report, and else the first that is wrong
            order = dict.fromkeys([*at_fault, *wrong, *reports])
            first = self.trace.steps[next(iter(order))]
            given = bool(at_fault) and at_fault[0] in self.of_cotangents
            reported = {k: reports[k] for k in order}
            yield Judged(first, calls, reported, bool(at_fault), of_cotangents=given)

    def _is_at_fault(self, k: int, report: Report) -> bool:
        """Returns whether a step that is wrong alone is at fault.

        Where its first derivative in reverse mode is wrong it has to add to the error of the whole:
        a Cholesky factorisation may be right for symmetric tangents alone, which are all that it
        gets, and a `detach` may be meant. A parameter that it closes over gets no tangent. What the
        whole fails by beside its numbers, as by what a rule makes of a cotangent that is transposed
        in memory, adds nothing along a direction.
        """
        step = self.trace.steps[k]
        opaque = any(one.opaque for one in self.trace.steps)
        if opaque and is_cut(step, report):  # it may be meant
            return False
        if _beside_numbers(report) & _beside_numbers(self.whole):
            return True
        first = report.modes.get("R") in (Verdict.FAIL, Status.UNSUPPORTED)
        if not first or step.marked or k in self._wrong_for_constants or self.stands_out(k):
            return True
        if self.found:
            return self._fails_on_its_way(k, report)
        # without contributions a rule of the engine has the benefit of the doubt
        return step.custom or self.whole.verdict is not Verdict.PASS

    def _fails_on_its_way(self, k: int, report: Report) -> bool:
        """Returns whether a step that is wrong alone, and adds nothing to the error of reverse
        mode that shows, is wrong in another mode in which the whole is, or in any where that error
        does not show at all, where its operands move as they do with the inputs.
        """
        words = [
            word
            for word, outcome in self.whole.modes.items()
            if (word != "R" or self.is_blind)
            and (outcome, report.modes.get(word)) == (Verdict.FAIL, Verdict.FAIL)
        ]
        if not words:
            return False
        if k not in self._on_their_way:
            options: Options = {**self.options, "modes": words, "backend": self.backend}
            with Catching(AdjudgeError):
                seed = self.whole.provenance.seed
                function, t = on_its_way(self.problem, self.trace, k, self.wrt[k], seed)
                self._on_their_way[k] = at_one_point(function, (t,), options).verdict
        # Where no contribution shows, only what is found to be right is left out.
        wrong = {Verdict.FAIL, Verdict.INCONCLUSIVE} if self.is_blind else {Verdict.FAIL}
        return self._on_their_way.get(k) in wrong

    def _is_missed(self, word: str) -> bool:
        """Returns whether the whole does not pass in a composition of modes, of which the engine
        has derivatives of other steps.
        """
        known = self.whole.modes.get(word)
        passed = any(one.modes.get(word) is Verdict.PASS for one in self.reports.values())
        return known is Verdict.FAIL or (passed and known is Status.UNSUPPORTED)

    @property
    def work(self) -> float:
        """The work so far in calls of the function, by the entries that steps read and write."""
        sizes = self._sizes
        spent = sum(sizes[k] * calls for k, calls in self._spent.items())
        known = 1 + PER_DIRECTION * len(self.found) + self._beside
        return spent / max(sum(sizes), 1) + known


def standing_at_kinks(reports: Mapping[int, Report]) -> list[int]:
    """Returns the steps that stand at a kink or a jump, by what the check of each one found."""
    return sorted(
        k
        for k, report in reports.items()
        if any(one.status is Status.NONSMOOTH for one in report.findings)
    )


def right_beside(
    problem: Problem,
    words: Sequence[str],
    options: Options,
    seed: int,
    budget: float = math.inf,
) -> tuple[bool, int]:
    """Returns whether the derivative of a function is right at two points beside x, one opposite to
    the other, and the work of asking that, in calls.

    At a kink a rule may give any slope between the two on its sides, and passes its own check.
    Where the kinks of several steps cancel, as in `relu(x) - relu(-x)`, which is x, the slopes need
    not fit together, and the whole is wrong though no rule is. That this is the cause shows beside
    x, where no step stands at its kink: there the derivative of the whole is right. The rule is
    ours.

    Args:
        problem: The function at x.
        words: The compositions of modes in which it is wrong at x.
        options: Those of the check at each point.
        seed: Of the points.
        budget: The work that this may take, in calls. What it does not suffice for is not known to
            be right.
    """

    def function(*x: Array) -> Arrays:
        return problem.function(x)

    chosen: Any = {**options, "modes": list(words), "backend": problem.backend}
    chosen |= {"seed": seed, "thorough": False}
    right, work = 0, 0
    with Catching(AdjudgeError):
        there = points_beside_kink(observe(problem), seed)
        for number, (base, _) in enumerate(islice(there, PAIRS_BESIDE_KINK * POINTS_BESIDE_KINK)):
            if budget - work < 1:
                break
            if math.isfinite(budget):
                chosen["max_evaluations"] = int(budget - work)
            report = at_one_point(function, base.problem.point(), chosen)
            work += _work_of(report)
            if report.verdict is Verdict.FAIL:
                return False, work
            first = number % POINTS_BESIDE_KINK == 0
            right = (0 if first else right) + (report.verdict is Verdict.PASS)
            if right == POINTS_BESIDE_KINK:
                return True, work
    return False, work


def _failing(report: Report) -> list[str]:
    """Returns the compositions of modes that fail in the usual way of the engine."""
    usual = next(iter(report.ways.values()), report.modes)
    return [word for word, outcome in usual.items() if outcome is Verdict.FAIL]


def _beside_numbers(report: Report) -> set[Status]:
    """Returns what a check fails by that is no number of the derivative."""
    found = {one.status for one in report.findings if one.verdict is Verdict.FAIL}
    return found - CUTS - {Status.RAISED}


def _size(info: ArrayInfo) -> int:
    return math.prod(info.shape)


GONE = {Status.DETACHED, Status.MISSING}
"""What is found where no derivative comes back at all."""

WORK_OF_CHANGES = 5
"""The work of finding where a gradient changes by no rule: one evaluation, a sweep back by the
engine and one by the rules."""

PER_DIRECTION = 10
"""The work of the contributions along a direction: four replays, four evaluations, and two sweeps
back."""
