"""Records what adjudge says of some thousand functions, and prints what differs from a recording.

The gate holds a rearrangement of the code to what the code did before. Every case is judged once,
with fixed seeds and in one thread, and becomes one line of JSON: the verdict, the outcome of every
mode, the kinds of findings, and how many evaluations, vjps, jvps and comparisons it took. No line
holds a sentence or a time, so that two runs of one state of the code write the same lines.

Only names that `import adjudge` offers are used, so the same script runs on any state of the code:

    PYTHONPATH=before/src:before/adapters python benchmarks/gate.py record before.jsonl
    python benchmarks/gate.py check before.jsonl --slice 20
    python benchmarks/gate.py compare before.jsonl after.jsonl
"""

from __future__ import annotations

import argparse
import functools
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from isolation import OutOfTimeError, deadline, isolated, spread

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


# ---------------------------------------------------------------- the parts


@dataclass(frozen=True)
class Part:
    """One family of cases. A unit is what is set up once, and judged right and with errors."""

    units: Callable[[], list[str]]
    """The names of all units. It is called in a process of its own, since it imports engines."""
    prepare: Callable[[], Callable[[str], list[Record]]]
    """What makes the records of a unit. It is called in the process that does the work."""


def zoo_units() -> list[str]:
    """Every hostile function of both halves in four dtypes at two random points."""
    from zoo import DTYPES
    from zoo_functions import ZOO

    return [f"{dtype} {seed} {s.name}" for s in ZOO for dtype in DTYPES for seed in (0, 1)]


def zoo_prepare() -> Callable[[str], list[Record]]:
    """Asks about a hostile function, right and with every planted error that shows in it."""
    import torch
    from zoo import Problem, prepare
    from zoo_functions import ZOO

    import adjudge

    torch.set_num_threads(1)
    by_name = {specimen.name: specimen for specimen in ZOO}

    def work(unit: str) -> list[Record]:
        dtype, seed, name = unit.split(" ", 2)
        problem = Problem(by_name[name], dtype, int(seed))
        prepared = prepare(problem)
        if prepared.left_out:
            return []
        records = []
        for corruption in (None, *prepared.corruptions):
            plant = "right" if corruption is None else str(corruption.plant)
            f, tensors = Problem(by_name[name], dtype, int(seed), corruption).torch()
            check = functools.partial(adjudge.examine, f, tensors, seed=int(seed))
            records.append(judged(f"zoo {unit} | {plant}", check))
        return records

    return work


def torch_units() -> list[str]:
    """Every operator of PyTorch's database, with its index there, in float64 and complex128."""
    from operator_cases import name
    from torch.testing._internal.common_methods_invocations import op_db

    dtypes = ("float64", "complex128")
    return [f"{dtype} {k} {name(op)}" for k, op in enumerate(op_db) for dtype in dtypes]


def torch_prepare() -> Callable[[str], list[Record]]:
    """Asks about an operator in a process of its own, since some operators end theirs."""
    import torch
    from torch.testing._internal import common_methods_invocations

    import adjudge

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    x = torch.linspace(0.1, 1.0, 3, dtype=torch.float64, requires_grad=True)
    adjudge.examine(torch.sin, (x,))  # what is imported late is imported before the forks
    assert common_methods_invocations.op_db

    def work(unit: str) -> list[Record]:
        try:
            return isolated(operator_records, unit, seconds=20 * LIMIT)  # type: ignore[no-any-return]
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1]
            return [{"key": f"torch {unit} | right", "ended": f"the process: {reason}"}]

    return work


def operator_records(unit: str) -> list[Record]:
    """The records of an operator as it is, and with each planted error."""
    import torch
    from operator_cases import case, planted, spot
    from torch.testing._internal.common_methods_invocations import op_db

    import adjudge

    dtype, index, name = unit.split(" ", 2)
    operator, kind = op_db[int(index)], getattr(torch, dtype)
    try:
        right = case(operator, kind)
    except Exception:  # an operator without a usable sample is no case
        return []
    try:
        place = spot(right, f"{name} {dtype}")
    except Exception:  # an operator without a gradient to falsify is judged as it is
        place = None
    records = []
    for delta in (0.0, *DELTAS) if place else (0.0,):
        asked = case(operator, kind)
        if place and delta:
            asked = planted(asked, place, delta)
        check = functools.partial(
            adjudge.gradcheck,
            asked.function,
            asked.inputs,
            nondet_tol=asked.nondet_tol,
            raise_exception=False,
            seed=0,
        )
        records.append(judged(f"torch {unit} | {planted_name(delta)}", check))
    return records


