"""A test suite for adapters: scenarios with closed-form derivatives, wrong twins, and faults."""

from adjudge.conformance.capabilities import CAPABILITIES as CAPABILITIES
from adjudge.conformance.faults import FAULTS as FAULTS
from adjudge.conformance.faults import FaultyBackend as FaultyBackend
from adjudge.conformance.kit import SCENARIOS as SCENARIOS
from adjudge.conformance.kit import Check as Check
from adjudge.conformance.kit import Summary as Summary
from adjudge.conformance.kit import assert_conforms as assert_conforms
from adjudge.conformance.kit import checks as checks
from adjudge.conformance.primitive import PrimitiveBackend as PrimitiveBackend
from adjudge.conformance.scenario import Scenario as Scenario
from adjudge.conformance.scenario import Twin as Twin
from adjudge.conformance.subject import ConformanceError as ConformanceError
