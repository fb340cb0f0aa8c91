"""Functions that draw random numbers are judged with the numbers that they drew first."""

import random
import threading
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from scenarios import over_seeds

from adjudge import ByHand, Status, Verdict, examine, gradgradcheck
from adjudge.check.surroundings import DRAWS

X = np.linspace(1.0, 2.0, 12)
SEEDS = range(10)


def statuses(report):
    return [finding.status for finding in report.findings]


def states():
    return random.getstate(), [np.asarray(part).tolist() for part in np.random.get_state()]  # noqa: NPY002


def mask_of_numpy(x):
    return np.random.rand(*x.shape) < 0.5  # noqa: NPY002


def mask_of_python(x):
    return np.asarray([random.random() < 0.5 for _ in x])  # noqa: S311


def scale_of_numpy(x):
    return 1 + np.random.standard_normal() ** 2  # noqa: NPY002


SOURCES = [mask_of_numpy, mask_of_python, scale_of_numpy]


def multiplied(draw, factor=1.0, again=False):
    """`sin x` times drawn numbers, whose vjp is off by a factor, or draws again."""

    def pullback(x):
        drawn = draw(x)

        def backward(w):
            return factor * w * np.cos(x) * (draw(x) if again else drawn)

        return np.sin(x) * drawn, backward

    return ByHand(pullback=pullback)


@over_seeds(10, always=3)
@pytest.mark.parametrize(("mode", "x"), [("full", X[:6]), ("projected", X)])
@pytest.mark.parametrize("draw", SOURCES)
def test_a_right_rule_passes_with_a_note_and_a_wrong_one_fails(draw, mode, x, seeds):
    for seed in seeds if mode == "projected" else seeds[:1]:
        np.random.seed(seed)  # noqa: NPY002
        random.seed(seed)
        before = states()

        right = examine(multiplied(draw), x, seed=seed, mode=mode)
        wrong = examine(multiplied(draw, 0.5), x, seed=seed, mode=mode)
        again = examine(multiplied(draw, again=True), x, seed=seed, mode=mode)

        assert right.verdict is Verdict.PASS, str(right)
        assert statuses(right) == [Status.DRAWS_RANDOM]
        assert "put back before each evaluation" in str(right)
        assert wrong.verdict is Verdict.FAIL
        assert Status.MISMATCH in statuses(wrong)
        assert again.verdict is Verdict.FAIL
        assert Status.NONDETERMINISTIC in statuses(again)
        assert before == states()


