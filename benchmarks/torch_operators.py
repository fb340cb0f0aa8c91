"""Every differentiable operator of PyTorch, right and with planted errors, through the checkers.

The operators and their inputs are those of PyTorch's own test database. The gradient of one element
of one input is multiplied by 1 + delta; the value and every other gradient stay right. With
`kernels` for a first argument the operators refuse all dtypes but float32, or but bfloat16, as a
kernel does that is written for one of them.
"""

import dataclasses
import functools
import sys
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from harness import ORDINARY, Case, Family, SkippedError, compare, scaled_gradient
from torch.testing._internal.common_utils import is_iterable_of_tensors, set_rng_seed
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

SEED = 0
COTANGENTS = 4
NEGLIGIBLE = 0.1
"""Errors are planted in a column of the Jacobian at least this large, relative to the largest."""
VANISHING = 1e-12
"""Gradients below this, relative to `max |y| / max |x|`, are a zero with rounding errors."""
STATISTICS = "no derivative of the mean and standard deviation that are returned beside the result"
OVERWRITTEN = "an entry that a later one overwrites keeps its derivative"
DRAWN = "the derivative with respect to the mean and the standard deviation is declared zero"
WRONG = {
    "_batch_norm_with_update": STATISTICS,
    "_native_batch_norm_legit": STATISTICS,
    "native_batch_norm": STATISTICS,
    "native_group_norm": STATISTICS,
    "native_layer_norm": STATISTICS,
    "as_strided_scatter": OVERWRITTEN,
    "nn.functional.max_unpool3d": OVERWRITTEN,
    "nn.functional.hardsigmoid": "the constant 1/6 in single precision",
    "normal": DRAWN,
    "normal.number_mean": DRAWN,
    "sparse.mm.reduce": "no derivative for the entries of a sparse factor that are not stored",
}
"""Operators whose derivative in PyTorch 2.13 is not that of the function: a FAIL is right. Shown by
a complex step of each operator written once more in NumPy: data/torch_wrong.csv."""


# ---------------------------------------------------------------- operators as functions


@dataclass(frozen=True)
class Function:
    """An operator at the tensors that ask for a gradient, and the irregularity that is allowed."""

    call: Callable[..., Any]
    inputs: tuple[torch.Tensor, ...]
    nondet_tol: float


def name(operator: OpInfo) -> str:
    """The operator's name with its variant, as in PyTorch's own test names."""
    variant = operator.variant_test_name
    return f"{operator.name}.{variant}" if variant else operator.name


def first_usable(operator: OpInfo, dtype: torch.dtype, device: str = "cpu") -> Function:
    """The first sample of an operator that has something to check; the same one on every call."""
    if not operator.supports_autograd:
        raise SkippedError("the operator has no derivative")
    if dtype not in operator.supported_backward_dtypes(torch.device(device).type):
        raise SkippedError("no reverse mode in this dtype")
    reason = "no sample"
    set_rng_seed(SEED)
    for sample in operator.sample_inputs(device, dtype, requires_grad=True):
        function = composed(operator, sample)
        reason = obstacle(function)
        if not reason:
            return function
    raise SkippedError(reason)


def obstacle(function: Function) -> str:
    """Why nothing can be checked in this sample, or an empty string."""
    if not function.inputs:
        return "no differentiable input"
    if all(x.numel() == 0 for x in function.inputs):
        return "all differentiable inputs are empty"
    outputs = differentiable(function.call(*function.inputs))
    if not outputs:
        return "no differentiable output"
    if all(y.numel() == 0 for y in outputs):
        return "all differentiable outputs are empty"
    return ""


def composed(operator: OpInfo, sample: SampleInput) -> Function:
    """A sample as a function of its differentiable tensors, as PyTorch's TestGradients does it."""
    first = sample.input if is_iterable_of_tensors(sample.input) else (sample.input,)
    every = (*first, *sample.args, *sample.kwargs.values())
    variant, wrapper = operator.get_op(), operator.gradcheck_wrapper

    def call(*values: torch.Tensor) -> Any:
        left = iter(values)
        x = refill(sample.input, left)
        args = [refill(argument, left) for argument in sample.args]
        kwargs = {key: refill(argument, left) for key, argument in sample.kwargs.items()}
        output = wrapper(variant, x, *args, **kwargs)
        return sample.output_process_fn_grad(output)

    call.__qualname__ = name(operator)
    return Function(call, tuple(x for x in every if is_checked(x)), operator.gradcheck_nondet_tol)


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


# ---------------------------------------------------------------- planted errors


def scaled(function: Function, spot: tuple[int, int], delta: float) -> Function:
    """The function with the gradient of one element of one input multiplied by `1 + delta`."""
    index, element = spot
    planted = scaled_gradient(element, 1 + delta)

    def call(*values: torch.Tensor) -> Any:
        changed = list(values)
        changed[index] = planted(values[index])
        return function.call(*changed)

    call.__qualname__ = function.call.__qualname__
    return dataclasses.replace(function, call=call)


def spot_of(function: Function, label: str) -> tuple[int, int]:
    """Where to plant the error: a seeded choice in the first input that the function depends on.

    The choice is among the elements whose Jacobian column, measured with random cotangents, has
    at least a tenth of the length of the largest one: no error is planted in a gradient of zero.
    """
    generator = torch.Generator().manual_seed(zlib.crc32(label.encode()))
    for index, x in enumerate(function.inputs):
        if x.layout is not torch.strided:
            raise SkippedError(f"the input's layout is {x.layout}")
        columns = column_sizes(function, index, generator)
        largest = largest_entry([columns])
        if largest > VANISHING * natural_size(function, index):
            eligible = (columns >= NEGLIGIBLE * largest).nonzero().flatten()
            chosen = torch.randint(len(eligible), (), generator=generator)
            return index, int(eligible[chosen])
    raise SkippedError("the gradient is zero, zero but for rounding, or not finite")


