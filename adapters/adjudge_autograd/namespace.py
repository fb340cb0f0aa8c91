"""autograd.numpy as a namespace of the Array API: names of the standard for which autograd has no
rule or another name, and the forward rules of linear algebra, of which it has the reverse ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import array_api_compat.numpy as plain
import autograd.numpy as anp
import numpy as np
from autograd.extend import defjvp, defvjp, primitive
from autograd.numpy.linalg import grad_cholesky, grad_inv, grad_solve
from autograd.tracer import isbox

PLAIN = ("__array_namespace_info__", "__version__", "bool", "finfo", "isdtype", "zeros")
"""What NumPy itself does: dtypes, and arrays that depend on no other."""


_cast = primitive(lambda x, dtype: x.astype(dtype))


def _cast_back(ans: Any, x: Any, dtype: Any) -> Callable[[Any], Any]:
    real = x.dtype.kind != "c"
    return lambda g: _cast(anp.real(g) if real else g, x.dtype)


defvjp(_cast, _cast_back, argnums=(0,))
defjvp(_cast, lambda g, ans, x, dtype: _cast(g, dtype), argnums=(0,))


def astype(x: Any, dtype: Any, /, *, copy: bool = True) -> Any:
    """Returns `x` in another dtype, with a derivative in both modes; autograd has reverse mode."""
    return _cast(x, dtype) if isbox(x) else np.asarray(x).astype(dtype, copy=copy)


def asarray(x: Any, /, **options: Any) -> Any:
    """Returns an array. A box is one already."""
    return x if isbox(x) else np.asarray(x, **options)


def concat(arrays: Sequence[Any], /, *, axis: int = 0) -> Any:
    """Returns the arrays joined along an axis; `autograd.numpy.concat` makes one of objects."""
    return anp.concatenate(list(arrays), axis=axis)


def take(x: Any, indices: Any, /, *, axis: int = 0) -> Any:
    """Returns entries along an axis, by indexing."""
    return x[(slice(None),) * (axis % anp.ndim(x)) + (indices,)]


def matrix_transpose(x: Any, /) -> Any:
    """Returns `x` with its last two axes exchanged."""
    return anp.swapaxes(x, -1, -2)


inv, solve, cholesky = map(primitive, (np.linalg.inv, np.linalg.solve, np.linalg.cholesky))


def _cholesky_forward(g: Any, ans: Any, x: Any) -> Any:
    """Returns the tangent of the factor: Murray, arXiv:1602.07527, equation 8."""
    half = anp.conj(matrix_transpose(solve(ans, g)))
    inner = anp.conj(matrix_transpose(solve(ans, half)))
    return anp.matmul(ans, anp.tril(inner) / (1.0 + np.eye(inner.shape[-1])))


defvjp(inv, grad_inv)
defjvp(inv, lambda g, ans, x: -anp.matmul(ans, anp.matmul(g, ans)))
defvjp(solve, partial(grad_solve, 0), partial(grad_solve, 1))
defjvp(
    solve,
    lambda g, ans, a, b: -solve(a, anp.matmul(g, ans)),
    lambda g, ans, a, b: solve(a, g),
)
defvjp(cholesky, grad_cholesky)
defjvp(cholesky, _cholesky_forward)

NAMESPACE = SimpleNamespace(
    **vars(anp)
    | {name: getattr(plain, name) for name in PLAIN}
    | {one.__name__: one for one in (astype, asarray, concat, take, matrix_transpose)}
    | {"permute_dims": anp.transpose},  # which autograd has had a rule for longer
)
NAMESPACE.linalg = SimpleNamespace(
    **vars(anp.linalg) | {"inv": inv, "solve": solve, "cholesky": cholesky}
)
