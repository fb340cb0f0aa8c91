"""Functions that do not move because they are cached, beside functions that do not move."""

import functools
import weakref

import numpy as np
import pytest

from adjudge import ByHand, Status, Verdict, examine
from adjudge.limits import limited

SMALL, LARGE = np.linspace(0.1, 1, 5), np.linspace(0.1, 1, 20_000)


def right(x, w):
    return w * np.cos(x)


def by_shape():
    memo = {}
    return lambda x: memo.setdefault(x.shape, np.sin(x))


def by_rounded_values():
    @functools.cache
    def cached(values):
        return np.sin(np.asarray(values))

    return lambda x: cached(tuple(np.round(x, 1)))


def by_id():
    memo = {}

    def f(x):
        if id(x) not in memo:
            memo[id(x)] = np.sin(x)
        return memo[id(x)]

    return f


@pytest.mark.parametrize("cached", [by_shape, by_rounded_values])
@pytest.mark.parametrize("mode", ["full", "projected"])
def test_one_array_for_different_inputs_is_called_a_cache_and_not_wrong(cached, mode):
    report = examine(ByHand(cached(), vjp=right), SMALL * 0.01, mode=mode)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert [Status.SPURIOUS] == [finding.status for finding in report.findings]
    assert "the very same array for two different inputs: is it cached" in str(report)
    assert 0 == report.counts["failed"] < report.counts["undecided"]


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_a_small_input_keeps_its_id_while_it_is_checked(mode):
    good = examine(ByHand(by_id(), vjp=right), SMALL, mode=mode)
    bad = examine(ByHand(by_id(), vjp=lambda x, w: -right(x, w)), SMALL, mode=mode)

    assert [Verdict.PASS, Verdict.FAIL] == [good.verdict, bad.verdict]


@pytest.mark.parametrize("seed", range(4))
def test_a_large_input_that_is_remembered_by_id_is_not_called_wrong(seed):
    report = examine(ByHand(by_id(), vjp=right), LARGE, seed=seed)

    assert report.verdict is not Verdict.FAIL
    assert report.verdict is Verdict.PASS or "is it cached" in str(report)


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_a_constant_passes_with_a_zero_derivative(mode):
    captured = np.asarray([1.0, 2.0])

    report = examine(ByHand(lambda x: captured, vjp=lambda x, w: 0 * x), SMALL, mode=mode)

    assert report.verdict is Verdict.PASS


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_a_fresh_array_that_does_not_move_is_no_cache(mode):
    report = examine(ByHand(lambda x: 0 * x + 1, vjp=lambda x, w: w), SMALL, mode=mode)

    assert report.verdict is Verdict.FAIL
    assert Status.SPURIOUS in {finding.status for finding in report.findings}
    assert "is it cached" not in str(report)


def test_an_output_buffer_that_is_written_again_is_no_cache():
    buffer = np.empty(5)

    good, bad = (
        examine(ByHand(lambda x: np.sin(x, out=buffer), vjp=vjp), SMALL)
        for vjp in (right, lambda x, w: 2 * right(x, w))
    )

    assert [Verdict.PASS, Verdict.FAIL] == [good.verdict, bad.verdict]


def test_a_wrong_output_beside_a_cached_one_still_fails():
    cached = by_shape()
    rule = ByHand(
        lambda x: (cached(x), np.sin(x)), vjp=lambda x, w: right(x, w[0]) + 2 * right(x, w[1])
    )

    report = examine(rule, SMALL, mode="full")

    assert report.verdict is Verdict.FAIL
    assert {Status.SPURIOUS, Status.MISMATCH} == {finding.status for finding in report.findings}


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_values_of_another_input_are_called_so(mode):
    """A memo that meets an `id` again whenever nothing keeps earlier inputs alive."""
    alive, numbers = {}, {}

    def number(x):
        """Of the arrays that are alive now: like `id`, but sure to be used again."""
        for k in [k for k, ref in alive.items() if ref() is None]:
            del alive[k]
        for k, ref in alive.items():
            if ref() is x:
                return k
        k = next(k for k in range(len(alive) + 1) if k not in alive)
        alive[k] = weakref.ref(x)
        return k

    def f(x):
        return numbers.setdefault(number(x), np.sin(x))

    with limited(kept_bytes=0):
        stale = examine(ByHand(f, vjp=right), SMALL, mode=mode)
    alive.clear()
    numbers.clear()
    kept = examine(ByHand(f, vjp=right), SMALL, mode=mode)

    assert stale.verdict is Verdict.INCONCLUSIVE
    assert "is it cached" in str(stale)
    assert kept.verdict is Verdict.PASS
