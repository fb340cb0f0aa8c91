"""What the conformance kit runs, as data: functions with right and with wrong derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Rule = Callable[..., Any]
"""A function or a derivative of it. It takes the Array API namespace, constants, and inputs."""


@dataclass(frozen=True)
class WrongRule:
    """Derivatives of a scenario of which some are wrong; those left out are the right ones."""

    name: str
    vjp: Rule | None = None
    jvp: Rule | None = None
    double_vjp: Rule | None = None
    slight: bool = False
    """Whether they are off by so little that an engine which computes in float32, or holds nothing
    wider, need not show it."""

    @property
    def mode(self) -> str:
        """The mode that must fail."""
        return "R" if self.vjp is not None else "F" if self.jvp is not None else "RR"


@dataclass(frozen=True)
class Scenario:
    """A function with its derivatives in closed form, and where it is differentiated.

    All rules are written in the Array API (2024.12) and take the namespace and the constants
    first; what follows is as for `adjudge.ByHand`: `forward(xp, *c, *x)`, `vjp(xp, *c, *x, w)`,
    `jvp(xp, *c, *x, *v)`, `double_vjp(xp, *c, *x, w, u)`.
    """

    name: str
    forward: Rule
    vjp: Rule
    inputs: tuple[Any, ...]
    """The positional inputs: pytrees of NumPy arrays, float64 or complex128 where differentiated.
    Their values have few bits, so that narrow dtypes hold them exactly."""
    jvp: Rule | None = None
    double_vjp: Rule | None = None
    constants: tuple[Any, ...] = ()
    """The arrays that the function captures."""
    dtypes: tuple[str, ...] = ("float64",)
    """The real dtypes at which it runs. Complex inputs have the complex dtype of that precision."""
    needs: frozenset[str] = frozenset()
    """The capabilities without which an engine cannot run it."""
    wrong_rules: tuple[WrongRule, ...] = ()
    rounding: float = 64.0
    """How far a derivative may be off, in units of rounding of its largest entry."""

    @property
    def modes(self) -> tuple[str, ...]:
        """Which derivatives are known in closed form."""
        first = ("R",) if self.jvp is None else ("R", "F")
        return first if self.double_vjp is None else (*first, "RR", "FR", "RF", "FF")


# ---------------------------------------------------------------- trees of gradients


def mapped(change: Callable[[Any], Any], tree: Any) -> Any:
    """Returns `tree` with every array changed; `None` stays."""
    if isinstance(tree, dict):
        return {key: mapped(change, node) for key, node in tree.items()}
    if isinstance(tree, tuple | list):
        return type(tree)(mapped(change, node) for node in tree)
    return None if tree is None else change(tree)


# ---------------------------------------------------------------- what makes a rule wrong


def scaled(rule: Rule, by: float) -> Rule:
    """Returns the rule with its result times `by`."""
    return lambda xp, *arguments: mapped(lambda leaf: leaf * by, rule(xp, *arguments))


def dropped(rule: Rule, part: int | None = None, entry: int = 0) -> Rule:
    """Returns the rule with a zero in place of one entry of its result, of array `part` where there
    are several.
    """

    def wrong(xp: Any, *arguments: Any) -> Any:
        def without(leaf: Any) -> Any:
            flat = xp.reshape(leaf, (-1,))
            zero = xp.zeros_like(flat[:1])
            return xp.reshape(xp.concat([flat[:entry], zero, flat[entry + 1 :]]), leaf.shape)

        return _at(part, without, rule(xp, *arguments))

    return wrong


def transposed(rule: Rule, part: int | None = None) -> Rule:
    """Returns the rule with a matrix of its result transposed."""
    return lambda xp, *arguments: _at(
        part, lambda leaf: xp.matrix_transpose(leaf), rule(xp, *arguments)
    )


def conjugated(rule: Rule, part: int | None = None) -> Rule:
    """Returns the rule with its result conjugated."""
    return lambda xp, *arguments: _at(part, lambda leaf: xp.conj(leaf), rule(xp, *arguments))


def as_transpose(rule: Rule) -> Rule:
    """Returns the rule as the transpose of J in place of its adjoint: conjugations are missing."""

    def wrong(xp: Any, *arguments: Any) -> Any:
        def conj(leaf: Any) -> Any:
            return xp.conj(leaf) if xp.isdtype(leaf.dtype, "complex floating") else leaf

        *x, w = arguments
        return mapped(conj, rule(xp, *x, mapped(conj, w)))

    return wrong


def _at(part: int | None, change: Callable[[Any], Any], tree: Any) -> Any:
    if part is None:
        return mapped(change, tree)
    changed: Sequence[Any] = [
        mapped(change, node) if k == part else node for k, node in enumerate(tree)
    ]
    return tuple(changed)
