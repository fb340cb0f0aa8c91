"""The options of `adjudge check`, and `adjudge replay` and `diff`."""

import json
import os
import re
import subprocess
import sys

import pytest

from adjudge.cli import FAILED, OK, UNCOLLECTED, UNDECIDED, USAGE, main

FILE = "checks/common.py"


@pytest.fixture
def lines(folder, capsys):
    """Runs a command; the exit code, and the lines that it printed."""

    def run(*arguments):
        code = main([*arguments])
        return code, capsys.readouterr().out.splitlines()

    return run


def judged(lines):
    """The names of the cases that have a line of their own."""
    return [line.split()[1] for line in lines[: lines.index("")] if not line.startswith(" ")]


def test_a_keyword_a_seed_and_the_slowest(lines):
    code, out = lines("check", "-q", FILE, "-k", "right", "--seed", "3", "--durations", "2")

    assert code == OK
    assert len([line for line in out if re.fullmatch(r" +\d+\.\d\d s  right.*", line)]) == 2


def test_the_first_failure_may_be_the_end(lines):
    code, out = lines("check", "-q", "-x", FILE)

    assert code == FAILED
    assert judged(out) == ["right", "wrong"]
    assert "not begun       5   raises, jump, right 0, right 1, right 2" in out


def test_processes_judge_with_a_timeout(lines):
    code, out = lines("check", "-q", "checks/deadly.py", "-k", "dies", "-n", "1", "--timeout", "60")

    assert code == FAILED
    assert "died            1   dies" in out


@pytest.mark.parametrize(("given", "code"), [("auto", FAILED), ("some", 2)])
def test_processes_are_a_number_or_all(lines, given, code):
    if code == 2:
        with pytest.raises(SystemExit) as ended:
            lines("check", "-q", FILE, "-k", "wrong", "-n", given)
        assert ended.value.code == code
    else:
        assert lines("check", "-q", FILE, "-k", "wrong", "-n", given)[0] == code


def test_what_did_not_pass_is_run_again_and_all_if_nothing_failed(lines):
    lines("check", "-q", FILE)

    code, out = lines("check", "-q", "--last-failed", FILE)
    assert code == FAILED
    assert judged(out) == ["wrong", "raises", "jump"]

    lines("check", "-q", FILE, "-k", "right")
    code, out = lines("check", "-q", "--last-failed", FILE, "-k", "right")
    assert code == OK
    assert len(judged(out)) == 4


def test_known_failures_do_not_count_and_are_named_when_they_pass(lines, folder):
    entries = "".join(
        f'[[known]]\ncase = "{name}"\nreason = "mine"\nexpires = 9999-01-01\n'
        for name in ("wrong", "raises", "right")
    )
    (folder / "known.toml").write_text(entries)

    code, out = lines("check", "-q", FILE, "--known", "known.toml")

    assert code == UNDECIDED  # one case is inconclusive
    assert "known           2   wrong, raises" in out
    assert any("right passes, and is listed as a known failure (mine)" in line for line in out)


def test_a_file_that_cannot_be_looked_into_has_an_exit_code_of_its_own(lines, folder, capsys):
    (folder / "checks" / "bad.py").write_text("from adjudge import Case\n1 / 0\nCase(1, 1)\n")

    code = main(["check", "-q", "checks", "-k", "right"])
    assert code == UNCOLLECTED
    said = capsys.readouterr().err
    assert "not collected: checks/bad.py: " in said
    assert "bad.py:2: ZeroDivisionError: division by zero" in said
    assert "Traceback" not in said
    assert main(["check", "-q", "checks", "-k", "wrong"]) == FAILED
    assert main(["check", "-q", "checks/bad.py"]) == UNCOLLECTED


def test_a_file_is_written_and_repeated_bit_by_bit(lines, folder):
    code, _ = lines("check", "-q", FILE, "--json", "run.json", "--junit", "run.xml")
    assert code == FAILED
    assert (folder / "run.xml").read_text().startswith("<?xml")

    code, out = lines("replay", "run.json")
    assert code == FAILED
    assert all(line.endswith(": the same") for line in out)
    assert len(out) == 7
    code, out = lines("replay", "run.json:right")
    assert [code, out] == [OK, ["PASS         right: the same"]]


def test_a_repeated_case_that_changed_says_in_what(lines, folder):
    lines("check", "-q", FILE, "--json", "run.json")
    text = (folder / FILE).read_text()
    (folder / FILE).write_text(text.replace("wrong = Case(rule(2)", "wrong = Case(rule(1)"))

    code, out = lines("replay", "run.json:wrong")

    assert code == FAILED
    assert out[0] == "PASS         wrong: differs"
    assert "    verdict: 'FAIL' before, 'PASS' now" in out


