"""What lies around a check: global state, which is put back afterwards, and the notes on it.

A function that draws random numbers is another function at every evaluation. Where that keeps a
check from passing, the check is made once more, and each evaluation then begins in the random
state in which the first one began.
"""

from __future__ import annotations

import ctypes
import random
import struct
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cache
from typing import Any, TypeVar

import numpy as np

from adjudge.check.one_problem import Judgement
from adjudge.engine import Array, Environment
from adjudge.errors import (
    AdjudgeError,
    Source,
    UnstableOutputError,
    attempt,
    quiet_arithmetic,
    source_of,
)
from adjudge.findings import (
    AdditionOrder,
    CoarseOperations,
    CoarseProducts,
    CoarseResults,
    Detail,
    DrawsRandom,
    Finding,
    InSequence,
    OneAfterAnother,
    Remedy,
    Setting,
    Status,
    Unrepeatable,
    Verdict,
    WritesUnchecked,
)
from adjudge.problem import (
    PURPOSES_AT_X,
    Ahead,
    Forward,
    Leaf,
    Move,
    Problem,
    Reverse,
    buffers_held_by,
    contents_reached_by,
    observe,
    set_around,
)

Rest = TypeVar("Rest")


@contextmanager
def surroundings(problem: Problem, f: object, *, highest: bool = False) -> Iterator[Generators]:
    """Restores the global state afterwards, also when the user's function raises, and yields the
    random generators. The state is that of Python, of NumPy and of the engine, and what the modules
    that `f` is or closes over may write into (running statistics, say).

    With `highest` the engine computes in its highest precision within this context, instead of
    the user's.
    """
    environment = problem.backend.environment
    filters: Any = warnings.filters  # a list, though it is declared as a sequence
    filters_before = list(filters)
    with (
        quiet_arithmetic(),
        environment.isolation(problem.x),
        environment.highest_precision() if highest else nullcontext(),
        ExitStack() as buffers,
    ):
        for backend, arrays in buffers_held_by(f):
            buffers.enter_context(backend.holding(arrays, tuple(map(backend.arrays.copy, arrays))))
        seen = Generators(environment)
        if problem.counts.ahead is not None:
            _watch(problem.counts.ahead, f, seen)
        try:
            yield seen
        except Exception as error:  # it is raised again
            _point_to_sets(problem, error)
            raise
        finally:
            if problem.counts.ahead is not None:
                problem.counts.end()
            if seen.have_moved():
                seen.put_back()
            # `catch_warnings` around every check would show each warning again that is shown once.
            if warnings.filters is not filters or filters != filters_before:
                with warnings.catch_warnings():
                    pass  # Python forgets what was shown, and heeds the filters again
                warnings.filters, filters[:] = filters, filters_before


def _watch(ahead: Ahead, f: object, seen: Generators) -> None:
    """Lets evaluations begin ahead only while f has drawn no random number, and has written into no
    array that it closes over: the evaluations would meet in these. The random numbers of other
    processes are their own, and those of this one are drawn by the event loop of a cluster as well.
    """
    before = contents_reached_by(f)

    def disturbed() -> InSequence | None:
        if ahead.same_process and seen.have_moved():
            return InSequence.RANDOM
        return None if contents_reached_by(f) == before else InSequence.WRITES

    ahead.disturbed = disturbed


def _point_to_sets(problem: Problem, error: Exception) -> None:
    """Adds a note to what f raises at a point beside x though it ran at x: its inputs may have to
    stay in a set, which differences of single entries leave.
    """
    purpose = problem.counts.purpose
    beside = isinstance(purpose, Move) or purpose not in PURPOSES_AT_X
    if source_of(error) is not Source.FUNCTION or problem.constraints or not beside:
        return
    leaves = zip(problem.X.leaves, problem.X.slices, strict=True)
    sets = {leaf.name: set_around(leaf, problem.origin[part]) for leaf, part in leaves}
    known = {name: found for name, found in sets.items() if found is not None}
    option = repr(next(iter(known.values()))) if len(sets) == 1 and known else repr(known)
    error.add_note(
        "adjudge: the function runs at x, and not at this point beside it. Where its inputs have "
        "to stay in a set (symmetric matrices, a simplex), check along the set: directions="
        + (option if known else "'symmetric', 'simplex', … or a chart of yours")
        + "; in an interval: bounds="
    )


