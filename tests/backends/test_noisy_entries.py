"""An entry in which f and its derivative have lost most digits, beside others that have them."""

import pytest
from frameworks import torch
from scenarios import over_seeds

from adjudge import Verdict, examine

pytest.importorskip("torch")
pytestmark = pytest.mark.backend("torch")
NOISY = {
    "square root": lambda x: ((1 + x * x).sqrt() - 1) / x**2,
    "log cosh": lambda x: x.cosh().log() / x**2,
}


def own_gradient(f, factor):
    """The vjp of f as PyTorch has it, times a factor at the entries that are not small."""

    def vjp(x, g):
        x = x.detach().clone().requires_grad_()
        with torch.enable_grad():
            y = f(x)
        (found,) = torch.autograd.grad(y, x, g)
        return torch.where(x < 0.5, found, factor * found)

    return vjp


@over_seeds(10)
@pytest.mark.parametrize("name", NOISY)
def test_it_hides_no_error_in_the_others(rule, name, seeds):
    """The projection of all is open, and in blocks by themselves the others are not."""
    f = NOISY[name]
    x = torch.tensor([1e-4, 1e-2, 1.0], dtype=torch.float64)
    x.requires_grad_()

    for seed in seeds:
        right = examine(rule(f, own_gradient(f, 1.0)), (x,), seed=seed, blame=False)
        wrong = examine(rule(f, own_gradient(f, 1.01)), (x,), seed=seed, blame=False)
        assert right.verdict in (Verdict.PASS, Verdict.INCONCLUSIVE)
        assert wrong.verdict is Verdict.FAIL
