"""The operations of ATen in the vocabulary that all engines share.

An operation is translated in one of four ways, which are tried in this order. `TRANSLATIONS` says
which operations of the vocabulary it is. `FORMULAS` writes it as other operations of PyTorch, which
are translated in turn. One whose operands that depend on x are integers and booleans is a constant
while these stay what they are. The rest is decomposed as PyTorch's compiler does it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import optree
import torch
from numpy.typing import NDArray

from adjudge.engine import ArrayOperations, Arrays, FlatFunction, Program, grouped
from adjudge_torch.formulas import (
    FORMULAS,
    axes_of,
    conjugate_transpose,
    ctc_losses,
    eliminated,
    unpacked,
    wide_qr,
)
from adjudge_torch.precision import as_written, is_inexact
from adjudge_torch.recording import (
    Given,
    Leaving,
    Recorder,
    Translation,
    Untranslated,
    tensors_in,
)

aten = torch.ops.aten


def program(f: FlatFunction, x: Arrays, arrays: ArrayOperations) -> Program:
    """Contract: see `AutodiffBackend.program`. The leaves of `x` are marked for differentiation."""
    recorder = Recorder(x, arrays, TRANSLATIONS, FORMULAS)
    with _without_onednn(), as_written(), Leaving(recorder), recorder:
        y = f(x)
    return recorder.finished(y)


@contextmanager
def _without_onednn() -> Iterator[None]:
    """Returns a context without oneDNN, which computes whole layers of float32 (`nn.LSTM`) in one
    step that has no formula. `torch.backends.mkldnn.flags` sets other flags too, and warns.
    """
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def _same(name: str) -> Translation:
    """Returns the translation of what has the same operands in the vocabulary, and no other
    arguments.
    """
    return lambda record, out, *operands: record.emit(name, operands, out)


_SAME = (
    *("abs", "sqrt", "rsqrt", "reciprocal", "square", "exp", "exp2", "expm1"),
    *("log", "log1p", "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "atan2"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "hypot", "sign", "copysign"),
    *("maximum", "minimum", "floor", "ceil", "trunc", "fmod", "remainder", "complex", "erf"),
    *("erfc", "erfinv", "digamma", "polygamma", "i0", "logaddexp", "where", "isnan", "isfinite"),
    *("sinc", "xlogy", "pow", "logical_and", "logical_or", "logical_xor", "logical_not"),
)

_RENAMED = {
    "neg": "negative",
    "mul": "multiply",
    "lgamma": "gammaln",
    "sigmoid": "expit",
    "fmax": "maximum",
    "fmin": "minimum",
    "clamp_min": "maximum",
    "clamp_max": "minimum",
    "_conj_physical": "conj",
    "conj_physical": "conj",
    "special_i0e": "i0e",
    "special_i1": "i1",
    "special_i1e": "i1e",
    "special_ndtri": "ndtri",
    "special_log_ndtr": "log_ndtr",
    "special_erfcx": "erfcx",
    "special_xlog1py": "xlog1py",
    "special_zeta": "zeta",
    "special_airy_ai": "airy_ai",
    "special_bessel_j0": "j0",
    "special_bessel_j1": "j1",
    "special_bessel_y0": "y0",
    "special_bessel_y1": "y1",
    "special_modified_bessel_i0": "i0",
    "special_modified_bessel_i1": "i1",
    "special_modified_bessel_k0": "k0",
    "special_modified_bessel_k1": "k1",
    "special_scaled_modified_bessel_k0": "k0e",
    "special_scaled_modified_bessel_k1": "k1e",
    "igamma": "gammainc",
    "igammac": "gammaincc",
    "mm": "matmul",
    "bmm": "matmul",
    "mv": "matmul",
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "bitwise_and": "logical_and",
    "bitwise_or": "logical_or",
    "bitwise_xor": "logical_xor",
    "bitwise_not": "logical_not",
}


def _with_alpha(name: str) -> Translation:
    def translate(record: Recorder, out: Any, x: Any, y: Any, alpha: Any = 1) -> Any:
        if alpha != 1:
            return Untranslated("the second operand has a factor")
        return record.emit(name, (x, y), out)

    return translate


def _copied(record: Recorder, out: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Translates a copy, perhaps in another dtype: rounding is the identity."""
    wide = is_inexact(x)
    if is_inexact(out):
        if x.dtype.is_complex and not out.dtype.is_complex:
            return record.emit("real", (x,), out)
        if out.dtype.is_complex and not x.dtype.is_complex:
            return record.emit("complex", (x, 0.0), out)
        if not wide:
            return record.builder.rely(record.read(x))
        return record.read(x) if out.dtype == x.dtype else record.emit("astype", (x,), out)
    if wide and not x.dtype.is_complex:
        if out.dtype is torch.bool:
            return record.emit("not_equal", (x, 0.0), out)
        return record.emit("trunc", (x,), out)
    return record.read(x)


def _divided(record: Recorder, out: Any, x: Any, y: Any, *, rounding_mode: Any = None) -> Any:
    if rounding_mode is not None:
        return Untranslated("it is rounded")
    return record.emit("divide", (x, y), out)


