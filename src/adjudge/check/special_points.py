"""This module makes points that random inputs miss, such as exact zeros, equal arguments and
repeated eigenvalues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from adjudge.constants import PATTERNS_ALONE
from adjudge.engine import Arrays, AutodiffBackend, HostArray
from adjudge.errors import InputError
from adjudge.floats import Vector
from adjudge.problem import (
    ABOVE_ZERO,
    INTERVALS,
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


@dataclass(frozen=True)
class SpecialPoint:
    """A point: its name, and the arguments there."""

    name: str
    inputs: Any
    """The arguments in the form of the inputs given: a tuple or list of arguments, or a single
    argument."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)


class SpecialPoints(tuple[SpecialPoint, ...]):
    """The special points within a domain, with the names of those outside of it."""

    left_out: tuple[str, ...]
    bounds: Bounds
    """The bounds that steps about these points keep within: those given, or those of the domain."""

    @classmethod
    def of(
        cls, points: Iterable[SpecialPoint], bounds: Bounds, left_out: Iterable[str] = ()
    ) -> SpecialPoints:
        """Returns these points."""
        found = cls(points)
        found.left_out, found.bounds = tuple(left_out), bounds
        return found


@dataclass(frozen=True)
class Given:
    """A checked input as it was given, on the host, with the limits of its dtype."""

    values: HostArray
    smallest: float
    """The smallest normal number of the dtype."""
    largest: float
    """The largest finite number of the dtype."""
    domain: Domain

    @cached_property
    def count(self) -> HostArray:
        """Returns the numbers 0, 1, 2, ... in the shape of the input."""
        return np.arange(self.values.size, dtype=np.float64).reshape(self.values.shape)

    @cached_property
    def signs(self) -> HostArray:
        """Returns the signs of the given values. Zeros and complex values have the sign 1."""
        if self.values.dtype.kind == "c":
            return np.ones(self.values.shape)
        return np.where(self.values < 0, -1.0, 1.0)

    def full(self, value: Any) -> HostArray:
        """Returns an array of the input's shape in which every entry is `value`."""
        return np.full(self.values.shape, value)

    def with_entries(self, value: Any, entries: Sequence[int]) -> HostArray:
        """Returns the given values with `value` at `entries`, which are places in the flattened
        array.
        """
        changed = self.values.copy()
        changed.reshape(-1)[list(entries)] = value
        return changed


Pattern = Callable[[Given], HostArray | None]
"""A function that turns an input into the special one. It returns `None` where the shape has no
such point."""


def _alternating(size: float) -> Pattern:
    return lambda given: np.where(given.count % 2 == 0, size, -size)


def _magnitude(size: Callable[[Given], float]) -> Pattern:
    """Returns the pattern of different numbers from `size` to 1.75 times `size`, with the signs
    that were given. They repeat after four entries.
    """
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
        if given.domain[side] == ABOVE_ZERO:  # The interval is open at this end.
            return None
        return given.full(given.domain[side])

    return at_bound


def _matrix(
    make: Callable[[int, int], HostArray], *, square: bool = True, least: int = 2
) -> Pattern:
    """Returns the pattern that puts the same matrix in every place of a batch. It has no point
    where a side is shorter than `least`, or where a `square` matrix is needed and there is none.
    """

    def matrices(given: Given) -> HostArray | None:
        shape = given.values.shape
        if len(shape) < 2 or min(shape[-2:]) < least or (square and shape[-1] != shape[-2]):
            return None
        return np.broadcast_to(make(shape[-2], shape[-1]), shape).copy()

    return matrices


def _rank_deficient(given: Given) -> HostArray | None:
    """Returns the input with its last row, column or both replaced by the first, so that its rank
    is deficient. A symmetric matrix stays symmetric.
    """
    x = given.values.copy()
    if x.ndim < 2 or min(x.shape[-2:]) < 2:
        return None
    if x.shape[-2] <= x.shape[-1]:
        x[..., -1, :] = x[..., 0, :]
    if x.shape[-1] <= x.shape[-2]:
        x[..., :, -1] = x[..., :, 0]
    return x


