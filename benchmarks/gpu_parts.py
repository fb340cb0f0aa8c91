"""The parts of `gpu.py`, each run in a process of its own: a line of JSON for each item done.

A part is a list of named items. Whatever an item raises is an answer; after one that went wrong the
device is tried, and where it no longer answers (CUDA's errors are sticky) the process ends, and
`gpu.py` starts another one at the next item.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import importlib.util
import json
import math
import random
import re
import subprocess
import sys
import time
import traceback
import unittest
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from harness import SkippedError, stand_in
from harness import judged as rows_of

import adjudge
from adjudge.conformance import checks
from adjudge.engine import backend_named, replaced

ROOT = Path(__file__).resolve().parents[1]
LOST = 3
"""Exit code: the device no longer answers."""
TEXT = 1500
"""Characters that are kept of what went wrong."""
DELTAS = (1.0, 1e-2, 1e-4)

Item = tuple[str, Callable[[], dict[str, Any]]]


@dataclass(frozen=True)
class Place:
    """Where a part runs, and how much of it."""

    engine: str
    device: str
    small: bool

    @property
    def backend(self) -> Any:
        """The adapter of the engine."""
        return backend_named(self.engine)

    def array(self) -> Any:
        """Two ones on the device."""
        return self.backend.arrays.make(np.ones(2), "float32", self.name)

    @property
    def name(self) -> str | None:
        """What the backend calls the device: JAX's own names of CPU devices differ."""
        kind = self.device.partition(":")[0]
        if kind == "cpu":
            return self.backend.arrays.devices()[0] if self.engine == "jax" else "cpu"
        return f"{self.device}:0" if kind == self.device else self.device

    def alive(self) -> bool:
        """Whether arrays can still be made there and read back."""
        try:
            return bool((self.backend.arrays.to_host(self.array()) == 1).all())
        except Exception:
            traceback.print_exc()
            return False


def describe(place: Place) -> dict[str, Any]:
    """The device that arrays are really on, and the version of the engine."""
    device = place.backend.arrays.info(place.array()).device
    on_gpu = device.startswith(("cuda", "gpu"))
    version = place.backend.environment.version
    return {"device": device, "version": version, "platform": "cuda" if on_gpu else "cpu"}


# ---------------------------------------------------------------- conformance


def at_home(backend: Any, device: str) -> Any:
    """The backend with `device` as its default one, and the first of its devices."""
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
    backend = place.backend
    ways = {place.engine: backend} | {way.way: way for way in backend.ways()}
    for name, way in ways.items():
        excused = {"FF": "PyTorch's forward mode does not nest"} if name == "torch" else None
        disturb = {}
        if backend.environment.random_state() is not None:
            disturb = {"random numbers": (partial(draw, place), None)}
        few = {"scenarios": ["elementwise", "matrix product"]} if place.small else {}
        engine = at_home(way, str(place.name))
        for check in checks(engine, excused=excused, disturb=disturb, **few):
            # the kit counts for all of its checks together
            yield f"{name}: {check.id}", partial(answered, check, subject_of(check))


def subject_of(check: Any) -> Any:
    """What counts the comparisons of the kit that a check belongs to."""
    return check.run.args[0].subject


def answered(check: Any, subject: Any) -> dict[str, Any]:
    """How many comparisons a check made; it raises where one fails.

    The kit holds products to the digits of their dtype, which JAX's default precision has not.
    """
    before = subject.comparisons
    with subject.backend.environment.highest_precision():
        check.run()
    return {"ok": True, "comparisons": subject.comparisons - before}


def draw(place: Place) -> object:
    """A random number of PyTorch, of the CPU and of the device."""
    torch = importlib.import_module("torch")
    return torch.rand(1), torch.rand(1, device=place.device)


# ---------------------------------------------------------------- the project's own tests


def own_tests(place: Place) -> Iterator[Item]:
    """The tests of engines and of placement: one item a file."""
    folder = ROOT / "tests"
    few = ("backends/test_device.py",)
    patterns = ("backends/test_device*.py", "backends/test_cupy*.py", "engines/test_*.py")
    for path in [
        p for which in (few if place.small else patterns) for p in sorted(folder.glob(which))
    ]:
        yield path.relative_to(ROOT).as_posix(), partial(tested, path)


