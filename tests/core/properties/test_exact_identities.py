"""Identities that need no differences, with errors planted that are too small for differences."""

import numpy as np
import pytest
from scenarios import over_seeds, seeds

from adjudge import ByHand, Status, Verdict, examine, gradgradcheck
from adjudge.findings import AffineOff, Asymmetric

RANDOM = np.random.default_rng(0)
A = RANDOM.normal(size=(20, 30))
X = RANDOM.normal(size=30)


def check(rule, x, *modes, **options):
    """`examine` with everything that is on where modes are named."""
    return examine(rule, x, modes=list(modes), seed=1, **options)


def statuses(report):
    return [finding.status for finding in report.findings]


# -- <w, J v> = <J* w, v>


def sine(factor=1.0, entry=slice(None)):
    def jvp(x, v):
        pushed = np.cos(x) * v
        pushed[entry] *= factor
        return pushed

    return ByHand(np.sin, vjp=lambda x, w: np.cos(x) * w, jvp=jvp)


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_modes_that_differ_by_1e_10_are_inconsistent(mode):
    report = check(sine(1 + 1e-10), X, "R", "F", mode=mode)

    assert [Status.INCONSISTENT] == statuses(report)
    assert "forward and reverse mode disagree" in str(report)


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_modes_that_agree_to_rounding_pass(mode):
    assert check(sine(), X, "R", "F", mode=mode)


def saturated(sines, factor=1.0):
    """A softmax of which one entry is 1 to rounding, with `sines` times a sine beside it, whose jvp
    is off by `factor`.
    """

    def softmax(x):
        e = np.exp(50 * (x - x.max()))
        return e / e.sum()

    def f(x):
        return np.concatenate([50 * softmax(x), sines * np.sin(x)])

    def vjp(x, w):
        p, (u, v) = softmax(x), np.split(w, 2)
        return 2500 * (p * u - p * (p @ u)) + sines * np.cos(x) * v

    def jvp(x, t):
        p = softmax(x)
        return np.concatenate([2500 * p * (t - p @ t), factor * sines * np.cos(x) * t])

    return ByHand(f, vjp=vjp, jvp=jvp)


TAIL = np.array([0.3, -1.2, 0.7, 2.0, -0.4, 1.1, 0.05])


@pytest.mark.parametrize("seed", seeds(10))
def test_modes_agree_to_the_rounding_of_an_output_that_stands_still(seed):
    alone, beside, wrong = (
        examine(rule, TAIL, modes=["R", "F"], seed=seed)
        for rule in (saturated(0), saturated(1), saturated(1, 1 + 1e-8))
    )

    assert Status.INCONSISTENT not in statuses(alone) + statuses(beside)
    assert Status.INCONSISTENT in statuses(wrong)


def test_the_pair_of_leaves_that_differs_is_named():
    def jvp(a, b, da, db):
        return np.cos(a) * da * b, (1 + 1e-9) * a * db + b * da

    def vjp(a, b, w):
        u, v = w
        return np.cos(a) * b * u + b * v, a * v

    rule = ByHand(lambda a, b: (np.sin(a) * b, a * b), vjp=vjp, jvp=jvp)
    right = ByHand(
        lambda a, b: (np.sin(a) * b, a * b),
        vjp=lambda a, b, w: (np.cos(a) * b * w[0] + b * w[1], np.sin(a) * w[0] + a * w[1]),
        jvp=lambda a, b, da, db: (np.cos(a) * da * b + np.sin(a) * db, a * db + b * da),
    )
    wrong = ByHand(
        right,
        vjp=right.vjp,
        jvp=lambda a, b, da, db: (right.jvp(a, b, da, db)[0], (1 + 1e-9) * a * db + b * da),
    )

    report = check(wrong, (X[:5], X[5:10]), "R", "F")
    disagreement = next(f for f in report.findings if f.status is Status.INCONSISTENT)

    assert disagreement.entry == "d out[1] / d inputs[1] along one random direction"
    assert check(right, (X[:5], X[5:10]), "R", "F")
    assert not check(rule, (X[:5], X[5:10]), "R", "F")


def inaccurate(values, amplified):
    """`values` with the rounding of numbers that many times as large."""
    return (values + amplified) - amplified


