"""Programs of PyTorch in which all rules are right and the whole is wrong, for the tests of blame
and for `benchmarks/blame.py`: kinds of mistakes, each beside a right twin, and three programs into
which each of them is put.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

import adjudge

Insert = Callable[[Any], Any]
"""What is put into a program: a function of one tensor."""


class Square(torch.autograd.Function):
    """The square, which keeps its operand beside what PyTorch watches."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.x = x.detach()
        return x * x

    @staticmethod
    def backward(ctx: Any, w: Any) -> Any:
        return 2 * w * ctx.x


def written_into(right: bool) -> Insert:
    """What a rule saved is written into after its call."""

    def insert(x: Any) -> Any:
        x = 1 * x
        y = Square.apply(x)
        (y.detach().clone() if right else x.data).mul_(3.0)
        return y

    return insert


def cached(right: bool) -> Insert:
    """A rule finds what it needs in a cache by the shape, which a later call overwrites."""
    kept: dict[Any, Any] = {}

    class Cached(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.key = object() if right else x.shape
            kept[ctx.key] = x.detach().clone()
            return x * x

        @staticmethod
        def backward(ctx: Any, w: Any) -> Any:
            return 2 * w * kept[ctx.key]

    return lambda x: Cached.apply(Cached.apply(x).sin())


def hooked_tensor(right: bool) -> Insert:
    """A hook on a tensor changes its gradient."""

    def hook(gradient: Any) -> Any:
        return None if right else gradient.clamp(-0.01, 0.01)

    def insert(x: Any) -> Any:
        y = x.sin()
        if y.requires_grad:
            y.register_hook(hook)
        return y

    return insert


def hooked_module(right: bool) -> Insert:
    """A backward hook of a module changes the gradient of its input."""

    def hook(module: Any, inner: Any, outer: Any) -> Any:
        return None if right else (inner[0] * 0.9,)

    module = torch.nn.Tanh()
    module.register_full_backward_hook(hook)
    return module


def drawn_again(right: bool) -> Insert:
    """A checkpoint that runs again draws other random numbers."""

    def noisy(x: Any) -> Any:
        return x * torch.rand_like(x)

    def insert(x: Any) -> Any:
        return checkpoint(noisy, x, use_reentrant=False, preserve_rng_state=right)

    return insert


def written_cotangent(right: bool) -> Insert:
    """A rule writes into the cotangent that it gets, which other rules get as well."""

    class Halved(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x / 2

        @staticmethod
        def backward(ctx: Any, w: Any) -> Any:
            return w / 2 if right else w.div_(2)

    return lambda x: Halved.apply(x) + x


def large_cotangent(right: bool) -> Insert:
    """A rule is right for cotangents of ordinary size, and gets larger ones."""

    class Capped(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, w: Any) -> Any:
            return w if right else w.clamp(-1e9, 1e9)

    return lambda x: 1e12 * Capped.apply(x / 1e12)


KINDS: dict[str, Callable[[bool], Insert]] = {
    one.__name__: one
    for one in (
        written_into, cached, hooked_tensor, hooked_module, drawn_again, written_cotangent,
        large_cotangent,
    )
}  # fmt: skip


def perceptron(insert: Insert, x: Any, a: Any) -> Any:
    """Two layers."""
    return (insert((x @ a).tanh()) @ a).exp().sum(1)


def attention(insert: Insert, x: Any, a: Any) -> Any:
    """One head, whose queries go through what is put in."""
    scores = insert(x @ a) @ x.mT
    return scores.softmax(1) @ x


def recurrent(insert: Insert, x: Any, a: Any) -> Any:
    """Three turns of a loop."""
    h = x[0]
    for row in x:
        h = insert((h @ a + row).tanh())
    return h.cos()


PROGRAMS = {one.__name__: one for one in (perceptron, attention, recurrent)}


def blamed(kind: str, program: str, *, right: bool, seed: int = 0) -> Any:
    """Returns the report of blame of a program with a mistake, or without it."""
    insert, f = KINDS[kind](right), PROGRAMS[program]
    x = torch.rand(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) + 0.1
    return adjudge.blame(lambda x: f(insert, x, x.mT @ x / 4), (x,), seed=seed)


def said(report: Any) -> str:
    """Returns what a report says of the place, in one line."""
    found = [one.name for one in report.at_fault] + [hook.name for hook in report.hooks]
    names = [report.steps[ref.step].name for ref in report.changed if ref.step >= 0]
    users = [s.name for s in report.steps if {*report.changed} & {*map(_reference, s.operands)}]
    return ", ".join(dict.fromkeys([*found, *names, *users]))


def _reference(operand: Any) -> Any:
    return operand if isinstance(operand, tuple) else None


def is_named(report: Any) -> bool:
    """Returns whether a report names what stands in this file beside the programs: a hook, a rule,
    or the interval that ends in a step of what was put in.
    """
    lines = range(Square.forward.__code__.co_firstlineno, perceptron.__code__.co_firstlineno)
    hooks = [hook.place.line for hook in report.hooks if hook.place.file == __file__]
    rules = [one.fault.line for one in report.at_fault if one.fault.file == __file__]
    changed = {*report.changed}
    ends = [
        step.place.line
        for k, step in enumerate(report.steps)
        if step.place.file == __file__
        and (any(ref.step == k for ref in changed) or changed & {*map(_reference, step.operands)})
    ]
    return any(line in lines for line in (*hooks, *rules, *ends))
