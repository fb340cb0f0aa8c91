"""Functions with control flow, recorded so that JAX need not compile them at every call.

Outside of `jit` JAX runs `scan`, `while_loop` and `cond` as one compiled program each, and finds
the program of an earlier call by the identity of their bodies. A body that is written inside of the
function is another object at each call. Each evaluation and each derivative then compiles it anew,
which takes tens of milliseconds for a recurrence that runs in some microseconds. So is what the
function itself compiles by `jax.jit`: `jnp.piecewise` does that with the branches that it is given.

A recording is the function as JAX traced it once. It is run operation by operation, as JAX would
run the function, and its results are the same to the last bit; but its control flow is found again.
Nothing else is compiled, so that derivatives are taken of it eagerly, as of the function.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, lru_cache
from itertools import chain
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np

from adjudge.engine import Array, Arrays, FlatFunction
from adjudge.errors import Catching, Source, running

CONFIG: Any = jax.config
"""JAX's settings, whose attributes are made at run time."""

CONTROL_FLOW = ("scan", "while", "cond")
"""The names of the primitives that JAX compiles together with their bodies."""

COMPILED = ("jit", "pjit")
"""The names of the primitives that stand for a compiled function; what is inside of them is
compiled with it (0.4.36 to 0.10.2)."""

BACKEND_COMPILE = "/jax/core/compile/backend_compile_duration"
"""The event of `jax.monitoring` that is recorded for each program that XLA has compiled."""

IN_A_ROW = 4
"""What is compiled by the first evaluations of a function is known at the next ones; each of the
modes compiles once as well. What so many evaluations in a row have compiled is likely made anew by
each. The value is ours; a trace decides."""

PROGRAMS = 64
"""How many programs of control flow are kept from check to check. Without a limit a long test run
would keep all that it ever checked. The value is ours."""


# ---------------------------------------------------------------- when it is worth it


@dataclass
class _Compiled:
    """What XLA has compiled in this process since it was first asked."""

    again: int = 0
    """The number of programs of control flow, and of those that the evaluations before compiled."""
    now: set[str] = field(default_factory=set)
    """The names of all programs since the last question."""
    before: deque[set[str]] = field(default_factory=lambda: deque(maxlen=2 * IN_A_ROW))
    """Those between earlier questions, the latest first. A question comes before each evaluation
    and after it, so that every other set is that of an evaluation."""

    def __call__(self, event: str, duration_secs: float, **about: Any) -> None:
        """Counts an event, as a listener of `jax.monitoring`."""
        if event == BACKEND_COMPILE:
            name = str(about.get("fun_name", CONTROL_FLOW[0]))  # JAX 0.4 does not give the name
            name = name.removeprefix("jit(").rstrip(")")
            evaluations = list(self.before)[1::2]
            in_a_row = len(evaluations) == IN_A_ROW and all(name in one for one in evaluations)
            self.again += name in CONTROL_FLOW or in_a_row
            self.now.add(name)


@cache
def _compiled() -> _Compiled:
    """Returns the count of this process, which begins with the first call."""
    compiled = _Compiled()
    jax.monitoring.register_event_duration_secs_listener(compiled)
    return compiled


def compilations() -> int:
    """Returns how many programs XLA has compiled that it may compile again at the next call."""
    compiled = _compiled()
    compiled.before.appendleft(compiled.now)
    compiled.now = set()
    return compiled.again


# ---------------------------------------------------------------- the recording


def recording(f: FlatFunction, x: Arrays) -> FlatFunction | None:
    """Returns what `f` did at `x` as a function that calls `f` no more.

    Returns `None` where nothing is gained, since there is no control flow outside of `jit` and
    nothing that `f` itself compiles, and where a trace is not all that `f` does: it has effects, or
    calls back into Python, or a custom rule in it needs numbers that `f` has computed before.
    """
    watched = CONFIG.jax_debug_nans or CONFIG.jax_debug_infs or CONFIG.jax_disable_jit
    if watched or any(isinstance(leaf, jax.core.Tracer) for leaf in x):
        return None
    settings = _settings()
    closed = _traced(f, x)
    jaxpr = closed.jaxpr
    calls_back = any("callback" in each.primitive.name for each in equations_of(jaxpr))
    looped = any(each.primitive.name in CONTROL_FLOW for each in equations_of(jaxpr, COMPILED))
    if jaxpr.effects or calls_back or not (looped or _compiles_anew(jaxpr, f, x)):
        return None
    steps = list(_steps(jaxpr))
    captured = dict(zip(jaxpr.constvars, closed.consts, strict=True))

    def recorded(leaves: Arrays) -> Arrays:
        """Returns the outputs of `f` at `leaves`."""
        if _settings() != settings:  # the trace belongs to other settings
            return f(leaves)
        values = {**captured, **dict(zip(jaxpr.invars, leaves, strict=True))}
        for step in steps:
            results = step.run(*(values[variable] for variable in step.inputs))
            values.update(zip(step.outputs, results, strict=True))
        return tuple(
            as_array(atom.val if isinstance(atom, jex.Literal) else values[atom])
            for atom in jaxpr.outvars
        )

    return recorded if _stands_alone(recorded, jaxpr, x) else None


