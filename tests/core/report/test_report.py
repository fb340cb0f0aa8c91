"""The report, and the exception that carries it."""

import json

import numpy as np
import pytest

from adjudge import (
    AdjudgeError,
    ByHand,
    GradcheckError,
    Report,
    Verdict,
    examine,
    gradcheck,
    gradgradcheck,
)
from adjudge.problem.probes import fresh_seed
from adjudge.report import text_of

X = np.asarray([[0.3, -1.2], [0.8, 2.0]])
BOTH = {"vjp": lambda x, w: w * np.cos(x), "jvp": lambda x, v: v * np.cos(x)}
RIGHT = ByHand(np.sin, **BOTH)


def wrong_vjp(x, w):
    g = w * np.cos(x)
    g[1, 0] *= -1
    return g


WRONG = ByHand(np.sin, vjp=wrong_vjp)
OPEN = ByHand(np.floor, vjp=lambda x, w: 0 * w)
REPORTS = {
    "pass": lambda: examine(RIGHT, X, seed=7),
    "fail": lambda: examine(WRONG, X, seed=7),
    "inconclusive": lambda: examine(OPEN, np.zeros(2), seed=7, mode="full"),
    "projected": lambda: examine(WRONG, X, seed=7, mode="projected"),
    "second order": lambda: gradgradcheck(RIGHT, X, seed=7, raise_exception=False),
    "not finite": lambda: examine(ByHand(lambda x: x * np.inf, vjp=lambda x, w: w), X, seed=7),
}


@pytest.mark.parametrize(
    ("name", "verdict", "truth"),
    [
        ("pass", Verdict.PASS, True),
        ("fail", Verdict.FAIL, False),
        ("inconclusive", Verdict.INCONCLUSIVE, False),
    ],
)
def test_only_a_pass_is_truthy(name, verdict, truth):
    report = REPORTS[name]()

    assert report.verdict is verdict
    assert bool(report) is truth
    assert report.headline.startswith(verdict)


def test_a_pass_counts_what_it_compared():
    report = examine(RIGHT, X, check_forward_ad=True)

    for name in ("comparisons", "nonzero", "identities", "evaluations", "vjps", "jvps", "probes"):
        assert report.counts[name] > 0, name
    assert report.counts["failed"] == report.counts["undecided"] == 0
    assert not report.findings
    assert 0 < report.resolution < 1e-4


def test_the_counts_are_those_of_the_functions_themselves():
    calls = {"f": 0, "vjp": 0, "jvp": 0}

    def counted(name, function):
        def call(*args):
            calls[name] += 1
            return function(*args)

        return call

    rule = ByHand(
        counted("f", np.sin), vjp=counted("vjp", BOTH["vjp"]), jvp=counted("jvp", BOTH["jvp"])
    )

    report = examine(rule, X, check_forward_ad=True)

    assert calls == {
        "f": report.counts["evaluations"],
        "vjp": report.counts["vjps"],
        "jvp": report.counts["jvps"],
    }


@pytest.mark.parametrize("name", REPORTS)
def test_the_same_seed_gives_the_same_text(name):
    first, second = str(REPORTS[name]()), str(REPORTS[name]())

    assert first == second
    assert "seed=7" in first


def test_seeds_are_fresh_and_stated(monkeypatch):
    monkeypatch.setattr("adjudge.check.options.fresh_seed", fresh_seed)

    first, second = examine(RIGHT, X), examine(RIGHT, X)

    assert first.provenance.seed != second.provenance.seed
    assert f"seed={first.provenance.seed}" in str(first)


def test_a_stated_seed_reproduces_a_failure():
    failed = examine(WRONG, np.resize(X, (40, 40)), mode="projected")

    again = examine(WRONG, np.resize(X, (40, 40)), mode="projected", seed=failed.provenance.seed)

    assert str(failed) == str(again)


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_plain_data(name):
    report = REPORTS[name]()

    data = json.loads(json.dumps(report.to_dict(), allow_nan=False))

    assert data["verdict"] == report.verdict
    assert data["counts"] == dict(report.counts)
    assert data["modes"] == {mode: str(verdict) for mode, verdict in report.modes.items()}
    assert len(data["findings"]) == len(report.findings)
    assert data["provenance"]["seed"] == 7


