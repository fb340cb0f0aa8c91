"""NumPy twins of the kernels of examples/raw_kernel_cupy.py, right and wrong in the same ways."""

import numpy as np

import adjudge


def twin(example, variant):
    """The pair of kernels of this variant, with all threads at once in place of one after another.

    `of_c[row] += part` with repeated rows is the race of the kernel: NumPy loads all, then stores
    one after another, and the last one is what is left.
    """
    kept = {}

    def smooth_abs(x, c):
        return np.sqrt(x * x + c[:, None])

    def backward(x, c, w):
        rows, columns = x.shape
        i = np.arange(x.size - (variant == example.BOUNDARY))
        row = i % rows if variant == example.INDEX else i // columns
        y = smooth_abs(x, c).ravel()[i]
        of_x, of_c = np.zeros(x.size), np.zeros_like(c)
        if variant == example.STALE:
            of_c = kept.setdefault("of_c", of_c)
        of_x[i] = w.ravel()[i] * x.ravel()[i] / y
        part = w.ravel()[i] / y * (1.0 if variant == example.FACTOR else 0.5)
        if variant == example.RACE:
            of_c[row] += part
        else:
            np.add.at(of_c, row, part)
        return of_x.reshape(x.shape), of_c.copy()

    return adjudge.ByHand(smooth_abs, vjp=backward)
