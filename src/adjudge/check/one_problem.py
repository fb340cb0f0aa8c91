"""What is looked at beyond the comparisons that were asked for, where a check may cost more."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import partial

from adjudge.check.options import Settings
from adjudge.errors import Catching, NotSupportedError
from adjudge.estimate import SIGNIFICANT_BITS, coarsest_eps
from adjudge.findings import (
    BatchNotMade,
    CarriesLess,
    Finding,
    NothingCompared,
    NotSupported,
    Raised,
    Remedy,
    Rule,
    Status,
    Task,
    Verdict,
    worst,
)
from adjudge.floats import Vector
from adjudge.jacobian import (
    ENTRY_WORK,
    Affine,
    Table,
    Tally,
    Tolerance,
    compare_block_sums,
    findings_of,
    fits_block_sums,
    identity_findings,
    mode_verdict,
)
from adjudge.problem import Base, Forward, Probes, Problem, Reverse
from adjudge.properties import (
    Identities,
    Pullbacks,
    Pushforwards,
    SparsityPattern,
    another_function,
    asymmetries,
    detect_cache,
    evaluate_again,
    explained_by_cache,
    open_for_cache,
)
from adjudge.report import Located, likely_mistake, locate_entries


def structure(table: Table) -> Iterator[Finding]:
    """Blocks of the inputs that f reads, or does not; what fails may be traced afterwards."""
    if table.reverse is not None:
        yield from SparsityPattern(table, table.reverse).within()


def exact(table: Table, checks: Identities, *, thorough: bool) -> Iterator[Finding]:
    """Symmetry of second derivatives, exact derivatives of affine functions, entries of a batch;
    for a table that was filled, and does not know them to be wrong already. Without `thorough`
    only what costs no evaluation.
    """
    failed = {tally.mode for tally in table.tallies.values() if tally.failed}
    if table.affine is not None:
        checks.compared += table.affine.compared
        yield from (found for found in table.affine.findings if found.mode not in failed)
    rows = table.rows if table.probes.full else None
    if rows is not None and rows.shape[0] < table.probes.rows:
        rows = None
    work = 4 * (len(table.problem.X.leaves) + 1)
    for mode in (table.reverse, table.forward):
        if mode is None or table.problem.modes_taken in failed:
            continue  # what is no gradient has no symmetric derivative
        if not thorough or table.budget.allows(work):
            at_hand = rows if mode is table.reverse else None
            yield from asymmetries(checks, mode, at_hand, each=thorough)
    if thorough and table.reverse is not None:
        yield from SparsityPattern(table, table.reverse).between()


def linear(table: Table, checks: Identities, forward: Forward) -> Iterator[Finding]:
    """Forward mode is additive, and zero at zero."""
    if table.budget.allows(8):
        yield from Pushforwards(checks, forward).additive()


def mapped(
    table: Table, checks: Identities, mode: Reverse | Forward, *, asked: bool
) -> Iterator[Finding]:
    """`vmap` of a derivative is the loop. What the engine cannot map is a note, unless the caller
    `asked` for it by name.
    """
    outputs, inputs = len(table.base.Y.leaves), len(table.problem.X.leaves)
    if isinstance(mode, Reverse):
        task, work, name = Task.BATCHED_COTANGENTS, 3 * outputs, "vmap(R)"
        findings = _supported(name, lambda: Pullbacks(checks, mode).batched())
    else:
        task, work, name = Task.BATCHED_TANGENTS, 3 * inputs, "vmap(F)"
        findings = _supported(name, lambda: Pushforwards(checks, mode).batched())
    # forward mode over a graph that is built inside of a batch is no transform of every engine
    plain = isinstance(mode, Reverse) or not table.problem.modes_taken
    offered = plain and "vmap" in table.problem.backend.capabilities
    if asked:
        if table.budget.affords(task, work):
            yield from findings
    elif offered and table.budget.allows(work):
        found: list[Finding] = []
        with Catching() as caught, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found += findings
        if (error := caught.error) is not None:  # arrays that cannot be stacked, say: sparse ones
            found = [Finding(Status.RAISED, name, "", BatchNotMade(Raised.of(error)), cause=error)]
        for finding in found:
            unable = finding.status is not Status.INCONSISTENT
            yield replace(finding, note=True, remedy=Remedy.NOT_NEEDED) if unable else finding


def _supported(mode: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    try:
        yield from check()
    except NotSupportedError as error:
        yield unsupported(mode, error)


def unsupported(mode: str, error: NotSupportedError) -> Finding:
    """The finding that the engine does not offer `mode`."""
    detail = NotSupported(error.found, error.remedy)
    return Finding(Status.UNSUPPORTED, mode, "", detail, cause=error.without_traceback())


FULL_MODE = 4
"""Up to this many real coordinates of inputs and outputs together `mode="auto"` takes the whole
Jacobian: a handful of evaluations more, and every wrong entry is named."""

GIVEN_MODE = 64
"""The same where a reference gives the derivative: f itself is not evaluated for it."""


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
    undecidable: set[str] = field(default_factory=set)
    """Modes that nothing but another x can settle."""
    images: dict[str, tuple[Vector, Vector]] = field(default_factory=dict)
    """By mode, a probe and what the rule made of it: what other modes and ways must agree with."""

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
        settings = replace(
            settings,
            check_undefined_grad=False,
            check_batched_grad=False,
            check_batched_forward_grad=False,
        )
    tolerance = Tolerance(
        coarsest_eps(problem, base), settings.rtol, settings.atol, settings.equal_nan
    )
    full = settings.full
    if full is None:
        most = FULL_MODE if problem.reference is None else GIVEN_MODE
        full = problem.X.size + base.Y.size <= most
    probes = Probes(problem.X, base.Y, full, settings.seed)
    checks = Identities(problem, base, probes, tolerance, settings.nondet_tol)
    outcome = Judgement(full=full, tolerance=tolerance)
    if part is not Part.TABLE:
        outcome.findings += checks.finite()
    if settings.nondet_tol > 0:  # what the caller allows is measured, and widens the error bars
        second = evaluate_again(problem, base)
        if part is not Part.TABLE:
            outcome.findings += [one for one in checks.nondeterminism(second) if one.note]
        base = replace(base, noise=4 * checks.difference_from(second))
        checks.base = base
        tolerance = replace(tolerance, noisy=base.noise > 0)

    if part is Part.TABLE:
        reverse, known = _row(problem, checks) if "R" in settings.letters else (None, None)
        forward = Forward(problem) if "F" in settings.letters else None
    else:
        reverse, known = _reverse(problem, base, checks, settings, outcome)
        forward = _forward(problem, checks, settings, outcome)
        if reverse is None and forward is None and not outcome.findings:
            outcome.findings += checks.repeatable(evaluate_again(problem, base))

    tallies: dict[str, Tally] = {}
    table = Table(
        problem, base, probes, tolerance, settings.eps, reverse, forward, tallies,
        known if probes.rows == 1 else None,
    )  # fmt: skip
    other = another_function(problem, base, tolerance)
    outcome.findings += other
    if part is not Part.IDENTITIES and not other:
        if settings.thorough and settings.eps is None and tolerance.automatic:
            table.affine = Affine(problem, base, probes, tolerance.eps)
        elif not (full or settings.fixed or settings.equal_nan) and fits_block_sums(problem, base):
            letters = "R" * (reverse is not None) + "F" * (forward is not None)
            table.block_sums = partial(compare_block_sums, problem, base, letters, settings.seed)
        table.fill()
        if table.replaced_by_sums and forward is not None and settings.check_undefined_grad:
            table.pushed = Pushforwards(checks, forward).pushed()
        if table.carried_dtype is not None:
            checks.tolerance = outcome.tolerance = table.tolerance
            outcome.findings.append(_carries(table))
    elif forward is not None and settings.check_undefined_grad:
        table.pushed = Pushforwards(checks, forward).pushed()
    rules = part is not Part.TABLE
    if rules and reverse is not None and known is not None and any(reverse.attached):
        outcome.findings += _after_rows(table, checks, reverse, known, settings)
    if (
        forward is not None
        and settings.check_undefined_grad
        and table.budget.affords(Task.UNDEFINED_TANGENTS, len(table.pushed))
    ):
        outcome.findings += Pushforwards(checks, forward).undefined(table.pushed)
    if part is not Part.TABLE and forward is not None:
        if settings.thorough:
            outcome.findings += linear(table, checks, forward)
        if settings.check_batched_forward_grad or settings.thorough:
            asked = settings.check_batched_forward_grad
            outcome.findings += mapped(table, checks, forward, asked=asked)
    differs = part is not Part.IDENTITIES and settings.eps is None
    differs = differs and tolerance.automatic and not tolerance.noisy and problem.reference is None
    if differs and settings.thorough:
        outcome.findings += structure(table)
    traced: dict[str, Located] = {}
    _localised(table, settings, traced)
    _suspected(table, settings, traced)
    beyond = list(exact(table, checks, thorough=settings.thorough)) if differs else []
    outcome.findings += beyond
    _conclude(outcome, table, checks, provenance, traced, part)
    outcome.findings.sort(key=beyond.__contains__)  # an entry says more than an identity
    return outcome


def _reverse(
    problem: Problem, base: Base, checks: Identities, settings: Settings, outcome: Judgement
) -> tuple[Reverse | None, Vector | None]:
    if "R" not in settings.letters:
        return None, None
    mode = "R" + problem.modes_taken
    try:
        reverse = Reverse(problem)
    except NotSupportedError as error:
        outcome.findings.append(unsupported(mode, error))
        return None, None
    value = base.Y.vector(problem.backend, reverse.outputs, base.arrays[: len(base.Y.leaves)])
    outcome.findings += checks.value_under(Rule.VJP, value)
    try:  # some engines find out on the way back only
        row, findings = Pullbacks(checks, reverse).at_cotangent()
    except NotSupportedError as error:
        outcome.findings.append(unsupported(mode, error))
        return None, None
    outcome.findings += findings
    return reverse, row


def _row(problem: Problem, checks: Identities) -> tuple[Reverse, Vector]:
    """Reverse mode and the row of the probes' cotangent, with nothing else looked at."""
    reverse = Reverse(problem)
    return reverse, reverse.row(checks.base, Pullbacks(checks, reverse).cotangent)


