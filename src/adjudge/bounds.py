"""What no evaluation may leave: `bounds=` as the lowest and the highest point of X."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from adjudge.arguments import Path
from adjudge.errors import InputError
from adjudge.spaces import Leaf, Space, Vector

Bounds = tuple[Any, Any] | Mapping[Path, tuple[Any, Any]] | None
"""A pair of numbers or arrays for all checked inputs, or by path such pairs."""


def named(space: Space, path: Path, option: str, remedy: str) -> list[int]:
    """The leaves at `path` or below it. Raises `InputError` where `option` names none."""
    prefix = f"inputs[{path}]" if isinstance(path, int) else path
    found = [j for j, leaf in enumerate(space.leaves) if under(leaf.name, prefix)]
    if not found:
        raise InputError(
            f"{option}= names {path!r}, which is no checked input; there are: "
            + ", ".join(leaf.name for leaf in space.leaves),
            remedy,
        )
    return found


def read_bounds(space: Space, origin: Vector, bounds: Bounds) -> tuple[Vector, Vector] | None:
    """The bounds of each coordinate. Raises `InputError` where they make no sense."""
    if bounds is None:
        return None
    low, high = np.full(space.size, -np.inf), np.full(space.size, np.inf)
    pairs = bounds if isinstance(bounds, Mapping) else {"": bounds}
    for path, pair in pairs.items():
        remedy = "give a path as listed, or one pair (low, high) for all"
        for j in named(space, path, "bounds", remedy):
            part = space.slices[j]
            low[part], high[part] = _pair(space.leaves[j], pair)
    empty, outside = ~(low < high), ~((low <= origin) & (origin <= high))
    for wrong, what in ((empty, "low is not below high"), (outside, "x lies outside")):
        if np.any(wrong):
            k = int(np.flatnonzero(wrong)[0])
            raise InputError(
                f"bounds=({low[k]:g}, {high[k]:g}) at {space.entry(k)}: {what} "
                f"(x is {origin[k]:g} there)",
                "give bounds with low < high that contain x",
            )
    return low, high


def under(name: str, prefix: str) -> bool:
    """Whether the leaf `name` is at the path `prefix` or below it."""
    return not prefix or name == prefix or (name.startswith(prefix) and name[len(prefix)] in "[.")


def _pair(leaf: Leaf, pair: Any) -> tuple[Vector, Vector]:
    if leaf.complex:
        raise InputError(
            f"bounds= for {leaf.name}, which is complex", "bounds order real numbers only"
        )
    try:
        low, high = (
            np.broadcast_to(np.asarray(side, dtype=np.float64), leaf.host_shape).reshape(-1)
            for side in pair
        )
    except (TypeError, ValueError) as error:
        raise InputError(
            f"bounds={pair!r} for {leaf.name} of shape {leaf.host_shape}: {error}",
            "give (low, high): two numbers, or arrays that broadcast to the input",
        ) from error
    return low, high
