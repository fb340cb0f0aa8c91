"""What is looked at beyond the comparisons that were asked for, where a check may cost more."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from adjudge import pullbacks, pushforwards
from adjudge.automatic import Forward, Reverse
from adjudge.errors import NotSupportedError
from adjudge.findings import Finding, Status
from adjudge.identities import Identities
from adjudge.structure import Structure
from adjudge.symmetry import symmetric
from adjudge.table import Table


def structure(table: Table) -> Iterator[Finding]:
    """Blocks of the inputs that f reads, or does not; what fails may be traced afterwards."""
    if table.reverse is not None:
        yield from Structure(table, table.reverse).within()


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
        if mode is None or table.problem.tail in failed:
            continue  # what is no gradient has no symmetric derivative
        if not thorough or table.budget.allows(work):
            at_hand = rows if mode is table.reverse else None
            yield from symmetric(checks, mode, at_hand, each=thorough)
    if thorough and table.reverse is not None:
        yield from Structure(table, table.reverse).between()


def linear(table: Table, checks: Identities, forward: Forward) -> Iterator[Finding]:
    """Forward mode is additive, and zero at zero."""
    if table.budget.allows(8):
        yield from pushforwards.additive(checks, forward)


def mapped(
    table: Table, checks: Identities, mode: Reverse | Forward, *, asked: bool
) -> Iterator[Finding]:
    """`vmap` of a derivative is the loop. What the engine cannot map is a note, unless the caller
    `asked` for it by name.
    """
    outputs, inputs = len(table.base.Y.leaves), len(table.problem.X.leaves)
    if isinstance(mode, Reverse):
        what, work, name = "batched cotangents", 3 * outputs, "vmap(R)"
        findings = _supported(name, lambda: pullbacks.batched(checks, mode))
    else:
        what, work, name = "batched tangents", 3 * inputs, "vmap(F)"
        findings = _supported(name, lambda: pushforwards.batched(checks, mode))
    # forward mode over a graph that is built inside of a batch is no transform of every engine
    plain = isinstance(mode, Reverse) or not table.problem.tail
    offered = plain and "vmap" in table.problem.backend.capabilities
    if asked:
        if table.budget.can(what, work):
            yield from findings
    elif offered and table.budget.allows(work):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = list(findings)
        except Exception as error:  # arrays that cannot be stacked, say: sparse ones
            text = f"the batch for {name} raises {type(error).__name__}: {error}"
            found = [Finding(Status.RAISED, name, "", text, cause=error)]
        for finding in found:
            unable = finding.status is not Status.INCONSISTENT
            first = finding.text.partition("\n")[0]
            noted = replace(finding, note=True, text=f"{first}\n  batching was not asked for")
            yield noted if unable else finding


def _supported(mode: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    try:
        yield from check()
    except NotSupportedError as error:
        yield unsupported(mode, error)


def unsupported(mode: str, error: NotSupportedError) -> Finding:
    """The finding that the engine does not offer `mode`."""
    return Finding(Status.UNSUPPORTED, mode, "", f"{mode}: {error}", cause=error.bare())
