"""array-api-extra on every engine, in every composition of two modes."""

import array_api_extra as xpx
import numpy as np
import pytest
from array_api_compat import array_namespace
from scenarios import case, fails

RNG = np.random.default_rng(1)
V, U = np.asarray([0.7, -1.2, 0.4, -0.3]), np.asarray([1.4, 0.6])
X, Y = RNG.standard_normal((3, 4)), RNG.standard_normal((2, 2))
POSITIVE = np.asarray([0.7, 1.2, 0.4, 0.3])
HOLES = np.asarray([0.7, np.nan, 0.4, 1.3])
COMPLEX = RNG.standard_normal((2, 4)) + 1j * RNG.standard_normal((2, 4))


INPLACE = fails("torch", "RAISED", "an operand that the backward pass needs is overwritten")
WHERE = fails("jax", "MISMATCH", "both branches are evaluated, and 0 * inf is NaN")
CONCRETE = fails("jax", "MISMATCH", "jnp.unique takes the values without their derivative")
INTEGER = fails("torch", "UNSUPPORTED", "torch.unique has no derivative")


def at(x):
    return xpx.at(x)[1:3]


def sqrt(x):
    return array_namespace(x).sqrt(x)


FUNCTIONS = [
    case("angle", xpx.angle, COMPLEX),
    case("atleast_nd", lambda x: xpx.atleast_nd(x, ndim=3), X),
    case("cov", xpx.cov, X),
    case("cov complex", xpx.cov, COMPLEX),
    case("create_diagonal", lambda x: xpx.create_diagonal(x, offset=1), V),
    case("deg2rad", xpx.deg2rad, V),
    case("diag_indices", lambda x: x[xpx.diag_indices(3, xp=array_namespace(x))], X),
    case("kron", xpx.kron, X, Y),
    case("nan_to_num", lambda x: xpx.nan_to_num(x, fill_value=0.0), V),
    case("nanmax", lambda x: xpx.nanmax(x, axis=0), X),
    case("nanmean", lambda x: xpx.nanmean(x, axis=0), X),
    case("nansum", lambda x: xpx.nansum(x, axis=0), X),
    case("pad", lambda x: xpx.pad(x, ((1, 2), (0, 1)), constant_values=3.0), X),
    case("rad2deg", xpx.rad2deg, V),
    case("sinc", xpx.sinc, V),
    case("tril_indices", lambda x: x[xpx.tril_indices(3, xp=array_namespace(x))], X),
    case("partition", lambda x: xpx.partition(x, 2), V, marks=INPLACE),
    case("union1d", xpx.union1d, V, U, marks=[CONCRETE, INTEGER]),
    case("setdiff1d", lambda x: xpx.setdiff1d(x, x[:1]), V, marks=[CONCRETE, INTEGER]),
    case("apply_where", lambda x: xpx.apply_where(x > 0, x, sqrt, lambda x: -x * x), POSITIVE),
    case("apply_where mixed", lambda x: xpx.apply_where(x > 0, x, sqrt, lambda x: x),
         V, marks=WHERE),
    case("apply_where fill", lambda x: xpx.apply_where(x > 0, x, sqrt, fill_value=0.0),
         V, marks=WHERE),
    case("at set", lambda x, y: at(x).set(y, copy=True), V, U),
    case("at set mask", lambda x: xpx.at(x)[x < 0].set(0.0, copy=True), V),
    case("at add", lambda x, y: at(x).add(y, copy=True), V, U),
    case("at subtract", lambda x, y: at(x).subtract(y, copy=True), V, U),
    case("at multiply", lambda x, y: at(x).multiply(y, copy=True), V, U),
    case("at divide", lambda x, y: at(x).divide(y, copy=True), V, U, marks=INPLACE),
    case("at power", lambda x, y: at(x).power(y, copy=True), POSITIVE, U, marks=INPLACE),
    case("at min", lambda x, y: at(x).min(y, copy=True), V, U, marks=INPLACE),
    case("at max", lambda x, y: at(x).max(y, copy=True), V, U, marks=INPLACE),
]  # fmt: skip


@pytest.mark.parametrize(("f", "inputs", "options"), FUNCTIONS)
def test_derivatives(adjudge_backend, f, inputs, options):
    adjudge_backend.check(f, *adjudge_backend.arrays(*inputs), order=2, **options)
