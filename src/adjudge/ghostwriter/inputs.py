"""This module proposes arguments for a function: those of the examples in its documentation, then
a search over constants, shapes and domains. Whether they work is for others to find out.

Nothing of a docstring is executed: its examples are parsed, and shapes and literals read.
"""

from __future__ import annotations

import ast
import doctest
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from adjudge.ghostwriter.subjects import ARRAYS, Parameter

MOST_NUMBERS = 20_000
"""Examples with larger arrays are not tried, since the tests would be slow."""


@dataclass(frozen=True)
class Numbers:
    """An array of random numbers."""

    low: float
    high: float
    shape: tuple[int, ...]
    whole: bool = False
    """Whether they are integers."""

    def drawn(self, rng: np.random.Generator) -> Any:
        """Returns the array, as the code below makes it."""
        if self.whole:
            return np.asarray(rng.integers(int(self.low), int(self.high), self.shape))
        return np.asarray(rng.uniform(self.low, self.high, self.shape))

    def __str__(self) -> str:
        """Returns the code that makes the array."""
        kind = "integers" if self.whole else "uniform"
        return f"rng.{kind}({self.low}, {self.high}, {self.shape})"


@dataclass(frozen=True)
class Values:
    """An array of given numbers."""

    numbers: Any
    """Nested lists."""

    def drawn(self, rng: np.random.Generator) -> Any:
        """Returns the array, as the code below makes it."""
        return np.asarray(self.numbers)

    def __str__(self) -> str:
        """Returns the code that makes the array."""
        return repr(self.numbers)


@dataclass(frozen=True)
class Constant:
    """An argument that is no array."""

    value: Any

    def __str__(self) -> str:
        """Returns its code, with the quotes that formatters take."""
        code = repr(self.value)
        return code if '"' in code else code.replace("'", '"')


Argument: TypeAlias = Numbers | Values | Constant


@dataclass(frozen=True)
class Call:
    """The arguments of a call, each with the name of its parameter."""

    positional: tuple[tuple[str, Argument], ...] = ()
    keyword: tuple[tuple[str, Argument], ...] = ()
    constructor: Call | None = None
    """For an object that is called, the arguments of its class."""

    @property
    def only_arrays(self) -> bool:
        """Returns whether there is nothing else, and all are given by their places."""
        return not self.keyword and len(self.arrays) == len(self.positional)

    @property
    def arrays(self) -> list[tuple[str, Numbers | Values]]:
        """Returns those that are arrays."""
        given = (*self.positional, *self.keyword)
        return [(name, one) for name, one in given if not isinstance(one, Constant)]


# ---------------------------------------------------------------- examples of a docstring

_NORMAL, _UNIT = (-2, 2), (0.1, 0.9)
MAKERS = {
    **dict.fromkeys(
        ("randn", "normal", "randn_like", "zeros", "empty", "standard_normal"), _NORMAL
    ),
    **dict.fromkeys(("rand", "uniform", "random", "rand_like", "full"), _UNIT),
    **dict.fromkeys(("ones", "eye", "linspace", "arange", "ones_like"), (0.5, 2)),
}
"""Functions of array libraries that make an array, and the range of the numbers that we put there.
"""
EXACT = ("tensor", "array", "asarray", "Tensor")
"""Those that make an array of the numbers that they are given."""
UNKNOWN = object()
"""What an expression stands for that cannot be read."""


