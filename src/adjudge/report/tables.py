"""This module writes the outcomes of a check as tables by mode and by point, and names
compositions of modes by words.

A word such as `FR` names the outermost derivative first: forward mode over reverse mode.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from adjudge.findings import Finding, Outcome, Status, Verdict
from adjudge.report.sentences import first_line, text_of


def place(word: str) -> tuple[int, tuple[int, ...]]:
    """Returns the sort key of a word. The order is R, F, RR, FR, RF, FF, and RRR after them."""
    return len(word), tuple(["RF".find(letter) for letter in reversed(word)])


def combined(outcomes: Iterable[Outcome]) -> Outcome:
    """Returns one outcome of a mode that was taken in several ways, the worst of them. A way that
    does not offer the mode does not count where another offers it.
    """
    found = list(outcomes)
    for worse in (Verdict.FAIL, Status.RAISED, Verdict.INCONCLUSIVE, Verdict.PASS):
        if worse in found:
            return worse
    return Status.UNSUPPORTED


def table_of(ways: Mapping[str, Mapping[str, Outcome]], modes: Sequence[str]) -> Iterator[str]:
    """Yields the lines of a table of outcomes, with a row for each way and a column for each
    mode.
    """
    cells = [["", *modes]]
    cells += [[way, *(str(row.get(mode, "-")) for mode in modes)] for way, row in ways.items()]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)).rstrip()


_AT_FAULT = {
    frozenset({"RR", "FR"}): "the derivative of the VJP rule is at fault",
    frozenset({"RF", "FF"}): "the derivative of the JVP rule is at fault",
    frozenset({"RR"}): "the vjp of the VJP rule (double backward) is at fault",
    frozenset({"FR"}): "the jvp of the VJP rule is at fault",
    frozenset({"RF"}): "the vjp of the JVP rule is at fault",
    frozenset({"FF"}): "the jvp of the JVP rule is at fault",
    frozenset({"RR", "RF"}): "the vjp of both rules is at fault",
    frozenset({"FR", "FF"}): "the jvp of both rules is at fault",
}


def conclusion(modes: Mapping[str, Outcome]) -> str:
    """Returns one line that says which rule is at fault, from the outcomes of all modes that were
    asked for.
    """
    modes = {word: outcome for word, outcome in modes.items() if not set(word) - {"R", "F"}}
    wrong = {word for word, outcome in modes.items() if outcome in (Verdict.FAIL, Status.RAISED)}
    right = [word for word, outcome in modes.items() if outcome is Verdict.PASS]
    rest = {word: outcome for word, outcome in modes.items() if word not in (*wrong, *right)}
    if not wrong:
        if not rest:
            return "every composition is right" if len(right) > 1 else f"{right[0]} is right"
        listed = ", ".join(f"{word} {outcome}" for word, outcome in rest.items())
        return f"nothing is seen to be wrong; not settled: {listed}"
    lowest = min(map(len, wrong))
    said = _fault({word for word in wrong if len(word) == lowest}, modes)
    higher = [word for word in modes if word in wrong and len(word) > lowest]
    listed = ", ".join(word for word in modes if word in wrong and len(word) == lowest)
    healthy = f"; right: {', '.join(right)}" if right else ""
    follows = f", and {', '.join(higher)} with it" if higher else ""
    return f"{said} ({listed} wrong{follows}{healthy})"


def _fault(wrong: set[str], modes: Mapping[str, Outcome]) -> str:
    """Returns the words for the rule behind the wrong modes, which all have the lowest wrong
    order.
    """
    judged = {w for w, o in modes.items() if o in (Verdict.PASS, Verdict.FAIL, Status.RAISED)}
    if wrong == {"R"}:
        return "the VJP rule is at fault"
    if wrong == {"F"}:
        return "the JVP rule is at fault"
    if wrong == {"R", "F"}:
        return "the JVP and the VJP rule are at fault, or the one that both are made from"
    if len(next(iter(wrong))) > 2:
        return "a third derivative is at fault"
    second = {word for word in judged if len(word) == 2}
    if wrong == second and len(second) > 2:
        return "the derivatives of both rules are at fault"
    for pattern, sentence in _AT_FAULT.items():
        if wrong == pattern & second and (len(pattern) == 1 or pattern <= second):
            return sentence
    return "second derivatives are at fault"


WIDTH = 88
"""The largest number of characters of a finding in the table by point. Long findings would break
the lines of the table without it. The value is ours."""


class Reported(Protocol):
    """The parts of the report at one point that the table shows."""

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
    """Returns words such as `14 points (3 more decide nothing)`."""
    deciding = sum(not report.silent for report in points.values())
    rest = len(points) - deciding
    more = f" ({rest} more decide nothing)" if rest else ""
    return f"{deciding} point{'s' * (deciding != 1)}{more}"


def by_point(points: Mapping[str, Reported], left_out: Sequence[str]) -> list[str]:
    """Returns a line for each point, and after them the whole report of the first point that
    fails, or else of the first that stays open.
    """
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
