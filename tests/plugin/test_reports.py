"""What a run says: the summary, the section of a failure, JUnit's properties, and the hook."""

import importlib.util
import json
import re
import xml.etree.ElementTree as ElementTree

import pytest

SEVERAL = """
    @pytest.mark.parametrize("n", [1, 2, 3])
    def test_square(adjudge_backend, n):
        adjudge_backend.check(square, *adjudge_backend.arrays([1.0, 2.0]))
        adjudge_backend.check(square, *adjudge_backend.arrays([1.0, 2.0, 3.0]))

    def test_cubed(adjudge_backend):
        adjudge_backend.check(cubed, *adjudge_backend.arrays([1.0, 2.0]))
"""
PLANTED = """
    @pytest.mark.parametrize("k", [1, 2])
    def test_planted(adjudge_backend, k):
        with pytest.raises(adjudge.GradcheckError):
            adjudge_backend.check(cubed, adjudge_backend.array([1.0, 2.0]))
"""
LINE = re.compile(
    r"^adjudge: (\w+) .*: (\d+) comparisons in (\d+) checks, (\d+) failed"
    r"(?:, (\d+) expected failures)?$"
)


def sums(result):
    """By engine: comparisons, checks, failures, and expected failures."""
    found = [LINE.match(line) for line in result.outlines]
    return {m[1]: tuple(int(m[k] or 0) for k in (2, 3, 4, 5)) for m in found if m}


def xml_of(pytester):
    # written by the run above
    return ElementTree.parse(pytester.path / "junit.xml").getroot()  # noqa: S314


def test_the_summary_counts_by_engine(run):
    found = sums(run(SEVERAL))

    # four entries of a Jacobian of two inputs, one projection of one of three
    assert found == dict.fromkeys(("numpy", "array_api_strict"), (3 * (4 + 1) + 4, 7, 1, 0))


def test_a_run_without_checks_says_nothing(run):
    result = run("def test_nothing():\n    pass", engines=None)

    assert result.ret == 0
    assert "adjudge" not in result.stdout.str().replace("-p adjudge_pytest", "")


def test_what_is_inconclusive_is_not_passed_over(run):
    source = """
        def test_budget(adjudge_backend):
            assert not adjudge.examine(square, adjudge_backend.array((9,)), max_evaluations=8)
    """

    result = run(source, engines="numpy")

    result.stdout.fnmatch_lines(["adjudge: numpy *, 0 failed, 1 inconclusive"])


OUTCOMES = {
    "planted, and the exception caught": (
        """
        def test_it(adjudge_backend):
            with pytest.raises(adjudge.GradcheckError):
                adjudge_backend.check(cubed, adjudge_backend.array([1.0, 2.0]))
        """,
        "0 failed, 1 expected failure",
    ),
    "planted, and the report looked at": (
        """
        def test_it(adjudge_backend):
            for seed in (1, 2):
                report = adjudge.examine(cubed, adjudge_backend.array([1.0, 2.0]), seed=seed)
                assert report.verdict is adjudge.Verdict.FAIL
        """,
        "0 failed, 2 expected failures",
    ),
    "expected by a mark": (
        """
        @pytest.mark.xfail
        def test_it(adjudge_backend):
            adjudge_backend.check(cubed, adjudge_backend.array([1.0, 2.0]))
        """,
        "0 failed, 1 expected failure",
    ),
    "expected by a mark of ours": (
        """
        @pytest.mark.adjudge_xfail("numpy", reason="wrong by a factor")
        def test_it(adjudge_backend):
            adjudge_backend.check(cubed, adjudge_backend.array([1.0, 2.0]))
        """,
        "0 failed, 1 expected failure",
    ),
    "raised": (
        """
        def test_it(adjudge_backend):
            adjudge_backend.check(cubed, adjudge_backend.array([1.0, 2.0]))
        """,
        "1 failed",
    ),
    "looked at by an assertion that does not hold": (
        """
        def test_it(adjudge_backend):
            assert adjudge.examine(cubed, adjudge_backend.array([1.0, 2.0]))
        """,
        "1 failed",
    ),
    "planted in a fixture that fails after the test": (
        """
        @pytest.fixture
        def checked():
            yield
            adjudge.gradcheck(cubed, np.ones(2))

        def test_it(checked):
            pass
        """,
        "1 failed",
    ),
    "raised in a subtest": (
        """
        def test_it(adjudge_backend):
            adjudge_backend.check(cubed, adjudge_backend.array([1.0, 2.0]), subtests=True)
        """,
        "1 failed",
    ),
}
"""A test with a check that fails, and what the summary says of it."""


