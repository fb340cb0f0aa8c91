"""`spotcheck`: some calls of rules in a program that is running, judged at the values they see."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from numbers import Real
from textwrap import indent
from threading import Thread
from types import TracebackType
from typing import Any, Self

import numpy as np

from adjudge.check import Options, checked_signature
from adjudge.engine import (
    Arrays,
    AutodiffBackend,
    Step,
    Watcher,
    backend_given,
    imported_backends,
)
from adjudge.errors import Catching, InputError, NotSupportedError, in_words
from adjudge.findings import Fault, Verdict, worst
from adjudge.problem import Stream, fresh_seed, generator
from adjudge.report import Report, short_place, text_of, which_rule
from adjudge.trace.alone import judged_alone
from adjudge.trace.report import is_cut

FIRST_SECONDS = 0.01
"""What judging a call is taken to cost before one was judged. Where it takes longer it is given up,
and tried again with twice as much. The value is ours; a rule of a few numbers takes 5 ms."""
SECONDS_PER_CALL = 3e-6
"""What it costs to be asked about a call, which would take as long to measure: 2 to 4 µs in
PyTorch."""
MOST_TRIES = 8
"""A call that was given up so often, with twice the time each, is not judged. Else one that takes
minutes would take half of the time for ever. The value is ours."""
RESERVE = 1.25
"""A call may take longer than the one before. So many times its time have to be at hand."""


@dataclass
class WatchedRule:
    """What a spot check has found about one rule."""

    name: str
    """The name of the rule in the engine's own words."""
    calls: int = 0
    """How often it was called where its derivative may be taken; calls that are `unseen` are not
    counted."""
    verdicts: dict[Verdict, int] = field(default_factory=dict)
    """How many of these calls were judged, by verdict."""
    step: Step | None = None
    """The first call that is wrong, or the first that was judged, with the values it saw."""
    report: Report | None = None
    """The report on that call."""
    refused: str = ""
    """Why the last call that could not be judged could not."""
    unseen: dict[str, int] = field(default_factory=dict)
    """How many calls had no values that could be shown, by the reason."""

    @property
    def judged(self) -> int:
        """How many calls were judged."""
        return sum(self.verdicts.values())

    @property
    def verdict(self) -> Verdict:
        """FAIL where a call is wrong, and PASS where none is and one agreed."""
        for verdict in (Verdict.FAIL, Verdict.PASS):
            if verdict in self.verdicts:
                return verdict
        return Verdict.INCONCLUSIVE

    @property
    def fault(self) -> Fault:
        """What was found as data. Raises `ValueError` where no call was judged."""
        if self.step is None:
            raise ValueError(f"no call of {self.name} was judged")
        step = self.step
        place = step.rule_place if step.rule else step.place
        return Fault(
            step=step.name,
            rule=step.rule,
            file=place.file,
            line=place.line,
            module=step.module,
            calls=self.calls,
            judged=self.judged,
            wrong=self.verdicts.get(Verdict.FAIL, 0),
            cuts=False,
        )


