"""This module is the command line, with the commands `adjudge check FILE_OR_MODULE[:NAME]` and
`adjudge backends`.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TextIO

import numpy as np

from adjudge._version import __version__
from adjudge.engine import entries
from adjudge.errors import AdjudgeError, BackendError, Catching, InputError
from adjudge.findings import Verdict, worst
from adjudge.verbs import Case

OK, FAILED, USAGE, UNDECIDED = 0, 1, 2, 3
"""The exit codes. They mean in this order that all cases passed, that some case failed or raised,
that the usage was wrong, and that some case is inconclusive and none failed. Code 2 for usage is
that of `argparse`; the others are ours."""

_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command, and returns its exit code."""
    parsed = _parser().parse_args(arguments)
    try:
        code: int = parsed.command(parsed)
    except AdjudgeError as error:
        _say(f"adjudge: {error}", sys.stderr)
        return USAGE
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="adjudge", description="Are these the derivatives of that function?"
    )
    parser.add_argument("--version", action="version", version=f"adjudge {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    check = commands.add_parser(
        "check",
        help="run the cases that a Python file or module declares",
        description="Runs every adjudge.Case of a Python file or module, which is executed for "
        "that. Exit codes: 0 all pass, 1 some fail, 2 usage, 3 none fails and some are "
        "inconclusive.",
    )
    check.add_argument("target", metavar="FILE_OR_MODULE[:NAME]", help="NAME: one case of it")
    check.add_argument(
        "-q", "--quiet", action="store_true", help="leave out the details of what did not pass"
    )
    check.set_defaults(command=_check)
    backends = commands.add_parser(
        "backends", help="list the engines, and how to install those that are missing"
    )
    backends.set_defaults(command=_backends)
    return parser


# ---------------------------------------------------------------- adjudge check


def _check(parsed: argparse.Namespace) -> int:
    cases = _cases(parsed.target)
    width = max(len(case.name) for _, case in cases)
    rows: list[tuple[str, Verdict, str]] = []
    for _, case in cases:
        verdict, line, details = _run(case)
        rows.append((case.name, verdict, line))
        _say(f"{verdict:<12} {case.name:<{width}}  {line}")
        if details and not parsed.quiet:
            _say("\n".join("    " + text for text in details.splitlines()))
    _say("")
    for verdict in Verdict:
        names = [name for name, found, _ in rows if found is verdict]
        if names:
            _say(f"{verdict:<12} {len(names):>4}   {', '.join(names)}")
    overall = worst([verdict for _, verdict, _ in rows])
    return {Verdict.PASS: OK, Verdict.FAIL: FAILED, Verdict.INCONCLUSIVE: UNDECIDED}[overall]


def _run(case: Case) -> tuple[Verdict, str, str]:
    """Runs `case`, and returns its verdict, one line, and the details if it did not pass."""
    # An exception in one case must not hide the other cases.
    with Catching(Exception) as caught:
        report = case.run()
    if (error := caught.error) is not None:
        notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
        first = str(error).partition("\n")[0]
        return Verdict.FAIL, f"raised {type(error).__name__}: {first}{notes}", ""
    modes = " ".join(f"{mode}:{verdict}" for mode, verdict in report.modes.items())
    line = f"{report.provenance}; {modes}; {report.counts['comparisons']} comparisons"
    return report.verdict, line, "" if report else str(report)


def _cases(target: str) -> list[tuple[str, Case]]:
    place, name = _split(target)
    module = _module(place)
    cases = list(_declared(module))
    if name is not None:
        cases = [(key, case) for key, case in cases if name in (key, case.name)]
    if not cases:
        known = ", ".join(case.name for _, case in _declared(module)) or "none"
        raise InputError(
            f"{place} declares no case" + (f" named {name!r} (it has: {known})" if name else ""),
            "declare one: softmax = adjudge.Case(f, inputs), or CASES = [adjudge.Case(...), ...]",
        )
    return cases


def _split(target: str) -> tuple[str, str | None]:
    if Path(target).is_file():
        return target, None
    place, colon, name = target.rpartition(":")
    return (place, name) if colon and place else (target, None)


def _declared(module: ModuleType) -> Iterator[tuple[str, Case]]:
    for key, value in vars(module).items():
        if isinstance(value, Case):
            yield key, value
        elif isinstance(value, list | tuple):
            for k, item in enumerate(value):
                if isinstance(item, Case):
                    yield f"{key}[{k}]", item


def _module(place: str) -> ModuleType:
    path = Path(place)
    if path.is_file():
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise InputError(f"{place} is no Python file", "give a .py file, or a module's name")
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        return module
    if place.endswith(".py") or "/" in place:
        raise InputError(f"there is no file {place}", "give the path of a Python file")
    if not _MODULE.fullmatch(place):
        raise InputError(f"{place!r} names neither a file nor a module", "see adjudge check --help")
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is not None and place.startswith(error.name):
            raise InputError(
                f"there is no module {place}", "give the path of a file, or install the module"
            ) from error
        raise


# ---------------------------------------------------------------- adjudge backends


def _backends(parsed: argparse.Namespace) -> int:
    rows = [("backend", "version", "devices", "dtypes")]
    rows.append(("by hand", f"numpy {np.__version__}", "cpu", "float64, float32, complex128, …"))
    seen: set[str] = set()
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


def _say(text: str, stream: TextIO | None = None) -> None:
    """Writes `text` as a line to the stream. Control characters in it are shown as escapes, since
    those of a user's string could otherwise change the terminal.
    """
    clean = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
    (stream or sys.stdout).write(clean + "\n")
