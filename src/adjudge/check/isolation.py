"""This module watches global state during a check, and restores it afterwards."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random.mtrand import get_bit_generator

from adjudge.check.one_problem import Judgement
from adjudge.engine import Array
from adjudge.findings import (
    AdditionOrder,
    CoarseOperations,
    CoarseProducts,
    Detail,
    DrawsRandom,
    Finding,
    Remedy,
    Setting,
    Status,
    Unrepeatable,
    WritesUnchecked,
)
from adjudge.problem import Leaf, Problem


@dataclass
class Surroundings:
    """A record of what happened to the global state during a check."""

    drawn: bool = False
    """Whether a global random state was advanced; known when the check is over."""


@contextmanager
def surroundings(problem: Problem, *, highest: bool = False) -> Iterator[Surroundings]:
    """Restores the global state afterwards, also when the user's function raises, and yields a
    record of what happened to it.

    With `highest` the engine computes in its highest precision within this context, instead of
    the user's.
    """
    backend, seen = problem.backend, Surroundings()
    python, host = random.getstate(), _HostGenerator()
    try:
        with (
            backend.environment.isolation(problem.x),
            backend.environment.highest_precision() if highest else nullcontext(),
        ):
            engine = backend.environment.random_state()
            try:
                yield seen
            finally:
                seen.drawn = backend.environment.random_state() != engine
    finally:
        if random.getstate() != python:
            seen.drawn = True
            random.setstate(python)
        if host.has_moved():
            seen.drawn = True
            host.put_back()


class _HostGenerator:
    """NumPy's global random generator, as it is when this is made.

    NumPy copies the state number by number, which takes as long as two evaluations of a small
    function. Whether it has changed is therefore seen in memory, where NumPy says that it lies.
    """

    def __init__(self) -> None:
        """The state is copied."""
        self.state = _host_state()
        self.words = self._words()

    @staticmethod
    def _words() -> bytes | None:
        """Returns the numbers of a Mersenne Twister with the place of the next one; `None` where
        another generator was put in its place.
        """
        generator = get_bit_generator()
        if type(generator) is not np.random.MT19937:
            return None
        return ctypes.string_at(generator.ctypes.state_address, TWISTER_BYTES)

    def has_moved(self) -> bool:
        """Returns whether anything was drawn since."""
        # of two normal numbers the second is made with the first, and drawn without a step
        if self.words is not None and not self.state["has_gauss"]:
            return self._words() != self.words
        return not _same(self.state, _host_state())

    def put_back(self) -> None:
        """Sets the state to what it was."""
        np.random.set_state(self.state)  # noqa: NPY002 the global state is what is kept


def _host_state() -> dict[str, Any]:
    return dict(np.random.get_state(legacy=False))  # noqa: NPY002 the global state is watched


def _same(one: Any, two: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(_same(one[name], two[name]) for name in one)
    return bool(np.array_equal(one, two))


TWISTER_BYTES = 4 * (624 + 1)
"""The size of the state of a Mersenne Twister: 624 words and the place of the next one."""


def noticed(problem: Problem, seen: Surroundings, outcomes: Sequence[Judgement]) -> list[Finding]:
    """Returns notes on what the function did beside computing its value."""
    findings = [finding for outcome in outcomes for finding in outcome.findings]
    statuses = {finding.status for finding in findings}
    notes = []
    if seen.drawn:
        agreed = Status.NONDETERMINISTIC not in statuses
        remedy = None if agreed else Remedy.SEED_OR_PASS_RANDOM_NUMBERS
        notes.append(Finding(Status.DRAWS_RANDOM, "", "", DrawsRandom(agreed), remedy, note=True))
    notes += _coarse(problem, bool(statuses & _DIGITS))
    if any(isinstance(f.detail, Unrepeatable) and f.detail.rounding for f in findings):
        notes += _unrepeatable(problem)
    return notes + [
        Finding(Status.MUTATES_INPUT, "", name, WritesUnchecked(), note=True)
        for name in problem.mutated()
    ]


def _coarse(problem: Problem, asked: bool) -> Iterator[Finding]:
    """Yields a note on arithmetic that is narrower than the dtype, with the setting that makes it
    so. A setting that concerns some operations alone is noted only where `asked`.
    """
    backend = problem.backend
    setting_of = backend.environment.precision
    for leaf, array, setting in _set_by(problem, lambda array: setting_of(array).setting):
        info, eps = leaf.info, backend.effective_eps(array)
        detail: Detail
        if eps > backend.arrays.eps(array):
            detail = CoarseProducts(info.device, info.dtype, eps, setting)
            remedy = Remedy.USE_HIGHEST_PRECISION
        elif asked:
            detail = CoarseOperations(info.device, info.dtype, setting)
            remedy = Remedy.TRY_HIGHEST_PRECISION
        else:
            continue
        yield Finding(Status.IMPRECISE, "", leaf.name, detail, remedy, note=True)


def _unrepeatable(problem: Problem) -> Iterator[Finding]:
    """Yields a note that results on this device may differ from call to call, with the setting
    that makes them repeatable.
    """
    for leaf, _, setting in _set_by(problem, problem.backend.environment.determinism_setting):
        detail = AdditionOrder(leaf.info.device)
        remedy = Setting(setting)
        yield Finding(Status.NONDETERMINISTIC, "", leaf.name, detail, remedy, note=True)


def _set_by(
    problem: Problem, setting_of: Callable[[Array], str]
) -> Iterator[tuple[Leaf, Array, str]]:
    """Yields the first checked leaf for which the engine names a setting, its array, and the
    setting. Yields nothing where there is none.
    """
    for leaf, array in zip(problem.X.leaves, problem.x, strict=True):
        if setting := setting_of(array):
            yield leaf, array, setting
            return


_DIGITS = {
    *(Status.MISMATCH, Status.INACCURATE, Status.IMPRECISE, Status.UNRESOLVED),
    *(Status.INCONSISTENT, Status.REFERENCE),
}
"""The statuses that operations coarser than their dtype may lead to. Without this limit the note
on such settings would appear beside findings that they cannot explain. The choice is ours."""
