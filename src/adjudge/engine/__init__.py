"""An automatic differentiation engine and its arrays.

In here: the contract that an adapter implements, the wrapper that changes a part of an engine,
the engine of derivatives written by hand, arrays without derivatives, the registry of installed
engines, and the way of host arrays onto an engine. Adapters import from this door and from
`adjudge.errors`, and from nothing else.

Invariant: nothing in here knows of checking. A user's array is read and copied, never written
and never wrapped.
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
