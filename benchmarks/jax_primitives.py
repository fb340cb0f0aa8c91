"""How many correct and planted-wrong derivatives of JAX's primitives each checker tells apart."""

from __future__ import annotations

import argparse
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
from tables import first_line, header, table

with jax.enable_x64(True):  # the float64 harnesses are defined only while x64 is on
    from jax._src.internal_test_util import test_harnesses

DELTAS = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-6)
DTYPES = ("float64", "complex128", "float32", "complex64")
DOUBLE = ("float64", "complex128")
# A planted error must show: its column of the Jacobian is at least this share of the largest one.
COLUMN_SHARE = 0.1
COLUMN_PROBES = 3
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
    if not harness.filter("cpu"):
        return skip("declared as not implemented by JAX on the CPU")
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


def choose(options: argparse.Namespace, dtype: str) -> tuple[list[Case], list[Skip]]:
    """The cases of one dtype: the first of each group that differentiates, or all of them."""
    harnesses = [h for h in test_harnesses.all_harnesses if np.dtype(h.dtype).name == dtype]
    harnesses = [h for h in harnesses if re.search(options.match, h.fullname)]
    harnesses.sort(key=lambda h: (h.group_name, h.fullname))  # defined in the order of a set
    cases: list[Case] = []
    skips: list[Skip] = []
    taken: set[str] = set()
    for harness in harnesses:
        if harness.group_name in taken and not options.all:
            continue
        found = case_of(harness, dtype)
        if isinstance(found, Skip):
            skips.append(found)
        else:
            cases.append(found)
            taken.add(harness.group_name)
    if options.all:
        return cases[:: options.every], skips
    return cases[:: options.every], without_taken(skips, harnesses, taken)


def without_taken(skips: list[Skip], harnesses: Sequence[Any], taken: set[str]) -> list[Skip]:
    """One skip for each group of which no harness became a case."""
    groups = {h.fullname: h.group_name for h in harnesses}
    first: dict[str, Skip] = {}
    for skip in skips:
        if groups[skip.name] not in taken:
            first.setdefault(groups[skip.name], skip)
    return list(first.values())


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
    start = time.perf_counter()
    try:
        verdict, line = JUDGES[name](f, case.args, case.modes)
    except Exception as error:  # a judge must not end the comparison
        verdict, line = "crash", reason(error)
    seconds = time.perf_counter() - start
    return Ruling(name, case.name, case.dtype, case.kind, delta, verdict, line, seconds)


def rulings(case: Case, site: Site | None, options: argparse.Namespace) -> Iterator[Ruling]:
    """Every judge on a case as it is, and with each planted error."""
    for judge in options.judges:
        if judge == "full" and case.size > options.full_limit:
            continue
        yield rule(judge, case, case.f, 0.0)
        if site is None:
            continue
        for delta in options.deltas:
            wrong = plant(case.f, case.args[site.leaf], site, delta)
            yield rule(judge, case, wrong, delta)


# ---------------------------------------------------------------- tables


def clean_table(found: Sequence[Ruling], judges: Sequence[str]) -> str:
    """What each judge said of the derivatives as they are."""
    rows = []
    for judge in judges:
        mine = [r for r in found if r.judge == judge]
        counts = Counter(r.verdict for r in mine if r.delta == 0)
        rejected = Counter(r.kind for r in mine if r.delta == 0 and r.verdict == "reject")
        rows.append(
            (
                judge,
                counts.total(),
                counts["pass"],
                *(rejected[kind] for kind in ("ordinary", "not finite", "wrong")),
                counts["inconclusive"],
                counts["crash"],
                f"{sum(r.seconds for r in mine):.0f}",
            )
        )
    head = ("judge", "pairs", "pass", "false alarm", "reject: not finite", "reject: rightly")
    return table((*head, "inconclusive", "crash", "seconds with planted"), rows)


def planted_table(found: Sequence[Ruling], options: argparse.Namespace) -> str:
    """How many planted errors each judge rejects; not counted where it rejects without one."""
    rows = []
    for judge in options.judges:
        mine = [r for r in found if r.judge == judge]
        before = {(r.name, r.dtype) for r in mine if r.delta == 0 and r.verdict == "reject"}
        cells = []
        for delta in options.deltas:
            there = [r for r in mine if r.delta == delta]
            caught = sum(r.verdict == "reject" and (r.name, r.dtype) not in before for r in there)
            unsure = sum(r.verdict == "inconclusive" for r in there)
            cells.append(f"{caught}/{len(there)}" + (f" ({unsure}?)" if unsure else ""))
        rows.append((judge, *cells))
    return table(("judge", *(f"delta {delta:g}" for delta in options.deltas)), rows)


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
        print(f"\nPlanted errors caught (`?`: inconclusive):\n\n{planted_table(part, options)}")
    print(listed("Crashes", [r for r in found if r.verdict == "crash"]))
    print(listed("Rejected as they are", [r for r in clean if r.verdict == "reject"]))
    print(listed("Of these, not rejected by JAX's checker", only_ours(found)))
    print(listed("Inconclusive as they are", [r for r in clean if r.verdict == "inconclusive"]))
    print(f"\n### Skipped: {len(skips)}\n")
    for skip in skips:
        print(f"- {skip.name} {skip.dtype}: {skip.reason[:200]}")


# ---------------------------------------------------------------- command line


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    judges = ("jax", "default", "full", "projected")
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
    parser.add_argument("--json", type=Path, help="write every ruling to this file")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the comparison."""
    options = parse(arguments)
    warnings.simplefilter("ignore")
    found: list[Ruling] = []
    skips: list[Skip] = []
    print(header("JAX primitives", ("adjudge", "jax", "jaxlib", "numpy")))
    for dtype in options.dtypes:
        with jax.enable_x64(dtype in DOUBLE):
            cases, left_out = choose(options, dtype)
            skips += left_out
            for k, case in enumerate(cases):
                start = time.perf_counter()
                found += rulings(case, site_of(case), options)
                seconds = time.perf_counter() - start
                progress = f"{dtype} {k + 1}/{len(cases)} {case.name} {seconds:.1f} s"
                print(progress, file=sys.stderr, flush=True)
    if options.json:
        options.json.write_text(json.dumps([dataclasses.asdict(r) for r in found], indent=1))
    print_results(found, skips, options)


if __name__ == "__main__":
    main()
