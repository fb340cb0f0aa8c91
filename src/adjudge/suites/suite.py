"""This module runs many cases: here, in processes of its own, or by an executor of the caller."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor, as_completed
from contextlib import closing, suppress
from dataclasses import replace
from queue import SimpleQueue
from typing import Literal

import pebble

from adjudge.check import checked_signature, require_kind
from adjudge.engine import entries
from adjudge.errors import InputError, described
from adjudge.estimate import require_flint
from adjudge.findings import Verdict
from adjudge.problem import fresh_seed
from adjudge.suites.collect import Declared
from adjudge.suites.judge import Task, died, judge, pickled, raised, seed_of, timed_out
from adjudge.suites.results import Result, RunReport
from adjudge.verbs import Case

Listener = Callable[[Result], None]
Results = Generator[Result, None, None]


@checked_signature
def run(
    cases: Iterable[Case | Declared] | Mapping[str, Case],
    *,
    executor: Executor | int | Literal["auto"] | None = None,
    timeout: float | None = None,
    seed: int | None = None,
    stop_at_failure: bool = False,
    on_result: Listener | None = None,
    reference: Literal["exact"] | None = None,
) -> RunReport:
    """Judges many cases. What raises, hangs or kills its process is one result among the others.

    Verdicts and seeds depend neither on the order of the cases nor on who judges them.

    Args:
        cases: The cases; a mapping gives them names. Names must differ.
        executor: `None` judges one case after the other in this process, or in one other process
            if there is a timeout. A number starts so many processes, "auto" one for each
            processor; each imports the frameworks once. Or any `concurrent.futures.Executor`, such
            as loky's, or that of a Dask cluster, `Client(...).get_executor()`: where it breaks or
            is shut down, what it left undone is judged by one process of our own.
        timeout: The seconds that each case has. A process of ours that takes longer is killed. In
            an executor of the caller, whose processes are not ours to kill, the thread that judges
            the case is given up and goes on.
        seed: The seed of the run, from which each case without a seed of its own has one. `None`
            takes a fresh one, which the report names.
        stop_at_failure: Begins no further case after one that is FAIL.
        on_result: Called with each result as it comes, in this process.
        reference: The reference of each case that has none of its own. "exact" replays its function
            in ball arithmetic; see `adjudge.Options`.

    Returns:
        The `RunReport`, with the results in the order of the cases.

    Raises:
        InputError: There is no case, two have one name, one cannot be sent to another process, or
            an argument makes no sense. This is raised before any case is judged.
    """
    _validate(executor, timeout)
    if reference is not None:
        require_flint()
    seed = fresh_seed() if seed is None else seed
    processes = 1 if executor is None and timeout is not None else _processes(executor)
    here = executor is None and processes is None
    same = here or isinstance(executor, ThreadPoolExecutor)
    tasks = _tasks(cases, seed, reference, same_process=same, by_value=processes is None)
    start, results = time.perf_counter(), dict[str, Result]()
    coming: Results
    if here:
        coming = (judge(task) for task in tasks)
    elif processes is not None:
        coming = _in_processes(tasks, min(processes, len(tasks)), timeout)
    else:
        assert isinstance(executor, Executor)
        coming = _by_executor(tasks, executor, timeout)
    with closing(coming):
        for result in coming:
            results[result.name] = result
            if on_result is not None:
                on_result(result)
            if stop_at_failure and result.verdict is Verdict.FAIL:
                break
    return RunReport(
        [results[task.name] for task in tasks if task.name in results],
        seed,
        time.perf_counter() - start,
        [task.name for task in tasks if task.name not in results],
    )


def _validate(executor: object, timeout: float | None) -> None:
    if timeout is not None and not timeout > 0:
        raise InputError(f"timeout={timeout!r}", "give a positive number of seconds, or None")
    if isinstance(executor, int) and not isinstance(executor, bool):
        if executor < 1:
            raise InputError(f"executor={executor}", "give at least one process, or None")
    elif not (executor is None or executor == "auto" or isinstance(executor, Executor)):
        raise InputError(
            f"executor={executor!r} is {described(executor)}",
            "give a number of processes, 'auto', or a concurrent.futures.Executor; for a Dask "
            "client, client.get_executor()",
        )


def _processes(executor: Executor | int | str | None) -> int | None:
    if executor == "auto":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return executor if isinstance(executor, int) else None


def _tasks(
    cases: Iterable[Case | Declared] | Mapping[str, Case],
    seed: int,
    reference: str | None,
    *,
    same_process: bool,
    by_value: bool,
) -> list[Task]:
    """Returns a task for each case, with what another process needs to find it.

    Args:
        cases, seed, reference: As for `run`.
        same_process: Cases are judged within this process.
        by_value: Cases travel to processes that do not import the main module of this one.
    """
    items = cases.items() if isinstance(cases, Mapping) else [(None, one) for one in cases]
    tasks, seen = list[Task](), set[str]()
    for given, one in items:
        case, place = (one.case, one.place) if isinstance(one, Declared) else (one, None)
        if not isinstance(case, Case):
            raise InputError(f"{case!r} is {described(case)}", "give adjudge.Case(f, inputs, ...)")
        require_kind("Case(seed=...)", case.options.get("seed"), int | None)
        name = given or (one.name if isinstance(one, Declared) else case.name)
        if name in seen:
            raise InputError(f"two cases are called {name!r}", "give them names: Case(name=...)")
        seen.add(name)
        task = Task(name, seed_of(seed, name, case), case.file, case.line, place)
        task = replace(task, reference=reference)
        if same_process:
            task = replace(task, case=case)
        elif place is None:
            task = replace(task, pickled=pickled(name, case, by_value=by_value))
        tasks.append(task)
    if not tasks:
        raise InputError("there is no case to judge", "give at least one adjudge.Case")
    return tasks


# -- processes of our own


def _in_processes(tasks: Sequence[Task], count: int, timeout: float | None) -> Results:
    """Yields results as spawned processes make them. A process that hangs or dies is replaced."""
    # Threads of frameworks do not survive a fork.
    context = multiprocessing.get_context("spawn")
    roots = [entry.root for entry in entries() if entry.root in sys.modules]
    pool = pebble.ProcessPool(count, initializer=_begin, initargs=(roots,), context=context)
    try:
        futures: dict[Future[Result], Task] = {
            pool.schedule(judge, (task,), timeout=timeout): task for task in tasks
        }
        for future in as_completed(futures):
            yield _result(future, futures[future], timeout)
    finally:
        pool.stop()  # type: ignore[no-untyped-call]
        pool.join()


def _begin(roots: Sequence[str]) -> None:
    """Prepares a process: the frameworks in use are imported, which is no part of a case's time."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that runs the suite ends this one
    for root in roots:
        with suppress(ImportError):  # the case that needs it says so
            importlib.import_module(root)


