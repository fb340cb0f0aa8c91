"""Samples of JAX, which are drawn by a key: those whose derivative is that of the distribution."""

import pytest
from frameworks import jax, jnp
from scenarios import long, over_seeds, seeds

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


@pytest.mark.parametrize("seed", seeds(2))
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


@over_seeds(10)
@pytest.mark.parametrize(
    ("modes", "factor"),
    [
        long(["R", "RR"], 1.0),
        (["R", "RR"], 1.01),
        (["F", "FF"], 1.0),
        long(["R", "FR"], 1.0),
    ],
)
def test_numbers_drawn_in_the_usual_dtype_are_those_of_float32_in_second_order_too(
    modes, factor, seeds
):
    """In float64 `normal` draws others, which makes another function of it."""

    @jax.custom_jvp
    def scale(s):
        return jnp.exp(s)

    @scale.defjvp
    def of_scale(primals, tangents):
        return scale(*primals), factor * scale(*primals) * tangents[0]

    def f(s):
        return scale(s) * jax.random.normal(jax.random.key(3), (4,))

    x = jnp.array([0.7, -1.3, 2.1, 0.4])
    for seed in seeds:
        report = adjudge.examine(f, x, seed=seed, modes=modes, compile=False, blame=False)
        assert report.verdict is (Verdict.PASS if factor == 1 else Verdict.FAIL), str(report)
