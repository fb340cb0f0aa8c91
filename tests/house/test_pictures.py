"""The pictures in docs are what their script measures, and show what the pages say they show."""

import importlib.util
import math
import re
import sys
from pathlib import Path

import pytest

from adjudge.jacobian.comparison import Tolerance

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"


@pytest.fixture(scope="module")
def script():
    path = FOLDER / "error_against_step.py"
    spec = importlib.util.spec_from_file_location("error_against_step", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def figures(script):
    return {figure.name: figure for figure in script.figures()}


def points_of(svg):
    """By series, the `(step, error)` that a picture holds."""
    groups = re.findall(r'<g data-series="(.*?)">(.*?)</g>', svg, re.DOTALL)
    point = re.compile(r'data-step="(.*?)" data-error="(.*?)"')
    return {name: [(float(h), float(e)) for h, e in point.findall(g)] for name, g in groups}


def series(figure, word):
    """The points of those series whose names begin with that word."""
    return [point for s in figure.series if s.name.startswith(word) for point in s.points]


@pytest.mark.parametrize("name", ["smooth", "noisy", "kinked"])
def test_a_committed_picture_has_the_points_that_are_measured_now(name, script, figures):
    committed = points_of((FOLDER / f"{name}.svg").read_text(encoding="utf-8"))

    now = points_of(script.svg(figures[name]))

    assert now.keys() == committed.keys()
    for which, points in now.items():
        assert [h for h, _ in points] == [h for h, _ in committed[which]]
        if "ladder" in which:
            continue  # its error bars are judged below
        # sines and exponentials are rounded differently by every library, by a unit or two
        eps = 2.0**-23 if "float32" in which or name == "noisy" else 2.0**-52
        off = [
            (h, old, new)
            for (h, new), (_, old) in zip(points, committed[which], strict=True)
            if abs(new - old) > 0.01 * old + 4 * eps / h
        ]
        assert off == []


def test_the_true_error_lies_within_the_bar_of_the_ladder_where_f_is_smooth(figures):
    points = series(figures["smooth"], "ladder")

    assert len(points) > 20
    assert [p for p in points if not p.error <= p.bar] == []


def test_of_a_noisy_function_it_does_so_only_where_the_noise_is_known(figures):
    known = series(figures["noisy"], "ladder that knows")
    assumed = series(figures["noisy"], "ladder that assumes")

    assert len(known) > 10
    assert [p for p in known if not p.error <= p.bar] == []
    assert any(p.error > 100 * p.bar for p in assumed)


def test_a_kink_misleads_the_steps_that_reach_it_and_no_ladder_that_ends_below(figures):
    reach = figures["kinked"].marks["distance of the kink"]
    plain = series(figures["kinked"], "central")
    ladders = [p for p in series(figures["kinked"], "ladder") if p.step <= reach]

    assert all(p.error > 0.05 for p in plain if p.step > reach)
    assert all(p.error < 1e-3 for p in plain if p.step <= reach)
    assert ladders
    assert [p for p in ladders if not p.error <= p.bar] == []


@pytest.mark.parametrize(("dtype", "eps"), [("float64", 2.0**-52), ("float32", 2.0**-23)])
def test_at_the_step_taken_first_the_bar_is_finer_than_rtol(dtype, eps, script, figures):
    first = script.relative_step(eps)

    point = min(
        series(figures["smooth"], f"ladder, {dtype}"),
        key=lambda p: abs(math.log2(p.step / first)),
    )

    assert point.bar < Tolerance(eps).relative


def test_the_script_writes_its_pictures(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "__file__", str(tmp_path / "error_against_step.py"))

    script.main()

    written = {path.name for path in tmp_path.iterdir()}
    assert written == {path.name for path in FOLDER.glob("*.svg")}
    assert all(len(points_of(p.read_text(encoding="utf-8"))) >= 3 for p in tmp_path.iterdir())
