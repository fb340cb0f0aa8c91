"""What the code of others raises is told from mistakes in adjudge, which are never passed over."""

import pkgutil

import numpy as np
import pytest

from adjudge import (
    ByHand,
    InputError,
    UnstableOutputError,
    Verdict,
    crosscheck,
    examine,
    gradcheck,
)
from adjudge.errors import Catching, Source, attempt, running, source_of
from adjudge.strategies import judge


class Planted(Exception):
    """A mistake in adjudge."""


class Undefined(Exception):
    """What the user's function raises off its domain."""


def raises(error, source=None):
    def call(*args):
        if source is None:
            raise error
        with running(source):
            raise error

    return call


# ---------------------------------------------------------------- whose error it is


def test_the_innermost_code_that_was_running_has_raised_the_error():
    error = Undefined()

    outside, inside = running(Source.DERIVATIVE, "outside"), running(Source.FUNCTION, "inside")
    with pytest.raises(Undefined), outside, inside:
        raise error

    assert source_of(error) is Source.FUNCTION
    assert error.__notes__ == ["inside", "outside"]
    assert source_of(Undefined()) is Source.ADJUDGE


OTHERS = [source for source in Source if source is not Source.ADJUDGE]


@pytest.mark.parametrize("source", OTHERS)
def test_what_the_code_of_others_raises_is_caught(source):
    error = Undefined()

    with Catching() as caught:
        raises(error, source)()

    assert caught.error is error
    assert attempt(raises(error, source)) is None
    assert attempt(lambda: 3) == 3


COMES_THROUGH = {
    "a mistake in adjudge": (Planted(), None),
    "a mistake in adjudge that an engine called": (Planted(), Source.ADJUDGE),
    "an error of adjudge about the input": (InputError("found", "do this"), Source.FUNCTION),
    "an interrupt": (KeyboardInterrupt(), Source.FUNCTION),
}


@pytest.mark.parametrize("name", COMES_THROUGH)
def test_every_other_error_comes_through(name):
    error, source = COMES_THROUGH[name]

    with pytest.raises(type(error)):
        attempt(raises(error, source))
    with pytest.raises(type(error)), Catching() as caught:
        raises(error, source)()
    assert caught.error is None


def test_outputs_that_change_their_shape_are_caught():
    assert attempt(raises(UnstableOutputError("found"), Source.FUNCTION)) is None


def test_an_error_that_is_expected_is_caught_whoever_raises_it():
    error = InputError("found", "do this")

    with Catching(InputError) as caught:
        raise error

    assert caught.error is error
    assert attempt(raises(error), InputError) is None


# ---------------------------------------------------------------- wherever one may be passed over


def affine(factor=1.0):
    a = np.random.default_rng(1).normal(size=(4, 5))
    return ByHand(lambda x: a @ x, vjp=lambda x, w: factor * a.T @ w, jvp=lambda x, v: a @ v)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def slope(x):
    return sigmoid(x) * sigmoid(-x)


SIGMOID = ByHand(sigmoid, vjp=lambda x, w: w * slope(x))
RELU = ByHand(lambda x: np.maximum(x, 0.0), vjp=lambda x, w: w * (x > 0))
NARROW = ByHand(lambda x: (x * x).astype(x.dtype), vjp=lambda x, w: (2 * x * w).astype(x.dtype))
ONE_ENTRY = ByHand(np.sin, vjp=lambda x, w: w * np.cos(x) * (1 + 1e-3 * (np.arange(40) == 7)))
STEEP = ByHand(
    lambda x: np.sin(40 * x) * np.exp(-x * x),
    vjp=lambda x, w: w * np.exp(-x * x) * (40 * np.cos(40 * x) - 2 * x * np.sin(40 * x)),
    jvp=lambda x, v: v * np.exp(-x * x) * (40 * np.cos(40 * x) - 2 * x * np.sin(40 * x)),
)
POINT = np.random.default_rng(2).normal(size=5)
SINGLE = POINT.astype("float32")


def edge(x):
    """A tail that a derivative of zero hides in."""
    return ByHand(sigmoid, vjp=lambda x, w: 0 * w), np.array([x])


WRONG = ByHand(np.sin, vjp=lambda x, w: 1.5 * w * np.cos(x))
WRONG_ABS = ByHand(np.abs, vjp=lambda x, w: 2 * w * np.sign(x))
SQUARE = ByHand(lambda x: x * x, vjp=lambda x, w: 2 * x * w, jvp=lambda x, v: 2 * x * v)
STEP = np.array([0.0, 1.0])
LINE = np.linspace(0.1, 1.0, 40)
ENGINES = ["numpy", "array_api_strict"]


def two_points():
    return examine(SQUARE, POINT, seed=0, points=[2 * POINT])


