"""Scenarios that run on PyTorch and JAX through the fixture `adjudge_backend`.

An engine that is absent is skipped by the plugin, or fails where it is required.
"""

import importlib
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

ENGINES = ("torch", "jax")

on_both = pytest.mark.parametrize("adjudge_backend", ENGINES, indirect=True)
"""The same scenario on each engine."""


def cells(
    names: str | Sequence[str], *, torch: Iterable[Any] = (), jax: Iterable[Any] = ()
) -> pytest.MarkDecorator:
    """Each engine with cases of its own: values of the arguments `names`, a tuple if several."""
    alone = isinstance(names, str)
    pairs = [
        pytest.param(engine, *of.values, marks=of.marks, id=of.id)
        for engine, cases in (("torch", torch), ("jax", jax))
        for of in (as_param(case, alone) for case in cases)
    ]
    arguments = ["adjudge_backend", *([names] if alone else names)]
    return pytest.mark.parametrize(arguments, pairs, indirect=["adjudge_backend"])


def as_param(case: Any, alone: bool) -> Any:
    """What `cells` is given, a tuple or a single value or with marks, as pytest has it."""
    if hasattr(case, "values") and hasattr(case, "marks"):
        return case
    return pytest.param(case) if alone else pytest.param(*case)


def long(*values: Any, name: str | None = None) -> Any:
    """Values of a parametrised test that `pytest --long` alone runs: others of the same test, or a
    cheaper one beside it, guard the mechanism in every run.
    """
    return pytest.param(*values, id=name, marks=pytest.mark.long)


def seeds(count: int, always: int = 1) -> list[Any]:
    """Seeds for a parametrised test, of which only the first is in every run, or some more."""
    return [*range(always), *(long(seed) for seed in range(always, count))]


def over_seeds(count: int, always: int = 1) -> pytest.MarkDecorator:
    """The argument `seeds` of a test that goes through them itself: the first of them or some more,
    and with `pytest --long` all others.
    """
    first = pytest.param(range(always), id="first seeds")
    others = long(range(always, count), name="other seeds")
    return pytest.mark.parametrize("seeds", [first, others])


def case(name: str, f: Any, *inputs: Any, marks: Any = (), **options: Any) -> Any:
    """A function of a library at its inputs, with what its check is asked for."""
    return pytest.param(f, inputs, options, id=name, marks=marks)


def fails(engine: str, status: str, reason: str) -> pytest.MarkDecorator:
    """On this engine a case fails with this status, which is a finding and no failure of ours."""
    return pytest.mark.adjudge_xfail(engine, status=status, reason=reason)


def kept_tanh() -> Any:
    """The `autograd.Function` of a tanh whose result is kept for both modes, to derive a class with
    rules of its own from. They are named by that class, and by their lines.
    """
    torch = importlib.import_module("torch")

    class Kept(torch.autograd.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x.tanh()

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(output)
            ctx.save_for_forward(output)

    return Kept


def torch_function(forward: Any, backward: Any, jvp: Any = None, *, undefined: bool = False) -> Any:
    """An `autograd.Function` of PyTorch by hand: `forward(*x)`, `backward(*x, *w)`, `jvp(*x, *v)`.

    With `undefined` the derivatives see `None` where PyTorch has no gradient.
    """
    torch = importlib.import_module("torch")

    class Rule(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *x: Any) -> Any:
            ctx.set_materialize_grads(not undefined)
            ctx.save_for_backward(*x)
            ctx.save_for_forward(*x)
            return forward(*x)

        @staticmethod
        def backward(ctx: Any, *w: Any) -> Any:
            return backward(*ctx.saved_tensors, *w)

    if jvp is not None:
        Rule.jvp = staticmethod(lambda ctx, *v: jvp(*ctx.saved_tensors, *v))
    return Rule.apply
