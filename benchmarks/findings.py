"""Wrong derivatives of released engines and libraries, beside the right ones in 50 digits.

    python benchmarks/findings.py                        # all that are installed
    python benchmarks/findings.py torch jax --only sinc

Neither adjudge nor differences in floating point take part: an engine's own transforms stand on
one side; on the other the function is written once more with mpmath, and derivatives of that are
taken in 50 digits. Of every function the scalar `phi(s, t) = <w, f(x + s u + t v)>` is
differentiated, for directions u, v and w without a pattern: `R` and `F` are `d phi / ds` at 0, and
the compositions, which PyTorch and JAX are asked for, are `d^2 phi / ds dt`, whatever the modes.
docs/findings.md shows these numbers and says why each rule is wrong.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.util
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
from harness import RIGHT, Case, Family, header, table

Function = Callable[..., Any]


@dataclass(frozen=True)
class Finding:
    """One function at one point."""

    engine: str
    name: str
    at: str
    f: Function
    """The function of the engine or library."""
    x: tuple[Any, ...]
    twin: Function | None = None
    """The same function on arrays of mpmath numbers; none stands for a function that is linear."""
    kind: str = "wrong"
    """`wrong`, or `by design` where the engine means something else by the derivative."""


# ---------------------------------------------------------------- points

X = np.array([0.7, 1.9, 0.4, 1.3])
ZERO = np.array([0.7, 0.0, 1.3])
Z = np.array([-0.5 + 1.1j, 0.6 - 0.8j, -1.2 - 0.4j])
A = np.array([[2.1, 0.3, -0.4], [0.5, 1.7, 0.2], [-0.3, 0.6, 1.4]])
L = np.array([[1.5, 0.0, 0.0], [0.4, 1.2, 0.0], [-0.3, 0.7, 0.9]])
S = np.array([[2.0, 0.5, -0.3], [0.5, 1.1, 0.4], [-0.3, 0.4, 0.4]])
B = np.array([[0.7, -0.2], [0.1, 0.9], [-0.5, 0.4]])
C = A + 1j * np.array([[0.2, -0.5, 0.1], [0.4, 0.3, -0.2], [0.6, -0.1, 0.5]])
R23 = np.array([[0.3, -1.1, 0.8], [1.7, -0.6, 0.2]])
N124 = np.array([[[0.3, -1.1, 0.8, 1.7], [-0.6, 0.2, 1.3, 0.4]]])
N242 = np.array([
    [[0.3, -1.1], [0.8, 1.7], [-0.6, 0.2], [1.3, 0.4]],
    [[-0.9, 0.5], [1.1, -0.4], [0.7, 2.0], [0.1, -1.4]],
])  # fmt: skip
IMAGE = np.array([[[[0.5, -1.2, 0.8], [1.5, 0.3, -0.7], [-0.2, 0.9, 1.1]]]])
FEW = np.array([[0.3, -0.8, 1.1], [0.7, 0.2, -0.4]])
IDENTITY = np.eye(3)
REPEATED = 2 * np.eye(3) + np.ones((3, 3))
SINGULAR = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [0.0, 1.0, 1.0]])
SCALE = np.array([[1.2, -0.2, 0.3], [-0.2, 0.9, 0.1], [0.3, 0.1, 1.4]])

# ---------------------------------------------------------------- functions in mpmath


def each(f: Function) -> Function:
    """`f` applied to every entry."""
    return np.vectorize(f, otypes=[object])


exp, log, sqrt = each(mpmath.exp), each(mpmath.log), each(mpmath.sqrt)


def of_matrix(f: Function) -> Function:
    """A function of mpmath from matrix to matrix, on arrays."""

    def on_array(x: Any) -> Any:
        m = f(mpmath.matrix(x.tolist()))
        return np.array(m.tolist(), dtype=object).reshape(m.rows, m.cols)

    return on_array


inverse = of_matrix(mpmath.inverse)


def determinant(x: Any) -> Any:
    """The determinant by cofactors, which are a polynomial and exact for singular matrices."""
    if len(x) == 1:
        return x[0, 0]
    return sum(
        (-1) ** j * x[0, j] * determinant(np.delete(x[1:], j, axis=1)) for j in range(len(x))
    )


def solution(a: Any, b: Any) -> Any:
    """The solution of a linear system."""
    return inverse(a) @ b


def normalised(x: Any, axes: tuple[int, ...], eps: float = 1e-5) -> Any:
    """`(x - mean) / sqrt(var + eps)`."""
    count = int(np.prod([x.shape[a] for a in axes]))
    mean = x.sum(axes, keepdims=True) / count
    var = ((x - mean) ** 2).sum(axes, keepdims=True) / count
    return (x - mean) / sqrt(var + mpmath.mpf(eps))


def variance(x: Any) -> Any:
    """The variance without bias."""
    return ((x - x.mean()) ** 2).sum() / (x.size - 1)


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
    e, q = mpmath.eigsy(mpmath.matrix(((x + x.T) / 2).tolist()))
    order = sorted(range(len(e)), key=lambda k: e[k])
    vectors = np.array(q.tolist(), dtype=object).reshape(x.shape)[:, order]
    return np.array([e[k] for k in order], dtype=object), abs(vectors)


def singular_values(x: Any) -> Any:
    """The ascending singular values."""
    return sqrt(eigenvalues(x.T @ x)[0])


def svd(part: int) -> Function:
    """U or the transpose of V, of which the signs are arbitrary."""
    return of_matrix(lambda m: mpmath.svd(m)[part])


def scatter_product(x: Any, source: Any) -> Any:
    """`x` times the entries of `source` at the indices 0, 0, 1, 2."""
    out = x.copy()
    for k, value in zip((0, 0, 1, 2), source, strict=True):
        out[k] = out[k] * value
    return out


def logsumexp(x: Any) -> Any:
    """The logarithm of the sum of the exponentials of all entries."""
    top = max(x)
    return top + mpmath.log(mpmath.fsum(exp(x - top)))


def cross_entropy(x: Any, weight: Any) -> Any:
    """The cross entropy of the logits `x @ weight.T`, of which the third is right."""
    logits = weight @ x
    return logsumexp(logits) - logits[2]


def gaussian_loss(x: Any, t: Any, v: Any) -> Any:
    """The Gaussian negative log likelihood, with the variance raised to 1e-6."""
    floor = mpmath.mpf(1e-6)
    return (mpmath.log(floor) + (x - t) ** 2 / floor) / 2 + 0 * v


def logaddexp(x: Any, y: Any) -> Any:
    """`log(exp(x) + exp(y))`."""
    return each(lambda a, b: max(a, b) + mpmath.log1p(mpmath.exp(-abs(a - b))))(x, y)


def polar(a: Any, t: Any) -> Any:
    """The real and imaginary parts of a complex number in polar form."""
    return np.stack([a * each(mpmath.cos)(t), a * each(mpmath.sin)(t)], axis=1)


def response_norm(x: Any) -> Any:
    """What Lucid calls a global response norm: by the largest singular value."""
    size = singular_values(x[0, 0])[-1]
    return x * size / (size + mpmath.mpf(0.5)) + x


def wishart_divergence(entries: Any) -> Any:
    """The divergence of Wishart(5, S) from Wishart(6, SCALE); a lower triangle gives S."""
    lower = np.tril(entries)
    sigma, scale, p, q = lower @ lower.T, SCALE + mpmath.mpf(0), mpmath.mpf(5), mpmath.mpf(6)
    trace = np.trace(inverse(scale) @ sigma)
    gammas = sum(mpmath.loggamma((q - k) / 2) - mpmath.loggamma((p - k) / 2) for k in range(3))
    digammas = sum(mpmath.digamma((p - k) / 2) for k in range(3))
    logs = mpmath.log(determinant(scale)) - mpmath.log(determinant(sigma))
    return (q * logs + p * (trace - 3) + (p - q) * digammas) / 2 + gammas


def whitened(x: Any) -> Any:
    """The centred rows times the inverse square root of their covariance."""
    centred = x - x.sum(0) / len(x)
    covariance = centred.T @ centred / (len(x) - 1)
    covariance = covariance + mpmath.mpf("1e-6") * np.eye(x.shape[1], dtype=object)
    return centred @ inverse(of_matrix(mpmath.sqrtm)(covariance))


def power_law(bounds: Any) -> Any:
    """The logarithm of the density of a truncated power law at 1.7, as a function of the bounds."""
    (low, high), power = bounds[0], mpmath.mpf(1.5)
    return mpmath.log(power * mpmath.mpf(1.7) ** mpmath.mpf(0.5) / (high**power - low**power))


def erfcx(t: Any) -> Any:
    """`exp(t²) erfc(t)`."""
    return mpmath.exp(t * t) * mpmath.erfc(t)


def dawson(t: Any) -> Any:
    """The integral of Dawson."""
    return mpmath.sqrt(mpmath.pi) / 2 * mpmath.exp(-t * t) * mpmath.erfi(t)


def log_ndtr(t: Any) -> Any:
    """The logarithm of the normal distribution function."""
    return mpmath.log(mpmath.erfc(-t / mpmath.sqrt(2)) / 2)


def logsigmoid(t: Any) -> Any:
    """The logarithm of the logistic function."""
    return -mpmath.log1p(mpmath.exp(-t))


def weibull(scale: Any, shape: Any, x: Any) -> Any:
    """The logarithm of the density of Weibull's distribution."""
    t = x / scale
    return log(shape / scale) + (shape - 1) * log(t) - t**shape


