"""Which step of a function has a wrong derivative, and in which line: `blame`; for a check that
fails, within a budget, `with_faults`; and in a program that is running, `spotcheck`.

Its modules, each of which may import those above it:

- `alone`: one step, judged at the values that it saw.
- `contributions`: what each step adds to the error of a derivative along one direction.
- `report`: the steps that were judged, which are at fault, and all of that in words.
- `steps`: `blame`, which steps are judged, which of those that are wrong are at fault, and which
  are right at kinks of their own, where the whole has another slope.
- `spot`: `spotcheck`, which calls in a running program are judged, and when.

Invariant: a step is judged at the values that it saw, by the check that judges functions, and is
accused only where it does not pass that.
"""

from adjudge.trace.report import BlameReport, Judged
from adjudge.trace.spot import Spotcheck, SpotcheckReport, WatchedRule, spotcheck
from adjudge.trace.steps import blame, blame_options, with_faults

__all__ = [
    "BlameReport",
    "Judged",
    "Spotcheck",
    "SpotcheckReport",
    "WatchedRule",
    "blame",
    "blame_options",
    "spotcheck",
    "with_faults",
]
