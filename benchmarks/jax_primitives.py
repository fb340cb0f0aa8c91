"""How many correct and planted-wrong derivatives of JAX's primitives each checker tells apart."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
import re
import sys
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
from isolation import spread
from tables import first_line, header, table

DELTAS = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-6)
DTYPES = ("float64", "complex128", "float32", "complex64")
DOUBLE = ("float64", "complex128")
# A planted error must show: its column of the Jacobian is at least this share of the largest one.
COLUMN_SHARE = 0.1
COLUMN_PROBES = 3
PARTS = 12
"""Of the harnesses of a dtype; a part is what a process takes at a time."""
SLOW = 3.0
"""Checks of the cases as they are that take less processor time are timed more than once."""
# Harnesses whose derivative in JAX 0.10.2 is not that of the function: here a rejection is right.
REJECTION_IS_RIGHT = {
    r"^stop_gradient_": "cuts the derivative on purpose",
    r"^bitcast_convert_type_": "declares the derivative zero, though the value moves",
    r"^reduce_precision_": "is a staircase, with the derivative of the identity",
    r"^convert_element_type_.*newdtype_(bfloat16|float16|float8|float4|u?int|bool)": (
        "is a staircase, with the derivative of the identity"
    ),
    r"^acosh_shape_complex": "has the wrong sign in half of the plane",
    r"^cholesky_shape_complex": "ignores the imaginary diagonal, its derivative does not",
    r"^sign_shape_complex": "declares the derivative zero, though z/|z| turns with z",
    r"^digamma_": "is that of polygamma(1, x), which is wrong at some x < -8",
    r"^eigh_": "is given a triangular matrix, which jvp and vjp take for its symmetric part",
    r"^reduce_gen_add_.*initvalue_[1-9]": "loses the initial value in the primal of jvp and vjp",
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A harness as a function of its floating-point leaves alone."""

    name: str
    group: str
    dtype: str
    f: Callable[..., Any]
    args: tuple[Any, ...]
    modes: tuple[str, ...]
    kind: str
    size: int


@dataclasses.dataclass(frozen=True)
class Skip:
    """A harness that no judge sees, and why."""

    name: str
    dtype: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Site:
    """The element of an argument whose derivative is falsified."""

    leaf: int
    element: int


@dataclasses.dataclass(frozen=True)
class Ruling:
    """What one judge said of one case; `delta` is 0 where nothing was planted."""

    judge: str
    name: str
    dtype: str
    kind: str
    delta: float
    verdict: str
    line: str
    seconds: float
    cpu: float
    cold: float = 0.0
    """Processor time of the first check, what JAX compiles for it included."""


Judge = Callable[[Callable[..., Any], tuple[Any, ...], tuple[str, ...]], tuple[str, str]]


# ---------------------------------------------------------------- cases


def is_inexact(leaf: Any) -> bool:
    """Whether a leaf is an array or number of a floating-point or complex type."""
    dtype = getattr(leaf, "dtype", None)
    dtype = np.asarray(leaf).dtype if dtype is None else dtype
    return bool(jnp.issubdtype(dtype, jnp.inexact))


def reason(error: BaseException) -> str:
    """The exception's type and what its first line says."""
    return first_line(f"{type(error).__name__}: {error}", 240)


