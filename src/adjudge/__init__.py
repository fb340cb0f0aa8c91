"""adjudge judges automatic differentiation: are these the derivatives of that function?"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any  # noqa: TID251 names that are imported late have types

from adjudge import reference
from adjudge._version import __version__
from adjudge.check import Options, SpecialPoint, special_points
from adjudge.engine import AutodiffBackend, ByHand
from adjudge.errors import (
    AdjudgeError,
    BackendError,
    InputError,
    NotSupportedError,
    UnstableOutputError,
)
from adjudge.findings import Finding, Status, Verdict
from adjudge.report import GradcheckError, Report, reproduction
from adjudge.verbs import Case, examine, gradcheck, gradgradcheck

if TYPE_CHECKING:
    from adjudge import cross
    from adjudge.cross import CrosscheckError, CrossReport, Divergence, crosstable
    from adjudge.suites import Result, RunReport, run
    from adjudge.trace import BlameReport, SpotcheckReport, blame, spotcheck

    # Imported by name, mypy takes it first for the module `adjudge.cross.crosscheck`.
    crosscheck = cross.crosscheck

__all__ = [
    "AdjudgeError",
    "AutodiffBackend",
    "BackendError",
    "BlameReport",
    "ByHand",
    "Case",
    "CrossReport",
    "CrosscheckError",
    "Divergence",
    "Finding",
    "GradcheckError",
    "InputError",
    "NotSupportedError",
    "Options",
    "Report",
    "Result",
    "RunReport",
    "SpecialPoint",
    "SpotcheckReport",
    "Status",
    "UnstableOutputError",
    "Verdict",
    "__version__",
    "blame",
    "crosscheck",
    "crosstable",
    "examine",
    "gradcheck",
    "gradgradcheck",
    "reference",
    "reproduction",
    "run",
    "special_points",
    "spotcheck",
]

_IMPORTED_LATE = {
    "adjudge.cross": ("CrossReport", "CrosscheckError", "Divergence", "crosscheck", "crosstable"),
    "adjudge.suites": ("Result", "RunReport", "run"),
    "adjudge.trace": ("BlameReport", "SpotcheckReport", "blame", "spotcheck"),
}
"""Names by their room, which is imported when one is asked for: most programs do without."""


def __getattr__(name: str) -> Any:
    for room, names in _IMPORTED_LATE.items():
        if name in names:
            return getattr(importlib.import_module(room), name)
    raise AttributeError(f"module 'adjudge' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *(name for names in _IMPORTED_LATE.values() for name in names)})
