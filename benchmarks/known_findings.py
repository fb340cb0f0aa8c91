"""Wrong derivatives of released frameworks, beside the right ones in 50 digits.

Neither adjudge nor differences in floating point take part in the table: the framework's own
transforms stand on one side; on the other the function is written once more with mpmath, and
derivatives of that are taken in 50 digits. Of every function the scalar
`phi(s, t) = <w, f(x + s u + t v)>` is differentiated: `R` and `F` are `d phi / ds` at 0, and the
compositions are `d^2 phi / ds dt`, which is one number, whatever the modes.
"""

from __future__ import annotations

import argparse
import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mpmath
import numpy as np
from harness import RIGHT, Case, Family, header, table

Twin = Callable[..., Any]


@dataclass(frozen=True)
class Known:
    """One function at one point."""

    name: str
    point: str
    call: str
    """An expression that gives the framework's function; see `names` for what it may refer to."""
    x: tuple[Any, ...]
    twin: Twin
    """The same function on arrays of mpmath numbers."""
    kind: str = "wrong"
    """`wrong`, or `by design` where the framework means something else by the derivative."""
    why: str = ""
    framework: str = "torch"

    def f(self) -> Callable[..., Any]:
        """The framework's function."""
        return eval(self.call, names(self.framework))  # type: ignore[no-any-return]  # noqa: S307


def names(framework: str) -> dict[str, Any]:
    """The names to which the expressions of a framework refer."""
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
    """The options of a cross entropy that is computed in chunks of two rows."""
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
    """`f` applied to every entry."""
    return np.vectorize(f, otypes=[object])


def matrix(x: Any) -> Any:
    """An array as a matrix of mpmath."""
    return mpmath.matrix(x.tolist())


def array(m: Any) -> Any:
    """A matrix of mpmath as an array."""
    return np.array(m.tolist(), dtype=object).reshape(m.rows, m.cols)


def inverse(x: Any) -> Any:
    """The inverse of a matrix."""
    return array(mpmath.inverse(matrix(x)))


def determinant(x: Any) -> Any:
    """The determinant by cofactors, which are a polynomial and exact for singular matrices."""
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
    """The cumulative product along the only axis."""
    return np.array([np.prod(x[: k + 1]) for k in range(len(x))], dtype=object)


def sinc(t: Any) -> Any:
    """`sin(pi t) / (pi t)`, by its series near zero."""
    z = mpmath.pi * t
    if abs(z) < mpmath.mpf(10) ** -8:
        return 1 - z**2 / 6 + z**4 / 120 - z**6 / 5040
    return mpmath.sin(z) / z


def eigenvalues(x: Any) -> Any:
    """The ascending eigenvalues of the symmetric part, and the entries of |eigenvectors|."""
    e, q = mpmath.eigsy(matrix((x + x.T) / 2))
    order = sorted(range(len(e)), key=lambda k: e[k])
    vectors = array(q)[:, order]
    return np.array([e[k] for k in order], dtype=object), each(abs)(vectors)


def tridiagonal_eigenvalues(d: Any, e: Any) -> Any:
    """The ascending eigenvalues of a symmetric tridiagonal matrix."""
    values, _ = mpmath.eigsy(matrix(np.diag(d) + np.diag(e, 1) + np.diag(e, -1)))
    return np.array(sorted(values), dtype=object)


def scatter_product(x: Any, source: Any) -> Any:
    """`x` times the entries of `source` at the indices 0, 0, 1, 2."""
    out = x.copy()
    for k, value in zip((0, 0, 1, 2), source, strict=True):
        out[k] = out[k] * value
    return out


def logsumexp(x: Any) -> Any:
    """The logarithm of the sum of the exponentials of all entries."""
    top = max(x)
    return top + mpmath.log(mpmath.fsum(mpmath.exp(t - top) for t in x))


def weight_norm(v: Any, g: Any) -> Any:
    """The rows of `v`, scaled to the lengths `g`."""
    return g * v / each(mpmath.sqrt)((v**2).sum(1, keepdims=True))


def cross_entropy(x: Any, weight: Any) -> Any:
    """The cross entropy of the logits `x @ weight.T`, of which the third is right."""
    logits = weight @ x
    return logsumexp(logits) - logits[2]


