"""A required engine is there and is checked, or the run fails; a misspelt one is not ignored."""

import importlib.metadata

import pytest
from packaging.version import Version

RIGHT = """
    def test_square(adjudge_backend):
        adjudge_backend.check(square, *adjudge_backend.arrays((3,)))
"""
NOTHING = """
    def test_nothing():
        pass
"""
HIDDEN = "import sys; sys.modules['jax'] = None; sys.modules['array_api_strict'] = None"

hides = pytest.mark.skipif(
    Version(importlib.metadata.version("array-api-compat")) < Version("1.12"),
    reason="array-api-compat before 1.12 imports what is None in sys.modules",
)


def test_required_and_checked(run):
    result = run(RIGHT, "--adjudge-require", "numpy")

    assert result.ret == 0
    result.stdout.fnmatch_lines(["adjudge: numpy * (cpu): * in 1 check, 0 failed"])


@hides
def test_a_required_engine_that_is_missing_is_a_usage_error(run, pytester):
    pytester.makeconftest(HIDDEN)

    result = run(RIGHT, "--adjudge-require", "numpy,jax", engines="numpy", apart=True)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    text = result.stderr.str()
    assert "--adjudge-require: engine 'jax' is required, and" in text
    assert "is not installed" in text
    assert "install it: pip install" in text


@hides
def test_an_engine_that_is_missing_and_not_required_is_skipped(run, pytester):
    pytester.makeconftest(HIDDEN)

    result = run(RIGHT, engines="numpy,jax", apart=True)

    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "adjudge: jax: 0 comparisons (skipped: *not installed; install it: pip install *jax*",
            "SKIPPED [[]1] test_it.py:*: backend 'jax' is known, *install it: pip install *",
        ]
    )


@hides
@pytest.mark.backend("torch")
def test_an_engine_that_is_missing_and_not_named_takes_no_part_and_is_told(run, pytester):
    pytester.makeconftest(HIDDEN)

    result = run(RIGHT, "-v", engines=None, apart=True)

    result.stdout.fnmatch_lines(["*test_square[[]torch]*", "adjudge: not installed: *jax*"])
    result.stdout.no_fnmatch_line("*test_square[[]jax]*")


def test_an_engine_that_holds_no_array_is_missing(run, pytester):
    pytester.makeconftest(
        """
        from adjudge.engine import backend_named

        backend_named("numpy").environment.unavailable = lambda: "no driver"
        """
    )

    result = run(RIGHT, "--adjudge-require", "numpy", apart=True)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*'numpy' is required, and *no array here: no driver"])


def test_a_required_engine_without_a_comparison_fails_the_run(run):
    result = run(RIGHT, "--adjudge-require", "numpy,array_api_strict", engines="numpy")

    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "adjudge: array_api_strict: 0 comparisons",
            "ERROR adjudge: required engine 'array_api_strict' made no comparison in this run "
            "(it is not among --adjudge-backend numpy): *",
        ]
    )


def test_a_run_that_checks_empty_arrays_alone_fails(run):
    source = """
        def test_empty(adjudge_backend):
            adjudge_backend.check(square, *adjudge_backend.arrays((0, 3)))
    """

    result = run(source, "--adjudge-require", "numpy", engines="numpy")

    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["ERROR adjudge: required engine 'numpy' made no comparison *"])


@pytest.mark.parametrize("arguments", [(), ("--no-summary",), ("-q",), ("-k", "square or thing")])
def test_a_run_that_checks_nothing_fails(run, arguments):
    result = run(NOTHING, "--adjudge-require", "numpy", *arguments, engines=None)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["ERROR adjudge: required engine 'numpy' made no comparison *"])


def test_comparisons_of_none_are_none(run):
    source = """
        def test_raises(adjudge_backend):
            with pytest.raises(adjudge.InputError):
                adjudge_backend.check(square, adjudge_backend.array([1, 2]))
    """

    result = run(source, "--adjudge-require", "numpy", engines="numpy")

    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_run_without_tests_fails_once(run):
    result = run(RIGHT, "--adjudge-require", "numpy", "-k", "absent")

    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_checks_without_the_fixture_count(run):
    source = """
        def test_square():
            adjudge.gradcheck(square, np.ones(2))
    """

    assert run(source, "--adjudge-require", "numpy", engines=None).ret == 0


