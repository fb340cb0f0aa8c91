"""This module finds what is differentiable in a module: functions, classes of a framework that are
used as functions, methods of other classes, and pairs of a function with its derivative by hand.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from types import ModuleType
from typing import Any

from adjudge.engine import AutodiffBackend, FunctionClass, backend_named, entries, registry
from adjudge.errors import Catching, InputError

SIDE_EFFECTS = frozenset(
    (
        *("clear", "close", "delete", "disable", "display", "download", "draw", "dump", "enable"),
        *("export", "fetch", "fit", "import", "init", "load", "main", "open", "plot", "print"),
        *("read", "register", "remove", "reset", "run", "save", "seed", "serve", "set", "setup"),
        *("show", "start", "stop", "test", "train", "update", "write"),
    )
)
"""A function is not called where its name begins with one of these words: it may change files,
settings or its arguments. The list is ours; a user can ask for such a function by its name."""

DERIVATIVES = {
    "vjp": re.compile(r"(.+)_(?:backward|bwd|vjp|pullback)|(?:backward|backprop)_(.+)"),
    "gradient": re.compile(r"(.+)_(?:gradient|grad|derivative|deriv|der|prime)|(?:d|grad)_(.+)"),
    "jvp": re.compile(r"(.+)_jvp"),
}
"""How functions are named that compute a derivative of another one by hand."""
FORWARDS = ("", "_forward", "_fwd")
ARRAYS = re.compile(r"Array|Tensor|ndarray|Numeric")
"""Annotations of arrays."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function."""

    name: str
    annotation: str = ""
    required: bool = True
    keyword: bool = False
    """Whether it can be given by its name alone."""
    several: bool = False
    """Whether it takes any number of positional arguments."""


class Why(Enum):
    """Why no test was written for a function, in a word."""

    NOT_CALLED = "not called"
    """Its name or its parameters say that it should not be, or that it is another one's."""
    NO_INPUTS = "no inputs"
    """It raises, or returns nothing to differentiate, at all inputs that were tried."""
    NO_DERIVATIVE = "no derivative"
    """No derivative is recorded, or its value does not change with its inputs."""
    INCONCLUSIVE = "inconclusive"
    """Checks cannot tell whether the derivative is right."""
    RAISED = "raised"
    """It has values, and raises where it is differentiated."""
    LOST = "lost"
    """It took too long, or ended its process."""


@dataclass(frozen=True)
class LeftOut:
    """A function for which no test was written, and the reason."""

    name: str
    reason: str
    why: Why = Why.NOT_CALLED


@dataclass(frozen=True)
class Subject:
    """What a test may be written for, by its names, so that another process can find it."""

    module: str
    name: str
    kind: str = "function"
    """`function`, `class`, `method`, or one of `DERIVATIVES` for a pair."""
    derivative: str = ""
    """The name of the derivative by hand, where it is a pair."""

    @property
    def label(self) -> str:
        """Returns the name that is the test's own."""
        return self.derivative or self.name

    def find(self) -> Any:
        """Returns the function or class, or the `Method`."""
        module = importlib.import_module(self.module)
        if self.kind != "method":
            return getattr(module, self.name)
        kind, _, name = self.name.partition(".")
        return Method(getattr(module, kind), name)