def ctc_loss(x: Any) -> Any:
    """The CTC loss of the label 1, of which `x` has the log-probabilities, the blank ones first: a
    path has blanks, then ones, then blanks.
    """
    count = len(x)
    paths = [
        sum(x[t, 0, int(start <= t < stop)] for t in range(count))
        for start in range(count)
        for stop in range(start + 1, count + 1)
    ]
    return -logsumexp(np.array(paths, dtype=object))


# ---------------------------------------------------------------- engines


def torch_findings() -> Iterator[tuple[Any, ...]]:
    """PyTorch 2.13.0."""
    import torch
    from torch.nn import functional as F  # noqa: N812
    from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions

    chunked = LinearCrossEntropyOptions(allow_retain_graph=True, batch_chunk_size=2)
    double, at = torch.float64, torch.tensor([0, 0, 1, 2])
    one, count = torch.tensor([[1]]), torch.tensor([3])
    ahead = torch.tensor([1.0, 2.0], dtype=double)
    yield from [
        ("torch.logdet", "any", torch.logdet, (A,), lambda x: mpmath.log(determinant(x))),
        ("torch.linalg.slogdet", "any", lambda x: torch.linalg.slogdet(x)[1], (A,),
         lambda x: mpmath.log(abs(determinant(x)))),
        ("torch.linalg.det", "any", torch.linalg.det, (A,), determinant),
        ("torch.linalg.solve", "any", torch.linalg.solve, (A, B), solution),
        ("torch.linalg.solve_ex", "any", lambda a, b: torch.linalg.solve_ex(a, b)[0], (A, B),
         solution),
        ("torch.linalg.tensorsolve", "any", torch.linalg.tensorsolve, (A, B[:, 0]), solution),
        ("torch.linalg.householder_product", "any", torch.linalg.householder_product,
         ([[1.0, 0.0], [0.4, 1.0], [-0.3, 0.7], [0.5, 0.2]], [0.6, 0.9]), householder),
        ("F.layer_norm", "any", lambda x: F.layer_norm(x, (3,)), (R23,),
         lambda x: normalised(x, (1,))),
        ("F.batch_norm", "any", lambda x: F.batch_norm(x, None, None, training=True), (N242,),
         lambda x: normalised(x, (0, 2))),
        ("F.instance_norm", "any", F.instance_norm, (N124,), lambda x: normalised(x, (2,))),
        ("torch.linalg.eigh", "any",
         lambda x: (lambda r: (r[0], r[1].abs()))(torch.linalg.eigh((x + x.mT) / 2)), (S,),
         eigenvalues),
        ("torch.cholesky_inverse", "any", lambda x: torch.cholesky_inverse(x.tril()), (L,),
         lambda x: inverse(np.tril(x) @ np.tril(x).T)),
        ("torch.triangular_solve", "any",
         lambda b, a: torch.triangular_solve(b, a, upper=False)[0], (B, L),
         lambda b, a: solution(np.tril(a), b)),
        ("Tensor.scatter_reduce prod", "an index twice",
         lambda x, s: x.scatter_reduce(0, at, s, "prod"), ([0.7, -1.2, 0.4], [1.3, 0.6, -0.8, 1.1]),
         scatter_product),
        ("torch.cumprod", "a zero", lambda x: torch.cumprod(x, 0), ([0.7, 0.0, -1.2, 0.4],),
         cumulative_product),
        ("torch.linalg.vander", "a zero", torch.linalg.vander, ([0.0, 1.3, -0.4],),
         lambda x: np.stack([x * 0 + 1, x, x**2], axis=1)),
        ("torch.sinc", "a zero", torch.sinc, ([0.0, 0.7],), each(sinc)),
        ("torch.sinc", "next to zero", torch.sinc, ([1e-5, -2e-9],), each(sinc)),
        ("torch.linalg.det", "rank n - 1", torch.linalg.det, (SINGULAR,), determinant),
        ("torch.polar", "a negative length", lambda a, t: torch.view_as_real(torch.polar(a, t)),
         ([-0.7, 0.4], [0.3, 0.9]), polar),
        ("torch.logaddexp", "x - y = 800", torch.logaddexp, ([800.0, 0.3], [0.0, 0.3]), logaddexp),
        ("torch.linalg.matrix_norm nuc", "the identity",
         lambda x: torch.linalg.matrix_norm(x, "nuc"), (IDENTITY,),
         lambda x: sum(singular_values(x))),
        ("torch.linalg.matrix_norm 2", "the lesser singular values equal",
         lambda x: torch.linalg.matrix_norm(x, 2), (REPEATED,), lambda x: singular_values(x)[-1]),
        ("torch._weight_norm", "any", lambda v, g: torch._weight_norm(v, g, 0),
         (R23, [[0.7], [1.4]]), lambda v, g: g * v / sqrt((v**2).sum(1, keepdims=True))),
        ("F.linear_cross_entropy", "any, in chunks",
         lambda x, w: F.linear_cross_entropy(x, w, torch.tensor(2), options=chunked),
         (R23[0], [*A, [0.4, -0.2, 0.9]]), cross_entropy),
        ("torch.renorm", "zeros", lambda x: torch.renorm(x, 2, 0, 1.0), (np.zeros((2, 2)),),
         lambda x: x),
        ("torch.logit", "outside of [eps, 1 - eps]", lambda x: torch.logit(x, eps=0.2),
         ([0.0, 1.0],), lambda x: 0 * x + np.array([-mpmath.log(4), mpmath.log(4)])),
        ("torch.pow", "0 ** 3, the exponent a tensor",
         lambda x: torch.pow(x, torch.tensor([3.0, 3.0], dtype=double)), ([0.0, 1.3],),
         lambda x: x**3),
        ("torch.logsumexp", "equal entries, large", lambda x: torch.logsumexp(x, 0),
         ([1e30, 1e30, 1e30, -3e30],), logsumexp),
        ("torch.logcumsumexp", "entries far below the largest",
         lambda x: torch.logcumsumexp(x, 0), ([-30.0, -28.0, 0.5],),
         lambda x: np.array([logsumexp(x[: k + 1]) for k in range(len(x))])),
        ("F.poisson_nll_loss full", "target 0",
         lambda x, t: F.poisson_nll_loss(x, t, full=True, reduction="none"),
         ([0.3, -0.8], [0.0, 0.0]), lambda x, t: exp(x) - t * x),
        ("F.ctc_loss", "log-probabilities that no log_softmax is differentiated through",
         lambda x: F.ctc_loss(x, one, count, one, reduction="sum"),
         ([[[-0.9, -0.6]], [[-0.4, -1.3]], [[-1.1, -0.5]]],), ctc_loss),
        ("torch.special.erfcx", "x = 1e6", torch.special.erfcx, ([1e6],), each(erfcx)),
        ("torch.special.log_ndtr", "x = -1e8", torch.special.log_ndtr, ([-1e8],), each(log_ndtr)),
        ("F.logsigmoid", "x = 30", F.logsigmoid, ([30.0],), each(logsigmoid)),
        ("torch.expm1", "x = -27", torch.expm1, ([-27.0],), each(mpmath.expm1)),
        ("Weibull.log_prob", "scale 21.6, concentration 102, x = 0.3",
         lambda a, k, x: torch.distributions.Weibull(a, k).log_prob(x),
         ([21.6], [102.0], [0.3]), weibull),
        ("NegativeBinomial.variance", "logits = 307",
         lambda x: torch.distributions.NegativeBinomial(5, logits=x).variance,
         ([307.0],), lambda x: 5 * exp(x) * (1 + exp(x))),
        ("F.cosine_similarity", "eps = 1", lambda x: F.cosine_similarity(x, ahead, 0, 1.0),
         ([0.3, 0.4],), lambda x: (x[0] + 2 * x[1]) / mpmath.sqrt(5)),
        ("F.hardsigmoid", "any", F.hardsigmoid, ([0.4, -1.3],), lambda x: (x + 3) / 6),
        ("F.gaussian_nll_loss", "variance below eps",
         lambda x, t, v: F.gaussian_nll_loss(x, t, v, reduction="none"), ([0.3], [0.8], [0.0]),
         gaussian_loss, "by design"),
        ("F.max_unpool1d", "an index twice",
         lambda x: F.max_unpool1d(x, torch.tensor([[[1, 1]]]), 2), ([[[0.7, -0.4]]],),
         lambda x: np.array([[[0, x[0, 0, 1], 0, 0]]]), "by design"),
    ]  # fmt: skip


