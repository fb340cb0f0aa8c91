"""The verb and the command: one file, nothing dangerous called, and errors before the work."""

import subprocess
import sys
from importlib import metadata

import pytest
from pages import HOW_TO, examples

from adjudge import InputError
from adjudge.cli import FAILED, USAGE, main
from adjudge.engine.registry import Entry
from adjudge.ghostwriter import write

CUBE = """
    import pathlib
    import numpy as np

    def cube(x): return x**3
    def cube_vjp(x, w): return 3 * x**2 * w
    def quart(x): return x**4
    def quart_vjp(x, w): return 3 * x**3 * w
    def save_cube(x): pathlib.Path("called").write_text("")
    def save_cube_vjp(x, w): return x
    def load(x): pathlib.Path("called").write_text("")
    def _hidden(x): return x
    def relu_(x): return x
    def of_path(path): pathlib.Path("called").write_text("")
    def of_path_vjp(path, w): pathlib.Path("called").write_text("")
    twice = cube
"""


@pytest.fixture
def here(pytester, monkeypatch):
    """What the command adds to the path of modules is gone after the test."""
    monkeypatch.setattr("sys.path", list(sys.path))
    return pytester.path


def test_the_same_module_gives_the_same_text(plant):
    module = plant(CUBE)

    first, second = (write(module, timeout=None) for _ in range(2))

    assert first.text == second.text
    assert [one.subject.label for one in first.tests] == ["cube_vjp", "quart_vjp"]
    assert [one.subject.label for one in first.failing] == ["quart_vjp"]


def test_each_function_without_a_test_has_its_reason(plant, here):
    module = plant(CUBE)

    written = write(module, timeout=None)

    reasons = {one.name: one.reason for one in written.left_out}
    assert not (here / "called").exists()
    assert reasons.keys() == {
        *("save_cube", "save_cube_vjp", "load", "relu_", "of_path_vjp", "twice")
    }
    assert reasons["load"] == "not called: its name says 'load', so it may do more than compute"
    assert reasons["of_path_vjp"] == "its parameter path is no array of numbers"
    assert reasons["twice"] == "it is cube by another name"
    assert f"# - twice: {reasons['twice']}\n" in written.text


def test_the_text_is_formatted_as_ruff_formats(plant):
    pytest.importorskip("ruff")
    module = plant(
        CUBE
        + """
    def with_a_long_name_of_which_nobody_is_proud_forward(first_argument, second_argument):
        return first_argument * second_argument, (first_argument, second_argument)
    def with_a_long_name_of_which_nobody_is_proud_backward(upstream_gradient, cache):
        return upstream_gradient * cache[1], upstream_gradient * cache[0]
    """
    )

    written = write(module, timeout=None)

    command = [sys.executable, "-m", "ruff", "format", "--isolated", "-"]
    done = subprocess.run(
        command, input=written.text, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == written.text
    assert len(written.tests) == 3


def test_a_function_that_hangs_or_ends_its_process_is_a_reason(plant):
    module = plant("""
        import os, time
        def hang(x): time.sleep(60)
        def hang_vjp(x, w): return w
        def leave(x): os._exit(3)
        def leave_vjp(x, w): return w
        def cube(x): return x**3
        def cube_vjp(x, w): return 3 * x**2 * w
    """)

    written = write(module, timeout=3.0)

    assert [one.subject.label for one in written.tests] == ["cube_vjp"]
    assert {one.name: one.reason for one in written.left_out} == {
        "hang_vjp": "it took more than 3 s",
        "leave_vjp": "it ended its process",
    }


def test_submodules_are_looked_into_on_demand(here, plant):
    package = here / plant("")
    package.mkdir()
    (here / f"{package.name}.py").unlink()
    (package / "__init__.py").write_text("")
    (package / "one.py").write_text("def f(x): return x**2\ndef f_vjp(x, w): return 2 * x * w\n")
    (package / "two.py").write_text("def f(x): return x**2\ndef f_vjp(x, w): return 2 * x * w\n")
    (package / "broken.py").write_text("raise RuntimeError('mine')\n")
    (package / "_private.py").write_text("raise RuntimeError('not imported')\n")

    written = write(package.name, recursive=True, timeout=None)

    assert "def test_f_vjp(" in written.text
    assert "def test_two_f_vjp(" in written.text
    assert f"from {package.name} import one\n" in written.text
    assert [one.name for one in written.left_out] == [f"{package.name}.broken"]
    with pytest.raises(InputError, match="has no function to test"):
        write(package.name, timeout=None)


def test_the_page_shows_what_is_written(here, monkeypatch):
    monkeypatch.syspath_prepend(here)
    source, shown = (code for code, _ in examples((HOW_TO / "ghostwriter.md").read_text("utf-8")))
    (here / "layers.py").write_text(source)
    sys.modules.pop("layers", None)

    assert write("layers", timeout=None).text == shown


# ---------------------------------------------------------------- the command


def test_the_command_writes_a_file_that_says_what_it_says(plant, here, capsys):
    module = plant(CUBE)
    path = here / f"test_{module}_derivatives.py"
    path.write_text("mine\n")

    code = main(["write", module, "-k", "_vjp", "--force"])

    lines = capsys.readouterr().out.splitlines()
    assert code == FAILED
    assert lines[0] == "PASS         cube_vjp"
    assert lines[1].startswith("FAIL         quart_vjp: ByHand(quart): MISMATCH: d out[")
    assert lines[-1] == f"{path.name}: 2 written, 1 failing, 2 left out"
    assert path.read_text() == write(module, keyword="_vjp", timeout=None).text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no_such_module_at_all"], "there is no module no_such_module_at_all"),
        (["{m}.py"], "give the module's name, as `import` has it: {m}"),
        (["{m}:cub"], "{m} has no function cub"),
        (["{m}", "-k", "nothing"], "has no function to test with 'nothing' in its name"),
        (["{m}", "-o", "there.py"], "there.py exists"),
        (["{m}", "-o", "no/such/folder.py"], "no/such/folder.py cannot be written"),
        (["{m}", "--timeout", "0"], "--timeout 0"),
        (["{m}", "--backend", "trch"], "no adapter is registered for backend 'trch'"),
        (["needs"], "needs needs absent_module_of_ours, which is not installed"),
        (["broken_of_ours"], "broken_of_ours fails to import: RuntimeError: mine"),
    ],
)
def test_an_error_of_usage_is_said_before_any_function_is_called(
    plant, here, capsys, monkeypatch, arguments, message
):
    module = plant(CUBE + "\n    raising = None\n")
    (here / "there.py").write_text("mine\n")
    (here / "needs.py").write_text("import absent_module_of_ours\n")
    (here / "broken_of_ours.py").write_text("raise RuntimeError('mine')\n")
    monkeypatch.setattr("adjudge.ghostwriter.writer.judged", None)

    code = main(["write", *(one.format(m=module) for one in arguments)])

    captured = capsys.readouterr()
    assert code == USAGE
    assert message.format(m=module) in captured.err
    assert captured.out == ""
    assert (here / "there.py").read_text() == "mine\n"
    assert not (here / f"test_{module}_derivatives.py").exists()


def test_a_framework_that_is_missing_has_its_command(plant, monkeypatch):
    point = metadata.EntryPoint("nowhere", "nowhere_adapter:Backend", "adjudge.backends")
    monkeypatch.setattr("adjudge.ghostwriter.subjects.entries", lambda: (Entry("nowhere", point),))

    with pytest.raises(InputError, match="install it: pip install nowhere"):
        write(plant("import nowhere\n"), timeout=None)
