"""What PyTorch keeps outside of tensors: defaults, random generators, and settings of precision."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import torch

from adjudge.engine import Array, Arrays, Environment, FlatFunction, Precision, Setting, restored
from adjudge_torch import precision, settings

_EXACT = (torch.float64, torch.complex128)
"""The dtypes whose precision no setting changes."""
_AS_EXACT_AS_THE_DTYPE = Precision()


class TorchEnvironment(Environment):
    """PyTorch's global state. Contract: see `Environment`."""

    def __init__(self) -> None:
        """The version is that of PyTorch."""
        super().__init__(str(torch.__version__))

    @property
    def memory_errors(self) -> tuple[type[Exception], ...]:
        return (MemoryError, torch.OutOfMemoryError)

    @contextmanager
    def isolation(self, leaves: Sequence[Array]) -> Iterator[None]:
        cuda = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
        current = [Setting(torch.cuda.current_device, torch.cuda.set_device)] if cuda else []
        with (
            torch.random.fork_rng(devices=cuda),
            settings.kept(),
            restored(
                Setting(torch.get_default_dtype, torch.set_default_dtype),
                *current,
                Setting(torch.get_default_device, torch.set_default_device),
                Setting(
                    torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms
                ),
            ),
            torch.inference_mode(False),
            torch.enable_grad(),
        ):
            yield

    def random_state(self) -> Hashable:
        states: list[torch.Tensor] = [torch.get_rng_state()]
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            states += torch.cuda.get_rng_state_all()
        return _RandomState([state.numpy().tobytes() for state in states])

    def widening(self) -> AbstractContextManager[None]:
        return precision.widening()

    def highest_precision(self) -> AbstractContextManager[None]:
        return settings.highest()

    def precision(self, array: Array) -> Precision:
        if array.dtype in _EXACT:
            return _AS_EXACT_AS_THE_DTYPE
        coarse = settings.of_products(array)
        return coarse or Precision(setting=settings.of_operators(array))

    def determinism_setting(self, array: Array) -> str:
        return settings.of_repeatability(array)

    def narrowest_eps(self, f: FlatFunction, x: Arrays) -> float:
        return precision.narrowest(lambda: f(x))


class _RandomState(tuple[bytes, ...]):
    """The states of the generators: of the CPU, and of the GPUs once they are used.

    Where the GPUs are used for the first time between two of these, only what both hold can be
    compared.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _RandomState):
            return NotImplemented
        shared = min(len(self), len(other))
        return self[:shared] == other[:shared]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[0])
