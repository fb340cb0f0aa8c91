"""CuPy as an adjudge backend: arrays on a GPU, whose derivatives are supplied by hand.

Files named below are of CuPy 14.2.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjudge.engine import (
    EPS,
    Array,
    ArrayInfo,
    ArrayOperations,
    Arrays,
    Environment,
    HostArray,
    MaybeArrays,
    PlainArrays,
    PlainBackend,
    Precision,
    Setting,
    memory_span,
    restored,
)

cupy: Any = importlib.import_module("cupy")  # untyped, and absent where nobody has a GPU
namespace: Any = importlib.import_module("array_api_compat.cupy")
arithmetic: Any = importlib.import_module("cupy._core._routines_linalg")
generators: Any = importlib.import_module("cupy.random._generator")

KEPT = 1 / 64
"""The part of a device's memory that may lie free in CuPy's pool after a check.

CuPy itself empties the pool where it runs out of memory (cuda/memory.pyx, `_try_malloc`), so that
what is kept is in the way of other libraries and processes alone. A block that is given back waits
for the device, and costs the next check a `cudaMalloc`. The limit is a part of what all of them
share, and not a number of bytes; its size is ours."""

DTYPES = frozenset(np.dtype(code).name for code in "?bhilqBHILQefdFD")
"""The names of the dtypes of NumPy that CuPy has."""


@cache
def why_absent() -> str | None:
    """Returns why no array can be held; `None` where one can.

    CuPy imports without a GPU, so that an import says nothing (https://docs.cupy.dev,
    `cupy.is_available`).
    """
    if cupy.is_available():
        return None
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        driver = cupy.cuda.runtime.driverGetVersion()
        missing = "no NVIDIA driver was found: " if driver == 0 else ""
        return f"{missing}{error}"
    return f"CUDA sees {count} devices"


class CupyBackend(PlainBackend):
    """CuPy, which has no derivatives of its own. Contract: see `AutodiffBackend`."""

    def __init__(self) -> None:
        """The namespace is that of array-api-compat."""
        super().__init__(namespace)

    def owns(self, leaf: object) -> bool:
        return isinstance(leaf, cupy.ndarray)

    @cached_property
    def arrays(self) -> ArrayOperations:
        return CupyArrays(self.name, namespace)

    @cached_property
    def environment(self) -> Environment:
        return CupyEnvironment(str(cupy.__version__))


# ---------------------------------------------------------------- arrays


class CupyArrays(PlainArrays):
    """Operations on CuPy's arrays. Contract: see `ArrayOperations`.

    A device is called by CUDA's number: `cuda:0`. Every operation enters the device of its array,
    since CuPy makes new arrays on the current one.
    """

    def info(self, array: Array) -> ArrayInfo:
        return ArrayInfo(tuple(array.shape), array.dtype.name, f"cuda:{array.device.id}")

    def devices(self) -> list[str]:
        if why_absent():
            return []
        return [f"cuda:{k}" for k in range(cupy.cuda.runtime.getDeviceCount())]

    def dtypes(self) -> list[str]:
        return ["float64", "float32", "float16", "complex128", "complex64"]

    def to_host(self, array: Array, like: Array | None = None) -> HostArray:
        wide = np.complex128 if self.is_complex(array) else np.float64
        with _on(array):
            # to fetch a strided array CuPy enters the stream by `with`, which forgets it afterwards
            whole = array if array.flags.c_contiguous else array.copy()
            host = cupy.asnumpy(whole, stream=cupy.cuda.get_current_stream(), blocking=True)
        # with CUPY_ENABLE_UMP=1 it is the memory of the array itself
        return np.asarray(host.astype(wide, copy=not host.flags.owndata))

    def from_host(self, host: HostArray, like: Array) -> Array:
        fortran = like.flags.f_contiguous and not like.flags.c_contiguous
        with _on(like):
            return _laid_out(cupy.array(host.astype(like.dtype, "F" if fortran else "C")), like)

    def make(self, values: NDArray[Any], dtype: str, device: str | None = None) -> Array:
        if dtype not in DTYPES:
            raise self.lacks_dtype(dtype)
        with self._device(device):
            return cupy.array(values.astype(dtype, "C"))

    def copy(self, array: Array) -> Array:
        with _on(array):
            return _laid_out(array.copy(order="K"), array)

    def place(self, array: Array, device: str) -> Array:
        there: Any = self._device(device)
        # contiguous, which CuPy demands between devices, and there before the other device's
        # stream reads it
        with _on(array):
            whole = array.copy()
            cupy.cuda.get_current_stream().synchronize()
        with there:
            moved = whole.copy()
            cupy.cuda.get_current_stream().synchronize()
            return _laid_out(moved, array)

    def widen(self, array: Array) -> Array:
        with _on(array):
            wide = np.complex128 if self.is_complex(array) else np.float64
            return _laid_out(array.astype(wide), array)

    def noncontiguous(self, array: Array) -> Array:
        with _on(array):
            return cupy.stack([array, cupy.zeros_like(array)], axis=-1)[..., 0]

    def expanded(self, array: Array, axis: int | None = None) -> Array | None:
        if array.size < 2:
            return None
        with _on(array):
            first = array.reshape(-1)[0] if axis is None else array.take([0], axis)
            return cupy.broadcast_to(first.copy(), array.shape)

    def stack(self, arrays: Sequence[Array]) -> Array:
        with _on(arrays[0]):
            return cupy.stack(list(arrays))

    def zeros_for_absent(self, values: MaybeArrays, like: Arrays) -> Arrays:
        found = []
        for value, leaf in zip(values, like, strict=True):
            with _on(leaf):  # zeros_like makes zeros on the current device
                found.append(cupy.zeros_like(leaf) if value is None else value)
        return tuple(found)

    def _device(self, name: str | None) -> Any:
        if reason := why_absent():
            raise self.lacks("every device", reason)
        if name is None or name == "cuda":
            return cupy.cuda.Device()
        if name in self.devices():
            return cupy.cuda.Device(int(name.removeprefix("cuda:")))
        raise self.lacks_device(name)


def _laid_out(array: Array, like: Array) -> Array:
    """Returns `array`, which is new, with the strides of `like` where a copy should have them.

    There are zeros in the gaps.
    """
    size = like.itemsize
    steps = [stride // size for stride in like.strides]
    wanted = tuple(step * array.itemsize for step in steps)
    if wanted == array.strides or array.size == 0 or any(s % size for s in like.strides):
        return array
    span = memory_span(like.shape, steps)
    if span is None:
        return array
    whole = cupy.zeros(span, array.dtype)
    forwards = tuple(abs(stride) for stride in wanted)
    view = cupy.lib.stride_tricks.as_strided(whole, like.shape, forwards)
    view = view[tuple(slice(None, None, -1 if step < 0 else 1) for step in steps)]
    view[...] = array
    return view


# ---------------------------------------------------------------- environment


class CupyEnvironment(Environment):
    """Devices, streams, generators and compute types. Contract: see `Environment`."""

    def unavailable(self) -> str | None:
        return why_absent()

    def isolation(self, leaves: Sequence[Array]) -> AbstractContextManager[None]:
        return _isolated([leaf.device for leaf in leaves])

    def call_context(self, x: Arrays) -> AbstractContextManager[None]:
        return _calling([leaf.device for leaf in x])

    def random_state(self) -> Hashable:
        """Returns which generators there are, and the part of their state that can be read.

        Within `isolation` there is none at first, so that one that is made says that numbers were
        drawn; cuRAND does not say how many.
        """
        states = sorted(generators._random_states.items())
        return tuple((device, id(state), int(state._rk_seed)) for device, state in states)

    def set_random_state(self, state: Hashable) -> None:
        restart = getattr(generators._random_states, "restart", None)
        if restart is not None:  # within `isolation`
            restart()

    @contextmanager
    def highest_precision(self) -> Iterator[None]:
        computes = [
            Setting(partial(_computes_in, dtype), partial(arithmetic.set_compute_type, dtype))
            for dtype in (np.float16, np.float32, np.float64)
        ]
        with restored(*computes):
            for setting in computes:
                setting.write(arithmetic.COMPUTE_TYPE_PEDANTIC)
            yield

    def precision(self, array: Array) -> Precision:
        single = array.dtype in (np.float32, np.complex64)
        if single and _computes_in(np.float32) == arithmetic.COMPUTE_TYPE_TF32:
            return Precision(EPS["tf32"], "CUPY_TF32=1")
        return Precision()

    def determinism_setting(self, array: Array) -> str:
        return (
            "atomicAdd adds in any order (cupyx.scatter_add, cupy.add.at, cupy.bincount, and your "
            "own kernels): sort, or reduce in a fixed order"
        )


def _computes_in(dtype: Any) -> int:
    return int(arithmetic.get_compute_type(np.dtype(dtype)))


@dataclass
class _Place:
    """The current device, and the current stream of every device, of this thread."""

    device: Any
    streams: list[Any]
    used: set[int] = field(default_factory=set)
    """The devices on which the check has arrays. No other device is made current, which would cost
    a context of some hundred megabytes there."""

    @classmethod
    def now(cls) -> _Place:
        count = cupy.cuda.runtime.getDeviceCount()
        return cls(cupy.cuda.Device(), [cupy.cuda.get_current_stream(k) for k in range(count)])

    def restore(self) -> None:
        """Makes the device and the streams current again.

        This is done by `use()`. A `with` would restore the stream of the user's own `with`, and not
        the one that `use()` made current (cuda/stream.pyx, `pop_stream`).
        """
        for k, stream in enumerate(self.streams):
            if cupy.cuda.get_current_stream(k) is not stream:
                cupy.cuda.Device(k).use()
                stream.use()
        self.device.use()

    def home(self, devices: Sequence[Any]) -> Any:
        """Returns the device on which to run what has arrays on these: the user's where it is one
        of them.
        """
        home = self.device if not devices or self.device in devices else devices[0]
        self.used |= {home.id, *(device.id for device in devices)}
        return home

    def wait(self) -> None:
        """Waits for all streams of the devices in use: a call may launch on streams of its own."""
        with ExitStack() as each:
            for k in sorted(self.used):
                each.callback(cupy.cuda.Device(k).synchronize)


_ENTRY: ContextVar[_Place | None] = ContextVar("entry", default=None)
"""The device and the streams at the entry of the check."""


@contextmanager
def _on(array: Array) -> Iterator[None]:
    """Enters the device of `array`, for which later calls of the function wait, too."""
    if (entry := _ENTRY.get()) is not None:
        entry.used.add(array.device.id)
    with array.device:
        yield


@contextmanager
def _afterwards(step: Callable[[], None]) -> Iterator[None]:
    """Takes the step at the end.

    What the device reports then does not take the place of an exception that is on its way.
    """
    try:
        yield
    except BaseException as error:
        try:
            step()
        except cupy.cuda.runtime.CUDARuntimeError as late:
            error.add_note(f"adjudge: after that the device reported {late}")
        raise
    step()


@contextmanager
def _isolated(devices: Sequence[Any]) -> Iterator[None]:
    """Restores device, streams and generators at the end, and empties large pools."""
    if why_absent():
        yield
        return
    entry, outer, states = _Place.now(), _ENTRY.get(), generators._random_states
    home = entry.home(devices)
    try:
        entry.wait()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        error.add_note("adjudge: raised by what was launched before the check")
        raise
    generators._random_states = _StandIns(states)
    _ENTRY.set(entry)
    try:
        with _afterwards(entry.restore), _afterwards(lambda: _release(entry.used)):
            home.use()
            yield
    finally:
        generators._random_states = states
        _ENTRY.set(outer)


@contextmanager
def _calling(devices: Sequence[Any]) -> Iterator[None]:
    """Runs a call on the device of its arrays and on the streams at the entry of the check.

    Afterwards it waits for what was launched, also where the call raises, so that an error of a
    kernel is raised by its call.
    """
    before = _Place.now()
    entry = _ENTRY.get() or before
    home = entry.home(devices)
    with _afterwards(before.restore), _afterwards(entry.wait):
        _Place(home, entry.streams).restore()
        yield


class _StandIns(dict[int, Any]):
    """Generators in place of the user's, one a device, each made when it is asked for: cuRAND says
    neither how many numbers were drawn nor goes back. They begin at the user's seeds, so that a
    check of a function that draws is repeatable where its user seeds.
    """

    def __init__(self, users: dict[int, Any]) -> None:
        super().__init__()
        self._users = {**getattr(users, "_users", {}), **users}

    def get(self, device: int, default: Any = None) -> Any:
        own = self._users.get(device)
        if device not in self and own is not None:
            self[device] = cupy.random.RandomState(own._rk_seed, own.method)
        return super().get(device, default)

    def restart(self) -> None:
        """Lets every generator be made again, at its seed, when it is asked for."""
        self._users |= self
        self.clear()


def _release(devices: set[int]) -> None:
    """Gives back what lies free in large pools; blocks in use stay.

    Pinned memory, whose pool does not say how large it is, mirrors what was copied to the devices.
    """
    pool = cupy.get_default_memory_pool()  # of the current device
    for k in sorted(devices):
        with cupy.cuda.Device(k):
            if pool.free_bytes() > KEPT * _memory(k):
                pool.free_all_blocks()
                cupy.get_default_pinned_memory_pool().free_all_blocks()


@cache
def _memory(device: int) -> int:
    return int(cupy.cuda.Device(device).mem_info[1])
