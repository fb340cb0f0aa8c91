"""Finite differences against derivatives in closed form: the error bar contains the truth."""

import numpy as np
import pytest
from scenarios import seeds

from adjudge.estimate.kinks import Slopes
from adjudge.estimate.stencils import (
    Sample,
    central_difference,
    combined,
    extrapolated,
    in_parts,
    ladder,
    ladder_ratio,
    ladder_steps,
    of_sums,
    three_steps,
)
from adjudge.floats import CHUNK, norm, relative_step, scale
from adjudge.limits import limited

EPS = float(np.finfo(np.float64).eps)


def samples(f, x, steps):
    """The step of each is the one that was really taken, after rounding."""
    return [
        Sample(((x + h) - (x - h)) / 2, np.atleast_1d(f(x + h)), np.atleast_1d(f(x - h)))
        for h in steps
    ]


def laddered(f, x):
    relative = relative_step(EPS)
    steps = ladder_steps(relative * abs(x), relative, EPS)
    return ladder(samples(f, x, steps), EPS, np.atleast_1d(f(x)))


def test_a_central_difference_of_a_parabola_is_exact():
    (sample,) = samples(lambda x: 3 * x**2 + 2 * x - 1, 1.0, [0.25])

    estimate = central_difference(sample, EPS)

    assert [8.0] == estimate.value.tolist()
    assert estimate.moved.tolist() == [True]
    assert estimate.method.evaluations == 2


@pytest.mark.parametrize("degree", range(6))
def test_the_ladder_is_exact_on_polynomials_to_rounding(degree):
    x = 1.25

    estimate = laddered(lambda x: x**degree, x)

    truth = degree * x ** max(degree - 1, 0) if degree else 0.0
    assert abs(estimate.value[0] - truth) <= estimate.error[0]
    assert estimate.error[0] <= 1e-9 * max(truth, 1.0)


def test_one_extrapolation_removes_the_cubic_term():
    x, steps = 0.5, [0.5, 0.125, 0.03125]
    cubic = samples(lambda x: x**3, x, steps)

    estimate = ladder(cubic, EPS, None)

    assert estimate.value[0] == pytest.approx(3 * x**2, rel=1e-14)
    assert estimate.method.evaluations == 6
    assert estimate.half_gap is None


@pytest.mark.parametrize("seed", seeds(5))
@pytest.mark.parametrize(
    ("f", "derivative"),
    [(np.sin, np.cos), (np.exp, np.exp), (np.log, np.reciprocal), (np.tanh, None)],
)
def test_the_error_bar_of_the_ladder_contains_the_truth(f, derivative, seed):
    random = np.random.default_rng(seed)
    derivative = derivative or (lambda x: 1 - np.tanh(x) ** 2)

    for x in random.uniform(0.05, 3.0, size=40):
        estimate = laddered(f, x)

        gap = abs(estimate.value[0] - derivative(x))
        assert gap <= estimate.error[0], f"seed={seed}, x={x!r}"
        assert estimate.error[0] <= 1e-6 * max(abs(derivative(x)), abs(f(x) / x)), f"x={x!r}"


@pytest.mark.parametrize("seed", seeds(5))
def test_the_error_bar_of_one_difference_contains_the_rounding(seed):
    random = np.random.default_rng(seed)

    for x in random.uniform(0.5, 3.0, size=40):
        # a line: there is no truncation, and all that is wrong is rounding
        (sample,) = samples(lambda x: x / 3 + 100.0, x, [relative_step(EPS) * x])
        estimate = central_difference(sample, EPS)

        assert abs(estimate.value[0] - 1 / 3) <= estimate.error[0], f"seed={seed}, x={x!r}"


def test_each_output_takes_its_own_window():
    x = 0.8
    steps = ladder_steps(relative_step(EPS), relative_step(EPS), EPS)

    estimate = ladder(
        samples(lambda x: np.asarray([np.sin(x), 1e8 + np.sin(x), np.sin(300 * x)]), x, steps),
        EPS,
        None,
    )

    truth = np.asarray([np.cos(x), np.cos(x), 300 * np.cos(300 * x)])
    assert np.all(np.abs(estimate.value - truth) <= estimate.error)
    assert estimate.error[0] < estimate.error[1]


