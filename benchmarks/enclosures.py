"""Balls of the elementwise functions of the vocabulary, and of their derivatives, against mpmath at
random points: does every ball contain what 60 digits and more say?

    python benchmarks/enclosures.py --count 1e6 --limit 900

A function takes part in its share of the time at most, since mpmath takes milliseconds for some.
The derivative is a central difference in 90 digits, whose error is far below the radius of a ball.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

import mpmath
import numpy as np
from harness import header, table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "core" / "estimate"))

from test_balls import TRUTH, contains, exact

from adjudge.estimate.balls import FUNCTIONS, Jets, lifted
from adjudge.estimate.replay import precision

BITS, DIGITS, MORE_DIGITS, BATCH = 100, 60, 90, 50
STEP = mpmath.mpf(10) ** -25
SLACK = mpmath.mpf(10) ** -40
"""What the truth may be off by, relative to it and to 1: a ball of 100 bits is wider."""


def violations(name: str, values: list[float]) -> list[str]:
    """What lies outside of its ball at these arguments: `value`, or the argument of a slope."""
    truth, found = TRUTH[name][0], []
    at = [mpmath.mpf(x) for x in values]
    for k in range(len(values)):
        given = [
            Jets({0: lifted(x).value, **({1: lifted(1.0).value} if i == k else {})})
            for i, x in enumerate(values)
        ]
        with precision(BITS):
            jets = FUNCTIONS[name](*given)
        with mpmath.workdps(DIGITS):
            true = truth(*at)
            if not k and not contains(jets.value[()], true, SLACK * (1 + abs(true))):
                found.append("value")
        with mpmath.workdps(MORE_DIGITS):
            high, low = (
                truth(*(x + sign * STEP if i == k else x for i, x in enumerate(at)))
                for sign in (1, -1)
            )
            slope = (high - low) / (2 * STEP)
            ball = jets.parts.get(1, lifted(0.0).value)[()]
            if exact(ball)[1] > 1 + abs(slope) or not contains(
                ball, slope, SLACK * (1 + abs(slope))
            ):
                found.append(f"slope {k}")
    return found


def main() -> None:
    """Draws points until there are enough, and prints what was outside."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=float, default=1e6, help="comparisons in all")
    parser.add_argument("--limit", type=float, default=900.0, metavar="S", help="of the processor")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    random, start = np.random.default_rng(args.seed), time.process_time()
    share = args.limit / len(TRUTH)
    compared: Counter[str] = Counter()
    spent: Counter[str] = Counter()
    outside: list[tuple[str, list[float], str]] = []
    while compared.total() < args.count and time.process_time() - start < args.limit:
        for name, (_, *ranges) in TRUTH.items():
            begun = time.process_time()
            for _ in range(BATCH if spent[name] < share else 0):
                values = [float(random.uniform(*one)) for one in ranges]
                outside += [(name, values, what) for what in violations(name, values)]
                compared[name] += 1 + len(values)
                if spent[name] + time.process_time() - begun > share:
                    break
            spent[name] += time.process_time() - begun
    print(header("Enclosures", ("adjudge", "python-flint", "mpmath")))
    print(f"{compared.total():,} comparisons of {len(compared)} functions, {len(outside)} outside")
    fewest = [[name, f"{n:,}"] for name, n in compared.most_common()[-10:]]
    print(table(["fewest comparisons of", ""], fewest))
    for one in outside[:20]:
        print(*one)


if __name__ == "__main__":
    main()
