"""This module knows the ways in which libraries call a derivative by hand, and makes of it what
adjudge checks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from adjudge.engine import ByHand
from adjudge.ghostwriter.inputs import Call, Constant

Function = Callable[..., Any]


@dataclass(frozen=True)
class Convention:
    """How a derivative by hand is called for the gradient, or the tangent of the output."""

    code: str
    """The call. In it `b` stands for the derivative, `x` and `k` for the arguments and those with
    keywords, `y` for what the function returns, and `v` for the tangents."""
    run: Callable[[Function, Function, Sequence[Any], Any], Any]
    cached: bool = False
    """Whether the function returns what the derivative needs beside its output."""


ONE, TANGENTS = "gradient of one", "tangents last"
CONVENTIONS = {
    "cotangent last": Convention("{b}({x}, w{k})", lambda f, b, x, w: b(*x, w)),
    "cotangent first": Convention("{b}(w, {x}{k})", lambda f, b, x, w: b(w, *x)),
    "of the output": Convention("{b}(w, {y}{k})", lambda f, b, x, w: b(w, f(*x))),
    "cache": Convention("{b}(w, {y}[1])", lambda f, b, x, w: b(w, f(*x)[1]), cached=True),
    "cache first": Convention("{b}({y}[1], w)", lambda f, b, x, w: b(f(*x)[1], w), cached=True),
    ONE: Convention("w * {b}({x}{k})", lambda f, b, x, w: w * b(*x)),
    "gradients": Convention(
        "tuple(w * one for one in {b}({x}{k}))", lambda f, b, x, w: tuple(w * one for one in b(*x))
    ),
    "gradient of the output": Convention("w * {b}({y}{k})", lambda f, b, x, w: w * b(f(*x))),
    TANGENTS: Convention("{b}({x}, {v}{k})", lambda f, b, x, v: b(*x, *v)),
}
"""The ways in which libraries call a derivative by hand."""
COTANGENT = re.compile(
    r"(w|g|d|u|v|ct|dl|cot.*|.*grad.*|d_?(out|y|z|a).*|g[yz]|upstream.*|delta.*|err.*|seed|.*bar)$"
)
OUTPUT = re.compile(r"(y|z|s|a|out.*|result|probs|p)$")
TARGET = re.compile(r"(y|t|z|y_?true|targets?|labels?|.*_true|truth|a)$")
CACHE = re.compile(r"(cache.*|ctx|res|residuals?|saved|memory|tape)$")


def said_by_names(
    kind: str, given: Sequence[str], call: Call, names: Sequence[str], *, cached: bool
) -> tuple[str, tuple[int, ...]]:
    """Returns the convention that the parameters of a derivative say, or "", and the array with
    respect to which it is.

    Args:
        kind: One of `DERIVATIVES`.
        given: The names of its required parameters.
        call: The arguments of the function.
        names: The names of its arrays.
        cached: Whether the function returns what the derivative needs beside its output.
    """
    count = len(call.positional)
    if kind == "jvp":
        return TANGENTS if len(given) == 2 * count else "", ()
    if cached:
        if len(given) != 2:
            return "", ()
        return "cache first" if CACHE.match(given[0]) else "cache", ()
    if len(given) == count and kind == "gradient":
        if count == 1 and OUTPUT.match(given[0]):
            return "gradient of the output", ()
        return ONE, (next((k for k, name in enumerate(names) if not TARGET.match(name)), 0),)
    if len(given) not in (2, count + 1):
        return "", ()
    if COTANGENT.match(given[0]):
        of_output = len(given) == 2 and OUTPUT.match(given[1])
        return "of the output" if of_output else "cotangent first", ()
    return "cotangent last" if COTANGENT.match(given[-1]) else "", ()


def ways(kind: str, arrays: int, *, cached: bool) -> list[tuple[str, tuple[int, ...]]]:
    """Returns the conventions by which a derivative of this kind may be called, the likelier ones
    first, each with the array with respect to which it is, if it is of one alone.
    """
    gradients = [name for name in CONVENTIONS if name.startswith("gradient")]
    others = [name for name in CONVENTIONS if name not in (*gradients, TANGENTS)]
    chosen = {"jvp": [TANGENTS], "gradient": [*gradients, *others], "vjp": others}[kind]
    return [
        (name, wrt)
        for name in chosen
        if CONVENTIONS[name].cached == cached
        for wrt in ([(k,) for k in range(arrays)] if name == ONE else [()])
    ]


def by_hand(
    name: str, function: Function, derivative: Function, call: Call, wrt: tuple[int, ...]
) -> ByHand:
    """Returns a function with its derivative by hand, which is called by one of `CONVENTIONS`."""
    convention, count = CONVENTIONS[name], len(call.arrays)
    f = of_arrays(function, call)

    def forward(*x: Any) -> Any:
        return f(*x)[0] if convention.cached else f(*x)

    def backward(*x: Any) -> Any:
        args, named = arguments(call, x[:count])
        rest = x[count:] if name == TANGENTS else x[count]
        g = convention.run(partial(function, **named), partial(derivative, **named), args, rest)
        return tuple(g if k in wrt else None for k in range(count)) if wrt else g

    forward.__name__ = getattr(function, "__name__", name)
    return ByHand(forward, **{"jvp" if name == TANGENTS else "vjp": backward})


def arguments(call: Call, arrays: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Returns the arguments of a call with `arrays` in their places."""
    given = iter(arrays)
    args = [one.value if isinstance(one, Constant) else next(given) for _, one in call.positional]
    kwargs = {
        key: one.value if isinstance(one, Constant) else next(given) for key, one in call.keyword
    }
    return args, kwargs


def of_arrays(function: Function, call: Call) -> Function:
    """Returns the function of the arrays of a call alone: `function` itself where these are all."""
    if call.only_arrays:
        return function

    def of_the_arrays(*arrays: Any) -> Any:
        args, kwargs = arguments(call, arrays)
        return function(*args, **kwargs)

    of_the_arrays.__qualname__ = getattr(function, "__name__", type(function).__name__)
    return of_the_arrays
