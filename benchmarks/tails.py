"""Special functions, activations and log-densities far out and next to zero, where values of a
function say little of its derivative: what exact replay makes of what differences leave open.

    python benchmarks/tails.py --every 5

Every public function of one array in the modules below, where its value is finite, and so is its
derivative and not zero.
"""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from harness import ORDINARY, RIGHT, Case, Family, OutOfTimeError, SkippedError, compare, deadline

PATIENCE = 3.0
"""Seconds of the processor for a gradient."""
POINTS = (1e-8, 30.0, -30.0, 1e4, -1e4)
AROUND = np.array([0.31, 0.77, 1.9])
"""A point is these numbers times one of `POINTS`."""
MODULES = ("torch.special", "torch.nn.functional", "jax.scipy.special", "jax.nn")
DENSITIES = {
    "torch.distributions": {
        "Normal": (0.2, 1.3), "Laplace": (0.2, 1.3), "Gumbel": (0.2, 1.3), "Cauchy": (0.2, 1.3),
        "StudentT": (3.5, 0.2, 1.3), "LogNormal": (0.2, 1.3), "Gamma": (2.5, 1.3),
        "Weibull": (1.3, 2.5), "HalfCauchy": (1.3,), "Exponential": (1.3,),
        "InverseGamma": (2.5, 1.3),
    },
    "jax.scipy.stats": dict.fromkeys(
        ("norm", "laplace", "cauchy", "logistic", "expon", "gumbel_l", "gumbel_r"), ()
    ) | {"t": (3.5,), "gamma": (2.5,), "chi2": (2.5,), "pareto": (2.5,)},
}  # fmt: skip
"""Distributions and their parameters."""
METHODS = {
    "torch.distributions": ("log_prob", "cdf"),
    "jax.scipy.stats": ("logpdf", "logcdf", "sf"),
}


def units() -> list[str]:
    """Every function of the modules and every density, at each point."""
    names = []
    for module in MODULES:
        for name, one in sorted(vars(importlib.import_module(module)).items()):
            if callable(one) and not inspect.isclass(one) and not name.startswith("_"):
                names.append(f"{module} {name}")
    for module, found in DENSITIES.items():
        names += [f"{module} {name}.{one}" for name in found for one in METHODS[module]]
    return [f"float64 {name} {k}" for name in names for k in range(len(POINTS))]


def function(module: str, name: str) -> Callable[[Any], Any]:
    """A function of one array."""
    kind, _, method = name.partition(".")
    found = getattr(importlib.import_module(module), kind)
    if not method:
        return found
    given = DENSITIES[module][kind]
    if module == "torch.distributions":
        return getattr(found(*given, validate_args=False), method)
    density = getattr(found, method)
    return lambda x: density(x, *given)


def slope(f: Callable[[Any], Any], x: Any) -> tuple[Any, Any]:
    """The value of `f` at an array of PyTorch or JAX, and the gradient of its sum."""
    if type(x).__module__.startswith("torch"):
        import torch

        value = f(x)
        return value, torch.autograd.grad(value.sum(), x)[0]
    import jax

    value, pull = jax.vjp(f, x)
    return value, pull(value * 0 + 1)[0]


def placed(module: str, point: float) -> Any:
    """The array of the engine at a point."""
    if module.startswith("torch"):
        import torch

        return torch.tensor(AROUND * point, requires_grad=True)
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    return jnp.asarray(AROUND * point)


def prepare(_deltas: Sequence[float] = ()) -> Callable[[str], Iterator[Case]]:
    """The function at the point, if it has a derivative there."""
    warnings.simplefilter("ignore")

    def cases(unit: str) -> Iterator[Case]:
        _, module, name, k = unit.split(" ")
        point = POINTS[int(k)]
        try:
            f = function(module, name)
            with deadline(PATIENCE):
                found = [np.asarray(one.tolist(), float) for one in slope(f, placed(module, point))]
        except OutOfTimeError:
            raise SkippedError("it takes long to compile") from None
        except Exception:  # it takes something else
            raise SkippedError("no function of one array") from None
        if not all(np.isfinite(one).all() for one in found) or not found[1].any():
            raise SkippedError("no derivative, or zero")

        def make(_engine: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
            return f, (placed(module, point),)

        yield Case(f"{module} {name} {point:g}", module, make, RIGHT, ORDINARY, {"seed": 0})

    return cases


FAMILY = Family(units, prepare)

if __name__ == "__main__":
    compare(FAMILY, "Tails", ("adjudge differences", "adjudge", "adjudge exact"), ("float64",))
