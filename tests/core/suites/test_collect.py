"""Where cases are found, and what is said of files that cannot be looked into."""

import pytest

from adjudge import InputError
from adjudge.suites import collect

ONE = "from adjudge import ByHand, Case\none = Case(ByHand(abs, vjp=abs), 1.0, name='{name}')\n"


@pytest.fixture
def write(folder):
    def written(path, text):
        (folder / path).parent.mkdir(exist_ok=True, parents=True)
        (folder / path).write_text(text)

    return written


def names(*targets, **options):
    return [one.name for one in collect(targets, **options).cases]


def test_a_folder_has_the_cases_of_the_files_that_make_some(write):
    write("some/b.py", ONE.format(name="b"))
    write("some/deep/a.py", ONE.format(name="a"))
    write("some/other.py", "raise RuntimeError('it is not to be executed')\n")
    for hidden in (".git", "__pycache__", "node_modules", "venv"):
        write(f"some/{hidden}/c.py", ONE.format(name="c"))
    write("some/venv/pyvenv.cfg", "")

    assert names("some") == ["b", "a"]
    assert names("some/d*/*.py") == ["a"]
    assert names("some/b.py", "some") == ["b", "a"]  # none counts twice


def test_a_keyword_takes_names_and_files_in_upper_or_lower_case(write):
    write("some/first.py", ONE.format(name="Attention"))
    write("some/second.py", ONE.format(name="conv"))

    assert names("some", keyword="atten") == ["Attention"]
    assert names("some", keyword="SECOND") == ["conv"]


def test_cases_of_one_name_are_called_by_their_place(write):
    write("some/a.py", ONE.format(name="same"))
    write("some/b.py", ONE.format(name="same"))

    assert names("some") == ["some/a.py:one", "some/b.py:one"]


def test_files_of_one_name_do_not_take_each_others_modules(write):
    write("some/a/checks.py", ONE.format(name="a"))
    write("some/b/checks.py", ONE.format(name="b"))

    assert names("some") == ["a", "b"]


def test_what_stands_beside_a_file_can_be_imported(write):
    write("some/shared_by_checks.py", "NAME = 'shared'\n")
    write("some/a.py", "from shared_by_checks import NAME\n" + ONE.format(name="x"))

    assert names("some/a.py") == ["x"]


@pytest.mark.parametrize(
    ("text", "reason", "remedy", "line"),
    [
        ("import torch_that_is_not_here\n", "torch_that_is_not_here is not", "pip install", 3),
        ("\n1 / 0\n", "ZeroDivisionError: division by zero", "", 4),
        ("\n\ndef f(:\n", "SyntaxError: invalid syntax", "", 5),
        ("raise SystemExit(3)\n", "SystemExit: 3", "", 3),
    ],
)
def test_a_file_that_raises_hides_no_other_one(write, text, reason, remedy, line):
    write("some/bad.py", "# of adjudge\nfrom adjudge import Case\n" + text + "Case(1, 1)\n")
    write("some/good.py", ONE.format(name="good"))

    found = collect(["some"])

    assert [one.name for one in found.cases] == ["good"]
    (problem,) = found.uncollected
    assert reason in problem.reason
    assert remedy in problem.remedy
    assert problem.file.endswith("bad.py")
    assert problem.line == line
    assert f"bad.py:{line}: " in str(problem)


def test_a_missing_framework_is_called_by_its_extra(write, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "jax", None)
    write("some/a.py", "import jax\n" + ONE.format(name="a"))

    (problem,) = collect(["some/a.py"]).uncollected

    assert problem.reason == "jax is not installed"
    assert problem.remedy == "install it: pip install 'adjudge[jax]'"


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("no/such/folder", "there is no file no/such/folder"),
        ("nothing/*.py", "no Python file matches"),
        ("empty", "no Python file in empty declares a case"),
        ("checks/common.py:gone", "declares no case named 'gone'"),
        ("not a module", "names neither a file nor a module"),
    ],
)
def test_a_target_that_names_nothing_is_an_error(write, target, found):
    write("empty/a.py", "print('it is not to be executed')\n")

    with pytest.raises(InputError) as error:
        collect([target])

    assert found in error.value.found
    assert error.value.remedy
