"""Every parameter of `torch.autograd.gradgradcheck`, by the library's verb and by the door."""

from contextlib import suppress

import pytest

import adjudge

with suppress(ImportError):  # absent: every test here is skipped by its mark
    import torch

pytestmark = pytest.mark.backend("torch")


@pytest.fixture
def x():
    return torch.tensor([0.3, -0.7, 1.1], dtype=torch.float64, requires_grad=True)


@pytest.fixture
def wrong_twice(rule):
    """`sin` with a right gradient, whose own backward and jvp are off by these factors."""

    def make(reverse=1.0, forward=1.0):
        pullback = rule(
            lambda x, w: w * x.cos(),
            lambda x, w, u: (-reverse * u * w * x.sin(), u * x.cos()),
            lambda x, w, v, z: z * x.cos() - forward * v * w * x.sin(),
        )
        return rule(lambda x: x.sin(), pullback, lambda x, v: v * x.cos())

    return make


def accepts(check, f, inputs, *grad_outputs, **options):
    return bool(check(f, inputs, *grad_outputs, raise_exception=False, **options))


def test_a_wrong_second_derivative_is_found_and_a_right_one_accepted(gradgradcheck, wrong_twice, x):
    assert accepts(gradgradcheck, torch.sin, (x,))
    assert accepts(gradgradcheck, wrong_twice(), (x,))
    assert not accepts(gradgradcheck, wrong_twice(reverse=1.01), (x,))


def test_a_wrong_first_derivative_is_found_although_the_second_fits_it(gradgradcheck, rule, x):
    f = rule(lambda x: x.sin(), lambda x, w: -w * x.cos())

    with pytest.raises(adjudge.GradcheckError, match=r"MISMATCH: d <w, f> / d inputs\[0\]"):
        gradgradcheck(f, (x,))
    assert torch.autograd.gradgradcheck(f, (x,))


def test_grad_outputs_is_the_cotangent_that_the_backward_sees(gradgradcheck, rule, x):
    given = torch.tensor([3.0, 5.0, 7.0], dtype=torch.float64)
    seen = []

    def backward(x, w):
        seen.append(w.detach().clone())
        return w * x.cos()

    gradgradcheck(rule(lambda x: x.sin(), backward), (x,), given)

    assert any(torch.equal(given, w) for w in seen)


def test_random_grad_outputs_have_signs(gradgradcheck, rule):
    x = torch.linspace(-1, 1, 40, dtype=torch.float64).requires_grad_()
    seen = []

    def backward(x, w):
        seen.append(w.detach().clone())
        return w * x.cos()

    gradgradcheck(rule(lambda x: x.sin(), backward), (x,), fast_mode=True)

    assert all(bool((w < 0).any() and (w > 0).any()) for w in seen if w.any())


def test_grad_outputs_without_requires_grad_are_checked_all_the_same(gradgradcheck, rule, x):
    detached = rule(lambda x: x.sin(), lambda x, w: w.detach() * x.cos())
    ones = torch.ones(3, dtype=torch.float64)

    with pytest.raises(adjudge.GradcheckError, match=r"/ d grad_outputs\[0\]"):
        gradgradcheck(detached, (x,), ones)
    assert torch.autograd.gradgradcheck(detached, (x,), ones)


def test_none_among_grad_outputs_is_a_zero_cotangent(gradgradcheck, rule, x):
    seen = []

    def backward(x, w):
        seen.append(w.detach().clone())
        return w * x.cos()

    sin = rule(lambda x: x.sin(), backward)

    assert accepts(gradgradcheck, lambda x: (sin(x), x.exp()), (x,), (None, torch.ones_like(x)))
    assert any(not w.any() for w in seen)


@pytest.mark.parametrize(
    ("grad_outputs", "words"),
    [
        (lambda x: torch.ones(4, dtype=torch.float64), r"shape \(4,\), out has \(3,\)"),
        (lambda x: (x, x), "2 entries for 1 differentiable outputs"),
        (lambda x: [1.0], r"grad_outputs\[0\] is a float"),
    ],
)
def test_grad_outputs_that_do_not_fit_are_refused_in_words(gradgradcheck, x, grad_outputs, words):
    with pytest.raises(adjudge.InputError, match=words):
        gradgradcheck(torch.sin, (x,), grad_outputs(x))


def test_gen_non_contig_grad_outputs_finds_a_backward_that_reads_raw_memory(gradgradcheck, rule):
    x = torch.arange(6.0, dtype=torch.float64).reshape(3, 2).requires_grad_()

    def backward(x, w):
        return torch.as_strided(w, (3, 2), (2, 1)) * x.cos()

    f = rule(lambda x: x.sin(), backward)

    assert accepts(gradgradcheck, torch.sin, (x,), gen_non_contig_grad_outputs=True)
    assert accepts(gradgradcheck, f, (x,))
    assert not accepts(gradgradcheck, f, (x,), gen_non_contig_grad_outputs=True)


def test_check_fwd_over_rev_compares_the_jvp_of_the_gradient(gradgradcheck, wrong_twice, x):
    f = wrong_twice(forward=1.01)

    assert accepts(gradgradcheck, wrong_twice(), (x,), check_fwd_over_rev=True)
    assert accepts(gradgradcheck, f, (x,))
    assert not accepts(gradgradcheck, f, (x,), check_fwd_over_rev=True)


