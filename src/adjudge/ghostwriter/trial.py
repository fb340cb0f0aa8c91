"""This module finds out which of the proposed arguments work for a function, and judges it there.

A function works at its arguments where it returns finite floating-point numbers that change with
its arrays. It is judged as the test will judge it, with the same numbers.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import optree

from adjudge.engine import Arrays, AutodiffBackend, backend_named, placed
from adjudge.errors import AdjudgeError, Catching
from adjudge.findings import Status, Verdict
from adjudge.ghostwriter.conventions import arguments, by_hand, of_arrays, said_by_names, ways
from adjudge.ghostwriter.inputs import (
    MOST_CALLS,
    Call,
    Constant,
    constructors,
    examples,
    no_array,
    search,
)
from adjudge.ghostwriter.subjects import (
    LeftOut,
    Method,
    Parameter,
    Subject,
    Why,
    function_class,
    parameters_of,
)
from adjudge.report import Report
from adjudge.verbs import examine

MOST_CHECKS = 4
"""At so many inputs is a function judged whose check is inconclusive. The number is ours."""
Function = Callable[..., Any]


@dataclass(frozen=True)
class Found:
    """A function with the arguments of its test, and what adjudge said of it there."""

    subject: Subject
    call: Call
    names: tuple[str, ...]
    """A name for each array of the call."""
    verdict: Verdict
    outline: str
    wrt: tuple[int, ...] = ()
    """Which of the arrays are checked; all of them where it is empty."""
    convention: str = ""
    """How a derivative by hand is called, one of `CONVENTIONS`."""


def judged(subject: Subject, engine: str) -> Found | LeftOut:
    """Returns the arguments at which a test of `subject` is to be written, or why there is none."""
    backend = backend_named(engine)
    double = backend.arrays.make(np.zeros(1), "float64")
    with (
        backend.environment.isolation([double]),
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        return _Trial(subject, backend).run()


class _Trial:
    """The attempts at one function, and the reason of the one that came farthest."""

    def __init__(self, subject: Subject, backend: AutodiffBackend) -> None:
        self.subject, self.backend = subject, backend
        self.reason, self.stage, self.why = "no inputs were found for it", 0, Why.NO_INPUTS
        self.failed: dict[tuple[str, tuple[int, ...]], Found] = {}
        self.value = subject.find()
        self.functions = function_class(self.value) if subject.kind == "class" else None
        called = self.functions.call if self.functions else self.value
        self.doc = "\n".join(str(one.__doc__ or "") for one in (self.value, called))
        self.parameters = (
            called.parameters if isinstance(called, Method) else parameters_of(called, subject.name)
        )

    def run(self) -> Found | LeftOut:
        if name := no_array(self.parameters or ()):
            return LeftOut(self.subject.label, f"its parameter {name} is no array of numbers")
        checks = 0
        for call in itertools.islice(self._calls(), MOST_CALLS):
            function = self._working(call)
            if function is None:
                continue
            found = self._judged(function, call)
            if found is not None:
                return found
            checks += 1
            if checks == MOST_CHECKS:
                break
        return LeftOut(self.subject.label, self.reason, self.why)

    # ---------------------------------------------------------------- which arguments work

    def _calls(self) -> Iterator[Call]:
        constructed = self.functions is not None and self.functions.constructed
        for call in examples(self.doc, self.subject.name):
            if call.arrays and constructed == (call.constructor is not None):
                yield call
        if not constructed:
            yield from search(self.parameters or [Parameter("x", several=True)])
            return
        for held in constructors(parameters_of(self.value, self.subject.name) or []):
            for call in itertools.islice(search(self.parameters or []), MOST_CALLS // 6):
                yield Call(call.positional, call.keyword, held)

    def _working(self, call: Call) -> Function | None:
        """Returns the function of the call, if it works there."""
        # whatever the function does with arguments that are not its own
        with Catching(Exception) as caught:
            function = self._function(call)
            arrays = self._arrays(call)
            values = self._values(function, call, arrays)
            if values is None:
                return None
            moved = self._values(function, call, tuple(map(self._moved, arrays)))
            # A change of 1e-6 is seen in the values, unless it is lost in their rounding. A larger
            # one would take some number of a large array across a step of floor.
            close = partial(np.allclose, rtol=1e-9, atol=0)
            still = moved is None or all(map(close, values, moved))
        if caught.error is not None:
            first = f"{type(caught.error).__name__}: {caught.error}".partition("\n")[0]
            self._note(1, f"no inputs were found for it ({first.rstrip(': ')})")
            return None
        if still:
            self._note(4, "its value does not change with its inputs there", Why.NO_DERIVATIVE)
            return None
        return function

    def _function(self, call: Call) -> Function:
        if self.functions is None:
            function: Function = self.value
        elif call.constructor is None:
            function = self.functions.make()
        else:
            args, kwargs = arguments(call.constructor, ())
            function = self.functions.make(*args, **kwargs)
        return function

    def _arrays(self, call: Call) -> Arrays:
        rng = np.random.default_rng(0)
        return tuple(
            placed(self.backend, one.drawn(rng), None, None, name) for name, one in call.arrays
        )

    def _moved(self, array: Any) -> Any:
        if not self.backend.arrays.is_differentiable(array):
            return array
        host = self.backend.arrays.to_host(array)
        return self.backend.arrays.from_host(host * (1 + 1e-6) + 1e-7, array)

    def _values(self, function: Function, call: Call, arrays: Arrays) -> list[Any] | None:
        args, kwargs = arguments(call, arrays)
        if not any(map(self.backend.arrays.is_differentiable, arrays)):
            return None
        leaves = optree.tree_leaves(function(*args, **kwargs))
        owned = [one for one in leaves if self.backend.owns(one) or isinstance(one, np.floating)]
        floating = [one for one in owned if self.backend.arrays.is_differentiable(one)]
        hosts = [self.backend.arrays.to_host(one) for one in floating]
        if not any(host.size for host in hosts):
            self._note(2, "it returns no array of floating-point numbers")
            return None
        if not all(np.isfinite(host).all() for host in hosts):
            self._note(3, "its values are not finite at any input that was tried")
            return None
        return hosts

    def _note(self, stage: int, reason: str, why: Why = Why.NO_INPUTS) -> None:
        if stage > self.stage:
            self.reason, self.stage, self.why = reason, stage, why

    # ---------------------------------------------------------------- what adjudge says of it

    def _judged(self, function: Function, call: Call) -> Found | None:
        """Returns what adjudge says of the function there; `None` where it cannot tell."""
        names = self._names(call)
        if self.subject.derivative:
            return self._judged_by_hand(function, call, names)
        f, wrt = of_arrays(function, call), tuple[int, ...]()
        report = self._report(f, call)
        if report is None and len(names) > 1:
            # an engine may have no derivative with respect to some of the arrays
            each = range(len(names))
            wrt = tuple(k for k in each if self._report(f, call, (k,)) is not None)
            report = self._report(f, call, wrt) if wrt else None
        if report is None:
            return None
        return Found(self.subject, call, names, report.verdict, report.outline, wrt)

    def _report(self, function: Function, call: Call, wrt: tuple[int, ...] = ()) -> Report | None:
        """Returns the report, if it says that the derivative is right or wrong."""
        more: Any = {"wrt": wrt} if wrt else {}
        if self.subject.kind == "jvp":
            more = {"check_forward_ad": True, "check_backward_ad": False}
        more |= {"backend": self.backend, "seed": 0, "blame": False}
        # what the function raises beside its arguments, or its derivative
        with Catching(Exception) as caught:
            report = examine(function, self._arrays(call), **more)
        if (error := caught.error) is not None:
            found = error.found if isinstance(error, AdjudgeError) else str(error)
            first = found.partition("\n")[0]
            self._note(5, f"it cannot be checked ({type(error).__name__}: {first})", Why.RAISED)
            return None
        if report.verdict is Verdict.INCONCLUSIVE:
            reason = f"its check is inconclusive ({report.headline})"
            self._note(5, reason, Why.INCONCLUSIVE)
            return None
        if _detached(report):
            reason = "no derivative of it is recorded: its outputs are detached"
            self._note(6, reason, Why.NO_DERIVATIVE)
            return None
        return report

    # ---------------------------------------------------------------- derivatives by hand

    def _judged_by_hand(
        self, function: Function, call: Call, names: tuple[str, ...]
    ) -> Found | None:
        """Returns the first way of calling the derivative that passes; else the one that the names
        of its parameters say.

        A derivative that fails in each way is reported as wrong only where its parameters say in
        which way it is called: a right one must not be called in a wrong way.
        """
        if any(not isinstance(one, Constant) for _, one in call.keyword):
            return None  # a ByHand has its arrays by their places
        derivative = getattr(importlib.import_module(self.subject.module), self.subject.derivative)
        args, kwargs = arguments(call, self._arrays(call))
        cached = isinstance(function(*args, **kwargs), tuple)
        for name, wrt in ways(self.subject.kind, len(names), cached=cached):
            f = by_hand(name, function, derivative, call, wrt)
            report = self._report(f, call, wrt if len(names) > 1 else ())
            if report is not None:
                found = Found(self.subject, call, names, report.verdict, report.outline, wrt, name)
                if report.verdict is Verdict.PASS:
                    # it is called in this way, and so it was wrong where it failed before
                    return self.failed.get((name, wrt), found)
                self.failed.setdefault((name, wrt), found)
        found_parameters = parameters_of(derivative, self.subject.derivative) or []
        given = [one.name for one in found_parameters if one.required and not one.keyword]
        said = said_by_names(self.subject.kind, given, call, names, cached=cached)
        if said not in self.failed:
            reason = "it passes in no way of calling it, and its parameters do not say which"
            self._note(7, reason, Why.INCONCLUSIVE)
        return self.failed.get(said)

    def _names(self, call: Call) -> tuple[str, ...]:
        """Returns a name for each array: that of its parameter, or of a variable of the example."""
        placed = [one for one in self.parameters or [] if not (one.several or one.keyword)]
        known = iter([one.name for one in placed])
        positional = [next(known, given) or "x" for given, _ in call.positional]
        keys = [*positional, *(key for key, _ in call.keyword)]
        values = [one for _, one in (*call.positional, *call.keyword)]
        names: list[str] = []
        for key, value in zip(keys, values, strict=True):
            if not isinstance(value, Constant):
                copies = names.count(key) if key in names else 0
                names.append(f"{key}{len(names) + 1}" if copies else key)
        return tuple(names)


def _detached(report: Report) -> bool:
    """Returns whether nothing is wrong but that the engine recorded no derivative at all.

    So it is with functions that are not meant to be differentiated, such as metrics.
    """
    wrong = {one.status for one in report.findings if one.verdict is Verdict.FAIL}
    return wrong == {Status.DETACHED}
