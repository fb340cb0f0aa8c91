"""Every parameter of `torch.autograd.gradcheck`, by the library's verb and by the door."""

from contextlib import suppress

import pytest

import adjudge

with suppress(ImportError):  # absent: every test here is skipped by its mark
    import torch

pytestmark = pytest.mark.backend("torch")


@pytest.fixture
def x():
    return torch.tensor([0.3, -0.7, 1.1], dtype=torch.float64, requires_grad=True)


def accepts(check, f, inputs, **options):
    return bool(check(f, inputs, raise_exception=False, **options))


def test_eps_is_the_absolute_step(gradcheck, x):
    seen = []

    def f(x):
        seen.append(x.detach().clone())
        return x.sin()

    gradcheck(f, (x,), eps=2.0**-10, rtol=1e-3, fast_mode=False)

    steps = {round(float((point - x.detach()).abs().max()), 12) for point in seen}
    assert {0.0, round(2.0**-10, 12)} == steps


def test_eps_that_is_too_long_rejects_a_right_gradient(gradcheck, x):
    assert accepts(gradcheck, torch.sin, (x,), eps=1e-4, rtol=1e-6)
    assert not accepts(gradcheck, torch.sin, (x,), eps=0.5, rtol=1e-6)


def test_eps_that_does_not_move_x_is_refused(gradcheck):
    x = torch.tensor([1e20], dtype=torch.float64, requires_grad=True)

    with pytest.raises(adjudge.InputError, match=r"does not move inputs\[0\]\[0\]"):
        gradcheck(torch.sin, (x,), eps=1e-6)


def test_atol_is_the_allowed_absolute_difference(gradcheck, rule, x):
    f = rule(lambda x: 2 * x, lambda x, w: 2 * w + 1e-3 * w)

    assert accepts(gradcheck, f, (x,), atol=1e-2, rtol=0.0)
    assert not accepts(gradcheck, f, (x,), atol=1e-4, rtol=0.0)


def test_rtol_is_the_allowed_relative_difference(gradcheck, scaled_sin, x):
    f = scaled_sin(1.001)

    assert accepts(gradcheck, f, (x,), rtol=1e-2, atol=0.0)
    assert not accepts(gradcheck, f, (x,), rtol=1e-4, atol=0.0)


def test_without_atol_and_rtol_an_error_of_a_hundred_thousandth_is_found(gradcheck, scaled_sin, x):
    assert accepts(gradcheck, scaled_sin(), (x,))
    assert not accepts(gradcheck, scaled_sin(1 + 1e-5), (x,))


def test_raise_exception_raises_what_otherwise_is_false(gradcheck, scaled_sin, x):
    result = gradcheck(scaled_sin(-1.0), (x,), raise_exception=False)

    assert not result
    with pytest.raises(adjudge.GradcheckError):
        gradcheck(scaled_sin(-1.0), (x,))


