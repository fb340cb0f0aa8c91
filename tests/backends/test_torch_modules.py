"""Modules: their parameters as inputs, by `adjudge_torch.functional`."""

import importlib.util
from contextlib import suppress

import pytest
from scenarios import over_seeds

import adjudge

with suppress(ImportError):  # absent: every test here is skipped by its mark
    import torch

    from adjudge_torch import functional

pytestmark = pytest.mark.backend("torch")


@pytest.fixture
def x():
    torch.manual_seed(0)
    return torch.randn(2, 4, dtype=torch.float64, requires_grad=True)


def test_the_name_stays_a_function_when_the_other_ways_of_the_engine_are_loaded():
    adjudge.examine(torch.sin, torch.ones(1, dtype=torch.float64), order=1)

    assert importlib.import_module("adjudge_torch").functional is functional
    assert callable(functional)


@pytest.fixture
def half_bias(rule):
    """`Linear` whose bias has half its gradient."""
    torch.manual_seed(1)
    bias_of = rule(lambda b: b.clone(), lambda b, w: w / 2)

    class Half(torch.nn.Linear):
        def forward(self, x):
            return torch.nn.functional.linear(x, self.weight, bias_of(self.bias))

    return Half(4, 3).double()


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.nn.Linear(4, 3),
        lambda: torch.nn.LayerNorm(4),
        lambda: torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2)),
    ],
    ids=["Linear", "LayerNorm", "Sequential"],
)
def test_parameters_and_inputs_of_a_module_are_checked_together(make, x):
    torch.manual_seed(1)
    f, parameters = functional(make().double())

    assert adjudge.gradcheck(f, (parameters, x))
    assert adjudge.gradgradcheck(f, (parameters, x), mode="projected")


def test_parametrized_weights_are_named_by_their_paths(x):
    torch.manual_seed(1)
    module = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(4, 3)).double()
    f, parameters = functional(module)

    # first order only: the double backward of torch._weight_norm is wrong in PyTorch 2.13
    assert adjudge.gradcheck(
        f, (parameters, x), wrt="inputs[0]['parametrizations.weight.original0']"
    )
    assert adjudge.gradcheck(f, (parameters, x))


def test_a_wrong_parameter_gradient_is_named_by_the_parameter(half_bias, x):
    f, parameters = functional(half_bias)

    with pytest.raises(adjudge.GradcheckError, match=r"/ d inputs\[0\]\['bias'\]\[\d\]"):
        adjudge.gradcheck(f, (parameters, x))


def test_a_module_as_the_function_has_its_parameters_checked(half_bias, x):
    with pytest.raises(adjudge.GradcheckError, match=r"/ d parameters\['bias'\]\[\d\]"):
        adjudge.gradcheck(half_bias, (x,))
    assert adjudge.gradcheck(half_bias, (x,), wrt=0)


def test_wrt_selects_one_parameter(half_bias, x):
    f, parameters = functional(half_bias)

    assert adjudge.gradcheck(f, (parameters, x), wrt="inputs[0]['weight']")
    assert not adjudge.examine(f, (parameters, x), wrt="inputs[0]['bias']")


def test_keyword_arguments_reach_the_module_and_are_checked(x):
    class Scaled(torch.nn.Linear):
        def forward(self, x, *, scale):
            return super().forward(x) * scale

    f, parameters = functional(Scaled(4, 3).double())
    scale = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)

    report = adjudge.gradcheck(f, (parameters, x), kwargs={"scale": scale})

    assert report
    assert adjudge.examine(f, (parameters, x), kwargs={"scale": scale}, wrt="kwargs['scale']")


def test_the_module_keeps_its_parameters_buffers_and_gradients(x):
    torch.manual_seed(1)
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)).double().eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    f, parameters = functional(module)

    adjudge.gradcheck(f, (parameters, x))

    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())


class Centred(torch.nn.Module if "torch" in globals() else object):
    """Takes off a mean that each call moves."""

    def __init__(self, *, wrong, parameters):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4, dtype=torch.float64))
        if parameters:
            self.bias = torch.nn.Parameter(torch.zeros(4, dtype=torch.float64))
        self.wrong = wrong

    def forward(self, x):
        now = x.detach() if self.wrong else x
        mean = self.mean / 2 + now.mean(0) / 2
        with torch.no_grad():
            self.mean.copy_(mean)
        return torch.tanh(x - mean + getattr(self, "bias", 0))


