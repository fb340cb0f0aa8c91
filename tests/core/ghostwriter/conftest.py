"""Modules that are planted for one test."""

import itertools
import sys
import textwrap
from collections.abc import Callable

import pytest

_count = itertools.count()


@pytest.fixture
def plant(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Writes a module that can be imported, and returns its name, which no other module has."""
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    monkeypatch.syspath_prepend(pytester.path)

    def planted(source: str) -> str:
        name = f"planted_{next(_count)}"
        pytester.path.joinpath(f"{name}.py").write_text(textwrap.dedent(source))
        sys.modules.pop(name, None)
        return name

    return planted
