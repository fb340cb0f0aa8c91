"""An engine that holds float64 and computes in float32 throughout, as some do on accelerators.

It is the tape of docs/how-to/write-an-adapter.md over arrays that round every result, and says so
once, by `Precision.result_eps`.
"""

import itertools
import re
import types
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest
from scenarios import seeds

import adjudge
from adjudge import Status, Verdict
from adjudge.conformance import ConformanceError, assert_conforms
from adjudge.engine import ArrayOperations, Environment, Precision, replaced

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "write-an-adapter.md"
EXCUSED = dict.fromkeys(("jvp", "RR", "vmap", "compile"), "the tape has none")
SCENARIOS = ["elementwise", "used twice", "several inputs and outputs", "broadcasting"]
EPS32 = 2.0**-23


class Single(np.ndarray):
    """A float64 array; what NumPy computes with it is rounded to float32."""

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        plain = [np.asarray(a) if isinstance(a, Single) else a for a in inputs]
        result = np.asarray(getattr(ufunc, method)(*plain, **options))
        if result.dtype != np.float64:
            return result
        return result.astype(np.float32).astype(np.float64).view(Single)


class SingleArrays(ArrayOperations):
    def make(self, values, dtype, device=None):
        return super().make(values, dtype, device).view(Single)

    def from_host(self, host, like):
        return super().from_host(host, like).view(Single)

    def copy(self, array):
        return np.array(array, copy=True, subok=True)

    def widen(self, array):
        return super().widen(array).view(Single)

    def dtypes(self):
        return ["float64"]


class InSingle(Environment):
    def precision(self, array):
        return Precision(result_eps=EPS32)


@pytest.fixture(scope="module")
def tape():
    """The tape of the page, whose nodes keep the class of their arrays."""
    text = PAGE.read_text(encoding="utf-8").partition("## Try it")[0]
    names = {}
    for block in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        exec(block.replace("np.asarray(", "np.asanyarray("), names)  # noqa: S102 our own page
    return types.SimpleNamespace(**names)


@pytest.fixture(scope="module")
def engine(tape):
    class SingleTape(tape.TapeBackend):
        name = "single tape"

        @cached_property
        def arrays(self):
            return SingleArrays(self.name, self.xp)

        @cached_property
        def environment(self):
            return InSingle()

    return SingleTape()


def wave(x, b):
    return np.sin(x * b) * x + np.exp(b)


def growth(x, b):
    return np.exp(x + b) * b + x * x * x


def drift(x, b):
    return np.sin(np.exp(x)) * b


MISTAKES = {
    "a sign": (np.sin, lambda a: (lambda w: -w * np.cos(a),)),
    "a function": (np.sin, lambda a: (lambda w: w * np.sin(a),)),
    "one per cent": (np.exp, lambda a: (lambda w: 1.01 * w * np.exp(a),)),
    "a clipped cotangent": (np.exp, lambda a: (lambda w: np.clip(w, -1, 1) * np.exp(a),)),
}


def inputs(seed, size=6):
    random = np.random.default_rng(seed)
    return tuple(random.normal(size=size).view(Single) for _ in range(2))


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("f", [wave, growth, drift])
def test_right_rules_pass_with_a_note_at_every_seed(engine, f, seed):
    report = adjudge.examine(f, inputs(seed), backend=engine, seed=seed)

    assert report.verdict is Verdict.PASS
    notes = [finding for finding in report.findings if finding.status is Status.IMPRECISE]
    assert [finding.detail.eps for finding in notes] == [EPS32]
    assert "the engine computes float64 to 1.2e-07: it is judged by that" in str(report)


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("mistake", MISTAKES)
def test_wrong_rules_fail_at_every_seed(monkeypatch, tape, engine, mistake, seed):
    function, rule = MISTAKES[mistake]
    monkeypatch.setitem(tape.RULES, function, rule)

    report = adjudge.examine(wave, inputs(seed), backend=engine, seed=seed)

    assert report.verdict is Verdict.FAIL


def test_it_conforms_and_an_engine_that_does_not_say_it_does_not(engine):
    summary = assert_conforms(engine, scenarios=SCENARIOS, excused=EXCUSED)
    silent = replaced(engine, environment=Environment())
    with pytest.raises(ConformanceError, match="expected"):
        assert_conforms(silent, scenarios=SCENARIOS, excused=EXCUSED)

    assert summary.comparisons > 500


@pytest.fixture
def narrow(engine):
    """The same engine with arrays of float32, which it computes as exactly as float64."""

    class BothArrays(SingleArrays):
        def dtypes(self):
            return ["float64", "float32"]

    class WidestInSingle(Environment):
        def precision(self, array):
            return Precision(result_eps=EPS32 if array.dtype == np.float64 else 0.0)

    arrays = BothArrays(engine.name, engine.xp)
    return replaced(engine, arrays=arrays, environment=WidestInSingle())


def test_what_the_properties_alone_decide_is_not_asked_for_in_double_precision(narrow):
    x, b = (one.astype(np.float32) for one in inputs(0))
    random = map(np.float32, itertools.count(1))

    noisy = adjudge.examine(lambda x, b: np.sin(x) * b * next(random), (x, b), backend=narrow)
    # a tape inside a tape is not supported, and its own derivative is
    second = adjudge.examine(wave, (x, b), backend=narrow, modes=["R", "F", "RR"])

    assert {finding.status for finding in noisy.findings} == {Status.NONDETERMINISTIC}
    assert second.modes == {
        "R": Verdict.PASS, "F": Status.UNSUPPORTED, "RR": Status.UNSUPPORTED,
    }  # fmt: skip
