"""Evaluations by an executor: what frameworks keep for each thread, and what modules hold."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from frameworks import jax, torch

from adjudge import Status, Verdict, examine

pytest.importorskip("torch")
pytest.importorskip("jax")
jnp = jax.numpy
SEEDS = range(3)


@pytest.fixture(scope="module")
def threads():
    with ThreadPoolExecutor(2) as executor:
        yield executor


def notes(report):
    return [f.detail.reason.name for f in report.findings if f.status is Status.SEQUENTIAL]


def numbers(report):
    entries = [(str(e), e.automatic, e.reference, e.error) for e in report.entries]
    return report.verdict, entries, report.counts["comparisons"], report.stages


class Off(torch.autograd.Function):
    """A sine whose gradient is off by 1e-3."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, w):
        (x,) = ctx.saved_tensors
        return 1.001 * w * x.cos()


@jax.custom_vjp
def off(x):
    return jnp.sin(x)


off.defvjp(lambda x: (off(x), x), lambda x, w: (1.001 * w * jnp.cos(x),))

WEIGHT = torch.linspace(0.5, 1.5, 9).reshape(3, 3)
T = torch.linspace(0.3, 2.0, 3)

CASES = {
    "torch": (lambda x: x.sin() * x.sum(), lambda x: Off.apply(x) * x.sum(), T.double(), {}),
    "float32 weights": (lambda x: (WEIGHT @ x).sin(), lambda x: Off.apply(WEIGHT @ x), T, {}),
    "a set": (
        lambda x: x @ x,
        lambda x: x @ Off.apply(x),
        torch.eye(3).double() + 1,
        {"directions": "symmetric"},
    ),
    "jax": (lambda x: jnp.sin(x) * jnp.sum(x), lambda x: off(x) * x.sum(), jnp.ones(3), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_settings_of_a_framework_hold_in_other_threads(name, threads):
    right, wrong, x, options = CASES[name]
    for seed in SEEDS:
        for f, verdict in ((right, Verdict.PASS), (wrong, Verdict.FAIL)):
            here = examine(f, x, seed=seed, **options)
            there = examine(f, x, seed=seed, executor=threads, **options)

            assert notes(there) == []
            assert there.verdict is verdict
            assert numbers(here) == numbers(there)


def test_a_context_of_the_caller_holds_in_other_threads(threads):
    with torch.autocast("cpu", torch.bfloat16):
        here = examine(lambda x: (WEIGHT @ x).sin(), T, seed=1, in_double=False)
        there = examine(lambda x: (WEIGHT @ x).sin(), T, seed=1, in_double=False, executor=threads)

    assert notes(there) == []
    assert numbers(here) == numbers(there)


def test_modules_are_evaluated_one_after_another(threads):
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))

    parameters = examine(net.double(), x.double(), seed=1, executor=threads)
    statistics = examine(lambda x: net(x), x.double(), seed=1, executor=threads)

    assert notes(parameters) == ["HELD"]
    assert notes(statistics) == ["WRITES"]
    assert numbers(statistics) == numbers(examine(lambda x: net(x), x.double(), seed=1))


def test_derivatives_are_evaluated_here_and_a_note_says_so(threads):
    here = examine(jnp.sin, jnp.ones(3), modes=["RR"], seed=1)
    there = examine(jnp.sin, jnp.ones(3), modes=["RR"], seed=1, executor=threads)

    assert notes(there) == ["DERIVATIVE"]
    assert numbers(here) == numbers(there)


def test_random_numbers_are_replayed_one_after_another(threads):
    torch.manual_seed(0)
    report = examine(lambda x: torch.dropout(x, 0.5, True) * x, T, seed=1, executor=threads)

    assert report.verdict is Verdict.PASS
    assert notes(report) == ["RANDOM"]
    assert np.isfinite(report.resolution)
