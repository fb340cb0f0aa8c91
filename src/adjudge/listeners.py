"""Functions that are told of every finished report.

The pytest plugin counts the comparisons of a run in this way, without asking tests for reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from adjudge.report import Report

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
