"""Every differentiable function of `keras.ops`, on PyTorch, JAX and TensorFlow.

Keras picks its engine when it is imported, so each engine has a process of its own. There a case is
judged by `adjudge.examine`, and its values and a vjp are written down; the parent compares these
across engines, and prints the tables. What is not in CASES is in CONSTANT, with the reason.

`nox -s keras` installs the engines and runs the test beside this, which compares the outcomes with
keras_ops.csv. The tables, with a reference for each FAIL, some 25 minutes:
`python tests/integration/keras_ops.py [--only PART OF A NAME] [--engine ENGINE] [--out FOLDER]`
"""

# ruff: noqa: E501, T201 the table has a line for each family of cases, and tables are printed

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from mpmath import mp

ENGINES = ("torch", "jax", "tensorflow")
os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras  # noqa: E402
from keras import ops  # noqa: E402

AGREE = 1e-9
"""How far two engines may differ, relative to the largest number: rounding of sums is below."""
SINGLE = 1e-4
"""The same where one of them computes in single precision."""

X = np.array([[0.55, -1.25, 2.0], [0.3, 1.7, -0.4]])
Y = np.array([[1.5, 0.75, -0.6], [-0.9, 0.2, 1.1]])
POSITIVE, UNIT = np.abs(X), X / 2.5
V, U = X[0], Y[1]
LONG = np.sin(np.arange(1.0, 13.0) * 1.7) * 1.3
A = np.array([[2.1, 0.3, -0.4], [0.5, 1.7, 0.2], [-0.3, 0.6, 1.4]])
B = np.array([[0.7, 0.1], [-0.5, 0.4], [0.2, -0.9]])
SPD = A @ A.T + np.eye(3)
Z = X + 1j * Y
ZEROS = np.array([0.7, 0.0, 1.3, 0.0, -0.4])
ZERO = np.array([0.7, 0.0, 1.3])
SIGNAL = np.cos(np.arange(24.0) ** 1.3).reshape(2, 12)
IMAGE = (np.sin(np.arange(2 * 4 * 4 * 2) ** 1.1) / 2 + 0.5).reshape(2, 4, 4, 2)
RGB = (np.sin(np.arange(2 * 5 * 5 * 3) ** 1.3) * 0.4 + 0.503).reshape(2, 5, 5, 3)
PLAIN = IMAGE[0, :, :, 0]
KERNEL = np.cos(np.arange(2 * 2 * 2 * 3) ** 1.2).reshape(2, 2, 2, 3)
TRANSPOSED = np.swapaxes(KERNEL, 2, 3).copy()
DEPTHWISE = np.cos(np.arange(2 * 2 * 2 * 1) ** 1.2).reshape(2, 2, 2, 1)
POINTWISE = np.sin(np.arange(1.0 * 2 * 3)).reshape(1, 1, 2, 3)
PROBABILITIES = np.array([[0.2, 0.5, 0.3], [0.6, 0.15, 0.25]])
TARGET = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
QUERY = np.sin(np.arange(1 * 3 * 2 * 4) ** 1.3).reshape(1, 3, 2, 4)
NAN = np.array([[0.5, np.nan, 2.0], [0.3, 1.7, np.nan]])
LOGITS = np.sin(np.arange(2 * 5 * 4) ** 1.4).reshape(2, 5, 4)
LABELS = np.array([[1, 2], [3, 1]])

Case = tuple[str, str, Callable[..., Any], tuple[Any, ...]]


def symmetric(x: Any) -> Any:
    """The symmetric part, on which functions of symmetric matrices are smooth."""
    return (x + ops.transpose(x)) / 2


def plain(names: str, *inputs: Any, at: str = "") -> Iterator[Case]:
    """Functions of arrays alone."""
    for name in names.split():
        yield name, at, lambda *x, name=name: getattr(ops, name)(*x), inputs


def given(*arguments: Any, at: str = "", **options: Any) -> Callable[[str, Any], Iterator[Case]]:
    """Functions of one array and constants."""

    def of(names: str, *inputs: Any) -> Iterator[Case]:
        for name in names.split():
            yield (
                name, at or ", ".join([*map(str, arguments), *map("{0[0]}={0[1]}".format, options.items())]),
                lambda *x, name=name: getattr(ops, name)(*x, *arguments, **options), inputs,
            )  # fmt: skip

    return of


def one(name: str, at: str, f: Callable[..., Any], *inputs: Any) -> Iterator[Case]:
    """A function that is called in a way of its own."""
    yield name, at, f, inputs


def image(name: str, at: str, f: Callable[..., Any], *inputs: Any) -> Iterator[Case]:
    """A function of `keras.ops.image`."""
    yield f"image.{name}", at, f, inputs


def svd_product(x: Any) -> Any:
    """What no sign of a singular vector changes."""
    u, s, v = ops.svd(x, full_matrices=False)
    return u * ops.sin(s) @ v, s


def eigh_product(x: Any) -> Any:
    """What no sign of an eigenvector changes."""
    w, v = ops.eigh(symmetric(x))
    return v * ops.sin(w) @ ops.transpose(v), w


