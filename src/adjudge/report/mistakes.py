"""This module puts the likely mistake behind a wrong derivative into one sentence, where the
numbers bear it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import lgamma, log, log10, prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adjudge.estimate import column
from adjudge.floats import Vector, norm
from adjudge.jacobian import Failure, Table
from adjudge.problem import random_cotangent
from adjudge.report.mistake_patterns import (
    EVIDENCE,
    Array,
    DerivativePair,
    Mask,
    block_patterns,
    conjugations,
    evidence,
    most_evident,
    reorderings,
    sums,
    transpositions,
    wrong_phase,
)

PLACE = 2.0
"""A place is named from this many decades on: wrong entries strewn at random fill it less than once
in a hundred times."""


def diagnose(
    automatic: Vector,
    reference: Vector,
    error: Vector,
    rtol: float,
    *,
    input_shape: Sequence[int],
    complex_input: bool = False,
    x: Vector | None = None,
    output_shape: Sequence[int] | None = None,
    other: Vector | None = None,
) -> str | None:
    """Says what is wrong with the gradient `J* w` of one input leaf, or None if the numbers do not
    say.

    A missing conjugate shows most clearly with a `w` whose imaginary parts are zero.

    Args:
        automatic: The real coordinates of `J* w` by the engine, shape (n,).
        reference: `<w, J e_k>` by differences, shape (n,); not finite where it is not known.
        error: How far off `reference` may be, shape (n,).
        rtol: What may differ besides, relative to the entry.
        input_shape: The shape of the leaf, with n entries; n / 2 of a complex leaf.
        complex_input: Whether the leaf is complex.
        x: The real coordinates of the leaf itself, shape (n,).
        output_shape: The shape of the leaf that `w` belongs to, whose axes may be found in factors.
        other: `J* w'` by the engine, shape (n,), with a `w'` far from `w`, such as `-2 w`.
    """
    shape = (*input_shape, 1, 2 if complex_input else 1)
    pair = DerivativePair(
        automatic.reshape(shape), reference.reshape(shape), error.reshape(shape), rtol
    )
    with np.errstate(all="ignore"):
        if not pair.wrong.any():
            return None
        if other is not None and _ignores_cotangent(pair, other.reshape(shape)):
            return "the automatic derivative is the same for two cotangents: they are ignored"
        return _sentence(pair, None if complex_input else x, _sizes(pair, output_shape or ()))


def diagnose_block(
    automatic: Array,
    reference: Array,
    error: Array,
    rtol: float,
    *,
    input_shape: Sequence[int],
    output_shape: Sequence[int],
    complex_input: bool = False,
    complex_output: bool = False,
    x: Vector | None = None,
) -> str | None:
    """Says what is wrong with the Jacobian block of one output leaf and one input leaf, or None.

    The first three arguments have shape (m, n), with the real coordinates of the output by those of
    the input: row i of `automatic` is `J* e_i`, or column k is `J e_k`. All else is as in
    `diagnose`.
    """
    count = len(output_shape)
    shape = (*output_shape, 1 + complex_output, *input_shape, 1 + complex_input)
    a, r, e = (
        np.moveaxis(values.reshape(shape), count, -2) for values in (automatic, reference, error)
    )
    pair = DerivativePair(a, r, e, rtol, count, block=True)
    with np.errstate(all="ignore"):
        if not pair.wrong.any():
            return None
        return _sentence(pair, None if complex_input else x, _sizes(pair, ()))


def _sentence(pair: DerivativePair, x: Vector | None, sizes: dict[int, str]) -> str | None:
    """Returns the sentence with the most specific predicate that the numbers bear out; `None`
    without any.
    """
    predicate = _only_entry(pair, x) or _everywhere(pair, sizes)
    families = (
        conjugations,
        transpositions,
        reorderings,
        sums,
        *([block_patterns] if pair.block else []),
    )
    for family in families:
        predicate = predicate or most_evident(pair, family(pair))
    predicate = predicate or wrong_phase(pair) or _somewhere(pair, x, sizes)
    return None if predicate is None else f"the automatic derivative {predicate}"


def _ignores_cotangent(pair: DerivativePair, other: Array) -> bool:
    """Returns whether the derivative is the same for two cotangents that are far apart."""
    a = pair.automatic
    margin = pair.rtol * np.maximum(np.abs(a), np.abs(other))
    return bool((np.abs(a - other) <= margin).all() and evidence(a, margin).sum() >= EVIDENCE)


# -- what the wrong entries are


class Description(NamedTuple):
    """What the wrong entries are: a verb, and what follows the place."""

    verb: str
    hint: str = ""


def _description(pair: DerivativePair, mask: Mask, sizes: dict[int, str]) -> Description | None:
    """Returns what the automatic derivative is, all over `mask`; `None` if no single thing."""
    inside = mask[..., None, None] & pair.known
    a, r, e = (part[inside] for part in (pair.automatic, pair.reference, pair.error))
    if not np.isfinite(a).all():
        return None if np.isfinite(a).any() else Description("is not finite")
    if not a.any():
        met = pair.evidence(np.zeros_like, mask).sum() >= EVIDENCE
        return Description("is zero", ", where the reference is not") if met else None
    if (pair.zero | ~mask).all():
        if evidence(a, e + pair.rtol * np.abs(a)).sum() < EVIDENCE:
            return None
        still = not (r.any() or e.any())
        return Description(
            "is not zero", f", where {'f does not move' if still else 'the reference is'}"
        )
    return _factor(pair, mask, sizes)


def _factor(pair: DerivativePair, mask: Mask, sizes: dict[int, str]) -> Description | None:
    """Returns the factor between the automatic derivative and the reference within `mask`, if there
    is one.
    """
    inside = mask[..., None, None] & pair.known
    a, r = pair.automatic[inside], pair.reference[inside]
    margin = pair.allowed(pair.reference, pair.error)[inside]
    margin = np.maximum(margin, np.finfo(np.float64).tiny ** 0.25)
    fitted = float((a * r / margin**2).sum() / (r * r / margin**2).sum())
    # This is what errors of r, as large as they may be, make of the fit.
    slack = abs(fitted) * float((abs(r) / margin).sum() / (r * r / margin**2).sum())
    named = _named_factors(sizes)
    fits = [
        what
        for factor, what in named.items()
        if pair.evidence(partial(np.multiply, factor), mask).sum()
        >= EVIDENCE + (0.0 if factor in {-1.0, 2.0, 0.5} else log10(len(named)))
    ]
    if len(fits) == 1:
        return fits[0]
    met = pair.evidence(partial(np.multiply, fitted), mask, slack)
    # One entry went into the fit, and is no evidence for it.
    if met.size and met.sum() - met.max() >= EVIDENCE:
        return Description(f"is {_number(fitted)} times the reference")
    return None


def _named_factors(sizes: dict[int, str]) -> dict[float, Description]:
    """Returns the factors that have a meaning, such as the size of an axis, with their
    descriptions.
    """
    more, less = "a sum for a mean?", "a mean for a sum, or no sum over a broadcast axis?"
    named = {-1.0: Description("has the opposite sign")}
    for size, name in {2: "", **sizes}.items():
        of = f" ({size}: {name})" if name else ""
        half = ("a missing factor 1/2?", "a missing factor 2?") if size == 2 else ("", "")
        up, down = (
            ": " + " ".join(filter(None, (special, general if name else "")))
            for special, general in zip(half, (more, less), strict=True)
        )
        named[float(size)] = Description(f"is {size} times the reference", up + of)
        named[1 / size] = Description(f"is 1/{size} times the reference", down + of)
    return named


def _sizes(pair: DerivativePair, output_shape: Sequence[int]) -> dict[int, str]:
    """Returns the sizes of axes that a mean or a sum may have run over, with their names."""
    found: dict[int, str] = {}
    names = [(f"axis {k} of the output", size) for k, size in enumerate(output_shape)]
    names += [("the size of the output", prod(output_shape or pair.shape[: pair.outputs]))]
    names += [(pair.axis(k), size) for k, size in enumerate(pair.shape)]
    names += [("the size of the input", prod(pair.shape[pair.outputs :]))]
    for name, size in names:
        if size > 1:
            found.setdefault(size, name if name.startswith("the") else f"the size of {name}")
    return found


def _number(c: float) -> str:
    """Returns a factor with as many digits as tell it from 1."""
    digits = next((d for d in (4, 7, 10) if f"{c:.{d}g}" != "1"), 17)
    return f"{c:.{digits}g}"


# -- where they are


def _only_entry(pair: DerivativePair, x: Vector | None) -> str | None:
    """Returns the predicate about the only wrong entry among others that are right."""
    if np.count_nonzero(pair.wrong) != 1 or np.count_nonzero(pair.informative) == 1:
        return None
    index = tuple(int(k) for k in np.argwhere(pair.wrong)[0])
    a, r = (part[index].reshape(-1) for part in (pair.automatic, pair.reference))
    if a.size > 1:
        ratio = ""
    elif pair.zero[index]:
        ratio = ", where the reference is zero"
    elif np.isfinite(a[0]):
        ratio = f": it is {_number(a[0] / r[0])} times the reference" if a[0] else ": it is zero"
    else:
        ratio = f": it is {a[0]}"
    at = str(list(index[pair.outputs :]))
    if pair.block:
        at = f"output {list(index[: pair.outputs])} by input {at}"
    if x is not None and x.reshape(pair.shape[pair.outputs :])[index[pair.outputs :]] == 0:
        at += " (where x is 0)"
    return f"is wrong in 1 of {np.count_nonzero(pair.compared)} entries, at {at}{ratio}"


def _everywhere(pair: DerivativePair, sizes: dict[int, str]) -> str | None:
    """Returns the predicate that holds in all entries."""
    what = _description(pair, pair.compared, sizes)
    if what is None:
        return None
    count, total = np.count_nonzero(pair.informative), np.count_nonzero(pair.compared)
    rest = "" if count == total else " (the others are zero)"
    return f"{what.verb} in {count} of {total} entries{rest}{what.hint}"


def _somewhere(pair: DerivativePair, x: Vector | None, sizes: dict[int, str]) -> str | None:
    """Returns the predicate about wrong entries in a place, or in a number of entries."""
    what = _description(pair, pair.wrong, sizes)
    verb, hint = what or Description("is wrong")
    wrong, count = np.count_nonzero(pair.wrong), np.count_nonzero(pair.informative)
    # The number of ways to choose as many wrong entries, in decades.
    ways = (lgamma(count + 1) - lgamma(wrong + 1) - lgamma(count - wrong + 1)) / log(10)
    if x is not None:
        place = _domain(pair, x)
        if place is not None:
            return f"{verb} exactly where the input is {place}{hint}"
    for place, tried in _boxes(pair):
        if what is not None or ways - tried >= PLACE:
            right = "there" if place.startswith("except") else "elsewhere"
            return f"{verb} {place}{hint}; right {right}"
    if what is None:
        return None
    return f"{verb} in {wrong} of {pair.compared.sum()} entries{hint}; the others are right"


def _domain(pair: DerivativePair, x: Vector) -> str | None:
    """Returns the values of x at which, and only at which, entries are wrong."""
    outputs = tuple(range(pair.outputs))
    wrong, informative = pair.wrong.any(axis=outputs), pair.informative.any(axis=outputs)
    values = x.reshape(wrong.shape)
    n, k = np.count_nonzero(informative), np.count_nonzero(wrong)
    if (lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)) / log(10) < PLACE:
        return None
    for place, inside in (
        ("zero", values == 0),
        ("negative", values < 0),
        ("zero or negative", values <= 0),
        ("positive", values > 0),
    ):
        if np.array_equal(wrong, inside & informative):
            return place
    return None


def _boxes(pair: DerivativePair) -> Iterator[tuple[str, float]]:
    """Yields the boxes that hold all wrong entries and none that is right, with the decades of
    their kind.
    """
    used = [np.unique(k).astype(np.int64) for k in np.argwhere(pair.wrong).T]
    for axis, size in enumerate(pair.shape):
        right = np.setdiff1d(np.arange(size), used[axis])
        if right.size == 1 and size > 2 and _filled(pair, {axis: used[axis]}):
            first = right[0] == 0 and axis in (0, pair.outputs)
            batch = " (only the first element of a batch?)" if first else ""
            tried = 0.0 if first else log10(sum(pair.shape))
            yield f"except at index {right[0]} of {pair.axis(axis)}{batch}", tried
    ranges = {k: u for k, u in enumerate(used) if u.size < pair.shape[k]}
    if not ranges or any(u[-1] - u[0] >= u.size for u in ranges.values()):
        return
    if _filled(pair, ranges):
        names = [
            (f"index {u[0]}" if u.size == 1 else f"indices {u[0]} to {u[-1]}")
            + f" of {pair.axis(k)}"
            for k, u in ranges.items()
        ]
        boxes = prod(pair.shape[k] * (pair.shape[k] + 1) // 2 for k in ranges)
        if len(ranges) == 1 and min(u.size for u in ranges.values()) == 1:
            boxes = sum(pair.shape)
        yield f"at {' and '.join(names)}", log10(boxes)


def _filled(pair: DerivativePair, ranges: dict[int, NDArray[np.int64]]) -> bool:
    """Returns whether every entry within these indices that could be wrong is wrong."""
    inside = np.ones(pair.shape, dtype=bool)
    for axis, indices in ranges.items():
        shape = [-1 if k == axis else 1 for k in range(inside.ndim)]
        inside &= np.isin(np.arange(pair.shape[axis]), indices).reshape(shape)
    return bool((pair.wrong == (inside & pair.informative)).all())


ENTRIES = 64
"""The largest input, in real coordinates, whose gradient is taken entry by entry for this. It takes
twice as many evaluations, and only after a failure."""


def likely_mistake(table: Table, mode: str) -> str | None:
    """Returns what is probably wrong with the gradient that failed first in `mode`, if the numbers
    show it.

    The gradient `J* w` of one input, for a random `w` on one output, is compared with differences
    along every entry of the input.
    """
    failure = table.failures.get(mode)
    reverse, problem, base = table.reverse, table.problem, table.base
    if failure is None or failure.kind != "rows" or reverse is None or table.eps is not None:
        return None
    j, i = failure.tangent.leaf, _output(table, failure)
    leaf, part = problem.X.leaves[j], problem.X.slices[j]
    if not 2 <= leaf.size <= ENTRIES or not reverse.attached[i]:
        return None
    w = np.zeros(base.Y.size)
    w[base.Y.slices[i]] = random_cotangent(base.Y, table.probes.seed + 13)[base.Y.slices[i]]
    if base.Y.leaves[i].complex:
        w[base.Y.slices[i].start + 1 : base.Y.slices[i].stop : 2] = 0.0
    reference, error = np.empty(leaf.size), np.empty(leaf.size)
    units = replace(table.probes, full=True).tangents(problem.origin, part)
    for k, unit in enumerate(units):
        found = column(problem, base, unit, None)
        reference[k] = w @ found.estimate.value[: base.Y.size]
        error[k] = norm(w * found.estimate.error[: base.Y.size])
    return diagnose(
        reverse.row(base, w)[part],
        reference,
        error,
        table.tolerance.relative,
        input_shape=leaf.host_shape,
        complex_input=leaf.complex,
        x=problem.origin[part],
        output_shape=base.Y.leaves[i].host_shape,
        other=reverse.row(base, -2.0 * w)[part],
    )


def _output(table: Table, failure: Failure) -> int:
    """Returns the output leaf of the row that failed."""
    return int(table.base.Y.owner[failure.row]) if table.probes.full else failure.row
