"""The search for wrong entries and `max_evaluations=` with the vjps and jvps of the engines."""

import numpy as np
import pytest
from frameworks import torch
from scenarios import cells, on_both, over_seeds, torch_function

from adjudge import InputError, Status, Verdict, examine
from adjudge.limits import limited

MODES = [["R"], ["F"], ["R", "F"], ["RR"], ["FR"], ["RF"]]

in_modes = cells("modes", torch=MODES, jax=[*MODES[2:], ["FF"]])


@on_both
@pytest.mark.parametrize("letter", ["R", "F"])
@pytest.mark.parametrize("scalar", [True, False])
def test_two_wrong_entries_of_a_large_input_are_named(
    adjudge_backend, with_vjp, with_jvp, letter, scalar
):
    xp = adjudge_backend.xp
    factors = np.ones(2_000)
    factors[[700, 1_999]] = 2.0
    factors = adjudge_backend.array(factors)
    by_hand = with_vjp if letter == "R" else with_jvp
    wrong = by_hand(xp.sin, lambda x, v: v * xp.cos(x) * factors)
    x = adjudge_backend.array(np.random.default_rng(1).normal(size=2_000))

    report = examine((lambda x: xp.sum(wrong(x))) if scalar else wrong, x, modes=[letter], seed=1)

    named = {entry.wrt for entry in report.entries if not entry.wrt.endswith("direction")}
    assert {"inputs[0][700]", "inputs[0][1999]"} == named, str(report)
    assert report.counts["evaluations"] <= (120 if letter == "R" else 240)


@pytest.fixture
def one_column_at_a_time():
    with limited(densest=0):
        yield


@in_modes
@pytest.mark.usefixtures("one_column_at_a_time")
def test_a_third_of_the_work_compares_a_part(adjudge_backend, modes):
    x, sin = adjudge_backend.array(np.linspace(0.1, 1, 24)), adjudge_backend.xp.sin
    free = examine(sin, x, modes=modes, mode="full", seed=0).counts
    budget = (free["evaluations"] + free["vjps"] + free["jvps"]) // 3

    report = examine(sin, x, modes=modes, mode="full", seed=0, max_evaluations=budget)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert {Status.UNFINISHED} == {finding.status for finding in report.findings}
    assert 0 < report.counts["comparisons"] < free["comparisons"]
    counts = report.counts
    assert counts["evaluations"] + counts["vjps"] + counts["jvps"] <= budget


@in_modes
def test_the_least_budget_makes_a_comparison(adjudge_backend, modes):
    x, sin = adjudge_backend.array(np.linspace(0.1, 1, 300)), adjudge_backend.xp.sin
    with pytest.raises(InputError, match="give at least") as refused:
        examine(sin, x, modes=modes, max_evaluations=2)
    least = int(str(refused.value).split("at least ")[1].split(",")[0])

    report = examine(sin, x, modes=modes, max_evaluations=least)

    assert report.counts["comparisons"] >= 1


@on_both
def test_second_order_says_what_it_left(adjudge_backend):
    x = adjudge_backend.array(np.linspace(0.1, 1, 40))

    report = examine(
        adjudge_backend.xp.sin, x, modes=["R", "RR"], mode="full", max_evaluations=100, seed=0
    )

    assert report.verdict is Verdict.INCONCLUSIVE
    assert "the budget is spent" in str(report)


@cells("budget", torch=[400, 2_000], jax=[2_000])
def test_a_first_derivative_that_the_second_leaves_open_is_judged_within_it(
    adjudge_backend, budget
):
    """At its kink the first derivative is judged beside x, which the second one does not do."""
    x = adjudge_backend.array(np.array([0.0, 1.0, -2.0, 0.5]))
    for seed in range(4):
        report = examine(
            adjudge_backend.xp.abs, x, modes=["RR"], seed=seed, max_evaluations=budget, blame=False
        )
        assert report.modes["R"] is Verdict.PASS
        assert report.counts["evaluations"] <= budget


def sine_by_rules(factor):
    """A sine whose rule is wrong by a factor that its own rule leaves out."""
    rule = torch_function(
        lambda x, w: factor * w * torch.cos(x),
        lambda x, w, u: (-u * w * torch.sin(x), u * torch.cos(x)),
    )
    return torch_function(torch.sin, rule)


@pytest.mark.backend("torch")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("modes", "times"), [(["R", "RR"], 7), (["RR"], 22)])
@over_seeds(10)
def test_what_is_wrong_with_a_wrong_derivative_is_not_searched_entry_by_entry(
    dtype, modes, times, seeds
):
    for seed in seeds:
        x = torch.tensor(np.random.default_rng(seed).normal(size=(6, 8)))
        inputs = x.to(getattr(torch, dtype)).requires_grad_()
        right, wrong = (
            examine(sine_by_rules(factor), inputs, modes=modes, seed=seed, blame=False)
            for factor in (1.0, 1.01)
        )
        assert right.verdict is Verdict.PASS, str(right)
        assert wrong.verdict is Verdict.FAIL, str(wrong)
        assert any(finding.mode == "R" for finding in wrong.findings)
        assert wrong.counts["evaluations"] <= times * right.counts["evaluations"]
