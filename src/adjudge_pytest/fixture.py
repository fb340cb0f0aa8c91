"""One engine, as a test sees it: arrays, and checks that raise."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
import pytest

import adjudge
from adjudge.check import unexpected
from adjudge.engine import host_array, placed
from adjudge.errors import InputError, NotSupportedError
from adjudge.findings import worst

Array = Any


class EngineUnderTest:
    """What the fixture `adjudge_backend` gives: one engine, its arrays and its checks.

    `name`, `xp` (the Array API namespace), `device` (where its arrays live) and `backend` (the
    `adjudge.AutodiffBackend`) say which. Random numbers depend on the name of the test and on
    `--adjudge-seed`, not on the engine, nor on the order of tests.
    """

    def __init__(
        self,
        backend: adjudge.AutodiffBackend,
        seed: int,
        subtest: Callable[[str], AbstractContextManager[None]] | None = None,
        device: str | None = None,
    ) -> None:
        """`subtest`: opens a subtest of this name; `None`: there are none. `device`: where checks
        run and arrays are made; `None`: arrays on the engine's default, checks where these are.
        """
        self.backend = backend
        self.name = backend.name
        self.xp = backend.xp
        self.seed = seed
        example = backend.arrays.make(np.zeros(1), "float32", device)
        self.device = backend.arrays.info(example).device
        self._chosen = device
        self._widest = "float64" if _has_double(backend, device) else "float32"
        self._subtest = subtest
        self._drawn = 0
        self._checked = 0

    def __repr__(self) -> str:
        """`adjudge_backend(torch, cpu)`."""
        return f"adjudge_backend({self.name}, {self.device})"

    def array(self, spec: Any, dtype: str | None = None, device: str | None = None) -> Array:
        """An array of this engine.

        Args:
            spec: A NumPy array, nested lists or a number: exactly these values. Or a shape, as a
                tuple: random values (standard normal), the same on every engine.
            dtype: Its dtype, by name. `None`: that of `spec`. Random values and nested lists of
                floats are float64, or float32 where the device of the run has no float64.
            device: One of `backend.arrays.devices()`. `None`: that of `--adjudge-device`, or the
                engine's default. A check moves it there as well, unless it has `device=None`.

        Raises: `InputError` where the engine cannot hold exactly this.
        """
        if isinstance(spec, tuple):
            dtype = dtype or self._widest
            host = self._random(_shape(spec), dtype)
        elif isinstance(spec, int):  # a bool as well
            raise InputError(f"{spec} is no array", f"give ({spec},) for a shape, [{spec}] a value")
        else:
            host = host_array(spec, "spec")
            if dtype is None and host.dtype == np.float64 and not hasattr(spec, "dtype"):
                dtype = self._widest
            if dtype is not None and host.dtype.kind in "biu":
                host = host.astype(np.float64 if _floating(dtype) else host.dtype)
            if host.dtype.kind == "c" and dtype is not None and not dtype.startswith("complex"):
                raise InputError(
                    f"complex values and dtype={dtype!r}", "give a complex dtype, or the real part"
                )
        return placed(self.backend, host, dtype, device or self._chosen, "spec")

    def arrays(
        self, *specs: Any, dtype: str | None = None, device: str | None = None
    ) -> tuple[Array, ...]:
        """A tuple with the `array` of each of `specs`. NumPy arrays of integers and booleans keep
        their dtype whatever `dtype` is.
        """
        return tuple(self.array(spec, None if _integers(spec) else dtype, device) for spec in specs)

    def check(
        self,
        f: Callable[..., Any],
        *inputs: Any,
        subtests: bool = False,
        **options: Unpack[adjudge.Options],
    ) -> adjudge.Report:
        """`adjudge.examine(f, inputs, **options)` on this engine, and on the device that
        `--adjudge-device` names. Raises `GradcheckError` unless the verdict is PASS.

        Args:
            f, inputs, options: As for `examine`: `order=2`, `directions=`, `points="special"`;
                `device=None` leaves every array where it is. `f` may be a `ByHand`, which it has
                to be on an engine without derivatives.
            subtests: A subtest for each point of `points=`, or else for each composition of modes.
                All in one, before pytest 9 and where the mark `adjudge_xfail` applies.
        """
        __tracebackhide__ = True
        known = {*adjudge.Options.__annotations__, "subtests"}
        for name in options:
            if name not in known:
                raise unexpected("check", name, known)
        report = adjudge.examine(f, inputs, **self._fixed(options))
        if subtests and self._subtest is not None:
            for name, part in _parts(report):
                with self._subtest(name):
                    _demand(part)
            if any(not part for _, part in _parts(report)):
                return report
        _demand(report)
        return report

    def gradcheck(self, f: Callable[..., Any], inputs: Any, **options: Any) -> adjudge.Report:
        """`adjudge.gradcheck(f, inputs, **options)` on this engine."""
        __tracebackhide__ = True
        return adjudge.gradcheck(f, inputs, **self._fixed(options))

    def gradgradcheck(
        self, f: Callable[..., Any], inputs: Any, grad_outputs: Any = None, **options: Any
    ) -> adjudge.Report:
        """`adjudge.gradgradcheck(f, inputs, grad_outputs, **options)` on this engine."""
        __tracebackhide__ = True
        return adjudge.gradgradcheck(f, inputs, grad_outputs, **self._fixed(options))

    def _fixed(self, options: Mapping[str, Any]) -> Any:
        """`options` with this engine and, unless given, the device of the run and a seed of its
        own for every check.
        """
        if "backend" in options:
            raise InputError(
                f"backend={options['backend']!r} in a check on {self.name}",
                "leave it out, or use adjudge.gradcheck",
            )
        self._checked += 1
        seed = (self.seed + self._checked) % 2**32
        return {"seed": seed, "device": self._chosen, **options, "backend": self.backend}

    def _random(self, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
        if not _floating(dtype):
            raise InputError(f"random values of dtype {dtype!r}", "give the values themselves")
        random = np.random.default_rng([self.seed, self._drawn])
        self._drawn += 1
        values = random.standard_normal(shape)
        if dtype.startswith("complex"):
            return np.asarray(values + 1j * random.standard_normal(shape))
        return np.asarray(values)


def _floating(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat", "complex"))


def _integers(spec: Any) -> bool:
    return isinstance(spec, np.ndarray) and spec.dtype.kind in "biu"


def _shape(spec: tuple[Any, ...]) -> tuple[int, ...]:
    if all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in spec):
        return spec
    raise InputError(f"{spec} is no shape", "give a tuple of integers; values are a list or array")


def _parts(report: adjudge.Report) -> Iterator[tuple[str, adjudge.Report]]:
    """The report at each point that decides something, or that of each composition of modes."""
    if report.points:
        yield from ((name, one) for name, one in report.points.items() if not one.silent)
        return
    for mode, outcome in report.modes.items():
        about = [finding for finding in report.findings if finding.mode == mode]
        verdict = (
            outcome
            if isinstance(outcome, adjudge.Verdict)
            else worst([adjudge.Verdict.INCONCLUSIVE, *(finding.verdict for finding in about)])
        )
        yield mode, replace(report, modes={mode: outcome}, verdict=verdict, findings=about)


def _demand(report: adjudge.Report) -> None:
    __tracebackhide__ = True
    if not report:
        raise adjudge.GradcheckError(report)


@contextmanager
def engine_under_test(
    backend: adjudge.AutodiffBackend,
    seed: int,
    subtest: Callable[[str], AbstractContextManager[None]] | None,
    device: str | None = None,
) -> Iterator[EngineUnderTest]:
    """The engine with what double precision needs (64-bit mode, say), and its global state as it
    was afterwards.
    """
    with ExitStack() as stack:
        double = (
            [backend.arrays.make(np.zeros(1), "float64", device)]
            if _has_double(backend, device)
            else []
        )
        stack.enter_context(backend.environment.isolation(double))
        yield EngineUnderTest(backend, seed, subtest, device)


def _has_double(backend: adjudge.AutodiffBackend, device: str | None) -> bool:
    try:
        backend.arrays.make(np.zeros(1), "float64", device)
    except NotSupportedError:
        return False
    return True


def seed_of(item: pytest.Item, engine: str, seed: int) -> int:
    """A number that depends on the test and `seed`, and is the same for every engine."""
    name, bracket, parameters = item.name.partition("[")
    rest = parameters.removesuffix("]").split("-") if bracket else []
    if engine in rest:
        rest.remove(engine)
    parent = item.parent.nodeid if item.parent is not None else ""
    text = "\n".join([parent, name, "-".join(rest), str(seed)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def subtest_of(request: pytest.FixtureRequest) -> Callable[[str], AbstractContextManager[None]]:
    """What opens a subtest of the test; its fixture is set up when it is first needed."""

    def open_one(name: str) -> AbstractContextManager[None]:
        context: AbstractContextManager[None] = request.getfixturevalue("subtests").test(name)
        return context

    return open_one
