"""Gradients of some inputs, where none are required of the others: a frozen weight, or data."""

import pytest
from frameworks import torch

import adjudge
from adjudge import Status, Verdict
from adjudge.findings import AloneNotTried, AnotherAlone

pytestmark = pytest.mark.backend("torch")

SEEDS = range(10)


def function_of(keep, backward):
    """A product of three factors; `keep` says by the inputs what is saved, and `backward` makes
    three gradients of the cotangent, what was saved, and which inputs need a gradient.
    """

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            ctx.save_for_backward(*keep(inputs))
            return inputs[0] * inputs[1] * inputs[2]

        @staticmethod
        def backward(ctx, g):
            return tuple(backward(g, ctx.saved_tensors, ctx.needs_input_grad))

    return Product.apply


def everything(inputs):
    return inputs


def what_is_needed(inputs):
    a, b, c = inputs
    return (a if b.requires_grad or c.requires_grad else None), *[
        one if a.requires_grad else None for one in (b, c)
    ]


def each_by(order):
    def backward(g, saved, needs):
        a, b, c = saved
        gradients = (g * b * c, g * a * c, g * a * b)
        return [one if needs[k] else None for k, one in zip(order, gradients, strict=True)]

    return backward


def all_of_them(g, saved, needs):
    a, b, c = saved
    return g * b * c, g * a * c, g * a * b


def those_beside_the_first(g, saved, needs):
    a, b, c = saved
    return (g * b * c, g * a * c, g * a * b) if needs[0] else (None, None, None)


def twice_alone(g, saved, needs):
    factor = 1.0 if all(needs) else 2.0
    return [factor * one for one in all_of_them(g, saved, needs)]


WRONG = {
    "two indices are swapped": (everything, each_by((1, 0, 2))),
    "each index is off by one": (everything, each_by((2, 0, 1))),
    "the last index is that of the first": (everything, each_by((0, 1, 0))),
    "the first one decides for all": (everything, those_beside_the_first),
    "another factor alone": (everything, twice_alone),
}
RIGHT = {
    "each by its own index": (everything, each_by((0, 1, 2))),
    "all of them": (everything, all_of_them),
}


@pytest.fixture
def factors():
    torch.manual_seed(0)
    drawn = [torch.rand(4, dtype=torch.float64) + 0.5 for _ in range(3)]
    return tuple(one.requires_grad_() for one in drawn)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("planted", WRONG)
def test_a_gradient_that_needs_another_one_is_found(factors, planted, dtype):
    inputs = tuple(one.detach().to(getattr(torch, dtype)) for one in factors)
    f = function_of(*WRONG[planted])
    for seed in SEEDS if dtype == "float64" else SEEDS[:2]:
        report = adjudge.examine(f, inputs, seed=seed)
        assert report.verdict is Verdict.FAIL
        assert {one.status for one in report.findings} == {Status.INCONSISTENT}
        assert "no " in str(report)
        assert "gradient is required" in str(report)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("right", RIGHT)
def test_gradients_that_stand_by_themselves_pass(factors, right, dtype):
    inputs = tuple(one.detach().to(getattr(torch, dtype)) for one in factors)
    f = function_of(*RIGHT[right])
    for seed in SEEDS if dtype == "float64" else SEEDS[:2]:
        report = adjudge.examine(f, inputs, seed=seed)
        assert report.verdict is Verdict.PASS
        assert not report.findings


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("planted", [*WRONG, *RIGHT])
def test_values_far_above_the_gradients_hide_none_of_that(factors, planted, dtype):
    """Their rounding is larger than a gradient, and no rounding of a product."""
    inputs = tuple(one.detach().to(getattr(torch, dtype)) for one in factors)
    product = function_of(*{**WRONG, **RIGHT}[planted])
    far = {"float64": 1e13, "float32": 3e4, "bfloat16": 30.0}[dtype]
    for seed in SEEDS[:2]:
        report = adjudge.examine(lambda *x: product(*x) + far, inputs, seed=seed)
        alone = Status.INCONSISTENT in {one.status for one in report.findings if not one.note}
        assert alone is (planted in WRONG), report


def test_a_backward_pass_that_raises_there_is_a_note(factors):
    report = adjudge.examine(function_of(what_is_needed, all_of_them), factors)
    assert report.verdict is Verdict.PASS
    assert {one.status for one in report.findings} == {Status.RAISED}
    assert "the vjp raises where no gradient is required but that of inputs[0]: TypeError" in str(
        report
    )


def test_the_report_names_the_input_and_both_numbers(factors):
    report = adjudge.examine(function_of(everything, each_by((1, 0, 2))), factors)
    first = report.findings[0]
    assert isinstance(first.detail, AnotherAlone)
    assert first.detail.leaf == "inputs[0]"
    assert first.detail.one == 0.0
    assert first.detail.two != 0.0
    assert "where no other gradient is required" in str(report)
    assert "mind the index" in str(report)


def test_a_frozen_parameter_of_a_module_is_no_reason_to_lose_the_gradient_of_another(factors):
    f = function_of(everything, each_by((0, 2, 1)))

    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(factors[1].detach())
            self.scale = torch.nn.Parameter(factors[2].detach())

        def forward(self, x):
            return f(x, self.weight, self.scale)

    report = adjudge.examine(Scaled(), factors[0])
    assert report.verdict is Verdict.FAIL
    assert "weight" in str(report)
    assert "scale" in str(report)


def test_two_halves_are_tried_of_many_inputs():
    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            return sum(inputs)

        @staticmethod
        def backward(ctx, g):
            shift = 1 if forgets else 0
            needs = ctx.needs_input_grad
            return tuple(g if needs[k - shift] else None for k in range(len(needs)))

    inputs = tuple(torch.full((2,), float(k), dtype=torch.float64) for k in range(12))
    for forgets in (True, False):
        report = adjudge.examine(Sum.apply, inputs)
        assert report.verdict is (Verdict.FAIL if forgets else Verdict.PASS)


def test_a_function_that_differentiates_by_an_input_needs_it_recorded(factors):
    def force(x, charge):
        energy = (x.sin() * charge).sum()
        return torch.autograd.grad(energy, x, create_graph=True)[0]

    report = adjudge.examine(force, factors[:2])
    assert report.verdict is Verdict.PASS
    (note,) = report.findings
    assert note.note
    assert isinstance(note.detail, AloneNotTried)
    assert note.detail.leaf == "inputs[1]"
    assert "the function raises RuntimeError" in str(report)


def test_a_function_that_asks_what_is_recorded_has_another_value(factors):
    def penalised(x, y):
        return x * y + (x.square().sum() if x.requires_grad else 0.0)

    report = adjudge.examine(penalised, factors[:2])
    assert report.verdict is Verdict.PASS
    (note,) = report.findings
    assert note.note
    assert "the function has another value" in str(report)


def test_a_budget_leaves_it_out_and_says_so(factors):
    f = function_of(*RIGHT["all of them"])
    report = adjudge.examine(f, factors, max_evaluations=12)
    assert report.verdict is Verdict.PASS
    assert "without the others were not tried: the budget is spent" in str(report)
