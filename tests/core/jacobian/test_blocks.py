"""A table too large for memory at once is worked through in blocks of columns."""

import numpy as np
import pytest

from adjudge import ByHand, Verdict, examine, gradgradcheck
from adjudge.limits import limited

N = 23
X = np.linspace(0.5, 2.0, N)


def running(x):
    return np.cumsum(np.sin(x))


def rule(index=None, factor=1.5):
    def vjp(x, w):
        g = np.cumsum(w[::-1])[::-1] * np.cos(x)
        if index is not None:
            g[index] *= factor
        return g

    return ByHand(running, vjp=vjp)


@pytest.fixture(params=[1, 8 * N, 8 * N * 5, 8 * N * (N - 1)])
def small_blocks(request):
    with limited(block_bytes=request.param):
        yield


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("index", [None, 0, 11, N - 1])
def test_blocks_give_the_verdicts_of_the_whole(index):
    report = examine(rule(index), X, mode="full", seed=0)

    assert report.verdict is (Verdict.PASS if index is None else Verdict.FAIL)
    assert report.counts["comparisons"] == N * N
    assert {entry.wrt for entry in report.entries} == (
        set() if index is None else {f"inputs[0][{index}]"}
    )


def test_the_counts_of_failures_do_not_depend_on_the_blocks():
    whole = examine(rule(N - 1), X, mode="full", seed=0)

    with limited(block_bytes=8 * N * 2):
        blocks = examine(rule(N - 1), X, mode="full", seed=0)

    assert whole.counts["failed"] == blocks.counts["failed"] == 1
    assert blocks.counts["vjps"] > whole.counts["vjps"]
    assert blocks.counts["evaluations"] == whole.counts["evaluations"]


@pytest.mark.usefixtures("small_blocks")
def test_a_nonlinear_vjp_is_found_in_blocks_too():
    report = examine(
        ByHand(running, vjp=lambda x, w: np.abs(np.cumsum(w[::-1])[::-1]) * np.cos(x)),
        X,
        mode="full",
    )

    assert report.verdict is Verdict.FAIL


@pytest.mark.usefixtures("small_blocks")
def test_second_order_runs_in_blocks():
    right, wrong = (
        ByHand(
            np.sin,
            vjp=lambda x, w: w * np.cos(x),
            double_vjp=lambda x, w, u, c=c: (-u * w * np.sin(x), u * np.cos(x) * c),
        )
        for c in (np.ones(N), np.where(np.arange(N) == N - 1, 2.0, 1.0))
    )

    reports = [
        gradgradcheck(rule, X, mode="full", raise_exception=False) for rule in (right, wrong)
    ]

    assert [Verdict.PASS, Verdict.FAIL] == [report.verdict for report in reports]


@pytest.mark.usefixtures("small_blocks")
def test_several_inputs_are_cut_across():
    def vjp(a, b, w):
        of_b = w * a
        of_b[-1] = 0
        return w * b, of_b

    report = examine(ByHand(lambda a, b: a * b, vjp=vjp), (X[:7], X[7:14]), mode="full")

    assert {entry.wrt for entry in report.entries} == {"inputs[1][6]"}


def test_random_tangents_are_compared_with_whole_rows_however_small_a_block_is():
    rule = ByHand(
        lambda x: (np.sin(x), np.cos(x)), vjp=lambda x, w: w[0] * np.cos(x) - w[1] * np.sin(x)
    )

    with limited(block_bytes=64):
        report = examine(rule, np.linspace(0.1, 1, 50), mode="projected", seed=0)

    assert report.verdict is Verdict.PASS
    assert report.counts["comparisons"] == 2
