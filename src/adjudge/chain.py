"""A derivative of low precision judged in two links: the formula in double precision, then the
low-precision derivative against that one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from adjudge.findings import Finding, Status, Verdict, worst
from adjudge.judge import Judgement, Part, Settings, judge
from adjudge.nearby import judge_here_or_nearby
from adjudge.numeric import unit_roundoff
from adjudge.observed import Base, observe
from adjudge.paired import Side
from adjudge.problem import Problem
from adjudge.spaces import Space
from adjudge.transport import Transport, transport
from adjudge.twin import RefusedError, Twin, alike, carries_double, raised, require_double

Make = Callable[[Problem], Problem]


def twin_of(problem: Problem, settings: Settings) -> Twin | None:
    """What takes part in double precision; `None` where there is no need, or the caller's numbers
    belong to the dtype at hand.
    """
    if (
        problem.reference is not None
        or problem.widened is None
        or settings.in_double is False
        or settings.fixed
    ):
        return None
    return Twin(problem)


def note_of(problem: Problem, twin: Twin | None) -> str:
    """How the check was made, for the line of provenance."""
    if problem.reference is not None:
        return f"judged by a reference ({problem.reference.reference.name})"
    if twin is None:
        return ""
    if twin.refused:
        return f"judged natively: in float64 {twin.refused}"
    return "formula judged in float64"


def judged(
    top: Problem, base: Base, settings: Settings, words: str, twin: Twin | None, make: Make
) -> Judgement:
    """The judgement of `top`, which is `make` of a problem; in double precision where there is one.

    Where the function does not run there, or is another one, `twin` says so afterwards.
    """
    if twin is None:
        return judge_here_or_nearby(top, base, settings, words)
    try:
        if not twin.refused:
            return _in_double(top, base, settings, words, twin, make)
    except RefusedError as error:
        twin.refused = str(error)
    outcome = judge_here_or_nearby(top, base, settings, words)
    if outcome.verdict is Verdict.PASS:
        return outcome
    # before anything else is blamed: f may cast to less than its inputs have
    backend = top.backend
    carried = backend.carried_eps(top.function, top.point())
    if carried <= unit_roundoff(top, base):
        return outcome
    twin.refused += f", and with an eps of {carried:.2g} inside"
    return judge_here_or_nearby(*_narrower(top, base, carried), settings, words)


def refusal(twin: Twin | None, settings: Settings) -> list[Finding]:
    """What is open where the caller insists on double precision."""
    if twin is None or not twin.refused or not settings.in_double:
        return []
    text = (
        f"the formula is not judged in float64: {twin.refused}\n"
        "  let the function accept float64, or leave out in_double=True"
    )
    return [Finding(Status.UNSUPPORTED, "", "", text)]


def _in_double(
    top: Problem, base: Base, settings: Settings, words: str, twin: Twin, make: Make
) -> Judgement:
    outcome = judge(top, base, settings, words, Part.IDENTITIES)
    asked = replace(
        settings,
        backward=settings.backward and "R" + top.tail not in outcome.modes,
        forward=settings.forward and "F" + top.tail not in outcome.modes,
    )
    if not asked.backward and not asked.forward:
        return outcome
    letters = [letter for letter in "RF" if (asked.backward, asked.forward)["RF".index(letter)]]
    with twin.widening():
        high, base64 = twin.composed(make)
        if not alike(top.X, high.X) or not alike(base.whole, base64.whole):
            raise RefusedError("its outputs have another structure")
        try:
            require_double(high, base64, asked.backward, asked.forward)
            formula = judge_here_or_nearby(
                high, base64, asked, f"{words}, {note_of(high, twin)}", Part.TABLE
            )
            rough = formula.verdict is not Verdict.PASS and not carries_double(
                high, base64, settings.seed
            )
        except RefusedError:
            raise
        except Exception as error:  # the function as it was given is judged instead
            raise raised(error) from error
    if rough:
        raise RefusedError("it computes with less than double precision inside")
    sides = [(Side(top, base), Side(high, base64, twin.widening), letters)]
    if len(top.tail) == 1:  # the first derivative, which the same evaluations judge
        with twin.widening():
            first, first64 = twin.composed(lambda problem: problem)
        low = Side(twin.low, observe(twin.low))
        sides.insert(0, (low, Side(first, first64, twin.widening), [top.tail]))
    for one, other, wanted in sides:
        for letter in wanted:
            mode = letter + one.problem.tail
            if mode not in twin.carried:
                twin.carried.add(mode)
                try:
                    found = transport(one, other, letter, settings.seed)
                except Exception as error:  # only in double: the rest ran before
                    raise raised(error) from error
                _consequence(found, formula, mode)
                new = found.findings(formula.verdict)
                outcome.findings += [one for one in new if one not in outcome.findings]
    return _together(outcome, formula)


def _narrower(top: Problem, base: Base, eps: float) -> tuple[Problem, Base]:
    """The same, known to compute with the spacing `eps` at 1."""

    def space(wide: Space) -> Space:
        return Space(tuple(replace(leaf, eps=max(leaf.eps, eps)) for leaf in wide.leaves))

    problem = replace(top, X=space(top.X))
    return problem, replace(base, problem=problem, whole=space(base.whole), Y=space(base.Y))


def _consequence(found: Transport, formula: Judgement, mode: str) -> None:
    """Raises `RefusedError` where the double run says nothing about the function."""
    if found.different:
        raise RefusedError(found.different)
    if found.wrong and formula.modes.get(mode) is Verdict.FAIL:
        raise RefusedError("the derivative is another one, and wrong itself")


def _together(outcome: Judgement, formula: Judgement) -> Judgement:
    outcome.findings += formula.findings
    for mode, verdict in formula.modes.items():
        own = [finding.verdict for finding in outcome.findings if finding.mode == mode]
        outcome.modes[mode] = worst([verdict, *own])
    outcome.tallies += formula.tallies
    outcome.identities += formula.identities
    outcome.probes, outcome.full = formula.probes, formula.full
    outcome.tolerance = formula.tolerance
    return outcome
