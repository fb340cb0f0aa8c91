"""What PyTorch does without being asked for a device must not move what is checked.

`torch.set_default_device("meta")` stands for `"cuda"`: what lands there by mistake holds no values.
"""

import pytest
from frameworks import torch

import adjudge
from adjudge import Verdict
from adjudge.conformance import checks
from adjudge.engine.registry import backend_named

pytestmark = pytest.mark.backend("torch")
LAYOUTS = ["sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"]


@pytest.fixture
def elsewhere():
    """The default device is another one than that of the inputs."""
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


def squared(x, factor):
    """`x²` of a sparse matrix as a dense one, with the factor of its derivative."""
    return kernel().apply(x, factor)


def kernel():
    """Made here, since PyTorch may be absent where this file is read."""

    class Squared(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.save_for_backward(x)
            ctx.factor = factor
            return x.to_dense() ** 2

        @staticmethod
        def backward(ctx, w):
            (x,) = ctx.saved_tensors
            gradient = ctx.factor * w * x.to_dense()
            return gradient.to_sparse(layout=x.layout, blocksize=blocks(x.layout)), None

    return Squared


def blocks(layout):
    """The blocks of a layout that has some."""
    return (1, 1) if layout in (torch.sparse_bsr, torch.sparse_bsc) else None


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_sparse_tensors_stay_where_they_are(elsewhere, layout, masked):
    dense = torch.tensor([[0.0, 1.5], [2.0, -0.5]], dtype=torch.float64, device="cpu")
    layout = getattr(torch, layout)
    x = dense.to_sparse(layout=layout, blocksize=blocks(layout))

    def check(factor):
        return adjudge.examine(lambda x: squared(x, factor), x, masked=masked)

    assert check(2).verdict is Verdict.PASS
    assert check(3).verdict is Verdict.FAIL


@pytest.mark.long
def test_the_adapter_conforms_with_another_default_device(elsewhere):
    drawn = {"random numbers": (lambda: torch.rand(1, device="cpu"), None)}
    excused = {"FF": "PyTorch's forward mode does not nest"}
    few = ["captured constant"]

    for check in checks("torch", excused=excused, disturb=drawn, scenarios=few):
        check.run()


def test_a_gpu_that_is_used_for_the_first_time_has_drawn_no_numbers(monkeypatch):
    backend = backend_named("torch")
    state = [torch.zeros(16, dtype=torch.uint8)]
    before = backend.environment.random_state()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: state)

    first = backend.environment.random_state()
    state[0] = torch.ones(16, dtype=torch.uint8)
    drawn = backend.environment.random_state()

    assert before == first
    assert (before != first) is False
    assert hash(before) == hash(first)
    assert drawn != first
    assert before != ()


def test_the_random_state_of_the_cpu_is_compared(monkeypatch):
    backend = backend_named("torch")
    with torch.random.fork_rng(devices=[]):
        before = backend.environment.random_state()
        torch.rand(1)

        assert backend.environment.random_state() != before


def test_reading_the_random_state_does_not_begin_to_use_a_gpu(monkeypatch):
    def begins():
        raise AssertionError("this would initialise CUDA")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", begins)

    assert adjudge.examine(torch.sin, torch.tensor([0.5], dtype=torch.float64))
