"""autograd.numpy as an Array API namespace: names of the standard that autograd has no rule for,
made of those that it has one for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.extend import defjvp, defvjp, primitive
from autograd.numpy.linalg import grad_cholesky, grad_inv, grad_solve
from autograd.tracer import isbox

PLAIN = (
    "asarray", "arange", "empty", "empty_like", "eye", "finfo", "iinfo", "isdtype", "linspace",
    "result_type", "can_cast", "zeros", "ones", "full", "__array_namespace_info__",
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float32", "float64", "complex64", "complex128",
)  # fmt: skip
"""What NumPy itself does: dtypes, and arrays that depend on no other."""


@primitive
def _cast(x: Any, dtype: Any) -> Any:
    return x.astype(dtype)


def _cast_back(ans: Any, x: Any, dtype: Any) -> Callable[[Any], Any]:
    real = x.dtype.kind != "c"
    return lambda g: astype(anp.real(g) if real else g, x.dtype)


defvjp(_cast, _cast_back, argnums=(0,))
defjvp(_cast, lambda g, ans, x, dtype: astype(g, dtype), argnums=(0,))


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    """Returns `x` in another dtype, with a derivative in both modes; autograd has reverse mode."""
    if not isbox(x):
        return np.astype(np.asarray(x), dtype, copy=copy)
    return x if x.dtype == dtype else _cast(x, dtype)


def asarray(x: Any, /, **options: Any) -> Any:
    """Returns an array. A box is one already."""
    return x if isbox(x) else np.asarray(x, **options)


def concat(arrays: Any, /, *, axis: int | None = 0) -> Any:
    """Returns the arrays joined along an axis; autograd.numpy.concat makes an array of objects."""
    if axis is None:
        return anp.concatenate([anp.reshape(one, (-1,)) for one in arrays])
    return anp.concatenate(list(arrays), axis=axis)


def permute_dims(x: Any, /, axes: tuple[int, ...]) -> Any:
    """Returns `x` with permuted axes, by the name for which every autograd has a rule."""
    return anp.transpose(x, axes)


def matrix_transpose(x: Any, /) -> Any:
    """Returns `x` with its last two axes exchanged."""
    return anp.swapaxes(x, -1, -2)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Returns the dot products along an axis, of which the first argument is conjugated."""
    return anp.sum(anp.conj(x1) * x2, axis=axis)


def take(x: Any, indices: Any, /, *, axis: int | None = None) -> Any:
    """Returns entries along an axis, by indexing."""
    return x[(slice(None),) * ((0 if axis is None else axis) % anp.ndim(x)) + (indices,)]


def flip(x: Any, /, *, axis: Any = None) -> Any:
    """Returns `x` in reverse order along the axes, by indexing."""
    axes = range(anp.ndim(x)) if axis is None else np.atleast_1d(axis) % anp.ndim(x)
    return x[tuple(slice(None, None, -1 if k in axes else None) for k in range(anp.ndim(x)))]


def unstack(x: Any, /, *, axis: int = 0) -> Any:
    """Returns the slices along an axis, by indexing."""
    moved = anp.moveaxis(x, axis, 0)
    return tuple(moved[k] for k in range(moved.shape[0]))


def cumulative_sum(
    x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Any:
    """Returns cumulative sums, by `cumsum`."""
    axis = 0 if axis is None else axis
    sums = anp.cumsum(x if dtype is None else astype(x, dtype), axis=axis)
    if not include_initial:
        return sums
    edge = [1 if k == axis % anp.ndim(x) else n for k, n in enumerate(anp.shape(x))]
    return concat([np.zeros(edge, sums.dtype), sums], axis=axis)


def broadcast_to(x: Any, /, shape: tuple[int, ...]) -> Any:
    """Returns `x` in this shape. autograd has no rule where axes are added, so they are added
    first.
    """
    there = anp.reshape(x, (1,) * (len(shape) - anp.ndim(x)) + anp.shape(x))
    return anp.broadcast_to(there, shape)


def broadcast_arrays(*arrays: Any) -> Any:
    """Returns the arrays, each broadcast to the shape of all."""
    shape = np.broadcast_shapes(*(anp.shape(one) for one in arrays))
    return tuple(broadcast_to(one, shape) for one in arrays)


def positive(x: Any, /) -> Any:
    """Returns the array itself."""
    return x


def var(x: Any, /, *, axis: Any = None, correction: float = 0, keepdims: bool = False) -> Any:
    """Returns the variance, for `correction=`, which autograd's rule does not know."""
    return anp.var(x, axis=axis, ddof=correction, keepdims=keepdims)


def std(x: Any, /, *, axis: Any = None, correction: float = 0, keepdims: bool = False) -> Any:
    """Returns the standard deviation, for `correction=`, which autograd's rule does not know."""
    return anp.std(x, axis=axis, ddof=correction, keepdims=keepdims)


# autograd has reverse rules alone for these, which stay; the forward rules are added here.
inv, solve, cholesky = map(primitive, (np.linalg.inv, np.linalg.solve, np.linalg.cholesky))

defvjp(inv, grad_inv)
defjvp(inv, lambda g, ans, x: -anp.matmul(ans, anp.matmul(g, ans)))
defvjp(solve, partial(grad_solve, 0), partial(grad_solve, 1))
defjvp(
    solve,
    lambda g, ans, a, b: -solve(a, anp.matmul(g, ans)),
    lambda g, ans, a, b: solve(a, g),
)
defvjp(cholesky, grad_cholesky)


def _cholesky_forward(g: Any, ans: Any, x: Any) -> Any:
    """Returns the tangent of the factor: Murray, arXiv:1602.07527, equation 8."""
    inner = solve(ans, anp.conj(matrix_transpose(solve(ans, g))))
    inner = anp.conj(matrix_transpose(inner))
    return anp.matmul(ans, anp.tril(inner) / (1.0 + np.eye(inner.shape[-1])))


defjvp(cholesky, _cholesky_forward)


class Namespace(SimpleNamespace):
    """The names above, and autograd's for the rest."""

    def __init__(self, rest: Any, name: str, **own: Any) -> None:
        super().__init__(**own)
        self._rest = rest
        self.__name__ = name

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_rest"], name)


OLD = {"acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh",
       "atan": "arctan", "atanh": "arctanh", "atan2": "arctan2", "pow": "power"}  # fmt: skip
"""Names of the standard, by those that autograd has had rules for longer."""
_own = {name: getattr(anp, old) for name, old in OLD.items()} | {
    one.__name__: one
    for one in (
        astype, asarray, concat, permute_dims, matrix_transpose, vecdot, take, flip, unstack,
        cumulative_sum,
        broadcast_to, broadcast_arrays, positive, var, std,
    )
}  # fmt: skip
linalg = Namespace(
    anp.linalg,
    "adjudge_autograd.namespace.linalg",
    cholesky=cholesky,
    inv=inv,
    matmul=anp.matmul,
    matrix_transpose=matrix_transpose,
    solve=solve,
    tensordot=anp.tensordot,
    vecdot=vecdot,
)
namespace = Namespace(
    anp,
    "adjudge_autograd.namespace",
    **({name: getattr(np, name) for name in PLAIN} | _own),
    linalg=linalg,
    __version__=np.__version__,
)
