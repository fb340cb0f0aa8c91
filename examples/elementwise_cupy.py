"""Elementwise kernels and a fused one by hand: softplus, its jvp, its vjp, and the vjp of that.

First and second order are derivatives by different kernels, and each can be wrong alone. Try it on
a GPU: `adjudge check examples/elementwise_cupy.py:softplus`, and `:second` for the second order.
"""

import numpy as np

import adjudge

try:
    import cupy as cp
except ImportError:  # the kernels are tested on the CPU as well, by others of the same source
    cp = None

# input parameters, output parameters and operation of an ElementwiseKernel, for any dtype T
SOURCES = {
    "softplus": ("T x", "T y", "y = log1p(exp(x))"),
    "times_slope": ("T x, T w", "T g", "g = w / (1 + exp(-x))"),
    "wrong_slope": ("T x, T w", "T g", "g = w * exp(x)"),
}


def second_with(xp):
    """The vjp of `(x, w) -> w s(x)`, of plain operations, which `cupy.fuse` makes one kernel of."""

    def second(x, w, u):
        s = 1 / (1 + xp.exp(-x))
        return u * w * s * (1 - s), u * s

    return second


def wrong_second_with(xp):
    """With `1 - s` forgotten; the first order does not see it."""

    def second(x, w, u):
        s = 1 / (1 + xp.exp(-x))
        return u * w * s, u * s

    return second


def softplus_by(kernel, second, slope="times_slope"):
    """Softplus with its derivatives; `kernel` is `cupy.ElementwiseKernel` or called like it."""
    forward = kernel(*SOURCES["softplus"], "softplus")
    times_slope = kernel(*SOURCES[slope], slope)

    def softplus(x):
        return forward(x)

    # the slope is diagonal, so that one kernel serves tangents and cotangents
    return adjudge.ByHand(softplus, vjp=times_slope, jvp=times_slope, double_vjp=second)


def cases(kernel, fuse, xp):
    """Right, wrong in the first order, and wrong in the second order alone."""
    x = (xp.asarray(np.linspace(-3.0, 3.0, 12).reshape(3, 4)),)
    right = softplus_by(kernel, fuse(second_with(xp)))
    first = softplus_by(kernel, fuse(second_with(xp)), slope="wrong_slope")
    wrong = softplus_by(kernel, fuse(wrong_second_with(xp)))
    return [
        adjudge.Case(right, x, name="softplus", check_forward_ad=True),
        adjudge.Case(right, x, name="second", order=2),
        adjudge.Case(first, x, name="wrong first", check_forward_ad=True),
        adjudge.Case(wrong, x, name="wrong second, first order", modes=["R", "F"]),
        adjudge.Case(wrong, x, name="wrong second", order=2),
    ]


if cp is not None and cp.is_available():
    CASES = cases(cp.ElementwiseKernel, cp.fuse(), cp)
