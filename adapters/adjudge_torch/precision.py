"""Modes of PyTorch that widen what a function computes with, or watch how narrow it is."""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache, partial
from types import FunctionType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from adjudge.engine import Arrays, FlatFunction

DOUBLE = (torch.float64, torch.complex128)

PATTERN = 10007
"""After so many numbers, a prime, the signs repeat by which they are moved. Drawing them all would
take more memory than the numbers. The value is ours."""


WHOLE = ("sign", "sgn", "floor", "ceil", "trunc", "fix", "floor_divide", "__floordiv__")
"""The operators whose results are whole numbers, which nothing has rounded."""


def as_written() -> AbstractContextManager[object]:
    """Returns a context in which functions that `torch.compile` made run as they are written.

    A function that is called within a dispatch mode, or a transform of `torch.func`, is not
    compiled, and the compiler then passes it over for good: later calls outside of these run as
    written too, without a word. Into the handler of a function mode it follows, and compiles that
    anew for each operator.
    """
    if "torch._dynamo" not in sys.modules:  # nothing is compiled, and the import takes a second
        return nullcontext()
    context: AbstractContextManager[object] = torch.compiler.set_stance("force_eager")
    return context


class Widening(TorchFunctionMode):
    """Tensors of lower precision become double where they meet double ones in an operator.

    That is how captured weights, buffers and constants take part in a function that is evaluated
    in double precision. Their values stay what they are.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        plain = isinstance(func, FunctionType) and func in BACKWARD
        if plain and not any(map(_is_override, _tensors((*args, kwargs or {})))):
            # What a checkpoint computes again has to be what it was in the forward pass.
            TorchFunctionMode.__enter__(self)
            try:
                return _without_overrides(func)(*args, **(kwargs or {}))
            finally:
                TorchFunctionMode.__exit__(self, None, None, None)
        args, kwargs = _alike(getattr(func, "__name__", ""), args, kwargs or {})
        return func(*args, **kwargs)


BACKWARD = (torch.autograd.grad, torch.autograd.backward)
"""The functions that run a backward pass."""

READ_DTYPE = torch.Tensor.dtype.__get__  # type: ignore[attr-defined]
"""What a mode sees where a function reads the dtype of a tensor."""

_READ_AS_DOUBLE: ContextVar[bool] = ContextVar("read_as_double", default=False)


@contextmanager
def read_as_double() -> Iterator[None]:
    """Returns a context for the function that is judged, or its backward pass, within which modes
    may say that a tensor is double. Our own code asks for the dtypes that tensors have.
    """
    token = _READ_AS_DOUBLE.set(True)
    try:
        yield
    finally:
        _READ_AS_DOUBLE.reset(token)


@contextmanager
def aside() -> Iterator[None]:
    """Returns a context for our own code in the midst of all that: no mode sees what it does.

    Without it a buffer of bfloat16 says that it is double, and cannot be read as such.
    """
    token = _READ_AS_DOUBLE.set(False)
    try:
        with torch._C.DisableTorchFunction():
            yield
    finally:
        _READ_AS_DOUBLE.reset(token)


def _is_override(tensor: torch.Tensor) -> bool:
    return type(tensor) not in (torch.Tensor, torch.nn.Parameter)


@cache
def _without_overrides(run: FunctionType) -> Callable[..., Any]:
    """Returns a function of PyTorch that does not ask modes first, and within which they act.

    While a mode handles a function, it is left, and a backward pass keeps the modes that it is
    begun with. The name that is replaced is where the function asks.
    """
    known = {**run.__globals__, "has_torch_function": lambda _: False}
    copied = FunctionType(run.__code__, known, run.__name__, run.__defaults__, run.__closure__)
    copied.__kwdefaults__ = run.__kwdefaults__
    return copied


class WideningPastCasts(Widening):
    """Double tensors also stay double where a function converts them, and autocast leaves double
    ones alone: what is asked for is the function without its roundings.

    A tensor that the function makes and then writes double numbers into (`out = torch.zeros(4)`,
    `out[0] = x[0]`) becomes double, with its views, since it would round what is written. One that
    others have made stays as it is. Where they are `read_as_double`, tensors say that they are
    double: `nn.LSTM` refuses weights of another dtype than its input. Random numbers are drawn in
    the dtype of `likes`, the inputs of the function as it was given: others are drawn in double
    precision, and with them it is another function.
    """

    def __init__(self, likes: Sequence[torch.Tensor] = (), coarsest: float = math.inf) -> None:
        """The mode below is entered and left together with this one. Conversions to dtypes whose
        spacing at 1 is larger than `coarsest` still round.
        """
        super().__init__()
        self._coarsest = coarsest
        self._below = ExitStack()
        self._drawn_in = next((one.dtype for one in likes if _is_narrow(one.dtype)), None)
        self._made: dict[int, weakref.ref[torch.Tensor]] = {}
        """The narrow tensors that operators have made, and views of these, by `id`."""

    def __enter__(self) -> Any:
        self._below.enter_context(as_written())
        self._below.enter_context(_PastCasts(self._drawn_in, self._coarsest))
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)  # type: ignore[no-untyped-call]
        self._below.close()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        name, operands = getattr(func, "__name__", ""), _tensors((*args, kwargs or {}))
        if func == READ_DTYPE and _READ_AS_DOUBLE.get():
            with torch._C.DisableTorchFunction():
                return _doubled(args[0].dtype)
        if func in BACKWARD:
            with read_as_double():
                return super().__torch_function__(func, types, args, kwargs)
        if _in_place(name) and any(one.dtype in DOUBLE for one in operands[1:]):
            with torch._C.DisableTorchFunction():  # modes around this one would see what is done
                self._widen(operands[0])
        result = super().__torch_function__(func, types, args, kwargs)
        with torch._C.DisableTorchFunction():
            if name in HANDED_OUT:  # others know its numbers by their address
                for one in operands:
                    self._made.pop(id(one), None)
            else:
                self._keep(_tensors(result), operands)
        return result

    def _keep(self, results: Sequence[torch.Tensor], operands: Sequence[torch.Tensor]) -> None:
        """Notes what an operator has made, or views of what was noted."""
        narrow = [one for one in results if _is_narrow(one.dtype)]
        others = {_memory(one) for one in operands if id(one) not in self._made} if narrow else ()
        for one in narrow:
            if _memory(one) and _memory(one) not in others:
                self._made[id(one)] = weakref.ref(one, partial(self._forget, id(one)))

    def _forget(self, key: int, _: object) -> None:
        self._made.pop(key, None)

    def _widen(self, written: torch.Tensor) -> None:
        """Makes a tensor double, and all that share its numbers, if it was made here."""
        narrow = id(written) in self._made and _is_narrow(written.dtype)
        if not narrow or written.requires_grad:
            return
        alive = [one for one in (ref() for ref in [*self._made.values()]) if one is not None]
        shared = [one for one in alive if _memory(one) == _memory(written)]
        count = written.untyped_storage().nbytes() // written.itemsize
        wide = _widened(written.detach().as_strided((count,), (1,), 0))
        for one in shared:
            one.data = wide.as_strided(one.shape, one.stride(), one.storage_offset())
            del self._made[id(one)]


class _PastCasts(TorchDispatchMode):
    """A mode below autograd, which also sees what a backward pass converts, or multiplies a
    cotangent by: a mode of functions is left while `torch.autograd.grad` runs. A cotangent without
    axes takes the dtype of what it meets, and would be rounded to that.
    """

    def __init__(self, drawn_in: torch.dtype | None, coarsest: float) -> None:
        """`drawn_in` is the dtype in which random numbers are drawn; `None` leaves it to f."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._drawn_in, self._coarsest = drawn_in, coarsest

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        if self._drawn_in is not None and _draws(func):
            return _drawn(func, args, given, self._drawn_in)
        asked = given.get("dtype")
        if asked is not None and self._leaves_out(asked, args):
            given["dtype"] = _doubled(asked)
        args, wide = _alike(func.__name__.split(".")[0], args, given)
        return func(*mapped(tuple(args), with_memory), **wide)

    def _leaves_out(self, dtype: torch.dtype, args: Sequence[Any]) -> bool:
        """Returns whether an operator of these operands is not to convert to this dtype."""
        double = any(one.dtype in DOUBLE for one in _tensors(args))
        return double and _is_narrow(dtype) and torch.finfo(dtype).eps <= self._coarsest


