"""Operations of ATen as other operations of PyTorch, for those that the vocabulary has not got.

Below autograd a lazy conjugate is not resolved, and so these compute it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any, TypeAlias

import torch

aten = torch.ops.aten

Formula: TypeAlias = Callable[..., Any]
"""Called with the arguments; it returns the same results by other operations of PyTorch."""


def axes_of(x: torch.Tensor, dim: Any) -> tuple[int, ...] | None:
    """Returns axes as the vocabulary counts them."""
    if dim is None or x.dim() == 0 or (isinstance(dim, Sequence) and not dim):
        return None
    return tuple(one % x.dim() for one in (dim if isinstance(dim, Sequence) else (dim,)))


def _convolution_and_bias(x: Any, weight: Any, bias: Any, *rest: Any) -> Any:
    return aten.convolution(x, weight, None, *rest) + bias.reshape(-1, *[1] * (x.dim() - 2))


def _solve_formula(a: Any, b: Any, *, left: bool = True, check_errors: bool = False) -> Any:
    if b.dim() == a.dim() - 1 and b.shape == a.shape[:-1]:
        made = torch.linalg.solve(a, b.unsqueeze(-1)).squeeze(-1)
    else:
        made = torch.linalg.solve(a.mT, b.mT).mT
    return made, None, None, None


def _from_the_right(a: Any, b: Any, *, upper: bool, left: bool, unitriangular: bool = False) -> Any:
    turned = torch.linalg.solve_triangular(a.mT, b.mT, upper=not upper, unitriangular=unitriangular)
    return turned.mT


def _triangular_solve(
    b: Any, a: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    if transpose:
        a, upper = a.mT, not upper
    return torch.linalg.solve_triangular(a, b, upper=upper, unitriangular=unitriangular), a


def conjugate_transpose(a: Any) -> Any:
    """Returns the conjugate transpose of a stack of matrices."""
    return torch.conj_physical(a.mT)


def _cholesky_inverse(factor: Any, upper: bool = False) -> Any:
    half = conjugate_transpose(factor) if upper else factor
    one = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device).expand(factor.shape)
    inverse = torch.linalg.solve_triangular(half, one, upper=False)
    return conjugate_transpose(inverse) @ inverse


def _cholesky_solve(b: Any, factor: Any, upper: bool = False) -> Any:
    half = conjugate_transpose(factor) if upper else factor
    inner = torch.linalg.solve_triangular(half, b, upper=False)
    return torch.linalg.solve_triangular(conjugate_transpose(half), inner, upper=True)


def wide_qr(a: Any) -> Any:
    """Returns the factors Q and R of matrices with more columns than rows."""
    q, _ = torch.linalg.qr(a[..., : a.shape[-2]])
    return q, (conjugate_transpose(q) @ a).triu()


def eliminated(a: Any, order: torch.Tensor) -> Any:
    """Returns the factors L and U of the rows in this order, in one matrix."""
    a = a.gather(-2, order.unsqueeze(-1).expand(a.shape))
    rows, columns = a.shape[-2:]
    for k in range(min(rows, columns)):
        below = a[..., k + 1 :, k : k + 1] / a[..., k : k + 1, k : k + 1]
        rest = a[..., k + 1 :, k + 1 :] - below * a[..., k : k + 1, k + 1 :]
        lower = torch.cat([below, rest], -1)
        right = torch.cat([a[..., k : k + 1, k:], lower], -2)
        left = a[..., k:, :k]
        a = torch.cat([a[..., :k, :], torch.cat([left, right], -1)], -2)
    return a


def unpacked(both: Any) -> Any:
    """Returns the factors L and U that stand in one matrix."""
    rows, columns = both.shape[-2:]
    k = min(rows, columns)
    one = torch.eye(rows, k, dtype=both.dtype)
    return both[..., :, :k].tril(-1) + one, both[..., :k, :].triu()


def _embedding_bag(
    weight: Any, indices: Any, offsets: Any, scale_grad_by_freq: bool = False, mode: int = 0,
    sparse: bool = False, per_sample_weights: Any = None, include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:  # fmt: skip
    offsets = offsets[:-1] if include_last_offset else offsets
    used = indices != padding_idx
    bag = (torch.arange(len(indices)).unsqueeze(1) >= offsets).sum(1) - 1
    bag, indices = bag[used], indices[used]
    rows = weight[indices]
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[used].unsqueeze(1)
    made = rows.new_zeros((len(offsets), weight.shape[1]))
    if mode == 2:
        spread = bag.unsqueeze(1).expand(rows.shape)
        made = made.scatter_reduce(0, spread, rows, "amax", include_self=False)
    else:
        made = made.index_add(0, bag, rows)
    if mode == 1:
        count = torch.bincount(bag, minlength=len(offsets)).clamp(min=1)
        made = made / count.to(made.dtype).unsqueeze(1)
    return made, None, None, None


def _householder_product(a: Any, tau: Any) -> Any:
    rows, columns = a.shape[-2:]
    q = torch.eye(rows, columns, dtype=a.dtype).expand(*a.shape[:-2], rows, columns)
    for k in reversed(range(tau.shape[-1])):
        q = _reflected(q, a, tau, k)
    return q


def _reflected(q: Any, a: Any, tau: Any, k: int, adjoint: bool = False) -> Any:
    v = a[..., k : k + 1].tril(-1 - k) + torch.eye(a.shape[-2], dtype=a.dtype)[:, k : k + 1]
    scale = tau[..., k : k + 1].unsqueeze(-1)
    return q - (torch.conj_physical(scale) if adjoint else scale) * (
        v @ (conjugate_transpose(v) @ q)
    )


def _ormqr(a: Any, tau: Any, c: Any, left: bool = True, transpose: bool = False) -> Any:
    if not left:  # c Q = (Q^H c^H)^H
        return conjugate_transpose(_ormqr(a, tau, conjugate_transpose(c), True, not transpose))
    count = range(tau.shape[-1])
    for k in count if transpose else reversed(count):
        c = _reflected(c, a, tau, k, adjoint=transpose)
    return c


def _c2c_formula(x: Any, dim: Any, normalization: int, forward: bool) -> Any:
    for one in dim:
        x = aten._fft_c2c(x, [one], 0, forward)
    return _normalised(x, [x.shape[one] for one in dim], normalization)


def _normalised(x: Any, lengths: Sequence[int], normalization: int) -> Any:
    count = math.prod(lengths)
    if normalization == 0:
        return x
    return x / (math.sqrt(count) if normalization == 1 else count)


def _r2c(x: Any, dim: Any, normalization: int, onesided: bool) -> Any:
    whole = aten._fft_c2c(torch.complex(x, torch.zeros_like(x)), dim, normalization, True)
    return whole.narrow(dim[-1], 0, x.shape[dim[-1]] // 2 + 1) if onesided else whole


def _c2r(x: Any, dim: Any, normalization: int, last_dim_size: int) -> Any:
    for one in dim[:-1]:
        x = aten._fft_c2c(x, [one], 0, False)
    last = dim[-1]
    # The second half is the conjugate of the first. What stands at 0 and in the middle is read as
    # real.
    half = last_dim_size // 2 + 1
    x = x.narrow(last, 0, min(half, x.shape[last]))
    inner = x.narrow(last, 1, (last_dim_size - 1) // 2)
    ends = [torch.complex(x.narrow(last, 0, 1).real, torch.zeros_like(x.narrow(last, 0, 1).real))]
    parts = [*ends, inner]
    if last_dim_size % 2 == 0:
        middle = x.narrow(last, half - 1, 1).real
        parts.append(torch.complex(middle, torch.zeros_like(middle)))
    whole = torch.cat([*parts, torch.conj_physical(inner).flip(last)], last)
    made = aten._fft_c2c(whole, [last], 0, False).real
    return _normalised(made, [made.shape[one] for one in dim], normalization)


def _mean(x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    axes = axes_of(x, dim) or tuple(range(x.dim()))
    return x.sum(axes, keepdim) / math.prod(x.shape[one] for one in axes)


def _variance(x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    axes = axes_of(x, dim) or tuple(range(x.dim()))
    count = math.prod(x.shape[one] for one in axes)
    off = x - x.mean(axes, True)
    square = off.real**2 + off.imag**2 if x.dtype.is_complex else off * off
    return square.sum(axes, keepdim) / max(count - (1 if correction is None else correction), 0)


def _variance_and_mean(
    x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Any:
    mean = x.mean(axes_of(x, dim) or tuple(range(x.dim())), keepdim)
    return _variance(x, dim, correction=correction, keepdim=keepdim), mean


def _deviation(*args: Any, **kwargs: Any) -> Any:
    return _variance(*args, **kwargs).sqrt()


def _deviation_and_mean(*args: Any, **kwargs: Any) -> Any:
    variance, mean = _variance_and_mean(*args, **kwargs)
    return variance.sqrt(), mean


def _vector_norm(
    x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    axes = axes_of(x, dim) or tuple(range(x.dim()))
    if ord == 0:
        return (x != 0).to(x.real.dtype).sum(axes, keepdim)
    if ord == 2:
        square = x.real**2 + x.imag**2 if x.dtype.is_complex else x * x
        return square.sum(axes, keepdim).sqrt()
    size = x.abs()
    if ord == 1:
        return size.sum(axes, keepdim)
    if math.isinf(ord):
        return size.amax(axes, keepdim) if ord > 0 else size.amin(axes, keepdim)
    return (size**ord).sum(axes, keepdim) ** (1 / ord)


def _norm(x: Any, p: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return _vector_norm(x, 2 if p is None else p, dim, keepdim)


def _cdist(x: Any, y: Any, p: float, compute_mode: Any = None) -> Any:
    return _vector_norm(x.unsqueeze(-2) - y.unsqueeze(-3), p, -1)


def _pdist(x: Any, p: float = 2.0) -> Any:
    pairs = torch.tensor(list(combinations(range(len(x)), 2)), dtype=torch.int64).reshape(-1, 2)
    return _vector_norm(x[pairs[:, 0]] - x[pairs[:, 1]], p, -1)


def _softplus(x: Any, beta: Any = 1, threshold: Any = 20) -> Any:
    scaled = x * beta
    return torch.where(scaled > threshold, x, torch.log1p(scaled.exp()) / beta)


def _gelu(x: Any, *, approximate: str = "none") -> Any:
    if approximate == "none":
        return 0.5 * x * (1 + torch.erf(x * math.sqrt(0.5)))
    inner = math.sqrt(2) * (2 / math.sqrt(math.pi)) * 0.5 * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1 + torch.tanh(inner))


def _log_softmax(x: Any, dim: int, half_to_float: bool = False) -> Any:
    return x - x.logsumexp(dim, True)


def _safe_softmax(x: Any, dim: int, dtype: Any = None) -> Any:
    empty = (x == -math.inf).all(dim, keepdim=True)
    return torch.where(empty, 0.0, _softmax(x, dim))


def _softmax(x: Any, dim: int, half_to_float: bool = False) -> Any:
    return (x - x.logsumexp(dim, True)).exp()


def _layer_norm(x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    made, mean, scale = _normal(x, tuple(range(x.dim() - len(shape), x.dim())), eps)
    made = made if weight is None else made * weight
    return made if bias is None else made + bias, mean, scale


def _normal(x: Any, axes: tuple[int, ...], eps: float) -> Any:
    """Returns `x` with mean 0 and variance 1 along axes, its mean and the reciprocal deviation."""
    mean = x.mean(axes, True)
    off = x - mean
    scale = ((off * off).mean(axes, True) + eps).rsqrt()
    return off * scale, mean, scale


def _group_norm(
    x: Any, weight: Any, bias: Any, n: int, c: int, hw: int, group: int, eps: float
) -> Any:
    made, mean, scale = _normal(x.reshape(n, group, -1), (2,), eps)
    made = made.reshape(x.shape)
    made = made if weight is None else made * _channels(weight, x)
    made = made if bias is None else made + _channels(bias, x)
    return made, mean.squeeze(2), scale.squeeze(2)


def _channels(x: Any, like: Any) -> Any:
    return x.reshape(1, -1, *[1] * (like.dim() - 2))


def _batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> Any:
    axes = (0, *range(2, x.dim()))
    if training:
        made, saved, scale = _normal(x, axes, eps)
        saved, scale = saved.reshape(-1), scale.reshape(-1)
    else:
        made = (x - _channels(mean, x)) * _channels((var + eps).rsqrt(), x)
        saved = scale = None
    made = made if weight is None else made * _channels(weight, x)
    return made if bias is None else made + _channels(bias, x), saved, scale


def _batch_norm_legit(x: Any, weight: Any, bias: Any, *rest: Any) -> Any:
    mean, var, training, momentum, eps = rest if len(rest) == 5 else (None, None, *rest)
    return _batch_norm(x, weight, bias, mean, var, training, momentum, eps)


def _batch_norm_with_update(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float
) -> Any:
    return (*_batch_norm(x, weight, bias, mean, var, True, momentum, eps), None)


def _addmm(c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _scaled(c, beta) + _scaled(a @ b, alpha)


def _scaled(x: Any, factor: Any) -> Any:
    return x if factor == 1 else x * factor


def _addbmm(c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _scaled(c, beta) + _scaled((a @ b).sum(0), alpha)


def _trilinear(
    a: Any,
    b: Any,
    c: Any,
    expand1: Any,
    expand2: Any,
    expand3: Any,
    sumdim: Any,
    unroll_dim: int = 1,
) -> Any:
    for dims, k in zip((expand1, expand2, expand3), range(3), strict=True):
        for one in sorted(dims):
            a, b, c = (x.unsqueeze(one) if k == j else x for j, x in enumerate((a, b, c)))
    return (a * b * c).sum(sumdim)


def _angle(x: Any) -> Any:
    if x.dtype.is_complex:
        return torch.atan2(x.imag, x.real)
    return torch.where(x < 0, torch.full_like(x, math.pi), torch.zeros_like(x))


def _clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    x = x if min is None else x.clamp_min(min)
    return x if max is None else x.clamp_max(max)


def _rounded_division(x: Any, y: Any, *, rounding_mode: str) -> Any:
    return (x / y).floor() if rounding_mode == "floor" else (x / y).trunc()


def _rrelu(
    x: Any,
    noise: Any,
    lower: Any = 0.125,
    upper: Any = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> Any:
    return torch.where(x <= 0, x * (noise if training else (lower + upper) / 2), x)


def _packed(x: Any, lengths: torch.Tensor, batch_first: bool) -> Any:
    steps = x.transpose(0, 1) if batch_first else x
    sizes = [int((lengths > t).sum()) for t in range(int(lengths.max()))]
    return torch.cat([steps[t, :size] for t, size in enumerate(sizes)]), torch.tensor(sizes)


def _added(name: str) -> Formula:
    function = getattr(torch, name)

    def formula(x: Any, y: Any, *, alpha: Any = 1) -> Any:
        return function(x, y * alpha)

    return formula


def _dropped(grad: Any, mask: Any, scale: float) -> Any:
    return grad * (mask.to(grad.dtype) * scale)


def _glu(x: Any, dim: int = -1) -> Any:
    first, second = x.chunk(2, dim)
    return first * second.sigmoid()


def ctc_losses(log_probs: Any, labels: Any, lengths: Any, ends: Any, visible: Any) -> Any:
    """Returns minus the logarithms of the probabilities of targets, by the forward recursion."""
    steps = log_probs.exp().gather(2, labels.expand(len(log_probs), *labels.shape))
    pad = torch.nn.functional.pad
    differs = pad(labels[:, 2:] != labels[:, :-2], (2, 0), value=False)
    alpha = steps[0] * (torch.arange(labels.shape[1]) < 2)
    for t in range(1, len(steps)):
        before = alpha + pad(alpha[:, :-1], (1, 0))
        before = before + pad(alpha[:, :-2], (2, 0)) * (differs & visible)
        alpha = torch.where((t < lengths).unsqueeze(1), before * steps[t], alpha)
    return -(alpha * ends).sum(1).log()


def _attention(
    query: Any, key: Any, value: Any, dropout_p: float = 0.0, is_causal: bool = False,
    *, attn_mask: Any = None, scale: Any = None,
) -> Any:  # fmt: skip
    if dropout_p:
        raise NotImplementedError("it draws random numbers")
    scores = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    weights = scores.exp()
    if is_causal:
        weights = weights.tril()
    if attn_mask is not None:
        weights = weights * (attn_mask if attn_mask.dtype is torch.bool else attn_mask.exp())
    total = weights.sum(-1, keepdim=True)
    return weights / total @ value, total.log().squeeze(-1)


def _log_sigmoid(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    # The backward pass reads the second result, which is empty on a GPU.
    kept = x.new_zeros(0) if x.is_cuda else (-x.abs()).exp()
    return -torch.log1p((-x).exp()), kept


FORMULAS: Mapping[str, Formula] = {
    "add": _added("add"),
    "sub": _added("sub"),
    "rsub": lambda x, y, alpha=1: torch.rsub(x * alpha, y),
    "clamp": _clamp,
    "div": _rounded_division,
    "mean": _mean,
    "var": _variance,
    "std": _deviation,
    "var_mean": _variance_and_mean,
    "std_mean": _deviation_and_mean,
    "linalg_vector_norm": _vector_norm,
    "norm": _norm,
    "dist": lambda x, y, p=2: _vector_norm(x - y, p),
    "_cdist_forward": _cdist,
    "_pdist_forward": _pdist,
    "softplus": _softplus,
    "log_sigmoid_forward": _log_sigmoid,
    "gelu": _gelu,
    "silu": lambda x: x * x.sigmoid(),
    "mish": lambda x: x * torch.log1p(x.exp()).tanh(),
    "glu": _glu,
    "relu": lambda x: x.clamp_min(0.0),
    "_log_softmax": _log_softmax,
    "_softmax": _softmax,
    "_safe_softmax": _safe_softmax,
    "logaddexp2": lambda x, y: (x.exp2() + y.exp2()).log2(),
    "native_layer_norm": _layer_norm,
    "native_group_norm": _group_norm,
    "native_batch_norm": _batch_norm,
    "_native_batch_norm_legit": _batch_norm_legit,
    "_batch_norm_with_update": _batch_norm_with_update,
    "addmm": _addmm,
    "addmv": _addmm,
    "baddbmm": _addmm,
    "addbmm": _addbmm,
    "dot": lambda x, y: (x * y).sum(),
    "vdot": lambda x, y: (torch.conj_physical(x) * y).sum(),
    "_trilinear": _trilinear,
    "angle": _angle,
    "_pack_padded_sequence": _packed,
    "polar": lambda size, angle: torch.complex(size * angle.cos(), size * angle.sin()),
    "round": lambda x, decimals: (x * 10.0**decimals).round() / 10.0**decimals,
    "frac": lambda x: x - x.trunc(),
    "ldexp": lambda x, y: x * torch.pow(2.0, y),
    "rrelu_with_noise": _rrelu,
    "native_dropout_backward": _dropped,
    "convolution": _convolution_and_bias,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_embedding_bag": _embedding_bag,
    "_embedding_bag_forward_only": _embedding_bag,
    "_linalg_solve_ex": _solve_formula,
    "linalg_solve_triangular": _from_the_right,
    "triangular_solve": _triangular_solve,
    "cholesky_inverse": _cholesky_inverse,
    "cholesky_solve": _cholesky_solve,
    "linalg_householder_product": _householder_product,
    "ormqr": _ormqr,
    "_fft_c2c": _c2c_formula,
    "_fft_r2c": _r2c,
    "_fft_c2r": _c2r,
    "index_add": lambda x, dim, index, source, alpha=1: x.index_add(dim, index, source * alpha),
}
