"""Every parameter of `gradcheck` and `gradgradcheck` of PyTorch, by the verb and by the door."""

import importlib

import pytest
from frameworks import torch

import adjudge

pytestmark = pytest.mark.backend("torch")


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


# ---------------------------------------------------------------- what a parameter decides


def by_number(slope):
    """A backward pass whose cotangent goes through a Python number, which vmap refuses."""
    return lambda x, w: w * slope(x) * (1 + 0 * w.sum().item())


def drifting(x, w):
    """A backward pass that gives another number at every call."""
    calls.append(1)
    return w * x.cos() * (1 + 1e-11 * len(calls))


calls = []


def batched(x, w):
    return w * x.cos() * (2 if torch._C._functorch.is_batchedtensor(w) else 1)


def transformed(x):
    inside = torch._C._functorch.peek_interpreter_stack() is not None
    return 2 * x.sin() - x.sin().detach() if inside else x.sin()


def raw_memory(x, w):
    return torch.as_strided(w, x.shape, x.stride()) * x.cos()


def second(rule, backward, jvp=None, **more):
    """`sin` whose gradient has these rules of its own."""
    pullback = rule(lambda x, w: w * x.cos(), backward, jvp, **more)
    return rule(lambda x: x.sin(), pullback, None if jvp is None else lambda x, v: v * x.cos())


def of_nothing(nothing):
    """A gradient that takes an absent cotangent for something."""
    return lambda x, w: nothing(x) if w is None else w * x.cos()


FUNCTIONS = {
    "sin": lambda rule: torch.sin,
    "slope": lambda rule: rule(lambda x: 2 * x, lambda x, w: 2 * w + 1e-3 * w),
    "drifts": lambda rule: rule(lambda x: x.sin(), drifting),
    "takes no None": lambda rule: rule(lambda x: x.sin(), lambda x, w: w * x.cos(), undefined=True),
    "careful": lambda rule: rule(lambda x: x.sin(), of_nothing(lambda x: None), undefined=True),
    "out of nothing": lambda rule: rule(
        lambda x: x.sin(), of_nothing(torch.ones_like), undefined=True
    ),
    "by a number": lambda rule: rule(lambda x: x.sin(), by_number(lambda x: x.cos())),
    "batched": lambda rule: rule(lambda x: x.sin(), batched),
    "transformed": lambda rule: transformed,
    "raw memory": lambda rule: rule(lambda x: x.sin(), raw_memory),
    "complex tangent": lambda rule: rule(
        lambda x: 2 * x, lambda x, w: 2 * w, lambda x, v: (2 * v).to(torch.complex128)
    ),
    "takes no None twice": lambda rule: second(
        rule, lambda x, w, u: (-u * w * x.sin(), u * x.cos()), undefined=True
    ),
    "complex tangent of the gradient": lambda rule: second(
        rule,
        lambda x, w, u: (-u * w * x.sin(), u * x.cos()),
        lambda x, w, v, z: (z * x.cos() - v * w * x.sin()).to(torch.complex128),
    ),
    "by a number twice": lambda rule: second(
        rule, lambda x, w, u: (-u * w * x.sin() * (1 + 0 * u.sum().item()), u * x.cos())
    ),
}


def scaled(*factors):
    return ("scaled_sin", factors)


def twice(*factors):
    return ("wrong_twice", factors)


