"""This module draws two pictures of a check that did not pass, as SVG without a script.

They are made from a report as plain data, so that a page can draw them from a file. Only numbers
stand in them. Their colours are those of the text around them, and a page may style the classes.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

RED = "#b3261e"
LEVELS = (1e-8, 1e-6, 1e-4, 1e-2, 1.0)
"""The relative errors at which the cells of a heat map get darker. The values are ours."""
CELL = 16
"""The width of a cell of a heat map."""
FEWEST_STEPS = 3
"""Fewer steps than this show nothing about an error."""


MOST_MAPS = 4
"""The number of heat maps of one report, for the pairs that are off by most."""


def pictures(
    worst: Mapping[str, Any] | None, pairs: Sequence[tuple[str, Mapping[str, Any]]]
) -> str:
    """Returns the pictures of a check as HTML: the error of its worst entry by the step, and heat
    maps of the blocks of the Jacobian that are off by most. Both come as `Report.to_dict` has them,
    the pairs with the name of the point.
    """
    drawn = []
    if worst is not None and (steps := error_by_step(worst)):
        words = "how far difference quotients are off from the reference, by the step"
        name = f"d {worst['of']} / d {worst['wrt']}: {words}"
        drawn.append(_figures("Error against step", [(name, steps)]))
    maps = sorted(
        ((at, one) for at, one in pairs if one.get("errors")),
        key=lambda pair: -float(pair[1]["relative"]),
    )
    if maps:
        named = []
        for at, one in maps[:MOST_MAPS]:
            parts = [f"d {one['output']} / d {one['input']}", one["mode"], one["way"], at]
            name = f"{', '.join(filter(None, parts))}: outputs downwards, inputs across"
            named.append((name, heat_map(one["errors"])))
        drawn.append(_figures("Relative error by entry", [*named, ("", legend())]))
    return "".join(drawn)


def _figures(title: str, drawn: Sequence[tuple[str, str]]) -> str:
    figures = [
        f"<figure>{picture}<figcaption><bdi>{html.escape(text)}</bdi></figcaption></figure>"
        for text, picture in drawn
    ]
    return f'<h2>{title}</h2><div class="pictures">{"".join(figures)}</div>'


def heat_map(errors: Sequence[Sequence[Any]]) -> str:
    """Returns the relative errors of a block of the Jacobian, with rows for outputs and columns for
    inputs: the darker, the larger. Cells of entries that were not compared one by one are grey.
    """
    cells = dict[int, list[str]]()
    for i, row in enumerate(errors):
        start = 0
        levels = [_level(error) for error in row]
        for j in range(1, len(levels) + 1):
            if j == len(levels) or levels[j] != levels[start]:
                x, y, wide = CELL * start, CELL * i, CELL * (j - start)
                cells.setdefault(levels[start], []).append(f"M{x} {y}h{wide}v{CELL}h-{wide}z")
                start = j
    width, height = CELL * len(errors[0]), CELL * len(errors)
    grid = "".join(f"M0 {CELL * i}h{width}" for i in range(len(errors) + 1))
    grid += "".join(f"M{CELL * j} 0v{height}" for j in range(len(errors[0]) + 1))
    paths = [
        f'<path class="unknown" fill="currentColor" fill-opacity=".12" d="{"".join(parts)}"/>'
        if level < 0
        else f'<path class="heat" fill="{RED}" fill-opacity="{level / len(LEVELS):.2g}" '
        f'd="{"".join(parts)}"/>'
        for level, parts in sorted(cells.items())
        if level
    ]
    lines = f'<path stroke="currentColor" stroke-opacity=".25" fill="none" d="{grid}"/>'
    return _svg(-1, -1, width + 2, height + 2, "relative errors by entry", [*paths, lines])


def _level(error: Any) -> int:
    """Returns how many of `LEVELS` an error has reached; -1 where there is none."""
    return -1 if error is None else sum(float(error) >= level for level in LEVELS)


def legend() -> str:
    """Returns the colours of heat maps with the relative errors that they stand for."""
    parts = []
    for k, level in enumerate(LEVELS):
        x = 62 * k
        parts.append(
            f'<rect class="heat" x="{x}" y="1" width="{CELL}" height="{CELL}" fill="{RED}" '
            f'fill-opacity="{(k + 1) / len(LEVELS):.2g}"/>'
            f'<text x="{x + CELL + 4}" y="12">≥ {_power(math.log10(level))}</text>'
        )
    return _svg(0, 0, 62 * len(LEVELS), CELL + 2, "legend", parts)


def error_by_step(entry: Mapping[str, Any]) -> str:
    """Returns the distance of the difference quotients of an entry from its reference by the step,
    in powers of ten, and that of the automatic value as a line; nothing where there are few steps.

    Points that fall with the step and rise again are truncation and rounding, as those of any
    smooth function. An automatic value is wrong where its line lies far above the lowest of them.
    """
    reference, automatic = float(entry["reference"]), float(entry["automatic"])
    steps = [(float(h), abs(float(slope) - reference)) for h, slope in entry.get("steps", ())]
    steps = [(h, gap) for h, gap in steps if h > 0 and math.isfinite(gap)]
    off = abs(automatic - reference)
    known = math.isfinite(off) and off > 0
    if len({h for h, _ in steps}) < FEWEST_STEPS or not (known or any(gap for _, gap in steps)):
        return ""
    # A gap of nothing has no logarithm, and is drawn below all others.
    least = min(gap for gap in (*(gap for _, gap in steps), off if known else 0.0) if gap > 0)
    points = [(math.log10(h), math.log10(gap or least / 10)) for h, gap in steps]
    heights = [y for _, y in points] + [math.log10(off)] * known
    across, up = _Axis([x for x, _ in points], 46, 340), _Axis(heights, 150, 12)
    parts = [*_axes(across, up)]
    parts.append(
        f'<path class="points" stroke="currentColor" stroke-width="6" stroke-linecap="round" '
        f'fill="none" d="{"".join(f"M{across(x)} {up(y)}h0" for x, y in points)}"/>'
    )
    if known:
        y = up(math.log10(off))
        parts.append(
            f'<path class="automatic" stroke="{RED}" stroke-width="2" d="M46 {y}H340"/>'
            f'<text class="automatic" fill="{RED}" x="340" y="{y - 5}" text-anchor="end">'
            f"automatic: off by {off:.2g}</text>"
        )
    return _svg(0, -8, 352, 198, "error against step", parts)


class _Axis:
    """A logarithmic axis from one place of a picture to another."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        """The axis has room for all values, which are logarithms, and for whole powers of ten."""
        self.low, self.high = math.floor(min(values)), math.ceil(max(values))
        self.high = max(self.high, self.low + 1)
        self.start, self.end = start, end

    def __call__(self, value: float) -> float:
        """Returns the place of a value."""
        part = (value - self.low) / (self.high - self.low)
        return round(self.start + part * (self.end - self.start), 1)

    def ticks(self) -> range:
        """Returns the powers of ten that are named: a handful."""
        return range(self.low, self.high + 1, max(1, -(-(self.high - self.low) // 5)))


def _axes(across: _Axis, up: _Axis) -> Iterator[str]:
    grid = "".join(f"M46 {up(k)}H340" for k in up.ticks())
    grid += "".join(f"M{across(k)} 12V150" for k in across.ticks())
    yield f'<path stroke="currentColor" stroke-opacity=".18" fill="none" d="{grid}"/>'
    for k in up.ticks():
        yield f'<text x="40" y="{up(k) + 4}" text-anchor="end">{_power(k)}</text>'
    for k in across.ticks():
        yield f'<text x="{across(k)}" y="166" text-anchor="middle">{_power(k)}</text>'
    yield '<text x="193" y="184" text-anchor="middle">step</text>'


def _power(k: float) -> str:
    """Returns a power of ten in words."""
    digits = str(round(k)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return "1" if k == 0 else f"10{digits}"


def _svg(x: float, y: float, width: float, height: float, name: str, parts: Sequence[str]) -> str:
    return (
        f'<svg role="img" aria-label="{name}" viewBox="{x} {y} {width} {height}" width="{width}" '
        f'height="{height}" fill="currentColor" font-size="11">{"".join(parts)}</svg>'
    )
