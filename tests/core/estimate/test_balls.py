"""Every elementwise function of the vocabulary against mpmath in 60 digits."""

import operator

import mpmath
import numpy as np
import pytest

flint = pytest.importorskip("flint")

from adjudge.engine import OPERATIONS, SECTIONS  # noqa: E402
from adjudge.estimate import balls  # noqa: E402
from adjudge.estimate.balls import FUNCTIONS, Jets, lifted  # noqa: E402
from adjudge.estimate.replay import RULES, WITH_RECORDED, precision  # noqa: E402

mp = mpmath.mp
DIGITS = 60
ANY, POSITIVE, UNIT, ABOVE = (-8.0, 8.0), (0.05, 30.0), (-0.95, 0.95), (1.05, 9.0)
SHAPE = (0.1, 20.0)


def ratio(y, x):
    return y / x


TRUTH = {
    "add": (lambda x, y: x + y, ANY, ANY),
    "subtract": (lambda x, y: x - y, ANY, ANY),
    "multiply": (lambda x, y: x * y, ANY, ANY),
    "divide": (ratio, ANY, POSITIVE),
    "negative": (lambda x: -x, ANY),
    "reciprocal": (lambda x: 1 / x, POSITIVE),
    "square": (lambda x: x * x, ANY),
    "pow": (lambda x, y: x**y, POSITIVE, ANY),
    "sqrt": (mpmath.sqrt, POSITIVE),
    "rsqrt": (lambda x: 1 / mpmath.sqrt(x), POSITIVE),
    "cbrt": (mpmath.cbrt, POSITIVE),
    "exp": (mpmath.exp, ANY),
    "exp2": (lambda x: mp.mpf(2) ** x, ANY),
    "expm1": (mpmath.expm1, ANY),
    "log": (mpmath.log, POSITIVE),
    "log1p": (lambda x: mpmath.log(1 + x), UNIT),
    "log2": (lambda x: mpmath.log(x) / mpmath.log(2), POSITIVE),
    "log10": (lambda x: mpmath.log(x) / mpmath.log(10), POSITIVE),
    "logaddexp": (lambda x, y: mpmath.log(mpmath.exp(x) + mpmath.exp(y)), ANY, ANY),
    "sin": (mpmath.sin, ANY),
    "cos": (mpmath.cos, ANY),
    "tan": (mpmath.tan, ANY),
    "asin": (mpmath.asin, UNIT),
    "acos": (mpmath.acos, UNIT),
    "atan": (mpmath.atan, ANY),
    "atan2": (mpmath.atan2, ANY, POSITIVE),
    "sinh": (mpmath.sinh, ANY),
    "cosh": (mpmath.cosh, ANY),
    "tanh": (mpmath.tanh, ANY),
    "asinh": (mpmath.asinh, ANY),
    "acosh": (mpmath.acosh, ABOVE),
    "atanh": (mpmath.atanh, UNIT),
    "hypot": (mpmath.hypot, ANY, POSITIVE),
    "abs": (abs, POSITIVE),
    "sign": (mpmath.sign, POSITIVE),
    "copysign": (lambda x, y: abs(x) if y > 0 else -abs(x), POSITIVE, ANY),
    "maximum": (max, ANY, ANY),
    "minimum": (min, ANY, ANY),
    "floor": (mpmath.floor, ANY),
    "ceil": (mpmath.ceil, ANY),
    "trunc": (lambda x: mpmath.floor(x) if x > 0 else mpmath.ceil(x), ANY),
    "round": (mpmath.nint, ANY),
    "remainder": (lambda x, y: x - y * mpmath.floor(x / y), ANY, POSITIVE),
    "fmod": (mpmath.fmod, POSITIVE, POSITIVE),
    "astype": (lambda x: x, ANY),
    "expit": (lambda x: 1 / (1 + mpmath.exp(-x)), ANY),
    "softplus": (lambda x: mpmath.log(1 + mpmath.exp(x)), ANY),
    "xlogy": (lambda x, y: x * mpmath.log(y), ANY, POSITIVE),
    "xlog1py": (lambda x, y: x * mpmath.log(1 + y), ANY, UNIT),
    "sinc": (lambda x: mpmath.sin(mp.pi * x) / (mp.pi * x), POSITIVE),
    "erf": (mpmath.erf, ANY),
    "erfc": (mpmath.erfc, ANY),
    "erfcx": (lambda x: mpmath.exp(x * x) * mpmath.erfc(x), ANY),
    "erfinv": (mpmath.erfinv, UNIT),
    "ndtr": (mpmath.ncdf, ANY),
    "log_ndtr": (lambda x: mpmath.log(mpmath.erfc(-x / mpmath.sqrt(2)) / 2), ANY),
    "ndtri": (lambda x: mpmath.sqrt(2) * mpmath.erfinv(2 * x - 1), (0.05, 0.95)),
    "gammaln": (lambda x: mpmath.loggamma(x).real, ANY),
    "digamma": (mpmath.digamma, ANY),
    "i0": (lambda x: mpmath.besseli(0, x), ANY),
    "i1": (lambda x: mpmath.besseli(1, x), ANY),
    "i0e": (lambda x: mpmath.exp(-x) * mpmath.besseli(0, x), POSITIVE),
    "i1e": (lambda x: mpmath.exp(-x) * mpmath.besseli(1, x), POSITIVE),
    "j0": (lambda x: mpmath.besselj(0, x), ANY),
    "j1": (lambda x: mpmath.besselj(1, x), ANY),
    "y0": (lambda x: mpmath.bessely(0, x), POSITIVE),
    "y1": (lambda x: mpmath.bessely(1, x), POSITIVE),
    "k0": (lambda x: mpmath.besselk(0, x), POSITIVE),
    "k1": (lambda x: mpmath.besselk(1, x), POSITIVE),
    "k0e": (lambda x: mpmath.exp(x) * mpmath.besselk(0, x), POSITIVE),
    "k1e": (lambda x: mpmath.exp(x) * mpmath.besselk(1, x), POSITIVE),
    "airy_ai": (mpmath.airyai, ANY),
    "zeta": (mpmath.zeta, ABOVE, POSITIVE),
    "gammainc": (lambda a, x: mpmath.gammainc(a, 0, x, regularized=True), SHAPE, POSITIVE),
    "gammaincc": (lambda a, x: mpmath.gammainc(a, x, mp.inf, regularized=True), SHAPE, POSITIVE),
    "betainc": (
        lambda a, b, x: mpmath.betainc(a, b, 0, x, regularized=True),
        SHAPE,
        SHAPE,
        (0.05, 0.95),
    ),
}
"""For each function of one or two numbers that move: its truth, and where each of them lies."""

