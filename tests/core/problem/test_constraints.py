"""Inputs that live on a set: conventions outside of it pass, errors along it fail."""

import numpy as np
import pytest
from scenarios import long
from sets import (
    SEED,
    adjoint,
    matrix,
    orthogonal,
    positive_definite,
    simplex,
    sphere,
    symmetric,
)

from adjudge import ByHand, Status, Verdict, examine
from adjudge.engine.registry import backend_of
from adjudge.findings import Disagreement
from adjudge.problem.charts import SETS
from adjudge.problem.constraints import charts_of
from adjudge.problem.space import Space

POINTS = {
    "symmetric": [symmetric(), symmetric("complex"), np.stack([symmetric(), symmetric()])],
    "positive definite": [
        positive_definite(),
        positive_definite("complex"),
        positive_definite(condition=1e5),
    ],
    "simplex": [simplex(), np.asarray([0.5, 0.0, 0.5, 0.0]), simplex(n=100)[0]],
    "sphere": [sphere(), sphere("complex"), np.eye(4)[1]],
    "orthogonal": [
        orthogonal(),
        orthogonal(n=5, m=5),
        adjoint(orthogonal()),
        orthogonal("complex", 4, 4),
        np.eye(3)[[1, 0, 2]],
        np.asarray([[6e-17, -1.0], [1.0, 6e-17]]),
    ],
    "sorted": [
        np.sort(matrix((3, 7))),
        np.asarray([3.0, 2.0, 1.0, 0.9]),
        np.asarray([1.0, 2.0, 2.0, 2.0, 3.0, 3.0 + 1e-9, 4.0]),
        np.asarray([4.0, 4.0, 3.0, 3.0 - 1e-16, -1.0, -1.0, -1.0]),
    ],
    "positive": [np.exp(matrix((6,))), np.asarray([0.0, 1e-9, 1.0])],
}
CASES = [(name, k) for name, points in POINTS.items() for k in range(len(points))]


def leaves_the_set(name, point, x):
    """How far a point is off the set, on a scale on which rounding is 1e-13."""
    if name in ("symmetric", "positive definite"):
        if np.any(point != adjoint(point)):
            return np.inf
        if name == "positive definite":
            least = np.linalg.eigvalsh(x)[..., 0]
            return float(np.max(np.maximum(0, 0.45 * least - np.linalg.eigvalsh(point)[..., 0])))
        return 0.0
    if name == "simplex":
        bad = np.any(point < 0) or np.any((point == 0) & (x > 0))
        return np.inf if bad else float(np.max(np.abs(point.sum(-1) - 1)))
    if name == "sphere":
        return float(np.max(np.abs((np.abs(point) ** 2).sum(-1) - 1)))
    if name == "orthogonal":
        wide = point.shape[-2] < point.shape[-1]
        gram = point @ adjoint(point) if wide else adjoint(point) @ point
        return float(np.max(np.abs(gram - np.eye(gram.shape[-1]))))
    if name == "sorted":
        steps = np.diff(point, axis=-1)
        return 0.0 if np.all(steps >= 0) or np.all(steps <= 0) else np.inf
    bad = np.any(point < 0) or np.any((point == 0) & (x > 0))
    return np.inf if bad else 0.0


def wave(error=None):
    """`sin(2 x) + x^2 / 2` entry by entry, with an error in its derivative, and its points."""
    points = []
    spoiled = error or (lambda x, g: g)

    def forward(x):
        points.append(np.array(x))
        return np.sin(2 * x) + x * x / 2

    def slope(x):
        return 2 * np.cos(2 * x) + x

    rule = ByHand(
        forward,
        vjp=lambda x, w: spoiled(x, w * np.conj(slope(x))),
        jvp=lambda x, v: slope(x) * spoiled(x, v),
    )
    return rule, points


# ---------------------------------------------------------------- charts


def chart_at(name, x):
    engine = backend_of(x, "x")
    return charts_of(engine, Space.at(engine, (x,), ["x"])[0], (x,), [SETS[name](x, 2.0**-52)])


def start_of(charts, x):
    start = charts.charts[0].start
    return x.copy() if start is None else start


@pytest.mark.parametrize(("name", "k"), CASES)
def test_a_chart_leads_to_x_and_its_derivative_repeats_itself_there(name, k):
    x = POINTS[name][k]
    charts = chart_at(name, x)
    z = start_of(charts, x)
    v = matrix(x.shape, "complex" if np.iscomplexobj(x) else "real", 5)

    once = charts.push((z,), (v,))[0]

    assert np.max(np.abs(charts.value((z,))[0] - x)) <= 1e-15 * np.max(np.abs(x)) * 8
    if name != "sorted":  # of ties the first entry moves all
        assert np.allclose(charts.push((z,), (once,))[0], once, atol=1e-12)


