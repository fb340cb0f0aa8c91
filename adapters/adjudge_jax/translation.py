"""What a function did at a point in the vocabulary that engines share: JAX's primitives translated,
equation by equation.

The function that a custom derivative belongs to is walked into, since the derivative is what is
judged. A primitive that only moves entries is run on index arrays in their place. One that is in no
table here is opaque.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from adjudge.engine import (
    INPUT,
    UNKNOWN,
    ArrayOperations,
    Arrays,
    FlatFunction,
    Place,
    Program,
    ProgramBuilder,
    Ref,
    grouped,
    windows,
)
from adjudge_jax.recording import CONFIG, is_inexact
from adjudge_jax.tracing import Atoms, Known, Walk, is_of_engine

SAME_MEANING = {
    **{
        name: name
        for name in (
            *("abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil"),
            *("complex", "conj", "cos", "cosh", "digamma", "erf", "erfc", "exp", "exp2", "expm1"),
            *("floor", "imag", "log", "log1p", "polygamma", "pow", "real", "rsqrt", "sign", "sin"),
            *("sinh", "sqrt", "square", "tan", "tanh", "zeta"),
        )
    },
    "add": "add", "add_any": "add", "sub": "subtract", "mul": "multiply", "div": "divide",
    "neg": "negative", "max": "maximum", "min": "minimum", "rem": "fmod", "logistic": "expit",
    "lgamma": "gammaln", "erf_inv": "erfinv", "bessel_i0e": "i0e", "bessel_i1e": "i1e",
    "igamma": "gammainc", "igammac": "gammaincc", "regularized_incomplete_beta": "betainc",
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal", "lt_to": "less", "le_to": "less_equal", "is_finite": "isfinite",
    "reduce_precision": "astype", "copy": "astype", "copy_p": "astype",
}  # fmt: skip
"""The names of primitives without parameters of their own, and those of the vocabulary."""

OF_BOOLEANS = {"and": "logical_and", "or": "logical_or", "xor": "logical_xor", "not": "logical_not"}

REDUCTIONS = {
    "reduce_sum": "sum", "reduce_prod": "prod", "reduce_max": "max", "reduce_min": "min",
    "reduce_and": "all", "reduce_or": "any", "argmax": "argmax", "argmin": "argmin",
}  # fmt: skip

CUMULATIVE = {
    "cumsum": "cumulative_sum", "cumprod": "cumulative_prod", "cummax": "cumulative_max",
    "cummin": "cumulative_min", "cumlogsumexp": "cumulative_logsumexp",
}  # fmt: skip

UNCHANGED = (
    *("stop_gradient", "optimization_barrier", "sharding_constraint", "pvary", "pcast"),
    *("convert_layout", "device_put", "layout_constraint", "name"),
)
"""Those that return their operands."""

MOVING = (
    *("broadcast_in_dim", "concatenate", "copy", "dynamic_slice", "dynamic_update_slice"),
    *("expand_dims", "gather", "pad", "reshape", "rev", "scatter", "slice", "split", "squeeze"),
    *("stack", "index_in_dim", "tile", "transpose", "unstack"),
)
"""Those that move, choose and repeat entries."""

POOLED = {
    "reduce_window_sum": ("sum", 0.0),
    "reduce_window_max": ("max", -np.inf),
    "reduce_window_min": ("min", np.inf),
}


MOST_OPERATIONS = 25_000
"""A loop of so many operations is one step, which has no translation: they take some ten seconds to
run one by one. The value is ours."""


def program(f: FlatFunction, x: Arrays, arrays: ArrayOperations) -> Program:
    """Contract: see `AutodiffBackend.program`; `arrays` are the operations of the engine."""
    closed = jax.make_jaxpr(lambda *leaves: f(leaves))(*x)
    walk = _Translation(x, ProgramBuilder(arrays, x))
    inputs = [Known(Ref(INPUT, k), leaf) for k, leaf in enumerate(x)]
    outputs = walk.through(closed, inputs, UNKNOWN, "")
    return walk.builder.finished([one.operand for one in outputs])


class _Translation(Walk):
    """The operations of a program, as they are found."""

    into_custom = True
    chosen = 0
    most_steps = MOST_OPERATIONS

    def __init__(self, x: Arrays, builder: ProgramBuilder) -> None:
        """There are no operations at first; `x` are the inputs."""
        super().__init__(x)
        self.builder = builder

    @property
    def _taken(self) -> int:
        return len(self.builder.operations)

    def _walked_into(
        self, equation: Any, operands: Atoms, place: Place, scope: str
    ) -> list[Known] | None:
        name, params = equation.primitive.name, equation.params
        if name == "custom_linear_solve":
            counts = params["const_lengths"]
            first = counts.matvec + counts.vecmat
            given = [*operands[first : first + counts.solve], *operands[sum(counts) :]]
            return self.through(params["jaxprs"].solve, given, place, scope)
        if params.get("name") in OF_BITS and is_of_engine(params["jaxpr"]):
            found = OF_BITS[params["name"]](self.builder, operands, place)
            if found is not None:
                return found
        return super()._walked_into(equation, operands, place, scope)

    def _goes_on(self, condition: Any, operands: Atoms, place: Place) -> NDArray[np.bool_]:
        (asked,) = self.through(condition, operands, place, "")
        return self.builder.follow(asked.operand)

    def _step(
        self,
        equation: Any,
        outputs: Sequence[Any],
        run: FlatFunction,
        operands: Atoms,
        place: Place,
        scope: str,
    ) -> list[Known]:
        values = [one.value for one in operands]
        if not any(isinstance(one.operand, Ref) for one in operands):
            return [Known(result, result) for result in run(tuple(values))]
        primitive, params = equation.primitive, equation.params
        found = primitive.bind(*values, **params)
        results = list(found) if primitive.multiple_results else [found]
        refs = _Equation(
            self.builder,
            primitive.name,
            [one.operand for one in operands],
            values,
            results,
            place,
            params,
            primitive,
        ).translated()
        every = [Known(*one) for one in zip(refs, results, strict=True)]
        return [known for known, one in zip(every, equation.outvars, strict=True) if one in outputs]

    def _add(self, *, run: FlatFunction, operands: Atoms, **about: Any) -> list[Known]:
        """Adds a step that moves entries alone."""
        values = [one.value for one in operands]
        results = run(tuple(values))
        given = [one.operand for one in operands]
        moved = _Equation(self.builder, about["name"], given, values, results, about["place"])
        return [Known(*one) for one in zip(moved.moved(lambda *a: run(a)), results, strict=True)]


def _signbit(builder: ProgramBuilder, operands: Atoms, place: Place) -> list[Known]:
    (x,) = operands
    made = jnp.signbit(x.value)
    return [Known(builder.emit("less", [x.operand, 0.0], made, place, "signbit"), made)]


def _ldexp(builder: ProgramBuilder, operands: Atoms, place: Place) -> list[Known] | None:
    x, power = operands
    made, factor = jnp.ldexp(x.value, power.value), np.ldexp(1.0, builder.rely(power.operand))
    if not np.isfinite(factor).all() or not factor.all():
        return None
    return [Known(builder.emit("multiply", [x.operand, factor], made, place, "ldexp"), made)]


def _frexp(builder: ProgramBuilder, operands: Atoms, place: Place) -> list[Known] | None:
    """Returns the mantissa as a multiple of x, and the power, which jumps where |x| is one of 2."""
    (x,) = operands
    mantissa, power = jnp.frexp(x.value)
    above = np.ldexp(1.0, np.asarray(power))
    if not np.isfinite(above).all() or not np.all(x.value):
        return None
    size = builder.emit("abs", [x.operand], jnp.abs(x.value), place, "frexp")
    for name, end in (("less", above), ("greater_equal", above / 2)):
        builder.rely(builder.emit(name, [size, end], np.ones(end.shape, bool), place, "frexp"))
    made = builder.emit("divide", [x.operand, above], mantissa, place, "frexp")
    return [Known(made, mantissa), Known(power, power)]


OF_BITS = {"signbit": _signbit, "ldexp": _ldexp, "frexp": _frexp}
"""Functions of JAX that read the bits of numbers, by the names of their traces."""


@dataclass
class _Equation:
    """An equation with its operands and results, which is to be translated."""

    builder: ProgramBuilder
    name: str
    operands: list[Any]
    """References, and the values of constants."""
    values: list[Any]
    results: Sequence[Any]
    place: Place
    params: Mapping[str, Any] = field(default_factory=dict)
    primitive: Any = None

    def translated(self) -> Sequence[Any]:
        """Returns what stands for the results."""
        name = self.name
        counting = not any(is_inexact(one) or _is_boolean(one) for one in self.results)
        if counting and not any(map(is_inexact, self.values)):  # booleans decide on integers
            for one in self.operands:
                self.builder.rely(one)
            return self.results
        if name in RULES:
            found = RULES[name](self)
            if found is not None:
                return found if isinstance(found, list) else [found]
        elif name in UNCHANGED:
            return self.operands
        elif name in MOVING:
            return self.moved(partial(self.primitive.bind, **self.params))
        elif name in OF_BOOLEANS and _is_boolean(self.results[0]):
            return [self.emit(OF_BOOLEANS[name], *self.operands)]
        elif name in SAME_MEANING:
            return [self.emit(SAME_MEANING[name], *self.operands)]
        known = [one for one in self.operands if isinstance(one, Ref)]  # others may be no numbers
        return list(self.builder.opaque(known, list(self.results), self.place, name))

    def emit(self, name: str, *operands: Any, result: Any = None, **params: Any) -> Any:
        """Adds an operation; `result` is by default that of the equation."""
        made = self.results[0] if result is None else result
        return self.builder.emit(name, operands, made, self.place, self.name, **params)

    def take(self, operands: Sequence[Any], indices: NDArray[Any], fill: complex = 0.0) -> Any:
        """Adds the entries of operands at these indices."""
        return self.builder.take(operands, indices, self.place, self.name, fill)

    def ordered(self, operand: Any, axes: Sequence[int], shape: Sequence[int]) -> Any:
        """Adds an operand with its axes in this order, and then of this shape."""
        size = self.builder.value(operand).shape
        return self.take(
            [operand], np.arange(prod(size)).reshape(size).transpose(axes).reshape(shape)
        )

    def moved(self, run: Callable[..., Any], fill: complex = 0.0) -> list[Any]:
        """Adds what `run` does to entries, which is run on index arrays in place of them; the
        operands of integers stay as they are.
        """
        booleans = _is_boolean(self.results[0])
        moving = [
            k
            for k, one in enumerate(self.values)
            if (_is_boolean(one) if booleans else is_inexact(one))
        ]
        for k, one in enumerate(self.operands):
            if k not in moving:
                self.builder.rely(one)
        whole = jnp.int64 if CONFIG.jax_enable_x64 else jnp.int32

        def on_indices(indices: list[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
            given = list(self.values)
            for k, one in zip(moving, indices, strict=True):
                given[k] = jnp.asarray(one, whole)
            found = run(*given)
            return [
                np.asarray(one) for one in (found if isinstance(found, list | tuple) else [found])
            ]

        operands = [self.operands[k] for k in moving]
        step = self.place, self.name
        return list(
            self.builder.rearranged(on_indices, operands, list(self.results), *step, fill=fill)
        )


def _is_complex(array: Any) -> bool:
    return bool(jnp.issubdtype(array.dtype, jnp.complexfloating))


def _is_boolean(array: Any) -> bool:
    return bool(jnp.issubdtype(array.dtype, jnp.bool_))


# -------------------------------------------------------------------- primitives with parameters


def _converted(one: _Equation) -> Any:
    operand, before, after = one.operands[0], one.values[0], one.results[0]
    if is_inexact(after):
        if _is_boolean(before):
            return one.emit("where", operand, 1.0, 0.0)
        real = _is_complex(before) and not _is_complex(after)
        return one.emit("real" if real else "astype", operand)
    if _is_boolean(after):
        return one.emit("not_equal", operand, 0.0)
    whole = operand
    if not _is_boolean(before):
        whole = one.emit("trunc", operand, result=np.trunc(one.builder.value(operand)))
    one.builder.rely(whole)
    return after


def _rounded(one: _Equation) -> Any:
    value = one.builder.value(one.operands[0])
    to_even = np.array_equal(np.round(value), one.builder.host(one.results[0]))
    return one.emit("round", one.operands[0]) if to_even else None


def _clamped(one: _Equation) -> Any:
    low, x, high = one.operands
    above = np.maximum(one.builder.value(low), one.builder.value(x))
    return one.emit("minimum", one.emit("maximum", low, x, result=above), high)


def _selected(one: _Equation) -> Any:
    which, *cases = one.operands
    if _is_boolean(one.values[0]):
        return one.emit("where", which, cases[1], cases[0])
    shape = one.results[0].shape
    size = prod(shape)
    at = np.clip(np.broadcast_to(one.builder.rely(which), shape), 0, len(cases) - 1)
    return one.take(cases, at * size + np.arange(size).reshape(shape))


def _reduced(one: _Equation) -> Any:
    axes = one.params["axes"]
    name = REDUCTIONS[one.name]
    if name in ("any", "all") and not _is_boolean(one.results[0]):
        return None
    if name in ("argmax", "argmin"):
        one.builder.rely(one.emit(name, one.operands[0], axis=axes[0], keepdims=False))
        return one.results[0]
    return one.emit(name, one.operands[0], axis=tuple(axes), keepdims=False)


FOLDS = {
    "add": ("add", "sum", 0.0),
    "mul": ("multiply", "prod", 1.0),
    "max": ("maximum", "max", -np.inf),
    "min": ("minimum", "min", np.inf),
}
"""The functions of pairs that are folds of the vocabulary: of two numbers, of arrays, and what
changes nothing."""


def _fold_of(one: _Equation) -> tuple[str, str, float] | None:
    """Returns the fold that a function of pairs belongs to, where it is one and the first number is
    the only one to begin with.
    """
    equations = one.params["jaxpr"].eqns
    names = [equation.primitive.name for equation in equations]
    return FOLDS.get(names[0]) if len(names) == 1 and len(one.operands) == 2 else None


def _folded(one: _Equation) -> Any:
    found = _fold_of(one)
    if found is None:
        return None
    pair, whole, neutral = found
    operand, first = one.operands
    value = one.builder.value(operand)
    if one.name == "reduce":
        axes, patches, shown = tuple(one.params["dimensions"]), operand, value
    else:
        p, rank = one.params, value.ndim
        seen = _windows(p, value.shape)
        patches = one.take([operand], seen, neutral)
        axes = tuple(range(rank, 2 * rank))
        shown = one.builder.value(patches)
    made = getattr(np, whole)(shown, axis=axes)
    folded = one.emit(whole, patches, result=made, axis=axes, keepdims=False)
    return one.emit(pair, folded, first)


def _cumulated(one: _Equation) -> Any:
    axis, operand, result = one.params["axis"], one.operands[0], one.builder.host(one.results[0])
    if not one.params["reverse"]:
        return one.emit(CUMULATIVE[one.name], operand, axis=axis)
    back = np.flip(np.arange(result.size).reshape(result.shape), axis)
    turned = one.take([operand], back)
    made = one.emit(CUMULATIVE[one.name], turned, result=np.flip(result, axis), axis=axis)
    return one.take([made], back)


def _product(one: _Equation) -> Any:
    (left, right), (left_batch, right_batch) = one.params["dimension_numbers"]
    shapes = [one.shape for one in one.values]

    def matrices(k: int, batch: Sequence[int], summed: Sequence[int]) -> tuple[Any, int, int]:
        free = [axis for axis in range(len(shapes[k])) if axis not in (*batch, *summed)]
        rows, depth = (prod(shapes[k][axis] for axis in axes) for axes in (free, summed))
        order = [*batch, *free, *summed] if k == 0 else [*batch, *summed, *free]
        inner = (rows, depth) if k == 0 else (depth, rows)
        stack = prod(shapes[k][axis] for axis in batch)
        return one.ordered(one.operands[k], order, (stack, *inner)), stack, rows

    a, stack, rows = matrices(0, left_batch, left)
    b, _, columns = matrices(1, right_batch, right)
    result = one.builder.host(one.results[0])
    whole = one.emit("matmul", a, b, result=result.reshape(stack, rows, columns))
    return one.take([whole], np.arange(result.size).reshape(result.shape))


def _convolved(one: _Equation) -> Any:
    p = one.params
    numbers = p["dimension_numbers"]
    if p["batch_group_count"] != 1:
        return None
    x, kernel = (
        one.ordered(operand, order, [one.values[k].shape[axis] for axis in order])
        for k, (operand, order) in enumerate(
            zip(one.operands, (numbers.lhs_spec, numbers.rhs_spec), strict=True)
        )
    )
    result = one.builder.host(one.results[0]).transpose(numbers.out_spec)
    made = one.builder.convolution(
        x,
        kernel,
        result,
        strides=p["window_strides"],
        padding=p["padding"],
        dilation=p["rhs_dilation"],
        spread=p["lhs_dilation"],
        groups=p["feature_group_count"],
        place=one.place,
        step=one.name,
    )
    back = [numbers.out_spec.index(axis) for axis in range(len(numbers.out_spec))]
    return one.ordered(made, back, one.results[0].shape)


def _windows(p: Mapping[str, Any], size: Sequence[int]) -> NDArray[np.int64]:
    """Returns which entries the windows of a primitive see."""
    dilation, spread = p["window_dilation"], p["base_dilation"]
    window, strides, padding = p["window_dimensions"], p["window_strides"], p["padding"]
    return windows(size, window, strides, padding, dilation, spread)


def _pooled(one: _Equation) -> Any:
    p = one.params
    name, fill = POOLED[one.name]
    rank = len(p["window_dimensions"])
    seen = _windows(p, one.values[0].shape)
    patches = one.take([one.operands[0]], seen, fill)
    return one.emit(name, patches, axis=tuple(range(rank, 2 * rank)), keepdims=False)


def _gathered(one: _Equation) -> Any:
    fill, params = one.params["fill_value"], {**one.params, "fill_value": -1}
    run = partial(one.primitive.bind, **params)
    return one.moved(run, np.nan if fill is None else fill)


def _scattered(one: _Equation) -> NDArray[np.int64] | None:
    """Returns the entry of the operand that each entry is scattered to: those of the operand to
    themselves, and then the updates, with -1 where one is dropped.
    """
    operand, indices, updates = one.values
    one.builder.rely(one.operands[1])
    size = prod(operand.shape)
    if size >= 2**23:  # float32 counts no further
        return None
    numbers = jnp.arange(1, size + 1, dtype=jnp.float32).reshape(operand.shape)
    zeros = jnp.zeros_like(numbers)
    p = one.params

    def add(u: Any) -> Any:
        how = {"mode": p["mode"], "unique_indices": p["unique_indices"]}
        return jax.lax.scatter_add(zeros, indices, u, p["dimension_numbers"], **how)

    (targets,) = jax.vjp(add, jnp.zeros(updates.shape, jnp.float32))[1](numbers)
    return np.concatenate([np.arange(size), np.asarray(targets).astype(np.int64).ravel() - 1])


def _scatter_added(one: _Equation) -> Any:
    targets, shape = _scattered(one), one.values[0].shape
    if targets is None:
        return None
    operands = one.operands[0], one.operands[2]
    return one.emit("segment_sum", *operands, segments=targets, shape=shape)


def _scatter_folded(one: _Equation) -> Any:
    targets, result = _scattered(one), one.builder.host(one.results[0])
    if targets is None:
        return None
    _, whole, neutral = FOLDS[one.name.removeprefix("scatter").lstrip("-_")]
    groups = one.take([one.operands[0], one.operands[2]], grouped(targets, result.size), neutral)
    made = one.emit(whole, groups, result=result.ravel(), axis=(1,), keepdims=False)
    return one.take([made], np.arange(result.size).reshape(result.shape))


def _chosen(one: _Equation, operand: Any, seen: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns which entry of the operand is the largest or the smallest one in each window, whose
    entries lie along a last axis.
    """
    largest = one.params["select_prim"].name == "ge"
    patches = one.take([operand], seen, -np.inf if largest else np.inf)
    name = "argmax" if largest else "argmin"
    at = getattr(one.builder.value(patches), name)(-1)
    one.builder.rely(one.emit(name, patches, result=at, axis=seen.ndim - 1, keepdims=False))
    return np.take_along_axis(seen, at[..., None], -1)[..., 0]