@pytest.mark.parametrize("seed", seeds(5))
def test_modes_that_differ_by_rounding_alone_are_not_inconsistent(seed):
    rule = ByHand(
        np.sin,
        vjp=lambda x, w: inaccurate(np.cos(x), 3e5 * np.abs(x)) * w,
        jvp=lambda x, v: np.cos(x) * v,
    )

    assert examine(rule, X, modes=["R", "F"], seed=seed)


# -- linearity of the jvp


def test_a_jvp_that_is_homogeneous_but_not_additive_is_nonlinear():
    def jvp(x, v):
        return np.cos(x) * np.where(np.abs(v) == np.abs(v).max(), 1.25 * v, v)

    report = check(ByHand(np.sin, jvp=jvp), X, "F")

    assert Status.NONLINEAR in statuses(report)
    assert "jvp(u + v) is not jvp(u) + jvp(v)" in str(report)
    assert check(ByHand(np.sin, jvp=lambda x, v: np.cos(x) * v), X, "F")


def test_a_jvp_that_is_not_zero_at_zero_is_nonlinear():
    report = check(ByHand(np.sin, jvp=lambda x, v: np.cos(x) * v + 1e-12), X, "F")

    assert Status.NONLINEAR in statuses(report)
    assert "a zero tangent gives 1e-12" in str(report)


def test_a_jvp_that_is_linear_over_the_reals_alone_passes():
    z = X[:5] + 1j * X[5:10]
    rule = ByHand(lambda z: np.conj(z) ** 2, jvp=lambda z, v: 2 * np.conj(z) * np.conj(v))

    assert check(rule, z, "F")


# -- symmetry of second derivatives

M = A.T @ A


def quadratic(H):
    """`x M x` whose second derivative is `2 H`."""
    return ByHand(
        lambda x: x @ M @ x,
        vjp=lambda x, w: w * 2 * M @ x,
        double_vjp=lambda x, w, u: (w * 2 * H @ u, 2 * (M @ x) @ u),
    )


def at(i, j, relative):
    H = M.copy()
    H[i, j] *= 1 + relative
    return H


def asymmetric(report):
    return [f for f in report.findings if isinstance(f.detail, Asymmetric)]


def test_a_second_derivative_that_is_wrong_and_symmetric_is_no_matter_of_symmetry():
    report = check(quadratic(1.01 * M), X, "RR")

    assert report.modes["RR"] is Verdict.FAIL
    assert [] == asymmetric(report)


def bent(H):
    """The sine of a form, whose second derivative is that of `x H x` but for a symmetric part."""

    def double_vjp(x, w, u):
        s, g = x @ M @ x / 50, M @ x / 25
        return w * (np.cos(s) * H @ u / 25 - np.sin(s) * g * (g @ u)), np.cos(s) * g @ u

    return ByHand(
        lambda x: np.sin(x @ M @ x / 50),
        vjp=lambda x, w: w * np.cos(x @ M @ x / 50) * M @ x / 25,
        double_vjp=double_vjp,
    )


def test_a_second_derivative_that_is_asymmetric_by_1e_9_is_inconsistent():
    # nothing is affine here, or the exact derivative of an affine gradient would show it, too
    report = check(bent(M + 1e-9 * (np.triu(M) - np.tril(M))), X, "RR")

    assert [Status.INCONSISTENT] == statuses(report)
    assert "<u, H v>" in str(report)
    assert "no differences are involved" in str(report)
    assert check(bent(M), X, "RR")


def test_a_whole_hessian_at_hand_is_compared_with_its_transpose_at_no_cost():
    skewed = M + 1e-9 * (np.triu(M) - np.tril(M))
    options = {"mode": "full", "seed": 1, "raise_exception": False}

    right, wrong = (gradgradcheck(bent(H), X, **options) for H in (M, skewed))

    assert right
    assert asymmetric(wrong)
    without = gradgradcheck(bent(M), X, **options, rtol=1e-6, atol=1e-6)
    assert right.counts["vjps"] - right.counts["evaluations"] <= (
        without.counts["vjps"] - without.counts["evaluations"]
    )


