"""What PyTorch does at a point, recorded as a straight-line program."""

import gc
import inspect
import random
import sys
import weakref
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch.nn import functional as F  # noqa: E402, N812

from adjudge.check import problem_of  # noqa: E402
from adjudge.engine import INPUT, Place, Ref, backend_named  # noqa: E402
from adjudge.trace.contributions import directions  # noqa: E402

THIS = __file__


def next_line():
    """The line below that of the caller."""
    return Place(THIS, sys._getframe(1).f_lineno + 1)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, power=2):
        ctx.save_for_backward(x)
        return x.pow(power)

    @staticmethod
    def backward(ctx, w):
        (x,) = ctx.saved_tensors
        return 2 * x * w, None


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, w):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * w


kept_apply = Square.apply


def traced(f, *x):
    return backend_named("torch").trace(lambda leaves: f(*leaves), x)


def names(program):
    return [step.name.removeprefix("torch.").removeprefix("Tensor.") for step in program.steps]


def same(one, two):
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_each_call_that_the_user_writes_is_one_step():
    def f(x):
        y = F.layer_norm(x.sin(), (3,))
        return (torch.cat([y, y @ torch.eye(3)]).sum(),)

    program = traced(f, torch.rand(2, 3))

    assert names(program) == ["sin", "nn.functional.layer_norm", "matmul", "cat", "sum"]
    assert [step.operands[0] for step in program.steps] == [
        Ref(k - 1, 0) if k else Ref(INPUT, 0) for k in (0, 1, 2, 2, 4)
    ]
    assert program.outputs == (Ref(4, 0),)
    static = {"1.0": 3, "weight": None, "bias": None, "eps": 1e-5}
    assert dict(program.steps[1].static) == static


def test_a_step_has_the_users_line_and_its_module():
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)

        def forward(self, x):
            self.place = next_line()
            return self.linear(x).sin()

    net = torch.nn.Sequential(Block(), torch.nn.Tanh())
    place = next_line()
    program = traced(lambda x: (net(x).sum(),), torch.rand(2, 3))

    linear, sine, tanh, total = program.steps
    assert (linear.place, linear.module) == (net[0].place, "0.linear")
    assert (sine.place, sine.module) == (net[0].place, "0")
    assert (tanh.place, tanh.module) == (place, "1")
    assert (total.place, total.module) == (place, "")
    assert linear.marked == (1, 2)


@pytest.mark.parametrize(
    "apply", [Square.apply, lambda x: kept_apply(x), lambda x: Square.apply(x, 2)]
)
def test_a_custom_function_is_one_step_however_its_apply_is_reached(apply):
    program = traced(lambda x: (apply(x).sum(),), torch.rand(3))

    rule, _ = program.steps
    assert (rule.name, rule.custom, rule.rule) == ("Square.apply", True, "Square.backward")
    assert rule.rule_place == Place(THIS, inspect.getsourcelines(Square.backward)[1])
    assert rule.place.file == THIS


def test_a_custom_function_of_the_new_style_is_one_step():
    assert names(traced(lambda x: (Cube.apply(x).sum(),), torch.rand(3))) == ["Cube.apply", "sum"]


