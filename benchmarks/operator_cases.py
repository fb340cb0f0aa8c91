"""PyTorch's operators as functions of their differentiable inputs, right and with an error."""

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.testing._internal.common_utils import is_iterable_of_tensors, set_rng_seed
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

SEED = 0
COTANGENTS = 4
NEGLIGIBLE = 0.1
"""Errors are planted in a column of the Jacobian at least this large, relative to the largest."""
VANISHING = 1e-12
"""Gradients below this, relative to `max |y| / max |x|`, are a zero with rounding errors."""


class UnusableError(Exception):
    """The reason why an operator is left out."""


@dataclass(frozen=True)
class Case:
    """A function at its inputs, all of which are differentiable, and its accepted irregularity."""

    function: Callable[..., Any]
    inputs: tuple[torch.Tensor, ...]
    nondet_tol: float


@dataclass(frozen=True)
class Spot:
    """The element of an input whose gradient is scaled, and the size of its Jacobian column."""

    input: int
    element: int
    size: float


def name(operator: OpInfo) -> str:
    """The operator's name with its variant, as in PyTorch's own test names."""
    variant = operator.variant_test_name
    return f"{operator.name}.{variant}" if variant else operator.name


def case(operator: OpInfo, dtype: torch.dtype, device: str = "cpu") -> Case:
    """The first sample of an operator that has something to check; the same one on every call."""
    return usable(operator, dtype, device)[1]


def usable(operator: OpInfo, dtype: torch.dtype, device: str = "cpu") -> tuple[SampleInput, Case]:
    """The first sample that has something to check, and the function that is made of it."""
    if not operator.supports_autograd:
        raise UnusableError("the operator has no derivative")
    if dtype not in operator.supported_backward_dtypes(torch.device(device).type):
        raise UnusableError(f"no reverse mode for {str(dtype).removeprefix('torch.')}")
    reason = "no sample"
    for sample in samples(operator, dtype, device):
        candidate = composed(operator, sample)
        reason = obstacle(candidate)
        if not reason:
            return sample, candidate
    raise UnusableError(reason)


def samples(operator: OpInfo, dtype: torch.dtype, device: str = "cpu") -> Iterator[SampleInput]:
    """The operator's samples, seeded."""
    set_rng_seed(SEED)
    yield from operator.sample_inputs(device, dtype, requires_grad=True)


def obstacle(candidate: Case) -> str:
    """Why nothing can be checked in this sample, or an empty string."""
    if not candidate.inputs:
        return "no differentiable input"
    if all(x.numel() == 0 for x in candidate.inputs):
        return "all differentiable inputs are empty"
    outputs = differentiable(candidate.function(*candidate.inputs))
    if not outputs:
        return "no differentiable output"
    if all(y.numel() == 0 for y in outputs):
        return "all differentiable outputs are empty"
    return ""


def composed(operator: OpInfo, sample: SampleInput) -> Case:
    """A sample as a function of its differentiable tensors, as PyTorch's TestGradients does it."""
    first = sample.input if is_iterable_of_tensors(sample.input) else (sample.input,)
    every = (*first, *sample.args, *sample.kwargs.values())
    inputs = tuple(x for x in every if is_checked(x))
    variant = operator.get_op()

    def function(*values: torch.Tensor) -> Any:
        left = iter(values)
        x = refill(sample.input, left)
        args = [refill(argument, left) for argument in sample.args]
        kwargs = {key: refill(argument, left) for key, argument in sample.kwargs.items()}
        output = operator.gradcheck_wrapper(variant, x, *args, **kwargs)
        return sample.output_process_fn_grad(output)

    function.__qualname__ = name(operator)
    return Case(function, inputs, operator.gradcheck_nondet_tol)


def refill(argument: Any, left: Iterator[torch.Tensor]) -> Any:
    """`argument` with its differentiable tensors replaced by the next ones of `left`."""
    if is_iterable_of_tensors(argument):
        return [next(left) if is_checked(x) else x for x in argument]
    return next(left) if is_checked(argument) else argument


