"""Where a derivative is wrong, which mistake is likely, and all of that in words.

Its modules, each of which may import those above it:

- `locate`: the wrong entries behind a projection that failed, by group testing.
- `mistakes`: the likely mistake, from two derivatives side by side.
- `sentences`: the sentence of every situation that a finding may be about, and of every remedy.
- `pictures`: the error against the step and by entry, drawn as SVG.
- `report`: the report of a check, with the tables of outcomes by mode and by point, which rule
  they accuse, and who is told of every report.
- `reproduce`: a script that repeats a check bit by bit.

Invariant: what is decided was decided below; this room turns findings into sentences and never
the other way round.
"""

from adjudge.report.locate import Located, SearchWork, locate_entries
from adjudge.report.mistakes import likely_mistake
from adjudge.report.pictures import pictures
from adjudge.report.report import (
    PAIR_WORDS,
    GradcheckError,
    Provenance,
    Report,
    StageCount,
    combined,
    listening,
    place,
    table_of,
    tell,
)
from adjudge.report.reproduce import reproduction
from adjudge.report.sentences import (
    how_often,
    rule_of,
    said,
    short_place,
    text_of,
    told_apart,
    which_rule,
    why_not_in_double,
    why_silent,
)

__all__ = [
    "PAIR_WORDS",
    "GradcheckError",
    "Located",
    "Provenance",
    "Report",
    "SearchWork",
    "StageCount",
    "combined",
    "how_often",
    "likely_mistake",
    "listening",
    "locate_entries",
    "pictures",
    "place",
    "reproduction",
    "rule_of",
    "said",
    "short_place",
    "table_of",
    "tell",
    "text_of",
    "told_apart",
    "which_rule",
    "why_not_in_double",
    "why_silent",
]