def doubled(x: Any) -> Any:
    """x squared, by a rule of `ops.custom_gradient` as each engine calls it."""

    @ops.custom_gradient
    def f(x: Any) -> Any:
        def grad(*args: Any, upstream: Any = None) -> Any:
            (upstream,) = args if upstream is None else (upstream,)
            return upstream * 2.0 * x

        return x * x, grad

    return f(x)


SMOOTH = """abs absolute arctan arcsinh celu conj conjugate copy cos cosh deg2rad elu erf erfc exp exp2 expm1 fabs
flip fliplr flipud gelu glu hard_shrink hard_sigmoid hard_silu hard_swish hard_tanh leaky_relu
log_sigmoid log_softmax logsumexp negative rad2deg ravel relu relu6 selu sigmoid silu sin sinc
sinh soft_shrink softmax softplus softsign sparse_plus sparse_sigmoid sparsemax square squareplus swish
tan tanh tanh_shrink i0 transpose sort cumsum cumprod sum mean max min amax amin prod ptp std var median
nansum nanmean nanmax nanmin nanprod nanstd nanvar nanmedian nancumsum nancumprod norm normalize
rms_normalization layer_normalization nan_to_num cbrt reciprocal real diff unstack"""

CASES: list[Case] = [
    *(c for name in SMOOTH.split() if name != "glu" for c in plain(name, X)),
    *plain("glu", LONG),
    *plain("sqrt rsqrt log log10 log1p log2", POSITIVE),
    *plain("arccos arcsin arctanh erfinv", UNIT),
    *plain("arccosh", POSITIVE + 1.2),
    *plain("add subtract multiply divide true_divide maximum minimum fmax fmin arctan2 hypot", X, Y),
    *plain("logaddexp logaddexp2 divide_no_nan fmod mod inner outer kron append", X, Y), *plain("vdot", V, U),
    *plain("logaddexp logaddexp2", X, X, at="equal"),
    *plain("logaddexp logaddexp2", np.array([800.0, -800.0, 3.0]), np.array([799.0, 2.0, -800.0]), at="large"),
    *plain("softplus log_sigmoid sigmoid silu gelu tanh squareplus softsign", np.array([700.0, -700.0, 30.0, -30.0]), at="large"),
    *plain("logsumexp softmax log_softmax", np.array([800.0, -2.0, 799.0]), at="large"),
    *plain("power", POSITIVE, Y),
    *given(2)("power", X),
    *one("power", "0 ** 2", lambda x: ops.power(x, 2.0), ZERO),
    *plain("dot matmul", A, B), *plain("dot", V, U, at="vectors"),
    *one("tensordot", "axes=1", lambda a, b: ops.tensordot(a, b, axes=1), A, B),
    *one("einsum", "ij,jk->ki", lambda a, b: ops.einsum("ij,jk->ki", a, b), A, B),
    *one("einsum", "ii->i", lambda a: ops.einsum("ii->i", a), A),
    *plain("cross", X, Y), *plain("cdist", X, Y), *plain("correlate", LONG, V),
    *given(mode="same")("correlate", LONG, V),
    *plain("angle", Z), *plain("real imag conj abs square exp", Z, at="complex"),
    *plain("view_as_real", Z), *plain("view_as_complex", np.stack([X, Y], -1)),
    *plain("polar", POSITIVE, Y),
    *plain("prod cumprod nanprod nancumprod", ZERO, at="a zero"),
    *plain("prod cumprod nanprod nancumprod", ZEROS, at="two zeros"),
    *given(axis=1)("prod cumprod", np.array([[0.7, 0.0, 1.3], [0.0, 0.0, 0.4]])),
    *plain("sinc", ZERO, at="zero"), *plain("i0 cbrt", np.array([0.7, -4.0, 9.0]), at="large"),
    *plain("nansum nanmean nanmax nanmin nanprod nanstd nanvar nanmedian nancumsum nancumprod", NAN, at="nan"),
    *given(axis=1)("nansum nanmean nanmax nanmin nanprod nanstd nanvar nanmedian nancumsum nancumprod", NAN),
    *one("nan_to_num", "nan", ops.nan_to_num, NAN),
    *given(axis=-1)("sum mean max min amax amin prod ptp std var median logsumexp cumsum cumprod norm", X),
    *given(axis=-1)("softmax log_softmax flip sort normalize sparsemax", X),
    *given(0.3)("quantile percentile nanquantile nanpercentile", LONG),
    *given(0.3)("nanquantile nanpercentile", NAN),
    *(c for method in ("lower", "higher", "midpoint", "nearest") for c in given(0.3, method=method)("quantile", LONG)),
    *plain("median", LONG, at="even"),
    *given(axis=0)("average", X),
    *one("average", "weights", lambda x, w: ops.average(x, 1, w), X, POSITIVE),
    *one("batch_normalization", "all arguments", lambda x, m, v, o, s: ops.batch_normalization(x, m, v, -1, o, s), X, V, POSITIVE[0], U, V),
    *one("layer_normalization", "gamma, beta", lambda x, g, b: ops.layer_normalization(x, g, b), X, V, U),
    *one("rms_normalization", "scale", lambda x, s: ops.rms_normalization(x, s), X, V),
    *one("moments", "axis 0", lambda x: ops.moments(x, [0]), X),
    *one("binary_crossentropy", "output", lambda t, o: ops.binary_crossentropy(t, o), PROBABILITIES, PROBABILITIES[::-1]),
    *one("binary_crossentropy", "logits", lambda t, o: ops.binary_crossentropy(t, o, from_logits=True), PROBABILITIES, X),
    *one("categorical_crossentropy", "output", lambda t, o: ops.categorical_crossentropy(t, o), PROBABILITIES, PROBABILITIES[::-1]),
    *one("categorical_crossentropy", "logits", lambda t, o: ops.categorical_crossentropy(t, o, from_logits=True), PROBABILITIES, X),
    *one("sparse_categorical_crossentropy", "output", lambda o: ops.sparse_categorical_crossentropy(np.array([1, 0]), o), PROBABILITIES),
    *one("sparse_categorical_crossentropy", "logits", lambda o: ops.sparse_categorical_crossentropy(np.array([1, 0]), o, from_logits=True), X),
    *one("ctc_loss", "", lambda o: ops.ctc_loss(LABELS, o, np.array([2, 2]), np.array([5, 5])), LOGITS),
    *one("psnr", "", lambda a, b: ops.psnr(a, b, 2.0), X, Y),
    *given(1.5)("celu elu squareplus", X), *given(approximate=False)("gelu", X),
    *given(0.2)("leaky_relu hard_shrink soft_shrink", X), *given(0.2, 0.1)("threshold", X),
    *given(-0.9, 1.5)("clip", X),
    *one("ldexp", "", lambda x: ops.ldexp(x, np.array([1, 2, -1])), X),
    *one("where", "", lambda x, y: ops.where(x > 0.4, x, y), X, Y),
    *one("where", "a masked division by zero", lambda x: ops.where(x > 0.1, x / ops.where(x > 0.1, x, 1.0), x * x), ZEROS),
    *one("select", "", lambda x, y: ops.select([x > 0.4, y > 0.4], [x * x, y * x], 0.5), X, Y),
    *one("divide_no_nan", "zero over zero", lambda x: ops.divide_no_nan(x, ops.multiply(x, [1.0, 0.0, 2.0])), V),
    *one("cond", "", lambda x: ops.cond(True, lambda: x * x, lambda: x), X),
    *one("switch", "", lambda x: ops.switch(1, [lambda x: ops.cos(x), lambda x: ops.sin(x)], x), X),
    *one("map", "", lambda x: ops.map(lambda r: ops.sin(r) * r, x), X),
    *one("vectorized_map", "", lambda x: ops.vectorized_map(lambda r: ops.sin(r) * r, x), X),
    *one("vectorize", "", lambda x: ops.vectorize(lambda r: ops.sin(r) * r)(x), V),
    *one("scan", "", lambda x: ops.scan(lambda c, r: (c * r, c + r), x[0], x), X),
    *one("scan", "reverse", lambda x: ops.scan(lambda c, r: (c * r, c + r), x[0], x, reverse=True), X),
    *one("associative_scan", "product", lambda x: ops.associative_scan(lambda a, b: a * b, x), ZEROS),
    *one("fori_loop", "", lambda x: ops.fori_loop(0, 3, lambda i, v: ops.sin(v) * x, x), X),
    *one("while_loop", "", lambda x: ops.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * x), (0, x), maximum_iterations=5)[1], X),
    *one("custom_gradient", "", doubled, X),
    *one("jvp", "", lambda x, v: ops.jvp(lambda x: ops.sin(x) * x, (x,), (v,)), X, Y),
    *given((6,))("reshape", X), *given((2, 2, 3))("broadcast_to", X), *given(1)("expand_dims roll", X),
    *given(2)("repeat tile", X), *given(1, 0)("moveaxis swapaxes", X), *plain("squeeze", X[:, None][:1]),
    *plain("stack concatenate hstack vstack dstack", (X, Y)), *plain("meshgrid", V, U),
    *given(3)("split array_split", LONG), *given(3)("hsplit", X), *given(2)("vsplit", X), *given(2)("dsplit", IMAGE),
    *given(((1, 0), (0, 2)))("pad", X),
    *(c for mode in ("reflect", "symmetric") for c in given(((1, 0), (0, 2)), mode=mode)("pad", A)),
    *plain("diag", V), *plain("diag diagonal trace tril triu rot90", A), *plain("diagflat", V),
    *one("rot90", "k=2", lambda a: ops.rot90(a, 2), A), *given(3)("vander", V),
    *given("a b -> b a")("rearrange", X),
    *one("take", "an index twice", lambda x: ops.take(x, np.array([2, 0, 2]), axis=1), X),
    *one("take", "negative", lambda x: ops.take(x, np.array([-1, 0, -1]), axis=1), X),
    *one("take_along_axis", "an index twice", lambda x: ops.take_along_axis(x, np.array([[2, 2], [0, 1]]), axis=1), X),
    *one("get_item", "", lambda x: ops.get_item(x, (slice(None), 1)), X),
    *one("slice", "", lambda x: ops.slice(x, (0, 1), (2, 2)), X),
    *one("slice_update", "", lambda x, u: ops.slice_update(x, (0, 1), u), X, Y[:, :2]),
    *one("scatter", "an index twice", lambda v: ops.scatter(np.array([[0], [2], [2]]), v, (4,)), V),
    *one("scatter_update", "", lambda x, u: ops.scatter_update(x, np.array([[0], [2]]), u), LONG, V[:2]),
    *(c for r in ("add", "mul", "max", "min") for c in one("scatter_update", r, lambda x, u, r=r: ops.scatter_update(x, np.array([[0], [2]]), u, reduction=r), LONG, V[:2])),
    *(c for r in ("mul",) for c in one("scatter_update", "mul, an index twice", lambda x, u, r=r: ops.scatter_update(x, np.array([[0], [2], [2]]), u, reduction=r), LONG, V)),
    *(c for n in ("sum", "max", "min", "prod") for c in one(f"segment_{n}", "", lambda x, n=n: getattr(ops, f"segment_{n}")(x, np.array([0, 1, 1, 0, 2, 2, 2, 1, 0, 0, 1, 2]), 3), LONG)),
    *one("segment_prod", "a zero", lambda x: ops.segment_prod(x, np.array([0, 0, 0, 1, 1]), 2), ZEROS),
    *given(2)("top_k", X),
    *one("trapezoid", "y, x", lambda y, x: ops.trapezoid(y, x), V, U), *plain("trapezoid", X),
    *one("bincount", "weights", lambda w: ops.bincount(np.array([0, 2, 2]), weights=w, minlength=4), V),
    *one("linspace", "", lambda a, b: ops.linspace(a, b, 5), V, U), *one("logspace", "", lambda a, b: ops.logspace(a, b, 5), V, U),
    *one("geomspace", "", lambda a, b: ops.geomspace(a, b, 5), POSITIVE[0], POSITIVE[1]),
    *one("full", "", lambda v: ops.full((3,), v), np.array(0.7)), *one("full_like", "", lambda v: ops.full_like(X, v), np.array(0.7)),
    *one("array", "", ops.array, X), *one("convert_to_tensor", "", ops.convert_to_tensor, X),
    *one("cast", "float32 and back", lambda x: ops.cast(x, "float64"), X), *one("saturate_cast", "", lambda x: ops.saturate_cast(x, "float64"), X),
    *one("sparse_plus", "beyond", ops.sparse_plus, np.array([-3.0, 0.2, 3.0])),
    *one("corrcoef", "", ops.corrcoef, A), *one("unique", "", lambda x: ops.unique(x), V),
    # linear algebra
    *plain("inv det", A), *one("slogdet", "", ops.slogdet, SPD), *one("logdet", "", lambda x: ops.logdet(symmetric(x)), SPD), *plain("det", A[:, [1, 0, 2]], at="negative"),
    *one("slogdet", "negative", ops.slogdet, A[:, [1, 0, 2]]),
    *one("det", "singular", ops.det, np.array([[1.0, 2.0], [2.0, 4.0]])),
    *plain("pinv", A), *plain("pinv", B, at="tall"), *plain("pinv", B.T.copy(), at="wide"),
    *one("cholesky", "", lambda x: ops.cholesky(symmetric(x)), SPD), *one("cholesky", "upper", lambda x: ops.cholesky(symmetric(x), upper=True), SPD),
    *one("cholesky_inverse", "", lambda x: ops.cholesky_inverse(ops.tril(x)), A), *one("cholesky_inverse", "upper", lambda x: ops.cholesky_inverse(ops.triu(x), upper=True), A),
    *plain("solve lstsq", A, B), *one("lstsq", "tall", lambda a, b: ops.lstsq(a, b), B, V),
    *one("solve_triangular", "", lambda a, b: ops.solve_triangular(a, b), A, B), *one("solve_triangular", "lower", lambda a, b: ops.solve_triangular(a, b, lower=True), A, B),
    *plain("qr", A), *plain("qr", np.vstack([A, B.T @ A]), at="tall"), *given(mode="complete")("qr", A),
    *one("svd", "signs apart", svd_product, A), *one("svd", "tall", svd_product, np.vstack([A, B.T @ A])),
    *one("svd", "values", lambda x: ops.svd(x, compute_uv=False), A),
    *one("eigh", "signs apart", eigh_product, SPD), *one("eig", "values squared", lambda x: ops.sum(ops.square(ops.eig(x)[0])), A),
    *one("lu_factor", "", lambda x: ops.lu_factor(x)[0], A),
    *(c for order in (1, 2, 3, np.inf, -np.inf) for c in given(order)("norm", V)),
    *(c for order in ("fro", "nuc", 1, 2, np.inf, -1, -2) for c in given(order, axis=(0, 1))("norm", A)),
    *given(order=1)("normalize", X), *given(order=3)("normalize", X),
    # signals
    *one("fft", "", lambda a, b: ops.fft((a, b)), SIGNAL, SIGNAL[::-1].copy()), *one("fft2", "", lambda a, b: ops.fft2((a, b)), SIGNAL, SIGNAL[::-1].copy()),
    *one("ifft2", "", lambda a, b: ops.ifft2((a, b)), SIGNAL, SIGNAL[::-1].copy()),
    *plain("rfft", SIGNAL), *given(8)("rfft", SIGNAL), *one("irfft", "", lambda a, b: ops.irfft((a, b)), SIGNAL[:, :7], SIGNAL[::-1, :7].copy()),
    *one("irfft", "odd", lambda a, b: ops.irfft((a, b), 11), SIGNAL[:, :6], SIGNAL[::-1, :6].copy()),
    *given(4, 2, 4)("stft", SIGNAL), *one("istft", "", lambda a, b: ops.istft((a, b), 4, 2, 4), *[np.cos(np.arange(30.0) ** e).reshape(2, 5, 3) for e in (1.2, 1.4)]),
    *given(4, 3)("extract_sequences", SIGNAL),
    # networks
    *(c for p in ("valid", "same") for c in given(1, p)("conv depthwise_conv", IMAGE, KERNEL[..., :1]) if c[0] == "depthwise_conv"),
    *(c for p in ("valid", "same") for s in (1, 2) for c in given(s, p)("conv", IMAGE, KERNEL)),
    *given(dilation_rate=2)("conv", IMAGE, KERNEL), *(c for p in ("valid", "same") for s in (1, 2) for c in given(s, p)("conv_transpose", IMAGE, TRANSPOSED)),
    *given(2, "same")("depthwise_conv", IMAGE, DEPTHWISE), *plain("separable_conv", IMAGE, DEPTHWISE, POINTWISE),
    *(c for p in ("valid", "same") for c in given(2, 1, p)("average_pool max_pool", IMAGE)), *given(3, 2, "same")("average_pool max_pool", IMAGE),
    *given(2)("adaptive_average_pool adaptive_max_pool", IMAGE), *given(3)("adaptive_average_pool adaptive_max_pool", IMAGE),
    *plain("dot_product_attention", QUERY, QUERY[:, ::-1].copy(), QUERY * 1.5), *given(is_causal=True)("dot_product_attention", QUERY, QUERY[:, ::-1].copy(), QUERY * 1.5),
    *one("dot_product_attention", "bias", lambda q, b: ops.dot_product_attention(q, q * 0.5, q, bias=b), QUERY, np.sin(np.arange(18.0)).reshape(1, 2, 3, 3)),
    *given(2)("depth_to_space", np.concatenate([IMAGE, IMAGE], -1)), *given(2)("space_to_depth", IMAGE),
    *given(2)("unfold", np.moveaxis(IMAGE, -1, 1).copy()), *given((3, 3), 2)("fold", np.sin(np.arange(2.0 * 8 * 4)).reshape(2, 8, 4)),
    # images
    *(c for m in ("bilinear", "nearest") for fill in ("constant", "nearest", "wrap", "mirror", "reflect") for c in image("affine_transform", f"{m}, {fill}", lambda x, m=m, fill=fill: ops.image.affine_transform(x, np.array([[1.1, 0.2, 0.3, -0.1, 0.9, 0.4, 0.0, 0.0]] * 2), m, fill), IMAGE)),
    *image("affine_transform", "the transform", lambda t: ops.image.affine_transform(IMAGE, t), np.array([[1.1, 0.2, 0.3, -0.1, 0.9, 0.4, 0.01, 0.02]] * 2)),
    *image("perspective_transform", "", lambda x: ops.image.perspective_transform(x, np.array([[[0.0, 0], [0, 3], [3, 0], [3, 3]]] * 2), np.array([[[0.1, 0.2], [0.3, 2.6], [2.7, 0.4], [3, 2.9]]] * 2)), IMAGE),
    *image("perspective_transform", "the points", lambda p: ops.image.perspective_transform(IMAGE, np.array([[[0.0, 0], [0, 3], [3, 0], [3, 3]]] * 2), p), np.array([[[0.1, 0.2], [0.3, 2.6], [2.7, 0.4], [3, 2.9]]] * 2)),
    *image("crop_images", "", lambda x: ops.image.crop_images(x, 1, 0, target_height=2, target_width=3), IMAGE),
    *image("pad_images", "", lambda x: ops.image.pad_images(x, 1, 0, target_height=6, target_width=6), IMAGE),
    *image("extract_patches", "", lambda x: ops.image.extract_patches(x, 2), IMAGE), *image("extract_patches", "same", lambda x: ops.image.extract_patches(x, 3, 2, padding="same"), IMAGE),
    *image("extract_patches_3d", "", lambda x: ops.image.extract_patches_3d(x, 2), IMAGE.reshape(2, 4, 2, 4, 1)),
    *image("gaussian_blur", "", lambda x: ops.image.gaussian_blur(x), IMAGE), *image("sobel_edges", "", lambda x: ops.image.sobel_edges(x), IMAGE),
    *image("hsv_to_rgb", "", ops.image.hsv_to_rgb, RGB), *image("rgb_to_hsv", "", ops.image.rgb_to_hsv, RGB), *image("rgb_to_grayscale", "", ops.image.rgb_to_grayscale, RGB),
    *(c for order in (0, 1) for fill in ("constant", "nearest", "wrap", "mirror", "reflect") for c in image("map_coordinates", f"order {order}, {fill}", lambda x, o=order, fill=fill: ops.image.map_coordinates(x, np.array([[0.3, 1.6, -0.7, 3.4], [0.2, 2.7, 1.1, 4.3]]), o, fill), PLAIN)),
    *(c for fill in ("constant", "nearest", "wrap", "mirror", "reflect") for c in image("map_coordinates", f"the coordinates, {fill}", lambda c, fill=fill: ops.image.map_coordinates(PLAIN, c, 1, fill), np.array([[0.3, 1.6, -0.7, 3.4], [0.2, 2.7, 1.1, 4.3]]))),
    *(c for m in ("bilinear", "nearest", "bicubic", "lanczos3", "lanczos5") for size in ((7, 6), (3, 2)) for c in image("resize", f"{m}, {size}", lambda x, m=m, s=size: ops.image.resize(x, s, m), IMAGE)),
    *(c for m in ("bilinear", "bicubic", "lanczos3") for c in image("resize", f"{m}, antialias", lambda x, m=m: ops.image.resize(x, (3, 2), m, antialias=True), IMAGE)),
    *image("scale_and_translate", "the image", lambda x: ops.image.scale_and_translate(x, (2, 5, 6, 2), np.array([1.2, 1.4]), np.array([0.3, -0.2]), (1, 2), "linear"), IMAGE),
    *image("scale_and_translate", "scale and translation", lambda s, t: ops.image.scale_and_translate(IMAGE, (2, 5, 6, 2), s, t, (1, 2), "linear"), np.array([1.2, 1.4]), np.array([0.3, -0.2])),
    *image("scale_and_translate", "cubic", lambda s, t: ops.image.scale_and_translate(IMAGE, (2, 5, 6, 2), s, t, (1, 2), "cubic"), np.array([1.2, 1.4]), np.array([0.3, -0.2])),
    *image("ssim", "", lambda a, b: ops.image.ssim(a, b, filter_size=3), RGB, RGB[::-1].copy()),
    *image("elastic_transform", "a seed", lambda x: ops.image.elastic_transform(x, 2.0, 1.0, seed=3), IMAGE),
]  # fmt: skip

