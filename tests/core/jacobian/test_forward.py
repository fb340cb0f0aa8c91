"""Forward mode, alone and beside reverse mode."""

import numpy as np
import pytest
from scenarios import over_seeds

from adjudge import ByHand, NotSupportedError, Status, Verdict, examine, gradcheck

X = np.asarray([[0.3, -1.2], [0.8, 2.0]])
FORWARD = {"check_forward_ad": True, "check_backward_ad": False}
BOTH = {"check_forward_ad": True}


def statuses(report):
    return {finding.status for finding in report.findings}


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_a_right_jvp_passes_alone(xp, mode):
    rule = ByHand(xp.sin, jvp=lambda x, v: v * xp.cos(x))

    report = examine(rule, xp.asarray(X), mode=mode, **FORWARD)

    assert report.verdict is Verdict.PASS
    assert dict(report.modes) == {"F": Verdict.PASS}
    assert report.counts["jvps"] > 0
    assert report.counts["vjps"] == 0


@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize(
    "wrong",
    [
        lambda x, v: -v * np.cos(x),
        lambda x, v: 2 * v * np.cos(x),
        lambda x, v: (v * np.cos(x)).T,
        lambda x, v: 0 * v,
        lambda x, v: None,
        lambda x, v: v * np.cos(x) * np.asarray([[1, 1], [1, 1.01]]),
    ],
)
def test_a_wrong_jvp_fails(mode, wrong):
    report = examine(ByHand(np.sin, jvp=wrong), X, mode=mode, **FORWARD)

    assert report.verdict is Verdict.FAIL


def test_several_inputs_get_their_tangents_after_the_inputs():
    rule = ByHand(lambda a, b: a * b, jvp=lambda a, b, da, db: da * b + a * db)

    report = examine(rule, (X, X + 1), **FORWARD, mode="full")

    assert report.verdict is Verdict.PASS
    assert report.counts["comparisons"] == 4 * 8


ALL_AT_ONCE = {
    "the first one hides the others": lambda x, a, dx, da: (
        dx * np.cos(x) * a if dx.any() else da * np.sin(x)
    ),
    "their product": lambda x, a, dx, da: dx * np.cos(x) * a + da * np.sin(x) + dx * da,
    "right": lambda x, a, dx, da: dx * np.cos(x) * a + da * np.sin(x),
}


@over_seeds(10)
@pytest.mark.parametrize("undefined", [True, False])
@pytest.mark.parametrize("name", ALL_AT_ONCE)
def test_a_jvp_is_right_where_all_inputs_move(name, undefined, seeds):
    """Differences are made of one input at a time."""
    rule = ByHand(lambda x, a: a * np.sin(x), jvp=ALL_AT_ONCE[name])
    right = Verdict.PASS if name == "right" else Verdict.FAIL

    for seed in seeds:
        report = examine(rule, (X, X + 1), check_undefined_grad=undefined, seed=seed, **FORWARD)
        assert report.verdict is right


@over_seeds(10, always=3)
@pytest.mark.parametrize("large", [1e8, 1e9, 1e10])
def test_a_right_jvp_in_which_large_terms_cancel_passes(large, seeds):
    """Its rounding is that of terms which do not depend on x, and so the same at all points beside
    it; and its images of single inputs add up to that of all but for that rounding.
    """

    def push(x, a, dx, da):
        whole = large * (dx + da) + dx * np.cos(x) * a + da * np.sin(x)
        return whole - large * dx - large * da

    def wrong(x, a, dx, da):
        return push(x, a, dx, da) + 1e-2 * dx * (da != 0)

    for rule, right in ((push, Verdict.PASS), (wrong, Verdict.FAIL)):
        by_hand = ByHand(lambda x, a: a * np.sin(x), jvp=rule)
        reports = [examine(by_hand, (X, X + 1), seed=seed, **FORWARD) for seed in seeds]
        assert [report.verdict for report in reports] == [right] * len(seeds)


