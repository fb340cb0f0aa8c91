"""Which constants decide: each of `adjudge.constants` changed, and the verdicts that differ.

Every number is multiplied and divided by 8, and a pair as well; every longer tuple loses its first
and its second half.
The slice of cases is judged once as it is, and it is recorded which constants each case reads.
Then each changed constant judges anew the cases that read it, in a forked process that has it from
the start. A verdict that is nearer to the truth counts as better: PASS for a right derivative, FAIL
for a planted error. A constant that no case missed is a candidate to go, or its case is absent.

    python benchmarks/constants.py --slice 8
    python benchmarks/constants.py --only SIGNIFICANT_PART,WRONG_FACTOR --slice 2 --cases 200
    python benchmarks/constants.py --part cross --slice 4
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import json
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

import gate
from harness import ORDINARY, RIGHT, Case, SkippedError, check_of, isolated, line, table, told

FACTOR = 8
LIMIT = 20.0
"""Seconds of processor time for a case. A change that takes longer counts as a crash."""
NEARNESS = {"PASS": 0, "INCONCLUSIVE": 1, "FAIL": 2}
"""How far a verdict is from what a right derivative should get."""
Key = tuple[str, str]
"""A unit, and what is planted in it."""


@dataclass(frozen=True)
class Judged:
    """What was said of one case."""

    kind: str
    record: gate.Record
    read: frozenset[str] = frozenset()
    """The constants that the case reads, where that was recorded."""

    @property
    def verdict(self) -> str:
        """The verdict, or the name of the exception."""
        return str(self.record.get("verdict", self.record.get("ended")))

    @property
    def evaluations(self) -> int:
        """How often f was evaluated, on all engines together."""
        return gate.spent({"": self.record})["evaluations"]

    @property
    def said(self) -> gate.Record:
        """All that was said of it, without what it cost."""
        return gate.without(self.record, ("counts", "compared", "stages"))


# ---------------------------------------------------------------- constants, and their changes


def with_constants(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Puts the module of constants with other values in place, before anything of adjudge imports
    it, and returns every constant by its name.
    """
    package = importlib.util.find_spec("adjudge")
    assert package is not None
    assert package.origin is not None
    module = ModuleType("adjudge.constants")
    exec(Path(package.origin).with_name("constants.py").read_text("utf-8"), vars(module))  # noqa: S102
    vars(module).update(changes)
    sys.modules[module.__name__] = module
    return {name: value for name, value in vars(module).items() if name.isupper()}


