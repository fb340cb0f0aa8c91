"""What a function did at a point, as a straight-line program (an evaluation trace, a Wengert list).

The program has one step for each operation or custom rule that ran, in the order in which they ran:
what was called is walked into, and loops are unrolled. An adapter records it, and nothing in here
knows of a framework. The name of a step, its static parameters and its operands say what was
computed, and its `run` computes it again from other operands.
"""

from __future__ import annotations

import inspect
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from adjudge.errors import in_words
from adjudge.limits import limits

Value: TypeAlias = Any
"""An array of the engine."""
Values: TypeAlias = tuple[Value, ...]

INPUT = -1
"""The number that a reference to an input of the program has in place of that of a step."""


class Ref(NamedTuple):
    """A value of a program: a result of a step, or an input of the program where `step` is
    `INPUT`.
    """

    step: int
    number: int


Operand: TypeAlias = Ref | Value
"""A reference, or the value itself where it is a constant or is closed over."""


class Place(NamedTuple):
    """A line of source; without a file where that is not known."""

    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        """Returns `norms.py:31`, as much of the path as `file` has."""
        return f"{self.file}:{self.line}" if self.file else "(source not known)"


UNKNOWN = Place()


@dataclass(frozen=True, eq=False)
class Step:
    """One operation or custom rule of a program, as it ran."""

    name: str
    """What was called, in the engine's own words: `sin`, `SafeNorm.apply`."""
    run: Callable[[Values], Values]
    """Returns the results for other operands. It takes all of them, also those of integers, writes
    into none, and carries the engine's derivatives."""
    operands: tuple[Operand, ...]
    results: int
    """How many arrays it gives. A step without results handed its value to the program around the
    arrays (`item`)."""
    static: Mapping[str, Hashable] = field(default_factory=dict)
    """Its parameters that are no arrays, as what can be compared."""
    place: Place = UNKNOWN
    """The line of the user's code that called it."""
    module: str = ""
    """The path of the module, or of the named scope, in which it ran."""
    custom: bool = False
    """Whether its derivative was written by hand, and is no part of the engine."""
    rule: str = ""
    """The name of what computes its derivative, where it is custom: `SafeNorm.backward`."""
    rule_place: Place = UNKNOWN
    """Where that is defined."""
    forward_rule: str = ""
    """The same for forward mode, where it has a rule of its own: `SafeNorm.jvp`."""
    forward_place: Place = UNKNOWN
    """Where that is defined."""
    marked: tuple[int, ...] = ()
    """The operands that are values and marked for differentiation: parameters closed over."""
    closed_over: tuple[int, ...] = ()
    """The operands that are arrays which the function closes over, and of which the engine cannot
    say whether a derivative is meant to be taken for them."""
    differentiates: bool = False
    """Whether it is where the function takes a derivative of its own. It has no results then: what
    the derivative consists of is not recorded."""
    under: str = ""
    """The setting under which it was called and derivatives are not recorded: `no_grad`."""
    opaque: str = ""
    """Why it cannot be run again, in words that follow its name; empty where it can."""
    iterations: int = 0
    """Where it is several iterations of a loop, of which others are steps of their own: how
    many."""
    holds: tuple[int, ...] = ()
    """The steps of these others. What is wrong in one of them is wrong in this one as well."""


class Hook(NamedTuple):
    """What a program calls with the cotangent of a value on its way back, and may change it."""

    value: Ref
    name: str
    place: Place
    """Where it is defined."""


