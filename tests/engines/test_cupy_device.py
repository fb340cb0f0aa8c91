"""The adapter of CuPy against the CuPy that is installed, with or without a GPU."""

import ast
import functools
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.library("cupy")
ADAPTER = Path(__file__).parents[2] / "adapters" / "adjudge_cupy"
MODULES = {
    "cupy": "cupy",
    "arithmetic": "cupy._core._routines_linalg",
    "generators": "cupy.random._generator",
}


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
