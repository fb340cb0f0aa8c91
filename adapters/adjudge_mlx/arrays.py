"""Arrays of MLX: described, made and copied."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from adjudge.engine import Array, ArraysByNumpy


class MlxArrays(ArraysByNumpy):
    """Arrays of MLX, which are in the memory that all devices share. Contract: `ArrayOperations`.

    float64 is had on the CPU alone, and so checks run there.
    """

    floating = ("float64", "float32", "float16", "bfloat16", "complex64")

    def numpy(self, array: Array) -> NDArray[Any]:
        # NumPy has no bfloat16
        return np.array(array.astype(mx.float64) if array.dtype == mx.bfloat16 else array)

    def tensor(
        self, values: NDArray[Any], dtype: str, device: str | None, like: Array | None = None
    ) -> Array:
        known = mx.bool_ if dtype == "bool" else getattr(mx, dtype)
        return mx.array(np.ascontiguousarray(values), dtype=known).reshape(values.shape)

    def noncontiguous(self, array: Array) -> Array:
        return mx.stack([array, mx.zeros_like(array)], axis=-1)[..., 0]

    def expanded(self, array: Array, axis: int | None = None) -> Array | None:
        if array.size < 2:
            return None
        kept = (0,) * array.ndim if axis is None else (slice(None),) * axis + (slice(1),)
        return mx.broadcast_to(array[kept], array.shape)
