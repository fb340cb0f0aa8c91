"""Every differentiable primitive of JAX, right and with planted errors, through the checkers; with
`functions` for a first argument, the public functions of its numerical modules.

The cases are the harnesses of JAX's own tests, of which the first of each group that JAX can
differentiate stands for the group. One column of the Jacobian is multiplied by 1 + delta.

A function has no sample of its own in JAX: it is judged at the first of `CALLS` at which its value
is finite and its derivative, too, and not zero.

The tables of ratios compare the times of the checkers: at a first check, before which the caches of
JAX are cleared, and at the fastest of the following ones.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import sys
import types
import unittest
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.stats
import numpy as np
from harness import ORDINARY, RIGHT, Case, Family, SkippedError, compare, first_line, stand_in

DTYPES = ("float64", "float32")
DOUBLE = ("float64", "complex128")
COLUMN_SHARE = 0.1
"""A planted error must show: its column of the Jacobian is at least this share of the largest."""
COLUMN_PROBES = 3
WRONG = {
    r"^stop_gradient_": "cuts the derivative on purpose",
    r"^bitcast_convert_type_": "declares the derivative zero, though the value moves",
    r"^reduce_precision_": "is a staircase, with the derivative of the identity",
    r"^convert_element_type_.*newdtype_(bfloat16|float16|float8|float4|u?int|bool)": (
        "is a staircase, with the derivative of the identity"
    ),
    r"^acosh_shape_complex": "has the wrong sign in half of the plane",
    r"^cholesky_shape_complex": "ignores the imaginary diagonal, its derivative does not",
    r"^sign_shape_complex": "declares the derivative zero, though z/|z| turns with z",
    r"^digamma_": "is that of polygamma(1, x), which is wrong at some x < -8",
    r"^eigh_": "is given a triangular matrix, which jvp and vjp take for its symmetric part",
    r"^jax.scipy.linalg.(cholesky|cho_factor)$": (
        "reads one triangle, and has the derivative by the symmetric part"
    ),
    r"^reduce_gen_add_.*initvalue_[1-9]": "loses the initial value in the primal of jvp and vjp",
}
"""Harnesses and functions whose derivative in JAX 0.10.2 is not that of the function: a FAIL is
right."""
Function = Callable[..., Any]
Arrays = tuple[Any, ...]


# ---------------------------------------------------------------- harnesses as functions


@functools.cache
def all_harnesses() -> list[Any]:
    """JAX's harnesses; what defines them starts JAX, which may not be forked then."""
    testing = {
        "parameterized": types.SimpleNamespace(TestCase=unittest.TestCase),
        "absltest": types.SimpleNamespace(
            TestLoader=unittest.TestLoader, TestCase=unittest.TestCase
        ),
    }
    if stand_in("absl", {"absl": {}, "absl.testing": testing}):
        vars(importlib.import_module("jax._src.config"))["parse_flags_with_absl"] = dict
    with jax.enable_x64(True):  # those of float64 are defined only while x64 is on
        from jax._src.internal_test_util import test_harnesses
    return list(test_harnesses.all_harnesses)


def groups() -> dict[str, list[Any]]:
    """The harnesses by dtype and group, in an order that does not depend on that of a set."""
    found: dict[str, list[Any]] = {}
    for harness in sorted(all_harnesses(), key=lambda h: str(h.fullname)):
        unit = f"{np.dtype(harness.dtype).name} {harness.group_name}"
        found.setdefault(unit, []).append(harness)
    return found


def is_inexact(leaf: Any) -> bool:
    """Whether a leaf is an array or number of a floating-point or complex type."""
    dtype = getattr(leaf, "dtype", None)
    dtype = np.asarray(leaf).dtype if dtype is None else dtype
    return bool(jnp.issubdtype(dtype, jnp.inexact))