FIXED = {
    "polygamma": (2, lambda x: mpmath.polygamma(2, x), POSITIVE),
}
"""Those whose first argument is held, since there is no derivative by it."""

COMPLEX = [
    "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos", "atan",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "reciprocal", "square", "erf", "erfc",
    "expit", "divide", "multiply", "pow",
]  # fmt: skip


def moving(values):
    """The number as jets of second order along each of the values alone, one after the other."""
    for k in range(len(values)):
        yield (
            k,
            [
                Jets(
                    {
                        0: lifted(x).value,
                        **({1: lifted(1.0).value, 2: lifted(1.0).value} if i == k else {}),
                    }
                )
                for i, x in enumerate(values)
            ],
        )


def exact(ball):
    """The midpoint and the radius of a ball, in mpmath."""

    def number(one):
        mantissa, exponent = one.man_exp()
        return mp.mpf(int(mantissa)) * mp.mpf(2) ** int(exponent)

    if isinstance(ball, flint.acb):
        parts = [exact(ball.real), exact(ball.imag)]
        return mp.mpc(parts[0][0], parts[1][0]), parts[0][1] + parts[1][1]
    return number(ball.mid()), number(ball.rad())


def contains(ball, truth, slack=0):
    middle, radius = exact(ball)
    return abs(middle - truth) <= radius + slack


