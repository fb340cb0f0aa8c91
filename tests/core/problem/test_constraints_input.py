"""`directions=`: what it refuses, charts of one's own, and the second order by hand."""

import numpy as np
import pytest
from sets import SEED, matrix, orthogonal, symmetric

from adjudge import ByHand, InputError, NotSupportedError, Verdict, examine, gradgradcheck
from adjudge.errors import FlagError
from adjudge.problem.charts import SETS


def wave(factor=1.0):
    """`sin(2 x) + x^2 / 2` with a derivative off by a factor, and the points it was called at."""
    points = []

    def forward(x):
        points.append(np.array(x))
        return np.sin(2 * x) + x * x / 2

    def slope(x):
        return factor * (2 * np.cos(2 * x) + x)

    rule = ByHand(forward, vjp=lambda x, w: w * np.conj(slope(x)), jvp=lambda x, v: v * slope(x))
    return rule, points


# ---------------------------------------------------------------- bad input

OFF = {
    "symmetric": [
        (matrix((3, 3)), "differs from its transpose by up to"),
        (matrix((3, 3), kind="complex"), "differs from its conjugate transpose"),
        (matrix((3, 2)), "has the shape (3, 2)"),
        (matrix((3,)), "has the shape (3,)"),
        (np.full((2, 2), np.nan), "is not finite"),
    ],
    "positive definite": [
        (-np.eye(3), "has the eigenvalue -1"),
        (np.ones((2, 2)), "has the eigenvalue"),
        (matrix((3, 3)), "differs from its transpose"),
    ],
    "simplex": [
        (np.asarray([0.5, 0.6]), "sums to 1.1 along its last axis"),
        (np.asarray([1.5, -0.5]), "has the entry -0.5"),
        (np.asarray(1.0), "has the shape ()"),
        (np.asarray([1.0 + 0j]), "is complex"),
    ],
    "sphere": [(np.asarray([[0.6, 0.8], [3.0, 4.0]]), "has the norm 5 along its last axis")],
    "orthogonal": [
        (2 * np.eye(3), "off the identity by 3"),
        (matrix((3, 2)), "columns that are not orthonormal"),
        (matrix((2, 3)), "rows that are not orthonormal"),
    ],
    "sorted": [
        (np.asarray([1.0, 3.0, 2.0]), "neither ascending nor descending along its last axis"),
        (np.asarray([1j, 2.0]), "is complex"),
    ],
    "positive": [
        (np.asarray([1.0, -0.25]), "has the entry -0.25"),
        (np.asarray([1j]), "is complex"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("name", "k"), [(n, k) for n, of in OFF.items() for k in range(len(of))])
def test_a_point_off_the_set_is_refused_before_anything_runs(name, k):
    x, words = OFF[name][k]
    rule, points = wave()

    with pytest.raises(InputError) as caught:
        examine(rule, x, directions=name)

    first, remedy = str(caught.value).splitlines()
    assert first.startswith("inputs[0] ")
    assert words in first
    assert remedy.strip()
    assert points == []


@pytest.mark.parametrize(
    ("directions", "options", "error", "words"),
    [
        ("round", {}, InputError, "directions='round' for inputs[0] is no set; there are: symm"),
        (7, {}, InputError, "directions=7"),
        ({}, {}, InputError, "names no input"),
        ({1: "positive"}, {}, InputError, "names 1, which is no checked input"),
        ({"inputs[2]": "positive"}, {}, InputError, "which is no checked input"),
        ("positive", {"bounds": (0, 9)}, FlagError, "both bounds= and directions="),
        ({0: "positive"}, {"bounds": {"inputs[0]": (0, 9)}}, FlagError, "for inputs[0]"),
        ({0: "positive", "inputs[0]": "sorted"}, {}, InputError, "names inputs[0] twice"),
        (lambda z: z + 1, {}, InputError, "off it by 1"),
        (lambda z: z[:1], {}, InputError, "of shape (1,)"),
        (lambda z: None, {}, InputError, "returns a NoneType"),
        (lambda z: z.astype(np.float32), {}, InputError, "returns float32, not float64"),
    ],
)
def test_directions_without_meaning_are_refused(directions, options, error, words):
    rule = ByHand(lambda x, n, s: x * 2, vjp=lambda x, n, s, w: (2 * w, None, None))

    with pytest.raises(error) as caught:
        examine(rule, (np.asarray([1.0, 2.0]), np.arange(3), "s"), directions=directions, **options)

    assert words in str(caught.value)


def test_bounds_and_directions_of_different_inputs_go_together():
    seen = []

    def forward(x, y):
        seen.append((x.copy(), y.copy()))
        return x * y

    rule = ByHand(forward, vjp=lambda x, y, w: (w * y, w * x))
    x, y = np.asarray([1.0, 2.0]), np.asarray([0.25, 0.75])

    report = examine(rule, (x, y), bounds={0: (1.0, 2.0)}, directions={1: "simplex"}, seed=SEED)

    assert report.verdict is Verdict.PASS, str(report)
    assert min(point[0].min() for point in seen) >= 1.0
    assert max(abs(point[1].sum() - 1) for point in seen) <= 1e-15


def test_an_empty_array_is_on_every_set():
    rule = ByHand(lambda x, y: y * 2 + x.sum(), vjp=lambda x, y, w: (np.zeros_like(x), 2 * w))

    for name in SETS:
        report = examine(rule, (np.zeros((0, 3)), np.ones(2)), directions={0: name}, seed=SEED)
        assert report.verdict is Verdict.PASS, str(report)


# ---------------------------------------------------------------- a chart of one's own


def circle_chart():
    """The unit circle by its angle, along the first coordinate; the second does nothing."""

    def forward(z):
        angle = z[0] - 0.6 + np.arctan2(0.8, 0.6)
        return np.stack([np.cos(angle), np.sin(angle)])

    def turned(z):
        x = forward(z)
        return np.stack([-x[1], x[0]])

    return ByHand(
        forward,
        vjp=lambda z, w: np.asarray([np.sum(w * turned(z)), 0.0]),
        jvp=lambda z, v: v[0] * turned(z),
    )


def test_a_chart_of_ones_own_has_derivatives_of_its_own():
    x = np.asarray([0.6, 0.8])
    for error, verdict in ((0.0, Verdict.PASS), (0.1, Verdict.FAIL)):
        rule, points = wave(1 + error)

        report = examine(rule, x, directions=circle_chart(), modes=["R", "F"], seed=SEED)

        assert report.verdict is verdict, str(report)
        assert max(abs(np.sum(point**2) - 1) for point in points) <= 1e-14
        assert "inputs[0] along the chart ByHand(forward)" in str(report)


def test_a_chart_without_a_derivative_is_not_enough_for_a_derivative_by_hand():
    rule, _ = wave()

    report = examine(rule, np.asarray([0.6, 0.8]), directions={0: lambda z: z * 1.0}, seed=SEED)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert "give that as a ByHand" in str(report)


# ---------------------------------------------------------------- second order


def cubes(error=0.0, loose=0.0):
    """`x^3` with its second derivative, which has an error and a part that no tangent sees."""
    off = matrix((5, 5), seed=4)
    off = off - off.T
    return ByHand(
        lambda x: x**3,
        vjp=lambda x, w: 3 * x**2 * w,
        double_vjp=lambda x, w, u: (
            (6 + error) * x * w * u + loose * off * np.sum(u),
            3 * x**2 * u,
        ),
    )


def test_the_second_derivative_by_hand_is_checked_along_flat_sets():
    for name, x in (
        ("symmetric", symmetric()),
        ("positive definite", symmetric() @ symmetric() + np.eye(5)),
        ("sorted", np.sort(matrix((5, 5)))),
        ("sorted", np.round(np.sort(matrix((5, 5))))),
        ("positive", np.exp(matrix((5, 5)))),
    ):
        report = gradgradcheck(cubes(), x, directions=name, seed=SEED, raise_exception=False)
        wrong = gradgradcheck(cubes(0.1), x, directions=name, seed=SEED, raise_exception=False)

        assert report.verdict is Verdict.PASS, str(report)
        assert wrong.verdict is Verdict.FAIL, str(wrong)


def test_a_convention_of_the_second_derivative_outside_of_the_set_is_no_failure():
    x = symmetric()

    bare = gradgradcheck(cubes(loose=1.0), x, seed=SEED, raise_exception=False)
    along = gradgradcheck(
        cubes(loose=1.0), x, directions="symmetric", seed=SEED, raise_exception=False
    )

    assert bare.verdict is Verdict.FAIL, str(bare)
    assert along.verdict is Verdict.PASS, str(along)


def test_the_second_derivative_by_hand_along_a_curved_set_is_said_not_to_be_supported():
    report = gradgradcheck(
        cubes(), orthogonal(n=5, m=5), directions="orthogonal", seed=SEED, raise_exception=False
    )

    assert report.verdict is Verdict.INCONCLUSIVE
    assert isinstance(report.ranked[0].cause, NotSupportedError)
    assert "along a curved set" in str(report)
    assert report.modes["R"] is Verdict.PASS