def of_leaves(harness: Any) -> tuple[Function, Arrays]:
    """The harness as a function of its inexact leaves, and these leaves."""
    rng = np.random.RandomState(zlib.crc32(harness.fullname.encode()))
    leaves, structure = jax.tree.flatten(harness.dyn_args_maker(rng))
    moving = [i for i, leaf in enumerate(leaves) if is_inexact(leaf)]

    def f(*args: Any) -> Any:
        filled = list(leaves)
        for i, arg in zip(moving, args, strict=True):
            filled[i] = arg
        values = jax.tree.leaves(harness.dyn_fun(*jax.tree.unflatten(structure, filled)))
        return tuple(value for value in values if is_inexact(value))

    return f, tuple(jnp.asarray(leaves[i]) for i in moving)


def differentiable(harness: Any) -> tuple[Function, Arrays, list[str]]:
    """The function of a harness, its arguments, and the modes in which JAX differentiates it."""
    if not harness.filter(jax.default_backend()):
        raise SkippedError("JAX declares it as not implemented on this platform")
    try:
        f, args = of_leaves(harness)
        shapes = jax.eval_shape(f, *args)
    except Exception as error:
        raise SkippedError(f"cannot be traced: {type(error).__name__}") from None
    if not sum(x.size for x in args):
        raise SkippedError("no floating-point inputs")
    if not sum(int(np.prod(shape.shape)) for shape in shapes):
        raise SkippedError("no floating-point outputs")
    modes, reason = [], ""
    for mode, attempt in (("fwd", push_forward), ("rev", pull_back)):
        try:
            attempt(f, args)
        except Exception as error:  # any refusal is a reason
            reason = first_line(f"{type(error).__name__}: {error}", 80)
        else:
            modes.append(mode)
    if not modes:
        raise SkippedError(f"not differentiable by JAX: {reason}")
    return f, args, modes


def random_like(rng: np.random.Generator, x: Any) -> Any:
    """A normal array of the shape and dtype of `x`."""
    values = rng.standard_normal(x.shape)
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        values = values + 1j * rng.standard_normal(x.shape)
    return jnp.asarray(values, x.dtype)


def pull_back(f: Function, args: Arrays) -> list[np.ndarray]:
    """Mean magnitudes of `J* w` over a few random `w`: how much each element matters."""
    rng = np.random.default_rng(0)
    values, vjp = jax.vjp(f, *args)
    total = [np.zeros(x.size) for x in args]
    for _ in range(COLUMN_PROBES):
        pulled = vjp(tuple(random_like(rng, value) for value in values))
        for sums, part in zip(total, pulled, strict=True):
            sums += np.abs(np.asarray(part)).ravel() / COLUMN_PROBES
    return total


def push_forward(f: Function, args: Arrays) -> Any:
    """`J v` at a random tangent."""
    rng = np.random.default_rng(0)
    return jax.jvp(f, args, tuple(random_like(rng, x) for x in args))


def kind_of(label: str, f: Function, args: Arrays) -> str:
    """`wrong` where a FAIL is right, `not finite`, or `ordinary`."""
    if any(re.search(pattern, label) for pattern in WRONG):
        return "wrong"
    finite = all(bool(np.all(np.isfinite(np.asarray(x)))) for x in (*args, *f(*args)))
    return ORDINARY if finite else "not finite"


# ---------------------------------------------------------------- planted errors


def site_of(label: str, f: Function, args: Arrays) -> tuple[int, int] | None:
    """A leaf and an element whose derivative is not negligible, drawn with a seed from the name."""
    rng = np.random.default_rng(zlib.crc32(label.encode()))
    for leaf, column in enumerate(pull_back(f, args)):
        finite = np.where(np.isfinite(column), column, 0.0)
        if finite.size and finite.max() > 0:
            eligible = np.flatnonzero(finite >= COLUMN_SHARE * finite.max())
            return leaf, int(rng.choice(eligible))
    return None