PASSED_OVER = {
    "jacobian.affine.evaluate": lambda: examine(affine(), POINT, seed=0, modes=["R"]),
    "jacobian.affine.perturbed": lambda: examine(affine(1 + 1e-9), POINT, seed=0, modes=["R"]),
    "properties.sparsity.evaluate": lambda: examine(STEEP, POINT, seed=0, modes=["R"]),
    "jacobian.saturation.evaluate": lambda: examine(*edge(40.0), seed=0),
    "estimate.kinks.evaluate": lambda: examine(WRONG_ABS, POINT, seed=0, points=[STEP]),
    "check.one_problem.observe": lambda: gradcheck(RELU, STEP, seed=0),
    "jacobian.rounding.DerivativeAtPoints.extend": lambda: examine(NARROW, SINGLE),
    "check.double_precision.require_double": lambda: examine(NARROW, SINGLE),
    "check.double_precision.compare_low_precision": lambda: examine(NARROW, SINGLE),
    "check.mode_matrix.judge_here_or_nearby": lambda: examine(STEEP, POINT, modes=["R"]),
    "check.mode_matrix.judge_in_double": lambda: examine(NARROW, SINGLE),
    "cross.engine.observe": lambda: crosscheck(SQUARE, POINT, ENGINES, seed=0),
    "cross.engine.DerivativeAtPoints": lambda: crosscheck(SQUARE, POINT, ENGINES, seed=0),
    "strategies.examine": lambda: judge(SQUARE, POINT),
}
"""Places that go on where the function is not defined, each with a check that gets there."""


@pytest.mark.parametrize("error", [Planted("here"), IndexError("here")], ids=["own", "of Python"])
@pytest.mark.parametrize("place", PASSED_OVER)
def test_a_mistake_in_adjudge_comes_through(place, error, monkeypatch):
    def mistaken(*args, **kwargs):
        raise error

    monkeypatch.setattr(f"adjudge.{place}", mistaken)

    with pytest.raises(type(error), match="here"):
        PASSED_OVER[place]()


AFTERWARDS = {
    "estimate.directional.sample_at": (1, lambda: examine(WRONG, POINT, seed=0)),
    "jacobian.rounding.DerivativeAtPoints.extend": (1, lambda: examine(NARROW, SINGLE)),
    "jacobian.rounding.DerivativeAtPoints.take": (1, lambda: crosscheck(SQUARE, POINT, ENGINES)),
    "check.one_point.problem_of": (1, two_points),
}
"""The same, where what comes first is not passed over."""


@pytest.mark.parametrize("place", AFTERWARDS)
def test_a_mistake_that_comes_later_does_so_too(place, monkeypatch):
    calls, check = AFTERWARDS[place]
    name, _, attribute = f"adjudge.{place}".rpartition(".")
    owner = pkgutil.resolve_name(name)
    original, made = getattr(owner, attribute), []

    def mistaken(*args, **kwargs):
        made.append(args)
        if len(made) > calls:
            raise Planted("here")
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, attribute, mistaken)

    with pytest.raises(Planted, match="here"):
        check()


# ---------------------------------------------------------------- off the domain of the function


def within(rule, x, reach, raised):
    """`rule`, undefined where an entry is farther from x than `reach`; `raised` says how often."""

    def defined(method):
        def checked(y, *more):
            if np.any(np.abs(y - x) > reach):
                raised.append(y)
                raise Undefined("off the domain")
            return method(y, *more)

        return method and checked

    return ByHand(defined(rule), vjp=defined(rule.vjp), jvp=defined(rule.jvp))


DOMAINS = {
    "affine": (affine(), POINT, 0.1, Verdict.PASS),
    "affine, and wrong by less than shows so close to x": (
        affine(1 + 1e-9), POINT, 0.1, Verdict.PASS,
    ),
    "curved": (STEEP, POINT, 0.1, Verdict.PASS),
    "wrong": (WRONG, POINT, 1e-4, Verdict.FAIL),
    "wrong in one entry": (ONE_ENTRY, LINE, 1e-4, Verdict.FAIL),
    "in float32": (NARROW, SINGLE, 0.1, Verdict.PASS),
    "a kink": (RELU, STEP, 0.1, Verdict.PASS),
}  # fmt: skip


@pytest.mark.parametrize("name", DOMAINS)
def test_where_the_function_is_not_defined_is_evidence_of_nothing(name):
    rule, x, reach, verdict = DOMAINS[name]
    raised = []

    report = examine(within(rule, x, reach, raised), x, seed=0, modes=["R"])

    assert raised
    assert report.verdict is verdict, str(report)


def test_an_engine_on_which_the_function_raises_is_reported_beside_the_others():
    f = dict.fromkeys(ENGINES, SQUARE)
    f["array_api_strict"] = ByHand(raises(Undefined("not here")), vjp=SQUARE.vjp)

    report = crosscheck(f, POINT, ENGINES, seed=0, raise_exception=False)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert "not here" in str(report)
