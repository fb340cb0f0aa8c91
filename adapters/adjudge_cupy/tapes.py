"""NVIDIA Warp: kernels whose adjoints Warp writes itself, recorded on a tape."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from adjudge import ByHand
from adjudge.errors import installed_by


def warp_kernel(
    kernel: Any,
    dim: int | tuple[int, ...],
    like: Sequence[Any] | Callable[..., Sequence[Any]],
    *,
    constants: Sequence[Any] = (),
) -> ByHand:
    """Returns a Warp kernel as a function of arrays, differentiated by `warp.Tape`.

    The kernel is launched as `kernel(*inputs, *constants, *outputs)` over `dim`. `like`: one array
    per output, of its shape and dtype, or a function of the inputs that makes them. Inputs and
    outputs are NumPy arrays, on Warp's CPU device, or CuPy arrays, which Warp shares through DLPack
    on theirs, and on CuPy's current stream instead of its own. Outputs begin as zeros.
    """
    with installed_by("pip install warp-lang"):
        wp: Any = importlib.import_module("warp")

    def pullback(*inputs: Any) -> tuple[Any, Callable[[Any], Any]]:
        with _stream_of(wp, inputs[0]):
            made = like(*inputs) if callable(like) else like
            x = [_to_warp(wp, array, grad=True) for array in inputs]
            y = [_to_warp(wp, 0 * array, grad=True) for array in made]
            tape = wp.Tape()
            with tape:
                wp.launch(kernel, dim=dim, inputs=[*x, *constants], outputs=y, device=y[0].device)
            results = [_from_warp(out) for out in y]

        def back(w: Any) -> Any:
            cotangents = [w] if len(y) == 1 else w
            with _stream_of(wp, inputs[0]):
                tape.zero()
                grads = {
                    out: _to_warp(wp, c, grad=False)
                    for out, c in zip(y, cotangents, strict=True)
                    if c is not None
                }
                tape.backward(grads=grads)
                found = tuple(_from_warp(leaf.grad) for leaf in x)
            return found[0] if len(found) == 1 else found

        return results[0] if len(results) == 1 else tuple(results), back

    pullback.__name__ = str(getattr(kernel, "key", "kernel"))
    return ByHand(pullback=pullback)


def _on_gpu(array: Any) -> bool:
    return hasattr(array, "__cuda_array_interface__")


@contextmanager
def _stream_of(wp: Any, array: Any) -> Iterator[None]:
    """Runs Warp on CuPy's current stream of the array's device.

    Warp launches on a stream of its own, which waits for no stream of CuPy's: kernels would read
    arrays that are still being written. Either stream waits for the other at entry and exit, for
    the sake of constants that Warp made, and of memory that it frees.
    """
    if not _on_gpu(array):
        yield
        return
    cupy: Any = importlib.import_module("cupy")
    device = wp.get_cuda_device(array.device.id)
    with array.device:
        address = cupy.cuda.get_current_stream().ptr
        stream = wp.Stream(device, cuda_stream=address) if address else device.null_stream
        with wp.ScopedStream(stream, sync_enter=True, sync_exit=True):
            yield


def _to_warp(wp: Any, array: Any, *, grad: bool) -> Any:
    if _on_gpu(array):
        shared = wp.from_dlpack(array.copy())
        shared.requires_grad = grad
        return shared
    return wp.array(
        array.copy(), dtype=wp.dtype_from_numpy(array.dtype), device="cpu", requires_grad=grad
    )


def _from_warp(array: Any) -> Any:
    if array.device.is_cpu:
        return array.numpy().copy()
    cupy: Any = importlib.import_module("cupy")
    return cupy.from_dlpack(array).copy()
