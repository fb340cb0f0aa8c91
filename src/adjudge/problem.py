"""The function `f` at the point `x`: flattened, named, counted, and never touching x itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from adjudge.arguments import Arguments, Path, read_arguments
from adjudge.backend import Arrays, AutodiffBackend, FlatFunction
from adjudge.byhand import ByHand, FlatByHand, HandBackend
from adjudge.codec import Counts, UserCodec
from adjudge.errors import InputError
from adjudge.spaces import Space, Vector


@dataclass(frozen=True)
class Problem:
    """`f: X -> Y` at `x`.

    `function` is what the engine differentiates; `evaluate` gives the same outputs for
    differences, followed by `extra` further ones that are only observed (for a second-order
    problem: the value of the original function, so that its first derivative is checked by the
    same evaluations).
    """

    backend: AutodiffBackend
    function: FlatFunction
    evaluate: FlatFunction
    x: Arrays
    X: Space
    origin: Vector
    counts: Counts
    tail: str = ""
    """The derivatives already taken, outermost first: "" for f itself, "R" for its vjp."""
    output_names: Callable[[], Sequence[str]] = field(default=lambda: ())
    """Accessor paths of what `evaluate` returns; known after the first evaluation."""
    written: Callable[[], Sequence[str]] = field(default=lambda: ())
    """Unchecked arrays that the function wrote into; known after the first evaluation."""
    differentiated: int | None = None
    """How many outputs `function` has, where `evaluate` gives more."""
    base_inputs: int = 0
    """How many leaves of X are those of the original function, where there are more."""

    weights: Vector | None = None
    """For a vjp: its cotangent as a vector over all outputs of f, zero where detached."""
    widened: Callable[[], Problem] | None = None
    """Makes the same problem in double precision, where x has a leaf of less."""

    def outputs_of(self, count: int) -> int:
        """Of `count` outputs of `evaluate`, how many are differentiated."""
        return count if self.differentiated is None else self.differentiated

    def point(self, vector: Vector | None = None) -> Arrays:
        """Fresh arrays at `vector`, by default at `x`."""
        return self.X.arrays(self.backend, self.origin if vector is None else vector, self.x)


def first_order(
    function: Callable[..., Any],
    inputs: object,
    kwargs: Mapping[str, Any] | None,
    wrt: Path | Sequence[Path] | None,
    backend: str | AutodiffBackend | None,
    masked: bool | None,
    *,
    highest: bool = False,
) -> Problem:
    """The problem of `function(*inputs, **kwargs)`. Raises the errors of bad input.

    `highest`: it will be evaluated with the engine's highest precision.
    """
    if not callable(function):
        raise InputError(
            f"the function to check is a {type(function).__name__}, which cannot be called",
            "pass the function first, then its inputs",
        )
    arguments = read_arguments(inputs, dict(kwargs or {}), wrt, backend, masked)
    if isinstance(function, ByHand):
        hand = HandBackend(arguments.backend, function)
        arguments = replace(arguments, backend=hand)
    counts = Counts()
    with arguments.backend.highest_precision() if highest else nullcontext():
        problem = _problem(function, arguments, counts)
    if all(leaf.double for leaf in problem.X.leaves):
        return problem
    return replace(problem, widened=lambda: _problem(function, arguments.widened(), counts))


def _problem(function: Callable[..., Any], arguments: Arguments, counts: Counts) -> Problem:
    codec = UserCodec(arguments, counts)
    flat: FlatFunction = (
        FlatByHand(function, codec)
        if isinstance(function, ByHand)
        else lambda x: codec.evaluate(function, x)
    )
    engine = arguments.backend
    space = Space.of(engine, arguments.leaves, arguments.names)
    origin = space.vector(engine, arguments.leaves, arguments.leaves)
    return Problem(
        engine,
        flat,
        flat,
        arguments.leaves,
        space,
        origin,
        counts,
        output_names=lambda: codec.output_names,
        written=lambda: codec.written,
    )
