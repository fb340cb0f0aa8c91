"""A check at one point, from the options to the report."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, Never, TypeAlias

from adjudge.check.double_precision import (
    PAST_CASTS,
    Composition,
    DoublePrecision,
    double_precision_of,
)
from adjudge.check.mode_matrix import (
    Matrix,
    Way,
    add_to_row,
    joined,
    judge_composition,
    judged,
    provenance_of,
    row_of,
    share_budget,
    ways_of,
)
from adjudge.check.one_problem import Judgement
from adjudge.check.options import Options, Settings, problem_of, settings_of
from adjudge.check.surroundings import judged_with_replay, noticed, surroundings
from adjudge.check.unchecked import Extend, with_all_inputs, with_flat_inputs
from adjudge.engine import Arrays, AutodiffBackend, ByHand
from adjudge.errors import NotSupportedError
from adjudge.findings import Beyond, Entry, Finding, Outcome, Pair, Verdict, worst
from adjudge.jacobian import ERRORS, Tally
from adjudge.problem import Problem, observe, over_reverse
from adjudge.report import Report, StageCount, place

Compile: TypeAlias = Callable[[AutodiffBackend], Callable[..., Any]]
"""Returns the function that is checked as an engine compiles it."""


def at_one_point(
    f: Callable[..., Any], inputs: Any, options: Options, compile: Compile | None = None
) -> Report:
    """The report on all compositions of modes that `options` ask for; `points` are left aside.

    `compile` may give at several points what was compiled once.
    """
    settings = settings_of(options)
    named = settings.modes

    def check(problem: Problem, extend: Extend) -> Report:
        def judge() -> tuple[list[Judgement], Matrix]:
            modes = named or list(settings.letters)
            if options.get("modes") is None and isinstance(f, ByHand):
                modes = _given_by_hand(f, problem, modes, ordered=named is not None)

            def filled(problem: Problem, options: Options) -> Matrix:
                # x is in double precision as a rule, and then there is nothing to ask
                double = None if problem.widened is None else double_precision_of(problem, settings)
                matrix = Matrix(problem, settings, modes, double, reports_exceptions=bool(named))
                compiled = compile or (lambda backend: backend.compile(f))
                matrix.fill(_other_ways(compiled, inputs, problem, extend, options))
                return matrix

            def alone(outputs: Sequence[str]) -> Matrix:
                own: Options = {**options, "outputs": list(outputs)}
                return filled(extend(problem_of(f, inputs, own, problem.counts)), own)

            matrix = filled(problem, options)
            # A rule by hand may need the cotangents of all outputs, and so may a reference.
            given = isinstance(f, ByHand) or settings.reference is not None
            if not given and settings.max_evaluations is None:
                matrix = matrix.with_each_precision(alone)
            return matrix.outcomes, matrix

        with surroundings(problem, f, highest=settings.highest_precision) as seen:
            outcomes, matrix = judged_with_replay(problem, settings.letters, seen, judge)
        outcomes[0].findings += noticed(problem, seen, outcomes)
        if matrix.double is not None:
            outcomes[-1].findings += matrix.double.refusal(settings)
        note = _note_of(settings, matrix.double, outcomes)
        report = report_of(f, problem, settings, outcomes, note, matrix.rows)
        return with_flat_inputs(report, problem, outcomes)

    return with_all_inputs(check, f, problem_of(f, inputs, options), options)


def _given_by_hand(
    f: ByHand, problem: Problem, modes: Sequence[str], *, ordered: bool
) -> Sequence[str]:
    """Returns these modes with those that what was given by hand asks for at x. A derivative that
    somebody wrote and nobody compares would pass unseen. With `ordered` an order named the modes.
    """
    if not f.as_matrices:
        if ordered:
            return modes
        own = modes if not f.only_forward else []
        return own if "F" in own or f.jvp is None else [*own, "F"]
    # the jvp is made of the gradient, and so are its derivatives
    own = [mode for mode in modes if mode == "F" or not mode.endswith("F")]
    return own if ordered else list(dict.fromkeys([*own, *_further(f, problem)]))


def _further(f: ByHand, problem: Problem) -> tuple[str, ...]:
    """Returns the compositions of modes that a Jacobian or a Hessian by hand asks for at x."""
    x = problem.point()
    calls = problem.calls
    assert calls is not None  # the problem is of first order
    args, kwargs = calls.arguments_for(x)
    with calls.call_context(x):
        return f.on(problem.backend).further(*args, **kwargs)


def _note_of(
    settings: Settings, double: DoublePrecision | None, outcomes: Sequence[Judgement]
) -> str:
    """How the check was made, for the line of provenance."""
    casts = any(map(attrgetter("past_casts"), outcomes))
    casts |= double is not None and double.judged_past_casts
    if settings.reference is not None:
        in_double = double if double is not None and double.refused is None else None
        precision = f" in {in_double.precision}" if in_double is not None else ""
        past = PAST_CASTS if casts else ""
        return f"judged by a reference ({settings.reference.name}){precision}{past}"
    if double is None:
        return f"formula judged{PAST_CASTS}" if casts else ""
    return double.note


def _other_ways(
    compile: Compile, inputs: Any, problem: Problem, extend: Extend, options: Options
) -> list[Way]:
    """Beside the engine's usual way: all the others where an order is given, and compiled."""
    ordered, asked = options.get("order") is not None, options.get("compile")
    ways = ways_of(problem) if ordered else []
    if asked or (asked is None and ordered and problem.backend.usually_compiled):
        try:
            compiled = compile(problem.backend)
        except NotSupportedError as error:
            there = _lacking(problem, error)
        else:
            there = extend(problem_of(compiled, inputs, options, problem.counts))
        ways.append(Way(problem.backend.compiled_way, there, bool(asked)))
    return ways