_MOVED = (
    *("alias_copy", "as_strided_copy", "as_strided_scatter", "block_diag", "cat"),
    *("channel_shuffle", "constant_pad_nd", "detach_copy", "diag_embed", "diagonal_copy"),
    *("diagonal_scatter", "slice_copy", "slice_scatter", "split_copy", "split_with_sizes_copy"),
    *("embedding", "expand_copy", "fill", "flip", "gather", "im2col", "index", "index_copy"),
    *("index_fill", "index_select", "masked_fill", "masked_scatter", "masked_select"),
    *("narrow_copy", "permute_copy", "pixel_shuffle", "pixel_unshuffle", "reflection_pad1d"),
    *("reflection_pad2d", "reflection_pad3d", "repeat", "replication_pad1d", "replication_pad2d"),
    *("replication_pad3d", "roll", "rot90", "scatter", "select_copy", "select_scatter"),
    *("squeeze_copy", "stack", "t_copy", "take", "transpose_copy", "tril", "triu", "unbind_copy"),
    *("unfold_copy", "unsqueeze_copy", "view_copy", "zero", "_unsafe_index", "put", "index_put"),
    *("_unsafe_masked_index", "max_unpool2d", "max_unpool3d", "lift", "_to_dense"),
)

_FILLED = {"masked_fill": 2, "index_fill": 3, "constant_pad_nd": 2, "fill": 1, "scatter": 3}
_FILLED |= {"_unsafe_masked_index": 3}
"""At which argument the number stands with which entries are filled."""


def _moved(name: str) -> Translation:
    """Returns the translation of an operation that only moves, chooses and repeats entries: it is
    run on the numbers of the entries. Zeros that it adds are numbered 0.
    """

    def translate(record: Recorder, out: Any, *args: Any, **kwargs: Any) -> Any:
        function = getattr(aten, name)  # not before: each release lacks some of these operations
        call_tree: Any = (args, kwargs)
        leaves, spec = optree.tree_flatten(call_tree, none_is_leaf=True)
        if (name == "put" and kwargs.get("accumulate")) or (
            name == "index_put" and args[3:] == (True,)
        ):
            return Untranslated("entries are added")
        operands: list[Any] = []
        count = 1
        filled = _FILLED.get(name)
        for k, leaf in enumerate(leaves):
            if isinstance(leaf, torch.Tensor):
                if not is_inexact(leaf):
                    leaves[k] = record.relied_on(leaf)
                    continue
                numbers = torch.arange(count, count + leaf.numel(), dtype=torch.float64)
                numbers = numbers.reshape(leaf.shape)
                if "as_strided" in name:  # it chooses by memory
                    strided = torch.empty_strided(leaf.size(), leaf.stride(), dtype=torch.float64)
                    numbers = strided.copy_(numbers)
                leaves[k], count = numbers, count + leaf.numel()
                operands.append(leaf)
        refilled: Any = spec.unflatten(leaves)
        args, kwargs = refilled
        if filled is not None and filled < len(args) and not isinstance(args[filled], torch.Tensor):
            operands.append(args[filled])
            args = (*args[:filled], float(count), *args[filled + 1 :])
        if not operands:
            return Untranslated("it moves no floating-point numbers")
        kwargs.pop("dtype", None)
        moved = optree.tree_leaves(function(*args, **kwargs))
        return [
            record.emit(
                "take", operands, result, indices=numbers.numpy().astype(np.int64) - 1, fill=0.0
            )
            for result, numbers in zip(optree.tree_leaves(out), moved, strict=True)
        ]

    return translate


def _summed_into(
    record: Recorder, out: Any, operands: Sequence[torch.Tensor], targets: Sequence[torch.Tensor]
) -> Any:
    """Translates what adds each entry of the operands to an entry of the result; -1 leaves out."""
    flat = torch.cat([one.reshape(-1) for one in targets]).numpy()
    return record.emit("segment_sum", operands, out, segments=flat, shape=tuple(out.shape))


def _numbers(like: torch.Tensor) -> torch.Tensor:
    return torch.arange(like.numel()).reshape(like.shape)


def _scattered(
    self: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor
) -> torch.Tensor:
    """Returns for each entry of `src` that into which it is scattered, -1 where it is not."""
    if self.dim() == 0:
        return torch.zeros(src.shape, dtype=torch.int64)
    targets = torch.full(src.shape, -1)
    # index.shape fits in self only apart from dim
    whole = [slice(0, size) for size in index.shape]
    part = list(whole)
    part[dim % self.dim()] = slice(None)
    targets[tuple(whole)] = _numbers(self)[tuple(part)].gather(dim, index)
    return targets


def _indexed(self: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    """Returns for each entry of the source which entry of `self` the index chooses."""
    return _numbers(self).index_select(dim, index) if self.dim() else _numbers(self).reshape(1)


def _scatter_add(record: Recorder, out: Any, self: Any, dim: int, index: Any, src: Any) -> Any:
    targets = _scattered(self, dim, record.relied_on(index), src)
    return _summed_into(record, out, (self, src), (_numbers(self), targets))


def _index_add(
    record: Recorder, out: Any, self: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1
) -> Any:
    if alpha != 1:
        return Untranslated("what is added has a factor")
    targets = _indexed(self, dim, record.relied_on(index).reshape(-1)).reshape(source.shape)
    return _summed_into(record, out, (self, source), (_numbers(self), targets))


def _index_put(
    record: Recorder, out: Any, self: Any, indices: Any, values: Any, accumulate: bool = False
) -> Any:
    if not accumulate:
        return _moved("index_put")(record, out, self, indices, values)
    known = [None if one is None else record.relied_on(one) for one in indices]
    targets = aten.index(_numbers(self), known)
    # values broadcast to what is indexed
    each = torch.broadcast_to(_numbers(values), targets.shape).numpy()
    spread = record.emit("take", (values,), torch.broadcast_to(values, targets.shape),
                         indices=each, fill=0.0)  # fmt: skip
    operands = (record.read(self), spread)
    return _summed_into(record, out, operands, (_numbers(self), targets))


def _put(
    record: Recorder, out: Any, self: Any, index: Any, source: Any, accumulate: bool = False
) -> Any:
    if not accumulate:
        return _moved("put")(record, out, self, index, source)
    index = record.relied_on(index)
    targets = torch.where(index < 0, index + self.numel(), index)
    return _summed_into(record, out, (self, source), (_numbers(self), targets))


IDENTITIES = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "amax": -math.inf, "amin": math.inf}

