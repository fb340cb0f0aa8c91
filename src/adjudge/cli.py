"""This module is the command line: `adjudge check`, `blame`, `replay`, `diff`, `page`, `write`,
`backends` and `conform`.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from textwrap import indent
from typing import Any, TextIO

from adjudge._version import __version__
from adjudge.engine import PLAIN, backend_named, entries, names
from adjudge.errors import AdjudgeError, BackendError, Catching, InputError
from adjudge.findings import Verdict, worst
from adjudge.ghostwriter import Found, LeftOut, imported, not_imported, write
from adjudge.suites import (
    Collection,
    Ending,
    Result,
    RunReport,
    changes,
    collect,
    github,
    junit,
    outlived,
    page,
    read_known,
    read_run,
    ready_for_page,
    repeated,
    run,
    try_to_write,
    visible,
    what_was_raised,
)

OK, FAILED, USAGE, UNDECIDED, UNCOLLECTED = 0, 1, 2, 3, 4
"""The exit codes. They mean in this order that all cases passed; that some case failed, raised,
died or took too long; that the usage was wrong; that some case is inconclusive and none failed; and
that none failed, but some file could not be looked into. Code 2 for usage is that of `argparse`;
the others are ours."""

CACHE = Path(".adjudge_cache")
"""The folder below the current one that remembers the last run, for `--last-failed`."""
LAST_RUN = "last-run.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command, and returns its exit code."""
    parsed = _parser().parse_args(arguments)
    try:
        code: int = parsed.command(parsed)
        sys.stdout.flush()
    except AdjudgeError as error:
        _say(f"adjudge: {error}", sys.stderr)
        return USAGE
    except BrokenPipeError:  # what reads the lines has ended, as `head` does
        # Python writes what is left when it ends, and would raise once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="adjudge", description="Are these the derivatives of that function?"
    )
    parser.add_argument("--version", action="version", version=f"adjudge {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_check(commands)
    blamed = commands.add_parser(
        "blame",
        help="name the rule that is wrong in a case, with its line",
        description="Says of each adjudge.Case of a file which rule on the way from its inputs to "
        "its outputs is wrong. Exit codes: those of check.",
    )
    blamed.add_argument("target", metavar="FILE[:CASE]", help="CASE: one case of it")
    blamed.add_argument("--every", action="store_true", help="judge every step")
    blamed.add_argument("--seed", type=int, help="by default that of the case, or a fresh one")
    blamed.add_argument("--trace", action="store_true", help="print the steps as well")
    blamed.set_defaults(command=_blame)
    replay = commands.add_parser(
        "replay",
        help="judge the cases of an earlier run again, with the same seeds",
        description="Judges the cases of a file that --json wrote once more, with the same seeds, "
        "and says what comes out otherwise, to the last bit. Exit codes: those of check.",
    )
    replay.add_argument("target", metavar="REPORT.json[:CASE]", help="CASE: one case of it")
    replay.set_defaults(command=_replay)
    diff = commands.add_parser(
        "diff",
        help="say what got better and worse between two runs",
        description="Exit code 1 if a verdict got worse, or a new case does not pass; else 0.",
    )
    diff.add_argument("before", metavar="OLD.json", type=Path)
    diff.add_argument("after", metavar="NEW.json", type=Path)
    diff.set_defaults(command=_diff)
    pages = commands.add_parser(
        "page",
        help="write an earlier run as a page",
        description="Writes a file that --json wrote as one page of HTML, which opens from disk. "
        "Exit code 0, whatever the verdicts.",
    )
    pages.add_argument("report", metavar="REPORT.json", type=Path)
    pages.add_argument("html", metavar="FILE.html", type=Path)
    pages.set_defaults(command=_page)
    _add_write(commands)
    backends = commands.add_parser(
        "backends", help="list the engines, and how to install those that are missing"
    )
    backends.set_defaults(command=_backends)
    _add_conform(commands)
    return parser


def _add_check(commands: Any) -> None:
    check = commands.add_parser(
        "check",
        help="run the cases that files, folders and modules declare",
        description="Runs every adjudge.Case that these declare. Files and modules are executed "
        "for that; of a folder, those in which a Case is made. Exit codes: 0 all pass, 1 some "
        "fail, 2 usage, 3 none fails and some are inconclusive, 4 none fails and some file could "
        "not be looked into.",
    )
    check.add_argument(
        "targets",
        metavar="PATH_OR_MODULE[:NAME]",
        nargs="+",
        help="a file, a folder, a quoted pattern such as 'checks/**/*.py', or a module. NAME: one "
        "case of it",
    )
    check.add_argument("-k", dest="keyword", default="", help="only cases with this in their name")
    check.add_argument("-x", dest="stop", action="store_true", help="end at the first failure")
    check.add_argument(
        "-n",
        dest="processes",
        type=_processes,
        metavar="N",
        help="judge in so many processes; auto: one for each processor",
    )
    check.add_argument("--seed", type=int, help="the seed of the run; by default a fresh one")
    check.add_argument("--timeout", type=float, metavar="SECONDS", help="what each case may take")
    check.add_argument(
        "--reference",
        choices=("exact",),
        help="what cases without a reference= of their own are compared with in place of "
        "differences: exact replays their functions in ball arithmetic",
    )
    check.add_argument(
        "--durations", type=int, default=0, metavar="N", help="list the N slowest cases"
    )
    check.add_argument(
        "--last-failed", action="store_true", help="only what did not pass in the last run here"
    )
    check.add_argument(
        "--known", type=Path, metavar="FILE.toml", help="failures that are known: see the docs"
    )
    check.add_argument("--json", type=Path, metavar="FILE", help="write the run as JSON")
    check.add_argument("--junit", type=Path, metavar="FILE", help="write the run as JUnit's XML")
    check.add_argument("--html", type=Path, metavar="FILE", help="write the run as a page")
    check.add_argument(
        "--github", action="store_true", help="print annotations that GitHub puts at the lines"
    )
    check.add_argument(
        "-q", "--quiet", action="store_true", help="leave out the details of what did not pass"
    )
    check.set_defaults(command=_check)


def _add_write(commands: Any) -> None:
    writer = commands.add_parser(
        "write",
        help="write tests for the derivatives that a module defines",
        description="Looks for what is differentiable in a module, calls it with inputs that are "
        "made up until some work, and writes a file of pytest. Exit codes: 0 all of its tests "
        "pass, 1 some fail, 2 usage, 4 no test could be written.",
    )
    writer.add_argument("target", metavar="MODULE[:NAME]", help="NAME: one function of it")
    writer.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="by default test_MODULE_derivatives.py"
    )
    writer.add_argument("--force", action="store_true", help="write over a file that is there")
    writer.add_argument(
        "-r", "--recursive", action="store_true", help="look into public submodules of a package"
    )
    writer.add_argument(
        "--methods", action="store_true", help="try methods of classes that are no functions, too"
    )
    writer.add_argument("-k", dest="keyword", default="", help="only names with this in them")
    writer.add_argument("--backend", metavar="NAME", help="the engine on which it computes")
    writer.add_argument(
        "--timeout",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="what each function may take; 60 by default",
    )
    writer.set_defaults(command=_write_tests)


