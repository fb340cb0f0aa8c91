"""The README's first example prints what the README says it prints."""

import contextlib
import io
import re
from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The fenced blocks of that language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_first_example_prints_the_output_shown() -> None:
    printed = io.StringIO()

    with contextlib.redirect_stdout(printed):
        exec(blocks("python")[0], {})  # noqa: S102 our own page

    # versions are those of whoever runs it; everything else is fixed by the seed
    version = re.compile(r"numpy [\w.+]+|adjudge [\w.+]+")
    shown = version.sub("VERSION", blocks("text")[0]).strip()
    assert version.sub("VERSION", printed.getvalue()).strip() == shown


def test_readme_fits_on_a_screen_and_gives_two_commands() -> None:
    commands = blocks("sh")

    assert len(commands) == 2
    assert all(len(command.strip().splitlines()) == 1 for command in commands)
    assert len(README.splitlines()) <= 80
