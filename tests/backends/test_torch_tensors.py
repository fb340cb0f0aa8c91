"""Complex numbers, lazy views, subclasses and compiled functions."""

import warnings

import pytest
from frameworks import torch
from scenarios import over_seeds, seeds

import adjudge

pytestmark = pytest.mark.backend("torch")


@pytest.fixture
def z():
    torch.manual_seed(0)
    return torch.randn(3, dtype=torch.complex128, requires_grad=True)


MODES = [{}, {"fast_mode": True}, {"check_forward_ad": True}]


@pytest.mark.parametrize("options", MODES, ids=["R", "fast", "R and F"])
@pytest.mark.parametrize(
    "f",
    [
        lambda z: z**2,
        lambda z: z * z.conj() + 1j * z.real,
        lambda z: z.abs(),
        lambda z: z.angle(),
        lambda z: torch.view_as_real(z),
        lambda z: (z.imag, z.exp(), z.abs() ** 2),
    ],
    ids=["holomorphic", "not holomorphic", "abs", "angle", "view_as_real", "mixed"],
)
def test_complex_inputs_are_checked_as_pairs_of_reals(gradcheck, z, f, options):
    assert gradcheck(f, (z,), **options)


@pytest.mark.parametrize("options", MODES, ids=["R", "fast", "R and F"])
def test_a_forgotten_conjugate_is_found(gradcheck, rule, z, options):
    right = rule(lambda z: z**2, lambda z, w: 2 * z.conj() * w, lambda z, v: 2 * z * v)
    wrong = rule(lambda z: z**2, lambda z, w: 2 * z * w, lambda z, v: 2 * z * v)

    assert gradcheck(right, (z,), **options)
    assert not gradcheck(wrong, (z,), raise_exception=False, **options)


def test_a_wrong_imaginary_part_is_named(gradcheck, rule, z):
    f = rule(lambda z: 2 * z, lambda z, w: torch.complex(2 * w.real, 3 * w.imag))

    with pytest.raises(adjudge.GradcheckError, match=r"\.imag / d inputs\[0\]\[\d\]\.imag"):
        gradcheck(f, (z,))


def test_real_inputs_may_have_complex_outputs(gradcheck, rule, x):
    wrong = rule(lambda x: torch.exp(1j * x), lambda x, w: (w * 1j * torch.exp(1j * x)).real)

    assert gradcheck(lambda x: torch.exp(1j * x), (x,))
    assert not gradcheck(wrong, (x,), raise_exception=False)


def test_complex_second_derivatives_are_checked(gradgradcheck, rule, z):
    wrong = rule(lambda z: z**2, lambda z, w: 2 * z.detach().conj() * w)

    assert gradgradcheck(lambda z: z**2 * z.conj(), (z,), check_fwd_over_rev=True)
    assert not gradgradcheck(wrong, (z,), raise_exception=False)


def test_a_real_tangent_of_a_complex_output_is_found(gradcheck, rule, z):
    f = rule(lambda z: 2 * z, lambda z, w: 2 * w, lambda z, v: (2 * v).real)

    assert not gradcheck(f, (z,), check_forward_ad=True, raise_exception=False)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_inputs_and_outputs_with_the_conjugate_bit_are_checked(gradcheck, z, dtype):
    lazy = z.detach().to(getattr(torch, dtype)).conj()
    assert lazy.is_conj()

    assert gradcheck(lambda z: z**2, (lazy.requires_grad_(),))
    assert gradcheck(lambda z: z.conj(), (z,))


def test_inputs_and_outputs_with_the_negative_bit_are_checked(gradcheck, x, z):
    lazy = torch._neg_view(x.detach())
    assert lazy.is_neg()
    assert z.detach().conj().imag.is_neg()

    assert gradcheck(lambda x: x**2, (lazy.requires_grad_(),))
    assert gradcheck(lambda z: z.conj().imag, (z,))


def test_a_float32_gradient_of_a_float64_input_is_cast_by_the_engine(gradcheck, rule, x):
    f = rule(lambda x: 2 * x, lambda x, w: (2 * w).float())

    assert gradcheck(f, (x,), check_grad_dtypes=True)


def test_a_gradient_that_loses_digits_on_the_way_is_found(gradcheck, rule, x):
    f = rule(lambda x: x.sin(), lambda x, w: (w * x.cos()).bfloat16())

    assert not gradcheck(f, (x,), raise_exception=False)


def test_a_complex_gradient_of_a_real_input_is_refused_by_the_engine(gradcheck, rule, x):
    f = rule(lambda x: 2 * x, lambda x, w: 2j * w)

    with pytest.raises(RuntimeError, match="input_is_complex == grad_is_complex"):
        gradcheck(f, (x,))


