"""docs/how-to/pytest.md: its tests run as they stand, and end as it shows.

`python tests/plugin/test_page.py` runs them and writes what they print into the page.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "pytest.md"
BLOCK = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)
OPTIONS = ("-p", "adjudge_pytest", "-p", "no:warnings", "--adjudge-require", "torch,jax")
NUMBER = re.compile(r"\d[\d.+a-z]*")


def blocks(kind):
    return [text for name, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")) if name == kind]


def printed(folder):
    """What pytest prints about the first and the second module of the page, from the sums on."""
    first, second, hook = blocks("python")
    (folder / "conftest.py").write_text("import pytest\n\n" + hook, encoding="utf-8")
    outputs = []
    for k, source in enumerate([first, "import pytest\n\n\n" + second]):
        (folder / f"test_page{k}.py").write_text(source, encoding="utf-8")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("ADJUDGE", "CI"))}
        environment |= {"COLUMNS": "100", "NO_COLOR": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *OPTIONS, f"test_page{k}.py"],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        lines = done.stdout.splitlines()
        begin = next(i for i, line in enumerate(lines) if re.fullmatch(r"=+ adjudge =+", line))
        outputs.append("\n".join(lines[begin:]) + "\n")
    return outputs


def without_numbers(text):
    """Versions and times differ; words, outcomes and counts of tests do not."""
    lines = re.sub(r"in [\d.]+s|=+", "", text).splitlines()
    return [NUMBER.sub("#", line) if line.startswith("adjudge") else line for line in lines]


@pytest.mark.backend("torch", "jax")
def test_the_page_shows_what_its_tests_print(tmp_path):
    assert [without_numbers(text) for text in printed(tmp_path)] == [
        without_numbers(text) for text in blocks("text")
    ]
    heard = (tmp_path / "reports.txt").read_text(encoding="utf-8")
    assert "test_page0.py::test_softplus[jax] PASS " in heard


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        shown = iter(printed(Path(name)))

    def block(match):
        return match[0] if match[1] == "python" else f"```text\n{next(shown)}```"

    PAGE.write_text(BLOCK.sub(block, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
