"""The hook that others may implement."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.hookspec
def pytest_adjudge_report(report: Any, item: pytest.Item) -> None:
    """Called with the `adjudge.Report` of every check that a test makes, as soon as it is made, in
    the process that runs the test.
    """
