"""This module checks the vjp and the jvp as linear maps: homogeneous, additive, zero at zero, and
the same under `vmap` as in a loop. It also checks the shapes, dtypes, devices and layouts of what
they give.

None of that needs differences, and all of it holds to rounding whatever f is. `LinearRule` is the
one code for both modes; `Pullbacks` and `Pushforwards` bring the probes of their mode to it, and
check what only their mode has: metadata of gradients, and undefined cotangents or tangents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from typing import NamedTuple, TypeAlias

import numpy as np

from adjudge.constants import (
    ABSORBED_UNITS,
    ADJOINT_SAMPLES,
    EXTRA_RUNS,
    FAR_DISTANCES,
    FEW_LEAVES,
    INSIDE_FACTOR,
    LARGE_PROBES,
    LARGE_PROBES_NARROW,
    LEAVES_ALONE,
    LOST_AT_FIRST,
    LOST_GROWTH,
    MAP_OF_ZERO_UNITS,
    NEARER_TO_ZERO,
    PERTURBED_PROBES,
    RUNS_APART,
    SCATTERED_PART,
    SMALL_PROBES,
    SMALLER_PROBE_PART,
    SMALLER_PROBE_UNITS,
    SMALLER_PROBES,
    UNDERFLOW,
)
from adjudge.engine import DENSE, UNDEFINED, Array, Arrays, HandBackend, MaybeArrays
from adjudge.errors import (
    AdjudgeError,
    Catching,
    HookError,
    NotSupportedError,
    Source,
    attempt,
    running,
    value_or_error,
)
from adjudge.findings import (
    Advice,
    AloneNotTried,
    AloneRaised,
    AnotherAfterwards,
    AnotherAlone,
    Attribute,
    BatchRaised,
    BatchUnlikeLoop,
    Culprit,
    Detail,
    DrawsOthers,
    EqualRowsDiffer,
    Finding,
    LargeProbeRaised,
    Layout,
    LayoutMatters,
    LayoutRaised,
    NonzeroAtZero,
    NotAdditive,
    NotHomogeneous,
    Raised,
    RealForComplex,
    Remedy,
    Rule,
    Status,
    UndefinedInHook,
    UndefinedNotZero,
    UndefinedNotZeros,
    UndefinedRaised,
    Unequal,
    UnlikeAtMultiple,
    WrongAttribute,
    ZeroProbeRaised,
)
from adjudge.floats import Vector, chunks
from adjudge.jacobian import (
    apart_where_moved,
    is_systematic,
    points_around,
    points_within_rounding,
)
from adjudge.problem import (
    DOUBLE,
    PURPOSES_AT_X,
    Forward,
    Problem,
    Purpose,
    Reverse,
    Space,
    Stream,
    evaluate,
    generator,
    largest,
    random_cotangent,
    random_entries,
)
from adjudge.properties.purity import (
    Identities,
    Runs,
    equal_entries,
    largest_difference,
    restricted,
)

RunArrays: TypeAlias = Callable[[MaybeArrays], MaybeArrays]
"""A rule as a function of arrays, one for every leaf."""


@dataclass(frozen=True)
class LinearRule:
    """A rule as a linear map of vectors: `w -> J* w`, or `v -> J v`."""

    checks: Identities
    rule: Rule
    apply: Callable[[Vector], Vector]
    take_at: Callable[[Problem, Vector, Vector], Vector]
    """Gives the image of a probe at another point, or by another problem of the same shapes."""
    image: Space
    likes: Arrays
    """Arrays of the shapes and dtypes of the image."""
    terms: Callable[[Vector, Vector], Vector]
    """Gives the largest numbers, by entry of the image, that the rule may add up for a probe, from
    how far each output of f moves."""
    apply_turned: Callable[[Vector], Vector] | None = None
    """Gives the image of a probe that is transposed in memory, where that is another layout."""
    take_laid: Callable[[Layout, Problem, Vector, Vector], Vector] | None = None
    """Gives what `take_at` does, of a probe in a memory layout, where a probe has one."""

    @property
    def mode(self) -> str:
        """The mode, with the derivatives already taken."""
        return self.rule.letter + self.checks.problem.modes_taken

    def equal(
        self,
        status: Status,
        both: tuple[Vector, Vector],
        differ: Callable[..., Unequal],
        remedy: Advice,
        size: Vector | None = None,
        *,
        strict: bool = False,
    ) -> Iterator[Finding]:
        """Compares two images to rounding, relative to `size` or to the second one."""
        size = np.abs(both[1]) if size is None else size
        yield from self.checks.equal(
            status, self.rule.letter, self.image, (*both, size), differ, remedy, strict=strict
        )

    def unlike_multiple(
        self,
        both: tuple[Vector, Vector],
        differ: Callable[..., Unequal],
        remedy: Advice,
        size: Vector | None = None,
    ) -> list[Finding]:
        """Compares what is scaled back from a multiple of a probe with the image of the probe. The
        factor is a power of two, by which no rounding changes where runs do not vary.
        """
        repeats = not self.checks.varies
        return list(self.equal(Status.NONLINEAR, both, differ, remedy, size, strict=repeats))

    def homogeneous(self, u: Vector, first: Vector) -> Iterator[Finding]:
        """Compares `A(-k u) / -k` with `A(u)`, which is `first`; a vjp also with zero at zero.

        The factor k is a large power of two, since some rules clip large probes. Multiplying by it
        is exact, so a repeatable linear map agrees to the last bit, and one comparison shows both
        that the rule is repeatable and that it is homogeneous. Where it fails, further runs tell
        which of the two is at fault. A rule that refuses the large probe may hold its image against
        a bound in absolute numbers, as PyTorch's eigenvectors do, whose phase is free: that is a
        note, and the factor is 2.
        """
        checks, apply = self.checks, self.apply
        factor = self._factor(u, first)

        def scaled_back(k: float) -> Vector:
            return apply(k * u) / k

        checks.compared += first.size
        turned, of_turned = None, Catching()
        if self.apply_turned is not None:
            with of_turned:
                turned = self.apply_turned(-factor * u) / -factor
        scaled = turned if turned is not None and equal_entries(turned, first) else None
        if scaled is None:
            image = value_or_error(partial(apply, -factor * u))
            if isinstance(image, Exception):
                yield self._raised_for(factor, image)
                factor, of_turned.error, turned = 2.0, None, None
                image = apply(-factor * u)
            scaled = image / -factor
            if of_turned.error is not None:
                yield self.raised_for_layout(of_turned.error)
            elif turned is not None and equal_entries(scaled, first):
                # to rounding, since entries may be added in another order
                yield from self.layout_matters((turned, scaled), u, Layout.TURNED)
        if not equal_entries(scaled, first):
            yield from self._not_finite(u, factor, scaled, first)
            pairs = [(first, apply(u))]
            if equal_entries(*pairs[0]):
                # Two runs out of three may agree by chance.
                pairs = [(scaled, apply(-factor * u) / -factor)]
            if not equal_entries(*pairs[0]):
                pairs += [(first, apply(u)) for _ in range(EXTRA_RUNS)]
            gap = max(largest_difference(*pair) for pair in pairs)
            varying = list(self._unrepeatable(pairs))
            yield from varying
            # Numbers that were flushed to zero, or overflow, are no error of the rule.
            if all(finding.note for finding in varying):
                differ = partial(NotHomogeneous, rule=self.rule, factor=factor)
                both, remedy = (scaled, first), Remedy.MULTIPLY_BY_PROBE
                size = np.abs(first) + gap
                findings = self.unlike_multiple(both, differ, remedy, size)
                yield from self._unless_rounded(findings, first, scaled, factor, scaled_back)
        elif checks.any_order:
            # Sums of the few digits of probes are exact, and so the same in every order. A probe
            # with all digits shows the order in which a device adds.
            random = generator(checks.probes.seed, Stream.DENSE_COTANGENT)
            dense = u * random.uniform(1, 1.5, u.shape)
            pairs = [(apply(dense), apply(dense))]
            if not equal_entries(*pairs[0]):
                pairs += [(pairs[0][0], apply(dense)) for _ in range(EXTRA_RUNS)]
            checks.compared += first.size
            yield from self._unrepeatable(pairs)
        if self.rule is Rule.VJP:
            yield from self.zero(u, first)

    def _not_finite(
        self, u: Vector, factor: float, scaled: Vector, first: Vector
    ) -> Iterator[Finding]:
        """Returns the finding that the image of a large probe is not finite where `first`, that of
        the probe itself, is.

        The probe is far from where its dtype overflows. Numbers on the way that happen to be large
        (`exp` of 350, squared) are smaller where x is nearer to zero, and what overflows there does
        not depend on them. In narrower dtypes it is a note all the same: double precision tells.
        Where f computes in float16 inside, the probe shows nothing.
        """
        differ = partial(NotHomogeneous, rule=self.rule, factor=factor)
        both, remedy = (scaled, first), Remedy.STAY_FINITE
        for found in self.finite_alone(Status.NONLINEAR, both, differ, remedy):
            narrow = self.checks.eps_inside > DOUBLE
            note = narrow or any(self._finite_at(part, -factor * u) for part in NEARER_TO_ZERO)
            yield replace(found, note=note)

    def _finite_at(self, part: float, probe: Vector) -> bool:
        """Returns whether the image of a probe is finite at this part of x."""
        problem = self.checks.problem
        point = problem.clipped(part * problem.origin)
        image = attempt(partial(self.take_at, problem, point, probe))
        return image is not None and bool(np.isfinite(image).all())

    def _unless_rounded(
        self,
        findings: list[Finding],
        first: Vector,
        scaled: Vector,
        factor: float,
        scaled_back: Callable[[float], Vector],
    ) -> list[Finding]:
        """Returns the findings that a large multiple has another image than `first`, as notes where
        the image loses digits in proportion to the size of its probe. `scaled_back` gives what
        agrees with `first` for a multiple of a linear map, and `scaled` is that of `-factor`.

        What a rule clips is exact up to some size, and shrinks beyond it. Where it clips one term
        of several the image is off by one and the same part at all sizes. The test is ours.
        """
        if not findings or factor < LARGE_PROBES or not np.any(first):
            return findings
        size = float(np.max(np.abs(first)))
        images = {k: scaled_back(-k) for k in SMALLER_PROBES} | {factor: scaled}
        lost: list[float] = []
        for k, image in images.items():
            units = largest_difference(image, first) / (self.checks.eps_inside * k * size)
            left = float(image @ first) / float(first @ first)
            if not (0 < units <= SMALLER_PROBE_UNITS and left >= SMALLER_PROBE_PART):
                return findings
            lost.append(largest_difference(image, first) / size)
        if lost[0] > LOST_AT_FIRST or lost[-1] < min(LOST_GROWTH * lost[0], LOST_AT_FIRST):
            return findings
        status, remedy = Status.INACCURATE, Remedy.LIMIT_PROBE
        return [replace(finding, status=status, remedy=remedy, note=True) for finding in findings]

    def follows(
        self, first: Vector, image_at: Callable[[Problem, Vector, float], Vector]
    ) -> Iterator[Finding]:
        """Compares images where f is a derivative `(x, w) -> J*(x) w` at w with those at multiples
        of w. `first` is that at w, and `image_at(problem, point, k)` what agrees with it at `k w`.

        The differences of such a function are made at the same w as its derivative. A rule that
        clips w, takes its absolute value or leaves out what is negative where it is differentiated
        again is right or wrong by the one w that was drawn, and a loss has a single number for it.
        """
        checks, problem = self.checks, self.checks.problem
        scaled_back = partial(image_at, problem, problem.origin)
        large = self._factor(problem.origin[directions(problem)], first)
        factors = [-large, -SMALL_PROBES] if self.may_be_small(first) else [-large]
        for factor in factors:
            image = value_or_error(partial(scaled_back, factor))
            if isinstance(image, Exception):
                yield self._raised_for(-factor, image)
                continue
            checks.compared += first.size
            if equal_entries(image, first):
                continue
            found = self._unlike_at_multiple(first, image, factor)
            if found and checks.short_of_range:
                # float16 inside has no room for such numbers, but it has for others of that sign
                narrow = -LARGE_PROBES_NARROW
                found = self._unlike_at_multiple(first, scaled_back(narrow), narrow)
            elif factor == -large:
                found = self._unless_rounded(found, first, image, large, scaled_back)
            else:

                def apart_at(there: Problem, point: Vector) -> Vector:
                    return image_at(there, point, -SMALL_PROBES) - image_at(there, point, 1.0)

                entries = [_entry_of(each, (image, first)) for each in found]
                found = self._unless_left(found, entries, first, factor, apart_at)
            if found:
                yield from found
                return

    def _unlike_at_multiple(self, first: Vector, image: Vector, factor: float) -> list[Finding]:
        """Returns the findings that what is scaled back from `factor` times w is not `first`."""
        taken = Rule.VJP if self.checks.problem.modes_taken.startswith("R") else Rule.JVP
        differ = partial(UnlikeAtMultiple, rule=self.rule, taken=taken, factor=factor)
        pair, remedy = (image, first), Remedy.FOLLOW_MULTIPLES
        return self.unlike_multiple(pair, differ, remedy)

    def finite_alone(
        self,
        status: Status,
        both: tuple[Vector, Vector],
        differ: Callable[..., Unequal],
        remedy: Advice,
        first: Vector | None = None,
    ) -> Iterator[Finding]:
        """Returns the finding that one of two images of the same size is finite where the other is
        not: that is no rounding, and at other points there may be no number to compare.

        Where `first`, the image of another probe, or else the second one, is not finite, the
        derivative is infinite: a rule may make zero of no cotangent there, and infinity of any.
        Where f computes in float16 inside, a sum may overflow of which no term does.
        """
        alone = np.isfinite(both[0]) != np.isfinite(both[1])
        alone &= np.isfinite(both[1] if first is None else first)
        if alone.any() and not self.checks.short_of_range:
            k, others = int(np.argmax(alone)), int(alone.sum()) - 1
            detail = differ(float(both[0][k]), float(both[1][k]), others)
            yield Finding(status, self.mode, self.image.entry(k), detail, remedy)

    def layout_matters(
        self, both: tuple[Vector, Vector], probe: Vector, layout: Layout
    ) -> Iterator[Finding]:
        """Compares the image of a probe in this memory layout with that of a contiguous one.

        An engine may add in another order then. What an ill-conditioned rule makes of that, as the
        gradient of eigenvectors does between close eigenvalues, is another number at every point.
        """
        take_laid, differ = self.take_laid, partial(LayoutMatters, layout=layout)
        assert take_laid is not None

        def apart_at(problem: Problem, point: Vector, factor: float) -> Vector:
            w = factor * probe
            return take_laid(layout, problem, point, w) - self.take_at(problem, point, w)

        status, remedy = Status.INCONSISTENT, Remedy.READ_STRIDES
        yield from self.finite_alone(status, both, differ, remedy)
        for found in self.equal(status, both, differ, remedy, strict=True):
            if self._stay_apart(found, both, apart_at):
                yield found

    def raised_for_layout(self, error: BaseException) -> Finding:
        """Returns the finding that the rule raises for a probe that is not contiguous."""
        detail, remedy = LayoutRaised(Raised.of(error)), Remedy.READ_STRIDES
        # A rule by hand may insist on the arrays that its own code makes.
        note = isinstance(self.checks.problem.backend, HandBackend)
        return Finding(Status.RAISED, self.mode, "", detail, remedy, note=note, cause=error)

    def _raised_for(self, factor: float, error: BaseException) -> Finding:
        """Returns the finding that the rule raises for so many times a probe that it takes. For
        large ones that is a note.
        """
        raised, remedy = Raised.of(error), Remedy.ACCEPT_ANY_SIZE
        detail: Detail = ZeroProbeRaised(self.rule, raised)
        if factor:
            detail = LargeProbeRaised(self.rule, factor, raised)
        note = factor != 0
        return Finding(Status.RAISED, self.mode, "", detail, remedy, note=note, cause=error)

    def _factor(self, u: Vector, first: Vector) -> float:
        """Returns the factor of the second probe: large, and far from where the dtype overflows.

        The probe counts as well as its image: where that is zero, a probe that overflows would
        make NaN of it.
        """
        # That of float64 is the one of float32, in which code may compute inside.
        largest = min(leaf.huge for leaf in self.image.leaves)
        of_u, of_image = np.max(np.abs(u), initial=0.0), np.max(np.abs(first), initial=0.0)
        size = float(np.maximum(of_u, of_image))
        for factor in (LARGE_PROBES, LARGE_PROBES_NARROW):
            if size * factor**2 < largest:
                return factor
        return 2.0

    def may_be_small(self, image: Vector) -> bool:
        """Returns whether the image of a small probe is far from where its dtype underflows, where
        this is that of the probe itself.
        """
        smallest = max([leaf.tiny for leaf in self.checks.problem.X.leaves] + [UNDERFLOW])
        return float(np.max(np.abs(image), initial=0.0)) * SMALL_PROBES**2 > smallest

    def at_small(
        self, apply: Callable[[Vector], Vector], probe: Vector, one: Vector
    ) -> Iterator[Finding]:
        """Compares the image of a small multiple of a probe with `one`, that of the probe itself,
        where its dtype has room for it. `apply` gives the image.
        """
        if not self.may_be_small(one):
            return
        small = apply(-SMALL_PROBES * probe) / -SMALL_PROBES
        self.checks.compared += one.size
        # small numbers underflow in float16
        if not (equal_entries(small, one) or self.checks.short_of_range):
            yield from self.unlike_small((small, one), probe, -SMALL_PROBES)

    def unlike_small(
        self, both: tuple[Vector, Vector], probe: Vector, factor: float
    ) -> Iterator[Finding]:
        """Compares what is scaled back from `factor` times a probe, which is small, with the image
        of the probe; `both` are these two.
        """

        def apart_at(problem: Problem, point: Vector) -> Vector:
            small = self.take_at(problem, point, factor * probe) / factor
            return small - self.take_at(problem, point, probe)

        differ = partial(NotHomogeneous, rule=self.rule, factor=abs(factor))
        yield from self.finite_alone(Status.NONLINEAR, both, differ, Remedy.STAY_FINITE)
        found = self.unlike_multiple(both, differ, Remedy.MULTIPLY_BY_PROBE)
        entries = [_entry_of(each, both) for each in found]
        yield from self._unless_left(found, entries, both[1], factor, apart_at)

    def _unless_left(
        self,
        findings: Sequence[Finding],
        entries: Sequence[int],
        first: Vector,
        factor: float,
        apart_at: Callable[[Problem, Vector], Vector],
    ) -> list[Finding]:
        """Returns the findings of `factor` times a probe, which is small or zero, as notes where
        what is off in their entries is left of larger terms. `first` is the image of the probe, and
        `apart_at` gives what is off at a point, once for all findings.

        What a rule adds to its image and takes away again leaves the rounding of its own size,
        which is much beside a small image: the jvp of the vjp of PyTorch's group norm does so. At
        points within rounding of x it is another one. What the rule makes of its probe alone is the
        same at all of them, as where that is cut off, or rounded to a multiple of something. The
        test is ours.
        """
        if not findings:
            return []
        problem, seed, rows = self.checks.problem, self.checks.probes.seed, []
        leaves = range(problem.primal_inputs) if problem.modes_taken else None
        for number in range(ADJOINT_SAMPLES):
            for point in points_within_rounding(problem, seed + number, leaves):
                apart = attempt(partial(apart_at, problem, point))
                if apart is not None:
                    rows.append(apart[list(entries)])  # the rest may be large
        size = float(np.max(np.abs(first), initial=0.0))
        bound = SMALLER_PROBE_UNITS * self.checks.eps_inside * size

        def left(gaps: Vector) -> bool:
            gaps = gaps[np.isfinite(gaps)]
            if len(gaps) < ADJOINT_SAMPLES:
                return False
            largest = float(np.max(np.abs(gaps)))
            scatters = bool(np.ptp(gaps) > SCATTERED_PART * largest)
            return scatters and largest * (abs(factor) or 1.0) <= bound

        status, remedy = Status.INACCURATE, Remedy.KEEP_SMALL_PROBE
        return [
            replace(found, status=status, remedy=remedy, note=True) if left(gaps) else found
            for found, gaps in zip(findings, np.reshape(rows, (-1, len(findings))).T, strict=True)
        ]

    def _unrepeatable(self, pairs: Sequence[tuple[Vector, Vector]]) -> Iterator[Finding]:
        """Yields the finding about the pair of runs that differs most, if any does."""
        one, two = max(pairs, key=lambda pair: largest_difference(*pair))
        if largest_difference(one, two) > 0:
            checks = self.checks
            checks.varies = True
            runs = Runs(self.image, checks.spacing(self.likes), one, two)
            residue = checks.residue(self.image)
            found = runs.finding(self.rule, self.mode, checks.nondet_tol, residue)
            yield checks.allowing(found)

    def zero(self, u: Vector, first: Vector, largest: float = 0.0) -> Iterator[Finding]:
        """Checks that zero gives zero, or the rounding of `largest` where terms of that size
        cancel. What is not finite there is an error where `first`, the image of u, is finite.
        """
        at_zero = value_or_error(partial(self.apply, np.zeros_like(u)))
        if isinstance(at_zero, Exception):
            yield self._raised_for(0.0, at_zero)
            return
        self.checks.compared += at_zero.size
        # NaN counts as something.
        if not at_zero.any():
            return
        tolerance = self.checks.tolerance
        bound = MAP_OF_ZERO_UNITS * tolerance.eps * largest + self.checks.repeated_apart
        allowed = np.abs(at_zero) <= bound
        if tolerance.equal_nan:
            allowed |= np.isnan(at_zero)
        bad = np.flatnonzero((at_zero != 0) & ~allowed)
        if bad.size:
            k = int(bad[0])
            finite = bool(np.all(np.isfinite(at_zero)))
            if self.checks.problem.empty and not finite:
                return
            found = Finding(
                Status.NONLINEAR if finite else Status.NONFINITE,
                self.mode,
                self.image.entry(k),
                NonzeroAtZero(float(at_zero[k]), self.rule),
                open=not (finite or np.all(np.isfinite(first))),
            )
            if not finite:
                yield found
                return

            # zeros themselves may not be handed on
            def take(problem: Problem, point: Vector) -> Vector:
                return self.take_at(problem, point, SMALL_PROBES**2 * u)

            yield from self._unless_left([found], [k], first, 0.0, take)

    def additive(
        self,
        probes: Sequence[Vector],
        pair: tuple[Vector, Vector],
        size: Vector,
        first: Vector,
    ) -> Iterator[Finding]:
        """Compares the image of a sum of probes, which is the last of `probes`, with the sum of
        their images, of which `first` is one; the first of `probes` is one of the terms, and `size`
        is that of the images.

        It shows what homogeneity does not: a rule that clips or selects by the size of its probe,
        for instance. Where terms cancel inside of an ill-conditioned rule, its rounding is larger
        than that of its result, so what differs has to persist with other terms, and at other
        points.
        """
        differ, remedy = partial(NotAdditive, rule=self.rule), Remedy.APPLY_LINEAR_MAP
        yield from self.finite_alone(Status.NONLINEAR, pair, differ, remedy, first)
        found = self.sums(probes, pair, size)
        if found and self.persists(probes[0], probes[-1]):
            yield from found

    def sums(
        self, probes: Iterable[Vector], pair: tuple[Vector, Vector], size: Vector
    ) -> list[Finding]:
        """Compares the image of a sum with the sum of images, relative to the terms alone: whether
        what differs is a residue of rounding shows where it is asked for at other points.

        What differs may also be what the rule rounds away of these probes. That of a softmax is
        `p (w - sum(w p))`. Where one p is almost 1 the sum takes the digits of a large w, and what
        small ones add to it is lost, in the same way at every point nearby. Without this the right
        rule is called not additive, in PyTorch, in JAX and by hand. It is asked for where something
        differs, since it costs evaluations. Of a second derivative f itself is such a difference,
        and has no number of the size of its terms: that shows where the numbers inside of f move.
        """
        differ, remedy = partial(NotAdditive, rule=self.rule), Remedy.APPLY_LINEAR_MAP
        equal = partial(self.equal, Status.NONLINEAR, pair, differ, remedy, strict=True)
        found = list(equal(size))
        if not found:
            return []
        eps, identity = self.checks.tolerance.eps, self.checks.tolerance.identity
        probes, moves = [*probes], moved_by_all_of_x(self.checks)
        terms = np.max([self.terms(probe, moves) for probe in probes], axis=0)
        found = list(equal(size + ABSORBED_UNITS * eps / identity * terms))
        # A first derivative has them already: in sixteen bits wrong rules pass beside so much.
        if not (found and self.checks.problem.modes_taken):
            return found
        return list(equal(size + INSIDE_FACTOR / identity * self._moved_inside(probes)))

    def _moved_inside(self, probes: Sequence[Vector]) -> Vector:
        """Returns how far the images of these probes are apart together where all numbers inside of
        f move by one spacing, up or down; zero where the engine cannot move them.
        """
        problem, together = self.checks.problem, np.zeros(self.image.size)
        wide = self.checks.tolerance.eps <= DOUBLE
        others = problem.moved_widely if wide else problem.moved_by_rounding
        for probe in probes:

            def take(other: Problem, probe: Vector = probe) -> Vector:
                return self.take_at(other, problem.origin, probe)

            apart = apart_where_moved(others, take)
            if apart is None:
                return np.zeros(self.image.size)
            together += apart
        return together

    def persists(self, term: Vector, whole: Vector, rest: Vector | None = None) -> bool:
        """Returns whether the rule is not additive for two other probes either, by as much at
        points near x. They are zero where `term` is, or the second one where `rest` is, and so is
        their sum where `whole` is.
        """
        checks = self.checks
        random = generator(checks.probes.seed, Stream.TERMS_OF_PROBE)
        masks = (term, term if rest is None else rest)
        one, two = (np.where(m != 0, random_entries(random, whole.size), 0.0) for m in masks)
        two = np.where(whole != 0, two, -one)

        def gaps(apply: Callable[[Vector], Vector], one: Vector, two: Vector) -> Vector:
            return apply(one + two) - apply(one) - apply(two)

        here = gaps(self.apply, one, two)
        size = np.abs(self.apply(one)) + np.abs(self.apply(two))
        allowed = checks.tolerance.identity * size + (checks.tolerance.atol or 0.0)
        relative = np.abs(here) / (allowed + UNDERFLOW)
        k = int(np.argmax(np.where(np.isfinite(relative), relative, 0.0)))
        if not np.all(np.isfinite(here)):
            return True
        if relative[k] <= 1:
            return False

        eps, seed = checks.tolerance.eps, checks.probes.seed

        def gap_at(problem: Problem, point: Vector) -> float:
            # With factors by entry other entries could be the largest, which a rule may select.
            factor = 1 + PERTURBED_PROBES * random.uniform(-1, 1)
            apply = partial(self.take_at, problem, point)
            return float(gaps(apply, factor * one, factor * two)[k])

        return is_systematic(checks.problem, eps, seed, float(here[k]), gap_at)

    def raised_undefined(self, probed: str, error: BaseException) -> Finding:
        """Returns the finding that the rule raises where the probe of `probed` is undefined,
        whatever it stumbles over.
        """
        detail = UndefinedRaised(probed, Raised.of(error), self.rule)
        remedy = Remedy.ACCEPT_OR_EXCUSE_UNDEFINED
        return Finding(Status.UNDEFINED, self.mode, probed, detail, remedy, cause=error)

    def raised_in_hook(self, output: str, error: BaseException) -> Finding:
        """Returns the note that a hook raises where the cotangent of `output` is undefined: the
        derivative is right in all that asks for one.
        """
        detail, remedy = UndefinedInHook(output, Raised.of(error)), Remedy.MIND_UNDEFINED_IN_HOOK
        return Finding(Status.UNDEFINED, self.mode, output, detail, remedy, note=True, cause=error)

    def batched(
        self,
        space: Space,
        k: int,
        arrays_of: Callable[[Vector], MaybeArrays],
        run: RunArrays,
        run_at: Callable[[Problem, Vector], RunArrays],
    ) -> Iterator[Finding]:
        """Compares the rule under `vmap` with the loop over two probes of leaf `k` of `space`.
        `run` takes a probe for every leaf, and `run_at` gives what does so at another point.
        """
        seed = self.checks.probes.seed
        first, second = Stream.BATCHED_TANGENT, Stream.SECOND_BATCHED_TANGENT
        if self.rule is Rule.VJP:
            first, second = Stream.BATCHED_COTANGENT, Stream.SECOND_BATCHED_COTANGENT
        probes = [random_cotangent(space, seed, stream) for stream in (first, second)]

        def pair_of(factor: float) -> list[Array]:
            return [arrays_of(factor * restricted(space, probe, k))[k] for probe in probes]

        def alone(run: RunArrays) -> RunArrays:
            def of_leaf(probe: MaybeArrays) -> MaybeArrays:
                whole: list[Array | None] = [None] * len(space.leaves)
                whole[k] = probe[0]
                return run(tuple(whole))

            return of_leaf

        def apart_at(problem: Problem, point: Vector, factor: float) -> list[Vector]:
            here, pair = alone(run_at(problem, point)), pair_of(factor)
            with running(Source.DERIVATIVE):
                together = self.rows_under_vmap(here, pair)
            return [
                one - self._image(here((two,))) for one, two in zip(together, pair, strict=True)
            ]

        yield from self._batched_pair(space.leaves[k].name, alone(run), pair_of(1.0), apart_at)

    def _image(self, arrays: MaybeArrays) -> Vector:
        return self.image.vector(self.checks.problem.backend, arrays, self.likes)

    def rows_under_vmap(self, alone: RunArrays, pair: Sequence[Array]) -> list[Vector]:
        """Returns what the rule under `vmap` makes of each probe of a pair."""
        backend = self.checks.problem.backend
        with running(Source.ENGINE):
            stacked = backend.arrays.stack(list(pair))
        together = backend.vmap(alone)(stacked)
        rows = []
        for s in range(len(pair)):
            with running(Source.ENGINE):
                picked = tuple(None if array is None else array[s] for array in together)
            rows.append(self._image(picked))
        return rows

    def _batched_pair(
        self,
        name: str,
        alone: RunArrays,
        pair: Sequence[Array],
        apart_at: Callable[[Problem, Vector, float], list[Vector]],
    ) -> Iterator[Finding]:
        """Compares the rule under `vmap` with the loop over a pair of probes of the leaf `name`.

        Kernels for a batch add in another order, and rounding that an ill-conditioned rule makes
        larger is no error: what differs has to persist at other points.
        """
        loop = [self._image(alone((array,))) for array in pair]
        with Catching() as caught, running(Source.DERIVATIVE):
            together = self.rows_under_vmap(alone, pair)
        if (error := caught.error) is not None:  # whatever the batched rule stumbles over
            detail = BatchRaised(Raised.of(error), self.rule)
            remedy = Remedy.GIVE_BATCHING_RULE
            yield Finding(Status.RAISED, self.mode, name, detail, remedy, cause=error)
            return
        unlike = partial(BatchUnlikeLoop, rule=self.rule, leaf=name)
        apart = [
            (s, both, found)
            for s, both in enumerate(zip(together, loop, strict=True))
            for found in self.equal(
                Status.INCONSISTENT, both, unlike, Remedy.MEND_BATCHING_RULE, strict=True
            )
        ]
        if apart:
            # Equal rows that differ come from random numbers, and not from the batching rule.
            with running(Source.DERIVATIVE):
                twice = self.rows_under_vmap(alone, [pair[0], pair[0]])
            if not equal_entries(*twice):
                differ, remedy = EqualRowsDiffer(self.rule), Remedy.PASS_RANDOM_NUMBERS
                yield Finding(Status.NONDETERMINISTIC, self.mode, name, differ, remedy)
                return
        for s, both, found in apart:
            if self._stay_apart(found, both, lambda *at, s=s: apart_at(*at)[s]):
                yield found

    def _stay_apart(
        self,
        found: Finding,
        both: tuple[Vector, Vector],
        apart_at: Callable[[Problem, Vector, float], Vector],
    ) -> bool:
        """Returns whether two images differ in the entry that was found at other points as well, by
        as much; `apart_at` gives their difference at a point, for so many times the probe.
        """
        checks, k = self.checks, _entry_of(found, both)
        random = generator(checks.probes.seed, Stream.TERMS_OF_PROBE)

        def gap_at(problem: Problem, point: Vector) -> float:
            factor = 1 + PERTURBED_PROBES * random.uniform(-1, 1)
            return float(apart_at(problem, point, factor)[k])

        gap, eps, seed = float(both[0][k] - both[1][k]), checks.tolerance.eps, checks.probes.seed
        return is_systematic(checks.problem, eps, seed, gap, gap_at)


def _entry_of(found: Finding, both: tuple[Vector, Vector]) -> int:
    """Returns the entry in which two images were found to differ."""
    detail = found.detail
    assert isinstance(detail, Unequal)
    return int(np.flatnonzero((both[0] == detail.one) & (both[1] == detail.two))[0])


class Images(NamedTuple):
    """What a vjp makes of cotangents as they come in life."""

    of: list[Vector]
    """The images; the last one is that of u less the others. There are none where that is the image
    of u less theirs, as in most checks."""
    size: float
    """How large the cotangents are beside u."""
    error: BaseException | None = None
    """What it raises for one of them."""


@dataclass(frozen=True)
class Pullbacks:
    """The checks of reverse mode, `w -> J* w`."""

    checks: Identities
    reverse: Reverse

    @cached_property
    def rule(self) -> LinearRule:
        """The vjp as a linear map, with zero cotangents as arrays of zeros."""
        problem = self.checks.problem
        apply = partial(self.reverse.row, self.checks.base, zeros=True)
        # A bound method would close a cycle, which keeps arrays until Python collects garbage.
        at = partial(_pulled_at, self.checks)
        turned = partial(_pulled_turned, self) if max(self.strided, default=0) > 1 else None
        laid = partial(_pulled_laid, self.checks) if any(self.strided) else None
        return LinearRule(
            self.checks,
            Rule.VJP,
            apply,
            at,
            problem.X,
            problem.x,
            partial(_terms_pulled, problem),
            turned,
            laid,
        )

    @cached_property
    def cotangent(self) -> Vector:
        """The cotangent that the checks are made with: the only row's, where there is one."""
        if self.checks.probes.full and self.checks.base.Y.size == 1:
            return np.ones(1)
        return self._without_detached(self.checks.probes.cotangent)

    def _without_detached(self, w: Vector) -> Vector:
        """Returns `w` with zeros at outputs that are detached or left out."""
        omitted = self.checks.base.omitted_of_Y
        if omitted is not None:
            w = np.where(omitted, 0.0, w)
        for part, here in zip(self.checks.base.Y.slices, self.reverse.attached, strict=True):
            if not here:
                w = w.copy()
                w[part] = 0.0
        return w

    def at_cotangent(self) -> tuple[Vector, list[Finding]]:
        """Returns `J* u` for the probes' cotangent `u` of all outputs together, and what was found
        about metadata of the gradients, purity, repeatability and homogeneity.
        """
        checks, reverse = self.checks, self.reverse
        base, problem, u = checks.base, checks.problem, self.cotangent
        written = partial(
            checks.unchanged, reverse.x, problem.x, problem.X, problem.origin, Culprit.FUNCTION
        )
        if not any(reverse.attached):
            return np.zeros(problem.X.size), [*written()]
        handed = reverse.cotangent(base, u, zeros=True)
        likes = base.arrays[: len(base.Y.leaves)]
        # The cotangent counts as it is rounded to its dtype.
        before = u if base.Y.double else base.Y.vector(problem.backend, handed, likes)
        first, gradients = reverse.pull(handed)
        checks.images["R" + problem.modes_taken] = u, first
        findings = [
            *(first_elsewhere(checks) if problem.modes_taken else ()),
            *metadata(checks, gradients),
            *checks.unchanged(handed, likes, base.Y, before, Culprit.VJP),
            *written(),
        ]
        del handed, gradients, before  # each may be as large as x
        findings += self.rule.homogeneous(u, first)
        return first, findings

    def additive_rows(self, together: Vector, rows: Vector) -> Iterator[Finding]:
        """Compares `J*` of the sum of cotangents with the sum of the rows, which are at hand.

        A row has a cotangent for one output, and so has each term by which a difference has to
        persist: a rule may forget an output where there are cotangents of several.
        """
        u = self.cotangent if self.checks.probes.full else np.ones(rows.shape[0])
        whole, parts = self.cotangent, self.checks.base.Y.slices
        found = self.rule.sums([whole], (together, u @ rows), np.abs(u) @ np.abs(rows))
        rule = replace(self.rule, apply=partial(self.reverse.row, self.checks.base))
        for part in parts if found else ():
            rest = whole.copy()
            rest[part] = 0.0
            if rule.persists(whole - rest, whole, rest if len(parts) > 1 else None):
                yield from found
                return

    @cached_property
    def strided(self) -> tuple[int, ...]:
        """By output, how many of its axes are longer than one, where its cotangent can lie in
        memory in several ways; else 0.
        """
        base, expanded = self.checks.base, self.checks.problem.backend.arrays.expanded
        counts = []
        for here, array, leaf in zip(
            self.reverse.attached, base.arrays, base.Y.leaves, strict=False
        ):
            lies = here and expanded(array) is not None
            counts.append(sum(n > 1 for n in leaf.host_shape) if lies else 0)
        return tuple(counts)

    def laid(self, w: Vector, layout: Layout) -> MaybeArrays:
        """Returns the cotangent `w` in this memory layout, where an output has it."""
        base, arrays = self.checks.base, self.checks.problem.backend.arrays
        zeros = layout in (Layout.TURNED, Layout.PART)
        made = list(self.reverse.cotangent(base, w, zeros=zeros))
        for k, array in enumerate(made):
            if array is None or self.strided[k] < (2 if layout is Layout.TURNED else 1):
                continue
            long = [axis for axis, n in enumerate(array.shape) if n > 1]
            if layout is Layout.PART:
                flat = arrays.xp.reshape(array, (-1,))
                larger = arrays.xp.concat([arrays.xp.zeros_like(flat), flat])
                made[k] = arrays.xp.reshape(larger[flat.shape[0] :], array.shape)
                continue
            if layout in (Layout.EXPANDED, Layout.ROWS, Layout.LAST):
                if self._may_repeat(k):
                    axis = {Layout.ROWS: long[0], Layout.LAST: long[-1]}.get(layout)
                    made[k] = arrays.expanded(array, axis if len(long) > 1 else None)
                continue
            axes = list(range(array.ndim - 1, -1, -1))
            if layout is Layout.TURNED:
                # as a transposed matrix, and as an image whose channels come last
                axes = list(range(array.ndim))
                axes.append(axes.pop(long[min(len(long) - 2, 1)]))
            turned = arrays.xp.permute_dims(array, tuple(axes))
            if layout is Layout.TURNED:
                turned = arrays.xp.reshape(arrays.xp.reshape(turned, (-1,)), turned.shape)
            else:
                turned = arrays.noncontiguous(turned)
            made[k] = arrays.xp.permute_dims(turned, tuple(np.argsort(axes).tolist()))
        return tuple(made)

    def _may_repeat(self, k: int) -> bool:
        """Returns whether the cotangent of an output may be expanded: it would have no zeros where
        outputs are left out.
        """
        omitted = self.checks.base.omitted_of_Y
        return omitted is None or not omitted[self.checks.base.Y.slices[k]].any()

    def as_in_life(self, one: Vector, *, small: bool = True) -> Images:
        """Returns what the rule makes of cotangents as they come in life; `one` is `J* u`.

        The first is a single number, expanded to the shape of its output as the cotangent of a sum
        is, the second has one number for each row, and the third is a single row, as those of sums
        over the last and the first axis. What they leave of u is transposed in memory, with
        gaps, and zero in its first row, as that of a masked loss is. All are `small`, as that of a
        mean over a million entries is. Without strides there is one, and it is random.
        """
        reverse, size = self.reverse, SMALL_PROBES if small and self.rule.may_be_small(one) else 1.0
        images: list[Vector] = []
        error: BaseException | None = None
        for layout, w in self._in_life(size):
            with Catching() as caught:
                images.append(reverse.pull(self.laid(w, layout))[0])
            if caught.error is not None:
                if not any(self.strided):
                    raise caught.error
                error = error or caught.error
                # what a contiguous cotangent raises as well is raised
                images.append(reverse.row(self.checks.base, w))
            del w  # it may be large
        if error is None and self._add_up(one, images, size):
            images = []
        return Images(images, size, error)

    def _in_life(self, size: float) -> Iterator[tuple[Layout, Vector]]:
        """Yields the cotangents of that size beside u with their memory layouts; the last one is u
        less the others. Their sum would have what a rule adds to any image as one of them has it.
        """
        base, lies = self.checks.base, max(self.strided, default=0)
        v = random_cotangent(base.Y, self.checks.probes.seed, Stream.SECOND_COTANGENT)
        whole = [self.cotangent]
        expanded = ((Layout.EXPANDED, 0), (Layout.LAST, 2), (Layout.ROWS, 2))
        layouts = [layout for layout, least in expanded if lies >= least]
        for layout in layouts:
            term = v if layout is layouts[-1] else v.copy()
            for k, part in enumerate(base.Y.slices):
                shape = base.Y.leaves[k].host_shape
                width = 2 if base.Y.leaves[k].complex else 1
                rows = next((n for n in shape if n > 1), 1)
                if rows == 1 or part.start == part.stop:
                    continue
                if layout is Layout.LAST and self.strided[k] > 1:
                    last = [n for n in shape if n > 1][-1]
                    if self._may_repeat(k):
                        lines = term[part].reshape(-1, last, width)
                        lines[:] = lines[:, :1]
                    continue
                few = self.strided[k] < 2 or layout is Layout.EXPANDED
                table = term[part].reshape(-1, width) if few else term[part].reshape(rows, -1)
                table[0] = -whole[0][part].reshape(table.shape)[0]
                if self.strided[k] and self._may_repeat(k):
                    table[:] = table[0]
            term = self._without_detached(term)
            whole[0] = whole[0] + term
            yield layout, -size * term
        del v, term
        yield Layout.WITH_GAPS, size * whole.pop()

    def _add_up(self, one: Vector, images: Sequence[Vector], size: float) -> bool:
        """Returns whether the last image is `one` less the others to rounding, whatever more
        precision allows later on. Nothing has to be kept of images that are.
        """
        for part in chunks(one.size):
            *terms, together = [image[part] / size for image in images]
            off = np.abs(together - (one[part] - sum(terms)))
            whole = np.sum(np.abs([one[part], *terms]), axis=0)
            # infinity is no more than itself
            if not (off <= self.checks.tolerance.identity * whole).all() or np.isinf(off).any():
                return False
        return True

    def small(self, one: Vector) -> Iterator[Finding]:
        """Compares the image of a small multiple of u with `one`, which is `J* u`.

        A loss has one cotangent up to a factor, and rows show that others add up. Without this a
        rule that cuts its cotangent off below some magnitude, or divides by a norm plus 1e-8,
        passes for a loss.
        """
        apply = partial(self.reverse.row, self.checks.base)
        yield from self.rule.at_small(apply, self.cotangent, one)

    def at_multiples(self, one: Vector) -> Iterator[Finding]:
        """Compares `one`, which is `J* u` of a derivative `(x, w) -> J*(x) w`, with those at
        multiples of w: what belongs to x is as many times as large, and what belongs to w the same.
        """
        problem = self.checks.problem

        def image_at(there: Problem, point: Vector, factor: float) -> Vector:
            point, scale = point.copy(), np.full(one.size, factor)
            point[directions(problem)] *= factor
            scale[directions(problem)] = 1.0
            return np.asarray(self.rule.take_at(there, point, self.cotangent) / scale)

        yield from self.rule.follows(one, image_at)

    def additive_pair(self, one: Vector, images: Images) -> Iterator[Finding]:
        """Compares the image of u less others with `one`, which is `J* u`, less their images."""
        base, reverse, rule = self.checks.base, self.reverse, self.rule
        if images.error is not None:
            yield rule.raised_for_layout(images.error)
        if not images.of:
            self.checks.compared += one.size
            return
        if (atol := self.checks.tolerance.atol) is not None:
            # what the caller allows is that much of the small images
            tolerance = replace(self.checks.tolerance, atol=atol / images.size)
            rule = replace(rule, checks=replace(self.checks, tolerance=tolerance))
        *terms, together = of = [image / images.size for image in images.of]
        pair, size = (together, one - sum(terms)), np.sum(np.abs([one, *terms]), axis=0)
        # they may be large, and are made where something differs
        probes = (w / images.size for _, w in self._in_life(images.size))
        numbers = all(np.isfinite(image).all() for image in of)
        if numbers and not rule.sums(chain([self.cotangent], probes), pair, size):
            return
        if images.size < 1 and self.checks.short_of_range:
            # small numbers underflow in float16
            yield from self.additive_pair(one, self.as_in_life(one, small=False))
            return
        laid = [*self._in_life(images.size)]
        plain = [reverse.row(base, w) / images.size for _, w in laid]
        for (layout, w), strided, other in zip(laid, of, plain, strict=True):
            pair, w = (strided, other), w / images.size
            found = list(rule.layout_matters(pair, w, layout)) if any(self.strided) else []
            if found:
                yield from found
                return
        if images.size < 1:
            for (_, w), small in zip(laid, plain, strict=True):
                pair = small, -rule.apply(-w / images.size)
                found = list(rule.unlike_small(pair, w / images.size, images.size))
                if found:
                    yield from found
                    return
        *terms, together = plain
        whole = [self.cotangent, *(w / images.size for _, w in laid)]
        yield from rule.additive(whole, (together, one - sum(terms)), size, one)

    def undefined(self) -> Iterator[Finding]:
        """Checks that undefined cotangents act as zeros: all of them, and each beside zeros."""
        checks, reverse, base, rule = self.checks, self.reverse, self.checks.base, self.rule
        attached = [k for k, here in enumerate(reverse.attached) if here]
        cases: list[list[int]] = [attached]
        raised = False
        zero: MaybeArrays = (None,) * len(reverse.attached)
        if len(attached) > 1:
            cases += [[k] for k in attached]
            zero = reverse.cotangent(base, np.zeros(base.Y.size), zeros=True)
        for case in cases:
            output = "" if case is attached else base.Y.leaves[case[0]].name
            w = tuple([UNDEFINED if k in case else array for k, array in enumerate(zero)])
            with Catching(AdjudgeError) as caught:
                vector, _ = reverse.pull(w)
            if isinstance(caught.error, HookError):
                yield rule.raised_in_hook(output, caught.error.__cause__ or caught.error)
                continue
            if caught.error is not None:
                raised = True
                yield rule.raised_undefined(output, caught.error)
                continue
            checks.compared += vector.size
            bad = vector != 0
            if bad.any() and not np.all(np.isfinite(vector)):
                # Where the derivative itself is not finite, zeros give NaN as well.
                at_zeros = reverse.row(base, np.zeros(base.Y.size), zeros=True)
                bad &= np.isfinite(vector) | np.isfinite(at_zeros)
            if bad.any():
                k = int(np.argmax(bad))
                entry = checks.problem.X.entry(k)
                detail = UndefinedNotZero(output, float(vector[k]))
                yield Finding(Status.UNDEFINED, rule.mode, entry, detail, Remedy.ACCEPT_UNDEFINED)
        if reverse.refused is not None and not raised:  # some of them together
            outputs, error = reverse.refused
            yield rule.raised_undefined(", ".join(base.Y.leaves[k].name for k in outputs), error)

    def afterwards(self, row: Vector) -> Iterator[Finding]:
        """Compares the image of the probes' cotangent, once f was evaluated at another point, with
        `row`, its image before that.

        A rule that reads what its forward pass left on a class or in a global is right where each
        call is pulled back before the next one, as at the start of a check, and wrong for a
        function that is used twice. A vjp by hand is called with x, right after f, and may rely on
        that; and what is compiled runs no such code when it is called. The cotangent is a part of
        a larger array here, as behind a concatenation, which shows a rule that reads memory from
        its start.
        """
        checks = self.checks
        problem, base, eps = checks.problem, checks.base, checks.tolerance.eps
        compiled = problem.backend.usually_compiled
        if compiled or problem.modes_taken or isinstance(problem.backend, HandBackend):
            return

        def take() -> Vector:
            return self.reverse.pull(self.laid(self.cotangent, Layout.PART))[0]

        def elsewhere() -> None:
            # far enough for a derivative to change by more than its rounding
            far = max(FAR_DISTANCES[0], 4 * eps**0.5)
            point = next(points_around(problem, checks.probes.seed, eps, [far]))
            attempt(partial(evaluate, problem, base, point, Purpose.NEAR_X))

        # of a coarser dtype, differences were made in double precision or not yet
        if eps > DOUBLE or problem.counts.purpose in PURPOSES_AT_X:
            elsewhere()
        # What is written in place between two calls raises, and gives nobody a wrong number.
        late = attempt(take, NotSupportedError)
        if late is None:
            return
        both, remedy = (late, row), Remedy.KEEP_WITH_CALL
        found = list(self.rule.equal(Status.INCONSISTENT, both, AnotherAfterwards, remedy))
        if not found:
            return
        # A rule that varies from run to run differs without any evaluation as well.
        again = Reverse(problem)
        before, at_once = (again.row(base, self.cotangent, zeros=True) for _ in range(2))
        elsewhere()
        after = again.row(base, self.cotangent, zeros=True)
        varies = RUNS_APART * largest_difference(before, at_once)
        if largest_difference(before, after) > varies:
            yield from found
        elif any(self.strided) and largest_difference(late, row) > varies:
            yield from self.rule.layout_matters(both, self.cotangent, Layout.PART)

    @cached_property
    def parts(self) -> list[Sequence[int]]:
        """The leaves that gradients can be required of while those of all others are not, part by
        part; there are none where the engine does not know which inputs need a gradient.
        """
        problem = self.checks.problem
        if problem.closed_over or problem.modes_taken or len(problem.x) < 2:
            return []
        backend = problem.backend
        if backend.constant(problem.x[0]) is None:
            return []
        ask = partial(backend.rules_ask, problem.function, problem.x)
        return parts_of(problem.X, LEAVES_ALONE) if attempt(ask) is not False else []

    def of_some(self, row: Vector) -> Iterator[Finding]:
        """Compares the gradients of some leaves, where none are required of the others, with
        `row`, in which they are required of all.

        A rule that asks which inputs need a gradient (`needs_input_grad` of PyTorch), or that keeps
        for its backward pass what some of them need, may give a gradient only beside another one.
        What f itself does to those arrays is its own affair: where it raises, or has another value,
        nothing is compared.
        """
        checks, X, base = self.checks, self.checks.problem.X, self.checks.base
        for leaves in self.parts:
            name = X.names(leaves)
            with Catching(AdjudgeError) as caught:
                reverse = Reverse(checks.problem, only=leaves)
            if caught.error is not None:
                yield self._not_tried(AloneNotTried(name, Raised.of(caught.error)))
                continue
            if not checks.same_value(reverse.value(base)):
                yield self._not_tried(AloneNotTried(name))
                continue
            with Catching(AdjudgeError) as caught:
                alone = reverse.row(base, self.cotangent)
            if caught.error is not None:
                # It gives nobody a wrong number, and a checkpoint may need all of them.
                detail, remedy = AloneRaised(name, Raised.of(caught.error)), Remedy.MIND_REQUIRED
                yield Finding(Status.RAISED, self.rule.mode, name, detail, remedy, note=True)
                continue
            together = restricted(X, row, *leaves)
            differ, both = partial(AnotherAlone, leaf=name), (alone, together)
            remedy = Remedy.MIND_REQUIRED
            found = list(self.rule.equal(Status.INCONSISTENT, both, differ, remedy, strict=True))
            if found and self._alone_persists(leaves, alone - together):
                yield from found

    @property
    def none_tried(self) -> list[Finding]:
        """The note that the budget has no room for gradients of some leaves."""
        names = self.checks.problem.X.names(range(len(self.checks.problem.X.leaves)))
        return [self._not_tried(AloneNotTried(names, spent=True))]

    def _not_tried(self, detail: AloneNotTried) -> Finding:
        """Returns the note that says so."""
        return Finding(Status.UNCHECKED, self.rule.mode, detail.leaf, detail, note=True)

    def _alone_persists(self, leaves: Sequence[int], gaps: Vector) -> bool:
        """Returns whether the largest of these gaps is there at points near x as well: an engine
        may take another algorithm for some gradients than for all, and round otherwise.
        """
        if not np.all(np.isfinite(gaps)):
            return True
        checks, w = self.checks, self.cotangent
        k = int(np.argmax(np.abs(gaps)))

        def gap_at(problem: Problem, point: Vector) -> float:
            alone = Reverse(problem, point, leaves).row(checks.base, w)
            return float(alone[k] - Reverse(problem, point).row(checks.base, w)[k])

        eps, seed = checks.tolerance.eps, checks.probes.seed
        # A replay that moves the numbers inside of f may differentiate what is a constant here.
        return is_systematic(checks.problem, eps, seed, float(gaps[k]), gap_at, inside=False)

    def batched(self) -> Iterator[Finding]:
        """Compares the vjp under `vmap` with the loop over two cotangents, output by output."""
        reverse, base = self.reverse, self.checks.base
        arrays_of = partial(reverse.cotangent, base, zeros=True)

        def pull(w: MaybeArrays) -> MaybeArrays:
            return reverse.pull(w, read=False)[1]

        def pull_at(problem: Problem, point: Vector) -> RunArrays:
            there = Reverse(problem, point)
            return lambda w: there.pull(w, read=False)[1]

        for k, here in enumerate(reverse.attached):
            if here:
                yield from self.rule.batched(base.Y, k, arrays_of, pull, pull_at)


