"""Derivatives of less than double precision: the formula in float64, the rest against that."""

import numpy as np
import pytest
from frameworks import jax, jnp, torch
from scenarios import cells, long, on_both, over_seeds, torch_function

import adjudge
from adjudge import Status, Verdict, examine

LOW = ["float32", "float16", "bfloat16"]


def real(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


# ---------------------------------------------------------------- on both engines

MASK = np.ones((3, 3))
MASK[0, 2] = 0
PLANTS = {
    "right": lambda g, mask: g,
    "sign": lambda g, mask: -g,
    "dropped": lambda g, mask: g * mask,
    "factor": lambda g, mask: g * (1.01 if "float32" in str(g.dtype) else 1.1),
    "transposed": lambda g, mask: g.T,
}


LOW_AND_WRONG = [(dtype, plant) for dtype in LOW for plant in PLANTS]


# every plant on both engines, and every dtype; the slower one sees no dtype with every plant
@cells(("dtype", "plant"), torch=LOW_AND_WRONG, jax=LOW_AND_WRONG[::2])
def test_a_rule_that_is_wrong_in_low_precision_alone(adjudge_backend, with_vjp, dtype, plant):
    xp, mask = adjudge_backend.xp, adjudge_backend.array(MASK, dtype)

    def vjp(x, w):
        g = w * xp.cos(x)
        return g if "float64" in str(x.dtype) else PLANTS[plant](g, mask)

    report = examine(
        with_vjp(xp.sin, vjp), adjudge_backend.array(real(3, 3), dtype), seed=0, blame=False
    )

    assert report.verdict is (Verdict.PASS if plant == "right" else Verdict.FAIL), report
    assert report.provenance.note == "formula judged in float64"
    if plant != "right":
        assert [Status.MISMATCH] == [f.status for f in report.findings if not f.note]
        assert report.findings[0].detail.right
        assert "float64 derivative right" in report.headline


@on_both
@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("off", [0.0, 1e-4])
def test_a_small_error_in_the_formula_shows_in_every_dtype(adjudge_backend, with_vjp, dtype, off):
    xp = adjudge_backend.xp
    f = with_vjp(xp.sin, lambda x, w: (1 + off) * w * xp.cos(x))

    report = examine(f, adjudge_backend.array(real(3), dtype), seed=0, blame=False)

    assert report.verdict is (Verdict.FAIL if off else Verdict.PASS), report


@on_both
@pytest.mark.parametrize("off", [0.0, 1e-4])
def test_a_small_error_of_forward_mode_shows(adjudge_backend, with_jvp, off):
    xp = adjudge_backend.xp
    f = with_jvp(xp.sin, lambda x, v: (1 + off) * v * xp.cos(x))

    report = examine(f, adjudge_backend.array(real(3), "float32"), modes=["F"], seed=0, blame=False)

    assert report.modes == {"F": Verdict.FAIL if off else Verdict.PASS}, report


@on_both
@pytest.mark.parametrize("dtype", LOW)
def test_a_constant_rounded_to_the_dtype_is_no_error(adjudge_backend, dtype):
    x = adjudge_backend.array(real(3), dtype)

    report = examine(lambda x: 0.1 * x * 0.3 + 0.7 * x, x, seed=0, blame=False)

    assert report.verdict is Verdict.PASS, report


# that of JAX is below, with a compiled function
@cells("modes", torch=[["F", "RR"]])
def test_captured_arrays_are_widened_with_the_input(adjudge_backend, modes):
    xp = adjudge_backend.xp
    weight = adjudge_backend.array(real(4, 2, seed=1), "float32")
    before = weight.dtype

    report = examine(
        lambda x: xp.tanh(x @ weight) * 0.3,
        adjudge_backend.array(real(3, 4), "float32"),
        modes=modes,
        seed=0,
        blame=False,
    )

    assert report.verdict is Verdict.PASS, report
    assert report.provenance.note == "formula judged in float64"
    assert weight.dtype == before


@on_both
def test_a_small_error_behind_captured_arrays(adjudge_backend, with_vjp):
    xp = adjudge_backend.xp
    wrong = with_vjp(xp.sin, lambda x, w: (1 + 1e-4) * w * xp.cos(x))
    weight = adjudge_backend.array(real(4, 3, seed=1), "float32")
    mask = adjudge_backend.array(np.array([True, False, True]))

    report = examine(
        lambda x: xp.where(mask, wrong(x @ weight), x[:, :3]),
        adjudge_backend.array(real(2, 4), "float32"),
        seed=0,
        blame=False,
    )

    assert report.verdict is Verdict.FAIL
    assert report.provenance.note == "formula judged in float64"


def narrow(xp, x):
    """`x` in half precision."""
    return x.half() if hasattr(x, "half") else x.astype("float16")


def wide(xp, x):
    return x.float() if hasattr(x, "float") else x.astype("float32")


@cells("seed", torch=range(2))
def test_a_narrower_dtype_inside_is_named_and_allowed_for(adjudge_backend, spoiled, seed):
    xp = adjudge_backend.xp
    weight = adjudge_backend.array(real(5, 5, seed=seed + 10), "float32")
    x = adjudge_backend.array(real(2, 5, seed=seed), "float32")

    def network(x):
        return wide(xp, xp.tanh(narrow(xp, x) @ narrow(xp, weight)) @ narrow(xp, weight))

    wrong = spoiled(network, lambda x, g: -g)
    right, sign = (examine(f, x, seed=0, blame=False) for f in (network, wrong))

    assert right.verdict is not Verdict.FAIL, right
    assert sign.verdict is Verdict.FAIL
    note = right.provenance.note
    assert "past its conversions" in note or "out stays float32" in note
    assert right.verdict is Verdict.PASS or "eps of 0.00098 inside" in note


@on_both
def test_a_function_that_takes_no_double_is_judged_as_far_as_it_runs(adjudge_backend, with_vjp):
    """What JAX has recorded in single precision runs in double."""
    xp = adjudge_backend.xp

    def forward(x):
        if "float64" in str(x.dtype):
            raise RuntimeError("not implemented for 'Double'")
        return xp.sin(x)

    right, wrong = (
        examine(
            with_vjp(forward, lambda x, w, c=c: c * w * xp.cos(x)),
            adjudge_backend.array(real(3), "float32"),
            seed=0,
            blame=False,
        )
        for c in (1.0, -1.0)
    )

    assert [right.verdict, wrong.verdict] == [Verdict.PASS, Verdict.FAIL]
    jax = adjudge_backend.name == "jax"
    words = "formula judged in float64" if jax else "RuntimeError: not implemented for 'Double'"
    assert words in right.provenance.note


@on_both
def test_a_cast_inside_that_costs_precision_is_left_out(adjudge_backend, with_vjp):
    xp = adjudge_backend.xp
    wrong = with_vjp(xp.sin, lambda x, w: 1.1 * w * xp.cos(x))

    def casting(sine):
        return lambda x: xp.astype(sine(wide(xp, x)), x.dtype) * x

    reports = [
        examine(casting(sine), adjudge_backend.array(real(3), "float32"), seed=0, blame=False)
        for sine in (xp.sin, wrong)
    ]

    assert [report.verdict for report in reports] == [Verdict.PASS, Verdict.FAIL], reports
    note = "formula judged in float64, past its conversions to narrower dtypes"
    assert {report.provenance.note for report in reports} == {note}


# ---------------------------------------------------------------- PyTorch alone


def tensor(*shape, dtype="float32", seed=0):
    return torch.tensor(real(*shape, seed=seed)).to(getattr(torch, dtype)).requires_grad_()


@pytest.mark.backend("torch")
@pytest.mark.parametrize("dtype", LOW)
def test_the_weights_of_a_module_are_widened_with_its_input(dtype):
    module = torch.nn.Sequential(
        torch.nn.Linear(4, 6), torch.nn.LayerNorm(6), torch.nn.Tanh(), torch.nn.Linear(6, 2)
    ).to(getattr(torch, dtype))
    before = [parameter.detach().clone() for parameter in module.parameters()]

    report = examine(module, tensor(3, 4, dtype=dtype), check_forward_ad=True, seed=0, blame=False)

    assert report.verdict is Verdict.PASS, report
    assert report.provenance.note == "formula judged in float64"
    assert all(map(torch.equal, before, module.parameters()))


@pytest.mark.backend("torch")
def test_second_order_of_a_module():
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))

    report = adjudge.gradgradcheck(module, tensor(2, 3), check_fwd_over_rev=True, seed=0)

    assert report.provenance.note == "formula judged in float64"
    assert set(report.modes) == {"R", "RR", "FR"}


