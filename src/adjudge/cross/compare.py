"""The numbers of two engines for one question: equal to rounding, or apart, and how.

Two right implementations differ by rounding, and by what conditioning makes of it. Both are
measured: all entries of x are moved by units of rounding, and so are the numbers. What lies beyond
is taken again at points around x, where rounding is another one and an error the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from adjudge.cross.engine import Engine, Numbers, Output, Question
from adjudge.cross.report import VALUE, Cause, Divergence
from adjudge.errors import AdjudgeError, Catching, NotSupportedError
from adjudge.estimate import coarsest_eps
from adjudge.findings import Status, Verdict
from adjudge.floats import Vector, lowest_bit, norm, scale
from adjudge.jacobian import (
    DERIVATIVE_UNITS,
    FAR_DISTANCES,
    constant,
    finite_deviation,
    proportional,
    random_probes,
    rms,
    rounding_allowance,
)
from adjudge.problem import Leaf, Space, random_entries
from adjudge.report import Report

NEAR = 4
"""Points at which every entry of x is some units of rounding off."""
DISTANCES = (30, 20, 16, 13, 11, 9)
"""Binary exponents of how far the points lie, over each entry, at which an error has to stay."""
FACTORS = (1 / 4, 1 / 2, 2.0, 4.0)
"""Times x, where a function that stands still next to x, since it computes through larger numbers,
is seen to move."""
COARSE = 2.0**10
"""Units of rounding up to which the spacing of values is put down to the rounding of larger ones,
and not to a function that rounds."""
WRONG = 4
"""Times what is allowed, from which on a deviation is looked into."""
KEPT = 32
"""Entries that are looked at closely, those farthest apart."""
ENOUGH = 3
"""Points around x that it takes to tell rounding from an error."""

Array = NDArray[np.float64]


# ------------------------------------------------------------------ what is asked


def questions(first: Engine, words: Sequence[str], seed: int) -> list[Question]:
    """The questions that are put to every engine, drawn once; spaces are those of `first`."""
    X, Y = first.problem.X, first.base().Y
    x = first.problem.origin
    found = [Question("", X, Y, x)]
    for k, word in enumerate(words):
        random = np.random.default_rng([seed, 53, k])
        domain, codomain, origin, along = X, Y, x, None
        if len(word) == 2:
            more = Y if word[1] == "R" else X
            along = random_entries(np.random.default_rng([seed, 59, len(more.leaves)]), more.size)
            origin = np.concatenate([x, along])
            name, image = ("grad_outputs", "grad") if word[1] == "R" else ("tangents", "tangent")
            named = [replace(leaf, name=f"{name}[{j}]") for j, leaf in enumerate(more.leaves)]
            domain = Space((*X.leaves, *named))
            codomain = _images(X if word[1] == "R" else Y, image)
        question = Question(word, domain, codomain, origin, along)
        seat = replace(first.problem, X=domain, origin=origin)
        drawn = random_probes(seat, question.by, word[0], random) if question.by.size else []
        found.append(replace(question, probes=tuple(drawn)))
    return found


def _images(space: Space, name: str) -> Space:
    return Space(tuple(replace(leaf, name=f"{name}({leaf.name})") for leaf in space.leaves))


def near(first: Engine, question: Question, seed: int) -> list[Vector]:
    """x, and points at which every entry is one or two units of its rounding off."""
    x = question.origin
    random = np.random.default_rng([seed, 61])
    with np.errstate(all="ignore"):
        ulp = np.where(x != 0, 2.0 ** np.floor(np.log2(np.abs(x))), 0.0) * _eps(question.domain)
    ulp[~np.isfinite(ulp)] = 0.0
    steps = np.array([-2.0, -1.0, 1.0, 2.0])
    moved = [x + random.choice(steps, x.size) * ulp for _ in range(NEAR)]
    return [x, *(_rounded(first, question, point) for point in moved)]


def around(first: Engine, question: Question, seed: int) -> list[Vector]:
    """Points around x at `DISTANCES`, farther ones at `FAR_DISTANCES`, and at `FACTORS` times x."""
    x = question.origin
    random = np.random.default_rng([seed, 67])
    lengths = np.concatenate(
        [np.where(x[part] != 0, np.abs(x[part]), scale(x[part])) for part in question.domain.slices]
        or [x]
    )
    finest = 4 * _eps(question.domain)
    distances = [2.0**-d for d in DISTANCES] + list(FAR_DISTANCES)
    points = [
        x + np.maximum(d, finest) * lengths * random.uniform(-1, 1, x.size) for d in distances
    ]
    points += [x * factor * random.uniform(0.9, 1.1, x.size) for factor in FACTORS]
    return [_rounded(first, question, point) for point in points]


def _eps(space: Space) -> Vector:
    return np.repeat([leaf.eps for leaf in space.leaves], [leaf.size for leaf in space.leaves])


def _rounded(first: Engine, question: Question, point: Vector) -> Vector:
    """The point within the bounds of x, in the dtypes of its leaves."""
    problem = first.problem
    n = problem.X.size
    point = np.concatenate([problem.clipped(point[:n]), point[n:]])
    likes = (*problem.x, *(first.base().arrays if question.word[1:] == "R" else problem.x))
    likes = likes[: len(question.domain.leaves)]
    with first.inside():
        arrays = question.domain.arrays(first.backend, point, likes)
        return question.domain.vector(first.backend, arrays, likes)


# ------------------------------------------------------------------ what is compared


@dataclass(frozen=True)
class Gap:
    """Where the numbers of two engines are farthest apart, beyond rounding as it was measured."""

    entry: int
    probe: int
    one: float
    two: float
    allowed: float
    apart: int
    """Of all numbers that were compared, how many are."""
    ratio: float
    """The difference over what is allowed; infinite where one number is not finite."""
    lasting: bool
    """Whether it is the same at points around x, as rounding is not."""
    hidden: bool
    """Whether f could not show it, for its own rounding."""


@dataclass(frozen=True)
class Compared:
    """How many numbers were compared, and the gap, if there is one."""

    count: int
    gap: Gap | None = None


def compared(
    question: Question,
    one: Numbers,
    two: Numbers,
    u: float,
    again: Callable[[], tuple[Numbers, Numbers]],
) -> Compared:
    """The numbers of two engines at `near`; `again` gives both at `around`. `u`: the coarser unit
    round-off of the two.
    """
    space = question.of
    a, b = one.rows[0], two.rows[0]
    with np.errstate(all="ignore"):
        finite = np.isfinite(a) & np.isfinite(b)
        beyond = (np.abs(a) >= _huge(space)) | (np.abs(b) >= _huge(space))
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        odd = ~finite & ~same & ~beyond
        gap = np.where(finite, np.abs(a - b), 0.0)
        motion = np.maximum(_motion(one.rows), _motion(two.rows))
        bound = np.array(
            [
                WRONG
                * rounding_allowance(
                    u, _size(space, one.rows[0, p], two.rows[0, p]), motion[p], space
                )
                for p in range(len(a))
            ]
        ).reshape(a.shape)
        ratio = np.where(odd, np.inf, np.where(gap > 0, gap / bound, 0.0))
    count = int(np.count_nonzero(finite | odd))
    if not np.any(ratio > 1):
        return Compared(count)
    by_entry = np.max(ratio, axis=0)
    suspects = np.argsort(-by_entry, kind="stable")[:KEPT]
    suspects = suspects[by_entry[suspects] > 1]
    first, second = again()
    if not question.word:  # differences of larger numbers lie on a lattice
        bound = bound + DERIVATIVE_UNITS * _coarse(u, first, second)
        with np.errstate(all="ignore"):
            ratio = np.where(odd, np.inf, np.where(gap > 0, gap / bound, 0.0))
        if not np.any(ratio > 1):
            return Compared(count)
        suspects = suspects[np.max(ratio, axis=0)[suspects] > 1]
    lasting, part = _lasting(first, second, suspects, rms(bound[:, suspects], 0))
    named = suspects[lasting] if np.any(lasting) else suspects
    hidden = False
    if question.word and np.any(lasting) and not np.any(part):
        hidden = _moves(question, gap, named) <= _shown(u, first, second)
    k = int(named[np.argmax(np.max(ratio[:, named], axis=0))])
    p = int(np.argmax(ratio[:, k]))
    found = Gap(
        k, p, float(a[p, k]), float(b[p, k]), float(bound[p, k]),
        int(np.count_nonzero(ratio > 1)), float(ratio[p, k]), bool(np.any(lasting)), hidden,
    )  # fmt: skip
    return Compared(count, found)


def _size(space: Space, a: Vector, b: Vector) -> Vector:
    finite = np.where(np.isfinite(a), a, 0.0), np.where(np.isfinite(b), b, 0.0)
    return np.asarray(np.maximum(space.modulus(finite[0]), space.modulus(finite[1])))


def _motion(rows: Array) -> Array:
    """How far numbers move between points that are some units of rounding apart."""
    moved = np.abs(rows - rows[0])
    return np.asarray(np.max(np.where(np.isfinite(moved), moved, 0.0), axis=0))


def _huge(space: Space) -> Vector:
    def largest(leaf: Leaf) -> float:
        return np.inf if leaf.double else leaf.huge

    return np.repeat([largest(leaf) for leaf in space.leaves], [x.size for x in space.leaves])


def _lasting(
    first: Numbers, second: Numbers, suspects: NDArray[np.intp], bound: Vector
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Of the suspects those that are apart in the same way at points around x; and those that are
    so by one part of their size, however far off the points.
    """
    count = len(DISTANCES)
    both = [numbers.rows[:, :, suspects] for numbers in (first, second)]
    low, high = (rows[:count] for rows in both)
    part = _fixed(*(rows[count : count + len(FAR_DISTANCES)] for rows in both))
    e, _ = finite_deviation(low, high)
    held = np.all(np.isfinite(low) & np.isfinite(high), axis=1)
    number = np.sum(held, axis=0)
    typical = np.sqrt(np.sum(e**2 * held[:, None], axis=(0, 1)) / np.maximum(number, 1) / len(e[0]))
    stays = part | _fixed(low, high) | ((number >= ENOUGH) & constant(e, 4.0, held))
    return stays & (typical > bound), part


