"""Arrays of MLX: described, made and copied."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from adjudge.engine import Array, ArrayInfo, ArrayOperations, HostArray


class MlxArrays(ArrayOperations):
    """Arrays of MLX, which are in the memory that all devices share. Contract: `ArrayOperations`.

    float64 is had on the CPU alone, and so checks run there.
    """

    def info(self, array: Array) -> ArrayInfo:
        return ArrayInfo(tuple(array.shape), str(array.dtype).rpartition(".")[2], "cpu")

    def dtypes(self) -> list[str]:
        return ["float64", "float32", "float16", "bfloat16", "complex64"]

    def eps(self, array: Array) -> float:
        return float(mx.finfo(array.dtype).eps)

    def to_host(self, array: Array, like: Array | None = None) -> HostArray:
        if self.is_complex(array):
            return np.array(array, dtype=np.complex128)
        return np.array(array.astype(mx.float64))  # NumPy has no bfloat16

    def from_host(self, host: HostArray, like: Array) -> Array:
        return mx.array(np.ascontiguousarray(host), dtype=like.dtype).reshape(host.shape)

    def make(self, values: NDArray[Any], dtype: str, device: str | None = None) -> Array:
        if dtype not in (*self.dtypes(), "int64", "int32", "int16", "int8", "uint8", "bool"):
            raise self.lacks_dtype(dtype)
        if device not in (None, "cpu"):
            raise self.lacks_device(str(device))
        known = mx.bool_ if dtype == "bool" else getattr(mx, dtype)
        return mx.array(np.ascontiguousarray(values), dtype=known).reshape(values.shape)

    def copy(self, array: Array) -> Array:
        return mx.array(array)

    def widen(self, array: Array) -> Array:
        if self.is_complex(array):
            raise self.lacks_dtype("complex128")
        return array.astype(mx.float64)

    def noncontiguous(self, array: Array) -> Array:
        return mx.stack([array, mx.zeros_like(array)], axis=-1)[..., 0]

    def expanded(self, array: Array, axis: int | None = None) -> Array | None:
        if array.size < 2:
            return None
        kept = (0,) * array.ndim if axis is None else (slice(None),) * axis + (slice(1),)
        return mx.broadcast_to(array[kept], array.shape)
