"""What must hold exactly whatever f is: linearity, zero at zero, repeatability."""

import itertools

import numpy as np
import pytest
from scenarios import seeds

from adjudge import ByHand, Status, Verdict, examine
from adjudge.report import text_of

X = np.asarray([0.3, -1.2, 2.0])


def statuses(report):
    return [finding.status for finding in report.findings]


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_a_backward_not_multiplied_by_its_cotangent_is_nonlinear(mode):
    report = examine(ByHand(np.sin, vjp=lambda x, w: np.cos(x)), X, mode=mode)

    assert Status.NONLINEAR in statuses(report)
    assert "not multiplied by its cotangent" in str(report)
    assert report.verdict is Verdict.FAIL


NONLINEAR = {
    "absolute value": lambda x, w: np.abs(w) * np.cos(x),
    "clipped": lambda x, w: np.clip(w, -0.6, 0.6) * np.cos(x),
    "clipped from one side": lambda x, w: np.minimum(w, 0.4) * np.cos(x),
    "affine": lambda x, w: w * np.cos(x) + 1e-3,
    "normed": lambda x, w: w / np.linalg.norm(w) * np.cos(x) if w.any() else w,
    "squared": lambda x, w: w * np.abs(w) * np.cos(x),
    "sign": lambda x, w: np.sign(w) * np.cos(x),
    "truncated": lambda x, w: np.trunc(w) * np.cos(x),
}


@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("name", NONLINEAR)
@pytest.mark.parametrize("seed", seeds(3))
def test_a_vjp_that_is_not_linear_in_its_cotangent_fails(name, mode, seed):
    report = examine(ByHand(np.sin, vjp=NONLINEAR[name]), X, mode=mode, seed=seed)

    assert Status.NONLINEAR in statuses(report)
    assert report.verdict is Verdict.FAIL


@pytest.mark.parametrize("n", [1, 2])
def test_a_scalar_function_has_its_linearity_checked_too(n):
    rule = ByHand(lambda x: x.sum(), vjp=lambda x, w: np.abs(w) * np.ones_like(x))

    report = examine(rule, X[:n], mode="full")

    assert Status.NONLINEAR in statuses(report)


def test_a_vjp_that_is_homogeneous_but_not_additive_is_nonlinear():
    def vjp(x, w):
        return np.where(np.abs(w) == np.abs(w).max(), w, 0.5 * w) * np.cos(x)

    report = examine(ByHand(np.sin, vjp=vjp), X, mode="full", seed=0)

    assert Status.NONLINEAR in statuses(report)
    assert "vjp(u + v) is not vjp(u) + vjp(v)" in str(report)


def test_rounding_in_a_linear_vjp_passes():
    random = np.random.default_rng(0)
    A = random.normal(size=(40, 40))
    rule = ByHand(lambda x: A @ (x / 3), vjp=lambda x, w: ((A.T @ w) * 0.1) / 0.3)

    report = examine(rule, random.normal(size=40))

    assert report.verdict is Verdict.PASS


def test_a_constant_term_of_rounding_size_is_no_zero():
    report = examine(ByHand(np.sin, vjp=lambda x, w: w * np.cos(x) + 1e-20), X)

    assert Status.NONLINEAR in statuses(report)


def test_an_infinite_local_derivative_is_nonfinite():
    with np.errstate(all="ignore"):
        report = examine(ByHand(lambda x: x * 1.0, vjp=lambda x, w: w * np.inf), X)

    assert report.verdict is Verdict.FAIL
    assert Status.NONFINITE in statuses(report)
    assert "zero times infinity" in str(report)


def drifting(step):
    state = itertools.count()
    return lambda x: np.sin(x) + step * next(state)


def test_a_function_with_a_hidden_state_is_nondeterministic():
    report = examine(ByHand(drifting(1e-9), vjp=lambda x, w: w * np.cos(x)), X)

    assert Status.NONDETERMINISTIC in statuses(report)
    assert report.verdict is Verdict.FAIL
    assert "nondet_tol=" in str(report)