def _forward(
    problem: Problem, checks: Identities, settings: Settings, outcome: Judgement
) -> Forward | None:
    if "F" not in settings.letters:
        return None
    forward = Forward(problem)
    try:
        findings = list(Pushforwards(checks, forward).at_tangent())
    except NotSupportedError as error:
        outcome.findings.append(unsupported("F" + problem.modes_taken, error))
        return None
    if not settings.check_grad_dtypes:
        findings = [f for f in findings if f.status is not Status.WRONG_DTYPE]
    # reverse mode may have seen the function write into its input already
    outcome.findings += [f for f in findings if f not in outcome.findings]
    return forward


def _after_rows(
    table: Table, checks: Identities, reverse: Reverse, known: Vector, settings: Settings
) -> Iterator[Finding]:
    undefined = settings.check_undefined_grad and table.problem.backend.undefined_cotangents
    budget, outputs = table.budget, len(table.base.Y.leaves)
    whole = table.rows is not None and budget.rows == table.probes.rows
    if table.probes.rows > 1 and whole and table.rows is not None:
        yield from Pullbacks(checks, reverse).additive_rows(known, table.rows)
    elif (table.probes.rows > 1 or (not undefined and not table.probes.full)) and budget.affords(
        Task.ADDITIVITY, 2
    ):
        yield from Pullbacks(checks, reverse).additive_pair(known)
    if undefined and budget.affords(Task.UNDEFINED_COTANGENTS, 1 + outputs):
        yield from Pullbacks(checks, reverse).undefined()
    if settings.check_batched_grad or settings.thorough:
        yield from mapped(table, checks, reverse, asked=settings.check_batched_grad)


