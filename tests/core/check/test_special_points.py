"""Special points: derivatives that are wrong there only are caught, with the point named."""

import json

import numpy as np
import pytest
from scenarios import long

from adjudge import (
    ByHand,
    GradcheckError,
    InputError,
    Status,
    Verdict,
    examine,
    gradcheck,
    special_points,
)
from adjudge.errors import FlagError
from adjudge.estimate.kinks import irregularity
from adjudge.findings import Reason, Silence
from adjudge.problem.calls import read_arguments
from adjudge.problem.problem import first_order, observe

X = np.asarray([0.3, -1.2, 0.8, 2.0])
POSITIVE = np.asarray([0.3, 1.2, 0.8, 2.0])
MATRIX = np.asarray([[0.9, 0.2, -0.3], [0.2, 1.7, 0.4], [-0.3, 0.4, 2.5]])


def names(points):
    return [point.name for point in points]


def at(inputs, name, **options):
    (found,) = [p for p in special_points(inputs, **options) if p.name == name]
    return found.inputs


# ---------------------------------------------------------------- planted errors


def others(x):
    """Of each entry the product of the others."""
    return np.asarray([np.prod(np.delete(x, k)) for k in range(x.size)])


def sinc(x):
    return np.where(x == 0, 1.0, np.sin(x) / np.where(x == 0, 1.0, x))


def sinc_slope(x):
    safe = np.where(np.abs(x) < 1e-3, 1.0, x)
    far = (safe * np.cos(safe) - np.sin(safe)) / safe**2
    return np.where(np.abs(x) < 1e-3, -x / 3 + x**3 / 30, far)


def cubes(a, b):
    """The divided difference of the cube."""
    return a * a + a * b + b * b


def cubes_by_quotient(a, b, w):
    d = a - b
    return (
        w * (3 * a**2 * d - (a**3 - b**3)) / d**2,
        w * ((a**3 - b**3) - 3 * b**2 * d) / d**2,
    )


def squared(a):
    s = (a + a.T) / 2
    return s @ s


def squared_by_eigenvalues(a, w, *, branch):
    values, q = np.linalg.eigh((a + a.T) / 2)
    gap = values[:, None] - values
    kernel = np.where(np.eye(len(values)) > 0, 2 * values, 0.0)
    away = (values[:, None] ** 2 - values**2) / np.where(gap == 0, np.nan, gap)
    if branch:
        away = values[:, None] + values
    kernel = np.where(np.eye(len(values)) > 0, kernel, away)
    g = q @ (kernel * (q.T @ ((w + w.T) / 2) @ q)) @ q.T
    return (g + g.T) / 2


def rising(x):
    """Gamma(x + 3) / Gamma(x)."""
    return x * (x + 1) * (x + 2)


def log_sum_exp(x):
    return np.max(x) + np.log(np.sum(np.exp(x - np.max(x))))


def scaled(x):
    return x / np.sqrt(1 + x * x / 2)