INTEGER = "whole numbers, truth values, shapes or dtypes"
CONSTANT = {
    INTEGER: """all allclose any argmax argmin argpartition argsort bitwise_and bitwise_invert
    bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor count_nonzero ctc_decode
    digitize dtype equal gcd greater greater_equal in_top_k is_tensor isclose isfinite isin isinf isnan
    isneginf isposinf isreal lcm left_shift less less_equal logical_and logical_not logical_or logical_xor
    matrix_rank multi_hot nanargmax nanargmin ndim nonzero not_equal one_hot right_shift searchsorted
    shape signbit size unravel_index histogram""",
    "a new array of numbers that are no input": """arange bartlett blackman empty empty_like eye hamming
    hanning identity kaiser ones ones_like tri zeros zeros_like""",
    "piecewise constant": "ceil floor floor_divide heaviside round sign trunc nextafter",
    "no derivative on purpose": "convert_to_numpy stop_gradient",
    "the bits of another dtype": "view",
}


# ---------------------------------------------------------------- references of their own

LINEAR = ("image.affine_transform", "image.perspective_transform", "image.sobel_edges", "ldexp")
"""Linear in the image, or in x, so that a derivative is a difference of two values."""


def _hsv_to_rgb(x: Any) -> Any:
    """Foley and van Dam, Computer Graphics: Principles and Practice, section 13.3.4."""

    def pixel(h: Any, s: Any, v: Any) -> list[Any]:
        k = int(h * 6)
        p, q, t = v * (1 - s), v * (1 - s * (h * 6 - k)), v * (1 - s * (1 - (h * 6 - k)))
        return [[v, t, p], [q, v, p], [p, v, t], [p, q, v], [t, p, v], [v, p, q]][k % 6]

    return np.array([pixel(*one) for one in x.reshape(-1, 3)])


