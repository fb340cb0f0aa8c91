"""A check at one point, from the options to the report.

Global state is watched meanwhile and restored afterwards, also where the user's function raises.
"""

from __future__ import annotations

import ctypes
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from adjudge.check.double_precision import (
    Composition,
    DoublePrecision,
    double_precision_of,
)
from adjudge.check.mode_matrix import (
    Matrix,
    Way,
    joined,
    judge_composition,
    judged,
    provenance_of,
    rows_of,
    shares,
    ways_of,
)
from adjudge.check.one_problem import Judgement
from adjudge.check.options import Options, Settings, problem_of, settings_of
from adjudge.engine import Array, ByHand
from adjudge.findings import (
    AdditionOrder,
    Beyond,
    CoarseOperations,
    CoarseProducts,
    Detail,
    DrawsRandom,
    Entry,
    Finding,
    Outcome,
    Remedy,
    Setting,
    Status,
    Unrepeatable,
    WritesUnchecked,
    worst,
)
from adjudge.jacobian import ERRORS, Tally
from adjudge.problem import Counts, Leaf, Problem, observe, over_reverse
from adjudge.report import Report, StageCount, combined, place


def at_one_point(f: Callable[..., Any], inputs: Any, options: Options) -> Report:
    """The report on all compositions of modes that `options` ask for; `points` are left aside."""
    settings = settings_of(options)
    named, modes = settings.modes, settings.modes or list(settings.letters)
    problem = problem_of(f, inputs, options)
    # x is in double precision as a rule, and then there is nothing to ask
    double = None if problem.in_double is None else double_precision_of(problem, settings)
    matrix = Matrix(problem, settings, modes, double, reports_exceptions=bool(named))
    with surroundings(problem, highest=settings.highest_precision) as seen:
        matrix.fill(_other_ways(f, inputs, problem, options))
    outcomes = matrix.outcomes
    outcomes[0].findings += noticed(problem, seen, outcomes)
    if double is not None:
        outcomes[-1].findings += double.refusal(settings)
    rows = matrix.rows if named else {}
    return report_of(f, problem, settings, outcomes, _note_of(settings, double), rows)


def _note_of(settings: Settings, double: DoublePrecision | None) -> str:
    """How the check was made, for the line of provenance."""
    if settings.reference is not None:
        return f"judged by a reference ({settings.reference.name})"
    return "" if double is None else double.note


def _other_ways(
    f: Callable[..., Any], inputs: Any, problem: Problem, options: Options
) -> list[Way]:
    """Beside the engine's usual way: all the others where an order is given, and compiled."""
    ordered, compile = options.get("order") is not None, options.get("compile")
    ways = ways_of(problem) if ordered else []
    if compile or (compile is None and ordered and problem.backend.usually_compiled):
        compiled = problem_of(problem.backend.compile(f), inputs, options, problem.counts)
        ways.append(Way(problem.backend.compiled_way, compiled, bool(compile)))
    return ways


def of_second_order(
    f: Callable[..., Any],
    inputs: Any,
    options: Options,
    grad_outputs: Any = None,
    *,
    strided: bool = False,
) -> Report:
    """The report on the vjp of `f` as a function `(x, w) -> J*(x) w`, and on that vjp itself.

    `check_backward_ad` and `check_forward_ad` say in which modes it is differentiated. It is taken
    at the cotangents `grad_outputs`; random ones are not contiguous if `strided`.
    """
    settings = settings_of(options, second=True)
    problem = problem_of(f, inputs, options)
    double = double_precision_of(problem, settings)
    derive = partial(over_reverse, given=grad_outputs, seed=settings.seed, strided=strided)

    def provenance() -> str:
        return str(provenance_of(problem, settings, False))

    with surroundings(problem, highest=settings.highest_precision) as seen:
        next(shares(problem, [("R", settings)]))
        found = judge_composition(Composition(problem, "R", derive, double, provenance), settings)
        outcome = found.outcome
        if found.base is None:  # then the first derivative can be judged at least
            first = Composition(problem, "", lambda same: same, double, provenance)
            alone = judged(first, observe(problem), settings)
            outcome = joined([alone, outcome])
    outcome.findings += noticed(problem, seen, [outcome])
    if double is not None:
        outcome.findings += double.refusal(settings)
    return report_of(f, problem, settings, [outcome], _note_of(settings, double))


# -- global state around a check


@dataclass
class Surroundings:
    """A record of what happened to the global state during a check."""

    drawn: bool = False
    """Whether a global random state was advanced; known when the check is over."""