@pytest.mark.backend("torch")
@pytest.mark.parametrize("dtype", LOW)
def test_softmax_and_attention_pass(dtype):
    def attention(q, k, v):
        return torch.softmax(q @ k.T / 2, -1) @ v

    inputs = [tensor(3, 4, dtype=dtype, seed=seed) for seed in range(3)]
    report = examine(attention, inputs, modes=["R", "F", "RR"], seed=0, blame=False)

    assert report.verdict is Verdict.PASS, report
    assert report.provenance.note == "formula judged in float64"


def causal(q, k, v):
    mask = torch.full((4, 4), -torch.inf).to(q).triu(1)
    return torch.softmax(q @ k.T / 3**0.5 + mask, -1) @ v


@pytest.mark.backend("torch")
@over_seeds(10)
@pytest.mark.parametrize("drawn", [3, 6, 7, 14, 23])
def test_what_a_saturated_attention_rounds_away_in_float32_is_no_error(drawn, seeds):
    """Where a weight is 1 to rounding, a term is lost beside it at every point."""
    random = torch.Generator().manual_seed(drawn)
    q, k, v = (torch.randn(4, 3, generator=random) for _ in range(3))
    for seed in seeds:
        report = examine(causal, (5 * q, 5 * k, v), seed=seed, blame=False)
        assert report.verdict is not Verdict.FAIL, str(report)


