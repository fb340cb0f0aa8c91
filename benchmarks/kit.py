"""The conformance kit on each engine: scenarios passed, excused and failed, and mutants caught.

Excuses, mutants and what is disturbed are those of tests/backends/test_conformance_mutations.py.

    python benchmarks/kit.py                                   # all engines that are installed
    python benchmarks/kit.py --pythons python3.11 venv/bin/python   # here or there
    python benchmarks/kit.py --engines mlx --no-mutants
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from harness import header, table, told

TESTS = Path(__file__).parents[1] / "tests"
REST = "arrays, environment, capabilities"
"""What is asked of an adapter beside the scenarios."""
NO_DTYPE = "no such dtype"
"""The scenario is about a dtype that the engine has not, which needs no excuse."""


def of_tests(name: str) -> ModuleType:
    """A module of tests/backends, which is no package."""
    if str(TESTS) not in sys.path:
        sys.path.insert(0, str(TESTS))
    spec = importlib.util.spec_from_file_location(name, TESTS / "backends" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def asked(engine: str, mutations: Any) -> dict[str, str]:
    """What became of each scenario: how many checks pass and fail, or that it is excused."""
    from adjudge.conformance import SCENARIOS, checks

    passed, failed = Counter[str](), Counter[str]()
    options = {"excused": mutations.EXCUSED.get(engine), "disturb": mutations.disturbances(engine)}
    for check in checks(engine, **options):
        named = (one.name for one in SCENARIOS if check.id.startswith(f"{one.name}-"))
        scenario = next(named, REST)
        with mutations.restored(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                check.run()
                passed[scenario] += 1
            except Exception as error:  # whatever an adapter raises is a finding of the kit
                told(f"{engine}: {check.id}: {error}")
                failed[scenario] += 1
    excused = mutations.EXCUSED.get(engine, {})
    left = {one.name: "excused" if one.needs & {*excused} else NO_DTYPE for one in SCENARIOS}
    return {
        name: f"{passed[name]}, {failed[name]} failed"
        if failed[name]
        else str(passed[name] or left[name])
        for name in (REST, *left)
    }


def engine_row(engine: str, mutants: bool) -> dict[str, Any]:
    """The kit and the mutants of one engine."""
    from adjudge.engine import backend_named

    mutations, begin = of_tests("test_conformance_mutations"), time.process_time()
    backend_named(engine)  # Lucid is imported by its adapter alone
    row: dict[str, Any] = {"engine": engine, "scenarios": asked(engine, mutations)}
    row["seconds"] = time.process_time() - begin
    row["excused"] = ", ".join(mutations.EXCUSED.get(engine, {}))
    if mutants:
        names = [name for name in mutations.MUTATIONS if mutations.applies(name, engine)]
        missed = [name for name in names if mutations.caught(name, engine) is None]
        row["mutants"] = f"{len(names) - len(missed)} of {len(names)}"
        row["missed"] = missed
    return row


def rows(engines: Sequence[str], mutants: bool) -> Iterator[dict[str, Any]]:
    """The rows of those engines that are installed here."""
    of_tests("conftest")  # two devices of TensorFlow
    for engine in engines:
        if importlib.util.find_spec(engine) is not None:
            told(engine)
            yield engine_row(engine, mutants)


def page(found: Sequence[Mapping[str, Any]]) -> str:
    """The two tables."""
    total, lines = [], []
    for row in found:
        outcomes = Counter(
            text if text in ("excused", NO_DTYPE) else "failed" if "failed" in text else "passed"
            for name, text in row["scenarios"].items() if name != REST
        )  # fmt: skip
        total.append(
            [row["engine"], sum(int(text.split(",")[0]) for text in row["scenarios"].values()
                                if text not in ("excused", NO_DTYPE)),
             *(outcomes[word] for word in ("passed", "excused", "failed")),
             row["excused"] or "nothing", row.get("mutants", ""), f"{row['seconds']:.1f}"]
        )  # fmt: skip
    for name in found[0]["scenarios"]:
        lines.append([name, *(row["scenarios"][name] for row in found)])
    head = ("engine", "checks passed", "scenarios passed", "excused", "failed",
            "excused from", "mutants caught", "processor s")  # fmt: skip
    missed = [f"- {row['engine']}: {name}" for row in found for name in row.get("missed", ())]
    return "\n".join(
        [table(head, total), "Checks that pass, by scenario:\n",
         table(("scenario", *(row["engine"] for row in found)), lines),
         *(["Mutants that pass:\n", *missed] if missed else [])]
    )  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--engines", nargs="+", default=None, help="all by default")
    parser.add_argument("--pythons", nargs="+", default=[sys.executable], metavar="INTERPRETER")
    parser.add_argument("--no-mutants", action="store_true", help="the kit alone")
    chosen = parser.parse_args()
    found: list[dict[str, Any]] = []
    for python in chosen.pythons:
        known = [row["engine"] for row in found]
        call = f"kit.here({chosen.engines!r}, {known!r}, {not chosen.no_mutants})"
        command = [python, "-W", "ignore", "-c", f"import kit; {call}"]
        said = subprocess.run(  # noqa: S603 an interpreter that the caller names
            command, cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True, check=True,
            env=os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
        )  # fmt: skip
        found += json.loads(said.stdout.splitlines()[-1])
    print(header("The conformance kit", ["adjudge", "numpy"]))
    print(page(found))


def here(engines: Sequence[str] | None, known: Sequence[str], mutants: bool) -> None:
    """Prints the rows of this interpreter, but for the engines that are known."""
    every = engines or of_tests("test_conformance_mutations").ENGINES
    print(json.dumps([*rows([one for one in every if one not in known], mutants)]))


if __name__ == "__main__":
    main()