def test_a_custom_operator_is_one_step():
    @torch.library.custom_op("adjudge_tests::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    twice.register_autograd(lambda ctx, w: 2 * w)

    (step,) = traced(lambda x: (twice(x),), torch.rand(3)).steps

    assert (step.name, step.custom) == ("adjudge_tests.twice.default", True)


def in_place(x):
    y = torch.zeros(2, 3, dtype=x.dtype)
    y[0] = x[0].sin()
    row = y[1:]
    y += 1
    row.mul_(x[1])
    z = y * 2
    z.add_(y)
    return z.sum(), row


def random_numbers(x):
    return (F.dropout(x, 0.5) + torch.rand_like(x), torch.bernoulli(x.detach()))


def through_batch_norm(x):
    return (F.batch_norm(x, torch.zeros(3).double(), torch.ones(3).double(), training=True),)


def without_gradients(x):
    with torch.no_grad():
        y = x * 2
    return (y + x,)


@pytest.mark.parametrize("f", [in_place, random_numbers, through_batch_norm, without_gradients])
def test_a_program_gives_its_values_again(f):
    program = traced(f, torch.rand(2, 3, dtype=torch.float64))

    again = program.replay(program.inputs)

    both = again.results, program.recorded.results
    assert all(same(*(one(k) for one in both)) for k in range(len(program.steps)))


@pytest.mark.parametrize("f", [in_place, through_batch_norm, without_gradients])
def test_a_program_has_the_values_and_the_gradient_of_the_function_at_another_point(f):
    program = traced(f, torch.rand(2, 3, dtype=torch.float64))
    x = torch.rand(2, 3, dtype=torch.float64, requires_grad=True)

    outputs = program.replay((x,)).values(program.outputs)

    assert same(outputs, f(x))
    both = [torch.autograd.grad(sum(y.sum() for y in ys), x)[0] for ys in (outputs, f(x))]
    assert torch.allclose(*both, rtol=1e-14)


def test_running_a_step_again_draws_its_numbers_and_leaves_the_random_state():
    program = traced(lambda x: (F.dropout(x, 0.5),), torch.rand(100))
    torch.manual_seed(3)
    state = torch.get_rng_state()

    (again,) = program.steps[0].run(program.recorded.operands(0))

    assert torch.equal(again, program.recorded.results(0)[0])
    assert torch.equal(torch.get_rng_state(), state)


def test_what_leaves_the_tensors_is_a_step_without_results():
    program = traced(lambda x: (x * x.sum().item(),), torch.rand(3))

    assert [(step.name, step.results) for step in program.steps if not step.results] == [
        ("torch.Tensor.item", 0)
    ]


def test_a_program_shows_what_the_engine_hands_back_hooks_included():
    def f(x):
        y = x * 2
        y.register_hook(lambda w: 10 * w)
        return y.sum(), y.detach()

    program = traced(f, torch.rand(3))

    (product, total, detached), (gradient,) = program.cotangents((torch.tensor(1.0), None))
    assert (total, detached) == ((torch.tensor(1.0),), (None,))
    assert product[0].tolist() == [1.0, 1.0, 1.0]
    assert gradient.tolist() == [20.0, 20.0, 20.0]


def test_what_the_mode_does_not_see_is_opaque():
    program = traced(lambda x: (torch.func.grad(lambda y: y.sin().sum())(x) * 2,), torch.rand(3))

    assert [bool(step.opaque) for step in program.steps] == [False, True, False]
    assert [step.differentiates for step in program.steps] == [True, False, False]


def test_what_is_computed_from_a_parameter_is_a_step_and_what_is_computed_from_constants_is_not():
    weight = torch.rand(3, requires_grad=True)

    assert names(traced(lambda x: (x + weight.exp() * torch.rand(3).sin(),), torch.rand(3))) == [
        "exp",
        "mul",
        "add",
    ]


def state_of(net):
    modes = torch.overrides._get_current_function_mode_stack()
    return (
        {name: value.clone() for name, value in net.state_dict().items()},
        torch.get_rng_state(),
        random.getstate(),
        np.random.get_state()[1].tolist(),  # noqa: NPY002
        "apply" in vars(torch.autograd.Function.__base__),
        len(torch.nn.modules.module._global_forward_hooks),
        len(torch.nn.modules.module._global_forward_pre_hooks),
        len(modes),
    )


def assert_equal(one, two):
    torch.testing.assert_close(one[0], two[0], rtol=0, atol=0)
    assert torch.equal(one[1], two[1])
    assert one[2:] == two[2:]


def net_of(seed):
    torch.manual_seed(seed)
    layers = torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5)
    return torch.nn.Sequential(*layers, torch.nn.Linear(4, 2)).double()


def call(f, x, record):
    """Calls f, and records it if told to."""
    if record:
        backend_named("torch").trace(f, (x,))
    else:
        f((x.clone().requires_grad_(),))


