"""Cotangents as they come in life: expanded, transposed or with gaps in memory, large, small, and
zero in parts."""

import numpy as np
import pytest
from scenarios import over_seeds, seeds

from adjudge import ByHand, Status, Verdict, examine
from adjudge.findings import LayoutMatters, LayoutRaised, NotHomogeneous
from adjudge.report import text_of

SEEDS = range(3)
SHAPE = (3, 4)


def at(dtype="float64"):
    return np.random.default_rng(4).normal(size=SHAPE).astype(dtype)


def by(wrong, f=np.sin, slope=np.cos):
    """The rule of f, whose cotangent is taken as `wrong` makes it."""
    return ByHand(f, vjp=lambda x, w: wrong(w) * slope(x))


def details(report):
    return [type(f.detail) for f in report.findings if f.verdict is Verdict.FAIL]


def with_expanded(w, make):
    return make(w) if 0 in w.strides else w


def with_gaps(w, make):
    return make(w) if min(w.strides) > w.itemsize else w


def with_rows(w, make):
    return make(w) if w.strides[0] == 0 and any(w.strides) else w


def with_last(w, make):
    return make(w) if w.strides[-1] == 0 and any(w.strides) else w


def transposed(w, make):
    return make(w) if w.T.flags.c_contiguous and not w.flags.c_contiguous else w