def _selected_gather(one: _Equation) -> Any:
    tangents, operand = one.operands
    seen = _windows(one.params, one.values[1].shape)
    rank = seen.ndim // 2
    return one.take([tangents], _chosen(one, operand, seen.reshape(*seen.shape[:rank], -1)))


def _selected_scatter(one: _Equation) -> Any:
    source, operand = one.operands
    shape = one.values[1].shape
    ones = (1,) * len(shape)
    seen = _windows({**one.params, "window_dilation": ones, "base_dilation": ones}, shape)
    into = _chosen(one, operand, seen.reshape(*seen.shape[: len(shape)], -1))
    return one.emit("segment_sum", source, segments=into.ravel(), shape=shape)


def _sorted(one: _Equation) -> Any:
    axis = one.params["dimension"]
    if one.params["num_keys"] != 1 or not is_inexact(one.values[0]):
        return None
    shape = one.values[0].shape
    places = jax.lax.broadcasted_iota(jnp.int32, shape, axis)
    keys, order = jax.lax.sort((one.values[0], places), dimension=axis, num_keys=1)
    indices = np.asarray(order).astype(np.int64)
    found = [one.emit("sort", one.operands[0], result=keys, axis=axis, indices=indices)]
    if len(one.operands) > 1:  # the others have the order of the first, which may be read nowhere
        one.builder.rely(found[0])
    whole = np.take_along_axis(np.arange(prod(shape)).reshape(shape), indices, axis)
    for operand, value, result in zip(
        one.operands[1:], one.values[1:], one.results[1:], strict=True
    ):
        constant = not is_inexact(value) and not _is_boolean(value)
        found.append(result if constant else one.take([operand], whole))
    return found


