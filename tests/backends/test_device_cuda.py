"""Checks of PyTorch on a GPU: each is what its twin is on a CPU."""

from pathlib import Path

import pytest

import adjudge
from adjudge import Verdict

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that PyTorch sees")
SEEDS = range(10)


def normal(*shape, dtype=torch.float64):
    draw = torch.Generator("cpu").manual_seed(0)
    x = torch.randn(*shape, generator=draw, dtype=torch.float64).to("cuda", dtype)
    return x.requires_grad_()


def scaled(forward, backward, factor):
    """The function with a backward pass that is off by a factor."""

    class Rule(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *x):
            ctx.save_for_backward(*x)
            return forward(*x)

        @staticmethod
        def backward(ctx, w):
            return tuple(factor * g for g in backward(w, *ctx.saved_tensors))

    return Rule.apply


def gathered(x):
    """Sums of the rows that have the same number, in the order in which threads arrive."""
    index = torch.arange(x.shape[0], device=x.device) % 3
    return torch.zeros(3, x.shape[1], dtype=x.dtype, device=x.device).index_add(0, index, x)


def gathered_backward(w, x):
    return (w[torch.arange(x.shape[0], device=x.device) % 3],)


def judged(f, x, seed):
    return adjudge.examine(f, x, seed=seed).verdict


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_sums_in_any_order_pass_and_one_off_by_a_tenth_fails(dtype, seed):
    x = normal(3000, 4, dtype=dtype)

    right, wrong = (scaled(gathered, gathered_backward, factor) for factor in (1.0, 1.1))

    assert judged(right, x, seed) is Verdict.PASS
    assert judged(wrong, x, seed) is Verdict.FAIL


@pytest.mark.parametrize("seed", SEEDS)
def test_dropout_is_judged_and_the_random_state_of_the_gpu_stays(seed):
    x = normal(40)
    torch.nn.functional.dropout(x, 0.5)  # the state is there
    before = torch.cuda.get_rng_state()

    def dropped(x):
        return torch.nn.functional.dropout(x.sin(), 0.5)

    report = adjudge.examine(dropped, x, seed=seed)

    assert report.verdict is Verdict.PASS
    assert torch.equal(before, torch.cuda.get_rng_state())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kernel", ["FLASH_ATTENTION", "EFFICIENT_ATTENTION"])
def test_attention_by_fused_kernels_passes(dtype, causal, kernel):
    attention_of = torch.nn.attention
    kernels = [getattr(attention_of.SDPBackend, kernel), attention_of.SDPBackend.MATH]
    q, k, v = (normal(2, 4, 16, 32, dtype=dtype) for _ in range(3))

    def attention(q, k, v):
        with attention_of.sdpa_kernel(kernels, set_priority=True):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    for seed in SEEDS:
        assert judged(attention, (q, k, v), seed) is not Verdict.FAIL


@pytest.fixture(params=["ieee", "tf32"])
def precision(request):
    matmul = torch.backends.cuda.matmul
    before, matmul.fp32_precision = matmul.fp32_precision, request.param
    yield
    matmul.fp32_precision = before


@pytest.mark.usefixtures("precision")
def test_products_in_tf32_are_judged_by_what_they_show():
    a, b = normal(30, 20, dtype=torch.float32), normal(20, 10, dtype=torch.float32)

    wrong = scaled(torch.matmul, lambda w, a, b: (w @ b.mT, a.mT @ w), 1.1)

    for seed in SEEDS:
        assert judged(torch.matmul, (a, b), seed) is not Verdict.FAIL
        assert judged(wrong, (a, b), seed) is Verdict.FAIL


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_convolution_and_a_norm_pass_and_a_wrong_one_is_found_and_named(dtype):
    layers = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.GELU()
    ).to("cuda", dtype)
    x = normal(2, 3, 8, 8, dtype=dtype)
    buffers = [b.clone() for b in layers.buffers()]
    wrong = scaled(torch.tanh, lambda w, x: (w * (1 - torch.tanh(x) ** 2),), 1.01)

    for seed in SEEDS:
        assert judged(layers, x, seed) is Verdict.PASS
        report = adjudge.examine(lambda x: wrong(layers(x)), x, seed=seed)
        assert report.verdict is Verdict.FAIL
        assert Path(__file__).name in str(report)
    assert all(torch.equal(a, b) for a, b in zip(buffers, layers.buffers(), strict=True))


def test_a_rule_on_a_stream_of_its_own_is_judged():
    stream = torch.cuda.Stream()

    class Aside(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                y = x.sin()
            torch.cuda.current_stream().wait_stream(stream)
            return y

        @staticmethod
        def backward(ctx, w):
            (x,) = ctx.saved_tensors
            return w * x.cos()

    for seed in SEEDS:
        assert judged(Aside.apply, normal(1000), seed) is Verdict.PASS


def test_a_spot_check_of_a_training_loop_names_the_rule_and_leaves_the_gradients():
    wrong = scaled(torch.tanh, lambda w, x: (w * (1 - torch.tanh(x) ** 2),), 1.1)
    layer = torch.nn.Linear(8, 8).to("cuda", torch.float64)
    x = normal(16, 8).detach()

    def gradient():
        layer.zero_grad()
        wrong(layer(x)).square().sum().backward()
        return layer.weight.grad.clone()

    alone = gradient()
    with adjudge.spotcheck(share=1, seed=0) as watch:
        watched = [gradient() for _ in range(5)]

    assert all(torch.equal(alone, one) for one in watched)
    assert watch.report.verdict is Verdict.FAIL


def test_blame_names_a_rule_on_the_gpu():
    wrong = scaled(torch.tanh, lambda w, x: (w * (1 - torch.tanh(x) ** 2),), 1.01)

    report = adjudge.blame(lambda x: wrong(x.sin()).cos().cumsum(0), normal(20))

    (fault,) = report.at_fault
    assert Path(__file__).name in str(fault.step.rule_place)


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_compiled_kernels_pass():
    compiled = torch.compile(lambda x: torch.sin(x) * torch.exp(-x * x))

    for seed in SEEDS:
        assert judged(compiled, normal(1000, dtype=torch.float32), seed) is Verdict.PASS
