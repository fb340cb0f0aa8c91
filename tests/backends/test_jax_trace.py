"""What JAX does at a point, recorded as a straight-line program."""

import random
import sys
from functools import partial

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402
from jax.extend.core import Primitive  # noqa: E402
from jax.interpreters import mlir  # noqa: E402

from adjudge import NotSupportedError, Verdict, examine  # noqa: E402
from adjudge.engine import INPUT, Place, Ref, backend_named  # noqa: E402

THIS = __file__


@pytest.fixture(autouse=True)
def _double():
    with backend_named("jax").environment.widening():
        yield


def next_line():
    """The line below that of the caller."""
    return Place(THIS, sys._getframe(1).f_lineno + 1)


@jax.custom_vjp
def sine(x):
    return jnp.sin(x)


def sine_backward(x, w):
    return (w * jnp.cos(x),)


sine.defvjp(lambda x: (sine(x), x), sine_backward)


@jax.custom_jvp
def cosine(x):
    return jnp.cos(x)


cosine.defjvp(lambda x, v: (cosine(*x), -jnp.sin(x[0]) * v[0]))


def traced(f, *x):
    return backend_named("jax").trace(lambda leaves: f(*leaves), x)


def names(program):
    # JAX before 0.5 does not keep the names of functions with a rule
    unnamed = {"custom_vjp_call_jaxpr": "sine", "custom_jvp_call": "relu"}
    return [unnamed.get(step.name, step.name) for step in program.steps]


def test_each_operation_is_one_step_with_its_parameters():
    program = traced(lambda x: (jnp.sum(x * 2.0, axis=1),), jnp.ones((2, 3)))

    product, total = program.steps
    assert (product.name, product.operands[0]) == ("mul", Ref(INPUT, 0))
    assert float(product.operands[1]) == 2.0
    assert (total.name, total.static["axes"]) == ("reduce_sum", (1,))
    assert program.outputs == (Ref(1, 0),)


def test_a_step_has_the_users_line_and_its_scope():
    def f(x):
        with jax.named_scope("block"):
            f.place = next_line()
            y = jnp.sin(x)
        return (jnp.cos(y),)

    first, second = traced(f, jnp.ones(3)).steps

    assert (first.place, first.module) == (f.place, "block")
    assert (second.place.file, second.module) == (THIS, "")


def test_a_custom_rule_is_one_step_with_the_line_of_its_derivative():
    first, second = traced(lambda x: (cosine(sine(x)),), jnp.ones(3)).steps

    assert (first.custom, first.rule) == (True, "sine_backward")
    assert first.rule_place == Place(THIS, sine_backward.__code__.co_firstlineno)
    assert second.custom
    if second.name == "custom_jvp_call":
        pytest.skip("JAX before 0.5 does not keep the names of functions with a rule")
    assert (first.name, second.name, second.rule) == ("sine", "cosine", "the jvp of cosine")
    assert second.rule_place.file == THIS


def test_a_rule_of_the_engine_is_not_custom():
    program = traced(lambda x: (jax.nn.relu(x),), jnp.ones(3))

    assert names(program) == ["relu"]
    if program.steps[0].name != "relu":
        pytest.skip("JAX before 0.5 does not say where such a function is defined")
    assert not program.steps[0].custom


def test_what_is_called_is_walked_into():
    def f(x):
        return (jax.checkpoint(lambda y: jnp.cos(sine(y)))(jax.jit(lambda y: sine(y) * 2)(x)),)

    assert names(traced(f, jnp.ones(3))) == ["sine", "mul", "sine", "cos"]


def test_loops_are_unrolled_and_branches_taken_with_the_values_at_hand():
    def f(x):
        def body(carry, factor):
            return sine(carry) * factor, carry.sum()

        y, sums = lax.scan(body, x, jnp.arange(1.0, 4.0))
        y = lax.fori_loop(0, 2, lambda i, y: jnp.exp(y), y)
        y = lax.while_loop(lambda y: y[0] < 100, lambda y: y * 3, y)
        return lax.cond(x[0] > 0, jnp.tanh, jnp.sin, y), sums

    program = traced(f, jnp.ones(2))

    counted = {name: names(program).count(name) for name in names(program)}
    assert (counted["sine"], counted["exp"], counted["tanh"], counted["stack"]) == (3, 2, 1, 1)
    y = np.asarray(f(jnp.ones(2))[0])
    outputs = program.replay(program.inputs).values(program.outputs)
    np.testing.assert_allclose(outputs[0], y, rtol=1e-14)


def scanned(reverse, x):
    def body(carry, t):
        return sine(carry) + t, carry * t

    y, rows = lax.scan(body, x, jnp.arange(20.0) / 20, reverse=reverse)
    return y, rows


def stopped(x):
    def body(state):
        k, y = state
        return k + 1, cosine(y) + y

    return lax.while_loop(lambda state: state[0] < 20, body, (0, x))


def stopped_one_by_one(x):  # each entry after another number of turns
    return jax.vmap(lambda y: lax.while_loop(lambda y: y < 9, lambda y: cosine(y) + y + 2, y))(x)


