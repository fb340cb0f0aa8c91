"""Numbers of Python and NumPy, and lists of them, where derivatives are by hand or an engine is
named: they are arrays where there is no other, and constants beside arrays.
"""

import math

import numpy as np
import pytest

from adjudge import ByHand, InputError, Verdict, examine

X = np.asarray([0.3, -0.8])


@pytest.mark.parametrize("x", [0.7, np.float64(0.7), np.float32(0.7), 0.7 + 0.2j], ids=repr)
def test_a_number_in_and_numbers_out(x):
    number = complex if isinstance(x, complex) else float
    f = lambda x: number(x) ** 3  # noqa: E731
    vjp = lambda x, w: number(3 * np.conj(x) ** 2 * w)  # noqa: E731
    jvp = lambda x, v: number(3 * x**2 * v)  # noqa: E731

    right = examine(ByHand(f, vjp=vjp, jvp=jvp), x, check_forward_ad=True, seed=1)
    wrong = examine(ByHand(f, vjp=lambda x, w: 1.01 * vjp(x, w)), x, seed=1)

    assert (right.verdict, wrong.verdict) == (Verdict.PASS, Verdict.FAIL)


@pytest.mark.parametrize("x", [[0.3, -0.8], ([0.3, -0.8],), ([np.float64(0.3), -0.8],)])
def test_a_list_of_numbers_is_one_array_and_lists_may_come_out(x):
    f = lambda x: [math.sin(a) for a in x]  # noqa: E731

    right = examine(ByHand(f, vjp=lambda x, w: (w * np.cos(x)).tolist()), x, seed=1)
    wrong = examine(ByHand(f, vjp=lambda x, w: (w * np.sin(x)).tolist()), x, seed=1)

    assert (right.verdict, wrong.verdict) == (Verdict.PASS, Verdict.FAIL)


def test_a_pullback_may_return_numbers():
    right = examine(ByHand(pullback=lambda x: (float(x @ x), lambda w: 2 * w * x)), X, seed=1)
    wrong = examine(ByHand(pullback=lambda x: (float(x @ x), lambda w: w * x)), X, seed=1)

    assert (right.verdict, wrong.verdict) == (Verdict.PASS, Verdict.FAIL)


def test_numbers_beside_arrays_are_constants():
    seen = set()

    def power(x, n, factor):
        seen.add((type(n), type(factor)))
        return factor * x**n

    rule = ByHand(power, vjp=lambda x, n, factor, w: (w * factor * n * x ** (n - 1), None, None))

    assert examine(rule, (X, 3, 0.5), seed=1)
    assert seen == {(int, float)}


def test_numbers_in_a_tuple_are_inputs_of_their_own():
    product = lambda a, b: a * b  # noqa: E731
    right = examine(ByHand(product, vjp=lambda a, b, w: (w * b, w * a)), (2.0, 3.0), seed=1)
    wrong = examine(ByHand(product, vjp=lambda a, b, w: (w * b, w * b)), (2.0, 3.0), seed=1)

    assert (right.verdict, wrong.verdict) == (Verdict.PASS, Verdict.FAIL)


def test_a_gradient_of_numbers_in_another_shape_is_refused():
    rule = ByHand(lambda x: x @ x, vjp=lambda x, w: [1.0, 2.0, 3.0])

    with pytest.raises(InputError, match=r"returned shape \(3,\) for inputs\[0\], which has shap"):
        examine(rule, X)


@pytest.mark.backend("torch", "jax")
@pytest.mark.parametrize("backend", ["torch", "jax"])
@pytest.mark.parametrize("inputs", [(X,), (X.tolist(), 3), (0.3,), ({"a": X},)], ids=range(4))
def test_what_is_no_array_of_the_named_engine_is_placed_on_it(backend, inputs):
    report = examine(
        lambda x, n=2: (x["a"] if isinstance(x, dict) else x) ** n, inputs, backend=backend, seed=1
    )

    assert report.verdict is Verdict.PASS
    assert report.provenance.backend == backend


@pytest.mark.backend("torch", "jax")
def test_arrays_of_another_engine_are_not_placed():
    torch = pytest.importorskip("torch")

    with pytest.raises(InputError, match="belongs to torch, and the check is on jax"):
        examine(lambda x: x, torch.ones(2), backend="jax")