def changes_of(value: Any) -> list[Any]:
    """What is tried in place of a constant."""
    if isinstance(value, tuple) and len(value) == 2:
        tried = [tuple(part * FACTOR for part in value), tuple(part / FACTOR for part in value)]
    elif isinstance(value, tuple):
        half = len(value) // 2
        tried = [value[half:], value[: len(value) - half]]
    elif isinstance(value, int):
        tried = [value * FACTOR, max(1, value // FACTOR)]
    else:
        tried = [value * FACTOR, value / FACTOR]
    return [other for other in tried if other != value]


# ---------------------------------------------------------------- judging cases


def cases_of(part: str, units: Sequence[str]) -> Iterator[tuple[Key, Case]]:
    """The cases of these units."""
    cases = gate.family_of(part).prepare(gate.DELTAS)
    for unit in units:
        try:
            for case in cases(unit):
                yield (unit, case.plant), case
        except SkippedError:
            continue


def judged(
    part: str,
    units: Sequence[str],
    keys: set[Key] | None = None,
    changes: Mapping[str, Any] | None = None,
    names: frozenset[str] = frozenset(),
) -> dict[Key, Judged]:
    """What is said of the cases `keys` of some units, or of all of them, with changed constants.

    With `names` it is recorded which of these constants each case reads. This is called in a
    process of its own, which has not imported adjudge yet.
    """
    assert "adjudge" not in sys.modules
    gate.LIMIT = LIMIT
    with_constants(changes or {})
    reading = Reading(names)
    found = {}
    for key, case in cases_of(part, units):
        if keys is None or key in keys:
            check = check_of(case)
            with reading:
                judgement = gate.judged(" | ".join(key), check)
            # As JSON it holds no object of adjudge, which the parent would import to read it.
            record = json.loads(json.dumps(judgement))
            found[key] = Judged(case.kind, record, frozenset(reading.read))
    return found


class Reading:
    """Records which constants are read: the lines that name them are traced."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self.read: set[str] = set()
        self.lines: dict[str, dict[int, set[str]]] = {}
        self.traced: dict[CodeType, bool] = {}

    def __enter__(self) -> None:
        self.read.clear()
        if self.names:
            sys.settrace(self._call)

    def __exit__(self, *_error: object) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, _event: str, _value: object) -> Callable[..., Any] | None:
        code = frame.f_code
        if code not in self.traced:
            self.traced[code] = "adjudge" in code.co_filename and any(
                name in self.names for name in code.co_names
            )
        return self._line if self.traced[code] else None

    def _line(self, frame: FrameType, event: str, _value: object) -> Callable[..., Any]:
        if event == "line":
            file = frame.f_code.co_filename
            if file not in self.lines:
                self.lines[file] = self._naming(file)
            self.read |= self.lines[file].get(frame.f_lineno, set())
        return self._line

    def _naming(self, file: str) -> dict[int, set[str]]:
        """The constants that each line of a file names."""
        lines: dict[int, set[str]] = {}
        for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Name) and node.id in self.names:
                lines.setdefault(node.lineno, set()).add(node.id)
        return lines


# ---------------------------------------------------------------- comparing


def sample(plain: Mapping[Key, Judged], name: str, count: int) -> list[Key]:
    """Up to `count` cases that read a constant, the hardest first: right derivatives that took many
    evaluations, and the smallest planted errors, by turns.
    """
    reading = [key for key, one in plain.items() if name in one.read]
    reading.sort(key=lambda key: zlib.crc32(" ".join(key).encode()))
    right = [key for key in reading if key[1] == RIGHT]
    right.sort(key=lambda key: -plain[key].evaluations)
    wrong = [key for key in reading if key[1] != RIGHT]
    wrong.sort(key=lambda key: size_of(key[1]))
    turns = chain.from_iterable(zip_longest(right, wrong))
    return [key for key in turns if key is not None][:count]


def size_of(plant: str) -> float:
    """The relative size of a planted error, and 1 where it is no factor."""
    try:
        return float(plant.removeprefix("1+"))
    except ValueError:
        return 1.0


def away(key: Key, one: Judged) -> int:
    """How far a verdict is from the truth; an exception is farther than any verdict."""
    found = NEARNESS.get(one.verdict, 3)
    return found if key[1] == RIGHT or found == 3 else 2 - found


def compared(plain: Mapping[Key, Judged], other: Mapping[Key, Judged]) -> tuple[str, str, bool]:
    """The verdicts that differ, the ratio of evaluations, and whether any verdict differs."""
    tally = {"better": 0, "worse": 0, "without a truth": 0}
    notes = 0
    for key, now in other.items():
        before = plain[key]
        if before.verdict == now.verdict:
            notes += before.said != now.said
            continue
        change = away(key, now) - away(key, before)
        word = "better" if change < 0 else "worse"
        tally[word if now.kind == ORDINARY else "without a truth"] += 1
    words = [f"{count} {word}" for word, count in tally.items() if count]
    words += [f"{notes} with other findings"] if notes else []
    spent = sum(plain[key].evaluations for key in other)
    ratio = sum(one.evaluations for one in other.values()) / max(spent, 1)
    return ", ".join(words) or "none", f"{ratio:.2f}", any(tally.values())


# ---------------------------------------------------------------- command line


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--part", choices=gate.PARTS, default="zoo", help="of the gate")
    parser.add_argument("--slice", type=int, default=8, metavar="N", help="one unit of N")
    parser.add_argument("--cases", type=int, default=24, metavar="N", help="for each constant")
    parser.add_argument("--only", default="", metavar="NAMES", help="some of the constants")
    return parser.parse_args()


def main() -> int:
    """Changes each constant, and prints what differs."""
    options = parse()
    if any(os.environ.get(name) != value for name, value in gate.PINNED.items()):
        environment = {**os.environ, **gate.PINNED}
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)  # noqa: S606  is itself
    part, start = options.part, time.perf_counter()
    values = isolated(with_constants, {}, seconds=60.0)
    chosen = [name for name in options.only.split(",") if name] or list(values)
    units = isolated(gate.family_of(part).units, seconds=600.0)
    units = [unit for unit in units if gate.in_slice(part, unit, options.slice)]
    names = frozenset(chosen)
    plain = isolated(judged, part, units, None, None, names, seconds=3600.0)
    told(f"{len(plain)} cases as they are, {time.perf_counter() - start:.0f} s")
    print(f"{len(plain)} cases of {part!r}, one unit of {options.slice}\n")
    columns = ["constant", "in its place", "cases", "verdicts that differ", "evaluations"]
    print(table(columns, []), end="", flush=True)
    unmissed, unread = [], []
    for name in chosen:
        keys = sample(plain, name, options.cases)
        missed = False
        of = sorted({unit for unit, _ in keys})
        for value in changes_of(values[name]) if keys else ():
            try:
                other = isolated(judged, part, of, set(keys), {name: value}, seconds=600.0)
            except RuntimeError as error:
                words, ratio, differ = first_line(error), "", True
            else:
                words, ratio, differ = compared(plain, other)
            print(line([name, shown(value), len(keys), words, ratio]), flush=True)
            missed |= differ
        if not keys:
            unread.append(name)
        elif not missed:
            unmissed.append(name)
    print(f"\nNo verdict differs: {', '.join(unmissed)}\n\nNo case reads: {', '.join(unread)}")
    told(f"{time.perf_counter() - start:.0f} s")
    return 0


def shown(value: Any) -> str:
    """A value as short as it can be read."""
    if isinstance(value, tuple):
        return f"({', '.join(map(shown, value))})"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def first_line(error: Exception) -> str:
    """The last line of what a process said, which names the exception."""
    return str(error).strip().splitlines()[-1][:80]


if __name__ == "__main__":
    sys.exit(main())
