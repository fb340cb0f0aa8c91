"""A FAIL of a function that iterates to a tolerance says so, with its size and what to do."""

import re

import numpy as np
import pytest
from scenarios import over_seeds

from adjudge import ByHand, Status, Verdict, examine

W = np.random.default_rng(0).normal(size=(6, 6)) / 5
X = np.linspace(-0.6, 0.9, 6)


def stopped(tolerance):
    """`z = tanh(W z + x)`, iterated until a step is short, with the vjp of the exact solution."""

    def forward(x):
        z, before = np.tanh(x), np.full_like(x, np.inf)
        while np.linalg.norm(z - before) > tolerance:
            z, before = np.tanh(W @ z + x), z
        return z

    def vjp(x, w):
        slope = 1 - forward(x) ** 2
        return slope * np.linalg.solve((np.eye(6) - slope[:, None] * W).T, w)

    return ByHand(forward, vjp=vjp)


def adaptive(tolerance):
    """`y' = -y^2` to t = 1 with steps by an estimate of their error, with the exact vjp."""

    def forward(y):
        t, h = 0.0, 0.25
        while t < 1:
            h = min(h, 1 - t)
            one = -(y**2)
            two = -((y + h * one) ** 2)
            error = np.max(np.abs(h * (two - one) / 2))
            if error < tolerance:
                t, y = t + h, y + h * (one + two) / 2
            h *= min(2.0, 0.8 * np.sqrt(tolerance / max(error, 1e-300)))
        return y

    return ByHand(forward, vjp=lambda y, w: w / (1 + y) ** 2)


def advice(report):
    return re.search(r"tolerance of about (\S+) .*atol=(\S+)", str(report), re.DOTALL)


@pytest.mark.parametrize(
    ("rule", "x", "tolerance"),
    [(stopped, X, 1e-3), (stopped, X, 1e-5), (adaptive, 1.2 + X, 1e-3)],
)
def test_the_tolerance_is_named_and_what_allows_it(rule, x, tolerance):
    for seed in range(4):
        report = examine(rule(tolerance), x, seed=seed)

        assert report.verdict is Verdict.FAIL
        assert Status.MISMATCH in [finding.status for finding in report.findings]
        about, atol = map(float, advice(report).groups())
        assert tolerance / 50 < about < tolerance * 20
        assert examine(rule(tolerance), x, seed=seed, atol=atol)


def test_the_tolerance_is_named_beside_an_input_that_is_right():
    solve = stopped(1e-5)
    rule = ByHand(
        lambda x, b: solve(x) * b,
        vjp=lambda x, b, w: (solve.vjp(x, w * b), w * solve(x)),
    )
    for seed in range(4):
        report = examine(rule, (X, 1.5 + X), seed=seed, mode="projected")

        assert report.verdict is Verdict.FAIL
        assert advice(report) is not None, str(report)


def test_a_tolerance_below_what_differences_show_passes():
    for seed in range(4):
        assert examine(stopped(1e-12), X, seed=seed)


def wrong_factor(x, w):
    return 1.01 * w * np.cos(x)


def wrong_formula(x, w):
    return w * np.cos(2 * x)


@pytest.mark.parametrize("vjp", [wrong_factor, wrong_formula])
def test_a_pattern_or_a_gross_error_is_not_put_down_to_an_iteration(vjp):
    for seed in range(4):
        report = examine(ByHand(np.sin, vjp=vjp), X, seed=seed)

        assert report.verdict is Verdict.FAIL
        assert advice(report) is None


def bisected(tolerance):
    """The root of `z + z^3 = x` by bisection, with the derivative of the exact one."""

    def forward(x):
        low, high = np.full_like(x, -4.0), np.full_like(x, 4.0)
        while (high - low).max() > tolerance:
            middle = (low + high) / 2
            below = middle + middle**3 < x
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return (low + high) / 2

    return ByHand(forward, vjp=lambda x, w: w / (1 + 3 * forward(x) ** 2))


@over_seeds(10)
def test_a_staircase_of_bisection_is_said_to_iterate(seeds):
    for seed in seeds:
        report = examine(bisected(1e-3), X, seed=seed)

        assert report.verdict is Verdict.FAIL
        assert "tolerance" in str(report), str(report)


@over_seeds(10)
def test_one_entry_that_converges_last_is_no_mistake_of_one_entry(seeds):
    """All others are exact to rounding, as those of a Newton iteration that stopped are."""

    def forward(x):
        return np.sin(x) + np.where(np.arange(6) == 3, 1e-8 * np.sin(40 * x), 0.0)

    for seed in seeds:
        report = examine(ByHand(forward, vjp=lambda x, w: w * np.cos(x)), X, seed=seed)

        assert report.verdict is Verdict.FAIL
        assert "iterates to a tolerance" in str(report), str(report)
