"""JAX as an adjudge backend: vjp, jvp, vmap, jit; the adjoint is the real one."""

from __future__ import annotations

import importlib
import math
import os
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, cached_property, partial
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from adjudge.engine import (
    EPS,
    Array,
    ArrayOperations,
    Arrays,
    AutodiffBackend,
    Environment,
    Expansion,
    FlatByHand,
    FlatFunction,
    HostArray,
    MaybeArrays,
    Precision,
    Program,
    Pullback,
    Refusals,
    Setting,
    Trace,
    Watcher,
    restored,
)
from adjudge.errors import Catching, Source, running
from adjudge_jax.recording import (
    COMPILED,
    compilations,
    equations_of,
    is_inexact,
    jaxprs_of,
    recording,
    rules_ask,
)
from adjudge_jax.tracing import PastCasts, moved_by_rounding, past_casts, trace
from adjudge_jax.translation import program
from adjudge_jax.watching import watching

CONFIG: Any = jax.config
"""JAX's settings, whose attributes are made at run time."""

ACCELERATED_EPS = {"gpu": EPS["tf32"], "tpu": EPS["bfloat16"]}
"""The spacing at 1 of what the factors of float32 products are rounded to at JAX's default
precision (JAX documentation, `jax.lax.Precision`)."""

PRECISE = ("highest", "float32", "F32_F32_F32", "F64_F64_F64", "TF32_TF32_F32_X3")
"""The values of `jax_default_matmul_precision` with the digits of float32; so has every preset of
six or nine products of bfloat16."""

COARSE = {
    "BF16_BF16_F32_X3": 2.0**-15,
    "BF16_": EPS["bfloat16"],
    "F16_": EPS["float16"],
    "TF32_": EPS["tf32"],
}
"""The spacing at 1 of what other presets round factors to, by how their names begin."""

PRODUCTS = frozenset(
    (
        *("dot_general", "ragged_dot", "ragged_dot_general", "conv_general_dilated"),
        *("cholesky", "cholesky_update", "eig", "eigh", "geqrf", "geqp3", "hessenberg", "fft"),
        *("householder_product", "lu", "ormqr", "qr", "schur", "svd", "triangular_solve"),
        *("tridiagonal", "tridiagonal_solve", "pallas_call", "custom_partitioning", "ffi_call"),
        *("pure_callback", "io_callback", "custom_vjp_call_jaxpr", "xla_metadata_call"),
    )
)
"""Primitives that compute products, or may: factorisations and transforms do on some devices, and
of code that JAX does not see nothing is known. The list is ours."""

NEEDS_NUMBERS = (jax.errors.JAXTypeError, jax.errors.JAXIndexError)
"""What JAX raises where a function reads the numbers of its arrays, or indexes with a mask."""

DETERMINISTIC = "--xla_gpu_deterministic_ops"

REFUSALS = Refusals(
    (TypeError, ValueError, NotImplementedError),
    (
        "can't apply forward-mode autodiff (jvp) to a custom_vjp function",
        "Reverse-mode differentiation does not work for",
        "callbacks do not support JVP",
        "Differentiation rule for",
        "gradient with respect to a and b not supported",  # of betainc
        "Transpose rule (for reverse-mode differentiation) for",
        "Linearization failed to produce known values",  # of custom_vmap
    ),
    (
        (
            "to a custom_vjp function",
            "JAX has no forward mode of a custom_vjp: write the rule as a custom_jvp, or switch "
            "that check off",
        ),
    ),
)
"""What JAX says where it has no derivative to offer (0.4.36 to 0.10.2)."""


# ---------------------------------------------------------------- arrays


