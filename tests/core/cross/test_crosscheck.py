"""One function on NumPy and array-api-strict, derivatives by hand: right ones pass, others fail."""

import json

import array_api_strict
import numpy as np
import pytest

import adjudge
from adjudge import ByHand, CrosscheckError, Status, Verdict, crosscheck, crosstable
from adjudge.engine.arrays import PlainBackend
from adjudge.engine.registry import backend_named
from adjudge.report import listening

ENGINES = ["numpy", "array_api_strict"]
MODULES = {"numpy": np, "array_api_strict": array_api_strict}
RANDOM = np.random.default_rng(3)
POINT = (RANDOM.normal(size=(3, 3)), RANDOM.normal(size=(3, 3)), RANDOM.normal(size=(3, 1)))


def layer(xp):
    return lambda A, X, b: xp.tanh(A @ X + b)


def gradients(xp, A, X, b, w):
    slope = w * (1 - xp.tanh(A @ X + b) ** 2)
    transposed = xp.matrix_transpose
    return slope @ transposed(X), transposed(A) @ slope, xp.sum(slope, axis=1, keepdims=True)


def tangent(xp, A, X, b, a, x, c):
    return (1 - xp.tanh(A @ X + b) ** 2) * (a @ X + A @ x + c)


def hand(xp, change=lambda xp, *g: g, **more):
    return ByHand(layer(xp), vjp=lambda A, X, b, w: change(xp, *gradients(xp, A, X, b, w)), **more)


def rules(change):
    """The right rule on NumPy, the changed one on array-api-strict."""
    return {"numpy": hand(np), "array_api_strict": hand(array_api_strict, change)}


def entry(xp, g, factor):
    g = xp.asarray(g, copy=True)
    g[1, 0] = factor * g[1, 0]
    return g


def without_row(xp, g):
    g = xp.asarray(g, copy=True)
    g[2, :] = 0.0
    return g


ERRORS = {
    "sign": lambda xp, A, X, b: (-A, X, b),
    "factor two": lambda xp, A, X, b: (A, 2 * X, b),
    "one entry": lambda xp, A, X, b: (entry(xp, A, 1.5), X, b),
    "one entry by a millionth": lambda xp, A, X, b: (A, entry(xp, X, 1 + 1e-6), b),
    "all by a millionth": lambda xp, A, X, b: (A, X, (1 + 1e-6) * b),
    "transpose": lambda xp, A, X, b: (xp.matrix_transpose(A), X, b),
    "dropped row": lambda xp, A, X, b: (A, without_row(xp, X), b),
    "absent": lambda xp, A, X, b: (A, X, None),
    "NaN": lambda xp, A, X, b: (A * xp.nan, X, b),
    "constant added": lambda xp, A, X, b: (A, X, b + 1e-6),
}


def test_right_derivatives_pass():
    report = crosscheck(rules(lambda xp, *g: g), POINT, ENGINES, seed=0)

    assert report.verdict is Verdict.PASS
    assert report
    assert report.comparisons["value"] == {"numpy, array_api_strict": 9}
    assert report.comparisons["R"] == {"numpy, array_api_strict": 4 * (9 + 9 + 3)}
    assert set(report.reports) == set(ENGINES)
    assert not report.divergences
    assert report.headline.startswith("PASS ")


@pytest.mark.parametrize("error", ERRORS)
def test_each_planted_error_fails_and_is_put_down_to_its_engine(error):
    report = crosscheck(rules(ERRORS[error]), POINT, ENGINES, seed=0, raise_exception=False)

    assert report.verdict is Verdict.FAIL
    first = report.divergences[0]
    assert (first.quantity, first.verdict) == ("R", Verdict.FAIL)
    assert first.accused == ("array_api_strict",)
    assert report.cells["R"] == {"numpy": "PASS", "array_api_strict": "FAIL"}
    assert report.cells["value"] == {"numpy": "PASS", "array_api_strict": "PASS"}
    assert "vjp: numpy and array_api_strict differ" in report.headline


