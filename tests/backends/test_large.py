"""Large problems on engines: sums of blocks are taken where the arrays are."""

import numpy as np
import pytest
from scenarios import on_both

from adjudge import Verdict, examine

SIZE = 1000


@pytest.fixture
def settled(sums):
    """Everything goes by sums at once; whether they settled each of the checks so far."""
    return sums(0, 64)


def point(shape, dtype):
    x = np.random.default_rng(0).normal(size=shape)
    return (x + 1j * x[::-1] if dtype.startswith("complex") else x).astype(dtype)


@on_both
@pytest.mark.parametrize("factor", [1.0, 1 + 1e-4])
@pytest.mark.parametrize("dtype", ["float64", "complex128", "float32"])
def test_a_rule_is_settled_by_sums(adjudge_backend, spoiled, dtype, factor, settled):
    f = spoiled(adjudge_backend.xp.sin, lambda x, g: factor * g)

    report = examine(f, adjudge_backend.array(point(SIZE, dtype), dtype), seed=0)

    assert report.verdict is (Verdict.PASS if factor == 1 else Verdict.FAIL), str(report)
    assert settled == [factor == 1]


@pytest.mark.backend("torch")
def test_strides_are_those_of_the_input(settled, rule):
    import torch

    seen = set()

    def sine(x):
        seen.add(x.stride())
        return torch.sin(x)

    x = torch.from_numpy(point((40, 25), "float64")).T

    assert examine(rule(sine, lambda x, w: w * torch.cos(x)), x, seed=0)
    assert settled == [True]
    assert seen == {(1, 25)}


@pytest.mark.backend("torch")
def test_a_detached_output_is_left_to_the_whole_check(settled):
    import torch

    report = examine(lambda x: (torch.sin(x), torch.cos(x).detach()), torch.ones(SIZE).double())

    assert settled == [False]
    assert report.verdict is Verdict.FAIL


@pytest.mark.backend("jax")
def test_forward_mode_on_jax(settled):
    import jax.numpy as jnp

    x = jnp.asarray(point(SIZE, "float32"))

    assert examine(jnp.sin, x, check_forward_ad=True, seed=0)
    assert settled == [True]