@dataclass(frozen=True)
class Pushforwards:
    """The checks of forward mode, `v -> J v`."""

    checks: Identities
    forward: Forward

    @cached_property
    def rule(self) -> LinearRule:
        """The jvp as a linear map."""
        base, forward = self.checks.base, self.forward

        def apply(v: Vector) -> Vector:
            return forward.column(base, v)[1]

        likes = base.arrays[: len(base.Y.leaves)]

        at, terms = partial(_pushed_at, self.checks), partial(_terms_pushed, self.checks.problem)
        return LinearRule(self.checks, Rule.JVP, apply, at, base.Y, likes, terms)

    @property
    def _tangent(self) -> Vector:
        seed = self.checks.probes.seed
        return random_cotangent(self.checks.problem.X, seed, Stream.PUSHED_TANGENT)

    def at_tangent(self) -> Iterator[Finding]:
        """Checks the value, purity, repeatability, homogeneity and metadata with one tangent."""
        checks, forward = self.checks, self.forward
        base, problem, v = checks.base, checks.problem, self._tangent
        x, handed = problem.point(), forward.tangent(v)
        y, jv = forward.push(handed, x)
        value = forward.vector(base, y)
        yield from checks.value_under(Rule.JVP, value)
        yield from first_elsewhere(checks)
        yield from checks.unchanged(x, problem.x, problem.X, problem.origin, Culprit.FUNCTION)
        yield from checks.unchanged(handed, problem.x, problem.X, v, Culprit.JVP)
        first = forward.image(base, jv)
        mode, arrays = "F" + problem.modes_taken, problem.backend.arrays
        checks.images[mode] = v, first
        yield from self.rule.homogeneous(v, first)
        for tangent, primal, leaf in zip(jv, y, base.Y.leaves, strict=True):
            if tangent is None:
                continue
            # A tangent belongs to the value that came with it; f(x) may have been made elsewhere.
            there, here = (arrays.info(array).device for array in (tangent, primal))
            yield from elsewhere(checks, mode, Rule.JVP, leaf.name, there, here)
            if arrays.is_complex(tangent) != leaf.complex:
                yield Finding(
                    Status.WRONG_DTYPE,
                    mode,
                    leaf.name,
                    RealForComplex(arrays.info(tangent).dtype, leaf.info.dtype),
                )

    def additive(self) -> Iterator[Finding]:
        """Compares `J(u + v)` with `J u + J v` for two random tangents of all leaves together, and
        `J 0` with zero.
        """
        checks, rule = self.checks, self.rule
        X, streams = checks.problem.X, (Stream.PUSHED_TANGENT, Stream.SECOND_PUSHED_TANGENT)
        u, v = (random_cotangent(X, checks.probes.seed, stream) for stream in streams)
        one, two, together = (rule.apply(w) for w in (u, v, u + v))
        size = np.abs(one) + np.abs(two)
        yield from rule.additive([u, v, u + v], (together, one + two), size, one)
        largest = float(np.max(size, initial=0.0, where=np.isfinite(size)))
        yield from rule.zero(u, one, largest)

    def at_multiples(self) -> Iterator[Finding]:
        """Compares the image of a tangent of a derivative `(x, w) -> J*(x) w` with those at
        multiples of w. The tangent moves w as many times as far, and so all of the image is as many
        times as large.
        """
        problem = self.checks.problem
        v, one = self.checks.images[self.rule.mode]

        def image_at(there: Problem, point: Vector, factor: float) -> Vector:
            point, tangent = point.copy(), v.copy()
            for moved in (point, tangent):
                moved[directions(problem)] *= factor
            return self.rule.take_at(there, point, tangent) / factor

        yield from self.rule.follows(one, image_at)

    @property
    def work_alone(self) -> int:
        """The jvps that `leaf_by_leaf` takes, and as many more where tangents are undefined."""
        return len(parts_of(self.checks.problem.X))

    def leaf_by_leaf(self, *, undefined: bool) -> Iterator[Finding]:
        """Compares `J v` with the sum of the images of its leaves, and each of these with what
        undefined tangents in all other leaves give, where that is asked for.

        Differences are made of one leaf at a time, where there are few, and in life all leaves
        move: a rule that looks at the tangents of others only where the first one is zero is right
        for each by itself.
        """
        checks, rule, X, v = self.checks, self.rule, self.checks.problem.X, self._tangent
        parts = parts_of(X)
        if not parts:
            return
        _, one = checks.images[rule.mode]
        total, size = np.zeros(one.size), np.zeros(one.size)
        for leaves in parts:
            part = restricted(X, v, *leaves)
            zeros = rule.apply(part)
            total += zeros
            size += np.abs(zeros)
            if undefined:
                yield from self._undefined(leaves, part, zeros)
        found = rule.sums([v], (one, total), size)
        for leaves in parts if found else ():
            part = restricted(X, v, *leaves)
            if rule.persists(part, v, v - part):
                yield from found
                return

    def small(self) -> Iterator[Finding]:
        """Compares the image of a small multiple of the tangent with that of the tangent itself.

        Without this a rule that cuts its tangent off below some magnitude passes, as one did that
        cuts off its cotangent.
        """
        yield from self.rule.at_small(self.rule.apply, *self.checks.images[self.rule.mode])

    def entry_and_rest(self) -> Iterator[Finding]:
        """Compares `J v` with the sum of the images of one entry of each leaf, and of all others.

        In full mode differences are made of single entries, and in life all of them move: a rule
        that is right for each by itself, and off by a factor where several move, passed. Along
        random tangents all entries move, and `jacfwd` asks for single ones.
        """
        rule, (v, one) = self.rule, self.checks.images[self.rule.mode]
        random, part = generator(self.checks.probes.seed, Stream.ENTRY_OF_TANGENT), np.zeros_like(v)
        for leaf in self.checks.problem.X.slices:
            if leaf.stop > leaf.start:
                k = int(random.integers(leaf.start, leaf.stop))
                part[k] = v[k]
        if np.array_equal(part, v):
            return
        term, rest = rule.apply(part), rule.apply(v - part)
        pair, size = (one, term + rest), np.abs(term) + np.abs(rest)
        found = rule.sums([v], pair, size)
        if found and rule.persists(part, v, v - part):
            yield from found

    def _undefined(self, leaves: Sequence[int], part: Vector, zeros: Vector) -> Iterator[Finding]:
        """Compares the image of a tangent of these leaves beside undefined ones with that beside
        zeros.
        """
        X = self.checks.problem.X
        with Catching(AdjudgeError) as caught:
            without = self.forward.column(self.checks.base, part, leaves)[1]
        if caught.error is not None:
            others = X.names([j for j in range(len(X.leaves)) if j not in leaves])
            yield self.rule.raised_undefined(others, caught.error)
            return
        differ = partial(UndefinedNotZeros, leaf=X.names(leaves))
        both, remedy = (without, zeros), Remedy.ACCEPT_UNDEFINED
        yield from self.rule.equal(Status.UNDEFINED, both, differ, remedy)

    def batched(self) -> Iterator[Finding]:
        """Compares the jvp under `vmap` with the loop over two tangents, input by input."""
        problem, forward = self.checks.problem, self.forward
        x = problem.point()

        def push(v: MaybeArrays) -> MaybeArrays:
            return forward.push(v, x)[1]

        if problem.counts.before_evaluation is not None and self._draws_others_under_vmap(x):
            detail, remedy = DrawsOthers("vmap"), Remedy.PASS_RANDOM_NUMBERS
            yield Finding(Status.DRAWS_RANDOM, self.rule.mode, "", detail, remedy, note=True)
            return

        def push_at(problem: Problem, point: Vector) -> RunArrays:
            there = Forward(problem, point)
            x = problem.point(point)
            return lambda v: there.push(v, x)[1]

        for k in range(len(problem.X.leaves)):
            yield from self.rule.batched(problem.X, k, forward.tangent, push, push_at)

    def _draws_others_under_vmap(self, x: Arrays) -> bool:
        """Returns whether the value that comes with a jvp under `vmap` is not f(x), though the
        random state is the same: an engine may fill a batch with random numbers in another order.
        """
        tangents = self.forward.tangent(self._tangent)
        rest = (None,) * (len(tangents) - 1)
        assert tangents[0] is not None
        pair = [tangents[0], tangents[0]]
        with Catching() as caught, running(Source.DERIVATIVE):
            rows = self.rule.rows_under_vmap(lambda v: self.forward.push((*v, *rest), x)[0], pair)
        return caught.error is None and not all(map(self.checks.same_value, rows))


