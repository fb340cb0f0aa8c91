"""The user's arguments as flat leaves, and the calls of the user's function with such leaves.

It is here that code of the user runs, that its evaluations are counted, and that the leaves of its
results are told from the rest.
"""

from __future__ import annotations

import copy
import dataclasses
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property, partial
from typing import Any

import numpy as np
import optree

from adjudge.engine import (
    Arrays,
    AutodiffBackend,
    ByHand,
    Environment,
    Expansion,
    FlatFunction,
    Functional,
    HandBackend,
    MaybeArrays,
    RecordingEnds,
    backend_given,
    backend_of,
    common_backend,
    expand,
    host_array,
    is_array_like,
    is_number,
    misfit,
    of_numbers,
    placed,
    replaced,
)
from adjudge.errors import (
    USERS_ERRSTATE,
    AdjudgeError,
    BackendError,
    InputError,
    NotSupportedError,
    Source,
    UnknownFrameworkError,
    UnstableOutputError,
    attempt,
    described,
    mark,
    running,
)
from adjudge.findings import InSequence
from adjudge.floats import EPS
from adjudge.limits import limits
from adjudge.problem.ahead import Ahead, Begun, Call, ExecutorError

Expand = Callable[[object], Expansion | None]


@dataclass(frozen=True)
class Tree:
    """A pytree, flattened."""

    leaves: tuple[Any, ...]
    names: tuple[str, ...]
    """The accessor paths of the leaves, like `inputs[0]['w']`."""
    rebuild: Callable[[Sequence[Any]], Any]
    """Makes a pytree of the same structure from other leaves."""
    signature: tuple[object, ...]
    """A value that is equal for two pytrees of the same structure."""


def flatten(tree: Any, root: str, expand: Expand = expand, within: tuple[int, ...] = ()) -> Tree:
    """Returns `tree` flattened by optree, and below the leaves of that by `expand`. What f returns
    may be an object of a dataclass as well, with its fields for children; as an input such an
    object is a constant, unless an engine knows it.

    Args:
        tree: Nested containers of any kind that optree knows. `None` is a leaf, so that it can
            stand in any position.
        root: The name that the accessor paths begin with: `inputs`, `OUT`; or `CALL`.
        expand: Returns the children of a node that only an engine knows, and `None` for others.
        within: The `id` of each dataclass around `tree`; one that holds itself is a leaf there.
    """
    leaves: list[Any]
    leaves, spec = optree.tree_flatten(tree, none_is_leaf=True)
    names, expansions = _paths(spec, root), list(map(expand, leaves))
    returned = root == OUT or root.startswith((f"{OUT}.", f"{OUT}["))
    records = [returned and hasattr(type(leaf), "__dataclass_fields__") for leaf in leaves]
    if expansions.count(None) == len(leaves) and not any(records):  # as in most trees
        return Tree(tuple(leaves), tuple(names), spec.unflatten, (spec,))
    parts = [
        _of_record(leaf, name, expand, within)
        if record and expansion is None and id(leaf) not in within
        else _expanded(leaf, name, expansion)
        for leaf, name, expansion, record in zip(leaves, names, expansions, records, strict=True)
    ]
    return _joined(parts, spec, partial(optree.tree_unflatten, spec))


def _joined(parts: Sequence[Tree], kind: object, make: Callable[[Sequence[Any]], Any]) -> Tree:
    """Returns the tree of a node with these children, which `make` makes of others; `kind` says in
    its signature what it is.
    """
    counted = [(part.rebuild, len(part.leaves)) for part in parts]  # and without the leaves

    def rebuild(flat: Sequence[Any]) -> Any:
        rebuilt, start = [], 0
        for rebuilt_part, count in counted:
            rebuilt.append(rebuilt_part(flat[start : start + count]))
            start += count
        return make(rebuilt)

    return Tree(
        tuple(leaf for part in parts for leaf in part.leaves),
        tuple(name for part in parts for name in part.names),
        rebuild,
        (kind, *(part.signature for part in parts)),
    )


OUT = "out"
"""The root of what f returns."""
CALL = ""
"""The root of the tree `(args, kwargs)` of a call, whose paths begin with `inputs` and `kwargs`."""


def _paths(spec: optree.PyTreeSpec, root: str) -> list[str]:
    """Returns the accessor paths of the leaves of a structure.

    Those of plain positional arguments are written down directly, in a tenth of the time.
    """
    if root == CALL:
        args, kwargs = spec.children()
        if args.num_nodes == args.num_leaves + 1 and not kwargs.num_leaves:
            return list(map("inputs[{}]".format, range(args.num_leaves)))
        paths = _paths(args, "inputs") + _paths(kwargs, "kwargs")
        for held, key in HELD.items():
            paths = [path.replace(f"kwargs[{key!r}]", held) for path in paths]
        return paths
    if spec.num_nodes == spec.num_leaves == 1:
        return [root]
    return [accessor.codify(root) for accessor in optree.treespec_accessors(spec)]


HELD = {"parameters": "the parameters of f", "buffers": "the buffers of f"}
"""The keywords by which an object is handed the arrays that it holds (see `Holder`), by the root of
their accessor paths. They are no identifiers, so that no keyword of the user is one of them."""


