"""An engine with other derivatives planted in it: closed forms, right or wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from adjudge.conformance.closed import ClosedForms
from adjudge.engine import (
    Array,
    Arrays,
    AutodiffBackend,
    FlatFunction,
    HostArray,
    MaybeArrays,
    PlainBackend,
    Pullback,
    WrappedBackend,
)


class PlantedBackend(WrappedBackend):
    """`inner`, which runs the function of a scenario and differentiates it by closed forms.

    They are computed on the host, in double precision, and placed like the arrays they belong to.
    """

    def __init__(self, inner: AutodiffBackend, closed: ClosedForms) -> None:
        """`closed`: of the scenario whose function will be differentiated, and of no other."""
        super().__init__(inner)
        self.closed = closed

    @property
    def capabilities(self) -> frozenset[str]:
        return frozenset({"jvp"} if self.closed.jvp_rule is not None else ())

    @property
    def undefined_cotangents(self) -> bool:
        return False

    def detached(self, y: Array) -> bool:
        return False

    def ways(self) -> Sequence[AutodiffBackend]:
        return ()

    def wanted(self, leaf: Array) -> bool | None:
        return None

    def vjp(self, f: FlatFunction, x: Arrays) -> tuple[Arrays, Pullback]:
        host = [self.to_host(leaf) for leaf in x]
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
        tangents = self.closed.jvp([self.to_host(leaf) for leaf in x], self._filled(v, x))
        return y, self._placed(tangents, y)

    def vjp_map(self, f: FlatFunction, x_count: int) -> FlatFunction:
        if self.closed.double_rule is None:
            raise self.lacks("second order in closed form")
        return _GradientMap(self, x_count)

    def jvp_map(self, f: FlatFunction, x_count: int) -> FlatFunction:
        raise self.lacks("derivatives of a jvp in closed form")

    def vmap(self, function: Any) -> Any:
        raise self.lacks("batching (vmap)")

    def compile(self, function: Any) -> Any:
        raise self.lacks("compilation")

    def _run(self, f: FlatFunction, x: Arrays) -> Arrays:
        """The engine runs f as it does under its own vjp, where it has one."""
        if isinstance(f, _GradientMap) or isinstance(self.inner, PlainBackend):
            return f(x)
        y, _ = self.inner.vjp(f, x)
        return tuple(self.copy(leaf) for leaf in y)

    def _filled(self, values: MaybeArrays, like: Arrays) -> list[HostArray]:
        """Host copies, of zeros where a value is absent."""
        return [
            np.zeros(tuple(leaf.shape)) if value is None else self.to_host(value)
            for value, leaf in zip(values, like, strict=True)
        ]

    def _placed(self, hosts: Sequence[HostArray | None], like: Arrays) -> MaybeArrays:
        return tuple(
            None if host is None else self.from_host(np.asarray(host), leaf)
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
            [backend.to_host(leaf) for leaf in x], [backend.to_host(leaf) for leaf in w]
        )
        return backend.zeros_for_absent(backend._placed(found, x), x)
