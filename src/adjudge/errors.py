"""What adjudge raises, and how it tells that from what the code of others raises under it.

Every error of adjudge has two lines: what was found, and what to do about it.

Wherever adjudge calls the user's function, a derivative of it or an operation of the engine, it
marks what is raised there: within `running`, or by a handler that calls `mark` and raises again
where the call is made at every evaluation, since to enter a block costs as much as an operation on
a small array, and a `try` costs nothing. Some of these calls may fail without harm: a function need
not be defined at every point beside x. They are made by `attempt` or within `Catching`, which keep
marked exceptions and let all others through: a mistake in adjudge itself is never taken for a
property of the function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from enum import Enum, auto
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np

Value = TypeVar("Value")


class AdjudgeError(Exception):
    """The base of every exception that adjudge itself raises."""

    def __init__(self, found: str, remedy: str = "") -> None:
        """`found` says what was found, with name, value, shape, dtype or device; `remedy` says
        what to do.
        """
        self.found = found
        self.remedy = remedy
        super().__init__(f"{found}\n  {remedy}" if remedy else found)


class InputError(AdjudgeError, ValueError):
    """An argument cannot be checked. This is raised before any comparison starts."""


class FlagError(InputError):
    """Two arguments contradict one another."""


class BackendError(AdjudgeError):
    """No adapter can take these arrays."""


class UnknownFrameworkError(BackendError, TypeError):
    """An array belongs to a framework for which no adapter is registered."""


class BackendNotInstalledError(BackendError, ImportError):
    """The package of a known framework is not installed, or its adapter fails to import."""


class MixedFrameworksError(BackendError, TypeError):
    """The arrays to check belong to two frameworks."""


class NotSupportedError(AdjudgeError, NotImplementedError):
    """The engine does not offer an operation. Reports say so; it is never skipped in silence."""

    def without_traceback(self) -> NotSupportedError:
        """Removes the tracebacks of this error and of its causes, and returns it.

        The frames in them would keep the arrays of a check alive for as long as its report.
        """
        error: BaseException | None = self
        while error is not None:
            error.__traceback__ = None
            error = error.__cause__ or error.__context__
        return self


class HookError(AdjudgeError):
    """What f has hooked into a backward pass, and no rule of a derivative, has raised its cause."""


class UnstableOutputError(AdjudgeError, AssertionError):
    """The output of a function changes its structure, shape or dtype between evaluations."""


@contextmanager
def installed_by(command: str) -> Iterator[None]:
    """Adds the command that installs what is missing to a `ModuleNotFoundError` of the block."""
    try:
        yield
    except ModuleNotFoundError as error:
        error.add_note(f"adjudge: install it: {command}")
        raise


CLOSE = 0.5
"""A word is suggested that is at least so much like the one that was given, from 0 to 1: `jacobian`
is like `jac` by 0.55. The value is ours."""


def did_you_mean(word: object, known: Iterable[str], before: str = "", after: str = "") -> str:
    """Returns `Did you mean 'seed'?`, with that of the words `known` that is most like `word`,
    between `before` and `after`; nothing where none is like it.
    """
    close = get_close_matches(str(word), known, 1, CLOSE)
    return f"{before}Did you mean {close[0]!r}?{after}" if close else ""


def described(thing: Any) -> str:
    """Returns words such as `ndarray of shape (3,), float64`."""
    kind = type(thing).__name__
    if hasattr(thing, "shape"):
        return f"{kind} of shape {tuple(thing.shape)}, {getattr(thing, 'dtype', 'no dtype')}"
    return "None" if thing is None else f"{'an' if kind[0] in 'aeioAEIO' else 'a'} {kind}"


class Source(Enum):
    """Whose code raised an exception."""

    FUNCTION = auto()
    """The function that is checked."""
    DERIVATIVE = auto()
    """The engine's derivative of it, or one that the user wrote."""
    ENGINE = auto()
    """An operation of the engine on arrays."""
    REFERENCE = auto()
    """What was given as `reference=`."""
    ADJUDGE = auto()
    """Code of adjudge that stands in for an engine, or is called by one."""


