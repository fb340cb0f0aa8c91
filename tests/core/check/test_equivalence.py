"""When two sides are one: to rounding, leaf by leaf, and finite alike."""

import numpy as np
import pytest

from adjudge.check.mode_matrix import near
from adjudge.engine.contract import ArrayInfo
from adjudge.problem.space import Leaf, Space

EPS = float(np.finfo(np.float64).eps)
SPACE = Space(
    tuple(Leaf(name, ArrayInfo((3,), "float64", "cpu"), (3,), False, EPS) for name in "ab")
)
POINT = np.array([1.0, 2.0, 3.0, 1e-9, 2e-9, 3e-9])


@pytest.mark.parametrize(
    ("k", "change", "alike"),
    [(0, 1e-14, True), (0, 1e-11, False), (3, 1e-23, True), (3, 1e-20, False), (5, np.nan, False)],
)
def test_each_leaf_is_compared_on_its_own_scale(k, change, alike):
    other = POINT.copy()
    other[k] += change

    assert near(SPACE, POINT, other) is alike
    assert near(SPACE, other, POINT) is alike


def test_what_is_not_finite_must_be_the_same():
    odd = POINT.copy()
    odd[[0, 4]] = np.nan, np.inf
    other = odd.copy()
    assert near(SPACE, odd, other)
    other[4] = -np.inf
    assert not near(SPACE, odd, other)
    other[4] = 1.0
    assert not near(SPACE, odd, other)
