"""What is printed at both ends of a run, and the exit status where a promise was not kept."""

from __future__ import annotations

import importlib.metadata

import pytest

from adjudge_pytest.run import Run


def header(run: Run) -> str:
    """The engines that were named, or that take part on the device that was, with versions and
    devices.
    """
    from adjudge_pytest import engines  # imports adjudge, which few runs need

    settings = run.settings
    words = [
        engines.in_words(name, settings.devices)
        + (" required" if name in settings.required else "")
        for name in settings.named or engines.selected(())
    ]
    version = importlib.metadata.version("adjudge")
    return f"adjudge {version}: {', '.join(words)}; seed {settings.seed}"


def lines(run: Run) -> list[str]:
    """Comparisons by engine: the required ones first, then by name; and, where no engine was named,
    those that took no part.
    """
    required = run.settings.required
    names = [*required, *sorted(name for name in run.totals if name not in required)]
    told = [f"adjudge: {name}{run.totals.of(name)}" for name in names]
    if names and not run.settings.named:
        from adjudge_pytest import engines  # imports adjudge, which few runs need

        if absent := engines.absent():
            told.append(f"adjudge: not installed: {', '.join(absent)}")
    return told


def complaints(run: Run) -> list[str]:
    """Why the run fails, a line each."""
    found = []
    for name in run.missed():
        chosen = run.settings.backends
        why = (
            f"it is not among --adjudge-backend {','.join(chosen)}"
            if chosen and name not in chosen
            else "no test that ran has checked anything on it"
        )
        found.append(
            f"adjudge: required engine '{name}' made no comparison in this run ({why}): "
            "run tests that check it, or require it no more"
        )
    return found


def finish(run: Run, session: pytest.Session, exitstatus: int) -> None:
    """Fails a run that ended as it should and in which a required engine compared nothing."""
    if session.config.getoption("collectonly"):
        return
    ended = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
    if exitstatus not in ended or session.shouldfail or session.shouldstop:
        return
    run.complaints = complaints(run)
    if not run.complaints:
        return
    session.exitstatus = pytest.ExitCode.TESTS_FAILED
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and session.config.getoption("no_summary", False):
        reporter.ensure_newline()
        write(reporter, run.complaints)


def write(reporter: pytest.TerminalReporter, complaints: list[str]) -> None:
    """The complaints, in red."""
    for line in complaints:
        reporter.write_line(f"ERROR {line}", red=True)


def terminal(run: Run, reporter: pytest.TerminalReporter) -> None:
    """The section of the terminal's summary."""
    reporter.write_sep("=", "adjudge")
    for line in lines(run):
        reporter.write_line(line)
    write(reporter, run.complaints)