@pytest.mark.parametrize("name", OUTCOMES)
def test_a_failure_that_the_test_expects_is_told_from_one_that_fails_it(run, name):
    source, said = OUTCOMES[name]

    result = run(source, engines="numpy")

    result.stdout.re_match_lines([rf"adjudge: numpy .* in \d checks?, {said}$"])


def test_points_of_one_check_are_one_check(run):
    source = """
        def test_points(adjudge_backend):
            x = adjudge_backend.array([1.0, 2.0])
            adjudge_backend.check(square, x, points=[(x + 1,), (x + 2,)])
    """

    result = run(source, engines="numpy")
    result.stdout.fnmatch_lines(["adjudge: numpy *: 12 comparisons in 1 check, 0 failed"])


def test_xdist_sums_to_the_same(run):
    source = SEVERAL + PLANTED
    here = sums(run(source))

    spread = run(
        source, "-p", "xdist", "-n", "2", "--adjudge-require", "numpy,array_api_strict", apart=True
    )

    assert sums(spread) == here
    assert here["numpy"][2:] == (1, 2)
    spread.assert_outcomes(passed=10, failed=2)
    spread.stdout.no_fnmatch_line("*made no comparison*")
    assert spread.stdout.str().count("random arrays and probes of this test") == 2
    assert spread.stdout.str().count("FAIL ByHand") == 2
    spread.stdout.fnmatch_lines(["FAILED *test_cubed* - d out*"])


def test_xdist_fails_where_a_required_engine_is_not_checked(run):
    source = """
        def test_square():
            adjudge.gradcheck(square, np.ones(2))
    """

    result = run(
        source,
        *("-p", "xdist", "-n", "1", "--adjudge-require", "numpy,array_api_strict"),
        engines=None,
        apart=True,
    )

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["ERROR adjudge: required engine 'array_api_strict' made no *"])


def test_a_failure_has_a_section_with_every_report_that_did_not_pass(run):
    source = """
        def test_several(adjudge_backend):
            x = adjudge_backend.array([1.0, 2.0])
            adjudge_backend.check(square, x)
            for k in range(7):
                adjudge.examine(cubed, x, seed=100 + k)
            assert False

        def test_planted(adjudge_backend):
            with pytest.raises(adjudge.GradcheckError):
                adjudge_backend.check(cubed, adjudge_backend.array([1.0, 2.0]))
    """

    result = run(source, engines="numpy")

    result.assert_outcomes(failed=1, passed=1)
    text = result.stdout.str()
    (section,) = re.findall(r"^-+ adjudge -+\n(.*?)^==", text, re.MULTILINE | re.DOTALL)
    assert re.findall(r"seed=(\d+)", section) == ["100", "101", "102", "103", "104"]
    assert section.count("FAIL ByHand") == 5
    assert "and 2 more reports that did not pass" in section


def test_a_failure_that_has_nothing_to_do_with_adjudge_has_no_section(run):
    result = run("def test_no():\n    assert False", engines=None)

    assert not re.search(r"^-+ adjudge -+$", result.stdout.str(), re.MULTILINE)


def test_junit_has_comparisons_and_the_first_line(run, pytester):
    run(SEVERAL, "--junit-xml=junit.xml", engines="numpy")

    cases = {case.get("name"): case for case in xml_of(pytester).iter("testcase")}
    right, wrong = (
        {p.get("name"): p.get("value") for p in cases[name].iter("property")}
        for name in ("test_square[numpy-1]", "test_cubed[numpy]")
    )
    assert right["adjudge.numpy.comparisons"] == "5"
    assert right["adjudge.verdict"] == "PASS"
    assert json.loads(right["adjudge"])["numpy"]["checks"] == 2
    assert wrong["adjudge.verdict"] == "FAIL"
    message = cases["test_cubed[numpy]"].find("failure").get("message")
    first, *_ = message.splitlines()
    assert first.startswith("d out[1] / d inputs[0][1]: automatic 8, reference 12, off by ")
    assert first.endswith("(MISMATCH in ByHand(<lambda>))")


