"""Exemptions: a reason, an engine and a condition that are true, or the run fails."""

import numpy as np
import pytest

from adjudge.engine import registry
from adjudge.engine.arrays import PlainBackend
from adjudge_pytest import exemptions

RIGHT = """
    @pytest.mark.{mark}
    def test_it(adjudge_backend):
        adjudge_backend.check(square, *adjudge_backend.arrays([1.0, 2.0]))
"""
WRONG = RIGHT.replace("square", "cubed")


# ---------------------------------------------------------------- adjudge_skip


def test_a_skip_that_is_true_skips_on_its_engine_only(run):
    result = run(RIGHT.format(mark='adjudge_skip("numpy", reason="no rule yet", lacks="jvp")'))

    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED [[]1[]] test_it.py:*: no rule yet"])


@pytest.mark.parametrize(
    ("condition", "why"),
    [('below="1.0"', "numpy * is not below 1.0"), ('lacks="vmap"', "numpy * has vmap")],
)
def test_a_skip_that_is_no_longer_true_fails(run, monkeypatch, condition, why):
    monkeypatch.setattr(type(registry.backend_named("numpy")), "capabilities", {"vmap"})

    result = run(WRONG.format(mark=f'adjudge_skip("numpy", reason="no rule yet", {condition})'))

    result.assert_outcomes(failed=2)  # on the other engine the derivative is wrong, too
    result.stdout.fnmatch_lines([f"*exemption expired: no rule yet; {why}: remove the mark*"])


def test_a_skip_below_a_version_that_is_not_out_skips(run):
    result = run(RIGHT.format(mark='adjudge_skip("numpy", reason="a bug", below="1000.1")'))

    result.assert_outcomes(passed=1, skipped=1)


def test_a_skip_without_a_condition_can_be_run(run):
    mark = 'adjudge_skip("numpy", "array_api_strict", reason="slow")'
    right, wrong = RIGHT.format(mark=mark), WRONG.format(mark=mark)

    run(right).assert_outcomes(skipped=2)
    expired = run(right, "--adjudge-run-skipped")
    still = run(wrong, "--adjudge-run-skipped")

    expired.assert_outcomes(failed=2)
    expired.stdout.fnmatch_lines(["*exemption expired: slow; it passes now: remove the mark*"])
    still.assert_outcomes(xfailed=2)


def test_a_skip_with_a_condition_is_not_run(run):
    mark = 'adjudge_skip("numpy", reason="no rule yet", lacks="jvp")'

    run(RIGHT.format(mark=mark), "--adjudge-run-skipped").assert_outcomes(passed=1, skipped=1)


def test_a_skipped_test_sets_no_fixture_up(run):
    source = """
        @pytest.fixture
        def broken():
            raise RuntimeError

        @pytest.mark.adjudge_skip("numpy", reason="broken there", lacks="jvp")
        def test_it(adjudge_backend, broken):
            pass
    """

    run(source, engines="numpy").assert_outcomes(skipped=1)


# ---------------------------------------------------------------- adjudge_xfail


def test_a_failure_that_is_expected_is_none(run):
    result = run(WRONG.format(mark='adjudge_xfail("numpy", reason="known bug")'))

    result.assert_outcomes(xfailed=1, failed=1)
    result.stdout.fnmatch_lines(["XFAIL test_it.py::test_it[[]numpy] - known bug*"])


def test_a_failure_that_is_expected_and_does_not_come_fails(run):
    result = run(RIGHT.format(mark='adjudge_xfail(["numpy"], reason="known bug")'))

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["FAILED *[[]numpy] - Failed: exemption expired: known bug; it passes now: remove *"]
    )


@pytest.mark.parametrize(
    ("expected", "outcome"),
    [
        ('status="MISMATCH"', {"xfailed": 1}),
        ('status="MISSING"', {"failed": 1}),
        ("status=adjudge.Status.MISMATCH", {"xfailed": 1}),
        ("raises=adjudge.GradcheckError", {"xfailed": 1}),
        ("raises=(KeyError, AssertionError)", {"xfailed": 1}),
        ("raises=KeyError", {"failed": 1}),
        ('raises=AssertionError, status="NONFINITE"', {"failed": 1}),
    ],
)
def test_another_failure_than_the_expected_one_fails(run, expected, outcome):
    mark = f'adjudge_xfail("numpy", reason="known bug", {expected})'

    result = run(WRONG.format(mark=mark), engines="numpy")

    result.assert_outcomes(**outcome)
    if "failed" in outcome:
        result.stdout.fnmatch_lines(["*not the failure that is expected*"])


def test_a_slip_is_not_an_expected_failure_unless_it_is_named(run):
    source = """
        @pytest.mark.adjudge_xfail("numpy", reason="known bug"{expected})
        def test_it(adjudge_backend):
            undefined
    """

    run(source.format(expected=""), engines="numpy").assert_outcomes(failed=1)
    named = run(source.format(expected=", raises=NameError"), engines="numpy")
    named.assert_outcomes(xfailed=1)


