"""Scenarios of real functions that need little: sums, products, sines and exponentials."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adjudge.conformance.scenario import Scenario, WrongRule, dropped, scaled

VECTOR = np.array([0.5, -1.25, 2.0, 0.75, -0.375])
OTHER = np.array([1.5, 0.25, -0.75, -2.0, 0.625])
BOTH = ("float64", "float32")
LOW = ("float16", "bfloat16")
SLIGHTLY = 1 + 1e-6

Derivative = Callable[[Any, Any], Any]


def elementwise(
    name: str,
    value: Derivative,
    first: Derivative,
    second: Derivative | None,
    x: Any,
    wrong_rules: Callable[[Any, Any, Any], tuple[WrongRule, ...]],
    dtypes: tuple[str, ...] = ("float64",),
) -> Scenario:
    """Returns `y_i = value(x_i)` with its first and, in double precision, second derivative."""

    def vjp(xp: Any, x: Any, w: Any) -> Any:
        return w * first(xp, x)

    def double_vjp(xp: Any, x: Any, w: Any, u: Any) -> Any:
        assert second is not None
        return u * w * second(xp, x), u * first(xp, x)

    return Scenario(
        name, value, vjp, (x,), jvp=vjp, double_vjp=double_vjp if second else None,
        dtypes=dtypes, wrong_rules=wrong_rules(vjp, vjp, double_vjp),
        rounding=8.0 if dtypes == LOW else 64.0,
    )  # fmt: skip


def _several_vjp(xp: Any, a: Any, b: Any, w: Any) -> Any:
    return w[0] * xp.cos(a) * b + w[1], w[0] * xp.sin(a) + w[1] * xp.exp(b)


def _several_double(xp: Any, a: Any, b: Any, w: Any, u: Any) -> Any:
    of_a = -u[0] * w[0] * xp.sin(a) * b + u[1] * w[0] * xp.cos(a)
    of_b = u[0] * w[0] * xp.cos(a) + u[1] * w[1] * xp.exp(b)
    return of_a, of_b, (u[0] * xp.cos(a) * b + u[1] * xp.sin(a), u[0] + u[1] * xp.exp(b))


def _dicts_vjp(xp: Any, x: Any, w: Any) -> Any:
    return w["s"] * xp.cos(x) + w["n"]["e"] * xp.exp(x) + w["n"]["p"] * 2.0 * x


def _dicts_jvp(xp: Any, x: Any, v: Any) -> Any:
    return {"s": v * xp.cos(x), "n": {"e": v * xp.exp(x), "p": 2.0 * x * v}}


def _nested_vjp(xp: Any, p: Any, w: Any) -> Any:
    rows = xp.sum(w * p["b"][1], axis=0)
    return {"w": w * xp.cos(p["w"]), "b": [rows, xp.sum(w * p["b"][0])]}


def _nested_jvp(xp: Any, p: Any, v: Any) -> Any:
    return v["w"] * xp.cos(p["w"]) + v["b"][0] * p["b"][1] + p["b"][0] * v["b"][1]


def _broadcast_vjp(xp: Any, a: Any, b: Any, s: Any, w: Any) -> Any:
    return xp.sum(w * b, axis=1, keepdims=True), xp.sum(w * a, axis=0), xp.sum(w)


def _mean_instead(xp: Any, a: Any, b: Any, s: Any, w: Any) -> Any:
    return xp.sum(w * b, axis=1, keepdims=True), xp.mean(w * a, axis=0), xp.sum(w)


def _first_row(xp: Any, a: Any, b: Any, s: Any, w: Any) -> Any:
    return xp.sum(w * b, axis=1, keepdims=True), (w * a)[0, :], xp.sum(w)


def _empty_vjp(xp: Any, x: Any, b: Any, w: Any) -> Any:
    return w[0] * b, xp.sum(w[0] * x, axis=0) + w[1] * xp.cos(b)


def _constants_vjp(xp: Any, c: Any, x: Any, w: Any) -> Any:
    return w * c * xp.cos(x)


def _flat_vjp(xp: Any, x: Any, w: Any) -> Any:
    return w["flat"] * 0.0 + w["y"] * xp.exp(x)


def _wavy(xp: Any, x: Any) -> Any:
    return xp.sin(x) * xp.exp(x)


def _wavy_first(xp: Any, x: Any) -> Any:
    return (xp.sin(x) + xp.cos(x)) * xp.exp(x)


def _wavy_second(xp: Any, x: Any) -> Any:
    return 2.0 * xp.cos(x) * xp.exp(x)


def _sine_first(xp: Any, x: Any) -> Any:
    return xp.cos(x)


def _sine(xp: Any, x: Any) -> Any:
    return xp.sin(x)


SCENARIOS = (
    elementwise(
        "elementwise",
        _wavy,
        _wavy_first,
        _wavy_second,
        VECTOR,
        lambda vjp, jvp, double: (
            WrongRule("sign", vjp=scaled(vjp, -1)),
            WrongRule("factor", vjp=scaled(vjp, SLIGHTLY), slight=True),
            WrongRule("dropped entry", vjp=dropped(vjp, entry=3)),
            WrongRule("sign of the jvp", jvp=scaled(jvp, -1)),
            WrongRule("second derivative dropped", double_vjp=lambda xp, x, w, u: (
                0.0 * x, double(xp, x, w, u)[1])),
        ),
        dtypes=BOTH,
    ),
    elementwise(
        "used twice",
        lambda xp, x: x * x + x,
        lambda xp, x: 2.0 * x + 1.0,
        lambda xp, x: 2.0 + 0.0 * x,
        VECTOR,
        lambda vjp, jvp, double: (
            WrongRule("one use forgotten", vjp=lambda xp, x, w: w * (x + 1.0)),
            WrongRule("one use forgotten by the jvp", jvp=lambda xp, x, v: v * (x + 1.0)),
            WrongRule("second derivative of one use", double_vjp=lambda xp, x, w, u: (
                u * w, u * (2.0 * x + 1.0))),
        ),
    ),
    elementwise(
        "low precision",
        lambda xp, x: x * x * x + x * 0.5,
        lambda xp, x: 3.0 * x * x + 0.5,
        None,
        VECTOR,
        lambda vjp, jvp, double: (
            WrongRule("sign", vjp=scaled(vjp, -1)),
            WrongRule("factor", vjp=scaled(vjp, 1.25)),
            WrongRule("sign of the jvp", jvp=scaled(jvp, -1)),
        ),
        dtypes=LOW,
    ),
    elementwise(
        "no dimensions",
        lambda xp, x: xp.sin(x) * x,
        lambda xp, x: xp.cos(x) * x + xp.sin(x),
        lambda xp, x: 2.0 * xp.cos(x) - x * xp.sin(x),
        np.array(0.75),
        lambda vjp, jvp, double: (WrongRule("factor", vjp=scaled(vjp, SLIGHTLY), slight=True),),
    ),
    elementwise(
        "many entries",
        _sine,
        _sine_first,
        None,
        np.arange(-160, 160).reshape(20, 16) / 64,
        lambda vjp, jvp, double: (
            WrongRule("dropped entry", vjp=dropped(vjp, entry=77)),
            WrongRule("dropped entry of the jvp", jvp=dropped(jvp, entry=241)),
        ),
    ),
    Scenario(
        "several inputs and outputs",
        lambda xp, a, b: (xp.sin(a) * b, a + xp.exp(b)),
        _several_vjp,
        (VECTOR, OTHER),
        jvp=lambda xp, a, b, v, u: (
            xp.cos(a) * b * v + xp.sin(a) * u,
            v + xp.exp(b) * u,
        ),
        double_vjp=_several_double,
        wrong_rules=(
            WrongRule("swapped cotangents", vjp=lambda xp, a, b, w: _several_vjp(
                xp, a, b, (w[1], w[0]))),
            WrongRule("second output forgotten", vjp=lambda xp, a, b, w: _several_vjp(
                xp, a, b, (w[0], 0.0 * w[1]))),
            WrongRule("swapped inputs of the jvp", jvp=lambda xp, a, b, v, u: (
                xp.cos(a) * b * u + xp.sin(a) * v, u + xp.exp(b) * v)),
            WrongRule("one mixed term dropped", double_vjp=lambda xp, a, b, w, u: (
                -u[0] * w[0] * xp.sin(a) * b, *_several_double(xp, a, b, w, u)[1:])),
        ),
    ),
    Scenario(
        "dict of outputs",
        lambda xp, x: {"s": xp.sin(x), "n": {"e": xp.exp(x), "p": x * x}},
        _dicts_vjp,
        (VECTOR,),
        jvp=_dicts_jvp,
        wrong_rules=(
            WrongRule("one output scaled", vjp=lambda xp, x, w: _dicts_vjp(
                xp, x, {**w, "s": 1.5 * w["s"]})),
            WrongRule("two outputs swapped", jvp=lambda xp, x, v: {
                **_dicts_jvp(xp, x, v), "s": v * xp.exp(x)}),
        ),
    ),
    Scenario(
        "nested inputs",
        lambda xp, p: xp.sin(p["w"]) + p["b"][0] * p["b"][1],
        _nested_vjp,
        ({"w": VECTOR[:4].reshape(2, 2), "b": [OTHER[:2], np.array(1.5)]},),
        jvp=_nested_jvp,
        wrong_rules=(
            WrongRule("mean in place of a sum", vjp=lambda xp, p, w: {
                "w": w * xp.cos(p["w"]),
                "b": [xp.mean(w * p["b"][1], axis=0), xp.sum(w * p["b"][0])]}),
            WrongRule("a leaf of the inputs forgotten", jvp=lambda xp, p, v:
                v["w"] * xp.cos(p["w"]) + v["b"][0] * p["b"][1]),
        ),
    ),
    Scenario(
        "broadcasting",
        lambda xp, a, b, s: a * b + s,
        _broadcast_vjp,
        (VECTOR[:3].reshape(3, 1), OTHER[:4], np.array(0.5)),
        jvp=lambda xp, a, b, s, va, vb, vs: va * b + a * vb + vs,
        wrong_rules=(
            WrongRule("mean in place of a sum", vjp=_mean_instead),
            WrongRule("first row in place of a sum", vjp=_first_row),
        ),
    ),
    Scenario(
        "unused input",
        lambda xp, a, b: xp.sin(a),
        lambda xp, a, b, w: (w * xp.cos(a), None),
        (VECTOR, OTHER[:2]),
        jvp=lambda xp, a, b, v, u: v * xp.cos(a),
        wrong_rules=(
            WrongRule("a derivative of the unused input", vjp=lambda xp, a, b, w: (
                w * xp.cos(a), w[:2])),
            WrongRule("no derivative of the used input", vjp=lambda xp, a, b, w: (None, None)),
        ),
    ),
    Scenario(
        "empty array",
        lambda xp, x, b: (x * b, xp.sin(b)),
        _empty_vjp,
        (np.zeros((0, 3)), VECTOR[:3]),
        jvp=lambda xp, x, b, v, u: (v * b + x * u, u * xp.cos(b)),
        wrong_rules=(WrongRule("sign beside the empty array", vjp=scaled(_empty_vjp, -1)),),
    ),
    Scenario(
        "captured constant",
        lambda xp, c, x: c * xp.sin(x),
        _constants_vjp,
        (VECTOR,),
        jvp=_constants_vjp,
        constants=(OTHER,),
        dtypes=BOTH,
        wrong_rules=(WrongRule("constant forgotten", vjp=lambda xp, c, x, w: w * xp.cos(x)),),
    ),
    Scenario(
        "zero derivative",
        lambda xp, x: {"flat": x * 0.0, "y": xp.exp(x)},
        _flat_vjp,
        (VECTOR,),
        jvp=lambda xp, x, v: {"flat": v * 0.0, "y": v * xp.exp(x)},
        wrong_rules=(
            WrongRule("a derivative where f is flat", vjp=lambda xp, x, w: (
                w["flat"] + w["y"] * xp.exp(x))),
            WrongRule("a tangent where f is flat", jvp=lambda xp, x, v: {
                "flat": v, "y": v * xp.exp(x)}),
        ),
    ),
)  # fmt: skip
"""In order of what they ask for: a tape with four rules runs the first."""
