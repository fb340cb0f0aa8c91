"""Arrays that the user's function closes over, as further inputs with names of their own."""

from __future__ import annotations

import inspect
import math
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, suppress
from dataclasses import is_dataclass, replace
from functools import partial
from hashlib import blake2b
from itertools import chain
from operator import is_
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from adjudge.engine import (
    Array,
    Arrays,
    AutodiffBackend,
    Environment,
    FlatFunction,
    Setting,
    backend_named,
    backend_of,
    buffers_of,
    functional_of,
    is_array_like,
    parts_of,
)
from adjudge.errors import (
    AdjudgeError,
    BackendError,
    FlagError,
    InputError,
    NotSupportedError,
    attempt,
)
from adjudge.findings import InSequence
from adjudge.problem.problem import Problem, Reverse, observe
from adjudge.problem.space import Space


def captured_by(problem: Problem) -> Arrays:
    """Returns the arrays marked for differentiation that f closes over, as its first vjp at x shows
    them. Takes that vjp where none was taken. Raises `InputError` where the engine does not know.
    """
    calls = problem.calls
    assert calls is not None
    if not calls.recorded:
        Reverse(problem)
    if calls.ends is None:
        raise InputError(
            f"captured=True: backend {problem.backend.name!r} does not know what the function "
            "closes over",
            "pass it as an input",
        )
    if not problem.x and not calls.ends.captured:
        raise InputError(
            "captured=True: there is nothing to check: no input has a floating or complex array, "
            "and the function closes over none that is marked for differentiation",
            "pass what is to be checked as an input",
        )
    return calls.ends.captured


def graded_numbers(problem: Problem) -> tuple[int, ...]:
    """Returns the indices of those numbers among the inputs for which the vjp of a rule by hand
    gives a gradient. Takes a vjp.
    """
    calls = problem.calls
    assert calls is not None

    def pull() -> object:
        base, reverse = observe(problem), Reverse(problem)
        return reverse.pull(reverse.cotangent(base, np.ones(base.Y.size)))

    attempt(pull, NotSupportedError)  # the check reports what raises
    return calls.graded


def with_captured(problem: Problem, captured: Arrays, names: tuple[str, ...]) -> Problem:
    """Returns the problem of f as a function of its inputs and of the arrays `captured`.

    Raises `FlagError` where the inputs are checked along a set.
    """
    if problem.constraints:
        raise FlagError(
            "captured=True and directions=: what f closes over stands in no set",
            "give one of them",
        )
    widen = problem.backend.arrays.widen
    whole = _extended(problem, captured, captured, names)
    if whole.X.double:
        return whole

    def widened(dtype: str) -> Problem:
        """Returns the same problem in this dtype, with what it captures in double precision."""
        wide = problem if problem.widened is None else problem.widened(dtype)
        return _extended(wide, captured, tuple(map(widen, captured)), names)

    return replace(whole, widened=widened)


def _extended(
    problem: Problem, captured: Arrays, values: Arrays, names: tuple[str, ...]
) -> Problem:
    """Returns the problem whose last leaves are what the arrays `captured` hold, `values` at x."""
    backend, first = problem.backend, len(problem.x)
    if problem.counts.ahead is not None:
        problem.counts.in_sequence(InSequence.HELD)
    space, origin = Space.at(backend, values, names)
    function = partial(_held, problem.function, backend, captured)
    return replace(
        problem.with_leaves(space, values, origin),
        backend=backend.closing_over(captured, first),
        function=function,
        evaluate=function,
        widened=None,
        anew=None,
        closed_over=len(captured),
    )


def _held(function: FlatFunction, backend: AutodiffBackend, captured: Arrays, x: Arrays) -> Arrays:
    """Returns what `function` makes of the first leaves of `x` while `captured` hold the others."""
    first = len(x) - len(captured)
    with backend.holding(captured, x[first:]):
        return function(x[:first])


def names_of(problem: Problem, f: Callable[..., Any], captured: Arrays) -> tuple[str, ...]:
    """Returns names such as `captured['layer.weight']`, by the variable or the input of the user
    that holds the array; or `captured[0]` where none is found.
    """
    assert problem.calls is not None
    tree = problem.calls.arguments.tree
    known = {id(leaf): name for name, leaf in zip(tree.names, tree.leaves, strict=True)}
    for name, held, functional in _reachable(inspect.unwrap(f), functional_of):
        arrays = {"": held} if functional is None else functional.parameters
        for key, array in arrays.items():
            known.setdefault(id(array), ".".join(filter(None, (name, key))))
    return tuple(
        f"captured[{known[id(array)]!r}]" if id(array) in known else f"captured[{k}]"
        for k, array in enumerate(captured)
    )


