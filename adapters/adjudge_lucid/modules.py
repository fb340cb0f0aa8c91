"""A module of Lucid 2 as a function of its parameters, and what it may write into."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple

from adjudge.engine import Array, Arrays, Functional
from adjudge_lucid.importing import imported

lucid = imported()


class Place(NamedTuple):
    """Where a module holds a tensor."""

    owner: Any
    attribute: str
    tensor: Array


def functional_of(f: object) -> Functional | None:
    """Contract: see `AutodiffBackend.functional`."""
    if not _is_module(f):
        return None
    parameters, buffers = dict(_held(f, "_parameters")), dict(_held(f, "_buffers"))
    places = parameters | buffers
    module: Any = f

    def call(values: Mapping[str, Array], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        try:
            for name, place in places.items():
                place.owner.setattr_raw(place.attribute, values[name])
            return module(*args, **kwargs)
        finally:
            for owner, attribute, tensor in places.values():
                owner.setattr_raw(attribute, tensor)

    return Functional(_tensors(parameters), _tensors(buffers), call) if places else None


def buffers_of(f: object) -> Arrays:
    """Contract: see `AutodiffBackend.buffers`."""
    return tuple(_tensors(dict(_held(f, "_buffers"))).values()) if _is_module(f) else ()


def parts_of(f: Any) -> list[object]:
    """Contract: see `AutodiffBackend.parts`."""
    return [f, *chain(*map(parts_of, f._modules.values()))] if _is_module(f) else []


@contextmanager
def holding(tensors: Arrays, values: Arrays) -> Iterator[None]:
    """Contract: see `AutodiffBackend.holding`."""
    before = [tensor.data for tensor in tensors]
    try:
        for tensor, value in zip(tensors, values, strict=True):
            tensor.data = value.data
        yield
    finally:
        for tensor, data in zip(tensors, before, strict=True):
            tensor.data = data


def _is_module(f: object) -> bool:
    # modules of Lucid 3 have no such method
    return isinstance(f, lucid.nn.Module) and hasattr(f, "setattr_raw")


def _held(module: Any, kind: str, prefix: str = "") -> Iterator[tuple[str, Place]]:
    for name, tensor in getattr(module, kind).items():
        if tensor is not None:
            yield prefix + name, Place(module, name, tensor)
    for name, child in module._modules.items():
        yield from _held(child, kind, f"{prefix}{name}.")


def _tensors(places: Mapping[str, Place]) -> dict[str, Array]:
    return {name: place.tensor for name, place in places.items()}
