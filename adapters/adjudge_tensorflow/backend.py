"""TensorFlow as an adjudge backend: gradient tapes, forward accumulators and `tf.function`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjudge.engine import (
    EPS,
    Array,
    ArrayInfo,
    ArrayOperations,
    Arrays,
    ArraysByNumpy,
    AutodiffBackend,
    Environment,
    Expansion,
    FlatFunction,
    Functional,
    MaybeArrays,
    Precision,
    Pullback,
    RecordingEnds,
    Refusals,
    Setting,
    restored,
)

tf: Any = importlib.import_module("tensorflow")  # its types are those of Python 2

REAL = ("float64", "float32", "float16", "bfloat16")
COMPLEX = ("complex128", "complex64")
TF32 = Setting(
    tf.config.experimental.tensor_float_32_execution_enabled,
    tf.config.experimental.enable_tensor_float_32_execution,
)
WARNINGS = Setting(lambda: tf.get_logger().level, tf.get_logger().setLevel)
SETTINGS = (
    TF32,
    WARNINGS,
    Setting(tf.config.functions_run_eagerly, tf.config.run_functions_eagerly),
    Setting(tf.config.get_soft_device_placement, tf.config.set_soft_device_placement),
)
"""What a function may change. The state of `tf.random.normal` and its like can be neither read nor
put back, so that functions that draw by these are not repeatable."""
COMPOSITE: Mapping[Any, tuple[str, Callable[[Any, Any], Any]]] = {
    tf.RaggedTensor: ("flat_values", lambda ragged, values: ragged.with_flat_values(values)),
    tf.SparseTensor: ("values", lambda sparse, values: sparse.with_values(values)),
    tf.IndexedSlices: (
        "values",
        lambda slices, values: tf.IndexedSlices(values, slices.indices, slices.dense_shape),
    ),
}
"""The tensors that consist of several: which one has the entries, and one like it with others."""
NAMESPACE = SimpleNamespace(
    **{name: getattr(tf, name) for name in ("zeros", "sin", "exp", "matmul", "where")},
    **{name: getattr(tf, name) for name in ("reshape", "abs")},
    **{name: getattr(tf.math, name) for name in ("log", "conj", "real", "imag")},
    zeros_like=lambda x: _at_home(tf.zeros_like(x), x),
    stack=lambda arrays, axis=0: _at_home(tf.stack(arrays, axis), arrays[0]),
    concat=lambda arrays, axis=0: tf.concat(arrays, axis),
    argmax=lambda x, axis=0: tf.argmax(x, axis),
    sum=lambda x, axis=None, keepdims=False: tf.reduce_sum(x, axis, keepdims),
    mean=lambda x, axis=None, keepdims=False: tf.reduce_mean(x, axis, keepdims),
    permute_dims=tf.transpose,
    take=lambda x, indices, axis=0: tf.gather(x, indices, axis=axis),
    matrix_transpose=tf.linalg.matrix_transpose,
    isdtype=lambda dtype, kind: (
        dtype.name in {"real floating": REAL, "complex floating": COMPLEX}[kind]
    ),
    linalg=tf.linalg,
)
"""TensorFlow's functions under the names of the Array API standard."""


class TensorflowArrays(ArraysByNumpy):
    """Operations on tensors and variables. Contract: see `ArrayOperations`.

    A variable is copied to a variable, since a function may call methods that a tensor has not.
    """

    floating = (*REAL, *COMPLEX)

    def info(self, array: Array) -> ArrayInfo:
        device = array.device.rpartition("device:")[2]
        return ArrayInfo(tuple(array.shape), array.dtype.name, device)

    def devices(self) -> list[str]:
        found = tf.config.list_logical_devices()
        return [device.name.rpartition("device:")[2] for device in found]

    def numpy(self, array: Array) -> NDArray[Any]:
        values: NDArray[Any] = array.numpy()
        return values

    def tensor(
        self, values: NDArray[Any], dtype: str, device: str | None, like: Array | None = None
    ) -> Array:
        known = tf.as_dtype(dtype)
        host = np.array(values, dtype=known.as_numpy_dtype, order="C")
        with tf.device(device):
            if isinstance(like, tf.Variable):
                return tf.Variable(host, trainable=like.trainable, dtype=known)
            return tf.constant(host, known)

    def expand(self, node: object) -> Expansion | None:
        kind = next((kind for kind in COMPOSITE if isinstance(node, kind)), None)
        if kind is None:
            return None
        name, rebuild = COMPOSITE[kind]
        children = (getattr(node, name),)
        return Expansion(children, ("." + name,), lambda new: rebuild(node, new[0]))


