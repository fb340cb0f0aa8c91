"""Bounds and edges of a domain: no evaluation leaves them, and the verdict does not suffer."""

import numpy as np
import pytest
from scenarios import over_seeds

from adjudge import ByHand, InputError, Verdict, examine, gradcheck, gradgradcheck
from adjudge.estimate.stencils import Sample, ladder, ladder_steps
from adjudge.findings import Scheme
from adjudge.floats import relative_step

EPS = float(np.finfo(np.float64).eps)
POINT = np.asarray([0.3, 0.5, 0.7])


class Recorded:
    """A function by hand that keeps the points it was called at."""

    def __init__(self, f, derivative, error=1.0):
        self.points = []

        def forward(x):
            self.points.append(np.array(x, dtype=np.float64))
            with np.errstate(all="ignore"):
                return f(x)

        def vjp(x, w):
            with np.errstate(all="ignore"):
                return (error * w * derivative(x)).astype(x.dtype)

        self.rule = ByHand(forward, vjp=vjp)


def root(error=1.0):
    return Recorded(np.sqrt, lambda x: 0.5 / np.sqrt(x), error)


@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("x", [[0.25, 0.5, 1.0], [0.5, 1.0, 0.75], [0.25, 1.0, 1.0 - 1e-6]])
def test_no_evaluation_leaves_the_bounds(x, dtype, mode):
    x = np.asarray(x, dtype=dtype)
    rules = [root(error) for error in (1.0, -1.0, 1.1)]

    reports = [examine(r.rule, x, bounds=(0.25, 1.0), mode=mode, seed=0) for r in rules]

    assert [Verdict.PASS, Verdict.FAIL, Verdict.FAIL] == [report.verdict for report in reports]
    for rule in rules:
        assert min(point.min() for point in rule.points) >= 0.25
        assert max(point.max() for point in rule.points) <= 1.0


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_an_error_of_one_part_in_ten_thousand_shows_at_a_bound(mode):
    x = np.asarray([0.25, 1.0, 0.5])

    report = examine(root(1.0001).rule, x, bounds=(0.25, 1.0), mode=mode, seed=0)

    assert report.verdict is Verdict.FAIL


def test_bounds_are_arrays_or_belong_to_a_path():
    x, y = np.asarray([1.0, 2.0]), np.asarray([3.0])
    seen = []

    def forward(x, y):
        seen.append((x.copy(), y.copy()))
        return x * y

    rule = ByHand(forward, vjp=lambda x, y, w: (w * y, np.sum(w * x, keepdims=True)))
    bounds = {"inputs[0]": (np.asarray([1.0, -np.inf]), [5.0, 2.0])}

    report = gradcheck(rule, (x, y), bounds=bounds)

    assert report.verdict is Verdict.PASS
    assert min(point[0][0] for point in seen) >= 1.0
    assert max(point[0][1] for point in seen) <= 2.0
    assert max(point[1][0] for point in seen) > 3.0


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ((0.5, 2.0), "x lies outside"),
        ((1.0, 1.0), "low is not below high"),
        ((2.0, 0.0), "low is not below high"),
        ((0.0, np.nan), "one of them is NaN"),
        ((0.0,), "give (low, high)"),
        ((np.zeros(3), 1.0), "give (low, high)"),
        ((np.zeros((2, 2)), 1.0), "one side has shape (2, 2)"),
        ({"inputs[7]": (0, 1)}, "no checked input"),
    ],
)
def test_bounds_without_meaning_are_refused_before_anything_runs(bounds, words):
    rule = root()

    with pytest.raises(InputError) as caught:
        examine(rule.rule, np.asarray([0.25, 1.0]), bounds=bounds)

    assert words in str(caught.value)
    assert [] == rule.points


class SciPyLike:
    """As `scipy.optimize.Bounds`."""

    def __init__(self, lb, ub):
        self.lb, self.ub = lb, ub


@pytest.mark.parametrize(
    "bounds",
    [
        [(0, 1), (2, 3)],
        [(0, 1), (2, None)],
        ((0, 5), (2, 5)),
        ([0, 2], [1, 3]),
        ([0, 2], [None, None]),
        (np.array([0, 2]), np.array([1, 3])),
        SciPyLike([0, 2], [1, 3]),
        SciPyLike(np.array([0, 2]), np.inf),
        {"inputs[0]": [(0, 1), (2, None)]},
    ],
)
def test_bounds_are_read_as_scipy_means_them(bounds):
    f = Recorded(lambda x: np.sqrt(x - [0, 2]), lambda x: 0.5 / np.sqrt(x - [0, 2]))

    report = examine(f.rule, np.asarray([0.999999, 2.000001]), bounds=bounds, seed=0)

    seen = np.asarray(f.points)
    assert report.verdict is Verdict.PASS
    assert np.all(seen >= [0, 2])


@pytest.mark.parametrize("count", [1, 3])
def test_a_pair_for_each_entry_of_a_vector(count):
    x = 1e-6 + np.arange(float(count))
    f = root()

    report = examine(f.rule, x, bounds=[(k, None) for k in range(count)], seed=0)

    assert report.verdict is Verdict.PASS
    assert np.all(np.asarray(f.points) >= np.arange(count))


