"""Everything that needs a GPU, in one command, and one JSON of what came out.

`PYTHONPATH=src:adapters python benchmarks/gpu.py --engines cupy,torch,jax --out gpu.json` needs no
installation of adjudge, only what it stands on. Every part runs in a process of its own, with a
time limit of its own. `--dry-run` runs every part on the CPU, in little; `--page FILE` prints
docs/gpu.md as it follows from a JSON. What runs in the processes is in gpu_parts.py; nothing
but the standard library is imported here.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import ORDINARY, RIGHT, Row, report, table, version

ROOT = Path(__file__).resolve().parents[1]
REQUIRED = {"numpy": "numpy", "optree": "optree", "array_api_compat": "array-api-compat"}
"""Modules that adjudge stands on, and what pip calls them."""
ENGINES = ("cupy", "torch", "jax")
COMMAND = "PYTHONPATH=src:adapters python benchmarks/gpu.py --out benchmarks/gpu.json"
RESTARTS = 5
"""How often a part goes on after its process died."""
LEAST = 10.0
"""Seconds; a part is not begun with fewer."""
VERSIONS = (
    "numpy", "optree", "array-api-compat", "torch", "jax", "jaxlib", "jax-cuda13-plugin",
    "jax-cuda12-plugin", "cupy-cuda13x", "cupy-cuda12x", "array-api-strict", "pytest", "thinc",
    "pylops", "warp-lang", "triton", "nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12",
)  # fmt: skip


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
)
"""In order of importance: what time is left for is done."""
DRY = (
    Part("large", "numpy", 60),
    Part("tests", "numpy", 60, ("pytest",)),
    *PARTS,
)
"""What a dry run does, where the parts of CuPy cannot run."""


# ---------------------------------------------------------------- machine


def answer(*command: str) -> str:
    """What a command prints; nothing where there is none, or it fails."""
    try:
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def commit(given: str | None = None) -> dict[str, Any]:
    """The commit that is run, and whether files differ from it: `None` where git does not say."""
    found = answer("git", "rev-parse", "HEAD")
    changed = answer("git", "status", "--porcelain") if found else ""
    return {"hash": found or given, "dirty": bool(changed) if found else None}


def machine() -> dict[str, Any]:
    """The GPU in the words of its driver, and what is around it."""
    asked = "name,driver_version,memory.total,compute_cap"
    line = answer("nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader")
    rows = [[cell.strip() for cell in row.split(",")] for row in line.splitlines()]
    first = rows[0] if rows and len(rows[0]) == 4 else [None] * 4
    cuda = re.search(r"CUDA Version:\s*([\d.]+)", answer("nvidia-smi"))
    return {
        "gpu": first[0], "driver": first[1], "memory": first[2], "compute_capability": first[3],
        "count": len(rows), "cuda": cuda[1] if cuda else None,
        "system": platform.platform(), "machine": platform.machine(),
        "python": platform.python_version(), "processors": os.cpu_count(),
    }  # fmt: skip


def versions() -> dict[str, str | None]:
    """The installed version of everything that takes part; `None` where it is absent."""
    found: dict[str, str | None] = {"adjudge": project()["version"]}
    for name in VERSIONS:
        known = version(name)
        found[name] = None if known == "absent" else known
    return found


def project() -> dict[str, Any]:
    """The table of pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return dict(tomllib.loads(text)["project"])


def absent(modules: Sequence[str]) -> list[str]:
    """Those that cannot be imported."""
    return [name for name in modules if importlib.util.find_spec(name) is None]


def metadata_in(folder: Path) -> None:
    """The entry points of pyproject.toml as an installation would have them: without these no
    adapter is found in a source tree.
    """
    ours = project()
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
    """For the parts: this source tree first, an entry point for each adapter."""
    paths = [ROOT / "src", ROOT / "adapters"]
    try:
        importlib.metadata.distribution("adjudge")
    except importlib.metadata.PackageNotFoundError:
        metadata_in(folder)
        paths.append(folder)
    before = os.environ.get("PYTHONPATH")
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*map(str, paths), *([before] if before else [])]),
        # JAX would take most of the memory of the device for itself
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "CUPY_PYLOPS": os.environ.get("CUPY_PYLOPS", "1"),
    }


# ---------------------------------------------------------------- parts