def jax_findings() -> Iterator[tuple[Any, ...]]:
    """JAX 0.10.2."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    special, tridiagonal = jax.scipy.special, jax.scipy.linalg.eigh_tridiagonal

    def spence(t: Any) -> Any:
        return mpmath.polylog(2, 1 - t)

    scalars = [
        ("jnp.i0", jnp.i0, [0.0, 0.7], lambda t: mpmath.besseli(0, t)),
        ("jax.scipy.special.i0", special.i0, [0.0, 0.7], lambda t: mpmath.besseli(0, t)),
        ("jax.scipy.special.i1", special.i1, [0.0, 0.7], lambda t: mpmath.besseli(1, t)),
        ("jax.scipy.special.spence", special.spence, [1.2, 0.5], spence),
        ("jax.scipy.special.spence", special.spence, [1.0, 0.5], spence),
        ("jax.scipy.special.bessel_jn", lambda x: special.bessel_jn(x, v=2, n_iter=60)[2], [0.5],
         lambda t: mpmath.besselj(2, t)),
        ("jax.scipy.special.digamma", special.digamma, [-8.3, 2.3], mpmath.digamma),
        ("jax.scipy.special.gammaln", special.gammaln, [-9.3],
         lambda t: mpmath.log(abs(mpmath.gamma(t)))),
        ("jnp.sinc", jnp.sinc, [1e-5, -2e-9], sinc),
        ("jax.scipy.special.log_ndtr", special.log_ndtr, [-30.0],
         lambda t: mpmath.log(mpmath.ncdf(t))),
        ("jax.scipy.special.log_ndtr", special.log_ndtr, [-1e8], log_ndtr),
        ("jax.scipy.special.erfcx", special.erfcx, [1e6], erfcx),
        ("jnp.expm1", jnp.expm1, [-27.0], mpmath.expm1),
        ("jax.scipy.special.dawsn", special.dawsn, [1e6], dawson),
        ("jax.scipy.special.wofz", lambda x: special.wofz(x).imag, [1e6],
         lambda t: 2 / mpmath.sqrt(mpmath.pi) * dawson(t)),
    ]  # fmt: skip
    for name, f, x, twin in scalars:
        yield name, f"x = {', '.join(map(str, x))}", f, (x,), each(twin)
    yield from [
        ("jnp.hypot", "y = 0", jnp.hypot, ([0.3, 1.0], [0.0, 1.0]),
         lambda x, y: sqrt(x * x + y * y)),
        ("jnp.ldexp", "x = 0", lambda x: jnp.ldexp(x, 3), ([0.0, 0.7],), lambda x: 8 * x),
        ("jnp.vander", "a zero", lambda x: jnp.vander(x, 3), ([0.0, 0.7],),
         lambda x: np.stack([x**2, x, 0 * x + 1], axis=1)),
        ("jax.nn.logsumexp", "a weight b = 0", lambda x, b: jax.nn.logsumexp(x, b=b),
         ([0.3, -0.2], [0.0, 1.2]), lambda x, b: mpmath.log((b * exp(x)).sum())),
        ("jnp.linalg.norm nuc", "the identity", lambda x: jnp.linalg.norm(x, "nuc"), (IDENTITY,),
         lambda x: sum(singular_values(x))),
        ("jnp.linalg.norm 2", "the lesser singular values equal", lambda x: jnp.linalg.norm(x, 2),
         (REPEATED,), lambda x: singular_values(x)[-1]),
        ("jax.scipy.linalg.eigh_tridiagonal", "any",
         lambda d, e: tridiagonal(d, e, eigvals_only=True), ([1.0, 2.0, 3.0], [0.5, 0.7]),
         lambda d, e: eigenvalues(np.diag(d) + np.diag(e, 1) + np.diag(e, -1))[0]),
    ]  # fmt: skip


def autograd_findings() -> Iterator[tuple[Any, ...]]:
    """HIPS autograd 1.9.1."""
    import autograd.numpy as anp
    from autograd.scipy import linalg, special
    from autograd.scipy.stats import beta

    def hermitian(x: Any) -> Any:
        return (x + np.conj(x.T)) / 2

    yield from [
        ("var(x, correction=1)", "any", lambda x: anp.var(x, correction=1), (X,), variance),
        ("std(x, correction=1)", "any", lambda x: anp.std(x, correction=1), (X,),
         lambda x: sqrt(variance(x))),
        ("prod", "a zero", anp.prod, (ZERO,), np.prod),
        ("repeat(x, 2, axis=-1)", "any", lambda x: anp.repeat(x, 2, axis=-1), (X,)),
        ("full_like(x, v)", "any, in v", lambda v: anp.full_like(np.ones(3), v), (X[:1],)),
        ("sign", "complex", anp.sign, (Z,), each(lambda z: z / abs(z))),
        ("arccosh", "complex, left", anp.arccosh, (Z,), each(mpmath.acosh)),
        ("fft.rfft(x, n=5)", "n is not len(x)", lambda x: anp.fft.rfft(x, n=5), (X,)),
        ("linalg.norm(x, inf)", "any", lambda x: anp.linalg.norm(x, np.inf), (X,),
         lambda x: max(abs(x))),
        ("linalg.cholesky", "complex",
         lambda x: anp.linalg.cholesky((x + anp.conj(anp.transpose(x))) / 2), (C @ C.conj().T,),
         lambda x: of_matrix(mpmath.cholesky)(hermitian(x))),
        ("scipy.linalg.sqrtm", "complex", linalg.sqrtm, (C,), of_matrix(mpmath.sqrtm)),
        ("scipy.special.jn(n, x)", "any, in n", lambda n: special.jn(n, 1.7), (X,),
         each(lambda n: mpmath.besselj(n, 1.7))),
        ("scipy.special.iv(n, x)", "any, in n", lambda n: special.iv(n, 1.7), (X,),
         each(lambda n: mpmath.besseli(n, 1.7))),
        ("scipy.special.ive(n, x)", "any, in n", lambda n: special.ive(n, 1.7), (X,),
         each(lambda n: mpmath.besseli(n, 1.7) * mpmath.exp(-1.7))),
        ("scipy.stats.beta.cdf", "outside of [0, 1]", lambda x: beta.cdf(x, 2.0, 2.0),
         ([-0.3, 1.4],), lambda x: 0 * x + np.array([0, 1])),
    ]  # fmt: skip


def mlx_findings() -> Iterator[tuple[Any, ...]]:
    """MLX 0.32.4."""
    mx: Any = importlib.import_module("mlx.core")
    power = mpmath.mpc(0.4, 0.9)

    def twice(x: Any) -> list[Any]:
        y = x * x
        return [y, y]

    def size_gradient(z: Any) -> Any:
        return mx.vjp(lambda z: mx.abs(z), [z], [mx.ones(z.shape)])[1][0]

    def product_gradient(z: Any) -> Any:
        one = mx.array(1.0, dtype=mx.complex64)
        return mx.vjp(lambda z: mx.prod(z), [z], [one])[1][0]

    yield from [
        ("mx.vjp of two outputs", "that are one array", twice, (X,), lambda x: (x * x, x * x)),
        ("mx.full(shape, v), full_like", "any, in v", lambda v: mx.full((3,), v), (X[:1],)),
        ("mx.divmod(x, y)", "any, the remainder in x", lambda x: mx.divmod(x, mx.array(0.6))[1],
         (X,), each(lambda t: t % mpmath.mpf(0.6))),
        ("x.astype(int32)", "any", lambda x: x.astype(mx.int32).astype(mx.float32), (X,),
         each(mpmath.floor)),
        ("mx.cumprod", "complex", lambda x: mx.cumprod(x), (Z,), cumulative_product),
        ("mx.logcumsumexp", "complex", lambda x: mx.logcumsumexp(x), (Z,),
         lambda x: log(np.cumsum(exp(x)))),
        ("mx.power(x, y)", "complex, in x", lambda x: mx.power(x, mx.array(0.4 + 0.9j)), (Z,),
         lambda x: x**power),
        ("mx.power(x, y)", "complex, in y", lambda y: mx.power(mx.array(0.4 + 0.9j), y), (Z,),
         lambda y: power**y),
        ("gradient of mx.abs", "complex", size_gradient, (Z,), each(lambda z: z / abs(z))),
        ("gradient of mx.prod", "complex", product_gradient, (Z,),
         lambda z: np.conj([np.prod(np.delete(z, k)) for k in range(z.size)])),
    ]  # fmt: skip


def lucid_findings() -> Iterator[tuple[Any, ...]]:
    """Lucid 2.16.0, on Python 3.12."""
    importlib.import_module("adjudge_lucid")  # lets Python 3.12 import Lucid
    lucid: Any = importlib.import_module("lucid")
    linalg: Any = importlib.import_module("lucid.linalg")
    F: Any = importlib.import_module("lucid.nn.functional")
    points = lucid.tensor(np.array([[[[-0.7, 0.2], [0.1, 0.4]], [[-0.6, 0.1], [0.6, -0.5]]]]))
    one = lucid.tensor(1.0)
    yield from [
        ("(x + y) + x", "any", lambda x, y: (x + y) + x, (A[0], A[1])),
        ("x.T", "square", lambda x: x.T, (A,)),
        ("lucid.cumprod", "a zero", lambda x: lucid.cumprod(x), (ZERO,), cumulative_product),
        ("lucid.stack", "axis=1", lambda x, y: lucid.stack((x, y), 1), (A[:2, :2], B[:2])),
        ("lucid.hstack", "vectors", lambda x, y: lucid.hstack((x, y)), (A[0], A[1])),
        ("x[index]", "an index twice", lambda x: x[np.array([2, 0, 2])], (A[0],)),
        ("linalg.inv", "any", linalg.inv, (A,), inverse),
        ("linalg.det", "any", linalg.det, (A,), determinant),
        ("linalg.solve", "any", linalg.solve, (A, B), solution),
        ("linalg.cholesky", "any", lambda x: linalg.cholesky(x @ x.mT), (A,),
         lambda x: of_matrix(mpmath.cholesky)(x @ x.T)),
        ("linalg.qr", "any", linalg.qr, (A,),
         lambda x: tuple(of_matrix(lambda m, k=k: mpmath.qr(m)[k])(x) for k in (0, 1))),
        ("linalg.svd", "any, U", lambda x: linalg.svd(x)[0] ** 2, (A,), lambda x: svd(0)(x) ** 2),
        ("linalg.svd", "any, V", lambda x: linalg.svd(x)[2] ** 2, (A,), lambda x: svd(2)(x) ** 2),
        ("linalg.matrix_power", "n = 2", lambda x: linalg.matrix_power(x, 2), (A,),
         lambda x: x @ x),
        ("linalg.matrix_power", "n = -1", lambda x: linalg.matrix_power(x, -1), (A,), inverse),
        ("linalg.pinv", "square", linalg.pinv, (A,), inverse),
        ("linalg.norm", "a matrix, ord=2", linalg.norm, (A,), lambda x: singular_values(x)[-1]),
        ("linalg.norm", "a matrix, ord=1", lambda x: linalg.norm(x, 1), (A,),
         lambda x: max(abs(x).sum(0))),
        ("linalg.norm", "axis=1, beside a row of zeros", lambda x: linalg.norm(x, axis=1)[1:],
         ([[0.0, 0.0], [0.6, -0.8]],), lambda x: sqrt((x[1:] ** 2).sum(1))),
        ("F.interpolate", "bilinear, enlarged", lambda x: F.interpolate(x, (5, 5)), (IMAGE,)),
        ("F.interpolate", "nearest, enlarged",
         lambda x: F.interpolate(x, (5, 5), mode="nearest"), (IMAGE,)),
        ("F.interpolate", "trilinear, enlarged",
         lambda x: F.interpolate(x, (2, 4, 4), mode="trilinear"), (IMAGE[None],)),
        ("F.grid_sample", "two points in one pixel", lambda x: F.grid_sample(x, points), (IMAGE,)),
        ("F.rotary_pos_embedding", "any", lambda x: F.rotary_pos_embedding(x),
         ([[[0.3, -1.1, 0.8, 0.5], [1.4, 0.2, -0.6, 0.9]]],)),
        ("F.global_response_norm", "any", lambda x: F.global_response_norm(x, one, one, 0.5),
         (IMAGE,), response_norm),
        ("F.rotate", "any", lambda x: F.rotate(x, 30.0), (IMAGE,)),
        ("lucid.diag", "any", lucid.diag, (A[0],)),
    ]  # fmt: skip


# ---------------------------------------------------------------- libraries


def libraries_on_torch() -> Iterator[tuple[Any, ...]]:
    """PyTorch's distributions, GPyTorch and Kornia, as far as they are installed."""
    import torch
    from torch.distributions import Wishart, kl_divergence

    scale = torch.tensor(SCALE)

    def divergence(entries: Any) -> Any:
        lower, five, six = torch.tril(entries), *torch.tensor([5.0, 6.0]).double()
        return kl_divergence(Wishart(five, covariance_matrix=lower @ lower.T), Wishart(six, scale))

    covariance = [[2.0, 0.3, 0.1], [0.3, 1.5, 0.2], [0.1, 0.2, 1.1]]
    yield ("torch.distributions.kl_divergence(Wishart, Wishart)", "any, the first distribution",
           divergence, (np.linalg.cholesky(covariance),), wishart_divergence)  # fmt: skip
    if importlib.util.find_spec("gpytorch"):
        import gpytorch

        yield ("gpytorch.log_normal_cdf", "-1.2", gpytorch.log_normal_cdf, ([[-1.2]],),
               each(lambda z: mpmath.log(mpmath.ncdf(z))))  # fmt: skip
        yield ("gpytorch.dsmm", "any, the sparse matrix",
               lambda x: gpytorch.dsmm(x.to_sparse(), scale), (FEW,))  # fmt: skip
    if importlib.util.find_spec("linear_operator"):
        yield from second_derivatives_of_operators()
    if importlib.util.find_spec("kornia"):
        import kornia

        yield ("kornia.enhance.zca_whiten", "fewer samples than features",
               kornia.enhance.zca_whiten, (FEW,), whitened)  # fmt: skip


