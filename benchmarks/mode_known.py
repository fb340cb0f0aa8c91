"""Functions whose derivative is wrong in some mode of a released framework, each written twice.

`call` is the framework's own function, as a line of code; `twin` is the same function on arrays of
mpmath numbers. `modes` are those in which adjudge was seen to fail at `x`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np

Twin = Callable[..., Any]


@dataclass(frozen=True)
class Known:
    """One function at one point."""

    framework: str
    name: str
    point: str
    call: str
    """An expression that gives the function; `torch`, `F`, `jax`, `jnp`, `jsp` are at hand."""
    x: tuple[Any, ...]
    twin: Twin
    modes: str = ""
    """Those that are wrong, separated by blanks."""
    kind: str = "wrong"
    """`wrong`, or `by design` where the framework means something else by the derivative."""
    why: str = ""

    def f(self) -> Callable[..., Any]:
        """The framework's function."""
        return eval(self.call, names(self.framework))  # type: ignore[no-any-return]  # noqa: S307


def names(framework: str) -> dict[str, Any]:
    """What the expressions refer to."""
    if framework == "torch":
        import torch

        return {"torch": torch, "F": torch.nn.functional}
    import jax

    return {"jax": jax, "jnp": jax.numpy, "jsp": jax.scipy, "lax": jax.lax, "nn": jax.nn}


# ---------------------------------------------------------------- points

A3 = [[2.1, 0.3, -0.4], [0.5, 1.7, 0.2], [-0.3, 0.6, 1.4]]
L3 = [[1.5, 0.0, 0.0], [0.4, 1.2, 0.0], [-0.3, 0.7, 0.9]]
S3 = [[2.0, 0.5, -0.3], [0.5, 1.1, 0.4], [-0.3, 0.4, 0.4]]
B3 = [[0.7, -0.2], [0.1, 0.9], [-0.5, 0.4]]
V6 = [0.3, -1.1, 0.8, 1.7, -0.6, 0.2]
R23 = [[0.3, -1.1, 0.8], [1.7, -0.6, 0.2]]
N242 = [
    [[0.3, -1.1], [0.8, 1.7], [-0.6, 0.2], [1.3, 0.4]],
    [[-0.9, 0.5], [1.1, -0.4], [0.7, 2.0], [0.1, -1.4]],
]

# ---------------------------------------------------------------- twins


def each(f: Callable[..., Any]) -> Twin:
    """Elementwise."""
    return np.vectorize(f, otypes=[object])


def matrix(x: Any) -> Any:
    """As a matrix of mpmath."""
    return mpmath.matrix(x.tolist())


def array(m: Any) -> Any:
    """As an array."""
    return np.array(m.tolist(), dtype=object).reshape(m.rows, m.cols)


def inverse(x: Any) -> Any:
    """Of a matrix."""
    return array(mpmath.inverse(matrix(x)))


def determinant(x: Any) -> Any:
    """By cofactors, which are a polynomial."""
    if len(x) == 1:
        return x[0, 0]
    return sum(
        (-1) ** j * x[0, j] * determinant(np.delete(x[1:], j, axis=1)) for j in range(len(x))
    )


def normalised(x: Any, axes: tuple[int, ...], eps: float) -> Any:
    """`(x - mean) / sqrt(var + eps)`."""
    count = int(np.prod([x.shape[a] for a in axes]))
    mean = x.sum(axes, keepdims=True) / count
    var = ((x - mean) ** 2).sum(axes, keepdims=True) / count
    return (x - mean) / each(mpmath.sqrt)(var + mpmath.mpf(eps))


def softmax(x: Any) -> Any:
    """Over the last axis."""
    e = each(mpmath.exp)(x)
    return e / e.sum(-1, keepdims=True)


def householder(v: Any, tau: Any) -> Any:
    """The first columns of the product of `1 - tau_k v_k v_k^T`."""
    n, k = v.shape
    q = np.eye(n, dtype=object)
    for j in range(k):
        column = np.array([0] * j + [1] + [0] * (n - j - 1), dtype=object)
        column[j + 1 :] = v[j + 1 :, j]
        q = q @ (np.eye(n, dtype=object) - tau[j] * np.outer(column, column))
    return q[:, :k]


