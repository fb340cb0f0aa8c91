"""The closed forms of a scenario: on host arrays, placed on an engine, and planted in one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjudge.conformance.scenario import Rule, Scenario, WrongRule
from adjudge.engine import (
    Array,
    Arrays,
    AutodiffBackend,
    ByHand,
    FlatFunction,
    HostArray,
    MaybeArrays,
    OtherDerivatives,
    PlainBackend,
    Pullback,
    placed,
)
from adjudge.problem import Tree, flatten

Host = NDArray[Any]
Hosts = list[Host]


COMPLEX = {"float64": "complex128", "float32": "complex64"}
"""For each real dtype: the complex one of that precision."""


def precise(dtype: str, host: Host) -> str:
    """Returns the name of the dtype of `host` where a scenario runs at the real dtype `dtype`."""
    if host.dtype.kind == "c":
        return COMPLEX[dtype]
    return dtype if host.dtype.kind == "f" else host.dtype.name


def leaves_of(tree: Any) -> Tree:
    """Returns `tree`, flattened in the order of the core."""
    return flatten(tree, "tree", lambda node: None)


class _Watched:
    """A module that notes which of its names are used."""

    def __init__(self, module: ModuleType, seen: set[str], prefix: str = "") -> None:
        self._of = module, seen, prefix

    def __getattr__(self, name: str) -> Any:
        module, seen, prefix = self._of
        found = getattr(module, name)
        if isinstance(found, ModuleType):
            return _Watched(found, seen, f"{prefix}{name}.")
        seen.add(prefix + name)
        return found


class ClosedForms:
    """The derivatives of a scenario on flat lists of float64 and complex128 host leaves."""

    def __init__(self, scenario: Scenario, wrong: WrongRule | None = None) -> None:
        """`wrong`: rules that take the place of the right ones."""
        self.scenario = scenario
        self.vjp_rule: Rule = (wrong and wrong.vjp) or scenario.vjp
        self.jvp_rule: Rule | None = (wrong and wrong.jvp) or scenario.jvp
        self.double_rule: Rule | None = (wrong and wrong.double_vjp) or scenario.double_vjp
        self.tree = leaves_of(scenario.inputs)
        self.checked = [k for k, leaf in enumerate(self.tree.leaves) if leaf.dtype.kind in "fc"]

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of the Array API that the function uses: `sum`, `linalg.inv`."""
        seen: set[str] = set()
        self.scenario.forward(_Watched(np, seen), *self.scenario.constants, *self._trees())
        return frozenset(seen)

    @cached_property
    def inputs(self) -> Hosts:
        """The differentiated leaves."""
        return [self.tree.leaves[k] for k in self.checked]

    @cached_property
    def _result(self) -> Tree:
        return leaves_of(self.scenario.forward(np, *self.scenario.constants, *self._trees()))

    @cached_property
    def outputs(self) -> list[int]:
        """Which leaves of the result have derivatives."""
        kinds = [np.asarray(leaf).dtype.kind for leaf in self._result.leaves]
        return [k for k, kind in enumerate(kinds) if kind in "fc"]

    def value(self, x: Sequence[Host]) -> Hosts:
        """Returns the floating and complex outputs."""
        leaves = leaves_of(
            self.scenario.forward(np, *self.scenario.constants, *self._trees(x))
        ).leaves
        return [np.asarray(leaves[k]) for k in self.outputs]

    def vjp(self, x: Sequence[Host], w: Sequence[Host]) -> list[Host | None]:
        """Returns one gradient or `None` for each differentiated leaf."""
        found = self.vjp_rule(np, *self.scenario.constants, *self._trees(x), self._cotangent(w))
        return self._gradients(found)

    def jvp(self, x: Sequence[Host], v: Sequence[Host]) -> Hosts:
        """Returns one tangent for each differentiated output."""
        assert self.jvp_rule is not None
        found = self.jvp_rule(
            np, *self.scenario.constants, *self._trees(x), *self._trees(v, empty=True)
        )
        leaves = leaves_of(found).leaves
        return [np.asarray(leaves[k]) for k in self.outputs]

    def double_vjp(
        self, x: Sequence[Host], w: Sequence[Host], u: Sequence[Host]
    ) -> list[Host | None]:
        """Returns one gradient for each differentiated leaf of x, then one for each cotangent."""
        assert self.double_rule is not None
        trees = self._trees(u, empty=True)
        *of_x, of_w = self.double_rule(
            np, *self.scenario.constants, *self._trees(x), self._cotangent(w),
            trees if len(trees) > 1 else trees[0],
        )  # fmt: skip
        leaves = leaves_of(of_w).leaves
        return [*self._gradients(tuple(of_x)), *(np.asarray(leaves[k]) for k in self.outputs)]

    def _trees(self, x: Sequence[Host] | None = None, *, empty: bool = False) -> tuple[Any, ...]:
        flat: list[Any] = [None] * len(self.tree.leaves) if empty else list(self.tree.leaves)
        for k, leaf in zip(self.checked, self.inputs if x is None else x, strict=True):
            flat[k] = leaf
        return tuple(self.tree.rebuild(flat))

    def _cotangent(self, w: Sequence[Host]) -> Any:
        flat: list[Any] = [None] * len(self._result.leaves)
        for k, leaf in zip(self.outputs, w, strict=True):
            flat[k] = leaf
        return self._result.rebuild(flat)

    def _gradients(self, found: Any) -> list[Host | None]:
        inputs = self.scenario.inputs
        per_input = found if isinstance(found, tuple) else (found,)
        flat: list[Any] = []
        for given, gradient in zip(inputs, per_input, strict=True):
            count = len(leaves_of(given).leaves)
            flat += [None] * count if gradient is None else leaves_of(gradient).leaves
        return [None if flat[k] is None else np.asarray(flat[k]) for k in self.checked]


