"""What a comparison of engines found: the report, its table, and the error that carries it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from adjudge._version import __version__
from adjudge.errors import AdjudgeError
from adjudge.findings import Status, Verdict
from adjudge.report import Report, table_of

VALUE = "value"
QUANTITIES = {"": VALUE, "R": "vjp", "F": "jvp"}


def quantity(word: str) -> str:
    """What a word is called in a sentence: value, vjp, jvp, RR."""
    return QUANTITIES.get(word, word)


@dataclass(frozen=True)
class Divergence:
    """Where two engines differ in one quantity: the entry that is farthest off."""

    quantity: str
    """`value`, `R`, `F`, `RR` and so on."""
    pair: tuple[str, str]
    status: Status
    verdict: Verdict
    """FAIL; INCONCLUSIVE where both may be right; PASS for a note."""
    entry: str
    numbers: tuple[float, float] | None
    """That of the first engine and of the second; `None` where the structure differs."""
    allowed: float
    apart: int
    compared: int
    accused: tuple[str, ...]
    """The engines that are wrong by their own differences."""
    text: str
    """The first line stands alone."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "quantity": self.quantity,
            "pair": list(self.pair),
            "status": str(self.status),
            "verdict": str(self.verdict),
            "entry": self.entry,
            "numbers": None if self.numbers is None else [_plain(n) for n in self.numbers],
            "allowed": self.allowed,
            "apart": self.apart,
            "compared": self.compared,
            "accused": list(self.accused),
            "text": self.text,
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
    """By engine, its derivatives against differences there. Where an engine has no derivatives:
    those of another one, carried over."""
    comparisons: Mapping[str, Mapping[str, int]]
    """By quantity and pair of engines, how many numbers were compared."""
    divergences: Sequence[Divergence]
    """In the order values, vjps, jvps, second order; notes among them."""
    cells: Mapping[str, Mapping[str, str]]
    """By quantity and engine: PASS, FAIL, INCONCLUSIVE, UNSUPPORTED, RAISED; `not compared` where
    only its own differences speak for it, `-` where nothing does."""
    raised: Mapping[str, str]
    """By engine, what f raised there."""
    left_out: Sequence[str]
    """What was not compared, and why."""
    reference: str
    """What every engine was held against."""
    seed: int
    order: int

    def __bool__(self) -> bool:
        """Whether the verdict is PASS."""
        return self.verdict is Verdict.PASS

    @property
    def ranked(self) -> list[Divergence]:
        """What fails before what stayed open before notes; the first of all quantities first."""
        order = [Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS]
        return sorted(self.divergences, key=lambda d: order.index(d.verdict))

    @property
    def headline(self) -> str:
        """One line that stands alone: the first divergence, else what else kept it from a PASS."""
        head = f"{self.verdict} {self.function}: "
        first = next((d for d in self.ranked if d.verdict is self.verdict), None)
        if first is not None and self.verdict is not Verdict.PASS:
            return head + first.text.partition("\n")[0]
        for name, report in self.reports.items():
            if self.verdict is not Verdict.PASS and report.verdict is self.verdict:
                own = report.headline.removeprefix(f"{report.verdict} ")
                return f"{head}on {name}: {own}"
        if self.raised:
            name, error = next(iter(self.raised.items()))
            return f"{head}it raises on {name}: {error}"
        if self.verdict is not Verdict.PASS:
            return head + (self.left_out[0] if self.left_out else "nothing was compared")
        count = sum(n for pairs in self.comparisons.values() for n in pairs.values())
        words = ", ".join(self.comparisons)
        return f"{head}{', '.join(self.backends)} agree in {count} numbers ({words})"

    @property
    def table(self) -> str:
        """Outcomes by quantity and engine."""
        rows: Mapping[str, Mapping[str, Any]] = self.cells
        return "\n".join(table_of(rows, self.backends))

    def __str__(self) -> str:
        """The headline, every divergence, what each engine's differences say, and the table."""
        lines = [self.headline]
        for k, found in enumerate(self.ranked):
            first, _, rest = found.text.partition("\n")
            said = lines[0].endswith(first) and k == 0
            lines += [] if said else [f"{found.status}: {first}"]
            lines += [rest] if rest else []
        lines += [f"on {name}, f raises {error}" for name, error in self.raised.items()]
        lines += [
            f"on {name}: {report.headline}"
            for name, report in self.reports.items()
            if not report and not lines[0].endswith(report.headline.partition(" ")[2])
        ]
        lines += [f"note: {sentence}" for sentence in self.left_out]
        lines += [self.table, self.footer]
        return "\n".join(lines)

    @property
    def footer(self) -> str:
        """Counts and provenance."""
        pairs = "; ".join(
            f"{word}: " + ", ".join(f"{n} {pair}" for pair, n in found.items())
            for word, found in self.comparisons.items()
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
        return {
            "schema": "adjudge-cross/1",
            "function": self.function,
            "verdict": str(self.verdict),
            "backends": list(self.backends),
            "reports": {name: report.to_dict() for name, report in self.reports.items()},
            "comparisons": {word: dict(pairs) for word, pairs in self.comparisons.items()},
            "divergences": [found.to_dict() for found in self.divergences],
            "cells": {word: dict(row) for word, row in self.cells.items()},
            "raised": dict(self.raised),
            "left_out": list(self.left_out),
            "reference": self.reference,
            "seed": self.seed,
            "order": self.order,
            "adjudge": __version__,
        }

    def to_markdown(self) -> str:
        """The table for a page of documentation."""
        rows = [[word, *(row[name] for name in self.backends)] for word, row in self.cells.items()]
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
    cells = {word: row.get(name, "-") for word, row in report.cells.items()}
    for worse in (Verdict.FAIL, Status.RAISED, Verdict.INCONCLUSIVE):
        for word, cell in cells.items():
            if cell == worse:
                return f"{cell} ({word})"
    lacking = [word for word, cell in cells.items() if cell == Status.UNSUPPORTED]
    if Verdict.PASS not in cells.values():
        return "-"
    return f"PASS (without {', '.join(lacking)})" if lacking else str(Verdict.PASS)


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _plain(number: float) -> float | str:
    return number if np.isfinite(number) else str(number)