@pytest.mark.parametrize(("name", "k"), [c for c in CASES if c[0] != "positive"])
def test_the_derivatives_of_a_chart_are_right_at_x_and_beside_it(name, k):
    x = POINTS[name][k]
    charts = chart_at(name, x)
    z = start_of(charts, x)
    chart = ByHand(
        lambda z: charts.value((z,))[0],
        vjp=lambda z, w: charts.pull((z,), (w,))[0],
        jvp=lambda z, v: charts.push((z,), (v,))[0],
    )
    beside = z + 0.01 * matrix(x.shape, seed=6) / np.sqrt(x.size)

    for at in (z, beside):
        report = examine(chart, at, modes=["R", "F"], mode="full", seed=SEED)
        # across the set a chart leaves x by a high order, as a tail does
        doubts = [f.detail for f in report.findings if f.verdict is not Verdict.PASS]
        zeros = all(isinstance(d, Disagreement) and d.first.automatic == 0 for d in doubts)
        assert report.verdict is Verdict.PASS or (name == "orthogonal" and zeros), str(report)
        assert report.verdict is not Verdict.FAIL, str(report)


# ---------------------------------------------------------------- no evaluation leaves the set


@pytest.mark.parametrize("mode", ["projected", "full"])
@pytest.mark.parametrize(("name", "k"), CASES)
def test_no_evaluation_leaves_the_set_and_a_right_derivative_passes(name, k, mode):
    x = POINTS[name][k]
    rule, points = wave()

    report = examine(rule, x, directions=name, modes=["R", "F"], mode=mode, seed=SEED)

    assert report.verdict is Verdict.PASS, str(report)
    assert len(points) > 2
    assert max(leaves_the_set(name, point, x) for point in points) <= 1e-12


@pytest.mark.parametrize(("name", "k"), CASES)
def test_no_evaluation_leaves_the_set_where_the_derivative_is_wrong_or_f_has_a_kink(name, k):
    x = POINTS[name][k]
    wrong, points = wave(lambda x, g: 1.5 * g)
    middle = x.reshape(-1)[-1]

    def forward(x):
        points.append(np.array(x))
        return np.abs(x - middle)

    def sign(x):
        d = x - middle
        return np.where(d == 0, 0, d / np.where(d == 0, 1, np.abs(d)))

    kinked = ByHand(
        forward,
        vjp=lambda x, w: np.asarray(np.real(w) * sign(x)).astype(x.dtype),
    )

    report = examine(wrong, x, directions=name, seed=SEED)
    examine(kinked, x, directions=name, seed=SEED)

    assert report.verdict is Verdict.FAIL, str(report)
    assert max(leaves_the_set(name, point, x) for point in points) <= 1e-12


# ---------------------------------------------------------------- conventions, and planted errors


def normal(name, x):
    """A part of a gradient that no tangent of the set sees."""
    if name in ("symmetric", "positive definite"):
        a = matrix(x.shape, "complex" if np.iscomplexobj(x) else "real", 9)
        return a - adjoint(a)
    if name == "simplex":
        return np.broadcast_to(matrix((*x.shape[:-1], 1), seed=9), x.shape)
    if name == "sphere":
        return matrix((*x.shape[:-1], 1), seed=9) * x
    a = matrix((min(x.shape),) * 2, "complex" if np.iscomplexobj(x) else "real", 9)
    a = a + adjoint(a)
    return x @ a if x.shape[0] >= x.shape[1] else a @ x


CURVED = [c for c in CASES if c[0] not in ("sorted", "positive")]


@pytest.mark.parametrize(("name", "k"), CURVED)
def test_a_convention_outside_of_the_set_fails_without_directions_and_passes_with(name, k):
    x = POINTS[name][k]
    rule, _ = wave()
    loose = ByHand(rule, vjp=lambda x, w: rule.vjp(x, w) + normal(name, x))
    total = ByHand(
        lambda x: np.asarray(np.sum(np.real(rule(x)))),
        vjp=lambda x, w: w * loose.vjp(x, np.ones_like(x)),
    )

    bare = examine(total, x, seed=SEED, bounds=None)
    report = examine(total, x, directions=name, seed=SEED)

    assert bare.verdict is Verdict.FAIL, str(bare)
    assert report.verdict is Verdict.PASS, str(report)


ERRORS = {
    "sign": lambda x, g: -g,
    "factor": lambda x, g: 2 * g,
    "one part in a million": lambda x, g: g * (1 + 1e-6),
    "one part in ten thousand": lambda x, g: g * (1 + 1e-4),
    "one entry": lambda x, g: g + spike(g),
    "zero": lambda x, g: 0 * g,
}


def spike(g):
    one = np.zeros_like(g)
    one.reshape(-1)[0] = 0.3 * g.reshape(-1)[0]
    return one


def resolved(case, error):
    """Differences to one side of ties see a millionth only if it does not cancel."""
    return case[0] != "sorted" or case[1] < 2 or error != "one part in a million"


HARDEST = ("one part in a million", "one entry", "zero")
"""What the further points of a set are tried with in turn; its first point has all of them, and
with `--long` every error.
"""


