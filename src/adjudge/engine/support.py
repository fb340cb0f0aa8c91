"""What several adapters need: settings that are put back, and memory layouts that are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

THIN = 16
"""An array that spans more than this times its entries is a thin slice of something large. A copy
with its strides would allocate the large thing again. The factor is ours; nothing was measured."""


class Setting(NamedTuple):
    """A piece of an engine's global state."""

    read: Callable[[], Any]
    write: Callable[[Any], object]


@contextmanager
def restored(*settings: Setting) -> Iterator[None]:
    """Returns a context after which the settings are what they were, also after an exception.

    They are put back in the order given, and only where they changed.
    """
    before = [setting.read() for setting in settings]
    try:
        yield
    finally:
        for setting, value in zip(settings, before, strict=True):
            if setting.read() != value:
                setting.write(value)


def memory_span(shape: Sequence[int], strides: Sequence[int]) -> int | None:
    """Returns how many entries of memory an array spans, from its first entry to its last one.

    `strides` are counted in entries, and their signs do not matter. The answer is `None` where a
    new array should not be given these strides: where an entry of memory stands for several entries
    of the array, or where the array is a thin slice of something large.
    """
    span = entries = 1
    for step, count in sorted(
        (abs(step), count) for step, count in zip(strides, shape, strict=True) if count > 1
    ):
        if step < span:
            return None
        span += (count - 1) * step
        entries *= count
    return None if span > THIN * entries else span
