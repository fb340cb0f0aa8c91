"""The same numbers from NumPy, PyTorch and JAX: one line a function, values first."""

import array_api_extra as xpx
import einops
import numpy as np
import ot
import pytest
import tensorly as tl
from scipy import special, stats
from tensorly.tenalg import proximal

import adjudge

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.backend("torch", "jax"),
]

RNG = np.random.default_rng(1)
X, Y, S = RNG.standard_normal((3, 4)), RNG.standard_normal((3, 4)), np.asarray([0.7, -1.2, 0.4])
P = RNG.uniform(0.3, 2.0, (3, 4))
COLUMN = np.asarray([[0.1], [0.5], [0.9]])
FACTORS = RNG.standard_normal((3, 2)), RNG.standard_normal((4, 2)), RNG.standard_normal((2, 2))


def case(name, f, *inputs, marks=()):
    return pytest.param(f, inputs, id=name, marks=marks)


def differ(reason):
    return pytest.mark.xfail(reason=reason, raises=adjudge.CrosscheckError)


def through_tensorly(f):
    """`f` on the backend of tensorly that belongs to the engine."""

    def on(backend):
        def run(*inputs):
            with tl.backend_context(backend):
                return f(*inputs)

        return run

    return {"numpy": on("numpy"), "torch": on("pytorch"), "jax": on("jax")}


FUNCTIONS = [
    case("einops reduce", lambda x: einops.reduce(x, "a (b c) -> c a", "prod", b=2), X),
    case("einops einsum", lambda x, y: einops.einsum(x, y, "a b, c b -> c a"), X, Y),
    case("xpx cov", xpx.cov, X),
    case("xpx kron", xpx.kron, X, Y),
    case(
        "xpx apply_where", lambda x: xpx.apply_where(x > 0, x, lambda x: x**0.5, lambda x: x), S,
        marks=differ("JAX differentiates both branches"),
    ),
    case("scipy logsumexp", lambda x: special.logsumexp(x, axis=1), X),
    case("scipy entropy", lambda p: stats.entropy(p, axis=1), P),
    case("scipy skew", lambda x: stats.skew(x, axis=1), X),
    case("ot dist", ot.dist, X, Y),
    case(
        "ot bures_distance", lambda x, y: ot.gaussian.bures_distance(x @ x.T, y @ y.T), X, Y,
        marks=differ("shape (1,) on PyTorch, () on the others"),
    ),
    case("tl cp", through_tensorly(lambda *U: tl.cp_to_tensor((None, U))), *FACTORS),
    case("tl norm", through_tensorly(lambda x: tl.norm(x, 3)), X),
    case(
        "tl unimodality_prox", through_tensorly(proximal.unimodality_prox), COLUMN,
        marks=differ("PyTorch detaches"),
    ),
    case(
        "tl monotonicity_prox", through_tensorly(proximal.monotonicity_prox), COLUMN[::-1].copy(),
        marks=differ("PyTorch computes in single precision"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("f", "inputs"), FUNCTIONS)
def test_engines_agree(f, inputs):
    adjudge.crosscheck(f, inputs, ["numpy", "torch", "jax"], compile=False, seed=1)