@dataclass(frozen=True)
class Method:
    """A method or property of a class, as a function of the arguments of the class and its own."""

    kind: type
    name: str

    @property
    def __name__(self) -> str:
        """Returns the name that reports show."""
        return f"{self.kind.__name__}.{self.name}"

    @property
    def bound(self) -> bool:
        """Returns whether it needs no object, as a method of the class does."""
        found = inspect.getattr_static(self.kind, self.name)
        return isinstance(found, staticmethod | classmethod)

    @property
    def value(self) -> bool:
        """Returns whether it is a property, which is not called."""
        return not callable(getattr(self.kind, self.name))

    @property
    def constructor(self) -> list[Parameter]:
        """Returns the parameters of the class that a call gives: those that are required, and
        arrays with a default.
        """
        found = [] if self.bound else parameters_of(self.kind, self.kind.__name__) or []
        return [
            replace(one, required=True)
            for one in found
            if one.required or (ARRAYS.search(one.annotation) and "None" not in one.annotation)
        ]

    @property
    def parameters(self) -> list[Parameter]:
        """Returns the parameters of the class, and behind them those of the method."""
        if self.value:
            return self.constructor
        found = parameters_of(getattr(self.kind, self.name), self.name) or []
        return [*self.constructor, *(found if self.bound else found[1:])]

    def split(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any, Any, Any]:
        """Returns the arguments of the class, by place and by name, and those of the method."""
        placed = [one for one in self.constructor if not one.keyword]
        named = {one.name for one in self.constructor if one.keyword}
        first = {key: value for key, value in kwargs.items() if key in named}
        second = {key: value for key, value in kwargs.items() if key not in named}
        return args[: len(placed)], first, args[len(placed) :], second

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Returns what the method returns, or the value of the property, for a new object."""
        args, kwargs, own, named = self.split(args, kwargs)
        held = self.kind if self.bound else self.kind(*args, **kwargs)
        found = getattr(held, self.name)
        return found if self.value else found(*own, **named)


def imported(name: str) -> ModuleType:
    """Returns the module of that name. Raises `InputError` where it cannot be imported."""
    if name.endswith(".py") or "/" in name:
        raise InputError(
            f"{name} is the path of a file, which a test could not import",
            f"give the module's name, as `import` has it: {re.split('[/.]', name)[-2]}",
        )
    with Catching(Exception) as caught:  # whatever the module does when it is imported
        return importlib.import_module(name)
    assert caught.error is not None
    raise not_imported(name, caught.error) from caught.error


def not_imported(name: str, error: Exception) -> InputError:
    """Returns the error to raise where the module `name`, or what it holds, cannot be imported.

    The distribution of an engine may have another name than its module: that of Lucid is lucid-dl.
    """
    if not isinstance(error, ModuleNotFoundError):
        return InputError(
            f"{name} fails to import: {type(error).__name__}: {str(error).partition(chr(10))[0]}",
            f"mend that first: python -c 'import {name}'",
        )
    absent = error.name or name
    root = absent.partition(".")[0]
    commands = [entry.command for entry in entries() if entry.root == absent]
    known = next(iter(commands), "")
    if (name + ".").startswith(absent + "."):
        remedy = (
            f"install it: {known}" if known else "install it, or go to the folder that holds it"
        )
        return InputError(f"there is no module {name}", remedy)
    return InputError(
        f"{name} needs {root}, which is not installed",
        f"install it: {known or f'pip install {root}'}",
    )


def modules(module: ModuleType) -> Iterator[ModuleType | LeftOut]:
    """Yields the public submodules of a package, imported, at any depth."""
    for _, name, _ in pkgutil.iter_modules(getattr(module, "__path__", [])):
        if name.startswith("_") or name in ("conftest", "setup", "test", "tests", "testing"):
            continue
        try:
            below = imported(f"{module.__name__}.{name}")
        except InputError as error:
            yield LeftOut(f"{module.__name__}.{name}", error.found)
            continue
        yield below
        yield from modules(below)


def engine_of(module: ModuleType) -> AutodiffBackend:
    """Returns the engine on which the functions of a module compute.

    It is the one whose framework the module, or a function of it, has imported, or from which a
    class of it derives; NumPy if there is none. Raises `InputError` where there are several.
    """
    scopes = [vars(module)]
    members = [value for _, value in _members(module, own=True)]
    scopes += [getattr(inspect.unwrap(one), "__globals__", {}) for one in members]
    scopes += [
        {one.__name__: one for kind in members if isinstance(kind, type) for one in kind.__mro__}
    ]
    roots = {module.__name__.partition(".")[0]} | {
        str(value.__name__ if isinstance(value, ModuleType) else value.__module__).partition(".")[0]
        for scope in scopes
        for value in scope.values()
        if isinstance(value, ModuleType) or isinstance(getattr(value, "__module__", None), str)
    }
    used = [name for name in registry.differentiating() if name in roots]
    if len(used) > 1:
        raise InputError(
            f"{module.__name__} uses {' and '.join(used)}", f"say which: --backend {used[0]}"
        )
    return backend_named(used[0] if used else "numpy")


def subjects(
    module: ModuleType, engine: AutodiffBackend, name: str | None = None, *, methods: bool = False
) -> Iterator[Subject | LeftOut]:
    """Yields what a test may be written for, in the order of the module.

    Args:
        module, engine: Where to look, and on what it computes.
        name: Only this member, whatever its name says of it.
        methods: Whether methods of classes that are no functions are taken as well.
    """
    members = dict(_members(module, own=name is None))
    if name is not None and name not in members:
        raise InputError(
            f"{module.__name__} has no function {name}",
            f"it has: {', '.join(key for key in members if not key.startswith('_')) or 'none'}",
        )
    pairs = _pairs(members)
    differentiates = engine.name in registry.differentiating()
    seen: dict[int, str] = {}
    for key, value in members.items():
        if name not in (None, key):
            continue
        if isinstance(value, type):
            if engine.function_class(value) is not None:
                yield Subject(module.__name__, key, "class")
            elif methods and id(value) not in seen:
                yield from _methods(module.__name__, key, value)
        elif id(value) in seen:
            yield LeftOut(key, f"it is {seen[id(value)]} by another name")
        elif name is None and (why := _danger(key) or _danger(pairs.get(key, ("", ""))[0])):
            yield LeftOut(key, why)
        elif key in pairs:
            forward, kind = pairs[key]
            yield Subject(module.__name__, forward, kind, key)
        elif differentiates:
            yield Subject(module.__name__, key)
        elif key not in {forward for forward, _ in pairs.values()}:
            yield LeftOut(
                key, f"{engine.name} has no derivatives, and none by hand is defined beside it"
            )
        seen.setdefault(id(value), key)


def _members(module: ModuleType, *, own: bool) -> list[tuple[str, Callable[..., Any]]]:
    """Returns what can be called; with `own`, only what the module offers as its own."""
    listed = getattr(module, "__all__", None)
    root = module.__name__.partition(".")[0]
    found = []
    for key in listed if own and listed is not None else list(vars(module)):
        if not isinstance(key, str):  # some libraries list the objects in place of their names
            continue
        value = getattr(module, key, None)
        if not callable(value) or (own and key.startswith("_")):
            continue
        home = getattr(value, "__module__", None) or type(value).__module__
        if own and listed is None and str(home).partition(".")[0] != root:
            continue
        found.append((key, value))
    return found


def _methods(module: str, key: str, kind: type) -> Iterator[Subject | LeftOut]:
    """Yields the public methods and properties of a class, those of its bases in the same part of
    the library among them (as `numpyro.distributions`), and none that a framework adds.
    """
    if inspect.isabstract(kind):
        return
    part = kind.__module__.split(".")[:2]
    own = [vars(one) for one in kind.__mro__ if one.__module__.split(".")[:2] == part]
    for name in dict.fromkeys(name for scope in reversed(own) for name in scope):
        found = inspect.getattr_static(kind, name)
        public = callable(found) or isinstance(found, property | staticmethod | classmethod)
        if name.startswith("_") or not public or isinstance(found, type):
            continue
        if why := _danger(name):
            yield LeftOut(f"{key}.{name}", why)
        else:
            yield Subject(module, f"{key}.{name}", "method")


def _pairs(members: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Returns for the name of each derivative by hand that of its function, and its kind."""
    pairs: dict[str, tuple[str, str]] = {}
    for key, value in members.items():
        for kind, pattern in DERIVATIVES.items():
            match = None if isinstance(value, type) else pattern.fullmatch(key)
            bases = (
                [base + end for base in match.groups() if base for end in FORWARDS] if match else []
            )
            forward = next((base for base in bases if base in members), None)
            if forward is not None:
                pairs.setdefault(key, (forward, kind))
    return pairs


