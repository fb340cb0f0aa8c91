"""Error of differences against the step, drawn: `python docs/pictures/error_against_step.py`.

The differences are those of the library, the pictures plain SVG. A dot is how far an estimate is
off; the cap of its whisker how far it may be, for all that its error bar says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from adjudge.estimate.stencils import Sample, central_difference, ladder, ladder_steps
from adjudge.floats import relative_step

X = 1.0
"""Where derivatives are taken: of scale 1, so that steps are relative ones."""
FOLD = X - 2.0**-9
"""Where the kinked function has its kink."""
FLOOR = 1e-17
"""Errors below this are drawn here: zero has no logarithm."""

Function = Callable[[np.floating], np.floating]


def smooth(x: np.floating) -> np.floating:
    """`sin(x) exp(x)`, in the dtype of x."""
    return np.sin(x) * np.exp(x)


def rounded(x: np.floating) -> np.floating:
    """The same through float32, as code with a narrow buffer inside returns it."""
    return np.float64(np.float32(smooth(x)))


def kinked(x: np.floating) -> np.floating:
    """The same with a kink at `FOLD`."""
    return smooth(x) + abs(x - np.float64(FOLD))


SLOPE = float((np.sin(X) + np.cos(X)) * np.exp(X))
"""Derivative of the smooth function at `X`, and of the rounded one for all that is meant by it."""


@dataclass(frozen=True)
class Point:
    """A step, how far the estimate is off, and its error bar, relative to the derivative."""

    step: float
    error: float
    bar: float | None = None


@dataclass(frozen=True)
class Series:
    """Points of one way to estimate."""

    name: str
    colour: str
    points: list[Point]


@dataclass(frozen=True)
class Figure:
    """What is drawn into one file; `marks` are steps with a word on them."""

    name: str
    title: str
    series: list[Series]
    marks: dict[str, float] = field(default_factory=dict)


def sample(f: Function, dtype: type[np.floating], h: float) -> Sample:
    """Both neighbours at `h`, a power of two that the dtype resolves at `X`."""
    plus, minus = (np.array([float(f(dtype(X + t)))]) for t in (h, -h))
    return Sample(h, plus, minus)


def steps_of(dtype: type[np.floating], every: int = 1) -> list[float]:
    """Powers of two, coarsest first, down to some units of rounding."""
    finest = 42 if dtype is np.float64 else 19
    return [2.0**-k for k in range(1, finest, every)]


def plain(f: Function, dtype: type[np.floating], slope: float) -> list[Point]:
    """One central difference a step."""
    eps = float(np.finfo(dtype).eps)
    values = ((h, central_difference(sample(f, dtype, h), eps).value[0]) for h in steps_of(dtype))
    return [Point(h, float(abs(value - slope) / slope)) for h, value in values]


def climbed(f: Function, dtype: type[np.floating], slope: float, noise: float = 0.0) -> list[Point]:
    """One ladder around every second step."""
    eps, at_x = float(np.finfo(dtype).eps), np.array([float(f(dtype(X)))])
    finest, points = steps_of(dtype)[-1], []
    for h in steps_of(dtype, 2):
        steps = [step for step in ladder_steps(h, h, eps) if step >= finest]
        if len(steps) >= 3:
            found = ladder([sample(f, dtype, step) for step in steps], eps, at_x, noise)
            error, bar = abs(found.value[0] - slope) / slope, found.error[0] / slope
            points.append(Point(h, float(error), float(bar)))
    return points


def one_sided(f: Function, slope: float, side: int) -> list[Point]:
    """The slope to one side a step."""
    values = ((h, (f(np.float64(X + side * h)) - f(np.float64(X))) / (side * h))
              for h in steps_of(np.float64))  # fmt: skip
    return [Point(h, float(abs(value - slope) / slope)) for h, value in values]


def noise_of(f: Function, h: float) -> float:
    """Twice the scatter of f about a polynomial through ten uneven points up to `h`: what its
    values are off by.
    """
    t = np.array([16, 18, 19, 21, 24, 25, 28, 29, 31, 32]) / 32
    values = np.array([float(f(np.float64(X + h * part))) for part in t])
    rest = values - np.polynomial.Polynomial.fit(t, values, 4)(t)
    return float(2 * np.sqrt(np.sum(rest**2) / (len(t) - 5)))


def figures() -> list[Figure]:
    """All three, measured now."""
    wide, narrow = (relative_step(float(np.finfo(t).eps)) for t in (np.float64, np.float32))
    blue, orange, green, red = "#3b82c4", "#d07a1c", "#3f9b62", "#c65757"
    right, kink_slope = partial(one_sided, kinked, SLOPE + 1), SLOPE + 1
    return [
        Figure("smooth", "A smooth function: sin(x) exp(x) at x = 1", [
            Series("central difference, float64", blue, plain(smooth, np.float64, SLOPE)),
            Series("ladder, float64", green, climbed(smooth, np.float64, SLOPE)),
            Series("central difference, float32", orange, plain(smooth, np.float32, SLOPE)),
            Series("ladder, float32", red, climbed(smooth, np.float32, SLOPE)),
        ], {"step taken first, float64": wide, "float32": narrow}),
        Figure("noisy", "A noisy function: float64 code with a float32 value inside", [
            Series("central difference", blue, plain(rounded, np.float64, SLOPE)),
            Series("ladder that assumes the rounding of float64", orange,
                   climbed(rounded, np.float64, SLOPE)),
            Series("ladder that knows the measured noise", green,
                   climbed(rounded, np.float64, SLOPE, noise_of(rounded, wide))),
        ], {"step taken first": wide}),
        Figure("kinked", "A kink close to x: sin(x) exp(x) + |x - a|, a = x - 2⁻⁹", [
            Series("central difference", blue, plain(kinked, np.float64, kink_slope)),
            Series("slope to the left, across the kink", orange, right(-1)),
            Series("slope to the right", red, right(1)),
            Series("ladder", green, climbed(kinked, np.float64, kink_slope)),
        ], {"step taken first": wide, "distance of the kink": X - FOLD}),
    ]  # fmt: skip


WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 64, 26, 34, 44
DECADES_X, DECADES_Y = (-13, 0), (-17, 1)
GREY = "#7b7b7b"  # legible on white and on black


def across(step: float) -> float:
    """Where a step is drawn."""
    low, high = DECADES_X
    return LEFT + (np.log10(step) - low) / (high - low) * (WIDTH - LEFT - RIGHT)


def down(error: float) -> float:
    """Where an error is drawn; those beyond the axis at its ends."""
    low, high = DECADES_Y
    part = (np.clip(np.log10(max(error, FLOOR)), low, high) - low) / (high - low)
    return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)


def text(x: float, y: float, words: str, more: str = "") -> str:
    """A label."""
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{words}</text>'


def line(x1: float, y1: float, x2: float, y2: float, more: str = "") -> str:
    """A straight line."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {more}/>'


