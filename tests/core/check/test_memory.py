"""What a check of a large array takes: its peak in arrays of the size of x, counted by tracemalloc,
which sees every array of NumPy and no clock.
"""

import tracemalloc

import numpy as np
import pytest

import adjudge
from adjudge import Verdict

SIZE = 300_000
"""More than `limits.Limits.large`, and several times `floats.CHUNK`."""


def peak_of(vjp, leaves=1):
    """The verdict on a rule of the product of sines, and the peak of its check in arrays."""
    x = np.random.default_rng(0).uniform(0.5, 1.5, SIZE)
    inputs = tuple(np.split(x, leaves))

    def f(*inputs):
        return np.prod([np.sin(one) for one in inputs], axis=0) if leaves > 1 else np.sin(*inputs)

    rule = adjudge.ByHand(f, vjp=vjp)
    adjudge.examine(rule, tuple(one[:10] for one in inputs), blame=False)  # imports
    tracemalloc.start(1)
    try:
        before = tracemalloc.get_traced_memory()[0]
        report = adjudge.examine(rule, inputs, blame=False, seed=0)
        return report.verdict, (tracemalloc.get_traced_memory()[1] - before) / x.nbytes
    finally:
        tracemalloc.stop()


def one_entry(x, w):
    g = w * np.cos(x)
    g[x.size // 3 % x.size] *= 1.01
    return g


def of_two(a, b, w):
    return w * np.cos(a) * np.sin(b), 1.01 * w * np.sin(a) * np.cos(b)


@pytest.mark.parametrize(
    ("vjp", "leaves", "verdict", "most"),
    [
        (lambda x, w: w * np.cos(x), 1, Verdict.PASS, 15),
        (lambda x, w: 1.01 * w * np.cos(x), 1, Verdict.FAIL, 25),
        (lambda x, w: -w * np.cos(x), 1, Verdict.FAIL, 25),
        (one_entry, 1, Verdict.FAIL, 25),
        (of_two, 2, Verdict.FAIL, 25),
    ],
    ids=["right", "factor", "sign", "one entry", "one of two leaves"],
)
def test_a_check_holds_few_arrays_of_the_size_of_x(vjp, leaves, verdict, most):
    found, peak = peak_of(vjp, leaves)

    assert found is verdict
    assert peak < most


def test_what_a_rule_holds_is_counted():
    held = []

    def vjp(x, w):
        held.append([w.copy() for _ in range(4)])
        return w * np.cos(x)

    verdict, peak = peak_of(vjp)

    assert verdict is Verdict.PASS
    assert peak > 20
