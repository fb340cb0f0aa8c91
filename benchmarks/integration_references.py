"""Wrong derivatives of libraries that support several frameworks, beside the right ones.

Neither adjudge nor differences in floating point take part: the framework's own transform through
the library on one side, on the other the function once more in mpmath, differentiated in 30 digits.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ["SCIPY_ARRAY_API"] = "1"

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import ot
import tensorly
import torch
from array_api_compat import array_namespace
from array_api_extra import apply_where, setdiff1d, union1d
from integration_twins import (
    emd2_of_two,
    gromov_of_two,
    kl_transport,
    rotation,
    truncated_variance,
)
from scipy import stats
from scipy.spatial.transform import Rotation
from tables import header, table
from tensorly.tenalg import proximal

jax.config.update("jax_enable_x64", True)
mpmath.mp.dps = 30


@dataclass(frozen=True)
class Case:
    """One number, `d f / dt` at 0 or `d^2 f / ds dt`, from the library and from mpmath."""

    library: str
    engine: str
    name: str
    number: str
    automatic: Callable[[], Any]
    true: Callable[[], Any]
    why: str


# ---------------------------------------------------------------- the frameworks' own transforms


def slope(engine: str, f: Callable[[Any], Any], order: int = 1) -> float:
    """The derivative of `f` at 0 by reverse mode (of reverse mode); 0 where there is no graph."""
    if engine == "jax":
        g = f
        for _ in range(order):
            g = jax.grad(g)
        return float(g(jnp.asarray(0.0)))
    t = torch.zeros((), dtype=torch.float64, requires_grad=True)
    y = f(t)
    for _ in range(order):
        if not y.requires_grad:
            return 0.0
        (y,) = torch.autograd.grad(y, t, create_graph=True, materialize_grads=True)
    return float(y)


def mixed(f: Callable[[Any, Any], Any]) -> float:
    """`d^2 f / ds dt` at 0 by PyTorch, reverse over reverse mode."""
    s, t = (torch.zeros((), dtype=torch.float64, requires_grad=True) for _ in "st")
    (y,) = torch.autograd.grad(f(s, t), s, create_graph=True)
    return float(torch.autograd.grad(y, t, materialize_grads=True)[0]) if y.requires_grad else 0.0


def array(engine: str, values: Any) -> Any:
    """In double precision."""
    return torch.tensor(values, dtype=torch.float64) if engine == "torch" else jnp.asarray(values)


# ---------------------------------------------------------------- POT

A, B = [0.1, 0.2, 0.3, 0.4], [0.3, 0.25, 0.45]
M = [[0.3, 1.1, 0.7], [0.9, 0.2, 1.4], [1.2, 0.8, 0.4], [0.6, 1.3, 0.5]]
DOWN = [0.6, -0.9, 0.8, -0.5]
"""A tangent of the simplex."""
COSTS = [[0.5, -0.7, 0.2], [-0.3, 0.8, 0.6], [0.9, -0.4, 0.1], [0.2, 0.7, -0.6]]


def envelope(engine: str, kind: str, what: str) -> Callable[[], float]:
    """`ot.solve(grad="envelope")` along DOWN in a, or along COSTS in M."""

    def value(t: Any) -> Any:
        a, b, m = (array(engine, x) for x in (A, B, M))
        a = a + t * array(engine, DOWN) if what == "a" else a
        m = m + t * array(engine, COSTS) if what == "M" else m
        options = {"reg": 0.5, "reg_type": kind, "tol": 1e-14, "max_iter": 1000}
        return ot.solve(m, a, b, grad="envelope", **options).value

    return lambda: slope(engine, value)


def transport(kind: str, what: str) -> Callable[[], Any]:
    """The same in mpmath."""

    def value(t: Any) -> Any:
        a = [x + t * mpmath.mpf(v) for x, v in zip(A, DOWN, strict=True)] if what == "a" else A
        m = [
            [x + t * v if what == "M" else x for x, v in zip(*rows, strict=True)]
            for rows in zip(M, COSTS, strict=True)
        ]
        return kl_transport(a, B, m, 0.5, kind)

    return lambda: mpmath.diff(value, 0)


TENTH = torch.tensor(0.1, dtype=torch.float64)


def pair(s: Any) -> Any:
    """A histogram of two bins."""
    return torch.stack([0.3 + s, 0.7 - s])


def gromov(s: Any, t: Any) -> Any:
    """`gromov_wasserstein2` of two points each: the first weight 0.3 + s, the distance 1 + t."""
    c = (1 + t) * (1 - torch.eye(2, dtype=torch.float64))
    d = 1.5 * (1 - torch.eye(2, dtype=torch.float64))
    return ot.gromov_wasserstein2(c, d, pair(s), pair(TENTH), tol_rel=1e-14)


def emd2(s: Any, t: Any) -> Any:
    """`emd2` whose first weight is 0.3 + s and first cost 0.2 + t."""
    cost = array("torch", [[0.2, 1.1], [0.9, 0.3]])
    first = array("torch", [[1.0, 0.0], [0.0, 0.0]])
    return ot.emd2(pair(s), pair(TENTH), cost + t * first)


POT = [
    Case(
        "POT", "torch", '`ot.solve(grad="envelope")`', "along a",
        envelope("torch", "KL", "a"), transport("KL", "a"),
        "`reg log(a)` is left out: the divergence is from `a b^T`, which moves with a and b",
    ),
    Case(
        "POT", "jax", '`ot.solve(grad="envelope")`', "along M",
        envelope("jax", "KL", "M"), transport("KL", "M"),
        "`set_gradients` for JAX is `sum(x g) / 2`, which is half where g is constant",
    ),
    Case(
        "POT", "jax", '`ot.solve(grad="envelope", reg_type="entropy")`', "along a",
        envelope("jax", "entropy", "a"), transport("entropy", "a"), "the same",
    ),
    Case(
        "POT", "torch", "`ot.emd2_1d`", "d / dx[0]",
        lambda: slope("torch", lambda t: ot.emd2_1d(
            array("torch", [0.3, 1.1]) + t * array("torch", [1.0, 0.0]),
            array("torch", [0.5, 1.6]))),
        lambda: mpmath.diff(lambda t: ((0.3 + t - 0.5) ** 2 + (1.1 - 1.6) ** 2) / 2, 0),
        "computed in NumPy, without a graph",
    ),
    Case(
        "POT", "torch", "`ot.emd2`", "d^2 / da[0] dM[0, 0]",
        lambda: mixed(emd2),
        lambda: mpmath.diff(lambda s, t: emd2_of_two(0.3 + s, 0.4, 0.2 + t), (0, 0), (1, 1)),
        "`set_gradients`: the plan and the potentials count as constant in the second derivative",
    ),
    Case(
        "POT", "torch", "`ot.gromov_wasserstein2`", "d^2 / dp[0] dC1",
        lambda: mixed(gromov),
        lambda: mpmath.diff(lambda s, t: gromov_of_two(0.3 + s, 0.4, 1 + t, 1.5), (0, 0), (1, 1)),
        "the same",
    ),
    Case(
        "POT", "torch", "`ot.gaussian.bures_distance`", "d^2 / dC[0, 0]^2",
        lambda: slope("torch", lambda t: ot.gaussian.bures_distance(
            (4 + t).reshape(1, 1), array("torch", [[1.0]])), 2),
        lambda: mpmath.diff(lambda t: abs(mpmath.sqrt(4 + t) - 1), 0, 2),
        "the backward of `sqrtm` is `once_differentiable`, which raises only for cotangents "
        "that require a gradient themselves",
    ),
]  # fmt: skip

# ---------------------------------------------------------------- tensorly


def unimodal(t: Any) -> Any:
    """The first entry of the projection of an increasing column, which is unimodal."""
    return proximal.unimodality_prox(array("torch", [[0.1], [0.5], [0.9]]) + t)[0, 0]


def monotone(t: Any) -> Any:
    """The mean of three: what the projection of a decreasing column is."""
    first = array("torch", [[1.0], [0.0], [0.0]])
    return proximal.monotonicity_prox(array("torch", [[0.7], [0.5], [0.1]]) + t * first)[0, 0]


TENSORLY = [
    Case(
        "tensorly", "torch", "`unimodality_prox`", "d out[0] / dx, all entries moved",
        lambda: slope("torch", unimodal), lambda: mpmath.mpf(1),
        "`tensorly.tensor` detaches on PyTorch, and makes copies of the monotone parts",
    ),
    Case(
        "tensorly", "torch", "`monotonicity_prox`", "the value out[0]",
        lambda: float(monotone(0.0)), lambda: mpmath.mpf("1.3") / 3,
        "computed in single precision, whatever the dtype of x, and so is the derivative",
    ),
]  # fmt: skip

# ---------------------------------------------------------------- SciPy

SAMPLE = [0.3, -1.2, 0.8, 2.1, -0.4]
MOVED = [0.7, 0.2, -0.5, 0.4, 0.9]


def limited(engine: str, name: str) -> Case:
    """`stats.tvar` and its kin, which leave out 2.1 and -1.2."""
    f = getattr(stats, name)
    x, v = array(engine, SAMPLE), array(engine, MOVED)
    return Case(
        "SciPy", engine, f"`stats.{name}(limits=)`", "along x",
        lambda: slope(engine, lambda t: f(x + t * v, limits=(-1.0, 1.0))),
        lambda: mpmath.diff(lambda t: truncated_variance(name, SAMPLE, MOVED, t), 0),
        "what the limits leave out is NaN, and its derivative with it",
    )  # fmt: skip


def turned(engine: str, order: int) -> Case:
    """`Rotation.from_rotvec` at the angle zero."""
    v = array(engine, [0.4, -0.7, 0.2])

    def entries(t: Any) -> Any:
        turn = Rotation.from_rotvec(t * v).as_matrix()
        return turn[1, 0] + turn[0, 0]

    return Case(
        "SciPy", engine, "`Rotation.from_rotvec`", ("d / dr", "d^2 / dr^2")[order - 1] + ", r = 0",
        lambda: slope(engine, entries, order),
        lambda: mpmath.diff(lambda t: rotation([0.4 * t, -0.7 * t, 0.2 * t]), 0, order),
        "the series for small angles is in the square of `norm(r)`, whose derivative at 0 is NaN",
    )  # fmt: skip


SCIPY = [
    *(limited(engine, name) for name in ("tvar", "tstd", "tsem") for engine in ("torch", "jax")),
    turned("jax", 1),
    turned("torch", 2),
]

# ---------------------------------------------------------------- array-api-extra, and JAX below it


def root(x: Any) -> Any:
    """The square root by the array API."""
    return array_namespace(x).sqrt(x)


X, Y = jnp.asarray([3.0, 1.0, 2.0]), jnp.asarray([0.5, 4.0])
ARRAY_API = [
    Case(
        "array-api-extra", "jax", "`apply_where(x > 0, x, sqrt, fill_value=0)`", "x = -1",
        lambda: slope("jax", lambda t: apply_where(t > 1, t - 1, root, fill_value=0.0)),
        lambda: mpmath.mpf(0),
        "`where(c, f(x), g(x))`: both branches are differentiated, and 0 * NaN is NaN",
    ),
    Case(
        "array-api-extra", "jax", "`union1d`", "d out[1] / dx[1]",
        lambda: slope("jax", lambda t: union1d(X + t * jnp.asarray([0.0, 1.0, 0.0]), Y)[1]),
        lambda: mpmath.mpf(1), "is `jnp.union1d`, which is `jnp.unique`",
    ),
    Case(
        "array-api-extra", "jax", "`setdiff1d`", "d out[0] / dx[1]",
        lambda: slope("jax", lambda t: setdiff1d(X + t * jnp.asarray([0.0, 1.0, 0.0]), Y)[0]),
        lambda: mpmath.mpf(1), "is `jnp.setdiff1d`",
    ),
    Case(
        "JAX", "jax", "`jnp.unique`", "d out[0] / dx[1]",
        lambda: slope("jax", lambda t: jnp.unique(X + t * jnp.asarray([0.0, 1.0, 0.0]))[0]),
        lambda: mpmath.mpf(1),
        "without `size=` the values are taken out of the trace, with no derivative and no word",
    ),
    Case(
        "JAX", "jax", "`jnp.sign`, complex", "d Im / dy, z = 0.6 + 0.8 i",
        lambda: slope("jax", lambda t: jnp.imag(jnp.sign(0.6 + 1j * (0.8 + t)))),
        lambda: mpmath.diff(lambda t: (0.8 + t) / mpmath.hypot(0.6, 0.8 + t), 0),
        "`lax.sign` has the derivative 0, which is that of the real sign",
    ),
]  # fmt: skip

# ---------------------------------------------------------------- the table


def row(case: Case) -> tuple[str, ...]:
    """One line."""
    found, truth = case.automatic(), float(case.true())
    off = abs(found - truth) / max(abs(truth), abs(found), 1e-300)
    share = f"{100 * off:.0f} %" if off > 0.01 else f"{off:.0e}"
    share = "not a number" if np.isnan(found) else share
    numbers = f"{found:.7g}", f"{truth:.7g}"
    return (case.name, case.engine, case.number, *numbers, share, case.why)


def main() -> None:
    """Compute and print."""
    warnings.simplefilter("ignore")
    tensorly.set_backend("pytorch")
    versions = ("POT", "tensorly", "scipy", "array-api-extra", "torch", "jax", "mpmath")
    print(header("Derivatives of libraries beside those of twins in 30 digits", versions))
    head = ("function", "engine", "number", "automatic", "true", "off by", "why")
    for title, cases in (
        ("POT", POT), ("tensorly", TENSORLY), ("SciPy", SCIPY), ("array-api-extra", ARRAY_API),
    ):  # fmt: skip
        print(f"### {title}\n\n{table(head, map(row, cases))}")


if __name__ == "__main__":
    main()