def test_a_kink_has_one_sided_slopes_and_a_smooth_point_has_none():
    steps = ladder_steps(relative_step(EPS), relative_step(EPS), EPS)

    def bent(x):
        return np.asarray([np.where(x < 0, 2 * x, -3 * x), np.sin(x), x**2])

    estimate = ladder(samples(bent, 0.0, steps), EPS, bent(0.0))

    slopes = Slopes(estimate.value, estimate.half_gap)
    assert slopes.at(0) == pytest.approx((2.0, -3.0))
    assert [True, False, False] == slopes.kinks.tolist()


def test_a_constant_does_not_move_and_an_even_function_does():
    steps = ladder_steps(relative_step(EPS), relative_step(EPS), EPS)

    def f(x):
        return np.asarray([4.0, x**2, x])

    estimate = ladder(samples(f, 0.0, steps), EPS, f(0.0))

    assert [False, True, True] == estimate.moved.tolist()
    assert estimate.value == pytest.approx([0.0, 0.0, 1.0])


@pytest.mark.parametrize("seed", seeds(10))
def test_noise_of_many_outputs_does_not_diverge_and_a_root_among_them_does(seed):
    """What is rounded at the size of 30 and has values below 1 is noisier than it looks."""
    random = np.random.default_rng(seed)
    slope, value = random.uniform(0.1, 1.0, (2, 2000))
    roots = [3, 700, 1999]

    def f(t):
        values = (30.0 + value + slope * t) - 30.0
        values[roots] = value[roots] + np.sqrt(abs(t)) * np.sign(t)
        return values

    steps = ladder_steps(relative_step(EPS), relative_step(EPS), EPS)
    estimate = ladder([Sample(h, f(h), f(-h)) for h in steps], EPS, f(0.0))

    assert np.flatnonzero(np.isinf(estimate.error)).tolist() == roots
    off = np.delete(np.abs(estimate.value - slope) / estimate.error, roots)
    assert np.count_nonzero(off > 1) < 10
    assert off.max() < 2


@pytest.mark.parametrize("seed", seeds(10))
def test_windows_that_move_on_by_the_same_diverge_and_those_that_shrink_do_not(seed):
    """The slope of `x log|x|` at 0 grows by the same from step to step, give or take rounding."""
    start = np.random.default_rng(seed).uniform(1.0, 2.0) * relative_step(EPS)

    def f(t):
        size = abs(t)
        return np.sign(t) * np.asarray([size * np.log(size), size**1.25, np.sin(size)])

    samples = [Sample(h, f(h), f(-h)) for h in ladder_steps(start, start, EPS)]
    estimate = ladder(samples, EPS, np.zeros(3))

    assert [True, False, False] == np.isinf(estimate.error).tolist()


def test_two_ladders_that_disagree_allow_what_lies_between_them_and_nothing_beside():
    steps = ladder_steps(relative_step(EPS), relative_step(EPS), EPS)

    def slopes(*values):
        rates = np.array(values)
        return ladder([Sample(h, h * rates, -h * rates) for h in steps], EPS, np.zeros(3))

    one, two = slopes(1.0, 1.0, 3.0), slopes(1.0, 1.25, 2.75)
    both = combined(one, two)

    assert both.value == pytest.approx([1.0, 1.125, 2.875])
    assert both.error[0] == max(one.error[0], two.error[0])
    assert both.error[1:] == pytest.approx([0.125, 0.125])
    low, high = both.value - both.error, both.value + both.error
    for each in (one, two):
        assert np.all(low <= each.value)
        assert np.all(each.value <= high)


