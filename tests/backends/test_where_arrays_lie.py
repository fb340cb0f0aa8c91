"""Functions that compute with another rounding by where arrays lie in memory, as least squares
in PyTorch, are no random ones.
"""

import pytest
from frameworks import torch
from scenarios import over_seeds

import adjudge
from adjudge import Verdict

pytest.importorskip("torch")
pytestmark = pytest.mark.backend("torch")


def judged(f, seed, modes):
    generator = torch.Generator().manual_seed(seed)
    a, b = (
        torch.randn(12, n, generator=generator, dtype=torch.float64).requires_grad_()
        for n in (12, 2)
    )
    return adjudge.examine(f, (a, b), seed=seed, modes=modes, blame=False)


@over_seeds(10)
@pytest.mark.parametrize("modes", [["R"], ["R", "F"]])
def test_right_derivatives_of_least_squares_fail_at_no_seed(modes, seeds):
    others = []
    for seed in seeds:
        others.append(torch.empty(1 + 37 * seed, dtype=torch.uint8))  # so that memory differs

        report = judged(lambda a, b: torch.linalg.lstsq(a, b).solution, seed, modes)

        assert report.verdict is Verdict.PASS, str(report)


@over_seeds(10)
def test_a_wrong_one_fails_at_every_seed(rule, seeds):
    def solution(a, b):
        return torch.linalg.lstsq(a, b).solution

    off = rule(lambda b: b.clone(), lambda b, w: (1 + 1e-4) * w)
    for seed in seeds:
        report = judged(lambda a, b: solution(a, off(b)), seed, ["R"])

        assert report.verdict is Verdict.FAIL
