"""What the sweep over the modes differentiates: operators of PyTorch, functions of JAX."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

SAMPLES = 3
"""Taken of each operator at its own, random, points."""
LOOKED_AT = 24
LARGEST_HARNESS = 1000
LARGEST = 64
"""Samples with more numbers among their inputs are left out where there are smaller ones."""


@dataclass(frozen=True)
class Subject:
    """A function at its floating inputs."""

    operator: str
    sample: str
    f: Callable[..., Any]
    inputs: tuple[Any, ...]
    nondet_tol: float
    host: Callable[[Any], np.ndarray]
    device: Callable[[np.ndarray, Any], Any]
    """An array of the framework with these values, otherwise like another one."""

    def hosts(self) -> tuple[np.ndarray, ...]:
        """The point as NumPy arrays."""
        return tuple(self.host(x) for x in self.inputs)

    def finite(self) -> bool:
        """Whether the function has finite values here."""
        return all(bool(np.all(np.isfinite(y))) for y in leaves(self.f(*self.inputs), self.host))

    def at(self, values: Sequence[np.ndarray]) -> Subject:
        """The same function elsewhere."""
        pairs = zip(values, self.inputs, strict=True)
        return replace(self, inputs=tuple(self.device(value, x) for value, x in pairs))


def leaves(output: Any, host: Callable[[Any], np.ndarray]) -> Iterator[np.ndarray]:
    """The floating arrays of an output, nested or not."""
    if isinstance(output, tuple | list):
        for part in output:
            yield from leaves(part, host)
    elif hasattr(output, "dtype") and "float" in str(output.dtype):
        yield host(output)


@dataclass(frozen=True)
class Source:
    """Where subjects come from; each function is called in the process that uses its answer."""

    names: Callable[[str], list[str]]
    """Of all operators for a dtype."""
    subjects: Callable[[str, str], list[Subject]]
    """Of one operator in one dtype; raises where it has none."""


# ---------------------------------------------------------------- PyTorch


def torch_names(dtype: str) -> list[str]:
    """The operators with a derivative on the CPU."""
    import torch
    from operator_cases import name
    from torch.testing._internal.common_methods_invocations import op_db

    kind = getattr(torch, dtype)
    return [
        f"{index} {name(op)}"
        for index, op in enumerate(op_db)
        if op.supports_autograd and kind in op.supported_backward_dtypes("cpu")
    ]


def torch_subjects(label: str, dtype: str) -> list[Subject]:
    """A few small samples of an operator, spread over those that it has."""
    import torch
    from operator_cases import composed, obstacle, samples
    from torch.testing._internal.common_methods_invocations import op_db

    torch.set_num_threads(1)
    index, _, name = label.partition(" ")
    operator = op_db[int(index)]
    found = []
    every = samples(operator, getattr(torch, dtype))
    for sample in itertools.islice(every, 16 * LOOKED_AT):
        if len(found) == LOOKED_AT:
            break
        case = composed(operator, sample)
        if any(x.layout is not torch.strided for x in case.inputs) or obstacle(case):
            continue
        size = sum(x.numel() for x in case.inputs)
        words = f"{', '.join(str(list(x.shape)) for x in case.inputs)}{told(sample)}"
        found.append((size, words, case))
    if not found:
        raise ValueError("no dense sample with a derivative")
    least = min(size for size, _, _ in found)
    small = [entry for entry in found if entry[0] <= max(LARGEST, least)]
    distinct = {words: (size, case) for size, words, case in small}
    chosen = spread_out(list(distinct.items()), SAMPLES)
    chosen.sort(key=lambda entry: -entry[1][0])  # special points want more than one number
    return [
        Subject(name, words, case.function, case.inputs, case.nondet_tol, of_torch, to_torch)
        for words, (_, case) in chosen
    ]


def told(sample: Any) -> str:
    """The arguments of a sample that are no tensors."""
    import torch

    plain = [
        str(a) for a in sample.args if not isinstance(a, torch.Tensor) and len(str(a)) < 40
    ] + [
        f"{key}={value}"
        for key, value in sample.kwargs.items()
        if not isinstance(value, torch.Tensor) and len(str(value)) < 40
    ]
    return f"; {', '.join(plain)}" if plain else ""


def spread_out(items: Sequence[Any], count: int) -> list[Any]:
    """At most `count` of `items`, the first and the last among them."""
    if len(items) <= count:
        return list(items)
    return [items[round(k * (len(items) - 1) / (count - 1))] for k in range(count)]


def of_torch(x: Any) -> np.ndarray:
    """The values of a tensor."""
    return np.array(x.detach().resolve_conj().resolve_neg().numpy())


def to_torch(value: np.ndarray, like: Any) -> Any:
    """A tensor that asks for a gradient."""
    import torch

    return torch.tensor(np.ascontiguousarray(value), dtype=like.dtype).requires_grad_()


# ---------------------------------------------------------------- JAX


def jax_names(dtype: str) -> list[str]:
    """The harnesses, one a group, and the functions beyond them."""
    import jax
    from jax_functions import FUNCTIONS
    from jax_primitives import all_harnesses

    with jax.enable_x64(True):
        groups = {
            str(h.group_name): None for h in all_harnesses() if np.dtype(h.dtype).name == dtype
        }
    beyond = [name for name in FUNCTIONS if dtype == "float64"]
    return [*(f"lax {name}" for name in sorted(groups)), *beyond]


@functools.cache
def harnesses(dtype: str) -> dict[str, list[Any]]:
    """The harnesses of a dtype by group."""
    from jax_primitives import all_harnesses

    groups: dict[str, list[Any]] = {}
    for harness in all_harnesses():
        if np.dtype(harness.dtype).name == dtype:
            groups.setdefault(str(harness.group_name), []).append(harness)
    return {name: sorted(group, key=lambda h: h.fullname) for name, group in groups.items()}


def jax_subjects(label: str, dtype: str) -> list[Subject]:
    """Small harnesses of a group that have a derivative, or one of the functions."""
    import jax
    from jax_functions import FUNCTIONS, inputs_of

    jax.config.update("jax_enable_x64", True)
    jax.clear_caches()
    if not label.startswith("lax "):
        f, kinds = FUNCTIONS[label]
        inputs = tuple(to_jax(x, x) for x in inputs_of(label, kinds))
        return [Subject(label, kinds, f, inputs, 0.0, np.asarray, to_jax)]
    found = list(harness_subjects(label.removeprefix("lax "), dtype))
    if not found:
        raise ValueError("no harness with a derivative")
    return found


def harness_subjects(group: str, dtype: str) -> Iterator[Subject]:
    """At most `SAMPLES` of a group: the small ones among a dozen that are spread over it."""
    from jax_primitives import Case, case_of

    found = [case_of(h, dtype) for h in spread_out(harnesses(dtype)[group], 4 * SAMPLES)]
    cases = [case for case in found if isinstance(case, Case) and case.size <= LARGEST_HARNESS]
    for case in sorted(cases, key=lambda case: case.size)[:SAMPLES]:
        sample = case.name.removeprefix(f"{group}_")
        yield Subject(f"lax.{group}", sample, case.f, case.args, 0.0, np.asarray, to_jax)


def to_jax(value: np.ndarray, like: Any) -> Any:
    """An array of JAX."""
    import jax.numpy as jnp

    return jnp.asarray(value, like.dtype)


SOURCES = {
    "torch": Source(torch_names, torch_subjects),
    "jax": Source(jax_names, jax_subjects),
}
