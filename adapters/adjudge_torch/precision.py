"""Modes of PyTorch that widen what a function computes with, or watch how narrow it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

DOUBLE = (torch.float64, torch.complex128)


class Widening(TorchFunctionMode):
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
        kinds = {leaf.dtype for leaf in _tensors(args)}
        if kwargs:
            kinds.update(leaf.dtype for leaf in _tensors(kwargs))
        if len(kinds) > 1 and not kinds.isdisjoint(DOUBLE):
            kept = 1 if _in_place(getattr(func, "__name__", "")) else 0
            args = (*args[:kept], *_mapped(tuple(args[kept:])))
            kwargs = {k: v if k == "out" else _mapped(v) for k, v in (kwargs or {}).items()}
        return func(*args, **(kwargs or {}))


class _Watching(TorchFunctionMode):
    """A mode that keeps the largest spacing at 1 of the dtypes that operators return."""

    eps: float = 0.0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in _tensors(result):
            if leaf.dtype.is_floating_point or leaf.dtype.is_complex:
                self.eps = max(self.eps, float(torch.finfo(leaf.dtype).eps))
        return result


def narrowest(run: Callable[[], Any]) -> float:
    """Returns the spacing at 1 of the narrowest floating dtype that operators return in `run`."""
    watching = _Watching()
    with watching:
        run()
    return watching.eps


def widening() -> TorchFunctionMode:
    """Returns the mode for `Environment.widening`."""
    return Widening()


def _in_place(name: str) -> bool:
    """Returns whether an operator writes into its first argument, which then stays what it is."""
    if name.startswith("__"):
        return name == "__setitem__" or name.startswith("__i")
    return name.endswith("_")


def _tensors(node: Any) -> list[torch.Tensor]:
    if isinstance(node, torch.Tensor):
        return [node]
    if isinstance(node, dict):
        node = tuple(node.values())
    found: list[torch.Tensor] = []
    if isinstance(node, tuple | list):
        for child in node:
            if isinstance(child, torch.Tensor):
                found.append(child)
            elif isinstance(child, tuple | list | dict):
                found += _tensors(child)
    return found


def _mapped(node: Any) -> Any:
    """Returns `node` with all floating tensors in it double."""
    if isinstance(node, torch.Tensor):
        if node.dtype.is_complex:
            return node.to(torch.complex128)
        return node.to(torch.float64) if node.dtype.is_floating_point else node
    if isinstance(node, dict):
        return {key: _mapped(child) for key, child in node.items()}
    if type(node) in (tuple, list):
        return type(node)(_mapped(child) for child in node)
    return node