@pytest.mark.parametrize(
    "bounds", [((0, 1), (2, 3)), ((0, None), (2, None)), np.asarray([[0, 1], [2, 3]])]
)
def test_bounds_with_two_readings_are_refused_before_anything_runs(bounds):
    f = root()

    with pytest.raises(InputError, match="or a pair for each entry"):
        examine(f.rule, np.asarray([0.5, 2.5]), bounds=bounds)

    assert not f.points


def test_a_side_that_is_none_is_open():
    f = root()

    assert examine(f.rule, np.asarray([1e-6, 2.0]), bounds=(0, None), seed=0)
    assert np.min(f.points) >= 0


def test_complex_inputs_have_no_bounds():
    with pytest.raises(InputError, match="complex"):
        examine(root().rule, np.asarray([1.0 + 0j]), bounds=(0, 2))


def test_a_fixed_step_that_leaves_the_bounds_is_refused():
    with pytest.raises(InputError, match="leaves the bounds"):
        examine(root().rule, np.asarray([0.25, 1.0]), bounds=(0.25, 1.0), eps=1e-3)


@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize(
    ("f", "derivative", "x"),
    [
        (np.log, np.reciprocal, [1e-7, 1.0, 2.0]),
        (np.sqrt, lambda x: 0.5 / np.sqrt(x), [1e-9, 0.5, 2.0]),
        (np.arccosh, lambda x: 1 / np.sqrt((x - 1) * (x + 1)), [1 + 1e-6, 2.0]),
        (np.arcsin, lambda x: 1 / np.sqrt((1 - x) * (1 + x)), [1 - 1e-6, 0.3]),
        (lambda x: x**2.5, lambda x: 2.5 * x**1.5, [0.0, 1.0, 2.0]),
        (lambda x: np.where(x < 0, np.nan, np.exp(x)), np.exp, [0.0, 1.0]),
    ],
)
def test_near_the_edge_of_a_domain_right_passes_and_wrong_fails(f, derivative, x, mode):
    x = np.asarray(x)

    verdicts = [
        examine(Recorded(f, derivative, error).rule, x, mode=mode, seed=0).verdict
        for error in (1.0, -1.0, 1.01)
    ]

    assert [Verdict.PASS, Verdict.FAIL, Verdict.FAIL] == verdicts


@pytest.mark.parametrize("side", [1.0, -1.0])
@pytest.mark.parametrize("x", [0.3, 1.7])
def test_the_bar_of_a_one_sided_ladder_contains_the_truth(x, side):
    relative = relative_step(EPS)
    steps = [side * h for h in ladder_steps(relative, relative, EPS)]
    at_x = np.atleast_1d(np.sin(x))
    samples = [
        Sample((x + h) - x, np.atleast_1d(np.sin(x + h)), at_x, one_sided=True) for h in steps
    ]

    estimate = ladder(samples, EPS, at_x)

    assert abs(estimate.value[0] - np.cos(x)) <= estimate.error[0] <= 1e-6
    assert Scheme.ONE_SIDED_LADDER is estimate.method.scheme


def test_second_derivatives_keep_the_bounds_too():
    torch = pytest.importorskip("torch")
    seen = []

    def f(x):
        seen.append(x.detach().clone())
        return x**2.5

    x = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64, requires_grad=True)
    report = gradgradcheck(f, x, bounds=(0.0, 1.0), raise_exception=False, seed=0)

    assert report.modes["R"] is Verdict.PASS
    assert min(float(point.min()) for point in seen) >= 0.0
    assert max(float(point.max()) for point in seen) <= 1.0


def refusing(distance, change):
    """Returns sin with its derivative times a factor, which refuses points that are far from
    `POINT`: it raises there, or returns fewer outputs.
    """

    def f(x):
        if np.abs(x - POINT).max() <= distance:
            return np.sin(x)
        if change == "raises":
            raise ValueError("too far")
        return np.sin(x[:2])

    return lambda factor: ByHand(f, vjp=lambda x, w: factor * w * np.cos(x))


@over_seeds(10, always=2)
@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("change", ["raises", "shape"])
@pytest.mark.parametrize("distance", [1e-3, 1e-6, 1e-8])
def test_a_function_that_refuses_distant_points_is_judged_at_closer_ones(
    distance, change, mode, seeds
):
    rule = refusing(distance, change)

    for seed in seeds:
        assert Verdict.PASS is examine(rule(1.0), POINT, seed=seed, mode=mode).verdict
        assert Verdict.FAIL is examine(rule(1.001), POINT, seed=seed, mode=mode).verdict


@pytest.mark.parametrize("error", [ValueError, AssertionError])
def test_what_a_function_raises_at_all_points_but_x_comes_through(error):
    def f(x):
        if np.array_equal(x, POINT):
            return np.sin(x)
        raise error("no such point")

    with pytest.raises(error, match="no such point") as raised:
        examine(ByHand(f, vjp=lambda x, w: w * np.cos(x)), POINT)

    assert "the function runs at x, and not at this point beside it" in str(raised.value.__notes__)


def test_what_a_function_raises_once_comes_through():
    calls = iter(range(1000))

    def f(x):
        if next(calls) == 1:
            raise OSError("once")
        return np.sin(x)

    with pytest.raises(OSError, match="once"):
        examine(ByHand(f, vjp=lambda x, w: w * np.cos(x)), POINT)
