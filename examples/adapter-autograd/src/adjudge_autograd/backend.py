"""autograd as an adjudge backend: vjp, jvp, both nested; the adjoint is the real one."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from importlib import metadata
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd import make_jvp, make_vjp
from autograd.builtins import tuple as traced_tuple
from autograd.numpy.numpy_boxes import ArrayBox
from autograd.tracer import isbox

from adjudge.engine import (
    Array,
    Arrays,
    AutodiffBackend,
    Environment,
    FlatFunction,
    MaybeArrays,
    Pullback,
    Refusals,
)
from adjudge_autograd.namespace import namespace


class AutogradBackend(AutodiffBackend):
    """See `AutodiffBackend` for the contract.

    The arrays are NumPy's; on their way through a function they are boxes. autograd's vjp is the
    transpose; conjugating cotangent and gradient makes it the adjoint.
    """

    name = "autograd"
    refusals = Refusals(
        (NotImplementedError, AssertionError),
        ("VJP of", "JVP of", "Gradient of", "not implemented", "Can't handle"),
    )

    def __init__(self) -> None:
        self._cut: dict[int, weakref.ref[Any]] = {}
        """The outputs without a derivative that are still alive, by their `id`."""

    @property
    def xp(self) -> Any:
        return namespace

    def owns(self, leaf: object) -> bool:
        # reductions return NumPy's scalars
        return isinstance(leaf, np.ndarray | np.generic | ArrayBox)

    @cached_property
    def environment(self) -> Environment:
        return Environment(metadata.version("autograd"))

    def vjp(self, f: FlatFunction, x: Arrays) -> tuple[Arrays, Pullback]:
        linked: list[bool] = []
        with self._derivative("reverse mode (vjp)"):
            transpose, results = make_vjp(self._traced(f, len(x), linked))(traced_tuple(x))
        y = tuple(_array(results[k]) for k in range(len(linked)))
        for leaf, is_linked in zip(y, linked, strict=True):
            if not is_linked and not isbox(leaf):
                self._cut[id(leaf)] = weakref.ref(leaf, self._forget(id(leaf)))

        def pullback(w: MaybeArrays) -> MaybeArrays:
            if not any(is_linked and c is not None for is_linked, c in zip(linked, w, strict=True)):
                return (None,) * len(x)
            cotangents = tuple(
                anp.zeros(leaf.shape, leaf.dtype) if c is None else anp.conj(c)
                for leaf, c in zip(y, w, strict=True)
            )
            with self._derivative("reverse mode (vjp)"):
                g = transpose(traced_tuple(cotangents))
            return tuple(_array(anp.conj(g[k])) for k in range(len(x)))

        return y, pullback

    def jvp(self, f: FlatFunction, x: Arrays, v: MaybeArrays) -> tuple[Arrays, MaybeArrays]:
        linked: list[bool] = []
        tangents = self.arrays.zeros_for_absent(v, x)
        with self._derivative("forward mode (jvp)"):
            push = make_jvp(self._traced(f, len(x), linked))(traced_tuple(x))
            results, pushed = push(traced_tuple(tangents))
        y = tuple(_array(results[k]) for k in range(len(linked)))
        return y, tuple(
            _array(pushed[k]) if is_linked else None for k, is_linked in enumerate(linked)
        )

    def detached(self, y: Array) -> bool:
        known = self._cut.get(id(y))
        return known is not None and known() is y

    @contextmanager
    def _derivative(self, what: str) -> Iterator[None]:
        """Runs a derivative of autograd, which warns where all outputs are constants."""
        with warnings.catch_warnings(), self.refusing(what):
            warnings.filterwarnings("ignore", "Output seems independent of input")
            yield

    def _forget(self, key: int) -> Callable[[Any], None]:
        def forget(reference: Any) -> None:
            self._cut.pop(key, None)

        return forget

    @staticmethod
    def _traced(f: FlatFunction, count: int, linked: list[bool]) -> Callable[[Any], Any]:
        """Returns `f` as a function of one tuple.

        It writes into `linked` which outputs carry derivatives of this trace.
        """

        def traced(x: Any) -> Any:
            y = f(tuple(x[k] for k in range(count)))
            linked[:] = [isbox(leaf) and leaf._trace == x._trace for leaf in y]
            return traced_tuple(leaf if isbox(leaf) else np.asarray(leaf) for leaf in y)

        return traced


def _array(value: Any) -> Array:
    """Returns an array where autograd has a NumPy scalar; boxes of an outer trace stay."""
    return value if isbox(value) else np.asarray(value)
