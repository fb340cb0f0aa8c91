"""Where a derivative is wrong, which mistake is likely, and all of that in words.

Its modules, each of which may import those above it:

- `group_testing`: which of many candidates are wrong, from few measurements.
- `locate`: the wrong entries behind a projection that failed.
- `mistakes`: the likely mistake, from two derivatives side by side.
- `sentences`: the sentence of every situation that a finding may be about, and of every remedy.
- `tables`: compositions of modes as words, which rule their verdicts accuse, and the tables of
  outcomes by mode and by point.
- `report`: the report of a check.
- `reproduce`: a script that repeats a check bit by bit.

Invariant: what is decided was decided below; this room turns findings into sentences and never
the other way round.
"""

from adjudge.report.locate import Located, locate_entries
from adjudge.report.mistakes import likely_mistake
from adjudge.report.report import GradcheckError, Provenance, Report, StageCount
from adjudge.report.reproduce import reproduction
from adjudge.report.sentences import said, text_of, told_apart, why_not_in_double, why_silent
from adjudge.report.tables import combined, place, table_of

__all__ = [
    "GradcheckError",
    "Located",
    "Provenance",
    "Report",
    "StageCount",
    "combined",
    "likely_mistake",
    "locate_entries",
    "place",
    "reproduction",
    "said",
    "table_of",
    "text_of",
    "told_apart",
    "why_not_in_double",
    "why_silent",
]
