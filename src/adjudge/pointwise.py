"""What the reports at several points say about the derivative, in a word each and as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from adjudge.findings import Finding, Status, Verdict

GIVEN = "given"
"""The name of the inputs that were given."""

WIDTH = 88
"""Of the last column of the table."""


class Reported(Protocol):
    """What is asked of the report at a point."""

    @property
    def verdict(self) -> Verdict: ...
    @property
    def findings(self) -> Sequence[Finding]: ...
    @property
    def ranked(self) -> list[Finding]: ...
    @property
    def counts(self) -> Mapping[str, int]: ...


def silent(name: str, report: Reported) -> str:
    """Why a point says nothing about the derivative, which f does not have there: f raises, is not
    finite, or is not smooth. Empty where the point counts, as the inputs given always do.
    """
    findings = () if name == GIVEN else report.findings
    for finding in findings:
        if finding.status is Status.RAISED and finding.open and not finding.mode:
            return f"f raises {type(finding.cause).__name__}"
    if any(f.status is Status.NONFINITE and f.entry.startswith("out") for f in findings):
        return "f is not finite"
    doubts = [finding for finding in findings if finding.verdict is not Verdict.PASS]
    if not doubts or any(finding.verdict is Verdict.FAIL for finding in doubts):
        return ""
    statuses = {finding.status for finding in doubts}
    if Status.NONSMOOTH in statuses and statuses <= {Status.NONSMOOTH, Status.NONFINITE}:
        jump = any("the function jumps" in finding.text for finding in doubts)
        return f"f is not smooth ({'jump' if jump else 'kink'})"
    return "f is not finite nearby" if statuses == {Status.NONFINITE} else ""


def counted(points: Mapping[str, Reported]) -> str:
    """`14 points (3 more decide nothing)`."""
    deciding = sum(not silent(*item) for item in points.items())
    rest = len(points) - deciding
    more = f" ({rest} more decide nothing)" if rest else ""
    return f"{deciding} point{'s' * (deciding != 1)}{more}"


def by_point(points: Mapping[str, Reported], left_out: Sequence[str]) -> list[str]:
    """A line for each point, then the whole report of the first that fails, or stays open."""
    rows = [_row(name, report) for name, report in points.items()]
    first, second = (max(len(row[k]) for row in rows) for k in (0, 1))
    lines = [f"  {row[0]:{first}}  {row[1]:{second}}  {row[2]}".rstrip() for row in rows]
    if left_out:
        lines.append(f"  left out, outside of the domain: {', '.join(left_out)}")
    for wanted in (Verdict.FAIL, Verdict.INCONCLUSIVE):
        for name, report in points.items():
            if report.verdict is wanted and not silent(name, report):
                return [*lines, f"at {name}:", *(f"  {line}" for line in str(report).split("\n"))]
    return lines


def _row(name: str, report: Reported) -> tuple[str, str, str]:
    reason = silent(name, report)
    ranked = report.ranked
    words = ""
    if ranked and (reason or report.verdict is not Verdict.PASS):
        words = _brief(ranked[0])
    elif any(finding.status is Status.NONSMOOTH for finding in ranked):
        words = "a kink: the automatic value lies between the slopes"
    elif not reason:
        words = f"{report.counts['comparisons']} comparisons"
    return name, reason or str(report.verdict), words


def _brief(finding: Finding) -> str:
    text = f"{finding.status}: {finding.text.partition(chr(10))[0]}"
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"
