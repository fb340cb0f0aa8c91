"""One problem judged: every comparison that was asked for, and the report of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any

import numpy as np

from adjudge import pullbacks, pushforwards
from adjudge._version import __version__
from adjudge.automatic import Forward, Reverse
from adjudge.byhand import ByHand
from adjudge.compare import Tally, Tolerance
from adjudge.errors import NotSupportedError
from adjudge.findings import Finding, Status, Verdict, worst
from adjudge.identities import Identities, again
from adjudge.localise import localise
from adjudge.mistake import likely_mistake
from adjudge.numeric import unit_roundoff
from adjudge.observed import Base
from adjudge.probes import Probes
from adjudge.problem import Problem
from adjudge.report import (
    Provenance,
    Report,
    findings_of,
    identity_findings,
    mode_verdict,
)
from adjudge.spaces import Vector
from adjudge.table import Table

FULL_MODE = 128
"""Up to this many real coordinates of inputs and outputs together `mode="auto"` takes the whole
Jacobian: it then costs at most 256 evaluations and 128 vjps, and names every wrong entry."""


@dataclass(frozen=True)
class Settings:
    """What to compare, and how closely. `None` means automatic."""

    seed: int
    eps: float | None = None
    atol: float | None = None
    rtol: float | None = None
    nondet_tol: float = 0.0
    equal_nan: bool = False
    full: bool | None = None
    backward: bool = True
    forward: bool = False
    undefined: bool = True
    grad_dtypes: bool = True
    batched: bool = False
    batched_forward: bool = False
    masked: bool | None = None
    in_double: bool | None = None
    highest_precision: bool = False

    @property
    def fixed(self) -> bool:
        """Whether the caller chose a number that belongs to the dtype at hand."""
        numbers = (self.eps, self.atol, self.rtol)
        return any(number is not None for number in numbers) or self.nondet_tol > 0


class Part(Enum):
    """What of a judgement is made."""

    WHOLE = auto()
    IDENTITIES = auto()
    """What needs no differences."""
    TABLE = auto()
    """The comparison with differences."""


@dataclass
class Judgement:
    """Everything found about one problem."""

    findings: list[Finding] = field(default_factory=list)
    modes: dict[str, Verdict] = field(default_factory=dict)
    tallies: list[Tally] = field(default_factory=list)
    identities: int = 0
    probes: int = 0
    full: bool = False
    tolerance: Tolerance = field(default_factory=lambda: Tolerance(0.0))

    @property
    def verdict(self) -> Verdict:
        """The worst of all modes and findings."""
        return worst([*self.modes.values(), *(finding.verdict for finding in self.findings)])


def judge(
    problem: Problem,
    base: Base,
    settings: Settings,
    provenance: str,
    part: Part = Part.WHOLE,
) -> Judgement:
    """Compares all that `settings` ask for; `base` is `problem` at x."""
    if part is Part.TABLE:
        settings = replace(settings, undefined=False, batched=False, batched_forward=False)
    tolerance = Tolerance(
        unit_roundoff(problem, base), settings.rtol, settings.atol, settings.equal_nan
    )
    full = settings.full
    if full is None:
        full = problem.X.size + base.Y.size <= FULL_MODE
    probes = Probes(problem.X, base.Y, full, settings.seed)
    checks = Identities(problem, base, probes, tolerance, settings.nondet_tol)
    outcome = Judgement(full=full, tolerance=tolerance)
    if part is not Part.TABLE:
        outcome.findings += checks.finite()
    if settings.nondet_tol > 0:  # what the caller allows is measured, and widens the error bars
        base = replace(base, noise=4 * checks.spread(again(problem, base)))
        checks.base = base
        tolerance = replace(tolerance, noisy=base.noise > 0)

    if part is Part.TABLE:
        reverse, known = _row(problem, checks) if settings.backward else (None, None)
        forward = Forward(problem) if settings.forward else None
    else:
        reverse, known = _reverse(problem, base, checks, settings, outcome)
        forward = _forward(problem, checks, settings, outcome)
        if reverse is None and forward is None and not outcome.findings:
            outcome.findings += checks.repeatable(again(problem, base))

    tallies: dict[str, Tally] = {}
    table = Table(
        problem, base, probes, tolerance, settings.eps, reverse, forward, tallies,
        known if probes.rows == 1 else None,
    )  # fmt: skip
    if part is not Part.IDENTITIES:
        table.fill()
    elif forward is not None and settings.undefined:
        table.pushed = pushforwards.pushed(checks, forward)
    rules = part is not Part.TABLE
    if rules and reverse is not None and known is not None and any(reverse.attached):
        outcome.findings += _after_rows(table, checks, reverse, known, settings)
    if forward is not None and settings.undefined:
        outcome.findings += pushforwards.undefined(checks, forward, table.pushed)
    if settings.batched_forward and forward is not None:
        outcome.findings += _supported("vmap(F)", lambda: pushforwards.batched(checks, forward))
    _localised(table, settings)
    _suspected(table, settings)
    _conclude(outcome, table, checks, provenance, part)
    return outcome


def _reverse(
    problem: Problem, base: Base, checks: Identities, settings: Settings, outcome: Judgement
) -> tuple[Reverse | None, Vector | None]:
    if not settings.backward:
        return None, None
    mode = "R" + problem.tail
    try:
        reverse = Reverse(problem)
    except NotSupportedError as error:
        outcome.findings.append(_unsupported(mode, error))
        return None, None
    value = base.Y.vector(problem.backend, reverse.outputs, base.arrays[: len(base.Y.leaves)])
    outcome.findings += checks.value_under("Reverse mode", value)
    try:  # some engines find out on the way back only
        row, findings = pullbacks.identities(checks, reverse)
    except NotSupportedError as error:
        outcome.findings.append(_unsupported(mode, error))
        return None, None
    outcome.findings += findings
    return reverse, row


def _row(problem: Problem, checks: Identities) -> tuple[Reverse, Vector]:
    """Reverse mode and the row of the probes' cotangent, with nothing else looked at."""
    reverse = Reverse(problem)
    return reverse, reverse.row(checks.base, pullbacks.cotangent(checks, reverse))