def test_raise_exception_false_lets_the_exceptions_of_the_user_through(gradcheck, rule, x):
    f = rule(lambda x: 2 * x, lambda x, w: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        gradcheck(lambda x: 1 / 0, (x,), raise_exception=False)
    with pytest.raises(ZeroDivisionError):
        gradcheck(f, (x,), raise_exception=False)


def test_nondet_tol_is_the_allowed_spread_of_two_backward_passes(gradcheck, rule, x):
    calls = iter(range(100_000))
    f = rule(lambda x: x.sin(), lambda x, w: w * x.cos() * (1 + 1e-11 * next(calls)))

    assert accepts(gradcheck, f, (x,), nondet_tol=1e-6)
    with pytest.raises(adjudge.GradcheckError, match=r"NONDETERMINISTIC[\s\S]*nondet_tol="):
        gradcheck(f, (x,))


@pytest.mark.filterwarnings("ignore:Backwards compatibility:UserWarning")  # of the door
def test_check_undefined_grad_finds_a_backward_that_cannot_take_none(gradcheck, rule, x):
    f = rule(lambda x: x.sin(), lambda x, w: w * x.cos(), undefined=True)
    careful = rule(
        lambda x: x.sin(), lambda x, w: None if w is None else w * x.cos(), undefined=True
    )

    assert accepts(gradcheck, careful, (x,))
    assert accepts(gradcheck, f, (x,), check_undefined_grad=False)
    with pytest.raises(adjudge.GradcheckError, match="UNDEFINED: the vjp raises TypeError"):
        gradcheck(f, (x,))


@pytest.mark.filterwarnings("ignore:Backwards compatibility:UserWarning")  # of the door
def test_check_undefined_grad_finds_a_gradient_out_of_nothing(gradcheck, rule, x):
    f = rule(
        lambda x: x.sin(),
        lambda x, w: torch.ones_like(x) if w is None else w * x.cos(),
        undefined=True,
    )

    assert accepts(gradcheck, f, (x,), check_undefined_grad=False)
    with pytest.raises(adjudge.GradcheckError, match="is 1 when the cotangent of every output"):
        gradcheck(f, (x,))


def test_check_undefined_grad_finds_a_tangent_out_of_nothing(gradcheck, rule, x):
    def product(nothing):
        return rule(
            lambda x, y: x * y,
            lambda x, y, w: (w * y, w * x),
            lambda x, y, v, u: (nothing if v is None else v) * y + (0 if u is None else u) * x,
            undefined=True,
        )

    y = torch.tensor([2.0, 3.0, 5.0], dtype=torch.float64, requires_grad=True)
    options = {"check_forward_ad": True, "check_backward_ad": False}

    assert accepts(gradcheck, product(0), (x, y), **options)
    with pytest.raises(adjudge.GradcheckError, match="do not act as zeros"):
        gradcheck(product(1), (x, y), **options)


def test_check_batched_grad_finds_a_backward_that_vmap_cannot_run(gradcheck, rule, x):
    f = rule(lambda x: x.sin(), lambda x, w: w * x.cos() * (1 + 0 * w.sum().item()))

    assert accepts(gradcheck, torch.sin, (x,), check_batched_grad=True)
    assert accepts(gradcheck, f, (x,))
    with pytest.raises(adjudge.GradcheckError, match=r"vmapped vjp for out raises RuntimeError"):
        gradcheck(f, (x,), check_batched_grad=True)


def test_check_batched_grad_finds_a_backward_that_differs_under_vmap(gradcheck, rule, x):
    def backward(x, w):
        return w * x.cos() * (2 if torch._C._functorch.is_batchedtensor(w) else 1)

    f = rule(lambda x: x.sin(), backward)

    assert accepts(gradcheck, f, (x,))
    with pytest.raises(adjudge.GradcheckError, match="INCONSISTENT: the vmapped vjp"):
        gradcheck(f, (x,), check_batched_grad=True)


def test_check_batched_forward_grad_compares_the_vmapped_jvp_with_the_loop(gradcheck, x):
    def f(x):
        transformed = torch._C._functorch.peek_interpreter_stack() is not None
        return 2 * x.sin() - x.sin().detach() if transformed else x.sin()

    options = {"check_forward_ad": True, "check_backward_ad": False}

    assert accepts(gradcheck, torch.sin, (x,), check_batched_forward_grad=True, **options)
    assert accepts(gradcheck, f, (x,), **options)
    assert not accepts(gradcheck, f, (x,), check_batched_forward_grad=True, **options)


def test_check_forward_ad_compares_the_jvp(gradcheck, scaled_sin, x):
    f = scaled_sin(jvp=1.01)

    assert accepts(gradcheck, scaled_sin(), (x,), check_forward_ad=True)
    assert accepts(gradcheck, f, (x,))
    assert not accepts(gradcheck, f, (x,), check_forward_ad=True)


def test_check_backward_ad_false_leaves_the_backward_alone(gradcheck, scaled_sin, x):
    f = scaled_sin(backward=-1.0)

    assert not accepts(gradcheck, f, (x,), check_forward_ad=True)
    assert accepts(gradcheck, f, (x,), check_forward_ad=True, check_backward_ad=False)


def test_check_batched_forward_grad_wants_a_jvp_that_vmap_can_run(gradcheck, scaled_sin, x):
    # an autograd.Function without setup_context, which torch.func refuses to transform
    f = scaled_sin()

    assert accepts(gradcheck, f, (x,), check_forward_ad=True)
    with pytest.raises(adjudge.GradcheckError, match=r"RAISED: the vmapped jvp for inputs\[0\]"):
        gradcheck(f, (x,), check_forward_ad=True, check_batched_forward_grad=True)


def test_check_grad_dtypes_finds_a_complex_tangent_of_a_real_output(gradcheck, rule, x):
    f = rule(lambda x: 2 * x, lambda x, w: 2 * w, lambda x, v: (2 * v).to(torch.complex128))
    options = {"check_forward_ad": True}

    assert accepts(gradcheck, f, (x,), check_grad_dtypes=False, **options)
    with pytest.raises(adjudge.GradcheckError, match="the tangent of out is complex128"):
        gradcheck(f, (x,), check_grad_dtypes=True, **options)


@pytest.mark.parametrize("fast", [False, True])
def test_fast_mode_finds_the_wrong_sign_and_accepts_the_right_one(gradcheck, scaled_sin, fast):
    x = torch.linspace(-1, 1, 300, dtype=torch.float64).requires_grad_()

    assert accepts(gradcheck, scaled_sin(), (x,), fast_mode=fast)
    assert not accepts(gradcheck, scaled_sin(-1.0), (x,), fast_mode=fast)


def test_fast_mode_costs_a_few_evaluations_and_full_mode_two_an_entry(gradcheck):
    x = torch.linspace(-1, 1, 200, dtype=torch.float64).requires_grad_()
    calls = []

    def f(x):
        calls.append(1)
        return (x + x.mean()).sin()  # no two columns can be taken together

    gradcheck(f, (x,), fast_mode=True)
    fast = len(calls)
    gradcheck(f, (x,), fast_mode=False)

    assert fast <= 6
    assert len(calls) - fast >= 2 * x.numel()


@pytest.mark.parametrize(
    "flags",
    [
        {"check_backward_ad": False},
        {"check_backward_ad": False, "check_forward_ad": True, "check_batched_grad": True},
        {"check_batched_forward_grad": True},
    ],
)
def test_flags_that_contradict_one_another_are_refused_by_name(gradcheck, x, flags):
    with pytest.raises(adjudge.InputError, match=r"check_(backward|forward)_ad"):
        gradcheck(torch.sin, (x,), **flags)


@pytest.mark.parametrize("name", ["eps", "atol", "rtol", "nondet_tol"])
@pytest.mark.parametrize("value", [-1.0, float("nan"), "tight"])
def test_numbers_without_meaning_are_refused_by_name(gradcheck, x, name, value):
    with pytest.raises(adjudge.InputError, match=f"{name}="):
        gradcheck(torch.sin, (x,), **{name: value})
