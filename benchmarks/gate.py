"""Records what adjudge says of some thousand functions, and prints what differs from a recording.

The gate holds a rearrangement of the code to what the code did before. Every case is judged once,
with fixed seeds and in one thread, and becomes one line of JSON: the verdict, the outcome of every
mode, the kinds of findings, and how many evaluations, vjps, jvps and comparisons it took. No line
holds a sentence or a time, so that two runs of one state of the code write the same lines.

Only names that `import adjudge` offers are used, so the same script runs on any state of the code:

    PYTHONPATH=before/src:before/adapters python benchmarks/gate.py record before.jsonl
    python benchmarks/gate.py check before.jsonl --slice 20
    python benchmarks/gate.py compare before.jsonl after.jsonl
    python benchmarks/gate.py stages after.jsonl

With `--verdicts` the numbers of evaluations may differ: only their sums are printed.
The last command prints how often each stage of a verdict was reached, and how often it decided.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.metadata
import json
import os
import platform
import random
import sys
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from harness import (
    Family,
    OutOfTimeError,
    SkippedError,
    check_of,
    deadline,
    isolated,
    spread,
    table,
    told,
)

PINNED = {
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "JAX_PLATFORMS": "cpu",
}
"""The script starts itself again in this environment: the order of sets and the number of threads
would otherwise reach the last digits of a derivative, and through them a count of evaluations."""
COUNTS = ("evaluations", "vjps", "jvps", "comparisons", "identities", "probes")
DELTAS = (1e-4, 1e-6)
"""Relative errors that are planted in the operators of PyTorch, in the primitives of JAX, and in
the gradients that crosscheck compares."""
LIMIT = 600.0
"""Seconds of processor time for a case. This is far above what any case takes, so that a busy
machine does not reach it. A case that does is named in the output and is not compared."""
VERSIONS = ("torch", "jax", "jaxlib", "numpy", "mpmath")
Record = dict[str, Any]


# ---------------------------------------------------------------- what is recorded of a case


def judged(key: str, check: Callable[[], Any]) -> Record:
    """The record of one check, of which the random states of all libraries are set first."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002  the functions under test may draw from the global state
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with deadline(LIMIT):
                return {"key": key, **facts(check())}
        except OutOfTimeError:
            return {"key": key, "ended": "out of time"}
        except Exception as error:  # an exception is an outcome that must not change either
            return {"key": key, "ended": type(error).__name__}


def facts(report: Any) -> Record:
    """The facts of a report of one engine, or of a report that compares several engines."""
    if hasattr(report, "divergences"):
        return {
            "verdict": str(report.verdict),
            "cells": {q: dict(row) for q, row in report.cells.items()},
            "compared": {q: dict(row) for q, row in report.comparisons.items()},
            "divergences": tallied(
                [d.status, d.quantity, *d.pair, d.verdict, *d.accused] for d in report.divergences
            ),
            "raised": sorted(report.raised),
            "reports": {engine: facts(own) for engine, own in report.reports.items()},
        }
    found: Record = {
        "verdict": str(report.verdict),
        "modes": {mode: str(outcome) for mode, outcome in report.modes.items()},
        "findings": tallied([f.status, f.mode, f.way, f.verdict] for f in report.findings),
        "counts": {name: report.counts[name] for name in COUNTS if name in report.counts},
    }
    if getattr(report, "stages", None):
        found["stages"] = {name: list(count) for name, count in report.stages.items()}
    if report.ways:
        found["ways"] = {
            way: {mode: str(outcome) for mode, outcome in row.items()}
            for way, row in report.ways.items()
        }
    return found


def tallied(kinds: Iterator[list[Any]]) -> list[str]:
    """The different kinds of findings in the order of the alphabet, each with its number."""
    counts = Counter(" ".join(str(word) for word in kind if word) for kind in kinds)
    return [f"{count} {kind}" for kind, count in sorted(counts.items())]


# ---------------------------------------------------------------- the cases of a part

PARTS = {
    "zoo": "zoo",
    "torch": "torch_operators",
    "jax": "jax_primitives",
    "modes": "findings",
    "cross": "crosscheck",
}
"""The parts of the gate, and the modules that hold their cases."""


def family_of(part: str) -> Family:
    """The cases of a part; engines are imported for it."""
    return importlib.import_module(PARTS[part]).FAMILY  # type: ignore[no-any-return]


