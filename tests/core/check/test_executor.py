"""Evaluations that an executor makes at once, with the same verdicts and numbers."""

import random
import threading
import time
import traceback
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import array_api_compat.numpy as namespace
import numpy as np
import pytest
from scenarios import over_seeds
from travelling import dies_elsewhere, one_entry_off, waves, waves_vjp

from adjudge import ByHand, InputError, Status, Verdict, examine
from adjudge.engine import Environment, PlainBackend
from adjudge.errors import AdjudgeError

X = np.linspace(0.3, 2.0, 6)


RIGHT, WRONG = ByHand(waves, vjp=waves_vjp), ByHand(waves, vjp=one_entry_off)


def numbers(report):
    """Returns all that must not depend on who evaluates f."""
    counts = {key: n for key, n in report.counts.items() if key != "evaluations"}
    findings = [(f.status, f.entry) for f in report.findings]
    entries = [(str(e), e.automatic, e.reference, e.error, e.allowed) for e in report.entries]
    return report.verdict, findings, counts, entries, report.stages, report.resolution


def notes(report):
    return [f.detail.reason.name for f in report.findings if f.status is Status.SEQUENTIAL]


@pytest.fixture(scope="module")
def threads():
    with ThreadPoolExecutor(3) as executor:
        yield executor


@over_seeds(10)
@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("rule", [RIGHT, WRONG])
def test_threads_give_the_numbers_of_one_evaluation_after_another(rule, mode, threads, seeds):
    for seed in seeds:
        here = examine(rule, X, mode=mode, seed=seed)
        there = examine(rule, X, mode=mode, seed=seed, executor=threads)

        assert numbers(here) == numbers(there)
        assert here.verdict is (Verdict.PASS if rule is RIGHT else Verdict.FAIL)
        assert there.counts["evaluations"] == here.counts["evaluations"] + 1


def test_every_evaluation_is_counted(threads):
    made = []

    def counted(x):
        made.append(threading.get_ident())
        return waves(x)

    for rule in (waves_vjp, one_entry_off):
        made.clear()

        report = examine(ByHand(counted, vjp=rule), X, executor=threads)

        assert report.counts["evaluations"] == len(made)
        assert set(made) > {threading.get_ident()}


@pytest.mark.parametrize("rule", [waves_vjp, one_entry_off])
def test_evaluations_overlap_in_time(rule, threads):
    lock, now, most = threading.Lock(), [0], [0]

    def slow(x):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.002)
        with lock:
            now[0] -= 1
        return waves(x)

    examine(ByHand(slow, vjp=rule), X, mode="full", executor=threads)

    assert most == [3]


@pytest.mark.parametrize(
    ("x", "options"),
    [
        (np.r_[0.0, X], {"bounds": (0.0, 3.0)}),
        (X, {"max_evaluations": 30}),
        (X, {"eps": 1e-6, "rtol": 1e-3}),
        (np.float32(X), {}),
        (X, {"order": 2}),
    ],
    ids=["at a bound", "a budget", "a step", "narrow", "second order"],
)
@pytest.mark.parametrize("rule", [RIGHT, WRONG])
def test_other_ways_of_a_check_give_the_same_numbers(rule, x, options, threads):
    here = examine(rule, x, seed=3, **options)
    there = examine(rule, x, seed=3, executor=threads, **options)

    assert here.verdict is there.verdict
    if "max_evaluations" in options:
        assert there.counts["evaluations"] + there.counts["vjps"] <= 30
    else:
        entries = [[(e.automatic, e.reference) for e in one.entries] for one in (here, there)]
        assert entries[0] == entries[1]
        assert there.counts["evaluations"] <= here.counts["evaluations"] + 2  # in two precisions


@pytest.fixture(scope="module")
def processes():
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        yield executor


def test_processes_give_the_same_numbers(processes):
    for rule in (RIGHT, WRONG):
        here = examine(rule, X, seed=3)
        there = examine(rule, X, seed=3, executor=processes)

        assert numbers(here) == numbers(there)
        assert notes(there) == []


class Restless(Executor):
    """An executor that draws random numbers of this process, as the event loop of Dask does."""

    def __init__(self, inner):
        self.inner = inner

    def submit(self, fn, /, *args, **kwargs):
        random.random()  # noqa: S311
        return self.inner.submit(fn, *args, **kwargs)


def test_random_numbers_that_an_executor_draws_are_not_those_of_the_function(processes):
    here = examine(WRONG, X, seed=3)
    there = examine(WRONG, X, seed=3, executor=Restless(processes))

    assert notes(there) == []
    assert numbers(here)[0] is numbers(there)[0]
    assert numbers(here)[3] == numbers(there)[3]


