"""Spaces: arrays of several dtypes as one real vector, and the names of its coordinates."""

import array_api_strict
import numpy as np
import pytest

from adjudge.engine.arrays import PlainBackend
from adjudge.problem.space import Space

BACKEND = PlainBackend(np)
ARRAYS = (
    np.arange(6.0).reshape(2, 3),
    np.asarray([1 + 2j, 3 - 4j]),
    np.asarray(7.0, dtype=np.float32),
    np.zeros((0, 2)),
)
NAMES = ("inputs[0]['w']", "inputs[1]", "inputs[2]", "inputs[3]")


@pytest.fixture
def space():
    return Space.at(BACKEND, ARRAYS, NAMES)[0]


def test_a_complex_entry_takes_two_coordinates(space):
    vector = space.vector(BACKEND, ARRAYS, ARRAYS)

    assert space.size == 6 + 4 + 1 + 0
    assert [0, 1, 2, 3, 4, 5, 1, 2, 3, -4, 7] == vector.tolist()
    assert [(0, 6), (6, 10), (10, 11), (11, 11)] == [(s.start, s.stop) for s in space.slices]


def test_the_vector_of_the_arrays_of_a_vector_is_the_vector(space):
    vector = np.arange(space.size) + 0.5

    arrays = space.arrays(BACKEND, vector, ARRAYS)

    assert np.array_equal(vector, space.vector(BACKEND, arrays, ARRAYS))
    assert [a.dtype for a in ARRAYS] == [a.dtype for a in arrays]
    assert [a.shape for a in ARRAYS] == [a.shape for a in arrays]
    assert not any(np.shares_memory(a, b) for a in arrays for b in (*ARRAYS, vector))


def test_the_product_of_vectors_is_the_real_inner_product():
    random = np.random.default_rng(0)
    a, b = (
        random.normal(size=(2, 4)) @ np.ones((4, 5)) + 1j * random.normal(size=(2, 5)) for _ in "ab"
    )
    space = Space.at(BACKEND, (a,), ("z",))[0]

    product = space.vector(BACKEND, (a,), (a,)) @ space.vector(BACKEND, (b,), (b,))

    assert product == pytest.approx(np.sum(np.conj(a) * b).real)


@pytest.mark.parametrize("start", range(9))
def test_the_moduli_of_a_part_are_those_of_the_whole(start):
    arrays = np.arange(3.0), np.asarray([3 + 4j, -5 + 12j]), np.asarray([-8.0])
    space = Space.at(BACKEND, arrays, NAMES[:3])[0]  # complex entries begin at an odd coordinate
    vector = space.vector(BACKEND, arrays, arrays)

    assert [0, 1, 2, 5, 5, 13, 13, 8] == space.modulus(vector).tolist()
    for stop in range(start, 9):
        part = slice(start, stop)
        assert np.array_equal(space.modulus(vector)[part], space.modulus(vector, None, part))
        larger = space.modulus(vector, 2 * vector, part)
        assert np.array_equal(2 * space.modulus(vector)[part], larger)


@pytest.mark.parametrize(
    ("coordinate", "name"),
    [
        (0, "inputs[0]['w'][0, 0]"),
        (5, "inputs[0]['w'][1, 2]"),
        (6, "inputs[1][0].real"),
        (7, "inputs[1][0].imag"),
        (9, "inputs[1][1].imag"),
        (10, "inputs[2]"),
    ],
)
def test_each_coordinate_has_the_name_of_its_entry(space, coordinate, name):
    assert name == space.entry(coordinate)


def test_an_absent_array_is_zero(space):
    vector = space.vector(BACKEND, (None, ARRAYS[1], None, None), ARRAYS)

    assert [0] * 6 + [1, 2, 3, -4] + [0] == vector.tolist()


def test_an_array_of_the_wrong_shape_is_not_misread_as_values(space):
    vector = space.vector(BACKEND, (ARRAYS[0].T, *ARRAYS[1:]), ARRAYS)

    assert np.all(np.isnan(vector[:6]))
    assert np.all(np.isfinite(vector[6:]))


def test_values_are_rounded_to_the_dtype_of_their_leaf():
    like = np.zeros(1, dtype=np.float32)
    space = Space.at(BACKEND, (like,), ("x",))[0]

    (array,) = space.arrays(BACKEND, np.asarray([1 + 1e-10]), (like,))

    assert array.tolist() == [1.0]


@pytest.mark.parametrize(
    ("device", "dtype"),
    [
        ("CPU_DEVICE", "float64"),
        ("device1", "float64"),
        ("device1", "complex64"),
        ("no_float64", "float32"),
    ],
)
def test_a_point_stays_on_its_device(device, dtype):
    device = array_api_strict.Device(device)
    array = array_api_strict.ones(3, dtype=getattr(array_api_strict, dtype), device=device)
    backend = PlainBackend(array_api_strict)
    space = Space.at(backend, (array,), ("x",))[0]

    (back,) = space.arrays(backend, space.vector(backend, (array,), (array,)), (array,))

    assert back.device == device
    assert back.dtype == array.dtype
