"""Hand-written `autograd.Function`s with planted errors, of first and second order."""

import pytest
from frameworks import torch
from scenarios import over_seeds, seeds

import adjudge
from adjudge import Status

pytestmark = pytest.mark.backend("torch")


@pytest.fixture
def x():
    torch.manual_seed(0)
    return torch.randn(3, 3, dtype=torch.float64, requires_grad=True)


@pytest.fixture
def weight():
    torch.manual_seed(1)
    return torch.randn(3, 3, dtype=torch.float64)


def drop_entry(g):
    g = g.clone()
    g[1, 2] = 0
    return g


def swap_two(g):
    g = g.clone()
    g[0, 1], g[0, 2] = g[0, 2].clone(), g[0, 1].clone()
    return g


WRONG = {
    "sign": lambda g: -g,
    "factor": lambda g: 1.00001 * g,
    "half": lambda g: g / 2,
    "zero": lambda g: 0 * g,
    "one entry": drop_entry,
    "two entries swapped": swap_two,
    "transposed": lambda g: g.t(),
    "NaN": lambda g: g * float("nan"),
    "constant": lambda g: g + 1e-6,
    "missing": lambda g: None,
}


# the door hands a rule on as it is, so that it sees each error in one mode
@pytest.mark.parametrize(
    ("gradcheck", "fast"),
    [("adjudge", False), ("adjudge", True), ("adjudge_torch", True)],
    indirect=["gradcheck"],
    ids=["full", "fast", "door"],
)
@pytest.mark.parametrize("wrong", WRONG)
def test_a_planted_error_is_found(gradcheck, rule, x, weight, wrong, fast):
    right = rule(lambda x: weight @ x.sin(), lambda x, w: (weight.t() @ w) * x.cos())
    planted = rule(
        lambda x: weight @ x.sin(), lambda x, w: WRONG[wrong]((weight.t() @ w) * x.cos())
    )

    assert gradcheck(right, (x,), fast_mode=fast)
    assert not gradcheck(planted, (x,), raise_exception=False, fast_mode=fast)


@pytest.mark.parametrize("fast", [False, True], ids=["full", "fast"])
def test_a_broadcast_gradient_that_is_not_summed_is_found(gradcheck, rule, x, fast):
    b = torch.tensor([0.3, -0.7, 1.1], dtype=torch.float64, requires_grad=True)
    right = rule(lambda x, b: x * b, lambda x, b, w: (w * b, (w * x).sum(0)))
    planted = rule(lambda x, b: x * b, lambda x, b, w: (w * b, (w * x)[0]))

    assert gradcheck(right, (x, b), fast_mode=fast)
    assert not gradcheck(planted, (x, b), raise_exception=False, fast_mode=fast)


def test_a_gradient_that_the_engine_reduces_to_the_shape_of_its_input_passes(gradcheck, rule, x):
    b = torch.tensor([0.3, -0.7, 1.1], dtype=torch.float64, requires_grad=True)
    f = rule(lambda x, b: x * b, lambda x, b, w: (w * b, w * x))

    assert gradcheck(f, (x, b))


def test_a_gradient_of_a_shape_that_cannot_be_reduced_is_refused_by_the_engine(gradcheck, rule, x):
    f = rule(lambda x: 2 * x, lambda x, w: torch.ones(7, dtype=torch.float64))

    with pytest.raises(RuntimeError, match=r"got \[7\] but expected shape compatible with"):
        gradcheck(f, (x,), raise_exception=False)


def test_a_value_kept_from_an_earlier_call_is_found_at_the_next_point(gradcheck, rule, x):
    kept = []

    def backward(x, w):
        kept.append(x.detach().clone())
        return w * kept[0].cos()

    f = rule(lambda x: x.sin(), backward)

    assert gradcheck(f, (x,))
    assert not gradcheck(f, ((x + 1).detach().requires_grad_(),), raise_exception=False)


def test_a_gradient_where_the_function_is_constant_is_spurious(rule, x):
    f = rule(lambda x: torch.ones_like(x), lambda x, w: w)

    report = adjudge.examine(f, (x,))

    assert {Status.SPURIOUS} == {finding.status for finding in report.findings}


def test_a_missing_gradient_is_called_missing(rule, x):
    f = rule(lambda x: x.sin(), lambda x, w: None)

    report = adjudge.examine(f, (x,))

    assert {Status.MISSING} == {finding.status for finding in report.findings}
    assert "automatic 0, reference" in report.headline


@pytest.mark.parametrize(
    "backward",
    [lambda x, w: 2 * w + 1e-3, lambda x, w: 2 * w.abs(), lambda x, w: 2 * w / w.norm()],
    ids=["offset", "abs", "normalised"],
)
def test_a_backward_that_is_not_linear_is_found(rule, x, backward):
    report = adjudge.examine(rule(lambda x: 2 * x, backward), (x,))

    assert not report
    assert Status.NONLINEAR in {finding.status for finding in report.findings}