class JaxArrays(ArrayOperations):
    """Operations on JAX's arrays. Contract: see `ArrayOperations`."""

    def is_differentiable(self, array: Array) -> bool:
        return is_inexact(array)  # unlike isdtype, it takes the dtypes of random keys

    def is_complex(self, array: Array) -> bool:
        return _is_complex(array.dtype)

    def to_host(self, array: Array, like: Array | None = None) -> HostArray:
        try:
            return super().to_host(array, like)
        except jax.errors.TracerArrayConversionError as error:
            error.add_note(
                "adjudge: an array is a tracer of JAX, which has no values: the check is made "
                "inside of a function that JAX transforms; check outside of jax.jit, jax.grad and "
                "jax.vmap (the function that is checked may use them)"
            )
            raise

    def devices(self) -> list[str]:
        return [str(device) for device in _devices()]

    def dtypes(self) -> list[str]:
        wide = "" if CONFIG.jax_enable_x64 else " (in 64-bit mode)"
        return [
            f"float64{wide}", "float32", "float16", "bfloat16", f"complex128{wide}", "complex64",
        ]  # fmt: skip

    def from_host(self, host: HostArray, like: Array) -> Array:
        rounded = np.asarray(host, order="C").astype(np.dtype(like.dtype))
        array = _put(rounded, like)
        if array.dtype != like.dtype:  # 64-bit values outside of 64-bit mode become 32-bit ones
            raise self.lacks_dtype(
                str(like.dtype),
                f"JAX made {array.dtype} of it; enable 64-bit mode: "
                "jax.config.update('jax_enable_x64', True)",
            )
        return array

    def make(self, values: NDArray[Any], dtype: str, device: str | None = None) -> Array:
        try:
            wanted = jnp.dtype(dtype)
        except TypeError as error:
            raise self.lacks_dtype(dtype, str(error)) from error
        with _isolated(wanted.itemsize >= 8 and wanted != jnp.complex64):
            there = None if device is None else self._device(device)
            return jax.device_put(np.array(values).astype(wanted), there)

    def widen(self, array: Array) -> Array:
        # on the host, where no program is compiled for it
        wide = np.complex128 if self.is_complex(array) else np.float64
        return _put(np.asarray(array).astype(wide), array)

    def zeros_for_absent(self, values: MaybeArrays, like: Arrays) -> Arrays:
        return tuple(
            _zeros_like(leaf) if value is None else value
            for value, leaf in zip(values, like, strict=True)
        )

    def copy(self, array: Array) -> Array:
        return array  # immutable: there is nothing that could be written into

    def to_spend(self, array: Array) -> Array | None:
        # `donate_argnums` of jax.jit gives the memory of an argument to the result
        return jnp.array(array, copy=True)

    def spent(self, array: Array) -> bool:
        return not isinstance(array, jax.core.Tracer) and bool(array.is_deleted())

    def place(self, array: Array, device: str) -> Array:
        return jax.device_put(array, self._device(device))

    def expand(self, node: object) -> Expansion | None:
        if isinstance(node, jax.Array | np.ndarray | np.generic):
            return None
        paths, structure = jax.tree_util.tree_flatten_with_path(node)
        if jax.tree_util.treedef_is_leaf(structure):
            return None
        return Expansion(
            tuple(leaf for _, leaf in paths),
            tuple(jax.tree_util.keystr(path) for path, _ in paths),
            lambda children: jax.tree_util.tree_unflatten(structure, children),
        )

    def _device(self, name: str) -> Any:
        kind, _, number = name.partition(":")
        for device in _devices():
            if name == str(device) or (kind in _kinds(device) and number in ("", str(device.id))):
                return device
        raise self.lacks_device(name)


def _committed(array: Any) -> bool:
    """Returns whether JAX computes where this array is. One that nobody put anywhere is moved
    freely.
    """
    return bool(getattr(array, "committed", getattr(array, "_committed", True)))


def _at_home(value: Array, like: Array) -> Array:
    """Returns `value` where `like` is, unless it was put elsewhere.

    JAX makes the zeros of what does not depend on an input on its default device, and commits them
    to none.
    """
    if isinstance(value, jax.core.Tracer) or isinstance(like, jax.core.Tracer):
        return value
    if not isinstance(value, jax.Array):  # a rule may return arrays of NumPy
        return _put(np.asarray(value), like)
    if value.sharding == like.sharding or (_committed(value) and _committed(like)):
        return value
    return _put(np.asarray(value), like)


