"""POT on every engine: weights along the simplex, covariances along positive definite matrices."""

import numpy as np
import ot
import pytest
from scenarios import case, fails

# what a library warns of is not ours to settle
pytestmark = pytest.mark.filterwarnings("default")

RNG = np.random.default_rng(1)


def histogram(n):
    weights = RNG.uniform(0.5, 1.5, n)
    return weights / weights.sum()


def distances(x, y):
    return ((x[:, None] - y[None]) ** 2).sum(-1)


def covariance(n):
    root = RNG.standard_normal((n, n))
    return root @ root.T + np.eye(n)


DEVICE = fails("jax", "RAISED", "asks a tracer for its device")
NUMPY = fails("jax", "RAISED", "converts a tracer to NumPy")
WRITES = pytest.mark.adjudge_xfail("jax", raises=TypeError, reason="writes into an array")
CONSTANT = "set_gradients: the gradient counts as constant"
ONCE = "sqrtm: once_differentiable raises for cotangents that require a gradient, and no others"

A, B, M = histogram(4), histogram(5), RNG.uniform(0.2, 1.5, (4, 5))
X, Y = RNG.standard_normal((4, 2)), RNG.standard_normal((5, 2)) + 0.5
C, D = distances(X, X), distances(Y, Y)
P, Q = covariance(2), covariance(2)
SIMPLEX = {"directions": {0: "simplex", 1: "simplex"}}
GROMOV = {"directions": {0: "simplex", 1: "simplex", 2: "symmetric", 3: "symmetric"}}
SPD = {"directions": {0: "positive definite", 1: "positive definite"}}
LONG = {"numItermax": 500, "stopThr": 1e-14}
TIGHT = {"tol_rel": 1e-14, "tol_abs": 1e-14}


def solve(reg_type="KL", **options):
    long = {"reg": 0.5, "reg_type": reg_type, "max_iter": 500, "tol": 1e-14}
    return lambda a, b, m: ot.solve(m, a, b, **long, **options).value


FIRST = [
    case("emd2", ot.emd2, A, B, M, **SIMPLEX, marks=NUMPY),
    case("solve", lambda a, b, m: ot.solve(m, a, b).value, A, B, M, **SIMPLEX, marks=NUMPY),
    case(
        "solve envelope", solve(grad="envelope"), A, B, M, **SIMPLEX,
        marks=[
            fails("torch", "MISMATCH", "reg log(a) and reg log(b) are left out"),
            fails("jax", "MISMATCH", "set_gradients halves, and reg log(a) is left out"),
        ],
    ),
    case(
        "solve envelope entropy", solve("entropy", grad="envelope"), A, B, M, **SIMPLEX,
        marks=fails("jax", "MISMATCH", "set_gradients halves"),
    ),
    case(
        "gromov_wasserstein2", lambda a, b, c, d: ot.gromov_wasserstein2(c, d, a, b, **TIGHT),
        A, B, C, D, **GROMOV, marks=NUMPY,
    ),
    case(
        "fused_gromov_wasserstein2",
        lambda a, b, c, d, m: ot.fused_gromov_wasserstein2(m, c, d, a, b, **TIGHT),
        A, B, C, D, M, **GROMOV, marks=NUMPY,
    ),
    case(
        "semirelaxed_gromov_wasserstein2",
        lambda c, d: ot.gromov.semirelaxed_gromov_wasserstein2(c, d, **TIGHT),
        C, D, directions="symmetric", marks=DEVICE,
    ),
    case(
        "entropic_gromov_wasserstein2",
        lambda c, d: ot.gromov.entropic_gromov_wasserstein2(c, d, epsilon=2.0, tol=1e-12),
        C, D, directions="symmetric", marks=DEVICE,
    ),
    case(
        "emd2_1d", ot.emd2_1d, X[:, 0], Y[:, 0],
        marks=[fails("torch", "DETACHED", "computed in NumPy"), DEVICE],
    ),
    case(
        "gmm_ot_loss", ot.gmm.gmm_ot_loss,
        X[:2], Y[:2], np.stack([P, Q]), np.stack([Q, 2 * P]), histogram(2), histogram(2),
        directions={k: "positive definite" if k < 4 else "simplex" for k in (2, 3, 4, 5)},
        marks=NUMPY,
    ),
]  # fmt: skip

