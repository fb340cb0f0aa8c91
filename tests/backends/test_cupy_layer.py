"""The device layer of CuPy on simulated devices, each demand with mutations that it must catch.

What is simulated, and after which source of CuPy: tests/engines/simulated_cupy.py.
"""

import contextlib
import gc
import importlib
import threading

import numpy as np
import pytest

import adjudge
from adjudge import AdjudgeError, NotSupportedError, Status, Verdict
from adjudge.engine.arrays import PlainArrays
from adjudge.engine.registry import backend_named

RANDOM = np.random.default_rng(8)
HOST = RANDOM.normal(size=6)


def square(x):
    return x * x


def of_square(x, w):
    return 2 * x * w


SQUARE = adjudge.ByHand(square, vjp=of_square)


def on(machine, device, host=HOST):
    with machine.Device(device):
        return machine.cupy.asarray(host)


def faulting_at(machine, call, after=None):
    """`x * x`, of which one call launches a kernel that faults, and may then raise an error."""
    kernel, calls = machine.RawKernel(fault(machine)), []

    def f(x):
        calls.append(x)
        if len(calls) == call:
            kernel((1,), (1,), (x,))
            if after is not None:
                raise after
        return x * x

    return f


def fault(machine):
    def body(x):
        raise machine.Fault

    return body


def notes(error):
    return " ".join(getattr(error.value, "__notes__", []))


DEMANDS = {}


def demand(function):
    """What the layer has to do, which a mutation shows by failing it."""
    DEMANDS[function.__name__.replace("_", " ")] = function
    return function


# ---------------------------------------------------------------- errors that come late


@demand
def an_error_of_a_kernel_is_raised_by_its_call(machine):
    f = adjudge.ByHand(faulting_at(machine, 3), vjp=of_square)

    with pytest.raises(machine.CUDARuntimeError, match="IllegalAddress") as error:
        adjudge.gradcheck(f, on(machine, 0))

    assert "raised in evaluation 3 of the function" in notes(error)


@demand
def an_error_of_a_backward_kernel_is_raised_by_the_vjp(machine):
    kernel = machine.RawKernel(fault(machine))

    def backward(x, w):
        kernel((1,), (1,), (w,))
        return 2 * x * w

    with pytest.raises(machine.CUDARuntimeError) as error:
        adjudge.gradcheck(adjudge.ByHand(square, vjp=backward), on(machine, 0))

    assert "raised in the vjp" in notes(error)


@demand
def an_error_of_a_callback_is_raised_by_the_callback(machine):
    kernel = machine.RawKernel(fault(machine))

    def layer(x):
        def backprop(w):
            kernel((1,), (1,), (w,))
            return 2 * x * w

        return x * x, backprop

    with pytest.raises(machine.CUDARuntimeError) as error:
        adjudge.gradcheck(adjudge.ByHand(pullback=layer), on(machine, 0))

    assert "raised in the vjp" in notes(error)


@demand
def an_error_of_a_kernel_of_the_jvp_is_raised_by_the_jvp(machine):
    kernel = machine.RawKernel(fault(machine))

    def push(x, v):
        kernel((1,), (1,), (v,))
        return 2 * x * v

    with pytest.raises(machine.CUDARuntimeError) as error:
        adjudge.gradcheck(
            adjudge.ByHand(square, jvp=push), on(machine, 0),
            check_backward_ad=False, check_forward_ad=True,
        )  # fmt: skip

    assert "raised in the jvp" in notes(error)


@demand
def an_error_on_a_stream_of_the_function_is_raised_by_its_call(machine):
    stream, kernel = machine.Stream(non_blocking=True), machine.RawKernel(fault(machine))

    def f(x):
        with stream:
            kernel((1,), (1,), (x,))
        return x * x

    with pytest.raises(machine.CUDARuntimeError) as error:
        adjudge.gradcheck(adjudge.ByHand(f, vjp=of_square), on(machine, 0))

    assert "raised in evaluation 1 of the function" in notes(error)


@demand
def an_exception_of_the_function_is_not_masked(machine):
    f = faulting_at(machine, 2, after=KeyError("the user's own"))

    with pytest.raises(KeyError, match="the user's own") as error:
        adjudge.gradcheck(adjudge.ByHand(f, vjp=of_square), on(machine, 0))

    assert "raised in evaluation 2" in notes(error)
    assert "the device reported cudaErrorIllegalAddress" in notes(error)
    assert not any(machine.machine.queues.values())