class Evaluation:
    """The values of a program at some inputs, as far as they fit into a budget of memory.

    Beyond it the results of every second step are dropped, then of every second one that is left,
    and what was dropped is computed again when it is asked for. Neighbours are asked for together,
    so that a walk through the whole program, in either direction, computes each step about once.
    (Checkpointing as in Griewank and Walther, Evaluating Derivatives, chapter 12; that the
    checkpoints are equally spaced is ours, since a program's length is not known while it runs.)
    """

    def __init__(self, inputs: Values, steps: Sequence[Step]) -> None:
        """There are no results at first; `steps` may grow together with them."""
        self.inputs, self.steps = inputs, steps
        self._budget = limits().recorded_numbers
        self._kept: dict[int, Values] = {}
        self._again: dict[int, Values] = {}
        """What was computed again lately."""
        self._count = 0
        self._every = 1

    def add(self, k: int, results: Values) -> None:
        """Takes the results of step `k`, into which nothing is written later. Those of a step that
        cannot be run again are kept whatever they take.
        """
        if self._is_dropped(k):
            return
        self._kept[k] = results
        self._count += _numbers(results)
        while self._count > self._budget and self._every <= len(self.steps):
            self._every *= 2
            self._drop(self._is_dropped)

    def cut(self, start: int) -> None:
        """Forgets the results from step `start` on."""
        self._drop(lambda k: k >= start)

    def _is_dropped(self, k: int) -> bool:
        return k % self._every != 0 and not self.steps[k].opaque

    def _drop(self, is_dropped: Callable[[int], bool]) -> None:
        for k in [k for k in self._kept if is_dropped(k)]:
            self._count -= _numbers(self._kept.pop(k))

    def results(self, k: int) -> Values:
        """Returns the results of step `k`."""
        found = self._found(k)
        if found is not None:
            return found
        if sum(map(_numbers, self._again.values())) > self._budget // 2:
            here = k // self._every
            self._again = {j: one for j, one in self._again.items() if j // self._every == here}
        needed, asked = set(), [k]
        while asked:
            j = asked.pop()
            if j not in needed and self._found(j) is None:
                needed.add(j)
                asked += _references(self.steps[j])
        for j in sorted(needed):
            self._again[j] = self.steps[j].run(self.operands(j))
        return self._again[k]

    def _found(self, k: int) -> Values | None:
        return self._kept[k] if k in self._kept else self._again.get(k)

    def operands(self, k: int) -> Values:
        """Returns the operands of step `k`."""
        return self.values(self.steps[k].operands)

    def values(
        self, operands: Iterable[Operand], live: Mapping[int, Values] | None = None
    ) -> Values:
        """Returns what these operands stand for; `live` are results that are at hand."""
        found = []
        for one in operands:
            if not isinstance(one, Ref):
                found.append(one)
            elif one.step == INPUT:
                found.append(self.inputs[one.number])
            else:
                results = live[one.step] if live is not None else self.results(one.step)
                found.append(results[one.number])
        return tuple(found)


def _references(step: Step) -> Iterator[int]:
    """Yields the steps whose results a step takes."""
    return (one.step for one in step.operands if isinstance(one, Ref) and one.step != INPUT)


def _numbers(results: Values) -> int:
    return sum(math.prod(one.shape) for one in results)


@dataclass(frozen=True, eq=False)
class Trace:
    """What a function did at a point, as a straight-line program."""

    steps: Sequence[Step]
    recorded: Evaluation
    """The values that were recorded."""
    outputs: tuple[Operand, ...]
    cotangents: Callable[[Values], tuple[Sequence[Values], Values]] | None = None
    """Returns what the engine itself hands back while it pulls back cotangents of the outputs: the
    cotangent of each result of each step, and those of the inputs. `None` stands where it hands
    back nothing, and in place of the function where an engine does not show this."""
    hooks: Sequence[Hook] = ()
    """The hooks that were set on values while it ran, as far as an engine shows them."""

    @property
    def inputs(self) -> Values:
        """The inputs at which it was recorded."""
        return self.recorded.inputs

    def replay(self, inputs: Values) -> Evaluation:
        """Returns the values of the program at other inputs. An opaque step has those that were
        recorded.
        """
        evaluation = Evaluation(inputs, self.steps)
        last = {j: k for k, step in enumerate(self.steps) for j in _references(step)}
        live: dict[int, Values] = {}
        for k, step in enumerate(self.steps):
            if step.opaque:
                live[k] = self.recorded.results(k)
            else:
                live[k] = step.run(evaluation.values(step.operands, live))
            evaluation.add(k, live[k])
            for j in {k, *_references(step)}:
                if last.get(j, k) == k:
                    del live[j]
        return evaluation


class Watcher(ABC):
    """Who is shown some of the calls of a program while it runs: see `AutodiffBackend.watching`."""

    every: bool
    """Whether calls of rules are wanted that are part of the engine as well."""

    @abstractmethod
    def ready(self) -> bool:
        """Returns whether a call may be wanted now. An engine that slows a program down by looking
        at its calls does so only then.
        """

    @abstractmethod
    def wanted(self, rule: Hashable) -> bool:
        """Returns whether the call of `rule` that follows is to be shown. It is asked before each
        call of which a derivative may be taken, in the thread that watches.
        """

    @abstractmethod
    def seen(self, step: Step | None, results: Values = ()) -> None:
        """Takes the call that was wanted, after it was made: a step all of whose operands are
        values, copied before the call, and its results; those operands that a derivative is taken
        for are `marked`. `None` stands for a call that computes no arrays.
        """

    @abstractmethod
    def unseen(self, rule: Hashable, reason: str) -> None:
        """Takes note of a call that has no values to be shown, as under compilation, and why."""

    def unrecorded(self, rule: Hashable, error: Exception) -> None:
        """Takes note of a call that was made and could not be looked at, since that raised `error`.

        Whatever goes wrong there must not end the program. What is no fault of the code of others,
        which is marked, is one of adjudge, and the tests of this library let it through here.
        """
        self.unseen(rule, f"cannot be recorded: {in_words(error)}")


CORE = str(Path(__file__).parents[1])
"""The folder of this library, whose frames are no code of the user."""


def place_of(frames: Iterable[tuple[str, int]], engine: str) -> Place:
    """Returns the innermost line of the user's code.

    Args:
        frames: The files and lines of a stack, the innermost frame first.
        engine: The folder of the engine, whose frames are left out.
    """
    for file, line in frames:
        if file.startswith(CORE + os.sep):  # it called the user's function
            break
        if not file.startswith((engine + os.sep, "<frozen", "<eval_with_key>")):
            return Place(file, line)
    return UNKNOWN


def innermost(function: Any) -> Any:
    """Returns the function whose code runs where `function` is called: that inside of decorators
    and of `functools.partial`, and the `__call__` of an object.
    """
    while True:
        inner = inspect.unwrap(function)
        if isinstance(inner, partial):
            inner = inner.func
        elif callable(inner) and not isinstance(inner, type) and not hasattr(inner, "__code__"):
            call = type(inner).__call__
            inner = call if hasattr(call, "__code__") else inner
        if inner is function:
            return function
        function = inner


def defined_at(function: Any) -> Place:
    """Returns where the code stands that runs where a function is called."""
    code = getattr(innermost(function), "__code__", None)
    return Place(code.co_filename, code.co_firstlineno) if code else UNKNOWN
