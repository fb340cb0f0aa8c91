"""Everything that needs a GPU, in one command, and one JSON of what came out.

`PYTHONPATH=src:adapters python benchmarks/gpu.py --engines cupy,torch,jax --out gpu.json` needs no
installation of adjudge, only what it stands on. A part is a list of named items, and runs in a
process of its own, which writes a line of JSON for each item. Whatever an item raises is an answer;
after one that went wrong the device is tried, and where it no longer answers (CUDA's errors are
sticky) the process ends and another one goes on at the next item. `--dry-run` runs every part on
the CPU, in little; `--page FILE` prints docs/gpu.md as it follows from a JSON.
"""

from __future__ import annotations

import argparse
import copy
import datetime
import importlib
import importlib.util
import itertools
import json
import math
import os
import platform
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
import unittest
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TextIO, TypeVar

# adjudge and the engines are imported by the processes of the parts only: what is absent is said
from harness import ORDINARY, RIGHT, Row, SkippedError, report, stand_in, table, version
from harness import judged as rows_of

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "gpu.md"
COMMAND = "PYTHONPATH=src:adapters python benchmarks/gpu.py --out benchmarks/gpu.json"
REQUIRED = {"numpy": "numpy", "optree": "optree", "array_api_compat": "array-api-compat"}
"""Modules that adjudge stands on, and what pip calls them."""
ENGINES = ("cupy", "torch", "jax")
RESTARTS = 5
"""How often a part goes on after its process died."""
LEAST = 10.0
"""Seconds; a part is not begun with fewer."""
LOST = 3
"""Exit code: the device no longer answers."""
TEXT = 1500
"""Characters that are kept of what went wrong."""
DELTAS = (1.0, 1e-2, 1e-4)
VERSIONS = (
    "numpy", "torch", "jax", "jaxlib", "jax-cuda13-plugin", "jax-cuda12-plugin", "cupy-cuda13x",
    "cupy-cuda12x", "pytest", "thinc", "pylops", "warp-lang", "triton",
)  # fmt: skip

Item = tuple[str, Callable[[], dict[str, Any]]]
Drawn = TypeVar("Drawn")


@dataclass(frozen=True)
class Part:
    """One part on one engine."""

    name: str
    engine: str
    seconds: float
    """Most that it may take."""
    needs: tuple[str, ...] = ()
    """Modules beyond those of adjudge and of the engine."""


PARTS = (
    Part("conformance", "cupy", 240),
    Part("large", "cupy", 150),
    Part("conformance", "torch", 240),
    Part("large", "torch", 150),
    Part("conformance", "jax", 420),
    Part("large", "jax", 150),
    Part("tests", "cupy", 240, ("pytest",)),
    Part("torch operators", "torch", 300),
    Part("jax operators", "jax", 300),
    Part("mutants", "torch", 240),
    Part("blame", "torch", 180),
    Part("blame", "jax", 300),
)
"""In order of importance: what time is left for is done."""
TIMED = ("large",)
"""Parts that measure time, and so run alone."""
DRY = (Part("large", "numpy", 60), Part("tests", "numpy", 60, ("pytest",)), *PARTS)
"""What a dry run does, where the parts of CuPy cannot run."""


# ---------------------------------------------------------------- the items of each part


@dataclass(frozen=True)
class Place:
    """Where a part runs, and how much of it."""

    engine: str
    device: str
    small: bool

    @property
    def backend(self) -> Any:
        """The adapter of the engine."""
        from adjudge.engine import backend_named

        return backend_named(self.engine)

    @property
    def name(self) -> str | None:
        """What the backend calls the device: JAX's own names of CPU devices differ."""
        kind = self.device.partition(":")[0]
        if kind == "cpu":
            return self.backend.arrays.devices()[0] if self.engine == "jax" else "cpu"
        return f"{self.device}:0" if kind == self.device else self.device

    def array(self) -> Any:
        """Two ones on the device."""
        import numpy as np

        return self.backend.arrays.make(np.ones(2), "float32", self.name)

    def alive(self) -> bool:
        """Whether arrays can still be made there and read back."""
        try:
            return bool((self.backend.arrays.to_host(self.array()) == 1).all())
        except Exception:
            traceback.print_exc()
            return False

    def describe(self) -> dict[str, Any]:
        """The device that arrays are really on, and the version of the engine."""
        device = self.backend.arrays.info(self.array()).device
        return {"device": device, "version": self.backend.environment.version}