class Held(NamedTuple):
    """What a call of a function may change, of the objects that it closes over."""

    buffers: list[tuple[AutodiffBackend, Arrays]]
    """Arrays that objects may write into, such as the running statistics of a normalisation, with
    the engine of each."""
    parts: list[object]
    """What may bind arrays anew, as a module its buffers."""
    generators: list[Setting]
    """The states of random generators that are no part of a global state."""
    objects: list[object]
    """All that it closes over, as deep as it is looked into."""


def held_by(f: object, environment: Environment) -> Held:
    """Returns what a call of `f` may change; `environment` knows the generators of its engine."""
    buffers: list[tuple[AutodiffBackend, Arrays]] = []
    parts: dict[int, object] = {}
    generators: dict[int, Setting | None] = {}
    known: set[int] = set()
    objects: list[object] = []
    for _, one, end in _reachable(f, partial(generator_of, environment=environment)):
        objects.append(one)
        generators[id(one)] = end
        if (found := buffers_of(one)) is not None:
            backend, arrays = found
            buffers.append((backend, tuple([array for array in arrays if id(array) not in known])))
            known.update(map(id, arrays))
        for part in parts_of(one):  # however deep they stand
            parts[id(part)] = part
    apart = parts.keys() | known
    for part in parts.values():
        generators |= _generators_in(part, apart, environment)
    own = [one for one in generators.values() if one]
    return Held(buffers, list(parts.values()), own, objects)


def _generators_in(part: object, apart: Set[int], environment: Environment) -> dict[int, Setting]:
    """Returns the generators that the attributes of a part hold, in whatever they stand: an
    augmentation that is no module, say. What is `apart`, by its `id`, is looked into by itself.
    """

    def ending(one: object) -> Setting | bool | None:
        return generator_of(one, environment) or (True if id(one) in apart else None)

    found: dict[int, Setting] = {}
    for value in vars(part).values():
        if type(value) in _PLAIN or (isinstance(value, dict | list | tuple) and not value):
            continue
        for _, held, end in _reachable(value, ending):
            if isinstance(end, Setting):
                found[id(held)] = end
    return found


