"""Every differentiable operator of PyTorch, right and with planted errors, through the checkers."""

import argparse
import json
import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from isolation import isolated
from judges import JUDGES, Judge, Verdict, ask, warm_up
from operator_cases import UnusableError, case, name, planted, spot
from tables import first_line, header, table
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo

REFERENCE = "torch slow"
SLOWEST = "adjudge full"
"""Gets planted errors only if it is asked for by name, so that all takes below 25 minutes."""
LARGE = 0.1
"""Planted errors from this size on are listed one by one where they are missed."""


@dataclass(frozen=True)
class Row:
    """One check: who judged what; `delta` is 0 for the operator as it is."""

    pair: str
    judge: str
    delta: float
    verdict: str
    seconds: float
    message: str
    excused: bool


@dataclass(frozen=True)
class Options:
    """What is asked of every pair of operator and dtype."""

    judges: Sequence[str]
    planted_judges: Sequence[str]
    deltas: Sequence[float]
    limit: float
    patience: float
    seed: int | None


@dataclass(frozen=True)
class Result:
    """The checks of one pair, and why it or its planted errors were left out."""

    rows: list[Row]
    skipped: str = ""
    unplanted: str = ""


def label(operator: OpInfo, dtype: torch.dtype) -> str:
    """The name of a pair."""
    return f"{name(operator)} {str(dtype).removeprefix('torch.')}"


def examine(index: int, dtype: torch.dtype, options: Options, judges: dict[str, Judge]) -> Result:
    """All checks of one pair; every check gets inputs of its own."""
    operator = op_db[index]
    pair = label(operator, dtype)
    try:
        right = case(operator, dtype)
    except UnusableError as error:
        return Result([], skipped=str(error))
    except Exception as error:
        return Result([], skipped=f"the sample raises {type(error).__name__}")
    excused = is_excused(operator, dtype)

    def check(judge: str, delta: float) -> Row:
        fresh = case(operator, dtype)
        asked = planted(fresh, place, delta) if delta else fresh
        outcome = ask(judges[judge], asked, options.limit)
        message = outcome.message
        return Row(pair, judge, delta, outcome.verdict.value, outcome.seconds, message, excused)

    rows = [check(judge, 0.0) for judge in options.judges]
    try:
        place = spot(right, pair)
    except UnusableError as error:
        return Result(rows, unplanted=str(error))
    except Exception as error:
        return Result(rows, unplanted=f"the gradient raises {type(error).__name__}")
    patient = [
        row.judge
        for row in rows
        if row.judge in options.planted_judges and row.seconds <= options.patience
    ]
    rows += [check(judge, delta) for delta in options.deltas for judge in patient]
    return Result(rows)


def is_excused(operator: OpInfo, dtype: torch.dtype) -> bool:
    """Whether PyTorch's own tests of this gradient are skipped or expected to fail."""
    marks = ("__unittest_skip__", "__unittest_expecting_failure__")
    decorators = operator.get_decorators("TestBwdGradients", "test_fn_grad", "cpu", dtype, {})
    tests = [decorator(lambda _test: None) for decorator in decorators]
    return any(getattr(test, mark, False) for test in tests for mark in marks)


def run(pairs: Sequence[tuple[int, torch.dtype]], options: Options) -> Iterator[tuple[str, Result]]:
    """The results, one pair after the other, each from a process of its own."""
    judges = {judge: JUDGES[judge](options.seed) for judge in options.judges}
    for judge in judges.values():
        warm_up(judge)
    checks = len(options.judges) + len(options.planted_judges) * len(options.deltas)
    for number, (index, dtype) in enumerate(pairs, start=1):
        pair = label(op_db[index], dtype)
        start = time.perf_counter()
        try:
            result = isolated(
                examine, index, dtype, options, judges, seconds=checks * options.limit
            )
        except RuntimeError as error:
            message = str(error)
            result = Result(
                [Row(pair, j, 0.0, "crashes", 0.0, message, False) for j in options.judges]
            )
        seconds = time.perf_counter() - start
        print(f"{number}/{len(pairs)} {pair} {seconds:.1f} s", file=sys.stderr, flush=True)
        yield pair, result


