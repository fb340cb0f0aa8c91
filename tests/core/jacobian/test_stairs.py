"""A function that stands still about x has derivative zero, however far it jumps farther off."""

import numpy as np
import pytest
from scenarios import over_seeds, seeds

from adjudge import ByHand, Status, Verdict, examine, reference


def quantised(x):
    return np.clip(np.round(x / 0.05), -128, 127) * 0.05


STAIRS = {
    "floor": np.floor,
    "round": np.round,
    "sixteenths": lambda x: np.round(16 * x) / 16,
    "tenths": lambda x: np.round(10 * x) / 10,
    "heights that are no dyadic number": lambda x: 3.3 * np.round(x),
    "beside a large number": lambda x: np.floor(x) + 1e6,
    "a quantiser of eight bits": quantised,
    "a sum of stairs": lambda x: np.sum(np.floor(x) * np.arange(1, x.size + 1)),
    "sign": np.sign,
}
RANGES = [(0.1, 3.0), (30.0, 150.0), (900.0, 1100.0)]
SEEDS = range(10)


def beside_jumps(f, x):
    """Whether f jumps within the steps of a check, where differences see the jump alone."""
    return any(np.any(f(x) != f(x * (1 + h))) for h in (-1e-4, 1e-4))


def zero(x, w):
    return np.zeros_like(x)


def straight_through(x, w):
    return np.ones_like(x) * w


def points(f, low, high, size):
    """Ten points at which f stands still about x."""
    found, seed = [], 0
    while len(found) < len(SEEDS):
        x = np.random.default_rng(seed).uniform(low, high, size)
        seed += 1
        if not beside_jumps(f, x) or seed > 1000:
            found.append(x)
    return found


@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize(("low", "high"), RANGES)
@pytest.mark.parametrize("name", STAIRS)
def test_zero_passes_on_a_staircase_and_a_straight_through_gradient_does_not(name, low, high, mode):
    f = STAIRS[name]
    # some of the ten points: the cells of this table make 81 of them
    count = 2 if mode == "projected" else 1
    for seed, x in enumerate(points(f, low, high, 1 + 2 * (mode == "projected"))[:count]):
        right = examine(ByHand(f, vjp=zero), x, seed=seed, mode=mode)
        wrong = examine(ByHand(f, vjp=straight_through), x, seed=seed, mode=mode)

        assert right.verdict is Verdict.PASS, (seed, x)
        assert wrong.verdict is Verdict.FAIL, (seed, x)
        assert Status.SPURIOUS in {finding.status for finding in wrong.findings}
        assert not any(f.status is Status.IMPRECISE for f in (*right.findings, *wrong.findings))


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize(("low", "high"), RANGES)
def test_stairs_beside_a_smooth_output_are_judged_by_themselves(low, high, seed):
    x = points(np.round, low, high, 1)[seed]

    def f(x):
        return np.stack([np.sin(x), np.round(x)])

    right = examine(ByHand(f, vjp=lambda x, w: w[0] * np.cos(x)), x, seed=seed)
    wrong = examine(ByHand(f, vjp=lambda x, w: w[0] * np.cos(x) + w[1]), x, seed=seed)

    assert right.verdict is Verdict.PASS
    assert wrong.verdict is Verdict.FAIL


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("x", [30.2, 300.4, 999.3])
def test_a_slope_between_jumps_is_judged_and_not_the_staircase(x, seed):
    def f(x):
        return x / 3 + np.floor(x)

    slope = examine(ByHand(f, vjp=lambda x, w: w / 3), np.array([x]), seed=seed)
    staircase = examine(ByHand(f, vjp=lambda x, w: w * 4 / 3), np.array([x]), seed=seed)

    assert slope.verdict is Verdict.PASS
    assert staircase.verdict is Verdict.FAIL