def second_derivatives_of_operators() -> Iterator[tuple[Any, ...]]:
    """What GPyTorch computes with: gradients that are differentiated again."""
    import linear_operator
    import torch

    b, c, w = map(torch.tensor, (B, *N242))
    as_operator = linear_operator.to_linear_operator

    def gradient(f: Function) -> Function:
        def of(x: Any) -> Any:
            x = x if x.requires_grad else x.detach().requires_grad_()
            return torch.autograd.grad(f(x), x, create_graph=True)[0]

        return of

    def quadratic(x: Any) -> Any:
        return linear_operator.functions.inv_quad(x @ x.mT + torch.eye(3).double(), b)

    def quadratic_gradient(x: Any) -> Any:
        z = inverse(x @ x.T + IDENTITY) @ B
        return -2 * z @ z.T @ x

    def product(x: Any) -> Any:
        factors = as_operator(x @ x), as_operator(x)
        return (linear_operator.operators.KroneckerProductLinearOperator(*factors) @ c * w).sum()

    def product_gradient(x: Any) -> Any:
        m = np.asarray(w @ c.mT).reshape(2, 2, 2, 2)  # rows and columns of both factors
        square = np.einsum("ikjl,kl->ij", m, x)
        return np.einsum("ikjl,ij->kl", m, x @ x) + square @ x.T + x.T @ square

    yield ("gradient of linear_operator.inv_quad", "any, the matrix", gradient(quadratic), (A,),
           quadratic_gradient)  # fmt: skip
    yield ("gradient of KroneckerProductLinearOperator @ c", "any, the factors",
           gradient(product), (A[:2, :2],), product_gradient)  # fmt: skip


