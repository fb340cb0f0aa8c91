"""Tensors of tinygrad: described, made and copied; its functions by names of the standard."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tinygrad import Device, Tensor, dtypes

from adjudge.engine import EPS, Array, ArrayInfo, ArrayOperations, HostArray

FLOATING = ("float64", "float32", "float16")
DTYPES = {
    **{name: getattr(dtypes, name) for name in (*FLOATING, "int64", "int32", "int8", "uint8")},
    "bool": dtypes.bool,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
"""The names of NumPy; tinygrad prints those of C."""


class Namespace(SimpleNamespace):
    """The methods of a tensor, under the names of the Array API standard where it has others."""

    def __getattr__(self, name: str) -> Any:
        return getattr(Tensor, name)


def _index(indices: Any) -> Tensor:
    return indices if isinstance(indices, Tensor) else Tensor(np.asarray(indices))


NAMESPACE = Namespace(
    concat=lambda arrays, axis=0: Tensor.cat(*arrays, dim=axis),
    mean=lambda x, axis=None, keepdims=False: x.mean(axis, keepdims),
    permute_dims=lambda x, axes: x.permute(*axes),
    stack=lambda arrays, axis=0: Tensor.stack(*arrays, dim=axis),
    sum=lambda x, axis=None, keepdims=False: x.sum(axis, keepdims),
    take=lambda x, indices, axis=0: x[(slice(None),) * axis + (_index(indices),)],
)


class TinygradArrays(ArrayOperations):
    """Operations on tensors of tinygrad, by way of NumPy. Contract: see `ArrayOperations`."""

    def info(self, array: Array) -> ArrayInfo:
        dtype = NAMES.get(array.dtype, array.dtype.name)
        return ArrayInfo(tuple(array.shape), dtype, str(array.device or Device.DEFAULT))

    def is_differentiable(self, array: Array) -> bool:
        return self.info(array).dtype in FLOATING

    def is_complex(self, array: Array) -> bool:
        return False

    def eps(self, array: Array) -> float:
        return EPS[self.info(array).dtype]

    def dtypes(self) -> list[str]:
        return list(FLOATING)

    def devices(self) -> list[str]:
        return [Device.DEFAULT]

    def to_host(self, array: Array, like: Array | None = None) -> HostArray:
        # of a copy: what is computed forgets what it was computed from
        return np.array(Tensor(array.uop).numpy(), dtype=np.float64)

    def from_host(self, host: HostArray, like: Array) -> Array:
        return self._tensor(host, self.info(like).dtype, like.device)

    def make(self, values: NDArray[Any], dtype: str, device: str | None = None) -> Array:
        if dtype not in DTYPES:
            raise self.lacks_dtype(dtype)
        if device not in (None, *self.devices()):
            raise self.lacks_device(str(device))
        return self._tensor(values, dtype, device)

    @staticmethod
    def _tensor(values: NDArray[Any], dtype: str, device: Any) -> Array:
        # tinygrad may keep the array that it is given
        host = np.array(values, dtype=dtype, order="C")
        return Tensor(host, device=device, dtype=DTYPES[dtype]).realize()

    def copy(self, array: Array) -> Array:
        return self.from_host(self.to_host(array), array)

    def widen(self, array: Array) -> Array:
        return self._tensor(self.to_host(array), "float64", array.device)