@pytest.mark.parametrize("seed", range(3))
def test_outputs_gradients_buffers_and_random_state_are_those_without_a_trace(seed):
    outcomes = []
    for record in (False, True):
        net, x = net_of(seed), torch.rand(5, 3, dtype=torch.float64)
        found = []

        def f(leaves, net=net, found=found):
            found += [net(Square.apply(leaves[0])).sum()]
            return tuple(found)

        call(f, x, record)
        found[0].backward()
        outcomes.append((state_of(net), found[0].detach(), [p.grad for p in net.parameters()]))

    assert_equal(outcomes[0][0], outcomes[1][0])
    assert torch.equal(outcomes[0][1], outcomes[1][1])
    assert same(outcomes[0][2], outcomes[1][2])


def test_everything_is_as_before_after_an_exception():
    x = torch.rand(5, 3, dtype=torch.float64)
    outcomes = []
    for run in (lambda f: f((x,)), lambda f: backend_named("torch").trace(f, (x,))):
        net = net_of(0)
        net.append(torch.nn.Linear(7, 2).double())  # of a shape that does not fit
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            run(lambda leaves, net=net: (net(Square.apply(leaves[0])),))
        outcomes.append(state_of(net))

    assert_equal(*outcomes)
    assert outcomes[1][4:] == (False, 0, 0, 0)


def test_hooks_are_those_without_a_trace_and_are_called_as_often():
    outcomes = []
    for record in (False, True):
        net, x, called = net_of(0), torch.rand(5, 3, dtype=torch.float64), []
        net[0].weight.register_hook(lambda g, called=called: called.append("parameter") or 3 * g)
        net[1].register_full_backward_hook(lambda *_, called=called: called.append("module"))
        before = dict(net[0].weight._backward_hooks), dict(net[1]._backward_hooks)
        found = []

        def f(leaves, net=net, found=found, called=called):
            y = net(Square.apply(leaves[0]))
            y.register_hook(lambda g, called=called: called.append("tensor") or 2 * g)
            found += [y.sum()]
            return tuple(found)

        call(f, x, record)
        found[0].backward()
        assert (dict(net[0].weight._backward_hooks), dict(net[1]._backward_hooks)) == before
        outcomes.append((called, [p.grad for p in net.parameters()]))

    assert outcomes[0][0] == outcomes[1][0] == ["tensor", "module", "parameter"]
    assert same(outcomes[0][1], outcomes[1][1])


class Held:
    """What a custom function keeps for its derivative."""


class Keeping(torch.autograd.Function):
    """The identity, which keeps a `Held` for its derivative."""

    made: ClassVar[list] = []

    @staticmethod
    def forward(ctx, x):
        ctx.held = Held()
        Keeping.made.append(weakref.ref(ctx.held))
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g


def kept_for_derivatives():
    """How many of the objects that functions keep for their derivatives are alive."""
    return sum(one() is not None for one in Keeping.made)


@pytest.fixture
def without_collector():
    """Without the collector of cycles, which would hide what keeps itself alive."""
    gc.collect()
    Keeping.made.clear()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collector")
def test_what_the_engine_saved_leaves_the_memory_with_the_cotangents():
    program = traced(lambda x: (Keeping.apply(x * 2).sin(),), torch.rand(3))
    assert kept_for_derivatives() == 1

    program = replace(program, cotangents=None)

    assert kept_for_derivatives() == 0
    assert len(program.steps) == 3


@pytest.mark.usefixtures("without_collector")
def test_contributions_are_found_without_what_the_engine_saves_of_replays():
    alive = []

    def f(x):
        y = Keeping.apply(x * 2)
        alive.append(kept_for_derivatives())
        return (y.sin(),)

    x = torch.rand(3, dtype=torch.float64, requires_grad=True)
    problem = problem_of(f, (x,), {"seed": 0})
    program = replace(problem.backend.trace(problem.function, problem.point()), cotangents=None)
    alive.clear()

    directions(problem, program, 0, lambda: None)

    assert max(alive) <= 2  # that of the evaluation, and of the one before it
    assert kept_for_derivatives() <= 1
