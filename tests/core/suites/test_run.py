"""Many cases in one run: each has one result, whatever it does and whoever judges it."""

import multiprocessing
import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

import adjudge
from adjudge import ByHand, Case, InputError, Verdict, run
from adjudge.suites import Ending, collect

X = np.asarray([0.3, -1.2])
TIMEOUT = 8
"""Seconds. With three times its load on a machine a case that ends by itself takes below 0.7."""
SPAWN = multiprocessing.get_context("spawn")
PASS, FAIL, INCONCLUSIVE = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE


def what_matters(report):
    return {one.name: (one.verdict, one.seed, one.details) for one in report.results}


@pytest.fixture
def plain(folder):
    """Seven cases that end by themselves."""
    return collect(["checks/common.py"]).cases


def test_a_run_here_has_the_results_in_the_order_of_the_cases(plain):
    report = run(plain, seed=3)

    found = [(one.name, one.ending, one.verdict) for one in report.results]
    assert found[:4] == [
        ("right", Ending.JUDGED, PASS),
        ("wrong", Ending.JUDGED, FAIL),
        ("raises", Ending.RAISED, FAIL),
        ("jump", Ending.JUDGED, INCONCLUSIVE),
    ]
    assert [one.name for one in report.results[4:]] == ["right 0", "right 1", "right 2"]
    assert not report
    assert report.verdict is FAIL
    assert "7 cases: 4 PASS, 1 FAIL, 1 raised, 1 INCONCLUSIVE" in report.summary
    assert run(plain[:1])


def test_what_hangs_or_kills_its_process_is_one_result_among_the_others(folder):
    found = collect(["checks/deadly.py", "checks/common.py"]).cases
    coming = []

    report = run(found, executor=2, timeout=TIMEOUT, seed=3, on_result=coming.append)

    assert report["hangs"].ending is Ending.TIMED_OUT
    assert f"no verdict within {TIMEOUT} s" in report["hangs"].headline
    assert report["dies"].ending is Ending.DIED
    assert "exit code 7" in report["dies"].headline
    others = {name: rest for name, rest in what_matters(report).items() if rest[2]}
    assert what_matters(run(collect(["checks/common.py"]).cases, seed=3)).items() <= others.items()
    assert sorted(one.name for one in coming) == sorted(one.name for one in report.results)
    assert len(report.results) == 9


def test_neither_order_nor_executor_changes_a_verdict_or_a_seed(plain):
    here = what_matters(run(plain, seed=3))

    with ThreadPoolExecutor(3) as threads, ProcessPoolExecutor(1, SPAWN) as processes:
        for executor in (None, threads, processes):
            assert here == what_matters(run(plain[::-1], executor=executor, seed=3))
    assert here != what_matters(run(plain, seed=4))


def test_a_case_keeps_a_seed_of_its_own():
    case = Case(ByHand(np.sin, vjp=lambda x, w: w * np.cos(x)), X, seed=12)

    assert [run([case], seed=seed).results[0].seed for seed in (1, 2)] == [12, 12]


def test_where_an_executor_breaks_the_case_that_broke_it_is_found(folder):
    plain = collect(["checks/common.py"]).cases
    deadly = [one for one in collect(["checks/deadly.py"]).cases if one.name == "dies"]
    with ProcessPoolExecutor(2, SPAWN) as executor:
        report = run([*plain[:3], *deadly, *plain[3:]], executor=executor, seed=3)

    assert report["dies"].ending is Ending.DIED
    others = {name: rest for name, rest in what_matters(report).items() if name != "dies"}
    assert others == what_matters(run(plain, seed=3))


def test_what_an_executor_that_is_shut_down_left_undone_is_judged(plain):
    with ProcessPoolExecutor(1, SPAWN) as executor:
        report = run(
            plain,
            executor=executor,
            seed=3,
            on_result=lambda _: executor.shutdown(wait=False, cancel_futures=True),
        )

    assert what_matters(report) == what_matters(run(plain, seed=3))


def test_an_executor_of_loky_judges_functions_that_no_module_has(cases):
    loky = pytest.importorskip("loky")
    chosen = [cases.right, cases.wrong, *cases.MORE]

    report = run(chosen, executor=loky.get_reusable_executor(2), seed=3)

    assert what_matters(report) == what_matters(run(chosen, seed=3))


def test_what_a_killed_worker_of_dask_had_is_judged_by_another_one(cases):
    distributed = pytest.importorskip("distributed")
    begun = threading.Event()
    chosen = [cases.wrong, cases.right, *cases.MORE] + [
        Case(cases.rule(1), np.full(120, 0.1 * k), name=f"{k}", fast_mode=False) for k in range(6)
    ]
    coming = []

    def kill_one(result):
        coming.append(result.name)
        if not begun.is_set():
            begun.set()
            os.kill(next(iter(workers)), signal.SIGKILL)

    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        workers = client.run(os.getpid).values()
        report = run(chosen, executor=client.get_executor(), seed=3, on_result=kill_one)

    assert sorted(coming) == sorted(one.name for one in chosen)  # none is lost, none counts twice
    assert [one.name for one in chosen] == [one.name for one in report.results]
    verdicts = {one.name: (one.verdict, one.seed) for one in report.results}
    assert verdicts == {one.name: (one.verdict, one.seed) for one in run(chosen, seed=3).results}


