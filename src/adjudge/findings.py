"""Verdicts, and what was found on the way to them.

Everything here is data: a finding says which situation it is by the type of its detail, and holds
its numbers and names. The sentences are made in `adjudge.report`, and nothing reads them.

A new finding is a detail here, with a remedy if there is one; its sentence in
`adjudge/report/sentences.py`; and the place that detects it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum, StrEnum, auto
from typing import Any, NamedTuple, TypeAlias, dataclass_transform


class Verdict(StrEnum):
    """The answer of a check. `INCONCLUSIVE` is not a pass: something asked for stayed open."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"


class Status(StrEnum):
    """What a finding is about."""

    MISMATCH = "MISMATCH"
    """An automatic derivative that is not the derivative of the function."""
    NONSMOOTH = "NONSMOOTH"
    """A kink, where the automatic value lies between the one-sided slopes, or a jump. A note, if
    the derivative is right at two points nearby."""
    NONDETERMINISTIC = "NONDETERMINISTIC"
    """Two evaluations at the same point, or two pullbacks of one cotangent, differ."""
    NONFINITE = "NONFINITE"
    """An infinity or NaN at x or near it, or in a derivative."""
    DETACHED = "DETACHED"
    """An output without derivative history that moves with the inputs."""
    MISSING = "MISSING"
    """No derivative where the function moves."""
    SPURIOUS = "SPURIOUS"
    """A derivative where the function does not move. INCONCLUSIVE where it is plainly cached."""
    MUTATES_INPUT = "MUTATES_INPUT"
    """The function or its pullback writes into an array that it was handed."""
    WRONG_SHAPE = "WRONG_SHAPE"
    """A gradient of another shape than its input."""
    WRONG_DTYPE = "WRONG_DTYPE"
    """A gradient of another dtype than its input."""
    WRONG_DEVICE = "WRONG_DEVICE"
    """A gradient on another device than its input."""
    WRONG_LAYOUT = "WRONG_LAYOUT"
    """A gradient of another memory layout (sparse, strided) than its input."""
    NONLINEAR = "NONLINEAR"
    """A pullback that is not linear in its cotangent, or a pushforward in its tangent."""
    UNDEFINED = "UNDEFINED"
    """An undefined cotangent or tangent that does not act as zero."""
    INCONSISTENT = "INCONSISTENT"
    """Two ways to the same number that disagree: forward and reverse, batched and looped."""
    UNRESOLVED = "UNRESOLVED"
    """Differences cannot decide: their error bar is wider than the resolution asked for."""
    REFERENCE = "REFERENCE"
    """What was given as `reference=` has another value at x than the function."""
    UNFINISHED = "UNFINISHED"
    """The budget `max_evaluations` was spent before all was compared."""
    UNSUPPORTED = "UNSUPPORTED"
    """Asked for, and not offered by the engine."""
    IMPRECISE = "IMPRECISE"
    """The function carries less precision than its dtype."""
    RAISED = "RAISED"
    """The derivative raised an exception."""
    INACCURATE = "INACCURATE"
    """A derivative right in formula, and off by more than rounding explains in its dtype."""
    DRAWS_RANDOM = "DRAWS_RANDOM"
    """The function draws random numbers."""
    SEQUENTIAL = "SEQUENTIAL"
    """Evaluations were made one after another though an executor was given. Always a note."""
    UNCHECKED = "UNCHECKED"
    """What has a derivative that was not asked for, or values at which mistakes do not show. Always
    a note."""


Outcome: TypeAlias = Verdict | Status
"""The outcome of a mode is its verdict, or UNSUPPORTED or RAISED where there is none."""


class Beyond(StrEnum):
    """What a thorough check looks at beside the comparisons that were asked for."""

    AFFINE = "functions found affine"
    """Their derivatives are compared to rounding, by differences over long steps."""
    LINEARITY = "linearity of forward mode"
    BATCHES = "vmap of derivatives"
    SYMMETRY = "symmetry of second derivatives"
    PATTERN = "entries that are not read"
    """Gradients do not reach what the function never reads, and do reach what it reads."""


# -- remedies