LAYOUTS = {
    "the first entry alone": lambda w: np.where(np.arange(w.size).reshape(w.shape) == 0, w, 0.0),
    "twice": lambda w: 2 * w,
    "zeros": np.zeros_like,
    "one part in a thousand": lambda w: 1.001 * w,
    "negative": np.negative,
    "not a number": lambda w: np.full_like(w, np.nan),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_rule_that_is_wrong_for_an_expanded_cotangent_fails(name, seed):
    rule = by(lambda w: with_expanded(w, LAYOUTS[name]))

    report = examine(rule, at(), seed=seed)

    assert [LayoutMatters] == details(report)
    assert "expanded (stride 0)" in text_of(report.findings[0])


GARBLED = {
    **LAYOUTS,
    "in another order": lambda w: np.roll(w, 1),
    "in the order of memory": lambda w: w.ravel(order="K").reshape(w.shape),
}
OTHERS = {
    "expanded along its first axis (stride 0)": (with_rows, np.zeros_like),
    "expanded along its last axis (stride 0)": (with_last, LAYOUTS["the first entry alone"]),
    "for one that is transposed": (transposed, GARBLED["in the order of memory"]),
    "that is transposed": (transposed, LAYOUTS["not a number"]),
}


@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("name", OTHERS)
def test_a_rule_that_is_wrong_for_one_layout_alone_fails(name, seed, mode):
    only, wrong = OTHERS[name]

    report = examine(by(lambda w: only(w, wrong)), at(), seed=seed, mode=mode)

    assert [LayoutMatters] == details(report)
    assert name in text_of(report.findings[0])


def test_images_whose_channels_come_last_in_memory_are_tried():
    seen = []
    x = np.linspace(0.3, 2, 2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    report = examine(by(lambda w: (seen.append(w.strides), w)[1]), x, seed=0)

    assert report.verdict is Verdict.PASS
    assert (480, 8, 120, 24) in seen


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", GARBLED)
def test_a_rule_that_is_wrong_for_a_cotangent_with_gaps_fails(name, seed):
    rule = by(lambda w: with_gaps(w, GARBLED[name]))

    report = examine(rule, at(), seed=seed)

    assert [LayoutMatters] == details(report)
    assert "with gaps" in text_of(report.findings[0])


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_what_a_rule_by_hand_raises_for_a_layout_is_a_note(mode):
    """It may insist on the arrays that its own code makes; an engine hands over all layouts."""

    def contiguous_only(w):
        if not w.flags.c_contiguous:
            raise ValueError("view size is not compatible")
        return w

    report = examine(by(contiguous_only), at(), seed=0, mode=mode)

    (found,) = report.findings
    assert report.verdict is Verdict.PASS
    assert LayoutRaised is type(found.detail)
    assert Status.RAISED is found.status
    assert found.note
    assert "view size is not compatible" in text_of(found)


def test_a_rule_that_raises_for_one_layout_is_judged_in_the_others():
    def vjp(x, w):
        if w.strides == (0, 0):
            raise ValueError("overlapping memory")
        return with_rows(w, np.zeros_like) * np.cos(x)

    report = examine(ByHand(np.sin, vjp=vjp), at(), seed=0)

    assert [LayoutMatters] == details(report)
    assert LayoutRaised in {type(finding.detail) for finding in report.findings}


CLIPS = {
    "beyond ten": lambda w: np.clip(w, -10, 10),
    "beyond ten thousand": lambda w: np.clip(w, -1e4, 1e4),
    "by their norm": lambda w: w * min(1.0, 50 / max(1.0, np.linalg.norm(w))),
    "by a tanh": lambda w: 1e3 * np.tanh(w / 1e3),
    "by a tanh beyond millions": lambda w: 4e6 * np.tanh(w / 4e6),
    "beyond a hundred to zero": lambda w: np.where(np.abs(w) > 100, 0.0, w),
}


CUT = {
    "below a thousandth": lambda w: np.where(np.abs(w) < 1e-3, 0.0, w),
    "below a millionth": lambda w: np.where(np.abs(w) < 1e-6, 0.0, w),
    "by a small number in a norm": lambda w: w * np.abs(w) / (np.abs(w) + 1e-8),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("name", CUT)
def test_a_gradient_that_is_cut_off_below_a_magnitude_fails(name, seed, dtype):
    report = examine(by(lambda w: CUT[name](w).astype(w.dtype)), at(dtype), seed=seed)

    assert report.verdict is Verdict.FAIL
    assert NotHomogeneous in details(report)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize("mode", ["auto", "full"])
def test_a_gradient_of_a_loss_that_is_cut_off_below_a_magnitude_fails(mode, name, seed, dtype):
    """It has no layouts, and one cotangent says nothing of sums."""

    def vjp(x, w):
        return (2 * CUT[name](w) * x).astype(x.dtype)

    report = examine(ByHand(lambda x: (x * x).sum(), vjp=vjp), at(dtype), seed=seed, mode=mode)

    assert report.verdict is Verdict.FAIL
    assert NotHomogeneous in details(report)


def stops_at_a_tolerance(w):
    return w + 1e-9 * np.sin(3e3 * np.arange(w.size).reshape(w.shape) * w)


@pytest.mark.parametrize("allowed", [{}, {"atol": 3e-8}, {"rtol": 1e-2}])
@pytest.mark.parametrize("seed", seeds(10))
def test_a_backward_pass_that_stops_at_a_tolerance_is_held_to_what_is_allowed(seed, allowed):
    report = examine(by(stops_at_a_tolerance), at(), seed=seed, **allowed)

    assert report.verdict is (Verdict.PASS if allowed else Verdict.FAIL)


def skips_what_is_beside_zero(w):
    return w * np.roll(w != 0, 1, 0)


def is_nan_for_zeros(w):
    with np.errstate(invalid="ignore"):
        return w / np.abs(w).max() * np.abs(w).max()


ZEROS = {
    "beside a zero": skips_what_is_beside_zero,
    "all zero": is_nan_for_zeros,
    "right": lambda w: np.where(w != 0, w, 0 * w),
}


@pytest.mark.parametrize("shape", [(7,), SHAPE])
@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("name", ZEROS)
def test_a_gradient_that_is_wrong_where_its_cotangent_is_zero_fails(name, seed, shape):
    x = np.linspace(0.3, 2, int(np.prod(shape))).reshape(shape)

    report = examine(by(ZEROS[name]), x, seed=seed)

    assert report.verdict is (Verdict.PASS if name == "right" else Verdict.FAIL)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", CLIPS)
def test_a_gradient_that_is_clipped_beyond_a_magnitude_fails(name, seed, dtype):
    report = examine(by(lambda w: CLIPS[name](w).astype(w.dtype)), at(dtype), seed=seed)

    assert report.verdict is Verdict.FAIL
    assert NotHomogeneous in details(report)


def far_above(x):
    return x.dtype.type({"float64": 1e13, "float32": 3e4, "float16": 200}[x.dtype.name]) + np.sin(x)


MULTIPLES = {
    "right": lambda w: w,
    "clipped": lambda w: np.clip(w, -1.5, 1.5),
    "cut off": CUT["below a millionth"],
    "its size": np.abs,
    "more of what is large": lambda w: w * (1 + 0.5 * np.abs(w) / (np.abs(w).max() or 1.0)),
}


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        (name, dtype)
        for name in MULTIPLES
        for dtype in ("float64", "float32", "float16")
        # cotangents so small have no place in float16
        if (name, dtype) != ("cut off", "float16")
    ],
)
def test_values_far_above_their_derivative_hide_no_rule_that_is_not_linear(name, seed, dtype):
    """Terms of the size of f may cancel in a gradient of zero, and leave more than this gradient.
    A power of two changes no rounding, though, and other rounding than that stays no error at all
    points nearby.
    """
    rule = by(lambda w: MULTIPLES[name](w).astype(w.dtype), far_above)
    report = examine(rule, at(dtype), seed=seed)

    assert (report.verdict is Verdict.FAIL) is (name != "right"), str(report)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("name", ["right", "twice", "zeros", "negative"])
def test_values_far_above_their_derivative_hide_no_layout(name, seed, dtype):
    wrong = LAYOUTS.get(name, lambda w: w)
    report = examine(by(lambda w: transposed(w, wrong), far_above), at(dtype), seed=seed)

    assert details(report) == [] if name == "right" else LayoutMatters in details(report)


RIGHT = {
    "elementwise": (np.sin, lambda x, w: w * np.cos(x)),
    "a product of matrices": (lambda x: x @ x.T, lambda x, w: w @ x + w.T @ x),
    "a mean": (lambda x: x.mean(0), lambda x, w: np.broadcast_to(w / len(x), x.shape)),
    "values below the smallest number": (
        lambda x: np.exp(-40 * x**2),
        lambda x, w: w * -80 * x * np.exp(-40 * x**2),
    ),
    "a softmax": (
        lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
        lambda x, w: (
            (y := np.exp(x) / np.exp(x).sum(-1, keepdims=True))
            * (w - (w * y).sum(-1, keepdims=True))
        ),
    ),
}


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_rule_passes_whatever_the_layout_and_size_of_its_cotangent(name, seed, dtype):
    f, vjp = RIGHT[name]

    report = examine(ByHand(f, vjp=vjp), at(dtype), seed=seed)

    assert report.verdict is not Verdict.FAIL
    assert not {LayoutMatters, LayoutRaised, NotHomogeneous} & set(details(report))


def exponential(a):
    """The exponential of a matrix, by 2^n-th powers of a series."""
    halvings = max(0, int(np.ceil(np.log2(np.linalg.norm(a, 1)))) + 3)
    term = total = np.eye(len(a), dtype=a.dtype)
    for k in range(1, 14):
        term = (term @ a / 2**halvings / k).astype(a.dtype)
        total = total + term
    for _ in range(halvings):
        total = total @ total
    return total


def pull_exponential(a, w):
    k = len(a)
    return exponential(np.block([[a.T, w], [0 * a, a.T]]))[:k, k:]


EXPONENTIALS = {
    "right": pull_exponential,
    "clipped beyond a thousand": lambda a, w: pull_exponential(a, np.clip(w, -1e3, 1e3)),
    "clipped beyond a hundred thousand": lambda a, w: pull_exponential(a, np.clip(w, -1e5, 1e5)),
    "saturated": lambda a, w: pull_exponential(a, 1e4 * np.tanh(w / 1e4).astype(w.dtype)),
    "not transposed": lambda a, w: pull_exponential(a.T, w),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", EXPONENTIALS)
def test_a_right_rule_that_loses_digits_with_the_size_of_its_cotangent_passes(name, seed, dtype):
    a = np.random.default_rng(seed).normal(size=(4, 4)).astype(dtype) / 4
    rule = ByHand(exponential, vjp=lambda a, w: EXPONENTIALS[name](a, w).astype(w.dtype))

    report = examine(rule, a, seed=seed)

    assert report.verdict is (Verdict.PASS if name == "right" else Verdict.FAIL)
    if name == "right":
        (note,) = [f for f in report.findings if type(f.detail) is NotHomogeneous] or [None]
        assert note is None or "loses digits in proportion" in text_of(note)


OFF = 300  # units of rounding


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("wrong", [False, True])
def test_digits_that_are_lost_with_the_size_of_a_cotangent_are_no_error_of_a_narrow_dtype(
    seed, wrong
):
    """The exponential of a matrix of a hundred rows in float32 does so, and this in its place."""

    def vjp(x, w):
        size = 1.0 if wrong else np.abs(w).max()
        lost = min(0.4, OFF * np.finfo(x.dtype).eps * size)
        return (w * np.cos(x) * (1 - lost)).astype(x.dtype)

    report = examine(ByHand(np.sin, vjp=vjp), at("float32"), seed=seed)

    assert report.verdict is (Verdict.FAIL if wrong else Verdict.PASS)


def test_gradients_that_overflow_for_a_large_cotangent_are_no_error():
    steep = ByHand(lambda x: 1e35 * x, vjp=lambda x, w: (1e35 * w).astype(w.dtype))

    assert examine(steep, at("float32"), seed=0).verdict is Verdict.PASS


OVERFLOWS = {
    "infinite beyond 65504": lambda w: np.where(np.abs(w) > 65504, np.inf, w),
    "NaN beyond 65504": lambda w: np.where(np.abs(w) > 65504, np.nan, w),
}


@pytest.mark.parametrize("f", [np.sin, lambda x: np.sin(x).sum()], ids=["array", "loss"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("name", OVERFLOWS)
def test_a_gradient_that_is_not_finite_for_a_large_cotangent_fails(name, seed, dtype, f):
    """In float32 double precision tells whether numbers on the way are too large for that."""

    def vjp(x, w):
        return (OVERFLOWS[name](w) * np.cos(x)).astype(x.dtype)

    report = examine(ByHand(f, vjp=vjp), at(dtype), seed=seed)

    assert report.verdict is Verdict.FAIL
    assert [NotHomogeneous] == details(report)


@pytest.mark.parametrize(("dtype", "largest"), [("float32", 41.0), ("float64", 350.0)])
def test_what_overflows_on_the_way_is_a_note(dtype, largest):
    """Such numbers depend on x, and at half of it they are far smaller."""

    def softmax(x):
        return np.exp(x) / np.exp(x).sum()

    def vjp(x, w):
        e = np.exp(x)
        with np.errstate(over="ignore", invalid="ignore"):
            return ((w * e * e.sum() - e * (w * e).sum()) / e.sum() / e.sum()).astype(x.dtype)

    x = largest - np.array([1.0, 0.5, 0.0], dtype)
    report = examine(ByHand(softmax, vjp=vjp), x, seed=0)

    assert report.verdict is Verdict.PASS
    assert [NotHomogeneous] == [type(finding.detail) for finding in report.findings]


def left_of_a_sum(x):
    """What rounding leaves of a sum that is taken away again, in another order."""
    return np.cumsum(x.ravel())[-1] - np.cumsum(x.ravel()[::-1])[-1]


@over_seeds(10)
@pytest.mark.parametrize("shape", [(6,), SHAPE])
def test_what_rounding_leaves_of_larger_terms_beside_small_cotangents_is_a_note(shape, seeds):
    def vjp(x, w):
        return w * np.cos(x) + left_of_a_sum(3 * x)

    for seed in seeds:
        x = np.random.default_rng(seed).normal(size=shape).astype("float32")
        report = examine(ByHand(np.sin, vjp=vjp), x, seed=seed, in_double=False)

        assert report.verdict is Verdict.PASS, str(report)
        assert {f.status for f in report.findings} <= {Status.INACCURATE}
        for finding in report.findings:
            assert "the rule loses digits of a small cotangent" in text_of(finding)


OF_SMALL = {
    "rounded": lambda w: np.round(w * 2.0**22) / 2.0**22,
    "rounded down": lambda w: np.floor(w * 2.0**24) / 2.0**24,
    "added to 1 and taken away": lambda w: (w + w.dtype.type(1)) - w.dtype.type(1),
    "cut off": lambda w: np.where(np.abs(w) < 6e-7, 0, w),
    "with noise": lambda w: w * (1 + 0.6 * np.sin(3e11 * w)),
    "divided by its norm plus 1e-8": lambda w: w * (norm(w) / (norm(w) + 1e-8)),
    "with a small number added": lambda w: w + 1e-8 * w.any(),
}


def norm(w):
    return np.linalg.norm(w.ravel())


@over_seeds(10)
@pytest.mark.parametrize("shape", [(6,), SHAPE])
def test_what_is_far_above_the_rounding_of_larger_terms_fails(shape, seeds):
    """It is another number at each point, as what rounding leaves is."""
    for seed in seeds:
        x = np.random.default_rng(seed).normal(size=shape)
        rule = ByHand(np.sin, vjp=lambda x, w: w * np.cos(x) + 1e-10 * np.sin(1e17 * x))
        report = examine(rule, x, seed=seed, blame=False)

        assert report.verdict is Verdict.FAIL, str(report)
        assert Status.NONLINEAR in {finding.status for finding in report.findings}


@over_seeds(10)
@pytest.mark.parametrize("shape", [(6,), SHAPE])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, "float32") for name in OF_SMALL),
        # in double precision the spacing at 1 is far below these
        *((name, "float64") for name in OF_SMALL if name != "added to 1 and taken away"),
    ],
)
def test_a_rule_that_is_wrong_for_small_cotangents_fails(name, dtype, shape, seeds):
    """What it does depends on the cotangent alone, and rounds nothing that depends on x."""
    x = at(dtype).ravel()[: int(np.prod(shape))].reshape(shape)
    for seed in seeds:
        wrong = by(lambda w: OF_SMALL[name](w).astype(w.dtype))
        report = examine(wrong, x, seed=seed, blame=False)

        assert report.verdict is Verdict.FAIL, str(report)
        assert Status.NONLINEAR in {finding.status for finding in report.findings}