TWINS: dict[str, Callable[..., Any]] = {
    "logaddexp": lambda x, y: np.vectorize(lambda a, b: mp.log(mp.exp(a) + mp.exp(b)))(x, y),
    "logaddexp2": lambda x, y: np.vectorize(
        lambda a, b: mp.log(mp.mpf(2) ** a + mp.mpf(2) ** b, 2)
    )(x, y),
    "cumprod": lambda x: np.cumprod(x, axis=-1),
    "nancumprod": lambda x: np.cumprod(x, axis=-1),
    "sinc": np.vectorize(mp.sincpi),
    "hard_sigmoid": np.vectorize(lambda a: min(max(a / 6 + mp.mpf(1) / 2, 0), 1)),
    "det": lambda x: x[0, 0] * x[1, 1] - x[0, 1] * x[1, 0],
    "unique": lambda x: np.array(sorted(x)),
    "image.hsv_to_rgb": _hsv_to_rgb,
}
"""The same functions on arrays of mpmath's numbers."""


def cotangent(size: int) -> Any:
    """The w of every vjp."""
    return np.random.default_rng(1).standard_normal(size)


def by_mpmath(twin: Callable[..., Any], inputs: tuple[Any, ...], size: int) -> Any:
    """The gradient of `<w, f>` in 50 digits."""
    flat = np.concatenate([np.ravel(host) for host in inputs])
    w = cotangent(size)

    def weighted(k: int, t: Any) -> Any:
        moved = [mp.mpf(float(entry)) for entry in flat]
        moved[k] += t
        parts = np.split(np.array(moved, dtype=object), np.cumsum([h.size for h in inputs])[:-1])
        x = [part.reshape(host.shape) for part, host in zip(parts, inputs, strict=True)]
        return sum(a * b for a, b in zip(w, np.ravel(twin(*x)), strict=True))

    with mp.workdps(50):
        return np.array(
            [float(mp.diff(lambda t, k=k: weighted(k, t), 0)) for k in range(flat.size)]
        )


