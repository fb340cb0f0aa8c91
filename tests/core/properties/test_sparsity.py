"""Which outputs move against where the derivative is zero: triangles, batches, absent entries."""

import numpy as np
import pytest

from adjudge import ByHand, Status, Verdict, examine
from adjudge.findings import NothingRead, Remedy, RowLeaks
from adjudge.report import text_of

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(6, 3))
SQUARE = RANDOM.normal(size=(4, 4))
POSITIVE = SQUARE @ SQUARE.T + 4 * np.eye(4)


def check(rule, x, **options):
    return examine(rule, x, modes=["R"], seed=1, mode="projected", **options)


def statuses(report):
    return [finding.status for finding in report.findings]


# -- triangles


def of_factor(a, w):
    """The gradient of a Cholesky factor in the lower triangle, and symmetrised."""
    factor = np.linalg.cholesky(a)
    inner = np.tril(factor.T @ np.tril(w))
    inner[np.diag_indices(4)] /= 2
    inverse = np.linalg.inv(factor)
    both = inverse.T @ inner @ inverse
    both = both + both.T
    lower = np.tril(both)
    lower[np.diag_indices(4)] /= 2
    return lower, both / 2


def test_a_symmetrised_gradient_reaches_into_the_triangle_that_is_not_read():
    report = check(ByHand(np.linalg.cholesky, vjp=lambda a, w: of_factor(a, w)[1]), POSITIVE)
    finding = report.findings[0]

    assert finding.status is Status.SPURIOUS
    assert "the strict upper triangle of inputs[0]: 6 of 16 entries" in text_of(finding)
    assert finding.remedy is Remedy.ZERO_GRADIENT_OR_CHECK_SYMMETRIC
    assert report.modes["R"] is Verdict.FAIL


def test_a_gradient_in_the_triangle_that_is_read_passes():
    assert check(ByHand(np.linalg.cholesky, vjp=lambda a, w: of_factor(a, w)[0]), POSITIVE)


@pytest.mark.parametrize(("name", "triangle"), [("lower", np.triu), ("upper", np.tril)])
def test_the_triangle_is_named_in_every_matrix_of_a_batch(name, triangle):
    x = RANDOM.normal(size=(2, 3, 3))
    k = 1 if name == "upper" else -1
    spurious = np.tril(np.ones((3, 3)), k) if name == "lower" else np.triu(np.ones((3, 3)), k)

    def rule(leak):
        return ByHand(
            lambda x: np.sin(triangle(x)),
            vjp=lambda x, w: triangle(np.cos(x) * w) + leak * spurious * w,
        )

    report = check(rule(1e-9), x)

    assert {Status.SPURIOUS} == set(statuses(report))
    assert f"the strict {name} triangle of inputs[0]: 6 of 18 entries" in str(report)
    assert "directions=" not in str(report)
    assert check(rule(0.0), x)


def test_complex_matrices_have_entries_not_coordinates():
    z = SQUARE + 1j * SQUARE.T

    def rule(leak):
        return ByHand(lambda z: np.tril(z), vjp=lambda z, w: np.tril(w) + leak * np.triu(w, 1))

    report = check(rule(1.0), z)

    assert report.findings[0].status is Status.SPURIOUS
    assert (6, 16) == (report.findings[0].detail.count, report.findings[0].detail.entries)
    assert check(rule(0.0), z)


STANDS_STILL = {
    "rounded, straight through": (lambda x: np.round(x) + 0 * x, lambda x, w: w),
    "buried under a constant": (lambda x: 1e18 + x, lambda x, w: w),
    "in part below the rounding": (
        lambda x: 1e6 + np.tril(x) + 1e-13 * np.triu(x, 1),
        lambda x, w: np.tril(w) + 1e-13 * np.triu(w, 1),
    ),
    "saturated": (lambda x: 1 / (1 + np.exp(-x)), lambda x, w: w * np.exp(-x)),
}


@pytest.mark.parametrize("name", STANDS_STILL)
def test_what_moves_at_some_length_or_not_visibly_is_not_unread(name):
    f, vjp = STANDS_STILL[name]

    report = check(ByHand(f, vjp=vjp), 40 + SQUARE)

    assert not [f for f in report.findings if isinstance(f.detail, NothingRead | RowLeaks)]


def test_a_cached_function_reads_nothing_and_is_not_called_wrong_for_it():
    kept = np.sin(SQUARE)

    report = check(ByHand(lambda x: kept, vjp=lambda x, w: np.cos(x) * w), SQUARE)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert not [f for f in report.findings if isinstance(f.detail, NothingRead | RowLeaks)]


