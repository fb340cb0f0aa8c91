"""An entry in which f and its derivative have lost most digits, beside others that have them."""

import pytest
from frameworks import torch

from adjudge import Verdict, examine

pytest.importorskip("torch")
pytestmark = pytest.mark.backend("torch")
NOISY = {
    "square root": lambda x: ((1 + x * x).sqrt() - 1) / x**2,
    "log cosh": lambda x: x.cosh().log() / x**2,
}


def with_factor(f, factor):
    """f with its own gradient, times a factor at the entries that are not small."""

    class Times(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return f(x)

        @staticmethod
        def backward(ctx, g):
            x = ctx.saved_tensors[0].detach().clone().requires_grad_()
            with torch.enable_grad():
                y = f(x)
            (found,) = torch.autograd.grad(y, x, g)
            return torch.where(x < 0.5, found, factor * found)

    return Times.apply


@pytest.mark.parametrize("name", NOISY)
def test_it_hides_no_error_in_the_others(name):
    """The projection of all is open, and in blocks by themselves the others are not."""
    f = NOISY[name]
    x = torch.tensor([1e-4, 1e-2, 1.0], dtype=torch.float64)
    x.requires_grad_()

    for seed in range(10):
        right = examine(with_factor(f, 1.0), (x,), seed=seed, blame=False)
        wrong = examine(with_factor(f, 1.01), (x,), seed=seed, blame=False)
        assert right.verdict in (Verdict.PASS, Verdict.INCONCLUSIVE)
        assert wrong.verdict is Verdict.FAIL
