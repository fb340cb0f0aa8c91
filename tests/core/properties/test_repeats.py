"""Two runs that differ: the spread in units of rounding, what it looks like, and `nondet_tol`."""

import itertools
import re

import array_api_compat.numpy
import numpy as np
import pytest
from scenarios import over_seeds, seeds

from adjudge import ByHand, Status, Verdict, examine
from adjudge.engine import Environment, PlainBackend, replaced
from adjudge.findings import Finding
from adjudge.problem.space import Space
from adjudge.properties.purity import Runs
from adjudge.report import text_of

LENGTH = 4000
MORE = 1e-3
"""A jitter that is more than any order of additions makes, in either dtype."""


def gathered(seed, *, factor=1.0, jitter=0.0, forward=False):
    """`sin(c x[i])` with a backward that adds into x in another order at every call, as atomic
    additions do; `jitter`: a random factor at every call; `forward`: sums f like that as well.
    """
    fixed, own = np.random.default_rng(0), np.random.default_rng(seed)
    # a generator in sight would be put back before each evaluation
    draws = iter(lambda: (own.permutation(LENGTH), own.normal()), None)
    i, c = fixed.integers(0, 5, LENGTH), fixed.normal(size=LENGTH)

    def scattered(terms):
        total, (shuffled, drawn) = np.zeros(5, terms.dtype), next(draws)
        np.add.at(total, i[shuffled], terms[shuffled])
        return total * terms.dtype.type(1 + jitter * drawn)

    def f(x):
        y = np.sin(c.astype(x.dtype) * x[i])
        return scattered(y) if forward else y

    def vjp(x, w):
        spread = w[i] if forward else w
        return scattered(factor * spread * c.astype(x.dtype) * np.cos(c.astype(x.dtype) * x[i]))

    return ByHand(f, vjp=vjp)


class Atomic(Environment):
    """One of which it is said that it adds with atomics."""

    def determinism_setting(self, array):
        return "DETERMINISTIC=1"


ATOMIC = replaced(PlainBackend(array_api_compat.numpy), environment=Atomic())


def at(dtype):
    return np.linspace(0.2, 1.3, 5).astype(dtype)


def said(report):
    return [one for one in report.findings if one.status is Status.NONDETERMINISTIC]


