"""Lucid as an adjudge backend: reverse mode; of both, where gradients are recorded (3.x)."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, partial
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adjudge.engine import (
    Array,
    ArrayInfo,
    ArrayOperations,
    Arrays,
    ArraysByNumpy,
    AutodiffBackend,
    Environment,
    FlatFunction,
    Functional,
    MaybeArrays,
    Pullback,
    RecordingEnds,
    Setting,
    restored,
)
from adjudge_lucid import modules
from adjudge_lucid.importing import imported

lucid = imported()
RECORDS_GRADIENTS = "create_graph" in inspect.signature(lucid.autograd.grad).parameters
"""Whether a gradient is a tensor that can be differentiated again. Those of Lucid 2 are NumPy's."""
RECORDING = (
    Setting(lucid.is_grad_enabled, lucid.set_grad_enabled)
    if hasattr(lucid, "set_grad_enabled")
    else Setting(lucid.grad_enabled, partial(setattr, lucid, "_grad_enabled"))
)
"""Whether operations are recorded, which `lucid.no_grad` switches off."""


class Namespace(SimpleNamespace):
    """Lucid's functions, under the names of the Array API standard where it has others."""

    def __getattr__(self, name: str) -> Any:
        return getattr(lucid, name)


NAMESPACE = Namespace(
    concat=lambda arrays, axis=0: lucid.concatenate(tuple(arrays), axis),
    matrix_transpose=lambda x: x.mT,
    permute_dims=lambda x, axes: getattr(lucid, "permute", lucid.transpose)(x, list(axes)),
    take=lambda x, indices, axis=0: x[(slice(None),) * axis + (indices,)],
)


class LucidArrays(ArraysByNumpy):
    """Operations on Lucid's tensors. Contract: see `ArrayOperations`.

    None is complex: without conj, Lucid 2 leaves open what its complex gradients are.
    """

    others = ("int64", "int32", "int16", "int8", "bool")

    def info(self, array: Array) -> ArrayInfo:
        # Lucid 2 has Python's bool, and text for a device; Lucid 3 says lucid.float32
        dtype = "bool" if array.dtype is bool else str(array.dtype).rpartition(".")[2]
        device = getattr(array.device, "type", array.device)
        return ArrayInfo(tuple(array.shape), dtype, str(device))

    def is_complex(self, array: Array) -> bool:
        return False

    def numpy(self, array: Array) -> NDArray[Any]:
        values: NDArray[Any] = array.detach().numpy()
        return values

    def tensor(
        self, values: NDArray[Any], dtype: str, device: str | None, like: Array | None = None
    ) -> Array:
        # Lucid keeps the array that it is given
        return lucid.tensor(np.array(values, dtype=dtype, order="C"), device=device or "cpu")


class LucidEnvironment(Environment):
    """Lucid draws NumPy's random numbers, and records operations unless it is told not to."""

    @contextmanager
    def isolation(self, leaves: Sequence[Array]) -> Iterator[None]:
        with restored(RECORDING):
            RECORDING.write(True)
            yield