def tested(path: Path) -> dict[str, Any]:
    """The counts of pytest on one file, the reasons for what it skipped, and what failed."""
    command = [sys.executable, "-m", "pytest", "-q", "-rsfE", "--tb=line", "-p", "no:cacheprovider"]
    done = subprocess.run(  # noqa: S603  this interpreter
        [*command, "--rootdir", str(ROOT), str(path)], capture_output=True, text=True, check=False
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


# ---------------------------------------------------------------- operators


def shuffled(names: Sequence[Any], place: Place, most: int) -> list[Any]:
    """A sample in random order, so that what is done before time is up is a sample as well."""
    chosen = list(names)
    random.Random(0).shuffle(chosen)  # noqa: S311 a sample of operators
    return chosen[:4] if place.small else chosen[:most]


def torch_operators(place: Place) -> Iterator[Item]:
    """PyTorch's operators with planted errors, judged by adjudge and by PyTorch's fast mode."""
    stand_in("expecttest", {"expecttest": {"TestCase": unittest.TestCase}})
    import torch_operators as operators

    units = operators.units(("float64", "float32"))
    cases = operators.prepare(DELTAS, place.device)
    for unit in shuffled(units, place, 400):
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

    for unit in shuffled(primitives.units(), place, 200):
        yield unit, partial(judged_case, unit)


def judged_unit(cases: Callable[[str], Any], unit: str, judges: Sequence[str]) -> dict[str, Any]:
    """The rows of a unit, or the reason why it is left out."""
    try:
        rows = rows_of(cases(unit), judges, limit=60.0, repeats=1)
    except SkippedError as skipped:
        return {"skipped": str(skipped)}
    return {"ok": True, "rows": [asdict(row) for row in rows]}


# ---------------------------------------------------------------- time


def large(place: Place) -> Iterator[Item]:
    """The large kernel pair of `cost.py` in every size."""
    from cost import DTYPES, SIZES, measure

    def right(n: int, dtype: str) -> dict[str, Any]:
        row = measure(place.engine, n, dtype, place.device, repeats=1 if place.small else 3)
        return {"ok": row["verdict"] == "PASS", "text": row["verdict"]} | row

    for n in (1000,) if place.small else SIZES:
        for dtype in DTYPES:
            yield f"{n} {dtype}", partial(right, n, dtype)


# ---------------------------------------------------------------- running


PARTS: dict[str, Callable[[Place], Iterator[Item]]] = {
    "conformance": conformance,
    "tests": own_tests,
    "torch operators": torch_operators,
    "jax operators": jax_primitives,
    "large": large,
}


def plain(value: Any) -> Any:
    """What JSON has no word for, as `null`."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def told(error: BaseException) -> str:
    """Type and text of an exception."""
    return f"{type(error).__name__}: {error}"[:TEXT]


def run(items: Iterator[Item], place: Place, skip: int, until: float, lines: TextIO) -> int:
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
            answer = {"ok": False, "text": told(error)}
        say(name=name, seconds=time.perf_counter() - start, **without_seconds(answer))
        if not answer.get("ok", True) and not place.alive():
            say(lost=name)
            return LOST
    say(done=True)
    return 0


def without_seconds(answer: dict[str, Any]) -> dict[str, Any]:
    """What an item answers; its time is measured here."""
    return {key: value for key, value in answer.items() if key not in ("name", "seconds")}


def main() -> int:
    """One part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=list(PARTS))
    parser.add_argument("--engine", required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--until", type=float, default=math.inf, help="time.time() of the end")
    parser.add_argument("--lines", type=Path, required=True)
    asked = parser.parse_args()
    place = Place(asked.engine, asked.device, asked.small)
    with asked.lines.open("a", encoding="utf-8") as lines:
        try:
            reason = place.backend.environment.unavailable()
            on = {} if reason else describe(place)
        except adjudge.AdjudgeError as error:
            reason, on = error.found, {}
        if reason:
            lines.write(json.dumps({"absent": reason}) + "\n")
            return 0
        lines.write(json.dumps({"on": on, "place": asdict(place)}) + "\n")
        return run(PARTS[asked.part](place), place, asked.skip, asked.until, lines)


if __name__ == "__main__":
    sys.exit(main())
