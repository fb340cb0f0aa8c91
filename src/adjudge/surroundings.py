"""Global state around a check: as it was afterwards, and watched meanwhile."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from adjudge.problem import Problem


RandomState = tuple[object, object, object]


@contextmanager
def surroundings(problem: Problem) -> Iterator[RandomState]:
    """Global state as it was afterwards, also when the user's function raises. Gives the random
    states at the beginning, to compare `random_state` with.
    """
    python = random.getstate()
    host = np.random.get_state()  # noqa: NPY002 the global state is what is kept
    try:
        with problem.backend.isolation(problem.x):
            yield python, _comparable(host), problem.backend.random_state()
    finally:
        random.setstate(python)
        np.random.set_state(host)  # noqa: NPY002 the global state is what is kept


def random_state(problem: Problem) -> RandomState:
    """All global random states that the function could advance, comparable."""
    host = np.random.get_state()  # noqa: NPY002 the global state is watched
    return random.getstate(), _comparable(host), problem.backend.random_state()


def _comparable(state: Any) -> tuple[Any, ...]:
    return tuple(part.tobytes() if hasattr(part, "tobytes") else part for part in state)