def tolerance(report):
    return float(re.findall(r"nondet_tol=([\d.e+-]+)", str(report))[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_another_order_of_additions_in_the_backward_is_noted_with_its_spread(dtype):
    report = examine(gathered(1), at(dtype), seed=0)

    (found,) = said(report)
    assert report.verdict is Verdict.PASS
    assert found.note
    assert "R" == found.mode
    text = text_of(found)
    assert "the vjp at inputs[0]" in text
    assert f"units of rounding of {dtype.__name__} at the largest entry: as another" in text
    assert 0.5 <= found.detail.units <= 100
    assert "order of additions" in text
    assert found.detail.rounding


@over_seeds(10, always=3)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_with_the_tolerance_that_is_named_the_check_passes_and_the_spread_is_a_note(dtype, seeds):
    allowed = tolerance(examine(gathered(1, jitter=MORE), at(dtype), seed=0))

    for seed in seeds:
        rule = gathered(2 + seed, jitter=MORE / 4)
        report = examine(rule, at(dtype), seed=seed, nondet_tol=allowed)

        assert report.verdict is Verdict.PASS, (seed, str(report))
        (noted,) = said(report)
        assert noted.note
        assert f"nondet_tol={allowed:.3g} allows it" in text_of(noted)
        assert "differs by" in str(report)


def test_within_the_tolerance_a_wrong_factor_is_still_wrong():
    x = at(np.float64)
    allowed = tolerance(examine(gathered(1, jitter=1e-6), x, seed=0))

    report = examine(gathered(2, factor=1.01, jitter=1e-7), x, seed=0, nondet_tol=allowed)

    assert report.verdict is Verdict.FAIL
    assert Status.MISMATCH in {found.status for found in report.findings}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_random_numbers_in_the_backward_do_not_look_like_an_order_of_additions(dtype):
    report = examine(gathered(1, jitter=0.01), at(dtype), seed=0)

    found, *_ = said(report)
    assert report.verdict is Verdict.FAIL
    assert "randomness or hidden state: another order" in text_of(found)
    assert not found.detail.rounding


def test_what_lies_between_is_left_open():
    report = examine(gathered(1, jitter=1e-6), at(np.float64), seed=0)

    found, *_ = said(report)
    assert "randomness, hidden state, or additions" in text_of(found)
    assert found.detail.rounding
    assert not found.detail.reordered


@pytest.mark.parametrize("allowed", [0.0, 1e-11])
def test_a_function_that_adds_in_another_order_is_noted(allowed):
    report = examine(gathered(2, forward=True), at(np.float64), seed=0, nondet_tol=allowed)

    assert report.verdict is Verdict.PASS
    assert {"", "R"} == {found.mode for found in said(report)}
    assert "between two evaluations at the same x" in text_of(said(report)[0])
    assert all(found.note for found in said(report))


def test_a_function_that_differs_by_more_fails():
    report = examine(gathered(1, forward=True, jitter=1e-9), at(np.float64), seed=0)

    assert report.verdict is Verdict.FAIL
    assert not said(report)[0].note


def test_a_spread_beyond_the_tolerance_fails():
    report = examine(gathered(1, jitter=MORE), at(np.float64), seed=0, nondet_tol=1e-16)

    assert report.verdict is Verdict.FAIL
    assert not said(report)[0].note


def test_a_backward_that_seldom_changes_is_called_again():
    calls = []

    def vjp(x, w):  # two calls with the same cotangent agree, the one with -2 u differs
        calls.append(1)
        return w * np.cos(x) * (1 + (2.0**-30 if len(calls) == 2 else 0.0))

    report = examine(ByHand(np.sin, vjp=vjp), at(np.float64), seed=0)

    (found,) = said(report)
    assert report.verdict is Verdict.FAIL
    assert not found.detail.reordered


def test_a_jvp_that_is_not_repeatable_is_named_like_a_vjp():
    order = np.random.default_rng(3)

    def jvp(x, v):
        return v * np.cos(x) * (1 + 2.0**-30 * order.integers(0, 3, x.shape))

    rule = ByHand(np.sin, jvp=jvp)
    options = {"check_forward_ad": True, "check_backward_ad": False, "seed": 0}

    report = examine(rule, at(np.float64), **options)

    (found,) = said(report)
    assert "F" == found.mode
    assert not found.detail.reordered
    allowed = examine(rule, at(np.float64), nondet_tol=tolerance(report), **options)
    assert allowed.verdict is Verdict.PASS
    assert said(allowed)[0].note


@pytest.mark.parametrize(
    ("gap", "words"), [(2.0, "order of additions makes (atomics"), (64.0, "randomness")]
)
def test_a_few_units_of_sixteen_bits_are_large_already(gap, words):
    from adjudge.engine.registry import backend_named

    x = np.ones(3, np.float16)
    space = Space.at(backend_named("numpy"), (x,), ["x"])[0]
    first, eps = np.ones(3), float(np.finfo(np.float16).eps)
    second = first + np.array([0.0, gap * eps, 0.0])

    found = Runs(space, [eps], first, second).finding(None, "R", 0.0)

    assert isinstance(found, Finding)
    assert text_of(found).startswith("x[1] differs by")
    assert words in text_of(found)
    assert found.note is (gap == 2)


@pytest.mark.parametrize("jitter", [0.0, 1e-7, 1e-3])
def test_every_leaf_is_excused_on_its_own_scale(jitter):
    """Beside additions in another order, whose rounding is more than all of a smaller leaf."""
    i, c = np.arange(LENGTH) % 5, np.random.default_rng(0).normal(size=LENGTH)
    order = np.random.default_rng(1)

    def vjp(a, b, w):
        total, shuffled = np.zeros(5), order.permutation(LENGTH)
        np.add.at(total, i[shuffled], (1e9 * w * c * np.cos(c * a[i]))[shuffled])
        return total, 1e-9 * (1 + jitter * order.normal()) * np.array([np.sum(w)])

    rule = ByHand(lambda a, b: 1e9 * np.sin(c * a[i]) + 1e-9 * b, vjp=vjp)
    x = at(np.float64), np.array([1e12])
    report = examine(rule, x, seed=0, backend=ATOMIC)

    assert [one.entry for one in said(report) if not one.note] == ["inputs[1][0]"] * (jitter > 0)
    assert (report.verdict is Verdict.PASS) == (jitter == 0), str(report)


def test_rounding_may_be_all_of_a_leaf_that_is_zero():
    """What does not depend on `b` cancels in its gradient, in another order at every call."""
    order = np.random.default_rng(1)

    def vjp(a, b, w):
        terms = np.cos(a) * w
        return w * np.cos(a), np.array([order.permutation(terms).sum() - terms.sum()])

    rule = ByHand(lambda a, b: np.sin(a) + 0 * b, vjp=vjp)
    a = np.random.default_rng(0).normal(size=LENGTH)
    report = examine(rule, (a, np.array([0.5])), seed=0, backend=ATOMIC)

    assert report.verdict is Verdict.PASS, str(report)
    assert all(one.note for one in said(report))


def test_a_value_that_is_not_finite_in_one_run_is_no_rounding():
    calls = []

    def vjp(x, w):
        calls.append(1)
        return w * np.cos(x) * (np.nan if len(calls) == 2 else 1.0)

    found, *_ = said(examine(ByHand(np.sin, vjp=vjp), at(np.float64), seed=0))

    assert not found.detail.rounding
    assert "inf units of rounding" in text_of(found)


@pytest.mark.parametrize("shuffled", [True, False])
def test_sums_of_the_few_digits_of_probes_are_exact_and_tried_with_more(shuffled):
    """The gradient of x[i] is a sum of cotangents: in 256ths it is the same in every order."""
    fixed, order = np.random.default_rng(0), np.random.default_rng(1)
    i = fixed.integers(0, 5, LENGTH)

    def vjp(x, w):
        total, some = np.zeros_like(x), order.permutation(LENGTH) if shuffled else slice(None)
        np.add.at(total, i[some], w[some])
        return total

    rule = ByHand(lambda x: x[i], vjp=vjp)

    report = examine(rule, at(np.float32), backend=ATOMIC, seed=0)

    assert report.verdict is Verdict.PASS
    if shuffled:
        found, setting = said(report)
        assert found.detail.reordered
        assert "allowed for" in text_of(found)
        assert found.note
        assert "DETERMINISTIC=1" in setting.remedy.words
        assert setting.note
        loose = examine(rule, at(np.float32), backend=ATOMIC, nondet_tol=1e-3, seed=2)
        assert loose.verdict is Verdict.PASS
        assert "allows it" in str(loose)
    else:
        assert not said(report)


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("forward", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_where_a_device_adds_in_any_order_a_right_rule_passes(dtype, forward, seed):
    report = examine(gathered(seed, forward=forward), at(dtype), backend=ATOMIC, seed=seed)

    assert report.verdict is Verdict.PASS, str(report)
    assert said(report)
    assert all(found.note for found in said(report))
    assert "DETERMINISTIC=1" in str(report)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("plant", [1.01, 1 + 1e-6, -1.0])
def test_where_a_device_adds_in_any_order_a_wrong_rule_fails(plant, seed):
    rule = gathered(seed, factor=plant)
    report = examine(rule, at(np.float64), backend=ATOMIC, seed=seed)

    assert report.verdict is Verdict.FAIL
    assert Status.MISMATCH in {found.status for found in report.findings}


def test_where_a_device_adds_in_any_order_linearity_is_tried_all_the_same():
    """Off by a part that does not depend on the cotangent, and repeatable but for rounding."""
    right = gathered(4)

    def vjp(x, w):
        return right.vjp(x, w) + 0.1 * np.ones_like(x) * np.sign(w[0])

    report = examine(ByHand(right, vjp=vjp), at(np.float64), backend=ATOMIC, seed=0)

    assert report.verdict is Verdict.FAIL
    assert Status.NONLINEAR in {found.status for found in report.findings}


def test_randomness_is_not_put_down_to_atomics():
    report = examine(gathered(1, jitter=0.01), at(np.float64), backend=ATOMIC, seed=0)

    assert report.verdict is Verdict.FAIL
    assert not [one for one in said(report) if one.note]


def test_a_function_with_a_state_is_at_fault_itself_and_no_rule():
    calls = itertools.count(1)
    rule = ByHand(lambda x: x * next(calls), vjp=lambda x, w: w)
    report = examine(rule, np.ones(3), modes=["R"], seed=0)

    assert report.verdict is Verdict.FAIL
    assert "the function itself is at fault" in str(report)
    assert "rule is at fault" not in str(report)
    wrong = examine(ByHand(np.sin, vjp=lambda x, w: w), np.ones(3), modes=["R"], seed=0)
    assert "rule is at fault" in str(wrong)


def jittered(seed, factor=1.0, often=1.0, size=1e-6):
    """`sin x` with a jitter of the vjp in a part of the calls, of a generator out of sight."""
    own = np.random.default_rng(seed)
    draws = iter(lambda: size * own.normal() * (own.random() < often), None)
    return ByHand(np.sin, vjp=lambda x, w: factor * w * np.cos(x) * (1 + next(draws)))


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("nondet_tol", [1e-4, 1e-2, 1.0])
def test_a_spread_that_is_allowed_is_no_tolerance_of_the_derivative(nondet_tol, seed):
    """A gradient that is 2 % wrong passed, with `nondet_tol=1e-2` for a jitter of 1e-6."""
    x = np.linspace(0.2, 1.3, 12)

    right = examine(jittered(seed), x, seed=seed, nondet_tol=nondet_tol)
    wrong = [
        examine(jittered(seed, factor), x, seed=seed, nondet_tol=nondet_tol)
        for factor in (1.02, 1.2, 2.0)
    ]

    assert right.verdict is Verdict.PASS, str(right)
    assert {report.verdict for report in wrong} == {Verdict.FAIL}


@pytest.mark.parametrize("seed", seeds(30))
def test_a_spread_is_allowed_where_two_runs_happened_to_agree(seed):
    """Three calls of ten differ, and the two that are compared first do not, in half of cases."""
    x = np.linspace(0.2, 1.3, 12)

    right = examine(jittered(seed, often=0.3, size=1e-7), x, seed=seed, nondet_tol=1e-3)
    wrong = examine(jittered(seed, 1.1, often=0.3, size=1e-7), x, seed=seed, nondet_tol=1e-3)

    assert right.verdict is Verdict.PASS, str(right)
    assert wrong.verdict is Verdict.FAIL
