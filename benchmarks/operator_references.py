"""Derivatives of a few operators that neither PyTorch nor differences of it take part in.

Each operator is written once more with NumPy (or mpmath) and differentiated there: by a complex
step, by a difference of step 1 where it is linear, or by a formula in 50 digits. The twin must
give the operator's own values, or it would be the derivative of something else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import torch
from operator_cases import Case, is_checked, usable
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

STEP = 1e-30
SAME_VALUE = 1e-12
WRONG = 1e-9
"""Relative to the largest entry of the block, from here on a derivative is called wrong."""

Twin = Callable[..., list[np.ndarray]]
Jacobian = Callable[[Any], Any]


@dataclass(frozen=True)
class Reference:
    """The operator once more, and how it is differentiated."""

    twin: Twin
    how: str = "complex step of a NumPy twin"
    derivative: Callable[[Any], Any] | None = None
    """Of an elementwise function, where no step is taken."""


@dataclass(frozen=True)
class Comparison:
    """The entry in which the engine and the reference are furthest apart."""

    entry: str
    engine: complex
    reference: complex
    relative: float
    how: str
    value_gap: float

    @property
    def wrong(self) -> bool:
        """Whether the engine is wrong; a twin with other values proves nothing."""
        return self.value_gap <= SAME_VALUE and self.relative > WRONG

    @property
    def text(self) -> str:
        """One cell."""
        return (
            f"{self.entry}: engine {number(self.engine)}, reference {number(self.reference)}, "
            f"apart by {self.relative:.1e} of the largest entry"
        )


def compare(operator: OpInfo, dtype: torch.dtype, reference: Reference) -> Comparison:
    """The engine's whole Jacobian against that of the reference."""
    sample, case = usable(operator, dtype)
    arrays = [dense(x) for x in case.inputs]
    values = [dense(y) for y in outputs_of(case)]
    twins = [np.asarray(y) for y in reference.twin(sample, *arrays)]
    gap = max(
        float(np.max(np.abs(a - b), initial=0.0)) / (float(np.max(np.abs(a), initial=0.0)) or 1.0)
        for a, b in zip(values, twins, strict=False)
    )
    worst = Comparison("", 0.0, 0.0, -1.0, reference.how, gap)
    for j in range(len(arrays)):
        exact = differentiated(reference, sample, arrays, j)
        for k, y in enumerate(outputs_of(case)):
            if k >= len(exact):  # outputs that the twin leaves out, such as empty ones
                continue
            own = engine_block(case, k, j)
            apart = np.abs(own - exact[k])
            largest = float(np.max(np.abs(exact[k]), initial=0.0)) or 1.0
            where = np.unravel_index(int(np.argmax(apart)), apart.shape)
            relative = float(apart[where]) / largest
            if relative > worst.relative:
                of = [int(i) for i in np.unravel_index(where[0], y.shape or (1,))]
                wrt = [int(i) for i in np.unravel_index(where[1], arrays[j].shape or (1,))]
                entry = f"d out[{k}]{of} / d inputs[{j}]{wrt}"
                worst = Comparison(entry, own[where], exact[k][where], relative, reference.how, gap)
    return worst


def number(value: complex) -> str:
    """With ten digits, and without an imaginary part of zero."""
    return f"{value.real:.10g}" if not np.imag(value) else f"{value:.10g}"


def dense(tensor: torch.Tensor) -> np.ndarray:
    """A tensor as an array."""
    plain = tensor.detach()
    return (plain if plain.layout is torch.strided else plain.to_dense()).numpy()


def outputs_of(case: Case) -> list[torch.Tensor]:
    """All tensors of the output."""
    output = case.function(*case.inputs)
    outputs = output if isinstance(output, tuple | list) else (output,)
    return [y for y in outputs if isinstance(y, torch.Tensor)]


