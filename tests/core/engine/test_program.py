import itertools

import numpy as np
import pytest

from adjudge.engine import (
    INPUT,
    OPAQUE,
    OPERATIONS,
    SECTIONS,
    ArrayOperations,
    ProgramBuilder,
    Ref,
    comparable,
    unseen,
)

X = Ref(INPUT, 0)


def builder(*inputs):
    return ProgramBuilder(ArrayOperations("numpy", np), inputs)


def test_every_operation_stands_in_one_section():
    names = [name for section in SECTIONS.values() for name in section]
    assert sorted(names) == sorted(OPERATIONS)
    assert OPAQUE not in OPERATIONS


def test_an_operation_has_its_operands_results_and_spacing():
    x = np.array([1.0, 2.0], np.float32)
    made = builder(x)
    y = made.emit("sin", [X], np.sin(x), step="sin_p")
    one = made.finished([y]).operations[0]
    assert (one.name, one.operands, one.step) == ("sin", (X,), "sin_p")
    assert one.recorded[0].dtype == np.float64
    assert one.eps == 2.0**-23


def test_what_depends_on_no_input_is_a_constant():
    made = builder(np.ones(2))
    assert np.array_equal(made.emit("sin", [np.zeros(3)], np.zeros(3)), np.zeros(3))
    assert not made.operations


def test_a_name_that_is_not_in_the_vocabulary_is_refused():
    with pytest.raises(KeyError, match="sine"):
        builder(np.ones(2)).emit("sine", [X], np.ones(2))


def test_what_is_relied_on_is_kept():
    x = np.array([1.0, -2.0])
    made = builder(x)
    positive = made.emit("greater", [X, 0.0], x > 0)
    assert np.array_equal(made.rely(positive), [True, False])
    assert made.finished([X]).relied_on == {positive}


def test_what_no_output_depends_on_is_left_out():
    x = np.array([1.0, -2.0])
    made = builder(x)
    made.opaque([X], [x], why="nobody knows")
    positive = made.emit("greater", [X, 0.0], x > 0)
    made.rely(positive)
    twice = made.emit("add", [X, X], x + x)
    made.emit("sin", [twice], np.sin(x + x))
    program = made.finished([made.emit("exp", [twice], np.exp(x + x)), 1.0])
    assert [one.name for one in program.operations] == ["greater", "add", "exp"]
    assert program.relied_on == {Ref(0, 0)}
    assert program.operations[2].operands == (Ref(1, 0),)
    assert program.outputs[0] == Ref(2, 0)


def test_what_the_engine_computed_at_once_stands_where_it_was_put_together():
    x = np.array([1.0, 2.0])
    made = builder(x)
    first = made.emit("exp", [X], np.exp(x))
    whole = made.emit("sin", [first], np.sin(np.exp(x)))
    turned = made.take([whole], np.array([1, 0]))
    made.computed(turned, np.array([5.0, 6.0]), 1)
    assert [list(made.value(one)) for one in (turned, whole)] == [[5.0, 6.0], [6.0, 5.0]]
    made.computed(first, np.zeros(2), 1)  # older than the first
    assert np.array_equal(made.value(first), np.exp(x))


def test_a_rearrangement_is_told_by_indices():
    x = np.arange(6.0).reshape(2, 3)
    made = builder(x)
    (y,) = made.rearranged(lambda indices: [indices[0].T], [X], [x.T])
    assert np.array_equal(made.value(y), x.T)
    assert np.array_equal(made.operations[0].params["indices"], np.arange(6).reshape(2, 3).T)
    padded = made.take([X, 7.0], np.array([0, 6, -1]), fill=9.0)
    assert np.array_equal(made.value(padded), [0.0, 7.0, 9.0])


def direct(x, kernel, strides, padding, dilation, spread, groups):
    """The definition, image by image and entry by entry."""
    batch, channels, *size = x.shape
    spaced = np.zeros(
        (batch, channels, *((n - 1) * s + 1 for n, s in zip(size, spread, strict=True)))
    )
    spaced[(..., *(slice(None, None, s) for s in spread))] = x
    spaced = np.pad(spaced, [(0, 0), (0, 0), *(np.maximum(p, 0) for p in padding)])
    crops = [
        slice(max(-a, 0), n - max(-b, 0))
        for (a, b), n in zip(padding, spaced.shape[2:], strict=True)
    ]
    spaced = spaced[(..., *crops)]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel.shape[2:], dilation, strict=True)]
    counts = [(n - r) // s + 1 for n, r, s in zip(spaced.shape[2:], reach, strides, strict=True)]
    out = np.zeros((batch, len(kernel), *counts))
    each = channels // groups
    for b, o, *at in itertools.product(*map(range, out.shape)):
        group = o // (len(kernel) // groups)
        window = tuple(
            slice(p * s, p * s + r, d)
            for p, s, r, d in zip(at, strides, reach, dilation, strict=True)
        )
        part = spaced[(b, slice(group * each, (group + 1) * each), *window)]
        out[(b, o, *at)] = np.sum(part * kernel[o])
    return out


@pytest.mark.parametrize(
    ("size", "window", "strides", "padding", "dilation", "spread", "groups"),
    [
        ((5,), (3,), (1,), [(0, 0)], (1,), (1,), 1),
        ((5, 4), (2, 3), (2, 1), [(1, 0), (2, 2)], (1, 1), (1, 1), 2),
        ((4, 4), (2, 2), (1, 1), [(2, 1), (0, 0)], (2, 1), (2, 3), 1),
        ((6,), (2,), (1,), [(-1, -2)], (1,), (1,), 1),
    ],
)
def test_a_convolution_is_a_product_of_matrices(
    size, window, strides, padding, dilation, spread, groups
):
    rng = np.random.default_rng(0)
    x, kernel = rng.normal(size=(2, 4, *size)), rng.normal(size=(6, 4 // groups, *window))
    y = direct(x, kernel, strides, padding, dilation, spread, groups)
    made = builder(x, kernel)
    shape = {"strides": strides, "padding": padding, "dilation": dilation, "spread": spread}
    made.convolution(X, Ref(INPUT, 1), y, **shape, groups=groups)
    product = next(one for one in made.operations if one.name == "matmul")
    rows, columns = (made.value(one) for one in product.operands)
    assert np.allclose((rows @ columns).reshape(y.shape), y, rtol=1e-12)


def scaled(x, factor, name="multiply"):
    """A program of two operations, of which the second one takes a constant."""
    made = builder(x)
    y = made.emit("sin", [X], np.sin(x))
    whole = np.sin(x) * factor if name == "multiply" else np.sin(x) + factor
    return made.finished([made.emit(name, [y, factor], whole)])


@pytest.mark.parametrize(
    ("beside", "alike", "constant"),
    [
        (scaled(np.array([0.4]), np.array(2.0)), True, None),
        (scaled(np.array([0.4]), np.array(2.5)), True, "multiply"),
        (scaled(np.array([0.4]), np.array(2.5), "add"), False, None),
    ],
)
def test_a_number_that_another_point_changes_is_no_constant(beside, alike, constant):
    """Of a program that did other operations there nothing is known."""
    program = scaled(np.array([0.3]), np.array(2.0))

    found = unseen(program, beside)

    assert comparable(program, beside) is alike
    assert (found and found.name) == constant
