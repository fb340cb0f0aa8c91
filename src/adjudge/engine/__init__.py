"""An automatic differentiation engine and its arrays.

Its modules, each of which may import those above it:

- `contract`: what an adapter implements: one engine, its derivatives and its arrays.
- `array_api`: an engine of arrays alone, whose derivatives are given by hand.
- `place`: host arrays copied onto an engine exactly.
- `registry`: which installed engine an array belongs to.
- `wrapper`: an engine that changes a part of another one.
- `by_hand`: derivatives written by hand as an engine.

Invariant: nothing in here knows of checking. A user's array is read and copied, never written
and never wrapped. Adapters import from this door and from `adjudge.errors`, and from nothing
else of the core.
"""

from adjudge.engine import registry
from adjudge.engine.array_api import PlainBackend
from adjudge.engine.by_hand import ByHand, FlatByHand, HandBackend
from adjudge.engine.contract import (
    UNDEFINED,
    Array,
    ArrayInfo,
    Arrays,
    AutodiffBackend,
    Expansion,
    FlatFunction,
    HostArray,
    MaybeArrays,
    Pullback,
)
from adjudge.engine.place import host_array, placed, placed_tree
from adjudge.engine.registry import (
    backend_named,
    backend_of,
    common_backend,
    entries,
    expand,
    is_array_like,
    names,
)
from adjudge.engine.wrapper import WrappedBackend

__all__ = [
    "UNDEFINED",
    "Array",
    "ArrayInfo",
    "Arrays",
    "AutodiffBackend",
    "ByHand",
    "Expansion",
    "FlatByHand",
    "FlatFunction",
    "HandBackend",
    "HostArray",
    "MaybeArrays",
    "PlainBackend",
    "Pullback",
    "WrappedBackend",
    "backend_named",
    "backend_of",
    "common_backend",
    "entries",
    "expand",
    "host_array",
    "is_array_like",
    "names",
    "placed",
    "placed_tree",
    "registry",
]
