"""An engine's derivative carried to another through the host, as a derivative by hand there.

The differences of f on an engine without derivatives are so a witness of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adjudge.automatic import Forward, Reverse
from adjudge.byhand import ByHand
from adjudge.crossengine import Engine
from adjudge.observed import base_of
from adjudge.options import Options, problem_of
from adjudge.placing import placed_tree
from adjudge.problem import Problem
from adjudge.registry import expand
from adjudge.spaces import Space, Vector
from adjudge.summary import function_name
from adjudge.surroundings import surroundings
from adjudge.trees import Tree, flatten


def carried(engine: Engine, donor: Engine, *, forward: bool) -> ByHand:
    """The function of `engine`, which has no derivatives, with those of `donor`; with its jvp, too,
    if `forward`.
    """
    bridge = _Bridge(engine, donor)

    def value(*args: Any) -> Any:
        return engine.function(*args)

    value.__name__ = f"{function_name(engine.function)}, derivative of {donor.name}"
    return ByHand(value, vjp=bridge.vjp, jvp=bridge.jvp if forward else None)


class _Bridge:
    """The rules of `donor`, for arrays of the engine `here`; trees have the same leaves on both."""

    def __init__(self, engine: Engine, donor: Engine) -> None:
        self.engine, self.here, self.donor = engine, engine.backend, donor

    def vjp(self, *args_and_w: Any) -> Any:
        """`J* w`."""
        *args, w = args_and_w
        tree, problem = self._there(tuple(args))
        with surroundings(problem):
            reverse = Reverse(problem)
            base = base_of(problem, reverse.outputs)
            g = reverse.row(base, self._vector(base.Y, flatten(w, "out", expand)))
        gradients = self._like(tree, problem.X, g)
        return gradients[0] if len(args) == 1 else gradients

    def jvp(self, *args_and_v: Any) -> Any:
        """`J v`."""
        count = len(args_and_v) // 2
        args, v = args_and_v[:count], args_and_v[count:]
        _, problem = self._there(args)
        with surroundings(problem):
            forward = Forward(problem)
            tangent = self._vector(problem.X, flatten(v, "inputs", expand))
            y, jv = forward.push(problem.X.arrays(problem.backend, tangent, problem.x))
            base = base_of(problem, y)
            image = base.Y.vector(problem.backend, jv, base.arrays)
        return self._like(flatten(self.engine.function(*args), "out", expand), base.Y, image)

    def _there(self, args: tuple[Any, ...]) -> tuple[Tree, Problem]:
        """The arguments, and the donor's problem at them."""
        tree = flatten(args, "inputs", expand)
        hosts = tree.rebuild([self._host(leaf) for leaf in tree.leaves])
        backend = self.donor.backend
        options: Options = {"backend": backend}
        if "wrt" in self.donor.options:
            options["wrt"] = self.donor.options["wrt"]
        return tree, problem_of(self.donor.function, placed_tree(backend, hosts), options)

    def _host(self, leaf: Any) -> Any:
        if not self.here.owns(leaf):
            return leaf
        dtype = self.here.info(leaf).dtype.rpartition(".")[2]
        host = self.here.to_host(leaf)
        return np.asarray(host if np.dtype(dtype).kind == "c" else host.real, dtype=dtype)

    def _vector(self, space: Space, tree: Tree) -> Vector:
        """Coordinates of a tree of arrays, `None` where there is no leaf of the space."""
        arrays = [leaf for leaf in tree.leaves if leaf is not None]
        parts = zip(space.leaves, arrays, strict=True)
        vectors = [leaf.vector(self.here.to_host(array)) for leaf, array in parts]
        return np.concatenate([*vectors, np.zeros(0)])

    def _like(self, tree: Tree, space: Space, vector: Vector) -> Any:
        """The tree with arrays of these coordinates in place of the leaves of the space."""
        hosts = {
            leaf.name: leaf.host(vector[part])
            for leaf, part in zip(space.leaves, space.slices, strict=True)
        }
        names = dict.fromkeys(tree.names)
        if space.leaves and space.leaves[0].name.startswith("out"):  # named tuples differ in names
            moving = [
                name
                for name, leaf in zip(tree.names, tree.leaves, strict=True)
                if self.here.owns(leaf) and self.here.differentiable(leaf)
            ]
            hosts = dict(zip(moving, hosts.values(), strict=True))
        return tree.rebuild(
            [
                self.here.from_host(hosts[name], leaf) if name in hosts else None
                for name, leaf in zip(names, tree.leaves, strict=True)
            ]
        )
