"""PyTorch's functional transforms as a second way to the same derivatives: `torch.func`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from adjudge.engine import Array, Arrays, AutodiffBackend, FlatFunction, MaybeArrays, Pullback
from adjudge_torch import backend


class FunctionalBackend(backend.TorchBackend):
    """`torch.func.vjp` and `torch.func.jvp`, which nest in any order.

    They run the formulas of eager mode through other machinery (batching rules, `setup_context`,
    decompositions of forward formulas), which has errors of its own.
    """

    way = "torch.func"

    def ways(self) -> Sequence[AutodiffBackend]:
        return ()

    def vjp(self, f: FlatFunction, x: Arrays) -> tuple[Arrays, Pullback]:
        y, pull = self._vjp(f, tuple(leaf.detach() for leaf in x))

        def pullback(w: MaybeArrays) -> MaybeArrays:
            return self._pulled(pull, w, y)

        return y, pullback

    def jvp(self, f: FlatFunction, x: Arrays, v: MaybeArrays) -> tuple[Arrays, MaybeArrays]:
        still = tuple(leaf.detach() for leaf in x)
        with self.refusing("forward mode (jvp)"):
            return self.functional_jvp(f, still, v)

    def vjp_map(self, f: FlatFunction, x_count: int) -> FlatFunction:
        def gradient_map(x_and_w: Arrays) -> Arrays:
            x = x_and_w[:x_count]
            y, pull = self._vjp(f, x)
            return self.zeros_for_absent(self._pulled(pull, x_and_w[x_count:], y), x)

        return gradient_map

    def jvp_map(self, f: FlatFunction, x_count: int) -> FlatFunction:
        def tangent_map(x_and_v: Arrays) -> Arrays:
            with self.refusing("forward mode (jvp)"):
                y, jv = self.functional_jvp(f, x_and_v[:x_count], x_and_v[x_count:])
            return self.zeros_for_absent(jv, y)

        return tangent_map

    @property
    def undefined_cotangents(self) -> bool:
        return False

    def detached(self, y: Array) -> bool:
        return False  # torch.func gives zeros, and does not say so

    def _vjp(self, f: FlatFunction, x: Arrays) -> tuple[Arrays, Any]:
        with self.refusing("reverse mode (vjp)"):
            result: Any = torch.func.vjp(lambda *leaves: f(leaves), *x)
        return result[0], result[1]

    def _pulled(self, pull: Any, w: MaybeArrays, y: Arrays) -> MaybeArrays:
        filled = self.zeros_for_absent(w, y)
        with self.refusing("reverse mode (vjp)"):
            gradients: MaybeArrays = pull(filled)
        return gradients
