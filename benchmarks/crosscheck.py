"""Functions of the Array API on several engines, as they are and with PyTorch's gradient wrong.

Each is `name: (f(xp, *arrays), arrays)`. Inputs are drawn once, in float64, and cast. A planted
error multiplies the gradient of one element of the first input by 1 + delta, on PyTorch alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import optree
from harness import RIGHT, Case, Family, compare, scaled_gradient

Table = dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]

RANDOM = np.random.default_rng(20250)


def normal(*shape: int) -> Any:
    """Standard normal numbers of this shape."""
    return RANDOM.standard_normal(shape)


def positive(*shape: int) -> Any:
    """Numbers of this shape between 0.3 and 2."""
    return RANDOM.uniform(0.3, 2.0, shape)


def definite(n: int, condition: float = 10.0) -> Any:
    """A positive definite matrix of this condition."""
    q = np.linalg.qr(normal(n, n))[0]
    return (q * np.geomspace(1.0, condition, n)) @ q.T


def softmax(xp, x):
    """Shares along the last axis, which add up to one."""
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def logsumexp(xp, x):
    """The logarithm of the sum of exponentials along the last axis."""
    top = xp.max(x, axis=-1, keepdims=True)
    return xp.log(xp.sum(xp.exp(x - top), axis=-1)) + xp.squeeze(top, axis=-1)


def layer_norm(xp, x, g, b):
    """Normalises the last axis, then scales and shifts it."""
    centred = x - xp.mean(x, axis=-1, keepdims=True)
    return g * centred / xp.sqrt(xp.mean(centred**2, axis=-1, keepdims=True) + 1e-5) + b


def attention(xp, q, k, v):
    """Attention of one head."""
    return softmax(xp, q @ xp.matrix_transpose(k) / 2.0) @ v


def mlp(xp, x, w, b, u):
    """A perceptron with one hidden layer."""
    return xp.tanh(x @ w + b) @ u


def symmetric(xp, a):
    """The symmetric part of a matrix."""
    return (a + xp.matrix_transpose(a)) / 2


def cholesky(xp, a):
    """The Cholesky factor of the symmetric part of a matrix."""
    return xp.linalg.cholesky(symmetric(xp, a))


def gauss(xp, x):
    """The bell curve."""
    return xp.exp(-(x**2) / 2)


def sinkhorn(xp, c):
    """The cost of an entropic transport plan, unrolled."""
    k = xp.exp(-c / 0.3)
    u = xp.ones(c.shape[0], dtype=c.dtype) / c.shape[0]
    for _ in range(20):
        v = 1.0 / (u @ k) / c.shape[1]
        u = 1.0 / (k @ v) / c.shape[0]
    return xp.sum(u[:, None] * k * v[None, :] * c)


def variance_one_pass(xp, x):
    """The variance by the textbook formula, which cancels."""
    return xp.mean(x**2) - xp.mean(x) ** 2


def newton_root(xp, a):
    """A square root by Newton's iteration."""
    y = a
    for _ in range(12):
        y = (y + a / y) / 2
    return y


def horner(xp, x):
    """A polynomial with a root of high order near 2."""
    y = xp.zeros_like(x)
    for c in (1.0, -20.0, 172.0, -832.0, 2400.0, -4096.0, 3840.0, -1536.0):
        y = y * x + c
    return y


def mixed(xp, tree):
    """A function from a tree of arrays to a tree of arrays."""
    return {"loss": xp.sum(tree["w"] @ tree["x"]), "y": (tree["x"] * 2, xp.sin(tree["w"]))}


