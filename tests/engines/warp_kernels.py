"""Kernels for the tests of Warp, whose compiler reads their source from a file."""

import warp as wp

Double = wp.array(dtype=wp.float64)


@wp.kernel
def product(a: Double, b: Double, y: Double):
    i = wp.tid()
    y[i] = wp.sin(a[i]) * b[i] * a[i]


@wp.kernel
def squares(a: Double, y: Double):
    i = wp.tid()
    wp.atomic_add(y, 0, a[i] * a[i])


@wp.kernel
def pair(a: Double, y: Double, z: Double):
    i = wp.tid()
    y[i] = wp.exp(a[i])
    z[i] = a[i] * a[i]


@wp.func_native(
    snippet="y[i] = a[i] * a[i];",
    adj_snippet="adj_a[i] += 2.0 * a[i] * adj_y[i];",
)
def squared(a: Double, i: int, y: Double): ...


@wp.func_native(
    snippet="y[i] = a[i] * a[i];",
    adj_snippet="adj_a[i] += a[i] * adj_y[i];",
)
def squared_wrongly(a: Double, i: int, y: Double): ...


@wp.kernel
def right_snippet(a: Double, y: Double):
    squared(a, wp.tid(), y)


@wp.kernel
def wrong_snippet(a: Double, y: Double):
    squared_wrongly(a, wp.tid(), y)