PRINTED_ONCE = """
    def test_raised():
        adjudge.gradcheck(cubed, np.ones(2))

    def test_asserted():
        assert adjudge.examine(cubed, np.ones(2))

    def test_wrapped():
        try:
            adjudge.gradcheck(cubed, np.ones(2))
        except adjudge.GradcheckError as error:
            raise ValueError from error

    def test_subtests(adjudge_backend):
        adjudge_backend.check(cubed, np.ones(2), subtests=True)
"""


def test_a_failure_prints_its_report_once_and_its_entry_first(run):
    lines = run(PRINTED_ONCE, "-vv", engines="numpy").outlines

    # a line of every report that stands nowhere else
    assert sum("comparisons, 15 identities" in line for line in lines) == 4
    for name in ("raised", "asserted"):
        (line,) = [one for one in lines if one.startswith("FAILED") and name in one]
        assert re.search(r" - d out\[\d\] / d inputs\[0\]\[\d\]: automatic ", line)


def test_properties_of_the_test_stay(run, pytester):
    source = """
        def test_square(adjudge_backend, request):
            request.node.user_properties.append(("mine", "1"))
            adjudge_backend.check(square, *adjudge_backend.arrays([1.0, 2.0]))
    """

    run(source, "--junit-xml=junit.xml", engines="numpy")

    names = [one.get("name") for one in xml_of(pytester).iter("property")]
    assert sorted(names) == ["adjudge", "adjudge.numpy.comparisons", "adjudge.verdict", "mine"]


def test_every_report_is_handed_to_the_hook_with_its_test(run, pytester):
    pytester.makeconftest(
        """
        def pytest_adjudge_report(report, item):
            print("heard", item.name, report.verdict, report.provenance.backend)
        """
    )

    result = run(SEVERAL, "-s", engines="numpy")

    heard = [line for line in result.outlines if "heard" in line]
    assert len(heard) == 7
    assert "heard test_cubed[numpy] FAIL numpy" in heard[-1]


def test_a_check_in_a_fixture_belongs_to_the_test(run):
    source = """
        @pytest.fixture
        def checked():
            adjudge.gradcheck(square, np.ones(2))
            yield
            adjudge.gradcheck(square, np.ones(2))

        def test_it(checked):
            pass
    """

    result = run(source, engines=None)

    result.stdout.fnmatch_lines(["adjudge: numpy *: 8 comparisons in 2 checks, 0 failed"])


@pytest.mark.skipif(
    importlib.util.find_spec("pytest_randomly") is None, reason="pip install pytest-randomly"
)
@pytest.mark.parametrize("seed", ["1", "2"])
def test_pytest_randomly_changes_nothing(run, seed):
    source = (
        SEVERAL
        + """
    def test_numbers(adjudge_backend):
        print("drawn", adjudge_backend.name, np.asarray(*adjudge_backend.arrays((2,))))
    """
    )
    plain = run(source, "-s")

    shuffled = run(
        source, "-s", "-p", "pytest_randomly", "-p", "xdist", f"--randomly-seed={seed}", apart=True
    )

    assert sums(shuffled) == sums(plain)
    drawn, again = (
        sorted(line.partition("drawn")[2] for line in result.outlines if "drawn" in line)
        for result in (plain, shuffled)
    )
    assert drawn == again
    assert len(drawn) == 2


RAISING = """
    def test_input():
        adjudge.gradcheck(square, (3,))

    def halved(x):
        raise ValueError("no half")

    def test_function():
        adjudge.examine(adjudge.ByHand(halved, vjp=lambda x, w: w), np.ones(3))
"""


@pytest.mark.parametrize("whole", [False, True])
def test_a_traceback_shows_the_test_and_the_function(run, whole):
    text = run(RAISING, *["--full-trace"] * whole).stdout.str()

    assert ("verbs.py" in text) is whole
    assert ">       adjudge.gradcheck(square, (3,))" in text
    assert "InputError: no input has a floating or complex array" in text
    assert ">       adjudge.examine(adjudge.ByHand(halved" in text
    assert '>       raise ValueError("no half")' in text


def test_a_mistake_of_adjudge_keeps_its_frames(run, monkeypatch):
    monkeypatch.setattr("adjudge.verbs.with_slip", lambda *_: 1 / 0)
    text = run("def test_it():\n    adjudge.examine(square, np.ones(2))").stdout.str()

    assert "ZeroDivisionError" in text
    assert "verbs.py" in text
