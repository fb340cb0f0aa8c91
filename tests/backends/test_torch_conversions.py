"""Functions that convert numbers to sixteen bits inside, under autocast or by themselves, are
judged past these conversions.
"""

import pytest
from frameworks import torch
from scenarios import long, over_seeds

import adjudge
from adjudge import Verdict
from adjudge.findings import NarrowWrong

pytest.importorskip("torch")
pytestmark = pytest.mark.backend("torch")

FEW = range(2)
"""The functions differ in how they convert, and not in what is drawn."""


def autocast():
    return torch.autocast("cpu", dtype=torch.bfloat16)


def sine(rule, factor):
    """A rule that is off by a factor in every precision."""
    return rule(lambda x: x.sin(), lambda x, w: factor * w * x.cos())


def layers():
    return torch.nn.Linear(6, 8), torch.nn.Linear(8, 4), torch.nn.LayerNorm(8)


def result_in_sixteen_bits(f, x, first, second, norm):
    with autocast():
        return second(f(first(x)))


def result_in_single(f, x, first, second, norm):
    with autocast():
        return second(f(first(x))).float()


def norm_in_single(f, x, first, second, norm):
    with autocast():
        return second(f(norm(first(x).float())))


def loss(f, x, first, second, norm):
    with autocast():
        y = second(f(first(x)))
    return torch.nn.functional.mse_loss(y.float(), torch.ones(len(x), 4))


def attention(f, x, first, second, norm):
    with autocast():
        h = f(first(x))
        return ((h @ h.T / 8**0.5).float().softmax(-1).to(h.dtype) @ h).float()


def layer_in_sixteen_bits(f, x, first, second, norm):
    return f(first.bfloat16()(x.bfloat16()).float())


def layer_in_double(f, x, first, second, norm):
    return f(first.bfloat16()(x.bfloat16()).double())


def product_in_half(f, x, first, second, norm):
    return f((x.half() @ first.weight.detach().half().T).to(torch.float32))


def small_part(f, x, first, second, norm):
    return f(x) + 1e-3 * x.type(torch.bfloat16).type_as(x)


FUNCTIONS = [
    result_in_sixteen_bits, result_in_single, norm_in_single, loss, attention,
    layer_in_sixteen_bits, product_in_half, small_part,
]  # fmt: skip


def judged(function, f, seed, rows=3, dtype=torch.float32, **options):
    torch.manual_seed(seed)
    held = [layer.to(dtype) for layer in layers()]
    x = torch.randn(rows, 6, dtype=dtype)
    return adjudge.examine(lambda x: function(f, x, *held), (x,), seed=seed, blame=False, **options)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_right_derivative_passes_and_a_wrong_one_fails(rule, function):
    for seed in FEW:
        right = judged(function, sine(rule, 1.0), seed)

        assert right.verdict is Verdict.PASS, str(right)
        wrong = judged(function, sine(rule, -1.0 if seed % 2 else 1.05), seed)
        assert wrong.verdict is Verdict.FAIL


@pytest.mark.parametrize("function", [result_in_sixteen_bits, small_part, long(product_in_half)])
def test_so_it_is_beside_an_exact_reference(rule, function):
    pytest.importorskip("flint")
    right, wrong = (
        judged(function, sine(rule, factor), 0, rows=1, reference="exact") for factor in (1.0, 1.05)
    )

    assert right.verdict is Verdict.PASS, str(right)
    assert right.certified
    assert wrong.verdict is Verdict.FAIL
    assert "judged by a reference (exact replay) in float64" in str(wrong)


@pytest.mark.parametrize("reference", [None, "exact"])
def test_so_it_is_with_inputs_in_double_precision(rule, reference):
    if reference:
        pytest.importorskip("flint")

    def in_half(f, x, *_):
        return f(x.half()).to(x.dtype) * x

    options = {"dtype": torch.float64, "reference": reference, "rows": 1 if reference else 3}
    for seed in FEW[:1] if reference else FEW:
        for function in (layer_in_double, in_half):
            for factor, verdict in ((1.0, Verdict.PASS), (1.05, Verdict.FAIL)):
                report = judged(function, sine(rule, factor), seed, **options)

                assert report.verdict is verdict, str(report)


@pytest.mark.parametrize("function", [layer_in_sixteen_bits, product_in_half])
def test_errors_far_below_the_spacing_of_sixteen_bits_show_past_them(rule, function):
    for factor, verdict in ((1.0, Verdict.PASS), (1.001, Verdict.FAIL), (1.0001, Verdict.FAIL)):
        assert judged(function, sine(rule, factor), 0).verdict is verdict


@over_seeds(10)
def test_ten_seeds_of_one(rule, seeds):
    for seed in seeds:
        assert judged(loss, sine(rule, 1.0), seed).verdict is Verdict.PASS
        assert judged(loss, sine(rule, 0.97), seed).verdict is Verdict.FAIL


def test_the_report_says_that_it_looked_past_the_conversions(rule):
    report = judged(layer_in_sixteen_bits, sine(rule, 1.0), 0)

    assert "formula judged in float64, past its conversions to narrower dtypes" in str(report)


