"""This module compares two runs: what got better and worse, and whether a repeated case came out
the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from adjudge.findings import Verdict
from adjudge.suites.results import Result, RunReport

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
