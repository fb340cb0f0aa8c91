"""Devices of JAX by name, where the default platform is not the CPU: there it is beside the others.

No accelerator is needed: what stands for one has the names that JAX gives CUDA devices, and is no
device that an array could be on.
"""

from types import SimpleNamespace

import numpy as np
import pytest

from adjudge.engine.registry import backend_named
from adjudge.errors import NotSupportedError

pytestmark = pytest.mark.backend("jax")


class Cuda(SimpleNamespace):
    """A CUDA device, as JAX describes one."""

    platform = "gpu"

    def __str__(self):
        return f"cuda:{self.id}"


@pytest.fixture
def two_gpus(monkeypatch):
    import jax

    gpus, cpus = [Cuda(id=0), Cuda(id=1)], jax.devices("cpu")
    monkeypatch.setattr(jax, "devices", lambda kind=None: cpus if kind == "cpu" else gpus)
    return gpus


@pytest.mark.parametrize(
    ("name", "which"), [("cuda", 0), ("gpu", 0), ("cuda:0", 0), ("cuda:1", 1), ("gpu:1", 1)]
)
def test_a_gpu_is_found_by_each_of_its_names(two_gpus, name, which):
    assert backend_named("jax").arrays._device(name) is two_gpus[which]


def test_the_cpu_is_there_beside_the_gpus(two_gpus):
    backend = backend_named("jax")

    assert backend.arrays.devices()[:2] == ["cuda:0", "cuda:1"]
    for name in ("cpu", "cpu:0", backend.arrays.devices()[2]):
        made = backend.arrays.make(np.ones(2), "float32", name)
        assert next(iter(made.devices())).platform == "cpu"
        assert backend.arrays.info(backend.arrays.place(made, name)) == backend.arrays.info(made)


@pytest.mark.parametrize("name", ["cuda:2", "gpu:7", "tpu", "cpu:9", "cud", "", ":0"])
def test_a_device_that_there_is_not_is_named_with_those_that_there_are(two_gpus, name):
    with pytest.raises(NotSupportedError, match=r"cuda:0, cuda:1, "):
        backend_named("jax").arrays._device(name)


def test_without_a_cpu_platform_the_gpus_are_all_that_there_is(monkeypatch, two_gpus):
    import jax

    def devices(kind=None):
        if kind == "cpu":
            raise RuntimeError("Unknown backend cpu")
        return two_gpus

    monkeypatch.setattr(jax, "devices", devices)

    assert backend_named("jax").arrays.devices() == ["cuda:0", "cuda:1"]
    with pytest.raises(NotSupportedError, match="cpu"):
        backend_named("jax").arrays._device("cpu")