PLANTED = {
    "product": (
        np.prod,
        lambda x, w: w * others(x),
        lambda x, w: w * np.prod(x) / x,
        (X,),
        ["zeros", "zero_entry", "two_zeros_in_a_row"],
    ),
    "removable singularity": (
        sinc,
        lambda x, w: w * sinc_slope(x),
        lambda x, w: w * (x * np.cos(x) - np.sin(x)) / x**2,
        (X,),
        ["zeros", "zero_entry"],
    ),
    "divided difference": (
        cubes,
        lambda a, b, w: (w * (2 * a + b), w * (a + 2 * b)),
        cubes_by_quotient,
        (X[:2], X[2:]),
        ["equal_arguments", "ones", "plus_40"],
    ),
    "eigenvalues": (
        squared,
        lambda a, w: squared_by_eigenvalues(a, w, branch=True),
        lambda a, w: squared_by_eigenvalues(a, w, branch=False),
        (MATRIX,),
        ["identity", "zeros"],
    ),
    "negative integers": (
        rising,
        lambda x, w: w * (3 * x**2 + 6 * x + 2),
        lambda x, w: w * rising(x) * (1 / x + 1 / (x + 1) + 1 / (x + 2)),
        (X,),
        ["minus_ones", "negative_integers"],
    ),
    "saturation": (
        log_sum_exp,
        lambda x, w: w * np.exp(x - log_sum_exp(x)),
        lambda x, w: w * np.exp(x) / np.sum(np.exp(x)),
        (X,),
        ["plus_1000", "minus_1000", "plus_minus_1000"],
    ),
    "a sign at zero": (
        np.square,
        lambda x, w: w * 2 * x,
        lambda x, w: w * np.where(x == 0, 1e-3, 2 * x),
        (X,),
        ["zeros", "zero_entry"],
    ),
}


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        *((name, "projected") for name in PLANTED if name != "divided difference"),
        *(long("divided difference", "projected"), long("product", "full")),
    ],
)
def test_an_error_at_a_special_point_only_is_caught_and_the_point_named(name, mode):
    f, right, wrong, inputs, where = PLANTED[name]
    domain = "symmetric" if name == "eigenvalues" else None

    options = {"points": "special", "domain": domain, "mode": mode, "blame": False}

    passes = examine(ByHand(f, vjp=right), inputs, **options)
    fails = examine(ByHand(f, vjp=wrong), inputs, **options)

    assert passes.verdict is Verdict.PASS, str(passes)
    assert fails.verdict is Verdict.FAIL
    assert fails.points["given"].verdict is Verdict.PASS
    assert [p for p in where if fails.points[p].verdict is not Verdict.FAIL] == []
    first = next(p for p, report in fails.points.items() if report.verdict is Verdict.FAIL)
    assert f"at {first}: " in fails.headline
    assert f"\nat {first}:\n" in str(fails)


def test_gradcheck_raises_with_the_point_in_its_first_line():
    rule = ByHand(np.prod, vjp=PLANTED["product"][2])

    assert gradcheck(rule, X)
    with pytest.raises(GradcheckError) as error:
        gradcheck(rule, X, points="special", seed=1)

    assert "at zeros: d out / d inputs[0]" in str(error.value).partition("\n")[0]
    assert str(Status.MISMATCH) in str(error.value)


# ---------------------------------------------------------------- where f has no derivative


def test_a_norm_is_not_smooth_at_zero_and_that_is_no_failure():
    rule = ByHand(lambda x: np.sqrt(np.sum(x * x)), vjp=lambda x, w: w * x / np.sqrt(np.sum(x * x)))

    report = gradcheck(rule, X, points="special")

    assert report
    assert "f is not smooth (kink)" == report.points["zeros"].silent
    assert "zeros" in str(report)
    assert report.points["zero_entry"].verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("f", "vjp", "x", "name", "reason"),
    [
        (np.sqrt, lambda x, w: w / (2 * np.sqrt(x)), POSITIVE, "zeros", "vertical tangent"),
        (np.log, lambda x, w: w / x, POSITIVE, "zeros", "f is not finite"),
        (np.floor, lambda x, w: 0 * w, X[:2], "positive_integers", "jump"),
        (np.floor, lambda x, w: 0 * w, X[:1], "large", "no fraction"),
    ],
)
def test_a_point_where_f_has_no_derivative_is_listed_and_decides_nothing(f, vjp, x, name, reason):
    report = examine(ByHand(f, vjp=vjp), x, points="special")

    assert report.verdict is Verdict.PASS, str(report)
    assert reason in report.points[name].silent
    assert report.points[name].verdict is Verdict.INCONCLUSIVE
    assert name not in [finding.point for finding in report.findings]


def test_a_function_that_raises_at_a_point_says_so():
    def inverse(x):
        if not np.all(x):
            raise ValueError("division by zero")
        return 1 / x

    report = gradcheck(ByHand(inverse, vjp=lambda x, w: -w / x**2), X, points="special")

    assert "f raises ValueError" == report.points["zero_entry"].silent
    assert "division by zero" in str(report)


def test_a_derivative_that_raises_where_f_does_not_leaves_the_check_open():
    def vjp(x, w):
        if not np.all(x):
            raise ValueError("division by zero")
        return w * np.prod(x) / x

    report = examine(ByHand(np.prod, vjp=vjp), X, points="special")

    assert report.verdict is Verdict.INCONCLUSIVE
    assert "at zeros: f does not raise; its derivative raises ValueError" in report.headline


def test_what_is_open_at_the_inputs_given_stays_open():
    rule = ByHand(np.floor, vjp=lambda x, w: 0 * w)

    report = examine(rule, np.zeros(3), points="special", mode="full")

    assert report.verdict is Verdict.INCONCLUSIVE
    assert "at given: " in report.headline


