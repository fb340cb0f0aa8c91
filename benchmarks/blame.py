"""Programs with one wrong rule: whether `adjudge.blame` names it, and what that costs.

    python benchmarks/blame.py                    # PyTorch, every rule with every mistake
    python benchmarks/blame.py --engines jax      # 20 minutes: JAX compiles each operation
    python benchmarks/blame.py --cost             # what recording and blaming cost
    python benchmarks/blame.py --spotcheck        # what a spot check costs, and finds
    python benchmarks/blame.py --mistakes "sign,second order" --match lstm

A planted rule counts as named where it is at fault by its line, and no other rule is. Work is
counted in calls of the program; of the check it is evaluations, vjps and jvps.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import blame_programs as programs
from harness import header, table

import adjudge
from adjudge.engine import backend_named


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


# ---------------------------------------------------------------- cost


def block(width: int) -> tuple[Any, Any]:
    """Returns a block of a GPT with its input: twelve times the square of the width in numbers."""
    torch = importlib.import_module("torch")
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(
        width, 4, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )
    return layer.double(), torch.randn(2, 16, width, dtype=torch.float64)


def least(call: Callable[[], Any], times: int = 5) -> float:
    """Returns the least time of some calls, in seconds."""
    call()
    spent = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        spent.append(time.perf_counter() - start)
    return min(spent)


def cost() -> None:
    """Prints what recording costs in calls of the function, and blame in checks."""
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
        marked = tuple(one.requires_grad_() for one in x)
        call = least(lambda f=f, x=marked: f(*x))
        backend = backend_named("torch")
        traced = least(lambda f=f, x=x, b=backend: b.trace(lambda leaves: (f(*leaves),), x))
        start = time.perf_counter()
        adjudge.examine(f, x, seed=0)
        check = time.perf_counter() - start
        start = time.perf_counter()
        report = adjudge.blame(f, x, seed=0)
        blame = time.perf_counter() - start
        rows.append(
            [name, len(report.steps), f"{1e3 * call:.2f}", f"{traced / call:.1f}", f"{check:.2f}",
             f"{blame:.2f}", f"{blame / check:.1f}"]
        )  # fmt: skip
    heads = ["function", "steps", "a call (ms)", "recording (calls)", "check (s)"]
    print(table([*heads, "blame with its check (s)", "blame (checks)"], rows))


# ---------------------------------------------------------------- a program that is running


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


def spotchecks(steps: int = 4000) -> None:
    """Prints the processor time that a spot check took beside its own account of it."""
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    rules, rows = programs.rules("torch"), []
    training(rules, 50)

    def spent(share: float) -> tuple[float, Any]:
        watch: Any = adjudge.spotcheck(share=share, seed=0) if share else contextlib.nullcontext()
        start = time.process_time()
        with watch:
            training(rules, steps)
        return time.process_time() - start, watch

    for share in (0.01, 0.05, 0.2):
        plain, (watched, watch) = spent(0)[0], spent(share)
        plain = (plain + spent(0)[0]) / 2  # before and after, since the machine is shared
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
    parser.add_argument("--engines", default="torch")
    parser.add_argument("--mistakes", default=",".join((*programs.MISTAKES, programs.SECOND)))
    parser.add_argument("--match", default="")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--spotcheck", action="store_true")
    chosen = parser.parse_args()
    print(header("Blame", ["torch", "jax", "numpy"]))
    if chosen.cost:
        cost()
        return
    if chosen.spotcheck:
        spotchecks()
        return
    engines = chosen.engines.split(",")
    if "jax" in engines:
        importlib.import_module("jax").config.update("jax_enable_x64", True)
    planted(engines, chosen.mistakes.split(","), chosen.match, chosen.seeds)


if __name__ == "__main__":
    main()
