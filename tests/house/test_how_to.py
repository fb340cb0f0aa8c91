"""The pages of docs/how-to: their examples print what they show, and their lists are complete.

`python tests/pages.py` runs the examples and writes what they print into the pages.
"""

import importlib.util
import itertools
import re
from functools import partial

import pytest
from pages import HOW_TO, RUN_HERE, examples, printed, without_numbers

import adjudge
from adjudge.check.special_points import PATTERNS
from adjudge.problem.charts import SETS

OPTIONAL = ("autograd", "hypothesis", "jax", "mlx", "mpmath", "scipy", "tinygrad", "torch")


def text_of(page: str) -> str:
    return (HOW_TO / f"{page}.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def milliseconds(monkeypatch):
    """A spot check for which a millisecond passes whenever it asks for the time: a slow machine, or
    one that measures coverage, may have none to spare.
    """
    clock = itertools.count(0.0, 1e-3).__next__
    monkeypatch.setattr(adjudge, "spotcheck", partial(adjudge.spotcheck, clock=clock))


@pytest.fixture(autouse=True)
def fewer_examples():
    """Of Hypothesis for the pages that leave their number open: what is found comes early."""
    if importlib.util.find_spec("hypothesis") is None:
        yield
        return
    settings = importlib.import_module("hypothesis").settings
    before = settings.get_current_profile_name()
    settings.register_profile("fewer examples", max_examples=20)
    settings.load_profile("fewer examples")
    yield
    settings.load_profile(before)


@pytest.mark.parametrize("page", RUN_HERE)
def test_the_examples_print_what_the_page_shows(page):
    for module in OPTIONAL:
        needed = re.search(rf"^(import|from) {module}\b", text_of(page), re.MULTILINE)
        if needed and importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    shown = [without_numbers(text) for _, text in examples(text_of(page))]

    assert any(shown)
    # the numbers of these pages are residues of rounding, in part
    assert [without_numbers(text) for text in printed(text_of(page))] == shown


def test_every_page_is_run_or_has_tests_of_its_own():
    elsewhere = ["ghostwriter", "lucid", "nox-matrix", "pytest", "suites", "sweep", "tensorflow"]
    elsewhere += ["write-an-adapter"]

    assert sorted(path.stem for path in HOW_TO.glob("*.md")) == sorted([*RUN_HERE, *elsewhere])


def test_the_page_of_sets_lists_every_set():
    page = text_of("feasible-directions")

    assert re.findall(r'^\| `"([a-z ]+)"`', page, re.MULTILINE) == list(SETS)


def test_the_page_of_special_points_names_every_pattern():
    section = text_of("special-points").split("## The points")[1].split("\n## ")[0]

    # "and the same of 1000"
    thousands = {"plus_1000", "minus_1000", "plus_minus_1000"}
    assert set(PATTERNS) - set(re.findall(r"`(\w+)`", section)) <= thousands
