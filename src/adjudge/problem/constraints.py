"""Inputs that live on a set.

This module reads the option `directions=` as charts, and composes a function with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from adjudge.engine import (
    Array,
    Arrays,
    AutodiffBackend,
    ByHand,
    FlatByHand,
    MaybeArrays,
    Pullback,
)
from adjudge.errors import FlagError, InputError, NotSupportedError
from adjudge.floats import Vector
from adjudge.problem.calls import Path, is_at_or_below
from adjudge.problem.charts import SETS, Chart, OffTheSetError, tolerance
from adjudge.problem.domain import Bounds, by_leaf, contains
from adjudge.problem.space import Leaf, Space, largest

Directions: TypeAlias = (
    str | Callable[[Any], Any] | Mapping[Path, str | Callable[[Any], Any]] | None
)
"""The name of a set or a chart, for all checked inputs; or a mapping from paths to such names and
charts."""


@dataclass(frozen=True)
class Charts:
    """The product of the charts of all leaves of X, where a leaf may have none (`None`)."""

    backend: AutodiffBackend
    charts: tuple[Chart | None, ...]
    names: tuple[str, ...]
    constants: tuple[Arrays, ...]
    """The constants of each chart as arrays of the engine. They are made once, since they would
    become part of what an engine traces if they were made during an evaluation."""

    @property
    def descriptions(self) -> tuple[str, ...]:
        """Texts that say which inputs are checked along which set."""
        pairs = zip(self.names, self.charts, strict=True)
        return tuple(f"{name} along {chart.set_name}" for name, chart in pairs if chart is not None)

    @property
    def identity(self) -> bool:
        """Whether every chart is the identity, so that points are their own coordinates."""
        return all(chart is None or chart.value is None for chart in self.charts)

    @property
    def affine(self) -> bool:
        """Whether every chart is affine."""
        return all(chart is None or chart.affine for chart in self.charts)

    def value(self, z: Arrays) -> Arrays:
        """Returns the point with the coordinates `z`."""
        return tuple(
            leaf
            if chart is None or chart.value is None
            else chart.value(self.backend.xp, leaf, *self.constants[j])
            for j, (chart, leaf) in enumerate(zip(self.charts, z, strict=True))
        )

    def push(self, z: Arrays, v: MaybeArrays) -> MaybeArrays:
        """Returns `c'(z) v`. Raises `NotSupportedError` where a chart has no jvp.

        An entry of `v` that is not an array of the shape of its leaf is returned as it is.
        """
        return self._linear("push", z, v)

    def pull(self, z: Arrays, w: MaybeArrays) -> MaybeArrays:
        """Returns `c'(z)* w`. Raises `NotSupportedError` where a chart has no vjp.

        An entry of `w` that is not an array of the shape of its leaf is returned as it is.
        """
        return self._linear("pull", z, w)

    def _linear(self, name: str, z: Arrays, values: MaybeArrays) -> MaybeArrays:
        """Returns `values` after the derivative `name` of the charts, "push" or "pull"."""
        return tuple(
            value
            if chart is None or chart.value is None or not self._like(leaf, value)
            else self._rule(chart, name)(self.backend.xp, leaf, value, *self.constants[j])
            for j, (chart, leaf, value) in enumerate(zip(self.charts, z, values, strict=True))
        )

    def _like(self, leaf: Array, value: Array | None) -> bool:
        """Says whether `value` is an array of the engine with the shape of `leaf`."""
        return (
            value is not None
            and self.backend.owns(value)
            and tuple(value.shape) == tuple(leaf.shape)
        )

    @staticmethod
    def _rule(chart: Chart, name: str) -> Callable[..., Array]:
        """Returns the derivative `name`. Raises `NotSupportedError` where nobody wrote it."""
        rule: Callable[..., Array] | None = getattr(chart, name)
        if rule is None:
            missing = "jvp" if name == "push" else "vjp"
            raise NotSupportedError(
                f"the derivative of {chart.set_name} has no engine, since the function is a ByHand",
                f"give that as a ByHand, too, with {missing}=",
            )
        return rule


class ChartedByHand(FlatByHand):
    """A hand-written function of the coordinates, with its derivatives composed by hand."""

    def __init__(self, inner: FlatByHand, charts: Charts, *, gradient: bool = False) -> None:
        """Composes `inner` with `charts`.

        With `gradient`, `inner` is `(x, w) -> J* w`, and the composition is `(z, w) -> c'* J* w`.
        """
        super().__init__(inner.rule, inner.calls)
        self.inner = inner
        self.charts = charts
        self.gradient = gradient
        self.count = len(charts.charts)

    def _point(self, z: Arrays) -> Arrays:
        """Returns the point with the coordinates `z`; what follows them stays as it is."""
        return (*self.charts.value(z[: self.count]), *z[self.count :])

    def __call__(self, z: Arrays) -> Arrays:
        """Returns `f(c(z))`, or `c'(z)* J* w` where this is a gradient."""
        return self._outputs(z, self.inner(self._point(z)))

    def _outputs(self, z: Arrays, y: MaybeArrays) -> Arrays:
        """Returns the outputs `y` of `inner`, pulled back through the charts for a gradient."""
        return self.charts.pull(z[: self.count], y) if self.gradient else y

    def linearize(self, x: Arrays) -> tuple[Arrays, Pullback] | None:
        """Returns the outputs and the pullback at the coordinates `x`; see `FlatByHand`."""
        linear = self.inner.linearize(self._point(x))
        if linear is None:
            return None
        y, pull = linear
        z = x[: self.count]

        def pullback(w: MaybeArrays) -> MaybeArrays:
            """Returns the vjp of the composition for `w`."""
            g = pull(self.charts.push(z, w) if self.gradient else w)
            return (*self.charts.pull(z, g[: self.count]), *g[self.count :])

        return self._outputs(x, y), pullback

    def push(self, x: Arrays, v: Arrays) -> MaybeArrays | None:
        """Returns the jvp at the coordinates `x` along `v`; see `FlatByHand`."""
        tangents = (*self.charts.push(x[: self.count], v[: self.count]), *v[self.count :])
        pushed = self.inner.push(self._point(x), tangents)
        return None if pushed is None else self._outputs(x, pushed)

    def gradient_map(self, zeros: Callable[[MaybeArrays, Arrays], Arrays]) -> FlatByHand | None:
        """Returns the vjp as a function of coordinates and cotangents; see `FlatByHand`.

        Raises `NotSupportedError` where a chart is not affine, since nobody wrote its second
        derivative.
        """
        inner = self.inner.gradient_map(zeros)
        if inner is None:
            return None
        if self.gradient or not self.charts.affine:
            raise NotSupportedError(
                "the second derivative of a ByHand along a curved set needs the second derivative "
                f"of its chart ({', '.join(self.charts.descriptions)}), which nobody wrote",
                "check the second derivative with bounds=, or of a function that an engine "
                "differentiates",
            )
        return ChartedByHand(inner, self.charts, gradient=True)


def read_directions(
    backend: AutodiffBackend,
    space: Space,
    arrays: Arrays,
    directions: Directions,
    bounds: Bounds,
    rounding: Sequence[float],
) -> Charts:
    """Returns the charts of `arrays`, a point of `space`, that `directions` names.

    The numbers `rounding` are, by leaf, the spacing at 1 of the dtype in which the leaf was given.
    Raises `InputError` for paths and names that do not exist and for points that are not in their
    set, and `FlagError` where a leaf has both bounds and directions.
    """
    charts: list[Chart | None] = [None] * len(space.leaves)
    if isinstance(directions, Mapping) and not directions:
        raise InputError("directions= names no input", "name at least one, or leave it out")
    remedy = (
        "give a path as listed, or one name for all; only floating and complex arrays that are "
        "checked (wrt=) have directions"
    )
    for j, wish in by_leaf(space.leaves, "directions", directions, remedy):
        leaf = space.leaves[j]
        if _bounded(leaf, bounds):
            raise FlagError(
                f"both bounds= and directions= are given for {leaf.name}",
                "leave one of them out: a chart has bounds of its own",
            )
        if charts[j] is not None:
            raise InputError(f"directions= names {leaf.name} twice", "name it once")
        charts[j] = _chart(backend, leaf, arrays[j], wish, rounding[j])
    return charts_of(backend, space, arrays, charts)


def charts_of(
    backend: AutodiffBackend, space: Space, arrays: Arrays, charts: Sequence[Chart | None]
) -> Charts:
    """Returns `charts`, one per leaf, as a product whose constants are arrays like `arrays`."""
    constants = tuple(
        tuple(
            backend.arrays.copy(backend.arrays.from_host(c, like))
            for c in (chart.constants if chart else ())
        )
        for chart, like in zip(charts, arrays, strict=True)
    )
    return Charts(backend, tuple(charts), tuple(leaf.name for leaf in space.leaves), constants)


def _bounded(leaf: Leaf, bounds: Bounds) -> bool:
    """Says whether the option `bounds=` applies to the leaf."""
    if not isinstance(bounds, Mapping):
        return bounds is not None
    return any(is_at_or_below(leaf.name, path) for path in bounds)


def _chart(
    backend: AutodiffBackend,
    leaf: Leaf,
    array: Array,
    wish: Any,
    eps: float,
) -> Chart:
    """Returns the chart of one leaf, which `wish` gives as a name or as a callable.

    Raises `InputError` where the leaf is sparse, where no set has the name and where `array` is
    not in the set.
    """
    if "sparse" in leaf.info.layout or leaf.host_shape != leaf.info.shape:
        raise InputError(f"directions= for {leaf.name}, which is sparse", "pass a dense array")
    if callable(wish):
        return _user_chart(backend, leaf, array, wish, eps)
    name = wish.replace("_", " ") if isinstance(wish, str) else ""
    if name not in SETS:
        raise InputError(
            f"directions={wish!r} for {leaf.name} is no set; there are: {', '.join(SETS)}",
            "give one of these names, or a callable chart(z) -> x with chart(x) = x",
        )
    if not leaf.size:
        return Chart(f"an empty array ({name})", affine=True)
    try:
        return SETS[name](backend.arrays.to_host(array), eps)
    except OffTheSetError as error:
        found, remedy = error.args
        raise InputError(f"{leaf.name} {found}: it is not {_KINDS[name]}", remedy) from error


def lies_in(name: str, leaf: Leaf, vector: Vector) -> bool:
    """Says whether the coordinates `vector` of a leaf are a point of the set of that name."""
    if leaf.entries < 2 or leaf.host_shape != leaf.info.shape or not np.isfinite(vector).all():
        return False
    return contains(name, leaf.host(vector), leaf.eps)


def tangent_to(name: str, leaf: Leaf, vector: Vector, v: Vector) -> Vector:
    """Returns the part of `v` along the set of that name at its point `vector`: what the derivative
    of its chart makes of it. All are coordinates of a leaf.
    """
    x = leaf.host(vector)
    chart = SETS[name](x, leaf.eps)
    if chart.push is None:  # the set is open
        return v
    z = x if chart.start is None else chart.start
    return leaf.vector(chart.push(np, z, leaf.host(v), *chart.constants))


def set_around(leaf: Leaf, vector: Vector) -> str | None:
    """Returns the name of the most special set in which these coordinates lie, or `None`."""
    return next((name for name in SPECIAL_SETS if lies_in(name, leaf, vector)), None)


SPECIAL_SETS = (
    *("positive definite", "orthogonal", "symmetric", "simplex", "sphere"),
    *("sorted", "positive"),
)
"""The names of the sets, those in which few arrays lie by chance before the others."""


_KINDS = {
    "symmetric": "symmetric",
    "positive definite": "positive definite",
    "simplex": "on the simplex",
    "sphere": "on the unit sphere",
    "orthogonal": "orthogonal",
    "sorted": "sorted",
    "positive": "positive",
}
"""The words, by set, with which an error says what a point outside of the set is not."""


def _user_chart(
    backend: AutodiffBackend, leaf: Leaf, array: Array, chart: Callable[[Any], Any], eps: float
) -> Chart:
    """Returns the chart that the user wrote.

    Raises `InputError` where its value at x is not an array of the shape and dtype of x, or is
    not x up to rounding.
    """
    name = repr(chart) if isinstance(chart, ByHand) else getattr(chart, "__name__", repr(chart))
    chart = chart.on(backend) if isinstance(chart, ByHand) else chart
    value = chart(backend.arrays.copy(array))
    remedy = "a chart(z) -> x returns an array like z, and x itself at x"
    if not backend.owns(value) or backend.arrays.info(value).shape != leaf.info.shape:
        shape = f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
        raise InputError(
            f"the chart {name} of {leaf.name} returns a {type(value).__name__}{shape}, not an "
            f"array of {backend.name} of shape {leaf.info.shape}",
            remedy,
        )
    if backend.arrays.info(value).dtype != leaf.info.dtype:
        raise InputError(
            f"the chart {name} of {leaf.name} returns {backend.arrays.info(value).dtype}, not "
            f"{leaf.info.dtype}",
            remedy,
        )
    x = leaf.vector(backend.arrays.to_host(array))
    gap, size = leaf.vector(backend.arrays.to_host(value)) - x, largest(x)
    if not np.all(np.abs(gap) <= tolerance(eps, leaf.size) * size):
        raise InputError(
            f"the chart {name} leads from {leaf.name} to a point that is off it by "
            f"{np.max(np.abs(gap)):.3g}",
            remedy,
        )
    push, pull = _user_derivatives(chart)
    return Chart(f"the chart {name}", lambda xp, z: chart(z), push, pull)


def _user_derivatives(
    chart: Callable[[Any], Any],
) -> tuple[Callable[..., Array] | None, Callable[..., Array] | None]:
    """Returns the jvp and the vjp of the user's chart, with `None` for what it does not give."""
    if not isinstance(chart, ByHand):
        return None, None
    jvp, vjp, pullback = chart.jvp, chart.vjp, chart.pullback
    push = None if jvp is None else lambda xp, z, v: jvp(z, v)
    if vjp is not None:
        return push, lambda xp, z, w: _single(vjp(z, w))
    return push, None if pullback is None else lambda xp, z, w: _single(pullback(z)[1](w))


