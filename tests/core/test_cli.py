"""The command line: exit codes, one line a case, the table, and errors of usage."""

import subprocess
import sys
import textwrap
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from adjudge import Case
from adjudge._version import __version__
from adjudge.cli import FAILED, OK, UNDECIDED, USAGE, main
from adjudge.engine.registry import GROUP, Entry
from adjudge.errors import InputError
from adjudge.ghostwriter import not_imported

EXAMPLES = Path(__file__).parents[2] / "examples"
HEAD = """
    import numpy as np
    from adjudge import ByHand, Case
    x = np.asarray([0.3, -1.2])
    def rule(c):
        return ByHand(np.sin, vjp=lambda x, w: c * w * np.cos(x))
"""
PASSES = "right = Case(rule(1), x, name='right')\n"
FAILS = "wrong = Case(rule(2), x, name='wrong')\n"
OPEN = "jump = Case(ByHand(np.floor, vjp=lambda x, w: 0 * w), 0 * x, name='jump')\n"
RAISES = "def bad(x):\n    raise LookupError('mine\\nand more')\n"
RAISES += "broken = Case(ByHand(bad, vjp=bad), x, name='broken')\n"


@pytest.fixture
def cases(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the command remembers its last run where it is called

    def written(*parts):
        path = tmp_path / "the_cases.py"
        path.write_text(textwrap.dedent(HEAD) + "".join(parts))
        return str(path)

    return written


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ([PASSES], OK),
        ([PASSES, FAILS], FAILED),
        ([PASSES, OPEN], UNDECIDED),
        ([OPEN, FAILS], FAILED),
        ([PASSES, RAISES], FAILED),
    ],
)
def test_the_exit_code_is_the_worst_of_all_cases(cases, parts, code):
    assert code == main(["check", cases(*parts)])


def test_each_case_has_a_line_and_the_table_counts_verdicts(cases, capsys):
    main(["check", "-q", cases(PASSES, FAILS, OPEN)])

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[:3]] == [
        ["PASS", "right"],
        ["FAIL", "wrong"],
        ["INCONCLUSIVE", "jump"],
    ]
    assert "float64" in lines[0]
    assert "R:PASS" in lines[0]
    assert "4 comparisons" in lines[0]
    assert lines[3] == ""
    assert [line.split() for line in lines[4:]] == [
        ["PASS", "1", "right"],
        ["FAIL", "1", "wrong"],
        ["INCONCLUSIVE", "1", "jump"],
    ]


def test_the_details_of_what_did_not_pass_are_indented_below_its_line(cases, capsys):
    main(["check", cases(PASSES, FAILS)])

    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("    FAIL ByHand(sin): MISMATCH: d out[")


def test_a_case_that_raises_does_not_hide_the_others(cases, capsys):
    main(["check", "-q", cases(RAISES, PASSES)])

    lines = capsys.readouterr().out.splitlines()
    assert "raised LookupError: mine (adjudge: raised in evaluation 1 of the function" in lines[0]
    assert "and more" not in lines[0]
    assert lines[1].startswith("PASS")


@pytest.mark.parametrize("name", ["right", "wrong"])
def test_one_case_is_selected_by_its_name(cases, capsys, name):
    code = main(["check", "-q", f"{cases(PASSES, FAILS, OPEN)}:{name}"])

    out = capsys.readouterr().out
    assert code == (OK if name == "right" else FAILED)
    assert name in out
    assert "kink" not in out


def test_a_case_in_a_list_is_selected_by_its_place_or_name(cases, capsys):
    path = cases("CASES = [Case(rule(1), x, name='one'), Case(rule(2), x)]\n")

    codes = [main(["check", "-q", f"{path}:{name}"]) for name in ("CASES[0]", "one", "CASES[1]")]

    assert [OK, OK, FAILED] == codes
    assert "sin" in capsys.readouterr().out


def test_a_module_is_checked_by_its_name(cases, capsys, monkeypatch):
    monkeypatch.syspath_prepend(Path(cases(PASSES, FAILS)).parent)
    monkeypatch.delitem(sys.modules, "the_cases", raising=False)

    codes = [main(["check", "-q", f"the_cases{name}"]) for name in (":right", ":wrong", "")]

    assert [OK, FAILED, FAILED] == codes
    assert "the_cases" not in capsys.readouterr().err


