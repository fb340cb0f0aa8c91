"""A thousand cases of two frameworks in one run, by who judges them.

    python benchmarks/suites.py                    # 1,000 cases, of which one hangs and one dies
    python benchmarks/suites.py --cases 100        # fewer

Each line says how long the run took, and whether every verdict and seed is that of the run in this
process. The cluster of Dask loses a worker after a third of the cases.
"""

from __future__ import annotations

import argparse
import os
import signal
import time

import jax
import numpy as np
import torch
from harness import header, table, told

import adjudge
from adjudge import ByHand, Case, RunReport
from adjudge.suites import Declared, Place, Result

jax.config.update("jax_enable_x64", True)
torch.set_num_threads(1)

NAMES = ("sin", "cos", "exp", "tanh", "square", "arctan", "sinh", "expm1", "arcsinh", "exp2")
WRONG = 25
"""One case of so many has a factor of 1.001 in its derivative."""


class _Off(torch.autograd.Function):
    """A sine whose gradient is off by 1e-3."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return torch.sin(x)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, w: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors  # type: ignore[attr-defined] # not in the stubs
        return 1.001 * w * torch.cos(x)


def case(k: int) -> Case:
    """Returns case k: of PyTorch if k is even, else of JAX."""
    x = np.random.default_rng(k).normal(size=(2 + k % 7, 3))
    name = NAMES[k // 2 % len(NAMES)]
    if k % 2:
        function = getattr(jax.numpy, name)
        return Case(function, jax.numpy.asarray(x), name=f"{k} jax {name}")
    function = _Off.apply if k % WRONG == 0 else getattr(torch, name)
    return Case(function, torch.tensor(x, requires_grad=True), name=f"{k} torch {name}")


def _hang(x: np.ndarray) -> np.ndarray:
    time.sleep(3600)
    return x


def _die(_: np.ndarray) -> np.ndarray:
    os._exit(3)


CASES = [case(k) for k in range(1000)]
DEADLY = [
    Case(ByHand(function, vjp=lambda x, w: w), np.ones(2), name=function.__name__)
    for function in (_hang, _die)
]


def declared(cases: list[Case], variable: str) -> list[Declared]:
    """Returns the cases as other processes find them: in this file."""
    return [Declared(c.name, c, Place(__file__, f"{variable}[{k}]")) for k, c in enumerate(cases)]


def judgements(report: RunReport) -> dict[str, tuple[object, ...]]:
    """Returns what must not depend on who judges."""
    return {one.name: (one.ending, one.verdict, one.seed) for one in report.results}


def by_dask(cases: list[Declared], seed: int) -> RunReport:
    """Returns the run on a cluster of two processes, one of which is killed in the middle."""
    from dask.distributed import Client, LocalCluster  # of the extra `dask`

    done: list[Result] = []

    def kill(result: Result) -> None:
        done.append(result)
        if len(done) == len(cases) // 3:
            os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
        ) as cluster,
        Client(cluster) as client,
    ):
        return adjudge.run(cases, executor=client.get_executor(), seed=seed, on_result=kill)


def main() -> None:
    """Runs the cases in each way, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=len(CASES))
    parser.add_argument("--timeout", type=float, default=60.0)
    asked = parser.parse_args()
    cases, deadly = declared(CASES[: asked.cases], "CASES"), declared(DEADLY, "DEADLY")
    here = adjudge.run(cases, seed=1)
    expected = judgements(here)
    rows = [["this process", f"{here.seconds:.1f}", 1.0, "", here.summary.partition(";")[0]]]
    ways = {
        "one process": lambda: adjudge.run(cases, executor=1, seed=1),
        "two processes": lambda: adjudge.run(cases, executor=2, seed=1),
        "two processes, and a case that hangs, and one that dies": lambda: adjudge.run(
            [*deadly, *cases], executor=2, timeout=asked.timeout, seed=1
        ),
        "Dask, two workers, one killed": lambda: by_dask(cases, 1),
    }
    for name, way in ways.items():
        told(name)
        report = way()
        same = expected.items() <= judgements(report).items()
        ratio = report.seconds / here.seconds
        words = report.summary.partition(";")[0]
        rows.append([name, f"{report.seconds:.1f}", f"{ratio:.2f}", str(same), words])
    print(header("A thousand cases in one run", ["adjudge", "torch", "jax", "distributed"]))
    print(table(["who judges", "seconds", "of this process", "the same verdicts", "cases"], rows))


if __name__ == "__main__":
    main()
