"""PyTorch as an adjudge backend: eager autograd and forward AD, and beside them `torch.func`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache, cached_property, partial
from typing import Any

import array_api_compat.torch
import torch
import torch.autograd.forward_ad as forward_ad

from adjudge.engine import (
    UNDEFINED,
    Array,
    ArrayOperations,
    Arrays,
    AutodiffBackend,
    Environment,
    FlatFunction,
    Functional,
    FunctionClass,
    MaybeArrays,
    Program,
    Pullback,
    RecordingEnds,
    Refusals,
    Trace,
    Watcher,
    replaced,
)
from adjudge.errors import HookError, NotSupportedError
from adjudge_torch import captured
from adjudge_torch.arrays import TorchArrays, of_class_of
from adjudge_torch.captured import edges, holding
from adjudge_torch.environment import TorchEnvironment
from adjudge_torch.module import (
    Within,
    buffers_of,
    function_class,
    functional_of,
    noting_calls,
    parts_of,
)
from adjudge_torch.precision import as_written
from adjudge_torch.program import program
from adjudge_torch.tracing import trace
from adjudge_torch.watching import watching

NESTED = "Nested forward mode AD"

REFUSALS = Refusals(
    (RuntimeError,),  # NotImplementedError is one
    (
        NESTED,
        "forward AD with",
        "forward mode AD",
        "that does not support it because it has not been implemented",
        "is not implemented",
        "is not differentiable twice",
        "differentiate twice a function that was marked with @once_differentiable",
        "does not currently support double backward",
        "must override the setup_context",
        "torch.utils.checkpoint is incompatible with .grad()",
        "Checkpointing is not compatible with .grad()",  # as libraries have copied it
        "Nested autograd.function",
    ),
    (
        (
            "must implement the jvp function",
            "give the autograd.Function a static method jvp, or leave forward mode out: "
            "check_forward_ad=False",
        ),
        (
            "must override the setup_context",
            "give the autograd.Function a forward without ctx, and a static method setup_context",
        ),
        (
            "marked with @once_differentiable",
            "write a backward pass that can be differentiated, or leave second derivatives out",
        ),
    ),
)
"""What PyTorch says where it has no derivative to offer (2.1 to 2.13)."""


class _Torch(AutodiffBackend):
    """What both ways of taking derivatives share. Contract: see `AutodiffBackend`."""

    name = "torch"
    refusals = REFUSALS

    @property
    def xp(self) -> Any:
        return array_api_compat.torch

    def owns(self, leaf: object) -> bool:
        return isinstance(leaf, torch.Tensor)

    def program(self, f: FlatFunction, x: Arrays) -> Program:
        return program(f, tuple(map(_recording, x)), self.arrays)

    @cached_property
    def arrays(self) -> ArrayOperations:
        return TorchArrays()

    @cached_property
    def environment(self) -> Environment:
        return TorchEnvironment()

    def vmap(self, function: Callable[[MaybeArrays], MaybeArrays]) -> Callable[..., MaybeArrays]:
        def mapped(*stacks: torch.Tensor) -> MaybeArrays:
            present: list[bool] = []

            def one(*arrays: torch.Tensor) -> Arrays:
                values = function(arrays)
                present[:] = [value is not None for value in values]
                # vmap returns tensors only; something must come back where all are absent
                return (*(value for value in values if value is not None), arrays[0])

            # Rows are compared with a loop, in which each draws the same numbers.
            with as_written():
                results = iter(torch.func.vmap(one, randomness="same")(*stacks))
            # A batch of the zero tensors of forward mode has no memory, and Python dies where a row
            # of it is read. A copy has memory.
            return tuple(next(results).clone() if here else None for here in present)

        return mapped

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return torch.compile(function)

    def functional(self, f: object) -> Functional | None:
        return functional_of(f)

    def function_class(self, kind: type) -> FunctionClass | None:
        return function_class(kind)

    def buffers(self, f: object) -> Arrays:
        return buffers_of(f)

    def parts(self, f: object) -> Sequence[object]:
        return parts_of(f)

    def requires_grad(self, leaf: Array) -> bool | None:
        return bool(leaf.requires_grad)

    def constant(self, leaf: Array) -> Array | None:
        return of_class_of(leaf, leaf.detach())

    def implicit_samplers(self, f: FlatFunction, x: Arrays) -> Sequence[str]:
        return captured.implicit_samplers(f(tuple(map(_recording, x))))


_RUN_BACKWARD = torch.autograd.graph._engine_run_backward.__code__
"""The last frame of Python before the engine of PyTorch."""
_APPLY = torch.autograd.function.BackwardCFunction.apply.__code__
"""The frame in which the engine calls the backward pass of a `torch.autograd.Function`."""


class TorchBackend(_Torch):
    """Eager mode: `torch.autograd.grad`, and dual tensors."""

    way = "eager"

    def ways(self) -> Sequence[AutodiffBackend]:
        return (replaced(FunctionalBackend(), arrays=self.arrays, environment=self.environment),)

    def vjp(self, f: FlatFunction, x: Arrays) -> tuple[Arrays, Pullback]:
        x = tuple(map(_recording, x))
        ends = edges(x)
        y, calls = noting_calls(f, x)
        return y, partial(self._gradients, y, ends, calls=calls)

    def _gradients(
        self,
        y: Arrays,
        ends: Arrays,
        w: MaybeArrays,
        *,
        create_graph: bool = False,
        calls: Sequence[Within] = (),
    ) -> MaybeArrays:
        """Returns the gradients at the `ends` of what was recorded of `y` in these `calls` of
        modules; with `create_graph` they can be differentiated again.
        """
        outputs: list[torch.Tensor] = []
        cotangents: list[torch.Tensor] = []
        undefined = False
        output: Any
        for output, cotangent in zip(y, w, strict=True):
            if cotangent is None or not output.requires_grad:
                continue
            if cotangent is UNDEFINED:
                # the node that PyTorch's own checker uses: it passes an undefined gradient on
                output = torch._C._functions.UndefinedGrad()(output)
                cotangent = output.detach()  # of the right layout; the node drops its values
                undefined = True
            outputs.append(output)
            cotangents.append(cotangent)
        if not outputs:
            return (None,) * len(ends)
        run: Callable[[], Any] = partial(
            torch.autograd.grad,
            outputs,
            ends,
            cotangents,
            retain_graph=True,
            create_graph=create_graph,
            allow_unused=True,
        )
        for within in calls:
            run = partial(within, run)
        try:
            found = run()
        except Exception as error:
            if undefined and _raised_by_hook(error):
                raise HookError("a hook raises for an undefined gradient") from error
            if isinstance(error, RuntimeError):
                self.refuse("reverse mode (vjp)", error)
            raise
        for gradient in () if undefined else found:
            if gradient is None:
                _require_derivatives(outputs)
                break
        return tuple(found)

    def jvp(self, f: FlatFunction, x: Arrays, v: MaybeArrays) -> tuple[Arrays, MaybeArrays]:
        try:
            with self.refusing("forward mode (jvp)"):
                still = tuple(of_class_of(leaf, leaf.detach()) for leaf in x)
                y, jv = self._duals(f, still, tuple(None if t is None else t.detach() for t in v))
        except NotSupportedError:
            raise
        except RuntimeError as error:
            # under torch.func.vmap dual tensors are made by torch.func alone
            if "Batching rule not implemented for aten::_make_dual" in str(error):
                return _functional_jvp(f, x, v)
            raise
        return (
            tuple(primal.detach() for primal in y),
            tuple(None if tangent is None else tangent.detach() for tangent in jv),
        )

    def vjp_map(self, f: FlatFunction, x_count: int) -> FlatFunction:
        def gradient_map(x_and_w: Arrays) -> Arrays:
            x = tuple(map(_recording, x_and_w[:x_count]))
            ends = edges(x)
            y, calls = noting_calls(f, x)
            g = self._gradients(y, ends, x_and_w[x_count:], create_graph=True, calls=calls)
            return self.arrays.zeros_for_absent(g, x)

        return gradient_map

    def jvp_map(self, f: FlatFunction, x_count: int) -> FlatFunction:
        def tangent_map(x_and_v: Arrays) -> Arrays:
            x, v = tuple(map(_recording, x_and_v[:x_count])), x_and_v[x_count:]
            with self.refusing("forward mode (jvp)"):
                y, jv = self._duals(f, x, v)  # what is recorded of tangents can be pulled back
            return self.arrays.zeros_for_absent(jv, y)

        return tangent_map

    def trace(self, f: FlatFunction, x: Arrays) -> Trace:
        return trace(f, tuple(map(_recording, x)), self.environment)

    def watching(self, watcher: Watcher) -> AbstractContextManager[None]:
        return watching(watcher, self.environment)

    def recording_ends(self, y: Arrays, x: Arrays) -> RecordingEnds | None:
        return captured.recording_ends(y, x)

    def holding(self, captured: Arrays, values: Arrays) -> AbstractContextManager[None]:
        return holding(captured, values)

    def closing_over(self, captured: Arrays, first: int) -> AutodiffBackend:
        return ClosureBackend(self, captured, first)

    @property
    def undefined_cotangents(self) -> bool:
        return True

    def detached(self, y: Array) -> bool:
        return not y.requires_grad

    def _duals(self, f: FlatFunction, x: Arrays, v: MaybeArrays) -> tuple[Arrays, MaybeArrays]:
        _load_forward_mode()
        with (
            self.refusing("forward mode over forward mode", NESTED),
            forward_ad.dual_level(),
        ):
            duals = tuple(self._dual(leaf, tangent) for leaf, tangent in zip(x, v, strict=True))
            pairs = [forward_ad.unpack_dual(output) for output in f(duals)]
        return tuple(pair.primal for pair in pairs), tuple(pair.tangent for pair in pairs)

    def _dual(self, leaf: torch.Tensor, tangent: torch.Tensor | None) -> torch.Tensor:
        if tangent is None:
            return leaf
        try:
            dual: torch.Tensor = forward_ad.make_dual(leaf, tangent)
        except RuntimeError as error:
            if leaf.layout is torch.strided:
                raise
            raise self.lacks(f"forward mode (jvp) of {leaf.layout} tensors", str(error)) from error
        # a module takes no parameter that was recorded
        return dual if dual.grad_fn is not None else of_class_of(leaf, dual)


def _raised_by_hook(error: BaseException) -> bool:
    """Returns whether a hook raised `error` in a backward pass, and no rule: what the engine calls
    of a `torch.autograd.Function` begins in a frame of its class.
    """
    called, traceback = None, error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code is _RUN_BACKWARD:
            called = traceback.tb_next
        traceback = traceback.tb_next
    return called is not None and called.tb_frame.f_code is not _APPLY


@cache
def _load_forward_mode() -> None:
    """Loads what PyTorch loads at the first dual tensor of a process, and the warnings of which
    (of `torch.jit.script`) would count as the rule's where warnings are errors.
    """
    if forward_ad._current_level >= 0:  # it is loaded, and there can be no second level
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with forward_ad.dual_level():
            forward_ad.make_dual(torch.zeros((), device="cpu"), torch.zeros((), device="cpu"))


class ClosureBackend(TorchBackend):
    """Eager mode of functions that close over some tensors, whose values stand in `x` from leaf
    `first` on.

    Forward mode does not reach these: a dual tensor is another tensor than the one closed over.
    """

    def __init__(self, inner: TorchBackend, closed: Arrays, first: int) -> None:
        """The arrays and the environment are those of `inner`."""
        self.arrays, self.environment = inner.arrays, inner.environment
        self._closed, self._here = closed, slice(first, first + len(closed))

    def ways(self) -> Sequence[AutodiffBackend]:
        return ()

    def vjp(self, f: FlatFunction, x: Arrays) -> tuple[Arrays, Pullback]:
        values = x[self._here]
        with holding(self._closed, values):
            recorded = self._with_closed(tuple(map(_recording, x)), self._closed)
            start = captured.sequence()
            y = f(recorded)
            captured.require_own_history(y, start)
            ends = edges(recorded, self._closed)

        def pullback(w: MaybeArrays) -> MaybeArrays:
            with holding(self._closed, values):
                return self._gradients(y, ends, w)

        return y, pullback

    def jvp(self, f: FlatFunction, x: Arrays, v: MaybeArrays) -> tuple[Arrays, MaybeArrays]:
        if not captured.without_tangents(v[self._here]):
            raise self.lacks(_FORWARD_OF_CLOSED)
        nothing = (None,) * len(self._closed)
        with holding(self._closed, x[self._here]):
            return super().jvp(f, self._with_closed(x, self._closed), self._with_closed(v, nothing))

    def jvp_map(self, f: FlatFunction, x_count: int) -> FlatFunction:
        raise self.lacks(_FORWARD_OF_CLOSED)

    def _with_closed(self, x: MaybeArrays, closed: MaybeArrays) -> MaybeArrays:
        """Returns the arrays `x` with `closed` in the places of what the function closes over."""
        return (*x[: self._here.start], *closed, *x[self._here.stop :])


_FORWARD_OF_CLOSED = "forward mode (jvp) of what a function closes over"


class FunctionalBackend(_Torch):
    """`torch.func.vjp` and `torch.func.jvp`, which nest in any order.

    They run the formulas of eager mode through other machinery (batching rules, `setup_context`,
    decompositions of forward formulas), which has errors of its own. An output without a derivative
    has a gradient of zeros here, and `torch.func` does not say so.
    """

    way = "torch.func"

    def vjp(self, f: FlatFunction, x: Arrays) -> tuple[Arrays, Pullback]:
        y, pull = self._vjp(f, tuple(leaf.detach() for leaf in x))

        def pullback(w: MaybeArrays) -> MaybeArrays:
            return self._pulled(pull, w, y)

        return y, pullback

    def jvp(self, f: FlatFunction, x: Arrays, v: MaybeArrays) -> tuple[Arrays, MaybeArrays]:
        still = tuple(leaf.detach() for leaf in x)
        with self.refusing("forward mode (jvp)"):
            return _functional_jvp(f, still, v)

    def vjp_map(self, f: FlatFunction, x_count: int) -> FlatFunction:
        def gradient_map(x_and_w: Arrays) -> Arrays:
            x = x_and_w[:x_count]
            y, pull = self._vjp(f, x)
            pulled = self._pulled(pull, x_and_w[x_count:], y)
            return self.arrays.zeros_for_absent(pulled, x)

        return gradient_map

    def jvp_map(self, f: FlatFunction, x_count: int) -> FlatFunction:
        def tangent_map(x_and_v: Arrays) -> Arrays:
            with self.refusing("forward mode (jvp)"):
                y, jv = _functional_jvp(f, x_and_v[:x_count], x_and_v[x_count:])
            return self.arrays.zeros_for_absent(jv, y)

        return tangent_map

    def _vjp(self, f: FlatFunction, x: Arrays) -> tuple[Arrays, Any]:
        with self.refusing("reverse mode (vjp)"), as_written():
            result: Any = torch.func.vjp(lambda *leaves: f(leaves), *x)
        return result[0], result[1]

    def _pulled(self, pull: Any, w: MaybeArrays, y: Arrays) -> MaybeArrays:
        filled = self.arrays.zeros_for_absent(w, y)
        with self.refusing("reverse mode (vjp)"):
            gradients: MaybeArrays = pull(filled)
        return gradients


def _functional_jvp(f: FlatFunction, x: Arrays, v: MaybeArrays) -> tuple[Arrays, MaybeArrays]:
    """Returns what `torch.func.jvp` gives, which can be differentiated again."""
    # leaves without a tangent take no part: a zero one would be written into in place
    moved = [k for k, tangent in enumerate(v) if tangent is not None]

    def of_moved(*leaves: torch.Tensor) -> Arrays:
        whole = list(x)
        for k, leaf in zip(moved, leaves, strict=True):
            whole[k] = leaf
        return f(tuple(whole))

    primals, tangents = tuple(x[k] for k in moved), tuple(v[k] for k in moved)
    with as_written():
        pair: Any = torch.func.jvp(of_moved, primals, tangents)
    return pair[0], pair[1]


def _recording(leaf: torch.Tensor) -> torch.Tensor:
    """Returns `leaf`, or an alias of it, with derivatives recorded."""
    if leaf.requires_grad:
        return leaf
    try:
        # an alias of a dual tensor would have no tangent
        inside = forward_ad._current_level >= 0
        return (
            leaf.requires_grad_() if inside else of_class_of(leaf, leaf.detach()).requires_grad_()
        )
    except RuntimeError as error:
        # inside torch.func.vmap tensors cannot be marked; a batched jvp does not need it
        if "functorch transform" in str(error):
            return leaf
        raise


def _require_derivatives(outputs: Sequence[torch.Tensor]) -> None:
    """Raises `NotSupportedError` where the graph ends in a node without a derivative.

    Such nodes raise when they are run. A graph that merely ends in one gives no gradient for its
    inputs, and does not say why.
    """
    seen: set[Any] = set()
    nodes: list[Any] = [output.grad_fn for output in outputs]
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if type(node).__name__ in ("Error", "DelayedError"):
            raise NotSupportedError(
                "the derivative ends in a function that was marked with @once_differentiable, or "
                "has no second derivative",
                "write a backward pass that can be differentiated, or leave second derivatives out",
            )
        for following, _ in node.next_functions:
            nodes.append(following)
