"""What a function did at a point, as a straight-line program: the trace of JAX, run equation by
equation.

Compiled and rematerialised functions are walked into. Loops and branches are run with the values at
hand, so that the program has a step for each operation of each iteration. Of a long loop it has
those of chosen iterations, and one step for all iterations between two of these. The call of a
function with a custom derivative is one step, whose derivative is the custom one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from adjudge.engine import (
    EPS,
    INPUT,
    UNKNOWN,
    Arrays,
    Evaluation,
    FlatFunction,
    Operand,
    Place,
    Ref,
    Step,
    Trace,
    place_of,
)
from adjudge.errors import NotSupportedError
from adjudge_jax.recording import (
    CONTROL_FLOW,
    as_array,
    content_of,
    equations_of,
    is_inexact,
    part_of,
    variables_in,
)

ENGINE = str(Path(jax.__file__).parent)

CUSTOM = ("custom_vjp_call", "custom_vjp_call_jaxpr", "custom_jvp_call")
"""The names of the primitives that stand for a function with a custom derivative (0.4.36 on)."""

ONE_STEP = ("reduce", "reduce_window", "shard_map")
"""The names of the primitives whose parameters hold a function of something else than what they are
given: of two numbers, or of the part that each device has."""

WHOLE = ("sign", "floor", "ceil", "round")
"""The names of the primitives whose results are whole numbers, which nothing has rounded."""

MOST_STEPS = 5000
"""Of a loop that has run so many steps, chosen iterations alone are steps. Without a limit, a loop
of a million iterations would fill the memory with its values. The value is ours."""

CHOSEN = 6
"""So many iterations of a long loop are recorded step by step. The value is ours; JAX compiles what
stands between them once or twice."""


def trace(f: FlatFunction, x: Arrays) -> Trace:
    """Contract: see `AutodiffBackend.trace`."""
    walk = Walk(x)
    outputs = walk.run(f, x)
    return Trace(walk.steps, walk.recorded, tuple([one.operand for one in outputs]))


def moved_by_rounding(f: FlatFunction, draw: int, wide: bool, x: Arrays) -> Arrays:
    """Contract: see `Environment.moved_by_rounding`.

    The derivative is moved inside of its rules as well: that of `tanh` takes its result for
    `1 - tanh(x)**2`, where digits are lost that the result itself still has.
    """

    @jax.custom_jvp
    def moved(x: Arrays) -> Arrays:
        return tuple([one.value for one in _Moving(x, draw, wide).run(f, x)])

    @moved.defjvp
    def _(primals: tuple[Arrays], tangents: tuple[Arrays]) -> tuple[Arrays, Arrays]:
        return _Moving(*primals, draw, wide).pushed(f, *primals, *tangents)

    return moved(x)


class Known(NamedTuple):
    """A value of the program, and what stands for it there."""

    operand: Operand
    value: Any


Atoms: TypeAlias = Sequence[Known]


class _TooLongError(Exception):
    """A loop has run more steps than are kept."""


class _Loop(NamedTuple):
    """A loop of which only chosen iterations are steps of their own."""

    length: int
    one: Callable[[int, Atoms], tuple[Sequence[Known], Sequence[Known]]]
    """Runs an iteration on what is carried; returns what is carried on, and its rows."""
    some: Callable[[int, int, Atoms], tuple[Sequence[Known], Sequence[Known]]]
    """The same for the iterations from one to another, as one step that gives stacked rows."""


class Walk:
    """The steps of a program, as they are found."""

    into_custom = False
    """Whether a function with a custom derivative is walked into, and is no step of its own."""

    most_steps = MOST_STEPS
    """From how many steps on a loop is run in parts."""

    chosen = CHOSEN
    """How many iterations are recorded then; with none such a loop is one step."""

    def __init__(self, x: Arrays) -> None:
        """There are no steps at first; `x` are the inputs."""
        self.steps: list[Step] = []
        self.recorded = Evaluation(x, self.steps)
        self._closed_over: dict[int, Any] = {}
        """The arrays that the function closes over by their `id`, so that they stay alive."""
        self._runs: dict[int, tuple[Any, FlatFunction]] = {}
        """The function of each equation by its `id`, with the equation, so that it stays alive."""

    def run(self, f: FlatFunction, x: Arrays) -> list[Known]:
        """Runs `f` at `x`, and returns its outputs."""
        closed = jax.make_jaxpr(lambda *leaves: f(leaves))(*x)
        inputs = [Known(Ref(INPUT, k), leaf) for k, leaf in enumerate(x)]
        return self.through(closed, inputs, UNKNOWN, "")

    def through(self, closed: Any, inputs: Atoms, outer: Place, scope: str) -> list[Known]:
        """Runs a trace on `inputs`, and returns its outputs.

        `outer` is the place of the equation around it, which holds where the user has no line in
        it, and `scope` the named scopes around it.
        """
        jaxpr = closed.jaxpr
        known = dict(zip(jaxpr.invars, inputs, strict=True))
        for variable, value in zip(jaxpr.constvars, closed.consts, strict=True):
            known[variable] = constant(value)
            if jnp.ndim(value) and jnp.issubdtype(jnp.result_type(value), jnp.inexact):
                self._closed_over[id(known[variable].value)] = known[variable].value
        read: dict[Any, int] = {}
        for k, equation in enumerate(jaxpr.eqns):
            read.update(dict.fromkeys(variables_in(equation.invars), k))
        read.update(dict.fromkeys(variables_in(jaxpr.outvars), len(jaxpr.eqns)))
        for k, equation in enumerate(jaxpr.eqns):
            outputs = [variable for variable in equation.outvars if variable in read]
            if not outputs:
                continue
            operands = [
                constant(a.val) if isinstance(a, jex.Literal) else known[a] for a in equation.invars
            ]
            place, inside = _stands_at(equation, outer), _joined(scope, equation)
            results = self._walked_into(equation, operands, place, inside)
            if results is None:
                if id(equation) not in self._runs:
                    self._runs[id(equation)] = equation, _run_of(equation, jaxpr, outputs)
                run = self._runs[id(equation)][1]
                results = self._step(equation, outputs, run, operands, place, inside)
                known.update(zip(outputs, results, strict=True))
            else:
                known.update(zip(equation.outvars, results, strict=True))
            for variable in {*variables_in(equation.invars), *variables_in(equation.outvars)}:
                if read.get(variable, k) == k:  # what nobody reads any more leaves the memory
                    known.pop(variable, None)
        return [
            constant(atom.val) if isinstance(atom, jex.Literal) else known[atom]
            for atom in jaxpr.outvars
        ]

    def _walked_into(
        self, equation: Any, operands: Atoms, place: Place, scope: str
    ) -> list[Known] | None:
        """Returns the results of an equation that holds a trace, from the steps of that; `None`
        where it is one step.
        """
        name, params = equation.primitive.name, equation.params
        control = {"scan": self._scan, "while": self._while, "cond": self._cond}.get(name)
        if control is not None:
            start = self._taken
            try:
                return control(params, operands, place, scope)
            except _TooLongError:
                self.recorded.cut(start)
                del self.steps[start:]
                if not self.chosen:
                    return None
                parts = self._scan_in_parts if name == "scan" else self._while_in_parts
                return parts(equation, operands, place, scope)
        called = params.get("jaxpr", params.get("call_jaxpr", params.get("fun_jaxpr")))
        if name in ONE_STEP or (name in CUSTOM and not self.into_custom):
            return None
        if isinstance(called, jex.Jaxpr | jex.ClosedJaxpr):
            return self.through(_closed(called), operands, place, scope)
        return None

    def _step(
        self,
        equation: Any,
        outputs: Sequence[Any],
        run: FlatFunction,
        operands: Atoms,
        place: Place,
        scope: str,
    ) -> list[Known]:
        """Adds the step that an equation is, and returns those of its results that are read:
        `outputs`.
        """
        about = _about(equation)
        return self._add(run=run, operands=operands, place=place, module=scope, **about)

    # ---------------------------------------------------------------- control flow

    def _scan(
        self, params: Mapping[str, Any], operands: Atoms, place: Place, scope: str
    ) -> list[Known]:
        constants, carries = _counts_of_scan(params, operands)
        carried = constants + carries
        carry, stacked = list(operands[constants:carried]), operands[carried:]
        order: Sequence[int] = range(params["length"])
        rows: dict[int, list[Known]] = {}
        start = self._taken
        if params["length"] > self.most_steps:
            raise _TooLongError
        for k in reversed(order) if params["reverse"] else order:
            slices = [self._row(one, k, place, scope) for one in stacked]
            inputs = [*operands[:constants], *carry, *slices]
            results = self.through(params["jaxpr"], inputs, place, scope)
            carry, rows[k] = results[:carries], results[carries:]
            self._within_limit(start, params["length"] / len(rows))
        columns = zip(*(rows[k] for k in order), strict=True) if order else ()
        return [*carry, *(self._stacked(column, place, scope) for column in columns)]

    def _while(
        self, params: Mapping[str, Any], operands: Atoms, place: Place, scope: str
    ) -> list[Known]:
        first = params["cond_nconsts"]
        second = first + params["body_nconsts"]
        condition, body = params["cond_jaxpr"], params["body_jaxpr"]
        carry, keep = list(operands[second:]), None
        start = self._taken
        while (goes := self._goes_on(condition, [*operands[:first], *carry], place)).any():
            made = self.through(body, [*operands[first:second], *carry], place, scope)
            if not goes.all():  # under `jax.vmap`, which keeps what has stopped
                values = [goes, *(one.value for one in (*made, *carry))]
                keep = keep or jax.make_jaxpr(_kept)(*values)
                made = self.through(keep, [constant(goes), *made, *carry], place, scope)
            carry = made
            self._within_limit(start)
        return carry

    def _scan_in_parts(
        self, equation: Any, operands: Atoms, place: Place, scope: str
    ) -> list[Known]:
        params = equation.params
        length, (first, carries) = params["length"], _counts_of_scan(params, operands)
        carried = first + carries
        stacked = operands[carried:]

        def one(k: int, carry: Atoms) -> tuple[Sequence[Known], Sequence[Known]]:
            row = length - 1 - k if params["reverse"] else k
            slices = [self._row(x, row, place, scope) for x in stacked]
            results = self.through(
                params["jaxpr"], [*operands[:first], *carry, *slices], place, scope
            )
            return results[:carries], results[carries:]

        def some(k: int, stop: int, carry: Atoms) -> tuple[Sequence[Known], Sequence[Known]]:
            rows = (length - stop, length - k) if params["reverse"] else (k, stop)
            slices = [self._rows(x, rows, place, scope) for x in stacked]
            part = {**params, "length": stop - k, "unroll": 1}

            def run(operands: Arrays) -> Arrays:
                return tuple(equation.primitive.bind(*operands, **part))

            given = [*operands[:first], *carry, *slices]
            results = self._part(equation, run, stop - k, given, place, scope)
            return results[:carries], results[carries:]

        carry, parts = self._in_parts(_Loop(length, one, some), operands[first:carried])
        ordered = parts[::-1] if params["reverse"] else parts
        columns = zip(*ordered, strict=True)
        return [*carry, *(self._joined_rows(column, place, scope) for column in columns)]

    def _while_in_parts(
        self, equation: Any, operands: Atoms, place: Place, scope: str
    ) -> list[Known]:
        params = equation.params
        first = params["cond_nconsts"]
        second = first + params["body_nconsts"]
        condition, body = map(jex.jaxpr_as_fun, (params["cond_jaxpr"], params["body_jaxpr"]))

        def turned(given: Sequence[Any], carry: Sequence[Any]) -> Sequence[Any]:
            made = body(*given[first:second], *carry)
            goes = condition(*given[:first], *carry)[0]
            # under `jax.vmap` what has stopped is kept
            return _kept(goes, *made, *carry) if jnp.ndim(goes) else made

        def counted(given: Sequence[Any]) -> Any:
            def goes(state: Any) -> Any:
                return jnp.any(condition(*given[:first], *state[1:])[0])

            def turn(state: Any) -> Any:
                return (state[0] + 1, *turned(given, state[1:]))

            return jax.lax.while_loop(goes, turn, (0, *given[second:]))[0]

        whole = jax.make_jaxpr(lambda *given: turned(given, given[second:]))

        def one(_: int, carry: Atoms) -> tuple[Sequence[Known], Sequence[Known]]:
            given = [*operands[:second], *carry]
            return self.through(whole(*(x.value for x in given)), given, place, scope), ()

        def some(k: int, stop: int, carry: Atoms) -> tuple[Sequence[Known], Sequence[Known]]:
            def run(given: Arrays) -> Arrays:
                def turn(state: Any) -> Any:
                    return (state[0] + 1, *turned(given, state[1:]))

                start = (0, *given[second:])
                return tuple(jax.lax.while_loop(lambda s: s[0] < stop - k, turn, start)[1:])

            return self._part(
                equation, run, stop - k, [*operands[:second], *carry], place, scope
            ), ()

        length = int(counted([x.value for x in operands]))
        return [*self._in_parts(_Loop(length, one, some), operands[second:])[0]]

    def _in_parts(
        self, loop: _Loop, carry: Atoms
    ) -> tuple[Atoms, list[Sequence[tuple[Known, bool]]]]:
        """Runs a loop, of which `chosen` iterations are recorded, the first and the last among
        them. Returns what it carries out, and the rows that it makes in turn, each with whether it
        is one.
        """
        last, count = loop.length - 1, max(min(self.chosen, loop.length) - 1, 1)
        chosen = sorted({round(j * last / count) for j in range(count + 1)})
        rows: list[Sequence[tuple[Known, bool]]] = []
        steps: list[int] = []
        parts: list[int] = []
        for k, before in zip(chosen, (-1, *chosen), strict=False):
            if k > before + 1:
                here = len(self.steps)
                carry, made = loop.some(before + 1, k, carry)
                rows.append([(one, False) for one in made])
                parts += [j for j in range(here, len(self.steps)) if self.steps[j].iterations]
            here = len(self.steps)
            carry, made = loop.one(k, carry)
            rows.append([(one, True) for one in made])
            steps += range(here, len(self.steps))
        for j in parts:
            self.steps[j] = replace(self.steps[j], holds=tuple(steps))
        return carry, rows

    def _part(
        self,
        equation: Any,
        run: FlatFunction,
        iterations: int,
        operands: Atoms,
        place: Place,
        scope: str,
    ) -> list[Known]:
        """Adds a step for several iterations of a loop."""
        about = _about(equation)
        about["static"] = {**about["static"], "length": iterations}
        about["iterations"] = iterations
        return self._add(run=run, operands=operands, place=place, module=scope, **about)

    def _cond(
        self, params: Mapping[str, Any], operands: Atoms, place: Place, scope: str
    ) -> list[Known]:
        which = min(max(int(operands[0].value), 0), len(params["branches"]) - 1)
        return self.through(params["branches"][which], operands[1:], place, scope)

    def _goes_on(self, condition: Any, operands: Atoms, place: Place) -> NDArray[np.bool_]:
        """Returns whether a loop takes another turn: under `jax.vmap`, which entries do."""
        goes = jex.jaxpr_as_fun(condition)(*(one.value for one in operands))[0]
        return np.asarray(goes)

    @property
    def _taken(self) -> int:
        return len(self.steps)

    def _within_limit(self, start: int, times: float = 1) -> None:
        """Raises where the steps from `start` on are too many, or will be once there are `times` as
        many.
        """
        if (self._taken - start) * times > self.most_steps:
            raise _TooLongError

    def _row(self, stacked: Known, k: int, place: Place, scope: str) -> Known:
        def run(operands: Arrays) -> Arrays:
            # JAX compiles what takes a row that is known anew for each
            return (jax.lax.dynamic_index_in_dim(operands[0], k, keepdims=False),)

        static = {"axis": 0, "index": k}
        return self._add(
            name="index_in_dim",
            run=run,
            operands=[stacked],
            static=static,
            place=place,
            module=scope,
        )[0]

    def _stacked(self, column: Atoms, place: Place, scope: str) -> Known:
        def run(operands: Arrays) -> Arrays:
            return (jnp.stack(operands),)

        return self._add(
            name="stack", run=run, operands=column, static={"axis": 0}, place=place, module=scope
        )[0]

    def _rows(self, stacked: Known, rows: tuple[int, int], place: Place, scope: str) -> Known:
        def run(operands: Arrays) -> Arrays:
            return (jax.lax.dynamic_slice_in_dim(operands[0], rows[0], rows[1] - rows[0]),)

        return self._add(
            name="slice_in_dim",
            run=run,
            operands=[stacked],
            static={"axis": 0, "rows": rows},
            place=place,
            module=scope,
        )[0]

    def _joined_rows(self, column: Sequence[tuple[Known, bool]], place: Place, scope: str) -> Known:
        single = tuple([one for _, one in column])

        def run(operands: Arrays) -> Arrays:
            pairs = zip(operands, single, strict=True)
            return (jnp.concatenate([x[None] if one else x for x, one in pairs]),)

        return self._add(
            name="concatenate",
            run=run,
            operands=[known for known, _ in column],
            static={"single": single},
            place=place,
            module=scope,
        )[0]

    def _add(self, *, run: FlatFunction, operands: Atoms, **about: Any) -> list[Known]:
        """Runs a step. It is kept where it depends on the inputs or on arrays that the function
        closes over, and its results are constants where it does not.
        """
        results = run(tuple([one.value for one in operands]))
        pairs = enumerate(operands)
        closed = [k for k, one in pairs if id(one.value) in self._closed_over]
        if not closed and not any(isinstance(one.operand, Ref) for one in operands):
            return [Known(result, result) for result in results]
        here, handed = len(self.steps), tuple([one.operand for one in operands])
        self.steps.append(
            Step(
                run=run,
                operands=handed,
                results=len(results),
                closed_over=tuple([k for k in closed if not isinstance(handed[k], Ref)]),
                **about,
            )
        )
        self.recorded.add(here, results)
        return [Known(Ref(here, k), result) for k, result in enumerate(results)]


class _Moving(Walk):
    """Moves what is read and each result by one spacing. Custom rules are walked into."""

    into_custom = True
    chosen = 0

    def __init__(self, x: Arrays, draw: int, wide: bool) -> None:
        """`draw` chooses what is moved up; doubles are moved where `wide`."""
        super().__init__(x)
        self.wide, self.moves, self.sign = wide, 7 * (draw // 2), 1 - 2 * (draw % 2)

    def pushed(self, f: FlatFunction, x: Arrays, t: Arrays) -> tuple[Arrays, Arrays]:
        """Returns the outputs of `f` at `x`, and their tangents for the tangents `t`."""
        closed = jax.make_jaxpr(lambda x, t: jax.jvp(lambda *leaves: f(leaves), x, t))(x, t)
        # Only what depends on tangents refers to an input: see `_add`.
        inputs = [*map(constant, x), *(Known(Ref(INPUT, k), one) for k, one in enumerate(t))]
        results = tuple([one.value for one in self.through(closed, inputs, UNKNOWN, "")])
        return results[: len(results) // 2], results[len(results) // 2 :]

    def through(self, closed: Any, inputs: Atoms, outer: Place, scope: str) -> list[Known]:
        constants = [self._moved(value) for value in closed.consts]
        return super().through(jex.ClosedJaxpr(closed.jaxpr, constants), inputs, outer, scope)

    def _walked_into(
        self, equation: Any, operands: Atoms, place: Place, scope: str
    ) -> list[Known] | None:
        name = equation.primitive.name
        results = super()._walked_into(equation, operands, place, scope)
        if results is None and name in CONTROL_FLOW:
            raise NotSupportedError(f"{name} of more than {self.most_steps} steps", "")
        return results

    def _add(self, *, run: FlatFunction, operands: Atoms, **about: Any) -> list[Known]:
        results = run(tuple([one.value for one in operands]))
        linear = next((one for one in operands if isinstance(one.operand, Ref)), None)
        moved = results
        if about["name"] not in WHOLE:  # two signs that are compared stay equal
            moved = tuple([self._moved(value, linear=linear is not None) for value in results])
        return [Known(linear.operand if linear else value, value) for value in moved]

    @property
    def _taken(self) -> int:
        return self.moves

    def _moved(self, value: Any, *, linear: bool = False) -> Any:
        """Returns a moved value; one that is linear in tangents by a constant factor."""
        dtype = as_array(value).dtype
        if not jnp.issubdtype(dtype, jnp.inexact):
            return value
        eps = jnp.finfo(dtype).eps
        if eps <= EPS["float64"] and not self.wide:
            return value
        self.moves += 1
        if jnp.issubdtype(dtype, jnp.complexfloating) and not linear:
            # Complex arithmetic rounds both parts by the size of the number, whichever is small.
            real, imag = (float(eps) * self._signs(value, k) for k in (0, 0.25))
            return _moved_in_both_parts(value, real, imag)
        # `1 + eps` and `1 - eps` are numbers of the dtype.
        return jax.lax.mul(value, (1 + float(eps) * self._signs(value)).astype(dtype))

    def _signs(self, value: Any, turned: float = 0.0) -> NDArray[np.float64]:
        # NumPy has them, since JAX would compile each operation for each shape. Multiples of
        # irrational numbers are signs that follow no pattern of a function.
        turns = 0.6180339887 * np.arange(np.size(value)) + 0.4142135624 * self.moves**2 + turned
        return self.sign * np.where(turns % 1 < 0.5, 1.0, -1.0).reshape(np.shape(value))


@jax.jit
def _moved_in_both_parts(value: Any, real: Any, imag: Any) -> Any:
    """Returns complex numbers with their parts, where these are not zero, moved by `real` and
    `imag` times the modulus.
    """
    moved = jnp.where(value.real != 0, real, 0) + 1j * jnp.where(value.imag != 0, imag, 0)
    turned = jnp.where(value == 0, 1, jnp.abs(value) / jnp.where(value == 0, 1, value))
    return value + value * jax.lax.stop_gradient(moved * turned).astype(value.dtype)


def _kept(goes: Any, *carries: Any) -> list[Any]:
    """Returns what a turn of a loop under `jax.vmap` made, the first half of `carries`, where an
    entry goes on, and what it was made of elsewhere.
    """
    half = len(carries) // 2
    shapes = [goes.shape + (1,) * (jnp.ndim(one) - goes.ndim) for one in carries[:half]]
    return [
        jnp.where(goes.reshape(shape), new, old)
        for shape, new, old in zip(shapes, carries[:half], carries[half:], strict=True)
    ]


class _PastCasts(Walk):
    """Runs a program in double precision, past its conversions to narrower dtypes; one to a dtype
    whose spacing at 1 is larger than `coarsest` still rounds.
    """

    def __init__(self, x: Arrays, way: _Way) -> None:
        """There are no steps at first; `x` are the inputs."""
        super().__init__(x)
        self._way = way

    def _walked_into(
        self, equation: Any, operands: Atoms, place: Place, scope: str
    ) -> list[Known] | None:
        # Run turn by turn, a loop of a thousand turns would be a thousand times as much to compile.
        # And which way a program goes is not known where it is only traced.
        if equation.primitive.name in CONTROL_FLOW:
            return None
        return super()._walked_into(equation, operands, place, scope)

    def _step(
        self,
        equation: Any,
        outputs: Sequence[Any],
        run: FlatFunction,
        operands: Atoms,
        place: Place,
        scope: str,
    ) -> list[Known]:
        primitive, params = equation.primitive, equation.params
        values = [one.value for one in operands]
        if "callback" in primitive.name:  # Python code, whose results have the dtypes that it gives
            raise NotSupportedError(f"{primitive.name} past its conversions is not supported", "")
        if primitive.name in CUSTOM:
            return self._custom(equation, outputs, run, list(map(_widened, values)))
        if primitive.name != "bitcast_convert_type":
            values = list(map(_widened, values))
            if primitive.name == "convert_element_type":
                values = [self._rounded(value, params["new_dtype"]) for value in values]
            widened = partial(_wide_parameter, way=self._way)
            params = {name: widened(value) for name, value in params.items()}
        if primitive.name == "reduce_precision" and (
            2.0 ** -params["mantissa_bits"] <= self._way.coarsest
        ):
            return [Known(value, value) for value in values]
        try:  # what calls a function is walked into
            found = primitive.bind(*values, **params)
        except (TypeError, ValueError, NotImplementedError) as error:
            what = f"{primitive.name} past its conversions"
            raise NotSupportedError(f"{what} is not supported by JAX", "") from error
        found = found if primitive.multiple_results else [found]
        pairs = zip(equation.outvars, found, strict=True)
        return [Known(value, value) for variable, value in pairs if variable in outputs]

    def _custom(
        self, equation: Any, outputs: Sequence[Any], run: FlatFunction, values: Sequence[Any]
    ) -> list[Known]:
        """Runs the call of a function with a derivative of its own, which it keeps. Without that a
        rule that calls such a function has the derivative of its formula in second order, and a
        wrong one passes.
        """
        avals = [atom.aval for atom in equation.invars]
        moving = [k for k, one in enumerate(avals) if is_inexact(one)]
        fixed = [k for k in range(len(avals)) if k not in moving]
        params = equation.params
        called = _closed(params.get("call_jaxpr", params.get("fun_jaxpr")))
        read = [k for k, variable in enumerate(equation.outvars) if variable in outputs]

        def given(x: Arrays, rest: Arrays) -> Arrays:
            operands = dict(zip((*moving, *fixed), (*x, *rest), strict=True))
            return tuple([operands[k] for k in range(len(avals))])

        def body(x: Arrays, rest: Arrays) -> Arrays:
            walk = _PastCasts(x, self._way)
            found = walk.through(called, list(map(constant, given(x, rest))), UNKNOWN, "")
            return tuple([_widened(found[k].value) for k in read])

        dtypes = [avals[k].dtype for k in moving]
        both = self._way.with_rules(body, lambda x, rest: run(given(x, rest)), dtypes)
        chosen = both.by_jvp if equation.primitive.name == "custom_jvp_call" else both.by_vjp
        parts = (tuple([values[k] for k in which]) for which in (moving, fixed))
        return [Known(one, one) for one in chosen(*parts)]

    def _rounded(self, value: Any, dtype: Any) -> Any:
        """Returns double numbers as they are in `dtype`, where that is a coarse one."""
        if not self._way.is_coarse(dtype) or not is_inexact(value):
            return value
        return value.astype(dtype).astype(value.dtype)

    def _add(self, *, run: FlatFunction, operands: Atoms, **about: Any) -> list[Known]:
        return [Known(value, value) for value in run(tuple([one.value for one in operands]))]


def _widened(value: Any) -> Any:
    # not `result_type`: of a weakly typed float32, as `0.5 * k` makes of integers, that is float64
    dtype = as_array(value).dtype
    wide = _wide_dtype(dtype)
    return value if wide is dtype else jnp.asarray(value).astype(wide)


def _wide_dtype(value: Any) -> Any:
    """Returns double precision for a narrower dtype, and anything else as it is."""
    if not isinstance(value, np.dtype) or not jnp.issubdtype(value, jnp.inexact):
        return value
    wide = np.dtype(np.complex128 if jnp.issubdtype(value, jnp.complexfloating) else np.float64)
    return value if value == wide else wide


def _wide_parameter(value: Any, way: _Way) -> Any:
    """Returns a parameter of an equation for double precision: a dtype, or a program, such as the
    function of two numbers by which entries are added up, or that by which a linear system is
    solved. A program that stayed narrow would be run on the memory of wide numbers.
    """
    if isinstance(value, tuple):
        parts = [_wide_parameter(one, way) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if not isinstance(value, jex.Jaxpr | jex.ClosedJaxpr):
        return _wide_dtype(value)
    program = _closed(value)

    def past_casts(*leaves: Any) -> list[Any]:
        walk = _PastCasts(leaves, way)
        found = walk.through(program, list(map(constant, leaves)), UNKNOWN, "")
        return [_widened(one.value) for one in found]

    given: list[Any] = [one.aval for one in program.jaxpr.invars]
    like = [jax.ShapeDtypeStruct(one.shape, _wide_dtype(one.dtype)) for one in given]
    wide = jax.make_jaxpr(past_casts)(*like)
    return wide.jaxpr if isinstance(value, jex.Jaxpr) else wide


Split: TypeAlias = Callable[[Arrays, Arrays], Arrays]
"""A function of the arrays that are differentiated, and of others: the whole numbers among the
operands of a custom rule."""


@dataclass(frozen=True)
class PastCasts:
    """A function that is run past its conversions, once with the vjp of its own rules and once with
    their jvp: JAX gives no function both.
    """

    by_vjp: Split
    by_jvp: Split

    def __call__(self, x: Arrays) -> Arrays:
        """Returns the outputs at `x`."""
        return self.by_vjp(x, ())

    def forward(self, x: Arrays) -> Arrays:
        """Returns the outputs at `x`, for forward mode."""
        return self.by_jvp(x, ())


class _Program(NamedTuple):
    """A program past its conversions, as a function of what it closes over and of its inputs."""

    closed_over: Sequence[Any]
    run: Callable[[Sequence[Any], Arrays], Arrays]


class _Run:
    """Runs a function past the conversions of the program that it is for arrays of some dtypes.

    The function takes these arrays, those along which it is differentiated, in the precision of the
    context, and others. It is traced once for all inputs of the same shapes, and compiled as a
    whole: run operation by operation it takes a hundred times as long, and JAX compiles what holds
    a function, such as a scatter, at every call.
    """

    def __init__(
        self, way: _Way, function: Callable[[Arrays, Arrays, Arrays], Arrays], dtypes: Sequence[Any]
    ) -> None:
        self._way, self._function, self._dtypes = way, function, dtypes
        self._programs: dict[Any, _Program] = {}

    def __call__(self, x: Arrays, probes: Arrays = (), others: Arrays = ()) -> Arrays:
        """Returns what the function makes of these arrays."""

        def in_context(probe: Any) -> Any:
            return jnp.result_type(complex if jnp.iscomplexobj(probe) else float)

        with self._way.traced_in():
            dtypes = [self._dtypes, map(in_context, probes), [one.dtype for one in others]]
            like = tuple(
                tuple([(one.shape, dtype) for one, dtype in zip(arrays, kinds, strict=True)])
                for arrays, kinds in zip((x, probes, others), dtypes, strict=True)
            )
            program = self._programs.get(like) or self._traced(like)
        if not any(isinstance(one, jax.core.Tracer) for one in program.closed_over):
            self._programs[like] = program
        return program.run(program.closed_over, (*x, *probes, *others))

    def _traced(self, like: Sequence[Sequence[tuple[tuple[int, ...], Any]]]) -> _Program:
        """Returns the program for arrays of these shapes and dtypes."""
        structs = [[jax.ShapeDtypeStruct(*one) for one in arrays] for arrays in like]
        closed = jax.make_jaxpr(lambda *given: self._function(*map(tuple, given)))(*structs)

        # as arguments, since XLA would fold constants into each other, which takes long
        def run(closed_over: Sequence[Any], arrays: Arrays) -> Arrays:
            walk = _PastCasts(arrays, self._way)
            program = jex.ClosedJaxpr(closed.jaxpr, closed_over)
            found = walk.through(program, list(map(constant, arrays)), UNKNOWN, "")
            return tuple([_widened(one.value) for one in found])

        # XLA may leave out a rounding that a compiled program asks for
        rounds = any(map(self._way.rounds, equations_of(closed.jaxpr)))
        return _Program(closed.consts, run if rounds else jax.jit(run))


@dataclass(frozen=True)
class _Way:
    """How functions are run past their conversions."""

    coarsest: float
    """The largest spacing at 1 of the dtypes to which numbers are not rounded."""
    traced_in: Callable[[], AbstractContextManager[Any]]
    """The context in which their programs are traced."""

    def is_coarse(self, dtype: Any) -> bool:
        """Returns whether numbers are rounded to this dtype all the same."""
        inexact = jnp.issubdtype(dtype, jnp.inexact)
        return bool(inexact and jnp.finfo(dtype).eps > self.coarsest)

    def rounds(self, equation: Any) -> bool:
        """Returns whether an equation rounds numbers to a coarse dtype."""
        converts = equation.primitive.name == "convert_element_type"
        return converts and self.is_coarse(equation.params["new_dtype"])

    def with_rules(self, value: Split, f: Split, dtypes: Sequence[Any]) -> PastCasts:
        """Returns `value`, which is `f` past its conversions, with the derivatives of `f`, a
        function of arrays of these dtypes, by the rules that it has, run in the same way.
        """

        def of(arrays: Arrays, alike: Arrays) -> Arrays:
            return tuple([one.astype(y.dtype) for one, y in zip(arrays, alike, strict=True)])

        def pulled(x: Arrays, w: Arrays, others: Arrays) -> Arrays:
            outputs, pull = jax.vjp(lambda *leaves: f(leaves, others), *x)
            return tuple(pull(of(w, outputs)))

        def pushed(x: Arrays, v: Arrays, others: Arrays) -> Arrays:
            outputs, along = jax.jvp(lambda *leaves: f(leaves, others), x, of(v, x))
            return (*outputs, *along)

        pull, push = _Run(self, pulled, dtypes), _Run(self, pushed, dtypes)

        @jax.custom_vjp
        def by_vjp(x: Arrays, others: Arrays) -> Arrays:
            return value(x, others)

        @jax.custom_jvp
        def by_jvp(x: Arrays, others: Arrays) -> Arrays:
            return value(x, others)

        @by_jvp.defjvp
        def _(given: tuple[Arrays, Arrays], along: tuple[Arrays, Arrays]) -> tuple[Arrays, Arrays]:
            both = push(given[0], along[0], given[1])
            return both[: len(both) // 2], both[len(both) // 2 :]

        by_vjp.defvjp(
            lambda x, others: (by_vjp(x, others), (x, others)),
            lambda kept, w: (pull(kept[0], w, kept[1]), None),
        )
        return PastCasts(by_vjp, by_jvp)


def past_casts(
    f: FlatFunction,
    likes: Arrays,
    coarsest: float,
    traced_in: Callable[[], AbstractContextManager[Any]],
) -> FlatFunction:
    """Contract: see `Environment.past_casts`. The program is that of the dtypes of `likes`, traced
    in the context `traced_in`. The derivative is that of `f`, by the rules that `f` has, run in the
    same way.
    """
    way, dtypes = _Way(coarsest, traced_in), [leaf.dtype for leaf in likes]
    value = _Run(way, lambda x, probes, others: f(x), dtypes)
    return way.with_rules(lambda x, others: value(x), lambda x, others: f(x), dtypes)


def _closed(trace: Any) -> Any:
    """Returns a trace as one that holds its constants. Before JAX 0.11 that is a class of its own,
    and the trace inside of what is rematerialised, which has no constants, is not of it.
    """
    return trace if isinstance(trace, jex.ClosedJaxpr) else jex.ClosedJaxpr(trace, [])


def _counts_of_scan(params: Mapping[str, Any], operands: Atoms) -> tuple[int, int]:
    """Returns how many of the operands of a `scan` are constants, and how many are carried along:
    from JAX 0.11 on a tree of the operands says so.
    """
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    constants, carry, _ = params["ft_in"].update(operands).unpack()
    return len(list(constants)), len(list(carry))


def _about(equation: Any) -> dict[str, Any]:
    """Returns the name, the parameters and the rule of an equation that is one step."""
    name, params = equation.primitive.name, equation.params
    if name not in CUSTOM:
        static = {key: content_of(value) for key, value in sorted(params.items())}
        return {"name": name, "static": static}
    traced = params.get("call_jaxpr", params.get("fun_jaxpr"))
    function, where = _source(traced.jaxpr)
    backward = "bwd" in params
    rule, at = _source(params["bwd"] if backward else params.get("jvp_jaxpr_fun"))
    own = _called_by(traced.jaxpr, where)
    if own is not None:
        (function, where), rule, at = own, "", UNKNOWN
    if at.file.startswith(ENGINE):  # `defjvps`, which holds a function for each operand
        rule, at = "", UNKNOWN
    if rule in ("", "_", "<lambda>", "<unknown>"):  # JAX knows no name of an object that is called
        rule = f"the {'vjp' if backward else 'jvp'} of {function or name}"
    at = at if at.file else where
    custom = not at.file.startswith(ENGINE)
    if not custom:  # the line of the call says more
        at = UNKNOWN
    return {
        "name": function or name,
        "static": {"function": str(traced)},
        "custom": custom,
        "rule": rule,
        "rule_place": at,
        **({} if backward else {"forward_rule": rule, "forward_place": at}),
    }


def _stands_at(equation: Any, outer: Place) -> Place:
    """Returns the user's line of an equation; `outer` where there is none."""
    traceback = equation.source_info.traceback
    frames = [(frame.file_name, frame.line_num) for frame in traceback.frames] if traceback else []
    place = place_of(frames, ENGINE)
    return place if place.file else outer


