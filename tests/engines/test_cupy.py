"""CuPy: what needs no GPU everywhere, the rest where there is one."""

import ast
import functools
import importlib
import importlib.util
import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import adjudge
from adjudge import NotSupportedError, Verdict, registry

pytestmark = pytest.mark.library("cupy")
ADAPTER = Path(__file__).parents[2] / "adapters" / "adjudge_cupy"
MODULES = {
    "cupy": "cupy",
    "arithmetic": "cupy._core._routines_linalg",
    "generators": "cupy.random._generator",
}
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


def test_what_the_adapter_looks_up_is_there(library):
    """Private names among it: the generators, and the types in which products are added."""
    source = ast.parse((ADAPTER / "backend.py").read_text())
    names = {ast.unparse(node) for node in ast.walk(source) if isinstance(node, ast.Attribute)}
    looked_up = [name for name in sorted(names) if name.partition(".")[0] in MODULES]
    assert len(looked_up) > 20

    for name in looked_up:
        root, *rest = name.partition("(")[0].rstrip(".").split(".")
        functools.reduce(getattr, rest, importlib.import_module(MODULES[root]))

    for owner, members in {
        library.cuda.Device: ["id", "use", "synchronize", "mem_info", "__enter__", "__exit__"],
        library.cuda.Stream: ["use", "synchronize"],
        library.cuda.MemoryPool: ["free_bytes", "free_all_blocks", "get_limit"],
        library.cuda.PinnedMemoryPool: ["free_all_blocks"],
        library.ndarray: ["device", "flags", "strides", "itemsize", "astype", "copy"],
        library.random.RandomState: ["seed"],
    }.items():
        assert [name for name in members if not hasattr(owner, name)] == []
    parameters = inspect.signature(library.asnumpy).parameters
    assert {"stream", "blocking"} <= set(parameters)
    assert list(inspect.signature(library.random.RandomState).parameters) == ["seed", "method"]
    assert "self._rk_seed = seed" in inspect.getsource(library.random.RandomState.seed)
    assert "_random_states.get(dev.id, None)" in inspect.getsource(library.random.get_random_state)


def test_a_required_device_that_is_not_there_ends_the_run_with_the_reason(library, tmp_path):
    if library.is_available():
        pytest.skip("there is a GPU")
    (tmp_path / "test_nothing.py").write_text("def test_nothing():\n    pass\n")

    done = in_python("-m", "pytest", "--adjudge-require", "cupy", cwd=tmp_path)

    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert (
        "engine 'cupy' is required, and backend 'cupy' is installed and can hold no" in done.stderr
    )
    assert "driver" in done.stderr or "device" in done.stderr


def test_the_command_line_says_why_there_is_no_device(library, tmp_path):
    if library.is_available():
        pytest.skip("there is a GPU")

    done = in_python("-c", "from adjudge.cli import main; main(['backends'])", cwd=tmp_path)

    (line,) = [line for line in done.stdout.splitlines() if line.startswith("cupy ")]
    assert "none" in line
    assert "driver" in line or "device" in line


def in_python(*arguments, cwd):
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, timeout=120
    )


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
