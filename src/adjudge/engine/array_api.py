"""Arrays of an Array API namespace that has no automatic differentiation of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from adjudge.engine.contract import (
    Array,
    ArrayInfo,
    Arrays,
    AutodiffBackend,
    FlatFunction,
    HostArray,
    Pullback,
)
from adjudge.errors import InputError


class PlainBackend(AutodiffBackend):
    """An engine of arrays alone, whose derivatives are supplied by `ByHand`. See the module."""

    def __init__(self, namespace: Any) -> None:
        """`namespace`: as found by array-api-compat."""
        self._xp = namespace
        root = namespace.__name__.split(".")
        self.name = root[1] if root[0] == "array_api_compat" else root[0]

    @property
    def xp(self) -> Any:
        return self._xp

    def owns(self, leaf: object) -> bool:
        return array_api_compat.is_array_api_obj(leaf) and (
            array_api_compat.array_namespace(leaf) is self._xp
        )

    def vjp(self, f: FlatFunction, x: Arrays) -> tuple[Arrays, Pullback]:
        raise InputError(
            f"the checked arrays are {self.name} arrays, and {self.name} has no derivatives",
            "pass the hand-written derivative: adjudge.ByHand(forward, vjp=backward); or pass "
            "arrays of the framework that differentiates the function",
        )

    def device(self, array: Array) -> object:
        return array_api_compat.device(array)

    def devices(self) -> list[str]:
        return [str(device) for device in self._xp.__array_namespace_info__().devices()]

    def make(self, values: NDArray[Any], dtype: str, device: str | None = None) -> Array:
        known = getattr(self._xp, dtype, None)
        if known is None:
            raise self.lacks(f"dtype {dtype}")
        there = self._at(device)
        try:
            return self._xp.asarray(values.astype(dtype), dtype=known, device=there, copy=True)
        except ValueError as error:
            if there is None:
                raise
            raise self.lacks(f"dtype {dtype} on {device}", str(error)) from error

    def place(self, array: Array, device: object) -> Array:
        there = self._at(device) if isinstance(device, str) else device
        return array_api_compat.to_device(self.copy(array), there)

    def _at(self, name: str | None) -> Any:
        """The device of this name, which a namespace may print as a call: `Device('device1')`."""
        if name is None:
            return None
        for device in self._xp.__array_namespace_info__().devices():
            if name == str(device) or f"('{name}')" in str(device):
                return device
        raise self.lacks(f"device {name!r}", f"the devices are {', '.join(self.devices())}")

    def info(self, array: Array) -> ArrayInfo:
        info = super().info(array)
        # the byte order of a NumPy dtype is layout, and results of arithmetic are native
        return replace(info, dtype=array.dtype.name) if isinstance(array, np.ndarray) else info

    def to_host(self, array: Array, like: Array | None = None) -> HostArray:
        if not isinstance(array, np.ndarray | np.generic):
            # other devices may refuse the conversion to NumPy
            default = self.xp.__array_namespace_info__().default_device()
            if self.device(array) != default:
                array = array_api_compat.to_device(array, default)
        return super().to_host(array, like)

    def from_host(self, host: HostArray, like: Array) -> Array:
        # rounded on the host first: a device without float64 refuses wider host arrays
        dtype = like.dtype if isinstance(like.dtype, np.dtype) else str(like.dtype).split(".")[-1]
        rounded = host.astype(dtype, order="K", copy=False)  # the next line copies
        return self.xp.asarray(rounded, dtype=like.dtype, device=self.device(like), copy=True)

    @property
    def version(self) -> str:
        return str(getattr(self._xp, "__version__", "unknown"))
