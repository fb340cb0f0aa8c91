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

        functional = torch.nn.functional
        return {
            "torch": torch,
            "F": functional,
            "chunked": chunked,
            "MASK": torch.tensor([True, True, False]),
        }
    import jax

    return {"jax": jax, "jnp": jax.numpy, "jsp": jax.scipy, "lax": jax.lax, "nn": jax.nn}


def chunked(allow_retain_graph: bool) -> Any:
    """Options for a cross entropy in chunks of two rows."""
    from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions

    return LinearCrossEntropyOptions(allow_retain_graph=allow_retain_graph, batch_chunk_size=2)


# ---------------------------------------------------------------- points

A3 = [[2.1, 0.3, -0.4], [0.5, 1.7, 0.2], [-0.3, 0.6, 1.4]]
L3 = [[1.5, 0.0, 0.0], [0.4, 1.2, 0.0], [-0.3, 0.7, 0.9]]
S3 = [[2.0, 0.5, -0.3], [0.5, 1.1, 0.4], [-0.3, 0.4, 0.4]]
B3 = [[0.7, -0.2], [0.1, 0.9], [-0.5, 0.4]]
R23 = [[0.3, -1.1, 0.8], [1.7, -0.6, 0.2]]
N124 = [[[0.3, -1.1, 0.8, 1.7], [-0.6, 0.2, 1.3, 0.4]]]
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


def tridiagonal_eigenvalues(d: Any, e: Any) -> Any:
    """Ascending."""
    values, _ = mpmath.eigsy(matrix(np.diag(d) + np.diag(e, 1) + np.diag(e, -1)))
    return np.array(sorted(values), dtype=object)


def scatter_product(x: Any, source: Any) -> Any:
    """`x` times the entries of `source` at the indices 0, 0, 1, 2."""
    out = x.copy()
    for k, value in zip((0, 0, 1, 2), source, strict=True):
        out[k] = out[k] * value
    return out


def logsumexp(x: Any) -> Any:
    """Over all entries."""
    top = max(x)
    return top + mpmath.log(mpmath.fsum(mpmath.exp(t - top) for t in x))


def weight_norm(v: Any, g: Any) -> Any:
    """Rows of `v` of the lengths `g`."""
    return g * v / each(mpmath.sqrt)((v**2).sum(1, keepdims=True))


def cross_entropy(x: Any, weight: Any) -> Any:
    """`x @ weight.T` as logits, of which the third is right."""
    logits = weight @ x
    return logsumexp(logits) - logits[2]


def gaussian_loss(x: Any, t: Any, v: Any) -> Any:
    """With the variance raised to 1e-6."""
    floor = mpmath.mpf(1e-6)
    return (mpmath.log(floor) + (x - t) ** 2 / floor) / 2 + 0 * v


def hypot(x: Any, y: Any) -> Any:
    """`sqrt(x^2 + y^2)`."""
    return each(mpmath.sqrt)(x * x + y * y)


def singular_values(x: Any) -> list[Any]:
    """Ascending."""
    squares, _ = mpmath.eigsy(matrix(x.T @ x))
    return sorted(mpmath.sqrt(square) for square in squares)


def logaddexp(x: Any, y: Any) -> Any:
    """`log(exp(x) + exp(y))`."""
    return each(lambda a, b: max(a, b) + mpmath.log1p(mpmath.exp(-abs(a - b))))(x, y)


def polar(a: Any, t: Any) -> Any:
    """Real and imaginary parts."""
    return np.stack([a * each(mpmath.cos)(t), a * each(mpmath.sin)(t)], axis=1)


