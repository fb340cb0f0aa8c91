"""Many checks in one run: where they are found, who judges them, and what is said of them all.

Its modules, each of which may import those above it:

- `results`: what came of one case, and of a run; both as data, which files hold; two runs side by
  side, and a case that is repeated.
- `collect`: the cases that Python files, folders and modules declare.
- `judge`: one case judged, in whichever process or thread that happens.
- `suite`: the verb `run`, over processes of its own or an executor of the caller.
- `known`: failures that are known, with a reason and a date until which they may last.
- `formats`: a run as JUnit's XML, and as annotations of GitHub.
- `page`: a run as one page of HTML, with its template, its style and its script.

Invariant: each case has exactly one result, whatever it did to its process, and neither its
verdict nor its seed depends on the order of the cases or on who judges them. The room is not
called run, since a module of that name would hide the function `adjudge.run`.
"""

from adjudge.suites.collect import Collection, Declared, Uncollected, collect
from adjudge.suites.formats import github, junit
from adjudge.suites.judge import what_was_raised
from adjudge.suites.known import Known, outlived, read_known
from adjudge.suites.page import page, ready_for_page
from adjudge.suites.results import (
    Change,
    Ending,
    Place,
    Result,
    RunReport,
    changes,
    read_run,
    repeated,
    try_to_write,
    visible,
)
from adjudge.suites.suite import run

__all__ = [
    "Change",
    "Collection",
    "Declared",
    "Ending",
    "Known",
    "Place",
    "Result",
    "RunReport",
    "Uncollected",
    "changes",
    "collect",
    "github",
    "junit",
    "outlived",
    "page",
    "read_known",
    "read_run",
    "ready_for_page",
    "repeated",
    "run",
    "try_to_write",
    "visible",
    "what_was_raised",
]