FORWARD = {"check_forward_ad": True}
ALONE = {**FORWARD, "check_backward_ad": False}
OVER = {"check_fwd_over_rev": True}
VMAPPED = {"check_batched_forward_grad": True}
# the verb and the function; the options with which it is accepted, and those with which it is not,
# with words of the message
STEPS = (1e-9, 1e-4, 1e-2, 0.5)
PARAMETERS = {
    # a step that does not suit the function is another first step, and no verdict
    "eps": ("gradcheck", "sin", [{"eps": eps, "rtol": 1e-6} for eps in STEPS], [], ""),
    "eps, wrong": ("gradcheck", scaled(1.01), [], [{"eps": eps} for eps in STEPS], ""),
    "atol": (
        "gradcheck", "slope", [{"atol": 1e-2, "rtol": 0.0}], [{"atol": 1e-4, "rtol": 0.0}], "",
    ),
    "rtol": (
        "gradcheck", scaled(1.001), [{"rtol": 1e-2, "atol": 0.0}], [{"rtol": 1e-4, "atol": 0.0}],
        "",
    ),
    "neither": ("gradcheck", scaled(1 + 1e-5), [], [{}], ""),
    "nondet_tol": (
        "gradcheck", "drifts", [{"nondet_tol": 1e-6}], [{}],
        r"NONDETERMINISTIC[\s\S]*nondet_tol=",
    ),
    "undefined, right": ("gradcheck", "careful", [{}], [], ""),
    "undefined": (
        "gradcheck", "takes no None", [{"check_undefined_grad": False}], [{}],
        "UNDEFINED: the vjp raises TypeError",
    ),
    "undefined, out of nothing": (
        "gradcheck", "out of nothing", [{"check_undefined_grad": False}], [{}],
        "is 1 when the cotangent of every output",
    ),
    "batched, right": ("gradcheck", "sin", [{"check_batched_grad": True}], [], ""),
    "batched": (
        "gradcheck", "by a number", [{}], [{"check_batched_grad": True}],
        "vmapped vjp for out raises RuntimeError",
    ),
    "batched, another value": (
        "gradcheck", "batched", [{}], [{"check_batched_grad": True}],
        "INCONSISTENT: the vmapped vjp",
    ),
    "batched forward, right": ("gradcheck", "sin", [{**ALONE, **VMAPPED}], [], ""),
    "batched forward": ("gradcheck", "transformed", [ALONE], [{**ALONE, **VMAPPED}], ""),
    # an autograd.Function without setup_context, which torch.func refuses to transform
    "batched forward, refused": (
        "gradcheck", scaled(), [FORWARD], [{**FORWARD, **VMAPPED}],
        r"RAISED: the vmapped jvp for inputs\[0\]",
    ),
    "forward": ("gradcheck", scaled(1.0, 1.01), [{}], [FORWARD], ""),
    "backward": ("gradcheck", scaled(-1.0), [ALONE], [FORWARD], ""),
    "dtypes": (
        "gradcheck", "complex tangent", [{**FORWARD, "check_grad_dtypes": False}],
        [{**FORWARD, "check_grad_dtypes": True}], "the tangent of out is complex128",
    ),
    "second order": ("gradgradcheck", twice(1.01), [], [{}], ""),
    "second order, right": (
        "gradgradcheck", twice(), [{}, OVER, {"gen_non_contig_grad_outputs": True}], [], "",
    ),
    "second order, non-contiguous": (
        "gradgradcheck", "raw memory", [{}], [{"gen_non_contig_grad_outputs": True}], "",
    ),
    "second order, forward over reverse": (
        "gradgradcheck", twice(1.0, 1.01), [{}], [OVER], "",
    ),
    "second order, reverse over reverse": (
        "gradgradcheck", twice(-1.0), [{**OVER, "check_rev_over_rev": False}], [OVER], "",
    ),
    "second order, eps": ("gradgradcheck", "sin", [{"eps": 0.5, "rtol": 1e-6}], [], ""),
    "second order, eps, wrong": ("gradgradcheck", twice(1.01), [], [{"eps": 0.5}], ""),
    "second order, atol and rtol": (
        "gradgradcheck", twice(1.01), [{"rtol": 0.1}, {"atol": 0.1}],
        [{"rtol": 1e-4}, {"atol": 1e-4}], "",
    ),
    "second order, nondet_tol": ("gradgradcheck", "drifts", [{"nondet_tol": 1e-6}], [{}], ""),
    "second order, undefined": (
        "gradgradcheck", "takes no None twice", [{"check_undefined_grad": False}], [{}], "",
    ),
    "second order, dtypes": (
        "gradgradcheck", "complex tangent of the gradient",
        [{**OVER, "check_grad_dtypes": False}], [{**OVER, "check_grad_dtypes": True}], "",
    ),
    "second order, batched": (
        "gradgradcheck", "by a number twice", [{}], [{"check_batched_grad": True}], "",
    ),
    "second order, batched and right": (
        "gradgradcheck", "sin", [{"check_batched_grad": True}], [], "",
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Backwards compatibility:UserWarning")  # of the door
@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.parametrize("module", ["adjudge", "adjudge_torch"])
def test_a_parameter_decides_what_is_accepted(module, name, rule, request):
    verb, function, accepted, refused, words = PARAMETERS[name]
    check = getattr(importlib.import_module(module), verb)
    if isinstance(function, tuple):
        f = request.getfixturevalue(function[0])(*function[1])
    else:
        f = FUNCTIONS[function](rule)
    # columns of a matrix are what a strided cotangent has
    x = torch.tensor([[0.3, -0.7], [1.1, 0.4]], dtype=torch.float64, requires_grad=True)

    for options in accepted:
        assert accepts(check, f, (x,), **options), options
    for options in refused:
        with pytest.raises(adjudge.GradcheckError, match=words or None):
            check(f, (x,), **options)
        assert not accepts(check, f, (x,), **options)


def test_eps_is_the_absolute_step(gradcheck, x):
    seen = []

    def f(x):
        seen.append(x.detach().clone())
        return x * x  # a central difference at any step is exact

    gradcheck(f, (x,), eps=2.0**-10, rtol=1e-3, fast_mode=False)

    steps = {round(float((point - x.detach()).abs().max()), 12) for point in seen}
    assert {0.0, round(2.0**-10, 12)} == steps


def test_eps_that_does_not_move_x_is_refused(gradcheck):
    x = torch.tensor([1e20], dtype=torch.float64, requires_grad=True)

    with pytest.raises(adjudge.InputError, match=r"does not move inputs\[0\]\[0\]"):
        gradcheck(torch.sin, (x,), eps=1e-6)


def test_raise_exception_false_lets_the_exceptions_of_the_user_through(gradcheck, rule, x):
    f = rule(lambda x: 2 * x, lambda x, w: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        gradcheck(lambda x: 1 / 0, (x,), raise_exception=False)
    with pytest.raises(ZeroDivisionError):
        gradcheck(f, (x,), raise_exception=False)


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


# ---------------------------------------------------------------- second order


@pytest.fixture
def watched(rule):
    """`sin`, and the cotangents that its backward pass has seen."""
    seen = []

    def backward(x, w):
        seen.append(w.detach().clone())
        return w * x.cos()

    return rule(lambda x: x.sin(), backward), seen


def test_a_wrong_first_derivative_is_found_although_the_second_fits_it(gradgradcheck, rule, x):
    f = rule(lambda x: x.sin(), lambda x, w: -w * x.cos())

    with pytest.raises(adjudge.GradcheckError, match=r"MISMATCH: d f / d inputs\[0\]"):
        gradgradcheck(f, (x,))
    assert torch.autograd.gradgradcheck(f, (x,))


def test_grad_outputs_is_the_cotangent_that_the_backward_sees(gradgradcheck, watched, x):
    sin, seen = watched
    given = torch.tensor([3.0, 5.0, 7.0], dtype=torch.float64)

    gradgradcheck(sin, (x,), given)

    assert any(torch.equal(given, w) for w in seen)


def test_random_grad_outputs_have_signs(gradgradcheck, watched):
    sin, seen = watched
    x = torch.linspace(-1, 1, 40, dtype=torch.float64).requires_grad_()
    gradgradcheck(sin, (x,), fast_mode=True)

    assert all(bool((w < 0).any() and (w > 0).any()) for w in seen if w.any())


def test_grad_outputs_without_requires_grad_are_checked_all_the_same(gradgradcheck, rule, x):
    detached = rule(lambda x: x.sin(), lambda x, w: w.detach() * x.cos())
    ones = torch.ones(3, dtype=torch.float64)

    with pytest.raises(adjudge.GradcheckError, match=r"/ d grad_outputs\[0\]"):
        gradgradcheck(detached, (x,), ones)
    assert torch.autograd.gradgradcheck(detached, (x,), ones)


def test_none_among_grad_outputs_is_a_zero_cotangent(gradgradcheck, watched, x):
    sin, seen = watched

    assert accepts(gradgradcheck, lambda x: (sin(x), x.exp()), (x,), (None, torch.ones_like(x)))
    assert any(not w.any() for w in seen)


@pytest.mark.parametrize(
    ("grad_outputs", "words"),
    [
        (lambda x: torch.ones(4, dtype=torch.float64), r"shape \(4,\), out has \(3,\)"),
        (lambda x: (x, x), "2 entries for 1 differentiable output"),
        (lambda x: [1.0], r"grad_outputs\[0\] is a float"),
    ],
)
def test_grad_outputs_that_do_not_fit_are_refused_in_words(gradgradcheck, x, grad_outputs, words):
    with pytest.raises(adjudge.InputError, match=words or None):
        gradgradcheck(torch.sin, (x,), grad_outputs(x))


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