def test_the_exception_is_both_an_assertion_and_a_runtime_error():
    with pytest.raises(GradcheckError) as caught:
        gradcheck(WRONG, X)

    assert isinstance(caught.value, AssertionError)
    assert isinstance(caught.value, RuntimeError)
    assert isinstance(caught.value, AdjudgeError)
    assert isinstance(caught.value.report, Report)
    assert str(caught.value) == str(caught.value.report)


def test_the_first_line_stands_alone_and_names_the_entry():
    with pytest.raises(GradcheckError) as caught:
        gradcheck(WRONG, X)

    line = str(caught.value).splitlines()[0]

    assert line.startswith("FAIL ByHand(sin): MISMATCH: d out[1, 0] / d inputs[0][1, 0]: ")
    assert "automatic -0.696707, reference 0.696707" in line


def test_the_two_values_of_the_first_line_can_be_told_apart():
    rule = ByHand(lambda x: x * 1.0, vjp=lambda x, w: w * (1 + 1e-6))

    report = examine(rule, np.ones(1))

    automatic, _, reference = report.headline.partition("automatic ")[2].partition(", reference ")
    assert report.verdict is Verdict.FAIL
    assert automatic != reference.split()[0]


def test_the_compared_numbers_stand_under_one_another():
    report = REPORTS["fail"]()

    lines = text_of(report.findings[0]).splitlines()
    automatic, reference = (
        next(line for line in lines if line.startswith(f"  {word} "))
        for word in ("automatic", "reference")
    )

    assert automatic.index(".") == reference.index(".")
    assert "±" in reference


def test_a_failure_is_named_before_what_stayed_open():
    rule = ByHand(np.abs, vjp=lambda x, w: w * np.asarray([1.0, -3.0]))

    report = examine(rule, np.asarray([0.0, 2.0]), mode="full")

    assert report.headline.startswith("FAIL ByHand(absolute): MISMATCH: d out[1] / d inputs[0][1]")
    assert "(and 1 more finding)" in report.headline


def test_raise_exception_false_returns_the_falsy_report():
    report = gradcheck(WRONG, X, raise_exception=False, seed=7)

    assert not report
    assert str(report) == str(REPORTS["fail"]())


@pytest.mark.parametrize("verb", [gradcheck, examine])
def test_an_exception_of_the_function_comes_through_with_a_note(verb):
    calls = []

    def forward(x):
        calls.append(x)
        if len(calls) == 3:
            raise ZeroDivisionError("mine")
        return np.sin(x)

    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        verb(ByHand(forward, vjp=BOTH["vjp"]), X, mode="full")

    where, what_to_do = caught.value.__notes__
    assert where.startswith(
        "adjudge: raised in evaluation 3 of the function, with inputs[0] moved "
    )
    assert "directions=" in what_to_do


RAISED_IN_VJP = "raised in the vjp (the backward pass), not in the function, at call "


@pytest.mark.parametrize("call", [1, 3])
def test_an_exception_of_the_vjp_says_that_it_was_the_vjp_and_at_which_call(call):
    calls = []

    def vjp(x, w):
        calls.append(x)
        if len(calls) == call:
            raise LookupError("mine")
        return w * np.cos(x)

    with pytest.raises(LookupError, match="mine") as caught:
        gradcheck(ByHand(np.sin, vjp=vjp), X, mode="full")

    assert f"adjudge: {RAISED_IN_VJP}{call}" in caught.value.__notes__


def test_a_layer_whose_backprop_raises_is_a_finding_that_says_at_which_call():
    def layer(x):
        def backprop(w):
            raise LookupError("mine")

        return np.sin(x), backprop

    report = examine(ByHand(pullback=layer), X, modes=["R"])

    assert report.verdict is Verdict.FAIL
    assert f"  {RAISED_IN_VJP}" in str(report)


def test_an_inconclusive_check_raises_too():
    with pytest.raises(GradcheckError, match="INCONCLUSIVE") as caught:
        gradcheck(OPEN, np.zeros(2), mode="full")

    assert caught.value.report.verdict is Verdict.INCONCLUSIVE


def test_the_provenance_states_engine_device_dtype_and_mode():
    text = str(REPORTS["projected"]())

    assert f"numpy {np.__version__}, cpu, float64; projected mode, seed=7, adjudge " in text