def _fixed(low: Array, high: Array) -> NDArray[np.bool_]:
    """Says where low and high differ by the same part of their size at all points. An entry at
    which either is zero does not count.
    """
    e, g = finite_deviation(low, high)
    held = np.all(np.isfinite(low) & np.isfinite(high), axis=1)
    unknown = ~held[:, None]
    zero = [np.all((rows == 0) | unknown, axis=(0, 1)) for rows in (low, high)]
    enough = np.count_nonzero(held, axis=0) >= ENOUGH
    return np.asarray(enough & proportional(e, g, held) & ~zero[0] & ~zero[1])


def _moves(question: Question, gap: Array, entries: NDArray[np.intp]) -> float:
    """How much f would move by these deviations of its derivative, over the scale of x."""
    off = np.max(gap[:, entries], axis=0)
    if question.word[0] == "R":
        x = question.origin
        lengths = np.concatenate([scale(x[part]) for part in question.domain.slices])
        off = off * lengths[entries]
    return float(norm(off))


def _shown(u: float, first: Numbers, second: Numbers) -> float:
    """How much f has to move for that to be seen in its values."""
    off, f = finite_deviation(first.values, second.values)
    coarse = float(norm(_coarse(u, first, second)))
    return max(DERIVATIVE_UNITS * (u * float(rms(norm(f))) + coarse), WRONG * float(norm(off[0])))


