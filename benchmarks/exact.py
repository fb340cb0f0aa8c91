"""What exact references decide: JAX's primitives and PyTorch's operators, judged by exact replay.

The cases are those of `jax_primitives.py` and `torch_operators.py` in float64. Each is judged as
usual and with `reference="exact"`, as it is and with small errors planted. The tables say how many
are certified, which steps could not be, which verdicts differ, and which errors show.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import ORDINARY, RIGHT, compare, first_line, header, table

JUDGES = ("adjudge", "adjudge exact")
DELTAS = "1e-8,1e-10,1e-12"


def cause(text: str) -> str:
    """Why a case was not certified, in a few words."""
    found = re.search(r"exact replay of ([a-z_][\w.:-]*)", text)
    if found:
        return f"{found[1]}: no translation, or other digits"
    found = re.search(r"exact replay of [\d,]+ operations|stopped after|NONFINITE|NONSMOOTH", text)
    return found[0] if found else first_line(text, 60)


def tables(rows: Sequence[dict[str, Any]]) -> str:
    """All tables of what was recorded."""
    cases: dict[tuple[str, str], dict[str, dict[str, Any]]] = defaultdict(dict)
    for row in rows:
        cases[row["name"], row["plant"]][row["judge"]] = row
    usual, exact = JUDGES
    right = {name: both for (name, plant), both in cases.items() if plant == RIGHT}
    verdicts = Counter(
        (both[exact]["kind"], both[usual]["verdict"], both[exact]["verdict"])
        for both in right.values()
    )
    open_ = Counter(
        cause(both[exact]["text"])
        for both in right.values()
        if both[exact]["verdict"] not in ("PASS", "FAIL")
    )
    certified = {name for name, both in right.items() if both[exact]["verdict"] == "PASS"}
    shown: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    for (name, plant), both in cases.items():
        if plant != RIGHT and name in certified and both[exact]["kind"] == ORDINARY:
            for judge in JUDGES:
                shown[plant][judge, both[judge]["verdict"]] += 1
    seconds = {judge: sum(both[judge]["seconds"] for both in right.values()) for judge in JUDGES}
    parts = [
        table(
            ("kind", "as usual", "exact", "cases"), [(*k, n) for k, n in sorted(verdicts.items())]
        ),
        table(("not certified", "cases"), open_.most_common()),
        table(
            ("planted", "judge", "FAIL", "PASS", "other"),
            [
                (
                    plant,
                    judge,
                    counts[judge, "FAIL"],
                    counts[judge, "PASS"],
                    sum(
                        n
                        for (who, said), n in counts.items()
                        if who == judge and said not in ("FAIL", "PASS")
                    ),
                )
                for plant, counts in sorted(shown.items())
                for judge in JUDGES
            ],
        ),
        "Seconds of the processor for the right cases: "
        + ", ".join(f"{judge} {spent:.0f}" for judge, spent in seconds.items()),
    ]
    failing = [
        (name, both[usual]["verdict"], first_line(both[exact]["text"]))
        for name, both in sorted(right.items())
        if both[exact]["verdict"] == "FAIL"
    ]
    return "\n\n".join([*parts, table(("FAIL", "as usual", "first line"), failing)])


def main() -> None:
    """Judges a family as the command line says, or prints the tables of what was recorded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family", choices=("jax", "torch"))
    parser.add_argument("--tables", type=Path, nargs="*", metavar="FILE", help="of these records")
    options, more = parser.parse_known_args()
    files = options.tables
    if files is None:
        import jax_primitives
        import torch_operators

        family = {"jax": jax_primitives.FAMILY, "torch": torch_operators.FAMILY}[options.family]
        files = [Path(f"exact_{options.family}.json")]
        given = [
            "--deltas",
            DELTAS,
            "--repeats",
            "1",
            "--limit",
            "30",
            "--json",
            str(files[0]),
            *more,
        ]
        compare(family, "exact references", JUDGES, ("float64",), given)
    rows = [row for path in files for row in json.loads(path.read_text())]
    print(header("Exact references", ("adjudge", "python-flint", "torch", "jax", "numpy")))
    print(tables(rows))


if __name__ == "__main__":
    sys.exit(main())
