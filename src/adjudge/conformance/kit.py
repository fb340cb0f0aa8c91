"""The conformance kit: every check by a name, and all of them together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from adjudge.conformance import (
    arrays,
    capabilities,
    derivatives,
    elementary,
    environment,
    linear,
    shapes,
    verdicts,
)
from adjudge.conformance.capabilities import BY_HAND, CAPABILITIES, DERIVATIVES
from adjudge.conformance.environment import Disturbances
from adjudge.conformance.faults import FAULTS
from adjudge.conformance.scenario import Scenario
from adjudge.conformance.subject import ConformanceError, Subject
from adjudge.engine import AutodiffBackend, backend_named
from adjudge.errors import AdjudgeError, InputError

SCENARIOS: tuple[Scenario, ...] = (
    *elementary.SCENARIOS,
    *shapes.SCENARIOS,
    *linear.SCENARIOS,
)
"""All scenarios of the kit."""

FEW = 2
"""The number of faults that a scenario is tried with unless `thorough`. The next gets others."""


class Check(NamedTuple):
    """One question to a backend."""

    id: str
    run: Callable[[], None]
    """Raises `ConformanceError`, or what the backend raises."""


@dataclass(frozen=True)
class Summary:
    """How much was asked of a backend, all of which it answered rightly."""

    backend: str
    checks: int
    comparisons: int
    scenarios: int
    excused: tuple[str, ...]

    def __str__(self) -> str:
        """Returns the summary in one line."""
        excused = f", excused: {', '.join(self.excused)}" if self.excused else ""
        return (
            f"{self.backend} conforms: {self.checks} checks, {self.comparisons} comparisons, "
            f"{self.scenarios} scenarios{excused}"
        )


def assert_conforms(
    backend: str | AutodiffBackend,
    *,
    excused: Mapping[str, str] | None = None,
    scenarios: Sequence[str | Scenario] | None = None,
    thorough: bool = False,
    disturb: Disturbances | None = None,
) -> Summary:
    """Raises unless an adapter keeps the contract (docs/how-to/write-an-adapter.md).

    Args:
        backend: The name of the backend, or an instance. An array namespace without derivatives
            (`"numpy"`) is checked for its arrays, and with the closed forms as derivatives by hand.
        excused: The capabilities that the engine lacks, each with the reason. An excuse that is
            not true fails.
        scenarios: Names of `SCENARIOS`, or scenarios of your own; all where it is left out.
        thorough: Whether every scenario runs in each of its dtypes, with every fault that applies.
        disturb: Global state of the engine that has to be restored, by name: what changes it, and
            what reads it (`None` where `random_state()` does).

    Returns:
        How much was compared.

    Raises:
        ConformanceError: With every check that failed, what was found and what to do.
        InputError: An excuse for something that is no capability; an unknown scenario.
    """
    __tracebackhide__ = True
    kit = _Kit(backend, excused, scenarios, thorough, disturb)
    failures: list[tuple[str, Exception]] = []
    count = 0
    for check in kit.checks():
        count += 1
        try:
            check.run()
        except _Skipped:
            count -= 1
        except Exception as error:  # whatever the backend raises is a finding
            failures.append((check.id, error))
    subject = kit.subject
    if failures:
        causes = _by_cause(failures)
        what = f"{len(causes)} causes" if len(causes) > 1 else "one cause"
        raise ConformanceError(
            f"{subject.backend.name} does not conform: {len(failures)} of {count} checks fail, "
            f"for {what}",
            "\n".join(causes).replace("\n", "\n  "),
        ) from failures[0][1]
    if not subject.comparisons:
        raise ConformanceError(
            f"nothing of {subject.backend.name} was compared", "select scenarios that run on it"
        )
    return Summary(
        subject.backend.name, count, subject.comparisons, len(kit.scenarios), tuple(subject.excused)
    )


def checks(
    backend: str | AutodiffBackend,
    *,
    excused: Mapping[str, str] | None = None,
    scenarios: Sequence[str | Scenario] | None = None,
    thorough: bool = False,
    disturb: Disturbances | None = None,
) -> Iterator[Check]:
    """Yields the checks of `assert_conforms` one by one, each with a name, so that each can be a
    test.
    """
    kit = _Kit(backend, excused, scenarios, thorough, disturb)
    for name, run in kit.checks():
        yield Check(name, partial(_alone, kit, run))


def _alone(kit: _Kit, run: Callable[[], None]) -> None:
    __tracebackhide__ = True
    before = kit.subject.comparisons
    try:
        run()
    except _Skipped as skipped:
        raise ConformanceError(skipped.found, skipped.remedy) from skipped
    if kit.subject.comparisons == before:
        raise ConformanceError("this check compared nothing", "report it: the kit is wrong")


class _Skipped(ConformanceError):
    """A check that needs a capability whose own check fails."""


NAMED = 3
"""How many checks a message names that fail for the cause of another one."""


def _by_cause(failures: Sequence[tuple[str, Exception]]) -> list[str]:
    """Returns a text for each cause, in the order in which they were met: the first failure whole,
    and how many others there are.

    Two failures have one cause where the same is to be done about them, or where the same is
    raised but for its numbers.
    """
    groups: dict[tuple[str, ...], list[tuple[str, Exception]]] = {}
    for name, error in failures:
        remedy = error.remedy if isinstance(error, AdjudgeError) else ""
        first = re.sub(r"\d+", "#", (remedy or str(error)).partition("\n")[0])
        groups.setdefault((type(error).__name__, first), []).append((name, error))
    return [
        f"{name}: {_told(error)}" + _likewise([other for other, _ in others])
        for (name, error), *others in groups.values()
    ]


def _likewise(names: Sequence[str]) -> str:
    if not names:
        return ""
    rest = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"\n  {len(names)} more for this cause: {', '.join(names[:NAMED])}{rest}"


def _told(error: Exception) -> str:
    if isinstance(error, AdjudgeError):
        return str(error)
    first = (str(error).splitlines() or [""])[0]
    return f"raises {type(error).__name__}: {first}\n  mend the adapter; see the traceback above"


class _Kit:
    """The checks of one backend."""

    def __init__(
        self,
        backend: str | AutodiffBackend,
        excused: Mapping[str, str] | None,
        scenarios: Sequence[str | Scenario] | None,
        thorough: bool,
        disturb: Disturbances | None,
    ) -> None:
        engine = backend_named(backend) if isinstance(backend, str) else backend
        if not isinstance(engine, AutodiffBackend):
            raise InputError(
                f"a {type(engine).__name__} is no backend", "give a name or an AutodiffBackend"
            )
        self.subject = Subject(engine, dict(excused or {}))
        self.scenarios = _selected(scenarios)
        self.thorough = thorough
        self.disturb = dict(disturb or {})
        self._missing: dict[str, bool] = {}
        for name, reason in self.subject.excused.items():
            if name not in CAPABILITIES:
                raise InputError(
                    f"excused={{{name!r}: …}} names no capability",
                    f"one of: {', '.join(CAPABILITIES)}",
                )
            if not reason or not isinstance(reason, str):
                raise InputError(f"the excuse for {name!r} has no reason", "give one, as text")

    def checks(self) -> Iterator[Check]:
        asked = [one for one in self.scenarios if one.needs.isdisjoint(self.subject.excused)]
        yield Check("namespace", partial(arrays.namespace, self.subject, asked))
        yield from self._listed("capabilities", self._capabilities)
        yield from self._listed("arrays", self._arrays)
        for k, scenario in enumerate(self.scenarios):
            yield from self._listed(scenario.name, partial(self._scenario, scenario, k))

    def _listed(self, name: str, listing: Callable[[], Iterator[Check]]) -> Iterator[Check]:
        """Yields the checks of a part. Which there are is asked of the adapter (its devices, its
        dtypes, an array): what it raises then is what the last check of the part raises.
        """
        listed = listing()
        while True:
            try:
                check = next(listed)
            except StopIteration:
                return
            except Exception as error:  # whatever the backend raises is a finding
                yield Check(f"{name}-what there is", partial(_raise, error))
                return
            yield check

    # -- what there is

    @property
    def _asked(self) -> list[str]:
        """The capabilities that matter to this backend and this selection."""
        subject = self.subject
        needed = {
            name
            for scenario in self.scenarios
            for name in scenario.needs
            if (scenario.needs - {name}).isdisjoint(subject.excused)
        }
        asked = [name for name in DERIVATIVES if not (subject.plain and name in BY_HAND)]
        asked += [name for name in CAPABILITIES if name in needed or name == "float64"]
        if len(subject.arrays.devices()) > 1:
            asked.append("place")
        forward = ("FR", "RF", "FF") if "jvp" in subject.excused else ()
        return [name for name in asked if name not in subject.excused and name not in forward]

    def _capabilities(self) -> Iterator[Check]:
        subject = self.subject
        for name in self._asked:
            yield Check(
                f"capability-{name}", partial(capabilities.present, subject, name, self._for(name))
            )
        for name in subject.excused:
            yield Check(
                f"excused-{name}",
                partial(capabilities.truly_missing, subject, name, self._for(name)),
            )

    def _for(self, name: str) -> Sequence[Scenario]:
        """Returns the scenarios to try a capability on: all of them where none of the selection
        needs it.
        """
        mode = capabilities.MODES.get(name, name)
        mine = [s for s in self.scenarios if name in s.needs or mode in s.modes]
        return mine or SCENARIOS

    def _lacks(self, name: str) -> bool:
        if name not in self._missing:
            try:
                error = capabilities.missing(self.subject, name, self._for(name))
            except capabilities.OtherError as other:
                error = other
            except ConformanceError:  # it is there, and wrong
                error = None
            self._missing[name] = error is not None
        return self._missing[name]

    def _needing(self, names: Sequence[str], run: Callable[[], None]) -> Callable[[], None]:
        """Returns `run`, which is skipped where the engine lacks one of these capabilities."""

        def guarded() -> None:
            for name in names:
                if self._lacks(name):
                    raise _Skipped(
                        f"this needs {name}, which is missing", f"see the check capability-{name}"
                    )
            run()

        return guarded

    # -- arrays and environment

    def _arrays(self) -> Iterator[Check]:
        subject = self.subject
        yield Check("names", partial(arrays.names, subject))
        yield Check("refusals", partial(arrays.refusals, subject))
        for dtype in subject.dtypes:
            if "complex" in subject.excused and dtype.startswith("complex"):
                continue
            for name, check in (
                ("round trip", arrays.round_trip),
                ("separate memory", arrays.separate),
                ("description", arrays.described),
            ):
                yield Check(f"arrays-{name}-{dtype}", partial(check, subject, dtype))
        if "integer inputs" not in subject.excused:
            yield Check("arrays-integers", partial(arrays.integers, subject))
        if len(subject.arrays.devices()) == 1 or "place" not in subject.excused:
            yield Check("arrays-devices", partial(arrays.devices, subject))
        yield Check("environment-isolation", partial(environment.isolation, subject))
        yield Check(
            "environment-random state", partial(environment.randomness, subject, self.disturb)
        )
        for name, disturbance in self.disturb.items():
            yield Check(
                f"environment-{name}", partial(environment.disturbed, subject, name, disturbance)
            )

    # -- scenarios

    def _scenario(self, scenario: Scenario, number: int) -> Iterator[Check]:
        subject = self.subject
        if not scenario.needs.isdisjoint(subject.excused) or arrays.absent(subject, scenario):
            return  # excused, or said at once for all scenarios by the check of the namespace
        dtypes = subject.dtypes_of(scenario)
        modes = [m for m in subject.modes_of(scenario) if not (subject.plain and m in BY_HAND)]
        needs = list(scenario.needs)
        for k, dtype in enumerate(dtypes):
            for mode in modes if k == 0 or self.thorough else modes[:2]:
                name = {"R": "vjp", "F": "jvp"}.get(mode, mode)
                needed = [*needs, *([] if mode == "R" else ["jvp"] if mode == "F" else [mode])]
                call = (
                    partial(derivatives.second_order, subject, scenario, dtype, mode)
                    if len(mode) == 2
                    else partial(getattr(derivatives, name), subject, scenario, dtype)
                )
                yield self._check(scenario, dtype, name, needed, call)
        for dtype in dtypes if self.thorough else dtypes[:1]:
            yield from self._judged(scenario, dtype, modes, number)
            if not subject.plain and "vmap" not in subject.excused and scenario.double_vjp:
                run = partial(derivatives.batched, subject, scenario, dtype)
                yield self._check(scenario, dtype, "vmap", [*needs, "vmap"], run)
        for device in subject.arrays.devices()[1:]:
            for dtype in [d for d in dtypes if device in arrays.places(subject, d)][:1]:
                run = partial(derivatives.vjp, subject, scenario, dtype, device)
                yield self._check(scenario, dtype, f"on {device}", needs, run)

    def _judged(
        self, scenario: Scenario, dtype: str, modes: Sequence[str], number: int
    ) -> Iterator[Check]:
        """Yields the checks of what the checker says of right and of wrong derivatives."""
        subject, needs = self.subject, list(scenario.needs)
        words = tuple(modes if self.thorough or number == 0 else modes[:2])
        run = partial(verdicts.right, subject, scenario, dtype, words)
        needed = [*needs, *("jvp" if mode == "F" else mode for mode in words if mode != "R")]
        yield self._check(scenario, dtype, "passes", needed, run)
        array = subject.arrays.make(np.ones(1), dtype)
        precision = subject.backend.environment.precision(array)
        double = "complex128" if "complex" in scenario.needs else "float64"
        coarse = precision.result_eps > 0 or double not in subject.dtypes
        for wrong in scenario.wrong_rules:
            if wrong.slight and coarse:
                continue
            if wrong.mode in modes or (wrong.mode != "RR" and not subject.plain):
                run = partial(verdicts.wrong_rule, subject, scenario, dtype, wrong)
                yield self._check(scenario, dtype, f"wrong rule: {wrong.name}", needs, run)
        fitting = [f for f in FAULTS if verdicts.applicable(subject, scenario, dtype, f)]
        few = [f for k, f in enumerate(fitting) if (k + number * FEW) % len(fitting) < FEW]
        for fault in fitting if self.thorough else few:
            run = partial(verdicts.faulty, subject, scenario, dtype, fault)
            needed = [*needs, *(["jvp"] if verdicts.forward_too(subject, scenario, fault) else [])]
            yield self._check(scenario, dtype, f"fault {fault}", needed, run)
        if number == 0:
            run = partial(verdicts.primitive, subject, scenario, dtype)
            yield self._check(scenario, dtype, "required methods alone", needs, run)
            for mode in ("RR", "FR", "RF", "FF"):
                if mode in subject.excused:
                    run = partial(verdicts.unsupported, subject, scenario, dtype, mode)
                    yield self._check(scenario, dtype, f"{mode} is unsupported", needs, run)

    def _check(
        self,
        scenario: Scenario,
        dtype: str,
        what: str,
        needs: Sequence[str],
        run: Callable[[], None],
    ) -> Check:
        return Check(f"{scenario.name}-{dtype}-{what}", self._needing(needs, run))


def _raise(error: Exception) -> None:
    raise error


def _selected(scenarios: Sequence[str | Scenario] | None) -> tuple[Scenario, ...]:
    if scenarios is None:
        return SCENARIOS
    known = {scenario.name: scenario for scenario in SCENARIOS}
    found = []
    for scenario in scenarios:
        if isinstance(scenario, str) and scenario not in known:
            raise InputError(f"scenario {scenario!r} is not known", f"one of: {', '.join(known)}")
        found.append(known[scenario] if isinstance(scenario, str) else scenario)
    if not found:
        raise InputError("scenarios= selects nothing", "name at least one, or leave it out")
    return tuple(found)
