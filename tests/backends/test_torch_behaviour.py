"""How a check of PyTorch goes about its work: what it calls, in which order, and what it says."""

import warnings

import pytest
from frameworks import torch

import adjudge

pytestmark = pytest.mark.backend("torch")


def test_everything_is_reported_and_not_only_the_first_failure(rule, x):
    f = rule(lambda x: x.sin(), lambda x, w: w.mul_(-2) * x.cos())

    report = adjudge.examine(f, (x,))

    statuses = {str(finding.status) for finding in report.findings}
    assert {"MUTATES_INPUT", "MISMATCH"} <= statuses
    assert f"and {len(report.findings) - 1} more finding" in report.headline


def test_every_wrong_pair_of_output_and_input_is_counted(scaled_sin, x):
    y = x.detach().clone().requires_grad_()
    wrong = scaled_sin(-1.0)

    report = adjudge.examine(lambda x, y: (wrong(x), y.sin(), wrong(y)), (x, y), mode="full")

    assert 6 == report.counts["failed"]
    assert 2 * 3 * 3 * 3 == report.counts["comparisons"]


def test_projections_differ_from_seed_to_seed_and_repeat_for_one(x):
    def seen(seed):
        tangents = []

        def f(x):
            tangents.append(x.detach().clone())
            return x.sin()

        adjudge.examine(f, (x,), fast_mode=True, seed=seed)
        return torch.stack(tangents)

    assert torch.equal(seen(1), seen(1))
    assert not torch.equal(seen(1), seen(2))


def test_projections_have_both_signs():
    x = torch.ones(50, dtype=torch.float64, requires_grad=True)
    moved = []

    def f(x):
        moved.append(x.detach() - 1)
        return x.sin()

    adjudge.examine(f, (x,), fast_mode=True)

    probes = [step for step in moved if step.any()]
    assert probes
    assert all(bool((step > 0).any() and (step < 0).any()) for step in probes)


def test_an_error_of_mean_zero_does_not_cancel_in_a_projection(gradcheck, rule):
    x = torch.linspace(-1, 1, 1000, dtype=torch.float64).requires_grad_()
    f = rule(lambda x: 2 * x, lambda x, w: 2 * w + 0.1 * (w - w.mean()))

    assert not gradcheck(f, (x,), fast_mode=True, raise_exception=False)


def test_each_pair_of_evaluations_serves_all_outputs_and_both_modes(x):
    calls = []

    def f(x):
        calls.append(1)
        return x.sin(), x.exp(), x**2

    report = adjudge.examine(f, (x,), fast_mode=False, check_forward_ad=True)

    assert report
    assert report.counts["evaluations"] == len(calls)
    plain = report.counts["evaluations"] - report.counts["jvps"]
    assert 2 * x.numel() + 3 >= plain  # and one elsewhere, before the pullback is asked again


def test_a_large_scalar_function_is_checked_at_a_fixed_cost():
    x = torch.linspace(-1, 1, 40_000, dtype=torch.float64).requires_grad_()

    report = adjudge.examine(lambda x: (x**3).sum(), (x,))

    assert report
    assert 6 >= report.counts["evaluations"]
    assert 6 >= report.counts["vjps"]


def test_exceptions_say_in_which_evaluation_they_were_raised(gradcheck, rule, x):
    f = rule(lambda x: 2 * x, lambda x, w: 1 / 0)

    with pytest.raises(ZeroDivisionError) as forward:
        gradcheck(lambda x: 1 / 0, (x,))
    with pytest.raises(ZeroDivisionError) as backward:
        gradcheck(f, (x,))

    assert ["adjudge: raised in evaluation 1 of the function, at x"] == forward.value.__notes__
    assert "raised in the vjp (the backward pass)" in backward.value.__notes__[0]


@pytest.mark.filterwarnings("ignore:Backwards compatibility")
def test_a_backward_that_cannot_take_none_for_one_of_two_outputs_fails(gradcheck, x):
    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return 2 * x, 3 * x

        @staticmethod
        def backward(ctx, v, w):
            return 2 * v + 3 * w

    with pytest.raises(TypeError, match="NoneType"):
        torch.autograd.gradcheck(Two.apply, (x,))
    # PyTorch ends in what the rule raises, and a check in which output it cannot do without
    with pytest.raises(RuntimeError, match="NoneType"):
        gradcheck(Two.apply, (x,))


def test_no_warning_is_given_by_any_check(gradcheck, gradgradcheck, scaled_sin, x):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "`torch.jit.script`", DeprecationWarning)

        gradcheck(scaled_sin(), (x.detach().float().requires_grad_(),), check_forward_ad=True)
        gradcheck(scaled_sin(-1.0), (x,), check_batched_grad=True, raise_exception=False)
        assert gradgradcheck(torch.sin, (x,), check_batched_grad=True)


def test_a_function_that_ignores_its_argument_is_constant_and_said_so(x):
    # torch.autograd.gradcheck perturbs the caller's tensor, so that it sees this function move
    report = adjudge.examine(lambda ignored: x.detach() ** 2, (x,))

    assert report
    assert 0 == report.counts["nonzero"]
    assert "all zero" in report.headline


def rule_of(backward):
    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin() * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return backward(x, g)

    return Function.apply


def slope(x):
    return x.cos() * x + x.sin()


def test_a_rule_that_computes_in_float32_passes_with_a_note_that_says_so():
    x = torch.linspace(0.3, 2.0, 6, dtype=torch.float64, requires_grad=True)
    narrow = rule_of(lambda x, g: (g.float() * slope(x.float())).double())
    noted = []
    for seed in range(10):
        right = adjudge.examine(rule_of(lambda x, g: g * slope(x)), x, seed=seed)
        rounded = adjudge.examine(narrow, x, seed=seed)

        assert right.verdict is rounded.verdict is adjudge.Verdict.PASS
        assert not right.findings
        assert all(one.note and one.status is adjudge.Status.INACCURATE for one in rounded.findings)
        noted += ["loses digits of float64" in str(rounded)]
    # The rounding of a sum may happen to be small.
    assert any(noted)


def test_what_a_function_writes_into_its_input_is_told_where_its_output_is_detached_too():
    def f(x):
        x.data.mul_(2)
        return x.detach().sin()

    x = torch.linspace(0.3, 2.0, 6, dtype=torch.float64, requires_grad=True)
    report = adjudge.examine(f, x, seed=0)

    statuses = [finding.status for finding in report.findings]
    assert {adjudge.Status.MUTATES_INPUT, adjudge.Status.DETACHED} <= {*statuses}
