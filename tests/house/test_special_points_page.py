"""docs/how-to/special-points.md: its examples print what it shows, and it names every point."""

import contextlib
import io
import re
from pathlib import Path

from adjudge.special import PATTERNS

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "special-points.md").read_text("utf-8")
EXAMPLE = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)


def test_the_examples_print_what_the_page_shows():
    namespace: dict[str, object] = {}
    shown, now = [], []
    for code, output in EXAMPLE.findall(PAGE):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            exec(code, namespace)  # noqa: S102 our own page
        shown.append(output)
        now.append(text.getvalue())

    assert shown
    assert shown == now


def test_the_page_names_every_pattern():
    named = set(re.findall(r"`(\w+)`", PAGE.split("## The points")[1].split("\n## ")[0]))

    # "and the same of 1000"
    thousands = {"plus_1000", "minus_1000", "plus_minus_1000"}
    assert set(PATTERNS) - named <= thousands
