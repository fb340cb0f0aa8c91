"""The simulated CuPy behaves like CuPy: every statement is one about the real one, too, and is put
to it where there is a GPU. Those about streams are of CuPy's own tests (cuda_tests/test_stream.py).
"""

import ast
import functools
import gc
import importlib
import re
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(params=["simulated", pytest.param("real", marks=pytest.mark.backend("cupy"))])
def cp(request):
    """CuPy; its streams are as before afterwards."""
    if request.param == "simulated":
        yield request.getfixturevalue("cupy").cupy
        return
    real = importlib.import_module("cupy")
    stream = real.cuda.get_current_stream()
    yield real
    stream.use()


@pytest.fixture
def second(cp):
    """The second device."""
    if cp.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("there is one device")
    return cp.cuda.Device(1)


def test_a_stream_entered_by_with_forgets_one_made_current_by_use(cp):
    used, entered = cp.cuda.Stream().use(), cp.cuda.Stream()

    with entered:
        assert cp.cuda.get_current_stream() == entered

    assert cp.cuda.get_current_stream() == cp.cuda.Stream.null != used


def test_with_and_use_mix_as_in_cupy_5143(cp):
    s1, s2, s3 = (cp.cuda.Stream() for _ in range(3))
    with s1:
        s2.use()
        with s3:
            assert cp.cuda.get_current_stream() == s3
        assert cp.cuda.get_current_stream() == s1


def test_every_device_has_a_current_stream(cp, second):
    stream = cp.cuda.Stream()
    with stream, second:
        assert cp.cuda.get_current_stream() == cp.cuda.Stream.null
        assert cp.cuda.get_current_stream(0) == stream


def test_a_stream_of_another_device_is_refused(cp, second):
    stream = cp.cuda.Stream()
    with second, pytest.raises(RuntimeError, match="does not match with the current device"):
        stream.use()


def test_fetching_a_strided_array_forgets_a_stream_made_current_by_use(cp):
    stream = cp.cuda.Stream().use()
    x = cp.arange(6.0)

    assert x.get().tolist() == [0, 1, 2, 3, 4, 5]
    assert cp.cuda.get_current_stream() == stream
    assert x[::2].get().tolist() == [0, 2, 4]
    assert cp.cuda.get_current_stream() == cp.cuda.Stream.null


def test_a_strided_array_is_not_copied_between_devices(cp, second):
    x = cp.arange(6.0)
    cp.cuda.Device(0).synchronize()
    with second:
        assert x.copy().get().tolist() == [0, 1, 2, 3, 4, 5]
        with pytest.raises(NotImplementedError, match="non-contiguous"):
            cp.array(x[::2])


def test_new_arrays_are_on_the_current_device(cp, second):
    x = cp.arange(3.0)
    with second:
        assert cp.zeros_like(x).device == second
        assert cp.asarray(x).device == second
    assert x.device.id == 0


def test_there_is_no_implicit_way_to_the_host(cp):
    with pytest.raises(TypeError, match="Implicit conversion"):
        np.asarray(cp.ones(2))
    with pytest.raises(TypeError):
        cp.ones(2) + np.ones(2)
    assert isinstance(np.sin(cp.zeros(2)), cp.ndarray)


def test_entries_and_sums_are_arrays_without_dimensions(cp):
    x = cp.arange(3.0)
    for entry in (x[1], cp.sum(x), x.max(), x[0] + x[1]):
        assert isinstance(entry, cp.ndarray)
        assert entry.shape == ()


def test_a_view_shares_memory_and_a_copy_does_not(cp):
    x = cp.zeros((2, 3))
    view, copied = x.T[1:], x.copy()
    x[...] = 1.0
    x += 1.0

    assert view.get().tolist() == [[2, 2], [2, 2]]
    assert copied.get().tolist() == [[0, 0, 0], [0, 0, 0]]


def test_astype_keeps_the_order_and_copy_is_contiguous(cp):
    x = cp.asarray(np.arange(6.0).reshape(2, 3).T)

    assert x.flags.f_contiguous
    assert x.astype(np.float32).flags.f_contiguous
    assert x.copy().flags.c_contiguous


def test_a_pool_keeps_what_is_let_go_until_it_is_emptied(cp):
    pool = cp.get_default_memory_pool()
    gc.collect()
    pool.free_all_blocks()
    used = pool.used_bytes()
    x = cp.zeros(10_000)
    assert pool.used_bytes() - used == 80_384  # in units of 512 bytes

    del x
    assert pool.used_bytes() == used
    assert pool.free_bytes() >= 80_384
    pool.free_all_blocks()

    assert pool.free_bytes() == 0


def test_a_generator_is_made_when_it_is_asked_for(cp):
    module = importlib.import_module("cupy.random._generator")
    before = module._random_states
    module._random_states = {}
    try:
        cp.random.seed(3)
        one = cp.random.rand(2).get()
        state = cp.random.get_random_state()
        assert module._random_states == {0: state}
        assert cp.random.RandomState(3, state.method).rand(2).get().tolist() == one.tolist()
    finally:
        module._random_states = before


SOURCE = Path(__file__).parents[2] / "adapters" / "adjudge_cupy" / "backend.py"
ROOTS = {
    "cupy": "cupy",
    "arithmetic": "cupy._core._routines_linalg",
    "generators": "cupy.random._generator",
}


def names_of(source):
    """Dotted names that the adapter looks up in modules of CuPy: `cupy.cuda.Device`."""
    tree = ast.parse(source)
    found = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return sorted(
        name for name in found if re.fullmatch(r"[\w.]+", name) and name.partition(".")[0] in ROOTS
    )


def looked_up(name):
    root, *rest = name.split(".")
    return functools.reduce(getattr, rest, importlib.import_module(ROOTS[root]))


@pytest.mark.parametrize("name", names_of(SOURCE.read_text()))
def test_what_the_adapter_looks_up_is_simulated(name, cupy):
    looked_up(name)


# ---------------------------------------------------------------- what a GPU shows at times only


def test_memory_holds_garbage_until_the_stream_is_waited_for(cupy):
    cp = cupy.cupy
    with cupy.Stream(non_blocking=True) as stream:
        x = cp.asarray([1.0, 2.0]) * 3.0

    assert np.isnan(x.get()).all()
    assert x.get(stream=stream).tolist() == [3, 6]


def test_the_null_stream_keeps_order_with_blocking_streams_only(cupy):
    cp = cupy.cupy
    seen = []
    for blocking in (True, False):
        with cupy.Stream(non_blocking=not blocking):
            x = cp.asarray([1.0])
        seen.append((x * 2.0).get().tolist() == [2.0])

    assert seen == [True, False]


def test_a_fault_is_raised_by_the_next_wait_and_from_then_on(cupy):
    cp = cupy.cupy

    def body(x):
        raise cupy.Fault

    x = cp.ones(2)
    cp.RawKernel(body)((1,), (1,), (x,))
    y = x + 1.0

    for _ in range(2):
        with pytest.raises(cp.cuda.runtime.CUDARuntimeError, match="IllegalAddress"):
            y.get()


def test_kernels_refuse_arrays_of_another_device_and_raw_kernels_fault(cupy):
    cp = cupy.cupy
    x = cp.ones(2)
    with cupy.Device(1):
        with pytest.raises(ValueError, match="different from the current device"):
            x + 1.0
        cp.RawKernel(lambda x: None)((1,), (1,), (x,))
        with pytest.raises(cp.cuda.runtime.CUDARuntimeError):
            cupy.Device(1).synchronize()
