"""The files of a run: JSON and a page of all checks, named by their tests."""

import json

import pytest

from adjudge.suites import changes, read_run

SOURCE = """
    @pytest.mark.parametrize("n", [2, 3])
    def test_square(adjudge_backend, n):
        adjudge_backend.check(square, adjudge_backend.array((n,)))
        adjudge.gradcheck(square, np.ones(n))

    @pytest.mark.parametrize("adjudge_backend", ["numpy"], indirect=True)
    def test_cubed(adjudge_backend):
        adjudge_backend.check(cubed, adjudge_backend.array([1.0, 2.0]))

    def test_planted():
        with pytest.raises(adjudge.GradcheckError):
            adjudge.gradcheck(cubed, np.ones(2))
"""
NAMES = [
    *(
        f"test_it.py::test_square[{engine}-{n}]{more}"
        for engine in ("numpy", "array_api_strict")
        for n in (2, 3)
        for more in ("", " (2)")
    ),
    "test_it.py::test_cubed[numpy]",
    "test_it.py::test_planted",
]
FILES = ("--adjudge-json", "run.json", "--adjudge-html", "run.html")


def test_every_check_is_named_by_its_test(run, pytester):
    result = run(SOURCE, *FILES)

    result.assert_outcomes(passed=5, failed=1)
    result.stdout.fnmatch_lines(["*generated file of adjudge: run.json*"])
    found = read_run(pytester.path / "run.json")
    assert sorted(one.name for one in found.results) == sorted(NAMES)
    cubed = found["test_it.py::test_cubed[numpy]"]
    assert [str(cubed.verdict), cubed.file] == ["FAIL", "test_it.py"]
    lines = (pytester.path / "test_it.py").read_text().splitlines()
    assert "cubed" in lines[cubed.line] + lines[cubed.line - 1]
    assert 0 < cubed.seconds < found.seconds
    page = (pytester.path / "run.html").read_text()
    assert "2 of 10 cases did not pass" in page
    assert page.count("Known failure:") == 1  # the planted one


def test_processes_of_xdist_send_theirs(run, pytester):
    pytest.importorskip("xdist")
    run(SOURCE, *FILES)
    before = read_run(pytester.path / "run.json")

    run(SOURCE, *FILES, "-p", "xdist", "-n", "1", apart=True)

    after = read_run(pytester.path / "run.json")
    assert changes(before, after) == []
    by_fixture = [name for name in NAMES if not name.endswith((" (2)", "test_planted"))]
    assert [after[name].seed for name in by_fixture] == [before[name].seed for name in by_fixture]


def test_junit_has_no_reports(run, pytester):
    run(SOURCE, *FILES, "--junitxml", "junit.xml")

    assert "evaluations" in json.dumps(read_run(pytester.path / "run.json").to_dict())
    assert "two evaluations" not in (pytester.path / "junit.xml").read_text()


@pytest.mark.parametrize("option", ["--adjudge-json", "--adjudge-html"])
def test_a_file_that_cannot_be_written_ends_the_run_before_its_tests(run, pytester, option):
    result = run(SOURCE, option, "no/such/file")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*no/such/file cannot be written*"])
    assert "passed" not in result.stdout.str()


def test_a_run_without_checks_has_files_without_cases(run, pytester):
    run("def test_nothing():\n    pass", *FILES, engines=None)

    assert not read_run(pytester.path / "run.json").results
    assert "No case was judged" in (pytester.path / "run.html").read_text()
    (pytester.path / "run.json").unlink()
    run(SOURCE, *FILES, "--collect-only")
    assert not (pytester.path / "run.json").exists()
