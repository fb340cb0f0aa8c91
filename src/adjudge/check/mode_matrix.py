"""Every composition of modes that was asked for, in every way of the engine, each judged once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from adjudge.check.double_precision import DoublePrecision, Make, double_precision_of, judged
from adjudge.check.equivalence import (
    Judged,
    forward_by_reverse,
    hessian_by_forward,
    inherited,
    other_value,
    same_as,
    shared_tangent,
)
from adjudge.check.one_problem import Judgement, Part, judge, unsupported
from adjudge.check.options import Settings
from adjudge.check.summary import provenance_of, rows_of
from adjudge.engine import AutodiffBackend
from adjudge.errors import Catching, InputError, NotSupportedError
from adjudge.estimate import coarsest_eps
from adjudge.findings import (
    DerivativeRaised,
    Finding,
    JudgedBy,
    Outcome,
    Raised,
    Status,
    Verdict,
    worst,
)
from adjudge.floats import Vector
from adjudge.jacobian import least_work
from adjudge.problem import (
    COTANGENT,
    DIFFERENTIATING,
    Base,
    Problem,
    composed,
    observe,
    require_outputs,
)
from adjudge.report import combined, place


@dataclass(frozen=True)
class Way:
    """One way of taking derivatives: its name, and the problem whose engine goes it."""

    name: str
    problem: Problem
    asked: bool
    """Whether the caller named it: then what it cannot do is not passed over."""


@dataclass
class Matrix:
    """What was found for each composition of modes, in the engine's usual way before the others."""

    problem: Problem
    settings: Settings
    words: Sequence[str]
    double: DoublePrecision | None
    guards: bool = True
    """Whether a derivative that raises is a finding; else its exception comes through."""
    outcomes: list[Judgement] = field(default_factory=list)
    rows: dict[str, dict[str, Outcome]] = field(default_factory=dict)
    _found: dict[str, Judged] = field(default_factory=dict)
    _along: Vector | None = None
    _barred: set[str] = field(default_factory=set)

    def fill(self, ways: Sequence[Way]) -> None:
        """Judges all words in the usual way, and in each of `ways` what differs there."""
        compositions = by_modes_taken(self.words, self.settings)
        steps = [("", taken, chosen) for taken, chosen in compositions]
        steps += [(way.name, taken, chosen) for way in ways for taken, chosen in compositions]
        by_name = {way.name: way for way in ways}
        for (name, taken, chosen), _ in zip(
            steps, shares(self.problem, [step[1:] for step in steps]), strict=True
        ):
            if name:
                self._beside(by_name[name], taken, chosen)
            else:
                self._usual(taken, chosen)
        self._pass_over(by_name)

    # -- the usual way

    def _usual(self, taken: str, chosen: Settings) -> None:
        words = str(provenance_of(self.problem, self.settings, False))
        if taken == "F":
            chosen = self._by_agreement(self.problem, chosen, words, "")
        if chosen.letters:
            judge_on = guarded if self.guards else composition
            found = judge_on(self.problem, taken, chosen, words, self.double, self._make(taken))
            if found.base is not None:
                self._found[taken] = Judged(found.top, found.base, found.outcome)
            self._add(self.problem.backend.way, found.outcome)

    def _make(self, taken: str) -> Make:
        if not taken.endswith("F"):
            return partial(composed, taken=taken, seed=self.settings.seed)
        outputs = self._found[""].base.Y.leaves if "" in self._found else None
        seed, along = self.settings.seed, self._along
        return partial(composed, taken=taken, seed=seed, tangent=along, outputs=outputs)

    def _by_agreement(self, problem: Problem, chosen: Settings, words: str, way: str) -> Settings:
        """Which of RF and FF are left to be judged by differences, after what agrees with RR."""
        known, row = self._found.get("R"), self.rows.get(way or problem.backend.way, {})
        if known is None or row.get("RR") is not Verdict.PASS:
            return chosen
        along = shared_tangent(known, chosen.seed)
        if along is None:
            return chosen
        self._along = along[: self.problem.X.size]
        with Catching(NotSupportedError) as caught:
            top = self._make("F")(problem)
            base = observe(top)
            # at the cotangent of `known`, to see the same Hessian
            at_w = replace(
                chosen,
                seed=chosen.seed + COTANGENT,
                check_undefined_grad=False,
                thorough=False,
            )
            outcome = judge(top, base, at_w, words, Part.IDENTITIES)
            agreed = self._agreed(known, top, base, outcome, chosen)
        if caught.error is not None:  # it is met again, and reported, where the mode is judged
            return chosen
        left = chosen
        for mode in set(outcome.modes) | set(agreed):  # not offered, or compared
            left = _without(left, mode[0])
        for mode, compared in agreed.items():
            own = [f.verdict for f in outcome.findings if f.mode in (mode, "F")]
            outcome.modes.setdefault(mode, worst([Verdict.PASS, *own]))
            outcome.tallies.append(inherited(mode, compared, coarsest_eps(top, base)))
        # what is to be judged once more says its identities there
        again = [letter + "F" for letter in left.letters]
        outcome.findings = [f for f in outcome.findings if f.mode not in again]
        if not way:
            self._found["F"] = Judged(top, base, outcome)
        if outcome.modes or outcome.findings:  # else nothing is settled, and all is judged again
            self._add(way or problem.backend.way, outcome)
        return left

    def _agreed(
        self, known: Judged, top: Problem, base: Base, outcome: Judgement, chosen: Settings
    ) -> dict[str, int]:
        """Which of RF and FF agree, with how many numbers."""
        agreed: dict[str, int] = {}
        row = outcome.images.get("RF")
        if row is not None:
            agreed["RF"] = hessian_by_forward(known, top, base, row)
        elif "F" in self._found and self.rows[self.problem.backend.way].get("RF") is Verdict.PASS:
            # in another way, where RF agrees with that of the usual one: a wrong RF acquits nothing
            row = self._found["F"].outcome.images.get("RF")
        column = outcome.images.get("FF")
        if row is not None and column is not None and agreed.get("RF", 1):
            agreed["FF"] = forward_by_reverse(top, base, row, column, chosen.seed)
        return {mode: compared for mode, compared in agreed.items() if compared}

    # -- other ways

    def _beside(self, way: Way, taken: str, chosen: Settings) -> None:
        """The outermost modes, on top of `taken`, in another way: those that agree have the verdict
        of the usual one, the others are judged.
        """
        known, usual = self._found.get(taken), self.rows[self.problem.backend.way]
        make, left = self._make(taken), chosen
        if known is not None:
            with Catching(NotSupportedError) as caught:
                top = make(way.problem)
                for letter in chosen.letters:
                    mode = letter + taken
                    if isinstance(usual.get(mode), Verdict):
                        compared = same_as(letter, top, known)
                        if compared:
                            known.outcome.identities += compared
                            self.rows.setdefault(way.name, {})[mode] = usual[mode]
                            left = _without(left, letter)
            if caught.error is not None and not isinstance(caught.error, NotSupportedError):
                left = chosen  # it is met again, and reported, where the mode is judged
        words = f"{provenance_of(self.problem, self.settings, False)}, {way.name}"
        if taken == "F" and left.letters and way.name in self.rows:
            left = self._by_agreement(way.problem, left, words, way.name)
        if not left.letters:
            return
        double = double_precision_of(way.problem, self.settings)
        # where f itself does not run, its derivatives are not to be had, and not at fault
        beside = not way.asked and (not taken or way.name in self._barred)
        found = guarded(way.problem, taken, left, words, double, make, beside=beside)
        outcome = found.outcome
        if not taken and beside and any(_does_not_run(finding) for finding in outcome.findings):
            self._barred.add(way.name)
        if not taken and known is not None and found.base is not None:
            outcome.findings += other_value(known, found.base, way.name)
        outcome.findings = [replace(f, way=way.name) for f in outcome.findings]
        self._add(way.name, outcome)

    def _add(self, way: str, outcome: Judgement) -> None:
        self.outcomes.append(outcome)
        row = self.rows.setdefault(way, {})
        for mode, found in rows_of([outcome]).items():
            row[mode] = combined([found, row.get(mode, found)])

    def _pass_over(self, ways: Mapping[str, Way]) -> None:
        """What is not offered in one way, and offered in another, is a note: unless the caller
        named a way in which nothing can be judged.
        """
        for outcome in self.outcomes:
            for k, finding in enumerate(outcome.findings):
                where = [
                    w for w, row in self.rows.items() if isinstance(row.get(finding.mode), Verdict)
                ]
                named = finding.way in ways and ways[finding.way].asked
                barren = named and not any(
                    isinstance(o, Verdict) for o in self.rows[finding.way].values()
                )
                if finding.status is Status.UNSUPPORTED and where and not barren:
                    judged_by = JudgedBy(tuple(where))
                    outcome.findings[k] = replace(finding, note=True, remedy=judged_by)
                    outcome.modes.pop(finding.mode, None)


