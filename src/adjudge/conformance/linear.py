"""Scenarios of linear algebra, real and complex, and of complex functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from adjudge.conformance.elementary import BOTH, SLIGHTLY, VECTOR
from adjudge.conformance.scenario import (
    Scenario,
    WrongRule,
    as_transpose,
    conjugated,
    scaled,
    transposed,
)

A = np.array([[3.0, -0.5, 0.25], [0.75, 2.5, -0.375], [-1.0, 0.5, 4.0]])
B = np.array([[0.5, -1.25, 2.0], [0.75, 1.5, -0.375], [-2.0, 0.25, 1.0]])
Z = np.array([0.5 + 1.25j, -1.5 + 0.25j, 2.0 - 0.75j, -0.375 - 1.0j, 1.0 + 0.5j])
ZA = np.array([[0.5 + 1.25j, -1.5 + 0.25j], [2.0 - 0.75j, -0.375 - 1.0j]])
ZB = np.array([[1.5 - 0.5j, 0.25 + 2.0j], [-0.75 + 1.0j, 1.25 + 0.625j]])

COMPLEX, LINALG = frozenset({"complex"}), frozenset({"linalg"})


def adjoint(xp: Any, a: Any) -> Any:
    """Returns the conjugate transpose."""
    t = xp.matrix_transpose(a)
    return xp.conj(t) if xp.isdtype(t.dtype, "complex floating") else t


def _matmul_vjp(xp: Any, a: Any, b: Any, w: Any) -> Any:
    return xp.matmul(w, adjoint(xp, b)), xp.matmul(adjoint(xp, a), w)


def _matmul_double(xp: Any, a: Any, b: Any, w: Any, u: Any) -> Any:
    of_a, of_b = xp.matmul(w, adjoint(xp, u[1])), xp.matmul(adjoint(xp, u[0]), w)
    return of_a, of_b, xp.matmul(u[0], b) + xp.matmul(a, u[1])


def _matmul_jvp(xp: Any, a: Any, b: Any, v: Any, u: Any) -> Any:
    return xp.matmul(v, b) + xp.matmul(a, u)


def _matmul(xp: Any, a: Any, b: Any) -> Any:
    return xp.matmul(a, b)


def _solve(xp: Any, a: Any, b: Any) -> Any:
    return xp.linalg.solve(a, b)


def _solve_vjp(xp: Any, a: Any, b: Any, w: Any) -> Any:
    g = xp.linalg.solve(adjoint(xp, a), w)
    return -xp.matmul(g, adjoint(xp, _solve(xp, a, b))), g


def _solve_jvp(xp: Any, a: Any, b: Any, v: Any, u: Any) -> Any:
    return xp.linalg.solve(a, u - xp.matmul(v, _solve(xp, a, b)))


def _inverse_vjp(xp: Any, a: Any, w: Any) -> Any:
    y = adjoint(xp, xp.linalg.inv(a))
    return -xp.matmul(xp.matmul(y, w), y)


def _inverse_jvp(xp: Any, a: Any, v: Any) -> Any:
    y = xp.linalg.inv(a)
    return -xp.matmul(xp.matmul(y, v), y)


def _cholesky(xp: Any, x: Any) -> Any:
    return xp.linalg.cholesky(xp.matmul(x, adjoint(xp, x)))


def _lower_half(xp: Any, a: Any) -> Any:
    return (xp.tril(a) + xp.tril(a, k=-1)) * 0.5


def _cholesky_vjp(xp: Any, x: Any, w: Any) -> Any:
    y = _cholesky(xp, x)
    inverse = xp.linalg.inv(y)
    half = _lower_half(xp, xp.matmul(adjoint(xp, y), xp.tril(w)))
    s = xp.matmul(adjoint(xp, inverse), xp.matmul(half, inverse))
    return xp.matmul(s + adjoint(xp, s), x)


def _cholesky_jvp(xp: Any, x: Any, v: Any) -> Any:
    y = _cholesky(xp, x)
    inverse = xp.linalg.inv(y)
    moved = xp.matmul(v, adjoint(xp, x))
    both = xp.matmul(xp.matmul(inverse, moved + adjoint(xp, moved)), adjoint(xp, inverse))
    return xp.matmul(y, _lower_half(xp, both))


# ---------------------------------------------------------------- complex


def _size_vjp(xp: Any, z: Any, w: Any) -> Any:
    return 2.0 * w * z


def _size_double(xp: Any, z: Any, w: Any, u: Any) -> Any:
    return 2.0 * w * u, 2.0 * xp.real(xp.conj(z) * u)


def _mixed_vjp(xp: Any, z: Any, w: Any) -> Any:
    return 2.0 * z * xp.conj(z) * w + z * z * xp.conj(w)


def _mixed_double(xp: Any, z: Any, w: Any, u: Any) -> Any:
    of_z = 2.0 * (z * xp.conj(w) + xp.conj(z) * w) * u + 2.0 * z * w * xp.conj(u)
    return of_z, 2.0 * z * xp.conj(z) * u + z * z * xp.conj(u)


def _mixed_jvp(xp: Any, z: Any, v: Any) -> Any:
    return 2.0 * z * xp.conj(z) * v + z * z * xp.conj(v)


def _holomorphic_vjp(xp: Any, z: Any, w: Any) -> Any:
    return xp.conj((1.0 + z) * xp.exp(z)) * w


def _into_complex_vjp(xp: Any, c: Any, x: Any, w: Any) -> Any:
    return 2.0 * x * xp.real(xp.conj(c) * w)


def _out_of_complex_vjp(xp: Any, z: Any, w: Any) -> Any:
    re, im = xp.real(z), xp.imag(z)
    unit = z / xp.sqrt(re * re + im * im)
    return w["product"] * (im + 1j * xp.astype(re, z.dtype)) + w["size"] * unit


def _out_of_complex_jvp(xp: Any, z: Any, v: Any) -> Any:
    re, im, a, b = xp.real(z), xp.imag(z), xp.real(v), xp.imag(v)
    return {"product": a * im + re * b, "size": (re * a + im * b) / xp.sqrt(re * re + im * im)}


SCENARIOS = (
    Scenario(
        "matrix product",
        _matmul,
        _matmul_vjp,
        (A, B),
        jvp=_matmul_jvp,
        double_vjp=_matmul_double,
        dtypes=BOTH,
        wrong_rules=(
            WrongRule("transposed", vjp=transposed(_matmul_vjp, 0)),
            WrongRule("factor not transposed", vjp=lambda xp, a, b, w: (
                xp.matmul(w, b), xp.matmul(xp.matrix_transpose(a), w))),
            WrongRule("only one factor moves", jvp=lambda xp, a, b, v, u: xp.matmul(v, b)),
            WrongRule("second derivative transposed", double_vjp=transposed(_matmul_double, 1)),
        ),
    ),
    Scenario(
        "linear solve",
        _solve,
        _solve_vjp,
        (A, B),
        jvp=_solve_jvp,
        needs=LINALG,
        wrong_rules=(
            WrongRule("solved with the matrix itself", vjp=lambda xp, a, b, w: (
                _solve_vjp(xp, a, b, w)[0], xp.linalg.solve(a, w))),
            WrongRule("sign of the matrix", vjp=lambda xp, a, b, w: (
                -_solve_vjp(xp, a, b, w)[0], _solve_vjp(xp, a, b, w)[1])),
        ),
        rounding=512.0,
    ),
    Scenario(
        "inverse",
        lambda xp, a: xp.linalg.inv(a),
        _inverse_vjp,
        (A,),
        jvp=_inverse_jvp,
        needs=LINALG,
        wrong_rules=(
            WrongRule("transposed", vjp=transposed(_inverse_vjp)),
            WrongRule("sign of the jvp", jvp=scaled(_inverse_jvp, -1)),
        ),
        rounding=512.0,
    ),
    Scenario(
        "cholesky",
        _cholesky,
        _cholesky_vjp,
        (A,),
        jvp=_cholesky_jvp,
        needs=LINALG,
        wrong_rules=(
            WrongRule("transposed", vjp=transposed(_cholesky_vjp)),
            WrongRule("diagonal not halved", jvp=lambda xp, x, v: _cholesky_jvp(xp, x, v) * 1.5),
        ),
        rounding=512.0,
    ),
    Scenario(
        "squared modulus",
        lambda xp, z: xp.real(z * xp.conj(z)),
        _size_vjp,
        (Z,),
        jvp=lambda xp, z, v: 2.0 * xp.real(xp.conj(z) * v),
        double_vjp=_size_double,
        needs=COMPLEX,
        wrong_rules=(
            WrongRule("conjugated", vjp=conjugated(_size_vjp)),
            WrongRule("one half", vjp=scaled(_size_vjp, 0.5)),
            WrongRule("second derivative conjugated", double_vjp=conjugated(_size_double, 0)),
        ),
    ),
    Scenario(
        "not holomorphic",
        lambda xp, z: xp.conj(z) * z * z,
        _mixed_vjp,
        (Z,),
        jvp=_mixed_jvp,
        double_vjp=_mixed_double,
        dtypes=BOTH,
        needs=COMPLEX,
        wrong_rules=(
            WrongRule("transpose in place of the adjoint", vjp=as_transpose(_mixed_vjp)),
            WrongRule("holomorphic part alone", vjp=lambda xp, z, w: 2.0 * z * xp.conj(z) * w),
            WrongRule("antiholomorphic part dropped", jvp=lambda xp, z, v: (
                2.0 * z * xp.conj(z) * v)),
        ),
    ),
    Scenario(
        "holomorphic",
        lambda xp, z: z * xp.exp(z),
        _holomorphic_vjp,
        (Z,),
        jvp=lambda xp, z, v: (1.0 + z) * xp.exp(z) * v,
        needs=COMPLEX,
        wrong_rules=(
            WrongRule("derivative not conjugated", vjp=lambda xp, z, w: (1.0 + z) * xp.exp(z) * w),
            WrongRule("factor", vjp=scaled(_holomorphic_vjp, SLIGHTLY), slight=True),
        ),
    ),
    Scenario(
        "real to complex",
        lambda xp, c, x: x * x * c,
        _into_complex_vjp,
        (VECTOR,),
        jvp=lambda xp, c, x, v: 2.0 * x * v * c,
        constants=(Z,),
        needs=COMPLEX | {"promotion"},
        wrong_rules=(
            WrongRule("imaginary part of the other sign", vjp=lambda xp, c, x, w: (
                2.0 * x * xp.real(c * w))),
            WrongRule("tangent conjugated", jvp=lambda xp, c, x, v: 2.0 * x * v * xp.conj(c)),
        ),
    ),
    Scenario(
        "complex to real",
        lambda xp, z: {"product": xp.real(z) * xp.imag(z), "size": xp.abs(z)},
        _out_of_complex_vjp,
        (Z,),
        jvp=_out_of_complex_jvp,
        needs=COMPLEX,
        wrong_rules=(
            WrongRule("conjugated", vjp=conjugated(_out_of_complex_vjp)),
            WrongRule("one output of the other sign", jvp=lambda xp, z, v: {
                **_out_of_complex_jvp(xp, z, v),
                "size": -_out_of_complex_jvp(xp, z, v)["size"]}),
        ),
    ),
    Scenario(
        "complex matrix product",
        _matmul,
        _matmul_vjp,
        (ZA, ZB),
        jvp=_matmul_jvp,
        double_vjp=_matmul_double,
        needs=COMPLEX,
        wrong_rules=(
            WrongRule("not conjugated", vjp=lambda xp, a, b, w: (
                xp.matmul(w, xp.matrix_transpose(b)), xp.matmul(xp.matrix_transpose(a), w))),
            WrongRule("transposed", vjp=transposed(_matmul_vjp, 1)),
        ),
    ),
)  # fmt: skip
