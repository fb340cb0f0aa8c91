"""A backend that has the required primitives of another one, and derives the rest."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from numpy.typing import NDArray

from adjudge.backend import (
    Array,
    ArrayInfo,
    Arrays,
    AutodiffBackend,
    FlatFunction,
    HostArray,
    Pullback,
)


class PrimitiveBackend(AutodiffBackend):
    """The `xp`, `owns` and `vjp` of `inner`, and its arrays; all other derivatives are the
    defaults of `AutodiffBackend`: the second order by nesting, the rest not supported.
    """

    way = "primitive"

    def __init__(self, inner: AutodiffBackend) -> None:
        """Wraps `inner`."""
        self.inner = inner
        self.name = inner.name

    @property
    def xp(self) -> Any:
        return self.inner.xp

    def owns(self, leaf: object) -> bool:
        return self.inner.owns(leaf)

    def vjp(self, f: FlatFunction, x: Arrays) -> tuple[Arrays, Pullback]:
        return self.inner.vjp(f, x)

    # -- arrays

    def info(self, array: Array) -> ArrayInfo:
        return self.inner.info(array)

    def device(self, array: Array) -> object:
        return self.inner.device(array)

    def differentiable(self, leaf: Array) -> bool:
        return self.inner.differentiable(leaf)

    def complex(self, leaf: Array) -> bool:
        return self.inner.complex(leaf)

    def eps(self, array: Array) -> float:
        return self.inner.eps(array)

    def copy(self, array: Array) -> Array:
        return self.inner.copy(array)

    def to_host(self, array: Array, like: Array | None = None) -> HostArray:
        return self.inner.to_host(array, like)

    def from_host(self, host: HostArray, like: Array) -> Array:
        return self.inner.from_host(host, like)

    def make(self, values: NDArray[Any], dtype: str, device: str | None = None) -> Array:
        return self.inner.make(values, dtype, device)

    def widen(self, array: Array) -> Array:
        return self.inner.widen(array)

    # -- surroundings

    def absent(self) -> str | None:
        return self.inner.absent()

    @property
    def version(self) -> str:
        return self.inner.version

    def devices(self) -> list[str]:
        return self.inner.devices()

    def dtypes(self) -> list[str]:
        return self.inner.dtypes()

    def isolation(self, leaves: Sequence[Array]) -> AbstractContextManager[None]:
        return self.inner.isolation(leaves)

    def widening(self) -> AbstractContextManager[None]:
        return self.inner.widening()

    def random_state(self) -> Hashable:
        return self.inner.random_state()
