"""From 1e2 to 1e6 inputs and outputs: which errors in the gradient each checker finds.

The function is `sin(x)` or `A @ x` of a square matrix x; the gradient of all of x is wrong, but for
the zeroed row and for the one wrong entry, which is 1 % off.
"""

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from harness import RIGHT, Case, Family, compare, identity

SIZES = (100, 1000, 10_000, 100_000, 1_000_000)
PLANTS = (
    "zeroed row", "permutation", "flipped sign", "1 + 1e-6", "zero", "one wrong entry"
)  # fmt: skip


def wrong_by(plant: str, gradient: Any, xp: Any) -> Any:
    """The gradient of a matrix with a planted error; every one is linear in it."""
    if plant == "permutation":
        return xp.roll(gradient.reshape(-1), 1).reshape(gradient.shape)
    rows = xp.arange(gradient.shape[0])[:, None] == gradient.shape[0] // 2
    if plant == "zeroed row":
        return xp.where(rows, 0.0, gradient)
    if plant == "one wrong entry":
        columns = xp.arange(gradient.shape[1])[None, :] == 0
        return xp.where(rows & columns, 1.01 * gradient, gradient)
    return gradient * {"flipped sign": -1.0, "1 + 1e-6": 1 + 1e-6, "zero": 0.0}[plant]


def made(operation: str, n: int, plant: str, engine: str) -> tuple[Any, tuple[Any, ...]]:
    """The function and its input, of JAX or of PyTorch."""
    side = int(n**0.5)
    rng = np.random.default_rng(n)
    point, a = rng.standard_normal((side, side)), rng.standard_normal((side, side)) / side**0.5
    if engine == "jax":
        import jax
        import jax.numpy as jnp

        jax.config.update("jax_enable_x64", True)
        xp, x, matrix = jnp, jnp.asarray(point), jnp.asarray(a)
    else:
        xp, x, matrix = torch, torch.tensor(point, requires_grad=True), torch.tensor(a)
    inner = xp.sin if operation == "sin" else lambda x: matrix @ x
    wrong = identity(lambda w: (wrong_by(plant, w, xp),), engine)
    return inner if plant == RIGHT else lambda x: inner(*wrong(x)), (x,)


def units() -> list[str]:
    """Both functions at every size."""
    return [f"float64 {n} {f}" for n in SIZES for f in ("sin", "matmul")]


def prepare(_deltas: Sequence[float] = ()) -> Callable[[str], Iterator[Case]]:
    """The cases of a function at a size."""
    torch.set_num_threads(1)
    # where PyTorch's fast mode fails, it makes both Jacobians in full for its message alone
    sys.modules["torch.autograd.gradcheck"]._run_slow_mode_and_get_error = lambda *_: ""

    def cases(unit: str) -> Iterator[Case]:
        _, n, f = unit.split(" ")
        for plant in (RIGHT, *PLANTS):
            make = functools.partial(made, f, int(n), plant)
            yield Case(unit, f"{f}, {float(n):.0e}", make, plant, options={"seed": 0})

    return cases


if __name__ == "__main__":
    judges = ("adjudge", "torch fast", "check_grads")
    compare(Family(units, prepare), "Errors from 1e2 to 1e6 numbers", judges, ["float64"])
