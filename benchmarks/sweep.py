"""Libraries on their engines: every function that is found, with inputs that it accepts.

    python benchmarks/sweep.py                              # all of LIBRARIES that are installed
    python benchmarks/sweep.py kornia torchdiffeq --out sweep.jsonl
    python benchmarks/sweep.py optax --order 2
    python benchmarks/sweep.py torch.special torch.distributions --exact
    python benchmarks/sweep.py my_package --backend torch --cases my_cases:cases
    python benchmarks/sweep.py --table sweep.jsonl

Functions, modules and methods are found by `adjudge write`; what it cannot make inputs for is in
`sweep_cases.py`. Each library is judged by a process of its own, and each function by one below
that, both with a time limit, so that nothing that hangs or dies takes others along. Outcomes are
written as they come: with the same `--out` a sweep that was stopped goes on with the library in
which it was. The table counts functions; below it the FAILs are counted by the causes that were
found in `sweep_cases.py`, and what did not pass is listed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from sweep_cases import CAUSES

from adjudge import Case, run
from adjudge.engine import backend_named, placed
from adjudge.errors import AdjudgeError
from adjudge.ghostwriter import Found, LeftOut, Why, write
from adjudge.ghostwriter.conventions import arguments, of_arrays
from adjudge.ghostwriter.subjects import function_class
from adjudge.suites import Result

PASS, FAIL, OPEN, RAISED, LOST = "PASS", "FAIL", "INCONCLUSIVE", "raised", "lost"
NO_INPUTS, NO_DERIVATIVE = Why.NO_INPUTS.value, Why.NO_DERIVATIVE.value
BATCH = 100
"""So many cases are made before they are judged: what was judged is not lost with those to come."""
COLUMNS = (PASS, FAIL, OPEN, RAISED, LOST, NO_DERIVATIVE, NO_INPUTS)
"""How a function may end: judged; the engine raises where it is differentiated; it took too long
or ended its process; nothing to differentiate; or no inputs were found for it."""


@dataclass(frozen=True)
class Library:
    """What of a library is walked."""

    root: str
    """The module to import, which says whether the library is installed."""
    backend: str
    modules: str = ""
    """What `adjudge write` looks into, with the submodules: names between spaces."""
    cases: str = ""
    """`MODULE:FUNCTION`, which yields further cases, or why there is none for some function."""
    keras: str = ""
    """The backend of Keras."""
    order: int = 1
    """The order of the derivatives that are checked."""
    exact: bool = False
    """Whether they are compared with exact references."""


WALKED = "walked"
"""The ending in the last line of a library, with its version and its seconds."""
REST = "what is left of the library"
UNKNOWN = "not looked into"
COMPILED_ONCE = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
"""What this process compiled to see whether inputs work, the one that judges need not compile."""
OURS = "sweep_cases:"
LIBRARIES = {
    "torch.distributions": Library(
        "torch", "torch", "torch.distributions.transforms", OURS + "torch_distributions"
    ),
    "gpytorch": Library(
        "gpytorch",
        "torch",
        "gpytorch.functions gpytorch.means gpytorch.priors linear_operator.functions",
        OURS + "gpytorch",
    ),
    "kornia": Library(
        "kornia",
        "torch",
        "kornia.color kornia.enhance kornia.filters kornia.losses kornia.geometry "
        "kornia.morphology kornia.feature.responses",
    ),
    "torchdiffeq": Library("torchdiffeq", "torch", "", OURS + "torchdiffeq"),
    "e3nn": Library("e3nn", "torch", "e3nn.o3 e3nn.math", OURS + "e3nn"),
    "geoopt": Library(
        "geoopt", "torch", "geoopt.linalg geoopt.manifolds.stereographic.math", OURS + "geoopt"
    ),
    "keras.layers on torch": Library("keras", "torch", "", OURS + "keras_layers", "torch"),
    "keras.layers on jax": Library("keras", "jax", "", OURS + "keras_layers", "jax"),
    "optax": Library("optax", "jax", "optax.losses optax.projections optax.tree", OURS + "optax"),
    "diffrax": Library("diffrax", "jax", "", OURS + "diffrax"),
    "numpyro": Library("numpyro", "jax", "numpyro.distributions.transforms", OURS + "numpyro"),
    "keras.ops on jax": Library(
        "keras", "jax", "keras.ops keras.activations keras.losses", "", "jax"
    ),
}


@dataclass(frozen=True)
class Outcome:
    """What came of one function."""

    library: str
    name: str
    ending: str
    """One of `COLUMNS`."""
    text: str

    @property
    def line(self) -> str:
        """The line of JSON that it is written as."""
        return json.dumps(asdict(self)) + "\n"


Listener = Callable[[Outcome], None]


# ---------------------------------------------------------------- one library, in its process


@dataclass(frozen=True)
class Again:
    """A function that `adjudge write` found, as a function of the arrays of its call."""

    found: Found

    def __call__(self, *arrays: Any) -> Any:
        """What it returns."""
        call, function = self.found.call, self.found.subject.find()
        if isinstance(function, type):
            args, named = arguments(call.constructor, ()) if call.constructor else ([], {})
            function = function_class(function).make(*args, **named)
        return of_arrays(function, call)(*arrays)

    def case(self, label: str, backend: str) -> Case:
        """Another check of it, at the numbers of that of its first derivatives."""
        engine, rng = backend_named(backend), np.random.default_rng(0)
        arrays = [
            placed(engine, one.drawn(rng), None, None, name) for name, one in self.found.call.arrays
        ]
        return Case(self, tuple(arrays), name=label, wrt=self.found.wrt or None, backend=backend)


class Judging:
    """Judges what is found in one library, and says each outcome as it comes."""

    def __init__(self, name: str, library: Library, timeout: float, say: Listener) -> None:
        """Of the functions of `library`, each has `timeout` seconds."""
        self.name, self.library, self.timeout, self.say = name, library, timeout, say

    def found(self) -> Iterator[Case | str]:
        """Says what `adjudge write` finds out about functions, modules and methods; yields those
        of which second derivatives or exact references are asked.
        """
        again = dict[str, Case]()

        def told(one: Found | LeftOut) -> None:
            if isinstance(one, Found):
                label = f"{one.subject.module}.{one.subject.label}"
                further = self.library.order == 2 or self.library.exact
                if further and not one.subject.derivative:
                    again[label] = Again(one).case(label, self.library.backend)
                else:
                    self.say(Outcome(self.name, label, str(one.verdict), one.outline))
            elif one.why is not Why.NOT_CALLED:
                ending = OPEN if one.why is Why.INCONCLUSIVE else one.why.value
                self.say(Outcome(self.name, f"{module}: {one.name}", ending, one.reason))

        options: Any = {"backend": self.library.backend, "recursive": True, "methods": True}
        for module in self.library.modules.split():
            try:
                write(module, **options, timeout=self.timeout, on_result=told)
            except AdjudgeError as error:  # it cannot be imported, or has no functions
                self.say(Outcome(self.name, module, NO_INPUTS, error.found))
        yield from again.values()

    def cases(self) -> Iterator[Case | str]:
        """Yields the further cases of the library."""
        module, _, function = self.library.cases.partition(":")
        if module:
            yield from getattr(import_module(module), function)()

    def judge(self) -> None:
        """Judges all of it."""
        coming = itertools.chain(self.found(), self.cases())
        while some := list(itertools.islice(coming, BATCH)):
            for text in (one for one in some if isinstance(one, str)):
                label, _, reason = text.partition(": ")
                self.say(Outcome(self.name, label, NO_INPUTS, reason))
            cases = [self.as_asked(one) for one in some if isinstance(one, Case)]
            if cases:
                run(cases, timeout=self.timeout, seed=0, on_result=self.told)

    def as_asked(self, case: Case) -> Case:
        """The case, in the order and beside the reference that are asked for."""
        options: dict[str, Any] = dict(case.options)
        if self.library.exact:
            options["reference"] = "exact"
        if self.library.order == 2:
            options = {k: one for k, one in options.items() if k in ("wrt", "reference", "backend")}
            options["order"] = 2
        return Case(case.f, case.inputs, name=case.name, **options)

    def told(self, one: Result) -> None:
        """Says the outcome of a case."""
        ending = {"timed out": LOST, "died": LOST}.get(one.kind, one.kind)
        findings = (one.report or {}).get("findings", [])
        if {found["status"] for found in findings if found["verdict"] == FAIL} == {"DETACHED"}:
            ending = NO_DERIVATIVE
        self.say(Outcome(self.name, one.name, ending, one.headline))


def judge_library(name: str, library: Library, timeout: float, out: Path) -> None:
    """Writes a line of JSON for each function, as soon as there is one."""
    with out.open("a", encoding="utf-8") as lines:

        def say(outcome: Outcome) -> None:
            lines.write(outcome.line)
            lines.flush()

        Judging(name, library, timeout, say).judge()


# ---------------------------------------------------------------- all of them


def sweep(chosen: dict[str, Library], timeout: float, limit: float, out: Path) -> None:
    """Writes the outcomes of the libraries that are installed, each judged in a process of its own.

    A library whose last line is there is not walked again; one that was begun is begun again.
    """
    before = outcomes_in(out)
    done = {one.library for one in before if one.ending == WALKED}
    out.write_text("".join(o.line for o in before if o.library in done))
    for name, library in chosen.items():
        if name in done:
            continue
        if find_spec(library.root) is None:
            print(f"{name}: {library.root} is not installed", file=sys.stderr)
            continue
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as cache:
            command = [sys.executable, __file__, "--one", json.dumps([name, asdict(library)])]
            command += ["--timeout", str(timeout), "--out", str(out)]
            environment = {"JAX_COMPILATION_CACHE_DIR": cache, **COMPILED_ONCE, **os.environ}
            environment |= {"JAX_ENABLE_X64": "1", "KERAS_BACKEND": library.keras}
            try:
                code = subprocess.run(command, env=environment, timeout=limit).returncode  # noqa: S603
                ending = f"exit code {code}" if code else ""
            except subprocess.TimeoutExpired:
                ending = f"it took more than {limit:g} s"
        seconds = f"{time.perf_counter() - start:.0f} s"
        last = [Outcome(name, REST, LOST, ending)] * bool(ending)
        with out.open("a", encoding="utf-8") as lines:
            for one in (*last, Outcome(name, version_of(library.root), WALKED, seconds)):
                lines.write(one.line)
        print(f"{name}: {seconds}", file=sys.stderr)


def outcomes_in(out: Path) -> list[Outcome]:
    """What was written to a file; nothing where there is none."""
    lines = out.read_text("utf-8").splitlines() if out.exists() else []
    return [Outcome(**json.loads(line)) for line in lines]


def version_of(root: str) -> str:
    """The version of the distribution that holds a library."""
    names = metadata.packages_distributions().get(root, [])
    return metadata.version(names[0]) if names else ""


def cause_of(one: Outcome) -> str:
    """What was found out about a FAIL."""
    label = f"{one.library}: {one.name}"
    return next((cause for cause, known in CAUSES.items() if re.search(known, label)), UNKNOWN)


def table(outcomes: list[Outcome]) -> str:
    """One line for each library, the FAILs by cause, and what did not pass."""
    judged = [one for one in outcomes if one.ending != WALKED]
    walked = {one.library: (one.name, one.text) for one in outcomes if one.ending == WALKED}
    rows = [f"| library | functions | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 2) + "|"]
    for name in (*dict.fromkeys(one.library for one in judged), ""):
        counts = Counter(one.ending for one in judged if name in ("", one.library))
        numbers = " | ".join(str(counts[one]) for one in COLUMNS)
        label = f"{name} {walked.get(name, ('', ''))[0]}".strip() or "all"
        rows.append(f"| {label} | {counts.total()} | {numbers} |")
    failing = Counter(cause_of(one) for one in judged if one.ending == FAIL)
    if failing:
        rows += ["", "| cause | FAILs |", "|---|---|"]
        rows += [f"| {cause} | {count} |" for cause, count in failing.most_common()]
    for ending in (FAIL, OPEN, RAISED, LOST):
        found = [o for o in judged if o.ending == ending]
        rows += ["", f"{ending}:", ""] * bool(found)
        rows += [f"- {one.library}, `{one.name}`: {one.text}" for one in found]
    return "\n".join(rows)


def main() -> None:
    """Judges, writes the outcomes, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("libraries", nargs="*", metavar="LIBRARY_OR_MODULE")
    parser.add_argument("--backend", default="torch", help="of a module that is not in LIBRARIES")
    parser.add_argument("--cases", default="", metavar="MODULE:FUNCTION", help="and its cases")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for each function")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds for each library")
    parser.add_argument("--order", type=int, choices=(1, 2), default=1, help="of the derivatives")
    parser.add_argument("--exact", action="store_true", help="beside exact references")
    parser.add_argument("--out", type=Path, help="JSON lines; a sweep that was stopped goes on")
    parser.add_argument("--table", type=Path, help="print the table of outcomes that were written")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parsed = parser.parse_args()
    sys.path.append(str(Path.cwd()))  # where a library of one's own may lie
    if parsed.one:
        name, fields = json.loads(parsed.one)
        judge_library(name, Library(**fields), parsed.timeout, parsed.out)
        return
    if parsed.table:
        print(table(outcomes_in(parsed.table)))
        return
    chosen = dict[str, Library]()
    for name in parsed.libraries or LIBRARIES:
        own = Library(name.partition(".")[0], parsed.backend, name, parsed.cases)
        library = replace(LIBRARIES.get(name, own), order=parsed.order, exact=parsed.exact)
        label = name + ", second order" * (parsed.order == 2) + ", exact" * parsed.exact
        chosen[label] = library
    with tempfile.TemporaryDirectory() as folder:
        out = parsed.out or Path(folder, "outcomes")
        sweep(chosen, parsed.timeout, parsed.limit, out)
        print(table(outcomes_in(out)))


if __name__ == "__main__":
    main()
