"""The modules of PyTorch, right and with a wrong gradient planted in each of their parameters.

The modules and their inputs are those of PyTorch's own test database, in training and in
evaluation. They are handed over as the function (`module`), closed over by a lambda that is checked
with `captured=True` (`closure`), and called by `torch.func.functional_call` with their parameters
as further inputs (`functional`), which is the only way that `torch.autograd.gradcheck` can judge.
"""

import contextlib
import dataclasses
import math
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from harness import ORDINARY, RIGHT, Case, Family, SkippedError, compare, scaled_gradient
from torch.func import functional_call
from torch.testing._internal.common_modules import ModuleInfo, ModuleInput, module_db
from torch.testing._internal.common_utils import set_rng_seed
from torch_operators import SEED, Function, spot_of

WAYS = {
    "module": {},
    "closure": {"captured": True, "backend": "torch"},
    "functional": {},
}
"""How a module is handed over, and the options that this needs."""
WRONG = {"nn.CTCLoss": "the gradient is that for the numbers that a log_softmax was given"}
"""Modules whose derivative in PyTorch 2.13 is not that of the function: a FAIL is right."""
MOST_SAMPLES = 2
"""The most samples of a module in one mode, spread evenly over those of the database."""


class Called(torch.nn.Module):
    """A module with the keywords of its call, and with the gradients of some entries of its
    parameters multiplied by a factor.
    """

    def __init__(
        self, inner: torch.nn.Module, keywords: Mapping[str, Any], wrong: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self.inner, self.keywords, self.wrong = inner, dict(keywords), dict(wrong)

    def forward(self, *args: Any) -> Any:
        held = dict(self.inner.named_parameters())
        planted = {name: change(held[name]) for name, change in self.wrong.items()}
        return functional_call(self.inner, planted, args, self.keywords)


@dataclasses.dataclass(frozen=True)
class Sample:
    """A module, and the inputs of a call."""

    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def parameters(self) -> dict[str, torch.Tensor]:
        """The parameters by their names."""
        return dict(self.module.named_parameters())

    def of_parameters(self) -> Function:
        """The call as a function of the parameters alone."""
        names = list(self.parameters)

        def call(*values: torch.Tensor) -> Any:
            given = dict(zip(names, values, strict=True))
            return functional_call(self.module, given, self.args, self.kwargs)

        return Function(call, tuple(self.parameters.values()), 0.0)

    def given(self, way: str, wrong: Mapping[str, Any]) -> tuple[Any, tuple[Any, ...]]:
        """The function and the inputs of a check, with these wrong gradients of parameters."""
        module = Called(self.module, self.kwargs, wrong) if wrong or self.kwargs else self.module
        if way == "module":
            return module, self.args
        if way == "closure":
            return (lambda *args: module(*args)), self.args
        count, names = len(self.args), [name for name, _ in module.named_parameters()]

        def call(*values: Any) -> Any:
            return functional_call(
                module, dict(zip(names, values[count:], strict=True)), values[:count]
            )

        return call, (*self.args, *(p for _, p in module.named_parameters()))


def samples(info: ModuleInfo, dtype: torch.dtype, *, training: bool) -> Iterator[Sample]:
    """The samples of a module; the same ones on every call."""
    set_rng_seed(SEED)
    made = info.module_inputs_func(
        info, device="cpu", dtype=dtype, requires_grad=True, training=training
    )
    every = list(made)
    for one in every[:: math.ceil(len(every) / MOST_SAMPLES)]:
        set_rng_seed(SEED)  # whatever was drawn between two of them
        yield sample_of(info, one, dtype, training=training)


def sample_of(info: ModuleInfo, one: ModuleInput, dtype: torch.dtype, *, training: bool) -> Sample:
    """A module in this dtype with its parameters, which a lazy one gets in a first call."""
    constructor, forward = one.constructor_input, one.forward_input
    module = info.module_cls(*constructor.args, **constructor.kwargs).to(dtype).train(training)
    if any(isinstance(p, torch.nn.UninitializedParameter) for p in module.parameters()):
        module(*forward.args, **forward.kwargs)
    kwargs = {
        key: value.detach() if isinstance(value, torch.Tensor) else value
        for key, value in forward.kwargs.items()
    }
    return Sample(module, tuple(map(without_history, forward.args)), kwargs)


def without_history(value: Any) -> Any:
    """A tensor that the database has computed from others as if it had not been."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().requires_grad_(value.requires_grad)


def units() -> list[str]:
    """Every module with its index in the database, in each dtype, way and mode."""
    return [
        f"{dtype} {k} {mode} {way} {info.name}"
        for k, info in enumerate(module_db)
        for mode in (("training", "evaluation") if info.train_and_eval_differ else ("training",))
        for way in WAYS
        for dtype in ("float64", "float32")
    ]


def prepare(deltas: Sequence[float]) -> Callable[[str], Iterator[Case]]:
    """The cases of a module: as it is, and with each relative error in each parameter."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")

    def cases(unit: str) -> Iterator[Case]:
        dtype, index, mode, way, label = unit.split(" ", 4)
        info, made_in, training = module_db[int(index)], getattr(torch, dtype), mode == "training"
        if made_in not in info.dtypes:
            raise SkippedError("the module takes no tensor of this dtype")
        for number, right in enumerate(samples(info, made_in, training=training)):
            spots: dict[str, int] = {}
            for name in right.parameters:
                # a parameter without a gradient to falsify is judged as it is
                with contextlib.suppress(SkippedError):
                    spots[name] = spot_in(right, name, unit)
            plants = [("", 0, 0.0), *((n, spot, d) for n, spot in spots.items() for d in deltas)]
            for name, spot, delta in plants:
                change = scaled_gradient(spot, 1 + delta)

                def make(
                    _engine: str, number: int = number, name: str = name, change: Any = change
                ) -> tuple[Any, tuple[Any, ...]]:
                    found = list(samples(info, made_in, training=training))[number]
                    set_rng_seed(SEED)  # dropout leaves the entry in that was seen to count
                    return found.given(way, {name: change} if name else {})

                options = {"nondet_tol": info.gradcheck_nondet_tol, "seed": 0, "blame": False}
                case, plant = f"{label} {number} {mode} {way} {dtype}", f"{delta:g} {name}"
                kind = "wrong" if label in WRONG else ORDINARY
                yield Case(case, dtype, make, plant if name else RIGHT, kind, options | WAYS[way])

    return cases


def spot_in(sample: Sample, name: str, label: str) -> int:
    """Where to plant an error in a parameter: see `torch_operators.spot_of`."""
    whole, names = sample.of_parameters(), list(sample.parameters)
    place = names.index(name)

    def call(value: torch.Tensor) -> Any:
        set_rng_seed(SEED)
        return whole.call(*whole.inputs[:place], value, *whole.inputs[place + 1 :])

    seed = zlib.crc32(name.encode())
    return spot_of(Function(call, (whole.inputs[place],), 0.0), f"{label} {seed}")[1]


FAMILY = Family(units, prepare, alone=True)

if __name__ == "__main__":
    compare(FAMILY, "PyTorch's modules", ("adjudge", "torch fast"), ("float64", "float32"))
