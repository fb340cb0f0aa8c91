"""What a function did as a straight-line program, without an engine that records one."""

import inspect

import numpy as np
import pytest

from adjudge import ByHand, NotSupportedError
from adjudge.engine import INPUT, UNKNOWN, Place, PlainBackend, Ref, Step, Trace, place_of
from adjudge.engine.trace import CORE
from adjudge.problem import first_order, read_arguments


def sine(x):
    return np.sin(x)


def backward(x, w):
    return w * np.cos(x)


def two_steps():
    """`x * 2 + 1`."""
    x = (np.array([1.0, 2.0]),)
    doubled = Step("double", lambda o: (o[0] * 2,), (Ref(INPUT, 0),), (x[0] * 2,))
    added = Step("add", lambda o: (o[0] + o[1],), (Ref(0, 0), np.ones(2)), (x[0] * 2 + 1,))
    return Trace(x, [doubled, added], (Ref(1, 0), np.zeros(1)))


def test_a_program_is_run_again_at_another_point():
    program = two_steps()
    x = (np.array([10.0, 20.0]),)

    values = program.replay(x)

    assert [value[0].tolist() for value in values] == [[20.0, 40.0], [21.0, 41.0]]
    outputs = program.outputs_of(x, values)
    assert [output.tolist() for output in outputs] == [[21.0, 41.0], [0.0]]


def test_the_operands_of_a_step_are_those_that_were_recorded():
    assert [one.tolist() for one in two_steps().operands(1)] == [[2.0, 4.0], [1.0, 1.0]]


def test_a_step_that_cannot_be_run_again_keeps_its_recorded_results():
    x = (np.array([1.0]),)
    step = Step("extension", lambda o: o, (), (np.array([7.0]),), opaque="is an extension")

    assert Trace(x, [step], ()).replay((np.array([2.0]),)) == [step.results]


def test_a_rule_by_hand_is_one_step_with_the_line_of_its_derivative():
    problem = first_order(ByHand(sine, vjp=backward), read_arguments((np.array([0.5, 1.0]),)))

    program = problem.backend.trace(problem.function, problem.point())

    (step,) = program.steps
    assert (step.name, step.custom, step.rule) == ("ByHand(sine)", True, "vjp=backward")
    assert step.rule_place == Place(__file__, inspect.getsourcelines(backward)[1])
    assert np.array_equal(step.results[0], np.sin([0.5, 1.0]))
    assert program.outputs == (Ref(0, 0),)


def test_an_engine_that_records_nothing_says_so():
    with pytest.raises(NotSupportedError, match=r"recording what a function does \(trace\)"):
        PlainBackend(np).trace(lambda x: x, (np.ones(1),))


def test_the_innermost_line_outside_of_the_engine_is_the_users():
    stack = [
        ("/lib/torch/a.py", 1),
        ("<frozen importlib>", 2),
        ("/me/model.py", 3),
        ("/me/b.py", 4),
    ]

    assert place_of(stack, "/lib/torch") == Place("/me/model.py", 3)
    assert place_of([("/lib/torchvision/a.py", 5)], "/lib/torch") == Place(
        "/lib/torchvision/a.py", 5
    )
    assert (
        place_of([("/lib/torch/a.py", 1), (f"{CORE}/calls.py", 2), *stack], "/lib/torch") == UNKNOWN
    )
    assert (str(Place("/me/model.py", 3)), str(UNKNOWN)) == ("/me/model.py:3", "(source not known)")