def test_a_case_is_called_by_its_name_or_that_of_its_function():
    x = np.asarray([0.3])

    named, unnamed = Case(np.sin, x, name="mine"), Case(np.sin, x, order=2)

    assert "Case('mine', order=1)" == repr(named)
    assert "Case('sin', order=2)" == repr(unnamed)


@pytest.mark.parametrize("order", [0, 3, "2"])
def test_a_case_of_another_order_is_refused(order):
    with pytest.raises(InputError, match=f"order={order!r} of a Case"):
        Case(np.sin, np.asarray([0.3]), order=order)


def test_a_second_order_case_runs_gradgradcheck(cases, capsys):
    code = main(["check", cases("second = Case(rule(1), x, order=2)\n")])

    assert code == UNDECIDED
    assert "RR:UNSUPPORTED" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("no/such/file.py", "there is no file no/such/file.py"),
        ("missing.py", "there is no file missing.py"),
        ("no_such_module_at_all", "there is no file, folder or module no_such_module_at_all"),
        ("not a module", "names neither a file nor a module"),
        ("json", "json declares no case"),
    ],
)
def test_a_target_that_cannot_be_checked_is_an_error_of_usage(target, message, capsys):
    code = main(["check", target])

    captured = capsys.readouterr()
    assert code == USAGE
    assert captured.out == ""
    assert message in captured.err
    assert len(captured.err.splitlines()) == 2


def test_a_name_that_does_not_exist_lists_what_there_is(cases, capsys):
    code = main(["check", f"{cases(PASSES, FAILS)}:wrogn"])

    assert code == USAGE
    assert "no case named 'wrogn' (it has: right, wrong)" in capsys.readouterr().err


def test_no_command_and_unknown_options_are_errors_of_usage(capsys):
    for arguments in ([], ["chekc"], ["check"], ["check", "a", "--no-such-option"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)

        assert caught.value.code == USAGE
    assert "usage: adjudge" in capsys.readouterr().err


def test_the_version_is_stated(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])

    assert caught.value.code == 0
    assert capsys.readouterr().out == f"adjudge {__version__}\n"


def test_control_characters_in_names_are_shown_and_not_sent(cases, capsys):
    main(["check", cases("c = Case(rule(1), x, name='red\\x1b[31m')\n")])

    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "red\\x1b[31m" in out


def test_the_engines_are_listed_without_importing_what_is_broken(monkeypatch, capsys):
    monkeypatch.setattr("adjudge.cli.entries", lambda: ())

    code = main(["backends"])

    assert code == OK
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names == ["backend", "numpy", "array_api_strict"]


def test_an_engine_that_is_missing_is_listed_with_its_command(monkeypatch, capsys):
    point = metadata.EntryPoint("nowhere", "nowhere_adapter_module:Backend", GROUP)
    monkeypatch.setattr("adjudge.cli.entries", lambda: (Entry("nowhere", point),))

    code = main(["backends"])

    line = capsys.readouterr().out.splitlines()[-1]
    assert code == OK
    assert line.startswith("nowhere")
    assert "fails to import" in line


def test_an_empty_target_is_no_folder(capsys):
    assert main(["check", ""]) == USAGE
    assert "an empty target names nothing" in capsys.readouterr().err


def test_the_package_runs_as_the_command_line():
    ran = subprocess.run(
        [sys.executable, "-m", "adjudge", "--version"], capture_output=True, text=True, check=False
    )

    assert ran.returncode == OK
    assert ran.stdout.startswith("adjudge ")


def test_the_example_runs_as_it_is(capsys):
    code = main(["check", str(EXAMPLES / "softmax_numpy.py")])

    out = capsys.readouterr().out
    assert code == FAILED
    assert out.startswith("PASS         right")
    assert "    FAIL ByHand(cross_entropy): MISMATCH: d out / d inputs[0][" in out


ADAPTERS = """
    import array_api_compat.numpy as xp
    import numpy as np
    from adjudge.engine import PlainBackend
    class Numpy(PlainBackend):
        def __init__(self):
            super().__init__(xp)
    class Wide(Numpy):
        @property
        def arrays(self):
            arrays = super().arrays
            arrays.make = lambda values, dtype, device=None: np.array(values, dtype="float64")
            return arrays
    ready = Numpy()
    number = 1
"""


