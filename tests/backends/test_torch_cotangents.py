"""Cotangents as other operations of PyTorch hand them on: parts of larger arrays, conjugates."""

import pytest
from frameworks import torch
from scenarios import over_seeds

from adjudge import Status, Verdict, examine
from adjudge.findings import LayoutMatters, NotHomogeneous

pytest.importorskip("torch")
SEEDS = range(10)
pytestmark = pytest.mark.backend("torch")


def at(*shape, dtype=torch.float64):
    generator = torch.Generator().manual_seed(3)
    return torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()


def from_its_start(g):
    """The cotangent as code reads it that takes its memory from the start."""
    flat = g.contiguous()
    whole = torch.empty(0, dtype=g.dtype).set_(flat.untyped_storage())
    return whole[: g.numel()].view(g.shape)


def without_conjugation(g):
    """The cotangent as code reads it that takes strides from it, and no more."""
    if not g.is_conj():
        return g
    return torch.view_as_complex(torch.view_as_real(g.resolve_conj()) * torch.tensor([1.0, -1.0]))


def details(report):
    return [type(f.detail) for f in report.findings if f.verdict is Verdict.FAIL]


@over_seeds(10)
@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 2)])
def test_a_rule_that_reads_memory_from_its_start_fails(rule, shape, seeds):
    """Behind a concatenation it gives the gradient of another part."""
    for seed in seeds:
        right = rule(torch.sin, lambda x, g: g * x.cos())
        wrong = rule(torch.sin, lambda x, g: from_its_start(g) * x.cos())

        assert examine(right, (at(*shape),), seed=seed).verdict is Verdict.PASS
        report = examine(wrong, (at(*shape),), seed=seed, blame=False)
        assert [LayoutMatters] == details(report)
        assert "with an offset in memory" in str(report)


@over_seeds(10)
@pytest.mark.parametrize("shape", [(5,), (3, 4)])
def test_a_rule_that_ignores_a_conjugation_that_is_not_done_yet_fails(rule, shape, seeds):
    x = at(*shape, dtype=torch.complex128)
    for seed in seeds:
        right = rule(torch.sin, lambda x, g: g * x.cos().conj())
        wrong = rule(torch.sin, lambda x, g: without_conjugation(g) * x.cos().conj())

        assert examine(right, (x,), seed=seed).verdict is Verdict.PASS
        assert [LayoutMatters] == details(examine(wrong, (x,), seed=seed, blame=False))


@over_seeds(10)
@pytest.mark.parametrize("size", [(), (1,)])
def test_a_loss_whose_gradient_is_cut_off_below_a_magnitude_fails(rule, size, seeds):
    def f(x):
        return (x * x).sum().reshape(size)

    for seed in seeds:
        right = rule(f, lambda x, g: 2 * g * x)
        wrong = rule(f, lambda x, g: 2 * torch.where(g.abs() < 1e-5, 0.0, g) * x)

        assert examine(right, (at(5),), seed=seed).verdict is Verdict.PASS
        assert [NotHomogeneous] == details(examine(wrong, (at(5),), seed=seed, blame=False))


def test_a_small_cotangent_of_a_loss_that_underflows_in_float16_inside_is_no_error(rule):
    def f(x):
        return x.half().tanh().to(x.dtype).sum()

    def vjp(x, g):
        return (g.half() * (1 - x.half().tanh() ** 2)).to(x.dtype)

    for seed in SEEDS[:3]:
        report = examine(rule(f, vjp), (at(5),), seed=seed)
        assert NotHomogeneous not in details(report)


@over_seeds(10)
@pytest.mark.parametrize(("dtype", "offset"), [("float32", 0), ("float32", 30), ("bfloat16", 0)])
def test_a_derivative_that_rounds_small_tangents_is_a_note(dtype, offset, seeds):
    """That of the vjp of a group norm adds numbers of the size of x and takes them away again."""
    x = (offset + at(2, 4, 5).detach()).to(getattr(torch, dtype))

    def f(x):
        return torch.nn.functional.group_norm(x, 2)

    for seed in seeds:
        report = examine(f, x, modes=["FR"], seed=seed)

        assert report.verdict is Verdict.PASS, str(report)
        assert {Status.INACCURATE} == {finding.status for finding in report.findings}


OF_SMALL = {
    "cut off": lambda g: torch.where(g.abs() < 6e-7, 0.0, g),
    "rounded": lambda g: torch.round(g * 2**22) / 2**22,
    "added to 1 and taken away": lambda g: (g + 1) - 1,
    "with noise": lambda g: g * (1 + 0.6 * torch.sin(3e11 * g)),
    "with noise of its last digits": lambda g: torch.where(
        g.abs() < 1e-5, g * (1 + 0.6 * torch.sin(3e17 * g.detach().double()).to(g.dtype)), g
    ),
}


@over_seeds(10)
@pytest.mark.parametrize("name", OF_SMALL)
def test_a_second_derivative_that_is_wrong_for_small_cotangents_fails(rule, name, seeds):
    twice = rule(torch.cos, lambda x, g: -OF_SMALL[name](g) * x.sin())
    wrong = rule(torch.sin, lambda x, g: OF_SMALL[name](g) * twice(x))
    x = at(6, dtype=torch.float32)
    for seed in seeds:
        assert examine(wrong, (x,), modes=["RR"], seed=seed).verdict is Verdict.FAIL
