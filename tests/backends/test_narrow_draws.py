"""Functions of float32 and bfloat16 that draw random numbers in the dtype of their inputs.

In float64 other numbers are drawn, and with them it is another function. It is judged in double
precision with the numbers that it draws as it was given.
"""

from functools import cache

import pytest
from scenarios import long, seeds

import adjudge
from adjudge import Verdict

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")

jnp = jax.numpy
KEY = jax.random.PRNGKey(3)


def drop_path(x):
    """A row is left out at random, as by stochastic depth."""
    mask = x.new_empty((x.shape[0], 1)).bernoulli_(0.6)
    return torch.tanh(x) * mask / 0.6


def out_variant(x):
    return x * x * torch.rand(x.shape, dtype=x.dtype, out=torch.empty_like(x))


def checkpointed(x):
    run = torch.utils.checkpoint.checkpoint
    return run(lambda y: torch.exp(y) * torch.rand_like(y), x, use_reentrant=False)


TORCH = {
    "rand_like": lambda x: x * x * torch.rand_like(x),
    "rand of its dtype": lambda x: x * x * torch.rand(x.shape, dtype=x.dtype),
    "out=": out_variant,
    "uniform_": lambda x: torch.exp(x) * x.new_empty(x.shape).uniform_(-1, 1),
    "bernoulli": lambda x: torch.bernoulli(torch.full_like(x, 0.3)) * torch.exp(x),
    "dithered": lambda x: torch.sin(x + (torch.rand_like(x) - 0.5) / 8) * x,
    "drop path": drop_path,
    "a relaxed Bernoulli": lambda x: torch.sigmoid(
        (x + torch.logit(torch.rand_like(x).clamp(0.01, 0.99))) / 0.5
    ),
    "within a checkpoint": checkpointed,
    "where converted": lambda x: (x.float() ** 2).to(x.dtype) * torch.rand_like(x),
}


def spoiled(f, factor):
    """The same function with one entry of the gradient times `factor`."""

    class Spoiled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with torch.enable_grad():
                ctx.x = x.detach().requires_grad_()
                ctx.y = f(ctx.x)
            return ctx.y.detach().clone()

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, w):
            (g,) = torch.autograd.grad(ctx.y, ctx.x, w, retain_graph=True)
            g = g.double().flatten()
            g[int(g.abs().argmax())] *= factor
            return g.reshape(w.shape)

    return Spoiled.apply


def point(dtype, seed=0):
    drawn = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))
    return drawn.to(dtype).requires_grad_()


def judged(f, x, seed, modes=("R",)):
    torch.manual_seed(seed)
    return adjudge.examine(f, x, seed=seed, modes=list(modes), blame=False)


IN_SIXTEEN_BITS = ("rand_like", "uniform_")
"""A call that reads the dtype, and one that writes into an array."""

AS_THESE = ("rand of its dtype", "dithered", "a relaxed Bernoulli")
"""Functions of numbers that are drawn as those of others."""


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, "float32") for name in TORCH if name not in AS_THESE),
        *(long(name, "float32") for name in AS_THESE),
        *((name, "bfloat16") for name in IN_SIXTEEN_BITS),
        *(long(name, "bfloat16") for name in TORCH if name not in IN_SIXTEEN_BITS),
    ],
)
def test_pytorch_is_judged_in_double_precision(name, dtype):
    x = point(getattr(torch, dtype))
    right = judged(TORCH[name], (x,), 0)
    wrong = judged(spoiled(TORCH[name], 1.05), (x,), 0)

    assert right.verdict is Verdict.PASS, str(right)
    assert right.resolution < 1e-7
    assert "judged in float64" in right.provenance.note
    assert wrong.verdict is Verdict.FAIL


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("name", ["rand_like", "drop path"])
def test_pytorch_at_ten_seeds(name, seed):
    x = point(torch.float32, seed)

    assert judged(TORCH[name], (x,), seed, ["R", "F"]).verdict is Verdict.PASS
    assert judged(spoiled(TORCH[name], 1 + 1e-4), (x,), seed).verdict is Verdict.FAIL


def test_numbers_drawn_in_double_by_name_are_as_they_were():
    def f(x):
        return (x.double() * torch.rand(x.shape, dtype=torch.float64)).to(x.dtype) ** 2

    report = judged(f, (point(torch.float32),), 0)

    assert report.verdict is Verdict.PASS, str(report)
    assert judged(spoiled(f, 1.01), (point(torch.float32),), 0).verdict is Verdict.FAIL


JAX = {
    "bernoulli": lambda x: jnp.where(jax.random.bernoulli(KEY, 0.5, x.shape), x * x, jnp.sin(x)),
    "normal": lambda x: x + jnp.sin(x) * jax.random.normal(KEY, x.shape, x.dtype),
    "uniform": lambda x: x * x * jax.random.uniform(KEY, x.shape, x.dtype),
    "gumbel": lambda x: jax.nn.softmax((x + jax.random.gumbel(KEY, x.shape, x.dtype)) / 0.5),
    "a key that is folded": lambda x: (
        jnp.exp(x) * jax.random.uniform(jax.random.fold_in(KEY, 7), x.shape, x.dtype)
    ),
    "categorical": lambda x: x[jax.random.categorical(KEY, x, shape=(5,))] ** 2,
    "one number": lambda x: jax.scipy.special.logsumexp(20 * noisy(x)),
    "a linear system": lambda x: jnp.linalg.solve(5 * jnp.eye(6) + jnp.outer(noisy(x), x), x),
    "a loop": lambda x: jax.lax.scan(lambda h, y: (jnp.tanh(h + y), h), jnp.zeros(()), noisy(x))[1],
}


LONG = (
    *("gumbel", "bernoulli", "a linear system", "normal", "categorical", "one number", "uniform"),
    "a key that is folded",
)
"""What takes longest: other numbers are drawn alike, and go into other functions."""


def noisy(x):
    return x * (1 + 0.1 * jax.random.uniform(KEY, x.shape))


@cache  # JAX compiles anew for each function object
def spoiled_in_jax(f, factor):
    @jax.custom_vjp
    def g(x):
        return f(x)

    def backward(pullback, w):
        (found,) = pullback(w)
        return (found.at[jnp.argmax(jnp.abs(found))].multiply(factor),)

    g.defvjp(lambda x: jax.vjp(f, x), backward)
    return g


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        *((name, 0) for name in JAX if name not in LONG),
        *(long(name, 0) for name in LONG),
        *(long(name, 1) for name in JAX),
        *(long("one number", k) for k in range(2, 10)),
    ],
)
def test_jax_is_judged_in_double_precision(name, seed):
    x = jax.random.normal(jax.random.PRNGKey(seed), (6,), dtype=jnp.float32)
    right = adjudge.examine(JAX[name], (x,), seed=seed, modes=["R"], blame=False)
    wrong = spoiled_in_jax(JAX[name], 1 + 1e-4)
    wrong = adjudge.examine(wrong, (x,), seed=seed, modes=["R"], blame=False)

    assert right.verdict is Verdict.PASS, str(right)
    assert right.resolution < 1e-7
    assert "judged in float64" in right.provenance.note
    assert wrong.verdict is Verdict.FAIL