class Remedy(Enum):
    """What the user can do about a finding."""

    MOVE_OFF_KINK = auto()
    MOVE_OFF_JUMP = auto()
    MOVE_OFF_TANGENT = auto()
    GUARD_BRANCHES = auto()
    DECLARE_SURROGATE = auto()
    MOVE_INTO_DOMAIN = auto()
    MOVE_INTO_DOMAIN_OR_ALLOW_NAN = auto()
    WIDEN_DTYPE = auto()
    GIVE_REFERENCE = auto()
    GIVE_REFERENCE_FOR_SATURATED = auto()
    SHARPEN_REFERENCE = auto()
    KEEP_DIGITS = auto()
    MATCH_REFERENCE = auto()
    ENLARGE_BUDGET = auto()
    FILL_ARRAYS = auto()
    MEND_CONSTANT = auto()
    MEND_NARROW_DTYPE = auto()
    MULTIPLY_BY_PROBE = auto()
    FOLLOW_MULTIPLES = auto()
    LIMIT_PROBE = auto()
    KEEP_SMALL_PROBE = auto()
    STAY_FINITE = auto()
    ACCEPT_ANY_SIZE = auto()
    APPLY_LINEAR_MAP = auto()
    READ_STRIDES = auto()
    MIND_REQUIRED = auto()
    KEEP_WITH_CALL = auto()
    ACCEPT_UNDEFINED = auto()
    ACCEPT_OR_EXCUSE_UNDEFINED = auto()
    RETURN_VALUE = auto()
    RETURN_ATTRIBUTE = auto()
    ZERO_GRADIENT = auto()
    ZERO_GRADIENT_OR_CHECK_SYMMETRIC = auto()
    ADD_OTHER_ROWS = auto()
    SEPARATE_ROWS = auto()
    WORK_ON_COPY = auto()
    PASS_RANDOM_NUMBERS = auto()
    GIVE_BATCHING_RULE = auto()
    MEND_BATCHING_RULE = auto()
    USE_HIGHEST_PRECISION = auto()
    TRY_HIGHEST_PRECISION = auto()
    ACCEPT_DOUBLE = auto()
    PASS_SAMPLES = auto()
    CHECK_CAPTURED = auto()
    NAME_INPUTS = auto()
    RETURN_CONTENTS = auto()
    CHECK_SECOND = auto()
    CHECK_FORWARD = auto()
    PASS_ARRAYS = auto()
    NAME_OUTPUTS = auto()
    FIND_CUT = auto()
    LEAVE_OUTPUT_OUT = auto()
    GIVE_OTHER_POINTS = auto()
    MIND_UNDEFINED_IN_HOOK = auto()
    NOT_NEEDED = auto()
    """Batching was not asked for."""


@dataclass(frozen=True)
class AllowSpread:
    """Repair what differs from run to run, or allow for it."""

    nondet_tol: float


@dataclass(frozen=True)
class IfItIterates:
    """Iterate to a smaller tolerance, if the function iterates at all, or allow for it."""

    tolerance: float
    """About the tolerance that makes such an error."""
    atol: float


@dataclass(frozen=True)
class JudgedBy:
    """Nothing need be done, since these ways of the engine offer the mode."""

    ways: tuple[str, ...]


@dataclass(frozen=True)
class Setting:
    """What the engine says about its own setting."""

    words: str


Advice: TypeAlias = Remedy | AllowSpread | IfItIterates | JudgedBy | Setting


# -- what was seen


@dataclass_transform(frozen_default=True, eq_default=False)
class Detail:
    """Base of all situations. A detail holds numbers and names, and no sentence.

    Two details are equal if their representations are. Compared field by field, two details about
    the same NaN would differ, since NaN is not equal to itself, and a report would say it twice.
    """

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, eq=False)(cls)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


class Rule(StrEnum):
    """A rule for derivatives, by what it computes."""

    VJP = "vjp"
    JVP = "jvp"

    @property
    def letter(self) -> str:
        """The letter of its mode."""
        return "R" if self is Rule.VJP else "F"

    @property
    def probe(self) -> str:
        """What it is applied to."""
        return "cotangent" if self is Rule.VJP else "tangent"


def along_random(name: str) -> str:
    """Returns what a derivative is called that was taken along one random direction, of inputs, of
    outputs or of both.
    """
    return f"{name} along one random direction"


def entry_name(of: str, wrt: str) -> str:
    """Returns the name of an entry of the Jacobian, such as `d out[1] / d inputs[0][2]`."""
    return f"d {of} / d {wrt}"


class Scheme(Enum):
    """How a number was come by that automatic values are compared with."""

    CENTRAL = auto()
    """One central difference, or two with different steps."""
    CENTRAL_LADDER = auto()
    """Central differences over a ladder of steps, extrapolated."""
    ONE_SIDED_LADDER = auto()
    REFERENCE = auto()
    REFERENCE_DIFFERENCES = auto()
    """Differences of a reference that was given."""
    REVERSE = auto()
    """Reverse mode, for forward mode to agree with."""
    NOT_FINITE = auto()
    """None, since x is not finite."""
    NO_ROOM = auto()
    """None, since no step fits between the bounds."""
    TOO_SMALL = auto()
    """None, since no step moves x, which lies among the smallest numbers of its dtype."""


