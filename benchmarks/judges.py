"""The gradient checkers under comparison, behind one signature."""

import enum
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from isolation import OutOfTimeError, deadline
from operator_cases import Case
from torch.autograd.gradcheck import GradcheckError


class Verdict(enum.StrEnum):
    """What a checker did with a case."""

    ACCEPTS = "accepts"
    REJECTS = "rejects"
    INCONCLUSIVE = "inconclusive"
    CRASHES = "crashes"


class Answer(NamedTuple):
    """A verdict, the checker's words, and its evaluations of the function per direction."""

    verdict: Verdict
    message: str = ""
    per_direction: float = math.nan


@dataclass(frozen=True)
class Outcome:
    """An answer and its time: on the wall, and of the processor."""

    verdict: Verdict
    message: str
    seconds: float
    cpu: float
    per_direction: float = math.nan


Judge = Callable[[Any], Answer]

QUICK = 0.1
"""Checks that take less processor time than this are timed more than once."""


def torch_judge(*, fast_mode: bool) -> Judge:
    """`torch.autograd.gradcheck` with its own tolerances."""

    def judge(case: Case) -> Answer:
        try:
            torch.autograd.gradcheck(
                case.function, case.inputs, nondet_tol=case.nondet_tol, fast_mode=fast_mode
            )
        except GradcheckError as error:
            return Answer(Verdict.REJECTS, str(error))
        return Answer(Verdict.ACCEPTS)

    return judge


def adjudge_judge(*, fast_mode: bool | None, seed: int | None) -> Judge:
    """`adjudge.gradcheck` with its own tolerances."""
    import adjudge

    verdicts = {
        "PASS": Verdict.ACCEPTS,
        "FAIL": Verdict.REJECTS,
        "INCONCLUSIVE": Verdict.INCONCLUSIVE,
    }

    def judge(case: Case) -> Answer:
        report = adjudge.gradcheck(
            case.function,
            case.inputs,
            raise_exception=False,
            nondet_tol=case.nondet_tol,
            fast_mode=fast_mode,
            seed=seed,
        )
        verdict = verdicts[str(report.verdict.value)]
        message = "" if verdict is Verdict.ACCEPTS else str(report)
        per_direction = report.counts["evaluations"] / max(directions(report, case.inputs), 1)
        return Answer(verdict, message, per_direction)

    return judge


def directions(report: Any, inputs: Sequence[torch.Tensor]) -> int:
    """Along how many directions the check differenced the function.

    What the report counts; without that one per real coordinate in full mode and one per input
    that is not empty in projected mode.
    """
    counted = report.counts.get("tangents", report.counts.get("directions"))
    if counted is not None:
        return int(counted)
    if report.provenance.mode == "full":
        return sum(x.numel() * (2 if x.is_complex() else 1) for x in inputs)
    return sum(x.numel() > 0 for x in inputs)


JUDGES: dict[str, Callable[[int | None], Judge]] = {
    "torch slow": lambda _seed: torch_judge(fast_mode=False),  # draws nothing
    "torch fast": lambda _seed: torch_judge(fast_mode=True),  # always has the same seed
    "adjudge": lambda seed: adjudge_judge(fast_mode=None, seed=seed),
    "adjudge full": lambda seed: adjudge_judge(fast_mode=False, seed=seed),
    "adjudge projected": lambda seed: adjudge_judge(fast_mode=True, seed=seed),
}
"""Judges by name, made for a seed; `None` is a fresh one for every check."""


def ask(judge: Judge, case: Any, seconds: float) -> Outcome:
    """The outcome of one check; whatever the checker raises is an outcome as well."""
    start, start_cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with deadline(seconds):
                answer = judge(case)
        except OutOfTimeError:
            answer = Answer(Verdict.CRASHES, f"stopped after {seconds:.0f} s")
        except Exception as error:
            answer = Answer(Verdict.CRASHES, f"{type(error).__name__}: {error}")
    wall, cpu = time.perf_counter() - start, time.process_time() - start_cpu
    return Outcome(answer.verdict, answer.message, wall, cpu, answer.per_direction)


def ask_all(
    judges: Mapping[str, Judge], make: Callable[[], Any], seconds: float, repeats: int
) -> dict[str, Outcome]:
    """The outcome of every judge about the same case, made anew for each check.

    A quick judge is asked `repeats` times, in turn with the others, and its time is the least
    one: what is done on first use, and what else runs on the machine, is in none of them.
    """
    outcomes = {name: ask(judge, make(), seconds) for name, judge in judges.items()}
    for _ in range(repeats - 1):
        for name, judge in judges.items():
            first = outcomes[name]
            if first.cpu < QUICK:
                again = ask(judge, make(), seconds)
                outcomes[name] = replace(
                    first,
                    seconds=min(first.seconds, again.seconds),
                    cpu=min(first.cpu, again.cpu),
                )
    return outcomes


def warm_up(judge: Judge) -> None:
    """Pay for lazy imports before the first measured check."""
    x = torch.linspace(0.1, 1.0, 3, dtype=torch.float64, requires_grad=True)
    ask(judge, Case(torch.sin, (x,), 0.0), seconds=60.0)
