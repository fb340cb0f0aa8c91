"""Calls of rules in a program that is running, shown to a watcher: those of functions with a custom
derivative that are made while JAX takes a derivative outside of `jit`, `vmap` and `scan`. What is
compiled has no values to be shown.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import jax
import jax.numpy as jnp

from adjudge.engine import UNKNOWN, Arrays, Place, Step, Watcher, place_of
from adjudge_jax.recording import content_of
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
        leaves, structure = jax.tree_util.tree_flatten((args, kwargs))
        traced = [k for k, leaf in enumerate(leaves) if isinstance(leaf, jax.core.Tracer)]
        if not traced or threading.get_ident() != thread or not (watcher.every or _is_own(self)):
            return before(self, *args, **kwargs)
        values = [_value(leaf) for leaf in leaves]
        if any(isinstance(value, jax.core.Tracer) for value in values):
            watcher.unseen(
                self,
                "made where JAX compiles or maps them (jit, vmap, scan), and not one by one as "
                "under jax.disable_jit()",
            )
            return before(self, *args, **kwargs)
        if not watcher.wanted(self):
            return before(self, *args, **kwargs)
        returned = before(self, *args, **kwargs)
        results = tuple(map(_value, jax.tree_util.tree_leaves(returned)))
        places = [k for k, value in enumerate(values) if isinstance(value, jax.Array)]
        rest = [None if k in places else value for k, value in enumerate(values)]

        def run(operands: Arrays) -> Arrays:
            whole = list(rest)
            for k, operand in zip(places, operands, strict=True):
                whole[k] = operand
            some, named = jax.tree_util.tree_unflatten(structure, whole)
            return tuple(jax.tree_util.tree_leaves(self(*some, **named)))

        if not any(isinstance(result, jax.core.Tracer) for result in results):
            operands = tuple([values[k] for k in places])
            watcher.seen(
                Step(
                    run=run,
                    operands=operands,
                    results=len(results),
                    static={str(k): content_of(one) for k, one in enumerate(rest)},
                    place=place_of(_stack(sys._getframe(1)), ENGINE),
                    marked=tuple(
                        [j for j, k in enumerate(places) if k in traced and _moves(values[k])]
                    ),
                    **_about(self),
                ),
                results,
            )
        return returned

    kind.__call__ = call
    try:
        yield
    finally:
        kind.__call__ = before


def _value(leaf: Any) -> Any:
    """Returns the value at which a derivative is taken; what has none but a stand-in is returned as
    it is.
    """
    while isinstance(leaf, jax.core.Tracer) and hasattr(leaf, "primal"):
        leaf = leaf.primal
    return leaf


def _moves(value: Any) -> bool:
    return bool(jnp.issubdtype(value.dtype, jnp.inexact))


def _is_own(function: Any) -> bool:
    """Returns whether a function with a custom derivative is no part of JAX."""
    return not str(function.__module__).startswith("jax.")


def _about(function: Any) -> dict[str, Any]:
    """Returns the name of a function with a custom derivative, and where that is defined."""
    backward = isinstance(function, jax.custom_vjp)
    rule = inspect.unwrap((function.bwd if backward else function.jvp) or function.fun)
    code = getattr(rule, "__code__", None)
    name = getattr(rule, "__name__", "<lambda>")
    if name == "<lambda>":
        name = f"the {'vjp' if backward else 'jvp'} of {function.__name__}"
    return {
        "name": function.__name__,
        "custom": _is_own(function),
        "rule": name,
        "rule_place": Place(code.co_filename, code.co_firstlineno) if code else UNKNOWN,
    }


def _stack(frame: Any) -> Iterator[tuple[str, int]]:
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
