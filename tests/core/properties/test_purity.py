"""A check leaves inputs and random state alone, and sees who does not."""

import gc
import random
import warnings
import weakref
from contextlib import suppress

import numpy as np
import pytest
from scenarios import seeds

from adjudge import ByHand, Status, Verdict, examine, gradcheck, gradgradcheck, reference


def inputs():
    draw = np.random.default_rng(0)
    return (
        draw.normal(size=(3, 2)),
        {"w": draw.normal(size=(4, 3)).T[:, ::2], "labels": np.asarray([0, 2, 1])},
    )


def product(x, t):
    return x * t["w"]


def product_vjp(x, t, w):
    return w * t["w"], {"w": w * x, "labels": None}


def arrays(x, t):
    return [x, t["w"], t["labels"]]


def random_states():
    return random.getstate(), [np.asarray(part).tolist() for part in np.random.get_state()]  # noqa: NPY002


def statuses(report):
    return [finding.status for finding in report.findings]


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_inputs_are_bit_identical_afterwards(mode):
    x, t = inputs()
    before = [array.tobytes() for array in arrays(x, t)]

    gradcheck(ByHand(product, vjp=product_vjp), (x, t), mode=mode)

    assert before == [array.tobytes() for array in arrays(x, t)]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_inputs_and_random_state_are_kept_when_f_raises_midway(error):
    x, t = inputs()
    before = [array.tobytes() for array in arrays(x, t)]
    calls = []

    def forward(x, t):
        calls.append(np.random.rand() + random.random())  # noqa: NPY002, S311
        x[:] = 0
        t["labels"][:] = 0
        if len(calls) == 4:
            raise error("midway")
        return x * t["w"]

    states = random_states()
    with pytest.raises(error, match="midway"):
        gradcheck(ByHand(forward, vjp=product_vjp), (x, t))

    assert before == [array.tobytes() for array in arrays(x, t)]
    assert states == random_states()


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_no_evaluation_and_no_derivative_gets_an_array_of_the_user(mode):
    x, t = inputs()
    shared = []

    def watched(function):
        def call(*args):
            given = arrays(*args[:2])
            shared.extend(np.shares_memory(a, b) for a in given for b in arrays(x, t))
            return function(*args)

        return call

    rule = ByHand(
        watched(product),
        vjp=watched(product_vjp),
        double_vjp=watched(
            lambda x, t, w, u: (
                w * u[1]["w"],
                {"w": w * u[0], "labels": None},
                u[0] * t["w"] + u[1]["w"] * x,
            )
        ),
    )

    report = gradgradcheck(rule, (x, t), mode=mode)

    assert report.verdict is Verdict.PASS
    assert shared
    assert not any(shared)


def test_the_arrays_of_two_evaluations_share_no_memory():
    seen = []

    def forward(x):
        seen.append(x)
        return np.sin(x)

    gradcheck(ByHand(forward, jvp=lambda x, v: v * np.cos(x)), np.ones(2), **FORWARD)

    assert not any(np.shares_memory(a, b) for k, a in enumerate(seen) for b in seen[:k])


FORWARD = {"check_forward_ad": True, "check_backward_ad": False}


def test_random_states_are_restored():
    states = random_states()

    def forward(x):
        np.random.rand(3)  # noqa: NPY002
        random.random()  # noqa: S311
        return np.sin(x)

    gradcheck(ByHand(forward, vjp=lambda x, w: w * np.cos(x)), np.ones(2))

    assert states == random_states()


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_settings_of_numpy_and_filters_of_warnings_are_restored(error):
    def forward(x):
        np.seterr(all="raise")
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="nothing")
        if error is not None:
            raise error
        return np.sin(x)

    rule = ByHand(forward, vjp=lambda x, w: w * np.cos(x))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        filters, before, arithmetic = warnings.filters, list(warnings.filters), np.geterr()

        with suppress(ValueError, KeyboardInterrupt):
            examine(rule, np.ones(2))

        assert warnings.filters is filters
        assert warnings.filters == before
        assert np.geterr() == arithmetic
        with pytest.warns(UserWarning, match="heard"):
            warnings.warn("heard", stacklevel=1)


def test_filters_that_a_context_replaces_are_restored():
    open_contexts = []

    def forward(x):
        open_contexts.append(warnings.catch_warnings())
        open_contexts[-1].__enter__()
        warnings.simplefilter("error")
        return np.sin(x)

    with warnings.catch_warnings():
        filters, before = warnings.filters, list(warnings.filters)
        assert gradcheck(ByHand(forward, vjp=lambda x, w: w * np.cos(x)), np.ones(2))
        assert warnings.filters is filters
        assert filters == before