def examples(doc: str, name: str) -> Iterator[Call]:
    """Yields the calls of `name` in the examples of a docstring, as far as they can be read."""
    try:
        blocks = doctest.DocTestParser().get_examples(doc)
    except ValueError:  # an example without a prompt where one is due
        return
    known: dict[str, Any] = {}
    objects: dict[str, Call] = {}
    for block in blocks:
        try:
            body = ast.parse(block.source).body
        except (SyntaxError, ValueError):  # no Python, or a null byte
            continue
        for statement in body:
            for node in ast.walk(statement):
                if not isinstance(node, ast.Call):
                    continue
                if _last(node.func) == name and (call := _call(node, known)):
                    yield call
                held = objects.get(node.func.id) if isinstance(node.func, ast.Name) else None
                if held is not None and (call := _call(node, known)):
                    yield replace(call, constructor=held)
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                target, value = statement.targets[0].id, statement.value
                known[target] = _read(value, known)
                objects.pop(target, None)
                if isinstance(value, ast.Call) and _last(value.func) == name:
                    made = _call(value, known)
                    if made is not None and not made.arrays:
                        objects[target] = made


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _call(node: ast.Call, known: dict[str, Any]) -> Call | None:
    """Returns the arguments; `None` if one of them cannot be read."""
    positional = [
        (one.id if isinstance(one, ast.Name) else "", _read(one, known)) for one in node.args
    ]
    keyword = [(one.arg or "", _read(one.value, known)) for one in node.keywords]
    if any(value is UNKNOWN for _, value in (*positional, *keyword)):
        return None
    if any(not key for key, _ in keyword):
        return None
    call = Call(tuple(positional), tuple(keyword))
    return call if sum(_size(one) for _, one in call.arrays) <= MOST_NUMBERS else None


def _size(argument: Numbers | Values) -> int:
    if isinstance(argument, Numbers):
        return int(np.prod(argument.shape))
    return len(re.findall(r"[\d.]+", str(argument)))


def _read(node: ast.expr, known: dict[str, Any]) -> Any:
    """Returns the argument that an expression stands for, or `UNKNOWN`.

    Arithmetic and methods keep the shape of their array here. Where they do not the call will not
    work, and others are tried.
    """
    if isinstance(node, ast.Name):
        return known.get(node.id, UNKNOWN)
    if isinstance(node, ast.BinOp):
        sides = _read(node.left, known), _read(node.right, known)
        return next((side for side in sides if isinstance(side, Numbers)), UNKNOWN)
    if isinstance(node, ast.Call):
        return _made(node, known)
    try:
        return Constant(ast.literal_eval(node))
    except (ValueError, TypeError):
        return UNKNOWN


def _made(node: ast.Call, known: dict[str, Any]) -> Any:
    maker = _last(node.func)
    given = [one.value for one in (_read(arg, known) for arg in node.args) if _constant(one)]
    named = {one.arg: _read(one.value, known) for one in node.keywords}
    constants = {key: one.value for key, one in named.items() if _constant(one)}
    if maker in EXACT:
        return Values(given[0]) if given and _numbers(given[0]) else UNKNOWN
    whole = [one for one in given if isinstance(one, int)]
    bounds = whole + [constants[key] for key in ("low", "high") if key in constants]
    sized = [constants[key] for key in ("size", "shape") if key in constants]
    sized = [one if isinstance(one, tuple | list) else (one,) for one in sized]
    sized += [one for one in given if isinstance(one, tuple | list)]
    shapes = [tuple(one) for one in sized if all(isinstance(size, int) for size in one)]
    if maker == "randint" and bounds and shapes:
        low, high = bounds[:2] if len(bounds) > 1 else (0, bounds[0])
        return Numbers(low, high, shapes[0], whole=True)
    if maker == "full" and whole and shapes:
        return Numbers(whole[0], whole[0] + 1, shapes[0], whole=True)
    if maker in MAKERS:
        shape = shapes[0] if shapes else tuple(whole)
        shape = (3, 3) if maker == "eye" else shape[-1:] if maker == "linspace" else shape
        return Numbers(*MAKERS[maker], shape)
    if isinstance(node.func, ast.Attribute):
        held = _read(node.func.value, known)
        if maker == "random_" and isinstance(held, Numbers) and whole:
            return Numbers(0, whole[0], held.shape, whole=True)
        if isinstance(held, Numbers) and maker in ("long", "int"):
            return Numbers(0, 2, held.shape, whole=True)
        if isinstance(held, Numbers | Values):
            return held
    return UNKNOWN


def _constant(value: Any) -> bool:
    return isinstance(value, Constant)


def _numbers(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_numbers, value))
    return isinstance(value, int | float)


