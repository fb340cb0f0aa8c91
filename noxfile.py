"""The matrix: Python × engine, lowest versions, all engines together, the wheel, linters, docs.

`nox -l` lists the sessions, `nox -s "tests-3.11(torch)"` runs one, `nox -t tests` runs Python ×
engine, and what follows `--` goes to pytest. virtualenv makes the environments, pip fills them.
"""

import os
from pathlib import Path

import nox
from packaging.requirements import Requirement

nox.needs_version = ">=2024.10.9"
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_missing_interpreters = bool(os.environ.get("CI"))

PROJECT = nox.project.load_toml("pyproject.toml")["project"]
PYTHON = "3.11"

# torch is pinned to a build for 3.11.
MATRIX = {
    "3.11": ["numpy", "torch", "jax"],
    "3.12": ["numpy", "jax"],
    "3.13": ["numpy", "jax"],
}


def extras(*names: str) -> str:
    """`[torch,test]`: the extras of these names; numpy is a dependency and needs none."""
    return f"[{','.join(name for name in names if name != 'numpy')}]"


def install(session: nox.Session, *names: str) -> None:
    """Installs the working tree with these extras, at the versions of constraints.txt."""
    session.install("-c", "constraints.txt", "-e", f".{extras(*names)}")


def run_tests(session: nox.Session, *engines: str) -> None:
    """Runs pytest; it fails, and does not skip, where one of these engines is absent."""
    session.run("pytest", *session.posargs, env={"ADJUDGE_REQUIRE": ",".join(engines)})


def lowest_versions(backend: str) -> list[str]:
    """`numpy==2.0`, …: the lower bound of every direct dependency, with those of `backend`."""
    bounds = PROJECT["dependencies"] + PROJECT["optional-dependencies"].get(backend, [])
    pins = []
    for requirement in map(Requirement, bounds):
        (lower,) = (s.version for s in requirement.specifier if s.operator == ">=")
        pins.append(f"{requirement.name}=={lower}")
    return pins


def pins_of_test_tools() -> list[str]:
    """The lines of constraints.txt that pin the extra `test`."""
    tools = {Requirement(line).name for line in PROJECT["optional-dependencies"]["test"]}
    lines = Path("constraints.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.partition("==")[0] in tools]


def add_tests(python: str, backends: list[str]) -> None:
    """Adds the sessions `tests-3.11(numpy)`, …, one for each engine that this Python has."""

    @nox.session(name=f"tests-{python}", python=python, tags=["tests"])
    @nox.parametrize("backend", backends, ids=backends)
    def tests(session: nox.Session, backend: str) -> None:
        """Runs the tests with one engine installed."""
        install(session, backend, "test")
        run_tests(session, backend)


for python, backends in MATRIX.items():
    add_tests(python, backends)


@nox.session(python=PYTHON)
def cross(session: nox.Session) -> None:
    """Runs the tests with every CPU engine in one environment."""
    install(session, "torch", "jax", "test")
    run_tests(session, "torch", "jax")


# The first torch of our bound is not built for the CPU alone on the package index.
@nox.session(python=PYTHON)
@nox.parametrize("backend", ["numpy", "jax"], ids=["numpy", "jax"])
def lowest(session: nox.Session, backend: str) -> None:
    """Runs the tests with the lowest versions that pyproject.toml allows."""
    session.install(*lowest_versions(backend), *pins_of_test_tools(), "-e", ".[test]")
    run_tests(session, backend)


@nox.session(python=PYTHON)
def wheel(session: nox.Session) -> None:
    """Builds the wheel and runs the tests against it."""
    folder = Path(session.create_tmp()).resolve()
    for old in folder.glob("*.whl"):
        old.unlink()
    session.run("python", "-m", "pip", "wheel", "--no-deps", "-w", str(folder), ".")
    (built,) = folder.glob("adjudge-*.whl")
    session.install("--force-reinstall", "--no-deps", str(built))
    session.install("-c", "constraints.txt", f"{built}{extras('torch', 'jax', 'test')}")
    run_tests(session, "torch", "jax")


@nox.session(python=PYTHON)
def lint(session: nox.Session) -> None:
    """Runs ruff and the import contracts."""
    install(session, "lint")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports")


@nox.session(python=PYTHON)
def types(session: nox.Session) -> None:
    """Runs mypy, with the engines whose types the adapters use."""
    install(session, "torch", "jax", "lint")
    session.run("mypy")


@nox.session(python=PYTHON)
def docs(session: nox.Session) -> None:
    """Builds the pages; a warning is an error."""
    install(session, "docs")
    session.run("sphinx-build", "-W", "--keep-going", "-b", "html", "docs", "docs/_build/html")
