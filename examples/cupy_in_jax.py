"""A CuPy kernel inside `jax.custom_vjp`, called back by JAX, or its NumPy twin on a CPU.

The smoothed absolute value `y = sqrt(x² + c)` with a coefficient for each row of x, once right and
four times wrong. Try it: `JAX_ENABLE_X64=1 adjudge check examples/cupy_in_jax.py:right`.
"""

from functools import cache

import jax
import numpy as np

import adjudge

OPERATION = "T y = sqrt(x * x + c); of_x = w * x / y; part = w / (2 * y)"


@cache
def kernels():
    """Both kernels as functions of host arrays: JAX calls back with those, on a GPU as well.

    So each call copies there and back. `cp.asnumpy` waits for CuPy's stream, JAX for its own.
    Outside of `jit` arrays are shared without a copy: `cp.from_dlpack(array)`.
    """
    import cupy as cp

    forward = cp.ElementwiseKernel("T x, T c", "T y", "y = sqrt(x * x + c)", "smooth_abs")
    backward = cp.ElementwiseKernel("T x, T c, T w", "T of_x, T part", OPERATION, "backward")

    def of_x_and_c(*arrays):
        of_x, part = backward(*map(cp.asarray, arrays))
        return cp.asnumpy(of_x), cp.asnumpy(part.sum(axis=-1))

    return lambda x, c: cp.asnumpy(forward(cp.asarray(x), cp.asarray(c))), of_x_and_c


def forward_twin(x, c):
    """On NumPy arrays."""
    return np.sqrt(x * x + c)


def backward_twin(x, c, w):
    """On NumPy arrays."""
    y = forward_twin(x, c)
    return w * x / y, (w / (2 * y)).sum(axis=-1)


@cache  # one function for good: JAX compiles a call anew for every callback that it has not seen
def callback(which):
    """The forward (0) or backward (1) kernel on what JAX calls back with.

    That is arrays of JAX, with which nothing may be computed here: JAX may wait for itself.
    """

    def back(x, c, *w):
        gpu = jax.default_backend() == "gpu"
        made = kernels() if gpu else (forward_twin, backward_twin)
        return made[which](np.asarray(x), np.asarray(c)[..., None], *map(np.asarray, w))

    return back


def call(which, like, *arrays):
    """A kernel, with results of the shapes and dtypes of `like`.

    Declare the dtypes of the inputs: without x64 JAX rounds results of float64 to float32.
    """
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), like)
    # vmap: with "broadcast_all" every array has the new axis in front, and the kernels take it.
    # "expand_dims" gives unmapped arrays an axis of 1, and a gradient of them another shape;
    # the default raises. "sequential" is right for any kernel, and one call an entry.
    return jax.pure_callback(callback(which), shapes, *arrays, vmap_method="broadcast_all")


def gradients(saved, w):
    """Of both inputs. JAX cannot see into a callback: second order needs a rule of its own."""
    return call(1, saved, *saved, w)


def with_backward(backward, save=lambda x, c, y: (x, c)):
    """`smooth_abs(x, c)` with this backward pass, and with what is saved for it."""

    @jax.custom_vjp
    def smooth_abs(x, c):
        return call(0, x, x, c)

    def forward(x, c):
        y = smooth_abs(x, c)
        return y, save(x, c, y)

    smooth_abs.defvjp(forward, backward)
    return smooth_abs


def second(change):
    """The backward pass with another gradient of c."""
    return lambda saved, w: (gradients(saved, w)[0], change(gradients(saved, w)[1]))


WRONG = {
    "factor": with_backward(second(lambda of_c: 2 * of_c)),
    "order": with_backward(second(lambda of_c: of_c[::-1])),
    "saved": with_backward(gradients, save=lambda x, c, y: (y, c)),  # y in place of x
    "zero": with_backward(second(lambda of_c: 0 * of_c)),
}


def inputs():
    """`x` of 5 rows of 4, and one positive coefficient for each row."""
    random = np.random.default_rng(0)
    return jax.numpy.asarray(random.normal(size=(5, 4))), jax.numpy.asarray(1 + random.random(5))


right = adjudge.Case(with_backward(gradients), inputs(), name="right")
CASES = [adjudge.Case(f, inputs(), name=name) for name, f in WRONG.items()]
