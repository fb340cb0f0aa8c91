"""Dropout, augmentation and sampling in PyTorch get their verdict; see `test_random_functions`."""

from contextlib import suppress

import pytest
from scenarios import long, over_seeds, seeds

import adjudge
from adjudge import Status, Verdict

with suppress(ImportError):  # absent: every test here is skipped by its mark
    import torch
    from torch.nn import functional

pytestmark = pytest.mark.backend("torch")

FEW = range(4)
"""The numbers are drawn by each function in its own way, and replayed by one mechanism."""


def normal(x):
    return torch.distributions.Normal(x, x.exp()).rsample()


def path(x):
    return x.sin() if torch.rand(()) < 0.5 else 2 * x.cos()


FUNCTIONS = {
    "dropout": lambda x: functional.dropout(x.sin(), 0.5),
    "alpha dropout": lambda x: functional.alpha_dropout(x, 0.3, training=True),
    "rrelu": lambda x: functional.rrelu(-x, training=True),
    "gumbel": lambda x: functional.gumbel_softmax(x, tau=0.7),
    "rsample": normal,
    "noise": lambda x: x * torch.randn_like(x),
    "augmentation": lambda x: x.roll(int(torch.randint(20, ()))).flip(0) ** 2,
    "crop": lambda x: x[: int(torch.randint(5, 20, ()))].sin(),
    "path": path,
    "attention": lambda x: functional.scaled_dot_product_attention(
        x.view(5, 4), x.view(5, 4).sin(), x.view(5, 4), dropout_p=0.3
    ),
}


@pytest.fixture
def x():
    return torch.linspace(0.5, 2, 20, dtype=torch.float64)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_right_derivative_passes_and_a_wrong_one_fails(name, x):
    f = FUNCTIONS[name]

    def wrong(x):
        y = f(x)
        return 1.01 * y - 0.01 * y.detach()

    for seed in FEW:
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        right = adjudge.examine(f, x, seed=seed)
        assert right.verdict is Verdict.PASS, str(right)
        assert {finding.status for finding in right.findings} == {Status.DRAWS_RANDOM}
        assert adjudge.examine(wrong, x, seed=seed).verdict is Verdict.FAIL
        assert torch.equal(before, torch.get_rng_state())