def _stands_alone(recorded: FlatFunction, jaxpr: Any, x: Arrays) -> bool:
    """Returns whether the custom rules in a recording need nothing of the trace that it was.

    A rule that is written inside of the function may read what that has computed before, as those
    of implicit functions do. In a trace this stands for no numbers, and once the trace has ended
    the rule raises, in place of the derivative that it has outside of `jit`.
    """
    if not any(each.primitive.name.startswith("custom_") for each in equations_of(jaxpr)):
        return True

    # not by `jax.eval_shape`: a trace takes what belongs to another one, and an evaluation does not
    with Catching() as caught, running(Source.DERIVATIVE):
        outputs, pull = jax.vjp(lambda *leaves: recorded(leaves), *x)
        pull(tuple([jnp.zeros_like(one) for one in outputs]))
    # what else it raises is the check's to judge
    return not isinstance(caught.error, jax.errors.UnexpectedTracerError)


def _traced(f: FlatFunction, x: Arrays) -> Any:
    return jax.make_jaxpr(lambda *leaves: f(leaves))(*x)


def _compiles_anew(jaxpr: Any, f: FlatFunction, x: Arrays) -> bool:
    """Returns whether `f`, whose trace at `x` is given, calls compiled functions that are others at
    its next call: JAX finds the trace of one that it knows.
    """
    here, again = (_compiled_functions(one) for one in (jaxpr, _traced(f, x).jaxpr))
    return any(one is not other for one, other in zip(here, again, strict=False))


def _compiled_functions(jaxpr: Any) -> list[Any]:
    """Returns the traces of the compiled functions that a trace calls."""
    equations = equations_of(jaxpr, COMPILED)
    return [each.params["jaxpr"] for each in equations if each.primitive.name in COMPILED]


def as_array(value: Any) -> Array:
    """Returns a value of a trace as an array of JAX; constants may be those of NumPy."""
    return value if isinstance(value, jax.Array) else jnp.asarray(value)


def is_inexact(array: Any) -> bool:
    """Returns whether an array holds real or complex numbers, not integers or booleans."""
    return bool(jnp.issubdtype(array.dtype, jnp.inexact))


def equations_of(jaxpr: Any, closed: Container[str] = ()) -> Iterator[Any]:
    """Yields the equations of a trace and of the traces inside of them, except for those inside of
    primitives with the names `closed`.
    """
    for equation in jaxpr.eqns:
        yield equation
        if equation.primitive.name in closed:
            continue
        for inner in jaxprs_of(equation):
            yield from equations_of(inner, closed)


def jaxprs_of(equation: Any) -> Iterator[Any]:
    """Yields the traces inside of an equation, such as the body of a loop."""
    for parameter in jax.tree_util.tree_leaves(list(equation.params.values())):
        inner = getattr(parameter, "jaxpr", parameter)
        if hasattr(inner, "eqns"):
            yield inner


def rules_ask(jaxpr: Any) -> bool:
    """Returns whether a custom rule in this trace is told which inputs are differentiated, and
    which cotangents are zero, by symbolic zeros.
    """
    return any(
        equation.params.get("symbolic_zeros") is True or any(map(rules_ask, jaxprs_of(equation)))
        for equation in jaxpr.eqns
    )


def _settings() -> tuple[Any, ...]:
    """Returns the settings of JAX that decide what a trace contains."""
    return CONFIG.jax_enable_x64, CONFIG.jax_default_matmul_precision


@dataclass(frozen=True)
class _Step:
    """A part of a trace: one equation of control flow, or all that stand between two of them."""

    run: Callable[..., Sequence[Any]]
    inputs: Sequence[Any]
    """The variables that it reads."""
    outputs: Sequence[Any]
    """The variables that are read after it."""


def _steps(jaxpr: Any) -> Iterator[_Step]:
    """Yields the steps of a trace in their order."""
    groups: list[list[Any]] = []
    for equation in jaxpr.eqns:
        if groups and not _is_control_flow(equation) and not _is_control_flow(groups[-1][0]):
            groups[-1].append(equation)
        else:
            groups.append([equation])
    for k, group in enumerate(groups):
        made = dict.fromkeys(chain.from_iterable(equation.outvars for equation in group))
        inputs = [variable for variable in _read(group) if variable not in made]
        later = {*variables_in(jaxpr.outvars), *_read(chain.from_iterable(groups[k + 1 :]))}
        outputs = [variable for variable in made if variable in later]
        part = part_of(jaxpr, inputs, outputs, group)
        run = _program(part) if _is_control_flow(group[0]) else jex.jaxpr_as_fun(part)
        yield _Step(run, inputs, outputs)