def in_narrow(f, wrong, dtype):
    """`f` with its gradient, and what is `wrong` with that in one dtype alone."""

    class Rule(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            ctx.save_for_backward(*inputs)
            return f(*inputs)

        @staticmethod
        def backward(ctx, w):
            inputs = [x.detach().requires_grad_() for x in ctx.saved_tensors]
            with torch.enable_grad():
                found = torch.autograd.grad(f(*inputs), inputs, w)
            return tuple(wrong(g) if g.dtype == getattr(torch, dtype) else g for g in found)

    return Rule.apply


def layers(x):
    weights = torch.randn(4, 4, generator=torch.Generator().manual_seed(1)).to(x.dtype)
    return torch.tanh(weights @ torch.tanh(weights @ x))


@pytest.mark.backend("torch")
@over_seeds(10)
@pytest.mark.parametrize("wrong", [2.0, 0.0])
@pytest.mark.parametrize("f", ["attention", "layers", "norm"])
@pytest.mark.parametrize("dtype", LOW)
def test_the_worst_that_roundings_can_do_hides_no_error_of_a_narrow_dtype(dtype, f, wrong, seeds):
    random = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(4, 3, generator=random).to(getattr(torch, dtype)) for _ in range(3))
    functions = {
        "attention": (causal, (q, k, v)),
        "layers": (layers, (torch.tensor([0.3, 1, -0.5, 2], dtype=q.dtype),)),
        "norm": (
            lambda x: torch.nn.functional.layer_norm(x, (4,)),
            (torch.tensor([1.0, 2, 3, -4], dtype=q.dtype),),
        ),
    }
    function, inputs = functions[f]
    for seed in seeds:
        rule = in_narrow(function, lambda g: wrong * g, dtype)
        report = examine(rule, inputs, seed=seed, blame=False)
        assert report.verdict is Verdict.FAIL, str(report)


@pytest.mark.backend("jax")
@over_seeds(10)
@pytest.mark.parametrize(
    "x", [[1, 2, 3.5], long([0.3, -1.1, 2.4, 0.9]), long([0.7, -1.3, 2.1, 0.4, 0.05])]
)
def test_a_value_that_is_zero_to_rounding_is_another_zero_under_reverse_mode(x, seeds):
    """JAX adds in another order under `jax.vjp` than outside of it, and in another one compiled."""

    def mean(x):
        return ((x - x.mean()) / x.std()).mean()

    @jax.custom_vjp
    def off(x):
        return mean(x)

    off.defvjp(lambda x: (mean(x) + 1e-4, x), lambda x, w: (0 * x,))
    for seed in seeds:
        for f, verdict in (
            (mean, Verdict.PASS),
            (jax.jit(mean), Verdict.PASS),
            (off, Verdict.FAIL),
        ):
            array = jnp.array(x, jnp.float32)
            report = examine(f, array, seed=seed, compile=False, blame=False)
            assert report.verdict is verdict, str(report)


@pytest.mark.backend("jax")
@over_seeds(10)
@pytest.mark.parametrize("x", [[40, 22, 10], [10, -24, 16, 40, -14, 22]])
def test_a_derivative_below_the_smallest_number_of_float16_is_no_error(x, seeds):
    for seed in seeds:
        array = jnp.array(x, jnp.float16)
        report = examine(jax.nn.softmax, array, seed=seed, compile=False, blame=False)
        assert report.verdict is not Verdict.FAIL, str(report)


@pytest.mark.backend("torch")
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

    report = examine(torch.sigmoid, x, seed=0, blame=False)

    assert report.verdict is Verdict.PASS, report
    assert {Status.INACCURATE} == {finding.status for finding in report.findings}
    assert report.findings[0].detail.right
    assert "formula PASS; float" in str(report)


@pytest.mark.backend("torch")
@pytest.mark.parametrize("off", [0.0, 0.01])
def test_a_buffer_that_f_writes_into(rule, off):
    square = rule(lambda x: x * x, lambda x, w: (2 + off) * x * w)
    kept = torch.zeros(3)

    def f(x):
        out = torch.zeros(3)
        out[:] = square(x)
        kept.copy_(x.detach())
        return out.sin() * x + kept.sum() * 0

    report = examine(f, tensor(3), seed=0, blame=False)

    assert report.verdict is (Verdict.FAIL if off else Verdict.PASS), report


SHALLOW = {
    "logsumexp": lambda x: x.flatten().logsumexp(0),
    "cross-entropy": lambda x: torch.nn.functional.cross_entropy(x, torch.arange(6)),
    "mean square": lambda x: (x * x).mean(),
}
"""Functions of 48 numbers whose slopes are not much more than sixteen bits round."""

MISTAKEN = {"zero": 0.0, "another sign": -1.0, "twice": 2.0}