@demand
def what_failed_before_the_check_is_not_blamed_on_it(machine):
    with machine.Stream(non_blocking=True):
        machine.RawKernel(fault(machine))((1,), (1,), (on(machine, 0),))

    with pytest.raises(machine.CUDARuntimeError) as error:
        adjudge.gradcheck(SQUARE, on(machine, 0))

    assert "launched before the check" in notes(error)
    assert "evaluation" not in notes(error)


# ---------------------------------------------------------------- devices


@demand
def the_function_runs_on_the_device_of_its_arrays(machine):
    seen = set()

    def f(x):
        seen.add(machine.Device().id)
        return x * x

    x = on(machine, 1)

    assert adjudge.gradcheck(adjudge.ByHand(f, vjp=of_square), x)
    assert seen == {1}
    assert machine.Device().id == 0


@demand
def inputs_on_two_devices_stay_there(machine):
    def both(x, y):
        with machine.Device(1):
            there = y * 3.0
        return x * x, there

    def backward(x, y, w):
        with machine.Device(1):
            of_y = w[1] * 3.0
        return 2 * x * w[0], of_y

    x, y = on(machine, 0), on(machine, 1)

    assert adjudge.gradcheck(adjudge.ByHand(both, vjp=backward), (x, y))


@demand
def the_devices_of_all_arrays_are_waited_for(machine):
    kernel = machine.RawKernel(fault(machine))

    def f(x, y):
        with machine.Device(1):
            kernel((1,), (1,), (y,))
        return x * x

    rule = adjudge.ByHand(f, vjp=lambda x, y, w: (2 * x * w, None))
    with pytest.raises(machine.CUDARuntimeError) as error:
        # y is no checked input: its device is known from the copy that is made for the call
        adjudge.gradcheck(rule, (on(machine, 0), on(machine, 1)), wrt=0)

    assert "raised in evaluation 1" in notes(error)


@demand
def a_device_without_arrays_is_left_alone(machine):
    assert adjudge.gradcheck(SQUARE, on(machine, 0))

    assert machine.touched == {0}


# ---------------------------------------------------------------- streams


@demand
def every_call_runs_on_the_stream_at_entry(machine):
    stream, seen = machine.Stream(non_blocking=True).use(), []

    def f(x):
        seen.append(machine.get_current_stream())
        return x * x

    x = on(machine, 0, RANDOM.normal(size=12))[::2]

    assert adjudge.gradcheck(adjudge.ByHand(f, vjp=of_square), x)
    assert len(seen) > 3
    assert set(seen) == {stream}
    assert machine.get_current_stream() is stream


@demand
def a_function_that_moves_device_and_stream_is_moved_back(machine):
    own, stream, seen = machine.Stream(), machine.Stream().use(), []

    def f(x):
        seen.append((machine.Device().id, machine.get_current_stream()))
        y = x * x
        own.use()
        machine.Device(1).use()
        return y

    assert adjudge.gradcheck(adjudge.ByHand(f, vjp=of_square), on(machine, 0))
    assert seen == [(0, stream)] * len(seen)
    assert machine.Device().id == 0
    assert machine.get_current_stream() is stream


@demand
def device_and_stream_are_as_before_when_the_function_raises(machine):
    stream = machine.Stream().use()

    def f(x):
        machine.Stream.null.use()
        machine.Device(1).use()
        raise KeyError("its own")

    with pytest.raises(KeyError):
        adjudge.gradcheck(adjudge.ByHand(f, vjp=of_square), on(machine, 0))

    assert machine.Device().id == 0
    assert machine.get_current_stream() is stream


@demand
def work_on_a_stream_of_the_function_is_waited_for(machine):
    stream = machine.Stream(non_blocking=True)

    def f(x):
        with stream:  # x was written on the other stream, which is waited for
            machine.Stream.null.synchronize()
            return x * x

    assert adjudge.gradcheck(adjudge.ByHand(f, vjp=of_square), on(machine, 0))


@demand
def values_are_read_on_the_stream_that_wrote_them(machine):
    machine.Stream(non_blocking=True).use()
    x = on(machine, 0)  # the transfer is still queued

    assert backend_named("cupy").arrays.to_host(x).tolist() == HOST.tolist()


@demand
def values_of_another_device_are_read(machine):
    with machine.Device(1):
        machine.Stream(non_blocking=True).use()
    x = on(machine, 1)

    assert backend_named("cupy").arrays.to_host(x).tolist() == HOST.tolist()


