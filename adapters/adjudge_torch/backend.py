"""PyTorch as an adjudge backend: eager autograd, forward AD, and torch.func.vmap."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Self

import array_api_compat.torch
import numpy as np
import torch
import torch.autograd.forward_ad as forward_ad
from numpy.typing import NDArray

from adjudge.engine import (
    Array,
    ArrayInfo,
    Arrays,
    AutodiffBackend,
    FlatFunction,
    HostArray,
    MaybeArrays,
    Pullback,
)
from adjudge.errors import NotSupportedError
from adjudge_torch import precision, settings, sparse
from adjudge_torch.graph import gradients

VALUELESS = "meta tensors have a shape and a dtype, and hold no values"

REFUSALS = (
    "Nested forward mode AD",
    "forward AD with",
    "forward mode AD",
    "that does not support it because it has not been implemented",
    "is not implemented",
    "is not differentiable twice",
    "differentiate twice a function that was marked with @once_differentiable",
    "does not currently support double backward",
    "must override the setup_context",
    "Nested autograd.function",
)
"""What PyTorch says where it has no derivative to offer (2.1 to 2.13), by RuntimeError or
NotImplementedError."""


class TorchBackend(AutodiffBackend):
    """See `AutodiffBackend` for the contract."""

    name = "torch"
    way = "eager"

    def __init__(self, *, stored_only: bool = False) -> None:
        """`stored_only`: the coordinates of a sparse tensor are its stored entries."""
        self._stored_only = stored_only

    @property
    def xp(self) -> Any:
        return array_api_compat.torch

    def owns(self, leaf: object) -> bool:
        return isinstance(leaf, torch.Tensor)

    def ways(self) -> Sequence[AutodiffBackend]:
        home: Any = importlib.import_module("adjudge_torch.transforms")
        return (home.FunctionalBackend(stored_only=self._stored_only),)

    # ---------------------------------------------------------------- derivatives

    def vjp(self, f: FlatFunction, x: Arrays) -> tuple[Arrays, Pullback]:
        x = tuple(_recording(leaf) for leaf in x)
        y = f(x)

        def pullback(w: MaybeArrays) -> MaybeArrays:
            with self.refusing("reverse mode (vjp)"):
                return gradients(y, x, w, create_graph=False)

        return y, pullback

    def jvp(self, f: FlatFunction, x: Arrays, v: MaybeArrays) -> tuple[Arrays, MaybeArrays]:
        try:
            with self.refusing("forward mode (jvp)"):
                return self._dual_jvp(f, x, v)
        except NotSupportedError:
            raise
        except RuntimeError as error:
            # under torch.func.vmap dual tensors are made by torch.func alone
            if "Batching rule not implemented for aten::_make_dual" in str(error):
                return self.functional_jvp(f, x, v)
            raise

    @contextmanager
    def refusing(self, what: str) -> Iterator[None]:
        """PyTorch's own refusals as `NotSupportedError`; every other exception comes through."""
        try:
            yield
        except RuntimeError as error:  # NotImplementedError is one
            if isinstance(error, NotSupportedError) or not any(
                words in str(error) for words in REFUSALS
            ):
                raise
            if "Nested forward mode AD" in str(error):
                what = "forward mode over forward mode"
            raise self.lacks(what, str(error)) from error

    def _dual_jvp(self, f: FlatFunction, x: Arrays, v: MaybeArrays) -> tuple[Arrays, MaybeArrays]:
        y, jv = self._duals(f, x, tuple(None if t is None else t.detach() for t in v))
        return (
            tuple(primal.detach() for primal in y),
            tuple(None if tangent is None else tangent.detach() for tangent in jv),
        )

    def _duals(self, f: FlatFunction, x: Arrays, v: MaybeArrays) -> tuple[Arrays, MaybeArrays]:
        with forward_ad.dual_level():
            duals = tuple(self._dual(leaf, tangent) for leaf, tangent in zip(x, v, strict=True))
            pairs = [forward_ad.unpack_dual(output) for output in f(duals)]
        return tuple(pair.primal for pair in pairs), tuple(pair.tangent for pair in pairs)

    def _dual(self, leaf: torch.Tensor, tangent: torch.Tensor | None) -> torch.Tensor:
        if tangent is None:
            return _recording(leaf)
        try:
            dual: torch.Tensor = forward_ad.make_dual(_recording(leaf), tangent)
        except RuntimeError as error:
            if leaf.layout is torch.strided:
                raise
            raise self.lacks(f"forward mode (jvp) of {leaf.layout} tensors", str(error)) from error
        return dual

    def functional_jvp(
        self, f: FlatFunction, x: Arrays, v: MaybeArrays
    ) -> tuple[Arrays, MaybeArrays]:
        """`torch.func.jvp`, which can be differentiated again."""
        # leaves without a tangent take no part: a zero one would be written into in place
        moved = [k for k, tangent in enumerate(v) if tangent is not None]

        def of_moved(*leaves: torch.Tensor) -> Arrays:
            whole = list(x)
            for k, leaf in zip(moved, leaves, strict=True):
                whole[k] = leaf
            return f(tuple(whole))

        pair: Any = torch.func.jvp(of_moved, tuple(x[k] for k in moved), tuple(v[k] for k in moved))
        return pair[0], pair[1]

    def vjp_map(self, f: FlatFunction, x_count: int) -> FlatFunction:
        def gradient_map(x_and_w: Arrays) -> Arrays:
            x = tuple(_recording(leaf) for leaf in x_and_w[:x_count])
            y = f(x)
            with self.refusing("reverse mode (vjp)"):
                g = gradients(y, x, x_and_w[x_count:], create_graph=True)
            return self.zeros_for_absent(g, x)

        return gradient_map

    def jvp_map(self, f: FlatFunction, x_count: int) -> FlatFunction:
        def tangent_map(x_and_v: Arrays) -> Arrays:
            x, v = x_and_v[:x_count], x_and_v[x_count:]
            with self.refusing("forward mode (jvp)"):
                y, jv = self._duals(f, x, v)  # what is recorded of tangents can be pulled back
            return self.zeros_for_absent(jv, y)

        return tangent_map

    def vmap(self, function: Callable[[MaybeArrays], MaybeArrays]) -> Callable[..., MaybeArrays]:
        def mapped(*stacks: torch.Tensor) -> MaybeArrays:
            present: list[bool] = []

            def one(*arrays: torch.Tensor) -> Arrays:
                values = function(arrays)
                present[:] = [value is not None for value in values]
                # vmap returns tensors only; something must come back where all are absent
                return (*(value for value in values if value is not None), arrays[0])

            results = iter(torch.func.vmap(one, randomness="different")(*stacks))
            return tuple(next(results) if here else None for here in present)

        return mapped

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return torch.compile(function)

    @property
    def undefined_cotangents(self) -> bool:
        return True

    def detached(self, y: Array) -> bool:
        return not y.requires_grad

    # ---------------------------------------------------------------- arrays

    def info(self, array: Array) -> ArrayInfo:
        return ArrayInfo(
            tuple(array.shape),
            str(array.dtype).removeprefix("torch."),
            str(array.device),
            str(array.layout).removeprefix("torch."),
        )

    def differentiable(self, leaf: Array) -> bool:
        return bool(leaf.dtype.is_floating_point or leaf.dtype.is_complex)

    def complex(self, leaf: Array) -> bool:
        return bool(leaf.dtype.is_complex)

    def wanted(self, leaf: Array) -> bool | None:
        return bool(leaf.requires_grad)

    def eps(self, array: Array) -> float:
        return float(torch.finfo(array.dtype).eps)

    def effective_eps(self, array: Array) -> float:
        return max(self.eps(array), settings.of_products(array)[1])

    def coarsened_by(self, array: Array) -> str:
        return settings.of_products(array)[0] or settings.of_operators(array)

    def repeatable_by(self, array: Array) -> str:
        return settings.of_repeatability(array)

    def carried_eps(self, f: FlatFunction, x: Arrays) -> float:
        return precision.narrowest(lambda: f(x))

    def copy(self, array: Array) -> Array:
        copied = array.detach().clone()
        # clone keeps the strides of dense memory only
        return _in_strides(copied, array) if type(copied) is torch.Tensor else copied

    def to_host(self, array: Array, like: Array | None = None) -> HostArray:
        tensor = array.detach()
        if tensor.is_meta:
            raise self.lacks("reading a tensor on device 'meta'", VALUELESS)
        pattern = tensor if like is None else like
        if _is_plain(tensor) and pattern.layout is torch.strided:  # as most are
            tensor = tensor.to(device="cpu", dtype=torch.float64)
            return np.array(tensor.numpy(force=True))
        if sparse.is_sparse(pattern) and self._stored_only:
            tensor = sparse.stored_values(tensor, pattern)
        elif sparse.is_sparse(tensor) or tensor.is_mkldnn:
            tensor = sparse.dense(tensor)
        wide = torch.complex128 if tensor.dtype.is_complex else torch.float64
        tensor = tensor.as_subclass(torch.Tensor).to(device="cpu", dtype=wide)
        # force: conjugate and negative views and zero tensors (of forward AD) become values
        return np.array(tensor.numpy(force=True))

    def from_host(self, host: HostArray, like: Array) -> Array:
        tensor = torch.from_numpy(np.array(host)).to(dtype=like.dtype, device=like.device)
        if sparse.is_sparse(like):
            rebuild = sparse.with_stored_values if self._stored_only else sparse.with_implied_zeros
            tensor = rebuild(tensor, like)
        elif like.is_mkldnn:
            tensor = tensor.to_mkldnn()
        else:
            tensor = _in_strides(tensor, like)
        if type(like) not in (torch.Tensor, torch.nn.Parameter):
            tensor = tensor.as_subclass(type(like))
        return tensor.requires_grad_(like.requires_grad)

    def make(self, values: NDArray[Any], dtype: str, device: str | None = None) -> Array:
        wanted = getattr(torch, dtype, None)
        if not isinstance(wanted, torch.dtype):
            raise self.lacks(f"dtype {dtype}")
        # float64 holds every narrower value, also of the dtypes that NumPy has not got
        narrow = values.dtype.kind not in "biufc" or values.dtype.itemsize < 4
        host = values.astype(np.float64) if wanted.is_floating_point and narrow else values
        return torch.from_numpy(np.array(host, order="C")).to(
            dtype=wanted, device=self._device(device or "cpu")
        )

    def strided(self, array: Array) -> Array:
        if array.numel() == 0 or sparse.is_sparse(array):
            return array
        wide = array.new_empty((*array.shape, 2))
        wide[..., 0] = array
        return wide[..., 0].detach()

    def widen(self, array: Array) -> Array:
        wide = torch.complex128 if array.dtype.is_complex else torch.float64
        widened = _in_strides(array.detach().to(wide), array)
        return widened.requires_grad_(array.requires_grad)

    def place(self, array: Array, device: object) -> Array:
        there = self._device(str(device))
        if array.is_meta:
            raise self.lacks("copying a tensor from device 'meta'", VALUELESS)
        # detached, in place of the leaf: the mark is kept, the history is not
        return array.detach().clone().to(there).requires_grad_(array.requires_grad)

    def _device(self, name: str) -> str:
        known = self.devices()
        if name in known or f"{name}:0" in known:
            return name
        there = f"the devices are {', '.join(known)}"
        if name == "meta":
            there = f"{VALUELESS}; {there}"
        raise self.lacks(f"device {name!r}", there)

    def masked(self, masked: bool | None) -> Self:
        return type(self)(stored_only=bool(masked))

    # ---------------------------------------------------------------- surroundings

    @property
    def version(self) -> str:
        return str(torch.__version__)

    def devices(self) -> list[str]:
        return ["cpu", *(f"cuda:{k}" for k in range(torch.cuda.device_count()))]

    def dtypes(self) -> list[str]:
        return ["float64", "float32", "float16", "bfloat16", "complex128", "complex64"]

    def isolation(self, leaves: Sequence[Array]) -> AbstractContextManager[None]:
        return _isolated()

    def widening(self) -> AbstractContextManager[None]:
        return precision.widening()

    def highest_precision(self) -> AbstractContextManager[None]:
        return settings.highest()

    def random_state(self) -> Hashable:
        states: list[torch.Tensor] = [torch.get_rng_state()]
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            states += torch.cuda.get_rng_state_all()
        return _RandomState(state.numpy().tobytes() for state in states)


