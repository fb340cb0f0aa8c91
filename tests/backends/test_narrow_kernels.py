"""Kernels of sixteen bits that compute in float32 inside, as norms and softmax do in production."""

import importlib
import math
from functools import partial

import pytest
from frameworks import torch
from scenarios import long, over_seeds

from adjudge import Status, Verdict, examine

pytest.importorskip("torch")


def rms(x):
    r = torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)
    return x * r, (x, r)


def rms_rule(saved, g, whole):
    x, r = saved
    return g * r - whole * x * r**3 * (g * x).mean(-1, keepdim=True)


def layer_norm(x):
    x = x - x.mean(-1, keepdim=True)
    r = torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5)
    return x * r, (x * r, r)


def layer_norm_rule(saved, g, whole):
    h, r = saved
    return r * (g - whole * g.mean(-1, keepdim=True) - h * (g * h).mean(-1, keepdim=True))


def group_norm(x):
    out, saved = layer_norm(x.reshape(x.shape[0], 2, -1))
    return out.reshape(x.shape), saved


def group_norm_rule(saved, g, whole):
    h, r = saved
    g = g.reshape(h.shape)
    g = r * (g - g.mean(-1, keepdim=True) - whole * h * (g * h).mean(-1, keepdim=True))
    return g.flatten(1)


def softmax(x):
    y = torch.softmax(x, -1)
    return y, y


def softmax_rule(y, g, whole):
    return y * (g - whole * (g * y).sum(-1, keepdim=True))


def log_softmax(x):
    y = torch.log_softmax(x, -1)
    return y, y.exp()


def log_softmax_rule(y, g, whole):
    return g - whole * y * g.sum(-1, keepdim=True)


def gelu(x):
    return torch.nn.functional.gelu(x), x


def gelu_rule(x, g, whole):
    density = torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return g * ((1 + torch.erf(x / math.sqrt(2))) / 2 + whole * x * density)


def attention(qkv):
    q, k, v = qkv.unflatten(-1, (3, -1)).unbind(-2)
    p = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1)
    return p @ v, (q, k, v, p)


def attention_rule(saved, g, whole):
    q, k, v, p = saved
    scores = g @ v.mT
    scores = p * (scores - whole * (scores * p).sum(-1, keepdim=True)) / math.sqrt(q.shape[-1])
    return torch.cat([scores @ k, scores.mT @ q, p.mT @ g], -1)


KERNELS = {
    "rms norm": (rms, rms_rule),
    "layer norm": (layer_norm, layer_norm_rule),
    "group norm": (group_norm, group_norm_rule),
    "softmax": (softmax, softmax_rule),
    "log-softmax": (log_softmax, log_softmax_rule),
    "gelu": (gelu, gelu_rule),
    "attention": (attention, attention_rule),
}


def kernel(
    name, whole=1.0, inside=torch.float32, output=None, gradient=None, *,
    compiled=False, opaque=False,
):  # fmt: skip
    """The kernel in the dtype `inside`; a missing term has `whole=0`. An output or a gradient
    whose dtype is written into it has that in any precision. One that is `compiled` takes no
    double, and one that is `opaque` is not made of torch's operations alone.
    """
    value, rule = KERNELS[name]

    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            if compiled and x.dtype is torch.float64:
                raise RuntimeError("not implemented for 'Double'")
            out, ctx.saved = value(x.to(inside or x.dtype))
            if opaque:
                out = torch.from_numpy(out.numpy().copy())
            return out.to(output or x.dtype)

        @staticmethod
        def backward(ctx, g):
            found = rule(ctx.saved, g.to(inside or g.dtype), whole)
            return found.to(gradient or g.dtype)

    return Kernel.apply


def point(dtype, *shape):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(*(shape or (2, 12)), generator=generator).to(dtype).requires_grad_()


@over_seeds(5)
@pytest.mark.parametrize(
    ("dtype", "fixed", "name"),
    [
        *(
            pytest.param(torch.bfloat16, True, one, id=f"bfloat16, fixed-{one}")
            for one in ("rms norm", "softmax", "gelu", "attention")
        ),
        *(
            long(torch.bfloat16, True, one, name=f"bfloat16, fixed-{one}")
            for one in ("layer norm", "group norm", "log-softmax")
        ),
        *(
            pytest.param(torch.float16, False, one, id=f"float16-{one}")
            for one in ("rms norm", "softmax", "gelu")
        ),
    ],
)
def test_a_missing_term_fails_where_f_computes_in_float32(name, dtype, fixed, seeds):
    gradient = dtype if fixed else None
    several = name == "rms norm" and fixed
    for seed in seeds if several else seeds[:1]:
        x, options = point(dtype), {"seed": seed, "blame": False}
        right = examine(kernel(name, gradient=gradient), x, **options)
        wrong = examine(kernel(name, whole=0.0, gradient=gradient), x, **options)

        assert right.verdict is Verdict.PASS, seed
        assert right.resolution < 0.05
        assert wrong.verdict is Verdict.FAIL, seed


