"""docs/parity.md names the test behind every row: those tests exist.

A row of a table of parameters is named as pytest does, `test_name[key]`.
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "parity.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(test_\w+)(?:\[([^\]`]+)\])?`", PAGE)


def keys_of_all_tests():
    """By the name of a test, the strings that are keys of tables in its file."""
    found = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
        keys = {
            getattr(key, "value", None)
            for node in nodes
            if isinstance(node, ast.Dict)
            for key in node.keys
        }
        found |= {node.name: keys for node in nodes if isinstance(node, ast.FunctionDef)}
    return found


def test_every_test_that_parity_names_exists():
    tests = keys_of_all_tests()

    missing = {(name, key) for name, key in NAMED if name not in tests}
    missing |= {(name, key) for name, key in NAMED if key and key not in tests.get(name, ())}

    assert NAMED
    assert set() == missing


def test_every_row_of_parity_names_a_test():
    lines = PAGE.splitlines()
    # a table begins with its heading and a rule
    rules = {k for k, line in enumerate(lines) if line.startswith("|---")}
    rows = [line for k, line in enumerate(lines) if line.startswith("|") and not {k, k + 1} & rules]

    without = [row for row in rows if not re.search(r"`test_\w+[`\[]", row)]

    assert rows
    assert [] == without
