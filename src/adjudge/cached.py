"""A function that does not move because it is cached: the same array for different inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from adjudge.compare import Tally
from adjudge.findings import Finding, Status
from adjudge.numeric import column
from adjudge.table import Table

SAME = (
    "the function returned the very same array for two different inputs: is it cached "
    "(lru_cache, memo by id)?"
)
STALE = (
    "the function returned the values of another input, and does not while every input is kept "
    "alive: is it cached by id?"
)


def caching(table: Table, tally: Tally) -> str | None:
    """What shows that f stands still in `tally` by a cache alone; `None` where nothing does.

    Two evaluations at points that are both alive, so that neither takes the other's `id`; where
    they give two objects, four more: differences with and without earlier points kept alive.
    """
    problem, failure = table.problem, table.failures.get(tally.mode)
    others = (*tally.wrong, *tally.open)
    stands = bool(others) and all(entry.reference == 0.0 for entry in others)
    if problem.tail or not (tally.still or stands):
        return None
    everything = slice(0, problem.X.size)
    tangent = (
        next(table.probes.tangents(problem.origin, everything))
        if failure is None
        else failure.tangent
    )
    if tally.still:
        problem.counts.doing = "at x and beside it, to tell a cache"
        x, there = problem.point(), problem.point(problem.origin + tangent.vector * tangent.length)
        before, after = problem.evaluate(x), problem.evaluate(there)
        if any(one is two for one, two in zip(before, after, strict=True)):
            return SAME
    plain = column(problem, table.base, tangent, None).estimate.value
    with problem.counts.keeping():
        alive = column(problem, table.base, tangent, None).estimate.value
    return STALE if not plain.any() and alive.any() else None


def opened(findings: Sequence[Finding], tally: Tally, sentence: str) -> list[Finding]:
    """`findings` left open, since the comparison was with a cache: all of them where values were
    stale, those about what does not move where one array came back; `tally` accordingly.
    """
    still = {Status.SPURIOUS} if sentence is SAME else set(Status)
    if still >= {f.status for f in findings}:
        tally.undecided, tally.failed = tally.undecided + tally.failed, 0
    return [
        replace(
            finding,
            status=Status.SPURIOUS,
            open=True,
            text=finding.text if sentence in finding.text else f"{finding.text}\n  {sentence}",
        )
        if finding.status in still
        else finding
        for finding in findings
    ]
