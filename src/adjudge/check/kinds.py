"""Arguments of another kind than annotated are told before any work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import numpy as np

from adjudge.errors import InputError, described

KINDS: Mapping[Any, tuple[tuple[type, ...], str]] = {
    bool: ((int, np.bool_), "True or False"),
    int: ((int, np.integer), "an integer"),
    float: ((int, float, np.number), "a number"),
    str: ((str,), "a string"),
    Callable: ((Callable,), "a function"),  # type: ignore[dict-item]  # isinstance takes it
    Iterable: ((Iterable,), "a tuple"),
    Sequence: ((Iterable,), "a list"),
    Mapping: ((Mapping,), "a dict"),
    Executor: ((Executor,), "a concurrent.futures.Executor"),
    NoneType: ((NoneType,), "None"),
}
"""For each annotation: what fits it, and in words. All others, such as `Any`, are fitted by all."""
NUMBERS = (int, float)
"""The annotations that True and False do not fit, which are integers in Python."""


def require_kind(name: str, value: object, hint: Any) -> None:
    """Raises `InputError` where the argument `name` is of none of the kinds of its annotation."""
    hints = get_args(hint) if get_origin(hint) in (UnionType, Union) else (hint,)
    kinds = [get_origin(one) or one for one in hints]
    if not any(map(_fits, [value] * len(kinds), kinds)):
        words = dict.fromkeys(KINDS[kind][1] for kind in kinds)
        raise InputError(f"{name}= is {described(value)}", f"give {' or '.join(words)}")


def _fits(value: object, kind: Any) -> bool:
    fitting = KINDS.get(kind, ((object,), ""))[0]
    truth = isinstance(value, bool | np.bool_) and kind in NUMBERS
    return isinstance(value, fitting) and not truth
