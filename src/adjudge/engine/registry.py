"""The registry of engines: adapters are known by name and imported when an array of theirs shows
up.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from types import FunctionType, ModuleType
from typing import Any, Protocol

import array_api_compat
import numpy as np

from adjudge.engine.arrays import PlainBackend, has_namespace
from adjudge.engine.contract import ArrayOperations, Arrays, AutodiffBackend, Expansion, Functional
from adjudge.errors import (
    BackendNotInstalledError,
    Catching,
    InputError,
    MixedFrameworksError,
    UnknownFrameworkError,
    described,
    did_you_mean,
)

GROUP = "adjudge.backends"
ARRAYS = "adjudge.arrays"
"""The group of entry points of engines of arrays alone, whose derivatives are by hand."""


def is_array_like(leaf: object) -> bool:
    """Returns whether `leaf` looks like an array of some framework.

    A dictionary does not, also where it takes names of attributes for keys and raises `KeyError`.
    """
    return not isinstance(leaf, dict) and hasattr(leaf, "shape") and hasattr(leaf, "dtype")


class EntryPoint(Protocol):
    """What is used of `importlib.metadata.EntryPoint`."""

    name: str
    value: str

    @property
    def dist(self) -> Any: ...

    def load(self) -> Any: ...


@dataclass(frozen=True, eq=False)
class Entry:
    """An adapter that is registered, imported or not."""

    root: str
    """The root module of the arrays' types, which is the name of the entry point."""
    point: EntryPoint
    arrays_only: bool = False
    """Whether the engine has no derivatives of its own."""

    @property
    def command(self) -> str:
        """The command that installs the framework."""
        distribution = self.point.dist
        if distribution is None:
            return f"pip install {self.root}"
        extras = distribution.metadata.get_all("Provides-Extra") or []
        extra = f"[{self.root}]" if self.root in extras else ""
        return f"pip install '{distribution.name}{extra}'"

    def load(self) -> AutodiffBackend:
        """Returns the backend; raises `BackendNotInstalledError` with the cause and the remedy."""
        return _loaded(self)


@cache
def _loaded(entry: Entry) -> AutodiffBackend:
    # An adapter is code of others, which fails to import as it likes.
    with Catching(Exception) as caught:
        factory = entry.point.load()
    if (error := caught.error) is not None:
        absent = error.name if isinstance(error, ModuleNotFoundError) else None
        if (absent or "").partition(".")[0] != entry.root:
            raise BackendNotInstalledError(
                f"the adapter of backend '{entry.root}' ({entry.point.value}) fails to import: "
                f"{type(error).__name__}: {error}",
                "mend that installation; the full error stands above",
            ) from error
        raise BackendNotInstalledError(
            f"backend '{entry.root}' is known, but the package '{entry.root}' is not installed",
            f"install it: {entry.command}",
        ) from error
    backend: AutodiffBackend = factory()
    return backend


@lru_cache(maxsize=1)
def entries() -> tuple[Entry, ...]:
    """Returns the registered adapters in the order of their names, and imports nothing.

    Of two with one name the first counts.
    """
    from importlib import metadata  # a quarter of the import time of this library

    found: dict[str, Entry] = {}
    for group in (GROUP, ARRAYS):
        for point in sorted(metadata.entry_points(group=group), key=lambda p: (p.name, p.value)):
            found.setdefault(point.name, Entry(point.name, point, group == ARRAYS))
    return tuple(found[name] for name in sorted(found))


def backend_named(name: str) -> AutodiffBackend:
    """Returns the backend of that name. Raises `UnknownFrameworkError` or
    `BackendNotInstalledError`.
    """
    for entry in entries():
        if entry.root == name:
            return entry.load()
    if name in PLAIN:
        return _plain_named(name)
    raise UnknownFrameworkError(
        f"no adapter is registered for backend '{name}'; registered: {', '.join(names())}",
        did_you_mean(name, names(), after=" Else ")
        + "check the spelling, or write an adapter: docs/how-to/write-an-adapter.md",
    )


