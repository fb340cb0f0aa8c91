"""Where a derivative is wrong, which mistake is likely, and all of that in words.

In here: the search for the wrong entries behind a failed projection (group testing), the likely
mistake from two derivatives side by side, the report of a check, the words for compositions of
modes, and the script that repeats a check.

Invariant: what is decided was decided below; this room turns findings into sentences and never
the other way round.
"""

from adjudge.report.locate import Traced, localise
from adjudge.report.mistakes import likely_mistake
from adjudge.report.modes import asked_for, combined, place, table_of
from adjudge.report.report import (
    GradcheckError,
    Provenance,
    Report,
    findings_of,
    identity_findings,
    mode_verdict,
)
from adjudge.report.reproduce import reproduction

__all__ = [
    "GradcheckError",
    "Provenance",
    "Report",
    "Traced",
    "asked_for",
    "combined",
    "findings_of",
    "identity_findings",
    "likely_mistake",
    "localise",
    "mode_verdict",
    "place",
    "reproduction",
    "table_of",
]
