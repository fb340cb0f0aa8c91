"""A thousand cases of two frameworks in one run, by who judges them, and one expensive function.

    python benchmarks/suites.py                    # 1,000 cases, of which one hangs and one dies
    python benchmarks/suites.py --cases 100        # fewer
    python benchmarks/suites.py --cases 0          # the expensive function alone

Each line says how long the run took, and whether every verdict and seed is that of the run in this
process. The cluster of Dask loses a worker after a third of the cases. The expensive function takes
0.2 s an evaluation, and is checked with 1, 2 and 4 threads of an executor.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

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


def simulation(x: np.ndarray) -> np.ndarray:
    """Returns `x sin(sum x)`, as a program would that runs elsewhere for 0.2 s."""
    time.sleep(0.2)
    return x * np.sin(np.sum(x))


def _adjoint(x: np.ndarray, w: np.ndarray, off: float = 1.0) -> np.ndarray:
    gradient = w * np.sin(np.sum(x)) + np.sum(w * x) * np.cos(np.sum(x))
    return gradient * np.where(np.arange(x.size) == 1, off, 1.0)


def expensive() -> list[list[object]]:
    """Returns the rows of the table about the expensive function."""
    x, rows = np.linspace(0.3, 2.0, 8), []
    for verdict, off in (("PASS", 1.0), ("FAIL", 1.001)):
        rule = ByHand(simulation, vjp=lambda x, w, off=off: _adjoint(x, w, off))
        alone = 0.0
        for threads in (0, 1, 2, 4):
            told(f"{verdict}, {threads} threads")
            with ThreadPoolExecutor(threads or 1) as executor:
                start = time.perf_counter()
                report = adjudge.examine(
                    rule, x, mode="full", seed=1, executor=executor if threads else None
                )
                seconds = time.perf_counter() - start
            assert report.verdict == verdict
            alone = alone or seconds
            name = f"{threads} threads" if threads else "no executor"
            made = report.counts["evaluations"]
            rows.append([verdict, name, made, f"{seconds:.2f}", f"{alone / seconds:.2f}"])
    return rows


def main() -> None:
    """Measures what was asked for, and prints tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=len(CASES))
    parser.add_argument("--timeout", type=float, default=60.0)
    asked = parser.parse_args()
    if asked.cases:
        many(asked)
    print(header("One function of 0.2 s an evaluation, 8 inputs, full mode", ["adjudge", "numpy"]))
    columns = ["verdict", "executor", "evaluations", "seconds", "times as fast"]
    print(table(columns, expensive()))


def many(asked: argparse.Namespace) -> None:
    """Runs the cases in each way, and prints a table."""
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
