"""`spotcheck` of an engine without a framework, with a clock that the test sets."""

from contextlib import contextmanager

import array_api_compat.numpy
import numpy as np
import pytest
from scenarios import seeds

import adjudge
from adjudge import InputError, NotSupportedError, Verdict
from adjudge.engine import PlainBackend, Step

SHARE = 0.05
EVALUATION = 1e-3
PAUSE = 1e-2


class Clock:
    """The time, which passes where the test says so."""

    now = 0.0

    def __call__(self):
        return self.now


class Engine(PlainBackend):
    """NumPy with the derivative of sine, times `factor` where `x[0]` is above `above`."""

    factor, above = 1.0, -np.inf

    def __init__(self, clock, cost=EVALUATION):
        super().__init__(array_api_compat.numpy)
        self.clock, self.cost, self.order = clock, cost, []

    def vjp(self, f, x):
        slope = np.cos(x[0]) * (self.factor if x[0][0] > self.above else 1)
        return f(x), lambda w: (w[0] * slope,)

    @contextmanager
    def watching(self, watcher):
        self.watcher = watcher
        yield
        self.watcher = None

    def call(self, rule="sine", x=(0.3, 0.7), module="", cost=None):
        """A call of a rule in the program that is watched."""

        def run(operands):
            self.clock.now += self.cost if cost is None else cost
            return (np.sin(operands[0]),)

        if self.watcher.wanted(rule):
            x = np.array(x)
            before = self.clock.now
            self.watcher.seen(
                Step(rule, run, (x,), 1, module=module, marked=(0,), custom=True), (np.sin(x),)
            )
            if self.clock.now > before:
                self.order.append(rule)

    def loop(self, count, *calls):
        for k in range(count):
            self.clock.now += PAUSE
            for call in calls or ({},):
                one = call(k) if callable(call) else call
                self.call(**one)


@pytest.fixture
def engine():
    return Engine(Clock())


def watching(engine, **options):
    return adjudge.spotcheck(
        **{"share": SHARE, "seed": 0, "backend": engine, "clock": engine.clock, **options}
    )


@pytest.mark.parametrize("seed", seeds(5))
@pytest.mark.parametrize("share", [0.01, 0.05, 0.5])
def test_it_takes_no_more_than_its_share_of_the_time(engine, share, seed):
    calls = round(20 / share)
    with watching(engine, share=share, seed=seed) as watch:
        engine.loop(calls)

    assert watch.report.spent <= share * watch.report.seconds + EVALUATION
    assert watch.report.spent >= 0.3 * share * watch.report.seconds
    assert watch.report.rules[0].calls == calls
    assert watch.report
    assert watch.report.headline == "PASS: no call that was judged is wrong"


@pytest.mark.parametrize("seed", seeds(10))
def test_a_wrong_rule_is_found_and_no_right_one(engine, seed):
    engine.factor, engine.above = 1.01, 1.0  # where x is above 1

    with watching(engine, seed=seed) as watch:
        engine.loop(1000, {"rule": "right"}, lambda k: {"rule": "wrong", "x": (k % 3, 0.5)})

    (wrong,) = watch.report.at_fault
    assert wrong.name == "wrong"
    assert 0 < wrong.verdicts[Verdict.FAIL] < wrong.judged
    assert not watch.report
    assert watch.report.headline.startswith("FAIL: the rule at fault: wrong, called 1000 times")
    assert wrong.step.operands[0].tolist() == [2.0, 0.5]
    assert "automatic" in str(watch.report)


def test_calls_are_drawn_among_all_and_not_those_after_a_pause_alone(engine):
    with watching(engine) as watch:
        engine.loop(2500, {"rule": "after the pause"}, {"rule": "second"})

    first, second = (rule.judged for rule in watch.report.rules)
    assert min(first, second) > 0.25 * (first + second)


def test_a_rule_that_was_never_judged_comes_first(engine):
    with watching(engine, share=0.5):
        engine.loop(100)
        engine.order.clear()
        engine.loop(3, {}, {"rule": "rare"}, {})

    assert engine.order.index("rare") < 2


