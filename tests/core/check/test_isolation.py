"""Settings of an engine that make its results coarse or not repeatable are named."""

import array_api_compat.numpy
import numpy as np

from adjudge import ByHand, Status, Verdict, examine
from adjudge.engine import Environment, PlainBackend, Precision, replaced


class Coarse(Environment):
    """One of which it is said that it computes products in TF32, with atomic additions."""

    def precision(self, array):
        return Precision(2.0**-10, "ALLOW_TF32=1")

    def determinism_setting(self, array):
        return "DETERMINISTIC=1"


COARSE = replaced(PlainBackend(array_api_compat.numpy), environment=Coarse())


def notes(report):
    return {finding.status: finding for finding in report.findings if finding.note}


X = np.asarray([0.5, -1.0, 2.0], dtype=np.float32)
SINE = ByHand(np.sin, vjp=lambda x, w: w * np.cos(x))


def test_the_setting_that_makes_arithmetic_coarse_is_a_note():
    report = examine(SINE, X, backend=COARSE)

    assert report.verdict is Verdict.PASS
    assert "ALLOW_TF32=1" in notes(report)[Status.IMPRECISE].detail.setting
    assert "highest_precision=True" in str(report)
    assert Status.NONDETERMINISTIC not in notes(report)


def test_nothing_is_noted_where_the_arithmetic_is_that_of_the_dtype():
    assert not notes(examine(SINE, X))


def test_what_makes_results_repeatable_is_named_where_they_differ():
    numbers = iter(np.random.default_rng(0).uniform, None)

    def jittered(x):
        return np.sin(x) * np.float32(1 + 1e-3 * next(numbers))

    report = examine(ByHand(jittered, vjp=SINE.vjp), X, backend=COARSE)

    assert report.verdict is Verdict.FAIL
    assert "differs by" in str(report)
    assert "DETERMINISTIC=1" in notes(report)[Status.NONDETERMINISTIC].remedy.words
