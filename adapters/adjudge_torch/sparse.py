"""Sparse tensors as dense or stored coordinates."""

from __future__ import annotations

import torch

COMPRESSED_BY_ROW = (torch.sparse_csr, torch.sparse_bsr)
COMPRESSED = (*COMPRESSED_BY_ROW, torch.sparse_csc, torch.sparse_bsc)
BLOCKED = (torch.sparse_bsr, torch.sparse_bsc)
LAYOUTS = (torch.sparse_coo, *COMPRESSED)


def is_sparse(tensor: torch.Tensor) -> bool:
    """Returns whether the layout is one of PyTorch's sparse ones."""
    return tensor.layout in LAYOUTS


def _with_values(like: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    # the device is named, since `torch.set_default_device` would move what is made without one
    if like.layout is torch.sparse_coo:
        return torch.sparse_coo_tensor(
            like.indices(),
            values,
            like.shape,
            device=values.device,
            is_coalesced=True,
            check_invariants=False,
        )
    by_row = like.layout in COMPRESSED_BY_ROW
    return torch.sparse_compressed_tensor(
        like.crow_indices() if by_row else like.ccol_indices(),
        like.col_indices() if by_row else like.row_indices(),
        values,
        like.shape,
        layout=like.layout,
        device=values.device,
        check_invariants=False,
    )


def values(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor of the stored entries, with the memory of the sparse one."""
    tensor = tensor.detach()
    return tensor._values() if tensor.layout is torch.sparse_coo else tensor.values()


def stored(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor with its stored entries in canonical order."""
    tensor = tensor.detach()
    return tensor.coalesce() if tensor.layout is torch.sparse_coo else tensor


def pattern(like: torch.Tensor) -> torch.Tensor:
    """Returns a dense boolean tensor that says where `like` stores an entry."""
    like = stored(like)
    ones = torch.ones_like(like.values(), dtype=torch.float64)
    return _with_values(like, ones).to_dense() != 0


def stored_values(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Returns the entries of `tensor` where `like` stores one, in row-major order."""
    return tensor.detach().to_dense()[pattern(like)]


def with_stored_values(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Returns a tensor with the pattern of `like` and these values in row-major order."""
    whole = torch.zeros(like.shape, dtype=values.dtype, device=values.device)
    whole[pattern(like)] = values
    like = stored(like)
    # where in the dense tensor each stored entry stands: gathered through the layout itself
    return _with_values(like, _gather(whole, like))


def _gather(whole: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    if like.layout is torch.sparse_coo:
        return whole[tuple(like.indices())]
    blocks = like.values().shape
    flat = _coordinates(like)
    return whole.reshape(-1, *like.shape[2:])[flat].reshape(blocks)


def _coordinates(like: torch.Tensor) -> torch.Tensor:
    """Returns the flat dense index of every stored entry of a compressed tensor, as stored."""
    by_row = like.layout in COMPRESSED_BY_ROW
    compressed = like.crow_indices() if by_row else like.ccol_indices()
    plain = like.col_indices() if by_row else like.row_indices()
    if compressed.dim() > 1:
        raise ValueError("batched compressed sparse tensors are not supported: pass one at a time")
    height, width = like.values().shape[1:3] if like.layout in BLOCKED else (1, 1)
    outer = torch.repeat_interleave(
        torch.arange(compressed.numel() - 1, device=compressed.device), compressed.diff()
    )
    rows, columns = (outer, plain) if by_row else (plain, outer)
    r = rows[:, None, None] * height + torch.arange(height, device=rows.device)[None, :, None]
    c = columns[:, None, None] * width + torch.arange(width, device=rows.device)[None, None, :]
    return (r * like.shape[1] + c).reshape(-1)


def with_implied_zeros(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Returns the dense `values` in the layout of `like`, which stores what `like` does and what is
    not zero.

    At x itself that is the user's own pattern, so that a gradient cut down to it is found out.
    """
    ones = (pattern(like) | (values != 0)).to(values.dtype)
    if like.layout is torch.sparse_coo:
        full = ones.to_sparse(like.sparse_dim()).coalesce()
    elif like.layout in BLOCKED:
        size = tuple(like.values().shape[1:3])
        inner = like.dense_dim()
        full = ones.to_sparse(layout=like.layout, blocksize=size, dense_dim=inner)
    else:
        full = ones.to_sparse(layout=like.layout, dense_dim=like.dense_dim())
    return _with_values(full, _gather(values, full))
