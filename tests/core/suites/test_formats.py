"""JUnit's XML against the schema of Jenkins, and annotations against the syntax of GitHub."""

import os
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adjudge import Verdict
from adjudge.suites import Ending, Place, Result, RunReport, github, junit

TEXT = st.text(max_size=30) | st.sampled_from(
    ["", "%", "%0A", "a,b=c:d", "\r\n::error::x", "<![CDATA[", "]]>", "&amp;", "\x00\x1b", "\ufffe"]
)
FILES = st.sampled_from(["", "a.py", "a,b:c%.py", "x y/%2C\n.py", "/home/other/ä.py"])
SECONDS = st.sampled_from([0.0, 0.25, 1234.5, 98765432.1])
VERDICTS = st.sampled_from(list(Verdict))
RESULTS = st.builds(
    lambda name, headline, details, target, file, line, verdict, ending, seconds: Result(
        name,
        ending,
        7,
        seconds,
        verdict if ending is Ending.JUDGED else Verdict.FAIL,
        headline,
        None,
        details,
        Place(target, "CASES[0]") if target else None,
        file,
        line,
    ),
    *(TEXT, TEXT, TEXT, TEXT, FILES, st.integers(0, 9999), VERDICTS),
    *(st.sampled_from(list(Ending)), SECONDS),
)
RUNS = st.lists(RESULTS, max_size=3, unique_by=lambda one: one.name)

# What junit-10.xsd of Jenkins' xUnit plugin says of the elements that we write. It is written out
# here, since the schema itself is the work of others, and no validator of XSD is among our
# dependencies. Of an element: its children, its attributes, those that are required, and whether
# it may hold text.
SCHEMA = {
    "testsuites": ({"testsuite"}, {"name", "time", "tests", "failures", "errors"}, set(), False),
    "testsuite": (
        {"testsuite", "properties", "testcase", "system-out", "system-err"},
        {
            *("name", "tests", "failures", "errors", "group", "time", "skipped", "timestamp"),
            *("hostname", "id", "package", "file", "log", "url"),
        },
        {"name", "tests", "failures", "errors"},
        False,
    ),
    "testcase": (
        {"skipped", "error", "failure", "system-out", "system-err"},
        {"name", "time", "classname", "group"},
        {"name"},
        False,
    ),
    **dict.fromkeys(("failure", "error", "skipped"), (set(), {"type", "message"}, set(), True)),
}
TIME = re.compile(r"(([0-9]{0,3},)*[0-9]{3}|[0-9]{0,3})*(\.[0-9]*)?")
"""The schema's type of the times of suites."""


def violations(element):
    """Yields what the schema does not allow in an element, and below it."""
    children, attributes, required, text = SCHEMA[element.tag]
    given = set(element.attrib)
    yield from (f"{element.tag} has {name}" for name in given - attributes)
    yield from (f"{element.tag} lacks {name}" for name in required - given)
    if element.tag != "testcase" and not TIME.fullmatch(element.get("time", "0")):
        yield f"{element.tag} takes {element.get('time')}"
    for child in element:
        if child.tag not in children:
            yield f"{element.tag} holds {child.tag}"
        else:
            yield from violations(child)
        if not text and (child.tail or "").strip():
            yield f"{element.tag} holds text"
    if not text and (element.text or "").strip():
        yield f"{element.tag} holds text"


@settings(max_examples=20, deadline=None)
@given(RUNS, st.lists(TEXT, max_size=2), st.booleans(), SECONDS)
def test_junit_is_what_the_schema_allows(results, skipped, excused, seconds):
    known = {one.name: "for a reason" for one in results[:1]} if excused else {}

    text = junit(RunReport(results, 1, seconds, skipped), known)

    root = ElementTree.fromstring(text.encode("utf-8"))  # noqa: S314 ours
    assert list(violations(root)) == []
    (suite,) = root
    found = {tag: len(suite.findall(f"testcase/{tag}")) for tag in ("failure", "error", "skipped")}
    said = {word: int(suite.get(word)) for word in ("failures", "errors", "skipped")}
    assert list(found.values()) == list(said.values())
    assert int(suite.get("tests")) == len(suite) == len(results) + len(skipped)
    assert all(len(case) <= 1 for case in suite)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<testsuites><case/></testsuites>", ["testsuites holds case"]),
        (
            '<testsuite name="a" tests="1" failures="0"/>',
            ["testsuite lacks errors"],
        ),
        (
            '<testsuite name="a" tests="1" failures="0" errors="0" time="1e3"/>',
            ["testsuite takes 1e3"],
        ),
        ('<testcase name="a" line="3"/>', ["testcase has line"]),
        ('<testcase name="a">text</testcase>', ["testcase holds text"]),
    ],
)
def test_what_the_schema_forbids_is_found(text, said):
    assert list(violations(ElementTree.fromstring(text))) == said  # noqa: S314 ours


def command(line):
    """Returns the name, the properties and the message of a workflow command, as a runner reads it.

    https://docs.github.com/actions/reference/workflow-commands-for-github-actions: `::error
    file={name},line={line},title={title}::{message}`. Its toolkit escapes %, CR and LF in messages,
    and colons and commas in properties as well.
    """
    begin, head, message = line.split("::", 2)
    assert begin == ""
    name, _, listed = head.partition(" ")
    pairs = [pair.partition("=")[::2] for pair in listed.split(",")]
    return name, {key: unescaped(value, ":,") for key, value in pairs}, unescaped(message, "")


def unescaped(text, more):
    for character in (*more, "\n", "\r", "%"):  # the sign of the escapes last
        text = text.replace(f"%{ord(character):02X}", character)
    return text


@settings(max_examples=40, deadline=None)
@given(RUNS)
def test_an_annotation_says_what_the_result_says(results):
    report = RunReport(results, 1, 0.0)
    told = [one for one in results if one.verdict is not Verdict.PASS]

    lines = list(github(report, {}))

    assert len(lines) == len(told)
    for one, line in zip(told, lines, strict=True):
        assert "\n" not in line
        assert "\r" not in line
        name, properties, message = command(line)
        assert name == ("error" if one.verdict is Verdict.FAIL else "warning")
        assert properties.pop("title") == f"adjudge {one.verdict}: {one.name}"
        assert message == (one.details if one.ending is Ending.JUDGED else one.headline)
        if one.file:
            assert properties.pop("line") == str(one.line)
            file = properties.pop("file")
            assert os.path.realpath(file) == os.path.realpath(one.file)
        assert not properties


def test_a_command_that_is_written_by_hand_is_read_as_github_documents_it():
    line = "::error file=a%2Cb.py,line=3,title=T%3A 100%25::first%0Asecond, a: b"

    assert command(line) == (
        "error",
        {"file": "a,b.py", "line": "3", "title": "T: 100%"},
        "first\nsecond, a: b",
    )
