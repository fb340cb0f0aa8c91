"""Leaves share tangents: what a check costs does not grow with their number, and none hides."""

import numpy as np
import pytest
from scenarios import over_seeds, seeds

from adjudge import ByHand, Verdict, examine
from adjudge.jacobian import STAGES

MAGNITUDES = (1e-3, 1e-1, 1.0, 10.0)
"""The factors of the outputs of the leaves, one after the other and again from the first."""


def leaves(count, seed=0):
    """Leaves of three to nine numbers."""
    random = np.random.default_rng(seed)
    return tuple(random.uniform(0.5, 1.5, int(random.integers(3, 10))) for _ in range(count))


def weighted(count):
    """A function of so many leaves, of sensitivities that differ by four decades, and its vjp."""
    factors = [MAGNITUDES[k % len(MAGNITUDES)] for k in range(count)]

    def forward(*x):
        return np.array([c * np.sum(np.sin(a)) for c, a in zip(factors, x, strict=True)]).sum()

    def vjp(*args):
        *x, w = args
        return tuple(w * c * np.cos(a) for c, a in zip(factors, x, strict=True))

    return forward, vjp


def alike(count):
    """A function of so many leaves that are alike, which multiply, and its vjp."""

    def forward(*x):
        return np.exp(sum(np.sum(np.sin(a)) for a in x) / count)

    def vjp(*args):
        *x, w = args
        return tuple(w * forward(*x) * np.cos(a) / count for a in x)

    return forward, vjp


def with_error(vjp, leaf, entry, factor):
    """The vjp with one entry of one leaf off by a factor, or all of its entries (`None`)."""

    def wrong(*args):
        gradients = [np.array(g) for g in vjp(*args)]
        if entry is None:
            gradients[leaf] *= factor
        else:
            gradients[leaf][entry] *= factor
        return tuple(gradients)

    return wrong


FEW = 200
"""Evaluations of a check that takes the ladders for one leaf; with those for all it is 250."""


def evaluations(function, count):
    forward, vjp = function(count)
    report = examine(ByHand(forward, vjp=vjp), leaves(count), seed=0)
    assert report.verdict is Verdict.PASS, str(report)
    assert report.counts["comparisons"] == count
    return report.counts["evaluations"]


def test_the_cost_of_leaves_that_are_alike_does_not_grow():
    assert evaluations(alike, 3) == evaluations(alike, 10) == evaluations(alike, 100)


def test_the_cost_of_leaves_of_different_magnitudes_does_not_grow():
    assert evaluations(weighted, 40) <= evaluations(weighted, 8) + 8


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("function", [alike, weighted])
def test_a_right_gradient_passes_at_any_seed(function, seed):
    forward, vjp = function(12)

    assert examine(ByHand(forward, vjp=vjp), leaves(12, seed), seed=seed)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("factor", [1 + 1e-4, -1.0, 0.0])
@pytest.mark.parametrize("leaf", [0, 1, 2, 3, 11])
def test_a_leaf_that_is_wrong_fails_whatever_the_others_are(leaf, factor, seed):
    forward, vjp = weighted(12)
    rule = ByHand(forward, vjp=with_error(vjp, leaf, None, factor))

    report = examine(rule, leaves(12), seed=seed)

    assert report.verdict is Verdict.FAIL, str(report)
    assert report.entries[0].wrt.startswith(f"inputs[{leaf}]")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("count", [2, 7, 60])
def test_one_wrong_entry_among_all_leaves_fails_and_is_named(count, seed):
    forward, vjp = alike(count)
    leaf = count // 2
    rule = ByHand(forward, vjp=with_error(vjp, leaf, 1, 1 + 1e-4))

    report = examine(rule, leaves(count), seed=seed)

    assert report.verdict is Verdict.FAIL
    assert report.entries[0].wrt == f"inputs[{leaf}][1]"


def sines(count):
    """The sum of the sines of all entries, and its vjp."""

    def forward(*x):
        return np.array(sum(np.sum(np.sin(a)) for a in x))

    def vjp(*args):
        *x, w = args
        return tuple(w * np.cos(a) for a in x)

    return forward, vjp


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("error", [0.0, 5e-5])
def test_a_leaf_that_is_off_by_a_few_tolerances_is_found_before_any_ladder(error, seed):
    """All leaves together take no ladder then: the evaluations are those of one leaf, and four for
    each halving of the others."""
    count, size = 64, 200
    x = tuple(np.random.default_rng(seed).uniform(0.5, 1.5, (count, size)))
    forward, vjp = sines(count)
    leaf = (7 * seed + 5) % count
    rule = ByHand(forward, vjp=with_error(vjp, leaf, seed, 1 + error))

    report = examine(rule, x, seed=seed)

    assert report.verdict is (Verdict.FAIL if error else Verdict.PASS), str(report)
    if error:
        assert report.entries[0].wrt.startswith(f"inputs[{leaf}]"), report
        assert report.counts["evaluations"] < FEW
    else:
        assert report.counts["evaluations"] <= 7


@pytest.mark.parametrize("seed", range(3))
def test_two_leaves_whose_gradients_are_swapped_fail(seed):
    forward, vjp = alike(6)
    x = tuple(np.linspace(0.5 + k / 10, 1.5, 4) for k in range(6))

    def swapped(*args):
        g = list(vjp(*args))
        g[1], g[4] = g[4], g[1]
        return tuple(g)

    report = examine(ByHand(forward, vjp=swapped), x, seed=seed)

    assert report.verdict is Verdict.FAIL
    assert {entry.wrt.split("[")[1][:2] for entry in report.entries} == {"1]", "4]"}