@demand
def a_strided_array_is_fetched(machine):
    stream, x = machine.Stream().use(), on(machine, 0)

    assert backend_named("cupy").arrays.to_host(x[::2]).tolist() == HOST[::2].tolist()
    assert machine.get_current_stream() is stream


@demand
def the_host_waits_for_calls_and_fetches_only(machine):
    machine.counts.clear()

    report = adjudge.examine(SQUARE, on(machine, 0, RANDOM.normal(size=50)))

    calls = report.counts["evaluations"] + report.counts["vjps"]
    waits = machine.counts["synchronisations"]
    assert report
    assert machine.counts["to_host"] <= calls + 4  # each call's result, and the inputs
    assert waits - machine.counts["to_host"] <= calls + 2  # each call, and the entry


# ---------------------------------------------------------------- memory


@demand
def a_large_pool_is_emptied_after_the_check(machine):
    machine.MEMORY = 2**20  # 16 KiB may stay
    pool, x = machine.pools[0], on(machine, 0, RANDOM.normal(size=3000))
    pool.set_limit(2**19)

    report = adjudge.examine(SQUARE, x, max_evaluations=20)

    assert report.verdict is Verdict.PASS
    assert pool.free_bytes() <= machine.MEMORY / 64 + 20 * x.nbytes  # what the report let go
    assert emptied(machine)
    assert machine.pinned.n_free_blocks() == 0
    assert pool.used_bytes() >= x.nbytes
    assert pool.get_limit() == 2**19


def emptied(machine):
    return machine.counts["emptied"] > 0


@demand
def arrays_are_let_go_when_the_check_is_over(machine):
    x = on(machine, 0, RANDOM.normal(size=3000))
    wrong = adjudge.ByHand(square, vjp=lambda x, w: x * w)
    for rule in (SQUARE, wrong):
        gc.collect()
        gc.disable()  # what is in no cycle is let go at once
        try:
            used = machine.pools[0].used_bytes()
            adjudge.examine(rule, x)
            assert machine.pools[0].used_bytes() == used
        finally:
            gc.enable()


@demand
def a_small_pool_is_kept(machine):
    assert adjudge.gradcheck(SQUARE, on(machine, 0))

    assert not emptied(machine)
    assert machine.pinned.n_free_blocks() > 0


# ---------------------------------------------------------------- random numbers


def noisy(machine):
    """Draws a number, and adds nothing of it."""
    return adjudge.ByHand(lambda x: x * x + 0 * machine.cupy.random.rand(1), vjp=of_square)


@demand
def the_user_s_generator_goes_on_as_if_nothing_was_drawn(machine):
    random = machine.cupy.random
    random.seed(5)
    expected = [random.rand(2).tolist() for _ in range(2)]
    random.seed(5)
    first = random.rand(2).tolist()
    own = random.get_random_state()

    report = adjudge.examine(noisy(machine), on(machine, 0))

    assert report
    assert Status.DRAWS_RANDOM in [finding.status for finding in report.findings]
    assert random.get_random_state() is own
    assert [first, random.rand(2).tolist()] == expected


@demand
def no_generator_is_made(machine):
    assert adjudge.gradcheck(SQUARE, on(machine, 0))
    assert machine.counts["generators"] == 0
    report = adjudge.examine(noisy(machine), on(machine, 0))
    assert report
    assert machine.generator._random_states == {}


@demand
def numbers_are_those_of_the_user_s_seed(machine):
    random, drawn = machine.cupy.random, []

    def f(x):
        drawn.append(float(random.rand(1)[0]))
        return x * x

    for _ in range(2):
        random.seed(7)
        drawn.append("check")
        adjudge.examine(adjudge.ByHand(f, vjp=of_square), on(machine, 0), seed=1)

    half = len(drawn) // 2
    assert half > 3
    assert drawn[:half] == drawn[half:]
    random.seed(7)
    assert drawn[1] == float(random.rand(1)[0])


@demand
def numbers_are_drawn_again_at_every_evaluation(machine):
    """The right derivative of a function of random numbers passes, and a wrong one fails."""
    random = machine.cupy.random

    def rule(factor):
        def pullback(x):
            drawn = random.rand(x.size)
            return x * x * drawn, lambda w: 2 * factor * w * x * drawn

        return adjudge.ByHand(pullback=pullback)

    for seed in (None, 5):
        if seed is not None:
            random.seed(seed)
        assert adjudge.gradcheck(rule(1.0), on(machine, 0))
        assert not adjudge.examine(rule(1.01), on(machine, 0))


