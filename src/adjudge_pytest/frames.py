"""Frames of adjudge's own code in what a test raises."""

from __future__ import annotations

import itertools
import sys
from types import TracebackType


def leave_out_own(error: BaseException) -> None:
    """Takes adjudge's own frames out of the traceback of `error`, unless that is adjudge's mistake.

    Where an input is not as it should be, or the function that is checked raises, a reader looks
    for the line of the test or of the function, which stand before and behind some twenty others.
    """
    errors = sys.modules.get("adjudge.errors")
    if errors is None:
        return
    if not isinstance(error, errors.AdjudgeError) and (
        errors.source_of(error) is errors.Source.ADJUDGE
    ):
        return
    # pytest holds on to the first one of these, so that it is the links that are changed
    traces = list(_traces(error.__traceback__))
    kept = [trace for trace in traces[1:] if not _is_own(trace)]
    for one, following in itertools.pairwise([*traces[:1], *kept, None]):
        assert one is not None
        one.tb_next = following


def _traces(trace: TracebackType | None) -> list[TracebackType]:
    found = []
    while trace is not None:
        found.append(trace)
        trace = trace.tb_next
    return found


def _is_own(trace: TracebackType) -> bool:
    name = str(trace.tb_frame.f_globals.get("__name__"))
    package = name.partition(".")[0]
    return package == "adjudge" or package.startswith("adjudge_")
