"""Which engines a run needs: `--backend NAME`, `ADJUDGE_REQUIRE`, and the mark `backend`."""

import functools
import importlib
import importlib.metadata
import os
from collections.abc import Iterator

import pytest

# Each engine by the module that makes its arrays, the distribution that carries it, and the command
# that installs it.
ENGINES = {
    "numpy": ("numpy", "numpy", "pip install numpy"),
    "array_api_strict": (
        "array_api_strict",
        "array-api-strict",
        "pip install -c constraints.txt -e '.[test]'",
    ),
    "torch": ("torch", "torch", "pip install -c constraints.txt -e '.[torch]'"),
    "jax": ("jax.numpy", "jax", "pip install -c constraints.txt -e '.[jax]'"),
    "cupy": ("cupy", "cupy-cuda12x", "pip install -c constraints.txt -e '.[cupy]'"),
}


@functools.cache
def why_absent(name: str) -> str | None:
    """What keeps the engine from holding an array, or None where nothing does.

    An import is not enough: CuPy is importable on a machine without a GPU.
    """
    try:
        importlib.import_module(ENGINES[name][0]).zeros(1)
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return None


def required_engines(config: pytest.Config) -> list[str]:
    """The engines asked for by name, whose absence fails the run."""
    listed = os.environ.get("ADJUDGE_REQUIRE", "").split(",")
    names = [*config.getoption("backend"), *(name.strip() for name in listed)]
    return list(dict.fromkeys(name for name in names if name))


def engines_of(item: pytest.Item) -> Iterator[str]:
    """The engines that the marks of a test name."""
    for mark in item.iter_markers("backend"):
        yield from mark.args


def check_name(name: str) -> None:
    """Raises where no engine has this name."""
    if name not in ENGINES:
        raise pytest.UsageError(
            f"unknown engine {name!r}\nthe engines are: {', '.join(sorted(ENGINES))}"
        )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--backend",
        action="append",
        default=[],
        metavar="NAME",
        help="an engine that has to be there: its absence fails the run; may be repeated "
        "(or ADJUDGE_REQUIRE=NAME,NAME in the environment)",
    )


def pytest_configure(config: pytest.Config) -> None:
    for name in required_engines(config):
        check_name(name)
        if reason := why_absent(name):
            raise pytest.UsageError(
                f"engine {name!r} is required and absent ({reason})\ninstall it: {ENGINES[name][2]}"
            )


def pytest_report_header(config: pytest.Config) -> str:
    required = required_engines(config)
    found = []
    for name, (_, distribution, _) in ENGINES.items():
        try:
            version = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            version = "absent"
        found.append(f"{name} {version}{' (required)' if name in required else ''}")
    return f"engines: {', '.join(found)}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for name in engines_of(item):
            check_name(name)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for name in engines_of(item):
        if reason := why_absent(name):
            pytest.skip(f"engine {name!r} is absent ({reason}): {ENGINES[name][2]}")
