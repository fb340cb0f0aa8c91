"""One function on one engine, which gives numbers at points and for probes that engines share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjudge.check import Options, function_name, problem_of, surroundings
from adjudge.engine import (
    AutodiffBackend,
    ByHand,
    PlainBackend,
    WrappedBackend,
    placed_tree,
)
from adjudge.errors import Source, running
from adjudge.floats import Vector
from adjudge.jacobian import DerivativeAtPoints, Evaluator
from adjudge.problem import (
    Base,
    Forward,
    Problem,
    Reverse,
    Space,
    Tree,
    base_of,
    flatten,
    gradient_problem,
    observe,
    tangent_problem,
)
from adjudge.properties import projected_entry


@dataclass(frozen=True)
class Quantity:
    """What is compared between engines: the value of f, or a derivative of it for some probes."""

    mode: str
    """The modes of the derivative, outermost first; empty for the value."""
    point: Problem
    """Where it is taken: x, followed by `taken_at`."""
    codomain: Space
    """What the function gives whose outermost derivative this is."""
    taken_at: Vector | None = None
    """The cotangent or tangent of the derivative that is taken first, where there are two."""
    probes: tuple[Vector, ...] = (np.ones(1),)

    @property
    def domain(self) -> Space:
        """What the function takes whose outermost derivative this is."""
        return self.point.X

    @property
    def space(self) -> Space:
        """The space in which the numbers lie."""
        return self.domain if self.mode[:1] == "R" else self.codomain

    @property
    def probe_space(self) -> Space:
        """The space in which the probes lie."""
        return self.codomain if self.mode[:1] == "R" else self.domain

    def entry(self, k: int, probe: int) -> str:
        """Returns what number `k` for this probe is called."""
        if not self.mode:
            return self.codomain.entry(k)
        return projected_entry(self.mode[0], self.space, self.probe_space, self.probes[probe], k)


@dataclass(frozen=True)
class Numbers:
    """A quantity on one engine, at several points."""

    rows: NDArray[np.float64]
    """The numbers by probe, point and entry. They are NaN at points where the function raises."""
    values: NDArray[np.float64]
    """By point, the value of the function whose outermost derivative is taken, if one is."""
    eps: float
    """The spacing at 1 of the coarsest dtype among inputs and outputs."""

    def take(self, probe: int) -> NDArray[np.float64]:
        """Returns the numbers for this probe, by point and entry."""
        return np.asarray(self.rows[probe])

    def at_x(self) -> Numbers:
        """Returns the numbers at the first of the points alone."""
        return replace(self, rows=self.rows[:, :1], values=self.values[:1])


@dataclass(frozen=True)
class Output:
    """One leaf of what the function returned at x."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    floating: bool
    value: Any
    """Its host copy; where it is no array, itself."""


@dataclass(frozen=True)
class InnerDerivative:
    """The derivative that is taken first, as a function at x; f itself where only one is taken."""

    base: Base
    kept: NDArray[np.intp]
    """The coordinates of the quantity's domain that it has: an output without history takes no
    cotangent."""


