"""Points that random inputs miss: zeros, ties, ±1, identities, saturation, integers, extremes."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

Host = np.ndarray
Change = Callable[[Host], Host]


def with_zeros(count: int) -> Change:
    """The first `count` entries replaced by zero."""

    def change(x: Host) -> Host:
        if x.size <= count:
            raise ValueError("all entries would be zero")
        moved = x.copy()
        moved.reshape(-1)[:count] = 0.0
        return moved

    return change


def cycle(*values: float) -> Change:
    """Entries that run through `values` again and again."""
    return lambda x: np.resize(np.asarray(values, x.dtype), x.shape)


def matrices(make: Callable[[int], Host]) -> Change:
    """`make(n)` in place of every square matrix of the last two axes."""

    def change(x: Host) -> Host:
        if x.ndim < 2 or x.shape[-1] != x.shape[-2] or x.shape[-1] < 2:
            raise ValueError("no square matrix")
        return np.broadcast_to(make(x.shape[-1]), x.shape).astype(x.dtype)

    return change


def repeated(n: int) -> Host:
    """A symmetric matrix that is not diagonal, with one simple eigenvalue and one repeated."""
    ones = np.ones((n, n)) / n
    return 2.0 * np.eye(n) + 3.0 * ones


CHANGES: dict[str, Change] = {
    "a zero": with_zeros(1),
    "two zeros": with_zeros(2),
    "zeros": np.zeros_like,
    "equal entries": lambda x: np.full_like(x, 0.5),
    "±1": cycle(1.0, -1.0),
    "identity": matrices(np.eye),
    "repeated eigenvalue": matrices(repeated),
    "±40": cycle(40.0, -40.0),
    "integers and halves": cycle(-1.0, 0.5, -2.0, -1.5, 3.0),
    "huge": cycle(1e30, -3e30),
}
"""What is done to every input, by the name of the point."""


def moved(inputs: Sequence[Host]) -> tuple[Host, ...]:
    """Every number changed by about a third, of itself and of one."""
    rng = np.random.default_rng(0)
    return tuple(
        x * (1 + 0.3 * rng.standard_normal(x.shape)) + 0.3 * rng.standard_normal(x.shape)
        for x in inputs
    )


def special(inputs: Sequence[Host]) -> Iterator[tuple[str, tuple[Host, ...]]]:
    """The points made of `inputs`, each at most once; inputs that a point does not suit stay."""
    seen = {key(inputs)}
    for name, change in CHANGES.items():
        moved = [_tried(change, x) for x in inputs]
        if all(m is None for m in moved):
            continue
        point = tuple(x if m is None else m for x, m in zip(inputs, moved, strict=True))
        if key(point) not in seen:
            seen.add(key(point))
            yield name, point
    if len(inputs) > 1 and len({(x.shape, x.dtype) for x in inputs}) < len(inputs):
        first: dict[Any, Host] = {}
        yield "equal arguments", tuple(first.setdefault((x.shape, x.dtype), x) for x in inputs)


def key(inputs: Sequence[Host]) -> tuple[Any, ...]:
    """What tells two points apart."""
    return tuple((x.shape, x.tobytes()) for x in inputs)


def _tried(change: Change, x: Host) -> Host | None:
    try:
        return change(x) if x.size else None
    except ValueError:
        return None
