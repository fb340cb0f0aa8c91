"""The checker on this backend: right derivatives pass, wrong ones fail."""

from __future__ import annotations

import numpy as np

from adjudge.conformance.closed_forms import ClosedForms, Hosts, Placed, PlantedBackend, precise
from adjudge.conformance.faults import (
    FAULTS,
    FaultyBackend,
    PrimitiveBackend,
    elsewhere,
    write,
)
from adjudge.conformance.scenario import Scenario, WrongRule
from adjudge.conformance.subject import OTHER, ConformanceError, Point, Subject
from adjudge.engine import AutodiffBackend
from adjudge.errors import NotSupportedError
from adjudge.findings import Status, Verdict
from adjudge.report import Report
from adjudge.verbs import examine

SEED = 5


def right(subject: Subject, scenario: Scenario, dtype: str, modes: tuple[str, ...]) -> None:
    """Checks that the scenario passes in these modes."""
    placed = Placed(scenario, subject.backend, dtype)
    function = placed.by_hand() if subject.plain else placed.function
    report = examine(function, placed.inputs, backend=subject.backend, modes=modes, seed=SEED)
    subject.comparisons += report.counts["comparisons"]
    if report.verdict is not Verdict.PASS:
        raise ConformanceError(
            f"{_at(scenario, dtype)}: the check of right derivatives is {report.verdict}",
            f"see the report:\n{report}",
        )


def wrong_rule(subject: Subject, scenario: Scenario, dtype: str, wrong: WrongRule) -> None:
    """Checks that the scenario fails where wrong derivatives are planted in the engine."""
    placed = Placed(scenario, subject.backend, dtype)
    planted = PlantedBackend(subject.backend, ClosedForms(scenario, wrong))
    report = examine(
        placed.by_hand(wrong) if subject.plain else placed.function,
        placed.inputs,
        backend=subject.backend if subject.plain else planted,
        modes=("R", "RR") if wrong.mode == "RR" else None,
        check_backward_ad=wrong.mode != "F",
        check_forward_ad=wrong.mode == "F",
        seed=SEED,
        blame=False,
    )
    subject.comparisons += report.counts["comparisons"]
    if report.verdict is not Verdict.FAIL or report.modes[wrong.mode] is not Verdict.FAIL:
        raise ConformanceError(
            f"{_at(scenario, dtype)}: wrong derivatives ({wrong.name}) are not seen to fail, the "
            f"check of mode {wrong.mode} is {report.modes[wrong.mode]}",
            f"what to_host, from_host or the values of f lose hides them; the report:\n{report}",
        )


def faulty(subject: Subject, scenario: Scenario, dtype: str, fault: str) -> None:
    """Checks that the scenario fails on the engine with this fault.

    Raises `ConformanceError` where it does not, and where the fault should apply to it and does
    not.
    """
    placed = Placed(scenario, subject.backend, dtype)
    try:
        report = examine(
            placed.function,
            placed.inputs,
            backend=FaultyBackend(engine_of(subject, scenario), fault),
            check_forward_ad=forward_too(subject, scenario, fault),
            seed=SEED,
            blame=False,
        )
    except Exception:
        if fault != "writes into x":
            raise
        subject.comparisons += 1  # the engine itself notices that, at the next pullback
        return
    subject.comparisons += report.counts["comparisons"]
    _must_fail(report, scenario, dtype, fault)


def _must_fail(report: Report, scenario: Scenario, dtype: str, fault: str) -> None:
    numbers = FAULTS[fault].change is not None
    passed = [mode for mode, found in report.modes.items() if found is not Verdict.FAIL and numbers]
    if report.verdict is not Verdict.FAIL or passed:
        raise ConformanceError(
            f"{_at(scenario, dtype)}: an engine with the fault '{fault}' is not seen to fail, "
            f"its modes are {', '.join(f'{m}: {v}' for m, v in report.modes.items())}",
            f"what info, to_host, from_host or owns lose hides it; the report:\n{report}",
        )
    named = (Status.WRONG_DEVICE, Status.WRONG_DTYPE, Status.WRONG_SHAPE)
    status = FAULTS[fault].status
    if status in named and status not in {finding.status for finding in report.findings}:
        raise ConformanceError(
            f"{_at(scenario, dtype)}: the fault '{fault}' is not reported as {status}",
            f"info() must tell arrays apart; the report:\n{report}",
        )


