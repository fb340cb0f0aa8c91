"""What the kit asks of derivatives: the closed forms, and how pullbacks and tangents behave."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from adjudge.conformance.closed_forms import Host, Hosts
from adjudge.conformance.scenario import Scenario
from adjudge.conformance.subject import ConformanceError, Point, Subject, inner
from adjudge.engine import UNDEFINED, Arrays, MaybeArrays

ADJOINT = (
    "vjp must return J* w, the adjoint for <a, b> = Re sum(conj(a) b); where the engine has the "
    "transpose, conjugate the cotangent and the gradient"
)


def vjp(subject: Subject, scenario: Scenario, dtype: str, device: str | None = None) -> None:
    """Checks that gradients are the closed form, are like their inputs, and do not depend on
    earlier calls.
    """
    p = Point(subject, scenario, dtype, device)
    with p.isolated():
        y, pullback = p.engine.vjp(p.f, p.x)
        values = p.outputs(y)
        draws = [p.drawn(values) for _ in range(2)]
        right = [p.closed.vjp(p.closed.inputs, w) for w in draws]
        ws = [p.arrays(w, y) for w in draws]
        given = pullback(ws[0])
        first = p.derivatives("vjp", given, right[0], p.x, ADJOINT)
        p.derivatives("vjp of a second cotangent", pullback(ws[1]), right[1], p.x, _ACCUMULATES)
        p.derivatives("vjp of the first one again", pullback(ws[0]), right[0], p.x, _ACCUMULATES)
        for k, (array, host) in enumerate(zip(given, first, strict=True)):
            if array is not None:
                subject.same(
                    p.at(f"gradient {k} after further calls"), p.engine.arrays.to_host(array), host,
                    "what was returned may not be written into: return new arrays",
                )  # fmt: skip
        unchanged(p, ws[0], draws[0], "cotangent")
        _absent_cotangents(p, pullback, y, draws[0])
        _attached(p, y, draws[0])


_ACCUMULATES = "a pullback may be called any number of times: each call gives J* w of its own w"


def unchanged(p: Point, arrays: Arrays, hosts: Sequence[Host], what: str) -> None:
    """Checks that the arrays still have the values with which they were handed over."""
    for k, (array, host) in enumerate(zip(arrays, hosts, strict=True)):
        p.subject.same(
            p.at(f"afterwards {what} {k}"), p.engine.arrays.to_host(array), host,
            f"nothing may be written into a {what}",
        )  # fmt: skip


def _absent_cotangents(p: Point, pullback: Any, y: Arrays, w: Hosts) -> None:
    remedy = "None in w says that this output takes no part: it acts as zeros"
    absent = [None, UNDEFINED] if p.engine.undefined_cotangents else [None]
    cases = [list(range(len(y)))] + [[k] for k in range(len(y)) if len(y) > 1]
    for nothing in absent:
        for case in cases:
            partly = [np.zeros_like(leaf) if k in case else leaf for k, leaf in enumerate(w)]
            arrays = p.arrays(w, y)
            handed = tuple(nothing if k in case else leaf for k, leaf in enumerate(arrays))
            p.derivatives(
                f"vjp without output {case}", pullback(handed),
                p.closed.vjp(p.closed.inputs, partly), p.x, remedy,
            )  # fmt: skip


def _attached(p: Point, y: Arrays, w: Hosts) -> None:
    for k, leaf in enumerate(y):
        alone = [value if j == k else np.zeros_like(value) for j, value in enumerate(w)]
        found = p.closed.vjp(p.closed.inputs, alone)
        moves = any(g is not None and np.any(g != 0) for g in found)
        if moves:
            p.subject.equal(
                p.at(f"detached(output {k})"), p.engine.detached(leaf), False,
                "detached says that the engine recorded nothing: this output has a derivative",
            )  # fmt: skip


def jvp(subject: Subject, scenario: Scenario, dtype: str, device: str | None = None) -> None:
    """Checks that tangents are the closed form, and that the jvp and the vjp are adjoint to each
    other.
    """
    p = Point(subject, scenario, dtype, device)
    remedy = "jvp must return (f(x), J v), a tangent per output, of its shape, dtype and device"
    with p.isolated():
        v = p.drawn(p.closed.inputs)
        vs = p.arrays(v, p.x)
        y, tangents = p.engine.jvp(p.f, p.x, vs)
        values = p.outputs(y)
        jv = p.derivatives("jvp", tangents, p.closed.jvp(p.closed.inputs, v), y, remedy)
        _, again = p.engine.jvp(p.f, p.x, p.arrays(v, p.x))
        p.derivatives("a second jvp", again, p.closed.jvp(p.closed.inputs, v), y, remedy)
        unchanged(p, vs, v, "tangent")
        for k in range(len(v) if len(v) > 1 else 0):
            partly = [np.zeros_like(leaf) if j == k else leaf for j, leaf in enumerate(v)]
            handed = tuple(None if j == k else leaf for j, leaf in enumerate(vs))
            _, tangents = p.engine.jvp(p.f, p.x, handed)
            p.derivatives(
                f"jvp without tangent {k}", tangents, p.closed.jvp(p.closed.inputs, partly), y,
                "None in v acts as zeros",
            )  # fmt: skip
        w = p.drawn(values)
        y, pullback = p.engine.vjp(p.f, p.x)
        g = _hosts(p, pullback(p.arrays(w, y)), p.x)
        close(p, "<w, J v> and <J* w, v>", inner(w, jv), inner(g, v), w, jv)


def close(p: Point, what: str, one: float, two: float, a: Hosts, b: Hosts) -> None:
    """Checks that two sums over the same terms agree to the rounding of these."""
    size = sum(float(np.sum(np.abs(x) * np.abs(y))) for x, y in zip(a, b, strict=True))
    p.subject.comparisons += 1
    if not abs(one - two) <= 8 * p.units * (size + abs(two)):
        raise ConformanceError(
            f"{p.at(what)} are {one!r} and {two!r}",
            "forward and reverse mode are adjoint for <a, b> = Re sum(conj(a) b)",
        )


def _hosts(p: Point, arrays: MaybeArrays, like: Arrays) -> Hosts:
    return [
        np.zeros(tuple(leaf.shape)) if array is None else p.engine.arrays.to_host(array)
        for array, leaf in zip(arrays, like, strict=True)
    ]


def second_order(
    subject: Subject, scenario: Scenario, dtype: str, mode: str, device: str | None = None
) -> None:
    """Checks that the derivative by `mode[0]` of the map of `mode[1]` is the closed form."""
    p = Point(subject, scenario, dtype, device)
    engine, closed, n = p.engine, p.closed, len(p.x)
    reverse = mode[1] == "R"
    with p.isolated():
        y = p.f(p.x)
        x, w, v = closed.inputs, p.drawn(closed.value(closed.inputs)), p.drawn(closed.inputs)
        a, b = p.drawn(x), p.drawn(w if reverse else v)
        top = (engine.vjp_map if reverse else engine.jvp_map)(p.f, n)
        point = (*p.x, *p.arrays(w if reverse else v, y if reverse else p.x))
        names = f"{mode}: {'vjp' if mode[0] == 'R' else 'jvp'} of {'vjp' if reverse else 'jvp'}_map"
        if mode == "RR":
            value, pullback = engine.vjp(top, point)
            p.derivatives(f"{names}, its value", value, closed.vjp(x, w), p.x, ADJOINT)
            found = pullback(p.arrays(v, p.x))
            p.derivatives(names, found, closed.double_vjp(x, w, v), point, _SECOND)
        elif mode == "RF":
            value, pullback = engine.vjp(top, point)
            p.derivatives(f"{names}, its value", value, closed.jvp(x, v), y, _SECOND)
            expected = [*closed.double_vjp(x, w, v)[:n], *closed.vjp(x, w)]
            p.derivatives(names, pullback(p.arrays(w, y)), expected, point, _SECOND)
        elif mode == "FR":
            _, moved = engine.jvp(top, point, p.arrays([*a, *b], point))
            left = inner(v, _hosts(p, moved, p.x))
            both = _filled(closed.double_vjp(x, w, v), [*x, *w])
            close(p, f"{names} against RR,", left, inner(both, [*a, *b]), both, [*a, *b])
        else:
            _, moved = engine.jvp(top, point, p.arrays([*a, *b], point))
            left = inner(w, _hosts(p, moved, y))
            pulled = [*closed.double_vjp(x, w, v)[:n], *closed.vjp(x, w)]
            both = _filled(pulled, [*x, *v])
            close(p, f"{names} against RF,", left, inner(both, [*a, *b]), both, [*a, *b])


_SECOND = "vjp_map and jvp_map must return functions that the engine can differentiate again"


def _filled(values: Sequence[Host | None], like: Sequence[Host]) -> Hosts:
    return [
        np.zeros(leaf.shape) if value is None else value
        for value, leaf in zip(values, like, strict=True)
    ]


def batched(subject: Subject, scenario: Scenario, dtype: str) -> None:
    """Checks that the mapped pullback and the mapped jvp do what loops over two vectors do."""
    p = Point(subject, scenario, dtype)
    engine = p.engine
    with p.isolated(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # slow batching rules are right ones
        y, pullback = engine.vjp(p.f, p.x)
        draws = [p.drawn(p.closed.value(p.closed.inputs)) for _ in range(2)]
        pairs = zip(*[p.arrays(w, y) for w in draws], strict=True)
        stacks = tuple(engine.arrays.stack(pair) for pair in pairs)
        rows = engine.vmap(pullback)(*stacks)
        _compare(p, "vmap of the pullback", rows, [_pulled(p, w) for w in draws], p.x)
        if "jvp" in subject.excused:
            return
        draws = [p.drawn(p.closed.inputs) for _ in range(2)]
        pairs = zip(*[p.arrays(v, p.x) for v in draws], strict=True)
        stacks = tuple(engine.arrays.stack(pair) for pair in pairs)
        columns = engine.vmap(lambda v: engine.jvp(p.f, p.x, v)[1])(*stacks)
        expected = [p.closed.jvp(p.closed.inputs, v) for v in draws]
        _compare(p, "vmap of the jvp", columns, expected, y)


def _pulled(p: Point, w: Hosts) -> Hosts:
    return _filled(p.closed.vjp(p.closed.inputs, w), p.closed.inputs)


def _compare(
    p: Point, what: str, stacked: MaybeArrays, rows: Sequence[Hosts], like: Arrays
) -> None:
    for k, (stack, leaf) in enumerate(zip(stacked, like, strict=True)):
        shape = (len(rows), *leaf.shape)
        expected = np.stack([np.broadcast_to(row[k], tuple(leaf.shape)) for row in rows])
        host = np.zeros(shape) if stack is None else p.engine.arrays.to_host(stack)
        p.subject.same(
            p.at(f"{what}, array {k}"), host, expected,
            "vmap maps over a new leading axis of each array", p.units,
        )  # fmt: skip


def compiled(subject: Subject, scenario: Scenario, dtype: str) -> None:
    """Checks that a compiled function has the values and the derivatives of the function."""
    p = Point(subject, scenario, dtype)
    with p.isolated(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the compiler's own parts
        quick = p.engine.compile(p.placed.function)
        for k, tree in enumerate((quick(*p.placed.inputs), quick(*p.placed.inputs))):
            if p.engine.owns(tree):
                p.subject.same(
                    p.at(f"call {k} of the compiled function"),
                    p.engine.arrays.to_host(tree),
                    p.closed.value(p.closed.inputs)[0],
                    "a compiled function returns what the function returns",
                    p.units,
                )
        y, pullback = p.engine.vjp(lambda x: (quick(*x),), p.x)
        w = p.drawn(p.closed.value(p.closed.inputs))
        found = pullback(p.arrays(w, y))
        p.derivatives(
            "vjp of the compiled function", found, p.closed.vjp(p.closed.inputs, w), p.x, ADJOINT
        )
