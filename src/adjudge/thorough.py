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


def exact(table: Table, checks: Identities, *, thorough: bool) -> Iterator[Finding]:
    """Symmetry of second derivatives, exact derivatives of affine functions, and structure; from a
    table that was filled. Without `thorough` what costs no evaluation.
    """
    if table.affine is not None:
        checks.compared += table.affine.compared
        # what the table found already is not said twice
        failed = {tally.mode for tally in table.tallies.values() if tally.failed}
        yield from (found for found in table.affine.findings if found.mode not in failed)
    rows = table.rows if table.probes.full else None
    if rows is not None and rows.shape[0] < table.probes.rows:
        rows = None
    work = 4 * (len(table.problem.X.leaves) + 1)
    for mode in (table.reverse, table.forward):
        if mode is not None and (not thorough or table.budget.can("symmetry", work)):
            at_hand = rows if mode is table.reverse else None
            yield from symmetric(checks, mode, at_hand, each=thorough)
    if thorough and table.reverse is not None and table.eps is None:
        yield from Structure(table, table.reverse).findings()


def linear(table: Table, checks: Identities, forward: Forward) -> Iterator[Finding]:
    """Forward mode is additive, and zero at zero."""
    if table.budget.can("additivity of the jvp", 8):
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
    offered = "vmap" in table.problem.backend.capabilities
    if asked:
        if table.budget.can(what, work):
            yield from findings
    elif offered and table.budget.allows(work):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = list(findings)
        for finding in found:
            unable = finding.status in (Status.RAISED, Status.UNSUPPORTED)
            yield replace(finding, note=True) if unable else finding


def _supported(mode: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    try:
        yield from check()
    except NotSupportedError as error:
        yield unsupported(mode, error)


def unsupported(mode: str, error: NotSupportedError) -> Finding:
    """The finding that the engine does not offer `mode`."""
    return Finding(Status.UNSUPPORTED, mode, "", f"{mode}: {error}", cause=error)