def points(*ranges, count=2, seed=0):
    rng = np.random.default_rng(seed)
    return [[float(rng.uniform(*one)) for one in ranges] for _ in range(count)]


def asked(name, truth, values, fixed=()):
    """Asserts that the value and both derivatives along each number lie in their balls."""
    at = [mp.mpmathify(x) for x in values]
    for k, given in moving(values):
        found = FUNCTIONS[name](*fixed, *given)
        along = lambda t, k=k: truth(*(t if i == k else x for i, x in enumerate(at)))  # noqa: E731
        assert contains(found.value[()], along(at[k])), (name, values)
        with mp.workdps(40):  # in 90, derivatives of Bessel functions take mpmath seconds
            for part, order in ((1, 1), (3, 2)):
                ball = found.parts.get(part, lifted(0.0).value)[()]
                true = mpmath.diff(along, at[k], order)
                assert contains(ball, true, mp.mpf(10) ** -18 * (1 + abs(true))), (
                    name,
                    values,
                    part,
                )
                assert exact(ball)[1] < mp.mpf(10) ** -20 * (1 + abs(true)), (name, values, part)


@pytest.fixture(autouse=True)
def digits():
    with mp.workdps(DIGITS), precision(160):
        yield


def test_every_operation_has_a_rule_and_a_test():
    assert set(OPERATIONS) == {*RULES, *WITH_RECORDED}
    one_by_one = [name for section in list(SECTIONS)[:2] for name in SECTIONS[section]]
    apart = {"real", "imag", "conj", "complex"}
    assert set(one_by_one) == {*TRUTH, *FIXED, *apart}


@pytest.mark.parametrize("name", TRUTH)
def test_a_function_and_its_derivatives_lie_in_their_balls(name):
    truth, *ranges = TRUTH[name]
    for values in points(*ranges):
        asked(name, truth, values)


@pytest.mark.parametrize("name", FIXED)
def test_a_function_by_its_last_argument_lies_in_its_balls(name):
    held, truth, where = FIXED[name]
    for values in points(where, count=4):
        asked(name, truth, values, [held])
        assert contains(FUNCTIONS[name](held, values[0]).value[()], truth(mp.mpf(values[0])))


@pytest.mark.parametrize(
    ("name", "x", "kinds"),
    [
        ("zeta", (2.5, 0.7), (0, 1)),
        ("gammaincc", (2.5, 7.0), (0, 1)),
        ("betainc", (2.5, 1.5, 0.7), (0, 1)),
    ],
)
def test_mixed_derivatives_by_shapes_lie_in_their_balls(name, x, kinds):
    truth, at = TRUTH[name][0], [mp.mpf(one) for one in x]
    given = [
        Jets({0: lifted(one).value, **{k + 1: lifted(1.0).value for k in kinds if k == i}})
        for i, one in enumerate(x)
    ]
    true = mpmath.diff(truth, at, tuple(int(i in kinds) for i in range(len(x))))
    ball = FUNCTIONS[name](*given).parts[3][()]
    assert contains(ball, true, mp.mpf(10) ** -18)
    assert exact(ball)[1] < mp.mpf(10) ** -20


@pytest.mark.parametrize(
    ("name", "x"),
    [
        ("gammainc", (-1.5, 2.0)),
        ("gammainc", (1.5, 0.0)),
        ("gammaincc", (1.5, -2.0)),
        ("betainc", (1.5, -0.5, 0.2)),
        ("betainc", (-1.5, 0.5, 0.2)),
        ("betainc", (1.5, 0.5, 1.2)),
        ("betainc", (1.5, 0.5, 0.0)),
        ("gammaincc", (2.0, 1e6)),  # it takes more terms than are added up
    ],
)
def test_there_is_no_derivative_by_a_shape_off_the_domain_or_of_huge_numbers(name, x):
    given = [Jets({0: lifted(one).value, 1: lifted(float(not i)).value}) for i, one in enumerate(x)]
    assert not FUNCTIONS[name](*given).parts[1][()].is_finite()