class Inline(Executor):
    """An executor that calls at once."""

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def test_whatever_implements_an_executor_will_do():
    assert numbers(examine(WRONG, X, seed=1)) == numbers(
        examine(WRONG, X, seed=1, executor=Inline())
    )


# ---------------------------------------------------------------- what is not independent


def into_one_buffer(rule):
    """A function that writes its steps into an array that all its calls share."""
    steps = np.zeros(6)

    def buffered(x):
        np.sin(x, out=steps)
        time.sleep(0.001)
        return steps * np.sum(x**2)

    return ByHand(buffered, vjp=rule)


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_a_function_that_writes_into_a_shared_array_is_evaluated_here(mode, threads):
    for seed in range(5):
        right = examine(into_one_buffer(waves_vjp), X, mode=mode, seed=seed, executor=threads)
        wrong = examine(into_one_buffer(one_entry_off), X, mode=mode, seed=seed, executor=threads)

        assert right.verdict is Verdict.PASS
        assert wrong.verdict is Verdict.FAIL
        assert notes(right) == notes(wrong) == ["WRITES"]


def test_a_function_that_draws_is_evaluated_here(threads):
    def drawing(x):
        return waves(x) * (1 + np.random.rand())  # noqa: NPY002

    np.random.seed(0)  # noqa: NPY002
    here = examine(ByHand(drawing, jvp=None, vjp=waves_vjp), X, seed=0)
    np.random.seed(0)  # noqa: NPY002
    there = examine(ByHand(drawing, jvp=None, vjp=waves_vjp), X, seed=0, executor=threads)

    assert here.verdict is there.verdict
    assert notes(there) == ["RANDOM"]


def test_a_function_with_another_value_in_the_executor_is_evaluated_here(threads):
    main = threading.get_ident()

    def by_thread(x):
        return waves(x) * (1 if threading.get_ident() == main else 2)

    right = examine(ByHand(by_thread, vjp=waves_vjp), X, executor=threads)
    wrong = examine(ByHand(by_thread, vjp=one_entry_off), X, executor=threads)

    assert [right.verdict, wrong.verdict] == [Verdict.PASS, Verdict.FAIL]
    assert notes(right) == notes(wrong) == ["ELSEWHERE"]


def test_an_engine_that_does_not_allow_threads_gets_none(threads):
    class Alone(PlainBackend):
        environment = Environment()

    used = []

    def watched(x):
        used.append(threading.get_ident())
        return waves(x)

    report = examine(ByHand(watched, vjp=waves_vjp), X, backend=Alone(namespace), executor=threads)

    assert report.verdict is Verdict.PASS
    assert notes(report) == ["ENGINE"]
    assert set(used) == {threading.get_ident()}


# ---------------------------------------------------------------- what is raised


def test_an_error_in_another_thread_keeps_its_traceback(threads):
    def undefined_beside_x(x):
        if np.any(x != X):
            raise ValueError("only at x")
        return waves(x)

    with pytest.raises(ValueError, match="only at x") as raised:
        examine(ByHand(undefined_beside_x, vjp=waves_vjp), X, executor=threads)

    frames = [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert frames[-1] == "undefined_beside_x"
    assert any("moved by" in note for note in raised.value.__notes__)


def test_a_function_that_is_not_defined_on_one_side_passes(threads):
    def root(x):
        if np.any(x < 0):
            raise ValueError("negative")
        return np.sqrt(x) ** 3

    rule = ByHand(root, vjp=lambda x, w: 1.5 * w * np.sqrt(x))
    x = np.array([1e-4, 1.0])

    assert numbers(examine(rule, x, seed=1)) == numbers(examine(rule, x, seed=1, executor=threads))


@pytest.mark.parametrize(
    ("executor", "words"),
    [(3, "executor=3 is an int"), (ThreadPoolExecutor, "is a .*type|is a ABCMeta")],
)
def test_what_is_no_executor_is_refused(executor, words):
    with pytest.raises(InputError, match=words):
        examine(RIGHT, X, executor=executor)


def test_a_closed_executor_and_a_function_that_cannot_travel_are_refused_before_work(processes):
    called = []

    def local(x):
        called.append(x)
        return waves(x)

    with ThreadPoolExecutor(1) as closed:
        pass
    with pytest.raises(InputError, match="takes no work"):
        examine(ByHand(local, vjp=waves_vjp), X, executor=closed)
    with pytest.raises(InputError, match="cannot be sent to the processes"):
        examine(ByHand(local, vjp=waves_vjp), X, executor=processes)
    assert called == []


def test_an_executor_that_breaks_is_an_error_and_no_verdict(processes):
    with pytest.raises(AdjudgeError, match=r"executor= broke during the check"):
        examine(ByHand(dies_elsewhere, vjp=waves_vjp), X, executor=processes)
