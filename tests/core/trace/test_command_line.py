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


@pytest.fixture
def checks(tmp_path):
    path = tmp_path / "checks.py"
    path.write_text(FILE, encoding="utf-8")
    return path


def test_a_wrong_rule_is_printed_with_its_line(checks, capsys):
    code = main(["blame", f"{checks}:wrong", "--trace", "--seed", "3"])

    assert code == FAILED
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == f"FAIL: the rule at fault: vjp=wrong_backward ({checks}:8), called once"
    assert rest[-1].split() == ["0", "FAIL", "ByHand(sine)", "(source", "not", "known)"]


def test_all_cases_of_a_file_are_looked_into(checks, capsys):
    assert main(["blame", f"{checks}:right"]) == OK
    assert main(["blame", str(checks)]) == FAILED
    assert capsys.readouterr().out.count("PASS: nothing is wrong in ByHand(sine)") == 2


def test_a_case_that_is_not_there_is_a_wrong_usage(checks):
    assert main(["blame", f"{checks}:gone"]) == USAGE
