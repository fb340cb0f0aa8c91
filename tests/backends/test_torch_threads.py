"""Checks in several threads of one process, which change what these threads share."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from adjudge import Verdict, examine

with suppress(ImportError):  # absent: every test here is skipped by its mark
    import torch

pytestmark = pytest.mark.backend("torch")


def test_checks_of_a_module_that_is_closed_over_take_turns():
    torch.manual_seed(0)
    layer = torch.nn.Linear(5, 5).double()
    weight = layer.weight.detach().clone()
    points = [torch.randn(3, 5, dtype=torch.float64, requires_grad=True) for _ in range(80)]

    def judged(seed):
        options = {"captured": True, "seed": seed, "blame": False}
        return examine(lambda x: torch.tanh(layer(x)), points[seed], **options).verdict

    with ThreadPoolExecutor(4) as threads:
        verdicts = set(threads.map(judged, range(len(points))))

    assert verdicts == {Verdict.PASS}
    assert torch.equal(weight, layer.weight)


def test_a_check_within_a_check_does_not_wait_for_it():
    x = torch.tensor([0.3, 0.7], dtype=torch.float64, requires_grad=True)
    inner = []

    def f(x):
        if not inner:
            point = x.detach().clone().requires_grad_()
            inner.append(examine(torch.sin, point, seed=0).verdict)
        return x.cos()

    assert examine(f, x, seed=0).verdict is Verdict.PASS
    assert inner == [Verdict.PASS]
