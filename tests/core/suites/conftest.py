"""A file of cases of every kind, which other processes can import."""

import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest

CASES = """
import os
import time

import numpy as np

from adjudge import ByHand, Case

X = np.asarray([0.3, -1.2])


def rule(c):
    return ByHand(np.sin, vjp=lambda x, w: c * w * np.cos(x))


def hang(x):
    time.sleep(600)


def die(x):
    os._exit(7)


def refuse(x):
    raise LookupError("mine\\nand more")


right = Case(rule(1), X, name="right")
wrong = Case(rule(2), X, name="wrong")
raises = Case(ByHand(refuse, vjp=refuse), X, name="raises")
jump = Case(ByHand(np.floor, vjp=lambda x, w: 0 * w), 0 * X, name="jump")
MORE = [Case(rule(1), X + k, name=f"right {k}") for k in range(3)]
"""
DEADLY = """
hangs = Case(ByHand(hang, vjp=hang), X, name="hangs")
dies = Case(ByHand(die, vjp=die), X, name="dies")
"""


@pytest.fixture(autouse=True)
def plain_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that judge cases of NumPy import no framework that other tests have imported."""
    monkeypatch.setattr("adjudge.suites.suite.entries", list)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with files that declare cases; what is imported from it is forgotten."""
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "common.py").write_text(CASES)
    (tmp_path / "checks" / "deadly.py").write_text(CASES.partition("right =")[0] + DEADLY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = {*sys.modules}
    yield tmp_path
    for name in {*sys.modules} - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(tmp_path):
            del sys.modules[name]


@pytest.fixture
def cases(folder: Path) -> SimpleNamespace:
    """The cases of the file by name, made by this process."""
    names: dict = {}
    exec(textwrap.dedent(CASES + DEADLY), names)  # noqa: S102 a text of our own
    return SimpleNamespace(**names)
