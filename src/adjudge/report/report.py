"""This module defines the report of a check: its verdict, findings and counts, the provenance of
its numbers, the tables of outcomes by mode and by point, and who is told of it.

A word such as `FR` names a composition of modes, the outermost derivative first: forward mode over
reverse mode.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

from adjudge.errors import AdjudgeError
from adjudge.findings import (
    Beyond,
    Entry,
    Fault,
    Finding,
    Outcome,
    Pair,
    Silence,
    Slip,
    Status,
    Unjudged,
    Verdict,
    plain,
)
from adjudge.report.pictures import pictures
from adjudge.report.sentences import (
    SLIPS,
    certified_by,
    first_line,
    how,
    text_of,
    what_was_left,
    which_rule,
    why_silent,
    without_repeats,
)


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
    frozenset({"R"}): "the VJP rule is at fault",
    frozenset({"F"}): "the JVP rule is at fault",
    frozenset({"R", "F"}): "the JVP and the VJP rule are at fault, or the one that both are made "
    "from",
    frozenset({"RR", "FR"}): "the derivative of the VJP rule is at fault",
    frozenset({"RF", "FF"}): "the derivative of the JVP rule is at fault",
    frozenset({"RR"}): "the vjp of the VJP rule (double backward) is at fault",
    frozenset({"FR"}): "the jvp of the VJP rule is at fault",
    frozenset({"RF"}): "the vjp of the JVP rule is at fault",
    frozenset({"FF"}): "the jvp of the JVP rule is at fault",
    frozenset({"RR", "RF"}): "the vjp of both rules is at fault",
    frozenset({"FR", "FF"}): "the jvp of both rules is at fault",
}


WRONG = frozenset({Verdict.FAIL, Status.RAISED})
"""The outcomes of a mode whose derivative is wrong."""


def conclusion(
    modes: Mapping[str, Outcome], ways: Mapping[str, Mapping[str, Outcome]] | None = None
) -> str:
    """Returns one line that says which rule is at fault, from the outcomes of all modes that were
    asked for; and in which of the `ways`, where it is right in another one.
    """
    modes = {word: outcome for word, outcome in modes.items() if not set(word) - {"R", "F"}}
    wrong = {word for word, outcome in modes.items() if outcome in WRONG}
    right = [word for word, outcome in modes.items() if outcome is Verdict.PASS]
    rest = {word: outcome for word, outcome in modes.items() if word not in (*wrong, *right)}
    if not wrong:
        if not rest:
            return "every composition is right" if len(right) > 1 else f"{right[0]} is right"
        listed = ", ".join(f"{word} {outcome}" for word, outcome in rest.items())
        line = f"nothing is seen to be wrong; not settled: {listed}"
        if right and set(rest.values()) == {Status.UNSUPPORTED}:
            line += f"; modes={right} checks what is offered"
        return line
    lowest = min(map(len, wrong))
    said = _fault({word for word in wrong if len(word) == lowest}, modes)
    higher = [word for word in modes if word in wrong and len(word) > lowest]
    listed = ", ".join(word for word in modes if word in wrong and len(word) == lowest)
    healthy = f"; right: {', '.join(right)}" if right else ""
    follows = f", and {', '.join(higher)} with it" if higher else ""
    return f"{said} ({listed} wrong{_where(wrong, ways or {})}{follows}{healthy})"


def _where(wrong: Collection[str], ways: Mapping[str, Mapping[str, Outcome]]) -> str:
    """Returns in which ways these modes are wrong, where they are right in another one."""
    outcomes = {way: {one.get(word) for word in wrong} for way, one in ways.items()}
    bad = [way for way, found in outcomes.items() if found & WRONG]
    right = any(Verdict.PASS in found for way, found in outcomes.items() if way not in bad)
    return f" in {', '.join(bad)}" if right else ""


def _fault(wrong: set[str], modes: Mapping[str, Outcome]) -> str:
    """Returns the words for the rule behind the wrong modes, which all have the lowest wrong
    order.
    """
    judged = {w for w, o in modes.items() if o in (Verdict.PASS, Verdict.FAIL, Status.RAISED)}
    if len(next(iter(wrong))) == 1:
        return _AT_FAULT[frozenset(wrong)]
    if len(next(iter(wrong))) > 2:
        return "a third derivative is at fault"
    second = {word for word in judged if len(word) == 2}
    if wrong == second and len(second) > 2:
        return "the derivatives of both rules are at fault"
    for pattern, sentence in _AT_FAULT.items():
        if wrong == pattern & second and (len(pattern) == 1 or pattern <= second):
            return sentence
    return "second derivatives are at fault"


PAIR_WORDS = {
    Verdict.PASS: "right",
    Verdict.FAIL: "WRONG",
    Verdict.INCONCLUSIVE: "open",
    None: "not compared",
}
"""The words for the verdicts of pairs, beside which the verdict of the check stands."""

MOST_ROWS = 24
"""A table of pairs has at most this many rows; those that are right are left out first. Nobody
reads a longer one. The value is ours."""


def tables_of_pairs(pairs: Sequence[Pair], *, projected: bool) -> Iterator[str]:
    """Yields the lines of a table of outputs and inputs, for each mode in which a pair is not
    right, and one line that says what its numbers are. Modes with the same verdicts share one.
    """
    modes: dict[tuple[str, str], list[Pair]] = {}
    for pair in pairs:
        modes.setdefault((pair.mode, pair.way), []).append(pair)
    tables: dict[tuple[object, ...], list[tuple[str, str]]] = {}
    for name, here in modes.items():
        if len(here) > 1 and not all(map(_right, here)):
            verdicts = tuple((pair.output, pair.input, pair.verdict) for pair in here)
            tables.setdefault(verdicts, []).append(name)
    for names in tables.values():
        title = ", ".join(f"{mode} ({way})" if way else mode for mode, way in names)
        yield from _table(title, {(p.output, p.input): p for p in modes[names[0]]})
    if tables:
        of = "all along one random direction" if projected else "the whole pair"
        yield f"  (the relative errors of the worst entry that was compared, and of {of})"


def _table(name: str, pairs: Mapping[tuple[str, str], Pair]) -> Iterator[str]:
    outputs, inputs = (list(dict.fromkeys(names)) for names in zip(*pairs, strict=True))
    across = len(inputs) <= len(outputs)
    rows, columns = (outputs, inputs) if across else (inputs, outputs)

    def pair(row: str, column: str) -> Pair | None:
        return pairs.get((row, column) if across else (column, row))

    shown = rows
    if len(rows) > MOST_ROWS:
        wrong = [r for r in rows if any((p := pair(r, c)) and not _right(p) for c in columns)]
        shown = [row for row in rows if row in wrong[:MOST_ROWS]]
    cells = [[name, *columns]]
    cells += [[row, *(_cell(pair(row, column)) for column in columns)] for row in shown]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row_cells in cells:
        yield "  " + "  ".join(map(str.ljust, row_cells, widths)).rstrip()
    if len(shown) < len(rows):
        yield f"  and {len(rows) - len(shown)} more"


def _right(pair: Pair) -> bool:
    return pair.verdict is Verdict.PASS


def _cell(pair: Pair | None) -> str:
    if pair is None:
        return PAIR_WORDS[Verdict.PASS]
    word = PAIR_WORDS[pair.verdict]
    digits = ".0e" if _right(pair) else ".2g"
    errors = (f"{error:{digits}}" if error else "0" for error in (pair.relative, pair.norm))
    return f"{word} {', '.join(errors)}" if pair.compared else word


SHOULD_SHOW = 1e-2
"""A PASS says so in its first line if an error of this part of an entry may not have shown. The
value is ours, and is one of those for which `Report.power` is known."""

FEW_ZEROS = 0.01
"""From this share of the entries on the report says that they are zero, and not among those in
which an error would show. The value is ours. No verdict depends on it."""

ENOUGH_POWER = 0.9
"""It does so if the error would have shown in less than this share of the entries. The value is
ours."""


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _agreeing(comparisons: int) -> str:
    return f"{_counted(comparisons, 'comparison')} agree{'s' * (comparisons == 1)}"


WIDTH = 88
"""The largest number of characters of a finding in the table by point. Long findings would break
the lines of the table without it. The value is ours."""


def counted(points: Mapping[str, Report]) -> str:
    """Returns words such as `14 points (3 more decide nothing)`."""
    deciding = sum(not report.silent for report in points.values())
    rest = len(points) - deciding
    more = f" ({rest} more decide{'s' * (rest == 1)} nothing)" if rest else ""
    return f"{_counted(deciding, 'point')}{more}"


def by_point(points: Mapping[str, Report], left_out: Sequence[str]) -> list[str]:
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


def _row(name: str, report: Report) -> list[str]:
    reason = report.silent
    ranked = report.ranked
    words, doubts = "", [f for f in ranked if f.verdict is not Verdict.PASS]
    if doubts and (reason or report.verdict is not Verdict.PASS):
        words = _brief(doubts[0])
    elif any(finding.status is Status.NONSMOOTH for finding in ranked):
        words = "not smooth at x: see the note"
    elif not reason:
        words = _counted(report.counts["comparisons"], "comparison")
    return [name, reason or str(report.verdict), words]


def _brief(finding: Finding) -> str:
    text = f"{finding.status}: {first_line(text_of(finding))}"
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"


@dataclass(frozen=True)
class Provenance:
    """The engine, device, dtype, seed and version that the numbers of a report come from."""

    backend: str
    version: str
    adjudge: str
    numpy: str
    device: str
    dtype: str
    seed: int
    mode: str
    note: str = ""
    """A note on how a derivative of less than double precision was judged."""
    exact: bool = False
    """Whether derivatives were compared with intervals that are proven to contain the true ones."""

    def __str__(self) -> str:
        """Returns words such as `torch 2.13.0, cpu, float32, formula judged in float64`."""
        note = f", {self.note}" if self.note else ""
        return f"{self.backend} {self.version}, {self.device}, {self.dtype}{note}"


class StageCount(NamedTuple):
    """How many columns of the table a stage of the check was tried on, and how many it decided."""

    reached: int
    decided: int


@dataclass(frozen=True, repr=False)
class Report:
    """The outcome of one check. It is truthy only when everything asked for was compared and
    agreed.
    """

    function: str
    verdict: Verdict
    modes: Mapping[str, Outcome]
    """The verdicts by composition of modes, the outermost mode first. UNSUPPORTED and RAISED stand
    where there is no verdict. Each is the worst of all ways in which the engine offers the mode."""
    findings: Sequence[Finding]
    counts: Mapping[str, int]
    tolerance: Mapping[str, float | None]
    resolution: float
    """The largest relative deviation, error bar included, that any comparison accepted."""
    provenance: Provenance
    entries: Sequence[Entry] = field(default=())
    ways: Mapping[str, Mapping[str, Outcome]] = field(default_factory=dict)
    """The outcomes of `modes` in each way in which the engine takes derivatives ("eager",
    "torch.func", "jit", "compiled"), the usual one first. The mapping is empty where neither
    `order` nor `modes` is given."""
    power: Mapping[float, float] = field(default_factory=dict)
    """The share, from 0 to 1, of the entries of reverse mode in which a relative error of the
    given size would have shown if it had been the only one, by that size. The mapping is empty
    where tolerances are given, and without reverse mode."""
    zeros: float = 0.0
    """The share of the entries of reverse mode that the engine gives as zero. They are not counted
    in `power`, since no relative error makes them another number."""
    stages: Mapping[str, StageCount] = field(default_factory=dict)
    """By the name of a stage (two evaluations, Richardson ladder, second ladder, ...), how many
    columns it was tried on and how many it decided, in the order in which they were reached."""
    beyond: Sequence[Beyond] = ()
    """The properties of the derivatives and of the function that were examined beside the
    comparisons, and may fail as well, since `thorough` is set, or an order or modes are given."""
    pairs: Sequence[Pair] = ()
    """Of each mode that does not pass, every pair of an output and an input: which are wrong, and
    which are right, and in full mode the errors of its entries. It is empty where there is but one
    pair along random directions, where no comparison disagrees, and where several points are
    checked, each of which has its own."""
    points: Mapping[str, Report] = field(default_factory=dict)
    """The reports by the name of the point, where several points are checked (`points=`)."""
    left_out: Sequence[str] = ()
    """The names of the special points outside of the domain."""
    silence: Sequence[Silence] = ()
    """The reasons why one of several points decides nothing (f raises, is not smooth, and so
    on)."""
    file: str = ""
    """The file that defines the function, where it has one and the verdict is not PASS."""
    line: int = 0
    """The line of that file at which the function begins."""
    certified: bool = False
    """Whether the verdict rests on intervals that are proven to contain the derivative of what the
    function computed: all comparisons of a PASS agree with such intervals, to the rounding of the
    automatic side, or an entry that makes it FAIL lies outside of one."""
    certificate: Entry | None = None
    """The comparison of a certified PASS that agrees least closely, with its interval."""
    slip: Slip | None = None
    """What a derivative by hand has only to undo to be right."""
    faults: Sequence[Fault] = ()
    """The steps whose derivatives are wrong, the first one of the function first, where the check
    fails, the engine can record what the function did, and they were found (`blame=`)."""
    unjudged: Unjudged | None = None
    """What the search for these left open, where its budget ended."""

    def __repr__(self) -> str:
        """Returns the headline: this is what a test runner shows of `assert examine(...)`."""
        return f"<Report {self.headline}>"

    def __bool__(self) -> bool:
        """Says whether the verdict is PASS."""
        return self.verdict is Verdict.PASS

    @property
    def silent(self) -> str:
        """Returns `silence` in words, or an empty string where the point counts."""
        return why_silent(self.silence)

    @property
    def ranked(self) -> list[Finding]:
        """Returns the findings: first those that fail, then those that stayed open, then notes. A
        cotangent that is undefined comes after what defined ones show, which may be its cause.
        """
        order = [Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS]

        def place(finding: Finding) -> tuple[int, bool]:
            return order.index(finding.verdict), finding.status is Status.UNDEFINED

        return sorted(self.findings, key=place)

    @property
    def worst(self) -> Entry | None:
        """Returns the entry that is off by most; `None` where none is kept."""
        return max(self.entries, key=attrgetter("excess"), default=None)

    @property
    def headline(self) -> str:
        """Returns one line that can be read without the rest of the report."""
        return f"{self.verdict} {self.outline}"

    @property
    def outline(self) -> str:
        """Returns the headline without the verdict."""
        problems = [finding for finding in self.ranked if finding.verdict is not Verdict.PASS]
        if problems:
            (first, text), more = next(without_repeats(problems)), len(problems) - 1
            line = f"{self.function}: {first.status}: {first_line(text)}"
            return line + (f" (and {more} more finding{'s' * (more > 1)})" if more else "")
        zero = "" if self.counts["nonzero"] else ", all zero"
        weak = ""
        if (seen := self.power.get(SHOULD_SHOW, 1.0)) < ENOUGH_POWER:
            weak = f"; in {seen:.0%} of the entries an error of {SHOULD_SHOW:.0%} would have shown"
        at = f" at {counted(self.points)}" if self.points else ""
        if not self.counts["comparisons"]:
            modes = ", ".join(self.modes)
            return f"{self.function}: no derivative to compare{at}, modes {modes}"
        return (
            f"{self.function}: {_agreeing(self.counts['comparisons'])}"
            f"{zero}{at}, modes {', '.join(self.modes)}, to {self.resolution:.1e}{weak}"
        )

    @property
    def brief(self) -> str:
        """Returns the outline with the entry before everything else, for a line that may be cut."""
        problems = [finding for finding in self.ranked if finding.verdict is not Verdict.PASS]
        if not problems:
            return self.outline
        (first, text) = next(without_repeats(problems))
        open_ = f"{self.verdict}, " if self.verdict is not Verdict.FAIL else ""
        return f"{first_line(text)} ({open_}{first.status} in {self.function})"

    def __str__(self) -> str:
        """Returns the headline, every finding, and the counts; or, where several points were
        checked, a line for each point in place of the findings.
        """
        lines = [self.headline]
        if self.file:
            lines.append(f"  defined at {self.file}:{self.line}")
        lines += [f"  {line}" for line in dict.fromkeys(map(which_rule, self.faults))]
        if self.unjudged is not None:
            lines.append(f"  {what_was_left(self.unjudged)}")
        lines += [] if self.slip is None else [f"  {SLIPS[self.slip]}"]
        if self.ways and self.verdict is not Verdict.PASS:
            lines.append(f"  {self._conclusion}")
        if self.points:
            return "\n".join([*lines, *by_point(self.points, self.left_out), self.footer])
        tables = [*tables_of_pairs(self.pairs, projected=self.provenance.mode == "projected")]
        for k, (finding, text) in enumerate(without_repeats(self.ranked)):
            first, _, rest = text.partition("\n")
            if k > 0 and finding.verdict is not self.verdict:
                lines += tables
                tables = []
            if k > 0 or finding.verdict is Verdict.PASS:
                lines.append(f"{finding.status}: {first}")
            lines += [rest] if rest else []
        lines += [*tables, self.footer]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Returns the report as a notebook shows it, with pictures of what is wrong."""
        text = f"<pre>{html.escape(str(self))}</pre>"
        if self.verdict is Verdict.PASS:
            return text
        worst = None if self.worst is None else _plain(self.worst, steps=True)
        return text + pictures(worst, [("", plain(pair)) for pair in self.pairs])

    @property
    def deciding(self) -> list[str]:
        """Returns the stages beyond two evaluations that decided some column."""
        return [name for k, (name, count) in enumerate(self.stages.items()) if k and count.decided]

    @property
    def footer(self) -> str:
        """Returns the counts, the errors that would have shown, and the provenance."""
        c = self.counts
        parts = ", ".join(f"{part:.1%} at {error:.0e}" for error, part in self.power.items())
        power = f"a single wrong entry would show with probability {parts}" if parts else ""
        # In full mode zeros are compared one by one, as all entries are.
        if parts and self.zeros >= FEW_ZEROS and self.provenance.mode == "projected":
            power += f" (but for the {self.zeros:.0%} of the entries that are zero)"
        power += "\n" * bool(parts)
        if self.verdict is Verdict.FAIL:
            power = ""
        verdicts = "  ".join(f"{mode}: {verdict}" for mode, verdict in self.modes.items())
        head = f"{verdicts}   "
        if self.ways:  # the conclusion of what does not pass stands at the top
            passes = self.verdict is Verdict.PASS
            rows = self.matrix if passes else "\n".join(table_of(self.ways, list(self.modes)))
            head = f"{rows}\n"
        deciding = ", ".join(
            f"{name} ({count.decided})" for name, count in self.stages.items() if count.decided
        )
        # Two evaluations decide most checks, and then there is nothing to tell.
        decided = f"columns decided by {deciding}\n" if self.deciding else ""
        beyond = f"looked at as well: {', '.join(self.beyond)}\n" if self.beyond else ""
        return (
            f"{head}{_counted(c['comparisons'], 'comparison')}, "
            f"{c['identities']} identities, "
            f"{c['evaluations']} evaluations, {c['vjps']} vjps, {c['jvps']} jvps, "
            f"{c['probes']} probes\n"
            f"{decided}{beyond}{power}{certified_by(self.certificate)}"
            f"{self.provenance}{', certified' * self.certified}; {self.provenance.mode} mode, "
            f"seed={self.provenance.seed}, adjudge {self.provenance.adjudge}"
        )

    @property
    def matrix(self) -> str:
        """Returns the verdicts by way and mode, and one line that says which rule is at fault."""
        return "\n".join([*table_of(self.ways, list(self.modes)), self._conclusion])

    @property
    def _conclusion(self) -> str:
        failed = [one for one in self.findings if one.verdict is Verdict.FAIL]
        if failed and not any(one.mode for one in failed):
            return "the function itself is at fault, and not a rule"
        return conclusion(self.modes, self.ways)

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as plain data: strings, numbers, lists and dicts."""
        names = ["function", "verdict", "modes", "ways", "counts", "tolerance", "resolution"]
        names += ["left_out", "silent", "certified", "provenance", "file", "line"]
        return {
            "schema": "adjudge/1",
            **{name: plain(getattr(self, name)) for name in names},
            "findings": [{**found.to_dict(), "text": text_of(found)} for found in self.findings],
            "entries": [_plain(entry, steps=entry is self.worst) for entry in self.entries],
            "certificate": self.certificate and _plain(self.certificate, steps=False),
            "pairs": plain(tuple(self.pairs)),
            "power": {str(error): part for error, part in self.power.items()},
            "zeros": self.zeros,
            "stages": {name: count._asdict() for name, count in self.stages.items()},
            "beyond": [str(one) for one in self.beyond],
            "points": {name: report.to_dict() for name, report in self.points.items()},
            "faults": plain(tuple(self.faults)),
            "unjudged": plain(self.unjudged) if self.unjudged is not None else None,
            "slip": plain(self.slip),
        }


class GradcheckError(AdjudgeError, AssertionError, RuntimeError):
    """The error of a check that did not pass. Its whole `Report` is in `.report`."""

    def __init__(self, report: Report) -> None:
        """Makes the report the message. Its first line can be read without the rest."""
        super().__init__(str(report))
        self.report = report


def _plain(entry: Entry, *, steps: bool) -> dict[str, Any]:
    """Returns an entry as plain data: with the slopes by step, where it is the worst one, which a
    reader wants to see.
    """
    names = ["mode", "of", "wrt", "output", "input", "automatic", "reference", "error", "allowed"]
    names += ["steps"] * (steps and bool(entry.steps))
    found = {name: plain(getattr(entry, name)) for name in names} | {"method": how(entry.method)}
    return found if entry.enclosure is None else found | {"enclosure": entry.enclosure._asdict()}


Listener: TypeAlias = Callable[[Report], None]

_listeners: list[Listener] = []


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Has `listener` called with the report of every check that this process makes in the block.

    It is called once for each check, also where that is made at several points.
    """
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def tell(report: Report) -> Report:
    """Calls every listener with `report`, and returns it."""
    for listener in tuple(_listeners):
        listener(report)
    return report
