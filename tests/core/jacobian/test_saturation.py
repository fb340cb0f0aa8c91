"""Derivatives below the rounding of f: neither a right nor a wrong one is claimed."""

import math

import numpy as np
import pytest
from scenarios import long, over_seeds

from adjudge import ByHand, Status, Verdict, examine

erf = np.vectorize(math.erf, otypes=[float])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


TAILS = {
    "sigmoid": (sigmoid, lambda x: np.exp(-x) / (1 + np.exp(-x)) ** 2, 40.0),
    "tanh": (np.tanh, lambda x: 1 / np.cosh(x) ** 2, 30.0),
    "1 - exp(-x)": (lambda x: 1 - np.exp(-x), lambda x: np.exp(-x), 50.0),
    "erf": (erf, lambda x: 2 / np.sqrt(np.pi) * np.exp(-(x**2)), 7.5),
    "1e14 + sin": (lambda x: 1e14 + np.sin(x), np.cos, 0.7),
}


@pytest.mark.parametrize("factor", [1.0, 2.0, -1.0])
@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("name", TAILS)
def test_what_f_cannot_show_stays_open_right_or_wrong(name, mode, factor):
    f, derivative, x = TAILS[name]
    rule = ByHand(f, vjp=lambda x, w: factor * derivative(x) * w)

    report = examine(rule, np.asarray([x]), mode=mode, seed=0)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert [Status.UNRESOLVED] == [finding.status for finding in report.findings]
    assert "cannot be seen in f: the rounding of f alone makes" in str(report)
    assert "pass reference=" in str(report)


@pytest.mark.parametrize("f", [sigmoid, lambda x: sigmoid(x) - 1], ids=["to 1", "to 0"])
def test_a_zero_in_a_tail_does_not_pass(f):
    for x in (*np.arange(28.0, 36.6, 0.3), 37.0, 40.0, 60.0, 300.0, 700.0):
        report = examine(ByHand(f, vjp=lambda x, w: 0 * w), np.asarray([x]), seed=0)

        allowed = {Verdict.INCONCLUSIVE} if x > 34 else {Verdict.INCONCLUSIVE, Verdict.FAIL}
        assert report.verdict in allowed, x


@over_seeds(10)
@pytest.mark.parametrize("f", [lambda x: x**2, lambda x: x**3, np.cosh, lambda x: 1 - np.cos(x)])
def test_a_zero_at_a_stationary_point_passes(f, seeds):
    for seed in seeds:
        center = np.random.default_rng(seed).uniform(-30, 30, 1)
        rule = ByHand(lambda x, c=center: f(x - c) + 7.0, vjp=lambda x, w: 0 * w)

        assert examine(rule, center, seed=seed).verdict is Verdict.PASS, seed


@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("size", [2, 8, 50])
def test_the_zero_gradient_of_a_cosine_of_parallel_vectors_passes(size, mode):
    """Near its top f moves by its rounding alone, and farther off it falls to both sides."""
    b = np.random.default_rng(size).normal(size=size)
    rule = ByHand(lambda a: a @ b / np.sqrt((a @ a) * (b @ b)), vjp=lambda a, w: 0 * a)

    for seed in range(2):
        assert examine(rule, 2 * b, mode=mode, seed=seed).verdict is Verdict.PASS
        assert examine(rule, b + 0.1 * b[::-1], mode=mode, seed=seed).verdict is Verdict.FAIL


def test_a_zero_that_f_contradicts_fails():
    report = examine(ByHand(sigmoid, vjp=lambda x, w: 0 * w), np.asarray([28.0]), seed=0)

    assert report.verdict is Verdict.FAIL


FLAT = {
    "relu": (lambda x: np.maximum(x, 0), [-0.1, -3.0, -5.0]),
    "relu with an offset": (lambda x: np.maximum(x, 0) + 3.7, [-0.3, -0.2, -0.4]),
    "clip": (lambda x: np.clip(x, -1, 1), [1.0001, 2.5, -3.0]),
    "clip, far off": (lambda x: np.clip(x, -1, 1), [1e6, 2.5e6]),
    "round": (np.round, [0.3, 1.2, 5.4]),
    "step": (lambda x: 1.0 * (x > 0) + 1, [0.3, 1.2]),
    "stairs": (lambda x: np.round(x * 50) / 50, [0.3, 1.2]),
    "dropped": (lambda x: 0 * x, [0.3, 1.2]),
    "dropped, with an offset": (lambda x: 0 * x + 1, [0.3, 1.2]),
    "smooth step": (lambda x: (lambda t: t * t * (3 - 2 * t))(np.clip(x, 0, 1)), [1.5, 2.0]),
    "cosine": (np.cos, [0.0, 0.0]),
    "minimum": (lambda x: 5 + (x - 2) ** 4, [2.0, 2.0]),
    "inflection": (lambda x: 1 + x**3, [0.0, 0.0]),
    "noise around a constant": (lambda x: np.sin(x) ** 2 + np.cos(x) ** 2, [0.3, 1.2, 0.7]),
    "underflow": (np.exp, [-800.0]),
}


