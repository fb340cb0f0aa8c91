"""Double precision where it was not asked for, and no less than the dtype where it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

DOUBLE = (torch.float64, torch.complex128)


class _Widening(TorchFunctionMode):
    """Tensors of lower precision become double where they meet double ones in an operator.

    That is how captured weights, buffers and constants take part in a function that is evaluated
    in double precision. Their values stay what they are.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if any(_double(leaf) for leaf in _leaves((args, kwargs))):
            args, kwargs = _mapped(args), _mapped(kwargs)
        return func(*args, **kwargs)


def widening() -> TorchFunctionMode:
    """See `AutodiffBackend.widening`."""
    return _Widening()


@contextmanager
def highest() -> Iterator[None]:
    """No TF32, no bfloat16 products of float32 matrices, no autocast."""
    matmul = torch.get_float32_matmul_precision()
    cuda, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    reduced = ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction")
    before = {name: getattr(cuda, name) for name in reduced}
    tf32 = cuda.allow_tf32, cudnn.allow_tf32
    with ExitStack() as stack:
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        try:
            torch.set_float32_matmul_precision("highest")
            cuda.allow_tf32 = cudnn.allow_tf32 = False
            for name in reduced:
                setattr(cuda, name, False)
            yield
        finally:
            torch.set_float32_matmul_precision(matmul)
            cuda.allow_tf32, cudnn.allow_tf32 = tf32
            for name, value in before.items():
                setattr(cuda, name, value)


def _leaves(node: Any) -> Iterator[Any]:
    if isinstance(node, Mapping):
        node = tuple(node.values())
    if isinstance(node, tuple | list):
        for child in node:
            yield from _leaves(child)
    else:
        yield node


def _mapped(node: Any) -> Any:
    """`node` with all floating tensors in it double."""
    if isinstance(node, Mapping):
        return {key: _mapped(child) for key, child in node.items()}
    if type(node) in (tuple, list):
        return type(node)(_mapped(child) for child in node)
    if not isinstance(node, torch.Tensor) or _double(node):
        return node
    with torch._C.DisableTorchFunction():
        if node.dtype.is_complex:
            return node.to(torch.complex128)
        return node.to(torch.float64) if node.dtype.is_floating_point else node


def _double(leaf: Any) -> bool:
    if not isinstance(leaf, torch.Tensor):
        return False
    with torch._C.DisableTorchFunction():
        return leaf.dtype in DOUBLE
