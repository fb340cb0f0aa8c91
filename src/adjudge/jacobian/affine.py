"""This module compares derivatives of affine functions to rounding.

Where f is affine a difference over the whole scale of x has no truncation, so rounding is all that
it is off by. A constant that is wrong by 1e-12 then shows, which no difference of a curved function
can do. How much rounding is to be allowed depends on the conditioning of the map, which is
estimated from its singular values. The comparison is ours.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from adjudge.constants import (
    BIDIAGONAL_STEPS,
    CONDITION_UNITS,
    CURVATURE_BARS,
    FEW_TERMS_UNITS,
    LINE_UNITS,
    LONG_STEP_COLUMNS,
    NEGLIGIBLE_SINGULAR_VALUE,
    SCATTER_FACTOR,
    SECANT_UNITS,
    SHORT_SLOPE_BARS,
    SHORTEST_LONG_STEP,
    SUM_ROOT_UNITS,
    THIRD_POINT,
)
from adjudge.errors import NotSupportedError, attempt
from adjudge.estimate import Column, Sample, describe_move, moved_by
from adjudge.findings import AffineOff, Finding, Remedy, Status, along_random, entry_name
from adjudge.floats import Vector, norm, scale
from adjudge.jacobian.column import ColumnBlock
from adjudge.jacobian.rounding import is_systematic, perturbed
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
)


def condition(problem: Problem, base: Base, part: slice, w: Vector) -> float:
    """Returns the ratio of the largest to the smallest singular value of the derivative in the
    coordinates `part`, as far as a few steps of Golub and Kahan's bidiagonalisation (SIAM J. Numer.
    Anal. 2, 1965) from the cotangent `w` show it.

    A map with a wide spread of singular values may be the inverse of an ill-conditioned one, and
    two backward stable ways to compute that differ by as many units of rounding: `solve(A.T, w)`
    and `inv(A).T @ w` for a Hilbert matrix of order 10, say. Such a difference is the same at every
    point, so `is_systematic` cannot excuse it. The ratio is infinite where x has no room for
    differences.
    """
    length = float(np.max(scale(problem.origin[part]), initial=0.0))
    reverse = Reverse(problem)
    u = w / norm(w)
    lefts, rights = [u], list[Vector]()
    steps = min(BIDIAGONAL_STEPS, part.stop - part.start, int(np.count_nonzero(w)))
    bidiagonal = np.zeros((steps + 1, steps))
    done = 0
    for k in range(steps):
        v = np.zeros_like(problem.origin)
        v[part] = reverse.row(base, u)[part]
        v = _orthogonalised(v, rights)
        alpha = float(norm(v))
        if not alpha > NEGLIGIBLE_SINGULAR_VALUE * np.max(np.abs(bidiagonal)):
            break
        v, bidiagonal[k, k], done = v / alpha, alpha, k + 1
        rights.append(v)
        unit = length / float(np.max(np.abs(v)))
        if problem.longest_step(v) < unit:
            return np.inf
        ends = [
            evaluate(problem, base, problem.origin + sign * unit * v, Purpose.SINGULAR_VECTOR)
            for sign in (1.0, -1.0)
        ]
        u = np.where(w != 0, (ends[0] - ends[1])[: base.Y.size] / (2 * unit), 0.0)
        u = _orthogonalised(u, lefts)
        beta = float(norm(u))
        if not beta > NEGLIGIBLE_SINGULAR_VALUE * np.max(np.abs(bidiagonal)):
            break
        u, bidiagonal[k + 1, k] = u / beta, beta
        lefts.append(u)
    values = np.linalg.svd(bidiagonal[: done + 1, :done], compute_uv=False)
    return float(values[0] / values[-1]) if done and values[-1] > 0 else np.inf


def _orthogonalised(vector: Vector, others: list[Vector]) -> Vector:
    """Returns what is left of `vector` when its components along these orthonormal vectors are
    taken out. It is done twice, since the first pass leaves rounding (Gram-Schmidt with
    reorthogonalisation).
    """
    for _ in range(2):
        for other in others:
            vector = vector - (other @ vector) * other
    return vector


@dataclass(frozen=True)
class Secant:
    """The slope of f along one tangent over a length at which rounding is all that a difference is
    off by.
    """

    direction: Vector
    """The move that was really made, after rounding."""
    value: Vector
    """`J direction`, by output."""
    error: Vector
    """The error that rounding may make of it."""
    holds: tuple[bool, ...]
    """Says, by output leaf, whether f is affine there and moves."""


@dataclass(frozen=True)
class ModeValues:
    """What one mode says along a secant, beside what the secant says."""

    letter: str
    each: bool
    """Says whether there is an entry for each output coordinate, or one for each cotangent."""
    automatic: Vector
    reference: Vector
    bound: Vector
    """The rounding that either of the two may be off by."""
    holds: NDArray[np.bool_]
    """Says, by entry, whether f is affine there."""
    automatic_at: Callable[[Problem, Vector, Vector, Vector], float]
    """Gives an entry at another point, for other probes `w` and `d`."""


@dataclass
class Affine:
    """The comparisons of one table with the secants of an affine f.

    They cost nothing where f is not affine: then the two evaluations of a column and `f(x)` do not
    lie on a line, and nothing more is evaluated.
    """

    problem: Problem
    base: Base
    probes: Probes
    eps: float
    constants: float = 0.0
    """See `Tolerance.constants`."""
    findings: list[Finding] = field(default_factory=list)
    compared: int = 0
    tried: int = 0
    failed: set[str] = field(default_factory=set)

    def compare(self, found: Column, block: ColumnBlock, forward: Forward | None) -> None:
        """Compares what each mode says along the tangent of `found`, if f is affine along it."""
        most = LONG_STEP_COLUMNS if self.probes.full else 2 * len(self.problem.X.leaves)
        if found.sample is None or self.tried >= most or not self.problem.counts.allows(16):
            return
        if not any(self._straight(found.sample)):
            return
        self.tried += 1
        secant = self._secant(found)
        if secant is None or not any(secant.holds):
            return
        if block.rows is not None and "R" not in self.failed:
            self._rows(found, secant, block)
        if forward is not None and "F" not in self.failed:
            self._pushed(found, secant, forward)

    # -- whether f is affine

    @property
    def _units(self) -> float:
        """The units of rounding of a sum over all entries."""
        entries = self.problem.X.size + self.base.whole.size
        return FEW_TERMS_UNITS + SUM_ROOT_UNITS * float(np.sqrt(entries))

    def _straight(self, sample: Sample) -> list[bool]:
        """Returns, by output leaf, whether it moves and lies on a line at the two evaluations and
        x.
        """
        at_x = self.base.values
        size = np.fmax(self.base.magnitude(at_x), sample.size)
        bend = np.abs(sample.plus + sample.minus - 2 * at_x)
        on_line = bend <= self._units * self.eps * size
        moves = sample.plus != sample.minus
        return [bool(on_line[p].all() and moves[p].any()) for p in self.base.Y.slices]

    def _secant(self, found: Column) -> Secant | None:
        """Returns the secant over the scale of x; `None` where x has no room for it, or f is not
        defined there.

        What is straight near x may saturate, bend or jump farther out (`clip`, or `x^2` beyond 5),
        so the long steps to either side and a third point must all give the slope of the short one.
        """
        problem, base, tangent = self.problem, self.base, found.tangent
        length = min(tangent.length, problem.longest_step(tangent.vector))
        if length < SHORTEST_LONG_STEP * tangent.length:
            return None
        points = [moved_by(problem, tangent, step * length) for step in (1.0, -1.0, THIRD_POINT)]
        words = describe_move(problem, tangent, length)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = attempt(lambda: [evaluate(problem, base, point, words) for point in points])
        if values is None:  # so far from x f need not be defined
            return None
        at_x = base.values
        ahead, behind, part = values
        value = (ahead - behind) / 2
        # Four slopes of one affine function are the same number to rounding.
        others = np.array([ahead - at_x, at_x - behind, (part - at_x) / THIRD_POINT])
        scatter = np.max(np.abs(others - value), axis=0)
        size = np.fmax(np.fmax(base.magnitude(ahead), base.magnitude(behind)), base.magnitude(at_x))
        rounding = self._units * self.eps * size
        short, bar = found.estimate.value * length, found.estimate.error * length
        near = np.abs(short - value) <= SHORT_SLOPE_BARS * bar + LINE_UNITS * rounding
        affine = near & (scatter <= LINE_UNITS * rounding / THIRD_POINT)
        error = SECANT_UNITS * rounding
        for leaf in base.Y.slices:
            usual = np.sqrt(np.mean(scatter[leaf] ** 2)) if leaf.stop > leaf.start else 0.0
            error[leaf] += SCATTER_FACTOR * np.fmax(scatter[leaf], usual)
        holds = tuple(
            bool(affine[p].all() and np.any(ahead[p] != behind[p])) for p in base.Y.slices
        )
        count = base.Y.size
        return Secant((points[0] - points[1]) / 2, value[:count], error[:count], holds)

    # -- what the modes say

    def _rows(self, found: Column, secant: Secant, block: ColumnBlock) -> None:
        """Compares reverse mode with the secant."""
        kept, its = block.of_leaf(found.tangent.part(self.problem.X))
        d, pulled = secant.direction[kept], its.shape[0]
        automatic = np.sum(its * d, axis=1)
        size = np.maximum(norm(its * d), np.abs(automatic))
        bound = self._units * self.eps * size

        def row_at(problem: Problem, point: Vector, w: Vector, d: Vector) -> float:
            return float(np.sum(Reverse(problem, point).row(self.base, w) * d))

        error = self.probes.contract_error(secant.error)[:pulled]
        reference = self._contract(secant.value)[:pulled]
        output = self.base.Y.owner if self.probes.full else np.arange(pulled)
        holds = np.array([secant.holds[i] for i in output[:pulled]], bool)
        values = ModeValues(
            "R", self.probes.full, automatic, reference, bound + error, holds, row_at
        )
        self._judged(found, secant, values)

    def _pushed(self, found: Column, secant: Secant, forward: Forward) -> None:
        """Compares forward mode with the secant."""
        Y = self.base.Y
        automatic = forward.column(self.base, secant.direction)[1]
        bound = secant.error + self._units * self.eps * Y.largest(automatic)

        def entry_at(problem: Problem, point: Vector, w: Vector, d: Vector) -> float:
            return float(w @ Forward(problem, point).column(self.base, d)[1])

        holds = np.repeat(np.array(secant.holds, bool), [leaf.size for leaf in Y.leaves])
        values = ModeValues("F", True, automatic, secant.value, bound, holds, entry_at)
        self._judged(found, secant, values)

    def _judged(self, found: Column, secant: Secant, values: ModeValues) -> None:
        """Calls an entry wrong that differs by more than `bound`, both here and at points
        close by.
        """
        self.compared += int(np.count_nonzero(values.holds))
        automatic, reference = values.automatic, values.reference
        gap, whole = np.abs(automatic - reference), np.fmax(np.abs(automatic), np.abs(reference))
        bound = CURVATURE_BARS * values.bound + self.constants * whole
        apart = values.holds & np.isfinite(automatic) & ~(gap <= bound)
        if not np.any(apart):
            return
        k = int(np.argmax(np.where(apart, gap / bound, 0.0)))

        random = generator(self.probes.seed, Stream.NEAR_SECANT)
        row = np.eye(1, self.base.Y.size, k)[0] if values.each else self.probes.row(k)

        def gap_at(problem: Problem, point: Vector) -> float:
            d, w = perturbed(secant.direction, random), perturbed(row, random)
            ahead, behind = (
                evaluate(problem, self.base, point + sign * d, Purpose.NEAR_X)
                for sign in (1.0, -1.0)
            )
            value = (ahead - behind)[: self.base.Y.size] / 2
            return values.automatic_at(problem, point, w, d) - float(np.sum(w * value))

        difference = float(automatic[k] - reference[k])
        if not self.problem.counts.allows(32):
            return
        size = float(max(abs(automatic[k]), abs(reference[k]), bound[k]))
        # What conditioning explains is excused before the comparison at other points, since the
        # rounding of a captured and factored matrix is the same at all of them.
        if abs(difference) <= self._conditioned(found, k, each=values.each) * size:
            return
        if is_systematic(self.problem, self.eps, self.probes.seed, difference, gap_at):
            self.failed.add(values.letter)
            self.findings.append(self._finding(found, k, values, float(bound[k])))

    def _conditioned(self, found: Column, k: int, *, each: bool) -> float:
        """Returns the part of the derivative that two ways to compute the map may differ by."""
        w = np.zeros(self.base.Y.size)
        leaf = self.base.Y.owner[k] if each else k
        w[self.base.Y.slices[leaf]] = self.probes.cotangent[self.base.Y.slices[leaf]]
        try:
            ratio = condition(self.problem, self.base, found.tangent.part(self.problem.X), w)
        except NotSupportedError:
            # With forward mode alone there are no vjps to iterate with. A jvp takes the same steps
            # as f does, so that its rounding is alike.
            ratio = 1.0
        return CONDITION_UNITS * self.eps * ratio**2

    def _contract(self, value: Vector) -> Vector:
        """Returns `<w, value>` by row. NumPy adds pairwise, so the rounding of these sums does not
        grow with their length as that of a dot product may.
        """
        if self.probes.full:
            return value
        terms = self.probes.cotangent * value
        return np.array([np.sum(terms[part]) for part in self.base.Y.slices])

    def _finding(self, found: Column, k: int, values: ModeValues, bound: float) -> Finding:
        """Returns the finding about entry `k`, which may be off by this bound."""
        leaf, Y = self.problem.X.leaves[found.tangent.leaves[0]].name, self.base.Y
        coordinate = found.tangent.coordinate
        wrt = along_random(leaf) if coordinate is None else self.problem.X.entry(coordinate)
        of = Y.entry(k) if values.each else Y.leaves[k].name
        automatic, reference = float(values.automatic[k]), float(values.reference[k])
        off = abs(automatic - reference) / max(abs(reference), bound)
        detail = AffineOff(automatic, reference, bound, off)
        mode = values.letter + self.problem.modes_taken
        return Finding(Status.MISMATCH, mode, entry_name(of, wrt), detail, Remedy.MEND_CONSTANT)
