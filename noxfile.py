"""The matrix: Python × engine × {locked, lowest}, all engines together, libraries, linters, docs.

`nox -l` lists the sessions, `nox -s "tests-3.11(torch, locked)"` runs one, `nox -t torch` those of
one engine, and what follows `--` goes to pytest. `nox -l --json` is the list for a CI matrix:
.github/workflows/tests.yml. virtualenv makes the environments, pip fills them.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import nox
from packaging.requirements import Requirement

nox.needs_version = ">=2024.10.9"
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_missing_interpreters = bool(os.environ.get("CI"))

PROJECT = nox.project.load_toml("pyproject.toml")["project"]
PYTHON = "3.11"
ENGINES = ["torch", "jax"]
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
TORCH_CUDA_INDEX = "https://download.pytorch.org/whl"
TORCH_CUDA = [((13, 0), "cu130"), ((12, 8), "cu128"), ((12, 6), "cu126")]
PAGE_RUNS = "test_the_examples_print_what_the_page_shows"
GPU_JSON = "benchmarks/gpu.json"

# torch is pinned to a build for 3.11; the lowest versions are older than the newer Pythons.
LOCKED, LOWEST = "locked", "lowest"
MATRIX = {
    "3.11": [(b, v) for b in ("numpy", *ENGINES) for v in (LOCKED, LOWEST)],
    "3.12": [("numpy", LOCKED), ("jax", LOCKED)],
    "3.13": [("numpy", LOCKED), ("jax", LOCKED)],
}


def extras(*names: str) -> str:
    """`[torch,test]`: the extras of these names; numpy is a dependency and needs none."""
    return f"[{','.join(name for name in names if name != 'numpy')}]"


def install(session: nox.Session, *names: str) -> None:
    """Installs the working tree with these extras, at the versions of constraints.txt."""
    session.install("-c", "constraints.txt", "-e", f".{extras(*names)}")


def install_lowest(session: nox.Session, backend: str) -> None:
    """Installs the working tree with one engine, at the lowest versions of pyproject.toml."""
    pins = lowest_versions(backend)
    if backend == "torch":
        pins = [f"{pin}+cpu" if pin.startswith("torch==") else pin for pin in pins]
        require_torch_index(session, next(pin for pin in pins if pin.startswith("torch==")))
    session.install(*pins, *pins_of_test_tools(), "-e", f".{extras('test')}")


def require_torch_index(session: nox.Session, pin: str) -> None:
    """Installs an old PyTorch without CUDA, whose builds are on an index of their own.

    Where that cannot be reached the session is skipped, and fails in CI.
    """
    asked = ["--no-deps", "--only-binary", ":all:", "--extra-index-url", TORCH_INDEX, pin]
    said = session.run("python", "-m", "pip", "install", *asked, silent=True, success_codes=[0, 1])
    if "No matching distribution" in str(said):
        reason = f"{pin} is on {TORCH_INDEX}, which cannot be reached"
        if os.environ.get("CI"):
            session.error(reason)
        session.skip(reason)


def run_tests(session: nox.Session, *engines: str, arguments: tuple[str, ...] = ()) -> None:
    """Runs pytest; it fails where one of these engines is absent, or made no comparison."""
    session.run("pytest", "--adjudge-require", ",".join(engines), *arguments, *session.posargs)


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


def add_tests(python: str, cells: list[tuple[str, str]]) -> None:
    """Adds the sessions `tests-3.11(numpy, locked)`, …, one for each cell of this Python."""
    params = [nox.param(*cell, id=", ".join(cell), tags=["tests", *cell]) for cell in cells]

    @nox.session(name=f"tests-{python}", python=python)
    @nox.parametrize("backend,versions", params)
    def tests(session: nox.Session, backend: str, versions: str) -> None:
        """Runs the tests with one engine installed."""
        if versions == LOWEST:
            install_lowest(session, backend)
        else:
            install(session, backend, "test")
        run_tests(session, backend, "autograd")


for python, cells in MATRIX.items():
    add_tests(python, cells)


@nox.session(python=PYTHON, tags=["tests"])
def cross(session: nox.Session) -> None:
    """Runs the tests with every CPU engine in one environment, crosscheck among them."""
    install(session, *ENGINES, "test")
    run_tests(session, *ENGINES, "autograd")


@nox.session(python=PYTHON, default=False)
def long(session: nox.Session) -> None:
    """Runs the seeds, dtypes and sizes that no other session does; takes ten minutes."""
    install(session, *ENGINES, "test")
    run_tests(session, *ENGINES, arguments=("--long", "-m", "long"))


@nox.session(python=PYTHON, default=False)
def integration(session: nox.Session) -> None:
    """Checks functions of einops, tensorly, POT, SciPy and array-api-extra; takes minutes."""
    install(session, *ENGINES, "test", "integration")
    run_tests(session, *ENGINES, arguments=("tests/integration",))


@nox.session(python=PYTHON, default=False)
def keras(session: nox.Session) -> None:
    """Checks every function of keras.ops on PyTorch, JAX and TensorFlow; takes half an hour.

    KERAS_OPS names a folder in which what was found is kept, and read again.
    """
    install(session, *ENGINES, "tensorflow", "test", "keras")
    # not `run_tests`: each engine makes its comparisons in a process of its own
    session.run("pytest", "tests/integration/test_keras_ops.py", *session.posargs)


@nox.session(python=PYTHON, default=False)
def sweep(session: nox.Session) -> None:
    """Walks libraries on PyTorch and JAX, and prints how their functions end; takes an hour or two.

    One that was stopped goes on where it was; `-- --out FILE` begins another.
    """
    install(session, *ENGINES, "test", "sweep")
    out = Path(session.create_tmp(), "sweep.jsonl").resolve()
    session.run("python", "benchmarks/sweep.py", "--out", str(out), *session.posargs)


@nox.session(python=PYTHON, default=False)
def engines(session: nox.Session) -> None:
    """Checks layers, operators, tapes and CuPy's kernels, as far as a CPU runs them."""
    install(session, *ENGINES, "test", "engines", "cupy")
    session.install("nvidia-cuda-nvrtc-cu12")
    run_tests(session, "numpy", *ENGINES, arguments=("tests/engines",))