USERS_ERRSTATE: ContextVar[dict[str, Any]] = ContextVar("errstate", default={})  # noqa: B039
"""How NumPy was to handle overflow and the like when the check began, as the arguments of
`np.errstate`; none outside of a check. It is never written into.

A check switches NumPy's warnings off for its own arithmetic: values of f may be infinite, NaN or as
large as they can be, and what is computed from them is judged, not warned about. The code of others
runs as the user set it.
"""


@contextmanager
def quiet_arithmetic() -> Iterator[None]:
    """Switches NumPy's warnings off until it ends, for all but the code of others."""
    users = USERS_ERRSTATE.set(USERS_ERRSTATE.get() or {**np.geterr()})
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        USERS_ERRSTATE.reset(users)


class running:  # noqa: N801 it is used as a function, as `contextlib.suppress` is
    """Marks every exception that leaves the block as raised by `source`, and adds `note` to it.
    Within the block NumPy warns as the code of the source is used to.

    Where blocks are nested the innermost decides: a function that raises while the engine
    differentiates it has raised the exception itself.
    """

    def __init__(self, source: Source, note: str = "") -> None:
        """Nothing is marked yet."""
        self.source, self.note = source, note
        users = USERS_ERRSTATE.get()
        ours = users and source in (Source.ADJUDGE, Source.ENGINE)
        self._errstate = np.errstate(all="ignore") if ours else np.errstate(**users)

    def __enter__(self) -> None:
        self._errstate.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._errstate.__exit__(kind, error, traceback)
        if error is not None:
            mark(error, self.source, self.note)


def mark(error: BaseException, source: Source, note: str = "") -> None:
    """Marks `error` as raised by `source`, unless it is marked already, and adds `note` to it."""
    vars(error).setdefault(_MARK, source)
    if note:
        error.add_note(note)


_MARK = "_adjudge_source"


def source_of(error: BaseException) -> Source:
    """Whose code raised `error`, as `running` marked it; unmarked ones are adjudge's own."""
    source = vars(error).get(_MARK, Source.ADJUDGE)
    assert isinstance(source, Source)
    return source


def in_words(error: BaseException) -> str:
    """Returns the class of an exception and what it says; its text is the code of others."""
    with Catching(), running(Source.FUNCTION):
        said = str(error)
        return f"{type(error).__name__}: {said}" if said else type(error).__name__
    return type(error).__name__


def attempt(call: Callable[[], Value], *expected: type[Exception]) -> Value | None:
    """`call()`; `None` where the code of others raises in it or its outputs change their shape, or
    where one of `expected` is raised.

    Other errors of adjudge come through, and so do interrupts.
    """
    try:
        return call()
    except Exception as error:
        if not of_others(error, *expected):
            raise
        return None


def value_or_error(call: Callable[[], Value]) -> Value | Exception:
    """`call()`, or what the code of others raises in it at each of two runs. What it raises at one
    of them alone has nothing to do with what it is called for, and comes through.
    """
    try:
        return call()
    except Exception as error:
        if not of_others(error):
            raise
        first = error
    with Catching() as again:
        call()
    if again.error is None:
        raise first
    return first


class Catching:
    """A context that ends where the code of others raises or its outputs change their shape, or
    where one of `expected` is raised.

    The exception is then in `error`. Other errors of adjudge come through, and so do interrupts.
    """

    def __init__(self, *expected: type[Exception]) -> None:
        """Nothing is caught yet."""
        self.expected = expected
        self.error: Exception | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception) or not of_others(error, *self.expected):
            return False
        self.error = error
        return True


def of_others(error: Exception, *expected: type[Exception]) -> bool:
    """Returns whether the code of others raised this, outputs changed their shape, or it is one of
    `expected`.
    """
    foreign = source_of(error) is not Source.ADJUDGE and not isinstance(error, AdjudgeError)
    return foreign or isinstance(error, (UnstableOutputError, *expected))
