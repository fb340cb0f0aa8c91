"""Wrong derivatives of released frameworks, beside the right ones in 50 digits.

Neither adjudge nor differences in floating point take part: the framework's own transforms on one
side; on the other the function written once more with mpmath, and derivatives of that in 50 digits.
Of every function the scalar `phi(s, t) = <w, f(x + s u + t v)>` is differentiated: `R` and `F` are
`d phi / ds` at 0, the compositions `d^2 phi / ds dt`, which is one number, whatever the modes.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
from mode_known import KNOWN, Known
from tables import header, table

DIGITS = 50
WRONG = 1e-9
"""Relative deviations from here on are called wrong."""
SAME_VALUE = 1e-10
NOTHING = 1e-40
"""What mpmath's own differences leave of a derivative that is zero."""
MODES = ("R", "F", "RR", "FR", "RF", "FF")


@dataclass(frozen=True)
class Outcome:
    """The derivatives of both sides, and how far the values are apart."""

    first: float
    second: float
    automatic: dict[str, float | str]
    value_gap: float

    def truth(self, mode: str) -> float:
        """What `mode` should give."""
        return self.first if len(mode) == 1 else self.second

    def off(self, mode: str) -> float:
        """Relative deviation of a mode; infinite where it is not finite, NaN where it raises."""
        value = self.automatic[mode]
        if isinstance(value, str):
            return float("nan")
        if not np.isfinite(value):
            return float("inf")
        truth = self.truth(mode)
        return abs(value - truth) / (max(abs(truth), abs(value)) or 1.0)

    def wrong(self) -> list[str]:
        """The modes that are wrong."""
        return [mode for mode in MODES if self.off(mode) > WRONG]


# ---------------------------------------------------------------- both sides


def compare(known: Known) -> Outcome:
    """Both sides of one entry."""
    x = [np.asarray(a, float) for a in known.x]
    y = np.concatenate([np.ravel(a) for a in _host(known, x)])
    w = direction(1, [y])[0]
    u, v = direction(2, x), direction(3, x)
    first, second, value = exact(known, x, u, v, w)
    gap = abs(value - float(w @ y)) / (float(np.abs(w) @ np.abs(y)) or 1.0)
    return Outcome(first, second, automatic(known, x, u, v, w), gap)


def direction(number: int, like: Sequence[np.ndarray]) -> list[np.ndarray]:
    """A fixed direction without pattern."""
    rng = np.random.default_rng(number)
    signs = (-1, 1)
    return [np.round(rng.uniform(0.5, 1.5, a.shape) * rng.choice(signs, a.shape), 3) for a in like]


def exact(
    known: Known,
    x: Sequence[np.ndarray],
    u: Sequence[np.ndarray],
    v: Sequence[np.ndarray],
    w: np.ndarray,
) -> tuple[float, float, float]:
    """The two derivatives of phi, and its value, by mpmath."""
    with mpmath.workdps(DIGITS):
        precise = np.vectorize(mpmath.mpf, otypes=[object])

        def phi(s: Any, t: Any) -> Any:
            inputs = [
                precise(a) + s * precise(b) + t * precise(c) if a.size else a
                for a, b, c in zip(x, u, v, strict=True)
            ]
            outputs = known.twin(*inputs)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            flat = np.concatenate([np.ravel(np.asarray(y, object)) for y in outputs])
            return mpmath.fsum(a * b for a, b in zip(precise(w), flat, strict=True))

        first, second = (
            0 if abs(d) < NOTHING else d for d in (mpmath.diff(phi, (0, 0), (1, k)) for k in (0, 1))
        )
        return float(first), float(second), float(phi(mpmath.mpf(0), mpmath.mpf(0)))


def _host(known: Known, x: Sequence[np.ndarray]) -> list[np.ndarray]:
    engine = ENGINES[known.framework]()
    output = known.f()(*map(engine.array, x))
    outputs = output if isinstance(output, tuple | list) else (output,)
    return [np.asarray(y) for y in outputs]


