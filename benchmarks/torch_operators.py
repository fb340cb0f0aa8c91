"""Every differentiable operator of PyTorch, right and with planted errors, through the checkers."""

import argparse
import functools
import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from isolation import isolated, spread
from judges import JUDGES, Judge, ask, ask_all, warm_up
from operator_cases import Spot, UnusableError, case, name, planted, spot
from operator_references import REFERENCES, compare
from operator_tables import PATIENT, Options, Result, Row, report
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo

SLOWEST = "adjudge full"
"""Gets planted errors only if it is asked for by name, so that all takes below 15 minutes."""
Pair = tuple[int, torch.dtype]


def label(operator: OpInfo, dtype: torch.dtype) -> str:
    """The name of a pair."""
    return f"{name(operator)} {str(dtype).removeprefix('torch.')}"


def examine(
    index: int,
    dtype: torch.dtype,
    options: Options,
    judges: dict[str, Judge],
    device: str = "cpu",
) -> Result:
    """All checks of one pair; every check gets inputs of its own."""
    operator = op_db[index]
    pair = label(operator, dtype)
    try:
        right = case(operator, dtype, device)
    except UnusableError as error:
        return Result([], skipped=str(error))
    except Exception as error:
        return Result([], skipped=f"the sample raises {type(error).__name__}")
    excused = is_excused(operator, dtype, torch.device(device).type)
    place: Spot | None = None
    unplanted = ""
    try:  # before the judges: what the operator does on first use is timed with none of them
        place = spot(right, pair)
    except UnusableError as error:
        unplanted = str(error)
    except Exception as error:
        unplanted = f"the gradient raises {type(error).__name__}"

    again = functools.partial(case, operator, dtype, device)
    outcomes = ask_all(judges, again, options.limit, options.repeats)
    rows = [
        Row(
            pair, judge, 0.0, o.verdict.value, o.seconds, o.cpu, o.message, excused, o.per_direction
        )
        for judge, o in outcomes.items()
    ]
    evidence = ""
    if any(row.judge.startswith("adjudge") and row.verdict == "rejects" for row in rows):
        evidence, wrong = reference(operator, dtype)
    else:
        wrong = None
    if place is None:
        return Result(rows, unplanted=unplanted, evidence=evidence, wrong=wrong)
    for delta in options.deltas:
        for judge in options.planted_judges:
            if judge not in PATIENT or outcomes[judge].cpu <= options.patience:
                wrong_case = planted(again(), place, delta)
                o = ask(judges[judge], wrong_case, options.limit)
                verdict = o.verdict.value
                rows.append(
                    Row(pair, judge, delta, verdict, o.seconds, o.cpu, o.message, excused, math.nan)
                )
    return Result(rows, evidence=evidence, wrong=wrong)


def reference(operator: OpInfo, dtype: torch.dtype) -> tuple[str, bool | None]:
    """What an independent reference says of the operator as it is, and whether it is wrong."""
    known = REFERENCES.get(name(operator))
    if known is None:
        return "no independent reference", None
    try:
        found = compare(operator, dtype, known)
    except Exception as error:
        return f"the reference raises {type(error).__name__}: {error}", None
    gap = f"values apart by {found.value_gap:.0e}"
    return f"{found.text} ({found.how}, {gap})", found.wrong


def is_excused(operator: OpInfo, dtype: torch.dtype, kind: str = "cpu") -> bool:
    """Whether PyTorch's own tests of this gradient are skipped or expected to fail."""
    marks = ("__unittest_skip__", "__unittest_expecting_failure__")
    decorators = operator.get_decorators("TestBwdGradients", "test_fn_grad", kind, dtype, {})
    tests = [decorator(lambda _test: None) for decorator in decorators]
    return any(getattr(test, mark, False) for test in tests for mark in marks)


def run(
    pairs: Sequence[Pair], options: Options, processes: int, device: str = "cpu"
) -> Iterator[tuple[str, Result]]:
    """The results as they come; on the CPU each pair in a process of its own. CUDA does not live
    through a fork, so on a GPU all are in one.
    """
    alone = device == "cpu"
    checks = len(options.judges) * options.repeats
    checks += len(options.planted_judges) * len(options.deltas)

    def prepare() -> Callable[[Pair], Result]:
        torch.set_num_threads(1)
        judges = {judge: JUDGES[judge](options.seed) for judge in options.judges}
        for judge in judges.values():
            warm_up(judge)

        def work(pair: Pair) -> Result:
            seconds = checks * options.limit
            if not alone:
                return examine(*pair, options, judges, device)
            try:
                return isolated(examine, *pair, options, judges, seconds=seconds)
            except RuntimeError as error:
                return Result([died(label(op_db[pair[0]], pair[1]), j, error) for j in judges])

        return work

    start = time.perf_counter()
    for number, ((index, dtype), result) in enumerate(
        spread(prepare, pairs, processes if alone else 1), start=1
    ):
        pair = label(op_db[index], dtype)
        seconds = time.perf_counter() - start
        print(f"{number}/{len(pairs)} {pair} {seconds:.0f} s", file=sys.stderr, flush=True)
        yield pair, result


def died(pair: str, judge: str, error: Exception) -> Row:
    """The row of a judge whose process ended."""
    return Row(pair, judge, 0.0, "crashes", 0.0, 0.0, str(error), False, math.nan)


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
        "--patience",
        type=float,
        default=1.0,
        metavar="S",
        help="no planted checks of slow modes above",
    )
    parser.add_argument(
        "--repeats", type=int, default=3, metavar="N", help="of a quick check, to time it"
    )
    parser.add_argument("--processes", type=int, default=2, metavar="N", help="pairs at a time")
    parser.add_argument("--device", default="cpu", help="cuda: all pairs in one process")
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
    wanted = [i for i in range(0, len(op_db), asked.every) if re.search(asked.ops, name(op_db[i]))]
    dtypes = [getattr(torch, dtype) for dtype in asked.dtypes]
    options = Options(
        asked.judges,
        asked.planted_judges or [judge for judge in asked.judges if judge != SLOWEST],
        asked.deltas,
        asked.limit,
        asked.patience,
        asked.seed,
        asked.repeats,
    )
    pairs = [(i, dtype) for i in wanted for dtype in dtypes]
    found: dict[str, Result] = {}
    try:
        found.update(run(pairs, options, asked.processes, asked.device))
    except KeyboardInterrupt:
        print(f"Interrupted after {len(found)} pairs.\n")
    order = [label(op_db[index], dtype) for index, dtype in pairs]
    results = {pair: found[pair] for pair in order if pair in found}
    if asked.json:
        everything = {pair: asdict(result) for pair, result in results.items()}
        asked.json.write_text(json.dumps(everything, indent=1))
    print(report(results, options))


if __name__ == "__main__":
    main()