_REDUCED = {"sum": "sum", "mean": "sum", "prod": "prod", "amax": "max", "amin": "min"}


def _grouped(
    record: Recorder,
    out: torch.Tensor,
    operands: Sequence[torch.Tensor],
    targets: Sequence[torch.Tensor],
    reduce: str,
    begun: int = 0,
) -> Any:
    """Translates what reduces the entries of the operands that have the same target, `begun` of
    which count in no mean.
    """
    reduce = {"multiply": "prod", "max": "amax", "min": "amin"}.get(reduce, reduce)
    table = grouped(torch.cat([one.reshape(-1) for one in targets]).numpy(), out.numel())
    flat = torch.cat([one.reshape(-1) for one in operands]).to(out.dtype)
    padded = torch.cat([flat, flat.new_full((1,), IDENTITIES[reduce])])[torch.from_numpy(table)]
    chosen = record.emit("take", operands, padded, indices=table, fill=IDENTITIES[reduce])
    flat_out = out.reshape(-1)
    if reduce == "mean":
        count = np.maximum((table >= 0).sum(1) - float(begun), 1.0)
        total = record.emit("sum", (chosen,), padded.sum(1), axis=(1,), keepdims=False)
        made = record.emit("divide", (total, count), flat_out)
    else:
        made = record.emit(_REDUCED[reduce], (chosen,), flat_out, axis=(1,), keepdims=False)
    return record.emit("take", (made,), out, indices=_numbers(out).numpy(), fill=0.0)


def _scatter_reduce(
    record: Recorder, out: Any, self: Any, dim: int, index: Any, src: Any, reduce: str,
    *, include_self: bool = True,
) -> Any:  # fmt: skip
    targets = _scattered(self, dim, record.relied_on(index), src)
    return _grouped(record, out, (self, src), (_own(self, targets, include_self), targets), reduce)


def _index_reduce(
    record: Recorder, out: Any, self: Any, dim: int, index: Any, source: Any, reduce: str,
    *, include_self: bool = True,
) -> Any:  # fmt: skip
    targets = _indexed(self, dim, record.relied_on(index).reshape(-1)).reshape(source.shape)
    own = _own(self, targets, include_self)
    return _grouped(record, out, (self, source), (own, targets), reduce)


def _own(self: torch.Tensor, targets: torch.Tensor, include_self: bool) -> torch.Tensor:
    """Returns for each entry of `self` whether it takes part: its own number, or -1."""
    own = _numbers(self).reshape(-1)
    if not include_self:
        own[targets[targets >= 0]] = -1
    return own


def _segment_reduce(
    record: Recorder, out: Any, data: Any, reduce: str, *, lengths: Any = None, indices: Any = None,
    offsets: Any = None, axis: int = 0, unsafe: bool = False, initial: Any = None,
) -> Any:  # fmt: skip
    if axis != 0 or indices is not None:
        return Untranslated("its segments lie along another axis")
    if lengths is None:
        lengths = offsets.diff(dim=-1)
    if lengths.dim() != 1:
        return Untranslated("its segments are batched")
    row = torch.arange(len(lengths)).repeat_interleave(lengths)
    targets = torch.full(data.shape, -1)
    targets[: len(row)] = _numbers(out)[row]
    first = data.new_full(out.shape if initial is not None else (0,), initial or 0.0)
    counted = [targets, _numbers(first)]
    return _grouped(record, out, (data, first), counted, reduce, begun=initial is not None)