@pytest.mark.parametrize("size", [1e-4, 1e-8])
@pytest.mark.parametrize("seed", seeds(10))
def test_the_noise_of_large_outputs_is_none_of_small_ones(size, seed):
    """What small outputs have at x beside longer steps is a wave of their own."""
    slope, value = np.random.default_rng(seed).uniform(0.1, 1.0, (2, 300))
    width, small = 1e-7, np.arange(0, 300, 10)

    def f(t):
        values = (30.0 + value + slope * t) - 30.0
        wave = 1e-3 * width * np.sin(t / width)
        values[small] = size * (value + slope * t + wave)[small]
        return values

    steps = ladder_steps(relative_step(EPS), relative_step(EPS), EPS)
    estimate = ladder([Sample(h, f(h), f(-h)) for h in steps], EPS, f(0.0))

    off = np.abs(estimate.value - size * (slope + 1e-3))[small]
    assert np.all(off <= 1.5 * estimate.error[small])


@pytest.mark.parametrize("width", [1e-7, 2e-7])
@pytest.mark.parametrize("seed", seeds(10))
def test_a_wave_that_many_outputs_share_is_no_noise(width, seed):
    """Its slope at x is part of the derivative, and longer steps do not see it."""
    slope, value = np.random.default_rng(seed).uniform(0.1, 1.0, (2, 12))
    sign = np.sign(value - 0.5)

    def f(t):
        return value + slope * t + 1e-5 * width * np.sin(t / width) * sign

    steps = ladder_steps(relative_step(EPS), relative_step(EPS), EPS)
    estimate = ladder([Sample(h, f(h), f(-h)) for h in steps], EPS, f(0.0))

    off = np.abs(estimate.value - slope - 1e-5 * sign)
    assert np.all(off <= 1.5 * estimate.error)


def test_windows_that_are_not_finite_are_not_taken():
    steps = ladder_steps(relative_step(EPS), relative_step(EPS), EPS)
    x = 1e-4

    with np.errstate(invalid="ignore"):
        estimate = ladder(samples(np.sqrt, x, steps), EPS, np.sqrt(np.atleast_1d(x)))

    assert abs(estimate.value[0] - 50.0) <= estimate.error[0]
    assert estimate.error[0] < 1e-3


def test_where_nothing_is_finite_there_is_no_estimate():
    steps = ladder_steps(relative_step(EPS), relative_step(EPS), EPS)

    estimate = ladder(samples(lambda x: np.nan * x, 1.0, steps), EPS, None)

    assert np.isinf(estimate.error[0])


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("unit", [1e-300, 1e-200, 1.0, 1e200, 1e300])
def test_a_norm_keeps_its_range(unit):
    rows = unit * np.asarray([[3.0, 4.0, 0.0], [0.0, 0.0, 0.0]])

    lengths = norm(rows)

    assert lengths / unit == pytest.approx([5.0, 0.0])


def test_a_norm_of_infinity_or_nan_is_not_finite():
    assert norm(np.asarray([1.0, np.inf])) == np.inf
    assert np.isnan(norm(np.asarray([1.0, np.nan])))
    assert norm(np.zeros(0)) == 0.0


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_steps_are_powers_of_two_near_the_cube_root_of_the_roundoff(dtype):
    eps = float(np.finfo(dtype).eps)

    step = relative_step(eps)

    assert np.frexp(step)[0] == 0.5
    assert 0.5 <= step / (eps / 2) ** (1 / 3) <= 2.0


def test_the_ladder_descends_by_one_ratio_and_stays_within_the_scale():
    relative = relative_step(EPS)

    steps = ladder_steps(3 * relative, relative, EPS)

    assert np.allclose(np.divide(steps[:-1], steps[1:]), ladder_ratio(EPS))
    assert 3 * relative in steps
    assert max(steps) <= 3 * 0.125


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        ([3.0, 4.0], [12.5**0.5] * 2),
        ([0.0, 0.0], [1.0, 1.0]),
        ([0.0, 2.0], [2.0**0.5] * 2),
        ([1e-6, 1.0], [1e-6, 1.0]),
        ([-5.0], [5.0]),
        ([], []),
        ([1e200, 1e200], [1e200, 1e200]),
        ([np.nan, 2.0], [2.0, 2.0]),
    ],
)
def test_the_scale_is_the_root_mean_square_or_each_its_own(x, expected):
    found = scale(np.asarray(x))

    assert found.tolist() == pytest.approx(expected)


def test_an_entry_of_zero_among_very_different_ones_takes_the_root_mean_square():
    found = scale(np.asarray([1e-6, 0.0, 1.0]))

    assert [1e-6, pytest.approx(3**-0.5), 1.0] == found.tolist()


