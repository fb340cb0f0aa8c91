"""The mode of PyTorch that records what a function did in the vocabulary that engines share.

Every operation that PyTorch ran is seen, below autograd and so also inside of an
`autograd.Function`. What memory holds is kept entry by entry: a view is another way to read it, and
a write changes entries, so that neither is an operation of the program.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import optree
import torch
from numpy.typing import NDArray
from torch._decomp import core_aten_decompositions, decomposition_table
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode

from adjudge.engine import (
    INPUT,
    UNKNOWN,
    ArrayOperations,
    Arrays,
    Place,
    Program,
    ProgramBuilder,
    Ref,
    place_of,
)
from adjudge_torch.formulas import Formula
from adjudge_torch.precision import is_inexact, mapped, memory_of, with_memory
from adjudge_torch.tracing import ENGINE, stack

aten = torch.ops.aten

CONSTANT = (
    *("bernoulli", "binomial", "multinomial", "poisson"),  # steps of what they are given
    *("rand_like", "randn_like", "randint_like", "zeros_like", "ones_like", "full_like"),
    *("empty_like", "new_empty", "new_empty_strided", "new_zeros", "new_ones", "new_full"),
)
"""Operations whose results depend on no value of their operands, or only by jumps where a random
number meets one: what they return is a constant."""

REFUSALS = (RuntimeError, TypeError)
"""What PyTorch's own decompositions raise for arguments that they do not take: the operation is
opaque then, and the report says so. Translations and formulas of ours raise `NotImplementedError`
for that, as PyTorch does in them; what else they raise is a defect, and comes through."""

OF_BOOLEANS = ("where", "any", "all", "logical_and", "logical_or", "logical_xor", "logical_not")
"""The operations of the vocabulary that take booleans. Others take their values as constants."""

LEAVES = ("numpy", "tolist", "__array__", "__dlpack__", "data_ptr")
"""The methods that hand values out and run no operation. (`item` runs one.)"""

PAIRS = {
    torch.complex128: torch.float64,
    torch.complex64: torch.float32,
    torch.complex32: torch.float16,
}


@dataclass(frozen=True)
class Untranslated:
    """Why an operation has no translation."""

    why: str


@dataclass(frozen=True)
class Given:
    """In place of an operand: integers are as they were recorded, as long as an operation is
    decided.
    """

    decided: Any


Translation: TypeAlias = Callable[..., Any]
"""Called with the recorder, what PyTorch returned, and the arguments. It returns an operand for
each result, `None` in place of one that has no translation, or `Untranslated`."""


# ---------------------------------------------------------------- memory


class _Geometry(NamedTuple):
    """Which entries of its memory a tensor has."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def of(self, entries: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the entries, as the tensor has them."""
        strides = tuple([stride * entries.itemsize for stride in self.strides])
        return np.lib.stride_tricks.as_strided(entries[self.offset :], self.shape, strides)


class _Written(NamedTuple):
    """A value of the program that stands in memory, as the tensor had it through which it came."""

    geometry: _Geometry
    operand: Any


class _Memory:
    """What some memory holds: values of the program, in the order in which they were written."""

    def __init__(self, tensor: torch.Tensor, first: _Written) -> None:
        """The memory is that of `tensor`, and is not used for another while that is kept here."""
        self.tensor = tensor
        self.dtype = tensor.dtype
        self.size = _size(tensor)
        self._written = [first]
        self._which: NDArray[np.int64] | None = None
        """For each entry of the memory, the number of what was written there last."""
        self._entry: NDArray[np.int64] | None = None
        """For each entry of the memory, the index in that, flattened."""

    def write(self, one: _Written) -> None:
        """Notes that something was written."""
        if prod(one.geometry.shape) >= self.size:
            self._written, self._which, self._entry = [one], None, None
            return
        self._written.append(one)
        if self._which is not None:
            self._paint(len(self._written) - 1)

    def read(self, geometry: _Geometry) -> tuple[list[Any], NDArray[np.int64] | None]:
        """Returns the operands that hold the entries of a tensor, and the index of each entry in
        these, flattened and one after the other; `None` in its place where the tensor is the
        operand.
        """
        if len(self._written) == 1 and self._written[0].geometry == geometry:
            return [self._written[0].operand], None
        if self._which is None:
            self._which, self._entry = np.zeros((2, self.size), np.int64)
            for k in range(len(self._written)):
                self._paint(k)
        assert self._entry is not None
        which, entry = geometry.of(self._which), geometry.of(self._entry)
        used, place = np.unique(which, return_inverse=True)
        sizes = [prod(self._written[k].geometry.shape) for k in used]
        starts = np.cumsum([0, *sizes])[:-1]
        operands = [self._written[k].operand for k in used]
        return operands, starts[place.reshape(which.shape)] + entry

    def _paint(self, k: int) -> None:
        geometry = self._written[k].geometry
        assert self._which is not None
        assert self._entry is not None
        geometry.of(self._which)[...] = k
        geometry.of(self._entry)[...] = np.arange(prod(geometry.shape)).reshape(geometry.shape)


