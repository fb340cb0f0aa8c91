"""The words of a report: the table of pairs, how far an entry is off, and where to look."""

from pathlib import Path

import numpy as np
import pytest
from scenarios import over_seeds

import adjudge
from adjudge import ByHand, Verdict
from adjudge.findings import Pair
from adjudge.report import text_of
from adjudge.report.likely import common_factor
from adjudge.report.report import tables_of_pairs

RANDOM = np.random.default_rng(0)
INPUTS = (RANDOM.normal(size=(6, 5)), RANDOM.normal(size=(5, 3)), RANDOM.normal(size=3))


def layer(x, w, b):
    return np.tanh(x @ w + b)


def rule(*factors):
    """The vjp of `layer`, with the gradient of each input times a factor."""

    def vjp(x, w, b, g):
        g = g * (1 - layer(x, w, b) ** 2)
        right = g @ w.T, x.T @ g, g.sum(axis=0)
        return tuple(factor * one for factor, one in zip(factors, right, strict=True))

    return ByHand(layer, vjp=vjp)


def table(report):
    """The lines of the table of pairs, as words."""
    lines = str(report).splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith("  R "))
    return [line.split() for line in lines[start : start + 4]]


@over_seeds(10)
@pytest.mark.parametrize("mode", ["full", "projected"])
def test_the_table_says_which_input_is_wrong(mode, seeds):
    for seed in seeds:
        report = adjudge.examine(rule(1, 1, 1.5), INPUTS, seed=seed, mode=mode)
        head, first, second, third = table(report)

        assert head == ["R", "out"]
        assert first[:2] == ["inputs[0]", "right"]
        assert second[:2] == ["inputs[1]", "right"]
        assert third == ["inputs[2]", "WRONG", "0.5,", "0.5"]


def test_the_table_is_explained_in_one_line():
    full, projected = (
        str(adjudge.examine(rule(1, 1, 1.5), INPUTS, seed=0, mode=mode))
        for mode in ("full", "projected")
    )

    assert full.count("of the whole pair)") == projected.count("of all along one random") == 1


def test_a_right_check_and_a_single_pair_have_no_table():
    right = adjudge.examine(rule(1, 1, 1), INPUTS, seed=0)
    alone = adjudge.examine(ByHand(np.sin, vjp=lambda x, w: w), np.ones(3), seed=0)

    assert "inputs[1]" not in str(right)
    assert "WRONG" not in str(right) + str(alone)


@over_seeds(10)
def test_of_several_wrong_inputs_the_first_is_named(seeds):
    """The second input is off by more, and would otherwise be the first."""
    for seed in seeds:
        for mode in ("full", "projected"):
            report = adjudge.examine(rule(1, 1.001, 5), INPUTS, seed=seed, mode=mode)

            assert report.findings[0].detail.first.input == "inputs[1]"
            assert report.findings[0].detail.first.relative == pytest.approx(1e-3, rel=1e-3)


@over_seeds(10)
def test_the_likely_mistake_is_that_of_the_input_named(seeds):
    for seed in seeds:
        report = adjudge.examine(rule(1, 3, -1), INPUTS, seed=seed, mode="projected")
        text = text_of(report.findings[0])

        assert "with respect to inputs[1] is 3 times the reference in 15 of 15 entries" in text


@over_seeds(10)
def test_the_likely_mistake_is_that_of_the_output_named(seeds):
    def vjp(x, w):
        return 1.001 * w[0] * np.cos(x) - 3 * w[1] * np.sin(x)

    x = np.linspace(0.2, 1.2, 5)
    for seed in seeds:
        report = adjudge.examine(
            ByHand(lambda x: (np.sin(x), np.cos(x)), vjp=vjp), x, seed=seed, mode="full"
        )
        detail = report.findings[0].detail

        assert detail.first.output == "out[1]"
        assert "of out[1] with respect to inputs[0] is 3 times the reference" in detail.mistake


def pair(output, given, verdict, mode="R", way=""):
    return Pair(mode, output, given, verdict, int(verdict is not None), 0.25, 0.125, way)


def test_a_table_has_as_few_columns_as_possible():
    pairs = [pair("out", f"inputs[{k}]", Verdict.PASS) for k in range(3)]
    pairs[1] = pair("out", "inputs[1]", Verdict.FAIL)

    lines = list(tables_of_pairs(pairs, projected=False))

    assert [line.split()[0] for line in lines[:4]] == ["R", "inputs[0]", "inputs[1]", "inputs[2]"]
    assert lines[2].split()[1:] == ["WRONG", "0.25,", "0.12"]


def test_modes_with_the_same_verdicts_share_a_table():
    pairs = [
        pair("out", name, verdict, mode, way)
        for mode, way in (("R", ""), ("F", ""), ("R", "jit"))
        for name, verdict in (("a", Verdict.PASS), ("b", Verdict.FAIL))
    ]
    other = [pair("out", "a", Verdict.INCONCLUSIVE, "RR"), pair("out", "b", None, "RR")]

    lines = list(tables_of_pairs([*pairs, *other], projected=False))

    assert [line.split("  ")[1] for line in lines if "out" in line] == ["R, F, R (jit)", "RR"]
    assert lines[4].split()[:2] == ["a", "open"]
    assert lines[5].split() == ["b", "not", "compared"]


def test_of_a_long_table_the_wrong_rows_are_shown():
    pairs = [pair("out", f"p{k}", Verdict.PASS) for k in range(100)]
    pairs[70] = pair("out", "p70", Verdict.FAIL)

    lines = list(tables_of_pairs(pairs, projected=True))

    assert [line.split()[0] for line in lines[:2]] == ["R", "p70"]
    assert lines[2] == "  and 99 more"


