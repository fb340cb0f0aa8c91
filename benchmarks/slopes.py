"""Derivatives of special functions and distributions at 200 points each, beside enclosures: in
tails, saturated regions and near cancellations, where differences of values show nothing.

    python benchmarks/slopes.py                            # all of MODULES, half an hour
    python benchmarks/slopes.py torch.special --dtype float32
    python benchmarks/slopes.py jax.scipy.stats --match "beta|gamma" --seed 1

Every function of real numbers, elementwise, by each of its arguments; of distributions the
densities, distribution functions and their inverses, entropies, moments and divergences, by the
value and by each parameter. The engine's derivative is compared with that of the function replayed
in ball arithmetic. It is `wrong` where it is off by more than `OFF` of that, and by more than one
rounding in each operation of the program and in its derivative could make; what these could make
counts apart. (`right` allows for some spacings of x.) Families of several numbers are left out.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import itertools
import json
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from harness import first_line, header, isolated, table, told
from sweep_cases import FIXED, parametrisations

from adjudge import examine
from adjudge.engine import backend_named
from adjudge.errors import AdjudgeError
from adjudge.estimate import Direction, Exact, enclosure_of
from adjudge.estimate.replay import Roundings

MODULES = ("torch.special", "torch.distributions", "jax.scipy.special", "jax.scipy.stats")
OFF = {"float64": 1e-10, "float32": 1e-4}
UNITS = 8
"""So many spacings of x may a derivative be off by."""
CHUNK = 25
"""So many points are replayed at once; one by one where they cannot be."""
OF_VALUES = ("log_prob", "cdf", "icdf")
METHODS = (*OF_VALUES, "entropy", "mean", "variance")
WHOLE = ("n", "k", "p", "d")
"""Parameters that are whole numbers."""
RIGHT, ROUNDING, WRONG, UNKNOWN = "right", "rounding", "wrong", "not enclosed"


def real(rng: np.random.Generator, n: int) -> np.ndarray:
    """Numbers of all sizes, ordinary ones, and some next to whole numbers, of both signs."""
    sign = rng.choice([-1.0, 1.0], n)
    ways = [3 * rng.normal(size=n), sign * 10 ** rng.uniform(-10, 0, n)]
    ways += [sign * 10 ** rng.uniform(0, 6, n), sign * 30 * rng.random(n)]
    ways.append(rng.integers(-6, 7, n) + sign * 10 ** rng.uniform(-13, -1, n))
    return np.choose(rng.integers(0, len(ways), n), ways)


def share(rng: np.random.Generator, n: int) -> np.ndarray:
    """Numbers between 0 and 1, many of them near an end."""
    near = 10 ** rng.uniform(-12, 0, n)
    return np.choose(rng.integers(0, 3, n), [rng.random(n), near, 1 - near])


DRAWN: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "real": real,
    "positive": lambda rng, n: abs(real(rng, n)),
    "share": share,
    "any": lambda rng, n: np.where(rng.random(n) < 0.6, real(rng, n), share(rng, n)),
    "whole": lambda rng, n: rng.integers(0, 8, n).astype(float),
}


@dataclass(frozen=True)
class Function:
    """An elementwise function, and which numbers each of its arguments takes."""

    name: str
    engine: str
    f: Callable[..., Any]
    kinds: tuple[str, ...]
    within: Callable[..., Any] | None = None
    """Whether arguments are within the domain."""


# ---------------------------------------------------------------- what there is


def special(module: str) -> Iterator[Function]:
    """The functions of a module, each in several forms, of which the first that it takes counts."""
    for name, f in sorted(vars(importlib.import_module(module)).items()):
        if name.startswith("_") or not callable(f) or inspect.isclass(f):
            continue
        label, engine = f"{module}.{name}", module.partition(".")[0]
        forms = [("any",) * count for count in range(1, 5)] + [("whole", "any"), ("any", "whole")]
        yield from (Function(label, engine, f, kinds) for kinds in forms)
        yield Function(label, engine, lambda x, f=f: f(1, x), ("any",))
        yield Function(label, engine, lambda x, f=f: f(x, 2), ("any",))


def stats() -> Iterator[Function]:
    """The functions of `jax.scipy.stats`, by value, shapes, location and scale."""
    module = importlib.import_module("jax.scipy.stats")
    for family, own in sorted(vars(module).items()):
        for name, f in sorted(vars(own).items()) if inspect.ismodule(own) else ():
            if re.fullmatch("(log)?(pdf|pmf|cdf|sf)|ppf|isf|entropy", name):
                kinds = ["share" if name in ("ppf", "isf") else "any"]
                given = [one for one in inspect.signature(f).parameters if one != "method"]
                kinds += ["real" if one == "loc" else "positive" for one in given[1:]]
                kinds = ["whole" if a in WHOLE else k for a, k in zip(given, kinds, strict=True)]
                yield Function(f"jax.scipy.stats.{family}.{name}", "jax", f, tuple(kinds))


def distributions() -> Iterator[Function]:
    """Methods and divergences of PyTorch's families of one real number."""
    import torch

    module = torch.distributions
    for kind in (getattr(module, name) for name in module.__all__):
        known = getattr(kind, "arg_constraints", None)
        if not isinstance(known, dict) or any(
            getattr(one, "event_dim", 0) for one in known.values()
        ):
            continue
        for label, names, fixed in parametrisations(kind):
            kinds = tuple(drawn_for(known.get(one, kind.support)) for one in names)

            def build(*given: Any, kind: Any = kind, names: Any = names, fixed: Any = fixed) -> Any:
                named = dict(zip(names, given, strict=True)) | {one: FIXED[one] for one in fixed}
                return kind(**named, validate_args=False)

            def within(*given: Any, build: Any = build) -> Any:
                return build(*given[:-1]).support.check(given[-1])

            def divergence(*given: Any, build: Any = build, n: int = len(names)) -> Any:
                return module.kl_divergence(build(*given[:n]), build(*given[n:]))

            own = {"log_prob": drawn_for(kind.support), "cdf": "any", "icdf": "share"}
            for method in METHODS:
                of = (own[method],) if method in own else ()

                def f(*given: Any, build: Any = build, method: str = method) -> Any:
                    count = len(given) - (method in OF_VALUES)
                    found = getattr(build(*given[:count]), method)
                    return found(*given[count:]) if callable(found) else found

                asked = within if method in ("log_prob", "cdf") else None
                yield Function(f"torch {label}.{method}", "torch", f, (*kinds, *of), asked)
            yield Function(f"torch kl_divergence {label}", "torch", divergence, kinds * 2)


