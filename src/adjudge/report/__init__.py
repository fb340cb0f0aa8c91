"""Where a derivative is wrong, which mistake is likely, and all of that in words.

Its modules, each of which may import those above it:

- `locate`: the wrong entries behind a projection that failed, by group testing.
- `patterns`: what the mistakes that people make turn the right gradient into.
- `mistakes`: the likely mistake of a few entries, from two derivatives side by side.
- `likely`: the likely mistake, from all entries of a small gradient and from sums of a large one.
- `sentences`: the sentence of every situation that a finding may be about, and of every remedy.
- `pictures`: the error against the step and by entry, drawn as SVG.
- `report`: the report of a check, with the tables of outcomes by mode and by point, which rule
  they accuse, and who is told of every report.
- `reproduce`: a script that repeats a check bit by bit.

Invariant: what is decided was decided below; this room turns findings into sentences and never
the other way round.
"""

from adjudge.report.likely import LikelyMistakes
from adjudge.report.locate import Located, SearchWork, locate_entries
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
    "LikelyMistakes",
    "Located",
    "Provenance",
    "Report",
    "SearchWork",
    "StageCount",
    "combined",
    "how_often",
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