EASY: Table = {
    "sin": (lambda xp, x: xp.sin(x), (normal(5),)),
    "exp": (lambda xp, x: xp.exp(x), (normal(5),)),
    "log": (lambda xp, x: xp.log(x), (positive(5),)),
    "sqrt": (lambda xp, x: xp.sqrt(x), (positive(5),)),
    "tanh": (lambda xp, x: xp.tanh(x), (normal(5),)),
    "atan2": (lambda xp, y, x: xp.atan2(y, x), (normal(5), normal(5))),
    "power": (lambda xp, x, y: x**y, (positive(5), normal(5))),
    "sigmoid": (lambda xp, x: 1 / (1 + xp.exp(-x)), (normal(5),)),
    "softplus": (lambda xp, x: xp.log1p(xp.exp(x)), (normal(5),)),
    "logaddexp": (lambda xp, x, y: xp.logaddexp(x, y), (normal(5), normal(5))),
    "hypot": (lambda xp, x, y: xp.hypot(x, y), (normal(5), normal(5))),
    "sum": (lambda xp, x: xp.sum(x), (normal(1000),)),
    "sum of squares": (lambda xp, x: xp.sum(x**2), (normal(1000),)),
    "mean over an axis": (lambda xp, x: xp.mean(x**3, axis=0), (normal(20, 4),)),
    "prod": (lambda xp, x: xp.prod(x), (positive(6),)),
    "cumulative sum": (lambda xp, x: xp.cumulative_sum(xp.sin(x)), (normal(30),)),
    "max": (lambda xp, x: xp.max(x, axis=-1), (normal(4, 5),)),
    "var": (lambda xp, x: xp.var(x, axis=-1), (normal(4, 20),)),
    "matmul": (lambda xp, a, b: a @ b, (normal(20, 30), normal(30, 4))),
    "matmul, long": (lambda xp, a, b: a @ b, (normal(2, 3000), normal(3000, 2))),
    "broadcasting": (lambda xp, a, b: a * b + b, (normal(4, 1), normal(3))),
    "where": (lambda xp, x: xp.where(x > 0, x**2, xp.exp(x)), (normal(9),)),
    "clip": (lambda xp, x: xp.clip(x, -0.8, 0.9), (normal(9),)),
    "sort": (lambda xp, x: xp.sort(x) ** 2, (normal(9),)),
    "take": (lambda xp, x: xp.take(x, xp.asarray([0, 2, 2, 1]), axis=0) ** 2, (normal(4, 2),)),
    "concat": (lambda xp, x, y: xp.concat([x, y * 2, x]), (normal(3), normal(2))),
    "roll and flip": (lambda xp, x: xp.roll(xp.flip(x), 2) * x, (normal(7),)),
    "softmax": (softmax, (normal(4, 10),)),
    "logsumexp": (logsumexp, (normal(4, 10),)),
    "layer norm": (layer_norm, (normal(4, 16), positive(16), normal(16))),
    "attention": (attention, (normal(6, 4), normal(6, 4), normal(6, 4))),
    "perceptron": (mlp, (normal(5, 8), normal(8, 16), normal(16), normal(16, 3))),
    "cholesky": (cholesky, (definite(6),)),
    "solve": (lambda xp, a, b: xp.linalg.solve(a, b), (definite(6), normal(6, 2))),
    "inverse": (lambda xp, a: xp.linalg.inv(a), (definite(6),)),
    "determinant": (lambda xp, a: xp.linalg.det(a), (definite(5),)),
    "log-determinant": (lambda xp, a: xp.linalg.slogdet(a)[1], (definite(5),)),
    "eigenvalues": (lambda xp, a: xp.linalg.eigvalsh(symmetric(xp, a)), (definite(5),)),
    "singular values": (lambda xp, a: xp.linalg.svdvals(a), (normal(5, 3),)),
    "qr": (lambda xp, a: xp.abs(xp.linalg.qr(a)[1]), (normal(5, 3),)),
    "matrix power": (lambda xp, a: xp.linalg.matrix_power(a, 5), (normal(4, 4) / 2,)),
    "sinkhorn": (sinkhorn, (positive(6, 5),)),
    "newton": (newton_root, (positive(5),)),
    "tree": (mixed, ({"w": normal(3, 4), "x": normal(4)},)),
}

HARD: Table = {
    "inverse, condition 1e3": (lambda xp, a: xp.linalg.inv(a), (definite(6, 1e3),)),
    "solve, condition 1e6": (
        lambda xp, a, b: xp.linalg.solve(a, b),
        (definite(6, 1e6), normal(6)),
    ),
    "cholesky, condition 1e5": (cholesky, (definite(6, 1e5),)),
    "determinant, near singular": (lambda xp, a: xp.linalg.det(a), (definite(5, 1e6),)),
    "close eigenvalues": (
        lambda xp, a: xp.linalg.eigvalsh(symmetric(xp, a)),
        (np.diag([1.0, 1.0001, 2.0, 3.0]) + 1e-5 * normal(4, 4),),
    ),
    "tanh, saturated": (lambda xp, x: xp.tanh(x), (np.array([5.0, 9.0, 15.0, 20.0]),)),
    "1 - tanh": (lambda xp, x: 1 - xp.tanh(x), (np.array([4.0, 7.0, 12.0, 19.0]),)),
    "sigmoid, tails": (lambda xp, x: 1 / (1 + xp.exp(-x)), (np.array([-30.0, -15.0, 15.0, 30.0]),)),
    "softmax, saturated": (softmax, (30 * normal(4, 6),)),
    "gauss, tails": (gauss, (np.array([0.5, 4.0, 7.0, 9.0]),)),
    "log1p(exp), naive": (
        lambda xp, x: xp.log(1 + xp.exp(x)),
        (np.array([-30.0, -9.0, 9.0, 30.0]),),
    ),
    "exp(x) - 1": (lambda xp, x: xp.exp(x) - 1, (1e-4 * normal(5),)),
    "1 - cos": (lambda xp, x: 1 - xp.cos(x), (1e-3 * normal(5),)),
    "variance in one pass": (variance_one_pass, (100 + normal(50),)),
    "polynomial near a root": (horner, (2 + 1e-2 * normal(5),)),
    "sum that cancels": (lambda xp, x: xp.sum(x) - xp.sum(xp.flip(x)), (normal(500),)),
    "x + 1e6 - 1e6": (lambda xp, x: ((x + 1e6) - 1e6) ** 2, (normal(5),)),
    "sin of large numbers": (lambda xp, x: xp.sin(x), (1e4 * normal(5),)),
    "norm near zero": (lambda xp, x: xp.sqrt(xp.sum(x**2)), (1e-6 * normal(5),)),
    "reciprocal of small": (lambda xp, x: 1 / x, (1e-8 * positive(5),)),
    "logit, near 1": (lambda xp, x: xp.log(x / (1 - x)), (1 - 1e-5 * positive(5),)),
    "scales in one leaf": (lambda xp, x: xp.exp(-x) * x, (np.array([1e-6, 1e-2, 1.0, 40.0]),)),
    "iterated sine": (
        lambda xp, x: xp.sin(3 * xp.sin(3 * xp.sin(3 * xp.sin(3 * x)))),
        (normal(5),),
    ),
}