def at_home(backend: Any, device: str) -> Any:
    """The backend with `device` as its default one, and the first of its devices."""
    from adjudge.engine import replaced

    kind: Any = type(backend.arrays)

    class Placed(kind):  # type: ignore[misc]
        def make(self, values: Any, dtype: str, device: str | None = None) -> Any:
            return super().make(values, dtype, device or home)

        def devices(self) -> list[str]:
            return [home, *(name for name in super().devices() if name != home)]

    home = device
    arrays = copy.copy(backend.arrays)
    arrays.__class__ = Placed
    return replaced(backend, arrays=arrays)


def conformance(place: Place) -> Iterator[Item]:
    """The conformance kit, with the device as that on which the engine makes its arrays."""
    from adjudge.conformance import checks

    def draw() -> object:
        if place.engine == "cupy":
            return importlib.import_module("cupy").random.rand(1)
        torch = importlib.import_module("torch")
        return torch.rand(1), torch.rand(1, device=place.device)

    backend = place.backend
    disturb = {}
    if backend.environment.random_state() is not None:
        disturb = {"random numbers": (draw, None)}
    few = {"scenarios": ["elementwise", "matrix product"]} if place.small else {}
    for name, way in ({place.engine: backend} | {way.way: way for way in backend.ways()}).items():
        excused = {"FF": "PyTorch's forward mode does not nest"} if name == "torch" else None
        engine = at_home(way, str(place.name))
        for check in checks(engine, excused=excused, disturb=disturb, **few):
            yield f"{name}: {check.id}", partial(answered, check)


def answered(check: Any) -> dict[str, Any]:
    """How many comparisons a check of the kit made; it raises where one fails. The kit holds
    products to the digits of their dtype, which JAX's default precision has not.
    """
    subject = check.run.args[0].subject  # it counts for all checks together
    before = subject.comparisons
    with subject.backend.environment.highest_precision():
        check.run()
    return {"ok": True, "comparisons": subject.comparisons - before}


def own_tests(place: Place) -> Iterator[Item]:
    """The tests of engines and of placement: one item a file."""
    few = ("backends/test_device.py",)
    patterns = ("backends/test_device*.py", "backends/test_cupy*.py", "engines/test_*.py")
    for pattern in few if place.small else patterns:
        for path in sorted((ROOT / "tests").glob(pattern)):
            yield path.relative_to(ROOT).as_posix(), partial(tested, path)


