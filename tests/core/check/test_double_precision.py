"""A derivative of less than double precision: the formula in float64, the rest against that."""

import numpy as np
import pytest
from scenarios import long, over_seeds, seeds

import adjudge
from adjudge import ByHand, Status, Verdict, examine
from adjudge.errors import FlagError
from adjudge.report import text_of


def quiet(function):
    def call(*args):
        with np.errstate(all="ignore"):
            return function(*args)

    return call


LOW = ["float32", "float16"]


def statuses(report):
    return {finding.status for finding in report.findings}


def only_low(x, right, wrong):
    """`wrong` in the dtypes that are not double, `right` in double."""
    return right if x.dtype == np.float64 else wrong.astype(x.dtype)


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize(("off", "verdict"), [(0.0, Verdict.PASS), (1e-4, Verdict.FAIL)])
def test_the_formula_is_judged_in_float64(dtype, mode, off, verdict):
    x = np.linspace(0.5, 2.0, 7).astype(dtype)

    report = examine(ByHand(np.sin, vjp=lambda x, w: (1 + off) * w * np.cos(x)), x, mode=mode)

    assert report.verdict is verdict, report
    assert report.provenance.dtype == dtype
    assert report.provenance.note == "formula judged in float64"
    assert "formula judged in float64" in report.footer
    assert report.tolerance["rtol"] < 1e-7


@pytest.mark.parametrize("seed", seeds(10))
def test_agreement_at_x_is_not_asked_for_elsewhere_in_float32(seed):
    x = np.linspace(0.5, 2.0, 5, dtype=np.float32)

    def vjp(off):
        return lambda x, w: w * np.cos(x) * (1 + off * (x.dtype == np.float32))

    right = examine(ByHand(np.sin, vjp=vjp(0)), x, seed=seed)
    wrong = examine(ByHand(np.sin, vjp=vjp(1e-4)), x, seed=seed)

    assert right.verdict is Verdict.PASS
    assert right.counts["vjps"] <= 11  # 19 with two points within rounding of x
    assert wrong.verdict is Verdict.FAIL


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize(
    "plant",
    [
        lambda g: g,
        lambda g: -g,
        lambda g: g * np.array([1, 1, 0, 1, 1, 1, 1, 1, 1]).reshape(3, 3),
        lambda g: g * (1.1 if g.dtype == np.float16 else 1.01),
        lambda g: g.T,
    ],
    ids=["right", "sign", "dropped", "factor", "transposed"],
)
@pytest.mark.parametrize("letter", ["R", "F"])
def test_an_error_in_low_precision_alone(dtype, plant, letter):
    x = np.linspace(0.5, 2.0, 9).reshape(3, 3).astype(dtype)

    def derivative(x, w):
        return only_low(x, w * np.cos(x), plant((w * np.cos(x)).astype(dtype)))

    rules = {"vjp": derivative} if letter == "R" else {"jvp": derivative}
    report = examine(ByHand(np.sin, **rules), x, modes=[letter], seed=3)

    right = np.array_equal(plant(x), x)
    assert report.verdict is (Verdict.PASS if right else Verdict.FAIL), report
    assert statuses(report) == (set() if right else {Status.MISMATCH})
    if not right:
        assert f"float64 derivative right, {dtype} derivative wrong" in str(report)
        assert report.modes[letter] is Verdict.FAIL


def test_a_dropped_entry_is_named_with_both_values():
    x = np.linspace(0.5, 2.0, 5, dtype=np.float32)

    def vjp(x, w):
        wrong = w * np.cos(x)
        wrong[3] = 0
        return only_low(x, w * np.cos(x), wrong)

    report = examine(ByHand(np.sin, vjp=vjp), x, seed=0)

    (finding,) = report.findings
    assert finding.entry == "d out / d inputs[0][3] along one random direction"
    assert "float32   0\n" in text_of(finding)
    assert "ulp" in text_of(finding)


def variance(x):
    return np.mean(x * x) - np.mean(x) ** 2


def logistic(x):
    return 1 / (1 + np.exp(-x))


