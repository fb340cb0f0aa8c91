"""The pictures of a check that did not pass, and the data behind them."""

import html.parser
import re

import numpy as np
import pytest
from scenarios import over_seeds

from adjudge import ByHand, Verdict, examine
from adjudge.report.pictures import LEVELS, error_by_step, heat_map, pictures

X = np.linspace(0.3, 1.5, 5)


def scan(x):
    return np.cumsum(np.sin(x)) * x


def scan_vjp(factor=1.0):
    """The vjp of `scan`, one entry of which has this factor."""

    def vjp(x, w):
        jacobian = np.tril(np.outer(x, np.cos(x))) + np.diag(np.cumsum(np.sin(x)))
        jacobian[3, 1] *= factor
        return w @ jacobian

    return ByHand(scan, vjp=vjp)


def wide(size, wrong=None):
    """`x |-> A x` with a wrong entry."""
    matrix = np.random.default_rng(0).uniform(0.5, 1.5, (size, size))
    other = matrix.copy()
    if wrong is not None:
        other[wrong] *= 1.1
    return ByHand(lambda x: np.sin(matrix @ x), vjp=lambda x, w: (w * np.cos(matrix @ x)) @ other)


def errors_of(report):
    (pair,) = report.pairs
    return np.array(pair.errors, float)


@over_seeds(10)
def test_the_errors_of_all_entries_show_which_is_wrong(seeds):
    for seed in seeds:
        errors = errors_of(examine(scan_vjp(1.02), X, mode="full", seed=seed))

        assert errors.shape == (5, 5)
        assert errors[3, 1] == pytest.approx(0.02, rel=0.1)
        assert np.sort(errors.ravel())[-2] < 1e-6
        assert not examine(scan_vjp(), X, mode="full", seed=seed).pairs


def test_a_large_jacobian_is_told_by_blocks():
    report = examine(wide(40, (33, 7)), np.ones(40) / 40, mode="full", seed=1)

    errors = errors_of(report)
    assert errors.shape == (14, 14)  # blocks of three
    assert np.unravel_index(np.argmax(errors), errors.shape) == (11, 2)
    assert np.count_nonzero(errors > 1e-6) == 1


def test_columns_that_agree_together_have_no_error_of_their_own():
    def band(x):
        return np.sin(x) + 0.5 * np.r_[x[1:], 0] ** 2

    def band_vjp(x, w):
        g = w * np.cos(x) + np.r_[0, w[:-1]] * x
        g[2] *= 1.5
        return g

    report = examine(ByHand(band, vjp=band_vjp), np.linspace(0.3, 1.5, 9), mode="full", seed=1)

    errors = errors_of(report)
    assert errors[2, 2] == pytest.approx(0.5)
    assert np.isnan(errors).any(0).tolist() == [k % 2 == 1 for k in range(9)]


@over_seeds(10)
@pytest.mark.parametrize("mode", ["full", "projected"])
def test_the_worst_entry_has_its_difference_quotients_by_step(mode, seeds):
    for seed in seeds:
        report = examine(scan_vjp(1.02), X, mode=mode, seed=seed)
        steps, slopes = np.array(report.worst.steps).T

        assert len(steps) >= 3
        assert np.all(np.diff(steps) < 0)
        assert np.allclose(slopes, report.worst.reference, rtol=1e-5)
        assert not np.any(np.isclose(slopes, report.worst.automatic, rtol=1e-3))
        told = [entry for entry in report.to_dict()["entries"] if "steps" in entry]
        assert [entry["of"] for entry in told] == [report.worst.of]
        assert told[0]["steps"] == [[h, slope] for h, slope in report.worst.steps]


def test_the_steps_take_no_evaluation():
    made = []

    def counted(x):
        made.append(x)
        return scan(x)

    report = examine(ByHand(counted, vjp=scan_vjp(1.02).vjp), X, mode="full", seed=1)
    before = len(made)

    report.to_dict()

    assert len(made) == before == report.counts["evaluations"]


def levels(svg):
    return [
        float(opacity) for opacity in re.findall(r'class="heat"[^>]*fill-opacity="([^"]*)"', svg)
    ]


def test_a_heat_map_is_darker_where_errors_are_larger():
    assert levels(heat_map([[0.0, 1e-9]])) == []
    assert levels(heat_map([[1e-7, 2.0], [1e-7, 2.0]])) == [1 / len(LEVELS), 1.0]
    assert levels(heat_map([["inf"]])) == [1.0]
    assert 'class="unknown"' in heat_map([[None, 0.0]])
    assert 'class="unknown"' not in heat_map([[0.0]])
    assert "M16 16h32v16h-32z" in heat_map([[0, 0, 0], [0, 1, 1]])


def entry(steps, automatic=2.0):
    return {"of": "f", "wrt": "x", "reference": 1.0, "automatic": automatic, "steps": steps}


def test_the_line_of_the_automatic_value_is_above_the_points():
    svg = error_by_step(entry([[1e-3, 1.01], [1e-4, 1.001], [1e-5, 1.0001]]))

    points = [float(y) for y in re.findall(r"M[\d.]+ ([\d.]+)h0", svg)]
    (line,) = (float(y) for y in re.findall(r'class="automatic"[^>]*d="M46 ([\d.]+)H340"', svg))
    assert len(points) == 3
    assert line < min(points)  # upwards on the screen
    assert points == sorted(points)
    assert "off by 1<" in svg


def test_what_cannot_be_drawn_is_left_out():
    assert error_by_step(entry([])) == ""
    assert error_by_step(entry([[1e-3, 1.0], [1e-4, "nan"], [1e-5, 1.1]])) == ""
    assert error_by_step(entry([[h, 1.0] for h in (1e-3, 1e-4, 1e-5)], automatic=1.0)) == ""
    assert "automatic" not in error_by_step(
        entry([[h, 1 + h] for h in (1e-3, 1e-4, 1e-5)], automatic="nan")
    )


class Tags(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        assert not any(name.startswith("on") or name == "style" for name, _ in attrs)


def test_names_are_texts_and_nothing_else():
    hostile = "<script>alert(1)</script>"
    pair = {"output": hostile, "input": hostile, "mode": hostile, "way": "", "relative": "inf"}
    worst = entry([[1e-3, 1.01], [1e-4, 1.001], [1e-5, 1.0001]]) | {"of": hostile}

    drawn = pictures(worst, [(hostile, pair | {"errors": [[1.0]]})])

    allowed = {"h2", "div", "figure", "svg", "path", "text", "rect", "figcaption", "bdi"}
    assert Tags(drawn).tags == allowed


def test_a_notebook_shows_the_pictures_of_what_is_wrong():
    wrong, right = examine(scan_vjp(1.02), X, mode="full"), examine(scan_vjp(), X, mode="full")

    assert [wrong.verdict, right.verdict] == [Verdict.FAIL, Verdict.PASS]
    assert wrong._repr_html_().count("<svg") == 3
    assert "<svg" not in right._repr_html_()
    assert wrong._repr_html_().startswith("<pre>FAIL ")