def _largest(one: _Equation) -> Any:
    operand, (values, indices) = one.operands[0], one.results
    axis = one.params.get("axis", one.params.get("reduction_dimension", -1))
    order = np.asarray(indices).astype(np.int64)
    if not one.params.get("is_max_k", True):
        made = one.emit("sort", operand, result=values, axis=axis, indices=order)
        one.builder.rely(made)
        return [made, indices]
    negative = one.emit("negative", operand, result=-one.builder.value(operand))
    made = one.emit("sort", negative, result=-one.builder.host(values), axis=axis, indices=order)
    one.builder.rely(made)  # the indices may be read alone
    return [one.emit("negative", made, result=values), indices]


def _transposed(one: _Equation, operand: Any, *, conjugate: bool = False) -> Any:
    shape = one.builder.value(operand).shape
    turned = np.arange(prod(shape)).reshape(shape).swapaxes(-1, -2)
    found = one.take([operand], turned)
    if not conjugate:
        return found
    return one.emit("conj", found, result=one.builder.value(found).conj())


def _triangular_solved(one: _Equation) -> Any:
    p = one.params
    a, b = one.operands
    left, turned = p["left_side"], p["transpose_a"]
    lower, result = p["lower"], one.builder.host(one.results[0])
    if p["conjugate_a"]:
        a = one.emit("conj", a, result=one.builder.value(a).conj())
    if turned != (not left):  # x a = b is a^T x^T = b^T
        a, lower = _transposed(one, a), not lower
    if not left:
        b, result = _transposed(one, b), result.swapaxes(-1, -2)
    options = {"lower": lower, "unit_diagonal": p["unit_diagonal"]}
    made = one.emit("solve_triangular", a, b, result=result, **options)
    return made if left else _transposed(one, made)


