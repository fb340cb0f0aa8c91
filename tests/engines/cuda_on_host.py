"""CUDA C on the CPU: the very source of a kernel, compiled by g++ and run on NumPy arrays.

`Module(source).get_function(name)(grid, block, arguments)` is called as CuPy's `RawModule` is, with
NumPy arrays in place of CuPy's; `Elementwise` is called as `cupy.ElementwiseKernel`. Every thread
of the grid is a coroutine (cuda_on_host.h), so that `__syncthreads`, `__shared__` and `atomicAdd`
mean what they mean on a GPU, and so do the mistakes that are made with them:

- `order="lockstep"`: each thread of a block runs up to its next store, then all of them store, in
  the order of the threads. So what the lanes of a warp do who add to one address without an
  atomic: all load, then each overwrites the one before it. It is the same in every run.
- `order="shuffled"`: at every store the thread that goes on is drawn anew, and so is the order of
  the blocks, by a generator that goes on from launch to launch: a race that differs between runs,
  and atomic additions that are made in any order.

Both are orders that CUDA allows, so a kernel that is wrong here is wrong on a GPU. The converse
does not hold: a race may need an order that is not met here, memory beyond an array is not
guarded, blocks do not overlap, and the mathematical functions are those of the host.
"""

import ctypes
import hashlib
import re
import shutil
import subprocess
import tempfile
from functools import cache
from itertools import count
from pathlib import Path

import numpy as np

HEADER = Path(__file__).with_suffix(".h")
KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\(")
ORDERS = {"lockstep": 0, "shuffled": 1}
COMPILER = ["-std=c++17", "-O1", "-fPIC", "-Wno-unknown-pragmas"]

ENTRY = """
extern "C" int launch_{name}(const unsigned* size, void** arguments, int count, int order,
                             unsigned long seed) {{
    return host::launch({name}, size, arguments, count, order, seed);
}}
"""


@cache
def why_absent():
    """Why no kernel can be compiled here; `None` where one can."""
    if shutil.which("g++") is None:
        return "g++ is absent, so CUDA C cannot be compiled for the host: apt-get install g++"
    try:
        compiled('extern "C" __global__ void nothing() {}')
    except (OSError, subprocess.CalledProcessError) as error:
        return f"g++ cannot compile CUDA C for the host: {getattr(error, 'stderr', '') or error}"
    return None


@cache
def _folder():
    return tempfile.TemporaryDirectory(prefix="cuda-on-host-")


@cache
def compiled(source):
    """The shared library of a CUDA source, with an entry for each of its kernels."""
    path = Path(_folder().name, hashlib.sha256(source.encode()).hexdigest()[:16])
    entries = "".join(ENTRY.format(name=name) for name in KERNEL.findall(source))
    path.with_suffix(".cpp").write_text(f'#include "{HEADER}"\n{source}\n{entries}')
    cpp, o, so = (str(path.with_suffix(suffix)) for suffix in (".cpp", ".o", ".so"))
    # compiled with the calls of the sanitizer, and linked without it
    for step in (["-fsanitize=thread", "-c", cpp, "-o", o], ["-shared", o, "-o", so]):
        subprocess.run(["g++", *COMPILER, *step], check=True, capture_output=True, text=True)  # noqa: S607
    return ctypes.CDLL(so)


class Module:
    """As `cupy.RawModule(code=source)`, for NumPy arrays."""

    def __init__(self, code, order="lockstep"):
        self._library = compiled(code)
        self._order = ORDERS[order]
        self._launches = count(1)

    def get_function(self, name):
        """`kernel(grid, block, arguments)`; numbers need a dtype, as `np.int32(7)`."""
        entry = getattr(self._library, f"launch_{name}")

        def kernel(grid, block, arguments):
            sizes = [*grid, *(1,) * (3 - len(grid)), *block, *(1,) * (3 - len(block))]
            size = (ctypes.c_uint * 6)(*map(int, sizes))
            held = [_argument(value) for value in arguments]
            pointers = (ctypes.c_void_p * len(held))(*(ctypes.addressof(v) for v in held))
            seed = ctypes.c_ulong(next(self._launches))
            wanted = entry(size, pointers, len(held), self._order, seed)
            if wanted >= 0:
                raise TypeError(f"{name} takes {wanted} arguments, not {len(held)}")

        return kernel


def _argument(value):
    if isinstance(value, np.ndarray):
        if not value.flags.c_contiguous:
            raise ValueError("a kernel takes the address of its arrays: make them contiguous")
        return ctypes.c_void_p(value.ctypes.data)
    return np.ctypeslib.as_ctypes_type(value.dtype)(value.item())


NAMES = {"float64": "double", "float32": "float", "int32": "int"}


def elementwise_source(in_params, out_params, operation, name, dtype="float64"):
    """CUDA C of one thread per entry, with the operation of a `cupy.ElementwiseKernel`; `dtype` is
    that of its type `T`.

    CuPy writes its own loop around the operation, for strided arrays, when a device is there.
    """
    inputs, outputs = (_parameters(text, dtype) for text in (in_params, out_params))
    pointers = [f"const {kind}* _{p}" for kind, p in inputs]
    pointers += [f"{kind}* _{p}" for kind, p in outputs]
    lines = [f"const {kind} {p} = _{p}[i];" for kind, p in inputs]
    lines += [f"{kind}& {p} = _{p}[i];" for kind, p in outputs]
    body = "\n        ".join(lines)
    return f"""
extern "C" __global__ void {name}({", ".join(pointers)}, int _size) {{
    typedef {NAMES[dtype]} T;
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < _size) {{
        {body}
        {operation};
    }}
}}
"""


def _parameters(text, dtype):
    pairs = [parameter.split() for parameter in text.split(",")]
    return [(NAMES[dtype if kind == "T" else kind], name) for kind, name in pairs]


class Elementwise:
    """As `cupy.ElementwiseKernel`, for NumPy arrays."""

    def __init__(self, in_params, out_params, operation, name="kernel"):
        self._written = in_params, out_params, operation, name
        self._outputs = [parameter.split()[0] for parameter in out_params.split(",")]

    def __call__(self, *arrays):
        inputs = [np.ascontiguousarray(array) for array in np.broadcast_arrays(*arrays)]
        dtype, size = inputs[0].dtype.name, inputs[0].size
        made = [dtype if kind == "T" else kind for kind in self._outputs]
        outputs = [np.empty(inputs[0].shape, kind) for kind in made]
        source = elementwise_source(*self._written, dtype)
        kernel = Module(source).get_function(self._written[-1])
        kernel(((size + 127) // 128,), (128,), (*inputs, *outputs, np.int32(size)))
        return outputs[0] if len(outputs) == 1 else tuple(outputs)