@pytest.mark.parametrize(
    ("name", "x", "truth"),
    [
        ("gammaincc", (500.0, 480.0), lambda a: mpmath.gammainc(a, 480, mp.inf, regularized=True)),
        ("gammainc", (1e-3, 1.0), lambda a: mpmath.gammainc(a, 0, 1, regularized=True)),
        ("betainc", (2.0, 3.0, 1 - 1e-9), None),
    ],
)
def test_a_derivative_by_a_shape_is_narrow(name, x, truth):
    given = [Jets({0: lifted(one).value, 1: lifted(float(not i)).value}) for i, one in enumerate(x)]
    ball = FUNCTIONS[name](*given).parts[1][()]
    slope, radius = exact(ball)
    assert radius < abs(slope) * mp.mpf(10) ** -15
    assert truth is None or contains(ball, mpmath.diff(truth, mp.mpf(x[0])), mp.mpf(10) ** -30)


@pytest.mark.parametrize("name", COMPLEX)
def test_a_function_of_complex_numbers_lies_in_its_balls(name):
    truth, *ranges = TRUTH[name]
    for seed in range(3):
        real, imaginary = (
            points(*[(0.2, 2.0)] * len(ranges), count=1, seed=seed + k)[0] for k in (0, 9)
        )
        asked(name, truth, [complex(*one) for one in zip(real, imaginary, strict=True)])


@pytest.mark.parametrize(
    ("name", "x", "truth"),
    [
        ("log_ndtr", -45.0, lambda x: mpmath.log(mpmath.erfc(-x / mpmath.sqrt(2)) / 2)),
        ("expit", -800.0, lambda x: 1 / (1 + mpmath.exp(-x))),
        ("tanh", 300.0, mpmath.tanh),
        ("expm1", 1e-30, mpmath.expm1),
        ("sin", 1e22, mpmath.sin),
        ("gammaln", 1e8, lambda x: mpmath.loggamma(x).real),
        ("ndtri", 1e-300, None),
    ],
)
def test_a_tail_is_narrow_too(name, x, truth):
    with precision(400), mp.workdps(400):
        found = FUNCTIONS[name](Jets({0: lifted(x).value, 1: lifted(1.0).value}))
        slope, radius = exact(found.parts[1][()])
        assert radius < abs(slope) * mp.mpf(2) ** -60
        assert truth is None or contains(found.value[()], truth(mp.mpf(x)))


@pytest.mark.parametrize(
    ("name", "x", "slope"),
    [("abs", 0.0, (-1, 1)), ("maximum", 1.0, (0, 1)), ("minimum", 1.0, (0, 1))],
)
def test_a_kink_has_the_hull_of_both_slopes(name, x, slope):
    moved = Jets({0: lifted(x).value, 1: lifted(1.0).value})
    given = [moved] if name == "abs" else [moved, 1.0]
    ball = FUNCTIONS[name](*given).parts[1][()]
    assert all(contains(ball, one) for one in slope)


@pytest.mark.parametrize(
    ("name", "x"), [("sign", 0.0), ("floor", 2.0), ("ceil", -1.0), ("trunc", 3.0), ("round", 2.5)]
)
def test_a_jump_has_no_derivative(name, x):
    moved = Jets({0: lifted(x).value, 1: lifted(1.0).value})
    assert FUNCTIONS[name](moved).parts[1][()].is_nan()
    assert not FUNCTIONS[name](x).moves


def test_zero_that_does_not_move_has_no_slope_where_the_rate_is_infinite():
    still = Jets({0: lifted(0.0).value, 1: lifted(0.0).value})
    assert FUNCTIONS["sqrt"](still).parts[1][()].is_zero()