def test_a_gradient_on_another_device_is_refused_by_the_engine(gradcheck, rule, x):
    f = rule(lambda x: 2 * x, lambda x, w: torch.empty_like(w, device="meta"))

    with pytest.raises(RuntimeError, match="expected device"):
        gradcheck(f, (x,))


def test_inputs_of_two_dtypes_are_judged_by_the_coarser(gradcheck, rule, x):
    y = x.detach().float().requires_grad_()
    wrong = rule(lambda x, y: x * y, lambda x, y, w: (w * y, (-w * x).float()))

    assert gradcheck(torch.mul, (x, y))
    assert not gradcheck(wrong, (x, y), raise_exception=False)


# -- subclasses


def test_a_tensor_subclass_reaches_the_function_as_itself(gradcheck, scaled_sin, x):
    class Tagged(torch.Tensor):
        pass

    seen = set()

    def f(x):
        seen.add(type(x))
        return x.sin()

    tagged = x.detach().as_subclass(Tagged).requires_grad_()

    assert gradcheck(f, (tagged,))
    assert {Tagged} == seen
    assert not gradcheck(scaled_sin(-1.0), (tagged,), raise_exception=False)


def test_a_parameter_is_an_input_like_any_other(gradcheck):
    parameter = torch.nn.Parameter(torch.tensor([0.3, -0.7], dtype=torch.float64))

    assert gradcheck(torch.sin, (parameter,))
    assert parameter.grad is None


# -- compiled functions


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_functions_are_checked(gradcheck, x, backend):
    with warnings.catch_warnings():
        # the compiler imports what is deprecated elsewhere in PyTorch
        warnings.simplefilter("ignore")
        f = torch.compile(lambda x: x.sin() * x, backend=backend)

        assert gradcheck(f, (x,))


@pytest.mark.parametrize(
    "asked", [{"order": 1}, {"check_forward_ad": True, "check_batched_forward_grad": True}]
)
def test_a_compiled_function_is_compiled_after_a_check(x, asked):
    # under torch.func the compiler passes a function over, and it would stay as written for good
    as_written = []

    def f(x):
        if not torch.compiler.is_compiling():
            as_written.append(1)
        return x.sin() * x

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(f, backend="eager")
        compiled(x)
        adjudge.examine(compiled, (x,), **asked)
        before = len(as_written)
        compiled(x)
        compiled(x.detach().clone())

    assert len(as_written) == before


def test_a_wrong_rule_inside_a_compiled_function_is_found(scaled_sin, x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrong = scaled_sin(-1.0)
        f = torch.compile(lambda x: 2 * wrong(x), backend="eager")

        assert not adjudge.examine(f, (x,))


LAYOUTS = {
    "raises for a view": lambda x, w: w.view(-1).view_as(x) * x.cos(),
    "takes an expanded cotangent for its first entry": lambda x, w: (
        (w * torch.eye(*w.shape, dtype=w.dtype) if w.stride() == (0, 0) else w) * x.cos()
    ),
    "reads memory with gaps in another order": lambda x, w: (
        (w if w.is_contiguous() or w.stride() == (0, 0) else w.flip(0)) * x.cos()
    ),
}


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_backward_that_is_wrong_for_a_layout_fails(rule, x, name, seed):
    twice = torch.stack([x.detach(), 2 * x.detach()]).requires_grad_()

    report = adjudge.examine(rule(torch.sin, LAYOUTS[name]), (twice,), seed=seed)

    assert report.verdict is adjudge.Verdict.FAIL
    assert "cotangent" in str(report)
    assert "contiguous" in str(report)


@over_seeds(10)
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("factor", [2.0, 3.0])
def test_numbers_of_eight_bits_are_judged(rule, dtype, factor, seeds):
    f = rule(lambda x: x.float() ** 2, lambda x, w: (factor * w * x.float()).to(x.dtype))
    x = torch.tensor([0.5, 1.25, 2.0]).to(getattr(torch, dtype))

    for seed in seeds:
        report = adjudge.examine(f, x, seed=seed, blame=False)
        if factor == 2.0:
            assert report.verdict is not adjudge.Verdict.FAIL
        else:
            assert report.verdict is adjudge.Verdict.FAIL


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", ["strided", "jagged"])
def test_a_nested_tensor_is_refused_with_what_to_pass(layout):
    parts = [torch.ones(2), torch.ones(3)]
    x = torch.nested.nested_tensor(parts, layout=getattr(torch, layout))

    with pytest.raises(adjudge.InputError, match="a nested tensor of 2 tensors, float32"):
        adjudge.examine(lambda x: 2 * x, x)
