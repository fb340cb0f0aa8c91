"""Findings are data: every situation has its sentence, and nothing decides by a sentence."""

import ast
from enum import Enum
from pathlib import Path
from string import Formatter
from typing import get_type_hints

import pytest

from adjudge import findings
from adjudge.findings import Detail, Finding, Remedy, Status, Unequal
from adjudge.report import sentences

ROOT = Path(__file__).parents[2]
WORDED = (ROOT / "src" / "adjudge" / "report", ROOT / "src" / "adjudge" / "cross" / "report.py")
"""Where sentences are made."""
SOURCES = sorted(
    path
    for root in (ROOT / "src", ROOT / "adapters")
    for path in root.rglob("*.py")
    if not any(path.is_relative_to(one) for one in WORDED)
)
WORDS = {"text_of", "said", "how", "why_silent", "why_not_in_double", "purpose_in_words"}
"""What makes words of data, by function."""
RENDERED = {"text", "headline", "outline", "silent", "left_out"}
"""The same by property."""


def kinds_of(kind: type) -> list[type]:
    return [one for sub in kind.__subclasses__() for one in (sub, *kinds_of(sub))]


SITUATIONS = [
    kind
    for kind in kinds_of(Detail)
    if kind.__module__ == findings.__name__ and not kind.__subclasses__()
]


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda kind: kind.__name__)
def test_every_situation_has_one_sentence(situation):
    by_function = sentences.said.dispatch(situation) not in (
        sentences.said.dispatch(Detail),
        sentences.said.dispatch(Unequal),
    )
    places = (by_function, situation in sentences.SENTENCES, situation in sentences.UNEQUAL)

    assert sum(places) == 1


def unknown_names(lines, kind):
    """What these lines name, and neither a detail of this kind nor the finding around it has."""
    common = sentences._named(Finding(Status.MISMATCH, "R", "out", Detail()))
    types = {name: type(value) for name, value in common.items()} | get_type_hints(kind)
    names = [name for line in lines for _, name, _, _ in Formatter().parse(line) if name]
    found = []
    for name in names:
        first, _, attribute = name.partition(".")
        known = first in types and (
            not attribute
            or hasattr(types[first], attribute)
            or attribute in get_type_hints(types[first])
        )
        if not known:
            found.append(name)
    return found


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda kind: kind.__name__)
def test_a_sentence_names_only_what_the_finding_has(situation):
    lines = sentences.SENTENCES.get(situation) or sentences.UNEQUAL.get(situation) or ()

    assert [] == unknown_names(lines, situation)


@pytest.mark.parametrize("remedy", Remedy, ids=lambda remedy: remedy.name)
def test_a_remedy_names_only_what_every_finding_has(remedy):
    assert [] == unknown_names([sentences.REMEDIES[remedy]], Detail)


def test_a_name_that_no_finding_has_is_seen():
    line = "{entry} {error.kind} {error.colour} {rule.probe} {rule.sign} {price:.2g}"

    assert ["error.colour", "rule.sign", "price"] == unknown_names([line], findings.BatchRaised)


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda kind: kind.__name__)
def test_two_details_of_the_same_nan_are_one(situation):
    assert situation.__eq__ is Detail.__eq__
    assert situation.__hash__ is Detail.__hash__


def test_a_situation_without_a_sentence_is_named():
    class Unheard(Detail):
        pass

    with pytest.raises(NotImplementedError, match="Unheard"):
        sentences.text_of(Finding(Status.MISMATCH, "R", "out", Unheard()))


TABLES: dict[type[Enum], list[dict]] = {
    Remedy: [sentences.REMEDIES],
    findings.Meaning: [sentences._MEANINGS],
    findings.Task: [sentences.WORDS],
    findings.Reason: [sentences._REASONS],
    findings.Culprit: [sentences.WORDS],
    findings.Hides: [sentences.WORDS],
    findings.Layout: [sentences.WORDS],
}


@pytest.mark.parametrize("kind", TABLES, ids=lambda kind: kind.__name__)
def test_every_member_has_its_words(kind):
    worded = {member for table in TABLES[kind] for member in table}
    apart = {findings.Meaning.SATURATED}  # its sentence holds a number

    assert set(kind) - worded <= apart


def of_finding(node: ast.AST) -> bool:
    """Whether this makes a finding or its detail."""
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name == "Finding" or name in {kind.__name__ for kind in SITUATIONS}


def sentences_in(tree: ast.AST) -> set[int]:
    """Lines where a finding or a detail is made with a string that holds a space."""
    return {
        node.lineno
        for call in ast.walk(tree)
        if of_finding(call)
        for node in ast.walk(call)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value
    }


def is_rendered(node: ast.AST) -> bool:
    """Whether this is a text that was made from data."""
    if isinstance(node, ast.Call):
        return getattr(node.func, "id", getattr(node.func, "attr", "")) in WORDS
    return isinstance(node, ast.Attribute) and node.attr in RENDERED


def read_sentences(tree: ast.AST) -> list[int]:
    """Lines where a text that was made from data is compared, searched or taken apart."""
    found = []
    for node in ast.walk(tree):
        operands: list[ast.AST] = []
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            operands = [node.func.value]
        found += [node.lineno for one in operands if is_rendered(one)]
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_sentence_is_made_outside_of_the_report_and_none_is_read(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))

    assert set() == sentences_in(tree)
    assert [] == read_sentences(tree)


@pytest.mark.parametrize(
    "code",
    [
        "Finding(status, 'R', 'out', detail='the value is wrong')",
        "adjudge.Finding(status, mode, entry, NotFinite(f'{name} is off', 1, 2))",
    ],
)
def test_a_sentence_in_a_finding_is_seen(code):
    assert {1} == sentences_in(ast.parse(code))


@pytest.mark.parametrize(
    "code",
    [
        "'the function jumps' in finding.text",
        "text_of(finding).startswith('kink')",
        "report.headline.removeprefix('FAIL ')",
        "point.silent == 'f raises ValueError'",
    ],
)
def test_a_sentence_that_is_read_is_seen(code):
    assert [1] == read_sentences(ast.parse(code))