@dataclass(frozen=True)
class Method:
    """A scheme, with what it took."""

    scheme: Scheme
    evaluations: int = 0
    reference: str = ""
    """The name that the reference gives itself."""


def relative_error(gap: float, reference: float) -> float:
    """A difference as a part of its reference: infinite where that is zero or either is NaN."""
    if not math.isfinite(gap) or not reference:
        return 0.0 if gap == 0 else math.inf
    return float(gap / abs(reference))


class Enclosure(NamedTuple):
    """An interval that is proven to contain a number, in decimal digits."""

    middle: str
    radius: str


@dataclass(frozen=True)
class Pair:
    """The derivative of one output with respect to one input compares like this in one mode."""

    mode: str
    output: str
    input: str
    verdict: Verdict | None
    """`None` where nothing of the pair was compared."""
    compared: int
    """How many numbers were compared. Along a tangent that several inputs share they count for
    each of these."""
    relative: float
    """The largest relative error: of what is wrong or open, if anything is, else of everything."""
    norm: float
    """`||automatic - reference|| / ||reference||` over all that was compared: of the block of the
    Jacobian, or of what a projected check saw of it along one random direction."""
    way: str = ""
    """The way of taking derivatives, where that is not the engine's usual one."""
    errors: tuple[tuple[float | None, ...], ...] = ()
    """These are the relative errors of the block of the Jacobian in full mode: of its entries or,
    where it has more than 16 rows or columns, the largest of each part of it. `None` stands where
    entries agreed together with others, and no entry was compared by itself."""


@dataclass(frozen=True)
class Entry:
    """One compared number, kept for the report."""

    mode: str
    of: str
    """What is differentiated: the accessor path of an entry of an output, or of all of it."""
    wrt: str
    automatic: float
    reference: float
    error: float
    allowed: float
    method: Method
    slopes: tuple[float, float] | None = None
    rounding_level: float = 0.0
    """The derivative that the rounding of f amounts to over the scale of x, where that is why the
    entry stayed open."""
    from_reference: bool = False
    """Whether the reference was given by the caller."""
    projected: bool = False
    """Whether `of` is a projection, so that `slopes` are the least and the largest value."""
    output: str = ""
    """The name of the output that `of` belongs to; empty where it belongs to several."""
    input: str = ""
    """The name of the input that `wrt` belongs to; empty where it belongs to several."""
    steps: tuple[tuple[float, float], ...] = ()
    """The difference quotient at each step at which f was evaluated, as pairs `(step, slope)`."""
    enclosure: Enclosure | None = None
    """The interval that contains the derivative of what f computed, where f was replayed."""
    rounded_rule: bool = False
    """Whether the rule is right in exact arithmetic, and rounding takes many of its digits."""

    @property
    def name(self) -> str:
        """See `entry_name`."""
        return entry_name(self.of, self.wrt)

    @property
    def relative(self) -> float:
        """The relative error of the automatic value."""
        return relative_error(abs(self.automatic - self.reference), self.reference)

    @property
    def excess(self) -> float:
        """The difference in multiples of what was allowed."""
        gap = abs(self.automatic - self.reference)
        if not math.isfinite(gap):
            return math.inf
        return gap / self.allowed if self.allowed > 0 else math.inf if gap else 0.0


class Slip(Enum):
    """What a derivative by hand has only to undo to be right, as one more check has shown."""

    VJP_SWAPPED = auto()
    VJP_IS_JVP = auto()
    JVP_SWAPPED = auto()
    JAC_TRANSPOSED = auto()
    HESS_UPPER = auto()
    """The triangle below the diagonal is not that above it, which is right."""
    HESS_LOWER = auto()
    HESSP_SWAPPED = auto()


@dataclass(frozen=True)
class Fault:
    """A step on the way from the inputs of a function to its outputs whose derivative is wrong."""

    step: str
    """What was called, in the engine's own words: `sin`, `SafeNorm.apply`."""
    rule: str
    """The name of what computes its derivative, where that was written by hand; else empty."""
    file: str
    """Where that is defined, or else where the step was called first; empty where that is not
    known."""
    line: int
    module: str
    """The path of the module in which it was called first."""
    calls: int
    """How often it was called with arrays of the same shapes."""
    judged: int
    """How many of these calls were judged, each at the values that it saw."""
    wrong: int
    """How many of those are wrong."""
    cuts: bool
    """Whether the derivative ends in it."""
    under: str = ""
    """The setting under which it was called and derivatives are not recorded: `no_grad`."""
    lacks: str = ""
    """What it has none of, where it is not wrong: `jvp`, `derivative`; else empty."""
    needed_by: tuple[str, ...] = ()
    """The compositions of modes that need this."""
    of_cotangents: bool = False
    """Whether it is right alone, and wrong for the cotangents that it gets."""
    changed: bool = False
    """Whether it is right, and the gradient of its result changes on the way back to it: by a hook,
    which is the rule then, or by what has no name."""
    users: tuple[str, ...] = ()
    """The steps that its result goes into, where that is so."""
    at_kink: bool = False
    """Whether it stands at a kink or a jump of its own, where it is right alone: the slope that it
    gives there is not that of the whole, and the derivative of the whole is right beside x."""