def _put(host: NDArray[Any], like: Array) -> Array:
    """Returns an array where `like` is. Computations may move it wherever they may move `like`."""
    if _committed(like):
        return jax.device_put(host, like.sharding)
    with jax.default_device(next(iter(like.devices()))):
        return jnp.asarray(host)  # in half of the time that device_put takes


def _zeros_like(leaf: Array) -> Array:
    """Returns zeros like `leaf`. Those of an array are made without a program to be compiled."""
    if isinstance(leaf, jax.core.Tracer):
        return jnp.zeros_like(leaf)
    return _put(np.zeros(leaf.shape, np.dtype(leaf.dtype)), leaf)


@cache
def _is_complex(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.complexfloating))


def _conjugate(array: Array) -> Array:
    """Returns the complex conjugate, for which JAX compiles a program for real numbers as well."""
    return jnp.conj(array) if _is_complex(array.dtype) else array


def _devices() -> list[Any]:
    """Returns the devices of the default platform, and the CPU, which JAX always has beside it."""
    found: list[Any] = list(jax.devices())
    if found[0].platform != "cpu":
        try:
            found += jax.devices("cpu")
        except RuntimeError:  # JAX_PLATFORMS leaves it out
            return found
    return found


def _kinds(device: Any) -> tuple[str, ...]:
    """Returns the names of a kind of device. CUDA's are `gpu` by platform, and `cuda:0` by name."""
    return device.platform, str(device).partition(":")[0]


# ---------------------------------------------------------------- environment


class JaxEnvironment(Environment):
    """JAX's settings. Contract: see `Environment`."""

    def isolation(self, leaves: Sequence[Array]) -> AbstractContextManager[None]:
        return _isolated(any(leaf.dtype in (jnp.float64, jnp.complex128) for leaf in leaves))

    def widening(self) -> AbstractContextManager[None]:
        return _x64()

    def widening_past_casts(
        self, likes: Arrays = (), coarsest: float = math.inf
    ) -> AbstractContextManager[None]:
        return _x64()

    def past_casts(
        self, f: FlatFunction, likes: Arrays, coarsest: float = math.inf
    ) -> FlatFunction:
        if isinstance(f, FlatByHand):
            return f
        # The program is the one of the user's mode, in which random numbers have other digits.
        wide = any(jnp.finfo(leaf.dtype).bits == 64 for leaf in likes)
        return past_casts(f, likes, coarsest, partial(_x64, wide))

    def highest_precision(self) -> AbstractContextManager[None]:
        highest: AbstractContextManager[None] = jax.default_matmul_precision("highest")
        return highest

    def carried_settings(self) -> Callable[[], AbstractContextManager[object]] | None:
        if CONFIG.jax_default_device is not None:
            return None
        precision = CONFIG.jax_default_matmul_precision
        return partial(_carried, bool(CONFIG.jax_enable_x64), precision)

    def precision(self, array: Array) -> Precision:
        eps = _product_eps(array)
        if not eps:
            return Precision(setting=_in_flags(array))
        setting = CONFIG.jax_default_matmul_precision
        said = f"jax_default_matmul_precision = {setting!r}, which is fast and not precise here"
        return Precision(eps, said)

    def determinism_setting(self, array: Array) -> str:
        on_gpu = next(iter(array.devices())).platform == "gpu"
        fixed = not on_gpu or _flag(DETERMINISTIC) in ("true", "1")
        return "" if fixed else f"XLA_FLAGS={DETERMINISTIC}=true"

    def computes_products(self, f: FlatFunction, x: Arrays) -> bool:
        def derivative(*leaves: Array) -> Any:
            y, pull = jax.vjp(lambda *leaves: f(leaves), *leaves)
            return y, pull(tuple(jnp.ones_like(one) for one in y))

        with Catching(), running(Source.FUNCTION):  # of what cannot be traced nothing is known
            traced = jax.make_jaxpr(derivative)(*x)
            return any(each.primitive.name in PRODUCTS for each in equations_of(traced.jaxpr))
        return True

    def spacings_inside(self, f: FlatFunction, x: Arrays) -> frozenset[float]:
        try:
            traced = jax.make_jaxpr(lambda *leaves: f(leaves))(*x)
        except NEEDS_NUMBERS:  # what it does is not known
            return frozenset()
        moved = [one for one in traced.jaxpr.invars if _is_inexact(one)]
        found = set(_dtypes(traced.jaxpr, moved))
        return frozenset(float(jnp.finfo(dtype).eps) for dtype in found)

    def moved_by_rounding(
        self, f: FlatFunction, draw: int, *, wide: bool = False
    ) -> FlatFunction | None:
        return partial(moved_by_rounding, f, draw, wide)