def test_a_backward_with_an_offset_gives_something_for_a_zero_cotangent(gradcheck, rule, x):
    f = rule(lambda x: 2 * x, lambda x, w: 2 * w + 1e-3)

    with pytest.raises(adjudge.GradcheckError, match=r"a zero cotangent gives 0\.001"):
        gradcheck(f, (x,))


def test_a_jvp_that_differs_from_the_vjp_is_called_inconsistent(scaled_sin, x):
    report = adjudge.examine(scaled_sin(jvp=1.01), (x,), check_forward_ad=True)

    assert Status.INCONSISTENT in {finding.status for finding in report.findings}
    assert "forward mode  " in str(report)


# -- second order


def test_once_differentiable_fails_of_second_order_only(gradcheck, gradgradcheck, x):
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, w):
            return w * ctx.saved_tensors[0].cos()

    assert gradcheck(Once.apply, (x,))
    with pytest.raises(adjudge.GradcheckError, match="once_differentiable"):
        gradgradcheck(Once.apply, (x,))


def test_a_detached_saved_tensor_is_found_in_the_term_in_x(gradgradcheck, rule, x):
    f = rule(lambda x: x.sin(), lambda x, w: w * x.detach().cos())

    with pytest.raises(
        adjudge.GradcheckError, match=r"MISSING: d .*grad\(inputs\[0\]\).* / d inputs\[0\]"
    ):
        gradgradcheck(f, (x,))


def test_a_detached_cotangent_is_found_in_the_term_in_w(gradgradcheck, rule, x):
    f = rule(lambda x: x.sin(), lambda x, w: w.detach() * x.cos())

    with pytest.raises(
        adjudge.GradcheckError, match=r"MISSING: d .*grad\(inputs\[0\]\).* / d grad_outputs\[0\]"
    ):
        gradgradcheck(f, (x,))


def test_a_backward_cut_off_from_the_graph_is_called_detached(rule, x):
    f = rule(lambda x: x.sin(), lambda x, w: (w * x.cos()).detach())

    report = adjudge.gradgradcheck(f, (x,), raise_exception=False)

    assert {Status.DETACHED} == {finding.status for finding in report.findings}


def test_all_compositions_of_two_modes_are_examined(x):
    modes = ["R", "F", "RR", "FR", "RF", "FF"]

    report = adjudge.examine(torch.sin, (x,), modes=modes)

    assert set(modes) == set(report.modes)
    verdicts = {mode: str(verdict) for mode, verdict in report.modes.items()}
    assert {"PASS"} == {verdicts[mode] for mode in ("R", "F", "RR", "FR")}


LOG = {
    "right": lambda x, w: w / x,
    "something for an undefined cotangent": lambda x, w: w / x + 1e-3 * (x > 0),
}


@pytest.mark.parametrize("backward", LOG)
def test_zeros_that_give_nan_at_a_pole_are_no_undefined_cotangent(rule, backward):
    x = torch.tensor([0.0, 1.0], dtype=torch.float64)
    report = adjudge.examine(rule(torch.log, LOG[backward]), x)

    wrong = backward != "right"
    assert report.verdict is (adjudge.Verdict.FAIL if wrong else adjudge.Verdict.INCONCLUSIVE)
    assert (Status.UNDEFINED in {finding.status for finding in report.findings}) is wrong


@pytest.mark.parametrize("seed", seeds(10))
def test_equal_nan_is_what_a_rule_gives_where_x_is_nan(rule, seed):
    x = torch.tensor([0.3, float("nan")], dtype=torch.float64)
    for backward in (LOG["right"], lambda x, w: 1.01 * w / x):
        report = adjudge.examine(rule(torch.log, backward), x, equal_nan=True, seed=seed)
        assert bool(report) is (backward is LOG["right"])


def test_a_class_of_functions_and_its_forward_are_refused_with_what_to_pass(x):
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, w):
            return 2 * w

    checkpoint = torch.utils.checkpoint.CheckpointFunction
    for f, remedy in (
        (Double, "pass Double.apply"),
        (checkpoint.forward, "pass CheckpointFunction.apply"),
        (torch.nn.Softplus, "pass an object of it"),
    ):
        with pytest.raises(adjudge.InputError) as caught:
            adjudge.examine(f, x)
        assert caught.value.remedy == remedy
    assert adjudge.examine(Double.apply, x, seed=1)


def test_a_hook_on_a_parameter_is_named_as_the_user_wrote_it():
    module = torch.nn.Linear(3, 2).double()

    def halved(gradient):
        return gradient / 2

    module.weight.register_hook(halved)

    report = adjudge.examine(module, torch.ones(4, 3, dtype=torch.float64), seed=1)

    assert "a hook changes the gradient: halved (" in str(report)
    assert "_unless_absent" not in str(report)


OF_TANGENT = {
    "as it is": lambda v: v,
    "clipped": lambda v: v.clamp(-10, 10),
    "without its sign": lambda v: v.abs(),
    "cut off near zero": lambda v: v * (v.abs() > 1e-5),
}
"""What a rule for the derivative of a jvp makes of the tangent of that."""


