"""Which step of a function has a wrong derivative, and in which line: `blame`; and for
a check that fails, within a budget, `with_faults`.

Its modules, each of which may import those above it:

- `contributions`: what each step adds to the error of a derivative along one direction.
- `report`: the steps that were judged, which are at fault, and all of that in words.
- `steps`: `blame`, which steps are judged, and which of those that are wrong are at fault.

Invariant: a step is judged at the values that it saw, by the check that judges functions, and is
accused only where it does not pass that.
"""

from adjudge.trace.report import BlameReport, Judged
from adjudge.trace.steps import blame, blame_options, with_faults

__all__ = ["BlameReport", "Judged", "blame", "blame_options", "with_faults"]