def libraries_on_jax() -> Iterator[tuple[Any, ...]]:
    """NumPyro and Optax, as far as they are installed."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    if importlib.util.find_spec("numpyro"):
        from numpyro.distributions import DoublyTruncatedPowerLaw

        power, at = jnp.array([0.5]), jnp.array([1.7])
        yield ("numpyro.distributions.DoublyTruncatedPowerLaw.log_prob", "any, the bounds",
               lambda b: DoublyTruncatedPowerLaw(power, b[0, 0], b[0, 1]).log_prob(at),
               ([[0.8, 2.9]],), power_law)  # fmt: skip
    if importlib.util.find_spec("optax"):
        import optax

        def first_step(gradient: Any, weight: float) -> Any:
            transformation, weights = optax.scale_by_lbfgs(), jnp.full(gradient.shape, weight)
            state = transformation.init(jnp.zeros_like(weights))
            return transformation.update(gradient, state, weights)[0]

        for weight in (0.5, 0.0):
            f = functools.partial(first_step, weight=weight)
            # the gradient is divided by its norm, which is above one
            yield ("optax.scale_by_lbfgs", f"the first step, weights {weight:g}", f, (2 * FEW,),
                   lambda x: x / sqrt((x * x).sum()))  # fmt: skip


FINDINGS: dict[str, Callable[[], Iterator[tuple[Any, ...]]]] = {
    "torch": torch_findings,
    "jax": jax_findings,
    "autograd": autograd_findings,
    "mlx": mlx_findings,
    "lucid": lucid_findings,
    "libraries on torch": libraries_on_torch,
    "libraries on jax": libraries_on_jax,
}


def findings(*engines: str) -> list[Finding]:
    """What is known of these engines, which are imported for it."""
    return [Finding(engine, *one) for engine in engines for one in FINDINGS[engine]()]


# ---------------------------------------------------------------- the derivatives of engines

Pull = tuple[list[Any], Callable[[list[Any]], Sequence[Any]]]
"""The outputs of a function, and what takes a cotangent for each to a gradient for each input."""


def several(value: Any) -> list[Any]:
    """The outputs of a function as a list."""
    return list(value) if isinstance(value, tuple | list) else [value]


def torch_pull(f: Function, x: Sequence[Any]) -> Pull:
    """The gradients of `torch.autograd.grad`, zeros where there is none."""
    import torch

    leaves = [torch.tensor(a, requires_grad=True) for a in x]
    y = several(f(*leaves))

    def pull(w: list[Any]) -> Sequence[Any]:
        if not any(one.requires_grad for one in y):
            return [0 * a for a in x]
        cotangents = list(map(torch.as_tensor, w))
        found = torch.autograd.grad(y, leaves, cotangents, allow_unused=True)
        return [0 * a if g is None else g for g, a in zip(found, x, strict=True)]

    return [one.detach() for one in y], pull


def jax_pull(f: Function, x: Sequence[Any]) -> Pull:
    """The gradients of `jax.vjp`."""
    import jax

    y, pull = jax.vjp(lambda *x: several(f(*x)), *map(jax.numpy.asarray, x))
    return y, lambda w: pull([jax.numpy.asarray(one) for one in w])


def autograd_pull(f: Function, x: Sequence[Any]) -> Pull:
    """The gradient of `autograd.make_vjp`, which is the transpose and not the adjoint."""
    from autograd import make_vjp

    pull, y = make_vjp(f)(*x)
    return [y], lambda w: [np.conj(pull(np.conj(w[0])))]


def mlx_pull(f: Function, x: Sequence[Any]) -> Pull:
    """The gradients of `mx.vjp`, in float32 and complex64."""
    mx: Any = importlib.import_module("mlx.core")
    inputs = [mx.array(a) for a in x]

    def pull(w: list[Any]) -> Sequence[Any]:
        kinds = ["complex64" if one.dtype.kind == "c" else "float32" for one in w]
        cotangents = [mx.array(one.astype(kind)) for one, kind in zip(w, kinds, strict=True)]
        return mx.vjp(lambda *x: several(f(*x)), inputs, cotangents)[1]  # type: ignore[no-any-return]

    return several(f(*inputs)), pull


def lucid_pull(f: Function, x: Sequence[Any]) -> Pull:
    """What `backward()` of Lucid leaves in `.grad`, zeros where it leaves nothing."""
    lucid: Any = importlib.import_module("lucid")
    leaves = [lucid.tensor(a.copy(), requires_grad=True) for a in x]
    y = several(f(*leaves))

    def pull(w: list[Any]) -> Sequence[Any]:
        terms = [(a * lucid.tensor(b)).sum() for a, b in zip(y, w, strict=True)]
        total = sum(terms[1:], terms[0])
        if total.requires_grad:
            total.backward()
        return [0 * a.data if a.grad is None else a.grad for a in leaves]

    return [one.data for one in y], pull


PULLS: dict[str, Callable[[Function, Sequence[Any]], Pull]] = {
    "autograd": autograd_pull,
    "mlx": mlx_pull,
    "lucid": lucid_pull,
    "libraries on torch": torch_pull,
    "libraries on jax": jax_pull,
}
MODES = ("R", "F", "RR", "FR", "RF", "FF")


@dataclass(frozen=True)
class Transforms:
    """Arrays in double precision and functional transforms, of which all compositions are taken."""

    array: Function
    checked: Function
    """An array as adjudge takes it."""
    concatenate: Function
    vjp: Function
    jvp: Function

    def reverse(self, g: Function, x: Any, u: Any) -> Any:
        """The derivative of g along u, `<grad g(x), u>`, by one vjp."""
        _, pull = self.vjp(g, *x)
        return sum((a * b).sum() for a, b in zip(pull(self.array(1.0)), u, strict=True))

    def forward(self, g: Function, x: Any, u: Any) -> Any:
        """The derivative of g along u by one jvp."""
        return self.jvp(g, tuple(x), tuple(u))[1]

    def automatic(self, f: Function, x: Any, u: Any, v: Any, w: Any) -> dict[str, float]:
        """The derivatives of phi in every mode that does not raise."""
        at, along, beside = ([self.array(a) for a in part] for part in (x, u, v))

        def phi(*args: Any) -> Any:
            flat = self.concatenate([y.reshape(-1) for y in several(f(*args))])
            return (self.array(w) * flat).sum()

        one = {"R": self.reverse, "F": self.forward}
        values = {}
        for mode in MODES:
            g = phi
            if len(mode) == 2:
                g = lambda *a, inner=one[mode[1]]: inner(phi, a, along)  # noqa: E731
            try:
                values[mode] = float(one[mode[0]](g, at, along if len(mode) == 1 else beside))
            except Exception as error:  # a mode that the engine lacks
                warnings.warn(f"{mode}: {type(error).__name__}: {error}", stacklevel=2)
        return values


@functools.cache
def transforms(engine: str) -> Transforms:
    """The transforms of torch.func, or those of JAX."""
    if engine == "jax":
        import jax

        jax.config.update("jax_enable_x64", True)
        array = jax.numpy.asarray
        return Transforms(array, array, jax.numpy.concatenate, jax.vjp, jax.jvp)
    import torch

    torch.set_num_threads(1)
    array = functools.partial(torch.as_tensor, dtype=torch.float64)
    checked = lambda a: array(a).requires_grad_()  # noqa: E731
    return Transforms(array, checked, torch.cat, torch.func.vjp, torch.func.jvp)


# ---------------------------------------------------------------- both sides

WRONG = 1e-9
"""Relative deviations from here on are called wrong."""
SAME = 1e-6
"""How far the values of the two functions may be apart, of engines in single precision as well."""
NOTHING = 1e-40
"""What mpmath's own differences leave of a derivative that is zero."""