def report(results: dict[str, Result], options: Options) -> str:
    """All tables."""
    rows = [row for result in results.values() for row in result.rows]
    right = [row for row in rows if row.delta == 0]
    sections = [
        header("PyTorch's operators, as they are and with planted errors", ["torch", "adjudge"]),
        f"Seed of adjudge's probes: {'fresh ones' if options.seed is None else options.seed}.\n",
        totals(right, rows, options),
        detections(right, rows, options),
        listing("Crashes on operators as they are", of(right, Verdict.CRASHES)),
        listing("False alarms", of(right, Verdict.REJECTS)),
        listing("Inconclusive", of(right, Verdict.INCONCLUSIVE)),
        differences(right, options),
        listing("Crashes on planted errors alone", late_crashes(rows)),
        missed(right, rows),
        left_out("Left out", {pair: result.skipped for pair, result in results.items()}),
        left_out("No error planted", {pair: result.unplanted for pair, result in results.items()}),
    ]
    return "\n".join(section for section in sections if section)


def of(rows: Iterable[Row], verdict: Verdict) -> list[Row]:
    """The rows with a verdict."""
    return [row for row in rows if row.verdict == verdict]


def totals(right: Sequence[Row], rows: Sequence[Row], options: Options) -> str:
    """Counts and times of each judge."""
    lines = []
    for judge in options.judges:
        own = [row for row in right if row.judge == judge]
        alarms = of(own, Verdict.REJECTS)
        lines.append(
            (
                judge,
                len(own),
                len(of(own, Verdict.CRASHES)),
                f"{len(alarms)} ({sum(not row.excused for row in alarms)})",
                len(of(own, Verdict.INCONCLUSIVE)),
                f"{sum(row.seconds for row in own):.1f}",
                f"{sum(row.seconds for row in rows if row.judge == judge):.1f}",
            )
        )
    counts = ["pairs", "crashes", "false alarms", "inconclusive"]
    columns = ["judge", *counts, "s", "s with planted"]
    note = (
        "In brackets: false alarms without those pairs whose gradient test PyTorch itself skips "
        "or expects to fail.\n"
    )
    return table(columns, lines) + "\n" + note


def detections(right: Sequence[Row], rows: Sequence[Row], options: Options) -> str:
    """How many planted errors each judge rejects."""
    if not options.deltas or not options.planted_judges:
        return ""
    alarms = {(row.judge, row.pair) for row in right if row.verdict != Verdict.ACCEPTS}
    counts: dict[tuple[str, float], list[bool]] = defaultdict(list)
    for row in rows:
        if row.delta:
            found = row.verdict == Verdict.REJECTS and (row.judge, row.pair) not in alarms
            counts[row.judge, row.delta].append(found)
    lines = []
    for judge in options.planted_judges:
        by_delta = [counts[judge, delta] for delta in options.deltas]
        shares = [f"{sum(own)} ({sum(own) / max(len(own), 1):.0%})" for own in by_delta]
        lines.append((judge, max(map(len, by_delta)), *shares))
    columns = ["judge", "planted", *(f"δ = {delta:g}" for delta in options.deltas)]
    note = (
        "One element of one gradient is multiplied by 1 + δ. Counted are rejections by a judge "
        "that accepts the operator as it is; a judge that took more than "
        f"{options.patience:g} s for the operator as it is was not asked again.\n"
    )
    return "### Planted errors that are rejected\n\n" + table(columns, lines) + "\n" + note


def listing(title: str, rows: Sequence[Row]) -> str:
    """Rows one by one, with the first line of the judge's message."""
    if not rows:
        return f"### {title}\n\nNone.\n"
    lines = [
        (row.judge, pair_of(row), *delta_of(row), first_line(row.message))
        for row in sorted(rows, key=lambda row: (row.judge, row.pair))
    ]
    columns = ["judge", "operator", *(["δ"] if rows[0].delta else []), "message"]
    note = "\n\\* PyTorch's own gradient test is skipped or expected to fail.\n"
    excused = any(row.excused for row in rows)
    return f"### {title}\n\n{table(columns, lines)}{note if excused else ''}"


def delta_of(row: Row) -> tuple[str, ...]:
    """The planted error as a cell, where there is one."""
    return (f"{row.delta:g}",) if row.delta else ()


def pair_of(row: Row) -> str:
    """The pair as a cell, with a mark where PyTorch itself expects trouble."""
    return f"{row.pair} *" if row.excused else row.pair


