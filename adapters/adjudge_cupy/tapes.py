"""NVIDIA Warp: kernels whose adjoints Warp writes itself, recorded on a tape."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from adjudge import ByHand


def warp_kernel(
    kernel: Any,
    dim: int | tuple[int, ...],
    like: Sequence[Any] | Callable[..., Sequence[Any]],
    *,
    constants: Sequence[Any] = (),
) -> ByHand:
    """A Warp kernel as a function of arrays, differentiated by `warp.Tape`.

    The kernel is launched as `kernel(*inputs, *constants, *outputs)` over `dim`. `like`: one array
    per output, of its shape and dtype, or a function of the inputs that makes them. Inputs and
    outputs are NumPy arrays, on Warp's CPU device, or CuPy arrays, which Warp shares through DLPack
    on theirs. Outputs begin as zeros.
    """
    wp: Any = importlib.import_module("warp")

    def pullback(*inputs: Any) -> tuple[Any, Callable[[Any], Any]]:
        made = like(*inputs) if callable(like) else like
        x = [_to_warp(wp, array, grad=True) for array in inputs]
        y = [_to_warp(wp, 0 * array, grad=True) for array in made]
        tape = wp.Tape()
        with tape:
            wp.launch(kernel, dim=dim, inputs=[*x, *constants], outputs=y, device=y[0].device)

        def back(w: Any) -> Any:
            tape.zero()
            cotangents = [w] if len(y) == 1 else w
            grads = {
                out: _to_warp(wp, c, grad=False)
                for out, c in zip(y, cotangents, strict=True)
                if c is not None
            }
            tape.backward(grads=grads)
            found = tuple(
                _from_warp(wp, leaf.grad, array) for leaf, array in zip(x, inputs, strict=True)
            )
            return found[0] if len(found) == 1 else found

        results = [_from_warp(wp, out, array) for out, array in zip(y, made, strict=True)]
        return results[0] if len(results) == 1 else tuple(results), back

    pullback.__name__ = str(getattr(kernel, "key", "kernel"))
    return ByHand(pullback=pullback)


def _to_warp(wp: Any, array: Any, *, grad: bool) -> Any:
    if hasattr(array, "__cuda_array_interface__"):
        shared = wp.from_dlpack(array.copy())
        shared.requires_grad = grad
        return shared
    return wp.array(
        array.copy(), dtype=wp.dtype_from_numpy(array.dtype), device="cpu", requires_grad=grad
    )


def _from_warp(wp: Any, array: Any, like: Any) -> Any:
    if hasattr(like, "__cuda_array_interface__"):
        cupy: Any = importlib.import_module("cupy")
        return cupy.from_dlpack(wp.to_dlpack(array)).copy()
    return array.numpy().copy()
