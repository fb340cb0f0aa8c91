"""PyTorch's narrow derivatives: the formula in float64, captured weights and buffers with it."""

from contextlib import suppress

import pytest

import adjudge
from adjudge import Status, Verdict, examine

with suppress(ImportError):  # absent: every test here is skipped by its mark
    import torch

pytestmark = pytest.mark.backend("torch")

LOW = ["float32", "float16", "bfloat16"]
PLANTS = {
    "right": lambda g: g,
    "sign": lambda g: -g,
    "dropped": lambda g: g * torch.tensor([1, 1, 0, 1, 1, 1, 1, 1, 1]).reshape(3, 3),
    "factor": lambda g: g * (1.01 if g.dtype is torch.float32 else 1.1),
    "transposed": lambda g: g.T,
}


def tensor(*shape, dtype="float32", seed=0):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return values.to(getattr(torch, dtype)).requires_grad_()


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("plant", PLANTS)
def test_a_kernel_that_is_wrong_in_low_precision_alone(rule, dtype, plant):
    def backward(x, w):
        g = w * x.cos()
        return g if x.dtype is torch.float64 else PLANTS[plant](g).to(x.dtype)

    f = rule(lambda x: x.sin(), backward)
    report = examine(f, tensor(3, 3, dtype=dtype), seed=0)

    assert report.verdict is (Verdict.PASS if plant == "right" else Verdict.FAIL), report
    assert report.provenance.note == "formula judged in float64"
    if plant != "right":
        assert [Status.MISMATCH] == [finding.status for finding in report.findings]
        assert report.findings[0].detail.right
        assert "float64 derivative right" in report.headline


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("off", [0.0, 1e-4])
def test_a_small_error_in_the_formula_shows_in_every_dtype(rule, dtype, off):
    f = rule(lambda x: x.sin(), lambda x, w: (1 + off) * w * x.cos())

    report = examine(f, tensor(5, dtype=dtype), seed=0)

    assert report.verdict is (Verdict.FAIL if off else Verdict.PASS), report


@pytest.mark.parametrize("dtype", LOW)
def test_the_weights_of_a_module_are_widened_with_its_input(dtype):
    module = torch.nn.Sequential(
        torch.nn.Linear(4, 6), torch.nn.LayerNorm(6), torch.nn.Tanh(), torch.nn.Linear(6, 2)
    ).to(getattr(torch, dtype))
    before = [parameter.detach().clone() for parameter in module.parameters()]

    report = examine(module, tensor(3, 4, dtype=dtype), check_forward_ad=True, seed=0)

    assert report.verdict is Verdict.PASS, report
    assert report.provenance.note == "formula judged in float64"
    assert all(map(torch.equal, before, module.parameters()))


def test_a_small_error_behind_captured_weights(rule):
    wrong = rule(lambda x: x.sin(), lambda x, w: (1 + 1e-4) * w * x.cos())
    weight, mask = tensor(4, 3, seed=1), torch.tensor([True, False, True])

    report = examine(lambda x: torch.where(mask, wrong(x @ weight), x[:, :3]), tensor(2, 4), seed=0)

    assert report.verdict is Verdict.FAIL
    assert report.provenance.note == "formula judged in float64"


def test_second_order_of_a_module():
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))

    report = adjudge.gradgradcheck(module, tensor(2, 3), check_fwd_over_rev=True, seed=0)

    assert report.provenance.note == "formula judged in float64"
    assert set(report.modes) == {"R", "RR", "FR"}


@pytest.mark.parametrize("dtype", LOW)
def test_softmax_and_attention_pass(dtype):
    def attention(q, k, v):
        return torch.softmax(q @ k.T / 2, -1) @ v

    inputs = [tensor(3, 4, dtype=dtype, seed=seed) for seed in range(3)]
    report = examine(attention, inputs, modes=["R", "F", "RR"], seed=0)

    assert report.verdict is Verdict.PASS, report
    assert report.provenance.note == "formula judged in float64"


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("float32", [9.0, 11.0, 12.5]),
        ("float32", [17.0, 18.0, 19.5]),
        ("float16", [8.0, 8.25, 8.5]),
    ],
)
def test_a_saturated_derivative_is_a_note(dtype, values):
    x = torch.tensor(values, dtype=getattr(torch, dtype), requires_grad=True)

    report = examine(torch.sigmoid, x, seed=0)

    assert report.verdict is Verdict.PASS, report
    assert {Status.INACCURATE} == {finding.status for finding in report.findings}
    assert report.findings[0].detail.right
    assert "formula PASS; float" in str(report)