def test_a_rule_that_is_wrong_in_all_of_many_leaves_is_not_followed_into_each():
    forward, vjp = alike(80)
    rule = ByHand(forward, vjp=lambda *args: tuple(2 * g for g in vjp(*args)))

    report = examine(rule, leaves(80), seed=0)

    assert report.verdict is Verdict.FAIL
    assert report.counts["comparisons"] == 80
    assert report.counts["evaluations"] < 8 * 80


def test_a_kink_in_one_leaf_leaves_the_others_judged():
    def forward(a, b, c):
        return np.sum(np.abs(a)) + np.sum(np.sin(b)) + np.sum(c**2)

    def vjp(factor):
        return lambda a, b, c, w: (w * np.sign(a), factor * w * np.cos(b), 2 * w * c)

    x = np.zeros(3), np.linspace(0.1, 1, 5), np.linspace(1, 2, 4)

    right = examine(ByHand(forward, vjp=vjp(1.0)), x, seed=0)
    wrong = examine(ByHand(forward, vjp=vjp(1.01)), x, seed=0)

    assert right.verdict is Verdict.PASS
    assert wrong.verdict is Verdict.FAIL
    assert wrong.entries[0].wrt.startswith("inputs[1]")


def test_a_leaf_without_a_gradient_that_f_reads_fails():
    def forward(a, b):
        return np.sum(a) * (1 + 1e-9 * np.sum(b))

    def forgets(a, b, w):
        return w * (1 + 1e-9 * np.sum(b)) * np.ones_like(a), None

    x = np.linspace(1, 2, 5), np.linspace(1, 2, 4)
    report = examine(ByHand(forward, vjp=forgets), x, seed=0)

    assert report.verdict is Verdict.FAIL
    assert report.entries[0].wrt.startswith("inputs[1]")


def test_forward_mode_is_compared_along_the_same_tangents():
    forward, vjp = alike(5)

    def jvp(*args):
        x, v = args[:5], args[5:]
        g = vjp(*x, 1.0)
        return sum(np.sum(a * b) for a, b in zip(g[:4], v[:4], strict=True))  # the last is left out

    report = examine(ByHand(forward, vjp=vjp, jvp=jvp), leaves(5), modes=["R", "F"], seed=0)

    assert report.modes["F"] is Verdict.FAIL
    assert any(entry.mode == "F" and "inputs[4]" in entry.wrt for entry in report.entries)


def test_the_report_says_which_stage_decided():
    forward, vjp = alike(6)

    right = examine(ByHand(forward, vjp=vjp), leaves(6), seed=0)
    wrong = examine(ByHand(forward, vjp=with_error(vjp, 2, 0, 1.5)), leaves(6), seed=0)

    known = {"two evaluations", *(stage.name for stage in STAGES)}
    assert set(right.stages) <= known
    assert sum(count.decided for count in right.stages.values()) == 1
    assert wrong.stages["three steps"].reached == 1
    assert wrong.stages["halves of the leaves"].reached >= 2
    assert "columns decided by two evaluations" in str(wrong)
    assert "columns decided by" not in str(right)
    assert wrong.to_dict()["stages"]["three steps"]["reached"] == 1


def saturated(off):
    """A sum of eight leaves, and the two weights of a softmax of them, of which one is nearly 1."""

    def weight(x):
        return np.exp(-10 * sum(np.mean(np.sin(a)) for a in x))

    def forward(*x):
        k = weight(x)
        return sum(np.sum(np.sin(a)) for a in x), np.array([1.0, k]) / (1 + k)

    def vjp(*args):
        *x, (w, u) = args
        k = weight(x)
        c = (u[0] - u[1]) * 10 * k / (1 + k) ** 2
        return tuple(off * (w + c / a.size) * np.cos(a) for a in x)

    return ByHand(forward, vjp=vjp)


@pytest.mark.parametrize("seed", seeds(10))
def test_what_no_step_resolves_is_halved_before_any_ladder(seed):
    right = examine(saturated(1), leaves(8), seed=seed)
    wrong = examine(saturated(1 + 1e-4), leaves(8), seed=seed)

    assert right.verdict is Verdict.INCONCLUSIVE
    assert right.counts["evaluations"] <= 340  # 480 with a ladder before each halving
    assert wrong.verdict is Verdict.FAIL


def of_one_steep_leaf(off):
    """A sum of sigmoids of nine leaves, of which the fifth is forty times as steep."""
    rates = [40.0 if j == 4 else 1.0 for j in range(9)]

    def vjp(*args):
        *x, w = args
        s = [1 / (1 + np.exp(-k * a)) for k, a in zip(rates, x, strict=True)]
        slopes = [w * k * p * (1 - p) for k, p in zip(rates, s, strict=True)]
        slopes[4] = off * slopes[4]
        return tuple(slopes)

    def forward(*x):
        return sum((1 / (1 + np.exp(-k * a))).sum() for k, a in zip(rates, x, strict=True))

    return ByHand(forward, vjp=vjp)


@over_seeds(10, always=2)
def test_leaves_that_leave_something_open_together_are_compared_apart(seeds):
    for seed in seeds:
        x = tuple(np.random.default_rng(10 * seed + j).normal(size=5) for j in range(9))
        options = {"mode": "projected", "seed": seed, "blame": False}

        assert examine(of_one_steep_leaf(1.0), x, **options).verdict is not Verdict.FAIL
        assert examine(of_one_steep_leaf(1 + 1e-4), x, **options).verdict is Verdict.FAIL
