"""Wrong derivatives that `sweep.py` found, beside right ones in 50 digits.

Neither adjudge nor differences in floating point take part: the library is differentiated by its
own engine, and the function is written once more with mpmath. Each row is the derivative of
`<w, f(x + t u)>` at t = 0 for fixed numbers u and w without a pattern; the values of both functions
are compared as well, and the row says how far they are apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import mpmath as mp
import numpy as np
from harness import table

mp.mp.dps = 50


@dataclass(frozen=True)
class Wrong:
    """A function of a library at one point, and the same function of mpmath's numbers."""

    name: str
    at: str
    f: Callable[[Any], Any]
    x: Any
    twin: Callable[[Any], Any]
    """It takes a matrix of mpmath, and returns a list of numbers, or one."""
    file: str
    why: str
    engine: str = "torch"


def fixed(shape: tuple[int, ...], seed: float) -> Any:
    """Numbers without a pattern."""
    count = int(np.prod(shape))
    return np.asarray([np.sin(seed + 1.7 * k * k + 0.3 * k) for k in range(count)]).reshape(shape)


# ---------------------------------------------------------------- the functions

SIGMA = np.array([[2.0, 0.3, 0.1], [0.3, 1.5, 0.2], [0.1, 0.2, 1.1]])
SCALE = np.array([[1.2, -0.2, 0.3], [-0.2, 0.9, 0.1], [0.3, 0.1, 1.4]])
FEW = np.array([[0.3, -0.8, 1.1], [0.7, 0.2, -0.4]])


def wishart_divergence(entries: Any) -> Any:
    """The divergence of Wishart(5, S) from Wishart(6, SCALE); a lower triangle gives S."""
    import torch
    from torch.distributions import Wishart, kl_divergence

    lower = torch.tril(entries)
    first = Wishart(torch.tensor(5.0).double(), covariance_matrix=lower @ lower.T)
    return kl_divergence(first, Wishart(torch.tensor(6.0).double(), torch.tensor(SCALE)))


def wishart_by_hand(entries: Any) -> Any:
    """The same divergence in closed form."""
    lower = mp.matrix(3, 3)
    for i in range(3):
        for j in range(i + 1):
            lower[i, j] = entries[i, j]
    sigma, scale, p, q = lower * lower.T, mp.matrix(SCALE.tolist()), mp.mpf(5), mp.mpf(6)
    inner = mp.inverse(scale) * sigma
    trace = sum(inner[k, k] for k in range(3))
    gammas = sum(mp.loggamma((q - k) / 2) - mp.loggamma((p - k) / 2) for k in range(3))
    digammas = sum(mp.digamma((p - k) / 2) for k in range(3))
    logs = mp.log(mp.det(scale)) - mp.log(mp.det(sigma))
    return (q * logs + p * (trace - 3) + (p - q) * digammas) / 2 + gammas


def log_normal_cdf(z: Any) -> Any:
    """GPyTorch's logarithm of the normal distribution function."""
    import gpytorch

    return gpytorch.log_normal_cdf(z)


def sparse_times_dense(x: Any) -> Any:
    """GPyTorch's product of a sparse matrix and a dense one."""
    import gpytorch
    import torch

    return gpytorch.dsmm(x.to_sparse(), torch.tensor(SCALE))


def zca(x: Any) -> Any:
    """Kornia's whitening."""
    import kornia

    return kornia.enhance.zca_whiten(x)


def zca_by_hand(x: Any) -> Any:
    """The same by the inverse square root of the covariance."""
    rows, columns = x.rows, x.cols
    means = [mp.fsum(x[i, j] for i in range(rows)) / rows for j in range(columns)]
    centred = mp.matrix(rows, columns)
    for i in range(rows):
        for j in range(columns):
            centred[i, j] = x[i, j] - means[j]
    covariance = centred.T * centred / (rows - 1) + mp.mpf("1e-6") * mp.eye(columns)
    values, vectors = mp.eigsy(covariance)
    root = vectors * mp.diag([1 / mp.sqrt(one) for one in values]) * vectors.T
    return list(centred * root)


def first_step(at: float) -> Callable[[Any], Any]:
    """Optax's first update of L-BFGS, for weights that are all `at`."""

    def updated(gradient: Any) -> Any:
        import jax.numpy as jnp
        import optax

        transformation, weights = optax.scale_by_lbfgs(), jnp.full(gradient.shape, at)
        state = transformation.init(jnp.zeros_like(weights))
        return transformation.update(gradient, state, weights)[0]

    return updated


def first_step_by_hand(gradient: Any) -> Any:
    """The same: the gradient, divided by its norm where that is above one."""
    norm = mp.sqrt(mp.fsum(one**2 for one in gradient))
    return [one * min(1, 1 / norm) for one in gradient]


def power_law(bounds: Any) -> Any:
    """NumPyro's logarithm of a truncated power law at 1.7, as a function of the bounds."""
    import jax.numpy as jnp
    import numpyro.distributions as dist

    power, at = jnp.array([0.5]), jnp.array([1.7])
    return dist.DoublyTruncatedPowerLaw(power, bounds[0, 0], bounds[0, 1]).log_prob(at)