def points(finding: Finding) -> tuple[Any, ...]:
    """The inputs as arrays, complex or in double precision."""
    arrays = (np.asarray(a) for a in finding.x)
    return tuple(a if a.dtype.kind == "c" else a.astype(float) for a in arrays)


def direction(number: int, like: Sequence[Any]) -> list[Any]:
    """A fixed direction without a pattern."""
    rng = np.random.default_rng(number)

    def drawn(shape: tuple[int, ...]) -> Any:
        return np.round(rng.uniform(0.5, 1.5, shape) * rng.choice((-1, 1), shape), 3)

    return [drawn(a.shape) + (1j * drawn(a.shape) if a.dtype.kind == "c" else 0) for a in like]


def parts(flat: Any, like: Sequence[Any]) -> list[Any]:
    """Arrays of the shapes and kinds of these, with the entries of one vector."""
    cuts = np.split(flat, np.cumsum([a.size for a in like])[:-1])
    reals = [a.dtype.kind != "c" for a in like]
    return [
        (one.real if real else one).reshape(a.shape)
        for one, real, a in zip(cuts, reals, like, strict=True)
    ]


def inner(w: Any, y: Sequence[Any]) -> float:
    """The real part of `<w, y>`."""
    return float(np.vdot(w, np.concatenate([np.ravel(a) for a in y])).real)


