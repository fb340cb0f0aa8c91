"""Arrays of an Array API namespace that has no automatic differentiation of its own."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from adjudge.engine.contract import (
    Array,
    ArrayInfo,
    ArrayOperations,
    Arrays,
    AutodiffBackend,
    FlatFunction,
    HostArray,
    Pullback,
)
from adjudge.errors import InputError


class PlainArrays(ArrayOperations):
    """The arrays of a namespace that array-api-compat knows."""

    def info(self, array: Array) -> ArrayInfo:
        # the byte order of a NumPy dtype is layout, and results of arithmetic are native
        dtype = array.dtype.name if isinstance(array, np.ndarray) else str(array.dtype)
        return ArrayInfo(tuple(array.shape), dtype, str(array_api_compat.device(array)))

    def devices(self) -> list[str]:
        return [str(device) for device in self.xp.__array_namespace_info__().devices()]

    def to_host(self, array: Array, like: Array | None = None) -> HostArray:
        if not isinstance(array, np.ndarray | np.generic):
            # other devices may refuse the conversion to NumPy
            default = self.xp.__array_namespace_info__().default_device()
            if array_api_compat.device(array) != default:
                array = array_api_compat.to_device(array, default)
        return super().to_host(array, like)

    def from_host(self, host: HostArray, like: Array) -> Array:
        # rounded on the host first: a device without float64 refuses wider host arrays
        dtype = like.dtype if isinstance(like.dtype, np.dtype) else str(like.dtype).split(".")[-1]
        rounded = host.astype(dtype, order="K", copy=False)  # the next line copies
        there = array_api_compat.device(like)
        return self.xp.asarray(rounded, dtype=like.dtype, device=there, copy=True)

    def make(self, values: NDArray[Any], dtype: str, device: str | None = None) -> Array:
        known = getattr(self.xp, dtype, None)
        if known is None:
            raise self.lacks_dtype(dtype)
        there = self._device(device)
        try:
            return self.xp.asarray(values.astype(dtype), dtype=known, device=there, copy=True)
        except ValueError as error:
            if there is None:
                raise
            raise self.lacks_dtype(f"{dtype} on {device}", str(error)) from error

    def place(self, array: Array, device: str) -> Array:
        return array_api_compat.to_device(self.copy(array), self._device(device))

    def _device(self, name: str | None) -> Any:
        """Returns the device of this name, which some namespaces print as a call:
        `Device('device1')`.
        """
        if name is None:
            return None
        for device in self.xp.__array_namespace_info__().devices():
            if name == str(device) or f"('{name}')" in str(device):
                return device
        raise self.lacks_device(name)


class PlainBackend(AutodiffBackend):
    """An engine of arrays alone, whose derivatives are supplied by `ByHand`."""

    def __init__(self, namespace: Any) -> None:
        """`namespace` is one that array-api-compat found."""
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

    @cached_property
    def arrays(self) -> ArrayOperations:
        return PlainArrays(self.name, self._xp)

    def vjp(self, f: FlatFunction, x: Arrays) -> tuple[Arrays, Pullback]:
        raise InputError(
            f"the checked arrays are {self.name} arrays, and {self.name} has no derivatives",
            "pass the hand-written derivative: adjudge.ByHand(forward, vjp=backward); or pass "
            "arrays of the framework that differentiates the function",
        )
