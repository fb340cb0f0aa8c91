"""CuPy: what needs no GPU everywhere, the rest where there is one."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import adjudge
from adjudge import NotSupportedError, Verdict, registry

pytestmark = pytest.mark.library("cupy")
EXAMPLE = Path(__file__).parents[2] / "examples" / "raw_kernel_cupy.py"


@pytest.fixture
def example(library):
    spec = importlib.util.spec_from_file_location("raw_kernel_cupy", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def gpu(library):
    if not library.is_available():
        pytest.skip("no GPU")
    return library


def test_the_adapter_imports_and_says_why_no_array_can_be_held(library):
    backend = registry.backend_named("cupy")

    if library.is_available():
        assert backend.absent() is None
    else:
        assert "driver" in backend.absent() or "device" in backend.absent()
        assert backend.devices() == []
        with pytest.raises(NotSupportedError, match=r"driver|device"):
            backend.make(np.ones(2), "float64")


def test_the_kernels_of_the_example_compile(library, example):
    nvrtc = library.cuda.nvrtc

    def ptx(source):
        program = nvrtc.createProgram(source, "kernel.cu", (), ())
        nvrtc.compileProgram(program, ("--gpu-architecture=compute_80",))
        return nvrtc.getPTX(program)

    assert b".visible .entry backward" in ptx(example.SOURCE)
    with pytest.raises(nvrtc.NVRTCError):
        ptx(example.SOURCE.replace("sqrt(", "squareroot("))


def test_the_example_passes_and_its_mistakes_are_named(gpu, example):
    assert example.right.run().verdict is Verdict.PASS
    for name in ("factor", "boundary", "race"):
        assert getattr(example, name).run().verdict is Verdict.FAIL, name


def test_a_check_leaves_device_and_stream_as_they_are(gpu):
    stream = gpu.cuda.Stream()
    with stream:
        square = adjudge.ByHand(lambda x: x * x, vjp=lambda x, w: 2 * x * w)
        assert adjudge.gradcheck(square, gpu.asarray([1.0, 2.0]))
        assert gpu.cuda.get_current_stream() == stream
