"""Derivatives written by hand, over any Array API namespace: an engine without a framework."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from math import prod
from typing import Any, Never, Protocol

from adjudge.engine.arrays import host_array, of_numbers
from adjudge.engine.contract import (
    Array,
    Arrays,
    AutodiffBackend,
    FlatFunction,
    MaybeArrays,
    OtherDerivatives,
    Pullback,
)
from adjudge.engine.jacobians import FORMS, Algebra, Hessian, Jacobian, called
from adjudge.engine.program import Program
from adjudge.engine.recording import recorded
from adjudge.engine.registry import is_array_like
from adjudge.engine.trace import INPUT, Evaluation, Ref, Step, Trace, defined_at, innermost
from adjudge.errors import InputError, Source, described, did_you_mean, running


class ByHand:
    """A function together with its hand-written derivatives.

    `forward(*x)` returns `y`. Of the derivatives give at least one:

    - `vjp(*x, w)`: the cotangent `w` has the structure of `y`. Returns the gradient, or for
      several inputs a tuple of gradients, one per positional input (`None`: no dependence).
    - `pullback(*x) -> (y, backward)` with `backward(w)` as above; `forward` may then be omitted.
    - `jvp(*x, *v)`: tangents `v` have the structure of the inputs. Returns the tangent of `y`.
      A check judges what is given: reverse mode, forward mode, or both.

    Second order: `double_vjp(*x, w, u)` is the vjp of `(x, w) -> vjp(x, w)`, with `u` of the
    structure of the gradients; it returns one gradient per positional input and one for `w`.
    Instead, `vjp` may itself be a `ByHand`, which goes to any order.

    Or as optimisers take them (SciPy's `minimize`, `least_squares`), in place of vjp and jvp, for
    inputs that are arrays:

    - `grad(*x)`: the gradient of a function of one number, of the shape of x.
    - `jac(*x)`: the Jacobian, with a row for each output and a column for each input: an array, a
      sparse matrix, or a linear operator (`shape`, `@` and `.T` are used).
    - `grad=True` or `jac=True`: `forward(*x)` returns the value and the derivative.
    - `hess(x)`: the Hessian, in the same forms; or `hessp(x, p)`: its product with `p`. It is
      compared with differences of the gradient, and every check asks for it (mode `RR` or `FR`).

    Of several inputs `grad` and `jac` return a tuple, with `None` where there is no dependence. If
    one of them is an array, the others are as `args` of SciPy are: `hessp(x, p, *args)`.

    Raises `InputError` where no derivative is given, or two for one thing.
    """

    def __init__(
        self,
        forward: Callable[..., Any] | None = None,
        *more: Never,
        vjp: Callable[..., Any] | ByHand | None = None,
        jvp: Callable[..., Any] | None = None,
        pullback: Callable[..., Any] | None = None,
        double_vjp: Callable[..., Any] | None = None,
        grad: Callable[..., Any] | bool | None = None,
        jac: Callable[..., Any] | bool | None = None,
        hess: Callable[..., Any] | None = None,
        hessp: Callable[..., Any] | None = None,
        **unknown: Any,
    ) -> None:
        """See the class."""
        if more:
            raise TypeError("ByHand() takes one function; say what the other is: vjp=, grad=, jac=")
        for name in unknown:
            hint = did_you_mean(name, (*FORMS, "pullback"), before=". ")
            raise TypeError(f"ByHand() got an unexpected keyword argument {name!r}{hint}")
        given: dict[str, Any] = {
            name: function
            for name, function in {
                "forward": forward, "vjp": vjp, "jvp": jvp, "pullback": pullback,
                "double_vjp": double_vjp, "grad": grad, "jac": jac, "hess": hess, "hessp": hessp,
            }.items()
            if function is not None
        }  # fmt: skip
        function = forward
        pair = next((name for name in ("grad", "jac") if given.get(name) is True), None)
        if pair and callable(forward):
            function, given[pair] = (partial(_half, forward, pair, k) for k in (0, 1))
        for name, one in given.items():
            if not callable(one):
                raise InputError(
                    f"{name}= is {described(one)}, which cannot be called",
                    f"give a function: {FORMS[name][0].format(x='x', v='v')}"
                    if name in FORMS
                    else "pass the function first",
                )
        if forward is None and pullback is None:
            raise InputError(
                "ByHand was given neither forward= nor pullback=",
                "pass the function itself: ByHand(forward, vjp=backward)",
            )
        first = [name for name in given if name in ("vjp", "jvp", "pullback", "grad", "jac")]
        second = [name for name in ("hess", "hessp") if name in given]
        if second and first[:1] not in (["grad"], ["jac"]):
            raise InputError(
                f"ByHand was given {second[0]}= without the gradient that it differentiates",
                "pass grad= as well; the second derivative of a vjp= is double_vjp=",
            )
        if not first:
            raise InputError(
                "ByHand was given a function but no derivative of it",
                "pass vjp=, jvp=, pullback=, grad= or jac=",
            )
        alone = [name for name in first if name != "jvp"] if "vjp" in first or pullback else first
        for one in (alone, second):
            if len(one) > 1:
                raise InputError(
                    f"ByHand was given both {one[0]}= and {one[1]}=", "pass one of them"
                )
        if double_vjp is not None:
            if vjp is None or isinstance(vjp, ByHand):
                raise InputError(
                    "ByHand was given double_vjp= without a plain vjp= that it differentiates",
                    "pass vjp= as a function, or nest: vjp=ByHand(vjp, vjp=double_vjp)",
                )
            vjp = ByHand(vjp, vjp=double_vjp)
            vjp.given_as = "double_vjp"
        self.given = given
        """The caller gave these by name: the function as `forward`, and its derivatives."""
        self.given_as: str = "vjp"
        """The name by which the caller gave the vjp."""
        self.as_matrices = first[0] in ("grad", "jac")
        """Whether derivatives are given as optimisers take them. Integers become float64 then."""
        self._function = function
        self._forward = forward
        self._forms: list[Jacobian | Hessian] = []
        self._engine: AutodiffBackend | None = None
        self.vjp = vjp
        self.jvp = jvp
        self.pullback = pullback
        if self.as_matrices:
            self._take_forms()

    def _take_forms(self) -> None:
        """Makes the vjp and the jvp of derivatives as optimisers take them."""
        name, *second = [one for one in ("grad", "jac", "hess", "hessp") if one in self.given]
        function = self._function
        assert function is not None  # there is no pullback
        rule, algebra = self.given[name], Algebra(self._engine)
        jacobian = Jacobian(name, rule, function, repr(self), algebra)
        self._forward, self.vjp, self.jvp = jacobian.value, jacobian.vjp, jacobian.jvp
        self._forms = [jacobian]
        if second:
            hessian = Hessian(jacobian, second[0], self.given[second[0]])
            self.vjp = ByHand(self.vjp, vjp=hessian.vjp, jvp=hessian.jvp)
            self._forms.append(hessian)

    def __getstate__(self) -> dict[str, Any]:
        """Returns what another process gets, to which no engine can be sent."""
        return {**vars(self), "_engine": None}

    def on(self, engine: AutodiffBackend) -> ByHand:
        """Returns the same function and derivatives for arrays of this engine, whose functions need
        not be those of the Array API.
        """
        there = copy.copy(self)
        there._engine = engine
        if self.as_matrices:
            there._take_forms()
        if isinstance(there.vjp, ByHand):
            there.vjp = there.vjp.on(engine)
        return there

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """`forward(*args, **kwargs)`, with an array for a number of Python or a list of numbers."""
        if self._forward is None:
            y, _ = self._pulled(args, kwargs)
        else:
            y = self._forward(*args, **kwargs)
        return (
            y if isinstance(y, dict) or hasattr(y, "shape") else of_numbers(y, args, self._engine)
        )

    def _pulled(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
        """Returns the value and the backward pass. Raises `InputError` where those are not what the
        pullback returns.
        """
        assert self.pullback is not None  # the constructor saw to it
        found = self.pullback(*args, **kwargs)
        if not isinstance(found, tuple | list) or len(found) != 2 or not callable(found[1]):
            raise InputError(
                f"pullback of {self!r} returned {described(found)}",
                "return (y, backward), where backward(w) is the gradient; a function that returns "
                "the value and the gradient itself is ByHand(f, grad=True)",
            )
        return found[0], found[1]

    def name_of(self, mode: str) -> str:
        """Returns under which name the derivative of this mode was given as optimisers take it; the
        empty text where it was not.
        """
        names = ("hess", "hessp") if len(mode) == 2 else ("grad", "jac") if len(mode) < 2 else ()
        return next((name for name in names if name in self.given), "")

    @property
    def only_forward(self) -> bool:
        """Whether `jvp` is the only derivative that was given."""
        return self.vjp is None and self.pullback is None

    def further(self, *args: Any, **kwargs: Any) -> tuple[str, ...]:
        """The compositions of modes that a check of what was given has beside its usual ones."""
        return tuple([mode for form in self._forms for mode in form.further(*args, **kwargs)])

    @property
    def second(self) -> tuple[str, ...]:
        """What was given as a derivative of second order, as one writes it."""
        return tuple([f"{one}=" for one in ("hess", "hessp", "double_vjp") if one in self.given])

    def __repr__(self) -> str:
        """`ByHand(softmax)`."""
        function = self.given.get("forward", self.given.get("pullback"))
        return f"ByHand({getattr(function, '__name__', function)!s})"


def _half(function: Callable[..., Any], name: str, k: int, *args: Any, **kwargs: Any) -> Any:
    """Returns the value (0) or the derivative (1) that a function returns beside each other."""
    found = function(*args, **kwargs)
    if not isinstance(found, tuple | list) or len(found) != 2:
        raise InputError(
            f"the function returned {described(found)}, and {name}=True",
            f"return the value and the {'gradient' if name == 'grad' else 'Jacobian'}, or give "
            f"{name}= a function",
        )
    return found[k]


class Calls(Protocol):
    """Translates between the leaves of the core and the arguments of the user's functions."""

    def arguments_for(self, x: Arrays) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the call's arguments, with the checked leaves `x` in their places."""

    def call_context(self, x: Arrays) -> AbstractContextManager[None]:
        """Returns the context of every call of the user's function: `Environment.call_context`."""

    def evaluate(self, function: Callable[..., Any], x: Arrays) -> Arrays:
        """Returns the output leaves of `function`, called with `x` in place."""

    def outputs(self, result: Any) -> Arrays:
        """Returns the differentiable leaves of what the user's function returned."""

    def gradients(self, result: Any) -> MaybeArrays:
        """Returns one gradient for each checked leaf, from what the user's vjp returned."""

    def gradient_tree(self, leaves: MaybeArrays) -> tuple[Any, ...]:
        """Returns the inverse of `gradients`: one tree for each positional input."""

    def cotangent(self, w: MaybeArrays) -> Any:
        """Returns `w` in the structure of the user's outputs."""

    def cotangent_leaves(self, tree: Any) -> MaybeArrays:
        """Returns the inverse of `cotangent`."""

    def input_names(self) -> Sequence[str]:
        """Returns the names of the checked leaves."""

    def output_names(self) -> Sequence[str]:
        """Returns the names of the differentiable leaves of the last output."""


class FlatByHand:
    """A `ByHand` as a flat function, with its derivatives as flat functions."""

    def __init__(self, rule: ByHand, calls: Calls) -> None:
        """`calls` translates between leaves and the arguments of `rule`."""
        self.rule = rule
        self.calls = calls

    def __call__(self, x: Arrays) -> Arrays:
        """`f(x)`."""
        return self.calls.evaluate(self.rule, x)

    def linearize(self, x: Arrays) -> tuple[Arrays, Pullback] | None:
        """Returns `(f(x), w -> J* w)`; `None` if no reverse derivative was given."""
        calls, rule = self.calls, self.rule
        if rule.pullback is not None:
            captured: list[Callable[..., Any]] = []

            def value_only(*args: Any, **kwargs: Any) -> Any:
                y, backward = rule._pulled(args, kwargs)
                captured.append(backward)
                return of_numbers(y, args, rule._engine)

            y = calls.evaluate(value_only, x)

            def back(w: MaybeArrays) -> MaybeArrays:
                cotangent = calls.cotangent(w)
                with calls.call_context(x):
                    gradient = captured[0](cotangent)
                return calls.gradients(gradient)

            return y, back
        if rule.vjp is None:
            return None
        vjp = rule.vjp

        def pull(w: MaybeArrays) -> MaybeArrays:
            args, kwargs = calls.arguments_for(x)
            cotangent = calls.cotangent(w)
            with calls.call_context(x):
                gradient = called(rule.given_as, vjp, rule, (*args, cotangent), kwargs)
            return calls.gradients(gradient)

        return self(x), pull

    def push(self, x: Arrays, v: Arrays) -> MaybeArrays | None:
        """Returns `J v`; `None` if no forward derivative was given."""
        if self.rule.jvp is None:
            return None
        args, kwargs = self.calls.arguments_for(x)
        tangents = self.calls.gradient_tree(v)
        note = "adjudge: raised in the jvp, not in the function"
        with running(Source.DERIVATIVE, note), self.calls.call_context(x):
            pushed = called("jvp", self.rule.jvp, self.rule, (*args, *tangents), kwargs)
        return self.calls.cotangent_leaves(pushed)

    def gradient_map(self, zeros: Callable[[MaybeArrays, Arrays], Arrays]) -> FlatByHand | None:
        """Returns `(x, w) -> J*(x) w` if the vjp carries derivatives of its own, else `None`."""
        if not isinstance(self.rule.vjp, ByHand):
            return None
        return FlatByHand(self.rule.vjp, GradientCalls(self.calls, zeros))


class GradientCalls:
    """Calls of `(x, w) -> J*(x) w`, made of the calls of `x -> f(x)`."""

    def __init__(self, inner: Calls, zeros: Callable[[MaybeArrays, Arrays], Arrays]) -> None:
        """`zeros(values, like)` fills absent gradients."""
        self.inner = inner
        self.zeros = zeros
        self.x: Arrays = ()

    def _split(self, xw: Arrays) -> tuple[Arrays, Arrays]:
        count = len(self.inner.gradients(None))
        return xw[:count], xw[count:]

    def arguments_for(self, x: Arrays) -> tuple[tuple[Any, ...], dict[str, Any]]:
        self.x, w = self._split(x)
        args, kwargs = self.inner.arguments_for(self.x)
        return (*args, self.inner.cotangent(w)), kwargs

    def evaluate(self, function: Callable[..., Any], x: Arrays) -> Arrays:
        args, kwargs = self.arguments_for(x)
        with self.call_context(x):
            result = function(*args, **kwargs)
        return self.outputs(result)

    def call_context(self, x: Arrays) -> AbstractContextManager[None]:
        return self.inner.call_context(self._split(x)[0])

    def outputs(self, result: Any) -> Arrays:
        return self.zeros(self.inner.gradients(result), self.x)

    def gradients(self, result: Any) -> MaybeArrays:
        if result is None:
            return (*self.inner.gradients(None), *self.inner.cotangent_leaves(None))
        if not isinstance(result, tuple):
            raise InputError(
                f"the second derivative of a ByHand returned {type(result).__name__}",
                "return a tuple: one gradient per positional input, then one for the cotangent",
            )
        *of_x, of_w = result
        return (*self.inner.gradients(tuple(of_x)), *self.inner.cotangent_leaves(of_w))

    def gradient_tree(self, leaves: MaybeArrays) -> tuple[Any, ...]:
        count = len(self.inner.gradients(None))
        return (
            *self.inner.gradient_tree(leaves[:count]),
            self.inner.cotangent(leaves[count:]),
        )

    def cotangent(self, w: MaybeArrays) -> Any:
        filled = self.zeros(w, self.x) if self.x else w
        trees = self.inner.gradient_tree(filled)
        return trees[0] if len(trees) == 1 else trees

    def cotangent_leaves(self, tree: Any) -> MaybeArrays:
        return self.inner.gradients(tree)

    def input_names(self) -> Sequence[str]:
        outputs = (f"the cotangent of {name}" for name in self.inner.output_names())
        return (*self.inner.input_names(), *outputs)

    def output_names(self) -> Sequence[str]:
        return [f"the gradient of {name}" for name in self.inner.input_names()]


class HandBackend(OtherDerivatives):
    """The engine of `ByHand` functions, with the arrays of another engine."""

    way = "by hand"
    recorded_unasked = False  # f would see arrays of another class

    def __init__(self, inner: AutodiffBackend, rule: ByHand) -> None:
        """`inner` has the arrays, and `rule` the derivatives."""
        super().__init__(inner)
        self.rule = rule

    @property
    def capabilities(self) -> frozenset[str]:
        return frozenset({"jvp"} if self.rule.jvp is not None else ())

    def vjp(self, f: FlatFunction, x: Arrays) -> tuple[Arrays, Pullback]:
        assert isinstance(f, FlatByHand)
        linear = f.linearize(x)
        if linear is None:
            raise self.lacks(
                "reverse mode (vjp)",
                f"{f.rule!r} was given no vjp=",
                "give vjp=, or check forward mode alone: check_backward_ad=False",
            )
        y, pull = linear

        def checked(w: MaybeArrays) -> MaybeArrays:
            filled = self.arrays.zeros_for_absent(w, y)
            return self._shaped_as(x, pull(filled), "vjp", f.calls.input_names())

        return y, checked

    def jvp(self, f: FlatFunction, x: Arrays, v: MaybeArrays) -> tuple[Arrays, MaybeArrays]:
        assert isinstance(f, FlatByHand)
        y = f(x)
        tangents = f.push(x, self.arrays.zeros_for_absent(v, x))
        if tangents is None:
            raise self.lacks(
                "forward mode (jvp)",
                f"{f.rule!r} was given no jvp=",
                "give jvp=, or leave forward mode out",
            )
        return y, self._shaped_as(y, tangents, "jvp", f.calls.output_names())

    def trace(self, f: FlatFunction, x: Arrays) -> Trace:
        """Returns a program of one step, which is the rule."""
        assert isinstance(f, FlatByHand)
        name, rule = next((n, one) for n, one in f.rule.given.items() if n != "forward")
        operands, results = tuple([Ref(INPUT, k) for k in range(len(x))]), f(x)
        step = Step(
            name=repr(f.rule),
            run=f,
            operands=operands,
            results=len(results),
            custom=True,
            rule=f"{name}={_name(rule)}",
            rule_place=defined_at(rule),
        )
        recorded = Evaluation(x, [step])
        recorded.add(0, results)
        return Trace([step], recorded, tuple([Ref(0, k) for k in range(len(results))]))

    def program(self, f: FlatFunction, x: Arrays) -> Program:
        if self.name != "numpy" or type(f) is not FlatByHand:
            return super().program(f, x)
        return recorded(lambda function: f.calls.evaluate(function, x), f.rule, x, self.arrays)

    def vjp_program(self, f: FlatFunction, x: Arrays, w: Arrays) -> Program:
        assert isinstance(f, FlatByHand)
        rule, xw = f.rule.vjp, (*x, *w)
        if rule is None:
            raise self.lacks("translating a pullback (program)")
        calls = GradientCalls(f.calls, self.arrays.zeros_for_absent)
        if self.name != "numpy":
            return self.inner.program(lambda xw: calls.evaluate(rule, xw), xw)
        try:
            evaluate = partial(calls.evaluate, x=xw)
            return recorded(evaluate, rule, xw, self.arrays, again=False)
        finally:
            calls.evaluate(rule, xw)  # what the rule keeps of its arguments is no recorder

    def vjp_map(self, f: FlatFunction, x_count: int) -> FlatFunction:
        assert isinstance(f, FlatByHand)
        gradient_map = f.gradient_map(self.arrays.zeros_for_absent)
        if gradient_map is None:
            missing = "hess= or hessp=" if f.rule.as_matrices else "double_vjp="
            raise self.lacks(
                "second order",
                f"{f.rule!r} was given no {missing}",
                f"give {missing}, or leave second order out",
            )
        return gradient_map

    def jvp_map(self, f: FlatFunction, x_count: int) -> FlatFunction:
        raise self.lacks("derivatives of a hand-written jvp")

    def own(self, value: Any, like: Array) -> Any:
        """Returns an array of another framework, as a rule in NumPy makes it of any array, as one
        of this engine, where `like` is; all else as it is.
        """
        if self.owns(value) or not is_array_like(value):
            return value
        host = host_array(value)
        return self.arrays.make(host, host.dtype.name, self.arrays.info(like).device)

    def _shaped_as(
        self, like: Arrays, values: MaybeArrays, rule: str, names: Sequence[str]
    ) -> MaybeArrays:
        values = tuple(map(self.own, values, like))
        for value, leaf, name in zip(values, like, names, strict=True):
            if value is None:
                continue
            if not self.owns(value):
                raise InputError(
                    f"{rule} of {self.rule!r} returned a {type(value).__name__} for {name}, "
                    f"not an array of {self.name}",
                    f"return an array of the shape of {name}, {tuple(leaf.shape)}",
                )
            if tuple(value.shape) != tuple(leaf.shape):
                larger = prod(value.shape) > prod(leaf.shape)
                raise InputError(
                    f"{rule} of {self.rule!r} returned shape {tuple(value.shape)} for {name}, "
                    f"which has shape {tuple(leaf.shape)}",
                    f"return an array of the shape of {name}"
                    + (" (sum over broadcast axes)" if rule == "vjp" and larger else ""),
                )
        return values


def _name(rule: Any) -> str:
    """Returns the name of a rule, and of an object that is called that of its class."""
    name: str = getattr(innermost(rule), "__name__", "__call__")
    return type(rule).__name__ if name == "__call__" else name
