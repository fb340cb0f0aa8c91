"""The contract that an adapter implements: one engine, and nothing of checking."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from adjudge.errors import NotSupportedError

Array: TypeAlias = Any
"""An array of the user's framework. We are given it: it is structural, never wrapped."""

Arrays: TypeAlias = tuple[Array, ...]
MaybeArrays: TypeAlias = tuple[Array | None, ...]
FlatFunction: TypeAlias = Callable[[Arrays], Arrays]
"""`f: X -> Y` on leaves: floating or complex arrays in, floating or complex arrays out."""

Pullback: TypeAlias = Callable[[MaybeArrays], MaybeArrays]
"""`w -> J* w`: a cotangent per output leaf (`None`: that output takes no part; `UNDEFINED`:
see there), a gradient per input leaf (`None`: the engine says that there is no dependence)."""

UNDEFINED: Final = object()
"""A cotangent that the engine itself leaves undefined on its way through the graph. Handed to
pullbacks only where `undefined_cotangents` is true; it must act as zero."""

HostArray: TypeAlias = NDArray[Any]
"""A NumPy array of float64 or complex128."""


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """What must agree between a leaf and its gradient."""

    shape: tuple[int, ...]
    dtype: str
    device: str
    layout: str = "dense"


@dataclass(frozen=True, slots=True)
class Expansion:
    """A node that only the framework can flatten (a registered module, say)."""

    children: tuple[object, ...]
    names: tuple[str, ...]
    rebuild: Callable[[Sequence[object]], object]