SECOND = [
    case("sinkhorn2", lambda a, b, m: ot.sinkhorn2(a, b, m, 0.5, **LONG),
         A, B, M, **SIMPLEX, marks=DEVICE),
    case("sinkhorn2 log", lambda a, b, m: ot.sinkhorn2(a, b, m, 0.5, "sinkhorn_log", **LONG),
         A, B, M, **SIMPLEX, marks=DEVICE),
    case("solve autodiff", solve(), A, B, M, **SIMPLEX, marks=DEVICE),
    case("empirical_sinkhorn2",
         lambda x, y: ot.bregman.empirical_sinkhorn2(x, y, 1.0, numIterMax=300, stopThr=1e-14),
         X, Y, marks=DEVICE),
    case("sinkhorn_unbalanced2",
         lambda a, b, m: ot.unbalanced.sinkhorn_unbalanced2(a, b, m, 0.5, 1.0, **LONG),
         A, B, M, marks=DEVICE),
    case("mm_unbalanced2",
         lambda a, b, m: ot.unbalanced.mm_unbalanced2(a, b, m, 1.0, numItermax=20), A, B, M),
    case("barycenter",
         lambda h, m: ot.barycenter(h.T, m, 0.5, numItermax=300, stopThr=1e-14),
         np.stack([A, A[::-1]]), C, directions={0: "simplex"}, marks=DEVICE),
    case("sliced_wasserstein_distance",
         lambda x, y: ot.sliced_wasserstein_distance(x, y, n_projections=9, seed=0),
         X, Y, marks=DEVICE),
    case("max_sliced_wasserstein_distance",
         lambda x, y: ot.max_sliced_wasserstein_distance(x, y, n_projections=9, seed=0),
         X, Y, marks=DEVICE),
    case("wasserstein_1d", lambda x, y, a, b: ot.wasserstein_1d(x, y, a, b, p=2),
         X[:, 0], Y[:, 0], A, B, directions={2: "simplex", 3: "simplex"}),
    case("wasserstein_circle", lambda x, y: ot.wasserstein_circle(x, y, p=2),
         RNG.uniform(0, 1, 4), RNG.uniform(0, 1, 4), marks=WRITES),
    case("dist", ot.dist, X, Y),
    case("dist euclidean", lambda x, y: ot.dist(x, y, metric="euclidean"), X, Y),
    case("gaussian_gromov_wasserstein_distance",
         ot.gaussian.gaussian_gromov_wasserstein_distance, P, covariance(3), **SPD),
    case("bures_distance", ot.gaussian.bures_distance,
         P, Q, **SPD, marks=fails("torch", "MISMATCH", ONCE)),
    case("bures_wasserstein_distance",
         lambda p, q, m, n: ot.gaussian.bures_wasserstein_distance(m, n, p, q),
         P, Q, X[0], Y[0], **SPD, marks=fails("torch", "MISMATCH", ONCE)),
    case("emd2 second", ot.emd2, A, B, M,
         **SIMPLEX, marks=[fails("torch", "MISMATCH", CONSTANT), NUMPY]),
    case("gromov_wasserstein2 second",
         lambda a, b, c, d: ot.gromov_wasserstein2(c, d, a, b, **TIGHT),
         A, B, C, D, **GROMOV, marks=[fails("torch", "MISMATCH", CONSTANT), NUMPY]),
]  # fmt: skip


@pytest.mark.parametrize(("f", "inputs", "options"), FIRST)
def test_first_derivatives(adjudge_backend, f, inputs, options):
    adjudge_backend.check(f, *adjudge_backend.arrays(*inputs), modes=["R"], **options)


@pytest.mark.parametrize(("f", "inputs", "options"), SECOND)
def test_second_derivatives(adjudge_backend, f, inputs, options):
    adjudge_backend.check(f, *adjudge_backend.arrays(*inputs), modes=["R", "RR"], **options)
