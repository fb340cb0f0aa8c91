"""tinygrad as an adjudge backend: reverse mode, and reverse mode of that."""

from __future__ import annotations

from functools import cached_property
from importlib import metadata
from typing import Any

from tinygrad import Device, Tensor

from adjudge.engine import (
    ArrayOperations,
    Arrays,
    AutodiffBackend,
    Environment,
    FlatFunction,
    MaybeArrays,
    Pullback,
    Refusals,
)
from adjudge_tinygrad.arrays import NAMESPACE, TinygradArrays


class TinygradEnvironment(Environment):
    """The devices that tinygrad can compile for. Its random numbers cannot be drawn again."""

    def unavailable(self) -> str | None:
        try:
            Device.DEFAULT  # noqa: B018 it is looked for
        except RuntimeError as error:
            return f"tinygrad finds no device ({error}): install clang, or set DEV=PYTHON"
        return None


class TinygradBackend(AutodiffBackend):
    """See `AutodiffBackend` for the contract."""

    name = "tinygrad"
    refusals = Refusals((RuntimeError,), ("failed to compute gradient",))

    @property
    def xp(self) -> Any:
        return NAMESPACE

    def owns(self, leaf: object) -> bool:
        return isinstance(leaf, Tensor)

    @cached_property
    def arrays(self) -> ArrayOperations:
        return TinygradArrays(self.name, self.xp)

    @cached_property
    def environment(self) -> Environment:
        return TinygradEnvironment(metadata.version("tinygrad"))

    def vjp(self, f: FlatFunction, x: Arrays) -> tuple[Arrays, Pullback]:
        ends = tuple(leaf.uop for leaf in x)  # a tensor has another uop once it is computed,
        y = f(x)
        recorded = tuple(leaf.uop for leaf in y)  # and forgets what it was computed from

        def pullback(w: MaybeArrays) -> MaybeArrays:
            terms = [
                (Tensor(uop) * one).sum()
                for uop, one in zip(recorded, w, strict=True)
                if one is not None
            ]
            if not terms:
                return (None,) * len(x)
            with self.refusing("reverse mode (vjp)"):
                return tuple(sum(terms[1:], terms[0]).gradient(*map(Tensor, ends)))

        return y, pullback