def test_nondet_tol_allows_the_spread_and_no_more():
    rules = [ByHand(drifting(1e-12), vjp=lambda x, w: w * np.cos(x)) for _ in range(2)]

    allowed = examine(rules[0], X, nondet_tol=1e-10, atol=1e-4, rtol=1e-4)
    exceeded = examine(rules[1], X, nondet_tol=1e-13, atol=1e-4, rtol=1e-4)

    assert allowed.verdict is Verdict.PASS
    assert Status.NONDETERMINISTIC in statuses(exceeded)


def jittering(where, size, factor=1.0, offset=0.0):
    """`sin` of which the function or the rules differ by a part `size` from call to call, with
    rules that are off by a factor, or not linear by an offset.
    """
    # a generator in sight would be put back before each evaluation
    own = iter(np.random.default_rng(0).standard_normal, None)

    def noise(here, x):
        return 1 + size * np.asarray([next(own) for _ in x]) * (here in where)

    def rule(x, probe):
        return noise("rule", x) * factor * probe * np.cos(x) + offset * (probe > 0)

    return ByHand(lambda x: noise("f", x) * np.sin(x), vjp=rule, jvp=rule)


@pytest.mark.parametrize("where", [("f",), ("rule",), ("f", "rule")])
@pytest.mark.parametrize(("size", "x"), [(1e-6, X), (1e-6, np.linspace(0.5, 2, 50)), (1e-9, X)])
def test_nondet_tol_holds_for_identities(where, size, x):
    both = {"check_forward_ad": True, "nondet_tol": 100 * size}
    for seed in range(2):
        right = examine(jittering(where, size), x, seed=seed, **both)
        wrong = examine(jittering(where, size, 1.01), x, seed=seed, **both)
        bent = examine(jittering(where, size, offset=1000 * size), x, seed=seed, **both)

        # Differences of f at 1e-6 of noise leave open what an error bar of 1e-4 does.
        may_be_open = "f" in where and size > 1e-9
        assert right.verdict is Verdict.PASS or (may_be_open and right.verdict is not Verdict.FAIL)
        assert wrong.verdict is Verdict.FAIL
        assert bent.verdict is Verdict.FAIL
        assert Status.NONLINEAR in statuses(bent)
    strict = examine(jittering(where, size), x, seed=0, check_forward_ad=True)
    assert strict.verdict is Verdict.FAIL
    assert Status.NONDETERMINISTIC in statuses(strict)


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_a_vjp_with_a_hidden_state_is_nondeterministic(mode):
    def rule():
        state = itertools.count()
        return ByHand(np.sin, vjp=lambda x, w: w * np.cos(x) * (1 + 1e-12 * next(state)))

    strict = examine(rule(), X, mode=mode)
    loose = examine(rule(), X, mode=mode, nondet_tol=1e-6)

    assert Status.NONDETERMINISTIC in statuses(strict)
    assert loose.verdict is Verdict.PASS


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_no_identity_is_told_of_a_rule_that_differs_from_call_to_call(mode):
    for seed in range(5):
        noisy = examine(jittering(("rule",), 1e-3), X, seed=seed, mode=mode)
        bent = examine(jittering((), 0.0, offset=1e-3), X, seed=seed, mode=mode)

        assert Status.NONDETERMINISTIC in statuses(noisy)
        assert not {*statuses(noisy)} & {Status.INCONSISTENT, Status.NONLINEAR}
        assert Status.NONLINEAR in statuses(bent)


def test_a_finding_of_nondeterminism_shows_both_values_under_one_another():
    report = examine(ByHand(drifting(0.5), vjp=lambda x, w: w * np.cos(x)), X)
    finding = next(f for f in report.findings if f.status is Status.NONDETERMINISTIC)

    lines = text_of(finding).splitlines()

    assert finding.entry.startswith("out[")
    assert lines[1].startswith("  first   ")
    assert lines[2].startswith("  second  ")
