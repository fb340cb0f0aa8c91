"""CUDA kernels by hand and their backward kernels, once right and five times wrong.

The smoothed absolute value `y = sqrt(x² + c)` with a coefficient for each row of x, and its
gradients: for x elementwise, for c summed along the row. The wrong ones are mistakes that such
kernels are made with. Try it on a GPU: `adjudge check examples/raw_kernel_cupy.py:right`.
"""

import numpy as np

import adjudge

try:
    import cupy as cp
except ImportError:  # the kernels are tested on the CPU as well, where `pair` is given both
    cp = None

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
    int row = variant == 5 ? i % rows : i / columns;      // 5: x is taken for its transpose
    if (variant == 3) of_c[row] += part;                  // 3: threads overwrite one another
    else atomicAdd(&of_c[row], part);
}
"""

RIGHT, FACTOR, BOUNDARY, RACE, STALE, INDEX = range(6)
NAMES = ("right", "factor", "boundary", "race", "stale", "index")


def launch(kernel, size, arguments):
    """One thread per entry."""
    kernel(((size + 127) // 128,), (128,), arguments)


def pair(variant, module=None, xp=cp):
    """Forward and backward kernel as a hand-written derivative, on arrays of `xp`."""
    module = cp.RawModule(code=SOURCE) if module is None else module
    kept = {}

    def smooth_abs(x, c):
        y = xp.empty_like(x)
        launch(module.get_function("forward"), x.size, (x, c, y, *map(np.int32, x.shape)))
        return y

    def backward(x, c, w):
        of_x, of_c = xp.zeros_like(x), xp.zeros_like(c)
        if variant == STALE:  # 4: the kernel adds to what an earlier call left
            of_c = kept.setdefault("of_c", of_c)
        numbers = (*map(np.int32, x.shape), np.int32(variant))
        # a kernel takes addresses: a cotangent with other strides, or a broadcast one, is copied
        w = xp.ascontiguousarray(w)
        launch(module.get_function("backward"), x.size, (x, c, w, of_x, of_c, *numbers))
        return of_x, of_c.copy()

    return adjudge.ByHand(smooth_abs, vjp=backward)


def inputs(xp=cp):
    """`x` of 40 rows of 7, and one positive coefficient for each row."""
    random = np.random.default_rng(0)
    return xp.asarray(random.normal(size=(40, 7))), xp.asarray(random.uniform(0.5, 2, size=40))


def case(variant, module=None, xp=cp, **options):
    """A check of one variant."""
    return adjudge.Case(pair(variant, module, xp), inputs(xp), name=NAMES[variant], **options)


if cp is not None and cp.is_available():
    CASES = [case(variant) for variant in range(len(NAMES))]
