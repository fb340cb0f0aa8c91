"""A plugin of pytest that asks two judges in the test suite of another library: at each call of a
gradient checker the original answers, as before, and so does the door of adjudge in its place.

    cd LIBRARY && PYTHONPATH=…/benchmarks pytest -p swapped -k grad

The calls of `torch.autograd.gradcheck` and `gradgradcheck`, and of `jax.test_util.check_grads`,
`check_vjp` and `check_jvp`, are counted by what both say of them; tests see the original's answer.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import time
import types
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import adjudge

PEERS = {
    "torch.autograd.gradcheck": ("adjudge_torch", ("gradcheck", "gradgradcheck")),
    "jax.test_util": ("adjudge_jax", ("check_grads", "check_vjp", "check_jvp")),
}
"""The modules with checkers, and the adapters with doors of the same names."""
ANSWERS: Counter[tuple[str, str]] = Counter()
"""How many calls got which two answers."""
SECONDS = {"original": 0.0, "adjudge": 0.0}
"""The time of the processor, by judge."""
DIFFERENT: list[str] = []
"""The first line of what adjudge says where it does not pass what the original passes."""


def answer(judge: str, check: Callable[..., Any], *args: Any, **options: Any) -> tuple[str, Any]:
    """Returns what a checker says in a word, with what it returns or raises."""
    start = time.process_time()
    try:
        found = check(*args, **options)
        return "PASS" if found or found is None else "FAIL", found
    except adjudge.GradcheckError as error:
        return error.report.verdict.name, error
    except Exception as error:
        return "FAIL" if "GradcheckError" in type(error).__name__ else "raised", error
    finally:
        SECONDS[judge] += time.process_time() - start


def beside(original: Callable[..., Any], door: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the checker `original`, which asks `door` as well."""

    @functools.wraps(original)
    def check(*args: Any, **options: Any) -> Any:
        said, found = answer("original", original, *args, **options)
        if "raise_exception" in options:
            options["raise_exception"] = True
        ours, why = answer("adjudge", door, *args, **options)
        ANSWERS[said, ours] += 1
        if ours != said:
            test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
            DIFFERENT.append(f"{test}: {ours}: {str(why).partition(chr(10))[0]}")
        if isinstance(found, Exception):
            raise found
        return found

    return check


def pytest_configure(config: pytest.Config) -> None:
    """Puts both judges in place of the checkers of the engines that are installed."""
    for name, (adapter, checks) in PEERS.items():
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        # what the checker calls itself in its module stays the original
        module, doors = sys.modules[name], importlib.import_module(adapter)
        both = types.ModuleType(name)
        vars(both).update(vars(module))
        for check in checks:
            setattr(both, check, beside(getattr(module, check), getattr(doors, check)))
            if name.startswith("torch"):
                setattr(sys.modules["torch.autograd"], check, getattr(both, check))
        sys.modules[name] = both
        package, _, last = name.rpartition(".")
        if not name.startswith("torch"):
            setattr(sys.modules[package], last, both)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Prints the table, and what adjudge says of the calls about which the two differ."""
    terminalreporter.section("both judges")
    terminalreporter.line("| original | adjudge | calls |\n|---|---|---|")
    for (said, ours), count in ANSWERS.most_common():
        terminalreporter.line(f"| {said} | {ours} | {count} |")
    times = ", ".join(f"{judge} {seconds:.1f} s" for judge, seconds in SECONDS.items())
    terminalreporter.line(f"\ntime of the processor: {times}")
    for line in DIFFERENT:
        terminalreporter.line(line)
