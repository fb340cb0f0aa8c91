"""What no evaluation may leave: `bounds=` as the lowest and the highest point of X."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from adjudge.errors import InputError
from adjudge.floats import Vector
from adjudge.problem.arguments import Path
from adjudge.problem.space import Leaf, Space

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


Values = NDArray[Any]
"""An input on the host, in float64 or complex128."""
Member = Callable[[Values], bool]
Domain: TypeAlias = str | tuple[float, float] | Member | None
"""Of one input: a name, `(low, high)`, or what says of a host array whether it belongs."""
Domains: TypeAlias = Domain | Mapping[Path, Domain]
"""Of all checked inputs, or by path."""

ABOVE_ZERO = float(np.nextafter(0.0, 1.0))
INTERVALS = {
    "positive": (ABOVE_ZERO, np.inf),
    "nonnegative": (0.0, np.inf),
    "unit": (0.0, 1.0),
}


def _symmetric(values: Values) -> bool:
    square = values.ndim >= 2 and values.shape[-1] == values.shape[-2]
    return square and bool(np.array_equal(values, np.conj(np.swapaxes(values, -1, -2))))


def _positive_definite(values: Values) -> bool:
    with np.errstate(all="ignore"):
        return _symmetric(values) and bool(np.all(np.linalg.eigvalsh(values) > 0))


MATRICES = {"symmetric": _symmetric, "positive definite": _positive_definite}


def domains_of(leaves: Sequence[Leaf], domain: Domains) -> tuple[Domain, ...]:
    """The domain of each leaf. Raises `InputError` for one without meaning."""
    by_path = domain if isinstance(domain, Mapping) else {"": domain}
    found: list[Domain] = [None] * len(leaves)
    for path, one in by_path.items():
        prefix = f"inputs[{path}]" if isinstance(path, int) else path
        named = [k for k, leaf in enumerate(leaves) if under(leaf.name, prefix)]
        if not named:
            raise InputError(
                f"domain= names {path!r}, which is no checked input; there are: "
                + ", ".join(leaf.name for leaf in leaves),
                "give a path as listed, or one domain for all",
            )
        for k in named:
            found[k] = _read(one, leaves[k])
    return tuple(found)


def _read(domain: Domain, leaf: Leaf) -> Domain:
    """`domain`, a name of an interval as its ends."""
    interval = INTERVALS.get(domain) if isinstance(domain, str) else None
    if interval is None and (domain is None or callable(domain) or domain in MATRICES):
        return domain
    pair = interval or domain
    try:
        low, high = (float(end) for end in pair)  # type: ignore[union-attr]
        sensible = low < high
    except (TypeError, ValueError):
        sensible = False
    if not sensible:
        names = ", ".join(f'"{name}"' for name in (*INTERVALS, *MATRICES))
        raise InputError(
            f"domain={domain!r} for {leaf.name}",
            f"give {names}, a pair of numbers (low, high), or a function of a NumPy array",
        )
    if leaf.complex:
        raise InputError(
            f"domain={domain!r} for {leaf.name}, which is complex",
            "an interval orders real numbers: give a function of a NumPy array",
        )
    return low, high


def contains(domain: Domain, values: Values) -> bool:
    """Whether all of `values` belong to `domain`, as `domains_of` gives it."""
    if isinstance(domain, tuple):
        return bool(np.all((domain[0] <= values) & (values <= domain[1])))
    member = MATRICES.get(domain) if isinstance(domain, str) else domain
    return member is None or bool(member(values))


def bounds_of(leaves: Sequence[Leaf], domains: Sequence[Domain]) -> Bounds:
    """The intervals among the domains, for the steps of differences to keep within."""
    pairs: dict[Path, tuple[Any, Any]] = {
        leaf.name: domain
        for leaf, domain in zip(leaves, domains, strict=True)
        if isinstance(domain, tuple)
    }
    return pairs or None
