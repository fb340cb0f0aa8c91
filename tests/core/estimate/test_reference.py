"""References: derivatives that f cannot show, compared with what can."""

import numpy as np
import pytest
from precise import exp, mpmath
from scenarios import long, over_seeds

from adjudge import (
    ByHand,
    InputError,
    Status,
    Verdict,
    examine,
    gradcheck,
    gradgradcheck,
    reference,
)
from adjudge.errors import FlagError

sin = np.vectorize(mpmath.sin, otypes=[object])
number = np.vectorize(mpmath.mpf, otypes=[object])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def slope(x):
    """The derivative of `sigmoid`, with all digits in the tail."""
    return np.exp(-x) / (1 + np.exp(-x)) ** 2


def exact(x):
    return 1 / (1 + exp(-x))


def planted(factor):
    return ByHand(
        sigmoid, vjp=lambda x, w: factor * slope(x) * w, jvp=lambda x, v: factor * slope(x) * v
    )


MP = reference.mpmath(exact)
LONG = reference.twin(sigmoid)
REFERENCES = {
    "mpmath": MP,
    "jvp": reference.derivative(jvp=lambda x, v: slope(x) * v),
    "vjp": reference.derivative(vjp=lambda x, w: slope(x) * w),
}
WRONG = [2.0, -1.0, 0.0, 1 + 1e-6]
POINTS = {
    "tail": [40.0],
    "far tail": [300.0],
    "several": [38.0, 40.0, 45.0],
    "ordinary": [0.3, -0.7, 1.5],
    "mixed": [0.3, 40.0, 1.0],
    "many": [0.1] * 6 + [40.0],  # more than are compared entry by entry unasked
}
of_more_bits = pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 60, reason="longdouble is no wider than float64 here"
)


@pytest.mark.parametrize(
    ("point", "modes"),
    [
        *((point, ["R"]) for point in POINTS if point not in ("several", "far tail")),
        *((point, ["F"]) for point in ("tail", "mixed")),
        long("several", ["R"]),
        long("far tail", ["R"]),
        long("many", ["F"]),
    ],
)
@pytest.mark.parametrize("name", REFERENCES)
def test_a_right_derivative_passes_and_a_wrong_one_fails(name, point, modes):
    x, given = np.asarray(POINTS[point]), REFERENCES[name]

    # Wherever a right one passes, the two that are hardest to see fail. Arithmetic of many digits
    # is slow, and has one of them.
    wrong = WRONG if point == "tail" else WRONG[3:] if name == "mpmath" else WRONG[2:]

    options = {"modes": modes, "reference": given, "blame": False}
    found = [examine(planted(c), x, **options) for c in (1.0, *wrong)]

    assert [report.verdict for report in found] == [Verdict.PASS, *[Verdict.FAIL] * len(wrong)]
    assert given.name in found[0].provenance.note


@pytest.mark.parametrize(
    ("point", "mode"),
    [
        ("mixed", "full"),
        ("many", "projected"),
        long("mixed", "projected"),
        long("many", "full"),
    ],
)
@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("factor", [*map(long, WRONG[:2]), *WRONG[2:]])
def test_one_wrong_entry_in_a_tail_fails_among_large_ones(factor, name, point, mode):
    x = np.asarray(POINTS[point])
    factors = np.where(x == 40, factor, 1.0)

    options = {"seed": 1, "reference": REFERENCES[name], "blame": False}
    report = examine(planted(factors), x, mode=mode, **options)

    assert report.verdict is Verdict.FAIL
    assert report.entries[0].wrt == f"inputs[0][{int(np.argmax(x))}]"