@dataclass(frozen=True)
class Unjudged:
    """What the search for the rule at fault left open in a check that fails: its budget ended."""

    budget: int
    """The work that there was for it, in evaluations, vjps and jvps."""
    steps: tuple[Fault, ...]
    """The steps that were still to be judged; none where nothing could be begun."""


@dataclass(frozen=True)
class Raised:
    """An exception, by its type and message."""

    kind: str
    message: str

    @classmethod
    def of(cls, error: BaseException) -> Raised:
        """Returns the type and the message of an exception, as they are now."""
        return cls(type(error).__name__, str(error) or "(no message)")


class Meaning(Enum):
    """What a number that does not agree with its estimate means."""

    WRONG = auto()
    """It is not the derivative of the function."""
    SPURIOUS = auto()
    """It is not zero, and the function does not move at all."""
    DETACHED = auto()
    """The engine recorded nothing for an output that moves."""
    MISSING = auto()
    """The engine has no derivative, and the function moves."""
    SAME_ARRAY = auto()
    """The function returned the very same array for two inputs, as a cache does."""
    STALE_VALUES = auto()
    """The function returned values of another input, as a cache by `id` does."""
    KINK = auto()
    NAN_AT_KINK = auto()
    WIDE_AT_KINK = auto()
    """The error bar at a kink is wider than the gap between its slopes."""
    KINK_ELSEWHERE = auto()
    """The slopes along the tangent are the same, and other outputs, or other tangents, show a
    kink."""
    JUMP = auto()
    SWITCH = auto()
    """An exact replay does not decide which branch f takes, or the branches do not meet."""
    ENDLESS = auto()
    """Differences do not converge, and the automatic value is not finite."""
    WIDE = auto()
    """The error bar of the differences is too wide."""
    WIDE_REFERENCE = auto()
    """The error bar of a reference that was given is too wide."""
    OWN_ROUNDING = auto()
    """The interval of an exact replay is narrow, and rounding may make what the rule is off by."""
    LOST_DIGITS = auto()
    """The rule is right in exact arithmetic, and rounding takes many of its digits."""
    SATURATED = auto()
    """The rounding of the function hides a derivative as small as this."""
    NOT_FINITE = auto()
    """The function is not finite near x."""
    NO_REFERENCE = auto()
    """A reference, or an exact replay, has no number at x."""


@dataclass(frozen=True)
class AlsoWrong:
    """The entries that are wrong beside the first one."""

    names: tuple[str, ...]
    found: int
    """How many entries were found, with the first one."""
    tested: int
    """How many entries were tested one by one."""
    many: bool
    """Whether more entries are wrong than were looked for."""


@dataclass(frozen=True)
class Nearby:
    """The outcome of the points beside a kink."""

    judged: int
    right: int
    reach: float
    """How far x was moved, relative to the scale of each input."""


class Disagreement(Detail):
    """Automatic values and estimates of one mode that do not agree, by the first one."""

    first: Entry
    meaning: Meaning
    count: int
    compared: int
    provenance: str
    """Which engine, device and dtype the numbers are from."""
    mistake: str = ""
    """The likely mistake, in the words of `adjudge.report`."""
    accuracy: float | None = None
    """The largest relative deviation, where all of them are small."""
    also: AlsoWrong | None = None
    nearby: Nearby | None = None


class RuleLosesDigits(Detail):
    """A derivative is right up to what its own rounding makes of it, which is much."""

    rule: Rule
    part: float
    """The largest relative deviation."""
    dtype: str


class CoarseAgreement(Detail):
    """All comparisons agree, and no more closely than a wrong derivative might."""

    compared: int
    resolution: float
    """The largest relative deviation, error bar included, that any of them accepted."""


class Saturated(Detail):
    """Entries below the rounding of f, beside larger ones; by the first of them."""

    count: int
    name: str
    value: float