SMOOTH = {
    "sin": np.sin,
    "exp": np.exp,
    "cube": lambda x: x**3,
    "product": np.prod,
    "sinc": sinc,
    "softmax": lambda x: np.exp(x - log_sum_exp(x)),
    "rational": scaled,
    "steep": lambda x: np.tanh(50 * x),
    "constant": lambda x: 0 * x + 1,
    "cancels": lambda x: (1 + x) - 1,
}


@pytest.mark.parametrize("name", SMOOTH)
def test_a_smooth_function_is_not_called_rough_at_any_special_point(name):
    for point in special_points(X):
        with np.errstate(all="ignore"):
            problem = first_order(SMOOTH[name], read_arguments(point.inputs))
            why = irregularity(observe(problem), problem.X, seed=3)
        assert why.nonsmooth is None or "large" in point.name or "huge" in point.name, point.name


ROUGH = {
    "abs": (np.abs, Reason.KINK),
    "sort": (np.sort, Reason.KINK),
    "largest": (np.max, Reason.KINK),
    "sign": (np.sign, Reason.JUMP),
    "root": (lambda x: np.sqrt(np.abs(x)), Reason.VERTICAL_TANGENT),
    "power": (lambda x: np.abs(x) ** 0.9, Reason.VERTICAL_TANGENT),
    "entropy": (
        lambda x: np.where(x == 0, 0, x * np.log(np.abs(x) + (x == 0))),
        Reason.VERTICAL_TANGENT,
    ),
    "cone": (lambda x: np.sum(x**3) / (np.sum(x * x) + np.all(x == 0)), Reason.KINK),
}


@pytest.mark.parametrize("name", ROUGH)
def test_a_rough_function_is_called_rough_at_zero_and_not_beside_it(name):
    f, kind = ROUGH[name]

    def why(x):
        problem = first_order(f, read_arguments(x))
        return irregularity(observe(problem), problem.X, seed=3).nonsmooth

    assert Silence(kind) == why(np.zeros(4))
    assert why(X) is None


# ---------------------------------------------------------------- the points


def test_the_patterns_are_exact():
    assert 1 == np.count_nonzero(at(X, "zero_entry") == 0)
    assert [0, 0] == list(at(MATRIX, "two_zeros_in_a_row")[0, :2])
    assert at(X, "equal_entries")[0] == at(X, "equal_entries")[1]
    assert 1 == np.unique(at(X, "all_equal")).size
    assert np.all(np.signbit(at(X, "negative_zeros")))
    assert np.array_equal(at(MATRIX, "identity"), np.eye(3))
    assert 2 == np.linalg.matrix_rank(at(MATRIX, "rank_deficient"))
    assert [1, 1, 4] == pytest.approx(np.linalg.eigvalsh(at(MATRIX, "repeated_eigenvalues")))
    there = at(MATRIX[:2], "repeated_singular_values")
    assert [2, 2] == list(np.linalg.svd(there, compute_uv=False))
    assert not np.array_equal(there[:, :2], there[:, :2].T)
    block = at(MATRIX, "jordan_block")
    assert 1 == 3 - np.linalg.matrix_rank(block - np.eye(3))


def test_equal_arguments_are_those_of_one_shape():
    a, b, c = at((X, X + 1, MATRIX), "equal_arguments")

    assert np.array_equal(a, b)
    assert np.array_equal(c, MATRIX)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
def test_points_have_the_dtype_and_are_finite_and_distinct(dtype):
    inputs = (X.astype(dtype), np.asarray(0.7, dtype=dtype))

    points = special_points(inputs)

    assert all(x.dtype == dtype for point in points for x in point.inputs)
    assert all(np.all(np.isfinite(x)) for point in points for x in point.inputs)
    values = {tuple(x.tobytes() for x in point.inputs) for point in points}
    assert len(points) == len(values) == len(set(names(points)))
    info = np.finfo(dtype)
    smallest = np.abs(at(inputs, "subnormal")[0])
    assert np.all((smallest > 0) & (smallest < info.smallest_normal))
    assert np.all(np.abs(at(inputs, "huge")[0]) > info.max / 16)