class AutodiffBackend(ABC):
    """One automatic differentiation engine.

    Required: `xp`, `owns`, `vjp`. Every other operation has a default: derived where the
    Array API is enough, else one that raises `NotSupportedError`, so that a report can say
    what was not checked.

    `J*` is the adjoint for the real inner product `<a, b> = Re sum(conj(a) b)`; an engine
    with another convention conjugates in its adapter.
    """

    name: str
    way: str = "eager"
    """How derivatives are taken here, where the engine has several ways: `ways`."""
    compiles_unasked: bool = False
    """Whether compiled functions are so usual that they are checked beside others unasked."""
    compiled: str = "compiled"
    """The engine's word for functions that `compile` made."""

    # ---------------------------------------------------------------- required

    @property
    @abstractmethod
    def xp(self) -> Any:
        """The Array API namespace of this engine's arrays."""

    @abstractmethod
    def owns(self, leaf: object) -> bool:
        """Whether `leaf` is an array of this engine, or what stands for one on its way through
        a function that is differentiated (a tracer, a node of a tape).
        """

    @abstractmethod
    def vjp(self, f: FlatFunction, x: Arrays) -> tuple[Arrays, Pullback]:
        """`(f(x), w -> J* w)`. `f` is called once, on `x` or on aliases of it that carry
        derivatives; the pullback may be called any number of times.
        """

    # ---------------------------------------------------------------- derivatives

    def jvp(self, f: FlatFunction, x: Arrays, v: MaybeArrays) -> tuple[Arrays, MaybeArrays]:
        """`(f(x), J v)`, a tangent per output leaf; `None` in `v` is an undefined tangent."""
        raise self.lacks("forward mode (jvp)")

    def vjp_map(self, f: FlatFunction, x_count: int) -> FlatFunction:
        """`(x, w) -> J*(x) w` as a function that this engine can differentiate again.

        Derived here from a nested `vjp`, for engines that nest. Absent gradients are zeros.
        """

        def gradient_map(x_and_w: Arrays) -> Arrays:
            x, w = x_and_w[:x_count], x_and_w[x_count:]
            _, pullback = self.vjp(f, x)
            return self.zeros_for_absent(pullback(w), x)

        return gradient_map

    def jvp_map(self, f: FlatFunction, x_count: int) -> FlatFunction:
        """`(x, v) -> J(x) v` as a function that this engine can differentiate again."""

        def tangent_map(x_and_v: Arrays) -> Arrays:
            x, v = x_and_v[:x_count], x_and_v[x_count:]
            y, jv = self.jvp(f, x, v)
            return self.zeros_for_absent(jv, y)

        return tangent_map

    def vmap(self, function: Callable[[MaybeArrays], MaybeArrays]) -> Callable[..., MaybeArrays]:
        """`function` mapped over a new leading axis of each of its arrays."""
        raise self.lacks("batching (vmap)")

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A user's function, of any arguments, compiled by the engine. It may compile late."""
        raise self.lacks("compilation")

    def ways(self) -> Sequence[AutodiffBackend]:
        """The same engine taking the same derivatives in other ways, whose errors may differ."""
        return ()

    @property
    def capabilities(self) -> frozenset[str]:
        """Names of the operations that this engine offers beyond `vjp`."""
        optional = ("jvp", "vmap", "compile")
        return frozenset(
            name
            for name in optional
            if getattr(type(self), name) is not getattr(AutodiffBackend, name)
        )

    @property
    def undefined_cotangents(self) -> bool:
        """Whether the engine itself hands undefined (`None`) cotangents to derivatives."""
        return False

    def detached(self, y: Array) -> bool:
        """Whether the engine recorded no derivative at all for this output of `vjp`."""
        return False

    # ---------------------------------------------------------------- arrays

    def info(self, array: Array) -> ArrayInfo:
        """Shape, dtype, device and layout, in the engine's own words."""
        return ArrayInfo(tuple(array.shape), str(array.dtype), str(self.device(array)))

    def device(self, array: Array) -> object:
        """The device that `array` lives on."""
        return getattr(array, "device", "cpu")

    def differentiable(self, leaf: Array) -> bool:
        """Whether the leaf's dtype is real floating or complex."""
        return bool(self.xp.isdtype(leaf.dtype, ("real floating", "complex floating")))

    def complex(self, leaf: Array) -> bool:
        """Whether the leaf's dtype is complex."""
        return bool(self.xp.isdtype(leaf.dtype, "complex floating"))

    def wanted(self, leaf: Array) -> bool | None:
        """Whether the user marked the leaf for differentiation; `None` where engines don't."""
        return None

    def eps(self, array: Array) -> float:
        """Spacing of the dtype at 1 (2.2e-16 for float64); twice the unit round-off u."""
        return float(self.xp.finfo(array.dtype).eps)

    def effective_eps(self, array: Array) -> float:
        """`eps` of the arithmetic really used: coarser under TF32, autocast and the like."""
        return self.eps(array)

    def coarsened_by(self, array: Array) -> str:
        """The setting that makes `effective_eps` coarser than `eps`, as a user would type it; where
        it is not coarser, settings that make some operations so (convolutions, say).
        """
        return ""

    def repeatable_by(self, array: Array) -> str:
        """What makes results on the device of `array` repeatable, as a user would type it; ""
        where they are anyway (the order of atomic additions is fixed).
        """
        return ""

    def carried_eps(self, f: FlatFunction, x: Arrays) -> float:
        """`eps` of the narrowest dtype that `f` computes with at `x`; 0 where that is not known."""
        return 0.0

    def copy(self, array: Array) -> Array:
        """A copy that shares no memory with `array`, nor its derivative history."""
        return self.xp.asarray(array, copy=True)

    def to_host(self, array: Array, like: Array | None = None) -> HostArray:
        """The exact values in float64 or complex128; the coordinates of `like` where given.

        Coordinates are the entries that move independently: all of a dense array, the stored
        values of a masked sparse one.
        """
        wide = np.complex128 if self.complex(array) else np.float64
        return np.array(array, dtype=wide)

    def from_host(self, host: HostArray, like: Array) -> Array:
        """A new array with these values (rounded) and dtype, device and layout of `like`."""
        return self.xp.asarray(host, dtype=like.dtype, device=self.device(like), copy=True)

    def make(self, values: NDArray[Any], dtype: str, device: str | None = None) -> Array:
        """A new array of `values`, of the dtype of this name (`float32`, `bfloat16`, `bool`), on
        the device of this name of `devices()`; `None`: the engine's default.

        Raises `NotSupportedError` where the engine has no such dtype or makes another one of it.
        """
        known = getattr(self.xp, dtype, None)
        if known is None:
            raise self.lacks(f"dtype {dtype}")
        if device is not None and device not in self.devices():
            raise self.lacks(f"device {device!r}", f"the devices are {', '.join(self.devices())}")
        place = {} if device is None else {"device": device}
        return self.xp.asarray(values, dtype=known, copy=True, **place)

    def stack(self, arrays: Sequence[Array]) -> Array:
        """The arrays along a new leading axis."""
        return self.xp.stack(list(arrays))

    def strided(self, array: Array) -> Array:
        """The same values in memory that is not contiguous; `array` itself without strides."""
        return array

    def widen(self, array: Array) -> Array:
        """The same values in float64 or complex128, which hold those of every narrower dtype."""
        wide = self.xp.complex128 if self.complex(array) else self.xp.float64
        return self.xp.astype(array, wide)

    def place(self, array: Array, device: object) -> Array:
        """A copy of `array` on `device`."""
        raise self.lacks("placement on a device")

    def expand(self, node: object) -> Expansion | None:
        """The children of a node that only this framework knows; `None` if it is not one."""
        return None

    def masked(self, masked: bool | None) -> Self:
        """This engine with sparse arrays checked at their stored values only (`True`)."""
        return self

    # ---------------------------------------------------------------- surroundings

    def absent(self) -> str | None:
        """Why the engine can hold no array on this machine (no driver, say); `None`: it can."""
        return None

    @property
    def version(self) -> str:
        """Version of the engine."""
        return str(getattr(self.xp, "__version__", "unknown"))

    def devices(self) -> list[str]:
        """Devices that can be named."""
        return ["cpu"]

    def dtypes(self) -> list[str]:
        """Dtypes whose derivatives can be checked."""
        return ["float32", "float64", "complex64", "complex128"]

    def isolation(self, leaves: Sequence[Array]) -> AbstractContextManager[None]:
        """Restores random state, default dtype, device and precision flags on exit, and
        enters whatever the leaves need (64-bit mode, say).
        """
        return contextlib.nullcontext()

    def widening(self) -> AbstractContextManager[None]:
        """Within it double precision is to be had, and an array of lower precision that meets a
        double one is widened, as type promotion does (a captured weight, say).
        """
        return contextlib.nullcontext()

    def highest_precision(self) -> AbstractContextManager[None]:
        """Within it arithmetic is as precise as the dtype: no TF32, autocast and the like."""
        return contextlib.nullcontext()

    def calling(self, x: Arrays) -> AbstractContextManager[None]:
        """Around every call of the user's function, or of a derivative by hand, with arrays at
        `x`: enters their device and stream, and on exit waits for what was launched, so that an
        asynchronous error is raised by the call that caused it.
        """
        return contextlib.nullcontext()

    def random_state(self) -> Hashable:
        """The engine's global random state, comparable; `None` where it has none."""
        return None

    # ---------------------------------------------------------------- helpers for adapters

    def lacks(self, what: str, reason: str = "") -> NotSupportedError:
        """The error to raise for an operation that this engine does not offer."""
        return NotSupportedError(
            f"{what} is not supported by backend '{self.name}'" + (f": {reason}" if reason else ""),
            "switch that check off, or use an engine that offers it",
        )

    def zeros_for_absent(self, values: MaybeArrays, like: Arrays) -> Arrays:
        """`values` with zeros of the shape, dtype and device of `like` where one is absent."""
        return tuple(
            self.xp.zeros_like(leaf) if value is None else value
            for value, leaf in zip(values, like, strict=True)
        )