@over_seeds(10)
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("modes", ["R", "F"])
@pytest.mark.parametrize("loss", [False, True])
def test_a_rule_that_is_not_finite_for_small_probes_fails(loss, modes, dtype, number, seeds):
    def spoiled(w):
        return np.where((np.abs(w) < 1e-6) & (w != 0), number, w)

    def f(x):
        return np.sin(x).sum(keepdims=True) if loss else np.sin(x)

    def jvp(x, v):
        slopes = spoiled(v) * np.cos(x)
        with np.errstate(invalid="ignore"):
            return (slopes.sum(keepdims=True) if loss else slopes).astype(x.dtype)

    def vjp(x, w):
        return (spoiled(w) * np.cos(x)).astype(x.dtype)

    x = at(dtype)
    for seed in seeds:
        rule = ByHand(f, vjp=vjp, jvp=jvp)
        report = examine(rule, x, modes=[modes], seed=seed, blame=False)

        assert report.verdict is Verdict.FAIL, str(report)
        assert Status.NONLINEAR in {finding.status for finding in report.findings}


NOT_FINITE_FOR = {
    "entries that are zero beside others": lambda w: (w == 0).any() and w.any(),
    "equal entries": lambda w: w.any() and np.ptp(w) == 0,
}


@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("name", NOT_FINITE_FOR)
def test_a_rule_that_is_not_finite_for_some_cotangents_fails(name, seed, number):
    rule = by(lambda w: np.full_like(w, number) if NOT_FINITE_FOR[name](w) else w)

    report = examine(rule, at(), seed=seed, blame=False)

    assert report.verdict is Verdict.FAIL, str(report)


