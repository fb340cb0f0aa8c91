"""Evaluations of f that an executor makes at once, before their values are asked for.

Only the user's function runs in the executor. Its arguments are made, its results are read and its
evaluations are counted in the thread of the check, which goes on one evaluation after another and
takes the value of each where it has begun. Numbers and verdicts are therefore those of a check
without an executor.
"""

from __future__ import annotations

import contextvars
import os
import pickle
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from adjudge.engine import Arrays
from adjudge.errors import USERS_ERRSTATE, AdjudgeError, Catching, InputError, described
from adjudge.findings import InSequence

Settings = Callable[[], AbstractContextManager[object]]


class Begun(Exception):
    """Ends an evaluation that the executor has begun, on the way out of what surrounds f."""


class ExecutorError(AdjudgeError):
    """The executor of the caller broke during a check."""


@dataclass(frozen=True)
class Call:
    """One call of the user's function."""

    function: Callable[..., Any]
    context: Callable[[Arrays], AbstractContextManager[None]] | None
    """The engine's context of a call at `x`, where it has one."""
    x: Arrays
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    def __call__(self) -> Any:
        """Returns what the function returns."""
        with nullcontext() if self.context is None else self.context(self.x):
            return self.function(*self.args, **self.kwargs)


@dataclass
class Ahead:
    """An executor, and the evaluations that it has begun."""

    executor: Executor
    same_process: bool
    """Whether the executor has threads of this process."""
    disturbed: Callable[[], InSequence | None] = lambda: None
    """Says what f has changed since the check began, so that its evaluations are not independent
    of each other."""
    rehearsed: list[Callable[[], object]] | None = None
    """The evaluations asked for in a rehearsal, in which f is not called."""
    settings: Settings | None = None
    """The settings with which an evaluation begins that is not to be waited for."""
    key: Hashable = None
    """Which evaluation is being made, where it is one that the executor may make."""
    begun: dict[Hashable, Future[Any]] = field(default_factory=dict)
    trusted: set[int] = field(default_factory=set)
    """The functions, by the `id` of their calls, that gave in the executor what they give here."""
    open: bool = True
    """Whether evaluations may begin."""
    reasons: dict[InSequence, None] = field(default_factory=dict)
    """Why evaluations were made one after another."""

    def end(self) -> int:
        """Waits for what the executor is doing; returns how many evaluations it had not started."""
        left = sum(future.cancel() for future in self.begun.values())
        wait(self.begun.values())
        self.begun.clear()
        return left

    def begin(self, call: Call, settings: Settings) -> None:
        """Begins `call` in the executor, with these settings of this thread. Raises `Begun`."""
        errstate = dict(USERS_ERRSTATE.get())
        task: Callable[[], Any]
        if self.same_process:
            context = contextvars.copy_context()
            task = partial(context.run, _evaluated, call, settings, errstate)
        else:
            rest = pickle.dumps((call.context, call.x, call.args, call.kwargs))
            task = partial(_evaluated_elsewhere, call.function, rest, settings, errstate)
        try:
            self.begun[self.key] = self.executor.submit(task)
        except RuntimeError as error:
            raise _broken(error) from error
        raise Begun

    def result_of(self, future: Future[Any]) -> Any:
        """Returns what f returned, or raises what it raised. Raises `ExecutorError` where the
        executor broke.
        """
        try:
            result = future.result()
        except (BrokenExecutor, CancelledError) as error:
            raise _broken(error) from error
        return result if self.same_process else pickle.loads(result)  # noqa: S301 made by f


def _broken(error: BaseException) -> ExecutorError:
    return ExecutorError(
        f"executor= broke during the check ({type(error).__name__}: {error})",
        "check again with a new executor, or without one",
    )


def _evaluated(call: Call, settings: Settings, errstate: Mapping[str, Any]) -> Any:
    with settings(), np.errstate(**errstate):
        return call()


def _evaluated_elsewhere(
    function: Callable[..., Any], rest: bytes, settings: Settings, errstate: Mapping[str, Any]
) -> bytes:
    """Returns the pickled result of a call in another process. There and back arrays are read with
    the settings, since an engine may make narrower ones without (JAX without its 64-bit mode).
    """
    with settings(), np.errstate(**errstate):
        return pickle.dumps(Call(function, *pickle.loads(rest))())  # noqa: S301 made by `begin`


def through(executor: object, function: Callable[..., Any]) -> Ahead:
    """Returns what begins evaluations in `executor`, which has shown that it takes the function.

    Raises `InputError` where it is no executor, takes no work, or cannot be sent the function.
    """
    if not isinstance(executor, Executor):
        raise InputError(
            f"executor={executor!r} is {described(executor)}",
            "give a concurrent.futures.Executor; for a Dask client, client.get_executor()",
        )
    future: Future[tuple[int, int]] | None = None
    with Catching(Exception) as caught:  # whatever pickling and imports in another process raise
        future = executor.submit(_arrival, function)  # some executors pickle at once
        return Ahead(executor, future.result() == (os.getpid(), id(function)))
    error = caught.error
    if future is None and isinstance(error, RuntimeError):  # as one raises that was shut down
        raise InputError(
            f"executor= takes no work ({type(error).__name__}: {error})",
            "give an executor that is open: check within its `with` block",
        ) from error
    raise _unsent(function, error) from error


def _arrival(function: Callable[..., Any]) -> tuple[int, int]:
    return os.getpid(), id(function)


def _unsent(function: Callable[..., Any], error: Exception | None) -> InputError:
    reason = f"{type(error).__name__}: {error}".partition("\n")[0]
    name = getattr(function, "__qualname__", None) or repr(function)
    return InputError(
        f"{name} cannot be sent to the processes of executor= ({reason})",
        "define it in a module by name, or give a ThreadPoolExecutor",
    )