@of_more_bits
@pytest.mark.parametrize(
    ("point", "factor", "verdict"),
    [
        (1.0, 1.0, Verdict.PASS),
        (1.0, 1 + 1e-6, Verdict.FAIL),
        (22.0, 1.0, Verdict.PASS),
        (22.0, 1.01, Verdict.FAIL),
        (36.0, 2.0, Verdict.FAIL),
        (36.0, 0.0, Verdict.FAIL),
        (36.0, 1.0, Verdict.INCONCLUSIVE),  # three of its digits show
        (60.0, 2.0, Verdict.INCONCLUSIVE),  # below the rounding of longdouble, too
    ],
)
def test_a_twin_in_longdouble_shows_eleven_bits_more(point, factor, verdict):
    report = examine(planted(factor), np.asarray([point]), reference=LONG)

    assert report.verdict is verdict


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Verdict.PASS), (2.0, Verdict.FAIL)])
def test_a_twin_in_float64_has_the_tail_of_float32(factor, verdict):
    x = np.asarray([0.5, 9.0, 14.0], np.float32)
    f = ByHand(sigmoid, vjp=lambda x, w: (factor * slope(x) * w).astype(np.float32))

    report = examine(f, x, reference=reference.twin(sigmoid, "float64"))

    assert report.verdict is verdict
    assert report.tolerance["rtol"] > 1e-4


def test_a_twin_in_float64_decides_nothing_in_the_tail_of_float64():
    report = examine(planted(2.0), np.asarray([40.0]), reference=reference.twin(sigmoid, "float64"))

    assert report.verdict is Verdict.INCONCLUSIVE
    assert "the reference cannot decide" in str(report)


def test_a_derivative_that_is_rounded_itself_is_not_called_wrong():
    x = np.asarray([12.5, 16.0], np.float32)
    f = ByHand(sigmoid, vjp=lambda x, w: w * sigmoid(x) * (1 - sigmoid(x)))
    twice = ByHand(sigmoid, vjp=lambda x, w: 2 * w * sigmoid(x) * (1 - sigmoid(x)))

    assert examine(f, x, reference=MP).verdict is Verdict.INCONCLUSIVE
    assert examine(twice, x, reference=MP).verdict is Verdict.FAIL


@over_seeds(3)
def test_rounding_around_zero_is_no_derivative(seeds):
    def softmax(x):
        e = np.exp(x)
        return e / e.sum()

    f = ByHand(
        lambda x: softmax(x).sum(),
        vjp=lambda x, w: w * (softmax(x) - softmax(x) * softmax(x).sum()),
    )
    wrong = ByHand(lambda x: softmax(x).sum(), vjp=lambda x, w: w * softmax(x))

    def exact_sum(x):
        e = exp(x)
        return (e / e.sum()).sum()

    given = reference.mpmath(exact_sum)
    x = np.random.default_rng(1).normal(size=4)

    for seed in seeds:
        assert examine(f, x, reference=given, seed=seed).verdict is Verdict.PASS
        assert examine(wrong, x, reference=given, seed=seed, blame=False).verdict is Verdict.FAIL


# ---------------------------------------------------------------- structures


def pair(a, b, s=2.0):
    return {"p": np.sin(a) * b, "q": [(a * b).sum() * s]}


def pair_vjp(a, b, w, s=2.0, c=1.0):
    q = w["q"][0] * s
    return w["p"] * np.cos(a) * b + q * b, c * (w["p"] * np.sin(a) + q * a)


def pair_jvp(a, b, v, u, s=2.0):
    return {
        "p": np.cos(a) * (0 if v is None else v) * b + np.sin(a) * (0 if u is None else u),
        "q": [((0 if v is None else v) * b + a * (0 if u is None else u)).sum() * s],
    }


PAIRS = {
    "mpmath": reference.mpmath(lambda a, b, s=2: {"p": sin(a) * b, "q": [(a * b).sum() * s]}),
    "longdouble": reference.twin(pair),
    "float64": reference.twin(pair, "float64"),
    "jvp": reference.derivative(jvp=pair_jvp),
    "vjp": reference.derivative(vjp=pair_vjp),
}


@pytest.mark.parametrize(
    ("name", "wrt"),
    [
        *((name, None) for name in PAIRS),
        ("mpmath", 1),
        *(long(name, 1) for name in PAIRS if name != "mpmath"),
    ],
)
@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Verdict.PASS), (1.001, Verdict.FAIL)])
def test_several_inputs_and_outputs_and_keywords(factor, verdict, name, wrt):
    x = (np.asarray([1.0, 2.0, 3.0]), np.asarray([0.5, 0.25, 1e-9]))
    f = ByHand(pair, vjp=lambda a, b, w, s: pair_vjp(a, b, w, s, factor))

    options = {"reference": PAIRS[name], "blame": False}
    report = examine(f, x, kwargs={"s": 3.0}, wrt=wrt, **options)

    assert report.verdict is verdict