class ModesDisagree(Detail):
    """Forward and reverse mode have different numbers for one entry."""

    forward: float
    reverse: float
    count: int
    compared: int


class AffineOff(Detail):
    """The function is affine, and its derivative is off by more than rounding."""

    automatic: float
    difference: float
    error: float
    part: float
    """How far it is off, as a part of the derivative."""


class Task(Enum):
    """What a budget may leave undone, beside rows and columns."""

    UNDEFINED_TANGENTS = auto()
    UNDEFINED_COTANGENTS = auto()
    ADDITIVITY = auto()
    BATCHED_COTANGENTS = auto()
    BATCHED_TANGENTS = auto()
    LOCALISATION = auto()


class BudgetSpent(Detail):
    """`max_evaluations` left something undone."""

    compared: int
    planned: int
    spent: int
    limit: float
    rows: int
    """Rows of reverse mode that were not taken, of `all_rows`."""
    all_rows: int
    columns: int
    """Columns that were not compared, of `all_columns`."""
    all_columns: int
    doubtful: int
    """Columns that needed a ladder of steps and got none."""
    tasks: tuple[Task, ...]


# -- identities of the rules


class Unequal(Detail):
    """Base of situations in which two ways to the same numbers differ; by the largest gap."""

    one: float
    two: float
    others: int
    """The number of other entries of the same leaf that differ."""


class ValueUnder(Unequal):
    """The value that comes with a derivative is not f(x)."""

    rule: Rule


class ValueInWay(Unequal):
    """The function has another value in one way of the engine."""

    way: str


class NotHomogeneous(Unequal):
    """`A(-k u) / -k` is not `A(u)`."""

    rule: Rule
    factor: float
    """The number k, a power of two."""


class UnlikeAtMultiple(Unequal):
    """A derivative of a derivative `(x, w) -> J*(x) w` is not at `k w` what it must be by that at
    w.
    """

    rule: Rule
    taken: Rule
    """The rule whose image is differentiated, and which w is the probe of."""
    factor: float
    """The number k."""


class NotAdditive(Unequal):
    """`A(u + v)` is not `A(u) + A(v)`."""

    rule: Rule


class Layout(StrEnum):
    """How a cotangent lies in memory."""

    EXPANDED = "expanded"
    """It has stride 0, as the cotangent of a sum."""
    ROWS = "rows"
    """Its first axis has stride 0, as that of a sum over one axis."""
    LAST = "last"
    """Its last axis has stride 0, as that of a loss of each sample."""
    PART = "part"
    """It is contiguous, and begins within a larger array, as that of a concatenation."""
    TURNED = "turned"
    """It is transposed in memory; of an image, the channels come last."""
    WITH_GAPS = "with gaps"


class LayoutMatters(Unequal):
    """A pullback depends on how its cotangent lies in memory."""

    layout: Layout


class LayoutRaised(Detail):
    """A pullback raises for a cotangent that is expanded, or has gaps in memory."""

    raised: Raised


class LargeProbeRaised(Detail):
    """A rule raises for a probe that is this many times one that it takes."""

    rule: Rule
    factor: float
    raised: Raised


class ZeroProbeRaised(Detail):
    """A rule raises for a probe of zeros."""

    rule: Rule
    raised: Raised


class UndefinedNotZeros(Unequal):
    """Undefined tangents beside that of `leaf` give something else than zeros there."""

    leaf: str


class AnotherAfterwards(Unequal):
    """A pullback gives something else once f has been evaluated at another point."""


class AnotherAlone(Unequal):
    """A gradient is another one where the engine is asked for no gradients but those of `leaf`."""

    leaf: str


class AloneRaised(Detail):
    """A rule raises where the engine is asked for no gradients but those of `leaf`."""

    leaf: str
    raised: Raised


class AloneNotTried(Detail):
    """The budget was `spent`, or the function raises, or it has another value, where the engine is
    asked for no gradients but those of `leaf`.
    """

    leaf: str
    raised: Raised | None = None
    spent: bool = False


class BatchUnlikeLoop(Unequal):
    """The vmapped rule is not the loop over the batch."""

    rule: Rule
    leaf: str


class NonzeroAtZero(Detail):
    """A zero cotangent or tangent gives something else than zero."""

    value: float
    rule: Rule


class UndefinedNotZero(Detail):
    """The gradient is not zero though every cotangent is zero or undefined."""

    output: str
    """The output whose cotangent is undefined; empty for all of them."""
    value: float


class UndefinedRaised(Detail):
    """A rule raises when a cotangent or tangent is undefined."""

    output: str
    """The output whose cotangent is undefined, empty for all; for a jvp the inputs whose tangents
    are."""
    error: Raised
    rule: Rule = Rule.VJP


