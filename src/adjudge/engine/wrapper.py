"""Engines that change one object of another engine, and share the rest with it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar

from adjudge.engine.contract import (
    Array,
    ArrayOperations,
    Arrays,
    AutodiffBackend,
    Environment,
    FlatFunction,
    MaybeArrays,
    Pullback,
)

Backend = TypeVar("Backend", bound=AutodiffBackend)


def replaced(
    backend: Backend,
    *,
    arrays: ArrayOperations | None = None,
    environment: Environment | None = None,
) -> Backend:
    """Returns a copy of `backend` with other arrays or another environment."""
    changed = copy.copy(backend)
    changed.arrays = arrays or backend.arrays
    changed.environment = environment or backend.environment
    return changed


class OtherDerivatives(AutodiffBackend):
    """An engine with the arrays and the environment of `inner`, whose derivatives are its own."""

    def __init__(self, inner: AutodiffBackend) -> None:
        """`inner` is the engine whose arrays and environment are used."""
        self.inner, self.name = inner, inner.name
        self.arrays, self.environment = inner.arrays, inner.environment

    @property
    def xp(self) -> Any:
        return self.inner.xp

    def owns(self, leaf: object) -> bool:
        return self.inner.owns(leaf)


class WrappedBackend(OtherDerivatives):
    """The engine `inner`, of which a subclass changes some derivatives."""

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

    def requires_grad(self, leaf: Array) -> bool | None:
        return self.inner.requires_grad(leaf)