@dataclass(frozen=True, eq=False)
class SpotcheckReport:
    """What a spot check has found. It is truthy only where calls of all rules that were seen were
    judged, and none is wrong.
    """

    rules: Sequence[WatchedRule]
    """The rules that were called."""
    seconds: float
    """The time that the watched program took, with all that is done here."""
    spent: float
    """The part of it that was taken for watching and judging, in seconds."""
    share: float
    """The part that it was allowed to take."""
    seed: int
    """The seed of the sample and of the probes."""

    @property
    def at_fault(self) -> list[WatchedRule]:
        """The rules of which a call is wrong."""
        return [rule for rule in self.rules if rule.verdict is Verdict.FAIL]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict on any rule; INCONCLUSIVE where none was called."""
        return worst([rule.verdict for rule in self.rules]) if self.rules else Verdict.INCONCLUSIVE

    def __bool__(self) -> bool:
        """Returns whether nothing is wrong, and nothing that was called is left out."""
        return self.verdict is Verdict.PASS

    def __repr__(self) -> str:
        """Returns the headline."""
        return f"<SpotcheckReport {self.headline}>"

    @property
    def headline(self) -> str:
        """One line that says what is at fault."""
        for rule in self.at_fault:
            return f"{self.verdict}: {which_rule(rule.fault)}"
        if not self.rules:
            return f"{self.verdict}: no call of a rule was seen"
        if not any(rule.judged for rule in self.rules):
            return f"{self.verdict}: no call was judged"
        some = "" if self else ", and some rules were not judged"
        return f"{self.verdict}: no call that was judged is wrong{some}"

    def __str__(self) -> str:
        """Returns the headline, what is wrong, what was not judged, and the time it took."""
        lines = [self.headline]
        for rule in self.at_fault:
            assert rule.step is not None
            assert rule.report is not None
            if len(lines) > 1:
                lines.append(which_rule(rule.fault))
            module = f" in {rule.step.module}" if rule.step.module else ""
            lines.append(f"  first seen wrong at {short_place(*rule.step.place)}{module}")
            lines += [indent(text_of(finding), "  ") for finding in rule.report.ranked[:1]]
        if not self.rules:
            lines.append(
                "code that was compiled before calls no rule; it does where it runs uncompiled"
            )
        for rule in self.rules:
            reasons = [f"{reason} ({count})" for reason, count in rule.unseen.items()]
            if not rule.judged:
                reasons += [rule.refused or f"there was no time for it ({rule.calls})"] * bool(
                    rule.calls
                )
            if reasons:
                lines.append(f"not judged: calls of {rule.name}: {'; '.join(reasons)}")
        calls, judged = (sum(getattr(r, n) for r in self.rules) for n in ("calls", "judged"))
        lines.append(
            f"{judged} of {calls} calls were judged, for {self.spent / self.seconds:.2%} of the "
            f"time (allowed: {self.share:.2%}), seed={self.seed}"
            if self.seconds
            else "nothing has run yet"
        )
        return "\n".join(lines)


@checked_signature
def spotcheck(
    *,
    share: float = 0.01,
    seed: int | None = None,
    every: bool = False,
    modules: str | Sequence[str] = (),
    callback: Callable[[WatchedRule], object] | None = None,
    backend: str | AutodiffBackend | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Spotcheck:
    """Judges some calls of rules in a program that is running, at the values that they see.

    What it returns is used as `with adjudge.spotcheck() as watch:` around a training loop, say.
    Calls of custom rules that are made in this thread, and of which a derivative may be taken, are
    judged by the check that judges functions, in reverse mode: a rule that was never judged at its
    first call, then calls drawn at random. Values, gradients, random states, buffers and hooks of
    the program stay as they are without it; a rule is called more often.

    Args:
        share: The part of the time that it may take, above 0 and up to 1. A call is judged once the
            time for it has been saved up, and given up where it takes longer. With 1 every call is
            judged, however long that takes: for tests and short loops.
        seed: Of the sample and of the probes; by default a fresh one.
        every: Whether calls of rules that are part of the engine are judged, too. In PyTorch those
            within calls of modules are.
        modules: The paths of modules, as `model.named_modules()` has them. Only calls within these
            are judged. By default all are.
        callback: Called with a `WatchedRule` when a call of it was found to be wrong. What it
            raises ends the program that is watched.
        backend: The engine that is watched, by its name or itself. By default all are that are
            imported and can be.
        clock: Returns the time in seconds.

    Returns:
        A context manager, whose `report` is the `SpotcheckReport`.

    Raises:
        InputError: An argument makes no sense.
        NotSupportedError: On entry: the engine cannot be watched.
    """
    given: object = share  # which nobody has to have typed
    if not isinstance(given, Real) or not 0 < share <= 1:
        raise InputError(f"share={share!r}", "give a part of the time: above 0, and up to 1")
    names = (modules,) if isinstance(modules, str) else tuple(modules)
    seed = fresh_seed() if seed is None else seed
    return Spotcheck(share, seed, every, names, callback, backend, clock)


@dataclass(eq=False)
class Spotcheck:
    """A program that is watched while it runs: see `spotcheck`, which also says what the arguments
    are. It can be entered once.
    """

    share: float
    seed: int
    every: bool
    modules: Sequence[str]
    callback: Callable[[WatchedRule], object] | None
    backend: str | AutodiffBackend | None
    clock: Callable[[], float]
    rules: dict[Hashable, WatchedRule] = field(default_factory=dict)
    spent: float = 0.0
    start: float = math.nan
    """The time at which it was entered."""
    _end: float | None = None
    _watching: ExitStack = field(default_factory=ExitStack)
    _samplers: list[_Sampler] = field(default_factory=list)

    def __enter__(self) -> Self:
        if not math.isnan(self.start):
            raise InputError("this spot check was used before", "make another one: spotcheck()")
        named = None if self.backend is None else backend_given(self.backend)
        engines = imported_backends() if named is None else [named]
        with ExitStack() as watching:
            refused = []
            for engine in engines:
                self._samplers.append(_Sampler(self, engine))
                with Catching(NotSupportedError) as caught:
                    watching.enter_context(engine.watching(self._samplers[-1]))
                refused += [caught.error] if caught.error is not None else []
            if len(refused) == len(engines):
                raise (
                    refused[0]
                    if refused
                    else InputError(
                        "no engine is imported that could be watched", "import it before"
                    )
                )
            self._watching = watching.pop_all()
        self.start = self.clock()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._watching.close()
        self._end = self.clock()

    @property
    def report(self) -> SpotcheckReport:
        """What was found so far."""
        for sampler in self._samplers:
            for rule, calls in sampler.calls.items():
                if rule in self.rules or not self.modules:
                    self.found(rule).calls = calls
        rules = list(self.rules.values())
        return SpotcheckReport(rules, self.seconds, self.spent, self.share, self.seed)

    @property
    def seconds(self) -> float:
        """The time since it was entered, or until it was left."""
        if math.isnan(self.start):
            return 0.0
        return (self.clock() if self._end is None else self._end) - self.start

    def found(self, rule: Hashable) -> WatchedRule:
        """Returns what was found about a rule, which may be new."""
        if rule not in self.rules:
            self.rules[rule] = WatchedRule(str(getattr(rule, "__qualname__", rule)))
        return self.rules[rule]


@dataclass(frozen=True)
class _Given:
    """A call that is judged, and what is known of the time that it takes."""

    rule: Hashable
    step: Step
    results: Arrays
    needs: float = 0.0
    """The time that has to be at hand before it is tried once more, in seconds."""
    tries: int = 1


class _Sampler(Watcher):
    """Which calls of an engine are judged, and when."""

    def __init__(self, watch: Spotcheck, backend: AutodiffBackend) -> None:
        """Nothing was called yet."""
        self.watch, self.backend, self.every = watch, backend, watch.every
        self.calls: dict[Hashable, int] = {}
        """How often each rule was called."""
        self._random = generator(watch.seed, Stream.SPOTCHECK)
        self._needs: dict[Hashable, float] = {}
        """The time that has to be at hand for a call of each rule that was judged, in seconds."""
        self._given_up: _Given | None = None
        """A call that took longer than the time at hand. It is judged before any other: calls that
        are wrong take longer, and would never be found."""
        self._passed: set[Hashable] = set()
        """The rules that compute no arrays."""
        self._since = 0
        """The calls since one was judged."""
        self._skip: int | None = None
        """How many calls are passed over before the next one is judged."""
        self._wanted: Hashable = None
        self._from = 0.0
        """When the call that is wanted was made."""

    def _at_hand(self) -> float:
        watch = self.watch
        if watch.share == 1:  # all of the time: there is none to save up
            return math.inf
        return watch.share * (watch.clock() - watch.start) - watch.spent

    def ready(self) -> bool:
        self.watch.spent += SECONDS_PER_CALL
        given = self._given_up
        # A rule that is new may be called.
        return self._at_hand() >= (FIRST_SECONDS if given is None else given.needs)

    def wanted(self, rule: Hashable) -> bool:
        """A call is wanted where its time is at hand. Then a rule that is new comes first, and of
        the others the call is drawn, of as many as were made since the last one. Else that after
        the longest pause would always be the one: its time is at hand before that of the others.
        """
        self.watch.spent += SECONDS_PER_CALL
        self._wanted = None
        if rule in self._passed:
            return False
        self.calls[rule] = self.calls.get(rule, 0) + 1
        self._since += 1
        at_hand, given = self._at_hand(), self._given_up
        if given is not None:
            if at_hand >= given.needs:
                self._judge(given, self.watch.clock())
                return False
            # Others wait for it, unless that would take longer than the program has run.
            if given.needs - at_hand <= self.watch.share * self.watch.seconds:
                return False
        if at_hand < self._needs.get(rule, FIRST_SECONDS):
            return False
        if rule in self._needs and self.watch.share < 1:
            if self._skip is None:
                self._skip = int(self._random.integers(self._since))
            if self._skip:
                self._skip -= 1
                return False
        self._wanted, self._from = rule, self.watch.clock()
        return True

    def seen(self, step: Step | None, results: Arrays = ()) -> None:
        watch, key, self._wanted = self.watch, self._wanted, None
        if step is None:
            self._passed.add(key)
            del self.calls[key]
        elif watch.modules and not any(_within(step.module, name) for name in watch.modules):
            watch.spent += watch.clock() - self._from
        else:
            self._since, self._skip = 0, None
            self._judge(_Given(key, step, results), self._from)

    def _judge(self, given: _Given, start: float) -> None:
        """Judges a call in the time that is at hand; what passed since `start` is part of it."""
        watch, step, rule = self.watch, given.step, self.watch.found(given.rule)
        rule.calls = self.calls[given.rule]
        self._given_up = None if given is self._given_up else self._given_up
        allowed = self._at_hand()
        found = self._in_time(given, start + allowed, watch.seed + rule.judged)
        took = watch.clock() - start
        watch.spent += took
        if found is None:
            needs = self._needs[given.rule] = 2 * max(allowed, took)
            if given.tries < MOST_TRIES and self._given_up is None:
                self._given_up = replace(given, needs=needs, tries=given.tries + 1)
            else:
                rule.refused = f"take longer than {took:.2g} seconds to judge"
            return
        self._needs[given.rule] = RESERVE * took
        if isinstance(found, str):
            rule.refused = found
            return
        verdict = found.verdict
        if verdict is Verdict.FAIL and is_cut(step, found):  # as one that is meant
            verdict = Verdict.INCONCLUSIVE
        first = rule.step is None or (verdict is Verdict.FAIL and verdict not in rule.verdicts)
        rule.verdicts[verdict] = rule.verdicts.get(verdict, 0) + 1
        if first:
            rule.step, rule.report = step, found
        if verdict is Verdict.FAIL and watch.callback is not None:
            watch.callback(rule)

    def unseen(self, rule: Hashable, reason: str) -> None:
        if rule is self._wanted:  # it was tried, which takes part of the time
            self.watch.spent += self.watch.clock() - self._from
            self.calls[rule] -= 1
            self._since, self._skip, self._wanted = 0, None, None
            # It has had its first turn: others are not kept waiting for it.
            self._needs.setdefault(rule, FIRST_SECONDS)
        counts = self.watch.found(rule).unseen
        counts[reason] = counts.get(reason, 0) + 1

    def _in_time(self, given: _Given, deadline: float, seed: int) -> Report | str | None:
        """Returns what is found about a call, or `None` where the time is up before.

        It is judged in a thread of its own, which has none of the modes and settings that the
        program has set for this one, as autocast and the hooks of checkpointing.
        """
        clock, step = self.watch.clock, given.step
        limit = [deadline]

        def run(operands: Any) -> Any:
            if clock() > limit[0]:
                raise _TimeIsUp
            return step.run(operands)

        timed = Step(**{**vars(step), "run": run})
        arrays = self.backend.arrays
        options: Options = {"seed": seed, "captured": False, "blame": False}
        found: list[Report | str] = []

        def judge() -> None:
            try:
                # Whatever goes wrong here must not end the program.
                with Catching(Exception) as caught:
                    values = [arrays.to_host(step.operands[k]) for k in step.marked]
                    if all(np.isfinite(value).all() for value in values):
                        of_step = judged_alone(
                            self.backend, timed, given.results, step.marked, options
                        )
                    else:
                        of_step = "get values that are not finite"
                    found.append(of_step)
                if caught.error is not None:
                    found.append(f"cannot be judged: {in_words(caught.error)}")
            except _TimeIsUp:
                found.clear()

        thread = Thread(target=copy_context().run, args=(judge,), daemon=True)
        thread.start()
        try:
            thread.join()
        finally:
            if thread.is_alive():  # an interrupt: global state is put back before it goes on
                limit[0] = -math.inf
                thread.join()
        return found[0] if found else None


class _TimeIsUp(BaseException):
    """The time for a check is up. It ends it as an interrupt does."""


def _within(module: str, name: str) -> bool:
    return module == name or module.startswith(f"{name}.")