@over_seeds(10)
@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize(
    ("height", "low"), [(1 / 8, 900), (1 / 8, 5000), (0.05, 5000), (0.01, 100), (0.01, 5000)]
)
def test_stairs_that_are_low_beside_x_are_no_narrower_dtype(height, low, size, seeds):
    def f(x):
        return np.round(x / height) * height

    for seed in seeds if size > 1 else seeds[:2]:
        random = np.random.default_rng(seed)
        steps = random.integers(low / height, 1.8 * low / height, size)
        x = (steps + random.uniform(-0.3, 0.3, size)) * height
        for vjp, verdict in ((zero, Verdict.PASS), (straight_through, Verdict.FAIL)):
            assert examine(ByHand(f, vjp=vjp), x, seed=seed).verdict is verdict, seed


@over_seeds(10)
@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("slope", [1e-8, 1e-9, 1e-10, 1e-11])
def test_what_moves_by_units_of_rounding_is_no_staircase(slope, size, seeds):
    """Over the shortest steps such a function stands still, and over others it moves by more."""
    for seed in seeds if size > 1 else seeds[:2]:
        x = np.random.default_rng(seed).uniform(-1.2, 1.2, size)
        right, flat = (
            examine(ByHand(lambda x: 1 + slope * np.sin(x), vjp=vjp), x, seed=seed)
            for vjp in (lambda x, w: w * slope * np.cos(x), zero)
        )

        assert right.verdict is not Verdict.FAIL, seed
        assert flat.verdict is Verdict.FAIL, seed


SAMPLES = np.random.default_rng(5).normal(size=(10, 3))
ROUNDED = {
    "the input": (lambda x, to: np.sin(to(x)), np.cos),
    "the result": (lambda x, to: to(np.sin(x)), np.cos),
    "the middle": (lambda x, to: np.exp(to(np.sin(x))), lambda x: np.exp(np.sin(x)) * np.cos(x)),
}


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("name", ROUNDED)
def test_a_function_that_rounds_to_float32_inside_is_no_staircase(name, seed):
    f, slope = ROUNDED[name]

    def inside(x):
        return f(x, lambda v: v.astype(np.float32).astype(np.float64))

    right = examine(ByHand(inside, vjp=lambda x, w: w * slope(x)), SAMPLES[seed], seed=seed)
    wrong = examine(ByHand(inside, vjp=lambda x, w: 1.1 * w * slope(x)), SAMPLES[seed], seed=seed)

    assert right.verdict is not Verdict.FAIL
    assert Status.SPURIOUS not in {finding.status for finding in right.findings}
    assert wrong.verdict is Verdict.FAIL


def test_a_tail_is_no_staircase():
    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    for vjp in (lambda x, w: w * np.exp(-x), lambda x, w: 0 * w):
        report = examine(ByHand(sigmoid, vjp=vjp), np.array([38.0, 40.0]), seed=0)
        assert report.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("offset", [1e12, 1e13])
def test_a_slope_that_drowns_in_rounding_is_no_staircase(offset):
    f = ByHand(lambda x: offset + np.sin(x), vjp=lambda x, w: 0 * w)

    assert examine(f, np.array([0.5, 1.0]), seed=0).verdict is not Verdict.PASS


@pytest.mark.parametrize("x", [30.2, 999.3])
def test_a_surrogate_gradient_is_declared_by_a_reference(x):
    rounding = ByHand(np.round, vjp=straight_through)
    surrogate = reference.derivative(jvp=lambda x, v: v)

    assert examine(rounding, np.array([x]), reference=surrogate).verdict is Verdict.PASS
    doubled = ByHand(np.round, vjp=lambda x, w: 2 * w)
    assert examine(doubled, np.array([x]), reference=surrogate).verdict is Verdict.FAIL


