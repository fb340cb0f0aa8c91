"""Where a derivative is wrong, which mistake is likely, and all of that in words.

Its modules, each of which may import those above it:

- `group_testing`: which of many candidates are wrong, from few measurements.
- `locate`: the wrong entries behind a projection that failed.
- `mistake_patterns`: hypotheses about a wrong derivative: a factor, a sign, a transpose.
- `mistakes`: the likely mistake, from two derivatives side by side.
- `modes`: compositions of modes as words, and which rule their verdicts accuse.
- `text`: the table of several points.
- `report`: the report of a check and the sentences of its findings.
- `reproduce`: a script that repeats a check bit by bit.

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
