"""The numbers of two engines for one question: equal to rounding, or apart, and how.

Two right implementations differ by rounding, and by what conditioning makes of it. Both are
measured: all entries of x are moved by units of rounding, and so are the numbers. What lies beyond
is taken again at points around x, where rounding is another one and an error the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from adjudge.crossengine import Engine, Numbers, Question
from adjudge.deviation import UNITS, allowed, both_finite, fixed, rms, steady
from adjudge.differences import lowest_bit, norm, scale
from adjudge.paired import SPREADS, probes
from adjudge.probes import signed
from adjudge.spaces import Leaf, Space, Vector

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
            along = signed(np.random.default_rng([seed, 59, len(more.leaves)]), more.size)
            origin = np.concatenate([x, along])
            name, image = ("grad_outputs", "grad") if word[1] == "R" else ("tangents", "tangent")
            named = [replace(leaf, name=f"{name}[{j}]") for j, leaf in enumerate(more.leaves)]
            domain = Space((*X.leaves, *named))
            codomain = _images(X if word[1] == "R" else Y, image)
        question = Question(word, domain, codomain, origin, along)
        seat = replace(first.problem, X=domain, origin=origin)
        drawn = probes(seat, question.by, word[0], random) if question.by.size else []
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
    """Points around x at `DISTANCES`, farther ones at `SPREADS`, and at `FACTORS` times x."""
    x = question.origin
    random = np.random.default_rng([seed, 67])
    lengths = np.concatenate(
        [np.where(x[part] != 0, np.abs(x[part]), scale(x[part])) for part in question.domain.slices]
        or [x]
    )
    finest = 4 * _eps(question.domain)
    distances = [2.0**-d for d in DISTANCES] + list(SPREADS)
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
                WRONG * allowed(u, _size(space, one.rows[0, p], two.rows[0, p]), motion[p], space)
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
        bound = bound + UNITS * _coarse(u, first, second)
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
    sides = [side.rows[:, :, suspects] for side in (first, second)]
    low, high = (side[:count] for side in sides)
    part = _fixed(*(side[count : count + len(SPREADS)] for side in sides))
    e, _ = both_finite(low, high)
    held = np.all(np.isfinite(low) & np.isfinite(high), axis=1)
    number = np.sum(held, axis=0)
    typical = np.sqrt(np.sum(e**2 * held[:, None], axis=(0, 1)) / np.maximum(number, 1) / len(e[0]))
    stays = part | _fixed(low, high) | ((number >= ENOUGH) & steady(e, 4.0, held))
    return stays & (typical > bound), part


def _fixed(low: Array, high: Array) -> NDArray[np.bool_]:
    """Where low and high differ by one part of their size, at all points; but where one is zero."""
    e, g = both_finite(low, high)
    held = np.all(np.isfinite(low) & np.isfinite(high), axis=1)
    unknown = ~held[:, None]
    zero = [np.all((side == 0) | unknown, axis=(0, 1)) for side in (low, high)]
    enough = np.count_nonzero(held, axis=0) >= ENOUGH
    return np.asarray(enough & fixed(e, g, held) & ~zero[0] & ~zero[1])


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
    off, f = both_finite(first.values, second.values)
    coarse = float(norm(_coarse(u, first, second)))
    return max(UNITS * (u * float(rms(norm(f))) + coarse), WRONG * float(norm(off[0])))


def _coarse(u: float, first: Numbers, second: Numbers) -> Vector:
    """The spacing of the values of f, where that is coarser than rounding: on a lattice lie the
    differences of larger numbers. Seen at the far points, between which they move.
    """
    found = [np.zeros(first.values.shape[1])]
    for side in (first, second):
        values = np.where(np.isfinite(side.values), side.values, 0.0)[len(DISTANCES) :]
        unit = np.min(lowest_bit(values), axis=0)
        ordered = np.sort(values, axis=0)
        moves = np.count_nonzero(np.diff(ordered, axis=0), axis=0) >= ENOUGH
        coarse = moves & (unit > 8 * u * np.max(np.abs(values), axis=0)) & (unit <= COARSE * u)
        found.append(np.where(coarse, unit, 0.0))
    return np.asarray(np.max(found, axis=0))
