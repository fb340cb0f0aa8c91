"""The README's first example prints what the README says it prints."""

import re

from pages import ROOT, differences, examples, printed

README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The fenced blocks of that language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_first_example_prints_the_output_shown() -> None:
    code, shown = examples(README)[0]
    (now,) = printed(f"```python\n{code}```")

    # versions are those of whoever runs it; everything else is fixed by the seed
    version = re.compile(r"numpy [\w.+]+|adjudge [\w.+]+")
    assert shown
    assert differences(version.sub("VERSION", shown), version.sub("VERSION", now)) == []


def test_readme_fits_on_a_screen_and_gives_two_commands() -> None:
    commands = blocks("sh")

    assert len(commands) == 2
    assert all(len(command.strip().splitlines()) == 1 for command in commands)
    assert len(README.splitlines()) <= 80