def moved_by_all_of_x(checks: Identities) -> Vector:
    """Returns how far f moves, by output, on the way from x to zero, as far as it is defined there,
    and at most its usual magnitude at x.

    The terms of its derivative are about as large, over the length of that way, though the
    derivative at x may be far smaller. What f has besides, as `200 + sin(x)` has, is in no term,
    and neither is what it has elsewhere, as `exp` at -20. Costs two evaluations. Ours.
    """
    problem, base = checks.problem, checks.base
    moves = np.zeros(base.Y.size)
    for part in (0.5, 0.0):
        point = problem.clipped(part * problem.origin)
        values = attempt(partial(evaluate, problem, base, point, Purpose.NEAR_X))
        if values is not None:
            moves = np.fmax(moves, np.abs(values - base.values)[: moves.size])
    moves = np.fmin(moves, base.magnitude(base.values)[: moves.size])
    return np.where(np.isfinite(moves), moves, 0.0)


def lengths(problem: Problem) -> Vector:
    """Returns the lengths over which f may move by all of itself, by input: the scale of x, or 1
    where that is longer, as for `exp`.
    """
    return np.minimum(problem.length_scales, 1.0)


def directions(problem: Problem) -> slice:
    """Returns the coordinates of w where f is a derivative `(x, w) -> J*(x) w` or `J(x) w`: they
    follow those of x.
    """
    return slice(problem.X.slices[problem.primal_inputs].start, None)


