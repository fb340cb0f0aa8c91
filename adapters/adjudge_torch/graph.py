"""What PyTorch recorded: gradients along its graph, and where the graph ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from adjudge.engine import UNDEFINED, Arrays, MaybeArrays
from adjudge.errors import NotSupportedError


def gradients(y: Arrays, x: Arrays, w: MaybeArrays, *, create_graph: bool) -> MaybeArrays:
    """`J* w`; with `create_graph` it can be differentiated again."""
    outputs: list[torch.Tensor] = []
    cotangents: list[torch.Tensor] = []
    output: Any
    for output, cotangent in zip(y, w, strict=True):
        if cotangent is None or not output.requires_grad:
            continue
        if cotangent is UNDEFINED:
            # the node that PyTorch's own checker uses: it passes an undefined gradient on
            output = torch._C._functions.UndefinedGrad()(output)
            cotangent = output.detach()  # of the right layout; the node drops its values
        outputs.append(output)
        cotangents.append(cotangent)
    if not outputs:
        return (None,) * len(x)
    found: Any = torch.autograd.grad(
        outputs, x, cotangents, retain_graph=True, create_graph=create_graph, allow_unused=True
    )
    if any(gradient is None for gradient in found):
        _require_derivatives(outputs)
    return tuple(found)


def _require_derivatives(outputs: Sequence[torch.Tensor]) -> None:
    """Raises what the nodes would raise that stand for derivatives which there are not: a graph
    that ends in one gives no gradient, and does not say why.
    """
    seen: set[Any] = set()
    nodes: list[Any] = [output.grad_fn for output in outputs]
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if type(node).__name__ in ("Error", "DelayedError"):
            raise NotSupportedError(
                "the derivative ends in a function that was marked with @once_differentiable, or "
                "has no second derivative",
                "switch that check off, or write a backward pass that can be differentiated",
            )
        nodes += [following for following, _ in node.next_functions]