def test_the_wrong_entry_is_named():
    report = crosscheck(rules(ERRORS["one entry"]), POINT, ENGINES, seed=0, raise_exception=False)

    (found,) = report.divergences
    assert found.entry == "d out / d inputs[0][1, 0] along one random direction"
    assert found.apart == 4  # this entry, for each of four probes
    assert found.numbers[1] == pytest.approx(1.5 * found.numbers[0])


def test_a_stale_gradient_fails():
    kept = []

    def stale(xp, *g):
        kept.append(g)
        return kept[0]

    report = crosscheck(rules(stale), POINT, ENGINES, seed=0, raise_exception=False)

    assert report.verdict is Verdict.FAIL
    assert report.cells["R"]["array_api_strict"] == "FAIL"


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Verdict.PASS), (1 + 1e-3, Verdict.FAIL)])
def test_a_thousandth_in_one_entry_in_single_precision(factor, verdict):
    narrow = tuple(array.astype(np.float32) for array in POINT)
    f = rules(lambda xp, A, X, b: (A, entry(xp, X, factor), b))

    for reference in ("float64", None, "numpy"):
        report = crosscheck(f, narrow, ENGINES, reference=reference, seed=0, raise_exception=False)
        assert report.verdict is verdict, reference
        assert {d.verdict for d in report.divergences} <= {verdict}
        assert bool(report.divergences) == (verdict is Verdict.FAIL)


def test_an_error_in_single_precision_only_is_held_against_double():
    def narrow_only(xp, A, X, b):
        return (A, X, b * (1 + 1e-3 * (b.dtype == xp.float32)))

    f = {"numpy": hand(np, narrow_only), "array_api_strict": hand(array_api_strict, narrow_only)}
    narrow = tuple(array.astype(np.float32) for array in POINT)

    report = crosscheck(f, narrow, ENGINES, seed=0, raise_exception=False)

    assert report.verdict is Verdict.FAIL
    assert report.reference == "held against float64 on numpy"
    assert [d.pair[1] for d in report.divergences] == ["float64 on numpy"] * 2


def test_a_function_that_is_another_one_in_double_is_no_reference():
    def f(x):
        return x * (2.0 if "float32" in str(x.dtype) else 3.0)

    def backward(x, w):
        return w * (2.0 if "float32" in str(x.dtype) else 3.0)

    report = crosscheck(
        ByHand(f, vjp=backward), (np.ones(3, np.float32),), ENGINES, seed=0, raise_exception=False
    )

    assert report.reference == "held against one another"
    assert report.left_out[0] == "in float64 f has another value than on every engine"
    assert not report.divergences


@pytest.mark.parametrize("right", [True, False])
def test_complex_gradients_are_those_of_the_real_inner_product(right):
    z = RANDOM.normal(size=4) + 1j * RANDOM.normal(size=4)

    def rule(xp, conjugate):
        return ByHand(
            lambda z: xp.real(z * xp.conj(z)),
            vjp=lambda z, w: 2 * w * (xp.conj(z) if conjugate else z),
        )

    f = {"numpy": rule(np, False), "array_api_strict": rule(array_api_strict, not right)}
    report = crosscheck(f, (z,), ENGINES, seed=0, raise_exception=False)

    assert bool(report) is right
    if not right:
        assert report.divergences[0].accused == ("array_api_strict",)
        assert ".imag" in report.divergences[0].entry


def test_where_values_differ_derivatives_are_not_blamed():
    f = {
        "numpy": hand(np),
        "array_api_strict": ByHand(
            lambda A, X, b: array_api_strict.tanh(A @ X + b) * (1 + 1e-6),
            vjp=lambda *args: gradients(array_api_strict, *args),
        ),
    }

    report = crosscheck(f, POINT, ENGINES, seed=0, raise_exception=False)

    assert report.verdict is Verdict.FAIL
    (found,) = report.divergences
    assert found.quantity == "value"
    assert "derivatives not compared: the values differ already" in found.text
    assert "R" not in report.comparisons