def test_without_structure_nothing_is_said_of_blocks():
    rule = ByHand(np.linalg.cholesky, vjp=lambda a, w: of_factor(a, w)[1])

    report = examine(rule, POSITIVE, seed=1, mode="projected")

    assert Status.SPURIOUS not in statuses(report)


# -- batches


@pytest.mark.parametrize("size", [1e-10, 1e-3])
def test_a_gradient_that_leaks_between_rows_is_spurious(size):
    report = check(ByHand(np.sin, vjp=lambda x, w: np.cos(x) * w + size * w.mean(axis=0)), X)
    finding = next(f for f in report.findings if f.status is Status.SPURIOUS)

    assert isinstance(finding.detail, RowLeaks)
    assert "leak into the gradient of inputs[0][" in text_of(finding)
    assert report.modes["R"] is Verdict.FAIL


def test_rows_that_do_depend_on_one_another_are_no_leak():
    centred = ByHand(
        lambda x: np.sin(x - x.mean(axis=0)),
        vjp=lambda x, w: (g := np.cos(x - x.mean(axis=0)) * w) - g.mean(axis=0),
    )
    running = ByHand(
        lambda x: np.cumsum(np.sin(x), axis=0),
        vjp=lambda x, w: np.cos(x) * np.cumsum(w[::-1], axis=0)[::-1],
    )

    assert check(centred, X)
    assert check(running, X)
    assert check(ByHand(np.sin, vjp=lambda x, w: np.cos(x) * w), X)


def test_rows_that_depend_on_one_another_without_a_derivative_are_missing():
    weak = 1e-9

    def f(x):
        return np.sin(x) + weak * np.sin(x).mean(axis=0)

    right = ByHand(f, vjp=lambda x, w: np.cos(x) * (w + weak * w.mean(axis=0)))
    wrong = ByHand(f, vjp=lambda x, w: np.cos(x) * (1 + weak / 6) * w)

    report = check(wrong, X)

    assert [Status.MISSING] == statuses(report)
    assert "other rows of the output depend on inputs[0][" in str(report)
    assert check(right, X)


def test_outputs_of_another_length_are_no_batch():
    rule = ByHand(lambda x: np.sin(x).sum(axis=0), vjp=lambda x, w: np.cos(x) * w)

    assert check(rule, X)


# -- entries without a derivative

SMALL = 1e-9 * np.asarray([1.5, -0.7, 2.0])


def mixed(forget):
    """Large terms, and small ones whose derivative may be forgotten."""

    def f(x):
        return np.append(np.sin(x[:12]), np.sin(x[0]) + SMALL @ np.sin(x[12:]))

    def vjp(x, w):
        g = np.cos(x) * np.append(w[:12], w[12] * SMALL * (not forget))
        g[0] += w[12] * np.cos(x[0])
        return g

    return ByHand(f, vjp=vjp)


def test_a_small_derivative_that_is_forgotten_is_found_by_itself():
    x = RANDOM.normal(size=15)

    report = check(mixed(forget=True), x)

    assert [Status.MISMATCH] == statuses(report)
    assert "automatic 0" in report.headline
    assert report.findings[0].entry.split("inputs[0]")[1] in ("[12]", "[13]", "[14]")
    assert check(mixed(forget=False), x)
    for seed in range(5):  # and where it is taken together with the others
        assert not examine(mixed(forget=True), x, seed=seed, blame=False)


def test_entries_that_f_does_not_read_and_has_no_derivative_in_pass():
    rule = ByHand(lambda x: np.sin(x[:5]), vjp=lambda x, w: np.append(np.cos(x[:5]) * w, x[5:] * 0))

    assert check(rule, RANDOM.normal(size=12))


def test_dead_units_are_not_missing():
    x = RANDOM.normal(size=12)

    assert check(
        ByHand(lambda x: np.maximum(x, 0) ** 2, vjp=lambda x, w: 2 * np.maximum(x, 0) * w), x
    )


def test_structure_costs_a_few_evaluations_a_leaf():
    rule = ByHand(
        lambda a, b: np.sin(a) + np.cos(b),
        vjp=lambda a, b, w: (np.cos(a) * w, -np.sin(b) * w),
    )
    x = SQUARE, SQUARE.T

    plain = examine(rule, x, seed=1, mode="projected").counts
    more = check(rule, x).counts

    # In the plain check both leaves share one tangent.
    assert more["evaluations"] - plain["evaluations"] <= 4 * 2 + 2
    assert more["vjps"] - plain["vjps"] <= 2 * 2
