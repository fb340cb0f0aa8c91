"""One function, one verdict: by hand on NumPy, in PyTorch and in JAX.

Every function is written once, against the Array API, with its derivative by hand. NumPy has the
derivative by hand; PyTorch and JAX differentiate the function themselves where they all do it
alike, and take the derivative by hand where an error is planted in it, or a subgradient chosen.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import array_api_compat
import numpy as np
import pytest
from scenarios import cells, on_both

from adjudge import ByHand, Verdict, examine

DTYPES = ("float64", "float32")
SEED = 0


@dataclass(frozen=True)
class Case:
    """`f(*x)` and the gradients `vjp(*x, w)`, at the points `x`."""

    f: Callable[..., Any]
    vjp: Callable[..., Any]
    x: tuple[Any, ...]
    verdicts: frozenset[Verdict] = frozenset({Verdict.PASS})
    by_hand: bool = False
    """Whether PyTorch and JAX get the derivative by hand too."""


def xp(x):
    return array_api_compat.array_namespace(x)


def softmax(x):
    e = xp(x).exp(x - xp(x).max(x))
    return e / xp(x).sum(e)


def softmax_vjp(x, w):
    y = softmax(x)
    return y * (w - xp(x).sum(w * y))


def logsumexp(x):
    top = xp(x).max(x)
    return top + xp(x).log(xp(x).sum(xp(x).exp(x - top)))


def norm(x):
    return xp(x).sqrt(xp(x).sum(x * x))


def matmul(a, b):
    return a @ b


def matmul_vjp(a, b, w):
    return w @ b.T, a.T @ w


def polynomial(x):
    return 3 * x**3 - 2 * x


def polynomial_vjp(x, w):
    return w * (9 * x**2 - 2)


def absolute(x):
    return xp(x).abs(x)


def absolute_vjp(at_zero):
    return lambda x, w: w * xp(x).where(x == 0, at_zero + 0 * x, xp(x).sign(x))


def relu(x):
    return xp(x).where(x > 0, x, 0 * x)


def relu_vjp(x, w):
    return xp(x).where(x > 0, w, 0 * w)


def root(x):
    return xp(x).sqrt(x)


def offset(x):
    return xp(x).sum(x * x) + 1e5


def first_dropped(x, w):
    keep = xp(x).asarray([0.0, 1.0, 1.0], dtype=x.dtype)
    return keep * polynomial_vjp(x, w)


def transposed(a, b, w):
    of_a, of_b = matmul_vjp(a, b, w)
    return of_a.T, of_b


VECTOR = [0.4, -1.3, 2.2]
SQUARE = [[0.4, -1.3], [2.2, 0.7]]
OTHER = [[1.1, 0.6], [-0.3, 1.9]]
FAILS = frozenset({Verdict.FAIL})
KINK = [0.0, -1.3, 2.2]
KINKED = frozenset({Verdict.PASS})
OPEN = frozenset({Verdict.PASS, Verdict.INCONCLUSIVE})

CASES = {
    "softmax": Case(softmax, softmax_vjp, (VECTOR,)),
    "logsumexp": Case(logsumexp, lambda x, w: w * softmax(x), (VECTOR,)),
    "norm": Case(norm, lambda x, w: w * x / norm(x), (VECTOR,)),
    "matrix product": Case(matmul, matmul_vjp, (SQUARE, OTHER)),
    "polynomial": Case(polynomial, polynomial_vjp, (VECTOR,)),
    "abs at 0": Case(absolute, absolute_vjp(0), (KINK,), OPEN, by_hand=True),
    "abs at 0, right slope": Case(absolute, absolute_vjp(1), (KINK,), KINKED, by_hand=True),
    "abs at 0, no slope": Case(absolute, absolute_vjp(5), (KINK,), FAILS, by_hand=True),
    "relu at 0": Case(relu, relu_vjp, (KINK,), OPEN),
    "sqrt at the edge": Case(root, lambda x, w: w / (2 * root(x)), ([2.0**-20, 1.0, 4.0],), OPEN),
    "offset of 1e5": Case(offset, lambda x, w: 2 * w * x, (VECTOR,), OPEN),
    "sign": Case(polynomial, lambda x, w: -polynomial_vjp(x, w), (VECTOR,), FAILS, by_hand=True),
    "factor": Case(
        polynomial, lambda x, w: 1.01 * polynomial_vjp(x, w), (VECTOR,), FAILS, by_hand=True
    ),
    "transposed": Case(matmul, transposed, (SQUARE, OTHER), FAILS, by_hand=True),
    "dropped entry": Case(polynomial, first_dropped, (VECTOR,), FAILS, by_hand=True),
}


def numpy_report(case, dtype):
    x = tuple(np.asarray(values, dtype=dtype) for values in case.x)
    return examine(ByHand(case.f, vjp=case.vjp), x, seed=SEED)


@pytest.fixture
def engine_report(adjudge_backend, with_vjp):
    """`engine_report(case, dtype)`: the report of the function in PyTorch or JAX."""

    def make(case, dtype):
        x = tuple(adjudge_backend.array(values, dtype) for values in case.x)
        f = with_vjp(case.f, case.vjp) if case.by_hand else case.f
        return examine(f, x, seed=SEED)

    return make


def statuses(report):
    return {(finding.status, finding.mode) for finding in report.findings}


SINGLE_IN_JAX = ("softmax", "matrix product", "abs at 0", "offset of 1e5", "factor")
"""What single precision adds is the core's: in JAX it is shown by one of each kind."""

EVERY = [(name, dtype) for name in CASES for dtype in DTYPES]


@cells(
    ("name", "dtype"),
    torch=EVERY,
    jax=[case for case in EVERY if case[1] == "float64" or case[0] in SINGLE_IN_JAX],
)
def test_every_engine_gets_the_verdict_of_numpy(engine_report, name, dtype):
    by_hand = numpy_report(CASES[name], dtype)
    report = engine_report(CASES[name], dtype)

    assert report.verdict == by_hand.verdict, f"{report}\n\n{by_hand}"
    assert statuses(report) == statuses(by_hand), f"{report}\n\n{by_hand}"
    assert report.counts["comparisons"] > 0
    assert report.counts["nonzero"] > 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_the_verdict_of_numpy_is_the_expected_one(name, dtype):
    report = numpy_report(CASES[name], dtype)

    assert report.verdict in CASES[name].verdicts, str(report)
    assert report.counts["comparisons"] > 0


@on_both
def test_the_right_and_the_wrong_derivatives_of_one_function_differ(engine_report):
    right = engine_report(CASES["polynomial"], "float64")
    wrong = engine_report(CASES["sign"], "float64")

    assert right.verdict is Verdict.PASS
    assert wrong.verdict is Verdict.FAIL
