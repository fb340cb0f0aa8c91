"""The table of benchmarks/engines.py: every engine that is here passes, and no error is missed."""

from pathlib import Path

import numpy as np
import pytest

from adjudge import Verdict


@pytest.fixture
def table(load, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return load("benchmarks/engines.py")


def found(trials):
    return {name: trial for name, trial in trials.items() if not isinstance(trial, str)}


def test_every_engine_passes_on_the_cpu_and_every_planted_error_is_found(table):
    trials = found(table.trials(np))

    assert {name for name in trials if name.startswith(("ByHand", "layer", "linear: f"))}
    for name, trial in trials.items():
        assert trial.verdict is Verdict.PASS, name
        assert trial.comparisons > 0, name
        assert trial.caught, name
        assert not trial.missed, (name, trial.missed)


def test_an_error_that_is_not_found_is_counted_as_missed(table, monkeypatch):
    monkeypatch.setitem(table.MISTAKES, "none", lambda g: g)

    trial = table.trial(table.ENGINES["layer"], np)

    assert trial.missed == ("none",)
    assert "of 6, not none" in table.cells(trial)[3]


def test_every_engine_passes_on_the_gpu_and_every_planted_error_is_found(gpu, table):
    for name, trial in found(table.trials(gpu)).items():
        assert trial.verdict is Verdict.PASS, name
        assert not trial.missed, (name, trial.missed)