def axes(figure: Figure) -> Iterable[str]:
    """The frame, ticks, grid, marked steps and words."""
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    faint = 'stroke-opacity="0.25"'
    for k in range(DECADES_X[0], DECADES_X[1] + 1):
        yield line(across(10.0**k), TOP, across(10.0**k), bottom, faint)
        yield text(across(10.0**k), bottom + 18, f"1e{k}", 'text-anchor="middle"')
    for k in range(DECADES_Y[0], DECADES_Y[1] + 1, 2):
        yield line(LEFT, down(10.0**k), right, down(10.0**k), faint)
        yield text(LEFT - 6, down(10.0**k) + 4, f"1e{k}", 'text-anchor="end"')
    yield text(LEFT, 20, figure.title, 'font-size="15"')
    yield text((LEFT + right) / 2, HEIGHT - 8, "relative step", 'text-anchor="middle"')
    middle = (TOP + bottom) / 2
    turned = f'text-anchor="middle" transform="rotate(-90 16 {middle:.0f})"'
    yield text(16, middle, "relative error of the derivative", turned)
    for word, step in figure.marks.items():
        yield line(across(step), TOP, across(step), bottom, 'stroke-dasharray="5 4"')
        yield text(across(step) + 4, bottom - 6, word)


def drawn(series: Series, aside: float) -> Iterable[str]:
    """A line through the points, or whiskers where they have error bars, moved `aside`."""
    ink = f'stroke="{series.colour}"'
    if series.points[0].bar is None:
        path = " ".join(f"{across(p.step):.1f},{down(p.error):.1f}" for p in series.points)
        yield f'<polyline points="{path}" fill="none" stroke-width="1.5" {ink}/>'
    for p in series.points:
        x, numbers = across(p.step) + aside, f'data-step="{p.step:.6g}" data-error="{p.error:.6g}"'
        if p.bar is not None:
            numbers += f' data-bar="{p.bar:.6g}"'
            yield line(x, down(p.error), x, down(p.bar), ink)
            yield line(x - 4, down(p.bar), x + 4, down(p.bar), f'stroke-width="2" {ink}')
        size = 2 if p.bar is None else 3.5
        fill = f'fill="{series.colour}" stroke="none"'
        yield f'<circle cx="{x:.1f}" cy="{down(p.error):.1f}" r="{size}" {fill} {numbers}/>'


def svg(figure: Figure) -> str:
    """The picture, without a background of its own."""
    parts = list(axes(figure))
    aside = 0.0
    for k, series in enumerate(figure.series):
        y = HEIGHT - BOTTOM - 24 - 17 * (len(figure.series) - k)
        parts.append(f'<g data-series="{series.name}">')
        parts += [*drawn(series, aside), "</g>"]
        parts.append(line(LEFT + 10, y, LEFT + 30, y, f'stroke="{series.colour}" stroke-width="3"'))
        parts.append(text(LEFT + 36, y + 4, series.name))
        aside += 4.0 * (series.points[0].bar is not None)
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="12" role="img">\n<title>{figure.title}</title>\n'
        f'<g stroke="{GREY}"><style>text {{ fill: {GREY}; stroke: none }}</style>\n'
    )
    return opening + "\n".join(parts) + "\n</g>\n</svg>\n"


def main() -> None:
    """Writes every picture beside this file."""
    for figure in figures():
        path = Path(__file__).with_name(f"{figure.name}.svg")
        path.write_text(svg(figure), encoding="utf-8")


if __name__ == "__main__":
    main()
