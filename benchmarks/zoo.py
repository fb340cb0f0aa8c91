"""Hostile functions, with right and with planted wrong gradients, through the checkers.

A planted error sits in an identity in front of the function: its value is right, its pullback is
not. A function whose gradient is rounded too badly in a dtype to be called right is counted apart.
"""

import dataclasses
import enum
import functools
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from harness import ORDINARY, RIGHT, Case, Family, SkippedError, compare, first_line, identity
from zoo_functions import TORCH, ZOO, Kind, Specimen, jax_namespace

DTYPES = ("float64", "float32", "float16", "bfloat16")
SEEDS = (0, 1)
OFF = 0.5
"""A gradient is called right if it is within this times `u^(2/5)` of the one in float64."""
SHOWS = 1e-2
"""A misplaced or dropped entry is planted only where it changes the gradient by this share."""


class Plant(enum.StrEnum):
    """What is done to the gradient of one argument."""

    PERCENT = "1+1e-2"
    PERMILLE = "1+1e-3"
    TENTH = "1+1e-4"
    SIGN = "sign"
    DROP = "dropped"
    MOVE = "moved"
    """The gradient is transposed where that keeps the shape, and rolled by one otherwise."""
    ADD = "added"
    """Something is added that does not belong there: what another argument gets, a neighbour."""


FACTORS = {Plant.PERCENT: 1e-2, Plant.PERMILLE: 1e-3, Plant.TENTH: 1e-4, Plant.SIGN: -2.0}


@dataclass(frozen=True)
class Corruption:
    """A planted error: what becomes of the gradients of all arguments."""

    plant: Plant
    leaf: int
    element: int

    def __call__(self, xp: Any, gradients: Sequence[Any]) -> tuple[Any, ...]:
        """The wrong gradients; linear in the right ones."""
        changed = list(gradients)
        changed[self.leaf] = self._changed(xp, gradients)
        return tuple(changed)

    def _changed(self, xp: Any, gradients: Sequence[Any]) -> Any:
        own = gradients[self.leaf]
        if self.plant in FACTORS:
            return own * (1 + FACTORS[self.plant])
        if self.plant is Plant.DROP:
            mask = np.ones(own.shape)
            mask.flat[self.element] = 0
            return own * xp.const(mask, own)
        if self.plant is Plant.MOVE:
            if own.ndim == 2 and own.shape[0] == own.shape[1]:
                return own.T
            return xp.roll(own.reshape(-1), 1).reshape(own.shape)
        others = [g for k, g in enumerate(gradients) if k != self.leaf and g.shape == own.shape]
        added = others[0] if others else xp.roll(own.reshape(-1), 1).reshape(own.shape)
        return own + added


# ---------------------------------------------------------------- problems


@dataclass(frozen=True)
class Problem:
    """A function at a point in a dtype."""

    specimen: Specimen
    dtype: str
    seed: int

    @property
    def name(self) -> str:
        """What the tables call it."""
        return f"{self.specimen.name}, {self.dtype}, point {self.seed}"

    def points(self) -> tuple[np.ndarray, ...]:
        """The inputs in float64, rounded to the dtype."""
        kind = getattr(torch, self.dtype)
        drawn = self.specimen.inputs(self.seed, torch.finfo(kind).eps)
        return tuple(torch.tensor(x).to(kind).double().numpy() for x in drawn)

    def made(self, corruption: Corruption | None, engine: str = "") -> tuple[Any, tuple[Any, ...]]:
        """The function and fresh inputs, of JAX or of PyTorch."""
        if engine == "jax":
            import jax

            jax.config.update("jax_enable_x64", True)
            xp = jax_namespace()
            inputs = tuple(xp.asarray(x, self.dtype) for x in self.points())
        else:
            xp, kind = TORCH, getattr(torch, self.dtype)
            inputs = tuple(torch.tensor(x, dtype=kind, requires_grad=True) for x in self.points())
        wrong = identity(lambda *w: corruption(xp, w), engine) if corruption else lambda *x: x

        def f(*arrays: Any) -> Any:
            return self.specimen.f(xp, *wrong(*arrays))

        f.__name__ = f.__qualname__ = self.specimen.name
        return f, inputs


