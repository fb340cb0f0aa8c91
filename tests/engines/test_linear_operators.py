"""Linear operators with an adjoint: the dot test is an exact identity, and differences agree."""

import numpy as np
import pytest
from array_api_compat import array_namespace

import adjudge
from adjudge import InputError, Verdict
from adjudge.engine import registry
from adjudge_cupy import linear

RANDOM = np.random.default_rng(20)
A = RANDOM.normal(size=(5, 8))
x = RANDOM.normal(size=8)
MODES = ["R", "F", "RR", "FR"]


class Broken:
    """An operator whose adjoint is wrong in a way of its own."""

    def __init__(self, operator, wrong):
        self.matvec, self.shape = operator.matvec, operator.shape
        self.rmatvec = lambda w: wrong(operator.rmatvec(w))


def edge(g):
    """The first entry is forgotten, as boundary rows of stencils are."""
    return array_namespace(g).concat([0 * g[:1], g[1:]])


MISTAKES = {
    "sign": lambda g: -g,
    "factor": lambda g: 2 * g,
    "edge": edge,
    "order": lambda g: g[::-1].copy(),
    "one part in a million": lambda g: g * (1 + 1e-6),
}


def test_a_pair_of_functions_passes_in_every_mode_that_there_is():
    report = adjudge.gradcheck(linear(lambda x: A @ x, adjoint=lambda w: A.T @ w), x, modes=MODES)

    assert set(report.modes) == set(MODES)


def test_the_adjoint_of_a_complex_operator_is_the_conjugate_transpose():
    C = A + 1j * RANDOM.normal(size=A.shape)
    z = x + 1j * RANDOM.normal(size=8)

    assert adjudge.examine(linear(lambda x: C @ x, adjoint=lambda w: C.conj().T @ w), z)
    report = adjudge.examine(linear(lambda x: C @ x, adjoint=lambda w: C.T @ w), z)
    assert report.verdict is Verdict.FAIL
    assert "conj" in str(report)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_adjoint_fails_and_the_dot_test_alone_says_so(name):
    wrong = MISTAKES[name]

    report = adjudge.examine(
        linear(lambda x: A @ x, adjoint=lambda w: wrong(A.T @ w)), x, check_forward_ad=True
    )

    assert report.verdict is Verdict.FAIL
    assert report.modes["F"] is Verdict.PASS
    assert "INCONSISTENT" in {str(finding.status) for finding in report.findings}


def test_an_operator_without_an_adjoint_is_refused():
    with pytest.raises(InputError, match="adjoint="):
        linear(lambda x: A @ x)
    with pytest.raises(InputError, match="matvec"):
        linear(3.0, adjoint=lambda w: w)


OPERATORS = {
    "FirstDerivative": lambda p: p.FirstDerivative(20),
    "SecondDerivative": lambda p: p.SecondDerivative(20),
    "Diagonal": lambda p: p.Diagonal(np.linspace(1, 2, 20)),
    "FFT": lambda p: p.signalprocessing.FFT(20, real=False, dtype="complex128"),
    "real FFT": lambda p: p.signalprocessing.FFT(20, real=True),
    "Convolve1D": lambda p: p.signalprocessing.Convolve1D(20, np.array([1.0, 2.0, -1.0]), offset=1),
    "CausalIntegration": lambda p: p.CausalIntegration(20),
    "Restriction": lambda p: p.Restriction(20, np.array([0, 3, 4, 19])),
    "Spread of a matrix": lambda p: p.MatrixMult(np.arange(60.0).reshape(3, 20)),
    "VStack": lambda p: p.VStack([p.FirstDerivative(20), p.Identity(20)]),
    "product": lambda p: p.FirstDerivative(20).H @ p.FirstDerivative(20),
}


@pytest.mark.library("pylops")
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_of_pylops_pass_and_broken_ones_fail(library, name):
    operator = OPERATORS[name](library)
    x = np.random.default_rng(3).normal(size=operator.shape[1])
    if np.issubdtype(operator.dtype, np.complexfloating) and name != "real FFT":
        x = x + 1j * x[::-1]

    right = adjudge.gradcheck(linear(operator), x, check_forward_ad=True)

    assert right.counts["comparisons"] > 0
    assert set(broken_verdicts(operator, x).values()) == {Verdict.FAIL}


def broken_verdicts(operator, x):
    """Of each mistake in the adjoint, planted into this operator."""
    return {
        name: adjudge.examine(linear(Broken(operator, wrong)), x, check_forward_ad=True).verdict
        for name, wrong in MISTAKES.items()
    }


ELSEWHERE = {
    "FirstDerivative": lambda p, xp: p.FirstDerivative(20),
    "SecondDerivative": lambda p, xp: p.SecondDerivative(20),
    "CausalIntegration": lambda p, xp: p.CausalIntegration(20),
    "Diagonal": lambda p, xp: p.Diagonal(xp.linspace(1.0, 2.0, 20)),
    "MatrixMult": lambda p, xp: p.MatrixMult(xp.arange(60.0).reshape(3, 20)),
    "VStack": lambda p, xp: p.VStack([p.FirstDerivative(20), p.Identity(20)]),
}


@pytest.mark.backend("jax")
@pytest.mark.library("pylops")
@pytest.mark.parametrize("name", ELSEWHERE)
def test_operators_of_pylops_pass_on_arrays_of_jax_and_broken_ones_fail(library, name):
    backend = registry.backend_named("jax")
    x = backend.arrays.make(np.random.default_rng(3).normal(size=20), "float64")
    with backend.environment.isolation([x]):
        operator = ELSEWHERE[name](library, backend.xp)

    right = adjudge.gradcheck(linear(operator), x, modes=MODES)

    assert right.provenance.backend == "jax"
    assert set(broken_verdicts(operator, x).values()) == {Verdict.FAIL}


@pytest.mark.library("pylops")
@pytest.mark.parametrize("name", ELSEWHERE)
def test_operators_of_pylops_pass_on_a_gpu_and_broken_ones_fail(gpu, library, name):
    operator = ELSEWHERE[name](library, gpu)
    x = gpu.asarray(np.random.default_rng(3).normal(size=20))

    right = adjudge.gradcheck(linear(operator), x, modes=MODES)

    assert right.provenance.backend == "cupy"
    assert set(broken_verdicts(operator, x).values()) == {Verdict.FAIL}
