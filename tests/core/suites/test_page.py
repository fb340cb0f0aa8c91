"""The page of a run: what stands in it, and that nothing of a report gets out of its place."""

import builtins
import json
import shlex
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from adjudge import ByHand, InputError, Verdict, examine, run
from adjudge.cli import FAILED, OK, USAGE, main
from adjudge.suites import Ending, Result, RunReport, collect, page
from adjudge.suites.results import Place

FILE = "checks/common.py"
HOSTILE = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "</SCRIPT/ ",
    "<!--<script>",
    "]]>",
    "\" onfocus='alert(1)' autofocus x=\"",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt; &amp;",
    "\x00\x07\x1b[31m bell",
    "\u202egnp.exe\u2066",
    "\u2028line\u2029 \ud800",
    "$(touch here) `id` 'quoted' \\",
]


class Parsed(HTMLParser):
    """The elements of a page with their attributes, and the texts of those that are asked for."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self._open = [], {}, []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self._open.append(tag)

    def handle_endtag(self, tag):
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, text):
        for tag in {*self._open}:
            self.texts.setdefault(tag, []).append(text)

    def of(self, tag):
        return [attributes for found, attributes in self.elements if found == tag]

    @property
    def data(self):
        """What the script of the page reads."""
        found = json.loads(self.texts["script"][0])
        return found["cases"], found["shared"]


def plain(number, of="out[0]", name="f", verdict="FAIL", **more):
    """A report as plain data, with an entry that is off by this number."""
    entry = {
        "mode": "R",
        "of": of,
        "wrt": "inputs[0]",
        "automatic": 1.0 + number,
        "reference": 1.0,
        "error": 1e-10,
        "allowed": 1e-9,
        "method": "central differences",
    }
    finding = {"status": "MISMATCH", "mode": "R", "entry": of, "verdict": verdict, "text": of}
    return {
        **examine(ByHand(np.sin, vjp=lambda x, w: w * np.cos(x)), np.ones(2), seed=0).to_dict(),
        "verdict": verdict,
        "function": name,
        "findings": [finding],
        "entries": [entry],
        **more,
    }


def result(name, report=None, verdict=Verdict.FAIL, ending=Ending.JUDGED, **more):
    place = Place(f"checks/{name}.py", name)
    return Result(name, ending, 7, 0.5, verdict, name, report, f"text of {name}", place, **more)


@pytest.fixture(scope="module")
def hostile():
    """A run whose every text is hostile."""
    return RunReport(
        [
            result(text, plain(1.0, text, text, counts={text: 1}), file=text, line=3)
            for text in HOSTILE
        ],
        1,
        2.0,
        HOSTILE,
    )


@pytest.fixture
def report(folder):
    return run(collect([FILE]).cases, seed=3)


def test_every_case_has_a_row_and_details(report):
    parsed = Parsed(page(report))

    kinds = [row["data-kind"] for row in parsed.of("tr") if "data-kind" in row]
    assert kinds == ["FAIL", "raised", "INCONCLUSIVE", *["PASS"] * 4]
    assert parsed.texts["h1"] == ["3 of 7 cases did not pass"]
    cases, shared = parsed.data
    names = [text for text in parsed.texts["bdi"] if text in {one.name for one in report.results}]
    assert names == ["wrong", "raises", "jump", "right", "right 0", "right 1", "right 2"]
    wrong = cases[names.index("wrong")]
    first = report["wrong"].report
    assert [found[3] for found in wrong["findings"]] == [f["text"] for f in first["findings"]]
    assert wrong["entries"][0][2] == f"{first['entries'][0]['automatic']:.12g}"
    assert dict(shared[wrong["counts"]]) == first["counts"]
    assert {name for name, *_ in shared[wrong["stages"]]} == {*first["stages"]}
    assert ["dtype", "float64"] in shared[wrong["settings"]]
    assert wrong["seed"] == report["wrong"].seed
    assert shared[wrong["file"]].endswith(FILE)
    assert shared[wrong["target"]] == FILE
    assert "LookupError: mine" in cases[names.index("raises")]["text"]
    assert "findings" not in cases[names.index("right")]


def test_the_page_loads_nothing_and_runs_its_own_script_alone(report):
    parsed = Parsed(page(report))

    for tag, attributes in parsed.elements:
        assert not {"src", "href", "data", "style", "srcset"} & {*attributes}
        assert not any(name.startswith("on") for name in attributes)
        assert tag not in ("link", "img", "iframe", "base", "form", "object")
    policy = next(one["content"] for one in parsed.of("meta") if "http-equiv" in one)
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "http" not in page(report).replace("http-equiv", "")


def test_hostile_texts_stay_texts(hostile, report):
    text = page(hostile, dict.fromkeys(HOSTILE, HOSTILE[0]))
    parsed, tame = Parsed(text), Parsed(page(report))

    assert {tag for tag, _ in parsed.elements} <= {tag for tag, _ in tame.elements} | {
        *("details", "summary", "ul", "li")
    }
    assert len(parsed.of("script")) == 2
    assert "<" not in text.partition('id="data">')[2].partition("</script>")[0]
    assert not any({"onfocus", "onerror", "autofocus"} & {*one} for _, one in parsed.elements)
    assert len([row for row in parsed.of("tr") if "data-kind" in row]) == len(HOSTILE)
    shown = "".join(parsed.texts["bdi"])
    for name in HOSTILE[:8]:
        assert name in shown
    assert "49" not in shown
    for hidden in "\x00\x07\x1b\u202e\u2066\u2028\ud800":
        assert hidden not in text
    assert "\\u202egnp.exe" in shown
    assert len(parsed.data[0]) == len(HOSTILE)
    text.encode()


def test_a_command_is_one_word_of_the_shell_whatever_the_name_is(hostile, tmp_path):
    cases, _ = Parsed(page(hostile, file=tmp_path / "run.json")).data

    for name, one in zip(HOSTILE, cases, strict=True):
        assert one["command"].isprintable()
        command = one["command"].replace("adjudge replay", "printf %s")
        done = subprocess.run(["bash", "-c", command], capture_output=True, check=True)  # noqa: S607
        # no word of a shell can hold the character NUL
        wanted = f"{tmp_path}/run.json:{name}".partition("\0")[0]
        assert done.stdout == wanted.encode("utf-8", "surrogatepass")


def test_a_case_is_repeated_by_the_file_or_by_the_seed_of_the_run(folder, capsys):
    main(["check", "-q", FILE, "--json", "run.json", "--html", "run.html", "--seed", "5"])
    with_file = Parsed((folder / "run.html").read_text(encoding="utf-8")).data[0]
    without = Parsed(page(run(collect([FILE]).cases, seed=5))).data[0]

    for one, other in zip(with_file, without, strict=True):
        assert one["command"].startswith("adjudge replay ")
        assert other["command"].startswith("adjudge check ")
        main([*shlex.split(one["command"])[1:]])
        assert ": the same" in capsys.readouterr().out
        main([*shlex.split(other["command"])[1:], "--json", "again.json"])
        again = json.loads((folder / "again.json").read_text())["results"]
        assert [single["seed"] for single in again] == [one["seed"]]


def test_the_worst_entry_is_that_which_exceeds_its_tolerance_most():
    report = plain(0.5)
    report["entries"] = [plain(x, f"out[{k}]")["entries"][0] for k, x in enumerate([0.1, 3, -1])]
    report["entries"].append({**report["entries"][0], "automatic": 9.0, "allowed": 10.0})

    cases, _ = Parsed(text := page(RunReport([result("one", report)], 1, 0.0))).data

    assert [cells[0] for cells in cases[0]["entries"]] == [
        f"d out[{k}] / d inputs[0]" for k in (1, 2, 0, 0)
    ]
    assert cases[0]["key"][2:6] == ["d out[1] / d inputs[0]", 4.0, 1.0, 3.0]
    assert "d out[1] / d\u00a0inputs[0]" in text
    assert "d out[2]" not in Parsed(text).texts["td"]


def test_numbers_beyond_all_others_can_be_sorted():
    odd = plain(1.0)
    odd["entries"][0] |= {"automatic": "nan", "reference": "-inf", "error": "inf"}
    zero = plain(1.0)
    zero["entries"][0] |= {"automatic": 2.0, "reference": 0.0}
    text = page(RunReport([result("odd", odd), result("zero", zero)], 1, 0.0))

    cases, _ = Parsed(text).data

    assert cases[0]["key"][3:6] == ["nan", "-inf", "nan"]
    assert cases[1]["key"][3:6] == [2.0, 0.0, "inf"]
    assert "∞" in Parsed(text).texts["td"]


def test_long_texts_and_many_entries_are_cut_and_that_is_said():
    report = plain(1.0)
    report["findings"][0]["text"] = "x" * 50_000
    report["entries"] *= 100
    report["findings"] *= 10

    case = Parsed(page(RunReport([result("one", report)], 1, 0.0))).data[0][0]

    assert case["findings"][0][3].endswith("x\n… 30000 more characters are left out")
    assert [len(case["entries"]), case["more"]] == [40, 60]
    assert [len(case["findings"]), case["further"]] == [8, 2]


def test_modes_ways_and_points_have_their_tables():
    rule = ByHand(np.abs, vjp=lambda x, w: w * np.sign(x))
    points = examine(rule, np.ones(2), points="special", seed=1).to_dict()
    ways = plain(1.0, modes={"R": "PASS", "F": "FAIL"}, ways={"jit": {"R": "PASS"}})
    results = [result("points", points, Verdict.PASS), result("ways", ways)]

    (first, second), shared = Parsed(page(RunReport(results, 1, 0.0))).data

    assert shared[first["matrix"]] == [["", "R", "F"], ["jit", "PASS", "–"]]
    assert [name for name, *_ in second["points"]] == [*points["points"]]
    assert "entries" not in second


@pytest.mark.parametrize(
    ("verdicts", "words"),
    [
        ("", "No case was judged"), ("P", "The case passed"), ("PPP", "All 3 cases passed"),
        ("PF", "1 of 2 cases did not pass"), ("F", "1 of 1 case did not pass"),
    ],
)  # fmt: skip
def test_the_heading_says_how_many_did_not_pass(verdicts, words):
    named = {"P": Verdict.PASS, "F": Verdict.FAIL}
    results = [
        result(f"case {k}", plain(0.0, verdict=named[v]), named[v]) for k, v in enumerate(verdicts)
    ]

    assert words in Parsed(page(RunReport(results, 1, 0.0))).texts["h1"]


def test_of_many_inputs_a_table_has_those_that_are_wrong():
    one = {"mode": "R", "way": "", "norm": 0.0, "errors": [], "relative": 1e-9, "compared": 2}
    pairs = [
        {**one, "output": f"out[{i}]", "input": f"inputs[{j}]", "verdict": "PASS"}
        for i in range(50)
        for j in range(30)
    ]
    pairs[-1]["verdict"] = "FAIL"
    results = [result("wide", plain(1.0, pairs=pairs))]

    (case,), shared = Parsed(page(RunReport(results, 1, 0.0))).data

    (table,) = case["pairs"]
    _, inputs, rows = shared[table]
    assert inputs == ["inputs[29]"]
    assert [output for output, _ in rows] == ["out[49]"]


def test_what_is_wrong_at_a_point_names_the_point():
    rule = ByHand(np.sin, vjp=lambda x, w: 2 * w * np.cos(x))
    report = examine(rule, np.ones(2), points=[np.ones(2), np.zeros(2)], seed=1).to_dict()

    (case,), _ = Parsed(page(RunReport([result("points", report)], 1, 0.0))).data

    points = [*report["points"]]
    assert [cells[:2] for cells in case["points"]] == [[name, "FAIL"] for name in points]
    assert case["points"][0][2].startswith("MISMATCH: d out[")
    assert {cells[0].rpartition(" at ")[2] for cells in case["entries"]} == {*points}
    assert len(case["entries"]) == len(report["entries"])


def test_many_cases_stay_small():
    passed, failed = plain(0.0, verdict="PASS", findings=[], entries=[]), plain(1.0)
    results = [
        result(f"kernels/case number {k}", failed)
        if k % 10 == 0
        else result(f"kernels/case number {k}", passed, Verdict.PASS)
        for k in range(500)
    ]

    assert len(page(RunReport(results, 1, 0.0)).encode()) < 500 * 1300


def test_thousands_of_failures_stay_a_page_that_opens():
    x = np.linspace(0.3, 1.2, 30)
    rule = ByHand(lambda x: np.cumsum(x**2), vjp=lambda x, w: np.cumsum(w[::-1])[::-1] * x)
    wrong = examine(rule, x, mode="full", seed=1).to_dict()
    script = "adjudge.examine(f, inputs)\n" * 150
    results = [replace(result(f"case {k}", wrong), script=script) for k in range(400)]

    first, more = (page(RunReport(results[:count], 1, 0.0)) for count in (200, 400))

    assert first.count('<template id="pictures-') == more.count('<template id="pictures-') == 200
    each = (len(more.encode()) - len(first.encode())) / 200
    assert len(first.encode()) + 4800 * each < 10_000_000


def test_known_failures_and_cases_that_were_not_begun_are_named(report):
    again = RunReport(report.results, 1, 0.0, ["later"])

    parsed = Parsed(page(again, {"wrong": "upstream 12"}))

    assert "upstream 12" in parsed.texts["bdi"]
    assert "later" in parsed.texts["li"]


def test_a_page_of_an_earlier_run(folder, capsys):
    assert main(["check", "-q", FILE, "--json", "run.json", "--html", "one.html"]) == FAILED
    assert main(["page", "run.json", "other.html"]) == OK
    assert (folder / "one.html").read_text() == (folder / "other.html").read_text()


@pytest.mark.parametrize("change", [{"report": {}}, {"report": 1}, {"seconds": 1e999}])
def test_a_file_that_holds_something_else_is_refused(folder, capsys, change):
    data = json.loads(RunReport([result("one", plain(1.0))], 1, 0.0).to_json())
    data["results"][0] |= change
    (folder / "run.json").write_text(json.dumps(data))

    assert main(["page", "run.json", "run.html"]) == USAGE
    assert "run.json is no whole file of a run" in capsys.readouterr().err
    assert not (folder / "run.html").exists()


def test_bad_input_is_an_error_before_the_work(folder, capsys, monkeypatch):
    assert main(["check", FILE, "--html", "no/such/run.html"]) == USAGE
    assert main(["page", "gone.json", "run.html"]) == USAGE
    assert not (folder / "run.html").exists()
    original = builtins.__import__

    def missing(name, *arguments, **options):
        if name == "jinja2":
            raise ModuleNotFoundError(name)
        return original(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    assert main(["check", FILE, "--html", "run.html"]) == USAGE
    printed = capsys.readouterr()
    assert "a page needs Jinja2, which is not installed" in printed.err
    assert "pip install 'adjudge[suites]'" in printed.err
    assert not printed.out
    assert not (folder / "run.html").exists()
    with pytest.raises(InputError, match="Jinja2"):
        page(RunReport([result("one")], 1, 0.0))


def test_a_notebook_shows_texts_escaped(hostile):
    f = ByHand(np.sin, vjp=lambda x, w: w)
    f.__name__ = "<b>"
    drawn = {"pre", "h2", "div", "figure", "figcaption", "bdi", "svg", "path", "rect", "text"}
    for one, tags in ((hostile, {"pre"}), (examine(f, np.ones(1), seed=0), drawn)):
        assert {tag for tag, _ in Parsed(one._repr_html_()).elements} == tags