@over_seeds(10)
@pytest.mark.parametrize("inside", [None, torch.float32], ids=["double", "float32"])
def test_a_gradient_that_is_rounded_in_any_precision_is_judged_by_its_rounding(inside, seeds):
    """Forward in the dtype of x, backward into bfloat16."""
    for seed in seeds:
        for whole, verdict in ((1.0, Verdict.PASS), (0.0, Verdict.FAIL)):
            rule = kernel("rms norm", whole, inside=inside, gradient=torch.bfloat16)

            assert (
                examine(rule, point(torch.bfloat16), seed=seed, blame=False).verdict is verdict
            ), seed


@over_seeds(10)
@pytest.mark.parametrize("name", ["rms norm", "gelu"])
def test_an_output_of_float32_is_judged_past_its_conversion(name, seeds):
    for seed in seeds:
        for whole, verdict in ((1.0, Verdict.PASS), (0.0, Verdict.FAIL)):
            rule = kernel(name, whole, output=torch.float32)
            report = examine(rule, point(torch.float16), seed=seed, blame=False)

            assert report.verdict is verdict, seed
            assert report.provenance.note.endswith("past its conversions to narrower dtypes")


@over_seeds(10)
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_that_takes_no_float64_is_judged_in_float32(name, seeds):
    """As most kernels of production are: they are compiled for float32 and narrower dtypes."""

    def judged(whole, seed):
        rule = kernel(name, whole)

        def narrow(x):
            if x.dtype is torch.float64:
                raise RuntimeError("not implemented for 'Double'")
            return rule(x)

        return examine(narrow, point(torch.bfloat16), seed=seed, blame=False)

    for seed in seeds:
        right, wrong = judged(1.0, seed), judged(0.0, seed)

        assert [Verdict.PASS, Verdict.FAIL] == [right.verdict, wrong.verdict], seed
        assert right.provenance.note == "formula judged in float32"
        assert right.resolution < 0.05


@over_seeds(10, always=2)
@pytest.mark.parametrize("compiled", [False, True], ids=["casts", "takes no float64"])
def test_a_wrong_term_of_many_numbers_fails_in_float32(compiled, seeds):
    """It is a hundredth of the gradient, and one that is doubled hid along every other tangent."""

    def judged(whole, seed):
        rule = kernel("rms norm", whole)

        def single(x):
            if compiled and x.dtype is torch.float64:
                raise RuntimeError("not implemented for 'Double'")
            return rule(x)

        return examine(single, point(torch.float32, 1, 8192), seed=seed, blame=False).verdict

    assert {judged(1.0, seed) for seed in seeds[::5]} == {Verdict.PASS}
    assert {judged(2.0, seed) for seed in seeds[1::2]} == {Verdict.FAIL}


@over_seeds(10)
@pytest.mark.parametrize("name", KERNELS)
def test_an_output_of_bfloat16_in_any_precision_is_judged_in_double(name, seeds):
    for seed in seeds:
        for whole, verdict in ((1.0, Verdict.PASS), (0.0, Verdict.FAIL)):
            rule = kernel(name, whole, output=torch.bfloat16)

            assert (
                examine(rule, point(torch.bfloat16), seed=seed, blame=False).verdict is verdict
            ), seed


@over_seeds(2)
@pytest.mark.parametrize("name", ["rms norm", "softmax", long("gelu")])
def test_agreement_to_a_fifth_in_bfloat16_decides_nothing(name, seeds):
    """A compiled kernel, which cannot be replayed and whose differences could not see a missing
    term.
    """
    given = {"output": torch.bfloat16, "compiled": True, "opaque": True}
    for seed in seeds:
        right = examine(
            kernel(name, **given), point(torch.bfloat16, 64, 64), seed=seed, blame=False
        )
        wrong = kernel(name, whole=0.0, **given)

        assert right.verdict is Verdict.INCONCLUSIVE
        statuses = {finding.status for finding in right.findings}
        assert Status.UNRESOLVED in statuses
        assert statuses <= {Status.UNRESOLVED, Status.UNCHECKED}  # small entries are named
        assert right.resolution > 0.1
        assert "of the derivative" in str(right)
        assert (
            examine(wrong, point(torch.bfloat16, 64, 64), seed=seed, blame=False).verdict
            is not Verdict.PASS
        )


