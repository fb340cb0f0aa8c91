"""What is particular to autograd: the names that the adapter adds, and what it refuses."""

import autograd.numpy as anp
import numpy as np
import pytest
from adjudge_autograd import AutogradBackend
from adjudge_autograd.namespace import namespace as xp
from autograd.tracer import getval

import adjudge

X = np.array([[0.3, -1.2, 0.7], [1.5, 0.4, -0.6]])
Z = np.array([[2.0, 0.3 - 0.1j], [0.3 + 0.1j, 1.5]])
P = np.array([[2.0, 0.5], [0.5, 3.0]])


@pytest.mark.parametrize(
    ("f", "x"),
    [
        (lambda x: xp.sin(xp.astype(x, xp.float64)), X.astype("float32")),
        (lambda x: xp.astype(x, xp.complex128) * (1 + 2j), X),
        (lambda x: xp.concat([x, xp.sin(x)], axis=1), X),
        (lambda x: xp.concat([x, xp.sin(x)], axis=None), X),
        (lambda x: xp.sin(xp.matrix_transpose(x)), X),
        (lambda x: xp.vecdot(x, xp.sin(x), axis=0), X),
        (lambda x: xp.take(xp.sin(x), np.array([2, 0, 2]), axis=1), X),
        (lambda x: xp.flip(xp.sin(x), axis=-1), X),
        (lambda x: xp.flip(xp.sin(x)), X),
        (lambda x: xp.unstack(xp.sin(x), axis=1), X),
        (lambda x: xp.cumulative_sum(xp.sin(x), axis=1, include_initial=True), X),
        (lambda x: xp.broadcast_to(xp.sin(x), (4, 2, 3)), X),
        (lambda x: xp.broadcast_arrays(xp.sin(x), xp.ones((4, 1, 1)))[0], X),
        (lambda x: xp.var(x, axis=0, correction=1), X),
        (lambda x: xp.std(x, correction=1), X),
        (lambda x: xp.asarray(xp.positive(x)) ** 2, X),
        (lambda x: xp.linalg.cholesky((x + xp.conj(xp.matrix_transpose(x))) / 2), P),
        (lambda x: xp.linalg.inv(x), Z),
        (lambda x: xp.linalg.solve(x, xp.sin(x)), P),
        (lambda x: xp.linalg.solve(x, x[0]), Z),
    ],
)
def test_the_names_that_the_adapter_adds_have_both_modes(f, x):
    assert adjudge.gradcheck(f, x, backend="autograd", check_forward_ad=True, seed=1)


@pytest.mark.parametrize(
    "f", [lambda z: xp.real(xp.conj(z) * z), lambda z: xp.conj(z) * z**2, xp.exp]
)
@pytest.mark.parametrize("order", [1, 2])
def test_complex_derivatives_are_adjoints(f, order):
    assert adjudge.examine(f, Z, order=order, backend="autograd", seed=1)


def test_a_transpose_in_place_of_the_adjoint_fails():
    class Transpose(AutogradBackend):
        def vjp(self, f, x):
            y, pullback = super().vjp(f, x)

            def transposed(w):
                g = pullback(tuple(None if one is None else anp.conj(one) for one in w))
                return tuple(None if one is None else anp.conj(one) for one in g)

            return y, transposed

    report = adjudge.examine(lambda z: xp.conj(z) * z**2, Z, backend=Transpose(), seed=1)

    assert report.verdict is adjudge.Verdict.FAIL


def test_a_wrong_rule_fails():
    from autograd.extend import defvjp, primitive

    sine = primitive(np.sin)
    defvjp(sine, lambda ans, x: lambda g: g * anp.cos(x) * 1.001)

    report = adjudge.examine(sine, X, backend="autograd", seed=1)

    assert report.verdict is adjudge.Verdict.FAIL
    assert "factor" in str(report) or "1.001" in str(report)


def test_a_missing_rule_is_unsupported():
    report = adjudge.examine(anp.linalg.det, P, modes=["R", "F"], backend="autograd", seed=1)

    assert report.modes["R"] is adjudge.Verdict.PASS
    assert report.modes["F"] is adjudge.Status.UNSUPPORTED
    assert "JVP of det" in str(report)


def test_a_value_that_leaves_the_graph_is_detached():
    report = adjudge.examine(
        lambda x: (xp.sin(x), np.sin(getval(x))), X, backend="autograd", seed=1
    )

    assert "DETACHED" in str(report)


def test_boxes_are_found_by_their_module():
    from adjudge.engine import names

    assert "autograd" in names()


def test_the_report_has_the_version():
    report = adjudge.examine(xp.sin, X, backend="autograd", seed=1)

    assert f"autograd {AutogradBackend().environment.version}" in str(report)
