"""What a function did at a point, as a program of operations whose meaning every engine shares.

`Trace` keeps the steps in the engine's words, to be run again by the engine. A `Program` is its
translation into the vocabulary below, on the host: each operation has one mathematical meaning, and
so it can be replayed in other arithmetic (`adjudge.estimate.exact` takes balls). An adapter
translates with a `ProgramBuilder`, and nothing in here knows of a framework.

Roundings are no part of the meaning: a conversion between floating dtypes is the identity. What
depends on no input is a constant, and so are integers and booleans that no floating number decides.
A boolean that was decided by floating numbers is a value of the program like others; where its
recorded value is computed with (as an index, say), `rely` says that the replay has to find the
same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from adjudge.engine.trace import INPUT, UNKNOWN, Place, Ref

Array: TypeAlias = Any
"""An array of the engine, or one of NumPy."""

HostArray: TypeAlias = NDArray[Any]
"""A NumPy array of float64 or complex128, of integers or of booleans."""

HostOperand: TypeAlias = Ref | HostArray
"""A value of a program: a reference, or a constant on the host."""


class Definition(NamedTuple):
    """What an operation of the vocabulary means."""

    arguments: str
    """Its operands, then a star and its parameters. Operands broadcast as those of NumPy do."""
    meaning: str
    domain: str
    """Where it is defined: `real`, `complex` (then also real), or a set of real numbers."""
    smooth: bool
    """Whether it is differentiable within its domain. Otherwise it is so except at kinks, jumps or
    ties."""


_TABLE: Mapping[str, tuple[tuple[str, str, str, str, bool], ...]] = {
    "Elementwise functions of the Array API standard": (
        ("add", "x, y", "x + y", "complex", True),
        ("subtract", "x, y", "x - y", "complex", True),
        ("multiply", "x, y", "x y", "complex", True),
        ("divide", "x, y", "x / y", "complex, y not 0", True),
        ("negative", "x", "-x", "complex", True),
        ("reciprocal", "x", "1 / x", "complex, not 0", True),
        ("square", "x", "x²", "complex", True),
        ("pow", "x, y", "x to the power y; the main branch where complex",
         "x > 0, or y a constant integer; complex", True),
        ("sqrt", "x", "the square root", "x > 0; complex off the negative half-line", True),
        ("exp", "x", "e to the power x", "complex", True),
        ("exp2", "x", "2 to the power x", "complex", True),
        ("expm1", "x", "e to the power x, less 1", "complex", True),
        ("log", "x", "the natural logarithm", "x > 0; complex off the negative half-line", True),
        ("log1p", "x", "log(1 + x)", "x > -1; complex off the half-line", True),
        ("log2", "x", "the logarithm to base 2", "x > 0", True),
        ("log10", "x", "the logarithm to base 10", "x > 0", True),
        ("logaddexp", "x, y", "log(exp x + exp y)", "real", True),
        ("sin", "x", "sine", "complex", True),
        ("cos", "x", "cosine", "complex", True),
        ("tan", "x", "tangent", "complex, no pole", True),
        ("asin", "x", "inverse sine", "-1 < x < 1; complex off the cuts", True),
        ("acos", "x", "inverse cosine", "-1 < x < 1; complex off the cuts", True),
        ("atan", "x", "inverse tangent", "complex off the cuts", True),
        ("atan2", "y, x", "the angle of the point (x, y)", "off x <= 0, y = 0", True),
        ("sinh", "x", "hyperbolic sine", "complex", True),
        ("cosh", "x", "hyperbolic cosine", "complex", True),
        ("tanh", "x", "hyperbolic tangent", "complex, no pole", True),
        ("asinh", "x", "inverse hyperbolic sine", "complex off the cuts", True),
        ("acosh", "x", "inverse hyperbolic cosine", "x > 1; complex off the cuts", True),
        ("atanh", "x", "inverse hyperbolic tangent", "-1 < x < 1; complex off the cuts", True),
        ("hypot", "x, y", "sqrt(x² + y²)", "real, not (0, 0)", True),
        ("abs", "x", "the modulus", "complex", False),
        ("sign", "x", "x / |x|, and 0 at 0", "complex", False),
        ("copysign", "x, y", "|x| with the sign of y", "real", False),
        ("maximum", "x, y", "the larger one", "real", False),
        ("minimum", "x, y", "the smaller one", "real", False),
        ("floor", "x", "the largest integer not above x", "real", False),
        ("ceil", "x", "the smallest integer not below x", "real", False),
        ("trunc", "x", "the integer next to x towards zero", "real", False),
        ("round", "x", "the nearest integer, the even one of two", "real", False),
        ("remainder", "x, y", "x - y floor(x / y)", "real, y not 0", False),
        ("astype", "x", "x itself, rounded to another floating dtype: the identity", "complex",
         True),
        ("real", "x", "the real part", "complex", True),
        ("imag", "x", "the imaginary part", "complex", True),
        ("conj", "x", "the complex conjugate", "complex", True),
    ),
    "Further elementwise functions, most of them by their names in SciPy": (
        ("rsqrt", "x", "1 / sqrt(x)", "x > 0; complex off the half-line", True),
        ("cbrt", "x", "the real cube root", "real, not 0", True),
        ("fmod", "x, y", "x - y trunc(x / y), as C's fmod", "real, y not 0", False),
        ("complex", "x, y", "x + i y", "real", True),
        ("expit", "x", "1 / (1 + exp(-x)), the logistic function", "complex, no pole", True),
        ("softplus", "x", "log(1 + exp x)", "real", True),
        ("xlogy", "x, y", "x log y, and 0 where x is the constant 0", "y > 0", True),
        ("xlog1py", "x, y", "x log(1 + y), and 0 where x is the constant 0", "y > -1", True),
        ("sinc", "x", "sin(π x) / (π x), and 1 at 0, as NumPy's", "real", True),
        ("erf", "x", "the error function", "complex", True),
        ("erfc", "x", "1 - erf(x)", "complex", True),
        ("erfcx", "x", "exp(x²) erfc(x)", "real", True),
        ("erfinv", "x", "the inverse of erf", "-1 < x < 1", True),
        ("ndtr", "x", "the normal distribution function", "real", True),
        ("log_ndtr", "x", "its logarithm", "real", True),
        ("ndtri", "x", "its inverse", "0 < x < 1", True),
        ("gammaln", "x", "log |Γ(x)|", "real, no pole", True),
        ("digamma", "x", "the derivative of gammaln", "real, no pole", True),
        ("polygamma", "n, x", "the derivative of order n of digamma; n a constant integer >= 0",
         "real, no pole", True),
        ("zeta", "s, q", "the zeta function of Hurwitz, Σ (q + k)^-s", "s > 1, q > 0", True),
        ("gammainc", "a, x", "the regularised lower incomplete gamma function",
         "a > 0, x > 0", True),
        ("gammaincc", "a, x", "1 - gammainc(a, x)", "a > 0, x > 0", True),
        ("betainc", "a, b, x", "the regularised incomplete beta function",
         "a > 0, b > 0, 0 < x < 1", True),
        ("i0", "x", "the modified Bessel function I of order 0", "real", True),
        ("i1", "x", "that of order 1", "real", True),
        ("i0e", "x", "exp(-|x|) i0(x)", "real", False),
        ("i1e", "x", "exp(-|x|) i1(x)", "real", False),
        ("j0", "x", "the Bessel function J of order 0", "real", True),
        ("j1", "x", "that of order 1", "real", True),
        ("y0", "x", "the Bessel function Y of order 0", "x > 0", True),
        ("y1", "x", "that of order 1", "x > 0", True),
        ("k0", "x", "the modified Bessel function K of order 0", "x > 0", True),
        ("k1", "x", "that of order 1", "x > 0", True),
        ("k0e", "x", "exp(x) k0(x)", "x > 0", True),
        ("k1e", "x", "exp(x) k1(x)", "x > 0", True),
        ("airy_ai", "x", "the Airy function Ai", "real", True),
    ),
    "Comparisons and selections": (
        ("equal", "x, y", "x = y, a boolean", "complex", False),
        ("not_equal", "x, y", "its negation", "complex", False),
        ("less", "x, y", "x < y, a boolean", "real", False),
        ("less_equal", "x, y", "x <= y, a boolean", "real", False),
        ("greater", "x, y", "x > y, a boolean", "real", False),
        ("greater_equal", "x, y", "x >= y, a boolean", "real", False),
        ("isfinite", "x", "whether x is finite", "complex", False),
        ("isnan", "x", "whether x is undefined", "complex", False),
        ("logical_and", "x, y", "both, of booleans", "booleans", False),
        ("logical_or", "x, y", "at least one, of booleans", "booleans", False),
        ("logical_xor", "x, y", "exactly one, of booleans", "booleans", False),
        ("logical_not", "x", "the negation", "booleans", False),
        ("where", "condition, x, y", "x where the condition holds, and y elsewhere",
         "complex", False),
        ("argmax", "x, *, axis, keepdims", "the index of the largest entry along one axis",
         "real", False),
        ("argmin", "x, *, axis, keepdims", "the index of the smallest entry along one axis",
         "real", False),
        ("sort", "x, *, axis, indices",
         "the entries along one axis in ascending order. `indices` is the order that was recorded, "
         "as `numpy.take_along_axis` takes it, and may be only its first part", "real", False),
    ),
    "Entries moved, chosen, repeated and summed": (
        ("take", "*xs, *, indices, fill",
         "the operands' entries by an array of indices into all of them, flattened and one after "
         "the other; the number `fill` where the index is -1", "complex", True),
        ("segment_sum", "*xs, *, segments, shape",
         "an array of that shape, in which each entry of the operands, flattened and one after the "
         "other, is added to the entry of this flat index; -1 leaves it out", "complex", True),
    ),
    "Reductions: `axis` is a tuple of axes, and `None` means all": (
        ("sum", "x, *, axis, keepdims", "the sum", "complex", True),
        ("prod", "x, *, axis, keepdims", "the product", "complex", True),
        ("max", "x, *, axis, keepdims", "the largest entry", "real", False),
        ("min", "x, *, axis, keepdims", "the smallest entry", "real", False),
        ("logsumexp", "x, *, axis, keepdims", "log Σ exp x", "real", True),
        ("any", "x, *, axis, keepdims", "whether one holds, of booleans", "booleans", False),
        ("all", "x, *, axis, keepdims", "whether all hold, of booleans", "booleans", False),
        ("cumulative_sum", "x, *, axis", "the sums of the first entries", "complex", True),
        ("cumulative_prod", "x, *, axis", "the products of the first entries", "complex", True),
        ("cumulative_max", "x, *, axis", "the largest of the first entries", "real", False),
        ("cumulative_min", "x, *, axis", "the smallest of the first entries", "real", False),
        ("cumulative_logsumexp", "x, *, axis", "log Σ exp of the first entries", "real", True),
    ),
    "Linear algebra, of stacks of matrices; `^H` is the conjugate transpose": (
        ("matmul", "a, b", "the matrix product, as NumPy's", "complex", True),
        ("solve", "a, b", "the matrix X with a X = b, of the shape of the matrix b",
         "complex, a regular", True),
        ("solve_triangular", "a, b, *, lower, unit_diagonal",
         "the same for one triangle of a, whose other entries count as zero, and those on the "
         "diagonal as one where `unit_diagonal` is true", "complex, a regular", True),
        ("inv", "a", "the inverse", "complex, a regular", True),
        ("det", "a", "the determinant", "complex", True),
        ("slogdet", "a", "two results: the determinant over its modulus, and the logarithm of that",
         "complex, a regular", True),
        ("cholesky", "a", "the lower triangular L with L L^H = a; only (a + a^H) / 2 counts",
         "complex, a positive definite", True),
        ("lu", "a, *, permutation",
         "L and U with L U = a in the order of rows `permutation`, in one matrix: U, and below its "
         "diagonal L, whose diagonal is one", "complex, no zero on U's diagonal", True),
        ("qr", "a", "two results, of as many columns as a: Q with orthonormal columns, and the "
         "upper triangular R, with the phases of R's diagonal that were recorded",
         "complex, full rank, no more columns than rows", True),
        ("eigh", "a", "two results: the eigenvalues of (a + a^H) / 2, ascending, and eigenvectors "
         "with the phases that were recorded", "complex, isolated eigenvalues", True),
        ("eig", "a", "two results: the eigenvalues, and eigenvectors of length 1, in the order and "
         "with the phases that were recorded", "complex, isolated eigenvalues", True),
        ("svd", "a", "three results: U and V^H with as many columns and rows as the smaller side "
         "of a, and between them the singular values, descending; with the phases of the smaller "
         "one of U and V that was recorded",
         "complex, full rank, isolated singular values", True),
        ("matrix_exp", "a", "Σ_k a^k / k!", "complex", True),
        ("fft", "x, *, axis, inverse",
         "Σ_j x_j exp(∓2πi j k / n), without a factor; the sign is + where `inverse` is true",
         "complex", True),
    ),
}  # fmt: skip

SECTIONS: Mapping[str, tuple[str, ...]] = {
    title: tuple(name for name, *_ in entries) for title, entries in _TABLE.items()
}
"""The names of the operations, by the sections of the table."""

OPERATIONS: Mapping[str, Definition] = {
    one[0]: Definition(*one[1:]) for entries in _TABLE.values() for one in entries
}
"""The vocabulary: what each operation means. A name that the Array API standard has means the same
in it."""

HOST = (np.ndarray, np.generic, bool, int, float, complex)
"""The types of constants that an adapter gives as numbers of the host."""

OPAQUE = "opaque"
"""The name of an operation that has no translation."""


@dataclass(frozen=True, eq=False)
class Operation:
    """One operation of a program, as it ran."""

    name: str
    """A key of `OPERATIONS`, or `OPAQUE`."""
    operands: tuple[HostOperand, ...]
    recorded: tuple[HostArray, ...]
    """The results that the engine computed."""
    eps: float
    """The spacing at 1 of the narrowest dtype of its results; of its operands where these are no
    floating-point numbers. A narrower operand is converted first: the branch of `where` that is
    not taken rounds nothing."""
    params: Mapping[str, Any] = field(default_factory=dict)
    place: Place = UNKNOWN
    step: str = ""
    """What the engine calls the step that this operation is a part of."""
    begins: int | None = None
    """The number of the operation with which the step begins, where the engine computed the results
    of this one by the whole step at once; `None` where it ran this operation by itself."""
    why: str = ""
    """Why an opaque one has no translation."""


@dataclass(frozen=True, eq=False)
class Program:
    """What a function did at a point, in the vocabulary."""

    inputs: tuple[HostArray, ...]
    operations: Sequence[Operation]
    outputs: tuple[HostOperand, ...]
    relied_on: frozenset[Ref]
    """The booleans and integers whose recorded values went into constants, indices or control flow:
    the program holds only where these are as they were recorded."""
    followed: frozenset[Ref] = frozenset()
    """The booleans that say whether a loop went on: the program has the turns that were taken. A
    loop that ends by rounding would end elsewhere without it; only a tie is a kink or a jump."""
    asked: dict[str, Any] = field(default_factory=dict)
    """What an exact replay has found out about it so far, which it asks once."""

    @property
    def opaque(self) -> list[Operation]:
        """The operations that have no translation."""
        return [one for one in self.operations if one.name == OPAQUE]

    def value(self, operand: HostOperand) -> NDArray[Any]:
        """Returns what was recorded of a value of the program."""
        if not isinstance(operand, Ref):
            return operand
        if operand.step == INPUT:
            return self.inputs[operand.number]
        return self.operations[operand.step].recorded[operand.number]


def unseen(program: Program, beside: Program) -> Operation | str | None:
    """Returns the first operation that takes floating-point numbers which are other ones in a
    program of the same function at another point, `"output"` where these are returned, and `None`
    where there are none.

    They depend on x and were made where the engine records nothing, as `torch.Tensor([x[0], x[1]])`
    is: a replay would take them for constants. Where the function did other operations at the other
    point, or made other integers or booleans of its numbers, it says nothing. The rule is ours.
    """
    if not comparable(program, beside):
        return None
    for one, other in zip(program.operations, beside.operations, strict=True):
        if any(map(_another, one.operands, other.operands)):
            return one
    return "output" if any(map(_another, program.outputs, beside.outputs)) else None


def comparable(program: Program, beside: Program) -> bool:
    """Returns whether a program of the same function at another point did the same operations, and
    made the same integers and booleans of its numbers.
    """
    held = program.relied_on | program.followed
    names, others = ([one.name for one in some.operations] for some in (program, beside))
    return (
        names == others
        and held == beside.relied_on | beside.followed
        and all(np.array_equal(program.value(ref), beside.value(ref)) for ref in held)
    )


def _another(one: HostOperand, other: HostOperand) -> bool:
    """Returns whether two operands are floating-point numbers that differ."""
    if isinstance(one, Ref) or isinstance(other, Ref):
        return False
    return one.dtype.kind in "fc" and not np.array_equal(one, other, equal_nan=True)


def windows(
    size: Sequence[int],
    window: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    spread: Sequence[int],
) -> NDArray[np.int64]:
    """Returns which entries of an array of this `size`, flattened, a window sees at each place.

    The result has the number of places along each axis, followed by the shape of the window; -1
    stands for padding. The parameters are those of `ProgramBuilder.convolution`.
    """
    found = np.zeros((), np.int64)
    for length, wide, stride, (low, high), dilated, apart in zip(
        size, window, strides, padding, dilation, spread, strict=True
    ):
        whole = (length - 1) * apart + 1 if length else 0
        count = max(0, (whole + low + high - (wide - 1) * dilated - 1) // stride + 1)
        at = np.arange(count)[:, None] * stride + np.arange(wide) * dilated - low
        inside = (at >= 0) & (at < whole) & (at % apart == 0)
        along = np.where(inside, at // apart, -1)
        before = found[..., None, None]
        found = np.where((before < 0) | (along < 0), -1, before * length + along)
    rank = len(size)
    return found.transpose(*range(0, 2 * rank, 2), *range(1, 2 * rank, 2))


def grouped(targets: NDArray[Any], size: int) -> NDArray[np.int64]:
    """Returns which entries have each of `size` numbers for their target: a row for each number,
    filled up with -1. Targets below zero are left out.
    """
    groups: list[list[int]] = [[] for _ in range(size)]
    for k, target in enumerate(targets.ravel().tolist()):
        if target >= 0:
            groups[target].append(k)
    width = max(map(len, groups), default=0)
    return np.array([group + [-1] * (width - len(group)) for group in groups], np.int64)


class Readable(Protocol):
    """What is asked of the arrays of an engine: a part of `ArrayOperations`."""

    def is_differentiable(self, array: Array, /) -> bool: ...

    def to_host(self, array: Array, /) -> HostArray: ...

    def eps(self, array: Array, /) -> float: ...


class ProgramBuilder:
    """Writes a program, operation by operation.

    What it is given as an operand is a `Ref` that it returned, or a constant: an array of the
    engine, a NumPy array or a number.
    """

    def __init__(self, arrays: Readable, inputs: Sequence[Array]) -> None:
        """The `inputs` are arrays of the engine whose operations `arrays` are."""
        self.arrays = arrays
        self.inputs = tuple([self.host(one) for one in inputs])
        self.operations: list[Operation] = []
        self._epss: dict[Ref, float] = {
            Ref(INPUT, k): arrays.eps(one) for k, one in enumerate(inputs)
        }
        self._relied: set[Ref] = set()
        self._followed: set[Ref] = set()

    # ---------------------------------------------------------------- operations

    def emit(
        self,
        name: str,
        operands: Sequence[Any],
        results: Array | Sequence[Array],
        place: Place = UNKNOWN,
        step: str = "",
        **params: Any,
    ) -> Any:
        """Adds an operation, and returns a reference to its result.

        Args:
            name: What it is called in `OPERATIONS`.
            operands: References and constants.
            results: The array that the engine computed, or a list or tuple of these for an
                operation that has several results; the answer is a tuple of references then. Where
                no operand is a reference, the answer is the result itself on the host. A NumPy
                array is taken for what was computed in the dtypes of the operands.
            place: The line of the user's code.
            step: What the engine calls the step that the operation belongs to.
            params: Its parameters, as `OPERATIONS` names them.
        """
        if name not in OPERATIONS:
            raise KeyError(f"{name!r} is no operation of the vocabulary")
        return self._add(
            operands, results, partial(Operation, name, params=params, place=place, step=step)
        )

    def opaque(
        self,
        operands: Sequence[Any],
        results: Array | Sequence[Array],
        place: Place = UNKNOWN,
        step: str = "",
        why: str = "it has no translation",
    ) -> Any:
        """Adds a step that has no translation, and returns references to its results."""
        return self._add(
            operands,
            results,
            partial(Operation, OPAQUE, params={}, place=place, step=step, why=why),
        )

    def take(
        self,
        operands: Sequence[Any],
        indices: NDArray[Any],
        place: Place = UNKNOWN,
        step: str = "",
        fill: complex = 0.0,
    ) -> Any:
        """Adds an operation `take`, whose result need not be given."""
        entries = np.concatenate([self.value(one).ravel() for one in operands])
        found = np.append(entries, np.asarray(fill, entries.dtype))[indices]
        return self.emit("take", operands, found, place, step, indices=indices, fill=fill)

    def rearranged(
        self,
        run: Callable[[list[NDArray[np.int64]]], Sequence[NDArray[Any]]],
        operands: Sequence[Any],
        results: Sequence[Array],
        place: Place = UNKNOWN,
        step: str = "",
        fill: complex = 0.0,
    ) -> tuple[Any, ...]:
        """Adds a step that only moves, chooses and repeats entries of its operands.

        `run` does what the step does, to index arrays of the operands' shapes in place of these,
        and returns an array of indices for each result, with -1 where an entry is `fill`.
        """
        shapes = [self.value(one).shape for one in operands]
        ends = np.cumsum([prod(shape) for shape in shapes])
        starts = [int(end) - prod(shape) for end, shape in zip(ends, shapes, strict=True)]
        numbered = [
            np.arange(start, start + prod(shape), dtype=np.int64).reshape(shape)
            for start, shape in zip(starts, shapes, strict=True)
        ]
        return tuple([
            self.emit("take", operands, result, place, step, indices=np.asarray(chosen), fill=fill)
            for chosen, result in zip(run(numbered), results, strict=True)
        ])  # fmt: skip

    def convolution(
        self,
        x: Any,
        kernel: Any,
        result: Array,
        *,
        strides: Sequence[int],
        padding: Sequence[tuple[int, int]],
        dilation: Sequence[int],
        spread: Sequence[int],
        groups: int = 1,
        place: Place = UNKNOWN,
        step: str = "",
    ) -> Any:
        """Adds a convolution (a correlation: the kernel is not flipped) as a matrix product.

        Args:
            x: The images, of shape `(batch, channels, *size)`.
            kernel: The kernel, of shape `(outputs, channels / groups, *size)`.
            result: What the engine computed, of shape `(batch, outputs, *size)`.
            strides: The step between windows, by axis.
            padding: How many zeros stand before and after the spread image, by axis; negative
                numbers crop.
            dilation: The step between the kernel's entries, by axis.
            spread: The step between the image's entries, with zeros between them, by axis: that is
                the stride of a transposed convolution.
            groups: The number of groups of channels, each of which has its own outputs.
            place: As for `emit`.
            step: As for `emit`.
        """
        size, window = self.value(x).shape, self.value(kernel).shape
        batch, channels, outputs = size[0], size[1], window[0]
        spots = windows(size[2:], window[2:], strides, padding, dilation, spread)
        places, area = prod(result.shape[2:]), prod(size[2:])
        spots = spots.reshape(places, -1).T
        images = np.arange(batch * channels).reshape(batch, groups, window[1], 1, 1)
        columns = np.where(spots < 0, -1, images * area + spots)
        columns = columns.reshape(batch, groups, prod(window[1:]), places)
        weights = np.arange(prod(window)).reshape(1, groups, outputs // groups, prod(window[1:]))
        whole = self.emit(
            "matmul",
            [self.take([kernel], weights, place, step), self.take([x], columns, place, step)],
            self.host(result).reshape(batch, groups, outputs // groups, places),
            place,
            step,
        )
        return self.take([whole], np.arange(prod(result.shape)).reshape(result.shape), place, step)

    def computed(self, operand: Any, result: Array, first: int) -> None:
        """Notes that the engine computed `result` where it is put together from other operations:
        what is found by these is compared with it.

        Args:
            operand: What stands for the result.
            result: What the engine computed.
            first: The number of operations before these; what is older keeps its own values.
        """
        values = self.host(result)
        while isinstance(operand, Ref) and operand.step >= first:
            before = self.operations[operand.step]
            recorded = list(before.recorded)
            recorded[operand.number] = values
            self.operations[operand.step] = replace(before, recorded=tuple(recorded), begins=first)
            if before.name != "take" or len(before.operands) != 1:
                return
            operand, indices = before.operands[0], before.params["indices"]
            size, shape = self.value(operand).size, self.value(operand).shape
            if not np.array_equal(np.sort(indices, axis=None), np.arange(size)):
                return
            values = values.ravel()[np.argsort(indices, axis=None)].reshape(shape)  # turned back

    def finished(self, outputs: Iterable[Any]) -> Program:
        """Returns the program that has these outputs: references and constants.

        It has the operations that these, or what was relied on, depend on.
        """
        known = tuple([one if isinstance(one, Ref) else self.host(one) for one in outputs])
        kept = {ref.step for ref in (*_refs(known), *self._relied, *self._followed)}
        for number in reversed(range(len(self.operations))):
            if number in kept:
                kept.update([ref.step for ref in _refs(self.operations[number].operands)])
        order = sorted(kept - {INPUT})
        steps = {old: new for new, old in enumerate(order)} | {INPUT: INPUT}

        def moved(operand: HostOperand) -> Any:
            return (
                operand._replace(step=steps[operand.step]) if isinstance(operand, Ref) else operand
            )

        def begun(begins: int | None) -> int | None:
            return None if begins is None else bisect_left(order, begins)

        operations = [
            replace(one, operands=tuple(map(moved, one.operands)), begins=begun(one.begins))
            for number, one in enumerate(self.operations)
            if number in kept
        ]
        relied_on, followed = (
            frozenset(map(moved, refs)) for refs in (self._relied, self._followed)
        )
        return Program(self.inputs, operations, tuple(map(moved, known)), relied_on, followed)

    # ---------------------------------------------------------------- values

    def value(self, operand: Any) -> NDArray[Any]:
        """Returns what was recorded of an operand, for its shape and dtype."""
        if not isinstance(operand, Ref):
            return self.host(operand)
        if operand.step == INPUT:
            return self.inputs[operand.number]
        return self.operations[operand.step].recorded[operand.number]

    def rely(self, operand: Any) -> NDArray[Any]:
        """Returns what was recorded of booleans or integers, to compute with: the replay has to
        find the same.
        """
        if isinstance(operand, Ref):
            self._relied.add(operand)
        return self.value(operand)

    def follow(self, operand: Any) -> NDArray[Any]:
        """Returns what was recorded of booleans that say whether a loop goes on: the replay takes
        the same turns, where it can decide them.
        """
        if isinstance(operand, Ref):
            self._followed.add(operand)
        return self.value(operand)

    def host(self, array: Any) -> NDArray[Any]:
        """Returns a constant on the host: in float64 or complex128, or as integers or booleans."""
        if not isinstance(array, HOST):
            if self.arrays.is_differentiable(array):
                return self.arrays.to_host(array)
            return np.array(array)
        known = np.asarray(array)
        wide = {"f": np.float64, "c": np.complex128}.get(known.dtype.kind, known.dtype)
        return known.astype(wide)

    # ---------------------------------------------------------------- inside

    def _add(
        self, operands: Sequence[Any], results: Any, operation: Callable[..., Operation]
    ) -> Any:
        several = isinstance(results, list | tuple)
        given = results if several else [results]
        recorded = tuple([self.host(one) for one in given])
        used = _refs(operands)
        if not used:
            return recorded if several else recorded[0]
        known = tuple([one if isinstance(one, Ref) else self.host(one) for one in operands])
        coarsest = max(map(self._epss.__getitem__, used))
        refs = tuple([Ref(len(self.operations), k) for k in range(len(given))])
        for ref, one in zip(refs, given, strict=True):
            floating = not isinstance(one, HOST) and self.arrays.is_differentiable(one)
            self._epss[ref] = self.arrays.eps(one) if floating else coarsest
        self.operations.append(operation(known, recorded, max(map(self._epss.__getitem__, refs))))
        return refs if several else refs[0]


def _refs(operands: Iterable[HostOperand]) -> list[Ref]:
    return [one for one in operands if isinstance(one, Ref)]