def prepare(part: str) -> Callable[[str], list[Record]]:
    """What makes the records of a unit, in the process that does the work."""
    family = family_of(part)
    cases = family.prepare(DELTAS)

    def records(unit: str) -> list[Record]:
        found = []
        try:
            for case in cases(unit):
                found.append(judged(f"{part} {unit} | {case.plant}", check_of(case)))
        except SkippedError:
            return []
        return found

    def alone(unit: str) -> list[Record]:
        try:
            return isolated(records, unit, seconds=20 * LIMIT)  # type: ignore[no-any-return]
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1]
            return [{"key": f"{part} {unit} | right", "ended": f"the process: {reason}"}]

    return alone if family.alone else records


# ---------------------------------------------------------------- running


def in_slice(part: str, unit: str, every: int) -> bool:
    """Whether a unit belongs to the slice that holds about one unit of `every`.

    The choice depends on the name alone, so that a slice can be compared with a whole recording.
    """
    return zlib.crc32(f"{part} {unit}".encode()) % every == 0


def run(part: str, every: int, processes: int) -> dict[str, Record]:
    """The records of a slice of one part by their keys; progress goes to standard error."""
    start = time.perf_counter()
    units = isolated(lambda: family_of(part).units(), seconds=LIMIT)
    units = [unit for unit in units if in_slice(part, unit, every)]
    records: dict[str, Record] = {}
    work = functools.partial(prepare, part)
    for number, (unit, found) in enumerate(spread(work, units, processes), start=1):
        for record in found:
            if record["key"] in records:
                raise RuntimeError(f"two cases have the key {record['key']!r}")
            records[record["key"]] = record
        if number % 50 == 0:
            told(f"{part} {number}/{len(units)} {time.perf_counter() - start:.0f} s, {unit}")
    seconds = time.perf_counter() - start
    told(f"{part}: {len(units)} units, {len(records)} cases, {seconds:.0f} s")
    return records


def about() -> dict[str, str]:
    """The versions on which the digits, and through them the counts, may depend."""
    versions = {name: importlib.metadata.version(name) for name in VERSIONS}
    return {"python": platform.python_version(), "machine": platform.machine(), **versions}


def write(file: Path, records: Mapping[str, Record]) -> None:
    """A line about the versions, and one line for each case in the order of the keys."""
    lines = [{"about": about()}, *(record for _, record in sorted(records.items()))]
    file.write_text("".join(f"{json.dumps(line, sort_keys=True)}\n" for line in lines))


def read(file: Path) -> tuple[dict[str, str], dict[str, Record]]:
    """The versions and the records of a recording."""
    first, *rest = (json.loads(line) for line in file.read_text().splitlines())
    return first["about"], {record["key"]: record for record in rest}


# ---------------------------------------------------------------- comparing


def differences(
    old: Mapping[str, Record], new: Mapping[str, Record], ignored: Sequence[str]
) -> Iterator[str]:
    """One block of lines for each case that differs in more than the fields that are ignored."""
    for key in sorted(old.keys() | new.keys()):
        if key not in new:
            yield f"{key}\n    the case is gone"
        elif key not in old:
            yield f"{key}\n    the case is new"
        elif not out_of_time(old[key], new[key]):
            before, after = without(old[key], ignored), without(new[key], ignored)
            lines = [
                f"    {field}: {before.get(field)} -> {after.get(field)}"
                for field in sorted(before.keys() | after.keys())
                if before.get(field) != after.get(field)
            ]
            if lines:
                yield "\n".join([key, *lines])


def without(record: Record, ignored: Sequence[str]) -> Record:
    """The record without the fields of these names, also within the reports of several engines."""
    return {
        name: {engine: without(own, ignored) for engine, own in value.items()}
        if name == "reports"
        else value
        for name, value in record.items()
        if name not in ignored
    }


def spent(records: Mapping[str, Record]) -> Counter[str]:
    """The sums of all counts."""
    sums: Counter[str] = Counter()
    for record in records.values():
        for own in (record, *record.get("reports", {}).values()):
            sums.update(own.get("counts", {}))
    return sums


def out_of_time(*records: Record) -> bool:
    """Whether one of two records says nothing but that the time was up."""
    return any(record.get("ended") == "out of time" for record in records)


