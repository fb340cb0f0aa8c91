"""A mistake in a gradient of many entries is called by its name, after a dozen evaluations."""

import numpy as np
import pytest
from scenarios import seeds

from adjudge import ByHand, Verdict, examine

SQUARE, LONG, FLAT, WIDE = (12, 12), (40, 5), (300,), (60, 50)


def zeroed(g, *index):
    g = g.copy()
    g[index] = 0.0
    return g


def mean(g, axis):
    return np.broadcast_to(g.mean(axis, keepdims=True), g.shape)


MISTAKES = [
    ("is 2 times the reference in all", lambda g, x: 2 * g, SQUARE),
    ("has the opposite sign in all 300 entries", lambda g, x: -g, FLAT),
    ("is 1.01 times the reference in all 200 entries", lambda g, x: 1.01 * g, LONG),
    ("is 1/40 times the reference in all", lambda g, x: g / 40, LONG),
    ("(40: the size of axis 0 of the output)", lambda g, x: g / 40, LONG),
    ("is zero in all 3000 entries, where the reference is not", lambda g, x: 0 * g, WIDE),
    ("is that of the transposed input (axes 0 and 1 swapped)", lambda g, x: g.T, SQUARE),
    (
        "axes 0 and 1 reshaped, not transposed",
        lambda g, x: np.ascontiguousarray(g.T).reshape(g.shape),
        LONG,
    ),
    ("is reversed along axis 1", lambda g, x: g[:, ::-1], WIDE),
    ("is shifted by 7 along axis 0 (around the end)", lambda g, x: np.roll(g, 7, 0), WIDE),
    ("is shifted by -1 along axis 0 (around the end)", lambda g, x: np.roll(g, -1, 0), FLAT),
    (
        "is shifted by 1 along axis 0 (and filled with zero)",
        lambda g, x: np.concatenate([0 * g[:1], g[:-1]]),
        WIDE,
    ),
    (
        "is summed over axis 1, and repeated along it",
        lambda g, x: np.broadcast_to(g.sum(1, keepdims=True), g.shape),
        LONG,
    ),
    ("is averaged over axis 0", lambda g, x: mean(g, 0), WIDE),
    ("is symmetrised: the mean of it and its transpose", lambda g, x: (g + g.T) / 2, SQUARE),
    ("is zero above the diagonal", lambda g, x: np.tril(g), SQUARE),
    ("is zero off the diagonal", lambda g, x: np.diag(np.diag(g)), SQUARE),
    (
        "is 3 times the reference exactly where the input is negative",
        lambda g, x: np.where(x < 0, 3 * g, g),
        SQUARE,
    ),
    ("is zero exactly where the input is positive", lambda g, x: np.where(x > 0, 0, g), FLAT),
    ("is zero at index 31 of axis 0", lambda g, x: zeroed(g, 31), WIDE),
    ("is zero at index 3 of axis 1", lambda g, x: zeroed(g, slice(None), 3), LONG),
    (
        "is zero except at index 0 of axis 0 (only the first element of a batch?)",
        lambda g, x: zeroed(g, slice(1, None)),
        WIDE,
    ),
]


def wave(shape, mistake, dtype=np.float64):
    """`sin(x A) + x³ / 9` and its vjp with a mistake."""
    A = np.random.default_rng(0).normal(size=(shape[-1], shape[-1])).astype(dtype)

    def vjp(x, w):
        return mistake((w * np.cos(x @ A)) @ A.T + w * x**2 / 3, x).astype(dtype)

    return ByHand(lambda x: np.sin(x @ A) + x**3 / 9, vjp=vjp)


