"""The comparisons by pair of an output and an input, as data of the report."""

import json

import numpy as np
import pytest
from scenarios import over_seeds

import adjudge
from adjudge import ByHand, Verdict
from adjudge.jacobian import comparison

RANDOM = np.random.default_rng(0)
INPUTS = (RANDOM.normal(size=3), RANDOM.normal(size=(2, 3)), RANDOM.normal(size=3))


def forward(x, a, b):
    return np.sin(x) * b, (a * x).sum(1), np.exp(a)


def rule(wrong=None, factor=1.5, entry=...):
    """The derivatives by hand, in both modes; those of one pair are off by a factor."""

    def off(pair, derivative):
        if pair != wrong:
            return derivative
        derivative = np.array(derivative)
        derivative[entry] *= factor
        return derivative

    def vjp(x, a, b, w):
        w0, w1, w2 = w
        return (
            off((0, 0), w0 * b * np.cos(x)) + off((1, 0), w1 @ a),
            off((1, 1), w1[:, None] * x) + off((2, 1), w2 * np.exp(a)),
            off((0, 2), w0 * np.sin(x)),
        )

    def jvp(x, a, b, t, s, r):
        return (
            off((0, 0), t * b * np.cos(x)) + off((0, 2), r * np.sin(x)),
            off((1, 0), a @ t) + off((1, 1), s @ x),
            off((2, 1), s * np.exp(a)),
        )

    return ByHand(forward, vjp=vjp, jvp=jvp)


def verdicts(report, mode):
    """The verdicts of a mode as a table of outputs by inputs."""
    found = [pair.verdict for pair in report.pairs if pair.mode == mode]
    return [found[:3], found[3:6], found[6:]]


def expected(wrong):
    rows = [[Verdict.PASS] * 3 for _ in range(3)]
    rows[wrong[0]][wrong[1]] = Verdict.FAIL
    return rows


@over_seeds(10)
@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("wrong", [(0, 0), (2, 1)])
def test_only_the_wrong_pair_is_wrong(mode, wrong, seeds):
    for seed in seeds:
        report = adjudge.examine(rule(wrong), INPUTS, modes=["R", "F"], mode=mode, seed=seed)

        assert verdicts(report, "R") == verdicts(report, "F") == expected(wrong)


@over_seeds(10)
@pytest.mark.parametrize("mode", ["full", "projected"])
def test_a_right_check_has_none(mode, seeds):
    for seed in seeds:
        report = adjudge.examine(rule(), INPUTS, modes=["R", "F"], mode=mode, seed=seed)

        assert report.verdict is Verdict.PASS
        assert report.pairs == ()


def test_a_right_check_sums_nothing_up(monkeypatch):
    monkeypatch.delattr(comparison.Pairs, "sum_up")

    assert adjudge.examine(rule(), INPUTS, modes=["R", "F"], seed=0)
    with pytest.raises(AttributeError):
        adjudge.examine(rule((0, 0)), INPUTS, modes=["R", "F"], seed=0)


def test_one_pair_alone_is_no_table():
    wrong = ByHand(np.sin, vjp=lambda x, w: 2 * w * np.cos(x))

    assert adjudge.examine(wrong, np.ones(3), seed=0).pairs == ()


def test_the_errors_of_a_pair_are_those_of_its_block():
    report = adjudge.examine(
        rule((0, 0), 1.5, entry=1), INPUTS, mode="full", modes=["R"], thorough=False, seed=0
    )
    (wrong, *right) = report.pairs
    x, _, b = INPUTS
    block = b * np.cos(x)

    assert (wrong.output, wrong.input, wrong.mode) == ("out[0]", "inputs[0]", "R")
    assert wrong.relative == pytest.approx(0.5, rel=1e-6)
    assert wrong.norm == pytest.approx(abs(block[1]) / 2 / np.linalg.norm(block), rel=1e-6)
    assert wrong.compared == 9
    assert all(pair.relative < 1e-8 and pair.norm < 1e-8 for pair in right)