IDENTITY = np.eye(3).tolist()
REPEATED = (2 * np.eye(3) + np.ones((3, 3))).tolist()
SINGULAR = [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [0.0, 1.0, 1.0]]
SECOND = "RR FR RF FF"
KEPT = "what the operator computes beside its result (a factorisation, a mean) counts as constant"
TORCH = [
    Known(
        "torch",
        "torch.logdet",
        "any",
        "torch.logdet",
        (A3,),
        lambda x: mpmath.log(determinant(x)),
        "RF FF",
        why=KEPT,
    ),
    Known(
        "torch",
        "torch.linalg.slogdet",
        "any",
        "lambda x: torch.linalg.slogdet(x)[1]",
        (A3,),
        lambda x: mpmath.log(abs(determinant(x))),
        "RF FF",
        why=KEPT,
    ),
    Known(
        "torch",
        "torch.linalg.det",
        "any",
        "torch.linalg.det",
        (A3,),
        determinant,
        "RF FF",
        why=KEPT,
    ),
    Known(
        "torch",
        "torch.linalg.solve",
        "any",
        "torch.linalg.solve",
        (A3, B3),
        lambda a, b: inverse(a) @ b,
        "RF FF",
        why=KEPT,
    ),
    Known(
        "torch",
        "torch.linalg.solve_ex",
        "any",
        "lambda a, b: torch.linalg.solve_ex(a, b)[0]",
        (A3, B3),
        lambda a, b: inverse(a) @ b,
        "RF FF",
        why=KEPT,
    ),
    Known(
        "torch",
        "torch.linalg.tensorsolve",
        "any",
        "torch.linalg.tensorsolve",
        (A3, [0.7, 0.1, -0.5]),
        lambda a, b: inverse(a) @ b,
        "RF FF",
        why=KEPT,
    ),
    Known(
        "torch",
        "torch.linalg.householder_product",
        "any",
        "torch.linalg.householder_product",
        ([[1.0, 0.0], [0.4, 1.0], [-0.3, 0.7], [0.5, 0.2]], [0.6, 0.9]),
        householder,
        "RF FF",
    ),
    Known(
        "torch",
        "F.layer_norm",
        "any",
        "lambda x: F.layer_norm(x, (3,))",
        (R23,),
        lambda x: normalised(x, (1,), 1e-5),
        "RF FF",
        why=KEPT,
    ),
    Known(
        "torch",
        "F.batch_norm",
        "any",
        "lambda x: F.batch_norm(x, None, None, training=True)",
        (N242,),
        lambda x: normalised(x, (0, 2), 1e-5),
        "RF FF",
        why=KEPT,
    ),
    Known(
        "torch",
        "F.instance_norm",
        "any",
        "F.instance_norm",
        (N124,),
        lambda x: normalised(x, (2,), 1e-5),
        "RF FF",
        why=KEPT,
    ),
    Known(
        "torch",
        "torch.linalg.eigh",
        "any",
        "lambda x: (lambda r: (r[0], r[1].abs()))(torch.linalg.eigh((x + x.mT) / 2))",
        (S3,),
        eigenvalues,
        "RF",
        why="the jvp formula divides by the zero diagonal",
    ),
    Known(
        "torch",
        "torch.cholesky_inverse",
        "any",
        "lambda x: torch.cholesky_inverse(x.tril())",
        (L3,),
        lambda x: inverse(np.tril(x) @ np.tril(x).T),
        "F FR RF FF",
        why="the forward formula is wrong; for factors near the identity, with which PyTorch "
        "tests it, the error is 1e-6",
    ),
    Known(
        "torch",
        "torch.triangular_solve",
        "any",
        "lambda b, a: torch.triangular_solve(b, a, upper=False)[0]",
        (B3, L3),
        lambda b, a: inverse(np.tril(a)) @ b,
        "F FR RF FF",
        why="the forward formula reads the triangle that the function does not",
    ),
    Known(
        "torch",
        "Tensor.scatter_reduce prod",
        "an index twice",
        "lambda x, s: x.scatter_reduce(0, torch.tensor([0, 0, 1, 2]), s, 'prod')",
        ([0.7, -1.2, 0.4], [1.3, 0.6, -0.8, 1.1]),
        scatter_product,
        "F FR RF FF",
        why="forward mode gives zero",
    ),
    Known(
        "torch",
        "torch.cumprod",
        "a zero",
        "lambda x: torch.cumprod(x, 0)",
        ([0.7, 0.0, -1.2, 0.4],),
        cumulative_product,
        "RF FF",
        why="the jvp formula divides by the entries, and is set right at zeros as a value only",
    ),
    Known(
        "torch",
        "torch.linalg.vander",
        "a zero",
        "torch.linalg.vander",
        ([0.0, 1.3, -0.4],),
        lambda x: np.stack([x * 0 + 1, x, x**2], axis=1),
        "RF FF",
        why="is a cumprod",
    ),
    Known(
        "torch",
        "torch.sinc",
        "a zero",
        "torch.sinc",
        ([0.0, 0.7],),
        each(sinc),
        "RR FR RF FF",
        why="the first derivative at 0 is the constant 0",
    ),
    Known(
        "torch",
        "torch.sinc",
        "next to zero",
        "torch.sinc",
        ([1e-5, -2e-9],),
        each(sinc),
        "R F RR FR RF FF",
        why="(cos z - sin z / z) / z cancels",
    ),
    Known(
        "torch",
        "torch.linalg.det",
        "rank n - 1",
        "torch.linalg.det",
        (SINGULAR,),
        determinant,
        "F RF FF",
        why="det(A) tr(A^-1 V) with det(A) = 0",
    ),
    Known(
        "torch",
        "torch.polar",
        "a negative length",
        "lambda a, t: torch.view_as_real(torch.polar(a, t))",
        ([-0.7, 0.4], [0.3, 0.9]),
        polar,
        "R RR FR",
        why="the direction is taken from the result, whose sign is that of the length",
    ),
    Known(
        "torch",
        "torch.logaddexp",
        "x - y = 800",
        "torch.logaddexp",
        ([800.0, 0.3], [0.0, 0.3]),
        logaddexp,
        SECOND,
        why="inf / inf",
    ),
    Known(
        "torch",
        "torch.linalg.matrix_norm nuc",
        "the identity",
        "lambda x: torch.linalg.matrix_norm(x, 'nuc')",
        (IDENTITY,),
        lambda x: sum(singular_values(x)),
        SECOND,
        why="equal singular values",
    ),
    Known(
        "torch",
        "torch.linalg.matrix_norm 2",
        "the lesser singular values equal",
        "lambda x: torch.linalg.matrix_norm(x, 2)",
        (REPEATED,),
        lambda x: singular_values(x)[-1],
        "RR FR RF",
        why="equal singular values",
    ),
    Known(
        "torch",
        "torch._weight_norm",
        "any",
        "lambda v, g: torch._weight_norm(v, g, 0)",
        (R23, [[0.7], [1.4]]),
        weight_norm,
        "RR",
    ),
    Known(
        "torch",
        "F.linear_cross_entropy",
        "any, in chunks",
        "lambda x, w: F.linear_cross_entropy(x, w, torch.tensor(2), options=chunked(True))",
        ([0.3, -1.1, 0.8], [*A3, [0.4, -0.2, 0.9]]),
        cross_entropy,
        "F RR FR RF FF",
        why="the gradient is computed in the forward pass, and counts as constant from there on",
    ),
    Known(
        "torch",
        "torch.renorm",
        "zeros",
        "lambda x: torch.renorm(x, 2, 0, 1.0)",
        ([[0.0, 0.0], [0.0, 0.0]],),
        lambda x: x,
        "RR RF",
        why="the identity there",
    ),
    Known(
        "torch",
        "torch.logit",
        "outside of [eps, 1 - eps]",
        "lambda x: torch.logit(x, eps=0.2)",
        ([0.0, 1.0],),
        lambda x: 0 * x + np.array([-mpmath.log(4), mpmath.log(4)]),
        "RR RF",
        why="constant there",
    ),
    Known(
        "torch",
        "torch.pow",
        "0 ** 3, the exponent a tensor",
        "lambda x: torch.pow(x, torch.tensor([3.0, 3.0], dtype=torch.float64))",
        ([0.0, 1.3],),
        lambda x: x**3,
        "RF",
    ),
    Known(
        "torch",
        "torch.logsumexp",
        "equal entries, large",
        "lambda x: torch.logsumexp(x, 0)",
        ([1e30, 1e30, 1e30, -3e30],),
        logsumexp,
        "R RR FR",
        why="exp(x - logsumexp(x)) is 1 where it should be 1/3; forward mode normalises",
    ),
    Known(
        "torch",
        "F.poisson_nll_loss full",
        "target 0",
        "lambda x, t: F.poisson_nll_loss(x, t, full=True, reduction='none')",
        ([0.3, -0.8], [0.0, 0.0]),
        lambda x, t: each(mpmath.exp)(x) - t * x,
        "R RR FR RF",
        why="0 * inf in the branch that is not taken",
    ),
    Known(
        "torch",
        "F.hardsigmoid",
        "any",
        "F.hardsigmoid",
        ([0.4, -1.3],),
        lambda x: (x + 3) / 6,
        "R F",
        why="the constant 1/6 in single precision",
    ),
    Known(
        "torch",
        "F.gaussian_nll_loss",
        "variance below eps",
        "lambda x, t, v: F.gaussian_nll_loss(x, t, v, reduction='none')",
        ([0.3], [0.8], [0.0]),
        gaussian_loss,
        "R RR FR RF",
        "by design",
        "the variance is clamped without a record, so that it can leave the clamp",
    ),
    Known(
        "torch",
        "F.max_unpool1d",
        "an index twice",
        "lambda x: F.max_unpool1d(x, torch.tensor([[[1, 1]]]), 2)",
        ([[[0.7, -0.4]]],),
        lambda x: np.array([[[0, x[0, 0, 1], 0, 0]]]),
        "R",
        "by design",
        "the last value stays, and each gets the gradient; not deterministic by its documentation",
    ),
]


