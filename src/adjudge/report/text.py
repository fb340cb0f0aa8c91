"""What the reports at several points say about the derivative, in a word each and as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from adjudge.findings import Finding, Status, Verdict
from adjudge.report.sentences import first_line, text_of

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
    def silent(self) -> str: ...
    @property
    def counts(self) -> Mapping[str, int]: ...


def counted(points: Mapping[str, Reported]) -> str:
    """`14 points (3 more decide nothing)`."""
    deciding = sum(not report.silent for report in points.values())
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
            if report.verdict is wanted and not report.silent:
                return [*lines, f"at {name}:", *(f"  {line}" for line in str(report).split("\n"))]
    return lines


def _row(name: str, report: Reported) -> tuple[str, str, str]:
    reason = report.silent
    ranked = report.ranked
    words, doubts = "", [f for f in ranked if f.verdict is not Verdict.PASS]
    if doubts and (reason or report.verdict is not Verdict.PASS):
        words = _brief(doubts[0])
    elif any(finding.status is Status.NONSMOOTH for finding in ranked):
        words = "a kink: the automatic value lies between the slopes"
    elif not reason:
        words = f"{report.counts['comparisons']} comparisons"
    return name, reason or str(report.verdict), words


def _brief(finding: Finding) -> str:
    text = f"{finding.status}: {first_line(text_of(finding))}"
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"
