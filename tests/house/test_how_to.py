"""The pages of docs/how-to: their examples print what they show, and their lists are complete.

`python tests/house/test_how_to.py` runs the examples and writes what they print into the pages.
"""

import contextlib
import importlib.util
import io
import re
from pathlib import Path

import pytest

from adjudge.charts import SETS
from adjudge.special import PATTERNS

FOLDER = Path(__file__).parents[2] / "docs" / "how-to"
PAGES = [
    *("crosscheck", "devices", "every-mode", "feasible-directions", "hypothesis", "special-points"),
    *("supplied-derivatives", "tail-derivatives"),
]
EXAMPLE = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)
NUMBER = re.compile(r"-?\d[\d.]*(e[-+]?\d+)?%?")
OPTIONAL = ("hypothesis", "jax", "mpmath", "torch")


def text_of(page: str) -> str:
    return (FOLDER / f"{page}.md").read_text(encoding="utf-8")


def printed(page: str) -> list[str]:
    """What each example of a page prints; they build on one another."""
    namespace: dict[str, object] = {}
    outputs = []
    for code, _ in EXAMPLE.findall(text_of(page)):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            exec(code, namespace)  # noqa: S102 our own page
        outputs.append(text.getvalue())
    return outputs


def without_numbers(text: str) -> str:
    """Rounding differs between machines; words, names and verdicts do not."""
    return NUMBER.sub("#", text)


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_print_what_the_page_shows(page):
    for module in OPTIONAL:
        needed = re.search(rf"^(import|from) {module}\b", text_of(page), re.MULTILINE)
        if needed and importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    shown = [without_numbers(text) for _, text in EXAMPLE.findall(text_of(page))]

    assert any(shown)
    assert [without_numbers(text) for text in printed(page)] == shown


def test_every_page_is_run_or_has_tests_of_its_own():
    elsewhere = ["nox-matrix", "pytest", "write-an-adapter"]

    assert sorted(path.stem for path in FOLDER.glob("*.md")) == sorted([*PAGES, *elsewhere])


def test_the_page_of_sets_lists_every_set():
    page = text_of("feasible-directions")

    assert re.findall(r'^\| `"([a-z ]+)"`', page, re.MULTILINE) == list(SETS)


def test_the_page_of_special_points_names_every_pattern():
    section = text_of("special-points").split("## The points")[1].split("\n## ")[0]

    # "and the same of 1000"
    thousands = {"plus_1000", "minus_1000", "plus_minus_1000"}
    assert set(PATTERNS) - set(re.findall(r"`(\w+)`", section)) <= thousands


def rewrite(page: str) -> None:
    """The page with what its examples print now."""
    outputs = iter(printed(page))

    def example(match: re.Match[str]) -> str:
        now = next(outputs)
        return f"```python\n{match[1]}```" + (f"\n\n```text\n{now}```" if match[2] else "")

    (FOLDER / f"{page}.md").write_text(EXAMPLE.sub(example, text_of(page)), encoding="utf-8")


if __name__ == "__main__":
    for name in PAGES:
        rewrite(name)
