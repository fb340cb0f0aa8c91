"""Libraries whose derivatives are supplied: each test skips where its library is absent."""

import importlib
import importlib.util
import itertools
import os
import sys
import warnings
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def on_gpu():
    """Whether CuPy is here and has a device."""
    if importlib.util.find_spec("cupy") is None:
        return False
    return importlib.import_module("cupy").is_available()


@pytest.fixture(autouse=True)
def numbered_seeds(monkeypatch):
    """Seeds that a test does not choose: another one a check, the same in every run."""
    numbers = itertools.count(1)
    monkeypatch.setattr("adjudge.check.options.fresh_seed", lambda: next(numbers))


@pytest.fixture
def library(request):
    """The module that the mark `library` of the test names."""
    (name,) = request.node.get_closest_marker("library").args
    if not on_gpu():
        # PyLops looks for CuPy's CUDA libraries where CuPy is installed, with or without a GPU
        os.environ.setdefault("CUPY_PYLOPS", "0")
    try:
        with warnings.catch_warnings():  # of what it is built on, which is no failure of a test
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"{name} is absent ({error}): pip install -c constraints.txt -e '.[engines]'")


@cache
def loaded(path):
    """The module in this file of the repository."""
    file = ROOT / path
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module  # Warp's compiler looks for its kernels there
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def load():
    """`load("examples/raw_kernel_cupy.py")`: an example, or a file beside the tests."""
    return loaded


@pytest.fixture
def on_host(load):
    """CUDA C on the CPU: tests/engines/cuda_on_host.py."""
    module = load("tests/engines/cuda_on_host.py")
    if reason := module.why_absent():
        pytest.skip(reason)
    return module


@pytest.fixture
def gpu():
    """CuPy, where it has a device."""
    cupy = pytest.importorskip("cupy", reason="CuPy is absent")
    if not on_gpu():
        pytest.skip(importlib.import_module("adjudge_cupy.backend").why_absent())
    return cupy