def parts_of(X: Space, few: int = FEW_LEAVES) -> list[Sequence[int]]:
    """Returns the leaves that are probed together while all others are left out: each by itself
    where there are `few`, and else those with an even and with an odd index.
    """
    count = len(X.leaves)
    if count < 2:
        return []
    if count <= few:
        return [(j,) for j in range(count)]
    return [range(0, count, 2), range(1, count, 2)]


def metadata(checks: Identities, gradients: MaybeArrays) -> Iterator[Finding]:
    """Checks that shape, dtype, device and layout of each gradient are its input's."""
    backend = checks.problem.backend
    for leaf, gradient in zip(checks.problem.X.leaves, gradients, strict=True):
        if gradient is None:
            continue
        info, like = backend.arrays.info(gradient), leaf.info
        if info == like:  # as it should be
            checks.compared += 1
            continue
        mode = "R" + checks.problem.modes_taken
        yield from elsewhere(checks, mode, Rule.VJP, leaf.name, info.device, like.device)
        for status, attribute, found, expected in (
            (Status.WRONG_SHAPE, Attribute.SHAPE, info.shape, like.shape),
            (Status.WRONG_DTYPE, Attribute.DTYPE, info.dtype, like.dtype),
            (Status.WRONG_LAYOUT, Attribute.LAYOUT, info.layout, like.layout),
        ):
            # A dense gradient of a sparse input holds all entries, and is what some engines make.
            fits = attribute is Attribute.LAYOUT and found in DENSE
            if found != expected and not fits:
                detail = WrongAttribute(Rule.VJP, attribute, found, expected)
                yield Finding(status, mode, leaf.name, detail, Remedy.RETURN_ATTRIBUTE)