def _coarse(u: float, first: Numbers, second: Numbers) -> Vector:
    """The spacing of the values of f, where that is coarser than rounding: on a lattice lie the
    differences of larger numbers. Seen at the far points, between which they move.
    """
    found = [np.zeros(first.values.shape[1])]
    for numbers in (first, second):
        values = np.where(np.isfinite(numbers.values), numbers.values, 0.0)[len(DISTANCES) :]
        unit = np.min(lowest_bit(values), axis=0)
        ordered = np.sort(values, axis=0)
        moves = np.count_nonzero(np.diff(ordered, axis=0), axis=0) >= ENOUGH
        coarse = moves & (unit > 8 * u * np.max(np.abs(values), axis=0)) & (unit <= COARSE * u)
        found.append(np.where(coarse, unit, 0.0))
    return np.asarray(np.max(found, axis=0))


STRAY = 2.0**10
"""Times what is allowed, beyond which even a difference that does not last is no rounding."""
STRUCTURE = "structure"

Outputs = tuple[object, list[Output]]


@dataclass
class Bench:
    """Engines that evaluated f at x, and what was found about them so far."""

    engines: Sequence[Engine]
    reports: Mapping[str, Report]
    outputs: Mapping[str, Outputs]
    words: Sequence[str]
    seed: int
    divergences: list[Divergence] = field(default_factory=list)
    comparisons: dict[str, dict[tuple[str, str], int]] = field(default_factory=dict)
    """By quantity and pair of engines, how many numbers were compared."""
    lacking: dict[tuple[str, str], tuple[Status, str]] = field(default_factory=dict)
    """By word and engine, why there is no answer: UNSUPPORTED or RAISED, and the reason."""
    other_in_double: bool = False
    """Whether the function in double precision has another value than on every engine."""
    owners: dict[str, str] = field(default_factory=dict)
    """By name of a reference in double precision, the engine that it is taken on."""
    _answers: dict[tuple[str, str, bool], Numbers] = field(default_factory=dict)

    @cached_property
    def questions(self) -> list[Question]:
        """What every engine is asked, the value first."""
        return questions(self.engines[0], self.words, self.seed)

    def judge(self, pairs: Sequence[tuple[Engine, Engine]], truth: Engine | None = None) -> None:
        """Compares pairs of engines: structure, values, then derivatives, as far as both are alike.

        With `truth`, a function in double precision, numbers are held against that one instead.
        """
        alike = [pair for pair in pairs if not self._structure(*pair)]
        held: list[tuple[Engine, Engine]] = []
        if truth is not None:
            near_by = {self.owner(truth.name)}
            near_by |= {e.name for pair in alike if near_by & {x.name for x in pair} for e in pair}
            held = [(e, truth) for e in self.engines if e.name in near_by]
            if self._another(held):
                truth, held = None, []
        for question in self.questions:
            known = truth is not None and self.answer(question, truth) is not None
            asked = held if known else alike
            answering = {e.name for e in self.engines if self.answer(question, e) is not None}
            if len(answering) < 2:  # an engine by itself is judged by its own report
                asked = []
            for one, two in asked:
                found = self.compare(question, one, two)
                if found is not None:
                    self.divergences.append(found)
            if not question.word:
                apart = [set(d.pair) for d in self.failing(VALUE)]
                wrong = {d.pair[0] for d in self.failing(VALUE) if held}
                held = [pair for pair in held if pair[0].name not in wrong]
                alike = [
                    (one, two)
                    for one, two in alike
                    if {one.name, two.name} not in apart and not {one.name, two.name} & wrong
                ]
            self._outlier(question.word or VALUE)

    def _another(self, held: Sequence[tuple[Engine, Engine]]) -> bool:
        """Whether the function in double precision has another value than on every engine."""
        found = [self.compare(self.questions[0], one, two) for one, two in held]
        another = all(d is not None and d.verdict is Verdict.FAIL for d in found)
        if another:
            self.comparisons.pop(VALUE, None)
        self.other_in_double |= another
        return another

    def failing(self, word: str) -> list[Divergence]:
        """The divergences in one quantity that fail."""
        return [d for d in self.divergences if d.quantity == word and d.verdict is Verdict.FAIL]

    def owner(self, name: str) -> str:
        """The engine whose report speaks for this one of a pair."""
        return self.owners.get(name, name)

    # ------------------------------------------------------------------ structure

    def _structure(self, one: Engine, two: Engine) -> bool:
        """Whether f returns another structure, shape or dtype, or other integers, on the two."""
        (first, a), (second, b) = self.outputs[one.name], self.outputs[two.name]
        names = (one.name, two.name)
        if first != second or len(a) != len(b):
            sides = _listed(a), _listed(b)
            self._unlike(names, Status.INCONSISTENT, "out", Cause.STRUCTURE, sides)
            return True
        for left, right in zip(a, b, strict=True):
            for cause, status, here, there in (
                (Cause.SHAPE, Status.WRONG_SHAPE, left.shape, right.shape),
                (Cause.DTYPE, Status.WRONG_DTYPE, left.dtype, right.dtype),
            ):
                if here != there:
                    self._unlike(names, status, left.name, cause, (str(here), str(there)))
                    return True
            if not left.floating and not _equal(left.value, right.value):
                sides = _short(left.value), _short(right.value)
                self._unlike(names, Status.MISMATCH, left.name, Cause.VALUES, sides)
                return True
        return False

    def _unlike(
        self,
        names: tuple[str, str],
        status: Status,
        entry: str,
        cause: Cause,
        sides: tuple[str, str],
    ) -> None:
        word = VALUE if cause is Cause.VALUES else STRUCTURE
        kinks = word == VALUE and self._kinks(names)
        verdict = Verdict.INCONCLUSIVE if kinks else Verdict.FAIL
        self.divergences.append(
            Divergence(word, names, status, verdict, entry, None, 0.0, 1, 1, (), cause, sides)
        )

    # ------------------------------------------------------------------ numbers

    def compare(self, question: Question, one: Engine, two: Engine) -> Divergence | None:
        """What the answers of two engines differ in, if they do; counted."""
        word = question.word or VALUE
        first, second = self.answer(question, one), self.answer(question, two)
        if first is None or second is None:
            return None

        def again() -> tuple[Numbers, Numbers]:
            both = [self.answer(question, engine, wide=True) for engine in (one, two)]
            assert both[0] is not None
            assert both[1] is not None
            return both[0], both[1]

        u = max(self._rounding(question, engine) for engine in (one, two)) / 2
        found = compared(question, first, second, u, again)
        if found.count:
            pairs = self.comparisons.setdefault(word, {})
            pairs[one.name, two.name] = found.count
        if found.gap is None:
            return None
        return self._divergence(question, (one.name, two.name), found.gap, found.count)

    def answer(self, question: Question, engine: Engine, *, wide: bool = False) -> Numbers | None:
        """The numbers of one engine next to x, or around it if `wide`; `None` if it has none."""
        if question.word and not engine.differentiates:
            return None
        key = (question.word, engine.name, wide)
        if key not in self._answers and (question.word, engine.name) not in self.lacking:
            x = question.origin
            first = self.engines[0]
            points = near(first, question, self.seed)
            if wide:
                points = [x, *around(first, question, self.seed)]
            with Catching(AdjudgeError) as caught:
                found = engine.numbers(question, points)
                if wide:  # x itself is known
                    found = Numbers(found.rows[1:], found.values[1:])
                self._answers[key] = found
            if (error := caught.error) is not None:
                lacks = isinstance(error, NotSupportedError)
                status = Status.UNSUPPORTED if lacks else Status.RAISED
                self.lacking[question.word, engine.name] = (status, first_line(error))
        return self._answers.get(key)

    @staticmethod
    def _rounding(question: Question, engine: Engine) -> float:
        """The spacing of the coarsest dtype among inputs and outputs."""
        top = engine.top(question.word[1:], question.along)
        return coarsest_eps(top.problem, top.base)

    # ------------------------------------------------------------------ verdicts

    def _divergence(
        self, question: Question, names: tuple[str, str], gap: Gap, count: int
    ) -> Divergence:
        word = question.word or VALUE
        accused = self._accused(question.word, names)
        status, verdict, cause = self._judged(names, gap, accused)
        return Divergence(
            word, names, status, verdict, question.entry(gap.entry, gap.probe),
            (gap.one, gap.two), gap.allowed, gap.apart, count,
            accused if verdict is Verdict.FAIL else (), cause,
        )  # fmt: skip

    def _judged(
        self, names: tuple[str, str], gap: Gap, accused: Sequence[str]
    ) -> tuple[Status, Verdict, Cause]:
        odd = not np.isfinite(gap.ratio)
        if gap.hidden and not accused:
            return Status.INACCURATE, Verdict.PASS, Cause.HIDDEN
        if gap.lasting or accused:
            status = Status.NONFINITE if odd else Status.MISMATCH
            return status, Verdict.FAIL, Cause.LASTING if gap.lasting else Cause.ACCUSED
        if self._kinks(names):
            cause = Cause.NOT_FINITE_AT_KINK if odd else Cause.KINK
            return Status.NONSMOOTH, Verdict.INCONCLUSIVE, cause
        if odd:
            return Status.NONFINITE, Verdict.FAIL, Cause.NOT_FINITE
        if self._imprecise(names):
            return Status.INACCURATE, Verdict.PASS, Cause.NARROW_INSIDE
        if gap.ratio > STRAY:
            return Status.INCONSISTENT, Verdict.INCONCLUSIVE, Cause.STRAY
        return Status.INACCURATE, Verdict.PASS, Cause.LOST_DIGITS

    def _accused(self, word: str, names: Sequence[str]) -> tuple[str, ...]:
        """The engines whose own differences contradict this derivative."""
        wrong = (Verdict.FAIL, Status.RAISED)
        return tuple(
            name
            for name in dict.fromkeys(map(self.owner, names))
            if name in self.reports and word and self.reports[name].modes.get(word) in wrong
        )

    def _kinks(self, names: Sequence[str]) -> bool:
        """Whether f is not smooth at x, by the report of either: in the middle of a kink the slope
        of central differences is the engine's, and that report says nothing.
        """
        return any(Status.NONSMOOTH in self._statuses(self.owner(name)) for name in names)

    def _imprecise(self, names: Sequence[str]) -> bool:
        return any(Status.IMPRECISE in self._statuses(self.owner(name)) for name in names)

    def _statuses(self, name: str) -> set[Status]:
        report = self.reports.get(name)
        return {finding.status for finding in report.findings} if report is not None else set()

    def _outlier(self, word: str) -> None:
        """Where one engine differs from all others and these agree, and no differences have
        decided, it is that one.
        """
        failing = self.failing(word)
        if len(failing) < 2 or any(d.accused for d in failing):
            return
        common = set(failing[0].pair).intersection(*(d.pair for d in failing))
        if len(common) != 1 or common & set(self.owners):
            return
        (name,) = common
        for k, found in enumerate(self.divergences):
            if found in failing:
                self.divergences[k] = replace(found, accused=(name,), outlier=True)


def first_line(error: BaseException) -> str:
    """`ValueError: the message`, in one line."""
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"


def _listed(outputs: Sequence[Output]) -> str:
    return f"({', '.join(output.name for output in outputs)})"


def _equal(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return bool(np.array_equal(a, b, equal_nan=True))
    if isinstance(a, float | complex) and isinstance(b, float | complex):
        return bool(np.isclose(a, b, rtol=1e-12, atol=0, equal_nan=True))
    return bool(a == b)


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 60 else text[:57] + "..."
