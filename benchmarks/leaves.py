"""What a check costs that has many leaves: a GPT, and n leaves for n up to ten thousand.

    python benchmarks/leaves.py            # a GPT of 53 leaves beside the fast mode of PyTorch
    python benchmarks/leaves.py counts     # 10, 100, 1000 and 10,000 leaves

Errors are planted in the smallest leaf, in one entry of the largest, and in a whole leaf; each has
to FAIL. Seconds compare only within one run.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from harness import header, identity, table
from torch.nn import functional as nn

import adjudge

DELTA = 1e-4
"""The relative error that is planted."""
LAYERS, WIDTH, HEADS, TOKENS, VOCABULARY = 4, 96, 4, 16, 64


def gpt(seed: int) -> tuple[Callable[..., torch.Tensor], list[torch.Tensor]]:
    """A GPT of four blocks as a function of its 53 parameters, and these: 461 thousand numbers."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int, size: float = 0.02) -> torch.Tensor:
        return size * torch.randn(*shape, dtype=torch.float64, generator=generator)

    def norm() -> list[torch.Tensor]:
        return [1 + normal(WIDTH), normal(WIDTH)]

    leaves = [normal(VOCABULARY, WIDTH), normal(TOKENS, WIDTH)]
    for _ in range(LAYERS):
        leaves += [*norm(), normal(3 * WIDTH, WIDTH, size=0.1), normal(3 * WIDTH)]
        leaves += [normal(WIDTH, WIDTH, size=0.1), normal(WIDTH), *norm()]
        leaves += [normal(4 * WIDTH, WIDTH, size=0.1), normal(4 * WIDTH)]
        leaves += [normal(WIDTH, 4 * WIDTH, size=0.1), normal(WIDTH)]
    leaves += [*norm(), normal(VOCABULARY, WIDTH)]
    tokens = torch.randint(VOCABULARY, (2, TOKENS + 1), generator=generator)

    def attend(x: torch.Tensor, *p: torch.Tensor) -> torch.Tensor:
        shape = (x.shape[0], TOKENS, HEADS, WIDTH // HEADS)
        parts = nn.linear(x, *p[:2]).chunk(3, -1)
        q, k, v = (part.reshape(shape).transpose(1, 2) for part in parts)
        scores = q @ k.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5
        mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
        y = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
        return nn.linear(y.transpose(1, 2).reshape(x.shape), *p[2:])

    def loss(*p: torch.Tensor) -> torch.Tensor:
        x = p[0][tokens[:, :-1]] + p[1]
        for layer in range(LAYERS):
            own = p[2 + 12 * layer : 14 + 12 * layer]
            x = x + attend(nn.layer_norm(x, (WIDTH,), *own[:2]), *own[2:6])
            hidden = nn.gelu(nn.linear(nn.layer_norm(x, (WIDTH,), *own[6:8]), *own[8:10]))
            x = x + nn.linear(hidden, *own[10:])
        x = nn.linear(nn.layer_norm(x, (WIDTH,), *p[-3:-1]), p[-1])
        return nn.cross_entropy(x.reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))

    return loss, [leaf.requires_grad_() for leaf in leaves]


def chain(count: int, seed: int) -> tuple[Callable[..., torch.Tensor], list[torch.Tensor]]:
    """A smooth function of `count` leaves of three to nine numbers, of magnitudes that differ."""
    generator = np.random.default_rng(seed)
    leaves = [
        torch.tensor(
            generator.normal(size=int(generator.integers(3, 10)))
            * 10.0 ** generator.integers(-2, 2)
        )
        for _ in range(count)
    ]

    def f(*p: torch.Tensor) -> torch.Tensor:
        return torch.stack([torch.sin(leaf).sum() * (1 + leaf[0] ** 2) for leaf in p]).sum()

    return f, [leaf.requires_grad_() for leaf in leaves]


def planted(
    f: Callable[..., torch.Tensor], leaves: Sequence[torch.Tensor]
) -> dict[str, Callable[..., torch.Tensor]]:
    """The function with each of the errors, by its name."""
    sizes = [leaf.numel() for leaf in leaves]
    smallest, largest, middle = int(np.argmin(sizes)), int(np.argmax(sizes)), len(leaves) // 2

    def wrong(j: int, entry: int | None) -> Callable[..., torch.Tensor]:
        factor = torch.ones_like(leaves[j]).detach()
        if entry is None:
            factor += DELTA
        else:
            factor.view(-1)[entry] += DELTA

        scaled = identity(lambda w: (w * factor,), "torch")

        def function(*p: torch.Tensor) -> torch.Tensor:
            return f(*p[:j], *scaled(p[j]), *p[j + 1 :])

        return function

    return {
        "smallest leaf": wrong(smallest, None),
        "one entry of the largest": wrong(largest, sizes[largest] // 2),
        "a whole leaf": wrong(middle, None),
    }


def seconds(run: Callable[[], Any]) -> tuple[float, Any]:
    """The seconds of a call, and what it returned."""
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def row(name: str, f: Callable[..., torch.Tensor], leaves: Sequence[torch.Tensor]) -> list[object]:
    """The costs and verdicts of one function, as a row of the table."""
    took, report = seconds(lambda: adjudge.examine(f, tuple(leaves), seed=0))
    found: list[object] = [
        name,
        sum(leaf.numel() for leaf in leaves),
        report.verdict,
        report.counts["evaluations"],
        report.counts["vjps"],
        f"{took:.2f}",
    ]
    for wrong in planted(f, leaves).values():
        also, judged = seconds(lambda wrong=wrong: adjudge.examine(wrong, tuple(leaves), seed=0))
        entry = judged.entries[0].wrt if judged.entries else "-"
        cost = f"{judged.counts['evaluations']} evaluations, {also:.1f} s"
        found.append(f"{judged.verdict} {entry} ({cost})")
    return found


def main() -> None:
    """Prints the table that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", nargs="?", choices=("gpt", "counts"), default="gpt")
    parser.add_argument("--counts", type=int, nargs="+", default=[10, 100, 1000, 10_000])
    options = parser.parse_args()
    plants = ["smallest leaf", "one entry of the largest", "a whole leaf"]
    columns = ["function", "numbers", "verdict", "evaluations", "vjps", "seconds", *plants]
    print(header("Many leaves", ["torch", "numpy"]))
    if options.what == "counts":
        print(table(columns, [row(f"{n} leaves", *chain(n, 0)) for n in options.counts]))
        return
    f, leaves = gpt(0)
    adjudge.examine(f, tuple(leaves), seed=1)
    print(table(columns, [row(f"GPT, {len(leaves)} leaves", f, leaves)]))
    ours = min(seconds(lambda: adjudge.examine(f, tuple(leaves), seed=0))[0] for _ in range(3))
    theirs = min(
        seconds(lambda: torch.autograd.gradcheck(f, tuple(leaves), fast_mode=True))[0]
        for _ in range(3)
    )
    print(f"fast mode of PyTorch: {theirs:.2f} s; adjudge takes {ours / theirs:.2f} times that")


if __name__ == "__main__":
    main()