@dataclass(frozen=True)
class Holder:
    """An object that holds parameters, as a function that takes them as further keywords."""

    held: Functional

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Returns what the object returns with the arrays of these keywords in place of its own."""
        arrays = {name: array for key in HELD.values() for name, array in kwargs.pop(key).items()}
        return self.held.call(arrays, args, kwargs)

    @property
    def keywords(self) -> dict[str, Mapping[str, Any]]:
        """The keywords with the arrays that the object holds."""
        held = (dict(self.held.parameters), dict(self.held.buffers))
        return dict(zip(HELD.values(), held, strict=True))


def _expanded(leaf: object, name: str, expansion: Expansion | None) -> Tree:
    if expansion is None:
        return Tree((leaf,), (name,), lambda flat: flat[0], ())
    names = tuple(name + child for child in expansion.names)
    return Tree(expansion.children, names, expansion.rebuild, (type(leaf), names))


def _of_record(record: Any, name: str, expand: Expand, within: tuple[int, ...]) -> Tree:
    """Returns an object of a dataclass flattened by its fields; as one leaf where it holds no
    array.

    One with other arrays is a copy in which these fields are others. It is not made by the
    constructor, which may take other arguments.
    """
    fields = [one.name for one in dataclasses.fields(record) if hasattr(record, one.name)]
    inside = (*within, id(record))
    parts = [flatten(getattr(record, one), f"{name}.{one}", expand, inside) for one in fields]
    if not any(is_array_like(leaf) for part in parts for leaf in part.leaves):
        return _expanded(record, name, None)

    def make(children: Sequence[Any]) -> Any:
        made = copy.copy(record)
        for one, child in zip(fields, children, strict=True):
            object.__setattr__(made, one, child)
        return made

    return _joined(parts, type(record), make)


Path = int | str
"""The index of a positional argument, or an accessor path like `inputs[0]['w']`."""


def is_at_or_below(name: str, path: Path) -> bool:
    """Returns whether the leaf of this name is at `path` or below it; all leaves are below ""."""
    prefix = f"inputs[{path}]" if isinstance(path, int) else path
    return not prefix or name == prefix or (name.startswith(prefix) and name[len(prefix)] in "[.")


@dataclass(frozen=True)
class Arguments:
    """The user's arguments, flattened.

    `checked` are the indices of the leaves that are checked, and `backend` is the engine of these.
    """

    tree: Tree
    checked: tuple[int, ...]
    backend: AutodiffBackend
    unmarked: tuple[str, ...] = ()
    """The names of floating inputs that are not checked, since they are not marked for
    differentiation and others are."""

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """The indices of floating and complex numbers among the positional inputs, which are no
        arrays and so count as constants.
        """
        named = zip(self.tree.names, self.tree.leaves, strict=True)
        return tuple(
            [
                k
                for k, (name, leaf) in enumerate(named)
                if isinstance(leaf, float | complex | np.inexact)
                and name.startswith("inputs")
                and k not in self.checked
            ]
        )

    def with_arrays(self, numbers: Sequence[int]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns `args, kwargs` with arrays in place of these numbers, in double precision where
        the first checked leaf is, and else in single.
        """
        leaves = list(self.tree.leaves)
        double = self.backend.arrays.eps(self.leaves[0]) <= EPS["float64"]
        kinds = ("complex128", "float64") if double else ("complex64", "float32")
        for k in numbers:
            dtype = kinds[0] if isinstance(leaves[k], complex) else kinds[1]
            leaves[k] = placed(self.backend, np.asarray(leaves[k]), dtype, name=self.tree.names[k])
        return self.assemble(leaves)

    @cached_property
    def own_arrays(self) -> tuple[int, ...]:
        """The indices of the leaves that are arrays of the engine."""
        owns = self.backend.owns
        return tuple([k for k, leaf in enumerate(self.tree.leaves) if owns(leaf)])

    @property
    def names(self) -> tuple[str, ...]:
        """The accessor paths of the checked leaves."""
        return tuple(map(self.tree.names.__getitem__, self.checked))

    @property
    def leaves(self) -> Arrays:
        """The user's own checked arrays, which are read, and never written to or passed on."""
        return tuple(map(self.tree.leaves.__getitem__, self.checked))

    def call(self, x: Arrays) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns `args, kwargs` with `x` in the checked places and new copies of other arrays."""
        return self.assemble(self.fill(x))

    def fill(self, x: Arrays) -> list[Any]:
        """Returns all leaves, with `x` in the checked places and new copies of other arrays."""
        leaves: list[Any] = list(self.tree.leaves)
        if self._unchecked:
            self._renew(leaves)
        for k, leaf in zip(self.checked, x, strict=True):
            leaves[k] = leaf
        return leaves

    def assemble(self, leaves: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns `args, kwargs` made of these leaves."""
        args, kwargs = self.tree.rebuild(leaves)
        return args, kwargs

    @cached_property
    def _unchecked(self) -> list[int]:
        checked = set(self.checked)
        return [k for k in range(len(self.tree.leaves)) if k not in checked]

    def widened(self, dtype: str) -> Arguments:
        """Returns the same arguments with every floating array of the engine in double precision,
        or with those of sixteen bits in `float32`.

        Raises what the engine raises where its device has no such precision.
        """
        backend, arrays = self.backend, self.backend.arrays

        def wide(leaf: Any) -> Any:
            if not (backend.owns(leaf) and arrays.is_differentiable(leaf)):
                return leaf
            if dtype == "float64":
                return arrays.widen(leaf)
            if arrays.eps(leaf) <= EPS[dtype]:
                return leaf
            return arrays.make(arrays.to_host(leaf), dtype, arrays.info(leaf).device)

        with running(Source.ENGINE):
            tree = replace(self.tree, leaves=tuple(wide(leaf) for leaf in self.tree.leaves))
        return replace(self, tree=tree)

    def mutated(self, leaves: Sequence[Any]) -> tuple[str, ...]:
        """Returns the names of the unchecked arrays among `leaves` that were written to, so that
        they no longer hold the user's values.
        """
        found = []
        for k in self._unchecked:
            now, before = leaves[k], self.tree.leaves[k]
            if now is not before and not self._same(now, before):
                found.append(self.tree.names[k])
        return tuple(found)

    def _same(self, now: Any, before: Any) -> bool:
        if isinstance(before, np.ndarray):
            return bool(now.tobytes() == before.tobytes())
        backend = self.backend
        try:
            with backend.environment.aside():
                now, before = backend.arrays.to_host(now), backend.arrays.to_host(before)
        except NotSupportedError:
            # Arrays of a device that hold no values cannot be written to.
            return True
        return bool(np.array_equal(now, before, equal_nan=True))

    def _renew(self, leaves: list[Any]) -> None:
        """Puts new copies in the places of the unchecked arrays."""
        own = []
        for k in self._unchecked:
            if isinstance(leaves[k], np.ndarray):
                leaves[k] = leaves[k].copy(order="K")
            elif not isinstance(leaves[k], np.generic) and self.backend.owns(leaves[k]):
                own.append(k)
        copies = self.backend.arrays.copies(tuple([leaves[k] for k in own]))
        for k, new in zip(own, copies, strict=True):
            leaves[k] = new