def test_a_call_that_takes_longer_is_given_up_and_tried_with_more_time(engine):
    with watching(engine) as watch:
        engine.loop(60, {"rule": "slow", "cost": 0.05})
        tried = len(engine.order)
        assert not watch.report.rules[0].judged
        assert "not judged: calls of slow: there was no time for it (60)" in str(watch.report)
        engine.loop(5000, {"rule": "slow", "cost": 0.05})

    assert tried >= 1
    assert watch.report.rules[0].judged
    assert watch.report.spent <= SHARE * watch.report.seconds + 0.05


def test_time_is_saved_for_a_call_that_was_given_up(engine):
    with watching(engine) as watch:
        engine.loop(3000, {"rule": "quick"}, {"rule": "slow", "cost": 0.01})

    assert [rule.judged > 0 for rule in watch.report.rules] == [True, True]


def test_others_do_not_wait_longer_than_the_program_has_run(engine):
    with watching(engine) as watch:
        engine.loop(9000, {"rule": "quick"}, {"rule": "slow", "cost": 0.2})

    assert watch.report.rules[0].judged > 3


def test_only_calls_within_the_modules_are_judged(engine):
    with watching(engine, modules="a.b") as watch:
        engine.loop(
            500, *({"rule": name, "module": name} for name in ("a", "a.b", "a.b.c", "a.bc"))
        )

    assert {rule.name for rule in watch.report.rules} == {"a.b", "a.b.c"}
    assert watch.report


def test_a_callback_is_told_of_each_wrong_call_and_may_end_the_program(engine):
    engine.factor = -1
    told = []

    with watching(engine, callback=told.append) as watch:
        engine.loop(1000)
    assert len(told) == watch.report.rules[0].verdicts[Verdict.FAIL] > 1

    def stop(rule):
        raise RuntimeError(rule.name)

    with pytest.raises(RuntimeError, match="sine"), watching(engine, callback=stop):
        engine.loop(1000)


def test_what_goes_wrong_while_a_call_is_judged_does_not_reach_the_program(engine):
    def broken(f, x):
        raise KeyError("a mistake of the adapter")

    engine.vjp = broken
    with watching(engine) as watch:
        engine.loop(200)

    assert "not judged: calls of sine: cannot be judged: " in str(watch.report)
    assert watch.report.verdict is Verdict.INCONCLUSIVE


def test_a_rule_that_gives_another_value_is_not_judged(engine):
    with watching(engine) as watch:
        engine.clock.now += 10
        assert engine.watcher.wanted("moody")
        engine.watcher.seen(
            Step("moody", lambda x: (x[0] + 1,), (np.ones(2),), 1, marked=(0,)), (np.ones(2),)
        )

    assert "gives another value when it is run again" in str(watch.report)


def test_calls_that_have_no_values_and_those_without_arrays_are_told_apart(engine):
    with watching(engine) as watch:
        engine.watcher.unseen("compiled", "made in a compiled function")
        engine.clock.now += 10
        assert engine.watcher.wanted("shape")
        engine.watcher.seen(None)
        assert not engine.watcher.wanted("shape")

    assert [rule.name for rule in watch.report.rules] == ["compiled"]
    assert watch.report.headline == "INCONCLUSIVE: no call was judged"
    assert "not judged: calls of compiled: made in a compiled function (1)" in str(watch.report)
    assert not watch.report


def test_a_program_without_rules_passes_nothing(engine):
    watch = watching(engine)
    assert "nothing has run yet" in str(watch.report)

    with watch:
        engine.clock.now += 1

    assert watch.report.headline == "INCONCLUSIVE: no call of a rule was seen"
    assert "code that was compiled before calls no rule" in str(watch.report)


@pytest.mark.parametrize("share", [0, -0.1, 1.5, "a", None, float("nan")])
def test_a_share_without_meaning_is_refused(share):
    with pytest.raises(InputError, match="share="):
        adjudge.spotcheck(share=share)


def test_a_spot_check_is_used_once(engine):
    watch = watching(engine)
    with watch:
        pass

    with pytest.raises(InputError, match="used before"), watch:
        pass


def test_an_engine_that_cannot_be_watched_says_so():
    watch = adjudge.spotcheck(backend="numpy")

    with pytest.raises(NotSupportedError, match="watching a program while it runs"), watch:
        pass


def test_an_argument_that_there_is_not_or_of_another_kind_is_refused():
    with pytest.raises(TypeError, match="Did you mean 'share'"):
        adjudge.spotcheck(shares=0.1)
    with pytest.raises(adjudge.InputError, match="seed= is a str"):
        adjudge.spotcheck(seed="x")
