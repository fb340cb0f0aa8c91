"""What computes in float32 inside of float64 agrees with itself to the rounding of float32."""

import numpy as np
import pytest
from frameworks import jax, jnp

from adjudge import Status, Verdict, examine

pytestmark = [pytest.mark.backend("jax"), pytest.mark.usefixtures("x64")]

SEEDS = range(2)
"""Each compiles anew; core/jacobian/test_fast_functions.py has ten seeds of such a function."""


def norm(x):
    """A layer norm in float32, plus what is computed in float64."""
    y = x.astype(jnp.float32)
    y = (y - y.mean()) / jnp.sqrt(y.var() + 1e-5)
    return y.astype(jnp.float64) + x**2


def tanh(x):
    return jnp.tanh(x.astype(jnp.float32)).astype(jnp.float64) * x


def of_seeds(f, **options):
    x = [jnp.asarray(np.random.default_rng(seed).normal(size=8)) for seed in SEEDS]
    return [examine(f, (x[seed],), seed=seed, **options) for seed in SEEDS]


@pytest.mark.parametrize("f", [norm, tanh])
def test_a_cast_inside_breaks_no_identity(f):
    for report in of_seeds(f, check_forward_ad=True):
        found = {finding.status for finding in report.findings}

        assert not found & {Status.NONLINEAR, Status.INCONSISTENT}, report
        assert report.verdict is not Verdict.FAIL


def test_a_wrong_rule_fails_all_the_same():
    doubled = jax.custom_vjp(norm)
    doubled.defvjp(lambda x: jax.vjp(norm, x), lambda pull, w: (2 * pull(w)[0],))

    assert {Verdict.FAIL} == {report.verdict for report in of_seeds(doubled)}


def test_a_number_that_is_rounded_inside_is_no_error_and_what_is_larger_is_one():
    def log2(x):
        y = x.astype(jnp.float32) ** 2 + 1
        return (jnp.log(y) * np.float32(1 / np.log(2))).astype(jnp.float64)

    def with_slope(factor):
        # the exact logarithm of two, of which `log2` has the digits of float32
        def slope(x):
            return factor * 2 * x / ((x**2 + 1) * np.log(2))

        f = jax.custom_vjp(log2)
        f.defvjp(lambda x: (log2(x), slope(x)), lambda of_x, w: (w * of_x,))
        return f

    # which failed by a part of 1.3e-8, and 2e-8 in a function of JAX
    assert {Verdict.PASS} == {report.verdict for report in of_seeds(with_slope(1.0))}
    assert {Verdict.FAIL} == {report.verdict for report in of_seeds(with_slope(1 + 1e-6))}
