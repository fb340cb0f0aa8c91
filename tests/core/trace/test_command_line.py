"""`adjudge blame FILE[:CASE]`."""

import pytest

from adjudge.cli import FAILED, OK, USAGE, main

FILE = """
import numpy as np
import adjudge

def sine(x):
    return np.sin(x)

def wrong_backward(x, w):
    return 2 * w * np.cos(x)

x = np.array([0.5, 1.0])
right = adjudge.Case(adjudge.ByHand(sine, vjp=lambda x, w: w * np.cos(x)), (x,), rtol=1e-6)
wrong = adjudge.Case(adjudge.ByHand(sine, vjp=wrong_backward), (x,), seed=1)
"""

RAISES = """
import numpy as np
import adjudge

def refuses(x):
    raise KeyError("no such thing")

x = np.array([0.5, 1.0])
first = adjudge.Case(adjudge.ByHand(refuses, vjp=lambda x, w: w), (x,))
unknown = adjudge.Case(adjudge.ByHand(np.sin, vjp=lambda x, w: w), (x,), reference=sum)
right = adjudge.Case(lambda x: x, (x,), backend=adjudge.ByHand)
last = adjudge.Case(adjudge.ByHand(lambda x: 2 * x, vjp=lambda x, w: 2 * w), (x,))
"""


@pytest.fixture
def checks(tmp_path):
    path = tmp_path / "checks.py"
    path.write_text(FILE, encoding="utf-8")
    return path


def test_a_wrong_rule_is_printed_with_its_line(checks, capsys):
    code = main(["blame", f"{checks}:wrong", "--trace", "--seed", "3"])

    assert code == FAILED
    case, first, *rest = capsys.readouterr().out.splitlines()
    assert case == f"{checks}:wrong"
    assert first == f"FAIL: the rule at fault: vjp=wrong_backward ({checks}:8), called once"
    assert rest[-1].split() == ["0", "FAIL", "ByHand(sine)", "(source", "not", "known)"]


def test_all_cases_of_a_file_are_looked_into(checks, capsys):
    assert main(["blame", f"{checks}:right"]) == OK
    assert main(["blame", str(checks)]) == FAILED
    assert capsys.readouterr().out.count("PASS: nothing is wrong in ByHand(sine)") == 2


def test_a_case_that_is_not_there_is_a_wrong_usage(checks):
    assert main(["blame", f"{checks}:gone"]) == USAGE


def test_a_case_that_raises_does_not_end_the_command(tmp_path, capsys):
    path = tmp_path / "raises.py"
    path.write_text(RAISES, encoding="utf-8")

    assert main(["blame", str(path)]) == FAILED

    said = capsys.readouterr().out
    assert "FAIL: raised KeyError: 'no such thing'" in said
    assert f'File "{path}", line 6, in refuses' in said
    names = [line for line in said.splitlines() if line.startswith(f"{path}:")]
    assert names == [f"{path}:{name}" for name in ("first", "unknown", "right", "last")]
    assert said.splitlines()[-2].startswith("PASS: nothing is wrong in ByHand(")


def test_options_that_blame_has_none_of_are_named(checks, capsys):
    main(["blame", str(checks)])

    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("options of")]
    assert said == ["options of the case that blame has none of: rtol"]


def test_a_name_that_is_not_there_is_answered_with_the_names_that_are(tmp_path, capsys):
    path = tmp_path / "raises.py"
    path.write_text(RAISES, encoding="utf-8")

    assert main(["blame", f"{path}:gone"]) == USAGE
    assert "(it has: first, unknown, right, last)" in capsys.readouterr().err
