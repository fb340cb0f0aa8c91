"""Tangents as they come in life: small ones, and ones that move several entries."""

import numpy as np
import pytest
from scenarios import over_seeds

from adjudge import ByHand, Status, Verdict, examine

X = np.linspace(0.3, 1.4, 5)


def right(x, v):
    return v * np.cos(x)


def several(x, v):
    """Is a hundredth off where several entries move."""
    return right(x, v) * (1.01 if np.count_nonzero(v) > 1 else 1.0)


def single(x, v):
    """Is a hundredth off where one entry alone moves."""
    return right(x, v) * (1.01 if np.count_nonzero(v) == 1 else 1.0)


def cut_off(below):
    def jvp(x, v):
        found = right(x, v)
        return np.where(np.abs(found) < below, 0.0, found)

    return jvp


WRONG = {
    "several": several,
    "single": single,
    "below 1e-6": cut_off(1e-6),
    "below 1e-2": cut_off(1e-2),
}


@over_seeds(10)
@pytest.mark.parametrize("mode", ["auto", "full", "projected"])
@pytest.mark.parametrize("size", [2, 5])
@pytest.mark.parametrize("name", WRONG)
def test_a_jvp_that_is_wrong_for_other_tangents_than_are_compared_fails(name, size, mode, seeds):
    x = X[:size]
    for seed in seeds:
        for beside in ({}, {"vjp": right}):
            rule = ByHand(np.sin, jvp=WRONG[name], **beside)
            report = examine(rule, x, seed=seed, mode=mode, blame=False)

            assert report.verdict is Verdict.FAIL, (seed, beside)
            assert {one.status for one in report.findings} & {Status.NONLINEAR, Status.MISMATCH}


@over_seeds(10)
@pytest.mark.parametrize("mode", ["auto", "full", "projected"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_right_jvp_passes(dtype, mode, seeds):
    for seed in seeds:
        for size in (1, 2, 5):
            rule = ByHand(np.sin, vjp=right, jvp=right)
            report = examine(rule, X[:size].astype(dtype), seed=seed, mode=mode)

            assert report.verdict is Verdict.PASS, str(report)
            assert not report.findings


@over_seeds(10, always=4)
def test_what_is_not_compared_at_an_entry_is_no_jump_there(seeds):
    """The derivative of an entry whose slope is rounding is zero, and its steps are jumps."""
    draw = np.random.default_rng(21)
    draw.random()
    sizes = [int(draw.integers(2, 8)) for _ in range(int(draw.integers(1, 4)))]
    hidden, outputs = int(draw.integers(2, 9)), int(draw.integers(1, 7))
    scales = [float(draw.choice([1, 1, 1, 1e-3, 1e2])) for _ in sizes]
    size = float(draw.choice([1, 1, 1e-6, 1e5]))
    draw.choice(11)
    weights = [
        draw.normal(size=(hidden, n)) / scale * (draw.random((hidden, n)) < draw.choice([0.5, 1.0]))
        for n, scale in zip(sizes, scales, strict=True)
    ]
    last = size * draw.normal(size=(outputs, hidden)) * (draw.random((outputs, hidden)) < 0.8)
    if draw.random() < 0.2:
        last[:, 0] *= 1e-4
    first, second, third = (one.astype(np.float32) for one in (*weights, last))
    x = tuple(
        (scale * draw.normal(size=n)).astype(np.float32)
        for n, scale in zip(sizes, scales, strict=True)
    )

    def inner(x, y):
        return first @ x + second @ y

    def slope(u):
        return (-2 * u / (1 + u * u) ** 2).astype(np.float32)

    def vjp(x, y, w):
        back = slope(inner(x, y)) * (third.T @ w)
        return first.T @ back, second.T @ back

    def double_vjp(x, y, w, u):
        at = inner(x, y)
        moved = first @ u[0] + second @ u[1]
        bend = ((6 * at * at - 2) / (1 + at * at) ** 3).astype(np.float32)
        back = bend * (third.T @ w) * moved
        return first.T @ back, second.T @ back, third @ (slope(at) * moved)

    rule = ByHand(
        lambda x, y: third @ (1 / (1 + inner(x, y) ** 2)).astype(np.float32),
        vjp=vjp,
        double_vjp=double_vjp,
    )
    for seed in seeds:
        report = examine(rule, x, seed=seed, modes=["RR"], thorough=True, mode="full")

        assert report.verdict is Verdict.PASS, str(report)


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


@over_seeds(10)
@pytest.mark.parametrize("thorough", [False, True])
@pytest.mark.parametrize("gaps", [(0.0, 40.0), (0.0, 60.0), (0.0, 35.0, 70.0)])
def test_a_saturated_softmax_is_additive(gaps, thorough, seeds):
    """Its largest output is one to the last bit, and absorbs the others the same everywhere."""

    def jvp(x, v):
        y = softmax(x)
        return y * (v - y @ v)

    for seed in seeds:
        x = np.array(gaps) + np.random.default_rng(seed).normal(size=len(gaps))
        rule = ByHand(softmax, jvp=jvp)
        report = examine(rule, x, seed=seed, thorough=thorough)
        assert report.verdict is not Verdict.FAIL, str(report)


def of_two(rule):
    """A softmax of the entries of two arrays; `rule` makes one tangent of theirs."""

    def jvp(a, b, da, db):
        y, v = softmax(np.concatenate([a, b])), rule(da, db)
        return (y * (v - y @ v)).astype(a.dtype)

    return ByHand(lambda a, b: softmax(np.concatenate([a, b])), jvp=jvp)


@over_seeds(10)
@pytest.mark.parametrize(
    ("largest", "dtype"), [(18, "float32"), (16, "float32"), (10, "float16"), (8, "float16")]
)
def test_a_saturated_softmax_of_two_arrays_is_the_sum_of_what_each_gives(largest, dtype, seeds):
    x = np.array([largest], dtype), np.array([0, 0.5], dtype)
    rule = of_two(lambda da, db: np.concatenate([da, db]))
    for seed in seeds:
        report = examine(rule, x, seed=seed, modes=["F"], blame=False)
        assert report.verdict is not Verdict.FAIL, str(report)


@over_seeds(10)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_softmax_that_forgets_one_tangent_beside_another_is_not_that_sum(dtype, seeds):
    x = np.array([3], dtype), np.array([0, 0.5], dtype)
    rule = of_two(lambda da, db: np.concatenate([da, 0 * db if np.any(da) else db]))
    for seed in seeds:
        report = examine(rule, x, seed=seed, modes=["F"], blame=False)
        assert report.verdict is Verdict.FAIL, str(report)
