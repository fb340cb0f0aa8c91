"""Hostile functions, with right and with planted wrong gradients, through the checkers.

A planted error sits in an identity in front of the function: its value is right, its pullback is
not. A function whose gradient is rounded too badly in a dtype to be called right is counted apart.
"""

import argparse
import enum
import json
import re
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import torch
from isolation import spread
from judges import Answer, Verdict, ask
from tables import first_line, header, table
from torch.autograd.gradcheck import GradcheckError
from torch.utils._python_dispatch import TorchDispatchMode
from zoo_functions import ZOO, JaxNamespace, Kind, Specimen, TorchNamespace

DTYPES = ("float64", "float32", "float16", "bfloat16")
OFF = 0.5
"""A gradient is called right if it is within this times `u^(2/5)` of the one in float64."""
SHOWS = 1e-2
"""A misplaced or dropped entry is planted only where it changes the gradient by this share."""


class Plant(enum.StrEnum):
    """What is done to the gradient of one argument."""

    NOTHING = "right"
    PERCENT = "1+1e-2"
    PERMILLE = "1+1e-3"
    TENTH = "1+1e-4"
    SIGN = "sign"
    DROP = "dropped"
    MOVE = "moved"
    """Transposed, where that keeps the shape; rolled by one otherwise."""
    ADD = "added"
    """Something is added that does not belong there: what another argument gets, a neighbour."""


PLANTED = tuple(plant for plant in Plant if plant is not Plant.NOTHING)
FACTORS = {Plant.PERCENT: 1e-2, Plant.PERMILLE: 1e-3, Plant.TENTH: 1e-4, Plant.SIGN: -2.0}


@dataclass(frozen=True)
class Corruption:
    """A planted error: what becomes of the gradients of all arguments."""

    plant: Plant
    leaf: int
    element: int

    def __call__(self, xp: Any, gradients: Sequence[Any]) -> tuple[Any, ...]:
        """The wrong gradients; linear in the right ones."""
        changed = list(gradients)
        changed[self.leaf] = self._changed(xp, gradients)
        return tuple(changed)

    def _changed(self, xp: Any, gradients: Sequence[Any]) -> Any:
        own = gradients[self.leaf]
        if self.plant in FACTORS:
            return own * (1 + FACTORS[self.plant])
        if self.plant is Plant.DROP:
            mask = np.ones(own.shape)
            mask.flat[self.element] = 0
            return own * xp.const(mask, own)
        if self.plant is Plant.MOVE:
            if own.ndim == 2 and own.shape[0] == own.shape[1]:
                return own.T
            return xp.roll(own.reshape(-1), 1).reshape(own.shape)
        others = [g for k, g in enumerate(gradients) if k != self.leaf and g.shape == own.shape]
        added = others[0] if others else xp.roll(own.reshape(-1), 1).reshape(own.shape)
        return own + added