def column_sizes(function: Function, index: int, generator: torch.Generator) -> torch.Tensor:
    """The root mean square of the gradients for a few random cotangents; 0 where not finite."""
    x = function.inputs[index]
    squares = torch.zeros(x.numel(), dtype=torch.float64)
    for _ in range(COTANGENTS):
        outputs = differentiable(function.call(*function.inputs))
        cotangents = [
            torch.randn(y.shape, dtype=y.dtype, generator=generator).to(y.device) for y in outputs
        ]
        (gradient,) = torch.autograd.grad(outputs, [x], cotangents, allow_unused=True)
        if gradient is not None:
            squares += gradient.detach().abs().reshape(-1).to("cpu", torch.float64) ** 2
    sizes = (squares / COTANGENTS).sqrt()
    return torch.where(sizes.isfinite(), sizes, 0.0)


def natural_size(function: Function, index: int) -> float:
    """`max |y| / max |x|`: the size of a derivative that nothing makes small or large."""
    outputs = differentiable(function.call(*function.inputs))
    return largest_entry(outputs) / (largest_entry([function.inputs[index]]) or 1.0)


def largest_entry(tensors: Iterable[torch.Tensor]) -> float:
    """The largest finite absolute value, 0 where there is none."""
    entries = [x.detach().abs().reshape(-1) for x in tensors]
    finite = [x[x.isfinite()] for x in entries]
    return max((x.max().item() for x in finite if x.numel()), default=0.0)


# ---------------------------------------------------------------- the family


def units(dtypes: Sequence[str] = ("float64", "complex128")) -> list[str]:
    """Every operator with its index in the database, in each dtype."""
    from torch.testing._internal.common_methods_invocations import op_db

    return [f"{dtype} {k} {name(op)}" for k, op in enumerate(op_db) for dtype in dtypes]


def of_one_dtype(function: Function, dtype: torch.dtype) -> Function:
    """The function as a kernel that takes one dtype alone."""

    def call(*values: torch.Tensor) -> Any:
        for value in values:
            if value.dtype != dtype:
                raise TypeError(f"no kernel for {value.dtype}")
        return function.call(*values)

    call.__qualname__ = function.call.__qualname__
    return dataclasses.replace(function, call=call)


def prepare(
    deltas: Sequence[float], device: str = "cpu", *, kernels: bool = False
) -> Callable[[str], Iterator[Case]]:
    """The cases of an operator: as it is, and with each relative error."""
    from torch.testing._internal.common_methods_invocations import op_db

    import adjudge

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    x = torch.linspace(0.1, 1.0, 3, dtype=torch.float64, requires_grad=True)
    adjudge.examine(torch.sin, (x,))  # what is imported late is imported before a fork
    torch.autograd.gradcheck(torch.sin, (x,), fast_mode=True)

    def cases(unit: str) -> Iterator[Case]:
        dtype, index, label = unit.split(" ", 2)
        operator, kind = op_db[int(index)], getattr(torch, dtype)
        try:
            right = first_usable(operator, kind, device)
        except SkippedError:
            raise
        except Exception as error:
            raise SkippedError(f"the sample raises {type(error).__name__}") from None
        try:
            spot = spot_of(right, f"{label} {dtype}")
        except Exception:  # an operator without a gradient to falsify is judged as it is
            spot = None
        options = {"nondet_tol": right.nondet_tol, "seed": 0}
        of = kind_of(operator, kind, torch.device(device).type)
        for delta in (0.0, *deltas) if spot else (0.0,):

            def make(_engine: str, delta: float = delta) -> tuple[Any, tuple[Any, ...]]:
                function = first_usable(operator, kind, device)
                function = of_one_dtype(function, kind) if kernels else function
                function = scaled(function, spot, delta) if spot and delta else function
                return function.call, function.inputs

            plant = f"{delta:g}" if delta else "right"
            yield Case(f"{label} {dtype}", dtype, make, plant, of, options)

    return cases


def kind_of(operator: OpInfo, dtype: torch.dtype, device: str) -> str:
    """Whether a FAIL of the operator as it is would be right, or at least no surprise."""
    if name(operator) in WRONG:
        return "wrong"
    marks = ("__unittest_skip__", "__unittest_expecting_failure__")
    decorators = operator.get_decorators("TestBwdGradients", "test_fn_grad", device, dtype, {})
    tests = [decorator(lambda _test: None) for decorator in decorators]
    known = any(getattr(test, mark, False) for test in tests for mark in marks)
    return "PyTorch skips its own test" if known else ORDINARY


FAMILY = Family(units, prepare, alone=True)
NARROW = ("float32", "bfloat16")
KERNELS = Family(
    functools.partial(units, NARROW), functools.partial(prepare, kernels=True), alone=True
)

if __name__ == "__main__":
    if sys.argv[1:2] == ["kernels"]:
        compare(KERNELS, "Kernels of one dtype", ("adjudge",), NARROW, sys.argv[2:])
        raise SystemExit
    judges = ("adjudge", "torch slow", "torch fast")
    compare(FAMILY, "PyTorch's operators", judges, ("float64", "complex128"))
