"""Everything that needs a GPU, in one command, and one JSON of what came out.

`PYTHONPATH=src:adapters python benchmarks/gpu.py --engines cupy,torch,jax --out gpu.json` needs no
installation of adjudge, only what it stands on. Every part runs in a process of its own, with a
time limit of its own. `--dry-run` runs every part on the CPU, in little; `--page FILE` prints
docs/gpu.md as it follows from a JSON. Nothing but the standard library is imported here.
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
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_page import MADE, page, problems, summary

ROOT = Path(__file__).resolve().parents[1]
REQUIRED = {"numpy": "numpy", "optree": "optree", "array_api_compat": "array-api-compat"}
"""Modules that adjudge stands on, and what pip calls them."""
ENGINES = ("cupy", "torch", "jax")
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
    Part("examples", "cupy", 120),
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
    Part("examples", "torch", 60),
    Part("examples", "jax", 60),
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
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
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
    already: Collection[tuple[str, str]] = (),
) -> Iterator[dict[str, Any]]:
    """Every part in turn, while there is time; what is not run says why."""
    end = time.time() + 60 * asked.minutes
    parts = [p for p in (DRY if asked.dry_run else PARTS) if p.engine in (*asked.engines, "numpy")]
    parts = [p for p in parts if not asked.parts or p.name in asked.parts]
    for part in parts:
        if (part.name, part.engine) in already:
            continue
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


# ---------------------------------------------------------------- command line


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", type=lambda text: text.split(","), default=list(ENGINES))
    parser.add_argument("--parts", nargs="+", choices=sorted({p.name for p in PARTS}))
    parser.add_argument("--minutes", type=float, default=20.0, help="for all parts together")
    parser.add_argument("--out", type=Path, default=Path("gpu.json"))
    parser.add_argument("--resume", action="store_true", help="keep what --out holds that ran")
    parser.add_argument("--commit", help="the commit that this is, where git does not say it")
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, in little")
    parser.add_argument("--page", metavar="FILE", help="print docs/gpu.md from a JSON; -: of none")
    asked = parser.parse_args(given)
    if unknown := set(asked.engines) - set(ENGINES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; engines: {', '.join(ENGINES)}")
    return asked


def main(given: Sequence[str] | None = None) -> int:
    """Run, or print the page. The exit code is 1 where a part went wrong, 2 where none can run."""
    asked = arguments(given)
    if asked.page:
        run = None if asked.page == "-" else json.loads(Path(asked.page).read_text("utf-8"))
        if run is not None and (found := problems(run)):
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
        "format": MADE,
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
    if asked.resume and asked.out.exists():
        before = json.loads(asked.out.read_text(encoding="utf-8"))
        if found := problems(before, gpu=False) or differences(before, run):
            print("cannot go on with --out:\n  " + "\n  ".join(found), file=sys.stderr)
            return 2
        run["parts"] = [part for part in before["parts"] if part["status"] in ("ran", "stopped")]
    spent = sum(part["seconds"] for part in run["parts"])
    start = time.time()

    def keep(part: dict[str, Any]) -> None:
        """After each part, so that a run that is ended from outside leaves what it did."""
        run["parts"].append(part)
        run["seconds"] = round(spent + time.time() - start, 1)
        asked.out.write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")

    already = {(part["name"], part["engine"]) for part in run["parts"]}
    with tempfile.TemporaryDirectory() as folder:
        list(run_all(asked, environment(Path(folder)), keep, already))
    found = problems(run, gpu=not asked.dry_run)
    for problem in found:
        print(problem, file=sys.stderr)
    went_wrong = [p for p in run["parts"] if p["status"] == "broken" or p["summary"].get("failed")]
    return 1 if went_wrong or found else 0


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Why two runs cannot be one."""
    return [
        f"{key} was {before[key]}, and is {now[key]}"
        for key in ("dry_run", "commit", "machine", "versions")
        if before[key] != now[key]
    ]


if __name__ == "__main__":
    sys.exit(main())
