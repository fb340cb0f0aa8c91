"""Derivatives that libraries of arrays supply: layers with a callback, operators with an adjoint,
and kernels of NVIDIA Warp, whose adjoints Warp writes itself and records on a tape.

Each function returns a `ByHand`, for arrays of NumPy, CuPy, or whatever the library takes.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from adjudge import ByHand, InputError
from adjudge.errors import installed_by


def linear(operator: Any, *, adjoint: Callable[[Any], Any] | None = None) -> ByHand:
    """Returns `x -> A x` with all its derivatives, for an operator with its adjoint.

    `operator` has `matvec` and `rmatvec`, as those of PyLops and SciPy, on vectors of `shape[1]`
    and `shape[0]` entries; or it is a function `A`, with `adjoint=` its adjoint for the real inner
    product. Forward against reverse mode is the dot test, `<w, A v> = <A* w, v>`, an exact
    identity: check with `check_forward_ad=True`. Raises `InputError` where there is no adjoint.
    """
    forward = getattr(operator, "matvec", operator)
    back = adjoint if adjoint is not None else getattr(operator, "rmatvec", None)
    if back is None or not callable(forward):
        raise InputError(
            f"the operator is a {type(operator).__name__} without matvec and rmatvec",
            "pass a PyLops or SciPy operator, or a function and adjoint=",
        )
    name = getattr(operator, "__name__", type(operator).__name__)

    def apply(x: Any) -> Any:
        return forward(x)

    apply.__name__ = str(name)
    # J* w = A* w, whose own derivatives are zero in x and A in w
    rule = ByHand(
        lambda x, w: back(w),
        vjp=lambda x, w, u: (None, forward(u)),
        jvp=lambda x, w, dx, dw: back(dw),
    )
    return ByHand(apply, vjp=rule, jvp=lambda x, v: forward(v))


def layer(forward: Callable[..., tuple[Any, Callable[[Any], Any]]]) -> ByHand:
    """Returns the rule of a layer with a callback: `forward(*x) -> (y, backprop)`.

    `backprop(w)` returns the gradient of every input.
    """
    return ByHand(pullback=forward)


def model(model: Any, *, train: bool = True) -> ByHand:
    """Returns a model of Thinc 9, or another with its methods, as a function with a pullback.

    The function is called as `f(parameters, X)`, with `parameters` as `parameters_of(model)` gives
    them. Every evaluation sets them in the model. Every pullback begins with gradients of zero and
    calls the callback twice: what the second call adds to what the first one left is the gradient,
    so that a layer which overwrites has none. Call within `adjudge`'s checks only: the model holds
    the parameters of the last evaluation afterwards.
    """
    nodes = _parameter_nodes(model)

    def accumulated() -> dict[str, Any]:
        return {
            name: node.get_grad(own).copy() if node.has_grad(own) else None
            for name, (node, own) in nodes.items()
        }

    def pullback(parameters: Mapping[str, Any], X: Any) -> tuple[Any, Callable[[Any], Any]]:
        for name, (node, own) in nodes.items():
            node.set_param(own, parameters[name].copy())
        Y, backprop = model(X, is_train=train)

        def back(w: Any) -> Any:
            for node, own in nodes.values():
                if node.has_grad(own):
                    node.set_grad(own, 0 * node.get_param(own))
            of_X = backprop(w)
            once = accumulated()
            backprop(w)
            twice = accumulated()
            of_parameters = {k: None if g is None else g - once[k] for k, g in twice.items()}
            return of_parameters, of_X

        return Y, back

    pullback.__name__ = str(getattr(model, "name", type(model).__name__))
    return ByHand(pullback=pullback)


def parameters_of(model: Any) -> dict[str, Any]:
    """Returns copies of the parameters of a model of Thinc, by node and parameter: `0.linear.W`."""
    return {
        name: node.get_param(own).copy() for name, (node, own) in _parameter_nodes(model).items()
    }


def _parameter_nodes(model: Any) -> dict[str, tuple[Any, str]]:
    if not hasattr(model, "walk"):
        raise InputError(
            f"the model is a {type(model).__name__}, which has no walk()",
            "pass a thinc.model.Model that is initialized",
        )
    return {
        f"{k}.{node.name}.{own}": (node, own)
        for k, node in enumerate(model.walk())
        for own in node.param_names
        if node.has_param(own)
    }


# ---------------------------------------------------------------- Warp


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
