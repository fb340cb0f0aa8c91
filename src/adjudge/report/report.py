"""What a check found, counted, with where it comes from; and the words for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from adjudge.errors import AdjudgeError
from adjudge.findings import Finding, Outcome, Status, Verdict, worst
from adjudge.jacobian import Entry, Tally
from adjudge.report.modes import conclusion, table_of
from adjudge.report.text import by_point, counted

MODE_NAMES = {"R": "reverse mode", "F": "forward mode"}


@dataclass(frozen=True)
class Provenance:
    """Where the numbers come from."""

    backend: str
    version: str
    adjudge: str
    numpy: str
    device: str
    dtype: str
    seed: int
    mode: str
    note: str = ""
    """How a derivative of less than double precision was judged."""

    def __str__(self) -> str:
        """`torch 2.13.0, cpu, float32, formula judged in float64`."""
        note = f", {self.note}" if self.note else ""
        return f"{self.backend} {self.version}, {self.device}, {self.dtype}{note}"


@dataclass(frozen=True)
class Report:
    """The outcome of one check. Truthy only when everything asked for was compared and agreed."""

    function: str
    verdict: Verdict
    modes: Mapping[str, Outcome]
    """Verdicts by composition of modes, the outermost first; UNSUPPORTED and RAISED where there is
    none. The worst of all ways in which the engine offers it."""
    findings: Sequence[Finding]
    counts: Mapping[str, int]
    tolerance: Mapping[str, float | None]
    resolution: float
    """Largest relative deviation, error bar included, that was accepted in any comparison."""
    provenance: Provenance
    entries: Sequence[Entry] = field(default=())
    ways: Mapping[str, Mapping[str, Outcome]] = field(default_factory=dict)
    """`modes` in each way in which the engine takes derivatives ("eager", "torch.func", "jit",
    "compiled"), the usual one first. Empty where neither `order` nor `modes` is given."""
    power: Mapping[float, float] = field(default_factory=dict)
    """By relative error: in how many of all entries of reverse mode, from 0 to 1, it would have
    shown if it had been the only one. Empty where tolerances are given, and without reverse mode.
    """
    points: Mapping[str, Report] = field(default_factory=dict)
    """By name, the report at each of several points (`points=`)."""
    left_out: Sequence[str] = ()
    """Special points outside of the domain."""
    silent: str = ""
    """Of one of several points: why it decides nothing (f raises, is not smooth, and so on)."""

    def __bool__(self) -> bool:
        """Whether the verdict is PASS."""
        return self.verdict is Verdict.PASS

    @property
    def ranked(self) -> list[Finding]:
        """The findings, what fails before what stayed open before what is only a note."""
        order = [Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS]
        return sorted(self.findings, key=lambda finding: order.index(finding.verdict))

    @property
    def headline(self) -> str:
        """One line that stands alone."""
        problems = [finding for finding in self.ranked if finding.verdict is not Verdict.PASS]
        if problems:
            first, more = next(_without_repeats(problems)), len(problems) - 1
            line = f"{self.verdict} {self.function}: {first.status}: {_first_line(first.text)}"
            return line + (f" (and {more} more finding{'s' * (more > 1)})" if more else "")
        zero = "" if self.counts["nonzero"] else ", all zero"
        at = f" at {counted(self.points)}" if self.points else ""
        return (
            f"{self.verdict} {self.function}: {self.counts['comparisons']} comparisons agree"
            f"{zero}{at}, modes {', '.join(self.modes)}, to {self.resolution:.1e}"
        )

    def __str__(self) -> str:
        """The headline, every finding, and the counts."""
        lines = [self.headline]
        if self.points:
            return "\n".join([*lines, *by_point(self.points, self.left_out), self.footer])
        for k, finding in enumerate(_without_repeats(self.ranked)):
            first, _, rest = finding.text.partition("\n")
            if k > 0 or finding.verdict is Verdict.PASS:
                lines.append(f"{finding.status}: {first}")
            lines += [rest] if rest else []
        lines.append(self.footer)
        return "\n".join(lines)

    @property
    def footer(self) -> str:
        """Counts, what would have shown, and provenance."""
        c = self.counts
        parts = ", ".join(f"{part:.1%} at {error:.0e}" for error, part in self.power.items())
        power = f"a single wrong entry would show with probability {parts}\n" if parts else ""
        if self.verdict is Verdict.FAIL:
            power = ""
        verdicts = "  ".join(f"{mode}: {verdict}" for mode, verdict in self.modes.items())
        head = f"{self.matrix}\n" if self.ways else f"{verdicts}   "
        return (
            f"{head}{c['comparisons']} comparisons, {c['identities']} identities, "
            f"{c['evaluations']} evaluations, {c['vjps']} vjps, {c['jvps']} jvps, "
            f"{c['probes']} probes\n"
            f"{power}"
            f"{self.provenance}; {self.provenance.mode} mode, seed={self.provenance.seed}, "
            f"adjudge {self.provenance.adjudge}"
        )

    @property
    def matrix(self) -> str:
        """Verdicts by way and mode, and in one line which rule is at fault."""
        return "\n".join([*table_of(self.ways, list(self.modes)), conclusion(self.modes)])

    def to_dict(self) -> dict[str, Any]:
        """Plain data: strings, numbers, lists and dicts."""
        return {
            "schema": "adjudge/1",
            "function": self.function,
            "verdict": str(self.verdict),
            "modes": {mode: str(verdict) for mode, verdict in self.modes.items()},
            "ways": {way: {m: str(o) for m, o in row.items()} for way, row in self.ways.items()},
            "findings": [finding.to_dict() for finding in self.findings],
            "entries": [_plain(entry) for entry in self.entries],
            "counts": dict(self.counts),
            "tolerance": dict(self.tolerance),
            "resolution": self.resolution,
            "power": {str(error): part for error, part in self.power.items()},
            "points": {name: report.to_dict() for name, report in self.points.items()},
            "left_out": list(self.left_out),
            "silent": self.silent,
            "provenance": vars(self.provenance).copy(),
        }


class GradcheckError(AdjudgeError, AssertionError, RuntimeError):
    """A check that did not pass; the whole `Report` is in `.report`."""

    def __init__(self, report: Report) -> None:
        """The message is the report; its first line stands alone."""
        super().__init__(str(report))
        self.report = report


def mode_verdict(tally: Tally, findings: Sequence[Finding]) -> Verdict:
    """The verdict of one mode, from its comparisons and the findings about it."""
    own = [finding.verdict for finding in findings if finding.mode == tally.mode]
    if tally.failed:
        own.append(Verdict.FAIL)
    if tally.undecided or tally.kinks:
        own.append(Verdict.INCONCLUSIVE)
    return worst([Verdict.PASS, *own])


def findings_of(
    tally: Tally, provenance: str, mistake: str | None = None, beside: str | None = None
) -> list[Finding]:
    """What the disagreeing entries of one mode amount to; `mistake`: what probably is wrong;
    `beside`: what is wrong beside the first entry.
    """
    found = []
    for status, entries in (
        (Status.MISMATCH, tally.wrong),
        (Status.SPURIOUS, tally.spurious),
        (Status.DETACHED, tally.detached),
        (Status.MISSING, tally.missing),
    ):
        if entries:
            said = mistake or (_accuracy(tally) if status is Status.MISMATCH else None)
            found.append(_finding(status, tally, entries[0], provenance, said, beside))
            mistake = beside = None
    seen: set[tuple[Status, str]] = set()
    for entry in tally.open:
        status = Status.NONSMOOTH if entry.slopes is not None else Status.UNRESOLVED
        if not np.isfinite(entry.reference) and entry.slopes is None:
            status = Status.NONFINITE
        sentence = "tail" if entry.rounding_level else _sentence(status, entry)
        if (status, sentence) not in seen:
            seen.add((status, sentence))
            found.append(_finding(status, tally, entry, provenance))
    if tally.saturated and not tally.failed and not tally.undecided:
        found.append(_saturated(tally))
    return found


def _saturated(tally: Tally) -> Finding:
    """Entries below the rounding of f among others that are not: a note, for these are judged."""
    entries = "1 entry lies" if tally.saturated == 1 else f"{tally.saturated} entries lie"
    return Finding(
        Status.UNRESOLVED,
        tally.mode,
        "",
        f"{entries} below the rounding of f, beside larger ones: {tally.saturated_example}\n"
        "  not verified, whatever the verdict: pass reference= to compare them, too",
        note=True,
    )


ACCURATE = 1e-5
"""Relative deviations below this are called an accuracy: a constant in a narrower dtype, say."""


def _accuracy(tally: Tally) -> str | None:
    """How accurate the wrong entries are, where all that are kept are accurate to some digits."""
    size = [max(abs(entry.automatic), abs(entry.reference)) for entry in tally.wrong]
    gaps = [abs(e.automatic - e.reference) / s for e, s in zip(tally.wrong, size, strict=True) if s]
    if len(gaps) < len(size) or not all(gap <= ACCURATE for gap in gaps):
        return None
    return f"the automatic derivative is accurate to {max(gaps):.1e} only"


_SENTENCES = {
    Status.MISMATCH: "the automatic derivative is not the derivative of the function",
    Status.SPURIOUS: "a derivative where the function does not move at all",
    Status.DETACHED: "the output is cut off from the graph (detach, .data, no_grad), yet it moves",
    Status.MISSING: "no derivative (the engine has none) where the function moves",
    Status.NONSMOOTH: "the function has a kink here; the automatic value lies between the "
    "one-sided slopes",
    Status.UNRESOLVED: "differences cannot decide: the error bar is too wide",
    Status.NONFINITE: "the function is not finite near x",
}


def _sentence(status: Status, entry: Entry) -> str:
    if status is Status.NONSMOOTH and entry.slopes is not None and np.isinf(entry.slopes[0]):
        return "the function jumps at x: no value is its derivative there"
    if status is Status.NONSMOOTH and np.isnan(entry.automatic):
        return "the function has a kink here, and the automatic value is not a number"
    if status is Status.NONSMOOTH and entry.slopes is not None and len(set(entry.slopes)) == 1:
        return "x lies on a kink of other outputs, and the automatic value is not the slope of this"
    if status is Status.UNRESOLVED and entry.rounding_level:
        what = (
            f"a derivative of {abs(entry.automatic):.2g} cannot be seen in f"
            if entry.automatic
            else "f moves farther off, so that zero is in doubt"
        )
        return (
            f"{what}: the rounding of f alone makes {entry.rounding_level:.1g} over the scale of x"
        )
    if status is Status.UNRESOLVED and entry.from_reference:
        return (
            "the reference cannot decide: its error bar, or the rounding of the automatic "
            "derivative, is too wide"
        )
    return _SENTENCES[status]


def _remedy(status: Status, entry: Entry) -> str:
    if status is Status.UNRESOLVED and entry.rounding_level:
        return "pass reference= (f in mpmath, say), or evaluate a form of f that keeps its tail"
    if status is Status.UNRESOLVED and entry.from_reference:
        return "give adjudge.reference.mpmath(g), or a derivative that keeps its digits"
    return _REMEDIES[status]


_REMEDIES = {
    Status.NONSMOOTH: "move x off the kink to check the derivative itself",
    Status.UNRESOLVED: "check in a wider dtype, or at a point where the function is less noisy",
    Status.NONFINITE: "move x into the domain of the function",
}


def _finding(
    status: Status,
    tally: Tally,
    entry: Entry,
    provenance: str,
    mistake: str | None = None,
    beside: str | None = None,
) -> Finding:
    count = tally.failed if status not in _REMEDIES else tally.undecided + tally.kinks
    mode = " over ".join(MODE_NAMES.get(letter, letter) for letter in tally.mode)
    gap = abs(entry.automatic - entry.reference)
    automatic, reference = _apart(entry.automatic, entry.reference)
    lines = [
        f"d {entry.of} / d {entry.wrt}: automatic {automatic}, reference "
        f"{reference} ({count} of {tally.compared} {tally.mode} comparisons)",
        f"  {mode}, {provenance}",
        f"  automatic   {entry.automatic: .12g}",
        f"  reference   {entry.reference: .12g} ± {entry.error:.1g}   ({entry.method})",
        f"  difference  {gap: .3g}   (allowed {entry.allowed:.3g})",
    ]
    if entry.slopes is not None and np.all(np.isfinite(entry.slopes)):
        one, two = entry.slopes
        left, right = ("least", "most") if entry.of.startswith("<w, ") else ("left", "right")
        lines.append(f"  slopes      {one: .12g} {left}, {two:.12g} {right}")
    lines += [f"  {beside}"] if beside else []
    lines.append(f"  {mistake or _sentence(status, entry)}")
    if status in _REMEDIES:
        lines.append(f"  {_remedy(status, entry)}")
    return Finding(
        status,
        tally.mode,
        f"d {entry.of} / d {entry.wrt}",
        "\n".join(lines),
        open=status in _REMEDIES,
    )


def _apart(a: float, b: float) -> tuple[str, str]:
    """Both with as many digits, six at least, as it takes to tell them apart."""
    for digits in (6, 9, 12, 17):
        one, two = f"{a:.{digits}g}", f"{b:.{digits}g}"
        if one != two:
            break
    return one, two


def identity_findings(tally: Tally) -> list[Finding]:
    """Forward and reverse mode that disagree."""
    if not tally.wrong:
        return []
    entry = tally.wrong[0]
    return [
        Finding(
            Status.INCONSISTENT,
            entry.mode,
            f"d {entry.of} / d {entry.wrt}",
            f"forward and reverse mode disagree on d {entry.of} / d {entry.wrt} "
            f"({tally.failed} of {tally.compared} compared)\n"
            f"  <w, J v>   {entry.automatic: .12g}\n"
            f"  <J* w, v>  {entry.reference: .12g}\n"
            "  no differences are involved: one of the two rules is wrong",
        )
    ]


def _without_repeats(findings: Sequence[Finding]) -> Iterator[Finding]:
    """One of several findings that say the same of other modes or ways."""
    said: set[tuple[Status, bool, str]] = set()
    for finding in findings:
        about = finding.text.removeprefix(f"{finding.mode}: ")
        alike = [
            f"{one.mode} ({one.way})" if one.way else one.mode
            for one in findings
            if one.status is finding.status
            and one.note == finding.note
            and one.text == f"{one.mode}: {about}"
        ]
        key = finding.status, finding.note, about
        if len(alike) > 1:
            if key in said:
                continue
            said.add(key)
            finding = replace(finding, text=f"{', '.join(dict.fromkeys(alike))}: {about}")
        yield finding


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _plain(entry: Entry) -> dict[str, Any]:
    return {
        "mode": entry.mode,
        "of": entry.of,
        "wrt": entry.wrt,
        "automatic": _number(entry.automatic),
        "reference": _number(entry.reference),
        "error": _number(entry.error),
        "allowed": _number(entry.allowed),
        "method": entry.method,
    }


def _number(value: float) -> float | str:
    return value if np.isfinite(value) else str(value)