def test_one_engine_against_two_that_agree():
    class Third(PlainBackend):
        def __init__(self):
            super().__init__(backend_named("numpy").xp)
            self.name = "third"

    f = {name: ByHand(lambda x: x * x, vjp=lambda x, w: 2 * x * w) for name in ENGINES}
    f["third"] = ByHand(lambda x: x * x + 1e-9, vjp=lambda x, w: 2 * x * w)

    report = crosscheck(f, (np.ones(3),), [Third(), *ENGINES], seed=0, raise_exception=False)

    assert [d.accused for d in report.divergences] == [("third",), ("third",)]
    assert report.cells["value"] == {"third": "FAIL", "numpy": "PASS", "array_api_strict": "PASS"}
    assert report.comparisons["R"] == {"numpy, array_api_strict": 12}


def test_at_a_kink_both_may_be_right():
    def rule(xp, at_zero):
        return ByHand(
            lambda x: xp.maximum(x, xp.zeros_like(x)),
            vjp=lambda x, w: w * xp.astype((x >= 0) if at_zero else (x > 0), xp.float64),
        )

    f = {"numpy": rule(np, True), "array_api_strict": rule(array_api_strict, False)}
    x = np.array([-1.0, 0.0, 2.0])

    report = crosscheck(f, (x,), ENGINES, seed=0, raise_exception=False)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert report.divergences[0].status is Status.NONSMOOTH
    assert "both may be right" in report.divergences[0].text


def test_an_error_beside_a_kink_still_fails():
    def rule(xp, factor):
        return ByHand(
            lambda x: xp.maximum(x, xp.zeros_like(x)),
            vjp=lambda x, w: factor * w * xp.astype(x > 0, xp.float64),
        )

    f = {"numpy": rule(np, 1.0), "array_api_strict": rule(array_api_strict, 1 + 1e-6)}

    report = crosscheck(f, (np.array([-1.0, 0.0, 2.0]),), ENGINES, seed=0, raise_exception=False)

    assert report.verdict is Verdict.FAIL


@pytest.mark.parametrize("right", [True, False])
def test_second_order_is_compared_after_the_first(right):
    def rule(factor):
        return ByHand(
            lambda x: x * x * x,
            vjp=lambda x, w: 3 * x * x * w,
            double_vjp=lambda x, w, u: (factor * 6 * x * w * u, 3 * x * x * u),
        )

    f = {"numpy": rule(1.0), "array_api_strict": rule(1.0 if right else -1.0)}
    report = crosscheck(f, (POINT[0],), ENGINES, order=2, seed=0, raise_exception=False)

    assert bool(report) is right
    assert report.comparisons["RR"] == {"numpy, array_api_strict": 4 * 18}
    assert report.cells["FR"] == dict.fromkeys(ENGINES, "UNSUPPORTED")
    if not right:
        assert [(d.quantity, d.accused) for d in report.divergences] == [
            ("RR", ("array_api_strict",))
        ]


def test_second_order_that_is_missing_is_not_passed():
    report = crosscheck(
        rules(lambda xp, *g: g), POINT, ENGINES, order=2, seed=0, raise_exception=False
    )

    assert report.verdict is Verdict.INCONCLUSIVE
    assert report.cells["RR"] == dict.fromkeys(ENGINES, "UNSUPPORTED")


def test_a_jvp_that_one_engine_has_is_not_compared():
    f = rules(lambda xp, *g: g)
    f["numpy"] = hand(np, jvp=lambda *args: tangent(np, *args))

    report = crosscheck(f, POINT, ENGINES, seed=0)

    assert report.cells["F"] == {"numpy": "not compared", "array_api_strict": "UNSUPPORTED"}
    assert any("F on array_api_strict" in sentence for sentence in report.left_out)


def test_a_wrong_jvp_is_found():
    f = {
        name: hand(xp, jvp=lambda *args, xp=xp, c=c: c * tangent(xp, *args))
        for (name, xp), c in zip(MODULES.items(), (1.0, 1 + 1e-6), strict=True)
    }

    report = crosscheck(f, POINT, ENGINES, seed=0, raise_exception=False)

    assert [(d.quantity, d.accused) for d in report.divergences] == [("F", ("array_api_strict",))]


# ---------------------------------------------------------------------- a third witness


