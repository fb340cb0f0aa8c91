"""What a function did as a straight-line program, without an engine that records one."""

import inspect
import weakref
from functools import partial

import numpy as np
import pytest

from adjudge import ByHand, NotSupportedError
from adjudge.engine import (
    INPUT,
    UNKNOWN,
    Evaluation,
    Place,
    PlainBackend,
    Ref,
    Step,
    Trace,
    place_of,
)
from adjudge.engine.trace import CORE
from adjudge.limits import limited
from adjudge.problem import first_order, read_arguments


def sine(x):
    return np.sin(x)


def backward(x, w):
    return w * np.cos(x)


def two_steps():
    """`x * 2 + 1`."""
    x = (np.array([1.0, 2.0]),)
    doubled = Step("double", lambda o: (o[0] * 2,), (Ref(INPUT, 0),), 1)
    added = Step("add", lambda o: (o[0] + o[1],), (Ref(0, 0), np.ones(2)), 1)
    return recorded(x, [doubled, added], [(x[0] * 2,), (x[0] * 2 + 1,)], (Ref(1, 0), np.zeros(1)))


def recorded(x, steps, values, outputs):
    """A program whose steps gave these values at `x`."""
    evaluation = Evaluation(x, steps)
    for k, results in enumerate(values):
        evaluation.add(k, results)
    return Trace(steps, evaluation, outputs)


def test_a_program_is_run_again_at_another_point():
    program = two_steps()
    x = (np.array([10.0, 20.0]),)

    again = program.replay(x)

    assert [again.results(k)[0].tolist() for k in range(2)] == [[20.0, 40.0], [21.0, 41.0]]
    outputs = again.values(program.outputs)
    assert [output.tolist() for output in outputs] == [[21.0, 41.0], [0.0]]


def test_the_operands_of_a_step_are_those_that_were_recorded():
    operands = two_steps().recorded.operands(1)

    assert [one.tolist() for one in operands] == [[2.0, 4.0], [1.0, 1.0]]


def test_a_step_that_cannot_be_run_again_keeps_its_recorded_results():
    x = (np.array([1.0]),)
    step = Step("extension", lambda o: o, (), 1, opaque="is an extension")
    results = (np.array([7.0]),)

    again = recorded(x, [step], [results], ()).replay((np.array([2.0]),))

    assert again.results(0) == results


class Counting:
    """A program of additions whose steps count how often they ran."""

    def __init__(self, length, opaque=(), skip=None):
        """Each step adds its number to the step before it, the last one also step `skip`."""
        self.ran = [0] * length
        self.steps = []
        for k in range(length):
            operands = [Ref(k - 1, 0) if k else Ref(INPUT, 0)]
            if skip is not None and k == length - 1:
                operands.append(Ref(skip, 0))
            why = "is an extension" if k in opaque else ""
            step = Step("add", partial(self.run, k), tuple(operands), 1, opaque=why)
            self.steps.append(step)
        self.x = (np.zeros(4),)
        recorder = Evaluation(self.x, self.steps)
        values = []
        for k, step in enumerate(self.steps):
            values.append(
                self.run(
                    k, tuple((self.x if r.step < 0 else values[r.step])[0] for r in step.operands)
                )
            )
            recorder.add(k, values[k])
        self.trace = Trace(self.steps, recorder, (Ref(length - 1, 0),))
        self.values = [one[0][0] for one in values]
        self.ran = [0] * length

    def run(self, k, operands):
        self.ran[k] += 1
        return (sum(operands) + k,)


@pytest.mark.parametrize("backwards", [False, True])
def test_values_beyond_the_budget_are_computed_again_about_once(backwards):
    with limited(recorded_numbers=4 * 10):
        counting = Counting(100)
        order = range(99, -1, -1) if backwards else range(100)

        found = [counting.trace.recorded.results(k)[0][0] for k in order]

    assert found == [counting.values[k] for k in order]
    assert max(counting.ran) <= 3
    assert sum(counting.ran) <= 150


def test_values_within_the_budget_are_kept():
    counting = Counting(100)

    found = [counting.trace.recorded.results(k)[0][0] for k in range(100)]

    assert found == counting.values
    assert counting.ran == [0] * 100


def test_an_evaluation_holds_little_more_than_its_budget():
    with limited(recorded_numbers=4 * 40):
        counting = Counting(1000)
        gone = [weakref.ref(counting.trace.recorded.results(k)[0]) for k in range(1000)]
        again = counting.trace.replay((np.ones(4),))
        held = [weakref.ref(again.results(k)[0]) for k in range(1000)]

    assert sum(one() is not None for one in gone) <= 100
    assert sum(one() is not None for one in held) <= 100


def test_what_a_late_step_takes_from_an_early_one_is_computed_again():
    with limited(recorded_numbers=4 * 5):
        counting = Counting(64, skip=3)

        again = counting.trace.replay((np.ones(4),))

    assert again.values(counting.trace.outputs)[0][0] == counting.values[63] + 2
    assert again.operands(63)[1][0] == counting.values[3] + 1


def test_the_results_of_a_step_that_cannot_be_run_again_are_kept_beyond_the_budget():
    with limited(recorded_numbers=4 * 5):
        counting = Counting(64, opaque={7, 21})

        found = [counting.trace.recorded.results(k)[0][0] for k in range(64)]

    assert found == counting.values
    assert counting.ran[7] == counting.ran[21] == 0


def test_a_part_that_is_taken_back_is_forgotten():
    counting = Counting(8)
    counting.trace.recorded.cut(4)

    assert [counting.trace.recorded.results(k)[0][0] for k in range(8)] == counting.values
    assert counting.ran == [0, 0, 0, 0, 1, 1, 1, 1]


def test_a_rule_by_hand_is_one_step_with_the_line_of_its_derivative():
    problem = first_order(ByHand(sine, vjp=backward), read_arguments((np.array([0.5, 1.0]),)))

    program = problem.backend.trace(problem.function, problem.point())

    (step,) = program.steps
    assert (step.name, step.custom, step.rule) == ("ByHand(sine)", True, "vjp=backward")
    assert step.rule_place == Place(__file__, inspect.getsourcelines(backward)[1])
    assert np.array_equal(program.recorded.results(0)[0], np.sin([0.5, 1.0]))
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