@dataclass(frozen=True)
class Found:
    """A judgement, with the problem that was judged where it could be made."""

    top: Problem
    base: Base | None
    outcome: Judgement


def _does_not_run(finding: Finding) -> bool:
    """Whether this is an exception of a way in which the function does not run."""
    refused = isinstance(finding.cause, NotSupportedError)
    return finding.status is Status.UNSUPPORTED and finding.cause is not None and not refused


def _without(settings: Settings, letter: str) -> Settings:
    return replace(settings, letters=settings.letters.replace(letter, ""))


def by_modes_taken(words: Sequence[str], settings: Settings) -> list[tuple[str, Settings]]:
    """By the modes taken before: in which modes the outermost derivative is to be judged."""
    before = dict.fromkeys(word[1:] for word in sorted(words, key=place))
    return [
        (taken, replace(settings, letters="".join(c for c in "RF" if c + taken in words)))
        for taken in before
    ]


def shares(problem: Problem, steps: Sequence[tuple[str, Settings]]) -> Iterator[None]:
    """Sets the budget of one composition after the other: what is left, in proportion to need.

    Raises `InputError` where the whole is too small for a comparison in each.
    """
    budget = steps[0][1].max_evaluations
    needs = [least_work(taken, one.letters) for taken, one in steps]
    if budget is not None and budget < sum(needs):
        raise InputError(
            f"max_evaluations={budget} has no room for a single comparison in each mode",
            f"give at least {sum(needs)}, or None for no limit",
        )
    for k, need in enumerate(needs):
        if budget is not None:
            left = budget - problem.counts.spent
            problem.counts.limit = problem.counts.spent + left * need // sum(needs[k:])
        yield


