"""CuPy kernels inside `jax.custom_vjp` with a callback, by their NumPy twins on a CPU."""

import numpy as np
import pytest

import adjudge
from adjudge import Verdict
from adjudge.engine import registry

pytestmark = pytest.mark.backend("jax")

NAMED = {
    "factor": "2 times the reference",
    "order": "reversed along axis 0",
    "saved": "inputs[0]",
    "zero": "zero in 5 of 5 entries",
}


@pytest.fixture
def example(load):
    return load("examples/cupy_in_jax.py")


@pytest.fixture
def inputs(example):
    """Of float64, which JAX makes in 64-bit mode only."""
    make = registry.backend_named("jax").arrays.make
    return tuple(make(np.asarray(leaf, np.float64), "float64") for leaf in example.inputs())


def test_the_function_passes_and_so_does_its_batch(example, inputs):
    report = adjudge.examine(example.right.f, inputs, check_batched_grad=True)

    assert report.verdict is Verdict.PASS, report
    assert report.counts["comparisons"] == 2


def test_compiled_it_passes_and_so_it_does_in_float32(example, inputs):
    import jax

    assert adjudge.gradcheck(jax.jit(example.right.f), inputs)
    assert adjudge.gradcheck(example.right.f, example.inputs())


@pytest.mark.parametrize("name", NAMED)
def test_each_mistake_is_caught_and_named(example, inputs, name):
    report = adjudge.examine(example.WRONG[name], inputs, seed=0)

    assert report.verdict is Verdict.FAIL
    assert NAMED[name] in str(report)


def test_a_kernel_that_takes_no_leading_axes_fails_where_it_is_mapped(example, inputs, monkeypatch):
    import jax

    if jax.default_backend() == "gpu":
        pytest.skip("on a GPU the kernels of CuPy are called, and no twin of theirs")

    def flat(x, c, w):  # axis 1 is the last one only where nothing is mapped
        of_x, _ = right(x, c, w)
        return of_x, (w / (2 * example.forward_twin(x, c))).sum(axis=1)[..., : x.shape[-2]]

    right = example.backward_twin
    monkeypatch.setattr(example, "backward_twin", flat)
    f = example.with_backward(example.gradients)

    assert adjudge.examine(f, inputs).verdict is Verdict.PASS
    report = adjudge.examine(f, inputs, check_batched_grad=True)
    assert report.verdict is Verdict.FAIL, report


def test_a_second_order_that_jax_cannot_see_is_not_passed(example, inputs):
    report = adjudge.examine(example.right.f, inputs, order=2)

    assert report.verdict is not Verdict.PASS
    assert "callback" in str(report)


def test_on_a_gpu_the_kernels_of_cupy_are_called(gpu, example, inputs):
    import jax

    if jax.default_backend() != "gpu":
        pytest.skip("JAX has no GPU")
    assert adjudge.gradcheck(example.right.f, inputs)
    assert example.kernels.cache_info().currsize == 1
    for name, words in NAMED.items():
        report = adjudge.examine(example.WRONG[name], inputs)
        assert report.verdict is Verdict.FAIL
        assert words in str(report)
