"""A custom_vjp in JAX: a norm whose derivative at zero is zero, right and with a lost factor."""

import jax
import jax.numpy as jnp

import adjudge


def norm_with(backward):
    """`|x|` with the given backward pass."""

    @jax.custom_vjp
    def norm(x):
        return jnp.sqrt(jnp.sum(x * x))

    def forward(x):
        y = norm(x)
        return y, (x, y)

    norm.defvjp(forward, backward)
    return norm


def right(saved, w):
    """`w x / |x|`, zero at zero."""
    x, y = saved
    return (jnp.where(y > 0, w * x / jnp.where(y > 0, y, 1.0), 0.0),)


def wrong(saved, w):
    """As if the function were `sqrt` of `sum(x * x)` with `d(x * x) = 1`."""
    x, y = saved
    return (jnp.where(y > 0, w * 0.5 * x / jnp.where(y > 0, y, 1.0), 0.0),)


x = jnp.array([0.5, -1.5, 2.0])

CASES = [
    adjudge.Case(norm_with(right), (x,), name="norm"),
    adjudge.Case(norm_with(wrong), (x,), name="norm, wrong factor"),
]
