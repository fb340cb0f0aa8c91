"""adjudge judges automatic differentiation: are these the derivatives of that function?"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any  # noqa: TID251 names that are imported late have types

from adjudge import reference as reference
from adjudge._version import __version__ as __version__
from adjudge.backend import AutodiffBackend as AutodiffBackend
from adjudge.byhand import ByHand as ByHand
from adjudge.case import Case as Case
from adjudge.check import examine as examine
from adjudge.check import gradcheck as gradcheck
from adjudge.check import gradgradcheck as gradgradcheck
from adjudge.errors import AdjudgeError as AdjudgeError
from adjudge.errors import BackendError as BackendError
from adjudge.errors import InputError as InputError
from adjudge.errors import NotSupportedError as NotSupportedError
from adjudge.errors import UnstableOutputError as UnstableOutputError
from adjudge.findings import Finding as Finding
from adjudge.findings import Status as Status
from adjudge.findings import Verdict as Verdict
from adjudge.report import GradcheckError as GradcheckError
from adjudge.report import Report as Report
from adjudge.reproduce import reproduction as reproduction
from adjudge.special import SpecialPoint as SpecialPoint
from adjudge.special import special_points as special_points

if TYPE_CHECKING:
    from adjudge.cross import crosscheck as crosscheck
    from adjudge.crossreport import CrosscheckError as CrosscheckError
    from adjudge.crossreport import CrossReport as CrossReport
    from adjudge.crossreport import Divergence as Divergence
    from adjudge.crossreport import crosstable as crosstable

_LATER = {
    "crosscheck": "cross",
    "CrosscheckError": "crossreport",
    "CrossReport": "crossreport",
    "Divergence": "crossreport",
    "crosstable": "crossreport",
}
"""Names whose modules are imported when they are asked for: most programs do without."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'adjudge' has no attribute {name!r}")
    return getattr(importlib.import_module(f"adjudge.{_LATER[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