@nox.session(python=PYTHON, default=False)
def page(session: nox.Session) -> None:
    """Drives the page of a run in Chromium: apt-get install chromium chromium-driver."""
    install(session, "test", "browser")
    session.run("pytest", "tests/browser", *session.posargs)


def add_engine(engine: str, python: str = "3.12", page: bool = False, **environment: str) -> None:
    """Adds the session of an engine that has one file of tests, a wrong adapter for each mistake,
    and a `page` of the how-to guides, which that file runs or else test_how_to.py.
    """

    @nox.session(name=engine, python=python, tags=["tests", engine])
    def tests(session: nox.Session) -> None:
        """Runs the tests of this engine: its adapter, its mutations, its findings and its doors."""
        install(session, engine, "test")
        session.env.update(environment)
        names = (engine, "conformance_mutations", "engine_findings", "doors")
        paths = [f"tests/backends/test_{name}.py" for name in names]
        if page:
            paths.append(f"tests/house/test_how_to.py::{PAGE_RUNS}[{engine}]")
        run_tests(session, engine, arguments=tuple(paths))


add_engine("mlx", page=True)
add_engine("tinygrad", page=True, DEV="PYTHON")  # which needs no clang
add_engine("lucid")
add_engine("tensorflow", PYTHON)  # beside the others it would slow their imports


@nox.session(python=PYTHON, default=False, tags=["gpu"])
def gpu(session: nox.Session) -> None:
    """Runs benchmarks/gpu.py with CUDA builds; ADJUDGE_REQUIRE_GPU=1 forbids to skip."""
    cuda = cuda_of_driver()
    if cuda is None:
        reason = "no NVIDIA driver (nvidia-smi not found, or it names no CUDA version)"
        if os.environ.get("ADJUDGE_REQUIRE_GPU") == "1":
            session.error(reason)
        session.skip(reason)
    session.log(f"the driver supports CUDA {cuda[0]}.{cuda[1]}")
    builds = cuda_builds(cuda)
    session.install(*builds["torch"])
    session.install("-c", "constraints.txt", *builds["others"])
    session.install("-c", "constraints.txt", "-e", f".{extras('test', 'engines')}")
    session.run("python", "benchmarks/gpu.py", *(session.posargs or ["--out", GPU_JSON]))


def cuda_of_driver() -> tuple[int, int] | None:
    """The newest CUDA that the driver supports, as nvidia-smi has it; `None` without a driver."""
    driver = shutil.which("nvidia-smi")
    if driver is None:
        return None
    said = subprocess.run([driver], capture_output=True, text=True).stdout  # noqa: S603
    found = re.search(r"CUDA Version:\s*(\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else None


def cuda_builds(cuda: tuple[int, int]) -> dict[str, list[str]]:
    """What pip installs for a driver: PyTorch from the index of the newest CUDA that fits it."""
    major = 13 if cuda >= (13, 0) else 12
    index = next((tag for least, tag in TORCH_CUDA if cuda >= least), TORCH_CUDA[-1][1])
    return {
        "torch": ["--index-url", f"{TORCH_CUDA_INDEX}/{index}", "torch"],
        "others": [f"cupy-cuda{major}x>=13.3", f"jax[cuda{major}]"],
    }


@nox.session(python=PYTHON)
def wheel(session: nox.Session) -> None:
    """Builds the wheel and runs the tests against it."""
    folder = Path(session.create_tmp()).resolve()
    for old in folder.glob("*.whl"):
        old.unlink()
    session.run("python", "-m", "pip", "wheel", "--no-deps", "-w", str(folder), ".")
    (built,) = folder.glob("adjudge-*.whl")
    session.install("--force-reinstall", "--no-deps", str(built))
    session.install("-c", "constraints.txt", f"{built}{extras(*ENGINES, 'test')}")
    run_tests(session, *ENGINES)


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
    install(session, *ENGINES, "test", "lint")
    session.run("mypy")


@nox.session(python=PYTHON)
def docs(session: nox.Session) -> None:
    """Builds the pages; a warning is an error."""
    install(session, "docs")
    session.run("sphinx-build", "-W", "--keep-going", "-b", "html", "docs", "docs/_build/html")
