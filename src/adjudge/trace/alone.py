"""One step of a program, judged alone at the values that it saw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from adjudge.check import Options, at_one_point
from adjudge.engine import Arrays, AutodiffBackend, MaybeArrays, Ref, Step
from adjudge.errors import AdjudgeError, Catching, Source, running
from adjudge.report import Report


def moving(backend: AutodiffBackend, step: Step, operands: Arrays) -> list[int]:
    """Returns the operands of a step that have derivatives and depend on the inputs."""
    references = [k for k, operand in enumerate(step.operands) if isinstance(operand, Ref)]
    return [k for k in references if backend.arrays.is_differentiable(operands[k])]


def results_of(backend: AutodiffBackend, step: Step, operands: Arrays) -> Arrays:
    """Returns those results of a step for other operands that have derivatives."""
    return tuple([y for y in step.run(operands) if backend.arrays.is_differentiable(y)])


def judged_alone(
    backend: AutodiffBackend,
    step: Step,
    results: Arrays,
    wrt: Sequence[int],
    options: Options,
    cotangents: MaybeArrays = (),
) -> Report | str:
    """Returns the report on a step, all of whose operands are values, or why it cannot be judged.

    Args:
        backend: The engine of the step.
        step: What is judged.
        results: Its results, as they were recorded.
        wrt: The operands with respect to which it is differentiated.
        options: Those of the check.
        cotangents: Where any are given, it is judged for these, and not for those of the check.
    """
    with Catching() as raised, running(Source.FUNCTION):
        again = step.run(step.operands)
    if raised.error is not None:
        return f"raises when it is run again: {raised.error!r}"
    if not _same(backend, again, results):
        return "gives another value when it is run again"
    with Catching(AdjudgeError) as raised:
        chosen: Options = {**options, "wrt": list(wrt), "backend": backend}
        function = function_of(backend, step)
        if cotangents:
            function = _for_cotangents(backend, step, cotangents)
        return at_one_point(function, step.operands, chosen)
    return f"cannot be judged: {raised.error}"


def function_of(backend: AutodiffBackend, step: Step) -> Callable[..., Any]:
    """Returns a step as a function of its operands, as users write one."""

    def function(*operands: Any) -> Any:
        results = results_of(backend, step, operands)
        return results[0] if len(results) == 1 else results

    function.__qualname__ = function.__name__ = step.name
    return function


def _for_cotangents(
    backend: AutodiffBackend, step: Step, cotangents: MaybeArrays
) -> Callable[..., Any]:
    """Returns the inner product of the results of a step with cotangents, as a function of the
    operands: its gradient is what the rule makes of them.
    """

    def function(*operands: Any) -> Any:
        pairs = zip(cotangents, step.run(operands), strict=True)
        return sum(backend.xp.sum(w * y) for w, y in pairs if w is not None)

    function.__qualname__ = function.__name__ = step.name
    return function


def _same(backend: AutodiffBackend, one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Returns whether two results of a step are equal up to the order of additions."""
    arrays = backend.arrays
    for a, b in zip(one, other, strict=True):
        if not arrays.is_differentiable(b):
            continue
        a_host, b_host = arrays.to_host(a), arrays.to_host(b)
        size = float(abs(b_host).max(initial=0.0))
        allowed = SAME_UNITS * backend.effective_eps(b) * size
        if a_host.shape != b_host.shape or (abs(a_host - b_host) > allowed).any():
            return False
    return True


SAME_UNITS = 64
"""A step that is run again may add in another order. Its results may differ by so many units of
rounding of the largest one. The value is ours."""
