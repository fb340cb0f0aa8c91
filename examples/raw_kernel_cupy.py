"""CUDA kernels by hand and their backward kernels, once right and three times wrong.

The smoothed absolute value `y = sqrt(x² + c)` with a coefficient for each row of x, and its
gradients: for x elementwise, for c summed along the row. The wrong ones are mistakes that such
kernels are made with. Try it: `adjudge check examples/raw_kernel_cupy.py:right`.
"""

import cupy as cp
import numpy as np

import adjudge

SOURCE = r"""
extern "C" __global__
void forward(const double* x, const double* c, double* y, int rows, int columns) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < rows * columns) y[i] = sqrt(x[i] * x[i] + c[i / columns]);
}

extern "C" __global__
void backward(const double* x, const double* c, const double* w, double* of_x, double* of_c,
              int rows, int columns, int variant) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    int end = rows * columns - (variant == 2);            // 2: the last thread is left out
    if (i >= end) return;
    double y = sqrt(x[i] * x[i] + c[i / columns]);
    of_x[i] = w[i] * x[i] / y;
    double part = w[i] / y * (variant == 1 ? 1.0 : 0.5);  // 1: the factor 1/2 is forgotten
    if (variant == 3) of_c[i / columns] += part;          // 3: threads overwrite one another
    else atomicAdd(&of_c[i / columns], part);
}
"""

RIGHT, FACTOR, BOUNDARY, RACE = range(4)


def launch(kernel, size, arguments):
    """One thread per entry."""
    kernel(((size + 127) // 128,), (128,), arguments)


def pair(variant):
    """Forward and backward kernel as a hand-written derivative."""
    module = cp.RawModule(code=SOURCE)

    def smooth_abs(x, c):
        y = cp.empty_like(x)
        launch(module.get_function("forward"), x.size, (x, c, y, *map(np.int32, x.shape)))
        return y

    def backward(x, c, w):
        of_x, of_c = cp.zeros_like(x), cp.zeros_like(c)
        numbers = (*map(np.int32, x.shape), np.int32(variant))
        launch(module.get_function("backward"), x.size, (x, c, w, of_x, of_c, *numbers))
        return of_x, of_c

    return adjudge.ByHand(smooth_abs, vjp=backward)


def inputs():
    """`x` of 40 rows of 7, and one positive coefficient for each row."""
    random = np.random.default_rng(0)
    return cp.asarray(random.normal(size=(40, 7))), cp.asarray(random.uniform(0.5, 2, size=40))


if cp.is_available():
    right = adjudge.Case(pair(RIGHT), inputs(), name="right")
    factor = adjudge.Case(pair(FACTOR), inputs(), name="factor")
    boundary = adjudge.Case(pair(BOUNDARY), inputs(), name="boundary")
    race = adjudge.Case(pair(RACE), inputs(), name="race")