@contextmanager
def _isolated(wide: bool) -> Iterator[None]:
    """Restores JAX's settings at the end; meanwhile it is in 64-bit mode where `wide`."""
    with restored(*_SETTINGS), _x64() if wide else nullcontext():
        yield


def _setting(name: str) -> Setting:
    return Setting(lambda: getattr(CONFIG, name), lambda value: CONFIG.update(name, value))


_NAMES = (
    *("jax_enable_x64", "jax_default_device", "jax_default_matmul_precision", "jax_disable_jit"),
    *("jax_debug_nans", "jax_debug_infs", "jax_check_tracer_leaks", "jax_enable_checks"),
    *("jax_numpy_dtype_promotion", "jax_numpy_rank_promotion", "jax_softmax_custom_jvp"),
    *("jax_default_prng_impl", "jax_threefry_partitionable", "jax_random_seed_offset"),
    *("jax_transfer_guard", "jax_log_compiles", "jax_traceback_filtering"),
)
"""The settings that a function may change; a version of JAX may lack some."""
_SETTINGS = tuple(_setting(name) for name in _NAMES if hasattr(CONFIG, name))


def _product_eps(array: Array) -> float:
    """Returns the spacing at 1 of what factors of products are rounded to, or 0.

    It is 0 where products are as exact as the dtype.
    """
    platform = next(iter(array.devices())).platform
    if array.dtype not in (jnp.float32, jnp.complex64) or platform not in ACCELERATED_EPS:
        return 0.0
    setting = str(CONFIG.jax_default_matmul_precision)
    if setting in PRECISE or setting.endswith(("_X6", "_X9")):
        return 0.0
    of_preset = (eps for begin, eps in COARSE.items() if setting.startswith(begin))
    return next(of_preset, ACCELERATED_EPS[platform])


def _flag(name: str) -> str:
    """Returns the value of a flag of XLA in the environment, the last one given, or ""."""
    given = [word for word in os.environ.get("XLA_FLAGS", "").split() if word.startswith(name)]
    return (given[-1].partition("=")[2] or "true").lower() if given else ""


def _in_flags(array: Array) -> str:
    """Returns the flags of XLA by which some operations round otherwise than the dtype."""
    fast, excess = "--xla_cpu_enable_fast_math", "--xla_allow_excess_precision"
    if next(iter(array.devices())).platform == "cpu" and _flag(fast) in ("true", "1"):
        return f"XLA_FLAGS={fast}=true"
    if array.dtype in (jnp.float16, jnp.bfloat16) and _flag(excess) not in ("false", "0"):
        return f"compiled code keeps digits between operations, without XLA_FLAGS={excess}=false"
    return ""


def _x64(wide: bool = True) -> AbstractContextManager[Any]:
    # JAX before 0.8 has the context manager in jax.experimental only
    home: Any = jax if hasattr(jax, "enable_x64") else importlib.import_module("jax.experimental")
    context: AbstractContextManager[Any] = home.enable_x64(wide)
    return context


@contextmanager
def _carried(wide: bool, precision: str | None) -> Iterator[None]:
    with _x64(wide), jax.default_matmul_precision(precision):
        yield


