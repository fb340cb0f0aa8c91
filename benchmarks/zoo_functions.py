"""Functions that are hard on gradient checkers, written once for PyTorch and for JAX.

Each takes a namespace `xp`, which is one of those below, and arrays. Captured constants are
multiples of 1/8 below 2 or powers of ten: all but the latter are the same numbers in every dtype.
"""

import enum
import functools
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

SPLIT = 18
"""Seed of the split into calibration and holdout; fixed, as is the half of every name."""


class Kind(enum.StrEnum):
    """What may be expected at the points that are drawn."""

    SMOOTH = "smooth"
    """The derivative exists, and automatic differentiation computes it."""
    KINK = "no derivative"
    """At a kink or a jump in at least one coordinate."""
    LOOSE = "loose solver"
    """An iteration that stops early with the derivative of the limit: not that of the code."""


class Draw:
    """Random inputs in float64; `eps` is the spacing at 1 of the dtype they are meant for."""

    def __init__(self, seed: int, eps: float) -> None:
        self.rng = np.random.default_rng(seed)
        self.eps = eps

    def normal(self, *shape: int) -> np.ndarray:
        """Standard normal numbers."""
        return self.rng.standard_normal(shape)

    def uniform(self, low: float, high: float, *shape: int) -> np.ndarray:
        """Uniform numbers."""
        return self.rng.uniform(low, high, shape)

    def signs(self, *shape: int) -> np.ndarray:
        """-1 and 1."""
        return self.rng.choice([-1.0, 1.0], shape)

    def apart(self, n: int, gap: float) -> np.ndarray:
        """Numbers of order 1, at least `gap` from one another, in random order."""
        return self.rng.permutation(np.arange(n) * gap + self.uniform(0, gap / 4, n)) - 0.4

    def near(self, at: float, distance: float, *shape: int) -> np.ndarray:
        """Numbers at `distance` from `at` to either side, 8 spacings at least."""
        least = max(distance, 8 * self.eps * max(abs(at), 1e-3))
        return at + self.signs(*shape) * least * self.uniform(1, 2, *shape)


class Namespace:
    """The functions of a framework under common names: those given here, and its own."""

    def __init__(self, module: Any, **functions: Callable[..., Any]) -> None:
        self.module = module
        vars(self).update(functions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)


TORCH = Namespace(
    torch,
    erf=torch.special.erf,
    solve=torch.linalg.solve,
    rfft=torch.fft.rfft,
    concatenate=torch.cat,
    const=lambda values, like: torch.tensor(np.asarray(values), dtype=like.dtype),
    take=lambda x, indices: x[torch.as_tensor(np.asarray(indices))],
    cast=lambda x, dtype: x.to(getattr(torch, dtype)),
    stop=lambda x: x.detach(),
    sort=lambda x: torch.sort(x).values,
    softmax=lambda x: torch.softmax(x, -1),
    log_softmax=lambda x: torch.log_softmax(x, -1),
    logsumexp=lambda x: torch.logsumexp(x, -1),
    cumprod=lambda x: torch.cumprod(x, 0),
    norm=torch.linalg.vector_norm,
    slogdet=lambda x: torch.linalg.slogdet(x)[1],
    cholesky=torch.linalg.cholesky,
    eigenvalues=torch.linalg.eigvalsh,
    conv=torch.nn.functional.conv1d,
)


@functools.cache
def jax_namespace() -> Namespace:
    """JAX, which is imported when it is asked for."""
    import jax
    import jax.numpy as jnp

    return Namespace(
        jnp,
        erf=jax.scipy.special.erf,
        solve=jnp.linalg.solve,
        rfft=jnp.fft.rfft,
        relu=jax.nn.relu,
        sigmoid=jax.nn.sigmoid,
        complex=jax.lax.complex,
        const=lambda values, like: jnp.asarray(values, like.dtype),
        take=lambda x, indices: x[np.asarray(indices)],
        cast=lambda x, dtype: x.astype(dtype),
        stop=jax.lax.stop_gradient,
        softmax=jax.nn.softmax,
        log_softmax=jax.nn.log_softmax,
        logsumexp=lambda x: jax.scipy.special.logsumexp(x, axis=-1),
        cumprod=lambda x: jnp.cumprod(x, axis=0),
        norm=jnp.linalg.norm,
        slogdet=lambda x: jnp.linalg.slogdet(x)[1],
        cholesky=jnp.linalg.cholesky,
        eigenvalues=jnp.linalg.eigvalsh,
        conv=lambda x, kernel: jax.lax.conv(x, kernel, (1,), "VALID"),
    )