@contextmanager
def surroundings(problem: Problem, *, highest: bool = False) -> Iterator[Surroundings]:
    """Restores the global state afterwards, also when the user's function raises, and yields a
    record of what happened to it.

    With `highest` the engine computes in its highest precision within this context, instead of
    the user's.
    """
    backend, seen = problem.backend, Surroundings()
    python, host = random.getstate(), _HostGenerator()
    try:
        with (
            backend.environment.isolation(problem.x),
            backend.environment.highest_precision() if highest else nullcontext(),
        ):
            engine = backend.environment.random_state()
            try:
                yield seen
            finally:
                seen.drawn = backend.environment.random_state() != engine
    finally:
        if random.getstate() != python:
            seen.drawn = True
            random.setstate(python)
        if host.has_moved():
            seen.drawn = True
            host.put_back()


class _HostGenerator:
    """NumPy's global random generator, as it is when this is made.

    NumPy copies the state number by number, which takes as long as two evaluations of a small
    function. Whether a Mersenne Twister has changed is therefore seen in memory, where NumPy says
    that its numbers lie.
    """

    def __init__(self) -> None:
        """The state is copied."""
        self.state = _host_state()
        self.generator = np.random.get_bit_generator()  # type: ignore[attr-defined] # not in stubs
        self.address, self.words = 0, b""
        # of two normal numbers the second is made with the first, and drawn without a step
        if type(self.generator) is np.random.MT19937 and not self.state["has_gauss"]:
            self.address = self.generator.ctypes.state_address
            self.words = ctypes.string_at(self.address, TWISTER_BYTES)

    def has_moved(self) -> bool:
        """Returns whether anything was drawn since."""
        now = np.random.get_bit_generator()  # type: ignore[attr-defined] # not in the stubs
        if self.address and now is self.generator:
            return ctypes.string_at(self.address, TWISTER_BYTES) != self.words
        return not _same(self.state, _host_state())

    def put_back(self) -> None:
        """Sets the state to what it was."""
        np.random.set_state(self.state)  # noqa: NPY002 the global state is what is kept


def _host_state() -> dict[str, Any]:
    return dict(np.random.get_state(legacy=False))  # noqa: NPY002 the global state is watched


