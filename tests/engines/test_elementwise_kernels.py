"""ElementwiseKernels and fused kernels with derivatives of both orders, from the same source."""

import numpy as np
import pytest

import adjudge
from adjudge import Verdict

EXAMPLE = "examples/elementwise_cupy.py"

VERDICTS = {
    "softplus": Verdict.PASS,
    "second": Verdict.PASS,
    "wrong first": Verdict.FAIL,
    "wrong second, first order": Verdict.PASS,
    "wrong second": Verdict.FAIL,
}


@pytest.fixture
def example(load):
    return load(EXAMPLE)


def plain(function):
    """`cupy.fuse` hands arrays of NumPy to the function as it is; so does this, without CuPy."""
    return function


def numpy_kernels(in_params, out_params, operation, name):
    """The operations of the example by NumPy, where there is no compiler."""
    return {
        "softplus": lambda x: np.log1p(np.exp(x)),
        "times_slope": lambda x, w: w / (1 + np.exp(-x)),
        "wrong_slope": lambda x, w: w * np.exp(x),
    }[name]


def verdicts(cases):
    return {case.name: case.run().verdict for case in cases}


def test_right_kernels_pass_in_both_orders_and_wrong_ones_fail_in_theirs(example, on_host):
    assert verdicts(example.cases(on_host.Elementwise, plain, np)) == VERDICTS


def test_numpy_twins_get_the_same_verdicts(example):
    assert verdicts(example.cases(numpy_kernels, plain, np)) == VERDICTS


def test_a_kernel_for_any_dtype_is_judged_in_double_where_its_arrays_are_not(example, on_host):
    for case in example.cases(on_host.Elementwise, plain, np):
        case.inputs = (case.inputs[0].astype(np.float32),)
        report = case.run()
        assert report.verdict is VERDICTS[case.name], report
        assert "judged in float64" in report.provenance.note


def test_the_error_in_the_second_order_is_named(example, on_host):
    case = example.cases(on_host.Elementwise, plain, np)[-1]

    report = case.run()

    assert report.modes == {"R": Verdict.PASS, "RR": Verdict.FAIL}
    assert "d grad(inputs[0])" in report.headline


def test_gradgradcheck_passes_and_raises(example, on_host):
    second, wrong = (example.cases(on_host.Elementwise, plain, np)[k] for k in (1, 4))

    assert adjudge.gradgradcheck(second.f, second.inputs)
    with pytest.raises(adjudge.GradcheckError, match=r"grad\(inputs\[0\]\)"):
        adjudge.gradgradcheck(wrong.f, wrong.inputs)


def test_second_order_by_a_nested_rule_goes_to_the_third(example, on_host):
    slope = on_host.Elementwise(*example.SOURCES["times_slope"], "times_slope")
    second = example.second_with(np)

    def third(x, w, u, b):  # of (x, w, u) -> second(x, w, u), with b of its structure
        s = 1 / (1 + np.exp(-x))
        d, of_x, of_w = s * (1 - s), *b
        return of_x * u * w * d * (1 - 2 * s) + of_w * u * d, of_x * u * d, of_x * w * d + of_w * s

    nested = adjudge.ByHand(slope, vjp=adjudge.ByHand(second, vjp=third))
    x, w = np.linspace(-2, 2, 5), np.linspace(1, 2, 5)

    assert adjudge.gradgradcheck(nested, (x, w))
    for k in range(3):  # with the sign of one gradient turned round
        wrong = adjudge.ByHand(
            second, vjp=lambda *a, k=k: tuple(-g if i == k else g for i, g in enumerate(third(*a)))
        )
        report = adjudge.examine(adjudge.ByHand(slope, vjp=wrong), (x, w), order=2)
        assert report.verdict is Verdict.FAIL


@pytest.mark.library("cupy")
def test_a_fused_function_takes_numpy_arrays_as_well(library, example):
    second = library.fuse()(example.second_with(np))
    cases = example.cases(numpy_kernels, lambda f: second, np)

    assert cases[1].run().verdict is Verdict.PASS


def test_the_example_on_a_gpu(gpu, load):
    assert verdicts(load(EXAMPLE).CASES) == VERDICTS