# ---------------------------------------------------------------- a search

DOMAINS = ((-2, 2), (0.1, 0.9), (0.5, 2), (1.5, 3))
SHAPES: tuple[tuple[int, ...], ...] = (
    (2, 3), (3,), (3, 3), (2, 3, 5), (2, 3, 5, 5), (), (4,), (2, 4), (2, 3, 3), (6, 6),
    (2, 1, 4, 4), (1, 3, 4, 5, 5), (4, 2), (2, 4, 4), (2, 4, 2), (2, 8, 3),
)  # fmt: skip
"""The shapes that are tried for one array, or for several alike. They have 3 where axes are often
counted, as by the integer 3 that is tried for a parameter such as `in_features`. The last ones are
points of a plane, 4 × 4 transformations, and boxes by their corners."""
PRODUCTS: dict[int, tuple[tuple[tuple[int, ...], ...], ...]] = {
    2: (
        ((2, 3), (3, 4)), ((2, 3), (4, 3)), ((2, 3, 5), (4, 3, 3)),
        ((2, 3, 5, 5), (4, 3, 3, 3)), ((2, 3, 4), (2, 4, 5)),
    ),
    3: (((2, 3), (4, 3), (4,)), ((2, 3), (3, 4), (4,)), ((2, 4, 3), (2, 5, 3), (2, 5, 3))),
}  # fmt: skip
"""Shapes for two and three arrays that are multiplied: linear layers, convolutions, attention. They
are tried before equal shapes, at which many products work as well, and mean less."""
BROADCAST: dict[int, tuple[tuple[tuple[int, ...], ...], ...]] = {
    2: (((2, 3), (3,)), ((2, 3), (2,)), ((3,), ())),
    3: (((2, 3), (3,), (3,)), ((2, 3), (2,), (2,)), ((3,), (), ())),
}
"""Further shapes for two and three arrays. The lists are ours."""
MOST_CALLS = 600
"""So many calls of a function are tried. The number is ours: it leaves room for all shapes and
domains of two arrays, and for a few constants."""

ARRAY, INTEGERS = object(), object()
"""What a parameter may be beside a constant: an array, or one of whole numbers."""
NO_ARRAYS = re.compile(
    r"(path|file|filename|fname|url|directory|folder|module|model|net|optimizer|fn|f|func|fun|"
    r"function|callback|dataset|loader|prng_key|cls|device|dtype|.*_(fn|func|path|file))$"
)
CONSTANTS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    (r"(dim|axis)", (-1, 0, 1)),
    (r"(.*shape|.*size|normalized_shape)", (3, (3, 3), (3,))),
    (r"(p|ord|order|n|k|num.*|n_.*|.*channels|.*features|.*count|depth|degree|groups|bins|length|"
     r".*classes|window|power|kernel)", (3, 2, 1)),
    (r"(.*eps|lr|rate|lam|lambd|lmbda|sigma|std|scale|temperature|delta|tau|margin|.*factor|"
     r"ratio|prob|threshold)", (0.5, 2.0)),
)  # fmt: skip
INTEGER_ARRAYS = re.compile(r"(ind(ex|ices)|targets?|labels?|idx|classes|segment_ids)$")


def no_array(parameters: Sequence[Parameter]) -> str:
    """Returns the name of a parameter that needs something else than arrays and numbers, or ""."""
    for one in parameters:
        callable_ = re.search(r"Callable|Optimizer|Module|PRNGKey|\bKeyArray", one.annotation)
        unknown = not one.annotation and NO_ARRAYS.match(one.name)
        if one.required and not one.several and (callable_ or unknown):
            return one.name
    return ""


