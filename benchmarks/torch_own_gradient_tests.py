"""PyTorch's own gradient tests of its operators, with its checkers and with adjudge's doors."""

# ruff: noqa: PT027  the tests are PyTorch's, which are of unittest

import argparse
import sys
import time
import traceback
import unittest
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from isolation import OutOfTimeError, deadline, isolated
from tables import first_line, header, table
from torch.testing._internal.common_device_type import (
    OpDTypes,
    instantiate_device_type_tests,
    ops,
)
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestGradients
from torch.testing._internal.opinfo.core import OpInfo

NO_FORWARD_MODE = r"Trying to use forward AD with .* that does not support it"
NO_SECOND_ORDER = r"derivative for .* is not implemented"
Doors = tuple[Callable[..., bool], Callable[..., bool]]


@dataclass(frozen=True)
class Outcome:
    """How one test ended."""

    result: str
    message: str
    seconds: float


def test_classes(operators: Sequence[OpInfo]) -> list[type[unittest.TestCase]]:
    """PyTorch's TestBwdGradients and TestFwdGradients (test/test_ops_gradients.py) on the CPU.

    The installed package holds the helpers of these tests but not the tests; the names of classes
    and methods are PyTorch's, because its lists of skipped tests go by them.
    """
    gradcheck_ops = partial(
        ops, dtypes=OpDTypes.supported, allowed_dtypes=[torch.double, torch.cdouble]
    )

    class TestBwdGradients(TestGradients):
        @gradcheck_ops(operators)
        def test_fn_grad(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
            if dtype not in op.supported_backward_dtypes("cpu"):
                self.skipTest("Skipped! Dtype is not in supported backward dtypes!")
            self._grad_test_helper(device, dtype, op, op.get_op())

        @gradcheck_ops(operators)
        def test_inplace_grad(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
            self._skip_helper(op, device, dtype)
            if not op.inplace_variant:
                self.skipTest("Op has no inplace variant!")
            inplace = self._get_safe_inplace(op.get_inplace())
            if op.supports_inplace_autograd:
                self._grad_test_helper(device, dtype, op, inplace)
                return
            for sample in op.sample_inputs(device, dtype, requires_grad=True):
                if not sample.broadcasts_input:
                    with self.assertRaises(Exception):  # noqa: B017 any refusal will do
                        inplace(sample).sum().backward()

        @gradcheck_ops(operators)
        def test_fn_gradgrad(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
            self._skip_helper(op, device, dtype)
            if not op.supports_gradgrad:
                self.skipTest("Op claims it doesn't support gradgrad.")
            self._check_helper(device, dtype, op, op.get_op(), "bwgrad_bwgrad")

        @gradcheck_ops(operators)
        def test_fn_fail_gradgrad(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
            self._skip_helper(op, device, dtype)
            if op.supports_gradgrad:
                self.skipTest("Skipped! Operation does support gradgrad")
            with self.assertRaisesRegex(RuntimeError, NO_SECOND_ORDER):
                self._check_helper(device, dtype, op, op.get_op(), "bwgrad_bwgrad")

        @gradcheck_ops(operators)
        def test_inplace_gradgrad(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
            self._skip_helper(op, device, dtype)
            if not op.inplace_variant or not op.supports_inplace_autograd:
                self.skipTest("Skipped! Operation does not support inplace autograd.")
            inplace = self._get_safe_inplace(op.get_inplace())
            self._check_helper(device, dtype, op, inplace, "bwgrad_bwgrad")

    class TestFwdGradients(TestGradients):
        def _forward_grad_helper(
            self, device: str, dtype: torch.dtype, op: OpInfo, variant: Any, *, batched: bool
        ) -> None:
            check = partial(
                self._grad_test_helper,
                device,
                dtype,
                op,
                variant,
                check_forward_ad=True,
                check_backward_ad=False,
                check_batched_grad=False,
                check_batched_forward_grad=batched,
            )
            if op.supports_forward_ad:
                check()
            else:
                with self.assertRaisesRegex(NotImplementedError, NO_FORWARD_MODE):
                    check()

        @gradcheck_ops(operators)
        def test_fn_fwgrad_bwgrad(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
            self._skip_helper(op, device, dtype)
            check = partial(self._check_helper, device, dtype, op, op.get_op(), "fwgrad_bwgrad")
            if op.supports_fwgrad_bwgrad:
                check()
            else:
                with self.assertRaisesRegex(NotImplementedError, NO_FORWARD_MODE):
                    check()

        @gradcheck_ops(operators)
        def test_forward_mode_AD(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
            self._skip_helper(op, device, dtype)
            batched = op.check_batched_forward_grad
            self._forward_grad_helper(device, dtype, op, op.get_op(), batched=batched)

        @gradcheck_ops(operators)
        def test_inplace_forward_mode_AD(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
            self._skip_helper(op, device, dtype)
            if not op.inplace_variant or not op.supports_inplace_autograd:
                self.skipTest("Skipped! Operation does not support inplace autograd.")
            inplace = self._get_safe_inplace(op.get_inplace())
            batched = op.check_inplace_batched_forward_grad
            self._forward_grad_helper(device, dtype, op, inplace, batched=batched)

    scope: dict[str, Any] = {}
    for generic in (TestBwdGradients, TestFwdGradients):
        generic.__module__ = __name__
        scope[generic.__name__] = generic
        instantiate_device_type_tests(generic, scope, only_for="cpu")
    return [value for value in scope.values() if isinstance(value, type)]


class Recorder(unittest.TestResult):
    """The outcome of the one test that it is given."""

    def __init__(self) -> None:
        """No test was run yet, and a test that reports nothing has passed."""
        super().__init__()
        self.outcome = ("passes", "")

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        """An assertion or a checker said no."""
        self.outcome = ("fails", described(err))

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        """Anything else was raised; for PyTorch's tests that is where GradcheckError ends up."""
        self.outcome = ("fails", described(err))

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        """The test did not run."""
        self.outcome = ("skipped", reason)

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:
        """PyTorch lists the test as failing, and it failed."""
        self.outcome = ("fails as expected", described(err))

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        """PyTorch lists the test as failing, and it passed."""
        self.outcome = ("passes unexpectedly", "")


def described(err: Any) -> str:
    """The type and first line of an exception, and the line of code that raised it."""
    error = err[1]
    while type(error) is Exception and error.__cause__ is not None:
        error = error.__cause__  # PyTorch wraps it to name the sample
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{place.filename.rsplit('/', 1)[-1]}:{place.lineno}"
    said = first_line(error).replace("TestGradients._check_helper.<locals>.fn: ", "")
    return f"{type(error).__name__}: {said} ({where})"


@contextmanager
def checkers(doors: Doors) -> Iterator[None]:
    """Let `torch.autograd.gradcheck` and `gradgradcheck` be the given functions."""
    before = torch.autograd.gradcheck, torch.autograd.gradgradcheck
    torch.autograd.gradcheck, torch.autograd.gradgradcheck = doors
    try:
        yield
    finally:
        torch.autograd.gradcheck, torch.autograd.gradgradcheck = before


def outcomes(
    cls: type[unittest.TestCase], name: str, sides: dict[str, Doors], limit: float
) -> dict[str, Outcome]:
    """How one test ends with each pair of checkers; a fresh copy of the test for each."""
    ended = {}
    for side, doors in sides.items():
        test = cls(name)
        recorder = Recorder()
        start = time.perf_counter()
        try:
            with checkers(doors), warnings.catch_warnings(), deadline(limit):
                warnings.simplefilter("ignore")
                test.run(recorder)
        except OutOfTimeError:
            recorder.outcome = ("stopped", f"after {limit:.0f} s")
        ended[side] = Outcome(*recorder.outcome, time.perf_counter() - start)
    return ended


def run(
    classes: Iterable[type[unittest.TestCase]], asked: argparse.Namespace
) -> Iterator[tuple[str, dict[str, Outcome]]]:
    """The outcomes of all tests, each test in a process of its own."""
    sides = doors(asked.only_torch)
    for side in sides.values():
        warm_up(side)
    loader = unittest.TestLoader()
    names = [(cls, test) for cls in classes for test in loader.getTestCaseNames(cls)]
    names = [(cls, test) for cls, test in names if asked.tests in test]
    for number, (cls, test) in enumerate(names, start=1):
        seconds = len(sides) * asked.limit
        sides = dict(reversed(sides.items()))  # the first one pays for what torch loads lazily
        try:
            result = isolated(outcomes, cls, test, sides, asked.limit, seconds=seconds)
        except RuntimeError as error:
            result = dict.fromkeys(sides, Outcome("dies", first_line(error), 0.0))
        if number % 50 == 0:
            print(f"{number}/{len(names)}", file=sys.stderr, flush=True)
        yield test, result


def doors(only_torch: bool) -> dict[str, Doors]:
    """The pairs of checkers under comparison."""
    sides: dict[str, Doors] = {"torch": (torch.autograd.gradcheck, torch.autograd.gradgradcheck)}
    if not only_torch:
        import adjudge_torch

        sides["adjudge"] = (adjudge_torch.gradcheck, adjudge_torch.gradgradcheck)
    return sides


def warm_up(side: Doors) -> None:
    """Pay for lazy imports before the first measured check."""
    gradcheck, gradgradcheck = side
    x = torch.linspace(0.1, 1.0, 3, dtype=torch.float64, requires_grad=True)
    gradcheck(torch.sin, (x,), check_forward_ad=True, check_batched_grad=True, fast_mode=True)
    gradgradcheck(torch.sin, (x,), check_fwd_over_rev=True, fast_mode=True)


def report(ended: dict[str, dict[str, Outcome]], *, list_differences: bool) -> str:
    """The tables."""
    sides = sorted(next(iter(ended.values()), {}), reverse=True)
    ran = {
        test: by_side
        for test, by_side in ended.items()
        if any(outcome.result != "skipped" for outcome in by_side.values())
    }
    different = {test: o for test, o in ran.items() if len({x.result for x in o.values()}) > 1}
    parts = [header("PyTorch's own gradient tests", ["torch", "adjudge"])]
    rows = []
    for kind in [*sorted({kind_of(test) for test in ran}), "all"]:
        own = {test: o for test, o in ran.items() if kind in (kind_of(test), "all")}
        times = [f"{sum(o[side].seconds for o in own.values()):.1f}" for side in sides]
        rows.append((kind, len(own), len(own) - len(different.keys() & own.keys()), *times))
    columns = ["test", "run", "same result", *(f"s with {side}" for side in sides)]
    parts.append(table(columns, rows))
    results = [Counter(o[side].result for o in ran.values()) for side in sides]
    kinds = sorted({kind for counter in results for kind in counter})
    counts = [(side, *(c[k] for k in kinds)) for side, c in zip(sides, results, strict=True)]
    parts.append(table(["checker", *kinds], counts))
    if different:
        causes = Counter(cause_of(o[side]) for o in different.values() for side in sides)
        causes = Counter({cause: count for cause, count in causes.items() if cause})
        rows = causes.most_common()
        parts.append("### What the failing side says\n\n" + table(["message", "tests"], rows))
    if list_differences and different:
        lines = [
            (test, *(f"{o[side].result} {o[side].message}" for side in sides))
            for test, o in sorted(different.items())
        ]
        parts.append("### Different results\n\n" + table(["test", *sides], lines))
    return "\n".join(parts)


def cause_of(outcome: Outcome) -> str:
    """The beginning of a message, without names and numbers; empty where there is none."""
    return ": ".join(outcome.message.split(": ")[:2])


def kind_of(test: str) -> str:
    """The test method that a test was made from."""
    kinds = (
        "test_fn_gradgrad",
        "test_fn_fail_gradgrad",
        "test_fn_grad",
        "test_fn_fwgrad_bwgrad",
        "test_forward_mode_AD",
        "test_inplace_forward_mode_AD",
        "test_inplace_gradgrad",
        "test_inplace_grad",
    )
    return next(kind for kind in kinds if test.startswith(kind + "_"))


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=10, metavar="N", help="every N-th operator")
    parser.add_argument("--offset", type=int, default=0, metavar="K", help="from the K-th on")
    parser.add_argument("--tests", default="", metavar="TEXT", help="tests whose name contains it")
    parser.add_argument("--only-torch", action="store_true", help="PyTorch's checkers alone")
    parser.add_argument("--list-differences", action="store_true", help="one line for each")
    parser.add_argument("--limit", type=float, default=120.0, metavar="S", help="s for a test")
    return parser.parse_args()


def main() -> None:
    """Run and print."""
    asked = arguments()
    torch.set_num_threads(1)
    classes = test_classes(op_db[asked.offset :: asked.every])
    ended: dict[str, dict[str, Outcome]] = {}
    try:
        for test, by_side in run(classes, asked):
            ended[test] = by_side
    except KeyboardInterrupt:
        print(f"Interrupted after {len(ended)} tests.\n")
    print(report(ended, list_differences=asked.list_differences))


if __name__ == "__main__":
    main()
