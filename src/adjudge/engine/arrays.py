"""Arrays apart from their derivatives: those of an Array API namespace that has no automatic
differentiation of its own, and host arrays on any engine, with the same shape, dtype and values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
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
    Environment,
    FlatFunction,
    HostArray,
    MaybeArrays,
    Pullback,
)
from adjudge.errors import InputError
from adjudge.floats import EPS


class PlainArrays(ArrayOperations):
    """The arrays of a namespace that array-api-compat knows."""

    def info(self, array: Array) -> ArrayInfo:
        # the byte order of a NumPy dtype is layout, and results of arithmetic are native
        dtype = array.dtype.name if isinstance(array, np.ndarray) else str(array.dtype)
        return ArrayInfo(tuple(array.shape), dtype, str(array_api_compat.device(array)))

    def is_differentiable(self, array: Array) -> bool:
        return array.dtype.name in EPS if _is_added(array) else super().is_differentiable(array)

    def is_complex(self, array: Array) -> bool:
        return not _is_added(array) and super().is_complex(array)

    def eps(self, array: Array) -> float:
        return EPS[array.dtype.name] if _is_added(array) else super().eps(array)

    def devices(self) -> list[str]:
        return [str(device) for device in self.xp.__array_namespace_info__().devices()]

    def to_host(self, array: Array, like: Array | None = None) -> HostArray:
        if isinstance(array, np.ndarray) and array.dtype.kind in "fc":  # as most are
            return np.array(array, np.complex128 if array.dtype.kind == "c" else np.float64)
        if not isinstance(array, np.ndarray | np.generic):
            # other devices may refuse the conversion to NumPy
            default = self.xp.__array_namespace_info__().default_device()
            if array_api_compat.device(array) != default:
                array = array_api_compat.to_device(array, default)
        return super().to_host(array, like)

    def from_host(self, host: HostArray, like: Array) -> Array:
        if type(like) is np.ndarray and like.dtype.kind in "fc":  # as most are
            return np.array(host, like.dtype)
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

    def noncontiguous(self, array: Array) -> Array:
        if not isinstance(array, np.ndarray):
            return array
        # Not np.empty: what a rule that ignores strides makes of the gaps has to be repeatable.
        wide = np.zeros((*array.shape, 2), array.dtype)
        wide[..., 1] = array  # with an offset as well
        return wide[..., 1]

    def expanded(self, array: Array, axis: int | None = None) -> Array | None:
        if not isinstance(array, np.ndarray) or array.size < 2:
            return None
        kept = (0,) * array.ndim if axis is None else (slice(None),) * axis + (slice(1),)
        first = array[kept].copy()
        # broadcast_to is read-only, which no cotangent is.
        strides = np.broadcast_to(first, array.shape).strides
        # It makes bytes of any dtype, but no array of one that was added to NumPy.
        plain = first.view(np.dtype((np.void, first.itemsize)))
        return np.lib.stride_tricks.as_strided(plain, array.shape, strides).view(array.dtype)

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


def _is_added(array: Array) -> bool:
    """Returns whether this is an array of NumPy with a dtype that another package added to it, as
    `ml_dtypes` adds bfloat16. NumPy computes with these, and has no `isdtype` or `finfo` of them.
    """
    return isinstance(array, np.ndarray | np.generic) and array.dtype.isbuiltin == ADDED


ADDED = 2
"""What NumPy calls `isbuiltin` of a dtype that was added to it."""


class ArraysByNumpy(ArrayOperations, ABC):
    """The arrays of an engine whose functions are not those of the Array API, by way of NumPy.

    An adapter says in `numpy` how an array is read, in `tensor` how one is made, and in `floating`
    what can be differentiated; also `info` and `devices`, where arrays are elsewhere than on "cpu".
    """

    floating: tuple[str, ...] = ("float64", "float32", "float16")
    """The dtypes whose derivatives can be checked, complex ones among them."""
    others: tuple[str, ...] = ("int64", "int32", "int16", "int8", "uint8", "bool")
    """The other dtypes that arrays can be made of."""

    @abstractmethod
    def numpy(self, array: Array) -> NDArray[Any]:
        """Returns the values of `array`, which may be in its own memory."""

    @abstractmethod
    def tensor(
        self, values: NDArray[Any], dtype: str, device: str | None, like: Array | None = None
    ) -> Array:
        """Returns a new array of `values`, rounded to this dtype, on the device of this name.

        `None` is the default device. `like` is an array of whose kind it is to be, where an engine
        has several kinds. The memory of `values` is not the new array's.
        """

    def info(self, array: Array) -> ArrayInfo:
        return ArrayInfo(tuple(array.shape), str(array.dtype).rpartition(".")[2], "cpu")

    def is_differentiable(self, array: Array) -> bool:
        return self.info(array).dtype in self.floating

    def is_complex(self, array: Array) -> bool:
        return self.info(array).dtype.startswith("complex")

    def eps(self, array: Array) -> float:
        dtype = self.info(array).dtype
        return EPS[dtype] if dtype in EPS else float(np.finfo(dtype).eps)

    def dtypes(self) -> list[str]:
        return list(self.floating)

    def to_host(self, array: Array, like: Array | None = None) -> HostArray:
        return np.array(self.numpy(array), dtype=self._wide(array))

    def from_host(self, host: HostArray, like: Array) -> Array:
        found = self.info(like)
        return self.tensor(host, found.dtype, found.device, like)

    def make(self, values: NDArray[Any], dtype: str, device: str | None = None) -> Array:
        if dtype not in (*self.floating, *self.others):
            raise self.lacks_dtype(dtype)
        if device not in (None, *self.devices()):
            raise self.lacks_device(str(device))
        return self.tensor(values, dtype, device)

    def copy(self, array: Array) -> Array:
        return self.from_host(self.numpy(array), array)

    def place(self, array: Array, device: str) -> Array:
        if device not in self.devices():
            raise self.lacks_device(device)
        return self.tensor(self.numpy(array), self.info(array).dtype, device, array)

    def widen(self, array: Array) -> Array:
        wide = self._wide(array)
        if wide not in self.floating:
            raise self.lacks_dtype(wide)
        return self.tensor(self.numpy(array), wide, self.info(array).device)

    def zeros_for_absent(self, values: MaybeArrays, like: Arrays) -> Arrays:
        if hasattr(self.xp, "zeros_like"):  # it may know what is traced
            return super().zeros_for_absent(values, like)
        return tuple(
            self.from_host(np.zeros(tuple(leaf.shape), self._wide(leaf)), leaf)
            if value is None
            else value
            for value, leaf in zip(values, like, strict=True)
        )

    def _wide(self, array: Array) -> str:
        return "complex128" if self.is_complex(array) else "float64"


def has_namespace(thing: object) -> bool:
    """Returns whether this is an array of the Array API. A dictionary is none, and is not asked: it
    may take names of attributes for keys, and raise `KeyError`.
    """
    return not isinstance(thing, dict) and bool(array_api_compat.is_array_api_obj(thing))


class PlainEnvironment(Environment):
    """The environment of arrays alone. Contract: see `Environment`."""

    def carried_settings(self) -> Callable[[], AbstractContextManager[object]] | None:
        return nullcontext


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
        return has_namespace(leaf) and array_api_compat.array_namespace(leaf) is self._xp

    @cached_property
    def arrays(self) -> ArrayOperations:
        return PlainArrays(self.name, self._xp)

    @cached_property
    def environment(self) -> Environment:
        return PlainEnvironment(super().environment.version)

    def vjp(self, f: FlatFunction, x: Arrays) -> tuple[Arrays, Pullback]:
        raise InputError(
            f"the checked arrays are {self.name} arrays, and {self.name} has no derivatives",
            "pass the hand-written derivative: adjudge.ByHand(forward, vjp=backward); or pass "
            "arrays of the framework that differentiates the function, or its name: backend=",
        )


def placed(
    backend: AutodiffBackend,
    values: object,
    dtype: str | None = None,
    device: str | None = None,
    name: str = "values",
) -> Array:
    """Returns a new array of `backend` with exactly these values.

    `values` is a NumPy array, or nested lists of numbers, which are float64, int64 or bool as in
    NumPy. The dtype is that of `values` unless `dtype` names another; to a narrower one they are
    rounded once, on the host. Raises `InputError` for what is no array of numbers, and where the
    engine makes another array of it.
    """
    host = host_array(values, name)
    wanted = host.dtype.name if dtype is None else dtype
    if host.dtype.kind in "fc" and wanted in _KNOWN:
        host = host.astype(wanted)
    array = backend.arrays.make(host, wanted, device)
    info = backend.arrays.info(array)
    made = info.dtype.rpartition(".")[2]
    if info.shape != host.shape or made != wanted:
        raise InputError(
            f"{name} has shape {host.shape} and dtype {wanted}, and {backend.name} made shape "
            f"{info.shape} and dtype {made} of it",
            f"mend make() of backend '{backend.name}', or give a dtype that the engine has",
        )
    if backend.arrays.is_differentiable(array):
        with backend.environment.isolation([array]):
            seen = backend.arrays.to_host(array)
        if wanted == host.dtype.name and not np.array_equal(seen, host, equal_nan=True):
            raise InputError(
                f"{name} has other values on {backend.name} than on the host",
                f"mend make() or to_host() of backend '{backend.name}'",
            )
    return array


_KNOWN = ("float16", "float32", "float64", "complex64", "complex128")


def host_array(values: object, name: str = "values") -> NDArray[Any]:
    """Returns `values` as a NumPy array of numbers. Raises `InputError` for anything else."""
    try:
        host = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:  # what arrays of engines raise here
        raise InputError(
            f"{name} is a {type(values).__name__} and no array of numbers: {error}",
            "give a NumPy array, or nested lists of numbers",
        ) from error
    # dtypes of ml_dtypes, such as bfloat16, are of kind V and have no fields
    if host.dtype.kind not in "biufcV" or host.dtype.fields:
        raise InputError(
            f"{name} is a {type(values).__name__} of dtype {host.dtype}",
            "give a NumPy array of numbers, or nested lists of numbers",
        )
    return host


def placed_tree(
    backend: AutodiffBackend, tree: object, device: str | None = None, name: str = "inputs"
) -> Any:
    """Returns a tree of dicts, tuples and lists with each host array placed on the engine.

    Nested lists of numbers are arrays. Numbers and other objects stay what they are.
    """
    if isinstance(tree, dict):
        return {
            key: placed_tree(backend, node, device, f"{name}[{key!r}]")
            for key, node in tree.items()
        }
    if isinstance(tree, list) and is_number(tree):
        return placed(backend, tree, None, device, name)
    if isinstance(tree, tuple | list):
        children = [
            placed_tree(backend, node, device, f"{name}[{k}]") for k, node in enumerate(tree)
        ]
        return type(tree)(*children) if hasattr(tree, "_fields") else type(tree)(children)
    if isinstance(tree, np.ndarray):
        return placed(backend, tree, None, device, name)
    return tree


def is_number(tree: object) -> bool:
    """Returns whether this is a number of Python or NumPy, or nested lists of numbers."""
    if isinstance(tree, list):
        return bool(tree) and all(map(is_number, tree))
    return isinstance(tree, bool | int | float | complex | np.number)


def of_numbers(values: Any, args: Sequence[Any], engine: AutodiffBackend | None = None) -> Any:
    """Returns a number of Python, or nested lists of numbers, as an array of the kind and dtype of
    the first array among `args`; all else as it is. `engine` knows arrays that have no standard.
    """
    if hasattr(values, "shape") or isinstance(values, bool) or not is_number(values):
        return values
    like = next((one for one in args if is_array(one, engine)), np.zeros(0))
    if engine is not None and not has_namespace(like):
        return from_numpy(engine, np.asarray(values), like)
    dtype = None if isinstance(values, complex) else like.dtype
    return array_api_compat.array_namespace(like).asarray(values, dtype=dtype)


def is_array(thing: object, engine: AutodiffBackend | None = None) -> bool:
    """Returns whether this is an array with the Array API, or one of the engine."""
    known = has_namespace(thing)
    return known or (engine is not None and engine.owns(thing))


def from_numpy(engine: AutodiffBackend, values: NDArray[Any], like: Array) -> Array:
    """Returns these values as an array of the engine, with the dtype and device of `like`; of a
    complex dtype where they are complex.
    """
    arrays, complex_values = engine.arrays, np.iscomplexobj(values)
    if complex_values and not arrays.is_complex(like):
        return arrays.make(values, "complex128", arrays.info(like).device)
    wide = np.complex128 if arrays.is_complex(like) else np.float64
    return arrays.from_host(np.asarray(values, dtype=wide), like)
