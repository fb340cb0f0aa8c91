"""Derivatives that libraries of arrays supply: layers with a callback, operators with an adjoint.

Each function returns a `ByHand`, for arrays of NumPy, CuPy, or whatever the library takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from adjudge import ByHand, InputError


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