def _add_conform(commands: Any) -> None:
    conform = commands.add_parser(
        "conform",
        help="ask an adapter whether it keeps the contract",
        description="Runs the conformance kit on a backend. What fails is told once for each "
        "cause. Exit codes: 0 it conforms, 1 it does not, 2 usage.",
    )
    conform.add_argument(
        "target",
        metavar="MODULE:BACKEND",
        help="a class without arguments, or a backend; or the name of a registered one",
    )
    conform.add_argument(
        "--excuse", action="append", default=[], metavar="NAME=REASON",
        help="what the engine lacks, such as jvp='reverse mode alone'; may be repeated",
    )  # fmt: skip
    conform.add_argument(
        "--scenario", action="append", metavar="NAME", help="this one alone; may be repeated"
    )
    conform.add_argument(
        "--draw", metavar="MODULE:FUNCTION", help="what draws a random number of the engine"
    )
    conform.add_argument(
        "--thorough", action="store_true", help="every scenario in each dtype, with every fault"
    )
    conform.set_defaults(command=_conform)


def _processes(text: str) -> int | str:
    if text == "auto":
        return text
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor auto") from None


# ---------------------------------------------------------------- adjudge check


def _check(parsed: argparse.Namespace) -> int:
    known = [] if parsed.known is None else read_known(parsed.known)
    for path in (parsed.json, parsed.junit, parsed.html):
        if path is not None:
            try_to_write(path)
    if parsed.html is not None:
        ready_for_page()
    _require_time(parsed.timeout)
    if isinstance(parsed.processes, int) and parsed.processes < 1:
        raise InputError(f"-n {parsed.processes}", "give at least one process, or leave out -n")
    found = collect(parsed.targets, parsed.keyword)
    if parsed.last_failed:
        _keep_last_failed(found)
    for one in found.uncollected:
        _say(f"not collected: {one}", sys.stderr)
    if not found.cases:
        if found.uncollected:
            return UNCOLLECTED
        raise InputError(f"no case has {parsed.keyword!r} in its name", "give another -k, or none")
    with _screen([one.name for one in found.cases], quiet=parsed.quiet) as show:
        report = run(
            found.cases,
            executor=parsed.processes,
            timeout=parsed.timeout,
            seed=parsed.seed,
            stop_at_failure=parsed.stop,
            on_result=show,
            reference=parsed.reference,
        )
    today = datetime.datetime.now().astimezone().date()
    reasons = {one.case: one.reason for one in known}
    excused = {
        result.name: reasons[result.name]
        for result in report.results
        if any(one.excuses(result, today) for one in known)
    }
    _summarize(report, excused, parsed.durations)
    for sentence in outlived(known, report.results, today):
        _say(f"known failures: {sentence}")
    _write(report, excused, parsed)
    return _code(report, excused, found)