def read_arguments(
    inputs: object,
    kwargs: Mapping[str, Any] | None = None,
    *,
    wrt: Path | Sequence[Path] | None = None,
    backend: str | AutodiffBackend | None = None,
    masked: bool | None = None,
    device: str | None = None,
    holder: Holder | None = None,
    captured: bool = False,
    rule: ByHand | None = None,
) -> Arguments:
    """Returns the arguments of the call `f(*inputs, **kwargs)`, flattened.

    Args:
        inputs: A tuple or list of positional arguments, or one argument.
        kwargs: Keyword arguments.
        wrt: Which leaves are checked: paths, or `None` for those that are marked for
            differentiation and, where none is, for all floating and complex arrays.
        backend: The engine or its name; `None` for that of the arrays.
        masked: Whether sparse arrays are checked at their stored values only.
        device: The name of a device, on which copies of all arrays take the place of the arrays.
        holder: The function, where it holds parameters. These are checked as well.
        captured: Whether what the function closes over is checked, and the inputs may be none.
        rule: The function, where its derivatives are by hand. Its inputs may be numbers, or lists
            of numbers, which become arrays.

    Raises:
        InputError: Nothing can be checked, or `wrt`, `device` or `backend` mean nothing here.
        BackendError: An array belongs to no engine that is known and installed, or checked arrays
            belong to two.
    """
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise InputError(
            f"kwargs= is of class {type(kwargs).__name__}", "give a mapping of names to arguments"
        )
    given = None if backend is None else backend_given(backend)
    call = _owned(inputs, kwargs, given, holder)
    if not call.owners or (rule is not None and rule.as_matrices):
        inputs, kwargs = placed_call(inputs, kwargs, given, rule)
        call = _owned(inputs, kwargs, given, holder)
    checked, unmarked = _selected(call, wrt, holds=holder is not None, captured=captured, rule=rule)
    tree, owners = call.tree, call.owners
    engine = common_backend([(tree.names[k], owners[k]) for k in checked or owners]) or given
    if engine is None:  # _selected raised where nothing is checked, but for what f closes over
        raise InputError(
            "captured=True: there is no input that says which engine differentiates",
            "name it (backend='torch'), or pass what the function closes over as an input",
        )
    if device is not None:
        tree = replace(tree, leaves=_moved(engine, tree, device))
    if masked:
        engine = replaced(engine, arrays=engine.arrays.stored_only())
    return Arguments(tree, checked, engine, unmarked)


@dataclass(frozen=True)
class OwnedLeaves:
    """A flattened call, and which engines its leaves belong to."""

    tree: Tree
    given: AutodiffBackend | None
    """The engine that the user named; where there is one, others are not looked for."""
    owners: Mapping[int, AutodiffBackend]
    """The engines of the leaves, by their index."""
    unknown: Mapping[int, UnknownFrameworkError]
    """The errors of the leaves that belong to no engine, by their index."""


def _owned(
    inputs: object,
    kwargs: Mapping[str, Any] | None,
    given: AutodiffBackend | None,
    holder: Holder | None,
) -> OwnedLeaves:
    """Returns the flattened call with the engines of its leaves."""
    args = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
    for key in kwargs or ():
        if not isinstance(key, str):
            raise InputError(f"kwargs= has the key {key!r}", "give names of arguments as keys")
    keywords = {**(kwargs or {}), **({} if holder is None else holder.keywords)}
    tree = flatten((args, keywords), CALL)
    owners: dict[int, AutodiffBackend] = {}
    unknown: dict[int, UnknownFrameworkError] = {}
    for k, (name, leaf) in enumerate(zip(tree.names, tree.leaves, strict=True)):
        if given is not None:
            if given.owns(leaf):
                owners[k] = given
        elif not isinstance(leaf, np.generic):
            # NumPy's scalars are numbers and constants, as Python's are.
            try:
                owner = backend_of(leaf, name)
            except UnknownFrameworkError as error:
                unknown[k] = error
                continue
            if owner is not None:
                owners[k] = owner
    return OwnedLeaves(tree, given, owners, unknown)


