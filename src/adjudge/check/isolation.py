"""This module watches global state during a check, and restores it afterwards."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

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
    python = random.getstate()
    host: Any = np.random.get_state()  # noqa: NPY002 the global state is what is kept
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
        if not _same(np.random.get_state(), host):  # noqa: NPY002 the global state is watched
            seen.drawn = True
            np.random.set_state(host)  # noqa: NPY002 the global state is what is kept


def _same(a: Any, b: Any) -> bool:
    return all(
        np.array_equal(one, two) if isinstance(one, np.ndarray) else one == two
        for one, two in zip(a, b, strict=True)
    )


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
    for leaf, array, setting in _set_by(
        problem, lambda array: backend.environment.precision(array).setting
    ):
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
