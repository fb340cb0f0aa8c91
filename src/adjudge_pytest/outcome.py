"""What an exemption makes of a test: skipped, expected to fail, or overdue."""

from __future__ import annotations

from typing import Any

import pytest

from adjudge.engine import registry
from adjudge_pytest import engines, exemptions
from adjudge_pytest.options import Settings
from adjudge_pytest.run import Test

STILL = "it passes now"


def before(test: Test, engine: str, settings: Settings) -> None:
    """Skips the test where its engine is absent or has not got the device, or an exemption says so
    and is still true.
    """
    if reason := engines.why_left_out(engine, settings.devices):
        if engine in settings.required:
            pytest.fail(f"engine '{engine}' is required, and {reason}", pytrace=False)
        test.tallies.of(engine).absent = reason
        _skip(test, reason)
    if test.item.config.getoption("runxfail"):
        return
    backend = registry.backend_named(engine)
    for exemption in exemptions.of(test.item, engine):
        if not exemption.skips:
            continue
        if why := exemption.untrue(backend):
            test.overdue = exemption.expired(why)
        elif exemption.lacks or exemption.below or not settings.run_skipped:
            _skip(test, exemption.reason)


def _skip(test: Test, reason: str) -> None:
    test.skipped = True
    pytest.skip(reason)


def after(
    test: Test, engine: str, error: BaseException | None, report: Any, settings: Settings
) -> None:
    """Turns a failure that was expected into an expected one, and a pass into a failure."""
    expected = [
        one
        for one in exemptions.of(test.item, engine)
        if not one.skips or (settings.run_skipped and not one.lacks and not one.below)
    ]
    if not expected or report.skipped or test.overdue or test.subtest_failed:
        return
    if error is None:
        report.outcome = "failed"
        report.longrepr = _failure(test.item, "\n".join(one.expired(STILL) for one in expected))
        return
    reasons = {one: one.unlike(error) for one in expected}
    if all(reasons.values()):
        said = "\n".join(f"{one.mark}({one.reason!r}): {why}" for one, why in reasons.items())
        report.sections.append(("adjudge: not the failure that is expected", said))
        return
    report.outcome = "skipped"
    report.wasxfail = next(one.reason for one, why in reasons.items() if why is None)


def _failure(item: pytest.Item, text: str) -> Any:
    """What a report says of `pytest.fail(text)`: before pytest 9 a plain text has no place in the
    short summary.
    """
    try:
        pytest.fail(text, pytrace=False)
    except pytest.fail.Exception as error:
        return item.repr_failure(pytest.ExceptionInfo.from_exception(error))


def expects_failure(item: pytest.Item, engine: str) -> bool:
    """Whether the test is to be judged as a whole."""
    return any(not one.skips for one in exemptions.of(item, engine))
