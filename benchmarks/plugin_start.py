"""What the pytest plugin adds to the start of a pytest run that does not use it, in milliseconds.

A test file with one empty test is run with the plugin and with `-p no:adjudge`, in turn.
"""

import argparse
import datetime
import importlib.metadata
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

EMPTY = "def test_nothing():\n    pass\n"
VARIANTS = {"with the plugin": (), "-p no:adjudge": ("-p", "no:adjudge")}


def milliseconds(folder: Path, arguments: Sequence[str]) -> tuple[float, float]:
    """Of the clock, and of the processor, for one run in a fresh process."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    # no test of its own settings: a variable that requires an engine would import it
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("ADJUDGE_", "PYTEST_"))}
    begin = time.perf_counter()
    with subprocess.Popen(  # noqa: S603 this interpreter
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    clock = time.perf_counter() - begin
    return 1000 * clock, 1000 * (usage.ru_utime + usage.ru_stime)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40, help="of each variant")
    runs = parser.parse_args().runs
    loaded = {point.value for point in importlib.metadata.entry_points(group="pytest11")}
    if "adjudge_pytest" not in loaded:
        parser.error("the plugin is not installed: pip install -e .")
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in VARIANTS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_empty.py").write_text(EMPTY, encoding="utf-8")
        for k in range(-1, runs):  # the first compiles the files, and does not count
            order = list(VARIANTS.items())
            for variant, arguments in order if k % 2 else reversed(order):
                spent = milliseconds(folder, arguments)
                times[variant] += [spent] if k >= 0 else []

    versions = ", ".join(
        f"{one} {importlib.metadata.version(one)}" for one in ("pytest", "adjudge")
    )
    print(f"{datetime.date.today()}, Python {platform.python_version()}, {versions}")
    print(f"{platform.platform()}, {os.cpu_count()} CPUs, {runs} runs of each in turn\n")
    print("| pytest on one empty test | clock: median ms | quartiles | processor: median ms |")
    print("|---|---|---|---|")
    for variant, spent in times.items():
        clock, processor = zip(*spent, strict=True)
        low, middle, high = statistics.quantiles(clock, n=4)
        print(
            f"| {variant} | {middle:.1f} | {low:.1f} to {high:.1f} | "
            f"{statistics.median(processor):.1f} |"
        )
    one, other = times.values()
    added = [
        statistics.median(a[k] - b[k] for a, b in zip(one, other, strict=True)) for k in (0, 1)
    ]
    print(f"\nadded, median of the differences: {added[0]:.1f} ms, processor {added[1]:.1f} ms")


if __name__ == "__main__":
    main()