class HeldState:
    """What a call of f may change of the modules that it closes over, as it is when this is made:
    their attributes (arrays, counters, whether a module is trained), what the containers hold that
    stand there (buffers, hooks, a history), and other arrays that they write into. Its context puts
    all of that back at its end, and `before_evaluation` before each evaluation that finds a change.

    Without that a module with a running mean, called by a function that closes over it, is another
    function at every evaluation.
    """

    changed: bool = False
    """Whether an evaluation has left anything changed."""

    def __init__(self, held: Held, backend: AutodiffBackend) -> None:
        """Arrays of the engine `backend`, and of NumPy, are copied in its context."""
        containers, tuples = _held_in(held.parts)
        self._before = [(one, _entries(one)) for one in containers]
        self._aside, self._buffers = backend.environment.aside, held.buffers
        own = {id(array): (engine, array) for engine, arrays in held.buffers for array in arrays}
        of_numpy = backend_named("numpy")
        for one in chain(chain.from_iterable(each.values() for _, each in self._before), *tuples):
            engine = backend if backend.owns(one) else of_numpy
            # no copy keeps the class of an array that is derived from one of NumPy, as if masked
            other = engine is of_numpy and type(one) is not np.ndarray
            if other or id(one) in own or engine.requires_grad(one):
                continue
            # a nested array has no shape
            info = attempt(partial(engine.arrays.info, one), RuntimeError)
            if info is not None and math.prod(info.shape) <= MOST_COPIED:
                own[id(one)] = engine, one
        self._arrays = own
        """The arrays by their `id`, each with its engine."""
        self._tuples = {id(one): one for one in tuples}
        """The tuples by their `id`: none can be written into, and others stand for those that hold
        arrays."""
        self._kept = self._copied({key: array for key, (_, array) in own.items()})
        """A copy of each array that nobody writes into."""
        self._now: dict[int, Any] = {}
        """What stands for the arrays and tuples within the context, by the `id` of each."""
        self._written: set[int] = set()
        self._holding, self._evaluations = ExitStack(), 0

    def _copied(self, arrays: Mapping[int, Array]) -> dict[int, Array]:
        """Returns copies of some of the arrays; what shares memory does so in the copies."""
        found: dict[int, Array] = {}
        for backend in {id(engine): engine for engine, _ in self._arrays.values()}.values():
            keys = [key for key in arrays if self._arrays[key][0] is backend]
            copies = backend.arrays.copies(tuple([arrays[key] for key in keys]))
            found.update(zip(keys, copies, strict=True))
        return found

    def __enter__(self) -> Self:
        self._renew(self._arrays)
        return self

    def __exit__(self, *raised: object) -> None:
        self._holding.close()
        self._bind({})

    def before_evaluation(self) -> None:
        """Puts everything back if an evaluation has left it changed. Whether one does is asked
        before the first few alone, which is after a vjp as well: to ask takes as long as a copy.
        """
        with self._aside():
            if self._evaluations < ASKED_EVALUATIONS:
                self._evaluations += 1
                self._written |= self._found_written()
                self.changed = self.changed or bool(self._written) or self._bound_anew()
            if self.changed:
                self._renew(self._written)

    def _bound_anew(self) -> bool:
        """Returns whether a container holds anything else."""
        return any(True for _ in self._unlike(self._now))

    def _unlike(self, stands_for: Mapping[int, Any]) -> Iterator[tuple[_Container, dict[Any, Any]]]:
        """Yields the containers that hold anything else, with what they should hold."""
        for container, entries in self._before:
            if len(container) == len(entries) and not 0 < len(entries) <= MOST_REACHED:
                continue  # as most dictionaries of hooks are empty, and a vocabulary is large
            whole = {key: stands_for.get(id(one), one) for key, one in entries.items()}
            if not _holds(container, whole):
                yield container, whole

    def _found_written(self) -> set[int]:
        """Returns the `id` of each array that does not hold its numbers."""
        found = set()
        for key, (backend, _) in self._arrays.items():
            now, kept = (_host(backend, one[key]) for one in (self._now, self._kept))
            if now is None or kept is None:  # what has no numbers holds no statistics
                continue
            if not np.array_equal(now, kept, equal_nan=True):
                found.add(key)
        return found

    def _renew(self, keys: Iterable[int]) -> None:
        """Lets new copies stand for the arrays of these keys, and puts back all entries. What the
        engine has recorded with the old copies is not written into.
        """
        self._now |= self._copied({key: self._kept[key] for key in keys})
        for key in self._tuples:
            self._now.pop(key, None)
        for one in self._tuples.values():
            self._standing_for(one)
        self._holding.close()
        for backend, arrays in self._buffers:  # of which others may know as well
            values = tuple([self._now[id(array)] for array in arrays])
            self._holding.enter_context(backend.holding(arrays, values))
        self._bind(self._now)

    def _standing_for(self, one: Any) -> Any:
        """Returns what stands for what a container holds: for a tuple, one of what stands for its
        entries.
        """
        if id(one) in self._tuples and id(one) not in self._now:
            entries = [self._standing_for(each) for each in one]
            self._now[id(one)] = one if all(map(is_, one, entries)) else _of_kind(one, entries)
        return self._now.get(id(one), one)

    def _bind(self, stands_for: Mapping[int, Any]) -> None:
        """Puts back the entries of all containers, with what stands for the arrays among them."""
        for container, whole in self._unlike(stands_for):
            kind: Any = _plain_kind(container)
            if not isinstance(container, dict):
                kind.clear(container)
                fill = kind.update if isinstance(container, set) else kind.extend
                fill(container, whole.values())
                continue
            for name in container.keys() - whole.keys():
                kind.__delitem__(container, name)
            missing = [name for name in whole if name not in container]
            if [*container, *missing] != list(whole):
                kind.clear(container)  # for the order alone: attributes are never absent else
            for name, one in whole.items():
                kind.__setitem__(container, name, one)


def _plain_kind(container: _Container) -> type:
    """Returns the class of Python among those of a container. A class that is derived from it may
    refuse what is put into it, as one whose entries are frozen does, or do something else with it,
    as a `Counter` does, which adds.
    """
    return next(kind for kind in type(container).__mro__ if kind in _KINDS)