def cumulative_product(x: Any) -> Any:
    """Over the only axis."""
    return np.array([np.prod(x[: k + 1]) for k in range(len(x))], dtype=object)


def sinc(t: Any) -> Any:
    """`sin(pi t) / (pi t)`, by its series near zero."""
    z = mpmath.pi * t
    if abs(z) < mpmath.mpf(10) ** -8:
        return 1 - z**2 / 6 + z**4 / 120 - z**6 / 5040
    return mpmath.sin(z) / z


def eigenvalues(x: Any) -> Any:
    """Ascending, of the symmetric part, and the sizes of the eigenvectors' entries."""
    e, q = mpmath.eigsy(matrix((x + x.T) / 2))
    order = sorted(range(len(e)), key=lambda k: e[k])
    vectors = array(q)[:, order]
    return np.array([e[k] for k in order], dtype=object), each(abs)(vectors)


def scatter_product(x: Any, source: Any) -> Any:
    """`x` times the entries of `source` at the indices 0, 0, 1, 2."""
    out = x.copy()
    for k, value in zip((0, 0, 1, 2), source, strict=True):
        out[k] = out[k] * value
    return out


TORCH = [
    Known(
        "torch",
        "torch.cholesky_inverse",
        "a lower triangle",
        "lambda x: torch.cholesky_inverse(x.tril())",
        (L3,),
        lambda x: inverse(np.tril(x) @ np.tril(x).T),
    ),
    Known("torch", "torch.linalg.det", "any", "torch.linalg.det", (A3,), determinant),
    Known(
        "torch",
        "torch.linalg.slogdet",
        "any",
        "lambda x: torch.linalg.slogdet(x)[1]",
        (A3,),
        lambda x: mpmath.log(abs(determinant(x))),
    ),
    Known(
        "torch", "torch.logdet", "any", "torch.logdet", (A3,), lambda x: mpmath.log(determinant(x))
    ),
    Known(
        "torch",
        "torch.linalg.solve",
        "any",
        "torch.linalg.solve",
        (A3, B3),
        lambda a, b: inverse(a) @ b,
    ),
    Known("torch", "torch.linalg.inv", "any", "torch.linalg.inv", (A3,), inverse),
    Known(
        "torch",
        "torch.linalg.householder_product",
        "any",
        "torch.linalg.householder_product",
        ([[1.0, 0.0], [0.4, 1.0], [-0.3, 0.7], [0.5, 0.2]], [0.6, 0.9]),
        householder,
    ),
    Known(
        "torch",
        "torch.linalg.eigh",
        "any",
        "lambda x: (lambda r: (r[0], r[1].abs()))(torch.linalg.eigh((x + x.mT) / 2))",
        (S3,),
        eigenvalues,
    ),
    Known(
        "torch",
        "F.layer_norm",
        "any",
        "lambda x: F.layer_norm(x, (3,))",
        (R23,),
        lambda x: normalised(x, (1,), 1e-5),
    ),
    Known(
        "torch",
        "F.batch_norm",
        "any",
        "lambda x: F.batch_norm(x, None, None, training=True)",
        (N242,),
        lambda x: normalised(x, (0, 2), 1e-5),
    ),
    Known(
        "torch",
        "F.instance_norm",
        "any",
        "F.instance_norm",
        (N242,),
        lambda x: normalised(x, (2,), 1e-5),
    ),
    Known(
        "torch",
        "F.group_norm",
        "any",
        "lambda x: F.group_norm(x, 2)",
        (N242,),
        lambda x: normalised(x.reshape(2, 2, 4), (2,), 1e-5).reshape(2, 4, 2),
    ),
    Known(
        "torch",
        "scatter_reduce prod",
        "any",
        "lambda x, s: x.scatter_reduce(0, torch.tensor([0, 0, 1, 2]), s, 'prod')",
        ([0.7, -1.2, 0.4], [1.3, 0.6, -0.8, 1.1]),
        scatter_product,
    ),
    Known(
        "torch",
        "torch.triangular_solve",
        "any",
        "lambda b, a: torch.triangular_solve(b, a, upper=False)[0]",
        (B3, L3),
        lambda b, a: inverse(np.tril(a)) @ b,
    ),
    Known(
        "torch",
        "aten._safe_softmax",
        "any",
        "lambda x: torch.ops.aten._safe_softmax(x, -1)",
        (R23,),
        softmax,
    ),
    Known(
        "torch",
        "torch.cumprod",
        "a zero",
        "lambda x: torch.cumprod(x, 0)",
        ([0.7, 0.0, -1.2, 0.4],),
        cumulative_product,
    ),
    Known(
        "torch",
        "torch.cumprod",
        "no zero",
        "lambda x: torch.cumprod(x, 0)",
        ([0.7, 0.5, -1.2, 0.4],),
        cumulative_product,
    ),
    Known(
        "torch",
        "torch.prod",
        "two zeros",
        "lambda x: torch.prod(x)",
        ([0.7, 0.0, 0.0, 0.4],),
        lambda x: np.prod(x),
    ),
    Known(
        "torch",
        "torch.linalg.vander",
        "a zero",
        "torch.linalg.vander",
        ([0.0, 1.3, -0.4],),
        lambda x: np.stack([x * 0 + 1, x, x**2], axis=1),
    ),
    Known("torch", "torch.sinc", "a zero", "torch.sinc", ([0.0, 0.7],), each(sinc)),
    Known(
        "torch",
        "torch.renorm",
        "zero, below the largest norm",
        "lambda x: torch.renorm(x, 2, 0, 1.0)",
        ([[0.0, 0.0], [0.0, 0.0]],),
        lambda x: x,
    ),
    Known(
        "torch",
        "torch.logit",
        "x = 0 < eps, where it is constant",
        "lambda x: torch.logit(x, eps=0.2)",
        ([0.0, 1.0],),
        lambda x: np.array([mpmath.log(mpmath.mpf(0.2) / 0.8), mpmath.log(4)]),
    ),
    Known(
        "torch",
        "torch.pow",
        "0 to the power of a tensor 3",
        "lambda x: torch.pow(x, torch.tensor([3.0, 3.0], dtype=torch.float64))",
        ([0.0, 1.3],),
        lambda x: x**3,
    ),
    Known(
        "torch",
        "torch.logsumexp",
        "1e30 three times",
        "lambda x: torch.logsumexp(x, 0)",
        ([1e30, 1e30, 1e30, -3e30],),
        lambda x: x[0] + mpmath.log(sum(mpmath.exp(t - x[0]) for t in x)),
    ),
    Known(
        "torch",
        "torch.logcumsumexp",
        "1e30 twice",
        "lambda x: torch.logcumsumexp(x, 0)",
        ([1e30, 1e30],),
        lambda x: np.array([x[0], x[0] + mpmath.log(1 + mpmath.exp(x[1] - x[0]))]),
    ),
    Known("torch", "F.hardsigmoid", "any", "F.hardsigmoid", ([0.4, -1.3],), lambda x: (x + 3) / 6),
    Known(
        "torch",
        "torch._weight_norm",
        "any",
        "lambda v, g: torch._weight_norm(v, g, 0)",
        (R23, [[0.7], [1.4]]),
        lambda v, g: g * v / each(mpmath.sqrt)((v**2).sum(1, keepdims=True)),
    ),
    Known(
        "torch",
        "F.poisson_nll_loss",
        "target 0",
        "lambda x, t: F.poisson_nll_loss(x, t, full=True, reduction='none')",
        ([0.3, -0.8], [0.0, 0.0]),
        lambda x, t: each(mpmath.exp)(x) - t * x,
    ),
    Known(
        "torch",
        "F.gaussian_nll_loss",
        "variance below eps",
        "lambda x, t, v: F.gaussian_nll_loss(x, t, v, reduction='none')",
        ([0.3], [0.8], [0.0]),
        lambda x, t, v: (mpmath.log(mpmath.mpf(1e-6)) + (x - t) ** 2 / mpmath.mpf(1e-6)) / 2,
        kind="by design",
    ),
    Known(
        "torch",
        "F.max_unpool1d",
        "an index twice",
        "lambda x: F.max_unpool1d(x, torch.tensor([[[1, 1]]]), 2)",
        ([[[0.7, -0.4]]],),
        lambda x: np.array([[[0, x[0, 0, 1], 0, 0]]]),
        kind="by design",
    ),
]

KNOWN: list[Known] = [*TORCH]