def names() -> set[str]:
    """The functions of `keras.ops` and `keras.ops.image`."""
    public = {name for name in dir(ops) if callable(getattr(ops, name)) and name[0] != "_"}
    return public | {f"image.{name}" for name in dir(ops.image) if name[0] != "_"}


def judged(engine: str, only: str) -> Iterator[dict[str, Any]]:
    """What adjudge says of each case on one engine, with the values and a vjp."""
    import adjudge
    from adjudge.check import problem_of
    from adjudge.engine import backend_named
    from adjudge.problem import Reverse, observe

    keras.config.set_floatx("float64")
    if engine == "jax":
        import jax

        jax.config.update("jax_enable_x64", True)
    backend = backend_named(engine)

    def placed(host: Any) -> Any:
        if isinstance(host, tuple):
            return tuple(map(placed, host))
        return backend.arrays.make(host, str(host.dtype))

    for name, at, f, inputs in CASES:
        if only not in name:
            continue
        row: dict[str, Any] = {"name": name, "at": at}
        start = time.perf_counter()
        try:
            x = tuple(map(placed, inputs))
            report = adjudge.examine(f, x, modes=["R"], seed=1)
            row |= {"verdict": str(report.verdict.name), "said": str(report).split("\n")[0]}
            problem = problem_of(f, x, {})
            base = observe(problem)
            reverse = Reverse(problem)
            w = cotangent(base.Y.size)
            g, _ = reverse.pull(reverse.cotangent(base, w))
            row |= {"value": base.values[-base.Y.size :].tolist(), "gradient": g.tolist()}
            if name in LINEAR and not report and not at.startswith("the "):
                row["reference"] = _of_a_linear_function(f, inputs[0], placed, backend, w).tolist()
        except Exception as error:  # whatever an engine raises is a row of the table
            row.setdefault("verdict", "RAISED")
            row["raised"] = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
        yield row | {"seconds": time.perf_counter() - start}


