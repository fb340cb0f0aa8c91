"""A module of MLX as a function of its parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlx import nn
from mlx.utils import tree_flatten, tree_unflatten

from adjudge.engine import Array, Functional


def functional_of(f: object) -> Functional | None:
    """Contract: see `AutodiffBackend.functional`."""
    if not isinstance(f, nn.Module):
        return None
    parameters = dict(tree_flatten(f.trainable_parameters()))
    held = dict(tree_flatten(f.parameters()))

    def call(arrays: Mapping[str, Array], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        f.update(tree_unflatten(list(arrays.items())))
        try:
            return f(*args, **kwargs)
        finally:  # running statistics are other arrays after a call
            f.update(tree_unflatten(list(held.items())))

    buffers = {name: array for name, array in held.items() if name not in parameters}
    return Functional(parameters, buffers, call)