# -- random numbers


class Generators:
    """The global random generators of Python, of NumPy and of the engine, as they are when this is
    made.

    Python and NumPy copy the 624 words of a Mersenne Twister one by one, which takes as long as ten
    evaluations of a small function. Where that is possible they are read in memory.
    """

    drawn: bool = False
    """Whether f or its derivative advanced a random state; known when it was judged."""

    def __init__(self, environment: Environment) -> None:
        """The states are read."""
        self.environment, self.engine = environment, environment.random_state()
        self.python, self.numpy = _python_state(), _numpy_state()

    def have_moved(self) -> bool:
        """Returns whether anything was drawn since."""
        return (
            _python_state() != self.python
            or not _same(_numpy_state(), self.numpy)
            or self.environment.random_state() != self.engine
        )

    def put_back(self) -> None:
        """Sets the generators and their states to what they were."""
        python, (generator, numpy) = self.python, self.numpy
        if isinstance(python[0], bytes):
            index, *words = np.frombuffer(python[0], np.uint32).tolist()
            python = (random.Random.VERSION, (*words, index), python[1])
        random.setstate(python)
        if np.random.get_bit_generator() is not generator:  # type: ignore[attr-defined]
            np.random.set_bit_generator(generator)  # type: ignore[attr-defined]
        if isinstance(numpy, tuple):
            *words, place = np.frombuffer(numpy[0], np.uint32)
            has_gauss, gauss = struct.unpack("@id", numpy[1])
            numpy = {
                "bit_generator": "MT19937",
                "state": {"key": np.array(words), "pos": int(place)},
                "has_gauss": has_gauss,
                "gauss": gauss,
            }
        np.random.set_state(numpy)  # noqa: NPY002 the global state is what is kept
        self.environment.set_random_state(self.engine)


WORDS = 4 * (624 + 1)
"""The bytes of a Mersenne Twister: its words and the place of the next one."""


def _python_state() -> tuple[Any, ...]:
    """Returns the state of Python's generator, to be compared: its words as they lie in memory
    beside the pending normal number, or what Python says of it.
    """
    generator = random.getstate.__self__  # type: ignore[attr-defined] # not in the stubs
    if _python_in_memory():
        return _bytes_of(generator, object.__basicsize__, WORDS), generator.gauss_next
    return random.getstate()


@cache
def _python_in_memory() -> bool:
    """Returns whether the words of a generator of Python are found in memory, after its header."""
    if sys.implementation.name != "cpython" or random.Random.__basicsize__ < WORDS:
        return False
    one = random.Random(0)  # noqa: S311 no secret
    words = np.frombuffer(_bytes_of(one, object.__basicsize__, WORDS), np.uint32)
    return bool(np.array_equal(one.getstate()[1], np.roll(words, -1)))


def _numpy_state() -> tuple[Any, Any]:
    """Returns NumPy's global generator and its state, to be compared: the words of a Mersenne
    Twister and the pending normal number as they lie in memory, or what NumPy says of it.
    """
    generator: Any = np.random.get_bit_generator()  # type: ignore[attr-defined] # not in stubs
    place = _place_of_gauss()
    if place and type(generator) is np.random.MT19937:
        draw: Any = np.random.standard_normal
        pending = _bytes_of(draw.__self__, place, struct.calcsize("@id"))
        return generator, (ctypes.string_at(generator.ctypes.state_address, WORDS), pending)
    return generator, np.random.get_state(legacy=False)  # noqa: NPY002 it is watched


