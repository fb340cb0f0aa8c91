"""tinygrad as an adjudge backend: reverse mode, and reverse mode of that."""

from __future__ import annotations

from functools import cached_property
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tinygrad import Device, Tensor, dtypes

from adjudge.engine import (
    Array,
    ArrayInfo,
    ArrayOperations,
    Arrays,
    ArraysByNumpy,
    AutodiffBackend,
    Environment,
    FlatFunction,
    MaybeArrays,
    Pullback,
    Refusals,
)

FLOATING = ("float64", "float32", "float16")
OTHERS = ("int64", "int32", "int8", "uint8", "bool")
DTYPES = {name: getattr(dtypes, name) for name in (*FLOATING, *OTHERS)}
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


class TinygradArrays(ArraysByNumpy):
    """Operations on tensors of tinygrad. Contract: see `ArrayOperations`."""

    floating = FLOATING
    others = OTHERS

    def info(self, array: Array) -> ArrayInfo:
        dtype = NAMES.get(array.dtype, array.dtype.name)
        return ArrayInfo(tuple(array.shape), dtype, str(array.device or Device.DEFAULT))

    def devices(self) -> list[str]:
        return [Device.DEFAULT]

    def numpy(self, array: Array) -> NDArray[Any]:
        # of a copy: what is computed forgets what it was computed from
        alone = Tensor(array.uop)
        if alone.uop.device is None:  # a constant, which tinygrad would compile for the CPU
            alone = alone.clone(Device.DEFAULT)
        values: NDArray[Any] = alone.numpy()
        return values

    def tensor(
        self, values: NDArray[Any], dtype: str, device: str | None, like: Array | None = None
    ) -> Array:
        # tinygrad may keep the array that it is given, and takes one without axes for a constant;
        # equal constants are one, also where one of them is differentiated
        host = np.array(values, dtype=dtype, order="C")
        vector = Tensor(host.reshape(-1), device=device, dtype=DTYPES[dtype]).realize()
        return vector.reshape(host.shape).realize()


class TinygradEnvironment(Environment):
    """The devices that tinygrad can compile for. Its random numbers cannot be drawn again."""

    def unavailable(self) -> str | None:
        try:
            Device.DEFAULT  # noqa: B018 it is looked for
        except RuntimeError as error:
            return f"tinygrad finds no device ({error}): install clang, or set DEV=PYTHON"
        return None


class TinygradBackend(AutodiffBackend):
    """See `AutodiffBackend` for the contract."""

    name = "tinygrad"
    refusals = Refusals((RuntimeError,), ("failed to compute gradient",))

    @property
    def xp(self) -> Any:
        return NAMESPACE

    def owns(self, leaf: object) -> bool:
        return isinstance(leaf, Tensor)

    @cached_property
    def arrays(self) -> ArrayOperations:
        return TinygradArrays(self.name, self.xp)

    @cached_property
    def environment(self) -> Environment:
        return TinygradEnvironment(metadata.version("tinygrad"))

    def vjp(self, f: FlatFunction, x: Arrays) -> tuple[Arrays, Pullback]:
        ends = tuple(leaf.uop for leaf in x)  # a tensor has another uop once it is computed,
        y = f(x)
        recorded = tuple(leaf.uop for leaf in y)  # and forgets what it was computed from

        def pullback(w: MaybeArrays) -> MaybeArrays:
            terms = [
                (Tensor(uop) * one).sum()
                for uop, one in zip(recorded, w, strict=True)
                if one is not None
            ]
            if not terms:
                return (None,) * len(x)
            with self.refusing("reverse mode (vjp)"):
                return tuple(sum(terms[1:], terms[0]).gradient(*map(Tensor, ends)))

        return y, pullback
