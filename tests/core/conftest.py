"""Array namespaces without a framework: NumPy, array-api-strict, and its strictest flags."""

import itertools
from collections.abc import Iterator
from typing import Any

import array_api_strict
import numpy as np
import pytest

from adjudge.errors import quiet_arithmetic


@pytest.fixture(autouse=True)
def numbered_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds that a test does not choose: another one a check, the same in every run."""
    numbers = itertools.count(1)
    monkeypatch.setattr("adjudge.check.options.fresh_seed", lambda: next(numbers))


@pytest.fixture
def quiet() -> Iterator[None]:
    """The settings of NumPy within a check, for tests that call what runs there alone."""
    with quiet_arithmetic():
        yield


@pytest.fixture
def strictest() -> Iterator[Any]:
    """array-api-strict without boolean indexing, data-dependent shapes and extensions."""
    before = array_api_strict.get_array_api_strict_flags()
    array_api_strict.set_array_api_strict_flags(
        boolean_indexing=False, data_dependent_shapes=False, enabled_extensions=()
    )
    yield array_api_strict
    array_api_strict.set_array_api_strict_flags(
        boolean_indexing=before["boolean_indexing"],
        data_dependent_shapes=before["data_dependent_shapes"],
        enabled_extensions=tuple(before["enabled_extensions"]),
    )


@pytest.fixture(params=["numpy", "strict", "strictest"])
def xp(request: pytest.FixtureRequest) -> Any:
    """Each namespace in turn."""
    if request.param == "numpy":
        return np
    if request.param == "strictest":
        return request.getfixturevalue("strictest")
    return array_api_strict
