"""tinygrad: what is particular to its adapter. It conforms: test_conformance_mutations."""

import numpy as np
import pytest
from frameworks import tinygrad

import adjudge
from adjudge.findings import Status, Verdict

pytestmark = pytest.mark.backend("tinygrad")

X = np.array([0.3, -1.2, 0.7])


@pytest.fixture
def x():
    return tinygrad.Tensor(X)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_right_rules_pass_and_a_wrong_one_fails(x, dtype, seed):
    x = x.cast(dtype)

    assert adjudge.examine(lambda x: x.exp() * x, x, seed=seed)
    wrong = adjudge.examine(lambda x: x.exp() * x.detach(), x, seed=seed)
    assert wrong.verdict is Verdict.FAIL


def test_gradients_of_gradients_are_judged_and_forward_mode_is_unsupported(x):
    report = adjudge.examine(lambda x: x.sin() * x, x, order=2, seed=1)

    assert report.modes["R"] is report.modes["RR"] is Verdict.PASS
    assert report.modes["F"] is report.modes["FF"] is Status.UNSUPPORTED


def test_what_is_realized_on_the_way_has_lost_its_gradient(x):
    report = adjudge.examine(lambda x: (x.sin().realize() * x).exp(), x, seed=1)

    assert report.verdict is Verdict.FAIL


def test_reading_the_output_of_a_check_takes_no_gradient_from_it(x):
    backend = adjudge.engine.backend_named("tinygrad")
    y, pullback = backend.vjp(lambda x: (x[0].sin(),), (x,))

    before = backend.arrays.to_host(y[0])
    (g,) = pullback((tinygrad.Tensor(np.ones(3)),))

    np.testing.assert_allclose(before, np.sin(X))
    np.testing.assert_allclose(backend.arrays.to_host(g), np.cos(X))


def test_a_tensor_of_the_user_keeps_what_it_was_computed_from(x):
    doubled = x * 2

    assert adjudge.examine(lambda x: x.sin(), doubled, seed=1)

    (g,) = doubled.sum().gradient(x)
    assert (g * x).tolist() == (2 * X).tolist()


@pytest.mark.parametrize("seed", range(10))
def test_numbers_without_axes_are_told_apart_where_they_are_equal(seed):
    a, b = tinygrad.Tensor(np.array(0.75)), tinygrad.Tensor(np.array(0.75))

    assert adjudge.examine(lambda a, b: a.exp() * b * 0.75, (a, b), seed=seed)
    wrong = adjudge.examine(lambda a, b: a.exp() * b.detach() * 0.75, (a, b), seed=seed)
    assert wrong.verdict is Verdict.FAIL


def test_a_constant_is_read_on_the_default_device(monkeypatch):
    read = []
    clone = tinygrad.Tensor.clone
    monkeypatch.setattr(
        tinygrad.Tensor,
        "clone",
        lambda self, device=None: read.append(device) or clone(self, device),
    )
    constant = tinygrad.Tensor(np.array(0.75)) * 3

    host = adjudge.engine.backend_named("tinygrad").arrays.to_host(constant)

    assert host == 2.25
    assert read == [tinygrad.Device.DEFAULT]
