"""What a function did at a point, as a straight-line program (an evaluation trace, a Wengert list).

The program has one step for each operation or custom rule that ran, in the order in which they ran:
what was called is walked into, and loops are unrolled. An adapter records it, and nothing in here
knows of a framework. The name of a step, its static parameters and its operands say what was
computed, and its `run` computes it again from other operands.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

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
    results: Values
    """The values that were recorded. Later steps do not write into them. A step without results
    handed its value to the program around the arrays (`item`)."""
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
    marked: tuple[int, ...] = ()
    """The operands that are values and marked for differentiation: parameters closed over."""
    opaque: str = ""
    """Why it cannot be run again, in words that follow its name; empty where it can."""


@dataclass(frozen=True, eq=False)
class Trace:
    """What a function did at a point, as a straight-line program."""

    inputs: Values
    steps: Sequence[Step]
    outputs: tuple[Operand, ...]
    cotangents: Callable[[Values], tuple[Sequence[Values], Values]] | None = None
    """Returns what the engine itself hands back while it pulls back cotangents of the outputs: the
    cotangent of each result of each step, and those of the inputs. `None` stands where it hands
    back nothing, and in place of the function where an engine does not show this."""

    def replay(self, inputs: Values) -> list[Values]:
        """Returns the results of every step for other inputs. An opaque step has those that were
        recorded.
        """
        values: list[Values] = []
        for step in self.steps:
            operands = tuple([self._value(one, inputs, values) for one in step.operands])
            values.append(step.results if step.opaque else step.run(operands))
        return values

    def operands(self, k: int) -> Values:
        """Returns the recorded values of the operands of step `k`."""
        step = self.steps[k]
        return tuple([self._value(one, self.inputs, self.recorded) for one in step.operands])

    @cached_property
    def recorded(self) -> list[Values]:
        """The results of every step that were recorded."""
        return [step.results for step in self.steps]

    def outputs_of(self, inputs: Values, values: Sequence[Values]) -> Values:
        """Returns the outputs that belong to the results which `replay` returned."""
        return tuple([self._value(one, inputs, values) for one in self.outputs])

    @staticmethod
    def _value(operand: Operand, inputs: Values, values: Sequence[Values]) -> Value:
        if not isinstance(operand, Ref):
            return operand
        return (inputs if operand.step == INPUT else values[operand.step])[operand.number]


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
    def seen(self, step: Step | None) -> None:
        """Takes the call that was wanted, after it was made: a step all of whose operands are
        values, copied before the call; those that a derivative is taken for are `marked`. `None`
        stands for a call that computes no arrays.
        """

    @abstractmethod
    def unseen(self, rule: Hashable, reason: str) -> None:
        """Takes note of a call that has no values to be shown, as under compilation, and why."""


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
