"""Who is told of reports: whoever counts the comparisons of a run, a test runner say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from adjudge.report import Report

Listener: TypeAlias = Callable[[Report], None]

_listeners: list[Listener] = []


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Within it `listener` is called with the report of every check that this process makes: once
    a check, also where it is made at several points.
    """
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def tell(report: Report) -> Report:
    """`report`, after every listener has seen it."""
    for listener in tuple(_listeners):
        listener(report)
    return report
