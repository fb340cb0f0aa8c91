"""Engines with one planted fault, and engines with the required derivative alone."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from adjudge.conformance.closed_forms import Host
from adjudge.conformance.subject import OTHER
from adjudge.engine import (
    Array,
    ArrayOperations,
    Arrays,
    AutodiffBackend,
    FlatFunction,
    MaybeArrays,
    OtherDerivatives,
    Pullback,
    WrappedBackend,
)
from adjudge.errors import InputError
from adjudge.findings import Status

Change = Callable[[Host], Host]
Applies = Callable[[Sequence[Host]], bool]


def _moving(g: Sequence[Host]) -> bool:
    return any(np.any(leaf != 0) for leaf in g)


def _lopsided(g: Sequence[Host]) -> bool:
    return any(_square(leaf) and not np.array_equal(leaf, leaf.T) for leaf in g)


def _complex(g: Sequence[Host]) -> bool:
    return any(np.any(np.imag(leaf) != 0) for leaf in g)


def _square(leaf: Host) -> bool:
    return leaf.ndim == 2 and leaf.shape[0] == leaf.shape[1]


def _without_an_entry(leaf: Host) -> Host:
    changed = leaf.copy()
    moving = np.flatnonzero(changed)
    if moving.size:
        changed.flat[moving[0]] = 0
    return changed


@dataclass(frozen=True)
class Fault:
    """A fault of an engine: what it does to derivatives, and where a check must see it."""

    change: Change | None = None
    """What it makes of right gradients and tangents; `None` where it changes no numbers."""
    applies: Applies = _moving
    """Returns whether the fault changes anything about these gradients."""
    status: Status = Status.MISMATCH
    """The status of a finding that a check must have."""


FAULTS: dict[str, Fault] = {
    "sign": Fault(lambda leaf: -leaf),
    "factor": Fault(lambda leaf: 1.25 * leaf),
    "zero": Fault(lambda leaf: 0 * leaf),
    "dropped entry": Fault(_without_an_entry),
    "transpose": Fault(lambda leaf: leaf.T if _square(leaf) else leaf, _lopsided),
    "conjugate": Fault(np.conj, _complex),
    "stale value": Fault(),
    "wrong accumulation": Fault(status=Status.NONLINEAR),
    "absent": Fault(status=Status.MISSING),
    "detached": Fault(status=Status.DETACHED),
    "wrong dtype": Fault(status=Status.WRONG_DTYPE),
    "wrong shape": Fault(status=Status.WRONG_SHAPE),
    "wrong device": Fault(status=Status.WRONG_DEVICE),
    "writes into the cotangent": Fault(status=Status.MUTATES_INPUT),
    "writes into x": Fault(status=Status.MUTATES_INPUT),
}
"""Every fault that can be injected."""


class FaultyBackend(WrappedBackend):
    """An engine with one fault, by its name in `FAULTS`. A check of it must fail."""

    def __init__(self, inner: AutodiffBackend, fault: str) -> None:
        """Raises `InputError` for a fault that is not known."""
        super().__init__(inner)
        if fault not in FAULTS:
            raise InputError(f"fault {fault!r} is not known", f"one of: {', '.join(FAULTS)}")
        self.fault = fault
        self._before: dict[tuple[str, int], MaybeArrays] = {}

    def detached(self, y: Array) -> bool:
        return self.fault == "detached" or self.inner.detached(y)

    def vjp(self, f: FlatFunction, x: Arrays) -> tuple[Arrays, Pullback]:
        y, pullback = self.inner.vjp(f, x)
        total: list[MaybeArrays] = []

        def faulty(w: MaybeArrays) -> MaybeArrays:
            g = pullback(w)
            if self.fault == "wrong accumulation":
                total.append(g)
                return self._each(_summed(self, total), x, lambda leaf: leaf)
            if self.fault == "writes into the cotangent":
                self._write(w)
            if self.fault == "writes into x":
                self._write(x)
            return self._faulty(g, x, "R")

        return y, faulty

    def _write(self, leaves: MaybeArrays) -> None:
        """Writes into the first array that this changes."""
        any(write(self.arrays, leaf) for leaf in leaves if leaf is not None and 0 not in leaf.shape)

    def jvp(self, f: FlatFunction, x: Arrays, v: MaybeArrays) -> tuple[Arrays, MaybeArrays]:
        y, tangents = self.inner.jvp(f, x, v)
        changed = FAULTS[self.fault].change
        return y, self._each(tangents, y, changed) if changed else tangents

    def _faulty(self, g: MaybeArrays, x: Arrays, mode: str) -> MaybeArrays:
        changed = FAULTS[self.fault].change
        if changed is not None:
            return self._each(g, x, changed)
        if self.fault == "stale value":
            before, self._before[mode, len(g)] = self._before.get((mode, len(g)), g), g
            return self._each(before, x, lambda leaf: leaf)
        if self.fault in ("absent", "detached"):
            return (None,) * len(g)
        if self.fault == "wrong shape":
            return self._made(g, lambda host: host[None], None, None)
        if self.fault == "wrong dtype":
            return self._made(g, lambda host: host, OTHER, None)
        if self.fault == "wrong device":
            return self._made(g, lambda host: host, None, self.arrays.devices())
        return g

    def _each(self, values: MaybeArrays, like: Arrays, change: Change) -> MaybeArrays:
        return tuple(
            None
            if array is None
            else self.arrays.from_host(np.asarray(change(self.arrays.to_host(array))), leaf)
            for array, leaf in zip(values, like, strict=True)
        )

    def _made(
        self, g: MaybeArrays, change: Change, others: dict[str, str] | None, devices: Any
    ) -> MaybeArrays:
        """Returns the gradients in another shape, in another dtype, or on another device."""
        made: list[Array | None] = []
        for array in g:
            if array is None:
                made.append(None)
                continue
            info = self.arrays.info(array)
            dtype = info.dtype.rpartition(".")[2]
            device = elsewhere(self, array, devices) if devices else here(self, info.device)
            made.append(
                self.arrays.make(
                    change(self.arrays.to_host(array)), others[dtype] if others else dtype, device
                )
            )
        return tuple(made)


class PrimitiveBackend(OtherDerivatives):
    """The `vjp` of `inner`, with its arrays and its environment, and no other derivative of it.

    The second order is what `AutodiffBackend` derives by nesting; forward mode, batching and
    compilation are not supported.
    """

    way = "primitive"

    def vjp(self, f: FlatFunction, x: Arrays) -> tuple[Arrays, Pullback]:
        return self.inner.vjp(f, x)


def elsewhere(backend: AutodiffBackend, array: Array, devices: Sequence[str]) -> str:
    """Returns the name of another device on which an array of this dtype can be."""
    info = backend.arrays.info(array)
    for name in devices:
        if here(backend, info.device) != name and _holds(backend, info.dtype, name):
            return name
    raise backend.lacks("a second device")


def _holds(backend: AutodiffBackend, dtype: str, device: str) -> bool:
    try:
        backend.arrays.make(np.zeros(1), dtype.rpartition(".")[2], device)
    except Exception:  # whatever the engine says where it cannot
        return False
    return True


def here(backend: AutodiffBackend, device: str) -> str | None:
    """Returns the name in `devices()` of the device that `info` calls `device`; `None` for the
    default.
    """
    for name in backend.arrays.devices():
        for dtype in ("float32", "float64"):
            if _holds(backend, dtype, name):
                made = backend.arrays.make(np.zeros(1), dtype, name)
                if backend.arrays.info(made).device == device:
                    return name
                break
    return None


def write(arrays: ArrayOperations, array: Array) -> bool:
    """Writes into `array`, and returns whether it has other numbers then: PaddlePaddle says nothing
    where it does not write into an array without axes.
    """
    before = np.array(arrays.to_host(array, array))
    try:
        operator.setitem(array, ..., array * 2 + 1)
    except (TypeError, ValueError, RuntimeError):
        return False
    return not np.array_equal(before, arrays.to_host(array, array), equal_nan=True)


def _summed(backend: AutodiffBackend, values: Sequence[MaybeArrays]) -> MaybeArrays:
    total: list[Array | None] = list(values[0])
    for g in values[1:]:
        for k, array in enumerate(g):
            if array is not None:
                here = total[k]
                total[k] = array if here is None else here + array
    return tuple(total)
