"""The gradient checkers under comparison, behind one signature."""

import enum
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Outcome:
    """A verdict, the checker's words and its time."""

    verdict: Verdict
    message: str
    seconds: float


Judge = Callable[[Case], tuple[Verdict, str]]


def torch_judge(*, fast_mode: bool) -> Judge:
    """`torch.autograd.gradcheck` with its own tolerances."""

    def judge(case: Case) -> tuple[Verdict, str]:
        try:
            torch.autograd.gradcheck(
                case.function, case.inputs, nondet_tol=case.nondet_tol, fast_mode=fast_mode
            )
        except GradcheckError as error:
            return Verdict.REJECTS, str(error)
        return Verdict.ACCEPTS, ""

    return judge


def adjudge_judge(*, fast_mode: bool | None, seed: int | None) -> Judge:
    """`adjudge.gradcheck` with its own tolerances."""
    import adjudge

    verdicts = {
        "PASS": Verdict.ACCEPTS,
        "FAIL": Verdict.REJECTS,
        "INCONCLUSIVE": Verdict.INCONCLUSIVE,
    }

    def judge(case: Case) -> tuple[Verdict, str]:
        report = adjudge.gradcheck(
            case.function,
            case.inputs,
            raise_exception=False,
            nondet_tol=case.nondet_tol,
            fast_mode=fast_mode,
            seed=seed,
        )
        verdict = verdicts[str(report.verdict.value)]
        return verdict, "" if verdict is Verdict.ACCEPTS else str(report)

    return judge


JUDGES: dict[str, Callable[[int | None], Judge]] = {
    "torch slow": lambda _seed: torch_judge(fast_mode=False),  # draws nothing
    "torch fast": lambda _seed: torch_judge(fast_mode=True),  # always has the same seed
    "adjudge": lambda seed: adjudge_judge(fast_mode=None, seed=seed),
    "adjudge full": lambda seed: adjudge_judge(fast_mode=False, seed=seed),
    "adjudge projected": lambda seed: adjudge_judge(fast_mode=True, seed=seed),
}
"""Judges by name, made for a seed; `None` is a fresh one for every check."""


def ask(judge: Judge, case: Case, seconds: float) -> Outcome:
    """The outcome of one check; whatever the checker raises is an outcome as well."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with deadline(seconds):
                verdict, message = judge(case)
        except OutOfTimeError:
            verdict, message = Verdict.CRASHES, f"stopped after {seconds:.0f} s"
        except Exception as error:
            verdict, message = Verdict.CRASHES, f"{type(error).__name__}: {error}"
    return Outcome(verdict, message, time.perf_counter() - start)


def warm_up(judge: Judge) -> None:
    """Pay for lazy imports before the first measured check."""
    x = torch.linspace(0.1, 1.0, 3, dtype=torch.float64, requires_grad=True)
    ask(judge, Case(torch.sin, (x,), 0.0), seconds=60.0)
