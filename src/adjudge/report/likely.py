"""This module names the mistake that is likely behind a wrong derivative: of a few entries it
compares each, and of many it compares sums.

A mistake makes of the right gradient g what a linear map T makes of it: a multiple, a transpose, a
sum over an axis. Whether the automatic gradient is `T g` shows without g: for random weights v the
sum `<T g, v>` is `<g, T* v>`, which is one directional derivative of f along the tangent `T* v`, at
any size. This is Freivalds' check (IFIP Congress, 1977) of the claim that the automatic gradient is
`T g`. Entry by entry a reader of 144 numbers would wait for 288 evaluations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import log10

import numpy as np

from adjudge.constants import PATTERN_EVIDENCE, PLACE_EVIDENCE, UNDERFLOW
from adjudge.estimate import Column, Effort
from adjudge.findings import Entry
from adjudge.floats import Vector, norm, scale
from adjudge.jacobian import Failure, Table
from adjudge.problem import (
    Problem,
    Reverse,
    Stream,
    Tangent,
    generator,
    lies_in,
    random_cotangent,
    random_entries,
    tangent_to,
)
from adjudge.report.locate import (
    Located,
    Residual,
    projected,
    truncation,
    with_truncation,
    work_of,
)
from adjudge.report.mistakes import (
    CURVED_SETS,
    DerivativePair,
    Description,
    adjoint,
    convention_of,
    diagnose,
    evidence,
    ignores_cotangent,
    named_factors,
    number,
    right_along,
    sizes_of,
    ways_in_decades,
)
from adjudge.report.patterns import (
    Array,
    Guess,
    Mask,
    conjugations,
    reversal,
    rotation,
    sums,
    transpositions,
)

FEW = 16
"""The largest input, in real coordinates, of which each entry is compared, by two evaluations."""
FEW_LADDERS = 8
"""The same where each entry takes a ladder of steps, sixteen evaluations."""
MANY = 2**16
"""The largest input of which sums are compared. Of a larger one the check itself takes long, and
the entries that were found say what they have in common."""
SUMS_WORK = 32
"""The sums may take so many evaluations. A check whose gradient is right takes about ten."""
LADDERED_WORK = 128
"""The same where each sum takes a ladder."""
SETTLED_AT_ONCE = 6
"""Three steps take so many evaluations, and a ladder more."""
MOST_DRAWS = 4
"""In a coarse dtype one sum is little evidence. So many are made of one guess at most."""
DRAWS_OF_PLACE = range(3)
"""Many places are tried, and in one of a million the errors of a few entries make the same factor
of two sums by accident. So many sums tell what a place has in common."""
FACTOR_ROOM = 1e-5
"""The factors of entries may differ by this part, if their error bars allow it, and count as one.
The value is ours. No verdict depends on it."""


class LikelyMistakes:
    """The likely mistakes behind failed comparisons, each of which is looked for once."""

    def __init__(self, table: Table) -> None:
        """The mistakes behind what failed in `table`; nothing is evaluated yet."""
        self.table = table
        self.known: dict[tuple[object, ...], str | None] = {}

    def explains(self, failure: Failure, located: Located) -> bool:
        """Returns whether a mistake explains the failure, of which these entries are known."""
        return self._seen_in_numbers(failure, located) is not None

    def behind(self, failure: Failure, located: Located | None = None) -> str | None:
        """Returns what is probably wrong with the gradient behind a failure, if the numbers show
        it, or the entries that were `located` behind it have something in common.
        """
        many = _size(self.table, failure) > FEW
        alone = located is not None and located.only_one
        if alone and many and failure.key not in self.known:
            return None  # the entry is named, and the others are right
        said = self._seen_in_numbers(failure, located)
        if said is not None or located is None or len(failure.tangent.leaves) > 1 or not many:
            return said
        said = common_factor([failure.entry, *located.entries])
        return None if said is None else f"{_subject(self.table, failure)} {said}"

    def _seen_in_numbers(self, failure: Failure, located: Located | None) -> str | None:
        if failure.key not in self.known:
            first = None if located is None else located.first
            self.known[failure.key] = likely_mistake(self.table, failure, first)
        return self.known[failure.key]


def likely_mistake(table: Table, failure: Failure, wrong: int | None) -> str | None:
    """Returns what is probably wrong with the gradient behind a failure, if the numbers show it.

    The gradient `J* w` of one input, for a random `w` on one output, is compared with differences:
    along every entry of a small input, and along weighted sums of the entries of a large one.
    Forward mode gives an entry of it as `<w, J e_k>`. The coordinate of x at which an entry is
    known to be `wrong` shows where to look.
    """
    reverse, problem, pushed = table.reverse, table.problem, failure.kind == "each"
    if failure.kind == "first" or (table.forward if pushed else reverse) is None:
        return None
    if len(failure.tangent.leaves) > 1:
        return None
    j, i = failure.tangent.leaves[0], _output(table, failure)
    size = problem.X.leaves[j].size
    if not 0 < size <= MANY or (reverse is not None and not (pushed or reverse.attached[i])):
        return None
    subject = _subject(table, failure)
    if reverse is not None and not pushed and _cut_to_stored(table, reverse, j, i):
        return (
            f"{subject} is zero wherever x stores no value, and right at the stored values: if it "
            "is meant for these, check it there: masked=True"
        )
    # What two evaluations did not settle, their truncation may hide in every entry.
    laddered = failure.entry.method.evaluations > SETTLED_AT_ONCE
    gradient = _Gradient(table, j, i, pushed=pushed, laddered=laddered)
    if size <= (FEW_LADDERS if laddered else FEW):
        return gradient.by_entries(subject)
    said = gradient.by_sums(wrong)
    return None if said is None else f"{subject} {said}"


def _size(table: Table, failure: Failure) -> int:
    """Returns the size of the input that a failure is about, in real coordinates."""
    return table.problem.X.leaves[failure.tangent.leaves[0]].size


def _subject(table: Table, failure: Failure) -> str:
    """Returns what a sentence calls the derivative of one output with respect to one input."""
    X, Y = table.problem.X, table.base.Y
    if len(X.leaves) == len(Y.leaves) == 1:
        return "the automatic derivative"
    given, output = X.leaves[failure.tangent.leaves[0]], Y.leaves[_output(table, failure)]
    return f"the derivative of {output.name} with respect to {given.name}"


def common_factor(entries: Sequence[Entry]) -> str | None:
    """Returns the predicate that all of these entries are off by one factor, where they are; the
    first of them is a sum of many.

    Of a sum of terms that are off by different factors, or of which some are right, the factor is
    another one than that of an entry. The rule is ours, and costs no evaluation.
    """
    if len(entries) < 2 or not all(e.reference and np.isfinite(e.automatic) for e in entries):
        return None
    first = entries[1].automatic / entries[1].reference
    for entry in entries:
        room = entry.allowed / abs(entry.reference)
        if abs(entry.automatic / entry.reference - first) > min(room, FACTOR_ROOM) * abs(first):
            return None
    if first == 0:
        return "is zero, where the reference is not"
    named = named_factors({}).get(float(f"{first:.6g}"), Description(_number_of(first)))
    return f"{named.verb} wherever it was looked at{named.hint}"


def _number_of(factor: float) -> str:
    text = f"{float(f'{factor:.6g}'):g}"
    return f"is {number(factor) if text == '1' else text} times the reference"


@dataclass(frozen=True)
class _Sum:
    """One weighted sum of a gradient: by the engine, and by differences."""

    automatic: float
    reference: Residual
    """The error bar holds what may differ besides."""

    @property
    def deviation(self) -> Residual:
        """What the two differ by."""
        return Residual(self.reference.value - self.automatic, self.reference.error)

    def __sub__(self, part: _Sum) -> _Sum:
        """Returns the sum over the other entries."""
        return _Sum(self.automatic - part.automatic, self.reference - part.reference)


class _Gradient:
    """The gradient `J* w` of input `j` for a random `w` on output `i`, of which differences know
    single entries and sums.
    """

    def __init__(self, table: Table, j: int, i: int, *, pushed: bool, laddered: bool) -> None:
        self.table, self.j, self.i, self.laddered = table, j, i, laddered
        problem = table.problem
        self.leaf, self.part = problem.X.leaves[j], problem.X.slices[j]
        self.x: Vector = problem.origin[self.part]
        self.shape = (*self.leaf.host_shape, 2 if self.leaf.complex else 1)
        self.w = _cotangent(table, i)
        self.rtol = table.tolerance.relative
        self.automatic: Array | None = None
        """The gradient by reverse mode. Forward mode knows sums of it."""
        self.other: Array | None = None
        """The same for the cotangent -2 w."""
        if table.reverse is not None and not pushed:
            self.automatic, self.other = (
                table.reverse.row(table.base, k * self.w)[self.part].reshape(self.shape)
                for k in (1.0, -2.0)
            )
        self.begun = work_of(problem.counts)
        self.draws: list[tuple[Array, _Sum]] = []
        """Random weights, with their sums."""

    # -- few entries

    def by_entries(self, subject: str) -> str | None:
        """Returns what comparing every entry says."""
        table, base = self.table, self.table.base
        units = [*replace(table.probes, full=True).tangents(table.problem.origin, self.part)]
        if table.problem.counts.ahead is not None:
            table.estimator.begin(units)
        reference, error, pushed = (np.empty(self.leaf.size) for _ in "123")
        for k, unit in enumerate(units):
            found = self._along(unit)
            reference[k] = self.w @ found.estimate.value[: base.Y.size]
            error[k] = norm(self.w * found.estimate.error[: base.Y.size])
            if self.automatic is None:
                pushed[k] = self._pushed(unit.vector)
        automatic = pushed.reshape(self.shape) if self.automatic is None else self.automatic
        numbers = (automatic, reference.reshape(self.shape), error.reshape(self.shape))
        pair = DerivativePair(*numbers, self.rtol)
        return self._entries_along_set(pair, subject) or diagnose(
            pair,
            x=None if self.leaf.complex else self.x,
            output_shape=base.Y.leaves[self.i].host_shape,
            other=self.other,
            symmetric=self._directions(),
            subject=subject,
        )

    def _along(self, tangent: Tangent) -> Column:
        """Returns the differences along a tangent, with a ladder where the check needed one."""
        estimator = self.table.estimator
        found = estimator.along(tangent)
        return estimator.along(tangent, Effort.LADDER, found) if self.laddered else found

    def _directions(self) -> str:
        """Returns the option that keeps the input symmetric, where it is; else nothing."""
        symmetric = lies_in("symmetric", self.leaf, self.x)
        return _directions(self.table.problem, self.j, "symmetric") if symmetric else ""

    def _tangents(self) -> tuple[str, list[Array]]:
        """Returns the curved set that x is a point of, and two random tangents to it; nothing where
        there is none.
        """
        name = next((name for name in CURVED_SETS if lies_in(name, self.leaf, self.x)), "")
        if not name or self.table.problem.constraints:
            return "", []
        random = generator(self.table.probes.seed, Stream.MISTAKE_WEIGHTS, MOST_DRAWS + 1)
        drawn = (random_entries(random, self.leaf.size, wide=True) for _ in range(2))
        along = (tangent_to(name, self.leaf, self.x, scale(self.x).min() * v) for v in drawn)
        return name, [tangent.reshape(self.shape) for tangent in along]

    def _entries_along_set(self, pair: DerivativePair, subject: str) -> str | None:
        """Returns that the derivative is right along a curved set, of which x is a point, where its
        entries say so.
        """
        name, tangents = self._tangents()
        if not name or not pair.known.all() or not pair.wrong.any():
            return None
        gap, room = pair.automatic - pair.reference, pair.allowed(pair.reference, pair.error)
        if not np.all(np.isfinite(gap)):
            return None
        if not all(abs(np.vdot(t, gap)) <= np.vdot(abs(t), room) for t in tangents):
            return None
        return f"{subject} {right_along(name, _directions(self.table.problem, self.j, name))}"

    # -- sums

    def _pushed(self, vector: Vector) -> float:
        """Returns the automatic sum with these weights by forward mode."""
        table = self.table
        assert table.forward is not None
        return float(self.w @ table.forward.column(table.base, vector)[1])

    def _vector(self, weights: Array) -> Vector:
        vector = np.zeros(self.table.problem.X.size)
        vector[self.part] = weights.reshape(-1)
        return vector

    def _automatic_sum(self, weights: Array) -> float:
        if self.automatic is None:
            return self._pushed(self._vector(weights))
        return float(np.vdot(self.automatic, weights))

    def _reference(self, weights: Array, length: float = 1.0) -> Residual:
        """Returns the sum with these weights by differences."""
        vector = self._vector(weights)
        found = self._along(Tangent((self.j,), vector, length))
        if not self.laddered:
            found = with_truncation(found)
        value, bar, size = projected(found.estimate.of(slice(0, self.w.size)), self.w)
        size = max(size, abs(value))
        # The points were rounded to their dtype, and with them the weights.
        rounded = float(norm(found.vector - vector)) / max(float(norm(vector)), UNDERFLOW)
        bar += (self.rtol + rounded + (0.0 if self.laddered else truncation(found))) * size
        return Residual(value, bar)

    def _sum(self, weights: Array) -> _Sum:
        return _Sum(self._automatic_sum(weights), self._reference(weights))

    def _spent(self) -> bool:
        """Returns whether no further sum is made."""
        most = LADDERED_WORK if self.laddered else SUMS_WORK
        return work_of(self.table.problem.counts) - self.begun >= most

    def _draw(self, k: int) -> tuple[Array, _Sum]:
        """Returns random weights, the `k`-th, and their sum."""
        while len(self.draws) <= k:
            random = generator(self.table.probes.seed, Stream.MISTAKE_WEIGHTS, len(self.draws))
            # What a guess moves to another entry must not throw that across its domain.
            length = 2.0 ** np.floor(np.log2(scale(self.x).min()))
            weights = length * random_entries(random, self.leaf.size, wide=self.leaf.double)
            weights = weights.reshape(self.shape)
            self.draws.append((weights, self._sum(weights)))
        return self.draws[k]

    def by_sums(self, wrong: int | None) -> str | None:
        """Returns the predicate that sums of the gradient bear out, of which one entry is
        wrong.
        """
        automatic = self.automatic
        if automatic is not None:
            if not np.isfinite(automatic).all():
                return None
            if self.other is not None and ignores_cotangent(automatic, self.other, self.rtol):
                return "is the same for two cotangents: they are ignored"
        two = [self._draw(k)[1] for k in range(2)]
        if not all(np.isfinite([one.reference.value, one.reference.error]).all() for one in two):
            return None
        if not any(one.deviation.significant for one in two):
            return None  # sums do not show what is wrong
        said = self._along_symmetric() or self._along_set() or self._everywhere(two)
        said = said or (None if self.leaf.complex else self._domain())
        return said or self._pattern() or self._index(wrong)

    def _along_symmetric(self) -> str | None:
        """Returns that the derivative is right along symmetric matrices, where x is one."""
        directions = self._directions()
        if not directions or self.automatic is None:
            return None
        for k in range(2):
            weights, _ = self._draw(k)
            if self._sum(weights + adjoint(weights)).deviation.significant:
                return None
        return convention_of(self.automatic, self.rtol * np.abs(self.automatic).max(), directions)

    def _along_set(self) -> str | None:
        """Returns that the derivative is right along a curved set, of which x is a point."""
        name, tangents = self._tangents()
        if not name or any(self._sum(tangent).deviation.significant for tangent in tangents):
            return None
        return right_along(name, _directions(self.table.problem, self.j, name))

    def _everywhere(self, two: Sequence[_Sum]) -> str | None:
        """Returns the predicate that holds in all entries."""
        everything = np.ones(self.shape, bool)
        what = self._description(two, everything)
        if what is None:
            return None
        return f"{what.verb} in all {self.leaf.size // self.shape[-1]} entries{what.hint}"

    def _description(self, two: Sequence[_Sum], mask: Mask) -> Description | None:
        """Returns what the derivative is all over `mask`, of which these are sums; `None` if no
        single thing.
        """
        values = np.array([one.automatic for one in two])
        right = np.array([one.reference.value for one in two])
        margin = np.array([max(one.reference.error, UNDERFLOW) for one in two])
        nothing = not values.any() if self.automatic is None else not self.automatic[mask].any()
        if nothing:
            met = evidence(right, margin).sum() >= PATTERN_EVIDENCE
            return Description("is zero", ", where the reference is not") if met else None
        if (np.abs(right) <= margin).all():
            if evidence(values, margin).sum() < PATTERN_EVIDENCE:
                return None
            part = not mask.all()
            hint = " (a missing mask, of clamp or where?)" if part else ""
            return Description("is not zero", f", where the reference is zero{hint}")
        return self._factor(values, right, margin)

    def _factor(self, values: Vector, right: Vector, margin: Vector) -> Description | None:
        """Returns the factor between the sums, if it is the same in all."""
        named = named_factors(sizes_of(self.shape[:-1], self._output_shape))
        fits = []
        for factor, what in named.items():
            room = margin * (1 + abs(factor))
            cost = 0.0 if factor in {-1.0, 2.0, 0.5} else log10(len(named))
            if (np.abs(values - factor * right) <= room).all():
                met = evidence((factor - 1) * right, room).sum()
                fits += [what] if met >= PATTERN_EVIDENCE + cost else []
        if len(fits) == 1:
            return fits[0]
        # One sum gives the factor, and is no evidence for it.
        best = int(np.argmax(np.abs(right) / margin))
        if right[best] == 0:
            return None
        factor = values[best] / right[best]
        others = np.arange(right.size) != best
        unsure = margin[best] * (1 + abs(factor)) / abs(right[best])
        room = (margin * (1 + abs(factor)) + unsure * np.abs(right))[others]
        if not (np.abs(values - factor * right)[others] <= room).all():
            return None
        if evidence(((factor - 1) * right)[others], room).sum() < PATTERN_EVIDENCE:
            return None
        return Description(f"is {number(factor)} times the reference")

    @property
    def _output_shape(self) -> tuple[int, ...]:
        return tuple(self.table.base.Y.leaves[self.i].host_shape)

    # -- patterns

    def _pattern(self) -> str | None:
        """Returns the first predicate about what a mistake made of the whole gradient that the sums
        bear out.
        """
        for guess in self._guesses():
            if self._spent():
                return None
            if self._is_borne_out(guess):
                return guess.text
        return None

    def _is_borne_out(self, guess: Guess) -> bool:
        """Returns whether sums of the automatic gradient are those that the guess predicts."""
        score = 0.0
        for k in range(MOST_DRAWS):
            weights, whole = self._draw(k)
            made = self._reference(np.ascontiguousarray(guess.adjoint(weights)))
            if not abs(whole.automatic - made.value) <= made.error + whole.reference.error:
                return False
            apart = np.array([made.value - whole.reference.value])
            score += float(evidence(apart, np.array([made.error + whole.reference.error])).sum())
            if score >= PATTERN_EVIDENCE + guess.cost:
                return True
            if self._spent():
                break
        return False

    def _guesses(self) -> Iterator[Guess]:
        """Yields the guesses that the automatic gradient and two entries of the right one leave."""
        shape, known = self.shape[:-1], self._known()
        possible = partial(self._is_possible, known)
        yield from filter(possible, conjugations(self.shape[-1]))
        yield from filter(possible, transpositions(shape))
        cost = log10(max(sum(shape), 1))
        for axis, size in enumerate(shape):
            if size > 1:
                yield from filter(possible, [reversal(axis, cost)])
                for shift in self._shifts(axis, known):
                    yield rotation(axis, size, shift, cost)
        yield from filter(possible, sums(shape))

    def _known(self) -> list[tuple[tuple[int, ...], Residual]]:
        """Returns two entries of the right gradient with their places; none in forward mode, where
        the automatic gradient is not known entry by entry.
        """
        if self.automatic is None:
            return []
        random = generator(self.table.probes.seed, Stream.MISTAKE_WEIGHTS, MOST_DRAWS)
        found, lengths = [], scale(self.x).reshape(self.shape)
        for k in {int(np.abs(self.automatic).argmax()), int(random.integers(self.leaf.size))}:
            place = tuple(int(p) for p in np.unravel_index(k, self.shape))
            unit = np.zeros(self.shape)
            unit[place] = 1.0
            value = self._reference(unit, float(lengths[place]))
            if abs(value.value) > value.error:
                found.append((place, value))
        return found

    def _is_possible(self, known: Sequence[tuple[tuple[int, ...], Residual]], guess: Guess) -> bool:
        """Returns whether the automatic gradient may be what the guess makes of another one, and of
        one with these entries.
        """
        a = self.automatic
        if a is None:
            return True
        if guess.image is not None and not np.allclose(
            guess.image(a), a, rtol=0.0, atol=self.rtol * float(np.abs(a).max())
        ):
            return False
        for place, value in known if guess.from_one else ():
            alone = np.zeros(self.shape)
            alone[place] = 1.0
            made = guess.change(alone)
            here = made != 0
            room = np.abs(made[here]) * value.error + self.rtol * np.abs(a[here])
            if (np.abs(a[here] - made[here] * value.value) > room).any():
                return False
        return True

    def _shifts(self, axis: int, known: Sequence[tuple[tuple[int, ...], Residual]]) -> list[int]:
        """Returns the shifts around the end of an axis with which the known entries stand where
        they would; the two smallest ones where nothing is known.
        """
        size = self.shape[axis]
        if self.automatic is None or not known:
            return sorted({1, size - 1})
        fits = np.ones(size, bool)
        for place, value in known:
            line = np.moveaxis(self.automatic, axis, -1)[place[:axis] + place[axis + 1 :]]
            moved = np.roll(line, -place[axis])  # entry s is what a shift by s put there
            fits &= np.abs(moved - value.value) <= value.error + self.rtol * np.abs(moved)
        fits[0] = False
        found = np.flatnonzero(fits)
        return found.tolist() if found.size <= 2 else []

    # -- places

    def _parts(self, mask: Mask, ks: Sequence[int]) -> list[_Sum]:
        """Returns the sums over a part of the entries, of these draws."""
        return [self._sum(np.where(mask, self._draw(k)[0], 0.0)) for k in ks]

    def _domain(self) -> str | None:
        """Returns the values of x at which, and only at which, entries are wrong by one factor."""
        x = self.x.reshape(self.shape)
        masks = {"negative": x < 0, "zero": x == 0}
        masks = {name: mask for name, mask in masks.items() if mask.any()}
        if not masks or (len(masks) == 1 and next(iter(masks.values())).all()):
            return None
        parts: dict[str, _Sum] = {}
        for name, mask in masks.items():
            if self._spent():
                return None
            (parts[name],) = self._parts(mask, [0])
        rest = self._draw(0)[1]
        for part in parts.values():
            rest -= part
        wrong = {name for name, part in parts.items() if part.deviation.significant}
        if rest.deviation.significant:
            wrong.add("positive")
        places = {
            frozenset({"zero"}): ("zero", x == 0),
            frozenset({"negative"}): ("negative", x < 0),
            frozenset({"negative", "zero"}): ("zero or negative", x <= 0),
            frozenset({"positive"}): ("positive", x > 0),
        }
        place, mask = places.get(frozenset(wrong), ("", None))
        if mask is None or ways_in_decades(x.size, np.count_nonzero(mask)) < PLACE_EVIDENCE:
            return None
        what = None if self._spent() else self._description(self._parts(mask, DRAWS_OF_PLACE), mask)
        return what and f"{what.verb} exactly where the input is {place}{what.hint}"

    def _index(self, wrong: int | None) -> str | None:
        """Returns the index of an axis at which, or except at which, entries are wrong by one
        factor: that of the entry which is known to be wrong, or the first one.
        """
        shape, known = self.shape[:-1], (0,) * len(self.shape)
        if wrong is not None and self.part.start <= wrong < self.part.stop:
            known = tuple(map(int, np.unravel_index(wrong - self.part.start, self.shape)))
        for axis, size in enumerate(shape):
            for index in {known[axis]: None, 0: None}:
                if size < 3 or self._spent():
                    continue
                mask = np.zeros(self.shape, bool)
                np.moveaxis(mask, axis, 0)[index] = True
                if np.count_nonzero(mask) == self.shape[-1]:  # one entry
                    continue
                batch = " (only the first element of a batch?)" if axis == index == 0 else ""
                place = f"at index {index} of axis {axis}"
                said = self._at_or_except(mask, place, f"except {place}{batch}")
                if said is not None:
                    return said
        return None

    def _at_or_except(self, mask: Mask, place: str, elsewhere: str) -> str | None:
        """Returns that all of the entries in `mask` are wrong and no other, or the other way
        round.
        """
        (one,) = self._parts(mask, [0])
        whole = self._draw(0)[1]
        here, there = one.deviation.significant, (whole - one).deviation.significant
        if here == there or self._spent():
            return None
        parts = [one, *self._parts(mask, DRAWS_OF_PLACE[1:])]
        if here:
            what, where = self._description(parts, mask), (place, "elsewhere")
        else:
            rests = [self._draw(k)[1] - parts[k] for k in DRAWS_OF_PLACE]
            what, where = self._description(rests, ~mask), (elsewhere, "there")
        return what and f"{what.verb} {where[0]}{what.hint}; right {where[1]}"


def _cotangent(table: Table, i: int) -> Vector:
    """Returns a random cotangent of output `i`, real where that is complex."""
    base = table.base
    w, part = np.zeros(base.Y.size), base.Y.slices[i]
    w[part] = random_cotangent(base.Y, table.probes.seed, Stream.MISTAKE_COTANGENT)[part]
    if base.Y.leaves[i].complex:
        w[part.start + 1 : part.stop : 2] = 0.0
    return w


def _cut_to_stored(table: Table, reverse: Reverse, j: int, i: int) -> bool:
    """Returns whether input `j` is a sparse array, and the derivative of output `i` is zero at what
    it does not store, and right along a random tangent that moves nothing else.
    """
    problem, leaf, part = table.problem, table.problem.X.leaves[j], table.problem.X.slices[j]
    arrays, like = problem.backend.arrays, problem.x[j]
    values = arrays.stored_only()
    kept = values.to_host(like, like)
    if kept.shape == leaf.host_shape:
        return False
    stored = arrays.to_host(values.from_host(np.ones_like(kept), like), like) != 0
    marks = np.repeat(stored.reshape(-1), 2 if leaf.complex else 1)
    w = _cotangent(table, i)
    row = reverse.row(table.base, w)[part]
    if row[~marks].any():
        return False
    drawn = replace(table.probes, full=False).tangent(problem.origin)
    v = np.zeros_like(drawn.vector)
    v[part] = np.where(marks, drawn.vector[part], 0.0)
    estimate = table.estimator.along(Tangent((j,), v, drawn.length)).estimate
    size = table.base.Y.size
    value, error = w @ estimate.value[:size], norm(w * estimate.error[:size])
    numbers = (np.full((1, 1), number) for number in (row @ v[part], value, error))
    automatic, reference, bar = numbers
    one = DerivativePair(automatic, reference, bar, table.tolerance.relative)
    return bool(one.known.all() and not one.wrong.any())


def _directions(problem: Problem, j: int, name: str) -> str:
    """Returns the option that keeps input `j` in the set of that name."""
    alone = len(problem.X.leaves) == 1
    return repr(name if alone else {problem.X.leaves[j].name: name})


def _output(table: Table, failure: Failure) -> int:
    """Returns the output leaf of the row that failed."""
    entries = table.probes.full or failure.kind == "each"
    return table.base.Y.leaf_of(failure.row) if entries else failure.row
