"""The mark `backend`: tests that need an engine; and `ADJUDGE_REQUIRE`, never ignored.

What NumPy, PyTorch and JAX read once, when they are imported, is set here before they are.
"""

import importlib.metadata
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
PINNED_JAXLIB = any(
    f"jaxlib=={found.version}" in CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    for found in importlib.metadata.distributions(name="jaxlib")
)


def xla_flags() -> Iterator[str]:
    """What XLA is told besides what the environment says already."""
    given = os.environ.get("XLA_FLAGS", "")
    # JAX has two devices of the CPU, so that arrays can be astray. Its default device is the first.
    if "host_platform_device_count" not in given:
        yield "--xla_force_host_platform_device_count=2"
    # Tests of JAX compile thousands of loops over a few numbers. Simpler code for them takes three
    # quarters of the time. A flag that XLA does not know ends the process, so it is given to the
    # version that constraints.txt names and to no other: those run the tests with the usual code.
    if "fusion_emitters" not in given and PINNED_JAXLIB:
        yield "--xla_cpu_use_fusion_emitters=false"


# Arrays of a few entries: threads would only wait for one another, and for those of the other
# processes of pytest-xdist, which inherit this.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *xla_flags()]).strip()

import adjudge.jacobian.block_sums  # noqa: E402 NumPy is imported from here on
from adjudge.jacobian.table import Table  # noqa: E402
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


@pytest.fixture
def sums(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[bool]]:
    """`sums(large, blocks)`: problems of so many numbers and more go by sums of so many blocks,
    `first` or where two evaluations have not settled it. Returns whether that settled each check.
    """

    def chosen(large: int, blocks: int, *, first: bool = True) -> list[bool]:
        monkeypatch.setattr("adjudge.jacobian.block_sums.LARGE", large)
        monkeypatch.setattr("adjudge.jacobian.block_sums.BLOCKS", blocks)
        compare_block_sums, column, settled = (
            adjudge.jacobian.block_sums.compare_block_sums,
            Table.compare_column,
            [],
        )

        def watched(*args):
            found = compare_block_sums(*args)
            settled.append(found is not None)
            return found

        def sums_first(self, *args):
            if not self.block_sums_agree():
                column(self, *args)

        monkeypatch.setattr("adjudge.check.one_problem.compare_block_sums", watched)
        if first:
            monkeypatch.setattr(Table, "compare_column", sums_first)
        return settled

    return chosen
