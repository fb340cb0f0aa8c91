"""Verdicts, and what was found on the way to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class Verdict(StrEnum):
    """The answer of a check. `INCONCLUSIVE` is not a pass: something asked for stayed open."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"


class Status(StrEnum):
    """What a finding is about."""

    MISMATCH = "MISMATCH"
    """An automatic derivative that is not the derivative of the function."""
    NONSMOOTH = "NONSMOOTH"
    """A kink, where the automatic value lies between the one-sided slopes, or a jump. A note, if
    the derivative is right at two points nearby."""
    NONDETERMINISTIC = "NONDETERMINISTIC"
    """Two evaluations at the same point, or two pullbacks of one cotangent, differ."""
    NONFINITE = "NONFINITE"
    """An infinity or NaN at x or near it, or in a derivative."""
    DETACHED = "DETACHED"
    """An output without derivative history that moves with the inputs."""
    MISSING = "MISSING"
    """No derivative where the function moves."""
    SPURIOUS = "SPURIOUS"
    """A derivative where the function does not move. INCONCLUSIVE where it is plainly cached."""
    MUTATES_INPUT = "MUTATES_INPUT"
    """The function or its pullback writes into an array that it was handed."""
    WRONG_SHAPE = "WRONG_SHAPE"
    """A gradient of another shape than its input."""
    WRONG_DTYPE = "WRONG_DTYPE"
    """A gradient of another dtype than its input."""
    WRONG_DEVICE = "WRONG_DEVICE"
    """A gradient on another device than its input."""
    WRONG_LAYOUT = "WRONG_LAYOUT"
    """A gradient of another memory layout (sparse, strided) than its input."""
    NONLINEAR = "NONLINEAR"
    """A pullback that is not linear in its cotangent, or a pushforward in its tangent."""
    UNDEFINED = "UNDEFINED"
    """An undefined cotangent or tangent that does not act as zero."""
    INCONSISTENT = "INCONSISTENT"
    """Two ways to the same number that disagree: forward and reverse, batched and looped."""
    UNRESOLVED = "UNRESOLVED"
    """Differences cannot decide: their error bar is wider than the resolution asked for."""
    REFERENCE = "REFERENCE"
    """What was given as `reference=` has another value at x than the function."""
    UNFINISHED = "UNFINISHED"
    """The budget `max_evaluations` was spent before all was compared."""
    UNSUPPORTED = "UNSUPPORTED"
    """Asked for, and not offered by the engine."""
    IMPRECISE = "IMPRECISE"
    """The function carries less precision than its dtype."""
    RAISED = "RAISED"
    """The derivative raised an exception."""
    INACCURATE = "INACCURATE"
    """A derivative right in formula, and off by more than rounding explains in its dtype."""
    DRAWS_RANDOM = "DRAWS_RANDOM"
    """The function advances the global random state."""


Outcome: TypeAlias = Verdict | Status
"""What became of a mode: its verdict; or UNSUPPORTED or RAISED, where there is none."""

_OPEN = {
    Status.NONSMOOTH,
    Status.UNRESOLVED,
    Status.REFERENCE,
    Status.UNFINISHED,
    Status.UNSUPPORTED,
}


@dataclass(frozen=True)
class Finding:
    """One status, where it was seen, and the sentence about it."""

    status: Status
    mode: str
    entry: str
    text: str
    """The first line stands alone."""
    open: bool = False
    """Whether this finding leaves the question undecided, whatever its status."""
    note: bool = False
    """Whether this is worth knowing and decides nothing."""
    cause: BaseException | None = None
    way: str = ""
    """In which of the engine's ways of taking derivatives, where not in its usual one."""
    rounding: bool = False
    """Whether two runs differ by no more than another order of additions may make."""

    @property
    def verdict(self) -> Verdict:
        """What this finding alone makes of a check."""
        if self.note:
            return Verdict.PASS
        if self.open or self.status in _OPEN:
            return Verdict.INCONCLUSIVE
        return Verdict.FAIL

    def to_dict(self) -> dict[str, str]:
        """Plain data."""
        return {
            "status": str(self.status),
            "mode": self.mode,
            "entry": self.entry,
            "verdict": str(self.verdict),
            "way": self.way,
            "text": self.text,
        }


def worst(verdicts: list[Verdict]) -> Verdict:
    """FAIL before INCONCLUSIVE before PASS; of nothing: INCONCLUSIVE."""
    if Verdict.FAIL in verdicts:
        return Verdict.FAIL
    if Verdict.INCONCLUSIVE in verdicts or not verdicts:
        return Verdict.INCONCLUSIVE
    return Verdict.PASS


def outcome_of(mode: str, verdict: Verdict, findings: Sequence[Finding]) -> Outcome:
    """The verdict of a mode, or why there is none."""
    statuses = {
        finding.status for finding in findings if finding.mode == mode and not finding.entry
    }
    for status in (Status.RAISED, Status.UNSUPPORTED):
        if status in statuses and verdict is not Verdict.PASS:
            return status
    return verdict
