"""What a report says of the errors that would have shown."""

import numpy as np
import pytest

from adjudge import ByHand, examine

WEIGHTS = np.logspace(0, -16, 80)
X = np.linspace(-1, 1, 80)


def rule(least):
    """A sum of sines that weigh less and less, of whose gradient the smallest entries are zero."""

    def vjp(x, w):
        return w * np.cos(x) * WEIGHTS * (WEIGHTS > least)

    return ByHand(lambda x: float(np.sin(x) @ WEIGHTS), vjp=vjp)


@pytest.mark.parametrize(("least", "zeros"), [(0.0, 0.0), (1e-12, 0.25)])
def test_entries_that_are_zero_are_not_among_those_in_which_an_error_would_show(least, zeros):
    report = examine(rule(least), X, seed=0)

    assert report.zeros == zeros
    said = f"(but for the {zeros:.0%} of the entries that are zero)"
    assert (said in str(report)) is (zeros > 0)
    assert report.to_dict()["zeros"] == zeros


def test_zeros_that_are_compared_one_by_one_are_not_left_out():
    report = examine(ByHand(np.sin, vjp=lambda x, w: w * np.cos(x)), X[:3], mode="full", seed=0)

    assert report.zeros > 0
    assert "that are zero" not in str(report)