@pytest.fixture
def conform(tmp_path, monkeypatch):
    (tmp_path / "the_adapters.py").write_text(textwrap.dedent(ADAPTERS))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda target, *options: main(
        ["conform", f"the_adapters{target}", "--scenario=elementwise", *options]
    )
    sys.modules.pop("the_adapters", None)


@pytest.mark.parametrize("target", [":Numpy", ":ready"])
def test_a_backend_that_conforms_says_how_much_was_asked(conform, capsys, target):
    assert conform(target) == OK

    said = capsys.readouterr().out
    assert said.startswith("numpy conforms: ")
    assert " 1 scenarios" in said


def test_a_backend_that_does_not_conform_fails_with_its_causes(conform, capsys):
    assert conform(":Wide") == FAILED

    assert capsys.readouterr().out.startswith("numpy does not conform: ")


def test_excuses_and_thoroughness_reach_the_kit(conform, capsys):
    assert conform(":ready", "--excuse", "place=one device") == FAILED
    assert "but it works" in capsys.readouterr().out
    assert conform(":ready", "--thorough") == OK


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (":number", "a int is no backend"),
        (":Nunpy", "names nothing in the_adapters"),
        ("s:Numpy", "there is no module the_adapterss"),
        (":ready --excuse=jpv=none", "names no capability"),
        (":ready --excuse=jvp", "has no reason"),
        (":ready --draw=the_adapters:nothing", "names nothing in the_adapters"),
    ],
)
def test_what_cannot_be_asked_is_usage(conform, capsys, target, words):
    assert conform(*target.split()) == USAGE

    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("class Made(AutodiffBackend):\n    name = 'half'\n", "define what an adapter must have: "),
        (
            "class Made(Numpy):\n    def __init__(self, device):\n        super().__init__(xp)\n",
            "a backend is made without arguments",
        ),
        ("class Made(Numpy):\n    def __init__(self):\n        1 / 0\n", "ZeroDivisionError"),
    ],
)
def test_a_backend_that_cannot_be_made_is_told_in_two_lines(
    conform, capsys, tmp_path, source, words
):
    path = tmp_path / "the_adapters.py"
    begin = "from adjudge.engine import AutodiffBackend\n" + path.read_text(encoding="utf-8")
    path.write_text(f"{begin}\n{source}")

    assert conform(":Made") == USAGE
    told = capsys.readouterr().err
    assert words in told
    assert len(told.splitlines()) == 2


def test_what_a_module_imports_when_it_is_asked_for_is_told_with_its_command(
    conform, capsys, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "mlx", None)  # as if it were not installed
    path = tmp_path / "the_adapters.py"
    path.write_text("def __getattr__(name):\n    import mlx\n")

    assert conform(":Late") == USAGE
    assert capsys.readouterr().err.splitlines() == [
        "adjudge: the_adapters needs mlx, which is not installed",
        "  install it: pip install 'adjudge[mlx]'",
    ]


@pytest.mark.parametrize(("command", "root"), [("write mlx:sin", "mlx"), ("write lucid", "lucid")])
def test_an_engine_that_is_not_installed_is_named_by_its_own_distribution(
    capsys, monkeypatch, tmp_path, command, root
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, root, None)

    assert main(command.split()) == USAGE
    assert f"install it: pip install 'adjudge[{root}]'" in capsys.readouterr().err
    below = not_imported(f"{root}.core", ModuleNotFoundError("no module", name=root))
    assert below.remedy == f"install it: pip install 'adjudge[{root}]'"


def test_a_registered_backend_conforms_by_its_name(capsys):
    assert main(["conform", "numpy", "--scenario=elementwise"]) == OK
    assert capsys.readouterr().out.startswith("numpy conforms: ")


def test_the_module_is_the_command():
    command = [sys.executable, "-m", "adjudge.cli", "conform", "nowhere:Backend"]

    done = subprocess.run(command, capture_output=True, text=True)

    assert done.returncode == USAGE
    assert "nowhere" in done.stderr