def _result(future: Future[Result], task: Task, timeout: float | None) -> Result:
    """Returns what a process came to with a case."""
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, TimeoutError) and timeout is not None:
        return timed_out(task, timeout)
    if isinstance(error, pebble.ProcessExpired):
        return died(task, _how(error.exitcode))
    return raised(task, 0.0, error)  # the result could not be sent back


def _how(code: int) -> str:
    """Returns how a process ended."""
    if code < 0:
        with suppress(ValueError):
            return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}"


# -- an executor of the caller


def _by_executor(tasks: Sequence[Task], executor: Executor, timeout: float | None) -> Results:
    """Yields results as the executor makes them. Where it breaks, since a case killed one of its
    processes, or is shut down meanwhile, what is left is judged by a process of our own, which
    finds out which case it was.
    """
    futures, left = dict[Future[Result], Task](), list[Task]()
    # `as_completed` would wait forever for a future that the executor cancels as it is shut down:
    # only callbacks hear of that.
    done = SimpleQueue[Future[Result]]()
    try:
        for task in tasks:
            try:
                future = executor.submit(judge, task, timeout)
            except (BrokenExecutor, RuntimeError):
                left.append(task)
            else:
                futures[future] = task
                future.add_done_callback(done.put)
        for _ in range(len(futures)):
            future = done.get()
            if future.cancelled() or isinstance(future.exception(), BrokenExecutor):
                left.append(futures[future])
            else:
                yield _result(future, futures[future], timeout)
    finally:
        for future in futures:
            future.cancel()
    if left:
        yield from _in_processes(left, 1, timeout)