@dataclass
class Engine:
    """A function at its inputs on an engine."""

    name: str
    backend: AutodiffBackend
    function: Callable[..., Any]
    arrays: Any
    options: Options
    inputs: Any
    problem: Problem
    widening: bool = False
    """Whether this is the function in double precision on inputs of less."""
    _inner: dict[str, InnerDerivative] = field(default_factory=dict)

    @property
    def differentiates(self) -> bool:
        """Whether there are derivatives: the engine's, or by hand."""
        return isinstance(self.function, ByHand) or _has_vjp(self.backend)

    @contextmanager
    def isolated(self) -> Iterator[None]:
        """A context for every evaluation, after which global state is as it was before."""
        highest = self.options.get("highest_precision", False)
        with (
            self.backend.environment.widening() if self.widening else nullcontext(),
            surroundings(self.problem, self.function, highest=highest),
        ):
            yield

    def outputs(self) -> tuple[object, list[Output]]:
        """Returns the structure of what f returns at x, and its leaves. Raises what f raises."""
        backend = self.backend
        with self.isolated():
            with running(Source.FUNCTION):
                result = self.function(*placed_tree(backend, self.arrays))
            tree = flatten(result, "out")
            found = []
            for name, leaf in zip(tree.names, tree.leaves, strict=True):
                if not backend.owns(leaf):
                    found.append(Output(name, (), type(leaf).__name__, False, leaf))
                    continue
                with running(Source.ENGINE):
                    info, host = backend.arrays.info(leaf), backend.arrays.to_host(leaf)
                found.append(
                    Output(
                        name,
                        info.shape,
                        info.dtype.rpartition(".")[2],
                        backend.arrays.is_differentiable(leaf),
                        host,
                    )
                )
        return _skeleton(result), found

    def base(self) -> Base:
        """Returns f at x."""
        return self.inner("", None).base

    def numbers(self, quantity: Quantity, points: Sequence[Vector], *, from_x: bool) -> Numbers:
        """Returns the quantity at these points. Raises what f raises at the first one if that is x,
        and `NotSupportedError` where the engine lacks the derivative.
        """
        mode = quantity.mode
        with self.isolated():
            base, kept = (inner := self.inner(mode[1:], quantity.taken_at)).base, inner.kept
            probes = quantity.probes
            if mode[:1] == "F":
                probes = tuple(probe[kept] for probe in probes)
            here = [point[kept] for point in points]
            taken = DerivativeAtPoints(Evaluator(base), mode[:1], here, probes, from_x=from_x)
            if not mode:
                return Numbers(taken.values[None], taken.values[:, :0], base.coarsest_eps)
            rows = np.zeros((len(probes), len(points), quantity.space.size))
            its = kept if mode[0] == "R" else slice(None)
            for k, row in enumerate(rows):
                row[:, its] = taken.take(k)
        return Numbers(rows, taken.values, base.coarsest_eps)

    def inner(self, taken: str, at: Vector | None) -> InnerDerivative:
        """Returns the derivative in the mode `taken`, at the cotangent or tangent `at`; f itself
        where no mode is taken.
        """
        if taken not in self._inner:
            self._inner[taken] = self._take_inner(taken, at)
        return self._inner[taken]

    def _take_inner(self, taken: str, at: Vector | None) -> InnerDerivative:
        problem, backend = self.problem, self.backend
        n = problem.X.size
        if not taken or at is None:
            with self.isolated():
                base = observe(problem)
            return InnerDerivative(base, np.arange(n))
        base = self.base()
        if taken == "F":
            v = problem.X.arrays(backend, at, problem.x)
            pushed = tangent_problem(problem, base.Y.leaves, v)
            return InnerDerivative(observe(pushed), np.arange(2 * n))
        reverse = Reverse(problem)
        found, space = base_of(problem, reverse.outputs), base.Y
        w = space.arrays(backend, at, found.arrays)
        here = [k for k, attached in enumerate(reverse.attached) if attached]
        pulled = gradient_problem(problem, reverse.attached, space, [w[k] for k in here])
        slices = [np.arange(space.size)[space.slices[k]] + n for k in here]
        return InnerDerivative(observe(pulled), np.concatenate([np.arange(n), *slices]))


def engine_of(
    backend: AutodiffBackend, f: Callable[..., Any], arrays: Any, options: Options
) -> Engine:
    """Returns `f` at host arrays on this engine, and evaluates nothing. Raises the errors of bad
    input.
    """
    function = with_namespace(f, backend.xp)
    inputs = placed_tree(backend, arrays)
    given: Options = {**options, "backend": backend}
    problem = problem_of(function, inputs, given)
    return Engine(backend.name, backend, function, arrays, given, inputs, problem)


def in_double(engine: Engine) -> Engine:
    """Returns the same function with its inputs widened to double precision."""
    assert engine.problem.widened is not None
    with engine.backend.environment.widening():
        problem = engine.problem.widened("float64")
    name = f"float64 on {engine.name}"
    return replace(engine, name=name, problem=problem, widening=True, _inner={})


def with_namespace(f: Callable[..., Any], xp: Any) -> Callable[..., Any]:
    """Returns `f` as a function of arrays only, which is given `xp` if it has a parameter of that
    name.
    """
    if isinstance(f, ByHand):
        return f
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):  # a function written in C has no signature, nor xp
        return f
    ahead = bool(parameters) and parameters[0].name == "xp"
    ahead = ahead and parameters[0].kind is not inspect.Parameter.KEYWORD_ONLY
    if not ahead and not any(p.name == "xp" for p in parameters):
        return f

    def on_engine(*args: Any) -> Any:
        return f(xp, *args) if ahead else f(*args, xp=xp)

    on_engine.__name__ = on_engine.__qualname__ = function_name(f)
    return on_engine


def _has_vjp(backend: AutodiffBackend) -> bool:
    """Returns whether the engine, or what it wraps, has a vjp."""
    rule = type(backend).vjp
    if rule is WrappedBackend.vjp and isinstance(backend, WrappedBackend):
        return _has_vjp(backend.inner)
    return rule is not PlainBackend.vjp