def backend_given(given: object, option: str = "backend") -> AutodiffBackend:
    """Returns the engine that the option `option` has, by name or itself.

    Raises `InputError` where it is neither, and what `backend_named` raises.
    """
    if isinstance(given, AutodiffBackend):
        return given
    if isinstance(given, str):
        return backend_named(given)
    what = f"a {type(given).__name__}" if is_array_like(given) else described(given)
    remedy = f"give the name of one, such as {names()[0]!r}, or an instance"
    if isinstance(given, ModuleType):
        what = f"the module {given.__name__}"
        root = given.__name__.partition(".")[0]
        if root in PLAIN or any(entry.root == root for entry in entries()):
            remedy = f"give its name: {root!r}"
    raise InputError(f"{option}= has {what}, which is no engine and no name of one", remedy)


def imported_backends() -> list[AutodiffBackend]:
    """Returns the engines whose framework this process has imported, each once."""
    found: dict[str, Entry] = {}
    for entry in entries():
        if sys.modules.get(entry.root) is not None:  # None: its import is blocked
            found.setdefault(entry.point.value, entry)
    return [_loaded(entry) for entry in found.values()]


PLAIN = ("numpy", "array_api_strict")
"""The array namespaces that can be named without an adapter; their derivatives are by hand."""


def names() -> list[str]:
    """Returns the names of all engines, each once, in an order that all processes share."""
    found: dict[str, str] = {}
    for entry in entries():
        found.setdefault(entry.point.value, entry.root)
    return [*PLAIN, *(name for name in found.values() if name not in PLAIN)]


def differentiating() -> list[str]:
    """Returns those of `names` that have derivatives of their own, and imports nothing."""
    by_hand = {*PLAIN, *(entry.root for entry in entries() if entry.arrays_only)}
    return [name for name in names() if name not in by_hand]


def _plain_named(name: str) -> AutodiffBackend:
    try:
        one = importlib.import_module(name).zeros(1)
    except ModuleNotFoundError as error:
        raise BackendNotInstalledError(
            f"backend '{name}' is known, but the package '{name}' is not installed",
            f"install it: pip install {name.replace('_', '-')}",
        ) from error
    return _plain(array_api_compat.array_namespace(one))


def backend_of(leaf: object, name: str) -> AutodiffBackend | None:
    """Returns the backend that owns `leaf`; `None` if `leaf` is no array. `name` is for messages.

    Raises `UnknownFrameworkError` for an array that nobody owns.
    """
    for backend in _backends_of(leaf):
        if backend.owns(leaf):
            return backend
    if isinstance(leaf, np.ndarray) and type(leaf) not in (np.ndarray, np.memmap):
        raise UnknownFrameworkError(
            f"{name} is a {type(leaf).__module__}.{type(leaf).__qualname__}, and the function "
            "would see a plain array in its place",
            "pass a plain array (numpy.asarray), of which the function makes what it needs",
        )
    if has_namespace(leaf):
        return _plain(array_api_compat.array_namespace(leaf))
    if is_array_like(leaf) and not isinstance(leaf, type):
        module = type(leaf).__module__.partition(".")[0]
        roots = sorted(entry.root for entry in entries())
        if module in roots:
            raise UnknownFrameworkError(
                f"{name} is a {type(leaf).__module__}.{type(leaf).__qualname__}, which is no array "
                f"of {module}",
                "pass an array that holds numbers in its place",
            )
        known = ", ".join(roots) or "none"
        raise UnknownFrameworkError(
            f"{name} is a {type(leaf).__module__}.{type(leaf).__qualname__}, and no adapter is "
            f"registered for '{module}'; registered: {known}",
            "install or write an adapter (docs/how-to/write-an-adapter.md), "
            "or pass an array of a registered framework",
        )
    return None


@cache
def _plain(namespace: object) -> AutodiffBackend:
    return PlainBackend(namespace)


