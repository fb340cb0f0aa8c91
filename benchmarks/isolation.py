"""One call in a forked child, so that a crash or an endless loop in it ends nothing else."""

import multiprocessing
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any

GRACE = 30.0


class OutOfTimeError(BaseException):
    """The call took too long; no `except Exception` of the called code holds it up."""


def isolated(function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
    """The value of `function(*arguments)`, or a RuntimeError that says how it ended."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_send, args=(sender, function, arguments))
    child.start()
    sender.close()
    try:
        if not receiver.poll(seconds + GRACE):
            raise RuntimeError(f"stopped after {seconds + GRACE:.0f} s")
        error, value = receiver.recv()
    except EOFError:
        child.join()
        raise RuntimeError(f"the process died with exit code {child.exitcode}") from None
    finally:
        child.kill()
        child.join()
        receiver.close()
    if error:
        raise RuntimeError(error)
    return value


def _send(sender: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        sender.send(("", function(*arguments)))
    except Exception:
        sender.send((traceback.format_exc(limit=-1), None))


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise OutOfTimeError inside the block after `seconds`; in the main thread only."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