@pytest.mark.parametrize(
    ("f", "rule", "loop"),
    [
        (partial(scanned, False), "sine", "scan"),
        (partial(scanned, True), "sine", "scan"),
        (stopped, "cosine", "while"),
        (lambda x: (stopped_one_by_one(x),), "cosine", "while"),
    ],
)
@pytest.mark.parametrize("chosen", [2, 3])
def test_of_a_long_loop_chosen_iterations_are_steps(monkeypatch, f, rule, loop, chosen):
    monkeypatch.setattr("adjudge_jax.tracing.Walk.most_steps", 5)
    monkeypatch.setattr("adjudge_jax.tracing.Walk.chosen", chosen)
    x = jnp.array([0.3, 1.7])

    program = traced(f, x)

    rules = [k for k, name in enumerate(names(program)) if name == rule]
    parts = [step for step in program.steps if step.iterations]
    assert len(rules) == chosen
    assert [step.name for step in parts] == [loop] * (chosen - 1)
    assert all(set(rules) <= set(step.holds) for step in parts)
    for at in (x, x * 1.01):
        found = program.replay((at,)).values(program.outputs)
        for one, expected in zip(found, f(at), strict=True):
            np.testing.assert_allclose(one, expected, rtol=1e-12)


def test_a_long_scan_in_parts_has_the_derivative_of_the_scan(monkeypatch):
    monkeypatch.setattr("adjudge_jax.tracing.Walk.most_steps", 5)
    x = jnp.array([0.3, 1.7])
    program = traced(partial(scanned, True), x)

    def again(x):
        return sum(one.sum() for one in program.replay((x,)).values(program.outputs))

    expected = jax.grad(lambda x: sum(one.sum() for one in scanned(True, x)))(x)
    np.testing.assert_allclose(jax.grad(again)(x), expected, rtol=1e-12)


def test_a_reversed_scan_runs_backwards():
    def f(x):
        return lax.scan(lambda c, t: (c * t, c), x[0], x, reverse=True)

    x = jnp.array([2.0, 3.0, 5.0])

    program = traced(f, x)

    assert [np.asarray(one).tolist() for one in program.recorded.values(program.outputs)] == [
        np.asarray(one).tolist() for one in f(x)
    ]


def test_a_program_has_the_values_and_the_gradient_of_the_function_at_another_point():
    def f(x):
        return (jnp.linalg.norm(jax.nn.softmax(sine(x) @ x.T)),)

    x = jnp.arange(1.0, 7.0).reshape(2, 3) / 7
    program = traced(f, x + 1)

    def again(x):
        return program.replay((x,)).values(program.outputs)[0]

    np.testing.assert_allclose(again(x), f(x)[0], rtol=1e-14)
    np.testing.assert_allclose(jax.grad(again)(x), jax.grad(lambda x: f(x)[0])(x), rtol=1e-12)


def test_what_does_not_depend_on_the_inputs_is_no_step():
    assert names(traced(lambda x: (x + jnp.sin(jnp.ones(3)),), jnp.ones(3))) == ["add"]


def test_a_function_that_needs_numbers_is_not_recorded_and_the_error_says_why():
    with pytest.raises(NotSupportedError, match="Attempted boolean conversion"):
        traced(lambda x: (x if x[0] > 0 else -x,), jnp.ones(3))


def state_of():
    return (
        {name: value for name, value in jax.config.values.items() if name.startswith("jax_")},
        random.getstate(),
        np.random.get_state()[1].tolist(),  # noqa: NPY002
    )


@pytest.mark.parametrize("raises", [False, True])
def test_values_gradients_and_global_state_are_those_without_a_trace(raises):
    key, x = jax.random.key(0), jnp.linspace(0.1, 1.0, 5)

    def f(x):
        noise = jax.random.normal(key, x.shape)
        y = lax.scan(lambda carry, one: (sine(carry) + one, carry), x[0], noise * x)[1]
        if raises:
            raise RuntimeError("no value")
        return (y,)

    def outcome():
        if raises:
            return []
        return [f(x)[0], jax.grad(lambda x: jnp.sum(f(x)[0]))(x)]

    before, values = state_of(), outcome()

    if raises:
        with pytest.raises(RuntimeError, match="no value"):
            traced(f, x)
    else:
        assert "sine" in names(traced(f, x))

    assert state_of() == before
    assert all(map(np.array_equal, outcome(), values))


def test_a_primitive_that_gives_a_number_of_python_is_a_step():
    """As some of Equinox do where they are not compiled; blame ended in an AttributeError."""
    some = Primitive("some")
    some.def_impl(lambda x: bool(np.any(np.asarray(x) > 0)))
    some.def_abstract_eval(lambda x: jax.core.ShapedArray((), np.bool_))
    compiled = mlir.lower_fun(lambda x: (x > 0).any(), multiple_results=False)
    mlir.register_lowering(some, compiled)

    @jax.custom_vjp
    def doubled(x):
        return 2 * x

    doubled.defvjp(lambda x: (2 * x, None), lambda _, w: (3 * w,))

    def f(x):
        return jnp.where(some.bind(jax.lax.stop_gradient(x)), doubled(jnp.sin(x)), x)

    report = examine(f, jnp.array([0.3, 0.7]), seed=0)

    assert report.verdict is Verdict.FAIL
    assert "doubled" in str(report)
