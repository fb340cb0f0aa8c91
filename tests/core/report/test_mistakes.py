"""Planted mistakes are called by their name; right and randomly wrong derivatives by none."""

import numpy as np
import pytest
from scenarios import over_seeds, seeds

from adjudge.report.mistakes import DerivativePair, diagnose

RTOL = 4e-7
DTYPES = {"float64": (4e-7, 1e-9), "float32": (1.3e-3, 1e-4), "bfloat16": (0.11, 1e-2)}


def truth(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def noisy(right, seed=1, relative=1e-9):
    """A reference as far off as its error bar says."""
    error = relative * (np.abs(right) + np.abs(right).max())
    return right + error * np.random.default_rng(seed).choice([-1.0, 1.0], right.shape), error


def pair(automatic, reference, error, rtol=RTOL):
    """Derivatives with respect to real numbers, of the shape of the input."""
    return DerivativePair(*(part[..., None] for part in (automatic, reference, error)), rtol)


def said(automatic, right, relative=1e-9, rtol=RTOL, **known):
    reference, error = noisy(right, relative=relative)
    if "other" in known:
        known["other"] = known["other"][..., None]
    return diagnose(pair(automatic, reference, error, rtol), **known)


def said_of_complex(automatic, right):
    def components(z):
        return np.stack([z.real, z.imag], axis=-1)

    reference, error = noisy(components(right))
    return diagnose(DerivativePair(components(automatic), reference, error, RTOL))


def with_zero(g, *index):
    g = g.copy()
    g[index] = 0.0
    return g


def with_random(g, *index):
    g = g.copy()
    g[index] = np.random.default_rng(7).normal(size=g[index].shape)
    return g


ALL = slice(None)

# what is made of the right gradient, of which shape, and what is said of it
MISTAKES = {
    "sign": ((4, 6), lambda g: -g, "has the opposite sign in 24 of 24 entries"),
    "twice": (
        (4, 6),
        lambda g: 2 * g,
        "is 2 times the reference in 24 of 24 entries: a missing factor 1/2?",
    ),
    "half": (
        (4, 6),
        lambda g: g / 2,
        "is 1/2 times the reference in 24 of 24 entries: a missing factor 2?",
    ),
    "mean for sum": (
        (4, 6),
        lambda g: g / 6,
        "is 1/6 times the reference in 24 of 24 entries: a mean for a sum, or no sum over a "
        "broadcast axis? (6: the size of axis 1)",
    ),
    "sum for mean": (
        (4, 6),
        lambda g: 24 * g,
        "is 24 times the reference in 24 of 24 entries: a sum for a mean? "
        "(24: the size of the input)",
    ),
    "some factor": ((4, 6), lambda g: -1.7 * g, "is -1.7 times the reference in 24 of 24 entries"),
    "a factor close to one": (
        (4, 6),
        lambda g: 1.00002 * g,
        "is 1.00002 times the reference in 24 of 24 entries",
    ),
    "all zero": (
        (4, 6),
        lambda g: 0 * g,
        "is zero in 24 of 24 entries, where the reference is not",
    ),
    "transpose": (
        (4, 4),
        lambda g: g.T,
        "is that of the transposed input (axes 0 and 1 swapped)",
    ),
    "batched transpose": (
        (2, 3, 3),
        lambda g: g.swapaxes(1, 2),
        "is that of the transposed input (axes 1 and 2 swapped)",
    ),
    "reshape for transpose": (
        (3, 5),
        lambda g: g.T.reshape(3, 5),
        "is that of the input with axes 0 and 1 reshaped, not transposed",
    ),
    "reshape for the transpose back": (
        (3, 5),
        lambda g: g.reshape(5, 3).T,
        "is that of the input with axes 0 and 1 reshaped, not transposed",
    ),
    "flip": ((4, 6), lambda g: g[:, ::-1], "is reversed along axis 1"),
    "roll": (
        (4, 6),
        lambda g: np.roll(g, 2, 1),
        "is shifted by 2 along axis 1 (around the end)",
    ),
    "roll backwards": (
        (7,),
        lambda g: np.roll(g, -1),
        "is shifted by -1 along axis 0 (around the end)",
    ),
    "shift": (
        (4, 6),
        lambda g: np.pad(g, ((0, 0), (1, 0)))[:, :-1],
        "is shifted by 1 along axis 1 (and filled with zero)",
    ),
    "permutation": (
        (4, 6),
        lambda g: g[[1, 0, 3, 2]],
        "has the indices of axis 0 in another order (1, 0, 3, 2)",
    ),
    "summed": (
        (4, 6),
        lambda g: g.sum(0) + 0 * g,
        "is summed over axis 0, and repeated along it",
    ),
    "averaged": ((4, 6), lambda g: g.mean(1, keepdims=True) + 0 * g, "is averaged over axis 1"),
    "symmetrised": (
        (4, 4),
        lambda g: (g + g.T) / 2,
        "is symmetrised: the mean of it and its transpose",
    ),
    "triangle": (
        (4, 4),
        np.tril,
        "is zero above the diagonal, where the reference is not",
    ),
    "row": (
        (4, 6),
        lambda g: with_zero(g, 2),
        "is zero at index 2 of axis 0, where the reference is not; right elsewhere",
    ),
    "column": (
        (4, 6),
        lambda g: with_zero(g, ALL, 5),
        "is zero at index 5 of axis 1, where the reference is not; right elsewhere",
    ),
    "dropped block": (
        (4, 6),
        lambda g: with_zero(g, slice(1, 3), slice(2, 5)),
        "is zero at indices 1 to 2 of axis 0 and indices 2 to 4 of axis 1, where the reference "
        "is not; right elsewhere",
    ),
    "zero but in the first of a batch": (
        (4, 6),
        lambda g: with_zero(g, slice(1, None)),
        "is zero except at index 0 of axis 0 (only the first element of a batch?), where the "
        "reference is not; right there",
    ),
    "right in the first of a batch only": (
        (4, 6),
        lambda g: with_random(g, slice(1, None)),
        "is wrong except at index 0 of axis 0 (only the first element of a batch?); right there",
    ),
    "wrong row": (
        (6, 6),
        lambda g: with_random(g, 3),
        "is wrong at index 3 of axis 0; right elsewhere",
    ),
    "sign in one column": (
        (4, 6),
        lambda g: g * [1, 1, -1, 1, 1, 1],
        "has the opposite sign at index 2 of axis 1; right elsewhere",
    ),
    "one entry": (
        (4, 6),
        lambda g: g * (1 + 0.001 * (np.arange(24).reshape(4, 6) == 9)),
        "is wrong in 1 of 24 entries, at [1, 3]",
    ),
    "one zero": (
        (4, 6),
        lambda g: with_zero(g, 1, 3),
        "is wrong in 1 of 24 entries, at [1, 3]: it is zero",
    ),
    "scattered zeros": (
        (4, 6),
        lambda g: g * (np.arange(24).reshape(4, 6) % 5 > 0),
        "is zero in 5 of 24 entries, where the reference is not; the others are right",
    ),
    "scattered signs": (
        (4, 6),
        lambda g: g * np.where(np.arange(24).reshape(4, 6) % 5 > 0, 1, -1),
        "has the opposite sign in 5 of 24 entries; the others are right",
    ),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_called_by_its_name(mistake, seed):
    shape, plant, sentence = MISTAKES[mistake]
    right = truth(*shape, seed=seed)

    text = said(plant(right), right)

    assert text == f"the automatic derivative {sentence}"


@pytest.mark.parametrize("mistake", MISTAKES)
def test_noise_of_the_automatic_side_within_the_tolerance_hides_no_mistake(mistake):
    shape, plant, sentence = MISTAKES[mistake]
    right = truth(*shape)
    rounded = plant(right) * (1 + 1e-8 * truth(*shape, seed=5))

    text = said(rounded, right)

    assert text == f"the automatic derivative {sentence}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (2,), (24,), (4, 6), (3, 3), (2, 3, 4), ()])
def test_nothing_is_said_of_a_right_derivative(shape, dtype):
    rtol, relative = DTYPES[dtype]
    right = truth(*shape)

    text = said(right, right, relative=relative, rtol=rtol, x=right.reshape(-1))

    assert text is None


@over_seeds(20)
@pytest.mark.parametrize("shape", [(1,), (2,), (24,), (4, 6), (3, 3), (2, 3, 4), ()])
def test_nothing_is_said_of_a_random_derivative(shape, seeds):
    for seed in seeds:
        right, wrong = truth(*shape, seed=seed), truth(*shape, seed=seed + 1000)
        x = truth(*shape, seed=seed + 2000).reshape(-1)

        assert said(wrong, right, x=x, output_shape=(5, 3)) is None, seed


@pytest.mark.parametrize("shape", [(1,), (2,), (3,), (6,), (3, 3)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_coarse_dtype_seldom_takes_a_random_derivative_for_a_pattern(shape, dtype):
    rtol, relative = DTYPES[dtype]

    texts = [
        said(
            truth(*shape, seed=seed + 1000),
            truth(*shape, seed=seed),
            relative=relative,
            rtol=rtol,
            x=truth(*shape, seed=seed + 2000).reshape(-1),
        )
        for seed in range(100)
    ]

    # one wrong entry beside right ones is a fact, and no pattern that might be an accident
    claimed = [text for text in texts if text is not None and "wrong in 1 of" not in text]
    assert len(claimed) <= 2, claimed


@over_seeds(20)
def test_nothing_is_said_of_scattered_random_errors(seeds):
    right = truth(4, 6)
    for seed in seeds:
        random = np.random.default_rng(seed)
        some = random.permutation(24).reshape(4, 6) < 11
        wrong = np.where(some, random.normal(size=(4, 6)), right)

        assert said(wrong, right, x=truth(24, seed=seed + 2000)) is None, seed


def test_a_mixture_of_two_mistakes_is_neither():
    right = truth(4, 4)
    mixed = np.where(np.arange(16).reshape(4, 4) % 2, -right, right.T)

    text = said(mixed, right)

    assert text is None


def test_a_pattern_with_one_entry_that_contradicts_it_is_not_claimed():
    right = truth(4, 4)
    almost = right.T.copy()
    almost[0, 1] *= 1.01

    text = said(almost, right)

    assert text is None


def test_the_transpose_of_a_symmetric_derivative_is_right():
    right = truth(4, 4)
    symmetric = right + right.T

    text = said(symmetric.T, symmetric)

    assert text is None


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_sign_of_a_single_number_is_seen(dtype):
    rtol, relative = DTYPES[dtype]
    right = truth(1)

    text = said(-right, right, relative=relative / 100, rtol=rtol)

    assert text == "the automatic derivative has the opposite sign in 1 of 1 entries"


@pytest.mark.parametrize("c", [-1.7, 1.3, 0.1])
def test_any_factor_explains_a_single_number_and_so_none_does(c):
    right = truth(1)

    text = said(c * right, right)

    assert text is None


def test_an_error_bar_as_wide_as_the_derivative_is_evidence_of_nothing():
    right = truth(2)

    text = said(-right, right, relative=0.6)

    assert text is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_tells_a_factor_from_its_neighbours(dtype):
    rtol, relative = DTYPES[dtype]
    right = truth(4, 5)

    text = said(right / 5, right, relative=relative, rtol=rtol, output_shape=(5, 3))

    assert text is not None
    assert "is 1/5 times the reference in" in text
    assert "(5: the size of axis 0 of the output)" in text


def test_a_factor_is_looked_for_among_the_axes_of_the_output():
    right = truth(3)

    text = said(7 * right, right, output_shape=(7, 3))

    assert text == (
        "the automatic derivative is 7 times the reference in 3 of 3 entries: a sum for a mean? "
        "(7: the size of axis 0 of the output)"
    )


def test_twice_is_a_factor_of_its_own_and_perhaps_an_axis():
    right = truth(2, 4)

    text = said(2 * right, right)

    assert text is not None
    assert "a missing factor 1/2? a sum for a mean? (2: the size of axis 0)" in text


def test_vanishing_entries_are_not_counted_as_evidence():
    right = with_zero(truth(4, 6), 0)

    text = diagnose(pair(-right, right, 1e-9 * np.abs(right)))

    assert text is not None
    assert "has the opposite sign in 18 of 24 entries (the others are zero)" in text


def test_unknown_entries_of_the_reference_take_no_part():
    right = truth(4, 4)
    reference, error = noisy(right)
    reference[1, 2] = np.nan
    error[3, 0] = np.inf

    sign = diagnose(pair(-right, reference, error))
    swap = diagnose(pair(right.T, reference, error))

    assert sign == "the automatic derivative has the opposite sign in 14 of 14 entries"
    assert swap == "the automatic derivative is that of the transposed input (axes 0 and 1 swapped)"


def test_entries_that_are_not_finite_are_wrong():
    right = truth(4, 6)

    everywhere = said(right * np.nan, right)
    in_a_row = said(np.where(np.arange(4)[:, None] == 1, np.inf, right), right)

    assert everywhere == "the automatic derivative is not finite in 24 of 24 entries"
    assert in_a_row == (
        "the automatic derivative is not finite at index 1 of axis 0; right elsewhere"
    )


def test_a_derivative_of_entries_that_f_does_not_read_is_said_to_be_there():
    right = truth(4, 6)
    right[2:, :] = 0.0
    error = 1e-9 * np.abs(right)
    wrong = np.where(right == 0, truth(4, 6, seed=3), right)

    text = diagnose(pair(wrong, right, error))

    assert text == (
        "the automatic derivative is not zero at indices 2 to 3 of axis 0, where f does not "
        "move; right elsewhere"
    )


def test_a_derivative_of_an_input_that_f_does_not_read_at_all_is_said_to_be_there():
    nothing = np.zeros(6)

    text = diagnose(pair(truth(6), nothing, nothing))

    assert text == "the automatic derivative is not zero in 6 of 6 entries, where f does not move"


@pytest.mark.parametrize(
    ("place", "inside"),
    [
        ("zero", lambda x: x == 0),
        ("negative", lambda x: x < 0),
        ("zero or negative", lambda x: x <= 0),
        ("positive", lambda x: x > 0),
    ],
)
def test_the_values_of_x_at_which_entries_are_wrong_are_named(place, inside):
    right = truth(4, 6)
    x = truth(4, 6, seed=4)
    x[:, 2] = 0.0
    wrong = np.where(inside(x), 0.0, right)

    text = said(wrong, right, x=x.ravel())

    assert text == (
        f"the automatic derivative is zero exactly where the input is {place}, "
        "where the reference is not"
    )


def test_two_wrong_entries_of_four_say_nothing_about_the_sign_of_x():
    right = np.asarray([1.0, 2.0, 3.0, 4.0])

    text = said(
        with_random(right, [0, 2]), right, x=np.asarray([-1.0, 1.0, -2.0, 2.0]), relative=1e-9
    )

    assert text is None


def test_the_one_wrong_entry_is_told_to_be_where_x_is_zero():
    right = truth(4)

    text = said(with_zero(right, 2), right, x=np.asarray([1.0, 2.0, 0.0, -1.0]))

    assert text is not None
    assert text.endswith("at [2] (where x is 0): it is zero")


def test_a_gradient_that_is_the_same_for_two_cotangents_ignores_them():
    right, wrong = truth(6), truth(6, seed=1)

    text = said(wrong, right, other=wrong)

    assert text == "the automatic derivative is the same for two cotangents: they are ignored"


@pytest.mark.parametrize("factor", [-2.0, 0.5])
def test_a_gradient_that_is_linear_in_the_cotangent_does_not_ignore_it(factor):
    right, wrong = truth(6), truth(6, seed=1)

    text = said(wrong, right, other=factor * wrong)

    assert text is None


@pytest.mark.usefixtures("quiet")
def test_a_gradient_of_zero_does_not_ignore_the_cotangent():
    right = truth(6)

    text = said(0 * right, right, other=0 * right)

    assert text is not None
    assert "is zero in 6 of 6 entries" in text


COMPLEX = {
    "conjugate": (np.conj, "has imaginary parts of the opposite sign: a missing conjugate?"),
    "conjugate and sign": (
        lambda g: -np.conj(g),
        "has real parts of the opposite sign: a missing conjugate?",
    ),
    "real part": (np.real, "has no imaginary parts, where the reference has"),
    "imaginary part": (lambda g: 1j * g.imag, "has no real parts, where the reference has"),
    "factor i": (lambda g: 1j * g, "is i times the reference"),
    "factor -i": (lambda g: -1j * g, "is -i times the reference"),
    "phase": (
        lambda g: g * np.exp(1j * np.arange(12).reshape(3, 4)),
        "has the right modulus and the wrong phase: a missing conjugate?",
    ),
    "sign": (lambda g: -g, "has the opposite sign in 12 of 12 entries"),
    "flip": (lambda g: g[::-1], "is reversed along axis 0"),
    "one entry": (
        lambda g: g * (1 + (np.arange(12).reshape(3, 4) == 6)),
        "is wrong in 1 of 12 entries, at [1, 2]",
    ),
    "conjugate of a row": (
        lambda g: np.where(np.arange(3)[:, None] == 1, 0, g),
        "is zero at index 1 of axis 0, where the reference is not; right elsewhere",
    ),
}


@pytest.mark.parametrize("mistake", COMPLEX)
def test_a_mistake_with_complex_numbers_is_called_by_its_name(mistake):
    plant, sentence = COMPLEX[mistake]
    right = truth(3, 4) + 1j * truth(3, 4, seed=1)

    text = said_of_complex(plant(right), right)

    assert text == f"the automatic derivative {sentence}"


@pytest.mark.parametrize("seed", seeds(10))
def test_nothing_is_said_of_a_right_or_random_complex_derivative(seed):
    right = truth(3, 4) + 1j * truth(3, 4, seed=1)
    wrong = truth(3, 4, seed=seed + 10) + 1j * truth(3, 4, seed=seed + 30)

    texts = said_of_complex(right, right), said_of_complex(wrong, right)

    assert texts == (None, None)


@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_nothing_is_said_of_an_empty_input(shape):
    empty = np.zeros(shape)

    text = diagnose(pair(empty, empty, empty))

    assert text is None


def test_a_sentence_fits_one_line_of_any_shape():
    right = truth(40)

    text = said(right[np.random.default_rng(0).permutation(40)], right)

    assert text == "the automatic derivative has the indices of axis 0 in another order"