def test_an_operator_without_double_is_judged_natively(rule):
    def forward(x):
        if x.dtype is torch.float64:
            raise RuntimeError("not implemented for 'Double'")
        return x.sin()

    reports = [
        examine(rule(forward, lambda x, w, c=c: c * w * x.cos()), tensor(3), seed=0)
        for c in (1.0, -1.0)
    ]

    assert [report.verdict for report in reports] == [Verdict.PASS, Verdict.FAIL]
    assert "RuntimeError: not implemented for 'Double'" in reports[0].provenance.note


def test_a_cast_inside_that_costs_precision_is_judged_natively(rule):
    wrong = rule(lambda x: x.sin(), lambda x, w: 1.1 * w * x.cos())
    reports = [
        examine(lambda x, f=f: f(x.float()).to(x.dtype) * x, tensor(3), seed=0)
        for f in (torch.sin, wrong)
    ]

    assert [report.verdict for report in reports] == [Verdict.PASS, Verdict.FAIL], reports
    assert "less than double precision inside" in reports[1].provenance.note


@pytest.mark.parametrize("seed", range(3))
def test_a_narrower_dtype_inside_is_named_and_allowed_for(rule, seed):
    weight = tensor(5, 5, seed=seed + 10)

    def network(x):
        return ((x.half() @ weight.half()).tanh() @ weight.half()).float()

    wrong = rule(network, lambda x, w: -torch.autograd.functional.vjp(network, x, w)[1])
    right, sign = (examine(f, tensor(2, 5, seed=seed), seed=0) for f in (network, wrong))

    assert right.verdict is not Verdict.FAIL, right
    assert sign.verdict is Verdict.FAIL
    assert "out stays float32" in right.provenance.note
    assert right.verdict is Verdict.PASS or "eps of 0.00098 inside" in right.provenance.note


@pytest.mark.parametrize("off", [0.0, 0.01])
def test_a_buffer_that_f_writes_into(rule, off):
    square = rule(lambda x: x * x, lambda x, w: (2 + off) * x * w)
    kept = torch.zeros(3)

    def f(x):
        out = torch.zeros(3)
        out[:] = square(x)
        kept.copy_(x.detach())
        return out.sin() * x + kept.sum() * 0

    report = examine(f, tensor(3), seed=0)

    assert report.verdict is (Verdict.FAIL if off else Verdict.PASS), report


def test_the_door_with_numbers_judges_natively(rule):
    from adjudge_torch import gradcheck

    seen = []

    def forward(x):
        seen.append(x.dtype)
        return x.sin()

    f = rule(forward, lambda x, w: (1 + 1e-4) * w * x.cos())
    assert gradcheck(f, tensor(3), eps=1e-2, atol=1e-2, rtol=1e-2)
    assert set(seen) == {torch.float32}
    assert not gradcheck(f, tensor(3), raise_exception=False)
    assert torch.float64 in seen


# ---------------------------------------------------------------- precision


def precision():
    return (
        torch.get_float32_matmul_precision(),
        torch.backends.cuda.matmul.allow_tf32,
        torch.backends.cudnn.allow_tf32,
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        torch.is_autocast_enabled("cpu"),
    )


@pytest.fixture
def reduced():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    with (
        torch.backends.cudnn.flags(enabled=True, allow_tf32=True),
        torch.autocast("cpu", dtype=torch.bfloat16),
    ):
        yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("raises", [False, True])
def test_the_highest_precision_is_for_the_check_alone(reduced, raises):
    before, seen = precision(), []

    def f(x):
        seen.append((precision(), (x @ x).dtype))
        if raises and len(seen) > 1:
            raise ValueError("stop")
        return x.sin()

    if raises:
        with pytest.raises(ValueError, match="stop"):
            examine(f, tensor(3, 3), highest_precision=True, in_double=False)
    else:
        examine(f, tensor(3, 3), highest_precision=True, in_double=False)

    assert set(seen) == {(("highest", False, False, False, False), torch.float32)}
    assert precision() == before


def test_autocast_is_allowed_for_without_it(reduced):
    weight = tensor(3, 3, seed=1)

    def f(x):
        return (x @ weight).float()

    loose = examine(f, tensor(3, 3), seed=0, in_double=False)
    strict = examine(f, tensor(3, 3), seed=0, in_double=False, highest_precision=True)

    assert loose.tolerance["rtol"] > 0.1
    assert strict.tolerance["rtol"] < 0.01
    assert strict.verdict is Verdict.PASS, strict
