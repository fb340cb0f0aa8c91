"""This module judges one case, in whichever process or thread that happens.

A task is what travels there. A case that a file or module declares travels as its place, and is
found there again; any other is pickled. A check changes settings of its process and restores them,
so that one process judges one case at a time, whatever threads it has.
"""

from __future__ import annotations

import contextvars
import hashlib
import importlib.util
import math
import pickle
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from adjudge.check import IN_TURN
from adjudge.engine import is_array_like
from adjudge.errors import AdjudgeError, Catching, InputError
from adjudge.findings import Verdict
from adjudge.problem import flatten
from adjudge.report import Report, reproduction
from adjudge.suites.collect import declared_at
from adjudge.suites.results import Ending, Place, Result
from adjudge.verbs import Case

HOME = Path(__file__).parents[1]


@dataclass(frozen=True)
class Task:
    """One case on its way to whoever judges it. One of `case`, `pickled` and `place` says which."""

    name: str
    seed: int
    file: str
    """The file with the line at which the case is made."""
    line: int
    place: Place | None = None
    """Where the case is declared, if it was collected."""
    case: Case | None = None
    """The case itself, within one process."""
    pickled: bytes | None = None
    """The case on its way to another process."""
    reference: str | None = None
    """The reference of a case that has none of its own."""

    def found(self) -> Case:
        """Returns the case."""
        if self.case is not None:
            return self.case
        if self.pickled is not None:
            case = pickle.loads(self.pickled)  # noqa: S301 made by the process that runs the suite
            assert isinstance(case, Case)
            return case
        assert self.place is not None
        return declared_at(self.place)


def pickled(name: str, case: Case, *, by_value: bool) -> bytes:
    """Returns a case as bytes that another process can read.

    Functions that no module has by name, such as lambdas, can be pickled where cloudpickle is
    installed. It also takes those of the main module by value, which a process needs that does not
    import the main module of this one; with `by_value` it goes first.

    Raises:
        InputError: The case cannot be pickled.
    """
    modules = ["pickle"]
    if importlib.util.find_spec("cloudpickle"):
        modules.insert(0 if by_value else 1, "cloudpickle")
    reason = ""
    for module in modules:
        try:
            data = importlib.import_module(module).dumps(case)
            assert isinstance(data, bytes)
            return data
        except (pickle.PicklingError, TypeError, AttributeError, ValueError, RuntimeError) as error:
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
    raise InputError(
        f"case {name!r} cannot be sent to another process ({reason})",
        "define its function in a module, install cloudpickle, or run with executor=None",
    )


def seed_of(seed: int, name: str, case: Case) -> int:
    """Returns the seed of a case: its own, or one that depends on the seed of the run and the name
    alone, so that the order of cases changes nothing.
    """
    own = case.options.get("seed")
    if own is not None:
        return int(own)
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:4], "big")


_turn = threading.Lock()
"""Held while this process judges a case."""


def judge(task: Task, timeout: float | None = None) -> Result:
    """Judges a case where this is called.

    With a timeout it is judged by a thread. Where that takes longer it is given up: a thread cannot
    be stopped, so it goes on for itself, and may slow down what is judged after it.
    """
    with _turn:
        if timeout is None:
            return _judged(task)
        results: list[Result] = []
        context = contextvars.copy_context()  # NumPy's errstate of the caller, for example
        context.run(IN_TURN.set, False)
        thread = threading.Thread(
            target=lambda: results.append(context.run(_judged, task)), daemon=True
        )
        thread.start()
        thread.join(timeout)
        return results[0] if results else timed_out(task, timeout)


def _judged(task: Task) -> Result:
    start = time.perf_counter()
    try:
        case = task.found()
        asked: dict[str, Any] = {"seed": task.seed}
        if case.options.get("reference") is None:
            asked["reference"] = task.reference
        report = case.run(**asked)
    except (Exception, SystemExit) as error:  # whatever the user's code does is a line of the run
        return raised(task, time.perf_counter() - start, error)
    result = judged(task, time.perf_counter() - start, report)
    return result if report else replace(result, script=_script(case, report, asked))


def _script(case: Case, report: Report, asked: Mapping[str, Any]) -> str:
    """Returns a script that repeats the check; none where it would be too long to be read."""
    leaves = flatten((case.inputs, case.options.get("kwargs")), "").leaves
    numbers = sum(math.prod(leaf.shape) for leaf in leaves if is_array_like(leaf))
    if case.order != 1 or numbers > MOST_NUMBERS:
        return ""
    options = {**case.options, **asked, "seed": report.provenance.seed}
    options.pop("executor", None)
    # An object of the user need not say what it is; the verdict stands.
    with Catching(Exception) as caught:
        return reproduction(case.f, case.inputs, **options)
    first, _, _ = str(caught.error).partition("\n")
    return f"# No script could be written: {type(caught.error).__name__}: {first}\n"


MOST_NUMBERS = 128
"""A case with more numbers than this has no script: nobody reads them. The value is ours."""


def judged(task: Task, seconds: float, report: Report) -> Result:
    """Returns the result of a case that has a report."""
    return Result(
        task.name,
        Ending.JUDGED,
        report.provenance.seed,
        seconds,
        report.verdict,
        report.outline,
        report.to_dict(),
        str(report),
        task.place,
        task.file,
        task.line,
    )


def raised(task: Task, seconds: float, error: BaseException) -> Result:
    """Returns the result of a case that raised, with the frames that are not adjudge's own."""
    return _without_report(task, Ending.RAISED, seconds, *what_was_raised(error))


def what_was_raised(error: BaseException) -> tuple[str, str]:
    """Returns what a case raised in one line, and with the frames that are not adjudge's own."""
    if isinstance(error, AdjudgeError):
        return str(error).replace("\n ", ":", 1).partition("\n")[0], str(error)
    first = str(error).partition("\n")[0]
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not Path(frame.filename).is_relative_to(HOME)]
    lines = traceback.format_list(own) + traceback.format_exception_only(error)
    return f"raised {type(error).__name__}: {first}{notes}", "".join(lines).rstrip()


def timed_out(task: Task, timeout: float) -> Result:
    """Returns the result of a case that took too long."""
    headline = f"timed out: no verdict within {timeout:g} s"
    return _without_report(task, Ending.TIMED_OUT, timeout, headline)


def died(task: Task, how: str) -> Result:
    """Returns the result of a case whose process ended under it."""
    return _without_report(task, Ending.DIED, 0.0, f"its process died ({how})")


def _without_report(
    task: Task, ending: Ending, seconds: float, headline: str, details: str = ""
) -> Result:
    return Result(
        task.name,
        ending,
        task.seed,
        seconds,
        Verdict.FAIL,
        headline,
        None,
        details,
        task.place,
        task.file,
        task.line,
    )