def gaussian_loss(x: Any, t: Any, v: Any) -> Any:
    """The Gaussian negative log likelihood, with the variance raised to 1e-6."""
    floor = mpmath.mpf(1e-6)
    return (mpmath.log(floor) + (x - t) ** 2 / floor) / 2 + 0 * v


def hypot(x: Any, y: Any) -> Any:
    """`sqrt(x^2 + y^2)`."""
    return each(mpmath.sqrt)(x * x + y * y)


def singular_values(x: Any) -> list[Any]:
    """The ascending singular values."""
    squares, _ = mpmath.eigsy(matrix(x.T @ x))
    return sorted(mpmath.sqrt(square) for square in squares)


def logaddexp(x: Any, y: Any) -> Any:
    """`log(exp(x) + exp(y))`."""
    return each(lambda a, b: max(a, b) + mpmath.log1p(mpmath.exp(-abs(a - b))))(x, y)


def polar(a: Any, t: Any) -> Any:
    """The real and imaginary parts of a complex number in polar form."""
    return np.stack([a * each(mpmath.cos)(t), a * each(mpmath.sin)(t)], axis=1)


IDENTITY = np.eye(3).tolist()
REPEATED = (2 * np.eye(3) + np.ones((3, 3))).tolist()
SINGULAR = [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [0.0, 1.0, 1.0]]
KEPT = "what the operator computes beside its result (a factorisation, a mean) counts as constant"
K = Known
TORCH = [
    K("torch.logdet", "any", "torch.logdet", (A3,), lambda x: mpmath.log(determinant(x)), why=KEPT),
    K("torch.linalg.slogdet", "any", "lambda x: torch.linalg.slogdet(x)[1]", (A3,),
      lambda x: mpmath.log(abs(determinant(x))), why=KEPT),
    K("torch.linalg.det", "any", "torch.linalg.det", (A3,), determinant, why=KEPT),
    K("torch.linalg.solve", "any", "torch.linalg.solve", (A3, B3), lambda a, b: inverse(a) @ b,
      why=KEPT),
    K("torch.linalg.solve_ex", "any", "lambda a, b: torch.linalg.solve_ex(a, b)[0]", (A3, B3),
      lambda a, b: inverse(a) @ b, why=KEPT),
    K("torch.linalg.tensorsolve", "any", "torch.linalg.tensorsolve", (A3, [0.7, 0.1, -0.5]),
      lambda a, b: inverse(a) @ b, why=KEPT),
    K("torch.linalg.householder_product", "any", "torch.linalg.householder_product",
      ([[1.0, 0.0], [0.4, 1.0], [-0.3, 0.7], [0.5, 0.2]], [0.6, 0.9]), householder),
    K("F.layer_norm", "any", "lambda x: F.layer_norm(x, (3,))", (R23,),
      lambda x: normalised(x, (1,), 1e-5), why=KEPT),
    K("F.batch_norm", "any", "lambda x: F.batch_norm(x, None, None, training=True)", (N242,),
      lambda x: normalised(x, (0, 2), 1e-5), why=KEPT),
    K("F.instance_norm", "any", "F.instance_norm", (N124,), lambda x: normalised(x, (2,), 1e-5),
      why=KEPT),
    K("torch.linalg.eigh", "any",
      "lambda x: (lambda r: (r[0], r[1].abs()))(torch.linalg.eigh((x + x.mT) / 2))", (S3,),
      eigenvalues, why="the jvp formula divides by the zero diagonal"),
    K("torch.cholesky_inverse", "any", "lambda x: torch.cholesky_inverse(x.tril())", (L3,),
      lambda x: inverse(np.tril(x) @ np.tril(x).T),
      why="the forward formula is wrong; for factors near the identity, with which PyTorch tests "
      "it, the error is 1e-6"),
    K("torch.triangular_solve", "any", "lambda b, a: torch.triangular_solve(b, a, upper=False)[0]",
      (B3, L3), lambda b, a: inverse(np.tril(a)) @ b,
      why="the forward formula reads the triangle that the function does not"),
    K("Tensor.scatter_reduce prod", "an index twice",
      "lambda x, s: x.scatter_reduce(0, torch.tensor([0, 0, 1, 2]), s, 'prod')",
      ([0.7, -1.2, 0.4], [1.3, 0.6, -0.8, 1.1]), scatter_product, why="forward mode gives zero"),
    K("torch.cumprod", "a zero", "lambda x: torch.cumprod(x, 0)", ([0.7, 0.0, -1.2, 0.4],),
      cumulative_product,
      why="the jvp formula divides by the entries, and is set right at zeros as a value only"),
    K("torch.linalg.vander", "a zero", "torch.linalg.vander", ([0.0, 1.3, -0.4],),
      lambda x: np.stack([x * 0 + 1, x, x**2], axis=1), why="is a cumprod"),
    K("torch.sinc", "a zero", "torch.sinc", ([0.0, 0.7],), each(sinc),
      why="the first derivative at 0 is the constant 0"),
    K("torch.sinc", "next to zero", "torch.sinc", ([1e-5, -2e-9],), each(sinc),
      why="(cos z - sin z / z) / z cancels"),
    K("torch.linalg.det", "rank n - 1", "torch.linalg.det", (SINGULAR,), determinant,
      why="det(A) tr(A^-1 V) with det(A) = 0"),
    K("torch.polar", "a negative length", "lambda a, t: torch.view_as_real(torch.polar(a, t))",
      ([-0.7, 0.4], [0.3, 0.9]), polar,
      why="the direction is taken from the result, whose sign is that of the length"),
    K("torch.logaddexp", "x - y = 800", "torch.logaddexp", ([800.0, 0.3], [0.0, 0.3]), logaddexp,
      why="inf / inf"),
    K("torch.linalg.matrix_norm nuc", "the identity",
      "lambda x: torch.linalg.matrix_norm(x, 'nuc')", (IDENTITY,),
      lambda x: sum(singular_values(x)), why="equal singular values"),
    K("torch.linalg.matrix_norm 2", "the lesser singular values equal",
      "lambda x: torch.linalg.matrix_norm(x, 2)", (REPEATED,), lambda x: singular_values(x)[-1],
      why="equal singular values"),
    K("torch._weight_norm", "any", "lambda v, g: torch._weight_norm(v, g, 0)",
      (R23, [[0.7], [1.4]]), weight_norm),
    K("F.linear_cross_entropy", "any, in chunks",
      "lambda x, w: F.linear_cross_entropy(x, w, torch.tensor(2), options=chunked(True))",
      ([0.3, -1.1, 0.8], [*A3, [0.4, -0.2, 0.9]]), cross_entropy,
      why="the gradient is computed in the forward pass, and counts as constant from there on"),
    K("torch.renorm", "zeros", "lambda x: torch.renorm(x, 2, 0, 1.0)", ([[0.0, 0.0], [0.0, 0.0]],),
      lambda x: x, why="the identity there"),
    K("torch.logit", "outside of [eps, 1 - eps]", "lambda x: torch.logit(x, eps=0.2)",
      ([0.0, 1.0],), lambda x: 0 * x + np.array([-mpmath.log(4), mpmath.log(4)]),
      why="constant there"),
    K("torch.pow", "0 ** 3, the exponent a tensor",
      "lambda x: torch.pow(x, torch.tensor([3.0, 3.0], dtype=torch.float64))", ([0.0, 1.3],),
      lambda x: x**3),
    K("torch.logsumexp", "equal entries, large", "lambda x: torch.logsumexp(x, 0)",
      ([1e30, 1e30, 1e30, -3e30],), logsumexp,
      why="exp(x - logsumexp(x)) is 1 where it should be 1/3; forward mode normalises"),
    K("F.poisson_nll_loss full", "target 0",
      "lambda x, t: F.poisson_nll_loss(x, t, full=True, reduction='none')",
      ([0.3, -0.8], [0.0, 0.0]), lambda x, t: each(mpmath.exp)(x) - t * x,
      why="0 * inf in the branch that is not taken"),
    K("F.hardsigmoid", "any", "F.hardsigmoid", ([0.4, -1.3],), lambda x: (x + 3) / 6,
      why="the constant 1/6 in single precision"),
    K("F.gaussian_nll_loss", "variance below eps",
      "lambda x, t, v: F.gaussian_nll_loss(x, t, v, reduction='none')", ([0.3], [0.8], [0.0]),
      gaussian_loss, kind="by design",
      why="the variance is clamped without a record, so that it can leave the clamp"),
    K("F.max_unpool1d", "an index twice",
      "lambda x: F.max_unpool1d(x, torch.tensor([[[1, 1]]]), 2)", ([[[0.7, -0.4]]],),
      lambda x: np.array([[[0, x[0, 0, 1], 0, 0]]]), kind="by design",
      why="the last value stays, and each gets the gradient; not deterministic by its "
      "documentation"),
]  # fmt: skip


