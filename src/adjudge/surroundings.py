"""Global state around a check: as it was afterwards, and watched meanwhile."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from adjudge.problem import Problem


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
            backend.isolation(problem.x),
            backend.highest_precision() if highest else nullcontext(),
        ):
            engine = backend.random_state()
            try:
                yield seen
            finally:
                seen.drawn = backend.random_state() != engine
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