def _of_a_linear_function(f: Any, x: Any, placed: Any, backend: Any, w: Any) -> Any:
    def value(host: Any) -> Any:
        return np.ravel(backend.arrays.to_host(f(placed(host))))

    units = np.eye(x.size).reshape(x.size, *x.shape)
    return np.array([w @ (value(unit) - value(np.zeros_like(x))) for unit in units])


def outcome_of(row: dict[str, Any]) -> str:
    """The verdict, or RAISED where there is no gradient to judge."""
    return "RAISED" if row["verdict"] == "FAIL" and "raised" in row else str(row["verdict"])


def uncovered() -> list[str]:
    """The functions of which neither CASES nor CONSTANT says anything, or both do."""
    listed = {name for reason in CONSTANT.values() for name in reason.split()}
    with_cases = {name for name, *_ in CASES}
    return sorted((names() ^ (listed | with_cases)) | (listed & with_cases))


def single(row: dict[str, Any]) -> bool:
    """Whether every value at inputs of float64 is a number of float32."""
    value = np.array(row.get("value", [0.0]))
    with np.errstate(over="ignore"):
        return bool(np.array_equal(value, np.float32(value), equal_nan=True)) and bool(
            np.any(value % 0.125)
        )


def differing(rows: dict[str, dict[str, Any]], what: str) -> list[str]:
    """The engines whose numbers are those of no other one."""
    known = {engine: np.array(row[what]) for engine, row in rows.items() if what in row}
    allowed = SINGLE if any(map(single, rows.values())) else AGREE

    def agree(a: Any, b: Any) -> bool:
        bound = allowed * np.nanmax(np.abs(a), initial=1.0)
        return a.shape == b.shape and np.allclose(a, b, rtol=0, atol=bound, equal_nan=True)

    return [
        engine
        for engine, mine in known.items()
        if len(known) > 1
        and not any(agree(mine, other) for one, other in known.items() if one != engine)
    ]


