"""`jax.test_util.check_grads`, `check_vjp` and `check_jvp`, answered by adjudge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import adjudge
from adjudge.check import checked_signature
from adjudge.errors import InputError, described
from adjudge.findings import Detail, Remedy
from adjudge.report import said

GRADIENT_TOLERANCE = {
    "bfloat16": 1e-1,
    "float16": 1e-2,
    "float32": 2e-3,
    "float64": 1e-5,
    "complex64": 1e-3,
    "complex128": 1e-5,
}
"""What JAX takes for the one of `atol` and `rtol` that is left out, and for dtypes that a dict
of tolerances does not name (jax 0.10.2, `jax._src.public_test_util`)."""

Tolerance = float | Mapping[Any, float] | None


@checked_signature
def check_grads(
    f: Callable[..., Any],
    args: Iterable[Any],
    order: int,
    modes: Iterable[str] = ("fwd", "rev"),
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float | None = None,
) -> None:
    """Answers like `jax.test_util.check_grads`, with its signature.

    It checks all derivatives up to `order` in every composition of `modes`. `atol`, `rtol` and
    `eps` left out are automatic. Differences on purpose: docs/parity.md.

    Raises:
        AssertionError: A wrong derivative (an `adjudge.GradcheckError`, with its report).
        ValueError: Modes other than "fwd" and "rev", or an order below 1.
    """
    __tracebackhide__ = True
    asked = (modes,) if isinstance(modes, str) else tuple(modes)
    if not set(asked) <= {"fwd", "rev"} or not asked:
        raise InputError(f"modes={modes!r} asks for no known mode", "give 'fwd', 'rev' or both")
    if order < 1:
        raise InputError(f"order={order} asks for no derivative", "give an order of 1 or more")
    letters = [letter for letter, mode in (("F", "fwd"), ("R", "rev")) if mode in asked]
    inputs = _arrays(args)
    atol, rtol = _tolerances(inputs, atol, rtol)
    report = adjudge.examine(
        f, inputs, modes=_compositions(letters, order), atol=atol, rtol=rtol, eps=eps
    )
    _require(report, f)


@checked_signature
def check_vjp(
    f: Callable[..., Any],
    f_vjp: Callable[..., Any],
    args: Iterable[Any],
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float | None = None,
    err_msg: str = "",
) -> None:
    """Answers like `jax.test_util.check_vjp`: `f_vjp(*args) -> (f(*args), transpose)`."""
    __tracebackhide__ = True

    def pullback(*inputs: Any) -> tuple[Any, Callable[[Any], Any]]:
        y, transpose = _pair("f_vjp", f_vjp(*inputs), "(f(*args), transpose), as jax.vjp does")
        if not callable(transpose):
            raise InputError(
                f"f_vjp returned {described(transpose)} beside the value, which cannot be called",
                "return (f(*args), transpose), as jax.vjp does",
            )

        def adjoint(w: Any) -> Any:
            g = transpose(_cotangent(w, y))
            if not isinstance(g, tuple | list) or len(g) != len(inputs):
                raise InputError(
                    f"the transpose of f_vjp returned {described(g)}",
                    "return a tuple with one gradient for each argument of f, as jax.vjp does",
                )
            g = jax.tree_util.tree_map(_conjugate, g)
            return g if len(inputs) != 1 else g[0]

        return y, adjoint

    inputs = _arrays(args)
    atol, rtol = _tolerances(inputs, atol, rtol)
    rule = adjudge.ByHand(f, vjp=None, pullback=pullback)
    _require(adjudge.examine(rule, inputs, atol=atol, rtol=rtol, eps=eps), f, err_msg)


@checked_signature
def check_jvp(
    f: Callable[..., Any],
    f_jvp: Callable[..., Any],
    args: Iterable[Any],
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float | None = None,
    err_msg: str = "",
) -> None:
    """Answers like `jax.test_util.check_jvp`: `f_jvp(args, tangents) -> (f(*args), J v)`."""
    __tracebackhide__ = True

    values: list[Any] = []
    images: list[tuple[Any, Any]] = []

    def forward(*inputs: Any) -> Any:
        values.append(f(*inputs))
        return values[-1]

    def jvp(*both: Any) -> Any:
        inputs, v = both[: len(both) // 2], both[len(both) // 2 :]
        tangents = jax.tree_util.tree_map(_tangent, inputs, v)
        images.append(_pair("f_jvp", f_jvp(inputs, tangents), "(f(*args), Jv), as jax.jvp does"))
        return images[-1][1]

    inputs = _arrays(args)
    atol, rtol = _tolerances(inputs, atol, rtol)
    report = adjudge.examine(
        adjudge.ByHand(forward, jvp=jvp), inputs, atol=atol, rtol=rtol, eps=eps,
        check_backward_ad=False, check_forward_ad=True,
    )  # fmt: skip
    if images:
        found = [*_of_primal(values[0], images[0][0]), *_of_dtypes(*images[0])]
        if found:
            findings = (*found, *report.findings)
            report = replace(report, verdict=adjudge.Verdict.FAIL, findings=findings)
    _require(report, f, err_msg)


def _pair(name: str, returned: Any, form: str) -> tuple[Any, Any]:
    """Returns the two things that a rule returns. Raises `InputError` where it returns others."""
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        raise InputError(f"{name} returned {described(returned)}", f"return {form}")
    return returned[0], returned[1]


class ValueBeside(Detail):
    """`f_jvp` returns another value than f beside the tangent; both as they are printed."""

    f_jvp: str
    f: str


class DtypeBeside(Detail):
    """`f_jvp` returns a tangent of another dtype than the value beside it."""

    found: str
    expected: str


@said.register
def _value_beside(detail: ValueBeside, finding: adjudge.Finding) -> list[str]:
    return [
        "the value that f_jvp returns beside the tangent is not f(x)",
        f"f_jvp  {detail.f_jvp}",
        f"f      {detail.f}",
    ]


@said.register
def _dtype_beside(detail: DtypeBeside, finding: adjudge.Finding) -> list[str]:
    return [
        f"the tangent that f_jvp returns is {detail.found}, the value beside it {detail.expected}",
        "return a tangent of the dtype of its value",
    ]


def _of_primal(value: Any, primal: Any) -> list[adjudge.Finding]:
    if _close(primal, value):
        return []
    detail, status = ValueBeside(str(primal), str(value)), adjudge.Status.INCONSISTENT
    return [adjudge.Finding(status, "F", "out", detail, Remedy.RETURN_VALUE)]


def _of_dtypes(primal: Any, tangent: Any) -> list[adjudge.Finding]:
    pairs = [
        (str(y.dtype), str(v.dtype))
        for y, v in zip(
            jax.tree_util.tree_leaves(primal), jax.tree_util.tree_leaves(tangent), strict=False
        )
        if jnp.issubdtype(jnp.result_type(y), jnp.inexact) and y.dtype != v.dtype
    ]
    return [
        adjudge.Finding(adjudge.Status.WRONG_DTYPE, "F", "out", DtypeBeside(v, y)) for y, v in pairs
    ]


def _require(report: adjudge.Report, f: Callable[..., Any], message: str = "") -> None:
    __tracebackhide__ = True
    if not report:
        name = getattr(f, "__qualname__", type(f).__qualname__)
        error = adjudge.GradcheckError(replace(report, function=name))
        if message:
            error.add_note(message)
        raise error


def _compositions(letters: Sequence[str], order: int) -> list[str]:
    """Returns all words of `letters` up to the length `order`."""
    words = [""]
    found: list[str] = []
    for _ in range(order):
        words = [letter + word for letter in letters for word in words]
        found += words
    return found


def _arrays(args: Iterable[Any]) -> tuple[Any, ...]:
    """Returns the arguments with NumPy arrays and Python floats as arrays, as JAX takes them."""

    def convert(leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray | np.floating | np.complexfloating | float | complex):
            return jnp.asarray(leaf)
        return leaf

    return tuple(jax.tree_util.tree_map(convert, tuple(args)))


def _tolerances(
    inputs: Sequence[Any], atol: Tolerance, rtol: Tolerance
) -> tuple[float | None, float | None]:
    """Returns both tolerances, or `None` for both.

    Where one of them or a dict by dtype is given, the others are filled up as JAX does.
    """
    if atol is None and rtol is None:
        return None, None
    dtypes = {
        str(leaf.dtype) for leaf in jax.tree_util.tree_leaves(inputs) if hasattr(leaf, "dtype")
    }

    def number(tolerance: Tolerance) -> float:
        if tolerance is not None and not isinstance(tolerance, Mapping):
            return tolerance
        named = {str(np.dtype(dtype)): value for dtype, value in (tolerance or {}).items()}
        table = {**GRADIENT_TOLERANCE, **named}
        return max((table[dtype] for dtype in dtypes if dtype in table), default=0.0)

    return number(atol), number(rtol)


def _conjugate(g: Any) -> Any:
    return g if g.dtype == jax.dtypes.float0 else jnp.conj(g)


def _tangent(leaf: Any, v: Any) -> Any:
    """Returns `v`, or what JAX takes for the tangent of a leaf that is not differentiated."""
    return np.zeros(np.shape(leaf), jax.dtypes.float0) if v is None else v


def _cotangent(w: Any, y: Any) -> Any:
    """Returns `conj(w)` with the container types of `y`, and float0 for its integers."""

    def absent(node: Any) -> bool:
        return node is None

    def fitting(leaf: Any, cotangent: Any) -> Any:
        if leaf is None:
            return None
        return _tangent(leaf, None) if cotangent is None else jnp.conj(cotangent)

    leaves, structure = jax.tree_util.tree_flatten(y, is_leaf=absent)
    cotangents = jax.tree_util.tree_leaves(w, is_leaf=absent)
    return jax.tree_util.tree_unflatten(structure, map(fitting, leaves, cotangents))


def _close(a: Any, b: Any) -> bool:
    """Returns whether two results agree to `sqrt(eps)` of their largest entry.

    All identities are judged so.
    """
    ones, others = jax.tree_util.tree_leaves(a), jax.tree_util.tree_leaves(b)
    return len(ones) == len(others) and all(map(_close_arrays, ones, others))


def _close_arrays(a: Any, b: Any) -> bool:
    if jnp.issubdtype(jnp.result_type(b), jax.dtypes.extended):
        return True  # keys of random numbers, which no derivative touches
    a, b = np.asarray(a), np.asarray(b)  # on the host, where 64 bits need no mode
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not b.size or not jnp.issubdtype(b.dtype, jnp.inexact):
        return bool(np.array_equal(a, b))
    eps = float(jnp.finfo(b.dtype).eps)
    wide = np.complex128 if jnp.issubdtype(b.dtype, jnp.complexfloating) else np.float64
    a, b = a.astype(wide), b.astype(wide)
    size = np.abs(b[np.isfinite(b)]).max(initial=0.0)
    return bool(np.allclose(a, b, rtol=0.0, atol=np.sqrt(eps) * size, equal_nan=True))