def _joined(scope: str, equation: Any) -> str:
    return "/".join(filter(None, (scope, str(equation.source_info.name_stack))))


def constant(value: Any) -> Known:
    """Returns a constant of a program."""
    array = as_array(value)
    return Known(array, array)


def _run_of(equation: Any, jaxpr: Any, outputs: Sequence[Any]) -> FlatFunction:
    """Returns one equation of a trace as a function of all that it reads, constants included."""
    places = {
        atom: k for k, atom in enumerate(equation.invars) if not isinstance(atom, jex.Literal)
    }
    program = jex.jaxpr_as_fun(part_of(jaxpr, [*places], outputs, [equation]))
    if equation.primitive.name == "shard_map":  # operation by operation it takes seconds
        program = jax.jit(program)
    programs = jex.Jaxpr | jex.ClosedJaxpr
    holds = any(isinstance(value, programs) for value in equation.params.values())

    def run(operands: Arrays) -> Arrays:
        for atom, k in places.items() if holds else ():
            traced, given = atom.aval.dtype, as_array(operands[k]).dtype
            if traced != given:  # XLA would read past the end of the array, and says so on stderr
                raise TypeError(f"{equation.primitive.name} was traced for {traced}, not {given}")
        # A primitive of another library may give a number of Python where it is not compiled.
        return tuple(map(as_array, program(*(operands[k] for k in places.values()))))

    return run