def _skeleton(tree: Any) -> object:
    """Returns the structure of a result. A named tuple counts as a tuple, since engines give it
    other names.
    """
    if isinstance(tree, dict):
        return {key: _skeleton(node) for key, node in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_skeleton(node) for node in tree)
    if isinstance(tree, list):
        return [_skeleton(node) for node in tree]
    return None


def with_derivatives_of(engine: Engine, donor: Engine, *, forward: bool) -> ByHand:
    """Returns the function of `engine`, which has no derivatives, with the vjp of `donor`; with its
    jvp, too, if `forward`.
    """
    rules = _DonatedRules(engine, donor)

    def value(*args: Any) -> Any:
        return engine.function(*args)

    value.__name__ = f"{function_name(engine.function)}, derivative of {donor.name}"
    return ByHand(value, vjp=rules.vjp, jvp=rules.jvp if forward else None)


class _DonatedRules:
    """The rules of the engine `donor` for arrays of another one, which has none; the arguments and
    results have the same leaves on both.
    """

    def __init__(self, engine: Engine, donor: Engine) -> None:
        self.engine, self.here, self.donor = engine, engine.backend, donor

    def vjp(self, *args_and_w: Any) -> Any:
        """Returns `J* w`."""
        *args, w = args_and_w
        tree, problem = self._there(tuple(args))
        with surroundings(problem, self.donor.function):
            reverse = Reverse(problem)
            base = base_of(problem, reverse.outputs)
            g = reverse.row(base, self._vector(base.Y, flatten(w, "out")))
        gradients = self._like(tree, problem.X, g)
        return gradients[0] if len(args) == 1 else gradients

    def jvp(self, *args_and_v: Any) -> Any:
        """Returns `J v`."""
        count = len(args_and_v) // 2
        args, v = args_and_v[:count], args_and_v[count:]
        _, problem = self._there(args)
        with surroundings(problem, self.donor.function):
            forward = Forward(problem)
            tangent = self._vector(problem.X, flatten(v, "inputs"))
            y, jv = forward.push(problem.X.arrays(problem.backend, tangent, problem.x))
            base = base_of(problem, y)
            image = base.Y.vector(problem.backend, jv, base.arrays)
        return self._like(flatten(self.engine.function(*args), "out"), base.Y, image)

    def _there(self, args: tuple[Any, ...]) -> tuple[Tree, Problem]:
        """Returns the arguments, and the problem of the donor at them."""
        tree = flatten(args, "inputs")
        hosts = tree.rebuild([self._host(leaf) for leaf in tree.leaves])
        backend = self.donor.backend
        options: Options = {"backend": backend}
        if "wrt" in self.donor.options:
            options["wrt"] = self.donor.options["wrt"]
        return tree, problem_of(self.donor.function, placed_tree(backend, hosts), options)

    def _host(self, leaf: Any) -> Any:
        """Returns an array of the engine as one of NumPy, of the same dtype."""
        if not self.here.owns(leaf):
            return leaf
        dtype = self.here.arrays.info(leaf).dtype.rpartition(".")[2]
        host = self.here.arrays.to_host(leaf)
        return np.asarray(host if np.dtype(dtype).kind == "c" else host.real, dtype=dtype)

    def _vector(self, space: Space, tree: Tree) -> Vector:
        """Returns the coordinates of a tree, which has `None` where the space has no leaf."""
        arrays = [leaf for leaf in tree.leaves if leaf is not None]
        parts = zip(space.leaves, arrays, strict=True)
        vectors = [leaf.vector(self.here.arrays.to_host(array)) for leaf, array in parts]
        return np.concatenate([*vectors, np.zeros(0)])

    def _like(self, tree: Tree, space: Space, vector: Vector) -> Any:
        """Returns the tree with arrays of these coordinates in place of the leaves of the space."""
        hosts = {
            leaf.name: leaf.host(vector[part])
            for leaf, part in zip(space.leaves, space.slices, strict=True)
        }
        names = dict.fromkeys(tree.names)
        if space.leaves and space.leaves[0].name.startswith("out"):  # named tuples differ in names
            moving = [
                name
                for name, leaf in zip(tree.names, tree.leaves, strict=True)
                if self.here.owns(leaf) and self.here.arrays.is_differentiable(leaf)
            ]
            hosts = dict(zip(moving, hosts.values(), strict=True))
        return tree.rebuild(
            [
                self.here.arrays.from_host(hosts[name], leaf) if name in hosts else None
                for name, leaf in zip(names, tree.leaves, strict=True)
            ]
        )
