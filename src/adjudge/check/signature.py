"""What is told of a call before any work: options that nothing has, arguments of another kind."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ParamSpec, TypeVar, get_origin, get_type_hints

from adjudge.check.kinds import require_kind
from adjudge.check.options import unexpected
from adjudge.errors import InputError

P = ParamSpec("P")
R = TypeVar("R")


def one_by_one(door: Callable[..., Any], hints: Mapping[str, Any], args: Sequence[object]) -> str:
    """Returns how several inputs are passed to `door`, where `args` has some one after another and
    not as one tuple; the empty text where it has not.

    The inputs are the first parameter that is no function, and no array stands after them.
    """
    required = [
        name
        for name, one in inspect.signature(door).parameters.items()
        if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD
    ]
    functions = [name for name in required if get_origin(hints[name]) is Callable]
    k = len(functions)
    if not any(hasattr(one, "shape") for one in args[k + 1 :]):
        return ""
    names = ", ".join([*functions, "(x, y)", *required[k + 1 :]])
    return f"several inputs are one tuple: {door.__name__}({names})"


def checked_signature(door: Callable[P, R]) -> Callable[P, R]:
    """Returns `door`, a function with the signature of another library's check, which says before
    any work which option it does not have, and which argument is of another kind than annotated.
    """
    signature = inspect.signature(door)
    # Looked up once, at the first call: to read them takes as long as a part of a small check.
    hints = functools.cache(partial(get_type_hints, door))

    @functools.wraps(door)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True
        for option in kwargs:
            if option not in signature.parameters:
                raise unexpected(door.__name__, option, signature.parameters, door=True)
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:
            if hint := one_by_one(door, hints(), args):
                raise TypeError(f"{door.__name__}() has too many arguments; {hint}") from None
            return door(*args, **kwargs)  # Python says which argument is missing, or too many
        for name, value in given.items():
            try:
                require_kind(name, value, hints()[name])
            except InputError as error:
                hint = one_by_one(door, hints(), args) if hasattr(value, "shape") else ""
                raise InputError(error.found, hint or error.remedy) from None
        return door(*args, **kwargs)

    return checked
