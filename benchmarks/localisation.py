"""What it costs to name the wrong entries of a Jacobian: one, and three, among up to 1e6."""

import argparse
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tables import header, table

import adjudge

SIZES = (10, 100, 1000, 10_000, 100_000, 1_000_000)
LARGEST_MATRIX = 1000
FACTOR = 1.01


@dataclass(frozen=True)
class Planted:
    """A hand-written function with a right and a wrong derivative."""

    f: adjudge.ByHand
    x: np.ndarray
    entries: Sequence[tuple[int, int]]
    """Output and input of each wrong entry."""


def elementwise(n: int, wrong: int, rng: np.random.Generator) -> Planted:
    """`sin(x)`, n to n, of which some diagonal entries are wrong."""
    at = rng.choice(n, wrong, replace=False)
    factor = np.ones(n)
    factor[at] = FACTOR
    f = adjudge.ByHand(np.sin, vjp=lambda x, w: factor * w * np.cos(x))
    return Planted(f, rng.uniform(-1, 1, n), [(int(k), int(k)) for k in at])


def to_a_number(n: int, wrong: int, rng: np.random.Generator) -> Planted:
    """`sum c sin(x)`, n to 1, of which some entries of the gradient are wrong."""
    at = rng.choice(n, wrong, replace=False)
    factor, c = np.ones(n), rng.uniform(0.5, 1.5, n)
    factor[at] = FACTOR
    f = adjudge.ByHand(
        lambda x: np.asarray(np.sum(c * np.sin(x))), vjp=lambda x, w: factor * w * c * np.cos(x)
    )
    return Planted(f, rng.uniform(-1, 1, n), [(0, int(k)) for k in at])


def matrix(n: int, wrong: int, rng: np.random.Generator) -> Planted:
    """`sin(A x)`, n to n with n^2 entries, of which some are wrong."""
    a = rng.choice([-1.0, 1.0], (n, n)) * rng.uniform(0.5, 1.0, (n, n)) / n**0.5
    bad = a.copy()
    at = rng.choice(n * n, wrong, replace=False)
    bad.flat[at] *= FACTOR
    f = adjudge.ByHand(lambda x: np.sin(a @ x), vjp=lambda x, w: (w * np.cos(a @ x)) @ bad)
    return Planted(f, rng.uniform(-1, 1, n), [divmod(int(k), n) for k in at])


FUNCTIONS: dict[str, Callable[[int, int, np.random.Generator], Planted]] = {
    "sin(x), n to n": elementwise,
    "sum c sin(x), n to 1": to_a_number,
    "sin(A x), n to n": matrix,
}


def named(report: adjudge.Report, planted: Planted) -> int:
    """How many of the wrong entries the report names, by output and input."""
    names = [entry.name for entry in report.entries]
    for finding in report.findings:
        also = getattr(finding.detail, "also", None)
        names += [finding.entry, *(also.names if also is not None else ())]
    found = set()
    pattern = r"d (?:out|f)(?:\[(\d+)\])? / d inputs\[0\]\[(\d+)\]"
    for name in names:
        for of, wrt in re.findall(pattern, name):
            found.add((int(of or 0), int(wrt)))
    return len(found & set(planted.entries))


def row(name: str, n: int, wrong: int, options: argparse.Namespace) -> tuple[object, ...]:
    """One check, beside that of the right derivative."""
    arguments: dict[str, Any] = {"seed": options.seed, "fast_mode": True}
    counts = []
    for k in (0, wrong):
        planted = FUNCTIONS[name](n, k, np.random.default_rng([options.seed, n]))
        start = time.process_time()
        report = adjudge.examine(planted.f, planted.x, **arguments)
        seconds = time.process_time() - start
        counts.append((report.counts["evaluations"], report.counts["vjps"]))
    more = [b - a for a, b in zip(*counts, strict=True)]
    verdict = str(report.verdict)
    who = f"{named(report, planted)} of {wrong}"
    return (name, f"{n:.0e}", wrong, verdict, who, *counts[0], *more, f"{seconds:.2f}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="largest n")
    options = parser.parse_args()
    rows = []
    for name in FUNCTIONS:
        limit = LARGEST_MATRIX if "A x" in name else options.largest
        rows += [row(name, n, k, options) for n in SIZES if n <= limit for k in (1, 3)]
    print(header("Naming wrong entries", ("adjudge", "numpy")))
    columns = ["f", "n", "wrong", "verdict", "named", "evaluations if right", "vjps if right"]
    print(table([*columns, "evaluations more", "vjps more", "s"], rows))
    print(
        f"Each wrong entry is its right value times {FACTOR:g}, at a place drawn with seed "
        f"{options.seed}; NumPy with a derivative by hand, projected mode. More: than the check "
        "of the right derivative takes.\n"
    )


if __name__ == "__main__":
    main()