def engine_block(case: Case, k: int, j: int) -> np.ndarray:
    """`d out[k] / d inputs[j]` of the engine, one pullback a row; zero where it has no graph."""
    y = outputs_of(case)[k]
    x = case.inputs[j]
    rows = np.zeros((y.numel(), x.numel()), complex if x.is_complex() else float)
    if not is_checked(y):
        return rows
    for row in range(y.numel()):
        unit = torch.zeros(y.numel(), dtype=y.dtype)
        unit[row] = 1
        (gradient,) = torch.autograd.grad(
            y, [x], unit.reshape(y.shape), retain_graph=True, allow_unused=True
        )
        if gradient is not None:
            rows[row] = np.conj(dense(gradient)).ravel()
    return rows


def differentiated(
    reference: Reference, sample: SampleInput, arrays: Sequence[np.ndarray], j: int
) -> list[np.ndarray]:
    """The derivatives of all outputs with respect to one input."""
    if reference.derivative is not None:
        return [np.diag([float(reference.derivative(mpmath.mpf(x))) for x in arrays[j].ravel()])]
    columns = []
    for i in range(arrays[j].size):
        moved = [a.astype(complex) for a in arrays]
        if np.iscomplexobj(arrays[j]):  # the twins of complex operators are linear
            before = reference.twin(sample, *moved)
            moved[j].flat[i] += 1
            after = reference.twin(sample, *moved)
            columns.append([b - a for a, b in zip(before, after, strict=True)])
        else:
            moved[j].flat[i] += 1j * STEP
            columns.append([y.imag / STEP for y in reference.twin(sample, *moved)])
    return [np.stack([c[k].ravel() for c in columns], axis=1) for k in range(len(columns[0]))]


# ---------------------------------------------------------------- twins


def hardsigmoid(_sample: SampleInput, x: np.ndarray) -> list[np.ndarray]:
    """`min(max(x + 3, 0), 6) / 6`."""
    return [np.where(x.real <= -3, 0, np.where(x.real >= 3, 1, (x + 3) / 6))]


def ndtr(_sample: SampleInput, x: np.ndarray) -> list[np.ndarray]:
    """The normal distribution function."""
    return [elementwise(lambda t: mpmath.ncdf(t), x)]


def erfc(_sample: SampleInput, x: np.ndarray) -> list[np.ndarray]:
    """The complementary error function."""
    return [elementwise(mpmath.erfc, x)]


def log_ndtr(_sample: SampleInput, x: np.ndarray) -> list[np.ndarray]:
    """The logarithm of the normal distribution function."""
    return [elementwise(lambda t: mpmath.log(mpmath.erfc(-t / mpmath.sqrt(2)) / 2), x)]


def elementwise(f: Callable[[Any], Any], x: np.ndarray) -> np.ndarray:
    """`f` in 50 digits, entry by entry."""
    with mpmath.workdps(50):
        return np.array([float(f(mpmath.mpf(t))) for t in x.real.ravel()]).reshape(x.shape)


def density(t: Any) -> Any:
    """The normal density."""
    return mpmath.npdf(t)


def max_unpool(sample: SampleInput, x: np.ndarray) -> list[np.ndarray]:
    """Every value at its index; of several at one index the last one stays."""
    size = sample.kwargs["output_size"]
    indices = sample.args[0].numpy().reshape(x.shape[0], x.shape[1], -1)
    out = np.zeros((*x.shape[:2], int(np.prod(size[2:]))), x.dtype)
    values = x.reshape(*x.shape[:2], -1)
    for n, c, i in np.ndindex(values.shape):
        out[n, c, indices[n, c, i]] = values[n, c, i]
    return [out.reshape(tuple(size))]


def as_strided_scatter(sample: SampleInput, x: np.ndarray, source: np.ndarray) -> list[np.ndarray]:
    """A copy of `x`, of which the strided part is overwritten."""
    _, size, stride = sample.args
    out = x.copy().ravel()
    for index in np.ndindex(tuple(size)):
        at = sample.kwargs["storage_offset"] + sum(np.multiply(index, stride))
        out[int(at)] = source[index]
    return [out.reshape(x.shape)]


def normal(_sample: SampleInput, mean: np.ndarray, std: np.ndarray) -> list[np.ndarray]:
    """`mean + std z` with the `z` of the seed that the sample sets."""
    return [mean + std * drawn(mean.shape)]