def scalar(name: str, call: str, x: list[float], f: Callable[..., Any], why: str = "") -> Known:
    """An elementwise function of JAX."""
    return Known(name, f"x = {', '.join(map(str, x))}", call, (x,), each(f), why=why)


S = scalar
JAX = [
    S("jnp.i0", "jnp.i0", [0.0, 0.7], lambda t: mpmath.besseli(0, t),
      "the slope at 0 is set to 0, as a constant"),
    S("jax.scipy.special.i0", "jsp.special.i0", [0.0, 0.7], lambda t: mpmath.besseli(0, t),
      "exp(|x|) i0e(x), and |x| has the slope 1 at 0"),
    S("jax.scipy.special.i1", "jsp.special.i1", [0.0, 0.7], lambda t: mpmath.besseli(1, t)),
    S("jax.scipy.special.spence", "jsp.special.spence", [1.2, 0.5],
      lambda t: mpmath.polylog(2, 1 - t), "reverse mode is NaN between 1 and 2"),
    S("jax.scipy.special.spence", "jsp.special.spence", [1.0, 0.5],
      lambda t: mpmath.polylog(2, 1 - t), "the derivative at 1 is 0"),
    S("jax.scipy.special.bessel_jn", "lambda x: jsp.special.bessel_jn(x, v=2, n_iter=60)[2]", [0.5],
      lambda t: mpmath.besselj(2, t)),
    S("jax.scipy.special.digamma", "jsp.special.digamma", [-8.3, 2.3], mpmath.digamma,
      "polygamma(1, x) is wrong for some x < -8"),
    S("jax.scipy.special.gammaln", "jsp.special.gammaln", [-9.3],
      lambda t: mpmath.log(abs(mpmath.gamma(t))), "the derivative of digamma"),
    S("jnp.sinc", "jnp.sinc", [1e-5, -2e-9], sinc,
      "(cos x - sin x / x) / x near 0: half of the digits for each order"),
    S("jax.scipy.special.log_ndtr", "jsp.special.log_ndtr", [-30.0],
      lambda t: mpmath.log(mpmath.ncdf(t)), "cancellation in the tail"),
    K("jnp.hypot", "y = 0", "jnp.hypot", ([0.3, 1.0], [0.0, 1.0]), hypot),
    K("jnp.ldexp", "x = 0", "lambda x: jnp.ldexp(x, 3)", ([0.0, 0.7],), lambda x: 8 * x),
    K("jnp.vander", "a zero", "lambda x: jnp.vander(x, 3)", ([0.0, 0.7],),
      lambda x: np.stack([x**2, x, 0 * x + 1], axis=1), why="x ** 0 by a general power"),
    K("jax.nn.logsumexp", "a weight b = 0", "lambda x, b: nn.logsumexp(x, b=b)",
      ([0.3, -0.2], [0.0, 1.2]), lambda x, b: mpmath.log((b * each(mpmath.exp)(x)).sum()),
      why="entries of weight 0 are masked, with their derivative"),
    K("jnp.linalg.norm nuc", "the identity", "lambda x: jnp.linalg.norm(x, 'nuc')", (IDENTITY,),
      lambda x: sum(singular_values(x)), why="equal singular values"),
    K("jnp.linalg.norm 2", "the lesser singular values equal", "lambda x: jnp.linalg.norm(x, 2)",
      (REPEATED,), lambda x: singular_values(x)[-1], why="equal singular values"),
    K("jax.scipy.linalg.eigh_tridiagonal", "any",
      "lambda d, e: jsp.linalg.eigh_tridiagonal(d, e, eigvals_only=True)",
      ([1.0, 2.0, 3.0], [0.5, 0.7]), tridiagonal_eigenvalues,
      why="bisection is differentiated step by step"),
]  # fmt: skip

