"""The real inner-product spaces X and Y, in which arrays are one vector of real coordinates."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import COARSE_EPS, UNDERFLOW_MARGIN
from adjudge.engine import ArrayInfo, Arrays, AutodiffBackend, HostArray, MaybeArrays
from adjudge.errors import InputError, NotSupportedError, Source, mark
from adjudge.floats import FORMATS, Format, Vector, repeated

DOUBLE = float(np.finfo(np.float64).eps)
"""The spacing of float64 at 1."""


@dataclass(frozen=True)
class Leaf:
    """One array among the inputs or outputs, as a block of coordinates."""

    name: str
    """Its accessor path, like `inputs[0]['w']`."""
    info: ArrayInfo
    host_shape: tuple[int, ...]
    """The shape of its values on the host: of a masked sparse array these are the stored ones."""
    complex: bool
    """Whether each entry has two real coordinates."""
    eps: float
    """The spacing at 1 of the arithmetic that is really used, which settings may make coarser than
    the dtype."""
    entries: int = field(init=False, repr=False, compare=False)
    """The number of entries, real or complex."""
    size: int = field(init=False, repr=False, compare=False)
    """The number of real coordinates."""
    double: bool = field(init=False, repr=False, compare=False)
    """Whether numbers of float64 go from the host into this leaf without rounding."""

    def __post_init__(self) -> None:
        """Computes what is asked for most."""
        entries = math.prod(self.host_shape)
        size = 2 * entries if self.complex else entries
        vars(self).update(entries=entries, size=size, double=self.eps <= DOUBLE)

    @property
    def tiny(self) -> float:
        """A few units of the smallest numbers of the dtype, by which a product may be off where
        small results are rounded or flushed; 0 in double precision.
        """
        if self.double:
            return 0.0
        return UNDERFLOW_MARGIN * self._format.smallest

    @property
    def weight_bits(self) -> int:
        """The power of two up to which a cotangent may be weighed, in the middle of the range of
        the dtype, so that products with derivatives neither overflow nor underflow.
        """
        return 500 if self.double else 60 if self.eps < COARSE_EPS else 6

    @property
    def huge(self) -> float:
        """The largest number of the dtype, where that has less than double precision."""
        return self._format.largest

    @property
    def _format(self) -> Format:
        """The format of a narrow dtype. One that is not known has the range of float32."""
        known = FORMATS.get(self.info.dtype)
        return known if known and not self.double else FORMATS["float32"]

    def entry(self, k: int) -> str:
        """Returns the accessor path of real coordinate `k`, like `inputs[0]['w'][4, 7]`.

        That of a complex entry ends in `.real` or `.imag`.
        """
        part = ""
        if self.complex:
            k, imaginary = divmod(k, 2)
            part = ".imag" if imaginary else ".real"
        if not self.host_shape:
            return self.name + part
        index = ", ".join(map(str, map(int, np.unravel_index(k, self.host_shape))))
        return f"{self.name}[{index}]{part}"

    def vector(self, host: HostArray) -> Vector:
        """Returns the real coordinates of a host array of shape `host_shape`."""
        if self.complex:
            wide = np.ascontiguousarray(host, dtype=np.complex128).reshape(-1)
            return wide.view(np.float64)
        if host.dtype.kind == "c":
            # A complex gradient of a real input is a finding of its own. Its real part is compared.
            host = host.real
        return np.ascontiguousarray(host, dtype=np.float64).reshape(-1)

    def host(self, vector: Vector) -> HostArray:
        """Returns the host array, of float64 or complex128, that has these real coordinates."""
        if self.complex:
            return np.ascontiguousarray(vector).view(np.complex128).reshape(self.host_shape)
        return vector.reshape(self.host_shape)


@dataclass(frozen=True)
class Space:
    """The product of the spaces of some leaves, with the real inner product.

    A vector of it holds the coordinates of all leaves, one leaf after the other.
    """

    leaves: tuple[Leaf, ...]
    apart: bool = False
    """Whether the two coordinates of a complex entry are seen by themselves, as two outputs whose
    rounding has nothing to do with one another."""
    size: int = field(init=False, repr=False, compare=False)
    """The dimension as a real space."""
    slices: tuple[slice, ...] = field(init=False, repr=False, compare=False)
    """For each leaf the slice of a vector that holds its coordinates."""
    complex: bool = field(init=False, repr=False, compare=False)
    """Whether any leaf is complex."""
    double: bool = field(init=False, repr=False, compare=False)
    """Whether numbers of float64 go from the host into every leaf without rounding."""
    coarsest_eps: float = field(init=False, repr=False, compare=False)
    """The coarsest `eps` of the leaves, and at least that of float64."""

    def __post_init__(self) -> None:
        """Computes what is asked for most."""
        slices, start, coarsest, mixed = [], 0, DOUBLE, False
        for leaf in self.leaves:
            slices.append(slice(start, start + leaf.size))
            start += leaf.size
            coarsest, mixed = max(coarsest, leaf.eps), mixed or leaf.complex
        vars(self).update(
            size=start,
            slices=tuple(slices),
            complex=mixed,
            double=coarsest <= DOUBLE,
            coarsest_eps=coarsest,
        )

    @classmethod
    def at(
        cls, backend: AutodiffBackend, arrays: Arrays, names: Sequence[str]
    ) -> tuple[Space, Vector]:
        """Returns the space in which `arrays` is a point, and the coordinates of that point.

        `names` are the accessor paths of the arrays. Raises `InputError` where an array holds no
        values.
        """
        leaves, parts, read = [], [], backend.arrays
        for array, name in zip(arrays, names, strict=True):
            try:
                host = read.to_host(array)
            except NotSupportedError as error:
                raise InputError(
                    f"{name} is an array whose values cannot be read: {error.found}",
                    "give an array with values; device= moves what holds them, and makes none",
                ) from error
            except BaseException as error:  # it is raised again
                mark(error, Source.ENGINE)
                raise
            leaf = Leaf(
                name,
                read.info(array),
                tuple(host.shape),
                host.dtype.kind == "c",
                backend.effective_eps(array),
            )
            leaves.append(leaf)
            parts.append(leaf.vector(host))
        return cls(tuple(leaves)), parts[0] if len(parts) == 1 else _joined(parts)

    @cached_property
    def owner(self) -> NDArray[np.int64]:
        """The index of the leaf of each coordinate."""
        return np.repeat(np.arange(len(self.leaves)), [leaf.size for leaf in self.leaves])

    def entry(self, k: int) -> str:
        """Returns the accessor path of coordinate `k` of the whole space."""
        j = self.leaf_of(k)
        return self.leaves[j].entry(k - self.slices[j].start)

    def leaf_of(self, k: int) -> int:
        """Returns the index of the leaf of coordinate `k`."""
        return bisect_right(self.slices, k, key=attrgetter("stop"))

    def names(self, leaves: Sequence[int]) -> str:
        """Returns the leaves of these indices in words, like `inputs[0] and 3 more`."""
        more = f" and {len(leaves) - 1} more" if len(leaves) > 1 else ""
        return f"{self.leaves[leaves[0]].name}{more}"

    def vector(self, backend: AutodiffBackend, arrays: MaybeArrays, like: Arrays) -> Vector:
        """Returns the coordinates of the point `arrays`, with zeros for absent arrays.

        `like` are arrays of these leaves, as `Arrays.to_host` takes them. Arrays of another shape,
        and arrays whose values cannot be read, have coordinates NaN.
        """
        host: HostArray | None
        parts, to_host = [], backend.arrays.to_host
        for leaf, array, origin in zip(self.leaves, arrays, like, strict=True):
            if array is None:
                parts.append(np.zeros(leaf.size))
                continue
            try:
                host = to_host(array, origin)
            except NotSupportedError:
                # The array is on a device whose arrays hold no values.
                host = None
            except BaseException as error:  # it is raised again
                mark(error, Source.ENGINE)
                raise
            if host is None or host.shape != leaf.host_shape:
                # A wrong shape or device is reported by name elsewhere. Here it must not be
                # misread.
                host = np.full(leaf.host_shape, np.nan)
            real = not leaf.complex and host.dtype == np.float64  # as most are
            parts.append(host.reshape(-1) if real else leaf.vector(host))
        return parts[0] if len(parts) == 1 else _joined(parts)

    def coarser(self, eps: float) -> Space:
        """Returns the same space with an `eps` of its leaves that is the given one at least."""
        return Space(tuple(replace(leaf, eps=max(leaf.eps, eps)) for leaf in self.leaves))

    def largest(self, vector: Vector) -> Vector:
        """Returns for each coordinate the largest finite magnitude in its leaf."""
        return self.by_leaf([largest(vector[part]) for part in self.slices])

    def by_leaf(self, numbers: Sequence[float]) -> Vector:
        """Returns for each coordinate the number of its leaf; not to be written to."""
        if len(numbers) == 1:
            return repeated(numbers[0], self.size)
        return np.repeat(np.array(numbers, float), [leaf.size for leaf in self.leaves])

    def modulus(
        self, vector: Vector, other: Vector | None = None, part: slice = slice(None)
    ) -> Vector:
        """Returns the modulus of the entry that each coordinate belongs to; the larger one of two
        vectors where `other` is given, and a `part` of them.

        Both coordinates of a complex entry have the modulus of that, which its rounding errors
        follow, unless they are seen `apart`.
        """
        if other is not None:
            if self.complex and not self.apart:
                return np.asarray(
                    np.fmax(self.modulus(vector, None, part), self.modulus(other, None, part))
                )
            return np.asarray(np.fmax(np.abs(vector[part]), np.abs(other[part])))
        if self.apart or not self.complex:
            return np.asarray(np.abs(vector[part]))
        sizes, (first, last, _) = [], part.indices(vector.size)
        for leaf, own in zip(self.leaves, self.slices, strict=True):
            start, stop = max(own.start, first), min(own.stop, last)
            if start >= stop:
                continue
            if not leaf.complex:
                sizes.append(np.abs(vector[start:stop]))
                continue
            # Entries that begin or end outside of the part are taken whole.
            before, after = (start - own.start) % 2, (own.stop - stop) % 2
            entries = np.ascontiguousarray(vector[start - before : stop + after])
            size = np.repeat(np.abs(entries.view(np.complex128)), 2)
            sizes.append(size[before : size.size - after])
        return _joined(sizes)

    def arrays(self, backend: AutodiffBackend, vector: Vector, like: Arrays) -> Arrays:
        """Returns new arrays of the engine with these coordinates, rounded to their dtype.

        `like` are arrays of these leaves, whose dtypes, devices and layouts the new ones have.
        """
        made, from_host = [], backend.arrays.from_host
        for leaf, part, array in zip(self.leaves, self.slices, like, strict=True):
            own = vector[part]
            host = leaf.host(own) if leaf.complex else own.reshape(leaf.host_shape)
            try:
                made.append(from_host(host, array))
            except BaseException as error:  # it is raised again
                mark(error, Source.ENGINE)
                raise
        return tuple(made)


def _joined(parts: Sequence[Vector]) -> Vector:
    return np.concatenate(parts) if parts else np.zeros(0)


def largest(values: Vector) -> float:
    """Returns the largest finite magnitude, and 0 where there is none."""
    return float(np.max(np.abs(values), initial=0.0, where=np.isfinite(values)))