def _code(report: RunReport, excused: Mapping[str, str], found: Collection) -> int:
    counted = [one.verdict for one in report.results if one.name not in excused]
    return _exit_code(worst([Verdict.PASS, *counted]), found)


def _exit_code(overall: Verdict, found: Collection) -> int:
    if overall is Verdict.FAIL:
        return FAILED
    if found.uncollected:
        return UNCOLLECTED
    return UNDECIDED if overall is Verdict.INCONCLUSIVE else OK


def _summarize(report: RunReport, excused: Mapping[str, str], durations: int) -> None:
    """Prints which cases ended how, and the slowest."""
    _say("")
    counted = [one for one in report.results if one.name not in excused]
    kinds = [*map(str, Verdict), *(ending.value for ending in Ending)]
    rows = {kind: [one.name for one in counted if one.kind == kind] for kind in kinds}
    rows |= {"known": list(excused), "not begun": list(report.skipped)}
    for words, these in rows.items():
        if these:
            _say(f"{words:<12} {len(these):>4}   {', '.join(these)}")
    slowest = sorted(report.results, key=lambda one: -one.seconds)[:durations]
    for result in slowest:
        _say(f"{result.seconds:9.2f} s  {result.name}")


def _keep_last_failed(found: Collection) -> None:
    """Leaves the cases that did not pass in the last run; all of them where there is none such."""
    path = CACHE / LAST_RUN
    if not path.exists():
        raise InputError(f"no run is remembered in {CACHE}", "run once without --last-failed")
    last = read_run(path)
    failed = {one.place for one in last.results if one.verdict is not Verdict.PASS}
    if not any(one.place in failed for one in found.cases):
        _say("adjudge: none of these failed in the last run: all are judged", sys.stderr)
        return
    found.cases = [one for one in found.cases if one.place in failed]


