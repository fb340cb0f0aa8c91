"""Samples of JAX, which are drawn by a key: those whose derivative is that of the distribution."""

import pytest
from frameworks import jax, jnp
from scenarios import seeds

import adjudge
from adjudge.findings import Status, Verdict

pytestmark = pytest.mark.backend("jax")

QUICK = {"modes": ["R"], "compile": False, "blame": False}
"""XLA takes seconds to compile each derivative of a sampler."""


@pytest.fixture
def x():
    with jax.enable_x64():
        return jnp.array([-0.4, 0.6])


def test_a_sample_by_implicit_reparametrisation_is_left_open_and_no_numbers_are_told(x):
    def f(x):
        return jnp.sin(jax.random.gamma(jax.random.key(3), jnp.exp(x)))

    report = adjudge.examine(f, x, seed=0, **QUICK)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert {finding.status for finding in report.findings} == {Status.DRAWS_RANDOM}
    assert "the derivative of random_gamma is that of the distribution" in str(report)


def test_second_derivatives_of_implicit_samples_are_left_open(x):
    def f(x):
        return jax.random.gamma(jax.random.key(3), jnp.exp(x))

    report = adjudge.examine(f, x, seed=0, **QUICK | {"modes": ["FR"]})

    assert report.verdict is Verdict.INCONCLUSIVE, report
    assert Status.DRAWS_RANDOM in {one.status for one in report.findings if not one.note}


@pytest.mark.parametrize("seed", seeds(2, always=1))
@pytest.mark.parametrize(
    "sampler",
    [
        lambda key, x: jnp.ones(2) * jax.random.normal(key),
        lambda key, x: jax.random.gamma(key, 2.0),
    ],
    ids=["normal", "gamma of a constant"],
)
def test_a_wrong_rule_beside_samples_that_are_not_implicit_still_fails(sampler, x, seed):
    @jax.custom_vjp
    def wrong(x):
        return jnp.sin(x)

    wrong.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (1.01 * g * jnp.cos(x),))

    def f(x):
        return wrong(x + sampler(jax.random.key(3), x))

    assert adjudge.examine(f, x, seed=seed, **QUICK).verdict is Verdict.FAIL