KNOWN = [*TORCH, *(replace(known, framework="jax") for known in JAX)]


# ---------------------------------------------------------------- both sides

DIGITS = 50
WRONG = 1e-9
"""Relative deviations from here on are called wrong."""
SAME_VALUE = 1e-10
NOTHING = 1e-40
"""What mpmath's own differences leave of a derivative that is zero."""
MODES = ("R", "F", "RR", "FR", "RF", "FF")


@dataclass(frozen=True)
class Outcome:
    """The derivatives of both sides, and how far the values are apart."""

    first: float
    second: float
    automatic: dict[str, float | str]
    value_gap: float

    def truth(self, mode: str) -> float:
        """The number that `mode` should give."""
        return self.first if len(mode) == 1 else self.second

    def off(self, mode: str) -> float:
        """The relative deviation: infinite for a mode that is not finite, NaN where it raises."""
        value = self.automatic[mode]
        if isinstance(value, str):
            return float("nan")
        if not np.isfinite(value):
            return float("inf")
        truth = self.truth(mode)
        return abs(value - truth) / (max(abs(truth), abs(value)) or 1.0)

    def wrong(self) -> list[str]:
        """The modes whose number is wrong."""
        return [mode for mode in MODES if self.off(mode) > WRONG]


def compare(known: Known) -> Outcome:
    """Both sides of one known finding."""
    x = [np.asarray(a, float) for a in known.x]
    y = np.concatenate([np.ravel(a) for a in _host(known, x)])
    w = direction(1, [y])[0]
    u, v = direction(2, x), direction(3, x)
    first, second, value = exact(known, x, u, v, w)
    gap = abs(value - float(w @ y)) / (float(np.abs(w) @ np.abs(y)) or 1.0)
    return Outcome(first, second, automatic(known, x, u, v, w), gap)