def scaled(f: Function, x: Any, site: tuple[int, int], delta: float) -> Function:
    """`f` with the same values, and one column of the Jacobian times `1 + delta`."""
    leaf, element = site
    scale = np.ones(x.size)
    scale[element] += delta
    scale = scale.reshape(x.shape).astype(np.finfo(x.dtype).dtype)

    @jax.custom_jvp
    def identity(x: Any) -> Any:
        return x

    @identity.defjvp
    def _(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
        return primals[0], tangents[0] * scale

    def planted(*args: Any) -> Any:
        return f(*args[:leaf], identity(args[leaf]), *args[leaf + 1 :])

    return planted


# ---------------------------------------------------------------- the family


def units(dtypes: Sequence[str] = DTYPES) -> list[str]:
    """Every group of harnesses, which stands for a primitive, in each dtype."""
    return sorted(unit for unit in groups() if unit.split(" ")[0] in dtypes)


def prepare(deltas: Sequence[float]) -> Callable[[str], Iterator[Case]]:
    """The cases of a group: the first harness that JAX differentiates, with each error."""
    warnings.simplefilter("ignore")
    by_unit = groups()

    def cases(unit: str) -> Iterator[Case]:
        jax.clear_caches()
        with jax.enable_x64(unit.split(" ")[0] in DOUBLE):
            yield from of_group(by_unit[unit], unit.split(" ")[0], deltas)

    return cases


def of_group(harnesses: Sequence[Any], dtype: str, deltas: Sequence[float]) -> Iterator[Case]:
    """The cases of the first harness that has a derivative; else the first reason why none has."""
    reasons = []
    for harness in harnesses:
        try:
            f, args, modes = differentiable(harness)
        except SkippedError as skipped:
            reasons.append(skipped)
            continue
        label, options = harness.fullname, {"seed": 0}
        options |= {"check_forward_ad": "fwd" in modes, "check_backward_ad": "rev" in modes}
        yield from planted(f"{label} {dtype}", dtype, f, args, options, deltas)
        return
    raise reasons[0]


def planted(
    name: str,
    group: str,
    f: Function,
    args: Arrays,
    options: dict[str, Any],
    deltas: Sequence[float],
) -> Iterator[Case]:
    """The function as it is and with errors, where it has a derivative in reverse mode."""
    label = name.split(" ")[0]
    site = site_of(label, f, args) if options["check_backward_ad"] else None
    kind = kind_of(label, f, args)
    for delta in (0.0, *deltas) if site else (0.0,):
        g = scaled(f, args[site[0]], site, delta) if site and delta else f
        make = functools.partial(_made, g, args)
        plant = f"{delta:g}" if delta else RIGHT
        yield Case(name, group, make, plant, kind, options)


def _made(f: Function, args: Arrays, _engine: str) -> tuple[Function, Arrays]:
    return f, args


FAMILY = Family(units, prepare)


# ---------------------------------------------------------------- public functions

MODULES = (
    *("jax.numpy", "jax.numpy.linalg", "jax.numpy.fft", "jax.nn", "jax.lax", "jax.lax.linalg"),
    *("jax.scipy.linalg", "jax.scipy.signal", "jax.scipy.fft", "jax.scipy.special"),
    *(f"jax.scipy.stats.{k}" for k, v in vars(jax.scipy.stats).items() if inspect.ismodule(v)),
)
NOT_CALLED = "save|load|from|print|set_printoptions|vectorize|while_loop|map$"
V, W, U = (np.array(one) for one in ((0.3, 0.7, 0.45), (1.2, 0.6, 0.9), (0.55, 0.25, 0.8)))
M = np.array([[2.0, 0.3, 0.1], [0.4, 1.7, 0.2], [0.25, 0.15, 1.4]])
N = np.array([[0.3, 1.1, 0.7], [0.2, 0.9, 0.4], [1.3, 0.8, 0.6]])
S, K = (M + M.T) / 2, np.array([1, 2, 1])
IMAGES, KERNEL, FOUR = N.reshape(1, 1, 3, 3), M[:2, :2].reshape(1, 1, 2, 2), np.eye(4) + 0.1
CALLS: tuple[tuple[Callable[[Function], Function], Arrays], ...] = (
    *((lambda f: f, args) for args in ((V,), (V, W), (V, W, U), (S,), (M, N), (S, V), (V + 1,))),
    *((lambda f: f, args) for args in ((V + 1j * W,), (V + 2, W), (V, W, U, V + 1))),
    *((lambda f: f, args) for args in ((V, W, U, V + 1, W + U), (V, W, S), (IMAGES, KERNEL))),
    (lambda f: lambda a, b: f([a, b]), (V, W)),
    (lambda f: lambda a, b: f([a, b], 0), (V, W)),
    (lambda f: lambda a: f([a, a @ a, a]), (M,)),
    (lambda f: lambda a: f(a, a), (V,)),
    *((lambda f, k=k: lambda a: f(a, k), (V,)) for k in (1, 0.35, (3, 1), (2, 3), K, (0,), (0, 1))),
    *((lambda f, k=k: lambda a: f(k, a), (V,)) for k in (1, K, 1.5)),
    *((lambda f, k=k: lambda a: f(a, *k), (M,)) for k in ((1,), (0, 1), ((0,),), ((1, 0),))),
    *((lambda f, k=k: lambda a: f(a, *k), (M,)) for k in (((0, 0), (2, 2)), (0, 2, 1), ((2, 1),))),
    (lambda f: lambda a: f(a, axis=0), (N,)),
    (lambda f: lambda a: f(a, jnp.array([[0], [2], [1]]), 1), (M,)),
    (lambda f: lambda a, b: f(jnp.array([True, False, True]), a, b), (V, W)),
    (lambda f: lambda a, b: f(K, a, b), (V, W)),
    (lambda f: lambda a: f(K, 5, a), (V,)),
    (lambda f: lambda a: f(jnp.array([True, False, True]), a, size=2), (V,)),
    (lambda f: lambda a: f(a, length=4, weights=a), (V,)),
    (lambda f: lambda a: f(K, weights=a, length=4), (V,)),
    (lambda f: lambda a: f(V, bins=jnp.array([0.0, 0.4, 1.0]), weights=a), (W,)),
    (lambda f: lambda a, b: f(K - 1, [a, b, a], mode="clip"), (V, W)),
    (lambda f: lambda a, b: f([a < 0.5, a > 0.6], [a, b]), (V, W)),
    (lambda f: lambda a: f(a, [a < 0.5], [jnp.sin, jnp.cos]), (V,)),
    (lambda f: lambda a, b: f(a, 1, b[0]), (V, W)),
    (lambda f: lambda a, b: f(a, jnp.array([0]), b[:1], inplace=False), (V, W)),
    (lambda f: lambda a: f(a, jnp.array([[0], [1], [2]]), a[:, :1], 1, inplace=False), (N,)),
    (lambda f: lambda a, b: f(a, b, inplace=False), (N, W)),
    (lambda f: lambda a, b: f("ij,jk->ik", a, b), (M, N)),
    (lambda f: lambda a: f(jnp.sin, 0, a), (M,)),
    (lambda f: lambda a: f(jnp.sum, a, 0), (M,)),
    (lambda f: lambda a: f(jnp.sum, a, (0,)), (M,)),
    (lambda f: lambda a: f(lambda x, y: x * y, a), (V,)),
    (lambda f: lambda a, b: f((jnp.linalg.cholesky(a @ a.T), True), b), (M, V)),
    (lambda f: lambda a, b: f(jax.scipy.linalg.lu_factor(a), b), (M, V)),
    (lambda f: lambda a: f(a.reshape(2, 2, 2, 2)), (FOUR,)),
    (lambda f: lambda a, b: f(a.reshape(2, 2, 2, 2), b), (FOUR, N[:2, :2])),
    (lambda f: lambda a: f(a, (1, 1), mode="reflect"), (V,)),
    (lambda f: lambda a: f(a, 0.0, ((1, 1, 0),)), (V,)),
    (lambda f: lambda a, b: f(a, jnp.array([0.0, 0.5, 1.0]), b), (V, W)),
    (lambda f: lambda a: f(a, [jnp.array([0.3, 1.2]), jnp.array([1.1, 0.4])], 1), (N,)),
    (lambda f: lambda a: f(a, jnp.array([0, 1, 2])), (N,)),
    (lambda f: lambda a, b: f(K, jnp.array([0, 1, 1]), a, b, n_max=2), (V, W)),
    (lambda f: lambda a, b: f(a, b, (1, 1), "SAME"), (IMAGES, KERNEL)),
    (lambda f: lambda a, b: f(a, b, (((1,), (0,)), ((), ()))), (M, N)),
    (lambda f: lambda a: f(a[None], a[None] + 1, a[None] * 2), (np.stack([M, N]),)),
)
"""How a function is called in turn, and at which arrays."""


def function_units() -> list[str]:
    """Every public function of `MODULES`."""
    found = []
    for module in MODULES:
        for name, one in sorted(vars(importlib.import_module(module)).items()):
            is_class = inspect.isclass(one) or inspect.ismodule(one)
            skipped = name.startswith("_") or re.match(NOT_CALLED, name)
            if callable(one) and not is_class and not skipped:
                found.append(f"float64 {module}.{name}")
    return found


def prepare_functions(deltas: Sequence[float]) -> Callable[[str], Iterator[Case]]:
    """The cases of a public function: at its sample, with each error."""
    warnings.simplefilter("ignore")

    def cases(unit: str) -> Iterator[Case]:
        module, _, name = unit.split(" ")[1].rpartition(".")
        function = getattr(importlib.import_module(module), name)
        jax.clear_caches()
        with jax.enable_x64(True):
            for form, arrays in CALLS:
                f, args = inexact_of(form(function)), tuple(map(jnp.asarray, arrays))
                modes = modes_at(f, args)
                if modes:
                    options = {"seed": 0, "check_forward_ad": "rev" not in modes}
                    options |= {"check_backward_ad": "rev" in modes}
                    yield from planted(f"{module}.{name}", module, f, args, options, deltas)
                    return
        raise SkippedError("no sample with a derivative")

    return cases


def inexact_of(f: Function) -> Function:
    """A function of which the floating-point results count."""
    return lambda *args: tuple(value for value in jax.tree.leaves(f(*args)) if is_inexact(value))


def modes_at(f: Function, args: Arrays) -> list[str]:
    """The modes in which JAX differentiates, where value and derivative are finite and not zero."""
    modes = []
    try:
        shapes = jax.tree.leaves(jax.eval_shape(f, *args))  # it can be traced
        if not shapes or not all(np.isfinite(np.asarray(one)).all() for one in f(*args)):
            return []
    except Exception:  # any refusal is one
        return []
    for mode in ("fwd", "rev"):
        try:
            found = push_forward(f, args)[1] if mode == "fwd" else pull_back(f, args)
            moves = [np.asarray(one) for one in found]
        except Exception:  # noqa: S112
            continue
        if all(np.isfinite(one).all() for one in moves) and any(one.any() for one in moves):
            modes.append(mode)
    return modes


FUNCTIONS = Family(function_units, prepare_functions)


if __name__ == "__main__":
    if sys.argv[1:2] == ["functions"]:
        judges = ("adjudge", "adjudge exact")
        compare(FUNCTIONS, "JAX's functions", judges, ("float64",), sys.argv[2:])
    else:
        compare(FAMILY, "JAX's primitives", ("adjudge", "check_grads"), DTYPES)
