"""Wrong derivatives of HIPS autograd and MLX: docs/findings.md says what the engines do."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from pages import ROOT, differences

import adjudge
from adjudge.engine import backend_named
from adjudge.findings import Verdict

PAGE = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
SECTIONS = {"autograd": "## HIPS autograd ", "mlx": "## MLX "}
NEIGHBOURS = {
    "autograd": lambda np, x: np.prod(x) + np.var(x, ddof=1) + np.sum(np.repeat(x, 2, axis=0)),
    "mlx": lambda mx, x: mx.cumprod(x) + mx.full_like(x, 2.0) * mx.remainder(x, 0.6),
}

pytestmark = [
    pytest.mark.parametrize(
        "engine", [pytest.param(name, marks=pytest.mark.backend(name)) for name in SECTIONS]
    ),
    pytest.mark.filterwarnings("ignore"),  # of divisions by zero, and of outputs without history
]


@pytest.fixture
def findings(monkeypatch):
    monkeypatch.syspath_prepend(Path(ROOT, "benchmarks"))
    return importlib.import_module("engine_findings")


def test_the_table_is_what_the_engine_says(findings, engine):
    section = PAGE.split(SECTIONS[engine])[1].split("\n## ")[0]
    version = backend_named(engine).environment.version
    if not section.startswith(f"{version}\n"):
        pytest.skip(f"the page has another version than {version}")
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| `")]

    now = [findings.row(engine, case) for case in findings.CASES[engine]()]

    assert len(rows) == len(now)
    shown = "\n".join(" ".join(map(str.strip, row)) for row in rows)
    assert differences(shown, "\n".join(" ".join(row) for row in now)) == []


def test_each_of_them_fails(findings, engine):
    arrays = backend_named(engine).arrays
    for case in findings.CASES[engine]():
        dtype = "complex64" if case.x.dtype.kind == "c" and engine == "mlx" else case.x.dtype.name
        x = arrays.make(case.x, dtype)

        report = adjudge.examine(case.f, x, modes=["R"], backend=engine, seed=1)

        assert report.verdict is Verdict.FAIL, case.name


def test_their_neighbours_pass(findings, engine):
    xp = importlib.import_module({"autograd": "autograd.numpy", "mlx": "mlx.core"}[engine])
    x = backend_named(engine).arrays.make(np.array([0.7, 1.9, 1.3]), "float64")

    assert adjudge.gradcheck(lambda x: NEIGHBOURS[engine](xp, x), x, backend=engine, seed=1)