def test_the_inputs_stay_as_they_are_and_others_are_copied():
    inputs = ({"w": X.astype("float32"), "n": np.asarray([1, 2])}, -0.0, None)
    before = inputs[0]["w"].tobytes(), inputs[0]["n"].tobytes()

    points = special_points(inputs)
    for point in points:
        assert np.array_equal(point.inputs[0]["n"], [1, 2])
        assert point.inputs[1:] == (-0.0, None)
        point.inputs[0]["w"][...] = 7
        point.inputs[0]["n"][...] = 7

    assert before == (inputs[0]["w"].tobytes(), inputs[0]["n"].tobytes())


def test_the_check_leaves_the_inputs_bit_for_bit():
    x = X.copy()

    def spoils(x):
        y = np.prod(x)
        x[...] = 0
        return y

    examine(ByHand(spoils, vjp=lambda x, w: w * others(x)), x, points="special")

    assert x.tobytes() == X.tobytes()


def test_nothing_is_random():
    one, two = (special_points((X, MATRIX)) for _ in range(2))

    assert names(one) == names(two)
    assert [p.inputs[0].tobytes() for p in one] == [p.inputs[0].tobytes() for p in two]


def test_each_of_a_few_inputs_is_moved_alone_and_only_checked_ones_are():
    found = names(special_points((X, MATRIX)))
    assert {"zeros", "zeros of inputs[0]", "zeros of inputs[1]"} <= set(found)

    points = special_points((X, MATRIX), wrt=1)
    assert "zeros" in names(points)
    assert all(np.array_equal(point.inputs[0], X) for point in points)
    assert not any(" of " in name for name in names(special_points((X,) * 5)))


def test_keyword_arguments_are_moved_as_well():
    f = ByHand(lambda x, b: np.prod(x) + b, vjp=lambda x, w, b: w * np.prod(x) / x)

    points = special_points(X, kwargs={"b": np.asarray(1.0)})
    assert 0.0 == next(p for p in points if p.name == "zeros of kwargs['b']").kwargs["b"]

    report = examine(f, X, kwargs={"b": 1.0}, points="special")
    assert "at zeros" in report.headline


# ---------------------------------------------------------------- domains


@pytest.mark.parametrize(
    ("domain", "x", "inside", "outside"),
    [
        ("positive", POSITIVE, ["ones", "tiny"], ["zeros", "minus_ones", "zero_entry"]),
        ("nonnegative", POSITIVE, ["zeros", "zero_entry"], ["minus_ones", "minus_40"]),
        ("unit", POSITIVE / 4, ["zeros", "ones"], ["plus_40", "positive_integers", "huge"]),
        ((-2.0, 3.0), X, ["lower_bound", "upper_bound", "zeros"], ["plus_40", "large"]),
        ("symmetric", MATRIX, ["identity", "ones", "rank_deficient"], ["jordan_block"]),
        ("positive definite", MATRIX, ["identity", "repeated_eigenvalues"], ["zeros", "ones"]),
        ("simplex", np.array([0.25, 0.5, 0.25]), [], ["equal_entries", "zeros", "ones"]),
        ("sorted", np.array([1.0, 2.5, 4.0]), ["half_integers"], ["plus_minus_40"]),
        (lambda x: bool(np.all(x != 0)), X, ["ones"], ["zeros", "zero_entry"]),
    ],
)
def test_points_outside_of_the_domain_are_left_out_and_named(domain, x, inside, outside):
    points = special_points(x, domain)

    assert set(inside) <= set(names(points))
    assert set(outside) <= set(points.left_out)
    assert not set(names(points)) & set(points.left_out)


def test_a_domain_may_belong_to_one_input():
    points = special_points((POSITIVE, X), {"inputs[0]": "positive"})

    assert "zeros of inputs[0]" in points.left_out
    assert np.all(next(p for p in points if p.name == "zeros").inputs[1] == 0)
    assert all(np.all(p.inputs[0] > 0) for p in points)


def test_steps_keep_within_the_domain():
    seen = []

    def root(x):
        seen.append(np.min(x))
        return np.sqrt(x)

    report = gradcheck(
        ByHand(root, vjp=lambda x, w: w / (2 * np.sqrt(x))),
        POSITIVE,
        points="special",
        domain="nonnegative",
    )

    assert min(seen) >= 0
    assert "minus_ones" in report.left_out
    assert "left out, outside of the domain: minus_ones" in str(report)


