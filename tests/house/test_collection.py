"""The tests are collected where engines are absent, as they are in each cell of the matrix."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

WITHOUT = """
import sys
from importlib.machinery import PathFinder
import pytest

find = PathFinder.find_spec

def absent(name, *where):
    return None if name.partition(".")[0] in ("torch", "jax", "jaxlib") else find(name, *where)

PathFinder.find_spec = absent
sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", "tests/backends"]))
"""


def test_no_module_of_tests_needs_an_engine_to_be_imported():
    environment = {k: v for k, v in os.environ.items() if k != "ADJUDGE_REQUIRE"}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
        env=environment,
    )

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