def _dtypes(jaxpr: Any, read: Collection[Any]) -> Iterator[Any]:
    """Yields the floating dtypes of all results in a traced function that are made of its variables
    `read`. Rounding a constant, as `jnp.eye` or a mask is, is a part of the formula.
    """
    known = set(read)
    for equation in jaxpr.eqns:
        taken = [not isinstance(one, jex.Literal) and one in known for one in equation.invars]
        if not any(taken):
            continue
        for variable in equation.outvars:
            if _is_inexact(variable):
                known.add(variable)
                yield variable.aval.dtype
        for inner in jaxprs_of(equation):
            # What a loop carries may be a constant at first, and is none later.
            same = equation.primitive.name in COMPILED and len(inner.invars) == len(taken)
            moves = taken if same else [True] * len(inner.invars)
            pairs = zip(inner.invars, moves, strict=True)
            yield from _dtypes(inner, [one for one, moved in pairs if moved and _is_inexact(one)])


def _is_inexact(variable: Any) -> bool:
    dtype = getattr(variable.aval, "dtype", None)
    return dtype is not None and bool(jnp.issubdtype(dtype, jnp.inexact))


# ---------------------------------------------------------------- derivatives

IMPLICIT = ("random_gamma",)
"""The samplers that are differentiated through the distribution function (Figurnov, Mohamed and
Mnih, NeurIPS 2018). `jax.random.beta`, `dirichlet`, `t` and others are made of this one."""