@pytest.mark.backend("torch")
@over_seeds(10)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("name", "options"),
    [("logsumexp", {"mode": "full"}), ("mean square", {"max_evaluations": 5000})]
    + [(name, {}) for name in SHALLOW],
)
def test_what_sixteen_bits_do_not_show_does_not_pass(name, dtype, options, seeds, rule):
    """Beside an error bar as wide as the derivative a zero agrees, along one tangent at some seeds
    and entry by entry at all. That is no PASS.
    """

    def slope(x):
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            return torch.autograd.grad(SHALLOW[name](x), x)[0]

    for seed in seeds:
        x = torch.randn(6, 8, generator=torch.Generator().manual_seed(seed))
        x = x.to(getattr(torch, dtype)).requires_grad_()
        for factor in MISTAKEN.values():
            f = rule(SHALLOW[name], lambda x, w, factor=factor: factor * w * slope(x))
            report = examine(f, x, seed=seed, in_double=False, blame=False, **options)
            assert report.verdict is not Verdict.PASS
        report = examine(SHALLOW[name], x, seed=seed, in_double=False, blame=False, **options)
        assert report.verdict is not Verdict.FAIL


@pytest.mark.backend("torch")
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


@pytest.mark.backend("torch")
@pytest.mark.parametrize("raises", [False, True])
def test_the_highest_precision_of_pytorch_is_for_the_check_alone(reduced, raises):
    before, seen = precision(), []

    def f(x):
        seen.append((precision(), (x @ x).dtype))
        if raises and len(seen) > 1:
            raise ValueError("stop")
        return x.sin()

    if raises:
        with pytest.raises(ValueError, match="stop"):
            examine(f, tensor(3, 3), highest_precision=True, in_double=False, blame=False)
    else:
        examine(f, tensor(3, 3), highest_precision=True, in_double=False, blame=False)

    assert set(seen) == {(("highest", False, False, False, False), torch.float32)}
    assert precision() == before


@pytest.mark.backend("torch")
def test_autocast_is_allowed_for_without_it(reduced):
    weight = tensor(3, 3, seed=1)

    def f(x):
        return (x @ weight).float()

    loose = examine(f, tensor(3, 3), seed=0, in_double=False, blame=False)
    strict = examine(f, tensor(3, 3), seed=0, in_double=False, highest_precision=True, blame=False)

    assert loose.tolerance["rtol"] > 0.05
    assert strict.tolerance["rtol"] < 0.01
    assert strict.verdict is Verdict.PASS, strict


# ---------------------------------------------------------------- JAX, outside of 64-bit mode


def array(*shape, dtype="float32", seed=0):
    return jnp.asarray(real(*shape, seed=seed), dtype)


@pytest.mark.backend("jax")
def test_the_function_itself_runs_outside_of_64_bit_mode():
    seen = set()

    def f(x):
        seen.add((str(x.dtype), bool(jax.config.jax_enable_x64)))
        return jnp.sin(x)

    assert adjudge.gradcheck(f, array(3))
    assert seen == {("float32", False), ("float64", True)}


@pytest.mark.backend("jax")
def test_captured_arrays_and_compiled_functions_take_part():
    weight = array(4, 2, seed=1)

    @jax.jit
    def f(x):
        return jnp.tanh(x @ weight) * 0.3

    report = examine(f, array(3, 4), modes=["R", "F"], seed=0, blame=False)

    assert report.verdict is Verdict.PASS, report
    assert report.provenance.note == "formula judged in float64"
    assert weight.dtype == jnp.float32
    assert not jax.config.jax_enable_x64


@pytest.mark.backend("jax")
def test_a_primitive_that_takes_float32_alone_is_judged_in_double_as_it_was_recorded(with_vjp):
    def f(x):
        return jax.lax.mul(jax.lax.sin(x), jnp.full(x.shape, 2.0, jnp.float32))

    report = examine(f, array(3), seed=0, blame=False)

    assert report.verdict is Verdict.PASS, report
    assert "formula judged in float64, past its conversions" in report.provenance.note
    off = with_vjp(f, lambda x, w: ((2 + 1e-5) * w * jnp.cos(x),))
    assert not examine(off, array(3), seed=0, blame=False)


@pytest.mark.backend("jax")
def test_check_grads_with_numbers_judges_natively(with_vjp):
    from adjudge_jax import check_grads

    seen = set()

    def f(x):
        seen.add(str(x.dtype))
        return jnp.sin(x)

    slightly = with_vjp(f, lambda x, w: ((1 + 1e-4) * w * jnp.cos(x),))
    check_grads(slightly, (array(3),), order=1, modes=["rev"], atol=1e-2, rtol=1e-2, eps=1e-2)
    assert seen == {"float32"}
    with pytest.raises(AssertionError):
        check_grads(slightly, (array(3),), order=1, modes=["rev"])


@pytest.mark.backend("jax")
@pytest.mark.parametrize("raises", [False, True])
def test_the_highest_precision_of_jax_is_for_the_check_alone(raises):
    seen = []

    def f(x):
        seen.append(jax.config.jax_default_matmul_precision)
        if raises:
            raise ValueError("stop")
        return x @ x

    if raises:
        with pytest.raises(ValueError, match="stop"):
            examine(f, array(3, 3), highest_precision=True, blame=False)
    else:
        assert examine(f, array(3, 3), highest_precision=True, blame=False)

    assert set(seen) == {"highest"}
    assert jax.config.jax_default_matmul_precision is None


