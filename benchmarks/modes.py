"""Every composition of modes on operators of PyTorch and JAX, at random and special points."""

from __future__ import annotations

import argparse
import functools
import json
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from isolation import OutOfTimeError, deadline, isolated, supervised
from mode_cases import SOURCES, Subject
from mode_points import moved, special
from tables import header, table

MODES = ("R", "F", "RR", "FR", "RF", "FF")
RANDOM = ("random", "moved")
"""Points that are drawn: as the operator's samples have them, and moved by a third of that."""
Row = dict[str, Any]
"""The verdict about one (operator, sample, point, way, mode), and what was found there."""


# ---------------------------------------------------------------- one operator


def sweep(label: str, options: argparse.Namespace) -> list[Row]:
    """All rows of one operator."""
    warnings.simplefilter("ignore")
    source = SOURCES[options.framework]
    rows: list[Row] = []
    try:
        subjects = source.subjects(label, options.dtype)
    except Exception as error:
        return [{"operator": label, "skipped": said(error)}]
    start = time.perf_counter()
    for number, subject in enumerate(subjects):
        for point, there in points_of(subject, options.special > number, options.points):
            if options.only_special and point in RANDOM:
                continue
            if time.perf_counter() - start > options.patience:
                rows.append({"operator": label, "cut": f"{subject.sample}, {point}"})
                return rows
            rows += judged(there, point, options)
    return rows


def points_of(subject: Subject, everywhere: bool, chosen: str) -> Iterator[tuple[str, Subject]]:
    """The subject at its own point, moved at random, and at special points."""
    yield RANDOM[0], subject
    yield RANDOM[1], subject.at(moved(subject.hosts()))
    if everywhere:
        for name, values in special(subject.hosts()):
            if re.search(chosen, name):
                yield name, subject.at(values)


def judged(subject: Subject, point: str, options: argparse.Namespace) -> list[Row]:
    """A row for each way and mode."""
    import adjudge

    where = {
        "operator": subject.operator,
        "sample": subject.sample,
        "point": point,
        "dtype": options.dtype,
    }
    start = time.process_time()
    try:
        with deadline(options.limit):
            report = adjudge.examine(
                subject.f,
                subject.inputs,
                order=2,
                seed=options.seed,
                nondet_tol=subject.nondet_tol,
                compile=None if point == RANDOM[0] and options.compiled else False,
            )
    except OutOfTimeError:
        return [{**where, "way": "all", "mode": "all", "verdict": "OUT OF TIME"}]
    except Exception as error:
        refused = {"way": "all", "mode": "all", "verdict": "REFUSED", "text": said(error)}
        return [{**where, **refused}]
    where["finite"] = subject.finite()
    cost = {"seconds": time.process_time() - start, "counts": dict(report.counts)}
    usual = next(iter(report.ways))
    return [
        {**where, "way": way, **of_mode(report, way, mode, way == usual), **cost}
        for way in report.ways
        for mode in MODES
    ]


def of_mode(report: Any, way: str, mode: str, usual: bool) -> Row:
    """What a report says of one mode in one way: the verdict, and the first thing found."""
    import adjudge

    verdict = report.ways[way].get(mode, "ABSENT")
    row: Row = {"mode": mode, "verdict": str(verdict)}
    here = [f for f in report.ranked if f.mode in (mode, "") and (f.way or usual) in (way, usual)]
    notes = sorted({str(f.status) for f in here if f.note})
    if notes:
        row["notes"] = notes
    found = [f for f in here if not f.note and row["verdict"] != "PASS"]
    if found:
        row |= {"status": str(found[0].status), "entry": found[0].entry}
        row |= {"text": adjudge.report.text_of(found[0])[:900], **numbers(found[0].detail)}
    return row


def numbers(detail: Any) -> dict[str, float]:
    """The automatic value, the reference and its error bar, where a finding has them."""
    first = getattr(detail, "first", None)
    if first is None or not hasattr(first, "reference"):
        return {}
    return {name: getattr(first, name) for name in ("automatic", "reference", "error")}