def expand(node: object) -> Expansion | None:
    """Returns the children of a node that only an imported framework knows, or `None`."""
    if node is None or isinstance(node, bool | int | float | complex | str | bytes):
        return None
    for entry in entries():
        if sys.modules.get(entry.root) is None:  # None: its import is blocked
            continue
        expands = _expands(entry)
        if isinstance(expands, Exception):
            if _entries_of(type(node).__mro__, (entry,)):
                raise expands
        elif expands:
            expansion = _loaded(entry).arrays.expand(node)
            if expansion is not None:
                return expansion
    return None


@cache
def _expands(entry: Entry) -> bool | BackendNotInstalledError:
    """Returns whether the framework has containers that only it knows, as few have, or why its
    adapter cannot be imported. That ends the checks of its own objects alone: without this it ended
    those of each other engine in the same process.
    """
    try:
        return type(_loaded(entry).arrays).expand is not ArrayOperations.expand
    except BackendNotInstalledError as error:
        return error


def functional_of(f: object) -> Functional | None:
    """Returns `f` as a function of the parameters that it holds, or `None`: see
    `AutodiffBackend.functional`.
    """
    if type(f).__module__ == "builtins":  # plain functions hold none
        return None
    found = (backend.functional(f) for backend in _backends_of(f))
    return next((one for one in found if one is not None), None)


def require_no_class(f: object) -> None:
    """Raises `InputError` where `f` is a class by which users of a framework define functions, or
    its `forward`, which is handed more than the inputs.
    """
    kind = f if isinstance(f, type) else _class_of_forward(f)
    if kind is None:
        return
    for entry in _entries_of(kind.__mro__, entries()):
        found = _loaded(entry).function_class(kind)
        if found is not None and found.call is not f:
            what = kind.__name__ if kind is f else f"{kind.__name__}.forward"
            use = "an object of it" if found.constructed else f"{kind.__name__}{found.suffix}"
            raise InputError(
                f"the function to check is {what}, and {kind.__name__} is a class of {entry.root}",
                f"pass {use}",
            )


def _class_of_forward(f: object) -> type | None:
    """Returns the class whose `forward` a plain function is, where its module says so."""
    owner, _, name = getattr(f, "__qualname__", "").rpartition(".")
    if name != "forward" or not isinstance(f, FunctionType):
        return None
    found: object = sys.modules.get(f.__module__)
    for part in owner.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) else None


def buffers_of(f: object) -> tuple[AutodiffBackend, Arrays] | None:
    """Returns the engine of `f` and the arrays that it may write into, or `None` where it has none:
    see `AutodiffBackend.buffers`.
    """
    for backend in _backends_of(f):
        if arrays := backend.buffers(f):
            return backend, arrays
    return None


def parts_of(f: object) -> Sequence[object]:
    """Returns the objects that may bind their arrays anew: see `AutodiffBackend.parts`."""
    for backend in _backends_of(f):
        if parts := backend.parts(f):
            return parts
    return ()


def _backends_of(thing: object) -> Iterator[AutodiffBackend]:
    """Yields the engines from whose framework the class of an object comes, or one that it is
    derived from.
    """
    return map(_loaded, _entries_of(type(thing).__mro__, entries()))


@lru_cache(maxsize=64)
def _entries_of(kinds: tuple[type, ...], registered: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Returns those of the adapters from whose framework one of these classes comes."""
    roots = {kind.__module__.partition(".")[0] for kind in kinds}
    return tuple(entry for entry in registered if entry.root in roots)


def common_backend(backends: Iterable[tuple[str, AutodiffBackend]]) -> AutodiffBackend | None:
    """Returns the one backend of all checked leaves. Raises `MixedFrameworksError` if there are
    two.
    """
    first: tuple[str, AutodiffBackend] | None = None
    for name, backend in backends:
        if first is None:
            first = (name, backend)
        elif first[1] is not backend and first[1].name != backend.name:
            raise MixedFrameworksError(
                f"{first[0]} belongs to {first[1].name} and {name} to {backend.name}",
                "convert one of them, or leave one unchecked: wrt=",
            )
    return first[1] if first else None
