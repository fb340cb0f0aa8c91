"""One problem judged: every comparison that was asked for, and the report of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from adjudge import pullbacks, pushforwards
from adjudge._version import __version__
from adjudge.automatic import Forward, Reverse
from adjudge.budget import ENTRY
from adjudge.byhand import ByHand
from adjudge.cached import caching, opened
from adjudge.compare import ERRORS, Tally, Tolerance
from adjudge.errors import NotSupportedError
from adjudge.findings import Finding, Status, Verdict, worst
from adjudge.identities import Identities, again
from adjudge.localise import Traced, localise
from adjudge.mistake import likely_mistake
from adjudge.noise import CARRIED
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

FULL_MODE = 4
"""Up to this many real coordinates of inputs and outputs together `mode="auto"` takes the whole
Jacobian: a handful of evaluations more, and every wrong entry is named."""


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
    max_evaluations: int | None = None


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
    unsettled: set[str] = field(default_factory=set)
    """Modes that nothing but another x can settle."""

    @property
    def verdict(self) -> Verdict:
        """The worst of all modes and findings."""
        return worst([*self.modes.values(), *(finding.verdict for finding in self.findings)])


def judge(problem: Problem, base: Base, settings: Settings, provenance: str) -> Judgement:
    """Compares all that `settings` ask for; `base` is `problem` at x."""
    tolerance = Tolerance(
        unit_roundoff(problem, base), settings.rtol, settings.atol, settings.equal_nan
    )
    full = settings.full
    if full is None:
        full = problem.X.size + base.Y.size <= FULL_MODE
    probes = Probes(problem.X, base.Y, full, settings.seed)
    checks = Identities(problem, base, probes, tolerance, settings.nondet_tol)
    outcome = Judgement(full=full, tolerance=tolerance)
    outcome.findings += checks.finite()
    if settings.nondet_tol > 0:  # what the caller allows is measured, and widens the error bars
        base = replace(base, noise=4 * checks.spread(again(problem, base)))
        checks.base = base
        tolerance = replace(tolerance, noisy=base.noise > 0)

    reverse, known = _reverse(problem, base, checks, settings, outcome)
    forward = _forward(problem, checks, settings, outcome)
    if reverse is None and forward is None and not outcome.findings:
        outcome.findings += checks.repeatable(again(problem, base))

    tallies: dict[str, Tally] = {}
    table = Table(
        problem, base, probes, tolerance, settings.eps, reverse, forward, tallies,
        known if probes.rows == 1 else None,
    )  # fmt: skip
    table.fill()
    if table.carries is not None:
        checks.tolerance = outcome.tolerance = table.tolerance
        outcome.findings.append(_carries(table))
    if reverse is not None and known is not None and any(reverse.attached):
        outcome.findings += _after_rows(table, checks, reverse, known, settings)
    if (
        forward is not None
        and settings.undefined
        and table.budget.can("undefined tangents", len(table.pushed))
    ):
        outcome.findings += pushforwards.undefined(checks, forward, table.pushed)
    if (
        settings.batched_forward
        and forward is not None
        and table.budget.can("batched tangents", 3 * len(problem.X.leaves))
    ):
        outcome.findings += _supported("vmap(F)", lambda: pushforwards.batched(checks, forward))
    traced: dict[str, Traced] = {}
    _localised(table, settings, traced)
    _suspected(table, settings, traced)
    _conclude(outcome, table, checks, provenance, traced)
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
    budget, outputs = table.budget, len(table.base.Y.leaves)
    if table.probes.rows > 1:
        if table.rows is not None and budget.rows == table.probes.rows:
            yield from pullbacks.additive(checks, reverse, known, table.rows)
    elif not undefined and not table.probes.full and budget.can("additivity of the vjp", 2):
        yield from pullbacks.additive_pair(checks, reverse, known)
    if undefined and budget.can("undefined cotangents", 1 + outputs):
        yield from pullbacks.undefined(checks, reverse)
    if settings.batched and budget.can("batched cotangents", 3 * outputs):
        yield from _supported("vmap(R)", lambda: pullbacks.batched(checks, reverse))


def _supported(mode: str, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    try:
        return list(check())
    except NotSupportedError as error:
        return [_unsupported(mode, error)]


def _unsupported(mode: str, error: NotSupportedError) -> Finding:
    return Finding(Status.UNSUPPORTED, mode, "", f"{mode}: {error}", cause=error)


CONFIRMING = 16
"""Evaluations of the ladders that must confirm an entry."""

_UNTRACED = "the search for the wrong entries behind a projection"

TRACED = 4
"""Projections of a mode that are traced to entries, the first or the most significant ones."""


def _localised(table: Table, settings: Settings, traced: dict[str, Traced]) -> None:
    """For failed projections of each mode, the wrong entries themselves, where they are found."""
    if settings.eps is not None or table.probes.full:
        return
    tried: Counter[str] = Counter()
    for failure in table.projections.values():
        mode, tally = failure.mode, table.tallies[failure.mode]
        tried[mode] += 1
        if tried[mode] > TRACED or failure.entry not in tally.wrong:
            continue
        if not table.budget.can(_UNTRACED, ENTRY):
            return
        found = localise(table, failure)
        if found.cut_short:
            table.budget.can(_UNTRACED, np.inf)
        if found.entries:
            before = traced.setdefault(mode, Traced())
            tally.wrong.remove(failure.entry)
            tally.wrong[len(before.entries) : 0] = found.entries
            before += found


def _suspected(table: Table, settings: Settings, traced: dict[str, Traced]) -> None:
    """Traces projections that agree suspiciously to their entries: one wrong entry among many
    stays within the tolerance of the projection, and not within its own.
    """
    if settings.eps is not None:
        return
    tried: Counter[str] = Counter()
    for suspect in sorted(table.suspects, key=lambda s: -s.entry.excess):
        tally = table.tallies[suspect.mode]
        tried[suspect.mode] += 1
        if tally.failed or tried[suspect.mode] > TRACED:
            continue
        if not table.budget.can(_UNTRACED, ENTRY + CONFIRMING):
            return
        found = localise(table, suspect, suspected=True)
        if found.cut_short:
            table.budget.can(_UNTRACED, np.inf)
        if found.entries:
            tally.failed += 1
            tally.wrong[:0] = found.entries
            traced[suspect.mode] = found


def _conclude(
    outcome: Judgement,
    table: Table,
    checks: Identities,
    provenance: str,
    traced: Mapping[str, Traced],
) -> None:
    for tally in table.tallies.values():
        if tally.mode == "identity":
            outcome.findings += identity_findings(tally)
            checks.compared += tally.compared
            continue
        cached = caching(table, tally)
        found = findings_of(
            tally,
            provenance,
            cached or (likely_mistake(table, tally.mode) if table.budget.allows(128) else None),
            traced.get(tally.mode, Traced()).sentence,
        )
        outcome.findings += opened(found, tally, cached) if cached else found
        outcome.tallies.append(tally)
        outcome.modes[tally.mode] = mode_verdict(tally, outcome.findings)
    unfinished = table.budget.finding(sum(tally.compared for tally in outcome.tallies))
    if unfinished is not None:
        outcome.findings.append(unfinished)
    if table.budget.incomplete:
        for letter, mode in (("R", table.reverse), ("F", table.forward)):
            if mode is not None:
                word = letter + table.problem.tail
                before = outcome.modes.get(word, Verdict.INCONCLUSIVE)
                outcome.modes[word] = worst([before, Verdict.INCONCLUSIVE])
    for finding in outcome.findings:
        if finding.status is Status.UNSUPPORTED:
            outcome.modes.setdefault(finding.mode, finding.verdict)
    if not any(tally.compared for tally in outcome.tallies) and not outcome.findings:
        outcome.findings.append(_nothing(table))
    outcome.unsettled = table.unsettled
    outcome.identities = checks.compared
    outcome.probes = table.probes.columns + table.probes.rows


def _carries(table: Table) -> Finding:
    assert table.carries is not None
    names = ", ".join(leaf.name for leaf in table.base.Y.leaves)
    return Finding(
        Status.IMPRECISE,
        "",
        "",
        f"the function carries {table.carries} precision ({names} is rounded to "
        f"{CARRIED[table.carries]} bits)\n"
        "  it is judged by that; a smaller error in its derivative cannot be seen",
        note=True,
    )


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


def provenance_of(problem: Problem, settings: Settings, full: bool) -> Provenance:
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
    )


def _power(tallies: Sequence[Tally]) -> dict[float, float]:
    weighed = sum(tally.weighed for tally in tallies)
    shown = [sum(tally.shown[k] for tally in tallies) for k in range(len(ERRORS))]
    return {error: n / weighed for error, n in zip(ERRORS, shown, strict=True)} if weighed else {}


def function_name(f: Callable[..., Any]) -> str:
    """What to call `f` in one line: the qualified name, or that of its type."""
    if isinstance(f, ByHand):
        return repr(f)
    owner = getattr(f, "__self__", None)
    if isinstance(owner, type) and hasattr(f, "__name__"):  # Sign.apply, not Function.apply
        return f"{owner.__qualname__}.{f.__name__}"
    return getattr(f, "__qualname__", None) or type(f).__qualname__


def report_of(
    f: Callable[..., Any], problem: Problem, settings: Settings, outcomes: Sequence[Judgement]
) -> Report:
    """The report of judgements about one function."""
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
        power=_power(tallies),
        provenance=provenance_of(problem, settings, any(outcome.full for outcome in outcomes)),
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