def test_two_runs_are_compared(lines, folder):
    lines("check", "-q", FILE, "--json", "old.json")
    text = (folder / FILE).read_text()
    (folder / FILE).write_text(text.replace("right = Case(rule(1)", "right = Case(rule(3)"))
    lines("check", "-q", FILE, "--json", "new.json")

    code, out = lines("diff", "old.json", "new.json")
    assert code == FAILED
    assert len(out) == 1
    assert out[0].startswith("worse: right: PASS -> FAIL: ")
    assert lines("diff", "new.json", "old.json")[0] == OK
    assert lines("diff", "old.json", "old.json") == (OK, ["no verdict changed"])


def test_annotations_are_printed_for_github(lines, folder):
    declared = (folder / FILE).read_text().splitlines()
    line = 1 + declared.index('wrong = Case(rule(2), X, name="wrong")')
    _, out = lines("check", "-q", "--github", FILE)

    marked = [line for line in out if line.startswith("::")]
    assert [line.partition(" ")[0] for line in marked] == ["::error", "::error", "::warning"]
    assert marked[0].startswith(f"::error file={FILE},line={line},title=adjudge FAIL%3A wrong")


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["check", FILE, "--json", "no/such/run.json"], "no/such/run.json cannot be written"),
        (["check", FILE, "--junit", "checks"], "checks cannot be written"),
        (["check", FILE, "--known", "gone.toml"], "gone.toml cannot be read"),
        (["check", FILE, "-k", "nothing"], "no case has 'nothing' in its name"),
        (["check", FILE, "--last-failed"], "no run is remembered"),
        (["check", FILE, "-n", "0"], "-n 0"),
        (["check", FILE, "--timeout", "0"], "--timeout 0"),
        (["replay", "gone.json"], "gone.json cannot be read"),
        (["diff", "gone.json", "gone.json"], "gone.json cannot be read"),
    ],
)
def test_bad_input_is_an_error_of_usage_before_the_work(folder, capsys, arguments, found):
    code = main(arguments)

    printed = capsys.readouterr()
    assert code == USAGE
    assert found in printed.err
    assert not printed.out


def test_a_case_that_no_file_declares_cannot_be_replayed(folder, capsys):
    main(["check", "-q", FILE, "--json", "run.json"])
    data = json.loads((folder / "run.json").read_text())
    data["results"][0]["place"] = None
    (folder / "run.json").write_text(json.dumps(data))
    capsys.readouterr()

    assert main(["replay", "run.json:right"]) == USAGE
    assert "does not say where right is declared" in capsys.readouterr().err
    assert main(["replay", "run.json:gone"]) == USAGE
    assert "has no case named 'gone'" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_no_reason_to_fail(lines, folder, capsys):
    (folder / ".adjudge_cache").write_text("a file")

    assert main(["check", "-q", FILE, "-k", "right"]) == OK
    assert "this run is not remembered in .adjudge_cache" in capsys.readouterr().err


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there is no pseudo-terminal")
@pytest.mark.parametrize("colorless", [False, True])
def test_a_terminal_shows_whole_lines_and_heeds_no_color(folder, colorless):
    pytest.importorskip("rich")
    ours, theirs = os.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "200"}
    environment |= {"NO_COLOR": "1"} if colorless else {}
    call = "raise SystemExit(main(['check', '-q', 'checks/common.py', '-k', 'right']))"
    command = [sys.executable, "-c", f"from adjudge.cli import main; {call}"]

    subprocess.run(command, stdout=theirs, env=environment, check=True)
    os.close(theirs)
    shown = os.read(ours, 1 << 20).decode()
    os.close(ours)

    green = "" if colorless else "\x1b[32m"
    plain = "" if colorless else "\x1b[0m"
    for name in ("right", "right 0", "right 1", "right 2"):
        assert f"{green}PASS{plain}         {name} " in shown
    assert ("\x1b[32m" in shown) != colorless


def test_a_reader_that_has_ended_is_no_traceback(folder):
    theirs, ours = os.pipe()
    os.close(theirs)
    call = "raise SystemExit(main(['check', '-q', 'checks/common.py', '-k', 'right']))"
    command = [sys.executable, "-c", f"from adjudge.cli import main; {call}"]

    done = subprocess.run(command, stdout=ours, stderr=subprocess.PIPE, check=False)
    os.close(ours)

    assert (done.returncode, done.stderr) == (FAILED, b"")
