"""crosscheck over Array API functions: false divergences, planted errors that are found, cost.

python benchmarks/crosscheck.py [--planted] [--time] [names...]
"""

from __future__ import annotations

import sys
import time
import warnings
from collections import Counter
from typing import Any

import numpy as np
import optree
from cross_functions import COMPLEX, EASY, HARD, Table

import adjudge
from adjudge.engine import WrappedBackend, backend_named

ENGINES = ["torch", "jax", "numpy"]
ERRORS = (1.0, 1e-3, 1e-6)
SEED = 7


class OneEntry(WrappedBackend):
    """An engine whose gradients are off in one entry of the first input, by a relative error."""

    def __init__(self, inner: Any, error: float, entry: int) -> None:
        super().__init__(inner)
        self.error, self.entry = error, entry

    def vjp(self, f, x):
        y, pullback = self.inner.vjp(f, x)

        def planted(w):
            first, *rest = pullback(w)
            if first is None or first.size == 0:
                return (first, *rest)
            host = self.inner.arrays.to_host(first)
            host.flat[self.entry % host.size] *= 1 + self.error
            return (self.inner.arrays.from_host(host, first), *rest)

        return y, planted


def cast(tree: Any, dtype: str) -> Any:
    """Real arrays in this dtype, complex ones in that of twice the width."""
    narrow = {"float32": np.complex64, "float64": np.complex128}[dtype]
    return optree.tree_map(
        lambda a: np.asarray(a, dtype=narrow if np.iscomplexobj(a) else dtype), tree
    )


def checked(f: Any, arrays: Any, backends: Any) -> Any:
    """The report of one function."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return adjudge.crosscheck(f, arrays, backends, seed=SEED, raise_exception=False)


def clean(tables: dict[str, tuple[Table, str]], names: list[str]) -> None:
    """What the same function on three engines is called."""
    print(f"{'functions':<22}{'n':>4}  verdicts, divergences that are not notes, notes")
    for title, (table, dtype) in tables.items():
        verdicts: Counter[str] = Counter()
        apart = notes = total = 0
        lines = []
        for name, (f, arrays) in table.items():
            if names and name not in names:
                continue
            f.__qualname__ = name
            report = checked(f, cast(arrays, dtype), ENGINES)
            total += 1
            verdicts[str(report.verdict)] += 1
            real = [d for d in report.divergences if d.verdict != "PASS"]
            apart += bool(real)
            notes += any(d.verdict == "PASS" for d in report.divergences)
            if not report:
                lines.append(f"    {report.headline}")
            if names:
                print(report)
        said = ", ".join(f"{n} {v}" for v, n in verdicts.items())
        print(f"{title:<22}{total:>4}  {said}; {apart}; {notes}")
        print("\n".join(lines), end="\n" * bool(lines), flush=True)


def planted(tables: dict[str, tuple[Table, str]], names: list[str]) -> None:
    """How many planted errors of torch's vjp are found, and put down to torch."""
    print("\none entry of torch's gradient off by")
    print(f"{'functions':<22}" + "".join(f"{error:>26.0e}" for error in ERRORS))
    jax = backend_named("jax")
    for title, (table, dtype) in tables.items():
        cells, missed = [], []
        for error in ERRORS:
            found = named = total = 0
            for k, (name, (f, arrays)) in enumerate(table.items()):
                if names and name not in names:
                    continue
                f.__qualname__ = name
                torch = OneEntry(backend_named("torch"), error, k)
                report = checked(f, cast(arrays, dtype), [torch, jax])
                total += 1
                seen = [d for d in report.divergences if d.quantity == "R" and d.verdict == "FAIL"]
                found += bool(seen)
                named += any("torch" in d.accused for d in seen)
                if not seen and (report or error > 1e-6):
                    missed.append(f"    {error:.0e} missed: {report.headline}")
            cells.append(f"{found} of {total}, accused {named}")
        print(f"{title:<22}" + "".join(f"{cell:>26}" for cell in cells))
        print("\n".join(missed), end="\n" * bool(missed), flush=True)


def cost(table: Table) -> None:
    """Time of a crosscheck over that of a gradcheck on each engine, both when warm."""
    ratios = []
    for f, arrays in table.values():
        args = cast(arrays, "float64")
        times = []
        for _ in range(2):
            start = time.perf_counter()
            checked(f, args, ["torch", "jax"])
            middle = time.perf_counter()
            for name in ("torch", "jax"):
                backend = backend_named(name)
                placed = adjudge.placing.placed_tree(backend, args)
                adjudge.gradcheck(
                    lambda *a, f=f, xp=backend.xp: f(xp, *a), placed, check_forward_ad=True,
                    seed=SEED, raise_exception=False,
                )  # fmt: skip
            times.append((middle - start, time.perf_counter() - middle))
        ratios.append(times[1][0] / times[1][1])
    print(
        f"\ntime over two gradchecks (R and F): median {np.median(ratios):.1f}, "
        f"quartiles {np.quantile(ratios, 0.25):.1f} and {np.quantile(ratios, 0.75):.1f}"
    )


def main() -> None:
    """All tables, and what the flags ask for."""
    flags = [a for a in sys.argv[1:] if a.startswith("--")]
    names = [a for a in sys.argv[1:] if not a.startswith("--")]
    tables = {
        "float64": (EASY, "float64"),
        "float32": (EASY, "float32"),
        "complex128": (COMPLEX, "float64"),
        "complex64": (COMPLEX, "float32"),
        "hard, float64": (HARD, "float64"),
        "hard, float32": (HARD, "float32"),
    }
    if not {"--planted", "--time"} & set(flags):
        clean(tables, names)
    if "--planted" in flags:
        planted(tables, names)
    if "--time" in flags:
        cost(EASY)


if __name__ == "__main__":
    main()