CONFIRMING = 16
"""Evaluations of the ladders that must confirm an entry."""

TRACED = 4
"""Projections of a mode that are traced to entries, the first or the most significant ones."""


def _localised(table: Table, settings: Settings, traced: dict[str, Located]) -> None:
    """For failed projections of each mode, the wrong entries themselves, where they are found."""
    if settings.eps is not None or table.probes.full:
        return
    tried: Counter[str] = Counter()
    for failure in table.projections.values():
        mode, tally = failure.mode, table.tallies[failure.mode]
        tried[mode] += 1
        if tried[mode] > TRACED or failure.entry not in tally.wrong:
            continue
        if not table.budget.affords(Task.LOCALISATION, ENTRY_WORK):
            return
        found = locate_entries(table, failure)
        if found.cut_short:
            table.budget.leave(Task.LOCALISATION)
        if found.entries:
            before = traced.setdefault(mode, Located())
            tally.wrong.remove(failure.entry)
            tally.wrong[len(before.entries) : 0] = found.entries
            before += found


def _suspected(table: Table, settings: Settings, traced: dict[str, Located]) -> None:
    """Traces projections that agree suspiciously to their entries: one wrong entry among many
    stays within the tolerance of the projection, and not within its own.
    """
    if settings.eps is not None:
        return
    tried: Counter[str] = Counter()
    for suspect in sorted(table.significant, key=lambda s: -s.entry.excess):
        tally = table.tallies[suspect.mode]
        tried[suspect.mode] += 1
        if tally.failed or tried[suspect.mode] > TRACED:
            continue
        if not table.budget.affords(Task.LOCALISATION, ENTRY_WORK + CONFIRMING):
            return
        found = locate_entries(table, suspect, suspected=True)
        if found.cut_short:
            table.budget.leave(Task.LOCALISATION)
        if found.entries:
            tally.failed += 1
            tally.wrong[:0] = found.entries
            traced[suspect.mode] = found


