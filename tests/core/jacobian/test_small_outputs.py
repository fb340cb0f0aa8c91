"""Outputs that are too small to show beside others are compared by themselves."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from scenarios import long, over_seeds, seeds

from adjudge import ByHand, Verdict, examine

SEEDS = range(10)
X = np.asarray([0.4, -1.1, 0.7, 1.9, -0.3])
DECADES = np.linspace(-60, 60, 12)
ROWS = np.random.default_rng(4).standard_normal((12, 5))


@dataclass(frozen=True)
class Function:
    """A function of small and large outputs, with its Jacobian."""

    name: str
    value: object
    jacobian: object
    small: np.ndarray
    x: np.ndarray = field(default_factory=lambda: X)

    def rule(self, factor, modes):
        """The rule whose small outputs are off by the factor, or lack every other column."""

        def jacobian(x):
            entries = np.array(self.jacobian(x))
            if factor is not None:
                entries[self.small] *= factor
            elif entries.shape[1] > 1:
                entries[self.small] *= np.arange(entries.shape[1]) % 2
            return entries

        def vjp(x, w):
            return (jacobian(x).conj().T @ w).astype(x.dtype)

        def jvp(x, v):
            return (jacobian(x) @ v).astype(self.value(x).dtype)

        given = {"R": {"vjp": vjp}, "F": {"jvp": jvp}, "RF": {"vjp": vjp, "jvp": jvp}}
        return ByHand(lambda x: np.asarray(self.value(x)).astype(x.dtype), **given[modes])


def beside(large, small, slope):
    """`large * x` beside a small function of every entry."""
    return {
        "value": lambda x: np.concatenate([large * x, small(x)]),
        "jacobian": lambda x: np.concatenate([large * np.eye(x.size), np.diag(slope(x))]),
    }


def softmax(x):
    y = np.exp(x - np.max(x))
    return y / np.sum(y)


def directions(x):
    size = np.linalg.norm(x)
    return (np.eye(x.size) - np.outer(x, x) / size**2) / size


FUNCTIONS = [
    Function("1e10 x and sin", **beside(1e10, np.sin, np.cos), small=np.arange(10) >= 5),
    Function("1e6 x and sin", **beside(1e6, np.sin, np.cos), small=np.arange(10) >= 5),
    Function(
        "a huge sum and tiny numbers",
        lambda x: np.concatenate([[1e200 * np.sum(x)], 1e-100 * np.exp(-x * x)]),
        lambda x: np.concatenate(
            [np.full((1, x.size), 1e200), np.diag(-2e-100 * x * np.exp(-x * x))]
        ),
        np.arange(6) > 0,
    ),
    Function(
        "fifty decades",
        lambda x: np.exp(DECADES).astype(x.dtype) * np.sin(ROWS.astype(x.dtype) @ x),
        lambda x: (np.exp(DECADES) * np.cos(ROWS @ x))[:, None] * ROWS,
        DECADES < 0,
    ),
    Function(
        "an energy and directions",
        lambda x: np.concatenate([[1e12 * np.sum(x * x)], x / np.linalg.norm(x)]),
        lambda x: np.concatenate([[2e12 * x], directions(x)]),
        np.arange(6) > 0,
    ),
    Function(
        "softmax",
        softmax,
        lambda x: np.diag(softmax(x)) - np.outer(softmax(x), softmax(x)),
        np.asarray([True, False, True, False]),
        np.asarray([0.0, 30.0, 2.0, 31.0]),
    ),
    Function(
        "powers",
        lambda x: (x[:, None] ** np.arange(1, 16)).ravel(),
        lambda x: np.concatenate(
            [
                np.outer(np.arange(1, 16) * t ** np.arange(15), row)
                for t, row in zip(x, np.eye(2), strict=True)
            ]
        ),
        np.tile(np.arange(1, 16) > 7, 2),
        np.asarray([0.05, 0.08]),
    ),
    Function(
        "complex numbers",
        **beside(1e10, np.sin, np.cos),
        small=np.arange(10) >= 5,
        x=X + 1j * X[::-1],
    ),
]
FACTORS = [-1.0, 2.0, 0.0, 1 + 1e-3, None]
VARIANTS = [
    *[(function, np.float64, "R", "projected") for function in FUNCTIONS],
    *[(function, np.float64, "F", "projected") for function in FUNCTIONS[::2]],
    *[(function, np.float64, "RF", "full") for function in (FUNCTIONS[0], FUNCTIONS[4])],
    (FUNCTIONS[0], np.float32, "R", "projected"),
]
variants = pytest.mark.parametrize(
    ("function", "dtype", "modes", "mode"),
    VARIANTS,
    ids=[f"{f.name}-{np.dtype(d).name}-{modes}-{mode}" for f, d, modes, mode in VARIANTS],
)


def judged(function, factor, dtype, modes, mode, seed):
    x = function.x if np.iscomplexobj(function.x) else function.x.astype(dtype)
    taken = {"check_forward_ad": "F" in modes, "check_backward_ad": "R" in modes}
    return examine(function.rule(factor, modes), x, mode=mode, seed=seed, **taken)


@over_seeds(10)
@variants
@pytest.mark.parametrize("factor", FACTORS)
def test_small_outputs_that_are_wrong_fail(function, dtype, modes, mode, factor, seeds):
    # every seed of the wrong sign
    for seed in seeds if factor == -1.0 and modes == "R" else seeds[:1]:
        report = judged(function, factor, dtype, modes, mode, seed)

        assert report.verdict is Verdict.FAIL, seed


@over_seeds(10)
@variants
def test_small_outputs_that_are_right_pass_and_would_have_shown(
    function, dtype, modes, mode, seeds
):
    for seed in seeds:
        report = judged(function, 1.0, dtype, modes, mode, seed)

        assert report.verdict is Verdict.PASS, seed
        if "R" in modes and function.name != "softmax":
            assert report.power[1e-2] == 1.0
        # the inputs that softmax hardly reads take a ladder by themselves
        evaluations = 6 if mode == "projected" and function.name != "softmax" else 40
        evaluations += 3 * ("F" in modes)  # each jvp by hand is one
        assert report.counts["evaluations"] <= evaluations + 14 * (dtype is np.float32), seed


def test_outputs_of_one_magnitude_take_one_pullback_less():
    alike = examine(Function("", **beside(1.0, np.sin, np.cos), small=[]).rule(1.0, "R"), X, seed=0)
    apart = examine(FUNCTIONS[0].rule(1.0, "R"), X, seed=0)

    assert apart.counts["evaluations"] == alike.counts["evaluations"]
    assert apart.counts["vjps"] == alike.counts["vjps"] + 1


def test_outputs_that_are_small_by_chance_take_no_pullback():
    large = np.random.default_rng(0).standard_normal(100_000)
    few, many = (
        examine(ByHand(np.square, vjp=lambda x, w: 2 * x * w), x, seed=0) for x in (X, large)
    )

    assert many.counts["vjps"] == few.counts["vjps"]


@pytest.mark.parametrize("seed", seeds(10))
def test_one_small_output_among_many_large_ones_is_found(seed):
    sizes = np.append(np.full(999, 1e10), 1.0)
    rows = np.resize(np.eye(7), (1000, 7))
    function = Function(
        "",
        lambda x: sizes * np.sin(rows @ x),
        lambda x: (sizes * np.cos(rows @ x))[:, None] * rows,
        sizes == 1.0,
        np.linspace(0.3, 1.2, 7),
    )

    assert examine(function.rule(1.0, "R"), function.x, seed=seed)
    assert examine(function.rule(-1.0, "R"), function.x, seed=seed).verdict is Verdict.FAIL


ALIKE = Function(
    "values alike",
    lambda x: np.concatenate([1 + x, 1 + 1e-9 * np.sin(x)]),
    lambda x: np.concatenate([np.eye(x.size), np.diag(1e-9 * np.cos(x))]),
    np.arange(10) >= 5,
)


@over_seeds(10)
@pytest.mark.parametrize("mode", ["projected", "full"])
@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Verdict.PASS), (0.0, Verdict.FAIL)])
def test_what_two_evaluations_hardly_show_is_decided_by_a_ladder(factor, verdict, mode, seeds):
    for seed in seeds:
        assert judged(ALIKE, factor, np.float64, "R", mode, seed).verdict is verdict, seed


@pytest.mark.parametrize("seed", seeds(10))
def test_an_error_of_one_percent_in_what_they_hardly_show_fails(seed):
    report = judged(ALIKE, 1.01, np.float64, "R", "projected", seed)

    assert report.verdict is Verdict.FAIL


LOST = {
    "a sum that cancels": (lambda x: (x + 1e10) - 1e10 - x, lambda x: 0 * x),
    "a cosine next to 1": (lambda x: 1 - np.cos(1e-4 * x), lambda x: 1e-4 * np.sin(1e-4 * x)),
    "single precision": (
        lambda x: np.sin(x.astype(np.float32)).astype(np.float64),
        lambda x: np.cos(x),
    ),
    "stairs": (np.floor, lambda x: 0 * x),
    "a constant": (np.ones_like, lambda x: 0 * x),
}


@over_seeds(10)
@pytest.mark.parametrize("name", LOST)
def test_small_outputs_that_rounding_hides_do_not_fail(name, seeds):
    value, slope = LOST[name]
    function = Function(name, **beside(1e10, value, slope), small=[])
    for seed in seeds:
        assert examine(function.rule(1.0, "R"), X, seed=seed).verdict is Verdict.PASS, seed


def test_the_report_does_not_claim_outputs_that_rounding_hides():
    function = Function("", **beside(1e10, *LOST["a cosine next to 1"]), small=[])

    assert examine(function.rule(1.0, "R"), X, seed=0).power[1e-2] == 0.5


@over_seeds(10)
@pytest.mark.parametrize("name", LOST)
def test_an_error_shows_beside_small_outputs_that_rounding_hides(name, seeds):
    hidden, slope = LOST[name]

    def value(x):
        return np.concatenate([1e10 * x, hidden(x), 1e-6 * np.sin(x)])

    def vjp(x, w):
        large, lost, small = np.split(w, 3)
        return 1e10 * large + slope(x) * lost - 1e-6 * np.cos(x) * small

    for seed in seeds:
        assert examine(ByHand(value, vjp=vjp), X, seed=seed).verdict is Verdict.FAIL, seed


@over_seeds(10)
def test_a_dead_side_that_lets_a_derivative_through_fails(seeds):
    def vjp(x, w):
        large, small = np.split(w, 2)
        return 1e10 * large + small

    rule = ByHand(lambda x: np.concatenate([1e10 * x, np.maximum(x, 0)]), vjp=vjp)
    for seed in seeds:
        assert examine(rule, X, seed=seed).verdict is Verdict.FAIL, seed


@over_seeds(10)
def test_a_derivative_of_a_small_constant_fails(seeds):
    function = Function("", **beside(1e10, np.ones_like, np.ones_like), small=[])
    for seed in seeds:
        report = examine(function.rule(1.0, "R"), X, seed=seed)

        assert report.verdict is Verdict.FAIL, seed


@over_seeds(10)
@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("size", [1e4, 1e10])
def test_a_small_coordinate_of_complex_outputs_is_judged_by_itself(size, mode, seeds):
    def rule(factor):
        return ByHand(
            lambda x: size * x + 1j * np.sin(x),
            vjp=lambda x, w: size * w.real + factor * np.cos(x) * w.imag,
        )

    for seed in seeds:
        assert examine(rule(1.0), X, mode=mode, seed=seed).verdict is Verdict.PASS, seed
        assert examine(rule(1.01), X, mode=mode, seed=seed).verdict is Verdict.FAIL, seed


ANGLES = 2 * np.pi * np.outer(np.arange(16), np.arange(16)) / 16
FOURIER = np.concatenate([np.cos(ANGLES), -np.sin(ANGLES)])


def transform(value, slope, factors):
    """The Fourier transform of the values as real numbers, whose rule has the matrix written out:
    there `sin(pi)` is 1e-16, of which the fast transform knows nothing.
    """

    def f(x):
        y = np.fft.fft(value(x))
        return np.concatenate([y.real, y.imag])

    matrix = factors[:, None] * FOURIER
    return ByHand(f, vjp=lambda x, w: slope(x) * (matrix.T @ w))


@pytest.mark.parametrize(
    ("x", "mode"),
    [
        (np.ones(16), "full"),
        (np.ones(16), "projected"),
        (np.cos(np.arange(16) * np.pi / 8), "projected"),
        (np.arange(16.0), "projected"),
        long(np.cos(np.arange(16) * np.pi / 8), "full"),
        long(np.arange(16.0), "full"),
    ],
)
def test_outputs_in_which_terms_cancel_do_not_fail(x, mode):
    wrong = np.where(np.arange(32) == 20, 1.01, 1.0)
    for value, slope in ((np.copy, np.ones_like), (np.square, lambda x: 2 * x), (np.exp, np.exp)):
        for seed in SEEDS[:2] if mode == "projected" else SEEDS[:1]:
            right = transform(value, slope, np.ones(32))
            off = transform(value, slope, wrong)

            assert examine(right, x, mode=mode, seed=seed).verdict is not Verdict.FAIL
            assert examine(off, x, mode=mode, seed=seed).verdict is Verdict.FAIL


PARTS = {
    "1e9 x**3, sin x": [(1e9, "cube"), (1.0, "sin")],
    "1e6 x**3, sin x, 1e-6 exp x": [(1e6, "cube"), (1.0, "sin"), (1e-6, "exp")],
    "exp x, 1e-9 sin x": [(1.0, "exp"), (1e-9, "sin")],
    "exp x, 1e-9 x**3, 1e-9 sin x": [(1.0, "exp"), (1e-9, "cube"), (1e-9, "sin")],
    "1e6 + 1e6 x**3, 1e-3 sin x": [(1e6, "lifted"), (1e-3, "sin")],
}
DERIVATIVES = {
    "cube": (lambda x: x**3, lambda x: 3 * x**2, lambda x: 6 * x),
    "sin": (np.sin, np.cos, lambda x: -np.sin(x)),
    "exp": (np.exp, np.exp, np.exp),
    "lifted": (lambda x: 1 + x**3, lambda x: 3 * x**2, lambda x: 6 * x),
}


def twice(parts, factor):
    """The parts stacked, of which the second derivative of the last one is off by the factor."""
    factors = [1.0] * (len(parts) - 1) + [factor]

    def order(k, x):
        return np.asarray([c * DERIVATIVES[name][k](x) for c, name in parts])

    def second(x, w, u):
        curvature = np.asarray(factors)[:, None] * order(2, x)
        return u * np.sum(w * curvature, axis=0), u * order(1, x)

    return ByHand(
        lambda x: order(0, x), vjp=ByHand(lambda x, w: np.sum(w * order(1, x), axis=0), vjp=second)
    )


@over_seeds(10)
@pytest.mark.parametrize("name", PARTS)
def test_a_wrong_second_derivative_of_a_small_output_fails(name, seeds):
    x = np.linspace(0.3, 1.9, 5)
    right = twice(PARTS[name], 1.0)
    for seed in seeds:
        mode = "full" if seed % 5 == 0 else "projected"
        wrong = twice(PARTS[name], -1.0 if seed % 2 else 1.01)

        assert examine(right, x, modes=["RR"], mode=mode, seed=seed).verdict is Verdict.PASS
        assert examine(wrong, x, modes=["RR"], mode=mode, seed=seed).verdict is Verdict.FAIL


def test_outputs_of_one_magnitude_keep_the_cotangent_of_a_gradient():
    x = np.linspace(0.3, 1.9, 5)

    def pullbacks(*parts):
        return examine(twice(parts, 1.0), x, modes=["RR"], seed=0).counts["vjps"]

    one, two = pullbacks((1.0, "sin"), (1.0, "exp")), pullbacks((1.0, "sin"), (1e9, "exp"))

    assert two - one >= 2  # one for each of the two magnitudes


@over_seeds(10)
@pytest.mark.parametrize("constant", [1e6, 1e8, 1e10])
def test_a_small_value_beside_a_large_one_is_no_chance(constant, seeds):
    """The derivatives are of one size: it is the value of the other output that hides this one."""

    def rule(off):
        return ByHand(
            lambda x: np.array([constant * x[0] + x[1], np.sin(x[1])]),
            vjp=lambda x, w: np.array(
                [constant * w[0], w[0] + w[1] * np.cos(x[1]) * (1 + off)]
            ),
        )  # fmt: skip

    x = np.array([1.0, 0.7])
    for seed in seeds:
        assert examine(rule(0.0), x, seed=seed).verdict is Verdict.PASS
        for off in (1e-4, 1e-2):
            assert examine(rule(off), x, seed=seed, blame=False).verdict is Verdict.FAIL, off
