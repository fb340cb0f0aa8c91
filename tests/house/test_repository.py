"""The rules of this repository that a linter cannot hold alone."""

import ast
import importlib
import importlib.metadata
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import adjudge

ROOT = Path(__file__).parents[2]
CORE = ROOT / "src" / "adjudge"
CONSTANTS = CORE / "constants.py"
PLUGIN = ROOT / "src" / "adjudge_pytest"
ADAPTERS = ROOT / "adapters"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

IMPORT_ROOTS = ["adjudge", *sorted(path.name for path in ADAPTERS.glob("adjudge_*"))]
SOURCES = sorted(path for root in (CORE, PLUGIN, ADAPTERS) for path in root.rglob("*.py"))

DOORS_ALONE = {"adjudge_scipy"}
"""The import roots in adapters/ that hold a door and no engine."""

FRAMEWORKS = {
    "torch",
    "jax",
    "jaxlib",
    "cupy",
    "lucid",
    "autograd",
    "mlx",
    "tensorflow",
    "tinygrad",
}
LATER = ("adjudge.cli", "adjudge.conformance", "adjudge.ghostwriter", "adjudge.strategies")
CROSS = "adjudge.cross.crosscheck"
"""What a check has no need of, and `import adjudge` leaves to those who ask for it."""


def in_fresh_python(code: str, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_the_import_contracts_hold():
    command = "from importlinter.cli import lint_imports_command; lint_imports_command()"

    done = subprocess.run(
        [sys.executable, "-c", command, "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_importing_the_core_imports_no_framework():
    code = "import sys, adjudge; print(*sorted({name.partition('.')[0] for name in sys.modules}))"

    imported = set(in_fresh_python(code).split())

    assert "adjudge" in imported
    assert set() == imported & (FRAMEWORKS | set(IMPORT_ROOTS[1:]))


def test_importing_the_core_imports_its_dependencies_and_nothing_else_that_is_installed():
    code = "import sys; before = set(sys.modules); import {}; print(*set(sys.modules) - before)"
    dependencies = [module_of(one) for one in PYPROJECT["project"]["dependencies"]]

    alone = set(in_fresh_python(code.format(", ".join(dependencies))).split())
    with_us = set(in_fresh_python(code.format("adjudge")).split())

    roots = {name.partition(".")[0] for name in with_us - alone} - sys.stdlib_module_names
    assert "adjudge" in roots
    assert roots - {"adjudge", *dependencies} == set()


def module_of(dependency: str) -> str:
    """`array_api_compat`: the module of `array-api-compat>=1.11`."""
    return dependency.partition(">=")[0].replace("-", "_")


def test_what_most_programs_do_without_is_imported_when_it_is_asked_for():
    code = (
        "import sys, adjudge; first = set(sys.modules); adjudge.crosscheck; "
        "print(*first, '|', *set(sys.modules) - first)"
    )

    first, later = (words.split() for words in in_fresh_python(code).split("|"))

    assert "adjudge" in first
    assert [name for name in first if name.startswith((*LATER, CROSS))] == []
    assert [name for name in later if name.startswith(CROSS)] != []
    assert [name for name in LATER if importlib.util.find_spec(name) is None] == []


WITHOUT = {
    # the module that is missing: what needs it, and the command that installs it
    "torch": ("from adjudge_torch import gradcheck", "install it: pip install 'adjudge[torch]'"),
    "jax": ("from adjudge_jax import check_grads", "install it: pip install 'adjudge[jax]'"),
    "cupy": ("from adjudge_cupy import CupyBackend", "install it: pip install 'adjudge[cupy]'"),
    "tensorflow": (
        "from adjudge_tensorflow import compute_gradient",
        "install it: pip install 'adjudge[tensorflow]'",
    ),
    "hypothesis": ("import adjudge.strategies", "pip install 'adjudge[hypothesis]'"),
    "warp": (
        "from adjudge_cupy import warp_kernel; warp_kernel(None, 1, ())",
        "pip install warp-lang",
    ),
}


@pytest.fixture(scope="module")
def told():
    """What each of these says where its module is missing, one process for all of them."""
    code = f"""
import json, sys
told = {{}}
for module, (use, _) in {WITHOUT!r}.items():
    sys.modules[module] = None
    try:
        exec(use)
    except ModuleNotFoundError as error:
        told[module] = " ".join(error.__notes__)
    for name in [name for name in sys.modules if name.startswith("adjudge_")]:
        del sys.modules[name]
    del sys.modules[module]
print(json.dumps(told))
"""
    return json.loads(in_fresh_python(code))


@pytest.mark.parametrize("module", WITHOUT)
def test_a_module_that_is_missing_is_told_with_the_command_that_installs_it(told, module):
    assert WITHOUT[module][1] in told[module]


@pytest.mark.parametrize("name", [*IMPORT_ROOTS, "adjudge_pytest"])
def test_every_import_root_ships_its_types(name):
    folder = {"adjudge": CORE, "adjudge_pytest": PLUGIN}.get(name, ADAPTERS / name)
    shipped = {path.as_posix() for path in importlib.metadata.files("adjudge") or ()}

    assert (folder / "__init__.py").is_file()
    assert (folder / "py.typed").is_file()
    # An editable install lists a path file instead of the files themselves.
    assert f"{name}/py.typed" in shipped or any(file.endswith(".pth") for file in shipped)


def test_every_adapter_is_declared_and_held_to_the_contracts():
    groups = PYPROJECT["project"]["entry-points"]
    entries = groups["adjudge.backends"] | groups["adjudge.arrays"]
    linter = PYPROJECT["tool"]["importlinter"]
    contracts = {contract["id"]: contract for contract in linter["contracts"]}
    adapters = IMPORT_ROOTS[1:]

    engines = {value.partition(":")[0] for value in entries.values()}
    assert adapters == sorted(engines | DOORS_ALONE)
    assert sorted([*IMPORT_ROOTS, "adjudge_pytest"]) == sorted(linter["root_packages"])
    assert adapters == sorted(contracts["adapters"]["source_modules"])
    assert adapters == sorted(contracts["independence"]["modules"])
    assert set(adapters) <= set(contracts["core"]["forbidden_modules"])


@pytest.mark.parametrize("group", ["adjudge.backends", "pytest11"])
def test_the_installed_entry_points_are_those_of_pyproject(group):
    declared = PYPROJECT["project"]["entry-points"][group]

    ours = importlib.metadata.distribution("adjudge").entry_points
    installed = {entry.name: entry.value for entry in ours if entry.group == group}

    assert declared == installed, "install again: pip install -e ."


def test_the_version_is_written_once_in_effect():
    declared = PYPROJECT["project"]["version"]

    assert declared == adjudge.__version__
    assert declared == importlib.metadata.version("adjudge"), "install again: pip install -e ."


def rooms() -> list[str]:
    return sorted(path.parent.name for path in CORE.glob("*/__init__.py"))


def test_a_room_is_entered_by_its_door():
    """`from adjudge.problem import Problem`, and never `adjudge.problem.problem` from outside."""
    through_a_wall = [
        f"{relative(path)}:{node.lineno} imports {node.module}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        and (parts := (node.module or "").split("."))[0] == "adjudge"
        and len(parts) > 2
        and CORE / parts[1] not in path.parents
    ]

    assert [] == through_a_wall


def test_the_page_on_architecture_lists_the_rooms_in_the_order_of_imports():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    contracts = {one["id"]: one for one in PYPROJECT["tool"]["importlinter"]["contracts"]}
    layers = [name for layer in contracts["rooms"]["layers"] for name in layer.split(" | ")]

    listed = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)

    assert [name for name in layers if name != "_version"] == [
        name for name in listed if name in layers
    ]


def test_the_call_drawn_on_that_page_goes_through_names_at_the_doors():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawing = page.split("```text\n")[1].split("```")[0]
    steps = re.findall(r"^(\w+) +(\w+)(?:, (\w+))?  ", drawing, re.MULTILINE)

    missing = [
        f"adjudge.{room}.{name}"
        for room, *names in steps
        for name in filter(None, names)
        if not hasattr(importlib.import_module(f"adjudge.{room}"), name)
    ]

    assert len(steps) > 20
    assert [] == missing


def test_a_check_costs_what_that_page_says():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    x = np.linspace(0.5, 2.0, 1000)
    cube = adjudge.ByHand(lambda x: x**3, vjp=lambda x, w: 3 * x**2 * w)

    counts = adjudge.gradcheck(cube, x, seed=1).counts

    assert f"({counts['evaluations']} and {counts['vjps']} in all)" in page


@pytest.mark.parametrize("room", rooms())
def test_a_door_says_what_is_behind_it_in_the_order_of_imports(room):
    door = importlib.import_module(f"adjudge.{room}")
    modules = sorted(path.stem for path in (CORE / room).glob("*.py") if path.stem != "__init__")

    listed = re.findall(r"^- `(\w+)`: ", door.__doc__ or "", re.MULTILINE)

    assert [] == [name for name in door.__all__ if not hasattr(door, name)]
    if listed:
        assert modules == sorted(listed)
        assert [] == imported_from_below(room, listed)


def imported_from_below(room: str, listed: list[str]) -> list[str]:
    """Imports inside a room that run against the order in which its door lists the modules."""
    return [
        f"{name} imports {below}"
        for k, name in enumerate(listed)
        for node in ast.walk(ast.parse((CORE / room / f"{name}.py").read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        for below in listed[k:]
        if node.module == f"adjudge.{room}.{below}"
        or (node.module == f"adjudge.{room}" and below in [one.name for one in node.names])
    ]


def test_an_import_against_the_order_of_a_door_is_seen():
    door = importlib.import_module("adjudge.estimate")
    listed = re.findall(r"^- `(\w+)`: ", door.__doc__ or "", re.MULTILINE)

    assert "noise imports directional" in imported_from_below("estimate", listed[::-1])


def constants() -> dict[str, str]:
    """The docstring of every constant that decides, where it has one."""
    body = ast.parse(CONSTANTS.read_text(encoding="utf-8")).body
    found = {}
    for here, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(here, ast.Assign):
            said = after.value if isinstance(after, ast.Expr) else None
            text = said.value if isinstance(said, ast.Constant) else ""
            found |= {target.id: text for target in here.targets}
    return found


def test_a_constant_that_decides_is_used_and_says_what_it_guards_against_and_its_effect():
    code = " ".join(path.read_text("utf-8") for path in CORE.rglob("*.py") if path != CONSTANTS)
    names = set(re.findall(r"\b[A-Z][A-Z_]+\b", code))

    assert set(constants()) <= names
    assert [name for name, text in constants().items() if len(re.split(r"[.]\s", text)) < 2] == []


def test_a_constant_is_defined_once():
    """The last of two of one name would count for both."""
    body = ast.parse(CONSTANTS.read_text(encoding="utf-8")).body
    targets = [one for here in body if isinstance(here, ast.Assign) for one in here.targets]
    names = [ast.unparse(target) for target in targets]

    assert [name for name in names if names.count(name) > 1] == []


DRAWS_OF_THEIR_OWN = {
    "src/adjudge/conformance/subject.py": "inputs of a scenario, seeded by its name",
    "src/adjudge/conformance/verdicts.py": "probes of a scenario, which no check draws",
    "src/adjudge/ghostwriter/trial.py": "the inputs of a test, drawn as its code draws them",
    "src/adjudge/ghostwriter/writer.py": "the code of a test, which draws its inputs",
    "src/adjudge/strategies/drawing.py": "a permutation whose seed Hypothesis draws and shrinks",
}


def test_random_numbers_of_a_check_come_from_the_one_list_of_streams():
    makers = {
        relative(path)
        for path in CORE.rglob("*.py")
        if re.search(r"default_rng|[.](RandomState|Generator|Philox|PCG64)[(]", path.read_text())
    }

    assert {"src/adjudge/problem/probes.py", *DRAWS_OF_THEIR_OWN} == makers


def test_no_exception_is_dropped_in_silence():
    dropped = [
        f"{relative(path)}:{node.lineno}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ExceptHandler)
        and all(isinstance(line, ast.Pass) or is_ellipsis(line) for line in node.body)
    ]

    assert [] == dropped


def is_ellipsis(line: ast.stmt) -> bool:
    return (
        isinstance(line, ast.Expr)
        and isinstance(line.value, ast.Constant)
        and line.value.value is ...
    )
