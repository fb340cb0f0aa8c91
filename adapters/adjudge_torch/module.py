"""A module as a function of its parameters, and classes of PyTorch that are used as functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from adjudge.engine import Array, Arrays, Functional, FunctionClass


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


def functional_of(f: object) -> Functional | None:
    """Contract: see `AutodiffBackend.functional`.

    A scripted module, whose parameters cannot be replaced, and a lazy one that has no parameters
    yet, are functions like any other.
    """
    if not isinstance(f, torch.nn.Module) or isinstance(f, torch.jit.ScriptModule):
        return None
    parameters, buffers = dict(f.named_parameters()), dict(f.named_buffers())
    arrays = [*parameters.values(), *buffers.values()]
    if not parameters or any(map(torch.nn.parameter.is_lazy, arrays)):
        return None
    module = f

    def call(values: Mapping[str, Array], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return torch.func.functional_call(module, dict(values), tuple(args), dict(kwargs))

    return Functional(parameters, buffers, call)


def buffers_of(f: object) -> Arrays:
    """Contract: see `AutodiffBackend.buffers`."""
    if not isinstance(f, torch.nn.Module):
        return ()
    return tuple([one for one in f.buffers() if not torch.nn.parameter.is_lazy(one)])


def function_class(kind: type) -> FunctionClass | None:
    """Contract: see `AutodiffBackend.function_class`."""
    if issubclass(kind, torch.autograd.Function):
        if kind.forward is torch.autograd.Function.forward:
            return None
        # where there is a setup_context, forward has no ctx
        separate = kind.setup_context is not torch.autograd.Function.setup_context
        call = kind.forward if separate else functools.partial(kind.forward, None)
        return FunctionClass(call, lambda: kind.apply, constructed=False, suffix=".apply")
    if not issubclass(kind, torch.nn.Module) or kind.forward is torch.nn.Module.forward:
        return None

    def make(*args: Any, **kwargs: Any) -> torch.nn.Module:
        torch.manual_seed(0)
        module: torch.nn.Module = kind(*args, **kwargs)
        return module.double()

    return FunctionClass(
        functools.partial(kind.forward, None),
        make,
        constructed=True,
        suffix=".double()",
        before="torch.manual_seed(0)",
    )