def _lacking(problem: Problem, error: NotSupportedError) -> Problem:
    """Returns the same problem in a way that the engine lacks: it is told of each mode, and the
    usual way is judged as ever.
    """

    def raising(_: Arrays) -> Never:
        raise error

    return replace(problem, function=raising, evaluate=raising)


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
    derive = partial(over_reverse, given=grad_outputs, seed=settings.seed, strided=strided)

    def check(problem: Problem, _: Extend) -> Report:
        def provenance() -> str:
            return str(provenance_of(problem, settings, False))

        def judge() -> tuple[list[Judgement], DoublePrecision | None]:
            double = double_precision_of(problem, settings)
            share_budget(problem, [("R", settings)], 0)
            taken = Composition(problem, "R", derive, double, provenance)
            outcome, base = judge_composition(taken, settings)
            if base is None:  # then the first derivative can be judged at least
                first = Composition(problem, "", lambda same: same, double, provenance)
                alone = judged(first, observe(problem), settings)
                outcome = joined([alone, outcome])
            return [outcome], double

        with surroundings(problem, f, highest=settings.highest_precision) as seen:
            outcomes, double = judged_with_replay(problem, settings.letters, seen, judge)
        outcomes[0].findings += noticed(problem, seen, outcomes)
        if double is not None:
            outcomes[0].findings += double.refusal(settings)
        rows, note = {"": row_of(outcomes)}, _note_of(settings, double, outcomes)
        return report_of(f, problem, settings, outcomes, note, rows)

    return with_all_inputs(check, f, problem_of(f, inputs, options), options)


# -- the report of all judgements