def placed_call(
    inputs: Any,
    kwargs: Mapping[str, Any] | None,
    backend: str | AutodiffBackend | None,
    rule: ByHand | None,
) -> tuple[Any, Any]:
    """Returns the inputs and keywords of a call with the arrays of NumPy, and lists of numbers,
    placed on the engine that was named, or made arrays of NumPy where derivatives are by hand.

    All stay as they are where any array is of the engine and can be differentiated, or is of
    another engine. Numbers are constants beside arrays and lists, and become arrays without these.
    Integers become float64 where the rule has its derivatives as SciPy takes them.
    """
    if backend is None and rule is None:
        return inputs, kwargs
    engine = backend_given("numpy" if backend is None else backend)
    integers = rule is not None and rule.as_matrices

    def listed(node: Any) -> bool:
        return isinstance(node, list) and is_number(node)

    call: Any = (inputs, kwargs)
    nodes = optree.tree_leaves(call, is_leaf=listed, none_is_leaf=True)
    arrays = [node for node in nodes if is_array_like(node) and not isinstance(node, np.generic)]
    hosts = [node for node in arrays if isinstance(node, np.ndarray)]
    floating = any(host.dtype.kind in "fc" for host in hosts)
    if len(hosts) < len(arrays) or (floating and engine.owns(np.zeros(0))):
        return inputs, kwargs
    alone = not hosts and not any(map(listed, nodes))
    inexact = any(isinstance(node, float | complex | np.inexact) for node in nodes)

    def array(node: Any) -> Any:
        number = not isinstance(node, np.ndarray | list)
        if number and not (alone and is_number(node)):
            return node
        host = host_array(node, "inputs")
        if integers and host.dtype.kind in "iu" and not (number and inexact):
            host = host.astype(np.float64)
        return node if number and host.dtype.kind not in "fc" else placed(engine, host)

    made: Any = optree.tree_map(array, call, is_leaf=listed, none_is_leaf=True)
    return made[0], made[1]


def _moved(engine: AutodiffBackend, tree: Tree, device: str) -> tuple[Any, ...]:
    try:
        return tuple(
            engine.arrays.place(leaf, device) if engine.owns(leaf) else leaf for leaf in tree.leaves
        )
    except NotSupportedError as error:
        raise InputError(
            f"device={device!r}: {error.found}",
            "name one of the engine's devices (adjudge backends), for arrays that hold values",
        ) from error