def _linear(name: str) -> Translation:
    """Returns the translation of an operation that is linear in its first tensor: its matrix is
    read off from the unit vectors.
    """

    def translate(record: Recorder, out: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        function = getattr(aten, name)
        if any(record.knows(one) for one in tensors_in((args, kwargs))):
            return Untranslated("it depends on another operand")
        results = optree.tree_leaves(out)
        result = results[0]
        if x.numel() > MOST_UNIT_VECTORS:
            return Untranslated(f"it has more than {MOST_UNIT_VECTORS} entries")
        wide = torch.complex128 if x.dtype.is_complex else torch.float64
        unit = torch.zeros(x.shape, dtype=wide)
        rows, columns, entries = [], [], []
        for k in range(x.numel()):
            unit.view(-1)[k] = 1
            column = optree.tree_leaves(function(unit, *args, **kwargs))[0].reshape(-1)
            unit.view(-1)[k] = 0
            (row,) = column.nonzero(as_tuple=True)
            rows.append(row.numpy())
            columns.append(np.full(len(row), k))
            entries.append(column[row].numpy())
        taken = np.concatenate(columns)
        factors = np.concatenate(entries)
        flat = x.detach().reshape(-1).to(wide).numpy(force=True)[taken]
        chosen = record.emit("take", (x,), flat, indices=taken, fill=0.0)
        products = record.emit("multiply", (chosen, factors), flat * factors)
        segments = np.concatenate(rows)
        made = record.emit(
            "segment_sum", (products,), result, segments=segments, shape=tuple(result.shape)
        )
        return [made, *(None for _ in results[1:])]

    return translate


MOST_UNIT_VECTORS = 4096
"""Beyond so many entries a linear operation is not probed with unit vectors. Without a limit, an
image would take minutes. The value is ours."""

_LINEAR = (
    *("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "avg_pool2d", "avg_pool3d", "avg_pool1d"),
    *("adaptive_avg_pool1d", "col2im", "upsample_nearest1d"),
    *("upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d"),
    *("_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "upsample_linear1d"),
    *("upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d"),
    *("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "_upsample_lanczos2d_aa", "trace"),
    *("grid_sampler_2d", "grid_sampler_3d"),
)


def _axis(x: torch.Tensor, dim: int) -> int:
    return dim % max(x.dim(), 1)


def _reduced(name: str) -> Translation:
    """Returns the translation of a reduction over axes."""

    def translate(
        record: Recorder,
        out: Any,
        x: Any,
        dim: Any = None,
        keepdim: bool = False,
        *,
        dtype: Any = None,
    ) -> Any:
        if x.dtype is torch.bool and name not in ("any", "all"):
            return Untranslated("it is of booleans")
        return record.emit(name, (x,), out, axis=axes_of(x, dim), keepdims=keepdim and x.dim() > 0)

    return translate


def _extreme(name: str) -> Translation:
    """Returns the translation of the largest or smallest entry, with its index along one axis."""

    def translate(
        record: Recorder, out: Any, x: Any, dim: Any = None, keepdim: bool = False
    ) -> Any:
        if isinstance(dim, torch.Tensor):
            return record.emit(f"{name}imum", (x, dim), out)
        if dim is None:
            return record.emit(name, (x,), out, axis=None, keepdims=False)
        if x.dim() == 0:
            return [record.read(x), Given(record.read(x))]
        values = record.emit(name, (x,), out[0], axis=axes_of(x, dim), keepdims=keepdim)
        at = record.emit(f"arg{name}", (x,), out[1], axis=_axis(x, dim), keepdims=keepdim)
        return [values, at]

    return translate


def _index_of_extreme(name: str) -> Translation:
    """Returns the translation of the index of the largest or smallest entry."""

    def translate(
        record: Recorder, out: Any, x: Any, dim: int | None = None, keepdim: bool = False
    ) -> Any:
        if dim is not None and x.dim():
            return record.emit(name, (x,), out, axis=_axis(x, dim), keepdims=keepdim)
        flat, every = x.detach().reshape(-1), np.arange(x.numel())
        whole = record.emit("take", (x,), flat, indices=every, fill=0.0)
        return record.emit(name, (whole,), out.reshape(()), axis=0, keepdims=False)

    return translate


def _extremes(record: Recorder, out: Any, x: Any, *, dim: Any = None, keepdim: bool = False) -> Any:
    keep = keepdim and x.dim() > 0
    return [
        record.emit(name, (x,), one, axis=axes_of(x, dim), keepdims=keep)
        for name, one in zip(("min", "max"), out, strict=True)
    ]


def _cumulative(name: str) -> Translation:
    def translate(record: Recorder, out: Any, x: Any, dim: int, *, dtype: Any = None) -> Any:
        several = isinstance(out, tuple | list)
        result = out[0] if several else out
        made = record.read(x)
        if x.dim():
            made = record.emit(name, (x,), result, axis=_axis(x, dim))
        return [made, None] if several else made

    return translate


def _ordered(
    record: Recorder, x: torch.Tensor, indices: torch.Tensor, dim: int, descending: bool
) -> Any:
    """Adds the sorting of `x` by the order that was recorded."""
    if x.dim() == 0:
        return record.read(x)
    chosen = x.detach().gather(dim, indices)
    axis, order = _axis(x, dim), indices.numpy()
    if not descending:
        return record.emit("sort", (x,), chosen, axis=axis, indices=order)
    turned = record.emit("negative", (x,), -x.detach())
    ascending = record.emit("sort", (turned,), -chosen, axis=axis, indices=order)
    return record.emit("negative", (ascending,), chosen)


def _sort(
    record: Recorder,
    out: Any,
    x: Any,
    dim: int = -1,
    descending: bool = False,
    *,
    stable: Any = None,
) -> Any:
    made = _ordered(record, x, out[1], dim, descending)
    return [made, Given(made)]


def _topk(
    record: Recorder,
    out: Any,
    x: Any,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
) -> Any:
    values, indices = out
    order = values.argsort(dim=dim, descending=largest) if x.dim() else indices
    made = _ordered(record, x, indices.gather(dim, order) if x.dim() else indices, dim, largest)
    if x.dim():
        back = _numbers(values).gather(dim, order.argsort(dim=dim))
        made = record.emit("take", (made,), values, indices=back.numpy(), fill=0.0)
    return [made, Given(made)]


def _kth(record: Recorder, out: Any, x: Any, k: Any, dim: int, keepdim: bool) -> Any:
    """Adds the entry of rank `k` along an axis, from zero: a number, or one for each row."""
    values = out[0]
    if x.dim() == 0:
        return [record.read(x), Given(record.read(x))]
    order = x.detach().argsort(dim=dim, stable=True)
    made = _ordered(record, x, order, dim, descending=False)
    rank = torch.as_tensor(k).expand(values.shape if keepdim else values.unsqueeze(dim).shape)
    chosen = _numbers(x).gather(dim, rank)
    chosen = chosen if keepdim else chosen.squeeze(dim)
    made = record.emit("take", (made,), values, indices=chosen.numpy(), fill=0.0)
    return [made, Given(made)]


def _kthvalue(
    record: Recorder, out: Any, x: Any, k: int, dim: int = -1, keepdim: bool = False
) -> Any:
    return _kth(record, out, x, k - 1, dim, keepdim)


def _median(record: Recorder, out: Any, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    if dim is None:
        flat = record.emit(
            "take", (x,), x.detach().reshape(-1), indices=np.arange(x.numel()), fill=0.0
        )
        order = x.detach().reshape(-1).argsort(stable=True)
        made = record.emit(
            "sort", (flat,), x.detach().reshape(-1)[order], axis=0, indices=order.numpy()
        )
        middle = max(int((~x.isnan()).sum()) - 1, 0) // 2
        return record.emit("take", (made,), out, indices=np.array(middle), fill=0.0)
    middles = ((~x.detach().isnan()).sum(dim, keepdim=True) - 1).clamp(min=0) // 2 if x.dim() else 0
    return _kth(record, out, x, middles, dim, keepdim)


def _nonzero(record: Recorder, out: Any, x: Any) -> Any:
    """Translates where a number is not zero, of which Python also sees how often that is."""
    if not is_inexact(x):
        return Untranslated("it is of integers")
    record.builder.rely(record.emit("not_equal", (x, 0.0), x != 0))
    return record.builder.host(out)


def _mode(record: Recorder, out: Any, x: Any, dim: int = -1, keepdim: bool = False) -> Any:
    ascending = x.detach().sort(dim)[0] if x.dim() else x.detach().reshape(1)
    if (ascending.diff(dim=dim if x.dim() else 0) == 0).any():
        return Untranslated("entries are equal")
    return _extreme("min")(record, out, x, dim, keepdim)  # each stands there once


def _windows(
    x: torch.Tensor, target: Sequence[int], size: Any, stride: Any, padding: Any, dilation: Any
) -> NDArray[np.int64]:
    """Returns the numbers of the entries in each window of a pooling, -1 in its padding, along a
    new last axis. There are `target` windows along the last axes.
    """

    def each(value: Any, default: Any) -> list[int]:
        several: list[int] = [value] if isinstance(value, int) else list(value or default)
        return several * len(target) if len(several) == 1 else several

    size = each(size, (1,))
    shapes = zip(
        target, size, each(stride, size), each(padding, (0,)), each(dilation, (1,)), strict=True
    )
    numbers = _numbers(x)
    for axis, (count, width, step, before, spread) in enumerate(shapes, x.dim() - len(target)):
        reach = spread * (width - 1) + 1
        after = max((count - 1) * step + reach - x.shape[axis] - before, 0)
        sides = [0, 0] * (x.dim() - 1 - axis) + [before, after]
        # the axes of the windows come last, and are not padded
        sides = [0, 0] * (numbers.dim() - x.dim()) + sides
        numbers = torch.nn.functional.pad(numbers, sides, value=-1)
        numbers = numbers.unfold(axis, reach, step).narrow(axis, 0, count)[..., ::spread]
    return numbers.flatten(-len(target)).numpy()


def _max_pool(dims: int) -> Translation:
    def translate(
        record: Recorder, out: Any, x: Any, size: Any, stride: Any = (), padding: Any = 0,
        dilation: Any = 1, ceil_mode: bool = False,
    ) -> Any:  # fmt: skip
        windows = _windows(x, out[1].shape[-dims:], size, stride, padding, dilation)
        return _largest_of(record, out, x, windows)

    return translate


def _largest_of(record: Recorder, out: Any, x: torch.Tensor, windows: NDArray[np.int64]) -> Any:
    flat = np.append(record.builder.host(x.detach()).reshape(-1), -np.inf)
    chosen = record.emit("take", (x,), flat[windows], indices=windows, fill=-math.inf)
    made = record.emit("max", (chosen,), out[0], axis=(windows.ndim - 1,), keepdims=False)
    at = flat[windows].argmax(-1)
    return [
        made,
        Given(record.emit("argmax", (chosen,), at, axis=windows.ndim - 1, keepdims=False)),
    ]


def _fractional_max_pool(
    record: Recorder, out: Any, x: Any, size: Any, target: Any, samples: Any
) -> Any:
    """Translates a pooling whose windows begin at random places (Graham 2014), as PyTorch takes
    them from the samples: one for each axis, the last axis first.
    """
    dims = len(size)
    numbers = _numbers(x).reshape(-1, *x.shape[-dims:])
    windows = []
    for image, sample in zip(numbers, record.relied_on(samples).reshape(-1, dims), strict=True):
        for axis, (count, width, place) in enumerate(
            zip(target, size, sample.flip(0).tolist(), strict=True)
        ):
            whole = image.shape[axis] - width
            step = whole / (count - 1) if count > 1 else 0.0
            starts = [int((k + place) * step) - int(place * step) for k in range(count - 1)]
            at = torch.tensor([*starts, whole]).unsqueeze(1) + torch.arange(width)
            image = image.index_select(axis, at.reshape(-1)).unflatten(axis, (count, width))
            image = image.movedim(axis + 1, -1)
        windows.append(image.flatten(-dims))
    seen = torch.stack(windows).reshape(*x.shape[:-dims], *target, -1)
    return _largest_of(record, out, x, seen.numpy())


def _adaptive_max_pool(dims: int) -> Translation:
    def translate(record: Recorder, out: Any, x: Any, output_size: Any) -> Any:
        numbers = _numbers(x).numpy()
        target = out[0].shape[-dims:]
        groups = []
        for at in np.ndindex(*target):
            here: Any = [
                slice(k * n // m, -(-(k + 1) * n // m))
                for k, n, m in zip(at, x.shape[-dims:], target, strict=True)
            ]
            groups.append(numbers[(..., *here)].reshape(*x.shape[:-dims], -1))
        width = max(one.shape[-1] for one in groups)
        padded = [
            np.pad(
                one, [(0, 0)] * (one.ndim - 1) + [(0, width - one.shape[-1])], constant_values=-1
            )
            for one in groups
        ]
        windows = np.stack(padded, -2).reshape(*out[0].shape, width)
        return _largest_of(record, out, x, windows)

    return translate


def _convolved(
    record: Recorder, out: Any, x: Any, weight: Any, bias: Any, stride: Any, padding: Any,
    dilation: Any, transposed: bool, output_padding: Any, groups: int,
) -> Any:  # fmt: skip
    if bias is not None:
        return Untranslated("the bias is added after it")
    dims = x.dim() - 2

    def each(value: Any) -> list[int]:
        return list(value) * dims if len(value) == 1 else list(value)

    stride, padding, dilation = each(stride), each(padding), each(dilation)
    ones = [1] * dims
    if not transposed:
        return record.builder.convolution(
            record.read(x), record.read(weight), out,
            strides=stride, padding=[(p, p) for p in padding], dilation=dilation, spread=ones,
            groups=groups, **record.about,
        )  # fmt: skip
    # the kernel is flipped, and its channels and outputs are exchanged within each group
    inward, outward = weight.shape[0] // groups, weight.shape[1]
    spatial = weight.shape[2:]
    numbers = _numbers(weight).reshape(groups, inward, outward, *spatial).transpose(1, 2)
    numbers = numbers.flip(list(range(3, 3 + dims))).reshape(groups * outward, inward, *spatial)
    flipped = weight.detach().reshape(-1)[numbers.reshape(-1)].reshape(numbers.shape)
    kernel = record.emit("take", (weight,), flipped, indices=numbers.numpy(), fill=0.0)
    sides = [
        (d * (n - 1) - p, d * (n - 1) - p + more)
        for d, n, p, more in zip(dilation, spatial, padding, each(output_padding), strict=True)
    ]
    return record.builder.convolution(
        record.read(x), kernel, out,
        strides=ones, padding=sides, dilation=dilation, spread=stride, groups=groups,
        **record.about,
    )  # fmt: skip


def _solve(
    record: Recorder, out: Any, a: Any, b: Any, *, left: bool = True, check_errors: bool = False
) -> Any:
    if not left or b.dim() == a.dim() - 1:
        return Untranslated("it is the other side, or a vector")
    return [record.emit("solve", (a, b), out[0]), None, None, out[3]]


def _solve_triangular(
    record: Recorder, out: Any, a: Any, b: Any, *, upper: bool, left: bool = True,
    unitriangular: bool = False,
) -> Any:  # fmt: skip
    if not left:
        return Untranslated("it is the other side")
    return record.emit(
        "solve_triangular", (a, b), out, lower=not upper, unit_diagonal=unitriangular
    )


def _hermitian(record: Recorder, a: torch.Tensor, upper: bool) -> Any:
    """Adds the Hermitian matrix of which one triangle was given, since the other is not read."""
    numbers = _numbers(a)
    own = numbers.triu() if upper else numbers.tril()
    given = torch.ones(a.shape, dtype=torch.bool)
    given = given.triu() if upper else given.tril()
    values = torch.where(given, a.detach(), conjugate_transpose(a.detach()))
    if not a.dtype.is_complex:
        mirrored = torch.where(given, own, own.mT)
        return record.emit("take", (a,), values, indices=mirrored.numpy(), fill=0.0)
    conjugate = record.emit("conj", (a,), torch.conj_physical(a.detach()))
    diagonal = torch.eye(a.shape[-1], dtype=torch.bool)
    mirrored = torch.where(given, own, own.mT + a.numel())
    made = record.emit("take", (a, conjugate), values, indices=mirrored.numpy(), fill=0.0)
    # the imaginary part of the diagonal is not read, either
    real = torch.where(diagonal, values.real, 0.0)
    off = record.emit(
        "multiply", (made, (~diagonal).to(torch.float64)), torch.where(diagonal, 0, values)
    )
    on = record.emit(
        "multiply", (record.emit("real", (made,), values.real), diagonal.to(torch.float64)), real
    )
    return record.emit("add", (off, on), torch.where(diagonal, real, values))


def _cholesky(
    record: Recorder, out: Any, a: Any, upper: bool = False, *, check_errors: bool = False
) -> Any:
    factor = out[0] if isinstance(out, tuple) else out
    lower = conjugate_transpose(factor) if upper else factor
    made = record.emit("cholesky", (_hermitian(record, a, upper),), lower)
    if upper:
        made = _transposed(record, made, factor)
    return [made, out[1]] if isinstance(out, tuple) else made


def _transposed(record: Recorder, operand: Any, result: torch.Tensor) -> Any:
    """Adds the conjugate transpose, which is `result`."""
    numbers = torch.arange(result.numel()).reshape(result.mT.shape).mT
    made = record.emit(
        "take", (operand,), torch.conj_physical(result), indices=numbers.numpy(), fill=0.0
    )
    return record.emit("conj", (made,), result) if result.dtype.is_complex else made


def _eigh(record: Recorder, out: Any, a: Any, UPLO: str = "L", compute_v: bool = True) -> Any:
    values, vectors = out
    if not compute_v:
        _, vectors = torch.linalg.eigh(a.detach(), UPLO)
    given = _hermitian(record, a, UPLO.upper() == "U")
    return list(record.emit("eigh", (given,), [values, vectors]))[: 1 + compute_v] + [None] * (
        not compute_v
    )


def _qr(record: Recorder, out: Any, a: Any, mode: str = "reduced") -> Any:
    rows, columns = a.shape[-2:]
    if columns <= rows and (mode != "complete" or rows == columns):
        q, r = out if mode != "r" else torch.linalg.qr(a.detach())
        found = record.emit("qr", (a,), [q, r])
        return [None, found[1]] if mode == "r" else list(found)
    if columns <= rows or mode == "r":
        return Untranslated("its Q has more columns than the matrix")
    # the first columns decide Q, and Q^H gives the rest of R
    return record.formula(wide_qr, a)


def _svd(
    record: Recorder, out: Any, a: Any, full_matrices: bool = False, compute_uv: bool = True,
    *, driver: Any = None,
) -> Any:  # fmt: skip
    rows, columns = a.shape[-2:]
    u, s, vh = out
    if not compute_uv:
        u, s, vh = torch.linalg.svd(a.detach(), full_matrices=False)
    elif full_matrices and rows != columns:
        return Untranslated("its full factors are not unique")
    made = record.emit("svd", (a,), [u, s, vh])
    return list(made) if compute_uv else [None, made[1], None]


def _eig(record: Recorder, out: Any, a: Any) -> Any:
    values, vectors = out if isinstance(out, tuple | list) else (out, None)
    if vectors is None:  # another algorithm, and perhaps another order
        among, vectors = torch.linalg.eig(a.detach())
        nearest = (values.unsqueeze(-1) - among.unsqueeze(-2)).abs().argmin(-1)
        vectors = vectors.gather(-1, nearest.unsqueeze(-2).expand(vectors.shape))
        return record.emit("eig", (a,), [values, vectors])[0]
    return list(record.emit("eig", (a,), [values, vectors]))


def _inverse(record: Recorder, out: Any, a: Any, *, check_errors: bool = False) -> Any:
    return [record.emit("inv", (a,), out[0]), out[1]]


def _det(record: Recorder, out: Any, a: Any) -> Any:
    return [record.emit("det", (a,), out[0]), None, None]


def _slogdet(record: Recorder, out: Any, a: Any) -> Any:
    return [*record.emit("slogdet", (a,), [out[0], out[1]]), None, None]


def _lu_factor(
    record: Recorder, out: Any, a: Any, *, pivot: bool = True, check_errors: bool = False
) -> Any:
    (made,) = record.formula(eliminated, a, _order_of(out[1], a))
    return [made, *out[1:]]


def _lu(record: Recorder, out: Any, a: Any, *, pivot: bool = True) -> Any:
    order = out[0].real.argmax(-2) if pivot else torch.arange(a.shape[-2]).expand(a.shape[:-1])
    (both,) = record.formula(eliminated, a, order)
    compact = torch.linalg.lu_factor(a.detach(), pivot=pivot)[0]
    return [out[0], *record.formula(unpacked, record.tensor(both, compact))]


def _order_of(pivots: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    """Returns which row of a matrix each row of its factors comes from."""
    permutation, _, _ = torch.lu_unpack(a.detach(), pivots, unpack_data=False)
    return permutation.real.argmax(-2)


def _lu_unpack(
    record: Recorder, out: Any, both: Any, pivots: Any, unpack_data: bool = True,
    unpack_pivots: bool = True,
) -> Any:  # fmt: skip
    if not unpack_data:
        return [out[0], None, None]
    return [out[0], *record.formula(unpacked, both)]


def _lu_solve(
    record: Recorder, out: Any, both: Any, pivots: Any, b: Any, *, left: bool = True,
    adjoint: bool = False,
) -> Any:  # fmt: skip
    permutation, _, _ = torch.lu_unpack(both.detach(), pivots, unpack_data=False)

    def solved() -> Any:
        lower, upper = unpacked(both)
        a = permutation @ lower @ upper
        a = conjugate_transpose(a) if adjoint else a
        return torch.linalg.solve(a, b) if left else torch.linalg.solve(a.mT, b.mT).mT

    return record.formula(solved)


def _lstsq(
    record: Recorder, out: Any, a: Any, b: Any, rcond: Any = None, *, driver: Any = None
) -> Any:
    def solved() -> Any:
        if a.shape[-2] < a.shape[-1]:
            x = conjugate_transpose(a) @ torch.linalg.solve(a @ conjugate_transpose(a), b)
        else:
            x = torch.linalg.solve(conjugate_transpose(a) @ a, conjugate_transpose(a) @ b)
        off = a @ x - b
        return x, (off * torch.conj_physical(off)).real.sum(-2) if out[1].numel() else None

    return [*record.formula(solved), out[2], None]


def _pinv(record: Recorder, out: Any, a: Any, *args: Any, **kwargs: Any) -> Any:
    rows, columns = a.shape[-2:]
    if (torch.linalg.matrix_rank(out) < min(rows, columns)).any():
        return Untranslated("the matrix has not got full rank")

    def inverse() -> Any:
        if rows < columns:
            return conjugate_transpose(a) @ torch.linalg.inv(a @ conjugate_transpose(a))
        return torch.linalg.inv(conjugate_transpose(a) @ a) @ conjugate_transpose(a)

    return record.formula(inverse)


def _c2c(record: Recorder, out: Any, x: Any, dim: Any, normalization: int, forward: bool) -> Any:
    axes = [one % x.dim() for one in dim]
    if len(axes) != 1 or normalization:
        return Untranslated("it has several axes, or a factor")
    return record.emit("fft", (x,), out, axis=axes[0], inverse=not forward)


def _frexp(record: Recorder, out: Any, x: Any) -> Any:
    factors = np.exp2(-record.builder.host(out[1]).astype(float))
    mantissa = record.emit("multiply", (x, factors), out[0])
    size = np.abs(record.builder.host(out[0]))
    whole = record.emit("abs", (mantissa,), size)
    bounds = (("greater", 0.0), ("greater_equal", 0.5), ("less", 1.0))
    for name, bound in bounds:  # beyond these it is multiplied by another power of two
        record.builder.rely(record.emit(name, (whole, bound), getattr(np, name)(size, bound)))
    return [mantissa, record.builder.host(out[1])]


def _ctc(
    record: Recorder, out: Any, log_probs: Any, targets: Any, input_lengths: Any,
    target_lengths: Any, blank: int = 0, zero_infinity: bool = False,
) -> Any:  # fmt: skip
    if isinstance(input_lengths, torch.Tensor):
        input_lengths, target_lengths = input_lengths.tolist(), target_lengths.tolist()
    if targets.dim() == 1:
        rows = list(targets.split(list(target_lengths)))
    else:
        rows = [row[:n] for row, n in zip(targets, target_lengths, strict=True)]

    labels = torch.full((len(rows), 2 * max(map(len, rows), default=0) + 1), blank)
    for k, row in enumerate(rows):
        labels[k, 1 : 2 * len(row) : 2] = row
    lengths, places = torch.as_tensor(input_lengths), torch.arange(labels.shape[1])
    last = 2 * torch.as_tensor(target_lengths).unsqueeze(1)
    ends = (places == last) | (places == last - 1)
    made = record.formula(ctc_losses, log_probs, labels, lengths, ends, labels != blank)
    return [*made, None]


TRANSLATIONS: Mapping[str, Translation] = {
    **{name: _same(name) for name in _SAME},
    **{name: _same(theirs) for name, theirs in _RENAMED.items()},
    **{name: _moved(name) for name in _MOVED},
    **{name: _linear(name) for name in _LINEAR},
    "add": _with_alpha("add"),
    "sub": _with_alpha("subtract"),
    "rsub": lambda record, out, x, y, alpha=1: (
        Untranslated("the first operand has a factor")
        if alpha != 1
        else record.emit("subtract", (y, x), out)
    ),
    "div": _divided,
    "clone": _copied,
    "_to_copy": _copied,
    "copy": lambda record, out, x, src, *_: _copied(
        record, out, torch.broadcast_to(src, out.shape)
    ),
    "round": lambda record, out, x, decimals=0: (
        Untranslated("it has decimals") if decimals else record.emit("round", (x,), out)
    ),
    "sum": _reduced("sum"),
    "prod": _reduced("prod"),
    "amax": _reduced("max"),
    "amin": _reduced("min"),
    "any": _reduced("any"),
    "all": _reduced("all"),
    "logsumexp": _reduced("logsumexp"),
    "max": _extreme("max"),
    "min": _extreme("min"),
    "argmax": _index_of_extreme("argmax"),
    "argmin": _index_of_extreme("argmin"),
    "aminmax": _extremes,
    "cumsum": _cumulative("cumulative_sum"),
    "cumprod": _cumulative("cumulative_prod"),
    "cummax": _cumulative("cumulative_max"),
    "cummin": _cumulative("cumulative_min"),
    "logcumsumexp": _cumulative("cumulative_logsumexp"),
    "sort": _sort,
    "topk": _topk,
    "kthvalue": _kthvalue,
    "median": _median,
    "nanmedian": _median,
    "max_pool2d_with_indices": _max_pool(2),
    "max_pool3d_with_indices": _max_pool(3),
    "adaptive_max_pool2d": _adaptive_max_pool(2),
    "adaptive_max_pool3d": _adaptive_max_pool(3),
    "scatter_add": _scatter_add,
    "index_add": _index_add,
    "index_put": _index_put,
    "put": _put,
    "scatter_reduce": _scatter_reduce,
    "index_reduce": _index_reduce,
    "segment_reduce": _segment_reduce,
    "frexp": _frexp,
    "convolution": _convolved,
    "_linalg_solve_ex": _solve,
    "linalg_solve_triangular": _solve_triangular,
    "linalg_cholesky_ex": _cholesky,
    "cholesky": _cholesky,
    "_linalg_eigh": _eigh,
    "linalg_qr": _qr,
    "_linalg_svd": _svd,
    "linalg_eig": _eig,
    "_linalg_eigvals": _eig,
    "linalg_eigvals": _eig,
    "linalg_matrix_exp": lambda record, out, a: record.emit("matrix_exp", (a,), out),
    "nonzero": _nonzero,
    "mode": _mode,
    "fractional_max_pool2d": _fractional_max_pool,
    "fractional_max_pool3d": _fractional_max_pool,
    "linalg_inv_ex": _inverse,
    "_linalg_det": _det,
    "_linalg_slogdet": _slogdet,
    "linalg_lu_factor_ex": _lu_factor,
    "linalg_lu": _lu,
    "lu_unpack": _lu_unpack,
    "linalg_lu_solve": _lu_solve,
    "linalg_lstsq": _lstsq,
    "linalg_pinv": _pinv,
    "_fft_c2c": _c2c,
    "_ctc_loss": _ctc,
}