@pytest.mark.parametrize("parameters", [False, True])
@pytest.mark.parametrize("wrong", [False, True])
def test_buffers_are_put_back_before_each_evaluation(x, wrong, parameters):
    """Without that the right one fails, as a function that is not the same twice."""
    module = Centred(wrong=wrong, parameters=parameters)

    report = adjudge.examine(module, x, seed=0)

    assert report.verdict is (adjudge.Verdict.FAIL if wrong else adjudge.Verdict.PASS)
    assert not any(one.status is adjudge.Status.NONDETERMINISTIC for one in report.findings)
    assert module.mean.tolist() == [0.0] * 4


def twice(part):
    """A module that stands at two places."""
    return torch.nn.Sequential(part, torch.nn.Tanh(), part)


def tied(part):
    """Two modules with the same weight."""
    other = torch.nn.Linear(4, 4)
    other.weight = part.weight
    return torch.nn.Sequential(part, torch.nn.Tanh(), other)


@pytest.mark.parametrize("shared", [twice, tied])
def test_parameters_that_are_used_twice_are_put_back(shared, x):
    part = torch.nn.Linear(4, 4)
    module = shared(part).double()
    weight, bias, values = part.weight, part.bias, part.weight.detach().clone()

    assert adjudge.gradcheck(module, (x,))

    assert part.weight is weight
    assert part.bias is bias
    assert torch.equal(weight, values)
    assert module[2].weight is weight


def test_the_gradient_of_a_weight_that_is_used_twice_is_found_wrong(half_bias, x):
    with pytest.raises(adjudge.GradcheckError, match=r"d inputs\['0.bias'\]|'0\.bias'"):
        adjudge.gradcheck(twice(type(half_bias)(4, 4).double()), (x,))


def test_frozen_parameters_are_not_checked(half_bias, x):
    half_bias.bias.requires_grad_(False)
    f, parameters = functional(half_bias)

    assert adjudge.gradcheck(f, (parameters, x))


def test_a_module_is_named_by_its_class(half_bias, x):
    f, parameters = functional(half_bias)

    assert "Half" in adjudge.examine(f, (parameters, x)).function


class Halved(torch.autograd.Function if importlib.util.find_spec("torch") else object):
    """Hands on its input, with half of the gradient."""

    @staticmethod
    def forward(ctx, weight):
        return weight.clone()

    @staticmethod
    def backward(ctx, w):
        return w / 2


def test_a_lazy_module_is_called_once_before_it_is_checked(x):
    class Lazy(torch.nn.LazyLinear):
        cls_to_become = None

        def forward(self, x):
            return torch.nn.functional.linear(x, Halved.apply(self.weight), self.bias)

    module = Lazy(3, dtype=torch.float64)
    with pytest.raises(adjudge.InputError, match="no shape yet: weight, bias"):
        adjudge.examine(module, x)
    assert module.has_uninitialized_params()

    module(x.detach())
    report = adjudge.examine(module, x, modes=["R"], seed=0)
    assert report.verdict is adjudge.Verdict.FAIL
    assert "parameters['weight']" in str(report)


def checkpointed(part):
    """A checkpoint as libraries write it: it is given the parameters of what it runs again in the
    backward pass, and multiplies the gradient of one of them by `part`.
    """

    class Checkpoint(torch.autograd.Function):
        @staticmethod
        def forward(ctx, run, x, *parameters):
            ctx.run, ctx.parameters = run, parameters
            ctx.save_for_backward(x)
            with torch.no_grad():
                return run(x)

        @staticmethod
        def backward(ctx, w):
            x = ctx.saved_tensors[0].detach().requires_grad_()
            with torch.enable_grad():
                y = ctx.run(x)
            of_x, first, *others = torch.autograd.grad(
                y, (x, *ctx.parameters), w, allow_unused=True
            )
            return None, of_x, first * part, *others

    return Checkpoint.apply


@over_seeds(10)
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
def test_a_checkpoint_that_is_given_parameters_is_judged(dtype, twice, seeds):
    class Block(torch.nn.Module):
        def __init__(self, part):
            super().__init__()
            self.layer, self.part = torch.nn.Linear(4, 4), part

        def run(self, x):
            return x + torch.tanh(self.layer(x))

        def forward(self, x):
            apply = checkpointed(self.part)
            y = apply(self.run, x, *self.parameters())
            return apply(self.run, y, *self.parameters()) if twice else y

    torch.manual_seed(0)
    x = torch.randn(3, 4, dtype=getattr(torch, dtype), requires_grad=True)
    for seed in seeds:
        for part in (1.0, 1.01):
            block = Block(part).to(x.dtype)
            held = {name: one.clone() for name, one in block.state_dict().items()}
            report = adjudge.examine(block, x, seed=seed, blame=False)

            assert bool(report) is (part == 1.0), report
            assert all(torch.equal(one, held[name]) for name, one in block.state_dict().items())
            assert all(type(one) is torch.nn.Parameter for one in block.parameters())