def said(error: BaseException) -> str:
    """The exception in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


# ---------------------------------------------------------------- all of them


def run(options: argparse.Namespace) -> Iterator[Row]:
    """All rows as they come; what the store holds is not done again."""
    done: set[str] = set()
    if options.store and options.store.exists():
        for line in options.store.read_text().splitlines():
            kept = json.loads(line)
            done.add(kept["label"])
            yield from kept["rows"]
    source = SOURCES[options.framework]
    labels = [
        label
        for label in isolated(source.names, options.dtype, seconds=120.0)[:: options.every]
        if re.search(options.ops, label) and label not in done
    ]
    start = time.perf_counter()
    work = functools.partial(_prepare, options)
    for number, (label, error, rows) in enumerate(
        supervised(work, labels, 2 * options.patience), start=1
    ):
        found = rows if not error else [{"operator": label, "died": error}]
        if options.store:
            with options.store.open("a") as store:
                store.write(json.dumps({"label": label, "rows": found}) + "\n")
        failed = sum(row.get("verdict") == "FAIL" for row in found)
        seconds = time.perf_counter() - start
        progress = f"{number}/{len(labels)} {label} {seconds:.0f} s, {failed} FAIL {error}"
        print(progress, file=sys.stderr, flush=True)
        yield from found


def stored(files: Sequence[Path]) -> Iterator[Row]:
    """The rows of several stores."""
    for file in files:
        for line in file.read_text().splitlines():
            yield from json.loads(line)["rows"]


def _prepare(options: argparse.Namespace) -> Callable[[str], list[Row]]:
    warnings.simplefilter("ignore")
    return lambda label: sweep(label, options)


# ---------------------------------------------------------------- tables


def report(rows: Sequence[Row]) -> str:
    """The tables."""
    judged_rows = [row for row in rows if "mode" in row]
    failed = [row for row in judged_rows if row["verdict"] == "FAIL"]
    smooth, rough = places(judged_rows)
    parts = ["### Verdicts\n", verdict_table(judged_rows)]
    parts += ["### What fails, by kind of place\n", kind_table(failed, smooth, rough)]
    parts += [f"### FAIL at random points: {count(failed)}\n"]
    parts += [fail_table([row for row in failed if row["point"] in RANDOM])]
    parts += ["### FAIL at special points where f is finite and no kink was met\n"]
    parts += [fail_table([r for r in failed if r["point"] not in RANDOM and place(r) in smooth])]
    parts += ["### Not judged\n", *left_out(rows)]
    return "\n".join(parts)


Place = tuple[str, str, str]


def place(row: Row) -> Place:
    """Operator, sample and point."""
    return row["operator"], row["sample"], row["point"]


def places(rows: Sequence[Row]) -> tuple[set[Place], set[Place]]:
    """Where f is finite and no mode met a kink, and where one did."""
    rough = {
        place(row)
        for row in rows
        if row.get("status") == "NONSMOOTH" or "NONSMOOTH" in row.get("notes", ())
    }
    finite = {place(row) for row in rows if row.get("finite", True)}
    return finite - rough, finite & rough


def kind_table(failed: Sequence[Row], smooth: set[Place], rough: set[Place]) -> str:
    """Places and operators in which some mode fails."""
    lines = []
    for kind in ("random", "special"):
        here = [row for row in failed if (row["point"] in RANDOM) == (kind == "random")]
        groups = (
            ("f finite, no kink met", [row for row in here if place(row) in smooth]),
            ("a kink or jump met", [row for row in here if place(row) in rough]),
            ("f not finite", [r for r in here if place(r) not in smooth | rough]),
        )
        for name, some in groups:
            operators = {row["operator"] for row in some}
            lines.append((kind, name, len(some), len(set(map(place, some))), len(operators)))
    return table(("points", "where", "verdicts FAIL", "places", "operators"), lines)


def count(rows: Sequence[Row]) -> int:
    """Rows at random points."""
    return sum(row["point"] in RANDOM for row in rows)


def verdict_table(rows: Sequence[Row]) -> str:
    """How often each verdict fell, by way, kind of point and mode."""
    counts: Counter[tuple[str, str, str, str]] = Counter()
    for row in rows:
        kind = "random" if row["point"] in RANDOM else "special"
        counts[row["way"], kind, row["mode"], row["verdict"]] += 1
    verdicts = sorted({verdict for _, _, _, verdict in counts})
    places = sorted({place[:3] for place in counts}, key=lambda p: (p[0], p[1], len(p[2]), p[2]))
    lines = [(*place, *(counts[(*place, verdict)] for verdict in verdicts)) for place in places]
    return table(("way", "points", "mode", *verdicts), lines)


def fail_table(rows: Sequence[Row]) -> str:
    """What failed, one line for an operator and the modes that fail: the points, and one entry."""
    by_place: dict[Place, list[Row]] = {}
    for row in rows:
        by_place.setdefault(place(row), []).append(row)
    groups: dict[tuple[str, str], list[Row]] = {}
    for (operator, _, _), here in by_place.items():
        ways: dict[str, list[str]] = {}
        for row in here:
            ways.setdefault(row["way"], []).append(row["mode"])
        modes = "; ".join(f"{way}: {' '.join(words)}" for way, words in ways.items())
        groups.setdefault((operator, modes), []).extend(here)
    lines = []
    for (operator, modes), here in groups.items():
        told = max(here, key=lambda row: "automatic" in row)
        points = dict.fromkeys(row["point"] for row in here)
        lines.append(
            (
                operator,
                ", ".join(points),
                modes,
                told.get("status", ""),
                f"{told['mode']} {told.get('entry', '')}",
                f"{told.get('automatic', float('nan')):.6g}",
                f"{told.get('reference', float('nan')):.6g} ± {told.get('error', 0.0):.0e}",
            )
        )
    head = ("operator", "points", "modes that fail", "status", "entry", "automatic", "reference")
    return table(head, lines)


def left_out(rows: Sequence[Row]) -> list[str]:
    """What no verdict was given about, and why."""
    lines = [f"- {row['operator']}: {row['skipped']}" for row in rows if "skipped" in row]
    lines += [f"- {row['operator']}: {row['died']}" for row in rows if "died" in row]
    cut = [row for row in rows if "cut" in row]
    lines += [f"- {row['operator']}: out of time before {row['cut']}" for row in cut]
    return lines


# ---------------------------------------------------------------- command line


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--framework", choices=list(SOURCES), default="torch")
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--ops", default="", metavar="REGEX", help="operators by name")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every N-th operator")
    parser.add_argument(
        "--special", type=int, default=2, metavar="N", help="samples that go to special points"
    )
    parser.add_argument("--points", default="", metavar="REGEX", help="special points by name")
    parser.add_argument("--only-special", action="store_true", help="no random points")
    parser.add_argument(
        "--no-jit", dest="compiled", action="store_false", help="not compiled at the first point"
    )
    parser.add_argument("--seed", type=int, default=0, help="of adjudge's probes")
    parser.add_argument("--limit", type=float, default=10.0, metavar="S", help="s for a check")
    parser.add_argument("--patience", type=float, default=60.0, metavar="S", help="s an operator")
    parser.add_argument("--store", type=Path, metavar="FILE", help="rows; read and continued")
    parser.add_argument(
        "--stored", type=Path, nargs="+", metavar="FILE", help="only tabulate these"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run and print."""
    options = parse(arguments)
    distribution = ("torch",) if options.framework == "torch" else ("jax", "jaxlib")
    rows = list(stored(options.stored) if options.stored else run(options))
    print(header(f"Modes, {options.framework}", ("adjudge", *distribution, "numpy")))
    print(report(rows))


if __name__ == "__main__":
    main()
