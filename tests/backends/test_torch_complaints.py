"""What users of torch.autograd.gradcheck report, and what adjudge does about it."""

import pytest
from frameworks import torch
from scenarios import seeds

import adjudge
from adjudge import Status

pytestmark = pytest.mark.backend("torch")


def statuses(report):
    return {finding.status for finding in report.findings}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_low_precision_just_works(gradcheck, scaled_sin, dtype):
    x = torch.tensor([0.3, -0.7, 1.1], dtype=getattr(torch, dtype), requires_grad=True)

    assert gradcheck(lambda x: x * x, (x,))
    assert not gradcheck(scaled_sin(-1.0), (x,), raise_exception=False)
    assert not gradcheck(scaled_sin(0.0), (x,), raise_exception=False)


@pytest.mark.parametrize(
    "module",
    [
        lambda: torch.nn.Linear(4, 3),
        lambda: torch.nn.LayerNorm(4),
        lambda: torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh()),
    ],
    ids=["Linear", "LayerNorm", "Sequential"],
)
def test_float32_modules_have_right_gradients(gradcheck, module):
    torch.manual_seed(0)
    x = torch.randn(2, 4, requires_grad=True)

    assert gradcheck(module(), (x,))


def test_a_wrong_gradient_below_the_tolerance_of_others_is_found(gradcheck, rule, x):
    f = rule(lambda x: 1e-8 * x.sin(), lambda x, w: -3e-8 * w * x.cos())

    assert gradcheck(lambda x: 1e-8 * x.sin(), (x,))
    assert not gradcheck(f, (x,), raise_exception=False)
    assert torch.autograd.gradcheck(f, (x,))


def test_wrong_gradients_of_seventy_thousand_entries_are_found(scaled_sin):
    # as many inputs and outputs together as `limits` calls large
    x = torch.linspace(-1, 1, 70_000, dtype=torch.float64).requires_grad_()

    assert adjudge.gradcheck(scaled_sin(), (x,))
    for factor in (0.0, -1.0):
        assert not adjudge.gradcheck(scaled_sin(factor), (x,), raise_exception=False)


def test_a_zeroed_gradient_row_of_a_matrix_product_is_found(gradcheck, rule):
    size = 64
    torch.manual_seed(0)
    weight = torch.randn(size, size, dtype=torch.float64) / size**0.5
    x = torch.randn(size, size, dtype=torch.float64, requires_grad=True)
    kept = torch.ones(size, 1, dtype=torch.float64)
    kept[5] = 0
    f = rule(lambda x: x @ weight, lambda x, w: kept * (w @ weight.t()))

    assert not gradcheck(f, (x,), raise_exception=False, fast_mode=True)


def test_one_wrong_entry_of_a_large_jacobian_is_named(gradcheck, rule):
    x = torch.linspace(-1, 1, 200, dtype=torch.float64).requires_grad_()

    def backward(x, w):
        g = 2 * w
        g[17] = g[17] + 0.1 * w[4]
        return g

    f = rule(lambda x: 2 * x, backward)

    for fast in (True, False):
        with pytest.raises(
            adjudge.GradcheckError, match=r"d out\[4\] / d inputs\[0\]\[17\]: automatic 0\.1"
        ):
            gradcheck(f, (x,), fast_mode=fast)


def test_one_output_detached_by_accident_is_called_so(x):
    report = adjudge.examine(lambda x: (x.sin(), (2 * x).detach()), (x,), mode="full")

    assert not report
    assert {Status.DETACHED} == statuses(report)
    assert "d out[1]" in report.headline
    assert torch.autograd.gradcheck(lambda x: (x.sin(), (2 * x).detach()), (x,))


def test_an_output_made_under_no_grad_is_called_detached(x):
    def f(x):
        with torch.no_grad():
            return x.sin()

    assert {Status.DETACHED} == statuses(adjudge.examine(f, (x,)))


def stream():
    """Random numbers from a generator that is out of sight."""
    generator = torch.Generator().manual_seed(0)
    return iter(lambda: torch.rand(50, generator=generator, dtype=torch.float64), None)


def test_dropout_with_a_generator_out_of_sight_is_nondeterministic_with_its_spread():
    x = torch.linspace(1, 2, 50, dtype=torch.float64).requires_grad_()
    numbers = stream()

    report = adjudge.examine(lambda x: x * next(numbers), (x,))

    assert not report
    assert {Status.NONDETERMINISTIC} == statuses(report)
    assert "between two evaluations at the same x" in report.headline


