"""This module defines what came of one case and of a whole run, how a file holds it, and what
differs between two runs.

A file of a run is JSON. Its format is published as a JSON schema beside this module, and carries a
version: a file of another version is refused. Nothing in it is ever evaluated or unpickled.
"""

from __future__ import annotations

import html
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from adjudge._version import __version__
from adjudge.errors import InputError
from adjudge.findings import Verdict, worst

SCHEMA = "adjudge-run/1"
"""The version of the format. The number grows with every change that readers would notice."""
SCHEMA_FILE = Path(__file__).with_name("schema.json")
"""The JSON schema of the files of a run."""


class Ending(Enum):
    """A case ends in one of these ways."""

    JUDGED = "judged"
    """It has a report, and its verdict is that of the report."""
    RAISED = "raised"
    """The function, its derivative or its inputs raised what is no finding."""
    TIMED_OUT = "timed out"
    """It took longer than the time that it had."""
    DIED = "died"
    """Its process ended under it."""


@dataclass(frozen=True)
class Place:
    """Where a case is declared."""

    target: str
    """The file or module that declares it, as `collect` takes it."""
    key: str
    """The name of the case in it: a variable, or a place in a list such as `CASES[2]`."""


@dataclass(frozen=True)
class Result:
    """One case came to this."""

    name: str
    ending: Ending
    seed: int
    """The seed of the probes: that of the case if it has one, else one made of the seed of the run
    and the name."""
    seconds: float
    """The time of the check; 0 where its process died."""
    verdict: Verdict
    """What ended without a report counts as a FAIL."""
    headline: str
    """One line that can be read without the rest."""
    report: Mapping[str, Any] | None = None
    """The report as plain data, as `Report.to_dict` returns it."""
    details: str = ""
    """The report, or the exception and where it was raised, in words; empty where there is neither,
    since the case took too long or its process died."""
    place: Place | None = None
    """Where the case is declared, if it was collected from there."""
    file: str = ""
    """The file with the line at which the case is made, if it has one."""
    line: int = 0
    script: str = ""
    """A script that repeats the check of a case that did not pass, where its arrays are short."""

    @property
    def kind(self) -> str:
        """Returns the verdict of a case that was judged, and how any other ended."""
        return str(self.verdict) if self.ending is Ending.JUDGED else self.ending.value

    def to_dict(self) -> dict[str, Any]:
        """Returns the result as plain data."""
        return {
            "name": self.name,
            "ending": self.ending.value,
            "verdict": str(self.verdict),
            "seed": self.seed,
            "seconds": self.seconds,
            "headline": self.headline,
            "details": self.details,
            "place": None if self.place is None else vars(self.place).copy(),
            "file": self.file,
            "line": self.line,
            "report": self.report,
            **({"script": self.script} if self.script else {}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Result:
        """Returns the result that `to_dict` made plain data of."""
        place = data["place"]
        return cls(
            data["name"],
            Ending(data["ending"]),
            data["seed"],
            data["seconds"],
            Verdict(data["verdict"]),
            data["headline"],
            data["report"],
            data["details"],
            None if place is None else Place(place["target"], place["key"]),
            data["file"],
            data["line"],
            data.get("script", ""),
        )


@dataclass(frozen=True)
class RunReport:
    """A run came to this, in the order of its cases. It is truthy only if every case passed."""

    results: Sequence[Result]
    seed: int
    """The seed of the run, from which cases without one of their own have theirs."""
    seconds: float
    skipped: Sequence[str] = field(default=())
    """The names of the cases that were not begun, since the run was to end at the first failure."""

    def __bool__(self) -> bool:
        """Says whether every case passed, and none was skipped."""
        return not self.skipped and self.verdict is Verdict.PASS

    @property
    def verdict(self) -> Verdict:
        """Returns the worst verdict of all cases."""
        return worst([result.verdict for result in self.results])

    def __getitem__(self, name: str) -> Result:
        """Returns the result of the case of that name."""
        for result in self.results:
            if result.name == name:
                return result
        raise KeyError(name)

    @property
    def summary(self) -> str:
        """Returns one line: how many cases there are of each verdict, and of each other ending."""
        counts = Counter(result.kind for result in self.results)
        parts = [f"{count} {kind}" for kind, count in counts.items()]
        parts += [f"{len(self.skipped)} not begun"] if self.skipped else []
        cases = len(self.results) + len(self.skipped)
        return f"{cases} case{'s' * (cases != 1)}: {', '.join(parts)}; {self.seconds:.1f} s"

    def __str__(self) -> str:
        """Returns a line for each case that did not pass, the worst first, and the summary."""
        order = [Verdict.FAIL, Verdict.INCONCLUSIVE]
        wrong = [result for result in self.results if result.verdict in order]
        wrong.sort(key=lambda result: order.index(result.verdict))
        lines = [f"{result.name}: {result.headline}" for result in wrong]
        return "\n".join([*lines, self.summary])

    def _repr_html_(self) -> str:
        """Returns the run as a notebook shows it."""
        return f"<pre>{html.escape(str(self))}</pre>"

    def to_dict(self) -> dict[str, Any]:
        """Returns the run as plain data."""
        return {
            "schema": SCHEMA,
            "adjudge": __version__,
            "seed": self.seed,
            "seconds": self.seconds,
            "skipped": list(self.skipped),
            "results": [result.to_dict() for result in self.results],
        }

    def to_json(self) -> str:
        """Returns the run as JSON that `read_run` reads.

        JSON has no infinity and no NaN; they are written as the strings "inf", "-inf" and "nan".
        """
        return json.dumps(_strict(self.to_dict()), indent=1, allow_nan=False)


def read_run(path: Path) -> RunReport:
    """Returns the run that a file holds.

    Raises:
        InputError: The file cannot be read, is no JSON, or is of another version or shape.
    """
    data = read_json(path)
    remedy = "give a file that this version of adjudge wrote with --json"
    found = data.get("schema") if isinstance(data, dict) else None
    if found != SCHEMA:
        raise InputError(f"{path} has the schema {found!r}, and {SCHEMA!r} is read", remedy)
    try:
        results = [Result.from_dict(one) for one in data["results"]]
        return RunReport(results, data["seed"], data["seconds"], data["skipped"])
    except (KeyError, TypeError, ValueError) as error:
        what = f"{type(error).__name__}: {error}"
        raise InputError(f"{path} is no whole file of a run ({what})", remedy) from error


def read_json(path: Path) -> Any:
    """Returns what a file of JSON holds.

    Raises:
        InputError: The file cannot be read, or is no JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", "check the path") from error
    except ValueError as error:
        raise InputError(f"{path} is no JSON: {error}", "give a file of --json") from error


def try_to_write(path: Path) -> None:
    """Raises before the work what would be raised after it, where a file is to be written.

    Raises:
        InputError: The file cannot be written.
    """
    existed = path.exists()
    try:
        with path.open("a"):
            pass
    except OSError as error:
        raise InputError(
            f"{path} cannot be written: {error.strerror}", "check the folder and its rights"
        ) from error
    if not existed:
        path.unlink()


def visible(text: str) -> str:
    """Returns a text in which characters that one cannot see are written as escapes: they could
    change the terminal, or turn around what is read on a page.
    """
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def _strict(value: Any) -> Any:
    """Returns plain data in which numbers that JSON does not have are strings, as `findings.plain`
    writes them.
    """
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(float(value))
    return value


# ---------------------------------------------------------------- two runs side by side

_RANK = {Verdict.PASS: 0, Verdict.INCONCLUSIVE: 1, Verdict.FAIL: 2}


@dataclass(frozen=True)
class Change:
    """A case whose verdict differs between two runs, or that only one of them has."""

    name: str
    before: Verdict | None
    after: Verdict | None
    headline: str = ""
    """The headline of the case in the run in which it is worse."""

    @property
    def worse(self) -> bool:
        """Says whether the verdict got worse, or a new case does not pass."""
        if self.after is None:
            return False
        return _RANK[self.after] > _RANK[self.before or Verdict.PASS]

    def __str__(self) -> str:
        """Returns one line."""
        if self.before is None:
            return f"new: {self.name}: {self.after}" + (f" {self.headline}" if self.worse else "")
        if self.after is None:
            return f"gone: {self.name}: was {self.before}"
        word = "worse" if self.worse else "better"
        return f"{word}: {self.name}: {self.before} -> {self.after}: {self.headline}"


def changes(before: RunReport, after: RunReport) -> list[Change]:
    """Returns what changed from one run to another, what got worse first, by the names of cases."""
    old = {result.name: result for result in before.results}
    new = {result.name: result for result in after.results}
    found = []
    for name in [*old, *(name for name in new if name not in old)]:
        one, other = old.get(name), new.get(name)
        if one is None or other is None or one.verdict is not other.verdict:
            found.append(_change(name, one, other))
    return sorted(found, key=lambda change: not change.worse)


def _change(name: str, one: Result | None, other: Result | None) -> Change:
    if one is None or other is None:
        which = other or one
        assert which is not None
        before, after = (None if result is None else result.verdict for result in (one, other))
        return Change(name, before, after, which.headline)
    worst = max(one, other, key=lambda result: _RANK[result.verdict])
    return Change(name, one.verdict, other.verdict, worst.headline)


def repeated(before: Result, after: Result) -> list[str]:
    """Returns a line for each datum in which a repeated case differs, to the last bit; none if it
    came out the same. Seconds are not compared.
    """
    lines: list[str] = []
    for key, value in before.to_dict().items():
        if key in ("name", "seconds", "details", "place", "file", "line", "script"):
            continue
        lines += _differences(key, value, after.to_dict()[key])
    return lines


def _differences(name: str, one: Any, other: Any) -> Iterator[str]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in dict.fromkeys([*one, *other]):
            yield from _differences(f"{name}.{key}", one.get(key), other.get(key))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for k, (item, its) in enumerate(zip(one, other, strict=True)):
            yield from _differences(f"{name}[{k}]", item, its)
    elif one != other:
        yield f"{name}: {one!r} before, {other!r} now"
