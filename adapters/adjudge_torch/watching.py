"""Calls of rules in a program that is running, shown to a watcher."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from threading import get_ident
from typing import Any, TypeVar

import torch
from torch.overrides import TorchFunctionMode

from adjudge.engine import Arrays, Environment, Step, Watcher
from adjudge.errors import Source, mark
from adjudge_torch.tracing import (
    CallSeen,
    about_call,
    applications_through,
    copied,
    name_of,
    rule_of,
    transformed,
)

Value = TypeVar("Value")


@contextmanager
def watching(watcher: Watcher, environment: Environment) -> Iterator[None]:
    """Contract: see `AutodiffBackend.watching`.

    Calls of an `autograd.Function` are seen everywhere. Those of PyTorch itself are seen by a mode,
    which slows the program down; it is entered for single calls of modules.
    """
    calls = _Calls(watcher, environment)
    with ExitStack() as stack:
        stack.enter_context(applications_through(torch.compiler.disable(calls.application)))
        if watcher.every:
            stack.enter_context(calls.of_modules())
        yield


class _Calls:
    """What is done with calls, in place of making them."""

    def __init__(self, watcher: Watcher, environment: Environment) -> None:
        """Calls in this thread are shown."""
        self.watcher, self.environment = watcher, environment
        self.thread = get_ident()
        self.showing = False
        """Whether a call is made that is shown. What it calls in turn is part of it."""

    def application(self, function: Callable[..., Any], cls: Any, args: tuple[Any, ...]) -> Any:
        """Makes a call of an `autograd.Function`."""
        run = partial(function, *args)
        rule = self.looked(cls, lambda: self._rule(cls, args))
        if rule is None or not self.watcher.wanted(rule):
            return run()
        return self.shown(rule, lambda: CallSeen(cls.apply, args, {}), run, partial(rule_of, cls))

    def looked(self, rule: Hashable, look: Callable[[], Value]) -> Value | None:
        """Returns what `look` finds out about a call. What it raises is told to the watcher, and
        does not reach the program, in which only its own calls raise.
        """
        try:
            return look()
        except Exception as error:
            self.watcher.unrecorded(rule, error)
            return None

    def _rule(self, cls: Any, args: tuple[Any, ...]) -> Hashable | None:
        """Returns what stands for the rule of an `autograd.Function`; `None` where a call of it is
        not looked at.
        """
        if (
            self.showing
            or get_ident() != self.thread  # in a call that is judged, say
            or not torch.is_grad_enabled()
            or not any(map(_is_marked, args))
        ):
            return None
        if transformed():  # the class is one that PyTorch made of the user's
            name = cls.__name__.removesuffix("Generated")
            self.watcher.unseen(name, "made under a transform of torch.func")
            return None
        if cls.__module__.startswith("torch."):  # of a custom operator, or of hooks and checkpoints
            about = rule_of(cls)
            return about["name"] if about["custom"] else None
        return cls  # type: ignore[no-any-return]

    def shown(
        self,
        rule: Hashable,
        call: Callable[[], CallSeen],
        run: Callable[[], Any],
        about: Callable[[], dict[str, Any]],
    ) -> Any:
        """Makes a call that is wanted, and shows it. Only the call itself may raise: what cannot be
        said of it (`call`, `about`) is told to the watcher.
        """

        def begun() -> CallSeen:
            seen = call()
            seen.begun(tuple(map(copied, seen.tensors)), self.environment)
            return seen

        def ended(seen: CallSeen) -> tuple[Step | None, Arrays]:
            return seen.ended(returned, about(), {}), tuple(map(copied, seen.kept))

        self.showing = True
        try:
            seen = self.looked(rule, begun)
            returned = run()
            found = None if seen is None else self.looked(rule, lambda: ended(seen))
        finally:
            self.showing = False
        if found is not None:
            step, results = found
            self.watcher.seen(step if step is not None and step.results else None, results)
        return returned

    @contextmanager
    def of_modules(self) -> Iterator[None]:
        """Returns a context in which calls of PyTorch within those of modules are shown."""
        before: Any = torch.nn.Module.__call__
        inside = [False]

        def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            compiling = torch.compiler.is_compiling()
            if compiling or inside[0] or get_ident() != self.thread or not torch.is_grad_enabled():
                return before(module, *args, **kwargs)
            inside[0] = True
            opens = self.watcher.ready()
            if opens:
                name = type(module).__name__
                found = self.looked(name, lambda: any(map(_is_compiled, module.modules())))
                if found:
                    self.watcher.unseen(name, "some are compiled by torch.compile")
                opens = found is False
            try:
                with _Window(self) if opens else nullcontext():
                    return before(module, *args, **kwargs)
            finally:
                inside[0] = False

        torch.nn.Module.__call__ = call  # type: ignore[method-assign]
        try:
            yield
        finally:
            torch.nn.Module.__call__ = before  # type: ignore[method-assign]


class _Window(TorchFunctionMode):
    """The mode that sees the calls of PyTorch."""

    def __init__(self, calls: _Calls) -> None:
        """`calls` are what is done with them."""
        super().__init__()
        self.calls = calls

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Makes a call, in which this mode is off."""
        run = partial(func, *args, **(kwargs or {}))
        if torch.compiler.is_compiling():
            return run()
        calls = self.calls
        name = calls.looked("PyTorch", lambda: self._name(func))
        seen = (
            calls.looked(name, lambda: CallSeen(func, tuple(args), kwargs or {})) if name else None
        )
        marked = seen and calls.looked(name, lambda: any(map(_is_marked, seen.tensors)))
        if name is None or seen is None or not marked or not calls.watcher.wanted(name):
            return run()
        return calls.shown(name, lambda: seen, run, lambda: about_call(func, name))

    def _name(self, func: Any) -> str | None:
        """Returns the name of what is called; `None` where its calls are not looked at."""
        name = name_of(func)
        if self.calls.showing or name is None or not torch.is_grad_enabled() or transformed():
            return None
        return name


def _is_compiled(module: torch.nn.Module) -> bool:
    wrapped = isinstance(module, torch._dynamo.OptimizedModule)
    return wrapped or getattr(module, "_compiled_call_impl", None) is not None


def _is_marked(value: object) -> bool:
    if not isinstance(value, torch.Tensor):
        return False
    try:
        return value.requires_grad
    except Exception as error:  # which a subclass of tensors may have refuse it
        mark(error, Source.ENGINE)
        raise
