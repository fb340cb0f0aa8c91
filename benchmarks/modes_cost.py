"""What each mode costs, next to `torch.autograd.gradgradcheck` and `check_grads(order=2)`."""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tables import header, table

MODES = ("R", "F", "RR", "FR", "RF", "FF")
SHAPES = ((30, 5), (100, 100))
Check = Callable[[Callable[..., Any], Any], Any]


class Counted:
    """A function whose calls are counted, whatever they are for: a value, a trace, a jvp."""

    def __init__(self, f: Callable[..., Any]) -> None:
        self.f, self.calls = f, 0

    def __call__(self, *args: Any) -> Any:
        self.calls += 1
        return self.f(*args)


def torch_checks() -> Iterator[tuple[str, Check]]:
    """By name, what is asked of PyTorch's function."""
    import torch

    import adjudge
    from adjudge_torch.backend import FunctionalBackend

    functional = FunctionalBackend()
    for mode in MODES:
        backend = functional if mode == "FF" else None
        yield mode, _examine(adjudge, modes=[mode], backend=backend)
    yield "R F RR FR RF", _examine(adjudge, modes=MODES[:5])
    yield "order=1", _examine(adjudge, order=1)
    yield "order=2, eager and torch.func", _examine(adjudge, order=2)
    yield (
        "adjudge.gradgradcheck",
        lambda f, x: adjudge.gradgradcheck(f, (x,), check_fwd_over_rev=True, seed=0),
    )
    for fast in (True, False):

        def both(f: Any, x: Any, fast: bool = fast) -> None:
            torch.autograd.gradcheck(f, (x,), fast_mode=fast, check_forward_ad=True)
            torch.autograd.gradgradcheck(f, (x,), fast_mode=fast, check_fwd_over_rev=True)

        yield f"torch gradcheck + gradgradcheck (R F RR FR), {'fast' if fast else 'slow'}", both


def jax_checks() -> Iterator[tuple[str, Check]]:
    """By name, what is asked of JAX's function."""
    import jax.test_util

    import adjudge

    for mode in MODES:
        yield mode, _examine(adjudge, modes=[mode])
    yield "order=1, eager", _examine(adjudge, order=1, compile=False)
    yield "order=2, eager", _examine(adjudge, order=2, compile=False)
    yield "order=2, eager and jit", _examine(adjudge, order=2)
    yield (
        "check_grads(order=2), all modes",
        lambda f, x: jax.test_util.check_grads(f, (x,), order=2, modes=("fwd", "rev")),
    )


def _examine(adjudge: Any, **options: Any) -> Check:
    def check(f: Any, x: Any) -> Any:
        return adjudge.examine(f, (x,), seed=0, **options)

    return check


def functions(framework: str, n: int, m: int) -> tuple[Callable[..., Any], Any]:
    """`sin(A x)` and a point."""
    rng = np.random.default_rng(n)
    a, x = rng.standard_normal((m, n)) / n**0.5, rng.standard_normal(n)
    if framework == "torch":
        import torch

        torch.set_num_threads(1)
        matrix = torch.tensor(a)
        return lambda x: torch.sin(matrix @ x), torch.tensor(x).requires_grad_()
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    return lambda x: jnp.sin(jnp.asarray(a) @ x), jnp.asarray(x)


def row(name: str, check: Check, f: Callable[..., Any], x: Any, repeats: int) -> tuple[Any, ...]:
    """Verdict, counts, and the least processor time."""
    counted = Counted(f)
    try:
        report = check(counted, x)
    except AssertionError as error:
        return name, f"fails: {str(error).splitlines()[0][:60]}", counted.calls, *[""] * 4
    counts = getattr(report, "counts", {})
    modes = getattr(report, "modes", {})
    verdict = " ".join(f"{mode} {verdict}" for mode, verdict in modes.items()) or "passes"
    times = []
    for _ in range(repeats):
        start = time.process_time()
        check(f, x)
        times.append(time.process_time() - start)
    own = [counts.get(key, "") for key in ("evaluations", "vjps", "jvps")]
    return name, verdict, counted.calls, *own, f"{1e3 * min(times):.1f}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(header("What each mode costs", ("adjudge", "torch", "jax", "numpy")))
    head = ("check", "says", "calls of f", "evaluations", "vjps", "jvps", "ms")
    for framework, checks in (("torch", torch_checks), ("jax", jax_checks)):
        for n, m in SHAPES:
            f, x = functions(framework, n, m)
            print(f"### {framework}, sin(A x) from {n} to {m} numbers\n")
            rows = [row(name, check, f, x, options.repeats) for name, check in checks()]
            print(table(head, rows))


if __name__ == "__main__":
    main()
