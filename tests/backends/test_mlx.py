"""MLX on the CPU: what is particular to its adapter. It conforms: test_conformance_mutations."""

import importlib

import numpy as np
import pytest
from frameworks import mx

import adjudge
from adjudge.findings import Status, Verdict

pytestmark = pytest.mark.backend("mlx")

MODES = ["R", "F", "RR", "FR", "RF", "FF"]


@pytest.fixture
def x():
    return mx.array(np.array([0.3, -1.2, 0.7]))


@pytest.fixture
def nn():
    return importlib.import_module("mlx.nn")


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "complex64"])
def test_right_rules_pass_and_a_wrong_one_fails(x, dtype, seed):
    x = x.astype(getattr(mx, dtype))

    assert adjudge.examine(lambda x: mx.exp(x) * x, x, seed=seed)
    wrong = adjudge.examine(lambda x: mx.exp(x) * mx.stop_gradient(x), x, seed=seed)
    assert wrong.verdict is Verdict.FAIL


def test_all_modes_of_second_order_are_judged(x):
    assert adjudge.gradcheck(lambda x: mx.sin(x) * x, x, modes=MODES, compile=True, seed=1)


def test_gradients_that_are_one_array_are_differentiated_apart(x):
    report = adjudge.examine(mx.add, (x, x * 2), modes=MODES, seed=1)

    assert report, report


def test_float64_is_judged_by_the_digits_that_mlx_computes(x):
    wide = adjudge.examine(mx.sin, x.astype(mx.float64), seed=1)
    narrow = adjudge.examine(mx.sin, x, seed=1)

    assert Status.IMPRECISE in {finding.status for finding in wide.findings}
    assert "in float64 it computes with less than double precision inside" in str(narrow)


def test_a_custom_rule_is_checked(x):
    def cube(factor):
        f = mx.custom_function(lambda x: x**3)
        f.vjp(lambda primals, cotangent, output: cotangent * factor * primals**2)
        return lambda x: f(x)

    assert adjudge.examine(cube(3), x, seed=1)
    assert adjudge.examine(cube(2), x, seed=1).verdict is Verdict.FAIL


def test_what_mlx_cannot_differentiate_is_unsupported():
    matrix = mx.array(np.eye(3) * 2 + 1.0)

    for f in (mx.linalg.inv, lambda a: mx.linalg.solve(a, a)):
        report = adjudge.examine(f, matrix, seed=1)
        assert {finding.status for finding in report.findings} == {Status.UNSUPPORTED}


def test_random_numbers_and_the_device_are_as_before(x):
    mx.random.seed(2**40 + 3)
    state, device = mx.random.state[0].tolist(), mx.default_device()

    def raising(x):
        raise ZeroDivisionError(mx.random.uniform())

    assert adjudge.examine(lambda x: mx.random.uniform(shape=x.shape) * x, x, seed=1)
    with pytest.raises(ZeroDivisionError):
        adjudge.examine(raising, x)

    assert mx.random.state[0].tolist() == state
    assert mx.default_device() == device


def test_a_module_is_checked_with_its_parameters_and_keeps_its_statistics(nn, x):
    flatten = importlib.import_module("mlx.utils").tree_flatten
    mx.random.seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm(4), nn.Tanh())
    before = {name: array.tolist() for name, array in flatten(model.parameters())}
    inputs = mx.array(np.random.default_rng(0).normal(size=(5, 3)))

    class Wrong(nn.Linear):
        def __call__(self, x):
            return x @ mx.stop_gradient(self.weight).T + self.bias

    report = adjudge.examine(model, inputs, seed=1)
    wrong = adjudge.examine(Wrong(3, 2), inputs, seed=1)

    assert report
    assert wrong.verdict is Verdict.FAIL
    assert "parameters['weight']" in str(wrong)
    assert {name: array.tolist() for name, array in flatten(model.parameters())} == before
    assert adjudge.examine(lambda x: model(x), inputs, seed=1)  # which binds its statistics anew
    assert {name: array.tolist() for name, array in flatten(model.parameters())} == before
