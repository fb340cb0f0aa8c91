"""Slips in derivatives by hand: swapped arguments, a transpose, a Hessian of one triangle."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from adjudge.check.options import Options
from adjudge.engine import ByHand
from adjudge.errors import AdjudgeError, Catching
from adjudge.findings import Disagreement, Slip, Status, Verdict
from adjudge.report import Report

LARGEST = 10_000
"""The most numbers of x with which a trial is made: a check of large arrays that fails would hold
more of them, and take longer. No verdict depends on it."""
TRIED = (11, 27)
"""A trial ends after so many evaluations, of first and of second order. One that passes takes
fewer, and another one would take as many as the check that failed. No verdict depends on them."""
SWAPPED = (Slip.VJP_SWAPPED, Slip.JVP_SWAPPED, Slip.HESSP_SWAPPED)


class _Enough(AdjudgeError):
    """A trial took more evaluations than one that passes, and ends."""


def with_slip(
    report: Report,
    f: Callable[..., Any],
    inputs: Any,
    check: Callable[[Callable[..., Any], Options], Report],
    options: Options,
) -> Report:
    """Returns the report of a function by hand that fails, with the slip that it has only to undo
    to pass: `check` is made once more for each that is possible.

    Without it swapped arguments look like a rule that is not linear, and the transpose of a square
    Jacobian like any other wrong numbers. With its arguments swapped a derivative takes a probe for
    x, which may lie out of bounds: that is tried where it is not linear alone, as swapped ones are.
    """
    if not isinstance(f, ByHand) or report.verdict is not Verdict.FAIL:
        return report
    if options.get("max_evaluations") is not None or "forward" not in f.given:
        return report
    several = inputs if isinstance(inputs, tuple | list) else (inputs,)
    if sum(prod(getattr(one, "shape", ())) for one in several) > LARGEST:
        return report
    nonlinear = any(finding.status is Status.NONLINEAR for finding in report.findings)
    details = [finding.detail for finding in report.findings]
    explained = any(isinstance(one, Disagreement) and one.mistake for one in details)
    # A rule of another dtype passes as a jvp, whose dtype is allowed to be another one.
    explained |= any(finding.status is Status.WRONG_DTYPE for finding in report.findings)
    swaps = nonlinear and options.get("bounds") is None
    # To the processes of an executor no trial can be sent.
    here: Options = {**options, "executor": None, "mode": "projected"}
    second = any(len(mode) > 1 for mode in report.modes)
    most = TRIED[second]
    evaluations, left = 0, 0

    def forward(*args: Any, **kwargs: Any) -> Any:
        nonlocal evaluations, left
        if not left:
            raise _Enough("a trial ends")
        evaluations, left = evaluations + 1, left - 1
        return f.given["forward"](*args, **kwargs)

    counts = Counter(report.counts)
    for slip, undone in _undone({**f.given, "forward": forward}):
        # a factor or a sign needs no trial that is possible with every vjp
        if (slip in SWAPPED and not swaps) or (slip is Slip.VJP_IS_JVP and explained):
            continue
        found, left = None, most
        # shapes may not fit, and a warning would be one about a call that the caller never makes
        with Catching(AdjudgeError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = check(undone, here)
        if found is not None:
            counts.update({name: found.counts[name] for name in ("vjps", "jvps")})
        if found:
            report = replace(report, slip=slip)
            break
    counts["evaluations"] += evaluations
    return replace(report, counts={name: counts[name] for name in report.counts})


def _undone(given: Mapping[str, Any]) -> Iterator[tuple[Slip, ByHand]]:
    """Yields each slip that is possible in what was given by hand, and that with it undone."""
    for name, slips in _SLIPS.items():
        function = given.get(name)
        if not callable(function) or isinstance(function, ByHand):
            continue
        for slip, undo in slips.items():
            yield slip, ByHand(**{**given, name: undo(function)})
    vjp = given.get("vjp")
    if callable(vjp) and not isinstance(vjp, ByHand) and not {"jvp", "double_vjp"} & {*given}:
        rest = {name: one for name, one in given.items() if name != "vjp"}
        yield Slip.VJP_IS_JVP, ByHand(**rest, jvp=vjp)


def _last_first(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: function(args[-1], *args[:-1], **kwargs)


def _second_first(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, p, *args, **kwargs: function(p, x, *args, **kwargs)


def _halves_swapped(function: Callable[..., Any]) -> Callable[..., Any]:
    def swapped(*args: Any, **kwargs: Any) -> Any:
        half = len(args) // 2
        return function(*args[half:], *args[:half], **kwargs)

    return swapped


def _transposed(function: Callable[..., Any]) -> Callable[..., Any]:
    def transposed(*args: Any, **kwargs: Any) -> Any:
        J = function(*args, **kwargs)
        return (J if hasattr(J, "T") else np.asarray(J)).T  # lists and TensorFlow have none

    return transposed


def _mirrored(kept: Callable[[Any], Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns what makes a Hessian of one triangle of it."""

    def undo(function: Callable[..., Any]) -> Callable[..., Any]:
        def mirrored(*args: Any, **kwargs: Any) -> Any:
            H = np.asarray(function(*args, **kwargs))
            return kept(H) + kept(H).T - np.diag(np.diag(H))

        return mirrored

    return undo


_SLIPS: dict[str, dict[Slip, Callable[[Callable[..., Any]], Callable[..., Any]]]] = {
    "vjp": {Slip.VJP_SWAPPED: _last_first},
    "jvp": {Slip.JVP_SWAPPED: _halves_swapped},
    "jac": {Slip.JAC_TRANSPOSED: _transposed},
    "hess": {Slip.HESS_UPPER: _mirrored(np.triu), Slip.HESS_LOWER: _mirrored(np.tril)},
    "hessp": {Slip.HESSP_SWAPPED: _second_first},
}
"""The derivatives by hand, and what may be the matter with each beside its numbers."""
