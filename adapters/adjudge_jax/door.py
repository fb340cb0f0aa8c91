"""`jax.test_util.check_grads`, `check_vjp` and `check_jvp`, answered by adjudge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import adjudge


def check_grads(
    f: Callable[..., Any],
    args: Sequence[Any],
    order: int,
    modes: Sequence[str] = ("fwd", "rev"),
    atol: float | None = None,
    rtol: float | None = None,
    eps: float | None = None,
) -> None:
    """`jax.test_util.check_grads` with its signature.

    All derivatives up to `order` in every composition of `modes`. `atol`, `rtol` and `eps` left
    out are automatic. Differences on purpose: docs/parity.md.

    Raises:
        AssertionError: A wrong derivative (an `adjudge.GradcheckError`, with its report).
        ValueError: Modes other than "fwd" and "rev".
    """
    __tracebackhide__ = True
    if not set(modes) <= {"fwd", "rev"} or not modes:
        raise ValueError(f"modes={modes!r}: give some of 'fwd' and 'rev'")
    letters = [letter for letter, mode in (("F", "fwd"), ("R", "rev")) if mode in modes]
    report = adjudge.examine(
        f, _arrays(args), modes=_compositions(letters, order), atol=atol, rtol=rtol, eps=eps
    )
    if not report:
        raise adjudge.GradcheckError(report)


def check_vjp(
    f: Callable[..., Any],
    f_vjp: Callable[..., Any],
    args: Sequence[Any],
    atol: float | None = None,
    rtol: float | None = None,
    eps: float | None = None,
    err_msg: str = "",
) -> None:
    """`jax.test_util.check_vjp`: `f_vjp(*args) -> (f(*args), transpose)` against differences."""
    __tracebackhide__ = True

    def pullback(*inputs: Any) -> tuple[Any, Callable[[Any], Any]]:
        y, transpose = f_vjp(*inputs)

        def adjoint(w: Any) -> Any:
            g = jax.tree_util.tree_map(
                jnp.conj, transpose(_like(jax.tree_util.tree_map(jnp.conj, w), y))
            )
            return g if len(inputs) != 1 else g[0]

        return y, adjoint

    rule = adjudge.ByHand(f, vjp=None, pullback=pullback)
    _require(adjudge.examine(rule, _arrays(args), atol=atol, rtol=rtol, eps=eps), err_msg)


def check_jvp(
    f: Callable[..., Any],
    f_jvp: Callable[..., Any],
    args: Sequence[Any],
    atol: float | None = None,
    rtol: float | None = None,
    eps: float | None = None,
    err_msg: str = "",
) -> None:
    """`jax.test_util.check_jvp`: `f_jvp(args, tangents) -> (f(*args), J v)` against differences."""
    __tracebackhide__ = True

    def jvp(*both: Any) -> Any:
        half = len(both) // 2
        return f_jvp(both[:half], both[half:])[1]

    report = adjudge.examine(
        adjudge.ByHand(f, jvp=jvp), _arrays(args), atol=atol, rtol=rtol, eps=eps,
        check_backward_ad=False, check_forward_ad=True,
    )  # fmt: skip
    _require(report, err_msg)


def _require(report: adjudge.Report, message: str) -> None:
    __tracebackhide__ = True
    if not report:
        error = adjudge.GradcheckError(report)
        if message:
            error.add_note(message)
        raise error


def _compositions(letters: Sequence[str], order: int) -> list[str]:
    """All words of `letters` up to the length `order`."""
    words = [""]
    found: list[str] = []
    for _ in range(order):
        words = [letter + word for letter in letters for word in words]
        found += words
    return found


def _arrays(args: Sequence[Any]) -> tuple[Any, ...]:
    """NumPy arrays and Python floats among the arguments as JAX arrays, as JAX takes them."""

    def convert(leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray | np.floating | np.complexfloating | float | complex):
            return jnp.asarray(leaf)
        return leaf

    return tuple(jax.tree_util.tree_map(convert, tuple(args)))


def _like(w: Any, y: Any) -> Any:
    """`w` with the container types of `y`."""
    return jax.tree_util.tree_unflatten(
        jax.tree_util.tree_structure(y), jax.tree_util.tree_leaves(w)
    )