def first_elsewhere(checks: Identities) -> Iterator[Finding]:
    """Checks that gradients that are differentiated again are on the devices of their inputs."""
    problem = checks.problem
    if problem.modes_taken.startswith("R"):
        inputs = problem.X.leaves[: problem.primal_inputs]
        for leaf, gradient in zip(inputs, checks.base.Y.leaves, strict=True):
            found, expected = gradient.info.device, leaf.info.device
            yield from elsewhere(checks, problem.modes_taken, Rule.VJP, leaf.name, found, expected)


def elsewhere(
    checks: Identities, mode: str, rule: Rule, name: str, found: str, expected: str
) -> Iterator[Finding]:
    """Checks that what a rule made of `name` is on the device of what it belongs to."""
    checks.compared += 1
    if found != expected:
        detail = WrongAttribute(rule, Attribute.DEVICE, found, expected)
        yield Finding(Status.WRONG_DEVICE, mode, name, detail, Remedy.RETURN_ATTRIBUTE)


def _terms_pulled(problem: Problem, w: Vector, moves: Vector) -> Vector:
    """Returns how large the numbers are, by input, that a vjp may add up for a cotangent."""
    return np.asarray(largest(w * moves) / lengths(problem))


def _terms_pushed(problem: Problem, v: Vector, moves: Vector) -> Vector:
    """Returns how large the numbers are, by output, that a jvp may add up for a tangent."""
    return np.asarray(moves * largest(v / lengths(problem)))


def _pulled_turned(pullbacks: Pullbacks, w: Vector) -> Vector:
    """Returns `J* w` for a cotangent that is transposed in memory."""
    return pullbacks.reverse.pull(pullbacks.laid(w, Layout.TURNED))[0]


def _pulled_at(checks: Identities, problem: Problem, point: Vector, w: Vector) -> Vector:
    """Returns `J* w` at another point."""
    return Reverse(problem, point).row(checks.base, w)


def _pulled_laid(
    checks: Identities, layout: Layout, problem: Problem, point: Vector, w: Vector
) -> Vector:
    """Returns `J* w` at another point, for a cotangent in this memory layout."""
    there = Pullbacks(checks, Reverse(problem, point))
    return there.reverse.pull(there.laid(w, layout))[0]


def _pushed_at(checks: Identities, problem: Problem, point: Vector, v: Vector) -> Vector:
    """Returns `J v` at another point."""
    return Forward(problem, point).column(checks.base, v)[1]
