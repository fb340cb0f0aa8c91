"""Inputs and outputs of unusual structure, and what torch.autograd.gradcheck makes of them."""

from collections import namedtuple

import pytest
from frameworks import adjudge_torch, torch
from scenarios import seeds

import adjudge

pytest.importorskip("torch")
pytestmark = pytest.mark.backend("torch")

Pair = namedtuple("Pair", ["value", "index"])


# -- inputs


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (2, 0, 3)])
def test_an_input_of_any_shape_beside_another_is_checked(gradcheck, x, shape):
    y = torch.full(shape, 0.4, dtype=torch.float64, requires_grad=True)

    assert gradcheck(lambda x, y: x.sin() * y.exp().sum(), (x, y))


def test_a_scalar_input_is_checked_and_its_wrong_gradient_found(gradcheck, scaled_sin):
    x = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)

    assert gradcheck(torch.sin, (x,))
    with pytest.raises(adjudge.GradcheckError, match="d out / d inputs"):
        gradcheck(scaled_sin(-1.0), (x,))


def test_the_door_accepts_what_is_empty_as_torch_does(x):
    import adjudge_torch

    empty = torch.zeros(0, dtype=torch.float64, requires_grad=True)

    for check in (torch.autograd.gradcheck, adjudge_torch.gradcheck):
        assert check(torch.sin, (empty,))
        assert check(lambda x: x[:0], (x,))
        assert check(torch.mean, (empty,))
    for f in (torch.sin, torch.mean):
        assert adjudge_torch.gradgradcheck(f, (empty,))


def test_a_single_array_and_a_list_of_inputs_are_taken_as_inputs(gradcheck, x):
    assert gradcheck(torch.sin, x)
    assert gradcheck(torch.mul, [x, x.detach().clone().requires_grad_()])


class Scaled(torch.nn.Module):
    """Multiplies by what it finds among its parameters."""

    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, x, rule):
        held = dict(self.named_parameters()).get("weight", torch.zeros(()))
        return rule(x.sin() * held)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_parameter_among_the_inputs_stays_one(gradcheck, gradgradcheck, scaled_sin, dtype):
    x = torch.tensor([0.3, -1.2], dtype=dtype, requires_grad=True)
    weight = torch.nn.Parameter(torch.tensor([1.1, 0.6], dtype=dtype))

    def f(weight, x, rule=torch.sin):
        return Scaled(weight)(x, rule)

    assert gradcheck(f, (weight, x), check_forward_ad=True)
    assert gradgradcheck(f, (weight, x))
    assert gradgradcheck(f, (weight, x), check_fwd_over_rev=True, check_rev_over_rev=False)
    with pytest.raises(adjudge.GradcheckError, match=r"inputs\[0\]"):
        gradcheck(lambda weight, x: f(weight, x, scaled_sin(1.01)), (weight, x))


def test_a_module_has_the_name_of_its_class_in_what_a_door_says(x):
    import adjudge_torch

    class Clipped(torch.nn.Module):
        def forward(self, x):
            return x.sin() + x.detach()

    with pytest.raises(adjudge.GradcheckError, match="FAIL Clipped: MISMATCH"):
        adjudge_torch.gradcheck(Clipped(), (x,))


def test_a_subclass_of_parameter_keeps_what_it_was_given(gradcheck):
    class Angle(torch.nn.Parameter):
        pass

    angle = Angle(torch.tensor([0.3, -1.2], dtype=torch.float64))
    angle.period = 2.0

    assert gradcheck(lambda angle: (angle * angle.period).sin(), (angle,))


def test_an_unused_input_has_the_gradient_zero(gradcheck, x):
    y = x.detach().clone().requires_grad_()

    assert gradcheck(lambda x, y: 2 * x, (x, y))


def test_a_function_may_return_its_input(gradcheck, x):
    assert gradcheck(lambda x: x, (x,))


def test_a_transposed_input_keeps_its_strides(gradcheck):
    x = torch.arange(6.0, dtype=torch.float64).reshape(2, 3).t().requires_grad_()
    strides = set()

    def f(x):
        strides.add(x.stride())
        return x.sin()

    assert gradcheck(f, (x,))
    assert {x.stride()} == strides


def test_the_same_tensor_twice_is_two_inputs(gradcheck, x):
    assert gradcheck(lambda a, b: a * b.sin(), (x, x))


def test_two_inputs_may_share_their_storage(gradcheck):
    storage = torch.tensor([0.3, -0.7, 1.1, 0.5], dtype=torch.float64)
    a, b = storage[:3].requires_grad_(), storage[1:].requires_grad_()

    assert gradcheck(lambda a, b: a * b, (a, b))
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        torch.autograd.gradcheck(lambda a, b: a * b, (a, b))


def test_an_input_may_overlap_itself(gradcheck):
    storage = torch.tensor([0.3, -0.7, 1.1, 0.5], dtype=torch.float64)
    x = torch.as_strided(storage, (3, 2), (1, 1)).requires_grad_()

    assert gradcheck(lambda x: x * x, (x,))
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        torch.autograd.gradcheck(lambda x: x * x, (x,))