@pytest.mark.parametrize(
    ("name", "k", "error"),
    [
        (*case, error) if error in HARDEST or case[0] == "symmetric" else long(*case, error)
        for case in CASES
        for error in (HARDEST[case[1] % 3 :][:1] if case[1] else ERRORS)
        if resolved(case, error)
    ],
)
def test_an_error_along_the_set_fails(name, k, error):
    x = POINTS[name][k]
    rule, _ = wave(ERRORS[error])

    small = name == "sorted" and "ten" in error  # may cancel along one tangent of one side
    report = examine(
        rule, x, directions=name, modes=["R", "F"], mode="full" if small else "auto", seed=SEED
    )

    assert report.modes == {"R": Verdict.FAIL, "F": Verdict.FAIL}, str(report)


def test_an_ill_conditioned_matrix_stays_positive_definite_and_is_judged():
    x = positive_definite(condition=1e8)
    for error, verdict in ((1.0, Verdict.PASS), (1.001, Verdict.FAIL)):
        rule, points = wave(lambda x, g, error=error: error * g)

        report = examine(rule, x, directions="positive definite", seed=SEED)

        assert report.verdict is verdict, str(report)
        assert max(leaves_the_set("positive definite", point, x) for point in points) == 0


def test_a_transposed_gradient_fails_where_the_transpose_is_along_the_set():
    q = orthogonal(n=4, m=4)
    rule, _ = wave(lambda x, g: g.T)
    assert examine(rule, q, directions="orthogonal", seed=SEED).verdict is Verdict.FAIL
    h = symmetric("complex", 4)
    rule, _ = wave(lambda x, g: g.T)
    assert examine(rule, h, directions="symmetric", seed=SEED).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("name", "k"), [long(*c) if c[1] else c for c in CASES if c[0] != "sorted"]
)
def test_the_message_of_one_wrong_entry_names_it(name, k):
    x = POINTS[name][k]
    rule, _ = wave(lambda x, g: g + spike(g))
    entry = ", ".join(str(i) for i in np.unravel_index(0, x.shape))

    report = examine(rule, x, directions=name, mode="full", seed=SEED)

    assert any(f"inputs[0][{entry}]" in e.wrt for e in report.entries) or (
        f"inputs[0][{entry}]" in str(report)
    ), str(report)


def test_the_report_says_along_which_sets_it_was_checked():
    rule = ByHand(lambda a, p, b: a.sum() + p.sum() * b, vjp=lambda a, p, b, w: (
        w * np.ones_like(a), w * b * np.ones_like(p), w * p.sum()))  # fmt: skip
    inputs = (symmetric(n=3), np.asarray([0.25, 0.75]), np.asarray(2.0))

    report = examine(rule, inputs, directions={0: "symmetric", "inputs[1]": "simplex"}, seed=SEED)

    assert report.verdict is Verdict.PASS, str(report)
    assert "inputs[0] along symmetric matrices, inputs[1] along the simplex" in report.footer
    assert "inputs[2] along" not in str(report)
    assert "along" not in str(examine(rule, inputs, seed=SEED))


# ---------------------------------------------------------------- other namespaces and dtypes


@pytest.mark.parametrize("name", SETS)
def test_the_charts_are_written_in_the_array_api(name, strictest):
    xp, x = strictest, POINTS[name][-1 if name == "sorted" else 0]
    for error, verdict in ((0.0, Verdict.PASS), (0.01, Verdict.FAIL)):
        rule = ByHand(
            lambda x: xp.sin(x),
            vjp=lambda x, w, error=error: w * xp.cos(x) * (1 + error),
            jvp=lambda x, v, error=error: v * xp.cos(x) * (1 + error),
        )

        report = examine(rule, xp.asarray(x), directions=name, modes=["R", "F"], seed=SEED)

        assert report.verdict is verdict, str(report)


@pytest.mark.parametrize("in_double", [None, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("name", SETS)
def test_narrow_points_are_on_the_set_as_far_as_their_dtype_goes(name, dtype, in_double):
    x = POINTS[name][0].astype(dtype)
    for error, verdict in ((0.0, Verdict.PASS), (0.5, Verdict.FAIL)):
        rule, _ = wave(lambda x, g, error=error: (g * (1 + error)).astype(x.dtype))
        modes = ["R", "F"]

        report = examine(rule, x, directions=name, modes=modes, seed=SEED, in_double=in_double)

        if dtype is np.float16 and in_double is False:  # steps of sixteen bits may have no room
            assert report.verdict in (verdict, Verdict.INCONCLUSIVE), str(report)
        else:
            assert report.verdict is verdict, str(report)


@pytest.mark.parametrize(
    ("rule", "lacks"),
    [
        (ByHand(np.sin, jvp=lambda x, v: v * np.cos(x)), "R"),
        (ByHand(np.sin, vjp=lambda x, w: w * np.cos(x)), "RR"),
    ],
)
def test_what_a_rule_by_hand_lacks_is_unsupported_along_a_set_as_well(rule, lacks):
    given = "F" if lacks == "R" else "R"

    report = examine(rule, np.asarray([0.6, 0.8]), directions="sphere", modes=[given, lacks])

    assert {given: Verdict.PASS, lacks: Status.UNSUPPORTED} == report.modes
