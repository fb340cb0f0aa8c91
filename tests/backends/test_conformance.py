"""Our own adapters under the conformance kit, one test a check."""

import functools
import importlib
import importlib.util

import pytest

from adjudge.conformance import assert_conforms, checks
from adjudge.engine.registry import backend_named

ENGINES = {"numpy": "numpy", "array_api_strict": "array_api_strict", "torch": "torch",
           "torch.func": "torch", "jax": "jax"}  # fmt: skip
"""What is tested, and the package that it needs."""

EXCUSED = {"torch": {"FF": "PyTorch's forward mode does not nest; torch.func does it"}}


@functools.cache
def engine(name):
    backend = backend_named(ENGINES[name])
    return backend.ways()[0] if name == "torch.func" else backend


@functools.cache
def global_state(name):
    """What changes the global state of the engine, and what reads it."""
    if ENGINES[name] != "torch":
        return {}
    torch = importlib.import_module("torch")
    return {
        "random numbers": (lambda: torch.rand(1), None),
        "default dtype": (
            lambda: torch.set_default_dtype(torch.float64), torch.get_default_dtype,
        ),
        "default device": (
            lambda: torch.set_default_device("meta"), torch.get_default_device,
        ),
        "deterministic algorithms": (
            lambda: torch.use_deterministic_algorithms(True),
            torch.are_deterministic_algorithms_enabled,
        ),
    }  # fmt: skip


def asked():
    for name, package in ENGINES.items():
        mark = pytest.mark.backend(package)
        if importlib.util.find_spec(package) is None:
            yield pytest.param(name, None, id=name, marks=mark)
            continue
        excused = EXCUSED.get(name)
        for check in checks(engine(name), excused=excused, disturb=global_state(name)):
            yield pytest.param(name, check, id=f"{name}-{check.id}", marks=mark)


@pytest.mark.parametrize(("name", "check"), list(asked()))
def test_the_adapter_conforms(name, check):
    check.run()


@pytest.mark.backend("jax")
def test_jax_conforms_on_two_devices_in_every_dtype():
    assert len(backend_named("jax").arrays.devices()) == 2

    summary = assert_conforms("jax", scenarios=["elementwise"], thorough=True)

    assert str(summary).startswith("jax conforms: ")


def test_all_at_once_says_how_much_was_compared():
    summary = assert_conforms("numpy")

    assert summary.comparisons > 10 * summary.checks > 1000
    assert summary.scenarios == 32
    assert str(summary).startswith("numpy conforms: ")
