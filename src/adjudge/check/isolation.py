"""Global state around a check: as it was afterwards, and watched meanwhile."""

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
    """Global state as it was afterwards, also when the user's function raises.

    `highest`: within it the engine's highest precision, instead of the user's.
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
    """What the function did beside computing its value."""
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
    """Arithmetic that is narrower than the dtype, by the setting that makes it so. Of settings
    that concern some operations alone nothing is said unless `asked`.
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
    """Why results on this device may differ from call to call, with what makes them repeatable."""
    for leaf, _, setting in _set_by(problem, problem.backend.environment.determinism_setting):
        detail = AdditionOrder(leaf.info.device)
        remedy = Setting(setting)
        yield Finding(Status.NONDETERMINISTIC, "", leaf.name, detail, remedy, note=True)


def _set_by(
    problem: Problem, setting_of: Callable[[Array], str]
) -> Iterator[tuple[Leaf, Array, str]]:
    """The first checked leaf of which the engine names a setting, its array, and the setting."""
    for leaf, array in zip(problem.X.leaves, problem.x, strict=True):
        if setting := setting_of(array):
            yield leaf, array, setting
            return


_DIGITS = {
    *(Status.MISMATCH, Status.INACCURATE, Status.IMPRECISE, Status.UNRESOLVED),
    *(Status.INCONSISTENT, Status.REFERENCE),
}
"""What operations that are coarser than their dtype look like."""
