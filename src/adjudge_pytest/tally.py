"""What was compared, by engine: of one test, and summed over a run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

PROPERTY = "adjudge"
"""The property of a test's report that carries its tallies, as JSON, to the process that sums."""


@dataclass
class Tally:
    """The checks on one engine."""

    version: str = ""
    devices: list[str] = field(default_factory=list)
    comparisons: int = 0
    checks: int = 0
    failed: int = 0
    expected: int = 0
    """Checks that failed in a test that passed, or that was expected to fail."""
    inconclusive: int = 0
    absent: str = ""
    """Why tests were skipped for want of this engine."""

    def add(self, other: Tally) -> None:
        """Counts `other`, too."""
        self.version = other.version or self.version
        self.devices += [device for device in other.devices if device not in self.devices]
        self.comparisons += other.comparisons
        self.checks += other.checks
        self.failed += other.failed
        self.expected += other.expected
        self.inconclusive += other.inconclusive
        self.absent = other.absent or self.absent

    def __str__(self) -> str:
        """`torch 2.13.0 (cpu): 120 comparisons in 14 checks, 0 failed`, but for the name."""
        devices = f" ({', '.join(self.devices)})" if self.devices else ""
        if not self.checks:
            return f": 0 comparisons (skipped: {self.absent})" if self.absent else ": 0 comparisons"
        expected = f", {_count(self.expected, 'expected failure')}" if self.expected else ""
        unsure = f", {self.inconclusive} inconclusive" if self.inconclusive else ""
        return (
            f" {self.version}{devices}: {_count(self.comparisons, 'comparison')} in "
            f"{_count(self.checks, 'check')}, {self.failed} failed{expected}{unsure}"
        )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


class Tallies(dict[str, Tally]):
    """Tallies by the name of the engine."""

    def of(self, engine: str) -> Tally:
        """The tally of `engine`, which begins at zero."""
        return self.setdefault(engine, Tally())

    def count(self, report: Any) -> None:
        """Counts an `adjudge.Report`."""
        where, verdict = report.provenance, str(report.verdict)
        self.of(where.backend).add(
            Tally(
                where.version,
                [where.device],
                report.counts["comparisons"],
                checks=1,
                failed=int(verdict == "FAIL"),
                inconclusive=int(verdict == "INCONCLUSIVE"),
            )
        )

    def expect_failures(self) -> None:
        """Counts the checks that failed as failures that were expected.

        A test that passes has dealt with the failures of its checks: it plants a wrong derivative
        and catches the exception, or looks at the report. In the summary of a run such checks must
        not look like the ones that somebody has to mend.
        """
        for tally in self.values():
            tally.expected += tally.failed
            tally.failed = 0

    def add(self, other: Mapping[str, Tally]) -> None:
        """Counts `other`, too."""
        for engine, tally in other.items():
            self.of(engine).add(tally)

    def properties(self) -> list[tuple[str, object]]:
        """For a test's report, JUnit XML and other processes: strings and numbers."""
        checked = {engine: tally for engine, tally in sorted(self.items()) if tally.checks}
        found: list[tuple[str, object]] = [
            (f"{PROPERTY}.{engine}.comparisons", tally.comparisons)
            for engine, tally in checked.items()
        ]
        if checked:
            failed = any(tally.failed for tally in checked.values())
            unsure = any(tally.inconclusive for tally in checked.values())
            verdict = "FAIL" if failed else "INCONCLUSIVE" if unsure else "PASS"
            found.append((f"{PROPERTY}.verdict", verdict))
        if self:
            plain = {engine: asdict(tally) for engine, tally in sorted(self.items())}
            found.append((PROPERTY, json.dumps(plain)))
        return found


def is_ours(name: str) -> bool:
    """Whether a property of this name comes from `Tallies.properties`."""
    return name.partition(".")[0] == PROPERTY


def from_properties(properties: Iterable[tuple[str, object]]) -> Tallies:
    """The inverse of `Tallies.properties`."""
    return Tallies(
        {
            engine: Tally(**values)
            for name, text in properties
            if name == PROPERTY
            for engine, values in json.loads(str(text)).items()
        }
    )