@over_seeds(3)
@pytest.mark.parametrize("name", ["rms norm", "layer norm", "softmax", "gelu"])
def test_a_missing_term_fails_at_every_seed_in_float16_alone(name, seeds):
    for seed in seeds:
        for whole, verdict in ((1.0, Verdict.PASS), (0.0, Verdict.FAIL)):
            rule = kernel(name, whole, output=torch.float16)

            assert examine(rule, point(torch.float16), seed=seed, blame=False).verdict is verdict, (
                seed
            )


@over_seeds(3)
@pytest.mark.parametrize(
    ("dtype", "output"),
    [(torch.bfloat16, None), (torch.float16, torch.float32)],
    ids=["bfloat16", "float16, out in float32"],
)
def test_what_casts_to_sixteen_bits_inside_is_not_taken_for_float32(dtype, output, seeds):
    """Right derivatives, whose differences in float32 would meet stairs."""
    functions = (
        lambda x: x.to(dtype).float().sin().to(output or x.dtype),
        lambda x: (x.float() ** 2).to(dtype).float().sqrt().sin().to(output or x.dtype),
    )
    for function in (*functions, kernel("rms norm", inside=dtype, output=output)):
        for seed in seeds:
            assert (
                examine(function, point(dtype), seed=seed, blame=False).verdict is not Verdict.FAIL
            )


CASTS = {
    "float16 times x": lambda x: x.half().sin().double() * x,
    "float16 beside x": lambda x: x + x.half().tanh().double(),
    "float16 alone": lambda x: x.half().double().sin(),
    "bfloat16 beside x": lambda x: (2 * x.bfloat16()).double() + x**3,
    "a scale of bfloat16": lambda x: x * x.abs().mean().bfloat16().double(),
}


@over_seeds(4)
@pytest.mark.parametrize("name", CASTS)
def test_what_casts_float64_to_sixteen_bits_inside_is_judged_past_that(name, seeds):
    """Steps of float64 lie between two roundings, and agree on a derivative without that part."""
    for seed in seeds:
        x = torch.linspace(-1.3, 1.1, 6, dtype=torch.float64) * (1 + seed / 50)

        def scaled(x, factor):
            y = CASTS[name](x)
            return factor * y - ((factor - 1) * y).detach()

        right = examine(CASTS[name], x, seed=seed, blame=False)
        sign, zero = (
            examine(partial(scaled, factor=f), x, seed=seed, blame=False) for f in (-1, 0)
        )

        assert right.verdict is Verdict.PASS, str(right)
        assert "past its conversions to narrower dtypes" in str(right)
        assert sign.verdict is Verdict.FAIL, seed
        assert zero.verdict is Verdict.FAIL, seed


