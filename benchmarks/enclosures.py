"""Balls of the elementwise functions of the vocabulary, of linear algebra and of reductions, and of
their derivatives, against mpmath at random points: does each contain what 60 digits and more say?

    python benchmarks/enclosures.py --count 1e6 --limit 900

A function takes part in its share of the time at most, since mpmath takes milliseconds for some.
The derivative is a central difference in 90 digits, whose error is far below the radius of a ball.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
from harness import header, table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "core" / "estimate"))

from test_balls import TRUTH, contains, exact

from adjudge.estimate.balls import FUNCTIONS, Jets, lifted
from adjudge.estimate.replay import RULES, WITH_RECORDED, precision

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


# ---------------------------------------------------------------- of matrices

SIDE = 3
MATRICES: dict[str, Callable[[Any], Any]] = {
    "matmul": lambda a: a * a,
    "solve": lambda a: mpmath.inverse(a) * mpmath.diag([1, 2, 3]),
    "inv": mpmath.inverse,
    "det": mpmath.det,
    "slogdet": lambda a: mpmath.log(abs(mpmath.det(a))),
    "cholesky": lambda a: mpmath.cholesky((a + a.T) / 2),
    "eigh": lambda a: mpmath.eigsy((a + a.T) / 2, eigvals_only=True),
    "svd": lambda a: mpmath.svd_r(a, compute_uv=False),
    "matrix_exp": mpmath.expm,
    "prod": lambda a: mpmath.fprod(a),
    "logsumexp": lambda a: mpmath.log(mpmath.fsum(map(mpmath.exp, a))),
    "sum": lambda a: mpmath.fsum(a),
    "cumulative_prod": lambda a: [mpmath.fprod(list(a)[: k + 1]) for k in range(SIDE**2)],
    "cumulative_logsumexp": lambda a: [
        mpmath.log(mpmath.fsum(map(mpmath.exp, list(a)[: k + 1]))) for k in range(SIDE**2)
    ],
}
"""What mpmath finds for a matrix; of several results one."""


def performed(name: str, a: np.ndarray, jets: Jets) -> Any:
    """The same as jets."""
    if name in WITH_RECORDED:
        recorded = getattr(np.linalg, name)((a + a.T) / 2 if name == "eigh" else a)
        return WITH_RECORDED[name](jets, recorded=tuple(recorded))[name == "svd"]
    second = {"matmul": [jets], "solve": [lifted(np.diag([1.0, 2.0, 3.0]))]}.get(name, [])
    over: dict[str, Any] = {}
    if name in ("prod", "logsumexp", "sum"):
        over = {"axis": None, "keepdims": False}
    elif name.startswith("cumulative"):
        jets, over = Jets({k: one.reshape(-1) for k, one in jets.parts.items()}), {"axis": 0}
    found = RULES[name](jets, *second, **over)
    return found[1] if name == "slogdet" else found


def violations_of_matrices(name: str, random: np.random.Generator) -> tuple[int, list[str]]:
    """How many entries and slopes were compared at a random matrix, and what lies outside."""
    a, v = random.normal(size=(2, SIDE, SIDE))
    a = a @ a.T + np.eye(SIDE) if name in ("cholesky", "eigh") else a
    with precision(BITS):
        jets = performed(name, a, Jets({0: lifted(a).value, 1: lifted(v).value}))

    def truth(t: Any) -> list[Any]:
        found = MATRICES[name](mpmath.matrix(a.tolist()) + t * mpmath.matrix(v.tolist()))
        entries = list(found) if hasattr(found, "__iter__") else [found]
        return sorted(entries, reverse=True) if name == "svd" else entries

    with mpmath.workdps(MORE_DIGITS):
        low, middle, high = (truth(t) for t in (-STEP, mpmath.mpf(0), STEP))
        slopes = [(one - other) / (2 * STEP) for one, other in zip(high, low, strict=True)]
        found = []
        for what, true, balls in (("value", middle, jets.value), ("slope", slopes, jets.parts[1])):
            for one, ball in zip(true, balls.flat, strict=True):
                sharp = exact(ball)[1] <= 1 + abs(one)
                if not sharp or not contains(ball, one, SLACK * (1 + abs(one))):
                    found.append(what)
    return 2 * len(middle), found


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
    begun = time.process_time()
    while time.process_time() - begun < args.limit / 9:
        for name in MATRICES:
            number, found = violations_of_matrices(name, random)
            compared[name] += number
            outside += [(name, [], what) for what in found]
    print(header("Enclosures", ("adjudge", "python-flint", "mpmath")))
    print(f"{compared.total():,} comparisons of {len(compared)} functions, {len(outside)} outside")
    fewest = [[name, f"{n:,}"] for name, n in compared.most_common()[-10:]]
    print(table(["fewest comparisons of", ""], fewest))
    for one in outside[:20]:
        print(*one)


if __name__ == "__main__":
    main()