def _of_kind(one: tuple[Any, ...], entries: Iterable[Any]) -> tuple[Any, ...]:
    """Returns a tuple such as this one, which may be a named tuple, of other entries."""
    make = getattr(one, "_make", type(one))
    made: tuple[Any, ...] = make(entries)
    return made


def _host(backend: AutodiffBackend, array: Array) -> NDArray[Any] | None:
    """Returns the numbers of an array; `None` where it has none, or none in double precision. Of an
    array of NumPy, which may hold anything, these are its bytes.
    """
    if isinstance(array, np.ndarray):
        return np.frombuffer(array.tobytes(), np.uint8)
    return attempt(partial(backend.arrays.to_host, array), AdjudgeError, RuntimeError)


def _holds(container: _Container, entries: Mapping[Any, Any]) -> bool:
    """Returns whether a container holds these very objects, by name or place; the order of names
    is kept as well, since a cache may go by it.
    """
    if len(container) != len(entries):
        return False
    if isinstance(container, set):
        return all(one in container for one in entries.values())
    if not isinstance(container, dict):
        return all(map(is_, container, entries.values()))
    return list(container) == list(entries) and all(map(is_, container.values(), entries.values()))


def _held_in(parts: Sequence[object]) -> tuple[list[_Container], list[tuple[Any, ...]]]:
    """Returns the attributes of parts and the containers that these hold, however deep they stand
    in one another or in dataclasses; and the tuples among these.

    What stands in others has no more than `MOST_REACHED` entries, all together.
    """
    containers: list[_Container] = []
    tuples: list[tuple[Any, ...]] = []
    attributes = {id(one): one for part in parts for one in (part, vars(part))}
    found, known, left = deque(attributes.values()), set(attributes), MOST_REACHED
    while found:
        one = found.popleft()
        if isinstance(one, tuple):
            if type(one) is tuple or hasattr(one, "_make") or hasattr(one, "n_sequence_fields"):
                tuples.append(one)  # others of its class can be made
        elif isinstance(one, dict | list | deque | set):
            containers.append(one)
        else:
            continue
        if len(one) > MOST_REACHED:
            continue
        for each in one.values() if isinstance(one, dict) else one:
            if is_dataclass(each) and not isinstance(each, type):
                each = getattr(each, "__dict__", ())
            if id(each) in known or not isinstance(each, dict | list | deque | set | tuple):
                continue
            if id(one) not in attributes:
                if len(each) >= left:
                    continue
                left -= 1 + len(each)
            known.add(id(each))
            found.append(each)
    return containers, tuples


def _entries(container: _Container) -> dict[Any, Any]:
    """Returns a copy of what a container holds, by name or place."""
    return dict(container if isinstance(container, dict) else enumerate(container))


_KINDS = (OrderedDict, dict, list, deque, set)
_Container: TypeAlias = dict[Any, Any] | list[Any] | deque[Any] | set[Any]

MOST_COPIED = 2**20
"""Arrays of more numbers are copied only where they are buffers: a data set that stands in an
attribute would take as much memory again. The value is ours."""
ASKED_EVALUATIONS = 8
"""Before how many evaluations it is asked whether the earlier ones have changed what f closes over:
a first evaluation of f, of its vjp and of its jvp are among them. The value is ours."""


def generator_of(one: object, environment: Environment) -> Setting | None:
    """Returns what reads and sets the state of a random generator; `None` where `one` is none, or
    has no state that can be set.
    """
    if isinstance(one, random.Random):
        has_none = isinstance(one, random.SystemRandom)
        return None if has_none else Setting(one.getstate, one.setstate)
    if isinstance(one, np.random.RandomState):
        return Setting(partial(one.get_state, legacy=False), one.set_state)
    bits = one.bit_generator if isinstance(one, np.random.Generator) else one
    if isinstance(bits, np.random.BitGenerator):
        return Setting(partial(getattr, bits, "state"), partial(setattr, bits, "state"))
    return environment.generator(one)


def contents_reached_by(f: object) -> list[bytes]:
    """Returns a digest of each array that a function closes over, and of each one that objects
    that it closes over may write into.
    """

    def held(one: object) -> tuple[AutodiffBackend, Arrays] | None:
        if not is_array_like(one) or isinstance(one, type):
            return buffers_of(one)
        backend = attempt(partial(backend_of, one, ""), BackendError)
        return None if backend is None else (backend, (one,))

    found = []
    for _, _, arrays in _reachable(f, held):
        for array in () if arrays is None else arrays[1]:
            host = _host(arrays[0], array)
            found.append(b"" if host is None else blake2b(host.tobytes()).digest())
    return found