def part_of(
    jaxpr: Any, inputs: Sequence[Any], outputs: Sequence[Any], equations: Sequence[Any]
) -> Any:
    """Returns some equations of a trace as a trace of their own."""
    # The names that JAX before 0.5 keeps of all results fit no part of a trace.
    unnamed = {} if hasattr(jaxpr.debug_info, "with_unknown_names") else {"debug_info": None}
    replaced = {"constvars": [], "invars": inputs, "outvars": outputs, "eqns": equations}
    return jex.ClosedJaxpr(jaxpr.replace(**replaced, **unnamed), [])


def _is_control_flow(equation: Any) -> bool:
    return equation.primitive.name in CONTROL_FLOW


def _read(equations: Iterable[Any]) -> dict[Any, None]:
    """Returns the variables that equations read, in their order."""
    return variables_in(chain.from_iterable(equation.invars for equation in equations))


def variables_in(atoms: Iterable[Any]) -> dict[Any, None]:
    """Returns the variables among atoms, in their order."""
    return dict.fromkeys(atom for atom in atoms if not isinstance(atom, jex.Literal))


# ---------------------------------------------------------------- programs of control flow


class _UnsharedError(Exception):
    """A trace holds functions, or values that nothing can be compared with."""


@dataclass(frozen=True)
class _Content:
    """A trace, which is equal to another one where all that it holds is equal."""

    content: Hashable
    part: Any = field(compare=False)


def _program(part: Any) -> Callable[..., Sequence[Any]]:
    """Returns a trace as a compiled function: the one that was made for an equal trace before.

    A trace that holds functions (the rules of a `custom_vjp`, say) has a function of its own.
    """
    try:
        return _kept_program(_Content(_content(part.jaxpr), part))
    except _UnsharedError:
        return jax.jit(jex.jaxpr_as_fun(part))


@lru_cache(maxsize=PROGRAMS)
def _kept_program(trace: _Content) -> Callable[..., Sequence[Any]]:
    compiled: Callable[..., Sequence[Any]] = jax.jit(jex.jaxpr_as_fun(trace.part))
    return compiled


def _content(jaxpr: Any) -> Hashable:
    """Returns all that a trace holds, with numbers in place of its variables."""
    numbers: dict[Any, int] = {}

    def atom(one: Any) -> Hashable:
        """Returns a variable as a number, and a constant as its bytes."""
        if isinstance(one, jex.Literal):
            return np.asarray(one.val).tobytes(), one.aval
        return numbers.setdefault(one, len(numbers)), one.aval

    def equation_content(equation: Any) -> Hashable:
        if equation.primitive.name.startswith("custom_"):
            raise _UnsharedError
        return (
            equation.primitive,
            tuple(map(atom, equation.invars)),
            tuple(map(atom, equation.outvars)),
            tuple((name, _value(value)) for name, value in sorted(equation.params.items())),
            equation.ctx,
        )

    inputs = tuple(map(atom, (*jaxpr.constvars, *jaxpr.invars)))
    equations = tuple(map(equation_content, jaxpr.eqns))
    return len(jaxpr.constvars), inputs, equations, tuple(map(atom, jaxpr.outvars))


def content_of(value: Any) -> Hashable:
    """Returns a parameter of an equation, if it can be compared with others, or else its text."""
    try:
        _value(value)
        hash(value)
    except (_UnsharedError, TypeError):
        return str(value)
    shown: Hashable = str(value) if isinstance(value, jex.ClosedJaxpr | jex.Jaxpr) else value
    return shown


def _value(value: Any) -> Hashable:
    """Returns a parameter of an equation as what can be compared. Raises `_UnsharedError`."""
    kind = type(value)
    if isinstance(value, jex.ClosedJaxpr):
        if value.consts:
            raise _UnsharedError
        return kind, _content(value.jaxpr)
    if isinstance(value, jex.Jaxpr):
        return kind, _content(value)
    if isinstance(value, tuple | list):
        return kind, tuple(map(_value, value))
    if isinstance(value, dict):
        return kind, tuple((name, _value(one)) for name, one in sorted(value.items()))
    if isinstance(value, float | complex):
        return kind, repr(value)  # -0.0 is equal to 0.0
    known = value is None or isinstance(value, bool | int | str | bytes | Enum | np.dtype)
    ours = kind.__module__.partition(".")[0] in ("jax", "jaxlib") and not callable(value)
    if not known and (not ours or kind.__hash__ is None):
        raise _UnsharedError
    return kind, value