def normal_of_mean(sample: SampleInput, mean: np.ndarray) -> list[np.ndarray]:
    """`mean + std z` with a number as std: the sample names its arguments in the other order."""
    return [mean + sample.input * drawn(mean.shape)]


def drawn(shape: tuple[int, ...]) -> np.ndarray:
    """What PyTorch draws after `manual_seed(42)`, which its samples call."""
    generator = torch.Generator().manual_seed(42)
    return torch.empty(shape, dtype=torch.float64).normal_(generator=generator).numpy()


def sparse_mm(sample: SampleInput, a: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
    """The product, of which each entry is a sum."""
    if sample.args[1] != "sum":
        raise ValueError(f"no twin for the reduction {sample.args[1]}")
    return [a @ b]


def normalised(
    x: np.ndarray, axes: tuple[int, ...], eps: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`(x - mean) rstd`, mean and rstd over `axes`, which are kept."""
    mean = x.mean(axes, keepdims=True)
    rstd = 1 / np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + eps)
    return (x - mean) * rstd, mean, rstd


def group_norm(
    sample: SampleInput, x: np.ndarray, weight: np.ndarray, bias: np.ndarray
) -> list[np.ndarray]:
    """Normalised within groups of channels."""
    n, c, _, groups, eps = sample.args[-5:]
    y, mean, rstd = normalised(x.reshape(n, groups, -1), (2,), eps)
    y = y.reshape(x.shape) * weight.reshape(1, c, 1) + bias.reshape(1, c, 1)
    return [y, mean.reshape(n, groups), rstd.reshape(n, groups)]


def layer_norm(
    sample: SampleInput, x: np.ndarray, weight: np.ndarray, bias: np.ndarray
) -> list[np.ndarray]:
    """Normalised over the last axes."""
    shape, eps = sample.args[0], sample.args[-1]
    y, mean, rstd = normalised(x, tuple(range(x.ndim - len(shape), x.ndim)), eps)
    return [y * weight + bias, mean, rstd]


def batch_norm(
    sample: SampleInput, x: np.ndarray, weight: np.ndarray, bias: np.ndarray
) -> list[np.ndarray]:
    """Normalised over all axes but that of the channels, with the statistics of the batch."""
    axes = (0, *range(2, x.ndim))
    y, mean, rstd = normalised(x, axes, sample.args[-1])
    wide = (1, -1, *[1] * (x.ndim - 2))
    return [y * weight.reshape(wide) + bias.reshape(wide), mean.ravel(), rstd.ravel()]


LINEAR = "complex step (complex128: a step of 1) of a NumPy twin"
FORMULA = "mpmath, 50 digits"
REFERENCES = {
    "nn.functional.hardsigmoid": Reference(hardsigmoid),
    "nn.functional.max_unpool1d": Reference(max_unpool),
    "nn.functional.max_unpool2d": Reference(max_unpool),
    "nn.functional.max_unpool3d": Reference(max_unpool),
    "as_strided_scatter": Reference(as_strided_scatter, LINEAR),
    "normal": Reference(normal),
    "normal.number_mean": Reference(normal_of_mean),
    "sparse.mm.reduce": Reference(sparse_mm),
    "native_group_norm": Reference(group_norm),
    "native_layer_norm": Reference(layer_norm),
    "native_batch_norm": Reference(batch_norm),
    "_native_batch_norm_legit": Reference(batch_norm),
    "_batch_norm_with_update": Reference(batch_norm),
    "special.ndtr": Reference(ndtr, FORMULA, density),
    "erfc": Reference(erfc, FORMULA, lambda t: -2 / mpmath.sqrt(mpmath.pi) * mpmath.exp(-t * t)),
    "special.log_ndtr": Reference(
        log_ndtr, FORMULA, lambda t: mpmath.npdf(t) / (mpmath.erfc(-t / mpmath.sqrt(2)) / 2)
    ),
}
"""By the names of operators. An operator without one is reported as such."""
