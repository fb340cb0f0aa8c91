"""A run that has nothing to do with adjudge pays nothing for the plugin, and can do without it."""

import importlib.metadata
import subprocess
import sys
import textwrap

import pytest

HEAVY = "{'adjudge', 'numpy', 'optree', 'torch', 'jax'} & set(sys.modules)"


def test_the_plugin_alone_imports_nothing_heavy():
    code = f"import sys, adjudge_pytest; print({HEAVY})"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("named", [(), ("--adjudge-seed", "3", "--adjudge-run-skipped")])
def test_a_run_without_checks_imports_nothing_heavy(pytester, named):
    pytester.makeconftest(
        f"""
        import sys

        def pytest_unconfigure():
            print("heavy:", {HEAVY})
        """
    )
    pytester.makepyfile("def test_nothing():\n    pass")

    result = pytester.runpytest_subprocess("-p", "adjudge_pytest", *named)

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["heavy: set()"])


def test_the_entry_point_loads_it_and_it_can_be_left_out(pytester, monkeypatch):
    points = importlib.metadata.entry_points(group="pytest11")
    if "adjudge_pytest" not in {point.value for point in points}:
        pytest.fail("install again, since entry points are metadata: pip install -e .")
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    pytester.makepyfile(
        test_with=textwrap.dedent(
            """
            def test_with(adjudge_backend):
                pass
            """
        ),
        test_without=textwrap.dedent(
            """
            import adjudge
            import numpy as np

            def test_without():
                square = adjudge.ByHand(lambda x: x**2, vjp=lambda x, w: 2 * x * w)
                assert adjudge.gradcheck(square, np.ones(2))
            """
        ),
    )

    with_it = pytester.runpytest_subprocess("--adjudge-backend", "numpy")
    without = pytester.runpytest_subprocess("-p", "no:adjudge", "--strict-config")

    with_it.assert_outcomes(passed=2)
    with_it.stdout.fnmatch_lines(["adjudge: numpy *"])
    without.assert_outcomes(passed=1, errors=1)
    without.stdout.fnmatch_lines(["*fixture 'adjudge_backend' not found*"])
    without.stdout.no_fnmatch_line("adjudge: *")


def test_fixtures_and_marks_are_listed(pytester):
    for option, line in (
        ("--fixtures", "adjudge_backend*"),
        ("--markers", "@pytest.mark.adjudge_skip(backend, *, reason, lacks, below): *"),
    ):
        result = pytester.runpytest_inprocess("-p", "adjudge_pytest", option)
        result.stdout.fnmatch_lines([line])


def test_only_the_module_of_listeners_is_waited_for(pytester):
    """The finder of modules leaves no trace of itself, and goes when the run is over."""
    pytester.makepyfile(
        """
        import sys

        def waiting():
            return [one for one in sys.meta_path if type(one).__name__ == "Listening"]

        def test_before_and_after():
            assert len(waiting()) == 1
            import adjudge.report.report

            assert waiting() == []
            assert type(adjudge.report.report.__loader__) is type(adjudge.report.__loader__)
            assert adjudge.report.report.__spec__.loader is adjudge.report.report.__loader__
            assert len(adjudge.report.report._listeners) == 1
        """
    )
    pytester.makeconftest(
        """
        import sys
        import pytest

        @pytest.hookimpl(trylast=True)
        def pytest_unconfigure():
            print("listeners:", len(sys.modules["adjudge.report.report"]._listeners))
        """
    )

    result = pytester.runpytest_subprocess("-p", "adjudge_pytest")

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["listeners: 0"])
