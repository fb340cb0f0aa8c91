"""CuPy as a GPU would run it, on the host: devices, streams that defer, errors that come late.

It stands in for the modules `cupy`, `cupy.random._generator` and `cupy._core._routines_linalg`, and
the real `array_api_compat.cupy` runs on top of it. What it models is what the source of CuPy 14.2
does (file names below are of that source):

- A kernel is queued on the current stream of the current device, and runs when the host waits for
  that stream, or for the device, or fetches something through it. Memory that was not written yet
  holds NaN. The null stream keeps order with blocking streams of its device.
- Every array is computed twice: when it is launched, in the order of the program (`_then`, which
  gives shapes and dtypes), and when it runs, from what memory then holds (`_now`, what is fetched).
- An array of another device than the current one is refused (no peer access), but by raw kernels,
  which fault. A fault is raised where the host next waits for the device, and at every call after.
- `with stream` restores the stream of the enclosing `with`, and forgets one that was made current
  by `use()`; fetching a strided array does that, too (cuda/stream.pyx, _core/core.pyx).

A test executes this module anew: its globals are one machine.
"""

import contextlib
import itertools
import math
import weakref
from collections import Counter, defaultdict, deque
from types import ModuleType, SimpleNamespace

import numpy as np

DEVICES, DRIVER = 2, 12080
MEMORY = 2**30
counts = Counter()
"""`synchronisations`, `to_host`, `to_device`, `launches`, `generators`, `emptied` (pools)."""
touched = {0}
"""Devices that were made current: each costs a context."""


class CUDARuntimeError(RuntimeError):
    pass


class Fault(Exception):
    """Raised by the body of a kernel: an illegal address."""


class Machine:
    def __init__(self):
        self.current, self.entered, self.faulted = 0, [], set()
        self.queues, self.order = defaultdict(deque), itertools.count()
        self.blocking = defaultdict(set)

    def set_device(self, k):
        self.check(k)
        touched.add(k)
        self.current = k

    def check(self, device):
        if not 0 <= device < DEVICES:
            raise CUDARuntimeError("cudaErrorInvalidDevice: invalid device ordinal")
        if device in self.faulted:
            raise CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access")

    def enqueue(self, run, key=None):
        key = key or stream_key(get_current_stream())
        self.check(key[0])
        self.queues[key].append((next(self.order), run))

    def drain(self, key, before=math.inf):
        queue, (device, ptr) = self.queues[key], key
        while queue and queue[0][0] < before:
            place, run = queue.popleft()
            blocking = self.blocking[device]
            # the legacy null stream and blocking streams keep order
            for other in blocking if ptr == 0 else {0} if ptr in blocking else ():
                self.drain((device, other), place)
            if device not in self.faulted:
                try:
                    run()
                except Fault:
                    self.faulted.add(device)

    def wait(self, *keys):
        counts["synchronisations"] += 1
        for key in keys:
            self.drain(key)
        for device, _ in keys:
            self.check(device)


machine = Machine()

# ---------------------------------------------------------------- cuda/device.pyx, cuda/stream.pyx


class Device:
    def __init__(self, device=None):
        self.id = machine.current if device is None else int(device)

    def __int__(self):
        return self.id

    def __eq__(self, other):
        return isinstance(other, Device) and self.id == other.id

    __hash__ = None

    def __enter__(self):
        machine.entered.append(machine.current)
        if self.id != machine.current:
            machine.set_device(self.id)
        return self

    def __exit__(self, *args):
        machine.set_device(machine.entered.pop())

    def use(self):
        machine.set_device(self.id)
        return self

    def synchronize(self):
        before = machine.current
        try:
            machine.set_device(self.id)
            machine.wait((self.id, 0), *[key for key in list(machine.queues) if key[0] == self.id])
        finally:
            machine.set_device(before)

    @property
    def mem_info(self):
        touched.add(self.id)
        return MEMORY - pools[self.id].total_bytes(), MEMORY


def stream_key(stream):
    return (machine.current if stream.device_id == -1 else stream.device_id), stream.ptr


