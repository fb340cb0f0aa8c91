"""Outputs: containers with integers and None in them, and the names of their entries."""

from collections import UserDict, namedtuple
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from adjudge import ByHand, InputError, Status, UnstableOutputError, Verdict, examine, gradcheck

Result = namedtuple("Result", ["value", "count"])
X = np.asarray([[0.5, -1.0, 2.0], [0.1, 0.7, -0.3]])


def test_a_dict_with_integers_and_none_gets_cotangents_at_its_floats_only():
    seen = []

    def vjp(x, w):
        seen.append(w)
        return w["logits"] * np.cos(x)

    rule = ByHand(
        lambda x: {"logits": np.sin(x), "argmax": x.argmax(axis=1), "aux": None, "n": 3}, vjp=vjp
    )

    report = examine(rule, X)

    assert report.verdict is Verdict.PASS
    assert all(w["argmax"] is None and w["aux"] is None and w["n"] is None for w in seen)


def test_an_entry_of_a_dict_is_named_by_its_path():
    def vjp(x, w):
        g = w["logits"] * np.cos(x)
        g[0, 2] = 0
        return g

    report = examine(ByHand(lambda x: {"logits": np.sin(x)}, vjp=vjp), X)

    assert report.findings[0].entry == "d out['logits'][0, 2] / d inputs[0][0, 2]"
    assert "out['logits'][0, 2]" in report.headline


@pytest.mark.parametrize(
    ("make", "take", "name"),
    [
        (lambda y: [1, y, None], lambda w: w[1], "out[1]"),
        (lambda y: (y, "text"), lambda w: w[0], "out[0]"),
        (lambda y: Result(y, 2), lambda w: w.value, "out.value"),
        (lambda y: {"a": [{"b": y}]}, lambda w: w["a"][0]["b"], "out['a'][0]['b']"),
    ],
)
def test_every_container_names_its_leaf(make, take, name):
    right, wrong = (
        examine(ByHand(lambda x: make(np.sin(x)), vjp=lambda x, w, c=c: c * take(w) * np.cos(x)), X)
        for c in (1, 2)
    )

    assert right.verdict is Verdict.PASS
    assert wrong.findings[0].entry.startswith(f"d {name}[")


def test_several_outputs_are_each_compared_and_the_wrong_one_is_named():
    rule = ByHand(
        lambda x: (np.sin(x), np.exp(x)),
        vjp=lambda x, w: w[0] * np.cos(x) + 2 * w[1] * np.exp(x),
    )

    report = examine(rule, X, mode="projected", seed=0)

    assert report.counts["comparisons"] == 2
    assert report.counts["failed"] == 1
    assert report.findings[0].entry.startswith("d out[1][")


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_an_output_without_any_derivative_may_be_left_out_and_a_lost_gradient_may_not(mode):
    """An engine that returns zeros for what is cut off on purpose does not record that it is."""

    def report(metric, second, seed):
        rule = ByHand(
            lambda x, y: (np.sin(x) * y, x**3),
            vjp=lambda x, y, w: (
                w[0] * y * np.cos(x) + metric * w[1] * 3 * x**2,
                second * w[0] * np.sin(x),
            ),
        )
        return examine(rule, (X, X + 2), mode=mode, seed=seed)

    for seed in range(3):
        cut_off, lost = report(0, 1, seed), report(1, 0, seed)

        assert Verdict.FAIL is cut_off.verdict is lost.verdict
        assert "outputs=[0, ...]" in str(cut_off)
        assert "outputs=" not in str(lost)


def test_a_numpy_scalar_is_an_output():
    rule = ByHand(lambda x: x.sum(), vjp=lambda x, w: w * np.ones_like(x))

    report = examine(rule, X, mode="full")

    assert report.verdict is Verdict.PASS
    assert report.counts["comparisons"] == 6


def test_an_empty_output_beside_another_takes_no_part():
    rule = ByHand(lambda x: (x * 2, x[:0]), vjp=lambda x, w: 2 * w[0])

    report = examine(rule, X, mode="full")

    assert report.verdict is Verdict.PASS
    assert report.counts["comparisons"] == 36


