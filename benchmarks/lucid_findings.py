"""Wrong gradients of Lucid 2.16.0, as the table of docs/findings.md has them.

It needs no adjudge but for the import of Lucid: a gradient is what `backward()` leaves in `.grad`,
and the derivative beside it is JAX's of the same function, or, for a function that is linear in x,
its value at the direction. Run it on Python 3.12: pip install 'adjudge[lucid,jax]'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import adjudge_lucid  # noqa: F401  lets Python 3.12 import Lucid

# isort: split
import jax
import jax.numpy as jnp
import lucid
import lucid.linalg as linalg
import lucid.nn.functional as F  # noqa: N812
import numpy as np

jax.config.update("jax_enable_x64", True)

A = np.array([[2.1, 0.3, -0.4], [0.5, 1.7, 0.2], [-0.3, 0.6, 1.4]])
B = np.array([[0.7, 0.1], [-0.5, 0.4], [0.2, -0.9]])
IMAGE = np.array([[[[0.5, -1.2, 0.8], [1.5, 0.3, -0.7], [-0.2, 0.9, 1.1]]]])
POINTS = lucid.tensor(np.array([[[[-0.7, 0.2], [0.1, 0.4]], [[-0.6, 0.1], [0.6, -0.5]]]]))


class Case(NamedTuple):
    """A function of Lucid, the same in JAX (`None`: it is linear), and why its rule is wrong."""

    name: str
    at: str
    f: Callable[..., Any]
    x: tuple[Any, ...]
    why: str
    file: str
    twin: Callable[..., Any] | None = None


SHARED = "the two terms get one array, and what is added to the first is added to the second"
LAST = "`grad[index] = grad[index] + g` adds once for an index that occurs twice"
INDEXED = "by `x[index]`"
TENSOR, UFUNC = "lucid/_tensor/tensor.py", "lucid/_func/ufunc.py"
UTILS, LINALG = "lucid/_utils/func.py", "lucid/linalg/_func.py"
SPATIAL, RESIZE = "lucid/nn/functional/_spatial.py", "lucid/nn/functional/_utils.py"
CASES = (
    Case("(x + y) + x", "any", lambda x, y: (x + y) + x, (A[0], A[1]), SHARED, "lucid/__init__.py"),
    Case("x.T", "square", lambda x: x.T, (A,), "the cotangent is not transposed", UFUNC),
    Case("lucid.cumprod", "a zero", lambda x: lucid.cumprod(x), (np.array([0.7, 0.0, 1.3]),),
         "divides by the entries", UFUNC, jnp.cumprod),
    Case("lucid.stack", "axis=1", lambda x, y: lucid.stack((x, y), 1), (A[:2, :2], B[:2]),
         "the axis of length one is not removed, and parts are broadcast", UTILS),
    Case("lucid.hstack", "vectors", lambda x, y: lucid.hstack((x, y)), (A[0], A[1]),
         "as `stack`", UTILS),
    Case("x[index]", "an index twice", lambda x: x[np.array([2, 0, 2])], (A[0],), LAST, TENSOR),
    Case("linalg.inv", "any", linalg.inv, (A,), "of two inverses one is not transposed", LINALG,
         jnp.linalg.inv),
    Case("linalg.det", "any", linalg.det, (A,), "the factor det(A) is missing", LINALG,
         jnp.linalg.det),
    Case("linalg.solve", "any", linalg.solve, (A, B), "solves with A in place of its transpose",
         LINALG, jnp.linalg.solve),
    Case("linalg.cholesky", "any", lambda x: linalg.cholesky(x @ x.mT), (A,),
         "the symmetric part where the lower half is meant", LINALG,
         lambda x: jnp.linalg.cholesky(x @ x.T)),
    Case("linalg.qr", "any", linalg.qr, (A,), "R in place of its inverse; Q is constant in R",
         LINALG,
         lambda x: tuple(jnp.linalg.qr(x))),
    Case("linalg.svd", "any, U", lambda x: linalg.svd(x)[0] ** 2, (A,),
         "the differences of the singular values are missing", LINALG,
         lambda x: jnp.linalg.svd(x)[0] ** 2),
    Case("linalg.svd", "any, V", lambda x: linalg.svd(x)[2] ** 2, (A,),
         "the differences of the singular values are missing", LINALG,
         lambda x: jnp.linalg.svd(x)[2] ** 2),
    Case("linalg.matrix_power", "n = 2", lambda x: linalg.matrix_power(x, 2), (A,),
         "the powers are not transposed", LINALG, lambda x: x @ x),
    Case("linalg.matrix_power", "n = -1", lambda x: linalg.matrix_power(x, -1), (A,),
         "is the negative cotangent", LINALG, jnp.linalg.inv),
    Case("linalg.pinv", "square", linalg.pinv, (A,), "the pseudoinverse is not transposed", LINALG,
         jnp.linalg.inv),
    Case("linalg.norm", "a matrix, ord=2", linalg.norm, (A,), "that of the Frobenius norm", LINALG,
         lambda x: jnp.linalg.norm(x, 2)),
    Case("linalg.norm", "a matrix, ord=1", lambda x: linalg.norm(x, 1), (A,),
         "that of the sum of all entries", LINALG, lambda x: jnp.linalg.norm(x, 1)),
    Case("linalg.norm", "axis=1, beside a row of zeros", lambda x: linalg.norm(x, axis=1)[1:],
         (np.array([[0.0, 0.0], [0.6, -0.8]]),), "one zero norm makes all gradients zero", LINALG,
         lambda x: jnp.linalg.norm(x[1:], axis=1)),
    Case("F.interpolate", "bilinear, enlarged", lambda x: F.interpolate(x, (5, 5)), (IMAGE,),
         INDEXED, RESIZE),
    Case("F.interpolate", "nearest, enlarged",
         lambda x: F.interpolate(x, (5, 5), mode="nearest"), (IMAGE,), INDEXED, RESIZE),
    Case("F.interpolate", "trilinear, enlarged",
         lambda x: F.interpolate(x, (2, 4, 4), mode="trilinear"), (IMAGE[None],), INDEXED, RESIZE),
    Case("F.grid_sample", "two points in one pixel", lambda x: F.grid_sample(x, POINTS), (IMAGE,),
         INDEXED, SPATIAL),
    Case("F.rotary_pos_embedding", "any", lambda x: F.rotary_pos_embedding(x),
         (np.array([[[0.3, -1.1, 0.8, 0.5], [1.4, 0.2, -0.6, 0.9]]]),),
         "the rotated half is written by `x[...] = `, which is not recorded",
         "lucid/nn/functional/_embedding.py"),
    Case("F.global_response_norm", "any",
         lambda x: F.global_response_norm(x, lucid.tensor(1.0), lucid.tensor(1.0), 0.5),
         (IMAGE,), "by `linalg.norm` of a matrix", "lucid/nn/functional/_norm.py",
         lambda x: x * (lambda g: g / (g + 0.5))(jnp.linalg.norm(x[0, 0], 2)) + x),
    Case("F.rotate", "any", lambda x: F.rotate(x, 30.0), (IMAGE,), "carries no gradient", RESIZE),
    Case("lucid.diag", "any", lucid.diag, (A[0],), "carries no gradient", "lucid/_func/gfunc.py"),
)  # fmt: skip


def directions(arrays: tuple[Any, ...], seed: int) -> tuple[Any, ...]:
    """Numbers without a pattern, of the shapes of these arrays."""
    random = np.random.default_rng(seed)
    return tuple(random.normal(size=np.shape(array)) for array in arrays)


def several(value: Any) -> tuple[Any, ...]:
    """The outputs of a function as a tuple."""
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def numbers(case: Case) -> tuple[float, float]:
    """`<w, J u>` by Lucid's gradient, and by the reference."""
    x = [lucid.tensor(leaf.copy(), requires_grad=True) for leaf in case.x]
    y = several(case.f(*x))
    u = directions(case.x, seed=1)
    w = directions(tuple(leaf.data for leaf in y), seed=2)
    terms = [(a * lucid.tensor(b)).sum() for a, b in zip(y, w, strict=True)]
    total = sum(terms[1:], terms[0])
    if total.requires_grad:
        total.backward()
    automatic = sum(np.vdot(a.grad, b) for a, b in zip(x, u, strict=True) if a.grad is not None)
    if case.twin is None:
        moved = [leaf.data for leaf in several(case.f(*map(lucid.tensor, u)))]
    else:
        values, moved = map(several, jax.jvp(case.twin, case.x, u))
        for one, other in zip(y, values, strict=True):
            np.testing.assert_allclose(one.data, other, rtol=1e-9, atol=1e-12)
    return float(automatic), float(sum(np.vdot(a, b) for a, b in zip(w, moved, strict=True)))


def rows() -> Iterator[str]:
    """The lines of the table."""
    yield "| function | at | automatic | true | off by | rule in | why |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for case in CASES:
        automatic, true = numbers(case)
        off = "not a number" if np.isnan(automatic) else f"{100 * abs(automatic / true - 1):.3g} %"
        where = f"| `{case.name}` | {case.at} | {automatic:.7g} | {true:.7g} | {off} "
        yield f"{where}| `{case.file}` | {case.why} |"


if __name__ == "__main__":
    np.seterr(all="ignore")  # one of the rules divides by zero
    for row in rows():
        print(row)
