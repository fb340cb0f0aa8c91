"""Probes: unit tangents, random_entries ones, and what they are contracted with."""

import numpy as np
import pytest
from scenarios import seeds

from adjudge.engine.arrays import PlainBackend
from adjudge.problem.probes import (
    Probes,
    Stream,
    fresh_seed,
    generator,
    random_cotangent,
    random_entries,
)
from adjudge.problem.space import Space

BACKEND = PlainBackend(np)
XS = (np.asarray([3.0, 4.0]), np.asarray([1e-3]), np.zeros(0))
YS = (np.asarray([1.0, 2.0, 3.0]), np.asarray(5.0))
X, Y = (
    Space.at(BACKEND, arrays, [f"a[{k}]" for k in range(len(arrays))])[0] for arrays in (XS, YS)
)
ORIGIN = X.vector(BACKEND, XS, XS)


def tangents(probes):
    return list(probes.tangents(ORIGIN, slice(0, X.size)))


def test_unit_tangents_are_the_standard_basis_with_the_scale_of_their_leaf():
    found = tangents(Probes(X, Y, True, 0))

    assert np.array_equal(np.eye(3), [t.vector for t in found])
    assert [0, 1, 2] == [t.coordinate for t in found]
    assert [(0,), (0,), (1,)] == [t.leaves for t in found]
    assert [t.length for t in found] == pytest.approx([12.5**0.5, 12.5**0.5, 1e-3])


def test_a_block_gives_its_own_unit_tangents_only():
    found = list(Probes(X, Y, True, 0).tangents(ORIGIN, slice(1, 2)))

    assert [1] == [t.coordinate for t in found]


def test_projected_tangents_are_one_a_leaf_that_is_not_empty():
    found = tangents(Probes(X, Y, False, 0))

    assert [(0,), (1,)] == [t.leaves for t in found]
    assert np.count_nonzero(found[0].vector) == 2
    assert np.flatnonzero(found[1].vector).tolist() == [2]
    assert np.all(np.abs(found[0].vector[:2]) <= 12.5**0.5)
    assert np.all(np.abs(found[0].vector[:2]) >= 12.5**0.5 / 2)


def test_the_number_of_rows_and_columns_is_that_of_what_is_yielded():
    for full in (True, False):
        probes = Probes(X, Y, full, 0)

        assert probes.columns == len(tangents(probes))
        assert probes.rows == len(list(probes.cotangents()))


def test_signed_entries_are_neither_small_nor_large_and_exact_in_bfloat16():
    entries = random_entries(np.random.default_rng(0), 10_000)

    assert np.abs(entries).min() >= 0.5
    assert np.abs(entries).max() <= 1.0
    assert np.array_equal(entries * 256, np.round(entries * 256))
    assert abs(np.mean(np.sign(entries))) < 0.05


def test_the_same_seed_gives_the_same_probes_and_another_seed_others():
    one, again, other = (Probes(X, Y, False, seed) for seed in (1, 1, 2))

    assert np.array_equal(one.cotangent, again.cotangent)
    assert np.array_equal(tangents(one)[0].vector, tangents(again)[0].vector)
    assert not np.array_equal(one.cotangent, other.cotangent)


def test_tangents_and_cotangents_of_one_seed_are_independent():
    wide = Space.at(BACKEND, (np.ones(1000),), ("x",))[0]
    probes = Probes(wide, wide, False, 3)

    (tangent,) = probes.tangents(np.ones(1000), slice(0, 1000))
    correlation = np.corrcoef(np.sign(tangent.vector), np.sign(probes.cotangent))[0, 1]

    assert abs(correlation) < 0.15


def test_contract_is_the_product_with_each_cotangent():
    column = np.asarray([1.0, -2.0, 4.0, 8.0])

    for full in (True, False):
        probes = Probes(X, Y, full, 0)
        products = [w @ column for w in probes.cotangents()]

        assert probes.contract(column).tolist() == pytest.approx(products)


def test_errors_of_different_entries_add_in_quadrature():
    probes = Probes(X, Y, False, 0)
    error = np.asarray([3.0, 4.0, 0.0, 2.0])

    bars = probes.contract_error(error)

    w = probes.cotangent
    assert bars == pytest.approx([np.hypot(3 * w[0], 4 * w[1]), 2 * abs(w[3])])
    assert Probes(X, Y, True, 0).contract_error(error) is error


def test_a_random_cotangent_belongs_to_its_seed():
    one, other = random_cotangent(Y, 1), random_cotangent(Y, 2)

    assert np.array_equal(one, random_cotangent(Y, 1))
    assert not np.array_equal(one, other)


def test_fresh_seeds_differ_and_advance_no_global_generator():
    before = np.random.get_state()[2]  # noqa: NPY002

    seeds = {fresh_seed() for _ in range(10)}

    assert len(seeds) == 10
    assert before == np.random.get_state()[2]  # noqa: NPY002


@pytest.mark.parametrize("seed", seeds(5))
def test_a_tangent_leans_towards_the_gradient_in_three_entries_of_four(seed):
    space, origin = Space.at(BACKEND, (np.ones(4000),), ("x",))
    probes, whole = Probes(space, Y, False, seed), slice(0, 4000)
    gradient = np.random.default_rng([seed, 9]).normal(size=4000)

    (plain,) = probes.tangents(origin, whole)
    (leaning,) = probes.tangents(origin, whole, gradient)

    agree = np.mean(leaning.vector * gradient > 0)
    assert 0.7 < agree < 0.8, f"seed={seed}"
    assert 0.45 < np.mean(plain.vector * gradient > 0) < 0.55
    assert np.array_equal(np.abs(leaning.vector), np.abs(plain.vector))


def test_no_two_streams_draw_the_same_numbers():
    drawn = [generator(5, stream).bit_generator.random_raw() for stream in Stream]

    assert len(Stream.__members__) == len(set(drawn))
