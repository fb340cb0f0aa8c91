"""Global state around a check: as it was afterwards, and watched meanwhile."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from adjudge.problem import Problem


@contextmanager
def surroundings(problem: Problem, *, highest: bool = False) -> Iterator[None]:
    """Global state as it was afterwards, also when the user's function raises.

    `highest`: within it the engine's highest precision, instead of the user's.
    """
    backend = problem.backend
    python = random.getstate()
    host = np.random.get_state()  # noqa: NPY002 the global state is what is kept
    try:
        with (
            backend.isolation(problem.x),
            backend.highest_precision() if highest else nullcontext(),
        ):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(host)  # noqa: NPY002 the global state is what is kept


def random_state(problem: Problem) -> object:
    """All global random states that the function could advance, comparable."""
    state: tuple[Any, ...] = tuple(np.random.get_state())  # noqa: NPY002 the global state is watched
    return (
        random.getstate(),
        tuple(part.tobytes() if hasattr(part, "tobytes") else part for part in state),
        problem.backend.random_state(),
    )