def test_an_output_that_is_the_input_itself_is_checked():
    right, wrong = (
        examine(ByHand(lambda x: x, vjp=vjp), X) for vjp in (lambda x, w: w, lambda x, w: 1.1 * w)
    )

    assert right.verdict is Verdict.PASS
    assert wrong.verdict is Verdict.FAIL


def test_an_output_that_is_a_view_of_the_input_is_checked():
    rule = ByHand(lambda x: x.T[1:], vjp=lambda x, w: np.pad(w.T, ((0, 0), (1, 0))))

    report = examine(rule, X)

    assert report.verdict is Verdict.PASS


@pytest.mark.parametrize("result", [None, True, "text", (), {}, np.asarray([1, 2]), [None]])
def test_a_function_that_returns_nothing_differentiable_is_refused(result):
    rule = ByHand(lambda x: result, vjp=lambda x, w: 0 * x)

    with pytest.raises(InputError) as caught:
        gradcheck(rule, X)

    assert "returns nothing that can be differentiated" in caught.value.found
    assert "return arrays" in caught.value.remedy
    assert "is a `return` missing?" in caught.value.remedy


def test_an_output_whose_shape_changes_near_x_is_unstable():
    rule = ByHand(lambda x: x[x >= 0], vjp=lambda x, w: np.where(x >= 0, 1.0, 0.0))

    with pytest.raises(UnstableOutputError) as caught:
        gradcheck(rule, np.asarray([1.0, 0.0]), mode="full")

    assert "out was float64 of shape (2,) and is float64 of shape (1,)" in caught.value.found
    assert "with inputs[0][1] moved by" in caught.value.found
    assert isinstance(caught.value, AssertionError)


def test_an_output_whose_structure_changes_is_unstable():
    rule = ByHand(lambda x: (x,) if x[0] > 1 else [x], vjp=lambda x, w: w[0])

    with pytest.raises(UnstableOutputError, match="structure of the output changed"):
        gradcheck(rule, np.asarray([1.0, 0.0]))


def test_an_output_whose_dtype_changes_is_unstable():
    rule = ByHand(lambda x: x if x[0] > 1 else x.astype(np.float32), vjp=lambda x, w: w)

    with pytest.raises(UnstableOutputError, match=r"was float32 .* and is float64"):
        gradcheck(rule, np.asarray([1.0, 0.0]))


def test_a_moving_integer_output_is_observed_by_nobody_and_is_no_error():
    rule = ByHand(lambda x: (x * 2, int(x[0] > 1)), vjp=lambda x, w: 2 * w[0])

    report = examine(rule, np.asarray([1.0, 0.0]))

    assert report.verdict is Verdict.PASS


def test_all_outputs_wrong_is_one_finding_with_a_count():
    rule = ByHand(np.sin, vjp=lambda x, w: -w * np.cos(x))

    report = examine(rule, X, mode="full")

    assert [Status.MISMATCH] == [finding.status for finding in report.findings]
    assert "6 of 36 comparisons" in str(report)


@dataclass
class Output:
    """What a model returns, which nobody registered anywhere."""

    loss: Any
    hidden: dict[str, Any]
    name: str = "a model"


@dataclass(frozen=True, slots=True)
class Pair:
    """An output whose fields cannot be assigned to, with a constructor that refuses them."""

    first: Any
    second: Any

    def __post_init__(self):
        assert isinstance(self.first, float | int) or np.all(np.abs(self.first) <= 1)


@pytest.mark.parametrize("factor", [1.0, 1.001])
def test_a_dataclass_is_a_container_of_its_fields(factor):
    def f(x):
        return Output(Pair(np.sin(x), 3), {"state": x * x})

    def vjp(x, w):
        return factor * w.loss.first * np.cos(x) + 2 * w.hidden["state"] * x

    report = examine(ByHand(f, vjp=vjp), X[0], modes=["R"], seed=0)

    assert report.verdict is (Verdict.PASS if factor == 1 else Verdict.FAIL), str(report)
    if factor != 1:
        assert report.findings[0].entry.startswith("d out.loss.first[")


