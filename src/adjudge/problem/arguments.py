"""The user's arguments as flat leaves: which are checked, which engine owns them, how to call f."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import optree

from adjudge.engine import (
    Arrays,
    AutodiffBackend,
    Expansion,
    backend_named,
    backend_of,
    common_backend,
    expand,
    replaced,
)
from adjudge.errors import (
    InputError,
    NotSupportedError,
    Source,
    UnknownFrameworkError,
    running,
)

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


def flatten(tree: Any, root: str, expand: Expand) -> Tree:
    """Returns `tree` flattened by optree, and below the leaves of that by `expand`.

    Args:
        tree: Nested containers of any kind that optree knows. `None` is a leaf, so that it can
            stand in any position.
        root: The name that the accessor paths begin with: `inputs`, `out`.
        expand: Returns the children of a node that only an engine knows, and `None` for others.
    """
    leaves: list[Any]
    accessors, leaves, spec = optree.tree_flatten_with_accessor(tree, none_is_leaf=True)
    own = [accessor.codify(root) for accessor in accessors]
    expansions = [expand(leaf) for leaf in leaves]
    if expansions.count(None) == len(leaves):  # as in most trees
        rebuild_spec = partial(optree.tree_unflatten, spec)
        return Tree(tuple(leaves), tuple(own), rebuild_spec, (spec,))
    parts = [
        _expanded(leaf, name, expansion)
        for leaf, name, expansion in zip(leaves, own, expansions, strict=True)
    ]
    counts = [len(part.leaves) for part in parts]

    def rebuild(flat: Sequence[Any]) -> Any:
        rebuilt, start = [], 0
        for part, count in zip(parts, counts, strict=True):
            rebuilt.append(part.rebuild(flat[start : start + count]))
            start += count
        return optree.tree_unflatten(spec, rebuilt)

    return Tree(
        tuple(leaf for part in parts for leaf in part.leaves),
        tuple(name for part in parts for name in part.names),
        rebuild,
        (spec, *(part.signature for part in parts)),
    )


def _expanded(leaf: object, name: str, expansion: Expansion | None) -> Tree:
    if expansion is None:
        return Tree((leaf,), (name,), lambda flat: flat[0], ())
    names = tuple(name + child for child in expansion.names)
    return Tree(expansion.children, names, expansion.rebuild, (type(leaf), names))


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

    @property
    def names(self) -> tuple[str, ...]:
        """The accessor paths of the checked leaves."""
        return tuple([self.tree.names[k] for k in self.checked])

    @property
    def leaves(self) -> Arrays:
        """The user's own checked arrays, which are read, and never written to or passed on."""
        return tuple([self.tree.leaves[k] for k in self.checked])

    def call(self, x: Arrays) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns `args, kwargs` with `x` in the checked places and new copies of other arrays."""
        return self.assemble(self.fill(x))

    def fill(self, x: Arrays) -> list[Any]:
        """Returns all leaves, with `x` in the checked places and new copies of other arrays."""
        leaves: list[Any] = list(self.tree.leaves)
        for k in self._unchecked:
            leaves[k] = self._fresh(leaves[k])
        for k, leaf in zip(self.checked, x, strict=True):
            leaves[k] = leaf
        return leaves

    def assemble(self, leaves: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns `args, kwargs` made of these leaves."""
        args, kwargs = self.tree.rebuild(leaves)
        return args, kwargs

    @cached_property
    def all_checked(self) -> bool:
        """Whether every leaf is checked, so that a point is all that a call needs."""
        return self.checked == tuple(range(len(self.tree.leaves)))

    @cached_property
    def _unchecked(self) -> list[int]:
        checked = set(self.checked)
        return [k for k in range(len(self.tree.leaves)) if k not in checked]

    def in_double(self) -> Arguments:
        """Returns the same arguments with every floating array of the engine in double precision.

        Raises what the engine raises where its device has no double precision.
        """
        backend = self.backend

        def wide(leaf: Any) -> Any:
            low = backend.owns(leaf) and backend.arrays.is_differentiable(leaf)
            return backend.arrays.widen(leaf) if low else leaf

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
            now, before = backend.arrays.to_host(now), backend.arrays.to_host(before)
        except NotSupportedError:
            # Arrays of a device that hold no values cannot be written to.
            return True
        return bool(np.array_equal(now, before, equal_nan=True))

    def _fresh(self, leaf: Any) -> Any:
        if isinstance(leaf, np.generic):
            return leaf
        if isinstance(leaf, np.ndarray):
            return leaf.copy(order="K")
        return self.backend.arrays.copy(leaf) if self.backend.owns(leaf) else leaf


def read_arguments(
    inputs: object,
    kwargs: Mapping[str, Any] | None = None,
    *,
    wrt: Path | Sequence[Path] | None = None,
    backend: str | AutodiffBackend | None = None,
    masked: bool | None = None,
    device: str | None = None,
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

    Raises:
        InputError: Nothing can be checked, or `wrt`, `device` or `backend` mean nothing here.
        BackendError: An array belongs to no engine that is known and installed, or checked arrays
            belong to two.
    """
    args = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
    tree = flatten((args, dict(kwargs or {})), "", expand)
    roots = {"[0]": "inputs", "[1]": "kwargs"}
    tree = replace(tree, names=tuple([roots[name[:3]] + name[3:] for name in tree.names]))
    given = backend_named(backend) if isinstance(backend, str) else backend
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
    checked = _selected(tree, owners, unknown, wrt)
    engine = common_backend([(tree.names[k], owners[k]) for k in checked])
    assert engine is not None  # _selected raised where nothing is checked
    if device is not None:
        tree = replace(tree, leaves=_moved(engine, tree, device))
    if masked:
        engine = replaced(engine, arrays=engine.arrays.stored_only())
    return Arguments(tree, checked, engine)


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
    tree: Tree,
    owners: Mapping[int, AutodiffBackend],
    unknown: Mapping[int, UnknownFrameworkError],
    wrt: Path | Sequence[Path] | None,
) -> tuple[int, ...]:
    """Returns the indices of the checked leaves: those that `wrt` names, else those marked for
    differentiation, else all floating and complex arrays.

    An array of an unknown framework is a constant where others are named or marked.
    """
    floating = [k for k, owner in owners.items() if owner.arrays.is_differentiable(tree.leaves[k])]
    if wrt is not None:
        return _resolved(tree, unknown, floating, wrt)
    wishes = {k: owners[k].requires_grad(tree.leaves[k]) for k in floating}
    if any(wishes.values()):
        return tuple([k for k in floating if wishes[k]])
    for error in unknown.values():
        raise error
    if not floating:
        kinds = ", ".join(
            f"{name}: {getattr(leaf, 'dtype', type(leaf).__name__)}"
            for name, leaf in zip(tree.names, tree.leaves, strict=True)
        )
        raise InputError(
            f"no input has a floating or complex array to check ({kinds or 'no inputs'})",
            "pass floating-point arrays; Python and NumPy scalars count as constants",
        )
    return tuple(floating)


def _resolved(
    tree: Tree,
    unknown: Mapping[int, UnknownFrameworkError],
    floating: Sequence[int],
    wrt: Path | Sequence[Path],
) -> tuple[int, ...]:
    paths = [wrt] if isinstance(wrt, int | str) else list(wrt)
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
            if k in unknown:
                raise unknown[k]
            kind = getattr(tree.leaves[k], "dtype", type(tree.leaves[k]).__name__)
            raise InputError(
                f"wrt={path!r} names {tree.names[k]}, which is {kind}",
                "only floating and complex arrays have derivatives",
            )
        chosen.update(usable)
    return tuple(sorted(chosen))
