"""One problem judged: its derivatives against differences, and all else that is asked of them.

Three functions make a judgement, and each can be read from top to bottom. `judge` makes the whole
of it. The other two share it out between two precisions of one function: `judge_properties` leaves
out what needs differences, and is made of the function as it was given; `judge_differences` leaves
out everything else, and is made of the function in double precision. Where a kink at x leaves the
answer open, `judge_here_or_nearby` asks for it again at points where f is smooth.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import product
from operator import attrgetter
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from adjudge.check.options import Settings
from adjudge.constants import (
    COARSE_EPS,
    COARSE_RESOLUTION,
    CONFIRMING_EVALUATIONS,
    DEFECT_STEPS,
    EXTRA_RUNS,
    FULL_MODE,
    FULL_MODE_BY_REFERENCE,
    KINK_REACH,
    KINK_REACH_REDUCTION,
    KINK_REACHES,
    LASTING_UNITS,
    LOST_DIGITS,
    MOVES_SHORTER,
    NARROW_KINK_REACH,
    ONE_SIDED,
    PAIRS_BESIDE_KINK,
    POINTS_BESIDE_KINK,
    ROOM_FOR_LAYOUTS,
    RUNS_APART,
    SETS_THAT_BEND,
    TRACED_PROJECTIONS,
)
from adjudge.errors import Catching, NotSupportedError, attempt
from adjudge.estimate import (
    SIGNIFICANT_BITS,
    ByReference,
    Differences,
    Estimator,
    Exact,
    by_reference,
)
from adjudge.findings import (
    BatchNotMade,
    Beyond,
    CarriesLess,
    CoarseAgreement,
    Disagreement,
    Entry,
    Finding,
    ImplicitSamples,
    LayoutMatters,
    LayoutRaised,
    Nearby,
    NothingCompared,
    NotHomogeneous,
    NotSupported,
    Pair,
    Raised,
    Remedy,
    Rule,
    RuleLosesDigits,
    Status,
    Task,
    Unrepeatable,
    Verdict,
    worst,
)
from adjudge.floats import Vector, scale
from adjudge.jacobian import (
    ENTRY_WORK,
    Affine,
    Columns,
    Failure,
    Table,
    Tally,
    Tolerance,
    compare_one_sided,
    findings_of,
    identity_findings,
    least_work,
    mode_verdict,
)
from adjudge.problem import (
    Base,
    Forward,
    Probes,
    Problem,
    Purpose,
    Reverse,
    Stream,
    evaluate,
    generator,
    leave_out,
    observe,
    random_entries,
)
from adjudge.properties import (
    Identities,
    Images,
    Pullbacks,
    Pushforwards,
    SparsityPattern,
    another_function,
    asymmetries,
    detect_cache,
    evaluate_again,
    explained_by_cache,
    open_for_cache,
)
from adjudge.report import LikelyMistakes, Located, SearchWork, locate_entries


def overflows(finding: Finding) -> bool:
    """Returns whether the finding is that the image of a large probe is not finite."""
    detail = finding.detail
    return isinstance(detail, NotHomogeneous) and not math.isfinite(detail.one)


@dataclass
class Judgement:
    """Everything found about one problem."""

    findings: list[Finding] = field(default_factory=list)
    modes: dict[str, Verdict] = field(default_factory=dict)
    tallies: list[Tally] = field(default_factory=list)
    identities: int = 0
    probes: int = 0
    full: bool = False
    tolerance: Tolerance = field(default_factory=lambda: Tolerance(0.0))
    undecidable: set[str] = field(default_factory=set)
    """Modes that nothing but another x can settle."""
    images: dict[str, tuple[Vector, Vector]] = field(default_factory=dict)
    """Maps a mode to a probe and to what the rule made of it, with which other modes and ways
    must agree."""
    reached: Counter[str] = field(default_factory=Counter)
    """How many columns each stage was tried on."""
    decided: Counter[str] = field(default_factory=Counter)
    """Each stage decided this many columns."""
    beyond: set[Beyond] = field(default_factory=set)
    """What was looked at that nobody asked for by name."""
    past_casts: bool = False
    """Whether f was judged without its own conversions to narrower dtypes, unasked by `double`."""
    blocks_open: bool = False
    """Whether a block of entries by itself disagrees, and differences do not prove it wrong."""
    pairs: list[Pair] = field(default_factory=list)
    """The pairs of outputs and inputs of each mode in which some comparison does not agree."""

    def add_compared(self, other: Judgement) -> None:
        """Adds what another judgement has compared and looked at, without its findings."""
        self.tallies += other.tallies
        self.pairs += other.pairs
        self.reached.update(other.reached)
        self.decided.update(other.decided)
        self.identities += other.identities
        self.beyond |= other.beyond

    def leave_out_open(self, mode: str) -> None:
        """Leaves out what is open in a mode that has passed by itself.

        The evaluations of a second derivative show the first one as well, and can prove it wrong.
        They open nothing: the first derivative was asked with means that these lack, such as a
        replay in float64. Without this a right derivative stayed open beside a second one.
        """
        if self.modes.get(mode) is Verdict.INCONCLUSIVE:
            del self.modes[mode]
            self.tallies = [one for one in self.tallies if one.mode != mode]
            self.findings = [one for one in self.findings if one.mode != mode or one.note]

    @property
    def coarse(self) -> bool:
        """Whether this did not pass, or shows no more than numbers of sixteen bits would."""
        shown = max([0.0, *[one.resolution for one in self.tallies]])
        return shown > COARSE_EPS or self.verdict is not Verdict.PASS

    @property
    def verdict(self) -> Verdict:
        """The worst of all modes and findings."""
        return worst([*self.modes.values(), *map(attrgetter("verdict"), self.findings)])


def judge(base: Base, settings: Settings, provenance: Callable[[], str]) -> Judgement:
    """Judges the problem of `base` in all that `settings` ask for; `provenance` says in words what
    the numbers of findings come from.
    """
    case = _Case(base, settings)
    case.require_finite_values()
    case.measure_noise()
    case.try_rules()
    if case.is_noise():
        return case.found
    case.tell_left_out()
    case.try_layouts()
    if case.is_the_function_of_the_reference():
        case.compare_with_differences()
    case.check_reverse_rule()
    case.check_forward_rule()
    case.look_for_entries_not_read()
    case.trace_projections()
    case.look_at_kinks()
    exact = case.compare_exactly()
    case.conclude_comparisons(provenance)
    case.conclude_modes()
    if case.found.findings:
        case.look_for_hidden_noise()
    case.found.findings.sort(key=exact.__contains__)  # an entry says more than an identity
    return case.found


def judge_properties(base: Base, settings: Settings) -> Judgement:
    """Judges what needs no differences: f at x, and how its rules behave."""
    case = _Case(base, settings)
    case.require_finite_values()
    case.measure_noise()
    case.try_rules()
    if case.is_noise():
        return case.found
    case.tell_left_out()
    case.try_layouts()
    case.is_the_function_of_the_reference()
    case.check_reverse_rule()
    case.check_forward_rule()
    case.conclude_modes()
    return case.found


def judge_differences(base: Base, settings: Settings, provenance: Callable[[], str]) -> Judgement:
    """Judges the derivatives by differences, and looks at nothing else."""
    case = _Case(base, settings)
    case.take_rules()
    case.compare_with_differences()
    case.look_for_entries_not_read()
    case.trace_projections()
    case.look_at_kinks()
    exact = case.compare_exactly()
    case.conclude_comparisons(provenance)
    case.conclude_modes()
    case.found.findings.sort(key=exact.__contains__)
    return case.found


Judge: TypeAlias = Callable[[Base, Settings, Callable[[], str]], Judgement]
"""`judge` or `judge_differences`."""


def judge_here_or_nearby(
    base: Base, settings: Settings, provenance: Callable[[], str], judge: Judge = judge
) -> Judgement:
    """Judges at x and, where a kink or a jump leaves that open, again at two points nearby.

    The points lie on opposite sides of x in every coordinate. A derivative that is wrong there
    fails. One that is right there, and lies between the one-sided slopes at x, passes with a
    note. At a jump no value is right, and the question stays open.
    """
    outcome = judge(base, settings, provenance)
    if not outcome.findings or outcome.verdict is Verdict.FAIL:
        return outcome
    problem = base.problem
    open_ = {f.mode for f in outcome.findings if f.status is Status.NONSMOOTH and not f.note}
    open_.discard(problem.modes_taken)  # it is judged by itself
    if not open_:
        return outcome
    needed = least_work(problem.modes_taken, settings.letters)
    if not problem.counts.allows(needed):
        return outcome
    closer = replace(
        settings,
        letters="".join(c for c in settings.letters if c + problem.modes_taken in open_)
        or settings.letters,
        full=settings.full and problem.X.size + base.Y.size <= FULL_MODE,
        check_undefined_grad=False,
        check_batched_grad=False,
        check_batched_forward_grad=False,
        thorough=False,
    )
    judged: list[Judgement] = []
    moves, reach = outputs_that_move(base, settings.seed), _reach(problem)
    of_pair: list[Judgement] = []
    still = moves
    for number, (there, part) in enumerate(points_beside_kink(base, settings.seed)):
        seed = settings.seed + 101 + number
        if not problem.counts.allows(needed):
            break
        of_pair.append(judge(there, replace(closer, seed=seed), provenance))
        if of_pair[-1].verdict is Verdict.FAIL:
            judged, reach = [*judged, of_pair[-1]], part
            break
        still = still & ~outputs_that_move(there, seed)
        if len(of_pair) < POINTS_BESIDE_KINK:
            continue
        if not (_settled(of_pair) and np.any(still)):
            judged, reach = [*judged, *of_pair], part
        of_pair, still = [], moves
        if _settled(judged) or len(judged) == PAIRS_BESIDE_KINK * POINTS_BESIDE_KINK:
            break
    # the search for what bends may cost half of what the check has cost
    sets = min(SETS_THAT_BEND, problem.counts.spent // 8)
    if _settled(judged) and problem.counts.allows(needed + 4 * sets):
        alone = [
            judge(there, replace(closer, seed=settings.seed + 99 + k), provenance)
            for k, there in enumerate(beside_where_it_bends(base, settings.seed, sets))
        ]
        if alone and all(there.verdict is Verdict.FAIL for there in alone):
            judged.append(alone[0])
    _combined(outcome, judged, open_, reach)
    return outcome


class _Case:
    """One judgement on its way: the steps that the three functions above are made of."""

    def __init__(self, base: Base, settings: Settings) -> None:
        """Evaluates nothing but what `leave_out` needs."""
        problem = base.problem
        if not base.finite:
            needed = least_work(problem.modes_taken, settings.letters)
            if problem.counts.allows(needed + 4):
                base = leave_out(base, settings.seed)
        self.problem, self.base, self.settings = problem, base, settings
        full = settings.full
        if full is None:
            most = FULL_MODE if settings.reference is None else FULL_MODE_BY_REFERENCE
            full = problem.X.size + base.Y.size <= most
        self.tolerance = Tolerance(
            base.coarsest_eps,
            settings.rtol,
            settings.atol,
            settings.equal_nan,
            settings.rounded,
            settings.constants,
            settings.of_x,
            exact=isinstance(settings.reference, Exact),
        )
        self.probes = Probes(problem.X, base.Y, full, settings.seed)
        self.identities = Identities(
            problem, base, self.probes, self.tolerance, settings.nondet_tol
        )
        self.found = Judgement(full=full, tolerance=self.tolerance)
        self.reverse: Reverse | None = None
        self.pullbacks: Pullbacks | None = None
        """What is asked of reverse mode without differences, where it was tried."""
        self.row: Vector | None = None
        """What reverse mode makes of the cotangent of the probes, where it was taken."""
        self.forward: Forward | None = None
        self.in_life: Images | None = None
        """What the vjp makes of cotangents as they come in life."""
        self.located: dict[tuple[object, ...], Located] = {}
        """By projection, the wrong entries that were found before it was judged further."""
        self.traced: dict[str, Located] = {}
        """By mode, the wrong entries that its projections were traced to."""
        self.work: SearchWork | None = None
        """How much more may be spent on wrong entries, once one was looked for."""

    # -- f at x

    def require_finite_values(self) -> None:
        """Finds values of f that are not finite at x."""
        if not self.base.finite or self.base.poles is not None:
            self.found.findings += self.identities.finite()

    def tell_left_out(self) -> None:
        """Tells of values that are not finite at x or beside it, and are compared nowhere."""
        self.found.findings += self.identities.left_out(self._claims)
        self.found.findings += self.identities.input_left_out()

    def _claims(self, outputs: NDArray[np.bool_]) -> bool:
        """Returns whether a rule gives these outputs a derivative."""
        base = replace(self.base, omitted=None)
        if self.reverse is not None:
            w = np.where(outputs, self.probes.cotangent, 0.0)
            return bool(self.reverse.row(base, w).any())
        if self.forward is None:
            return False
        v = self.probes.tangent(self.problem.origin).vector
        return bool(self.forward.column(base, v)[1][outputs].any())

    def measure_noise(self) -> None:
        """Measures by how much f may differ from call to call, where the caller allows it to: that
        widens the error bars.
        """
        if self.settings.nondet_tol == 0:
            return
        second = evaluate_again(self.problem, self.base)
        differing = self.identities.nondeterminism(second)
        self.found.findings += [finding for finding in differing if finding.note]
        self.base = replace(self.base, noise=RUNS_APART * self.identities.difference_from(second))
        self.identities.base = self.base
        self.tolerance = replace(self.tolerance, noisy=self.base.noise > 0)

    def is_the_function_of_the_reference(self) -> bool:
        """Finds a reference that has another value at x than f; its derivative says nothing. Where
        there is no reference there is nothing to find.
        """
        table = self.table  # it has to know the budget before anything is spent
        estimator = table.columns.estimator
        if not isinstance(estimator, ByReference):
            return True
        other = another_function(
            estimator.reference, self.problem, self.base, table.tolerance, self.probes.seed
        )
        self.found.findings += other
        return not other

    # -- the rules of the engine

    def take_rules(self) -> None:
        """Takes the rules as they are, with the row that the table begins with."""
        if "R" in self.settings.letters:
            self.reverse = self.base.reverse
            pullbacks = Pullbacks(self.identities, self.reverse)
            self.row = self.reverse.row(self.base, pullbacks.cotangent)
        if "F" in self.settings.letters:
            self.forward = Forward(self.problem)

    def try_rules(self) -> None:
        """Takes the rules, and finds what they do beside their numbers: metadata, purity, zero at
        zero, linearity in one probe. A rule that the engine lacks is a finding.
        """
        if "R" in self.settings.letters:
            self._try_reverse()
        if "F" in self.settings.letters:
            self._try_forward()
        if self.settings.nondet_tol:
            self.tolerance = replace(self.tolerance, spread=self.identities.tolerance.spread)
            self.found.tolerance = self.tolerance

    def is_noise(self) -> bool:
        """Returns whether two evaluations of f differ by more than rounding, and more than is
        allowed. All that follows would be measured on noise, so that this finding stands alone.
        """
        found, noise = self.found, next(self._noise(of_rules=False), None)
        if noise is None:
            return False
        measured = (Status.NONDETERMINISTIC, Status.INCONSISTENT, Status.NONLINEAR)
        rest = [one for one in found.findings if one.status not in measured]
        rest = [one for one in rest if not isinstance(one.detail, Disagreement)]
        found.findings = [noise, *rest]
        found.modes |= dict.fromkeys(self._modes, noise.verdict)
        found.identities = self.identities.compared
        return True

    def _noise(self, *, of_rules: bool) -> Iterator[Finding]:
        """Yields the findings that f, or a rule, has another value at each call, by more than an
        order of additions makes and more than is allowed.
        """
        for finding in self.found.findings:
            detail = finding.detail
            if not isinstance(detail, Unrepeatable) or finding.note or detail.reordered:
                continue
            if (detail.rule is not None) is of_rules:
                yield finding

    @property
    def _noisy_modes(self) -> set[str]:
        """The modes whose rule has another value at each call."""
        return {finding.mode for finding in self._noise(of_rules=True)}

    def _leave_out_what_noise_makes(self) -> None:
        """Leaves out the identities of a rule that has another value at each call: none holds."""
        if not self.found.findings:
            return
        noisy = self._noisy_modes
        self.found.findings = [
            finding
            for finding in self.found.findings
            if finding.mode not in noisy
            or finding.status not in (Status.INCONSISTENT, Status.NONLINEAR)
        ]

    def look_for_hidden_noise(self) -> None:
        """Evaluates f at x a few times more, where differences could not decide. Two runs of a
        function that drops a few numbers at random may have agreed by chance.
        """
        found, counts = self.found, self.problem.counts
        for finding in found.findings:
            if finding.status is Status.UNRESOLVED and finding.open and counts.allows(EXTRA_RUNS):
                break
        else:
            return
        for _ in range(EXTRA_RUNS):
            found.findings += self.identities.repeatable(evaluate_again(self.problem, self.base))
            if self.is_noise():
                found.tallies.clear()
                return

    def _try_reverse(self) -> None:
        findings, base = self.found.findings, self.base
        try:
            reverse = base.reverse
        except NotSupportedError as error:
            findings += [unsupported("R" + self.problem.modes_taken, error), *self._nonlinear()]
            return
        findings += self.identities.value_under(Rule.VJP, reverse.value(base))
        pullbacks = Pullbacks(self.identities, reverse)
        with Catching(NotSupportedError) as caught:  # some engines find out on the way back only
            row, found = pullbacks.at_cotangent()
        if (refused := caught.error) is not None:
            nonlinear = self._nonlinear()
            if isinstance(refused, NotSupportedError):
                findings.append(unsupported("R" + self.problem.modes_taken, refused))
            elif not nonlinear:
                raise refused
            findings += nonlinear
            return
        findings += found
        self.reverse, self.row, self.pullbacks = reverse, row, pullbacks

    def _nonlinear(self) -> list[Finding]:
        """Returns the findings that the jvp is not linear, where there is no reverse mode and
        forward mode was not asked for.

        An engine that transposes the jvp says that an operation has no transpose, or raises what
        nobody understands, where a rule swaps primals and tangents, or multiplies two tangents.
        """
        if "F" in self.settings.letters or "jvp" not in self.problem.backend.capabilities:
            return []
        found: list[Finding] = []
        with Catching(NotSupportedError):
            found += Pushforwards(self.identities, Forward(self.problem)).at_tangent()
        return [one for one in found if one.status is Status.NONLINEAR]

    def _try_forward(self) -> None:
        findings = self.found.findings
        forward = Forward(self.problem)
        try:
            found = list(Pushforwards(self.identities, forward).at_tangent())
        except NotSupportedError as error:
            findings.append(unsupported("F" + self.problem.modes_taken, error))
            return
        if not self.settings.check_grad_dtypes:
            found = [one for one in found if one.status is not Status.WRONG_DTYPE]
        # reverse mode may have seen the function write into its input already
        findings += [one for one in found if one not in findings]
        self.forward = forward

    def try_layouts(self) -> None:
        """Pulls back cotangents that are expanded, or have gaps in memory, where the engine has
        such.

        It comes before f is evaluated at other points, since a vjp may use what f has kept at x.
        They are judged afterwards, when it is known how precise f is.
        """
        pullbacks, findings = self.pullbacks, self.found.findings
        if pullbacks is None or (row := self.row) is None or not any(pullbacks.reverse.attached):
            return
        # A rule that writes into its cotangent is told that, and cannot write into an expanded one.
        writes = any(finding.status is Status.MUTATES_INPUT for finding in findings)
        # A small budget is for the comparison first, and for this afterwards.
        room = self.table.budget.allows(ROOM_FOR_LAYOUTS)
        if room and any(pullbacks.strided) and not (writes or self._layout_matters):
            self.in_life = pullbacks.as_in_life(row)

    @property
    def _layout_matters(self) -> bool:
        """Whether the vjp is known to depend on the memory layout of its cotangent, or to raise."""
        layouts = (LayoutMatters, LayoutRaised)
        return any(isinstance(finding.detail, layouts) for finding in self.found.findings)

    def check_reverse_rule(self) -> None:
        """Checks the vjp as a linear map: additivity, undefined cotangents, and `vmap`."""
        pullbacks, row, table = self.pullbacks, self.row, self.table
        if pullbacks is None or row is None or not any(pullbacks.reverse.attached):
            return
        findings, budget, rows = self.found.findings, table.budget, table.probes.rows
        if budget.allows(2):
            findings += pullbacks.afterwards(row)
        undefined = self.settings.check_undefined_grad and self.problem.backend.undefined_cotangents
        if rows > 1 and table.rows is not None and budget.rows == rows:
            findings += pullbacks.additive_rows(row, table.rows)
            added = True
        else:
            # sums say nothing of a loss, whose cotangents are the multiples of one
            added = rows == 1 and (undefined or table.probes.full or self.base.Y.size == 1)
        if self.in_life is None and not self._layout_matters:
            if added and budget.allows(1):
                findings += pullbacks.small(row)
            elif not added and budget.affords(Task.ADDITIVITY, 2):
                self.in_life = pullbacks.as_in_life(row)
        if self.in_life is not None:
            findings += pullbacks.additive_pair(row, self.in_life)
        if self.problem.modes_taken and not self._told_nonlinear("R") and budget.allows(2):
            findings += pullbacks.at_multiples(row)
        if undefined and budget.affords(Task.UNDEFINED_COTANGENTS, 1 + len(self.base.Y.leaves)):
            findings += pullbacks.undefined()
        parts = pullbacks.parts
        if parts and budget.allows(2 * len(parts)):
            findings += pullbacks.of_some(row)
        elif parts:
            findings += pullbacks.none_tried
        work = 3 * len(self.base.Y.leaves)
        if self.settings.check_batched_grad:
            self._check_batches(pullbacks.batched, "vmap(R)", Task.BATCHED_COTANGENTS, work)
        elif self.settings.thorough:
            self._look_at_batches(pullbacks.batched, "vmap(R)", work)

    def check_forward_rule(self) -> None:
        """Checks the jvp as a linear map: undefined tangents, additivity, and `vmap`."""
        forward, table = self.forward, self.table
        if forward is None:
            return
        pushforwards = Pushforwards(self.identities, forward)
        findings, budget, settings = self.found.findings, table.budget, self.settings
        told, work = self._told_nonlinear("F"), pushforwards.work_alone
        if self.problem.modes_taken and not told and budget.allows(2):
            findings += pushforwards.at_multiples()
        undefined = settings.check_undefined_grad and budget.affords(
            Task.UNDEFINED_TANGENTS, 2 * work
        )
        if undefined or budget.allows(work):
            found = pushforwards.leaf_by_leaf(undefined=undefined)
            findings += [one for one in found if not (told and one.status is Status.NONLINEAR)]
        # A jvp by hand may evaluate f as well.
        if not self._told_nonlinear("F") and budget.allows(2):
            findings += pushforwards.small()
        if not self._told_nonlinear("F") and budget.allows(4):
            findings += pushforwards.entry_and_rest()
        if settings.thorough and budget.allows(8):
            self.found.beyond.add(Beyond.LINEARITY)
            findings += pushforwards.additive()
        work = 3 * len(self.problem.X.leaves)
        if settings.check_batched_forward_grad:
            self._check_batches(pushforwards.batched, "vmap(F)", Task.BATCHED_TANGENTS, work)
        # forward mode over a graph that is built inside of a batch is no transform of every engine
        elif settings.thorough and not self.problem.modes_taken:
            self._look_at_batches(pushforwards.batched, "vmap(F)", work)

    def _told_nonlinear(self, letter: str) -> bool:
        """Returns whether the rule of that mode is known not to be linear: that is told once."""
        mode = letter + self.problem.modes_taken
        return any(
            one.status is Status.NONLINEAR and one.mode == mode and not one.note
            for one in self.found.findings
        )

    def _check_batches(
        self, batched: Callable[[], Iterable[Finding]], mode: str, task: Task, work: int
    ) -> None:
        """Compares `vmap` of a rule with the loop, as the caller asked for."""
        if self.table.budget.affords(task, work):
            self.found.findings += _supported(mode, batched)

    def _look_at_batches(
        self, batched: Callable[[], Iterable[Finding]], mode: str, work: int
    ) -> None:
        """Compares `vmap` of a rule with the loop, which nobody asked for: what the engine cannot
        map is a note.
        """
        offered = "vmap" in self.problem.backend.capabilities
        if not offered or not self.table.budget.allows(work):
            return
        self.found.beyond.add(Beyond.BATCHES)
        found: list[Finding] = []
        with Catching() as caught, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found += _supported(mode, batched)
        if (error := caught.error) is not None:  # arrays that cannot be stacked, say: sparse ones
            found = [Finding(Status.RAISED, mode, "", BatchNotMade(Raised.of(error)), cause=error)]
        for finding in found:
            if finding.status is not Status.INCONSISTENT:
                finding = replace(finding, note=True, remedy=Remedy.NOT_NEEDED)
            self.found.findings.append(finding)

    # -- the table

    @cached_property
    def table(self) -> Table:
        """What is compared with differences, column by column; nothing is filled in yet."""
        columns = Columns(estimator_of(self.base, self.settings), self.probes, self.tolerance)
        row = self.row if self.probes.rows == 1 else None
        return Table(
            columns, self.reverse, self.forward, row,
            eps=self.settings.eps, by_blocks=self.settings.by_blocks,
        )  # fmt: skip

    @cached_property
    def mistakes(self) -> LikelyMistakes:
        """The likely mistakes behind what fails in the table; none is looked for yet."""
        return LikelyMistakes(self.table)

    def compare_with_differences(self) -> None:
        """Fills the table: automatic numbers against differences, or against a reference."""
        settings, table = self.settings, self.table
        if settings.thorough and self.tolerance.automatic:
            coarsest = self.tolerance.coarsest
            table.affine = Affine(
                self.problem, self.base, self.probes, coarsest, self.tolerance.constants
            )
        for failure in table.fill():
            self._prove_entry(failure)
        self.found.blocks_open = table.by_blocks and table.examined.unseen > 0
        if table.carried_dtype is not None:
            self.identities.tolerance = self.found.tolerance = table.tolerance
            self.found.findings.append(_carries_less(table, table.carried_dtype))
            # Numbers on the way may overflow there, and float16 has no room for a large probe.
            self.found.findings = [
                replace(one, note=True) if overflows(one) else one for one in self.found.findings
            ]

    @property
    def _differences_are_exact(self) -> bool:
        """Whether differences are as good as f allows, so that more can be made of them."""
        tolerance = self.tolerance
        return tolerance.automatic and not tolerance.noisy and self.settings.reference is None

    def look_for_entries_not_read(self) -> None:
        """Looks for derivatives of what f does not read, and for entries without a derivative that
        f does read. What fails there may be traced afterwards.
        """
        if self.settings.thorough and self._differences_are_exact and self.reverse is not None:
            if not self.problem.modes_taken:
                self.found.beyond.add(Beyond.PATTERN)
            self.found.findings += SparsityPattern(self.table, self.reverse).within()

    def compare_exactly(self) -> list[Finding]:
        """Finds what is wrong by more than rounding where more than differences is known: functions
        found affine, symmetric second derivatives, entries of a batch that do not depend on one
        another. Without `thorough` it makes only what costs no evaluation.
        """
        table, thorough = self.table, self.settings.thorough
        known = self.problem.modes_taken == "R" or table.affine is not None or thorough
        if not (known and self._differences_are_exact):
            return []
        failed = {tally.mode for tally in table.tallies.values() if tally.failed}
        found: list[Finding] = []
        if table.affine is not None:
            if table.affine.compared:
                self.found.beyond.add(Beyond.AFFINE)
            self.identities.compared += table.affine.compared
            found += [one for one in table.affine.findings if one.mode not in failed]
        # of second derivatives alone; what is no gradient has no symmetric derivative
        if self.problem.modes_taken == "R" and "R" not in failed:
            for mode in (self.reverse, self.forward):
                if mode is not None:
                    found += self._symmetry(mode)
        if thorough and self.reverse is not None:
            found += SparsityPattern(table, self.reverse).between()
        self.found.findings += found
        return found

    def _symmetry(self, mode: Reverse | Forward) -> Iterator[Finding]:
        """Finds second derivatives that are not symmetric."""
        table, thorough = self.table, self.settings.thorough
        if thorough and not table.budget.allows(4 * (len(self.problem.X.leaves) + 1)):
            return
        rows = table.rows if table.probes.full and mode is table.reverse else None
        if rows is not None and rows.shape[0] < table.probes.rows:
            rows = None
        if thorough:
            self.found.beyond.add(Beyond.SYMMETRY)
        yield from asymmetries(self.identities, mode, rows, each=thorough)

    # -- the entries behind a projection

    def _prove_entry(self, failure: Failure) -> None:
        """Looks for one wrong entry behind a projection, and adds its mode to those that are
        proved wrong. Differences of a derivative that has failed itself are wrong without proof.
        """
        record, self.work = self.table.record, self.work or SearchWork.after(self.base)
        if self.settings.of_wrong:
            record.proved.add(failure.mode)
        if failure.mode in record.proved or not self.table.budget.allows(ENTRY_WORK):
            return
        # Where a replay of f and differences say otherwise of an entry, the stages come first.
        found = self._located(failure, self.work, disputes=False)
        if found.entries or not found.disputed:
            self.located[failure.key] = found
        if found.entries:
            record.proved.add(failure.mode)

    def _located(self, failure: Failure, work: SearchWork, *, disputes: bool = True) -> Located:
        """Returns the wrong entries behind a projection, of which few are named where a mistake
        explains all.
        """
        explained = partial(self.mistakes.explains, failure)
        return locate_entries(self.table, failure, work, explained, disputes=disputes)

    def trace_projections(self) -> None:
        """Traces projections to entries: those that failed, and those that agree suspiciously."""
        record = self.table.record
        if (record.projections or record.significant) and not self.settings.of_wrong:
            if self.work is None or not record.proved:
                self.work = SearchWork.after(self.base)
            if not self.probes.full:
                self._trace_failures(self.work)
            self._trace_suspects(self.work)
            traced = {id(entry) for found in self.traced.values() for entry in found.entries}

            def order(entry: Entry) -> tuple[int, bool, bool, float]:
                place = self._place(entry.input)
                return place, entry.projected, id(entry) not in traced, -entry.excess

            # The first input leads, by its worst entry, and an entry leads what is along all.
            for tally in self.table.tallies.values():
                tally.wrong.sort(key=order)

    def _place(self, name: str) -> int:
        """Returns the place of an input in the order of inputs; what belongs to none comes last."""
        names = [leaf.name for leaf in self.problem.X.leaves]
        return names.index(name) if name in names else len(names)

    def _trace_failures(self, work: SearchWork) -> None:
        """Finds the wrong entries themselves behind failed projections of each mode."""
        table, tried = self.table, Counter[str]()
        failures = list(table.record.projections.values())
        for failure in sorted(failures, key=lambda one: one.tangent.leaves):
            mode, tally = failure.mode, table.tallies[failure.mode]
            if failure.entry not in tally.wrong:
                continue
            tried[mode] += 1
            if tried[mode] > TRACED_PROJECTIONS:
                continue
            found = self.located.get(failure.key)
            if found is None:
                # A reader begins with the first input. Two may be swapped, which the second says.
                proved = mode in table.record.proved or tried[mode] > 2
                if tried[mode] > 1 and work.spent(proved, explained=lambda: False):
                    continue
                if not table.budget.affords(Task.LOCALISATION, ENTRY_WORK):
                    continue
                found = self.located[failure.key] = self._located(failure, work)
            if found.cut_short:
                table.budget.leave(Task.LOCALISATION)
            if found.entries:
                before = self.traced.setdefault(mode, Located())
                tally.wrong.remove(failure.entry)
                tally.traced.append(failure.entry)
                tally.wrong[len(before.entries) : 0] = found.entries
                before += found

    def _trace_suspects(self, work: SearchWork) -> None:
        """Finds wrong entries behind projections that agree, and not as well as they should: one
        wrong entry among many stays within the tolerance of the projection, and not within its own.
        """
        table, tried = self.table, Counter[str]()
        if self.tolerance.exact:  # each step of the search is a replay
            sooner = work.by_replays(table.columns.estimator.replays)
            if sooner is None:
                return
            work = sooner
        for suspect in sorted(table.record.significant, key=lambda s: -s.entry.excess):
            tally = table.tallies[suspect.mode]
            tried[suspect.mode] += 1
            if tally.failed or tried[suspect.mode] > TRACED_PROJECTIONS:
                continue
            if not table.budget.affords(Task.LOCALISATION, ENTRY_WORK + CONFIRMING_EVALUATIONS):
                return
            found = locate_entries(table, suspect, work)
            if found.cut_short:
                table.budget.leave(Task.LOCALISATION)
            if found.entries:
                tally.failed += 1
                tally.wrong[:0] = found.entries
                self.traced[suspect.mode] = found

    def look_at_kinks(self) -> None:
        """Compares what a kink excuses with one-sided slopes along directions that tell more."""
        if self.table.probes.full or any(
            map(attrgetter("kinks"), self.table.record.tallies.values())
        ):
            compare_one_sided(self.table)

    # -- what it comes to

    def conclude_comparisons(self, provenance: Callable[[], str]) -> None:
        """Makes findings of what was compared and did not agree, and of what was not compared."""
        found, table = self.found, self.table
        for tally in table.tallies.values():
            if tally.mode == "identity":
                # two rules of which one has another value at each call disagree for that
                found.findings += [] if self._noisy_modes else identity_findings(tally)
                self.identities.compared += tally.compared
            else:
                found.findings += self._findings_of(tally, provenance)
                found.findings += self._coarse_agreement(tally)
                found.findings += self._lost_digits(tally)
                found.tallies.append(tally)
                found.modes[tally.mode] = mode_verdict(tally, found.findings)
                if table.pairs is not None and found.modes[tally.mode] is not Verdict.PASS:
                    wrong = [*tally.wrong, *tally.spurious, *tally.detached, *tally.missing]
                    failed = tally.failed > 0
                    found.pairs += table.pairs.of(tally.mode, wrong, failed=failed)
        self._tell_unfinished()
        judged = any(map(attrgetter("compared"), found.tallies))
        if not judged and all(finding.note for finding in found.findings):
            finding = _nothing_compared(table)
            found.findings.append(finding)
            found.modes |= dict.fromkeys(self._modes, finding.verdict)
        found.undecidable = table.record.undecidable
        found.reached, found.decided = table.record.reached, table.record.decided
        found.probes = table.probes.columns + table.probes.rows

    def _findings_of(self, tally: Tally, provenance: Callable[[], str]) -> list[Finding]:
        """What the comparisons of one mode amount to, with the mistake that is likely behind it."""
        if tally.nothing_to_tell:
            return []
        table, located = self.table, self.traced.get(tally.mode)
        also = None if located is None else located.also
        cache = detect_cache(table, tally)
        if cache is not None:
            found = findings_of(tally, provenance(), "", also)
            if explained_by_cache(found, cache):
                tally.leave_open()
            return open_for_cache(found, cache)
        samplers = self._implicit_samplers if tally.failed else ()
        if samplers:
            tally.leave_open()
            detail, remedy = ImplicitSamples(tuple(samplers)), Remedy.PASS_SAMPLES
            return [Finding(Status.DRAWS_RANDOM, tally.mode, "", detail, remedy, open=True)]
        failure, mistake = table.record.failure_behind(tally), None
        random = tally.mode in self._noisy_modes  # no factor of such numbers means anything
        if failure is not None and not random and table.budget.allows(128):
            mistake = self.mistakes.behind(failure, self.located.get(failure.key))
        alone = True if random else None if located is None else also is None
        silent = failure is not None and self._is_silent(failure)
        told = findings_of(tally, provenance(), mistake or "", also, alone=alone, silent=silent)

        def order(finding: Finding) -> tuple[bool, int]:
            detail = finding.detail
            name = detail.first.input if isinstance(detail, Disagreement) else ""
            return finding.verdict is not Verdict.FAIL, self._place(name)

        return sorted(told, key=order)

    def _is_silent(self, failure: Failure) -> bool:
        """Whether reverse mode is zero in all inputs for the output that failed, one of several: it
        may be cut off on purpose, which not every engine records.
        """
        rows, Y = self.table.rows, self.base.Y
        if rows is None or failure.kind != "rows" or len(Y.leaves) == 1:
            return False
        row = failure.row
        part = Y.slices[Y.owner[row]] if self.probes.full else slice(row, row + 1)
        return not rows[part].any()

    def _lost_digits(self, tally: Tally) -> Iterator[Finding]:
        """Notes that a derivative passes for its rounding alone, which a cast to a narrower dtype
        inside of the rule makes as well.
        """
        X, seen = self.problem.X, tally.rounded > LOST_DIGITS
        if not (seen and X.double) or tally.failed or tally.undecided or len(tally.mode) > 1:
            return
        rule = Rule.VJP if tally.mode == "R" else Rule.JVP
        detail = RuleLosesDigits(rule, tally.rounded, X.leaves[0].info.dtype)
        yield Finding(Status.INACCURATE, tally.mode, "", detail, note=True)

    def _coarse_agreement(self, tally: Tally) -> Iterator[Finding]:
        """Finds comparisons that agree, and too coarsely for that to mean anything."""
        tolerance = self.table.tolerance
        narrow = tolerance.automatic and tolerance.eps > COARSE_EPS
        settled = narrow and not (tally.failed or tally.undecided)
        # Where no bar is fine beside its entry a zero agrees with all that f moves by.
        resolution = 1.0 if tally.vague and not tally.known else tally.resolution
        if settled and resolution > COARSE_RESOLUTION:
            detail = CoarseAgreement(tally.compared, resolution)
            name, remedy = Status.UNRESOLVED, Remedy.WIDEN_DTYPE
            yield Finding(name, tally.mode, "", detail, remedy, open=True)

    @property
    def _implicit_samplers(self) -> Sequence[str]:
        """The samplers in f whose derivative is not that with the drawn numbers held fixed. They
        matter only where these are held fixed: replayed, or drawn by keys from no global state.
        """
        f = self.problem.primal or self.problem
        replayed = self.problem.counts.before_evaluation is not None
        if not replayed and f.backend.environment.random_state() is not None:
            return ()
        ask = partial(f.backend.implicit_samplers, f.function, f.point())
        return attempt(ask, NotSupportedError) or ()

    def _tell_unfinished(self) -> None:
        """Tells what the budget has left undone; the modes that it concerns stay open."""
        found, budget = self.found, self.table.budget
        limited = self.problem.counts.limit < np.inf or budget.left
        # Nothing is compared with a reference that is another function.
        if not limited or any(one.status is Status.REFERENCE for one in found.findings):
            return
        unfinished = budget.finding(sum(tally.compared for tally in found.tallies))
        if unfinished is not None:
            found.findings.append(unfinished)
        if budget.incomplete:
            for mode in self._modes:
                before = found.modes.get(mode, Verdict.INCONCLUSIVE)
                found.modes[mode] = worst([before, Verdict.INCONCLUSIVE])

    def conclude_modes(self) -> None:
        """Gives a verdict to modes that were not compared, and says what others may agree with."""
        found = self.found
        self._leave_out_what_noise_makes()
        for finding in found.findings:
            if finding.status is Status.REFERENCE:
                for mode in self._modes:
                    found.modes.setdefault(mode, finding.verdict)
            if finding.status is Status.UNSUPPORTED and not finding.note:
                found.modes.setdefault(finding.mode, finding.verdict)
        found.identities, found.images = self.identities.compared, self.identities.images

    @property
    def _modes(self) -> list[str]:
        """The modes for which there is a rule."""
        rules = (("R", self.reverse), ("F", self.forward))
        return [letter + self.problem.modes_taken for letter, rule in rules if rule is not None]


def estimator_of(base: Base, settings: Settings) -> Estimator:
    """What the derivative of this problem is estimated by. Raises `NotSupportedError` where the
    caller's reference has no derivative of that order.
    """
    if settings.reference is None:
        return Differences(base.problem, base)
    return by_reference(base.problem, base, settings.reference)


def unsupported(mode: str, error: NotSupportedError) -> Finding:
    """The finding that the engine does not offer `mode`."""
    detail = NotSupported(error.found, error.remedy)
    return Finding(Status.UNSUPPORTED, mode, "", detail, cause=error.without_traceback())


def _supported(mode: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """What the check finds, and at its end that the engine lacks what it needs."""
    try:
        yield from check()
    except NotSupportedError as error:
        yield unsupported(mode, error)


def _carries_less(table: Table, dtype: str) -> Finding:
    """The note that f was seen to round its values to a narrower dtype."""
    names = tuple(leaf.name for leaf in table.base.Y.leaves)
    detail = CarriesLess(dtype, SIGNIFICANT_BITS[dtype], names)
    return Finding(Status.IMPRECISE, "", "", detail, note=True)


def _nothing_compared(table: Table) -> Finding:
    """Returns the finding that no derivative was compared. It is a note where all inputs or all
    outputs are empty: their derivative has no entries, and shapes, dtypes and the second run have
    been compared.
    """
    X, Y = table.problem.X, table.base.Y
    empty = tuple((leaf.name, leaf.info.shape) for leaf in (*X.leaves, *Y.leaves) if not leaf.size)
    detail, note = NothingCompared(empty), not (X.size and Y.size)
    mode, remedy = table.problem.modes_taken, None if note else Remedy.FILL_ARRAYS
    return Finding(Status.UNRESOLVED, mode, "", detail, remedy, note=note)


# -- points beside a kink


def _reach(problem: Problem) -> float:
    """Returns how far the points beside a kink lie, relative to the scale of each input."""
    narrow = any(leaf.eps > COARSE_EPS for leaf in problem.X.leaves)
    return NARROW_KINK_REACH if narrow else KINK_REACH


def points_beside_kink(base: Base, seed: int) -> Iterator[tuple[Base, float]]:
    """Yields the function at points nearby at which it is finite wherever it is finite at x, each
    with how far x was moved. They come in pairs of `POINTS_BESIDE_KINK`, which lie on opposite
    sides of x in every coordinate, and later ones lie closer.
    """
    problem, random = base.problem, generator(seed, Stream.BESIDE_KINK)
    X, reach = problem.X, _reach(problem)
    leaves = problem.primal_inputs or len(X.leaves)  # of a derivative its cotangents stay
    one, two = np.zeros(X.size), np.zeros(X.size)
    for here in X.slices[:leaves]:
        # Probes have entries of few bits, of which two are often equal among thousands: numbers
        # that are moved by these would be tied again.
        size, lengths = here.stop - here.start, reach * scale(problem.origin[here])
        sides = random.choice([-1.0, 1.0], size)
        one[here] = lengths * sides * random.uniform(0.5, 1.0, size)
        two[here] = -lengths * sides * random.uniform(0.5, 1.0, size)
    parts = [KINK_REACH_REDUCTION**k for k in range(KINK_REACHES)]
    for part, move in product(parts, (one, two, np.abs(one), -np.abs(two))):
        at_it = _observed(base, part * move)
        if at_it is not None:
            yield at_it, part * reach


def beside_where_it_bends(base: Base, seed: int, most: int) -> list[Base]:
    """Returns f at two points, where x is moved to opposite sides only in the entries along which f
    bends; none where these are all that can be moved, or none is found, or f still bends there.

    A kink in one entry excuses what a projection of all of them is off by, and the other points
    beside it move every entry: a rule that is wrong only where another one is special, in a branch
    for small angles, say, would be judged nowhere. A set of entries bends f where the second
    difference along it falls like the step, and not like its square. Sets are halved; what is left
    after as many of them as `most` counts as bent. Each set takes four evaluations. Ours.
    """
    if base.coarsest_eps > COARSE_EPS:  # no step is short enough to tell
        return []
    problem = base.problem
    leaves = problem.primal_inputs or len(problem.X.leaves)  # of a derivative its cotangents stay
    free = np.arange(problem.X.slices[leaves - 1].stop)
    random = generator(seed, Stream.WHERE_IT_BENDS)
    moves = problem.length_scales * random_entries(random, problem.X.size, wide=True)
    sets, bends = deque([free]), np.zeros(problem.X.size, bool)
    tried = 0

    def only(entries: NDArray[np.intp]) -> Vector:
        along = np.zeros(problem.X.size)
        along[entries] = moves[entries]
        return along

    while sets:
        one, tried = sets.popleft(), tried + 1
        if tried > most:
            bends[one] = True
        elif _bends(base, only(one)):
            if one.size == 1:
                bends[one] = True
            else:
                sets.extend(part for part in np.array_split(one, 2) if part.size)
    if not bends.any() or bends[free].all():
        return []
    found, whole = [], only(free)
    for side in (1.0, -1.0):
        at_it = _observed(base, np.where(bends, side * _reach(problem) * moves, 0.0))
        # What chooses among ties that stay, or are new there, chooses within the generalised
        # derivative at x, and may be outside of that of such a point. The largest of several zeros
        # that are cut off at zero falls where all of them fall.
        if at_it is None or any(_bends(at_it, along) for along in (whole, np.abs(whole))):
            return []
        found.append(at_it)
    return found


def _bends(base: Base, along: Vector) -> bool:
    """Returns whether f bends at x along a tangent, or is not defined on both sides."""
    problem, second = base.problem, []
    for h in (ONE_SIDED[0], ONE_SIDED[0] * DEFECT_STEPS[1]):
        points = [problem.clipped(problem.origin + side * h * along) for side in (1.0, -1.0)]
        taken = [attempt(partial(evaluate, problem, base, p, Purpose.KINK)) for p in points]
        if taken[0] is None or taken[1] is None:
            return True
        second.append(np.abs(taken[0] + taken[1] - 2 * base.values))
    far, near = second
    noise = LASTING_UNITS * (base.coarsest_eps * np.abs(base.values) + base.noise)
    return bool(np.any((near > DEFECT_STEPS[1] / 2 * far) & (near > noise)))


def outputs_that_move(base: Base, seed: int) -> NDArray[np.bool_]:
    """Marks the outputs that f moves over a short step of all of x to either side, without a jump.

    What moves at a kink, and stands still at the points that are taken beside it, is not judged
    there: one large entry, or an offset, puts them where `hardtanh` is saturated, and a wrong slope
    passes. In sixteen bits no step is short enough to tell. It takes four evaluations. Ours.
    """
    problem, random = base.problem, generator(seed, Stream.MOVES_BESIDE_KINK)
    found = np.zeros(base.Y.size, bool)
    if base.coarsest_eps > COARSE_EPS:
        return found
    move = base.coarsest_eps**0.5 * problem.length_scales
    move = move * np.abs(random_entries(random, problem.X.size, wide=True))

    def moved(by: Vector) -> Vector:
        point = problem.clipped(problem.origin + by)
        values = evaluate(problem, base, point, Purpose.KINK)
        return np.abs(values - base.values)[: base.Y.size]

    for side in (1.0, -1.0):
        far = attempt(partial(moved, side * move))
        near = attempt(partial(moved, side * MOVES_SHORTER * move))
        if far is not None and near is not None:
            found |= (far > 0) & (near <= 4 * MOVES_SHORTER * far)
    return found


def _settled(judged: list[Judgement]) -> bool:
    """Returns whether the points of the last pair, which lie on opposite sides, are all right."""
    last = judged[-POINTS_BESIDE_KINK:]
    pairs = len(judged) % POINTS_BESIDE_KINK == 0
    return bool(judged) and pairs and all(there.verdict is Verdict.PASS for there in last)


def _observed(base: Base, move: Vector) -> Base | None:
    """Returns f where x is moved; `None` where that is x itself, or f is not defined there, or not
    finite where it is finite at x.
    """
    problem = base.problem
    x = problem.point(problem.clipped(problem.origin + move))
    origin = problem.X.vector(problem.backend, x, problem.x)
    if np.array_equal(origin, problem.origin, equal_nan=True):
        return None
    there = attempt(partial(observe, replace(problem, x=x, origin=origin)))
    if there is None or np.any(np.isfinite(base.values) & ~np.isfinite(there.values)):
        return None
    return there


def _combined(outcome: Judgement, judged: list[Judgement], modes: set[str], reach: float) -> None:
    """Adds to the findings at x what the judgements nearby make of them."""
    for there in judged:
        if there.verdict is Verdict.FAIL:
            outcome.findings += [
                replace(f, moved=reach) for f in there.findings if f.verdict is Verdict.FAIL
            ]
            outcome.tallies += there.tallies
            outcome.pairs = there.pairs
            outcome.modes |= {m: v for m, v in there.modes.items() if v is Verdict.FAIL}
            return
    right = sum(there.verdict is Verdict.PASS for there in judged)
    near = Nearby(len(judged), right, reach)
    for tally in outcome.tallies:
        if tally.mode not in modes:
            continue
        settled = _settled(judged) and tally.mode not in outcome.undecidable
        for k, finding in enumerate(outcome.findings):
            if finding.mode == tally.mode and finding.status is Status.NONSMOOTH:
                assert isinstance(finding.detail, Disagreement)
                beside = replace(finding, detail=replace(finding.detail, nearby=near))
                outcome.findings[k] = (
                    replace(beside, open=False, note=True, remedy=None) if settled else beside
                )
        if settled:
            tally.kinks = 0
            outcome.modes[tally.mode] = mode_verdict(tally, outcome.findings)