def _power(tallies: Sequence[Tally]) -> tuple[dict[float, float], float]:
    """Returns how likely each of `ERRORS` in a single entry would have shown, and the part of the
    entries of reverse mode that is zero, and not weighed.
    """
    entries, weighed, shown = 0, 0, dict.fromkeys(ERRORS, 0.0)
    for tally in tallies:
        count, inputs, of_inputs = tally.inputs.counts()
        _, outputs, of_outputs = tally.outputs.counts()
        entries, weighed = entries + count, weighed + inputs
        # An entry shows where its input does and its output does.
        for error, one, other in zip(ERRORS, of_inputs, of_outputs, strict=True):
            shown[error] += one * (other / outputs if outputs else 1.0)
    for error in ERRORS if weighed else ():
        shown[error] /= weighed
    return shown if weighed else {}, 1 - weighed / entries if entries else 0.0


def stages_of(reports: Iterable[Report]) -> dict[str, StageCount]:
    """Returns the counts of all reports together."""
    together: dict[str, StageCount] = {}
    for report in reports:
        for stage, count in report.stages.items():
            before = together.get(stage, StageCount(0, 0))
            together[stage] = StageCount(*map(sum, zip(before, count, strict=True)))
    return together


def function_name(f: Callable[..., Any]) -> str:
    """Returns the name of `f` for one line: its qualified name within the function that defines
    it, or that of its type.
    """
    if isinstance(f, ByHand):
        return repr(f)
    if isinstance(f, partial):
        return function_name(f.func)
    owner = getattr(f, "__self__", None)
    # Compiled functions are qualified by what an engine keeps them in, which nobody wrote:
    # torch.sin would be _VariableFunctionsClass.sin.
    written = isinstance(f, type) or hasattr(inspect.unwrap(f), "__code__")
    name = getattr(f, "__qualname__" if written else "__name__", None) or type(f).__qualname__
    # An inherited class method is named by the class it is called on: Sign.apply, not
    # Function.apply.
    if isinstance(owner, type) and hasattr(f, "__name__"):
        name = f"{owner.__qualname__}.{f.__name__}"
    return str(name).rpartition("<locals>.")[2]


def _defined_at(f: Any, order: int) -> tuple[str, int]:
    """Returns the file and the line at which `f` is defined; an empty name where that is unknown.

    A class is asked for what its instances, or its `apply`, call: the method `forward`. Of
    derivatives by hand the first one counts that is of this order.
    """
    while isinstance(f, ByHand):
        second = [f.given[name] for name in ("double_vjp", "hess", "hessp") if name in f.given]
        first = [rule for name, rule in f.given.items() if name != "forward"]
        f = (second if order > 1 and second else first)[0]
    f = inspect.unwrap(f.func if isinstance(f, partial) else f)
    owner = getattr(f, "__self__", None)
    if isinstance(owner, type) and hasattr(owner, "forward"):
        f = inspect.unwrap(owner.forward)
    if not hasattr(f, "__code__"):
        f = getattr(type(f), "forward", None) or type(f).__call__
    code = getattr(f, "__code__", None)
    ours = str(getattr(f, "__module__", "")).startswith("adjudge")
    if code is None or ours or code.co_filename.startswith("<"):
        return "", 0
    return code.co_filename, code.co_firstlineno