def planted_name(delta: float) -> str:
    """What a case with this relative error is called."""
    return f"{delta:g}" if delta else "right"


def jax_units() -> list[str]:
    """Every group of JAX's harnesses, which stands for a primitive, in float64 and float32."""
    from jax_primitives import all_harnesses

    dtypes = ("float64", "float32")
    there = {(np.dtype(h.dtype).name, str(h.group_name)) for h in all_harnesses()}
    return sorted(f"{dtype} {group}" for dtype, group in there if dtype in dtypes)


def jax_prepare() -> Callable[[str], list[Record]]:
    """Asks about the first harness of a group that JAX can differentiate."""
    import jax
    from jax_primitives import DOUBLE, all_harnesses, of_group, plant, site_of

    import adjudge

    groups: dict[str, list[Any]] = {}
    for harness in sorted(all_harnesses(), key=lambda h: str(h.fullname)):
        unit = f"{np.dtype(harness.dtype).name} {harness.group_name}"
        groups.setdefault(unit, []).append(harness)

    def work(unit: str) -> list[Record]:
        dtype = unit.split(" ")[0]
        records = []
        jax.clear_caches()
        with jax.enable_x64(dtype in DOUBLE):
            cases, _ = of_group(groups[unit], dtype, every=False)
            for case in cases:
                site = site_of(case)
                for delta in (0.0, *DELTAS) if site else (0.0,):
                    wrong = bool(site and delta)
                    f = plant(case.f, case.args[site.leaf], site, delta) if wrong else case.f
                    check = functools.partial(
                        adjudge.gradcheck,
                        f,
                        case.args,
                        check_forward_ad="fwd" in case.modes,
                        check_backward_ad="rev" in case.modes,
                        raise_exception=False,
                        seed=0,
                    )
                    records.append(judged(f"jax {unit} | {planted_name(delta)}", check))
        return records

    return work


def modes_units() -> list[str]:
    """Every function whose derivative is known to be wrong in some composition of modes."""
    from mode_known import KNOWN

    return [f"{k} {known.framework} {known.name}, {known.point}" for k, known in enumerate(KNOWN)]


def modes_prepare() -> Callable[[str], list[Record]]:
    """Asks about a known finding in all compositions of modes and all ways of the engine."""
    import jax
    import jax.numpy as jnp
    import torch
    from mode_known import KNOWN

    import adjudge

    torch.set_num_threads(1)
    jax.config.update("jax_enable_x64", True)

    def work(unit: str) -> list[Record]:
        known = KNOWN[int(unit.split(" ")[0])]
        points = [np.asarray(a, float) for a in known.x]
        if known.framework == "torch":
            inputs = tuple(torch.tensor(a, requires_grad=True) for a in points)
        else:
            inputs = tuple(jnp.asarray(a) for a in points)
        check = functools.partial(adjudge.examine, known.f(), inputs, order=2, seed=0)
        return [judged(f"modes {unit} | right", check)]

    return work


def cross_units() -> list[str]:
    """Every function of the tables of crosscheck, in every dtype of its table."""
    return [f"{title} {name}" for title, (table, _) in cross_tables().items() for name in table]


def cross_tables() -> dict[str, tuple[Any, str]]:
    """The tables of functions, and the dtype to which their inputs are cast."""
    from cross_functions import COMPLEX, EASY, HARD

    return {
        "float64": (EASY, "float64"),
        "float32": (EASY, "float32"),
        "complex128": (COMPLEX, "float64"),
        "complex64": (COMPLEX, "float32"),
        "hard,float64": (HARD, "float64"),
        "hard,float32": (HARD, "float32"),
    }