COMPLEX: Table = {
    "|z|^2": (lambda xp, z: xp.real(z * xp.conj(z)), (normal(4) + 1j * normal(4),)),
    "|z|": (lambda xp, z: xp.abs(z), (normal(4) + 1j * normal(4),)),
    "conj(z) z^2": (lambda xp, z: xp.conj(z) * z**2, (normal(4) + 1j * normal(4),)),
    "exp": (lambda xp, z: xp.exp(z), (normal(4) + 1j * normal(4),)),
    "log": (lambda xp, z: xp.log(z), (normal(4) + 1j * normal(4),)),
    "sqrt": (lambda xp, z: xp.sqrt(z), (normal(4) + 1j * normal(4),)),
    "tanh": (lambda xp, z: xp.tanh(z), (normal(4) + 1j * normal(4),)),
    "matmul": (
        lambda xp, a, b: a @ xp.conj(b),
        (normal(4, 6) + 1j * normal(4, 6), normal(6, 3) + 1j * normal(6, 3)),
    ),
    "solve": (
        lambda xp, a, b: xp.linalg.solve(a, b),
        (definite(4) + 1j * normal(4, 4), normal(4, 1) + 1j * normal(4, 1)),
    ),
    "real part of a product": (
        lambda xp, z, x: xp.real(z) * xp.imag(z) * x,
        (normal(4) + 1j * normal(4), normal(4)),
    ),
    "phase": (lambda xp, z: xp.atan2(xp.imag(z), xp.real(z)), (normal(4) + 1j * normal(4),)),
    "fft": (lambda xp, z: xp.fft.fft(z), (normal(8) + 1j * normal(8),)),
}

TABLES = {
    "float64": (EASY, "float64"),
    "float32": (EASY, "float32"),
    "complex128": (COMPLEX, "float64"),
    "complex64": (COMPLEX, "float32"),
    "hard,float64": (HARD, "float64"),
    "hard,float32": (HARD, "float32"),
}
"""The tables, and the dtype to which the real inputs of each are cast."""


# ---------------------------------------------------------------- the family


def units() -> list[str]:
    """Every function in every dtype of its table."""
    return [f"{title} {name}" for title, (table, _) in TABLES.items() for name in table]


def prepare(deltas: Sequence[float]) -> Callable[[str], Iterator[Case]]:
    """The cases of a function: on three engines as it is, on two with each relative error."""
    import torch

    torch.set_num_threads(1)

    def cases(unit: str) -> Iterator[Case]:
        title, name = unit.split(" ", 1)
        table, dtype = TABLES[title]
        f, arrays = table[name]
        for delta in (0.0, *deltas):
            engines = ["torch", "jax"] if delta else ["torch", "jax", "numpy"]

            def make(_engine: str, delta: float = delta) -> tuple[Any, Any]:
                g = scaled(f, list(table).index(name), delta) if delta else f
                return g, cast(arrays, dtype)

            yield Case(
                f"{name} {title}",
                title,
                make,
                f"{delta:g}" if delta else RIGHT,
                options={"backends": engines, "seed": 7},
                check="crosscheck",
            )

    return cases


def cast(tree: Any, dtype: str) -> Any:
    """Real arrays in this dtype, complex ones in that of twice the width."""
    narrow = {"float32": np.complex64, "float64": np.complex128}[dtype]
    return optree.tree_map(
        lambda a: np.asarray(a, dtype=narrow if np.iscomplexobj(a) else dtype), tree
    )


def scaled(f: Callable[..., Any], element: int, delta: float) -> Callable[..., Any]:
    """`f` whose gradient is off in one element where it gets tensors of PyTorch."""
    import torch

    def planted(xp: Any, *arrays: Any) -> Any:
        leaves, structure = optree.tree_flatten(arrays)
        if isinstance(leaves[0], torch.Tensor):
            place = element % leaves[0].numel()
            leaves[0] = scaled_gradient(place, 1 + delta)(leaves[0])
        return f(xp, *optree.tree_unflatten(structure, leaves))

    return planted


FAMILY = Family(units, prepare)

if __name__ == "__main__":
    compare(FAMILY, "One function on several engines", ["adjudge"], TABLES)
