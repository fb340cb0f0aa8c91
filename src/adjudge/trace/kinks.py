"""Steps that stand at kinks of their own, and give a slope there that is not that of the whole.

At a kink a rule may give any slope between the two on its sides, and passes its own check. Where
the kinks of several steps cancel, as in `relu(x) - relu(-x)`, which is x, the slopes need not fit
together, and the whole is wrong though no rule is. That this is the cause shows beside x, where no
step stands at its kink: there the derivative of the whole is right. The rule is ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from adjudge.check import Options, at_one_point, points_beside_kink
from adjudge.constants import PAIRS_BESIDE_KINK, POINTS_BESIDE_KINK
from adjudge.engine import Array, Arrays
from adjudge.errors import AdjudgeError, Catching
from adjudge.findings import Status, Verdict
from adjudge.problem import Problem, observe
from adjudge.report import Report


def standing_at_kinks(reports: Mapping[int, Report]) -> list[int]:
    """Returns the steps that stand at a kink or a jump, by what the check of each one found."""
    return sorted(
        k
        for k, report in reports.items()
        if any(one.status is Status.NONSMOOTH for one in report.findings)
    )


def right_beside(
    problem: Problem,
    words: Sequence[str],
    options: Options,
    seed: int,
    budget: float = math.inf,
) -> tuple[bool, int]:
    """Returns whether the derivative of a function is right at two points beside x, one opposite to
    the other, and the work of asking that, in calls.

    Args:
        problem: The function at x.
        words: The compositions of modes in which it is wrong at x.
        options: Those of the check at each point.
        seed: Of the points.
        budget: The work that this may take, in calls. What it does not suffice for is not known to
            be right.
    """

    def function(*x: Array) -> Arrays:
        return problem.function(x)

    chosen: Any = {**options, "modes": list(words), "backend": problem.backend}
    chosen |= {"seed": seed, "thorough": False}
    right, work = 0, 0
    with Catching(AdjudgeError):
        there = points_beside_kink(observe(problem), seed)
        for number, (base, _) in enumerate(islice(there, PAIRS_BESIDE_KINK * POINTS_BESIDE_KINK)):
            if budget - work < 1:
                break
            if math.isfinite(budget):
                chosen["max_evaluations"] = int(budget - work)
            report = at_one_point(function, base.problem.point(), chosen)
            work += sum(report.counts[one] for one in ("evaluations", "vjps", "jvps"))
            if report.verdict is Verdict.FAIL:
                return False, work
            first = number % POINTS_BESIDE_KINK == 0
            right = (0 if first else right) + (report.verdict is Verdict.PASS)
            if right == POINTS_BESIDE_KINK:
                return True, work
    return False, work
