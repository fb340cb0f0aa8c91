"""Kinks and jumps of PyTorch's own functions, and of rules that are wrong beside a kink."""

from contextlib import suppress

import pytest

from adjudge import Status, Verdict, examine, gradgradcheck
from adjudge.findings import Meaning

with suppress(ImportError):  # absent: every test here is skipped by its mark
    import torch

pytestmark = pytest.mark.backend("torch")


def double(*values):
    return torch.tensor(values, dtype=torch.float64)


KINKS = {
    "relu": (lambda x: torch.relu(x), (0.0, 1.0, -2.0)),
    "hardtanh": (lambda x: torch.nn.functional.hardtanh(x), (1.0, -1.0, 0.3)),
    "clamp": (lambda x: x.clamp(0, 1), (0.0, 1.0, 0.5)),
    "max": (lambda x: x.max(dim=0).values, (2.0, 2.0, 1.0)),
    "sort": (lambda x: x.sort().values, (2.0, 1.0, 2.0)),
    "hinge": (lambda x: torch.relu(1 - x).sum(), (1.0, 0.2)),
}


@pytest.mark.parametrize("name", KINKS)
@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("letter", ["R", "F"])
def test_a_kink_passes_with_a_note(name, mode, letter):
    f, x = KINKS[name]

    report = examine(f, double(*x), mode=mode, modes=[letter], seed=1)

    assert report.verdict is Verdict.PASS
    assert {Status.NONSMOOTH} == {finding.status for finding in report.findings}


@pytest.mark.parametrize("name", ["floor", "round", "heaviside"])
def test_a_jump_stays_open(name):
    f, x = {
        "floor": (torch.floor, 2.0),
        "round": (torch.round, 0.5),
        "heaviside": (lambda x: torch.where(x >= 0, x**2 + 1, x**2), 0.0),
    }[name]

    report = examine(f, double(x, 0.7))

    assert report.verdict is Verdict.INCONCLUSIVE
    assert Meaning.JUMP is report.findings[0].detail.meaning


def test_a_relu_that_is_wrong_for_positive_entries_fails_at_zeros():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.clamp(min=0)

        @staticmethod
        def backward(ctx, w):
            return w * 0.5 * (ctx.saved_tensors[0] > 0)

    for n in (1, 300):
        report = examine(Wrong.apply, torch.zeros(n, dtype=torch.float64))

        assert report.verdict is Verdict.FAIL
        assert 0.01 == report.ranked[0].moved


def test_second_order_beside_a_kink_passes_and_at_it_stays_open():
    def f(x):
        return torch.relu(x) ** 2 + torch.relu(x) * x.sin()

    off, on = (gradgradcheck(f, double(x), raise_exception=False) for x in (0.7, 0.0))

    assert off.verdict is Verdict.PASS
    assert on.verdict is not Verdict.FAIL