@pytest.fixture
def many():
    """Limits with which the outputs of these tests are many."""
    with limited(large=CHUNK):
        yield


@pytest.mark.usefixtures("many")
def test_the_estimate_of_many_outputs_is_that_of_its_parts():
    x = np.linspace(1, 2, 2 * CHUNK + 7)
    near, middle, far = (Sample(h, np.sin(x + h), np.sin(x - h)) for h in (1e-5, 2e-5, 5e-5))
    noise = 1e-12 * x
    plain = central_difference(near, EPS, noise)

    def each(part):
        own = [sample.of(part) for sample in (near, middle, far)]
        one = central_difference(own[0], EPS, noise[part])
        return one, extrapolated(own[0], own[1], EPS), three_steps(one, *own, np.sin(x[part]))

    whole = plain, extrapolated(near, middle, EPS), three_steps(plain, near, middle, far, np.sin(x))
    part = slice(CHUNK - 3, CHUNK + 4)
    for many, few in zip(whole, each(part), strict=True):
        assert many.count == x.size
        assert many.method == few.method
        for name in ("value", "error", "moved", "size"):
            assert np.array_equal(getattr(many, name)[part], getattr(few, name))
            assert np.array_equal(getattr(many.of(part), name), getattr(few, name))


@pytest.mark.usefixtures("many")
def test_what_is_changed_of_the_estimate_of_many_outputs_is_kept():
    x = np.linspace(1, 2, CHUNK + 7)
    plain = central_difference(Sample(1e-5, np.sin(x + 1e-5), np.sin(x - 1e-5)), EPS)
    bent = plain.but(half_gap=x, error=2 * x)

    assert np.array_equal(bent.value, plain.value)
    assert np.array_equal(bent.error, 2 * x)
    assert np.array_equal(bent.of(slice(CHUNK, None)).half_gap, x[CHUNK:])
    assert np.array_equal(bent.slopes.half_gap, x)
    assert plain.slopes is None


@pytest.mark.usefixtures("many")
def test_a_part_of_a_part_of_many_outputs_is_where_it_was():
    x = np.linspace(1, 2, 3 * CHUNK)
    sample = Sample(1e-5, np.sin(x + 1e-5), np.sin(x - 1e-5))
    some = central_difference(sample, EPS).of(slice(5, 2 * CHUNK + 9))

    assert some.count == 2 * CHUNK + 4
    assert np.array_equal(some.value, sample.slope[5 : 2 * CHUNK + 9])
    assert np.array_equal(some.of(slice(CHUNK, CHUNK + 3)).value, sample.slope[5:][CHUNK:][:3])
    assert np.array_equal(some.of(np.array([3, CHUNK])).value, some.value[[3, CHUNK]])


def test_few_outputs_are_estimated_at_once():
    asked = []

    def make(part):
        asked.append(part)
        return central_difference(Sample(1e-5, np.ones(3), np.zeros(3)), EPS)

    assert in_parts(make, 3).value.size == 3
    assert asked == [slice(None)]


@pytest.mark.parametrize("seed", seeds(10))
def test_values_on_a_lattice_are_rounded_to_it_however_small_they_are(seed):
    """Over the shortest steps such values move by one unit of the lattice, or by a few."""
    x = np.append(np.random.default_rng(seed).uniform(-13.0, -9.0, 300), 1.0)

    def f(t):
        return 1 + np.tanh(x + t)

    steps = ladder_steps(relative_step(EPS), relative_step(EPS), EPS)
    samples = [Sample(h, f(h), f(-h)) for h in steps]
    slope = 1 / np.cosh(x) ** 2

    estimate = ladder(samples, EPS, f(0.0))
    off = np.abs(estimate.value - slope)
    assert np.all(off <= estimate.error)
    assert np.all(estimate.error[x > -12] < 0.1 * slope[x > -12])

    w = np.append(1 / slope[:-1], 0.0)
    whole = of_sums(samples, w, [slice(0, x.size)], EPS)
    assert abs(whole.value[0] - 300) <= whole.error[0] < 3
