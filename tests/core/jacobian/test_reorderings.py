"""Functions whose inputs change places over the steps that are taken, as those of a sort do."""

import numpy as np
import pytest
from scenarios import over_seeds

from adjudge import ByHand, Verdict, examine


@over_seeds(15)
@pytest.mark.parametrize("shape", [(200, 50), (300, 30)])
def test_reorderings_between_points_are_no_noise(shape, seeds):
    """All steps that show the small entries cross some, and the longest of them were believed."""

    def sorted_squares(x):
        return np.sort(x, axis=0) ** 2

    def vjp(x, w):
        order, g = np.argsort(x, axis=0), np.zeros_like(x)
        np.put_along_axis(g, order, 2 * np.take_along_axis(x, order, 0) * w, 0)
        return g

    x = np.random.default_rng(2).normal(size=shape)
    for seed in seeds:
        assert examine(ByHand(sorted_squares, vjp=vjp), x, seed=seed).verdict is Verdict.PASS
