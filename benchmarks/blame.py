"""Programs with one wrong rule: whether `adjudge.blame` names it, and what that costs.

    python benchmarks/blame.py                    # PyTorch, every rule with every mistake
    python benchmarks/blame.py --engines jax      # 20 minutes: JAX compiles each operation
    python benchmarks/blame.py --mistakes "sign,second order" --match lstm

A planted rule counts as named where it is at fault by its line, and no other rule is. Work is
counted in calls of the program; of the check it is evaluations, vjps and jvps.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import header, table

import adjudge

sys.path.append(str(Path(__file__).parents[1] / "tests"))
import programs


def program_of(engine: str, program: Any, wrong: str = "", mistake: str = "") -> Any:
    """Returns a program as a function of its inputs."""
    rules = programs.rules(engine, wrong, mistake)

    def f(*x: Any) -> Any:
        return program(rules, *x)

    f.__qualname__ = program.__name__
    return f


def blamed(engine: str, program: Any, wrong: str, mistake: str, seed: int) -> list[Any]:
    """Returns what was found in one program: whether the rule was named, whether another was
    accused, whether it explains the failure, and the work of that and of the check.
    """
    modes = ["RR"] if mistake == programs.SECOND else None
    f = program_of(engine, program, wrong, mistake)
    report = adjudge.blame(f, programs.inputs(engine, program, seed), modes=modes, seed=seed)
    found = {one.step.rule_place.line for one in report.at_fault}
    line = programs.line_of(engine, wrong) if wrong else None
    check = sum(report.whole.counts[one] for one in ("evaluations", "vjps", "jvps"))
    return [
        line in found, bool(found - {line}), report.explained, len(report.steps), report.work,
        check, len(report.judged), report.distinct,
    ]  # fmt: skip


def planted(engines: Sequence[str], mistakes: Sequence[str], match: str, seeds: int) -> None:
    """Prints a line for each engine and mistake, and what was not named."""
    rows, missed = [], []
    for engine in engines:
        for mistake in ("", *mistakes):
            cases = [
                (program, rule, seed)
                for program in programs.PROGRAMS
                for rule in (programs.RULES[program] if mistake else ("",))
                for seed in range(seeds)
                if match in program.__name__
            ]
            found = []
            for program, rule, seed in cases:
                one = blamed(engine, program, rule, mistake, seed)
                found.append(one)
                if one[1] or (mistake and not one[0]):
                    missed.append((engine, program.__name__, rule, mistake, seed, *one[:3]))
            columns = list(zip(*found, strict=True))
            rows.append(
                [
                    engine, mistake or "(none)", len(found), sum(columns[0]), sum(columns[1]),
                    sum(one is True for one in columns[2]),
                    f"{min(columns[3])} to {max(columns[3])}",
                    *(round(statistics.median(columns[k])) for k in (4, 5)),
                ]
            )  # fmt: skip
    heads = ["engine", "mistake", "programs", "named", "right rules accused", "explained", "steps"]
    print(table([*heads, "work of blame (median)", "work of the check"], rows))
    for one in missed:
        print("not as planted:", *one)


def main() -> None:
    """Runs what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--engines", default="torch")
    parser.add_argument("--mistakes", default=",".join((*programs.MISTAKES, programs.SECOND)))
    parser.add_argument("--match", default="")
    parser.add_argument("--seeds", type=int, default=1)
    chosen = parser.parse_args()
    print(header("Blame", ["torch", "jax", "numpy"]))
    engines = chosen.engines.split(",")
    if "jax" in engines:
        importlib.import_module("jax").config.update("jax_enable_x64", True)
    planted(engines, chosen.mistakes.split(","), chosen.match, chosen.seeds)


if __name__ == "__main__":
    main()