@dataclass(frozen=True)
class Placed:
    """A scenario on an engine, at a dtype and on a device."""

    scenario: Scenario
    backend: AutodiffBackend
    dtype: str = "float64"
    device: str | None = None

    def _array(self, host: Host) -> Array:
        return placed(self.backend, host, precise(self.dtype, host), self.device)

    @cached_property
    def constants(self) -> Arrays:
        """The arrays that the function captures."""
        return tuple(self._array(host) for host in self.scenario.constants)

    @cached_property
    def inputs(self) -> tuple[Any, ...]:
        """Arrays of the engine in the structure of the scenario's inputs."""
        tree = leaves_of(self.scenario.inputs)
        return tuple(tree.rebuild([self._array(leaf) for leaf in tree.leaves]))

    @cached_property
    def function(self) -> Rule:
        """The function that is differentiated, which takes the inputs alone."""
        return partial(self.scenario.forward, self.backend.xp, *self.constants)

    def by_hand(self, wrong: WrongRule | None = None) -> ByHand:
        """Returns the function with its derivatives, or with wrong ones, on the engine's arrays."""
        closed = ClosedForms(self.scenario, wrong)

        def rule(given: Rule | None) -> Any:
            return None if given is None else partial(given, self.backend.xp, *self.constants)

        return ByHand(
            self.function,
            vjp=rule(closed.vjp_rule),
            jvp=rule(closed.jvp_rule),
            double_vjp=rule(closed.double_rule),
        )


class PlantedBackend(OtherDerivatives):
    """An engine that runs the function of a scenario, and differentiates it by closed forms.

    The derivatives are computed on the host, in double precision, and placed like the arrays that
    they belong to.
    """

    def __init__(self, inner: AutodiffBackend, closed: ClosedForms) -> None:
        """`closed` are the closed forms of the only function that will be differentiated."""
        super().__init__(inner)
        self.closed = closed

    @property
    def capabilities(self) -> frozenset[str]:
        return frozenset({"jvp"} if self.closed.jvp_rule is not None else ())

    def vjp(self, f: FlatFunction, x: Arrays) -> tuple[Arrays, Pullback]:
        host = [self.arrays.to_host(leaf) for leaf in x]
        y = self._run(f, x)

        def pullback(w: MaybeArrays) -> MaybeArrays:
            w_host = self._filled(w, y)
            if isinstance(f, _GradientMap):
                found = self.closed.double_vjp(host[: f.count], host[f.count :], w_host)
            else:
                found = self.closed.vjp(host, w_host)
            return self._placed(found, x)

        return y, pullback

    def jvp(self, f: FlatFunction, x: Arrays, v: MaybeArrays) -> tuple[Arrays, MaybeArrays]:
        if isinstance(f, _GradientMap) or self.closed.jvp_rule is None:
            raise self.lacks("the jvp of this function in closed form")
        y = self._run(f, x)
        tangents = self.closed.jvp([self.arrays.to_host(leaf) for leaf in x], self._filled(v, x))
        return y, self._placed(tangents, y)

    def vjp_map(self, f: FlatFunction, x_count: int) -> FlatFunction:
        if self.closed.double_rule is None:
            raise self.lacks("second order in closed form")
        return _GradientMap(self, x_count)

    def jvp_map(self, f: FlatFunction, x_count: int) -> FlatFunction:
        raise self.lacks("derivatives of a jvp in closed form")

    def _run(self, f: FlatFunction, x: Arrays) -> Arrays:
        """Returns `f(x)`, evaluated as the engine does under its own vjp, where it has one."""
        if isinstance(f, _GradientMap) or isinstance(self.inner, PlainBackend):
            return f(x)
        y, _ = self.inner.vjp(f, x)
        return tuple(self.arrays.copy(leaf) for leaf in y)

    def _filled(self, values: MaybeArrays, like: Arrays) -> list[HostArray]:
        """Returns host copies of the values, with zeros where a value is absent."""
        return [
            np.zeros(tuple(leaf.shape)) if value is None else self.arrays.to_host(value)
            for value, leaf in zip(values, like, strict=True)
        ]

    def _placed(self, hosts: Sequence[HostArray | None], like: Arrays) -> MaybeArrays:
        return tuple(
            None if host is None else self.arrays.from_host(np.asarray(host), leaf)
            for host, leaf in zip(hosts, like, strict=True)
        )


class _GradientMap:
    """`(x, w) -> J*(x) w` in closed form."""

    def __init__(self, backend: PlantedBackend, count: int) -> None:
        self.backend, self.count = backend, count

    def __call__(self, x_and_w: Arrays) -> Arrays:
        backend, count = self.backend, self.count
        x, w = x_and_w[:count], x_and_w[count:]
        found = backend.closed.vjp(
            [backend.arrays.to_host(leaf) for leaf in x],
            [backend.arrays.to_host(leaf) for leaf in w],
        )
        return backend.arrays.zeros_for_absent(backend._placed(found, x), x)