def _by_name(f: Callable[..., Any], findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Returns the findings, each with the name of the derivative by hand that it is about."""
    if not isinstance(f, ByHand) or not f.as_matrices:
        return tuple(findings)
    return tuple(replace(finding, given=f.name_of(finding.mode)) for finding in findings)


def _is_certified(verdict: Verdict, tallies: Sequence[Tally]) -> bool:
    """Returns whether intervals that are proven to contain the derivative decide the verdict."""
    if verdict is Verdict.PASS:
        compared = sum([tally.compared for tally in tallies])
        return 0 < compared == sum([tally.proved for tally in tallies])
    failing = [
        entry
        for tally in tallies
        if tally.failed
        for entry in (*tally.wrong, *tally.spurious, *tally.detached, *tally.missing)
    ]
    return verdict is Verdict.FAIL and any(entry.enclosure is not None for entry in failing)


def _certificate(tallies: Sequence[Tally]) -> Entry | None:
    """Returns the comparison of a certified PASS that agrees least closely."""
    kept = [tally.certificate for tally in tallies if tally.certificate is not None]
    return max(kept, key=attrgetter("excess"), default=None)


def report_of(
    f: Callable[..., Any],
    problem: Problem,
    settings: Settings,
    outcomes: Sequence[Judgement],
    note: str,
    rows: Mapping[str, Mapping[str, Outcome]],
) -> Report:
    """Returns the report of judgements about one function. `note` says how they were made, and
    `rows` holds the outcomes by way and mode, of which the report shows a table where the caller
    named modes.
    """
    modes: dict[str, Outcome] = {}
    for row in rows.values():
        add_to_row(modes, row)
    tallies: list[Tally] = []
    pairs: list[Pair] = []
    verdicts: list[Verdict] = []
    # The judgement of a second derivative repeats some findings about the first.
    findings: dict[Finding, None] = {}
    beyond: set[Beyond] = set()
    reached, decided = Counter[str](), Counter[str]()
    spent, rtol, resolution = problem.counts, 0.0, 0.0
    full = bool(outcomes) and all(map(attrgetter("full"), outcomes))
    counts = dict.fromkeys(("comparisons", "nonzero", "failed", "undecided", "identities"), 0)
    counts |= {"evaluations": spent.evaluations, "vjps": spent.vjps, "jvps": spent.jvps}
    counts["probes"] = 0
    for outcome in outcomes:
        tallies += outcome.tallies
        pairs += outcome.pairs
        verdicts.append(outcome.verdict)
        findings |= dict.fromkeys(outcome.findings)
        beyond |= outcome.beyond
        rtol = max(rtol, outcome.tolerance.relative)
        resolution = max(resolution, outcome.tolerance.resolution)
        counts["identities"] += outcome.identities
        counts["probes"] += outcome.probes
        reached.update(outcome.reached)
        decided.update(outcome.decided)
    entries: list[Entry] = []
    finest = 0.0
    if pairs:
        pairs = [pair for pair in pairs if modes[pair.mode] is not Verdict.PASS]
    for tally in tallies:
        entries += tally.wrong + tally.spurious + tally.detached + tally.missing + tally.open
        finest = max(finest, tally.resolution)
        counts["comparisons"] += tally.compared
        counts["nonzero"] += tally.nonzero
        counts["failed"] += tally.failed
        counts["undecided"] += tally.undecided + tally.kinks
    if len(modes) > 1:
        modes = {mode: modes[mode] for mode in sorted(modes, key=place)}
    ways: dict[str, dict[str, Outcome]] = {}
    for way, row in rows.items() if settings.modes else ():
        ways[way] = {mode: row[mode] for mode in modes if mode in row}
    verdict = worst(verdicts)
    certified, (power, zeros) = _is_certified(verdict, tallies), _power(tallies)
    file, line = "", 0
    if verdict is not Verdict.PASS:
        orders = [len(mode) for mode, found in modes.items() if found is not Verdict.PASS]
        file, line = _defined_at(f, min(orders, default=1))
    return Report(
        function=function_name(f),
        file=file,
        line=line,
        verdict=verdict,
        modes=modes,
        ways=ways,
        findings=_by_name(f, findings),
        counts=counts,
        tolerance={
            "eps": settings.eps,
            "atol": settings.atol,
            "rtol": rtol,
            "resolution": resolution,
        },
        resolution=finest,
        power=power,
        zeros=zeros,
        stages={stage: StageCount(reached[stage], decided[stage]) for stage in reached},
        beyond=tuple([b for b in Beyond if b in beyond]) if beyond else (),
        provenance=provenance_of(problem, settings, full, note),
        entries=tuple(entries),
        pairs=tuple(pairs),
        certified=certified,
        certificate=_certificate(tallies) if certified and verdict is Verdict.PASS else None,
    )