DISTRIBUTIONS = (
    "bernoulli", "binomial", "cauchy", "exponential", "geometric", "log_normal", "multinomial",
    "normal", "poisson", "rand", "randint", "randn", "random", "uniform",
)  # fmt: skip
"""The names of the operators that draw and do nothing else, without `_like` and `_`. Others draw
and compute at once, dropout with a mask of its own, say: what they compute stays double."""


def _draws(func: Any) -> bool:
    """Returns whether an operator of `torch.ops` does nothing but draw random numbers."""
    name = func.__name__.split(".")[0].removesuffix("_").removesuffix("_like")
    return name in DISTRIBUTIONS


def _drawn(func: Any, args: Sequence[Any], kwargs: dict[str, Any], dtype: torch.dtype) -> Any:
    """Returns what an operator draws where its double operands have this dtype, as double numbers;
    one that fills a tensor is given another one to fill.
    """

    def narrow(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(dtype) if tensor.dtype == torch.float64 else tensor

    if kwargs.get("dtype") == torch.float64:
        kwargs["dtype"] = dtype
    found = func(*mapped(tuple(args), narrow), **mapped(kwargs, narrow))
    filled = args[0] if _in_place(func.__name__.split(".")[0]) else kwargs.get("out")
    return mapped(found, _widened) if filled is None else filled.copy_(found)


def memory_of(tensor: torch.Tensor) -> int:
    """Returns where the memory of a tensor begins; 0 where it has none."""
    if tensor.layout is not torch.strided or tensor._is_zerotensor():
        return 0
    return tensor.untyped_storage().data_ptr()


def with_memory(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor of zeros for one that has no memory, as tangents of PyTorch may be: an
    operator that is called on these within a mode reads it, and ends the process.
    """
    return torch.zeros_like(tensor) if tensor._is_zerotensor() else tensor


def _alike(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Returns the operands of an operator, in double precision where one of them is, but for what
    it writes into.
    """
    kinds = {leaf.dtype for leaf in _tensors((*args, *kwargs.values()))}
    if len(kinds) < 2 or kinds.isdisjoint(DOUBLE):
        return args, kwargs
    kept = 1 if _in_place(name) else 0
    args = (*args[:kept], *mapped(tuple(args[kept:]), _widened))
    return args, {k: v if k == "out" else mapped(v, _widened) for k, v in kwargs.items()}


def _doubled(dtype: torch.dtype) -> torch.dtype:
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype


def _is_narrow(dtype: Any) -> bool:
    """Returns whether this is a floating or complex dtype, and no double one."""
    floating = isinstance(dtype, torch.dtype) and (dtype.is_floating_point or dtype.is_complex)
    return floating and dtype not in DOUBLE


class _Watching(TorchFunctionMode):
    """A mode that keeps the dtypes of what operators make of floating numbers, but for constants:
    tensors that the function makes of no floating number that came from elsewhere, as `torch.eye`
    or a mask are. Rounding such a constant is a part of the formula, and no rounding of x.

    A tensor is no constant any more where something of x was written into it: by an operator, which
    its version tells, or into memory that was handed out.

    `torch.compile` looks into it, and would make a symbol of a number that it keeps.
    """

    def __init__(self) -> None:
        """Nothing was returned yet."""
        super().__init__()
        self.dtypes: set[torch.dtype] = set()
        self._constants: dict[int, tuple[torch.Tensor, int]] = {}
        """With their versions, by the address of their numbers, which must not be used again while
        it is known."""
        self._blank: dict[int, torch.Tensor] = {}
        """Tensors, by address, into which nothing was written by an operator yet. What is read from
        one was written by something else."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func in DESCRIBES:
            return func(*args)
        given = kwargs or {}
        operands = [one for one in _tensors((*args, *given.values())) if is_inexact(one)]
        name = getattr(func, "__name__", "")
        unknown = [one for one in operands if not self._is_constant(one)]
        if name.startswith("new_") or name.endswith("_like"):
            unknown = []  # of these operands the shapes alone are read
        result = func(*args, **given)
        results = [one for one in _tensors(result) if is_inexact(one)]
        at = {id(one): _memory(one) for one in (*operands, *results)}
        changed = {at[id(operands[0])]} if operands and _in_place(name) else set()
        made = {at[id(one)] for one in results} - changed
        read = [one for one in unknown if at[id(one)] not in self._blank]
        if not made <= {at[id(one)] for one in operands}:  # more than views of blank ones
            filled = [one for one in unknown if at[id(one)] in self._blank]
            self.dtypes.update([one.dtype for one in filled])
            read += filled
        for leaf in results:
            address = at[id(leaf)]
            if read or ("empty" in name and not address):  # who writes into it is not seen
                self.dtypes.add(leaf.dtype)
                self._constants.pop(address, None)
            elif "empty" in name:
                self._blank[address] = leaf
            elif address and (address not in self._blank or address in changed):
                self._constants[address] = leaf, _version(leaf)
        for leaf in operands:
            address = at[id(leaf)]
            if name in HANDED_OUT and self._constants.pop(address, None) is not None:
                self.dtypes.add(leaf.dtype)
            elif not read and (address in self._constants or address in changed):
                self._constants[address] = leaf, _version(leaf)
                self._blank.pop(address, None)
        return result

    def _is_constant(self, tensor: torch.Tensor) -> bool:
        known = self._constants.get(_memory(tensor))
        if known is not None and _version(tensor) != known[1]:
            del self._constants[_memory(tensor)]
            self.dtypes.add(tensor.dtype)
            known = None
        return known is not None


DESCRIBES = frozenset(
    getattr(torch.Tensor, name).__get__
    for name in ("shape", "dtype", "device", "layout", "ndim", "requires_grad", "is_leaf")
)
"""The attributes that have nothing to do with the numbers of a tensor. To look at a call that reads
one, as at other calls, takes longer than an operator."""

HANDED_OUT = ("numpy", "__array__", "__dlpack__", "data_ptr", "storage", "untyped_storage")
"""The methods by which others than operators may write into a tensor."""


def _version(tensor: torch.Tensor) -> int:
    """Returns how often operators have written into the numbers of a tensor, as far as known."""
    return 0 if tensor.is_inference() else tensor._version


def is_inexact(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor holds real or complex numbers, not integers or booleans."""
    return tensor.dtype.is_floating_point or tensor.dtype.is_complex


def _memory(tensor: torch.Tensor) -> int:
    """Returns the address of the numbers of an ordinary tensor, and 0 of any other one."""
    return _below(tensor) if type(tensor) in (torch.Tensor, torch.nn.Parameter) else 0


class _Moving(TorchFunctionMode):
    """A mode that moves what operators read for the first time, what they return, and what they
    write into tensors that were made within it, by a spacing.

    Results are moved in place, since autograd may have kept them; what shares memory with an
    operand is moved already. A transform of `torch.func` forbids writing into what it did not make:
    under it a result is moved as a new tensor.
    """

    def __init__(self, draw: int, *, wide: bool) -> None:
        """`draw` chooses what is moved up; doubles are moved where `wide`."""
        super().__init__()
        self.wide, self.moves, self.sign = wide, 7 * (draw // 2), 1 - 2 * (draw % 2)
        self.read: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        """What was read for the first time, and as what, by `id`."""
        self.made: dict[int, torch.Tensor] = {}
        """What was made or read so far, by the address of its memory, which it keeps."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name == "__get__":  # an attribute, which may be a tensor of the user (`grad`)
            return func(*args, **(kwargs or {}))
        kept = 1 if _in_place(name) else 0
        args = (*args[:kept], *mapped(tuple(args[kept:]), self._as_read))
        kwargs = {
            k: v if k == "out" else mapped(v, self._as_read) for k, v in (kwargs or {}).items()
        }
        operands = [*_tensors(args), *_tensors(kwargs)]
        before = self._before_write(operands[0]) if kept and operands else None
        result = func(*args, **kwargs)
        if before is not None:
            written = operands[0].data
            with torch.no_grad():
                written.mul_(1 + self._parts(written) * (written != before))
        if name in WHOLE:  # two signs that are compared stay equal
            self.made.update((_address(one), one) for one in _tensors(result))
            return result
        if not operands:  # it may share memory with an array of the user
            return mapped(result, self._as_read)
        given = set(map(_address, operands))
        self._move_backward([one for one in _tensors(result) if _address(one) not in given])
        return mapped(result, partial(self._as_made, operands, given))

    def _before_write(self, written: torch.Tensor) -> torch.Tensor | None:
        """Returns the numbers of a tensor that an operator is about to write into, if they are to
        be moved afterwards: one that others have made is theirs.
        """
        own = _address(written) in self.made and not is_transformed(written)
        return written.detach().clone() if own and self._moves(written) else None

    def _move_backward(self, results: Sequence[torch.Tensor]) -> None:
        """Moves what the vjp of an operator gives to each of its operands, as its result is moved.

        Products with a cotangent are rounded alike for all x close by, and cotangents of sixteen
        bits stay the same: without this the right derivative of `(x**3 + x) - x**3` fails there.
        """
        own = [one for one in results if not is_transformed(one)]
        node = next((one.grad_fn for one in own if one.grad_fn is not None), None)
        if node is None:
            return
        self.moves += 1
        number = self.moves

        def move(gradients: Sequence[Any], _: Any) -> tuple[Any, ...]:
            """Returns these vjps with real factors, so that they stay linear in the cotangent."""
            return tuple(
                one * (1 + self._signs(one, number).to(one.dtype))
                if isinstance(one, torch.Tensor) and self._moves(one)
                else one
                for one in gradients
            )

        node.register_hook(move)

    def _as_made(
        self, operands: Sequence[torch.Tensor], given: Container[int], result: torch.Tensor
    ) -> torch.Tensor:
        """Returns a result that is moved, unless it shares memory with an operand; `given` are the
        addresses of these.
        """
        made = result
        if self._moves(result) and _address(result) not in given:
            if any(map(is_transformed, (result, *operands))):
                made = result * (1 + self._parts(result))
            else:
                with torch.no_grad():
                    result.data.mul_(1 + self._parts(result) * ~_copied(result, operands))
        self.made[_address(made)] = made
        return made

    def _moves(self, tensor: torch.Tensor) -> bool:
        dense = tensor.layout is torch.strided and 0 not in tensor.stride()
        return is_inexact(tensor) and dense and (self.wide or tensor.dtype not in DOUBLE)

    def _as_read(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns an operand, moved where nothing here has made it."""
        if id(tensor) in self.read:
            return self.read[id(tensor)][1]
        if not self._moves(tensor) or _address(tensor) in self.made:
            return tensor
        # Autograd keeps nothing for that: a checkpoint counts what is kept, and runs f again.
        moved = tensor + tensor.detach() * self._parts(tensor)
        self.read[id(tensor)], self.made[_address(moved)] = (tensor, moved), moved
        return moved

    def _parts(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns the part of each number by which it moves: a spacing at 1, up or down."""
        self.moves += 1
        if not tensor.dtype.is_complex:
            return self._signs(tensor, self.moves).to(tensor.dtype)
        # Complex arithmetic rounds both parts by the size of the number, whichever is small.
        number = tensor.detach()
        real, imag = (self._signs(number, self.moves, turned) for turned in (0.0, 0.25))
        moved = torch.complex(real * (number.real != 0), imag * (number.imag != 0))
        return torch.where(number != 0, moved * number.abs() / number, 0)

    def _signs(self, tensor: torch.Tensor, move: int, turned: float = 0.0) -> torch.Tensor:
        count, eps = tensor.numel(), self.sign * torch.finfo(tensor.dtype).eps
        order = torch.arange(min(count, PATTERN), device=tensor.device, dtype=torch.float64)
        # Multiples of irrational numbers follow no pattern of a function.
        turns = 0.6180339887 * order + 0.4142135624 * move**2 + turned
        signs = torch.where(turns % 1 < 0.5, eps, -eps)
        return signs.repeat(-(-count // PATTERN))[:count].reshape(tensor.shape)


def _copied(result: torch.Tensor, operands: Sequence[torch.Tensor]) -> torch.Tensor:
    """Marks the numbers of a result of another shape that are those of an operand. They were
    selected and not rounded, and the derivative of a minimum looks for its number among them.
    """
    found = torch.zeros(result.shape, dtype=torch.bool, device=result.device)
    for leaf in operands:
        alike = leaf.dtype is result.dtype and leaf.layout is result.layout
        if alike and leaf.shape != result.shape and not leaf.dtype.is_complex:
            # `isin` takes contiguous tensors alone
            found |= torch.isin(result.detach().contiguous(), leaf.detach().contiguous())
    return found


def is_transformed(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor is one of a transform of torch.func, and has no values."""
    return torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def _address(tensor: torch.Tensor) -> int:
    """Returns what tells the numbers of a tensor from those of others: where they lie, if known."""
    return _below(tensor) or id(tensor)


def _below(tensor: torch.Tensor) -> int:
    """Returns where the memory of a tensor begins, also below the wrappers of transforms."""
    while is_transformed(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    with torch._C.DisableTorchFunction():  # other modes would see numbers handed out
        return memory_of(tensor)


def moved_by_rounding(f: FlatFunction, draw: int, *, wide: bool) -> FlatFunction:
    """Contract: see `Environment.moved_by_rounding`."""

    def moved(x: Arrays) -> Arrays:
        """Returns the outputs of `f` at `x`, moved by rounding."""
        with as_written(), _Moving(draw, wide=wide):
            return f(x)

    return moved


def spacings(run: Callable[[], Any]) -> frozenset[float]:
    """Returns the spacings at 1 of the floating dtypes of what operators make of floating numbers
    in `run`, but for constants.
    """
    watching = _Watching()
    with as_written(), watching:
        run()
    return frozenset(torch.finfo(dtype).eps for dtype in watching.dtypes)


def _in_place(name: str) -> bool:
    """Returns whether an operator writes into its first argument, which then stays what it is."""
    if name.startswith("__"):
        return name == "__setitem__" or name.startswith("__i")
    return name.endswith("_")


def _tensors(node: Any) -> list[torch.Tensor]:
    if isinstance(node, torch.Tensor):
        return [node]
    if isinstance(node, dict):
        node = tuple(node.values())
    found: list[torch.Tensor] = []
    if isinstance(node, tuple | list):
        for child in node:
            if isinstance(child, torch.Tensor):
                found.append(child)
            elif isinstance(child, tuple | list | dict):
                found += _tensors(child)
    return found


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a floating tensor in double precision, and any other one as it is."""
    return tensor.to(_doubled(tensor.dtype)) if is_inexact(tensor) else tensor


def mapped(node: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Returns `node` with what `change` makes of each tensor in it."""
    if isinstance(node, torch.Tensor):
        return change(node)
    if isinstance(node, dict):
        return {key: mapped(child, change) for key, child in node.items()}
    if type(node) in (tuple, list):
        return type(node)([mapped(child, change) for child in node])
    return node