def is_checked(value: object) -> bool:
    """Whether a value is a tensor that asks for a gradient."""
    return isinstance(value, torch.Tensor) and value.requires_grad


def differentiable(output: Any) -> list[torch.Tensor]:
    """The tensors of an output that have a derivative."""
    outputs: Iterable[Any] = output if isinstance(output, tuple | list) else (output,)
    return [y for y in outputs if is_checked(y)]


class ScaledGradient(torch.autograd.Function):
    """The identity, whose reverse mode scales one element; forward mode is right."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor, element: int, factor: float) -> torch.Tensor:
        """`x`, copied, so that an operator may work in place on it."""
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        """Keep what the derivatives need."""
        _, ctx.element, ctx.factor = inputs
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor | None) -> tuple[Any, None, None]:
        """The cotangent with one element scaled."""
        if cotangent is None:
            return None, None, None
        scale = torch.ones(cotangent.shape, dtype=cotangent.real.dtype, device=cotangent.device)
        scale.view(-1)[ctx.element] = ctx.factor
        return cotangent * scale, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor | None, *constants: None) -> torch.Tensor | None:
        """The tangent itself."""
        return None if tangent is None else tangent.clone()


def planted(right: Case, spot: Spot, delta: float) -> Case:
    """`right` with the gradient of one element of one input multiplied by `1 + delta`."""

    def function(*values: torch.Tensor) -> Any:
        changed = list(values)
        changed[spot.input] = ScaledGradient.apply(values[spot.input], spot.element, 1 + delta)
        return right.function(*changed)

    function.__qualname__ = right.function.__qualname__
    return Case(function, right.inputs, right.nondet_tol)


def spot(right: Case, label: str) -> Spot:
    """Where to plant the error: a seeded choice in the first input that the function depends on.

    The choice is among the elements whose Jacobian column, measured with random cotangents, has
    at least a tenth of the length of the largest one: no error is planted in a gradient of zero.
    """
    generator = torch.Generator().manual_seed(zlib.crc32(label.encode()))
    for index, x in enumerate(right.inputs):
        if x.layout is not torch.strided:
            raise UnusableError(f"the input's layout is {x.layout}")
        columns = column_sizes(right, index, generator)
        largest = largest_entry([columns])
        if largest > VANISHING * natural_size(right, index):
            eligible = (columns >= NEGLIGIBLE * largest).nonzero().flatten()
            chosen = torch.randint(len(eligible), (), generator=generator)
            element = int(eligible[chosen])
            return Spot(index, element, columns[element].item())
    raise UnusableError("the gradient is zero, zero but for rounding, or not finite")


def column_sizes(right: Case, index: int, generator: torch.Generator) -> torch.Tensor:
    """The root mean square of the gradients for a few random cotangents; 0 where not finite."""
    x = right.inputs[index]
    squares = torch.zeros(x.numel(), dtype=torch.float64)
    for _ in range(COTANGENTS):
        outputs = differentiable(right.function(*right.inputs))
        cotangents = [cotangent(y, generator) for y in outputs]
        (gradient,) = torch.autograd.grad(outputs, [x], cotangents, allow_unused=True)
        if gradient is not None:
            squares += gradient.detach().abs().reshape(-1).to("cpu", torch.float64) ** 2
    sizes = (squares / COTANGENTS).sqrt()
    return torch.where(sizes.isfinite(), sizes, 0.0)


def natural_size(right: Case, index: int) -> float:
    """`max |y| / max |x|`: the size of a derivative that nothing makes small or large."""
    outputs = differentiable(right.function(*right.inputs))
    return largest_entry(outputs) / (largest_entry([right.inputs[index]]) or 1.0)


def largest_entry(tensors: Iterable[torch.Tensor]) -> float:
    """The largest finite absolute value, 0 where there is none."""
    entries = [x.detach().abs().reshape(-1) for x in tensors]
    finite = [x[x.isfinite()] for x in entries]
    return max((x.max().item() for x in finite if x.numel()), default=0.0)


def cotangent(y: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A normal cotangent for an output."""
    return torch.randn(y.shape, dtype=y.dtype, generator=generator).to(y.device)