@cache
def _place_of_gauss() -> int:
    """Returns where in a `RandomState` of NumPy it is said whether a normal number is pending, with
    that number behind it; 0 where it is not found.

    Of two normal numbers the second is made with the first, and drawn without a step.
    """
    if sys.implementation.name != "cpython":
        return 0
    one = np.random.RandomState(0)
    one.standard_normal()
    pending = one.get_state(legacy=False)["gauss"]
    memory = _bytes_of(one, 0, type(one).__basicsize__)
    return max(memory.find(struct.pack("@id", 1, pending)), 0)


def _bytes_of(one: object, start: int, count: int) -> bytes:
    return ctypes.string_at(id(one) + start, count)


def _same(one: Any, two: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(_same(one[name], two[name]) for name in one)
    if isinstance(one, tuple):
        return len(one) == len(two) and all(map(_same, one, two))
    return bool(np.array_equal(one, two)) if isinstance(one, np.ndarray) else one == two


def judged_with_replay(
    problem: Problem,
    letters: str,
    seen: Generators,
    judge: Callable[[], tuple[list[Judgement], Rest]],
) -> tuple[list[Judgement], Rest]:
    """Returns what `judge` finds about the problem. Where f drew random numbers and does not pass,
    it is judged once more, and each evaluation of f then begins in the same random state.

    Without that, the differences of dropout or of a sampler are nothing but noise. What f draws in
    its first evaluation it then draws in all of them, and the derivative that is judged is that
    with these numbers held fixed. The state is put back before f alone: a rule that draws its own
    numbers in the backward pass goes on drawing new ones. Numbers that leave f without a
    derivative, as a dropout that drops everything, hide all mistakes, and others are drawn.
    PyTorch's activation checkpointing replays the state of a forward pass in the same way; to do
    so in a check is ours.
    """
    counts, tried = problem.counts, 0
    while True:
        try:
            found = judge()
            settled = _is_settled(found[0], replayed=tried > 0)
        except UnstableOutputError:  # the shape of the result may be drawn as well
            if tried or not _has_drawn(problem, letters, seen):
                raise
            settled = False
        seen.drawn = tried > 0 or _has_drawn(problem, letters, seen)
        if settled or tried == DRAWS or not seen.drawn:
            return found
        now = Generators(problem.backend.environment) if tried else seen
        counts.before_evaluation = now.put_back
        tried += 1


def _has_drawn(problem: Problem, letters: str, seen: Generators) -> bool:
    """Returns whether f, or its derivative in one of these modes, has drawn random numbers.

    The generators belong to the process, and another thread may have drawn: the event loop of a
    worker, say, so that any function seemed to. Where there are other threads, f and its
    derivatives have to draw twice more.
    """
    if not seen.have_moved():
        return False
    alone = threading.active_count() == 1
    return alone or all(_draws(problem, letters, seen) for _ in range(2))


def _draws(problem: Problem, letters: str, seen: Generators) -> bool:
    """Returns whether anything is drawn while f and its derivatives are evaluated once, from the
    state before the check.

    An engine may show that a generator was made, and not how many numbers it has drawn since. From
    any later state such draws do not show.
    """
    seen.put_back()

    def once() -> None:
        base = observe(problem)
        if "R" in letters:
            Reverse(problem).row(base, np.ones(base.Y.size))
        if "F" in letters:
            Forward(problem).column(base, np.ones(problem.X.size))

    attempt(once, AdjudgeError)
    return seen.have_moved()


def _is_settled(judgements: Sequence[Judgement], *, replayed: bool) -> bool:
    """Returns whether other random numbers, or the same ones in each evaluation, change nothing."""
    for judgement in judgements:
        if judgement.verdict is not Verdict.PASS:
            return replayed
    for judgement in judgements:
        for tally in judgement.tallies:
            if tally.nonzero:
                return True
    return False


DRAWS = 8
"""How often other random numbers are drawn where f has no derivative with those at hand. A dropout
of one number at p = 1/2 then hides its mistakes from one check in 256. The value is ours."""


# -- notes


def noticed(problem: Problem, seen: Generators, outcomes: Sequence[Judgement]) -> list[Finding]:
    """Returns notes on what the function did beside computing its value."""
    statuses = {finding.status for outcome in outcomes for finding in outcome.findings}
    notes = []
    if seen.drawn:
        replayed = problem.counts.before_evaluation is not None
        detail = DrawsRandom(Status.NONDETERMINISTIC not in statuses, replayed)
        notes.append(Finding(Status.DRAWS_RANDOM, "", "", detail, note=True))
    if statuses & _DIGITS or not problem.X.double:
        notes += _coarse(problem, bool(statuses & _DIGITS))
    if Status.NONDETERMINISTIC in statuses:
        details = [finding.detail for outcome in outcomes for finding in outcome.findings]
        if any(isinstance(detail, Unrepeatable) and detail.rounding for detail in details):
            notes += _unrepeatable(problem)
    for name in problem.calls.mutated if problem.calls else ():
        notes.append(Finding(Status.MUTATES_INPUT, "", name, WritesUnchecked(), note=True))
    if (ahead := problem.counts.ahead) is not None:
        reasons = map(OneAfterAnother, ahead.reasons)
        notes += [Finding(Status.SEQUENTIAL, "", "", reason, note=True) for reason in reasons]
    return notes


def _coarse(problem: Problem, asked: bool) -> Iterator[Finding]:
    """Yields a note on arithmetic that is narrower than the dtype, with the setting that makes it
    so. A setting that concerns some operations alone is noted only where `asked`.
    """
    backend = problem.backend
    setting_of = backend.environment.precision
    for leaf, array in zip(problem.X.leaves, problem.x, strict=True):
        if (coarsest := setting_of(array).result_eps) > backend.arrays.eps(array):
            detail: Detail = CoarseResults(leaf.info.dtype, coarsest)
            yield Finding(Status.IMPRECISE, "", leaf.name, detail, note=True)
            return
    for leaf, array, setting in _set_by(problem, lambda array: setting_of(array).setting):
        info, eps = leaf.info, backend.effective_eps(array)
        if eps > backend.arrays.eps(array):
            detail = CoarseProducts(info.device, info.dtype, eps, setting)
            remedy = Remedy.USE_HIGHEST_PRECISION
        elif asked:
            detail = CoarseOperations(info.device, info.dtype, setting)
            remedy = Remedy.TRY_HIGHEST_PRECISION
        else:
            continue
        yield Finding(Status.IMPRECISE, "", leaf.name, detail, remedy, note=True)


def _unrepeatable(problem: Problem) -> Iterator[Finding]:
    """Yields a note that results on this device may differ from call to call, with the setting
    that makes them repeatable.
    """
    for leaf, _, setting in _set_by(problem, problem.backend.environment.determinism_setting):
        detail = AdditionOrder(leaf.info.device)
        remedy = Setting(setting)
        yield Finding(Status.NONDETERMINISTIC, "", leaf.name, detail, remedy, note=True)


def _set_by(
    problem: Problem, setting_of: Callable[[Array], str]
) -> Iterator[tuple[Leaf, Array, str]]:
    """Yields the first checked leaf for which the engine names a setting, its array, and the
    setting. Yields nothing where there is none.
    """
    for leaf, array in zip(problem.X.leaves, problem.x, strict=True):
        if setting := setting_of(array):
            yield leaf, array, setting
            return


_DIGITS = {
    *(Status.MISMATCH, Status.INACCURATE, Status.IMPRECISE, Status.UNRESOLVED),
    *(Status.INCONSISTENT, Status.REFERENCE),
}
"""The statuses that operations coarser than their dtype may lead to. Without this limit the note
on such settings would appear beside findings that they cannot explain. The choice is ours."""
