"""Pairs of a function and its derivative by hand: how it is called, and when it is called wrong."""

import pytest

from adjudge.findings import Verdict
from adjudge.ghostwriter import LeftOut, write

HEAD = """
    import numpy as np

    def sigmoid(x): return 1 / (1 + np.exp(-x))
    def cube(x): return x**3
    def dense_forward(x, w, b): return x @ w + b, (x, w)
    def mse(y_true, y_pred): return ((y_true - y_pred) ** 2).mean()
    def multiply(x, y): return x * y
    def leaky(x, *, slope): return np.where(x > 0, x, slope * x)
    def norm(x, y): return np.sqrt(x**2 + y**2)
"""
PAIRS = {
    "cube_vjp": ("x, w", "{c} * 3 * x**2 * w", "vjp={m}.cube_vjp"),
    "cube_backward": ("dout, x", "{c} * 3 * x**2 * dout", "return {m}.cube_backward(w, x)"),
    "d_cube": ("x", "{c} * 3 * x**2", "w * {m}.d_cube(x)"),
    "sigmoid_grad": (
        "y",
        "{c} * y * (1 - y)",
        "y = {m}.sigmoid(x)\n        return w * {m}.sigmoid_grad(y)",
    ),
    "sigmoid_backward": (
        "dout, y",
        "{c} * y * (1 - y) * dout",
        "y = {m}.sigmoid(x)\n        return {m}.sigmoid_backward(w, y)",
    ),
    "dense_backward": (
        "dout, cache",
        "dout @ cache[1].T, {c} * cache[0].T @ dout, dout.sum(0)",
        "y = {m}.dense_forward(x, w, b)\n        return {m}.dense_backward(g, y[1])",
    ),
    "mse_prime": (
        "y_true, y_pred",
        "{c} * 2 * (y_pred - y_true) / y_true.size",
        "return None, w * {m}.mse_prime(y_true, y_pred)",
    ),
    "multiply_jvp": ("x, y, dx, dy", "dx * y + {c} * x * dy", "jvp={m}.multiply_jvp"),
    "norm_gradient": (
        "x, y",
        "x / norm(x, y), {c} * y / norm(x, y)",
        "tuple(w * one for one in {m}.norm_gradient(x, y))",
    ),
    "leaky_backward": (
        "g, x, *, slope",
        "np.where(x > 0, g, {c} * slope * g)",
        "{m}.leaky_backward(w, x, slope=0.5)",
    ),
}


def rule(name, factor):
    parameters, value, _ = PAIRS[name]
    return f"\n    def {name}({parameters}): return {value.format(c=factor)}\n"


@pytest.mark.parametrize("name", PAIRS)
def test_a_right_rule_passes_in_the_way_in_which_it_is_called(plant, name):
    module = plant(HEAD + rule(name, 1))

    written = write(f"{module}:{name}", timeout=None)

    assert [one.verdict for one in written.tests] == [Verdict.PASS]
    assert PAIRS[name][2].format(m=module) in written.text


@pytest.mark.parametrize("name", [name for name in PAIRS if name != "norm_gradient"])
def test_a_wrong_rule_fails_in_the_way_that_its_parameters_say(plant, name):
    module = plant(HEAD + rule(name, 1.01))

    written = write(f"{module}:{name}", timeout=None)

    assert [one.verdict for one in written.tests] == [Verdict.FAIL]
    assert PAIRS[name][2].format(m=module) in written.text


def test_a_rule_that_fails_in_each_way_is_not_called_wrong_where_nothing_says_the_way(plant):
    module = plant(HEAD + "\n    def cube_vjp(one, other): return one + other\n")

    written = write(f"{module}:cube_vjp", timeout=None, on_result=print)

    assert written.tests == []
    (left_out,) = written.left_out
    assert left_out.reason.startswith("it passes in no way of calling it")


def test_a_rule_that_is_wrong_at_some_inputs_alone_is_wrong(plant):
    module = plant("""
        import numpy as np
        def leaky(x): return np.where(x > 0, x, 0.1 * x)
        def leaky_vjp(other, one): return np.where(other > 0, one, 0.2 * one)
    """)

    written = write(module, timeout=None)

    assert [one.verdict for one in written.tests] == [Verdict.FAIL]
    assert "rng.uniform(-2, 2, (2, 3))" in written.text


def test_the_file_is_run_by_pytest_and_says_the_same(plant, pytester):
    source = HEAD + "".join(rule(name, 1) for name in PAIRS if name != "d_cube")
    module = plant(source + rule("d_cube", 1.01))
    written = write(module, timeout=None)
    pytester.makepyfile(test_it=written.text)

    outcome = pytester.runpytest_inprocess("-p", "no:cacheprovider")

    outcome.assert_outcomes(passed=len(PAIRS) - 1, failed=1)
    outcome.stdout.fnmatch_lines(["FAILED test_it.py::test_d_cube*"])
    assert written.left_out == []


def test_numpy_functions_without_a_rule_are_left_out(plant):
    module = plant(HEAD + rule("d_cube", 1) + "\n    def alone(x): return x\n")

    left_out = write(module, timeout=None).left_out

    assert (
        LeftOut("alone", "numpy has no derivatives, and none by hand is defined beside it")
        in left_out
    )
    assert "cube" not in [one.name for one in left_out]
