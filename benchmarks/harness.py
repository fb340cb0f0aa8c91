"""What the harnesses share: cases, judges, rows and their tables, processes and Markdown.

Nothing but the standard library is imported here, so that a script can say what is absent.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import importlib.metadata
import importlib.util
import json
import multiprocessing
import platform
import re
import resource
import signal
import sys
import time
import traceback
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any
from unittest import mock

RIGHT = "right"
"""The name of a case into which no error was planted."""
ORDINARY = "ordinary"
"""The kind of a case whose derivative exists and is right: here a FAIL is a false alarm."""
PATIENCE = 1.0
"""Seconds of the processor."""
DELTAS = ["1", "0.1", "1e-2", "1e-3", "1e-4", "1e-6"]
"""Relative errors that are planted where a family does not have its own."""
MOST_COLUMNS = 12
"""Where a family has more kinds of planted errors, a table counts them together."""


# ---------------------------------------------------------------- cases


class SkippedError(Exception):
    """The reason why a unit has nothing to check."""


@dataclass(frozen=True)
class Case:
    """A function at its inputs, as it is or with one planted error."""

    name: str
    group: str
    """The table that the case belongs to: its dtype, say."""
    make: Callable[[str], tuple[Callable[..., Any], tuple[Any, ...]]]
    """The function and fresh inputs, for the engine of this name where there are several."""
    plant: str = RIGHT
    kind: str = ORDINARY
    options: Mapping[str, Any] = field(default_factory=dict)
    """The keywords that the check needs; the other judges read them too."""
    check: str = "gradcheck"
    """The function of adjudge that is asked: `gradcheck`, `examine` or `crosscheck`."""


def quiet(case: Case) -> dict[str, Any]:
    """The options of a case, so that a derivative that fails is reported and not raised."""
    return {**case.options, **({} if case.check == "examine" else {"raise_exception": False})}


def check_of(case: Case) -> Callable[[], Any]:
    """The check of adjudge that the case asks for, as a call that returns its report."""
    import adjudge

    return functools.partial(getattr(adjudge, case.check), *case.make(""), **quiet(case))


def identity(pullback: Callable[..., Sequence[Any]], engine: str) -> Callable[..., Any]:
    """The identity of several arrays of PyTorch or JAX, with any gradients: put in front of a
    function it plants an error. `pullback` takes and gives the cotangents of all arrays. PyTorch's
    forward mode stays right.
    """
    if engine == "jax":
        import jax

        rule = jax.custom_vjp(lambda *arrays: arrays)
        rule.defvjp(lambda *arrays: (arrays, None), lambda _, w: tuple(pullback(*w)))
        return rule
    import torch

    class Identity(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(tensor.clone() for tensor in tensors)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            pass

        @staticmethod
        def backward(ctx: Any, *w: torch.Tensor) -> tuple[Any, ...]:
            return tuple(pullback(*w))

        @staticmethod
        def jvp(ctx: Any, *tangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
            return tuple(None if v is None else v.clone() for v in tangents)

    return Identity.apply


def scaled_gradient(element: int, factor: float) -> Callable[[Any], Any]:
    """The identity of one tensor, whose gradient is multiplied by `factor` in one element."""

    def pullback(w: Any) -> tuple[Any]:
        scale = w.real.new_ones(w.shape)
        scale.view(-1)[element] = factor
        return (w * scale,)

    scaled = identity(pullback, "torch")
    return lambda x: scaled(x)[0]


@dataclass(frozen=True)
class Family:
    """One collection of cases. A unit is what is set up once, and judged right and with errors."""

    units: Callable[[], list[str]]
    """The names of all units, each beginning with a dtype. It imports engines, and is therefore
    called in a process of its own."""
    prepare: Callable[[Sequence[float]], Callable[[str], Iterator[Case]]]
    """Given the relative errors to plant, what makes the cases of a unit. It is called in the
    process that does the work. The cases of a unit raise `SkippedError` where there are none."""
    alone: bool = False
    """Whether each unit is judged in a forked process of its own, since some end theirs."""


# ---------------------------------------------------------------- judges


@dataclass(frozen=True)
class Answer:
    """What a judge says: PASS, FAIL, INCONCLUSIVE or CRASH."""

    verdict: str
    text: str = ""
    evaluations: int | None = None


@dataclass(frozen=True)
class Judge:
    """A checker of derivatives, called with a function, its inputs and the case of both."""

    ask: Callable[..., Answer]
    engine: str = ""
    """The engine whose arrays it takes; an empty name stands for the usual one of the family."""
    slow: bool = False
    """Whether it makes whole Jacobians: where that takes longer than `PATIENCE` for the case as it
    is, it is not asked about planted errors."""


def by_adjudge(f: Any, inputs: Any, case: Case, **more: Any) -> Answer:
    """The check of adjudge that the case asks for, with its own tolerances."""
    import adjudge

    report = getattr(adjudge, case.check)(f, inputs, **quiet(case), **more)
    counts = getattr(report, "counts", {})
    return Answer(str(report.verdict), report.headline, counts.get("evaluations"))


def by_differences(f: Any, inputs: Any, case: Case) -> Answer:
    """adjudge where python-flint is not installed: it replays nothing, asked or not."""
    with mock.patch("adjudge.estimate.estimator.flint_is_installed", return_value=False):
        return by_adjudge(f, inputs, case)


def by_torch(f: Any, inputs: Any, case: Case, *, fast_mode: bool) -> Answer:
    """`torch.autograd.gradcheck` with its own tolerances."""
    from torch.autograd.gradcheck import GradcheckError, gradcheck

    tolerance = case.options.get("nondet_tol", 0.0)
    try:
        gradcheck(f, inputs, fast_mode=fast_mode, nondet_tol=tolerance)
    except GradcheckError as error:
        return Answer("FAIL", str(error))
    return Answer("PASS")


def by_jax(f: Any, inputs: Any, case: Case) -> Answer:
    """`jax.test_util.check_grads` of first order with its own tolerances."""
    import jax.test_util

    modes = ["fwd"] * case.options.get("check_forward_ad", False)
    modes += ["rev"] * case.options.get("check_backward_ad", True)
    try:
        jax.test_util.check_grads(f, inputs, order=1, modes=modes)
    except AssertionError as error:
        return Answer("FAIL", " ".join(str(error).split()))
    return Answer("PASS")


JUDGES = {
    "adjudge": Judge(by_adjudge),
    "adjudge full": Judge(functools.partial(by_adjudge, fast_mode=False), slow=True),
    "adjudge differences": Judge(by_differences),
    "adjudge exact": Judge(functools.partial(by_adjudge, reference="exact")),
    "adjudge on jax": Judge(by_adjudge, "jax"),
    "torch slow": Judge(functools.partial(by_torch, fast_mode=False), slow=True),
    "torch fast": Judge(functools.partial(by_torch, fast_mode=True)),
    "check_grads": Judge(by_jax, "jax"),
}


@dataclass(frozen=True)
class Row:
    """One judge on one case."""

    name: str
    group: str
    kind: str
    plant: str
    judge: str
    verdict: str
    text: str
    evaluations: int | None
    seconds: float
    """Of the processor; of several checks the least."""
    first: float
    """Of the processor, for the first check, with what is compiled for it."""


def processor_seconds() -> float:
    """Seconds of the processor that this process has used.

    `time.process_time` tells them in steps of 4 ms on Linux once a timer such as that of `deadline`
    has been set, which is more than many a check takes.
    """
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def ask(name: str, case: Case, limit: float) -> Row:
    """One check by a judge; whatever the judge raises is an answer as well."""
    judge = JUDGES[name]
    f, inputs = case.make(judge.engine)
    start = processor_seconds()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with deadline(limit):
                answer = judge.ask(f, inputs, case)
        except OutOfTimeError:
            answer = Answer("CRASH", f"stopped after {limit:.0f} s")
        except Exception as error:
            answer = Answer("CRASH", f"{type(error).__name__}: {error}")
    seconds = processor_seconds() - start
    told = (answer.verdict, answer.text[:300], answer.evaluations, seconds, seconds)
    return Row(case.name, case.group, case.kind, case.plant, name, *told)


def judged(cases: Iterable[Case], judges: Sequence[str], limit: float, repeats: int) -> list[Row]:
    """The rows of one unit; what is right is timed `repeats` times, the judges taking turns."""
    rows: list[Row] = []
    asked = list(judges)
    for case in cases:
        found = {}
        for name in asked:
            if case.plant == RIGHT and "jax" in sys.modules:
                sys.modules["jax"].clear_caches()
            found[name] = ask(name, case, limit)
        for _ in range(repeats - 1 if case.plant == RIGHT else 0):
            for name in asked:
                least = min(found[name].seconds, ask(name, case, limit).seconds)
                found[name] = replace(found[name], seconds=least)
        asked = [n for n in asked if found[n].seconds <= PATIENCE or not JUDGES[n].slow]
        rows += found.values()
    return rows


# ---------------------------------------------------------------- running


class OutOfTimeError(BaseException):
    """The call took too long; no `except Exception` of the called code holds it up."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raises `OutOfTimeError` inside the block after this much processor time, which other
    processes do not use up. It works in the main thread only.
    """

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def isolated(function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
    """The value of `function(*arguments)` in a forked process, or a RuntimeError that says how
    that process ended.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_send, args=(sender, function, arguments))
    child.start()
    sender.close()
    try:
        if not receiver.poll(seconds):
            raise RuntimeError(f"stopped after {seconds:.0f} s")
        error, value = receiver.recv()
    except EOFError:
        child.join()
        raise RuntimeError(f"the process died with exit code {child.exitcode}") from None
    finally:
        child.kill()
        child.join()
        receiver.close()
    if error:
        raise RuntimeError(error)
    return value