def scalar(
    name: str, call: str, x: list[float], f: Callable[..., Any], modes: str, why: str = ""
) -> Known:
    """An elementwise function of JAX."""
    return Known("jax", name, f"x = {', '.join(map(str, x))}", call, (x,), each(f), modes, why=why)


ALL = f"R F {SECOND}"
JAX = [
    scalar(
        "jnp.i0",
        "jnp.i0",
        [0.0, 0.7],
        lambda t: mpmath.besseli(0, t),
        SECOND,
        "the slope at 0 is set to 0, as a constant",
    ),
    scalar(
        "jax.scipy.special.i0",
        "jsp.special.i0",
        [0.0, 0.7],
        lambda t: mpmath.besseli(0, t),
        ALL,
        "exp(|x|) i0e(x), and |x| has the slope 1 at 0",
    ),
    scalar(
        "jax.scipy.special.i1", "jsp.special.i1", [0.0, 0.7], lambda t: mpmath.besseli(1, t), SECOND
    ),
    scalar(
        "jax.scipy.special.spence",
        "jsp.special.spence",
        [1.2, 0.5],
        lambda t: mpmath.polylog(2, 1 - t),
        "R RR FR RF",
        "reverse mode is NaN between 1 and 2",
    ),
    scalar(
        "jax.scipy.special.spence",
        "jsp.special.spence",
        [1.0, 0.5],
        lambda t: mpmath.polylog(2, 1 - t),
        ALL,
        "the derivative at 1 is 0",
    ),
    scalar(
        "jax.scipy.special.bessel_jn",
        "lambda x: jsp.special.bessel_jn(x, v=2, n_iter=60)[2]",
        [0.5],
        lambda t: mpmath.besselj(2, t),
        SECOND,
    ),
    scalar(
        "jax.scipy.special.digamma",
        "jsp.special.digamma",
        [-8.3, 2.3],
        mpmath.digamma,
        ALL,
        "polygamma(1, x) is wrong for some x < -8",
    ),
    scalar(
        "jax.scipy.special.gammaln",
        "jsp.special.gammaln",
        [-9.3],
        lambda t: mpmath.log(abs(mpmath.gamma(t))),
        SECOND,
        "the derivative of digamma",
    ),
    scalar(
        "jnp.sinc",
        "jnp.sinc",
        [1e-5, -2e-9],
        sinc,
        ALL,
        "(cos x - sin x / x) / x near 0: half of the digits for each order",
    ),
    scalar(
        "jax.scipy.special.log_ndtr",
        "jsp.special.log_ndtr",
        [-30.0],
        lambda t: mpmath.log(mpmath.ncdf(t)),
        SECOND,
        "cancellation in the tail",
    ),
    Known("jax", "jnp.hypot", "y = 0", "jnp.hypot", ([0.3, 1.0], [0.0, 1.0]), hypot, SECOND),
    Known(
        "jax",
        "jnp.ldexp",
        "x = 0",
        "lambda x: jnp.ldexp(x, 3)",
        ([0.0, 0.7],),
        lambda x: 8 * x,
        "R F",
    ),
    Known(
        "jax",
        "jnp.vander",
        "a zero",
        "lambda x: jnp.vander(x, 3)",
        ([0.0, 0.7],),
        lambda x: np.stack([x**2, x, 0 * x + 1], axis=1),
        ALL,
        why="x ** 0 by a general power",
    ),
    Known(
        "jax",
        "jax.nn.logsumexp",
        "a weight b = 0",
        "lambda x, b: nn.logsumexp(x, b=b)",
        ([0.3, -0.2], [0.0, 1.2]),
        lambda x, b: mpmath.log((b * each(mpmath.exp)(x)).sum()),
        ALL,
        why="entries of weight 0 are masked, with their derivative",
    ),
    Known(
        "jax",
        "jnp.linalg.norm nuc",
        "the identity",
        "lambda x: jnp.linalg.norm(x, 'nuc')",
        (IDENTITY,),
        lambda x: sum(singular_values(x)),
        SECOND,
        why="equal singular values",
    ),
    Known(
        "jax",
        "jnp.linalg.norm 2",
        "the lesser singular values equal",
        "lambda x: jnp.linalg.norm(x, 2)",
        (REPEATED,),
        lambda x: singular_values(x)[-1],
        "RR FR RF",
        why="equal singular values",
    ),
    Known(
        "jax",
        "jax.scipy.linalg.eigh_tridiagonal",
        "any",
        "lambda d, e: jsp.linalg.eigh_tridiagonal(d, e, eigvals_only=True)",
        ([1.0, 2.0, 3.0], [0.5, 0.7]),
        tridiagonal_eigenvalues,
        "F FF",
        why="bisection is differentiated step by step",
    ),
]

KNOWN: list[Known] = [*TORCH, *JAX]