def _write(report: RunReport, excused: Mapping[str, str], parsed: argparse.Namespace) -> None:
    """Writes the files that were asked for, and remembers the run."""
    text = report.to_json()
    if parsed.json is not None:
        parsed.json.write_text(text, encoding="utf-8")
    if parsed.junit is not None:
        parsed.junit.write_text(junit(report, excused), encoding="utf-8")
    if parsed.html is not None:
        parsed.html.write_text(page(report, excused, file=parsed.json), encoding="utf-8")
    if parsed.github:
        for line in github(report, excused):
            sys.stdout.write(line + "\n")
    try:
        CACHE.mkdir(exist_ok=True)
        (CACHE / ".gitignore").write_text("*\n")
        (CACHE / LAST_RUN).write_text(text, encoding="utf-8")
    except OSError as error:
        _say(f"adjudge: this run is not remembered in {CACHE}: {error.strerror}", sys.stderr)


@contextmanager
def _screen(names: Sequence[str], *, quiet: bool) -> Iterator[Callable[[Result], None]]:
    """Yields what shows a result as it comes: a line, with the details below it. On a terminal
    there is a bar of progress as well, if rich is installed.
    """
    width = max(map(len, names))

    def lines(result: Result) -> Iterator[str]:
        yield f"{result.verdict:<12} {result.name:<{width}}  {_brief(result)}"
        if result.verdict is not Verdict.PASS and result.details and not quiet:
            yield "\n".join("    " + line for line in result.details.splitlines())

    if not (sys.stdout.isatty() and importlib.util.find_spec("rich")):
        yield lambda result: _say("\n".join(lines(result)))
        return
    from rich.console import Console  # imported where there is a terminal to draw on
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn
    from rich.text import Text

    colors = {Verdict.PASS: "green", Verdict.FAIL: "red", Verdict.INCONCLUSIVE: "yellow"}
    console = Console(highlight=False, soft_wrap=True)
    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("", total=len(names))

        def show(result: Result) -> None:
            text = Text(visible("\n".join(lines(result))))
            text.stylize(colors[result.verdict], 0, len(result.verdict))
            console.print(text)
            progress.advance(bar)

        yield show


def _brief(result: Result) -> str:
    """Returns the provenance and the verdicts of a case in one line, or how it ended."""
    if result.report is None:
        return result.headline
    made, compared = result.report["provenance"], result.report["counts"]["comparisons"]
    modes = " ".join(f"{mode}:{verdict}" for mode, verdict in result.report["modes"].items())
    note = f", {made['note']}" if made["note"] else ""
    return (
        f"{made['backend']} {made['version']}, {made['device']}, {made['dtype']}{note}; {modes}; "
        f"{compared} comparison{'s' * (compared != 1)}"
    )


# ---------------------------------------------------------------- adjudge blame


def _blame(parsed: argparse.Namespace) -> int:
    from adjudge.trace import blame, blame_options  # no other command needs it

    found = collect([parsed.target])
    for one in found.uncollected:
        _say(f"not collected: {one}", sys.stderr)
    verdicts = [Verdict.PASS]
    for declared in found.cases:
        case = declared.case
        options: Any = blame_options(case.options)
        if parsed.seed is not None:
            options["seed"] = parsed.seed
        if case.order > 1 and "modes" not in options:
            options["order"] = case.order
        _say(f"{declared.place.target}:{declared.place.key}")
        left = [name for name in case.options if name not in {*options, "blame"}]
        if left:
            _say(f"options of the case that blame has none of: {', '.join(left)}")
        try:
            report = blame(case.f, case.inputs, every=parsed.every, **options)
        except (Exception, SystemExit) as error:  # one case must not hide what the others have
            headline, text = what_was_raised(error)
            _say(f"{Verdict.FAIL}: {headline}\n" + indent(text, "    "))
            verdicts.append(Verdict.FAIL)
            continue
        _say(str(report))
        if parsed.trace:
            _say(report.trace)
        verdicts.append(report.verdict)
    return _exit_code(worst(verdicts), found)


