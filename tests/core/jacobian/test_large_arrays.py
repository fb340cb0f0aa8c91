"""Large arrays take an extrapolation before any ladder, and are judged no otherwise than small."""

import tracemalloc

import numpy as np
import pytest
from scenarios import seeds

from adjudge import ByHand, Status, Verdict, examine
from adjudge.limits import limited

SIZE = 3000


@pytest.fixture(autouse=True)
def large():
    """Arrays of this size count as large."""
    with limited(large=SIZE):
        yield


def forward(x):
    """Of a curvature that two evaluations show in many entries."""
    return x * np.exp(-x * x) + np.sin(40 * x)


def slope(x):
    return (1 - 2 * x * x) * np.exp(-x * x) + 40 * np.cos(40 * x)


def point(seed, shape=SIZE):
    return np.random.default_rng(seed).normal(size=shape)


def entry(k, error):
    """All ones, but for one entry."""
    factor = np.ones(SIZE)
    factor[k] += error
    return factor


RIGHT = {
    "elementwise": (forward, lambda x, w: w * slope(x), SIZE),
    "reduction": (lambda x: np.sum(forward(x)), lambda x, w: w * slope(x), SIZE),
    "matrix": (
        lambda x: np.sin(x @ x.T),
        lambda x, w: symmetric(w * np.cos(x @ x.T)) @ x,
        (50, 60),
    ),
    "complex": (lambda z: z * z, lambda z, w: 2 * np.conj(z) * w, SIZE),
}


def symmetric(w):
    return w + w.T


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_rule_takes_no_ladder(name, seed):
    f, vjp, shape = RIGHT[name]
    x = point(seed, shape)
    if name == "complex":
        x = x + 1j * point(seed + 10, shape)

    report = examine(ByHand(f, vjp=vjp), x, seed=seed)

    assert report.verdict is Verdict.PASS, str(report)
    assert report.counts["evaluations"] <= 6
    assert "Richardson ladder" not in report.stages


def test_only_large_arrays_are_extrapolated_first():
    rule = ByHand(forward, vjp=lambda x, w: w * slope(x))

    stages = examine(rule, point(1, SIZE - 1), seed=0).stages

    assert "one extrapolation" not in stages
    assert "Richardson ladder" in stages


WRONG = {
    "sign": lambda x, w: -w * slope(x),
    "1 + 1e-6": lambda x, w: (1 + 1e-6) * w * slope(x),
    "one entry": lambda x, w: w * slope(x) * entry(1234, 1e-3),
    "one zero": lambda x, w: w * slope(x) * entry(SIZE - 1, -1.0),
    "shifted": lambda x, w: w * np.roll(slope(x), 1),
    "zero": lambda x, w: 0 * w,
    "last entries": lambda x, w: w * slope(x) * (np.arange(SIZE) < SIZE - 30),
    "of another point": lambda x, w: w * slope(x + 1e-6),
}


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("name", WRONG)
def test_a_planted_error_fails(name, seed):
    report = examine(ByHand(forward, vjp=WRONG[name]), point(seed), seed=seed)

    assert report.verdict is Verdict.FAIL, str(report)
    if name == "one entry":
        assert "inputs[0][1234]" in str(report)


@pytest.mark.parametrize("factor", [1.0, 1.01, entry(77, 1.0)], ids=["right", "factor", "entry"])
def test_forward_mode(factor):
    rule = ByHand(forward, vjp=lambda x, w: w * slope(x), jvp=lambda x, v: v * slope(x) * factor)
    report = examine(rule, point(1) / 8, check_forward_ad=True, seed=0)

    right = np.all(factor == 1)
    assert report.verdict is (Verdict.PASS if right else Verdict.FAIL), str(report)
    assert report.modes["R"] is Verdict.PASS


@pytest.mark.parametrize("wrong", [False, True])
def test_entries_too_small_to_show_are_compared_by_themselves(wrong):
    """Half of the terms are a billionth of the others."""
    size = np.where(np.arange(SIZE) % 2, 1e-9, 1.0)
    factor = np.where((np.arange(SIZE) % 2 == 1) & wrong, 1.5, 1.0)
    rule = ByHand(lambda x: size * np.sin(x), vjp=lambda x, w: factor * w * size * np.cos(x))

    report = examine(rule, point(2) / 8, seed=0)

    assert report.verdict is (Verdict.FAIL if wrong else Verdict.PASS), str(report)


def test_a_kink_at_x_is_judged_beside_it():
    x = point(5)
    x[17] = 0.0

    report = examine(ByHand(lambda x: np.maximum(x, 0), vjp=lambda x, w: w * (x > 0)), x, seed=0)

    assert report.verdict is Verdict.PASS
    assert Status.NONSMOOTH in [finding.status for finding in report.findings]


def one_wrong(size, error):
    """The vjp of the sine with one wrong entry."""

    def vjp(x, w):
        gradient = w * np.cos(x)
        gradient[size // 3] *= 1 + error
        return gradient

    return vjp


MOST_ARRAYS = {"right": (0.0, 33), "by a lot": (1e-2, 52), "by a little": (3e-5, 110)}
"""What is wrong in one entry, and how many arrays of the size of x a check may take. The last one
goes through two ladders and the noise of f, whose values alone are 40 of them."""


@pytest.mark.parametrize("name", MOST_ARRAYS)
def test_the_memory_of_a_check_is_bounded(name, monkeypatch):
    size = 100_000
    error, most = MOST_ARRAYS[name]
    for module in ("floats", "estimate.stencils"):
        monkeypatch.setattr(f"adjudge.{module}.CHUNK", 2**12)
    rule, x = ByHand(np.sin, vjp=one_wrong(size, error)), point(0, size)
    examine(rule, x[: size // 3 + 1], seed=0)  # what is imported and kept once
    tracemalloc.start()

    report = examine(rule, x, seed=0)

    arrays = tracemalloc.get_traced_memory()[1] / x.nbytes
    tracemalloc.stop()
    assert report.verdict is (Verdict.FAIL if error else Verdict.PASS), str(report)
    assert ("Richardson ladder" in report.stages) == (name == "by a little")
    assert arrays < most, arrays


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("error", [0.0, 1e-3])
def test_an_entry_is_judged_beside_few_outputs_of_its_leaf(error, seed):
    """Also a complex one, in the second of two outputs of which the first has an odd size."""
    k = 7 * seed + 1

    def vjp(z, w):
        zero = np.zeros(SIZE)
        first, second = (zero if one is None else one for one in w)
        gradient = 2 * np.conj(z) * second
        gradient[k] *= 1 + error
        return gradient + np.cos(z.real) * first

    rule = ByHand(lambda z: (np.sin(z.real), z * z), vjp=vjp)
    z = point(seed) + 1j * point(seed + 10)

    report = examine(rule, z, seed=seed)

    assert report.verdict is (Verdict.FAIL if error else Verdict.PASS), str(report)
    if error:
        assert f"d out[1][{k}]" in str(report)
        assert f"inputs[0][{k}]" in str(report)