@pytest.mark.parametrize("seed", seeds(10))
def test_a_derivative_that_is_infinite_is_not_finite_for_a_sum_of_cotangents(seed):
    """As that of the root of zero, of which a cotangent of zero makes NaN."""
    x = np.abs(at())
    x[1, 2] = 0.0

    def vjp(x, w):
        with np.errstate(all="ignore"):
            return w / (2 * np.sqrt(x))

    report = examine(ByHand(np.sqrt, vjp=vjp), x, seed=seed)

    assert report.verdict is not Verdict.FAIL, str(report)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rule_that_writes_into_its_cotangent_is_told_that(seed):
    def vjp(x, w):
        w *= np.cos(x)
        return w

    report = examine(ByHand(np.sin, vjp=vjp), at(), seed=seed)

    assert Status.MUTATES_INPUT in {finding.status for finding in report.findings}
    assert Status.RAISED not in {finding.status for finding in report.findings}


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["right", "cut off", "clipped"])
def test_small_cotangents_that_underflow_in_float16_are_no_error(name, seed, dtype):
    def f(x):
        return np.tanh(x.astype("float16")).astype(x.dtype)

    def vjp(x, w):
        slope = 1 - np.tanh(x.astype("float16")) ** 2
        w = np.where(np.abs(w) < 0.8, 0.0, w) if name == "cut off" else w
        w = np.clip(w, -100, 100) if name == "clipped" else w
        with np.errstate(over="ignore"):
            return (slope * w.astype("float16")).astype(x.dtype)

    report = examine(ByHand(f, vjp=vjp), at(dtype), seed=seed)

    assert (report.verdict is Verdict.FAIL) is (name != "right")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("seed", range(3))
