"""The projected mode: one random projection a pair of leaves, and the entry behind a failure."""

import numpy as np
import pytest
from scenarios import seeds

from adjudge import ByHand, Status, Verdict, examine

SIZES = [1, 3, 100, 10_000]


def scaled_at(index, factor):
    def scaled(g):
        g = g.copy()
        g[index] *= factor
        return g

    return scaled


@pytest.mark.parametrize("n", SIZES)
def test_the_right_gradient_passes_at_every_size(n):
    x = np.random.default_rng(n).normal(size=n)

    report = examine(ByHand(np.sin, vjp=lambda x, w: w * np.cos(x)), x, mode="projected")

    assert report.verdict is Verdict.PASS
    assert report.counts["comparisons"] == 1
    assert report.counts["evaluations"] < 10


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("factor", [-1.0, 2.0, 0.0])
def test_reverse_mode_names_the_one_wrong_entry(n, factor):
    x = np.random.default_rng(n).normal(size=n)
    plant = scaled_at(n // 3, factor)
    rule = ByHand(np.sin, vjp=lambda x, w: plant(w * np.cos(x)))

    report = examine(rule, x, mode="projected", seed=n)

    assert report.verdict is Verdict.FAIL
    assert report.findings[0].entry == f"d out[{n // 3}] / d inputs[0][{n // 3}]"
    assert report.counts["evaluations"] < 160


@pytest.mark.parametrize("n", SIZES)
def test_forward_mode_names_the_one_wrong_entry(n):
    x = np.random.default_rng(n).normal(size=n)
    plant = scaled_at(n // 3, 2.0)
    rule = ByHand(np.sin, jvp=lambda x, v: plant(v * np.cos(x)))

    report = examine(
        rule, x, mode="projected", seed=n, check_forward_ad=True, check_backward_ad=False
    )

    assert report.verdict is Verdict.FAIL
    assert report.findings[0].entry == f"d out[{n // 3}] / d inputs[0][{n // 3}]"


def test_the_entry_of_reverse_mode_is_named_beside_many_failures_of_forward_mode():
    x = np.random.default_rng(0).normal(size=200)
    plant = scaled_at(70, 2.0)
    rule = ByHand(
        np.sin,
        vjp=lambda x, w: plant(w * np.cos(x)),
        jvp=lambda x, v: -v * np.cos(x),
    )

    report = examine(rule, x, mode="projected", check_forward_ad=True, seed=0)

    assert "d out[70] / d inputs[0][70]" in {f.entry for f in report.findings if f.mode == "R"}


def test_the_input_among_several_and_the_output_among_several_are_named():
    random = np.random.default_rng(0)
    A, x = random.normal(size=(40, 30)), random.normal(size=30)

    def gradients(A, x, w):
        of_A = np.outer(w["product"], x)
        of_A[17, 4] *= 1.5
        return of_A, A.T @ w["product"] + 2 * w["square"] * x

    rule = ByHand(lambda A, x: {"product": A @ x, "square": np.sum(x**2)}, vjp=gradients)

    report = examine(rule, (A, x), mode="projected", seed=0)

    assert report.counts["comparisons"] == 4
    assert report.counts["failed"] == 1
    assert report.findings[0].entry == "d out['product'][17] / d inputs[0][17, 4]"


def test_a_whole_gradient_of_the_wrong_sign_names_one_of_its_entries():
    x = np.random.default_rng(1).normal(size=500)
    rule = ByHand(np.sin, vjp=lambda x, w: -w * np.cos(x))

    report = examine(rule, x, mode="projected", seed=1)
    finding = report.findings[0]

    assert Status.MISMATCH is finding.status
    assert finding.entry.startswith("d out[")
    assert report.entries[0].automatic == pytest.approx(-report.entries[0].reference, rel=1e-6)


def test_a_transposed_product_fails():
    random = np.random.default_rng(2)
    A, X = random.normal(size=(20, 20)), random.normal(size=(20, 20))
    rule = ByHand(lambda A, X: A @ X, vjp=lambda A, X, w: (w @ X.T, A @ w))

    report = examine(rule, (A, X), mode="projected")

    assert report.verdict is Verdict.FAIL
    assert "inputs[1]" in report.findings[0].entry


@pytest.mark.parametrize("seed", seeds(20))
def test_errors_of_opposite_sign_do_not_cancel(seed):
    x = np.random.default_rng(seed).normal(size=(2, 50))

    def exchanged(x, w):
        return (w * np.cos(x))[::-1]

    report = examine(ByHand(np.sin, vjp=exchanged), x, mode="projected", seed=seed)

    assert report.verdict is Verdict.FAIL


def test_auto_takes_the_whole_jacobian_of_a_small_problem_only():
    rule = ByHand(np.sin, vjp=lambda x, w: w * np.cos(x))

    small, large = (examine(rule, np.linspace(0, 1, n)) for n in (2, 3))

    assert "full" == small.provenance.mode
    assert "projected" == large.provenance.mode


def test_fast_mode_is_another_word_for_projected():
    rule = ByHand(np.sin, vjp=lambda x, w: w * np.cos(x))

    fast, slow = (examine(rule, np.linspace(0, 1, 3), fast_mode=fast) for fast in (True, False))

    assert "projected" == fast.provenance.mode
    assert "full" == slow.provenance.mode


def test_projected_runs_on_the_strictest_namespace(strictest):
    x = strictest.asarray(np.linspace(0.1, 1, 300))

    def wrong(x, w):
        g = w / x
        g[250] = 0.0
        return g

    right = examine(ByHand(strictest.log, vjp=lambda x, w: w / x), x, mode="projected")
    named = examine(ByHand(strictest.log, vjp=wrong), x, mode="projected")

    assert right.verdict is Verdict.PASS
    assert named.findings[0].entry == "d out[250] / d inputs[0][250]"