def run_part(
    part: Part, device: str, *, small: bool, seconds: float, env: dict[str, str]
) -> dict[str, Any]:
    """What came of a part: a status, its rows, and what went wrong around them."""
    missing = absent([*part.needs, part.engine])
    if missing:
        return without(part, device, "absent", f"{', '.join(missing)} cannot be imported")
    start = time.time()
    until = start + seconds
    rows: list[dict[str, Any]] = []
    errors: list[str] = []
    status, reason, on = "ran", "", {}
    for _ in range(RESTARTS + 1):
        with tempfile.TemporaryDirectory() as folder:
            lines = Path(folder) / "lines"
            code, said = process(part, device, small, len(rows), until, lines, env)
            found = read(lines)
        on = next((one["on"] for one in found if "on" in one), on)
        gone = next((one["absent"] for one in found if "absent" in one), None)
        if gone is not None:
            return without(part, device, "absent", gone)
        rows += [one for one in found if "name" in one]
        begun = [one["starting"] for one in found if "starting" in one]
        stopped = next((one["stopped"] for one in found if "stopped" in one), None)
        if stopped is not None:
            status, reason = "stopped", f"{seconds:.0f} s were over before {stopped}"
        if code == 0:
            break
        if not begun:
            errors.append(f"{ended(code)}: {said}")
            status, reason = "broken", f"it began nothing more: {ended(code)}"
            break
        answered = {one["name"] for one in found if "name" in one}
        if begun[-1] not in answered:
            how = "was stopped: no time left" if code is None else f"died with exit code {code}"
            rows.append({"name": begun[-1], "seconds": 0.0, "ok": False, "text": how})
        errors.append(f"after {begun[-1]}: {ended(code)}; {said}")
        if code is None or until - time.time() < LEAST:
            status, reason = "stopped", f"{seconds:.0f} s were over at {begun[-1]}"
            break
    else:
        status, reason = "broken", f"its process died {RESTARTS + 1} times"
    return {
        **without(part, device, status, reason),
        "seconds": round(time.time() - start, 1),
        "on": on,
        "errors": errors,
        "summary": summary(part.name, rows),
    }


def ended(code: int | None) -> str:
    """How a process ended, in words."""
    if code is None:
        return "the process was stopped"
    return "the device no longer answered" if code == 3 else f"exit code {code}"


def without(part: Part, device: str, status: str, reason: str) -> dict[str, Any]:
    """A part that was not run, and why."""
    return {
        "name": part.name, "engine": part.engine, "device": device, "status": status,
        "reason": reason, "seconds": 0.0, "on": {}, "errors": [], "summary": {},
    }  # fmt: skip


def process(
    part: Part, device: str, small: bool, skip: int, until: float, lines: Path, env: dict[str, str]
) -> tuple[int | None, str]:
    """The exit code of a process for the part (`None`: stopped), and the end of what it said."""
    command = [sys.executable, str(Path(__file__).with_name("gpu_parts.py")), part.name]
    command += ["--engine", part.engine, "--device", device, "--lines", str(lines)]
    command += ["--skip", str(skip), "--until", str(until), *(["--small"] if small else [])]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
        child = subprocess.Popen(  # noqa: S603
            command, env=env, stdout=said, stderr=said, cwd=ROOT, start_new_session=True
        )
        try:
            # what is begun may end, if it ends soon
            code: int | None = child.wait(timeout=max(until - time.time(), 0) + 30)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        said.seek(0)
        return code, " ".join(said.read().split())[-600:]


def read(lines: Path) -> list[dict[str, Any]]:
    """The lines of a part; the last one may be cut off."""
    found = []
    for line in lines.read_text(encoding="utf-8").splitlines() if lines.exists() else []:
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return found


def run_all(
    asked: argparse.Namespace,
    env: dict[str, str],
    keep: Callable[[dict[str, Any]], None],
) -> Iterator[dict[str, Any]]:
    """Every part in turn, while there is time; what is not run says why."""
    end = time.time() + 60 * asked.minutes
    parts = [p for p in (DRY if asked.dry_run else PARTS) if p.engine in (*asked.engines, "numpy")]
    parts = [p for p in parts if not asked.parts or p.name in asked.parts]
    for part in parts:
        left = end - time.time()
        # the kernels of CuPy have no CPU to run on
        device = "cuda:0" if part.engine == "cupy" or not asked.dry_run else "cpu"
        if part.engine == "numpy":
            device = "cpu"
        if left < LEAST:
            done = without(part, device, "not run", f"{asked.minutes:g} minutes were over")
        else:
            done = run_part(
                part, device, small=asked.dry_run, seconds=min(part.seconds, left), env=env
            )
        told = " ".join(f"{k} {v}" for k, v in done["summary"].items() if isinstance(v, int))
        print(
            f"{part.name}, {part.engine} on {device}: {done['status']} {done['reason']} {told} "
            f"({done['seconds']} s)",
            flush=True,
        )
        keep(done)
        yield done


# ---------------------------------------------------------------- counting