class Handy(PlainBackend):
    """NumPy arrays with the derivative of x -> x³, off by a factor."""

    def __init__(self, factor=1.0):
        super().__init__(backend_named("numpy").xp)
        self.name = "handy"
        self.factor = factor

    def vjp(self, f, x):
        return f(x), lambda w: (3 * self.factor * x[0] ** 2 * w[0],)

    def jvp(self, f, x, v):
        return f(x), (3 * x[0] ** 2 * v[0],)

    capabilities = frozenset({"jvp"})


@pytest.mark.parametrize("plain", ENGINES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_an_engine_without_derivatives_is_a_witness(plain, dtype):
    x = POINT[0].astype(dtype)

    good = crosscheck(lambda x: x * x * x, (x,), [Handy(), plain], seed=0)
    bad = crosscheck(
        lambda x: x * x * x, (x,), [Handy(1.001), plain], seed=0, raise_exception=False
    )

    assert good.cells["R"] == {"handy": "not compared", plain: "PASS"}
    assert good.cells["F"] == {"handy": "not compared", plain: "PASS"}
    assert good.reports[plain].counts["comparisons"] > 0
    assert bad.verdict is Verdict.FAIL
    assert bad.cells["R"] == {"handy": "FAIL", plain: "FAIL"}
    assert bad.reports[plain].function.endswith("derivative of handy)")


def test_trees_are_carried_to_the_witness():
    tree = {"w": POINT[0], "n": np.array([1, 2]), "more": (POINT[1], 2.0)}

    class Trees(PlainBackend):
        name = "trees"

        def vjp(self, f, x):  # inputs: more[0], w; outputs: a[0], b
            zeros = np.zeros((3, 3))
            return f(x), lambda w: (
                2 * x[0] * (zeros if w[1] is None else w[1]),
                zeros if w[0] is None else w[0],
            )

    engine = Trees(backend_named("numpy").xp)
    engine.name = "trees"

    def f(tree):
        assert tree["n"].dtype == np.int64
        return {"b": tree["more"][0] ** 2, "a": (tree["w"] + 0.0, 3)}

    report = crosscheck(f, (tree,), [engine, "numpy"], seed=0)

    assert report.reports["numpy"].verdict is Verdict.PASS


# ---------------------------------------------------------------------- words


def test_it_raises_with_the_report_and_a_line_that_stands_alone():
    with pytest.raises(CrosscheckError) as caught:
        crosscheck(rules(ERRORS["sign"]), POINT, ENGINES, seed=5)

    assert isinstance(caught.value, AssertionError)
    assert isinstance(caught.value, adjudge.AdjudgeError)
    assert not caught.value.report
    first = str(caught.value).splitlines()[0]
    assert first == caught.value.report.headline
    assert first.startswith("FAIL ByHand(")
    assert "accuse array_api_strict" in first
    assert "seed=5" in str(caught.value)


def test_the_report_as_data_and_tables():
    good = crosscheck(rules(lambda xp, *g: g), POINT, ENGINES, seed=0)
    bad = crosscheck(rules(ERRORS["NaN"]), POINT, ENGINES, seed=0, raise_exception=False)

    data = json.loads(json.dumps(bad.to_dict(), allow_nan=False))
    assert data["schema"] == "adjudge-cross/1"
    assert data["verdict"] == "FAIL"
    assert data["divergences"][0]["numbers"][1] == "nan"
    assert good.table.splitlines()[0].split() == ENGINES
    assert "| R | PASS | FAIL |" in bad.to_markdown()
    assert crosstable([good, bad]).splitlines()[1:] == [
        "| --- | --- | --- |",
        f"| {good.function} | PASS (without F) | PASS (without F) |",
        f"| {bad.function} | PASS (without F) | FAIL (R) |",
    ]


def test_listeners_are_told_of_each_engine():
    heard = []
    with listening(heard.append):
        crosscheck(rules(lambda xp, *g: g), POINT, ENGINES, seed=0)

    assert [report.provenance.backend for report in heard] == ENGINES


def test_the_same_seed_gives_the_same_report():
    one, two = (
        crosscheck(rules(ERRORS["one entry"]), POINT, ENGINES, seed=4, raise_exception=False)
        for _ in range(2)
    )

    assert str(one) == str(two)
