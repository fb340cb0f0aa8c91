"""Kernels of NVIDIA Warp on its CPU device, differentiated by its tape."""

import numpy as np
import pytest

import adjudge
from adjudge import Verdict
from adjudge_cupy import warp_kernel

pytestmark = pytest.mark.library("warp")
RANDOM = np.random.default_rng(6)


@pytest.fixture
def kernels(library, load):
    """The module `warp_kernels` beside this one: Warp's compiler reads its source."""
    library.config.quiet = True
    library.init()
    return load("tests/engines/warp_kernels.py")


def test_a_kernel_with_two_inputs_passes(kernels):
    a, b = RANDOM.normal(size=7), RANDOM.normal(size=7)

    report = adjudge.gradcheck(warp_kernel(kernels.product, 7, [a]), (a, b))

    assert report.counts["comparisons"] > 0


def test_a_kernel_that_adds_up_passes(kernels):
    a = RANDOM.normal(size=7)

    assert adjudge.gradcheck(warp_kernel(kernels.squares, 7, [np.zeros(1)]), a)


def test_a_wrong_adjoint_of_a_native_snippet_fails(kernels):
    a = RANDOM.normal(size=7)

    assert adjudge.gradcheck(warp_kernel(kernels.right_snippet, 7, [a]), a)
    report = adjudge.examine(warp_kernel(kernels.wrong_snippet, 7, [a]), a)
    assert report.verdict is Verdict.FAIL


def test_two_outputs_come_back_in_order(kernels):
    a = RANDOM.normal(size=7)

    assert adjudge.gradcheck(warp_kernel(kernels.pair, 7, [a, a]), a)


def test_on_a_gpu_the_same_kernels_pass_and_the_wrong_one_fails(gpu, kernels):
    a, b = gpu.asarray(RANDOM.normal(size=7)), gpu.asarray(RANDOM.normal(size=7))

    assert adjudge.gradcheck(warp_kernel(kernels.product, 7, [a]), (a, b))
    assert adjudge.gradcheck(warp_kernel(kernels.squares, 7, [gpu.zeros(1)]), a, nondet_tol=1e-13)
    assert adjudge.gradcheck(warp_kernel(kernels.pair, 7, [a, a]), a)
    assert adjudge.gradcheck(warp_kernel(kernels.right_snippet, 7, [a]), a)
    report = adjudge.examine(warp_kernel(kernels.wrong_snippet, 7, [a]), a)
    assert report.verdict is Verdict.FAIL


def test_on_a_gpu_warp_runs_on_the_stream_of_cupy_and_goes_back_to_its_own(gpu, library, kernels):
    own = library.get_stream("cuda:0").cuda_stream
    seen = []

    def like(x):
        seen.append(library.get_stream("cuda:0").cuda_stream or 0)
        return [x]

    square = warp_kernel(kernels.right_snippet, 200_000, like)
    for stream in (gpu.cuda.Stream(non_blocking=True), gpu.cuda.Stream.null):
        with stream:
            # long work on the stream: a kernel that does not wait for it reads what was before
            x = gpu.ones(200_000)
            for _ in range(200):
                x = x + 1.0
            y, back = square.pullback(x)
            g = back(gpu.ones(200_000))
            assert float(abs(y - 201.0**2).max()) == 0
            assert float(abs(g - 402.0).max()) == 0
        assert seen[-1] == stream.ptr
        assert library.get_stream("cuda:0").cuda_stream == own
