"""Numbers among the inputs: constants, unless a derivative by hand has a gradient for them."""

import numpy as np
import pytest
from scenarios import seeds

from adjudge import ByHand, Status, Verdict, examine, gradgradcheck

X = np.random.default_rng(0).normal(size=(4, 3))
NUMBERS = {"float": 1.3, "float64": np.float64(1.3), "float32": np.float32(1.3)}


def scaled(x, b):
    return x * b


def gradients(x, b, g):
    return g * b, np.sum(g * x)


def second(x, b, g, of_x, of_b):
    return g * of_b, np.sum(g * of_x), b * of_x + x * of_b


WRONG = {
    "mean for sum": (lambda x, b, g: (g * b, np.mean(g * x)), "1/12 times the reference"),
    "sign": (lambda x, b, g: (g * b, -np.sum(g * x)), "has the opposite sign"),
    "zero": (lambda x, b, g: (g * b, 0.0), "is zero"),
    "1e-6 off": (lambda x, b, g: (g * b, (1 + 1e-6) * np.sum(g * x)), ""),
}


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("seed", seeds(10))
def test_a_number_for_which_a_rule_gives_a_gradient_is_checked(number, seed):
    inputs = X, NUMBERS[number]

    right = examine(ByHand(scaled, vjp=gradients), inputs, seed=seed)

    assert right.verdict is Verdict.PASS
    assert right.counts["comparisons"] == 2
    for vjp, words in WRONG.values():
        report = examine(ByHand(scaled, vjp=vjp), inputs, seed=seed)
        assert report.verdict is Verdict.FAIL
        assert report.worst.input == "inputs[1]"
        assert words in str(report)


def test_the_gradient_of_a_number_may_be_a_number():
    rule = ByHand(scaled, vjp=lambda x, b, g: (g * b, float(np.sum(g * x))))

    assert examine(rule, (X, 1.3), seed=1).verdict is Verdict.PASS


def test_a_number_in_a_tree_is_checked():
    rule = ByHand(
        lambda p: p["x"] * p["b"],
        vjp=lambda p, g: {"x": g * p["b"], "b": np.mean(g * p["x"])},
    )

    report = examine(rule, ({"x": X, "b": 1.3},), seed=1)

    assert report.verdict is Verdict.FAIL
    assert report.worst.input == "inputs[0]['b']"


def test_a_number_without_a_gradient_is_a_constant():
    rule = ByHand(scaled, vjp=lambda x, b, g: (g * b, None))

    report = examine(rule, (X, 1.3), seed=1)

    assert report.verdict is Verdict.PASS
    assert report.counts["comparisons"] == 1


def test_what_is_named_is_all_that_is_checked():
    rule = ByHand(scaled, vjp=WRONG["sign"][0])

    report = examine(rule, (X, 1.3), wrt=0, seed=1)

    assert report.verdict is Verdict.PASS
    assert report.counts["comparisons"] == 1


@pytest.mark.parametrize("off", [1.0, 1.01])
def test_second_derivatives_by_hand_have_numbers_too(off):
    def double(x, b, g, of):
        of_x, of_b, of_g = second(x, b, g, *of)
        return of_x, off * of_b, of_g

    rule = ByHand(scaled, vjp=ByHand(gradients, vjp=double))

    if off == 1.0:
        assert gradgradcheck(rule, (X, 1.3), seed=1)
    else:
        with pytest.raises(AssertionError):
            gradgradcheck(rule, (X, 1.3), seed=1)


def test_a_rule_in_forward_mode_alone_leaves_numbers_as_they_are():
    rule = ByHand(scaled, jvp=lambda x, b, v, _: v * b)

    report = examine(rule, (X, 1.3), modes=["F"], seed=1)

    assert report.verdict is Verdict.PASS
    assert Status.UNCHECKED not in {finding.status for finding in report.findings}


INTEGERS = {
    "a number": 3,
    "a scalar": np.int64(3),
    "an array": np.arange(1, 13).reshape(4, 3),
    "narrow": np.arange(1, 13, dtype=np.uint8).reshape(4, 3),
    "truth values": np.ones((4, 3), bool),
}


def named(report):
    notes = [f for f in report.findings if f.status is Status.UNCHECKED and f.note]
    return [name for note in notes for name in note.detail.names]


@pytest.mark.parametrize("b", INTEGERS.values(), ids=INTEGERS)
def test_integers_for_which_a_rule_gives_a_gradient_are_named(b):
    report = examine(ByHand(scaled, vjp=WRONG["sign"][0]), (X, b), seed=1)

    assert report.verdict is Verdict.PASS
    assert named(report) == ["inputs[1]"]
    assert "integers count as constants: inputs[1]" in str(report)


@pytest.mark.parametrize("gradient", [None, 0, 0.0, np.zeros((4, 3))])
def test_integers_without_a_gradient_are_not_named(gradient):
    rule = ByHand(lambda x, b: x * b, vjp=lambda x, b, g: (g * b, gradient))

    assert named(examine(rule, (X, INTEGERS["an array"]), seed=1)) == []


def test_integers_in_a_tree_are_named_by_their_paths():
    rule = ByHand(
        lambda p: p["x"] * p["n"], vjp=lambda p, g: {"x": g * p["n"], "n": np.sum(g * p["x"])}
    )

    assert named(examine(rule, ({"x": X, "n": 2},), seed=1)) == ["inputs[0]['n']"]