def _conclude(
    outcome: Judgement,
    table: Table,
    checks: Identities,
    provenance: str,
    traced: Mapping[str, Located],
    part: Part,
) -> None:
    for tally in table.tallies.values():
        if tally.mode == "identity":
            outcome.findings += identity_findings(tally)
            checks.compared += tally.compared
            continue
        cache, mistake = detect_cache(table, tally), None
        if cache is None and table.budget.allows(128):
            mistake = likely_mistake(table, tally.mode)
        also = traced.get(tally.mode, Located()).also
        found = findings_of(tally, provenance, mistake or "", also)
        if cache is not None:
            if explained_by_cache(found, cache):
                tally.leave_open()
            found = open_for_cache(found, cache)
        outcome.findings += found
        outcome.tallies.append(tally)
        outcome.modes[tally.mode] = mode_verdict(tally, outcome.findings)
    if part is not Part.IDENTITIES and not any(
        finding.status is Status.REFERENCE for finding in outcome.findings
    ):
        _unfinished(outcome, table)
    for finding in outcome.findings:
        if finding.status is Status.REFERENCE:
            for letter, mode in (("R", table.reverse), ("F", table.forward)):
                if mode is not None:
                    outcome.modes.setdefault(letter + table.problem.modes_taken, finding.verdict)
        if finding.status is Status.UNSUPPORTED and not finding.note:
            outcome.modes.setdefault(finding.mode, finding.verdict)
    compared = any(tally.compared for tally in outcome.tallies)
    if not compared and not outcome.findings and part is not Part.IDENTITIES:
        outcome.findings.append(_nothing(table))
    outcome.undecidable = table.undecidable
    outcome.identities, outcome.images = checks.compared, checks.images
    if part is not Part.IDENTITIES:
        outcome.probes = table.probes.columns + table.probes.rows


def _unfinished(outcome: Judgement, table: Table) -> None:
    """What the budget left."""
    unfinished = table.budget.finding(sum(tally.compared for tally in outcome.tallies))
    if unfinished is not None:
        outcome.findings.append(unfinished)
    if table.budget.incomplete:
        for letter, mode in (("R", table.reverse), ("F", table.forward)):
            if mode is not None:
                word = letter + table.problem.modes_taken
                before = outcome.modes.get(word, Verdict.INCONCLUSIVE)
                outcome.modes[word] = worst([before, Verdict.INCONCLUSIVE])


def _carries(table: Table) -> Finding:
    assert table.carried_dtype is not None
    names = tuple(leaf.name for leaf in table.base.Y.leaves)
    detail = CarriesLess(table.carried_dtype, SIGNIFICANT_BITS[table.carried_dtype], names)
    return Finding(Status.IMPRECISE, "", "", detail, note=True)


def _nothing(table: Table) -> Finding:
    leaves = (*table.problem.X.leaves, *table.base.Y.leaves)
    empty = tuple((leaf.name, leaf.info.shape) for leaf in leaves if not leaf.size)
    detail, mode = NothingCompared(empty), table.problem.modes_taken
    return Finding(Status.UNRESOLVED, mode, "", detail, Remedy.FILL_ARRAYS)
