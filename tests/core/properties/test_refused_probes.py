"""Rules that raise for some probes and not for others."""

import numpy as np
import pytest
from frameworks import torch
from scenarios import over_seeds

import adjudge
from adjudge import ByHand, Status, Verdict
from adjudge.findings import LargeProbeRaised, ZeroProbeRaised


def refusing(refuses, error=1.0):
    def vjp(x, w):
        if refuses(w):
            raise ArithmeticError("such a cotangent cannot be right")
        return error * w * np.cos(x)

    return ByHand(np.sin, vjp=vjp)


def too_large(w):
    return np.max(np.abs(w)) > 1e4


def all_zero(w):
    return not np.any(w)


@over_seeds(10)
def test_a_right_rule_that_refuses_large_cotangents_passes_and_that_is_told(seeds):
    for seed in seeds:
        x = np.random.default_rng(seed).normal(size=5)

        report = adjudge.examine(refusing(too_large), x, seed=seed)
        assert report.verdict is Verdict.PASS
        (finding,) = report.findings
        assert finding.status is Status.RAISED
        assert finding.note
        assert isinstance(finding.detail, LargeProbeRaised)
        assert "the vjp raises for a cotangent that is 2.1e+06 times" in str(report)


@over_seeds(10)
def test_a_wrong_rule_that_refuses_large_cotangents_fails(seeds):
    for seed in seeds:
        x = np.random.default_rng(seed).normal(size=5)

        report = adjudge.examine(refusing(too_large, 1.01), x, seed=seed)
        assert report.verdict is Verdict.FAIL


@over_seeds(10)
def test_a_rule_that_raises_for_zeros_fails_with_these_words(seeds):
    for seed in seeds:
        x = np.random.default_rng(seed).normal(size=5)

        report = adjudge.examine(refusing(all_zero), x, seed=seed)
        assert report.verdict is Verdict.FAIL
        assert isinstance(report.findings[0].detail, ZeroProbeRaised)
        assert "raises for a cotangent of zeros: ArithmeticError" in str(report)


def test_a_rule_that_refuses_every_cotangent_raises_what_it_raises():
    with pytest.raises(ArithmeticError, match="such a cotangent"):
        adjudge.examine(refusing(lambda w: True), np.ones(3))


@over_seeds(10)
@pytest.mark.backend("torch")
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", ["eigh", "svd", "eig"])
def test_decompositions_with_a_free_phase_pass(name, dtype, seeds):
    def f(a):
        if name == "eigh":
            return torch.linalg.eigh(a + a.mH)[1].abs()
        return torch.linalg.svd(a)[0].abs() if name == "svd" else torch.linalg.eig(a)[1].abs()

    for seed in seeds:
        drawn = torch.Generator().manual_seed(seed)
        a = torch.randn(3, 3, dtype=getattr(torch, dtype), generator=drawn)
        assert adjudge.examine(f, a, seed=seed, blame=False).verdict is Verdict.PASS


def test_what_a_rule_raises_once_is_not_put_down_to_its_probe():
    def once(call):
        calls = []

        def vjp(x, w):
            calls.append(w)
            if len(calls) == call:
                raise ConnectionError("the device was busy")
            return w * np.cos(x)

        return ByHand(np.sin, vjp=vjp)

    for call in (2, 3):
        with pytest.raises(ConnectionError, match="busy"):
            adjudge.examine(once(call), np.ones(3), seed=0)


@pytest.mark.backend("torch")
def test_a_rule_that_raises_where_two_of_three_cotangents_are_absent_is_undefined():
    class Three(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(x)
            return x.sin(), 2 * x, 3 * x

        @staticmethod
        def backward(ctx, *w):
            (x,) = ctx.saved_tensors
            if sum(one is None for one in w) == 2:
                raise TypeError("two of three are absent")
            terms = zip(w, (x.cos(), 2.0, 3.0), strict=True)
            return sum((one * slope for one, slope in terms if one is not None), 0.0 * x)

    x = torch.ones(4, dtype=torch.float64)
    for seed in range(3):
        report = adjudge.examine(Three.apply, x, seed=seed)
        assert report.verdict is Verdict.FAIL
        assert {finding.status for finding in report.findings} == {Status.UNDEFINED}
        assert "two of three are absent" in str(report)


@over_seeds(10)
@pytest.mark.backend("torch")
def test_a_rule_that_raises_for_one_absent_cotangent_is_a_finding_and_no_error(seeds):
    def function(fills):
        class Pair(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, y):
                ctx.set_materialize_grads(False)
                ctx.save_for_backward(x, y)
                return x * y, x - y

            @staticmethod
            def backward(ctx, g, h):
                x, y = ctx.saved_tensors
                if fills:
                    g, h = (torch.zeros_like(x) if one is None else one for one in (g, h))
                return g * y + h, g * x - h

        return Pair.apply

    for seed in seeds:
        drawn = torch.Generator().manual_seed(seed)
        x, y = torch.randn(2, 4, dtype=torch.float64, generator=drawn)
        assert adjudge.examine(function(True), (x, y), seed=seed).verdict is Verdict.PASS
        report = adjudge.examine(function(False), (x, y), seed=seed)
        assert report.verdict is Verdict.FAIL
        assert {finding.status for finding in report.findings} == {Status.UNDEFINED}


@pytest.mark.backend("torch")
def test_what_a_rule_raises_once_beside_an_absent_cotangent_comes_through():
    raised = []

    class Pair(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return 2 * x, 3 * x

        @staticmethod
        def backward(ctx, g, h):
            if (g is None) != (h is None) and not raised:
                raised.append(1)
                raise ConnectionError("the device was busy")
            return (0 if g is None else 2 * g) + (0 if h is None else 3 * h)

    with pytest.raises(ConnectionError, match="busy"):
        adjudge.examine(Pair.apply, torch.ones(3, dtype=torch.float64), seed=0)