class UndefinedInHook(Detail):
    """What f has hooked into the backward pass, and no rule of a derivative, raises when the
    cotangent of an output is undefined.
    """

    output: str
    """The output whose cotangent is undefined, empty for all."""
    error: Raised


class BatchRaised(Detail):
    """The vmapped rule raises."""

    error: Raised
    rule: Rule


class BatchNotMade(Detail):
    """No batch could be made for a vmapped rule, since that raises."""

    error: Raised


class EqualRowsDiffer(Detail):
    """The vmapped rule makes different numbers of two equal rows."""

    rule: Rule


class Asymmetric(Detail):
    """A second derivative that is not symmetric, in all inputs where no entry is named."""

    of: str
    """The function of which it is the second derivative."""
    one: float
    two: float
    part: float
    """How far they are apart, relative to the terms that they are sums of."""


class NothingRead(Detail):
    """A derivative in a triangle of a matrix that the function does not read."""

    leaf: str
    upper: bool
    count: int
    entries: int
    largest: float


class RowsMissing(Detail):
    """Rows of an output depend on other rows of an input, without a derivative."""

    leaf: str
    rows: tuple[int, ...]


class RowLeaks(Detail):
    """Rows of outputs have a derivative with respect to a row that they do not depend on."""

    leaf: str
    row: int
    outputs: tuple[str, ...]
    largest: float


# -- purity and repeatability


class Culprit(Enum):
    """Who writes into an array."""

    FUNCTION = auto()
    VJP = auto()
    JVP = auto()


class WritesInto(Detail):
    """An array that was handed out holds something else afterwards."""

    by: Culprit
    """A rule writes into its cotangent or tangent of the entry, the function into the entry."""


class WritesUnchecked(Detail):
    """The function writes into an array that is not checked."""


class Remembers(Detail):
    """The function changes what it closes over, which is put back before each evaluation."""


class Unrepeatable(Detail):
    """Two runs at one point differ."""

    rule: Rule | None
    """`None` for the function itself."""
    first: float
    second: float
    gap: float
    dtype: str
    units: float
    """The gap in units of rounding of the largest entry."""
    reordering: float
    """The gap that another order of additions may make."""
    cancelling: float
    """The gap that it may make where large terms cancel."""
    allowed: float | None = None
    """The spread that the caller allows, where that covers the gap."""
    suggested: float = math.inf
    """The `nondet_tol` that would allow the spread of these runs, with some room."""

    @property
    def reordered(self) -> bool:
        """Whether another order of additions makes as much."""
        return self.gap <= self.reordering

    @property
    def rounding(self) -> bool:
        """Whether it makes as much, if large terms may cancel."""
        return self.gap <= max(self.reordering, self.cancelling)


class AdditionOrder(Detail):
    """Additions on a device may be done in another order at every call."""

    device: str


class DrawsRandom(Detail):
    """The function draws random numbers."""

    agreed: bool
    """Whether its results agreed where they were compared."""
    replayed: bool
    """Whether the state was put back before each evaluation."""


class DrawsOthers(Detail):
    """From the same random state f draws other numbers in this way, so that nothing of what was
    taken in it is compared.
    """

    way: str
    """The way of the engine, or `vmap`."""


class ImplicitSamples(Detail):
    """The derivative of a sample is that of its distribution, and not of the numbers drawn."""

    samplers: tuple[str, ...]


class InSequence(Enum):
    """Why evaluations are made one after another, though an executor was given."""

    ENGINE = auto()
    """The engine does not say that functions may be evaluated in several threads."""
    RANDOM = auto()
    """The function draws random numbers."""
    WRITES = auto()
    """The function writes into arrays that all its evaluations share."""
    ELSEWHERE = auto()
    """The function has another value at x in the executor."""
    HELD = auto()
    """What the function holds takes other values for each evaluation."""
    DERIVATIVE = auto()
    """It is a derivative that is evaluated, by the engine."""


class OneAfterAnother(Detail):
    """Evaluations that an executor was to make at once were made one after another."""

    reason: InSequence


# -- what is not checked


class ClosesOver(Detail):
    """The function closes over arrays that are marked for differentiation, and are not checked."""

    names: tuple[str, ...]
    unreached: tuple[str, ...]
    """The names of checked inputs that the recording does not reach."""


class Unmarked(Detail):
    """Inputs are not checked, since they are not marked for differentiation and others are."""

    names: tuple[str, ...]


class OpaqueOutputs(Detail):
    """What f returns in objects that are no known containers is not checked."""

    names: tuple[str, ...]


