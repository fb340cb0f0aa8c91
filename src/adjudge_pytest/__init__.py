"""The pytest plugin of adjudge: the hooks. What they need is imported when they need it.

This is imported at the start of every pytest run in an environment with adjudge, so it imports
neither adjudge nor NumPy.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from enum import Enum
from typing import Any

import pytest

from adjudge_pytest import hookspecs
from adjudge_pytest.options import add_options, read
from adjudge_pytest.run import RESULTS, RUN, Run, section

FIXTURE = "adjudge_backend"

MARKS = {
    "adjudge_skip": "(backend, *, reason, lacks, below): skips the test on these engines while "
    "they lack a capability ('jvp', 'vmap', 'compile') or are below a version; fails when that is "
    "over",
    "adjudge_xfail": "(backend, *, reason, raises, status): the test has to fail on these engines, "
    "with this exception or with this status of a report; fails when it passes",
}

REFUSED = pytest.StashKey[str]()
"""What is wrong with a test's marks, in a worker of xdist."""


def engine_of(item: pytest.Item) -> str | None:
    """The engine that the test runs on; `None` where it has not got the fixture."""
    call = getattr(item, "callspec", None)
    name: str | Enum | None = None if call is None else call.params.get(FIXTURE)
    # Of an empty set of parameters pytest makes a test that it skips, with a member of an enum.
    return None if isinstance(name, Enum) else name


# ---------------------------------------------------------------- both ends of a run


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """The hook that others may implement."""
    pluginmanager.add_hookspecs(hookspecs)


def pytest_addoption(parser: pytest.Parser) -> None:
    """See `options`."""
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marks, and what counts."""
    for name, about in MARKS.items():
        config.addinivalue_line("markers", name + about)
    config.stash[RUN] = run = Run(read(config))
    config.pluginmanager.register(run, "adjudge-run")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Listens no more."""
    if RUN in config.stash:
        config.stash[RUN].listening.end()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Looks up the engines that were named, once: the processes of xdist rely on it."""
    settings = session.config.stash[RUN].settings
    if (settings.named or settings.devices) and not hasattr(session.config, "workerinput"):
        from adjudge_pytest import engines

        devices = settings.devices
        engines.at_start(settings.backends, "--adjudge-backend", required=False)
        engines.at_start(settings.required, "--adjudge-require", required=True, devices=devices)
        engines.demand_device(engines.selected(settings.named), devices)
    if session.config.stash[RUN].files and not hasattr(session.config, "workerinput"):
        from adjudge_pytest import files

        files.at_start(session.config.stash[RUN])


def pytest_report_header(config: pytest.Config) -> str | None:
    """See `summary.header`."""
    run = config.stash[RUN]
    if not run.settings.named and not run.settings.devices:
        return None
    from adjudge_pytest import summary

    return summary.header(run)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fails a run in which a required engine compared nothing, and writes the files."""
    run = session.config.stash[RUN]
    if run.settings.required and not hasattr(session.config, "workerinput"):
        from adjudge_pytest import summary

        summary.finish(run, session, exitstatus)
    options = session.config.option
    if run.files and not hasattr(session.config, "workerinput") and not options.collectonly:
        from adjudge_pytest import files

        files.write(run)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Comparisons by engine, where anything was checked or required."""
    run = config.stash[RUN]
    if run.totals or (run.settings.required and not config.getoption("collectonly")):
        from adjudge_pytest import summary

        summary.terminal(run, terminalreporter)
    if not config.getoption("collectonly"):
        for path in run.files:
            terminalreporter.write_sep("-", f"generated file of adjudge: {path}")


# ---------------------------------------------------------------- collection


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One parameter an engine, in an order that is the same in every process."""
    if FIXTURE not in metafunc.fixturenames or _parametrized(metafunc.definition):
        return
    from adjudge_pytest import engines

    names = engines.selected(metafunc.config.stash[RUN].settings.backends)
    metafunc.parametrize(FIXTURE, names, ids=names, indirect=True, scope="function")


