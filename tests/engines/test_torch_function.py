"""CuPy kernels inside `torch.autograd.Function`, by their NumPy twins on a CPU."""

import pytest

import adjudge
from adjudge import Verdict

pytestmark = pytest.mark.backend("torch")

NAMED = {
    "factor": "2 times the reference",
    "strides": "inputs[0]",
    "needed": "MISSING",
    "order two": "DETACHED",
}


@pytest.fixture
def example(load):
    return load("examples/cupy_in_torch.py")


def test_the_function_passes_and_its_memory_is_shared(example):
    report = example.right.run()
    x, c = (leaf.detach() for leaf in example.right.inputs)

    assert report.verdict is Verdict.PASS
    assert report.counts["comparisons"] == 2
    with example.shared(x, c) as (_, _, (view, _)):
        view[0, 0] = 3.0
    assert x[0, 0] == 3.0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", NAMED)
def test_each_mistake_is_caught_and_named(example, name, seed):
    case = next(case for case in example.CASES if case.name == name)

    if case.order == 1:
        report = adjudge.examine(case.f, case.inputs, seed=seed, **case.options)
    else:
        report = adjudge.gradgradcheck(case.f, case.inputs, raise_exception=False, seed=seed)

    assert report.verdict is Verdict.FAIL
    assert NAMED[name] in str(report)


@pytest.mark.parametrize("name", ["strides", "needed"])
def test_the_right_function_passes_where_these_mistakes_show(example, name):
    assert example.case(example.right.f.__self__.backward, name).run().verdict is Verdict.PASS


def test_the_second_order_is_refused_and_not_taken_for_zero(example):
    report = adjudge.examine(example.right.f, example.right.inputs, order=2)

    assert report.verdict is not Verdict.PASS
    assert "once_differentiable" in str(report)


def test_on_a_gpu_kernels_run_on_the_stream_of_torch(gpu, example):
    import torch

    if not torch.cuda.is_available():
        pytest.skip("PyTorch has no CUDA")
    stream = torch.cuda.Stream()
    before = gpu.cuda.get_current_stream()
    with torch.cuda.stream(stream):
        right = example.case(example.right.f.__self__.backward, "right", "cuda").run()
        x, c = (leaf.detach() for leaf in example.case(None, "right", "cuda").inputs)
        with example.shared(x, c):
            assert gpu.cuda.get_current_stream().ptr == stream.cuda_stream
    assert right.verdict is Verdict.PASS
    assert gpu.cuda.get_current_stream() == before
    for name, rule in example.WRONG.items():
        report = example.case(rule, name, "cuda").run()
        assert report.verdict is Verdict.FAIL
        assert NAMED[name] in str(report)