def moved_at(x, tangent=1.0):
    return Jets({0: lifted(x).value, 1: lifted(tangent).value})


def cancelled(x):
    """x - sin x, whose derivative at 0 is 1 - 1."""
    return x - FUNCTIONS["sin"](x)


STILL_MOVING = {
    "a product": lambda x: x * x,
    "a power": lambda x: FUNCTIONS["pow"](x, 2.0),
    "a difference": cancelled,
    "a sum": lambda x: balls.total(
        balls.joined([as_line(x), as_line(-FUNCTIONS["sin"](x))], 0), axis=None, keepdims=False
    ),
    "a segment": lambda x: balls.segment_sum(
        x, -FUNCTIONS["sin"](x), segments=np.zeros(2, int), shape=()
    ),
    "a matrix product": lambda x: balls.matmul(
        balls.joined([as_line(x), as_line(FUNCTIONS["sin"](x))], 0), np.array([1.0, -1.0])
    ),
    "a transform": lambda x: balls.take(
        balls.fft(
            balls.joined([as_line(x), as_line(-FUNCTIONS["sin"](x))], 0), axis=0, inverse=False
        ),
        indices=np.array(0),
        fill=0.0,
    ),
}


def as_line(x):
    return x.map(lambda part: np.reshape(part, 1))


@pytest.mark.parametrize("name", STILL_MOVING)
def test_a_derivative_of_zero_does_not_say_that_nothing_moves(name):
    x = STILL_MOVING[name](moved_at(0.0))
    assert float(x.parts[1][()].abs_upper()) == 0.0
    root = FUNCTIONS["sqrt"](x).parts[1][()]
    assert not root.is_finite()
    assert balls.compared(x, 0.0, operator.eq).may_not.all()


CUTS = {
    "sqrt": -1 + 0j, "rsqrt": -1 + 0j, "log": -2 + 0j, "log1p": -3 + 0j, "pow": -2 + 0j,
    "asin": 2 + 0j, "acos": -2 + 0j, "atanh": 2 + 0j, "acosh": 0.5 + 0j, "atan": 2j, "asinh": 2j,
}  # fmt: skip


@pytest.mark.parametrize("name", CUTS)
def test_there_is_no_derivative_on_a_branch_cut(name):
    others = [0.5] if name == "pow" else []
    on = FUNCTIONS[name](moved_at(CUTS[name], 1 + 1j), *others).parts[1][()]
    assert not on.is_finite()
    beside = CUTS[name] + (1e-3 if CUTS[name].imag else 1e-3j)
    found = FUNCTIONS[name](moved_at(beside, 1 + 1j), *others)
    assert found.parts[1][()].is_finite()
    assert FUNCTIONS[name](CUTS[name], *others).value[()].is_finite()


def test_an_angle_jumps_on_the_negative_half_line():
    def slope(y, x):
        return FUNCTIONS["atan2"](moved_at(y), x).parts[1][()]

    assert not slope(0.0, -1.0).is_finite()
    assert slope(0.0, 1.0).is_finite()
    assert slope(1e-3, -1.0).is_finite()


def test_what_is_undefined_has_no_imaginary_part():
    number = FUNCTIONS["sqrt"](moved_at(-1 + 0j, 1.0))
    assert balls.imaginary(number).parts[1][()].is_nan()


@pytest.mark.parametrize("power", [2, -3])
def test_a_ball_that_may_be_anything_around_infinity_has_a_power(power):
    """python-flint 0.9 ends the process where it is asked for one."""
    anything = balls.flint().arb("inf") + balls.flint().arb(0, "inf")
    x = Jets({0: np.array([anything, balls.flint().arb(3)], object)})
    found = balls.power(x, lifted(np.array(power))).value
    assert found[0].is_nan()
    assert float(found[1]) == pytest.approx(3.0**power)
