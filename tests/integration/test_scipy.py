"""SciPy in its array API mode (SCIPY_ARRAY_API=1, set in conftest.py) on every engine."""

import numpy as np
import pytest
from scenarios import case, fails
from scipy import fft, integrate, optimize, special, stats
from scipy.cluster import vq
from scipy.spatial.transform import Rotation

pytestmark = pytest.mark.filterwarnings("default")

RNG = np.random.default_rng(1)
V, U = RNG.standard_normal(6), RNG.standard_normal(5)
X, Y = RNG.standard_normal((3, 5)), RNG.standard_normal((3, 5))
P, Q = RNG.uniform(0.3, 2.0, (3, 5)), RNG.uniform(0.3, 2.0, (3, 5))
R, UNIT = np.asarray([0.4, -0.7, 0.2]), np.asarray([0.1, 0.7, -0.5, 0.5])


INPLACE = fails("torch", "RAISED", "an operand that the backward pass needs is overwritten")
WRITES = pytest.mark.adjudge_xfail("jax", raises=TypeError, reason="writes into an array")
NUMPY = fails("torch", "RAISED", "converts a tensor that requires a gradient to NumPy")
NAN = "what the limits leave out is NaN, and its derivative with it"
LIMITS = [fails("torch", "MISMATCH", NAN), fails("jax", "MISMATCH", NAN)]
NORM = "the series for small angles is in the square of norm(r), whose derivative at 0 is NaN"
POLE = [fails("torch", "MISMATCH", NORM), fails("jax", "MISMATCH", NORM)]

FUNCTIONS = [
    case("entr", special.entr, P),
    case("erf", special.erf, P),
    case("expit", special.expit, X),
    case("i0", special.i0, P),
    case("log_ndtr", special.log_ndtr, X),
    case("log_softmax", lambda x: special.log_softmax(x, axis=1), X, marks=INPLACE),
    case("logit", special.logit, P / 3),
    case("logsumexp", lambda x: special.logsumexp(x, axis=1), X),
    case("logsumexp b", lambda x, b: special.logsumexp(x, b=b, axis=1), X, P, marks=INPLACE),
    case("multigammaln", lambda x: special.multigammaln(x, 2), P + 1),
    case("ndtri", special.ndtri, P / 3),
    case("rel_entr", special.rel_entr, P, Q),
    case("softmax", lambda x: special.softmax(x, axis=1), X),
    case("xlogy", special.xlogy, P, Q),
    case("entropy", lambda p, q: stats.entropy(p, q, axis=1), P, Q),
    case("gmean", lambda x: stats.gmean(x, axis=1), P),
    case("hmean", lambda x: stats.hmean(x, axis=1), P),
    case("kurtosis", lambda x: stats.kurtosis(x, axis=1), X),
    case("moment", lambda x: stats.moment(x, 3, axis=1), X),
    case("pmean", lambda x: stats.pmean(x, 3, axis=1), P),
    case("skew", lambda x: stats.skew(x, axis=1), X),
    case("variation", lambda x: stats.variation(x, axis=1), P),
    case("zscore", lambda x: stats.zscore(x, axis=1), X),
    case("circmean", lambda x: stats.circmean(x, axis=1), X),
    case("lmoment", stats.lmoment, P[0], marks=INPLACE),
    case("boxcox_llf", lambda x: stats.boxcox_llf(0.5, x), P[0], marks=INPLACE),
    case("pearsonr", lambda x, y: stats.pearsonr(x, y, axis=1).statistic, X, Y, marks=NUMPY),
    case("bartlett", lambda x, y: stats.bartlett(x, y).statistic, V, U),
    case("tvar", lambda x: stats.tvar(x, limits=(-1.0, 1.0)), V, marks=LIMITS),
    case("tstd", lambda x: stats.tstd(x, limits=(-1.0, 1.0)), V, marks=LIMITS),
    case("tsem", lambda x: stats.tsem(x, limits=(-1.0, 1.0)), V, marks=LIMITS),
    case("tmean", lambda x: stats.tmean(x, limits=(-1.0, 1.0)), V),
    case("trapezoid", lambda y: integrate.trapezoid(y, dx=0.1, axis=1), X),
    case("cumulative_simpson", lambda y: integrate.cumulative_simpson(y, dx=0.1), X, marks=WRITES),
    case("rosen", optimize.rosen, V),
    case("rosen_der", optimize.rosen_der, V, marks=WRITES),
    case("rfft", fft.rfft, V),
    case("whiten", vq.whiten, X, marks=INPLACE),
    case("Rotation.from_quat", lambda q: Rotation.from_quat(q).as_matrix(), UNIT),
    case("Rotation.from_rotvec", lambda r: Rotation.from_rotvec(r).as_matrix(), R),
    case("Rotation.from_rotvec 0", lambda r: Rotation.from_rotvec(r).as_matrix(),
         0 * R, marks=POLE),
    case("Rotation.as_rotvec", lambda q: Rotation.from_quat(q).as_rotvec(), UNIT),
    case("Rotation.as_euler", lambda r: Rotation.from_rotvec(r).as_euler("xyz"), R),
    case("Rotation.apply", lambda r, x: Rotation.from_rotvec(r).apply(x), R, X[:, :3]),
]  # fmt: skip


@pytest.mark.parametrize(("f", "inputs", "options"), FUNCTIONS)
def test_derivatives(adjudge_backend, f, inputs, options):
    adjudge_backend.check(f, *adjudge_backend.arrays(*inputs), modes=["R", "RR"], **options)
