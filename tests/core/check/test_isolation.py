"""Settings of an engine that make its results coarse or not repeatable are named."""

import array_api_compat.numpy
import numpy as np

from adjudge import ByHand, Status, Verdict, examine
from adjudge.engine.array_api import PlainBackend


class Coarse(PlainBackend):
    """NumPy, said to compute products in TF32, with atomic additions."""

    def effective_eps(self, array):
        return 2.0**-10

    def coarsened_by(self, array):
        return "ALLOW_TF32=1"

    def repeatable_by(self, array):
        return "DETERMINISTIC=1"


def notes(report):
    return {finding.status: finding for finding in report.findings if finding.note}


X = np.asarray([0.5, -1.0, 2.0], dtype=np.float32)
SINE = ByHand(np.sin, vjp=lambda x, w: w * np.cos(x))


def test_the_setting_that_makes_arithmetic_coarse_is_a_note():
    report = examine(SINE, X, backend=Coarse(array_api_compat.numpy))

    assert report.verdict is Verdict.PASS
    assert "ALLOW_TF32=1" in notes(report)[Status.IMPRECISE].text
    assert "highest_precision=True" in str(report)
    assert Status.NONDETERMINISTIC not in notes(report)


def test_nothing_is_noted_where_the_arithmetic_is_that_of_the_dtype():
    assert not notes(examine(SINE, X))


def test_what_makes_results_repeatable_is_named_where_they_differ():
    random = np.random.default_rng(0)

    def jittered(x):
        return np.sin(x) * np.float32(1 + 1e-3 * random.uniform())

    report = examine(ByHand(jittered, vjp=SINE.vjp), X, backend=Coarse(array_api_compat.numpy))

    assert report.verdict is Verdict.FAIL
    assert "differs by" in str(report)
    assert "DETERMINISTIC=1" in notes(report)[Status.NONDETERMINISTIC].text