def direction(number: int, like: Sequence[np.ndarray]) -> list[np.ndarray]:
    """A fixed direction without pattern."""
    rng = np.random.default_rng(number)
    signs = (-1, 1)
    return [np.round(rng.uniform(0.5, 1.5, a.shape) * rng.choice(signs, a.shape), 3) for a in like]


def exact(
    known: Known,
    x: Sequence[np.ndarray],
    u: Sequence[np.ndarray],
    v: Sequence[np.ndarray],
    w: np.ndarray,
) -> tuple[float, float, float]:
    """The two derivatives of phi, and its value, by mpmath."""
    with mpmath.workdps(DIGITS):
        precise = np.vectorize(mpmath.mpf, otypes=[object])

        def phi(s: Any, t: Any) -> Any:
            inputs = [
                precise(a) + s * precise(b) + t * precise(c) if a.size else a
                for a, b, c in zip(x, u, v, strict=True)
            ]
            outputs = known.twin(*inputs)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            flat = np.concatenate([np.ravel(np.asarray(y, object)) for y in outputs])
            return mpmath.fsum(a * b for a, b in zip(precise(w), flat, strict=True))

        first, second = (
            0 if abs(d) < NOTHING else d for d in (mpmath.diff(phi, (0, 0), (1, k)) for k in (0, 1))
        )
        return float(first), float(second), float(phi(mpmath.mpf(0), mpmath.mpf(0)))


def _host(known: Known, x: Sequence[np.ndarray]) -> list[np.ndarray]:
    engine = ENGINES[known.framework]()
    output = known.f()(*map(engine.array, x))
    outputs = output if isinstance(output, tuple | list) else (output,)
    return [np.asarray(y) for y in outputs]


def automatic(
    known: Known,
    x: Sequence[np.ndarray],
    u: Sequence[np.ndarray],
    v: Sequence[np.ndarray],
    w: np.ndarray,
) -> dict[str, float | str]:
    """The derivatives of phi in every mode; what a mode raises instead."""
    engine = ENGINES[known.framework]()
    f = known.f()
    at, along, beside = ([engine.array(a) for a in part] for part in (x, u, v))

    def g(*args: Any) -> Any:
        output = f(*args)
        outputs = output if isinstance(output, tuple | list) else (output,)
        flat = engine.concatenate([y.reshape(-1) for y in outputs])
        return (engine.array(w) * flat).sum()

    reverse = engine.reverse
    forward = engine.forward
    modes: dict[str, Callable[[], Any]] = {
        "R": lambda: reverse(g, at, along),
        "F": lambda: forward(g, at, along),
        "RR": lambda: reverse(lambda *a: reverse(g, a, along), at, beside),
        "FR": lambda: forward(lambda *a: reverse(g, a, along), at, beside),
        "RF": lambda: reverse(lambda *a: forward(g, a, along), at, beside),
        "FF": lambda: forward(lambda *a: forward(g, a, along), at, beside),
    }
    values: dict[str, float | str] = {}
    for mode, compute in modes.items():
        try:
            values[mode] = float(compute())
        except Exception as error:  # a mode that the framework lacks
            values[mode] = f"{type(error).__name__}: {' '.join(str(error).split())[:80]}"
    return values