@pytest.mark.backend("torch")
@pytest.mark.parametrize("size", [300, 20_000])
@pytest.mark.parametrize("missing", [1, 3])
def test_what_a_path_for_sixteen_bits_does_not_write_shows_among_thousands(size, missing):
    def silu(last):
        class Silu(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return torch.nn.functional.silu(x)

            @staticmethod
            def backward(ctx, w):
                (x,) = ctx.saved_tensors
                wide = x.float() if x.dtype is torch.bfloat16 else x
                s = torch.sigmoid(wide)
                g = w * (s * (1 + wide * (1 - s))).to(x.dtype)
                if x.dtype is torch.bfloat16 and last:
                    g[-last:] = 0
                return g

        return Silu.apply

    for seed in range(3):
        drawn = torch.Generator().manual_seed(seed)
        x = 1.5 * torch.randn(size, generator=drawn)
        x[-4:] = 0.8
        x = x.to(torch.bfloat16)
        assert adjudge.examine(silu(0), x, seed=seed).verdict is Verdict.PASS
        assert adjudge.examine(silu(missing), x, seed=seed).verdict is Verdict.FAIL


@pytest.mark.backend("torch")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("shape", [(16, 64), (64, 128)])
def test_a_path_for_sixteen_bits_without_the_terms_of_the_means_fails(dtype, shape):
    narrow = torch.bfloat16, torch.float16

    def layer_norm(whole):
        class LayerNorm(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                wide = x.float() if x.dtype in narrow else x
                return torch.nn.functional.layer_norm(wide, x.shape[-1:]).to(x.dtype)

            @staticmethod
            def backward(ctx, w):
                (x,) = ctx.saved_tensors
                low = x.dtype in narrow
                wide, w = (one.float() if low else one for one in (x, w))
                rate = torch.rsqrt(wide.var(-1, keepdim=True, unbiased=False) + 1e-5)
                y = (wide - wide.mean(-1, keepdim=True)) * rate
                g = w
                if whole or not low:
                    g = w - w.mean(-1, keepdim=True) - y * (w * y).mean(-1, keepdim=True)
                return (rate * g).to(x.dtype)

        return LayerNorm.apply

    for seed in range(3):
        x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
        x = x.to(getattr(torch, dtype))
        assert adjudge.examine(layer_norm(whole=True), x, seed=seed).verdict is Verdict.PASS
        assert adjudge.examine(layer_norm(whole=False), x, seed=seed).verdict is Verdict.FAIL


@pytest.mark.backend("torch")
@pytest.mark.parametrize("rate", [12, 20])
def test_deviations_of_a_leaf_that_have_another_pattern_at_each_point_are_rounding(rate):
    """The argument of the cosine is rounded to bfloat16, by up to a twentieth."""

    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.sin(rate * x.double()).to(x.dtype)

        @staticmethod
        def backward(ctx, w):
            (x,) = ctx.saved_tensors
            return rate * w * torch.cos(rate * x)

    for seed in range(5):
        x = torch.randn(16, 64, generator=torch.Generator().manual_seed(seed))
        report = adjudge.examine(Sine.apply, x.to(torch.bfloat16), seed=seed, blame=False)
        assert report.verdict is Verdict.PASS


SMALL = {
    "float16": ((64, 50), 0.1, lambda y: y.mean()),
    "bfloat16": ((64, 50), 0.05, lambda y: y),
}
"""The shape of some scores, the part of the largest gradient below which others are small, and what
a loss makes of its rows."""


@pytest.mark.backend("torch")
@over_seeds(10)
@pytest.mark.parametrize("dtype", SMALL)
def test_small_entries_that_a_narrow_dtype_leaves_out_show_together(dtype, seeds):
    """The rounding of f hides each of them, and not all together."""
    shape, part, end = SMALL[dtype]

    def loss(z):
        return end(torch.logsumexp(z, -1) - z[:, 0])

    def large(g):
        return torch.where(g.abs() < part * g.abs().max(), torch.zeros_like(g), g)

    z = 2 * torch.randn(shape, generator=torch.Generator().manual_seed(0))
    for seed in seeds:
        for wrong, verdict in ((lambda g: g, Verdict.PASS), (large, Verdict.FAIL)):
            rule = in_narrow(loss, wrong, dtype)
            report = examine(rule, (z.to(getattr(torch, dtype)),), seed=seed, blame=False)
            assert report.verdict is verdict, str(report)


def saturated(f, slope):
    """A function of tensors with its derivative, which computes what it needs of x once more."""
    return torch_function(f, lambda x, w: w * slope(x, f(x)))


SATURATED = {
    "all of a tanh": ("float16", [64], [4.0], [6.0]),
    "most of a sigmoid": ("bfloat16", [4, 60], [-1.0, 6.0], [1.0, 8.0]),
    "differences": ("bfloat16", [64], [0.01], [0.1]),
}
"""A dtype, and how many numbers lie between which: what is left of these rules has no digits."""


@pytest.mark.backend("torch")
@over_seeds(10)
@pytest.mark.parametrize("name", SATURATED)
def test_a_right_rule_of_which_rounding_leaves_nothing_is_not_wrong(name, seeds):
    rules = {
        "all of a tanh": saturated(torch.tanh, lambda x, y: 1 - y * y),
        "most of a sigmoid": saturated(torch.sigmoid, lambda x, y: y * (1 - y)),
        "differences": saturated(lambda x: x - torch.sin(x), lambda x, y: 1 - torch.cos(x)),
    }
    dtype, *parts = SATURATED[name]
    random = torch.Generator().manual_seed(0)
    x = torch.cat(
        [
            low + (high - low) * torch.rand(n, generator=random)
            for n, low, high in zip(*parts, strict=True)
        ]
    )
    for seed in seeds:
        report = examine(rules[name], (x.to(getattr(torch, dtype)),), seed=seed, blame=False)
        assert report.verdict is Verdict.PASS, str(report)


@pytest.mark.backend("torch")
@over_seeds(10)
@pytest.mark.parametrize("scores", [300, 302])
def test_a_softmax_with_one_large_score_is_not_wrong_for_what_rounding_takes(scores, seeds):
    """Next to a weight of nearly 1 its own entry is all rounding, and all are off alike."""

    def backward(x, w):
        y = torch.softmax(x, -1)
        return y * (w - (w * y).sum(-1, keepdim=True))

    softmax = torch_function(lambda x: torch.softmax(x, -1), backward)
    x = torch.randn(8, 8, generator=torch.Generator().manual_seed(scores))
    x[:, 0] += 9
    for seed in seeds:
        report = examine(softmax, (x.bfloat16(),), seed=seed, blame=False)
        assert report.verdict is Verdict.PASS, str(report)


def causal_conv(x, w):
    return torch.nn.functional.conv1d(torch.nn.functional.pad(x, (3, 0)), w[:, None], groups=3)


def without_last_step(x, w, v):
    """The gradient of a causal convolution, without the last step of the last tap in bfloat16."""
    padded, steps = torch.nn.functional.pad(x, (3, 0)), x.shape[-1]
    dx, dw = torch.zeros_like(x), torch.zeros_like(w)
    for k in range(4):
        dx[:, :, : steps - 3 + k] += v[:, :, 3 - k :] * w[None, :, k, None]
        part = v * padded[:, :, k : k + steps]
        last = -1 if k == 3 and x.dtype is torch.bfloat16 else steps
        dw[:, k] = part[:, :, :last].sum((0, 2))
    return dx, dw


def scaled_norm(x, w):
    wide = x.float() if x.dtype is torch.bfloat16 else x
    return (torch.nn.functional.layer_norm(wide, x.shape[-1:]) * w).to(x.dtype)


def of_what_is_not_normalised(x, w, v):
    """The gradient of a layer norm; in bfloat16 that of the weights has x as it was given."""
    narrow = x.dtype is torch.bfloat16
    wide, scales, g = (one.float() if narrow else one for one in (x, w, v))
    rate = torch.rsqrt(wide.var(-1, keepdim=True, unbiased=False) + 1e-5)
    y = (wide - wide.mean(-1, keepdim=True)) * rate
    d = g * scales
    dx = rate * (d - d.mean(-1, keepdim=True) - y * (d * y).mean(-1, keepdim=True))
    return dx.to(x.dtype), (g * (wide if narrow else y)).sum(0).to(x.dtype)


FEW = {
    "causal convolution": (causal_conv, without_last_step, (2, 3, 8), (3, 4)),
    "layer norm": (scaled_norm, of_what_is_not_normalised, (5, 8), (8,)),
    "layer norm of many": (scaled_norm, of_what_is_not_normalised, (64, 8), (8,)),
}
"""A function of inputs and a few parameters, and a rule that is wrong by a third of an entry of the
parameters, in bfloat16 alone."""


@pytest.mark.backend("torch")
@over_seeds(10, always=4)  # that of the convolution is to one side of its tolerance at the last
@pytest.mark.parametrize("name", FEW)
def test_a_few_parameters_that_are_off_in_sixteen_bits_alone_fail(name, seeds):
    f, backward, *shapes = FEW[name]
    for seed in seeds:
        drawn = torch.Generator().manual_seed(1000 + seed)
        inputs = tuple(torch.randn(*shape, generator=drawn).bfloat16() for shape in shapes)
        right = in_narrow(f, lambda g: g, "bfloat16")
        assert examine(right, inputs, seed=seed, blame=False).verdict is Verdict.PASS
        report = examine(torch_function(f, backward), inputs, seed=seed, blame=False)
        assert report.verdict is Verdict.FAIL, str(report)


def summed(x, w):
    total = torch.zeros_like(x[0])
    for row in x:
        total = total + row * w
    return total


def decayed(x, w):
    total = torch.zeros_like(x[0])
    for row in x:
        total = 0.95 * total + row * w
    return total


def normalised_by_squares(x, w):
    mean = x.mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(((x * x).mean(-1, keepdim=True) - mean**2).abs() + 1e-2) * w


NAIVE = {
    "a bias of many": (lambda x, b: x + b, (2000, 4), (4,)),
    "a scale of many": (lambda x, a: x * a, (2000, 1), (1,)),
    "a loop": (decayed, (100, 2), (2,)),
    "a loop that grows": (lambda x, w: summed(x.abs(), w), (100, 2), (2,)),
    "a temperature": (lambda x, t: torch.softmax(3 * x / (t.abs() + 0.5), -1), (8, 6), (1,)),
    "a small matrix": (lambda x, w: torch.tanh(x @ w), (40, 5), (5, 2)),
    "a norm": (lambda x: x / torch.sqrt((x * x).sum()), (4,)),
    "a long norm": (lambda x: x / torch.sqrt((x * x).sum()), (500,)),
    "a norm by squares": (normalised_by_squares, (16, 8), (8,)),
    "a variance by squares": (lambda x: ((3 + x) ** 2).mean() - (3 + x).mean() ** 2, (6,)),
    "attention": (lambda q, k, v: torch.softmax(q @ k.T, -1) @ v, (6, 4), (6, 4), (6, 4)),
    "a convolution": (lambda x, w: torch.nn.functional.conv1d(x, w), (2, 2, 40), (2, 2, 3)),
    "a polynomial at its root": (lambda x: ((x - 3) * x + 3) * x - 1, (3,)),
}
"""Functions whose gradients lose digits where every operation is rounded to sixteen bits."""


@pytest.mark.backend("torch")
@over_seeds(10)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", NAIVE)
def test_what_sixteen_bits_round_inside_of_a_right_rule_is_no_error(name, dtype, seeds):
    f, *shapes = NAIVE[name]
    for seed in seeds:
        drawn = torch.Generator().manual_seed(seed)
        inputs = [torch.randn(*shape, generator=drawn) for shape in shapes]
        inputs = tuple(x.to(getattr(torch, dtype)) for x in inputs)
        report = examine(in_narrow(f, lambda g: g, dtype), inputs, seed=seed, blame=False)
        assert report.verdict is not Verdict.FAIL, str(report)


@pytest.mark.backend("jax")
@over_seeds(12)
@pytest.mark.parametrize("by_hand", [False, True])
def test_what_leaves_the_range_of_float16_inside_is_a_note_at_every_seed(by_hand, seeds):
    """From 255 on `(1 + x)**2` is infinite in float16, in what JAX derives as well."""
    f = reciprocal = lambda x: 1 / (1 + x)
    if by_hand:
        f = jax.custom_vjp(reciprocal)
        f.defvjp(lambda x: (reciprocal(x), x), lambda x, w: (-w / (1 + x) ** 2,))
    for seed in seeds:
        report = examine(f, (jnp.array([300.0], jnp.float16),), seed=seed, blame=False)
        assert report.verdict is Verdict.PASS, str(report)
        assert Status.INACCURATE in {finding.status for finding in report.findings}


@pytest.mark.backend("jax")
@over_seeds(10)
@pytest.mark.parametrize("x", [2.0, 300.0])
def test_a_derivative_that_float16_leaves_out_everywhere_fails(x, seeds):
    f = jax.custom_vjp(reciprocal := lambda x: 1 / (1 + x))

    def backward(x, w):
        return (jnp.where(x.dtype == jnp.float16, 0, -w / (1 + x) / (1 + x)),)

    f.defvjp(lambda x: (reciprocal(x), x), backward)
    for seed in seeds:
        report = examine(f, (jnp.array([x], jnp.float16),), seed=seed, blame=False)
        assert report.verdict is Verdict.FAIL, str(report)


# ---------------------------------------------------------------- sums that are zero

WEIGHTS = np.sin(np.arange(6.0) + 1)


def shifted(missing):
    """`x + b`, whose rule in a narrow dtype leaves out so many terms of the gradient of b."""

    def backward(x, b, w):
        terms = w if w.dtype is torch.float64 else w[..., missing:]
        return w, terms.sum(-1, keepdim=True)

    return torch_function(lambda x, b: x + b, backward)


NORMS = {
    "softmax": lambda y: torch.softmax(y, -1),
    "log_softmax": lambda y: torch.log_softmax(y, -1),
    "layer norm": lambda y: torch.nn.functional.layer_norm(y, y.shape[-1:]),
}


@pytest.mark.backend("torch")
@pytest.mark.parametrize("missing", [0, 1])
@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("name", NORMS)
@over_seeds(10)
def test_the_gradient_of_a_shift_before_a_norm_is_zero_and_no_inaccurate_number(
    name, dtype, missing, seeds
):
    shift, inaccurate, evaluations = shifted(missing), 0, 0

    def f(x, b):
        return NORMS[name](shift(x, b)) * torch.tensor(WEIGHTS, dtype=x.dtype)

    for seed in seeds:
        x, b = tensor(4, 6, dtype=dtype, seed=seed), tensor(4, 1, dtype=dtype, seed=seed + 10)
        report = examine(f, (x, b), modes=["R"], seed=seed, blame=False)
        assert report.verdict is (Verdict.FAIL if missing else Verdict.PASS), report
        inaccurate += any(one.status is Status.INACCURATE for one in report.findings)
        evaluations += report.counts["evaluations"]
    if not missing:  # nothing was said, and nothing asked for it, at nearly all seeds
        assert inaccurate <= len(seeds) / 5
        assert evaluations < 80 * len(seeds)


OF_CENTRED = {
    "squares": lambda y: y**2,
    "cubes": lambda y: y**3,
    "sines": lambda y: torch.sin(y),
}


def of_centred(outer, amount):
    """`outer` of rows of `x + b` without their mean, whose rule is off by this in float32 alone.

    In rows of eight or sixteen, float64 adds the gradient of b up to zero to the last bit.
    """

    def f(x, b):
        return outer((x + b) - (x + b).mean(-1, keepdim=True))

    def backward(x, b, w):
        with torch.enable_grad():
            x, b = x.detach().requires_grad_(), b.detach().requires_grad_()
            of_x, of_b = torch.autograd.grad(f(x, b), (x, b), w)
        off = amount * w.sum(-1, keepdim=True)
        return of_x, of_b + off if w.dtype is torch.float32 else of_b

    return torch_function(f, backward)


@pytest.mark.backend("torch")
@pytest.mark.parametrize("amount", [0, 1e-4])
@pytest.mark.parametrize("name", OF_CENTRED)
@over_seeds(10, always=2)
def test_roundings_of_what_double_adds_up_to_zero_exactly_are_no_error(name, amount, seeds):
    f, inaccurate = of_centred(OF_CENTRED[name], amount), 0
    for seed in seeds:
        x, b = (
            tensor(4, 8, dtype="float32", seed=seed),
            tensor(4, 1, dtype="float32", seed=seed + 10),
        )
        report = examine(f, (x, b), modes=["R"], seed=seed, blame=False)
        assert report.verdict is (Verdict.FAIL if amount else Verdict.PASS), report
        inaccurate += any(one.status is Status.INACCURATE for one in report.findings)
    if not amount:
        assert inaccurate <= len(seeds) / 3


@pytest.mark.backend("torch")
@pytest.mark.parametrize(("name", "seed"), [("cubes", 9), ("sines", 1)])
def test_such_roundings_are_no_error_where_they_stand_still_next_to_x(name, seed):
    x, b = (
        tensor(4, 16, dtype="float32", seed=seed),
        tensor(4, 1, dtype="float32", seed=seed + 10),
    )
    f = of_centred(OF_CENTRED[name], 0)
    report = examine(f, (x, b), modes=["R"], seed=seed, blame=False)
    assert report.verdict is Verdict.PASS, report


@pytest.mark.backend("torch")
@over_seeds(10, always=2)
def test_the_zeros_of_a_linear_function_show_where_probes_move(seeds):
    def centred(x, b):
        return (x + b) - (x + b).mean(-1, keepdim=True)

    inaccurate = 0
    for seed in seeds:
        x, b = (
            tensor(4, 5, dtype="bfloat16", seed=seed),
            tensor(4, 1, dtype="bfloat16", seed=seed + 9),
        )
        report = examine(centred, (x, b), modes=["R"], seed=seed, blame=False)
        assert report.verdict is Verdict.PASS, report
        inaccurate += any(one.status is Status.INACCURATE for one in report.findings)
    assert inaccurate <= len(seeds) / 5


def wrong_above_one(factor):
    """A sigmoid whose rule, in sixteen bits alone, is off by this factor where x is above 1."""

    def backward(x, w):
        y = torch.sigmoid(x)
        slope = y * (1 - y) * w
        return slope if x.dtype is torch.float64 else torch.where(x > 1, factor * slope, slope)

    return torch_function(torch.sigmoid, backward)


@pytest.mark.backend("torch")
@over_seeds(10, always=2)
@pytest.mark.parametrize(
    ("above", "factor", "verdict"),
    [
        (2.4, 1.0, Verdict.PASS),
        (2.4, 0.0, Verdict.FAIL),
        (2.4, -1.0, Verdict.FAIL),
        (3.2, 1.0, Verdict.PASS),
        (3.2, 0.0, Verdict.FAIL),
    ],
)
def test_one_entry_whose_slope_cancels_is_wrong_at_every_seed(above, factor, verdict, seeds):
    for seed in seeds:
        random = np.random.default_rng(seed)
        x = torch.tensor([*(0.3 * random.normal(size=6)), above + 0.3 * random.random()])
        report = examine(wrong_above_one(factor), x.to(torch.bfloat16), seed=seed, blame=False)
        assert report.verdict is verdict, str(report)