def differences(right: Sequence[Row], options: Options) -> str:
    """Where adjudge's verdict on an operator as it is differs from that of torch's slow mode."""
    if REFERENCE not in options.judges:
        return ""
    reference = {row.pair: row.verdict for row in right if row.judge == REFERENCE}
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in right:
        if row.judge.startswith("adjudge") and row.verdict != reference[row.pair]:
            groups[row.pair, row.verdict].append(row)
    lines = [
        (
            pair_of(group[0]),
            reference[pair],
            verdict,
            ", ".join(row.judge for row in group),
            first_line(group[0].message),
        )
        for (pair, verdict), group in sorted(groups.items())
    ]
    columns = ["operator", REFERENCE, "verdict", "of", "first line of its message"]
    return f"### Verdicts that differ from {REFERENCE}\n\n{table(columns, lines)}"


def late_crashes(rows: Sequence[Row]) -> list[Row]:
    """The crashes of judges that survived the operator as it is."""
    crashed = of(rows, Verdict.CRASHES)
    early = {(row.judge, row.pair) for row in crashed if row.delta == 0}
    return [row for row in crashed if (row.judge, row.pair) not in early]


def missed(right: Sequence[Row], rows: Sequence[Row]) -> str:
    """Large planted errors that adjudge lets pass although it accepts the operator as it is."""
    accepted = {(row.judge, row.pair) for row in of(right, Verdict.ACCEPTS)}
    silent = (Verdict.ACCEPTS, Verdict.INCONCLUSIVE)
    return listing(
        f"Planted errors of {LARGE:g} and more that adjudge does not reject",
        [
            row
            for row in rows
            if row.delta >= LARGE
            and row.judge.startswith("adjudge")
            and (row.judge, row.pair) in accepted
            and row.verdict in silent
        ],
    )


def left_out(title: str, reasons: dict[str, str]) -> str:
    """The pairs without checks, by reason."""
    pairs: dict[str, list[str]] = defaultdict(list)
    for pair, reason in reasons.items():
        if reason:
            pairs[reason].append(pair)
    lines = [(reason, len(own), ", ".join(own)) for reason, own in sorted(pairs.items())]
    return f"### {title}\n\n{table(['reason', 'pairs', 'which'], lines)}"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    everyone = ",".join(JUDGES)
    parser.add_argument("--judges", type=names, default=everyone, help=f"of: {everyone}")
    parser.add_argument("--planted-judges", type=names, help=f"default: without {SLOWEST}")
    parser.add_argument("--ops", default="", metavar="REGEX", help="operators by name")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every N-th operator")
    parser.add_argument("--dtypes", type=names, default="float64,complex128")
    parser.add_argument("--deltas", type=numbers, default="1,0.1,1e-2,1e-3,1e-4,1e-6")
    parser.add_argument("--seed", type=seed, default=0, help="of adjudge's probes, or fresh")
    parser.add_argument("--limit", type=float, default=120.0, metavar="S", help="s for a check")
    parser.add_argument(
        "--patience", type=float, default=5.0, metavar="S", help="no planted checks above this"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="all checks, one by one")
    return parser.parse_args()


def seed(text: str) -> int | None:
    """A seed, or `None` for fresh ones."""
    return None if text == "fresh" else int(text)


def names(text: str) -> list[str]:
    """A list separated by commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def numbers(text: str) -> list[float]:
    """A list of numbers separated by commas."""
    return [float(part) for part in names(text)]


def main() -> None:
    """Run and print."""
    asked = arguments()
    torch.set_num_threads(1)
    wanted = [i for i in range(0, len(op_db), asked.every) if re.search(asked.ops, name(op_db[i]))]
    dtypes = [getattr(torch, dtype) for dtype in asked.dtypes]
    planted_judges = asked.planted_judges
    if planted_judges is None:
        planted_judges = [judge for judge in asked.judges if judge != SLOWEST]
    options = Options(
        asked.judges, planted_judges, asked.deltas, asked.limit, asked.patience, asked.seed
    )
    results: dict[str, Result] = {}
    try:
        for pair, result in run([(i, dtype) for i in wanted for dtype in dtypes], options):
            results[pair] = result
    except KeyboardInterrupt:
        print(f"Interrupted after {len(results)} pairs.\n")
    if asked.json:
        everything = {pair: asdict(result) for pair, result in results.items()}
        asked.json.write_text(json.dumps(everything, indent=1))
    print(report(results, options))


if __name__ == "__main__":
    main()
