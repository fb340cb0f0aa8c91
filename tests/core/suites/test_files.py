"""What a run is written as, and what is read again."""

import datetime
import json
from xml.etree import ElementTree

import pytest

from adjudge import InputError, Verdict, run
from adjudge.suites import (
    Ending,
    Result,
    RunReport,
    changes,
    collect,
    github,
    junit,
    outlived,
    read_known,
    read_run,
    repeated,
)
from adjudge.suites.results import SCHEMA_FILE

HOSTILE = "<script>alert('x')</script>\x07]]>&\n::error::%0A, a: b"


def result(name, verdict=Verdict.PASS, ending=Ending.JUDGED, **more):
    return Result(
        name, ending, 1, 0.5, verdict, f"headline of {name}", details=f"text {name}", **more
    )


@pytest.fixture
def report(folder):
    return run(collect(["checks/common.py"]).cases, seed=3)


def test_a_file_of_a_run_reads_as_what_was_written(report, tmp_path):
    path = tmp_path / "run.json"
    path.write_text(report.to_json())

    again = read_run(path)

    assert again.to_json() == report.to_json()
    assert [one.place for one in again.results] == [one.place for one in report.results]


def test_a_file_of_a_run_follows_its_schema(report):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(SCHEMA_FILE.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    data = json.loads(report.to_json())

    assert not [*validator.iter_errors(data)]
    data["results"][0]["verdict"] = "MAYBE"
    assert [*validator.iter_errors(data)]


def test_numbers_that_json_does_not_have_are_strings():
    odd = result("odd")
    odd = Result(**{**vars(odd), "report": {"resolution": float("inf"), "x": [float("nan")]}})

    data = json.loads(RunReport([odd], 1, 0.0).to_json(), parse_constant=pytest.fail)

    assert data["results"][0]["report"] == {"resolution": "inf", "x": ["nan"]}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (None, "cannot be read"),
        ("{", "is no JSON"),
        ("[]", "has the schema None"),
        ('{"schema": "adjudge-run/99"}', "has the schema 'adjudge-run/99'"),
        ('{"schema": "adjudge-run/1", "results": [{}]}', "is no whole file of a run"),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path, text, found):
    path = tmp_path / "run.json"
    if text is not None:
        path.write_text(text)

    with pytest.raises(InputError) as error:
        read_run(path)

    assert found in error.value.found


def test_junit_tells_failures_from_errors_and_known_ones():
    report = RunReport(
        [
            result("right"),
            result("wrong", Verdict.FAIL),
            result("open", Verdict.INCONCLUSIVE),
            result("dead", Verdict.FAIL, Ending.DIED),
            result("known", Verdict.FAIL),
        ],
        1,
        2.0,
        ["never begun"],
    )

    suite = ElementTree.fromstring(junit(report, {"known": "for a reason"}))[0]  # noqa: S314 ours

    counts = {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "6", "failures": "2", "errors": "1", "skipped": "2"}
    tags = {case.get("name"): [child.tag for child in case] for case in suite}
    assert tags == {
        "right": [],
        "wrong": ["failure"],
        "open": ["failure"],
        "dead": ["error"],
        "known": ["skipped"],
        "never begun": ["skipped"],
    }
    assert suite.find(".//failure").text == "text wrong"


def test_no_text_breaks_out_of_junit():
    odd = result(HOSTILE, Verdict.FAIL, file="a.py", line=3)

    case = ElementTree.fromstring(junit(RunReport([odd], 1, 0.0)))[0][0]  # noqa: S314 ours

    assert case.get("name") == HOSTILE.replace("\x07", "\N{REPLACEMENT CHARACTER}")


def test_no_text_breaks_out_of_an_annotation(folder):
    odd = result(HOSTILE, Verdict.FAIL, file=str(folder / "a,b.py"), line=3)

    (line,) = github(RunReport([odd], 1, 0.0))

    assert "\n" not in line
    head, _, rest = line.removeprefix("::").partition("::")
    assert head.startswith("error file=a%2Cb.py,line=3,title=adjudge FAIL%3A <script>")
    assert "%0A%3A%3Aerror%3A%3A%250A%2C a%3A b" in head
    assert rest.startswith("text <script>")


def test_annotations_are_errors_warnings_and_notices():
    results = [
        result("right"),
        result("wrong", Verdict.FAIL),
        result("open", Verdict.INCONCLUSIVE),
        result("known", Verdict.FAIL),
    ]

    lines = github(RunReport(results, 1, 0.0), {"known": "for a reason"})

    assert [line.split()[0] for line in lines] == ["::error", "::warning", "::notice"]


def test_two_runs_are_compared_by_name():
    before = [result("a"), result("b", Verdict.FAIL), result("c"), result("gone")]
    after = [
        result("a", Verdict.INCONCLUSIVE),
        result("b"),
        result("c"),
        result("new", Verdict.FAIL),
        result("fine"),
    ]

    found = changes(RunReport(before, 1, 0.0), RunReport(after, 1, 0.0))

    assert [str(change) for change in found] == [
        "worse: a: PASS -> INCONCLUSIVE: headline of a",
        "new: new: FAIL headline of new",
        "better: b: FAIL -> PASS: headline of b",
        "gone: gone: was PASS",
        "new: fine: PASS",
    ]
    assert [change.worse for change in found] == [True, True, False, False, False]


def test_a_repeated_case_is_the_same_to_the_last_bit_or_says_where_not(report, folder):
    again = run(collect(["checks/common.py"]).cases, seed=3)
    other = run(collect(["checks/common.py"]).cases, seed=4)

    assert all(repeated(one, again[one.name]) == [] for one in report.results)
    assert any(line.startswith("seed: ") for line in repeated(report["wrong"], other["wrong"]))


KNOWN = '[[known]]\ncase = "wrong"\nreason = "upstream"\nexpires = 2027-03-01\n'


def test_a_known_failure_is_excused_until_its_day(tmp_path):
    path = tmp_path / "known.toml"
    path.write_text(KNOWN)
    (known,) = read_known(path)
    last, late = datetime.date(2027, 3, 1), datetime.date(2027, 3, 2)
    wrong, right = result("wrong", Verdict.FAIL), result("wrong")

    assert known.excuses(wrong, last)
    assert not known.excuses(wrong, late)
    assert not known.excuses(result("other", Verdict.FAIL), last)
    assert not known.excuses(right, last)
    assert outlived([known], [wrong], last) == []
    assert "was accepted until 2027-03-01 (upstream)" in outlived([known], [wrong], late)[0]
    assert "passes, and is listed as a known failure" in outlived([known], [right], last)[0]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("known = 3", "has known"),
        ("[other]", "has other"),
        ("[[known]]\ncase = 'a'", "entry 1 of"),
        (KNOWN.replace("2027-03-01", "'soon'"), "has expires = 'soon'"),
        (KNOWN.replace('"upstream"', '""'), "has reason = ''"),
        (KNOWN + "more = 1", "entry 1 of"),
        (KNOWN + KNOWN, "names the case 'wrong' twice"),
        ("[[", "is no TOML"),
        (None, "cannot be read"),
    ],
)
def test_a_file_of_known_failures_that_is_not_right_is_refused(tmp_path, text, found):
    path = tmp_path / "known.toml"
    if text is not None:
        path.write_text(text)

    with pytest.raises(InputError) as error:
        read_known(path)

    assert found in error.value.found
    assert error.value.remedy