class LucidBackend(AutodiffBackend):
    """See `AutodiffBackend` for the contract.

    Gradients are taken as users take them, by `backward()` from a number: the sum of `w * y`.
    """

    name = "lucid"
    xp = NAMESPACE
    _closed: Arrays = ()
    """What the function closes over, whose values are the last leaves of `x`."""

    def owns(self, leaf: object) -> bool:
        return isinstance(leaf, lucid.Tensor)

    @cached_property
    def arrays(self) -> ArrayOperations:
        return LucidArrays(self.name, self.xp)

    @cached_property
    def environment(self) -> Environment:
        return LucidEnvironment(metadata.version("lucid-dl"))

    def functional(self, f: object) -> Functional | None:
        return modules.functional_of(f)

    def buffers(self, f: object) -> Arrays:
        return modules.buffers_of(f)

    def parts(self, f: object) -> Sequence[object]:
        return modules.parts_of(f)

    def holding(self, captured: Arrays, values: Arrays) -> AbstractContextManager[None]:
        return modules.holding(captured, values)

    def recording_ends(self, y: Arrays, x: Arrays) -> RecordingEnds | None:
        if RECORDS_GRADIENTS:
            return None
        ends = [node for leaf in y for node in _graph(leaf) if node.is_leaf]
        reached = tuple(any(end.data is leaf.data for end in ends) for leaf in x)
        others = {id(end): end for end in ends if not any(end.data is leaf.data for leaf in x)}
        return RecordingEnds(reached, tuple(others.values()))

    def requires_grad(self, leaf: Array) -> bool:
        return bool(leaf.requires_grad)

    def constant(self, leaf: Array) -> Array:
        return lucid.tensor(leaf) if leaf.requires_grad else leaf

    def detached(self, y: Array) -> bool:
        return not y.requires_grad

    def vjp(self, f: FlatFunction, x: Arrays) -> tuple[Arrays, Pullback]:
        first = len(x) - len(self._closed)
        leaves = tuple(map(_recorded, x))
        y = f(leaves)
        ends = leaves[:first] + self._closed

        def pullback(w: MaybeArrays) -> MaybeArrays:
            # with zeros for what takes no part, so that every call goes back through one graph
            total = _contracted(y, self.arrays.zeros_for_absent(w, y))
            with modules.holding(self._closed, x[first:]):  # rules read the values once more
                return (None,) * len(x) if total is None else _gradients(total, ends)

        return y, pullback

    def closing_over(self, captured: Arrays, first: int) -> AutodiffBackend:
        changed = copy.copy(self)
        changed._closed = captured
        return changed

    def vjp_map(self, f: FlatFunction, x_count: int) -> FlatFunction:
        if not RECORDS_GRADIENTS:
            raise self.lacks("second order", "Lucid 2 returns gradients that it does not record")

        def gradient_map(x_and_w: Arrays) -> Arrays:
            x = tuple(leaf if leaf.requires_grad else _recorded(leaf) for leaf in x_and_w[:x_count])
            total = _contracted(f(x), x_and_w[x_count:])
            g = (None,) * len(x) if total is None else _gradients(total, x, create_graph=True)
            return self.arrays.zeros_for_absent(g, x)

        return gradient_map


def _recorded(leaf: Array) -> Array:
    """Returns an alias of `leaf` whose uses are recorded."""
    alias = leaf.detach() if RECORDS_GRADIENTS else lucid.tensor(leaf)  # `detach` of Lucid 2 copies
    alias.requires_grad = True
    return alias


def _contracted(y: Arrays, w: Arrays) -> Array | None:
    """Returns the sum of `w * y` over the outputs that depend on anything; `None` without any."""
    terms = [(leaf * c).sum() for leaf, c in zip(y, w, strict=True) if leaf.requires_grad]
    return sum(terms[1:], terms[0]) if terms else None


def _gradients(total: Array, x: Arrays, **options: bool) -> MaybeArrays:
    if RECORDS_GRADIENTS:
        found: MaybeArrays = lucid.autograd.grad(
            total, list(x), retain_graph=True, allow_unused=True, **options
        )
        return found
    # `grad` of Lucid 2 keeps the gradients of inner tensors, and adds the next ones to them
    kept = [(node, node.grad) for node in _graph(total)]
    for node, _ in kept:
        node.grad = None
    try:
        total.backward(retain_graph=True)
        found = tuple(leaf.grad for leaf in x)
    finally:
        for node, before in kept:
            node.grad = before
    return tuple(
        None if g is None else lucid.tensor(np.array(g), device=leaf.device)
        for g, leaf in zip(found, x, strict=True)
    )


def _graph(root: Array) -> list[Array]:
    """Returns the tensors from which `root` was computed, and itself."""
    found, left = {}, [root]
    while left:
        node = left.pop()
        if id(node) not in found:
            found[id(node)] = node
            left += node._prev
    return list(found.values())