@pytest.mark.parametrize("shape", [(), (1,), (2, 2)])
def test_every_shape_arrives_as_it_is(shape):
    seen = []

    def g(x):
        seen.append(np.shape(x))
        return 1 / (1 + (exp(-x) if shape else mpmath.exp(-x)))

    report = examine(planted(1.0), np.full(shape, 40.0), reference=reference.mpmath(g))

    assert report.verdict is Verdict.PASS
    assert {shape} == set(seen)


COMPLEX = {
    "mpmath": reference.mpmath(lambda z: exp(z) * z),
    "longdouble": reference.twin(lambda z: np.exp(z) * z),
    "jvp": reference.derivative(jvp=lambda z, v: np.exp(z) * (1 + z) * v),
    "vjp": reference.derivative(vjp=lambda z, w: np.conj(np.exp(z) * (1 + z)) * w),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers(name):
    z = np.asarray([1 + 2j, 0.3 - 0.1j])
    right = ByHand(lambda z: np.exp(z) * z, vjp=lambda z, w: np.conj(np.exp(z) * (1 + z)) * w)
    wrong = ByHand(lambda z: np.exp(z) * z, vjp=lambda z, w: np.exp(z) * (1 + z) * w)

    found = [examine(f, z, reference=COMPLEX[name]).verdict for f in (right, wrong)]

    assert found == [Verdict.PASS, Verdict.FAIL]


@pytest.mark.parametrize(("bounds", "factor"), [((0, 2), 1.0), (None, 1.0), ((0, 2), 1.001)])
def test_the_edge_of_the_domain_is_met_from_inside(bounds, factor):
    root = np.vectorize(mpmath.sqrt, otypes=[object])
    low = []

    def g(x):
        low.append(min(x))
        return x * root(x)

    f = ByHand(lambda x: x * np.sqrt(x), vjp=lambda x, w: 1.5 * factor * w * np.sqrt(x))
    report = examine(f, np.asarray([0.0, 1.0]), bounds=bounds, reference=reference.mpmath(g))

    assert report.verdict is (Verdict.PASS if factor == 1 else Verdict.FAIL)
    assert bounds is None or min(low) >= 0


@pytest.mark.parametrize("name", ["mpmath", "longdouble"])
def test_a_kink_is_seen(name):
    relu = np.vectorize(lambda q: max(q, mpmath.mpf(0)), otypes=[object])
    given = {"mpmath": reference.mpmath(relu), "longdouble": reference.twin(lambda x: x * (x > 0))}
    f = ByHand(lambda x: np.maximum(x, 0), vjp=lambda x, w: w * (x > 0))

    report = examine(f, np.asarray([1.5, 0.0, -0.5]), reference=given[name])

    assert report.verdict is Verdict.PASS
    assert [Status.NONSMOOTH] == [finding.status for finding in report.findings]


# ---------------------------------------------------------------- second order


def curvature(x):
    e = np.exp(-x)
    return e * (e - 1) / (1 + e) ** 3


def twice(factor):
    return ByHand(
        sigmoid,
        vjp=lambda x, w: slope(x) * w,
        double_vjp=lambda x, w, u: (factor * curvature(x) * w * u, slope(x) * u),
    )


@pytest.mark.parametrize("x", [[0.4, -1.0], [40.0, 41.0]])
@pytest.mark.parametrize(("factor", "verdict"), [(1, Verdict.PASS), (2, Verdict.FAIL)])
def test_mpmath_has_second_derivatives(factor, verdict, x):
    report = gradgradcheck(twice(factor), np.asarray(x), reference=MP, raise_exception=False)

    assert report.modes["RR"] is verdict
    assert report.modes["R"] is Verdict.PASS


def test_other_references_say_that_they_have_none():
    report = gradgradcheck(
        twice(1), np.asarray([40.0]), reference=REFERENCES["jvp"], raise_exception=False
    )

    assert report.verdict is Verdict.INCONCLUSIVE
    assert report.modes["RR"] is Status.UNSUPPORTED
    assert report.modes["R"] is Verdict.PASS
    assert "has no derivative of order 2" in str(report)


# ---------------------------------------------------------------- another function, bad arguments


@pytest.mark.parametrize(
    "given",
    [reference.mpmath(lambda x: 1 / (1 + exp(-2 * x))), reference.twin(np.tanh)],
    ids=["mpmath", "twin"],
)
def test_a_reference_of_another_function_is_named_and_not_compared(given):
    report = examine(planted(1.0), np.asarray([0.3, 1.0]), reference=given)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert [Status.REFERENCE] == [finding.status for finding in report.findings]
    assert "the reference is another function: at out[" in str(report)
    assert report.counts["comparisons"] == 0


def test_cancellation_inside_of_f_is_not_another_function():
    f = ByHand(
        lambda x: (1 - np.cos(x)) / x**2,
        vjp=lambda x, w: w * (x * np.sin(x) - 4 * np.sin(x / 2) ** 2) / x**3,
    )
    cos = np.vectorize(mpmath.cos, otypes=[object])
    given = reference.mpmath(lambda x: (1 - cos(x)) / x**2)

    report = examine(f, np.asarray([3e-6, 7e-6]), reference=given)

    assert Status.REFERENCE not in {finding.status for finding in report.findings}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (exact, "adjudge.reference.mpmath"),
        ("mpmath", "reference='mpmath' is no name of a reference"),
        (reference.mpmath(lambda x: exact(x)[:1]), "shape"),
        (reference.mpmath(lambda x: sigmoid(x.astype(float))), "not numbers of mpmath"),
        (reference.mpmath(lambda x: number(sigmoid(x.astype(float)))), "rounds to less"),
        (reference.twin(lambda x: sigmoid(x.astype(np.float32))), "float32"),
        (reference.derivative(jvp=lambda x, v: v[:1]), "shape"),
        (reference.mpmath(lambda x: (x, x)), "shape"),
    ],
)
def test_a_reference_that_cannot_be_one_is_refused(given, words):
    with pytest.raises(InputError, match=words):
        examine(planted(1.0), np.asarray([0.3, 1.0]), reference=given)


