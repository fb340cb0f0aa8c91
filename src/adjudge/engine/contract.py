"""The contract that an adapter implements: an engine with its arrays and its environment.

`AutodiffBackend` is the engine and takes derivatives. It holds two more objects: `ArrayOperations`
describes, makes and moves arrays, and `Environment` says what the engine keeps outside of its
arrays. An adapter must define `name`, `xp`, `owns` and `vjp`; everything else has a default. At the
end stands what several adapters need: settings that are put back, and memory layouts that are kept.
"""

from __future__ import annotations

import contextlib
import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from adjudge.engine.program import Program
from adjudge.engine.trace import Trace, Watcher
from adjudge.errors import NotSupportedError

Array: TypeAlias = Any
"""An array of the user's framework. We are given it, and so its type is structural."""

Arrays: TypeAlias = tuple[Array, ...]
MaybeArrays: TypeAlias = tuple[Array | None, ...]
FlatFunction: TypeAlias = Callable[[Arrays], Arrays]
"""`f: X -> Y` on leaves: it takes and returns tuples of floating or complex arrays."""

Pullback: TypeAlias = Callable[[MaybeArrays], MaybeArrays]
"""`w -> J* w` takes a cotangent for each output leaf and returns a gradient for each input leaf.

A cotangent is `None` where that output takes no part, or `UNDEFINED`. A gradient is `None` where
the engine says that the outputs do not depend on that input.
"""

UNDEFINED: Final = object()
"""A cotangent that the engine itself leaves undefined on its way through the graph. Pullbacks are
given it only where `undefined_cotangents` is true, and it must act as zero. Where what f hooked
into its backward pass raises for it, and no rule does, the pullback raises `HookError` from that.
"""

HostArray: TypeAlias = NDArray[Any]
"""A NumPy array of float64 or complex128."""


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """What must agree between an array and its gradient, in the engine's own words."""

    shape: tuple[int, ...]
    dtype: str
    device: str
    layout: str = "dense"


DENSE = ("dense", "strided")
"""The layouts, in the words of engines, in which every entry is a coordinate."""


@dataclass(frozen=True, slots=True)
class Expansion:
    """The children of a container that only the framework can flatten (a registered module)."""

    children: tuple[object, ...]
    names: tuple[str, ...]
    rebuild: Callable[[Sequence[object]], object]


@dataclass(frozen=True, slots=True)
class Functional:
    """An object that is called and holds parameters (a module), as a function of these."""

    parameters: Mapping[str, Array]
    """What is differentiated, by name."""
    buffers: Mapping[str, Array]
    """Other arrays that the object holds and may write into, by name."""
    call: Callable[[Mapping[str, Array], Sequence[Any], Mapping[str, Any]], Any]
    """Returns what the object returns for `(arrays, args, kwargs)`, with `arrays` in place of its
    parameters and buffers. The object is as before afterwards."""


@dataclass(frozen=True, slots=True)
class FunctionClass:
    """Code uses a class of a framework as a differentiable function in this way."""

    call: Callable[..., Any]
    """What has the parameters of a call: a method without what the framework adds to them."""
    make: Callable[..., Callable[..., Any]]
    """Returns the function, for the arguments of the constructor where `constructed` is true and
    for none otherwise."""
    constructed: bool
    """Whether code constructs an object of the class first."""
    suffix: str
    """This follows the class, or the call of its constructor, in code."""
    before: str = ""
    """A statement of code that makes the constructor repeatable."""


@dataclass(frozen=True, slots=True)
class RecordingEnds:
    """The arrays in which the recording of a function ends."""

    reached: tuple[bool, ...]
    """For each leaf of x, whether it is one of them."""
    captured: Arrays
    """The others, marked for differentiation: what the function closes over."""
    forward_rules: tuple[str, ...] = ()
    """Forward derivatives that somebody wrote for functions in the recording, by name: reverse mode
    uses none of them."""


@dataclass(frozen=True, slots=True)
class Precision:
    """An engine computes with an array this exactly, and a setting of it decides that."""

    product_eps: float = 0.0
    """The spacing at 1 of what the factors of a product are rounded to, where that is coarser than
    the dtype (TF32, autocast); 0 where products are as exact as the dtype."""
    setting: str = ""
    """The setting that makes products coarser, as a user would type it. Where products are exact:
    settings that make some other operations coarser (convolutions, say)."""
    result_eps: float = 0.0
    """The spacing at 1 of what every result is rounded to, where that is coarser than the dtype: an
    engine may hold float64 and compute in float32. Checks and the conformance kit go by it, and no
    setting changes it."""


