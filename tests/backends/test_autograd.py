"""HIPS autograd: what is particular to its adapter. It conforms: test_conformance_mutations."""

import importlib

import numpy as np
import pytest
from frameworks import adjudge_autograd, anp
from scenarios import seeds

import adjudge
from adjudge.findings import Status, Verdict

pytestmark = pytest.mark.backend("autograd")

xp = adjudge_autograd and adjudge_autograd.AutogradBackend().xp
X = np.array([[0.3, -1.2, 0.7], [1.5, 0.4, -0.6]])
Z = np.array([[2.0, 0.3 - 0.1j], [0.3 + 0.1j, 1.5]])
P = np.array([[2.0, 0.5], [0.5, 3.0]])


@pytest.mark.parametrize(
    ("f", "x"),
    [
        (lambda x: xp.sin(xp.astype(x, xp.float64)), X.astype("float32")),
        (lambda x: xp.astype(x, xp.complex128) * (1 + 2j), X),
        (lambda x: xp.concat([x, xp.sin(x)], axis=1), X),
        (lambda x: xp.sin(xp.matrix_transpose(x)), X),
        (lambda x: xp.take(xp.sin(x), np.array([2, 0, 2]), axis=-1), X),
        (lambda x: xp.linalg.cholesky((x + xp.matrix_transpose(x)) / 2), P),
        (lambda x: xp.linalg.inv(x), Z),
        (lambda x: xp.linalg.solve(x, xp.sin(x)), P),
        (lambda x: xp.linalg.solve(x, x), Z),
    ],
)
def test_the_names_that_the_adapter_adds_have_both_modes(f, x):
    # not FR: the rule of cholesky calls autograd's own solve, which has no forward mode
    assert adjudge.gradcheck(f, x, modes=["R", "F", "RR", "RF"], backend="autograd", seed=1)


@pytest.mark.parametrize(
    "f", [lambda z: anp.real(anp.conj(z) * z), lambda z: anp.conj(z) * z**2, lambda z: anp.exp(z)]
)
@pytest.mark.parametrize("order", [1, 2])
def test_complex_derivatives_are_adjoints(f, order):
    assert adjudge.examine(f, Z, order=order, backend="autograd", seed=1)


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("mode", ["R", "F"])
def test_a_wrong_rule_of_a_user_fails_and_a_right_one_passes(seed, mode):
    extend = importlib.import_module("autograd.extend")

    def sine(factor):
        rule = extend.primitive(lambda x: np.sin(x))
        extend.defvjp(rule, lambda ans, x: lambda g: g * anp.cos(x) * factor)
        extend.defjvp(rule, lambda g, ans, x: g * anp.cos(x) * factor)
        return rule

    wrong = adjudge.examine(sine(1.001), X, modes=[mode], backend="autograd", seed=seed)

    assert wrong.verdict is Verdict.FAIL
    assert adjudge.examine(sine(1.0), X, modes=[mode], backend="autograd", seed=seed)


def test_a_missing_rule_is_unsupported():
    report = adjudge.examine(anp.linalg.det, P, modes=["R", "F"], backend="autograd", seed=1)

    assert report.modes["R"] is Verdict.PASS
    assert report.modes["F"] is Status.UNSUPPORTED
    assert "JVP of det" in str(report)


def test_a_value_that_leaves_the_graph_is_detached():
    getval = importlib.import_module("autograd.tracer").getval

    report = adjudge.examine(
        lambda x: (anp.sin(x), np.sin(getval(x))), X, backend="autograd", seed=1
    )

    assert Status.DETACHED in {finding.status for finding in report.findings}


def test_gradients_inside_of_the_function_are_differentiated():
    elementwise_grad = importlib.import_module("autograd").elementwise_grad

    def slope(x):
        return elementwise_grad(lambda x: anp.sin(x) * x)(x) ** 2

    assert adjudge.examine(slope, X, modes=["R", "F", "RR"], backend="autograd", seed=1)


def test_the_report_has_the_version():
    report = adjudge.examine(anp.sin, X, backend="autograd", seed=1)

    version = adjudge_autograd.AutogradBackend().environment.version
    assert f"autograd {version}, cpu, float64" in str(report)


def test_numpy_arrays_are_not_taken_for_those_of_autograd_unasked():
    with pytest.raises(adjudge.InputError, match="numpy has no derivatives"):
        adjudge.gradcheck(anp.sin, X)