@pytest.mark.parametrize(
    "make",
    [
        lambda: reference.mpmath(3),
        lambda: reference.mpmath(exact, digits=5),
        lambda: reference.twin(sigmoid, "float32"),
        lambda: reference.derivative(),
        lambda: reference.derivative(jvp=slope, vjp=slope),
        lambda: reference.derivative(jvp=3),
    ],
)
def test_a_constructor_refuses_what_it_cannot_use(make):
    with pytest.raises(InputError):
        make()


@pytest.mark.parametrize("option", [{"eps": 1e-6}, {"in_double": True}, {"directions": "positive"}])
def test_options_about_differences_or_sets_contradict_a_reference(option):
    with pytest.raises(FlagError):
        gradcheck(planted(1.0), np.asarray([0.3]), reference=MP, **option)


def test_an_exception_in_the_reference_says_where_it_was():
    with pytest.raises(ZeroDivisionError) as caught:
        examine(planted(1.0), np.asarray([0.3]), reference=reference.mpmath(lambda x: x[0] / 0))

    assert "raised in the reference" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"jvp": lambda x, v: None}, "the jvp= of the reference returned None"),
        ({"vjp": lambda x, w: None}, "the vjp= of the reference returned None"),
        ({"jvp": lambda x, v: 1j * v}, "is complex128 in out, which is real"),
    ],
)
def test_a_derivative_of_a_reference_that_is_no_value_is_refused(given, words):
    """Taken for zeros, or for its real part, it failed right rules."""
    rule = ByHand(np.sin, vjp=lambda x, w: w * np.cos(x))

    with pytest.raises(InputError, match=words):
        examine(rule, np.linspace(0.1, 1, 4), reference=reference.derivative(**given), seed=0)
