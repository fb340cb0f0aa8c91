"""benchmarks/gpu.py: run on the CPU, held to its JSON, and docs/gpu.md held to what has run.

Where benchmarks/gpu.json is committed, the page is what follows from it; without, it says so.
"""

import copy
import importlib
import importlib.metadata
import io
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from adjudge.conformance import checks
from adjudge.engine.arrays import PlainArrays
from adjudge.engine.contract import replaced
from adjudge.engine.registry import backend_named

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "gpu.py"
PAGE = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
COMMITTED = ROOT / "benchmarks" / "gpu.json"


@pytest.fixture
def module(monkeypatch):
    """A module of benchmarks/ by name; the folder is on no path otherwise."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module


FEWER_ENGINES = ("--engines", "cupy,torch")
"""One that is absent and one that may be there: each is imported by a process of its own."""


def run(*arguments, flags=(), **environment):
    return subprocess.run(
        [sys.executable, *flags, str(SCRIPT), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
    )


# ---------------------------------------------------------------- the page


def test_the_page_is_what_follows_from_the_committed_file_or_says_that_nothing_has_run(module):
    assert "\ngpu\n" in (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    if not COMMITTED.exists():
        assert "It has not run on a GPU yet." in PAGE
        assert module("gpu").COMMAND in PAGE
        assert "| ---" not in PAGE
        return
    run = json.loads(COMMITTED.read_text(encoding="utf-8"))

    assert module("gpu").problems(run) == []
    assert module("gpu").page(run) == PAGE, "python benchmarks/gpu.py --page FILE"


def test_the_page_of_a_run_has_its_device_its_tables_and_all_that_failed(module, made):
    page = module("gpu").page(made)

    assert "has not run" not in page
    assert page.endswith(PAGE.partition("## What it runs")[2])
    for fact in (
        "2026-03-04", "NVIDIA H100 PCIe", "driver 580.95", "CUDA 13.0", "`0123456789ab`",
        "not committed", "torch 2.11.0+cu130", "| 10000000 | float64 | 0.42 |",
        "round trip of -0.0", "not run: 20 minutes were over",
        "| sin float32 | ordinary | right | adjudge | FAIL |",
        "| cos4 float64 | ordinary | 0.01 | adjudge | PASS |", "| 3 of 4 |",
        "no torch here",
    ):  # fmt: skip
        assert fact in page, fact


def test_the_page_of_a_file_that_is_none_of_a_gpu_is_refused(tmp_path, made):
    made["dry_run"] = True
    path = tmp_path / "dry.json"
    path.write_text(json.dumps(made), encoding="utf-8")

    done = run("--page", path)

    assert done.returncode == 2
    assert done.stdout == ""
    assert "a dry run is no run on a GPU" in done.stderr


# ---------------------------------------------------------------- the file


@pytest.fixture
def made(module):
    """A file as a run on a GPU would make it; its numbers are made up."""
    summary = module("gpu").summary
    on = {"device": "cuda:0", "platform": "cuda", "version": "1", "name": "NVIDIA H100 PCIe"}
    large = {
        "name": "10000000 float64", "seconds": 1.0, "ok": True, "text": "PASS",
        "engine": "cupy", "device": "cuda:0", "n": 10_000_000, "dtype": "float64", "own": 4.2e-4,
        "check": 2.1, "multiple": 5000.0, "verdict": "PASS", "evaluations": 20, "vjps": 5,
        "array_bytes": 80_000_000, "host_peak": 800_000_000, "device_peak": None,
    }  # fmt: skip
    kit = [
        {"name": "cupy: names", "seconds": 0.1, "ok": True, "comparisons": 3},
        {"name": "cupy: arrays", "seconds": 0.1, "ok": False, "text": "round trip of -0.0"},
    ]
    tests = [
        {
            "name": "tests/x.py", "seconds": 1.0, "ok": True, "passed": 7, "failed": 0,
            "skipped": 2, "skips": {"no torch here": 2}, "text": "",
        }
    ]  # fmt: skip

    def part(name, engine, rows, status="ran", reason="", errors=()):
        return {
            "name": name, "engine": engine, "device": "cuda:0", "status": status, "reason": reason,
            "seconds": 3.0, "on": on if rows else {}, "errors": list(errors),
            "summary": summary(name, rows) if rows else {},
        }  # fmt: skip

    return {
        "date": "2026-03-04T05:06:07+00:00",
        "dry_run": False,
        "engines": ["cupy", "torch", "jax"],
        "minutes": 20.0,
        "seconds": 600.0,
        "commit": {"hash": "0123456789abcdef", "dirty": True},
        "machine": {
            "gpu": "NVIDIA H100 PCIe", "driver": "580.95", "cuda": "13.0", "memory": "81559 MiB",
            "python": "3.12.1",
        },
        "versions": {"torch": "2.11.0+cu130", "jax": None},
        "parts": [
            part("conformance", "cupy", kit),
            part("large", "cupy", [large]),
            part("tests", "cupy", tests),
            part("torch operators", "torch", [operator(k) for k in range(5)]),
            part("jax operators", "jax", [], "not run", "20 minutes were over"),
        ],
    }  # fmt: skip


def operator(k):
    """Five operators: the first is rejected as it is, and the error in the last is missed."""
    dtype = "float32" if k == 0 else "float64"
    name = f"sin {dtype}" if k == 0 else f"cos{k} {dtype}"
    about = {"name": name, "group": dtype, "kind": "ordinary", "judge": "adjudge"}
    measured = {"text": "MISMATCH", "evaluations": 4, "seconds": 1.0, "first": 1.0}
    verdicts = {"right": "FAIL" if k == 0 else "PASS", "0.01": "PASS" if k == 4 else "FAIL"}
    rows = [about | measured | {"plant": p, "verdict": v} for p, v in verdicts.items()]
    return {"name": name, "seconds": 0.1, "ok": True, "rows": rows}


def test_false_alarms_and_planted_errors_are_counted(module):
    found = module("gpu").summary("torch operators", [operator(k) for k in range(5)])

    assert found["false_alarms"] == 1
    assert "| ordinary | adjudge | 1 | 0 | 1 | 0 | 0 |" in found["tables"]  # float32
    assert "| ordinary | adjudge | 4 | 4 | 0 | 0 | 0 |" in found["tables"]  # float64
    assert "### What adjudge does not pass as it is: 1\n" in found["tables"]
    assert "### Planted errors that adjudge does not reject: 1\n" in found["tables"]
    known = operator(0)
    known["rows"] = [row | {"kind": "wrong"} for row in known["rows"]]
    assert module("gpu").summary("torch operators", [known])["false_alarms"] == 0


def test_a_file_of_a_run_on_a_gpu_is_accepted(module, made):
    assert module("gpu").problems(made) == []


TAMPERED = {
    "a dry run": lambda run: run.update(dry_run=True),
    "no GPU": lambda run: run["machine"].update(gpu=None),
    "no driver": lambda run: run["machine"].update(driver=None),
    "no CUDA": lambda run: run["machine"].pop("cuda"),
    "no commit": lambda run: run["commit"].update(hash=None),
    "arrays on the CPU": lambda run: run["parts"][0]["on"].update(platform="cpu", device="cpu"),
    "no word of the device": lambda run: run["parts"][0].update(on={}),
    "a row on the CPU": lambda run: run["parts"][1]["summary"]["rows"][0].update(device="cpu"),
    "nothing was run": lambda run: run.update(parts=run["parts"][-1:]),
    "a part that ran holds nothing": lambda run: run["parts"][0].update(summary={}),
    "not run without a reason": lambda run: run["parts"][-1].update(reason=""),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_file_that_is_none_of_a_run_on_a_gpu_is_not_accepted(module, made, what):
    tampered = copy.deepcopy(made)
    TAMPERED[what](tampered)

    assert module("gpu").problems(tampered) != []


# ---------------------------------------------------------------- the dry run


@pytest.fixture(scope="module")
def dry(tmp_path_factory):
    """A fast part on the CPU, with the engines that there are."""
    path = tmp_path_factory.mktemp("gpu") / "dry.json"
    done = run(*FEWER_ENGINES, "--dry-run", "--parts", "large", "--out", path, "--minutes", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_dry_run_does_every_part_and_says_why_others_are_absent(module, dry):
    assert module("gpu").problems(dry, gpu=False) == []
    assert {p["status"] for p in dry["parts"]} <= {"ran", "absent"}
    assert [p for p in dry["parts"] if p["status"] == "absent" and not p["reason"]] == []
    assert [p["summary"]["failures"] for p in dry["parts"] if p["summary"].get("failed")] == []
    large = next(p for p in dry["parts"] if (p["name"], p["engine"]) == ("large", "numpy"))
    rows = large["summary"]["rows"]
    assert {row["verdict"] for row in rows} == {"PASS"}
    assert all(row["own"] > 0 and row["multiple"] > 0 for row in rows)


def test_the_dry_run_is_none_of_a_gpu(module, dry):
    found = "\n".join(module("gpu").problems(dry))

    assert "a dry run is no run on a GPU" in found
    dry = {**dry, "dry_run": False}
    assert "large, numpy: on cpu, which is no GPU" in "\n".join(module("gpu").problems(dry))


def test_without_a_gpu_nothing_is_run(tmp_path):
    done = run("--out", tmp_path / "gpu.json", PATH="")

    assert done.returncode == 2
    assert "no GPU: nvidia-smi names none" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_adjudge_stands_on_is_asked_for_by_name(tmp_path):
    done = run("--dry-run", "--out", tmp_path / "gpu.json", flags=["-S"], PYTHONPATH="")

    assert done.returncode == 2
    assert "pip install numpy optree array-api-compat" in done.stderr


def test_a_driver_without_an_engine_that_uses_it_is_no_run(tmp_path):
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'A GPU, 580.1, 1 MiB, 9.0'\necho 'CUDA Version: 13.0'\n")
    smi.chmod(0o755)
    path, out = f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin", tmp_path / "gpu.json"

    done = run(
        "--engines", "cupy,jax", "--parts", "large", "--commit", "abc", "--out", out,
        PATH=path, CUDA_VISIBLE_DEVICES="",
    )  # fmt: skip

    assert done.returncode == 1
    assert "no part was run" in done.stderr
    parts = json.loads(out.read_text(encoding="utf-8"))["parts"]
    assert {part["status"] for part in parts} == {"absent"}
    assert all(part["reason"] for part in parts)


def test_no_time_left_is_a_reason(module, tmp_path):
    path = tmp_path / "gpu.json"

    done = run("--dry-run", "--minutes", "0", "--out", path)

    assert done.returncode == 0, done.stderr
    parts = json.loads(path.read_text(encoding="utf-8"))["parts"]
    assert {(p["status"], p["reason"]) for p in parts} == {("not run", "0 minutes were over")}
    assert len(parts) == len(module("gpu").DRY)


def test_a_source_tree_gets_the_entry_points_of_an_installation(module, tmp_path):
    module("gpu").metadata_in(tmp_path)
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    (found,) = importlib.metadata.distributions(path=[str(tmp_path)])

    assert (found.metadata["Name"], found.version) == ("adjudge", declared["version"])
    for group, points in declared["entry-points"].items():
        assert {p.name: p.value for p in found.entry_points if p.group == group} == points


# ---------------------------------------------------------------- processes that die


class Processes:
    """In place of processes: what each writes, and how it ends; what each was asked to skip."""

    def __init__(self, *scripts):
        self.scripts, self.skipped = list(scripts), []

    def __call__(self, part, device, small, skip, until, lines, env):
        self.skipped.append(skip)
        written, code = self.scripts.pop(0)
        lines.write_text("".join(json.dumps(one) + "\n" for one in written), encoding="utf-8")
        return code, "said"


ON = {"on": {"device": "cuda:0", "platform": "cuda"}}


def begun(name):
    return {"starting": name}


def done(name, ok=True):
    return {"name": name, "seconds": 0.1, "ok": ok, "text": "" if ok else "wrong"}


@pytest.fixture
def part_of(module, monkeypatch):
    """The outcome of a part whose processes end as it is told."""
    gpu = module("gpu")

    def outcome(*scripts):
        processes = Processes(*scripts)
        monkeypatch.setattr(gpu, "process", processes)
        part = gpu.Part("conformance", "json", 60)  # an engine that can be imported
        found = gpu.run_part(part, "cuda:0", small=False, seconds=60, env={})
        return found, processes.skipped

    return outcome


def test_after_a_crash_the_next_process_goes_on_behind_it(part_of):
    found, skipped = part_of(
        ([ON, begun("a"), done("a"), begun("b")], -11),
        ([ON, begun("c"), done("c"), {"done": True}], 0),
    )

    assert found["status"] == "ran"
    assert skipped == [0, 2]
    assert found["summary"]["items"] == 3
    assert found["summary"]["failures"] == [{"name": "b", "text": "died with exit code -11"}]
    assert found["errors"] == ["after b: exit code -11; said"]


def test_after_a_device_was_lost_a_new_process_has_it_back(part_of):
    found, skipped = part_of(
        ([ON, begun("a"), done("a", ok=False), {"lost": "a"}], 3),
        ([ON, begun("b"), done("b"), {"done": True}], 0),
    )

    assert (found["status"], skipped) == ("ran", [0, 1])
    assert found["summary"]["failures"] == [{"name": "a", "text": "wrong"}]
    assert found["errors"] == ["after a: the device no longer answered; said"]


def test_a_process_that_begins_nothing_breaks_the_part(part_of):
    found, _ = part_of(([ON, begun("a"), done("a"), begun("b")], -6), ([], 1))

    assert found["status"] == "broken"
    assert "it began nothing more: exit code 1" in found["reason"]
    assert found["summary"]["items"] == 2


def test_crashes_without_end_break_the_part(part_of):
    found, skipped = part_of(*[([ON, begun("a")], -11)] * 6)

    assert (found["status"], skipped) == ("broken", [0, 1, 2, 3, 4, 5])


def test_a_process_that_was_stopped_is_said_to_be(part_of):
    found, _ = part_of(([ON, begun("a"), done("a"), begun("b")], None))

    assert (found["status"], found["reason"]) == ("stopped", "60 s were over at b")
    assert found["summary"]["failures"] == [{"name": "b", "text": "was stopped: no time left"}]


def test_what_was_not_begun_in_time_is_named(part_of):
    found, _ = part_of(([ON, begun("a"), done("a"), {"stopped": "b"}], 0))

    assert (found["status"], found["reason"]) == ("stopped", "60 s were over before b")


def test_a_device_that_is_absent_is_no_run(part_of):
    found, _ = part_of(([{"absent": "no driver"}], 0))

    assert (found["status"], found["reason"], found["summary"]) == ("absent", "no driver", {})


# ---------------------------------------------------------------- a part


def lines_of(module, items, alive, until=float("inf"), skip=0):
    parts = module("gpu_parts")

    class Place(parts.Place):
        def alive(self):
            return alive

    lines = io.StringIO()
    code = parts.run(iter(items), Place("numpy", "cpu", True), skip, until, lines)
    return code, [json.loads(line) for line in lines.getvalue().splitlines()]


def wrong():
    raise ValueError("an illegal address")


ITEMS = [("a", lambda: {"ok": True}), ("b", wrong), ("c", lambda: {"ok": True, "x": float("nan")})]


def test_what_an_item_raises_is_its_answer_and_the_next_one_follows(module):
    code, lines = lines_of(module, ITEMS, alive=True)

    rows = [line for line in lines if "name" in line]
    assert code == 0
    assert [row["ok"] for row in rows] == [True, False, True]
    assert rows[1]["text"] == "ValueError: an illegal address"
    assert rows[2]["x"] is None
    assert lines[-1] == {"done": True}


def test_where_the_device_no_longer_answers_the_process_ends(module):
    code, lines = lines_of(module, ITEMS, alive=False)

    assert code == module("gpu_parts").LOST
    assert lines[-1] == {"lost": "b"}
    assert [line["name"] for line in lines if "name" in line] == ["a", "b"]


def test_a_part_goes_on_where_it_is_told_and_ends_when_its_time_is_up(module):
    _, later = lines_of(module, ITEMS, alive=True, skip=2)
    code, over = lines_of(module, ITEMS, alive=True, until=0.0)

    assert [line["name"] for line in later if "name" in line] == ["c"]
    assert (code, over) == (0, [{"stopped": "a"}])


@pytest.fixture
def other_device():
    pytest.importorskip("array_api_strict")
    backend = backend_named("array_api_strict")
    return backend, backend.arrays.devices()[1]


def test_the_kit_runs_with_another_device_as_the_default_one(module, other_device):
    backend, device = other_device
    placed = module("gpu_parts").at_home(backend, device)

    for check in checks(placed, scenarios=["elementwise"]):
        check.run()

    assert placed.arrays.info(placed.arrays.make(np.ones(2), "float64")).device == device
    assert placed.arrays.devices()[0] == device
    assert sorted(placed.arrays.devices()) == sorted(backend.arrays.devices())
    assert backend.arrays.info(backend.arrays.make(np.ones(2), "float64")).device != device


def test_there_an_adapter_that_forgets_the_device_is_found(module, other_device):
    class Forgets(PlainArrays):
        def from_host(self, host, like):
            return self.xp.asarray(host, dtype=like.dtype, copy=True)

    backend, device = other_device
    forgets = replaced(backend, arrays=Forgets(backend.name, backend.xp))
    placed = module("gpu_parts").at_home(forgets, device)
    failed = 0
    for check in checks(placed, scenarios=["elementwise"]):
        try:
            check.run()
        except Exception:
            failed += 1

    assert failed > 0


def test_pytest_within_a_part_counts_and_names_what_failed(module, tmp_path):
    path = tmp_path / "test_it.py"
    path.write_text(
        "import pytest\ndef test_a(): pass\ndef test_b(): assert 1 == 2\n"
        "@pytest.mark.skip(reason='no GPU')\ndef test_c(): pass\n",
        encoding="utf-8",
    )
    absent = tmp_path / "test_absent.py"
    absent.write_text("import nowhere_to_be_found\n", encoding="utf-8")
    one, other = map(module("gpu_parts").tested, (path, absent))

    assert (one["passed"], one["failed"], one["skipped"], one["ok"]) == (1, 1, 1, False)
    assert "assert 1 == 2" in one["text"]
    assert one["skips"] == {"no GPU": 1}
    assert (other["ok"], other["skips"]) == (True, {"No module named 'nowhere_to_be_found'": 1})
