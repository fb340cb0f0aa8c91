"""The function `f` at the point `x`: flattened, named, counted, and never touching x itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from adjudge.backend import Array, Arrays, AutodiffBackend, FlatFunction, MaybeArrays
from adjudge.byhand import ByHand, FlatByHand, HandBackend
from adjudge.errors import InputError, UnstableOutputError
from adjudge.registry import ArrayLike, backend_named, backend_of, common_backend, expand
from adjudge.spaces import Space, Vector
from adjudge.trees import Tree, flatten

Path = int | str


@dataclass
class Counts:
    """What a check has cost so far, and what it is doing now (for notes on exceptions)."""

    evaluations: int = 0
    vjps: int = 0
    jvps: int = 0
    doing: str = "the first evaluation"


@dataclass(frozen=True)
class Arguments:
    """The user's arguments, flattened: which leaves are checked, and how to call with others."""

    tree: Tree
    checked: tuple[int, ...]
    backend: AutodiffBackend

    @property
    def names(self) -> tuple[str, ...]:
        """Accessor paths of the checked leaves."""
        return tuple(self.tree.names[k] for k in self.checked)

    @property
    def leaves(self) -> Arrays:
        """The user's own checked arrays: read, never written to or passed on."""
        return tuple(self.tree.leaves[k] for k in self.checked)

    def call(self, x: Arrays) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """`args, kwargs` with `x` in the checked places and fresh copies of other arrays."""
        leaves = [self._fresh(leaf) for leaf in self.tree.leaves]
        for k, leaf in zip(self.checked, x, strict=True):
            leaves[k] = leaf
        args, kwargs = self.tree.rebuild(leaves)
        return tuple(args), kwargs

    def _fresh(self, leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray):
            return leaf.copy(order="K")
        return self.backend.copy(leaf) if self.backend.owns(leaf) else leaf


@dataclass(frozen=True)
class Signature:
    """What must not change between two evaluations: structure, shapes and dtypes of outputs."""

    structure: tuple[object, ...]
    arrays: tuple[tuple[str, tuple[int, ...], str] | None, ...]


