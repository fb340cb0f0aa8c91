"""A module as a function of its parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def functional(
    module: torch.nn.Module,
) -> tuple[Callable[..., Any], dict[str, torch.Tensor]]:
    """Returns `(f, params)` with `f(params, *inputs) = module(*inputs)`; check `f, (params,
    *inputs)`.

    `params` holds the module's own parameters by name; buffers stay as they are.
    """

    def f(params: dict[str, torch.Tensor], *inputs: Any, **kwargs: Any) -> Any:
        return torch.func.functional_call(module, params, inputs, kwargs)

    f.__qualname__ = type(module).__name__
    return f, dict(module.named_parameters())
