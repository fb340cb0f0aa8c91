"""autograd as an adjudge backend: reverse and forward mode, and both of both."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import cached_property
from importlib import metadata
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd import make_jvp, make_vjp
from autograd.builtins import tuple as traced_tuple
from autograd.numpy.numpy_boxes import ArrayBox
from autograd.tracer import find_top_boxed_args, isbox

from adjudge.engine import (
    Array,
    ArrayOperations,
    Arrays,
    AutodiffBackend,
    Environment,
    FlatFunction,
    MaybeArrays,
    PlainArrays,
    Pullback,
    Refusals,
)
from adjudge_autograd.namespace import NAMESPACE


class AutogradBackend(AutodiffBackend):
    """See `AutodiffBackend` for the contract.

    The arrays are NumPy's; on their way through a function they are boxes. autograd's vjp is the
    transpose; conjugating cotangent and gradient makes it the adjoint.
    """

    name = "autograd"
    differentiates_numbers = True
    refusals = Refusals(
        (NotImplementedError, AssertionError),
        ("VJP of", "JVP of", "Gradient of", "not implemented", "Can't handle"),
    )

    def __init__(self) -> None:
        self._cut: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        """The outputs without a derivative that are still alive, by their `id`."""

    @property
    def xp(self) -> Any:
        return NAMESPACE

    def owns(self, leaf: object) -> bool:
        return isinstance(leaf, np.ndarray | np.generic | ArrayBox)  # a sum is a scalar of NumPy

    @cached_property
    def arrays(self) -> ArrayOperations:
        return PlainArrays(self.name, self.xp)

    @cached_property
    def environment(self) -> Environment:
        return Environment(metadata.version("autograd"))

    def vjp(self, f: FlatFunction, x: Arrays) -> tuple[Arrays, Pullback]:
        linked: list[bool] = []
        with self.refusing("reverse mode (vjp)"):
            transpose, results = make_vjp(_traced(f, len(x), linked))(traced_tuple(x))
        y = tuple(_array(results[k]) for k in range(len(linked)))
        for leaf, is_linked in zip(y, linked, strict=True):
            if not is_linked and not isbox(leaf):
                self._cut[id(leaf)] = leaf

        def pullback(w: MaybeArrays) -> MaybeArrays:
            if not any(is_linked and c is not None for is_linked, c in zip(linked, w, strict=True)):
                return (None,) * len(x)
            cotangents = self.arrays.zeros_for_absent((*w, None), (*y, x[0]))
            with self.refusing("reverse mode (vjp)"):
                g = transpose(traced_tuple(map(anp.conj, cotangents)))
            return tuple(_array(anp.conj(g[k])) for k in range(len(x)))

        return y, pullback

    def jvp(self, f: FlatFunction, x: Arrays, v: MaybeArrays) -> tuple[Arrays, MaybeArrays]:
        linked: list[bool] = []
        tangents = self.arrays.zeros_for_absent(v, x)
        with self.refusing("forward mode (jvp)"):
            push = make_jvp(_traced(f, len(x), linked))(traced_tuple(x))
            results, pushed = push(traced_tuple(tangents))
        return tuple(_array(results[k]) for k in range(len(linked))), tuple(
            _array(pushed[k]) if is_linked else None for k, is_linked in enumerate(linked)
        )

    def detached(self, y: Array) -> bool:
        return self._cut.get(id(y)) is y


def _traced(f: FlatFunction, count: int, linked: list[bool]) -> Callable[[Any], Any]:
    """Returns `f` as a function of one tuple, which writes into `linked` which outputs carry
    derivatives of this trace, and not of one around it.

    Its last output is the first input: autograd warns where nothing depends on the input.
    """

    def traced(x: Any) -> Any:
        y = f(tuple(x[k] for k in range(count)))
        linked[:] = [len(find_top_boxed_args((x, leaf))[0]) == 2 for leaf in y]
        return traced_tuple((*map(_array, y), x[0]))

    return traced


def _array(value: Any) -> Array:
    """Returns an array where autograd has a scalar of NumPy. What is traced stays."""
    return value if isbox(value) else np.asarray(value)