class Stream:
    null = None
    pointers = itertools.count(100)

    def __init__(self, null=False, non_blocking=False):
        self.ptr = 0 if null else next(self.pointers)
        self.device_id = -1 if null else machine.current
        if not null and not non_blocking:
            machine.blocking[self.device_id].add(self.ptr)

    def __eq__(self, other):
        return isinstance(other, Stream) and self.ptr == other.ptr

    def __hash__(self):
        return self.ptr

    def _matched(self):
        if self.device_id not in (-1, machine.current):
            raise RuntimeError(
                f"The device that the stream is created on ({self.device_id}) does not match with "
                f"the current device ({machine.current})"
            )

    def __enter__(self):
        self._matched()
        stacks[machine.current].append(self)
        stacked.append(machine.current)
        set_current_stream(self)
        return self

    def __exit__(self, *args):
        stack = stacks[stacked.pop()]
        stack.pop()
        set_current_stream(stack[-1])

    def use(self):
        self._matched()
        set_current_stream(self)
        return self

    def synchronize(self):
        machine.wait(stream_key(self))


Stream.null = Stream(null=True)
streams = [Stream.null] * DEVICES
stacks = [[Stream.null] for _ in range(DEVICES)]
stacked = []


def set_current_stream(stream):
    streams[stream_key(stream)[0]] = stream


def get_current_stream(device_id=-1):
    return streams[machine.current if device_id == -1 else device_id]


# ---------------------------------------------------------------- cuda/memory.pyx


class Pool:
    """Of one device: what is released is kept, and given out again for the same size."""

    def __init__(self):
        self.used, self.free, self.limit = 0, Counter(), 0

    def take(self, size):
        if self.free[size]:
            self.free[size] -= 1
        self.used += size

    def give(self, size):
        self.used -= size
        self.free[size] += 1

    def free_bytes(self):
        return sum(size * count for size, count in self.free.items())

    def total_bytes(self):
        return self.used + self.free_bytes()

    def used_bytes(self):
        return self.used

    def n_free_blocks(self):
        return self.free.total()

    def free_all_blocks(self):
        counts["emptied"] += 1
        self.free.clear()

    def get_limit(self):
        return self.limit

    def set_limit(self, size):
        self.limit = size


pools, pinned = [Pool() for _ in range(DEVICES)], Pool()


class MemoryPool:
    """The pool of the current device."""

    def __getattr__(self, name):
        return getattr(pools[machine.current], name)


memory_pool = MemoryPool()