def compared(old: Mapping[str, Record], new: Mapping[str, Record], *, verdicts: bool) -> int:
    """Prints what differs, and returns the exit status."""
    ignored = ("stages", "counts", "compared") if verdicts else ("stages",)
    for key in sorted(old.keys() | new.keys()):
        if out_of_time(*(records[key] for records in (old, new) if key in records)):
            print(f"{key}\n    ran out of time and is not compared")
    found = list(differences(old, new, ignored))
    before, after = spent(old), spent(new)
    for name in sorted(before.keys() | after.keys()):
        print(f"{name}: {before[name]} -> {after[name]}")
    print("\n".join([*found, f"{len(old)} cases, {len(found)} differ"]))
    return bool(found)


def print_stages(records: Mapping[str, Record]) -> None:
    """Prints, by part, how many columns each stage was tried on and how many it decided."""
    counts: dict[str, Counter[str]] = {}
    for key, record in records.items():
        part = key.split(" ", 1)[0]
        for own in (record, *record.get("reports", {}).values()):
            for stage, (reached, decided) in own.get("stages", {}).items():
                row = counts.setdefault(stage, Counter())
                row[f"{part} reached"] += reached
                row[f"{part} decided"] += decided
    recorded = {key.split(" ", 1)[0] for key in records}
    parts = [part for part in PARTS if part in recorded]
    columns = [f"{part} {what}" for part in parts for what in ("reached", "decided")]
    rows = sorted(counts.items(), key=lambda item: -sum(item[1].values()))
    print(table(["stage", *columns], [[stage, *(row[c] for c in columns)] for stage, row in rows]))


def chosen(records: Mapping[str, Record], parts: Sequence[str], every: int) -> dict[str, Record]:
    """The part of a recording that a run with these options makes again."""
    kept = {}
    for key, record in records.items():
        part, unit = key.rsplit(" | ", 1)[0].split(" ", 1)
        if part in parts and in_slice(part, unit, every):
            kept[key] = record
    return kept


# ---------------------------------------------------------------- command line


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    running = argparse.ArgumentParser(add_help=False)
    running.add_argument("--parts", default=",".join(PARTS), help="some of %(default)s")
    running.add_argument("--slice", type=int, default=1, metavar="N", help="one unit of N")
    running.add_argument("--processes", type=int, default=2, metavar="N")
    record = commands.add_parser("record", parents=[running], help="run, and write a recording")
    record.add_argument("file", type=Path)
    check = commands.add_parser("check", parents=[running], help="run, and print what differs")
    check.add_argument("file", type=Path)
    check.add_argument("--keep", type=Path, metavar="FILE", help="write what was run to this file")
    compare = commands.add_parser("compare", help="print what differs between two recordings")
    compare.add_argument("old", type=Path)
    compare.add_argument("new", type=Path)
    for one in (check, compare):
        one.add_argument("--verdicts", action="store_true", help="let counts differ")
    stages = commands.add_parser("stages", help="print how often each stage decided")
    stages.add_argument("file", type=Path)
    return parser.parse_args(arguments)


def main() -> int:
    """Runs or compares, as the command line says."""
    options = parse()
    if options.command == "compare":
        (old_about, old), (new_about, new) = read(options.old), read(options.new)
        warned(old_about, new_about)
        return compared(old, new, verdicts=options.verdicts)
    if options.command == "stages":
        print_stages(read(options.file)[1])
        return 0
    if any(os.environ.get(name) != value for name, value in PINNED.items()):
        environment = {**os.environ, **PINNED}
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)  # noqa: S606  is itself
    parts = [part for part in PARTS if part in options.parts.split(",")]
    kept = options.file if options.command == "record" else options.keep
    records: dict[str, Record] = {}
    for part in parts:
        records |= run(part, options.slice, options.processes)
        if kept:
            write(kept, records)
    if options.command == "record":
        return 0
    old_about, old = read(options.file)
    warned(old_about, about())
    kept_of_old = chosen(old, parts, options.slice)
    return compared(kept_of_old, records, verdicts=options.verdicts)


def warned(old: Mapping[str, str], new: Mapping[str, str]) -> None:
    """Says which versions differ, which explains differences that nobody made."""
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            print(f"another version of {name}: {old.get(name)} -> {new.get(name)}")


if __name__ == "__main__":
    sys.exit(main())