def test_dropout_that_is_seeded_inside_passes_with_a_note(x):
    def f(x):
        torch.manual_seed(3)
        return torch.nn.functional.dropout(x)

    report = adjudge.examine(f, (x,))

    assert report
    assert statuses(report) <= {Status.DRAWS_RANDOM}


@pytest.mark.parametrize("seed", seeds(10))
def test_random_numbers_from_a_generator_of_the_user_are_held_fixed(rule, x, seed):
    generator = torch.Generator().manual_seed(seed)
    before = generator.get_state()

    def f(factor):
        sin = rule(lambda x: x.sin(), lambda x, w: factor * w * x.cos())
        return lambda x: sin(x) * torch.rand(3, dtype=torch.float64, generator=generator)

    assert {Status.DRAWS_RANDOM} == statuses(adjudge.examine(f(1.0), (x,), seed=seed))
    wrong = adjudge.examine(f(1.01), (x,), seed=seed)
    assert Status.MISMATCH in statuses(wrong)
    assert "the rule at fault: Rule.backward" in str(wrong)
    assert torch.equal(generator.get_state(), before)


def test_the_wrong_input_is_named_by_its_position_among_all_arguments(gradcheck, scaled_sin, x):
    constant = torch.ones(3, dtype=torch.float64)

    with pytest.raises(adjudge.GradcheckError, match=r"/ d inputs\[1\]\[\d\]: automatic"):
        gradcheck(lambda c, x: c * scaled_sin(-1.0)(x), (constant, x))


def test_a_kink_is_called_so_with_both_slopes():
    x = torch.tensor([0.0, 1.0], dtype=torch.float64, requires_grad=True)

    report = adjudge.examine(torch.relu, (x,))

    assert adjudge.Verdict.PASS is report.verdict  # the derivative is right beside the kink
    assert {Status.NONSMOOTH} == statuses(report)
    assert "left, " in str(report)
    assert "right" in str(report)


def test_a_point_outside_the_domain_is_called_not_finite():
    x = torch.tensor([-1.0, 2.0], dtype=torch.float64, requires_grad=True)

    report = adjudge.examine(torch.log, (x,))

    assert not report
    assert {Status.NONFINITE} == statuses(report)
    assert "out[0] is nan at x" in report.headline


def test_an_infinite_local_derivative_is_found(gradcheck):
    x = torch.tensor([0.0, 2.0], dtype=torch.float64, requires_grad=True)

    with pytest.raises(adjudge.GradcheckError, match="NONFINITE"):
        gradcheck(torch.sqrt, (x,))


@pytest.mark.parametrize("scale", [1e-30, 1e-8, 1.0, 1e12, 1e100])
def test_the_scale_of_the_input_does_not_matter(gradcheck, rule, scale):
    x = torch.tensor([0.3, -0.7, 1.1], dtype=torch.float64).mul_(scale).requires_grad_()
    f = rule(lambda x: (x / scale).sin(), lambda x, w: 1.01 * w * (x / scale).cos() / scale)

    assert gradcheck(lambda x: (x / scale).sin(), (x,))
    assert not gradcheck(f, (x,), raise_exception=False)


def test_the_report_counts_and_says_where_the_numbers_come_from(x):
    report = adjudge.examine(torch.sin, (x,), seed=7, mode="full")

    text = str(report)
    assert 9 == report.counts["comparisons"]
    assert f"torch {torch.__version__}, cpu, float64" in text
    assert "seed=7" in text


def test_the_function_is_named_in_one_line(rule, x):
    module = torch.nn.Sequential(torch.nn.Linear(3, 3).double(), torch.nn.Tanh())

    assert "Sequential" == adjudge.examine(module, (x,)).function
    assert adjudge.examine(rule(torch.sin, torch.mul), (x,)).function.endswith("Rule.apply")


@pytest.mark.parametrize("jvp", [1.0, 1.01])
def test_a_jvp_that_somebody_wrote_and_nobody_asks_for_is_said_not_to_be_checked(
    scaled_sin, x, jvp
):
    plain = adjudge.examine(scaled_sin(1.0, jvp), (x,))
    asked = adjudge.examine(scaled_sin(1.0, jvp), (x,), check_forward_ad=True)

    assert plain
    assert "not checked, since forward mode is not asked for: Rule.jvp" in str(plain)
    assert "check_forward_ad=True" in str(plain)
    assert asked.verdict is (adjudge.Verdict.PASS if jvp == 1 else adjudge.Verdict.FAIL)
    assert Status.UNCHECKED not in statuses(asked)
    assert Status.UNCHECKED not in statuses(adjudge.examine(torch.sin, (x,)))