def test_points_outside_of_the_bounds_are_left_out():
    points = special_points(X, bounds=(-2.0, 3.0))

    assert "plus_40" in points.left_out
    assert "zeros" in names(points)


@pytest.mark.parametrize(
    ("domain", "said"),
    [
        ("negative", 'give "positive"'),
        ((3.0, 1.0), "a pair of numbers"),
        ("positive", "outside of its domain"),
        ((5.0, 9.0), "outside of its domain"),
        ({"inputs[3]": "positive"}, "no checked input"),
    ],
)
def test_a_domain_without_meaning_is_an_error(domain, said):
    with pytest.raises(InputError, match="domain") as error:
        examine(ByHand(np.sin, vjp=lambda x, w: w * np.cos(x)), X, points="special", domain=domain)

    assert said in str(error.value)


def test_a_complex_input_has_no_interval_for_a_domain():
    with pytest.raises(InputError, match=r"which is complex(.|\n)*an interval orders real numbers"):
        special_points(X + 1j, "positive")


# ---------------------------------------------------------------- points of one's own, reports

SQUARE = ByHand(np.square, vjp=lambda x, w: w * np.where(x == 5, 0, 2 * x))


@pytest.mark.parametrize(
    ("points", "name"),
    [
        ([X + 1, np.full(3, 5.0)], "points[1]"),
        ([(X,), (np.full(3, 5.0),)], "points[1]"),
        ({"near": X + 0.1, "five": np.full(4, 5.0)}, "five"),
    ],
)
def test_points_of_ones_own_are_checked_by_name(points, name):
    report = examine(SQUARE, X, points=points)

    assert f"at {name}: " in report.headline
    assert 3 == len(report.points)
    assert [name] == [k for k, r in report.points.items() if r.verdict is Verdict.FAIL]


@pytest.mark.parametrize(
    ("points", "error"),
    [
        ("all", InputError),
        (np.zeros(3), InputError),
        ([], InputError),
        ({"given": X}, InputError),
        ([np.asarray([1, 2])], InputError),
    ],
)
def test_points_without_meaning_are_an_error(points, error):
    with pytest.raises(error):
        examine(SQUARE, X, points=points)


@pytest.mark.parametrize("points", [None, [X]])
def test_a_domain_belongs_to_special_points(points):
    with pytest.raises(FlagError, match="domain="):
        examine(SQUARE, X, points=points, domain="positive")


def test_the_report_has_one_report_a_point_and_sums_them():
    rule = ByHand(np.sin, vjp=lambda x, w: w * np.cos(x))

    plain = examine(rule, X, seed=3)
    report = examine(rule, X, points="special", seed=3)

    assert {} == plain.points
    assert report.points["given"] == plain
    for key in ("comparisons", "evaluations", "vjps"):
        assert report.counts[key] == sum(r.counts[key] for r in report.points.values())
    assert {"R": Verdict.PASS} == report.modes
    data = json.loads(json.dumps(report.to_dict()))
    assert set(report.points) == set(data["points"])
    assert "PASS" == data["points"]["zeros"]["verdict"]
    deciding = sum(not r.silent for r in report.points.values())
    assert f"comparisons agree at {deciding} points" in report.headline


def test_the_budget_is_that_of_each_point():
    rule = ByHand(np.sin, vjp=lambda x, w: w * np.cos(x))

    report = examine(rule, X, points=[X + 1, X + 2], max_evaluations=40, seed=3)

    assert all(r.counts["evaluations"] + r.counts["vjps"] <= 40 for r in report.points.values())
    assert report.verdict is Verdict.PASS


def test_modes_and_second_order_are_checked_at_each_point():
    def vjp(x, w):
        return w * 3 * x**2

    def wrong(x, w, u):
        return w * u * np.where(x == 0, 1.0, 6 * x), u * 3 * x**2

    def right(x, w, u):
        return w * u * 6 * x, u * 3 * x**2

    reports = [
        examine(
            ByHand(lambda x: x**3, vjp=vjp, double_vjp=double),
            X,
            modes=["R", "RR"],
            points="special",
        )
        for double in (right, wrong)
    ]

    assert [Verdict.PASS, Verdict.FAIL] == [report.verdict for report in reports], str(reports[0])
    assert Verdict.FAIL is reports[1].modes["RR"]
    assert "at zeros: " in reports[1].headline