@mpmath.workdps(50)
def exact(twin: Function, x: Sequence[Any], u: Any, v: Any, w: Any) -> tuple[float, float, float]:
    """The two derivatives of phi, and its value, by mpmath."""
    precise = np.vectorize(mpmath.mpmathify, otypes=[object])

    def phi(s: Any, t: Any) -> Any:
        inputs = [
            precise(a) + s * precise(b) + t * precise(c) if a.size else a
            for a, b, c in zip(x, u, v, strict=True)
        ]
        outputs = twin(*inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        flat = np.concatenate([np.ravel(np.asarray(y, object)) for y in outputs])
        return mpmath.re(mpmath.fdot(flat, precise(np.conj(w))))

    first, second = (
        0 if abs(d) < NOTHING else d for d in (mpmath.diff(phi, (0, 0), (1, k)) for k in (0, 1))
    )
    return float(first), float(second), float(phi(mpmath.mpf(0), mpmath.mpf(0)))


def automatic(finding: Finding, x: Sequence[Any], u: Any, v: Any) -> tuple[Any, Any, Any]:
    """The cotangent w, the outputs of the function, and what each mode of the engine gives."""
    if finding.engine in PULLS:
        y, pull = PULLS[finding.engine](finding.f, x)
        y = [np.asarray(a) for a in y]
    else:
        engine = transforms(finding.engine)
        y = [np.asarray(a) for a in several(finding.f(*map(engine.array, x)))]
    (w,) = direction(1, [np.concatenate([np.ravel(a) for a in y])])
    if finding.engine not in PULLS:
        return w, y, engine.automatic(finding.f, x, u, v, w)
    gradients = [np.asarray(g) for g in pull(parts(w, y))]
    return w, y, {"R": sum(float(np.vdot(g, b).real) for g, b in zip(gradients, u, strict=True))}


def row(finding: Finding) -> tuple[str, ...]:
    """One line of the table: what the wrong modes give, beside the truth."""
    x = points(finding)
    u, v = direction(2, x), direction(3, x)
    w, y, values = automatic(finding, x, u, v)
    if finding.twin is None:
        truths = (inner(w, [np.asarray(a) for a in PULLS[finding.engine](finding.f, u)[0]]), 0.0)
        gap = 0.0
    else:
        *truths, value = exact(finding.twin, x, u, v, w)
        size = inner(np.abs(w), [np.abs(a) for a in y]) or 1.0
        gap = abs(value - inner(w, y)) / size
    off = {mode: deviation(value, truths[len(mode) - 1]) for mode, value in values.items()}
    wrong = [mode for mode in off if off[mode] > WRONG]
    worst = max((off[mode] for mode in wrong), default=0.0)
    alone = "" if len(values) > 1 else "R "
    orders = sorted({len(mode) for mode in wrong})
    told = {1: " (first)", 2: " (second)"} if not alone else {1: ""}
    return (
        f"`{finding.name}`" + (" (the twin is another function)" if gap > SAME else ""),
        finding.at,
        ", ".join(f"{mode} {values[mode]:.7g}".removeprefix(alone) for mode in wrong),
        ", ".join(f"{truths[k - 1]:.7g}{told[k]}" for k in orders),
        "not a number" if np.isinf(worst) else share(worst),
        " ".join(mode for mode in off if off[mode] <= WRONG),
    )


def share(off: float) -> str:
    """A relative deviation as a percentage, or in powers of ten where it is small."""
    return f"{100 * off:.0f} %" if off >= 0.01 else f"{off:.0e}"


def deviation(value: float, truth: float) -> float:
    """The relative deviation, which is infinite for what is not finite."""
    if not np.isfinite(value):
        return float("inf")
    return abs(value - truth) / (max(abs(truth), abs(value)) or 1.0)


# ---------------------------------------------------------------- the family


def known() -> list[Finding]:
    """The findings in PyTorch and JAX, of which all compositions of modes are asked for."""
    return findings("torch", "jax")


def units() -> list[str]:
    """Every known finding with its number in the list."""
    return [f"{k} {one.engine} {one.name}, {one.at}" for k, one in enumerate(known())]


def prepare(_deltas: Sequence[float] = ()) -> Callable[[str], Iterator[Case]]:
    """A known finding is asked about in all compositions of modes up to order 2."""
    every = known()

    def cases(unit: str) -> Iterator[Case]:
        one = every[int(unit.split(" ")[0])]

        def make(_engine: str) -> tuple[Any, tuple[Any, ...]]:
            return one.f, tuple(map(transforms(one.engine).checked, points(one)))

        yield Case(unit, one.engine, make, RIGHT, one.kind, {"order": 2, "seed": 0}, "examine")

    return cases


FAMILY = Family(units, prepare)


def main() -> None:
    """Compute and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("engines", nargs="*", metavar="ENGINE", help=", ".join(FINDINGS))
    parser.add_argument("--only", default="", help="part of a name")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    installed = [name for name in FINDINGS if importlib.util.find_spec(name.split(" ")[-1])]
    distributions = ["lucid-dl" if name == "lucid" else name for name in installed]
    head = ("function", "at", "automatic", "true", "off by", "right modes")
    print(header("Derivatives beside those in 50 digits", (*distributions, "mpmath", "numpy")))
    for engine in options.engines or installed:
        found = [one for one in findings(engine) if options.only in one.name]
        for kind in dict.fromkeys(one.kind for one in found):
            rows = [row(one) for one in found if one.kind == kind]
            print(f"### {engine}, {kind}\n\n{table(head, rows)}")


if __name__ == "__main__":
    main()