def summary(part: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The rows of a part in numbers, with every failure by name."""
    failures = [
        {"name": row["name"], "text": row.get("text", "")}
        for row in rows
        if not row.get("ok", True)
    ]
    skipped = Counter(row["skipped"] for row in rows if isinstance(row.get("skipped"), str))
    common = {
        "items": len(rows),
        "passed": sum(bool(row.get("ok")) for row in rows),
        "failed": len(failures),
        "skipped": skipped.total(),
        "failures": failures,
        "skips": dict(skipped),
    }
    if part == "conformance":
        return common | {"comparisons": sum(row.get("comparisons", 0) for row in rows)}
    if part == "tests":
        return common | tested(rows)
    if part.endswith("operators"):
        return common | judged(rows)
    return common | {"rows": [dict(row) for row in rows]}


def tested(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What pytest counted, over all files."""
    counts = {
        key: sum(row[key] for row in rows if isinstance(row.get(key), int))
        for key in ("passed", "failed", "skipped")
    }
    reasons: Counter[str] = Counter()
    for row in rows:
        reasons.update(row.get("skips", {}))
    died = sum("skips" not in row for row in rows)
    return {**counts, "failed": counts["failed"] + died, "skips": dict(reasons)}


def judged(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The tables about operators with planted errors, and how many right ones adjudge rejects."""
    found = [Row(**row) for one in rows for row in one.get("rows", ())]
    alarms = [
        row
        for row in found
        if (row.judge, row.plant, row.kind, row.verdict) == ("adjudge", RIGHT, ORDINARY, "FAIL")
    ]
    judges = list(dict.fromkeys(row.judge for row in found))
    return {"false_alarms": len(alarms), "tables": report(found, {}, judges) if found else ""}


# ---------------------------------------------------------------- what a file has to hold


def problems(run: dict[str, Any], *, gpu: bool = True) -> list[str]:
    """What keeps this from being the JSON of a run; with `gpu`: of a run on a GPU."""
    found = []
    for part in run["parts"]:
        found += [f"{titled(part)}: {text}" for text in of_part(part)]
    if not gpu:
        return found
    if run["dry_run"]:
        found.append("a dry run is no run on a GPU")
    found += [
        f"machine: no {key}" for key in ("gpu", "driver", "cuda") if not run["machine"].get(key)
    ]
    if not run["commit"].get("hash"):
        found.append("commit: no hash")
    done = [part for part in run["parts"] if part["summary"]]
    if not done:
        found.append("no part was run")
    for part in done:
        found += [f"{titled(part)}: {text}" for text in elsewhere(part)]
    return found


def of_part(part: dict[str, Any]) -> list[str]:
    """What is wrong about one part."""
    if part["status"] != "ran" and not part["reason"]:
        return [f"{part['status']} without a reason"]
    if part["status"] == "ran" and not part["summary"].get("items"):
        return ["ran, and holds nothing"]
    return []


def elsewhere(part: dict[str, Any]) -> list[str]:
    """Where a part was not on a GPU."""
    found = []
    if part["on"] and part["on"].get("platform") != "cuda":
        found.append(f"on {part['on'].get('device')}, which is no GPU")
    if not part["on"] and part["summary"].get("items"):
        found.append("does not say on which device it ran")
    on_cpu = [
        row["name"]
        for row in part["summary"].get("rows", ())
        if str(row.get("device", "cuda")).partition(":")[0] not in ("cuda", "gpu")
    ]
    return found + [f"{name} was not on the GPU" for name in on_cpu]


def titled(part: dict[str, Any]) -> str:
    """Part and engine."""
    return f"{part['name']}, {part['engine']}"


# ---------------------------------------------------------------- the page

PAGE = ROOT / "docs" / "gpu.md"
TITLE, RUNS = "# On a GPU\n", "## What it runs\n"
"""The first heading of the page, and the one behind the results."""


def page(run: dict[str, Any]) -> str:
    """docs/gpu.md with the results of a run on a GPU."""
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(RUNS)
    note = "<!-- written by `python benchmarks/gpu.py --page`; a test holds it to its JSON -->\n"
    results = [ran(run), overview(run["parts"]), *details(run["parts"])]
    return "\n".join([TITLE, note, *results, RUNS]) + rest


def ran(run: dict[str, Any]) -> str:
    """When, on what, of which commit."""
    on, commit = run["machine"], run["commit"]
    dirty = ", with changes that are not committed" if commit.get("dirty") else ""
    known = ", ".join(f"{name} {found}" for name, found in run["versions"].items() if found)
    gpu = f"{on['gpu']} ({on.get('memory')}), driver {on['driver']}, CUDA {on['cuda']}"
    return (
        f"It ran last on {run['date'][:10]}, on one {gpu}, Python {on['python']}, commit "
        f"`{commit['hash'][:12]}`{dirty}, in {run['seconds'] / 60:.1f} minutes.\n\n"
        f"{known}.\n\n```console\n$ {COMMAND}\n```\n"
    )


def overview(parts: Sequence[dict[str, Any]]) -> str:
    """One line a part."""
    lines = []
    keys = ("items", "passed", "failed", "skipped", "comparisons")
    for part in parts:
        counts = part["summary"]
        status = part["status"] + (f": {part['reason']}" if part["reason"] else "")
        where = (part["name"], part["engine"], part["on"].get("device", "-"), status)
        numbers = [counts.get(key, "-") for key in keys]
        lines.append((*where, *numbers, f"{part['seconds']:.0f}"))
    columns = ("part", "engine", "device", "status", *keys, "s")
    return "## Parts\n\n" + table(columns, lines)


def details(parts: Sequence[dict[str, Any]]) -> list[str]:
    """The tables of the parts, and everything that failed."""
    rows = [row for part in parts for row in part["summary"].get("rows", ())]
    sections = [large(rows)] if rows else []
    sections += [
        f"## {part['name']} on {part['on'].get('device', '-')}\n\n{part['summary']['tables']}"
        for part in parts
        if part["summary"].get("tables")
    ]
    failures = [
        (titled(part), one["name"], one["text"][:300])
        for part in parts
        for one in part["summary"].get("failures", ())
    ]
    failures += [(titled(part), "-", text[:300]) for part in parts for text in part["errors"]]
    told = table(["part", "what", "found"], failures) if failures else "Nothing failed.\n"
    skips = [
        (titled(part), reason, count)
        for part in parts
        for reason, count in part["summary"].get("skips", {}).items()
    ]
    left_out = "\n## What was skipped\n\n" + table(["part", "reason", "number"], skips)
    return [*sections, "## What failed\n\n" + told + (left_out if skips else "")]


def large(rows: Sequence[dict[str, Any]]) -> str:
    """The check of a large kernel pair."""
    from cost import LARGE_COLUMNS, large_cells

    lines = [large_cells(row) for row in rows if "own" in row]
    return (
        "## A large kernel pair\n\n`y = x exp(-x²)` and its pullback; times are warm and "
        "synchronised, memory is the peak in arrays of the size of x.\n\n"
        + table(LARGE_COLUMNS, lines)
    )


# ---------------------------------------------------------------- command line


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", type=lambda text: text.split(","), default=list(ENGINES))
    parser.add_argument("--parts", nargs="+", choices=sorted({p.name for p in PARTS}))
    parser.add_argument("--minutes", type=float, default=20.0, help="for all parts together")
    parser.add_argument("--out", type=Path, default=Path("gpu.json"))
    parser.add_argument("--commit", help="the commit that this is, where git does not say it")
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, in little")
    parser.add_argument("--page", metavar="FILE", help="print docs/gpu.md with its results")
    asked = parser.parse_args(given)
    if unknown := set(asked.engines) - set(ENGINES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; engines: {', '.join(ENGINES)}")
    return asked


def main(given: Sequence[str] | None = None) -> int:
    """Run, or print the page. The exit code is 1 where a part went wrong, 2 where none can run."""
    asked = arguments(given)
    if asked.page:
        run = json.loads(Path(asked.page).read_text("utf-8"))
        if found := problems(run):
            print("no page of this file:\n  " + "\n  ".join(found), file=sys.stderr)
            return 2
        print(page(run), end="")
        return 0
    if missing := absent(list(REQUIRED)):
        print(
            f"adjudge needs {', '.join(missing)}, which cannot be imported here\n"
            f"  pip install {' '.join(REQUIRED[name] for name in missing)}",
            file=sys.stderr,
        )
        return 2
    around = machine()
    if not asked.dry_run and around["gpu"] is None:
        print("no GPU: nvidia-smi names none\n  --dry-run runs on the CPU", file=sys.stderr)
        return 2
    run: dict[str, Any] = {
        "date": datetime.datetime.now(tz=datetime.UTC).isoformat(timespec="seconds"),
        "dry_run": asked.dry_run,
        "engines": asked.engines,
        "minutes": asked.minutes,
        "seconds": 0.0,
        "commit": commit(asked.commit),
        "machine": around,
        "versions": versions(),
        "parts": [],
    }
    start = time.time()

    def keep(part: dict[str, Any]) -> None:
        """After each part, so that a run that is ended from outside leaves what it did."""
        run["parts"].append(part)
        run["seconds"] = round(time.time() - start, 1)
        asked.out.write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")

    with tempfile.TemporaryDirectory() as folder:
        list(run_all(asked, environment(Path(folder)), keep))
    found = problems(run, gpu=not asked.dry_run)
    for problem in found:
        print(problem, file=sys.stderr)
    went_wrong = [p for p in run["parts"] if p["status"] == "broken" or p["summary"].get("failed")]
    return 1 if went_wrong or found else 0


if __name__ == "__main__":
    sys.exit(main())
