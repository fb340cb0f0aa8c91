"""Functions that write numbers into tensors in a narrower dtype which they make (`torch.zeros(4)`
is in float32), functions that a checkpoint computes again, and layers that refuse another dtype
than that of their weights are judged in double precision.
"""

import pytest
from frameworks import torch
from scenarios import over_seeds

import adjudge
from adjudge import Verdict

pytest.importorskip("torch")
pytestmark = pytest.mark.backend("torch")

SEEDS = range(10)


def copied(x):
    return torch.zeros(4).copy_(x).sin()


def whole(x):
    out = torch.zeros(4)
    out[:] = x * x
    return out.exp()


def parts(x):
    out = torch.zeros(4)
    out[:2], out[2:] = x[:2] * x[2:], x[2:].sin()
    return out * out


def one_by_one(x):
    out = torch.empty(4)
    for k in range(4):
        out[k] = x[k] ** 3
    return out.cumsum(0)


def added(x):
    out = torch.ones(4) / 3
    out += x.sin()
    return (out * x).tanh()


def rows(x):
    out = torch.zeros(2, 4)
    out[0].copy_(x)
    out[1].add_(x * x)
    return out.sum(0).exp()


def at_indices(x):
    index = torch.tensor([0, 0, 1, 2])
    return torch.zeros(4).index_add_(0, index, x.float().exp())


def view_of_another_shape(x):
    out = x.new_zeros(4, dtype=torch.float32)
    out += x
    out.view(2, 2)[0].mul_(x[:2])
    return out.sin()


def complex_numbers(x):
    out = torch.zeros(4, dtype=torch.complex64)
    out[:2] = torch.complex(x[:2], x[2:])
    return torch.fft.fft(out).abs()


def sixteen_bits(x):
    out = torch.zeros(4, dtype=torch.bfloat16)
    out[:] = x
    return out * x


FUNCTIONS = [
    copied, whole, parts, one_by_one, added, rows, at_indices, view_of_another_shape,
    complex_numbers, sixteen_bits,
]  # fmt: skip


def scaled(rule, error):
    """The identity, whose rule is off in one entry."""
    factors = torch.tensor([1.0, 1 + error, 1.0, 1.0], dtype=torch.float64)
    return rule(lambda x: x.clone(), lambda x, w: w * factors.to(w.dtype))


def judged(f, seed=0, dtype=torch.float64, **options):
    generator = torch.Generator().manual_seed(seed)
    x = (torch.rand(4, generator=generator, dtype=dtype) + 0.3).requires_grad_()
    return adjudge.examine(f, (x,), seed=seed, blame=False, **options)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("f", FUNCTIONS)
def test_a_right_derivative_passes_in_every_mode_and_a_wrong_one_fails(rule, f, dtype):
    off = scaled(rule, 1e-4)

    right = judged(f, dtype=dtype, modes=["R", "F"])
    wrong = judged(lambda x: f(off(x)), dtype=dtype)

    assert right.verdict is Verdict.PASS, str(right)
    assert right.resolution < 1e-7
    assert wrong.verdict is Verdict.FAIL


@over_seeds(10)
@pytest.mark.parametrize("f", [parts, added, sixteen_bits])
def test_so_it_is_at_every_seed(rule, f, seeds):
    off = scaled(rule, 1e-4)

    for seed in seeds:
        assert judged(f, seed).verdict is Verdict.PASS
        assert judged(lambda x: f(off(x)), seed).verdict is Verdict.FAIL


@pytest.mark.parametrize("f", [copied, parts, at_indices])
def test_so_are_second_derivatives(rule, f):
    """The cotangents of these functions are in float32, and their inputs are not."""
    off = scaled(rule, 1e-3)

    right = judged(f, modes=["RR", "FR"])
    wrong = judged(lambda x: f(off(x)), modes=["RR"])

    assert right.verdict is Verdict.PASS, str(right)
    assert right.resolution < 1e-7
    assert wrong.verdict is Verdict.FAIL


@pytest.mark.parametrize("f", FUNCTIONS)
def test_exact_references_replay_what_was_rounded_as_it_was_written(f):
    pytest.importorskip("flint")

    report = judged(f, reference="exact")

    assert report.verdict is Verdict.PASS, str(report)
    assert report.certified


def test_a_tensor_that_others_have_made_stays_as_it_is():
    """It rounds what is written into it, which is a part of the function."""
    held = torch.zeros(4)
    dtypes = set()

    def f(x):
        held.copy_(x.detach())
        dtypes.add(held.dtype)
        return x.double().sin() + 0 * held.sum()

    assert judged(f, dtype=torch.float32).verdict is Verdict.PASS
    assert dtypes == {torch.float32}


@over_seeds(10)
@pytest.mark.parametrize("error", [0.0, 1e-5])
def test_what_a_checkpoint_computes_again_is_what_it_was(rule, error, seeds):
    """In float32, with weights that the function closes over."""
    torch.manual_seed(0)
    layer, off = torch.nn.Linear(4, 4), scaled(rule, error)

    def f(x):
        def part(x):
            out = torch.zeros(4)
            out[:] = layer(off(x)).tanh()
            return out

        return torch.utils.checkpoint.checkpoint(part, x, use_reentrant=False)

    for seed in seeds:
        report = judged(f, seed, torch.float32)

        assert report.verdict is (Verdict.FAIL if error else Verdict.PASS), str(report)
        assert "formula judged in float64" in str(report)


@pytest.mark.parametrize("error", [0.0, 1e-5])
@pytest.mark.parametrize("layer", ["LSTM", "GRU", "RNN"])
def test_a_layer_that_refuses_numbers_of_another_dtype_than_its_weights_is_judged(
    rule, layer, error
):
    """It asks for the dtypes itself, and refused inputs in double precision."""
    torch.manual_seed(0)
    layer = getattr(torch.nn, layer)(4, 3)
    off = scaled(rule, error)

    for seed in SEEDS[:3]:
        report = judged(lambda x: layer(off(x)[None])[0], seed, torch.float32)

        assert report.verdict is (Verdict.FAIL if error else Verdict.PASS), str(report)
        assert "formula judged in float64" in str(report)
        assert {one.dtype for one in layer.parameters()} == {torch.float32}
