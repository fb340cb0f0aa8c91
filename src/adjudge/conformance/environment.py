"""What the kit asks of a backend's environment: global state is afterwards what it was before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, TypeAlias

import numpy as np

from adjudge.conformance.subject import ConformanceError, Subject, bare
from adjudge.engine import AutodiffBackend

Disturbance: TypeAlias = tuple[Callable[[], object], Callable[[], object] | None]
"""What changes a piece of global state, and what reads it (`None` where `random_state()` does)."""

Disturbances: TypeAlias = Mapping[str, Disturbance]


class _Raised(Exception):
    """The exception that the kit raises inside of a context."""


def default_dtype(backend: AutodiffBackend) -> str:
    """Returns the dtype of arrays that are made without naming one."""
    return str(backend.xp.zeros(1).dtype)


def isolation(subject: Subject) -> None:
    """Checks that isolation restores the default dtype, whatever the leaves, and lets exceptions
    through.
    """
    arrays, environment = subject.arrays, subject.backend.environment
    before = default_dtype(subject.backend)
    state = environment.random_state()
    for dtype in subject.dtypes:
        leaf = arrays.make(np.ones(2), dtype)
        with environment.isolation([leaf]):
            product = arrays.info(leaf * 2.0)
            other = arrays.from_host(arrays.to_host(leaf), leaf)
        subject.equal(
            f"within isolation([{dtype}]): the dtype of twice the leaf", bare(product.dtype),
            dtype, "isolation must enter what the leaves need, such as a mode of 64 bits",
        )  # fmt: skip
        subject.equal(
            f"within isolation([{dtype}]): the dtype of from_host", bare(arrays.info(other).dtype),
            dtype, "isolation must enter what the leaves need, such as a mode of 64 bits",
        )  # fmt: skip
        for raising in (False, True):
            _left(subject, leaf, raising)
            subject.equal(
                f"after isolation([{dtype}]): the default dtype",
                default_dtype(subject.backend), before,
                "isolation must restore what it enters, also when an exception leaves it",
            )  # fmt: skip
        subject.equal(
            "random_state() after isolation", environment.random_state() == state, True,
            "isolation must not draw random numbers",
        )  # fmt: skip
    for name in ("widening", "widening_past_casts", "highest_precision"):
        with getattr(environment, name)() or nullcontext():
            pass
        subject.equal(
            f"after {name}(): the default dtype", default_dtype(subject.backend), before,
            f"{name} must restore what it enters",
        )  # fmt: skip


def _left(subject: Subject, leaf: Any, raising: bool, act: Callable[[], object] = dict) -> None:
    """Enters and leaves the isolation of `leaf` once, by an exception where asked for."""
    came_through = False
    try:
        with subject.backend.environment.isolation([leaf]):
            act()
            if raising:
                raise _Raised
    except _Raised:
        came_through = True
    subject.equal(
        "isolation passes exceptions on", came_through, raising, "do not catch in isolation()"
    )


def disturbed(subject: Subject, name: str, disturbance: Disturbance) -> None:
    """Checks that global state which is changed within isolation is restored afterwards."""
    act, read = disturbance
    look = subject.backend.environment.random_state if read is None else read
    leaf = subject.arrays.make(np.ones(2), subject.dtypes[0])
    before = look()
    for raising in (False, True):
        changed, replayed = False, True

        def disturb() -> None:
            nonlocal changed, replayed
            inside = look()
            act()
            changed = look() != inside
            if read is None:
                subject.backend.environment.set_random_state(inside)
                replayed = look() == inside
                act()

        _left(subject, leaf, raising, disturb)
        if not changed:
            raise ConformanceError(
                f"the disturbance {name!r} changes nothing",
                "give disturb={name: (what changes the state, what reads it)}"
                + (", and make random_state() comparable" if read is None else ""),
            )
        if not replayed:
            raise ConformanceError(
                f"{name} is another one after set_random_state(state)",
                "define set_random_state(): a function that draws is not repeatable without it",
            )
        if look() != before:
            raise ConformanceError(
                f"{name} is another one after isolation"
                + (" that an exception leaves" if raising else ""),
                "isolation must restore it",
            )
        subject.comparisons += 2


def randomness(subject: Subject, disturbances: Disturbances) -> None:
    """Checks that the random state can be compared, and that its restoration was tried where there
    is one.
    """
    environment = subject.backend.environment
    one, two = environment.random_state(), environment.random_state()
    subject.equal("random_state() read twice is the same", one == two, True, "return a value")
    subject.equal("hash(random_state())", hash(one), hash(two), "return something hashable")
    tried = any(read is None for _, read in disturbances.values())
    if one is not None and not tried:
        raise ConformanceError(
            "random_state() is not None, and nothing was given that draws random numbers",
            "pass disturb={'random state': (lambda: draw_a_number(), None)}",
        )
