"""Host arrays on an engine: the same shape, dtype and values, or an error."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjudge.engine.contract import Array, AutodiffBackend
from adjudge.errors import InputError


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
    if isinstance(tree, list) and _numbers(tree):
        return placed(backend, tree, None, device, name)
    if isinstance(tree, tuple | list):
        children = [
            placed_tree(backend, node, device, f"{name}[{k}]") for k, node in enumerate(tree)
        ]
        return type(tree)(*children) if hasattr(tree, "_fields") else type(tree)(children)
    if isinstance(tree, np.ndarray):
        return placed(backend, tree, None, device, name)
    return tree


def _numbers(tree: object) -> bool:
    """Returns whether these are nested lists of numbers, and so an array."""
    if isinstance(tree, list):
        return bool(tree) and all(_numbers(node) for node in tree)
    return isinstance(tree, bool | int | float | complex)