@dataclass(frozen=True, slots=True)
class Refusals:
    """How an engine says that it has no derivative to offer: by which exceptions, and how worded.

    An exception is a refusal where its message contains one of the phrases.
    """

    exceptions: tuple[type[Exception], ...]
    phrases: tuple[str, ...]
    remedies: tuple[tuple[str, str], ...] = ()
    """Phrases of refusals that are about the caller's own rule and not about the engine, each with
    what to do about it."""

    def remedy(self, message: str) -> str:
        """Returns what to do about a refusal of these words; empty where the engine has nothing."""
        return next((remedy for phrase, remedy in self.remedies if phrase in message), "")


class ArrayOperations:
    """How arrays of an engine are described, made, copied and moved.

    The defaults use the Array API namespace. Results are new arrays, which share no memory with
    the arguments, on the device of the array that they were made from.
    """

    def __init__(self, name: str, xp: Any) -> None:
        """The operations of the namespace `xp`; `name` is that of the engine, for messages."""
        self.name = name
        self.xp = xp

    # ---------------------------------------------------------------- what an array is

    def info(self, array: Array) -> ArrayInfo:
        """Returns the shape, dtype, device and layout of `array`.

        The device is named as `devices` names it.
        """
        return ArrayInfo(tuple(array.shape), str(array.dtype), str(_device(array)))

    def is_differentiable(self, array: Array) -> bool:
        """Returns whether the dtype of `array` is real floating or complex."""
        return bool(self.xp.isdtype(array.dtype, ("real floating", "complex floating")))

    def is_complex(self, array: Array) -> bool:
        """Returns whether the dtype of `array` is complex."""
        return bool(self.xp.isdtype(array.dtype, "complex floating"))

    def eps(self, array: Array) -> float:
        """Returns the spacing of the dtype of `array` at 1: 2.2e-16 for float64, twice the unit
        round-off.

        For a complex dtype it is that of its parts.
        """
        return float(self.xp.finfo(array.dtype).eps)

    def devices(self) -> list[str]:
        """Returns the names of the devices on which arrays can be made."""
        return ["cpu"]

    def dtypes(self) -> list[str]:
        """Returns the names of the dtypes whose derivatives can be checked."""
        return ["float32", "float64", "complex64", "complex128"]

    # ---------------------------------------------------------------- between engine and host

    def to_host(self, array: Array, like: Array | None = None) -> HostArray:
        """Returns the exact values of `array` as a new NumPy array of float64 or complex128.

        With `like` given these are the coordinates of `like`: the entries that move independently,
        which are all of a dense array, and the stored entries of a sparse one after `stored_only`.
        """
        wide = np.complex128 if self.is_complex(array) else np.float64
        return np.array(array, dtype=wide)

    def from_host(self, host: HostArray, like: Array) -> Array:
        """Returns a new array of the values of `host`, rounded to the dtype of `like`.

        It has the shape of `host`, and the dtype, device and layout of `like`.
        """
        return self.xp.asarray(host, dtype=like.dtype, device=_device(like), copy=True)

    def make(self, values: NDArray[Any], dtype: str, device: str | None = None) -> Array:
        """Returns a new array of `values`, with the dtype and on the device of these names.

        `dtype` is `float32`, `bfloat16`, `bool` and the like. `device` is one of `devices()`;
        `None` is the engine's default. Raises `NotSupportedError` where the engine has no such
        dtype or device.
        """
        known = getattr(self.xp, dtype, None)
        if known is None:
            raise self.lacks_dtype(dtype)
        if device is not None and device not in self.devices():
            raise self.lacks_device(device)
        there = {} if device is None else {"device": device}
        return self.xp.asarray(values, dtype=known, copy=True, **there)

    # ---------------------------------------------------------------- from array to array

    def copy(self, array: Array) -> Array:
        """Returns a copy without the derivative history of `array`, with its strides where it has
        any.
        """
        return self.xp.asarray(array, copy=True)

    def copies(self, arrays: Arrays) -> Arrays:
        """Returns a `copy` of each array. Those that share memory into which functions write have
        copies that share theirs: a function that writes into one of them reads it from the others.

        The default copies each apart, for an engine whose arrays share no such memory.
        """
        return tuple(map(self.copy, arrays))

    def to_spend(self, array: Array) -> Array | None:
        """Returns a copy of `array` that a call may use up; `None` where no call can, as in most
        engines.
        """
        return None

    def spent(self, array: Array) -> bool:
        """Returns whether a call has used up `array`, so that nobody can read it any more."""
        return False

    def place(self, array: Array, device: str) -> Array:
        """Returns a copy of `array` on the device of this name. Raises `NotSupportedError`."""
        raise self.lacks("placement on a device")

    def widen(self, array: Array) -> Array:
        """Returns the same values in float64 or complex128, which hold those of every narrower
        dtype.
        """
        wide = self.xp.complex128 if self.is_complex(array) else self.xp.float64
        return self.xp.astype(array, wide)

    def noncontiguous(self, array: Array) -> Array:
        """Returns the same values in memory with gaps; `array` itself where none can have gaps."""
        return array

    def expanded(self, array: Array, axis: int | None = None) -> Array | None:
        """Returns an array of that shape whose entries all are the first one of `array`, in one
        place of memory (stride 0), as the cotangent of a sum is; or whose rows along `axis` all are
        the first one, as that of a sum over `axis` is. `None` where arrays have no strides.
        """
        return None

    def stack(self, arrays: Sequence[Array]) -> Array:
        """Returns the arrays, which have one shape and dtype, along a new leading axis."""
        return self.xp.stack(list(arrays))

    def zeros_for_absent(self, values: MaybeArrays, like: Arrays) -> Arrays:
        """Returns `values` with zeros of the shape, dtype and device of `like` in place of each
        `None`.
        """
        return tuple(
            self.xp.zeros_like(leaf) if value is None else value
            for value, leaf in zip(values, like, strict=True)
        )

    # ---------------------------------------------------------------- containers and sparse arrays

    def expand(self, node: object) -> Expansion | None:
        """Returns the children of a container that only this framework knows; `None` if it is not
        one.
        """
        return None

    def stored_only(self) -> Self:
        """Returns the same operations, for which the coordinates of a sparse array are its stored
        entries.

        An engine without sparse arrays returns itself.
        """
        return self

    # ---------------------------------------------------------------- refusals

    def lacks(self, what: str, reason: str = "", remedy: str = "") -> NotSupportedError:
        """Returns the error to raise for what the arrays of this engine cannot do."""
        return _not_supported(self.name, what, reason, remedy)

    def lacks_dtype(self, dtype: str, reason: str = "") -> NotSupportedError:
        """Returns the error to raise where the engine has no dtype of this name."""
        return self.lacks(f"dtype {dtype}", reason)

    def lacks_device(self, device: str, reason: str = "") -> NotSupportedError:
        """Returns the error to raise where the engine has no device of this name.

        It lists the devices that there are.
        """
        there = f"the devices are {', '.join(self.devices())}"
        return self.lacks(f"device {device!r}", f"{reason}; {there}" if reason else there)