Inputs = np.ndarray | tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Specimen:
    """A function `f(xp, *arrays)` and the points at which it is checked."""

    name: str
    draw: Callable[[Draw], Inputs]
    f: Callable[..., Any]
    kind: Kind = Kind.SMOOTH

    @property
    def holdout(self) -> bool:
        """Whether this function is kept for the final table."""
        return bool(zlib.crc32(f"{SPLIT}:{self.name}".encode()) & 1)

    def inputs(self, seed: int, eps: float) -> tuple[np.ndarray, ...]:
        """The point of a seed, in float64."""
        drawn = self.draw(Draw(zlib.crc32(f"{seed}:{self.name}".encode()), eps))
        return drawn if isinstance(drawn, tuple) else (drawn,)


def eighths(name: str, *shape: int) -> np.ndarray:
    """A constant array of multiples of 1/8 between -3/2 and 3/2."""
    return np.random.default_rng(zlib.crc32(name.encode())).integers(-12, 13, shape) / 8


def _conditioned(n: int, condition: float) -> np.ndarray:
    """A matrix of that condition number, whose entries are not round numbers."""
    rng = np.random.default_rng(n)
    left, right = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
    return left @ np.diag(np.geomspace(1, 1 / condition, n)) @ right


# ---------------------------------------------------------------- longer functions


def _horner(xp: Any, x: Any) -> Any:
    total = 0 * x
    for c in (0.5, -1.25, 0.75, 1.0, -0.5, 0.125):
        total = total * x + c
    return total


def _mlp(xp: Any, x: Any, activation: Callable[[Any], Any]) -> Any:
    for k in range(3):
        x = activation(xp.const(eighths(f"mlp{k}", 5, 5), x) @ x + xp.const(eighths(f"b{k}", 5), x))
    return x


def _power_method(xp: Any, x: Any) -> Any:
    v = xp.const(eighths("power", 4), x)
    for _ in range(6):
        v = x @ v
        v = v / xp.sqrt(xp.sum(v * v))
    return xp.sum(v * (x @ v))


