"""What `adjudge write` finds in libraries: functions seen, tests written, how many of them pass.

    python benchmarks/ghostwriter.py torch.special jax.nn
    PYTHONPATH=libraries python benchmarks/ghostwriter.py entmax kornia.color kornia.losses

One line for each module, and below the table what fails and why functions were left out.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from importlib import metadata

from adjudge.ghostwriter import write


def version_of(module: str) -> str:
    """`entmax 1.3`: the distribution that holds a module."""
    root = module.partition(".")[0]
    names = metadata.packages_distributions().get(root, [])
    return f"{names[0]} {metadata.version(names[0])}" if names else root


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("modules", nargs="+", metavar="MODULE")
    parser.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS")
    parsed = parser.parse_args()
    print("| module | library | functions seen | tests | pass | fail | left out | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    details = []
    for module in parsed.modules:
        start = time.perf_counter()
        written = write(module, recursive=False, timeout=parsed.timeout)
        tests, failing, left_out = len(written.tests), len(written.failing), len(written.left_out)
        print(
            f"| `{module}` | {version_of(module)} | {tests + left_out} | {tests} | "
            f"{tests - failing} | {failing} | {left_out} | {time.perf_counter() - start:.0f} |",
            flush=True,
        )
        details += [f"- `{module}.{one.subject.label}`: {one.outline}" for one in written.failing]
        kinds = Counter(one.reason.partition(" (")[0] for one in written.left_out)
        details += [f"- `{module}`, {count} left out: {why}" for why, count in kinds.most_common()]
    print("", *details, sep="\n")


if __name__ == "__main__":
    main()