@dataclass
class UserCodec:
    """Between leaves and the user's arguments and results; it remembers the result's structure."""

    arguments_: Arguments
    counts: Counts
    result: Tree | None = None
    signature: Signature | None = None
    differentiable: tuple[int, ...] = ()

    def arguments(self, x: Arrays) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """See `Arguments.call`."""
        return self.arguments_.call(x)

    def evaluate(self, function: Callable[..., Any], x: Arrays) -> Arrays:
        """Output leaves of one counted evaluation; exceptions say which one it was."""
        args, kwargs = self.arguments(x)
        self.counts.evaluations += 1
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            error.add_note(
                f"adjudge: raised in evaluation {self.counts.evaluations} of the function, "
                f"{self.counts.doing}"
            )
            raise
        return self.outputs(result)

    def outputs(self, result: Any) -> Arrays:
        """Floating and complex output leaves. Raises `UnstableOutputError` on a new structure."""
        tree = flatten(result, "out", expand)
        signature = self._signature(tree)
        if self.signature is None:
            backend = self.arguments_.backend
            self.signature, self.result = signature, tree
            self.differentiable = tuple(
                k
                for k, leaf in enumerate(tree.leaves)
                if backend.owns(leaf) and backend.differentiable(leaf)
            )
        elif signature != self.signature:
            raise _unstable(self.signature, signature, self.counts)
        return tuple(tree.leaves[k] for k in self.differentiable)

    @staticmethod
    def _signature(tree: Tree) -> Signature:
        arrays = tuple(
            (name, tuple(leaf.shape), str(leaf.dtype)) if isinstance(leaf, ArrayLike) else None
            for name, leaf in zip(tree.names, tree.leaves, strict=True)
        )
        return Signature(tree.signature, arrays)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Accessor paths of the differentiable outputs."""
        assert self.result is not None
        return tuple(self.result.names[k] for k in self.differentiable)

    # -- derivatives by hand: trees of gradients and cotangents

    def gradients(self, result: Any) -> MaybeArrays:
        """One gradient per checked leaf. Raises `InputError` on a wrong number of them."""
        arguments = self.arguments_
        args, kwargs = arguments.tree.rebuild(arguments.tree.leaves)
        if result is None:
            return (None,) * len(arguments.checked)
        per_input = result if isinstance(result, tuple) and len(args) != 1 else (result,)
        if isinstance(result, tuple) and len(args) == 1 and not isinstance(args[0], tuple):
            per_input = result
        if len(per_input) != len(args):
            raise InputError(
                f"the hand-written vjp returned {len(per_input)} gradients for "
                f"{len(args)} positional inputs",
                "return a tuple with one gradient per positional input, None where there is none",
            )
        found: list[Any] = []
        for k, (argument, gradient) in enumerate(zip(args, per_input, strict=True)):
            found.extend(_matched(argument, gradient, f"inputs[{k}]"))
        found.extend([None] * len(flatten(kwargs, "kwargs", expand).leaves))
        return tuple(found[k] for k in arguments.checked)

    def gradient_tree(self, leaves: MaybeArrays) -> tuple[Any, ...]:
        """One tree per positional input, `None` at unchecked leaves."""
        tree = self.arguments_.tree
        flat: list[Any] = [None] * len(tree.leaves)
        for k, leaf in zip(self.arguments_.checked, leaves, strict=True):
            flat[k] = leaf
        args, _ = tree.rebuild(flat)
        return tuple(args)

    def cotangent(self, w: MaybeArrays) -> Any:
        """`w` in the structure of the user's result, `None` at other leaves."""
        assert self.result is not None
        flat: list[Any] = [None] * len(self.result.leaves)
        for k, leaf in zip(self.differentiable, w, strict=True):
            flat[k] = leaf
        return self.result.rebuild(flat)

    def cotangent_leaves(self, tree: Any) -> MaybeArrays:
        """One array per differentiable output, from a tree of the result's structure."""
        assert self.result is not None
        if tree is None:
            return (None,) * len(self.differentiable)
        found = _matched(self.result.rebuild(self.result.leaves), tree, "out")
        return tuple(found[k] for k in self.differentiable)


def _matched(like: Any, tree: Any, name: str) -> list[Any]:
    """Leaves of `tree` in the order of those of `like`; `None` for a whole subtree is allowed."""
    expected = flatten(like, name, expand)
    if tree is None:
        return [None] * len(expected.leaves)
    given = flatten(tree, name, expand)
    if len(given.leaves) != len(expected.leaves):
        raise InputError(
            f"a hand-written derivative has {len(given.leaves)} leaves for {name}, "
            f"which has {len(expected.leaves)}",
            f"return the structure of {name}, None at leaves without a derivative",
        )
    return list(given.leaves)


