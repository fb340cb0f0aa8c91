"""What every check of a run came to, as a file of JSON and as a page."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from adjudge.errors import InputError
from adjudge.suites import Ending, Result, RunReport, page, ready_for_page, try_to_write
from adjudge_pytest.run import Run, Test

REASON = "its test passed, or was expected to fail"


def at_start(run: Run) -> None:
    """Ends a run before its tests whose files could not be written after them."""
    try:
        for path in run.files:
            try_to_write(path)
        if run.settings.html is not None:
            ready_for_page()
    except InputError as error:
        raise pytest.UsageError(f"adjudge: {error}") from error


def result_of(test: Test, report: Any) -> dict[str, Any]:
    """The result of a check of a test, as plain data. Its time begins at the end of the check
    before it.
    """
    test.checks += 1
    start, test.since = test.since, time.perf_counter()
    file, line, _ = test.item.location
    return Result(
        test.item.nodeid + (f" ({test.checks})" if test.checks > 1 else ""),
        Ending.JUDGED,
        report.provenance.seed,
        test.since - start,
        report.verdict,
        report.outline,
        report.to_dict(),
        str(report),
        None,
        file,
        (line or 0) + 1,
    ).to_dict()


def write(run: Run) -> None:
    """Writes the files that were asked for."""
    results = [Result.from_dict(json.loads(text)) for text in run.results.values()]
    report = RunReport(results, run.settings.seed, time.perf_counter() - run.start)
    if run.settings.json is not None:
        run.settings.json.write_text(report.to_json(), encoding="utf-8")
    if run.settings.html is not None:
        excused = dict.fromkeys(run.expected, REASON)
        run.settings.html.write_text(page(report, excused), encoding="utf-8")
