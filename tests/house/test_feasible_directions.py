"""docs/how-to/feasible-directions.md: its examples run, and print what the page shows."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from adjudge.charts import SETS

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "feasible-directions.md").read_text("utf-8")
EXAMPLE = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


def facts(text: str) -> list[str]:
    """What does not depend on the machine: verdicts, statuses, names of entries and of sets."""
    found = r"\b[A-Z_]{4,}\b|d out / d inputs[\[\]0-9, ]+|inputs\[\d\] along [a-z ]+"
    return re.findall(found, text)


@pytest.fixture(scope="module")
def printed() -> list[tuple[str, str]]:
    """What each example shows and what it prints; they build on one another."""
    namespace: dict[str, object] = {}
    pairs = []
    for code, shown in EXAMPLE.findall(PAGE):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            exec(code, namespace)  # noqa: S102 our own page
        pairs.append((shown, text.getvalue()))
    return pairs


def test_the_examples_print_what_the_page_shows(printed: list[tuple[str, str]]) -> None:
    assert sum(bool(shown) for shown, _ in printed) >= 4
    assert [facts(shown) for shown, _ in printed] == [facts(now) for _, now in printed]
    assert all(facts(now) for shown, now in printed if shown)


def test_the_page_lists_every_set() -> None:
    assert re.findall(r'^\| `"([a-z ]+)"`', PAGE, re.MULTILINE) == list(SETS)
