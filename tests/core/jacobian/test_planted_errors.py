"""The full Jacobian of `tanh(A @ X + b)`: right passes, and each planted error fails."""

import numpy as np
import pytest

from adjudge import ByHand, GradcheckError, InputError, Status, Verdict, examine, gradcheck


def point(xp):
    random = np.random.default_rng(0)
    return tuple(xp.asarray(random.normal(size=shape)) for shape in ((3, 3), (3, 3), (3, 1)))


def layer(xp):
    return lambda A, X, b: xp.tanh(A @ X + b)


def gradients(xp, A, X, b, w):
    slope = w * (1 - xp.tanh(A @ X + b) ** 2)
    transposed = xp.matrix_transpose
    return slope @ transposed(X), transposed(A) @ slope, xp.sum(slope, axis=1, keepdims=True)


def one_entry(xp, g):
    g = xp.asarray(g, copy=True)
    g[1, 0] = 1.001 * g[1, 0]
    return g


def dropped_row(xp, g):
    g = xp.asarray(g, copy=True)
    g[2, :] = 0.0
    return g


# what is done to the gradients of A, X and b
ERRORS = {
    "sign": lambda xp, A, X, b: (-A, X, b),
    "factor two": lambda xp, A, X, b: (A, 2 * X, b),
    "one entry": lambda xp, A, X, b: (one_entry(xp, A), X, b),
    "transpose": lambda xp, A, X, b: (xp.matrix_transpose(A), X, b),
    "dropped row": lambda xp, A, X, b: (A, dropped_row(xp, X), b),
    "mean instead of sum": lambda xp, A, X, b: (A, X, b / 3),
    "one part in a million": lambda xp, A, X, b: (A, X, (1 + 1e-6) * b),
    "zero": lambda xp, A, X, b: (A, xp.zeros_like(X), b),
    "absent": lambda xp, A, X, b: (A, X, None),
    "two gradients exchanged": lambda xp, A, X, b: (X, A, b),
    "NaN": lambda xp, A, X, b: (A * xp.nan, X, b),
}


def test_the_right_gradient_passes(xp):
    rule = ByHand(layer(xp), vjp=lambda A, X, b, w: gradients(xp, A, X, b, w))

    report = gradcheck(rule, point(xp), mode="full", seed=0)

    assert report.verdict is Verdict.PASS
    assert report.counts["comparisons"] == 9 * (9 + 9 + 3)
    assert not report.findings


def planted(xp, error):
    return ByHand(layer(xp), vjp=lambda A, X, b, w: ERRORS[error](xp, *gradients(xp, A, X, b, w)))


@pytest.mark.parametrize("error", ERRORS)
def test_a_planted_error_fails(error):
    report = examine(planted(np, error), point(np), mode="full", seed=0)

    assert report.verdict is Verdict.FAIL
    assert report.counts["failed"] > 0


@pytest.mark.parametrize("error", ["one entry", "absent"])
def test_a_planted_error_fails_on_arrays_of_every_namespace(xp, error):
    """What is compared is NumPy's; a namespace makes and takes the arrays."""
    report = examine(planted(xp, error), point(xp), mode="full", seed=0)

    assert report.verdict is Verdict.FAIL
    assert report.counts["failed"] > 0


def test_the_one_wrong_entry_is_named_and_its_neighbours_are_not():
    rule = ByHand(
        layer(np),
        vjp=lambda A, X, b, w: ERRORS["one entry"](np, *gradients(np, A, X, b, w)),
    )

    report = examine(rule, point(np), mode="full", seed=0)

    assert {entry.wrt for entry in report.entries} == {"inputs[0][1, 0]"}
    assert report.counts["failed"] == 3  # the outputs out[1, :] depend on A[1, 0]
    assert "inputs[0][1, 0]" in report.headline


def test_a_gradient_without_the_sum_over_a_broadcast_axis_is_refused():
    def without_sum(A, X, b, w):
        of_A, of_X, _ = gradients(np, A, X, b, w)
        return of_A, of_X, w * (1 - np.tanh(A @ X + b) ** 2)

    with pytest.raises(InputError) as caught:
        gradcheck(ByHand(layer(np), vjp=without_sum), point(np))

    assert "returned shape (3, 3) for inputs[2], which has shape (3, 1)" in caught.value.found
    assert "sum over broadcast axes" in caught.value.remedy


