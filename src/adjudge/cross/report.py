"""The report on a comparison of engines, its table, and the error that carries it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from adjudge._version import __version__
from adjudge.errors import AdjudgeError
from adjudge.findings import Status, Verdict, plain
from adjudge.report import Report, table_of, told_apart

VALUE = "value"
QUANTITIES = {"": VALUE, "R": "vjp", "F": "jvp"}
"""What a quantity is called in a sentence, where that is not by its modes."""


class Cause(Enum):
    """What a difference of two engines is put down to."""

    LASTING = auto()
    """The difference is the same at points around x."""
    ACCUSED = auto()
    """The differences of an engine contradict it."""
    HIDDEN = auto()
    """The function cannot show so small a part of its derivative, for its own rounding."""
    KINK = auto()
    NOT_FINITE_AT_KINK = auto()
    NOT_FINITE = auto()
    NARROW_INSIDE = auto()
    """The function computes in a narrower dtype inside."""
    STRAY = auto()
    """It is too large for rounding, and not the same at points around x."""
    LOST_DIGITS = auto()
    STRUCTURE = auto()
    """The results differ in structure, and `results` names their arrays."""
    SHAPE = auto()
    DTYPE = auto()
    VALUES = auto()
    """Results that are no floating numbers differ."""


CONSEQUENCES = {
    Cause.LASTING: (Status.MISMATCH, Verdict.FAIL),
    Cause.ACCUSED: (Status.MISMATCH, Verdict.FAIL),
    Cause.HIDDEN: (Status.INACCURATE, Verdict.PASS),
    Cause.KINK: (Status.NONSMOOTH, Verdict.INCONCLUSIVE),
    Cause.NOT_FINITE_AT_KINK: (Status.NONSMOOTH, Verdict.INCONCLUSIVE),
    Cause.NOT_FINITE: (Status.NONFINITE, Verdict.FAIL),
    Cause.NARROW_INSIDE: (Status.INACCURATE, Verdict.PASS),
    Cause.STRAY: (Status.INCONSISTENT, Verdict.INCONCLUSIVE),
    Cause.LOST_DIGITS: (Status.INACCURATE, Verdict.PASS),
}
"""The status and the verdict of two floating numbers that differ for such a cause."""

_CAUSES = {
    Cause.LASTING: "the difference is the same at points around x; rounding would change",
    Cause.ACCUSED: "their own differences say so",
    Cause.HIDDEN: "f could not show so small a part of its derivative, for its own rounding",
    Cause.KINK: "f has a kink or a jump at x, and the difference is gone beside it: both may be "
    "right",
    Cause.NOT_FINITE_AT_KINK: "f has a kink or a jump at x, and the difference is gone beside it: "
    "one is not finite",
    Cause.NOT_FINITE: "one of the two is not finite",
    Cause.NARROW_INSIDE: "f computes in a narrower dtype inside: it is another rounding at every "
    "point",
    Cause.STRAY: "too large for rounding, but not the same at points around x",
    Cause.LOST_DIGITS: "another one at every point around x: f loses digits on the way",
}


@dataclass(frozen=True)
class Divergence:
    """A difference of two engines in one quantity, at the entry that is farthest off."""

    quantity: str
    """`value`, `R`, `F`, `RR` and so on."""
    pair: tuple[str, str]
    status: Status
    verdict: Verdict
    """FAIL; INCONCLUSIVE where both may be right; PASS for a note."""
    entry: str
    numbers: tuple[float, float] | None
    """The number of the first engine and that of the second; `None` where the structure differs."""
    allowed: float
    apart: int
    compared: int
    accused: tuple[str, ...]
    """The engines that are wrong by their own differences."""
    cause: Cause
    results: tuple[str, str] = ("", "")
    """What the first and the second engine return, as it is printed, where there are no `numbers`.
    """
    outlier: bool = False
    """Whether the accused engine is the only one that the others do not agree with."""

    @property
    def text(self) -> str:
        """What differs, and what that means. The first line stands alone."""
        return "\n  ".join(_unlike(self) if self.numbers is None else _apart(self, self.numbers))

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**plain(self), "text": self.text}


def _unlike(found: Divergence) -> list[str]:
    """Results that differ in more than numbers."""
    (one, two), (here, there) = found.pair, found.results
    if found.cause is Cause.STRUCTURE:
        return [
            f"the results differ in structure: {here} on {one} and {there} on {two}",
            "return the same structure on every engine; nothing else is compared",
        ]
    if found.cause is Cause.VALUES:
        return [f"{found.entry} is {here} on {one} and {there} on {two}", NOT_COMPARED]
    what = found.cause.name.lower()
    return [
        f"{found.entry} has {what} {here} on {one} and {there} on {two}",
        f"return the same {what} on every engine; nothing else is compared",
    ]


NOT_COMPARED = "derivatives not compared: the values differ already"


def _apart(found: Divergence, numbers: tuple[float, float]) -> list[str]:
    """Two numbers for one entry."""
    names, blame = found.pair, ""
    quantity = QUANTITIES.get(found.quantity, found.quantity)
    if len(found.accused) > 1:
        blame = "; the differences of both accuse them"
    elif found.accused and not found.outlier:
        blame = f"; its own differences accuse {found.accused[0]}"
    against = f"; the others agree against {found.accused[0]}" if found.outlier else ""
    width = max(len("difference"), *map(len, names))
    lines = [
        f"{quantity}: {names[0]} and {names[1]} differ in {found.entry}: "
        f"{' and '.join(told_apart(*numbers))} ({found.apart} of {found.compared} numbers{blame})"
        f"{against}",
        *(f"{name:<{width}}  {n:.12g}" for name, n in zip(names, numbers, strict=True)),
        f"{'difference':<{width}}  {abs(numbers[0] - numbers[1]):.3g}   "
        f"(allowed {found.allowed:.3g})",
        _CAUSES[found.cause],
    ]
    derived = found.quantity == VALUE and found.verdict is Verdict.FAIL
    return [*lines, NOT_COMPARED] if derived else lines


class Omission(Enum):
    """Why something was not compared."""

    NO_DONOR = auto()
    """No other engine has derivatives that the differences of this one could judge."""
    DONATED = auto()
    """The differences of an engine without derivatives judge those of another one."""
    NOT_IN_DOUBLE = auto()
    """The function does not run in double precision on an engine."""
    OTHER_IN_DOUBLE = auto()
    """In double precision the function has another value than on every engine."""
    LACKING = auto()
    """An engine has no answer for a quantity."""
    EMPTY = auto()
    """There are no numbers in what the function returns."""


@dataclass(frozen=True)
class LeftOut:
    """Something that was not compared, and why."""

    omission: Omission
    engine: str = ""
    other: str = ""
    """The engine whose derivatives are judged instead; the quantity that is lacking."""
    reason: str = ""
    """What an exception says."""

    def __str__(self) -> str:
        """The divergence in one sentence."""
        reason = self.reason
        if self.omission is Omission.NOT_IN_DOUBLE:
            reason = reason or "it computes with less inside"
        return _OMISSIONS[self.omission].format(self.engine, self.other, reason)


_OMISSIONS = {
    Omission.NO_DONOR: "derivatives on {0}: no other engine has them",
    Omission.DONATED: "derivatives on {0}, which has none: those of {1} are held against its "
    "differences",
    Omission.NOT_IN_DOUBLE: "f in float64 on {0}: {2}",
    Omission.OTHER_IN_DOUBLE: "in float64 f has another value than on every engine",
    Omission.LACKING: "{1} on {0}: {2}",
    Omission.EMPTY: "numbers of the value, which is empty; its structure, shapes and dtypes agree",
}


@dataclass(frozen=True)
class CrossReport:
    """The outcome of one function on several engines. Truthy only when everything that was asked
    for was compared and agreed, between engines and with differences on each.
    """

    function: str
    verdict: Verdict
    backends: tuple[str, ...]
    reports: Mapping[str, Report]
    """The report of each engine on its derivatives against differences there. Where an engine has
    no derivatives, those of another one are carried over."""
    comparisons: Mapping[str, Mapping[str, int]]
    """By quantity and pair of engines, how many numbers were compared."""
    divergences: Sequence[Divergence]
    """They stand in the order values, vjps, jvps, second order, and notes are among them."""
    cells: Mapping[str, Mapping[str, str]]
    """The outcome by quantity and engine: it is PASS, FAIL, INCONCLUSIVE, UNSUPPORTED or RAISED;
    `not compared` where only its own differences speak for it, `-` where nothing does."""
    raised: Mapping[str, str]
    """Maps an engine to what f raised there."""
    omissions: Sequence[LeftOut]
    """What was not compared, and why."""
    held_against: str | None
    """The engine that all were held against; empty for one another, `None` where there was but one.
    """
    seed: int
    order: int

    def __bool__(self) -> bool:
        """Whether the verdict is PASS."""
        return self.verdict is Verdict.PASS

    @property
    def left_out(self) -> tuple[str, ...]:
        """`omissions` in words."""
        return tuple(map(str, self.omissions))

    @property
    def reference(self) -> str:
        """`held_against` in words."""
        if self.held_against is None:
            return "nothing to compare with"
        return f"held against {self.held_against or 'one another'}"

    @property
    def ranked(self) -> list[Divergence]:
        """Returns first the divergences that fail, then those that stayed open, then notes."""
        order = [Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS]
        return sorted(self.divergences, key=lambda d: order.index(d.verdict))

    @property
    def headline(self) -> str:
        """One line that stands alone: the first divergence, else what else kept it from a PASS."""
        head = f"{self.verdict} {self.function}: "
        if self._first is not None:
            return head + self._first.text.partition("\n")[0]
        if self._worst:
            return f"{head}on {self._worst}: {self.reports[self._worst].outline}"
        if self.raised:
            name, error = next(iter(self.raised.items()))
            return f"{head}it raises on {name}: {error}"
        if self.verdict is not Verdict.PASS:
            return head + (self.left_out[0] if self.left_out else "nothing was compared")
        count = sum(n for pairs in self.comparisons.values() for n in pairs.values())
        quantities = ", ".join(self.comparisons)
        return f"{head}{', '.join(self.backends)} agree in {count} numbers ({quantities})"

    @property
    def _first(self) -> Divergence | None:
        """The divergence that the verdict is due to, and the headline about."""
        if self.verdict is Verdict.PASS:
            return None
        return next((d for d in self.ranked if d.verdict is self.verdict), None)

    @property
    def _worst(self) -> str:
        """The engine whose own report the headline is about; empty where it is about none."""
        if self.verdict is Verdict.PASS or self._first is not None:
            return ""
        of_verdict = (name for name, r in self.reports.items() if r.verdict is self.verdict)
        return next(of_verdict, "")

    @property
    def table(self) -> str:
        """Outcomes by quantity and engine."""
        rows: Mapping[str, Mapping[str, Any]] = self.cells
        return "\n".join(table_of(rows, self.backends))

    def __str__(self) -> str:
        """The headline, every divergence, what each engine's differences say, and the table."""
        lines = [self.headline]
        for found in self.ranked:
            first, *rest = found.text.split("\n")
            lines += rest if found is self._first else [f"{found.status}: {first}", *rest]
        lines += [f"on {name}, f raises {error}" for name, error in self.raised.items()]
        lines += [
            f"on {name}: {report.headline}"
            for name, report in self.reports.items()
            if not report and name != self._worst
        ]
        lines += [f"note: {sentence}" for sentence in self.left_out]
        lines += [self.table, self.footer]
        return "\n".join(lines)

    @property
    def footer(self) -> str:
        """Counts and provenance."""
        pairs = "; ".join(
            f"{quantity}: " + ", ".join(f"{n} {pair}" for pair, n in found.items())
            for quantity, found in self.comparisons.items()
        )
        engines = ", ".join(
            f"{r.provenance.backend} {r.provenance.version}" for r in self.reports.values()
        )
        return (
            f"numbers compared: {pairs or 'none'}\n"
            f"{self.reference}; {engines or ', '.join(self.backends)}; order={self.order}, "
            f"seed={self.seed}, adjudge {__version__}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data: strings, numbers, lists and dicts."""
        names = ["function", "verdict", "backends", "comparisons", "cells", "raised"]
        names += ["left_out", "reference", "seed", "order"]
        return {
            "schema": "adjudge-cross/1",
            **{name: plain(getattr(self, name)) for name in names},
            "reports": {name: report.to_dict() for name, report in self.reports.items()},
            "divergences": [found.to_dict() for found in self.divergences],
            "adjudge": __version__,
        }

    def to_markdown(self) -> str:
        """The table for a page of documentation."""
        rows = [
            [quantity, *(row[name] for name in self.backends)]
            for quantity, row in self.cells.items()
        ]
        return _markdown([self.function, *self.backends], rows)


class CrosscheckError(AdjudgeError, AssertionError):
    """Engines that do not agree, or were not all compared; the `CrossReport` is in `.report`."""

    def __init__(self, report: CrossReport) -> None:
        """The message is the report; its first line stands alone."""
        super().__init__(str(report))
        self.report = report


def crosstable(reports: Sequence[CrossReport]) -> str:
    """Several reports as one Markdown table, a row a function and a column an engine. A cell is
    PASS, or the first quantity that is not, and what it is.
    """
    names = list(dict.fromkeys(name for report in reports for name in report.backends))
    rows = [[report.function, *(_summed(report, name) for name in names)] for report in reports]
    return _markdown(["function", *names], rows)


def _summed(report: CrossReport, name: str) -> str:
    cells = {quantity: row.get(name, "-") for quantity, row in report.cells.items()}
    for worse in (Verdict.FAIL, Status.RAISED, Verdict.INCONCLUSIVE):
        for quantity, cell in cells.items():
            if cell == worse:
                return f"{cell} ({quantity})"
    lacking = [quantity for quantity, cell in cells.items() if cell == Status.UNSUPPORTED]
    if Verdict.PASS not in cells.values():
        return "-"
    return f"PASS (without {', '.join(lacking)})" if lacking else str(Verdict.PASS)


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
