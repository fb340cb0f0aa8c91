"""Points that random inputs miss: exact zeros, equal arguments, repeated eigenvalues, and so on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, overload

import numpy as np

from adjudge.engine import Arrays, AutodiffBackend, HostArray
from adjudge.errors import InputError
from adjudge.floats import Vector
from adjudge.problem import (
    ABOVE_ZERO,
    Arguments,
    Bounds,
    Domain,
    Domains,
    Path,
    Space,
    bounds_of,
    contains,
    domains_of,
    read_arguments,
    read_bounds,
)

ALONE = 4
"""Up to this many checked inputs each is also moved alone, the others staying as they are."""


@dataclass(frozen=True)
class SpecialPoint:
    """One point: what it is called, and the arguments there."""

    name: str
    inputs: Any
    """As the inputs were given: a tuple of arguments, or one argument."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SpecialPoints(Sequence[SpecialPoint]):
    """The special points within a domain, and the names of those outside of it."""

    points: tuple[SpecialPoint, ...]
    left_out: tuple[str, ...]
    bounds: Bounds
    """What steps about these points keep within: the bounds given, or those of the domain."""

    @overload
    def __getitem__(self, index: int) -> SpecialPoint: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[SpecialPoint, ...]: ...
    def __getitem__(self, index: int | slice) -> SpecialPoint | tuple[SpecialPoint, ...]:
        """The point at that place."""
        return self.points[index]

    def __len__(self) -> int:
        """How many points there are."""
        return len(self.points)


@dataclass(frozen=True)
class Given:
    """A checked input as it was given, on the host, and what its dtype holds."""

    values: HostArray
    smallest: float
    """The smallest normal number of the dtype."""
    largest: float
    domain: Domain

    @cached_property
    def count(self) -> HostArray:
        """0, 1, 2, ... in the shape of the input."""
        return np.arange(self.values.size, dtype=np.float64).reshape(self.values.shape)

    @cached_property
    def signs(self) -> HostArray:
        """The signs of the given values, 1 for zeros; ones for complex values."""
        if self.values.dtype.kind == "c":
            return np.ones(self.values.shape)
        return np.where(self.values < 0, -1.0, 1.0)

    def full(self, value: Any) -> HostArray:
        """All entries `value`."""
        return np.full(self.values.shape, value)

    def with_entries(self, value: Any, entries: Sequence[int]) -> HostArray:
        """The given values but for some entries, counted through the array."""
        changed = self.values.copy()
        changed.reshape(-1)[list(entries)] = value
        return changed


Pattern = Callable[[Given], HostArray | None]
"""Turns an input into the special one; it returns `None` where the shape has no such point."""


def _alternating(size: float) -> Pattern:
    return lambda given: np.where(given.count % 2 == 0, size, -size)


def _magnitude(size: Callable[[Given], float]) -> Pattern:
    """Different numbers about `size` that every dtype holds, with the signs that were given."""
    return lambda given: given.signs * size(given) * (1 + given.count % 4 / 4)


def _two_zeros(given: Given) -> HostArray | None:
    if not given.values.shape or given.values.shape[-1] < 2:
        return None
    return given.with_entries(0.0, (0, 1))


def _equal_entries(given: Given) -> HostArray | None:
    if given.values.size < 2:
        return None
    return given.with_entries(given.values.reshape(-1)[0], (1,))


def _bound(side: int) -> Pattern:
    def at_bound(given: Given) -> HostArray | None:
        if not isinstance(given.domain, tuple) or not np.isfinite(given.domain[side]):
            return None
        if given.domain[side] == ABOVE_ZERO:  # the interval is open there
            return None
        return given.full(given.domain[side])

    return at_bound


def _matrix(
    make: Callable[[int, int], HostArray], *, square: bool = True, least: int = 2
) -> Pattern:
    """The same matrix in every place of a batch."""

    def matrices(given: Given) -> HostArray | None:
        shape = given.values.shape
        if len(shape) < 2 or min(shape[-2:]) < least or (square and shape[-1] != shape[-2]):
            return None
        return np.broadcast_to(make(shape[-2], shape[-1]), shape).copy()

    return matrices


def _rank_deficient(given: Given) -> HostArray | None:
    """The last row, column, or both of them made those of the first: what is symmetric stays so."""
    x = given.values.copy()
    if x.ndim < 2 or min(x.shape[-2:]) < 2:
        return None
    if x.shape[-2] <= x.shape[-1]:
        x[..., -1, :] = x[..., 0, :]
    if x.shape[-1] <= x.shape[-2]:
        x[..., :, -1] = x[..., :, 0]
    return x