# ---------------------------------------------------------------- adjudge replay, diff and page


def _replay(parsed: argparse.Namespace) -> int:
    path, name = _report_and_case(parsed.target)
    before = read_run(path)
    chosen = [one for one in before.results if name in (None, one.name)]
    if not chosen:
        names = ", ".join(one.name for one in before.results)
        raise InputError(f"{path} has no case named {name!r}", f"it has: {names}")
    lost = [one.name for one in chosen if one.place is None]
    if lost:
        raise InputError(
            f"{path} does not say where {', '.join(lost)} is declared",
            "replay what `adjudge check` has judged, or run the cases again from your own code",
        )
    found = collect([f"{one.place.target}:{one.place.key}" for one in chosen if one.place])
    for problem in found.uncollected:
        _say(f"not collected: {problem}", sys.stderr)
    by_place = {one.place: one.case for one in found.cases}
    same = True
    results = []
    for one in chosen:
        if one.place not in by_place:
            continue
        case = by_place[one.place]
        case.options["seed"] = one.seed
        if one.report is not None and one.report["provenance"].get("exact"):
            case.options["reference"] = "exact"  # its own, or that of the run
        result = run({one.name: case}, seed=before.seed).results[0]
        results.append(result)
        differences = repeated(one, result)
        same = same and not differences
        _say(f"{result.verdict:<12} {result.name}: {'the same' if not differences else 'differs'}")
        for line in differences:
            _say(f"    {line}")
    report = RunReport(results, before.seed, 0.0)
    code = _code(report, {}, found)
    return code if code != OK or same else FAILED


def _report_and_case(target: str) -> tuple[Path, str | None]:
    if Path(target).is_file():
        return Path(target), None
    path, colon, name = target.partition(".json:")
    return (Path(path + ".json"), name) if colon else (Path(target), None)


def _diff(parsed: argparse.Namespace) -> int:
    found = changes(read_run(parsed.before), read_run(parsed.after))
    for change in found:
        _say(str(change))
    if not found:
        _say("no verdict changed")
    return FAILED if any(change.worse for change in found) else OK


def _page(parsed: argparse.Namespace) -> int:
    try_to_write(parsed.html)
    report = read_run(parsed.report)
    try:
        text = page(report, file=parsed.report)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{parsed.report} is no whole file of a run ({type(error).__name__}: {error})",
            "give a file that this version of adjudge wrote with --json",
        ) from error
    parsed.html.write_text(text, encoding="utf-8")
    return OK


# ---------------------------------------------------------------- adjudge write


def _require_time(seconds: float | None) -> None:
    """Raises `InputError` for a limit of time that leaves none."""
    if seconds is not None and not seconds > 0:
        raise InputError(f"--timeout {seconds:g}", "give a positive number of seconds")


def _write_tests(parsed: argparse.Namespace) -> int:
    name = parsed.target.partition(":")[0].replace(".", "_")
    path = parsed.output or Path(f"test_{name}_derivatives.py")
    if path.exists() and not parsed.force:
        raise InputError(f"{path} exists", "give another file with -o, or --force to replace it")
    _require_time(parsed.timeout)
    try_to_write(path)
    sys.path.insert(0, str(Path.cwd()))  # as `python -m` does, and pytest in this folder
    written = write(
        parsed.target,
        backend=parsed.backend,
        recursive=parsed.recursive,
        methods=parsed.methods,
        keyword=parsed.keyword,
        timeout=parsed.timeout,
        on_result=_say_tried,
    )
    if not written.tests:
        return UNCOLLECTED
    path.write_text(written.text, encoding="utf-8")
    failing = len(written.failing)
    counts = f"{len(written.tests)} written, {failing} failing, {len(written.left_out)} left out"
    _say(f"{path}: {counts}")
    return FAILED if failing else OK


def _say_tried(result: Found | LeftOut) -> None:
    if isinstance(result, LeftOut):
        _say(f"{'left out':<12} {result.name}: {result.reason}")
    else:
        about = "" if result.verdict is Verdict.PASS else f": {result.outline}"
        _say(f"{result.verdict:<12} {result.subject.label}{about}")