def of_leaves(harness: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The harness as a function of its inexact leaves, and these leaves."""
    rng = np.random.RandomState(zlib.crc32(harness.fullname.encode()))
    leaves, structure = jax.tree.flatten(harness.dyn_args_maker(rng))
    moving = [i for i, leaf in enumerate(leaves) if is_inexact(leaf)]

    def f(*args: Any) -> Any:
        filled = list(leaves)
        for i, arg in zip(moving, args, strict=True):
            filled[i] = arg
        values = jax.tree.leaves(harness.dyn_fun(*jax.tree.unflatten(structure, filled)))
        return tuple(value for value in values if is_inexact(value))

    return f, tuple(jnp.asarray(leaves[i]) for i in moving)


def random_like(rng: np.random.Generator, x: Any) -> Any:
    """A normal array of the shape and dtype of `x`."""
    values = rng.standard_normal(x.shape)
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        values = values + 1j * rng.standard_normal(x.shape)
    return jnp.asarray(values, x.dtype)


def pull_back(f: Callable[..., Any], args: tuple[Any, ...]) -> list[np.ndarray]:
    """Mean magnitudes of `J* w` over a few random `w`: how much each element matters."""
    rng = np.random.default_rng(0)
    values, vjp = jax.vjp(f, *args)
    total = [np.zeros(x.size) for x in args]
    for _ in range(COLUMN_PROBES):
        pulled = vjp(tuple(random_like(rng, value) for value in values))
        for sums, part in zip(total, pulled, strict=True):
            sums += np.abs(np.asarray(part)).ravel() / COLUMN_PROBES
    return total


def push_forward(f: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """`J v` at a random tangent."""
    rng = np.random.default_rng(0)
    return jax.jvp(f, args, tuple(random_like(rng, x) for x in args))


def supported_modes(
    f: Callable[..., Any], args: tuple[Any, ...]
) -> tuple[tuple[str, ...], list[str]]:
    """The modes in which JAX differentiates `f`, and its reasons against the others."""
    modes, reasons = [], []
    for mode, attempt in (("fwd", push_forward), ("rev", pull_back)):
        try:
            attempt(f, args)
        except Exception as error:  # any refusal is a reason
            reasons.append(f"{mode}: {reason(error)}")
        else:
            modes.append(mode)
    return tuple(modes), reasons


def kind_of(name: str, f: Callable[..., Any], args: tuple[Any, ...]) -> str:
    """`wrong` where a rejection is right, `not finite`, or `ordinary`."""
    if any(re.search(pattern, name) for pattern in REJECTION_IS_RIGHT):
        return "wrong"
    finite = all(bool(np.all(np.isfinite(np.asarray(x)))) for x in (*args, *f(*args)))
    return "ordinary" if finite else "not finite"


def case_of(harness: Any, dtype: str) -> Case | Skip:
    """The harness as a case, or the reason why it is none."""
    skip = functools.partial(Skip, harness.fullname, dtype)
    platform = jax.default_backend()
    if not harness.filter(platform):
        return skip(f"declared as not implemented by JAX on the platform {platform}")
    try:
        f, args = of_leaves(harness)
    except Exception as error:
        return skip(f"arguments cannot be made: {reason(error)}")
    if not sum(x.size for x in args):
        return skip("no floating-point inputs")
    try:
        shapes = jax.eval_shape(f, *args)
    except Exception as error:
        return skip(f"cannot be traced: {reason(error)}")
    m = sum(int(np.prod(shape.shape)) for shape in shapes)
    if not m:
        return skip("no floating-point outputs")
    modes, reasons = supported_modes(f, args)
    if not modes:
        return skip(f"not differentiable by JAX: {reasons[0]}")
    kind = kind_of(harness.fullname, f, args)
    size = max(m, sum(x.size for x in args))
    return Case(harness.fullname, harness.group_name, dtype, f, args, modes, kind, size)


@functools.cache
def all_harnesses() -> list[Any]:
    """JAX's harnesses; what defines them starts JAX, which may not be forked then."""
    with jax.enable_x64(True):  # those of float64 are defined only while x64 is on
        from jax._src.internal_test_util import test_harnesses
    return list(test_harnesses.all_harnesses)


def choose(options: argparse.Namespace, dtype: str, part: int) -> tuple[list[Case], list[Skip]]:
    """The cases of a part of one dtype: the first of each group that differentiates, or all."""
    harnesses = [h for h in all_harnesses() if np.dtype(h.dtype).name == dtype]
    harnesses = [h for h in harnesses if re.search(options.match, h.fullname)]
    harnesses.sort(key=lambda h: (h.group_name, h.fullname))  # defined in the order of a set
    groups: dict[str, list[Any]] = {}
    for harness in harnesses:
        groups.setdefault(harness.group_name, []).append(harness)
    cases: list[Case] = []
    skips: list[Skip] = []
    for name in list(groups)[:: options.every][part::PARTS]:
        taken, left_out = of_group(groups[name], dtype, every=options.all)
        cases += taken
        skips += left_out
    return cases, skips


def of_group(harnesses: Sequence[Any], dtype: str, *, every: bool) -> tuple[list[Case], list[Skip]]:
    """The cases of a group; of one without any the first reason."""
    cases: list[Case] = []
    skips: list[Skip] = []
    for harness in harnesses:
        found = case_of(harness, dtype)
        if isinstance(found, Skip):
            skips.append(found)
        else:
            cases.append(found)
            if not every:
                break
    return cases, skips if every else skips[:1] if not cases else []


# ---------------------------------------------------------------- planted errors


def site_of(case: Case) -> Site | None:
    """An element whose derivative is not negligible, drawn with a seed from the case's name."""
    if "rev" not in case.modes:
        return None
    rng = np.random.default_rng(zlib.crc32(case.name.encode()))
    for leaf, column in enumerate(pull_back(case.f, case.args)):
        finite = np.where(np.isfinite(column), column, 0.0)
        if finite.size and finite.max() > 0:
            eligible = np.flatnonzero(finite >= COLUMN_SHARE * finite.max())
            return Site(leaf, int(rng.choice(eligible)))
    return None


def plant(f: Callable[..., Any], x: Any, site: Site, delta: float) -> Callable[..., Any]:
    """`f` with the same values, and one column of the Jacobian times `1 + delta`."""
    scale = np.ones(x.size)
    scale[site.element] += delta
    scale = scale.reshape(x.shape).astype(np.finfo(x.dtype).dtype)

    @jax.custom_jvp
    def identity(x: Any) -> Any:
        return x

    @identity.defjvp
    def _(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
        return primals[0], tangents[0] * scale

    def planted(*args: Any) -> Any:
        i = site.leaf
        return f(*args[:i], identity(args[i]), *args[i + 1 :])

    return planted


# ---------------------------------------------------------------- judges


def judge_jax(
    f: Callable[..., Any], args: tuple[Any, ...], modes: tuple[str, ...]
) -> tuple[str, str]:
    """`jax.test_util.check_grads` with its defaults."""
    try:
        jax.test_util.check_grads(f, args, order=1, modes=modes)
    except AssertionError as error:
        return "reject", telling_line(error)
    return "pass", ""


def telling_line(error: AssertionError) -> str:
    """The lines of a NumPy comparison that carry numbers, on one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(line for line in lines if not line.startswith(("ACTUAL", "DESIRED")))[:240]


VERDICTS = {"PASS": "pass", "FAIL": "reject", "INCONCLUSIVE": "inconclusive"}


def judge_adjudge(
    f: Callable[..., Any],
    args: tuple[Any, ...],
    modes: tuple[str, ...],
    *,
    fast_mode: bool | None,
) -> tuple[str, str]:
    """`adjudge.gradcheck` in the given mode."""
    import adjudge

    report = adjudge.gradcheck(
        f,
        args,
        raise_exception=False,
        fast_mode=fast_mode,
        check_forward_ad="fwd" in modes,
        check_backward_ad="rev" in modes,
        seed=0,
    )
    verdict = VERDICTS[report.verdict]
    return verdict, "" if verdict == "pass" else report.headline[:240]


def judge_door(
    f: Callable[..., Any], args: tuple[Any, ...], modes: tuple[str, ...]
) -> tuple[str, str]:
    """`adjudge_jax.check_grads`, the drop-in for JAX's."""
    import adjudge
    import adjudge_jax

    try:
        adjudge_jax.check_grads(f, args, order=1, modes=modes)
    except adjudge.GradcheckError as error:
        return VERDICTS[error.report.verdict], error.report.headline[:240]
    return "pass", ""


JUDGES: dict[str, Judge] = {
    "jax": judge_jax,
    "default": functools.partial(judge_adjudge, fast_mode=None),
    "full": functools.partial(judge_adjudge, fast_mode=False),
    "projected": functools.partial(judge_adjudge, fast_mode=True),
    "door": judge_door,
}


def rule(name: str, case: Case, f: Callable[..., Any], delta: float) -> Ruling:
    """One judge's ruling of one function."""
    start, start_cpu = time.perf_counter(), time.process_time()
    try:
        verdict, line = JUDGES[name](f, case.args, case.modes)
    except Exception as error:  # a judge must not end the comparison
        verdict, line = "crash", reason(error)
    wall, cpu = time.perf_counter() - start, time.process_time() - start_cpu
    return Ruling(name, case.name, case.dtype, case.kind, delta, verdict, line, wall, cpu)


def clean_rulings(case: Case, judges: Sequence[str], repeats: int) -> list[Ruling]:
    """Every judge on a case as it is: once after all that JAX compiled was dropped, and then,
    for the least time, several times in turn.
    """
    found = {}
    for judge in judges:
        jax.clear_caches()
        first = rule(judge, case, case.f, 0.0)
        found[judge] = dataclasses.replace(first, cold=first.cpu)
    for _ in range(repeats):
        for judge in judges:
            if found[judge].cold < SLOW:
                again = rule(judge, case, case.f, 0.0)
                least = {key: min(getattr(found[judge], key), getattr(again, key)) for key in TIMES}
                found[judge] = dataclasses.replace(found[judge], **least)
    return list(found.values())


TIMES = ("seconds", "cpu")


def rulings(case: Case, site: Site | None, options: argparse.Namespace) -> Iterator[Ruling]:
    """Every judge on a case as it is, and with each planted error."""
    judges = [j for j in options.judges if j != "full" or case.size <= options.full_limit]
    yield from clean_rulings(case, judges, options.repeats)
    if site is None:
        return
    for delta in options.deltas:
        wrong = plant(case.f, case.args[site.leaf], site, delta)
        for judge in judges:
            if judge != "full" or options.planted_full:
                yield rule(judge, case, wrong, delta)


# ---------------------------------------------------------------- tables


def clean_table(found: Sequence[Ruling], judges: Sequence[str]) -> str:
    """What each judge said of the derivatives as they are, and how long it took."""
    rows = []
    jax_clean = [r for r in found if r.judge == "jax" and r.delta == 0]
    first, peer = sum(r.cold for r in jax_clean), sum(r.cpu for r in jax_clean)
    for judge in judges:
        mine = [r for r in found if r.judge == judge]
        clean = [r for r in mine if r.delta == 0]
        counts = Counter(r.verdict for r in clean)
        rejected = Counter(r.kind for r in clean if r.verdict == "reject")
        cpu, cold = sum(r.cpu for r in clean), sum(r.cold for r in clean)
        rows.append(
            (
                judge,
                counts.total(),
                counts["pass"],
                *(rejected[kind] for kind in ("ordinary", "not finite", "wrong")),
                counts["inconclusive"],
                counts["crash"],
                f"{cold:.2f}",
                f"{cold / first:.2f}" if first else "-",
                f"{cpu:.2f}",
                f"{cpu / peer:.2f}" if peer else "-",
                f"{sum(r.seconds for r in clean):.2f}",
                f"{sum(r.seconds for r in mine):.0f}",
            )
        )
    head = ("judge", "pairs", "pass", "false alarm", "reject: not finite", "reject: rightly")
    times = ("first s", "to jax", "least s", "to jax", "least wall s", "wall s with planted")
    note = (
        "\nProcessor seconds for the cases as they are. First: with nothing compiled before. "
        "Least: of several checks more, in turn with the other judges.\n"
    )
    return table((*head, "inconclusive", "crash", *times), rows) + note


def planted_tables(found: Sequence[Ruling], options: argparse.Namespace) -> str:
    """How many planted errors each judge rejects: of all, of the ordinary cases, and of those
    ordinary ones that JAX's check accepts as they are.
    """
    accepted = {(r.judge, r.name) for r in found if r.delta == 0 and r.verdict == "pass"}
    ordinary = {r.name for r in found if r.kind == "ordinary"}
    known = {name for name in ordinary if ("jax", name) in accepted}
    groups = {"All": None, "Of finite cases whose derivative is right": ordinary}
    if "jax" in options.judges:
        groups["Of these, that check_grads accepts as they are"] = known
    parts = []
    for title, names in groups.items():
        some = [r for r in found if names is None or r.name in names]
        parts += [f"{title}:\n", planted_table(some, accepted, options)]
    note = (
        "`(k?)`: k are called inconclusive. Planted is in the first input with a derivative, in "
        "one element drawn, seeded by the case's name, from those whose mean cotangent is at least "
        f"{COLUMN_SHARE:g} of the largest; its column of the Jacobian is multiplied by 1 + delta. "
        "Counted are rejections by a judge that passes the case as it is.\n"
    )
    return "\n".join([*parts, note])


def planted_table(
    found: Sequence[Ruling], accepted: set[tuple[str, str]], options: argparse.Namespace
) -> str:
    """How many planted errors each judge rejects; not counted where it rejects without one."""
    rows = []
    for judge in options.judges:
        cells = []
        for delta in options.deltas:
            there = [r for r in found if r.judge == judge and r.delta == delta]
            caught = sum(r.verdict == "reject" and (judge, r.name) in accepted for r in there)
            unsure = sum(r.verdict == "inconclusive" for r in there)
            share = f" {100 * caught / len(there):.1f} %" if there else ""
            cells.append(f"{caught}/{len(there)}{share}" + (f" ({unsure}?)" if unsure else ""))
        rows.append((judge, *cells))
    return table(("judge", *(f"delta {delta:g}" for delta in options.deltas)), rows)


def missed(found: Sequence[Ruling]) -> list[Ruling]:
    """Planted errors in ordinary cases that one of our judges does not reject."""
    return [
        r
        for r in found
        if r.delta and r.judge != "jax" and r.kind == "ordinary" and r.verdict != "reject"
    ]


def listed(title: str, found: Sequence[Ruling]) -> str:
    """Rulings under a title, one a line; those that differ in delta alone share a line."""
    lines: dict[str, list[str]] = {}
    for r in found:
        note = "" if r.kind == "ordinary" else f" ({r.kind})"
        line = f"- {r.judge}: {r.name} {r.dtype}{note}: {r.line}"
        lines.setdefault(line, []).append(f"{r.delta:g}")
    shown = [
        line if deltas == ["0"] else f"{line} (delta {', '.join(deltas)})"
        for line, deltas in lines.items()
    ]
    return "\n".join([f"\n### {title}: {len(shown)}\n", *shown])


def only_ours(found: Sequence[Ruling]) -> list[Ruling]:
    """Unplanted cases that one of our judges rejects where JAX's does not."""
    clean = [r for r in found if r.delta == 0]
    jax_rejects = {(r.name, r.dtype) for r in clean if r.judge == "jax" and r.verdict == "reject"}
    ours = [r for r in clean if r.judge != "jax" and r.verdict == "reject"]
    return [r for r in ours if (r.name, r.dtype) not in jax_rejects]


def print_results(
    found: Sequence[Ruling], skips: Sequence[Skip], options: argparse.Namespace
) -> None:
    """The tables and lists."""
    clean = [r for r in found if r.delta == 0]
    for dtype in options.dtypes:
        part = [r for r in found if r.dtype == dtype]
        print(f"\n### {dtype}\n\nAs they are:\n\n{clean_table(part, options.judges)}")
        print(f"\n#### Planted errors that are rejected\n\n{planted_tables(part, options)}")
    print(listed("Crashes", [r for r in found if r.verdict == "crash"]))
    print(listed("Rejected as they are", [r for r in clean if r.verdict == "reject"]))
    print(listed("Of these, not rejected by JAX's checker", only_ours(found)))
    print(
        listed("Planted errors that are not rejected, derivative right and finite", missed(found))
    )
    print(listed("Inconclusive as they are", [r for r in clean if r.verdict == "inconclusive"]))
    print(f"\n### Skipped: {len(skips)}\n")
    for skip in skips:
        print(f"- {skip.name} {skip.dtype}: {skip.reason[:200]}")


# ---------------------------------------------------------------- command line


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    judges = ("jax", "default", "projected")
    parser.add_argument("--judges", nargs="+", choices=list(JUDGES), default=list(judges))
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=["float64", "float32"])
    parser.add_argument("--deltas", nargs="*", type=float, default=list(DELTAS))
    parser.add_argument("--match", default="", help="regular expression on harness names")
    parser.add_argument("--every", type=int, default=1, help="take every Nth case")
    parser.add_argument("--all", action="store_true", help="every harness, not one a group")
    parser.add_argument(
        "--full-limit",
        type=int,
        default=2000,
        help="largest number of inputs, or of outputs, that full mode is asked to check",
    )
    parser.add_argument(
        "--planted-full", action="store_true", help="planted errors for full mode too"
    )
    parser.add_argument("--repeats", type=int, default=3, help="of a quick check, to time it")
    parser.add_argument("--processes", type=int, default=2, help="parts at a time")
    parser.add_argument("--json", type=Path, help="write every ruling to this file")
    parser.add_argument("--device", help="cpu or cuda; default: that which JAX takes")
    options = parser.parse_args(arguments)
    if options.device:
        take_platform(options.device)
        if options.device != "cpu":
            options.processes = 1  # one process holds the device
    return options


def take_platform(device: str) -> None:
    """JAX makes its arrays there from now on: before it has made the first."""
    kind = device.partition(":")[0]
    jax.config.update("jax_platforms", "cpu" if kind == "cpu" else f"{kind},cpu")


def work(options: argparse.Namespace, item: tuple[str, int]) -> tuple[list[Ruling], list[Skip]]:
    """All rulings of a part of a dtype."""
    dtype, part = item
    found: list[Ruling] = []
    with jax.enable_x64(dtype in DOUBLE):
        cases, skips = choose(options, dtype, part)
        for case in cases:
            found += rulings(case, site_of(case), options)
    return found, skips


def prepare(options: argparse.Namespace) -> Callable[[tuple[str, int]], Any]:
    """What a process does with its items, after the imports that no judge should pay for."""
    warnings.simplefilter("ignore")
    all_harnesses()
    x = (jnp.linspace(0.1, 1.0, 3),)
    for judge in options.judges:
        with contextlib.suppress(Exception):
            JUDGES[judge](jnp.sin, x, ("fwd", "rev"))
    return functools.partial(work, options)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the comparison."""
    options = parse(arguments)
    found: list[Ruling] = []
    skips: list[Skip] = []
    print(header("JAX primitives", ("adjudge", "jax", "jaxlib", "numpy")))
    items = [(dtype, part) for dtype in options.dtypes for part in range(PARTS)]
    start = time.perf_counter()
    results = spread(functools.partial(prepare, options), items, options.processes)
    for number, ((dtype, part), (rulings_of, skips_of)) in enumerate(results, start=1):
        found += rulings_of
        skips += skips_of
        progress = f"{number}/{len(items)} {dtype} part {part}"
        print(f"{progress} {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    found.sort(key=lambda r: (r.dtype, r.name))
    skips.sort(key=lambda skip: (skip.dtype, skip.name))
    if options.json:
        options.json.write_text(json.dumps([dataclasses.asdict(r) for r in found], indent=1))
    print_results(found, skips, options)


if __name__ == "__main__":
    main()