def _rk4(xp: Any, y: Any, rate: Callable[[Any], Any], h: float, steps: int) -> Any:
    for _ in range(steps):
        k1 = rate(y)
        k2 = rate(y + h / 2 * k1)
        k3 = rate(y + h / 2 * k2)
        k4 = rate(y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return y


def _predators(xp: Any, y: Any) -> Any:
    return _rk4(
        xp, y, lambda y: xp.stack([y[0] - y[0] * y[1], y[0] * y[1] - y[1]]), h=0.125, steps=8
    )


def _lorenz(xp: Any, y: Any) -> Any:
    def rate(y: Any) -> Any:
        a, b, c = y[0], y[1], y[2]
        return xp.stack([10 * (b - a), a * (28 - c) - b, a * b - 2.625 * c])

    return _rk4(xp, y, rate, h=0.03125, steps=16)


def _stiff_decay(xp: Any, y: Any) -> Any:
    for _ in range(10):  # explicit Euler, close to its limit of stability
        y = y + 0.03125 * (-50 * (y - xp.cos(y)))
    return y


def _solver(
    residual: Callable[[Any, Any], Any], slope: Callable[[Any, Any], Any], tolerance: float
) -> Callable[..., Any]:
    """A root `y(x)` by damped Newton steps until they are short; the implicit derivative."""

    def f(xp: Any, x: Any) -> Any:
        fixed = xp.stop(x)
        y = 0 * fixed + 1
        for _ in range(80):
            step = -0.75 * residual(y, fixed) / slope(y, fixed)
            y = xp.where(xp.abs(step) > tolerance * xp.abs(y), y + step, y)
        correction = -residual(y, x) / xp.stop(slope(y, fixed))
        return y + correction - xp.stop(correction)

    return f


def _fixed_point(tolerance: float) -> Callable[..., Any]:
    """`y = cos(y x)` by iteration until it moves little; the implicit derivative."""

    def f(xp: Any, x: Any) -> Any:
        fixed = xp.stop(x)
        y = 0 * fixed + 1
        for _ in range(120):
            new = xp.cos(y * fixed)
            y = xp.where(xp.abs(new - y) > tolerance, new, y)
        slope = 1 + fixed * xp.sin(y * fixed)
        correction = -(y - xp.cos(y * x)) / slope
        return y + correction - xp.stop(correction)

    return f


def _bisection(xp: Any, x: Any) -> Any:
    fixed = xp.stop(x)
    low, high = 0 * fixed, 0 * fixed + 2
    for _ in range(12):
        middle = (low + high) / 2
        below = middle * middle < fixed
        low, high = xp.where(below, middle, low), xp.where(below, high, middle)
    y = (low + high) / 2
    return y + (x - fixed) / (2 * y)


def _unrolled_sqrt(xp: Any, x: Any) -> Any:
    y = 0 * x + 1
    for _ in range(5):
        y = (y + x / y) / 2
    return y


def _huber(xp: Any, x: Any) -> Any:
    return xp.where(xp.abs(x) < 1, x * x / 2, xp.abs(x) - 0.5)


def _normalised(xp: Any, x: Any, eps: float = 1e-3) -> Any:
    centred = x - xp.mean(x, axis=0)
    return centred / xp.sqrt(xp.mean(centred * centred, axis=0) + eps)


def _naive_variance(xp: Any, x: Any) -> Any:
    return xp.mean(x * x) - xp.mean(x) ** 2


def _attention(xp: Any, q: Any, k: Any, v: Any) -> Any:
    return xp.softmax(q @ k.T / 2) @ v


def _gru(xp: Any, x: Any, h: Any) -> Any:
    both = xp.concatenate([x, h])
    update, reset = (
        xp.sigmoid(xp.const(eighths(name, 3, 6), x) @ both) for name in ("update", "reset")
    )
    candidate = xp.tanh(xp.const(eighths("new", 3, 6), x) @ xp.concatenate([x, reset * h]))
    return (1 - update) * h + update * candidate


def _rosenbrock(xp: Any, x: Any) -> Any:
    return xp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def _x_log_x(xp: Any, x: Any) -> Any:
    positive = x > 0
    return xp.where(positive, x * xp.log(xp.where(positive, x, 1 + 0 * x)), 0 * x)


def _cosine_similarity(xp: Any, x: Any, y: Any) -> Any:
    return xp.sum(x * y) / xp.sqrt(xp.sum(x * x) * xp.sum(y * y))


def _spd(xp: Any, x: Any) -> Any:
    return x @ x.T + xp.const(np.eye(x.shape[0]), x)


def _quaternion_rotation(xp: Any, q: Any, p: Any) -> Any:
    unit = q / xp.sqrt(xp.sum(q * q))
    w, u = unit[0], unit[1:]

    def cross(a: Any, b: Any) -> Any:
        i, j = [1, 2, 0], [2, 0, 1]
        return xp.take(a, i) * xp.take(b, j) - xp.take(a, j) * xp.take(b, i)

    return p + 2 * cross(u, cross(u, p) + w * p)


def _continued_fraction(xp: Any, x: Any) -> Any:
    y = x
    for _ in range(6):
        y = x + 1 / (2 + y)
    return y


def _logistic_map(xp: Any, x: Any) -> Any:
    for _ in range(12):
        x = 3.75 * x * (1 - x)
    return x


def _soft_plus(xp: Any, x: Any) -> Any:
    return xp.log(1 + xp.exp(x))


def _with_kink(at: Callable[[Draw], np.ndarray], value: float) -> Callable[[Draw], np.ndarray]:
    """The draw `at` with its first entry set to `value`."""

    def draw(d: Draw) -> np.ndarray:
        x = at(d)
        x[0] = value
        return x

    return draw


S = Specimen
KINK, LOOSE = Kind.KINK, Kind.LOOSE

ZOO: Sequence[Specimen] = [
    # smooth
    S("sin", lambda d: d.normal(6), lambda xp, x: xp.sin(x)),
    S("polynomial", lambda d: d.normal(5), _horner),
    S("quadratic form", lambda d: d.normal(5),
      lambda xp, x: x @ (xp.const(eighths("qf", 5, 5), x) @ x)),
    S("gaussian", lambda d: d.normal(6), lambda xp, x: xp.exp(-x * x / 2)),
    S("gelu", lambda d: d.normal(6), lambda xp, x: x * (1 + xp.erf(x * 0.70710678)) / 2),
    S("softplus", lambda d: 3 * d.normal(6), _soft_plus),
    S("bilinear", lambda d: (d.normal(4), d.normal(3)),
      lambda xp, x, y: x @ (xp.const(eighths("bl", 4, 3), x) @ y)),
    S("atan2", lambda d: (d.normal(5), d.uniform(0.5, 2, 5)), lambda xp, x, y: xp.arctan2(x, y)),
    S("rational", lambda d: d.normal(5), lambda xp, x: x / (1 + x * x)),
    S("tanh network", lambda d: d.normal(5), lambda xp, x: _mlp(xp, x, xp.tanh)),
    S("matmul chain", lambda d: (d.normal(2, 3), d.normal(3, 4), d.normal(4, 2)),
      lambda xp, a, b, c: a @ b @ c),
    S("linear", lambda d: d.normal(4), lambda xp, x: xp.const(eighths("lin", 3, 4), x) @ x),
    S("rotation", lambda d: (d.normal(4), d.normal(3)), _quaternion_rotation),
    S("continued fraction", lambda d: d.uniform(0.5, 2, 4), _continued_fraction),
    S("gru cell", lambda d: (d.normal(3), d.normal(3)), _gru),
    S("exp of log", lambda d: d.uniform(0.5, 3, 5), lambda xp, x: xp.exp(1.5 * xp.log(x))),
    # stiff and saturated
    S("exp(30 x)", lambda d: d.normal(5), lambda xp, x: xp.exp(30 * x)),
    S("x^20", lambda d: d.uniform(0.7, 1.3, 4), lambda xp, x: x**20),
    S("steep sigmoid", lambda d: 0.05 * d.normal(5), lambda xp, x: xp.sigmoid(50 * x)),
    S("steep step off center", lambda d: 1 + 0.02 * d.normal(4),
      lambda xp, x: xp.tanh(100 * (x - 1))),
    S("saturated tanh", lambda d: 6 * d.signs(4) + d.normal(4), lambda xp, x: xp.tanh(x)),
    S("deeply saturated tanh", lambda d: 12 * d.signs(4) + d.normal(4), lambda xp, x: xp.tanh(x)),
    S("y (1 - y), saturated", lambda d: 6 + d.normal(4),
      lambda xp, x: xp.sigmoid(x) * (1 - xp.sigmoid(x))),
    S("stiff decay", lambda d: d.uniform(0.5, 1.5, 3), _stiff_decay),
    # scales
    S("inputs of 1e-12", lambda d: 1e-12 * d.normal(5), lambda xp, x: xp.sin(1e12 * x)),
    S("inputs of 1e12", lambda d: 1e12 * d.uniform(1, 9, 5), lambda xp, x: xp.log(x)),
    S("squares of 1e-6", lambda d: 1e-6 * d.normal(5), lambda xp, x: x * x),
    S("outputs of 1e12", lambda d: d.normal(5), lambda xp, x: 1e12 * xp.sin(x)),
    S("outputs of 1e-12", lambda d: d.normal(5), lambda xp, x: 1e-12 * xp.exp(x)),
    S("inputs of 1e-6 and 1e6", lambda d: (1e-6 * d.uniform(1, 2, 4), 1e6 * d.uniform(1, 2, 4)),
      lambda xp, x, y: xp.sin(x * y)),
    S("nine decades in one array",
      lambda d: d.signs(10) * np.geomspace(1e-9, 1, 10) * d.uniform(1, 2, 10),
      lambda xp, x: xp.sum(x * x) + xp.sum(x)),
    S("four decades, elementwise", lambda d: np.geomspace(1e-4, 1, 6) * d.uniform(1, 2, 6),
      lambda xp, x: xp.log(x)),
    S("outputs of 1e-6 and 1e6", lambda d: d.normal(4),
      lambda xp, x: xp.concatenate([1e-6 * xp.sin(x), 1e6 * xp.cos(x)])),
    # high curvature
    S("sin(50 x)", lambda d: d.normal(5), lambda xp, x: xp.sin(50 * x)),
    S("sin(1000 x)", lambda d: d.normal(4), lambda xp, x: xp.sin(1000 * x)),
    S("ripple", lambda d: d.normal(5), lambda xp, x: xp.cos(x) + 1e-3 * xp.sin(500 * x)),
    S("Rosenbrock", lambda d: d.normal(5), _rosenbrock),
    S("1 / x near 0", lambda d: d.near(0, 1e-3, 4), lambda xp, x: 1 / x),
    S("narrow bell", lambda d: 0.01 * d.normal(4) + 0.5,
      lambda xp, x: xp.exp(-1e4 * (x - 0.5) ** 2)),
    S("narrow Lorentz curve", lambda d: 1 + 0.003 * d.normal(4),
      lambda xp, x: 1 / (1 + 1e5 * (x - 1) ** 2)),
    S("logistic map", lambda d: d.uniform(0.2, 0.8, 3), _logistic_map),
    S("Lorenz attractor", lambda d: d.uniform(1, 3, 3), _lorenz),
    # near a kink or a jump
    S("relu, 1e-2 off", lambda d: d.near(0, 1e-2, 5), lambda xp, x: xp.relu(x)),
    S("relu, 1e-4 off one entry",
      lambda d: np.concatenate([d.near(0, 1e-4, 1), d.normal(4)]), lambda xp, x: xp.relu(x)),
    S("abs, 1e-6 off one entry",
      lambda d: np.concatenate([d.near(0, 1e-6, 1), d.normal(4)]), lambda xp, x: xp.abs(x)),
    S("maximum, 1e-3 from a tie",
      lambda d: (lambda x: (x, x + d.near(0, 1e-3, 4)))(d.uniform(0.5, 1, 4)),
      lambda xp, x, y: xp.maximum(x, y)),
    S("clip, 1e-3 from an edge", lambda d: d.near(1, 1e-3, 4), lambda xp, x: xp.clip(x, -1, 1) * x),
    S("Huber, near its joint", lambda d: d.near(1, 1e-3, 4), _huber),
    S("relu network", lambda d: d.normal(5), lambda xp, x: _mlp(xp, x, xp.relu)),
    S("jump, 1e-3 off", lambda d: d.near(1, 1e-3, 4), lambda xp, x: xp.where(x > 1, 1 + x, x * x)),
    S("staircase between steps", lambda d: np.arange(4) + d.uniform(0.3, 0.7, 4),
      lambda xp, x: xp.floor(x) + 0 * x),
    S("ramp of stairs between steps",
      lambda d: np.arange(1, 5) + d.uniform(0.3, 0.7, 4), lambda xp, x: xp.floor(x) * x),
    # no derivative
    S("relu at 0", _with_kink(lambda d: d.normal(4), 0.0), lambda xp, x: xp.relu(x), KINK),
    S("abs at 0", _with_kink(lambda d: d.normal(4), 0.0), lambda xp, x: xp.abs(x), KINK),
    S("maximum of a tie", lambda d: (lambda x: (x, x.copy()))(d.normal(3)),
      lambda xp, x, y: xp.maximum(x, y), KINK),
    S("largest of a tie", lambda d: np.array([0.5, 1.25, 1.25, -1.0]),
      lambda xp, x: xp.amax(x), KINK),
    S("norm at 0", lambda d: np.zeros(4), lambda xp, x: xp.norm(x), KINK),
    S("sort with ties", lambda d: d.rng.permutation([0.5, 0.5, -1.0, 1.5, 1.5]),
      lambda xp, x: xp.sort(x) * xp.const([1, -1, 2, 0.5, -2], x), KINK),
    S("clip at an edge", _with_kink(lambda d: d.normal(4), 1.0),
      lambda xp, x: xp.clip(x, -1, 1), KINK),
    S("x log x at 0", _with_kink(lambda d: d.uniform(0.5, 2, 4), 0.0), _x_log_x, KINK),
    S("jump at x", _with_kink(lambda d: d.normal(4), 0.0),
      lambda xp, x: xp.where(x > 0, 1 + x, x), KINK),
    S("staircase on a step", lambda d: np.arange(1.0, 4.0), lambda xp, x: xp.floor(x), KINK),
    S("relu network, dead bias", lambda d: np.zeros(5),
      lambda xp, x: xp.relu(xp.const(eighths("dead", 4, 5), x) @ x), KINK),
    S("l1 norm, sparse x", lambda d: d.normal(6) * np.array([1, 0, 1, 0, 1, 1]),
      lambda xp, x: xp.sum(xp.abs(x)) + xp.sum(x * x), KINK),
    # effective precision below the dtype, long sums
    S("mean in float32", lambda d: d.normal(50), lambda xp, x: xp.mean(xp.cast(x, "float32") ** 2)),
    S("matmul in bfloat16", lambda d: (d.normal(4, 6), d.normal(6, 3)),
      lambda xp, x, y: xp.cast(xp.cast(x, "bfloat16") @ xp.cast(y, "bfloat16"), "float32")),
    S("network in float16", lambda d: d.normal(5),
      lambda xp, x: xp.cast(_mlp(xp, xp.cast(x, "float16"), xp.tanh), "float32")),
    S("sum of 500", lambda d: d.normal(500), lambda xp, x: xp.sum(xp.sin(x))),
    S("mean square of 300", lambda d: 10 * d.normal(300), lambda xp, x: xp.mean(x * x)),
    # cancellation
    S("sqrt(x + 1) - sqrt(x)", lambda d: 1e4 * d.uniform(1, 9, 4),
      lambda xp, x: xp.sqrt(x + 1) - xp.sqrt(x)),
    S("(1 - cos x) / x^2", lambda d: 0.02 * d.uniform(1, 2, 4),
      lambda xp, x: (1 - xp.cos(x)) / (x * x)),
    S("naive variance", lambda d: 30 + d.normal(8), _naive_variance),
    S("naive variance, far off", lambda d: 3000 + d.normal(8), _naive_variance),
    S("exp(x) - 1", lambda d: 1e-5 * d.normal(4), lambda xp, x: xp.exp(x) - 1),
    S("log(1 + x)", lambda d: 1e-6 * d.normal(4), lambda xp, x: xp.log(1 + x)),
    S("difference of squares",
      lambda d: (lambda x: (x, x * (1 + 1e-3 * d.normal(4))))(100 * d.uniform(1, 2, 4)),
      lambda xp, x, y: x * x - y * y),
    # softmax and its kin
    S("softmax", lambda d: d.normal(3, 4), lambda xp, x: xp.softmax(x)),
    S("softmax, large logits", lambda d: 8 * d.normal(5), lambda xp, x: xp.softmax(x)),
    S("log softmax", lambda d: 5 * d.normal(2, 5), lambda xp, x: xp.log_softmax(x)),
    S("logsumexp", lambda d: d.normal(3, 5), lambda xp, x: xp.logsumexp(x)),
    S("logsumexp, one entry far above", lambda d: d.normal(5) + np.array([30, 0, 0, 0, 0]),
      lambda xp, x: xp.logsumexp(x)),
    S("cross entropy", lambda d: 3 * d.normal(4, 5),
      lambda xp, x: -xp.mean(xp.sum(xp.log_softmax(x) * xp.const(np.eye(5)[[1, 0, 3, 3]], x), 1))),
    S("softmax of a shift", lambda d: 1000 + d.normal(5), lambda xp, x: xp.softmax(x)),
    # norms
    S("norm", lambda d: d.normal(5), lambda xp, x: xp.norm(x)),
    S("norm of 1e-6", lambda d: 1e-6 * d.normal(5), lambda xp, x: xp.norm(x)),
    S("norm, offset x", lambda d: 1 + 1e-3 * d.normal(4), lambda xp, x: xp.norm(x - 1)),
    S("3-norm", lambda d: d.normal(5), lambda xp, x: xp.sum(xp.abs(x) ** 3) ** (1 / 3)),
    S("unit vector", lambda d: 0.01 * d.normal(4), lambda xp, x: x / xp.norm(x)),
    S("cosine similarity", lambda d: (d.normal(5), d.normal(5)), _cosine_similarity),
    # edges of a domain
    S("log near 0", lambda d: 1e-6 * d.uniform(1, 9, 4), lambda xp, x: xp.log(x)),
    S("log near 0, one entry",
      lambda d: np.concatenate([d.uniform(1e-3, 2e-3, 1), d.uniform(1, 2, 3)]),
      lambda xp, x: xp.log(x)),
    S("sqrt near 0", lambda d: 1e-8 * d.uniform(1, 9, 4), lambda xp, x: xp.sqrt(x)),
    S("sqrt(1 - x) near 1", lambda d: 1 - max(1e-4, 8 * d.eps) * d.uniform(1, 2, 4),
      lambda xp, x: xp.sqrt(1 - x)),
    S("acosh near 1", lambda d: 1 + max(1e-3, 8 * d.eps) * d.uniform(1, 2, 4),
      lambda xp, x: xp.arccosh(x)),
    S("asin near 1", lambda d: 1 - max(1e-4, 8 * d.eps) * d.uniform(1, 2, 4),
      lambda xp, x: xp.arcsin(x)),
    S("atanh near 1", lambda d: 1 - max(1e-3, 8 * d.eps) * d.uniform(1, 2, 4),
      lambda xp, x: xp.arctanh(x)),
    S("log1p near -1", lambda d: -1 + max(1e-3, 8 * d.eps) * d.uniform(1, 2, 4),
      lambda xp, x: xp.log1p(x)),
    S("x^1.5 near 0", lambda d: 1e-4 * d.uniform(1, 9, 4), lambda xp, x: x**1.5),
    S("x log x near 0", lambda d: 1e-6 * d.uniform(1, 9, 4), _x_log_x),
    # order
    S("sort", lambda d: d.apart(6, 0.3), lambda xp, x: xp.sort(x) ** 2),
    S("sort, 1e-3 apart", lambda d: 1 + d.apart(5, max(1e-3, 16 * d.eps)),
      lambda xp, x: xp.sort(x) * xp.const([1, -1, 2, 0.5, -2], x)),
    S("largest two", lambda d: d.apart(6, 0.3), lambda xp, x: xp.sort(x)[-2:]),
    S("median", lambda d: d.apart(5, 0.3), lambda xp, x: xp.sort(x)[2] ** 2),
    # iterations
    S("square root by Newton, 1e-13", lambda d: d.uniform(1, 4, 4),
      _solver(lambda y, x: y * y - x, lambda y, x: 2 * y, 1e-13)),
    S("cube root by Newton, 1e-9", lambda d: d.uniform(1, 4, 4),
      _solver(lambda y, x: y**3 - x, lambda y, x: 3 * y * y, 1e-9)),
    S("cubic by Newton, 1e-6", lambda d: d.uniform(1, 4, 4),
      _solver(lambda y, x: y**3 + y - x, lambda y, x: 3 * y * y + 1, 1e-6), LOOSE),
    S("cubic by Newton, 1e-3", lambda d: d.uniform(1, 4, 4),
      _solver(lambda y, x: y**3 + y - x, lambda y, x: 3 * y * y + 1, 1e-3), LOOSE),
    S("fixed point, 1e-13", lambda d: d.uniform(0.3, 0.9, 4), _fixed_point(1e-13)),
    S("fixed point, 1e-2", lambda d: d.uniform(0.3, 0.9, 4), _fixed_point(1e-2), LOOSE),
    S("bisection, 12 steps", lambda d: d.uniform(0.5, 2, 4), _bisection, LOOSE),
    S("square root, unrolled", lambda d: d.uniform(0.5, 4, 4), _unrolled_sqrt),
    S("power method, unrolled", lambda d: d.normal(4, 4), _power_method),
    # offsets
    S("sin(x) + 1e6", lambda d: d.normal(4), lambda xp, x: xp.sin(x) + 1e6),
    S("sum + 1e8", lambda d: d.normal(5), lambda xp, x: xp.sum(x * x) + 1e8),
    S("small entry beside large ones", lambda d: np.concatenate([1e4 * d.normal(4), d.normal(1)]),
      lambda xp, x: xp.sum(x[:4]) + xp.exp(x[4])),
    S("(x - 1000)^2", lambda d: 1000 + d.normal(4), lambda xp, x: (x - 1000) ** 2),
    S("sin(x), x of 1e4", lambda d: 1e4 + d.normal(4), lambda xp, x: xp.sin(x - 1e4)),
    # linear algebra
    S("solve, condition 1", lambda d: d.normal(4, 1),
      lambda xp, x: xp.solve(xp.const(_conditioned(4, 1.0), x), x)),
    S("solve, condition 1e2",
      lambda d: (_conditioned(4, 1e2) + 1e-3 * d.normal(4, 4), d.normal(4, 1)),
      lambda xp, a, b: xp.solve(a, b)),
    S("solve, condition 1e4",
      lambda d: (_conditioned(4, 1e4) + 1e-6 * d.normal(4, 4), d.normal(4, 1)),
      lambda xp, a, b: xp.solve(a, b)),
    S("solve, condition 1e6",
      lambda d: (_conditioned(4, 1e6) + 1e-8 * d.normal(4, 4), d.normal(4, 1)),
      lambda xp, a, b: xp.solve(a, b)),
    S("log determinant", lambda d: d.normal(4, 4), lambda xp, x: xp.slogdet(_spd(xp, x))),
    S("Cholesky", lambda d: d.normal(3, 3), lambda xp, x: xp.cholesky(_spd(xp, x))),
    S("eigenvalues", lambda d: d.normal(4, 4), lambda xp, x: xp.eigenvalues(x + x.T)),
    S("matrix power", lambda d: d.normal(3, 3), lambda xp, x: x @ x @ x @ x),
    # indices, products, networks
    S("gather with repeats", lambda d: d.normal(5),
      lambda xp, x: xp.take(x, [0, 0, 1, 3, 3, 3, 4]) ** 2),
    S("product of neighbours", lambda d: d.normal(6), lambda xp, x: x[1:] * x[:-1]),
    S("cumprod", lambda d: d.normal(6), lambda xp, x: xp.cumprod(x)),
    S("cumprod through 0", lambda d: d.normal(6) * np.array([1, 1, 0, 1, 1, 1]),
      lambda xp, x: xp.cumprod(x)),
    S("product of twelve", lambda d: 2 * d.normal(12), lambda xp, x: xp.prod(x)),
    S("convolution", lambda d: (d.normal(2, 2, 7), d.normal(3, 2, 3)),
      lambda xp, x, kernel: xp.conv(x, kernel)),
    S("batch norm", lambda d: 3 + 2 * d.normal(6, 3), _normalised),
    S("batch norm of nearly constant columns", lambda d: 1 + 1e-3 * d.normal(6, 2),
      lambda xp, x: _normalised(xp, x, 1e-8)),
    S("attention", lambda d: (d.normal(3, 4), d.normal(5, 4), d.normal(5, 2)), _attention),
    S("sharp attention",
      lambda d: (6 * d.normal(3, 4), 6 * d.normal(5, 4), d.normal(5, 2)), _attention),
    S("predators and prey", lambda d: d.uniform(0.5, 2, 2), _predators),
    # complex numbers inside
    S("power spectrum", lambda d: d.normal(8), lambda xp, x: xp.abs(xp.rfft(x)) ** 2),
    S("real part of a complex exponential", lambda d: (d.normal(4), d.normal(4)),
      lambda xp, x, y: xp.real(xp.exp(xp.complex(x, y)))),
    S("phase", lambda d: (d.normal(4), d.normal(4)),
      lambda xp, x, y: xp.angle(xp.complex(x, y) ** 2)),
    S("modulus of a complex polynomial", lambda d: (d.normal(3), d.normal(3)),
      lambda xp, x, y: xp.abs(xp.complex(x, y) ** 3 - 1)),
]  # fmt: skip
