"""MLX as an adjudge backend: reverse and forward mode, both of both, batched and compiled."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import mlx.core as mx
from mlx import nn

from adjudge.engine import (
    EPS,
    Array,
    ArrayOperations,
    Arrays,
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
from adjudge_mlx.arrays import MlxArrays
from adjudge_mlx.modules import functional_of


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
        return functional_of(f)

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
