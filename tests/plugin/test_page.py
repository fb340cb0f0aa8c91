"""docs/how-to/pytest.md: its tests run as they stand, and end as it shows."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "pytest.md"
BLOCK = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)
OPTIONS = (
    *("-p", "adjudge_pytest", "-p", "no:warnings", "--adjudge-require", "torch,jax"),
    *("--adjudge-backend", "torch,jax"),  # whatever else is installed here
)
NUMBER = re.compile(r"\d[\d.+a-z]*")


def blocks(kind):
    return [text for name, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")) if name == kind]


@pytest.fixture
def printed(pytester, monkeypatch):
    """What pytest prints about the first and the second module of the page, from the sums on."""
    monkeypatch.setenv("COLUMNS", "100")
    first, second, hook = blocks("python")
    pytester.makeconftest("import pytest\n\n" + hook)
    outputs = []
    for k, source in enumerate([first, "import pytest\n\n\n" + second]):
        path = pytester.makepyfile(**{f"test_page{k}": source})
        # JAX and PyTorch are in this process, and take seconds to import in another one
        lines = pytester.runpytest_inprocess(*OPTIONS, path).outlines
        begin = next(i for i, line in enumerate(lines) if re.fullmatch(r"=+ adjudge =+", line))
        outputs.append("\n".join(lines[begin:]) + "\n")
    return outputs


def without_numbers(text):
    """Versions and times differ; words, outcomes and counts of tests do not."""
    lines = re.sub(r"in [\d.]+s|=+", "", text).splitlines()
    return [NUMBER.sub("#", line) if line.startswith("adjudge") else line for line in lines]


@pytest.mark.backend("torch", "jax")
def test_the_page_shows_what_its_tests_print(printed, pytester):
    assert [without_numbers(text) for text in printed] == [
        without_numbers(text) for text in blocks("text")
    ]
    heard = (pytester.path / "reports.txt").read_text(encoding="utf-8")
    assert "test_page0.py::test_softplus[jax] PASS " in heard