def test_a_value_that_is_stale_since_the_previous_check_fails():
    kept = {}

    def forward(x):
        kept.setdefault("y", np.exp(x))
        return np.exp(x)

    rule = ByHand(forward, vjp=lambda x, w: w * kept["y"])
    first = examine(rule, np.asarray([0.5, 1.0]))

    second = examine(rule, np.asarray([0.7, -1.0]))

    assert first.verdict is Verdict.PASS
    assert second.verdict is Verdict.FAIL


def test_a_value_saved_by_the_last_evaluation_is_right_at_x():
    kept = {}

    def forward(x):
        kept["y"] = np.exp(x)
        return kept["y"]

    report = examine(
        ByHand(forward, vjp=lambda x, w: w * kept["y"]), np.asarray([0.5, 1.0]), mode="full"
    )

    assert report.verdict is Verdict.PASS


@pytest.mark.parametrize("n", [1, 2, 5, 20])
@pytest.mark.parametrize("mode", ["full", "projected", "auto"])
def test_every_size_passes_right_and_fails_wrong(n, mode):
    x = np.linspace(0.5, 2.0, n)

    right = examine(ByHand(np.log, vjp=lambda x, w: w / x), x, mode=mode)
    wrong = examine(ByHand(np.log, vjp=lambda x, w: -w / x), x, mode=mode)

    assert right.verdict is Verdict.PASS
    assert wrong.verdict is Verdict.FAIL


def test_a_gradient_of_none_where_the_function_moves_is_missing():
    rule = ByHand(lambda a, b: a * b, vjp=lambda a, b, w: (w * b, None))

    report = examine(rule, (np.asarray([2.0]), np.asarray([3.0])))

    assert [Status.MISSING] == [finding.status for finding in report.findings]
    assert report.verdict is Verdict.FAIL


@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("missing", [0, 1])
def test_the_first_wrong_input_leads_whether_wrong_or_missing(mode, missing):
    def vjp(a, b, w):
        gradients = [2 * w * b, 2 * w * a]
        gradients[missing] = None
        return tuple(gradients)

    x = np.linspace(1.0, 2.0, 5)
    report = examine(ByHand(lambda a, b: a * b, vjp=vjp), (x, x + 0.1), mode=mode)

    first, second = (finding.detail.first for finding in report.findings)
    statuses = [finding.status for finding in report.findings]
    assert statuses == [Status.MISSING, Status.MISMATCH][:: 1 - 2 * missing]
    assert [first.input, second.input] == ["inputs[0]", "inputs[1]"]
    wrong = second if missing == 0 else first
    assert not wrong.projected  # the entry itself was found, also behind a missing leaf
    assert "detach" in str(report)


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_a_gradient_where_the_function_does_not_move_is_spurious(mode):
    rule = ByHand(lambda a, b: a * 1.0, vjp=lambda a, b, w: (w, w))

    report = examine(rule, (np.asarray([2.0, 1.0]), np.asarray([3.0, 4.0])), mode=mode)

    assert Status.SPURIOUS in [finding.status for finding in report.findings]
    assert report.verdict is Verdict.FAIL


def test_a_zero_gradient_where_the_function_does_not_move_passes():
    rule = ByHand(lambda a, b: a * 1.0, vjp=lambda a, b, w: (w, 0 * w))

    report = examine(rule, (np.asarray([2.0, 1.0]), np.asarray([3.0, 4.0])))

    assert report.verdict is Verdict.PASS


def test_a_constant_function_with_no_gradient_passes():
    rule = ByHand(lambda x: np.ones(2), vjp=lambda x, w: None)

    report = examine(rule, np.asarray([2.0, 1.0]))

    assert report.verdict is Verdict.PASS
    assert report.counts["comparisons"] == 4


def test_the_verb_for_tests_raises_where_examine_returns():
    rule = ByHand(np.sin, vjp=lambda x, w: 2 * w * np.cos(x))

    report = examine(rule, np.asarray([0.3]), seed=1)
    with pytest.raises(GradcheckError) as caught:
        gradcheck(rule, np.asarray([0.3]), seed=1)

    assert str(report) == str(caught.value.report)