def point(shape, dtype=np.float64):
    return np.random.default_rng(1).normal(size=shape).astype(dtype)


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize(("said", "mistake", "shape"), MISTAKES, ids=[m[0] for m in MISTAKES])
def test_a_mistake_in_many_entries_is_called_by_its_name(said, mistake, shape, seed):
    report = examine(wave(shape, mistake), point(shape), seed=seed, mode="projected")

    assert report.verdict is Verdict.FAIL
    assert said in report.findings[0].detail.mistake
    # a right rule takes 11, and two evaluations of each entry would take 288 to 6000
    assert report.counts["evaluations"] + report.counts["vjps"] <= 90


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize(
    "mistake",
    [
        lambda g, x: g * np.linspace(1, 2, g.size).reshape(g.shape),
        lambda g, x: g * np.random.default_rng(5).normal(size=g.shape),
        lambda g, x: g + g.T**2,
        lambda g, x: np.where(np.arange(g.size).reshape(g.shape) % 7 < 3, 2 * g, 3 * g),
    ],
    ids=["many factors", "random", "something else", "two factors"],
)
def test_nothing_is_said_of_what_is_no_mistake_that_is_known(mistake, seed):
    report = examine(wave(SQUARE, mistake), point(SQUARE), seed=seed, mode="projected")

    details = [getattr(finding.detail, "mistake", "") for finding in report.findings]
    assert report.verdict is Verdict.FAIL
    assert set(details) == {""}


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("index", [(0, 0), (5, 7), (11, 11)])
def test_one_wrong_entry_of_many_is_no_row(index, seed):
    """Its row and its column are wrong as well, by no single factor, and no other is."""
    report = examine(
        wave(SQUARE, lambda g, x: zeroed(g, *index)), point(SQUARE), seed=seed, mode="projected"
    )

    assert report.verdict is Verdict.FAIL
    assert {entry.input for entry in report.entries} == {"inputs[0]"}
    assert report.findings[0].detail.mistake == ""


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize(
    ("said", "mistake"),
    [
        ("has imaginary parts of the opposite sign: a missing conjugate?", np.conj),
        ("has no imaginary parts, where the reference has", lambda g: g.real + 0j),
        ("is i times the reference", lambda g: 1j * g),
        ("is 2 times the reference in all 100 entries", lambda g: 2 * g),
        ("is reversed along axis 0", lambda g: g[::-1]),
    ],
)
def test_a_mistake_with_many_complex_numbers_is_called_by_its_name(said, mistake, seed):
    random = np.random.default_rng(2)
    z = random.normal(size=100) + 1j * random.normal(size=100)
    rule = ByHand(lambda z: z**3, vjp=lambda z, w: mistake(w * np.conj(3 * z**2)))

    report = examine(rule, z, seed=seed, mode="projected")

    assert said in report.findings[0].detail.mistake


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize(
    ("said", "mistake"),
    [
        ("has the opposite sign in all 144 entries", lambda v, x: -v),
        ("is that of the transposed input (axes 0 and 1 swapped)", lambda v, x: v.T),
        ("is reversed along axis 0", lambda v, x: v[::-1]),
        ("is zero exactly where the input is negative", lambda v, x: np.where(x < 0, 0, v)),
    ],
)
def test_forward_mode_names_the_mistake_in_many_entries_too(said, mistake, seed):
    A = np.random.default_rng(0).normal(size=(12, 12))
    rule = ByHand(lambda x: np.sin(x @ A), jvp=lambda x, v: np.cos(x @ A) * (mistake(v, x) @ A))

    report = examine(rule, point(SQUARE), seed=seed, mode="projected")

    assert said in report.findings[0].detail.mistake


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize(
    ("said", "mistake", "shape"),
    [m for m in MISTAKES if m[0].startswith(("is 2", "is that", "is zero above"))],
)
def test_a_mistake_in_single_precision_is_called_by_its_name(said, mistake, shape, seed):
    x = point(shape, np.float32)

    report = examine(wave(shape, mistake, np.float32), x, seed=seed, mode="projected")

    assert said in report.findings[0].detail.mistake


