"""Wrong derivatives of HIPS autograd and MLX, each beside its reference.

A row shows the derivative `<w, J u>` of one function for fixed numbers u and w without a pattern:
as the engine's own reverse mode has it, and as a formula in NumPy or mpmath has it. For a function
that is linear the formula is the function itself. Run it where the engines are installed:

    pip install 'adjudge[autograd,mlx]' && python benchmarks/engine_findings.py [ENGINE ...]
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import mpmath
import numpy as np
from harness import header, table

mpmath.mp.dps = 50
X = np.array([0.7, 1.9, 0.4, 1.3])
ZERO = np.array([0.7, 0.0, 1.3])
Z = np.array([-0.5 + 1.1j, 0.6 - 0.8j, -1.2 - 0.4j])
A = np.array([[2.1, 0.3, -0.4], [0.5, 1.7, 0.2], [-0.3, 0.6, 1.4]])
C = A + 1j * np.array([[0.2, -0.5, 0.1], [0.4, 0.3, -0.2], [0.6, -0.1, 0.5]])
HERMITIAN = C @ C.conj().T


class Case(NamedTuple):
    """A function of an engine, its derivative along u by a formula, and why its rule is wrong."""

    name: str
    at: str
    f: Callable[[Any], Any]
    x: np.ndarray
    true: Callable[[np.ndarray, np.ndarray], Any]
    why: str
    place: str


def fixed(shape: Sequence[int], kind: str, seed: int) -> np.ndarray:
    """Numbers without a pattern, the same in every run."""
    random = np.random.default_rng(seed)
    found = random.normal(size=shape)
    return found + 1j * random.normal(size=shape) if kind == "c" else found


def products_without(x: np.ndarray) -> np.ndarray:
    """The products of all entries but one, for each."""
    return np.array([np.prod(np.delete(x, k)) for k in range(x.size)])


def by_order(function: Callable[..., Any], x: np.ndarray, at: float) -> np.ndarray:
    """The derivative of a Bessel function of mpmath with respect to its order."""
    return np.array([float(mpmath.diff(lambda n: function(n, at), mpmath.mpf(n))) for n in x])


def of_variance(x: np.ndarray, u: np.ndarray) -> Any:
    """The derivative of `var(x, ddof=1)`."""
    return 2 * (x - x.mean()) @ u / (x.size - 1)


def of_cholesky(x: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The derivative of the factor along a Hermitian u: Murray, arXiv:1602.07527, equation 8."""
    factor = np.linalg.cholesky(x)
    inverse = np.linalg.inv(factor)
    half = np.tril(inverse @ (u + u.conj().T) / 2 @ inverse.conj().T)
    half[np.diag_indices_from(half)] /= 2
    return factor @ half


