"""Full mode of sparse tables: columns that no output shares are compared together."""

import numpy as np
import pytest

from adjudge import ByHand, Verdict, examine
from adjudge.engine.arrays import PlainBackend
from adjudge.limits import limited
from adjudge.problem import colored_tangents
from adjudge.problem.probes import Probes
from adjudge.problem.space import Space

BACKEND = PlainBackend(np)
X = np.linspace(0.3, 2.0, 40)


def cosine(x, w):
    return w * np.cos(x)


@pytest.mark.parametrize("modes", [["R"], ["R", "F"]])
def test_an_elementwise_function_takes_a_few_evaluations(modes):
    rule = ByHand(np.sin, vjp=cosine, jvp=cosine)

    report = examine(rule, X, modes=modes, mode="full", seed=0)

    assert report.verdict is Verdict.PASS
    assert report.counts["comparisons"] == len(modes) * 40 * 40
    assert report.counts["evaluations"] < 20


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("error", [1.0, 1e-4, 1e-6])
def test_one_wrong_entry_fails_and_is_named(error, seed):
    def wrong(x, w):
        g = w * np.cos(x)
        g[17] *= 1 + error
        return g

    report = examine(ByHand(np.sin, vjp=wrong), X, mode="full", seed=seed)

    assert report.verdict is Verdict.FAIL
    assert report.counts["failed"] == 1
    assert report.entries[0].wrt == "inputs[0][17]"
    assert report.entries[0].of == "out[17]"


@pytest.mark.parametrize("seed", range(4))
def test_entries_that_are_missing_in_pairs_do_not_cancel(seed):
    def f(x):
        return np.sin(x) + np.where(np.arange(40) == 5, x[20] - x[30], 0.0)

    report = examine(ByHand(f, vjp=cosine), X, mode="full", seed=seed)

    assert report.verdict is Verdict.FAIL
    assert {entry.wrt for entry in report.entries} == {"inputs[0][20]", "inputs[0][30]"}


def test_a_spurious_entry_of_a_column_that_f_does_not_read_fails():
    def f(x):
        return np.sin(x) * (np.arange(40) != 7)

    report = examine(ByHand(f, vjp=cosine), X, mode="full", seed=0)

    assert report.verdict is Verdict.FAIL
    assert report.entries[0].wrt == "inputs[0][7]"


def test_no_output_depends_on_two_columns_of_a_group():
    random = np.random.default_rng(0)
    rows = (random.random((30, 40)) < 0.1) * random.normal(size=(30, 40))
    space, origin = Space.at(BACKEND, (X,), ("x",))
    probes = Probes(space, space, True, 0)
    seen = []

    for tangent, coordinates in colored_tangents(probes, origin, slice(0, 40), rows):
        assert np.max(np.count_nonzero(rows[:, coordinates], axis=1)) <= 1
        assert set(np.flatnonzero(tangent.vector)) == set(coordinates)
        seen += coordinates

    assert len(seen) == len(set(seen)) > 20


def test_a_dense_table_is_not_grouped():
    space, origin = Space.at(BACKEND, (X,), ("x",))

    assert not list(
        colored_tangents(Probes(space, space, True, 0), origin, slice(0, 40), np.ones((3, 40)))
    )


def test_a_table_in_several_blocks_is_grouped_block_by_block():
    right, wrong = (
        ByHand(np.sin, vjp=lambda x, w, c=c: w * np.cos(x) * (1 + c * (np.arange(40) == 33)))
        for c in (0, 1e-4)
    )

    with limited(block_bytes=8 * 40 * 12):
        reports = [examine(rule, X, mode="full", seed=0) for rule in (right, wrong)]

    assert [Verdict.PASS, Verdict.FAIL] == [report.verdict for report in reports]
    assert reports[0].counts["comparisons"] == reports[1].counts["comparisons"] == 40 * 40
    assert reports[1].entries[0].wrt == "inputs[0][33]"
    assert reports[0].counts["evaluations"] < 20
