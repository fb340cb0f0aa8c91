"""The capabilities that an engine may lack, and how the kit finds out whether it does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from adjudge.conformance import derivatives
from adjudge.conformance.scenario import Scenario
from adjudge.conformance.subject import ConformanceError, Subject
from adjudge.errors import NotSupportedError

DERIVATIVES = {
    "jvp": "forward mode",
    "RR": "second order: the vjp of vjp_map",
    "FR": "second order: the jvp of vjp_map",
    "RF": "second order: the vjp of jvp_map",
    "FF": "second order: the jvp of jvp_map",
    "vmap": "batching",
    "compile": "compiled functions",
}
"""Derivatives. An engine lacks one where it raises `NotSupportedError`, and no other error."""

FUNCTIONS = {
    "float64": "double precision",
    "complex": "complex arrays and their derivatives",
    "promotion": "arithmetic of a real array with a complex one, and its derivatives",
    "linalg": "solve, inv and cholesky of the namespace, and their derivatives",
    "indexing": "take and slices, and their derivatives",
    "integer inputs": "integer and boolean arrays among the inputs",
    "place": "several devices, or arrays that are moved between them",
}
"""What a function may need. An engine lacks it where it raises any error."""

CAPABILITIES = {**DERIVATIVES, **FUNCTIONS}
MODES = {"jvp": "F", "vmap": "F", "compile": "F"}
"""The mode of the scenarios on which a derivative is tried, where its name is not a mode."""
BY_HAND = ("FR", "RF", "FF", "vmap", "compile")
"""What derivatives by hand never have, and an array namespace is not asked for."""


class OtherError(ConformanceError):
    """An engine that says by another error than `NotSupportedError` that it lacks something."""


def missing(subject: Subject, name: str, scenarios: Sequence[Scenario]) -> Exception | None:
    """Returns why the engine lacks the capability; `None` where it has it.

    Raises `ConformanceError` where the engine has it and it is wrong, and where another error than
    the right one says that it is missing.
    """
    try:
        _tried(subject, name, scenarios)
    except ConformanceError:
        raise
    except NotSupportedError as error:
        return error
    except Exception as error:
        if name in FUNCTIONS:
            return error
        raise OtherError(
            f"{name} ({CAPABILITIES[name]}) raises {type(error).__name__}: {_first_line(error)}",
            "raise self.lacks(...), which is a NotSupportedError, where the engine has it not, "
            "or mend it",
        ) from error
    return None


def _tried(subject: Subject, name: str, scenarios: Sequence[Scenario]) -> None:
    scenario = _first(name, scenarios)
    if name == "float64":
        if "float64" not in subject.dtypes:
            raise subject.backend.lacks("float64", "dtypes() does not name it")
        return
    if name == "place":
        backend = subject.backend
        backend.arrays.place(
            backend.arrays.make(np.ones(1), subject.dtypes[0]), backend.arrays.devices()[0]
        )
        return
    dtype = subject.dtypes_of(scenario)[0]
    if name == "jvp":
        derivatives.jvp(subject, scenario, dtype)
    elif name in ("RR", "FR", "RF", "FF"):
        derivatives.second_order(subject, scenario, dtype, name)
    elif name == "vmap":
        derivatives.batched(subject, scenario, dtype)
    elif name == "compile":
        derivatives.compiled(subject, scenario, dtype)
    else:
        derivatives.vjp(subject, scenario, dtype)


def _first(name: str, scenarios: Sequence[Scenario]) -> Scenario:
    """Returns the first scenario that needs the capability, or that has the derivative."""
    if name in FUNCTIONS:
        return next((s for s in scenarios if name in s.needs), scenarios[0])
    mode = MODES.get(name, name)
    return next((s for s in scenarios if mode in s.modes and not s.needs), scenarios[0])


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]


def present(subject: Subject, name: str, scenarios: Sequence[Scenario]) -> None:
    """Checks that the engine has the capability. Raises `ConformanceError` with what to do."""
    error = missing(subject, name, scenarios)
    subject.comparisons += 1
    if error is not None:
        raise ConformanceError(
            f"{subject.backend.name} lacks {name} ({CAPABILITIES[name]}): {_first_line(error)}",
            f"give the adapter what is missing, or say so: excused={{{name!r}: 'the reason'}}",
        ) from error


def truly_missing(subject: Subject, name: str, scenarios: Sequence[Scenario]) -> None:
    """Checks that the excuse holds. Raises `ConformanceError` where the engine has it after all."""
    try:
        error = missing(subject, name, scenarios)
    except ConformanceError:
        if name in DERIVATIVES:
            raise
        return  # a function of the namespace that is wrong where nobody relies on it
    subject.comparisons += 1
    if error is None:
        raise ConformanceError(
            f"{subject.backend.name} is excused from {name} ({subject.excused[name]}), "
            "but it works",
            f"remove the excuse {name!r}",
        )
