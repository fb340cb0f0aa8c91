"""Global state around a check: as it was afterwards, and watched meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from adjudge.check.one_problem import Judgement
from adjudge.engine import Array
from adjudge.findings import Finding, Status
from adjudge.problem import Leaf, Problem


@dataclass
class Surroundings:
    """What happened to the global state during a check."""

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
    found = [finding.status for outcome in outcomes for finding in outcome.findings]
    draws = _DRAWS
    if Status.NONDETERMINISTIC in found:
        first, _, _ = draws.text.partition("\n")
        draws = replace(
            draws, text=f"{first}\n  seed it inside of the function, or pass the numbers in"
        )
    notes = [draws] * seen.drawn + [*_coarse(problem, {*found} & _DIGITS != set())]
    if any(finding.rounding for outcome in outcomes for finding in outcome.findings):
        notes += _unrepeatable(problem)
    return notes + [
        Finding(
            Status.MUTATES_INPUT,
            "",
            name,
            f"the function writes into {name}, which is not checked\n"
            "  every evaluation had a copy of its own, so the comparison stands",
            note=True,
        )
        for name in problem.written()
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
        if eps > backend.arrays.eps(array):
            text = f"products of {info.dtype} on {info.device} are computed to {eps:.1e}: {setting}"
            remedy = "allowed for here; highest_precision=True checks without it"
        elif asked:
            text = f"on {info.device} some operations round otherwise than {info.dtype}: {setting}"
            remedy = "if they are used here, see what is left without it: highest_precision=True"
        else:
            continue
        yield Finding(Status.IMPRECISE, "", leaf.name, f"{text}\n  {remedy}", note=True)


def _unrepeatable(problem: Problem) -> Iterator[Finding]:
    """Why results on this device may differ from call to call, with what makes them repeatable."""
    for leaf, _, setting in _set_by(problem, problem.backend.environment.determinism_setting):
        yield Finding(
            Status.NONDETERMINISTIC,
            "",
            leaf.name,
            f"on {leaf.info.device} additions may be done in another order at every call\n"
            f"  {setting}",
            note=True,
        )


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

_DRAWS = Finding(
    Status.DRAWS_RANDOM,
    "",
    "",
    "the function advances the global random state\n"
    "  its results agreed where they were compared; the state is restored after the check",
    note=True,
)