def beside_reference(case: Case, row: dict[str, Any], of_jax: dict[str, Any]) -> str:
    """The entry of the gradient that is furthest from the reference, and that."""
    name, _, _, inputs = case
    if "reference" in row:
        right, by = np.array(row["reference"]), "values of the linear function"
    elif name in TWINS:
        right, by = by_mpmath(TWINS[name], inputs, len(row["value"])), "mpmath"
    elif np.allclose(row["value"], of_jax.get("value", np.nan), rtol=1e-5):
        right, by = np.array(of_jax["gradient"]), "JAX"
    else:
        return " |  | differences alone: JAX has other values, or none"
    found = np.array(row["gradient"])
    error = np.abs(found - right)
    if (
        not np.nanmax(error, initial=0.0) > 1e-12 * np.max(np.abs(right))
        and not np.isnan(error).any()
    ):
        return f"{found[0]:.7g} | {right[0]:.7g} | {by}: a false alarm"
    k = int(np.argmax(np.where(np.isnan(error), np.inf, error)))
    return f"{found[k]:.7g} | {right[k]:.7g} | {by}"


def main() -> None:
    """Runs each engine in a process, and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--engine", choices=ENGINES, help="one engine, in this process")
    parser.add_argument("--out", help="a folder of results, written or read again")
    arguments = parser.parse_args()
    if arguments.engine:
        for row in judged(arguments.engine, arguments.only):
            print("ROW " + json.dumps(row), flush=True)
        return
    if wrong := uncovered():
        raise SystemExit(f"neither a case nor a constant, or both: {wrong}")
    folder = Path(arguments.out or tempfile.mkdtemp())
    tables = {engine: rows_of(engine, arguments.only, folder) for engine in ENGINES}
    _print_tables(tables, [case for case in CASES if arguments.only in case[0]])


def rows_of(engine: str, only: str, folder: Path) -> list[dict[str, Any]]:
    path = folder / f"{engine}.txt"
    if not path.exists():
        command = [sys.executable, __file__, "--engine", engine, "--only", only]
        with path.open("w", encoding="utf-8") as file:
            subprocess.run(
                command, stdout=file, check=True, env=os.environ | {"KERAS_BACKEND": engine}
            )
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line[4:]) for line in lines if line.startswith("ROW ")]


def _print_tables(tables: dict[str, list[dict[str, Any]]], cases: list[Case]) -> None:
    versions = [f"{one} {importlib.metadata.version(one)}" for one in ("keras", "torch", "jax")]
    versions.append("tensorflow " + importlib.import_module("tensorflow").__version__)
    print(f"{time.strftime('%Y-%m-%d')}, {', '.join(versions)}, float64 on the CPU")
    functions = len({name for name, *_ in cases})
    constant = sum(len(listed.split()) for listed in CONSTANT.values())
    print(f"{functions} functions, {len(cases)} cases; {constant} functions have no derivative\n")
    print(
        "| engine | PASS | FAIL | INCONCLUSIVE | raised | in float32 | seconds |\n"
        + "|---" * 7
        + "|"
    )
    for engine, rows in tables.items():
        counts = Counter(map(outcome_of, rows))
        columns = [counts[verdict] for verdict in ("PASS", "FAIL", "INCONCLUSIVE", "RAISED")]
        columns.append(sum(map(single, rows)))
        print(
            f"| {engine} | {' | '.join(map(str, columns))} | {sum(r['seconds'] for r in rows):.0f} |"
        )
    print("\n| wrong | at | engine | automatic | reference | by |\n|---|---|---|---|---|---|")
    for case, *rows in zip(cases, *tables.values(), strict=True):
        for engine, row in zip(tables, rows, strict=True):
            if outcome_of(row) == "FAIL":
                print(
                    f"| {case[0]} | {case[1]} | {engine} | {beside_reference(case, row, rows[1])} |"
                )
    print("\n| function | at | engine | what |\n|---|---|---|---|")
    for rows in zip(*tables.values(), strict=True):
        by_engine = dict(zip(tables, rows, strict=True))
        for engine, row in by_engine.items():
            if row["verdict"] != "PASS":
                said = row.get("raised") or row["said"].partition(": ")[2]
                print(
                    f"| {row['name']} | {row['at']} | {engine} | {said.replace('|', '/')[:200]} |"
                )
        for what in ("value", "gradient"):  # of most engines
            if apart := differing(by_engine, what):
                print(
                    f"| {rows[0]['name']} | {rows[0]['at']} | {', '.join(apart)} | another {what} |"
                )


if __name__ == "__main__":
    main()