def tested(path: Path) -> dict[str, Any]:
    """The counts of pytest on one file, the reasons for what it skipped, and what failed."""
    command = [sys.executable, "-m", "pytest", "-q", "-rsfE", "--tb=line", "-p", "no:cacheprovider"]
    done = subprocess.run(  # noqa: S603  this interpreter
        [*command, "--rootdir", str(ROOT), str(path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "400"},  # the reason behind the name of what failed
    )
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    absent = re.search(r"ModuleNotFoundError: (.*)", done.stdout)
    if done.returncode == 2 and absent:  # the file cannot be imported here, which is no failure
        return {"ok": True, **counts, "skipped": 1, "skips": {absent[1]: 1}, "text": ""}
    lines = done.stdout.splitlines() or [done.stderr]
    counts |= {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|skipped)", lines[-1])}
    reasons = re.findall(r"SKIPPED \[(\d+)\] \S+: (.*)", done.stdout)
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    ok = done.returncode in (0, 5)  # 5: there is no test for this machine
    text = "" if ok else "\n".join(failed)[:TEXT] or f"pytest ended with {done.returncode}"
    return {"ok": ok, **counts, "skips": {r: int(n) for n, r in reasons}, "text": text}


def torch_operators(place: Place) -> Iterator[Item]:
    """PyTorch's operators with planted errors, judged by adjudge and by PyTorch's fast mode."""
    stand_in("expecttest", {"expecttest": {"TestCase": unittest.TestCase}})
    import torch_operators as operators

    cases = operators.prepare(DELTAS, place.device)
    for unit in sample(operators.units(("float64", "float32")), place, 400):
        yield unit, partial(judged_unit, cases, unit, ["adjudge", "torch fast"])


def jax_primitives(place: Place) -> Iterator[Item]:
    """JAX's primitives with planted errors, judged by adjudge and by `check_grads`."""
    import jax
    import jax_primitives as primitives

    # JAX makes its arrays there from now on
    kind = place.device.partition(":")[0]
    jax.config.update("jax_platforms", "cpu" if kind == "cpu" else f"{kind},cpu")
    cases = primitives.prepare(DELTAS)

    def judged_case(unit: str) -> dict[str, Any]:
        # TF32 products, JAX's default on a GPU, would have both judge to three digits
        with jax.default_matmul_precision("highest"):
            return judged_unit(cases, unit, ["adjudge", "check_grads"])

    for unit in sample(primitives.units(), place, 200):
        yield unit, partial(judged_case, unit)


def torch_mutants(place: Place) -> Iterator[Item]:
    """Operations of libraries, right and with the mistakes of `mutants.py`."""
    torch = importlib.import_module("torch")
    import mutants

    torch.set_default_device(place.device)
    cases, dtypes = mutants.prepare(), ("float32", "bfloat16", "float64")
    units = [u for u in mutants.units() if u.startswith(dtypes) and u.split()[2] == "0"]
    for unit in sample(units, place, 300):
        yield unit, partial(judged_unit, cases, unit, ["adjudge"])


def planted_rules(place: Place) -> Iterator[Item]:
    """Programs with rules of their own: each mistake of one rule is named, and no right rule."""
    if place.engine == "torch":
        importlib.import_module("torch").set_default_device(place.device)
    import blame

    cases = [
        (program, rule, mistake)
        for program, rules in blame.programs.RULES.items()
        for mistake in ("", *blame.programs.MISTAKES)
        for rule in (rules if mistake else ("",))
    ]

    def named(program: Any, rule: str, mistake: str) -> dict[str, Any]:
        found, accused, *_ = blame.blamed(place.engine, program, rule, mistake, 0)
        told = "it is not named" if rule and not found else "another rule is accused"
        return {"ok": not accused and found == bool(rule), "text": told}

    for program, rule, mistake in sample(cases, place, len(cases)):
        yield f"{program.__name__} {rule} {mistake}", partial(named, program, rule, mistake)


def sample(names: Sequence[Drawn], place: Place, most: int) -> list[Drawn]:
    """A sample in random order, so that what is done before time is up is a sample as well."""
    return random.Random(0).sample(names, min(4 if place.small else most, len(names)))  # noqa: S311


def judged_unit(cases: Callable[[str], Any], unit: str, judges: Sequence[str]) -> dict[str, Any]:
    """The rows of a unit, or the reason why it is left out."""
    try:
        rows = rows_of(cases(unit), judges, limit=60.0, repeats=1)
    except SkippedError as skipped:
        return {"skipped": str(skipped)}
    return {"ok": True, "rows": [asdict(row) for row in rows]}


def large(place: Place) -> Iterator[Item]:
    """The large kernel pair of `cost.py` in every size."""
    from cost import DTYPES, SIZES, measure

    def right(n: int, dtype: str) -> dict[str, Any]:
        row = measure(place.engine, n, dtype, place.device, repeats=1 if place.small else 3)
        return {"ok": row["verdict"] == "PASS", "text": row["verdict"]} | row

    for n in (1000,) if place.small else SIZES:
        for dtype in DTYPES:
            yield f"{n} {dtype}", partial(right, n, dtype)


ITEMS: dict[str, Callable[[Place], Iterator[Item]]] = {
    "conformance": conformance,
    "tests": own_tests,
    "torch operators": torch_operators,
    "jax operators": jax_primitives,
    "mutants": torch_mutants,
    "blame": planted_rules,
    "large": large,
}


# ---------------------------------------------------------------- the process of a part


def plain(value: Any) -> Any:
    """What JSON has no word for, as `null`."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write(items: Iterator[Item], place: Place, skip: int, until: float, lines: TextIO) -> int:
    """Writes what each item after the first `skip` answers, until the time is up."""

    def say(**row: Any) -> None:
        lines.write(json.dumps(plain(row)) + "\n")
        lines.flush()

    for k, (name, item) in enumerate(items):
        if k < skip:
            continue
        if time.time() > until:
            say(stopped=name)
            return 0
        say(starting=name)
        start = time.perf_counter()
        try:
            answer = item()
        except Exception as error:
            answer = {"ok": False, "text": f"{type(error).__name__}: {error}"[:TEXT]}
        say(**{**answer, "name": name, "seconds": time.perf_counter() - start})
        if not answer.get("ok", True) and not place.alive():
            say(lost=name)
            return LOST
    say(done=True)
    return 0


def child(given: Sequence[str]) -> int:
    """One part, in this process."""
    parser = argparse.ArgumentParser()
    for name in ("part", "engine", "device", "lines"):
        parser.add_argument(name)
    parser.add_argument("skip", type=int)
    parser.add_argument("until", type=float)
    parser.add_argument("--small", action="store_true")
    asked = parser.parse_args(given)
    from adjudge import AdjudgeError

    place = Place(asked.engine, asked.device, asked.small)
    with Path(asked.lines).open("a", encoding="utf-8") as lines:
        try:
            reason = place.backend.environment.unavailable()
            on = {} if reason else place.describe()
        except AdjudgeError as error:
            reason, on = error.found, {}
        lines.write(json.dumps({"absent": reason} if reason else {"on": on}) + "\n")
        if reason:
            return 0
        return write(ITEMS[asked.part](place), place, asked.skip, asked.until, lines)


def process(
    part: Part, device: str, small: bool, skip: int, until: float, env: dict[str, str]
) -> tuple[int | None, list[dict[str, Any]], str]:
    """The exit code of a process for the part (`None`: stopped), its lines, and the end of what it
    said.
    """
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "lines"
        command = [sys.executable, __file__, CHILD, part.name, part.engine, device, str(lines)]
        command += [str(skip), str(until), *(["--small"] if small else [])]
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
            running = subprocess.Popen(  # noqa: S603  this interpreter
                command, env=env, stdout=said, stderr=said, cwd=ROOT, start_new_session=True
            )
            try:
                # what is begun may end, if it ends soon
                code: int | None = running.wait(timeout=max(until - time.time(), 0) + 30)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                if running.poll() is None:
                    os.killpg(running.pid, signal.SIGKILL)
                    running.wait()
            said.seek(0)
            end = " ".join(said.read().split())[-600:]
        found = []
        for line in lines.read_text(encoding="utf-8").splitlines() if lines.exists() else []:
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:  # the last line is cut off
                break
        return code, found, end


CHILD = "--child"
"""What the command line begins with in the process of a part."""


# ---------------------------------------------------------------- all parts


def run_part(
    part: Part, device: str, *, small: bool, seconds: float, env: dict[str, str]
) -> dict[str, Any]:
    """What came of a part: a status, its rows, and what went wrong around them."""
    if missing := absent([*part.needs, part.engine]):
        return without(part, device, "absent", f"{', '.join(missing)} cannot be imported")
    start = time.time()
    until = start + seconds
    rows: list[dict[str, Any]] = []
    errors: list[str] = []
    status, reason, on = "ran", "", {}
    for _ in range(RESTARTS + 1):
        code, found, said = process(part, device, small, len(rows), until, env)
        last: dict[str, Any] = {}
        for one in found:
            last |= one
        if "absent" in last:
            return without(part, device, "absent", last["absent"])
        on = last.get("on", on)
        answers = [one for one in found if "name" in one]
        rows += answers
        if "stopped" in last:
            status, reason = "stopped", f"{seconds:.0f} s were over before {last['stopped']}"
        if code == 0:
            break
        how = "was stopped: no time left" if code is None else f"died with exit code {code}"
        if code == LOST:
            how = "lost the device"
        if "starting" not in last:
            errors.append(f"{how}: {said}")
            status, reason = "broken", f"it began nothing more: it {how}"
            break
        if last["starting"] not in [row["name"] for row in answers]:
            rows.append({"name": last["starting"], "seconds": 0.0, "ok": False, "text": how})
        errors.append(f"after {last['starting']} it {how}: {said}")
        if code is None or until - time.time() < LEAST:
            status, reason = "stopped", f"{seconds:.0f} s were over at {last['starting']}"
            break
    else:
        status, reason = "broken", f"its process died {RESTARTS + 1} times"
    return without(part, device, status, reason) | {
        "seconds": round(time.time() - start, 1),
        "on": on,
        "errors": errors,
        "summary": summary(part.name, rows),
    }


def without(part: Part, device: str, status: str, reason: str) -> dict[str, Any]:
    """A part that was not run, and why."""
    return {
        "name": part.name, "engine": part.engine, "device": device, "status": status,
        "reason": reason, "seconds": 0.0, "on": {}, "errors": [], "summary": {},
    }  # fmt: skip


def run_all(asked: argparse.Namespace, env: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Every part, while there is time, first those that need not be alone; what is not run says
    why.
    """
    end = time.time() + 60 * asked.minutes
    parts = [p for p in (DRY if asked.dry_run else PARTS) if p.engine in (*asked.engines, "numpy")]
    parts = [p for p in parts if not asked.parts or p.name in asked.parts]
    alone = [p for p in parts if p.name in TIMED]
    together = [p for p in parts if p not in alone] if asked.at_once > 1 else []
    # What is timed has its share of the time behind the others
    share = 60 * asked.minutes / max(len(parts), 1)
    rest = end - sum(min(part.seconds, share) for part in alone)

    def ran(part: Part, end: float) -> dict[str, Any]:
        # the kernels of CuPy have no CPU to run on
        gpu = part.engine == "cupy" or not (asked.dry_run or part.engine == "numpy")
        device = "cuda:0" if gpu else "cpu"
        left = end - time.time()
        if left < LEAST:
            return without(part, device, "not run", f"{asked.minutes:g} minutes were over")
        seconds = min(part.seconds, left)
        return run_part(part, device, small=asked.dry_run, seconds=seconds, env=env)

    with ThreadPoolExecutor(asked.at_once) as pool:
        running = [pool.submit(ran, part, rest) for part in together]
        answers = itertools.chain(
            (done.result() for done in as_completed(running)),
            (
                ran(part, min(end, time.time() + share) if together else end)
                for part in parts
                if part not in together
            ),
        )
        for done in answers:
            told = " ".join(f"{k} {v}" for k, v in done["summary"].items() if isinstance(v, int))
            what = f"{done['name']}, {done['engine']} on {done['device']}: {done['status']}"
            print(f"{what} {done['reason']} {told}", flush=True)
            yield done


def summary(part: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The rows of a part in numbers, with every failure by name."""
    wrong = [row for row in rows if not row.get("ok", True)]
    skips = Counter(row["skipped"] for row in rows if isinstance(row.get("skipped"), str))
    found: dict[str, Any] = {
        "items": len(rows),
        "passed": sum(bool(row.get("ok")) for row in rows),
        "failed": len(wrong),
        "skipped": skips.total(),
        "failures": [{"name": row["name"], "text": row.get("text", "")} for row in wrong],
        "skips": dict(skips),
    }
    if part == "conformance":
        return found | {"comparisons": sum(row.get("comparisons", 0) for row in rows)}
    if part == "tests":  # what pytest counted, over all files
        for row in rows:
            skips.update(row.get("skips", {}))
        counts = {key: sum(row.get(key, 0) for row in rows) for key in ("passed", "skipped")}
        failed = sum(row.get("failed", 1) for row in rows)  # without counts: the process died
        return found | counts | {"failed": failed, "skips": dict(skips)}
    if part.endswith(("operators", "mutants")):
        judged = [Row(**row) for one in rows for row in one.get("rows", ())]
        alarm = ("adjudge", RIGHT, ORDINARY, "FAIL")
        alarms = sum((r.judge, r.plant, r.kind, r.verdict) == alarm for r in judged)
        judges = list(dict.fromkeys(row.judge for row in judged))
        tables = report(judged, {}, judges) if judged else ""
        return found | {"false_alarms": alarms, "tables": tables}
    return found | {"rows": [dict(row) for row in rows]}


def problems(run: dict[str, Any]) -> list[str]:
    """What keeps this from being the JSON of a run on a GPU."""
    found = ["a dry run is no run on a GPU"] if run["dry_run"] else []
    found += [f"machine: no {key}" for key in ("gpu", "driver") if not run["machine"].get(key)]
    done = [part for part in run["parts"] if part["summary"].get("items")]
    found += [] if done else ["no part was run"]
    for part in done:
        places = [("it", part["on"])]
        places += [(row["name"], row) for row in part["summary"].get("rows", ()) if "device" in row]
        for name, place in places:
            if not str(place.get("device")).startswith(("cuda", "gpu")):
                where = f"{name} was on {place.get('device')}, which is no GPU"
                found.append(f"{part['name']}, {part['engine']}: {where}")
    return found


# ---------------------------------------------------------------- machine


def answer_of(*command: str) -> str:
    """What a command prints; nothing where there is none, or it fails."""
    try:
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def machine() -> dict[str, Any]:
    """The GPU in the words of its driver, and what is around it."""
    line = answer_of(
        "nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"
    )
    first = [cell.strip() for cell in line.partition("\n")[0].split(",")]
    gpu, driver, memory = first if len(first) == 3 else (None, None, None)
    cuda = re.search(r"CUDA Version:\s*([\d.]+)", answer_of("nvidia-smi"))
    return {
        "gpu": gpu, "driver": driver, "memory": memory, "cuda": cuda[1] if cuda else None,
        "system": platform.platform(), "python": platform.python_version(),
    }  # fmt: skip


def absent(modules: Sequence[str]) -> list[str]:
    """Those that cannot be imported."""
    return [name for name in modules if importlib.util.find_spec(name) is None]


def metadata_in(folder: Path) -> None:
    """The entry points of pyproject.toml as an installation would have them: without these no
    adapter is found in a source tree.
    """
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = folder / f"adjudge-{ours['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: adjudge\nVersion: {ours['version']}\n", encoding="utf-8"
    )
    lines = []
    for group, points in ours["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items()), ""]
    (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")


def environment(folder: Path) -> dict[str, str]:
    """For the parts: this source tree first, and its entry points where it is not installed."""
    paths = [str(ROOT / "src"), str(ROOT / "adapters")]
    if version("adjudge") == "absent":
        metadata_in(folder)
        paths.append(str(folder))
    before = os.environ.get("PYTHONPATH")
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*paths, *([before] if before else [])]),
        # JAX would take most of the memory of the device for itself
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "CUPY_PYLOPS": os.environ.get("CUPY_PYLOPS", "1"),
    }


# ---------------------------------------------------------------- the page

RUNS = "## What it runs\n"
"""The first heading of the page behind the results."""


def page(run: dict[str, Any]) -> str:
    """docs/gpu.md with the results of a run on a GPU."""
    from cost import LARGE_COLUMNS, large_cells

    on, parts = run["machine"], run["parts"]
    keys = ("items", "passed", "failed", "skipped", "comparisons")
    overview, failures, skips, sections = [], [], [], []
    for part in parts:
        what, counts = f"{part['name']}, {part['engine']}", part["summary"]
        status = f"{part['status']}: {part['reason']}" if part["reason"] else part["status"]
        numbers = [counts.get(key, "-") for key in keys]
        device = part["on"].get("device", "-")
        overview.append((what, device, status, *numbers, f"{part['seconds']:.0f}"))
        if counts.get("tables"):
            sections.append(f"## {part['name']} on {device}\n\n{counts['tables']}")
        failures += [(what, one["name"], one["text"]) for one in counts.get("failures", ())]
        failures += [(what, "-", text) for text in part["errors"]]
        skips += [(what, reason, n) for reason, n in counts.get("skips", {}).items()]
    rows = [row for part in parts for row in part["summary"].get("rows", ()) if "own" in row]
    if rows:
        note = "`y = x exp(-x²)` and its pullback; memory is the peak in arrays of the size of x.\n"
        lines = table(LARGE_COLUMNS, map(large_cells, rows))
        sections.insert(0, f"## A large kernel pair\n\n{note}\n{lines}")
    told = table(("part", "what", "found"), failures) if failures else "Nothing failed.\n"
    sections.append(f"## What failed\n\n{told}")
    if skips:
        sections.append("## What was skipped\n\n" + table(("part", "reason", "number"), skips))
    known = ", ".join(f"{name} {found}" for name, found in run["versions"].items())
    ran = (
        f"It ran last on {run['date'][:10]}, on one {on['gpu']} ({on['memory']}), driver "
        f"{on['driver']}, CUDA {on['cuda']}, Python {on['python']}, commit `{run['commit']}`, in "
        f"{run['seconds'] / 60:.1f} minutes, with {known}.\n\n```console\n$ {COMMAND}\n```\n"
    )
    parts_of = "## Parts\n\n" + table(("part", "device", "status", *keys, "s"), overview)
    rest = PAGE.read_text(encoding="utf-8").partition(RUNS)[2]
    return "\n".join(["# On a GPU\n", ran, parts_of, *sections, RUNS]) + rest


# ---------------------------------------------------------------- command line


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--engines", type=lambda text: text.split(","), default=list(ENGINES))
    parser.add_argument("--parts", nargs="+", choices=sorted({p.name for p in PARTS}))
    parser.add_argument("--minutes", type=float, default=20.0, help="for all parts together")
    parser.add_argument("--at-once", type=int, default=1, help="parts that run side by side")
    parser.add_argument("--out", type=Path, default=Path("gpu.json"))
    parser.add_argument("--commit", help="the commit that this is, where git does not say it")
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, in little")
    parser.add_argument("--page", metavar="FILE", help="print docs/gpu.md with its results")
    asked = parser.parse_args(given)
    if unknown := set(asked.engines) - set(ENGINES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; engines: {', '.join(ENGINES)}")
    return asked


def refused(*lines: str) -> int:
    """Says why nothing is done."""
    print("\n  ".join(lines), file=sys.stderr)
    return 2


def main(given: Sequence[str]) -> int:
    """Run, or print the page. The exit code is 1 where a part went wrong, 2 where none can run."""
    if given and given[0] == CHILD:
        return child(given[1:])
    asked = arguments(given)
    if asked.page:
        run = json.loads(Path(asked.page).read_text("utf-8"))
        if found := problems(run):
            return refused("no page of this file:", *found)
        print(page(run), end="")
        return 0
    if missing := absent(list(REQUIRED)):
        named = " ".join(REQUIRED[name] for name in missing)
        what = f"adjudge needs {', '.join(missing)}, which cannot be imported here"
        return refused(what, f"pip install {named}")
    around = machine()
    if not asked.dry_run and around["gpu"] is None:
        return refused("no GPU: nvidia-smi names none", "--dry-run runs on the CPU")
    changed = " (changed)" if answer_of("git", "status", "--porcelain") else ""
    run = {
        "date": datetime.datetime.now(tz=datetime.UTC).isoformat(timespec="seconds"),
        "dry_run": asked.dry_run,
        "commit": (answer_of("git", "rev-parse", "HEAD")[:12] + changed) or asked.commit,
        "machine": around,
        "versions": {name: version(name) for name in VERSIONS if version(name) != "absent"},
        "parts": [],
    }
    start = time.time()
    with tempfile.TemporaryDirectory() as folder:
        for part in run_all(asked, environment(Path(folder))):
            # after each part, so that a run that is ended from outside leaves what it did
            run["parts"].append(part)
            run["seconds"] = round(time.time() - start, 1)
            asked.out.write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")
    found = [] if asked.dry_run else problems(run)
    for problem in found:
        print(problem, file=sys.stderr)
    wrong = [p for p in run["parts"] if p["status"] == "broken" or p["summary"].get("failed")]
    return 1 if wrong or found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
