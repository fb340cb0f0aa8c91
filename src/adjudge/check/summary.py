"""This module makes the report of judgements about one function, with the provenance of its
numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from adjudge._version import __version__
from adjudge.check.one_problem import Judgement
from adjudge.check.options import Settings
from adjudge.engine import ByHand
from adjudge.findings import Beyond, Entry, Finding, Outcome, outcome_of, worst
from adjudge.jacobian import ERRORS, Tally
from adjudge.problem import Counts, Problem
from adjudge.report import Provenance, Report, StageCount, combined, place


def provenance_of(problem: Problem, settings: Settings, full: bool, note: str = "") -> Provenance:
    """Returns the provenance of the numbers of this check. `full` says that some Jacobian was
    compared in full, and `note` says how the judgements were made.
    """
    infos = [leaf.info for leaf in problem.X.leaves]
    return Provenance(
        problem.backend.name,
        problem.backend.environment.version,
        __version__,
        np.__version__,
        "+".join(dict.fromkeys([info.device for info in infos])),
        "+".join(dict.fromkeys([info.dtype for info in infos])),
        settings.seed,
        "full" if full else "projected",
        ", ".join([*([note] if note else []), *problem.constraints]),
    )


def _power(tallies: Sequence[Tally]) -> dict[float, float]:
    weighed, shown = 0, dict.fromkeys(ERRORS, 0)
    for tally in tallies:
        weighed += tally.weighed
        for error, detectable in zip(ERRORS, tally.detectable, strict=True):
            shown[error] += detectable
    return {error: n / weighed for error, n in shown.items()} if weighed else {}


def _stages(outcomes: Sequence[Judgement]) -> dict[str, StageCount]:
    """Returns, by stage, how many columns it was tried on and how many it decided."""
    reached: Counter[str] = Counter()
    decided: Counter[str] = Counter()
    for outcome in outcomes:
        reached.update(outcome.reached)
        decided.update(outcome.decided)
    return {stage: StageCount(reached[stage], decided[stage]) for stage in reached}


def stages_of(reports: Iterable[Report]) -> dict[str, StageCount]:
    """Returns the counts of all reports together."""
    together: dict[str, StageCount] = {}
    for report in reports:
        for stage, count in report.stages.items():
            before = together.get(stage, StageCount(0, 0))
            together[stage] = StageCount(*map(sum, zip(before, count, strict=True)))
    return together


def function_name(f: Callable[..., Any]) -> str:
    """Returns the name of `f` for one line: its qualified name, or that of its type."""
    if isinstance(f, ByHand):
        return repr(f)
    owner = getattr(f, "__self__", None)
    # An inherited class method is named by the class it is called on: Sign.apply, not
    # Function.apply.
    if isinstance(owner, type) and hasattr(f, "__name__"):
        return f"{owner.__qualname__}.{f.__name__}"
    return getattr(f, "__qualname__", None) or type(f).__qualname__


def rows_of(outcomes: Sequence[Judgement]) -> dict[str, Outcome]:
    """Returns the outcome of each mode."""
    row: dict[str, Outcome] = {}
    for outcome in outcomes:
        for mode, verdict in outcome.modes.items():
            found = outcome_of(mode, verdict, outcome.findings)
            row[mode] = combined([found, row[mode]]) if mode in row else found
    return row


def _sorted(row: Mapping[str, Outcome]) -> dict[str, Outcome]:
    return {mode: row[mode] for mode in sorted(row, key=place)}


def report_of(
    f: Callable[..., Any],
    problem: Problem,
    settings: Settings,
    outcomes: Sequence[Judgement],
    note: str = "",
    ways: Mapping[str, Mapping[str, Outcome]] | None = None,
) -> Report:
    """Returns the report of judgements about one function. `note` says how they were made, and
    `ways` holds the outcomes by way and mode.
    """
    tallies = [tally for outcome in outcomes for tally in outcome.tallies]
    modes: dict[str, list[Outcome]] = {}
    for row in (ways or {"": rows_of(outcomes)}).values():
        for mode, verdict in row.items():
            modes.setdefault(mode, []).append(verdict)
    # The judgement of a second derivative repeats some findings about the first.
    findings: dict[Finding, None] = {}
    beyond: set[Beyond] = set()
    for outcome in outcomes:
        findings |= dict.fromkeys(outcome.findings)
        beyond |= outcome.beyond
    entries: list[Entry] = []
    for tally in tallies:
        entries += tally.wrong + tally.spurious + tally.detached + tally.missing + tally.open
    return Report(
        function=function_name(f),
        verdict=worst([outcome.verdict for outcome in outcomes]),
        modes={mode: combined(modes[mode]) for mode in sorted(modes, key=place)},
        ways={} if ways is None else {way: _sorted(row) for way, row in ways.items()},
        findings=tuple(findings),
        counts=_counts(problem.counts, outcomes, tallies),
        tolerance={
            "eps": settings.eps,
            "atol": settings.atol,
            "rtol": max([outcome.tolerance.relative for outcome in outcomes]),
            "resolution": max([outcome.tolerance.resolution for outcome in outcomes]),
        },
        resolution=max([tally.resolution for tally in tallies], default=0.0),
        power=_power(tallies),
        stages=_stages(outcomes),
        beyond=tuple([b for b in Beyond if b in beyond]) if beyond else (),
        provenance=provenance_of(problem, settings, True in [o.full for o in outcomes], note),
        entries=tuple(entries),
    )


def _counts(
    spent: Counts, outcomes: Sequence[Judgement], tallies: Sequence[Tally]
) -> dict[str, int]:
    """Returns what the report counts: the comparisons with what came of them, and the work."""
    compared = dict.fromkeys(("comparisons", "nonzero", "failed", "undecided"), 0)
    for tally in tallies:
        compared["comparisons"] += tally.compared
        compared["nonzero"] += tally.nonzero
        compared["failed"] += tally.failed
        compared["undecided"] += tally.undecided + tally.kinks
    return compared | {
        "identities": sum([outcome.identities for outcome in outcomes]),
        "evaluations": spent.evaluations,
        "vjps": spent.vjps,
        "jvps": spent.jvps,
        "probes": sum([outcome.probes for outcome in outcomes]),
    }