def test_a_factor_is_named_where_entries_are_too_many_to_compare_all():
    x = np.linspace(0.1, 1.2, 500)
    for factor, words in ((2, "2 times the reference"), (-1, "has the opposite sign")):
        twice = ByHand(np.sin, vjp=lambda x, w, factor=factor: factor * w * np.cos(x))
        text = text_of(adjudge.examine(twice, x, seed=0).findings[0])

        assert f"{words} in all 500 entries" in text


def test_a_factor_that_is_nearly_one_is_named_by_its_digits():
    x = np.linspace(0.1, 1.2, 500)
    nearly = ByHand(np.sin, vjp=lambda x, w: (1 + 2e-7) * w * np.cos(x))

    text = text_of(adjudge.examine(nearly, x, seed=0).findings[0])

    assert "is 1.0000002 times the reference wherever it was looked at" in text


@over_seeds(10)
@pytest.mark.parametrize(
    ("factor", "said"), [(np.float64(np.float32(1 / 3)) * 3, True), (1 + 1e-4, False)]
)
def test_what_is_off_by_as_much_as_float32_rounds_may_have_been_rounded_to_it(factor, said, seeds):
    x = np.linspace(0.1, 1.2, 5)
    off = ByHand(np.sin, vjp=lambda x, w: factor * w * np.cos(x))

    for seed in seeds:
        report = adjudge.examine(off, x, seed=seed)

        assert ("or was a number in it rounded to float32?" in str(report)) is said, report


def test_no_factor_is_named_where_there_is_none():
    x = np.linspace(0.1, 1.2, 500)

    def vjp(x, w):
        return w * np.cos(x) * np.where(np.arange(x.size) < 250, 2.0, 3.0)

    for seed in range(10):
        report = adjudge.examine(ByHand(np.sin, vjp=vjp), x, seed=seed)

        assert report.findings[0].detail.mistake == ""
    assert common_factor(report.entries[:1]) is None


def test_the_first_line_says_how_far_the_entry_is_off():
    report = adjudge.examine(rule(1, 1, 1.25), INPUTS, seed=0)

    assert report.headline.endswith(", off by 25%")
    assert report.brief.startswith("d out[")
    assert report.brief.endswith("off by 25% (MISMATCH in ByHand(layer))")


@pytest.mark.parametrize(
    ("slope", "said"), [(1e-9, ", off by more than a million times the reference"), (0.8, "25%")]
)
def test_what_is_next_to_zero_is_no_unit_to_count_in(slope, said):
    f = ByHand(lambda x: slope * x, vjp=lambda x, w: w)
    report = adjudge.examine(f, np.array([0.3]), seed=0)

    assert report.verdict is Verdict.FAIL
    assert report.headline.endswith(said)


def test_where_to_look_names_the_rule_the_input_and_the_output():
    def jvp(x, y, t, s):
        return t * y, 2 * (x * s + y * t)

    wrong = ByHand(lambda x, y: (x * y, x * y), jvp=jvp)
    reverse = adjudge.examine(rule(1, 1, 1.25), INPUTS, seed=0)
    forward = adjudge.examine(wrong, (np.ones(2), np.ones(2)), modes=["F"], seed=0)

    assert "vjp (backward pass) makes of the cotangent of out for inputs[2]" in str(reverse)
    assert "what the jvp makes of the tangent of inputs[0] for out[1]" in str(forward)


def test_a_lonely_wrong_entry_is_called_so():
    def vjp(x, w):
        g = w * np.cos(x)
        g[41] *= 1.5
        return g

    one = adjudge.examine(ByHand(np.sin, vjp=vjp), np.linspace(0, 1, 300), seed=0)
    all_ = adjudge.examine(rule(1, 1, 2), INPUTS, seed=0)

    def two(x, w):
        g = w * np.cos(x)
        g[[3, 41]] *= 1.5
        return g

    both = adjudge.examine(ByHand(np.sin, vjp=two), np.linspace(0, 1, 80), seed=0, mode="full")

    assert "no other entry was found to be wrong" in str(one)
    assert "no other entry" not in str(both)
    assert "no other entry" not in str(all_)


def test_a_pass_with_little_power_says_so_in_its_first_line():
    """Three of four entries are as small as 1e-9 beside the fourth, so that errors do not show."""
    scales = np.array([1.0, 1e-12, 1e-12, 1e-12])
    weak = ByHand(lambda x: np.sum(scales * np.sin(x)), vjp=lambda x, w: w * scales * np.cos(x))
    strong = ByHand(np.sin, vjp=lambda x, w: w * np.cos(x))

    little = adjudge.examine(weak, np.ones(4), seed=0, mode="projected", rtol=None)
    much = adjudge.examine(strong, np.ones(4), seed=0, mode="projected")

    assert little.verdict is much.verdict is Verdict.PASS
    assert little.power[1e-2] < 0.9
    assert f"in {little.power[1e-2]:.0%} of the entries an error of 1% " in little.headline
    assert "of the entries" not in much.headline


def test_a_failure_says_where_the_function_is_defined():
    wrong = adjudge.examine(rule(1, 1, 2), INPUTS, seed=0)
    right = adjudge.examine(rule(1, 1, 1), INPUTS, seed=0)

    assert wrong.file == __file__
    assert "def vjp" in Path(__file__).read_text(encoding="utf-8").splitlines()[wrong.line - 1]
    assert f"  defined at {__file__}:{wrong.line}" == str(wrong).splitlines()[1]
    assert (right.file, right.line) == ("", 0)


def test_a_report_shows_its_first_line_where_it_is_an_object():
    report = adjudge.examine(rule(1, 1, 2), INPUTS, seed=0)

    assert repr(report) == f"<Report {report.headline}>"
