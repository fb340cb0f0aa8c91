"""Inputs: nested containers, constants in any position, and arrays of every memory layout."""

from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import optree
import pytest
from numpy.lib.stride_tricks import as_strided

from adjudge import ByHand, InputError, Verdict, examine, gradcheck

Pair = namedtuple("Pair", ["w", "b"])
W = np.asarray([[0.5, -1.0], [2.0, 0.3]])
B = np.asarray([1.0, -0.4])


# optree looks every container up in its global namespace
@optree.dataclasses.dataclass(namespace=getattr(optree.registry, "__GLOBAL_NAMESPACE"))
class Registered:
    w: object
    b: object


@dataclass
class Unregistered:
    w: object


# how to hold W and B in one argument, how to take them out, and the name of W
CONTAINERS = {
    "dict": (lambda w, b: {"w": w, "b": b}, lambda t: (t["w"], t["b"]), "inputs[0]['w']"),
    "list": (lambda w, b: [w, b], tuple, "inputs[0][0]"),
    "tuple": (lambda w, b: (w, b), tuple, "inputs[0][0]"),
    "namedtuple": (Pair, lambda t: (t.w, t.b), "inputs[0].w"),
    "registered dataclass": (Registered, lambda t: (t.w, t.b), "inputs[0].w"),
    "nested": (
        lambda w, b: {"layers": [(w, {"b": b})]},
        lambda t: (t["layers"][0][0], t["layers"][0][1]["b"]),
        "inputs[0]['layers'][0][0]",
    ),
}


def affine(take):
    return lambda t: np.tanh(take(t)[0] * take(t)[1])


def gradients(make, take, factor=1.0):
    def vjp(t, w):
        a, b = take(t)
        slope = w * (1 - np.tanh(a * b) ** 2)
        return make(factor * slope * b, (slope * a).sum(axis=0))

    return vjp


@pytest.mark.parametrize("kind", CONTAINERS)
def test_a_container_gets_its_gradient_in_its_own_structure(kind):
    make, take, _ = CONTAINERS[kind]
    rule = ByHand(affine(take), vjp=gradients(make, take))

    report = gradcheck(rule, (make(W, B),), mode="full")

    assert report.counts["comparisons"] == 4 * (4 + 2)


@pytest.mark.parametrize("kind", CONTAINERS)
def test_the_leaf_with_the_wrong_gradient_is_named_by_its_path(kind):
    make, take, name = CONTAINERS[kind]
    rule = ByHand(affine(take), vjp=gradients(make, take, factor=1.5))

    report = examine(rule, (make(W, B),), mode="full")

    assert {entry.wrt.rpartition("[")[0] for entry in report.entries} == {name}


def test_arrays_inside_an_unregistered_object_are_constants():
    holder = Unregistered(W)

    rule = ByHand(lambda h, b: h.w * b, vjp=lambda h, b, w: (None, (w * h.w).sum(axis=0)))
    report = examine(rule, (holder, B), mode="full")

    assert report.verdict is Verdict.PASS
    assert report.counts["comparisons"] == 4 * 2


def test_an_unregistered_object_alone_is_asked_for_what_it_holds():
    rule = ByHand(lambda h: h.w.sum(), vjp=lambda h, w: Unregistered(w + 0 * h.w))

    with pytest.raises(InputError, match="pass what the Unregistered holds as a dict of arrays"):
        examine(rule, (Unregistered(W),))


CONSTANTS = [None, True, 3, "name", 2.5, 1 + 2j, np.float64(1.5), b"bytes", np.asarray([1, 2])]


@pytest.mark.parametrize("constant", CONSTANTS)
@pytest.mark.parametrize("position", [0, 1])
def test_a_constant_may_stand_in_any_position(constant, position):
    def forward(*args):
        assert type(args[position]) is type(constant)
        return np.sin(args[1 - position])

    def vjp(*args):
        gradient = args[2] * np.cos(args[1 - position])
        return (None, gradient) if position == 0 else (gradient, None)

    inputs = (constant, W) if position == 0 else (W, constant)

    report = examine(ByHand(forward, vjp=vjp), inputs)

    assert report.verdict is Verdict.PASS


