"""The sessions of nox, as `nox -l --json` has them: our own, and those of the page about them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages import HOW_TO, RUN_HERE

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "nox-matrix.md").read_text(encoding="utf-8")
WORKFLOW = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")

PROJECT = """
[project]
name = "example"
version = "1"
dependencies = ["numpy>=2.0"]
optional-dependencies = { torch = ["torch>=2.6"], jax = ["jax>=0.5"], test = ["pytest>=8"] }
"""


def nox(folder, *arguments, **environment):
    pytest.importorskip("nox")
    return subprocess.run(
        [sys.executable, "-m", "nox", *arguments],
        cwd=folder,
        env={**{k: v for k, v in os.environ.items() if not k.startswith("NOX")}, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def sessions(folder, *selected):
    """What a run would run."""
    done = nox(folder, "-l", "--json", *selected)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def example(tmp_path):
    """A project with the noxfile of the page."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "noxfile.py").write_text(code, encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    return tmp_path


def names(found):
    return [entry["session"] for entry in found]


def test_the_page_has_the_sessions_that_it_names(example):
    found = names(sessions(example))

    assert found[:2] == ["tests-3.11(torch)", "tests-3.11(jax)"]
    assert {"lowest(jax)", "cross"} < set(found)
    assert names(sessions(example, "-t", "gpu")) == ["gpu(torch)", "gpu(jax)"]
    assert set(re.findall(r'nox -s "(tests[^"]+)"', PAGE)) < set(found)


def test_the_page_runs_no_device_by_default(example):
    listed = nox(example, "-l").stdout

    assert "* tests-3.12(jax)" in listed
    assert "- gpu(torch)" in listed


def test_a_device_that_is_absent_is_skipped_with_its_reason_or_an_error(example):
    reason = "no NVIDIA driver (nvidia-smi not found)"
    without = {"PATH": ""}
    arguments = ("-s", "gpu(torch)", "--no-venv")

    skipped = nox(example, *arguments, **without)
    failed = nox(example, *arguments, **without, REQUIRE_GPU="1")

    assert skipped.returncode == 0
    assert reason in skipped.stderr
    assert failed.returncode != 0
    assert reason in failed.stderr


def test_our_own_matrix_has_every_python_and_engine():
    found = sessions(ROOT)

    tests = [one for one in found if one["name"].startswith("tests-")]
    cells = {(one["python"], *one["call_spec"].values()) for one in tests}
    locked = {(python, engine) for python, engine, versions in cells if versions == "locked"}
    assert {(p, e) for p in ("3.11", "3.12", "3.13") for e in ("numpy", "jax")} < locked
    assert ("3.11", "torch") in locked
    assert {(e, v) for p, e, v in cells if v == "lowest"} == {
        (e, "lowest") for e in ("numpy", "torch", "jax")
    }
    others = {"cross", "lucid", "mlx", "tensorflow", "tinygrad", "wheel", "lint", "types", "docs"}
    assert others < set(names(found))


def test_libraries_and_devices_are_no_default():
    listed = nox(ROOT, "-l").stdout

    assert "* tests-3.11(torch, locked)" in listed
    assert "- integration" in listed
    assert "- keras " in listed
    assert "- long " in listed
    assert "- gpu " in listed
    assert "* gpu" not in listed


def test_the_page_of_an_engine_is_run_where_that_is_installed():
    sessions = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    needed = [
        engine
        for engine in ("lucid", "mlx", "tensorflow", "tinygrad")
        for page in RUN_HERE
        if re.search(rf"^(import|from) {engine}\b", (HOW_TO / f"{page}.md").read_text(), re.M)
    ]

    assert needed == ["mlx", "tinygrad"]
    for engine in needed:
        assert f'add_engine("{engine}", page=True' in sessions


@pytest.fixture
def driver(tmp_path):
    """An nvidia-smi that says which CUDA its driver supports, before everything on the path."""

    def supporting(version):
        smi = tmp_path / "nvidia-smi"
        smi.write_text(f"#!/bin/sh\necho '| Driver Version: 580.1   CUDA Version: {version}  |'\n")
        smi.chmod(0o755)
        return {"PATH": f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin"}

    return supporting


def test_our_own_gpu_session_is_skipped_without_a_driver_or_an_error():
    arguments, without = ("-s", "gpu", "--no-venv"), {"PATH": ""}

    skipped = nox(ROOT, *arguments, **without)
    failed = nox(ROOT, *arguments, **without, ADJUDGE_REQUIRE_GPU="1")

    assert skipped.returncode == 0
    assert "no NVIDIA driver" in skipped.stderr
    assert failed.returncode != 0
    assert "no NVIDIA driver" in failed.stderr


@pytest.mark.skipif(os.name == "nt", reason="the nvidia-smi of this test is a shell script")
@pytest.mark.parametrize(
    ("version", "torch", "others"),
    [
        ("13.1", "whl/cu130", "cupy-cuda13x>=13.3 jax[cuda13]"),
        ("12.8", "whl/cu128", "cupy-cuda12x>=13.3 jax[cuda12]"),
        ("12.7", "whl/cu126", "cupy-cuda12x>=13.3 jax[cuda12]"),
        ("12.2", "whl/cu126", "cupy-cuda12x>=13.3 jax[cuda12]"),
    ],
)
def test_the_gpu_session_takes_the_builds_that_fit_the_driver(driver, version, torch, others):
    # the module, since a run would install them
    code = (
        "import noxfile; cuda = noxfile.cuda_of_driver(); found = noxfile.cuda_builds(cuda);"
        "print(cuda, *found['torch'], *found['others'])"
    )
    pytest.importorskip("nox")
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **driver(version)},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 0, done.stderr
    major, minor = version.split(".")
    assert done.stdout.startswith(f"({major}, {minor}) ")
    assert torch in done.stdout
    assert others in done.stdout


@pytest.mark.parametrize("text", [PAGE, WORKFLOW], ids=["page", "workflow"])
def test_a_workflow_takes_its_matrix_from_nox_and_pins_what_it_uses(text):
    assert "nox -l --json" in text
    assert "fromJSON(needs.list.outputs.sessions)" in text
    assert "permissions:\n  contents: read\n" in text
    assert text.count("timeout-minutes:") == text.count("runs-on:") >= 2
    used = re.findall(r"uses: (\S+)", text)
    assert [one for one in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", one)] == []