def backward_of(rule):
    """Dropout by a `torch.autograd.Function` with this backward pass."""

    class Dropout(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            mask = torch.bernoulli(torch.full_like(x, 0.5))
            ctx.save_for_backward(mask)
            return 2 * x * mask

        @staticmethod
        def backward(ctx, g):
            return rule(g, *ctx.saved_tensors)

    return Dropout.apply


def test_a_dropout_without_its_factor_or_with_another_mask_fails(x):
    rules = {
        "right": lambda g, mask: 2 * g * mask,
        "without 1 / (1 - p)": lambda g, mask: g * mask,
        "the other mask": lambda g, mask: 2 * g * (1 - mask),
        "a new mask": lambda g, mask: 2 * g * torch.bernoulli(torch.full_like(g, 0.5)),
        "no mask": lambda g, mask: g,
    }
    for name, rule in rules.items():
        for seed in FEW:
            torch.manual_seed(seed)
            report = adjudge.examine(backward_of(rule), x, seed=seed)
            expected = Verdict.PASS if name == "right" else Verdict.FAIL
            assert report.verdict is expected, f"{name}: {report}"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_narrow_dropout_is_judged(dtype):
    x = torch.linspace(0.5, 2, 20, dtype=getattr(torch, dtype))

    def wrong(x):
        y = FUNCTIONS["dropout"](x)
        return 2 * y - y.detach()

    for seed in FEW:
        torch.manual_seed(seed)
        assert adjudge.examine(FUNCTIONS["dropout"], x, seed=seed)
        assert adjudge.examine(wrong, x, seed=seed).verdict is Verdict.FAIL


@over_seeds(10)
@pytest.mark.parametrize("count", [1, 2])
def test_numbers_that_drop_everything_hide_no_mistake(count, seeds):
    x = torch.linspace(0.5, 2, count, dtype=torch.float64)

    for seed in seeds:
        torch.manual_seed(seed)
        assert adjudge.examine(backward_of(lambda g, mask: 2 * g * mask), x, seed=seed)
        wrong = adjudge.examine(backward_of(lambda g, mask: g * mask), x, seed=seed)
        assert wrong.verdict is Verdict.FAIL


IMPLICIT = {
    "Gamma": lambda x: torch.distributions.Gamma(x.exp(), x.exp()),
    "Beta": lambda x: torch.distributions.Beta(x.exp(), x.exp()),
    "Dirichlet": lambda x: torch.distributions.Dirichlet(x.exp()),
    "Student's t": lambda x: torch.distributions.StudentT(x.exp()),
}


@pytest.mark.parametrize("name", IMPLICIT)
def test_a_sample_by_implicit_reparametrisation_is_left_open_and_no_numbers_are_told(name, x):
    for seed in range(2):
        torch.manual_seed(seed)
        report = adjudge.examine(lambda x: IMPLICIT[name](x).rsample().sin(), x, seed=seed)

        assert report.verdict is Verdict.INCONCLUSIVE
        assert {finding.status for finding in report.findings} == {Status.DRAWS_RANDOM}
        assert "implicit reparametrisation" in str(report)
        assert adjudge.examine(lambda z: z.sin(), IMPLICIT[name](x).sample(), seed=seed)


@over_seeds(10)
@pytest.mark.parametrize("name", IMPLICIT)
def test_second_derivatives_of_implicit_samples_are_left_open_in_every_way(name, x, seeds):
    def f(x):
        return IMPLICIT[name](x).rsample().sin()

    for seed in seeds:
        report = adjudge.gradgradcheck(f, x, raise_exception=False, seed=seed, blame=False)
        assert report.verdict is Verdict.INCONCLUSIVE, report
        assert Status.DRAWS_RANDOM in {one.status for one in report.findings if not one.note}
    assert adjudge.examine(f, x, order=2, seed=0, blame=False).verdict is Verdict.INCONCLUSIVE


def test_a_function_that_is_asked_for_its_samplers_writes_into_no_array_of_the_caller(x):
    def f(x):
        x.data.mul_(1.5)
        return torch.distributions.Gamma(x, 1.0).rsample().sin()

    before = x.detach().clone()
    report = adjudge.examine(f, x, order=2, seed=0, blame=False)

    assert Status.MUTATES_INPUT in {one.status for one in report.findings}
    assert torch.equal(x, before)


@over_seeds(10)
def test_a_wrong_rule_beside_samples_that_are_not_implicit_still_fails(x, scaled_sin, seeds):
    wrong = scaled_sin(backward=1.01)

    def f(x):
        return wrong(torch.distributions.Normal(x, x.exp()).rsample())

    for seed in seeds:
        report = adjudge.gradgradcheck(f, x, raise_exception=False, seed=seed, blame=False)
        assert report.verdict is Verdict.FAIL


def test_every_way_sees_the_same_numbers(x):
    report = adjudge.examine(FUNCTIONS["dropout"], x, order=2, seed=0)

    assert report.verdict is Verdict.PASS, str(report)
    assert set(report.modes) == {"R", "F", "RR", "RF", "FR", "FF"}


def test_a_gpu_that_is_used_for_the_first_time_goes_back_to_its_seed(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    environment = adjudge.engine.backend_named("torch").environment
    state = environment.random_state()
    gpu = torch.Generator().manual_seed(3)
    first = torch.rand(3, generator=gpu)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "default_generators", (gpu,))

    environment.set_random_state(state)

    assert torch.equal(first, torch.rand(3, generator=gpu))


@pytest.mark.parametrize("name", [long("dropout"), "in place", long("noise")])
def test_the_rows_of_a_batch_draw_the_same_numbers(name, x):
    f = {
        "dropout": lambda x: functional.dropout(x, 0.3).tanh(),
        "in place": lambda x: x.sin() * torch.empty_like(x).bernoulli_(0.5),
        "noise": lambda x: x * torch.rand_like(x),
    }[name]
    batched = {"check_batched_grad": True, "check_batched_forward_grad": True}
    asked = adjudge.examine(f, x, check_forward_ad=True, seed=0, blame=False, **batched)
    second = adjudge.examine(f, x, order=2, seed=0, blame=False)

    assert asked.verdict is second.verdict is Verdict.PASS, str(asked)
    assert "evaluations differ all the same" not in str(asked) + str(second)


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("wrong", [False, True])
def test_a_way_that_draws_other_numbers_from_the_same_state_is_not_compared(wrong, seed):
    def f(x):
        # arrays with the strides of a transpose are filled in another order under torch.func
        square = x * (x.detach() if wrong else x)
        return functional.dropout(square.transpose(0, 1), 0.4)

    x = torch.rand(4, 5, 6, dtype=torch.float64)
    report = adjudge.examine(f, x, seed=seed, order=1, blame=False)

    assert report.verdict is (Verdict.FAIL if wrong else Verdict.PASS)
    assert Status.DRAWS_RANDOM in {one.status for one in report.findings}
    assert wrong or "draws other random numbers" in str(report)
    assert Status.INCONSISTENT not in {one.status for one in report.findings}