def _at_home(value: Array, like: Array) -> Array:
    """Returns `value` as a dense tensor on the device of `like`. TensorFlow computes on others."""
    dense = tf.convert_to_tensor(value)
    if not like.device or dense.device == like.device:  # traced tensors are on no device
        return dense
    with tf.device(like.device):
        return tf.identity(dense)


def _all_at_home(values: Sequence[Array | None], like: Arrays) -> tuple[Any, ...]:
    pairs = zip(values, like, strict=True)
    return tuple(None if value is None else _at_home(value, leaf) for value, leaf in pairs)


class TensorflowEnvironment(Environment):
    """TensorFlow's settings. Contract: see `Environment`."""

    @contextmanager
    def isolation(self, leaves: Sequence[Array]) -> Iterator[None]:
        with restored(*SETTINGS):
            # each derivative is traced by itself, which TensorFlow calls excessive
            WARNINGS.write("ERROR")
            yield

    @contextmanager
    def highest_precision(self) -> Iterator[None]:
        with restored(TF32):
            TF32.write(False)
            yield

    def precision(self, array: Array) -> Precision:
        if "GPU" not in array.device or array.dtype.real_dtype != tf.float32 or not TF32.read():
            return Precision()
        setting = "tf.config.experimental.enable_tensor_float_32_execution(True)"
        return Precision(EPS["tf32"], setting)

    def determinism_setting(self, array: Array) -> str:
        return "tf.config.experimental.enable_op_determinism()" if "GPU" in array.device else ""


REFUSING = (AttributeError, LookupError, ValueError, tf.errors.InternalError)
REFUSED = (
    "'IndexedSlices' object has no attribute '_id'",  # forward mode twice of a gathered gradient
    "No gradient defined for",
    "gradient registry has no",
    "returned too few gradients",  # reverse mode over forward mode over a tf.function
    "of a variable without handle data",  # forward mode of a variable, twice or batched
)
"""What TensorFlow says where it has no derivative to offer (2.21)."""


class Outputs(tuple[Any, ...]):
    """The outputs of a recording, which know where it ends."""

    pullback: Pullback
    read: Arrays
    """The variables that were read, but for those whose values stand among the inputs."""


Held = list[tuple[Array, Array]]
"""Variables, each with the array whose value it holds."""
Holding = Callable[[Held], AbstractContextManager[Any]]
OPEN: list[Holding] = []
"""What is to be told of variables that are held, by each derivative that is being taken: the outer
ones first."""