@pytest.mark.parametrize("factor", [1.1, -1.0])
def test_a_rule_that_is_wrong_in_sixteen_bits_alone_fails_there(rule, factor):
    def backward(x, w):
        return w * x.cos() * (factor if x.dtype is torch.bfloat16 else 1.0)

    for seed in FEW:
        report = judged(result_in_single, rule(lambda x: x.sin(), backward), seed)

        assert report.verdict is Verdict.FAIL
        assert any(isinstance(finding.detail, NarrowWrong) for finding in report.findings)


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Verdict.PASS), (1.05, Verdict.FAIL)])
def test_a_result_of_sixteen_bits_whatever_the_input_has(rule, factor, verdict):
    def kernel(x):
        return x.float().sin().to(torch.bfloat16)

    def backward(x, w):
        return (factor * w.float() * x.float().cos()).to(torch.bfloat16)

    f = rule(kernel, backward)
    for seed in FEW:
        torch.manual_seed(seed)
        assert adjudge.examine(f, (torch.randn(40).bfloat16(),), seed=seed).verdict is verdict


def test_what_is_written_into_a_converted_number_leaves_the_input_alone():
    def f(x):
        half = x.half()
        half.mul_(2)
        return (half.float() * x).sin()

    for seed in FEW:
        torch.manual_seed(seed)
        report = adjudge.examine(f, (torch.rand(20),), seed=seed)

        assert report.verdict is Verdict.PASS, str(report)


@pytest.mark.parametrize("slope", [0.0, 1.0])
def test_stairs_that_the_function_makes_are_no_conversion(rule, slope):
    stairs = rule(lambda x: (8 * x).round() / 8, lambda x, w: slope * w)

    for seed in FEW:
        torch.manual_seed(seed)
        report = adjudge.examine(lambda x: stairs(x.bfloat16().float()), (3 * torch.randn(10),))

        assert report.verdict is not (Verdict.FAIL if slope == 0 else Verdict.PASS)


def normalised(f, x):
    single = f(x).float()
    return (single * (single.square().mean() + 1e-6).rsqrt()).to(x.dtype)


def spectrum(f, x):
    return torch.fft.fft(f(x).to(torch.complex64)).abs().square()


def weighted(f, x):
    return f(x).softmax(-1, dtype=torch.float32) * x


SINGLE = [normalised, spectrum, weighted]


@over_seeds(10)
@pytest.mark.parametrize(
    ("function", "dtype"),
    [
        (SINGLE[0], "float64"),
        (normalised, "float32"),
        *(long(function, "float64") for function in SINGLE[1:]),
        *(long(function, "float32") for function in SINGLE[1:]),
    ],
)
def test_an_error_far_below_what_float32_resolves_shows_past_it(rule, function, dtype, seeds):
    def judged(factor, seed, **options):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(5, generator=generator, dtype=getattr(torch, dtype))
        f = sine(rule, factor)
        call = lambda x: function(f, x)  # noqa: E731
        return adjudge.examine(call, (x,), seed=seed, blame=False, **options)

    for seed in seeds if function is spectrum else seeds[:2]:
        right = judged(1.0, seed)

        assert right.verdict is Verdict.PASS, str(right)
        assert "past its conversions to narrower dtypes" in str(right)
        assert judged(1 + 1e-5, seed).verdict is Verdict.FAIL
    if dtype == "float64" and 0 in seeds:
        assert judged(1.0, 0, reference="exact").verdict is Verdict.PASS
        assert judged(1 + 1e-5, 0, reference="exact").verdict is Verdict.FAIL


@over_seeds(2)
def test_a_second_derivative_past_float32_is_seen_too(rule, seeds):
    def direction(x):
        return torch.sgn(torch.log(x.abs() + 1).to(torch.complex64) + 0.7) * f(x)

    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(4, generator=generator)
        for factor, verdict in ((1.0, Verdict.PASS), (1.0001, Verdict.FAIL)):
            f = sine(rule, factor)
            found = adjudge.examine(direction, (x,), modes=["R", "RR"], blame=False)

            assert found.verdict is verdict, str(found)


HALF = {
    "tanh": lambda y: y.tanh(),
    "softmax": lambda y: y.softmax(-1),
    "gelu": lambda y: torch.nn.functional.gelu(y),
}


@over_seeds(10)
@pytest.mark.parametrize("modes", [["R"], ["RR"]])
@pytest.mark.parametrize("name", HALF)
def test_float16_inside_of_bfloat16_has_no_room_for_small_and_large_cotangents(name, modes, seeds):
    """It has more digits than bfloat16, and so is not the narrowest dtype there."""

    def f(x):
        return HALF[name](x.half()).to(x.dtype)

    for seed in seeds:
        x = torch.randn(6, generator=torch.Generator().manual_seed(seed)).bfloat16()
        report = adjudge.examine(f, x, modes=modes, seed=seed, blame=False)

        assert report.verdict is Verdict.PASS, str(report)


@over_seeds(10)
@pytest.mark.parametrize("mistake", ["a factor", "no small ones", "no large ones"])
def test_a_rule_that_is_wrong_in_float16_inside_of_bfloat16_fails(rule, mistake, seeds):
    mistakes = {
        "a factor": lambda x, w: 1.2 * w * (1 - x.tanh() ** 2),
        "no small ones": lambda x, w: torch.where(w.abs() < 0.8, 0, w) * (1 - x.tanh() ** 2),
        "no large ones": lambda x, w: w.clamp(-2, 2) * (1 - x.tanh() ** 2),
    }
    tanh = rule(lambda x: x.tanh(), mistakes[mistake])
    for seed in seeds:
        x = torch.randn(6, generator=torch.Generator().manual_seed(seed)).bfloat16()
        report = adjudge.examine(
            lambda x: tanh(x.half()).to(x.dtype), x, modes=["R"], seed=seed, blame=False
        )

        assert report.verdict is Verdict.FAIL, str(report)