@over_seeds(10)
def test_an_entry_behind_a_projection_that_agrees_makes_its_pair_wrong(seeds):
    """One entry of 1000 that is off by a part in 10^6 stays within the tolerance of the whole."""
    inputs = (np.linspace(0.5, 2.0, 1000), np.linspace(0.5, 1.0, 7))

    def vjp(x, y, w):
        g = 3 * x**2 * w[0]
        g[700] *= 1 + 1e-6
        return g, 2 * y * w[1]

    for seed in seeds:
        report = adjudge.examine(
            ByHand(lambda x, y: (x**3, y**2), vjp=vjp), inputs, seed=seed, mode="projected"
        )
        found = {(pair.output, pair.input): pair for pair in report.pairs}

        assert report.verdict is Verdict.FAIL
        assert found["out[0]", "inputs[0]"].verdict is Verdict.FAIL
        assert found["out[0]", "inputs[0]"].relative == pytest.approx(1e-6, rel=1e-2)
        assert found["out[1]", "inputs[1]"].verdict is Verdict.PASS


def test_numbers_are_summed_up_on_the_way_as_well(monkeypatch):
    whole = adjudge.examine(rule((1, 0)), INPUTS, modes=["R", "F"], seed=0).pairs
    monkeypatch.setattr(comparison, "MOST_KEPT", 0)

    assert adjudge.examine(rule((1, 0)), INPUTS, modes=["R", "F"], seed=0).pairs == whole


def test_of_many_pairs_the_right_ones_are_left_out(monkeypatch):
    monkeypatch.setattr(comparison, "MOST_PAIRS", 4)

    (one,) = adjudge.examine(rule((0, 2)), INPUTS, modes=["R"], seed=0).pairs

    assert (one.output, one.input) == ("out[0]", "inputs[2]")


def test_what_is_open_is_not_wrong():
    def versine(x, y):
        return (1 - np.cos(x)) / x**2, y**2

    def vjp(x, y, w):
        return w[0] * (np.sin(x) / x**2 - 2 * (1 - np.cos(x)) / x**3), 2 * y * w[1]

    report = adjudge.examine(
        ByHand(versine, vjp=vjp), (np.array([0.001, 0.002]), np.ones(2)), seed=0
    )

    assert report.verdict is Verdict.INCONCLUSIVE
    assert [pair.verdict for pair in report.pairs] == [
        Verdict.INCONCLUSIVE, Verdict.PASS, Verdict.PASS, Verdict.PASS
    ]  # fmt: skip


def test_what_is_open_is_not_wrong_beside_what_is():
    def versine(x, y):
        return (1 - np.cos(x)) / x**2, y**2

    def vjp(x, y, w):
        return w[0] * (np.sin(x) / x**2 - 2 * (1 - np.cos(x)) / x**3), 3 * y * w[1]

    inputs = np.array([0.001, 0.002]), np.ones(2)
    report = adjudge.examine(ByHand(versine, vjp=vjp), inputs, seed=0, mode="full")

    assert [pair.verdict for pair in report.pairs] == [
        Verdict.INCONCLUSIVE, Verdict.PASS, Verdict.PASS, Verdict.FAIL
    ]  # fmt: skip


def test_what_was_not_compared_is_not_right():
    """The second output is NaN at x and beside it, and is left out of every comparison."""

    def f(x, y):
        return x * y, np.full_like(x, np.nan)

    def vjp(x, y, w):
        return 2 * w[0] * y, w[0] * x

    report = adjudge.examine(ByHand(f, vjp=vjp), (np.ones(2), np.full(2, 3.0)), seed=0)

    assert [pair.verdict for pair in report.pairs] == [Verdict.FAIL, Verdict.PASS, None, None]
    assert [pair.compared for pair in report.pairs] == [1, 1, 0, 0]


def test_the_derivative_with_the_value_zero_has_no_relative_error():
    report = adjudge.examine(rule((0, 0)), INPUTS, mode="full", seed=0)
    found = {(pair.output, pair.input): pair for pair in report.pairs}

    assert found["out[1]", "inputs[2]"].relative == found["out[1]", "inputs[2]"].norm == 0


def test_pairs_are_plain_data_of_a_report():
    report = adjudge.examine(rule((0, 0)), INPUTS, modes=["R"], mode="full", seed=0)
    data = json.loads(json.dumps(report.to_dict()))

    assert len(data["pairs"]) == 9
    assert np.allclose(data["pairs"][0].pop("errors"), np.eye(3) / 2)
    assert data["pairs"][0] | {"relative": 0.5, "norm": 0.5} == {
        "mode": "R", "output": "out[0]", "input": "inputs[0]", "verdict": "FAIL", "compared": 9,
        "relative": 0.5, "norm": 0.5, "way": "",
    }  # fmt: skip
    assert data["pairs"][1]["verdict"] == "PASS"
    assert (data["entries"][0]["output"], data["entries"][0]["input"]) == ("out[0]", "inputs[0]")
