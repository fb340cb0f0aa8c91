"""CuPy: what needs no GPU everywhere, the rest where there is one."""

import ast
from pathlib import Path

import numpy as np
import pytest

import adjudge
from adjudge import NotSupportedError, Verdict
from adjudge.engine import registry

pytestmark = pytest.mark.library("cupy")
ROOT = Path(__file__).parents[2]
RAW = "examples/raw_kernel_cupy.py"
ELEMENTWISE = "examples/elementwise_cupy.py"


def test_the_adapter_imports_and_says_why_no_array_can_be_held(library):
    backend = registry.backend_named("cupy")

    reason = backend.environment.unavailable()

    if library.is_available():
        assert reason is None
    else:
        assert "driver" in reason or "device" in reason
        assert backend.arrays.devices() == []
        with pytest.raises(NotSupportedError, match=r"driver|device"):
            backend.arrays.make(np.ones(2), "float64")


@pytest.fixture
def ptx(library):
    """`ptx(source)`: CUDA C as NVRTC compiles it, which needs neither a GPU nor a driver."""
    nvrtc = library.cuda.nvrtc
    try:
        nvrtc.getVersion()
    except RuntimeError as error:
        pytest.skip(f"NVRTC is absent ({error}): pip install nvidia-cuda-nvrtc-cu12")

    def compiled(source):
        program = nvrtc.createProgram(source, "kernel.cu", (), ())
        nvrtc.compileProgram(program, ("--gpu-architecture=compute_80",))
        return nvrtc.getPTX(program)

    return compiled


def test_the_kernels_of_the_example_compile(library, ptx, load):
    source = load(RAW).SOURCE

    assert b".visible .entry forward" in ptx(source)
    assert b".visible .entry backward" in ptx(source)
    with pytest.raises(library.cuda.nvrtc.NVRTCError):
        ptx(source.replace("sqrt(", "squareroot("))


def elementwise_in(path):
    """The arguments of every `ElementwiseKernel(...)` that a file writes out; it is not imported,
    since its framework may be absent.
    """
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    constants = {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    }
    return [
        [constants[a.id] if isinstance(a, ast.Name) else a.value for a in node.args]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("ElementwiseKernel")
    ]


@pytest.mark.parametrize("path", ["examples/cupy_in_torch.py", "examples/cupy_in_jax.py"])
def test_the_operations_of_elementwise_kernels_compile(library, ptx, load, path):
    # CuPy writes the loop around them where it has a device; here it is one of our own
    whole = load("tests/engines/cuda_on_host.py").elementwise_source

    assert [name for *_, name in elementwise_in(path)] == ["smooth_abs", "backward"]
    for arguments in elementwise_in(path):
        assert f".entry {arguments[-1]}".encode() in ptx(whole(*arguments))
    for name, arguments in load(ELEMENTWISE).SOURCES.items():
        assert f".entry {name}".encode() in ptx(whole(*arguments, name))
    with pytest.raises(library.cuda.nvrtc.NVRTCError):
        ptx(whole("float64 x", "float64 y", "z = x", "undeclared"))


def test_the_example_passes_and_its_mistakes_are_named(gpu, load):
    example = load(RAW)
    reports = {case.name: case.run() for case in example.CASES}

    assert reports.pop("right").verdict is Verdict.PASS
    assert {report.verdict for report in reports.values()} == {Verdict.FAIL}
    assert "2 times the reference" in str(reports["factor"])
    assert "d out[39, 6] / d inputs[0][39, 6]: automatic 0," in str(reports["boundary"])
    assert "NONDETERMINISTIC" in str(reports["stale"])


def test_a_check_leaves_device_and_stream_as_they_are(gpu):
    stream = gpu.cuda.Stream()
    with stream:
        square = adjudge.ByHand(lambda x: x * x, vjp=lambda x, w: 2 * x * w)
        assert adjudge.gradcheck(square, gpu.asarray([1.0, 2.0]))
        assert gpu.cuda.get_current_stream() == stream
