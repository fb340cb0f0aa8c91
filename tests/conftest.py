"""The mark `backend`: tests that need an engine; and `ADJUDGE_REQUIRE`, never ignored."""

import os
from collections.abc import Iterator

import pytest

from adjudge_pytest import engines

pytest_plugins = ["pytester"]


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("ADJUDGE_REQUIRE") and config.getoption("adjudge_require", None) is None:
        raise pytest.UsageError(
            "ADJUDGE_REQUIRE is set, and the plugin that reads it is not loaded\n"
            "install again, since entry points are metadata: pip install -e ."
        )


def engines_of(item: pytest.Item) -> Iterator[str]:
    """The engines that the marks of a test name."""
    for mark in item.iter_markers("backend"):
        yield from mark.args


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for name in engines_of(item):
            if reason := engines.unknown(name):
                raise pytest.UsageError(f"{item.nodeid}: {reason}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    for name in engines_of(item):
        if reason := engines.why_absent(name):
            pytest.skip(reason)
