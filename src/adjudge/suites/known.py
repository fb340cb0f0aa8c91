"""This module reads the failures that a team knows, and sets them apart from new ones.

The file is TOML. Each entry names a case, says why its failure is accepted, and until when:

    [[known]]
    case = "gelu in bfloat16"
    reason = "upstream issue 1234"
    expires = 2027-03-01

A failure whose date has passed counts again, and an entry whose case passes is reported, so that
the file does not outlive its reasons.
"""

from __future__ import annotations

import datetime
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adjudge.errors import InputError
from adjudge.findings import Verdict
from adjudge.suites.results import Result

FIELDS = {"case": str, "reason": str, "expires": datetime.date}


@dataclass(frozen=True)
class Known:
    """A failure that is known."""

    case: str
    reason: str
    expires: datetime.date
    """The last day on which it is accepted."""

    def excuses(self, result: Result, today: datetime.date) -> bool:
        """Returns whether this failure of the case does not count today."""
        wrong = result.verdict is not Verdict.PASS
        return wrong and result.name == self.case and today <= self.expires


def read_known(path: Path) -> list[Known]:
    """Returns the entries of a file of known failures.

    Raises:
        InputError: The file cannot be read, or an entry lacks a field, has an unknown one or one
            of another type, or names a case that another entry names too.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", "check the path") from error
    except ValueError as error:
        raise InputError(f"{path} is no TOML: {error}", "see docs/how-to/suites.md") from error
    entries = data.get("known", [])
    if set(data) - {"known"} or not isinstance(entries, list):
        raise InputError(
            f"{path} has {', '.join(sorted(data))}", "it holds entries [[known]] and nothing else"
        )
    found = [_known(path, k, entry) for k, entry in enumerate(entries)]
    names = [one.case for one in found]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{path} names the case {name!r} twice", "keep one of the entries")
    return found


def _known(path: Path, k: int, entry: Any) -> Known:
    where = f"entry {k + 1} of {path}"
    if not isinstance(entry, dict) or set(entry) != set(FIELDS):
        raise InputError(
            f"{where} is {entry!r}", "give it the fields case, reason and expires, and no other"
        )
    for name, kind in FIELDS.items():
        value = entry[name]
        if not isinstance(value, kind) or isinstance(value, datetime.datetime) or not str(value):
            raise InputError(
                f"{where} has {name} = {value!r}",
                "case and reason are strings with words in them, and expires a date: 2027-03-01",
            )
    return Known(**entry)


def outlived(known: Sequence[Known], results: Sequence[Result], today: datetime.date) -> list[str]:
    """Returns a sentence for each entry that has outlived its reason: its date has passed, or its
    case passes by now.
    """
    verdicts = {result.name: result.verdict for result in results}
    said = []
    for one in known:
        verdict = verdicts.get(one.case)
        if verdict is Verdict.PASS:
            said.append(f"{one.case} passes, and is listed as a known failure ({one.reason})")
        elif verdict is not None and today > one.expires:
            said.append(f"{one.case} was accepted until {one.expires} ({one.reason})")
    return said