@pytest.mark.parametrize("output", [0, 1])
def test_each_output_and_input_has_a_second_derivative_of_its_own(output):
    def double(a, b, w, u, factors=(1.0, 1.0)):
        one, two = (factor * each for factor, each in zip(factors, w, strict=True))
        s, c = np.sin(a * b), np.cos(a * b)
        mixed = [w[0] * (c - a * b * s), 2 * w[1] * a]
        skew = [one * (c - a * b * s), 2 * two * a]
        of_a = u[0] * (-w[0] * b * b * s + 2 * w[1] * b) + u[1] * sum(mixed)
        of_b = u[0] * sum(skew) - u[1] * w[0] * a * a * s
        of_w = (u[0] * b * c + u[1] * a * c, u[0] * 2 * a * b + u[1] * a * a)
        return of_a, of_b, of_w

    def vjp(a, b, w):
        c = np.cos(a * b)
        return w[0] * b * c + w[1] * 2 * a * b, w[0] * a * c + w[1] * a * a

    def rule(*factors):
        return ByHand(
            lambda a, b: (np.sin(a * b), a * a * b),
            vjp=vjp,
            double_vjp=lambda a, b, w, u: double(a, b, w, u, factors),
        )

    factors = [1.0, 1.0]
    factors[output] += 1e-8
    report = check(rule(*factors), (X[:3], X[3:6]), "RR")

    assert check(rule(1.0, 1.0), (X[:3], X[3:6]), "RR")
    assert [f"<grad_outputs[{output}], f>"] == sorted({f.detail.of for f in asymmetric(report)})


# -- affine functions


def linear(factor=1.0, constant=0.0, dtype=np.float64):
    matrix = A.astype(dtype)
    return ByHand(
        lambda x: matrix @ x + dtype(constant),
        vjp=lambda x, w: (matrix.T @ w) * dtype(factor),
        jvp=lambda x, v: (matrix @ v) * dtype(factor),
    )


@pytest.mark.parametrize("mode", ["R", "F"])
@pytest.mark.parametrize("seed", seeds(5))
def test_a_linear_function_is_checked_to_rounding(mode, seed):
    right = examine(linear(), X, modes=[mode], seed=seed)
    wrong = examine(linear(1 + 1e-12), X, modes=[mode], seed=seed)

    assert right
    assert [Status.MISMATCH] == statuses(wrong)
    assert "the function is affine there" in wrong.headline
    assert wrong.modes[mode] is Verdict.FAIL


def test_in_single_precision_by_itself_too():
    x = X.astype(np.float32)

    assert check(linear(dtype=np.float32), x, "R", in_double=False)
    assert not check(linear(1 + 5e-4, dtype=np.float32), x, "R", in_double=False)
    assert check(linear(dtype=np.float32), x, "R")
    assert not check(linear(1 + 1e-5, dtype=np.float32), x, "R")


def test_a_constant_of_any_size_hides_what_it_hides():
    for constant in (1e3, 1e8, 1e16):
        assert Verdict.FAIL is not check(linear(constant=constant), X, "R").verdict
    assert Verdict.FAIL is check(linear(1 + 1e-6, 1e3), X, "R").verdict


def test_a_function_that_is_linear_in_one_input_only_is_exact_in_that():
    def rule(one, two):
        return ByHand(
            lambda a, b: np.sin(a) * b,
            vjp=lambda a, b, w: (one * w * np.cos(a) * b, two * w * np.sin(a)),
        )

    x = X[:8], X[8:16]

    assert check(rule(1, 1), x, "R")
    assert check(rule(1 + 1e-12, 1), x, "R")  # differences do not show this
    report = check(rule(1, 1 + 1e-12), x, "R")
    named = ["d out / d inputs[1] along one random direction"]
    assert named == [f.entry for f in report.findings]


NOT_AFFINE = {
    "relu": (lambda x: np.maximum(x, 0), lambda x, w: (x > 0) * w, X),
    "sine at zero": (np.sin, lambda x, w: np.cos(x) * w, np.zeros(5)),
    "cube at zero": (lambda x: x**3, lambda x, w: 3 * x * x * w, np.zeros(5)),
    "clip": (lambda x: np.clip(x, -1, 1), lambda x, w: (np.abs(x) < 1) * w, X),
    "slowly bent": (lambda x: x + 1e-9 * x * x, lambda x, w: w * (1 + 2e-9 * x), X),
    "staircase and slope": (lambda x: x + 0.1 * np.floor(4 * x), lambda x, w: w, X + 0.01),
    "bent far away": (lambda x: np.where(x > 5, x * x, x), lambda x, w: w, X[:3]),
    "even": (np.abs, lambda x, w: np.sign(x) * w, X),
}