def _selected(
    call: OwnedLeaves,
    wrt: Path | Sequence[Path] | None,
    *,
    holds: bool,
    captured: bool,
    rule: ByHand | None,
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Returns the indices of the checked leaves, and the names of inputs that are not checked since
    others are marked.

    Checked are the leaves that `wrt` names, else the inputs marked for differentiation, else all
    inputs that are floating or complex arrays; and with them the parameters that f holds, but for
    those that are marked as constants. An array of an unknown framework is a constant where others
    are named or marked.
    """
    tree, owners = call.tree, call.owners
    floating = [k for k, owner in owners.items() if owner.arrays.is_differentiable(tree.leaves[k])]
    if wrt is not None:
        return _resolved(call, floating, wrt), ()
    held: list[int] = []
    if holds:
        held = [k for k in floating if tree.names[k].startswith("parameters")]
        held = [k for k in held if owners[k].requires_grad(tree.leaves[k]) is not False]
        floating = [k for k in floating if not tree.names[k].startswith(tuple(HELD))]
    marked = [k for k in floating if owners[k].requires_grad(tree.leaves[k])]
    if marked:
        rest = sorted(set(floating).difference(marked))
        return (*marked, *held), tuple(map(tree.names.__getitem__, rest))
    for error in call.unknown.values():
        raise error
    if not floating and not held and (not captured or rule is not None):
        _require_none_of_others(call, range(len(tree.leaves)))
        kinds = ", ".join(
            f"{name}: {leaf.dtype if is_array_like(leaf) else type(leaf).__name__}"
            for name, leaf in zip(tree.names, tree.leaves, strict=True)
        )
        objects = (
            type(leaf).__name__
            for leaf in tree.leaves
            if hasattr(leaf, "__dict__") and not is_array_like(leaf)
        )
        contents = (f"what the {one} holds as a dict of arrays" for one in objects)
        integers = any(map(is_array_like, tree.leaves))
        constants = "" if rule is not None else " (Python and NumPy scalars count as constants)"
        raise InputError(
            f"no input has a floating or complex array to check ({kinds or 'no inputs'})",
            f"pass {next(contents, 'floating-point arrays')}{constants}"
            + (", not integers (convert them)" if integers else "")
            + ("" if rule is not None else "; captured=True checks what the function closes over"),
        )
    return (*floating, *held), ()


def _require_none_of_others(call: OwnedLeaves, leaves: Iterable[int]) -> None:
    """Raises `InputError` where one of these leaves would be checked on another engine than the
    given one, which its array belongs to.
    """
    given = call.given
    if given is None:
        return
    for k in leaves:
        name, leaf = call.tree.names[k], call.tree.leaves[k]
        if given.owns(leaf) or isinstance(leaf, np.ndarray | np.generic):
            continue  # arrays of NumPy are placed on the engine, and numbers are constants
        owner = attempt(partial(backend_of, leaf, name), BackendError)
        if owner is not None and owner.arrays.is_differentiable(leaf):
            raise InputError(
                f"{name} belongs to {owner.name}, and the check is on {given.name}",
                f"pass an array of {given.name}, or one of NumPy, which is placed there",
            )


def _resolved(
    call: OwnedLeaves, floating: Sequence[int], wrt: Path | Sequence[Path]
) -> tuple[int, ...]:
    """Returns the indices of the leaves that `wrt` names, in order."""
    tree, named = call.tree, [wrt] if isinstance(wrt, int | np.integer | str) else wrt
    paths = list[int | str]()
    for path in named:
        if not isinstance(path, int | np.integer | str):
            raise InputError(
                f"wrt= holds {described(path)}",
                "give the index of a positional argument, or a path such as 'kwargs.weight'",
            )
        paths.append(path if isinstance(path, str) else int(path))
    if not paths:
        raise InputError("wrt= selects nothing", "name at least one input, or leave wrt= out")
    chosen: set[int] = set()
    for path in paths:
        found = [
            k for k, name in enumerate(tree.names) if path != "" and is_at_or_below(name, path)
        ]
        if not found:
            raise InputError(
                f"wrt={path!r} is no input; there are: {', '.join(tree.names) or 'none'}",
                "give the index of a positional argument, or a path as listed",
            )
        usable = [k for k in found if k in floating]
        if not usable:
            k = found[0]
            if k in call.unknown:
                raise call.unknown[k]
            _require_none_of_others(call, found)
            kind = getattr(tree.leaves[k], "dtype", type(tree.leaves[k]).__name__)
            raise InputError(
                f"wrt={path!r} names {tree.names[k]}, which is {kind}",
                "only floating and complex arrays have derivatives",
            )
        chosen.update(usable)
    return tuple(sorted(chosen))


class Purpose(Enum):
    """What the function is being evaluated for, in the words of a note on an exception."""

    FIRST = "the first evaluation"
    AT_X = "at x"
    AGAIN_AT_X = "a second time at x"
    REVERSE = "at x, under reverse mode"
    """The engine evaluates it to differentiate it in reverse mode."""
    FORWARD = "at x, under forward mode"
    """The engine evaluates it to differentiate it in forward mode."""
    NEAR_X = "near x"
    BESIDE_NOT_FINITE = "beside x, where its outputs may be as infinite as at x"
    REFERENCE = "near x, to compare it with the reference"
    ROUNDING = "with x moved by rounding"
    SINGULAR_VECTOR = "along a singular vector"
    BLOCK = "with a block of an input moved"
    PRECISION = "to see its precision"
    CACHE = "at x and beside it, to tell a cache"
    JUMP = "close to x, to tell a jump from a slope"
    KINK = "close to x, for its slopes at a kink"
    SPECIAL_POINT = "close to a special point"


DIFFERENTIATING = (Purpose.REVERSE, Purpose.FORWARD)
"""The purposes for which the engine evaluates the function, and not adjudge."""


PURPOSES_AT_X = (Purpose.FIRST, Purpose.AT_X, Purpose.AGAIN_AT_X, *DIFFERENTIATING)
"""The purposes for which the function is evaluated at x itself."""


UNRECORDED = (Purpose.AGAIN_AT_X, Purpose.CACHE)
"""The purposes for which the function itself is called, though it was recorded. A recording gives
the same at every call, and so says nothing of what the function keeps between its calls."""


@dataclass(frozen=True)
class Move:
    """The function is evaluated with one entry moved, or whole leaves along a random tangent."""

    name: Callable[[], str]
    """Gives the name of what is moved. Most evaluations raise nothing and need no name."""
    step: float
    tangent: bool


def purpose_in_words(purpose: Purpose | Move) -> str:
    """Returns how the note on an exception says what an evaluation was for."""
    if isinstance(purpose, Purpose):
        return str(purpose.value)
    times = " times a random tangent" if purpose.tangent else ""
    return f"with {purpose.name()} moved by {purpose.step:+.3g}{times}"


@dataclass
class Counts:
    """What a check has cost so far, and what f is evaluated for, and after what."""

    evaluations: int = 0
    vjps: int = 0
    jvps: int = 0
    replayed: int = 0
    """Operations on numbers in exact replays of f."""
    purpose: Purpose | Move = Purpose.FIRST
    limit: float = np.inf
    """The budget: once so much work is spent, no more is begun."""
    kept: deque[Arrays] = field(default_factory=deque)
    """Points at which f was evaluated, the latest last. A function that caches results by the `id`
    of its arrays would otherwise meet the `id` of an array that is gone in another one."""
    all_kept: bool = False
    """Whether points of any size are kept, as within `keeping`."""
    before_evaluation: Callable[[], object] | None = None
    """What is called before each evaluation of f: it puts the random state back, where f draws
    numbers that matter. `None` where there is nothing to do."""
    put_back: Callable[[], object] | None = None
    """What is called before each evaluation of f as well: it puts back what the earlier ones have
    changed of the modules that f closes over."""
    ahead: Ahead | None = None
    """What has evaluations made at once, where the caller gave an executor."""

    @property
    def spent(self) -> int:
        """The work so far, in evaluations of f; a jvp evaluates f as well, and counts twice."""
        return self.evaluations + self.vjps + self.jvps

    def allows(self, work: float) -> bool:
        """Returns whether the budget has room for this much more work."""
        return self.evaluations + self.vjps + self.jvps + work <= self.limit

    def in_sequence(self, reason: InSequence) -> None:
        """Goes back to one evaluation after another. What an executor has begun is not used."""
        assert self.ahead is not None
        self.ahead.open = False
        self.ahead.reasons.setdefault(reason)
        self.end()

    def end(self) -> None:
        """Waits for the evaluations that an executor has begun."""
        assert self.ahead is not None
        self.evaluations -= self.ahead.end()

    def keep(self, x: Arrays, size: int) -> None:
        """Keeps the point `x`, of `size` bytes, alive for as long as that is cheap."""
        memory = limits().kept_bytes
        if self.all_kept or size <= memory // 16:
            self.kept.append(x)
        while not self.all_kept and len(self.kept) > memory // max(size, 1):
            self.kept.popleft()

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Keeps every point alive within the block, of whatever size."""
        self.all_kept = True
        try:
            yield
        finally:
            self.all_kept = False
            self.kept.clear()


@dataclass(frozen=True)
class Signature:
    """What must not change between two evaluations of f."""

    structure: tuple[object, ...]
    """The structure of the result, as `Tree.signature`."""
    arrays: tuple[tuple[str, tuple[int, ...], str] | None, ...]
    """For each leaf of the result its name, shape and dtype, and `None` where it is no array."""


@dataclass
class UserCalls:
    """Calls the user's function with leaves, and finds the leaves in what it returns.

    The first result is remembered, since those that follow must have its structure.
    """

    arguments: Arguments
    counts: Counts
    wanted: Sequence[Path] | None = None
    """The paths of the outputs that are checked; `None` for all."""
    result: Tree | None = None
    """The first result, flattened; leaves are kept of a function with derivatives by hand alone, to
    which trees of numbers are matched."""
    signature: Signature | None = None
    differentiable: tuple[int, ...] = ()
    """The indices of those leaves of the result that are floating or complex arrays."""
    of_others: Mapping[str, str] = field(default_factory=dict)
    """The framework of each array of the first result that is not of the engine, by its name."""
    plain: tuple[str, ...] = ()
    """The leaves of the result that are no arrays, and not `None`, with their types."""
    mutated: tuple[str, ...] = ()
    """The names of unchecked arrays that the first evaluation wrote into."""
    single: tuple[object, object] | None = None
    """The shape and the dtype of the result, where that is a single array."""
    single_type: type[Any] | None = None
    """The type of that array. The engine is asked about arrays of other types (tracers, say)."""
    recorded: bool = False
    """Whether a vjp was taken."""
    ends: RecordingEnds | None = None
    """The recording of the first vjp ends here, if the engine knows."""
    opaque: tuple[str, ...] = ()
    """The leaves of the result that hold arrays and are no known containers, with their types."""
    graded: tuple[int, ...] = ()
    """Those `numbers` of the arguments for which a vjp by hand gave a gradient."""
    dropped: tuple[int, ...] | None = None
    """The leaves that are neither checked nor among these, integers say, for which it did; `None`
    before the first vjp."""
    spends: bool | None = None
    """Whether a call uses up arrays that it is handed; `None` before the first one."""

    def arguments_for(self, x: Arrays) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns `args, kwargs` of a call at the point `x`: see `Arguments.call`."""
        return self.arguments.call(x)

    @contextmanager
    def call_context(self, x: Arrays) -> Iterator[None]:
        """The context of a call of a derivative that the user wrote: `Environment.call_context`."""
        with running(Source.DERIVATIVE), self.arguments.backend.environment.call_context(x):
            yield

    def evaluate(self, function: Callable[..., Any], x: Arrays) -> Arrays:
        """Returns the differentiable outputs of `function` at the point `x`, and counts the call.

        What the function raises comes through, with a note that says in which evaluation.
        """
        arguments, counts = self.arguments, self.counts
        # Where every leaf is checked, a point is all that a call needs.
        leaves = x if len(x) == len(arguments.tree.leaves) else arguments.fill(x)
        handed = leaves if self.spends is False else self._to_spend(leaves)
        args, kwargs = arguments.tree.rebuild(handed)
        counts.evaluations += 1
        result: Any = self.run(function, x, args, kwargs)
        if self.spends is None and handed is not leaves:
            spent = arguments.backend.arrays.spent
            self.spends = any(spent(handed[k]) for k in arguments.own_arrays)
        if type(result) is self.single_type and self.single == (result.shape, result.dtype):
            return (result,)  # as most are
        if self.result is None and leaves is not x:
            self.mutated = arguments.mutated(leaves)
        return self.outputs(result)

    def _to_spend(self, leaves: Sequence[Any]) -> Sequence[Any]:
        """Returns the leaves of a call, where it may use them up, as copies. The arrays of the
        caller, and those that are read after the call, stay what they are.
        """
        arrays = self.arguments.own_arrays
        if self.spends is None and any(
            type(leaves[k]) is not type(self.arguments.tree.leaves[k]) for k in arrays
        ):
            return leaves  # tracers, say, of which a copy would be a step of the function
        copied, copy = list(leaves), self.arguments.backend.arrays.to_spend
        for k in arrays:
            own = copy(leaves[k])
            if own is None:
                self.spends = False
                return leaves
            copied[k] = own
        return copied

    def run(
        self, call: Callable[..., Any], x: Arrays, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Returns what the user's code returns in the context of an evaluation at `x`, and marks
        what it raises.
        """
        ahead = self.counts.ahead
        if self.counts.put_back is not None:
            self.counts.put_back()
        if self.counts.before_evaluation is not None:
            self.counts.before_evaluation()
        try:
            if ahead is not None and ahead.key is not None:
                if ahead.settings is not None:
                    environment = self.arguments.backend.environment
                    own = type(environment).call_context is not Environment.call_context
                    context = environment.call_context if own else None
                    ahead.begin(Call(call, context, x, args, kwargs), ahead.settings)
                if (begun := ahead.begun.pop(ahead.key, None)) is not None:
                    self.counts.evaluations -= 1  # it was counted when it began
                    return ahead.result_of(begun)
            with np.errstate(**USERS_ERRSTATE.get()):
                environment = self.arguments.backend.environment
                if type(environment).call_context is Environment.call_context:  # as most are
                    return call(*args, **kwargs)
                with environment.call_context(x):
                    return call(*args, **kwargs)
        except (Begun, ExecutorError):
            raise
        except BaseException as error:  # it is raised again
            self.mark(error)
            called = call.given.get("forward", call) if isinstance(call, ByHand) else call
            if isinstance(error, TypeError) and misfit(called, args, kwargs) is not None:
                error.add_note(
                    f"adjudge: the inputs are {len(args)} positional argument"
                    f"{'s' * (len(args) != 1)}; several inputs are one tuple, (x, y)"
                )
            raise

    def mark(self, error: BaseException) -> None:
        """Marks what the function raised, with a note that says in which evaluation."""
        when = f"evaluation {self.counts.evaluations} of the function"
        note = f"adjudge: raised in {when}, {purpose_in_words(self.counts.purpose)}"
        mark(error, Source.FUNCTION, note)

    def outputs(self, result: Any) -> Arrays:
        """Returns the leaves of `result` that are floating or complex arrays.

        Raises `UnstableOutputError` where its structure, a shape or a dtype is not that of the
        first result.
        """
        if (
            self.single is not None
            and self.arguments.backend.owns(result)
            and (result.shape, result.dtype) == self.single
        ):
            return (result,)
        tree = flatten(result, OUT)
        if isinstance(self.arguments.backend, HandBackend):
            own, like = self.arguments.backend.own, self.arguments.leaves[0]
            tree = replace(tree, leaves=tuple([own(leaf, like) for leaf in tree.leaves]))
        signature = Signature(tree.signature, tuple(map(_described, tree.names, tree.leaves)))
        if self.signature is None:
            backend = self.arguments.backend
            # What an engine recorded would stay alive as long as the leaves of its result.
            kept: tuple[Any, ...] = (None,) * len(tree.leaves)
            if isinstance(backend, HandBackend):
                kept = tuple([_without_memory(backend, leaf) for leaf in tree.leaves])
            self.result = replace(tree, leaves=kept)
            found, opaque, plain, self.of_others = [], [], [], {}
            for k, (name, leaf) in enumerate(zip(tree.names, tree.leaves, strict=True)):
                if backend.owns(leaf):
                    found += [k] if backend.arrays.is_differentiable(leaf) else []
                elif is_array_like(leaf):
                    self.of_others[name] = type(leaf).__module__.partition(".")[0]
                elif leaf is not None:
                    plain.append(f"{name} ({type(leaf).__name__})")
                    if _hides_arrays(leaf):
                        opaque.append(f"{name} (of class {type(leaf).__name__})")
            chosen = found if self.wanted is None else _chosen(tree, found, self.wanted)
            self.differentiable = tuple(chosen)
            self.opaque, self.plain = tuple(opaque), tuple(plain)
            self.signature = signature
            if chosen and tree.leaves[0] is result:  # and nothing else
                self.single, self.single_type = (result.shape, result.dtype), type(result)
        elif self.signature != signature:
            raise _unstable(self.signature, signature, self.counts)
        return tuple(map(tree.leaves.__getitem__, self.differentiable))

    def input_names(self) -> tuple[str, ...]:
        """Returns the accessor paths of the checked inputs."""
        return self.arguments.names

    def output_names(self) -> tuple[str, ...]:
        """Returns the accessor paths of the differentiable outputs."""
        assert self.result is not None
        return tuple(map(self.result.names.__getitem__, self.differentiable))

    # -- derivatives by hand, which take and return trees of gradients and cotangents

    def gradients(self, result: Any) -> MaybeArrays:
        """Returns one gradient per checked leaf from what a hand-written vjp returned.

        That is one gradient per positional input, each of the structure of its input, or `None`.
        Raises `InputError` where their number or a structure is another one.
        """
        arguments = self.arguments
        args, kwargs = arguments.tree.rebuild(arguments.tree.leaves)
        if result is None:
            return (None,) * len(arguments.checked)
        per_input = result if isinstance(result, tuple | list) and len(args) != 1 else (result,)
        if isinstance(result, tuple) and len(args) == 1 and not isinstance(args[0], tuple):
            per_input = result
        if len(per_input) != len(args):
            raise InputError(
                f"the hand-written vjp returned {len(per_input)} "
                f"gradient{'s' * (len(per_input) != 1)} for {len(args)} positional "
                f"input{'s' * (len(args) != 1)}",
                "return a tuple with one gradient per positional input, None where there is none",
            )
        found: list[Any] = []
        for k, (argument, gradient) in enumerate(zip(args, per_input, strict=True)):
            found.extend(_matched(argument, gradient, f"inputs[{k}]", arguments.backend))
        found.extend([None] * len(flatten(kwargs, "kwargs").leaves))
        self.graded = tuple([k for k in arguments.numbers if found[k] is not None])
        if self.dropped is None:
            unchecked = set(range(len(found))) - {*arguments.checked, *arguments.numbers}
            self.dropped = tuple([k for k in sorted(unchecked) if self._moves(found[k])])
        return tuple(found[k] for k in arguments.checked)

    def _moves(self, gradient: Any) -> bool:
        """Returns whether a gradient is given and not zero."""
        if gradient is None:
            return False
        backend = self.arguments.backend
        read = backend.arrays.to_host if backend.owns(gradient) else np.asarray
        host = attempt(lambda: read(gradient), NotSupportedError)
        return host is None or bool(np.any(host))

    def gradient_tree(self, leaves: MaybeArrays) -> tuple[Any, ...]:
        """Returns one tree per positional input, of the arrays `leaves` at the checked leaves and
        `None` at the others.
        """
        tree = self.arguments.tree
        flat: list[Any] = [None] * len(tree.leaves)
        for k, leaf in zip(self.arguments.checked, leaves, strict=True):
            flat[k] = leaf
        args, _ = tree.rebuild(flat)
        return tuple(args)

    def cotangent(self, w: MaybeArrays) -> Any:
        """Returns the cotangents `w` of the differentiable outputs in the structure of the user's
        result, with `None` at its other leaves.
        """
        assert self.result is not None
        flat: list[Any] = [None] * len(self.result.leaves)
        for k, leaf in zip(self.differentiable, w, strict=True):
            flat[k] = leaf
        return self.result.rebuild(flat)

    def cotangent_leaves(self, tree: Any) -> MaybeArrays:
        """Returns one array per differentiable output, from a tree of the result's structure."""
        assert self.result is not None
        if tree is None:
            return (None,) * len(self.differentiable)
        result = self.result.rebuild(self.result.leaves)
        found = _matched(result, tree, "out", self.arguments.backend)
        return tuple(found[k] for k in self.differentiable)


@dataclass(eq=False)
class Recordable:
    """The user's function on leaves, for an engine that compiles some functions at every call.

    Once an evaluation has made the engine compile what it may have to compile again, the engine
    records the function (see `AutodiffBackend.recording`), and the recording takes its place.
    Compiling takes a hundred times as long as an evaluation of a small function. A recording is
    used only if it has the outputs of the function at x to the last bit, which it has not where the
    function is another one at its next call, or under a tracer. Calls for a recording are not
    counted.
    """

    calls: UserCalls
    function: Callable[..., Any]
    recording: FlatFunction | None = None
    """What takes the place of the function, where the engine has recorded it."""
    compiles: bool = False
    """Whether an evaluation has made the engine compile what it may have to compile again."""
    tried: bool = False
    """Whether the engine was asked to record the function."""

    def __call__(self, x: Arrays) -> Arrays:
        """Returns the outputs at the point `x`, and counts the call, as `UserCalls.evaluate`."""
        calls, backend = self.calls, self.calls.arguments.backend
        purpose = calls.counts.purpose
        if self.recording is not None and purpose not in UNRECORDED:
            calls.counts.evaluations += 1
            made: Arrays = calls.run(self.recording, x, (x,), {})
            return made
        compiled = backend.compilations()
        y = calls.evaluate(self.function, x)
        self.compiles = self.compiles or backend.compilations() != compiled
        if self.compiles and not self.tried and purpose not in DIFFERENTIATING:
            self.tried = True
            self.recording = attempt(lambda: self._recorded(x, y), AdjudgeError)
        return y

    def _recorded(self, x: Arrays, y: Arrays) -> FlatFunction | None:
        """Returns a recording of the function, whose outputs at `x` are `y`, or `None`."""
        arguments = self.calls.arguments
        backend = arguments.backend

        def outputs(x: Arrays) -> Arrays:
            """Returns what `UserCalls.evaluate` does, without counting the call."""
            args, kwargs = arguments.call(x)
            return self.calls.outputs(self.calls.run(self.function, x, args, kwargs))

        with running(Source.FUNCTION):
            recording = backend.recording(outputs, x)
            if recording is None:  # x may be traced, as the x of a second derivative is
                x = tuple(map(backend.arrays.copy, arguments.leaves))
                recording = backend.recording(outputs, x)
                if recording is None:
                    return None
                y = outputs(x)
            pairs = zip(y, recording(x), strict=True)
            to_host = backend.arrays.to_host
            same = all(np.array_equal(to_host(a), to_host(b), equal_nan=True) for a, b in pairs)
        return recording if same else None


def _without_memory(backend: AutodiffBackend, leaf: Any) -> Any:
    """Returns an array of the same shape and dtype that is one number, where there are such: no
    value of it is asked for.
    """
    one = backend.arrays.expanded(leaf) if backend.owns(leaf) else None
    return leaf if one is None else one


def _prefixes(tree: Tree, path: Path) -> list[str]:
    """Returns the names that a path may mean: the whole name of an output, the key or the field of
    one, or its place. The fields of a named tuple have an order, and no number in their names.
    """
    if not isinstance(path, int):
        return [path, f"out[{path!r}]", f"out.{path}"] if path else []
    fields = dict.fromkeys(re.findall(r"^out\.\w+", "\n".join(tree.names), re.MULTILINE))
    return [f"out[{path}]", *list(fields)[path : path + 1]]


def _chosen(tree: Tree, floating: Sequence[int], wanted: Sequence[Path]) -> tuple[int, ...]:
    """Returns those of the `floating` leaves of a result that are at the paths `wanted`, or below
    one. Raises `InputError` where there is none at a path.
    """
    chosen: set[int] = set()
    for path in wanted:
        prefixes = _prefixes(tree, path)
        found = [k for k in floating if any(is_at_or_below(tree.names[k], one) for one in prefixes)]
        if not found:
            there = ", ".join([tree.names[k] for k in floating])
            raise InputError(
                f"outputs={path!r} is no floating or complex output; there are: {there or 'none'}",
                "give the index of an output, or a path as listed",
            )
        chosen.update(found)
    return tuple(sorted(chosen))


def _matched(like: Any, tree: Any, name: str, engine: AutodiffBackend) -> list[Any]:
    """Returns the leaves of `tree`, which has the structure of `like` or is `None`.

    Of an array it may be a number of Python, or nested lists of numbers. Raises `InputError`, which
    says `name`, where it has another number of leaves.
    """
    expected = flatten(like, name)
    if tree is None:
        return [None] * len(expected.leaves)
    if not hasattr(tree, "shape") and is_array_like(like):
        tree = of_numbers(tree, (like,), engine)
    given = flatten(tree, name)
    if len(given.leaves) != len(expected.leaves):
        raise InputError(
            f"a hand-written derivative has {len(given.leaves)} leaves for {name}, "
            f"which has {len(expected.leaves)}",
            f"return the structure of {name}, None at leaves without a derivative",
        )
    return list(given.leaves)


def _hides_arrays(leaf: Any) -> bool:
    """Returns whether this, which is no array, is an object that nobody knows how to take apart,
    and holds arrays.

    Without it a wrong derivative of what it holds passes in silence.
    """
    if is_number(leaf) or isinstance(leaf, str | bytes) or callable(leaf):
        return False

    def held() -> bool:
        with running(Source.FUNCTION):  # its values may be what code of the user makes
            values = leaf.values() if isinstance(leaf, Mapping) else vars(leaf).values()
            return any(map(is_array_like, values))

    return bool(attempt(held))


def _described(name: str, leaf: Any) -> tuple[str, tuple[int, ...], str] | None:
    return (name, tuple(leaf.shape), str(leaf.dtype)) if is_array_like(leaf) else None


def _unstable(before: Signature, now: Signature, counts: Counts) -> UnstableOutputError:
    when = f"in evaluation {counts.evaluations}, {purpose_in_words(counts.purpose)}"
    for first, then in zip(before.arrays, now.arrays, strict=False):
        if first != then and first is not None and then is not None:
            return UnstableOutputError(
                f"{first[0]} was {first[2]} of shape {first[1]} and is {then[2]} of shape "
                f"{then[1]} {when}",
                "a derivative needs outputs of one shape and dtype near x: fix the size of the "
                "output, or move x away from where it changes",
            )
    return UnstableOutputError(
        f"the structure of the output changed {when}",
        "return the same structure at every call",
    )
