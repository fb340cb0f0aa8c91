"""Verdicts are the same for `c f` and for `x / c`, c a power of two or not."""

import numpy as np
import pytest
from scenarios import long

from adjudge import ByHand, Verdict, examine

FACTORS = [1e-12, 2.0**-40, 3e-7, 1.0, 2.0**20, 7.0]


def softmax(x):
    e = np.exp(x - np.max(x))
    return e / np.sum(e)


def softmax_vjp(x, w):
    y = softmax(x)
    return y * (w - np.sum(w * y))


MATRIX = np.random.default_rng(5).normal(size=(3, 4))
FUNCTIONS = {
    "softmax": (softmax, softmax_vjp, [0.3, -1.2, 0.8, 2.0]),
    "matmul": (
        lambda x: MATRIX.astype(x.dtype) @ x,
        lambda x, w: MATRIX.astype(x.dtype).T @ w,
        [0.3, -1.2, 0.8, 2.0],
    ),
    "elementwise": (np.sin, lambda x, w: w * np.cos(x), [0.3, -1.2, 0.8, 2.0]),
}


def scaled(name, of_f, of_x, error):
    f, vjp, _ = FUNCTIONS[name]

    def forward(x):
        kind = x.dtype.type
        return kind(of_f) * f(x / kind(of_x))

    def pullback(x, w):
        kind = x.dtype.type
        return kind(1 + error) * vjp(x / kind(of_x), kind(of_f) * w) / kind(of_x)

    return ByHand(forward, vjp=pullback)


@pytest.mark.parametrize(
    ("dtype", "error", "mode"),
    [
        (np.float64, 1e-4, "full"),
        (np.float64, 1e-4, "projected"),
        (np.float32, 1e-2, "projected"),
    ],
)
@pytest.mark.parametrize("factor", [*FACTORS[::2], *map(long, FACTORS[1::2])])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_verdict_does_not_depend_on_units(name, factor, dtype, error, mode):
    point = np.asarray(FUNCTIONS[name][2])
    seen = {
        (planted, of_f, of_x): examine(
            scaled(name, of_f, of_x, planted), (of_x * point).astype(dtype), mode=mode, seed=0
        ).verdict
        for planted in (0.0, error)
        for of_f, of_x in ((factor, 1.0), (1.0, factor))
    }

    expected = {key: Verdict.FAIL if key[0] else Verdict.PASS for key in seen}
    assert expected == seen
