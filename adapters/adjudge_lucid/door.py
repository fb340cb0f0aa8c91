"""`lucid.autograd.gradcheck` and `gradgradcheck` of Lucid 3, answered by adjudge.

The tensors that they are given decide the engine; Lucid is imported where there are none.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import adjudge
import adjudge.reference
from adjudge.check import checked_signature
from adjudge.engine import EPS, Arrays, AutodiffBackend, backend_of
from adjudge.errors import InputError, installed_by
from adjudge_lucid.importing import imported


@checked_signature
def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
) -> bool:
    """Answers like `lucid.autograd.gradcheck`: `True`, or it raises.

    Every entry of the gradient with respect to every floating input may be off by `atol`, plus
    `rtol` times the central difference with the step `eps` in double precision. Differences on
    purpose: docs/parity.md.

    Args:
        func: Returns a tensor of one number, or several outputs of which the first is one.
        inputs: The tensors that `func` is called with.
        eps, atol, rtol: Numbers for all inputs.
        raise_exception: `False` returns `False` in place of raising for a wrong gradient.

    Raises:
        AssertionError: A wrong derivative (an `adjudge.GradcheckError`, with its report).
        ValueError: The function has several outputs; no input is floating.
    """
    __tracebackhide__ = True

    @functools.wraps(func)
    def scalar(*arguments: Any) -> Any:
        first, *_ = _outputs(func(*arguments))
        if math.prod(first.shape) != 1:
            raise ValueError(
                f"gradcheck requires a scalar-valued function (got shape {tuple(first.shape)})"
            )
        return first

    return _answer(scalar, _several(inputs), eps, atol, rtol, raise_exception)


@checked_signature
def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
) -> bool:
    """Answers like `lucid.autograd.gradgradcheck`: is the gradient of the sum of all first
    derivatives of all outputs right? See `gradcheck` for the rest.

    That sum is blind to errors that cancel in it, and constant for a softmax.
    `adjudge.gradgradcheck` compares every second derivative, with `grad_outputs` as cotangents.

    Args:
        func: Returns a tensor of any shape, or several.
        inputs, eps, atol, rtol, raise_exception: See `gradcheck`.
        grad_outputs: Ignored, as by Lucid, with a warning.

    Raises:
        NotSupportedError: The engine records no gradients, as Lucid 2 does not.
    """
    __tracebackhide__ = True
    if grad_outputs is not None:
        warnings.warn(
            "grad_outputs is ignored, as Lucid ignores it: the outputs are summed. "
            "adjudge.gradgradcheck(func, inputs, grad_outputs) heeds it",
            stacklevel=3,
        )
    given = _several(inputs)
    checked, backend = _floating(given)

    def total(leaves: Arrays) -> Arrays:
        arguments = list(given)
        for k, one in zip(checked, leaves, strict=True):
            arguments[k] = one
        return (_sum(_outputs(func(*arguments))),)

    gradient = backend.vjp_map(total, len(checked))

    @functools.wraps(func)
    def summed(*leaves: Any) -> Any:
        info = backend.arrays.info(leaves[0])
        one = backend.arrays.make(np.ones(()), info.dtype.rpartition(".")[2], info.device)
        return _sum(gradient((*leaves, one)))

    leaves = tuple(given[k] for k in checked)
    return _answer(summed, leaves, eps, atol, rtol, raise_exception)


def _answer(
    function: Callable[..., Any],
    inputs: tuple[Any, ...],
    eps: float,
    atol: float,
    rtol: float,
    raise_exception: bool,
) -> bool:
    __tracebackhide__ = True
    checked, backend = _floating(inputs)
    narrow = any(backend.arrays.eps(inputs[k]) > EPS["float64"] for k in checked)
    report = adjudge.gradcheck(
        function, inputs, eps=None if narrow else eps, atol=atol, rtol=rtol, fast_mode=False,
        raise_exception=raise_exception, wrt=checked, backend=backend,
        reference=_in_double(function, inputs, eps, backend) if narrow else None,
    )  # fmt: skip
    return bool(report)


def _in_double(
    function: Callable[..., Any], inputs: tuple[Any, ...], eps: float, backend: AutodiffBackend
) -> Any:
    """Returns the central differences of `function` in double precision. In the dtype of a narrow
    input a step of 1e-6 is lost to rounding.
    """

    def difference(*x_and_v: Any) -> Any:
        x, v = x_and_v[: len(inputs)], x_and_v[len(inputs) :]

        def at(step: float) -> Any:
            moved = [
                given if tangent is None else backend.arrays.make(
                    np.asarray(host + step * tangent), "float64", backend.arrays.info(given).device
                )
                for given, host, tangent in zip(inputs, x, v, strict=True)
            ]  # fmt: skip
            return backend.arrays.to_host(function(*moved))

        return (at(eps) - at(-eps)) / (2.0 * eps)

    return adjudge.reference.derivative(jvp=difference)


def _several(values: Any) -> tuple[Any, ...]:
    return tuple(values) if isinstance(values, tuple | list) else (values,)


def _outputs(values: Any) -> tuple[Any, ...]:
    found = _several(values)
    if not found or not all(hasattr(one, "shape") for one in found):
        raise InputError(
            f"func returned {values!r}", "return a tensor, or several; is a `return` missing?"
        )
    return found


def _sum(tensors: Sequence[Any]) -> Any:
    first, *others = (tensor.sum() for tensor in tensors)
    return sum(others, first)


def _floating(inputs: Sequence[Any]) -> tuple[list[int], AutodiffBackend]:
    """Returns which inputs are differentiated, all floating ones whether marked or not, and the
    engine.
    """
    owners = [backend_of(x, f"inputs[{k}]") for k, x in enumerate(inputs)]
    found = {
        k: owner
        for k, (owner, x) in enumerate(zip(owners, inputs, strict=True))
        if owner is not None and owner.arrays.is_differentiable(x)
    }
    if not any(owners):
        with installed_by("pip install 'adjudge[lucid]'"):
            imported()
    if not found:
        raise InputError("no input is a floating tensor", "pass tensors of floats")
    return list(found), next(iter(found.values()))
