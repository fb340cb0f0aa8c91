"""Libraries on their engines: every function that is found, with inputs that it accepts.

    python benchmarks/sweep.py                              # all of LIBRARIES that are installed
    python benchmarks/sweep.py kornia torchdiffeq --out sweep.json
    python benchmarks/sweep.py my_package --backend torch --cases my_cases:cases
    python benchmarks/sweep.py --table sweep.json

Functions, modules and methods are found by `adjudge write`; what it cannot make inputs for is in
`sweep_cases.py`. Each library is judged by a process of its own, and each function by one below
that, with a time limit, so that nothing that hangs or dies takes others along. The table counts
functions; what did not pass is listed below it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from adjudge import Case, run
from adjudge.errors import AdjudgeError
from adjudge.ghostwriter import Found, LeftOut, Why, write
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
    "numpyro": Library("numpyro", "jax", "numpyro.distributions.transforms", OURS + "numpyro"),
    "optax": Library("optax", "jax", "optax.losses optax.projections optax.tree", OURS + "optax"),
    "diffrax": Library("diffrax", "jax", "", OURS + "diffrax"),
}


@dataclass(frozen=True)
class Outcome:
    """What came of one function."""

    library: str
    name: str
    ending: str
    """One of `COLUMNS`."""
    text: str


Listener = Callable[[Outcome], None]


# ---------------------------------------------------------------- one library, in its process


def judge_found(name: str, library: Library, timeout: float, say: Listener) -> None:
    """Says what `adjudge write` finds out about functions, modules and methods of a library."""

    def told(one: Found | LeftOut) -> None:
        if isinstance(one, Found):
            label = f"{one.subject.module}.{one.subject.label}"
            say(Outcome(name, label, str(one.verdict), one.outline))
        elif one.why is not Why.NOT_CALLED:
            ending = OPEN if one.why is Why.INCONCLUSIVE else one.why.value
            say(Outcome(name, f"{module}: {one.name}", ending, one.reason))

    options: Any = {"backend": library.backend, "recursive": True, "methods": True}
    for module in library.modules.split():
        try:
            write(module, **options, timeout=timeout, on_result=told)
        except AdjudgeError as error:  # it cannot be imported, or has no functions
            say(Outcome(name, module, NO_INPUTS, error.found))


def judge_cases(name: str, library: Library, timeout: float, say: Listener) -> None:
    """Says what checks make of the further cases of a library."""

    def told(one: Result) -> None:
        ending = {"timed out": LOST, "died": LOST}.get(one.kind, one.kind)
        findings = (one.report or {}).get("findings", [])
        if {found["status"] for found in findings if found["verdict"] == FAIL} == {"DETACHED"}:
            ending = NO_DERIVATIVE
        say(Outcome(name, one.name, ending, one.headline))

    module, _, function = library.cases.partition(":")
    found = iter(getattr(import_module(module), function)())
    while some := list(itertools.islice(found, BATCH)):
        for text in (one for one in some if isinstance(one, str)):
            label, _, reason = text.partition(": ")
            say(Outcome(name, label, NO_INPUTS, reason))
        cases = [one for one in some if isinstance(one, Case)]
        if cases:
            run(cases, timeout=timeout, seed=0, on_result=told)


def judge_library(name: str, library: Library, timeout: float, out: Path) -> None:
    """Writes a line of JSON for each function, as soon as there is one."""
    if library.backend == "jax":
        import jax

        jax.config.update("jax_enable_x64", True)
    with out.open("a", encoding="utf-8") as lines:

        def say(outcome: Outcome) -> None:
            lines.write(json.dumps(asdict(outcome)) + "\n")
            lines.flush()

        judge_found(name, library, timeout, say)
        if library.cases:
            judge_cases(name, library, timeout, say)


# ---------------------------------------------------------------- all of them


def sweep(chosen: dict[str, Library], timeout: float, limit: float) -> Iterator[Outcome]:
    """The outcomes of the libraries that are installed, each judged in a process of its own."""
    for name, library in chosen.items():
        if find_spec(library.root) is None:
            print(f"{name}: {library.root} is not installed", file=sys.stderr)
            continue
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder, "outcomes")
            out.touch()
            command = [sys.executable, __file__, "--one", json.dumps([name, asdict(library)])]
            command += ["--timeout", str(timeout), "--out", str(out)]
            environment = {**os.environ, "JAX_ENABLE_X64": "1", "KERAS_BACKEND": library.keras}
            try:
                code = subprocess.run(command, env=environment, timeout=limit).returncode  # noqa: S603
                ending = f"exit code {code}" if code else ""
            except subprocess.TimeoutExpired:
                ending = f"it took more than {limit:g} s"
            for line in out.read_text("utf-8").splitlines():
                yield Outcome(**json.loads(line))
            if ending:
                yield Outcome(name, "what is left of the library", LOST, ending)
        print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr)


def version_of(name: str) -> str:
    """The version of the distribution that holds a library."""
    root = LIBRARIES[name].root if name in LIBRARIES else name.partition(".")[0]
    names = metadata.packages_distributions().get(root, [])
    return metadata.version(names[0]) if names else ""


def table(outcomes: list[Outcome]) -> str:
    """One line for each library, and below it what did not pass."""
    rows = [f"| library | functions | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 2) + "|"]
    for name in dict.fromkeys(one.library for one in outcomes):
        counts = Counter(one.ending for one in outcomes if one.library == name)
        numbers = " | ".join(str(counts[one]) for one in COLUMNS)
        label = f"{name} {version_of(name)}".rstrip()
        rows.append(f"| {label} | {counts.total()} | {numbers} |")
    counts = Counter(one.ending for one in outcomes)
    rows.append(f"| all | {counts.total()} | {' | '.join(str(counts[one]) for one in COLUMNS)} |")
    for ending in (FAIL, OPEN, RAISED, LOST):
        found = [o for o in outcomes if o.ending == ending]
        rows += ["", f"{ending}:", ""] * bool(found)
        rows += [f"- {one.library}, `{one.name}`: {one.text}" for one in found]
    return "\n".join(rows)


def main() -> None:
    """Judges, writes the outcomes, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("libraries", nargs="*", metavar="LIBRARY_OR_MODULE")
    parser.add_argument("--backend", default="torch", help="of a module that is not in LIBRARIES")
    parser.add_argument("--cases", default="", metavar="MODULE:FUNCTION", help="and its cases")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds for each function")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds for each library")
    parser.add_argument("--out", type=Path, help="where to write the outcomes as JSON")
    parser.add_argument("--table", type=Path, help="print the table of outcomes that were written")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parsed = parser.parse_args()
    sys.path.append(str(Path.cwd()))  # where a library of one's own may lie
    if parsed.one:
        name, fields = json.loads(parsed.one)
        judge_library(name, Library(**fields), parsed.timeout, parsed.out)
        return
    if parsed.table:
        outcomes = [Outcome(**one) for one in json.loads(parsed.table.read_text("utf-8"))]
    else:
        names = parsed.libraries or LIBRARIES
        chosen = {
            name: LIBRARIES.get(name)
            or Library(name.partition(".")[0], parsed.backend, name, parsed.cases)
            for name in names
        }
        outcomes = list(sweep(chosen, parsed.timeout, parsed.limit))
    if parsed.out:
        parsed.out.write_text(json.dumps([asdict(one) for one in outcomes], indent=1), "utf-8")
    print(table(outcomes))


if __name__ == "__main__":
    main()
