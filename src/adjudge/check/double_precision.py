"""The same function at the same point in double precision, where it runs there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

import numpy as np

from adjudge.check.at_kinks import judge_here_or_nearby
from adjudge.check.one_problem import Judgement, Part, judge
from adjudge.check.options import Settings
from adjudge.errors import AdjudgeError, Catching, NotSupportedError, Source, running
from adjudge.estimate import coarsest_eps
from adjudge.findings import (
    Finding,
    NotInDouble,
    Refusal,
    Remedy,
    Rule,
    Status,
    Verdict,
    worst,
)
from adjudge.floats import scale
from adjudge.jacobian import Evaluator
from adjudge.problem import Base, Forward, Problem, Purpose, Reverse, Space, evaluate, observe
from adjudge.properties import LowPrecisionResult, compare_low_precision
from adjudge.report import why_not_in_double

STEPS = (2.0**-18, 2.0**-28)
"""Steps relative to x of which float32 shows the first and not the second."""
ROUGH = 0.1
"""How far slopes over `STEPS` may be apart, relative to f, in a function that carries double."""


class RefusedError(Exception):
    """The function does not run in double precision, or is another one there."""

    def __init__(self, detail: NotInDouble) -> None:
        super().__init__(why_not_in_double(detail))
        self.detail = detail


@dataclass
class DoublePrecision:
    """A problem in double precision, beside the one that the caller gave.

    `x`, and what f captured, are widened exactly: in exact arithmetic it is the same function.
    """

    low: Problem
    refused: NotInDouble | None = None
    """Why there is none."""
    carried: set[str] = field(default_factory=set)
    """Modes whose derivatives were compared with those in double precision already."""
    _problem: Problem | None = None

    def widening(self) -> AbstractContextManager[None]:
        """The context in which everything is evaluated in double precision."""
        return self.low.backend.environment.widening()

    def composed(self, make: Callable[[Problem], Problem]) -> tuple[Problem, Base]:
        """The derivative `make` in double precision, observed at x; call it within `widening`.

        Raises `RefusedError` where it cannot be, or is not in double precision.
        """
        with Catching(AdjudgeError) as caught:
            if self._problem is None:
                assert self.low.in_double is not None
                self._problem = self.low.in_double()
            problem = make(self._problem)
            base = observe(problem)
        if isinstance(caught.error, NotSupportedError):
            words = _first_line(caught.error)
            raise _refused(Refusal.NOT_SUPPORTED, words=words) from caught.error
        refuse_if_raised(caught)
        for leaf in (*problem.X.leaves, *base.whole.leaves):
            if not leaf.double:
                raise _refused(Refusal.STAYS_NARROW, leaf.name, leaf.info.dtype)
        return problem, base


def refuse_if_raised(caught: Catching) -> None:
    """Raises `RefusedError` where the function has raised in double precision."""
    if (error := caught.error) is not None:
        raise _refused(Refusal.RAISES, type(error).__name__, _first_line(error)) from error


def _refused(
    refusal: Refusal, name: str = "", words: str = "", gradient: Rule | None = None
) -> RefusedError:
    return RefusedError(NotInDouble(refusal, name, words, gradient))


def alike(one: Space, other: Space) -> bool:
    """Whether two spaces differ in precision at most."""
    return [(leaf.name, leaf.host_shape, leaf.complex) for leaf in one.leaves] == [
        (leaf.name, leaf.host_shape, leaf.complex) for leaf in other.leaves
    ]


def require_double(problem: Problem, base: Base, letters: str) -> None:
    """Raises `RefusedError` where a derivative is not in double precision, as its function is."""
    backend = problem.backend
    found: list[tuple[Rule, str, object]] = []
    if "R" in letters:
        reverse = Reverse(problem)
        w = reverse.cotangent(base, np.ones(base.Y.size))
        gradients = reverse.pull(w) if any(reverse.attached) and base.Y.size else ()
        leaves = zip(problem.X.leaves, gradients, strict=False)
        found += [(Rule.VJP, leaf.name, gradient) for leaf, gradient in leaves]
    if "F" in letters and problem.X.size:
        forward_mode = Forward(problem)
        _, tangents = forward_mode.push(forward_mode.tangent(np.ones(problem.X.size)))
        leaves = zip(base.Y.leaves, tangents, strict=True)
        found += [(Rule.JVP, leaf.name, tangent) for leaf, tangent in leaves]
    for rule, name, array in found:
        if array is not None and backend.arrays.eps(array) > np.finfo(np.float64).eps:
            raise _refused(Refusal.STAYS_NARROW, name, backend.arrays.info(array).dtype, rule)


def carries_double(problem: Problem, base: Base, seed: int) -> bool:
    """Whether f moves like a function in double precision: its slope over a step that float32
    does not resolve is that over one that it does. A cast inside f makes a staircase of it.
    """
    lengths = [scale(problem.origin[part]) for part in problem.X.slices]
    random = np.random.default_rng([seed, 23])
    v = random.choice([-1.0, 1.0], problem.X.size) * np.concatenate([*lengths, np.zeros(0)])
    v, ends = (v, (1.0, -1.0)) if problem.bounds is None else (problem.inward(v), (2.0, 0.0))
    slopes = []
    with np.errstate(all="ignore"):
        for step in STEPS:
            plus, minus = (
                evaluate(problem, base, problem.origin + sign * step * v, Purpose.PRECISION)
                for sign in ends
            )
            slopes.append((plus - minus) / (2 * step))
        gap, size = np.abs(slopes[0] - slopes[1]), np.fmax(np.abs(slopes[0]), np.abs(base.values))
        for part in base.whole.slices:
            size[part] = np.max(size[part], initial=0.0, where=np.isfinite(size[part]))
    return not bool(np.any(gap > ROUGH * size))


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or "no message").splitlines()[0]


Make = Callable[[Problem], Problem]


def double_precision_of(problem: Problem, settings: Settings) -> DoublePrecision | None:
    """What takes part in double precision; `None` where there is no need, or the caller's numbers
    belong to the dtype at hand.
    """
    if (
        problem.reference is not None
        or problem.in_double is None
        or settings.in_double is False
        or settings.fixed
    ):
        return None
    return DoublePrecision(problem)


def note_of(problem: Problem, double: DoublePrecision | None) -> str:
    """How the check was made, for the line of provenance."""
    if problem.reference is not None:
        return f"judged by a reference ({problem.reference.reference.name})"
    if double is None:
        return ""
    if double.refused is not None:
        return f"judged natively: in float64 {why_not_in_double(double.refused)}"
    return "formula judged in float64"


def judged(
    top: Problem,
    base: Base,
    settings: Settings,
    words: str,
    double: DoublePrecision | None,
    make: Make,
) -> Judgement:
    """The judgement of `top`, which is `make` of a problem; in double precision where there is one.

    Where the function does not run there, or is another one, `double.refused` says so afterwards.
    """
    if double is None:
        return judge_here_or_nearby(top, base, settings, words)
    try:
        if double.refused is None:
            return _in_double(top, base, settings, words, double, make)
    except RefusedError as error:
        double.refused = error.detail
    outcome = judge_here_or_nearby(top, base, settings, words)
    if outcome.verdict is Verdict.PASS:
        return outcome
    # before anything else is blamed: f may cast to less than its inputs have
    backend = top.backend
    with running(Source.FUNCTION):
        carried = backend.environment.narrowest_eps(top.function, top.point())
    if carried <= coarsest_eps(top, base):
        return outcome
    assert double.refused is not None
    double.refused = replace(double.refused, eps=carried)
    return judge_here_or_nearby(*_narrower(top, base, carried), settings, words)


def refusal(double: DoublePrecision | None, settings: Settings) -> list[Finding]:
    """What is open where the caller insists on double precision."""
    if double is None or double.refused is None or not settings.in_double:
        return []
    return [Finding(Status.UNSUPPORTED, "", "", double.refused, Remedy.ACCEPT_DOUBLE)]


def _in_double(
    top: Problem, base: Base, settings: Settings, words: str, double: DoublePrecision, make: Make
) -> Judgement:
    outcome = judge(top, base, settings, words, Part.IDENTITIES)
    letters = "".join(c for c in settings.letters if c + top.modes_taken not in outcome.modes)
    if not letters:
        return outcome
    asked = replace(settings, letters=letters)
    with double.widening():
        high, base64 = double.composed(make)
        if not alike(top.X, high.X) or not alike(base.whole, base64.whole):
            raise _refused(Refusal.OTHER_STRUCTURE)
        with Catching(AdjudgeError) as caught:
            require_double(high, base64, letters)
            formula = judge_here_or_nearby(
                high, base64, asked, f"{words}, {note_of(high, double)}", Part.TABLE
            )
            rough = formula.verdict is not Verdict.PASS and not carries_double(
                high, base64, settings.seed
            )
        refuse_if_raised(caught)
    if rough:
        raise _refused(Refusal.NARROW_INSIDE)
    pairs = [(Evaluator(top, base), Evaluator(high, base64, double.widening), letters)]
    if len(top.modes_taken) == 1:  # the first derivative, which the same evaluations judge
        with double.widening():
            first, first64 = double.composed(lambda problem: problem)
        low = Evaluator(double.low, observe(double.low))
        pairs.insert(0, (low, Evaluator(first, first64, double.widening), top.modes_taken))
    for one, other, wanted in pairs:
        for letter in wanted:
            mode = letter + one.problem.modes_taken
            if mode not in double.carried:
                double.carried.add(mode)
                with Catching(AdjudgeError) as caught:  # only in double: the rest ran before
                    found = compare_low_precision(one, other, letter, settings.seed)
                refuse_if_raised(caught)
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


def _consequence(found: LowPrecisionResult, formula: Judgement, mode: str) -> None:
    """Raises `RefusedError` where the double run says nothing about the function."""
    if found.different is not None:
        raise _refused(found.different)
    if found.wrong and formula.modes.get(mode) is Verdict.FAIL:
        raise _refused(Refusal.OTHER_DERIVATIVE)


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
