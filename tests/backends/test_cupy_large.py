"""Large arrays on simulated devices: little is fetched from them."""

import numpy as np
import pytest

import adjudge
from adjudge import Verdict
from adjudge.limits import limited

SIZE = 4000
CURVED = 40.0
"""Two evaluations do not settle sin(40 x)."""


@pytest.fixture(autouse=True)
def large():
    """Arrays of this size count as large."""
    with limited(large=SIZE):
        yield


def kernels(machine, wrong=None):
    """`sin(40 x)`, elementwise kernels on the current device; `wrong`: an entry that is zeroed."""

    def forward(x, y):
        y[...] = np.sin(CURVED * x)

    def backward(x, w, g):
        g[...] = CURVED * w * np.cos(CURVED * x)
        if wrong is not None:
            g[wrong] = 0.0

    launched, empty = machine.RawKernel, machine.cupy.empty

    def f(x):
        y = empty(x.shape, x.dtype)
        launched(forward)((1,), (1,), (x, y))
        return y

    def vjp(x, w):
        g = empty(x.shape, x.dtype)
        launched(backward)((1,), (1,), (x, w, g))
        return g

    return adjudge.ByHand(f, vjp=vjp)


def on(machine, device, seed=0):
    with machine.Device(device):
        return machine.cupy.asarray(np.random.default_rng(seed).normal(size=SIZE))


@pytest.mark.parametrize("device", [0, 1])
@pytest.mark.parametrize("wrong", [None, SIZE - 1])
def test_a_pair_of_kernels_is_judged(wrong, device, cupy):
    report = adjudge.examine(kernels(cupy, wrong), on(cupy, device), seed=0)

    assert report.verdict is (Verdict.PASS if wrong is None else Verdict.FAIL), report
    if wrong is not None:
        assert f"inputs[0][{wrong}]" in str(report)


def test_inputs_of_two_devices_stay_where_they_are(cupy):
    one, two = kernels(cupy), kernels(cupy)

    def f(x, y):
        with y.device:
            other = two(y)
        return one(x), other

    def vjp(x, y, w):
        found = [None, None]
        for k, (rule, z) in enumerate([(one, x), (two, y)]):
            if w[k] is not None:
                with z.device:
                    found[k] = rule.vjp(z, w[k])
        return tuple(found)

    report = adjudge.examine(adjudge.ByHand(f, vjp=vjp), (on(cupy, 0), on(cupy, 1, seed=1)), seed=0)

    assert report.verdict is Verdict.PASS, report
    assert "cuda:0+cuda:1" in str(report)


def test_a_right_rule_takes_no_ladder(cupy):
    before = cupy.counts["bytes_to_host"]

    report = adjudge.examine(kernels(cupy), on(cupy, 0), seed=0)

    assert report
    assert "Richardson ladder" not in report.stages
    fetched = (cupy.counts["bytes_to_host"] - before) / (8 * SIZE)
    assert fetched < 18, fetched  # four evaluations, and what is asked of the whole arrays