class SecondLeftOut(Detail):
    """Second derivatives by hand that are not checked."""

    names: tuple[str, ...]


class RulesLeftOut(Detail):
    """Derivatives that somebody wrote are not checked, since nothing asks for their mode."""

    names: tuple[str, ...]


class Constants(Detail):
    """Inputs are not checked, since they are numbers and no arrays, though the engine could
    differentiate with respect to them; or integers, though a rule by hand has a gradient of them.
    """

    names: tuple[str, ...]


class Hides(Enum):
    """What is special about the numbers of an input, so that a class of mistakes does not show."""

    ZEROS = auto()
    ONES = auto()
    EQUAL = auto()
    REAL = auto()
    """A complex array without imaginary part."""
    SYMMETRIC = auto()
    SAME = auto()
    """Inputs that hold the same numbers."""
    FLAT = auto()
    """Numbers on which no output depends at x, beside others on which some do."""


class SpecialNumbers(Detail):
    """Inputs at which whole classes of mistakes do not show."""

    names: tuple[str, ...]
    hides: Hides


# -- values, shapes, dtypes, devices


class NotFinite(Detail):
    """The function is not finite at x."""

    value: float
    count: int
    entries: int
    left_out: bool = False
    """Whether the others are compared without these entries."""
    pole: bool = False
    """Whether the entries do not keep that value beside x, so that they may have a derivative."""


class InputNotFinite(Detail):
    """Some entries of x are not finite, and nothing is compared along them."""

    value: float
    count: int
    entries: int


class Attribute(StrEnum):
    """What a derivative has in common with what it is the derivative of."""

    SHAPE = "shape"
    DTYPE = "dtype"
    LAYOUT = "layout"
    DEVICE = "device"


class WrongAttribute(Detail):
    """A gradient is unlike its input, or a tangent unlike its output."""

    rule: Rule
    attribute: Attribute
    found: str | tuple[int, ...]
    expected: str | tuple[int, ...]


class RealForComplex(Detail):
    """A tangent is real where the output is complex, or the reverse."""

    found: str
    expected: str


class ReferenceElsewhere(Detail):
    """The reference has another value at x than the function."""

    function: float
    reference: float
    gap: float
    allowed: float
    count: int
    entries: int


class NothingCompared(Detail):
    """There was nothing to compare: all entries are in arrays that are empty."""

    empty: tuple[tuple[str, tuple[int, ...]], ...]
    """Names and shapes."""


# -- precision


class TwoPrecisions(Detail):
    """Base of situations in which a number in a narrow dtype is off from that in double
    precision, or from the exact one.
    """

    dtype: str
    narrow: float
    double: float
    ulps: float
    replayed: bool
    """Whether `double` comes from an exact replay, since the function does not run in double."""


class NarrowWrong(TwoPrecisions):
    """The derivative in a narrow dtype is another one than that in double precision."""

    factor: float
    """By which all entries are off; 1 where they are not."""
    right: bool
    """Whether the derivative in double precision is right, and not undecided."""


class NarrowInaccurate(TwoPrecisions):
    """The derivative in a narrow dtype loses digits on the way."""

    right: bool
    """This is as for `NarrowWrong`."""


class ValueInaccurate(TwoPrecisions):
    """The value in a narrow dtype loses digits on the way."""

    output: str


class CarriesLess(Detail):
    """The function rounds its outputs to a narrower dtype than they have."""

    dtype: str
    bits: int
    outputs: tuple[str, ...]


class CoarseProducts(Detail):
    """Products are computed with less precision than their dtype has."""

    device: str
    dtype: str
    eps: float
    setting: str


class CoarseResults(Detail):
    """The engine computes with less precision than the dtype has."""

    dtype: str
    eps: float


class CoarseOperations(Detail):
    """Some operations round otherwise than their dtype does."""

    device: str
    dtype: str
    setting: str


class Refusal(Enum):
    """Why a function is not judged in double precision."""

    RAISES = auto()
    NOT_SUPPORTED = auto()
    STAYS_NARROW = auto()
    OTHER_STRUCTURE = auto()
    OTHER_VALUE = auto()
    OTHER_VALUE_BEYOND_ROUNDING = auto()
    OTHER_DERIVATIVE = auto()
    NARROW_INSIDE = auto()
    VARIES = auto()


class NotInDouble(Detail):
    """A function is not judged in double precision."""

    refusal: Refusal
    name: str = ""
    """The name of what stays in a narrow dtype, or the type of the exception."""
    words: str = ""
    """The narrow dtype, or the message of the exception."""
    gradient: Rule | None = None
    """Whether it is the derivative of `name` that stays narrow."""
    eps: float | None = None
    """The spacing at 1 of the narrowest dtype inside, where that is known."""