@pytest.mark.parametrize("seed", seeds(10))
def test_a_derivative_along_symmetric_matrices_alone_is_said_to_be_that(seed):
    A = point((6, 6))
    x = A @ A.T + 6 * np.eye(6)

    def vjp(x, w):
        g = -np.linalg.inv(x).T @ w @ np.linalg.inv(x).T
        return (g + g.T) / 2

    report = examine(ByHand(np.linalg.inv, vjp=vjp), x, seed=seed, mode="projected")

    assert "is symmetrised" in report.findings[0].detail.mistake
    assert "directions='symmetric'" in report.findings[0].detail.mistake


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize(
    ("said", "mistake"),
    [
        ("is reversed along axis 0", lambda g: g[::-1]),
        ("is 2 times the reference", lambda g: 2 * g),
    ],
)
def test_entries_of_many_magnitudes_are_moved_within_their_scale(said, mistake, seed):
    """The smallest would be thrown across its domain by the step of the largest, and steps of the
    largest that suit the smallest are rounded.
    """
    rule = ByHand(np.log, vjp=lambda x, w: mistake(w / x))

    report = examine(rule, np.logspace(-3, 3, 200), seed=seed, mode="projected")

    assert report.verdict is Verdict.FAIL
    assert said in report.findings[0].detail.mistake


@pytest.mark.parametrize("seed", seeds(10))
def test_a_missing_mask_is_named(seed):
    x = point(FLAT)
    rule = ByHand(lambda x: np.maximum(x, 0) ** 2, vjp=lambda x, w: 2 * w * x)

    report = examine(rule, x, seed=seed, mode="projected")

    said = "is not zero exactly where the input is negative, where the reference is zero"
    assert said in report.findings[0].detail.mistake


@pytest.mark.parametrize("seed", seeds(10))
def test_the_only_positive_entry_says_nothing_about_the_sign(seed):
    x = -np.abs(point((6, 5)))
    x[2, 3] *= -1

    report = examine(wave((6, 5), lambda g, x: zeroed(g, 2, 3)), x, seed=seed, mode="projected")

    assert report.verdict is Verdict.FAIL
    assert report.findings[0].detail.mistake == ""


@pytest.mark.parametrize("seed", seeds(10))
def test_a_fast_function_takes_ladders_for_its_sums(seed):
    rule = ByHand(lambda x: np.sin(300 * x), vjp=lambda x, w: 600 * w * np.cos(300 * x))

    report = examine(rule, point(FLAT), seed=seed, mode="projected")

    assert "is 2 times the reference" in report.findings[0].detail.mistake


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize(
    ("most", "mistake"),
    [
        (60, lambda g, i: np.where(i % 7 < 3, 2 * g, 3 * g)),
        (32, lambda g, i: np.where(i == 17, 2 * g, g)),
    ],
    ids=["every entry by one of two factors", "one entry"],
)
def test_looking_for_a_mistake_that_is_none_takes_no_longer_than_the_search(most, mistake, seed):
    """The right rule takes 4 evaluations, and comparing each entry would take 600."""
    i = np.arange(300)
    rule = ByHand(lambda x: np.sum(np.sin(x)), vjp=lambda x, w: mistake(w * np.cos(x), i))

    report = examine(rule, point(FLAT), seed=seed, mode="projected")

    assert report.verdict is Verdict.FAIL
    assert report.findings[0].detail.mistake == ""
    assert report.counts["evaluations"] <= most


@pytest.mark.parametrize("seed", range(3))
def test_forward_mode_ends_the_sums_though_it_can_rule_no_guess_out(seed):
    """All guesses would take 164 evaluations."""
    A = np.random.default_rng(0).normal(size=(12, 12))
    factors = np.linspace(1, 2, 144).reshape(SQUARE)
    rule = ByHand(lambda x: np.sin(x @ A), jvp=lambda x, v: np.cos(x @ A) * ((factors * v) @ A))

    report = examine(rule, point(SQUARE), seed=seed, mode="projected")

    assert report.findings[0].detail.mistake == ""
    assert report.counts["evaluations"] <= 145


@pytest.mark.parametrize("seed", seeds(10))
def test_a_gradient_of_equal_numbers_fits_many_shifts_and_none_is_tried(seed):
    rule = ByHand(lambda x: np.sum(x), vjp=lambda x, w: w * np.where(np.arange(300) % 2, 2.0, 1.0))

    report = examine(rule, point(FLAT), seed=seed, mode="projected")

    assert report.findings[0].detail.mistake == ""
    assert report.counts["evaluations"] <= 60