def only_of(dtype, value, rule):
    """An elementwise kernel that takes one dtype alone. One that is not of torch's operations
    cannot be replayed.
    """

    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            if x.dtype is not dtype:
                raise TypeError(f"the kernel takes {dtype}")
            ctx.save_for_backward(x)
            return value(x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return (g.double() * rule(x.double())).to(dtype)

    return Kernel.apply


def opaque_gelu(x):
    return torch.from_numpy(torch.nn.functional.gelu(x.detach().float()).numpy()).to(x.dtype)


def gelu_slope(x):
    return (1 + torch.erf(x / math.sqrt(2))) / 2 + x * torch.exp(-x * x / 2) / math.sqrt(
        2 * math.pi
    )


def wrong_entry(rule, factor):
    def wrong(x):
        slope = rule(x)
        slope[77] *= factor
        return slope

    return wrong


@over_seeds(10)
@pytest.mark.backend("torch")
@pytest.mark.parametrize("size", [300, 3000])
def test_one_wrong_entry_of_many_fails_in_float16_alone(size, seeds):
    x = torch.randn(size, generator=torch.Generator().manual_seed(0)).to(torch.float16)
    x[77] = 1.0
    x.requires_grad_()
    for seed in seeds:
        right = only_of(torch.float16, opaque_gelu, gelu_slope)
        assert examine(right, (x,), seed=seed).verdict is Verdict.PASS
        for factor in (0.0, -1.0):
            wrong = only_of(torch.float16, opaque_gelu, wrong_entry(gelu_slope, factor))
            report = examine(wrong, (x,), seed=seed, blame=False)
            assert report.verdict is Verdict.FAIL
            assert seed or "d out[77] / d inputs[0][77]: automatic" in str(report)


def opaque_leaky(x):
    return torch.from_numpy(torch.nn.functional.leaky_relu(x.detach().float(), 0.1).numpy()).to(
        x.dtype
    )


@pytest.fixture
def quarter_of_the_work(monkeypatch):
    """A replay may take a quarter of its usual work, and arrays have a quarter of the numbers: with
    all of them it takes seconds.
    """
    module = importlib.import_module("adjudge.properties.replayed")
    for name in ("NARROW_EXACT_WORK", "UNASKED_EXACT_WORK"):
        monkeypatch.setattr(module, name, getattr(module, name) // 4)


@over_seeds(2)
@pytest.mark.backend("torch")
@pytest.mark.usefixtures("quarter_of_the_work")
def test_one_wrong_entry_of_many_fails_by_replay_in_bfloat16_alone(seeds):
    x = torch.randn(640, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    x[77] = -1.3
    x.requires_grad_()
    for seed in seeds:
        wrong = only_of(torch.bfloat16, torch.exp, wrong_entry(torch.exp, 0.0))
        assert examine(wrong, (x,), seed=seed, blame=False).verdict is Verdict.FAIL


OPAQUE = {
    "kinks": (opaque_leaky, lambda x: torch.where(x > 0, 1.0, 0.1).double()),
    "curvature": (
        lambda x: torch.from_numpy(torch.sin(3 * x.detach().float()).numpy()).to(x.dtype),
        lambda x: 3 * torch.cos(3 * x),
    ),
}


@over_seeds(3)
@pytest.mark.backend("torch")
@pytest.mark.parametrize("name", OPAQUE)
def test_kinks_and_curvature_within_a_block_are_no_error(name, seeds):
    """What a block of entries says is confirmed by one entry, or left open."""
    value, slope = OPAQUE[name]
    for draw in seeds:
        x = torch.randn(4096, generator=torch.Generator().manual_seed(draw)).to(torch.float16)
        for seed in range(4):
            report = examine(only_of(torch.float16, value, slope), (x.requires_grad_(),), seed=seed)
            assert report.verdict is not Verdict.FAIL


@over_seeds(3)
@pytest.mark.backend("torch")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_an_array_that_steps_take_across_a_kink_is_judged_by_replay_in_sixteen_bits(dtype, seeds):
    dtype = getattr(torch, dtype)
    x = torch.randn(400, generator=torch.Generator().manual_seed(0)).to(dtype)
    x[77] = 1.0
    x.requires_grad_()

    def slope(x):
        return (x > 0).double()

    for seed in seeds:
        right = examine(only_of(dtype, torch.relu, slope), (x,), seed=seed)
        assert right.verdict is Verdict.PASS
        assert right.resolution <= 0.1
        for factor in (0.5, 0.0):
            wrong = only_of(dtype, torch.relu, wrong_entry(slope, factor))
            assert examine(wrong, (x,), seed=seed, blame=False).verdict is Verdict.FAIL


def clipped_softmax(dtype, limit):
    """The softmax in float32, whose gradient clips the cotangent in one of its two terms."""

    class Softmax(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = torch.softmax(x.float(), -1).to(dtype)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            y, g = (one.float() for one in (*ctx.saved_tensors, g))
            inner = (y * g.clamp(-limit, limit)).sum(-1, keepdim=True)
            return ((g - inner) * y).to(dtype)

    return Softmax.apply


@over_seeds(10)
@pytest.mark.backend("torch")
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32"])
def test_a_rule_that_clips_one_term_of_two_loses_no_digits(name, seeds):
    """It is off by the same part at all sizes of its cotangent, and not in proportion to them."""
    dtype = getattr(torch, name)
    for seed in seeds:
        x = torch.randn(4, 6, generator=torch.Generator().manual_seed(seed)).to(dtype)
        x.requires_grad_()

        assert examine(clipped_softmax(dtype, math.inf), x, seed=seed).verdict is Verdict.PASS
        for limit in (0.1, 1.0, 4.0):
            wrong = examine(clipped_softmax(dtype, limit), x, seed=seed, blame=False)
            assert wrong.verdict is Verdict.FAIL, (seed, limit)


@over_seeds(10)
@pytest.mark.backend("torch")
@pytest.mark.parametrize("modes", [["R"], ["F"], ["R", "F"]])
def test_an_output_that_overflows_in_float16_alone_is_left_out_on_both_sides(modes, seeds):
    x = torch.tensor([300.0, 1.0, 2.0], dtype=torch.float16, requires_grad=True)
    for seed in seeds:
        right = examine(lambda x: torch.sqrt(x * x), x, seed=seed, modes=modes)

        assert right.verdict is Verdict.PASS, str(right)
        assert {one.status for one in right.findings} == {Status.NONFINITE}
        if modes == ["R"]:
            wrong = only_of(torch.float16, lambda x: (x * x).sqrt(), lambda x: -x.sign())
            assert examine(wrong, x, seed=seed, blame=False).verdict is Verdict.FAIL