def _of_triangle(one: _Equation, *, lower: bool = True) -> Any:
    """Adds the Hermitian matrix of which one triangle is read."""
    operand, shape = one.operands[0], one.values[0].shape
    there, size = np.tri(shape[-1], dtype=bool), prod(shape)
    numbers = np.arange(size).reshape(shape)
    other = operand
    if _is_complex(one.values[0]):
        other = one.emit("conj", operand, result=one.builder.value(operand).conj())
    read = there if lower else there.T
    return one.take([operand, other], np.where(read, numbers, size + numbers.swapaxes(-1, -2)))


def _eigh(one: _Equation) -> Any:
    vectors, values = one.results
    if one.params.get("subset_by_index") is not None:
        return None
    matrix = _of_triangle(one, lower=one.params["lower"])
    found = one.emit("eigh", matrix, result=[values, vectors])
    return [found[1], found[0]]


def _eig(one: _Equation) -> Any:
    if one.params.get("compute_left_eigenvectors"):
        return None
    values = one.builder.host(one.results[0])
    among, vectors = np.linalg.eig(one.builder.value(one.operands[0]))
    if len(one.results) > 1:
        vectors = one.results[1]
    else:  # NumPy's may have another order
        nearest = np.abs(values[..., None] - among[..., None, :]).argmin(-1)
        vectors = np.take_along_axis(vectors, nearest[..., None, :], -1)
    found = one.emit("eig", one.operands[0], result=[one.results[0], vectors])
    return list(found)[: len(one.results)]


