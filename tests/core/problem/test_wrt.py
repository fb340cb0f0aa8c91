"""`wrt=`: which inputs are checked."""

import numpy as np
import pytest

from adjudge import ByHand, InputError, Verdict, examine, gradcheck

A, B, C = np.asarray([0.5, 2.0]), np.asarray([1.0, -1.0]), np.asarray([3.0, 0.2])
TREE = ({"w": A, "deep": [B, {"n": 3}]}, C)
# the gradient of inputs[0]['w'] is right, the others are wrong
RULE = ByHand(
    lambda t, c: t["w"] * t["deep"][0] * c,
    vjp=lambda t, c, w: (
        {"w": w * t["deep"][0] * c, "deep": [0 * w, {"n": None}]},
        2 * w * t["w"] * t["deep"][0],
    ),
)


def wrong_inputs(report):
    return {entry.wrt.rpartition("[")[0] for entry in report.entries}


def test_without_it_every_array_is_checked():
    report = examine(RULE, TREE, mode="full")

    assert report.counts["comparisons"] == 2 * 6
    assert wrong_inputs(report) == {"inputs[0]['deep'][0]", "inputs[1]"}


@pytest.mark.parametrize(
    ("wrt", "wrong"),
    [
        (0, {"inputs[0]['deep'][0]"}),
        (1, {"inputs[1]"}),
        ("inputs[1]", {"inputs[1]"}),
        ("inputs[0]['w']", set()),
        (["inputs[0]['w']"], set()),
        ("inputs[0]['deep']", {"inputs[0]['deep'][0]"}),
        ("inputs[0]", {"inputs[0]['deep'][0]"}),
        ("inputs[0]['deep'][0]", {"inputs[0]['deep'][0]"}),
        (["inputs[0]['w']", 1], {"inputs[1]"}),
        ([0, 1], {"inputs[0]['deep'][0]", "inputs[1]"}),
        ("inputs", {"inputs[0]['deep'][0]", "inputs[1]"}),
    ],
)
def test_only_what_is_selected_is_checked(wrt, wrong):
    report = examine(RULE, TREE, wrt=wrt, mode="full")  # which names every wrong entry

    assert wrong == wrong_inputs(report)
    assert report.verdict is (Verdict.FAIL if wrong else Verdict.PASS)


def test_an_input_selected_twice_is_checked_once():
    report = examine(RULE, TREE, wrt=[0, "inputs[0]['w']", 0], mode="full")

    assert report.counts["comparisons"] == 2 * 4


def test_a_keyword_argument_is_selected_by_its_path():
    rule = ByHand(lambda x, *, s: x * s, vjp=lambda x, w, *, s: w * s)

    report = examine(rule, (A,), kwargs={"s": B}, wrt="inputs[0]")

    assert report.verdict is Verdict.PASS


@pytest.mark.parametrize(
    "wrt", [2, -1, "inputs[2]", "inputs[0]['v']", "w", "inputs[0]['w'", "inputs[0]['dee"]
)
def test_a_path_that_does_not_exist_lists_what_there_is(wrt):
    with pytest.raises(InputError) as caught:
        gradcheck(RULE, TREE, wrt=wrt)

    assert f"wrt={wrt!r} is no input" in caught.value.found
    for name in ("inputs[0]['w']", "inputs[0]['deep'][0]", "inputs[1]"):
        assert name in caught.value.found


def test_an_integer_cannot_be_selected():
    with pytest.raises(InputError, match=r"names inputs\[0\]\['deep'\]\[1\]\['n'\], which is int"):
        gradcheck(RULE, TREE, wrt="inputs[0]['deep'][1]")


def test_an_empty_selection_is_refused():
    with pytest.raises(InputError, match="wrt= selects nothing"):
        gradcheck(RULE, TREE, wrt=[])


def test_an_index_longer_than_another_is_no_prefix_of_it():
    many = tuple(np.asarray([float(k)]) for k in range(1, 12))
    rule = ByHand(
        lambda *x: sum(x),
        vjp=lambda *xw: tuple(xw[-1] if k == 1 else 0.0 * xw[-1] for k in range(11)),
    )

    report = examine(rule, many, wrt=1)

    assert report.verdict is Verdict.PASS
    assert report.counts["comparisons"] == 1