def automatic(
    known: Known,
    x: Sequence[np.ndarray],
    u: Sequence[np.ndarray],
    v: Sequence[np.ndarray],
    w: np.ndarray,
) -> dict[str, float | str]:
    """The derivatives of phi in every mode; what a mode raises instead."""
    engine = ENGINES[known.framework]()
    f = known.f()
    at, along, beside = ([engine.array(a) for a in part] for part in (x, u, v))

    def g(*args: Any) -> Any:
        output = f(*args)
        outputs = output if isinstance(output, tuple | list) else (output,)
        flat = engine.concatenate([y.reshape(-1) for y in outputs])
        return (engine.array(w) * flat).sum()

    reverse = engine.reverse
    forward = engine.forward
    modes: dict[str, Callable[[], Any]] = {
        "R": lambda: reverse(g, at, along),
        "F": lambda: forward(g, at, along),
        "RR": lambda: reverse(lambda *a: reverse(g, a, along), at, beside),
        "FR": lambda: forward(lambda *a: reverse(g, a, along), at, beside),
        "RF": lambda: reverse(lambda *a: forward(g, a, along), at, beside),
        "FF": lambda: forward(lambda *a: forward(g, a, along), at, beside),
    }
    values: dict[str, float | str] = {}
    for mode, compute in modes.items():
        try:
            values[mode] = float(compute())
        except Exception as error:  # a mode that the framework lacks
            values[mode] = f"{type(error).__name__}: {' '.join(str(error).split())[:80]}"
    return values


class Jax:
    """JAX's transforms."""

    def __init__(self) -> None:
        import jax
        import jax.numpy as jnp

        jax.config.update("jax_enable_x64", True)
        self.jax, self.array, self.concatenate = jax, jnp.asarray, jnp.concatenate

    def reverse(self, g: Any, x: Any, u: Any) -> Any:
        """`<grad g(x), u>`."""
        _, pull = self.jax.vjp(g, *x)
        return sum((a * b).sum() for a, b in zip(pull(self.array(1.0)), u, strict=True))

    def forward(self, g: Any, x: Any, u: Any) -> Any:
        """The jvp."""
        return self.jax.jvp(g, tuple(x), tuple(u))[1]


class Torch:
    """The transforms of torch.func."""

    def __init__(self) -> None:
        import torch

        self.torch, self.concatenate = torch, torch.cat

    def array(self, a: Any) -> Any:
        """In double precision."""
        return self.torch.as_tensor(a, dtype=self.torch.float64)

    def reverse(self, g: Any, x: Any, u: Any) -> Any:
        """`<grad g(x), u>`."""
        y, pull = self.torch.func.vjp(g, *x)
        return sum((a * b).sum() for a, b in zip(pull(self.torch.ones_like(y)), u, strict=True))

    def forward(self, g: Any, x: Any, u: Any) -> Any:
        """The jvp."""
        return self.torch.func.jvp(g, tuple(x), tuple(u))[1]


ENGINES: dict[str, Callable[[], Any]] = {"torch": Torch, "jax": Jax}


# ---------------------------------------------------------------- the table


def row(known: Known) -> tuple[str, ...]:
    """One line: what the wrong modes give, beside the truth."""
    found = compare(known)
    wrong = found.wrong()
    worst = max((found.off(mode) for mode in wrong), default=0.0)
    truth = [f"{found.first:.7g} (first)"] if any(len(mode) == 1 for mode in wrong) else []
    truth += [f"{found.second:.7g} (second)"] if any(len(mode) == 2 for mode in wrong) else []
    right = [mode for mode in MODES if found.off(mode) <= WRONG]
    same = "" if found.value_gap <= SAME_VALUE else " (the twin is another function)"
    return (
        f"`{known.name}`" + same,
        known.point,
        ", ".join(f"{mode} {found.automatic[mode]:.7g}" for mode in wrong),
        ", ".join(truth),
        "not a number" if np.isinf(worst) else share(worst),
        " ".join(right),
        known.why,
    )


def share(off: float) -> str:
    """A relative deviation in words."""
    return f"{100 * off:.0f} %" if off >= 0.01 else f"{off:.0e}"


HEAD = ("function", "at", "automatic", "true", "off by", "right modes", "why")


def main() -> None:
    """Compute and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="part of a name")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    versions = ("torch", "jax", "jaxlib", "mpmath", "numpy")
    print(header("Derivatives beside those of a twin in 50 digits", versions))
    for framework in ENGINES:
        for kind in ("wrong", "by design"):
            chosen = [k for k in KNOWN if (k.framework, k.kind) == (framework, kind)]
            rows = [row(k) for k in chosen if options.only in k.name]
            if rows:
                print(f"### {framework}, {kind}\n\n{table(HEAD, rows)}")


if __name__ == "__main__":
    main()