def test_what_overflows_in_float32_inside_is_a_note(dtype, seed):
    def parts(x, w=0.0):
        e = np.exp(x.astype("float32"))
        return e, e.sum(), np.asarray(w, "float32") * e

    def f(x):
        e, whole, _ = parts(x)
        return (e / whole).astype(x.dtype)

    def vjp(x, w):
        with np.errstate(all="ignore"):
            e, whole, scaled = parts(x, w)
            return (scaled / whole - e * (scaled.sum() / whole / whole)).astype(x.dtype)

    report = examine(ByHand(f, vjp=vjp), np.array([78.0, 80.0, 79.0, 77.0], dtype), seed=seed)

    infinite = [
        one
        for one in report.findings
        if isinstance(one.detail, NotHomogeneous) and not np.isfinite(one.detail.one)
    ]
    assert infinite
    assert all(one.note for one in infinite)


@pytest.mark.parametrize("scaled", [False, True])
def test_a_rule_with_a_limit_of_its_own_is_told_to_scale_what_it_is_given(scaled):
    def limited(x, w):
        return np.where(np.abs(w) > 1e5, np.nan, w) * np.cos(x)

    def vjp(x, w):
        largest = max(np.abs(w).max(), 1e-300) if scaled else 1.0
        return limited(x, w / largest) * largest

    report = examine(ByHand(np.sin, vjp=vjp), at(), seed=0)

    assert report.verdict is (Verdict.PASS if scaled else Verdict.FAIL), str(report)
    assert ("divide the cotangent by its largest entry" in str(report)) is not scaled


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def below(part):
    """The vjp of a softmax that drops what is less than this part of its largest cotangent."""

    def vjp(x, w):
        y, kept = softmax(x), np.where(np.abs(w) < part * np.abs(w).max(), 0, w).astype(w.dtype)
        return y * (kept - (kept * y).sum(-1, keepdims=True))

    return vjp


