"""The real inner-product spaces X and Y: leaves of arrays as one vector of real numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from adjudge.engine import Array, ArrayInfo, Arrays, AutodiffBackend, HostArray, MaybeArrays
from adjudge.errors import InputError, NotSupportedError, Source, running
from adjudge.floats import Vector

DOUBLE = float(np.finfo(np.float64).eps)
"""Spacing of float64 at 1."""


@dataclass(frozen=True)
class Leaf:
    """One array among the inputs or outputs: its name, and which coordinates it has."""

    name: str
    info: ArrayInfo
    host_shape: tuple[int, ...]
    complex: bool
    eps: float

    @cached_property
    def entries(self) -> int:
        """Number of entries, real or complex."""
        return math.prod(self.host_shape)

    @cached_property
    def size(self) -> int:
        """Number of real coordinates."""
        return self.entries * (2 if self.complex else 1)

    @property
    def double(self) -> bool:
        """Whether the host's float64 holds this leaf's dtype without rounding on the way back."""
        return self.eps <= DOUBLE

    @property
    def tiny(self) -> float:
        """Some units of the smallest numbers of the dtype: a product may be off by as much."""
        if self.double:
            return 0.0
        return 2.0**-20 if self.info.dtype == "float16" else 2.0**-122

    @property
    def huge(self) -> float:
        """The largest number of the dtype, of those with less than double precision."""
        return 65504.0 if self.info.dtype == "float16" else 3.3e38

    def entry(self, k: int) -> str:
        """Accessor path of real coordinate `k`: `inputs[0]['w'][4, 7]`, with `.imag` if so."""
        part = ""
        if self.complex:
            k, imaginary = divmod(k, 2)
            part = ".imag" if imaginary else ".real"
        if not self.host_shape:
            return self.name + part
        index = ", ".join(str(int(i)) for i in np.unravel_index(k, self.host_shape))
        return f"{self.name}[{index}]{part}"

    def vector(self, host: HostArray) -> Vector:
        """Real coordinates of a host array."""
        if self.complex:
            wide = np.ascontiguousarray(host, dtype=np.complex128).reshape(-1)
            return wide.view(np.float64)
        if host.dtype.kind == "c":
            host = host.real  # a finding of its own; the real part is compared
        return np.ascontiguousarray(host, dtype=np.float64).reshape(-1)

    def host(self, vector: Vector) -> HostArray:
        """The host array with these real coordinates."""
        if self.complex:
            return np.ascontiguousarray(vector).view(np.complex128).reshape(self.host_shape)
        return np.ascontiguousarray(vector).reshape(self.host_shape)


@dataclass(frozen=True)
class Space:
    """A product of leaves, with the real inner product."""

    leaves: tuple[Leaf, ...]

    @classmethod
    def of(cls, backend: AutodiffBackend, arrays: Arrays, names: Sequence[str]) -> Space:
        """The space in which `arrays` is a point."""
        return cls.at(backend, arrays, names)[0]

    @classmethod
    def at(
        cls, backend: AutodiffBackend, arrays: Arrays, names: Sequence[str]
    ) -> tuple[Space, Vector]:
        """The space in which `arrays` is a point, and the point's coordinates."""
        leaves, parts = [], []
        for array, name in zip(arrays, names, strict=True):
            host = _values(backend, array, name)
            leaf = Leaf(
                name,
                backend.arrays.info(array),
                tuple(host.shape),
                backend.arrays.is_complex(array),
                backend.effective_eps(array),
            )
            leaves.append(leaf)
            parts.append(leaf.vector(host))
        return cls(tuple(leaves)), _joined(parts)

    @cached_property
    def size(self) -> int:
        """Dimension as a real space."""
        return sum(leaf.size for leaf in self.leaves)

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """Where each leaf's coordinates stand in the vector."""
        ends = accumulate((leaf.size for leaf in self.leaves), initial=0)
        return tuple(slice(a, b) for a, b in pairwise(ends))

    @cached_property
    def owner(self) -> NDArray[np.int64]:
        """Index of the leaf that each coordinate belongs to."""
        return np.repeat(np.arange(len(self.leaves)), [leaf.size for leaf in self.leaves])

    def entry(self, k: int) -> str:
        """Accessor path of real coordinate `k` of the whole space."""
        j = int(self.owner[k])
        return self.leaves[j].entry(k - self.slices[j].start)

    def vector(self, backend: AutodiffBackend, arrays: MaybeArrays, like: Arrays) -> Vector:
        """Real coordinates of a point; an absent leaf is zero."""
        parts = [
            np.zeros(leaf.size)
            if array is None
            else leaf.vector(self._checked_host(backend, leaf, array, origin))
            for leaf, array, origin in zip(self.leaves, arrays, like, strict=True)
        ]
        return _joined(parts)

    @staticmethod
    def _checked_host(
        backend: AutodiffBackend, leaf: Leaf, array: object, origin: object
    ) -> HostArray:
        try:
            with running(Source.ENGINE):
                host = backend.arrays.to_host(array, origin)
        except NotSupportedError:  # of a device whose arrays hold no values
            host = None
        if host is None or host.shape != leaf.host_shape:
            # a wrong shape or device is reported by name elsewhere; here it must not be misread
            return np.full(leaf.host_shape, np.nan)
        return host

    def largest(self, vector: Vector) -> Vector:
        """Every coordinate's leaf's largest finite magnitude."""
        size = np.zeros_like(vector)
        for part in self.slices:
            size[part] = largest(vector[part])
        return size

    def modulus(self, vector: Vector) -> Vector:
        """`|vector|`; both coordinates of a complex entry have its modulus, since its rounding
        follows that.
        """
        if not any(leaf.complex for leaf in self.leaves):
            return np.asarray(np.abs(vector))
        parts = []
        for leaf, part in zip(self.leaves, self.slices, strict=True):
            size = np.abs(leaf.host(vector[part])).reshape(-1)
            parts.append(np.repeat(size, 2) if leaf.complex else size)
        return _joined(parts)

    def arrays(self, backend: AutodiffBackend, vector: Vector, like: Arrays) -> Arrays:
        """The arrays of the engine with these real coordinates, rounded to their dtype."""
        hosts = [
            leaf.host(vector[part]) for leaf, part in zip(self.leaves, self.slices, strict=True)
        ]
        with running(Source.ENGINE):
            return tuple(
                backend.arrays.from_host(host, array)
                for host, array in zip(hosts, like, strict=True)
            )


def _values(backend: AutodiffBackend, array: Array, name: str) -> HostArray:
    """The values of `array`. Raises `InputError` where it holds none."""
    try:
        with running(Source.ENGINE):
            return backend.arrays.to_host(array)
    except NotSupportedError as error:
        raise InputError(
            f"{name} is an array whose values cannot be read: {error.found}",
            "give an array with values; device= moves what holds them, and makes none",
        ) from error


def _joined(parts: Sequence[Vector]) -> Vector:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.zeros(0)


def largest(values: Vector) -> float:
    """The largest finite magnitude."""
    return float(np.max(np.abs(values), initial=0.0, where=np.isfinite(values)))