@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("size", [1.0, 10.0, 100.0, 1000.0])
def test_stairs_that_divide_the_steps_are_seen(size, mode):
    x = size * np.asarray([1.00137, 1.0031, 0.9973, 1.01231])
    for seed, height in enumerate([1.0, 2**-6, 1e-2, 2**-9, 1e-3, 2**-10, 2**-11, 2**-12]):
        # in full mode powers of two alone, which divide the steps exactly
        if height < 4e-7 * size or (mode == "full" and seed % 2 == 0):
            continue

        def f(x, height=height):
            return np.round(x / height) * height

        right = examine(ByHand(f, vjp=zero), x, seed=seed, mode=mode)
        wrong = examine(ByHand(f, vjp=straight_through), x, seed=seed, mode=mode)

        assert right.verdict is Verdict.PASS, height
        assert wrong.verdict is Verdict.FAIL, height


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("height", [0.1, 0.05, 3.3])
def test_stairs_that_are_computed_in_float32_are_stairs(height, dtype, seed):
    """The values of a quantiser that computes in float32, as those of most frameworks do, need all
    of its digits at any magnitude, as rounded values do.
    """

    def f(x):
        scale = np.float32(height)
        return (np.round(x.astype(np.float32) / scale) * scale).astype(x.dtype)

    (x, *_) = points(f, 0.5 * seed, 0.5 * seed + 3.0, 5)
    x = x.astype(dtype)
    right, wrong = (
        examine(ByHand(f, vjp=vjp), x, seed=seed, modes=["R"]) for vjp in (zero, straight_through)
    )

    assert right.verdict is Verdict.PASS, str(right)
    assert wrong.verdict is Verdict.FAIL, str(wrong)


CANCELLING = {
    "coth": (
        lambda x: np.cosh(x) / np.sinh(x) - 1 / x,
        lambda x: 1 / 3 - x**2 / 15,
    ),
    "cosecant": (lambda x: 1 / np.sin(x) - 1 / x, lambda x: 1 / 6 + 7 * x**2 / 120),
    "coth less cosecant": (
        lambda x: 1 / np.tanh(x) - 1 / np.sin(x),
        lambda x: 1 / 6 - x**2 / 8,
    ),
}


@over_seeds(10, always=2)
@pytest.mark.parametrize("x", [[1e-4, 2e-4, 1.5e-4], [1e-4, 2e-4, 1.5e-4, 3e-5], [3e-5, 2e-5]])
@pytest.mark.parametrize("name", CANCELLING)
def test_narrow_stairs_that_go_both_ways_are_rounding(name, x, seeds):
    """That of large terms which cancel: `1/sin(x) - 1/x` is rounded to 1e-12 at 1e-4, where a
    quantiser of 20 bits is as wide, and zero is the derivative of neither.
    """
    f, slope = CANCELLING[name]
    for seed in seeds:
        right, zero, twice = (
            examine(
                ByHand(f, vjp=lambda x, w, part=part: part * w * slope(x)),
                np.asarray(x),
                seed=seed,
                blame=False,
            )
            for part in (1.0, 0.0, 2.0)
        )
        assert right.verdict is not Verdict.FAIL, right
        assert (zero.verdict, twice.verdict) == (Verdict.FAIL, Verdict.FAIL), zero


@over_seeds(10)
@pytest.mark.parametrize("size", [12, 40])
def test_entries_that_are_not_moved_alone_go_as_most_others(size, seeds):
    f, slope = CANCELLING["cosecant"]
    x = np.random.default_rng(size).uniform(5e-5, 3e-4, size)
    for seed in seeds:
        right = examine(ByHand(f, vjp=lambda x, w: w * slope(x)), x, seed=seed, blame=False)
        zero = examine(ByHand(f, vjp=lambda x, w: 0 * w), x, seed=seed, blame=False)
        assert right.verdict is not Verdict.FAIL, right
        assert zero.verdict is Verdict.FAIL, zero


@over_seeds(10)
@pytest.mark.parametrize("bits", [12, 16, 20])
@pytest.mark.parametrize("size", [1, 3, 6])
def test_narrow_stairs_of_a_quantiser_go_one_way(size, bits, seeds):
    """Those of a sum of quantised numbers go both ways where several of them move."""
    x = np.random.default_rng(3).uniform(0.1, 1, size)

    def stairs(x):
        return np.sum(np.round(x * 2.0**bits) / 2.0**bits)

    for seed in seeds:
        zero = examine(ByHand(stairs, vjp=lambda x, w: 0 * x), x, seed=seed, blame=False)
        through = examine(ByHand(stairs, vjp=lambda x, w: w + 0 * x), x, seed=seed, blame=False)
        assert zero.verdict is Verdict.PASS, zero
        assert through.verdict is Verdict.FAIL, through