ROUNDED = {
    "naive variance": (
        ByHand(variance, vjp=lambda x, w: 2 * w * (x - np.mean(x)) / x.dtype.type(x.size)),
        np.float32([100.25, 99.5, 101.0, 100.75]),
    ),
    "difference of roots": (
        ByHand(
            quiet(lambda x: np.sqrt(x + 1) - np.sqrt(x)),
            vjp=lambda x, w: w * (1 / (2 * np.sqrt(x + 1)) - 1 / (2 * np.sqrt(x))),
        ),
        np.float32([100.0, 230.5, 512.25, 977.0]),
    ),
    "saturated logistic": (
        ByHand(logistic, vjp=lambda x, w: w * logistic(x) * (1 - logistic(x))),
        np.float32([9.0, 10.5, 12.25, 14.0]),
    ),
    "fully saturated": (
        ByHand(logistic, vjp=lambda x, w: w * logistic(x) * (1 - logistic(x))),
        np.float32([17.0, 17.5, 18.25, 19.0]),
    ),
}


@pytest.mark.parametrize("name", ROUNDED)
def test_digits_lost_by_rounding_are_a_note(name):
    rule, x = ROUNDED[name]

    report = examine(rule, x, seed=0)

    assert report.verdict is Verdict.PASS, report
    assert statuses(report) <= {Status.INACCURATE}
    if name != "naive variance":  # whose derivative loses nothing
        assert "formula PASS; float32 derivative off by" in str(report)


@pytest.mark.parametrize("name", ROUNDED)
@pytest.mark.parametrize("seed", range(3))
def test_digits_lost_by_rounding_do_not_hide_a_wrong_formula(name, seed):
    rule, x = ROUNDED[name]
    wrong = ByHand(rule, vjp=lambda x, w: 1.001 * rule.vjp(x, w))

    report = examine(wrong, x, seed=seed)

    assert report.verdict is Verdict.FAIL, report


CANCELLING = {
    "x - sin x": (lambda x: x - np.sin(x), lambda x: 1 - np.cos(x)),
    "tanh x - x": (lambda x: np.tanh(x) - x, lambda x: (1 - np.tanh(x) ** 2) - 1),
    "(1 - cos x) / x**2": (
        lambda x: (1 - np.cos(x)) / x**2,
        lambda x: (x * np.sin(x) - 2 * (1 - np.cos(x))) / x**3,
    ),
    "(x - sin x) / x**2": (
        lambda x: (x - np.sin(x)) / x**2,
        lambda x: ((1 - np.cos(x)) * x - 2 * (x - np.sin(x))) / x**3,
    ),
    "sin x / x": (lambda x: np.sin(x) / x, lambda x: (x * np.cos(x) - np.sin(x)) / x**2),
    "exp x - 1 - x": (lambda x: np.exp(x) - 1 - x, lambda x: np.exp(x) - 1),
}
"""Functions of small numbers, and their derivatives, which a narrow dtype rounds alike near x."""


@over_seeds(10)
@pytest.mark.parametrize(("dtype", "least"), [("float32", 1e-4), ("float16", 1e-2)])
@pytest.mark.parametrize("name", CANCELLING)
def test_a_rule_that_loses_its_digits_alike_around_x_is_right(name, dtype, least, seeds):
    f, derivative = CANCELLING[name]
    for seed in seeds:
        random = np.random.default_rng(seed)
        x = (random.uniform(1, 10, 6) * least * random.choice([-1, 1], 6)).astype(dtype)

        def vjp(x, w, off=1.0):
            return (w * x.dtype.type(off) * derivative(x)).astype(x.dtype)

        right = examine(ByHand(f, vjp=vjp), x, seed=seed)
        off = ByHand(f, vjp=lambda x, w: vjp(x, w, 1.05))
        wrong = examine(off, x, seed=seed, blame=False)

        assert right.verdict is not Verdict.FAIL, right
        assert wrong.verdict is not Verdict.PASS, wrong