@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("name", FLAT)
def test_a_zero_where_f_is_flat_passes(name, mode):
    f, x = FLAT[name]

    report = examine(ByHand(f, vjp=lambda x, w: 0 * w), np.asarray(x), mode=mode, seed=0)

    assert report.verdict is Verdict.PASS, report


@pytest.mark.parametrize(("x", "most"), [([-5.0], 26), ([0.3], 34)])
def test_what_f_does_not_read_is_cheap(x, most):
    f = {-5.0: lambda x: np.maximum(x, 0), 0.3: lambda x: 0 * x + 1}[x[0]]

    report = examine(ByHand(f, vjp=lambda x, w: 0 * w), np.asarray(x), seed=0)

    assert report.counts["evaluations"] <= most


@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("large", [2, 100])
def test_a_tail_beside_larger_entries_is_a_note_and_is_not_claimed(large, mode):
    x = np.asarray([0.1] * large + [40.0])
    rule = ByHand(sigmoid, vjp=lambda x, w: np.exp(-x) / (1 + np.exp(-x)) ** 2 * w)

    report = examine(rule, x, mode=mode, seed=0)

    assert report.verdict is Verdict.PASS
    assert [True] == [finding.note for finding in report.findings]
    assert f"inputs[0][{large}]" in report.findings[0].detail.name
    assert "1 entry lies below the rounding of f" in str(report)
    assert report.power[1e-2] == pytest.approx(large / (large + 1))


def test_without_a_tail_there_is_no_note():
    x = np.random.default_rng(0).normal(size=50)
    rule = ByHand(sigmoid, vjp=lambda x, w: np.exp(-x) / (1 + np.exp(-x)) ** 2 * w)

    assert () == examine(rule, x, mode="projected", seed=0).findings


# ---------------------------------------------------------------- constants that tower

TOWERS = {
    "right": 1.0,
    "factor": 2.0,
    "sign": -1.0,
    "zero": 0.0,
    "1e-3": 1.001,
    "1e-6": 1 + 1e-6,
}


def masked(share, tower, factor, extra=0.0):
    """`sin`, but for a constant in some part of the outputs, as masks of -1e30 make it."""

    def held(x):
        return np.arange(x.size) % 12 < 12 * share

    return ByHand(
        lambda x: np.where(held(x), -tower + extra * x, np.sin(x)),
        vjp=lambda x, w: factor * np.where(held(x), extra * w, w * np.cos(x)),
        jvp=lambda x, v: factor * np.where(held(x), extra * v, v * np.cos(x)),
    )


@pytest.mark.parametrize(
    ("share", "forward"), [(1 / 12, False), (1 / 3, False), (1 / 3, True), (11 / 12, False)]
)
@pytest.mark.parametrize("tower", [1e6, long(1e12), 1e30])
@pytest.mark.parametrize("name", TOWERS)
def test_what_stands_still_hides_nothing(name, tower, share, forward):
    x = np.random.default_rng(0).normal(size=60)
    modes = {"check_forward_ad": forward, "check_backward_ad": not forward}

    report = examine(masked(share, tower, TOWERS[name]), x, seed=0, **modes)

    assert report.verdict is (Verdict.PASS if name == "right" else Verdict.FAIL), report


@pytest.mark.parametrize("tower", [1e12, 1e16, 1e30])
@pytest.mark.parametrize("factor", [1.0, 2.0, -1.0])
def test_a_derivative_that_is_claimed_of_what_stands_still_is_not_passed(factor, tower):
    report = examine(masked(1 / 3, tower, factor, extra=1.0), np.linspace(0.1, 1, 60), seed=0)

    assert report.verdict is not Verdict.PASS, report
    if factor == 1.0:  # right, for all that can be seen
        assert report.verdict is Verdict.INCONCLUSIVE, report


def cosine(a, b):
    return a @ b / np.sqrt((a @ a) * (b @ b))


def cosine_vjp(part):
    """The vjp of cosine similarity with this part of the projection onto each vector."""

    def vjp(a, b, w):
        length, y = np.sqrt((a @ a) * (b @ b)), cosine(a, b)
        gradients = ((b, a), (a, b))
        return tuple(w * (u / length - part * y * v / (v @ v)) for u, v in gradients)

    return vjp


@over_seeds(10)
@pytest.mark.parametrize("of_b", [1.0, -2.0])
@pytest.mark.parametrize("a", [(3.0, 4.0), (1.0, 1.0, 1.0), (1.0, 2.0, 2.0)])
def test_the_zero_of_cosine_similarity_at_parallel_vectors_is_shown_by_both_sides(a, of_b, seeds):
    """A tangent along the vectors hardly moves it, and leaves one seed of fifty open."""
    inputs = np.array(a), of_b * np.array(a)

    def verdicts(part):
        rule = ByHand(cosine, vjp=cosine_vjp(part))
        return [examine(rule, inputs, seed=seed, blame=False).verdict for seed in seeds]

    right = verdicts(1.0)
    assert Verdict.FAIL not in right
    assert right.count(Verdict.PASS) >= len(right) - 1
    assert set(verdicts(0.0)) == {Verdict.FAIL}