def test_a_dataclass_without_arrays_is_handed_on_as_it_is():
    seen = []
    settings = Output(3, {"n": 2})

    def f(x, settings):
        seen.append(settings)
        return np.sin(x) * settings.loss

    rule = ByHand(f, vjp=lambda x, settings, w: (w * np.cos(x) * settings.loss, None))

    assert examine(rule, (X, settings), modes=["R"]).verdict is Verdict.PASS
    assert all(one is settings for one in seen)


def test_a_dataclass_that_holds_itself_ends():
    def f(x):
        node = Output(np.sin(x), {})
        node.hidden["self"] = node
        return node

    rule = ByHand(f, vjp=lambda x, w: w.loss * np.cos(x))

    assert examine(rule, X, modes=["R"]).verdict is Verdict.PASS


class Attributes(dict):
    """A dictionary whose keys are attributes, which nobody registered."""

    __getattr__ = dict.__getitem__


OPAQUE = {
    "a namespace": lambda y: SimpleNamespace(loss=y),
    "a dictionary of its own": lambda y: Attributes(loss=y),
    "a mapping": lambda y: UserDict(loss=y),
}


@pytest.mark.parametrize("name", OPAQUE)
def test_arrays_in_an_object_that_is_no_known_container_are_named(name):
    make = OPAQUE[name]
    rule = ByHand(lambda x: (np.sin(x), make(x)), vjp=lambda x, w: w[0] * np.cos(x))
    report = examine(rule, X, modes=["R"])

    assert report.verdict is Verdict.PASS
    assert f"no known container: out[1] (of class {type(make(X)).__name__})" in str(report)
    with pytest.raises(InputError, match="return what it holds as a tuple or a dict"):
        examine(ByHand(make, vjp=lambda x, w: x), X, modes=["R"])


def test_objects_without_arrays_are_not_named():
    others = (None, 3, "text", np.sin, SimpleNamespace(n=3), Attributes(n=3))
    rule = ByHand(lambda x: (np.sin(x), *others), vjp=lambda x, w: w[0] * np.cos(x))

    assert "no known container" not in str(examine(rule, X, modes=["R"]))


def test_a_dictionary_of_attributes_is_no_array():
    rule = ByHand(lambda d: np.sin(d["a"]), vjp=lambda d, w: None)

    with pytest.raises(InputError, match="pass what the Attributes holds as a dict of arrays"):
        examine(rule, (Attributes(a=X),))


@pytest.mark.parametrize(
    ("make", "chosen"),
    [
        (lambda y, z: {"loss": y, "metric": z}, "loss"),
        (lambda y, z: {"loss": y, "metric": z}, "out['loss']"),
        (Result, "value"),
        (Result, "out.value"),
        (Result, 0),
        (lambda y, z: (y, z), 0),
        (lambda y, z: {"parts": Result(y, z)}, "out['parts'].value"),
    ],
)
def test_outputs_are_chosen_by_their_key_their_field_or_their_place(make, chosen):
    """The vjp is wrong for the other output, which is not checked."""

    def take(w):
        first = w["parts"] if isinstance(w, dict) and "parts" in w else w
        return first["loss"] if isinstance(first, dict) else first[0]

    rule = ByHand(
        lambda x: make(np.sin(x), np.cos(x)),
        vjp=lambda x, w: np.zeros_like(x) + take(w) * np.cos(x),
    )

    assert examine(rule, X, outputs=chosen).verdict is Verdict.PASS
    assert examine(rule, X).verdict is Verdict.FAIL


@pytest.mark.parametrize("chosen", [2, "lost", "out.lost"])
def test_a_choice_that_is_no_output_names_those_there_are(chosen):
    rule = ByHand(lambda x: Result(np.sin(x), np.cos(x)), vjp=lambda x, w: w[0] * np.cos(x))

    with pytest.raises(InputError, match=r"out\.value"):
        examine(rule, X, outputs=chosen)
