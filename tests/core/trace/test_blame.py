"""`blame` of derivatives by hand, which are one step, and of what cannot be recorded."""

import numpy as np
import pytest

import adjudge
from adjudge import ByHand, InputError, Verdict
from adjudge.trace.contributions import Direction, Part, cancelling
from adjudge.trace.steps import standing_at_kinks

X = (np.array([0.5, 1.0, 2.0]),)


def backward(x, w):
    return w * np.cos(x)


def wrong_backward(x, w):
    return -w * np.cos(x)


def test_a_right_rule_by_hand_is_not_blamed():
    report = adjudge.blame(ByHand(np.sin, vjp=backward), X)

    assert report
    assert (report.verdict, report.first, report.explained) == (Verdict.PASS, None, None)
    assert report.headline == "PASS: nothing is wrong in ByHand(sin)"
    assert "the function is one step, and its check took the work of " in str(report)


def test_a_wrong_rule_by_hand_is_named_with_its_line():
    report = adjudge.blame(ByHand(np.sin, vjp=wrong_backward), X)

    assert not report
    place = f"test_blame.py:{wrong_backward.__code__.co_firstlineno}"
    assert report.headline.startswith("FAIL: the rule at fault: vjp=wrong_backward (")
    assert report.headline.endswith(f"{place}), called once")
    assert "opposite sign" in str(report)
    assert report.to_dict()["judged"][0]["line"] == wrong_backward.__code__.co_firstlineno


def test_the_inputs_stay_as_they_are():
    x = np.array([0.5, 1.0])

    adjudge.blame(ByHand(np.sin, vjp=wrong_backward), (x,))

    assert x.tolist() == [0.5, 1.0]


def test_an_unknown_option_is_refused():
    with pytest.raises(TypeError, match=r"blame\(\) got an unexpected keyword argument 'sead'"):
        adjudge.blame(ByHand(np.sin, vjp=backward), X, sead=1)


def test_a_number_of_samples_without_meaning_is_refused():
    with pytest.raises(InputError, match="samples=0"):
        adjudge.blame(ByHand(np.sin, vjp=backward), X, samples=0)


def direction(whole, *steps):
    return Direction(whole, steps, Part(0, 0, 1), Part(0, 0, 1))


@pytest.mark.parametrize(
    ("whole", "steps", "chosen", "explained"),
    [
        (Part(1.0, 1e-9, 1), (Part(1.0, 1e-9, 1), None), [0], True),
        (Part(1.0, 1e-9, 1), (Part(0.5, 1e-9, 1), Part(0.5, 1e-9, 1)), [0], False),
        (Part(1.0, 1e-9, 1), (Part(0.5, 1e-9, 1), Part(0.5, 1e-9, 1)), [0, 1], True),
        (Part(1e-10, 1e-9, 1), (Part(1.0, 1e-9, 1),), [0], None),  # no error along this direction
        (Part(1.0, 0.1, 1), (Part(1.0, 0.1, 1),), [0], None),  # too rough
        (Part(float("nan"), 1e-9, 1), (Part(1.0, 1e-9, 1),), [0], None),
    ],
)
def test_a_rule_explains_an_error_that_is_gone_without_its_part(whole, steps, chosen, explained):
    assert direction(whole, *steps).explained_by(chosen) is explained


def test_a_contribution_that_is_not_a_number_stands_out():
    assert Part(float("nan"), 0, 1).stands_out
    assert not Part(1e-12, 1e-12, 1).stands_out


ROUGH = Part(1.0, 0.02, 1), Part(-0.99, 0.02, 1)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ([(1.0, -1.0), (0.5, -0.5)], {0, 1}),
        ([(1.0, -1.0), (0.5, 0.5)], set()),  # by chance, along one direction
        ([(1.0, 2.0, -1.0), (0.5, 7.0, -0.5)], {0, 2}),
        ([(1.0, 2.0, -3.0, 4.0), (0.5, 0.5, -1.0, 4.0)], {0, 1, 2}),
        ([(1.0,), (0.5,)], set()),
        ([(), ()], set()),
    ],
)
def test_cuts_cancel_where_their_parts_do_along_each_direction(columns, expected):
    found = [direction(Part(0, 0, 1), *(Part(v, 1e-9, 1) for v in column)) for column in columns]

    assert cancelling(found, range(len(columns[0]))) == expected


def test_parts_that_are_rough_cancel_nothing():
    assert cancelling([direction(Part(0, 0, 1), *ROUGH)], [0, 1]) == set()


def test_steps_that_stand_at_a_kink_are_those_whose_check_says_so():
    at_zero = adjudge.examine(ByHand(np.abs, vjp=lambda x, w: w * np.sign(x)), (np.zeros(2),))
    smooth = adjudge.examine(ByHand(np.sin, vjp=backward), X)

    assert standing_at_kinks({7: at_zero, 4: smooth}) == [7]
