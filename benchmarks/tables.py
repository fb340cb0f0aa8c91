"""Headers and tables of the benchmark reports, as Markdown."""

import datetime
import importlib.metadata
import platform
from collections.abc import Iterable, Sequence


def header(title: str, distributions: Sequence[str]) -> str:
    """The title, and under it what is needed to read the numbers: date, machine and versions."""
    versions = [f"{name} {version(name)}" for name in distributions]
    place = f"Python {platform.python_version()}, {platform.machine()}, one thread"
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    return f"## {title}\n\n{today}; {', '.join(versions)}; {place}.\n"


def version(distribution: str) -> str:
    """The installed version of a distribution, or `absent`."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; a cell that holds a bar or a line break does not break it."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(map(cell, line)) + " |" for line in lines) + "\n"


def cell(value: object) -> str:
    """`value` as one line without bars."""
    return " ".join(str(value).replace("|", "\\|").split())


def first_line(text: object, width: int = 160) -> str:
    """The first line of `text` that is not empty, cut at `width` characters."""
    lines = [line.strip() for line in str(text).splitlines() if line.strip()]
    line = lines[0] if lines else ""
    return line if len(line) <= width else line[: width - 1] + "…"
