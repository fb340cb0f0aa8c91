"""A module as a function of its parameters, and classes of PyTorch that are used as functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from itertools import chain
from typing import Any, TypeAlias

import torch
from torch.nn.parameter import is_lazy

from adjudge.engine import Array, Arrays, FlatFunction, Functional, FunctionClass
from adjudge.errors import InputError


def functional(
    module: torch.nn.Module,
) -> tuple[Callable[..., Any], dict[str, torch.Tensor]]:
    """Returns `(f, params)` with `f(params, *inputs) = module(*inputs)`; check `f, (params,
    *inputs)`.

    `params` holds the module's own parameters by name; buffers stay as they are.
    """

    def f(params: dict[str, torch.Tensor], *inputs: Any, **kwargs: Any) -> Any:
        return _called_with(module, params, inputs, kwargs)

    f.__qualname__ = type(module).__name__
    return f, dict(module.named_parameters())


def functional_of(f: object) -> Functional | None:
    """Contract: see `AutodiffBackend.functional`.

    A scripted module, whose parameters cannot be replaced, is a function like any other. Raises
    `InputError` for a lazy one whose parameters have no shape yet: they would be made in the check,
    and checked by the next one alone.
    """
    if not isinstance(f, torch.nn.Module) or isinstance(f, torch.jit.ScriptModule):
        return None
    parameters, buffers = dict(f.named_parameters()), dict(f.named_buffers())
    lazy = [name for name, one in (*parameters.items(), *buffers.items()) if is_lazy(one)]
    if lazy:
        raise InputError(
            f"{type(f).__name__} has parameters that have no shape yet: {', '.join(lazy)}",
            "call it once with such inputs, and check it then",
        )
    if not (parameters or buffers):
        return None
    module = f

    def call(values: Mapping[str, Array], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return _called_with(module, values, tuple(args), dict(kwargs))

    return Functional(parameters, buffers, call)


def _called_with(
    module: torch.nn.Module,
    values: Mapping[str, torch.Tensor],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Returns what a module gives with these values for some of its parameters and buffers, and for
    all that are tied to them.

    Where a module stands at two places, `functional_call` replaces its parameters twice when it
    looks for what is tied, and puts back its own replacements (PyTorch 2.13).
    """
    whole = dict(values)
    named = _arrays_of(module, distinct=True)
    given = {id(one): _hooked(whole[name], one) for name, one in named if name in whole}
    for path, part in module.named_modules():  # each once, however often it is used
        for name, one in _arrays_of(part, distinct=False):
            if id(one) in given:
                whole[f"{path}.{name}" if path else name] = given[id(one)]
    if (noted := _CALLS.get()) is not None:
        noted.append(functools.partial(_within, module, whole))
    return torch.func.functional_call(module, whole, args, kwargs, tie_weights=False)


Within: TypeAlias = Callable[[Callable[[], Any]], Any]
"""Calls a function while a module holds the values with which it was called before."""

_CALLS: ContextVar[list[Within] | None] = ContextVar("calls", default=None)


def noting_calls(f: FlatFunction, x: Arrays) -> tuple[Arrays, list[Within]]:
    """Returns the outputs of `f`, and the calls of modules with other values that it makes.

    A backward pass has to be run within them: a rule may call its module once more, as that of a
    checkpoint does, and asks for the gradients of the parameters that it was given. Without this it
    met those of the user, and raised.
    """
    noted: list[Within] = []
    outer = _CALLS.get()
    token = _CALLS.set(noted)
    try:
        return f(x), noted
    finally:
        _CALLS.reset(token)
        if outer is not None:  # whose backward pass runs that of this one again
            outer += noted


class _Holding(torch.nn.Module):
    """A module that calls a function, and has another one for its part."""

    def __init__(self, part: torch.nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, run: Callable[[], Any]) -> Any:
        return run()


def _within(
    module: torch.nn.Module, values: Mapping[str, torch.Tensor], run: Callable[[], Any]
) -> Any:
    held = {f"part.{name}": value for name, value in values.items()}
    return torch.func.functional_call(_Holding(module), held, (run,), tie_weights=False)


def _hooked(value: torch.Tensor, held: torch.Tensor) -> torch.Tensor:
    """Returns a value that stands for a tensor of a module, with the hooks of that, which are part
    of its gradient. They stand at an alias, since one value may be used in several calls.
    """
    hooks = held._backward_hooks
    if not hooks or value is held or not value.requires_grad:
        return value
    alias = value.view_as(value)
    for hook in hooks.values():
        # Wrapped, so that a report names the hook that the user wrote.
        alias.register_hook(functools.wraps(hook)(functools.partial(_unless_absent, hook)))
    return alias


def _unless_absent(hook: Callable[[Array], Array | None], gradient: Array | None) -> Array | None:
    """Returns what a hook makes of a gradient; of a parameter it is never handed one that is
    absent.
    """
    return None if gradient is None else hook(gradient)


def _arrays_of(module: torch.nn.Module, *, distinct: bool) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields the parameters and buffers of a module with their names: with those of its parts and
    each once, or its own by all their names.
    """
    for named in (module.named_parameters, module.named_buffers):
        yield from named(recurse=distinct, remove_duplicate=distinct)


def parts_of(f: object) -> tuple[torch.nn.Module, ...]:
    """Contract: see `AutodiffBackend.parts`.

    The first call of a lazy module makes its parameters, and makes it one of another class: it
    could not be called again with its attributes as they were. A scripted one reads what it was
    made of, and no attribute.
    """
    if not isinstance(f, torch.nn.Module):
        return ()
    return tuple([part for part in f.modules() if _binds(part)])


def _binds(part: torch.nn.Module) -> bool:
    own: Iterator[Any] = chain(part._parameters.values(), part._buffers.values())
    return not (isinstance(part, torch.jit.ScriptModule) or any(map(is_lazy, own)))


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
