"""A test-suite in a folder of its own, run with the plugin, on engines without a framework."""

import importlib
import textwrap
from collections.abc import Callable
from contextlib import suppress

import pytest

SUITE = """
    import numpy as np
    import pytest

    import adjudge

    square = adjudge.ByHand(lambda x: x**2, vjp=lambda x, w: 2 * x * w)
    cubed = adjudge.ByHand(lambda x: x**3, vjp=lambda x, w: 2 * x**2 * w)  # wrong: 3 x**2
"""

ENGINES = "numpy,array_api_strict"
STRICT = ("--strict-markers", "--strict-config", "-rA")

# A run in this process drops what it imports, and NumPy's arrays have to stay who they are. So do
# engines: PyTorch cannot be loaded twice, and where these tests came first others were broken.
for engine in ("torch._dynamo", "jax", "autograd"):
    with suppress(ImportError):
        importlib.import_module(engine)
importlib.import_module("array_api_strict")
importlib.import_module("numpy.fft")  # its extension is loaded once in a process, or raises
importlib.import_module("adjudge_pytest.files")
importlib.import_module("adjudge_pytest.fixture")
importlib.import_module("adjudge_pytest.frames")
importlib.import_module("adjudge_pytest.outcome")
importlib.import_module("adjudge_pytest.summary")


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of the run around says nothing to the runs inside of it."""
    for name in ("ADJUDGE_REQUIRE", "ADJUDGE_BACKEND", "PYTEST_ADDOPTS", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "250")  # lines are not cut
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # and no other plugin takes time


@pytest.fixture
def run(pytester: pytest.Pytester) -> Callable[..., pytest.RunResult]:
    """`run(source, *arguments)`: pytest on one module, which begins with `SUITE`.

    `engines`: of `--adjudge-backend`. `apart`: in a process of its own, which is slower.
    """

    def call(
        source: str, *arguments: str, engines: str | None = ENGINES, apart: bool = False
    ) -> pytest.RunResult:
        pytester.makepyfile(test_it=textwrap.dedent(SUITE) + textwrap.dedent(source))
        named = [] if engines is None else ["--adjudge-backend", engines]
        start = pytester.runpytest_subprocess if apart else pytester.runpytest_inprocess
        return start("-p", "adjudge_pytest", *named, *STRICT, *arguments)

    return call
