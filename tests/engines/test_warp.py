"""Kernels of NVIDIA Warp on its CPU device, differentiated by its tape."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

import adjudge
from adjudge import Verdict
from adjudge_cupy import warp_kernel

pytestmark = pytest.mark.library("warp")
RANDOM = np.random.default_rng(6)


@pytest.fixture
def kernels(library):
    """The module `warp_kernels` beside this one: Warp's compiler reads its source."""
    library.config.quiet = True
    library.init()
    path = Path(__file__).with_name("warp_kernels.py")
    spec = importlib.util.spec_from_file_location("warp_kernels", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["warp_kernels"] = module
    spec.loader.exec_module(module)
    return module


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
