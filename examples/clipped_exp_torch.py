"""An autograd.Function in PyTorch whose second derivative is right, and one that is detached."""

import torch

import adjudge


class Expm1(torch.autograd.Function):
    """`exp(x) - 1`, its derivative from the saved result."""

    @staticmethod
    def forward(ctx, x):
        y = torch.expm1(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, w):
        (y,) = ctx.saved_tensors
        return w * (y + 1)


class Detached(Expm1):
    """The same, but the second derivative is lost: the result was saved without its history."""

    @staticmethod
    def backward(ctx, w):
        (y,) = ctx.saved_tensors
        return w * (y.detach() + 1)


x = torch.linspace(-1, 1, 5, dtype=torch.float64, requires_grad=True)

CASES = [
    adjudge.Case(Expm1.apply, (x,), name="expm1"),
    adjudge.Case(Expm1.apply, (x,), name="expm1, second order", order=2),
    adjudge.Case(Detached.apply, (x,), name="detached"),
    adjudge.Case(Detached.apply, (x,), name="detached, second order", order=2),
]
