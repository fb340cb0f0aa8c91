"""The same function at the same point in double precision, where it runs there."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import numpy as np

from adjudge.check.one_problem import (
    Judgement,
    judge_differences,
    judge_here_or_nearby,
    judge_properties,
    overflows,
)
from adjudge.check.options import Settings
from adjudge.constants import (
    CANCELLED_BY_CONSTANTS,
    CLOSE_PART,
    COARSE_EPS,
    CONSTANT_UNITS,
    CONVERTED_PART,
    NATIVE_PROBES,
    OPEN_NARROW_FACTOR,
    SINGLE_STEPS,
    VISIBLE_STAIRS,
    WIDER_PROBES,
)
from adjudge.errors import AdjudgeError, Catching, NotSupportedError
from adjudge.estimate import SIGNIFICANT_BITS, Exact, dtype_inside, significant_bits
from adjudge.findings import (
    AffineOff,
    CoarseAgreement,
    Disagreement,
    Finding,
    NotHomogeneous,
    NotInDouble,
    Refusal,
    Remedy,
    Rule,
    Status,
    Verdict,
    worst,
)
from adjudge.floats import EPS, Vector, of_short_range
from adjudge.jacobian import Evaluator
from adjudge.problem import (
    Base,
    Forward,
    Problem,
    Purpose,
    Reverse,
    Space,
    Stream,
    evaluate,
    generator,
    largest,
    leave_out,
    observe,
    random_cotangent,
)
from adjudge.properties import LowPrecisionResult, compare_low_precision, replayed
from adjudge.report import why_not_in_double

Derive: TypeAlias = Callable[[Problem], Problem]
"""Takes a derivative: the problem of a function becomes the problem of its vjp, jvp and so on."""


OTHER_VALUES = Refusal.OTHER_VALUE, Refusal.OTHER_VALUE_BEYOND_ROUNDING
PAST_CASTS = ", past its conversions to narrower dtypes"


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
    compared: set[str] = field(default_factory=set)
    """Modes whose derivatives were compared with those in double precision already."""
    precision: str = "float64"
    """The widest precision in which f was found to compute, where it runs in double."""
    past_casts: bool = False
    """Whether f is run without its own conversions to narrower dtypes."""
    as_given: bool = True
    """Whether f is then what it is for inputs in the dtypes as they were given: it draws its random
    numbers in these, and JAX rounds the constants of a rule to them."""
    within: float = math.inf
    """The spacing at 1 of the narrowest dtype that f computes with. Conversions to a coarser one
    are roundings of the rule alone, and no function that is right but for its own rounding."""
    judged_past_casts: bool = False
    """Whether a derivative was judged without them."""
    other_value: NotInDouble | None = None
    """Why f is another function in double precision, where it was run without its conversions for
    that. The values of a derivative do not say so: in second order the numbers that JAX draws in
    float64 would be compared with those that it draws in float32."""
    problem: Problem | None = None
    """The problem in double precision, once it was asked for."""

    @property
    def coarsest(self) -> float:
        """The coarsest spacing at 1 that outputs and derivatives may have in double precision: that
        of float32 where the caller's dtype is narrower than that.
        """
        return EPS["float32" if self.low.X.coarsest_eps > COARSE_EPS else "float64"]

    @property
    def note(self) -> str:
        """How the check was made, for the line of provenance."""
        if self.refused is not None:
            return f"judged natively: in float64 {why_not_in_double(self.refused)}"
        return f"formula judged in {self.precision}{PAST_CASTS if self.judged_past_casts else ''}"

    def refusal(self, settings: Settings) -> list[Finding]:
        """What is open where the caller insists on double precision."""
        if self.refused is None or not settings.in_double:
            return []
        return [Finding(Status.UNSUPPORTED, "", "", self.refused, Remedy.ACCEPT_DOUBLE)]

    def narrows(self, refusal: NotInDouble) -> bool:
        """Returns whether float32 is to be tried in place of float64, which has been refused."""
        raised = refusal.refusal in (Refusal.RAISES, Refusal.NOT_SUPPORTED)
        coarse = self.low.X.coarsest_eps > COARSE_EPS
        if not (raised and coarse and self.precision == "float64" and not self.compared):
            return False
        self.precision, self.problem = "float32", None
        return True

    def widening(self) -> AbstractContextManager[None]:
        """The context in which everything is evaluated in double precision."""
        environment = self.low.backend.environment
        past = None
        if self.past_casts:
            likes = self.low.x if self.as_given else ()
            past = environment.widening_past_casts(likes, self.within)
        return environment.widening() if past is None else past

    def derived(self, derive: Derive) -> Base:
        """The derivative in double precision, observed at x; to be called within `widening`.

        Raises `RefusedError` where it cannot be, or is not in double precision.
        """
        with Catching(AdjudgeError) as caught:
            if self.problem is None:
                assert self.low.widened is not None
                problem = self.low.widened(self.precision)
                if self.past_casts:
                    past = partial(
                        problem.backend.environment.past_casts,
                        likes=self.low.x if self.as_given else problem.x,
                        coarsest=self.within,
                    )
                    function, evaluate = past(problem.function), past(problem.evaluate)
                    problem = replace(problem, function=function, evaluate=evaluate)
                self.problem = problem
            base = observe(derive(self.problem))
        if isinstance(caught.error, NotSupportedError):
            words = _first_line(caught.error)
            raise _refused(Refusal.NOT_SUPPORTED, words=words) from caught.error
        refuse_if_raised(caught)
        for leaf in (*base.problem.X.leaves, *base.whole.leaves):
            if leaf.eps > self.coarsest:
                dtype = leaf.info.dtype
                if EPS.get(dtype.rpartition(".")[2], 1.0) <= self.coarsest:
                    raise _refused(Refusal.NARROW_INSIDE)  # the engine computes it in float32
                raise _refused(Refusal.STAYS_NARROW, leaf.name, dtype)
        if base.coarsest_eps > EPS["float64"]:
            self.precision = "float32"
        return base


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


def require_double(at: Evaluator, letters: str, coarsest: float) -> None:
    """Raises `RefusedError` where a derivative is coarser than `coarsest`, unlike its function."""
    base, problem, backend = at.base, at.problem, at.problem.backend
    found: list[tuple[Rule, str, object]] = []
    if "R" in letters:
        reverse = at.reverse
        w = reverse.cotangent(base, np.ones(base.Y.size))
        gradients = reverse.pull(w)[1] if any(reverse.attached) and base.Y.size else ()
        leaves = zip(problem.X.leaves, gradients, strict=False)
        found += [(Rule.VJP, leaf.name, gradient) for leaf, gradient in leaves]
    if "F" in letters and problem.X.size:
        forward_mode = Forward(problem)
        _, tangents = forward_mode.push(forward_mode.tangent(np.ones(problem.X.size)))
        leaves = zip(base.Y.leaves, tangents, strict=True)
        found += [(Rule.JVP, leaf.name, tangent) for leaf, tangent in leaves]
    for rule, name, array in found:
        if array is not None and backend.arrays.eps(array) > coarsest:
            raise _refused(Refusal.STAYS_NARROW, name, backend.arrays.info(array).dtype, rule)


def stands_still(base: Base, seed: int) -> bool:
    """Whether an output that moves visibly over a step that sixteen bits resolve stands still over
    one that they do not: f casts to them inside, or moves in stairs as wide.
    """
    problem, random = base.problem, generator(seed, Stream.PRECISION)
    v = random.choice([-1.0, 1.0], problem.X.size) * problem.length_scales
    long, short = (
        evaluate(problem, base, problem.clipped(problem.origin + step * v), Purpose.PRECISION)
        - base.values
        for step in SINGLE_STEPS
    )
    slope = np.abs(long) / SINGLE_STEPS[0]
    size = base.whole.largest(np.fmax(slope, np.abs(base.values)))
    return bool(np.any((slope > VISIBLE_STAIRS * size) & (short == 0)))


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or "no message").splitlines()[0]


def double_precision_of(problem: Problem, settings: Settings) -> DoublePrecision | None:
    """What takes part in double precision; `None` where there is no need, or the caller's numbers
    belong to the dtype at hand.

    An exact reference belongs to the formula, and so the formula is compared with it in double
    precision. Compared with the narrow derivative at once, it let errors of many units of rounding
    pass that a check by differences finds.
    """
    exact = isinstance(settings.reference, Exact)
    if (
        (settings.reference is not None and not exact)
        or problem.widened is None
        or settings.in_double is False
        or settings.fixed
    ):
        return None
    return DoublePrecision(problem)


@dataclass(frozen=True)
class Composition:
    """A derivative that was taken of a function, and is differentiated once more to be judged."""

    problem: Problem
    """The function at x."""
    taken: str
    """The modes in which the derivative was taken, outermost first; empty for f itself."""
    derive: Derive
    """Takes the derivative: of `problem`, or of the same function in double precision."""
    double: DoublePrecision | None
    provenance: Callable[[], str]
    """Says what the numbers come from, for the findings."""


def judge_in_double(
    composition: Composition, double: DoublePrecision, base: Base, settings: Settings
) -> Judgement:
    """Judges the problem of `base`, the derivative of the composition; where its function runs in
    double precision, by differences there.

    Where the function does not run there, or is another one, `double.refused` says so afterwards.
    """
    provenance = composition.provenance
    double.refused = double.refused or double.other_value
    outcome = _where_it_runs(composition, double, base, settings)
    # What the properties alone decided has no tallies: it was never judged in double precision.
    seen = outcome is not None and bool(outcome.tallies)
    single = outcome is not None and seen and outcome.tolerance.eps > EPS["float64"]
    if outcome is not None and not (single or outcome.coarse):
        return outcome
    failed = outcome is not None and seen and bool(_disagreements(outcome))
    found = _past_its_casts(composition, double, base, settings, single=single, failed=failed)
    if found is not None:
        return found
    if outcome is not None:
        if single and base.coarsest_eps <= COARSE_EPS:
            # Only here, since past its conversions f shows far more by the first probes.
            told = partial(_provenance, composition, double)
            with double.widening():
                wide = double.derived(composition.derive)
                outcome = with_more_probes(outcome, wide, settings, told, WIDER_PROBES)
        return outcome
    outcome = judge_here_or_nearby(base, settings, provenance)
    outcome = with_more_probes(outcome, base, settings, provenance, NATIVE_PROBES)
    agreed = outcome.verdict is Verdict.PASS or _agrees_coarsely(outcome)
    # before anything else is blamed: f may cast to less than its inputs have
    eps = base.problem.narrowest_eps
    if not agreed and eps > base.coarsest_eps:
        assert double.refused is not None
        double.refused = replace(double.refused, eps=eps)
        outcome = judge_here_or_nearby(_narrower(base, eps), settings, provenance)
    return _beside_replay(outcome, base, settings)


def _past_its_casts(
    composition: Composition,
    double: DoublePrecision,
    base: Base,
    settings: Settings,
    *,
    single: bool,
    failed: bool,
) -> Judgement | None:
    """Returns the judgement of a function that converts numbers to a narrower dtype, whatever they
    come in: without its conversions, or in float32 where that is all that comes out of it. Returns
    `None` where f is no such function, or runs in neither way. `single` says that its values in
    double precision were seen to have been rounded to float32, and `failed` that the formula fails
    there: its rule may convert to float32, which costs an input in float32 no digit.

    Under autocast, or with a layer in sixteen bits, hardly a mistake shows in values of float32,
    and an error of 1e-4 does not show in a normalisation that converts to float32 inside, as most
    do. The derivative of a conversion is that of the identity in every framework, which is what it
    is here; that f is the same function but for rounding is seen by its values.
    """
    low, refused = double.low, double.refused
    within = base.problem.narrowest_eps if refused else 0.0
    raises = refused is not None and refused.refusal is Refusal.RAISES
    stays = refused and refused.refusal in (Refusal.STAYS_NARROW, Refusal.NARROW_INSIDE)
    # It may draw its numbers in the dtype at hand, and then those that it drew are kept.
    other = refused is not None and refused.refusal in OTHER_VALUES
    if double.problem is None or (refused and not (stays or raises or other)):
        return None
    if raises or other:  # a loop that converts what it carries, say
        inside = within if within > base.coarsest_eps else 0.0
    else:
        with double.widening():
            inside = double.problem.narrowest_eps
    eps = max(inside, base.coarsest_eps, within)
    converts = inside > COARSE_EPS  # and not autocast, which leaves double precision as it is
    ways = [True] if low.backend.environment.widening_past_casts() is not None else []
    as_given = bool(stays or raises or other or single or converts)
    if not as_given:
        past = DoublePrecision(low, past_casts=True, as_given=False, within=eps)
        if not (failed and ways and _rule_converts(composition, double, past, settings)):
            return None
    if not converts and eps > base.coarsest_eps:
        ways.append(False)
    for past_casts in ways:
        again = DoublePrecision(
            _with_eps(low, eps), past_casts=past_casts, as_given=as_given, within=eps
        )
        found = _where_it_runs(composition, again, _narrower(base, eps), settings)
        if found is not None:
            double.other_value = refused if other else None
            double.refused, double.precision = None, again.precision
            double.judged_past_casts = past_casts
            return found
    return None


def _rule_converts(
    composition: Composition, double: DoublePrecision, past: DoublePrecision, settings: Settings
) -> bool:
    """Returns whether what the rule says in double precision depends on its conversions."""
    images = []
    for one in (double, past):
        with one.widening(), Catching(AdjudgeError) as caught:
            base = one.derived(composition.derive)
            images.append(_images(base, settings.letters, settings.seed))
        if caught.error is not None:  # it does not run so
            return False
    return any(
        not np.allclose(a, b, rtol=0.0, atol=CONVERTED_PART * largest(a))
        for a, b in zip(*images, strict=True)
    )


def judge_past_casts(composition: Composition, base: Base, settings: Settings) -> Judgement | None:
    """Returns the judgement, past its conversions, of a function that converts numbers to a
    narrower dtype, whose inputs are in double precision or that has an exact reference; `None`
    where it does no such thing, or does not run so.

    Without it an error of 1e-4 in a normalisation that converts to float32 inside passed for inputs
    in float64. An exact reference has no roundings. Beside derivatives that are rounded to a
    narrower dtype it is another function, or proves to be right what is off by several percent.
    """
    problem, anew = composition.problem, composition.problem.anew
    past = settings.in_double is not False and not settings.fixed
    eps = base.problem.narrowest_eps if past else 0.0
    if eps <= problem.X.coarsest_eps:  # whatever the cotangents of a derivative are
        return None
    widened = problem.widened
    if anew is not None:
        widened = lambda _: replace(anew(), backend=problem.backend)  # noqa: E731
    if widened is None or problem.backend.environment.widening_past_casts() is None:
        return None
    low = replace(_with_eps(problem, eps), widened=widened)
    double = DoublePrecision(low, past_casts=True, within=eps)
    found = _where_it_runs(composition, double, _narrower(base, eps), settings)
    if found is not None:
        found.past_casts = True
    return found


def _where_it_runs(
    composition: Composition, double: DoublePrecision, base: Base, settings: Settings
) -> Judgement | None:
    """Returns the judgement in double precision, or in the widest one in which f runs; `None` where
    `double.refused` says why there is none.
    """
    while double.refused is None:
        try:
            return _in_double(composition, double, base, settings)
        except RefusedError as error:
            # Kernels of sixteen bits that compute in float32 inside may take no float64.
            if not double.narrows(error.detail):
                double.refused = error.detail
    return None


def _in_double(
    composition: Composition, double: DoublePrecision, base: Base, settings: Settings
) -> Judgement:
    """The properties of the function as it was given, its differences in double precision, and the
    narrow derivative compared with that in double precision. Raises `RefusedError`.
    """
    taken = composition.taken
    outcome = judge_properties(base, settings)
    if outcome.tolerance.spread or outcome.tolerance.noisy:
        # What the caller allows is a number of the dtype at hand, and much of what is compared.
        raise _refused(Refusal.VARIES)
    letters = "".join(c for c in settings.letters if c + taken not in outcome.modes)
    if not letters:
        return outcome
    eps = double.low.X.coarsest_eps
    of_x = eps if eps <= COARSE_EPS else 0.0
    asked = replace(settings, letters=letters, of_x=of_x)
    with double.widening():
        base64 = double.derived(composition.derive)
        same_inputs = alike(base.problem.X, base64.problem.X)
        if not same_inputs or not alike(base.whole, base64.whole):
            raise _refused(Refusal.OTHER_STRUCTURE)
        wide = Evaluator(base64, double.widening)
        with Catching(AdjudgeError) as caught:
            require_double(wide, letters, double.coarsest)
            formula = _formula(composition, double, base, base64, asked)
            constants = CONSTANT_UNITS * min(eps, EPS["float32"])
            if formula is not None and _off_by_constants(formula, base64, letters, constants):
                asked = replace(asked, constants=constants)
                formula = _formula(composition, double, base, base64, asked)
            if formula is not None and formula.tolerance.eps <= EPS["float64"]:
                _overflow_in_double(outcome, wide, settings.seed)
        refuse_if_raised(caught)
    if formula is None:
        raise _refused(Refusal.NARROW_INSIDE)
    inside = formula.tolerance.eps
    nonlinear = any(one.status is Status.NONLINEAR and not one.note for one in outcome.findings)
    if nonlinear and of_short_range(inside):
        # Its values alone show it, of a function that no engine sees into.
        outcome = judge_properties(replace(base, carried_eps=inside), settings)
    pairs = [(*_without_left_out(base, wide, settings.seed), letters)]
    if len(taken) == 1:  # the first derivative, which the same evaluations judge
        with double.widening():
            first64 = double.derived(lambda problem: problem)
        both = observe(double.low), Evaluator(first64, double.widening)
        pairs.insert(0, (*_without_left_out(*both, settings.seed), taken))
    for low, high, wanted in pairs:
        for letter in wanted:
            mode = letter + low.problem.modes_taken
            if mode not in double.compared:
                double.compared.add(mode)
                with Catching(AdjudgeError) as caught:  # only in double: the rest ran before
                    found = compare_low_precision(low, high, letter, settings.seed)
                refuse_if_raised(caught)
                _consequence(found, formula, mode)
                new = found.findings(formula.verdict)
                outcome.findings += [one for one in new if one not in outcome.findings]
    return _together(outcome, formula)


def _without_left_out(base: Base, wide: Evaluator, seed: int) -> tuple[Evaluator, Evaluator]:
    """Returns both sides without the outputs that are not finite in the caller's dtype.

    A number that overflows in float16 is finite in double. Without this it had a derivative on that
    side, and zero times infinity on the other, and the right rule of a norm failed.
    """
    base = leave_out(base, seed)
    if base.omitted is None:
        return Evaluator(base), wide
    own = wide.base.omitted
    omitted = base.omitted if own is None else base.omitted | own
    return Evaluator(base), replace(wide, base=replace(wide.base, omitted=omitted))


def _overflow_in_double(outcome: Judgement, wide: Evaluator, seed: int) -> None:
    """Makes an error of the note that the image of a large probe is not finite, where it is not
    finite in double precision either.
    """
    for k, one in enumerate(outcome.findings):
        detail = one.detail
        if not (one.note and overflows(one)):
            continue
        assert isinstance(detail, NotHomogeneous)
        by = wide.base.Y if detail.rule is Rule.VJP else wide.problem.X
        probe = detail.factor * random_cotangent(by, seed)
        image = _image(wide.base, detail.rule.letter, probe)
        if not np.all(np.isfinite(image)):
            outcome.findings[k] = replace(one, note=False)


def _formula(
    composition: Composition, double: DoublePrecision, base: Base, base64: Base, asked: Settings
) -> Judgement | None:
    """Judges f in double precision by differences, or in single where it computes in that inside;
    `None` where it computes with less, or where the caller's dtype is single and that was not seen
    by the values of f.
    """
    provenance = partial(_provenance, composition, double)
    formula, seed = judge_here_or_nearby(base64, asked, provenance, judge_differences), asked.seed
    right, single = formula.verdict is Verdict.PASS, formula.tolerance.eps > EPS["float64"]
    coarse = base.coarsest_eps > COARSE_EPS
    if not coarse and formula.tolerance.eps == EPS["float32"]:
        double.precision = "float32"  # as sharp as it is for float64 with float32 inside
        return formula
    if coarse and not right and stands_still(base64, seed):
        return None
    inside = None if right else dtype_inside(base64.problem, base64)
    if inside is not None and (not coarse or EPS[inside] > COARSE_EPS):
        return None
    if inside is not None:
        base64, single, double.precision = _narrower(base64, EPS[inside]), True, inside
    if not coarse or (right and not single):
        return formula
    if right:
        base64 = _narrower(base64, formula.tolerance.eps)
    rounded = rounded_derivatives(base64, asked.letters, seed)
    asked = replace(asked, rounded=rounded)
    if not right and (single or rounded):
        formula = judge_here_or_nearby(base64, asked, provenance, judge_differences)
    return with_more_probes(formula, base64, asked, provenance, WIDER_PROBES)


def _provenance(composition: Composition, double: DoublePrecision) -> str:
    """Says what the numbers in double precision come from."""
    return f"{composition.provenance()}, {double.note}"


def _off_by_constants(formula: Judgement, base: Base, letters: str, part: float) -> bool:
    """Returns whether all that fails is off by no more than this part of the derivative, as what a
    rule multiplies by constants in single precision is.

    `torch.tensor(1 / 3)` and `np.float32(0.1)` stay in single precision where a function of float32
    or sixteen bits is judged in double. It is the entries that are asked, since an error of one
    among many is as small a part of a projection.
    """
    found = _disagreements(formula)
    failed = [one for one in formula.findings if one.verdict is Verdict.FAIL]
    if not failed or len(found) < len(failed):
        return False
    if any(one.part > part for one in found if isinstance(one, AffineOff)):
        return False
    entries = [one.first for one in found if isinstance(one, Disagreement)]
    letter = "R" if "R" in letters else "F"
    for entry in entries:
        of, by = _part_of(base.problem.X, entry.input), _part_of(base.Y, entry.output)
        if letter == "F":
            of, by = by, of
        w = np.zeros(base.Y.size if letter == "R" else base.problem.X.size)
        w[by] = 1.0
        size = max(largest(_image(base, letter, w)[of]), abs(entry.reference))
        most = min(part * size, max(part, CANCELLED_BY_CONSTANTS) * abs(entry.reference))
        if not abs(entry.automatic - entry.reference) <= most:
            return False
    return True


def _part_of(space: Space, name: str) -> slice:
    """Returns the coordinates of the leaf of this name, and all of them where there is none."""
    named = zip(space.leaves, space.slices, strict=True)
    return next((part for leaf, part in named if leaf.name == name), slice(None))


def _disagreements(outcome: Judgement) -> list[Disagreement | AffineOff]:
    """Returns where automatic values were seen to be wrong beside differences."""
    failed = (one.detail for one in outcome.findings if one.verdict is Verdict.FAIL)
    return [detail for detail in failed if isinstance(detail, Disagreement | AffineOff)]


def _image(base: Base, letter: str, w: Vector) -> Vector:
    """Returns what reverse mode makes of this cotangent, or forward mode of this tangent."""
    if letter == "R":
        return Reverse(base.problem).row(base, w)
    return Forward(base.problem).column(base, w)[1]


def _images(base: Base, letters: str, seed: int) -> list[Vector]:
    """Returns what each mode makes of a random cotangent or tangent, by leaf."""
    problem, random = base.problem, generator(seed, Stream.ROUNDED_DERIVATIVE)
    images = []
    if "R" in letters:
        row = _image(base, "R", random.standard_normal(base.Y.size))
        images += [row[part] for part in problem.X.slices]
    if "F" in letters:
        v = random.standard_normal(problem.X.size) * problem.length_scales
        column = _image(base, "F", v)
        images += [column[part] for part in base.Y.slices]
    return images


def rounded_derivatives(base: Base, letters: str, seed: int) -> float:
    """Returns the spacing at 1 of the coarsest dtype to which the derivatives with respect to an
    input, or of an output, are rounded; 0 where all have more digits than float32.

    A backward pass with a dtype that is written into it rounds in any precision.
    """
    eps = 0.0
    for image in _images(base, letters, seed):
        if np.count_nonzero(image) > 1:
            bits = significant_bits(image)
            known = [2.0 ** (1 - had) for had in SIGNIFICANT_BITS.values() if bits <= had]
            eps = max([eps, *known])
    return eps


def with_more_probes(
    outcome: Judgement, base: Base, settings: Settings, provenance: Callable[[], str], count: int
) -> Judgement:
    """Returns what passed with the findings of further probes, where one of them fails.

    In less than double precision a missing term may stay within the tolerance along one tangent.
    """
    passed = outcome.verdict is Verdict.PASS or _agrees_coarsely(outcome)
    if outcome.full or not passed:
        return outcome
    for k in range(1, 1 + count):
        fresh = replace(base)  # f is recorded anew, since a vjp may use what f has kept at x
        by_blocks = k == 1 and base.coarsest_eps > COARSE_EPS
        asked = replace(settings, seed=settings.seed + k, by_blocks=by_blocks)
        again = judge_differences(fresh, asked, provenance)
        if again.verdict is Verdict.FAIL:
            return _together(outcome, again)
        outcome.blocks_open |= again.blocks_open
    return outcome


def _agrees_coarsely(outcome: Judgement) -> bool:
    """Whether all that is left open is that agreement means little in so narrow a dtype."""
    left = [one for one in outcome.findings if one.verdict is not Verdict.PASS]
    return bool(left) and all(isinstance(one.detail, CoarseAgreement) for one in left)


def _beside_replay(outcome: Judgement, base: Base, settings: Settings) -> Judgement:
    """Returns what differences in a narrow dtype say, settled by a comparison with the derivative
    by exact replay, as it is settled elsewhere by one in double precision; the same where f cannot
    be replayed.

    Without it wrong derivatives of kernels that take no float64 pass where f does not show them,
    and in sixteen bits right ones stay open. What is apart by more than a few percent is not proved
    to be right by that. Where the values of f have lost their digits, what fails by no more than
    roundings of f can make is open.
    """
    doubtful = [one for one in outcome.findings if one.verdict is not Verdict.PASS]
    others = {one.status for one in doubtful} - {
        Status.UNRESOLVED, Status.MISMATCH, Status.SPURIOUS, Status.NONSMOOTH,
    }  # fmt: skip
    leaves = (*base.problem.X.leaves, *base.whole.leaves)
    precisions = {leaf.eps for leaf in base.whole.leaves}  # of several, each is judged apart
    narrow = len(precisions) == 1 and all(leaf.eps > EPS["float64"] for leaf in leaves)
    coarse = all(leaf.eps > COARSE_EPS for leaf in leaves)
    failed = outcome.verdict is Verdict.FAIL
    left_open = (doubtful and not failed) or outcome.blocks_open
    factor = OPEN_NARROW_FACTOR if left_open else 1
    exact = replayed(base, factor) if narrow and not others else None
    if exact is None:
        return outcome
    modes = list(outcome.modes)

    def compared(*, many: bool) -> list[LowPrecisionResult]:
        low, seed = Evaluator(base), settings.seed
        return [compare_low_precision(low, exact, mode[0], seed, many=many) for mode in modes]

    results = compared(many=not failed)
    if any(one.different is not None for one in results):
        return outcome
    lost = any(one.value is not None for one in results)
    close = (failed or (coarse and doubtful)) and all(one.apart <= CLOSE_PART for one in results)
    if failed and (lost or close):  # otherwise it stays failed, whatever many points say
        results = compared(many=True)
    wrong = any(one.wrong for one in results)
    if failed and lost and not wrong and not close:
        outcome.findings = [
            replace(one, open=True) if one in doubtful else one for one in outcome.findings
        ]
        outcome.modes = dict.fromkeys(modes, Verdict.INCONCLUSIVE)
    elif (wrong and not failed) or (close and not wrong):
        outcome.findings = [one for one in outcome.findings if one not in doubtful]
        for count in (outcome.reached, outcome.decided):
            count[exact.name] += base.problem.X.size
        for tally in outcome.tallies:
            tally.resolution = min(tally.resolution, CLOSE_PART)
        for mode, found in zip(modes, results, strict=True):
            outcome.modes[mode] = Verdict.FAIL if found.wrong else Verdict.PASS
            outcome.findings += found.findings(Verdict.PASS)
    return outcome


def _narrower(base: Base, eps: float) -> Base:
    """The same, known to compute with the spacing `eps` at 1."""
    return replace(base.rounded(eps), problem=_with_eps(base.problem, eps))


def _with_eps(problem: Problem, eps: float) -> Problem:
    return replace(problem, X=problem.X.coarser(eps))


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
    outcome.add_compared(formula)
    outcome.probes, outcome.full = formula.probes, formula.full
    outcome.tolerance = formula.tolerance
    return outcome
