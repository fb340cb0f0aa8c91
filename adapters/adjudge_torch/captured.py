"""Tensors that a function closes over: found on the tape, and held at other values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Any

import torch

from adjudge.engine import Array, Arrays, MaybeArrays, RecordingEnds
from adjudge.errors import InputError
from adjudge_torch import sparse
from adjudge_torch.arrays import outside_transforms

_Leaf: Any = torch._C._functions.AccumulateGrad  # type: ignore[attr-defined] # not in the stubs
"""The node in which the tape of a leaf ends."""


def recording_ends(y: Arrays, x: Arrays) -> RecordingEnds | None:
    """Contract: see `AutodiffBackend.recording_ends`."""
    ends: list[Array] = []
    own = {leaf.grad_fn: leaf for leaf in reversed(x)}  # of one that is no leaf the tape goes on
    memory = [_memory(leaf) for leaf in x]  # x is recorded by an alias of it
    forward_rules: list[str] = []
    for node in _nodes(y, own):
        written = getattr(type(node), "_forward_cls", torch.autograd.Function)
        if written.jvp is not torch.autograd.Function.jvp:
            forward_rules.append(f"{written.__qualname__.rpartition('<locals>.')[2]}.jvp")
        if node in own:
            ends.append(own[node])
        elif type(node) is _Leaf:
            ends.append(node.variable)
    if None in memory:
        return None
    places = {place: k for k, place in reversed(list(enumerate(memory)))}
    reached, captured = [False] * len(memory), []
    for end in ends:
        if (place := _memory(end)) in places:
            reached[places[place]] = True
        else:
            captured.append(end)
    return RecordingEnds(tuple(reached), tuple(captured), tuple(dict.fromkeys(forward_rules)))


def _nodes(y: Arrays, last: Collection[Any] = ()) -> Iterable[Any]:
    """Returns every node of the tape of `y` once. It does not go on behind those in `last`."""
    nodes: list[Any] = [output.grad_fn for output in y]
    seen: dict[Any, None] = {}
    for node in nodes:  # it grows on the way
        if node is not None and node not in seen:
            seen[node] = None
            if node not in last:
                nodes += map(itemgetter(0), node.next_functions)
    return seen


def implicit_samplers(y: Arrays) -> list[str]:
    """Returns the samplers in the recording of `y`; see `AutodiffBackend.implicit_samplers`."""
    return sorted({name for node in _nodes(y) for name in IMPLICIT if name in node.name()})


IMPLICIT = ("StandardGamma", "Dirichlet")
"""What the nodes of the tape are called that differentiate a sample through the distribution
function (Figurnov, Mohamed and Mnih, NeurIPS 2018): those of Gamma, Beta, Dirichlet, Chi2, StudentT
and others that are made of these."""


def _memory(tensor: torch.Tensor) -> object:
    """Returns what tensors have in common that share their memory; `None` where that is not known,
    as of tensors of oneDNN, and of classes whose tensors have no memory of their own.
    """
    if type(tensor).__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl:
        return None
    if tensor.layout is torch.strided:
        return tensor.untyped_storage()._cdata
    return _memory(sparse.values(tensor)) if sparse.is_sparse(tensor) else None


@contextmanager
def holding(tensors: Arrays, values: Arrays) -> Iterator[None]:
    """Contract: see `AutodiffBackend.holding`.

    The memory of a tensor is exchanged and not written to, so that nothing but the tensor itself
    sees the value.
    """
    pairs = [(one, value) for one, value in zip(tensors, values, strict=True) if one is not value]
    before = [(tensor, tensor.data) for tensor, _ in pairs]
    try:
        _exchange(pairs)
        yield
    finally:
        _exchange(before)


def _exchange(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Gives each tensor the memory of its value; a mode would take that for an operator."""
    with torch._C.DisableTorchFunction():
        for tensor, value in pairs:
            with outside_transforms(tensor, value):
                tensor.data = value.detach()


def without_tangents(v: MaybeArrays) -> bool:
    """Returns whether every tangent is absent or zero."""
    return all(tangent is None or not bool(tangent.any()) for tangent in v)


def sequence() -> int:
    """Returns the number that the next node of the tape will have."""
    number: int = torch._C._autograd._get_sequence_nr()
    return number


def require_own_history(y: Arrays, start: int) -> None:
    """Raises `InputError` where the tape of `y` has nodes from before `start`: a tensor that was
    computed before the check does not follow what it was computed from.
    """
    for node in _nodes(y):
        if type(node) is not _Leaf and node._sequence_nr() < start:
            raise InputError(
                "captured=True: the function closes over a tensor that was computed from others "
                f"before the check ({node.name()})",
                "compute it inside of the function, detach it, or pass it as an input",
            )


def edges(x: Arrays, closed: Arrays = ()) -> Arrays:
    """Returns `x`, with the places of the tape where they stand now for what may stand elsewhere
    later: for tensors that are no leaves, into which a function may write, and for those that it
    closes over, which may have another dtype when gradients are asked for.
    """
    for leaf in x:
        if closed or not leaf.is_leaf:
            return tuple([_edge(leaf) if _moves(leaf, closed) else leaf for leaf in x])
    return x


_edge: Any = torch.autograd.graph.get_gradient_edge


def _moves(leaf: torch.Tensor, closed: Arrays) -> bool:
    return not leaf.is_leaf or any(leaf is tensor for tensor in closed)
