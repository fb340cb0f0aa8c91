"""Outputs that are -inf or NaN at x are left out, and the others are judged."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from scenarios import over_seeds, seeds

from adjudge import ByHand, Status, Verdict, examine
from adjudge.findings import InputNotFinite, NotFinite

SEEDS = range(10)
FEW = range(3)
"""The seeds where no random number decides what is seen: full mode, and errors in every entry."""
CAUSAL = np.triu(np.ones((3, 3), bool), 1)
KEPT = np.asarray([1, 0, 1, 1, 0, 1, 1, 0], bool)


class Case(NamedTuple):
    """A function with outputs that are not finite, its vjp, and x."""

    f: Callable
    vjp: Callable
    x: np.ndarray
    count: int
    """The number of outputs that are not finite."""


def largest(x):
    return x >= np.sort(x)[-3]


def log_of_zeros(x):
    with np.errstate(divide="ignore"):
        return np.exp(x) + np.log(KEPT.astype(float))


def drawn(*shape):
    return np.random.default_rng(7).normal(size=shape)


CASES = {
    "causal mask": Case(
        lambda x: np.where(CAUSAL, -np.inf, np.sin(x)),
        lambda x, w: np.where(CAUSAL, 0, w * np.cos(x)),
        drawn(3, 3),
        3,
    ),
    "log of zeros": Case(log_of_zeros, lambda x, w: w * np.exp(x), drawn(8), 3),
    "nan": Case(
        lambda x: np.where(KEPT, x**3, np.nan), lambda x, w: np.where(KEPT, 3 * w * x**2, 0),
        drawn(8), 3,
    ),
    "top-k": Case(
        lambda x: np.where(largest(x), np.exp(x), -np.inf),
        lambda x, w: np.where(largest(x), w * np.exp(x), 0),
        drawn(8), 5,
    ),
    "many": Case(
        lambda x: np.where(np.arange(300) % 3 == 0, np.inf, np.tanh(x)),
        lambda x, w: np.where(np.arange(300) % 3 == 0, 0, w / np.cosh(x) ** 2),
        drawn(300), 100,
    ),
}  # fmt: skip
MODES = [(name, mode) for name in CASES for mode in ("full", "projected") if name != "many"]


def one_sign(g):
    k = np.unravel_index(np.argmax(np.abs(g)), g.shape)
    g = g.copy()
    g[k] *= -1
    return g


MISTAKES = {
    "sign": lambda g: -g,
    "factor": lambda g: 1.01 * g,
    "zero": lambda g: 0 * g,
    "one sign": one_sign,
}


@over_seeds(10, always=3)
@pytest.mark.parametrize(("name", "mode"), [*MODES, ("many", "projected")])
def test_a_right_rule_passes_with_a_note(name, mode, seeds):
    case = CASES[name]
    rule = ByHand(case.f, vjp=case.vjp)

    for seed in seeds if mode == "projected" else seeds[:1]:
        report = examine(rule, case.x, mode=mode, seed=seed)

        assert report.verdict is Verdict.PASS, str(report)
        (note,) = report.findings
        assert note.note
        assert note.status is Status.NONFINITE
        assert note.detail.count == case.count
        assert note.detail.left_out


@over_seeds(10, always=3)
@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize(
    ("name", "mode"), [*((name, "projected") for name in CASES), ("causal mask", "full")]
)
def test_a_mistake_at_the_finite_outputs_fails(name, mode, mistake, seeds):
    case = CASES[name]
    rule = ByHand(case.f, vjp=lambda x, w: MISTAKES[mistake](case.vjp(x, w)))

    seeds = seeds if mistake == "one sign" and mode == "projected" else seeds[:1]
    reports = [examine(rule, case.x, mode=mode, seed=seed, blame=False) for seed in seeds]

    assert [Verdict.FAIL] * len(reports) == [report.verdict for report in reports]


@pytest.mark.parametrize("factor", [1.0, -1.0, 1.01])
@pytest.mark.parametrize("mode", ["full", "projected"])
def test_forward_mode_leaves_the_same_outputs_out(mode, factor):
    # What the rule says at a masked entry does not count: its output is -inf whatever x is.
    def jvp(x, v):
        return factor * v * np.cos(x) + np.where(CAUSAL, np.nan, 0.0)

    rule = ByHand(CASES["causal mask"].f, jvp=jvp)

    seeds = SEEDS if mode == "projected" else FEW
    reports = [
        examine(rule, CASES["causal mask"].x, mode=mode, modes=["F"], seed=seed) for seed in seeds
    ]

    wanted = Verdict.PASS if factor == 1 else Verdict.FAIL
    assert [wanted] * len(reports) == [report.verdict for report in reports]


def test_the_note_says_how_many_and_which_first():
    case = CASES["log of zeros"]

    report = examine(ByHand(case.f, vjp=case.vjp), case.x, seed=0)

    (note,) = report.findings
    assert note.entry == "out[1]"
    assert NotFinite(-np.inf, 3, 8, left_out=True) == note.detail
    assert "out[1] is -inf at x and beside it: 3 of 8 output entries" in str(report)


def test_what_is_left_out_is_not_counted():
    case = CASES["log of zeros"]

    report = examine(ByHand(case.f, vjp=case.vjp), case.x, mode="full", seed=0)

    assert report.counts["comparisons"] == 8 * 5


def test_a_cotangent_is_zero_where_an_output_is_left_out():
    seen = []

    def vjp(x, w):
        seen.append(w)
        return CASES["nan"].vjp(x, w)

    examine(ByHand(CASES["nan"].f, vjp=vjp), CASES["nan"].x, mode="projected", seed=0)

    # one pullback asks whether the rule claims a derivative of the NaNs
    at_nan = [w for w in seen if np.any(w[~KEPT])]
    assert len(at_nan) == 1
    assert not np.any(at_nan[0][KEPT])


@pytest.mark.parametrize("factor", [1.0, -1.0])
def test_an_output_that_is_minus_infinity_as_a_whole_is_left_out(factor):
    rule = ByHand(
        lambda x: (np.sin(x), np.full(4, -np.inf)), vjp=lambda x, w: factor * w[0] * np.cos(x)
    )

    reports = [examine(rule, drawn(4), mode="projected", seed=seed) for seed in SEEDS]

    wanted = Verdict.PASS if factor == 1 else Verdict.FAIL
    assert [wanted] * len(reports) == [report.verdict for report in reports]
    assert {1} == {report.counts["comparisons"] for report in reports}


def test_where_no_output_is_finite_nothing_passes():
    rule = ByHand(lambda x: np.full(3, -np.inf), vjp=lambda x, w: 0 * x)

    report = examine(rule, np.ones(3))

    assert report.verdict is Verdict.INCONCLUSIVE
    assert "3 of 3 output entries are not finite" in report.headline


@over_seeds(10)
@pytest.mark.parametrize("mode", ["full", "projected"])
def test_a_pole_stays_open_and_is_no_error_of_the_others(mode, seeds):
    def quiet(x):
        with np.errstate(all="ignore"):
            return 1 / x

    def vjp(x, w):
        with np.errstate(all="ignore"):
            return -w / x**2

    for seed in seeds:
        report = examine(ByHand(quiet, vjp=vjp), np.asarray([0.0, 1.0]), mode=mode, seed=seed)

        assert report.verdict is Verdict.INCONCLUSIVE, str(report)
        assert "out[0] is inf at x: 1 of 2" in str(report)


def test_a_nan_that_the_rule_claims_a_derivative_of_stays_open():
    def log(x):
        with np.errstate(all="ignore"):
            return np.log(x)

    x = np.asarray([-1.0, 2.0, 3.0])
    right, wrong = (ByHand(log, vjp=lambda x, w, c=c: c * w / x) for c in (1, 2))

    reports = [examine(rule, x, seed=seed) for rule in (right, wrong) for seed in SEEDS]

    assert {Verdict.INCONCLUSIVE} == {report.verdict for report in reports[:10]}
    assert {Verdict.FAIL} == {report.verdict for report in reports[10:]}
    assert "the rule gives a derivative there" in str(reports[0])


@pytest.mark.parametrize(("factor", "verdict"), [(1, Verdict.PASS), (-1, Verdict.FAIL)])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_mask_that_follows_x_stays_as_it_is_beside_x(dtype, factor, verdict):
    # Some entries lie so close to zero that a long step would change their sign.
    x = np.concatenate([drawn(40), [1e-3, -1e-3, 4e-3, -4e-3]]).astype(dtype)
    rule = ByHand(
        lambda x: np.where(x > 0, x**2 + x, np.asarray(-np.inf, x.dtype)),
        vjp=lambda x, w: np.where(x > 0, factor * w * (2 * x + 1), 0 * x),
    )

    reports = [examine(rule, x, seed=seed) for seed in SEEDS]

    assert [verdict] * len(reports) == [report.verdict for report in reports]


@over_seeds(10)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_pole_at_a_large_entry_stays_open(dtype, seeds):
    x = np.asarray([1000.0, *np.ones(400)], dtype)

    def f(x):
        with np.errstate(all="ignore"):
            return 1 / (x - np.asarray(1000, x.dtype))

    def vjp(x, w):
        with np.errstate(all="ignore"):
            return -w * f(x) ** 2

    for seed in seeds:
        report = examine(ByHand(f, vjp=vjp), x, seed=seed)

        assert report.verdict is Verdict.INCONCLUSIVE, str(report)
        assert "out[0] is inf at x: 1 of 401 output entries" in str(report)


def quiet(function):
    def call(*args):
        with np.errstate(all="ignore"):
            return function(*args)

    return call


POLES = {
    "log": (np.log, lambda x: 1 / x, 0.0),
    "reciprocal": (lambda x: 1 / x, lambda x: -1 / x**2, 0.0),
    "inverse root": (lambda x: x**-0.5, lambda x: -0.5 * x**-1.5, 0.0),
    "arctanh": (lambda x: np.arctanh(x / 9), lambda x: 9 / (81 - x * x), 9.0),
    "x log x": (lambda x: x * np.log(x), lambda x: np.log(x) + 1, 0.0),
    "sin x / x": (lambda x: np.sin(x) / x, lambda x: (np.cos(x) - np.sin(x) / x) / x, 0.0),
}  # fmt: skip
"""Functions that are not finite at one number, their derivatives, and the number."""


@over_seeds(10)
@pytest.mark.parametrize("name", POLES)
@pytest.mark.parametrize("mode", ["full", "projected", "F"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_poles_at_some_entries_hide_no_mistake_in_the_others(name, mode, dtype, seeds):
    f, derivative, pole = POLES[name]

    def examined(factors, seed):
        x = np.random.default_rng(seed).uniform(0.5, 3, 8).astype(dtype)
        x[[2, 5]] = pole

        def rule(x, w):
            return (factors * w * derivative(x)).astype(dtype)

        way = {"jvp": quiet(rule)} if mode == "F" else {"vjp": quiet(rule)}
        taken = {"modes": ["F"]} if mode == "F" else {"mode": mode}
        return examine(ByHand(quiet(f), **way), x, seed=seed, blame=False, **taken)

    for seed in seeds if mode != "full" else seeds[::3]:
        right = examined(1, seed)
        one, all_ = examined(np.where(np.arange(8) == 3, 1.1, 1), seed), examined(1.1, seed)

        assert right.verdict is Verdict.INCONCLUSIVE
        assert "2 of 8 output entries are not finite" in str(right)
        assert "something else beside x" in str(right)
        assert one.verdict is Verdict.FAIL
        assert all_.verdict is Verdict.FAIL


@over_seeds(10)
@pytest.mark.parametrize(("factor", "verdict"), [(1, Verdict.PASS), (1.1, Verdict.FAIL)])
@pytest.mark.parametrize("name", ["x log x", "sin x / x"])
def test_a_nan_at_x_alone_that_the_caller_allows_is_a_note(name, factor, verdict, seeds):
    f, derivative, pole = POLES[name]
    rule = ByHand(quiet(f), vjp=quiet(lambda x, w: factor * w * derivative(x)))

    for seed in seeds:
        x = np.append(np.random.default_rng(seed).uniform(0.5, 3, 8), pole)

        assert examine(rule, x, seed=seed, equal_nan=True).verdict is verdict


def test_infinities_at_random_places_are_nondeterministic():
    random = np.random.default_rng(3)
    numbers = (random.random(8) for _ in range(1000))

    def f(x):
        return np.where(next(numbers) < 0.3, -np.inf, np.sin(x))

    report = examine(ByHand(f, vjp=lambda x, w: w * np.cos(x)), drawn(8), seed=0)

    assert Status.NONDETERMINISTIC in {finding.status for finding in report.findings}
    assert not report


@over_seeds(10)
@pytest.mark.parametrize("mode", ["full", "projected"])
def test_a_nan_gradient_at_an_infinite_input_is_no_error(mode, seeds):
    # Zero times infinity, as in `mish` at -inf.
    def f(x):
        return np.where(np.isinf(x), np.nan, x**2)

    def vjp(x, w, factor=1):
        with np.errstate(all="ignore"):
            return np.where(np.isinf(x), np.nan, factor * 2 * w * x)

    x = np.asarray([-np.inf, 1.0, 2.0])
    for seed in seeds:
        right = examine(ByHand(f, vjp=vjp), x, mode=mode, seed=seed)
        wrong = examine(ByHand(f, vjp=lambda x, w: vjp(x, w, 3)), x, mode=mode, seed=seed)

        assert right.verdict is Verdict.INCONCLUSIVE, str(right)
        assert wrong.verdict is Verdict.FAIL, str(wrong)


@pytest.mark.parametrize(("factor", "verdict"), [(1, Verdict.PASS), (-1, Verdict.FAIL)])
@pytest.mark.parametrize("mode", ["full", "projected"])
def test_a_large_constant_beside_an_infinity_hides_nothing(mode, factor, verdict):
    filled = np.where(np.arange(8) == 1, -1e30, -np.inf)
    rule = ByHand(
        lambda x: np.where(KEPT, np.sin(x), filled),
        vjp=lambda x, w: np.where(KEPT, factor * w * np.cos(x), 0),
    )

    reports = [examine(rule, drawn(8), mode=mode, seed=seed) for seed in SEEDS]

    assert [verdict] * len(reports) == [report.verdict for report in reports]


SQRT = quiet(np.sqrt)
ROOT = quiet(lambda x, w: w / (2 * np.sqrt(x)))
TWICE = quiet(lambda x, w: w / np.sqrt(x))


@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("equal_nan", [False, True])
@pytest.mark.parametrize("seed", seeds(10))
def test_beside_a_nan_whose_gradient_is_nan_the_rest_is_judged(mode, equal_nan, seed):
    """The rule multiplies the cotangent zero by NaN, and all of a projection is NaN then."""
    x = np.array([1.0, -1.0, 2.0, 3.0, 0.5])
    given = {"equal_nan": equal_nan, "mode": mode, "seed": seed}

    right = examine(ByHand(SQRT, vjp=ROOT), x, **given)
    wrong = examine(ByHand(SQRT, vjp=TWICE), x, **given)

    assert right.verdict is (Verdict.PASS if equal_nan else Verdict.INCONCLUSIVE)
    assert wrong.verdict is Verdict.FAIL
    (told,) = (one for one in right.findings if isinstance(one.detail, NotFinite))
    assert told.note is equal_nan


def test_a_derivative_at_an_infinity_that_moves_nothing_is_compared_in_full_mode():
    x = np.array([0.3, -np.inf])
    right = ByHand(np.exp, vjp=lambda x, w: w * np.exp(x))
    wrong = ByHand(np.exp, vjp=lambda x, w: w * np.where(np.isinf(x), 1.0, np.exp(x)))

    assert examine(right, x, mode="full", seed=0).verdict is Verdict.PASS
    assert examine(wrong, x, mode="full", seed=0).verdict is Verdict.FAIL


@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("equal_nan", [False, True])
@pytest.mark.parametrize("seed", seeds(10))
def test_where_an_output_that_is_compared_reads_that_entry_the_others_are_judged(
    equal_nan, seed, mode
):
    x, y = np.array([1.0, -1.0, 2.0]), np.array([0.5, 0.4, 0.3])

    def f(x, y):
        return x * y, SQRT(x)

    def rule(factor):
        def vjp(x, y, w):
            return factor * w[0] * y + ROOT(x, w[1]), w[0] * x

        return ByHand(f, vjp=vjp)

    given = {"equal_nan": equal_nan, "mode": mode, "seed": seed}
    right, wrong = (examine(rule(factor), (x, y), **given) for factor in (1.0, 2.0))

    assert right.verdict is (Verdict.PASS if equal_nan else Verdict.INCONCLUSIVE)
    assert wrong.verdict is Verdict.FAIL


@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("size", [2, 3, 9])
def test_along_a_nan_of_x_nothing_is_compared_and_a_note_says_so(mode, size):
    def f(x):
        return np.nansum(x * x)

    def vjp(x, w):
        return np.where(np.isnan(x), 0.0, 2 * w * x)

    x = 0.37 * np.arange(1.0, size + 1)
    x[1] = np.nan

    right = examine(ByHand(f, vjp=vjp), x, mode=mode, seed=0)
    wrong = examine(ByHand(f, vjp=lambda x, w: 1.5 * vjp(x, w)), x, mode=mode, seed=0)

    assert right.verdict is Verdict.PASS
    assert [InputNotFinite] == [type(finding.detail) for finding in right.findings]
    assert f"inputs[0][1] is nan: 1 of {size} entries of x" in str(right)
    assert wrong.verdict is Verdict.FAIL