def test_a_thread_that_hangs_is_given_up():
    over = threading.Event()

    def hang(x):
        over.wait()
        return x

    hangs = Case(ByHand(hang, vjp=lambda x, w: w), X, name="hangs")
    right = Case(ByHand(np.sin, vjp=lambda x, w: w * np.cos(x)), X, name="right")
    run([right])  # once without a limit, which imports what a check needs
    with ThreadPoolExecutor(1) as executor:
        report = run([hangs, right], executor=executor, timeout=1)
    over.set()

    assert [one.ending for one in report.results] == [Ending.TIMED_OUT, Ending.JUDGED]


def test_a_run_may_end_at_the_first_failure(plain):
    report = run(plain, stop_at_failure=True)

    assert [one.name for one in report.results] == ["right", "wrong"]
    assert list(report.skipped) == ["raises", "jump", "right 0", "right 1", "right 2"]
    assert not report


class Rule:
    @classmethod
    def apply(cls, x):
        return x


class Inherited(Rule):
    pass


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (np.sin, "sin"),
        (np.ndarray.sum, "sum"),  # compiled, and qualified by what holds it
        (partial(np.sin, dtype=float), "sin"),
        (Inherited.apply, "Inherited.apply"),
        (what_matters, "what_matters"),
        (Rule(), "Rule"),
    ],
)
def test_a_case_is_named_as_its_report_names_the_function(function, name):
    assert Case(function, X).name == name


def test_a_mapping_gives_cases_their_names():
    def case(c):
        return Case(ByHand(np.sin, vjp=lambda x, w: c * w * np.cos(x)), X)

    report = run({"one": case(1), "two": case(2)})

    assert [report["one"].verdict, report["two"].verdict] == [PASS, FAIL]
    with pytest.raises(KeyError, match="three"):
        report["three"]


def test_a_function_that_ends_the_program_ends_its_own_case_alone():
    def leave(x):
        raise SystemExit(3)

    left = Case(ByHand(leave, vjp=leave), X, name="left")
    right = Case(ByHand(np.sin, vjp=lambda x, w: w * np.cos(x)), X, name="right")

    report = run([left, right])

    assert [one.ending for one in report.results] == [Ending.RAISED, Ending.JUDGED]
    assert "SystemExit: 3" in report["left"].headline


def test_what_a_case_raises_is_shown_without_the_frames_of_the_library(plain):
    text = run(plain)["raises"].details

    assert "in refuse" in text
    assert "LookupError: mine" in text
    assert "adjudge/problem" not in text


LOCK = Case(threading.Lock(), X, name="locked")
RIGHT = Case(ByHand(np.sin, vjp=lambda x, w: w * np.cos(x)), X, name="same")


@pytest.mark.parametrize(
    ("cases", "options", "found", "remedy"),
    [
        ([], {}, "there is no case", "at least one"),
        ([RIGHT, RIGHT], {}, "two cases are called 'same'", "Case(name=...)"),
        ([np.sin], {}, "is a ufunc", "adjudge.Case(f, inputs"),
        ([LOCK], {"executor": 1}, "'locked' cannot be sent to another process", "in a module"),
        ([RIGHT], {"executor": 0}, "executor=0", "at least one process"),
        ([RIGHT], {"executor": True}, "executor=True", "a number of processes"),
        ([RIGHT], {"executor": "dask"}, "executor='dask'", "client.get_executor()"),
        ([RIGHT], {"timeout": 0}, "timeout=0", "a positive number"),
        ([RIGHT], {"timeout": float("nan")}, "timeout=nan", "a positive number"),
    ],
)
def test_bad_input_is_refused_before_any_case_is_judged(cases, options, found, remedy):
    judged = []

    with pytest.raises(InputError) as error:
        run(cases, on_result=judged.append, **options)

    assert found in error.value.found
    assert remedy in error.value.remedy
    assert not judged


def test_the_verb_is_imported_late_and_found():
    assert adjudge.run is run
    assert {"run", "RunReport", "Result"} <= {*dir(adjudge)}


def test_a_script_that_cannot_be_written_says_why(monkeypatch):
    class Nameless:
        """A function of which nothing is known but what it computes."""

        def __call__(self, x):
            return x * x

    def refuse(*_, **__):
        raise TypeError("it has no text")

    wrong = Case(ByHand(Nameless(), vjp=lambda x, w: 3 * w * x), X, name="wrong")
    assert "examine" in run([wrong]).results[0].script

    monkeypatch.setattr("adjudge.suites.judge.reproduction", refuse)

    (result,) = run([wrong]).results
    assert result.verdict is FAIL
    assert result.script == "# No script could be written: TypeError: it has no text\n"


@pytest.mark.parametrize(
    ("cases", "options", "found"),
    [
        (RIGHT, {}, "cases= is a Case"),
        ([RIGHT], {"timeout": "5"}, "timeout= is a str"),
        ([RIGHT], {"seed": "x"}, "seed= is a str"),
        ([RIGHT], {"seed": True}, "seed= is a bool"),
    ],
)
def test_an_argument_of_another_kind_is_refused(cases, options, found):
    with pytest.raises(InputError) as caught:
        run(cases, **options)

    assert caught.value.found == found


def test_an_argument_that_there_is_not_is_a_type_error_that_knows_what_was_meant():
    with pytest.raises(TypeError, match="Did you mean 'executor'"):
        run([RIGHT], excutor=1)
