"""Calls in forked children: one alone, so that a crash in it ends nothing else, or many at once."""

import multiprocessing
import queue
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any

GRACE = 30.0
POLL = 5.0


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


def spread(
    prepare: Callable[[], Callable[[Any], Any]], items: Sequence[Any], processes: int
) -> Iterator[tuple[Any, Any]]:
    """`work(item)` for every item as it is done, where `work = prepare()` in each process.

    The processes are forked before `prepare` is called, so that what it imports may start threads.
    """
    if processes == 1:
        work = prepare()
        yield from ((item, work(item)) for item in items)
        return
    context = multiprocessing.get_context("fork")
    turn = context.Value("i", 0)
    done: Any = context.Queue()
    workers = [
        context.Process(target=_work, args=(prepare, items, turn, done)) for _ in range(processes)
    ]
    for worker in workers:
        worker.start()
    try:
        for _ in items:
            index, error, result = _next(done, workers)
            if error:
                raise RuntimeError(error)
            yield items[index], result
        for worker in workers:
            worker.join(POLL)
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()


def _next(done: Any, workers: Sequence[Any]) -> tuple[int, str, Any]:
    while True:
        working = any(worker.is_alive() for worker in workers)
        try:
            return done.get(timeout=POLL)  # type: ignore[no-any-return]
        except queue.Empty:
            if not working:
                codes = ", ".join(str(worker.exitcode) for worker in workers)
                raise RuntimeError(f"the workers ended early, exit codes {codes}") from None


def _work(prepare: Callable[[], Any], items: Sequence[Any], turn: Any, done: Any) -> None:
    index = -1
    try:
        work = prepare()
        while True:
            with turn.get_lock():
                index = turn.value
                turn.value += 1
            if index >= len(items):
                return
            done.put((index, "", work(items[index])))
    except Exception:
        done.put((index, traceback.format_exc(), None))


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise OutOfTimeError inside the block after `seconds` of processor time, which other
    processes do not use up; in the main thread only.
    """

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def supervised(
    prepare: Callable[[], Callable[[Any], Any]], items: Sequence[Any], seconds: float
) -> Iterator[tuple[Any, str, Any]]:
    """`item, error, work(item)` for every item, where `work = prepare()` in a forked process.

    The process is replaced by a new one where it dies or takes longer than `seconds` for an item,
    and what is said of it is the error of that item. Nothing that starts threads may have run
    before.
    """
    context = multiprocessing.get_context("fork")
    left = list(items)
    while left:
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=_serve, args=(prepare, tuple(left), sender))
        child.start()
        sender.close()
        try:
            patience = seconds + GRACE  # the imports of `prepare`
            while left:
                if not receiver.poll(patience):
                    yield left.pop(0), f"stopped after {seconds:.0f} s", None
                    break
                error, value = receiver.recv()
                yield left.pop(0), error, value
                patience = seconds
        except EOFError:
            child.join()
            yield left.pop(0), f"the process died with exit code {child.exitcode}", None
        finally:
            child.kill()
            child.join()
            receiver.close()


def _serve(prepare: Callable[[], Any], items: Sequence[Any], sender: Connection) -> None:
    work = prepare()
    for item in items:
        try:
            answer = ("", work(item))
        except Exception:
            answer = (traceback.format_exc(limit=-1), None)
        sender.send(answer)