def _send(sender: Any, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        sender.send(("", function(*arguments)))
    except Exception:
        sender.send((traceback.format_exc(limit=-1), None))


def spread(
    prepare: Callable[[], Callable[[Any], Any]], items: Sequence[Any], processes: int
) -> Iterator[tuple[Any, Any]]:
    """`work(item)` for every item as it is done, where `work = prepare()` in each process.

    The processes are forked before `prepare` is called, so that what it imports may start threads.
    """
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(processes, fork, _ready, (prepare,)) as pool:
        waiting = {pool.submit(_work, item): item for item in items}
        try:
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        finally:
            pool.shutdown(cancel_futures=True)


_prepared: list[Callable[[Any], Any]] = []
"""What a process of `spread` does with its items."""


def _ready(prepare: Callable[[], Callable[[Any], Any]]) -> None:
    _prepared.append(prepare())


def _work(item: Any) -> Any:
    return _prepared[0](item)


# ---------------------------------------------------------------- a comparison of judges


def compare(
    family: Family,
    title: str,
    judges: Sequence[str],
    dtypes: Sequence[str],
    arguments: Sequence[str] | None = None,
) -> list[Row]:
    """Asks judges about a family of cases, as the command line says, prints the tables, and returns
    all answers.
    """
    parser = argparse.ArgumentParser(description=f"{title}: what each checker says of them.")
    everyone = ", ".join(JUDGES)
    parser.add_argument("--judges", type=listed, default=list(judges), help=f"some of {everyone}")
    parser.add_argument("--dtypes", type=listed, default=list(dtypes))
    parser.add_argument("--match", default="", metavar="REGEX", help="units by name")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every N-th unit")
    parser.add_argument(
        "--deltas", type=listed, default=DELTAS, metavar="LIST", help="relative errors to plant"
    )
    parser.add_argument("--repeats", type=int, default=3, help="checks of a right case, to time it")
    parser.add_argument("--limit", type=float, default=120.0, metavar="S", help="s for a check")
    parser.add_argument("--processes", type=int, default=2, help="units at a time")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every row to this file")
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    skipped: Counter[str] = Counter()
    names = isolated(family.units, seconds=600.0)
    names = [unit for unit in names if unit.split(" ")[0] in options.dtypes]
    names = [unit for unit in names if re.search(options.match, unit)][:: options.every]
    start = time.perf_counter()
    work = functools.partial(_judging, family, options)
    for number, (unit, found) in enumerate(spread(work, names, options.processes), start=1):
        told(f"{number}/{len(names)} {time.perf_counter() - start:.0f} s {unit}")
        if isinstance(found, str):
            skipped[found] += 1
        else:
            rows += found
    rows.sort(key=lambda row: row.name)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    print(header(title, ("adjudge", "torch", "jax", "numpy")))
    print(report(rows, skipped, options.judges))
    return rows


def _judging(family: Family, options: argparse.Namespace) -> Callable[[str], list[Row] | str]:
    cases = family.prepare([float(delta) for delta in options.deltas])

    def rows_of(unit: str) -> list[Row] | str:
        try:
            return judged(cases(unit), options.judges, options.limit, options.repeats)
        except SkippedError as skipped:
            return str(skipped)

    def work(unit: str) -> list[Row] | str:
        if not family.alone:
            return rows_of(unit)
        try:
            found: list[Row] | str = isolated(rows_of, unit, seconds=60 * options.limit)
        except RuntimeError as error:
            row = Row(unit, unit.split(" ")[0], ORDINARY, RIGHT, "?", "CRASH", "", None, 0.0, 0.0)
            return [replace(row, judge=judge, text=str(error)) for judge in options.judges]
        return found

    return work


def report(rows: Sequence[Row], skipped: Mapping[str, int], judges: Sequence[str]) -> str:
    """All tables: one pair of tables for each group, and what adjudge did not get right."""
    parts = [
        "Seconds are of the processor, for the cases as they are: the first check, with what is "
        "compiled for it, and the least of several.\n"
    ]
    for group in dict.fromkeys(row.group for row in sorted(rows, key=lambda row: row.group)):
        own = [row for row in rows if row.group == group]
        parts += [f"### {group}\n", verdict_table(own, judges), ratio_table(own, judges)]
        parts.append(planted_table(own, judges))
    parts.append(decided_table(rows))
    head = ("case", "kind", "planted", "judge", "verdict", "first line")
    ours = [row for row in rows if row.judge.startswith("adjudge")]
    for title, chosen in (
        ("What adjudge does not pass as it is", [r for r in ours if not_passed(r)]),
        ("Planted errors that adjudge does not reject", missed(ours)),
    ):
        lines = [(r.name, r.kind, r.plant, r.judge, r.verdict, first_line(r.text)) for r in chosen]
        parts.append(f"### {title}: {len(lines)}\n\n{table(head, lines) if lines else ''}")
    if skipped:
        lines = [(reason, count) for reason, count in Counter(skipped).most_common()]
        parts.append(f"### Left out\n\n{table(('reason', 'units'), lines)}")
    return "\n".join(parts)


def not_passed(row: Row) -> bool:
    """Whether a case as it is got another verdict than PASS."""
    return row.plant == RIGHT and row.verdict != "PASS"


def missed(rows: Sequence[Row]) -> list[Row]:
    """The planted errors that a judge does not reject in ordinary cases that it passes."""
    passed = {(r.judge, r.name) for r in rows if r.plant == RIGHT and r.verdict == "PASS"}
    return [
        row
        for row in rows
        if row.plant != RIGHT and row.kind == ORDINARY and row.verdict != "FAIL"
        if (row.judge, row.name) in passed
    ]


def verdict_table(rows: Sequence[Row], judges: Sequence[str]) -> str:
    """What each judge said of the cases as they are, by kind of case."""
    lines = []
    for kind in dict.fromkeys([ORDINARY, *(row.kind for row in rows)]):
        for judge in judges:
            own = [r for r in rows if (r.kind, r.judge, r.plant) == (kind, judge, RIGHT)]
            counts = Counter(row.verdict for row in own)
            verdicts = [counts[v] for v in ("PASS", "FAIL", "INCONCLUSIVE", "CRASH")]
            calls = [row.evaluations for row in own if row.evaluations is not None]
            middle = f"{median(calls):g}" if calls else "-"
            spent = [
                f"{sum(times):.2f}"
                for times in zip(*((r.first, r.seconds) for r in own), strict=True)
            ]
            if own:
                lines.append((kind, judge, len(own), *verdicts, middle, *spent))
    head = ("kind", "judge", "cases", "PASS", "FAIL", "INCONCLUSIVE", "CRASH")
    return table((*head, "median evaluations", "first s", "least s"), lines)


def decided_table(rows: Sequence[Row]) -> str:
    """What exact replay makes of the cases as they are that differences alone leave open."""
    verdicts = {(row.judge, row.name): row.verdict for row in rows if row.plant == RIGHT}
    judges = [name for name in ("adjudge", "adjudge exact") if any(name == j for j, _ in verdicts)]
    names = [
        n for (j, n), v in verdicts.items() if (j, v) == ("adjudge differences", "INCONCLUSIVE")
    ]
    if not judges or not names:
        return ""
    counts = Counter(tuple(verdicts.get((judge, name), "-") for judge in judges) for name in names)
    lines = [(*key, count) for key, count in counts.most_common()]
    title = f"### Open by differences alone: {len(names)}\n"
    return f"{title}\n{table((*judges, 'cases'), lines)}"


def ratio_table(rows: Sequence[Row], judges: Sequence[str]) -> str:
    """What the first judge takes over what each other one takes, for the right cases that both
    pass.
    """
    lines = []
    passed = {
        (row.judge, row.name): row for row in rows if row.plant == RIGHT and row.verdict == "PASS"
    }
    for judge in judges[1:]:
        pairs = [
            (passed[judges[0], name], other)
            for (who, name), other in passed.items()
            if who == judge and (judges[0], name) in passed
        ]
        cells = []
        for which in ("first", "seconds"):
            times = [(getattr(one, which), getattr(other, which)) for one, other in pairs]
            ours, theirs = (sum(column) for column in zip(*times, strict=True)) if times else (0, 0)
            ratios = [one / other for one, other in times if other]
            cells += [f"{median(ratios):.2f}", f"{ours / theirs:.2f}"] if ratios else ["-", "-"]
        lines.append((f"{judges[0]} over {judge}", len(pairs), *cells))
    head = ("ratio", "cases", "first: median", "of the sums", "least: median", "of the sums")
    return table(head, lines) if lines else ""


def planted_table(rows: Sequence[Row], judges: Sequence[str]) -> str:
    """How many planted errors each judge rejects in ordinary cases, by kind of error."""
    plants = list(dict.fromkeys(row.plant for row in rows if row.plant != RIGHT))
    columns = {plant: {plant} for plant in plants}
    if len(plants) > MOST_COLUMNS:
        columns = {f"{len(plants)} kinds of errors": set(plants)}
    passed = {(r.judge, r.name) for r in rows if r.plant == RIGHT and r.verdict == "PASS"}
    lines = []
    for judge in judges:
        cells = []
        for column in columns.values():
            own = [r for r in rows if (r.kind, r.judge) == (ORDINARY, judge) and r.plant in column]
            found = sum(r.verdict == "FAIL" and (judge, r.name) in passed for r in own)
            cells.append(f"{found} of {len(own)}" if own else "-")
        lines.append((judge, *cells))
    note = "A planted error counts as found by a judge that passes the same case without it.\n"
    return f"{table(('judge', *columns), lines)}\n{note}" if plants else ""


def told(*words: object) -> None:
    """Prints a line about the progress."""
    print(*words, file=sys.stderr, flush=True)


def listed(text: str) -> list[str]:
    """A list separated by commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def stand_in(package: str, modules: Mapping[str, Mapping[str, Any]]) -> bool:
    """Puts modules with these contents where a package is not installed, and says whether it did.

    The lists of operators of PyTorch and JAX are in their test suites, which import test frameworks
    that no list needs.
    """
    if importlib.util.find_spec(package) is not None:
        return False
    for name, contents in modules.items():
        module = types.ModuleType(name)
        vars(module).update(contents)
        sys.modules[name] = module
    return True


# ---------------------------------------------------------------- Markdown


def header(title: str, distributions: Sequence[str]) -> str:
    """The title, and under it what is needed to read the numbers: date, machine and versions."""
    versions = [f"{name} {version(name)}" for name in distributions]
    place = f"Python {platform.python_version()}, {platform.machine()}, one thread"
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    return f"## {title}\n\n{today}; {', '.join(versions)}; {place}.\n"


def version(distribution: str) -> str:
    """The installed version of a distribution, or `absent`."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; a cell that holds a bar or a line break does not break it."""
    return "".join(f"{line(cells)}\n" for cells in (columns, ["---"] * len(columns), *rows))


def line(cells: Iterable[object]) -> str:
    """One line of a Markdown table."""
    return f"| {' | '.join(map(cell, cells))} |"


def cell(value: object) -> str:
    """`value` as one line without bars."""
    return " ".join(str(value).replace("|", "\\|").split())


def first_line(text: object, width: int = 160) -> str:
    """The first line of `text` that is not empty, cut at `width` characters."""
    lines = [line.strip() for line in str(text).splitlines() if line.strip()]
    line = lines[0] if lines else ""
    return line if len(line) <= width else line[: width - 1] + "…"