@over_seeds(10)
@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize(
    ("x", "dtype"),
    [
        ([18, 0], "float32"),
        ([17, 0, 1, -2], "float32"),
        ([118, 100], "float32"),
        ([[16, 0, 2], [1, 18, 3]], "float32"),
        ([37, 0], "float64"),
        ([10, 0], "float16"),
        ([11, 0, 1, -2], "float16"),
    ],
)
def test_a_saturated_softmax_is_additive(x, dtype, mode, seeds):
    """`p (w - sum(w p))` loses the digits of small cotangents beside the large one of the output
    that is almost 1, in the same way at every point nearby.
    """
    rule = ByHand(softmax, vjp=below(0.0))
    for seed in seeds:
        report = examine(rule, np.array(x, dtype), seed=seed, mode=mode, blame=False)
        assert report.verdict is not Verdict.FAIL, str(report)


@over_seeds(10)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("x", [[3, 0, 1, -1], [9, 0, 1, -1]])
def test_a_softmax_that_drops_small_cotangents_is_not_additive(x, dtype, seeds):
    for seed in seeds:
        rule = ByHand(softmax, vjp=below(0.95))
        report = examine(rule, np.array(x, dtype), seed=seed, blame=False)
        assert report.verdict is Verdict.FAIL, str(report)


TAILS = {
    "exp": (np.exp, np.exp, (-20, -40)),
    "a sigmoid": (
        lambda x: 1 / (1 + np.exp(-x)),
        lambda x: np.exp(-x) / (1 + np.exp(-x)) ** 2,
        (-20, -40),
    ),
    "a bell": (lambda x: np.exp(-x * x), lambda x: -2 * x * np.exp(-x * x), (-4.5, -6.3)),
}


@over_seeds(10)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", TAILS)
def test_what_f_does_far_off_hides_no_rule_that_is_not_linear(name, dtype, seeds):
    f, slope, places = TAILS[name]
    x = np.array([1, 1.05, 0.95, 1.01]) * places[dtype == "float64"]
    rule = ByHand(f, vjp=lambda x, w: (np.where(np.abs(w) < 0.1, 0, w) * slope(x)).astype(x.dtype))
    for seed in seeds:
        report = examine(rule, x.astype(dtype), seed=seed, blame=False)
        assert report.verdict is Verdict.FAIL, str(report)