def gradients(problem: Problem, dtype: str) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """The value in that dtype, and the gradients under fixed random signs, in float64."""
    f, tensors = problem.made(None)
    kind = getattr(torch, dtype)
    tensors = tuple(x.detach().to(kind).requires_grad_() for x in tensors)
    value = f(*tensors)
    signs = np.random.default_rng(problem.seed).choice([-1.0, 1.0], tuple(value.shape))
    found = torch.autograd.grad(value, tensors, torch.tensor(signs, dtype=value.dtype))
    return value.detach().double().numpy(), tuple(g.double().numpy() for g in found)


def size(gradient: np.ndarray, x: np.ndarray) -> float:
    """The norm of a gradient per unit of relative change of x."""
    magnitude = np.abs(x[x != 0])
    if magnitude.size == 0:
        return float(np.linalg.norm(gradient))
    wide = magnitude.max() > 1e4 * magnitude.min()
    scale = np.abs(x) if wide else np.sqrt(np.mean(magnitude**2))
    return float(np.linalg.norm(gradient * scale))


def prepared(problem: Problem) -> tuple[str, list[Corruption]]:
    """How a problem counts, and the errors that show in it, before anyone judges it."""
    try:
        value, own = gradients(problem, problem.dtype)
        _, exact = gradients(problem, "float64")
    except RuntimeError as error:
        raise SkippedError(f"raises: {first_line(error, 80)}") from None
    if not np.all(np.isfinite(value)):
        raise SkippedError("the value is not finite")
    if not all(np.all(np.isfinite(g)) for g in own):
        raise SkippedError("the gradient is not finite")
    if problem.specimen.kind != Kind.SMOOTH:
        return str(problem.specimen.kind), []
    points = problem.points()
    sizes = [size(g, x) for g, x in zip(exact, points, strict=True)]
    gap = [size(a - b, x) for a, b, x in zip(own, exact, points, strict=True)]
    unit = torch.finfo(getattr(torch, problem.dtype)).eps / 2
    if max(gap) > OFF * unit**0.4 * max(sizes):
        return "rounded badly", []
    return ORDINARY, list(visible(problem, exact, points, sizes))


def visible(
    problem: Problem,
    exact: Sequence[np.ndarray],
    points: Sequence[np.ndarray],
    sizes: Sequence[float],
) -> Iterator[Corruption]:
    """The planted errors that make a difference, all in one argument."""
    if max(sizes) == 0:
        return
    rng = np.random.default_rng(zlib.crc32(f"{problem.seed}:{problem.specimen.name}".encode()))
    leaf = int(rng.choice([k for k, s in enumerate(sizes) if s >= 0.1 * max(sizes)]))
    weights = np.abs(exact[leaf] * points[leaf]).ravel()
    if not np.any(weights):
        weights = np.abs(exact[leaf]).ravel()
    element = int(rng.choice(np.flatnonzero(weights >= 0.1 * weights.max())))
    tensors = [torch.tensor(g) for g in exact]
    for plant in Plant:
        corruption = Corruption(plant, leaf, element)
        bad = corruption(TORCH, tensors)[leaf].numpy()
        shown = size(bad - exact[leaf], points[leaf])
        if plant in FACTORS or shown >= SHOWS * sizes[leaf]:
            yield corruption


# ---------------------------------------------------------------- the family


def units() -> list[str]:
    """Every function of both halves in four dtypes at two random points."""
    return [f"{dtype} {seed} {s.name}" for s in ZOO for dtype in DTYPES for seed in SEEDS]


def prepare(_deltas: Sequence[float] = ()) -> Callable[[str], Iterator[Case]]:
    """The zoo has planted errors of its own."""
    torch.set_num_threads(1)
    by_name = {specimen.name: specimen for specimen in ZOO}

    def cases(unit: str) -> Iterator[Case]:
        dtype, seed, name = unit.split(" ", 2)
        problem = Problem(by_name[name], dtype, int(seed))
        kind, corruptions = prepared(problem)
        half = "holdout" if problem.specimen.holdout else "calibration"
        make = functools.partial(problem.made, None)
        options = {"seed": problem.seed}
        case = Case(problem.name, f"{half}, {dtype}", make, RIGHT, kind, options)
        yield case
        for corruption in corruptions:
            make = functools.partial(problem.made, corruption)
            yield dataclasses.replace(case, make=make, plant=str(corruption.plant))

    return cases


FAMILY = Family(units, prepare)

if __name__ == "__main__":
    judges = ("adjudge", "torch slow", "torch fast", "check_grads")
    compare(FAMILY, "A zoo of hostile functions", judges, DTYPES)