def _source(traced: Any) -> tuple[str, Place]:
    """Returns the name of the function that was traced, and where it is defined."""
    said = getattr(getattr(traced, "debug_info", None), "func_src_info", None) or ""
    name, _, where = said.partition(" at ")
    file, _, line = where.rpartition(":")
    if line.isdigit():
        return name, Place(file, int(line))
    # JAX before 0.5 says nothing; a backward pass is a method that holds the user's function
    held: Any = getattr(getattr(traced, "__self__", None), "f", None)
    code = getattr(inspect.unwrap(held), "__code__", None)
    return (code.co_name, Place(code.co_filename, code.co_firstlineno)) if code else (name, UNKNOWN)


def _called_by(jaxpr: Any, where: Place) -> tuple[str, Place] | None:
    """Returns the function of the user that a function of JAX, defined in the file of `where`,
    calls, with the line in which it computes first; `None` where there is none.
    `jax.custom_gradient` wraps one in its own.
    """
    for equation in jaxpr.eqns if where.file.startswith(ENGINE) else ():
        inside = None
        for frame in equation.source_info.traceback.frames:
            if inside is not None and frame.file_name == where.file:
                return inside
            if place_of([(frame.file_name, frame.line_num)], ENGINE).file:
                function = frame.function_name.rpartition(".")[2]
                inside = function, Place(frame.file_name, frame.line_num)
    return None


def is_of_engine(traced: Any) -> bool:
    """Returns whether the function that was traced is one of JAX."""
    return _source(traced.jaxpr)[1].file.startswith(ENGINE)
