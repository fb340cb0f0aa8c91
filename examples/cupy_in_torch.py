"""A CuPy kernel inside `torch.autograd.Function`: on tensors of a GPU, or its NumPy twin on a CPU.

The smoothed absolute value `y = sqrt(x² + c)` with a coefficient for each row of x, once right and
four times wrong. Try it: `adjudge check examples/cupy_in_torch.py:right`.
"""

from contextlib import contextmanager
from functools import cache

import numpy as np
import torch
from torch.autograd.function import once_differentiable

import adjudge

OPERATION = "T y = sqrt(x * x + c); of_x = w * x / y; part = w / (2 * y)"


@cache
def kernels():
    """Both kernels; CuPy is imported where there are tensors of a GPU, and nowhere else."""
    import cupy as cp

    forward = cp.ElementwiseKernel("T x, T c", "T y", "y = sqrt(x * x + c)", "smooth_abs")
    backward = cp.ElementwiseKernel("T x, T c, T w", "T of_x, T part", OPERATION, "backward")
    return forward, backward


def forward_twin(x, c):
    """On NumPy arrays."""
    return np.sqrt(x * x + c)


def backward_twin(x, c, w):
    """On NumPy arrays."""
    y = forward_twin(x, c)
    return w * x / y, w / (2 * y)


@contextmanager
def shared(*tensors):
    """The kernels, and the tensors as arrays that share their memory.

    CuPy launches on a current stream of its own: without torch's entered here, a kernel may read
    what torch is still writing, and torch what the kernel is still writing.
    """
    tensors = [tensor.detach() for tensor in tensors]
    if not tensors[0].is_cuda:
        yield forward_twin, backward_twin, [tensor.numpy() for tensor in tensors]
        return
    import cupy as cp

    device = tensors[0].device
    stream = torch.cuda.current_stream(device).cuda_stream
    with cp.cuda.Device(device.index), cp.cuda.ExternalStream(stream, device.index):
        yield *kernels(), [cp.from_dlpack(tensor) for tensor in tensors]


class SmoothAbs(torch.autograd.Function):
    """See the module."""

    @staticmethod
    def forward(x, c):
        with shared(x, c) as (kernel, _, (x, c)):
            return torch.from_dlpack(kernel(x, c[:, None]))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)  # and not on ctx: so torch sees changes in place, and frees

    @staticmethod
    @once_differentiable  # torch cannot see into the kernel: without it the second order is zero
    def backward(ctx, w):
        return gradients(ctx, w)


def gradients(ctx, w):
    """Of both inputs, in the order of `forward`; `None` for one that needs none."""
    # A cotangent may have any strides, those of an expanded tensor (all zero) among them.
    # ElementwiseKernel takes strides as they are; a RawKernel takes an address: `w.contiguous()`.
    with shared(*ctx.saved_tensors, w) as (_, kernel, (x, c, w)):
        of_x, part = kernel(x, c[:, None], w)
        of_c = part.sum(axis=1) if ctx.needs_input_grad[1] else None
        of_x = of_x if ctx.needs_input_grad[0] else None
        return tuple(None if g is None else torch.from_dlpack(g) for g in (of_x, of_c))


WRONG = {
    "factor": lambda ctx, w: (gradients(ctx, w)[0], 2 * gradients(ctx, w)[1]),
    # the memory of w is read as if it had the strides of x
    "strides": lambda ctx, w: gradients(ctx, w.as_strided(w.shape, ctx.saved_tensors[0].stride())),
    # both gradients or none, though each input is asked for on its own
    "needed": lambda ctx, w: gradients(ctx, w) if all(ctx.needs_input_grad) else (None, None),
    "order two": gradients,  # not once_differentiable
}


def case(rule, name, device="cpu"):
    """A check of this backward pass, in which its mistake shows, on `x` of 5 rows of 4 and `c`."""
    function = type(name, (SmoothAbs,), {"backward": staticmethod(rule)}).apply
    # behind a transpose cotangents have the strides of one
    f = (lambda x, c: function(x, c).T.contiguous()) if name == "strides" else function
    random = np.random.default_rng(0)
    host = random.normal(size=(5, 4)), random.uniform(0.5, 2, size=5)
    inputs = tuple(torch.tensor(values, device=device, requires_grad=True) for values in host)
    options = {"needed": {"wrt": 0}, "order two": {"order": 2}}
    return adjudge.Case(f, inputs, name=name, **options.get(name, {}))


right = case(once_differentiable(gradients), "right")
CASES = [case(rule, name) for name, rule in WRONG.items()]
