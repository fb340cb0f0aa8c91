"""NumPy warns in the code of the user as the user set it, and not in that of the library."""

import warnings

import numpy as np
import pytest

from adjudge import ByHand, Verdict, examine

X = np.array([0.3, 0.4])
LARGE = np.array([1e308])


def overflows(x):
    _ = LARGE * 10
    return np.sin(x)


def rule(x, w):
    return w * np.cos(x)


def test_a_warning_of_the_function_is_shown_and_the_state_is_as_before():
    before = np.geterr()
    with pytest.warns(RuntimeWarning, match="overflow"):
        report = examine(ByHand(overflows, vjp=rule), X)

    assert report.verdict is Verdict.PASS
    assert np.geterr() == before


def test_a_function_raises_where_the_user_asked_numpy_to():
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        examine(ByHand(overflows, vjp=rule), X)


def test_a_warning_of_the_derivative_is_shown():
    def loud(x, w):
        _ = LARGE * 10
        return rule(x, w)

    with pytest.warns(RuntimeWarning, match="overflow"):
        examine(ByHand(np.sin, vjp=loud), X)


@pytest.mark.parametrize("value", [1e300, -1e308, np.inf, np.nan])
def test_no_derivative_makes_the_library_warn(value):
    def meaningless(x, w):
        g = rule(x, w)
        g[0] = value
        return g

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = examine(ByHand(np.sin, vjp=meaningless), X)

    assert report.verdict is Verdict.FAIL
