"""SciPy's own functions, sparse matrices and linear operators as derivatives by hand."""

import numpy as np
import pytest

from adjudge import ByHand, Verdict, examine

optimize = pytest.importorskip("scipy.optimize")
sparse = pytest.importorskip("scipy.sparse")
linalg = pytest.importorskip("scipy.sparse.linalg")

X = np.asarray([0.3, -0.8, 1.1, 0.7])
FORMS = {
    "array": sparse.csr_array,
    "matrix": sparse.csc_matrix,
    "coo": sparse.coo_array,
    "diagonals": sparse.dia_array,
    "operator": linalg.aslinearoperator,
    "np.matrix": lambda M: M.view(np.matrix),
}


def off(M):
    M[1, 2] *= 1.01
    return M


def differences(x):
    return x[1:] ** 2 - x[:-1]


def bidiagonal(x):
    J = np.zeros((3, 4))
    J[range(3), range(3)], J[range(3), range(1, 4)] = -1, 2 * x[1:]
    return J


@pytest.mark.parametrize("form", FORMS)
def test_a_jacobian_in_each_form(form):
    given = FORMS[form]
    right = examine(ByHand(differences, jac=lambda x: given(bidiagonal(x))), X, seed=1)
    wrong = examine(ByHand(differences, jac=lambda x: given(off(bidiagonal(x)))), X, seed=1)

    assert (right.verdict, wrong.verdict) == (Verdict.PASS, Verdict.FAIL)
    assert "d out[1] / d inputs[0][2]: automatic" in wrong.headline


@pytest.mark.parametrize("form", FORMS)
def test_a_hessian_in_each_form(form):
    given, rosen_hess = FORMS[form], optimize.rosen_hess
    right, wrong = (
        examine(ByHand(optimize.rosen, grad=optimize.rosen_der, hess=hess), X, seed=1)
        for hess in (lambda x: given(rosen_hess(x)), lambda x: given(off(rosen_hess(x))))
    )

    assert (right.verdict, wrong.verdict) == (Verdict.PASS, Verdict.FAIL)
    assert "d grad(inputs[0])[1] / d inputs[0][2]: automatic" in wrong.headline


def test_a_hessian_may_be_an_operator_without_an_adjoint():
    def hess(x):
        return linalg.LinearOperator((4, 4), matvec=lambda p: optimize.rosen_hess_prod(x, p))

    rule = ByHand(optimize.rosen, grad=optimize.rosen_der, hess=hess)

    assert examine(rule, X, modes=["R", "FR", "RR"], seed=1)