class _RandomState(tuple[bytes, ...]):
    """States of the generators: of the CPU, and of the GPUs once they are used. Where they are used
    for the first time between two of these, only what both hold can be compared.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _RandomState):
            return NotImplemented
        return all(a == b for a, b in zip(self, other, strict=False))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[0])


@contextmanager
def _isolated() -> Iterator[None]:
    dtype, device = torch.get_default_dtype(), torch.get_default_device()
    deterministic = torch.are_deterministic_algorithms_enabled()
    cuda = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    current = torch.cuda.current_device() if cuda else None
    with torch.random.fork_rng(devices=cuda), settings.kept():
        try:
            with torch.inference_mode(False), torch.enable_grad():
                yield
        finally:
            if torch.get_default_dtype() is not dtype:
                torch.set_default_dtype(dtype)
            if current is not None and torch.cuda.current_device() != current:
                torch.cuda.set_device(current)
            if torch.get_default_device() != device:
                torch.set_default_device(device)
            if torch.are_deterministic_algorithms_enabled() != deterministic:
                torch.use_deterministic_algorithms(deterministic)


def _is_plain(tensor: torch.Tensor) -> bool:
    real = not tensor.dtype.is_complex
    return real and type(tensor) is torch.Tensor and tensor.layout is torch.strided


def _recording(leaf: torch.Tensor) -> torch.Tensor:
    """`leaf`, or an alias of it, with derivatives recorded."""
    if leaf.requires_grad:
        return leaf
    try:
        return leaf.detach().requires_grad_()
    except RuntimeError as error:
        # inside torch.func.vmap tensors cannot be marked; a batched jvp does not need it
        if "functorch transform" in str(error):
            return leaf
        raise


def _in_strides(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """`tensor` in the memory layout of `like`, where that has no entry twice."""
    if like.layout is not torch.strided or tensor.stride() == like.stride() or tensor.numel() == 0:
        return tensor
    reach = 1
    for stride, size in sorted(
        (s, n) for s, n in zip(like.stride(), like.shape, strict=True) if n > 1
    ):
        if stride < reach:
            return tensor
        reach += (size - 1) * stride
    if reach > 16 * tensor.numel():  # a thin slice of something large: do not allocate the rest
        return tensor
    placed = torch.empty_strided(
        like.shape, like.stride(), dtype=tensor.dtype, device=tensor.device
    )
    return placed.copy_(tensor)
