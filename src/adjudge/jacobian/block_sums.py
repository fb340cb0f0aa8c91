"""This module compares large arrays through sums of blocks, which are added up where the arrays
are.

With random signed `v` and `w`, `t -> (sum over a block of Re conj(w) f(x + v t))` is a function of
a few thousand numbers: each is the coefficient of a block of entries of x, and there is a sum for
each block of outputs. Its derivative is that of f between the same probes, and differences of it
are as accurate, since the rounding errors of different entries are not correlated and add up as the
random terms do. This is a sketch in the sense of randomized linear algebra. It makes a ladder of
steps on a hundred million entries affordable: only the sums leave the device.

What the sums accept is accepted. Where they do not agree, or leave anything open, the whole check
is made as if there had been no sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from adjudge.constants import SEPARATIONS
from adjudge.engine import (
    DENSE,
    Array,
    Arrays,
    AutodiffBackend,
    FlatFunction,
    MaybeArrays,
    OtherDerivatives,
    PlainBackend,
    Pullback,
)
from adjudge.errors import Catching, NotSupportedError, Source, UnstableOutputError, running
from adjudge.estimate import Differences
from adjudge.floats import QUANTILE_ENTRIES, Vector, scale
from adjudge.jacobian.column import ColumnBlock, Columns
from adjudge.jacobian.comparison import Tally, Tolerance
from adjudge.jacobian.table import Item, Record, Table
from adjudge.limits import limits
from adjudge.problem import (
    Base,
    Forward,
    Leaf,
    Probes,
    Problem,
    Reverse,
    Space,
    Stream,
    generator,
    largest,
    observe,
    random_entries,
)


class UnfitError(Exception):
    """Sums of blocks cannot decide this problem, which the comparison of all entries then does."""


def plus(backend: AutodiffBackend, array: Array, other: Array) -> Array:
    """Returns a new array `array + other`, with the strides of `array` where the engine has
    strides.
    """
    with running(Source.ENGINE):  # there may be no memory for it
        fresh = backend.arrays.copy(array)
    fresh += other
    return fresh


@dataclass(frozen=True)
class Blocks:
    """One array in blocks of consecutive entries, with a random factor for each entry."""

    backend: AutodiffBackend
    leaf: Leaf
    like: Array
    """An array of the leaf's shape, dtype and device."""
    factors: Array
    """The factors, one-dimensional, of the dtype and on the device of `like`."""

    @classmethod
    def of(cls, backend: AutodiffBackend, leaf: Leaf, like: Array, factors: Vector) -> Blocks:
        """Returns the blocks of a leaf, with `factors` given as real coordinates of it."""
        with backend.environment.call_context((like,)):
            there = backend.xp.reshape(backend.arrays.from_host(leaf.host(factors), like), (-1,))
            # An engine may mark what it makes for differentiation if it marked `like`; a copy is
            # not marked.
            return cls(backend, leaf, like, backend.arrays.copy(there))

    @property
    def width(self) -> int:
        """The entries of a block; the last block may have fewer."""
        return -(-self.leaf.entries // limits().blocks)

    @property
    def count(self) -> int:
        """The number of blocks."""
        return -(-self.leaf.entries // self.width)

    @cached_property
    def _zeros(self) -> Array:
        return self.backend.arrays.from_host(np.zeros(self.leaf.host_shape), self.like)

    @cached_property
    def _some(self) -> Array:
        return self.backend.arrays.copy(self.factors[: self.count])

    def expanded(self, t: Vector) -> Array:
        """Returns the factors, each times the entry of `t` for its block, in the shape of the
        array.
        """
        xp, entries = self.backend.xp, self.leaf.entries
        wide = t.astype(np.complex128 if self.leaf.complex else np.float64)
        with self.backend.environment.call_context((self.like,)):
            column = xp.reshape(self.backend.arrays.from_host(wide, self._some), (self.count, 1))
            each = xp.reshape(xp.broadcast_to(column, (self.count, self.width)), (-1,))
            whole = xp.reshape(self.factors * each[:entries], self.leaf.host_shape)
            return plus(self.backend, self._zeros, whole)

    def terms(self, array: Array) -> Array:
        """Returns `Re conj(factor) entry` for every entry, one-dimensional."""
        xp = self.backend.xp
        flat = xp.reshape(array, (-1,))
        return xp.real(xp.conj(self.factors) * flat) if self.leaf.complex else self.factors * flat

    def sums(self, array: Array) -> Vector:
        """Returns the terms of each block added up, on the host."""
        xp, missing = self.backend.xp, self.count * self.width - self.leaf.entries
        with self.backend.environment.call_context((self.like,)):
            terms = self.terms(self.backend.arrays.copy(array))
            if missing:
                terms = xp.concat([terms, xp.zeros_like(terms[:missing])])
            table = xp.reshape(terms, (self.count, self.width))
            return np.asarray(self.backend.arrays.to_host(xp.sum(table, axis=1)), dtype=np.float64)


@dataclass
class Sketch:
    """A problem whose inputs and outputs are seen in blocks."""

    problem: Problem
    base: Base
    inputs: Sequence[Blocks | None]
    """The blocks of each input leaf; `None` for a leaf that stays where it is."""
    outputs: Sequence[Blocks]
    rows: dict[int, Arrays] = field(default_factory=dict)
    """The gradients that the cotangent of each output was pulled back to last."""
    undetectable: dict[int, NDArray[np.bool_]] = field(default_factory=dict)
    """This field is the one of `BlockSums`."""
    doubted: dict[int, NDArray[np.bool_]] = field(default_factory=dict)
    """This field is the one of `BlockSums`."""
    uncompared: bool = False
    """This field is the one of `BlockSums`."""

    def point(self, t: Arrays) -> Arrays:
        """Returns `x + v t`, in fresh arrays."""
        backend, moved = self.problem.backend, []
        for array, blocks, entry in zip(self._x, self.inputs, t, strict=True):
            if blocks is None:
                moved.append(backend.arrays.copy(array))
                continue
            v = blocks.expanded(entry)
            with backend.environment.call_context((array,)):
                moved.append(plus(backend, array, v))
        return tuple(moved)

    def direction(self, t: MaybeArrays) -> MaybeArrays:
        """Returns `v t`."""
        return tuple(
            None if blocks is None or entry is None else blocks.expanded(entry)
            for blocks, entry in zip(self.inputs, t, strict=True)
        )

    @cached_property
    def _x(self) -> Arrays:
        return tuple(self.problem.backend.arrays.copy(array) for array in self.problem.x)

    def values(self, y: MaybeArrays) -> tuple[Vector, ...]:
        """Returns the block sums of outputs, or of their tangents."""
        return tuple(
            np.zeros(blocks.count) if array is None else blocks.sums(array)
            for array, blocks in zip(y, self.outputs, strict=True)
        )

    def cotangents(self, c: MaybeArrays) -> MaybeArrays:
        """Returns `w c`; `None` for outputs that take no part."""
        return tuple(
            None if entry is None else blocks.expanded(entry)
            for entry, blocks in zip(c, self.outputs, strict=True)
        )

    def gradients(self, g: MaybeArrays) -> MaybeArrays:
        """Returns the block sums of gradients."""
        found: list[Vector | None] = []
        for array, blocks, leaf in zip(g, self.inputs, self.problem.X.leaves, strict=True):
            if array is not None and self.problem.backend.arrays.info(array) != leaf.info:
                raise UnfitError(f"the gradient of {leaf.name} is another kind of array")
            if blocks is None:
                found.append(np.zeros(0))
            else:
                found.append(None if array is None else blocks.sums(array))
        return tuple(found)

    def terms(self, j: int, t: Vector, rows: int) -> Vector:
        """Returns what each entry of input `j` adds to the comparison along `t`, by row, on the
        host.

        Raises `UnfitError` where a term lies below the rounding of f, because no sum shows that.
        """
        blocks = self.inputs[j]
        # The leaf has a tangent, and so has blocks.
        assert blocks is not None
        each = np.repeat(t, blocks.width)[: blocks.leaf.entries]
        found = np.zeros((rows, blocks.leaf.entries))
        for k in range(rows):
            gradient = self.rows[k][j]
            if gradient is not None:
                with blocks.backend.environment.call_context((blocks.like,)):
                    found[k] = blocks.backend.arrays.to_host(blocks.terms(gradient))
        found *= each
        space = self.base.whole
        sizes = [
            leaf.eps * largest(self.base.values[part])
            for leaf, part in zip(space.leaves[:rows], space.slices, strict=False)
        ]
        below = np.abs(found) <= np.array(sizes)[:, None]
        if np.any(below.all(axis=0) & (found != 0).any(axis=0)):
            raise UnfitError("the term of an entry lies below the rounding of f")
        return found

    def images(self, j: int, t: Vector) -> tuple[Vector, NDArray[np.int64]]:
        """Returns what each entry of the outputs adds to its sum along `t`, and which sum
        that is.
        """
        problem, counts = self.problem, [0 if b is None else b.count for b in self.inputs]
        parts = np.split(t, np.cumsum(counts)[:-1])
        v = self.direction(tuple(part if k == j else None for k, part in enumerate(parts)))
        x = tuple(problem.backend.arrays.copy(array) for array in self._x)
        problem.counts.jvps += 1
        with running(Source.DERIVATIVE):
            _, tangents = problem.backend.jvp(problem.function, x, v)
        terms, sums, before = [], [], 0
        for blocks, tangent in zip(self.outputs, tangents, strict=True):
            found = np.zeros(blocks.leaf.entries)
            if tangent is not None:
                with blocks.backend.environment.call_context((blocks.like,)):
                    found[:] = blocks.backend.arrays.to_host(blocks.terms(tangent))
            terms.append(found)
            sums.append(before + np.arange(blocks.leaf.entries) // blocks.width)
            before += blocks.count
        return np.concatenate(terms), np.concatenate(sums)


class SketchBackend(OtherDerivatives):
    """The engine of a sketched problem: host vectors in, host vectors out."""

    def __init__(self, sketch: Sketch) -> None:
        """Takes the derivatives from the problem's own engine."""
        super().__init__(PlainBackend(array_api_compat.array_namespace(np.zeros(0))))
        self.sketch = sketch

    @property
    def capabilities(self) -> frozenset[str]:
        return self.sketch.problem.backend.capabilities & {"jvp"}

    def vjp(self, f: FlatFunction, x: Arrays) -> tuple[Arrays, Pullback]:
        sketch, engine = self.sketch, self.sketch.problem.backend
        with running(Source.ADJUDGE):
            point = sketch.point(x)
            with running(Source.DERIVATIVE):
                y, pull = engine.vjp(sketch.problem.function, point)
            if any(engine.detached(array) for array in y):
                raise UnfitError("an output is detached")
            values = sketch.values(y)

        def pullback(c: MaybeArrays) -> MaybeArrays:
            with running(Source.ADJUDGE):
                w = sketch.cotangents(c)
                with running(Source.DERIVATIVE):
                    gradients = pull(w)
                taking = [k for k, entry in enumerate(c) if entry is not None]
                if len(taking) == 1:
                    sketch.rows[taking[0]] = tuple(
                        None if g is None else engine.arrays.copy(g) for g in gradients
                    )
                return sketch.gradients(gradients)

        return values, pullback

    def jvp(self, f: FlatFunction, x: Arrays, v: MaybeArrays) -> tuple[Arrays, MaybeArrays]:
        sketch, engine = self.sketch, self.sketch.problem.backend
        with running(Source.ADJUDGE):
            point, directions = sketch.point(x), sketch.direction(v)
            with running(Source.DERIVATIVE):
                y, tangents = engine.jvp(sketch.problem.function, point, directions)
            return sketch.values(y), sketch.values(tangents)


def sketch_of(
    problem: Problem, base: Base, seed: int, only: dict[int, NDArray[np.bool_]] | None = None
) -> Problem:
    """Returns the sketched problem at `t = 0`. With `only` the given entries of each input move,
    and none of the other inputs.
    """
    backend, random = problem.backend, generator(seed, Stream.SKETCH_INPUTS)
    inputs: list[Blocks | None] = []
    for j, (leaf, part) in enumerate(zip(problem.X.leaves, problem.X.slices, strict=True)):
        if not leaf.size or (only is not None and j not in only):
            inputs.append(None)
            continue
        factors = random_entries(random, leaf.size) * _powers_of_two(scale(problem.origin[part]))
        if only is not None:
            kept = np.repeat(only[j], 2) if leaf.complex else only[j]
            factors = np.where(kept, factors, 0.0)
        inputs.append(Blocks.of(backend, leaf, problem.x[j], factors))
    random = generator(seed, Stream.SKETCH_OUTPUTS)
    arrays: Any = base.arrays
    outputs = [
        Blocks.of(backend, leaf, like, random_entries(random, leaf.size))
        for leaf, like in zip(base.whole.leaves, arrays, strict=True)
    ]
    sketch = Sketch(problem, base, inputs, outputs)
    origins = tuple(np.zeros(0 if blocks is None else blocks.count) for blocks in inputs)
    names = [leaf.name for leaf in problem.X.leaves]
    engine = SketchBackend(sketch)

    def evaluate(t: Arrays) -> Arrays:
        return sketch.values(problem.evaluate(sketch.point(t)))

    space, origin = Space.at(engine, origins, names)
    return replace(
        problem,
        backend=engine,
        function=evaluate,
        evaluate=evaluate,
        x=origins,
        X=space,
        origin=origin,
        widened=None,
        block_sums=sketch,
    )


def _powers_of_two(lengths: Vector) -> Vector:
    """Returns the powers of two next to `lengths`, with which products are exact."""
    return np.asarray(2.0 ** np.round(np.log2(lengths)))


FUNCTIONS = ("broadcast_to", "concat", "conj", "real", "reshape", "sum", "zeros_like")
"""The functions that `Blocks` takes from the Array API namespace of an engine, which may
lack some."""

Masks = dict[int, NDArray[np.bool_]]
"""Maps the index of an input to a mask of its entries."""


def fits_block_sums(problem: Problem, base: Base) -> bool:
    """Returns whether the problem is large, in double precision, and has nothing about it that sums
    would hide.

    Second orders, sets, bounds, narrow dtypes and values that are not finite are left to the whole
    check.
    """
    leaves = (*problem.X.leaves, *base.whole.leaves)
    return bool(
        problem.X.size + base.whole.size >= limits().large
        and not (problem.modes_taken or problem.constraints)
        and problem.bounds is None
        and all(leaf.double and leaf.size and leaf.info.layout in DENSE for leaf in leaves)
        and problem.finite
        and base.omitted is None
        and np.all(np.isfinite(base.values))
        and not _looks_narrow(base)
        and all(hasattr(problem.backend.xp, name) for name in FUNCTIONS)
    )


def _looks_narrow(base: Base) -> bool:
    """Returns whether the values of an output look as if they were rounded to half their digits. A
    sum of rounded values does not lie on their lattice any more, so block sums could not see the
    narrower dtype.
    """
    for part in base.whole.slices:
        some = base.values[part][:: max(1, (part.stop - part.start) // QUANTILE_ENTRIES)]
        rounded = some.astype(np.float32)
        if np.array_equal(some, rounded):
            return True
    return False


def compare_block_sums(
    problem: Problem, base: Base, modes: str, seed: int
) -> dict[str, Tally] | None:
    """Returns the tallies of `modes` (the letters R and F) where all agrees; `None` where anything
    does not.

    What is too small to show goes into sums of its own, up to `SEPARATIONS` times.
    """
    compared = _BlockSumComparison(problem, base, modes)
    # what the function raises here is met again by the whole check, where that asks it the same
    full = problem.backend.environment.memory_errors
    with Catching(UnfitError, UnstableOutputError, NotSupportedError, *full) as caught:
        if "F" in modes:
            compared.doubt(seed)
        too_small = compared.table(seed, None)
        for depth in range(1, SEPARATIONS + 1):
            if not too_small:
                break
            too_small = compared.table(seed + depth, too_small)
    return compared.tallies if caught.error is None else None


@dataclass
class _BlockSumComparison:
    """Compares a problem by sums of blocks, and keeps what was compared so far."""

    problem: Problem
    base: Base
    modes: str
    tallies: dict[str, Tally] = field(default_factory=dict)
    doubted: Masks = field(default_factory=dict)
    """The outputs whose tangents two evaluations have not settled, by input."""

    def doubt(self, seed: int) -> None:
        """Compares every tangent once by two evaluations, as it would be without sums."""
        problem, base = self.problem, self.base
        probes = Probes(problem.X, base.Y, False, seed)
        tolerance, forward = Tolerance(base.coarsest_eps), Forward(problem)
        columns = Columns(Differences(problem, base), probes, tolerance)
        table = Table(columns, None, forward)
        block = ColumnBlock(slice(0, problem.X.size))
        for tangent in probes.tangents(problem.origin, block.columns):
            ((_, comparison, _),) = table.from_two_evaluations(Item(tangent, block)).compared
            entries = comparison.doubtful(projected=True) | comparison.undecided
            self.doubted[tangent.leaves[0]] = np.concatenate(
                [
                    np.reshape(entries[part], (leaf.entries, -1)).any(axis=1)
                    for leaf, part in zip(base.Y.leaves, base.Y.slices, strict=True)
                ]
            )

    def table(self, seed: int, only: Masks | None) -> Masks:
        """Compares all entries, or `only` some, and returns which of them did not show.

        Raises `UnfitError` where anything disagrees, or where the comparison of all leaves anything
        open.
        """
        top = sketch_of(self.problem, self.base, seed, only)
        sketch, base = top.block_sums, observe(top)
        assert isinstance(sketch, Sketch)
        if only is None:
            sketch.doubted = self.doubted
        probes = Probes(top.X, base.Y, False, seed)
        reverse = Reverse(top) if "R" in self.modes else None
        known = None
        if reverse is not None and probes.rows == 1:
            known = reverse.row(base, probes.cotangent)
        forward = Forward(top) if "F" in self.modes else None
        tallies: dict[str, Tally] = {}
        tolerance = Tolerance(self.base.coarsest_eps)
        columns, record = Columns(Differences(top, base), probes, tolerance), Record(tallies)
        table = Table(columns, reverse, forward, known, record=record)
        for _ in table.fill():
            pass  # sums are not compared by sums once more
        wrong = any(tally.failed for tally in tallies.values())
        if (
            wrong
            or sketch.uncompared
            or record.significant
            or table.carried_dtype is not None
            or record.undecidable
        ):
            raise UnfitError("the sums disagree")
        unclear = any(
            tally.undecided or tally.kinks or tally.open for tally in tallies.values()
        ) or any(mode not in tallies or not tallies[mode].nonzero for mode in self.modes)
        # Zeros may be right, or lie below the rounding of f.
        unclear |= "R" in tallies and tallies["R"].nonzero < tallies["R"].compared
        if only is None:
            if unclear:
                raise UnfitError("the sums leave something open")
            self.tallies = tallies
        # What a comparison of some entries leaves open makes nothing worse.
        elif unclear:
            return {}
        else:
            self._add(tallies)
        return dict(sketch.undetectable)

    def _add(self, tallies: dict[str, Tally]) -> None:
        """Adds entries that were weighed before, and show now."""
        for mode, tally in tallies.items():
            whole = self.tallies[mode]
            whole.compared += tally.compared
            whole.nonzero += tally.nonzero
            whole.resolution = max(whole.resolution, tally.resolution)
            pairs = zip(whole.inputs.shown, tally.inputs.shown, strict=True)
            whole.inputs.shown = [sum(pair) for pair in pairs]
