"""Wrong derivatives of HIPS autograd, MLX and Lucid: docs/findings.md says what the engines do."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from pages import ROOT, differences

import adjudge
from adjudge.engine import backend_named
from adjudge.findings import Verdict

PAGE = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
SECTIONS = {"autograd": "## HIPS autograd ", "mlx": "## MLX ", "lucid": "## Lucid "}
SQUARE = np.array([[2.1, 0.3, -0.4], [0.5, 1.7, 0.2], [-0.3, 0.6, 1.4]])
NEIGHBOURS = {
    "autograd": lambda anp, x: anp.prod(x) + anp.var(x, ddof=1) + anp.sum(anp.repeat(x, 2, axis=0)),
    "mlx": lambda mx, x: mx.cumprod(x[0]) + mx.full_like(x[0], 2.0) * mx.remainder(x[0], 0.6),
    "lucid": lambda lucid, x: (
        lucid.sin(x) + x.mT + lucid.cumprod(x[0]) + lucid.stack((x, x + 1))[0],
        *(x[np.array([2, 0])], lucid.linalg.svd(x)[1], lucid.linalg.norm(x, axis=1)),
    ),
}

pytestmark = [
    pytest.mark.parametrize(
        "engine", [pytest.param(name, marks=pytest.mark.backend(name)) for name in SECTIONS]
    ),
    pytest.mark.filterwarnings("ignore"),  # of divisions by zero, and of outputs without history
]


@pytest.fixture
def findings(monkeypatch):
    pytest.importorskip("mpmath")
    monkeypatch.syspath_prepend(Path(ROOT, "benchmarks"))
    return importlib.import_module("findings")


def test_the_table_is_what_the_engine_says(findings, engine):
    section = PAGE.split(SECTIONS[engine])[1].split("\n## ")[0]
    version = backend_named(engine).environment.version
    if not section.startswith(f"{version}\n"):
        pytest.skip(f"the page has another version than {version}")
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| `")]

    now = [findings.row(one)[:5] for one in findings.findings(engine)]

    assert len(rows) == len(now)
    shown = "\n".join(" ".join(map(str.strip, row[:5])) for row in rows)
    assert differences(shown, "\n".join(" ".join(row) for row in now)) == []


def test_each_of_them_fails(findings, engine):
    arrays = backend_named(engine).arrays
    for case in findings.findings(engine):
        kinds = ["complex64" if a.dtype.kind == "c" and engine == "mlx" else a.dtype.name
                 for a in findings.points(case)]  # fmt: skip
        x = tuple(map(arrays.make, findings.points(case), kinds))

        report = adjudge.examine(case.f, x, modes=["R"], backend=engine, seed=1)

        assert report.verdict is Verdict.FAIL, case.name


def test_their_neighbours_pass(findings, engine):
    modules = {"autograd": "autograd.numpy", "mlx": "mlx.core", "lucid": "lucid"}
    x = backend_named(engine).arrays.make(SQUARE, "float64")
    xp = importlib.import_module(modules[engine])

    assert adjudge.gradcheck(lambda x: NEIGHBOURS[engine](xp, x), x, backend=engine, seed=1)