@pytest.mark.parametrize("name", NOT_AFFINE)
@pytest.mark.parametrize("seed", range(4))
def test_what_is_straight_near_x_only_is_not_taken_for_affine(name, seed):
    f, vjp, x = NOT_AFFINE[name]

    report = examine(ByHand(f, vjp=vjp), x, modes=["R"], seed=seed)

    assert Verdict.FAIL is not report.verdict, str(report)


def raising(x):
    if np.any(np.abs(x - X[:5]) > 0.1):
        raise ValueError("out of the domain")
    return 3 * x


@pytest.mark.parametrize("f", [raising, lambda x: np.where(np.abs(x - X[:5]) > 0.1, np.nan, 3 * x)])
def test_a_function_that_is_not_defined_far_off_is_not_claimed_to_be_affine(f):
    report = check(ByHand(f, vjp=lambda x, w: 3 * w * (1 + 1e-11)), X[:5], "R", mode="projected")

    assert report


def test_long_steps_keep_to_the_bounds():
    seen = []

    def f(x):
        seen.append(x.copy())
        return 3 * x

    x = np.linspace(0.2, 0.8, 7)
    report = check(ByHand(f, vjp=lambda x, w: 3 * w), x, "R", bounds=(0.1, 0.9))

    assert report
    assert 0.1 <= np.min(seen) <= np.max(seen) <= 0.9


@pytest.mark.parametrize("seed", seeds(5))
def test_rounding_of_a_linear_rule_is_no_false_alarm(seed):
    rule = ByHand(lambda x: 3 * x, vjp=lambda x, w: inaccurate(3 * w, 3e5 * np.abs(w)))

    assert examine(rule, X, modes=["R"], seed=seed)


@pytest.mark.parametrize("n", [3, 1000, 100_000])
def test_long_sums_are_no_false_alarm(n):
    x = np.random.default_rng(n).normal(size=n)
    one = ByHand(lambda x: np.cumsum(x)[-1:] / 3, vjp=lambda x, w: np.full(x.shape, w[0] / 3))
    spread = ByHand(
        lambda x: np.broadcast_to(x, (n,)) * 1.1,
        vjp=lambda x, w: np.asarray([np.cumsum(w * 1.1)[-1]]),
    )
    all_of_it = ByHand(np.cumsum, vjp=lambda x, w: np.cumsum(w[::-1])[::-1])

    assert check(one, x, "R", mode="projected")
    assert check(spread, x[:1], "R", mode="projected")
    assert check(all_of_it, x, "R", mode="projected")


def hilbert(n):
    return 1 / (np.arange(n)[:, None] + np.arange(n) + 1.0)


@over_seeds(5, always=2)
@pytest.mark.parametrize("n", [3, 4, 6, 8, 10])
def test_an_ill_conditioned_linear_function_is_no_false_alarm(n, seeds):
    H, kept = hilbert(n), RANDOM.normal(size=(n, n))
    for matrix in (H, kept, kept @ H):
        rules = [
            lambda b, w, matrix=matrix: np.linalg.solve(matrix.T, w),
            lambda b, w, matrix=matrix: np.linalg.inv(matrix).T @ w,
        ]
        for vjp in rules:
            rule = ByHand(lambda b, matrix=matrix: np.linalg.solve(matrix, b), vjp=vjp)
            for seed in seeds:
                report = examine(rule, X[:n], modes=["R"], seed=seed, mode="projected")
                affine = [f for f in report.findings if isinstance(f.detail, AffineOff)]
                assert [] == affine, (seed, str(report))


def test_a_linear_function_costs_three_evaluations_more_and_others_none():
    def cost(rule):
        plain = examine(rule, X, seed=1, mode="projected").counts["evaluations"]
        return check(rule, X, "R", mode="projected").counts["evaluations"] - plain

    structure = cost(sine())  # what moves blocks of the input
    assert cost(linear()) <= structure + 3