def guarded(
    problem: Problem,
    taken: str,
    settings: Settings,
    words: str,
    double: DoublePrecision | None,
    make: Make,
    *,
    beside: bool = False,
) -> Found:
    """`composition`, with RAISED for a mode whose derivative raises.

    What the function itself raises comes through, but `beside` the engine's usual way: there it
    says that the function does not run in this way.
    """
    with Catching() as caught:
        return composition(problem, taken, settings, words, double, make)
    error = caught.error
    assert error is not None
    if not taken and not beside and problem.counts.purpose not in DIFFERENTIATING:
        raise error
    if len(settings.letters) > 1:
        parts = [
            guarded(
                problem,
                taken,
                replace(settings, letters=letter),
                words,
                double,
                make,
                beside=beside,
            )
            for letter in settings.letters
        ]
        return Found(parts[0].top, None, _joined([part.outcome for part in parts]))
    mode = settings.letters + taken
    status = Status.UNSUPPORTED if beside else Status.RAISED
    outcome, detail = Judgement(), DerivativeRaised(Raised.of(error), beside)
    outcome.findings.append(Finding(status, mode, "", detail, cause=error))
    outcome.modes[mode] = outcome.findings[-1].verdict
    return Found(problem, None, outcome)


def _joined(parts: Sequence[Judgement]) -> Judgement:
    whole = parts[0]
    for part in parts[1:]:
        whole.findings += [finding for finding in part.findings if finding not in whole.findings]
        whole.modes |= part.modes
        whole.tallies += part.tallies
        whole.identities += part.identities
        whole.probes += part.probes
        whole.images |= part.images
    return whole


def composition(
    problem: Problem,
    taken: str,
    settings: Settings,
    words: str,
    double: DoublePrecision | None,
    make: Callable[[Problem], Problem],
    *,
    alone: bool = False,
) -> Found:
    """The judgement of the outermost modes; `make` takes the derivatives below them, in the modes
    `taken`. `alone`: no other composition is judged.
    """
    try:
        top = make(problem)
        base = observe(top)
    except NotSupportedError as error:
        outcome = Judgement()
        if alone and taken == "R":  # then the first derivative can be judged at least
            outcome = judged(problem, observe(problem), settings, words, double, lambda same: same)
        for letter in settings.letters:
            mode = letter + taken
            outcome.findings.append(unsupported(mode, error))
            outcome.modes[mode] = outcome.findings[-1].verdict
        return Found(problem, None, outcome)
    require_outputs(base)
    return Found(top, base, judged(top, base, settings, words, double, make))


def ways_of(problem: Problem) -> list[Way]:
    """The engine's other ways of taking derivatives."""

    def by(backend: AutodiffBackend) -> Problem:
        in_double = problem.in_double
        if in_double is None:
            return replace(problem, backend=backend)
        return replace(
            problem, backend=backend, in_double=lambda: replace(in_double(), backend=backend)
        )

    return [Way(backend.way, by(backend), False) for backend in problem.backend.ways()]
