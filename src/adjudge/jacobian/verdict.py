"""What the entries of a tally that do not agree amount to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from adjudge.findings import (
    AlsoWrong,
    Disagreement,
    Entry,
    Finding,
    Meaning,
    ModesDisagree,
    Remedy,
    Saturated,
    Status,
    Verdict,
    worst,
)
from adjudge.jacobian.comparison import Tally

ACCURATE = 1e-5
"""Relative deviations below this are called an accuracy: a constant in a narrower dtype, say."""


def mode_verdict(tally: Tally, findings: Sequence[Finding]) -> Verdict:
    """The verdict of one mode, from its comparisons and the findings about it."""
    own = [finding.verdict for finding in findings if finding.mode == tally.mode]
    if tally.failed:
        own.append(Verdict.FAIL)
    if tally.undecided or tally.kinks:
        own.append(Verdict.INCONCLUSIVE)
    return worst([Verdict.PASS, *own])


def findings_of(
    tally: Tally, provenance: str, mistake: str = "", also: AlsoWrong | None = None
) -> list[Finding]:
    """What the disagreeing entries of one mode amount to.

    `mistake` is the likely mistake, and `also` what is wrong beside the first entry; both belong
    to the first finding.
    """
    found = []
    for status, meaning, entries in (
        (Status.MISMATCH, Meaning.WRONG, tally.wrong),
        (Status.SPURIOUS, Meaning.SPURIOUS, tally.spurious),
        (Status.DETACHED, Meaning.DETACHED, tally.detached),
        (Status.MISSING, Meaning.MISSING, tally.missing),
    ):
        if not entries:
            continue
        accuracy = _accuracy(tally) if meaning is Meaning.WRONG and not mistake else None
        detail = Disagreement(
            entries[0], meaning, tally.failed, tally.compared, provenance, mistake, accuracy, also
        )
        found.append(Finding(status, tally.mode, entries[0].name, detail))
        mistake, also = "", None
    seen: set[tuple[Status, Meaning]] = set()
    for entry in tally.open:
        status, meaning, remedy = _open(entry)
        # an entry that rounding hides is told once, whichever doubt it stands for
        kind = status, Meaning.SATURATED if entry.rounding_level else meaning
        if kind not in seen:
            seen.add(kind)
            count = tally.undecided + tally.kinks
            detail = Disagreement(entry, meaning, count, tally.compared, provenance)
            found.append(Finding(status, tally.mode, entry.name, detail, remedy, open=True))
    if tally.saturated and not tally.failed and not tally.undecided:
        # a note, since the entries beside these are judged
        saturated = Saturated(tally.saturated, *tally.saturated_example)
        remedy = Remedy.GIVE_REFERENCE_FOR_SATURATED
        found.append(Finding(Status.UNRESOLVED, tally.mode, "", saturated, remedy, note=True))
    return found


def _open(entry: Entry) -> tuple[Status, Meaning, Remedy]:
    """What leaves an entry undecided, and what to do about it."""
    slopes = entry.slopes
    if slopes is not None:
        meaning = Meaning.KINK
        if np.isinf(slopes[0]):
            meaning = Meaning.JUMP
        elif np.isnan(entry.automatic):
            meaning = Meaning.NAN_AT_KINK
        elif slopes[0] == slopes[1]:
            meaning = Meaning.KINK_ELSEWHERE
        return Status.NONSMOOTH, meaning, Remedy.MOVE_OFF_KINK
    if not np.isfinite(entry.reference):
        return Status.NONFINITE, Meaning.NOT_FINITE, Remedy.MOVE_INTO_DOMAIN
    if entry.rounding_level:
        return Status.UNRESOLVED, Meaning.SATURATED, Remedy.GIVE_REFERENCE
    if entry.from_reference:
        return Status.UNRESOLVED, Meaning.WIDE_REFERENCE, Remedy.SHARPEN_REFERENCE
    return Status.UNRESOLVED, Meaning.WIDE, Remedy.WIDEN_DTYPE


def _accuracy(tally: Tally) -> float | None:
    """How accurate the wrong entries are, where all that are kept are accurate to some digits."""
    size = [max(abs(entry.automatic), abs(entry.reference)) for entry in tally.wrong]
    gaps = [abs(e.automatic - e.reference) / s for e, s in zip(tally.wrong, size, strict=True) if s]
    if len(gaps) < len(size) or not all(gap <= ACCURATE for gap in gaps):
        return None
    return max(gaps)


def identity_findings(tally: Tally) -> list[Finding]:
    """Forward and reverse mode that disagree."""
    if not tally.wrong:
        return []
    entry = tally.wrong[0]
    detail = ModesDisagree(entry.automatic, entry.reference, tally.failed, tally.compared)
    return [Finding(Status.INCONSISTENT, entry.mode, entry.name, detail)]