class Environment:
    """What an engine keeps outside of its arrays: global state, random numbers, devices, settings.

    The defaults are those of an engine without any of these.
    """

    def __init__(self, version: str = "unknown") -> None:
        """`version` is that of the engine, for reports."""
        self.version = version

    def unavailable(self) -> str | None:
        """Returns why the engine can hold no array on this machine; `None` where it can.

        The reason may be that there is no driver.
        """
        return None

    def isolation(self, leaves: Sequence[Array]) -> AbstractContextManager[None]:
        """Returns a context after which global state is what it was before, also after an
        exception.

        Global state is the random state, the default dtype and device, and settings of precision.
        On entry the context sets what the leaves need (64-bit mode, say).
        """
        return contextlib.nullcontext()

    def call_context(self, x: Arrays) -> AbstractContextManager[None]:
        """Returns the context of every call of the user's function, or of a derivative by hand.

        It enters the device and the stream of `x`. On exit it waits for what was launched, so that
        an asynchronous error is raised by the call that caused it.
        """
        return contextlib.nullcontext()

    def carried_settings(self) -> Callable[[], AbstractContextManager[object]] | None:
        """Returns what gives another thread the settings that the engine keeps for each thread, as
        they are in this one: a function that returns a context, and can be pickled.

        The default returns `None`: functions must not be evaluated in several threads at once.
        """
        return None

    def random_state(self) -> Hashable:
        """Returns the engine's global random state, to be compared and to be set again; `None`
        where it has none.
        """
        return None

    def set_random_state(self, state: Hashable) -> None:
        """Goes back to a `state` that `random_state` returned within the same `isolation`, so that
        what was drawn since is drawn again.

        The default does nothing, as where there is no random state. A function that draws is not
        repeatable then.
        """

    def generator(self, one: object) -> Setting | None:
        """Returns what reads and sets the state of `one` where that is a random generator of this
        framework, an object beside the global state; else `None`, as the default does.
        """
        return None

    def keeping_gradients(self, held: Sequence[object]) -> AbstractContextManager[None]:
        """Returns a context after which the gradients that backward passes add up in arrays are
        what they were: in those among `held`, which are what a function closes over, and in those
        of objects of this framework. Whether an array requires a gradient is put back as well, and
        its numbers where a function may write into them in place and they take little memory.

        The default does nothing, as where no array keeps a gradient.
        """
        return contextlib.nullcontext()

    def widening(self) -> AbstractContextManager[None]:
        """Returns a context in which a function of narrow arrays can be run on wide ones.

        Double precision is to be had in it, and an array of lower precision that meets one of
        double precision is widened, as type promotion does (a captured weight, say).
        """
        return contextlib.nullcontext()

    def widening_past_casts(
        self, likes: Arrays = (), coarsest: float = math.inf
    ) -> AbstractContextManager[None] | None:
        """Returns a context as `widening` does in which an array of double precision also stays one
        where the function converts it to a narrower dtype; `None`, the default, where the engine
        has no such context.

        What a function computes is then known to more digits than it leaves itself. It draws the
        random numbers that it draws where its inputs are such arrays as `likes`. A conversion to a
        dtype whose spacing at 1 is larger than `coarsest` still rounds.
        """
        return None

    def past_casts(
        self, f: FlatFunction, likes: Arrays, coarsest: float = math.inf
    ) -> FlatFunction:
        """Returns `f`, a function of arrays such as `likes`, as it is to be run and differentiated
        within `widening_past_casts`: itself, where the context is all that it takes.
        """
        return f

    def aside(self) -> AbstractContextManager[object]:
        """Returns a context for what the checker does with arrays between two evaluations, within
        `widening_past_casts` and `past_casts` too: in it an array has its own dtype and numbers.

        The default is empty, as where these two change nothing but what the function sees.
        """
        return contextlib.nullcontext()

    def highest_precision(self) -> AbstractContextManager[None]:
        """Returns a context in which arithmetic is as exact as the dtype: no TF32, no autocast."""
        return contextlib.nullcontext()

    def precision(self, array: Array) -> Precision:
        """Returns how exactly the engine computes with arrays of this dtype, on this device."""
        return Precision()

    def determinism_setting(self, array: Array) -> str:
        """Returns what makes results on the device of `array` repeatable, as a user would type it.

        It is "" where results are repeatable anyway, as where the order of additions is fixed.
        """
        return ""

    def computes_products(self, f: FlatFunction, x: Arrays) -> bool:
        """Returns whether `f` or its derivative at `x` may contain products of the kind whose
        factors `precision` says are rounded, as where that is not known.
        """
        return True

    def spacings_inside(self, f: FlatFunction, x: Arrays) -> frozenset[float]:
        """Returns the spacings at 1 of the dtypes that `f` computes with at `x`; none where that is
        not known.

        Constants that `f` makes of no floating number, such as a unit matrix or a mask, do not
        count, whatever their dtype: they are exact floats of the formula. Where they did, a
        function with a unit matrix in float32 was judged to the digits of float32, and an error of
        1e-8 passed as certified.
        """
        return frozenset()

    def moved_by_rounding(
        self, f: FlatFunction, draw: int, *, wide: bool = False
    ) -> FlatFunction | None:
        """Returns `f` with each number that it reads or computes in less than double precision
        moved by about one spacing of its dtype; `None` where that is not known. With `wide` numbers
        of double precision are moved as well. Which of them are moved up, and which down, is
        another draw for each even number `draw`, and turned round for the odd number after it.

        The outputs and their derivatives then move by as much as rounding inside of `f` makes of
        them. The function may raise `NotSupportedError`.
        """
        return None