@over_seeds(10)
@pytest.mark.parametrize("name", OF_TANGENT)
@pytest.mark.parametrize("of", ["loss", "entries"])
def test_the_derivative_of_a_jvp_follows_its_tangent(rule, name, of, seeds):
    made = OF_TANGENT[name]
    push = rule(
        lambda v, x: v * x.cos(),
        lambda v, x, w: (w * x.cos(), -w * made(v) * x.sin()),
    )
    sine = rule(lambda x: x.sin(), lambda x, w: w * x.cos(), lambda x, v: push(v, x))
    x = torch.tensor([0.3, 1.2, -0.4], dtype=torch.float64)

    def f(x):
        return sine(x).sum() if of == "loss" else sine(x)

    for seed in seeds:
        report = adjudge.examine(f, (x,), modes=["F", "RF"], seed=seed, blame=False)
        assert report.modes["F"].name == "PASS"
        assert report.modes["RF"].name == ("PASS" if name == "as it is" else "FAIL")


IN_HALF = {
    "as it is": (lambda w: w, "PASS"),
    "clipped at three": (lambda w: w.clamp(-3, 3), "FAIL"),
    "without its sign": (lambda w: w.abs(), "FAIL"),
}


@pytest.mark.parametrize("name", IN_HALF)
def test_a_second_derivative_in_float16_follows_multiples_for_which_that_has_room(rule, name):
    """A million times the cotangent overflows in float16, and says nothing of a right rule."""
    made, verdict = IN_HALF[name]

    def half(f, *of):
        return f(*(one.half() for one in of)).double()

    pull = rule(
        lambda x, w: half(lambda x, w: w * x.cos(), x, w),
        lambda x, w, u: (
            half(lambda x, w, u: -w * x.sin() * u, x, made(w), u),
            half(lambda x, u: u * x.cos(), x, u),
        ),
    )
    sine = rule(lambda x: half(torch.sin, x), lambda x, w: pull(x, w))
    x = torch.tensor([0.3, 1.2, -0.4], dtype=torch.float64)

    for seed in range(10):
        report = adjudge.examine(sine, (x,), modes=["RR"], seed=seed, blame=False)
        assert report.verdict.name == verdict


def test_a_function_without_a_jvp_is_told_to_have_one(rule):
    x = torch.tensor([0.3, 1.2], dtype=torch.float64)
    report = adjudge.examine(rule(lambda x: x.sin(), lambda x, w: w * x.cos()), (x,), modes=["FR"])

    assert report.modes["FR"] is Status.UNSUPPORTED
    assert "static method jvp" in str(report)


def hooked(register, hook):
    """A function with a hook at the sine of x, which is squared."""

    def f(x):
        y = x.sin()
        register(y, hook)
        return y * y

    return f


def at_module(hook):
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    module[1].register_full_backward_hook(lambda _, inside, outside: hook(outside[0]))
    return module.double()


HOOKED = {
    "of a tensor": lambda hook: hooked(lambda y, hook: y.register_hook(hook), hook),
    "of a node": lambda hook: hooked(
        lambda y, hook: y.grad_fn.register_hook(lambda inside, outside: hook(outside[0])), hook
    ),
    "before a node": lambda hook: hooked(
        lambda y, hook: y.grad_fn.register_prehook(lambda outside: hook(outside[0])), hook
    ),
    "of a module": at_module,
}


@pytest.mark.parametrize("where", HOOKED)
def test_a_hook_that_reads_its_gradient_makes_no_derivative_wrong(x, where):
    """It is handed None where a cotangent is undefined, and raises for that."""
    seen = []
    report = adjudge.examine(HOOKED[where](lambda g: seen.append(g.norm())), x, seed=0, blame=False)

    (found,) = report.findings
    assert report.verdict is adjudge.Verdict.PASS, report
    assert found.status is Status.UNDEFINED
    assert found.note
    assert "a hook of the backward pass raises AttributeError" in str(report)
    assert seen


@pytest.mark.parametrize("hook", [lambda g: 1.01 * g, lambda g: g.clamp(-0.1, 0.1)])
def test_a_hook_that_changes_its_gradient_fails(x, hook):
    report = adjudge.examine(HOOKED["of a tensor"](hook), x, seed=0, blame=False)

    assert report.verdict is adjudge.Verdict.FAIL


@pytest.mark.parametrize("words", ["", "an undefined gradient is not implemented"])
def test_a_rule_that_raises_for_an_undefined_cotangent_below_a_hook_fails(x, words):
    """Also in words by which an engine refuses what it does not offer."""

    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.set_materialize_grads(False)
            return x.sin()

        @staticmethod
        def backward(ctx, w):
            (x,) = ctx.saved_tensors
            if w is None and words:
                raise NotImplementedError(words)
            return w.clone() * x.cos()

    def f(x):
        y = Sine.apply(x)
        y.register_hook(lambda g: None)
        return y * y

    report = adjudge.examine(f, x, seed=0, blame=False)

    assert report.verdict is adjudge.Verdict.FAIL
    assert "the vjp raises" in str(report)
    assert (words or "AttributeError") in str(report)
