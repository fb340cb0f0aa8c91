"""This module judges every composition of modes that was asked for, in every way of the engine,
each of them once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter

import numpy as np

from adjudge._version import __version__
from adjudge.check.double_precision import (
    Composition,
    Derive,
    DoublePrecision,
    double_precision_of,
    judge_in_double,
    judge_past_casts,
    with_more_probes,
)
from adjudge.check.one_problem import (
    Judgement,
    estimator_of,
    judge_here_or_nearby,
    unsupported,
)
from adjudge.check.options import Settings
from adjudge.constants import COARSE_EPS, NATIVE_PROBES, WIDER_PROBES
from adjudge.engine import AutodiffBackend
from adjudge.errors import Catching, InputError, NotSupportedError, Source, source_of
from adjudge.estimate import Exact
from adjudge.findings import (
    DerivativeRaised,
    DrawsOthers,
    Finding,
    JudgedBy,
    Outcome,
    Raised,
    Status,
    ValueInWay,
    Verdict,
    outcome_of,
)
from adjudge.floats import Vector
from adjudge.jacobian import least_work, rounding_part
from adjudge.problem import (
    DIFFERENTIATING,
    Base,
    Forward,
    Probes,
    Problem,
    Reverse,
    Space,
    composed,
    observe,
    require_outputs,
)
from adjudge.properties import Identities
from adjudge.report import Provenance, combined


@dataclass(frozen=True)
class Judged:
    """A derivative at x, and the judgement of it."""

    base: Base
    outcome: Judgement


def near(space: Space, one: Vector, two: Vector) -> bool:
    """Says whether two points of a space are equal to rounding, leaf by leaf, and finite at the
    same entries.
    """
    for leaf, part in zip(space.leaves, space.slices, strict=True):
        a, b = one[part], two[part]
        if np.array_equal(a, b, equal_nan=True):
            continue
        size = np.max(np.abs(a), initial=0.0, where=np.isfinite(a))
        apart = np.abs(a - b) > rounding_part(leaf.eps) * size
        if np.any(apart) or not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return False
        if not np.array_equal(a[~np.isfinite(a)], b[~np.isfinite(a)], equal_nan=True):
            return False
    return True


def other_value(known: Judged, base: Base, way: str) -> list[Finding]:
    """Returns findings that the function has another value in this way than in the usual one, or
    an empty list where the values agree.
    """
    problem, Y = known.base.problem, known.base.Y
    probes = Probes(problem.X, Y, False, 0)
    identities = Identities(problem, known.base, probes, known.outcome.tolerance, 0.0)
    one, two = base.values[: Y.size], known.base.values[: Y.size]
    differ = partial(ValueInWay, way=way)
    return list(identities.equal(Status.INCONSISTENT, "", Y, (one, two, np.abs(two)), differ))


def same_as(letter: str, top: Problem, known: Judged) -> int | None:
    """Returns how many numbers, those of the value included, the mode `letter` of `top` has in
    common with `known`, the same derivative taken in another way. Returns 0 where any of them
    differs, or none is known, and `None` where the value itself does.
    """
    image = known.outcome.images.get(letter + top.modes_taken)
    if image is None:
        return 0
    base, (probe, known_image) = replace(known.base, problem=top), image
    if letter == "R":
        reverse = Reverse(top)
        value, found, space = reverse.value(base), reverse.row(base, probe), top.X
    else:
        value, found = Forward(top).column(base, probe)
        space = base.Y
    if not near(base.Y, base.values[: value.size], value):
        return None
    if not near(space, known_image, found):
        return 0
    return int(value.size + found.size)


def provenance_of(problem: Problem, settings: Settings, full: bool, note: str = "") -> Provenance:
    """Returns the provenance of the numbers of this check. `full` says that some Jacobian was
    compared in full, and `note` says how the judgements were made.
    """
    leaves = problem.X.leaves
    return Provenance(
        problem.backend.name,
        problem.backend.environment.version,
        __version__,
        np.__version__,
        "+".join(dict.fromkeys(map(attrgetter("info.device"), leaves))),
        "+".join(dict.fromkeys(map(attrgetter("info.dtype"), leaves))),
        settings.seed,
        "full" if full else "projected",
        ", ".join([*([note] if note else []), *problem.constraints]),
        isinstance(settings.reference, Exact),
    )


def add_to_row(row: dict[str, Outcome], more: Mapping[str, Outcome]) -> None:
    """Adds these outcomes of modes to those in `row`."""
    for mode, found in more.items():
        row[mode] = combined([found, row[mode]]) if mode in row else found


def row_of(outcomes: Sequence[Judgement]) -> dict[str, Outcome]:
    """Returns the outcome of each mode."""
    row: dict[str, Outcome] = {}
    for outcome in outcomes:
        for mode, verdict in outcome.modes.items():
            add_to_row(row, {mode: outcome_of(mode, verdict, outcome.findings)})
    return row


@dataclass(frozen=True)
class Way:
    """A way of taking derivatives: its name, and the problem whose engine takes them so."""

    name: str
    problem: Problem
    asked: bool
    """Whether the caller named the way. If so, the report says what it cannot do."""


@dataclass
class Matrix:
    """The judgements of each composition of modes, in the engine's usual way before the others.

    Compositions are grouped by the modes taken before the outermost one: `RR` and `FR` both
    differentiate the vjp, which is taken once for them.
    """

    problem: Problem
    settings: Settings
    modes: Sequence[str]
    double: DoublePrecision | None
    reports_exceptions: bool = True
    """Whether a derivative that raises is a finding. If not, its exception is raised again."""
    outcomes: list[Judgement] = field(default_factory=list)
    rows: dict[str, dict[str, Outcome]] = field(default_factory=dict)
    """The outcome of each mode, for each way of the engine."""
    _known: dict[str, Judged] = field(default_factory=dict)
    """The derivatives judged in the usual way, by the modes taken."""
    _not_running: set[str] = field(default_factory=set)
    """Ways in which f itself does not run."""
    _drawing: set[str] = field(default_factory=set)
    """Ways in which f draws other random numbers."""

    def _provenance(self, way: Way | None = None) -> Callable[[], str]:
        """Returns what says, in words, what the numbers of findings come from."""
        problem, settings = self.problem, self.settings
        ending = "" if way is None else f", {way.name}"
        return lambda: f"{provenance_of(problem, settings, False)}{ending}"

    def fill(self, ways: Sequence[Way]) -> None:
        """Judges all modes in the usual way, and in each of `ways` those that differ there.

        Raises `InputError` where the budget is too small for a comparison in each.
        """
        compositions = by_modes_taken(self.modes, self.settings)
        steps = compositions * (1 + len(ways))
        for k, (taken, settings) in enumerate(steps):
            share_budget(self.problem, steps, k)
            if k < len(compositions):
                self._judge_as_usual(taken, settings)
            else:
                self._judge_beside(ways[k // len(compositions) - 1], taken, settings)
        self._pass_over(ways)

    def with_each_precision(self, alone: Callable[[Sequence[str]], Matrix]) -> Matrix:
        """Returns the judgements with those of outputs that are known to more digits than others,
        each precision by itself, as `alone` makes them of outputs by name.

        Together they are judged by the coarsest. A float64 output beside a mask of float16 passed
        with an error of 5 %, or stayed open. What is open is judged by these alone.
        """
        known = next(iter(self._known.values()), None)
        if known is None:
            return self
        leaves = known.base.whole.leaves[-len(self.problem.output_names()) :]
        if len(leaves) == 1 or known.outcome.verdict is Verdict.FAIL:
            return self
        least = max((leaf.eps for leaf in self.problem.X.leaves), default=0.0)
        by_eps: dict[float, list[str]] = {}
        for leaf in leaves:
            by_eps.setdefault(max(leaf.eps, least), []).append(leaf.name)
        if len(by_eps) == 1:
            return self
        outputs = [by_eps[eps] for eps in sorted(by_eps)]
        passes = all(outcome.verdict is Verdict.PASS for outcome in self.outcomes)
        matrices = [self] if passes else []
        matrices += map(alone, outputs[:-1] if passes else outputs)
        for other in matrices[1:]:
            matrices[0].outcomes += other.outcomes
            for way, row in other.rows.items():
                add_to_row(matrices[0].rows.setdefault(way, {}), row)
        return matrices[0]

    # ---- The usual way

    def _judge_as_usual(self, taken: str, settings: Settings) -> None:
        known = self.rows.get(self.problem.backend.way, {})
        settings = replace(settings, of_wrong=known.get(taken) is Verdict.FAIL)
        if taken == "F" and known.get("RR") is Verdict.PASS:
            # What else a rule of the second order does was looked at there.
            settings = replace(settings, check_undefined_grad=False, thorough=False)
        composition = Composition(
            self.problem, taken, self._derivation(taken), self.double, self._provenance()
        )
        judge = judge_or_report if self.reports_exceptions else judge_composition
        outcome, base = judge(composition, settings)
        if base is not None:
            self._known[taken] = Judged(base, outcome)
        if self._leaves_open(taken, outcome, self.problem.backend.way):
            self._judge_as_usual(taken[1:], replace(settings, letters=taken[0]))
        self._add(self.problem.backend.way, outcome)

    def _leaves_open(self, taken: str, outcome: Judgement, way: str) -> bool:
        """Returns whether the judgement of a derivative leaves that open which it was taken of,
        and nobody else is to judge it in this way although the budget has room for it.

        The evaluations of a second derivative show the first one, and may not settle it. Without
        this the right second derivative of a GELU in a layer stayed open, and so did a wrong first
        one beside it.
        """
        judged = taken in self.modes or taken in self.rows.get(way, {})
        open_ = outcome.modes.get(taken) is Verdict.INCONCLUSIVE and not judged
        return open_ and self.problem.counts.allows(least_work(taken[1:], taken[0]))

    def _derivation(self, taken: str) -> Derive:
        """Returns the function that takes the derivative in the modes `taken`."""
        if not taken:
            return lambda same: same
        outputs = self._known[""].base.Y.leaves if "" in self._known else None
        return partial(composed, taken=taken, seed=self.settings.seed, outputs=outputs)

    # ---- Other ways

    def _judge_beside(self, way: Way, taken: str, settings: Settings) -> None:
        """Judges the outermost modes, on top of `taken`, in another way. Those that agree with the
        usual way have its verdict; the others are judged.
        """
        known, derive = self._known.get(taken), self._derivation(taken)
        left = settings
        if way.name in self._drawing:
            modes = [letter + taken for letter in settings.letters]
            self.rows.setdefault(way.name, {}).update(dict.fromkeys(modes, Status.UNSUPPORTED))
            return
        if known is not None:
            left = self._without_equal(way, derive, known, settings)
        if not left.letters:
            return
        double = double_precision_of(way.problem, self.settings)
        composition = Composition(way.problem, taken, derive, double, self._provenance(way))
        # Where f itself does not run, its derivatives cannot be taken and are not at fault.
        optional = not way.asked and (not taken or way.name in self._not_running)
        outcome, base = judge_or_report(composition, left, optional=optional)
        if not taken and optional and any(_does_not_run(finding) for finding in outcome.findings):
            self._not_running.add(way.name)
        if not taken and known is not None and base is not None:
            outcome.findings += other_value(known, base, way.name)
        outcome.findings = [replace(f, way=way.name) for f in outcome.findings]
        outcome.pairs = [replace(pair, way=way.name) for pair in outcome.pairs]
        if self._leaves_open(taken, outcome, way.name):
            self._judge_beside(way, taken[1:], replace(settings, letters=taken[0]))
        self._add(way.name, outcome)

    def _without_equal(
        self, way: Way, derive: Derive, known: Judged, settings: Settings
    ) -> Settings:
        """Compares the derivatives of `known` with the same ones taken in another way, and returns
        the settings for those that differ. The others have the verdict that the usual way has.

        A function that draws random numbers may draw others in this way from the same state, as an
        engine fills arrays of another layout in another order. It is another function then, and
        there is nothing to compare.
        """
        taken, left = known.base.problem.modes_taken, settings
        usual = self.rows[self.problem.backend.way]
        with Catching(NotSupportedError) as caught:
            problem = derive(way.problem)
            for letter in settings.letters:
                mode = letter + taken
                if isinstance(usual.get(mode), Verdict):
                    compared = same_as(letter, problem, known)
                    if compared is None and problem.counts.before_evaluation is not None:
                        detail = DrawsOthers(way.name)
                        note = Finding(Status.DRAWS_RANDOM, taken, "", detail, note=True)
                        if note not in known.outcome.findings:
                            known.outcome.findings.append(note)
                        self._drawing.add(way.name)
                        self.rows.setdefault(way.name, {})[mode] = Status.UNSUPPORTED
                        left = _without(left, letter)
                    elif compared:
                        known.outcome.identities += compared
                        self.rows.setdefault(way.name, {})[mode] = usual[mode]
                        left = _without(left, letter)
        if caught.error is not None and not isinstance(caught.error, NotSupportedError):
            return settings  # The exception is met again, and reported, where the mode is judged.
        return left

    def _add(self, way: str, outcome: Judgement) -> None:
        for mode, verdict in self.rows.get(way, {}).items():
            if verdict is Verdict.PASS:
                outcome.leave_out_open(mode)
        self.outcomes.append(outcome)
        add_to_row(self.rows.setdefault(way, {}), row_of([outcome]))

    def _pass_over(self, ways: Sequence[Way]) -> None:
        """Makes a note of each mode that is not offered in one way and judged in another, unless
        the caller named a way in which nothing can be judged.
        """
        for outcome in self.outcomes:
            for k, finding in enumerate(outcome.findings):
                where = [
                    w for w, row in self.rows.items() if isinstance(row.get(finding.mode), Verdict)
                ]
                named = any(way.asked for way in ways if way.name == finding.way)
                barren = named and not any(
                    isinstance(o, Verdict) for o in self.rows[finding.way].values()
                )
                if finding.status is Status.UNSUPPORTED and where and not barren:
                    judged_by = JudgedBy(tuple(where))
                    outcome.findings[k] = replace(finding, note=True, remedy=judged_by)
                    outcome.modes.pop(finding.mode, None)


def _does_not_run(finding: Finding) -> bool:
    """Says whether the finding is an exception of a way in which the function does not run."""
    refused = isinstance(finding.cause, NotSupportedError)
    return finding.status is Status.UNSUPPORTED and finding.cause is not None and not refused


def _without(settings: Settings, letter: str) -> Settings:
    return replace(settings, letters=settings.letters.replace(letter, ""))


def by_modes_taken(modes: Sequence[str], settings: Settings) -> list[tuple[str, Settings]]:
    """Returns the modes taken before the outermost derivative of `modes`, which are in order, each
    with the settings that say in which modes the outermost derivative is to be judged.
    """
    found: list[tuple[str, Settings]] = []
    for taken in dict.fromkeys([mode[1:] for mode in modes]):
        letters = "R" * ("R" + taken in modes) + "F" * ("F" + taken in modes)
        same = letters == settings.letters
        found.append((taken, settings if same else replace(settings, letters=letters)))
    return found


def share_budget(problem: Problem, steps: Sequence[tuple[str, Settings]], k: int) -> None:
    """Sets the budget of one of several compositions, as a share of what is left in proportion to
    need.

    Raises `InputError` where the whole budget is too small for a comparison in each.
    """
    budget = steps[k][1].max_evaluations
    if budget is None:
        return
    needs = [least_work(taken, settings.letters) for taken, settings in steps]
    if budget < sum(needs):
        raise InputError(
            f"max_evaluations={budget} has no room for a single comparison in each mode",
            f"give at least {sum(needs)}, or None for no limit",
        )
    left = budget - problem.counts.spent
    problem.counts.limit = problem.counts.spent + left * needs[k] // sum(needs[k:])


def judge_or_report(
    composition: Composition, settings: Settings, *, optional: bool = False
) -> tuple[Judgement, Base | None]:
    """Judges a composition as `judge_composition` does, and reports RAISED for a mode whose
    derivative raises.

    Raises the exceptions of the function itself, unless it is `optional` that it runs in this way
    of the engine; the modes are then UNSUPPORTED.
    """
    with Catching() as caught:
        return judge_composition(composition, settings)
    error, taken = caught.error, composition.taken
    assert error is not None
    differentiating = composition.problem.counts.purpose in DIFFERENTIATING
    differentiating |= source_of(error) is Source.DERIVATIVE  # between two evaluations of f, say
    if not taken and not optional and not differentiating:
        raise error
    calls = composition.problem.calls
    if taken and not optional and calls is not None and calls.result is None:
        observe(composition.problem)  # what raises may be f itself, and no rule
    if len(settings.letters) > 1:
        alone = [replace(settings, letters=letter) for letter in settings.letters]
        parts = [judge_or_report(composition, one, optional=optional) for one in alone]
        return joined([outcome for outcome, _ in parts]), None
    mode = settings.letters + taken
    status = Status.UNSUPPORTED if optional else Status.RAISED
    outcome, detail = Judgement(), DerivativeRaised(Raised.of(error), optional)
    outcome.findings.append(Finding(status, mode, "", detail, cause=error))
    outcome.modes[mode] = outcome.findings[-1].verdict
    return outcome, None


def joined(parts: Sequence[Judgement]) -> Judgement:
    """Joins several judgements of one problem into the first, and returns it."""
    whole = parts[0]
    for part in parts[1:]:
        whole.findings += [finding for finding in part.findings if finding not in whole.findings]
        whole.modes |= part.modes
        whole.add_compared(part)
        whole.probes += part.probes
        whole.images |= part.images
    return whole


def judge_composition(
    composition: Composition, settings: Settings
) -> tuple[Judgement, Base | None]:
    """Takes the derivative of a composition, and judges its outermost modes. Returns the judgement,
    and the derivative at x; where the engine cannot take it, it is `None` and the modes are
    UNSUPPORTED.
    """
    try:
        base = observe(composition.derive(composition.problem))
        if settings.reference is not None:  # it may lack this order
            estimator_of(base, settings)
    except NotSupportedError as error:
        outcome = Judgement()
        for letter in settings.letters:
            mode = letter + composition.taken
            outcome.findings.append(unsupported(mode, error))
            outcome.modes[mode] = outcome.findings[-1].verdict
        return outcome, None
    require_outputs(base)
    return judged(composition, base, settings), base


def judged(composition: Composition, base: Base, settings: Settings) -> Judgement:
    """Judges the problem of `base`, the derivative of the composition: in double precision as well
    where something in it is narrower.
    """
    if composition.double is None:
        exact = isinstance(settings.reference, Exact)
        found = judge_past_casts(composition, base, settings) if exact else None
        if found is not None:
            return found
        outcome = judge_here_or_nearby(base, settings, composition.provenance)
        # Outputs of sixteen bits among others are judged apart, and a FAIL stands.
        t = outcome.tolerance
        vague = outcome.coarse or (t.automatic and not t.double)
        vague = vague and outcome.verdict is not Verdict.FAIL
        whole = base.problem.widened is None and base.coarsest_eps <= COARSE_EPS
        if settings.reference is None and vague and whole:
            found = judge_past_casts(composition, base, settings)
            if found is not None:
                return found
        if settings.reference is None and not t.double:
            count = NATIVE_PROBES if t.eps > COARSE_EPS else WIDER_PROBES
            outcome = with_more_probes(outcome, base, settings, composition.provenance, count)
        return outcome
    return judge_in_double(composition, composition.double, base, settings)


def ways_of(problem: Problem) -> list[Way]:
    """Returns the engine's other ways of taking derivatives."""

    def by(backend: AutodiffBackend) -> Problem:
        widened = problem.widened
        if widened is None:
            return replace(problem, backend=backend)
        return replace(
            problem, backend=backend, widened=lambda to: replace(widened(to), backend=backend)
        )

    return [Way(backend.way, by(backend), False) for backend in problem.backend.ways()]
