"""Functions whose values or derivatives are zero since all that they are made of cancels: what
rounding leaves of that is no derivative, and an error beside it is one all the same.
"""

import numpy as np
from frameworks import torch
from scenarios import cells, long, over_seeds

from adjudge import Verdict, examine


def seeds_of(backend, seeds):
    """Fewer on JAX, which takes ten times as long: what is drawn is drawn by the core."""
    return seeds[:1] if backend.name == "jax" else seeds


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def log_softmax(xp, z):
    return z - xp.log(xp.exp(z).sum(-1))[..., None]


def divergence(xp, z, y):
    """That of Kullback and Leibler, of the softmax of `z` from that of `y`."""
    one, two = log_softmax(xp, z), log_softmax(xp, y)
    return (xp.exp(one) * (one - two)).sum(-1)


def less_maximum(xp, y):
    return y - xp.amax(y, -1)[..., None]


def between(x):
    return (0.7 * x.sum(-1) + 0.3 * x[:, 0])[:, None]


ZERO = {
    "a sum of probabilities": lambda xp, x: xp.exp(log_softmax(xp, x)).sum(-1) - 1,
    "squares of a sine and a cosine": lambda xp, x: xp.sin(x) ** 2 + xp.cos(x) ** 2 - 1,
    "one number less its maximum": lambda xp, x: less_maximum(xp, 0.3 * between(x)),
    "a product of that": lambda xp, x: between(x) * less_maximum(xp, between(x)),
    "a divergence of what is shifted": lambda xp, x: divergence(xp, x, less_maximum(xp, x)),
}


@over_seeds(10)
@cells("name", torch=[*ZERO], jax=[[*ZERO][1], long([*ZERO][3])])
def test_what_is_left_of_terms_that_cancel_passes(adjudge_backend, spoiled, name, seeds):
    def f(x):
        return ZERO[name](adjudge_backend.xp, x)

    wrong = spoiled(f, lambda x, g: g + 1e-6)
    for seed in seeds_of(adjudge_backend, seeds):
        x = adjudge_backend.array(normal(seed, 2, 3), "float64")

        right = examine(f, x, seed=seed)
        assert right.verdict is Verdict.PASS, right
        report = examine(wrong, x, seed=seed, blame=False)
        assert report.verdict is Verdict.FAIL, report


@over_seeds(5)
@cells("order", torch=[1, long(2)], jax=[long(1)])
def test_both_modes_of_what_cancels_agree(adjudge_backend, spoiled, order, seeds):
    def f(x):
        near = x * (1 + 1e-6)
        return divergence(adjudge_backend.xp, near - near.sum(-1)[:, None], x - x.sum(-1)[:, None])

    modes = {1: ["R", "F"], 2: ["RR", "FR"]}[order]
    wrong = spoiled(lambda x: f(x) + (x**2).sum(-1), lambda x, g: 1.01 * g)
    for seed in seeds_of(adjudge_backend, seeds if order == 1 else seeds[:1]):
        x = adjudge_backend.array(1e-4 * normal(seed, 2, 3), "float64")

        right = examine(f, x, modes=modes, seed=seed, blame=False)
        assert right.verdict is not Verdict.FAIL, right
        if order == 2:  # the wrong one is wrong in its first derivative
            continue
        report = examine(wrong, x, modes=["R"], seed=seed, blame=False)
        assert report.verdict is Verdict.FAIL, report


@over_seeds(10)
@cells("name", torch=["leaky_relu", "relu", "elu"])
def test_a_divergence_from_saturated_numbers_does_not_fail(adjudge_backend, spoiled, name, seeds):
    """Where a probability is 1 but for 1e-30, reverse mode loses what differences keep."""
    student = getattr(torch.nn.functional, name)

    def f(x):
        return divergence(torch, x - x[:, :1], (y := student(x.sin() * x)) - y[:, :1])

    wrong = spoiled(f, lambda x, g: 1.05 * g)
    for seed in seeds:
        x = torch.tensor([[61.0, 5.0, 0.1], [1.0, 2.0, 3.0]], dtype=torch.float64)
        x = x + 0.1 * torch.tensor(normal(seed, 2, 3))

        right = examine(f, x, seed=seed)
        assert right.verdict is not Verdict.FAIL, right
        report = examine(wrong, x, seed=seed, blame=False)
        assert report.verdict is Verdict.FAIL, report
