"""`scipy.optimize.check_grad`, answered by adjudge. It imports no SciPy."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import adjudge
from adjudge.check import checked_signature, problem_of
from adjudge.errors import InputError, described
from adjudge.estimate import Differences, at_fixed_step
from adjudge.problem import Tangent, observe

__all__ = ["check_grad"]


@checked_signature
def check_grad(
    func: Callable[..., Any],
    grad: Callable[..., Any],
    x0: Any,
    *args: Any,
    epsilon: float | None = None,
    direction: str = "all",
    rng: Any = None,
    seed: Any = None,
) -> float:
    """Answers like `scipy.optimize.check_grad`, with its signature: how far `grad` is off.

    The number is the 2-norm of the difference between `grad(x0, *args)` and central differences of
    `func`, whose steps follow the scale of each input. It is returned for a wrong gradient as well,
    and `adjudge.gradcheck(adjudge.ByHand(func, grad=grad), x0)` raises for one. What is wrong is
    told by a warning. Differences on purpose: docs/parity.md.

    Args:
        func: Called as `func(x, *args)`. It returns a number, or an array of any shape.
        grad: The gradient or the Jacobian, called like `func`. A Jacobian may be sparse.
        x0: The point, a number or a vector; numbers become float64.
        args: Further arguments of both functions.
        epsilon: The step of all differences. By default (`None`) it is chosen.
        direction: "all" takes a difference along every input, and "random" along one random vector.
        rng: A `numpy.random.Generator`, or what `numpy.random.default_rng` takes.
        seed: The former name of `rng`, under which an integer seeds a `numpy.random.RandomState`.
            By either name the random direction is that of SciPy.

    Raises:
        ValueError: A point of more than one axis; a direction of another name, or a random one of a
            function of several outputs; a `grad` of another shape than the derivative has, or none.
    """
    __tracebackhide__ = True
    if direction not in ("all", "random"):
        raise InputError(
            f"direction={direction!r} is not a valid string", 'give direction="all" or "random"'
        )
    generator = _generator(rng, seed)
    try:
        x = np.atleast_1d(np.asarray(x0).astype(np.float64, casting="same_kind"))
    except (TypeError, ValueError) as error:
        raise InputError(f"x0= is {described(x0)}", "give real numbers, or an array") from error
    if x.ndim > 1:
        raise InputError(
            f"x0= has shape {x.shape}, and must have at most 1 dimension",
            "give a vector; adjudge.gradcheck(adjudge.ByHand(func, grad=grad), x0) takes any shape",
        )
    several = np.size(func(x.copy(), *args)) > 1
    if several and direction == "random":
        raise InputError(
            "direction='random' can only be used with a scalar valued func",
            'give direction="all" for the Jacobian',
        )
    name = "jac" if several else "grad"
    f, derivative = _Bound(func, args), _Bound(grad, args)
    rule = adjudge.ByHand(f, **{name: derivative})
    # of a copy: the random direction, and what the caller draws next, are those of SciPy
    own = int.from_bytes(copy.deepcopy(generator).bytes(4), "little")
    report = adjudge.examine(rule, x, eps=epsilon, seed=own)
    if not report:
        warnings.warn(
            f"{report.headline}\n  the whole report, in an exception: "
            f"adjudge.gradcheck(adjudge.ByHand(func, {name}=grad), x0)",
            stacklevel=3,
        )
    found = derivative(x.copy())
    at_x = adjudge.ByHand(f, **{name: lambda x: found})
    return _distance(at_x, x, epsilon, generator if direction == "random" else None)


def _generator(rng: Any, seed: Any) -> np.random.Generator | np.random.RandomState:
    """Returns what draws the random direction: as SciPy has it, an integer is the seed of a
    `Generator` where it is `rng`, and of the former `RandomState` where it is `seed`.
    """
    if rng is not None and seed is not None:
        raise TypeError("check_grad() got multiple values for argument now known as `rng`")
    if seed is None or isinstance(seed, np.random.Generator):
        return np.random.default_rng(rng if seed is None else seed)
    return seed if isinstance(seed, np.random.RandomState) else np.random.RandomState(seed)


class _Bound:
    """A function with its further arguments, under its own name."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.__wrapped__, self.args = function, args
        self.__name__ = getattr(function, "__name__", type(function).__name__)

    def __call__(self, x: Any) -> Any:
        return self.__wrapped__(x, *self.args)


def _distance(
    rule: adjudge.ByHand,
    x: Any,
    epsilon: float | None,
    generator: np.random.Generator | np.random.RandomState | None,
) -> float:
    """Returns the 2-norm of what the derivatives by the rule and by differences differ by, along
    every input, or along a random vector.
    """
    assert rule.jvp is not None  # it is made of grad= or jac=
    problem = problem_of(rule, x, {})
    base = observe(problem)
    rule(x.copy())  # its value has the shape that a Jacobian does not tell
    lengths = problem.length_scales
    if generator is None:
        tangents = [Tangent((0,), row, lengths[k], k) for k, row in enumerate(np.eye(x.size))]
    else:
        v = generator.standard_normal(x.size)
        tangents = [Tangent((0,), v, float(np.max(lengths) / np.max(np.abs(v))))]
    errors = []
    for tangent in tangents:
        if epsilon is None:
            column = Differences(problem, base).along(tangent)
        else:
            column = at_fixed_step(problem, base, tangent, epsilon)
        taken = column.vector.reshape(x.shape)  # the tangent, as the rounding of x allows it
        errors.append(np.ravel(rule.jvp(x, taken)) - column.estimate.value)
    return float(np.linalg.norm(errors))
