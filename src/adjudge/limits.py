"""Sizes from which a check goes another way to the same answer.

They change what a check costs, and no verdict. Tests make them small to reach with small problems
what otherwise only large ones do; there is no option for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Limits:
    """The sizes. Their values are ours."""

    block_bytes: int = 128 * 2**20
    """The largest table of rows that is held at once. A larger one is made in blocks of columns,
    each by a pass of reverse mode of its own, so that a Jacobian need not fit into memory."""
    kept_bytes: int = 2**20
    """The memory of all points together that are kept alive. Points of more than a sixteenth of it
    are not kept."""
    densest: float = 1 / 4
    """A table whose fullest row has more than this part of its entries is not grouped: there would
    be hardly fewer groups than columns, since all columns of that row need groups of their own."""
    recorded_numbers: int = 2**25
    """How many numbers are kept of what a function computed at a point, 256 MiB in float64. What is
    beyond them is computed again where it is asked for."""
    large: int = 2**17
    """From this many coordinates of x on a difference is extrapolated before a ladder of steps is
    taken. The truncation of so many entries adds up to more than two evaluations may be off by, and
    a ladder would take eight times as long and as much memory. From this many outputs on estimates
    are made again from values of f wherever they are asked for, and take no memory in between."""
    many: int = 2**20
    """From this many coordinates on two probes a leaf compare a narrow derivative with the wide
    one, since a large leaf has many entries that show the same error. A problem of one large leaf
    takes half of the vjps then."""


_LIMITS = ContextVar("limits", default=Limits())  # noqa: B039 the default is frozen


limits: Callable[[], Limits] = _LIMITS.get
"""Returns the limits that hold here."""


@contextmanager
def limited(**sizes: float) -> Iterator[None]:
    """Within the context the limits of these names have other values."""
    token = _LIMITS.set(replace(limits(), **sizes))  # type: ignore[arg-type]
    try:
        yield
    finally:
        _LIMITS.reset(token)