def test_an_expanded_input_of_stride_zero_is_checked_entry_by_entry(gradcheck, scaled_sin):
    x = torch.tensor([[0.3], [-0.7]], dtype=torch.float64).expand(2, 3).requires_grad_()

    assert gradcheck(torch.sin, (x,))
    assert not gradcheck(scaled_sin(-1.0), (x,), raise_exception=False)
    with pytest.raises(RuntimeError, match="stride 0"):
        torch.autograd.gradcheck(torch.sin, (x,))


def test_nested_inputs_are_checked_and_named_by_path(x):
    def f(tree):
        return tree["w"][0] * tree["b"].detach()

    tree = {"w": [x], "b": x.detach().clone().requires_grad_()}

    report = adjudge.examine(f, (tree,), mode="full")

    assert adjudge.gradcheck(lambda tree: tree["w"][0] * tree["b"], (tree,))
    assert {"inputs[0]['b']"} == {entry.wrt.rpartition("[")[0] for entry in report.entries}


def test_integers_and_python_numbers_are_passed_through(gradcheck, x):
    index = torch.tensor([0, 2])

    assert gradcheck(lambda index, x, k: k * x[index].sin(), (index, x, 3))


# -- outputs


@pytest.mark.parametrize(
    "wrap",
    [
        lambda y: [y, y.cos()],
        lambda y: (y, y.cos()),
        lambda y: Pair(y, y.argmax()),
        lambda y: {"sin": y, "cos": [y.cos()]},
        lambda y: (y, None),
        lambda y: (y, 3, 3.5, "word"),
        lambda y: (y, y > 0),
        lambda y: (y.argmax(), y),
        lambda y: (y.to(torch.complex128), y),
    ],
    ids=["list", "tuple", "namedtuple", "dict", "None", "numbers", "bool", "int first", "mixed"],
)
def test_outputs_may_be_any_tree_with_other_things_in_it(gradcheck, scaled_sin, x, wrap):
    assert gradcheck(lambda x: wrap(x.sin()), (x,))
    assert not gradcheck(lambda x: wrap(scaled_sin(-1.0)(x)), (x,), raise_exception=False)


def test_only_integer_outputs_are_refused_in_words(gradcheck, x):
    with pytest.raises(adjudge.InputError, match="nothing that can be differentiated"):
        gradcheck(lambda x: x.argmax(), (x,))


def test_a_function_without_outputs_is_refused_but_by_the_door(x):
    with pytest.warns(UserWarning, match="returns no output: nothing is checked"):
        assert adjudge_torch.gradcheck(lambda x: (), (x,))
    with pytest.raises(adjudge.InputError, match="nothing that can be differentiated"):
        adjudge.gradcheck(lambda x: (), (x,))


def test_constant_outputs_have_the_gradient_zero(gradcheck, x):
    report = adjudge.examine(lambda x: torch.ones(3, dtype=torch.float64), (x,))

    assert gradcheck(lambda x: torch.ones(3, dtype=torch.float64), (x,))
    assert 0 == report.counts["nonzero"]
    assert "all zero" in report.headline


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"fast_mode": True},
        {"check_forward_ad": True},
        {"check_forward_ad": True, "fast_mode": True},
        {"check_forward_ad": True, "check_backward_ad": False},
    ],
    ids=["R", "R fast", "R and F", "R and F fast", "F"],
)
def test_a_constant_output_before_another_is_right_in_all_modes(gradcheck, x, options):
    assert gradcheck(lambda x: (torch.zeros_like(x), x * x), (x,), **options)


def test_a_wrong_output_after_a_constant_one_is_named(gradcheck, scaled_sin, x):
    with pytest.raises(adjudge.GradcheckError, match=r"d out\[1\]\[\d\] / d inputs\[0\]"):
        gradcheck(lambda x: (torch.zeros_like(x), scaled_sin(-1.0)(x)), (x,))


@pytest.mark.parametrize("fast", [False, True])
def test_a_backward_that_writes_into_its_cotangent_is_found(gradcheck, rule, x, fast):
    f = rule(lambda x: 2 * x, lambda x, w: w.mul_(2))

    with pytest.raises(adjudge.GradcheckError, match=r"MUTATES_INPUT: the vjp \(backward pass\)"):
        gradcheck(f, (x,), fast_mode=fast)


@pytest.mark.parametrize("change", ["shape", "dtype"])
def test_outputs_that_change_between_evaluations_are_refused(gradcheck, x, change):
    calls = iter(range(1000))

    def f(x):
        if next(calls) < 2:
            return 2 * x
        return 2 * x[:2] if change == "shape" else (2 * x).float()

    with pytest.raises(AssertionError, match=r"of shape \(3,\).*in evaluation 3"):
        gradcheck(f, (x,))


# -- outputs that are not finite


MASK = [[False, True, False], [True, False, False]]


def masked(x):
    return x.sin().masked_fill(torch.tensor(MASK), -torch.inf)


def top_k(x):
    values, indices = x.exp().topk(2)
    return torch.full_like(x, -torch.inf).scatter(-1, indices, values)


