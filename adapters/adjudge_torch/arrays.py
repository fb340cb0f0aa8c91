"""PyTorch's tensors: dense ones with their strides, sparse ones, and those of oneDNN."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, Self

import array_api_compat.torch
import numpy as np
import torch
from numpy.typing import NDArray
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils import _pytree as pytree

from adjudge.engine import (
    Array,
    ArrayInfo,
    ArrayOperations,
    Arrays,
    Expansion,
    HostArray,
    memory_span,
)
from adjudge.errors import InputError
from adjudge_torch import sparse
from adjudge_torch.precision import is_transformed, memory_of

PLAIN = (torch.Tensor, torch.nn.Parameter)
VALUELESS = "meta tensors have a shape and a dtype, and hold no values"


def outside_transforms(*tensors: torch.Tensor) -> AbstractContextManager[object]:
    """Within it torch.func transforms nothing, unless one of these tensors is of a transform.

    Without it the copy of a buffer is a wrapper while f is transformed, and a buffer that is given
    the memory of a wrapper ends the process (PyTorch 2.13).
    """
    inside = torch._C._are_functorch_transforms_active()  # as Function.apply asks
    if not inside or any(map(is_transformed, tensors)):
        return nullcontext()
    context: AbstractContextManager[object] = temporarily_clear_interpreter_stack()
    return context


def _memory_of(array: torch.Tensor) -> int:
    """Returns where the memory lies that other tensors may share; 0 for tensors of other kinds."""
    plain = type(array) in PLAIN and not array.is_nested
    if not plain or array.is_conj() or array.is_neg() or is_transformed(array):
        return 0
    return memory_of(array)


MOST_UNUSED = 4
"""Tensors that share a memory of more than this many times their own size are copied apart. The
value is ours."""


def _host(copied: torch.Tensor) -> HostArray:
    """Returns the numbers of a copy, whose memory they take. Conjugate and negative views, and
    the zero tensors of forward AD, become values (`force`).
    """
    numbers: HostArray = copied.numpy(force=True)
    return numbers


class TorchArrays(ArrayOperations):
    """Operations on tensors. Contract: see `ArrayOperations`."""

    def __init__(self, *, stored_only: bool = False) -> None:
        """`stored_only`: the coordinates of a sparse tensor are its stored entries."""
        super().__init__("torch", array_api_compat.torch)
        self._stored_only = stored_only

    def info(self, array: Array) -> ArrayInfo:
        layout = _name(array.layout)
        if array.layout is not torch.strided and sparse.is_sparse(array):
            layout = f"{layout} ({array.sparse_dim()} sparse, {array.dense_dim()} dense dimensions)"
        return ArrayInfo(tuple(array.shape), _name(array.dtype), _name(array.device), layout)

    # the namespace of array-api-compat takes ten times as long to say these

    def is_differentiable(self, array: Array) -> bool:
        return bool(array.dtype.is_floating_point or array.dtype.is_complex)

    def is_complex(self, array: Array) -> bool:
        return bool(array.dtype.is_complex)

    def eps(self, array: Array) -> float:
        return _eps(array.dtype)

    def devices(self) -> list[str]:
        return ["cpu", *(f"cuda:{k}" for k in range(torch.cuda.device_count()))]

    def dtypes(self) -> list[str]:
        return ["float64", "float32", "float16", "bfloat16", "complex128", "complex64"]

    def to_host(self, array: Array, like: Array | None = None) -> HostArray:
        pattern = array if like is None else like
        plain = type(array) in PLAIN and array.layout is pattern.layout is torch.strided
        plain = plain and not array.is_nested
        try:
            # A copy is read: memory that NumPy shares can never be resized again, the user's too.
            if plain and array.dtype is torch.float64 and array.is_cpu:  # as most are
                return _host(array.detach().clone())
            return self._values(array, pattern, plain=plain)
        except RuntimeError as error:
            if is_transformed(array):
                error.add_note(
                    "adjudge: a tensor is one of torch.func, which has no values: the check is "
                    "made inside of a function that torch.func transforms; check outside of "
                    "torch.func.vmap and torch.func.grad (the function that is checked may use "
                    "them)"
                )
            raise

    def _values(self, array: Array, pattern: Array, *, plain: bool) -> HostArray:
        """Returns what `to_host` does; `plain` are strided tensors of PyTorch itself."""
        if array.is_nested:  # it has no shape
            raise InputError(
                f"a nested tensor of {array.size(0)} tensors, {_name(array.dtype)}, has no shape",
                "pass its tensors as a list, of which the function makes a nested tensor",
            )
        tensor = array.detach()
        if tensor.is_meta:
            raise self.lacks("reading a tensor on device 'meta'", VALUELESS)
        if is_wrapper(tensor):
            tensor = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
            tensor.copy_(array.detach())
        wide = torch.complex128 if tensor.dtype.is_complex else torch.float64
        if plain:
            return _host(tensor.to(device="cpu", dtype=wide, copy=True))
        if sparse.is_sparse(pattern) and self._stored_only:
            tensor = sparse.stored_values(tensor, pattern)
        elif sparse.is_sparse(tensor) or tensor.is_mkldnn:
            tensor = tensor.to_dense()
        tensor = tensor.as_subclass(torch.Tensor).to(device="cpu", dtype=wide, copy=True)
        return _host(tensor)

    def from_host(self, host: HostArray, like: Array) -> Array:
        tensor = torch.from_numpy(np.array(host))
        plain = type(like) in PLAIN
        if not plain and is_wrapper(like):
            made = like.detach().clone()
            made.copy_(tensor.to(dtype=like.dtype, device=like.device))
            return made.requires_grad_(like.requires_grad)
        if like.dtype is not tensor.dtype or not like.is_cpu:
            tensor = tensor.to(dtype=like.dtype, device=like.device)
        if like.layout is not torch.strided:
            tensor = self._in_layout(tensor, like)
        elif tensor.stride() != like.stride():
            tensor = _in_strides(tensor, like)
        if type(like) is not torch.Tensor:
            tensor = of_class_of(like, tensor)
        if not like.requires_grad:
            return tensor
        tensor.requires_grad_()
        return tensor if like.is_leaf else tensor.clone()

    def _in_layout(self, tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """Returns the dense `tensor` in the layout of `like`, which is another one."""
        if sparse.is_sparse(like):
            rebuild = sparse.with_stored_values if self._stored_only else sparse.with_implied_zeros
            return rebuild(tensor, like)
        return tensor.to_mkldnn() if like.is_mkldnn else tensor

    def make(self, values: NDArray[Any], dtype: str, device: str | None = None) -> Array:
        wanted = getattr(torch, dtype, None)
        if not isinstance(wanted, torch.dtype):
            raise self.lacks_dtype(dtype)
        # float64 holds every narrower value, also of the dtypes that NumPy has not got
        narrow = values.dtype.kind not in "biufc" or values.dtype.itemsize < 4
        host = values.astype(np.float64) if wanted.is_floating_point and narrow else values
        return torch.from_numpy(np.array(host, order="C")).to(
            dtype=wanted, device=self._device(device or "cpu")
        )

    def copy(self, array: Array) -> Array:
        with outside_transforms(array):
            copied = array.detach().clone()
        if type(copied) is torch.Tensor and copied.layout is torch.strided:
            # clone keeps the strides of dense memory only
            copied = _in_strides(copied, array)
        return of_class_of(array, copied) if isinstance(array, torch.nn.Parameter) else copied

    def copies(self, arrays: Arrays) -> Arrays:
        groups: dict[int, list[torch.Tensor]] = {}
        for array in arrays:
            groups.setdefault(_memory_of(array) or -id(array), []).append(array)
        if len(groups) == len(arrays):
            return tuple(map(self.copy, arrays))
        made: dict[int, torch.Tensor] = {}
        for group in groups.values():
            memory = group[0].untyped_storage() if len(group) > 1 else None
            # of a small part of a large memory the rest is not copied
            if memory is None or memory.nbytes() > MOST_UNUSED * sum(one.nbytes for one in group):
                made |= {id(one): self.copy(one) for one in group}
                continue
            with outside_transforms():
                memory = memory.clone()
                for one in group:
                    empty = torch.empty(0, dtype=one.dtype, device=one.device)
                    copied = empty.set_(memory, one.storage_offset(), one.shape, one.stride())
                    own = isinstance(one, torch.nn.Parameter)
                    made[id(one)] = of_class_of(one, copied) if own else copied
        return tuple([made[id(array)] for array in arrays])

    def place(self, array: Array, device: str) -> Array:
        there = self._device(device)
        if array.is_meta:
            raise self.lacks("copying a tensor from device 'meta'", VALUELESS)
        # detached, in place of the leaf: the mark is kept, the history is not
        copied = of_class_of(array, array.detach().clone().to(there))
        return copied.requires_grad_(array.requires_grad)

    def widen(self, array: Array) -> Array:
        wide = torch.complex128 if array.dtype.is_complex else torch.float64
        if is_wrapper(array):
            return array.detach().to(wide).requires_grad_(array.requires_grad)
        widened = of_class_of(array, _in_strides(array.detach().to(wide), array))
        return widened.requires_grad_(array.requires_grad)

    def noncontiguous(self, array: Array) -> Array:
        if array.numel() == 0 or array.layout is not torch.strided or is_wrapper(array):
            return array
        # Not new_empty: what a rule that ignores strides makes of the gaps has to be repeatable.
        spread = array.new_zeros((*array.shape, 2)).select(-1, 1)
        if array.is_complex():  # as what comes from a conjugate, which is taken when it is read
            return spread.copy_(array.detach().conj()).conj()
        return spread.copy_(array.detach())

    def expanded(self, array: Array, axis: int | None = None) -> Array | None:
        if array.numel() < 2 or array.layout is not torch.strided or is_wrapper(array):
            return None
        array = array.detach()
        first = array.as_strided((), ()) if axis is None else array.narrow(axis, 0, 1)
        return first.clone(memory_format=torch.contiguous_format).expand(array.shape)

    def expand(self, node: object) -> Expansion | None:
        """Containers that are registered with PyTorch, such as outputs of models."""
        if isinstance(node, torch.Tensor) or type(node) not in pytree.SUPPORTED_NODES:
            return None
        leaves, structure = pytree.tree_flatten(node)
        try:
            paths = [pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path(node)[0]]
        except ValueError:  # a container that was registered without the names of its children
            paths = [f"[{k}]" for k in range(len(leaves))]
        return Expansion(
            tuple(leaves), tuple(paths), lambda new: pytree.tree_unflatten(list(new), structure)
        )

    def stored_only(self) -> Self:
        return type(self)(stored_only=True)

    def _device(self, name: str) -> str:
        known = self.devices()
        if name in known or f"{name}:0" in known:
            return name
        raise self.lacks_device(name, VALUELESS if name == "meta" else "")


def of_class_of(like: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Returns `tensor`, which is new, with the class of `like` and the attributes given to that.

    A module registers an `nn.Parameter` that is assigned to it, and takes any other tensor for a
    constant; what PyTorch makes of a parameter (`detach`, `clone`) is a plain tensor.
    """
    if type(tensor) is type(like):
        return tensor
    made = tensor.as_subclass(type(like))
    vars(made).update(vars(like))
    return made


def is_wrapper(tensor: torch.Tensor) -> bool:
    """Returns whether the tensor is of a subclass that says itself what operators do, and has no
    memory of its own (`__torch_dispatch__`). Its values are read and written by copying, which
    reaches the tensors in it.
    """
    kind = type(tensor)
    return (
        kind not in PLAIN and kind.__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl
    )


@cache
def _name(kind: torch.dtype | torch.layout | torch.device) -> str:
    """Returns the name of a dtype, a layout or a device without that of the library."""
    return str(kind).removeprefix("torch.")


@cache
def _eps(dtype: torch.dtype) -> float:
    """Returns the spacing at 1 of a dtype."""
    return float(torch.finfo(dtype).eps)


def _in_strides(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Returns `tensor`, which is new, with the strides of `like` where a copy should have them."""
    if like.layout is not torch.strided or tensor.stride() == like.stride() or tensor.numel() == 0:
        return tensor
    if memory_span(like.shape, like.stride()) is None:
        return tensor
    placed = torch.empty_strided(
        like.shape, like.stride(), dtype=tensor.dtype, device=tensor.device
    )
    return placed.copy_(tensor)
