"""What must hold of a derivative without any finite difference.

Its modules, each of which may import those above it:

- `purity`: repeatability: what two runs at one point may differ by, and functions that are
  cached.
- `identities`: the values, writes and dtypes of a function and its derivatives at x.
- `metadata`: shape, dtype, device and layout of derivatives.
- `pullbacks`: linearity of the vjp, undefined cotangents, batching.
- `pushforwards`: linearity of the jvp, undefined tangents, batching.
- `symmetry`: symmetry of second derivatives.
- `sparsity`: which blocks of the inputs move which outputs.
- `same_function`: whether a reference is the function that is checked.
- `low_precision`: the derivative of a low precision against that in double.

Invariant: a property is judged from values of the function and its derivatives alone, and
answers with findings.
"""

from adjudge.properties import pullbacks, pushforwards
from adjudge.properties.identities import Identities, again, only
from adjudge.properties.low_precision import Transport, transport
from adjudge.properties.purity import caching, only_cached, opened
from adjudge.properties.same_function import another
from adjudge.properties.sparsity import Structure
from adjudge.properties.symmetry import symmetric

__all__ = [
    "Identities",
    "Structure",
    "Transport",
    "again",
    "another",
    "caching",
    "only",
    "only_cached",
    "opened",
    "pullbacks",
    "pushforwards",
    "symmetric",
    "transport",
]
