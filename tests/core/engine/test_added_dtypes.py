"""Arrays of NumPy with dtypes of `ml_dtypes`, of which NumPy has no `isdtype` and no `finfo`."""

import numpy as np
import pytest
from scenarios import over_seeds

from adjudge import ByHand, InputError, Verdict, examine

ml_dtypes = pytest.importorskip("ml_dtypes")
NARROW = ["bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]


def wide(x):
    return x if x.dtype == np.float64 else x.astype(np.float32)


FUNCTIONS = {
    "sin": (np.sin, np.cos),
    "square": (lambda x: x * x, lambda x: 2 * x),
    "softplus": (lambda x: np.log1p(np.exp(x)), lambda x: 1 / (1 + np.exp(-x))),
    "tanh": (np.tanh, lambda x: 1 - np.tanh(x) ** 2),
    "silu": (
        lambda x: x / (1 + np.exp(-x)),
        lambda x: (1 + x / (1 + np.exp(x))) / (1 + np.exp(-x)),
    ),
}  # fmt: skip


def by_hand(name, factor):
    f, derivative = FUNCTIONS[name]
    return ByHand(
        lambda x: f(wide(x)).astype(x.dtype),
        vjp=lambda x, w: (factor * wide(w) * derivative(wide(x))).astype(x.dtype),
    )


@over_seeds(10)
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_narrow_array_is_judged_by_its_formula_in_float64(name, dtype, seeds):
    for seed in seeds:
        x = np.random.default_rng(seed).normal(size=24).astype(getattr(ml_dtypes, dtype))

        assert examine(by_hand(name, 1), x, seed=seed).verdict is Verdict.PASS
        for factor in (1.05, -1, 0):
            wrong = examine(by_hand(name, factor), x, seed=seed, blame=False)
            assert wrong.verdict is Verdict.FAIL


@pytest.mark.parametrize("dtype", ["int4", "float8_e3m4"])
def test_other_dtypes_are_an_input_error(dtype):
    with pytest.raises(InputError, match=f"no input has a floating.*{dtype}"):
        examine(by_hand("sin", 1), np.ones(3).astype(getattr(ml_dtypes, dtype)))


def test_an_array_of_another_such_dtype_may_stand_beside_one_that_is_checked():
    rule = ByHand(lambda x, k: x * k.astype(float), vjp=lambda x, k, w: (w * k.astype(float), None))

    report = examine(rule, (np.arange(3.0), np.ones(3).astype(ml_dtypes.int4)))

    assert report.verdict is Verdict.PASS
