"""Scripts that repeat a check: the same arrays bit by bit, the same verdict."""

import subprocess
import sys
from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import adjudge
from adjudge.engine.arrays import PlainBackend
from adjudge.report.reproduce import reproduction

RIGHT = adjudge.ByHand(np.sin, vjp=lambda x, w: w * np.cos(x))
WRONG = adjudge.ByHand(np.sin, vjp=lambda x, w: w * np.cos(x) * 2)
Pair = namedtuple("Pair", ["a", "b"])


def run(script: str) -> dict[str, Any]:
    """The names that a script leaves behind."""
    space: dict[str, Any] = {}
    exec(script, space)  # noqa: S102 our own script
    return space


def inputs_of(script: str) -> Any:
    """The inputs that a script makes; the check is left out."""
    return run(script.split("report = ")[0])["inputs"]


def same(one: Any, other: Any) -> bool:
    """Whether both are of the same types, structure and bits."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray | np.generic):
        alike = one.dtype == other.dtype and one.shape == other.shape
        return alike and one.tobytes() == other.tobytes()
    return repr(one) == repr(other)


def nan_with_a_payload() -> Any:
    return np.array([0x7FF8000000000123, 0xFFF8000000000000], "uint64").view("float64")


@pytest.mark.parametrize(
    "given",
    [
        np.array([1.0, -0.0, np.nan, np.inf, -np.inf, 5e-324, 0.1, 1.7976931348623157e308]),
        np.array([1.0, -0.0, 1e-45, 0.1], "float32"),
        np.array([1.0, -0.0, 6e-8, 0.1, np.nan], "float16"),
        np.array([complex(-0.0, np.nan), complex(np.inf, -0.0), 0.1 + 0.2j]),
        np.array([complex(-0.0, 1), complex(0.1, -0.0)], "complex64"),
        nan_with_a_payload(),
        nan_with_a_payload().view("complex128"),
        np.float32(np.nan) * np.array([1, -1], "float32"),
        np.array([[1, -(2**63)], [3, 2**63 - 1]]),
        np.array([0, 2**64 - 1], "uint64"),
        np.array([[True], [False]]),
        np.array(0.5),
        np.array(3),
        np.zeros((0, 3), "float32"),
        np.zeros((2, 0, 1), "complex64"),
        np.arange(64.0).reshape(4, 4, 4) / 7,
        np.float32(0.1),
        (
            np.array([0.1]),
            {"w": np.zeros((2, 1)), 3: [np.array([1]), None, "a", 0.1, -0.0, 1 + 2j]},
        ),
        [np.array([0.1]), (), [], {}, True],
        (Pair(np.array([1.0]), 2),),
    ],
)
def test_inputs_are_the_same_bit_by_bit(given):
    assert same(inputs_of(reproduction(RIGHT, given)), given)


@pytest.mark.parametrize("bits", ["float64", "float32"])
def test_random_bits_are_the_same(bits):
    random = np.random.default_rng(3)
    given = random.integers(0, 256, 800, dtype=np.uint8).view(bits)

    assert same(inputs_of(reproduction(RIGHT, given)), given)


def test_numbers_of_ml_dtypes_are_the_same():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    given = np.array([[1.0, -0.0], [0.1, np.inf]], ml_dtypes.bfloat16)

    assert same(inputs_of(reproduction(RIGHT, given)), given)


@pytest.mark.parametrize(("f", "verdict"), [(RIGHT, "PASS"), (WRONG, "FAIL")])
def test_the_verdict_is_the_same(f, verdict, capsys):
    x = np.array([0.3, -1.7])
    report = adjudge.examine(f, x, seed=5, modes=["R"])

    again = run(reproduction(f, x, seed=5, modes=["R"]))["report"]

    assert report.verdict == again.verdict == verdict
    assert again.to_dict() == report.to_dict()
    assert str(report) in capsys.readouterr().out


def test_options_are_written_too():
    low, high = np.array([0.0, -np.inf]), np.inf
    options = {"bounds": {"inputs[0]": (low, high)}, "wrt": 0, "max_evaluations": 50, "eps": 0.1}

    space = run(reproduction(RIGHT, np.array([0.3, 1.7]), seed=2, **options))

    assert (
        space["report"].verdict == adjudge.examine(RIGHT, np.array([0.3, 1.7]), **options).verdict
    )


def test_the_script_runs_alone(tmp_path):
    (tmp_path / "planted.py").write_text(
        "import adjudge\nimport numpy as np\n\n\nclass Rules:\n"
        "    sine = adjudge.ByHand(np.sin, vjp=lambda x, w: w)\n\n\nwrong = Rules.sine\n"
    )
    finder = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, *{sys.path!r}]\n"
    make = (
        "import numpy as np, planted\nfrom adjudge.report.reproduce import reproduction\n"
        "print(reproduction(planted.wrong, (np.array([1.0, 2.0]),), backend='numpy'))"
    )

    def python(code: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    script = python(finder + make)

    assert f"from planted import wrong  # {tmp_path / 'planted.py'}" in script
    assert python(finder + script).startswith("FAIL ByHand(sin): MISMATCH")


def test_a_function_without_a_name_is_left_to_be_filled_in():
    def local(x):
        return x

    script = reproduction(local, np.array([1.0]))

    assert "f = ...  # put here" in script
    assert "test_a_function_without_a_name_is_left_to_be_filled_in.<locals>.local" in script
    compile(script, "script", "exec")


class Scaled:
    """A class with a method that is a function to check."""

    @classmethod
    def sine(cls, x: Any) -> Any:
        return np.sin(x)


def test_methods_of_classes_and_functions_named_like_a_variable_of_the_script_are_found():
    space = run(reproduction(Scaled.sine, np.array([1.0])).split("report = ")[0])
    assert space["f"] == Scaled.sine
    assert run(reproduction(report, np.array([1.0])).split("report = ")[0])["f"] is report


def report(x: Any) -> Any:
    """A function whose name the script has for something else."""
    return x


class Derived(PlainBackend):
    """An engine that nobody has registered."""

    def __init__(self) -> None:
        super().__init__(np)


def test_an_engine_that_is_not_registered_is_made_of_its_class():
    script = reproduction(RIGHT, np.array([1.0]), backend=Derived())

    compile(script, "script", "exec")
    assert "engine = Derived()" in script


def test_numbers_of_an_engine_are_placed_there():
    strict = pytest.importorskip("array_api_strict")
    given = strict.asarray([0.1, -0.0])

    made = inputs_of(reproduction(RIGHT, given))

    assert type(made) is type(given)
    assert np.asarray(made).tobytes() == np.asarray(given).tobytes()
