"""This module is the verb `write`: a module in, the text of a test file out.

Each function is tried in a process of its own kind: a function that hangs is given up after its
time, and one that takes its process along is one reason in the list.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pebble

from adjudge.engine import backend_named
from adjudge.errors import InputError
from adjudge.findings import Verdict
from adjudge.ghostwriter.subjects import (
    LeftOut,
    Subject,
    Why,
    engine_of,
    imported,
    modules,
    subjects,
)
from adjudge.ghostwriter.text import text_of
from adjudge.ghostwriter.trial import Found, judged

Listener = Callable[[Found | LeftOut], None]


@dataclass(frozen=True)
class Written:
    """A test file, and what it is made of."""

    text: str
    tests: list[Found]
    left_out: list[LeftOut]

    @property
    def failing(self) -> list[Found]:
        """Returns the tests that fail as they were written."""
        return [one for one in self.tests if one.verdict is not Verdict.PASS]


def write(
    target: str,
    *,
    backend: str | None = None,
    recursive: bool = False,
    methods: bool = False,
    keyword: str = "",
    timeout: float | None = 60.0,
    on_result: Listener | None = None,
) -> Written:
    """Returns tests for the derivatives of what a module defines.

    Its functions are called with inputs that are made up. Nothing of its text is evaluated.

    Args:
        target: A module, or `MODULE:NAME` for one function of it.
        backend: The engine on which the functions compute. `None`: the one that the module uses.
        recursive: Whether public submodules of a package are looked into.
        methods: Whether methods and properties are tried of classes that are no functions, as
            functions of the arguments of the class and their own.
        keyword: Only functions are taken whose name contains it, in upper or lower case.
        timeout: The seconds that each function has, in another process. `None`: they are called in
            this process, and have as long as they take.
        on_result: Called with each result as it comes.

    Raises:
        InputError: The module cannot be imported, or has nothing that can be tested.
        BackendError: The engine is unknown or not installed.
    """
    name, colon, member = target.partition(":")
    module = imported(name)
    engine = backend_named(backend) if backend is not None else engine_of(module)
    found: list[Subject | LeftOut] = list(
        subjects(module, engine, member if colon else None, methods=methods)
    )
    if recursive:
        for below in modules(module):
            found += (
                [below] if isinstance(below, LeftOut) else subjects(below, engine, methods=methods)
            )
    chosen = _each_once([one for one in found if keyword.lower() in _label(one).lower()])
    if not any(isinstance(one, Subject) for one in chosen):
        reasons = [f"\n  {one.name}: {one.reason}" for one in chosen if isinstance(one, LeftOut)]
        named = f" with {keyword!r} in its name" if keyword else ""
        raise InputError(
            f"{target} has no function to test{named}{''.join(reasons)}",
            "give the module that defines the functions; -r looks into those below a package",
        )
    tests, left_out = list[Found](), list[LeftOut]()
    trials = _here if timeout is None else _in_a_process
    for result in trials(chosen, engine.name, timeout or 0.0):
        (tests if isinstance(result, Found) else left_out).append(result)  # type: ignore[arg-type]
        if on_result is not None:
            on_result(result)
    return Written(text_of(target, engine.name, tests, left_out), tests, left_out)


def _label(one: Subject | LeftOut) -> str:
    return one.label if isinstance(one, Subject) else one.name


def _each_once(found: Iterable[Subject | LeftOut]) -> list[Subject | LeftOut]:
    """Returns what was found without what a package offers again from one of its submodules."""
    seen, once = set[Any](), list[Subject | LeftOut]()
    for one in found:
        if isinstance(one, Subject):
            method = one.kind == "method"
            key = one.find() if method else id(getattr(imported(one.module), one.label))
            if key in seen:
                continue
            seen.add(key)
        elif one in once:
            continue
        once.append(one)
    return once


def _here(chosen: list[Subject | LeftOut], engine: str, _: float) -> Iterator[Found | LeftOut]:
    for one in chosen:
        yield judged(one, engine) if isinstance(one, Subject) else one


def _in_a_process(
    chosen: list[Subject | LeftOut], engine: str, timeout: float
) -> Iterator[Found | LeftOut]:
    # Threads of frameworks do not survive a fork.
    context = multiprocessing.get_context("spawn")
    pool = pebble.ProcessPool(1, initializer=_begin, initargs=(engine,), context=context)
    try:
        futures = {
            one: pool.schedule(judged, (one, engine), timeout=timeout)
            for one in chosen
            if isinstance(one, Subject)
        }
        for one in chosen:
            yield one if isinstance(one, LeftOut) else _outcome(one, futures[one], timeout)
    finally:
        pool.stop()  # type: ignore[no-untyped-call]
        pool.join()


def _begin(engine: str) -> None:
    """Prepares a process: what is imported here is no part of a function's time."""
    backend_named(engine)


def _outcome(subject: Subject, future: Future[Found | LeftOut], timeout: float) -> Found | LeftOut:
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, TimeoutError):
        return LeftOut(subject.label, f"it took more than {timeout:g} s", Why.LOST)
    if isinstance(error, pebble.ProcessExpired):
        return LeftOut(subject.label, "it ended its process", Why.LOST)
    return LeftOut(subject.label, f"it raised {type(error).__name__}: {error}", Why.RAISED)