# ---------------------------------------------------------------- adjudge backends


def _backends(parsed: argparse.Namespace) -> int:
    rows = [("backend", "version", "devices", "dtypes")]
    seen: set[str] = set()
    for name in PLAIN:
        with suppress(BackendError):  # one that is not installed is nothing to install for adjudge
            plain = backend_named(name)
            devices, dtypes = plain.arrays.devices(), plain.arrays.dtypes()
            by_hand = f"{', '.join(dtypes)}; derivatives by hand"
            rows.append((name, plain.environment.version, ", ".join(devices), by_hand))
    for entry in entries():
        if entry.point.value in seen:
            continue
        seen.add(entry.point.value)
        try:
            backend = entry.load()
        except BackendError as error:
            cause = error.__cause__
            missing = isinstance(cause, ModuleNotFoundError) and cause.name == entry.root
            state = "not installed" if missing else "fails to import"
            rows.append((entry.root, "-", state, error.remedy))
            continue
        if reason := backend.environment.unavailable():
            rows.append((backend.name, backend.environment.version, "none", reason))
            continue
        rows.append(
            (
                backend.name,
                backend.environment.version,
                ", ".join(backend.arrays.devices()),
                ", ".join(backend.arrays.dtypes()),
            )
        )
    widths = [max(len(row[k]) for row in rows) for k in range(3)]
    for row in rows:
        _say(
            "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False))
            + "  "
            + row[3]
        )
    return OK


# ---------------------------------------------------------------- adjudge conform


def _conform(parsed: argparse.Namespace) -> int:
    from adjudge.conformance import ConformanceError, assert_conforms  # no other command needs it

    sys.path.insert(0, str(Path.cwd()))  # as `python -m` does
    by_name = ":" not in parsed.target and parsed.target in names()
    backend = parsed.target if by_name else _named(parsed.target)
    excused = dict(excuse.partition("=")[::2] for excuse in parsed.excuse)
    disturb = {"random numbers": (_named(parsed.draw), None)} if parsed.draw else None
    try:
        summary = assert_conforms(
            _made(parsed.target, backend) if isinstance(backend, type) else backend,
            excused=excused, scenarios=parsed.scenario, thorough=parsed.thorough, disturb=disturb,
        )  # fmt: skip
    except ConformanceError as error:
        _say(str(error))
        return FAILED
    _say(str(summary))
    return OK


def _named(target: str) -> Any:
    """Returns the object that `MODULE:NAME` names."""
    module, _, name = target.partition(":")
    there = imported(module)
    with Catching(Exception) as caught:  # a module may import what it holds when that is asked for
        return getattr(there, name)
    if isinstance(caught.error, AttributeError):
        raise InputError(
            f"{target!r} names nothing in {module}", "give MODULE:NAME of what is defined there"
        ) from caught.error
    assert caught.error is not None
    raise not_imported(module, caught.error) from caught.error


def _made(target: str, kind: type) -> Any:
    """Returns the backend of a class. Raises `InputError` where it is not made without arguments,
    as the registry makes it.
    """
    with Catching(Exception) as caught:  # whatever the class does when it is called
        return kind()
    error = caught.error
    first = (str(error).splitlines() or [""])[0]
    missing = sorted(getattr(kind, "__abstractmethods__", ()))
    raise InputError(
        f"{target} cannot be made: {type(error).__name__}: {first}",
        f"define what an adapter must have: {', '.join(missing)}"
        if missing
        else "a backend is made without arguments; or name one that is made: MODULE:INSTANCE",
    ) from error


def _say(text: str, stream: TextIO | None = None) -> None:
    """Writes `text` as a line to the stream."""
    (stream or sys.stdout).write(visible(text) + "\n")


if __name__ == "__main__":  # `python -m adjudge.cli` would end with 0 and ask nothing
    sys.exit(main())