def _reversed(m: int, n: int) -> HostArray:
    """Rows of the identity in reverse order, twice as long and with alternating signs."""
    return np.asarray(2 * np.eye(m, n)[::-1] * np.where(np.arange(m) % 2, -1.0, 1.0)[:, None])


PATTERNS: dict[str, Pattern] = {
    "zeros": lambda given: given.full(0.0),
    "negative_zeros": lambda given: given.full(-0.0),
    "ones": lambda given: given.full(1.0),
    "minus_ones": lambda given: given.full(-1.0),
    "lower_bound": _bound(0),
    "upper_bound": _bound(1),
    "zero_entry": lambda given: given.with_entries(0.0, (given.values.size // 2,)),
    "two_zeros_in_a_row": _two_zeros,
    "equal_entries": _equal_entries,
    "all_equal": lambda given: given.full(given.values.reshape(-1)[0]),
    "positive_integers": lambda given: 1 + given.count % 4,
    "negative_integers": lambda given: -1 - given.count % 4,
    "half_integers": lambda given: 0.5 + given.count % 4,
    "negative_half_integers": lambda given: -0.5 - given.count % 4,
    "plus_40": lambda given: given.full(40.0),
    "minus_40": lambda given: given.full(-40.0),
    "plus_minus_40": _alternating(40.0),
    "plus_1000": lambda given: given.full(1e3),
    "minus_1000": lambda given: given.full(-1e3),
    "plus_minus_1000": _alternating(1e3),
    "subnormal": _magnitude(lambda given: given.smallest / 4),
    "tiny": _magnitude(lambda given: given.smallest * 4),
    "small": _magnitude(lambda given: given.smallest**0.125),
    "large": _magnitude(lambda given: given.largest**0.125),
    "huge": _magnitude(lambda given: given.largest / 8),
    "identity": _matrix(np.eye, square=False),
    # 1 for all but one: the simplest of their kind without rounding
    "repeated_eigenvalues": _matrix(lambda n, _: np.eye(n) + 1, least=3),
    "repeated_eigenvalues_not_symmetric": _matrix(
        lambda n, _: np.eye(n) + np.arange(1, n + 1)[:, None] / 4, least=3
    ),
    "jordan_block": _matrix(lambda n, _: np.eye(n) + np.eye(n, k=1)),
    "repeated_singular_values": _matrix(_reversed, square=False),
    "rank_deficient": _rank_deficient,
}
"""By name; of those that are one and the same point the first stays."""


def special_points(
    inputs: Any,
    domain: Domains = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    wrt: Path | Sequence[Path] | None = None,
    bounds: Bounds = None,
    masked: bool | None = None,
    backend: str | AutodiffBackend | None = None,
) -> SpecialPoints:
    """Points near which derivatives go wrong that are right at random inputs.

    Exact zeros (of one entry, two in a row, all), equal entries and equal arguments, ±1, integers
    and half-integers, saturation (±40, ±1000), the smallest and largest magnitudes of the dtype;
    of matrices the identity, repeated eigenvalues and singular values, a Jordan block, a
    deficient rank. What a pattern does not prescribe keeps the values given. Every pattern is
    applied to all checked inputs together and, of up to four of them, to each alone
    (`"zeros of inputs[1]"`); points that coincide are given once. Nothing is random.

    Args:
        inputs, kwargs, wrt, bounds, masked, backend: As for `gradcheck`. The arrays are only read;
            those of the points have their dtype, device, layout and `requires_grad`.
        domain: Where the function is defined: `None` (everywhere), `"positive"`,
            `"nonnegative"`, `"unit"` (from 0 to 1), `"symmetric"`, `"positive definite"`, a pair
            `(low, high)`, a function from a NumPy array to whether it belongs; or a mapping from
            paths as for `wrt` to these.

    Returns:
        A sequence of `SpecialPoint(name, inputs, kwargs)`; its `left_out` names the points
        outside of `domain` and `bounds`.

    Raises:
        InputError: A domain without meaning, or one that the given inputs lie outside of.
    """
    arguments = read_arguments(inputs, kwargs, wrt=wrt, backend=backend, masked=masked)
    engine, arrays = arguments.backend, arguments.leaves
    space, origin = Space.at(engine, arrays, arguments.names)
    domains = domains_of(space.leaves, domain)
    givens = _givens(engine, arrays, space, origin, domains)
    for leaf, given in zip(space.leaves, givens, strict=True):
        if not contains(given.domain, given.values):
            raise InputError(
                f"{leaf.name} lies outside of its domain, {given.domain!r}",
                "give inputs within the domain, or by path: domain={'inputs[0]': ...}",
            )
    bounds = bounds_of(space.leaves, domains) if bounds is None else bounds
    read_bounds(space, origin, bounds)  # raises where the inputs given lie outside
    points: list[SpecialPoint] = []
    left_out: dict[str, None] = {}
    seen = {origin.tobytes()}
    with engine.environment.isolation(arrays):
        for name, hosts in _candidates(space, givens):
            leaves = tuple(
                engine.arrays.from_host(host, array)
                for host, array in zip(hosts, arrays, strict=True)
            )
            at = space.vector(engine, leaves, arrays)  # after rounding to the dtype
            if at.tobytes() in seen:
                continue
            inside = _inside(space, givens, at) and _within(space, at, bounds)
            if not inside or not np.all(np.isfinite(at)):
                left_out.setdefault(name)
                continue
            seen.add(at.tobytes())
            points.append(_point(name, inputs, arguments, leaves))
    return SpecialPoints(tuple(points), tuple(left_out), bounds)


def _givens(
    engine: AutodiffBackend,
    arrays: Arrays,
    space: Space,
    origin: Vector,
    domains: Sequence[Domain],
) -> list[Given]:
    found = []
    parts = zip(arrays, space.leaves, space.slices, domains, strict=True)
    for array, leaf, part, domain in parts:
        info = engine.xp.finfo(array.dtype)
        limits = float(info.smallest_normal), float(info.max)
        found.append(Given(leaf.host(origin[part].copy()), *limits, domain))
    return found


def _candidates(space: Space, givens: Sequence[Given]) -> Iterator[tuple[str, list[HostArray]]]:
    """Every pattern on all inputs whose domain it fits, then on each alone."""
    made: dict[str, list[HostArray | None]] = {}
    with np.errstate(all="ignore"):  # of a dtype with a short range some are infinite
        for name, pattern in PATTERNS.items():
            made[name] = [pattern(given) if given.values.size else None for given in givens]
    given_values = [given.values for given in givens]
    several = len(givens) > 1
    for name, values in made.items():
        fitting = [
            value if value is not None and contains(given.domain, value) else None
            for value, given in zip(values, givens, strict=True)
        ]
        if several and any(value is not None for value in fitting):
            values = fitting
        if any(value is not None for value in values):
            yield name, _merged(values, given_values)
    if several:
        yield "equal_arguments", _equal_arguments(space, given_values)
    for k, leaf in enumerate(space.leaves if 1 < len(givens) <= ALONE else ()):
        for name, values in made.items():
            if values[k] is not None:
                alone = [value if j == k else None for j, value in enumerate(values)]
                yield f"{name} of {leaf.name}", _merged(alone, given_values)


def _merged(values: Sequence[HostArray | None], given: Sequence[HostArray]) -> list[HostArray]:
    return [
        old if value is None else value.astype(old.dtype)
        for value, old in zip(values, given, strict=True)
    ]


def _equal_arguments(space: Space, given: Sequence[HostArray]) -> list[HostArray]:
    """Every input made equal to the first one of its shape."""
    first: dict[tuple[object, ...], HostArray] = {}
    return [
        first.setdefault((leaf.host_shape, leaf.complex), values)
        for leaf, values in zip(space.leaves, given, strict=True)
    ]


def _inside(space: Space, givens: Sequence[Given], at: Vector) -> bool:
    parts = zip(space.leaves, space.slices, givens, strict=True)
    return all(contains(given.domain, leaf.host(at[part])) for leaf, part, given in parts)


def _within(space: Space, at: Vector, bounds: Bounds) -> bool:
    try:
        read_bounds(space, at, bounds)
    except InputError:
        return False
    return True


def _point(name: str, inputs: Any, arguments: Arguments, leaves: Arrays) -> SpecialPoint:
    args, kwargs = arguments.call(leaves)
    return SpecialPoint(name, args if isinstance(inputs, tuple | list) else args[0], kwargs)