@pytest.mark.parametrize("draw", [lambda: np.random.rand(), random.random])  # noqa: NPY002
def test_drawing_random_numbers_is_a_note_and_no_verdict(draw):
    def forward(x):
        draw()
        return np.sin(x)

    report = examine(ByHand(forward, vjp=lambda x, w: w * np.cos(x)), np.asarray([0.5, 1.0]))

    assert report.verdict is Verdict.PASS
    assert [Status.DRAWS_RANDOM] == statuses(report)


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_a_function_that_writes_into_its_input_is_found(mode):
    def forward(x):
        y = np.sin(x)
        x *= 2
        return y

    report = examine(ByHand(forward, vjp=lambda x, w: w * np.cos(x / 2)), np.ones(2), mode=mode)

    assert report.verdict is Verdict.FAIL
    assert Status.MUTATES_INPUT in statuses(report)
    assert "the function writes into inputs[0]" in str(report)


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_a_vjp_that_writes_into_its_cotangent_is_found(mode):
    def vjp(x, w):
        w *= np.cos(x)
        return w

    report = examine(ByHand(np.sin, vjp=vjp), np.asarray([0.3, 1.0]), mode=mode)

    assert report.verdict is Verdict.FAIL
    assert Status.MUTATES_INPUT in statuses(report)
    assert "the vjp (backward pass) writes into the cotangent of out" in str(report)


def test_a_jvp_that_writes_into_its_tangent_is_found():
    def jvp(x, v):
        v *= np.cos(x)
        return v

    report = examine(ByHand(np.sin, jvp=jvp), np.asarray([0.3, 1.0]), **FORWARD)

    assert "the jvp writes into the tangent of inputs[0]" in str(report)


def test_a_vjp_that_writes_into_its_input_is_found():
    def vjp(x, w):
        x *= 2
        return w * np.cos(x / 2)

    report = examine(ByHand(np.sin, vjp=vjp), np.asarray([0.3, 1.0]))

    assert Status.MUTATES_INPUT in statuses(report)


def test_a_function_that_writes_into_an_input_that_is_not_checked_is_found():
    def forward(x, labels):
        labels[0] = 5
        return np.sin(x)

    rule = ByHand(forward, vjp=lambda x, labels, w: (w * np.cos(x), None))

    report = examine(rule, (np.ones(2), np.asarray([1, 2])))

    assert report
    assert Status.MUTATES_INPUT in statuses(report)
    assert "inputs[1], which is not checked" in str(report)


def test_derivatives_that_reuse_the_memory_of_their_result_pass():
    buffer = np.zeros(2)

    def derivative(x, w):
        buffer[:] = w * np.cos(x)
        return buffer

    report = examine(
        ByHand(np.sin, vjp=derivative, jvp=derivative), np.ones(2), check_forward_ad=True
    )

    assert report.verdict is Verdict.PASS


def test_a_function_that_reuses_the_memory_of_its_output_passes():
    kept = np.zeros(2)

    def forward(x):
        kept[:] = np.sin(x)
        return kept

    report = examine(ByHand(forward, vjp=lambda x, w: w * np.cos(x)), np.asarray([0.3, 1.0]))

    assert report.verdict is Verdict.PASS


def test_a_kept_report_keeps_no_array_of_the_check():
    """Also where modes were not offered, and the errors that said so are in the report."""
    seen = []

    def f(x):
        seen.append(weakref.ref(x))
        return np.sin(x)

    gc.disable()
    try:
        report = examine(ByHand(f, vjp=lambda x, w: w * np.cos(x)), np.ones(300), order=2)
        alive = sum(x() is not None for x in seen)
    finally:
        gc.enable()

    assert Status.UNSUPPORTED in [finding.status for finding in report.findings]
    assert (len(seen) > 0, alive) == (True, 0)


@pytest.mark.parametrize("seed", seeds(10))
def test_a_reference_is_another_function_where_the_gap_is_no_cancellation(seed):
    x = np.random.default_rng(seed).uniform(0.5, 2.0, 1)
    exact = reference.twin(np.square)

    def statuses(value):
        f = ByHand(value, vjp=lambda x, w: 2 * x * w)
        return {one.status for one in examine(f, x, reference=exact, seed=seed).findings}

    assert statuses(lambda x: ((x + 1e9) - 1e9) ** 2) == set()
    assert statuses(lambda x: x**2 + 1e-9) == {Status.REFERENCE}
