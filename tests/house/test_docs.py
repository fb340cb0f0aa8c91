"""The pages of docs say what the code does: the examples and statuses of docs/read-a-report.md, the
tables and sources of docs/numerics.md, and the list of pages.

`python tests/pages.py` runs the examples and writes what they print into the page.
"""

import pkgutil
import re
from fractions import Fraction

import pytest
from pages import ROOT, examples, printed

from adjudge.estimate.stencils import ladder_steps
from adjudge.findings import Status
from adjudge.floats import relative_step
from adjudge.jacobian.comparison import Tolerance

DOCS = ROOT / "docs"
NUMERICS = (DOCS / "numerics.md").read_text(encoding="utf-8")
REPORTS = (DOCS / "read-a-report.md").read_text(encoding="utf-8")
NAMES = ["cube", "one entry", "shift", "relu", "versine", "sigmoid", "as data"]

FACTS = {
    "cube": [" 4 evaluations"],
    "one entry": ["d out[700] / d inputs[0][700]"],
    "shift": ["1/40 times the reference", "a mean for a sum"],
    "relu": ["right at 2 points nearby"],
    "as data": ["MISMATCH Disagreement WRONG"],
}
"""What an example is there to show, beside its headline and statuses."""

OUTSIDE = ["README", "CONTRIBUTING", "CHANGELOG"]

EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


@pytest.fixture(scope="module")
def outputs() -> dict[str, str]:
    return dict(zip(NAMES, printed(REPORTS), strict=True))


SHOWN = dict(zip(NAMES, (shown for _, shown in examples(REPORTS)), strict=True))


def statuses(report: str) -> set[str]:
    return set(re.findall(r"\b[A-Z_]{6,}\b", report)) & set(Status)


def headline(report: str) -> tuple[str, str]:
    """Verdict and function."""
    verdict, function = report.partition(":")[0].split(" ", 1)
    return verdict, function


@pytest.mark.parametrize("name", NAMES)
def test_an_example_says_what_the_page_shows(name, outputs):
    shown, now = SHOWN[name], outputs[name]

    assert headline(shown) == headline(now)
    assert statuses(shown) == statuses(now)
    assert [fact for fact in FACTS.get(name, []) if fact not in shown or fact not in now] == []


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    section = NUMERICS.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    table = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


def number(cell: str) -> float:
    """`1/4`, `2^-12` or `1e-4`."""
    base, power, exponent = cell.partition("^")
    return float(base) ** int(exponent) if power else float(Fraction(cell))


@pytest.mark.parametrize("row", rows("The two numbers"), ids=lambda row: row[0])
def test_the_table_of_dtypes_is_what_the_code_computes(row):
    name, *cells, step, count = row
    eps = EPS[name]
    tolerance, first = Tolerance(eps), relative_step(eps)

    now = [eps / 2, tolerance.relative, tolerance.resolution]

    assert [f"{value:.1e}" for value in now] == cells
    assert (first, len(ladder_steps(first, first, eps))) == (number(step), int(count))


@pytest.mark.parametrize("row", rows("Constants"), ids=lambda row: row[0])
def test_a_constant_has_the_value_that_the_page_gives(row):
    assert pkgutil.resolve_name("adjudge." + row[0].strip("`")) == number(row[1])


def test_every_status_is_explained():
    listed = set(re.findall(r"`([A-Z_]+)`", REPORTS.split("What else a finding may be")[1]))

    assert set(Status) <= listed


def test_every_source_has_a_doi_or_pages():
    sources = NUMERICS.split("\n## Sources\n")[1].strip().split("\n- ")
    cited = re.findall(r"\[\[[^\]]*?(\d{4})\]\(#sources\)", NUMERICS)

    assert [source for source in sources if not re.search(r"doi\.org|\d+–\d+", source)] == []
    assert cited
    assert [year for year in cited if not any(year in source for source in sources)] == []


def test_the_list_of_pages_has_every_page():
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    pages -= {"README.md", "index.md"}
    listed = set(re.findall(r"\]\(([\w/-]+\.md)", (DOCS / "README.md").read_text(encoding="utf-8")))
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    in_trees = set(re.findall(r"^([\w/-]+)$", index, re.MULTILINE))

    assert listed == pages
    assert {f"{page}.md" for page in in_trees} == pages


def test_the_findings_are_as_many_as_the_pages_say():
    page = (DOCS / "findings.md").read_text(encoding="utf-8")
    tables = page.split("\n## PyTorch")[1].split("\n## Libraries")[0]
    rows = [line.split(" | ") for line in tables.splitlines() if line.startswith("| `")]
    functions = {row[0] for row in rows}
    second_only = [row for row in rows if {"R", "F"} <= set(row[5].split())]
    second_only = [row for row in second_only if "(first)" not in row[3]]

    words = f"{len(second_only)} of the {len(rows)} cases both first derivatives are right"

    for name in ("README.md", "docs/findings.md"):
        text = " ".join((ROOT / name).read_text(encoding="utf-8").split())
        assert f"{len(functions)} functions" in text
        assert words in text


def test_the_scripts_that_pages_name_exist():
    named = {
        (page.name, script)
        for page in [*DOCS.rglob("*.md"), *(ROOT / f"{one}.md" for one in OUTSIDE)]
        for script in re.findall(
            r"(?<![\w:/])(?:benchmarks|tests|examples|docs)/[\w/-]+\.py", page.read_text("utf-8")
        )
    }

    assert named
    assert [(page, script) for page, script in named if not (ROOT / script).is_file()] == []