def rounded(size):
    return -(-size // 512) * 512


class Buffer:
    def __init__(self, size):
        self.device = machine.current
        if size:
            pools[self.device].take(rounded(size))
            weakref.finalize(self, pools[self.device].give, rounded(size))


# ---------------------------------------------------------------- _core/core.pyx


def garbage(shape, dtype, order="C"):
    dtype = np.dtype(dtype)
    return np.full(shape, np.nan if dtype.kind in "fc" else 113, dtype, order)


class ndarray:  # noqa: N801 its name in CuPy
    def __init__(self, shape, dtype=float, memptr=None, strides=None, order="C"):
        self._now, self._then = garbage(shape, dtype, order), garbage(shape, dtype, order)
        self._buffer = Buffer(self._now.nbytes)

    @classmethod
    def _of(cls, now, then, buffer):
        self = cls.__new__(cls)
        self._now, self._then, self._buffer = now, then, buffer
        return self

    shape = property(lambda self: self._now.shape)
    dtype = property(lambda self: self._now.dtype)
    ndim = property(lambda self: self._now.ndim)
    size = property(lambda self: self._now.size)
    strides = property(lambda self: self._now.strides)
    itemsize = property(lambda self: self._now.itemsize)
    nbytes = property(lambda self: self._now.nbytes)
    flags = property(lambda self: self._now.flags)
    device = property(lambda self: Device(self._buffer.device))

    def __array__(self, dtype=None, copy=None):
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        return getattr(cupy, ufunc.__name__)(*inputs, **kwargs)

    def __array_function__(self, func, types, args, kwargs):
        return getattr(cupy, func.__name__)(*args, **kwargs)

    def get(self, stream=None, order="C", out=None, blocking=True):
        stream = stream or get_current_stream()
        if self.size == 0:
            return np.ndarray(self.shape, self.dtype)
        source, host = self, np.empty(self.shape, self.dtype)
        with Device(self._buffer.device):
            if not self.flags.c_contiguous:
                with stream:
                    source = self.copy()
            counts["to_host"] += 1
            counts["bytes_to_host"] += source.nbytes
            memory = source._now
            machine.enqueue(lambda: host.__setitem__(..., memory), stream_key(stream))
            if blocking:
                stream.synchronize()
        return host

    def astype(self, dtype, order="K", copy=True):
        if self.size == 0:
            return ndarray(self.shape, dtype)  # nothing is launched
        flags = self._now.flags
        as_it_is = order == "K" or (flags.c_contiguous if order == "C" else flags.f_contiguous)
        if not copy and self.dtype == np.dtype(dtype) and as_it_is:
            return self
        return apply(lambda a: np.array(a, dtype, order=order), (self,))

    def copy(self, order="C"):
        if self.size == 0 or self._buffer.device == machine.current:
            return self.astype(self.dtype, order)
        with Device(self._buffer.device):
            source = self.astype(self.dtype, order, copy=False)
        if not (source.flags.c_contiguous or source.flags.f_contiguous):
            raise NotImplementedError("CuPy cannot copy non-contiguous array between devices.")
        moved = ndarray(source.shape, source.dtype, order="C" if source.flags.c_contiguous else "F")
        moved._then[...] = source._then
        target, memory = moved._now, source._now
        machine.enqueue(lambda: target.__setitem__(..., memory))
        return moved

    def __getitem__(self, index):
        parts = index if isinstance(index, tuple) else (index,)
        if all(part is None or isinstance(part, int | slice | type(...)) for part in parts):
            whole = parts if any(part is ... for part in parts) else (*parts, ...)  # no scalars
            return ndarray._of(self._now[whole], self._then[whole], self._buffer)
        return apply(lambda a, i: a[i], (self, index), hosts=True, waits=_masks(index))

    def __setitem__(self, index, value):
        apply(lambda a, i, v: a.__setitem__(i, v), (self, index, value), writes=self)

    def item(self):
        return self.get().item()

    def tolist(self):
        return self.get().tolist()

    def __len__(self):
        return len(self._now)

    def __iter__(self):
        return (self[k] for k in range(len(self)))

    def __bool__(self):
        return bool(self.get())

    def __float__(self):
        return float(self.get())

    def __int__(self):
        return int(self.get())

    def __complex__(self):
        return complex(self.get())

    def __index__(self):
        return self.get().__index__()

    def __repr__(self):
        return repr(self.get())


ndarray.__module__ = "cupy"


def _masks(index):
    parts = index if isinstance(index, tuple) else (index,)
    return any(np.dtype(getattr(part, "dtype", int)).kind == "b" for part in parts)


def _method(name, in_place=False):
    def method(self, *args, **kwargs):
        return apply(
            lambda a, *b, **kw: getattr(a, name)(*b, **kw), (self, *args), kwargs,
            writes=self if in_place else None,
        )  # fmt: skip

    return method


BINARY = "add sub mul truediv floordiv mod pow matmul lshift rshift and or xor"
for _name in BINARY.split():
    for _form in ("__%s__", "__r%s__"):
        setattr(ndarray, _form % _name, _method(_form % _name))
    setattr(ndarray, f"__i{_name}__", _method(f"__i{_name}__", in_place=True))
METHODS = """
__neg__ __pos__ __abs__ __invert__ __lt__ __le__ __eq__ __ne__ __gt__ __ge__ reshape transpose ravel
squeeze sum prod mean max min any all dot conj cumsum swapaxes round clip argmax argmin take repeat
trace diagonal std var
"""
for _name in METHODS.split():
    setattr(ndarray, _name, _method(_name))
for _name in ("T", "mT", "real", "imag"):
    setattr(ndarray, _name, property(lambda self, n=_name: apply(lambda a: getattr(a, n), (self,))))
ndarray.fill = _method("fill", in_place=True)
ndarray.__hash__ = None


def _walk(tree, change):
    if isinstance(tree, tuple | list):
        return type(tree)(_walk(node, change) for node in tree)
    return change(tree)


def apply(function, args, kwargs=None, *, writes=None, hosts=False, waits=False, anywhere=False):
    """`function` of NumPy on arrays: a view, or a kernel whose results are new memory.

    `writes`: the array that it writes into. `hosts`: host arrays may be among the arguments.
    `waits`: the host waits for the result's shape. `anywhere`: no data of the arguments are read.
    """
    tree, given = [tuple(args), tuple((kwargs or {}).values())], []
    names = tuple(kwargs or {})
    _walk(tree, given.append)
    arrays = [leaf for leaf in given if isinstance(leaf, ndarray)]
    if not hosts and any(isinstance(leaf, np.ndarray) for leaf in given):
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")

    def memory(which):
        return _walk(tree, lambda a: getattr(a, which) if isinstance(a, ndarray) else a)

    def compute(held):
        with np.errstate(all="ignore"):
            return function(*held[0], **dict(zip(names, held[1], strict=True)))

    found, now = compute(memory("_then")), memory("_now")
    writes = (kwargs or {}).get("out", writes)
    whole = found if isinstance(found, tuple | list) else (found,)
    results = [r for r in whole if isinstance(r, np.ndarray | np.generic)]
    sources = [
        next((a for a in arrays if isinstance(r, np.ndarray) and r.size and
              np.may_share_memory(r, a._then)), None)
        for r in results
    ]  # fmt: skip
    if writes is None and results and all(source is not None for source in sources):  # views
        seen = compute(now)
        seen = iter(seen if isinstance(found, tuple | list) else (seen,))
        each = iter(sources)
        made = [ndarray._of(next(seen), r, next(each)._buffer) for r in results]
    elif writes is None and not results:
        return found
    else:
        for array in () if anywhere else arrays:
            if array._buffer.device != machine.current:
                raise ValueError(
                    f"The device where the array resides ({array._buffer.device}) is different "
                    f"from the current device ({machine.current}). "
                    "Peer access is unavailable between these devices."
                )
        made = [] if writes is not None else [_new(r) for r in results]
        targets = [array._now for array in made]  # what is queued keeps no array alive

        def run():
            again = compute(now)
            if targets:
                listed = again if isinstance(again, tuple | list) else (again,)
                kept = [r for r in listed if isinstance(r, np.ndarray | np.generic)]
                for target, r in zip(targets, kept, strict=True):
                    if np.shape(r) == target.shape:  # else it hangs on memory not yet written
                        target[...] = r

        counts["launches"] += 1
        machine.enqueue(run)
        if waits:
            get_current_stream().synchronize()
        if writes is not None:
            return writes
    if not isinstance(found, tuple | list):
        return made[0]
    parts = iter(made)
    parts = [next(parts) if isinstance(r, np.ndarray | np.generic) else r for r in found]
    return type(found)(*parts) if hasattr(found, "_fields") else type(found)(parts)


def _new(result):
    result = np.asarray(result)
    order = "F" if result.flags.fnc else "C"
    array = ndarray(result.shape, result.dtype, order=order)
    array._then[...] = result
    return array


def array(obj, dtype=None, copy=True, order="K", **_):
    if isinstance(obj, ndarray):
        if obj._buffer.device != machine.current:
            return obj.copy(order).astype(dtype or obj.dtype, copy=False)
        return obj.astype(dtype or obj.dtype, order, bool(copy))
    if isinstance(obj, list | tuple) and any(isinstance(leaf, ndarray) for leaf in obj):
        return cupy.stack([array(leaf, dtype) for leaf in obj])
    host = np.array(obj, dtype)
    if host.dtype.kind not in "?biufc" or host.dtype.char in "gG":
        raise ValueError(f"Unsupported dtype {host.dtype}")
    made = ndarray(host.shape, host.dtype, order="F" if host.flags.fnc else "C")
    made._then[...] = host
    size = 2 ** math.ceil(math.log2(max(512, host.nbytes)))
    pinned.take(size)

    target = made._now

    def transfer():
        target[...] = host
        pinned.give(size)

    counts["to_device"] += 1
    machine.enqueue(transfer)
    return made


def as_strided(x, shape, strides):
    stride = np.lib.stride_tricks.as_strided
    return ndarray._of(stride(x._now, shape, strides), stride(x._then, shape, strides), x._buffer)


class RawKernel:
    """`body(*arrays)` on memory, in place of CUDA source; no one looks at devices."""

    def __init__(self, body):
        self.body = body

    def __call__(self, grid, block, args):
        arrays = [a for a in args if isinstance(a, ndarray)]
        away = any(a._buffer.device != machine.current for a in arrays)

        def memory(which):
            return [getattr(a, which) if isinstance(a, ndarray) else a for a in args]

        def run(pointers):
            if away:
                raise Fault
            self.body(*pointers)

        counts["launches"] += 1
        with contextlib.suppress(Fault):
            run(memory("_then"))
        pointers = memory("_now")
        machine.enqueue(lambda: run(pointers))


# ---------------------------------------------------------------- random/_generator.py


class RandomState:
    def __init__(self, seed=None, method=100):
        counts["generators"] += 1
        self.method = method
        self.seed(seed)

    def seed(self, seed=None):
        self._rk_seed = int(np.random.SeedSequence().entropy % 2**64) if seed is None else int(seed)
        self._generator = np.random.default_rng(self._rk_seed)

    def rand(self, *shape):
        return array(self._generator.random(shape))


def get_random_state():
    states = generator._random_states
    found = states.get(machine.current, None)
    return states.setdefault(machine.current, RandomState()) if found is None else found


# ---------------------------------------------------------------- _core/_routines_linalg.pyx

compute_types = dict.fromkeys("efd", 1)


def _index(dtype):
    return {"F": "f", "D": "d"}.get(np.dtype(dtype).char, np.dtype(dtype).char)


def set_compute_type(dtype, kind):
    compute_types[_index(dtype)] = kind


# ---------------------------------------------------------------- the modules


def module(name, **content):
    made = ModuleType(name)
    made.__path__ = []
    vars(made).update(content)
    return made


WAITS = {"nonzero", "flatnonzero", "argwhere", "unique", "unique_all", "unique_counts",
         "unique_inverse", "unique_values", "extract", "compress"}  # fmt: skip


def forwarded(namespace):
    """The functions of a namespace of NumPy on arrays; types and constants as they are."""
    found = {}
    for name in dir(namespace):
        if name.startswith("_") or isinstance(value := getattr(namespace, name), ModuleType):
            continue
        function = callable(value) and not isinstance(value, type)
        found[name] = _forwarded(name, value) if function else value
    return found


def _forwarded(name, function):
    def forward(*args, **kwargs):
        return apply(
            function, args, kwargs, waits=name in WAITS, anywhere=name.endswith("_like")
        )  # fmt: skip

    forward.__name__ = name
    return forward


def device_count():
    if DRIVER == 0:
        raise CUDARuntimeError("cudaErrorInsufficientDriver: CUDA driver version is insufficient")
    return DEVICES


runtime = SimpleNamespace(
    CUDARuntimeError=CUDARuntimeError,
    getDeviceCount=device_count,
    driverGetVersion=lambda: DRIVER,
)
cuda = module(
    "cupy.cuda", Device=Device, Stream=Stream, get_current_stream=get_current_stream,
    runtime=runtime,
)  # fmt: skip
device_module = module("cupy.cuda.device", Device=Device)
generator = module(
    "cupy.random._generator", _random_states={}, RandomState=RandomState,
    get_random_state=get_random_state,
)  # fmt: skip
random = module(
    "cupy.random", _generator=generator, RandomState=RandomState, get_random_state=get_random_state,
    seed=lambda seed=None: get_random_state().seed(seed),
    rand=lambda *shape: get_random_state().rand(*shape),
)  # fmt: skip
linalg_types = module(
    "cupy._core._routines_linalg", COMPUTE_TYPE_DEFAULT=1, COMPUTE_TYPE_PEDANTIC=2,
    COMPUTE_TYPE_TF32=7, get_compute_type=lambda dtype: compute_types[_index(dtype)],
    set_compute_type=set_compute_type,
)  # fmt: skip
core = module("cupy._core", _routines_linalg=linalg_types)
linalg = module("cupy.linalg", **forwarded(np.linalg))
fft = module("cupy.fft", **forwarded(np.fft))
stride_tricks = module("cupy.lib.stride_tricks", as_strided=as_strided)
lib = module("cupy.lib", stride_tricks=stride_tricks)
cupy = module("cupy", **forwarded(np))
vars(cupy).update(
    __version__="simulated", ndarray=ndarray, array=array, cuda=cuda, random=random, lib=lib,
    asarray=lambda obj, dtype=None, **_: array(obj, dtype, copy=False), linalg=linalg, fft=fft,
    asnumpy=lambda a, stream=None, order="C", out=None, *, blocking=True: (
        a.get(stream, order, out, blocking)
    ),
    ascontiguousarray=lambda a: a if a.flags.c_contiguous else a.copy(),
    is_available=lambda: DEVICES * DRIVER > 0, _core=core, RawKernel=RawKernel,
    get_default_memory_pool=lambda: memory_pool, get_default_pinned_memory_pool=lambda: pinned,
)  # fmt: skip
MODULES = {
    value.__name__: value
    for value in list(globals().values())
    if isinstance(value, ModuleType) and value.__name__.startswith("cupy")
}
