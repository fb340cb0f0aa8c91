"""The report of `torch_operators.py`."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from judges import Verdict
from tables import first_line, header, table

REFERENCE = "torch slow"
PATIENT = ("torch slow", "adjudge full")
"""Judges that are not asked about planted errors where they are slow already without."""
PLANTING = (
    "Planted is in the first input that the function depends on, in one element drawn (seeded by "
    "the name of the pair) from those whose column of the Jacobian, measured with random "
    "cotangents, has at least a tenth of the length of the largest column. Its gradient is "
    "multiplied by 1 + δ; the value of the function and every other gradient stay right.\n"
)


@dataclass(frozen=True)
class Row:
    """One check: who judged what; `delta` is 0 for the operator as it is."""

    pair: str
    judge: str
    delta: float
    verdict: str
    seconds: float
    cpu: float
    message: str
    excused: bool
    per_direction: float = math.nan
    """Evaluations of the function, divided by the directions along which it was differenced."""


@dataclass(frozen=True)
class Options:
    """What is asked of every pair of operator and dtype."""

    judges: Sequence[str]
    planted_judges: Sequence[str]
    deltas: Sequence[float]
    limit: float
    patience: float
    seed: int | None
    repeats: int


@dataclass(frozen=True)
class Result:
    """The checks of one pair, and why it or its planted errors were left out."""

    rows: list[Row]
    skipped: str = ""
    unplanted: str = ""
    evidence: str = ""
    """What an independent reference says of the operator as it is, where one was asked."""
    wrong: bool | None = None
    """Whether the operator as it is was shown to be wrong."""


def report(results: dict[str, Result], options: Options) -> str:
    """All tables."""
    rows = [row for result in results.values() for row in result.rows]
    right = [row for row in rows if row.delta == 0]
    sections = [
        header("PyTorch's operators, as they are and with planted errors", ["torch", "adjudge"]),
        f"Seed of adjudge's probes: {'fresh ones' if options.seed is None else options.seed}.\n",
        totals(right, rows, results, options),
        evaluations(right, options),
        proofs(right, results),
        detections(right, rows, results, options),
        listing("Crashes on operators as they are", of(right, Verdict.CRASHES)),
        listing("FAIL as they are", of(right, Verdict.REJECTS)),
        listing("Inconclusive", of(right, Verdict.INCONCLUSIVE)),
        differences(right, options),
        listing("Crashes on planted errors alone", late_crashes(rows)),
        missed(right, rows, results),
        left_out("Left out", {pair: result.skipped for pair, result in results.items()}),
    ]
    return "\n".join(section for section in sections if section)


def of(rows: Iterable[Row], verdict: Verdict) -> list[Row]:
    """The rows with a verdict."""
    return [row for row in rows if row.verdict == verdict]


def totals(
    right: Sequence[Row], rows: Sequence[Row], results: dict[str, Result], options: Options
) -> str:
    """Counts and times of each judge."""
    lines = []
    for judge in options.judges:
        own = [row for row in right if row.judge == judge]
        alarms = of(own, Verdict.REJECTS)
        evidence = [results[row.pair].wrong for row in alarms]
        ours = judge.startswith("adjudge")
        lines.append(
            (
                judge,
                len(own),
                len(of(own, Verdict.CRASHES)),
                f"{len(alarms)} ({sum(not row.excused for row in alarms)})",
                sum(wrong is True for wrong in evidence) if ours else "-",
                sum(wrong is False for wrong in evidence) if ours else "-",
                sum(wrong is None for wrong in evidence) if ours else "-",
                len(of(own, Verdict.INCONCLUSIVE)),
                f"{sum(row.cpu for row in own):.2f}",
                f"{sum(row.seconds for row in own):.2f}",
                f"{sum(row.seconds for row in rows if row.judge == judge):.0f}",
            )
        )
    columns = ["judge", "pairs", "crashes", "FAIL as it is", "of these wrong", "of these right"]
    columns += ["without a reference", "inconclusive", "processor s", "wall s", "s with planted"]
    note = (
        "In brackets: without those pairs whose gradient test PyTorch itself skips or expects to "
        "fail. Wrong and right as the independent references below have it; FAIL on a right one "
        f"is a false alarm. Seconds for the operators as they are; of {options.repeats} where the "
        "check is quick, the least.\n"
    )
    return table(columns, lines) + "\n" + note


def evaluations(right: Sequence[Row], options: Options) -> str:
    """How often the function is evaluated per direction."""
    lines = []
    for judge in options.judges:
        own = [row for row in right if row.judge == judge and not math.isnan(row.per_direction)]
        groups = {"all": own, "accepted": of(own, Verdict.ACCEPTS)}
        for group, chosen in groups.items():
            values = sorted(row.per_direction for row in chosen)
            if len(values) > 1:
                low, _, high = quantiles(values, n=4)
                numbers = [values[0], low, median(values), high, values[-1]]
                lines.append((judge, group, len(values), *(f"{v:.3g}" for v in numbers)))
    if not lines:
        return ""
    columns = ["judge", "pairs", "number", "least", "quartile", "median", "quartile", "most"]
    note = "All evaluations of a check, that of f(x) and repetitions included.\n"
    return f"### Evaluations of f per direction\n\n{table(columns, lines)}\n{note}"


def proofs(right: Sequence[Row], results: dict[str, Result]) -> str:
    """Each FAIL of adjudge on an operator as it is, and an independent derivative."""
    by_pair: dict[str, list[Row]] = defaultdict(list)
    for row in of(right, Verdict.REJECTS):
        if row.judge.startswith("adjudge"):
            by_pair[row.pair].append(row)
    slow = {row.pair: row.verdict for row in right if row.judge == REFERENCE}
    names = {True: "wrong", False: "right: false alarm", None: "unknown"}
    lines = [
        (
            pair_of(rows[0]),
            ", ".join(row.judge.removeprefix("adjudge").strip() or "default" for row in rows),
            slow.get(pair, "-"),
            names[results[pair].wrong],
            results[pair].evidence,
        )
        for pair, rows in sorted(by_pair.items())
    ]
    title = "### What fails as it is, and an independent derivative of it\n\n"
    columns = ["operator", "FAIL of adjudge", REFERENCE, "the derivative is", "furthest apart"]
    return title + (table(columns, lines) if lines else "Nothing fails.\n")


def detections(
    right: Sequence[Row], rows: Sequence[Row], results: dict[str, Result], options: Options
) -> str:
    """How many planted errors each judge rejects, of all and of those that can be told apart."""
    if not options.deltas or not options.planted_judges:
        return ""
    accepted = {(row.judge, row.pair) for row in right if row.verdict == Verdict.ACCEPTS}
    sections = ["### Planted errors that are rejected\n", PLANTING]
    sections += [
        "All pairs that a judge was asked about:\n",
        shares(rows, accepted, options),
        "Counted are rejections by a judge that accepts the operator as it is. "
        f"{' and '.join(PATIENT)} were asked only where they took at most "
        f"{options.patience:g} s of the processor for the operator as it is.\n",
    ]
    if REFERENCE in options.judges:
        able = {
            pair
            for pair, result in results.items()
            if (REFERENCE, pair) in accepted and result.wrong is not True
        }
        some = [row for row in rows if row.pair in able]
        sections += [
            f"Those that {REFERENCE} accepts as they are, and no reference shows to be wrong:\n",
            shares(some, accepted, options),
        ]
    sections.append(unable(accepted, results, options))
    return "\n".join(sections)


def shares(rows: Sequence[Row], accepted: set[tuple[str, str]], options: Options) -> str:
    """Detected planted errors by judge and size."""
    counts: dict[tuple[str, float], list[bool]] = defaultdict(list)
    for row in rows:
        if row.delta:
            found = row.verdict == Verdict.REJECTS and (row.judge, row.pair) in accepted
            counts[row.judge, row.delta].append(found)
    lines = []
    for judge in options.planted_judges:
        by_delta = [counts[judge, delta] for delta in options.deltas]
        cells = [f"{sum(own)} ({100 * sum(own) / max(len(own), 1):.1f} %)" for own in by_delta]
        lines.append((judge, max(map(len, by_delta)), *cells))
    return table(["judge", "planted", *(f"δ = {delta:g}" for delta in options.deltas)], lines)


def unable(accepted: set[tuple[str, str]], results: dict[str, Result], options: Options) -> str:
    """The pairs in which no planted error can be found, each with the reason."""
    reasons: dict[str, str] = {}
    for pair, result in results.items():
        if result.unplanted:
            reasons[pair] = f"nothing can be planted: {result.unplanted}"
        elif result.skipped:
            continue
        elif result.wrong is True:
            reasons[pair] = "the operator as it is, is wrong by an independent reference"
        elif REFERENCE in options.judges and (REFERENCE, pair) not in accepted:
            reasons[pair] = f"{REFERENCE} does not accept the operator as it is"
    return left_out("Pairs that can carry no finding", reasons)


def missed(right: Sequence[Row], rows: Sequence[Row], results: dict[str, Result]) -> str:
    """Planted errors that adjudge does not find, though a finding was possible."""
    accepted = {(row.judge, row.pair) for row in of(right, Verdict.ACCEPTS)}
    lines: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for row in rows:
        if not (row.delta and row.judge.startswith("adjudge")) or results[row.pair].wrong:
            continue
        clean = (row.judge, row.pair) in accepted
        if not clean or row.verdict != Verdict.REJECTS:
            verdict = row.verdict if clean else "does not accept it as it is"
            message = first_line(row.message, 100) if clean else ""
            lines[row.judge, pair_of(row), verdict, message].append(f"{row.delta:g}")
    shown = [
        (judge, pair, ", ".join(deltas), verdict, message)
        for (judge, pair, verdict, message), deltas in sorted(lines.items())
    ]
    columns = ["judge", "operator", "δ", "verdict", "message"]
    title = "### Planted errors that adjudge does not reject\n\n"
    return title + (table(columns, shown) if shown else "None.\n")


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


def left_out(title: str, reasons: dict[str, str]) -> str:
    """The pairs without checks, by reason."""
    pairs: dict[str, list[str]] = defaultdict(list)
    for pair, reason in reasons.items():
        if reason:
            pairs[reason].append(pair)
    lines = [(reason, len(own), ", ".join(own)) for reason, own in sorted(pairs.items())]
    return f"### {title}\n\n{table(['reason', 'pairs', 'which'], lines)}"