def _parametrized(item: pytest.Item) -> bool:
    """Whether the test names its engines itself: `parametrize("adjudge_backend", …, indirect)`."""
    for mark in item.iter_markers("parametrize"):
        names: Any = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
        if FIXTURE in ([n.strip() for n in names.split(",")] if isinstance(names, str) else names):
            return True
    return False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuses marks that make no sense, and engines that nobody knows."""
    for item in items:
        engine = engine_of(item)
        if engine is None and not any(mark.name in MARKS for mark in item.iter_markers()):
            continue
        from adjudge_pytest import exemptions

        try:
            exemptions.check(item, engine)
        except pytest.UsageError as error:
            if not hasattr(config, "workerinput"):
                raise
            # a worker of xdist that ends here takes the reason with it: the test says it instead
            item.stash[REFUSED] = str(error)


# ---------------------------------------------------------------- one test


@pytest.fixture
def adjudge_backend(request: pytest.FixtureRequest) -> Iterator[Any]:
    """One automatic differentiation engine: its arrays, and checks that raise.

    See `adjudge_pytest.fixture.EngineUnderTest`.
    """
    if not hasattr(request, "param"):
        pytest.fail("adjudge_backend has no engine here: name it among the arguments of the test")
    from adjudge.engine import registry
    from adjudge_pytest import engines, fixture, outcome

    item, engine, run = request.node, request.param, request.config.stash[RUN]
    seed = fixture.seed_of(item, engine, run.settings.seed)
    run.begin(item).seed = seed
    together = not hasattr(pytest, "Subtests") or outcome.expects_failure(item, engine)
    subtest = None if together else fixture.subtest_of(request)
    backend, wanted = registry.backend_named(engine), run.settings.devices
    device = engines.device_of(engine, wanted) if wanted else None
    with fixture.engine_under_test(backend, seed, subtest, device) as found:
        yield found


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips what is to be skipped before any fixture is set up."""
    run = item.config.stash[RUN]
    run.test = None  # a test that is run again begins anew
    test = run.begin(item)
    if REFUSED in item.stash:
        pytest.fail(item.stash[REFUSED], pytrace=False)
    if (engine := engine_of(item)) is not None:
        from adjudge_pytest import outcome

        outcome.before(test, engine, run.settings)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Fails a test whose exemption is overdue in place of running it."""
    test = item.config.stash[RUN].begin(item)
    if test.overdue:
        pytest.fail(test.overdue, pytrace=False)
    test.running = True
    try:
        return (yield)
    finally:
        test.running = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds what was compared, what did not pass, and what an exemption makes of it."""
    if call.excinfo is not None and not item.config.getoption("fulltrace"):
        from adjudge_pytest import frames

        frames.leave_out_own(call.excinfo.value)
    run = item.config.stash[RUN]
    test = run.test
    if test is None or test.item is not item:
        return (yield)
    run.note(item)
    report = yield
    error = None if call.excinfo is None else call.excinfo.value
    if test.skipped and isinstance(report.longrepr, tuple):
        path, line, _ = item.location  # and not the place in this plugin
        report.longrepr = (path, (line or 0) + 1, report.longrepr[2])
    if test.running:
        test.subtest_failed |= report.failed
    elif report.when == "call" and (engine := engine_of(item)) is not None:
        from adjudge_pytest import outcome

        if not item.config.getoption("runxfail"):
            outcome.after(test, engine, error, report, run.settings)
    if report.failed and (text := section(test, error)):
        report.sections.append(("adjudge", text))
    crash, found = getattr(report.longrepr, "reprcrash", None), getattr(error, "report", None)
    if test.reports and str(error).startswith("assert <Report "):
        found = test.reports[-1]
    brief = getattr(found, "brief", "")  # for the line of the short summary, which is cut
    if report.failed and crash is not None and brief:
        crash.message = brief
    if report.when == "teardown" and test.results:
        setattr(report, RESULTS, test.results)
    return report
