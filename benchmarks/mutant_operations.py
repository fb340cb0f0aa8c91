"""Operations of real libraries with the mistakes that people make in their backward passes.

An operation is what draws its inputs, its forward pass, and under the name of the operation its
backward pass. There `pick(mistake, right, wrong)` stands at each place where somebody goes wrong:
it is the right value, but for the one mistake that is being made. A size n is about how many
numbers the inputs have.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.linalg import inv, solve, solve_triangular
from torch.nn import functional as F  # noqa: N812
from zoo_functions import Draw


class Pick:
    """Gives right values, but wrong ones where the mistake of this name is made."""

    def __init__(self, mistake: str = "") -> None:
        self.mistake = mistake
        self.seen: dict[str, None] = {}

    def __call__(self, mistake: str, right: Any, wrong: Any) -> Any:
        """One of two values; the mistake is remembered as one that can be made."""
        self.seen[mistake] = None
        return wrong if mistake == self.mistake else right


@dataclass(frozen=True)
class Operation:
    """A forward pass with its backward pass.

    The floating-point arrays that `draw` gives are the inputs; integers and booleans beside them
    are constants. `backward(pick, w, y, *drawn)` gives one gradient for each input.
    """

    name: str
    draw: Callable[[Draw, int], tuple[np.ndarray, ...]]
    forward: Callable[..., Any]
    backward: Callable[..., Any]
    computes_in: str = ""
    """The dtype in which both passes compute whatever the dtype of the inputs is."""
    refuses: tuple[str, ...] = ()
    """The dtypes that raise, as kernels for narrow dtypes do in double precision."""

    def gradients(self, pick: Pick, w: Sequence[Tensor], y: Sequence[Tensor], x: Any) -> Any:
        """What `backward` gives; it gets one cotangent and one output as they are."""
        one = [group[0] if len(group) == 1 else group for group in (w, y)]
        return self.backward(pick, *one, *x)

    def mistakes(self, w: Sequence[Tensor], y: Sequence[Tensor], x: Any) -> list[str]:
        """All mistakes that can be made in the backward pass."""
        pick = Pick()
        self.gradients(pick, w, y, x)
        return list(pick.seen)


OPERATIONS: dict[str, Operation] = {}
FUSED = ("layer norm", "rms norm", "softmax", "cross entropy", "rotary embedding", "gelu")
"""Operations that libraries compute in float32 for inputs of every dtype. They are here in three
forms: in the dtype of the inputs, in float32 (`x.float()` first), and in a kernel that does not
take float64."""


def operation(draw: Callable[..., Any], forward: Callable[..., Any]) -> Callable[..., Any]:
    """Adds an operation; what is decorated is its backward pass."""

    def add(backward: Callable[..., Any]) -> Callable[..., Any]:
        name = backward.__name__.strip("_").replace("_", " ")
        OPERATIONS[name] = Operation(name, draw, forward, backward)
        if name in FUSED:
            for more, refused in ((", in float32", ()), (", no float64", ("float64",))):
                wide = Operation(name + more, draw, forward, backward, "float32", refused)
                OPERATIONS[wide.name] = wide
        return backward

    return add


def rows(n: int, width: int) -> int:
    """How many rows of this width have about n numbers together, and at least two."""
    return max(2, n // width)


def side(n: float) -> int:
    """The side of a square matrix of about n numbers, at least three."""
    return max(3, math.isqrt(int(n)))


def total(x: Tensor, axis: Any = -1) -> Tensor:
    """The sum over an axis, which stays."""
    return x.sum(axis, keepdim=True)


def mean(x: Tensor, axis: Any = -1) -> Tensor:
    """The mean over an axis, which stays."""
    return x.mean(axis, keepdim=True)


def integers(d: Draw, bound: int, *shape: int) -> np.ndarray:
    """Random indices below a bound."""
    return d.rng.integers(0, bound, shape)


def complexes(d: Draw, *shape: int) -> np.ndarray:
    """Complex numbers with a normal real and imaginary part."""
    return d.normal(*shape) + 1j * d.normal(*shape)


def near_identity(d: Draw, k: int) -> np.ndarray:
    """A well-conditioned matrix that has no symmetry."""
    return np.eye(k) + 0.3 * d.normal(k, k) / math.sqrt(k)


def definite(d: Draw, k: int) -> np.ndarray:
    """A matrix whose symmetric part is positive definite, with eigenvalues that lie apart."""
    return np.diag(np.linspace(1.0, 3.0, k)) + 0.2 * d.normal(k, k) / k


# ---------------------------------------------------------------- normalisation


def normalised(pick: Pick, a: Tensor, x: Tensor, axes: Any, eps: float) -> tuple[Tensor, Tensor]:
    """h = (x - mean(x)) r and dx = r (a - mean(a) - h mean(a h)), for the cotangent a of h."""
    r = (x.var(axes, correction=pick("unbiased variance", 0, 1), keepdim=True) + eps).rsqrt()
    h = (x - pick("stale mean", mean(x, axes), mean(x[:1], axes))) * r
    along = pick("no variance term", mean(a * h, axes), 0.0)
    return h, r * (a - pick("no mean term", mean(a, axes), 0.0) - h * along)


@operation(
    lambda d, n: (0.03 * d.normal(rows(n, 16), 16), d.normal(16), d.normal(16)),
    lambda x, g, b: F.layer_norm(x, g.shape, g, b, 1e-4),
)
def layer_norm(pick, w, y, x, g, b):
    """dg = sum(w h) and db = sum(w)."""
    h, dx = normalised(pick, w * pick("no weight", g, 1.0), x, -1, pick("no eps", 1e-4, 0.0))
    return dx, pick("weight gradient without h", w * h, w * x).sum(0), w.sum(0)


@operation(
    lambda d, n: (d.normal(rows(n, 16), 16), d.normal(16)),
    lambda x, g: x * (mean(x**2) + 1e-5).rsqrt() * g,
)
def rms_norm(pick, w, y, x, g):
    """dx = r (a - h mean(a h)), with h = x r and a = g w."""
    r = (pick("mean of squares over the batch", mean(x**2), mean(x**2, 0)) + 1e-5).rsqrt()
    h, a = x * r, w * pick("no weight", g, 1.0)
    along = mean(a * pick("input for normalised input", h, x))
    dx = r * (a - pick("no variance term", h, 0.0) * pick("factor 2", 1, 2) * along)
    return dx, (w * pick("weight gradient from x", h, x)).sum(0)


@operation(
    lambda d, n: (0.03 * d.normal(rows(n, 18), 3, 6), d.normal(3), d.normal(3)),
    lambda x, g, b: F.batch_norm(x, None, None, g, b, training=True, eps=1e-4),
)
def batch_norm(pick, w, y, x, g, b):
    """The mean is over the batch and the positions of a channel."""
    axes = pick("statistics of each sample", (0, 2), (2,))
    a = w * pick("no weight", g[:, None], 1.0)
    h, dx = normalised(pick, a, x, axes, pick("no eps", 1e-4, 0.0))
    return dx, (w * h).sum((0, 2)), pick("mean for sum", w.sum((0, 2)), w.mean((0, 2)))


@operation(
    lambda d, n: (d.normal(rows(n, 24), 4, 6), d.normal(4), d.normal(4)),
    lambda x, g, b: F.group_norm(x, 2, g, b),
)
def group_norm(pick, w, y, x, g, b):
    """The mean is over the positions and the channels of a group."""
    grouped = (len(x), pick("all channels in one group", 2, 1), -1)
    a = w * pick("no weight", g[:, None], 1.0)
    h, dx = normalised(pick, a.reshape(grouped), x.reshape(grouped), -1, 1e-5)
    h, dx = h.reshape(x.shape), dx.reshape(x.shape)
    return dx, (w * h).sum((0, 2)), pick("first sample only", w, w[:1]).sum((0, 2))


@operation(
    lambda d, n: (0.01 * d.normal(rows(n, 16), 2, 8),),
    lambda x: F.instance_norm(x, eps=1e-5),
)
def instance_norm(pick, w, y, x):
    """The mean is over the positions of a channel of a sample."""
    axes = pick("statistics of the batch", (2,), (0, 2))
    return (normalised(pick, w, x, axes, pick("no eps", 1e-5, 0.0))[1],)


@operation(
    lambda d, n: (d.normal(rows(n, 8), 8), d.uniform(0.5, 2, rows(n, 8), 1)),
    lambda v, g: g * v / v.norm(dim=1, keepdim=True),
)
def weight_norm(pick, w, y, v, g):
    """dv = g / |v| (w - u (u . w)) and dg = u . w, with u = v / |v|."""
    norm = pick("norm over all", v.norm(dim=1, keepdim=True), v.norm())
    u = v / norm
    along = pick("no projection", total(u * w), 0.0)
    dv = pick("no gain", g, 1.0) / pick("norm squared", norm, norm**2) * (w - u * along)
    return dv, total(w * pick("gain gradient from v", u, v))


@operation(lambda d, n: (d.normal(rows(n, 16), 8), d.normal(rows(n, 16), 8)), F.cosine_similarity)
def cosine_similarity(pick, w, y, a, b):
    """da = w (b / |b| - y a / |a|) / |a|, and the same with a and b exchanged."""
    w, y = w[:, None], y[:, None]
    m, n = a.norm(dim=1, keepdim=True), b.norm(dim=1, keepdim=True)
    da = w * (b / n - pick("no projection", y, 0.0) * a / m) / pick("no norm", m, 1.0)
    db = w * (a / m - y * pick("norm missing", b / n, b)) / pick("norm of the other", n, m)
    return da, pick("wrong sign", db, -db)


# ---------------------------------------------------------------- attention and softmax


def softmax_backward(pick: Pick, w: Tensor, p: Tensor) -> Tensor:
    """ds = p (w - sum(p w))."""
    inner = total(p * w, pick("sum over the wrong axis", -1, -2))
    return p * (w - pick("no sum", inner, 0.0))


@operation(lambda d, n: (d.normal(rows(n, 8), 8),), lambda x: x.softmax(-1))
def softmax(pick, w, y, x):
    """dx = y (w - sum(y w))."""
    y = pick("input for output", y, x)
    dx = pick("diagonal only", softmax_backward(pick, w, y), w * y * (1 - y))
    return (pick("output left out", dx, w - total(y * w)) * pick("wrong sign", 1, -1),)


@operation(
    lambda d, n: (d.normal(rows(n, 8), 8), d.rng.random((rows(n, 8), 8)) < 0.3),
    lambda x, hidden: x.masked_fill(hidden, -1e4).softmax(-1),
)
def masked_softmax(pick, w, y, x, hidden):
    """As softmax, and zero where the mask hides the input."""
    dx = softmax_backward(pick, w, pick("mask forgotten", y, x.softmax(-1)))
    dx = dx.masked_fill(pick("mask inverted", hidden, ~hidden), 0.0)
    return (pick("factor 2", 1, 2) * pick("sum of the cotangent", dx, dx - y * total(w)),)


@operation(lambda d, n: (d.normal(rows(n, 8), 8),), lambda x: x.log_softmax(-1))
def log_softmax(pick, w, y, x):
    """dx = w - exp(y) sum(w)."""
    p = pick("no exponential", y.exp(), y)
    reduced = pick("mean for sum", total(w, pick("wrong axis", -1, 0)), mean(w))
    return (pick("wrong sign", 1, -1) * w - p * pick("no sum", reduced, w),)


@operation(lambda d, n: (d.normal(rows(n, 8), 8),), lambda x: x.logsumexp(-1))
def logsumexp(pick, w, y, x):
    """dx = w softmax(x)."""
    p = pick("softmax over the batch", x.softmax(-1), x.softmax(0))
    p = pick("not normalised", p, x.exp())
    p = pick("of the largest only", p, (x == x.amax(-1, keepdim=True)).to(x.dtype))
    return (pick("wrong sign", 1, -1) * pick("mean cotangent", w, 0 * w + w.mean())[:, None] * p,)


def attend(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """The attention and its weights."""
    s = q @ k.mT / math.sqrt(q.shape[-1])
    if causal:
        s = s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool).tril(), -math.inf)
    p = s.softmax(-1)
    return p @ v, p


def attention_backward(pick: Pick, w: Any, q: Any, k: Any, v: Any, causal: bool) -> Any:
    """dv = p' w, ds = softmax'(p, w v'), dq = ds k / sqrt(d) and dk = ds' q / sqrt(d)."""
    p = attend(q, k, v, causal)[1]
    scale = 1 / math.sqrt(q.shape[-1])
    ds = softmax_backward(pick, w @ v.mT, p) * pick("no scale", scale, 1.0)
    ds = pick("scale squared", ds, ds * scale)
    dk = pick("missing transpose", ds.mT, ds) @ q
    return ds @ pick("queries for keys", k, q), dk, pick("no transpose of p", p.mT, p) @ w


@operation(
    lambda d, n: tuple(d.normal(2, side(n / 6), side(n / 6)) for _ in range(3)),
    lambda q, k, v: attend(q, k, v, causal=False)[0],
)
def attention(pick, w, y, q, k, v):
    """Scaled dot-product attention."""
    return attention_backward(pick, w, q, k, v, causal=False)


@operation(
    lambda d, n: tuple(d.normal(2, side(n / 6), side(n / 6)) for _ in range(3)),
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
)
def causal_attention(pick, w, y, q, k, v):
    """Attention to what comes before, recomputed in the backward pass."""
    causal = pick("mask not recomputed", True, False)
    return attention_backward(pick, w, q, k, v, causal)


@operation(
    lambda d, n: (d.normal(4, (k := side(n / 8)), k), d.normal(2, k, k), d.normal(2, k, k)),
    lambda q, k, v: attend(q, *(x.repeat_interleave(2, 0) for x in (k, v)), causal=False)[0],
)
def grouped_query_attention(pick, w, y, q, k, v):
    """Two heads of queries share keys and values, whose gradients are added up."""
    more = [x.repeat_interleave(2, 0) for x in (k, v)]
    dq, *of_heads = attention_backward(pick, w, q, *more, causal=False)

    def of_group(x):
        x = x.unflatten(0, (2, 2))
        summed = pick("heads in the wrong order", x.sum(1), x.sum(0))
        summed = pick("first head of the group", summed, x[:, 0])
        return pick("mean for sum", summed, x.mean(1))

    return dq, *map(of_group, of_heads)


def rotated(x: Tensor, sign: int, shift: int = 0, exchanged: bool = False) -> Tensor:
    """Pairs of a first and a second half, turned by angles that grow with the position."""
    half = x.shape[-1] // 2
    position = torch.arange(x.shape[-2])[:, None] + shift
    angle = position * 0.1 ** (torch.arange(half, dtype=torch.float64) / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    cos, sin = (sin, cos) if exchanged else (cos, sin)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - sign * b * sin, b * cos + sign * a * sin], -1)


@operation(lambda d, n: (d.normal(2, rows(n, 16), 8),), lambda x: rotated(x, 1))
def rotary_embedding(pick, w, y, x):
    """The rotation back."""
    shift, exchanged = pick("position off by one", 0, 1), pick("cos and sin exchanged", False, True)
    dx = rotated(w, pick("not turned back", -1, 1), shift, exchanged)
    dx = pick("halves exchanged", dx, dx.roll(4, -1))
    return (pick("first half only", dx, torch.cat([dx[..., :4], w[..., 4:]], -1)),)


# ---------------------------------------------------------------- convolution and pooling


def convolved(pick: Pick, w: Tensor, x: Tensor, k: Tensor, **how: int) -> tuple[Tensor, Tensor]:
    """The gradients of the input and of the kernel of a convolution in one dimension."""
    flipped = pick("kernel flipped", k, k.flip(-1))
    flipped = pick("channels not transposed", flipped, flipped.transpose(0, 1))
    dx = torch.nn.grad.conv1d_input(x.shape, flipped, w, **how)
    seen = pick("input off by one", x, x.roll(1, -1))
    dk = torch.nn.grad.conv1d_weight(seen, k.shape, w, **how)
    first = torch.nn.grad.conv1d_weight(x[:1], k.shape, w[:1], **how)
    return dx, pick("first sample only", dk, first)


@operation(
    lambda d, n: (d.normal(rows(n, 27), 3, 9), d.normal(3, 3, 3), d.normal(3)),
    lambda x, k, b: F.conv1d(x, k, b, stride=2, padding=1),
)
def conv1d(pick, w, y, x, k, b):
    """A convolution with stride and padding."""
    db = pick("mean for sum", w.sum((0, 2)), w.mean((0, 2)))
    return *convolved(pick, w, x, k, stride=2, padding=1), db


@operation(
    lambda d, n: (d.normal(rows(n, 50), 2, 5, 5), d.normal(2, 2, 3, 3), d.normal(2)),
    lambda x, k, b: F.conv2d(x, k, b, padding=1),
)
def conv2d(pick, w, y, x, k, b):
    """A convolution in two dimensions."""
    seen = pick("kernel not flipped", k, k.flip(-1, -2))
    seen = pick("height and width exchanged", seen, seen.mT)
    seen = pick("channels not transposed", seen, seen.transpose(0, 1))
    dx = torch.nn.grad.conv2d_input(x.shape, seen, w, padding=1)
    dk = torch.nn.grad.conv2d_weight(x, k.shape, w, padding=1)
    dk = pick("transposed kernel gradient", dk, dk.mT)
    db = w.sum(pick("bias gradient of one sample", (0, 2, 3), (2, 3)))
    return dx, dk, db if db.ndim == 1 else db[0]


@operation(
    lambda d, n: (d.normal(rows(n, 18), 3, 6), d.normal(3, 3, 4), d.normal(3)),
    lambda x, k, b: F.conv_transpose1d(x, k, b, stride=2, padding=1),
)
def transposed_conv1d(pick, w, y, x, k, b):
    """dx is a convolution of w, and dk one of w with x."""
    seen = pick("kernel flipped", k, k.flip(-1))
    seen = pick("channels exchanged", seen, seen.transpose(0, 1))
    dx = F.conv1d(pick("cotangent off by one", w, w.roll(1, -1)), seen, stride=2, padding=1)
    dk = torch.nn.grad.conv1d_weight(w, k.shape, x, stride=2, padding=1)
    dk = pick("channels exchanged in the kernel", dk, dk.transpose(0, 1))
    return dx, dk, pick("no sum over positions", w.sum((0, 2)), w[..., 0].sum(0))


@operation(
    lambda d, n: (d.normal(rows(n, 48), 3, 16), d.normal(3, 1, 4)),
    lambda x, k: F.conv1d(F.pad(x, (3, 0)), k, groups=3),
)
def causal_depthwise_conv1d(pick, w, y, x, k):
    """Each position sees itself and three positions before."""
    kernel = pick("kernel flipped", k, k.flip(-1))
    before, after = pick("causal in the wrong direction", (0, 3), (3, 0))
    dx = F.conv1d(F.pad(w, (before, after)), kernel.flip(-1), groups=3)
    seen = F.pad(x, pick("padding off by one", (3, 0), (2, 1)))
    dk = torch.stack([(w * seen[..., j : j + 16]).sum((0, 2)) for j in range(4)], -1)[:, None]
    dk = pick("kernel gradient in reverse", dk, dk.flip(-1))
    return dx, pick("mean over the batch", 1, 1 / len(x)) * dk


def pooled_backward(pick: Pick, w: Tensor, x: Tensor) -> Tensor:
    """Each cotangent goes to the largest entry of its window, of 3 at a stride of 2."""
    at = F.max_pool1d(x, 3, 2, return_indices=True)[1]
    at = pick("index off by one", at, (at + 1) % x.shape[-1])
    dx = torch.zeros_like(x).scatter_add(-1, at, w)
    dx = pick("overwritten where windows overlap", dx, torch.zeros_like(x).scatter(-1, at, w))
    equal = (x.unfold(-1, 3, 2) == F.max_pool1d(x, 3, 2)[..., None]).to(x.dtype)
    windows = torch.arange(x.shape[-1]).unfold(0, 3, 2).flatten()

    def spread(weights):
        return torch.zeros_like(x).index_add(-1, windows, (weights * w[..., None]).flatten(-2))

    dx = pick("all that are equal", dx, spread(equal))
    return pick("mean of the window", dx, spread(torch.ones_like(equal) / 3))


@operation(lambda d, n: (d.normal(rows(n, 18), 2, 9),), lambda x: F.max_pool1d(x, 3, 2))
def max_pool1d(pick, w, y, x):
    """Windows overlap, and no two entries are equal."""
    return (pick("wrong sign", 1, -1) * pooled_backward(pick, w, x),)


@operation(
    lambda d, n: (np.maximum(d.normal(rows(n, 18), 2, 9), 0),), lambda x: F.max_pool1d(x, 3, 2)
)
def max_pool1d_of_rectified_data(pick, w, y, x):
    """Windows in which all entries are zero have ties."""
    return (pick("factor 2", 1, 2) * pooled_backward(pick, w, x),)


@operation(
    lambda d, n: (d.normal(rows(n, 30), 5, 6),),
    lambda x: F.avg_pool2d(x, 2, 2, padding=(1, 0), count_include_pad=False),
)
def avg_pool2d(pick, w, y, x):
    """Each cotangent is shared by the entries of its window that are no padding."""
    ones = torch.ones_like(x[:1])
    share = F.avg_pool2d(ones, 2, 2, padding=(1, 0)) * 4
    share = pick("padding counted", share, torch.full_like(share, 4.0))
    spread = (w / pick("not divided", share, 1.0)).repeat_interleave(2, -2).repeat_interleave(2, -1)
    dx = spread[:, pick("padding forgotten", 1, 0) :][:, :5]
    dx = pick("first entry only", dx, dx * (torch.arange(6) % 2 == 0))
    return (pick("columns off by one", dx, dx.roll(1, -1)),)


def averages(n: int, m: int, end: Callable[[int], int]) -> Tensor:
    """The matrix of adaptive average pooling from n to m positions."""
    matrix = torch.zeros(m, n, dtype=torch.float64)
    for i in range(m):
        matrix[i, i * n // m : end(i)] = 1 / (end(i) - i * n // m)
    return matrix


@operation(lambda d, n: (d.normal(rows(n, 20), 2, 10),), lambda x: F.adaptive_avg_pool1d(x, 4))
def adaptive_avg_pool1d(pick, w, y, x):
    """Windows from floor(i n / m) to ceil((i + 1) n / m), which overlap."""
    right = averages(10, 4, lambda i: -(-(i + 1) * 10 // 4))
    matrix = pick("end rounded down", right, averages(10, 4, lambda i: (i + 1) * 10 // 4))
    matrix = pick("not divided", matrix, (right > 0).to(right))
    matrix = pick("mean window", matrix, (right > 0) * 4 / 10.0)
    matrix = pick("order reversed", matrix, right.flip(0))
    matrix = pick("off by one", matrix, right.roll(1, -1))
    return (w @ matrix.to(w.dtype),)


@operation(lambda d, n: (d.normal(rows(n, 16), 2, 8),), lambda x: F.pad(x, (2, 3), mode="reflect"))
def reflection_pad(pick, w, y, x):
    """What was reflected is added to where it came from."""
    dx = w[..., 2:-3].clone()
    left, right = w[..., :2].flip(-1), w[..., -3:].flip(-1)
    left, right = pick("not flipped", (left, right), (left.flip(-1), right.flip(-1)))
    edge = pick("edge repeated", 1, 0)
    dx[..., edge : edge + 2] += pick("left side dropped", left, 0.0)
    dx[..., 5 - edge : 8 - edge] += pick("right side dropped", right, 0.0)
    return (pick("off by one", dx, dx.roll(1, -1)),)


@operation(
    lambda d, n: (d.normal(rows(n, 12), 2, 6),),
    lambda x: F.interpolate(x, size=9, mode="linear", align_corners=False),
)
def linear_interpolation(pick, w, y, x):
    """The transpose of the matrix of weights."""
    eye = torch.eye(6, dtype=torch.float64)[:, None]
    weights = F.interpolate(eye, size=9, mode="linear", align_corners=False)[:, 0]
    aligned = F.interpolate(eye, size=9, mode="linear", align_corners=True)[:, 0]
    weights = pick("corners aligned", weights, aligned)
    weights = pick("nearest", weights, F.interpolate(eye, size=9)[:, 0])
    weights = pick("ends swapped", weights, weights.flip(-1))
    weights = pick("divided by the scale", weights, weights * 6 / 9)
    return (w @ pick("off by one", weights, weights.roll(1, 0)).T.to(w.dtype),)


@operation(
    lambda d, n: (d.normal(1, 2, (k := side(n / 4)), k), d.uniform(-0.95, 0.95, 1, k, k, 2)),
    lambda x, grid: F.grid_sample(x, grid, align_corners=False),
)
def grid_sample(pick, w, y, x, grid):
    """Bilinear, with zeros outside; a grid of -1 to 1 spans the image."""
    seen = pick("x and y exchanged", grid, grid.flip(-1))
    aligned = pick("corners aligned", False, True)
    border = pick("border for zeros", 0, 1)
    kernel = torch.ops.aten.grid_sampler_2d_backward
    dx, dgrid = kernel(w, x, seen, 0, border, aligned, [True, True])
    dgrid = pick("no scale of the grid", dgrid, dgrid * 2 / x.shape[-1])
    dgrid = pick("one coordinate of the grid", dgrid, dgrid * torch.tensor([1, 0]))
    return pick("image transposed", dx, dx.mT), pick("wrong sign of the grid", dgrid, -dgrid)


# ---------------------------------------------------------------- losses


@operation(
    lambda d, n: (d.normal(rows(n, 8), 8), integers(d, 9, rows(n, 8)) - 1),
    lambda x, t: F.cross_entropy(x, t, ignore_index=-1, label_smoothing=0.1),
)
def cross_entropy(pick, w, y, x, t):
    """dx = w (softmax(x) - smoothed target) / count, and zero in rows that are ignored."""
    valid = (t >= 0)[:, None].to(x.dtype)
    at = pick("target off by one", t.clamp(min=0), (t.clamp(min=0) + 1) % 8)
    hot = F.one_hot(at, 8).to(x.dtype)
    smoothed = pick("no smoothing", 0.9 * hot + 0.1 / 8, hot)
    count = pick("no mean", pick("ignored rows counted", valid.sum(), len(t)), 1)
    dx = w * (pick("no softmax", x.softmax(-1), x) - pick("wrong sign", 1, -1) * smoothed) / count
    return (dx * pick("ignored rows kept", valid, 1.0),)


@operation(
    lambda d, n: (d.normal(rows(n, 16), 8), d.normal(rows(n, 16), 8)),
    lambda x, t: F.smooth_l1_loss(x, t, beta=0.5),
)
def smooth_l1(pick, w, y, x, t):
    """dx = clip((x - t) / beta) / count = -dt."""
    limit = pick("threshold 1", 1.0, 2.0)
    d = ((x - t) / pick("no beta", 0.5, 1.0)).clamp(-limit, limit)
    d = pick("only the sign", d, (x - t).sign())
    d = w * d / pick("no mean", x.numel(), 1)
    return pick("factor 2", d, 2 * d), pick("wrong sign of the target", -d, d)


@operation(
    lambda d, n: (d.normal(rows(n, 16), 8), d.rng.dirichlet(np.ones(8), rows(n, 16))),
    lambda x, t: F.kl_div(x.log_softmax(-1), t, reduction="batchmean"),
)
def kl_divergence(pick, w, y, x, t):
    """dx = (softmax(x) sum(t) - t) / rows and dt = (log t + 1 - log softmax(x)) / rows."""
    each = w / pick("divided by all entries", len(x), x.numel())
    dt = t.log() + pick("derivative of log t missing", 1.0, 0.0) - x.log_softmax(-1)
    dx = pick("no softmax", x.softmax(-1) * total(t), 0.0) - t
    return pick("wrong sign", 1, -1) * each * dx, each * pick("no log of the target", dt, t)


@operation(lambda d, n: (d.normal(rows(n, 8), 8), integers(d, 8, rows(n, 8))), F.multi_margin_loss)
def multi_margin_loss(pick, w, y, x, t):
    """The target gets minus the number of classes inside of the margin."""
    hot = F.one_hot(t, 8).to(x.dtype)
    margin = pick("margin 0", 1.0, 0.0) - total(x * hot) + x
    inside = (margin > 0).to(x.dtype) * (1 - pick("target counted", hot, 0.0))
    count = pick("target counted once", total(inside), 1.0)
    dx = inside - hot * pick("no gradient of the target", count, 0.0)
    return (w * dx / len(x) / pick("not divided by classes", 8, 1),)


@operation(
    lambda d, n: (d.normal(n), integers(d, 2, n)),
    lambda x, t: (
        (0.75 - t.to(x.dtype) / 2) * (x - 2 * t * x).sigmoid() ** 2 * F.softplus(x - 2 * t * x)
    ).mean(),
)
def focal_loss(pick, w, y, x, t):
    """With s = 2 t - 1 and p = sigmoid(s x): s alpha (2 p (1 - p)^2 log p - (1 - p)^3)."""
    s = 2 * t - 1
    p = pick("sign of the target", s * x, x).sigmoid()
    alpha = pick("no alpha", 0.75 - t.to(x.dtype) / 2, 1.0)
    modulating = pick("detached weight", 2 * p * (1 - p) ** 2 * p.log(), 0.0)
    dx = s * alpha * (modulating - (1 - p) ** pick("exponent off by one", 3, 2))
    return (w * pick("wrong sign", dx, -dx) / pick("no mean", len(x), 1),)


@operation(
    lambda d, n: (d.normal(rows(n, 4), 4), d.uniform(0.5, 3, 4), integers(d, 2, rows(n, 4), 4)),
    lambda x, p, t: (F.softplus(x) * (1 - t) + p * F.softplus(-x) * t).mean(),
)
def binary_cross_entropy(pick, w, y, x, p, t):
    """dx = ((1 - t) s - t p (1 - s)) / count and dp = -t log(s) / count, with s = sigmoid(x)."""
    s = x.sigmoid()
    w = w / pick("no mean", x.numel(), 1)
    positive = t * pick("no weight", p, 1.0) * (1 - s)
    dx = (1 - t) * pick("logit for probability", s, x) - positive
    dx = pick("derivative of the sigmoid twice", dx, dx * s * (1 - s))
    dp = -(t * F.logsigmoid(x)).sum(pick("weight gradient over all", 0, (0, 1)))
    return w * pick("wrong sign", dx, -dx), w * dp.expand_as(p)


@operation(
    lambda d, n: (d.normal(n), d.normal(n), d.uniform(0.2, 2, n)),
    lambda x, t, v: F.gaussian_nll_loss(x, t, v),
)
def gaussian_nll(pick, w, y, x, t, v):
    """dx = (x - t) / v = -dt and dv = (1 / v - (x - t)^2 / v^2) / 2."""
    w = w / len(x)
    dx = pick("factor 2", 1, 2) * (x - t) / pick("no variance", v, 1.0)
    square = (x - t) ** 2 / pick("variance not squared", v**2, v)
    dv = 0.5 * (pick("no log term", 1 / v, 0.0) - pick("wrong sign", 1, -1) * square)
    return w * dx, pick("target without gradient", -w * dx, 0 * dx), w * dv


# ---------------------------------------------------------------- recurrent cells


def cell_inputs(d: Draw, n: int, gates: int, states: int) -> tuple[np.ndarray, ...]:
    """x, the states, both weights and the bias of a recurrent cell with k inputs and k units."""
    k = max(2, math.isqrt(n // (2 * gates)))
    weights = (d.normal(gates * k, k) / math.sqrt(k) for _ in range(2))
    return d.normal(3, k), *(d.normal(3, k) for _ in range(states)), *weights, d.normal(gates * k)


@operation(
    lambda d, n: cell_inputs(d, n, 4, 2),
    lambda x, h, c, a, b, bias: torch.lstm_cell(x, (h, c), a, b, bias, 0 * bias),
)
def lstm_cell(pick, w, y, x, h, c, a, b, bias):
    """c' = f c + i g and h' = o tanh(c'), with gates i, f, g, o."""
    i, f, g, o = (x @ a.T + h @ b.T + bias).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    t = y[1].tanh()
    dc = pick("no cotangent of the cell", w[1], 0.0) + w[0] * o * (
        1 - pick("tanh not squared", t**2, t)
    )
    df = dc * pick("new cell for the old", c, y[1]) * f * (1 - f)
    do = w[0] * t * pick("no derivative of the gate", o * (1 - o), 1.0)
    parts = [dc * g * i * (1 - i), df, dc * i * (1 - g**2), do]
    d = torch.cat(pick("gates in the wrong order", parts, [parts[k] for k in (0, 2, 1, 3)]), 1)
    dh = pick("input weights for the state", d @ b, d @ a)
    dbias = pick("bias of one sample", d.sum(0), d[0])
    return d @ a, dh, pick("no forget gate", dc * f, dc), d.T @ x, d.T @ h, dbias


@operation(
    lambda d, n: cell_inputs(d, n, 3, 1),
    lambda x, h, a, b, bias: torch.gru_cell(x, h, a, b, 0 * bias, bias),
)
def gru_cell(pick, w, y, x, h, a, b, bias):
    """h' = (1 - z) n + z h with n = tanh(x_n + r h_n)."""
    xr, xz, xn = (x @ a.T).chunk(3, 1)
    hr, hz, hn = (h @ b.T + bias).chunk(3, 1)
    r, z = (xr + hr).sigmoid(), (xz + hz).sigmoid()
    n = (xn + r * hn).tanh()
    dn = w * (1 - z) * (1 - pick("tanh not squared", n**2, n))
    dz = w * pick("wrong sign", h - n, n - h) * z * (1 - z)
    dr = dn * pick("state for its product", hn, h) * r * (1 - r)
    of_x = torch.cat([dr, dz, dn], 1)
    of_h = torch.cat([dr, dz, dn * pick("reset gate forgotten", r, 1.0)], 1)
    dh = of_h @ b + pick("no direct path", w * z, 0.0)
    return of_x @ a, dh, of_x.T @ pick("state for input", x, h), of_h.T @ h, of_h.sum(0)


def run(x: Tensor, h: Tensor, a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
    """The states of a plain recurrent network at every step."""
    states = []
    for now in x:
        h = (now @ a.T + h @ b.T + bias).tanh()
        states.append(h)
    return torch.stack(states)


@operation(lambda d, n: (d.normal(4, *(t := cell_inputs(d, n, 1, 1))[0].shape), *t[1:]), run)
def recurrent_network(pick, w, y, x, h, a, b, bias):
    """Backpropagation through four steps."""
    before = torch.cat([h[None], y[:-1]])
    carried, ds = torch.zeros_like(h), []
    for t in range(3, -1, -1):
        d = w[t] + pick("truncated to one step", carried, 0.0)
        d = d * (1 - pick("tanh not squared", y[t] ** 2, y[t]))
        carried = d @ pick("missing transpose", b, b.T)
        ds.insert(0, d)
    d = torch.stack(ds)
    d = pick("last step only", d, torch.cat([0 * d[:-1], d[-1:]]))
    db = torch.einsum("tni,tnj->ij", d, pick("state off by one", before, y))
    return d @ a, carried, torch.einsum("tni,tnj->ij", d, x), db, d.sum((0, 1))


@operation(
    lambda d, n: (d.uniform(0.2, 0.95, 8, rows(n, 16)), d.normal(8, rows(n, 16))),
    lambda a, x: run_scan(a, x),
)
def linear_scan(pick, w, y, a, x):
    """h_t = a_t h_(t-1) + x_t, as in state-space models."""
    start = torch.zeros_like(y[:1])
    after = torch.cat([a[1:], start])
    decay = pick("decay off by one", after, a)
    dx = run_scan(decay.flip(0), w.flip(0)).flip(0)
    dx = pick("not carried back", dx, w)
    dx = pick("run forwards", dx, run_scan(a, w))
    da = dx * pick("new state for the old", torch.cat([start, y[:-1]]), y)
    return pick("input for state", da, dx * x), dx


def run_scan(a: Tensor, x: Tensor) -> Tensor:
    """All states of a linear recurrence along the first axis."""
    states = [x[0]]
    for decay, now in zip(a[1:], x[1:], strict=True):
        states.append(decay * states[-1] + now)
    return torch.stack(states)


# ---------------------------------------------------------------- scatter and gather


@operation(
    lambda d, n: (d.normal(rows(n, 8), 8), integers(d, 8, rows(n, 8), 8)),
    lambda x, at: x.gather(1, at),
)
def gather(pick, w, y, x, at):
    """Entries that were taken more than once get a sum."""
    at = pick("index off by one", at, (at + 1) % 8)
    zero = torch.zeros_like(x)
    dx = pick("overwritten", zero.scatter_add(1, at, w), zero.scatter(1, at, w))
    dx = pick("gathered again", dx, w.gather(1, at))
    counts = zero.scatter_add(1, at, torch.ones_like(w)).clamp(min=1)
    dx = pick("mean for sum", dx, dx / counts)
    return (pick("first row of indices", dx, zero.scatter_add(1, at[:1].expand_as(at), w)),)


@operation(
    lambda d, n: (
        d.normal(rows(n, 16), 8),
        d.normal(rows(n, 16), 8),
        integers(d, 8, rows(n, 16), 8),
    ),
    lambda x, source, at: x.scatter_add(1, at, source),
)
def scatter_add(pick, w, y, x, source, at):
    """dx = w, and what was added gets the cotangent of where it went."""
    seen = pick("index off by one", at, (at - 1) % 8)
    dsource = pick("not gathered", w.gather(1, seen), w)
    dsource = pick("scattered again", dsource, torch.zeros_like(w).scatter_add(1, at, w))
    counts = torch.zeros_like(w).scatter_add(1, at, torch.ones_like(w)).gather(1, at)
    dsource = pick("divided by the count", dsource, dsource / counts)
    kept = pick("zero where something was added", w, w.scatter(1, at, 0.0))
    return kept, pick("wrong sign", dsource, -dsource)


@operation(
    lambda d, n: (d.normal(rows(n, 16), 8), d.normal(6, 8), integers(d, rows(n, 16), 6)),
    lambda x, source, at: x.index_add(0, at, source, alpha=3.0),
)
def index_add(pick, w, y, x, source, at):
    """dx = w and dsource = alpha w[index]."""
    seen = pick("index off by one", at, (at + 1) % len(x))
    dsource = pick("no alpha", 3.0, 1.0) * w[pick("first rows", seen, torch.arange(6) % len(x))]
    dsource = pick("reversed", dsource, dsource.flip(0))
    return pick("zero where rows were added", w, w.index_fill(0, at, 0.0)), pick(
        "wrong sign", dsource, -dsource
    )


@operation(
    lambda d, n: (d.normal(rows(n, 8), 8), integers(d, rows(n, 8), rows(n, 8))),
    lambda table, at: F.embedding(at, table),
)
def embedding(pick, w, y, table, at):
    """A row that was looked up more than once gets a sum."""
    at = pick("index off by one", at, (at + 1) % len(table))
    zero = torch.zeros_like(table)
    dtable = pick("overwritten", zero.index_add(0, at, w), zero.index_copy(0, at, w))
    counts = at.bincount(minlength=len(table)).clamp(min=1)[:, None]
    dtable = pick("scaled by frequency", dtable, (dtable / counts).to(dtable.dtype))
    dtable = pick("first row is padding", dtable, torch.cat([0 * dtable[:1], dtable[1:]]))
    return (pick("columns reversed", dtable, dtable.flip(1)),)


@operation(
    lambda d, n: (d.normal(rows(n, 4), 4), np.arange(rows(n, 4)) // 3),
    lambda x, of: segment_mean(x, of)[0],
)
def mean_of_segments(pick, w, y, x, of):
    """Every row gets the cotangent of its segment, divided by the number of its rows."""
    counts = segment_mean(x, of)[1]
    dx = w[pick("segment off by one", of, (of + 1) % len(w))]
    dx = dx / pick("not divided", counts[of], 1.0)
    dx = pick("divided by all rows", dx, w[of] / len(x))
    first = torch.cat([of.new_ones(1), of[1:] - of[:-1]])[:, None]
    dx = pick("first row of a segment only", dx, dx * first)
    return (pick("last segment dropped", dx, dx * (of < of[-1])[:, None]),)


def segment_mean(x: Tensor, of: Tensor) -> tuple[Tensor, Tensor]:
    """The means of the rows of each segment, and how many there are."""
    count = int(of[-1]) + 1
    counts = of.bincount(minlength=count)[:, None].to(x.dtype)
    return x.new_zeros(count, x.shape[1]).index_add(0, of, x) / counts, counts


# ---------------------------------------------------------------- linear algebra


@operation(lambda d, n: (d.normal(3, (k := side(n / 4)), k), d.normal(k, k)), lambda a, b: a @ b)
def matmul(pick, w, y, a, b):
    """da = w b' and db = a' w, added up over the batch."""
    da = w @ pick("second not transposed", b.mT, b)
    db = pick("first not transposed", a.mT, a) @ w
    summed = pick("first of the batch", db.sum(0), db[0])
    summed = pick("mean over the batch", summed, db.mean(0))
    return pick("factors in the wrong order", da, b.mT @ w), pick("transposed", summed, summed.mT)


@operation(lambda d, n: (d.normal(5, (k := side(n))), d.normal(k, k), d.normal(k)), F.linear)
def linear(pick, w, y, x, a, b):
    """dx = w a, da = w' x and db = sum(w)."""
    da = w.T @ x
    da = pick("weight gradient transposed", da, da.T)
    dx = w @ pick("weight transposed", a, a.T)
    db = pick("bias of one sample", w.sum(0), w[0])
    return (
        dx,
        pick("mean for sum", da, da / len(x)),
        pick("sum over features", db, db + db.sum()),
    )


@operation(
    lambda d, n: (
        d.normal(6, (k := max(2, round(n ** (1 / 3))))),
        d.normal(6, k),
        d.normal(k, k, k),
    ),
    lambda x, z, a: F.bilinear(x, z, a),
)
def bilinear(pick, w, y, x, z, a):
    """y_o = x' a_o z."""
    dx = torch.einsum("no,oij,nj->ni", w, a, pick("other input forgotten", z, 1 + 0 * z))
    dz = torch.einsum(pick("weight transposed", "no,oij,ni->nj", "no,oji,ni->nj"), w, a, x)
    da = torch.einsum("no,ni,nj->oij", w, x, z)
    da = pick("weight gradient transposed", da, da.mT)
    return pick("first weight only", dx, w[:, :1] * (z @ a[0].T)), pick("wrong sign", dz, -dz), da


@operation(lambda d, n: (near_identity(d, (k := side(n))), d.normal(k, 2)), torch.linalg.solve)
def linear_solve(pick, w, y, a, b):
    """db = a^-T w and da = -db y'."""
    db = solve(pick("matrix not transposed", a.mT, a), w)
    da = -db @ pick("right side for solution", y, b).mT
    da = pick("outer product transposed", da, da.mT)
    da = pick("cotangent not solved for", da, -w @ y.mT)
    return pick("wrong sign", da, -da), db


@operation(
    lambda d, n: (near_identity(d, (k := side(n))), d.normal(k, 2)),
    lambda a, b: solve_triangular(a.tril(), b, upper=False),
)
def triangular_solve(pick, w, y, a, b):
    """As solve, in the triangle that is read."""
    transposed = pick("matrix not transposed", True, False)
    db = solve_triangular(a.tril().mT if transposed else a.tril(), w, upper=transposed)
    da = -db @ pick("right side for solution", y, b).mT
    da = pick("wrong triangle", pick("no triangle", da.tril(), da), da.triu())
    return pick("wrong sign", da, -da), pick("diagonal left out", db, w)


@operation(lambda d, n: (near_identity(d, side(n)),), inv)
def inverse(pick, w, y, a):
    """da = -y' w y'."""
    left = pick("first not transposed", y.mT, y)
    da = left @ w @ pick("second not transposed", y.mT, y)
    da = pick("matrix for inverse", da, a.mT @ w @ a.mT)
    da = pick("one factor missing", da, y.mT @ w)
    return (pick("wrong sign", -da, da),)


@operation(lambda d, n: (near_identity(d, side(n)),), torch.linalg.det)
def determinant(pick, w, y, a):
    """da = w y a^-T."""
    da = w * pick("no determinant", y, 1.0) * pick("not transposed", inv(a).mT, inv(a))
    da = pick("matrix for inverse", da, w * y * a)
    da = pick("diagonal only", da, da.diag().diag())
    return (pick("wrong sign", da, -da),)


@operation(lambda d, n: (definite(d, side(n)),), lambda a: torch.linalg.cholesky((a + a.mT) / 2))
def cholesky(pick, w, y, a):
    """The symmetric part of y^-T p y^-1, where p is the triangle of y' w with half its diagonal."""
    p = (pick("factor not transposed", y.mT, y) @ w).tril()
    p = pick("diagonal not halved", p - p.diag().diag() / 2, p)
    s = solve_triangular(y.mT, p, upper=True)
    s = pick("one solve missing", solve_triangular(y.mT, s.mT, upper=True).mT, s)
    s = pick("no symmetric part", (s + s.mT) / 2, s)
    s = pick("lower triangle of the symmetric part", s, s.tril())
    return (pick("factor 2", s, 2 * s),)


@operation(lambda d, n: (definite(d, side(n)),), lambda a: torch.linalg.eigvalsh((a + a.mT) / 2))
def eigenvalues(pick, w, y, a):
    """da = v diag(w) v'."""
    v = torch.linalg.eigh((a + a.mT) / 2)[1]
    w = pick("order reversed", w, w.flip(0))
    v = pick("vectors transposed", v, v.mT)
    da = (v * pick("eigenvalues again", w, w * y)) @ v.mT
    da = pick("second factor not transposed", da, (v * w) @ v)
    return (pick("diagonal only", da, da.diag().diag()) * pick("factor 2", 1, 2),)


@operation(
    lambda d, n: (np.diag(np.linspace(1, 3, (k := side(n)))) + 0.2 * d.normal(k, k) / k,),
    torch.linalg.svdvals,
)
def singular_values(pick, w, y, a):
    """da = u diag(w) v'."""
    u, _, vh = torch.linalg.svd(a)
    u, vh = pick("factors exchanged", (u, vh), (vh.mT, u.mT))
    da = (u * pick("order reversed", w, w.flip(0))) @ pick("v not transposed", vh, vh.mT)
    da = pick("singular values again", da, (u * (w * y)) @ vh)
    return (pick("transposed", da, da.mT) * pick("wrong sign", 1, -1),)


@operation(lambda d, n: (0.5 * near_identity(d, side(n)),), torch.linalg.matrix_exp)
def matrix_exponential(pick, w, y, a):
    """The upper right block of exp([[a', w], [0, a']])."""
    k = len(a)
    a_t = pick("not transposed", a.mT, a)
    block = torch.cat([torch.cat([a_t, w], 1), torch.cat([0 * a_t, a_t], 1)])
    da = torch.linalg.matrix_exp(block)[:k, k:]
    da = pick("as if all matrices commuted", da, y.mT @ w)
    da = pick("entry by entry", da, w * a.exp())
    da = pick("result transposed", da, da.mT)
    return (pick("wrong sign", da, -da),)


# ---------------------------------------------------------------- Fourier transforms, complex


@operation(lambda d, n: (complexes(d, rows(n, 16), 8),), torch.fft.fft)
def fft(pick, w, y, x):
    """dx = n ifft(w)."""
    dx = pick("missing conjugate", torch.fft.ifft(w) * 8, torch.fft.fft(w))
    dx = pick("real part only", dx, dx.real + 0j)
    dx = pick("off by one", dx, dx.roll(1, -1))
    dx = pick("conjugated", dx, dx.conj())
    return (dx / pick("not scaled", 1, 8) / pick("orthogonal scale", 1, math.sqrt(8)),)


@operation(lambda d, n: (d.normal(rows(n, 8), 8),), torch.fft.rfft)
def rfft(pick, w, y, x):
    """dx = Re(n ifft(w)), with zeros in place of the other half."""
    dx = torch.fft.ifft(w, 8).real * pick("not scaled", 8, 1)
    dx = pick("as the inverse of a real transform", dx, torch.fft.irfft(w, 8) * 8)
    dx = pick("missing conjugate", dx, torch.fft.fft(w, 8).real)
    dx = pick("imaginary part", dx, torch.fft.ifft(w, 8).imag * 8)
    return (pick("half of it", dx, dx / 2),)


@operation(lambda d, n: (d.normal(rows(n, 8), 8),), lambda x: spectrum(x).abs() ** 2)
def spectrogram(pick, w, y, x):
    """dx = window Re(n ifft(2 w rfft(window x)))."""
    window = torch.hann_window(10, dtype=x.dtype)[1:9]
    s = pick("spectrum of the bare input", spectrum(x), torch.fft.rfft(x))
    dx = torch.fft.ifft(pick("magnitude for spectrum", s, s.abs() + 0j) * w, 8).real * 8
    dx = pick("missing conjugate", dx, torch.fft.fft(s * w, 8).real)
    return (pick("no window", window, 1.0) * dx * pick("factor 2 missing", 2, 1),)


def spectrum(x: Tensor) -> Tensor:
    """The Fourier transform of rows of eight under a window."""
    return torch.fft.rfft(x * torch.hann_window(10, dtype=x.dtype)[1:9])


@operation(
    lambda d, n: (d.normal(rows(n, 16), 16), d.normal(16)),
    lambda x, k: torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(k), 16),
)
def fft_convolution(pick, w, y, x, k):
    """dx = irfft(conj(k^) w^) and dk = irfft(conj(x^) w^), added up."""
    x, k, w = torch.fft.rfft(x), torch.fft.rfft(k), torch.fft.rfft(w)
    dx = torch.fft.irfft(pick("missing conjugate of the kernel", k.conj(), k) * w, 16)
    dk = torch.fft.irfft(pick("missing conjugate of the input", x.conj(), x) * w, 16)
    dk = pick("first sample only", dk.sum(0), dk[0])
    return pick("off by one", dx, dx.roll(1, -1)), pick("mean for sum", dk, dk / len(x))


@operation(lambda d, n: (complexes(d, n // 2),), lambda z: z.abs())
def complex_magnitude(pick, w, y, z):
    """dz = w z / |z|."""
    dz = w * pick("conjugated", z, z.conj()) / pick("not divided", y, 1.0)
    dz = pick("real part only", dz, dz.real + 0j)
    dz = pick("divided by the square", dz, dz / y)
    return (pick("half, by Wirtinger", dz, dz / 2),)


@operation(
    lambda d, n: (complexes(d, (k := side(n / 4)), k), complexes(d, k, k)), lambda a, b: a @ b
)
def complex_matmul(pick, w, y, a, b):
    """da = w b^H and db = a^H w."""
    da = w @ pick("missing conjugate", b.mH, b.mT)
    db = pick("missing transpose", a.mH, a.conj()) @ w
    da = pick("real part only", da, da.real + 0j)
    return pick("conjugated", da, da.conj()), pick("wrong sign", db, -db)


# ---------------------------------------------------------------- sorting and cumulation


def width_of(n: int) -> int:
    """The length of rows that are sorted or added up along."""
    return min(50, max(4, n // 2))


@operation(lambda d, n: (d.normal(rows(n, width_of(n)), width_of(n)),), lambda x: x.sort(-1).values)
def sort(pick, w, y, x):
    """Every cotangent goes back to where the entry came from."""
    order = x.argsort(-1)
    order = pick("descending", order, order.flip(-1))
    order = pick("off by one", order, order.roll(1, -1))
    dx = torch.zeros_like(w).scatter(-1, order, w)
    dx = pick("gathered for scattered", dx, w.gather(-1, order))
    return (pick("order of the first row", pick("not undone", dx, w), w[:, order[0].argsort()]),)


@operation(lambda d, n: (d.normal(rows(n, width_of(n)), width_of(n)),), lambda x: x.topk(3).values)
def top_k(pick, w, y, x):
    """The three largest get their cotangents, and the others nothing."""
    at = x.topk(3).indices
    at = pick("off by one", at, (at + 1) % x.shape[-1])
    zero = torch.zeros_like(x)
    dx = zero.scatter(-1, pick("in the wrong order", at, at.flip(-1)), w)
    dx = pick("the first entries", dx, torch.cat([w, zero[:, 3:]], -1))
    dx = pick("the largest only", dx, zero.scatter(-1, at[:, :1], w[:, :1]))
    return (pick("mean cotangent", dx, (dx != 0) * mean(w)),)


@operation(lambda d, n: (d.normal(rows(n, 8), 8),), lambda x: x.amax(-1))
def largest(pick, w, y, x):
    """The largest entries of a row share its cotangent."""
    w = w[:, None]
    at = (x == pick("largest of all", y[:, None], x.max())).to(x.dtype)
    at = at / total(at).clamp(min=1)
    at = pick("softmax", at, x.softmax(-1))
    at = pick("off by one", at, at.roll(1, -1))
    at = pick("divided by the length", at, at / x.shape[-1])
    return (at * pick("cotangent of the next row", w, w.roll(1, 0)),)


@operation(lambda d, n: (d.normal(rows(n, width_of(n)), width_of(n)),), lambda x: x.cumsum(-1))
def cumulative_sum(pick, w, y, x):
    """The cumulative sum of w from the end."""
    axis = pick("wrong axis", -1, 0)
    dx = w.flip(axis).cumsum(axis).flip(axis)
    dx = pick("from the start", dx, w.cumsum(-1))
    dx = pick("own entry left out", dx, dx - w)
    dx = pick("not flipped back", dx, dx.flip(-1))
    return (pick("mean", dx, dx / x.shape[-1]),)


@operation(
    lambda d, n: (d.signs(rows(n, 12), 12) * d.uniform(0.5, 1.5, rows(n, 12), 12),),
    lambda x: x.cumprod(-1),
)
def cumulative_product(pick, w, y, x):
    """dx is the cumulative sum of w y from the end, divided by x."""
    terms = w * pick("output left out", y, 1.0)
    dx = terms.flip(-1).cumsum(-1).flip(-1)
    dx = pick("from the start", dx, terms.cumsum(-1))
    dx = pick("own entry left out", dx, dx - terms)
    dx = pick("no sum", dx, terms)
    return (dx / pick("output for input", pick("not divided", x, 1.0), y),)


# ---------------------------------------------------------------- special and activation functions


@operation(lambda d, n: (d.normal(n),), F.gelu)
def gelu(pick, w, y, x):
    """Phi(x) + x phi(x)."""
    phi = (-(x**2) / pick("missing 1/2", 2, 1)).exp() / math.sqrt(2 * math.pi)
    phi = pick("not normalised", phi, phi * math.sqrt(2 * math.pi))
    cdf = 0.5 * (1 + torch.erf(pick("root of 2 missing", x / math.sqrt(2), x)))
    x = pick("output for input", x, y)
    return (w * (cdf + pick("no second term", pick("wrong sign", x, -x) * phi, 0.0)),)


@operation(lambda d, n: (d.normal(n),), F.silu)
def silu(pick, w, y, x):
    """s (1 + x (1 - s)) with s = sigmoid(x)."""
    s = pick("sigmoid of the output", x, y).sigmoid()
    inner = pick("output for input", x, y) * pick("derivative of the sigmoid", 1 - s, s)
    inner = pick("no second term", inner, 0.0)
    return (w * s * (1 + pick("wrong sign", 1, -1) * inner),)


@operation(lambda d, n: (d.normal(n),), F.mish)
def mish(pick, w, y, x):
    """t + x (1 - t^2) sigmoid(x) with t = tanh(softplus(x))."""
    t = F.softplus(x).tanh()
    inner = pick("chain rule", x.sigmoid(), 1.0) * (1 - pick("tanh not squared", t**2, t))
    inner = pick("output for input", x, y) * pick("no second term", inner, 0.0)
    return (w * (t + pick("wrong sign", 1, -1) * inner),)


@operation(lambda d, n: (d.normal(n),), torch.erf)
def erf(pick, w, y, x):
    """2 / sqrt(pi) exp(-x^2)."""
    x = pick("output for input", x, y)
    bell = (-(x**2) * pick("half in the exponent", 1.0, 0.5)).exp()
    scale = pick("factor 2 missing", 2, 1) / pick("root missing", math.sqrt(math.pi), math.pi)
    return (w * scale * pick("wrong sign", bell, -bell),)


@operation(lambda d, n: (d.uniform(0.3, 6, n),), torch.lgamma)
def lgamma(pick, w, y, x):
    """digamma(x)."""
    psi = torch.digamma(pick("off by one", x, x + 1))
    psi = pick("logarithm for digamma", psi, x.log())
    psi = pick("gamma again", psi, psi * y.exp())
    psi = pick("trigamma", psi, torch.polygamma(1, x))
    return (w * pick("wrong sign", psi, -psi),)


@operation(lambda d, n: (2 * d.normal(n),), lambda x: F.softplus(x, beta=2, threshold=3))
def softplus(pick, w, y, x):
    """sigmoid(beta x), and 1 beyond the threshold."""
    s = (pick("beta forgotten", 2, 1) * pick("output for input", x, y)).sigmoid()
    s = s * pick("beta in front", 1, 2)
    beyond = pick("threshold on x", 2 * x, x / 2) > 3
    beyond = torch.where(beyond, pick("zero beyond the threshold", 1.0, 0.0), s)
    return (w * pick("wrong sign", beyond, -beyond),)


@operation(lambda d, n: (d.normal(rows(n, 12), 3, 4), d.uniform(0.1, 0.4, 3)), F.prelu)
def prelu(pick, w, y, x, a):
    """da is the sum of w x over all negative x of the channel."""
    dx = w * torch.where(x > 0, 1.0, pick("slope forgotten", a[:, None], 1.0))
    da = w * pick("slope gradient at all x", x.clamp(max=0), x)
    da = pick("output for input", da, w * y.clamp(max=0))
    summed = pick("first sample only", da.sum((0, 2)), da[0].sum(1))
    return pick("zero for negative x", dx, w * (x > 0)), pick(
        "mean for sum", summed, summed / len(x)
    )


@operation(
    lambda d, n: (d.normal(4, (k := side(n / 2))), d.normal(k, k), d.normal(k, k)),
    lambda x, a, b: F.silu(x @ a) * (x @ b),
)
def swiglu(pick, w, y, x, a, b):
    """y = silu(x a) * (x b)."""
    g, v = x @ a, x @ b
    s = g.sigmoid()
    dg = w * v * s * (1 + pick("silu without its second term", g * (1 - s), 0.0))
    dg = pick("gate without the value", dg, dg / v)
    dv = w * pick("sigmoid for silu", g * s, s)
    dx = dg @ a.T + pick("one path of the input", dv @ b.T, 0.0)
    return dx, x.T @ dg, pick("weights exchanged", x.T @ dv, x.T @ dg)


@operation(
    lambda d, n: (d.normal(rows(n, 8), 8), d.rng.random((rows(n, 8), 8)) < 0.8),
    lambda x, kept: x * kept / 0.8,
)
def dropout(pick, w, y, x, kept):
    """The mask of the forward pass, and its scale."""
    kept = pick("mask inverted", pick("mask forgotten", kept, torch.ones_like(kept)), ~kept)
    kept = pick("mask of the next row", kept, kept.roll(1, 0))
    scale = pick("scale of what is dropped", pick("no scale", 0.8, 1.0), 0.2)
    return (w * kept / scale,)