# ---------------------------------------------------------------- what is seen


class _Builder(ProgramBuilder):
    def host(self, array: Any) -> NDArray[Any]:
        """Contract: see `ProgramBuilder.host`."""
        if isinstance(array, torch.Tensor) and not is_inexact(array):
            return array.detach().clone().numpy(force=True)
        return super().host(array)


class Recorder(TorchDispatchMode):
    """The mode of PyTorch that sees the operations below autograd, and writes the program."""

    def __init__(
        self,
        x: Arrays,
        arrays: ArrayOperations,
        translations: Mapping[str, Translation],
        formulas: Mapping[str, Formula],
    ) -> None:
        """The tensors `x` are the inputs of the program. The tables have operations of ATen by
        their names.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self._translations, self._formulas = translations, formulas
        self.builder = _Builder(arrays, x)
        self._memories: dict[int, dict[torch.dtype, _Memory]] = {}
        """By its address, and the dtype in which it is read."""
        self._others: dict[int, tuple[torch.Tensor, Any]] = {}
        """By its `id`, each tensor whose values stand in no memory of its own (a sparse one)."""
        self._place: Place | None = None
        self._step = ""
        self._expanding: list[Any] = []
        self._lost: list[Any] = []
        self._lost_at = UNKNOWN
        """Where the first of them was handed out."""
        for k, leaf in enumerate(x):
            self.bind(leaf, Ref(INPUT, k))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Runs an operation, and adds it to the program where a tensor goes in that depends on the
        inputs.
        """
        args, kwargs = mapped((args, dict(kwargs or {})), with_memory)
        known = [one for one in tensors_in((args, kwargs)) if self.knows(one)]
        if not known:
            return func(*args, **kwargs)
        if func.is_view or torch.Tag.inplace_view in func.tags:
            values = func(*args, **kwargs)
            # `to` and `reshape` may return a view, and may copy: then they are operations.
            if all(self.knows(one) or not one.numel() for one in tensors_in(values)):
                return values
        if self._place is not None:
            return self._run(func, args, kwargs, known)
        self._place = place_of(stack(sys._getframe()), ENGINE)
        self._step = str(func)
        try:
            return self._run(func, args, kwargs, known)
        finally:
            self._place = None

    def _run(self, func: Any, args: Any, kwargs: Any, known: Sequence[torch.Tensor]) -> Any:
        name = name_of(func)
        random = torch.Tag.nondeterministic_seeded in func.tags
        if torch.Tag.data_dependent_output in func.tags:  # `item`, `equal`: numbers of Python
            for one in known:
                self.leaves(one)
            return func(*args, **kwargs)
        written = _written_by(func, args, kwargs)
        functional = functional_of(func) if written else None
        if functional is not None and not random:
            kept = {key: value for key, value in kwargs.items() if not key.startswith("out")}
            made = tensors_in(self._run(functional, args, kept, known))
            made = [self._converted(one, to) for one, to in zip(made, written, strict=False)]
            operands = [self.read(one) for one in made]
            for one, operand in zip(written, operands, strict=True):
                if isinstance(operand, Ref):
                    self._prepare(one)
            values = func(*args, **kwargs)
            for one, operand in zip(written, operands, strict=True):
                self._write(one, operand)
            return values
        running = [(one, one.clone()) for one in _running(func, args, kwargs)]
        values = func(*args, **kwargs)
        written += [one for one, before in running if not one.equal(before)]
        # A tensor on `meta` is asked for its shape: multiples of zero without memory do so.
        some = [one for one in tensors_in(values) if not one.is_meta]
        results = [one for one in some if not self.knows(one)]
        if any(one.is_nested for one in results):  # which the vocabulary has no shapes for
            for one in known:
                self.leaves(one)
            return values
        if results and name not in CONSTANT:
            found: Any = Untranslated("it draws random numbers")
            if not random or name in self._formulas:
                first = len(self.builder.operations)
                found = self._translated(name, func, values, args, kwargs)
                for one, operand in zip(
                    results, found if isinstance(found, list) else (), strict=False
                ):
                    self.builder.computed(operand, one, first)
            if isinstance(found, Untranslated):
                if torch.Tag.dynamic_output_shape in func.tags:  # Python sees the shape
                    for one in known:
                        self.leaves(one)
                part = "" if self._step == str(func) else f"{func}, a part of it: "
                found = self._left_out(known, results, part + found.why)
            for one, operand in zip(results, found, strict=True):
                if operand is None:
                    (operand,) = self._left_out(known, [one], "this result is not translated")
                self.bind(one, operand)
        others = [one for one in known if not any(one is another for another in written)]
        for one in written:
            operand = self.builder.host(one)
            if others and not random:
                (operand,) = self._left_out(known, [one], "what it writes is not translated")
            self._write(one, operand)
        return values

    def _converted(self, made: torch.Tensor, written: torch.Tensor) -> torch.Tensor:
        """Returns what was made, in the dtype of the tensor that it is written into."""
        if made.dtype is written.dtype or not self.knows(made):
            return made
        convert, to = torch.ops.aten._to_copy.default, {"dtype": written.dtype}
        (converted,) = tensors_in(self._run(convert, (made,), to, [made]))
        return converted

    def _translated(self, name: str, func: Any, values: Any, args: Any, kwargs: Any) -> Any:
        """Returns an operand for each result, `None` for one without, or why there are none."""
        left = Untranslated("it has no translation")
        if name in self._translations:
            try:
                found = self._translations[name](self, values, *args, **kwargs)
            except NotImplementedError as error:
                found = Untranslated(f"its translation raises {type(error).__name__}: {error}")
            if not isinstance(found, Untranslated):
                return found if isinstance(found, list) else [found]
            left = found
        formula = self._formulas.get(name)
        if formula is None and self._depends_on_integers(args, kwargs):
            return self._of_integers(values, args, kwargs)
        refusals = REFUSALS if formula is None else NotImplementedError
        formula = formula or decomposition_of(func)
        if formula is None:
            return left
        if self._expanding.count(func) > 1:  # once more for other arguments
            return Untranslated("its decomposition leads back to it")
        self._expanding.append(func)
        try:
            return self.formula(formula, *args, **kwargs)
        except refusals as error:
            return Untranslated(f"its decomposition raises {type(error).__name__}: {error}")
        finally:
            self._expanding.pop()

    def _depends_on_integers(self, args: Any, kwargs: Any) -> bool:
        return not any(is_inexact(one) for one in tensors_in((args, kwargs)) if self.knows(one))

    def _of_integers(self, values: Any, args: Any, kwargs: Any) -> list[Any]:
        """Returns the results as constants, which hold while the integers and booleans that go in
        are what they are.
        """
        for one in tensors_in((args, kwargs)):
            if self.knows(one):
                self.builder.rely(self.read(one))
        return [self.builder.host(one) for one in tensors_in(values)]

    def _left_out(
        self, known: Sequence[torch.Tensor], results: Sequence[torch.Tensor], why: str
    ) -> Any:
        """Returns operands for the results of a step that has no translation."""
        operands = [self.read(one) for one in known]
        return self.builder.opaque(operands, results, **self.about, why=why)

    def leaves(self, tensor: torch.Tensor) -> None:
        """Notes that Python has got the values of a tensor, and computes with them unseen."""
        operand = self.read(tensor)
        if isinstance(operand, Ref) and is_inexact(tensor):
            if not self._lost:
                self._lost_at = self._place or place_of(stack(sys._getframe()), ENGINE)
            self._lost.append(operand)
        elif isinstance(operand, Ref):
            self.builder.rely(operand)

    def finished(self, y: Arrays) -> Program:
        """Returns the program, which has the outputs `y`."""
        outputs = [self.read(one) for one in y]
        if self._lost:
            why = "Python computes with values of the program (item, numpy, nested tensors)"
            operands = [*outputs, *self._lost]
            outputs = self.builder.opaque(operands, list(y), self._lost_at, "item", why)
        return self.builder.finished(outputs)

    # ---------------------------------------------------------------- values

    def emit(self, name: str, operands: Sequence[Any], results: Any, **params: Any) -> Any:
        """Adds an operation of the vocabulary to the step that runs. Its operands are tensors,
        numbers and what this returned; its results are the values that PyTorch computed.
        """
        read = [self.read(one) if isinstance(one, torch.Tensor) else one for one in operands]
        if name not in OF_BOOLEANS:
            for k, one in enumerate(operands):
                if isinstance(one, torch.Tensor) and not is_inexact(one):
                    read[k] = self.builder.rely(read[k])
        return self.builder.emit(name, read, results, **self.about, **params)

    @property
    def about(self) -> dict[str, Any]:
        """The place and the name of the step that runs."""
        return {"place": self._place or UNKNOWN, "step": self._step}

    def formula(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Runs a function of tensors, whose operations are added to the step that runs, and returns
        an operand for each of its results, `None` in place of those that are `None`.
        """
        with self:
            made = function(*args, **kwargs)
        leaves: list[Any] = optree.tree_leaves(made, none_is_leaf=True)
        return [self.read(one) if isinstance(one, torch.Tensor) else None for one in leaves]

    def tensor(self, operand: Any, values: torch.Tensor) -> torch.Tensor:
        """Returns a new tensor of these values that stands for an operand."""
        made = values.detach().clone()
        self.bind(made, operand)
        return made

    def relied_on(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns a tensor of integers or booleans, by which entries are chosen."""
        if self.knows(tensor):
            self.builder.rely(self.read(tensor))
        return tensor

    def knows(self, tensor: torch.Tensor) -> bool:
        """Returns whether a tensor may depend on the inputs."""
        return id(tensor) in self._others or (
            bool(self._memories) and _address(tensor) in self._memories
        )

    def read(self, tensor: torch.Tensor) -> Any:
        """Returns the operand that stands for a tensor: a reference, or its value on the host."""
        if id(tensor) in self._others:
            return self._others[id(tensor)][1]
        memory = self._memory_of(tensor) if tensor.numel() else None
        if memory is None:
            return self.builder.host(tensor)
        operands, indices = memory.read(_geometry(tensor))
        operand = operands[0]
        given = [one for one in operands if isinstance(one, Given)]
        if given:
            for one in given:
                self.builder.rely(one.decided)
            return self.builder.host(tensor)
        if indices is not None:
            operand = self.builder.take(operands, indices, **self.about)
        if tensor.is_conj():
            conjugate = self.builder.value(operand).conj()
            operand = self.builder.emit("conj", [operand], conjugate, **self.about)
        if tensor.is_neg():
            negative = -self.builder.value(operand)
            operand = self.builder.emit("negative", [operand], negative, **self.about)
        return operand

    def bind(self, tensor: torch.Tensor, operand: Any) -> None:
        """Notes which operand a new tensor stands for."""
        address = _address(tensor)
        if not isinstance(operand, Ref | Given) or tensor.numel() == 0:
            return
        if address == 0:
            self._others[id(tensor)] = tensor, operand
        else:
            written = _Written(_geometry(tensor), operand)
            self._memories[address] = {tensor.dtype: _Memory(tensor, written)}

    def _write(self, tensor: torch.Tensor, operand: Any) -> None:
        """Notes what was written into a tensor."""
        memory = self._memory_of(tensor)
        if memory is None:
            self.bind(tensor, operand)
        else:
            memory.write(_Written(_geometry(tensor), operand))
            self._memories[_address(tensor)] = {tensor.dtype: memory}

    def _prepare(self, tensor: torch.Tensor) -> None:
        """Notes what the memory of a tensor holds before it is written into."""
        address = _address(tensor)
        if address and address not in self._memories:
            flat = _Geometry((_size(tensor),), (1,), 0)
            held = self.builder.host(tensor.detach().as_strided(*flat))
            self._memories[address] = {tensor.dtype: _Memory(tensor, _Written(flat, held))}

    def _memory_of(self, tensor: torch.Tensor) -> _Memory | None:
        """Returns the memory of a tensor, in the tensor's dtype."""
        address = _address(tensor)
        readings = self._memories.get(address, {})
        if not readings or tensor.dtype in readings:
            return readings.get(tensor.dtype)
        memory = next(iter(readings.values()))
        operands, indices = memory.read(_Geometry((memory.size,), (1,), 0))
        if indices is None:
            indices = np.arange(memory.size)
        flat = self.builder.take(operands, indices, **self.about)
        pair = np.arange(2 * memory.size).reshape(2, -1)
        if PAIRS.get(memory.dtype) is tensor.dtype:  # its numbers as pairs
            value = self.builder.value(flat)
            parts = [
                self.builder.emit("real", [flat], value.real),
                self.builder.emit("imag", [flat], value.imag),
            ]
            operand = self.builder.take(parts, pair.T.reshape(-1), **self.about)
        elif PAIRS.get(tensor.dtype) is memory.dtype:
            even, odd = (
                self.builder.take([flat], np.arange(k, memory.size, 2), **self.about)
                for k in (0, 1)
            )
            value = self.builder.value(even) + 1j * self.builder.value(odd)
            operand = self.builder.emit("complex", [even, odd], value)
        else:
            held = tensor.detach().as_strided((_size(tensor),), (1,), 0)
            why = f"its bits are read as {tensor.dtype}"
            (operand,) = self.builder.opaque([flat], [held], **self.about, why=why)
        whole = _Geometry((_size(tensor),), (1,), 0)
        readings[tensor.dtype] = _Memory(tensor, _Written(whole, operand))
        return readings[tensor.dtype]


class Leaving(TorchFunctionMode):
    """The mode of PyTorch that sees which tensors are handed to NumPy."""

    def __init__(self, recorder: Recorder) -> None:
        """What they hold is lost to `recorder`."""
        super().__init__()
        self._recorder = recorder

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Calls what was called."""
        if _last_name(func) in LEAVES:
            for one in args[:1]:
                if isinstance(one, torch.Tensor) and self._recorder.knows(one):
                    self._recorder.leaves(one)
        return func(*args, **(kwargs or {}))


@cache
def _last_name(function: Any) -> str:
    return (resolve_name(function) or "").rpartition(".")[2]


@cache
def name_of(func: Any) -> str:
    """Returns the name of an operation of ATen without its overload, and of others with their
    namespace.
    """
    return str(func._schema.name).removeprefix("aten::")


@cache
def _written_names(func: Any) -> tuple[tuple[int, str], ...]:
    arguments = enumerate(func._schema.arguments)
    return tuple(
        (k, one.name)
        for k, one in arguments
        if one.alias_info is not None and one.alias_info.is_write
    )


def _written_by(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """Returns the tensors that an operation writes into."""
    if not func._schema.is_mutable:
        return []
    given = [args[k] if k < len(args) else kwargs.get(name) for k, name in _written_names(func)]
    return tensors_in(given)


@cache
def _running_names(func: Any) -> tuple[tuple[int, str], ...]:
    arguments = enumerate(func._schema.arguments)
    return tuple((k, one.name) for k, one in arguments if one.name.startswith("running_"))


def _running(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """Returns the statistics into which an operation may write, though its schema says nothing of
    that: those of a batch normalisation in training.
    """
    names = () if func._schema.is_mutable else _running_names(func)
    return tensors_in([args[k] if k < len(args) else kwargs.get(name) for k, name in names])


def tensors_in(returned: Any) -> list[torch.Tensor]:
    """Returns the tensors among arguments or results."""
    leaves: list[Any] = optree.tree_leaves(returned)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _address(tensor: torch.Tensor) -> int:
    """Returns where the memory of a tensor begins; 0 where it has none that can be read."""
    return 0 if tensor.is_mkldnn or tensor.is_meta else memory_of(tensor)


def _size(tensor: torch.Tensor) -> int:
    """Returns how many entries the memory of a tensor has."""
    return tensor.untyped_storage().nbytes() // tensor.element_size()


def _geometry(tensor: torch.Tensor) -> _Geometry:
    return _Geometry(tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset()))


@cache
def _core() -> Mapping[Any, Formula]:
    return core_aten_decompositions()


def decomposition_of(func: Any) -> Formula | None:
    """Returns the decomposition that PyTorch's compiler has of an operation, if it has one."""
    found = _core().get(func) or decomposition_table.get(func)
    if found is None and func._can_decompose():
        return partial(_decomposed, func)
    return found


def _decomposed(func: Any, *args: Any, **kwargs: Any) -> Any:
    return func.decompose(*args, **kwargs)


@cache
def functional_of(func: Any) -> Any:
    """Returns the operation that returns what this one writes; `None` if there is none, or if it
    also returns something else.
    """
    schema, name = func._schema, name_of(func)
    in_place = name.endswith("_") and not name.endswith("__")
    wanted = [str(one.type) for one in schema.arguments if not one.is_out]
    if not in_place and len(schema.arguments) - len(wanted) != len(schema.returns):
        return None
    packet = getattr(aten, name[:-1] if in_place else name, None)
    overloads: list[str] = packet.overloads() if packet is not None else []
    others = [getattr(packet, one) for one in overloads]
    return next((one for one in others if _takes(one, wanted)), None)


def _takes(func: Any, wanted: Sequence[str]) -> bool:
    """Returns whether an operation takes arguments of these types, and writes into none."""
    given = [str(one.type) for one in func._schema.arguments]
    return given == wanted and not func._schema.is_mutable