@dataclass(frozen=True)
class Engine:
    """A framework's arrays in double precision, and its transforms."""

    array: Callable[[Any], Any]
    checked: Callable[[Any], Any]
    """An array as adjudge takes it."""
    concatenate: Callable[[Any], Any]
    vjp: Callable[..., Any]
    jvp: Callable[..., Any]

    def reverse(self, g: Any, x: Any, u: Any) -> Any:
        """The derivative of g along u, `<grad g(x), u>`, by one vjp."""
        _, pull = self.vjp(g, *x)
        return sum((a * b).sum() for a, b in zip(pull(self.array(1.0)), u, strict=True))

    def forward(self, g: Any, x: Any, u: Any) -> Any:
        """The derivative of g along u by one jvp."""
        return self.jvp(g, tuple(x), tuple(u))[1]


def jax_engine() -> Engine:
    """JAX with its own transforms."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    return Engine(jnp.asarray, jnp.asarray, jnp.concatenate, jax.vjp, jax.jvp)


def torch_engine() -> Engine:
    """PyTorch with the transforms of torch.func."""
    import torch

    torch.set_num_threads(1)
    array = functools.partial(torch.as_tensor, dtype=torch.float64)
    return Engine(
        array, lambda a: array(a).requires_grad_(), torch.cat, torch.func.vjp, torch.func.jvp
    )


ENGINES = {"torch": torch_engine, "jax": jax_engine}


# ---------------------------------------------------------------- the table


def row(known: Known) -> tuple[str, ...]:
    """One line of the table: what the wrong modes give, beside the truth."""
    found = compare(known)
    wrong = found.wrong()
    worst = max((found.off(mode) for mode in wrong), default=0.0)
    truth = [f"{found.first:.7g} (first)"] if any(len(mode) == 1 for mode in wrong) else []
    truth += [f"{found.second:.7g} (second)"] if any(len(mode) == 2 for mode in wrong) else []
    right = [mode for mode in MODES if found.off(mode) <= WRONG]
    same = "" if found.value_gap <= SAME_VALUE else " (the twin is another function)"
    return (
        f"`{known.name}`" + same,
        known.point,
        ", ".join(f"{mode} {found.automatic[mode]:.7g}" for mode in wrong),
        ", ".join(truth),
        "not a number" if np.isinf(worst) else share(worst),
        " ".join(right),
        known.why,
    )


def share(off: float) -> str:
    """A relative deviation as a percentage, or in powers of ten where it is small."""
    return f"{100 * off:.0f} %" if off >= 0.01 else f"{off:.0e}"


HEAD = ("function", "at", "automatic", "true", "off by", "right modes", "why")


# ---------------------------------------------------------------- the family


def units() -> list[str]:
    """Every known finding with its number in the list."""
    return [f"{k} {known.framework} {known.name}, {known.point}" for k, known in enumerate(KNOWN)]


def prepare(_deltas: Sequence[float] = ()) -> Callable[[str], Iterator[Case]]:
    """A known finding is asked about in all compositions of modes up to order 2."""
    engines = {framework: make() for framework, make in ENGINES.items()}

    def cases(unit: str) -> Iterator[Case]:
        known = KNOWN[int(unit.split(" ")[0])]

        def make(_engine: str) -> tuple[Any, tuple[Any, ...]]:
            array = engines[known.framework].checked
            return known.f(), tuple(array(np.asarray(a, float)) for a in known.x)

        options = {"order": 2, "seed": 0}
        yield Case(unit, known.framework, make, RIGHT, known.kind, options, "examine")

    return cases


FAMILY = Family(units, prepare)


def main() -> None:
    """Compute and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="part of a name")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    versions = ("torch", "jax", "jaxlib", "mpmath", "numpy")
    print(header("Derivatives beside those of a twin in 50 digits", versions))
    for framework in ENGINES:
        for kind in ("wrong", "by design"):
            chosen = [k for k in KNOWN if (k.framework, k.kind) == (framework, kind)]
            rows = [row(k) for k in chosen if options.only in k.name]
            if rows:
                print(f"### {framework}, {kind}\n\n{table(HEAD, rows)}")


if __name__ == "__main__":
    main()