STEPS = {
    "a large offset": (
        ByHand(lambda x: (x + np.float32(1e7)) - np.float32(1e7), vjp=lambda x, w: w),
        np.float32([1.541, -0.2934, -2.1788, 0.5684, -1.0845]),
    ),
    "subnormal numbers": (
        ByHand(lambda x: np.exp(x) - 1, vjp=lambda x, w: w * np.exp(x)),
        np.float16([-1.7345e-05, 2.98e-07, 1.0908e-05, 7.987e-06]),
    ),
}
"""Values that stand still next to x, and move by the spacing of larger numbers farther off."""


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("seed", seeds(5))
def test_values_on_steps_are_those_of_the_same_function(name, seed):
    rule, x = STEPS[name]

    report = examine(rule, x, seed=seed)

    assert report.verdict is Verdict.PASS, report
    assert "formula judged in float64" in str(report)


def test_softmax_is_accurate():
    def softmax(x):
        e = np.exp(x - x.max())
        return e / e.sum()

    def vjp(x, w):
        y = softmax(x)
        return y * (w - np.sum(w * y))

    report = examine(ByHand(softmax, vjp=vjp), np.float32([0.5, -2.0, 3.0, 8.0]), seed=1)

    assert report.verdict is Verdict.PASS, report
    assert report.findings == ()


@pytest.mark.parametrize("answer", [None, False, True])
def test_a_function_that_refuses_float64_is_judged_natively(answer):
    def only_float32(x):
        if x.dtype != np.float32:
            raise TypeError("this kernel takes float32")
        return x * x

    rule = ByHand(only_float32, vjp=lambda x, w: 2 * x * w)
    report = examine(rule, np.float32([1.0, 2.0]), in_double=answer, seed=0)

    assert report.verdict is (Verdict.INCONCLUSIVE if answer else Verdict.PASS)
    assert statuses(report) == ({Status.UNSUPPORTED} if answer else set())
    why = "judged natively: in float64 it raises TypeError: this kernel takes float32"
    assert report.provenance.note == ("" if answer is False else why)
    assert not examine(ByHand(only_float32, vjp=lambda x, w: -2 * x * w), np.float32([1.0, 2.0]))


@pytest.mark.parametrize(
    ("f", "vjp", "why"),
    [
        (lambda x: (x * x).astype(np.float32), lambda x, w: 2 * x * w, "out stays float32"),
        (
            lambda x: x * x,
            lambda x, w: (2 * x * w).astype(np.float32),
            "the gradient of inputs[0] stays float32",
        ),
    ],
)
def test_a_hidden_cast_is_judged_natively(f, vjp, why):
    report = examine(ByHand(f, vjp=vjp), np.float32([1.0, 2.0]), seed=0)

    assert report.verdict is Verdict.PASS, report
    assert report.provenance.note == f"judged natively: in float64 {why}"


def test_another_function_in_float64_is_judged_natively():
    def scale(x):
        return x.dtype.type(3 if x.dtype == np.float64 else 2)

    right = ByHand(lambda x: scale(x) * x, vjp=lambda x, w: scale(x) * w)
    # the derivative of the other one, which would pass for rounding to double and back
    wrong = ByHand(lambda x: scale(x) * x, vjp=lambda x, w: x.dtype.type(3) * w)

    x = np.float32([1.0, 2.0, 5.0])
    reports = [examine(rule, x, seed=0) for rule in (right, wrong)]

    assert [report.verdict for report in reports] == [Verdict.PASS, Verdict.FAIL]
    assert all("its value is another one" in report.provenance.note for report in reports)


def test_a_derivative_that_is_wrong_in_float64_alone_is_judged_natively():
    rule = ByHand(np.sin, vjp=lambda x, w: w * np.cos(x) * (-1 if x.dtype == np.float64 else 1))

    report = examine(rule, np.float32([0.5, 1.0]), seed=0)

    assert report.verdict is Verdict.PASS, report
    assert "and wrong itself" in report.provenance.note


@pytest.mark.parametrize(
    "numbers", [{"eps": 1e-2}, {"atol": 1e-2}, {"rtol": 1e-2}, {"max_evaluations": 99}]
)
def test_numbers_of_the_caller_belong_to_the_dtype_at_hand(numbers):
    rule, x = ByHand(np.sin, vjp=lambda x, w: w * np.cos(x)), np.float32([0.5, 1.0])

    seen = []
    examine(ByHand(lambda x: (seen.append(x.dtype), np.sin(x))[1], vjp=rule.vjp), x, **numbers)

    assert set(seen) == {np.dtype("float32")}
    with pytest.raises(FlagError):
        examine(rule, x, in_double=True, **numbers)


