"""One run of pytest: which test is on, what it compared, and the sums of all."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from adjudge_pytest.listening import Listening
from adjudge_pytest.options import Settings
from adjudge_pytest.tally import Tallies, from_properties, is_ours

RESULTS = "adjudge_results"
"""The attribute of a test's report that carries what its checks came to, to the process that writes
files. It is no property of the test, which would be in JUnit's XML, too."""
MOST_REPORTS = 5
"""Of one test, printed with its failure."""


@dataclass
class Test:
    """The test that is on."""

    item: pytest.Item
    tallies: Tallies = field(default_factory=Tallies)
    reports: list[Any] = field(default_factory=list)
    """What did not pass."""
    running: bool = False
    """Whether its body runs; what is reported meanwhile are subtests."""
    subtest_failed: bool = False
    seed: int | None = None
    """Of its random arrays and probes, where it has the fixture."""
    overdue: str = ""
    """Why its exemption is no longer true."""
    skipped: bool = False
    """Whether the plugin skipped it."""
    results: dict[str, str] = field(default_factory=dict)
    """What its checks came to, by name, as JSON, where a file of the run is to hold it."""
    checks: int = 0
    since: float = field(default_factory=time.perf_counter)
    """When it began, or its last check ended."""


class Run:
    """See the module."""

    def __init__(self, settings: Settings) -> None:
        """`settings`: what the user chose."""
        self.settings = settings
        self.totals = Tallies()
        self.test: Test | None = None
        self.listening = Listening(self.hear)
        self.complaints: list[str] = []
        """Why the run fails; known at its end."""
        self.files = [path for path in (settings.json, settings.html) if path is not None]
        self.results: dict[str, str] = {}
        """What the checks of all tests came to, by name, as JSON."""
        self.expected: set[str] = set()
        """The names of those whose test passed."""
        self.start = time.perf_counter()
        self._failing: set[str] = set()
        """The node ids of tests of which a part has failed and whose teardown is to come."""

    def begin(self, item: pytest.Item) -> Test:
        """The test that is on from now on. Rerun, it begins anew."""
        self.listening.begin()
        if self.test is None or self.test.item is not item:
            self.test = Test(item)
        return self.test

    def hear(self, report: Any) -> None:
        """Counts a report for the test that is on; one outside of tests is nobody's."""
        if self.test is None:
            return
        self.test.tallies.count(report)
        if not report:
            self.test.reports.append(report)
        if self.files:
            from adjudge_pytest import files

            result = files.result_of(self.test, report)
            self.test.results[result["name"]] = json.dumps(result)
        item = self.test.item
        item.ihook.pytest_adjudge_report(report=report, item=item)

    def note(self, item: pytest.Item) -> None:
        """Writes what the test has compared so far into the properties of its reports."""
        if self.test is None or self.test.item is not item:
            return
        kept = [(name, value) for name, value in item.user_properties if not is_ours(name)]
        item.user_properties[:] = [*kept, *self.test.tallies.properties()]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Counts what a test, here or in another process, has compared: at its end, when it is
        known whether it failed.
        """
        results = getattr(report, RESULTS, {})
        self.results |= results
        if report.outcome not in ("passed", "skipped"):  # "rerun", of other plugins, is a failure
            self._failing.add(report.nodeid)
        if report.when == "teardown":
            tallies = from_properties(report.user_properties)
            if report.nodeid not in self._failing:
                tallies.expect_failures()
                self.expected |= {*results}
            self._failing.discard(report.nodeid)
            self.totals.add(tallies)

    def missed(self) -> list[str]:
        """Required engines on which nothing was compared."""
        return [
            name
            for name in self.settings.required
            if name not in self.totals or not self.totals[name].comparisons
        ]


def raised(error: BaseException | None) -> Iterator[Any]:
    """The reports that a traceback shows, since an error in its chain has them as its message."""
    while error is not None:
        if (report := getattr(error, "report", None)) is not None:
            yield report
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def section(test: Test, error: BaseException | None) -> str:
    """What stands under a failure: every report that did not pass and is not in the traceback, and
    how to see it again.
    """
    reports = []
    if not test.running:  # then it is a subtest, which has raised its report
        # Doors raise a copy of the report, with another name for the function. The report of a
        # crosscheck has no findings of its own.
        shown = [getattr(one, "findings", None) for one in raised(error)]
        reports = [one for one in test.reports if not any(one.findings is f for f in shown)]
    lines = [str(report) for report in reports[:MOST_REPORTS]]
    if len(reports) > MOST_REPORTS:
        lines.append(f"and {len(reports) - MOST_REPORTS} more reports that did not pass")
    if test.seed is not None and not test.overdue and (test.reports or error is not None):
        chosen = test.item.config.getoption("adjudge_seed")
        lines.append(
            f"random arrays and probes of this test: seed {test.seed}; "
            f"the same again with --adjudge-seed {chosen}"
        )
    return "\n\n".join(lines)


RUN = pytest.StashKey[Run]()
