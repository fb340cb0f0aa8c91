"""Functions in float64 that round a part to float32 inside are judged by that, at every seed.

Neither their values nor their derivatives have fewer digits than float64, and derivatives by hand
say nothing of dtypes. Each right rule passes in both modes, and one with a mistake fails.
"""

import numpy as np
import pytest
from scenarios import seeds

from adjudge import ByHand, Status, Verdict, examine

MATRIX = np.random.default_rng(5).normal(size=(6, 6)).astype(np.float32)


def single(a):
    return np.asarray(a).astype(np.float32)


def gate(x):
    return np.tanh(single(x)).astype(float) * x


def gate_slope(x):
    y = np.tanh(single(x)).astype(float)
    return y + (single(x) * (1 - single(y) ** 2)).astype(float)


def norm(x):
    return float(np.sqrt(np.sum(single(x) ** 2, dtype=np.float32)))


def normed_vjp(part):
    return lambda x, w: w / norm(x) - part * single(x / norm(x)) * float(w @ x) / norm(x) ** 2


def softmax(x):
    e = np.exp(single(x) - single(x).max())
    return (e / e.sum(dtype=np.float32)).astype(float)


def log_sum(x):
    return float(np.log(np.sum(np.exp(single(x)), dtype=np.float32)))


RULES = {
    "a gate": (
        lambda x: gate(x),
        lambda x, w: gate_slope(x) * w,
        lambda x, w: gate_slope(x) * w * 1.01,
        lambda x, v: gate_slope(x) * v,
    ),
    "a norm": (
        lambda x: x / norm(x),
        normed_vjp(1.0),
        normed_vjp(0.98),
        lambda x, v: v / norm(x) - x * float(single(x) @ single(v)) / norm(x) ** 3,
    ),
    "a product": (
        lambda x: (MATRIX @ single(x)).astype(float) * np.cos(x),
        lambda x, w: (MATRIX.T @ single(w * np.cos(x))) - (MATRIX @ single(x)) * np.sin(x) * w,
        lambda x, w: (MATRIX @ single(w * np.cos(x))) - (MATRIX @ single(x)) * np.sin(x) * w,
        lambda x, v: (MATRIX @ single(v)) * np.cos(x) - (MATRIX @ single(x)) * np.sin(x) * v,
    ),
    "a number": (
        lambda x: log_sum(x) * x,
        lambda x, w: w * log_sum(x) + softmax(x) * (w @ x),
        lambda x, w: w * log_sum(x) + (w @ x) / x.size,
        lambda x, v: v * log_sum(x) + x * (softmax(x) @ v),
    ),
}


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("name", RULES)
def test_what_rounds_to_float32_inside_is_judged_by_that(name, seed):
    f, vjp, wrong, jvp = RULES[name]
    x = np.random.default_rng(seed).normal(size=6)

    def double(rule):
        return lambda *a: np.asarray(rule(*a), float)

    def judged(rule, *, forward):
        given = {"jvp": double(jvp)} if forward else {}
        f_by_hand = ByHand(f, vjp=double(rule), **given)
        return examine(f_by_hand, x, check_forward_ad=forward, seed=seed, blame=False).verdict

    assert judged(vjp, forward=True) is Verdict.PASS
    assert judged(wrong, forward=seed % 2 == 0) is Verdict.FAIL


@pytest.mark.parametrize("seed", seeds(10))
def test_three_steps_over_which_a_number_stands_still_prove_nothing(seed):
    f, vjp, wrong, _ = RULES["a number"]
    x = np.random.default_rng(seed).normal(size=100)

    verdicts = [examine(ByHand(f, vjp=rule), x, seed=seed).verdict for rule in (vjp, wrong)]

    assert [Verdict.PASS, Verdict.FAIL] == verdicts


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("scale", [1e-5, 1e-4, 1e-3])
def test_what_cancels_in_float64_is_not_taken_for_a_zero_of_float32(scale, seed):
    x = np.random.default_rng(seed).uniform(0.5, 1.5, 3 + 5 * (seed % 2)) * scale
    factors = np.where(np.arange(x.size) == 1, 1.3, 1.0)
    # the derivative of (1 - cos x) / x^2, by its series, and with one wrong entry
    slope = -x / 12 + x**3 / 180

    right = examine(ByHand(cancelling, vjp=lambda x, w: w * slope), x, seed=seed)
    off = ByHand(cancelling, vjp=lambda x, w: w * slope * factors)
    wrong = examine(off, x, seed=seed, blame=False)

    assert right.verdict is not Verdict.FAIL
    assert wrong.verdict is not Verdict.PASS, str(wrong)


def cancelling(x):
    return (1 - np.cos(x)) / x**2


def logarithm(A):
    values, vectors = np.linalg.eigh((A + A.T) / 2)
    return (vectors * np.log(values)) @ vectors.T


def logarithm_vjp(A, w):
    """By the divided differences of Daleckii and Krein."""
    values, vectors = np.linalg.eigh((A + A.T) / 2)
    gaps, one = values[:, None] - values, np.eye(len(values))
    slopes = np.log1p(gaps / values) / np.where(one, 1.0, gaps) + one / values
    whole = vectors @ (slopes * (vectors.T @ (w + w.T) @ vectors / 2)) @ vectors.T
    return (whole + whole.T) / 2


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("least", [3e-5, 1e-4, 3e-4])
def test_a_function_near_a_pole_does_not_compute_in_float32_inside(least, seed):
    """Over some steps it is as far from its polynomial as that would put it; over shorter ones it
    is not.
    """
    Q = np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))[0]
    A = (Q * [1, 1 + 1e-5, 2, least]) @ Q.T
    for part, right in ((0.0, Verdict.PASS), (1e-4, Verdict.FAIL)):
        rule = ByHand(logarithm, vjp=lambda A, w, part=part: (1 + part) * logarithm_vjp(A, w))
        report = examine(rule, (A + A.T) / 2, seed=seed, blame=False)
        assert report.verdict is right, report
        assert not [found for found in report.findings if found.status is Status.IMPRECISE]


@pytest.mark.parametrize("seed", seeds(10))
def test_a_fast_function_beside_a_large_one_does_not_compute_in_float32_inside(seed):
    """Where x is smaller it is as noisy over one step, and by far noisier over the other."""
    x = np.random.default_rng(0).normal(size=(3, 5)) * 1e6
    rule = ByHand(lambda x: np.sin(x) - x, vjp=lambda x, w: w * (np.cos(x) - 1))
    report = examine(rule, x, seed=seed, blame=False)

    assert report.verdict is not Verdict.FAIL, report
    assert not [found for found in report.findings if found.status is Status.IMPRECISE]