def _same(one: Any, two: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(_same(one[name], two[name]) for name in one)
    return bool(np.array_equal(one, two))


TWISTER_BYTES = 4 * (624 + 1)
"""The size of the state of a Mersenne Twister: 624 words and the place of the next one."""


def noticed(problem: Problem, seen: Surroundings, outcomes: Sequence[Judgement]) -> list[Finding]:
    """Returns notes on what the function did beside computing its value."""
    findings = [finding for outcome in outcomes for finding in outcome.findings]
    statuses = {finding.status for finding in findings}
    notes = []
    if seen.drawn:
        agreed = Status.NONDETERMINISTIC not in statuses
        remedy = None if agreed else Remedy.SEED_OR_PASS_RANDOM_NUMBERS
        notes.append(Finding(Status.DRAWS_RANDOM, "", "", DrawsRandom(agreed), remedy, note=True))
    notes += _coarse(problem, bool(statuses & _DIGITS))
    if any(isinstance(f.detail, Unrepeatable) and f.detail.rounding for f in findings):
        notes += _unrepeatable(problem)
    return notes + [
        Finding(Status.MUTATES_INPUT, "", name, WritesUnchecked(), note=True)
        for name in (problem.calls.mutated if problem.calls else ())
    ]


def _coarse(problem: Problem, asked: bool) -> Iterator[Finding]:
    """Yields a note on arithmetic that is narrower than the dtype, with the setting that makes it
    so. A setting that concerns some operations alone is noted only where `asked`.
    """
    backend = problem.backend
    setting_of = backend.environment.precision
    for leaf, array, setting in _set_by(problem, lambda array: setting_of(array).setting):
        info, eps = leaf.info, backend.effective_eps(array)
        detail: Detail
        if eps > backend.arrays.eps(array):
            detail = CoarseProducts(info.device, info.dtype, eps, setting)
            remedy = Remedy.USE_HIGHEST_PRECISION
        elif asked:
            detail = CoarseOperations(info.device, info.dtype, setting)
            remedy = Remedy.TRY_HIGHEST_PRECISION
        else:
            continue
        yield Finding(Status.IMPRECISE, "", leaf.name, detail, remedy, note=True)


def _unrepeatable(problem: Problem) -> Iterator[Finding]:
    """Yields a note that results on this device may differ from call to call, with the setting
    that makes them repeatable.
    """
    for leaf, _, setting in _set_by(problem, problem.backend.environment.determinism_setting):
        detail = AdditionOrder(leaf.info.device)
        remedy = Setting(setting)
        yield Finding(Status.NONDETERMINISTIC, "", leaf.name, detail, remedy, note=True)


def _set_by(
    problem: Problem, setting_of: Callable[[Array], str]
) -> Iterator[tuple[Leaf, Array, str]]:
    """Yields the first checked leaf for which the engine names a setting, its array, and the
    setting. Yields nothing where there is none.
    """
    for leaf, array in zip(problem.X.leaves, problem.x, strict=True):
        if setting := setting_of(array):
            yield leaf, array, setting
            return


_DIGITS = {
    *(Status.MISMATCH, Status.INACCURATE, Status.IMPRECISE, Status.UNRESOLVED),
    *(Status.INCONSISTENT, Status.REFERENCE),
}
"""The statuses that operations coarser than their dtype may lead to. Without this limit the note
on such settings would appear beside findings that they cannot explain. The choice is ours."""


# -- the report of all judgements


def _power(tallies: Sequence[Tally]) -> dict[float, float]:
    weighed, shown = 0, dict.fromkeys(ERRORS, 0)
    for tally in tallies:
        weighed += tally.weighed
        for error, detectable in zip(ERRORS, tally.detectable, strict=True):
            shown[error] += detectable
    return {error: n / weighed for error, n in shown.items()} if weighed else {}


def _stages(outcomes: Sequence[Judgement]) -> dict[str, StageCount]:
    """Returns, by stage, how many columns it was tried on and how many it decided."""
    reached: Counter[str] = Counter()
    decided: Counter[str] = Counter()
    for outcome in outcomes:
        reached.update(outcome.reached)
        decided.update(outcome.decided)
    return {stage: StageCount(reached[stage], decided[stage]) for stage in reached}


def stages_of(reports: Iterable[Report]) -> dict[str, StageCount]:
    """Returns the counts of all reports together."""
    together: dict[str, StageCount] = {}
    for report in reports:
        for stage, count in report.stages.items():
            before = together.get(stage, StageCount(0, 0))
            together[stage] = StageCount(*map(sum, zip(before, count, strict=True)))
    return together


def function_name(f: Callable[..., Any]) -> str:
    """Returns the name of `f` for one line: its qualified name, or that of its type."""
    if isinstance(f, ByHand):
        return repr(f)
    owner = getattr(f, "__self__", None)
    # An inherited class method is named by the class it is called on: Sign.apply, not
    # Function.apply.
    if isinstance(owner, type) and hasattr(f, "__name__"):
        return f"{owner.__qualname__}.{f.__name__}"
    return getattr(f, "__qualname__", None) or type(f).__qualname__


def _sorted(row: Mapping[str, Outcome]) -> dict[str, Outcome]:
    return {mode: row[mode] for mode in sorted(row, key=place)}


def report_of(
    f: Callable[..., Any],
    problem: Problem,
    settings: Settings,
    outcomes: Sequence[Judgement],
    note: str = "",
    ways: Mapping[str, Mapping[str, Outcome]] | None = None,
) -> Report:
    """Returns the report of judgements about one function. `note` says how they were made, and
    `ways` holds the outcomes by way and mode.
    """
    tallies = [tally for outcome in outcomes for tally in outcome.tallies]
    modes: dict[str, list[Outcome]] = {}
    for row in (ways or {"": rows_of(outcomes)}).values():
        for mode, verdict in row.items():
            modes.setdefault(mode, []).append(verdict)
    # The judgement of a second derivative repeats some findings about the first.
    findings: dict[Finding, None] = {}
    beyond: set[Beyond] = set()
    for outcome in outcomes:
        findings |= dict.fromkeys(outcome.findings)
        beyond |= outcome.beyond
    entries: list[Entry] = []
    for tally in tallies:
        entries += tally.wrong + tally.spurious + tally.detached + tally.missing + tally.open
    return Report(
        function=function_name(f),
        verdict=worst([outcome.verdict for outcome in outcomes]),
        modes={mode: combined(modes[mode]) for mode in sorted(modes, key=place)},
        ways={} if ways is None else {way: _sorted(row) for way, row in ways.items()},
        findings=tuple(findings),
        counts=_counts(problem.counts, outcomes, tallies),
        tolerance={
            "eps": settings.eps,
            "atol": settings.atol,
            "rtol": max([outcome.tolerance.relative for outcome in outcomes]),
            "resolution": max([outcome.tolerance.resolution for outcome in outcomes]),
        },
        resolution=max([tally.resolution for tally in tallies], default=0.0),
        power=_power(tallies),
        stages=_stages(outcomes),
        beyond=tuple([b for b in Beyond if b in beyond]) if beyond else (),
        provenance=provenance_of(problem, settings, True in [o.full for o in outcomes], note),
        entries=tuple(entries),
    )


def _counts(
    spent: Counts, outcomes: Sequence[Judgement], tallies: Sequence[Tally]
) -> dict[str, int]:
    """Returns what the report counts: the comparisons with what came of them, and the work."""
    compared = dict.fromkeys(("comparisons", "nonzero", "failed", "undecided"), 0)
    for tally in tallies:
        compared["comparisons"] += tally.compared
        compared["nonzero"] += tally.nonzero
        compared["failed"] += tally.failed
        compared["undecided"] += tally.undecided + tally.kinks
    return compared | {
        "identities": sum([outcome.identities for outcome in outcomes]),
        "evaluations": spent.evaluations,
        "vjps": spent.vjps,
        "jvps": spent.jvps,
        "probes": sum([outcome.probes for outcome in outcomes]),
    }
