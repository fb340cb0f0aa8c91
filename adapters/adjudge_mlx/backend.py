"""MLX as an adjudge backend: reverse and forward mode, both of both, batched and compiled."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.utils import tree_flatten, tree_unflatten
from numpy.typing import NDArray

from adjudge.engine import (
    EPS,
    Array,
    ArrayOperations,
    Arrays,
    ArraysByNumpy,
    AutodiffBackend,
    Environment,
    FlatFunction,
    Functional,
    MaybeArrays,
    Precision,
    Pullback,
    Refusals,
    Setting,
    restored,
)


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


class MlxEnvironment(Environment):
    """The random key and the default device, and how exactly MLX computes."""

    @contextmanager
    def isolation(self, leaves: Sequence[Array]) -> Iterator[None]:
        device = Setting(mx.default_device, mx.set_default_device)
        with restored(device, Setting(self.random_state, self.set_random_state)):
            mx.set_default_device(mx.cpu)
            yield

    def random_state(self) -> Hashable:
        return tuple(mx.random.state[0].tolist())

    def set_random_state(self, state: Any) -> None:
        high, low = state
        mx.random.seed(high << 32 | low)

    def precision(self, array: Array) -> Precision:
        # sin, cos, exp, erf and sigmoid of float64 have the digits of float32
        return Precision(result_eps=EPS["float32"] if array.dtype == mx.float64 else 0.0)


class MlxBackend(AutodiffBackend):
    """See `AutodiffBackend` for the contract. A pullback evaluates `f` once more: MLX takes
    derivatives of functions, and records nothing otherwise.
    """

    name = "mlx"
    refusals = Refusals(
        (ValueError, RuntimeError), ("ot implemented", "ot yet implemented", "Cannot calculate")
    )

    @property
    def xp(self) -> Any:
        return mx

    def owns(self, leaf: object) -> bool:
        return isinstance(leaf, mx.array)

    @cached_property
    def arrays(self) -> ArrayOperations:
        return MlxArrays(self.name, mx)

    @cached_property
    def environment(self) -> Environment:
        return MlxEnvironment(mx.__version__)

    def vjp(self, f: FlatFunction, x: Arrays) -> tuple[Arrays, Pullback]:
        y = f(x)

        def pullback(w: MaybeArrays) -> MaybeArrays:
            if all(one is None for one in w):
                return (None,) * len(x)
            cotangents = self.arrays.zeros_for_absent(w, y)
            with self.refusing("reverse mode (vjp)"):
                return tuple(mx.vjp(_of_several(f), x, cotangents)[1])

        return y, pullback

    def jvp(self, f: FlatFunction, x: Arrays, v: MaybeArrays) -> tuple[Arrays, MaybeArrays]:
        tangents = self.arrays.zeros_for_absent(v, x)
        with self.refusing("forward mode (jvp)"):
            y, jv = mx.jvp(_of_several(f), x, tangents)
        return tuple(y), tuple(jv)

    def vjp_map(self, f: FlatFunction, x_count: int) -> FlatFunction:
        return _apart(super().vjp_map(f, x_count))

    def jvp_map(self, f: FlatFunction, x_count: int) -> FlatFunction:
        return _apart(super().jvp_map(f, x_count))

    def vmap(self, function: Callable[[MaybeArrays], MaybeArrays]) -> Callable[..., MaybeArrays]:
        def mapped(*stacks: Array) -> MaybeArrays:
            with self.refusing("batching (vmap)"):
                return tuple(mx.vmap(_of_several(function))(*stacks))

        return mapped

    def functional(self, f: object) -> Functional | None:
        if not isinstance(f, nn.Module):
            return None
        parameters = dict(tree_flatten(f.trainable_parameters()))
        held = dict(tree_flatten(f.parameters()))

        def call(
            arrays: Mapping[str, Array], args: Sequence[Any], kwargs: Mapping[str, Any]
        ) -> Any:
            f.update(tree_unflatten(list(arrays.items())))
            try:
                return f(*args, **kwargs)
            finally:  # running statistics are other arrays after a call
                f.update(tree_unflatten(list(held.items())))

        buffers = {name: array for name, array in held.items() if name not in parameters}
        return Functional(parameters, buffers, call)

    def parts(self, f: object) -> Sequence[object]:
        return tuple(f.modules()) if isinstance(f, nn.Module) else ()

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        compiled: Callable[..., Any] = mx.compile(function)
        return compiled


def _apart(f: FlatFunction) -> FlatFunction:
    """Returns `f` with outputs of which no two are one array: both gradients of a sum are, and
    `mx.vjp` takes one cotangent for the two of them.
    """
    return lambda x: tuple(one * 1 for one in f(x))


def _of_several(f: Callable[[Any], Any]) -> Callable[..., list[Array]]:
    """Returns `f` of a tuple as a function of several arrays, which returns a list."""
    return lambda *x: list(f(x))
