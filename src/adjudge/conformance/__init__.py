"""The test suite that an adapter runs against itself.

In here: scenarios with closed-form derivatives and with wrong rules beside right ones, what is
asked of an engine's arrays and of its handling of global state, engines with one fault each,
and the kit that runs all of it.

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