class Holder:
    """A generator as an attribute."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)

    def __call__(self, x):
        return self.random.random(x.shape) < 0.5


def own_generators(seed):
    generator, old = np.random.default_rng(seed), np.random.RandomState(seed)
    python, bound = random.Random(seed), np.random.default_rng(seed).random  # noqa: S311
    return {
        "a generator of NumPy": (generator, lambda x: generator.random(x.shape) < 0.5),
        "an old one": (old, lambda x: old.rand(*x.shape) < 0.5),
        "one of Python": (python, lambda x: np.asarray([python.random() < 0.5 for _ in x])),
        "a bound method": (bound.__self__, lambda x: bound(x.shape) < 0.5),
        "an attribute": ((holder := Holder(seed)).random, holder),
    }


def number_of(generator):
    return float(generator.random())


@over_seeds(10)
@pytest.mark.parametrize("kind", own_generators(0))
def test_generators_that_a_function_closes_over_are_put_back_too(kind, seeds):
    for seed in seeds:
        generator, draw = own_generators(seed)[kind]
        untouched, _ = own_generators(seed)[kind]

        right = examine(multiplied(draw), X, seed=seed)
        wrong = examine(multiplied(draw, 0.5), X, seed=seed)
        again = examine(multiplied(draw, again=True), X, seed=seed)

        assert right.verdict is Verdict.PASS, str(right)
        assert statuses(right) == [Status.DRAWS_RANDOM]
        assert Status.MISMATCH in statuses(wrong)
        assert Status.NONDETERMINISTIC in statuses(again)
        assert number_of(generator) == number_of(untouched)


def test_a_variable_that_a_function_closes_over_may_be_assigned_later():
    def kernel(x):
        return np.sin(x) if x.size else later

    report = examine(ByHand(kernel, vjp=lambda x, w: w * np.cos(x)), X, seed=0)
    later = None

    assert report.verdict is Verdict.PASS


@over_seeds(10)
def test_a_generator_that_is_passed_as_an_input_is_put_back_too(seeds):
    def function(factor):
        def pullback(x, random):
            drawn = random.random()
            return np.sin(x) * drawn, lambda w: (factor * w * np.cos(x) * drawn, None)

        return ByHand(pullback=pullback)

    for seed in seeds:
        generator = np.random.default_rng(seed)

        assert examine(function(1.0), (X, generator), seed=seed).verdict is Verdict.PASS
        assert examine(function(1.01), (X, generator), seed=seed).verdict is Verdict.FAIL
        assert number_of(generator) == number_of(np.random.default_rng(seed))


def test_a_rule_that_draws_other_numbers_than_its_function_fails():
    vjp = ByHand(
        lambda x: np.sin(x) * mask_of_numpy(x),
        vjp=lambda x, w: w * np.cos(x) * mask_of_numpy(x),
        jvp=lambda x, v: v * np.cos(x) * mask_of_numpy(x),
    )

    for letter in "RF":
        reports = [examine(vjp, X, modes=[letter], seed=seed) for seed in SEEDS]
        assert {Verdict.FAIL} == {report.verdict for report in reports}


def test_forward_mode_and_second_order_see_the_same_numbers():
    drawn = []

    def forward(x):
        drawn.append(scale_of_numpy(x))
        return drawn[-1] * np.sin(x)

    def rule(sign):
        return ByHand(
            forward,
            vjp=ByHand(
                lambda x, w: w * drawn[-1] * np.cos(x),
                vjp=lambda x, w, u: (-sign * u * w * drawn[-1] * np.sin(x),
                                     u * drawn[-1] * np.cos(x)),
            ),
            jvp=lambda x, v: v * drawn[-1] * np.cos(x),
        )  # fmt: skip

    report = examine(rule(1), X, modes=["R", "F", "RR"], seed=0)

    assert report.verdict is Verdict.PASS, str(report)
    assert gradgradcheck(rule(1), X)
    assert not examine(rule(-1), X, modes=["RR"], seed=0)


@over_seeds(10)
def test_a_result_whose_shape_is_drawn_is_judged(seeds):
    def pullback(x):
        count = np.random.randint(3, 9)  # noqa: NPY002

        def backward(w):
            gradient = np.zeros_like(x)
            gradient[:count] = w * np.cos(x[:count])
            return gradient

        return np.sin(x[:count]), backward

    for seed in seeds:
        np.random.seed(seed)  # noqa: NPY002
        assert examine(ByHand(pullback=pullback), X, seed=seed)


def stream(seed):
    """Random numbers one after another, from a generator that is out of sight."""
    generator = np.random.default_rng(seed)
    return iter(generator.random, None)


@over_seeds(10)
@pytest.mark.parametrize("count", [2, 12])
def test_numbers_from_a_generator_out_of_sight_cannot_be_replayed(count, seeds):
    for seed in seeds:
        own = stream(seed)
        draw = lambda x, own=own: np.asarray([next(own) for _ in x])  # noqa: E731

        report = examine(multiplied(draw), X[:count], seed=seed)

        assert report.verdict is Verdict.FAIL
        assert statuses(report) == [Status.NONDETERMINISTIC]
        assert report.counts["comparisons"] == 0
        assert report.counts["evaluations"] < 5
        assert "draw from the global random state, or from a generator" in str(report)


def test_runs_that_agree_by_chance_are_repeated_before_anything_is_left_open():
    found = []
    for seed in range(20):
        own = stream(seed)
        rule = multiplied(lambda x, own=own: 1.0 + (next(own) < 0.5))
        found.append(statuses(examine(rule, X, seed=seed)))

    assert sum(seen == [Status.NONDETERMINISTIC] for seen in found) >= 14


def test_what_differs_beside_the_global_state_is_not_measured_either():
    own = stream(0)
    rule = multiplied(lambda x: next(own) + mask_of_numpy(x))

    report = examine(rule, X, seed=0)

    assert statuses(report) == [Status.NONDETERMINISTIC, Status.DRAWS_RANDOM]
    assert "not all that is random comes from there" in str(report)


@pytest.mark.parametrize("call", [1, 2, 4, 9])
def test_the_state_is_as_before_when_the_function_raises(call):
    calls = []

    def forward(x):
        calls.append(x)
        if len(calls) == call:
            raise KeyboardInterrupt
        return np.sin(x) * mask_of_numpy(x) * random.random()  # noqa: S311

    before = states()
    with pytest.raises(KeyboardInterrupt):
        examine(ByHand(forward, vjp=lambda x, w: w), X)

    assert before == states()


def test_a_function_that_draws_and_does_not_use_it_is_judged_once():
    def forward(x):
        np.random.rand()  # noqa: NPY002
        return np.sin(x)

    plain = examine(ByHand(np.sin, vjp=lambda x, w: w * np.cos(x)), X, seed=0)
    drawing = examine(ByHand(forward, vjp=lambda x, w: w * np.cos(x)), X, seed=0)

    # It is evaluated with each draw, and where the process has other threads, it is made sure
    # thrice that f itself draws.
    more = {name: drawing.counts[name] - count for name, count in plain.counts.items()}
    threads = more["vjps"] > 0
    assert more == {
        **dict.fromkeys(more, 0),
        "evaluations": DRAWS + 1 + 4 * threads,
        "vjps": 2 * threads,
    }
    assert "put back before" not in str(drawing)


def test_a_generator_that_the_function_sets_is_set_back():
    def forward(x):
        np.random.set_bit_generator(np.random.PCG64(3))
        return np.sin(x)

    before = np.random.get_bit_generator()
    with np.errstate(all="ignore"):
        report = examine(ByHand(forward, vjp=lambda x, w: w * np.cos(x)), X, seed=0)

    assert report
    assert np.random.get_bit_generator() is before


def test_a_normal_number_that_waits_is_put_back_where_the_words_of_the_state_were_seen_before():
    np.random.seed(0)  # noqa: NPY002
    np.random.standard_normal()  # noqa: NPY002 it makes a second one
    waiting = np.random.get_state()  # noqa: NPY002
    np.random.standard_normal()  # noqa: NPY002 the second one, without a step
    plain = ByHand(np.sin, vjp=lambda x, w: w * np.cos(x))
    assert examine(plain, X, seed=0)
    np.random.set_state(waiting)  # noqa: NPY002

    assert examine(multiplied(scale_of_numpy), X, seed=0)

    assert np.random.get_state()[3:] == waiting[3:]  # noqa: NPY002


@pytest.fixture
def other_thread():
    """Another thread, which draws a number whenever it is asked to."""
    asked, drawn, over = threading.Event(), threading.Event(), threading.Event()

    def work():
        while asked.wait() and not over.is_set():
            asked.clear()
            random.random()  # noqa: S311
            drawn.set()

    def draw():
        drawn.clear()
        asked.set()
        assert drawn.wait(60)

    thread = threading.Thread(target=work)
    thread.start()
    yield draw
    over.set()
    asked.set()
    thread.join()


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_what_another_thread_draws_is_not_put_down_to_the_function(other_thread, factor):
    calls = []

    def forward(x):
        if not calls:
            other_thread()
        calls.append(x)
        return np.sin(x)

    report = examine(ByHand(forward, vjp=lambda x, w: factor * w * np.cos(x)), X, seed=1)

    assert report.verdict is (Verdict.PASS if factor == 1 else Verdict.FAIL)
    assert Status.DRAWS_RANDOM not in statuses(report)


@pytest.mark.usefixtures("other_thread")
@pytest.mark.parametrize("draw", SOURCES)
def test_beside_other_threads_a_function_that_draws_is_judged_as_ever(draw):
    right = examine(multiplied(draw), X, seed=1)
    wrong = examine(multiplied(draw, 0.5), X, seed=1)

    assert right.verdict is Verdict.PASS, str(right)
    assert statuses(right) == [Status.DRAWS_RANDOM]
    assert wrong.verdict is Verdict.FAIL


@pytest.mark.usefixtures("other_thread")
def test_beside_other_threads_a_rule_that_draws_is_named():
    def backward(x, w):
        random.random()  # noqa: S311
        return w * np.cos(x)

    report = examine(ByHand(np.sin, vjp=backward), X, seed=1)

    assert report.verdict is Verdict.PASS
    assert statuses(report) == [Status.DRAWS_RANDOM]


def stochastic_depth(factor, draw):
    """`x + tanh(a x) / 0.7` in seven calls of ten, and x alone in the others."""

    def pullback(x, a):
        kept = draw() < 0.7
        t = np.tanh(a * x)

        def backward(w):
            d = w * (1 - t**2) * factor if kept else 0 * w
            return w + d * a, d * x

        return x + (t / 0.7 if kept else 0), backward

    return ByHand(pullback=pullback)


@over_seeds(30)
def test_numbers_that_switch_an_input_off_are_drawn_anew(seeds):
    """The factor 1 / 0.7 is missing in the gradient, which is zero without the branch."""
    inputs = (X, np.linspace(0.5, 1.5, X.size))
    for seed in seeds:
        random.seed(seed)
        right = examine(stochastic_depth(1 / 0.7, random.random), inputs, seed=seed)
        random.seed(seed)
        wrong = examine(stochastic_depth(1.0, random.random), inputs, seed=seed, blame=False)

        assert right.verdict is Verdict.PASS, str(right)
        assert wrong.verdict is Verdict.FAIL, str(wrong)


class Composed:
    """Functions one after the other, in a list."""

    def __init__(self, *steps):
        self.steps = [{"step": step} for step in steps]

    def __call__(self, x):
        return [entry["step"](x) for entry in self.steps][-1]


@dataclass(slots=True)
class InSlots:
    """A generator in a slot."""

    random: np.random.Generator

    def __call__(self, x):
        return self.random.random(x.shape) < 0.5


@over_seeds(10)
def test_generators_are_found_in_what_stands_in_containers_and_slots(seeds):
    for seed in seeds:
        for place in (
            lambda one: Composed(one, one),
            lambda one: Composed(Composed(one)),
            lambda one: partial(Composed(one)),
            lambda one: InSlots(one.random),
            lambda one: SimpleNamespace(inner=Composed(one)).inner,
        ):
            holder = Holder(seed)

            right = examine(multiplied(place(holder)), X, seed=seed)
            wrong = examine(multiplied(place(holder), 0.5), X, seed=seed)

            assert right.verdict is Verdict.PASS, str(right)
            assert Status.MISMATCH in statuses(wrong)
            assert number_of(holder.random) == number_of(np.random.default_rng(seed))


def test_a_large_list_in_sight_is_not_looked_through():
    """A data set takes longer than the check, and holds no generator."""
    asked = []

    class Sample:
        @property
        def __dict__(self):
            asked.append(self)
            return {}

    samples = [Sample() for _ in range(100_000)]

    report = examine(ByHand(lambda x: x * len(samples), vjp=lambda x, w: w * len(samples)), X)

    assert report.verdict is Verdict.PASS
    assert len(asked) < 50_000


@over_seeds(30)
def test_a_mistake_in_the_branch_that_was_drawn_is_not_drawn_away(seeds):
    """Without the branch an input moves nothing, and what is wrong there fails all the same."""

    def pullback(x, a):
        kept = random.random() < 0.5  # noqa: S311
        t = np.tanh(a * x)

        def backward(w):
            d = w * (1 - t**2) * kept
            return w * (1.0 if kept else 1.05) + d * a, d * x

        return x + t * kept, backward

    for seed in seeds:
        random.seed(seed)
        kept = random.random() < 0.5  # noqa: S311
        random.seed(seed)
        report = examine(ByHand(pullback=pullback), (X, X), seed=seed)

        assert kept or report.verdict is Verdict.FAIL, (seed, str(report))


def two_branches(p, factor):
    """`sin x` in a share p of the calls, and `x^2` in the others, whose gradient is off."""

    def pullback(x):
        if random.random() < p:  # noqa: S311
            return np.sin(x), lambda w: w * np.cos(x)
        return x**2, lambda w: factor * 2 * w * x

    return ByHand(pullback=pullback)


def dropout(p, factor):
    """A dropout whose gradient is off in one entry."""

    def pullback(x):
        kept = mask_of_python(x) / (1 - p)

        def backward(w):
            gradient = w * kept * np.cos(x)
            gradient[2] *= factor
            return gradient

        return kept * np.sin(x), backward

    return ByHand(pullback=pullback)


def permutation(_, factor):
    """The entries in a random order, with a gradient that is off in what comes first."""

    def pullback(x):
        order = np.random.permutation(x.size)  # noqa: NPY002

        def backward(w):
            gradient = np.empty_like(x)
            gradient[order] = w * np.where(order == 0, factor, 1.0)
            return gradient

        return x[order], backward

    return ByHand(pullback=pullback)


@over_seeds(30)
@pytest.mark.parametrize("factor", [1.001, 2.0])
@pytest.mark.parametrize("kind", [two_branches, dropout, permutation])
def test_what_some_random_numbers_hide_others_show(kind, factor, seeds):
    for seed in seeds:
        verdicts = []
        for off in (1.0, factor):
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002
            verdicts.append(examine(kind(0.5, off), X, seed=seed, blame=False).verdict)

        assert verdicts == [Verdict.PASS, Verdict.FAIL], seed


def test_random_numbers_that_make_the_same_function_are_judged_once():
    """A branch of two is judged twice, and not with each draw. What is judged before, with numbers
    that go on, may take longer by chance.
    """
    vjps = []
    for seed in SEEDS:
        random.seed(seed)
        report = examine(two_branches(0.5, 1.0), X, seed=seed)

        assert report.verdict is Verdict.PASS
        vjps.append(report.counts["vjps"])

    assert np.median(vjps) < 25
