"""Calls of rules in a program that is running, shown to a watcher: those of functions with a custom
derivative that are made while JAX takes a derivative outside of `jit`, `vmap` and `scan`. What is
compiled has no values to be shown.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import jax

from adjudge.engine import Arrays, Place, Step, Watcher, defined_at, innermost, place_of
from adjudge.errors import Source, running
from adjudge_jax.recording import content_of, is_inexact
from adjudge_jax.tracing import ENGINE


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Contract: see `AutodiffBackend.watching`."""
    with ExitStack() as stack:
        for kind in (jax.custom_vjp, jax.custom_jvp):
            stack.enter_context(_calls_shown_to(watcher, kind))
        yield


@contextmanager
def _calls_shown_to(watcher: Watcher, kind: Any) -> Iterator[None]:
    before, thread = kind.__call__, threading.get_ident()

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen = None
        try:
            seen = _seen(self, args, kwargs) if threading.get_ident() == thread else None
            if seen is not None and any(isinstance(v, jax.core.Tracer) for v in seen.values):
                watcher.unseen(
                    self,
                    "made where JAX compiles or maps them (jit, vmap, scan), and not one by one as "
                    "under jax.disable_jit()",
                )
                seen = None
        except Exception as error:
            watcher.unrecorded(self, error)
        if seen is None or not watcher.wanted(self):
            return before(self, *args, **kwargs)
        returned = before(self, *args, **kwargs)
        try:
            with running(Source.FUNCTION):  # nodes of a tree may be of the user's classes
                results = tuple(map(_value, jax.tree_util.tree_leaves(returned)))
            if any(isinstance(result, jax.core.Tracer) for result in results):
                return returned
            step = seen.step(len(results), place_of(_stack(sys._getframe(1)), ENGINE))
        except Exception as error:
            watcher.unrecorded(self, error)
            return returned
        watcher.seen(step, results)
        return returned

    def _seen(self: Any, args: Any, kwargs: Any) -> _Seen | None:
        """Returns a call, `None` where no derivative of it is taken or nobody asks for it."""
        if not (watcher.every or _is_own(self)):
            return None
        seen = _Seen(self, args, kwargs)
        return seen if seen.traced else None

    kind.__call__ = call
    try:
        yield
    finally:
        kind.__call__ = before


class _Seen:
    """A call of a function with a custom derivative."""

    def __init__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The call was not made yet."""
        self.function = function
        with running(Source.FUNCTION):  # nodes of a tree may be of the user's classes
            leaves, self.structure = jax.tree_util.tree_flatten((args, kwargs))
        self.traced = [k for k, leaf in enumerate(leaves) if isinstance(leaf, jax.core.Tracer)]
        """The leaves that a derivative is taken for."""
        self.values = [_value(leaf) for leaf in leaves]

    def step(self, results: int, place: Place) -> Step:
        """Returns the call as a step, after it was made and gave so many results."""
        function, values, structure = self.function, self.values, self.structure
        places = [k for k, value in enumerate(values) if isinstance(value, jax.Array)]
        rest = [None if k in places else value for k, value in enumerate(values)]

        def run(operands: Arrays) -> Arrays:
            whole = list(rest)
            for k, operand in zip(places, operands, strict=True):
                whole[k] = operand
            some, named = jax.tree_util.tree_unflatten(structure, whole)
            return tuple(jax.tree_util.tree_leaves(function(*some, **named)))

        with running(Source.FUNCTION):  # the text of an argument is the user's code
            static = {str(k): content_of(one) for k, one in enumerate(rest)}
        return Step(
            run=run,
            operands=tuple([values[k] for k in places]),
            results=results,
            static=static,
            place=place,
            marked=tuple(
                [j for j, k in enumerate(places) if k in self.traced and is_inexact(values[k])]
            ),
            **_about(function),
        )


def _value(leaf: Any) -> Any:
    """Returns the value at which a derivative is taken; what has none but a stand-in is returned as
    it is.
    """
    while isinstance(leaf, jax.core.Tracer) and hasattr(leaf, "primal"):
        leaf = leaf.primal
    return leaf


def _is_own(function: Any) -> bool:
    """Returns whether a function with a custom derivative is no part of JAX."""
    return not str(function.__module__).startswith("jax.")


def _about(function: Any) -> dict[str, Any]:
    """Returns the name of a function with a custom derivative, and where that is defined."""
    backward = isinstance(function, jax.custom_vjp)
    given = (function.bwd if backward else function.jvp) or function.fun
    called = getattr(function, "__name__", "") or type(function.fun).__name__
    name = getattr(innermost(given), "__name__", "<lambda>")
    if name in ("_", "<lambda>", "__call__"):
        name = f"the {'vjp' if backward else 'jvp'} of {called}"
    return {
        "name": called,
        "custom": _is_own(function),
        "rule": name,
        "rule_place": defined_at(given),
    }


def _stack(frame: Any) -> Iterator[tuple[str, int]]:
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