class TensorflowBackend(AutodiffBackend):
    """TensorFlow's derivatives. Contract: see `AutodiffBackend`.

    A function reads a variable wherever it stands, also in a compiled function. So a variable that
    is checked holds a value for the time of a call, and its gradient is that of the value.
    """

    name = "tensorflow"
    xp = NAMESPACE
    compiled_way = "tf.function"
    refusals = Refusals(REFUSING, REFUSED)

    def owns(self, leaf: object) -> bool:
        return isinstance(leaf, tf.Tensor | tf.Variable)

    @cached_property
    def arrays(self) -> ArrayOperations:
        return TensorflowArrays(self.name, self.xp)

    @cached_property
    def environment(self) -> Environment:
        return TensorflowEnvironment(tf.__version__)

    # ---------------------------------------------------------------- derivatives

    def vjp(self, f: FlatFunction, x: Arrays) -> tuple[Arrays, Pullback]:
        places = {id(leaf): k for k, leaf in enumerate(x)}
        held: Held = []
        closed: dict[int, tuple[Array, int]] = {}

        @contextmanager
        def holding(pairs: Held) -> Iterator[None]:
            held.extend(pairs)
            for variable, value in pairs:
                if id(value) in places:
                    closed[id(variable)] = variable, places[id(value)]
                    tape.watch(variable)
            yield

        with tf.GradientTape(persistent=True) as tape, _telling(holding):
            tape.watch(list(x))
            y = Outputs(map(tf.convert_to_tensor, f(x)))
        ends = [*x, *(variable for variable, _ in closed.values())]

        def pullback(w: MaybeArrays) -> MaybeArrays:
            pairs = [(out, c) for out, c in zip(y, w, strict=True) if c is not None]
            if not pairs:
                return (None,) * len(x)
            outputs, cotangents = map(list, zip(*pairs, strict=True))
            # rules may read the variables once more
            with self.refusing("reverse mode (vjp)"), _holding(held):
                found = tape.gradient(outputs, ends, cotangents)
            gradients = list(found[: len(x)])
            for (_, k), gradient in zip(closed.values(), found[len(x) :], strict=True):
                gradients[k] = _sum([gradients[k], gradient])
            return _all_at_home(gradients, x)

        own = {id(end) for end in ends}
        y.pullback = pullback
        y.read = tuple(one for one in tape.watched_variables() if id(one) not in own)
        return y, pullback

    def jvp(self, f: FlatFunction, x: Arrays, v: MaybeArrays) -> tuple[Arrays, MaybeArrays]:
        moved = {
            id(leaf): tf.convert_to_tensor(tangent)
            for leaf, tangent in zip(x, v, strict=True)
            if tangent is not None
        }
        accumulators: list[Any] = []

        def accumulating(pairs: Held) -> AbstractContextManager[Any]:
            found = [(one, moved[id(value)]) for one, value in pairs if id(value) in moved]
            if not found:
                return nullcontext()
            primals, tangents = map(list, zip(*found, strict=True))
            accumulators.append(tf.autodiff.ForwardAccumulator(primals, tangents))
            latest: AbstractContextManager[Any] = accumulators[-1]
            return latest

        def holding(pairs: Held) -> AbstractContextManager[Any]:
            context = accumulating(pairs)
            if len(OPEN) > 1 and context in accumulators:
                # it would have to begin before the other derivatives do
                raise self.lacks("forward mode of variables, over or under another derivative")
            return context

        with (
            self.refusing("forward mode (jvp)"),
            accumulating([(leaf, leaf) for leaf in x]),
            _telling(holding),
        ):
            y = tuple(map(tf.convert_to_tensor, f(x)))
            jv = [_sum([one.jvp(leaf) for one in accumulators]) for leaf in y]
        return y, _all_at_home(jv, y)

    def vmap(self, function: Callable[[MaybeArrays], MaybeArrays]) -> Callable[..., MaybeArrays]:
        def mapped(*stacks: Array) -> MaybeArrays:
            present: list[bool] = []

            def one(arrays: Arrays) -> Arrays:
                values = function(tuple(arrays))
                present[:] = [value is not None for value in values]
                # something must come back where all are absent
                return (*(value for value in values if value is not None), arrays[0])

            # AutoGraph would change what it raises
            plain = tf.autograph.experimental.do_not_convert(one)
            results = iter(tf.vectorized_map(plain, stacks))
            return tuple(next(results) if here else None for here in present)

        return mapped

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        compiled: Callable[..., Any] = tf.function(function)
        return compiled

    # ---------------------------------------------------------------- variables

    def functional(self, f: object) -> Functional | None:
        parameters = _variables(f, "trainable")
        buffers = _variables(f, "non_trainable", parameters)
        variables = parameters | buffers
        module: Any = f

        def call(held: Mapping[str, Array], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            with self.holding(tuple(variables[name] for name in held), tuple(held.values())):
                return module(*args, **kwargs)

        return Functional(parameters, buffers, call) if variables else None

    def buffers(self, f: object) -> Arrays:
        return tuple(_variables(f, "non_trainable").values())

    def recording_ends(self, y: Arrays, x: Arrays) -> RecordingEnds | None:
        if not isinstance(y, Outputs):
            return None
        gradients = y.pullback(tuple(map(tf.ones_like, y)))
        return RecordingEnds(tuple(g is not None for g in gradients), y.read)

    @contextmanager
    def holding(self, captured: Arrays, values: Arrays) -> Iterator[None]:
        held = [(a, b) for a, b in zip(captured, values, strict=True) if a is not b]
        for variable, value in held:
            if variable.dtype != value.dtype:
                raise self.lacks(f"a {value.dtype.name} in a variable of {variable.dtype.name}")
        with ExitStack() as derivatives, _holding(held):
            for told in OPEN:
                derivatives.enter_context(told(held))
            yield

    def closing_over(self, captured: Arrays, first: int) -> AutodiffBackend:
        return self  # what is held within a derivative is known to it


@contextmanager
def _telling(holding: Holding) -> Iterator[None]:
    OPEN.append(holding)
    try:
        yield
    finally:
        OPEN.pop()


@contextmanager
def _holding(held: Held) -> Iterator[None]:
    before = [variable.read_value() for variable, _ in held]
    try:
        for variable, value in held:
            variable.assign(value)
        yield
    finally:
        for (variable, _), value in zip(held, before, strict=True):
            variable.assign(value)


def _sum(terms: Sequence[Array | None]) -> Array | None:
    present = [tf.convert_to_tensor(term) for term in terms if term is not None]
    return tf.add_n(present) if len(present) > 1 else present[0] if present else None


def _variables(f: object, kind: str, named: Mapping[str, Array] = {}) -> dict[str, Array]:
    """Returns the variables that a module, a layer or a model holds, by names that are not those of
    what is `named` already.
    """
    held = getattr(getattr(f, "python_function", f), f"{kind}_variables", ())
    found: dict[str, Array] = {}
    for one in held:
        name = getattr(one, "path", None) or one.name.partition(":")[0]
        unique = f"{name}#{len(found)}" if name in found or name in named else name
        found[unique] = one if isinstance(one, tf.Variable) else one.value  # those of Keras
    return found