def test_a_first_import_in_the_body_of_a_test_counts(pytester):
    pytester.makepyfile(
        test_late="""
        import sys

        def test_late():
            assert "adjudge" not in sys.modules
            import adjudge
            import numpy as np

            square = adjudge.ByHand(lambda x: x**2, vjp=lambda x, w: 2 * x * w)
            for _ in range(3):
                assert adjudge.examine(square, np.ones(2))
            assert "listening" in vars(sys.modules["adjudge.report.report"])
        """
    )
    # with nothing named, nothing of adjudge is imported at the start
    result = pytester.runpytest_subprocess("-p", "adjudge_pytest", "test_late.py")

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["adjudge: numpy * in 3 checks, 0 failed"])


def test_listing_the_tests_requires_no_comparison(run):
    assert run(RIGHT, "--adjudge-require", "numpy", "--collect-only").ret == 0


@pytest.mark.parametrize(
    ("source", "arguments", "status"),
    [
        ("import nothing_like_it", (), pytest.ExitCode.INTERRUPTED),
        ("def test_stop():\n    raise KeyboardInterrupt", (), pytest.ExitCode.INTERRUPTED),
        ("def test_no():\n    assert False", ("-x",), pytest.ExitCode.TESTS_FAILED),
    ],
)
def test_a_run_that_was_cut_short_keeps_its_own_reason(run, source, arguments, status):
    required = ("--adjudge-require", "numpy")
    interrupted = "KeyboardInterrupt" in source  # it would end this run as well
    result = run(source, *required, *arguments, engines=None, apart=interrupted)

    assert result.ret == status
    result.stdout.no_fnmatch_line("*made no comparison*")


@pytest.mark.parametrize("option", ["--adjudge-require", "--adjudge-backend"])
def test_a_misspelt_engine_is_a_usage_error(run, option):
    result = run(RIGHT, option, "toch", engines=None)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [f"ERROR: {option}: no engine is called 'toch'; there are: numpy, *"]
    )
    result.stderr.fnmatch_lines(["*Did you mean 'torch'?*"])


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(
    run, pytester, monkeypatch
):
    def engines_of(*arguments):
        lines = run(RIGHT, *arguments, engines=None).outlines
        return [line.partition("[")[2] for line in lines if line.startswith("PASSED")]

    pytester.makeini("[pytest]\nadjudge_backend = numpy, array_api_strict")
    in_file = engines_of()
    monkeypatch.setenv("ADJUDGE_BACKEND", "array_api_strict")
    in_environment = engines_of()
    commanded = engines_of("--adjudge-backend", "numpy")
    monkeypatch.setenv("ADJUDGE_BACKEND", "")  # as where a CI leaves it out
    unset = engines_of()

    assert in_file == unset == ["numpy]", "array_api_strict]"]
    assert in_environment == ["array_api_strict]"]
    assert commanded == ["numpy]"]


def test_engines_are_required_by_the_file_and_the_environment(run, pytester, monkeypatch):
    pytester.makeini("[pytest]\nadjudge_require =\n    numpy\n    array_api_strict")
    assert run(RIGHT, engines="numpy").ret == pytest.ExitCode.TESTS_FAILED
    assert run(RIGHT).ret == 0
    monkeypatch.setenv("ADJUDGE_REQUIRE", "numpy")
    assert run(RIGHT, engines="numpy").ret == 0
    assert run(RIGHT, engines="array_api_strict").ret == pytest.ExitCode.TESTS_FAILED
    several = run(RIGHT, "--adjudge-require", "numpy", "--adjudge-require=array_api_strict")
    assert several.ret == 0
    several.stdout.fnmatch_lines(["adjudge *: numpy * required, array_api_strict * required; *"])


def test_help_is_there_whatever_is_required(run, monkeypatch):
    monkeypatch.setenv("ADJUDGE_REQUIRE", "toch")

    result = run(RIGHT, "--help")

    assert result.ret == 0
    result.stdout.fnmatch_lines(["*--adjudge-require=*"])
