"""The verb `crosscheck`: one function on several engines, compared with one another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import combinations
from numbers import Number
from types import ModuleType
from typing import Any, Never, Unpack

import numpy as np

from adjudge.check import (
    CrossOptions,
    Options,
    function_name,
    inputs_apart,
    known_options,
    requested_modes,
    require_kind,
    settings_of,
)
from adjudge.cross.compare import STRUCTURE, EngineComparison, Outputs, first_line
from adjudge.cross.engine import Engine, engine_of, in_double, with_derivatives_of
from adjudge.cross.report import VALUE, CrosscheckError, CrossReport, LeftOut, Omission
from adjudge.engine import AutodiffBackend, ByHand, backend_given, is_array_like, names
from adjudge.errors import (
    AdjudgeError,
    BackendNotInstalledError,
    Catching,
    FlagError,
    InputError,
    described,
)
from adjudge.estimate import dtype_inside
from adjudge.findings import Status, Verdict, worst
from adjudge.report import Report
from adjudge.verbs import examine

Functions = Callable[..., Any] | Mapping[str, Callable[..., Any]]

DOUBLE = "float64"


def crosscheck(
    f: Functions,
    arrays: Any,
    backends: Sequence[str | AutodiffBackend],
    *more: Never,
    order: int = 1,
    reference: str | None = DOUBLE,
    compile: bool | None = None,
    raise_exception: bool = True,
    **options: Unpack[CrossOptions],
) -> CrossReport:
    """Whether `f` has the same values and derivatives on every engine, and the right ones.

    Values, vjps, jvps and, with `order=2`, second derivatives are compared in this order, for the
    same random probes, entry by entry; and on every engine with differences of `f` there.

    Args:
        f: One function for all engines, written against the Array API: called as `f(*arrays)`, or
            as `f(xp, *arrays)` if it has a first (or a keyword-only) parameter called `xp`, which
            is the engine's namespace. Or a mapping from names of backends to functions.
        arrays: A tuple or list of positional arguments: NumPy arrays, nested lists, dicts and
            tuples of these. Every engine gets them with shape, dtype and values kept.
        backends: Two engines or more, by name or instance. An engine without derivatives (NumPy)
            is compared in values, and its differences judge the derivatives of another engine.
        order: 1 or 2.
        reference: What numbers of engines are held against. `"float64"`: for narrower inputs the
            same function with its inputs widened, on the first engine where that runs; else one
            another. The name of a backend: that engine's. `None`: one another.
        compile: As for `examine`: `None` judges compiled derivatives, too, where an engine is
            mostly used like that (JAX), which takes most of the time; `False` does not.
        raise_exception: `False` returns a falsy report instead of raising `CrosscheckError`.
        options: See `adjudge.Options`; all but `kwargs`, `modes`, `points`, `domain`, `backend`,
            `outputs`, `captured` and `blame`. All of them concern the comparison of each engine
            with differences: what two engines may differ by is measured, and `atol` and `rtol` do
            not change it.

    Returns:
        The `CrossReport`, truthy only if everything asked for was compared and agreed.

    Raises:
        CrosscheckError: The verdict is FAIL or INCONCLUSIVE; carries the report.
        InputError: Fewer than two backends, none with derivatives, or arguments without meaning.
        BackendError: An unknown backend, or one that is not installed.
    """
    __tracebackhide__ = True
    if order not in (1, 2) or isinstance(order, bool):
        raise InputError(f"order={order!r}", "give order=1 or order=2")
    if more:
        raise inputs_apart("crosscheck", "['torch', 'jax']")
    require_kind("compile", compile, bool | None)
    require_kind("raise_exception", raise_exception, bool)
    given = _for_every_engine(options)
    engines = _engines(f, arrays, _backends(backends), given)
    _require_reference(reference, engines)
    with ExitStack() as surroundings:
        for engine in engines:  # f on one engine may change the state of another
            surroundings.enter_context(engine.backend.environment.isolation(()))
        report = _Crosscheck(engines, order, compile, given).report(reference)
    if not report and raise_exception:
        raise CrosscheckError(report)
    return report


class _Crosscheck:
    """One crosscheck on its way."""

    def __init__(
        self, engines: Sequence[Engine], order: int, compile: bool | None, options: Options
    ) -> None:
        self.engines, self.order, self.compile, self.options = engines, order, compile, options
        self.seed = int(options["seed"] or 0)
        self.raised: dict[str, str] = {}
        self.errors: list[Exception] = []
        self.omissions: list[LeftOut] = []
        self.reports: dict[str, Report] = {}
        self.outputs: dict[str, Outputs] = {}

    def report(self, reference: str | None) -> CrossReport:
        """Returns the report; `reference` as for `crosscheck`."""
        running = [engine for engine in self.engines if self._runs(engine)]
        # Engines without derivatives come last, since those of one that was examined are theirs.
        last = sorted(running, key=lambda engine: not engine.differentiates)
        examined = {engine.name for engine in last if self._examined(engine, running)}
        running = [engine for engine in running if engine.name in examined]
        self.reports = {e.name: self.reports[e.name] for e in running if e.name in self.reports}
        judged = any(engine.differentiates for engine in running)
        if not judged and self.errors and all(isinstance(e, AdjudgeError) for e in self.errors):
            raise self.errors[0]
        modes = requested_modes(self.order, None) or []
        comparison = EngineComparison(running, self.reports, self.outputs, modes, self.seed)
        against = self._compare(comparison, running, reference)
        return self._concluded(comparison, modes, against)

    def _runs(self, engine: Engine) -> bool:
        """Returns whether f runs on the engine at x."""
        with Catching(AdjudgeError) as caught:
            self.outputs[engine.name] = engine.outputs()
            engine.base()
        return self._went_through(engine, caught)

    def _went_through(self, engine: Engine, caught: Catching) -> bool:
        """Returns whether nothing was raised; what was is kept for the report."""
        if (error := caught.error) is not None:
            self.raised[engine.name] = first_line(error)
            self.errors.append(error)
        return error is None

    def _examined(self, engine: Engine, running: Sequence[Engine]) -> bool:
        """Examines the derivatives of the engine by differences there; where it has none, those of
        the first other one that has. Returns whether nothing was raised.
        """
        function, order = engine.function, self.order
        if not engine.differentiates:
            donors = [e for e in running if e.differentiates and e.name in self.reports]
            donors = [e for e in donors if self._alike(e, engine)]
            if not donors:
                self.omissions.append(LeftOut(Omission.NO_DONOR, engine.name))
                return True
            donor, order = donors[0], 1
            function = with_derivatives_of(engine, donor, forward="jvp" in _capabilities(donor))
            self.omissions.append(LeftOut(Omission.DONATED, engine.name, donor.name))
        with Catching(AdjudgeError) as caught:
            only = isinstance(function, ByHand) and function.jvp is None and order == 1
            compile = self.compile and not isinstance(function, ByHand)
            options: Options = {
                **engine.options,
                "order": order,
                "modes": ["R"] if only else None,
                "compile": compile,
                "blame": False,
            }
            self.reports[engine.name] = examine(function, engine.inputs, **options)
        return self._went_through(engine, caught)

    def _alike(self, one: Engine, two: Engine) -> bool:
        (first, a), (second, b) = self.outputs[one.name], self.outputs[two.name]
        shapes = [[(o.shape, o.dtype) for o in outputs] for outputs in (a, b)]
        return first == second and shapes[0] == shapes[1]

    # ------------------------------------------------------------------ what is held against what

    def _compare(
        self, comparison: EngineComparison, running: Sequence[Engine], reference: str | None
    ) -> str | None:
        """Compares the engines; returns what is told in `CrossReport.held_against`."""
        pairs = [*combinations(running, 2)]
        if not pairs:
            return None
        if reference is not None and reference != DOUBLE:
            pairs = [(one, two) for one, two in pairs if reference in (one.name, two.name)]
            comparison.judge(pairs)
            return reference
        double = None
        if reference == DOUBLE and self.options.get("in_double") is not False:
            double = self._in_double(comparison, running)
        comparison.judge(pairs, double)
        return "" if double is None or not comparison.held_against_double else double.name

    def _in_double(self, comparison: EngineComparison, running: Sequence[Engine]) -> Engine | None:
        """Returns f in double precision on the first engine where it runs so; `None` where it does
        not, or where no input is narrower.
        """
        narrow = [e for e in running if e.differentiates and e.problem.widened is not None]
        for engine in narrow:
            good = False
            with Catching(AdjudgeError) as caught:
                double = in_double(engine)
                with double.isolated():
                    base = double.base()
                    leaves = (*double.problem.X.leaves, *base.whole.leaves)
                    wide = all(leaf.double for leaf in leaves)
                    good = wide and dtype_inside(base.problem, base) is None
            if good:
                comparison.double_on[double.name] = engine.name
                return double
            why = "" if caught.error is None else first_line(caught.error)
            self.omissions.append(LeftOut(Omission.NOT_IN_DOUBLE, engine.name, reason=why))
        return None

    # ------------------------------------------------------------------ what it comes to

    def _concluded(
        self, comparison: EngineComparison, modes: Sequence[str], against: str | None
    ) -> CrossReport:
        divergences = sorted(
            comparison.divergences, key=lambda d: [STRUCTURE, VALUE, *modes].index(d.quantity)
        )
        cells = {VALUE: {e.name: self._value_cell(comparison, e) for e in self.engines}}
        for mode in modes:
            cells[mode] = {e.name: self._cell(comparison, e, mode) for e in self.engines}
        required, optional = self._missing(comparison)
        self.omissions += optional
        other = [LeftOut(Omission.OTHER_IN_DOUBLE)] if comparison.other_in_double else []
        if (values := comparison.comparisons.get(VALUE)) and not any(values.values()):
            other.append(LeftOut(Omission.EMPTY))
        verdicts = [d.verdict for d in divergences]
        verdicts += [_own(report, self.order) for report in self.reports.values()]
        verdicts += [Verdict.INCONCLUSIVE] * len(self.raised)
        if not comparison.comparisons.get(VALUE) or required:
            verdicts.append(Verdict.INCONCLUSIVE)
        return CrossReport(
            function=function_name(self.engines[0].function),
            verdict=worst(verdicts),
            backends=tuple(engine.name for engine in self.engines),
            reports=self.reports,
            comparisons={
                quantity: {", ".join(pair): n for pair, n in found.items()}
                for quantity, found in comparison.comparisons.items()
            },
            divergences=tuple(divergences),
            cells=cells,
            raised=self.raised,
            omissions=(*required, *other, *self.omissions),
            held_against=against,
            seed=self.seed,
            order=self.order,
        )

    def _missing(self, comparison: EngineComparison) -> tuple[list[LeftOut], list[LeftOut]]:
        """Returns what had to be compared between engines and was not; and what need not be."""
        required: list[LeftOut] = []
        optional: list[LeftOut] = []
        for (mode, name), (status, reason) in comparison.missing.items():
            must = not mode.strip("R") or status is Status.RAISED
            group = required if must and name not in comparison.double_on else optional
            group.append(LeftOut(Omission.LACKING, name, mode, reason))
        return required, optional

    def _value_cell(self, comparison: EngineComparison, engine: Engine) -> str:
        """Returns what the table says of the value on an engine."""
        if engine.name in self.raised:
            return Status.RAISED
        return self._worst(comparison, engine, (STRUCTURE, VALUE)) or "-"

    def _cell(self, comparison: EngineComparison, engine: Engine, mode: str) -> str:
        """Returns what the table says of a derivative on an engine."""
        if (mode, engine.name) in comparison.missing:
            return comparison.missing[mode, engine.name][0]
        report = self.reports.get(engine.name)
        own = report.modes.get(mode) if report is not None else None
        if own is not None and own is not Verdict.PASS:
            return own
        between = self._worst(comparison, engine, (mode,))
        if own is not None and engine.differentiates:
            return between or "not compared"
        return own or "-"

    @staticmethod
    def _worst(comparison: EngineComparison, engine: Engine, kinds: Sequence[str]) -> str:
        """Returns the worst that comparisons with others in these quantities found, "" where there
        are none. What is put down to another engine is not held against this one.
        """
        found = [
            d.verdict
            for d in comparison.divergences
            if d.quantity in kinds
            and engine.name in d.pair
            and (not d.accused or engine.name in d.accused)
        ]
        pairs = [pair for kind in kinds for pair in comparison.comparisons.get(kind, ())]
        if any(engine.name in pair for pair in pairs):
            found.append(Verdict.PASS)
        return worst(found) if found else ""


def _own(report: Report, order: int) -> Verdict:
    """Returns the verdict of an engine's own report, leaving out what an engine need not have:
    forward mode, and what is composed with it.
    """
    optional = [m for m, o in report.modes.items() if o is Status.UNSUPPORTED and m.strip("R")]
    verdicts = [
        finding.verdict
        for finding in report.findings
        if not (finding.status is Status.UNSUPPORTED and finding.mode in optional)
    ]
    for mode, outcome in report.modes.items():
        if mode not in optional:
            verdicts.append(outcome if isinstance(outcome, Verdict) else Verdict.INCONCLUSIVE)
    return worst(verdicts)


def _capabilities(engine: Engine) -> frozenset[str]:
    return engine.problem.backend.capabilities


# ---------------------------------------------------------------------- arguments


def _for_every_engine(options: Mapping[str, Any]) -> Options:
    """Returns the options for the check on each engine, with one seed for all."""
    for name, remedy in _ELSEWHERE.items():
        if options.get(name) is not None:
            raise FlagError(f"{name}= is not for crosscheck", remedy)
    rest = {name: value for name, value in options.items() if name not in _ELSEWHERE}
    given = known_options(crosscheck, rest, CrossOptions)
    return {**given, "seed": settings_of(given).seed}


_ELSEWHERE = {
    "kwargs": "bind keyword arguments in f",
    "points": "call crosscheck once for each point",
    "domain": "call crosscheck once for each point",
    "backend": "name the engines: backends=",
}
"""The options of other verbs that are not for this one, and what to do in their place."""


def _backends(given: Sequence[str | AutodiffBackend]) -> list[AutodiffBackend]:
    wanted: object = given
    several = isinstance(wanted, Iterable) and not isinstance(wanted, str)
    asked: list[object] = [*given] if several else [wanted]
    numbers = [one for one in asked if is_array_like(one) or isinstance(one, Number)]
    if arrays := [one for one in numbers if not isinstance(one, ModuleType)]:
        raise InputError(
            f"backends= has {described(arrays[0])}, which is no engine and no name of one",
            "several inputs are a tuple: crosscheck(f, (x, y), ['torch', 'jax'])",
        )
    found = [backend_given(one, "backends") for one in asked]
    known = [backend.name for backend in found]
    if len(found) < 2:
        raise InputError(
            f"crosscheck of {len(found)} backend{'s' * (len(found) != 1)}: {known}",
            f"name two or more of {', '.join(names())}; for one engine use gradcheck",
        )
    twice = sorted({name for name in known if known.count(name) > 1})
    if twice:
        raise InputError(
            f"two backends are called {twice[0]!r}",
            "give one of them another name, or leave it out",
        )
    for backend in found:
        reason = backend.environment.unavailable()
        if reason is not None:
            raise BackendNotInstalledError(
                f"backend '{backend.name}' can hold no array here: {reason}",
                "leave it out, or run where it can",
            )
    return found


def _engines(
    f: Functions, arrays: Any, backends: Sequence[AutodiffBackend], options: Options
) -> list[Engine]:
    inputs = tuple(arrays) if isinstance(arrays, tuple | list) else (arrays,)
    known = [backend.name for backend in backends]
    functions = f if isinstance(f, Mapping) else dict.fromkeys(known, f)
    for name in [*known, *functions]:
        if name not in functions or name not in known:
            raise InputError(
                f"{name!r} is among the {'backends' if name in known else 'functions'} only: "
                f"backends {known}, functions for {list(functions)}",
                "give one function for each backend",
            )
    for name, function in functions.items():
        if not callable(function):
            raise InputError(
                f"the function for {name!r} is of type {type(function).__name__}, which cannot be "
                "called",
                "pass the function first, then its inputs",
            )
    engines = [engine_of(backend, functions[backend.name], inputs, options) for backend in backends]
    _require_same_inputs(engines)
    if not any(engine.differentiates for engine in engines):
        raise InputError(
            f"none of the backends {', '.join(known)} has derivatives",
            "add one that differentiates, or pass adjudge.ByHand(forward, vjp=backward)",
        )
    return engines


def _require_same_inputs(engines: Sequence[Engine]) -> None:
    """Raises `InputError` where engines made different inputs of the same host arrays."""
    first = engines[0]
    for engine in engines[1:]:
        mine, its = first.problem.X.leaves, engine.problem.X.leaves
        for one, two in zip(mine, its, strict=False):
            for what in ("shape", "dtype"):
                a, b = (str(getattr(leaf.info, what)).rpartition(".")[2] for leaf in (one, two))
                if a != b:
                    raise InputError(
                        f"{one.name} has {what} {a} on {first.name} and {b} on {engine.name}",
                        "give inputs that both engines can hold",
                    )
        same = [leaf.name for leaf in mine] == [leaf.name for leaf in its]
        if not same or not np.array_equal(
            first.problem.origin, engine.problem.origin, equal_nan=True
        ):
            raise InputError(
                f"the checked inputs differ between {first.name} and {engine.name}",
                "give plain host arrays; with directions= a set whose coordinates engines share",
            )


def _require_reference(reference: str | None, engines: Sequence[Engine]) -> None:
    known = [engine.name for engine in engines]
    if reference not in (None, DOUBLE, *known):
        raise InputError(
            f"reference={reference!r}", f'give "float64", None, or one of {", ".join(known)}'
        )
    for engine in engines:
        if engine.name == reference and not engine.differentiates:
            able = ", ".join(f'"{e.name}"' for e in engines if e.differentiates)
            raise InputError(
                f"reference={reference!r} has no derivatives that others could be compared with",
                f"give one that has ({able}), or None to compare engines with one another; the "
                f"differences of {reference} judge derivatives in any case",
            )