def search(parameters: Sequence[Parameter]) -> Iterator[Call]:
    """Yields calls with everything that the parameters require, the likelier ones first."""
    needed = [one for one in parameters if one.required and not one.several]
    for several in range(3) if any(one.several for one in parameters) else (0,):
        more = [Parameter(f"x{k + 1}") for k in range(several + 1)] if several or not needed else []
        if not needed and not any(one.several for one in parameters):
            # nothing is required, as in a function that configures; is the first one an array?
            more = [one for one in parameters[:1] if re.search(ARRAYS, one.annotation)]
        chosen = [*needed, *more]
        names = [one for one in chosen if not one.keyword], [one for one in chosen if one.keyword]
        for mixed, assignment in itertools.product((False, True), _assignments(chosen)):
            for values in _filled(assignment, mixed=mixed):
                given = dict(zip(chosen, values, strict=True))
                yield Call(
                    tuple((one.name, given[one]) for one in names[0]),
                    tuple((one.name, given[one]) for one in names[1]),
                )


def constructors(parameters: Sequence[Parameter]) -> Iterator[Call]:
    """Yields calls of constants alone."""
    needed = [one for one in parameters if one.required and not one.several]
    for assignment in _assignments(needed):
        if not any(one is ARRAY or one is INTEGERS for one in assignment):
            pairs = zip(needed, assignment, strict=True)
            named = tuple((one.name, Constant(value)) for one, value in pairs)
            yield Call(keyword=named)


def _assignments(parameters: Sequence[Parameter]) -> list[tuple[Any, ...]]:
    """Returns what each parameter may be: an array or a constant."""
    choices = [_choices(one) for one in parameters]
    if np.prod([float(len(one)) for one in choices]) > 4096:
        choices = [one[:2] for one in choices[:10]] + [one[:1] for one in choices[10:]]
    ranks = itertools.product(*(range(len(one)) for one in choices))
    return [
        tuple(choice[rank] for choice, rank in zip(choices, chosen, strict=True))
        for chosen in sorted(ranks, key=sum)[:64]
    ]


def _choices(parameter: Parameter) -> list[Any]:
    text = parameter.annotation
    hinted = [one for name, them in CONSTANTS if re.fullmatch(name, parameter.name) for one in them]
    if re.search(ARRAYS, text):
        return [ARRAY, INTEGERS] if INTEGER_ARRAYS.search(parameter.name) else [ARRAY]
    if "Literal[" in text:
        return re.findall(r"""["'](\w+)["']""", text)
    if re.search(r"[Tt]uple\[|Sequence\[|[Ll]ist\[|\bsize\b", text):
        return [*[one for one in hinted if isinstance(one, tuple)], (3, 3), (1, 1), 3]
    if re.search(r"\bbool\b", text):
        return [False, True]
    if re.search(r"\bint\b", text):
        return [one for one in hinted if isinstance(one, int)] or [3, 2, 1]
    if re.search(r"\bfloat\b", text):
        return [0.5, 2.0, ARRAY]
    if re.search(r"\bstr\b", text):
        return []
    if INTEGER_ARRAYS.match(parameter.name):
        return [ARRAY, INTEGERS]
    if hinted or parameter.keyword:
        return [*(hinted or (0.5, 2)), ARRAY]
    return [ARRAY, 2, 0.5]


def _filled(assignment: Sequence[Any], *, mixed: bool) -> Iterator[list[Argument]]:
    """Yields the assignment with arrays of each list of shapes, and in each domain.

    With `mixed` two arrays are in different domains, and otherwise all are in one.
    """
    count = sum(one is ARRAY for one in assignment)
    if count == 0 or (mixed and count != 2):
        return
    equal = tuple((shape,) * count for shape in SHAPES)
    lists = (*PRODUCTS.get(count, ()), *equal, *BROADCAST.get(count, ()))
    pairs = itertools.permutations(DOMAINS, 2)
    domains = list(pairs) if mixed else [(domain,) * count for domain in DOMAINS]
    for shapes, ranges in itertools.product(lists, domains):
        arrays = iter(zip(ranges, shapes, strict=True))
        filled: list[Argument] = []
        for one in assignment:
            if one is ARRAY:
                (low, high), shape = next(arrays)
                filled.append(Numbers(low, high, shape))
            elif one is INTEGERS:
                filled.append(Numbers(0, 2, shapes[0][:1] + shapes[0][2:], whole=True))
            else:
                filled.append(Constant(one))
        yield filled