# -- exceptions


class NotSupported(Detail):
    """The engine does not offer a mode."""

    found: str
    remedy: str
    """Both in the words of the adapter."""


class DerivativeRaised(Detail):
    """The derivative raises."""

    error: Raised
    beside: bool = False
    """Whether the function itself does not run in this way of the engine."""


class Raiser(Enum):
    """Who raises at one of several points."""

    FUNCTION = auto()
    DERIVATIVE = auto()
    UNSTABLE_OUTPUT = auto()
    """The library, since the function changes the shape or dtype of its output."""


class RaisedAtPoint(Detail):
    """No check can be made at a point, since something raises there."""

    by: Raiser
    error: Raised


class NoCheck(Detail):
    """No check can be made at a point, since the input makes no sense there."""

    error: Raised


# -- findings


_OPEN = {
    Status.NONSMOOTH,
    Status.UNRESOLVED,
    Status.REFERENCE,
    Status.UNFINISHED,
    Status.UNSUPPORTED,
}


@dataclass(frozen=True)
class Finding:
    """One status, where it was seen, what was seen, and what to do about it."""

    status: Status
    mode: str
    entry: str
    detail: Detail
    """The situation, with its numbers. `adjudge.report.text_of` makes the sentence."""
    remedy: Advice | None = None
    open: bool = False
    """Whether this finding leaves the question undecided, whatever its status."""
    note: bool = False
    """Whether this is worth knowing and decides nothing."""
    cause: BaseException | None = None
    way: str = ""
    """The way of taking derivatives in which it was seen, where that is not the engine's usual
    one."""
    point: str = ""
    """At which of several points, by name."""
    moved: float = 0.0
    """How far x was moved off a kink for this, relative to the scale of each input."""
    given: str = ""
    """The derivative by hand in which it was seen, by the name under which the caller gave it:
    `grad`, `jac`, `hess`, `hessp`. Empty for others."""

    @property
    def verdict(self) -> Verdict:
        """What this finding alone makes of a check."""
        if self.note:
            return Verdict.PASS
        if self.open or self.status in _OPEN:
            return Verdict.INCONCLUSIVE
        return Verdict.FAIL

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "status": str(self.status),
            "mode": self.mode,
            "entry": self.entry,
            "verdict": str(self.verdict),
            "way": self.way,
            "point": self.point,
            "situation": type(self.detail).__name__,
            "detail": plain(self.detail),
            "remedy": plain(self.remedy),
        }


def plain(value: Any) -> Any:
    """Returns strings, numbers, lists and dicts; a number that is not finite becomes a string."""
    if isinstance(value, Enum):
        return str(value) if isinstance(value, str) else value.name
    if is_dataclass(value):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


class Reason(Enum):
    """Why a point decides nothing."""

    RAISES = auto()
    NOT_FINITE = auto()
    NOT_FINITE_NEARBY = auto()
    KINK = auto()
    JUMP = auto()
    VERTICAL_TANGENT = auto()
    OUT_OF_RANGE = auto()
    """The derivative lies where its dtype ends."""
    ROUNDING_OF_X = auto()
    """The rounding of x moves f as much as a step does."""
    ONLY_ROUNDING = auto()
    HARDLY_MOVES = auto()
    """Some input hardly moves f."""
    STEPS = auto()
    """f moves in steps."""
    INTEGERS = auto()
    """x is made of integers, and f may round them."""
    UNCONFIRMED = auto()
    """What is wrong along one set of probes is not wrong along another."""


@dataclass(frozen=True)
class Silence:
    """Why a point decides nothing, and what it is about."""

    reason: Reason
    name: str = ""
    """The type of an exception; an input."""
    modes_taken: str = ""
    """The derivatives that were taken before, where one of them explains it, and not f."""


def worst(verdicts: list[Verdict]) -> Verdict:
    """FAIL before INCONCLUSIVE before PASS; of nothing: INCONCLUSIVE."""
    if Verdict.FAIL in verdicts:
        return Verdict.FAIL
    if Verdict.INCONCLUSIVE in verdicts or not verdicts:
        return Verdict.INCONCLUSIVE
    return Verdict.PASS


def outcome_of(mode: str, verdict: Verdict, findings: Sequence[Finding]) -> Outcome:
    """The verdict of a mode, or why there is none."""
    if verdict is Verdict.PASS:
        return verdict
    statuses = {one.status for one in findings if one.mode == mode and not one.entry}
    for status in (Status.RAISED, Status.UNSUPPORTED):
        if status in statuses:
            return status
    return verdict
