"""CuPy as an adjudge backend: arrays on a GPU, whose derivatives are supplied by hand."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjudge.backend import Array, ArrayInfo, Arrays, HostArray
from adjudge.plain import PlainBackend

cupy: Any = importlib.import_module("cupy")  # untyped, and absent where nobody has a GPU
namespace: Any = importlib.import_module("array_api_compat.cupy")
arithmetic: Any = importlib.import_module("cupy._core._routines_linalg")

TF32_EPS = 2.0**-10
"""Spacing at 1 of NVIDIA's TensorFloat-32, which has ten explicit significand bits."""

LARGE = 2**28
"""Bytes in CuPy's pool above which it is emptied after a check."""


@cache
def why_absent() -> str | None:
    """Why no array can be held; `None` where one can. CuPy imports without a GPU, so an import
    says nothing (https://docs.cupy.dev, `cupy.is_available`).
    """
    if cupy.is_available():
        return None
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        driver = cupy.cuda.runtime.driverGetVersion()
        missing = "no NVIDIA driver was found: " if driver == 0 else ""
        return f"{missing}{error}"
    return f"CUDA sees {count} devices"


class CupyBackend(PlainBackend):
    """See `AutodiffBackend` for the contract. A device is called by CUDA's number: `cuda:0`."""

    def __init__(self) -> None:
        """Of `cupy`, by way of array-api-compat."""
        super().__init__(namespace)

    def absent(self) -> str | None:
        return why_absent()

    def owns(self, leaf: object) -> bool:
        return isinstance(leaf, cupy.ndarray)

    # ---------------------------------------------------------------- arrays

    def device(self, array: Array) -> object:
        return f"cuda:{array.device.id}"

    def info(self, array: Array) -> ArrayInfo:
        return ArrayInfo(tuple(array.shape), array.dtype.name, f"cuda:{array.device.id}")

    def differentiable(self, leaf: Array) -> bool:
        return bool(leaf.dtype.kind in "fc")

    def complex(self, leaf: Array) -> bool:
        return bool(leaf.dtype.kind == "c")

    def eps(self, array: Array) -> float:
        return float(np.finfo(array.dtype).eps)

    def effective_eps(self, array: Array) -> float:
        single = array.dtype in (np.float32, np.complex64)
        if single and _computes_in(np.float32) == arithmetic.COMPUTE_TYPE_TF32:
            return TF32_EPS
        return self.eps(array)

    def coarsened_by(self, array: Array) -> str:
        return "CUPY_TF32=1" if self.effective_eps(array) > self.eps(array) else ""

    def repeatable_by(self, array: Array) -> str:
        return (
            "atomicAdd adds in any order (cupyx.scatter_add, cupy.add.at, cupy.bincount, and your "
            "own kernels): sort, or reduce in a fixed order"
        )

    def copy(self, array: Array) -> Array:
        with array.device:
            return array.copy()

    def to_host(self, array: Array, like: Array | None = None) -> HostArray:
        wide = np.complex128 if self.complex(array) else np.float64
        with array.device:
            host = cupy.asnumpy(array)  # on the current stream, and waits for it
        return np.array(host, dtype=wide)

    def from_host(self, host: HostArray, like: Array) -> Array:
        rounded = np.ascontiguousarray(host).astype(like.dtype).reshape(host.shape)
        with like.device:
            return cupy.array(rounded)

    def make(self, values: NDArray[Any], dtype: str, device: str | None = None) -> Array:
        if not hasattr(np, dtype):
            raise self.lacks(f"dtype {dtype}")
        with self._at(device):
            return cupy.array(values.astype(dtype))

    def place(self, array: Array, device: object) -> Array:
        there: Any = self._at(device) if isinstance(device, str) else device
        with there:
            return cupy.array(array, copy=True)

    def _at(self, name: str | None) -> Any:
        if reason := why_absent():
            raise self.lacks("every device", reason)
        if name is None:
            return cupy.cuda.Device()
        if name == "cuda":
            return cupy.cuda.Device()
        if name in self.devices():
            return cupy.cuda.Device(int(name.removeprefix("cuda:")))
        raise self.lacks(f"device {name!r}", f"the devices are {', '.join(self.devices())}")

    # ---------------------------------------------------------------- surroundings

    @property
    def version(self) -> str:
        return str(cupy.__version__)

    def devices(self) -> list[str]:
        if why_absent():
            return []
        return [f"cuda:{k}" for k in range(cupy.cuda.runtime.getDeviceCount())]

    def dtypes(self) -> list[str]:
        return ["float64", "float32", "float16", "complex128", "complex64"]

    def isolation(self, leaves: Sequence[Array]) -> AbstractContextManager[None]:
        return _isolated()

    def calling(self, x: Arrays) -> AbstractContextManager[None]:
        return _calling(x[0].device) if x else _isolated()

    @contextmanager
    def highest_precision(self) -> Iterator[None]:
        before = _computes_in(np.float32)
        arithmetic.set_compute_type(np.float32, arithmetic.COMPUTE_TYPE_PEDANTIC)
        try:
            yield
        finally:
            arithmetic.set_compute_type(np.float32, before)


def _computes_in(dtype: Any) -> int:
    return int(arithmetic.get_compute_type(np.dtype(dtype)))


@contextmanager
def _isolated() -> Iterator[None]:
    """Current device and stream are as before afterwards, and large pools are emptied."""
    device = cupy.cuda.Device()
    stream = cupy.cuda.get_current_stream()
    try:
        yield
    finally:
        device.use()
        stream.use()
        pool = cupy.get_default_memory_pool()
        if pool.total_bytes() > LARGE:
            pool.free_all_blocks()


@contextmanager
def _calling(device: Any) -> Iterator[None]:
    """In the device and its current stream, and waits for it: a kernel that fails raises here."""
    with device:
        stream = cupy.cuda.get_current_stream()
        with stream:
            yield
        stream.synchronize()
