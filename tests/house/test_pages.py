"""tests/pages.py, which compares what our pages show: rounding passes, and a wrong number fails."""

import pytest
from pages import ROOT, differences, examples, printed, vocabulary

from adjudge.engine.program import OPERATIONS
from adjudge.estimate.replay import RULES, WITH_RECORDED

SHOWN = "FAIL f: d out[2]: automatic 7.38906, reference 0.88079707796 ± 2e-10 (24 of 24 R)\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0.24691358024691357", "0.2469135802469136"),
        ("7.38906", "7.38905"),
        ("0.88079707796", "0.88079707812"),
        ("2e-10", "9e-11"),
        ("0.000000", "-0.000000"),
        ("1.5e-20", "1.6e-20"),
        ("0.999999999999", "1"),
    ],
)
def test_numbers_that_differ_by_rounding_are_the_same(old, new):
    text = SHOWN.replace("2e-10", old) if old == "2e-10" else SHOWN + f"and ± 1e-9, then {old}\n"

    assert differences(text, text.replace(old, new)) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("7.38906", "7.38909"),
        ("7.38906", "-7.38906"),
        ("7.38906", "7.38906e-1"),
        ("7.38906", "nan"),
        ("0.88079707796", "0.88079897796"),
        ("2e-10", "3e-09"),
        ("out[2]", "out[3]"),
        ("24 of", "23 of"),
        ("FAIL", "PASS"),
        (" R)", " F)"),
        ("24 R)\n", "24 R)\nand more\n"),
        ("0.88079707796", "0"),
    ],
)
def test_a_wrong_number_or_word_differs(old, new):
    assert old in SHOWN

    assert differences(SHOWN, SHOWN.replace(old, new)) != []


def test_examples_are_run_in_order_in_one_namespace():
    shown = "```python\nx = 2\nprint(x)\n```\n\n```text\n2\n```"
    page = shown + "\n\nwords\n\n```python\nprint(3 * x)\n```"

    assert [shown for _, shown in examples(page)] == ["2\n", ""]
    assert printed(page) == ["2\n", "6\n"]


def test_the_page_of_the_vocabulary_is_what_the_code_has(monkeypatch):
    """After a change: `python tests/pages.py`."""
    page = (ROOT / "docs" / "vocabulary.md").read_text(encoding="utf-8")

    assert vocabulary(page) == page
    monkeypatch.setitem(OPERATIONS, "sin", OPERATIONS["sin"]._replace(domain="real"))
    assert vocabulary(page) != page


def test_every_operation_of_the_vocabulary_has_a_rule():
    assert set(OPERATIONS) == set(RULES) | set(WITH_RECORDED)
