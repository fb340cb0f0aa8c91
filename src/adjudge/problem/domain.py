"""Where f may be evaluated: the bounds that no evaluation leaves, and the domains of inputs.

`bounds=` are the lowest and the highest value of each coordinate. `domain=` says which special
points and which drawn inputs belong to f; its intervals act as bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from adjudge.errors import InputError, described
from adjudge.floats import Vector
from adjudge.problem.calls import Path, is_at_or_below
from adjudge.problem.charts import SETS, OffTheSetError
from adjudge.problem.space import Leaf, Space


class WithSides(Protocol):
    """Bounds as `scipy.optimize.Bounds` are."""

    @property
    def lb(self) -> Any:
        """The lowest point."""

    @property
    def ub(self) -> Any:
        """The highest point."""


Bounds: TypeAlias = Sequence[Any] | WithSides | Mapping[Path, Sequence[Any] | WithSides] | None
"""A pair `(low, high)` of numbers or arrays for all checked inputs, or by path such pairs; as SciPy
takes them, too, which are `scipy.optimize.Bounds` and a list with a pair for each entry."""


def by_leaf(
    leaves: Sequence[Leaf], option: str, given: Any, remedy: str
) -> Iterator[tuple[int, Any]]:
    """Yields what an option gives for leaves, each with the index of its leaf: one thing for all of
    them, or by paths, for the leaves at a path or below it.

    Raises `InputError`, which names the option and ends in `remedy`, where there is no leaf at a
    path.
    """
    for path, one in (given if isinstance(given, Mapping) else {"": given}).items():
        found = [j for j, leaf in enumerate(leaves) if is_at_or_below(leaf.name, path)]
        if not found:
            raise InputError(
                f"{option}= names {path!r}, which is no checked input; there are: "
                + ", ".join(leaf.name for leaf in leaves),
                remedy,
            )
        for j in found:
            yield j, one


def read_bounds(space: Space, origin: Vector, bounds: Bounds) -> tuple[Vector, Vector] | None:
    """Returns the lowest and the highest point of `space` that `bounds` allow, as vectors, and
    `None` where there are no bounds.

    Coordinates without a bound have infinities. Raises `InputError` where a path names no input,
    where low is not below high, where x, which is `origin`, lies outside, and for complex inputs.
    """
    if bounds is None:
        return None
    low, high = np.full(space.size, -np.inf), np.full(space.size, np.inf)
    remedy = "give a path as listed, or one pair (low, high) for all"
    for j, pair in by_leaf(space.leaves, "bounds", bounds, remedy):
        part = space.slices[j]
        low[part], high[part] = _pair(space.leaves[j], pair)
    empty, outside = ~(low < high), ~((low <= origin) & (origin <= high))
    unknown = np.isnan(low) | np.isnan(high)
    for wrong, what in (
        (unknown, "one of them is NaN"),
        (empty, "low is not below high"),
        (outside, "x lies outside"),
    ):
        if np.any(wrong):
            k = int(np.flatnonzero(wrong)[0])
            raise InputError(
                f"bounds=({low[k]:g}, {high[k]:g}) at {space.entry(k)}: {what} "
                f"(x is {origin[k]:g} there)",
                "give bounds with low < high that contain x",
            )
    return low, high


def _pair(leaf: Leaf, pair: Any) -> tuple[Vector, Vector]:
    if leaf.complex:
        raise InputError(
            f"bounds= for {leaf.name}, which is complex", "bounds order real numbers only"
        )
    found = f"bounds={pair!r} for {leaf.name} of shape {leaf.host_shape}"
    remedy = "give (low, high): two numbers, or arrays that broadcast to the input; None: unbounded"
    whole = (pair.lb, pair.ub) if _has_sides(pair) else pair
    try:
        if not isinstance(whole, Iterable):
            raise InputError(f"bounds={pair!r} for {leaf.name} is {described(pair)}", remedy)
        sides = list(whole)
        of_entries = _of_entries(leaf, sides)
        as_sides = len(sides) == 2
        if of_entries and as_sides:
            of_entries, as_sides = _meant(leaf, whole, sides)
        if not of_entries:
            if len(sides) != 2:
                raise InputError(f"{found} has length {len(sides)}, and not 2", remedy)
            for side in sides:
                shape = np.shape(side)
                if np.broadcast_shapes(shape, leaf.host_shape) != leaf.host_shape:
                    raise InputError(f"{found}: one side has shape {shape}", remedy)
            return _sides(leaf, sides)
        low, high = _sides(leaf, [list(ends) for ends in zip(*sides, strict=True)])
        if as_sides and not np.array_equal((low, high), _sides(leaf, sides)):
            raise InputError(
                f"{found} is a lowest and a highest point, or a pair for each entry",
                "give the lowest and the highest point as arrays, (np.array(low), np.array(high)), "
                "or a pair for each entry as a list of tuples, [(low, high), (low, high)]",
            )
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{found}: {error}", remedy) from error
    return low, high


def _has_sides(bounds: object) -> TypeGuard[WithSides]:
    """Returns whether these are bounds as `scipy.optimize.Bounds` are, with attributes for both
    sides. Constraints of SciPy have them as well, of what a matrix or a function makes of x.
    """
    lacking = not hasattr(bounds, "A") and not hasattr(bounds, "fun")
    return lacking and hasattr(bounds, "lb") and hasattr(bounds, "ub")


def _of_entries(leaf: Leaf, sides: Sequence[Any]) -> bool:
    """Returns whether this may be a pair for each entry of a vector, as SciPy's `minimize` takes
    them.
    """
    return leaf.host_shape == (len(sides),) and all(
        np.shape(side) == (2,) and isinstance(side, tuple | list | np.ndarray) for side in sides
    )


def _meant(leaf: Leaf, given: object, sides: Sequence[Any]) -> tuple[bool, bool]:
    """Returns whether what may be a pair for each of two entries can be meant as that, and whether
    as a lowest and a highest point.

    A list of tuples is the former and a tuple of arrays or lists the latter, as SciPy's `minimize`
    and `least_squares` write them. Anything else is what leaves room between low and high.
    """
    kinds = {type(side) for side in sides}
    if isinstance(given, list) and kinds == {tuple}:
        return True, False
    if isinstance(given, tuple) and not kinds & {tuple}:
        return False, True
    turned = [*zip(*sides, strict=True)]
    pairs, ends = (bool(np.less(*_sides(leaf, one)).all()) for one in (turned, sides))
    return (True, True) if pairs == ends else (pairs, ends)


def _sides(leaf: Leaf, pair: Any) -> tuple[Vector, Vector]:
    """Returns the lowest and the highest point in the coordinates of a leaf."""
    low, high = (
        np.broadcast_to(_ends(side, free), leaf.host_shape).reshape(-1)
        for side, free in zip(pair, (-np.inf, np.inf), strict=True)
    )
    return low, high


def _ends(side: Any, free: float) -> Vector:
    """Returns numbers or arrays as an array, in which `None` is the infinity `free`."""
    if side is None or isinstance(side, tuple | list):
        entries = np.asarray(side, dtype=object)
        known = [free if entry is None else entry for entry in entries.reshape(-1)]
        return np.asarray(known, dtype=np.float64).reshape(entries.shape)
    return np.asarray(side, dtype=np.float64)


Values = NDArray[Any]
"""An input on the host, in float64 or complex128."""
Member = Callable[[Values], bool]
"""A function that says of an input whether it belongs to the domain, or of each of its entries."""
Domain: TypeAlias = str | tuple[float, float] | Member | None
"""The domain of one input: a name, an interval `(low, high)`, or a function."""
Domains: TypeAlias = Domain | Mapping[Path, Domain]
"""One domain for all checked inputs, or domains by path."""

ABOVE_ZERO = float(np.nextafter(0.0, 1.0))
"""The smallest number above zero."""
INTERVALS = {
    "positive": (ABOVE_ZERO, np.inf),
    "nonnegative": (0.0, np.inf),
    "unit": (0.0, 1.0),
}
"""The intervals that a domain can name."""


DOMAINS = tuple(dict.fromkeys((*INTERVALS, *SETS)))
"""The names of all domains: those of intervals, and of the sets that inputs may live on."""


def domains_of(leaves: Sequence[Leaf], domain: Domains) -> tuple[Domain, ...]:
    """Returns the domain of each leaf, with names of intervals as their ends.

    Raises `InputError` where a path names no leaf, and for a domain without meaning.
    """
    found: list[Domain] = [None] * len(leaves)
    remedy = "give a path as listed, or one domain for all"
    for k, one in by_leaf(leaves, "domain", domain, remedy):
        found[k] = read_domain(one, f" for {leaves[k].name}")
        if leaves[k].complex and isinstance(found[k], tuple):
            raise InputError(
                f"domain={one!r} for {leaves[k].name}, which is complex",
                "an interval orders real numbers: give a function of a NumPy array",
            )
    return tuple(found)


def read_domain(domain: Any, place: str = "", names: Sequence[str] = DOMAINS) -> Domain:
    """Returns `domain`, and for the name of an interval its ends.

    Raises `InputError` where it is no domain and none of `names`; the message says `place`.
    """
    if isinstance(domain, str) and domain in names:
        return INTERVALS.get(domain, domain)
    if domain is None or callable(domain):
        return domain  # type: ignore[no-any-return]
    try:
        low, high = (
            free if end is None else float(end)
            for end, free in zip(domain, (-np.inf, np.inf), strict=True)
        )
    except (TypeError, ValueError):
        low = high = np.nan
    if low >= high:
        raise InputError(
            f"domain={domain!r}{place}: low is not below high",
            "give a pair of numbers (low, high) with low < high",
        )
    if not low < high:
        listed = ", ".join(f'"{name}"' for name in names)
        raise InputError(
            f"domain={domain!r}{place}",
            f"give {listed}, a pair of numbers (low, high), or a function of a NumPy array",
        )
    return low, high


def contains(domain: Domain, values: Values, eps: float = 2.0**-52) -> bool:
    """Returns whether all of `values`, which are rounded to `eps`, belong to `domain`, as
    `read_domain` returns it.
    """
    if isinstance(domain, tuple):
        return bool(np.all((domain[0] <= values) & (values <= domain[1])))
    if not isinstance(domain, str):
        return domain is None or bool(np.all(domain(values)))
    if not values.size:
        return True
    try:
        SETS[domain](values, eps)
    except (OffTheSetError, np.linalg.LinAlgError):
        return False
    return True


def bounds_of(leaves: Sequence[Leaf], domains: Sequence[Domain]) -> Bounds:
    """Returns the intervals among the domains of the leaves as `bounds=`, which the steps of
    differences keep within, and `None` where there are none.
    """
    pairs: dict[Path, tuple[Any, Any]] = {
        leaf.name: domain
        for leaf, domain in zip(leaves, domains, strict=True)
        if isinstance(domain, tuple)
    }
    return pairs or None
