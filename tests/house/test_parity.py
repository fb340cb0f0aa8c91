"""docs/parity.md names the test behind every row: those tests exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "parity.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(test_\w+)`", PAGE)


def names_of_all_tests():
    return {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    }


def test_every_test_that_parity_names_exists():
    missing = sorted(set(NAMED) - names_of_all_tests())

    assert NAMED
    assert [] == missing


def test_every_row_of_parity_names_a_test():
    lines = PAGE.splitlines()
    # a table begins with its heading and a rule
    rules = {k for k, line in enumerate(lines) if line.startswith("|---")}
    rows = [line for k, line in enumerate(lines) if line.startswith("|") and not {k, k + 1} & rules]

    without = [row for row in rows if not re.search(r"`test_\w+`", row)]

    assert rows
    assert [] == without
