"""What lies around a check: global state, which is put back afterwards, and the notes on it.

A function that draws random numbers is another function at every evaluation. The check is made with
several draws of them, and with each draw every evaluation begins in one random state.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import random
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np

from adjudge import engine
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
    Remembers,
    Setting,
    Status,
    Unrepeatable,
    Verdict,
    WritesUnchecked,
    worst,
)
from adjudge.floats import Vector
from adjudge.problem import (
    PURPOSES_AT_X,
    Ahead,
    Forward,
    HeldState,
    Leaf,
    Move,
    Problem,
    Purpose,
    Reverse,
    base_of,
    contents_reached_by,
    generator_of,
    held_by,
    observe,
    outputs_at,
    set_around,
)

Rest = TypeVar("Rest")

Judged: TypeAlias = tuple[list[Judgement], Rest]
"""The judgements of the compositions of modes, and what was made beside them."""

IN_TURN: ContextVar[bool] = ContextVar("in_turn", default=True)
"""Whether a check waits for those of other threads. Who judges one case at a time, and gives up
those that take too long, does not: it would wait for what was given up."""


class _Turn:
    """One check at a time: it changes settings, random states and what functions close over, of the
    whole process, and puts them back.

    Without it checks in several threads failed for right functions that draw random numbers, and
    left the weights changed of a module that they shared.
    """

    def __init__(self) -> None:
        """A process that is forked from this one has a turn of its own."""
        self.lock = threading.RLock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._anew)

    def _anew(self) -> None:
        self.lock = threading.RLock()


_TURN = _Turn()


@contextmanager
def surroundings(problem: Problem, f: object, *, highest: bool = False) -> Iterator[Generators]:
    """Restores the global state afterwards, also when the user's function raises, and yields the
    random generators. The state is that of Python, of NumPy and of the engine, and what the modules
    that `f` is or closes over may write into or bind anew (running statistics, say), which is also
    put back before each evaluation, and the gradients that rules add up in their parameters.

    With `highest` the engine computes in its highest precision within this context, instead of
    the user's.
    """
    environment = problem.backend.environment
    filters: Any = warnings.filters  # a list, though it is declared as a sequence
    filters_before = list(filters)
    with (
        _TURN.lock if IN_TURN.get() else nullcontext(),
        quiet_arithmetic(),
        environment.isolation(problem.x),
        environment.highest_precision() if highest else nullcontext(),
        ExitStack() as objects,
    ):
        held = held_by(f, environment)
        state = HeldState(held, problem.backend) if held.parts or held.buffers else None
        objects.enter_context(environment.keeping_gradients(held.objects))
        inputs = () if problem.calls is None else problem.calls.arguments.tree.leaves
        passed = (generator_of(one, environment) for one in inputs)
        seen = Generators(environment, [*held.generators, *filter(None, passed)])
        if problem.counts.ahead is not None:
            _watch(problem.counts.ahead, f, seen)
        outer = problem.counts.put_back
        if state is not None:
            objects.enter_context(state)
            problem.counts.put_back = state.before_evaluation
        try:
            yield seen
        except Exception as error:  # it is raised again
            _point_to_sets(problem, error)
            raise
        finally:
            problem.counts.put_back = outer
            seen.others_changed = state is not None and state.changed
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
    """The global random generators of Python, of NumPy and of the engine, and those that f closes
    over or is passed, as they are when this is made.

    NumPy copies its state number by number, which takes as long as ten evaluations of a small
    function. Whether a Mersenne Twister has changed is therefore seen in memory.
    """

    drawn: bool = False
    """Whether f or its derivative advanced a random state; known when it was judged."""
    others_changed: bool = False
    """Whether f or its derivative changed what modules hold; known when the state was put back."""

    def __init__(self, environment: Environment, own: Sequence[engine.Setting]) -> None:
        """The states are read; those of `own` are not global."""
        self.own = [(one, one.read()) for one in own]
        self.environment, self.engine = environment, environment.random_state()
        self.python = random.getstate()
        self.generator = np.random.get_bit_generator()  # type: ignore[attr-defined] # not in stubs
        self.numpy: Any = np.random.get_state(legacy=False)  # noqa: NPY002 it is watched
        # Of two normal numbers the second is made with the first, and drawn without a step.
        self.words = b"" if self.numpy.get("has_gauss") else _words(self.generator)

    def have_moved(self) -> bool:
        """Returns whether anything was drawn since."""
        (_, now, pending), (_, before, waiting) = random.getstate(), self.python
        # A draw moves the place of the next word, which is the last number. Draws that come back to
        # that place have made all words anew.
        if now[-1] != before[-1] or now[:4] != before[:4] or pending != waiting:
            return True
        generator = np.random.get_bit_generator()  # type: ignore[attr-defined] # not in the stubs
        if self.words and generator is self.generator:
            if _words(generator) != self.words:
                return True
        elif not _same(self.numpy, np.random.get_state(legacy=False)):  # noqa: NPY002
            return True
        if self.environment.random_state() != self.engine:
            return True
        return not all(_same(one.read(), state) for one, state in self.own)

    def again(self) -> Generators:
        """Returns the same generators as they are now."""
        return Generators(self.environment, [one for one, _ in self.own])

    def put_back(self) -> None:
        """Sets the generators and their states to what they were."""
        for one, state in self.own:
            one.write(state)
        random.setstate(self.python)
        if np.random.get_bit_generator() is not self.generator:  # type: ignore[attr-defined]
            np.random.set_bit_generator(self.generator)  # type: ignore[attr-defined]
        np.random.set_state(self.numpy)  # noqa: NPY002 the global state is what is kept
        self.environment.set_random_state(self.engine)


def _words(generator: Any) -> bytes:
    """Returns the state of a Mersenne Twister, 624 words and the place of the next one; nothing of
    other generators.
    """
    if type(generator) is not np.random.MT19937:
        return b""
    return ctypes.string_at(generator.ctypes.state_address, 4 * (624 + 1))


def _same(one: Any, two: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(_same(one[name], two[name]) for name in one)
    return bool(np.array_equal(one, two))


def judged_with_replay(
    problem: Problem, letters: str, seen: Generators, judge: Callable[[], Judged[Rest]]
) -> Judged[Rest]:
    """Returns what `judge` finds about the problem. Where f draws random numbers, it is judged
    with several draws of them, and each evaluation of f then begins in the same random state.

    Without that, the differences of dropout or of a sampler are nothing but noise. What f draws in
    its first evaluation it then draws in all of them, and the derivative that is judged is that
    with these numbers held fixed. The state is put back before f alone: a rule that draws its own
    numbers in the backward pass goes on drawing new ones.
    PyTorch's activation checkpointing replays the state of a forward pass in the same way; to do
    so in a check is ours.
    """
    found, settled = None, False
    try:
        found = judge()
        settled = _is_settled(found[0], replayed=False)
    except UnstableOutputError:  # the shape of the result may be drawn as well
        if not _has_drawn(problem, letters, seen):
            raise
    seen.drawn = _has_drawn(problem, letters, seen)
    if found is not None and not (seen.drawn and _draws(problem, "", seen)):
        return found  # where its rule draws numbers, f does not
    return _of_all_draws(problem, seen, judge, found if settled else None)


def _of_all_draws(
    problem: Problem,
    seen: Generators,
    judge: Callable[[], Judged[Rest]],
    passed: Judged[Rest] | None,
) -> Judged[Rest]:
    """Returns what `judge` finds with one of `DRAWS` draws of random numbers: the first FAIL, or
    else the first PASS. What is open before any draw has passed ends this as well, since each
    further one would take as long. `passed` is the PASS of a judgement with numbers that went on,
    if any.

    Numbers that leave f without a derivative, as a dropout that drops everything, hide all
    mistakes, and so do numbers that leave it without the derivative of one input, as a layer that
    stochastic depth skips. A PASS with these counts only where there is no other. Any other PASS
    still says nothing of the branch that was not taken, or of the entries that were dropped: with
    one draw, a wrong gradient of one entry passed at half of the seeds. Numbers with which f has a
    value that was judged are not judged again.
    """
    counts, judged = problem.counts, set[bytes]()
    flat = [] if passed is None else flat_inputs(problem, passed[0])
    kept, state, counts_for_all = passed, counts.before_evaluation, bool(passed) and not flat
    for draw in range(DRAWS):
        if counts_for_all and not counts.allows(1):
            break
        now = seen.again() if draw else seen
        counts.before_evaluation = now.put_back
        value = _beside(problem)
        if counts_for_all and value and not draw:
            judged.add(value)
        if value in judged or (flat and not _moves_with(problem, flat)):
            continue
        try:
            found = judge()
        except UnstableOutputError:  # the shapes of a problem are those of its first evaluation
            if kept is None:
                raise
            continue
        verdict = worst([one.verdict for one in found[0]])
        if verdict is Verdict.FAIL or (verdict is not Verdict.PASS and not counts_for_all):
            return found
        if verdict is Verdict.PASS and not counts_for_all:
            flat = flat_inputs(problem, found[0])
            counts_for_all = not flat and _is_settled(found[0], replayed=True)
            kept, state = found, counts.before_evaluation
        if counts_for_all and value:
            judged.add(value)
    assert kept is not None  # the first draw is judged where nothing passed before
    counts.before_evaluation = state
    return kept


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


def flat_inputs(problem: Problem, outcomes: Sequence[Judgement]) -> list[int]:
    """Returns the indices of the inputs of which a PASS says little: their gradient is zero, and
    that of other inputs is not. A gradient that is wrong by a factor would be zero as well.
    """
    if len(problem.X.leaves) == 1:
        return []
    image = outcomes[0].images.get("R")
    passed = all(one.verdict is Verdict.PASS for one in outcomes)
    if image is None or not passed or not image[1].any():
        return []
    parts = zip(problem.X.leaves, problem.X.slices, strict=True)
    return [k for k, (leaf, part) in enumerate(parts) if leaf.size and not image[1][part].any()]


def _moves_with(problem: Problem, leaves: Sequence[int]) -> bool:
    """Returns whether f has another value where these inputs are moved, with the random numbers
    that are put back before each evaluation; also where it raises there.

    It costs two evaluations. Without it a function that draws numbers and has an input that it
    never uses would be judged with each of `DRAWS` draws.
    """

    def moved() -> bool:
        base = observe(problem)
        beside = outputs_at(problem, base, _moved(problem, leaves), Purpose.NEAR_X)
        return not np.array_equal(beside, base.values, equal_nan=True)

    found = attempt(moved)
    return found is None or found


def _beside(problem: Problem) -> bytes:
    """Returns a hash of the value of f beside x, or at x where it raises beside it, with the random
    numbers that are put back before each evaluation; nothing where it raises at x as well.

    It costs an evaluation. Without it the numbers that leave f as it was, since it does not use
    them or takes the same branch, would be judged again with each of `DRAWS` draws. At x itself two
    branches may have the same value.
    """

    def value(x: Vector) -> bytes:
        values = base_of(problem, problem.evaluate(problem.point(x))).values
        return hashlib.blake2b(values.tobytes()).digest()  # outputs may be large

    problem.counts.purpose = Purpose.NEAR_X
    found = attempt(partial(value, _moved(problem, range(len(problem.X.leaves)))))
    return found or attempt(partial(value, problem.origin)) or b""


def _moved(problem: Problem, leaves: Sequence[int]) -> Vector:
    """Returns a point beside x where these inputs are moved, each entry by another amount: of equal
    ones f may depend on differences alone.
    """
    v = np.zeros(problem.X.size)
    for part in map(problem.X.slices.__getitem__, leaves):
        v[part] = problem.length_scales[part] * np.linspace(MOVE, 2 * MOVE, part.stop - part.start)
    return problem.clipped(problem.origin + problem.inward(v))


MOVE = 2.0**-8
"""By how much of their scale inputs are moved to see whether f depends on them: by a few spacings
of bfloat16, the coarsest usual dtype. The value is ours."""


def _is_settled(judgements: Sequence[Judgement], *, replayed: bool) -> bool:
    """Returns whether a judgement stands: a PASS that compared a number other than zero, or, where
    draws were `replayed`, anything but a PASS.
    """
    for judgement in judgements:
        if judgement.verdict is not Verdict.PASS:
            return replayed
    for judgement in judgements:
        for tally in judgement.tallies:
            if tally.nonzero:
                return True
    return False


DRAWS = 8
"""With how many draws of random numbers a function that draws is judged. A dropout of one number at
p = 1/2 then hides its mistakes from one check in 256. The value is ours."""


# -- notes


def noticed(problem: Problem, seen: Generators, outcomes: Sequence[Judgement]) -> list[Finding]:
    """Returns notes on what the function did beside computing its value."""
    statuses = {finding.status for outcome in outcomes for finding in outcome.findings}
    notes = []
    if seen.others_changed:
        notes.append(Finding(Status.MUTATES_INPUT, "", "", Remembers(), note=True))
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
    setting_of = backend.precision
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