class _Planted(torch.autograd.Function):
    """The identity of several tensors, with wrong gradients."""

    @staticmethod
    def forward(_corruption: Corruption, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(tensor.clone() for tensor in tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.corruption = inputs[0]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        return (None, *ctx.corruption(TorchNamespace(), gradients))


def jax_planted(corruption: Corruption) -> Callable[..., Any]:
    """The identity of several arrays of JAX, with wrong gradients."""
    import jax

    xp = JaxNamespace()

    @jax.custom_vjp
    def identity(*arrays: Any) -> Any:
        return arrays

    identity.defvjp(lambda *arrays: (arrays, None), lambda _, gs: corruption(xp, gs))
    return identity


# ---------------------------------------------------------------- problems


@dataclass
class Problem:
    """A function at a point in a dtype; what a judge gets."""

    specimen: Specimen
    dtype: str
    seed: int
    corruption: Corruption | None = None
    calls: int = 0

    nondet_tol = 0.0

    def points(self) -> tuple[np.ndarray, ...]:
        """The inputs in float64, rounded to the dtype."""
        kind = getattr(torch, self.dtype)
        drawn = self.specimen.inputs(self.seed, torch.finfo(kind).eps)
        return tuple(torch.tensor(x).to(kind).double().numpy() for x in drawn)

    def torch(self) -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
        """The function of tensors that counts its calls, and the tensors."""
        xp, corruption = TorchNamespace(), self.corruption

        def f(*tensors: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            if corruption is not None:
                tensors = _Planted.apply(corruption, *tensors)
            return self.specimen.f(xp, *tensors)

        f.__name__ = f.__qualname__ = self.specimen.name
        kind = getattr(torch, self.dtype)
        return f, tuple(torch.tensor(x, dtype=kind, requires_grad=True) for x in self.points())

    def jax(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """The function of JAX's arrays that counts its calls, and the arrays."""
        import jax.numpy as jnp

        xp = JaxNamespace()
        identity = (lambda *x: x) if self.corruption is None else jax_planted(self.corruption)

        def f(*arrays: Any) -> Any:
            self.calls += 1
            return self.specimen.f(xp, *identity(*arrays))

        f.__name__ = f.__qualname__ = self.specimen.name
        return f, tuple(jnp.asarray(x, self.dtype) for x in self.points())


def gradients(problem: Problem, dtype: str) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """The value in that dtype, and the gradients under fixed random signs, in float64."""
    f, tensors = Problem(problem.specimen, problem.dtype, problem.seed).torch()
    kind = getattr(torch, dtype)
    tensors = tuple(x.detach().to(kind).requires_grad_() for x in tensors)
    value = f(*tensors)
    signs = np.random.default_rng(problem.seed).choice([-1.0, 1.0], tuple(value.shape))
    found = torch.autograd.grad(value, tensors, torch.tensor(signs, dtype=value.dtype))
    return value.detach().double().numpy(), tuple(g.double().numpy() for g in found)


def size(gradient: np.ndarray, x: np.ndarray) -> float:
    """The norm of a gradient per unit of relative change of x."""
    magnitude = np.abs(x[x != 0])
    if magnitude.size == 0:
        return float(np.linalg.norm(gradient))
    wide = magnitude.max() > 1e4 * magnitude.min()
    scale = np.abs(x) if wide else np.sqrt(np.mean(magnitude**2))
    return float(np.linalg.norm(gradient * scale))


@dataclass(frozen=True)
class Prepared:
    """How a problem counts, and the errors that show in it."""

    kind: str
    corruptions: Sequence[Corruption] = ()
    left_out: str = ""
    wide: bool = True
    """Whether the function computes in float64 throughout when its inputs are float64."""


OFF_KIND = "rounded badly"


class _Narrow(TorchDispatchMode):
    """Notes whether any result is of a floating dtype below float64."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for y in result if isinstance(result, tuple | list) else (result,):
            if isinstance(y, torch.Tensor) and (y.is_floating_point() or y.is_complex()):
                self.seen |= torch.finfo(y.dtype).eps > torch.finfo(torch.float64).eps
        return result


def is_wide(problem: Problem) -> bool:
    """Whether float64 inputs are computed with in float64 throughout."""
    f, tensors = Problem(problem.specimen, problem.dtype, problem.seed).torch()
    doubles = [x.detach().double() for x in tensors]
    with _Narrow() as narrow:
        f(*doubles)
    return not narrow.seen


def prepare(problem: Problem) -> Prepared:
    """Looks at a problem before anyone judges it."""
    prepared = _prepare(problem)
    return prepared if prepared.left_out else replace(prepared, wide=is_wide(problem))


def _prepare(problem: Problem) -> Prepared:
    kind = str(problem.specimen.kind)
    try:
        value, own = gradients(problem, problem.dtype)
        _, exact = gradients(problem, "float64")
    except RuntimeError as error:
        return Prepared(kind, left_out=f"raises: {first_line(error, 80)}")
    if not np.all(np.isfinite(value)):
        return Prepared(kind, left_out="the value is not finite")
    if not all(np.all(np.isfinite(g)) for g in own):
        return Prepared(kind, left_out="the gradient is not finite")
    points = problem.points()
    sizes = [size(g, x) for g, x in zip(exact, points, strict=True)]
    gap = [size(a - b, x) for a, b, x in zip(own, exact, points, strict=True)]
    unit = torch.finfo(getattr(torch, problem.dtype)).eps / 2
    if kind == Kind.SMOOTH and max(gap) > OFF * unit**0.4 * max(sizes):
        return Prepared(OFF_KIND)
    if kind != Kind.SMOOTH:
        return Prepared(kind)
    return Prepared(kind, list(visible(problem, exact, points, sizes)))


def visible(
    problem: Problem,
    exact: Sequence[np.ndarray],
    points: Sequence[np.ndarray],
    sizes: Sequence[float],
) -> Iterator[Corruption]:
    """The planted errors that make a difference, all in one argument."""
    if max(sizes) == 0:
        return
    rng = np.random.default_rng(zlib.crc32(f"{problem.seed}:{problem.specimen.name}".encode()))
    leaf = int(rng.choice([k for k, s in enumerate(sizes) if s >= 0.1 * max(sizes)]))
    weights = np.abs(exact[leaf] * points[leaf]).ravel()
    if not np.any(weights):
        weights = np.abs(exact[leaf]).ravel()
    element = int(rng.choice(np.flatnonzero(weights >= 0.1 * weights.max())))
    tensors = [torch.tensor(g) for g in exact]
    for plant in PLANTED:
        corruption = Corruption(plant, leaf, element)
        bad = corruption(TorchNamespace(), tensors)[leaf].numpy()
        shown = size(bad - exact[leaf], points[leaf])
        if plant in FACTORS or shown >= SHOWS * sizes[leaf]:
            yield corruption


# ---------------------------------------------------------------- judges


def torch_judge(*, fast_mode: bool) -> Callable[[Problem], Answer]:
    """`torch.autograd.gradcheck` as it is."""

    def judge(problem: Problem) -> Answer:
        f, tensors = problem.torch()
        try:
            torch.autograd.gradcheck(f, tensors, fast_mode=fast_mode)
        except GradcheckError as error:
            return Answer(Verdict.REJECTS, str(error))
        return Answer(Verdict.ACCEPTS)

    return judge


def jax_judge(problem: Problem) -> Answer:
    """`jax.test_util.check_grads` of first order in reverse mode, as it is."""
    import jax.test_util

    f, arrays = problem.jax()
    try:
        jax.test_util.check_grads(f, arrays, order=1, modes=["rev"])
    except AssertionError as error:
        return Answer(Verdict.REJECTS, str(error))
    return Answer(Verdict.ACCEPTS)


def adjudge_judge(engine: str) -> Callable[[Problem], Answer]:
    """`adjudge.examine(f, x)` as it is; the seed of the probes is that of the problem."""
    import adjudge

    verdicts = {
        adjudge.Verdict.PASS: Verdict.ACCEPTS,
        adjudge.Verdict.FAIL: Verdict.REJECTS,
        adjudge.Verdict.INCONCLUSIVE: Verdict.INCONCLUSIVE,
    }

    def judge(problem: Problem) -> Answer:
        f, arrays = getattr(problem, engine)()
        report = adjudge.examine(f, arrays, seed=problem.seed)
        return Answer(verdicts[report.verdict], str(report))

    return judge


JUDGES: dict[str, Callable[[], Callable[[Problem], Answer]]] = {
    "adjudge": lambda: adjudge_judge("torch"),
    "torch slow": lambda: torch_judge(fast_mode=False),
    "torch fast": lambda: torch_judge(fast_mode=True),
    "jax check_grads": lambda: jax_judge,
    "adjudge on jax": lambda: adjudge_judge("jax"),
}
DEFAULT_JUDGES = [judge for judge in JUDGES if judge != "adjudge on jax"]


# ---------------------------------------------------------------- running


@dataclass(frozen=True)
class Row:
    """One check."""

    function: str
    dtype: str
    seed: int
    kind: str
    judge: str
    plant: str
    verdict: str
    calls: int
    seconds: float
    cpu: float
    message: str
    wide: bool = True
    half: str = "calibration"

    @property
    def problem(self) -> tuple[str, str, int]:
        """What was checked, without the planted error and the judge."""
        return self.function, self.dtype, self.seed

    @property
    def nonsmooth(self) -> bool:
        """Whether the question stayed open because a kink or jump was seen."""
        return self.verdict == Verdict.INCONCLUSIVE and "NONSMOOTH" in self.message


@dataclass
class Results:
    """All checks, and the problems that nobody was asked about."""

    rows: list[Row] = field(default_factory=list)
    left_out: list[tuple[str, str, str]] = field(default_factory=list)


def run(problems: Sequence[Problem], asked: Any) -> Results:
    """All checks, several problems at a time; what is there when interrupted."""
    results = Results()

    def ready() -> Callable[[Problem], list[Row] | str]:
        torch.set_num_threads(1)
        if any("jax" in judge for judge in asked.judges):
            import jax

            jax.config.update("jax_enable_x64", True)
        judges = {judge: JUDGES[judge]() for judge in asked.judges}
        for judge in judges.values():  # pay for lazy imports before the first measured check
            ask(judge, Problem(ZOO[0], "float64", 0), 60.0)

        def work(problem: Problem) -> list[Row] | str:
            prepared = prepare(problem)
            return prepared.left_out or list(examine(problem, prepared, judges, asked.limit))

        return work

    start = time.perf_counter()
    numbered = list(range(len(problems)))  # the problems themselves cannot be sent
    found: dict[int, list[Row] | str] = {}
    try:
        for k, result in spread(lambda: _numbered(ready(), problems), numbered, asked.processes):
            found[k] = result
            seconds = time.perf_counter() - start
            place = f"{len(found)}/{len(problems)} {problems[k].dtype} {seconds:.0f} s"
            print(place, file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print(f"Interrupted after {len(found)} problems.\n")
    for k, result in sorted(found.items()):
        if isinstance(result, str):
            results.left_out.append((problems[k].specimen.name, problems[k].dtype, result))
        else:
            results.rows += result
    return results


def _numbered(work: Callable[[Problem], Any], problems: Sequence[Problem]) -> Callable[[int], Any]:
    return lambda k: work(problems[k])


def examine(
    problem: Problem, prepared: Prepared, judges: dict[str, Any], limit: float
) -> Iterator[Row]:
    """All checks of one problem."""
    name, dtype, seed = problem.specimen.name, problem.dtype, problem.seed
    for corruption in (None, *prepared.corruptions):
        plant = Plant.NOTHING if corruption is None else corruption.plant
        for judge, function in judges.items():
            fresh = Problem(problem.specimen, dtype, seed, corruption)
            outcome = ask(function, fresh, limit)
            yield Row(
                function=name,
                dtype=dtype,
                seed=seed,
                kind=prepared.kind,
                judge=judge,
                plant=str(plant),
                verdict=str(outcome.verdict),
                calls=fresh.calls,
                seconds=outcome.seconds,
                cpu=outcome.cpu,
                message=outcome.message,
                wide=prepared.wide,
                half="holdout" if problem.specimen.holdout else "calibration",
            )


def stored(files: Iterable[Path]) -> Results:
    """The checks of earlier runs."""
    results = Results()
    for file in files:
        content = json.loads(file.read_text())
        results.rows += [Row(**row) for row in content["rows"]]
        results.left_out += [tuple(line) for line in content["left_out"]]
    return results


# ---------------------------------------------------------------- report


def report(results: Results, asked: Any) -> str:
    """All tables, one half of the zoo after the other."""
    halves = [half for half in HALVES if any(row.half == half for row in results.rows)]
    title = "A zoo of hostile functions"
    sections = [header(title, ["torch", "jax", "numpy", "adjudge"]), LEGEND]
    for half in halves:
        rows = [row for row in results.rows if row.half == half]
        functions = len({row.function for row in rows})
        seeds = sorted({row.seed for row in rows})
        sections += [
            f"### The {half} half\n",
            f"{functions} functions, seeds {', '.join(map(str, seeds))}; every judge as it is, "
            "without options.\n",
            *tables_of(rows, asked),
        ]
    sections.append(left_out(results))
    return "\n".join(section for section in sections if section)


HALVES = ("calibration", "holdout")


def tables_of(rows: Sequence[Row], asked: Any) -> Iterator[str]:
    """The tables of one half."""
    for dtype in asked.dtypes:
        own = [row for row in rows if row.dtype == dtype]
        if own:
            yield totals(dtype, own, asked)
            yield aside(dtype, own, asked)
    for dtype in asked.dtypes:
        own = [row for row in rows if row.dtype == dtype]
        yield from (listing(dtype, own, verdict) for verdict in LISTED)


LISTED = {
    Verdict.REJECTS: "FAIL on a right gradient",
    Verdict.INCONCLUSIVE: "INCONCLUSIVE on a right gradient",
    Verdict.CRASHES: "Crashes on a right gradient",
}
LEGEND = (
    "Under the planted errors: % rejected / % accepted. *Told apart*: % of planted errors that are "
    "rejected by a judge that accepts the same problem as it is. *In float64*: of those problems "
    "alone whose function computes in float64 throughout when its inputs are float64. *Calls*: how "
    "often a judge calls f where the gradient is right, mean and median. *s*: processor time for "
    "all checks of the table. A crash is an exception other than the judge's own, or a check "
    "stopped for time.\n"
)


def share(rows: Sequence[Row], verdict: Verdict) -> float:
    """Percentage of the rows with a verdict."""
    return 100 * sum(row.verdict == verdict for row in rows) / max(len(rows), 1)


def totals(dtype: str, rows: Sequence[Row], asked: Any) -> str:
    """The main table: problems whose gradient exists and is right."""
    lines = []
    for judge in asked.judges:
        own = [row for row in rows if row.judge == judge and row.kind == Kind.SMOOTH]
        right = [row for row in own if row.plant == Plant.NOTHING]
        if not right:
            continue
        accepted = {row.problem for row in right if row.verdict == Verdict.ACCEPTS}
        wrong = [row for row in own if row.plant != Plant.NOTHING]
        apart = [row.verdict == Verdict.REJECTS and row.problem in accepted for row in wrong]
        cells = []
        for plant in PLANTED:
            of = [row for row in wrong if row.plant == plant]
            rejects, accepts = share(of, Verdict.REJECTS), share(of, Verdict.ACCEPTS)
            cells.append(f"{rejects:.0f}/{accepts:.0f}" if of else "-")
        calls = [row.calls for row in right]
        wide = [row for row in right if row.wide]
        lines.append(
            (
                judge,
                len(right),
                f"{share(right, Verdict.REJECTS):.1f}",
                f"{share(right, Verdict.INCONCLUSIVE):.1f}",
                f"{share(wide, Verdict.INCONCLUSIVE):.1f} ({len(wide)})",
                f"{share(right, Verdict.CRASHES):.1f}",
                f"{mean(calls):.1f} / {median(calls):g}",
                *cells,
                f"{100 * mean(apart):.1f}" if apart else "-",
                f"{sum(row.cpu for row in own):.1f}",
            )
        )
    columns = ["judge", "problems", "false FAIL %", "INCONCLUSIVE %", "in float64", "crash %"]
    columns += ["calls", *PLANTED, "told apart %", "s"]
    return f"#### {dtype}\n\n{table(columns, lines)}"


def aside(dtype: str, rows: Sequence[Row], asked: Any) -> str:
    """The problems in which no derivative exists, or none that is right."""
    lines = []
    for kind in (Kind.KINK, Kind.LOOSE, OFF_KIND):
        for judge in asked.judges:
            own = [row for row in rows if row.judge == judge and row.kind == kind]
            if not own:
                continue
            nonsmooth = 100 * sum(row.nonsmooth for row in own) / len(own)
            shares = {verdict: share(own, verdict) for verdict in Verdict}
            lines.append(
                (
                    kind,
                    judge,
                    len(own),
                    f"{shares[Verdict.REJECTS]:.0f}",
                    f"{nonsmooth:.0f}",
                    f"{shares[Verdict.INCONCLUSIVE] - nonsmooth:.0f}",
                    f"{shares[Verdict.ACCEPTS]:.0f}",
                    f"{shares[Verdict.CRASHES]:.0f}",
                )
            )
    if not lines:
        return ""
    columns = ["counted apart", "judge", "problems", "FAIL %", "NONSMOOTH %"]
    columns += ["other INCONCLUSIVE %", "PASS %", "crash %"]
    return (
        table(columns, lines)
        + "\nWithout a derivative FAIL is bad and NONSMOOTH is right. The derivative of a loose "
        "solver is not that of its code, and one that is rounded badly is off: FAIL is true.\n"
    )


def listing(dtype: str, rows: Sequence[Row], verdict: Verdict) -> str:
    """Adjudge's verdicts on right gradients one by one, with the first line of the report."""
    found = [
        row
        for row in rows
        if row.judge.startswith("adjudge")
        and row.verdict == verdict
        and row.plant == Plant.NOTHING
        and row.kind == Kind.SMOOTH
    ]
    found += [
        row
        for row in rows
        if row.judge.startswith("adjudge")
        and row.kind == Kind.KINK
        and row.verdict == verdict != Verdict.INCONCLUSIVE
    ]
    if not found:
        return ""
    lines = [
        (
            row.judge,
            row.function + (" (no derivative)" if row.kind == Kind.KINK else ""),
            row.seed,
            first_line(row.message),
        )
        for row in found
    ]
    columns = ["judge", "function", "seed", "first line of the report"]
    return f"#### {LISTED[verdict]}, {dtype}\n\n{table(columns, lines)}"


def left_out(results: Results) -> str:
    """The problems that nobody was asked about, by reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for name, dtype, reason in results.left_out:
        names = reasons.setdefault((dtype, reason), [])
        if name not in names:
            names.append(name)
    lines = [(dtype, reason, "; ".join(names)) for (dtype, reason), names in reasons.items()]
    if not lines:
        return ""
    return f"### Left out\n\n{table(['dtype', 'reason', 'functions'], sorted(lines))}"


# ---------------------------------------------------------------- command line


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    everyone = ", ".join(JUDGES)
    parser.add_argument("--dtypes", type=listed, default=list(DTYPES))
    parser.add_argument("--judges", type=listed, default=DEFAULT_JUDGES, help=f"of: {everyone}")
    parser.add_argument("--seeds", type=int, default=2, metavar="N", help="points a function")
    parser.add_argument("--first-seed", type=int, default=0, metavar="K", help="K .. K + N - 1")
    parser.add_argument("--half", choices=[*HALVES, "both"], default="calibration")
    parser.add_argument("--processes", type=int, default=2, metavar="N", help="problems at a time")
    parser.add_argument("--functions", default="", metavar="REGEX", help="functions by name")
    parser.add_argument("--limit", type=float, default=20.0, metavar="S", help="s for a check")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all checks, one by one")
    parser.add_argument(
        "--stored", type=Path, nargs="+", metavar="FILE", help="run nothing: tables of these"
    )
    return parser.parse_args()


def listed(text: str) -> list[str]:
    """A list separated by commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def main() -> None:
    """Run and print."""
    asked = arguments()
    seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
    problems = [
        Problem(specimen, dtype, seed)
        for specimen in ZOO
        if asked.half in ("both", "holdout" if specimen.holdout else "calibration")
        and re.search(asked.functions, specimen.name)
        for dtype in asked.dtypes
        for seed in seeds
    ]
    results = stored(asked.stored) if asked.stored else run(problems, asked)
    if asked.json:
        asked.json.write_text(json.dumps(asdict(results), indent=1))
    print(report(results, asked))


if __name__ == "__main__":
    main()