def of_root(x: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The derivative d of a square root r of a matrix: r d + d r = u."""
    values, vectors = np.linalg.eig(x)
    root, one = vectors * np.sqrt(values) @ np.linalg.inv(vectors), np.eye(len(x))
    return np.linalg.solve(np.kron(root, one) + np.kron(one, root.T), u.ravel()).reshape(x.shape)


def of_cumprod(x: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The derivative of the cumulative products."""
    return np.array([products_without(x[: k + 1]) @ u[: k + 1] for k in range(x.size)])


def of_logcumsumexp(x: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The derivative of the logarithms of the cumulative sums of exponentials."""
    return np.cumsum(np.exp(x) * u) / np.cumsum(np.exp(x))


def autograd_cases() -> list[Case]:
    """Of HIPS autograd."""
    import autograd.numpy as anp
    from autograd.scipy import linalg, special
    from autograd.scipy.stats import beta

    vjps, numpy_linalg = "numpy/numpy_vjps.py", "numpy/linalg.py"
    order = "the order is taken for a constant"
    return [
        Case("var(x, correction=1)", "any", lambda x: anp.var(x, correction=1), X, of_variance,
             "knows `ddof=` alone", f"{vjps}:477"),
        Case("std(x, correction=1)", "any", lambda x: anp.std(x, correction=1), X,
             lambda x, u: of_variance(x, u) / 2 / np.std(x, ddof=1), "knows `ddof=` alone",
             f"{vjps}:493"),
        Case("prod", "a zero", anp.prod, ZERO, lambda x, u: products_without(x) @ u,
             "divides by the entries", f"{vjps}:469"),
        Case("repeat(x, 2, axis=-1)", "any", lambda x: anp.repeat(x, 2, axis=-1), X,
             lambda x, u: np.repeat(u, 2), "takes slices from the axis on, which is negative",
             f"{vjps}:356"),
        Case("full_like(x, v)", "any, in v", lambda v: anp.full_like(np.ones(3), v), X[:1],
             lambda x, u: np.full(3, u), "counts as constant", f"{vjps}:63"),
        Case("sign", "complex", anp.sign, Z,
             lambda z, u: u / abs(z) - z * (np.conj(z) * u).real / abs(z) ** 3,
             "counts as constant, and is z / abs(z) since NumPy 2", f"{vjps}:32"),
        Case("arccosh", "complex, left", anp.arccosh, Z,
             lambda z, u: u / (np.sqrt(z - 1) * np.sqrt(z + 1)),
             "1 / sqrt(z² - 1) is on the other branch", f"{vjps}:180"),
        Case("fft.rfft(x, n=5)", "n is not len(x)", lambda x: anp.fft.rfft(x, n=5), X,
             lambda x, u: np.fft.rfft(u, n=5), "the factors are those of the length of x",
             "numpy/fft.py:31"),
        Case("linalg.norm(x, inf)", "any", lambda x: anp.linalg.norm(x, np.inf), X,
             lambda x, u: u[np.argmax(abs(x))], "inf - 2 as an exponent", f"{numpy_linalg}:91"),
        Case("linalg.cholesky", "complex", lambda x: anp.linalg.cholesky(
            (x + anp.conj(anp.transpose(x))) / 2), HERMITIAN, of_cholesky,
             "transposes, and does not conjugate", f"{numpy_linalg}:260"),
        Case("scipy.linalg.sqrtm", "complex", linalg.sqrtm, C, of_root, "takes the real part",
             "scipy/linalg.py:17"),
        Case("scipy.special.jn(n, x)", "any, in n", lambda n: special.jn(n, 1.7), X,
             lambda x, u: by_order(mpmath.besselj, x, 1.7) * u, order, "scipy/special.py:80"),
        Case("scipy.special.iv(n, x)", "any, in n", lambda n: special.iv(n, 1.7), X,
             lambda x, u: by_order(mpmath.besseli, x, 1.7) * u, order, "scipy/special.py:92"),
        Case("scipy.special.ive(n, x)", "any, in n", lambda n: special.ive(n, 1.7), X,
             lambda x, u: by_order(mpmath.besseli, x, 1.7) * np.exp(-1.7) * u, order,
             "scipy/special.py:93"),
        Case("scipy.stats.beta.cdf", "outside of [0, 1]", lambda x: beta.cdf(x, 2.0, 2.0),
             np.array([-0.3, 1.4]), lambda x, u: 0 * u, "the density is not cut off",
             "scipy/stats/beta.py:26"),
    ]  # fmt: skip


def mlx_cases() -> list[Case]:
    """Of MLX."""
    mx: Any = importlib.import_module("mlx.core")

    def twice(x: Any) -> list[Any]:
        y = x * x
        return [y, y]

    def norm_gradient(z: Any) -> Any:
        """The gradient of the sum of the absolute values."""
        return mx.vjp(lambda z: mx.abs(z), [z], [mx.ones(z.shape)])[1][0]

    def product_gradient(z: Any) -> Any:
        """The gradient of the product for the cotangent 1."""
        one = mx.array(1.0, dtype=mx.complex64)
        return mx.vjp(lambda z: mx.prod(z), [z], [one])[1][0]

    def of_product_gradient(z: np.ndarray, u: np.ndarray) -> np.ndarray:
        pairs = np.array([
            [0 if j == k else np.prod(np.delete(z, [j, k])) for j in range(z.size)]
            for k in range(z.size)
        ])  # fmt: skip
        return np.conj(pairs @ u)

    source = "mlx/primitives.cpp"
    return [
        Case("mx.vjp of two outputs", "that are one array", twice, X,
             lambda x, u: [2 * x * u, 2 * x * u], "the second cotangent is not inserted",
             "mlx/transforms.cpp:493"),
        Case("mx.full(shape, v), full_like", "any, in v", lambda v: mx.full((3,), v), X[:1],
             lambda x, u: np.full(3, u), "multiplies the cotangent by v", f"{source}:2414"),
        Case("mx.divmod(x, y)", "any, the remainder in x", lambda x: mx.divmod(x, mx.array(0.6))[1],
             X, lambda x, u: u, "is zero, as that of the quotient", f"{source}:1836"),
        Case("x.astype(int32)", "any", lambda x: x.astype(mx.int32).astype(mx.float32), X,
             lambda x, u: 0 * u, "the cotangent is passed on, as an integer", f"{source}:722"),
        Case("mx.cumprod", "complex", lambda x: mx.cumprod(x), Z, of_cumprod, "does not conjugate",
             f"{source}:4344"),
        Case("mx.logcumsumexp", "complex", lambda x: mx.logcumsumexp(x), Z, of_logcumsumexp,
             "splits cotangents by the sign of the real part", f"{source}:4293"),
        Case("mx.power(x, y)", "complex, in x", lambda x: mx.power(x, mx.array(0.4 + 0.9j)), Z,
             lambda x, u: (0.4 + 0.9j) * x ** (-0.6 + 0.9j) * u, "does not conjugate",
             f"{source}:3467"),
        Case("mx.power(x, y)", "complex, in y", lambda y: mx.power(mx.array(0.4 + 0.9j), y), Z,
             lambda y, u: (0.4 + 0.9j) ** y * np.log(0.4 + 0.9j) * u, "does not conjugate",
             f"{source}:3467"),
        Case("gradient of mx.abs", "complex", norm_gradient, Z,
             lambda z, u: u / abs(z) - z * (np.conj(z) * u).real / abs(z) ** 3,
             "the sign counts as constant", f"{source}:4912"),
        Case("gradient of mx.prod", "complex", product_gradient, Z, of_product_gradient,
             "is that of two cumprods", f"{source}:4050"),
    ]  # fmt: skip


def autograd_pull(f: Callable[[Any], Any], x: np.ndarray) -> tuple[Any, Callable[[Any], Any]]:
    """The value, and what takes a cotangent to a gradient; autograd's is the transpose."""
    from autograd import make_vjp

    vjp, y = make_vjp(f)(x)
    return np.asarray(y), lambda w: np.conj(vjp(np.conj(w)))


def mlx_pull(f: Callable[[Any], Any], x: np.ndarray) -> tuple[Any, Callable[[Any], Any]]:
    """The same of MLX, in float32 and complex64."""
    mx: Any = importlib.import_module("mlx.core")

    def several(x: Any) -> list[Any]:
        y = f(x)
        return y if isinstance(y, list) else [y]

    def pull(w: Any) -> Any:
        given = w if isinstance(w, list) else [w]
        of = [mx.array(one.astype("complex64" if one.dtype.kind == "c" else "float32"))
              for one in given]  # fmt: skip
        return np.array(mx.vjp(several, [mx.array(x)], of)[1][0])

    found = [np.array(one) for one in several(mx.array(x))]
    return (found if len(found) > 1 else found[0]), pull


CASES: dict[str, Callable[[], list[Case]]] = {"autograd": autograd_cases, "mlx": mlx_cases}
PULLS = {"autograd": autograd_pull, "mlx": mlx_pull}


def row(engine: str, case: Case) -> list[str]:
    """The line of the table. Raises where the two agree, or the formula is of another function."""
    y, pull = PULLS[engine](case.f, case.x)
    several = y if isinstance(y, list) else [y]
    u = fixed(case.x.shape, case.x.dtype.kind, 1)
    w = [fixed(one.shape, one.dtype.kind, 2 + k) for k, one in enumerate(several)]
    true = case.true(case.x, u)
    g = pull(w if len(w) > 1 else w[0])
    automatic = np.sum(np.conj(g) * u).real
    trues = true if isinstance(true, list) else [true]
    right = sum(np.sum(np.conj(c) * t).real for c, t in zip(w, trues, strict=True))
    off = abs(automatic - right) / max(abs(right), 1e-300)
    assert not off < 1e-3, f"{engine} is right: {case.name}"
    size = "100 %" if right == 0 or off > 1e3 else f"{100 * off:.3g} %"
    told = "not a number" if np.isnan(off) else size
    return [f"`{case.name}`", case.at, f"{automatic:.7g}", f"{right:.7g}", told,
            f"`{case.place}`", case.why]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("engines", nargs="*", default=list(CASES))
    columns = ("function", "at", "automatic", "true", "off by", "rule in", "why")
    for engine in parser.parse_args(arguments).engines:
        print(header(f"Findings of {engine}", [engine, "numpy"]))
        print(table(columns, [row(engine, case) for case in CASES[engine]()]))


if __name__ == "__main__":
    main()