class AutodiffBackend(ABC):
    """One automatic differentiation engine, with its arrays and its environment.

    An adapter must define `name`, `xp`, `owns` and `vjp`. A derivative that it does not define
    raises `NotSupportedError`, so that a report can say what was not checked.

    `J*` is the adjoint for the real inner product `<a, b> = Re sum(conj(a) b)`; the adapter of an
    engine with another convention conjugates.
    """

    name: str
    """The name of the engine in reports."""
    way: str = "eager"
    """What reports call this way of taking derivatives, where the engine has several: `ways`."""
    compiled_way: str = "compiled"
    """The name in reports of the derivatives of a function that `compile` made."""
    usually_compiled: bool = False
    """Whether users of this engine compile most functions. A check of all modes up to an order then
    checks the compiled function, too, without being asked."""
    differentiates_numbers: bool = False
    """Whether the engine takes derivatives with respect to floating numbers of Python. They are
    constants in a check, and a report names them."""
    no_products: bool = False
    """Whether what is judged is known to compute no products: then it does not matter what their
    factors are rounded to."""
    recorded_unasked: bool = True
    """Whether `program` may run a function where nobody asked for it: the function sees the arrays
    that it always sees."""
    refusals: Refusals = Refusals((), ())
    """The engine's own refusals, which `refusing` turns into `NotSupportedError`."""

    # ---------------------------------------------------------------- required

    @property
    @abstractmethod
    def xp(self) -> Any:
        """The Array API namespace of this engine's arrays."""

    @abstractmethod
    def owns(self, leaf: object) -> bool:
        """Returns whether `leaf` is an array of this engine, or stands for one inside of a
        derivative.

        A tracer or a node of a tape stands for an array while a function is differentiated.
        """

    @abstractmethod
    def vjp(self, f: FlatFunction, x: Arrays) -> tuple[Arrays, Pullback]:
        """Returns `(f(x), w -> J* w)`.

        `f` is called once, on `x` or on aliases of it that carry derivatives. The pullback may be
        called any number of times.
        """

    # ---------------------------------------------------------------- arrays and environment

    @cached_property
    def arrays(self) -> ArrayOperations:
        """How the arrays of this engine are described, made, copied and moved."""
        return ArrayOperations(self.name, self.xp)

    @cached_property
    def environment(self) -> Environment:
        """What the engine keeps outside of its arrays."""
        return Environment(str(getattr(self.xp, "__version__", "unknown")))

    # ---------------------------------------------------------------- further derivatives

    def jvp(self, f: FlatFunction, x: Arrays, v: MaybeArrays) -> tuple[Arrays, MaybeArrays]:
        """Returns `(f(x), J v)`, with a tangent or `None` for each output leaf.

        `None` in `v` acts as zero. Raises `NotSupportedError` by default.
        """
        raise self.lacks("forward mode (jvp)")

    def vjp_map(self, f: FlatFunction, x_count: int) -> FlatFunction:
        """Returns `(x, w) -> J*(x) w` as a function that this engine can differentiate again.

        `x_count` is the number of leaves of `x`. Absent gradients are zeros. The default nests
        `vjp`, for engines that nest.
        """

        def gradient_map(x_and_w: Arrays) -> Arrays:
            x, w = x_and_w[:x_count], x_and_w[x_count:]
            _, pullback = self.vjp(f, x)
            return self.arrays.zeros_for_absent(pullback(w), x)

        return gradient_map

    def jvp_map(self, f: FlatFunction, x_count: int) -> FlatFunction:
        """Returns `(x, v) -> J(x) v` as a function that this engine can differentiate again.

        `x_count` is the number of leaves of `x`. Absent tangents are zeros. The default nests
        `jvp`, for engines that nest.
        """

        def tangent_map(x_and_v: Arrays) -> Arrays:
            x, v = x_and_v[:x_count], x_and_v[x_count:]
            y, jv = self.jvp(f, x, v)
            return self.arrays.zeros_for_absent(jv, y)

        return tangent_map

    def vmap(self, function: Callable[[MaybeArrays], MaybeArrays]) -> Callable[..., MaybeArrays]:
        """Returns `function`, mapped over a new leading axis of each of its arrays.

        Raises `NotSupportedError` by default.
        """
        raise self.lacks("batching (vmap)")

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a user's function, of any arguments, compiled by the engine; it may compile late.

        Raises `NotSupportedError` by default.
        """
        raise self.lacks("compilation")

    def compilations(self) -> int | None:
        """Returns how many programs the engine has compiled so far that it may have to compile
        again at the next call of the same function; `None` where it has no such programs.
        """
        return None

    def recording(self, f: FlatFunction, x: Arrays) -> FlatFunction | None:
        """Returns what `f` did at `x` as a function that the engine need not compile again.

        It has the outputs and the derivatives of `f` to the last bit, and calls `f` no more. It is
        asked for where an evaluation of `f` raised `compilations`. The default returns `None`, as
        an engine does for a function that it cannot record, or gains nothing by recording.
        """
        return None

    def trace(self, f: FlatFunction, x: Arrays) -> Trace:
        """Returns what `f` does at `x` as a straight-line program.

        `f` is called once; arrays, hooks and settings are as that call leaves them, also where it
        raises. Raises `NotSupportedError` by default, and for a function that cannot be recorded.
        """
        raise self.lacks("recording what a function does (trace)")

    def program(self, f: FlatFunction, x: Arrays) -> Program:
        """Returns what `f` does at `x` in the vocabulary that engines share: as `trace`, with the
        meaning of each operation, and with the functions that custom rules belong to taken apart.

        What has no translation is an opaque operation of it, and raises nothing. Raises
        `NotSupportedError` by default, and for a function that cannot be recorded.
        """
        raise self.lacks("translating what a function does (program)")

    def vjp_program(self, f: FlatFunction, x: Arrays, w: Arrays) -> Program:
        """Returns what the rules of reverse mode do with the cotangents `w` at `x`, as `program`
        does it of a function. Its inputs are `x` and `w`, its outputs the gradients.
        """
        return self.program(self.vjp_map(f, len(x)), (*x, *w))

    def jvp_program(self, f: FlatFunction, x: Arrays, v: Arrays) -> Program:
        """Returns what the rules of forward mode do with the tangents `v` at `x`, as `program` does
        it of a function. Its inputs are `x` and `v`, its outputs the tangents.
        """
        return self.program(self.jvp_map(f, len(x)), (*x, *v))

    def watching(self, watcher: Watcher) -> AbstractContextManager[None]:
        """Returns a context in which `watcher` is shown calls of rules that are made in this
        thread.

        Values, gradients, random states, buffers and hooks are as they would be without it, and
        after it the engine is as before. Raises `NotSupportedError` by default.
        """
        raise self.lacks("watching a program while it runs (spotcheck)")

    def ways(self) -> Sequence[AutodiffBackend]:
        """Returns the engine taking the same derivatives in other ways, whose errors may differ."""
        return ()

    def functional(self, f: object) -> Functional | None:
        """Returns `f` as a function of the parameters and buffers that it holds; `None` if it is no
        object of this framework that holds any.
        """
        return None

    def function_class(self, kind: type) -> FunctionClass | None:
        """Returns how code uses `kind` as a function; `None` if it is no class of this framework by
        which users define differentiable functions.
        """
        return None

    def buffers(self, f: object) -> Arrays:
        """Returns the arrays that `f`, an object of this framework, holds and may write into when
        it is called: the running statistics of a normalisation, say.
        """
        return ()

    def parts(self, f: object) -> Sequence[object]:
        """Returns the objects that may bind the arrays they hold anew when `f` is called, an object
        of this framework: a module and those in it, say. What they hold (attributes, and what
        stands in dictionaries, lists and deques there) is bound as before: with copies of its
        arrays before each evaluation, and at the end of a check.
        """
        return ()

    def recording_ends(self, y: Arrays, x: Arrays) -> RecordingEnds | None:
        """Returns in which arrays the recording of `y`, the outputs of `vjp` at `x`, ends.

        The default returns `None`, as an engine does that does not know, or to which all arrays
        that a function closes over are constants.
        """
        return None

    def implicit_samplers(self, f: FlatFunction, x: Arrays) -> Sequence[str]:
        """Returns the names of the samplers in `f` at `x` whose derivative is not that with the
        drawn numbers held fixed: implicit reparametrisation.
        """
        return ()

    def holding(self, captured: Arrays, values: Arrays) -> AbstractContextManager[None]:
        """Returns a context in which the arrays `captured` hold these values, and after which they
        are as before. An array that is its own value stays as it is.
        """
        raise self.lacks("values for what a function closes over")

    def closing_over(self, captured: Arrays, first: int) -> AutodiffBackend:
        """Returns this engine for functions that close over the arrays `captured`, whose values
        stand in `x` from leaf `first` on. Such a function is called within `holding`.
        """
        raise self.lacks("derivatives with respect to what a function closes over")

    # ---------------------------------------------------------------- what the derivatives are like

    @property
    def capabilities(self) -> frozenset[str]:
        """Returns those of `jvp`, `vmap` and `compile` that this engine offers."""
        return frozenset(
            name
            for name in ("jvp", "vmap", "compile")
            if getattr(type(self), name) is not getattr(AutodiffBackend, name)
        )

    @property
    def undefined_cotangents(self) -> bool:
        """Whether the engine itself hands undefined (`None`) cotangents to derivatives."""
        return False

    def detached(self, y: Array) -> bool:
        """Returns whether the engine recorded no derivative at all for this output of `vjp`."""
        return False

    def requires_grad(self, leaf: Array) -> bool | None:
        """Returns whether the user marked `leaf` for differentiation; `None` where nobody can."""
        return None

    def constant(self, leaf: Array) -> Array | None:
        """Returns `leaf` as an array of which rules see that no gradient is required; `None` where
        rules know nothing of that.
        """
        return None

    def rules_ask(self, f: FlatFunction, x: Arrays) -> bool:
        """Returns whether a rule of `f` may ask which inputs need a gradient, or which probes are
        absent. An engine that cannot tell says so, and is asked for gradients of some inputs alone.
        """
        return True

    def precision(self, array: Array) -> Precision:
        """Returns how exactly the engine computes with `array` what is judged."""
        found = self.environment.precision(array)
        coarse = self.no_products and found.product_eps
        return replace(found, product_eps=0.0, setting="") if coarse else found

    def effective_eps(self, array: Array) -> float:
        """Returns the spacing at 1 of arithmetic on `array`: that of the dtype or a coarser one."""
        precision = self.precision(array)
        return max(self.arrays.eps(array), precision.product_eps, precision.result_eps)

    # ---------------------------------------------------------------- refusals

    def lacks(self, what: str, reason: str = "", remedy: str = "") -> NotSupportedError:
        """Returns the error to raise for an operation that this engine does not offer. `remedy`
        says what else helps than another engine, or to leave the check out.
        """
        return _not_supported(self.name, what, reason, remedy)

    @contextlib.contextmanager
    def refusing(self, what: str, *phrases: str) -> Iterator[None]:
        """Returns a context in which refusals of `what` by the engine become `NotSupportedError`.

        Every other exception comes through. `phrases` take the place of those of `refusals`.
        """
        try:
            yield
        except self.refusals.exceptions as error:
            self.refuse(what, error, *phrases)
            raise

    def refuse(self, what: str, error: Exception, *phrases: str) -> None:
        """Raises `NotSupportedError` where `error` is a refusal of `what` by the engine.

        It is what `refusing` does with one of the exceptions of `refusals`, for what is called so
        often that a context would take a noticeable time.
        """
        refused = any(words in str(error) for words in phrases or self.refusals.phrases)
        if refused and not isinstance(error, NotSupportedError):
            message = str(error)
            raise self.lacks(what, message, self.refusals.remedy(message)) from error


def _device(array: Array) -> object:
    return getattr(array, "device", "cpu")


def _not_supported(name: str, what: str, reason: str, remedy: str) -> NotSupportedError:
    return NotSupportedError(
        f"{what} is not supported by backend '{name}'" + (f": {reason}" if reason else ""),
        remedy or "leave that out of what is checked, or use an engine that offers it",
    )


Backend = TypeVar("Backend", bound=AutodiffBackend)


def replaced(
    backend: Backend,
    *,
    arrays: ArrayOperations | None = None,
    environment: Environment | None = None,
    no_products: bool = False,
) -> Backend:
    """Returns a copy of `backend` with other arrays or another environment, or for what is known to
    compute no products.
    """
    changed = copy.copy(backend)
    changed.no_products = backend.no_products or no_products
    changed.arrays = arrays or backend.arrays
    changed.environment = environment or backend.environment
    return changed


class OtherDerivatives(AutodiffBackend):
    """An engine with the arrays and the environment of `inner`, whose derivatives are its own."""

    def __init__(self, inner: AutodiffBackend) -> None:
        """`inner` is the engine whose arrays and environment are used."""
        self.inner, self.name = inner, inner.name
        self.arrays, self.environment = inner.arrays, inner.environment
        self.no_products = inner.no_products

    @property
    def xp(self) -> Any:
        return self.inner.xp

    def owns(self, leaf: object) -> bool:
        return self.inner.owns(leaf)

    def program(self, f: FlatFunction, x: Arrays) -> Program:
        return self.inner.program(f, x)  # what f does, whoever differentiates it


def _of_inner(name: str) -> Callable[..., Any]:
    """Returns a method that asks the engine which is wrapped."""

    def asked(self: WrappedBackend, *given: Any) -> Any:
        return getattr(self.inner, name)(*given)

    return asked


class WrappedBackend(OtherDerivatives):
    """The engine `inner`, of which a subclass changes some derivatives."""

    def __init__(self, inner: AutodiffBackend) -> None:
        """The derivatives are those of `inner`, also of numbers."""
        super().__init__(inner)
        self.differentiates_numbers = inner.differentiates_numbers
        self.recorded_unasked = inner.recorded_unasked

    vjp = _of_inner("vjp")
    jvp = _of_inner("jvp")
    vjp_map = _of_inner("vjp_map")
    jvp_map = _of_inner("jvp_map")
    vmap = _of_inner("vmap")
    compile = _of_inner("compile")
    compilations = _of_inner("compilations")
    recording = _of_inner("recording")
    trace = _of_inner("trace")
    vjp_program = _of_inner("vjp_program")
    jvp_program = _of_inner("jvp_program")
    watching = _of_inner("watching")
    functional = _of_inner("functional")
    function_class = _of_inner("function_class")
    buffers = _of_inner("buffers")
    parts = _of_inner("parts")
    recording_ends = _of_inner("recording_ends")
    implicit_samplers = _of_inner("implicit_samplers")
    holding = _of_inner("holding")
    detached = _of_inner("detached")
    requires_grad = _of_inner("requires_grad")
    constant = _of_inner("constant")
    rules_ask = _of_inner("rules_ask")

    def closing_over(self, captured: Arrays, first: int) -> AutodiffBackend:
        changed = copy.copy(self)
        changed.inner = self.inner.closing_over(captured, first)
        return changed

    @property
    def capabilities(self) -> frozenset[str]:
        return self.inner.capabilities

    @property
    def undefined_cotangents(self) -> bool:
        return self.inner.undefined_cotangents


THIN = 16
"""An array that spans more than this times its entries is a thin slice of something large. A copy
with its strides would allocate the large thing again. The factor is ours; nothing was measured."""


class Setting(NamedTuple):
    """A piece of state that can be read and set, such as a global one of an engine."""

    read: Callable[[], Any]
    write: Callable[[Any], object]


@contextmanager
def restored(*settings: Setting) -> Iterator[None]:
    """Returns a context after which the settings are what they were, also after an exception.

    They are put back in the order given, and only where they changed.
    """
    before = [setting.read() for setting in settings]
    try:
        yield
    finally:
        for setting, value in zip(settings, before, strict=True):
            if setting.read() != value:
                setting.write(value)


def memory_span(shape: Sequence[int], strides: Sequence[int]) -> int | None:
    """Returns how many entries of memory an array spans, from its first entry to its last one.

    `strides` are counted in entries, and their signs do not matter. The answer is `None` where a
    new array should not be given these strides: where an entry of memory stands for several entries
    of the array, or where the array is a thin slice of something large.
    """
    span = entries = 1
    for step, count in sorted(
        (abs(step), count) for step, count in zip(strides, shape, strict=True) if count > 1
    ):
        if step < span:
            return None
        span += (count - 1) * step
        entries *= count
    return None if span > THIN * entries else span
