"""Scenarios that run on PyTorch and JAX through the fixture `adjudge_backend`.

An engine that is absent is skipped by the plugin, or fails where it is required.
"""

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
        (engine, case) if alone else (engine, *case)
        for engine, cases in (("torch", torch), ("jax", jax))
        for case in cases
    ]
    arguments = ["adjudge_backend", *([names] if alone else names)]
    return pytest.mark.parametrize(arguments, pairs, indirect=["adjudge_backend"])


def case(name: str, f: Any, *inputs: Any, marks: Any = (), **options: Any) -> Any:
    """A function of a library at its inputs, with what its check is asked for."""
    return pytest.param(f, inputs, options, id=name, marks=marks)


def fails(engine: str, status: str, reason: str) -> pytest.MarkDecorator:
    """On this engine a case fails with this status, which is a finding and no failure of ours."""
    return pytest.mark.adjudge_xfail(engine, status=status, reason=reason)
