"""The namespaces of array-api-compat on every engine: what it wraps or renames."""

import numpy as np
import pytest
from array_api_compat import array_namespace
from scenarios import case, fails

RNG = np.random.default_rng(1)
X, Y = RNG.standard_normal((3, 4)), RNG.standard_normal((3, 4))
V, W = RNG.standard_normal(3), RNG.standard_normal(3)
SQUARE = RNG.standard_normal((3, 3)) + 3 * np.eye(3)
COMPLEX = X + 1j * Y


SIGN = [
    fails("torch", "RAISED", "zeros are written into the result, which RF needs"),
    fails("jax", "MISMATCH", "JAX: lax.sign has the derivative of the real sign"),
]
CONSTANT = fails("torch", "MISMATCH", "PyTorch: the factorisation counts as constant in RF and FF")

FUNCTIONS = [
    case("clip", lambda xp, x: xp.clip(x, -0.5, 0.5), X),
    case("concat", lambda xp, x, y: xp.concat([x, y], axis=1), X, Y),
    case("cumulative_prod", lambda xp, x: xp.cumulative_prod(x, axis=1), X),
    case("cumulative_sum", lambda xp, x: xp.cumulative_sum(x, axis=1, include_initial=True), X),
    case("hypot", lambda xp, x, y: xp.hypot(x, y), X, Y),
    case("cross", lambda xp, x, y: xp.linalg.cross(x, y), V, W),
    case("det", lambda xp, x: xp.linalg.det(x), SQUARE, marks=CONSTANT),
    case("inv", lambda xp, x: xp.linalg.inv(x), SQUARE),
    case("matrix_norm", lambda xp, x: xp.linalg.matrix_norm(x), X),
    case("outer", lambda xp, x, y: xp.linalg.outer(x, y), V, W),
    case("solve", lambda xp, x, y: xp.linalg.solve(x, y), SQUARE, V, marks=CONSTANT),
    case("trace", lambda xp, x: xp.linalg.trace(x, offset=1), X),
    case("vector_norm", lambda xp, x: xp.linalg.vector_norm(x, axis=1), X),
    case("max", lambda xp, x: xp.max(x, axis=1), X),
    case("mean", lambda xp, x: xp.mean(x, axis=1), X),
    case("prod", lambda xp, x: xp.prod(x, axis=1), X),
    case("repeat", lambda xp, x: xp.repeat(x, 2, axis=1), X),
    case("roll", lambda xp, x: xp.roll(x, 2, axis=1), X),
    case("sort", lambda xp, x: xp.sort(x, axis=1, descending=True), X),
    case("std", lambda xp, x: xp.std(x, axis=1, correction=1), X),
    case("take_along_axis", lambda xp, x: xp.take_along_axis(x, xp.argsort(x, axis=1), axis=1), X),
    case("tensordot", lambda xp, x, y: xp.tensordot(x, y, axes=([1], [1])), X, Y),
    case("tril", lambda xp, x: xp.tril(x, k=1), X),
    case("unstack", lambda xp, x: xp.unstack(x, axis=1), X),
    case("var", lambda xp, x: xp.var(x, axis=1, correction=1), X),
    case("vecdot", lambda xp, x, y: xp.vecdot(x, y, axis=0), X, Y),
    case("vecdot complex", lambda xp, x, y: xp.vecdot(x, y, axis=0), COMPLEX, COMPLEX[::-1].copy()),
    case("sign complex", lambda xp, x: xp.sign(x), COMPLEX, marks=SIGN),
    case("abs complex", lambda xp, x: xp.abs(x), COMPLEX),
    case("where", lambda xp, x, y: xp.where(x > 0, x * x, y), X, Y),
]


@pytest.mark.parametrize(("f", "inputs", "options"), FUNCTIONS)
def test_derivatives(adjudge_backend, f, inputs, options):
    x = adjudge_backend.arrays(*inputs)
    adjudge_backend.check(lambda *x: f(array_namespace(*x), *x), *x, order=2, **options)