@pytest.mark.parametrize("seed", seeds(10))
def test_what_calls_may_differ_by_matters_where_they_differ(seed):
    x = np.float32([0.5, 1.0, 1.5])

    def one_entry_off(x, w):
        return w * np.cos(x) * np.where(np.arange(3) == 1, np.float32(1 + 1e-4), np.float32(1))

    right = ByHand(np.sin, vjp=lambda x, w: w * np.cos(x))
    wrong = ByHand(np.sin, vjp=one_entry_off)
    passed, failed = (examine(rule, x, nondet_tol=1e-3, seed=seed) for rule in (right, wrong))

    assert passed.verdict is Verdict.PASS, str(passed)
    assert passed.provenance.note == "formula judged in float64"
    assert failed.verdict is Verdict.FAIL, str(failed)


@pytest.mark.parametrize("of", ["f", "vjp"])
def test_calls_that_differ_are_judged_with_the_numbers_of_their_dtype(of):
    drawn = iter(np.random.default_rng(0).random(10**5))  # which no check can put back

    def jittered(x, part):
        off = 1e-4 * next(drawn) if part == of else 0.0
        return x * x.dtype.type(1 + off)

    rule = ByHand(
        lambda x: jittered(np.sin(x), "f"), vjp=lambda x, w: jittered(w * np.cos(x), "vjp")
    )
    report = examine(rule, np.float32([0.5, 1.0, 1.5]), nondet_tol=1e-3, seed=0)

    assert report.verdict is not Verdict.FAIL, str(report)
    assert "nondet_tol" in report.provenance.note


def test_inputs_in_double_precision_are_evaluated_no_second_time():
    seen = []

    def f(x):
        seen.append(x.dtype)
        return np.sin(x)

    report = examine(ByHand(f, vjp=lambda x, w: w * np.cos(x)), np.linspace(0, 1, 300))

    assert report.provenance.note == ""
    assert len(seen) == report.counts["evaluations"] <= 4


def test_counts_are_those_of_both_runs():
    seen = []

    def f(x):
        seen.append(x.dtype)
        return np.sin(x)

    report = examine(ByHand(f, vjp=lambda x, w: w * np.cos(x)), np.float32([0.5, 1.0]), seed=0)

    assert len(seen) >= report.counts["evaluations"] > 4
    assert {np.dtype("float32"), np.dtype("float64")} == set(seen)
    assert seen.count(np.dtype("float32")) == 2  # the value, and one recording for all vjps


def test_unchecked_and_complex_inputs_are_widened_too():
    def f(z, a):
        return a * z * z

    rule = ByHand(f, vjp=lambda z, a, w: (w * np.conj(2 * a * z), None))
    z, a = np.complex64([1 + 2j, 0.5 - 1j]), np.float32([1.5, -2.0])

    report = examine(rule, (z, a), wrt=0, seed=0)

    assert report.verdict is Verdict.PASS, report
    assert report.provenance.note == "formula judged in float64"


@pytest.mark.parametrize(("off", "verdict"), [(0.0, Verdict.PASS), (1e-4, Verdict.FAIL)])
def test_second_order(off, verdict):
    rule = ByHand(
        np.sin,
        vjp=lambda x, w: w * np.cos(x),
        double_vjp=lambda x, w, u: (-(1 + off) * u * w * np.sin(x), u * np.cos(x)),
    )

    report = adjudge.gradgradcheck(
        rule, np.float32([0.5, 1.0, -2.0]), raise_exception=False, seed=0
    )

    assert report.verdict is verdict, report
    assert report.provenance.note == "formula judged in float64"


def test_a_first_derivative_that_low_precision_has_wrong_fails_the_second_order_check():
    rule = ByHand(
        np.sin,
        vjp=lambda x, w: only_low(x, w * np.cos(x), -w * np.cos(x)),
        double_vjp=lambda x, w, u: (-u * w * np.sin(x), u * np.cos(x)),
    )

    report = adjudge.gradgradcheck(
        rule, np.float32([0.5, 1.0, -2.0]), raise_exception=False, seed=0
    )

    assert report.verdict is Verdict.FAIL
    assert report.modes["R"] is Verdict.FAIL