def power_law_by_hand(bounds: Any) -> Any:
    """The same, from the formula of its documentation."""
    low, high, power = bounds[0, 0], bounds[0, 1], mp.mpf(1.5)
    density = power * mp.mpf(1.7) ** mp.mpf(0.5) / (high**power - low**power)
    return [mp.log(density)]


CASES = (
    Wrong(
        "torch.distributions.kl_divergence(Wishart, Wishart)", "any, the first distribution",
        wishart_divergence, np.linalg.cholesky(SIGMA), wishart_by_hand,
        "torch/distributions/kl.py",
        "`_kl_expfamily_expfamily` detaches the natural parameters of the first distribution",
    ),
    Wrong(
        "gpytorch.log_normal_cdf", "-1.2", log_normal_cdf, np.array([[-1.2]]),
        lambda z: [mp.log(mp.ncdf(z[0, 0]))], "gpytorch/functions/_log_normal_cdf.py",
        "a series for z < -11.3 is used from -1 on, in the function and in its rule",
    ),
    Wrong(
        "gpytorch.dsmm", "any, the sparse matrix", sparse_times_dense, FEW,
        lambda x: list(x * mp.matrix(SCALE.tolist())), "linear_operator/functions/_dsmm.py",
        "the rule returns `None` for it, also where it requires a gradient",
    ),
    Wrong(
        "kornia.enhance.zca_whiten", "fewer samples than features", zca, FEW, zca_by_hand,
        "kornia/enhance/zca.py", "differentiates a singular value decomposition with equal values",
    ),
    Wrong(
        "numpyro.distributions.DoublyTruncatedPowerLaw.log_prob", "any, the bounds", power_law,
        np.array([[0.8, 2.9]]), power_law_by_hand, "numpyro/distributions/truncated.py",
        "the custom rule is that of the density, and not of its logarithm", "jax",
    ),
    *(
        Wrong(
            "optax.scale_by_lbfgs", f"the first step, weights {at:g}", first_step(at), 2 * FEW,
            first_step_by_hand, "optax/_src/transform.py", why, "jax",
        )
        for at, why in (
            (0.5, "`stop_gradient` of the norm of the update"),
            (0.0, "`where(v == 0, 0, 1 / v)` differentiates `1 / v` at 0, too"),
        )
    ),
)  # fmt: skip


# ---------------------------------------------------------------- the table


def automatic(case: Wrong) -> tuple[float, Any]:
    """The derivative by the engine of the library, and the values."""
    if case.engine == "jax":
        import jax

        jax.config.update("jax_enable_x64", True)
        y, pullback = jax.vjp(case.f, jax.numpy.asarray(case.x))
        (gradient,) = pullback(jax.numpy.asarray(fixed(y.shape, 2.0)))
        return float((gradient * fixed(case.x.shape, 1.0)).sum()), np.asarray(y)
    import torch

    x = torch.tensor(case.x, requires_grad=True)
    y = case.f(x)
    w = torch.tensor(fixed(tuple(y.shape), 2.0)) if y.ndim else torch.tensor(1.0).double()
    (gradient,) = torch.autograd.grad((w * y).sum(), x, allow_unused=True)
    if gradient is None:
        return 0.0, y.detach().numpy()
    return float((gradient * torch.tensor(fixed(case.x.shape, 1.0))).sum()), y.detach().numpy()


def true(case: Wrong, values: Any) -> tuple[float, float]:
    """The derivative in 50 digits, and how far the values are apart, relative to the largest."""
    u = fixed(case.x.shape, 1.0)
    w = fixed(values.shape, 2.0).ravel() if values.ndim else [1.0]

    def outputs(t: Any) -> list[Any]:
        rows = [[mp.mpf(a) + t * mp.mpf(b) for a, b in zip(*both, strict=True)]
                for both in zip(case.x.tolist(), u.tolist(), strict=True)]  # fmt: skip
        found = case.twin(mp.matrix(rows))
        return found if isinstance(found, list) else [found]

    h = mp.mpf(10) ** -15
    pairs = zip(outputs(h), outputs(-h), strict=True)
    slope = mp.fsum(mp.mpf(one) * (a - b) for one, (a, b) in zip(w, pairs, strict=True)) / (2 * h)
    expected = np.array([float(one) for one in outputs(mp.mpf(0))])
    apart = float(np.max(np.abs(expected - values.ravel())) / np.max(np.abs(expected)))
    return float(slope), apart


def rows() -> Iterator[tuple[object, ...]]:
    """The lines of the table."""
    for case in CASES:
        found, values = automatic(case)
        expected, apart = true(case, values)
        off = abs(found / expected - 1)
        said = "not a number" if np.isnan(off) else f"{off:.2g}"
        numbers = f"{found:.7g}", f"{expected:.7g}", said, f"{apart:.0e}"
        yield (
            *(f"`{case.name}`", case.at, *numbers),
            *(f"`{case.file}`", case.why),
        )


if __name__ == "__main__":
    columns = ("function", "at", "automatic", "true", "off by", "values off by", "rule in", "why")
    print(table(columns, rows()), end="")