def _unstable(before: Signature, now: Signature, counts: Counts) -> UnstableOutputError:
    for first, then in zip(before.arrays, now.arrays, strict=False):
        if first != then and first is not None and then is not None:
            return UnstableOutputError(
                f"{first[0]} was {first[2]} of shape {first[1]} and is {then[2]} of shape "
                f"{then[1]} in evaluation {counts.evaluations}, {counts.doing}",
                "a derivative needs outputs of one shape and dtype near x: fix the size of the "
                "output, or move x away from where it changes",
            )
    return UnstableOutputError(
        f"the structure of the output changed in evaluation {counts.evaluations}, {counts.doing}",
        "return the same structure at every call",
    )


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
    differentiated: int | None = None
    """How many outputs `function` has, where `evaluate` gives more."""
    base_inputs: int = 0
    """How many leaves of X are those of the original function, where there are more."""

    weights: Vector | None = None
    """For a vjp: its cotangent as a vector over all outputs of f, zero where detached."""

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
) -> tuple[Problem, Arguments]:
    """The problem of `function(*inputs, **kwargs)`. Raises the errors of bad input."""
    if not callable(function):
        raise InputError(
            f"the function to check is a {type(function).__name__}, which cannot be called",
            "pass the function first, then its inputs",
        )
    arguments = _arguments(inputs, dict(kwargs or {}), wrt, backend, masked)
    if isinstance(function, ByHand):
        hand = HandBackend(arguments.backend, function)
        arguments = Arguments(arguments.tree, arguments.checked, hand)
    counts = Counts()
    codec = UserCodec(arguments, counts)
    flat: FlatFunction = (
        FlatByHand(function, codec)
        if isinstance(function, ByHand)
        else lambda x: codec.evaluate(function, x)
    )
    engine = arguments.backend
    space = Space.of(engine, arguments.leaves, arguments.names)
    origin = space.vector(engine, arguments.leaves, arguments.leaves)
    problem = Problem(
        engine,
        flat,
        flat,
        arguments.leaves,
        space,
        origin,
        counts,
        output_names=lambda: codec.output_names,
    )
    return problem, arguments


def _arguments(
    inputs: object,
    kwargs: dict[str, Any],
    wrt: Path | Sequence[Path] | None,
    backend: str | AutodiffBackend | None,
    masked: bool | None,
) -> Arguments:
    args = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
    positional = flatten(args, "inputs", expand)
    named = flatten(kwargs, "kwargs", expand)
    count = len(positional.leaves)
    tree = Tree(
        positional.leaves + named.leaves,
        positional.names + named.names,
        lambda flat: (positional.rebuild(flat[:count]), named.rebuild(flat[count:])),
        (),
    )
    given = backend_named(backend) if isinstance(backend, str) else backend
    owners: dict[int, AutodiffBackend] = {}
    for k, (name, leaf) in enumerate(zip(tree.names, tree.leaves, strict=True)):
        if given is not None:
            if given.owns(leaf):
                owners[k] = given
        elif not isinstance(leaf, np.generic):  # NumPy's scalars are numbers, like float
            owner = backend_of(leaf, name)
            if owner is not None:
                owners[k] = owner
    checked = _selected(tree, owners, wrt)
    engine = common_backend((tree.names[k], owners[k]) for k in checked)
    assert engine is not None  # _selected raised where nothing is checked
    return Arguments(tree, checked, engine.masked(masked))


def _selected(
    tree: Tree, owners: Mapping[int, AutodiffBackend], wrt: Path | Sequence[Path] | None
) -> tuple[int, ...]:
    floating = [k for k, owner in owners.items() if owner.differentiable(tree.leaves[k])]
    if wrt is not None:
        return _resolved(tree, owners, floating, wrt)
    wishes = {k: owners[k].wanted(tree.leaves[k]) for k in floating}
    if any(wishes.values()):
        return tuple(k for k in floating if wishes[k])
    if not floating:
        kinds = ", ".join(
            f"{name}: {getattr(leaf, 'dtype', type(leaf).__name__)}"
            for name, leaf in zip(tree.names, tree.leaves, strict=True)
        )
        raise InputError(
            f"no input has a floating or complex array to check ({kinds or 'no inputs'})",
            "pass floating-point arrays; Python and NumPy scalars count as constants",
        )
    return tuple(floating)


def _resolved(
    tree: Tree,
    owners: Mapping[int, AutodiffBackend],
    floating: Sequence[int],
    wrt: Path | Sequence[Path],
) -> tuple[int, ...]:
    paths = [wrt] if isinstance(wrt, int | str) else list(wrt)
    if not paths:
        raise InputError("wrt= selects nothing", "name at least one input, or leave wrt= out")
    chosen: set[int] = set()
    for path in paths:
        prefix = f"inputs[{path}]" if isinstance(path, int) else path
        under = [
            k
            for k, name in enumerate(tree.names)
            if name == prefix or (name.startswith(prefix) and name[len(prefix)] in "[.")
        ]
        if not under:
            raise InputError(
                f"wrt={path!r} is no input; there are: {', '.join(tree.names) or 'none'}",
                "give the index of a positional argument, or a path as listed",
            )
        usable = [k for k in under if k in floating]
        if not usable:
            k = under[0]
            kind = getattr(tree.leaves[k], "dtype", type(tree.leaves[k]).__name__)
            raise InputError(
                f"wrt={path!r} names {tree.names[k]}, which is {kind}",
                "only floating and complex arrays have derivatives",
            )
        chosen.update(usable)
    return tuple(sorted(chosen))


