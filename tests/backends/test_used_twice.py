"""Rules that read what a later call overwrites: a function that is used twice is wrong then."""

import pytest
from frameworks import torch
from scenarios import over_seeds

import adjudge
from adjudge import ByHand, Status, Verdict
from adjudge.findings import AnotherAfterwards

pytestmark = pytest.mark.backend("torch")

SEEDS = range(10)


def square(*, where):
    """A square whose backward pass reads its input where its forward pass left it."""
    kept = []

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            if where == "ctx":
                ctx.save_for_backward(x)
            elif where == "attribute of ctx":
                ctx.x = x.detach().clone()
            elif where == "class":
                Square.x = x.detach().clone()
            else:
                kept[:] = [x.detach().clone()]
            return x**2

        @staticmethod
        def backward(ctx, g):
            if where == "ctx":
                (x,) = ctx.saved_tensors
            elif where == "attribute of ctx":
                x = ctx.x
            elif where == "class":
                x = Square.x
            else:
                (x,) = kept
            return 2 * g * x

    return Square.apply


def first_call_alone():
    """A mask that is drawn from x at the first call, and by every later one again."""
    state = {}

    class Gate(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            state["gate"] = torch.sigmoid(x)
            return x * state["gate"]

        @staticmethod
        def backward(ctx, g):
            s = state["gate"]
            return g * s + g * torch.log(s / (1 - s)) * s * (1 - s)

    return Gate.apply


@pytest.fixture
def x():
    torch.manual_seed(0)
    return torch.rand(4, dtype=torch.float64) + 0.5


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("where", ["class", "global"])
def test_what_the_next_call_overwrites_is_found(x, where, dtype):
    x = x.to(getattr(torch, dtype))
    for seed in SEEDS if dtype == "float64" else SEEDS[:2]:
        report = adjudge.examine(square(where=where), x, seed=seed)
        assert report.verdict is Verdict.FAIL
        details = [one.detail for one in report.findings]
        assert any(isinstance(one, AnotherAfterwards) for one in details)
        assert "used twice" in str(report)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("where", ["ctx", "attribute of ctx"])
def test_what_is_kept_with_its_own_call_passes(x, where, dtype):
    x = x.to(getattr(torch, dtype))
    for seed in SEEDS if dtype == "float64" else SEEDS[:2]:
        report = adjudge.examine(square(where=where), x, seed=seed)
        assert report.verdict is Verdict.PASS
        assert not report.findings


@over_seeds(10)
def test_a_gate_that_is_kept_in_a_dict_is_found(x, seeds):
    for seed in seeds:
        report = adjudge.examine(first_call_alone(), x, seed=seed)
        assert report.findings[0].status is Status.INCONSISTENT


def test_a_full_check_and_one_beside_exact_references_find_it(x):
    for options in ({"mode": "full"}, {"reference": "exact"}, {"modes": ["R"]}):
        assert adjudge.examine(square(where="class"), x, **options).verdict is Verdict.FAIL


def test_a_vjp_by_hand_may_rely_on_the_call_before_it(x):
    class Layer:
        def forward(self, x):
            self.x = x
            return x**2

        def backward(self, x, w):
            return 2 * self.x * w

    layer = Layer()
    assert adjudge.examine(ByHand(layer.forward, vjp=layer.backward), x.numpy())


def test_a_module_that_writes_into_its_buffers_passes(x):
    for training in (True, False):
        norm = torch.nn.BatchNorm1d(4, dtype=torch.float64).train(training)
        batch = torch.stack([x, x.sin(), x.cos()])
        assert adjudge.examine(norm, batch)


def test_a_rule_that_varies_is_told_as_that(x):
    class Noisy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, g):
            return 2 * g + 1e-3 * next(numbers) * g

    numbers = iter(range(1, 10_000))
    report = adjudge.examine(Noisy.apply, x)
    assert report.verdict is Verdict.FAIL
    assert report.findings[0].status is Status.NONDETERMINISTIC
    assert not any(isinstance(one.detail, AnotherAfterwards) for one in report.findings)
