"""Compositions as words: what an order stands for, and which rule the outcomes accuse."""

import numpy as np
import pytest

from adjudge import ByHand, InputError, Status, Verdict, examine
from adjudge.check.options import requested_modes
from adjudge.report.report import combined, conclusion, table_of

SECOND = ["R", "F", "RR", "FR", "RF", "FF"]


def outcomes(wrong="", rest=None):
    return (
        dict.fromkeys(SECOND, Verdict.PASS)
        | dict.fromkeys(wrong.split(), Verdict.FAIL)
        | (rest or {})
    )


def test_an_order_stands_for_all_words_up_to_it():
    assert requested_modes(1, None) == ["R", "F"]
    assert requested_modes(2, None) == SECOND
    third = ["RRR", "FRR", "RFR", "FFR", "RRF", "FRF", "RFF", "FFF"]
    assert requested_modes(3, None) == [*SECOND, *third]
    assert requested_modes(None, None) is None


def test_words_are_sorted_and_taken_once():
    assert requested_modes(None, ["FF", "R", "RR", "R"]) == ["R", "RR", "FF"]
    assert requested_modes(2, ("F", "FR")) == ["F", "FR"]


@pytest.mark.parametrize("order", [0, 4, -1, True, "2", 1.5])
def test_an_order_that_is_none_is_refused(order):
    with pytest.raises(InputError, match="order=") as raised:
        requested_modes(order, None)

    assert "from 1 to 3" in raised.value.remedy


def test_words_above_the_order_are_refused():
    with pytest.raises(InputError, match="beyond order=1") as raised:
        requested_modes(1, ["R", "RR"])

    assert "RR" in raised.value.remedy


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("R", "the VJP rule is at fault (R wrong; right: F, RR, FR, RF, FF)"),
        ("F RF FF", "the JVP rule is at fault (F wrong, and RF, FF with it; right: R, RR, FR)"),
        ("R F", "the JVP and the VJP rule are at fault, or the one that both are made from"),
        ("RR FR", "the derivative of the VJP rule is at fault"),
        ("RF FF", "the derivative of the JVP rule is at fault"),
        ("RR", "the vjp of the VJP rule (double backward) is at fault"),
        ("FR", "the jvp of the VJP rule is at fault"),
        ("RF", "the vjp of the JVP rule is at fault"),
        ("FF", "the jvp of the JVP rule is at fault"),
        ("RR RF", "the vjp of both rules is at fault"),
        ("FR FF", "the jvp of both rules is at fault"),
        ("RR FR RF FF", "the derivatives of both rules are at fault"),
        ("RR FF", "second derivatives are at fault"),
    ],
)
def test_the_conclusion_names_the_rule(wrong, sentence):
    assert conclusion(outcomes(wrong)).startswith(sentence)


def test_what_raises_accuses_its_rule_as_what_is_wrong_does():
    assert conclusion(outcomes(rest={"FF": Status.RAISED})).startswith("the jvp of the JVP rule")


def test_a_rule_is_accused_by_what_was_judged_only():
    few = {"R": Verdict.PASS, "RR": Verdict.FAIL, "FR": Verdict.FAIL}

    assert conclusion(few).startswith("the derivative of the VJP rule is at fault")
    assert conclusion({"R": Verdict.PASS, "RR": Verdict.FAIL}).startswith("the vjp of the VJP")


def test_nothing_wrong_is_said_without_claiming_what_was_not_judged():
    assert conclusion(outcomes()) == "every composition is right"
    assert conclusion({"R": Verdict.PASS}) == "R is right"
    said = conclusion(outcomes(rest={"FF": Status.UNSUPPORTED, "RF": Verdict.INCONCLUSIVE}))
    assert said == "nothing is seen to be wrong; not settled: RF INCONCLUSIVE, FF UNSUPPORTED"


def test_what_is_offered_is_named_where_nothing_else_is_left():
    offered = {"R": Verdict.PASS, "F": Status.UNSUPPORTED, "RR": Verdict.PASS}

    said = conclusion(offered)

    assert said.endswith("not settled: F UNSUPPORTED; modes=['R', 'RR'] checks what is offered")
    assert "modes=" not in conclusion({"R": Status.UNSUPPORTED, "F": Status.UNSUPPORTED})


def test_the_modes_that_are_named_can_be_checked():
    x, offered = np.asarray([0.3, -0.8]), ["R", "F", "RR", "FR"]

    def rule(sign):
        vjp = ByHand(
            lambda x, w: w * np.cos(x),
            vjp=lambda x, w, u: (sign * u * w * np.sin(x), u * np.cos(x)),
            jvp=lambda x, w, v, u: u * np.cos(x) + sign * w * v * np.sin(x),
        )
        return ByHand(np.sin, vjp=vjp, jvp=lambda x, v: v * np.cos(x))

    right, wrong = rule(-1), rule(1)

    assert f"modes={offered} checks what is offered" in str(examine(right, x, order=2, seed=1))
    assert examine(right, x, modes=offered, seed=1)
    assert not examine(wrong, x, modes=offered, seed=1)


def test_a_third_derivative_is_at_fault_where_the_second_ones_are_right():
    third = outcomes() | {"RRR": Verdict.FAIL, "FFF": Verdict.PASS}

    assert conclusion(third).startswith("a third derivative is at fault (RRR wrong")


@pytest.mark.parametrize(
    ("found", "whole"),
    [
        ([Verdict.PASS, Status.UNSUPPORTED], Verdict.PASS),
        ([Status.UNSUPPORTED, Status.UNSUPPORTED], Status.UNSUPPORTED),
        ([Verdict.PASS, Status.RAISED], Status.RAISED),
        ([Verdict.PASS, Verdict.INCONCLUSIVE], Verdict.INCONCLUSIVE),
        ([Verdict.FAIL, Status.RAISED, Verdict.PASS], Verdict.FAIL),
    ],
)
def test_of_several_ways_the_worst_counts_but_for_what_is_not_offered(found, whole):
    assert combined(found) is whole


def test_the_table_has_a_row_per_way():
    rows = {
        "eager": {"R": Verdict.PASS, "FF": Status.UNSUPPORTED},
        "torch.func": {"R": Verdict.PASS},
    }

    assert list(table_of(rows, ["R", "FF"])) == [
        "            R     FF",
        "eager       PASS  UNSUPPORTED",
        "torch.func  PASS  -",
    ]
