"""Constants of a narrower dtype inside of a function, such as a unit matrix in float32, a mask or a
list of weights: they are exact floats of the formula, and no rounding of what is computed.
"""

from contextlib import nullcontext

import numpy as np
import pytest
from frameworks import jax, torch
from scenarios import cells, long, over_seeds

from adjudge import Verdict, examine
from adjudge.engine.registry import backend_named

pytest.importorskip("flint")

SINGLE = 2.0**-23


def cast(xp, x, name):
    return xp.astype(x, getattr(xp, name))


def filled(xp, x):
    weights = torch.zeros(3)
    weights[1] = 0.5
    weights.add_(0.25)
    return torch.sin(x) * weights


def drawn(xp, x):
    layer = torch.nn.Linear(3, 2, bias=False)
    torch.nn.init.uniform_(layer.weight, generator=torch.Generator().manual_seed(0))
    held = torch.empty(3, 2)
    held[:, 0].fill_(0.5)
    held[:, 1] = torch.arange(3) / 7
    return torch.sin(layer.double()(x)) + x @ held.double()


def one_hot_loss(xp, x):
    rows = torch.nn.functional.one_hot(torch.tensor([0, 2, 1]), 3).float()
    return -(torch.log_softmax(x, -1) * rows).sum()


def causal(xp, x):
    later = torch.triu(torch.ones(3, 3), 1) > 0
    return torch.softmax((x @ x.mT).masked_fill(later, -1e9), -1) @ x


CONSTANTS = {
    "a unit matrix": lambda xp, x: xp.exp(xp.sin(x) + xp.eye(3, dtype=xp.float32)),
    "a mask": lambda xp, x: xp.exp(x * cast(xp, x > 0, "float32")),
    "the mean of a mask": lambda xp, x: xp.sin(x) * xp.mean(cast(xp, x > 0, "float32")),
    "numbers": lambda xp, x: xp.sin(x * xp.asarray([1.0, 0.1, 3.0], dtype=xp.float32)),
    "a range": lambda xp, x: xp.sin(x) * xp.sqrt(xp.arange(1, 4, dtype=xp.float32)),
    "the shape of x": lambda xp, x: xp.sin(x) * xp.full_like(x, 0.3, dtype=xp.float32),
    "one that is filled": filled,
    "weights that are drawn": drawn,
    "a loss of labels": one_hot_loss,
    "a causal mask": causal,
    "a compiled range": lambda xp, x: xp.sin(x) * jax.jit(lambda: xp.arange(3, dtype=xp.float32))(),
}
SHAPES = {"a loss of labels": (3, 3), "a causal mask": (3, 3)}
JAX = [long("a unit matrix"), long("a mask"), "numbers", long("a range"), long("a compiled range")]


@over_seeds(2)
@cells("name", torch=[name for name in CONSTANTS if name != "a compiled range"], jax=JAX)
def test_a_constant_is_no_rounding(adjudge_backend, spoiled, name, seeds):
    """Each of these was judged to the digits of float32, so that an error of 1e-8 passed as
    certified."""
    backend = adjudge_backend

    def f(x):
        return CONSTANTS[name](backend.xp, x)

    def off(x, g):
        return g * (1 + 1e-8)

    for seed in seeds:
        x = backend.array(np.random.default_rng(seed).normal(size=SHAPES.get(name, 3)), "float64")
        right = examine(f, x, reference="exact", seed=seed, blame=False)
        wrong = examine(spoiled(f, off), x, reference="exact", seed=seed, blame=False)
        assert right.verdict is Verdict.PASS, right
        assert right.certified
        assert wrong.verdict is Verdict.FAIL, wrong


def into_zeros(xp, x):
    held = torch.zeros(3, 3)
    held[:2] = torch.sin(x[:2])
    return held.double() + x


def by_a_kernel(xp, x):
    """Written by code that no operator shows, through the memory of the result."""
    held = torch.zeros(3, 3)
    np.copyto(held.numpy(), x.detach().sin().numpy(), casting="same_kind")
    return held.double() * x


def by_a_kernel_into_empty_memory(xp, x):
    held = torch.empty(3, 3)
    np.copyto(held.numpy(), x.detach().sin().numpy(), casting="same_kind")
    return held.double() * x


def into_empty(xp, x):
    held = torch.empty(3, 3)
    held.zero_()[1:].fill_(2.0)
    held[:2] = torch.sin(x[:2])
    return held.double() + x


def of_a_subclass(xp, x):
    """Where the numbers of a subclass and of a sparse tensor lie is not known."""
    torch.empty(3, 3, layout=torch.sparse_coo)
    wrapped = x.as_subclass(type("Wrapped", (torch.Tensor,), {}))
    return wrapped.sin().float().double().as_subclass(torch.Tensor) * x


ROUNDED = {
    "a subclass beside empty memory": of_a_subclass,
    "a kernel": by_a_kernel,
    "a kernel that fills empty memory": by_a_kernel_into_empty_memory,
    "a conversion into empty memory": lambda xp, x: torch.empty(3, 3).copy_(x).sin().double(),
    "entries of empty memory": into_empty,
    "a conversion": lambda xp, x: cast(xp, xp.sin(cast(xp, x, "float32")), "float64") * x,
    "entries of zeros": into_zeros,
    "a conversion into zeros": lambda xp, x: torch.zeros(3, 3).copy_(x).sin().double(),
    "a view of zeros": lambda xp, x: torch.zeros(3, 3).t().add_(x).double() * x,
    "zeros that held a constant": lambda xp, x: (
        torch.zeros(3, 3).mul_(2).copy_(x).view(9).sin().view(3, 3).double()
    ),
    "entries of zeros of JAX": lambda xp, x: (
        xp.zeros((3, 3), dtype="float32").at[0].set(cast(xp, x[0], "float32")) + x
    ),
    "a loop": lambda xp, x: jax.lax.fori_loop(
        0, 2, lambda _, y: y + cast(xp, xp.sin(x), "float32"), xp.zeros((3, 3), dtype="float32")
    ),
    "a loop that begins with constants": lambda xp, x: jax.lax.fori_loop(
        0,
        2,
        lambda _, carried: (carried[0] + carried[1], cast(xp, xp.sin(x), "float32")),
        (xp.zeros((3, 3), dtype="float32"),) * 2,
    )[0],
}
TORCH = [
    "a kernel",
    "a subclass beside empty memory",
    "a kernel that fills empty memory",
    "a conversion into empty memory",
    "entries of empty memory",
    "a conversion",
    "entries of zeros",
    "a conversion into zeros",
    "a view of zeros",
]


@cells(
    "name",
    torch=[*TORCH, "zeros that held a constant"],
    jax=["a conversion", "entries of zeros of JAX", "a loop", "a loop that begins with constants"],
)
def test_what_is_made_of_x_in_a_narrower_dtype_is_rounding(adjudge_backend, request, name):
    backend = adjudge_backend
    wide = request.getfixturevalue("enable_x64") if backend.name == "jax" else nullcontext
    x = backend.array(np.random.default_rng(0).normal(size=(3, 3)), "float64")
    environment = backend_named(backend.name).environment
    with wide(True):
        seen = environment.spacings_inside(lambda x: (ROUNDED[name](backend.xp, x[0]),), (x,))
    assert max(seen) == SINGLE