_PLAIN = (bool, int, float, complex, str, bytes, type(None), type, ModuleType, BuiltinFunctionType)
"""Types of what holds no array."""


def captured_inputs(problem: Problem) -> Arrays:
    """Returns what f closes over, as far as the first vjp has shown it and the caller also passes
    it as an input that is checked.
    """
    calls = problem.calls
    if calls is None or calls.ends is None or not calls.ends.captured:
        return ()
    own = {id(leaf) for leaf in calls.arguments.leaves}
    return tuple([array for array in calls.ends.captured if id(array) in own])


def _reachable(f: object, ending: Callable[[Any], Any]) -> list[tuple[str, Any, Any]]:
    """Returns what the variables of a function, or the attributes of an object, hold: each thing
    once, with its name and with what `ending` returns for it. A thing for which that is not `None`
    is not looked into; of plain functions and containers it is not asked.

    What stands in a list in a dictionary is as deep as the dictionary, and the object of a bound
    method as deep as that. No more than `MOST_REACHED` things are looked into, and no containers
    that have more entries, all together.
    """
    known, found, looked_into, left = {id(f)}, [], [("", f, 0)], MOST_REACHED
    for name, one, depth in looked_into:  # it grows on the way
        end = None if type(one).__module__ == "builtins" else ending(one)
        found.append((name, one, end))
        # A dictionary may take names of attributes for keys.
        of_class = not isinstance(one, dict) and isinstance(getattr(one, "__self__", None), type)
        if len(looked_into) > MOST_REACHED:
            continue
        through = type(one) in _LOOKED_THROUGH
        if isinstance(one, _CONTAINERS):
            if len(one) > left:
                continue
            left -= len(one)
        if end is None and depth < DEPTH + through and not of_class:
            below = depth + (not through)
            for key, value in _variables(one).items():
                if type(value) is BuiltinFunctionType:  # the method of an object, or of a module
                    value = value.__self__
                if type(value) not in _PLAIN and id(value) not in known:
                    known.add(id(value))
                    looked_into.append((f"{name}.{key}" if name else key, value, below))
    return found


_CONTAINERS = (list, tuple, dict, set, frozenset, deque)
_LOOKED_THROUGH = (*_CONTAINERS, partial, MethodType)
"""Types of what only holds something else."""
DEPTH = 5
"""How deep variables are looked into: those of a function, the attributes of an object that it
holds, and what stands in these: an augmentation that composes others. The value is ours; it bounds
the work of finding a name."""


MOST_REACHED = 10_000
"""A data set in a global list would take longer than the check. The value is ours."""


def _variables(f: object) -> Mapping[str, Any]:
    """Returns the variables that a function reads from outside, or the attributes of an object."""
    if isinstance(f, partial):
        return {"func": f.func, **{f"args[{k}]": a for k, a in enumerate(f.args)}, **f.keywords}
    if isinstance(f, MethodType):
        return {"self": f.__self__, **_variables(f.__func__)}
    if isinstance(f, FunctionType):
        around = {name: f.__globals__.get(name) for name in f.__code__.co_names}
        code, defaults = f.__code__, f.__defaults__ or ()
        names = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
        around |= dict(zip(names, defaults, strict=True)) | (f.__kwdefaults__ or {})
        for name, cell in zip(code.co_freevars, f.__closure__ or (), strict=True):
            with suppress(ValueError):  # it is not assigned yet
                around[name] = cell.cell_contents
        return around
    if isinstance(f, dict):
        return {str(key): value for key, value in f.items()}
    if isinstance(f, list | tuple | set | frozenset | deque):
        return {f"[{k}]": value for k, value in enumerate(f)}
    if isinstance(f, ModuleType | type):
        return {}
    held: Mapping[str, Any] = getattr(f, "__dict__", {})
    slots = [name for kind in type(f).__mro__ for name in _slots(kind) if hasattr(f, name)]
    return {**{name: getattr(f, name) for name in slots}, **held} if slots else held


def _slots(kind: type) -> Sequence[str]:
    """Returns the names of the attributes that a class written in Python keeps in slots."""
    named = vars(kind).get("__slots__", ())
    names = (named,) if isinstance(named, str) else tuple(named)
    return [name for name in names if not name.startswith("__")]
