"""This module finds out which of the proposed arguments work for a function, and judges it there.

A function works at its arguments where it returns finite floating-point numbers that change with
its arrays. It is judged as the test will judge it, with the same numbers.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import itertools
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import optree

from adjudge.engine import Arrays, AutodiffBackend, ByHand, backend_named, placed
from adjudge.errors import AdjudgeError
from adjudge.findings import Status, Verdict
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
    Parameter,
    Subject,
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


@dataclass(frozen=True)
class Convention:
    """How a derivative by hand is called for the gradient, or the tangent of the output."""

    code: str
    """The call. In it `b` stands for the derivative, `x` and `k` for the arguments and those with
    keywords, `y` for what the function returns, and `v` for the tangents."""
    run: Callable[[Function, Function, Sequence[Any], Any], Any]
    cached: bool = False
    """Whether the function returns what the derivative needs beside its output."""


ONE, TANGENTS = "gradient of one", "tangents last"
CONVENTIONS = {
    "cotangent last": Convention("{b}({x}, w{k})", lambda f, b, x, w: b(*x, w)),
    "cotangent first": Convention("{b}(w, {x}{k})", lambda f, b, x, w: b(w, *x)),
    "of the output": Convention("{b}(w, {y}{k})", lambda f, b, x, w: b(w, f(*x))),
    "cache": Convention("{b}(w, {y}[1])", lambda f, b, x, w: b(w, f(*x)[1]), cached=True),
    "cache first": Convention("{b}({y}[1], w)", lambda f, b, x, w: b(f(*x)[1], w), cached=True),
    ONE: Convention("w * {b}({x}{k})", lambda f, b, x, w: w * b(*x)),
    "gradients": Convention(
        "tuple(w * one for one in {b}({x}{k}))", lambda f, b, x, w: tuple(w * one for one in b(*x))
    ),
    "gradient of the output": Convention("w * {b}({y}{k})", lambda f, b, x, w: w * b(f(*x))),
    TANGENTS: Convention("{b}({x}, {v}{k})", lambda f, b, x, v: b(*x, *v)),
}
"""The ways in which libraries call a derivative by hand."""
COTANGENT = re.compile(
    r"(w|g|d|u|v|ct|dl|cot.*|.*grad.*|d_?(out|y|z|a).*|g[yz]|upstream.*|delta.*|err.*|seed|.*bar)$"
)
OUTPUT = re.compile(r"(y|z|s|a|out.*|result|probs|p)$")
TARGET = re.compile(r"(y|t|z|y_?true|targets?|labels?|.*_true|truth|a)$")
CACHE = re.compile(r"(cache.*|ctx|res|residuals?|saved|memory|tape)$")


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
        self.reason, self.stage = "no inputs were found for it", 0
        self.failed: dict[tuple[str, tuple[int, ...]], Found] = {}
        self.value = subject.find()
        self.functions = function_class(self.value) if subject.kind == "class" else None
        called = self.functions.call if self.functions else self.value
        self.parameters = parameters_of(called, subject.name)
        self.doc = "\n".join(str(one.__doc__ or "") for one in (self.value, called))

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
        return LeftOut(self.subject.label, self.reason)

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
        try:
            function = self._function(call)
            arrays = self._arrays(call)
            values = self._values(function, call, arrays)
            if values is None:
                return None
            moved = self._values(function, call, tuple(map(self._moved, arrays)))
        except Exception as error:  # whatever the function does with arguments that are not its own
            first = str(error).partition("\n")[0]
            self._note(1, f"no inputs were found for it ({type(error).__name__}: {first})")
            return None
        # a change of 1e-3 is seen in the values, unless it is lost in their rounding
        if moved is None or all(map(partial(np.allclose, rtol=1e-9, atol=0), values, moved)):
            self._note(4, "its value does not change with its inputs there")
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
        return self.backend.arrays.from_host(host * (1 + 1e-3) + 1e-4, array)

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

    def _note(self, stage: int, reason: str) -> None:
        if stage > self.stage:
            self.reason, self.stage = reason, stage

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
        try:
            report = examine(function, self._arrays(call), backend=self.backend, seed=0, **more)
        except Exception as error:  # of the function beside its arguments, or of its derivative
            found = error.found if isinstance(error, AdjudgeError) else str(error)
            first = found.partition("\n")[0]
            self._note(5, f"it cannot be checked ({type(error).__name__}: {first})")
            return None
        if report.verdict is Verdict.INCONCLUSIVE:
            first = report.outline.partition("\n")[0]
            self._note(5, f"its check is inconclusive ({first})")
            return None
        if _detached(report):
            self._note(6, "no derivative of it is recorded: its outputs are detached")
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
        ways = [
            (name, wrt)
            for name in self._conventions()
            if cached == CONVENTIONS[name].cached
            for wrt in (itertools.combinations(range(len(names)), 1) if name == ONE else [()])
        ]
        for name, wrt in ways:
            f = by_hand(name, function, derivative, call, wrt)
            report = self._report(f, call, wrt if len(names) > 1 else ())
            if report is not None:
                found = Found(self.subject, call, names, report.verdict, report.outline, wrt, name)
                if report.verdict is Verdict.PASS:
                    # it is called in this way, and so it was wrong where it failed before
                    return self.failed.get((name, wrt), found)
                self.failed.setdefault((name, wrt), found)
        said = self._said_by_names(derivative, call, names, cached=cached)
        if said not in self.failed:
            self._note(7, "it passes in no way of calling it, and its parameters do not say which")
        return self.failed.get(said)

    def _conventions(self) -> list[str]:
        if self.subject.kind == "jvp":
            return [TANGENTS]
        gradients = [name for name in CONVENTIONS if name.startswith("gradient")]
        others = [name for name in CONVENTIONS if name not in (*gradients, TANGENTS)]
        return [*gradients, *others] if self.subject.kind == "gradient" else others

    def _said_by_names(
        self, derivative: Function, call: Call, names: Sequence[str], *, cached: bool
    ) -> tuple[str, tuple[int, ...]]:
        """Returns the convention that the parameters of the derivative say, or "", and the array
        with respect to which it is.
        """
        found = parameters_of(derivative, self.subject.derivative) or []
        given = [one.name for one in found if one.required and not one.keyword]
        count, gradient = len(call.positional), self.subject.kind == "gradient"
        if self.subject.kind == "jvp":
            return TANGENTS if len(given) == 2 * count else "", ()
        if cached:
            if len(given) != 2:
                return "", ()
            return "cache first" if CACHE.match(given[0]) else "cache", ()
        if len(given) == count and gradient:
            if count == 1 and OUTPUT.match(given[0]):
                return "gradient of the output", ()
            return ONE, (next((k for k, name in enumerate(names) if not TARGET.match(name)), 0),)
        if len(given) not in (2, count + 1):
            return "", ()
        if COTANGENT.match(given[0]):
            of_output = len(given) == 2 and OUTPUT.match(given[1])
            return "of the output" if of_output else "cotangent first", ()
        return "cotangent last" if COTANGENT.match(given[-1]) else "", ()

    def _names(self, call: Call) -> tuple[str, ...]:
        """Returns a name for each array: that of its parameter, or of a variable of the example."""
        known = iter([one.name for one in self.parameters or [] if not one.several])
        positional = [next(known, given) or "x" for given, _ in call.positional]
        keys = [*positional, *(key for key, _ in call.keyword)]
        values = [one for _, one in (*call.positional, *call.keyword)]
        names: list[str] = []
        for key, value in zip(keys, values, strict=True):
            if not isinstance(value, Constant):
                copies = names.count(key) if key in names else 0
                names.append(f"{key}{len(names) + 1}" if copies else key)
        return tuple(names)


def by_hand(
    name: str, function: Function, derivative: Function, call: Call, wrt: tuple[int, ...]
) -> ByHand:
    """Returns a function with its derivative by hand, which is called by one of `CONVENTIONS`."""
    convention, count = CONVENTIONS[name], len(call.arrays)
    f = of_arrays(function, call)

    def forward(*x: Any) -> Any:
        return f(*x)[0] if convention.cached else f(*x)

    def backward(*x: Any) -> Any:
        args, named = arguments(call, x[:count])
        rest = x[count:] if name == TANGENTS else x[count]
        g = convention.run(partial(function, **named), partial(derivative, **named), args, rest)
        return tuple(g if k in wrt else None for k in range(count)) if wrt else g

    forward.__name__ = getattr(function, "__name__", name)
    return ByHand(forward, **{"jvp" if name == TANGENTS else "vjp": backward})


def _detached(report: Report) -> bool:
    """Returns whether nothing is wrong but that the engine recorded no derivative at all.

    So it is with functions that are not meant to be differentiated, such as metrics.
    """
    wrong = {one.status for one in report.findings if one.verdict is Verdict.FAIL}
    return wrong == {Status.DETACHED}


def arguments(call: Call, arrays: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Returns the arguments of a call with `arrays` in their places."""
    given = iter(arrays)
    args = [one.value if isinstance(one, Constant) else next(given) for _, one in call.positional]
    kwargs = {
        key: one.value if isinstance(one, Constant) else next(given) for key, one in call.keyword
    }
    return args, kwargs


def of_arrays(function: Function, call: Call) -> Function:
    """Returns the function of the arrays of a call alone: `function` itself where these are all."""
    if call.only_arrays:
        return function

    def of_the_arrays(*arrays: Any) -> Any:
        args, kwargs = arguments(call, arrays)
        return function(*args, **kwargs)

    of_the_arrays.__qualname__ = getattr(function, "__name__", type(function).__name__)
    return of_the_arrays
