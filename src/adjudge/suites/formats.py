"""This module writes a run in the formats of others: JUnit's XML, and annotations of GitHub."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

from adjudge.findings import Verdict
from adjudge.suites.results import Ending, Result, RunReport

_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 does not allow in a document, not even escaped."""


def junit(report: RunReport, excused: Mapping[str, str] | None = None) -> str:
    """Returns a run as JUnit's XML, in the form that Jenkins' xUnit schema describes.

    A FAIL is a failure, as is an INCONCLUSIVE case, whose type says which of them it is; what
    raised, died or took too long is an error.

    Args:
        report: The run.
        excused: The names of cases whose failure is known, with the reason. They are skipped.
    """
    known = excused or {}
    wrong = [result for result in report.results if result.verdict is not Verdict.PASS]
    counted = [result for result in wrong if result.name not in known]
    errors = sum(result.ending is not Ending.JUDGED for result in counted)
    counts = {
        "tests": len(report.results) + len(report.skipped),
        "failures": len(counted) - errors,
        "errors": errors,
        "skipped": len(wrong) - len(counted) + len(report.skipped),
    }
    attributes = {key: str(value) for key, value in counts.items()}
    attributes |= {"name": "adjudge", "time": f"{report.seconds:.3f}"}
    suite = ElementTree.Element("testsuite", attributes)
    for result in report.results:
        _add(suite, result, known.get(result.name))
    for name in report.skipped:
        case = ElementTree.SubElement(suite, "testcase", classname="adjudge", name=_clean(name))
        ElementTree.SubElement(case, "skipped", message="not begun after a failure")
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _add(suite: ElementTree.Element, result: Result, excuse: str | None) -> None:
    attributes = {
        "classname": _clean(result.place.target if result.place else "adjudge"),
        "name": _clean(result.name),
        "time": f"{result.seconds:.3f}",
    }
    case = ElementTree.SubElement(suite, "testcase", attributes)
    if result.verdict is Verdict.PASS:
        return
    if excuse is not None:
        ElementTree.SubElement(case, "skipped", message=_clean(f"known failure: {excuse}"))
        return
    attributes = {"type": result.kind, "message": _clean(result.headline)}
    word = "failure" if result.ending is Ending.JUDGED else "error"
    found = ElementTree.SubElement(case, word, attributes)
    found.text = _clean(result.details)


def _clean(text: str) -> str:
    return _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def github(report: RunReport, excused: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yields a workflow command of GitHub for each case that did not pass, which marks the line
    where the case is made: a FAIL as an error, an INCONCLUSIVE one as a warning, a known failure
    as a notice.

    Args:
        report: The run.
        excused: The names of cases whose failure is known, with the reason.
    """
    known = excused or {}
    for result in report.results:
        if result.verdict is Verdict.PASS:
            continue
        level = "error" if result.verdict is Verdict.FAIL else "warning"
        level = "notice" if result.name in known else level
        properties = {"title": f"adjudge {result.verdict}: {result.name}"}
        if result.file:
            properties = {
                "file": _below(result.file),
                "line": str(result.line),
            } | properties
        listed = ",".join(f"{key}={_escaped(value, ':,')}" for key, value in properties.items())
        text = result.details if result.ending is Ending.JUDGED else result.headline
        yield f"::{level} {listed}::{_escaped(text)}"


def _below(file: str) -> str:
    """Returns a path as GitHub wants it: from the root of the checkout, where it lies below it."""
    path, root = Path(file).resolve(), Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd())
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def _escaped(text: str, more: str = "") -> str:
    """Returns text in which nothing ends the command or begins another one, by the escapes of
    GitHub's own toolkit.
    """
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    for character in more:
        text = text.replace(character, f"%{ord(character):02X}")
    return text