def test_check_rev_over_rev_false_leaves_the_double_backward_alone(gradgradcheck, wrong_twice, x):
    f = wrong_twice(reverse=-1.0)

    assert not accepts(gradgradcheck, f, (x,), check_fwd_over_rev=True)
    assert accepts(gradgradcheck, f, (x,), check_fwd_over_rev=True, check_rev_over_rev=False)


def test_second_order_flags_that_contradict_one_another_are_refused_by_name(gradgradcheck, x):
    with pytest.raises(adjudge.InputError, match="check_fwd_over_rev=False"):
        gradgradcheck(torch.sin, (x,), check_rev_over_rev=False)
    with pytest.raises(adjudge.InputError, match="check_rev_over_rev=True"):
        gradgradcheck(
            torch.sin,
            (x,),
            check_rev_over_rev=False,
            check_fwd_over_rev=True,
            check_batched_grad=True,
        )


def test_second_order_eps_atol_and_rtol_fix_step_and_tolerance(gradgradcheck, wrong_twice, x):
    f = wrong_twice(reverse=1.01)

    assert accepts(gradgradcheck, f, (x,), rtol=0.1)
    assert not accepts(gradgradcheck, f, (x,), rtol=1e-4)
    assert accepts(gradgradcheck, f, (x,), atol=0.1)
    assert not accepts(gradgradcheck, f, (x,), atol=1e-4)
    assert not accepts(gradgradcheck, torch.sin, (x,), eps=0.5, rtol=1e-6)


def test_second_order_nondet_tol_allows_a_spread(gradgradcheck, rule, x):
    calls = iter(range(100_000))
    f = rule(lambda x: x.sin(), lambda x, w: w * x.cos() * (1 + 1e-11 * next(calls)))

    assert accepts(gradgradcheck, f, (x,), nondet_tol=1e-6)
    assert not accepts(gradgradcheck, f, (x,))


def test_second_order_raise_exception_false_is_falsy(gradgradcheck, wrong_twice, x):
    assert not gradgradcheck(wrong_twice(reverse=-1.0), (x,), raise_exception=False)
    with pytest.raises(adjudge.GradcheckError):
        gradgradcheck(wrong_twice(reverse=-1.0), (x,))


@pytest.mark.filterwarnings("ignore:Backwards compatibility:UserWarning")  # of the door
def test_second_order_check_undefined_grad_reaches_the_double_backward(gradgradcheck, rule, x):
    pullback = rule(
        lambda x, w: w * x.cos(),
        lambda x, w, u: (-u * w * x.sin(), u * x.cos()),
        undefined=True,
    )
    f = rule(lambda x: x.sin(), pullback)

    assert accepts(gradgradcheck, torch.sin, (x,))
    assert accepts(gradgradcheck, f, (x,), check_undefined_grad=False)
    assert not accepts(gradgradcheck, f, (x,))


def test_second_order_check_grad_dtypes_looks_at_the_tangent_of_the_gradient(
    gradgradcheck, rule, x
):
    pullback = rule(
        lambda x, w: w * x.cos(),
        lambda x, w, u: (-u * w * x.sin(), u * x.cos()),
        lambda x, w, v, z: (z * x.cos() - v * w * x.sin()).to(torch.complex128),
    )
    f = rule(lambda x: x.sin(), pullback, lambda x, v: v * x.cos())

    options = {"check_fwd_over_rev": True}

    assert accepts(gradgradcheck, f, (x,), check_grad_dtypes=False, **options)
    assert not accepts(gradgradcheck, f, (x,), check_grad_dtypes=True, **options)


def test_second_order_check_batched_grad_runs_the_double_backward_under_vmap(
    gradgradcheck, rule, x
):
    pullback = rule(
        lambda x, w: w * x.cos(),
        lambda x, w, u: (-u * w * x.sin() * (1 + 0 * u.sum().item()), u * x.cos()),
    )
    f = rule(lambda x: x.sin(), pullback)

    assert accepts(gradgradcheck, torch.sin, (x,), check_batched_grad=True)
    assert accepts(gradgradcheck, f, (x,))
    assert not accepts(gradgradcheck, f, (x,), check_batched_grad=True)


def test_second_order_fast_mode_costs_a_few_evaluations(gradgradcheck, wrong_twice):
    x = torch.linspace(-1, 1, 100, dtype=torch.float64).requires_grad_()
    calls = []

    def f(x):
        calls.append(1)
        return x.sin()

    gradgradcheck(f, (x,), fast_mode=True)
    fast = len(calls)
    gradgradcheck(f, (x,), fast_mode=False)

    assert fast <= 12
    assert len(calls) - fast >= 2 * x.numel()
    assert not accepts(gradgradcheck, wrong_twice(reverse=-1.0), (x,), fast_mode=True)


def test_a_function_without_differentiable_outputs_is_refused_in_words(gradgradcheck, x):
    with pytest.raises(adjudge.InputError, match="no output of the function is differentiable"):
        gradgradcheck(lambda x: x.detach() * 2, (x,))


def test_a_linear_function_and_an_unused_input_pass(gradgradcheck, x):
    y = x.detach().clone().requires_grad_()

    assert accepts(gradgradcheck, lambda x: 3 * x, (x,))
    assert accepts(gradgradcheck, lambda x, y: x.sin(), (x, y))