def test_given_cotangents_are_widened():
    rule = ByHand(
        np.sin,
        vjp=lambda x, w: w * np.cos(x),
        double_vjp=lambda x, w, u: (-u * w * np.sin(x), u * np.cos(x)),
    )

    report = adjudge.gradgradcheck(
        rule, np.float32([0.5, 1.0]), np.float32([1.5, -0.5]), raise_exception=False, seed=0
    )

    assert report.verdict is Verdict.PASS, report
    assert report.provenance.note == "formula judged in float64"


@pytest.mark.parametrize("size", [1e3, 1e150, 9e307])
@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Verdict.PASS), (1.1, Verdict.FAIL)])
def test_numbers_beyond_the_range_of_a_narrow_dtype_are_another_derivative(size, factor, verdict):
    def vjp(x, w):
        if (
            x.dtype == np.float64
        ):  # what a kernel of float32 makes of bits that it takes for its own
            return np.full(x.shape, -size)
        return np.float32(factor) * w * np.cos(x)

    for seed in range(3):
        x = np.random.default_rng(seed).normal(size=6).astype(np.float32)
        report = examine(ByHand(np.sin, vjp=vjp), (x,), seed=seed)

        assert report.verdict is verdict, report
        assert "judged natively" in report.provenance.note


def weights(q, k):
    """Those of causal attention."""
    score = q @ k.T / q.dtype.type(3**0.5)
    score = np.where(np.tri(len(q)) > 0, score, -np.inf).astype(q.dtype)
    e = np.exp(score - score.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention_vjp(q, k, v, w):
    p, back = weights(q, k), w @ v.T
    back = p * (back - (back * p).sum(-1, keepdims=True)) / q.dtype.type(3**0.5)
    return back @ k, back.T @ q, p.T @ w


@over_seeds(10)
@pytest.mark.parametrize("drawn", [6, 18])
def test_attention_whose_weights_are_one_to_rounding_loses_digits_that_double_scatters_too(
    drawn, seeds
):
    """In double it loses more of them than single precision has."""
    random = np.random.default_rng(drawn)
    inputs = [(size * random.normal(size=(4, 3))).astype(np.float32) for size in (5, 5, 1)]
    rule = ByHand(lambda q, k, v: weights(q, k) @ v, vjp=attention_vjp)
    for seed in seeds:
        report = examine(rule, tuple(inputs), seed=seed, blame=False)
        assert report.verdict is not Verdict.FAIL, text_of(report)


def read(array):
    """The memory of an array as a kernel of float32 reads it, whatever is in it."""
    return array.ravel().view(np.float32)[: array.size].reshape(array.shape)


def written(values, like):
    array = np.zeros(like.size, like.dtype)
    array.view(np.float32)[: like.size] = values.ravel()
    return array.reshape(like.shape)


def smoothed(x, c):
    return written(np.sqrt(read(x) ** 2 + read(c)[:, None]), x)


@over_seeds(10)
@pytest.mark.parametrize("last", [long(False), True])
def test_kernels_that_read_numbers_of_any_dtype_as_float32_are_judged_natively(last, seeds):
    """Handed float64 they make numbers of 1e-310 and others of their usual size."""

    def vjp(x, c, w):
        part = read(w) / np.sqrt(read(x) ** 2 + read(c)[:, None])
        of_c = part[:, -1] if last else part.sum(1)
        return written(part * read(x), x), written(of_c / 2, c)

    random, rule = np.random.default_rng(0), ByHand(quiet(smoothed), vjp=quiet(vjp))
    x, c = random.normal(size=(10, 7)), random.uniform(0.5, 2, size=10)
    for seed in seeds:
        inputs = (x.astype(np.float32), c.astype(np.float32))
        report = examine(rule, inputs, seed=seed, blame=False)

        assert report.verdict is (Verdict.FAIL if last else Verdict.PASS), str(report)
        assert "judged natively" in report.provenance.note
