"""What must hold of a derivative without any finite difference.

Its modules, each of which may import those above it:

- `purity`: two runs at x agree, nothing is written into inputs, functions that are cached, and
  whether a reference is the function that is checked.
- `linearity`: the vjp and the jvp as linear maps; undefined cotangents and tangents, batching;
  shape, dtype, device and layout of derivatives.
- `symmetry`: symmetry of second derivatives.
- `sparsity`: which blocks of the inputs move which outputs.
- `replayed`: f by exact replay, beside a derivative of low precision.
- `low_precision`: the derivative of a low precision against that in double, or by exact replay.

Invariant: a property is judged from values of the function and its derivatives alone, and
answers with findings.
"""

from adjudge.properties.linearity import Images, Pullbacks, Pushforwards
from adjudge.properties.low_precision import (
    LowPrecisionResult,
    compare_low_precision,
    projected_entry,
)
from adjudge.properties.purity import (
    Identities,
    another_function,
    detect_cache,
    evaluate_again,
    explained_by_cache,
    open_for_cache,
    restricted,
)
from adjudge.properties.replayed import replayed
from adjudge.properties.sparsity import SparsityPattern
from adjudge.properties.symmetry import asymmetries

__all__ = [
    "Identities",
    "Images",
    "LowPrecisionResult",
    "Pullbacks",
    "Pushforwards",
    "SparsityPattern",
    "another_function",
    "asymmetries",
    "compare_low_precision",
    "detect_cache",
    "evaluate_again",
    "explained_by_cache",
    "open_for_cache",
    "projected_entry",
    "replayed",
    "restricted",
]