def gradient_problem(
    problem: Problem,
    attached: Sequence[bool],
    Y: Space,
    w: Sequence[Array],
) -> Problem:
    """`(x, w) -> J*(x) w` at `w`, one cotangent per attached output; observed beside it: f(x).

    `Y` is the space of the outputs of `problem`, in which the cotangents live.
    """
    backend, count = problem.backend, len(problem.x)
    kept = [k for k, here in enumerate(attached) if here]
    function = _only(problem.function, kept, len(attached))

    def evaluate(xw: Arrays) -> Arrays:
        x = xw[:count]
        y, pullback = backend.vjp(problem.function, x)
        problem.counts.vjps += 1
        given: list[Array | None] = [None] * len(attached)
        for k, cotangent in zip(kept, xw[count:], strict=True):
            given[k] = cotangent
        return (*backend.zeros_for_absent(pullback(tuple(given)), x), *y)

    names = [f"grad_outputs[{k}]" for k in range(len(kept))]
    gradient_names = [f"grad({leaf.name})" for leaf in problem.X.leaves]
    weights = np.zeros(Y.size)
    for k, cotangent in zip(kept, w, strict=True):
        weights[Y.slices[k]] = Y.leaves[k].vector(backend.to_host(cotangent))
    return _second_order(
        problem,
        "R",
        backend.vjp_map(function, count),
        evaluate,
        tuple(w),
        names,
        [*gradient_names, *(leaf.name for leaf in Y.leaves)],
        count,
        weights,
    )


def tangent_problem(
    problem: Problem, output_names: Sequence[str], v: Sequence[Array]
) -> Problem:
    """`(x, v) -> J(x) v` at `v`, one tangent per leaf of x; observed beside it: f(x)."""
    backend, count = problem.backend, len(problem.x)

    def evaluate(xv: Arrays) -> Arrays:
        y, jv = backend.jvp(problem.function, xv[:count], xv[count:])
        problem.counts.jvps += 1
        return (*backend.zeros_for_absent(jv, y), *y)

    return _second_order(
        problem,
        "F",
        backend.jvp_map(problem.function, count),
        evaluate,
        tuple(v),
        [f"tangents[{k}]" for k in range(count)],
        [*(f"tangent({name})" for name in output_names), *output_names],
        len(output_names),
    )


def _second_order(
    problem: Problem,
    letter: str,
    function: FlatFunction,
    evaluate: FlatFunction,
    directions: Arrays,
    direction_names: Sequence[str],
    output_names: Sequence[str],
    differentiated: int,
    weights: Vector | None = None,
) -> Problem:
    backend = problem.backend
    directions = tuple(backend.copy(direction) for direction in directions)
    more = Space.of(backend, directions, direction_names)
    return Problem(
        backend,
        function,
        evaluate,
        (*problem.x, *directions),
        Space((*problem.X.leaves, *more.leaves)),
        np.concatenate([problem.origin, more.vector(backend, directions, directions)]),
        problem.counts,
        letter + problem.tail,
        lambda: output_names,
        differentiated,
        len(problem.x),
        weights,
    )


def _only(function: FlatFunction, kept: Sequence[int], count: int) -> FlatFunction:
    if len(kept) == count:
        return function

    def attached_outputs(x: Arrays) -> Arrays:
        outputs = function(x)
        return tuple(outputs[k] for k in kept)

    return attached_outputs
