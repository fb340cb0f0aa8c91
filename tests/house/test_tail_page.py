"""docs/how-to/tail-derivatives.md says what the code does.

`python tests/house/test_tail_page.py` runs the examples and writes what they print into the page.
"""

import contextlib
import io
import re
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "docs" / "how-to" / "tail-derivatives.md"
PAGE = PATH.read_text(encoding="utf-8")
EXAMPLE = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
NOISY = re.compile(r"-?\d[\d.]*(e[-+]?\d+)?%?")


def printed() -> list[str]:
    """What each example prints; they build on one another."""
    namespace: dict[str, object] = {}
    outputs = []
    for code, _ in EXAMPLE.findall(PAGE):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            exec(code, namespace)  # noqa: S102 our own page
        outputs.append(text.getvalue())
    return outputs


def test_the_examples_say_what_the_page_shows():
    pytest.importorskip("mpmath")

    shown = [NOISY.sub("#", text) for _, text in EXAMPLE.findall(PAGE)]

    assert shown == [NOISY.sub("#", text) for text in printed()]


def rewrite() -> None:
    """The page with what its examples print now."""
    outputs = iter(printed())
    page = EXAMPLE.sub(lambda m: f"```python\n{m[1]}```\n\n```text\n{next(outputs)}```", PAGE)
    PATH.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    rewrite()
