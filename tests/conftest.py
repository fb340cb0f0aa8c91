"""The mark `backend`: tests that need an engine; the mark `long`, with the option that runs such
tests; and `ADJUDGE_REQUIRE`, never ignored.

What NumPy, PyTorch and JAX read once, when they are imported, is set here before they are.
"""

import atexit
import gc
import importlib.metadata
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
PINNED_JAXLIB = any(
    f"jaxlib=={found.version}" in CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    for found in importlib.metadata.distributions(name="jaxlib")
)

QUICK_TO_COMPILE = (
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
    # programs of a few operations are not cut into parts for several threads
    "--xla_cpu_parallel_codegen_split_count=1",
)


def xla_flags() -> Iterator[str]:
    """What XLA is told besides what the environment says already."""
    given = os.environ.get("XLA_FLAGS", "")
    # JAX has two devices of the CPU, so that arrays can be astray. Its default device is the first.
    if "host_platform_device_count" not in given:
        yield "--xla_force_host_platform_device_count=2"
    # Tests of JAX compile thousands of loops over a few numbers. Simpler code for them takes two
    # thirds of the time. A flag that XLA does not know ends the process, so these are given to the
    # version that constraints.txt names and to no other: those run the tests with the usual code.
    if PINNED_JAXLIB:
        for flag in QUICK_TO_COMPILE:
            if flag.partition("=")[0] not in given:
                yield flag


# Python looks for cycles behind every 700 new objects, of which a trace of JAX makes thousands.
gc.set_threshold(10_000, 20, 20)

# Arrays of a few entries: threads would only wait for one another, and for those of the other
# processes of pytest-xdist, which inherit this.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *xla_flags()]).strip()

# Half of what JAX compiles in the tests it has compiled before, in this process or in another of
# pytest-xdist, which inherits the folder.
if PINNED_JAXLIB and "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    COMPILED = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    atexit.register(COMPILED.cleanup)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = COMPILED.name
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

from adjudge_pytest import engines  # noqa: E402

pytest_plugins = ["pytester"]

MOST_WORKERS = 8
"""Each imports PyTorch and JAX, and keeps what it has compiled."""


@pytest.hookimpl(optionalhook=True)  # `pytest -p no:xdist` has no such hook
def pytest_xdist_auto_num_workers() -> int:
    """For `-n auto`: the cores that this process may use; with a single one, no other process."""
    affinity = getattr(os, "sched_getaffinity", None)  # which Linux alone has
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return min(cores, MOST_WORKERS) if cores > 1 else 0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("adjudge's own tests").addoption(
        "--long",
        action="store_true",
        help="run the tests that are marked `long` too: more seeds, dtypes and sizes of what the"
        " other tests guard; `--long -m long` runs them alone",
    )


def pytest_report_header(config: pytest.Config) -> str:
    return "long: run too" if config.getoption("long") else "long: left out, run by --long"


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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for name in engines_of(item):
            if reason := engines.unknown(name):
                raise pytest.UsageError(f"{item.nodeid}: {reason}")
    if not config.getoption("long"):
        left_out = [item for item in items if item.get_closest_marker("long")]
        items[:] = [item for item in items if not item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=left_out)


def pytest_collection_finish() -> None:
    gc.freeze()  # the tests themselves and what they import stay: nothing of it is looked at again


def pytest_runtest_setup(item: pytest.Item) -> None:
    for name in engines_of(item):
        if reason := engines.why_absent(name):
            pytest.skip(reason)