def test_a_parameter_may_carry_the_mark(run):
    source = """
        @pytest.mark.parametrize("f", [
            square, pytest.param(cubed, marks=pytest.mark.adjudge_xfail("numpy", reason="bug"))
        ])
        def test_it(adjudge_backend, f):
            adjudge_backend.check(f, *adjudge_backend.arrays([1.0, 2.0]))
    """

    run(source, engines="numpy").assert_outcomes(passed=1, xfailed=1)


def test_runxfail_runs_them_as_if_not_marked(run):
    mark = 'adjudge_xfail("numpy", reason="known bug")'

    run(WRONG.format(mark=mark), "--runxfail", engines="numpy").assert_outcomes(failed=1)
    run(RIGHT.format(mark=mark), "--runxfail", engines="numpy").assert_outcomes(passed=1)


@pytest.mark.skipif(not hasattr(pytest, "Subtests"), reason="pytest 9 has subtests")
def test_a_failed_subtest_is_no_pass(run):
    source = """
        @pytest.mark.adjudge_xfail("numpy", reason="known bug")
        def test_own(adjudge_backend, subtests):
            with subtests.test("one"):
                adjudge_backend.check(cubed, adjudge_backend.array([1.0]))

        @pytest.mark.adjudge_xfail("numpy", reason="known bug")
        def test_ours(adjudge_backend):
            x = adjudge_backend.array([1.0, 2.0])
            adjudge_backend.check(cubed, x, points=[(x,)], subtests=True)
    """

    result = run(source, engines="numpy")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.no_fnmatch_line("*expired*")
    result.stdout.fnmatch_lines(["XFAIL test_it.py::test_ours*"])


# ---------------------------------------------------------------- marks that make no sense


@pytest.mark.parametrize(
    ("mark", "found", "remedy"),
    [
        ('adjudge_skip("numpy")', "has no reason", "say why"),
        ('adjudge_xfail("numpy", reason="  ")', "reason='  '", "say why"),
        ('adjudge_skip("numpy", reason="r", lack="jvp")', "'lack'", "Did you mean 'lacks'?"),
        ('adjudge_xfail("numpy", reason="r", lacks="jvp")', "'lacks'", "reason, raises, status"),
        ('adjudge_skip("numpi", reason="r")', "'numpi'", "Did you mean 'numpy'?"),
        ('adjudge_skip("thinc", reason="r")', "'thinc'", "check the spelling"),
        ('adjudge_skip(reason="r")', "names no engine", "the engines are: numpy"),
        ('adjudge_skip(3, reason="r")', "3 is no name", "as text"),
        ('adjudge_skip("numpy", reason="r", lacks="jpv")', "'jpv'", "Did you mean 'jvp'?"),
        ('adjudge_skip("numpy", reason="r", below="new")', "'new' is no version", "1.2"),
        ('adjudge_skip("numpy", reason="r", below=1.2)', "1.2 is no version", "as text"),
        (
            'adjudge_skip("numpy", reason="r", below="1", lacks="jvp")',
            "two conditions",
            "one of them",
        ),
        ('adjudge_xfail("numpy", reason="r", raises="KeyError")', "raises='KeyError'", "class"),
        ('adjudge_xfail("numpy", reason="r", status="MISMACH")', "'MISMACH'", "mean 'MISMATCH'?"),
    ],
)
def test_a_mark_that_makes_no_sense_is_a_usage_error(run, mark, found, remedy):
    result = run(RIGHT.format(mark=mark), engines="numpy")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    first, second, *_ = (line for line in result.errlines if line.strip())
    assert f"test_it.py::test_it[numpy]: mark {mark.partition('(')[0]}: " in first
    assert found in first
    assert remedy in second


def test_a_mark_on_a_test_without_the_fixture_is_a_usage_error(run):
    source = """
        @pytest.mark.adjudge_skip("numpy", reason="r")
        def test_it():
            pass
    """

    result = run(source)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*::test_it: mark adjudge_skip: *not use the fixture*"])


def test_a_mark_of_a_module_may_find_tests_without_the_fixture(run):
    source = """
        pytestmark = pytest.mark.adjudge_skip("numpy", reason="r", lacks="jvp")

        def test_without():
            pass

        def test_with(adjudge_backend):
            pass
    """

    run(source, engines="numpy").assert_outcomes(passed=1, skipped=1)


def test_a_mark_that_makes_no_sense_is_named_by_xdist_too(run):
    result = run(RIGHT.format(mark='adjudge_skip("numpy")'), "-p", "xdist", "-n", "1", apart=True)

    assert result.ret != 0
    assert "mark adjudge_skip: has no reason" in result.stdout.str() + result.stderr.str()


def test_the_capabilities_are_those_that_an_engine_can_have():
    class Everything(PlainBackend):
        def jvp(self, f, x, v):
            raise NotImplementedError

        def vmap(self, function):
            raise NotImplementedError

        def compile(self, function):
            raise NotImplementedError

    assert Everything(np).capabilities == set(exemptions.CAPABILITIES)