def additive(x):
    return x.sin() + torch.tensor(MASK).logical_not().log()


def undefined(x):
    return torch.where(torch.tensor(MASK), torch.nan, x.exp())


@pytest.mark.parametrize("f", [masked, top_k, additive, undefined])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_outputs_that_are_not_finite_are_left_out(f, dtype, rule):
    x = torch.tensor([[0.3, -0.7, 1.1], [2.0, 0.1, -1.3]], dtype=getattr(torch, dtype))
    x.requires_grad_()

    def scaled(factor):
        def backward(x, w):
            with torch.enable_grad():
                leaf = x.detach().requires_grad_()
                return factor * torch.autograd.grad(f(leaf), leaf, w)[0]

        return rule(f, backward)

    for seed in range(4 if dtype == "float64" else 1):
        report = adjudge.gradcheck(f, (x,), modes=["R", "F"], seed=seed)

        assert adjudge.Status.NONFINITE in {finding.status for finding in report.findings}
        for factor, verdict in ((1.0, "PASS"), (-1.0, "FAIL"), (1.1, "FAIL")):
            assert str(adjudge.examine(scaled(factor), (x,), seed=seed).verdict) == verdict


def test_second_derivatives_beside_a_mask_are_judged():
    x = torch.tensor([[0.3, -0.7, 1.1], [2.0, 0.1, -1.3]], dtype=torch.float64)

    adjudge.gradcheck(masked, (x.requires_grad_(),), modes=["R", "F", "RR", "FR", "RF"])


def test_zero_tensors_of_forward_mode_are_read_in_a_batch(scaled_sin):
    x = torch.tensor([0.3, -0.7, 1.1], dtype=torch.float64)

    assert adjudge.gradcheck(lambda x: 2 * x, (x,), modes=["R", "RF"])
    assert not adjudge.examine(lambda x: 2 * x + scaled_sin(-1.0)(x), (x,), modes=["R", "RF"])


def test_a_second_derivative_of_what_stands_still_at_x_is_judged():
    x = torch.zeros(2, 2, dtype=torch.float64)

    report = adjudge.examine(lambda x: torch.renorm(x, 2, 0, 1.0), x, modes=["R", "RR"], seed=0)

    # PyTorch's rule of second order is not zero there, as it should be.
    assert report.modes == {"R": adjudge.Verdict.PASS, "RR": adjudge.Verdict.FAIL}


class SineAndExp(torch.autograd.Function):
    """Both, whose derivative forgets the sine where there is a cotangent of each."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        return x.sin(), x.exp()

    @staticmethod
    def backward(ctx, of_sin, of_exp):
        (x,) = ctx.saved_tensors
        if of_exp is not None:
            return of_exp * x.exp()
        return None if of_sin is None else of_sin * x.cos()


@pytest.mark.parametrize("mode", ["projected", "full"])
@pytest.mark.parametrize("seed", seeds(10))
def test_a_rule_that_forgets_an_output_where_there_are_cotangents_of_several_fails(seed, mode, x):
    def right(x):
        return x.sin(), x.exp()

    report = adjudge.examine(SineAndExp.apply, (x,), seed=seed, mode=mode)

    assert "NONLINEAR" in report.headline
    assert adjudge.examine(right, (x,), seed=seed, mode=mode)
    assert adjudge.examine(lambda x: SineAndExp.apply(x)[0], (x,), seed=seed, mode=mode)


@pytest.mark.parametrize(
    ("returned", "named"),
    [
        (lambda x: float(x.detach().sum()), "out (float)"),
        (lambda x: [x.detach()[0].item(), "a"], "out[0] (float), out[1] (str)"),
    ],
)
def test_what_comes_back_in_place_of_arrays_is_named(returned, named):
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)

    with pytest.raises(adjudge.InputError) as caught:
        adjudge.examine(returned, x)

    assert f"{named} is no floating or complex array of torch" in caught.value.found
    assert "a Python number carries no derivative" in caught.value.remedy


def test_an_array_of_numpy_as_result_is_said_to_be_one():
    x = torch.ones(3, dtype=torch.float64)

    with pytest.raises(adjudge.InputError) as caught:
        adjudge.examine(lambda x: x.detach().numpy(), x)

    assert "out (float64 of shape (3,), an array of numpy)" in caught.value.found


@pytest.mark.parametrize("kwargs", [[1], "a", 3])
def test_keywords_that_are_no_mapping_are_refused(kwargs):
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)

    with pytest.raises(adjudge.InputError, match=f"kwargs= is of class {type(kwargs).__name__}"):
        adjudge.examine(torch.sin, x, kwargs=kwargs)


@pytest.mark.parametrize("transform", [torch.func.vmap, torch.func.grad])
def test_a_check_inside_of_a_transform_of_torch_is_told_where_it_belongs(transform, x):
    def judged(x):
        return torch.as_tensor(float(bool(adjudge.examine(torch.sin, (x,), seed=0))))

    with pytest.raises(RuntimeError) as raised:
        transform(judged)(x.detach())

    assert "check outside of torch.func.vmap and torch.func.grad" in raised.value.__notes__[0]
