"""How far automatic numbers scatter beside x, and how many points that takes."""

import numpy as np
import pytest
from scenarios import seeds

from adjudge import ByHand
from adjudge.check.options import problem_of
from adjudge.jacobian.rounding import scatter

EPS = 2.0**-52


def cancelling(x):
    """The slope of `(1 - cos x) / x^2`, which loses more digits the smaller x is."""
    return np.sin(x) / x**2 - 2 * (1 - np.cos(x)) / x**3


def scattered(seed, until):
    """Returns what is found when `until` says that it is enough, or at last, and at how many points
    the slope was asked for.
    """
    x = np.array([1e-3, 1e-2, 1.0])
    problem = problem_of(ByHand(np.sin, vjp=lambda x, w: w * np.cos(x)), x, {})
    asked = []

    def take(point):
        asked.append(point)
        return cancelling(point)

    for found in scatter(problem, EPS, seed, None, take):
        if until(found):
            break
    return found, len(asked)


@pytest.mark.parametrize("seed", seeds(10))
def test_points_are_taken_until_what_was_found_is_enough(seed):
    whole, all_points = scattered(seed, lambda _: False)
    enough, fewer = scattered(seed, lambda found: np.any(found > 0))
    assert fewer < all_points
    assert np.any(enough > 0)
    assert np.all(enough <= whole)