class JaxBackend(AutodiffBackend):
    """JAX's derivatives. Contract: see `AutodiffBackend`.

    JAX's pullback is the transpose; conjugating cotangent and gradient makes it the adjoint.
    """

    name = "jax"
    usually_compiled = True
    differentiates_numbers = True
    compiled_way = "jit"
    refusals = REFUSALS
    _last_asked: tuple[weakref.ref[FlatFunction], bool] | None = None
    """The function that `rules_ask` was asked about last, and its answer."""

    @property
    def xp(self) -> Any:
        return jnp

    def owns(self, leaf: object) -> bool:
        return isinstance(leaf, jax.Array)

    @cached_property
    def arrays(self) -> ArrayOperations:
        return JaxArrays(self.name, jnp)

    @cached_property
    def environment(self) -> Environment:
        return JaxEnvironment(str(jax.__version__))

    def vjp(self, f: FlatFunction, x: Arrays) -> tuple[Arrays, Pullback]:
        with self.refusing("reverse mode (vjp)"):
            y, transpose = jax.vjp(lambda *leaves: f(leaves), *x)

        of_some: dict[tuple[int, ...], Callable[[Sequence[Array]], Arrays]] = {}

        def transpose_of(given: tuple[int, ...]) -> Callable[[Sequence[Array]], Arrays]:
            """Returns the transpose for these outputs alone."""

            def outputs(*leaves: Array) -> list[Array]:
                whole = f(leaves)
                return [whole[k] for k in given]

            if given not in of_some:
                of_some[given] = jax.vjp(outputs, *x)[1]
            return of_some[given]

        def pullback(w: MaybeArrays) -> MaybeArrays:
            with self.refusing("reverse mode (vjp)"):
                if self._asked_for_some(f, x, w):
                    given = tuple([k for k, one in enumerate(w) if one is not None])
                    gradients = transpose_of(given)([_conjugate(w[k]) for k in given])
                else:
                    filled = self.arrays.zeros_for_absent(w, y)
                    gradients = transpose(tuple(map(_conjugate, filled)))
                return tuple(
                    _at_home(_conjugate(g), leaf) for g, leaf in zip(gradients, x, strict=True)
                )

        return y, pullback

    def jvp(self, f: FlatFunction, x: Arrays, v: MaybeArrays) -> tuple[Arrays, MaybeArrays]:
        g = f.forward if isinstance(f, PastCasts) else f
        with self.refusing("forward mode (jvp)"):
            if self._asked_for_some(g, x, v):
                given = {j: one for j, one in enumerate(v) if one is not None}

                def of_given(*some: Array) -> Arrays:
                    leaves = dict(enumerate(x)) | dict(zip(given, some, strict=True))
                    return g(tuple(leaves.values()))

                y, jv = jax.jvp(of_given, [x[j] for j in given], [*given.values()])
            else:
                filled = self.arrays.zeros_for_absent(v, x)
                y, jv = jax.jvp(lambda *leaves: g(leaves), x, filled)
            return y, tuple(map(_at_home, jv, y))

    def _asked_for_some(self, f: FlatFunction, x: Arrays, probes: MaybeArrays) -> bool:
        """Returns whether some probes are absent and others not, and a rule may ask for that. Zeros
        in their places are something else to it.
        """
        absent = [one is None for one in probes]
        return any(absent) and not all(absent) and self.rules_ask(f, x)

    def constant(self, leaf: Array) -> Array:
        return leaf

    def rules_ask(self, f: FlatFunction, x: Arrays) -> bool:
        known = self._last_asked
        if known is None or known[0]() is not f:
            try:
                traced = jax.make_jaxpr(lambda *leaves: f(leaves))(*x)
            except NEEDS_NUMBERS:
                answer = True
            else:
                answer = rules_ask(traced.jaxpr)
            known = self._last_asked = weakref.ref(f), answer
        return known[1]

    def compilations(self) -> int:
        return compilations()

    def recording(self, f: FlatFunction, x: Arrays) -> FlatFunction | None:
        return recording(f, x)

    def trace(self, f: FlatFunction, x: Arrays) -> Trace:
        try:
            return trace(f, x)
        except NEEDS_NUMBERS as error:
            said = str(error).partition("\n")[0]
            raise self.lacks("recording what this function does (trace)", said) from error

    def implicit_samplers(self, f: FlatFunction, x: Arrays) -> Sequence[str]:
        # what depends on no input is no step
        return sorted({step.name for step in self.trace(f, x).steps if step.name in IMPLICIT})

    def program(self, f: FlatFunction, x: Arrays) -> Program:
        try:
            return program(f, x, self.arrays)
        except NEEDS_NUMBERS as error:
            said = str(error).partition("\n")[0]
            raise self.lacks("translating what this function does (program)", said) from error

    def watching(self, watcher: Watcher) -> AbstractContextManager[None]:
        return watching(watcher)

    def vmap(self, function: Callable[[MaybeArrays], MaybeArrays]) -> Callable[..., MaybeArrays]:
        mapped: Callable[..., MaybeArrays] = jax.vmap(lambda *arrays: function(arrays))
        return mapped

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        # what is not an array is static, as it is for the function as it stands
        jitted: dict[Any, Callable[..., Any]] = {}

        def compiled(*args: Any, **kwargs: Any) -> Any:
            leaves, structure = jax.tree_util.tree_flatten((args, kwargs))
            traced = [isinstance(leaf, jax.Array) for leaf in leaves]
            key = structure, tuple(traced)
            if key not in jitted:
                jitted[key] = jax.jit(_of_arrays(function, leaves, traced, structure))
            return jitted[key](
                [leaf for leaf, is_array in zip(leaves, traced, strict=True) if is_array]
            )

        return compiled


def _of_arrays(
    function: Callable[..., Any], leaves: Sequence[Any], traced: Sequence[bool], structure: Any
) -> Callable[[Sequence[Array]], Any]:
    """Returns `function` as one of its arrays alone; the other leaves stay as they are."""
    rest = [None if is_array else leaf for leaf, is_array in zip(leaves, traced, strict=True)]

    def of_arrays(arrays: Sequence[Array]) -> Any:
        left = iter(arrays)
        whole = [
            next(left) if is_array else leaf for leaf, is_array in zip(rest, traced, strict=True)
        ]
        args, kwargs = jax.tree_util.tree_unflatten(structure, whole)
        return function(*args, **kwargs)

    return of_arrays
