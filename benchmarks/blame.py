"""Whether `adjudge.blame` and `adjudge.spotcheck` find what is wrong in programs, and their cost.

    python benchmarks/blame.py                    # PyTorch, every rule with every mistake
    python benchmarks/blame.py --engines jax      # 20 minutes: JAX compiles each operation
    python benchmarks/blame.py --mistakes "sign,second order" --match lstm
    python benchmarks/blame.py --engines jax --random  # one rule of each program, drawn at random
    python benchmarks/blame.py whole              # all rules right and the whole wrong
    python benchmarks/blame.py findings --engines torch,jax  # those of docs/findings.md, in models
    python benchmarks/blame.py cost               # of recording, of blame and of spot checks

A planted rule counts as named where it is at fault by its line, and no other rule is. Work is
counted in calls of the program; of the check it is evaluations, vjps and jvps.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import findings
import numpy as np
from harness import header, table

import adjudge
from adjudge.engine import backend_named

sys.path.append(str(Path(__file__).parents[1] / "tests"))
import hidden
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


def planted(
    engines: Sequence[str], mistakes: Sequence[str], match: str, seeds: int, drawn: bool
) -> None:
    """Prints a line for each engine and mistake, and what was not named."""
    rows, missed, random = [], [], np.random.default_rng(0)
    for engine in engines:
        for mistake in mistakes:
            chosen = {
                program: (random.choice(rules),) if drawn else rules
                for program, rules in programs.RULES.items()
            }
            cases = [
                (program, rule, seed)
                for program in programs.PROGRAMS
                for rule in (chosen[program] if mistake else ("",))
                for seed in range(seeds)
                if match in program.__name__
            ]
            found = []
            for program, rule, seed in cases:
                one = blamed(engine, program, rule, mistake, seed)
                found.append(one)
                print(engine, program.__name__, rule, mistake, *one, file=sys.stderr, flush=True)
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


# ---------------------------------------------------------------- all rules right, the whole wrong


def whole() -> None:
    """Prints for each kind of mistake between the rules what blame says, beside its right twin."""
    rows = []
    for kind in hidden.KINDS:
        for program in hidden.PROGRAMS:
            wrong, right = (hidden.blamed(kind, program, right=one) for one in (False, True))
            rows.append(
                [
                    kind, program, wrong.verdict, hidden.is_named(wrong), right.verdict,
                    len(right.at_fault), hidden.said(wrong),
                ]
            )  # fmt: skip
    named, accused = sum(row[3] for row in rows), sum(row[5] for row in rows)
    print(table(["kind", "program", "wrong", "named", "right", "accused", "as"], rows))
    print(f"{named} of {len(rows)} named, {accused} right ones accused")


# ---------------------------------------------------------------- wrong rules of engines, in models


def in_models(engines: Sequence[str], match: str) -> None:
    """Prints for each wrong derivative of docs/findings.md whether a model that has it is blamed
    for it: numbers are scaled before and after by steps of their own.
    """
    rows = []
    for one in findings.findings(*engines):
        x = findings.points(one)
        if match not in one.name or one.kind != "wrong" or one.twin is None:
            continue
        w, _, values = findings.automatic(one, x, *(findings.direction(k, x) for k in (2, 3)))
        truths = findings.exact(one.twin, x, *(findings.direction(k, x) for k in (2, 3)), w)
        off = {m: findings.deviation(v, truths[len(m) - 1]) for m, v in values.items()}
        modes = [mode for mode in off if off[mode] > findings.WRONG]
        if not modes:
            continue

        def model(*x: Any, f: Any = one.f) -> Any:
            made = f(*(1.0 * a for a in x))
            return tuple(0.5 * y for y in findings.several(made))

        arrays = [programs.engine(one.engine)[0].asarray(a) for a in x]
        try:
            report = adjudge.blame(model, tuple(arrays), modes=modes, seed=0)
            steps = [f.step for f in report.at_fault]
            steps += [report.steps[k] for k in (*report.kinks, *report.dead_ends)]
            lines = {step.place.line for step in steps} - {0}
            ours = {model.__code__.co_firstlineno + 2}  # where numbers are scaled
            told = ", ".join(dict.fromkeys(f.name for f in report.at_fault)) or report.headline
            found = [report.whole.verdict, bool(steps) and not lines <= ours, told[:70]]
        except Exception as error:  # it is a row of the table
            found = ["raised", False, f"{type(error).__name__}: {error}"[:70]]
        rows.append([one.name, one.at, " ".join(modes), *found])
        print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    failing = [row for row in rows if str(row[3]) == "FAIL"]
    print(table(["function", "at", "wrong modes", "the model", "named", "as"], rows))
    print(f"{sum(row[4] for row in failing)} named of {len(failing)} models that fail, {len(rows)}")


# ---------------------------------------------------------------- cost


def block(width: int) -> tuple[Any, Any]:
    """Returns a block of a GPT, and its input."""
    torch = importlib.import_module("torch")
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(
        width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
    )
    return layer.double(), torch.randn(2, 16, width, dtype=torch.float64)


def least(call: Callable[[], Any], times: int = 5) -> float:
    """Returns the least processor time of some calls, in seconds."""
    spent = []
    for _ in range(times):
        start = time.process_time()
        call()
        spent.append(time.process_time() - start)
    return min(spent)


def cost(steps: int) -> None:
    """Prints what recording costs in calls of the function, blame in checks, and a spot check of
    its share.
    """
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    subjects = [
        (one.__name__, program_of("torch", one), programs.inputs("torch", one, 0))
        for one in (programs.transformer, programs.ode)
    ]
    for width in (64, 288):
        layer, x = block(width)
        numbers = sum(p.numel() for p in layer.parameters())
        subjects.append((f"GPT block of {numbers:,} numbers", layer, (x,)))
    rows = []
    for name, f, x in subjects:
        marked, backend = tuple(one.requires_grad_() for one in x), backend_named("torch")
        call = least(lambda f=f, x=marked: f(*x), 10)
        traced = least(lambda f=f, x=x, b=backend: b.trace(lambda leaves: (f(*leaves),), x))
        check = least(lambda f=f, x=x: adjudge.examine(f, x, seed=0), 3)
        blame = least(lambda f=f, x=x: adjudge.blame(f, x, seed=0), 3)
        rows.append(
            [name, f"{1e3 * call:.2f}", f"{traced / call:.1f}", f"{check:.2f}",
             f"{blame:.2f}", f"{blame / check:.1f}"]
        )  # fmt: skip
    heads = ["function", "a call (ms)", "recording (calls)", "check (s)"]
    print(table([*heads, "blame with its check (s)", "blame (checks)"], rows))
    spotchecks(steps)


def training(rules: Any, steps: int) -> None:
    """Trains a perceptron of 100,000 numbers, whose rows are normalized by a rule."""
    torch = importlib.import_module("torch")
    torch.manual_seed(0)
    weights = [torch.randn(*shape) / 16 for shape in ((256, 256), (256, 128), (128, 10))]
    for one in weights:
        one.requires_grad_()
    optimizer = torch.optim.SGD(weights, 0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        x = torch.randn(256, 256)
        for one in weights:
            x = rules.silu(rules.normalize(x @ one))
        x.square().mean().backward()
        optimizer.step()


def spotchecks(steps: int) -> None:
    """Prints the processor time that a spot check took beside its own account of it."""
    rules, rows = programs.rules("torch"), []
    training(rules, 50)

    def spent(share: float) -> tuple[float, Any]:
        watch: Any = adjudge.spotcheck(share=share, seed=0) if share else contextlib.nullcontext()
        start = time.process_time()
        with watch:
            training(rules, steps)
        return time.process_time() - start, watch

    for share in (0.01, 0.05, 0.2):
        before, (watched, watch) = spent(0)[0], spent(share)
        plain = (before + spent(0)[0]) / 2  # before and after, since the machine is shared
        report = watch.report
        calls, judged = (sum(getattr(r, n) for r in report.rules) for n in ("calls", "judged"))
        rows.append(
            [f"{share:.0%}", f"{plain:.1f}", f"{1 - plain / watched:.0%}",
             f"{report.spent / report.seconds:.1%}", calls, judged, len(report.at_fault)]
        )  # fmt: skip
    heads = ["share", "without (s)", "part of the processor time", "by its own account", "calls"]
    print(table([*heads, "judged", "rules accused"], rows))


def main() -> None:
    """Runs what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "what", nargs="?", default="planted", choices=["planted", "whole", "findings", "cost"]
    )
    parser.add_argument("--steps", type=int, default=1500, help="of the loop that is watched")
    parser.add_argument("--engines", default="torch")
    parser.add_argument("--mistakes", default=",".join(("", *programs.MISTAKES, programs.SECOND)))
    parser.add_argument("--match", default="")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--random", action="store_true", help="one rule of each program")
    chosen = parser.parse_args()
    print(header("Blame", ["torch", "jax", "numpy"]))
    engines = chosen.engines.split(",")
    if "jax" in engines:
        importlib.import_module("jax").config.update("jax_enable_x64", True)
    if chosen.what == "whole":
        whole()
    elif chosen.what == "findings":
        in_models(engines, chosen.match)
    elif chosen.what == "cost":
        cost(chosen.steps)
    else:
        planted(engines, chosen.mistakes.split(","), chosen.match, chosen.seeds, chosen.random)


if __name__ == "__main__":
    main()
