"""An automatic differentiation engine and its arrays.

Its modules, each of which may import those above it:

- `trace`: what a function did at a point, as a straight-line program.
- `program`: the same in a vocabulary of operations that every engine shares, on the host.
- `contract`: what an adapter implements: an engine with its arrays and its environment; the
  wrapper that changes one of these of another engine; and what several adapters need: settings
  that are put back, layouts that are kept.
- `arrays`: an engine of arrays alone, whose derivatives are given by hand, and host arrays copied
  onto any engine exactly.
- `registry`: which installed engine an array belongs to.
- `jacobians`: gradients, Jacobians and Hessians, as optimisers take them, as vjps and jvps.
- `numpy_functions`: what functions of NumPy and SciPy mean in that vocabulary.
- `recording`: what a function of NumPy arrays does, in these words.
- `by_hand`: derivatives written by hand as an engine.

Invariant: nothing in here knows of checking. A user's array is read and copied, never written
and never wrapped. Adapters import from this door and from `adjudge.errors`, and from nothing
else of the core.
"""

from adjudge.engine import registry
from adjudge.engine.arrays import (
    ArraysByNumpy,
    PlainArrays,
    PlainBackend,
    host_array,
    is_number,
    of_numbers,
    placed,
    placed_tree,
)
from adjudge.engine.by_hand import ByHand, FlatByHand, HandBackend
from adjudge.engine.contract import (
    DENSE,
    UNDEFINED,
    Array,
    ArrayInfo,
    ArrayOperations,
    Arrays,
    AutodiffBackend,
    Environment,
    Expansion,
    FlatFunction,
    Functional,
    FunctionClass,
    HostArray,
    MaybeArrays,
    OtherDerivatives,
    Precision,
    Pullback,
    RecordingEnds,
    Refusals,
    Setting,
    WrappedBackend,
    memory_span,
    replaced,
    restored,
)
from adjudge.engine.jacobians import misfit
from adjudge.engine.program import (
    OPAQUE,
    OPERATIONS,
    SECTIONS,
    Definition,
    Operation,
    Program,
    ProgramBuilder,
    comparable,
    grouped,
    unseen,
    windows,
)
from adjudge.engine.registry import (
    PLAIN,
    backend_given,
    backend_named,
    backend_of,
    buffers_of,
    common_backend,
    entries,
    expand,
    functional_of,
    imported_backends,
    is_array_like,
    names,
    parts_of,
    require_no_class,
)
from adjudge.engine.trace import (
    INPUT,
    UNKNOWN,
    Evaluation,
    Hook,
    Operand,
    Place,
    Ref,
    Step,
    Trace,
    Value,
    Watcher,
    defined_at,
    innermost,
    place_of,
)
from adjudge.floats import EPS

__all__ = [
    "DENSE",
    "EPS",
    "INPUT",
    "OPAQUE",
    "OPERATIONS",
    "PLAIN",
    "SECTIONS",
    "UNDEFINED",
    "UNKNOWN",
    "Array",
    "ArrayInfo",
    "ArrayOperations",
    "Arrays",
    "ArraysByNumpy",
    "AutodiffBackend",
    "ByHand",
    "Definition",
    "Environment",
    "Evaluation",
    "Expansion",
    "FlatByHand",
    "FlatFunction",
    "FunctionClass",
    "Functional",
    "HandBackend",
    "Hook",
    "HostArray",
    "MaybeArrays",
    "Operand",
    "Operation",
    "OtherDerivatives",
    "Place",
    "PlainArrays",
    "PlainBackend",
    "Precision",
    "Program",
    "ProgramBuilder",
    "Pullback",
    "RecordingEnds",
    "Ref",
    "Refusals",
    "Setting",
    "Step",
    "Trace",
    "Value",
    "Watcher",
    "WrappedBackend",
    "backend_given",
    "backend_named",
    "backend_of",
    "buffers_of",
    "common_backend",
    "comparable",
    "defined_at",
    "entries",
    "expand",
    "functional_of",
    "grouped",
    "host_array",
    "imported_backends",
    "innermost",
    "is_array_like",
    "is_number",
    "memory_span",
    "misfit",
    "names",
    "of_numbers",
    "parts_of",
    "place_of",
    "placed",
    "placed_tree",
    "registry",
    "replaced",
    "require_no_class",
    "restored",
    "unseen",
    "windows",
]