def _svd(one: _Equation) -> Any:
    rows, columns = one.values[0].shape[-2:]
    computed, full = one.params["compute_uv"], one.params["full_matrices"]
    if one.params.get("subset_by_index") is not None or (computed and full and rows != columns):
        return None
    s, u, vh = one.results if computed else (one.results[0], *_factors(one))
    found = one.emit("svd", one.operands[0], result=[u, s, vh])
    return [found[1], found[0], found[2]] if computed else [found[1]]


def _factors(one: _Equation) -> tuple[Any, Any]:
    u, _, vh = np.linalg.svd(one.builder.value(one.operands[0]), full_matrices=False)
    return u, vh


def _tridiagonal_solved(one: _Equation) -> Any:
    if one.params.get("perturb_singular"):
        return None
    *diagonals, b = one.operands
    shape = one.values[1].shape
    n, size = shape[-1], prod(shape)
    at = np.full((*shape, n), -1)
    numbers, row = np.arange(size).reshape(shape), np.arange(n)
    at[..., row[1:], row[:-1]] = numbers[..., 1:]
    at[..., row, row] = size + numbers
    at[..., row[:-1], row[1:]] = 2 * size + numbers[..., :-1]
    return one.emit("solve", one.take(diagonals, at), b)


def _qr(one: _Equation) -> Any:
    a = one.values[0]
    if one.params.get("pivoting") or a.shape[-2] < a.shape[-1]:
        return None
    if one.params["full_matrices"] and a.shape[-2] > a.shape[-1]:
        return None
    return list(one.emit("qr", one.operands[0], result=list(one.results)))


