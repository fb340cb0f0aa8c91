"""What the doors say of a call before they do any work."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pytest

from adjudge.check import checked_signature
from adjudge.errors import InputError

TUPLE = "several inputs are one tuple: door(f, (x, y))"
CALLS: list[tuple[Any, ...]] = []


@checked_signature
def door(
    f: Callable[..., Any],
    inputs: Iterable[Any],
    *args: Any,
    order: int = 1,
    atol: float | Mapping[Any, float] | None = None,
    flag: bool = True,
) -> int:
    """Counts what reaches it."""
    CALLS.append((f, inputs, *args))
    return order


@pytest.fixture(autouse=True)
def _no_calls():
    CALLS.clear()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"order": 2},
        {"order": np.int64(2)},
        {"atol": 1},
        {"atol": np.float32(1e-3)},
        {"atol": {"float32": 1e-3}},
        {"atol": None},
        {"flag": False},
        {"flag": np.True_},
        {"flag": 0},
    ],
)
def test_what_fits_reaches_the_door_as_it_is(options):
    x = np.ones(2)

    assert door(np.sin, x, 3.0, None, **options) == options.get("order", 1)
    assert CALLS == [(np.sin, x, 3.0, None)]


@pytest.mark.parametrize(
    ("args", "options", "found", "remedy"),
    [
        ((np.ones(2), np.sin), {}, "f= is ndarray of shape (2,), float64", "give a function"),
        ((None, ()), {}, "f= is None", "give a function"),
        ((np.sin, 3.0), {}, "inputs= is a float", "give a tuple"),
        ((np.sin, np.cos), {}, "inputs= is a ufunc", "give a tuple"),
        ((np.sin, ()), {"order": 1.5}, "order= is a float", "give an integer"),
        ((np.sin, ()), {"atol": "1e-3"}, "atol= is a str", "give a number or a dict or None"),
        ((np.sin, ()), {"atol": [1e-3]}, "atol= is a list", "give a number or a dict or None"),
        ((np.sin, ()), {"flag": "no"}, "flag= is a str", "give True or False"),
        ((np.sin, (), np.ones(2)), {"order": np.ones(2)}, "order= is ndarray", TUPLE),
        ((np.ones(2), np.ones(2)), {}, "f= is ndarray", "give a function"),
        ((np.sin, ()), {"flag": None}, "flag= is None", "give True or False"),
    ],
)
def test_an_argument_of_another_kind_is_refused_before_any_work(args, options, found, remedy):
    with pytest.raises(InputError) as caught:
        door(*args, **options)

    assert caught.value.found.startswith(found)
    assert caught.value.remedy == remedy
    assert not CALLS


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("atoll", "Did you mean 'atol'?"),
        ("seed", "; adjudge.examine() and adjudge.gradcheck() take it"),
        ("raise_exception", "gradcheck() raises"),
        ("zzz", "argument 'zzz'"),
    ],
)
def test_an_unknown_option_is_a_type_error_that_knows_what_was_meant(option, hint):
    with pytest.raises(TypeError) as caught:
        door(np.sin, (), **{option: 1})

    assert hint in str(caught.value)
    assert not CALLS


@pytest.mark.parametrize("args", [(), (np.sin,)])
def test_python_says_which_arguments_are_missing(args):
    with pytest.raises(TypeError, match=r"door\(\) missing .* 'inputs'"):
        door(*args)
