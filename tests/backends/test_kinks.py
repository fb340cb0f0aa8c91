"""Kinks and jumps of the engines' own functions, and of rules that are wrong beside a kink."""

import pytest
from scenarios import cells, on_both

from adjudge import Status, Verdict, examine
from adjudge.findings import Meaning


def of_torch():
    import torch

    return {
        "relu": torch.relu,
        "sort": lambda x: x.sort().values,
        "hinge": lambda x: torch.relu(1 - x).sum(),
        "hardtanh": torch.nn.functional.hardtanh,
        "clamp": lambda x: x.clamp(0, 1),
        "max": lambda x: x.max(dim=0).values,
    }


def of_jax():
    import jax
    import jax.numpy as jnp

    return {
        "relu": jax.nn.relu,
        "sort": jnp.sort,
        "hinge": lambda x: jax.nn.relu(1 - x).sum(),
        "hardtanh": lambda x: jnp.where(jnp.abs(x) < 1, x, jnp.sign(x)),
    }


OWN = {"torch": of_torch, "jax": of_jax}
POINTS = {
    "relu": [0.0, 1.0, -2.0],
    "sort": [2.0, 1.0, 2.0],
    "hinge": [1.0, 0.2],
    "hardtanh": [1.0, -1.0, 0.3],
    "clamp": [0.0, 1.0, 0.5],
    "max": [2.0, 2.0, 1.0],
}


# JAX takes the mean of both sides for `clamp` and `max`, so that there differences see no kink
@cells("name", torch=POINTS, jax=[name for name in POINTS if name not in ("clamp", "max")])
@pytest.mark.parametrize(("mode", "letter"), [("full", "F"), ("projected", "R")])
def test_a_kink_passes_with_a_note(adjudge_backend, name, mode, letter):
    f, x = OWN[adjudge_backend.name]()[name], adjudge_backend.array(POINTS[name])

    report = examine(f, x, mode=mode, modes=[letter], seed=1)

    assert report.verdict is Verdict.PASS
    assert {Status.NONSMOOTH} == {finding.status for finding in report.findings}


JUMPS = {
    "floor": (lambda xp, x: xp.floor(x), 2.0),
    "floor and a slope": (lambda xp, x: xp.floor(x) + x, 2.0),
    "round": (lambda xp, x: xp.round(x), 0.5),
    "heaviside": (lambda xp, x: xp.where(x >= 0, x**2 + 1, x**2), 0.0),
}


@on_both
@pytest.mark.parametrize("name", JUMPS)
def test_a_jump_stays_open(adjudge_backend, name):
    f, at = JUMPS[name]

    report = examine(lambda x: f(adjudge_backend.xp, x), adjudge_backend.array([at, 0.7]), seed=1)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert Meaning.JUMP is report.findings[0].detail.meaning


@on_both
@pytest.mark.parametrize("n", [1, 300])
def test_a_relu_that_is_wrong_for_positive_entries_fails_at_zeros(adjudge_backend, with_vjp, n):
    xp = adjudge_backend.xp
    wrong = with_vjp(lambda x: xp.where(x > 0, x, 0 * x), lambda x, w: 0.5 * w * (x > 0))

    report = examine(wrong, adjudge_backend.array([0.0] * n))

    assert report.verdict is Verdict.FAIL
    assert 0.01 == report.ranked[0].moved


@on_both
def test_a_norm_at_zero_whose_gradient_is_not_a_number_stays_open(adjudge_backend):
    xp = adjudge_backend.xp

    report = examine(lambda x: xp.sqrt(xp.sum(x**2)), adjudge_backend.array([0.0] * 3))

    assert report.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("adjudge_backend", ["torch"], indirect=True)
def test_second_order_beside_a_kink_passes_and_at_it_stays_open(adjudge_backend):
    xp = adjudge_backend.xp

    def f(x):
        y = xp.where(x > 0, x, 0 * x)
        return y**2 + y * xp.sin(x)

    off, on = (
        examine(f, adjudge_backend.array([x]), modes=["R", "RR"], seed=1) for x in (0.7, 0.0)
    )

    assert off.verdict is Verdict.PASS
    assert on.verdict is not Verdict.FAIL