def test_a_wrong_output_of_a_jvp_stays_wrong_beside_others_with_more_rounding():
    """It is asked for its own rounding once, whatever that of the others is."""
    x = np.linspace(0.2, 1.4, 30)
    large = np.where(np.arange(30) < 20, 1e10, 1e7)

    def push(x, v, error):
        image = (large * v + v * np.cos(x)) - large * v
        image[25] *= 1 + error
        return image

    for error, right in ((0.0, Verdict.PASS), (3e-8, Verdict.FAIL)):
        rule = ByHand(np.sin, jvp=lambda x, v, error=error: push(x, v, error))
        reports = [
            examine(rule, (x,), mode="projected", seed=seed, **FORWARD) for seed in range(10)
        ]
        assert [report.verdict for report in reports] == [right] * 10


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_both_modes_pass_together(mode):
    rule = ByHand(np.sin, vjp=lambda x, w: w * np.cos(x), jvp=lambda x, v: v * np.cos(x))

    report = examine(rule, X, mode=mode, **BOTH)

    assert {"F": Verdict.PASS, "R": Verdict.PASS} == dict(report.modes)


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_modes_that_disagree_are_inconsistent_and_the_wrong_one_fails(mode):
    rule = ByHand(np.sin, vjp=lambda x, w: w * np.cos(x), jvp=lambda x, v: v * np.cos(x) * 1.01)

    report = examine(rule, X, mode=mode, **BOTH)

    assert {"F": Verdict.FAIL, "R": Verdict.PASS} == dict(report.modes)
    assert Status.INCONSISTENT in statuses(report)


def test_a_small_difference_is_found_between_the_modes_too():
    rule = ByHand(
        np.sin, vjp=lambda x, w: w * np.cos(x), jvp=lambda x, v: v * np.cos(x) * (1 + 1e-7)
    )

    report = examine(rule, X, **BOTH, mode="full")

    assert Status.INCONSISTENT in statuses(report)
    assert report.verdict is Verdict.FAIL


def test_a_jvp_that_is_not_linear_in_its_tangent_is_nonlinear():
    rule = ByHand(np.sin, jvp=lambda x, v: np.abs(v) * np.cos(x))

    report = examine(rule, X, **FORWARD)

    assert Status.NONLINEAR in statuses(report)


def test_a_jvp_whose_result_depends_on_a_hidden_state_is_nondeterministic():
    state = iter(range(1000))
    rule = ByHand(np.sin, jvp=lambda x, v: v * np.cos(x) * (1 + 1e-12 * next(state)))

    strict = examine(rule, X, **FORWARD)
    loose = examine(rule, X, nondet_tol=1e-6, **FORWARD)

    assert Status.NONDETERMINISTIC in statuses(strict)
    assert loose.verdict is Verdict.PASS


def test_a_rule_without_the_mode_asked_for_is_unsupported_and_no_pass():
    only_vjp = ByHand(np.sin, vjp=lambda x, w: w * np.cos(x))
    only_jvp = ByHand(np.sin, jvp=lambda x, v: v * np.cos(x))

    forward = examine(only_vjp, X, **FORWARD)
    reverse = examine(only_jvp, X, modes=["R"])

    for report in (forward, reverse):
        assert Verdict.INCONCLUSIVE is report.verdict
        assert {Status.UNSUPPORTED} == statuses(report)
        assert isinstance(report.findings[0].cause, NotSupportedError)


def test_one_mode_supported_and_one_not_says_so_for_each():
    rule = ByHand(np.sin, vjp=lambda x, w: w * np.cos(x))

    report = examine(rule, X, **BOTH)

    assert {"R": Verdict.PASS, "F": Status.UNSUPPORTED} == dict(report.modes)
    assert "forward mode (jvp) is not supported" in report.findings[0].detail.found


def test_the_words_of_modes_choose_the_mode():
    rule = ByHand(np.sin, vjp=lambda x, w: w * np.cos(x), jvp=lambda x, v: v * np.cos(x))

    report = examine(rule, X, modes=["F"])

    assert {"F": Verdict.PASS} == dict(report.modes)


def test_batching_is_unsupported_by_hand_and_no_pass():
    rule = ByHand(np.sin, vjp=lambda x, w: w * np.cos(x))

    report = examine(rule, X, check_batched_grad=True)

    assert Verdict.INCONCLUSIVE is report.verdict
    assert {Status.UNSUPPORTED} == statuses(report)


def test_a_jvp_of_the_wrong_shape_is_refused():
    rule = ByHand(lambda x: x.sum(axis=0), jvp=lambda x, v: v)

    with pytest.raises(ValueError, match=r"jvp of ByHand.* returned shape \(2, 2\) for out,"):
        gradcheck(rule, X, **FORWARD)


def test_an_f_that_writes_into_its_input_is_found_without_reverse_mode():
    def forward(x):
        y = np.sin(x)
        x += 1
        return y

    report = examine(ByHand(forward, jvp=lambda x, v: v * np.cos(x)), X, **FORWARD)

    assert Status.MUTATES_INPUT in statuses(report)