def test_constants_may_stand_inside_a_container():
    tree = {"n": None, "flag": True, "k": 2, "mode": "tanh", "x": B, "scale": 0.5}
    rule = ByHand(
        lambda t: t["scale"] * t["x"] ** t["k"] if t["flag"] and t["n"] is None else None,
        vjp=lambda t, w: {**dict.fromkeys(tree), "x": w * t["x"]},
    )

    report = examine(rule, tree)

    assert report.verdict is Verdict.PASS


def test_one_argument_need_not_be_in_a_tuple():
    report = examine(ByHand(np.sin, vjp=lambda x, w: w * np.cos(x)), B)

    assert report.verdict is Verdict.PASS


def test_a_0d_array_has_one_entry_named_without_an_index():
    rule = ByHand(np.sin, vjp=lambda x, w: -w * np.cos(x))

    report = examine(rule, np.asarray(0.3))

    assert report.findings[0].entry == "d out / d inputs[0]"


def test_the_same_array_twice_is_two_inputs():
    right = ByHand(lambda a, b: a * b**2, vjp=lambda a, b, w: (w * b**2, 2 * w * a * b))
    wrong = ByHand(lambda a, b: a * b**2, vjp=lambda a, b, w: (w * b**2, w * a * b))

    reports = [examine(rule, (B, B)) for rule in (right, wrong)]

    assert [Verdict.PASS, Verdict.FAIL] == [report.verdict for report in reports]
    assert all("inputs[1]" in entry.wrt for entry in reports[1].entries)


BASE = np.arange(1.0, 25.0) / 7
LAYOUTS = {
    "transposed": BASE.reshape(4, 6).T,
    "strided": BASE.reshape(4, 6)[::2, 1::2],
    "reversed": BASE.reshape(4, 6)[::-1],
    "broadcast": np.broadcast_to(BASE[:3], (4, 3)),
    "overlapping": as_strided(BASE, (5, 3), (8, 8)),
    "Fortran": np.asfortranarray(BASE.reshape(4, 6)),
    "read-only": np.frombuffer(BASE.tobytes()),
    "one element": BASE[:1].reshape(1, 1, 1),
}


@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_memory_layout_passes_right_and_fails_wrong(layout, mode):
    x = LAYOUTS[layout]
    before = x.copy()

    right, wrong = (
        examine(ByHand(np.log, vjp=vjp), x, mode=mode)
        for vjp in (lambda x, w: w / x, lambda x, w: 1.1 * w / x)
    )

    assert right.verdict is Verdict.PASS
    assert wrong.verdict is Verdict.FAIL
    assert np.array_equal(before, x)


def test_a_non_native_byte_order_is_checked_like_any_other():
    x = B.astype(">f8")

    report = examine(ByHand(np.sin, vjp=lambda x, w: w * np.cos(x)), x)

    assert report.verdict is Verdict.PASS


def test_keyword_arguments_are_named_and_passed():
    rule = ByHand(
        lambda x, *, options: x * options["k"], vjp=lambda x, w, *, options: -w * options["k"]
    )

    report = examine(rule, B, kwargs={"options": {"k": 3}})

    assert report.verdict is Verdict.FAIL
    assert report.counts["comparisons"] == 4


def test_a_keyword_array_without_a_gradient_by_hand_is_missing_or_left_out():
    rule = ByHand(lambda x, *, s: x * s, vjp=lambda x, w, *, s: w * s)

    checked = examine(rule, B, kwargs={"s": np.asarray(2.0)})
    left_out = examine(rule, B, kwargs={"s": np.asarray(2.0)}, wrt=0)

    assert checked.verdict is Verdict.FAIL
    assert "kwargs['s']" in checked.findings[0].entry
    assert left_out.verdict is Verdict.PASS
