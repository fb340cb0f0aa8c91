"""`max_evaluations`: what is begun, what is left, and what is said of it."""

import numpy as np
import pytest
from scenarios import long

from adjudge import ByHand, InputError, Status, Verdict, examine, gradcheck, gradgradcheck
from adjudge.limits import limited
from adjudge.report import text_of

LADDER = 2 * 2 * 12
"""At most this much work is in flight: a ladder of twelve steps of a derivative."""

SINE = ByHand(
    np.sin,
    vjp=ByHand(
        lambda x, w: w * np.cos(x),
        vjp=lambda x, w, u: (-u * w * np.sin(x), u * np.cos(x)),
    ),
    jvp=lambda x, v: v * np.cos(x),
)
WRONG = ByHand(np.sin, vjp=lambda x, w: -w * np.cos(x))


def point(n):
    return np.random.default_rng(n).normal(size=n)


def spent(report):
    counts = report.counts
    return counts["evaluations"] + counts["vjps"] + counts["jvps"]


def unfinished(report):
    return [finding for finding in report.findings if finding.status is Status.UNFINISHED]


@pytest.mark.parametrize("modes", [["R"], ["F"], ["R", "F"], ["RR"], ["R", "RR"]])
@pytest.mark.parametrize("mode", ["full", "projected"])
def test_a_budget_that_is_large_enough_changes_nothing(modes, mode):
    free = examine(SINE, point(9), modes=modes, mode=mode, seed=0)
    bound = examine(SINE, point(9), modes=modes, mode=mode, seed=0, max_evaluations=1_000)

    assert free.verdict is Verdict.PASS is bound.verdict
    assert free.counts == bound.counts
    assert str(free) == str(bound)


@pytest.mark.parametrize("modes", [["R"], ["F"], ["R", "F"], ["RR"], ["R", "RR"]])
@pytest.mark.parametrize("n", [2, 40, 400])
@pytest.mark.parametrize("mode", ["full", "projected"])
def test_the_least_budget_makes_a_comparison_and_less_is_refused(modes, n, mode):
    options = {"modes": modes, "mode": mode, "seed": 0}
    with pytest.raises(InputError, match="give at least") as refused:
        examine(SINE, point(n), max_evaluations=1, **options)
    least = int(str(refused.value).split("at least ")[1].split(",")[0])

    report = examine(SINE, point(n), max_evaluations=least, **options)

    assert report.counts["comparisons"] >= 1
    assert spent(report) <= least
    assert report.verdict is Verdict.INCONCLUSIVE or not unfinished(report)
    with pytest.raises(InputError, match=f"give at least {least}"):
        examine(SINE, point(n), max_evaluations=least - 1, **options)


@pytest.mark.parametrize("modes", [["R"], ["F"], ["R", "F"], ["RR"]])
@pytest.mark.parametrize("n", [12, 50])
def test_a_third_of_what_full_mode_takes_compares_a_part_and_says_so(modes, n):
    options = {"modes": modes, "mode": "full", "seed": 0}
    with limited(densest=0):  # one column at a time
        free = examine(SINE, point(n), **options)
        budget = spent(free) // 3

        report = examine(SINE, point(n), **options, max_evaluations=budget)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert all(verdict is Verdict.INCONCLUSIVE for m, verdict in report.modes.items() if m in modes)
    assert spent(report) <= budget
    assert 0 < report.counts["comparisons"] < free.counts["comparisons"]
    (finding,) = unfinished(report)
    made, planned = report.counts["comparisons"], free.counts["comparisons"]
    assert (made, planned) == (finding.detail.compared, finding.detail.planned)
    assert finding.detail.all_columns in (n, 2 * n)
    first, left, remedy = text_of(finding).splitlines()
    assert first.startswith(f"the budget is spent: {made} of {planned} comparisons made")
    assert f"{finding.detail.columns} of {finding.detail.all_columns} columns" in left
    assert "max_evaluations" in remedy


def test_an_error_that_a_part_shows_fails_all_the_same():
    report = examine(WRONG, point(50), mode="full", seed=0, max_evaluations=100)

    assert report.verdict is Verdict.FAIL
    assert Verdict.FAIL is report.modes["R"]
    assert unfinished(report)


def test_a_disagreement_without_room_for_a_ladder_is_left_open():
    report = examine(WRONG, point(5), mode="projected", seed=0, max_evaluations=8)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert 0 == report.counts["failed"]
    assert unfinished(report)[0].detail.doubtful == 1
    assert "no ladder was climbed" in str(report)


@pytest.mark.parametrize("budget", [60, 90, 120, 500])
def test_a_search_for_entries_that_is_cut_short_is_said_to_be(budget):
    x = point(5_000)

    def vjp(x, w):
        g = w * np.cos(x)
        g[::701] *= 2
        return g

    free = examine(ByHand(np.sin, vjp=vjp), x, seed=1)
    report = examine(ByHand(np.sin, vjp=vjp), x, seed=1, max_evaluations=budget)

    assert report.verdict is Verdict.FAIL
    assert spent(report) <= budget + LADDER
    assert ("the search for the wrong entries" in str(report)) == (spent(free) > budget)


@pytest.mark.parametrize(
    "budget", [budget if budget % 16 == 8 else long(budget) for budget in range(8, 120, 4)]
)
@pytest.mark.parametrize("mode", ["full", "projected"])
def test_it_is_never_exceeded_by_more_than_a_ladder_and_never_passes_unfinished(mode, budget):
    x = np.asarray([0.0, 1.0, -2.0, 0.3])
    rules = {
        "right": ByHand(np.sin, vjp=SINE.vjp),
        "wrong": WRONG,
        "kink": ByHand(np.abs, vjp=lambda x, w: w * np.where(x == 0, 1, np.sign(x))),
        "cached": ByHand(lambda x, memo={}: memo.setdefault(0, x), vjp=lambda x, w: w),
    }
    for name, rule in rules.items():
        report = examine(rule, x, modes=["R"], mode=mode, seed=2, max_evaluations=budget)

        assert spent(report) <= budget + LADDER, name
        assert report.verdict is not Verdict.PASS or not unfinished(report), name
        assert report.verdict is not Verdict.PASS or name in ("right", "kink"), name
        assert report.verdict is not Verdict.FAIL or name == "wrong", name


def test_second_order_has_a_budget_of_its_own_for_each_composition():
    report = examine(SINE, point(30), modes=["R", "RR"], mode="full", seed=0, max_evaluations=90)

    assert spent(report) <= 90
    assert 2 == len(unfinished(report))
    assert {"R", "RR"} <= set(report.modes)


def test_the_other_verbs_take_a_budget_too():
    with pytest.raises(AssertionError, match="UNFINISHED: the budget is spent"):
        gradcheck(SINE, point(50), mode="full", max_evaluations=60)
    assert not gradgradcheck(
        SINE, point(20), mode="full", max_evaluations=60, raise_exception=False
    )


@pytest.mark.parametrize("budget", [-1, 2.5, "many"])
def test_a_budget_that_is_no_number_is_refused(budget):
    with pytest.raises(InputError, match="max_evaluations"):
        examine(SINE, point(3), max_evaluations=budget)
