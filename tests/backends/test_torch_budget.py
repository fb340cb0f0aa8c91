"""The search for wrong entries and `max_evaluations=` with PyTorch's vjps and jvps."""

from contextlib import suppress

import pytest

from adjudge import InputError, Status, Verdict, examine, gradgradcheck

with suppress(ImportError):  # absent: every test here is skipped by its mark
    import torch

pytestmark = pytest.mark.backend("torch")


@pytest.fixture
def x():
    return torch.randn(2_000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def wrong():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, w):
            g = w * ctx.saved_tensors[0].cos()
            g[[700, 1_999]] *= 2
            return g

    return Wrong.apply


@pytest.mark.parametrize("scalar", [True, False])
def test_two_wrong_entries_of_a_large_input_are_named(x, wrong, scalar):
    report = examine((lambda x: wrong(x).sum()) if scalar else wrong, x, seed=1)

    assert {"inputs[0][700]", "inputs[0][1999]"} == {entry.wrt for entry in report.entries}
    assert report.counts["evaluations"] <= 120


@pytest.mark.parametrize("modes", [["R"], ["F"], ["R", "F"], ["RR"], ["FR"], ["RF"]])
def test_a_third_of_the_work_compares_a_part(monkeypatch, modes):
    monkeypatch.setattr("adjudge.jacobian.coloring.DENSEST", 0)  # one column at a time
    x = torch.linspace(0.1, 1, 24, dtype=torch.float64)
    free = examine(torch.sin, x, modes=modes, mode="full", seed=0).counts
    budget = (free["evaluations"] + free["vjps"] + free["jvps"]) // 3

    report = examine(torch.sin, x, modes=modes, mode="full", seed=0, max_evaluations=budget)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert {Status.UNFINISHED} == {finding.status for finding in report.findings}
    assert 0 < report.counts["comparisons"] < free["comparisons"]
    counts = report.counts
    assert counts["evaluations"] + counts["vjps"] + counts["jvps"] <= budget


@pytest.mark.parametrize("modes", [["R"], ["F"], ["R", "F"], ["RR"], ["FR"], ["RF"]])
def test_the_least_budget_makes_a_comparison(modes):
    x = torch.linspace(0.1, 1, 300, dtype=torch.float64)
    with pytest.raises(InputError, match="give at least") as refused:
        examine(torch.sin, x, modes=modes, max_evaluations=2)
    least = int(str(refused.value).split("at least ")[1].split(",")[0])

    report = examine(torch.sin, x, modes=modes, max_evaluations=least)

    assert report.counts["comparisons"] >= 1


def test_gradgradcheck_says_what_it_left():
    x = torch.linspace(0.1, 1, 40, dtype=torch.float64)

    report = gradgradcheck(torch.sin, x, mode="full", max_evaluations=100, raise_exception=False)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert "the budget is spent" in str(report)