def cross_prepare() -> Callable[[str], list[Record]]:
    """Asks about one function on several engines: as it is, and with PyTorch's gradient wrong."""
    import optree
    import torch
    from operator_cases import ScaledGradient

    import adjudge

    torch.set_num_threads(1)
    tables = cross_tables()

    def cast(tree: Any, dtype: str) -> Any:
        narrow = {"float32": np.complex64, "float64": np.complex128}[dtype]
        return optree.tree_map(
            lambda a: np.asarray(a, dtype=narrow if np.iscomplexobj(a) else dtype), tree
        )

    def wrong(f: Callable[..., Any], element: int, delta: float) -> Callable[..., Any]:
        def planted(xp: Any, *arrays: Any) -> Any:
            leaves, structure = optree.tree_flatten(arrays)
            if isinstance(leaves[0], torch.Tensor):
                place = element % leaves[0].numel()
                leaves[0] = ScaledGradient.apply(leaves[0], place, 1 + delta)
            return f(xp, *optree.tree_unflatten(structure, leaves))

        return planted

    def work(unit: str) -> list[Record]:
        title, name = unit.split(" ", 1)
        table, dtype = tables[title]
        f, arrays = table[name]
        records = []
        for delta in (0.0, *DELTAS):
            engines = ["torch", "jax"] if delta else ["torch", "jax", "numpy"]
            g = wrong(f, list(table).index(name), delta) if delta else f
            check = functools.partial(
                adjudge.crosscheck,
                g,
                cast(arrays, dtype),
                engines,
                seed=7,
                raise_exception=False,
            )
            records.append(judged(f"cross {unit} | {planted_name(delta)}", check))
        return records

    return work


PARTS = {
    "zoo": Part(zoo_units, zoo_prepare),
    "torch": Part(torch_units, torch_prepare),
    "jax": Part(jax_units, jax_prepare),
    "modes": Part(modes_units, modes_prepare),
    "cross": Part(cross_units, cross_prepare),
}


# ---------------------------------------------------------------- running


def in_slice(part: str, unit: str, every: int) -> bool:
    """Whether a unit belongs to the slice that holds about one unit of `every`.

    The choice depends on the name alone, so that a slice can be compared with a whole recording.
    """
    return zlib.crc32(f"{part} {unit}".encode()) % every == 0


def run(name: str, every: int, processes: int) -> dict[str, Record]:
    """The records of a slice of one part by their keys; progress goes to standard error."""
    part, start = PARTS[name], time.perf_counter()
    units = isolated(part.units, seconds=LIMIT)
    units = [unit for unit in units if in_slice(name, unit, every)]
    records: dict[str, Record] = {}
    for number, (unit, found) in enumerate(spread(part.prepare, units, processes), start=1):
        for record in found:
            if record["key"] in records:
                raise RuntimeError(f"two cases have the key {record['key']!r}")
            records[record["key"]] = record
        if number % 50 == 0:
            told(f"{name} {number}/{len(units)} {time.perf_counter() - start:.0f} s, {unit}")
    seconds = time.perf_counter() - start
    told(f"{name}: {len(units)} units, {len(records)} cases, {seconds:.0f} s")
    return records


def told(line: str) -> None:
    """Prints a line about the progress."""
    print(line, file=sys.stderr, flush=True)


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


def differences(old: Mapping[str, Record], new: Mapping[str, Record]) -> Iterator[str]:
    """One block of lines for each case that differs."""
    for key in sorted(old.keys() | new.keys()):
        if key not in new:
            yield f"{key}\n    the case is gone"
        elif key not in old:
            yield f"{key}\n    the case is new"
        elif old[key] != new[key] and not out_of_time(old[key], new[key]):
            fields = sorted(old[key].keys() | new[key].keys())
            lines = [
                f"    {field}: {old[key].get(field)} -> {new[key].get(field)}"
                for field in fields
                if old[key].get(field) != new[key].get(field)
            ]
            yield "\n".join([key, *lines])


def out_of_time(*records: Record) -> bool:
    """Whether one of two records says nothing but that the time was up."""
    return any(record.get("ended") == "out of time" for record in records)


def compared(old: Mapping[str, Record], new: Mapping[str, Record]) -> int:
    """Prints what differs, and returns the exit status."""
    for key in sorted(old.keys() | new.keys()):
        if out_of_time(*(records[key] for records in (old, new) if key in records)):
            print(f"{key}\n    ran out of time and is not compared")
    found = list(differences(old, new))
    print("\n".join([*found, f"{len(old)} cases, {len(found)} differ"]))
    return bool(found)


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
    return parser.parse_args(arguments)


def main() -> int:
    """Runs or compares, as the command line says."""
    options = parse()
    if options.command == "compare":
        (old_about, old), (new_about, new) = read(options.old), read(options.new)
        warned(old_about, new_about)
        return compared(old, new)
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
    return compared(chosen(old, parts, options.slice), records)


def warned(old: Mapping[str, str], new: Mapping[str, str]) -> None:
    """Says which versions differ, which explains differences that nobody made."""
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            print(f"another version of {name}: {old.get(name)} -> {new.get(name)}")


if __name__ == "__main__":
    sys.exit(main())
