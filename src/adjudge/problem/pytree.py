"""Nested arguments and results as flat leaves with accessor paths, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import optree

from adjudge.engine import Expansion

Expand = Callable[[object], Expansion | None]


@dataclass(frozen=True)
class Tree:
    """A flattened pytree: leaves, their accessor paths, and the way back.

    `signature` is equal for two trees of the same structure.
    """

    leaves: tuple[Any, ...]
    names: tuple[str, ...]
    rebuild: Callable[[Sequence[Any]], Any]
    signature: tuple[object, ...]


def flatten(tree: Any, root: str, expand: Expand) -> Tree:
    """`tree` flattened by optree, and below its leaves by the engine's own registrations.

    `None` is a leaf, so that it can be passed through in any position. `root` is the code
    that the names begin with: `inputs`, `out`.
    """
    leaves: list[Any]
    accessors, leaves, spec = optree.tree_flatten_with_accessor(tree, none_is_leaf=True)
    parts = [
        _expanded(leaf, accessor.codify(root), expand)
        for accessor, leaf in zip(accessors, leaves, strict=True)
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


def _expanded(leaf: object, name: str, expand: Expand) -> Tree:
    expansion = expand(leaf)
    if expansion is None:
        return Tree((leaf,), (name,), lambda flat: flat[0], ())
    names = tuple(name + child for child in expansion.names)
    return Tree(expansion.children, names, expansion.rebuild, (type(leaf), names))