def engine_of(subject: Subject, scenario: Scenario) -> AutodiffBackend:
    """Returns the engine itself, or the closed forms on its arrays where it has no derivatives."""
    if subject.plain:
        return PlantedBackend(subject.backend, ClosedForms(scenario))
    return subject.backend


def forward_too(subject: Subject, scenario: Scenario, fault: str) -> bool:
    """Returns whether the engine has forward mode, and the fault surely changes its numbers."""
    # f: R^n -> C has real gradients and complex tangents, f: C^n -> R the other way round
    shaped = fault in ("conjugate", "transpose")
    return FAULTS[fault].change is not None and not shaped and "F" in subject.modes_of(scenario)


def applicable(subject: Subject, scenario: Scenario, dtype: str, fault: str) -> bool:
    """Returns whether the fault does anything to the gradients of the scenario on this engine."""
    closed = ClosedForms(scenario)
    if not FAULTS[fault].applies(_gradients(closed)):
        return False
    if fault == "wrong dtype":
        found = {OTHER[precise(dtype, host)] for host in closed.inputs}
        return found <= set(subject.dtypes)
    if fault == "wrong device":
        return _second_device(subject, dtype)
    if fault.startswith("writes into"):
        array = subject.arrays.make(np.ones(2), subject.dtypes[0])
        with subject.backend.environment.isolation([array]):
            used = array * array  # an engine may refuse to write into what it has a use for
            return write(subject.arrays, array) and used is not array
    return True


def _second_device(subject: Subject, dtype: str) -> bool:
    backend = subject.backend
    if len(backend.arrays.devices()) < 2:
        return False
    try:
        elsewhere(backend, backend.arrays.make(np.ones(2), dtype), backend.arrays.devices())
    except NotSupportedError:
        return False
    return True


def _gradients(closed: ClosedForms) -> Hosts:
    random = np.random.default_rng(SEED)
    w = [
        random.standard_normal(y.shape)
        + (1j * random.standard_normal(y.shape) if y.dtype.kind == "c" else 0.0)
        for y in closed.value(closed.inputs)
    ]
    return [np.asarray(g) for g in closed.vjp(closed.inputs, w) if g is not None]


def primitive(subject: Subject, scenario: Scenario, dtype: str) -> None:
    """Checks that the required methods alone give reverse mode, and no forward mode."""
    placed = Placed(scenario, subject.backend, dtype)
    engine = PrimitiveBackend(engine_of(subject, scenario))
    report = examine(placed.function, placed.inputs, backend=engine, modes=("R", "F"), seed=SEED)
    subject.comparisons += report.counts["comparisons"]
    subject.equal(
        f"{_at(scenario, dtype)}: what the required methods alone give",
        dict(report.modes), {"R": Verdict.PASS, "F": Status.UNSUPPORTED},
        f"vjp, xp and owns must be enough for reverse mode; the report:\n{report}",
    )  # fmt: skip


def unsupported(subject: Subject, scenario: Scenario, dtype: str, mode: str) -> None:
    """Checks that a mode that the engine lacks is UNSUPPORTED in a report, and no error or PASS."""
    p = Point(subject, scenario, dtype)
    report = examine(
        p.placed.function, p.placed.inputs, backend=engine_of(subject, scenario),
        modes=("R", mode), seed=SEED,
    )  # fmt: skip
    subject.comparisons += report.counts["comparisons"]
    subject.equal(
        p.at(f"what a report says of {mode}, which is excused"), report.modes[mode],
        Status.UNSUPPORTED, "raise self.lacks(...) where the engine has no such derivative",
    )  # fmt: skip


def _at(scenario: Scenario, dtype: str) -> str:
    return f"{scenario.name} ({dtype})"
