"""The backend under test: scenarios flattened on it, and comparisons that are counted."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from adjudge.conformance.closed_forms import COMPLEX, ClosedForms, Host, Hosts, Placed, precise
from adjudge.conformance.scenario import Scenario
from adjudge.engine import (
    Array,
    ArrayOperations,
    Arrays,
    AutodiffBackend,
    FlatFunction,
    MaybeArrays,
    PlainBackend,
)
from adjudge.errors import AdjudgeError
from adjudge.problem import first_order, read_arguments

EPS = {
    "float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7,
    "complex128": 2.0**-52, "complex64": 2.0**-23,
}  # fmt: skip
"""The spacing at 1 of every dtype that the kit knows. The kit has tables of its own, since it would
be blind to a mistake in those of the library."""

LIMITS = {
    "float64": (2.0**-1022, (2 - 2.0**-52) * 2.0**1023, 2.0**-1074),
    "float32": (2.0**-126, (2 - 2.0**-23) * 2.0**127, 2.0**-149),
    "float16": (2.0**-14, (2 - 2.0**-10) * 2.0**15, 2.0**-24),
    "bfloat16": (2.0**-126, (2 - 2.0**-7) * 2.0**127, 2.0**-133),
}
"""For each real dtype: its smallest normal number, its largest one, its smallest subnormal one."""

OTHER = {
    "float64": "float32", "float32": "float64", "float16": "float32", "bfloat16": "float32",
    "complex128": "complex64", "complex64": "complex128",
}  # fmt: skip
"""For each dtype: the one that a fault makes of it."""


class ConformanceError(AdjudgeError, AssertionError):
    """A backend that does not keep the contract: what was found, and what its author should do."""


@dataclass
class Subject:
    """A backend, and how much of it was compared."""

    backend: AutodiffBackend
    excused: Mapping[str, str] = field(default_factory=dict)
    comparisons: int = 0

    @property
    def arrays(self) -> ArrayOperations:
        """The operations on the arrays of the backend."""
        return self.backend.arrays

    @property
    def plain(self) -> bool:
        """Whether this is an array namespace alone, whose derivatives are written by hand."""
        return isinstance(self.backend, PlainBackend)

    @cached_property
    def dtypes(self) -> list[str]:
        """The names in `dtypes()` without remarks: `float64 (in 64-bit mode)` is float64."""
        return [name.partition(" ")[0] for name in self.backend.arrays.dtypes()]

    def dtypes_of(self, scenario: Scenario) -> list[str]:
        """Returns the dtypes at which the scenario runs on this engine."""
        held = self.dtypes
        if "complex" in scenario.needs:  # an engine may have complex numbers of one precision
            held = [dtype for dtype in held if COMPLEX.get(dtype) in held] or held
        found = [dtype for dtype in scenario.dtypes if dtype in held]
        narrow = "float64" in scenario.dtypes and "float32" in held
        return found or (["float32"] if narrow else [])

    def modes_of(self, scenario: Scenario) -> list[str]:
        """Returns the modes of a scenario that the engine is not excused from."""
        without = {name: "F" for name in ("jvp",) if name in self.excused}
        return [
            mode
            for mode in scenario.modes
            if mode not in self.excused and not ("F" in mode and without)
        ]

    def same(self, where: str, found: Host, expected: Host, remedy: str, units: float = 0) -> None:
        """Checks that `found` is `expected`, entry by entry, to `units` of the largest entry where
        given.

        Without units the signs of zeros count, too, and NaN is NaN.
        """
        if found.shape != expected.shape:
            raise ConformanceError(
                f"{where} has shape {found.shape}, expected {expected.shape}", remedy
            )
        self.comparisons += max(found.size, 1)
        with np.errstate(all="ignore"):
            if units:
                size = np.max(np.abs(expected), initial=0.0)
                bad = ~(np.abs(found - expected) <= units * size)
            else:
                bad = bits(found) != bits(expected)
        if np.any(bad):
            index = tuple(int(k) for k in np.argwhere(bad)[0])
            raise ConformanceError(
                f"{where}{list(index) if index else ''} is {found[index].item()!r}, "
                f"expected {expected[index].item()!r}",
                remedy,
            )

    def equal(self, where: str, found: object, expected: object, remedy: str) -> None:
        """Checks that two plain values are equal."""
        self.comparisons += 1
        if found != expected:
            raise ConformanceError(f"{where} is {found!r}, expected {expected!r}", remedy)


def bare(dtype: str) -> str:
    """Returns the name of a dtype without that of its namespace."""
    return dtype.rpartition(".")[2]


def bits(host: Host) -> Host:
    """Returns the bit patterns of float64 numbers; every NaN has the same."""
    wide = np.ascontiguousarray(host, dtype=np.complex128).reshape(host.shape)
    parts = np.stack([wide.real, wide.imag], axis=-1)
    patterns = np.where(np.isnan(parts), np.nan, parts).view(np.int64)
    whole = patterns[..., 0] * 31 + patterns[..., 1]
    return np.asarray(whole)


class Point:
    """A scenario at one dtype and on one device, flattened as the core flattens it."""

    def __init__(
        self, subject: Subject, scenario: Scenario, dtype: str, device: str | None = None
    ) -> None:
        self.subject, self.scenario, self.dtype = subject, scenario, dtype
        self.closed = ClosedForms(scenario)
        self.placed = Placed(scenario, subject.backend, dtype, device)
        function = self.placed.by_hand() if subject.plain else self.placed.function
        problem = first_order(function, read_arguments(self.placed.inputs, backend=subject.backend))
        self.engine: AutodiffBackend = problem.backend
        self.f: FlatFunction = problem.function
        self.x: Arrays = problem.x
        with self.engine.environment.isolation(self.x):
            self.f(self.x)  # as in every check: the first evaluation is a plain one
        self.device = "+".join(sorted({self.engine.arrays.info(leaf).device for leaf in self.x}))
        self.random = np.random.default_rng(zlib.crc32(f"{scenario.name} {dtype}".encode()))

    @property
    def units(self) -> float:
        """How far a derivative may be off, as a part of its largest entry."""
        return self.scenario.rounding * max(
            map(self.engine.effective_eps, self.x), default=EPS[self.dtype]
        )

    def at(self, operation: str) -> str:
        """Returns the place of a comparison in words, for messages."""
        return f"{self.scenario.name} ({self.dtype}, {self.device}): {operation}"

    @contextmanager
    def isolated(self) -> Iterator[None]:
        """Enters the isolation of every check; on exit, checks that the inputs still have their
        values.
        """
        with self.engine.environment.isolation(self.x):
            yield
            for k, (leaf, host) in enumerate(zip(self.x, self.closed.inputs, strict=True)):
                self.subject.same(
                    self.at(f"afterwards input {k}"),
                    self.engine.arrays.to_host(leaf),
                    host,
                    "nothing may be written into x: run f on copies, or on aliases that record",
                )

    def drawn(self, likes: Sequence[Host]) -> Hosts:
        """Returns random numbers of few bits, shaped like these."""
        return [self._draw(like) for like in likes]

    def _draw(self, like: Host) -> Host:
        real = self.random.integers(1, 32, like.shape) * self.random.choice([-1, 1], like.shape)
        if like.dtype.kind != "c":
            return np.asarray(real / 16)
        return np.asarray(real / 16 + 1j * (self.random.integers(-32, 32, like.shape) / 16))

    def arrays(self, hosts: Sequence[Host], like: Arrays) -> Arrays:
        """Returns host arrays, placed on the engine."""
        pairs = zip(hosts, like, strict=True)
        return tuple(self.engine.arrays.from_host(host, leaf) for host, leaf in pairs)

    def outputs(self, y: Arrays) -> Hosts:
        """Checks the values of f that come with derivatives, and what kind of arrays they are."""
        expected = self.closed.value(self.closed.inputs)
        self.subject.equal(
            self.at("the number of outputs"), len(y), len(expected),
            "return y like f(x): one array per output",
        )  # fmt: skip
        for k, (leaf, host) in enumerate(zip(y, expected, strict=True)):
            where = self.at(f"output {k}")
            self.subject.equal(
                f"{where}: the dtype", bare(self.engine.arrays.info(leaf).dtype),
                precise(self.dtype, host),
                "f must run in the dtype of its inputs",
            )  # fmt: skip
            self.subject.same(
                where,
                self.engine.arrays.to_host(leaf),
                host,
                "return the value of f at x",
                self.units,
            )
        return expected

    def derivatives(
        self,
        operation: str,
        found: MaybeArrays,
        expected: Sequence[Host | None],
        like: Arrays,
        remedy: str,
    ) -> Hosts:
        """Checks values, and shape, dtype, device and layout against `like`; returns the values."""
        if len(found) != len(expected):
            raise ConformanceError(
                f"{self.at(operation)} gives {len(found)} arrays, expected {len(expected)}", remedy
            )
        hosts = []
        for k, (array, truth, leaf) in enumerate(zip(found, expected, like, strict=True)):
            shape = tuple(leaf.shape)
            right = np.zeros(shape) if truth is None else np.broadcast_to(truth, shape)
            hosts.append(self._one(f"{self.at(operation)}, array {k}", array, right, leaf, remedy))
        return hosts

    def _one(self, where: str, array: Array | None, right: Host, leaf: Array, remedy: str) -> Host:
        if array is None:
            if np.any(right != 0):
                raise ConformanceError(
                    f"{where} is None, expected {right.ravel()[0]!r} and more",
                    "None says that there is no dependence: return the derivative",
                )
            self.subject.comparisons += 1
            return np.zeros(right.shape)
        info, wanted = self.engine.arrays.info(array), self.engine.arrays.info(leaf)
        for what in ("shape", "dtype", "device", "layout"):
            self.subject.equal(
                f"{where}: the {what}", getattr(info, what), getattr(wanted, what),
                f"return an array of the {what} of what it belongs to",
            )  # fmt: skip
        host = self.engine.arrays.to_host(array)
        self.subject.same(where, host, right, remedy, self.units)
        return host


def inner(a: Sequence[Host], b: Sequence[Host]) -> float:
    """Returns `<a, b> = Re sum(conj(a) b)`."""
    return float(sum(np.vdot(one, two).real for one, two in zip(a, b, strict=True)))