def _danger(name: str) -> str:
    words = name.lower().split("_")
    if name.endswith("_"):
        return "its name ends with _, as that of a function does which works in place"
    if words[0] in SIDE_EFFECTS:
        return f"not called: its name says {words[0]!r}, so it may do more than compute"
    return ""


# ---------------------------------------------------------------- parameters


def parameters_of(function: Callable[..., Any], name: str) -> list[Parameter] | None:
    """Returns the parameters that a call needs or can have; `None` if nobody says.

    Compiled functions have no signature, but the first line of their documentation has.
    """
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        found = []
    variadic = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    if any(one.kind not in variadic for one in found):
        return [
            Parameter(
                one.name,
                _text(one.annotation),
                one.default is one.empty,
                one.kind is one.KEYWORD_ONLY,
                one.kind is one.VAR_POSITIONAL,
            )
            for one in found
            if one.kind is not one.VAR_KEYWORD
        ]
    documented = _documented(name, inspect.getdoc(function) or "")
    if documented is None:
        return [Parameter("x", several=True)] if found else None
    given = documented.args
    plain = [*given.posonlyargs, *given.args]
    optional = len(plain) - len(given.defaults)
    return [
        *(Parameter(one.arg, _code(one.annotation), k < optional) for k, one in enumerate(plain)),
        *(
            Parameter(one.arg, _code(one.annotation), default is None, keyword=True)
            for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
        ),
    ]


def function_class(value: type) -> FunctionClass:
    """Returns how a class is used as a function, by the engine that knows it."""
    roots = {kind.__module__.partition(".")[0] for kind in value.__mro__}
    for name in registry.differentiating():
        found = backend_named(name).function_class(value) if name in roots else None
        if found is not None:
            return found
    raise InputError(f"{value!r} is no function", "give a function, or a class that defines one")


def _documented(name: str, text: str) -> ast.FunctionDef | None:
    """Returns the signature with which a docstring begins: `logit(input, eps=None) -> Tensor`."""
    start = text.find(f"{name}(")
    if start not in range(200):
        return None
    for end in range(start, min(len(text), start + 600)):
        if text[end] == ")":
            try:
                tree = ast.parse(f"def {text[start : end + 1]}: ...")
            except SyntaxError:
                continue
            assert isinstance(tree.body[0], ast.FunctionDef)
            return tree.body[0]
    return None


def _code(node: ast.expr | None) -> str:
    return "" if node is None else ast.unparse(node)


def _text(annotation: object) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
