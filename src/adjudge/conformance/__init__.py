"""The test suite that an adapter runs against itself.

Its modules, each of which may import those above it:

- `scenario`: a function with its derivatives in closed form and with wrong rules, as data.
- `closed_forms`: closed forms on the host, placed on an engine, and planted in one.
- `subject`: the backend under test, a scenario at a point of it, and counted comparisons.
- `faults`: engines with one planted fault, and engines with the required derivative alone.
- `elementary`: scenarios that need little: sums, products, sines and exponentials.
- `shapes`: scenarios that move entries about: reductions, indexing, shapes.
- `linear`: scenarios of linear algebra and of complex functions.
- `arrays`: what is asked of an engine's arrays.
- `environment`: what is asked of its environment: global state is restored.
- `derivatives`: what is asked of its derivatives.
- `capabilities`: what an engine may lack, and whether it does.
- `verdicts`: what the checker says of right and of wrong derivatives on this engine.
- `kit`: every check by a name, and all of them together.

Invariant: an adapter is tested by scenarios, which are data; it passes only if it is right and
also catches every wrong rule.
"""

from adjudge.conformance.capabilities import CAPABILITIES
from adjudge.conformance.faults import FAULTS, FaultyBackend, PrimitiveBackend
from adjudge.conformance.kit import SCENARIOS, Check, Summary, assert_conforms, checks
from adjudge.conformance.scenario import Scenario, WrongRule
from adjudge.conformance.subject import ConformanceError

__all__ = [
    "CAPABILITIES",
    "FAULTS",
    "SCENARIOS",
    "Check",
    "ConformanceError",
    "FaultyBackend",
    "PrimitiveBackend",
    "Scenario",
    "Summary",
    "WrongRule",
    "assert_conforms",
    "checks",
]