def _forward(
    problem: Problem, checks: Identities, settings: Settings, outcome: Judgement
) -> Forward | None:
    if not settings.forward:
        return None
    forward = Forward(problem)
    try:
        findings = list(pushforwards.identities(checks, forward))
    except NotSupportedError as error:
        outcome.findings.append(_unsupported("F" + problem.tail, error))
        return None
    if not settings.grad_dtypes:
        findings = [f for f in findings if f.status is not Status.WRONG_DTYPE]
    # reverse mode may have seen the function write into its input already
    outcome.findings += [f for f in findings if f not in outcome.findings]
    return forward


def _after_rows(
    table: Table, checks: Identities, reverse: Reverse, known: Vector, settings: Settings
) -> Iterator[Finding]:
    undefined = settings.undefined and table.problem.backend.undefined_cotangents
    if table.probes.rows > 1 and table.rows is not None:
        yield from pullbacks.additive(checks, reverse, known, table.rows)
    elif table.probes.rows > 1 or (not undefined and not table.probes.full):
        yield from pullbacks.additive_pair(checks, reverse, known)
    if undefined:
        yield from pullbacks.undefined(checks, reverse)
    if settings.batched:
        yield from _supported("vmap(R)", lambda: pullbacks.batched(checks, reverse))


def _supported(mode: str, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    try:
        return list(check())
    except NotSupportedError as error:
        return [_unsupported(mode, error)]


def _unsupported(mode: str, error: NotSupportedError) -> Finding:
    return Finding(Status.UNSUPPORTED, mode, "", f"{mode}: {error}", cause=error)


def _localised(table: Table, settings: Settings) -> None:
    """For the first failed projection of each mode, the wrong entry itself, where it is found."""
    if settings.eps is not None or table.probes.full:
        return
    for mode, failure in table.failures.items():
        entry = localise(table, failure)
        tally = table.tallies[mode]
        if entry is not None and failure.entry in tally.wrong:
            tally.wrong.remove(failure.entry)
            tally.wrong.insert(0, entry)


SUSPECTS = 4
"""Suspicious projections of a mode that are traced to an entry, the most significant first."""


def _suspected(table: Table, settings: Settings) -> None:
    """Traces projections that agree suspiciously to their entries: one wrong entry among many
    stays within the tolerance of the projection, and not within its own.
    """
    if settings.eps is not None:
        return
    tried: dict[str, int] = {}
    for suspect in sorted(table.suspects, key=lambda s: -s.entry.excess):
        tally = table.tallies[suspect.mode]
        tried[suspect.mode] = tried.get(suspect.mode, 0) + 1
        if tally.failed or tried[suspect.mode] > SUSPECTS:
            continue
        entry = localise(table, suspect)
        if entry is not None:
            tally.failed += 1
            tally.wrong.insert(0, entry)


def _conclude(
    outcome: Judgement, table: Table, checks: Identities, provenance: str, part: Part
) -> None:
    for tally in table.tallies.values():
        if tally.mode == "identity":
            outcome.findings += identity_findings(tally)
            checks.compared += tally.compared
            continue
        outcome.findings += findings_of(tally, provenance, likely_mistake(table, tally.mode))
        outcome.tallies.append(tally)
        outcome.modes[tally.mode] = mode_verdict(tally, outcome.findings)
    for finding in outcome.findings:
        if finding.status is Status.UNSUPPORTED:
            outcome.modes.setdefault(finding.mode, finding.verdict)
    compared = any(tally.compared for tally in outcome.tallies)
    if not compared and not outcome.findings and part is not Part.IDENTITIES:
        outcome.findings.append(_nothing(table))
    outcome.identities = checks.compared
    if part is not Part.IDENTITIES:
        outcome.probes = table.probes.columns + table.probes.rows


def _nothing(table: Table) -> Finding:
    leaves = (*table.problem.X.leaves, *table.base.Y.leaves)
    empty = ", ".join(f"{leaf.name} {leaf.info.shape}" for leaf in leaves if not leaf.size)
    return Finding(
        Status.UNRESOLVED,
        table.problem.tail,
        "",
        f"nothing was compared: no entries in {empty}\n"
        "  check at inputs and outputs that are not empty",
    )


def provenance_of(problem: Problem, settings: Settings, full: bool, note: str = "") -> Provenance:
    """Where the numbers of this check come from."""
    infos = [leaf.info for leaf in problem.X.leaves]
    return Provenance(
        problem.backend.name,
        problem.backend.version,
        __version__,
        np.__version__,
        "+".join(dict.fromkeys(info.device for info in infos)),
        "+".join(dict.fromkeys(info.dtype for info in infos)),
        settings.seed,
        "full" if full else "projected",
        note,
    )


def function_name(f: Callable[..., Any]) -> str:
    """What to call `f` in one line: the qualified name, or that of its type."""
    if isinstance(f, ByHand):
        return repr(f)
    owner = getattr(f, "__self__", None)
    if isinstance(owner, type) and hasattr(f, "__name__"):  # Sign.apply, not Function.apply
        return f"{owner.__qualname__}.{f.__name__}"
    return getattr(f, "__qualname__", None) or type(f).__qualname__


def report_of(
    f: Callable[..., Any],
    problem: Problem,
    settings: Settings,
    outcomes: Sequence[Judgement],
    note: str = "",
) -> Report:
    """The report of judgements about one function; `note`: how they were made."""
    counts = problem.counts
    tallies = [tally for outcome in outcomes for tally in outcome.tallies]
    modes: dict[str, Verdict] = {}
    for outcome in outcomes:
        for mode, verdict in outcome.modes.items():
            modes[mode] = worst([verdict, modes.get(mode, verdict)])
    return Report(
        function=function_name(f),
        verdict=worst([outcome.verdict for outcome in outcomes]),
        modes=dict(sorted(modes.items(), key=lambda item: (len(item[0]), item[0]))),
        findings=tuple(finding for outcome in outcomes for finding in outcome.findings),
        counts={
            "comparisons": sum(tally.compared for tally in tallies),
            "nonzero": sum(tally.nonzero for tally in tallies),
            "failed": sum(tally.failed for tally in tallies),
            "undecided": sum(tally.undecided + tally.kinks for tally in tallies),
            "identities": sum(outcome.identities for outcome in outcomes),
            "evaluations": counts.evaluations,
            "vjps": counts.vjps,
            "jvps": counts.jvps,
            "probes": sum(outcome.probes for outcome in outcomes),
        },
        tolerance={
            "eps": settings.eps,
            "atol": settings.atol,
            "rtol": max(outcome.tolerance.relative for outcome in outcomes),
            "resolution": max(outcome.tolerance.resolution for outcome in outcomes),
        },
        resolution=max((tally.resolution for tally in tallies), default=0.0),
        provenance=provenance_of(
            problem, settings, any(outcome.full for outcome in outcomes), note
        ),
        entries=tuple(
            entry
            for tally in tallies
            for entry in (
                *tally.wrong,
                *tally.still,
                *tally.detached,
                *tally.absent,
                *tally.open,
            )
        ),
    )
