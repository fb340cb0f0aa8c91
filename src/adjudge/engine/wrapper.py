"""A backend that forwards every operation to another one: the base of all wrappers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Self

from numpy.typing import NDArray

from adjudge.engine.contract import (
    Array,
    ArrayInfo,
    Arrays,
    AutodiffBackend,
    Expansion,
    FlatFunction,
    HostArray,
    MaybeArrays,
    Pullback,
)


class WrappedBackend(AutodiffBackend):
    """`inner`, operation by operation; override what should differ. Contract: see there."""

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

    def jvp(self, f: FlatFunction, x: Arrays, v: MaybeArrays) -> tuple[Arrays, MaybeArrays]:
        return self.inner.jvp(f, x, v)

    def vjp_map(self, f: FlatFunction, x_count: int) -> FlatFunction:
        return self.inner.vjp_map(f, x_count)

    def jvp_map(self, f: FlatFunction, x_count: int) -> FlatFunction:
        return self.inner.jvp_map(f, x_count)

    def vmap(self, function: Callable[[MaybeArrays], MaybeArrays]) -> Callable[..., MaybeArrays]:
        return self.inner.vmap(function)

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self.inner.compile(function)

    @property
    def capabilities(self) -> frozenset[str]:
        return self.inner.capabilities

    @property
    def undefined_cotangents(self) -> bool:
        return self.inner.undefined_cotangents

    def detached(self, y: Array) -> bool:
        return self.inner.detached(y)

    def info(self, array: Array) -> ArrayInfo:
        return self.inner.info(array)

    def device(self, array: Array) -> object:
        return self.inner.device(array)

    def differentiable(self, leaf: Array) -> bool:
        return self.inner.differentiable(leaf)

    def complex(self, leaf: Array) -> bool:
        return self.inner.complex(leaf)

    def wanted(self, leaf: Array) -> bool | None:
        return self.inner.wanted(leaf)

    def eps(self, array: Array) -> float:
        return self.inner.eps(array)

    def effective_eps(self, array: Array) -> float:
        return self.inner.effective_eps(array)

    def coarsened_by(self, array: Array) -> str:
        return self.inner.coarsened_by(array)

    def repeatable_by(self, array: Array) -> str:
        return self.inner.repeatable_by(array)

    def carried_eps(self, f: FlatFunction, x: Arrays) -> float:
        return self.inner.carried_eps(f, x)

    def copy(self, array: Array) -> Array:
        return self.inner.copy(array)

    def to_host(self, array: Array, like: Array | None = None) -> HostArray:
        return self.inner.to_host(array, like)

    def from_host(self, host: HostArray, like: Array) -> Array:
        return self.inner.from_host(host, like)

    def make(self, values: NDArray[Any], dtype: str, device: str | None = None) -> Array:
        return self.inner.make(values, dtype, device)

    def stack(self, arrays: Sequence[Array]) -> Array:
        return self.inner.stack(arrays)

    def strided(self, array: Array) -> Array:
        return self.inner.strided(array)

    def widen(self, array: Array) -> Array:
        return self.inner.widen(array)

    def place(self, array: Array, device: object) -> Array:
        return self.inner.place(array, device)

    def expand(self, node: object) -> Expansion | None:
        return self.inner.expand(node)

    def masked(self, masked: bool | None) -> Self:
        wrapper = type(self).__new__(type(self))
        wrapper.__dict__.update(self.__dict__)
        wrapper.inner = self.inner.masked(masked)
        return wrapper

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

    def highest_precision(self) -> AbstractContextManager[None]:
        return self.inner.highest_precision()

    def calling(self, x: Arrays) -> AbstractContextManager[None]:
        return self.inner.calling(x)

    def random_state(self) -> Hashable:
        return self.inner.random_state()

    def zeros_for_absent(self, values: MaybeArrays, like: Arrays) -> Arrays:
        return self.inner.zeros_for_absent(values, like)
