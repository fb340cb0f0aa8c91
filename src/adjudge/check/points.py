"""This module makes one check at several points: at the inputs given, and at special points or
the caller's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from adjudge.check.double_precision import RefusedError, double_precision_of
from adjudge.check.one_point import Compile, at_one_point, stages_of
from adjudge.check.options import Options, Settings, problem_of, settings_of
from adjudge.check.special_points import SpecialPoint, SpecialPoints, special_points
from adjudge.check.surroundings import surroundings
from adjudge.constants import COUNTS_AS_ZERO, UNDERFLOW, UNDERFLOW_MARGIN
from adjudge.engine import ByHand
from adjudge.errors import (
    Catching,
    FlagError,
    InputError,
    Source,
    UnstableOutputError,
    described,
    source_of,
)
from adjudge.estimate import Irregularity, irregularity
from adjudge.findings import (
    Beyond,
    Disagreement,
    Entry,
    Finding,
    Meaning,
    NoCheck,
    Outcome,
    Raised,
    RaisedAtPoint,
    Raiser,
    Reason,
    Silence,
    Status,
    Verdict,
    worst,
)
from adjudge.problem import Problem, composed, observe, placed_call
from adjudge.report import Report, combined, place

GIVEN = "given"
"""The name of the inputs that were given."""


def at_points(f: Callable[..., Any], inputs: Any, options: Options) -> Report:
    """Checks `f` at the inputs given and at the points of `options`, and returns one report.

    Raises what the check raises at the inputs given, and `InputError` for points that make no
    sense. Raises `FlagError` where `domain` is given without the special points.
    """
    backend, rule = options.get("backend"), f if isinstance(f, ByHand) else None
    inputs, kwargs = placed_call(inputs, options.get("kwargs"), backend, rule)
    options = {**options, "kwargs": kwargs}
    found = _read(inputs, options)
    settings = settings_of(options)
    rest: Options = {**options, "seed": settings.seed, "bounds": found.bounds}
    # What is compiled at one point serves at all: of twenty, each compiled everything anew.
    compile = cache(lambda backend: backend.compile(f))
    given = at_one_point(f, inputs, rest, compile)
    reports = {GIVEN: given}
    own = not isinstance(options.get("points"), str)
    # Overflow and division by zero are to be expected at such points. NumPy's warnings about
    # them are switched off, since the check judges the numbers that they lead to.
    with np.errstate(all="ignore"):
        for point in found:
            report = _at(f, point, rest, given, compile, own=own)
            why = _silent(report) or _explained(f, point, rest, settings, report)
            reports[point.name] = _silenced(report, why) if why else report
    return _combined(reports, found.left_out)


def silence(
    f: Callable[..., Any], inputs: Any, report: Report, options: Options
) -> tuple[Silence, ...]:
    """Returns the reasons why `inputs` decide nothing, where their `report` is not a PASS.

    Such a reason is that f is not finite or not smooth there, or that the derivative lies beyond
    the range of its dtype. Returns an empty tuple where the inputs count.
    """
    point = SpecialPoint(GIVEN, inputs, options.get("kwargs") or {})
    with np.errstate(all="ignore"):
        why = _silent(report) or _explained(f, point, options, settings_of(options), report)
    stairs = any(finding.status is Status.IMPRECISE for finding in report.findings)
    if not why and stairs and all(entry.automatic == 0 for entry in report.entries):
        return (Silence(Reason.STEPS),)
    return why


def _read(inputs: Any, options: Options) -> SpecialPoints:
    """Returns the points to check: the special ones, or the caller's own.

    Raises `InputError` for points that make no sense, and `FlagError` where `domain` is given
    without the special points.
    """
    points, domain, kwargs = options.get("points"), options.get("domain"), options.get("kwargs")
    if isinstance(points, str):
        if points != "special":
            raise InputError(f"points={points!r}", 'give "special", or points of your own')
        return special_points(
            inputs,
            domain,
            kwargs=kwargs,
            wrt=options.get("wrt"),
            bounds=options.get("bounds"),
            masked=options.get("masked"),
            backend=options.get("backend"),
        )
    if domain is not None:
        raise FlagError(
            'domain= says which special points to take, and points= is not "special"',
            'give points="special", or leave out domain=',
        )
    if isinstance(points, Mapping):
        own = {str(name): point for name, point in points.items()}
    elif isinstance(points, list | tuple):
        own = {f"points[{k}]": point for k, point in enumerate(points)}
    else:
        raise InputError(
            f"points= is {described(points)}",
            'give "special", a list of inputs, or a mapping from names to inputs',
        )
    if GIVEN in own or not own:
        raise InputError(
            f"points= names a point {GIVEN!r}" if own else "points= holds no point",
            f"{GIVEN!r} are the inputs beside it; give at least one point of another name",
        )
    found = [SpecialPoint(name, point, kwargs or {}) for name, point in own.items()]
    return SpecialPoints.of(found, options.get("bounds"))


def _at(
    f: Callable[..., Any],
    point: SpecialPoint,
    options: Options,
    given: Report,
    compile: Compile,
    *,
    own: bool,
) -> Report:
    """Returns the report at `point`, or one that says so where the check cannot be made there.

    Raises the `InputError` of a point that is the caller's own.
    """
    with Catching(InputError) as caught:
        return at_one_point(f, point.inputs, {**options, "kwargs": point.kwargs}, compile)
    error = caught.error
    assert error is not None
    if isinstance(error, UnstableOutputError):
        finding = _raised(error, Raiser.UNSTABLE_OUTPUT)
    elif isinstance(error, InputError):
        if own:
            error.add_note(f"adjudge: at {point.name}")
            raise error
        mode, detail = next(iter(given.modes), ""), NoCheck(Raised.of(error))
        finding = Finding(Status.UNRESOLVED, mode, "", detail)
    elif source_of(error) is Source.FUNCTION:
        finding = _raised(error, Raiser.FUNCTION)
    else:
        finding = _raised(error, Raiser.DERIVATIVE, next(iter(given.modes), "R"))
    return replace(
        given,
        verdict=finding.verdict,
        modes=dict.fromkeys(given.modes, finding.verdict),
        findings=(finding,),
        counts=dict.fromkeys(given.counts, 0),
        resolution=0.0,
        entries=(),
        power={},
        beyond=(),
    )


def _raised(error: Exception, by: Raiser, mode: str = "") -> Finding:
    """Returns the finding for an exception at a point. With a mode, the derivative in that mode
    raised it; the finding leaves that mode open.
    """
    detail = RaisedAtPoint(by, Raised.of(error))
    return Finding(Status.RAISED, mode, "", detail, open=True, cause=error)


def _silent(report: Report) -> tuple[Silence, ...]:
    """Returns the reasons in the findings of `report` why its point says nothing about the
    derivative: f raises, is not finite, or is not smooth. Returns an empty tuple where the point
    counts.
    """
    for finding in report.findings:
        detail = finding.detail
        if isinstance(detail, RaisedAtPoint) and detail.by is not Raiser.DERIVATIVE:
            return (Silence(Reason.RAISES, detail.error.kind),)
    if any(f.status is Status.NONFINITE and f.entry.startswith("out") for f in report.findings):
        return (Silence(Reason.NOT_FINITE),)
    doubts = [finding for finding in report.findings if finding.verdict is not Verdict.PASS]
    if not doubts or report.verdict is Verdict.FAIL:
        return ()
    statuses = {finding.status for finding in doubts}
    if Status.NONSMOOTH in statuses and statuses <= {Status.NONSMOOTH, Status.NONFINITE}:
        details = [f.detail for f in doubts if isinstance(f.detail, Disagreement)]
        meanings = {detail.meaning for detail in details}
        if Meaning.ENDLESS in meanings:
            return (Silence(Reason.VERTICAL_TANGENT),)
        return (Silence(Reason.JUMP if Meaning.JUMP in meanings else Reason.KINK),)
    return ()


def _explained(
    f: Callable[..., Any],
    point: SpecialPoint,
    options: Options,
    settings: Settings,
    report: Report,
) -> tuple[Silence, ...]:
    """Returns the reasons that lie in f itself why the check did not pass at `point`, or an empty
    tuple where f does not explain it.

    At second order the reason may also lie in the derivative that is differentiated once more.
    """
    if report.verdict is Verdict.PASS or any(x.status is Status.RAISED for x in report.findings):
        return ()
    stays_open = report.verdict is Verdict.INCONCLUSIVE
    if report.entries and all(_at_an_end(x, stays_open) for x in report.entries):
        return (Silence(Reason.OUT_OF_RANGE),)
    here: Options = {**options, "kwargs": point.kwargs}
    problem = problem_of(f, point.inputs, here)
    unsettled = (Verdict.FAIL, Verdict.INCONCLUSIVE)
    before = {mode[1:] for mode, outcome in report.modes.items() if outcome in unsettled}
    reasons: list[Silence] = []
    # A derivative that is wrong only because of the range of its dtype is zero, infinite or NaN.
    # A wrong finite entry therefore rules this explanation out. The rule is ours.
    ends = all(not COUNTS_AS_ZERO <= abs(x.automatic) < np.inf for x in report.entries)
    with surroundings(problem, f, highest=settings.highest_precision):
        for taken in sorted({"", *before}, key=len):
            why = _reasons(problem, taken, settings)
            reason = why.nonsmooth or (why.out_of_range if ends or stays_open else None)
            reason = reason or (why.below_rounding if stays_open else None)
            if reason is None and ends and _subnormal(problem):
                reason = Silence(Reason.OUT_OF_RANGE)
            if reason is None and _flat(problem, report):
                reason = Silence(Reason.INTEGERS)
            if reason is not None and not taken:
                return (reason,)
            if reason is None and taken in before:
                return ()
            if reason is not None:
                reasons.append(replace(reason, modes_taken=taken))
    return tuple(reasons)


def _reasons(problem: Problem, taken: str, settings: Settings) -> Irregularity:
    """Returns what speaks against differentiating once more after the modes `taken`. It is
    measured in double precision where the function runs in it.
    """
    make = partial(composed, taken=taken, seed=settings.seed)
    double = double_precision_of(problem, settings)
    if double is not None:
        with suppress(RefusedError), double.widening():
            return irregularity(double.derived(make), problem.X, settings.seed)
    return irregularity(observe(make(problem)), problem.X, settings.seed)


def _subnormal(problem: Problem) -> bool:
    """Says whether the nonzero numbers of some input are all so small that an engine may flush
    them to zero.

    Without this a derivative of zero would be blamed on the rule where the engine had flushed its
    input. The limit is the smallest number of the dtype, or `UNDERFLOW` in float64.
    """
    for leaf, part in zip(problem.X.leaves, problem.X.slices, strict=True):
        largest = float(np.max(np.abs(problem.origin[part]), initial=0.0))
        if 0 < largest < (leaf.tiny / UNDERFLOW_MARGIN or UNDERFLOW):
            return True
    return False


def _flat(problem: Problem, report: Report) -> bool:
    """Says whether a derivative of zero is all that is wrong, at numbers so large that the dtype
    holds integers only: f may round them.

    Without this a derivative of zero that is right would fail where differences see the steps of
    rounding. The rule is ours.
    """
    integers = min(
        float(np.min(np.abs(problem.origin[part]), initial=np.inf)) * leaf.eps
        for leaf, part in zip(problem.X.leaves, problem.X.slices, strict=True)
    )
    entries = report.entries
    return integers >= 1 and bool(entries) and all(entry.automatic == 0 for entry in entries)


def _at_an_end(entry: Entry, stays_open: bool) -> bool:
    """Says whether both numbers of `entry` are among the smallest of double precision, or, where
    the check stays open, whether one is among the largest.

    Products are flushed to zero at one end and sums overflow at the other, so without this the
    range of the dtype would be blamed on the derivative. The limits are ours.
    """
    sizes = abs(entry.automatic), abs(entry.reference)
    return max(sizes) < COUNTS_AS_ZERO or (stays_open and max(sizes) > 1 / COUNTS_AS_ZERO)


def _silenced(report: Report, why: tuple[Silence, ...]) -> Report:
    """Returns `report` as that of a point that decides nothing, for the reasons `why`."""
    modes = dict.fromkeys(report.modes, Verdict.INCONCLUSIVE)
    open_ = replace(report, verdict=Verdict.INCONCLUSIVE, modes=modes, silence=why)
    return replace(open_, certified=False, certificate=None)


def _together(rows: Sequence[Mapping[str, Outcome]]) -> dict[str, Outcome]:
    """Returns the worst outcome of each mode."""
    modes = sorted({mode for row in rows for mode in row}, key=place)
    return {mode: combined(row[mode] for row in rows if mode in row) for mode in modes}


def _combined(reports: Mapping[str, Report], left_out: Sequence[str]) -> Report:
    given = reports[GIVEN]
    deciding = {name: report for name, report in reports.items() if not report.silence}
    rows = [report.modes for report in deciding.values()]
    verdict = worst([report.verdict for report in deciding.values()])
    proved = [report.certified for report in deciding.values() if report.verdict is verdict]
    return replace(
        given,
        verdict=verdict,
        certified=all(proved) if verdict is Verdict.PASS else any(proved),
        certificate=None,
        modes=_together(rows),
        ways={
            way: _together([report.ways.get(way, {}) for report in deciding.values()])
            for way in given.ways
        },
        findings=tuple(
            replace(finding, point=name)
            for name, report in deciding.items()
            for finding in report.findings
            if name == GIVEN or finding.verdict is not Verdict.PASS
        ),
        counts={key: sum(r.counts[key] for r in reports.values()) for key in given.counts},
        tolerance={
            key: max((r.tolerance[key] or 0.0 for r in deciding.values()), default=0.0)
            if value is not None
            else None
            for key, value in given.tolerance.items()
        },
        resolution=max(report.resolution for report in deciding.values()),
        entries=tuple(entry for report in deciding.values() for entry in report.entries),
        pairs=(),
        power={},
        stages=stages_of(reports.values()),
        beyond=tuple(b for b in Beyond if any(b in r.beyond for r in deciding.values())),
        points=dict(reports),
        left_out=tuple(left_out),
    )