def _lu(one: _Equation) -> Any:
    packed, pivots, permutation = one.results
    rows = np.asarray(permutation).astype(np.int64)
    made = one.emit("lu", one.operands[0], result=packed, permutation=rows)
    return [made, pivots, permutation]


def _fft(one: _Equation) -> Any:
    """The transform of all axes that are named, one after the other, by NumPy's for what is
    recorded on the way.
    """
    kind, lengths = int(one.params["fft_type"]), one.params["fft_lengths"]
    value, operand = one.builder.value(one.operands[0]), one.operands[0]
    rank, inverse = value.ndim, kind in (1, 3)
    axes = list(range(rank - len(lengths), rank))
    last = lengths[-1]
    for axis in axes if kind != 2 else reversed(axes):
        if kind == 3 and axis == axes[-1]:  # of real numbers: the other half are the conjugates
            operand, value = _other_half(one, operand, value, last)
        value = (np.fft.ifft if inverse else np.fft.fft)(value, axis=axis)
        scaled = value * value.shape[axis] if inverse else value
        operand = one.emit("fft", operand, result=scaled, axis=axis, inverse=inverse)
        if inverse:
            operand = one.emit("divide", operand, float(value.shape[axis]), result=value)
        if kind == 2 and axis == axes[-1]:
            kept = np.arange(value.size).reshape(value.shape)[..., : last // 2 + 1]
            operand, value = one.take([operand], kept), value[..., : last // 2 + 1]
    return one.emit("real", operand) if kind == 3 else operand


def _other_half(one: _Equation, operand: Any, value: Any, last: int) -> tuple[Any, Any]:
    """Adds the conjugates that a transform of real numbers leaves out, of which the first number
    counts as real, and the middle one.
    """
    size = np.arange(value.size).reshape(value.shape)
    turned = one.emit("conj", operand, result=value.conj())
    inner = slice(1, (last + 1) // 2)
    ends = [0] + ([last // 2] if last % 2 == 0 else [])
    both = np.zeros((*value.shape[:-1], last), np.int64)
    count = last // 2 + 1
    both[..., :count] = size[..., :count]
    both[..., count:] = value.size + size[..., inner][..., ::-1]
    real = one.emit("real", operand, result=value.real)
    for end in ends:
        both[..., end] = 2 * value.size + size[..., end]
    found = one.take([operand, turned, real], both)
    return found, one.builder.value(found)


RULES: Mapping[str, Callable[[_Equation], Any]] = {
    **dict.fromkeys(REDUCTIONS, _reduced),
    **dict.fromkeys(CUMULATIVE, _cumulated),
    **dict.fromkeys(POOLED, _pooled),
    **{f"scatter{dash}{name}": _scatter_folded for dash in "-_" for name in ("mul", "min", "max")},
    "approx_top_k": _largest,
    "clamp": _clamped,
    "conv_general_dilated": _convolved,
    "convert_element_type": _converted,
    "dot_general": _product,
    "cholesky": lambda one: one.emit(
        "cholesky", _of_triangle(one), result=np.tril(one.builder.host(one.results[0]))
    ),
    "eig": _eig,
    "eigh": _eigh,
    "fft": _fft,
    "gather": _gathered,
    "integer_pow": lambda one: one.emit("pow", one.operands[0], float(one.params["y"])),
    "lu": _lu,
    "qr": _qr,
    "reduce": _folded,
    "reduce_window": _folded,
    "round": _rounded,
    "scatter-add": _scatter_added,
    "scatter_add": _scatter_added,
    "select_and_gather_add": _selected_gather,
    "select_and_scatter_add": _selected_scatter,
    "select_n": _selected,
    "sort": _sorted,
    "svd": _svd,
    "top_k": _largest,
    "triangular_solve": _triangular_solved,
    "tridiagonal_solve": _tridiagonal_solved,
}
"""The primitives that take more than another name; `None` is returned where one has no
translation."""
