"""Large problems on engines: sums of blocks are taken where the arrays are."""

import numpy as np
import pytest

from adjudge import Verdict, examine

SIZE = 1000


@pytest.fixture
def settled(sums):
    """Everything goes by sums at once; whether they settled each of the checks so far."""
    return sums(0, 64)


def point(shape, dtype):
    x = np.random.default_rng(0).normal(size=shape)
    return (x + 1j * x[::-1] if dtype.startswith("complex") else x).astype(dtype)


@pytest.mark.backend("torch")
@pytest.mark.parametrize("factor", [1.0, 1 + 1e-4])
@pytest.mark.parametrize("dtype", ["float64", "complex128", "float32"])
def test_on_torch(dtype, factor, settled):
    import torch

    class Rule(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return torch.sin(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, w):
            return factor * w * torch.conj(torch.cos(ctx.saved_tensors[0]))

    x = torch.from_numpy(point(SIZE, dtype)).requires_grad_()
    report = examine(Rule.apply, x, seed=0)

    assert report.verdict is (Verdict.PASS if factor == 1 else Verdict.FAIL), str(report)
    assert settled == [factor == 1]
    assert x.grad is None


@pytest.mark.backend("torch")
def test_strides_are_those_of_the_input(settled):
    import torch

    seen = set()

    class Rule(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            seen.add(x.stride())
            ctx.save_for_backward(x)
            return torch.sin(x)

        @staticmethod
        def backward(ctx, w):
            return w * torch.cos(ctx.saved_tensors[0])

    x = torch.from_numpy(point((40, 25), "float64")).T

    assert examine(Rule.apply, x, seed=0)
    assert settled == [True]
    assert seen == {(1, 25)}


@pytest.mark.backend("torch")
def test_a_detached_output_is_left_to_the_whole_check(settled):
    import torch

    report = examine(lambda x: (torch.sin(x), torch.cos(x).detach()), torch.ones(SIZE).double())

    assert settled == [False]
    assert report.verdict is Verdict.FAIL


@pytest.mark.backend("jax")
@pytest.mark.parametrize("factor", [1.0, 1 + 1e-4])
@pytest.mark.parametrize("dtype", ["float64", "complex128", "float32"])
def test_on_jax(dtype, factor, settled):
    import jax
    import jax.numpy as jnp

    @jax.custom_vjp
    def f(x):
        return jnp.sin(x)

    f.defvjp(lambda x: (jnp.sin(x), x), lambda x, w: (factor * w * jnp.cos(x),))

    with jax.enable_x64(True):
        x = jnp.asarray(point(SIZE, dtype))
    report = examine(f, x, seed=0)

    assert report.verdict is (Verdict.PASS if factor == 1 else Verdict.FAIL), str(report)
    assert settled == [factor == 1]


@pytest.mark.backend("jax")
def test_forward_mode_on_jax(settled):
    import jax.numpy as jnp

    x = jnp.asarray(point(SIZE, "float32"))

    assert examine(jnp.sin, x, check_forward_ad=True, seed=0)
    assert settled == [True]
