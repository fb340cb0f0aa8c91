"""What must hold of a derivative without any finite difference.

In here: linearity of the vjp and of the jvp, undefined cotangents and tangents, batching,
purity and repeatability, shapes, dtypes, devices and layouts, symmetry of second derivatives,
sparsity patterns, and the derivative of a low precision against that in double.

Invariant: a property is judged from values of the function and its derivatives alone, and
answers with findings.
"""

from adjudge.properties import pullbacks, pushforwards
from adjudge.properties.identities import Identities, again, only
from adjudge.properties.low_precision import Transport, transport
from adjudge.properties.purity import caching, opened
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
    "opened",
    "pullbacks",
    "pushforwards",
    "symmetric",
    "transport",
]
