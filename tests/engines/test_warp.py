"""Kernels of NVIDIA Warp on its CPU device, differentiated by its tape."""

import numpy as np
import pytest

import adjudge
from adjudge import Verdict
from adjudge_cupy import warp_kernel

pytestmark = pytest.mark.library("warp")
RANDOM = np.random.default_rng(6)


@pytest.fixture
def wp(library):
    library.config.quiet = True
    library.init()
    return library


def test_a_kernel_with_two_inputs_passes(wp):
    import warp_kernels

    a, b = RANDOM.normal(size=7), RANDOM.normal(size=7)

    report = adjudge.gradcheck(warp_kernel(warp_kernels.product, 7, [a]), (a, b))

    assert report.counts["comparisons"] > 0


def test_a_kernel_that_adds_up_passes(wp):
    import warp_kernels

    a = RANDOM.normal(size=7)

    assert adjudge.gradcheck(warp_kernel(warp_kernels.squares, 7, [np.zeros(1)]), a)


def test_a_wrong_adjoint_of_a_native_snippet_fails(wp):
    import warp_kernels

    a = RANDOM.normal(size=7)

    assert adjudge.gradcheck(warp_kernel(warp_kernels.right_snippet, 7, [a]), a)
    report = adjudge.examine(warp_kernel(warp_kernels.wrong_snippet, 7, [a]), a)
    assert report.verdict is Verdict.FAIL


def test_two_outputs_come_back_in_order(wp):
    import warp_kernels

    a = RANDOM.normal(size=7)

    assert adjudge.gradcheck(warp_kernel(warp_kernels.pair, 7, [a, a]), a)
