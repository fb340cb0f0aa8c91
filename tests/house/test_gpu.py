"""benchmarks/gpu.py: run on the CPU, and its file and page of a run that is made up."""

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


# ---------------------------------------------------------------- the file and the page


def test_the_page_is_that_of_the_last_run(module):
    run = json.loads((ROOT / "benchmarks" / "data" / "gpu.json").read_text(encoding="utf-8"))

    assert "\ngpu\n" in (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert module("gpu").problems(run) == []
    assert module("gpu").page(run) == PAGE
    assert module("gpu").COMMAND in PAGE


@pytest.fixture
def made(module):
    """A file as a run on a GPU would make it; its numbers are made up."""
    large = {
        "name": "10000000 float64", "ok": True, "engine": "cupy", "device": "cuda:0",
        "n": 10_000_000, "dtype": "float64", "own": 4.2e-4, "check": 2.1, "multiple": 5000.0,
        "verdict": "PASS", "evaluations": 20, "vjps": 5, "array_bytes": 80_000_000,
        "host_peak": 800_000_000, "device_peak": None,
    }  # fmt: skip
    kit = [
        {"name": "cupy: names", "ok": True, "comparisons": 3},
        {"name": "cupy: arrays", "ok": False, "text": "round trip of -0.0"},
    ]
    tests = [
        {"name": "x.py", "ok": True, "passed": 7, "failed": 0, "skipped": 2, "skips": {"no x": 2}}
    ]

    def part(name, engine, rows, status="ran", reason=""):
        return {
            "name": name, "engine": engine, "device": "cuda:0", "status": status, "reason": reason,
            "seconds": 3.0, "on": {"device": "cuda:0"} if rows else {}, "errors": [],
            "summary": module("gpu").summary(name, rows) if rows else {},
        }  # fmt: skip

    return {
        "date": "2026-03-04T05:06:07+00:00",
        "dry_run": False,
        "seconds": 600.0,
        "commit": "0123456789ab (changed)",
        "machine": {
            "gpu": "NVIDIA H100 PCIe", "driver": "580.95", "cuda": "13.0", "memory": "81559 MiB",
            "python": "3.12.1",
        },
        "versions": {"torch": "2.11.0+cu130"},
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
    return {"name": name, "ok": True, "rows": rows}


def test_the_page_of_a_run_has_its_device_its_tables_and_all_that_failed(module, made):
    page = module("gpu").page(made)

    assert module("gpu").problems(made) == []
    assert "has not run" not in page
    assert page.endswith(PAGE.partition("## What it runs")[2])
    for fact in (
        "2026-03-04", "NVIDIA H100 PCIe", "driver 580.95", "CUDA 13.0", "`0123456789ab (changed)`",
        "torch 2.11.0+cu130", "| 10000000 | float64 | 0.42 |", "round trip of -0.0",
        "not run: 20 minutes were over", "| sin float32 | ordinary | right | adjudge | FAIL |",
        "| cos4 float64 | ordinary | 0.01 | adjudge | PASS |", "| 3 of 4 |", "no x",
    ):  # fmt: skip
        assert fact in page, fact


def test_false_alarms_and_planted_errors_are_counted(module):
    found = module("gpu").summary("torch operators", [operator(k) for k in range(5)])

    assert found["false_alarms"] == 1
    assert "| ordinary | adjudge | 1 | 0 | 1 | 0 | 0 |" in found["tables"]  # float32
    assert "| ordinary | adjudge | 4 | 4 | 0 | 0 | 0 |" in found["tables"]  # float64
    assert "### What adjudge does not pass as it is: 1\n" in found["tables"]
    assert "### Planted errors that adjudge does not reject: 1\n" in found["tables"]


TAMPERED = {
    "a dry run": lambda run: run.update(dry_run=True),
    "no driver": lambda run: run["machine"].update(driver=None),
    "it was on cpu": lambda run: run["parts"][0]["on"].update(device="cpu"),
    "10000000 float64 was on cpu": lambda run: run["parts"][1]["summary"]["rows"][0].update(
        device="cpu"
    ),
    "no part was run": lambda run: run.update(parts=run["parts"][-1:]),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_file_that_is_none_of_a_run_on_a_gpu_is_refused(module, made, what, tmp_path, capsys):
    TAMPERED[what](made)
    path = tmp_path / "made.json"
    path.write_text(json.dumps(made), encoding="utf-8")

    assert module("gpu").main(["--page", str(path)]) == 2

    said = capsys.readouterr()
    assert what in said.err
    assert said.out == ""


# ---------------------------------------------------------------- the dry run


def test_the_dry_run_does_every_part_and_says_why_others_are_absent(tmp_path):
    path = tmp_path / "dry.json"
    done = run(*FEWER_ENGINES, "--dry-run", "--parts", "large", "--out", path, "--minutes", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    parts = json.loads(path.read_text(encoding="utf-8"))["parts"]

    assert {p["status"] for p in parts} <= {"ran", "absent"}
    assert [p for p in parts if p["status"] == "absent" and not p["reason"]] == []
    assert [p["summary"]["failures"] for p in parts if p["summary"].get("failed")] == []
    rows = next(p["summary"]["rows"] for p in parts if p["engine"] == "numpy")
    assert {row["verdict"] for row in rows} == {"PASS"}
    assert all(row["own"] > 0 and row["multiple"] > 0 for row in rows)


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
    smi.write_text("#!/bin/sh\necho 'A GPU, 580.1, 1 MiB'\necho 'CUDA Version: 13.0'\n")
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

    assert module("gpu").main(["--dry-run", "--minutes", "0", "--out", str(path)]) == 0

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


ON = {"on": {"device": "cuda:0"}}


def begun(name):
    return {"starting": name}


def done(name, ok=True):
    return {"name": name, "ok": ok, "text": "" if ok else "wrong"}


A, B, C = ([begun(name), done(name)] for name in "abc")
DIED = {
    # what each process writes, and its exit code; then the status, the reason, the items that
    # failed, and how many items each process was told to pass over
    "the next process goes on behind a crash": (
        [([ON, *A, begun("b")], -11), ([ON, *C], 0)],
        "ran", "", {"b": "died with exit code -11"}, [0, 2],
    ),
    "a new process has a lost device back": (
        [([ON, begun("a"), done("a", ok=False)], 3), ([ON, *B], 0)],
        "ran", "", {"a": "wrong"}, [0, 1],
    ),
    "a process that begins nothing breaks the part": (
        [([ON, *A, begun("b")], -6), ([], 1)],
        "broken", "it began nothing more: it died with exit code 1",
        {"b": "died with exit code -6"}, [0, 2],
    ),
    "crashes without end break the part": (
        [([ON, begun("a")], -11)] * 6,
        "broken", "its process died 6 times", {"a": "died with exit code -11"}, [0, 1, 2, 3, 4, 5],
    ),
    "a process that was stopped is said to be": (
        [([ON, *A, begun("b")], None)],
        "stopped", "60 s were over at b", {"b": "was stopped: no time left"}, [0],
    ),
    "what was not begun in time is named": (
        [([ON, *A, {"stopped": "b"}], 0)], "stopped", "60 s were over before b", {}, [0],
    ),
    "a device that is absent is no run": (
        [([{"absent": "no driver"}], 0)], "absent", "no driver", {}, [0],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", DIED)
def test_a_part_whose_processes_end(what, module, monkeypatch):
    scripts, status, reason, failures, skipped = DIED[what]
    gpu, told, waiting = module("gpu"), [], list(scripts)

    def process(part, device, small, skip, until, env):
        told.append(skip)
        written, code = waiting.pop(0)
        return code, written, "said"

    monkeypatch.setattr(gpu, "process", process)
    part = gpu.Part("conformance", "json", 60)  # an engine that can be imported
    found = gpu.run_part(part, "cuda:0", small=False, seconds=60, env={})

    assert (found["status"], found["reason"], told) == (status, reason, skipped)
    assert {f["name"]: f["text"] for f in found["summary"].get("failures", ())} == failures
    assert waiting == []


# ---------------------------------------------------------------- a part


def lines_of(module, items, alive, until=float("inf"), skip=0):
    gpu = module("gpu")

    class Place(gpu.Place):
        def alive(self):
            return alive

    lines = io.StringIO()
    code = gpu.write(iter(items), Place("numpy", "cpu", True), skip, until, lines)
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

    assert code == module("gpu").LOST
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
    placed = module("gpu").at_home(backend, device)

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
    placed = module("gpu").at_home(forgets, device)
    failed = 0
    for check in checks(placed, scenarios=["elementwise"]):
        try:
            check.run()
        except Exception:
            failed += 1

    assert failed > 0


def test_pytest_within_a_part_counts_and_names_what_failed(module, tmp_path, monkeypatch):
    monkeypatch.delenv("ADJUDGE_REQUIRE", raising=False)  # for which each engine is imported
    path = tmp_path / "test_it.py"
    path.write_text(
        "import pytest\ndef test_a(): pass\ndef test_b(): assert 1 == 2\n"
        "@pytest.mark.skip(reason='no GPU')\ndef test_c(): pass\n",
        encoding="utf-8",
    )
    absent = tmp_path / "test_absent.py"
    absent.write_text("import nowhere_to_be_found\n", encoding="utf-8")
    one, other = map(module("gpu").tested, (path, absent))

    assert (one["passed"], one["failed"], one["skipped"], one["ok"]) == (1, 1, 1, False)
    assert "assert 1 == 2" in one["text"]
    assert one["skips"] == {"no GPU": 1}
    assert (other["ok"], other["skips"]) == (True, {"No module named 'nowhere_to_be_found'": 1})
