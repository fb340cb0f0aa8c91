"""Libraries whose derivatives are supplied: each test skips where its library is absent."""

import importlib
import os

import pytest


@pytest.fixture
def library(request):
    """The module that the mark `library` of the test names."""
    (name,) = request.node.get_closest_marker("library").args
    # PyLops looks for CuPy's CUDA libraries where CuPy is installed, with or without a GPU
    os.environ.setdefault("CUPY_PYLOPS", "0")
    try:
        return importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"{name} is absent ({error}): pip install -c constraints.txt -e '.[engines]'")