def _reversed(m: int, n: int) -> HostArray:
    """Returns the rows of the identity in reverse order, twice as long and with alternating
    signs.
    """
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
    # All eigenvalues but one are 1. These are the simplest matrices of their kind whose entries
    # are not rounded.
    "repeated_eigenvalues": _matrix(lambda n, _: np.eye(n) + 1, least=3),
    "repeated_eigenvalues_not_symmetric": _matrix(
        lambda n, _: np.eye(n) + np.arange(1, n + 1)[:, None] / 4, least=3
    ),
    "jordan_block": _matrix(lambda n, _: np.eye(n) + np.eye(n, k=1)),
    "repeated_singular_values": _matrix(_reversed, square=False),
    "rank_deficient": _rank_deficient,
}
"""The patterns by name. Where several make the same point, only the first one is kept. The list
and its numbers are ours."""


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
    """Returns points near which derivatives go wrong that are right at random inputs.

    The points are exact zeros (in one entry, in two in a row, in all), equal entries and equal
    arguments, ±1, integers and half-integers, saturation (±40, ±1000), and the smallest and
    largest magnitudes of the dtype. Matrices are also made the identity, a Jordan block, deficient
    in rank, or given repeated eigenvalues and singular values. Entries that a pattern does not
    prescribe keep the values given. Every pattern is applied to all checked inputs together and,
    where there are at most four of them, to each alone (`"zeros of inputs[1]"`). Points that
    coincide are given once. Nothing is random.

    Args:
        inputs, kwargs, wrt, bounds, masked, backend: These are as for `gradcheck`. The arrays are
            only read; those of the points have their dtype, device, layout and `requires_grad`.
        domain: The set on which the function is defined: `None` (everywhere), `"positive"`,
            `"nonnegative"`, `"unit"` (from 0 to 1), a set of those for `directions`, a pair
            `(low, high)`, or a function that says whether a NumPy array belongs. A mapping from
            paths as for `wrt` to such sets gives one to each input.

    Returns:
        A sequence of `SpecialPoint(name, inputs, kwargs)`; its `left_out` names the points
        outside of `domain` and `bounds`.

    Raises:
        InputError: The domain has no meaning, or the given inputs lie outside of it or of the
            bounds.
    """
    arguments = read_arguments(inputs, kwargs, wrt=wrt, backend=backend, masked=masked)
    engine, arrays = arguments.backend, arguments.leaves
    space, origin = Space.at(engine, arrays, arguments.names)
    domains = domains_of(space.leaves, domain)
    givens = _givens(engine, arrays, space, origin, domains)
    for leaf, given in zip(space.leaves, givens, strict=True):
        if not contains(given.domain, given.values):
            raise InputError(
                f"{leaf.name} lies outside of its domain, {_named(given.domain)}",
                "give inputs within the domain, or by path: domain={'inputs[0]': ...}",
            )
    bounds = bounds_of(space.leaves, domains) if bounds is None else bounds
    read_bounds(space, origin, bounds)  # This raises where the inputs given lie outside.
    points: list[SpecialPoint] = []
    left_out: dict[str, None] = {}
    seen = {origin.tobytes()}
    with engine.environment.isolation(arrays):
        for name, hosts in _candidates(space, givens):
            leaves = tuple(
                engine.arrays.from_host(host, array)
                for host, array in zip(hosts, arrays, strict=True)
            )
            at = space.vector(engine, leaves, arrays)  # The point is rounded to the dtype.
            if at.tobytes() in seen:
                continue
            parts = zip(space.leaves, space.slices, givens, strict=True)
            inside = all(contains(given.domain, leaf.host(at[part])) for leaf, part, given in parts)
            inside = inside and _within(space, at, bounds)
            if not inside or not np.all(np.isfinite(at)):
                left_out.setdefault(name)
                continue
            seen.add(at.tobytes())
            points.append(_point(name, inputs, arguments, leaves))
    return SpecialPoints.of(points, bounds, left_out)


def _named(domain: Domain) -> str:
    """Returns a domain as the caller named it."""
    names = (name for name, ends in INTERVALS.items() if ends == domain)
    return repr(next(names, domain))


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
    """Yields every pattern on all inputs whose domain it fits, then on each input alone, each with
    its name.
    """
    made: dict[str, list[HostArray | None]] = {}
    # Some patterns overflow in a dtype with a short range. Such points are left out later.
    with np.errstate(all="ignore"):
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
    for k, leaf in enumerate(space.leaves if 1 < len(givens) <= PATTERNS_ALONE else ()):
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
    """Returns the inputs, each made equal to the first one of its shape and kind of number."""
    first: dict[tuple[object, ...], HostArray] = {}
    return [
        first.setdefault((leaf.host_shape, leaf.complex), values)
        for leaf, values in zip(space.leaves, given, strict=True)
    ]


def _within(space: Space, at: Vector, bounds: Bounds) -> bool:
    try:
        read_bounds(space, at, bounds)
    except InputError:
        return False
    return True


def _point(name: str, inputs: Any, arguments: Arguments, leaves: Arrays) -> SpecialPoint:
    args, kwargs = arguments.call(leaves)
    return SpecialPoint(name, args if isinstance(inputs, tuple | list) else args[0], kwargs)