def _single(gradient: Any) -> Any:
    """Returns the only entry where `gradient` is a tuple of one, else `gradient` itself."""
    return gradient[0] if isinstance(gradient, tuple) and len(gradient) == 1 else gradient


def within(
    space: Space, origin: Vector, bounds: tuple[Vector, Vector] | None, charts: Charts
) -> tuple[Vector, Vector] | None:
    """Returns `bounds`, replaced by the reach of its chart for each leaf that has one.

    Both bounds are vectors of X. They are widened to contain `origin`. The result is `None` where
    nothing bounds the coordinates.
    """
    reaches = [None if chart is None else chart.reach for chart in charts.charts]
    if all(reach is None for reach in reaches):
        return bounds
    if bounds is None:
        bounds = np.full(space.size, -np.inf), np.full(space.size, np.inf)
    low, high = (side.copy() for side in bounds)
    for leaf, part, reach in zip(space.leaves, space.slices, reaches, strict=True):
        if reach is not None:
            low[part], high[part] = (leaf.vector(side) for side in reach)
    return np.minimum(low, origin), np.maximum(high, origin)


def at_start(charts: Charts, space: Space, arrays: Arrays, origin: Vector) -> tuple[Arrays, Vector]:
    """Returns the coordinates of x, as arrays and as a vector of X."""
    z, vector = list(arrays), origin.copy()
    for j, chart in enumerate(charts.charts):
        if chart is not None and chart.start is not None:
            z[j] = charts.backend.arrays.from_host(chart.start, arrays[j])
            vector[space.slices[j]] = space.leaves[j].vector(chart.start)
    return tuple(z), vector
