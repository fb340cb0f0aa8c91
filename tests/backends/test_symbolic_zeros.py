"""Rules of JAX that are told which inputs are differentiated, and which cotangents are zero."""

import pytest
from frameworks import jax, jnp
from scenarios import over_seeds

import adjudge
from adjudge import Verdict

pytestmark = pytest.mark.backend("jax")

X = (0.3, 0.7), (0.2, 1.1)


def is_zero(one):
    return isinstance(one, jax.custom_derivatives.SymbolicZero)


def product_by_jvp(alone):
    """`x cos y`, whose derivative by y alone has a factor."""

    @jax.custom_jvp
    def f(x, y):
        return x * jnp.cos(y)

    def jvp(primals, tangents):
        (x, y), (dx, dy) = primals, tangents
        t = jnp.zeros_like(x)
        if not is_zero(dx):
            t = t + dx * jnp.cos(y)
        if not is_zero(dy):
            t = t - (alone if is_zero(dx) else 1.0) * x * jnp.sin(y) * dy
        return f(x, y), t

    f.defjvp(jvp, symbolic_zeros=True)
    return f


def product_by_vjp(alone):
    """The same; its forward pass keeps what the gradients need that are asked for."""

    @jax.custom_vjp
    def f(x, y):
        return x * jnp.cos(y)

    def forward(x, y):
        factor = 1.0 if x.perturbed else alone
        return f(x.value, y.value), (x.value, y.value, factor)

    def backward(kept, w):
        x, y, factor = kept
        return w * jnp.cos(y), -factor * w * x * jnp.sin(y)

    f.defvjp(forward, backward, symbolic_zeros=True)
    return f


def pair(alone):
    """`sin x` and `cos x`; the gradient of the second one alone has a factor."""

    @jax.custom_vjp
    def f(x):
        return jnp.sin(x), jnp.cos(x)

    def forward(x):
        return f(x.value), x.value

    def backward(x, w):
        one, two = w
        g = jnp.zeros_like(x)
        if not is_zero(one):
            g = g + one * jnp.cos(x)
        if not is_zero(two):
            g = g - (alone if is_zero(one) else 1.0) * two * jnp.sin(x)
        return (g,)

    f.defvjp(forward, backward, symbolic_zeros=True)
    return f


@over_seeds(10)
@pytest.mark.parametrize(
    ("make", "modes"),
    [
        (product_by_jvp, ["R"]),
        (product_by_jvp, ["F"]),
        (product_by_jvp, ["R", "F"]),
        (product_by_vjp, ["R"]),
    ],
)
def test_a_rule_that_is_wrong_for_one_input_alone_fails(make, modes, seeds):
    x, y = (jnp.asarray(one) for one in X)

    verdicts = {1.0: Verdict.PASS, 2.0: Verdict.FAIL, 0.0: Verdict.FAIL}
    rules = {alone: make(alone) for alone in verdicts}  # JAX compiles anew for each

    for seed in seeds:
        for alone, verdict in verdicts.items():
            rule = rules[alone]
            report = adjudge.examine(rule, (x, y), modes=modes, seed=seed, blame=False)
            assert report.verdict is verdict, report


@over_seeds(10)
def test_a_rule_that_is_wrong_for_one_output_alone_fails(seeds):
    x = jnp.asarray(X[1])

    for seed in seeds:
        for alone, verdict in ((1.0, Verdict.PASS), (-1.0, Verdict.FAIL)):
            assert adjudge.examine(pair(alone), x, seed=seed).verdict is verdict


def test_functions_without_such_rules_are_spared_the_work():
    x, y = (jnp.asarray(one) for one in X)

    def plain(x, y):
        return x * jnp.cos(y)

    spent = [adjudge.examine(f, (x, y), seed=0).counts["vjps"] for f in (plain, product_by_vjp(1))]

    assert spent[0] < spent[1]
