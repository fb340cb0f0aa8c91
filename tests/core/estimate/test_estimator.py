"""Estimators: more effort makes a better estimate, and a reference answers whatever the effort."""

from dataclasses import replace

import numpy as np
import pytest

from adjudge import ByHand, NotSupportedError, Verdict, examine, reference
from adjudge.check.options import problem_of
from adjudge.estimate import ByReference, Differences, Effort, at_fixed_step, bind
from adjudge.problem import Tangent, observe

X = np.array([0.5, 1.25, 2.0])


def f(x):
    return np.sin(3 * x) * x


def slope(x):
    return 3 * np.cos(3 * x) * x + np.sin(3 * x)


HAND = ByHand(f, vjp=lambda x, w: w * slope(x))


def differences():
    problem = problem_of(HAND, X, {})
    return Differences(problem, observe(problem))


def unit(k):
    vector = np.zeros(X.size)
    vector[k] = 1.0
    return Tangent((0,), vector, float(X[k]), k)


PLAIN = (
    Effort.TWO_EVALUATIONS,
    Effort.SILENT_KINKS,
    Effort.DEFECTS,
    Effort.LASTING_DEFECTS,
)
"""The efforts that leave the value of two evaluations as it is."""


@pytest.mark.parametrize("k", range(3))
@pytest.mark.parametrize("effort", list(Effort))
def test_every_effort_estimates_the_derivative_and_its_own_error(effort, k):
    found = differences().along(unit(k), effort).estimate

    off = np.abs(found.value - np.where(np.arange(3) == k, slope(X), 0.0))
    # The bar of two evaluations is their rounding alone; what makes it doubtful takes a ladder.
    truncation = 1e-8 if effort in PLAIN else 0.0
    assert np.all(off <= found.error + truncation)
    assert found.error[k] < 1e-4 * abs(slope(X)[k])


@pytest.mark.parametrize("effort", [e for e in Effort if e is not Effort.TWO_EVALUATIONS])
def test_an_effort_makes_first_what_it_builds_on(effort):
    alone, stepwise = differences(), differences()
    found = stepwise.along(unit(0))
    if effort not in (
        Effort.LONGER_STEP,
        Effort.THREE_STEPS,
        Effort.LADDER,
        Effort.LONG_STEPS,
        Effort.SILENT_KINKS,
        Effort.DEFECTS,
        Effort.LASTING_DEFECTS,
    ):
        found = stepwise.along(unit(0), Effort.LADDER, found)
    if effort is Effort.MEASURED_NOISE:
        found = stepwise.along(unit(0), Effort.SECOND_LADDER, found)
    found = stepwise.along(unit(0), effort, found)

    assert np.array_equal(alone.along(unit(0), effort).estimate.value, found.estimate.value)
    spent = alone.problem.counts.evaluations, stepwise.problem.counts.evaluations
    assert spent[0] == spent[1]


def test_a_ladder_is_more_precise_than_two_evaluations_of_a_fixed_step():
    free = differences()
    coarse = at_fixed_step(free.problem, free.base, unit(1), 1e-2)
    fine = free.along(unit(1), Effort.LADDER)

    assert 1e-2 == coarse.step
    assert abs(coarse.estimate.value[1] - slope(X)[1]) > 1e-5
    assert abs(fine.estimate.value[1] - slope(X)[1]) < 1e-9


def test_an_estimator_at_another_point_estimates_there():
    there = X + 0.25

    found = differences().at(there).along(unit(2), Effort.LADDER).estimate

    assert found.value[2] == pytest.approx(slope(there)[2], rel=1e-8)


def by_reference(make, problem=None):
    problem = problem or problem_of(HAND, X, {})
    return ByReference(problem, observe(problem), reference=bind(make, problem))


ANALYTIC = reference.derivative(jvp=lambda x, v: slope(x) * v)


@pytest.mark.parametrize("effort", list(Effort))
def test_a_reference_answers_whatever_the_effort_without_an_evaluation(effort):
    estimator = by_reference(ANALYTIC)
    spent = estimator.problem.counts.evaluations

    found = estimator.along(unit(1), effort)

    assert found.from_reference
    assert found.estimate.value[1] == pytest.approx(slope(X)[1], rel=1e-14)
    assert found is estimator.along(unit(1), effort, found)
    assert spent == estimator.problem.counts.evaluations


def test_a_reference_without_second_derivatives_leaves_the_second_order_unsupported():
    both = ByHand(f, vjp=HAND.vjp, jvp=lambda x, v: slope(x) * v)

    report = examine(both, X, order=1, reference=ANALYTIC)
    assert report.verdict is Verdict.PASS
    problem = problem_of(both, X, {})
    with pytest.raises(NotSupportedError, match="no derivative of order 2"):
        bind(ANALYTIC, replace(problem, modes_taken="R"))


def test_a_reference_judges_the_function_at_every_point_of_one_check():
    # The reference belongs to the options of a check, and not to the function at x.
    wrong = ByHand(np.abs, vjp=lambda x, w: w * 2 * np.sign(x))
    right = ByHand(np.abs, vjp=lambda x, w: w * np.sign(x))
    given = reference.derivative(jvp=lambda x, v: np.sign(x) * v)

    assert examine(right, X, reference=given, points=[-X]).verdict is Verdict.PASS
    assert examine(wrong, X, reference=given, points=[-X]).verdict is Verdict.FAIL
