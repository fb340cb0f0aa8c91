"""Where a function is defined: `domain=` as a test of host values, and as bounds of steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from adjudge.arguments import Path
from adjudge.bounds import Bounds, under
from adjudge.errors import InputError
from adjudge.spaces import Leaf

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