def drawn_for(constraint: Any) -> str:
    """The kind of numbers for a parameter or a value."""
    said = str(constraint)
    if "nteger" in said or "Boolean" in said:
        return "whole"
    return "share" if "Interval" in said else "positive" if "Greater" in said else "real"


# ---------------------------------------------------------------- one function


def judged(one: Function, count: int, dtype: str, seed: int) -> list[dict[str, Any]]:
    """What each derivative of a function comes to, at points at which the function has a value."""
    backend, rng = backend_named(one.engine), np.random.default_rng(seed)
    place = lambda x: backend.arrays.make(x, dtype)  # noqa: E731
    xs = [np.asarray(DRAWN[kind](rng, 8 * count), dtype).astype(float) for kind in one.kinds]
    with np.errstate(all="ignore"):
        value = np.asarray(backend.arrays.to_host(one.f(*map(place, xs))), float)
        few = backend.arrays.to_host(one.f(*(place(x[:3]) for x in xs)))
    if value.shape != xs[0].shape or not np.array_equal(few, value[:3], equal_nan=True):
        raise ValueError("it is not elementwise")
    good = np.isfinite(value)
    if one.within is not None:
        good &= np.asarray(backend.arrays.to_host(one.within(*map(place, xs))), bool)
    chosen = np.flatnonzero(good)[:count]
    xs = [x[chosen] for x in xs]
    rows = []
    for which in (k for k, kind in enumerate(one.kinds) if kind != "whole"):
        for at in np.array_split(np.arange(len(chosen)), max(1, len(chosen) // CHUNK)):
            rows += compared(one, backend, [place(x[at]) for x in xs], which, dtype)
    return rows


def compared(one: Function, backend: Any, xs: list[Any], which: int, dtype: str) -> list[Any]:
    """The engine's derivatives beside their enclosures."""
    f = lambda moved: (one.f(*xs[:which], moved[0], *xs[which + 1 :]),)  # noqa: E731
    host = np.asarray(backend.arrays.to_host(xs[which]), float)
    eps, ones = float(np.finfo(dtype).eps), np.ones(host.size)
    outputs, pull = backend.vjp(f, (xs[which],))
    found = pull(tuple(0 * y + 1 for y in outputs))[0]
    if found is None:
        raise ValueError("it has no derivative")
    slope = np.asarray(backend.arrays.to_host(found), float)
    try:
        program, exact = backend.program(f, (xs[which],)), Exact(10**8, Roundings(eps, 1))
        link: Any = SimpleNamespace(program=lambda _x: program, inputs=lambda v: [v])
        exact.require(link, host)
        along = Direction(ones, 1.0, np.inf, np.inf)
        true = exact.along(link, host, along)
        still = replace(along, vector=np.concatenate([ones, 0 * ones]))
        twice = Exact(10**8).tangent_along(link, host, ones, still)
        own = true.error if true.own_error is None else true.own_error
        lost = not np.isfinite(true.value).any()
    except AdjudgeError as error:
        if host.size == 1 or "no translation" in str(error):
            return [{"kind": UNKNOWN, "why": first_line(error)}] * host.size
        lost = True
    if lost and host.size > 1:  # a comparison is not decided at one of them, say
        parts = ([x[k : k + 1] for x in xs] for k in range(host.size))
        return [row for part in parts for row in compared(one, backend, part, which, dtype)]
    # What a value is off by may show in a rule that is written with it.
    by_values = np.nan_to_num(true.error - own, nan=np.inf)
    bar = own + by_values / np.clip(abs(host), 1e-300, 1.0)
    bend = np.nan_to_num(abs(twice.value[: host.size] * host), nan=np.inf)
    rows = []
    for k, (a, t) in enumerate(zip(slope.tolist(), true.value.tolist(), strict=True)):
        interval = None if true.balls is None else enclosure_of(true.balls[[k]], np.ones(1))
        if interval is None or not np.isfinite(t) or true.half_gap is not None:
            rows.append({"kind": UNKNOWN, "why": str(true.method.reference)})
            continue
        least, most = float(np.finfo(dtype).tiny), float(np.finfo(dtype).max)
        off = abs(a - t) if np.isfinite(a) else np.inf
        near = off <= OFF[dtype] * abs(t) + UNITS * eps * bend[k] + least / eps
        kind = RIGHT if near or abs(t) > most * eps else ROUNDING if off <= bar[k] else WRONG
        point = [float(np.asarray(backend.arrays.to_host(x))[k]) for x in xs]
        row = {"kind": kind, "by": which, "at": point, "automatic": a, "true": t}
        told_as = f"{t:.17g} ± {interval.radius}"
        rows.append(row | {"off": off / abs(t) if t else np.inf, "enclosure": told_as})
    return rows


def first_taken(forms: list[Function], args: argparse.Namespace) -> list[dict[str, Any]]:
    """The outcomes of the first form that a function takes; none where it takes none."""
    warnings.simplefilter("ignore")
    for one in forms:
        try:
            return judged(one, args.points, args.dtype, args.seed)
        except Exception as error:  # it takes something else
            told(f"{one.name}{one.kinds}: {type(error).__name__}: {first_line(error, 60)}")
    return []


def swept(functions: Iterator[Function], args: argparse.Namespace) -> dict[str, list[Any]]:
    """The outcomes of all functions, each in a process of its own, since some never end."""
    found: dict[str, list[Any]] = {}
    for name, forms in itertools.groupby(functions, lambda one: one.name):
        if not re.search(args.match, name):
            continue
        ways = list(forms)
        positive = [replace(one, kinds=(("positive",) * len(one.kinds))) for one in ways]
        rows = [{"kind": UNKNOWN, "why": "it takes too long"}]
        for asked in (ways, positive):  # a loop may never end off its domain
            try:
                rows = isolated(first_taken, asked, args, seconds=args.limit)
            except RuntimeError as error:
                told(name, first_line(error))
            else:
                break
        if rows:
            found[name] = rows
            told(name, dict(Counter(row["kind"] for row in rows)))
    return found


def main() -> None:
    """Asks, and prints what is wrong and how many derivatives were asked about."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("modules", nargs="*", default=MODULES)
    parser.add_argument("--match", default="")
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--dtype", choices=OFF, default="float64")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for a function")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if any(one.startswith("jax") for one in args.modules):
        import jax

        jax.config.update("jax_enable_x64", True)
    if any(one.startswith("torch") for one in args.modules):  # imports it before it forks
        import torch

        x = torch.ones(3, dtype=torch.float64, requires_grad=True)
        examine(torch.sin, x, reference="exact")
    found: dict[str, list[Any]] = {}
    for module in args.modules:
        ways = {"torch.distributions": distributions, "jax.scipy.stats": stats}
        found |= swept(ways.get(module, lambda m=module: special(m))(), args)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))
    rows = list(itertools.chain(*found.values()))
    counts = Counter(row["kind"] for row in rows)
    print(header("Slopes", ("adjudge", "python-flint", "torch", "jax")))
    print(f"{len(found)} functions, {len(rows)} derivatives: {dict(counts)}\n")
    listed = []
    for kind, (name, own) in itertools.product((WRONG, ROUNDING), found.items()):
        bad = [row for row in own if row["kind"] == kind]
        for by in sorted({row["by"] for row in bad}):
            mine = [row for row in bad if row["by"] == by]
            worst = max(mine, key=lambda row: (np.isfinite(row["automatic"]), row["off"]))
            where = ", ".join(f"{x:.17g}" for x in worst["at"])
            listed.append((kind, name, by, len(mine), where, f"{worst['automatic']:.10g}",
                           worst["enclosure"], f"{worst['off']:.0e}"))  # fmt: skip
    head = ("", "function", "by", "points", "worst at", "automatic", "true", "off")
    print(table(head, listed))
    why = Counter(row["why"] for row in rows if row["kind"] == UNKNOWN)
    print(table(("not enclosed", "derivatives"), why.most_common(12)))


if __name__ == "__main__":
    sys.exit(main())
