"""Scenarios that move entries about: reductions, indexing, shapes, leaves without derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np

from adjudge.conformance.elementary import BOTH, OTHER, SLIGHTLY, VECTOR
from adjudge.conformance.scenario import Scenario, WrongRule, dropped, scaled, transposed

MATRIX = np.array([[0.5, -1.25, 2.0], [0.75, 1.5, -0.375]])
SQUARE = np.array([[0.5, -1.25, 2.0], [0.75, 1.5, -0.375], [-2.0, 0.25, 1.0]])
PICKED = np.array([2, 0, 2, 4, 2, 1])
ONE_HOT = np.equal.outer(PICKED, np.arange(5)).astype(np.float64)
"""Row k has its one at the column that is picked k-th: the derivative of the picking."""


def _reduce(xp: Any, x: Any) -> Any:
    return {"all": xp.sum(x * x), "mean": xp.mean(x * x * x, axis=0), "rows": xp.sum(x, axis=1)}


def _reduce_vjp(xp: Any, x: Any, w: Any) -> Any:
    n = x.shape[0]
    return w["all"] * 2.0 * x + w["mean"] * 3.0 * x * x / n + w["rows"][:, None]


def _reduce_jvp(xp: Any, x: Any, v: Any) -> Any:
    return {
        "all": xp.sum(2.0 * x * v),
        "mean": xp.mean(3.0 * x * x * v, axis=0),
        "rows": xp.sum(v, axis=1),
    }


def _softmax(xp: Any, x: Any) -> Any:
    e = xp.exp(x)
    return e / xp.sum(e, axis=-1, keepdims=True)


def _logsumexp(xp: Any, x: Any) -> Any:
    return xp.log(xp.sum(xp.exp(x), axis=-1))


def _logsumexp_vjp(xp: Any, x: Any, w: Any) -> Any:
    return w[:, None] * _softmax(xp, x)


def _logsumexp_double(xp: Any, x: Any, w: Any, u: Any) -> Any:
    p = _softmax(xp, x)
    inner = xp.sum(u * p, axis=-1)
    return w[:, None] * p * (u - inner[:, None]), inner


def _take_vjp(xp: Any, k: Any, e: Any, x: Any, w: Any) -> Any:
    return 2.0 * x * xp.matmul(xp.matrix_transpose(e), w)


def _last_one_wins(xp: Any, k: Any, e: Any, x: Any, w: Any) -> Any:
    """Returns the gradient that writing gives in place of adding, where an index occurs three
    times.
    """
    last = xp.concat([xp.zeros_like(e[:3, :2]), e[:3, 2:3] * 0.0, e[:3, 3:]], axis=1)
    return 2.0 * x * xp.matmul(xp.matrix_transpose(xp.concat([last, e[3:, :]], axis=0)), w)


def _where_vjp(xp: Any, x: Any, w: Any) -> Any:
    return w * xp.where(x > 0, 2.0 * x, 0.0 * x - 3.0)


def _slice_vjp(xp: Any, x: Any, w: Any) -> Any:
    left, right = xp.zeros_like(x[1:, :1]), xp.zeros_like(x[1:, :1])
    return xp.concat([xp.zeros_like(x[:1, :]), xp.concat([left, w, right], axis=1)], axis=0)


def _slice_shifted(xp: Any, x: Any, w: Any) -> Any:
    none = xp.zeros_like(x[1:, :1])
    return xp.concat([xp.zeros_like(x[:1, :]), xp.concat([w, none, none], axis=1)], axis=0)


def _concat_vjp(xp: Any, a: Any, b: Any, w: Any) -> Any:
    n = a.shape[0]
    return w[0][:n] + w[1][0, :], w[0][n:] * 2.0 * b + w[1][1, :]


def _permute_vjp(xp: Any, x: Any, w: Any) -> Any:
    return xp.matrix_transpose(xp.reshape(w, (3, 3))) * 2.0 * x


def _mixed_inputs_vjp(xp: Any, p: Any, w: Any) -> Any:
    return {"m": None, "n": None, "x": w * xp.where(p["n"] > 0, 2.0 * p["x"], xp.cos(p["x"]))}


def _mixed_outputs_vjp(xp: Any, x: Any, w: Any) -> Any:
    return w["y"] * xp.cos(x)


SCENARIOS = (
    Scenario(
        "reductions",
        _reduce,
        _reduce_vjp,
        (MATRIX,),
        jvp=_reduce_jvp,
        dtypes=BOTH,
        wrong_rules=(
            WrongRule("mean not divided", vjp=lambda xp, x, w: (
                w["all"] * 2.0 * x + w["mean"] * 3.0 * x * x + w["rows"][:, None])),
            WrongRule("rows forgotten", vjp=lambda xp, x, w: _reduce_vjp(
                xp, x, {**w, "rows": 0.0 * w["rows"]})),
            WrongRule("first row in place of a mean", jvp=lambda xp, x, v: {
                **_reduce_jvp(xp, x, v), "mean": 3.0 * (x * x * v)[0, :]}),
        ),
    ),
    Scenario(
        "logsumexp",
        _logsumexp,
        _logsumexp_vjp,
        (MATRIX,),
        jvp=lambda xp, x, v: xp.sum(_softmax(xp, x) * v, axis=-1),
        double_vjp=_logsumexp_double,
        wrong_rules=(
            WrongRule("not normalised", vjp=lambda xp, x, w: w[:, None] * xp.exp(x)),
            WrongRule("factor", vjp=scaled(_logsumexp_vjp, SLIGHTLY), slight=True),
            WrongRule("normalisation held fixed", double_vjp=lambda xp, x, w, u: (
                w[:, None] * _softmax(xp, x) * u, _logsumexp_double(xp, x, w, u)[1])),
        ),
    ),
    Scenario(
        "indexing with repeats",
        lambda xp, k, e, x: xp.take(x * x, k, axis=0),
        _take_vjp,
        (VECTOR,),
        jvp=lambda xp, k, e, x, v: xp.take(2.0 * x * v, k, axis=0),
        constants=(PICKED, ONE_HOT),
        needs=frozenset({"indexing"}),
        wrong_rules=(
            WrongRule("the last repeat wins", vjp=_last_one_wins),
            WrongRule("dropped entry", vjp=dropped(_take_vjp, entry=4)),
        ),
    ),
    Scenario(
        "slicing",
        lambda xp, x: x[1:, 1:-1],
        _slice_vjp,
        (np.arange(12).reshape(3, 4) / 8 - 0.75,),
        jvp=lambda xp, x, v: v[1:, 1:-1],
        needs=frozenset({"indexing"}),
        wrong_rules=(WrongRule("shifted by one", vjp=_slice_shifted),),
    ),
    Scenario(
        "where",
        lambda xp, x: xp.where(x > 0, x * x, -3.0 * x),
        _where_vjp,
        (VECTOR,),
        jvp=_where_vjp,
        wrong_rules=(WrongRule("branches swapped", vjp=lambda xp, x, w: w * xp.where(
            x > 0, 0.0 * x - 3.0, 2.0 * x)),),
    ),
    Scenario(
        "joined arrays",
        lambda xp, a, b: (xp.concat([a, b * b]), xp.stack([a, b])),
        _concat_vjp,
        (VECTOR, OTHER),
        jvp=lambda xp, a, b, v, u: (xp.concat([v, 2.0 * b * u]), xp.stack([v, u])),
        wrong_rules=(WrongRule("parts swapped", vjp=lambda xp, a, b, w: (
            w[0][5:] + w[1][0, :], w[0][:5] * 2.0 * b + w[1][1, :])),),
    ),
    Scenario(
        "reshaped and permuted",
        lambda xp, x: xp.reshape(xp.permute_dims(x * x, (1, 0)), (9,)),
        _permute_vjp,
        (SQUARE,),
        jvp=lambda xp, x, v: xp.reshape(xp.permute_dims(2.0 * x * v, (1, 0)), (9,)),
        wrong_rules=(
            WrongRule("transposed", vjp=transposed(_permute_vjp)),
            WrongRule("not permuted", vjp=lambda xp, x, w: xp.reshape(w, (3, 3)) * 2.0 * x),
        ),
    ),
    Scenario(
        "integer and boolean inputs",
        lambda xp, p: xp.where(p["n"] > 0, p["x"] * p["x"], xp.sin(p["x"])),
        _mixed_inputs_vjp,
        ({"m": np.array([True, False]), "n": np.array([1, 0, 2, 0, -1]), "x": VECTOR},),
        jvp=lambda xp, p, v: v["x"] * xp.where(p["n"] > 0, 2.0 * p["x"], xp.cos(p["x"])),
        needs=frozenset({"integer inputs"}),
        wrong_rules=(WrongRule("integers not looked at", vjp=lambda xp, p, w: {
            "m": None, "n": None, "x": w * 2.0 * p["x"]}),),
    ),
    Scenario(
        "integer and boolean outputs",
        lambda xp, x: {"k": xp.argmax(x), "p": x > 0, "y": xp.sin(x)},
        _mixed_outputs_vjp,
        (VECTOR,),
        jvp=lambda xp, x, v: {"k": None, "p": None, "y": v * xp.cos(x)},
        wrong_rules=(
            WrongRule("factor", vjp=scaled(_mixed_outputs_vjp, SLIGHTLY), slight=True),
            WrongRule("sign of the jvp", jvp=lambda xp, x, v: {
                "k": None, "p": None, "y": -v * xp.cos(x)}),
        ),
    ),
)  # fmt: skip