@demand
def beside_another_thread_numbers_are_drawn_again_as_well(machine):
    """A generator that is there already does not show that more was drawn from it."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        numbers_are_drawn_again_at_every_evaluation(machine)
        the_user_s_generator_goes_on_as_if_nothing_was_drawn(machine)
    finally:
        over.set()
        thread.join()


# ---------------------------------------------------------------- arrays

LAYOUTS = {
    "contiguous": lambda a: a,
    "Fortran order": lambda a: a.T,
    "every other entry": lambda a: a[:, ::2],
    "backwards": lambda a: a[::-1, ::-1],
    "no dimensions": lambda a: a[1, 1],
    "empty": lambda a: a[:0],
    "a row repeated": lambda a: a[:1][[0, 0]],
}


@demand
def arrays_keep_their_layout_and_device(machine):
    backend = backend_named("cupy")
    for dtype in ("float64", "float16", "complex64", "int32", "bool"):
        wide = np.complex128 if dtype.startswith("complex") else np.float64
        host = RANDOM.integers(0, 9, (4, 6)).astype(dtype)
        for name, layout in LAYOUTS.items():
            with machine.Device(1):
                array, values = layout(on(machine, 1, host)), layout(host)
            steps = [stride // array.itemsize for stride in array.strides]
            for what, made in {
                "copy": backend.arrays.copy(array),
                "from_host": backend.arrays.from_host(backend.arrays.to_host(array), array),
                "widen": backend.arrays.widen(array),
                "place": backend.arrays.place(array, "cuda:0"),
            }.items():
                where = f"{what} of {dtype}, {name}"
                assert backend.arrays.to_host(made).tolist() == values.astype(wide).tolist(), where
                assert made.device.id == (0 if what == "place" else 1), where
                assert [s // made.itemsize for s in made.strides] == steps or not made.size, where
                assert made._buffer is not array._buffer, where
            for what, made, shape in (
                ("stack", backend.arrays.stack([array, array]), (2, *array.shape)),
                ("strided", backend.arrays.noncontiguous(array), array.shape),
                ("zeros", backend.arrays.zeros_for_absent((None,), (array,))[0], array.shape),
            ):
                assert (made.shape, made.dtype, made.device.id) == (shape, array.dtype, 1), what
            spread = backend.arrays.noncontiguous(array)
            assert backend.arrays.to_host(spread).tolist() == values.astype(wide).tolist()
            assert array.size < 2 or not spread.flags.c_contiguous


@demand
def a_kernel_that_ignores_strides_fails_on_a_strided_input(machine):
    """It reads the memory from its first entry on, as CUDA source does that is given a pointer."""

    def in_memory(a):
        return np.lib.stride_tricks.as_strided(a, (a.size,), (a.itemsize,))

    forward = machine.RawKernel(lambda x, y: np.copyto(y, np.square(x)))
    backward = machine.RawKernel(lambda x, w, g: np.copyto(g, 2 * in_memory(x) * w))

    def f(x):
        y = machine.cupy.empty(x.shape)
        forward((1,), (6,), (x, y))
        return y

    def vjp(x, w):
        g = machine.cupy.empty(x.shape)
        backward((1,), (6,), (x, w, g))
        return g

    x = on(machine, 0, RANDOM.normal(size=12))
    rule = adjudge.ByHand(f, vjp=vjp)
    assert adjudge.examine(rule, x).verdict is Verdict.PASS
    assert adjudge.examine(rule, x[::2]).verdict is Verdict.FAIL


@demand
def an_array_is_placed_after_it_was_written(machine):
    backend = backend_named("cupy")
    with machine.Device(1):
        machine.Stream(non_blocking=True).use()
        x = machine.cupy.asarray(HOST) * 2.0
    machine.Stream(non_blocking=True).use()

    moved = backend.arrays.place(x[::2], "cuda:0")

    assert moved.device.id == 0
    assert backend.arrays.to_host(moved).tolist() == (2 * HOST[::2]).tolist()
    assert machine.Device().id == 0


@demand
def the_highest_precision_is_pedantic_and_restored(machine):
    backend, types = backend_named("cupy"), machine.compute_types
    types["f"] = 7
    x = on(machine, 0, HOST.astype(np.float32))
    assert backend.environment.precision(x).setting == "CUPY_TF32=1"
    with contextlib.suppress(KeyError), backend.environment.highest_precision():
        assert types == {"e": 2, "f": 2, "d": 2}
        assert backend.environment.precision(x).setting == ""
        raise KeyError

    assert types == {"e": 1, "f": 7, "d": 1}


# ---------------------------------------------------------------- mutations


def does_nothing(module):
    return lambda *_: None


def does_not_enter(module):
    return lambda *_: contextlib.nullcontext()


def stays(module):
    def home(self, devices):
        self.used.update(device.id for device in devices)
        return self.device

    return home


def as_made(module):
    return lambda array, like: array


def of_the_base(module):
    return PlainArrays.zeros_for_absent


def zero(module):
    return 0.0


def fresh(module):
    return lambda users: {}


def without_stand_ins(module):
    return lambda users: users


def at_last(module):
    @contextlib.contextmanager
    def afterwards(step):
        try:
            yield
        finally:
            step()

    return afterwards


def stream_by_with(module):
    """As one would write it, with the context manager of the stream."""

    @contextlib.contextmanager
    def calling(devices):
        with devices[0], module.cupy.cuda.get_current_stream():
            yield
        module._ENTRY.get().wait()

    return calling


def fetched_as_it_is(module):
    def to_host(self, array, like=None):
        with array.device:
            return module.cupy.asnumpy(array).astype(complex if self.is_complex(array) else float)

    return to_host


def entering_each(module):
    def now(cls):
        streams = []
        for k in range(module.cupy.cuda.runtime.getDeviceCount()):
            with module.cupy.cuda.Device(k):
                streams.append(module.cupy.cuda.get_current_stream())
        return cls(module.cupy.cuda.Device(), streams)

    return classmethod(now)


def synchronising(module):
    whole = module.CupyArrays.from_host

    def from_host(self, host, like):
        made = whole(self, host, like)
        like.device.synchronize()
        return made

    return from_host


def hoarding(module):
    kept, whole = [], module.CupyArrays.from_host

    def from_host(self, host, like):
        kept.append(whole(self, host, like))
        return kept[-1]

    return from_host


def one_by_one(module):
    """Entry by entry."""

    def to_host(self, array, like=None):
        return np.array([float(entry) for entry in array.ravel()]).reshape(array.shape)

    return to_host


def placed_at_once(module):
    def place(self, array, device):
        with self._device(device):
            return array.copy("C")

    return place


def waiting_for_home(module):
    return lambda self: module.cupy.cuda.Device().synchronize()


def waiting_for_stream(module):
    return lambda self: module.cupy.cuda.get_current_stream().synchronize()


PLACE, ARRAYS, ENVIRONMENT = "_Place", "CupyArrays", "CupyEnvironment"
MUTATIONS = {
    "no wait": (PLACE, "wait", does_nothing, [
        an_error_of_a_kernel_is_raised_by_its_call,
        an_error_of_a_backward_kernel_is_raised_by_the_vjp,
        an_error_of_a_callback_is_raised_by_the_callback,
        an_error_of_a_kernel_of_the_jvp_is_raised_by_the_jvp,
        an_exception_of_the_function_is_not_masked,
        what_failed_before_the_check_is_not_blamed_on_it,
    ]),
    "wait for the stream": (PLACE, "wait", waiting_for_stream, [
        an_error_on_a_stream_of_the_function_is_raised_by_its_call,
        work_on_a_stream_of_the_function_is_waited_for,
    ]),
    "wait for one device": (PLACE, "wait", waiting_for_home, [
        the_devices_of_all_arrays_are_waited_for,
    ]),
    "the wait masks": (None, "_afterwards", at_last, [
        an_exception_of_the_function_is_not_masked,
    ]),
    "stay on the device": (PLACE, "home", stays, [
        the_function_runs_on_the_device_of_its_arrays,
    ]),
    "zeros on the device": (ARRAYS, "zeros_for_absent", of_the_base, [
        inputs_on_two_devices_stay_there,
        arrays_keep_their_layout_and_device,
    ]),
    "arrays forget devices": (None, "_on", does_not_enter, [
        arrays_keep_their_layout_and_device,
    ]),
    "enter each device": (PLACE, "now", entering_each, [
        a_device_without_arrays_is_left_alone,
    ]),
    "stream by with": (None, "_calling", stream_by_with, [
        every_call_runs_on_the_stream_at_entry,
    ]),
    "fetch strided arrays": (ARRAYS, "to_host", fetched_as_it_is, [
        a_strided_array_is_fetched,
    ]),
    "fetch on the device": (None, "_on", does_not_enter, [
        values_of_another_device_are_read,
    ]),
    "restore nothing": (PLACE, "restore", does_nothing, [
        a_function_that_moves_device_and_stream_is_moved_back,
        device_and_stream_are_as_before_when_the_function_raises,
    ]),
    "wait for every array": (ARRAYS, "from_host", synchronising, [
        the_host_waits_for_calls_and_fetches_only,
    ]),
    "fetch one by one": (ARRAYS, "to_host", one_by_one, [
        the_host_waits_for_calls_and_fetches_only,
    ]),
    "release nothing": (None, "_release", does_nothing, [
        a_large_pool_is_emptied_after_the_check,
    ]),
    "hold every array": (ARRAYS, "from_host", hoarding, [
        arrays_are_let_go_when_the_check_is_over,
    ]),
    "release always": (None, "KEPT", zero, [
        a_small_pool_is_kept,
    ]),
    "the user's generator": (None, "_StandIns", without_stand_ins, [
        the_user_s_generator_goes_on_as_if_nothing_was_drawn,
        no_generator_is_made,
    ]),
    "no random state": (ENVIRONMENT, "random_state", does_nothing, [
        the_user_s_generator_goes_on_as_if_nothing_was_drawn,
    ]),
    "numbers that are drawn once": (ENVIRONMENT, "set_random_state", does_nothing, [
        numbers_are_drawn_again_at_every_evaluation,
    ]),
    "fresh generators": (None, "_StandIns", fresh, [
        numbers_are_those_of_the_user_s_seed,
    ]),
    "everything contiguous": (None, "_laid_out", as_made, [
        arrays_keep_their_layout_and_device,
        a_kernel_that_ignores_strides_fails_on_a_strided_input,
    ]),
    "place at once": (ARRAYS, "place", placed_at_once, [
        an_array_is_placed_after_it_was_written,
    ]),
    "no precision": (ENVIRONMENT, "highest_precision", does_not_enter, [
        the_highest_precision_is_pedantic_and_restored,
    ]),
}  # fmt: skip


SHOWN = (AssertionError, AdjudgeError, ValueError, RuntimeError, pytest.fail.Exception)
CAUGHT = [
    pytest.param(*mutation[:3], demand, id=f"{name}: {demand.__name__.replace('_', ' ')}")
    for name, mutation in MUTATIONS.items()
    for demand in mutation[3]
]


@pytest.mark.parametrize("demand", DEMANDS.values(), ids=DEMANDS)
def test_that(demand, cupy):
    demand(cupy)


@pytest.mark.parametrize(
    ("devices", "driver", "reason"),
    [(0, 12080, "CUDA sees 0 devices"), (0, 0, "no NVIDIA driver was found: cudaErrorInsuff")],
)
def test_without_a_device_the_reason_is_kept(devices, driver, reason, cupy):
    cupy.DEVICES, cupy.DRIVER = devices, driver
    backend = backend_named("cupy")

    assert backend.environment.unavailable().startswith(reason)
    assert backend.arrays.devices() == []
    assert backend.environment.random_state() == ()
    with pytest.raises(NotSupportedError, match=reason):
        backend.arrays.make(np.ones(2), "float64")
    with backend.environment.isolation(()):  # as crosscheck enters every engine
        pass


@pytest.mark.parametrize("dtype", ["float12", "float128", "bfloat16", "str", "sin"])
def test_dtypes_that_cupy_has_not_are_refused(dtype, cupy):
    with pytest.raises(NotSupportedError, match=f"dtype {dtype}"):
        backend_named("cupy").arrays.make(np.ones(2), dtype)


@pytest.mark.parametrize(("owner", "name", "mutant", "demand"), CAUGHT)
def test_that_fails_by_mutation(owner, name, mutant, demand, cupy, monkeypatch):
    module = importlib.import_module("adjudge_cupy.backend")
    target = getattr(module, owner) if owner else module
    assert hasattr(target, name)
    monkeypatch.setattr(target, name, mutant(module))

    # the mutation shows, and is no mistake in Python
    with pytest.raises(SHOWN):
        demand(cupy)
